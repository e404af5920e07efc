"""A cluster whose router, prefill and decode workers live in network namespaces of their own, with
nothing in common but the wire: every process listens on all addresses and is reached at the one it
advertises. The router knows workers by names, which stand in the hosts file of its namespace."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "deploy/local"))

import haystack  # noqa: E402
from cluster import Process  # noqa: E402

BINARIES = pathlib.Path(os.environ["BATON_BINARIES"])
MODEL = ROOT / "models/needle-17m"
TEXT = haystack.make_haystack(700, (0.3, 0.7), seed=5)
# Addresses by namespace; clients sit in the one that holds the bridge.
CLIENT, ROUTER, PREFILL = "10.77.0.1", "10.77.0.2", "10.77.0.3"
DECODE, OTHER_DECODE = "10.77.0.4", "10.77.0.5"


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)


def can_make_namespaces() -> bool:
    if os.geteuid() != 0 or not shutil.which("ip"):
        return False
    probe = f"baton-{os.getpid()}-probe"
    made = subprocess.run(["ip", "netns", "add", probe], capture_output=True).returncode == 0
    return made and subprocess.run(["ip", "netns", "del", probe]).returncode == 0


class Network:
    """Namespaces around a bridge. Their names carry our process id: runs do not meet."""

    def __init__(self):
        self.namespaces: list[str] = []
        self.bridge = self.add("hub")
        ip("-n", self.bridge, "link", "add", "bridge", "type", "bridge")
        ip("-n", self.bridge, "address", "add", f"{CLIENT}/24", "dev", "bridge")
        ip("-n", self.bridge, "link", "set", "bridge", "up")

    def add(self, name: str, *addresses: str) -> str:
        namespace = f"baton-{os.getpid()}-{name}"
        ip("netns", "add", namespace)
        self.namespaces.append(namespace)
        ip("-n", namespace, "link", "set", "lo", "up")
        if addresses:
            ip("-n", self.bridge, "link", "add", name, "type", "veth", "peer", "name", "eth0",
               "netns", namespace)
            ip("-n", self.bridge, "link", "set", name, "master", "bridge", "up")
            for address in addresses:
                ip("-n", namespace, "address", "add", f"{address}/24", "dev", "eth0")
            ip("-n", namespace, "link", "set", "eth0", "up")
        return namespace

    def remove(self) -> None:
        for namespace in self.namespaces:
            subprocess.run(["ip", "netns", "del", namespace], capture_output=True)


@unittest.skipUnless(can_make_namespaces(), "needs root and `ip netns`")
class NetworkNamespaces(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.network = Network()
        cls.addClassCleanup(cls.network.remove)
        cls.logs = pathlib.Path(tempfile.mkdtemp(prefix="baton-"))
        router = cls.network.add("router", ROUTER)
        prefill = cls.network.add("prefill", PREFILL)
        decode = cls.network.add("decode", DECODE, OTHER_DECODE)
        # `ip netns exec` puts this file in the place of /etc/hosts.
        cls.hosts = pathlib.Path("/etc/netns", router, "hosts")
        cls.hosts.parent.mkdir(parents=True)
        cls.addClassCleanup(shutil.rmtree, cls.hosts.parent)
        cls.name({"prefill.test": PREFILL, "decode.test": DECODE})

        cls.start(prefill, "prefill", "prefill", "--listen=0.0.0.0:7001",
                  f"--advertise={PREFILL}:7001", "--metrics-listen=0.0.0.0:9001")
        for address, name in ((DECODE, "decode"), (OTHER_DECODE, "other-decode")):
            cls.start(decode, "decode", name, f"--listen={address}:7002",
                      f"--metrics-listen={address}:9002")
        cls.router = cls.start(
            router, "router", "router", "--listen=0.0.0.0:8000", "--grpc-listen=0.0.0.0:8001",
            "--metrics-listen=0.0.0.0:9000", "--prefill-workers=dns:prefill.test:7001",
            "--decode-workers=dns:decode.test:7002", "--resolve-interval=200ms")

    @classmethod
    def start(cls, namespace: str, role: str, name: str, *flags: str) -> Process:
        process = Process(pathlib.Path(shutil.which("ip")), name,
                          ["netns", "exec", namespace, str(BINARIES / f"baton-{role}"),
                           f"--model-dir={MODEL}", *flags], cls.logs)
        cls.addClassCleanup(process.terminate)
        process.addresses  # it listens
        return process

    @classmethod
    def name(cls, hosts: dict[str, str]) -> None:
        """Written in place: the file is mounted."""
        cls.hosts.write_text("".join(f"{address} {name}\n" for name, address in hosts.items()))

    def curl(self, path: str, body: dict | None = None) -> dict:
        data = ["-H", "Content-Type: application/json", "-d", json.dumps(body)] if body else []
        shown = subprocess.run(
            ["ip", "netns", "exec", self.network.bridge, "curl", "-s", "--max-time", "60", *data,
             f"http://{ROUTER}:8000{path}"], capture_output=True, text=True, check=True)
        return json.loads(shown.stdout)

    def ready_workers(self) -> dict[str, list[str]]:
        ready: dict[str, list[str]] = {"prefill": [], "decode": []}
        for worker in self.curl("/health")["workers"]:
            if worker["ready"]:
                ready[worker["role"]].append(worker["address"])
        return ready

    def wait_for(self, expected: dict[str, list[str]]) -> None:
        deadline = time.monotonic() + 20
        while (ready := self.ready_workers()) != expected:
            self.assertLess(time.monotonic(), deadline, f"{ready}\n{self.router.log_end()}")
            time.sleep(0.1)

    def ask(self) -> dict:
        """The member `baton` of a right answer: who served it."""
        needle = TEXT.needles[0]
        answer = self.curl("/v1/chat/completions", {
            "messages": [{"role": "user", "content": f"{TEXT.text}\n\n{needle.question}"}],
            "temperature": 0, "max_tokens": 24})
        self.assertEqual(answer["choices"][0]["message"]["content"], needle.passphrase, answer)
        return answer["baton"]

    def test_serves_over_the_wire_and_follows_the_names(self):
        self.wait_for({"prefill": [f"{PREFILL}:7001"], "decode": [f"{DECODE}:7002"]})
        served = self.ask()
        self.assertIn(f"{PREFILL}:7001", json.dumps(served))
        self.assertIn(f"{DECODE}:7002", json.dumps(served))
        self.assertGreater(served["handoff_bytes"], 0)

        self.name({"prefill.test": PREFILL, "decode.test": OTHER_DECODE})
        self.wait_for({"prefill": [f"{PREFILL}:7001"], "decode": [f"{OTHER_DECODE}:7002"]})
        self.assertIn(f"{OTHER_DECODE}:7002", json.dumps(self.ask()))


if __name__ == "__main__":
    unittest.main()
