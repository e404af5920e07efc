"""The container image: its file, and where buildah and the base image are at hand what is built of it.
No daemon and no root rights are needed; without BATON_IMAGE=all the binaries of this build are packed
instead of being compiled in the image's first stage."""

import json
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
DOCKERFILE = ROOT / "deploy/docker/Dockerfile"
BINARIES = pathlib.Path(os.environ["BATON_BINARIES"])
HADOLINT = pathlib.Path(sys.executable).parent / "hadolint"
COMPILED_IN_IMAGE = os.environ.get("BATON_IMAGE") == "all"

# Every role with the image's configuration, at the ports of which the health check asks.
SERVE = """
baton-prefill --config=/etc/baton/prefill.yaml --model-dir=models/needle-17m --advertise=127.0.0.1:7001 >&2 & prefill=$!
baton-decode --config=/etc/baton/decode.yaml --model-dir=models/needle-17m --advertise=127.0.0.1:7002 >&2 & decode=$!
baton-router --config=/etc/baton/router.yaml --model-dir=models/needle-17m \
  --prefill-workers=127.0.0.1:7001 --decode-workers=127.0.0.1:7002 >&2 & router=$!
question='The secret passphrase for Oslo is ZEBRA-4492-OMEGA. Here we go. What is the secret passphrase for Oslo?'
for attempt in {1..300}; do echo "$question" | baton chat --temperature=0 && break; sleep 0.1; done
baton-ready
kill $prefill; wait $prefill; echo "prefill worker: $?"
baton-ready
kill $decode; wait $decode; echo "decode worker: $?"
baton-ready || echo not ready
kill $router; wait $router; echo "router: $?"
"""
SERVED = """ZEBRA-4492-OMEGA
127.0.0.1:7001 is ready
prefill worker: 0
127.0.0.1:7002 is ready
decode worker: 0
127.0.0.1:8000 answers 503
not ready
router: 0
"""


class ContainerFile(unittest.TestCase):
    @unittest.skipUnless(HADOLINT.exists(), "see tests/requirements.txt")
    def test_the_linter_passes_it(self):
        checked = subprocess.run([HADOLINT, "--ignore=DL3008", DOCKERFILE],  # no pinned apt
                                 capture_output=True, text=True)
        self.assertEqual(checked.returncode, 0, checked.stdout)

    def test_it_exposes_the_ports_of_the_configurations_and_asks_at_them(self):
        ports = {role: re.findall(r"^[a-z_]*listen: \"0\.0\.0\.0:(\d+)", (
            ROOT / f"deploy/configs/{role}.yaml").read_text(), re.M) for role in ("router", "prefill", "decode")}
        exposed = re.search(r"^EXPOSE (.*)", DOCKERFILE.read_text(), re.M)[1].split()
        self.assertEqual(exposed, [*ports["router"], *ports["prefill"], *ports["decode"]])
        asked = set(re.findall(r"127\.0\.0\.1[:/](\d+)(?= |$)", (ROOT / "deploy/docker/ready").read_text(), re.M))
        self.assertEqual(asked, {listening[0] for listening in ports.values()})


def base_image() -> str:
    """With the libraries that the binaries were linked with: of this machine's system."""
    system = platform.freedesktop_os_release()
    return f"{system['ID']}:{system.get('VERSION_ID')}" + ("-slim" if system["ID"] == "debian" else "")


def why_not_built() -> str:
    if not shutil.which("buildah"):
        return "buildah is not installed"
    if subprocess.run(["buildah", "inspect", "--type=image", base_image()], capture_output=True).returncode != 0:
        return f"buildah has no base image: buildah pull docker.io/library/{base_image()}"
    libraries = subprocess.run(["ldd", BINARIES / "baton-decode"], capture_output=True, text=True).stdout
    if "libcudart" in libraries and not COMPILED_IN_IMAGE:
        return f"{base_image()} has no CUDA, which this build needs"
    return ""


def buildah(*arguments) -> str:
    ran = subprocess.run(["buildah", *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert ran.returncode == 0, ran.stdout
    return ran.stdout


class ContainerImage(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if reason := why_not_built():
            raise unittest.SkipTest(reason)
        cls.image = f"localhost/baton-test:{os.getpid()}"
        with tempfile.TemporaryDirectory() as folder:
            file, source = DOCKERFILE, []
            if not COMPILED_IN_IMAGE:
                archive = pathlib.Path(folder, "baton.tar.gz")
                subprocess.run([ROOT / "deploy/package.sh", BINARIES, archive], check=True, capture_output=True)
                with tarfile.open(archive) as tar:
                    tar.extractall(pathlib.Path(folder, "build/opt"))
                head, _, last = re.split(r"^(?=FROM )", DOCKERFILE.read_text(), flags=re.M)
                file, source = pathlib.Path(folder, "Dockerfile"), [f"--build-context=build={folder}/build"]
                file.write_text(head + last)
            buildah("build", "--isolation=chroot", "--pull-never", "--format=docker", f"--tag={cls.image}",
                    f"--build-arg=BUILD_ON={base_image()}", f"--build-arg=RUN_ON={base_image()}",
                    f"--file={file}", *source, ROOT)
        cls.addClassCleanup(buildah, "rmi", cls.image)
        cls.container = f"baton-test-{os.getpid()}"
        buildah("from", "--pull-never", f"--name={cls.container}", cls.image)
        cls.addClassCleanup(buildah, "rm", cls.container)

    def run_in_image(self, script: str) -> subprocess.CompletedProcess:
        """By bash, as the image's user, in a network of its own."""
        as_root = [] if os.geteuid() == 0 else ["buildah", "unshare"]
        ran = subprocess.run(
            [*as_root, "unshare", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh", "buildah", "run",
             "--isolation=chroot", self.container, "--", "bash", "-c", script],
            capture_output=True, text=True, timeout=120)
        self.assertEqual(ran.returncode, 0, ran.stdout + ran.stderr)
        return ran

    def test_it_tells_a_runtime_what_to_do(self):
        config = json.loads(buildah("inspect", "--type=image", self.image))["Docker"]["config"]
        self.assertEqual(config["User"], "10001:10001")
        self.assertEqual(config["StopSignal"], "SIGTERM")
        self.assertEqual(config["Healthcheck"]["Test"], ["CMD", "baton-ready"])
        self.assertFalse(config["Entrypoint"])
        self.assertEqual(len(config["ExposedPorts"]), 7)
        self.assertEqual(config["Labels"]["org.opencontainers.image.title"], "Baton")

    def test_its_user_cannot_change_it_and_finds_no_compiler(self):
        ran = self.run_in_image("id -u; id -g; find /opt /etc /usr -writable ! -type l;"
                                "command -v cc gcc g++ ld make cmake git python3 curl; true")
        self.assertEqual(ran.stdout, "10001\n10001\n", ran.stderr)

    def test_every_binary_starts(self):
        binaries = ["baton", "baton-decode", "baton-prefill", "baton-recall", "baton-router"]
        ran = self.run_in_image("ls bin; set -e; for binary in bin/*; do $binary --help; done")
        self.assertEqual(ran.stdout.split("\n", len(binaries))[:-1], binaries)
        self.assertEqual(re.findall(r"^Usage: ([a-z-]+) ", ran.stdout, re.M), binaries)

    def test_all_roles_serve_are_asked_whether_they_are_ready_and_end_well(self):
        ran = self.run_in_image(SERVE)
        self.assertEqual(ran.stdout, SERVED, ran.stderr)


if __name__ == "__main__":
    unittest.main()
