"""A cluster whose processes know each other by certificates, under HTTPS for its clients."""

import json
import os
import pathlib
import re
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "deploy/local"))
sys.path.insert(0, str(ROOT / "tests/e2e"))

from baton_command_test import ANY_PORT, BATON, QUESTION, Up, baton  # noqa: E402

try:
    import grpc
    import openai
    from grpc_health.v1 import health_pb2, health_pb2_grpc
except ImportError as error:
    raise unittest.SkipTest(f"{error}; see tests/requirements.txt") from None

MODEL = ROOT / "models/needle-17m"
PASSPHRASE = "ZEBRA-4492-OMEGA"


def openssl(*arguments: object) -> None:
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)


class Authority:
    """A CA; `issue` writes NAME.crt and NAME.key beside ca.crt."""

    def __init__(self, folder: pathlib.Path):
        folder.mkdir()
        self.folder, self.certificate = folder, folder / "ca.crt"
        openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                "-days", 1, "-subj", f"/CN={folder.name}", "-keyout", folder / "ca.key",
                "-out", self.certificate, "-addext", "basicConstraints=critical,CA:TRUE")

    def issue(self, name: str, names: str) -> None:
        request, extensions = self.folder / f"{name}.csr", self.folder / f"{name}.ext"
        extensions.write_text(f"subjectAltName={names}\nextendedKeyUsage=serverAuth,clientAuth\n")
        openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj",
                f"/CN={name}", "-keyout", self.folder / f"{name}.key", "-out", request)
        openssl("x509", "-req", "-in", request, "-CA", self.certificate, "-CAkey",
                self.folder / "ca.key", "-CAcreateserial", "-days", 1, "-extfile", extensions,
                "-out", self.folder / f"{name}.crt")

    def cluster_flags(self, name: str) -> list[str]:
        return [f"--tls-cert-file={self.folder / name}.crt",
                f"--tls-key-file={self.folder / name}.key", f"--tls-ca-file={self.certificate}"]


def setUpModule():
    global workers, public, up
    keep = tempfile.TemporaryDirectory()
    unittest.addModuleCleanup(keep.cleanup)
    workers = Authority(pathlib.Path(keep.name) / "workers")
    workers.issue("worker", "IP:127.0.0.1")
    public = Authority(pathlib.Path(keep.name) / "public")
    public.issue("api", "DNS:localhost,IP:127.0.0.1")
    up = Up(f"--model-dir={MODEL}", *ANY_PORT, *workers.cluster_flags("worker"),
            "--worker-flag=--transports=grpc",
            f"--router-flag=--api-tls-cert-file={public.folder}/api.crt",
            f"--router-flag=--api-tls-key-file={public.folder}/api.key")
    unittest.addModuleCleanup(up.stop)


class Tls(unittest.TestCase):
    def test_the_openai_package_asks_over_https(self):
        self.assertTrue(up.ready["url"].startswith("https://"), up.ready)
        trust = ssl.create_default_context(cafile=public.certificate)
        client = openai.OpenAI(base_url=up.ready["url"] + "/v1", api_key="unused", max_retries=0,
                               http_client=openai.DefaultHttpxClient(verify=trust))
        for stream in (False, True):
            answer = client.chat.completions.create(
                model=MODEL.name, temperature=0, max_tokens=24, stream=stream,
                messages=[{"role": "user", "content": QUESTION.replace("\\\n", "\n").strip()}])
            if stream:
                text = "".join(c.choices[0].delta.content or "" for c in answer if c.choices)
            else:
                text = answer.choices[0].message.content
                # Prefilled elsewhere, and what was handed over went over gRPC.
                self.assertGreater(answer.baton["handoff_bytes"], 0)
            self.assertEqual(text, PASSPHRASE)

    def test_the_command_line_trusts_whom_it_is_told_to(self):
        url = f"--url={up.ready['url']}"
        self.assertEqual(baton("chat", url, f"--ca-file={public.certificate}", "--temperature=0",
                               input=QUESTION), PASSPHRASE + "\n")
        untrusting = subprocess.run([BATON, "chat", url], input=QUESTION, capture_output=True,
                                    text=True)
        self.assertEqual(untrusting.returncode, 1)
        self.assertIn("the server's certificate", untrusting.stderr)
        untrusting = subprocess.run([BATON, "chat", url.replace("https", "http")], input=QUESTION,
                                    capture_output=True, text=True)
        self.assertIn("HTTPS", untrusting.stderr)

    def test_what_up_says_to_run_runs(self):
        shown = subprocess.Popen([BATON, "up", f"--model-dir={MODEL}", *ANY_PORT,
                                  *workers.cluster_flags("worker"),
                                  f"--router-flag=--api-tls-cert-file={public.folder}/api.crt",
                                  f"--router-flag=--api-tls-key-file={public.folder}/api.key"],
                                 stdout=subprocess.PIPE, text=True)
        try:
            ready = next(line for line in shown.stdout if line.startswith("Ready."))
            chat, top = re.findall("`baton ([^`]*)`", ready)
            chat = chat.replace("FILE", str(public.certificate))
            self.assertEqual(baton(*chat.split(), "--temperature=0", input=QUESTION),
                             PASSPHRASE + "\n")
            self.assertIn("decode-0", baton(*top.split(), "--once"))
        finally:
            shown.send_signal(signal.SIGINT)
            shown.communicate()

    def test_top_shows_workers_to_whom_it_can_show_a_certificate(self):
        metrics = f"--metrics={up.process('router')['metrics']}"
        seen = json.loads(baton("top", "--once", "--json", "--interval=0.1", metrics,
                                *workers.cluster_flags("worker")))
        self.assertEqual({worker["role"] for worker in seen["workers"]}, {"prefill", "decode"})
        seen = json.loads(baton("top", "--once", "--json", "--interval=0.1", metrics, code=1))
        self.assertEqual([worker["address"] for worker in seen["workers"] if "error" in worker],
                         sorted(up.process(name)["grpc"] for name in ("decode-0", "prefill-0")))

    def test_a_probe_is_answered_who_can_show_a_certificate(self):
        for name in ("prefill-0", "decode-0"):
            address = up.process(name)["grpc"]
            self.assertEqual(baton("probe", address, *workers.cluster_flags("worker")),
                             f"{address} is ready\n")
            baton("probe", address, code=1)

    def health(self, address: str, credentials: grpc.ChannelCredentials | None) -> grpc.StatusCode:
        channel = (grpc.insecure_channel(address) if credentials is None
                   else grpc.secure_channel(address, credentials))
        with channel:
            try:
                health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=5)
            except grpc.RpcError as error:
                return error.code()
        return grpc.StatusCode.OK

    def test_nobody_without_a_certificate_speaks_with_a_worker(self):
        ca = workers.certificate.read_bytes()
        own = [(workers.folder / f"worker.{part}").read_bytes() for part in ("key", "crt")]
        strange = [(public.folder / f"api.{part}").read_bytes() for part in ("key", "crt")]
        for name in ("prefill-0", "decode-0"):
            address = up.process(name)["grpc"]
            refused = grpc.StatusCode.UNAVAILABLE
            self.assertEqual(self.health(address, None), refused)
            self.assertEqual(self.health(address, grpc.ssl_channel_credentials(ca)), refused)
            self.assertEqual(self.health(address, grpc.ssl_channel_credentials(ca, *strange)),
                             refused)
            self.assertEqual(self.health(address, grpc.ssl_channel_credentials(ca, *own)),
                             grpc.StatusCode.OK)

    def test_the_grpc_front_shows_the_certificate_of_the_api(self):
        address = up.process("router")["grpc"]
        ca = public.certificate.read_bytes()
        self.assertEqual(self.health(address, grpc.ssl_channel_credentials(ca)), grpc.StatusCode.OK)
        self.assertEqual(self.health(address, None), grpc.StatusCode.UNAVAILABLE)

    def test_the_recipe_of_the_notes_serves(self):
        make, ask = re.findall(r"^```sh\n(.*?)^```$", (ROOT / "deploy/TLS.md").read_text(), re.M | re.S)
        make, command = re.sub(r" \\\n *", " ", make).split("baton up ")
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run(["bash", "-ec", make], cwd=folder, check=True, capture_output=True)
            flags = command.replace("models/", f"{ROOT}/models/").split()
            cluster = Up(*flags, *ANY_PORT, cwd=folder)
            self.addCleanup(cluster.stop)
            router = cluster.process("router")
            for written, meant in (("localhost:8000", router["http"]),
                                   ("baton chat", f"{BATON} chat"),
                                   ("baton top", f"{BATON} top --metrics={router['metrics']}")):
                ask = ask.replace(written, meant)
            shown = subprocess.run(["bash", "-ec", ask], cwd=folder, capture_output=True, text=True)
            self.assertEqual(shown.returncode, 0, shown.stderr)
            for said in (MODEL.name, "ZEBRA-4492-OMEGA", "time to first token", "decode-0"):
                self.assertIn(said, shown.stdout)

    def test_old_tls_is_refused(self):
        host, port = up.process("router")["http"].rsplit(":", 1)
        context = ssl.create_default_context(cafile=public.certificate)
        context.set_ciphers("ALL:@SECLEVEL=0")
        context.minimum_version = ssl.TLSVersion.TLSv1
        context.maximum_version = ssl.TLSVersion.TLSv1_1
        with socket.create_connection((host, int(port))) as plain, self.assertRaises(ssl.SSLError):
            context.wrap_socket(plain, server_hostname=host)

    def test_files_that_will_not_do_are_named_at_the_start(self):
        role_flags = {"router": ["--decode-workers=127.0.0.1:1"], "prefill": [], "decode": []}
        own = workers.cluster_flags("worker")
        cases = [(["--tls-key-file=/nowhere"], "tls-cert-file"),
                 ([*own[:2], f"--tls-ca-file={public.certificate}"], "public/ca.crt"),
                 ([own[0], f"--tls-key-file={public.folder}/api.key", own[2]], "api.key")]
        half = ([f"--api-tls-cert-file={public.folder}/api.crt"], "api-tls-key-file")
        for role, flags in role_flags.items():
            for case, named in [*cases, half] if role == "router" else cases:
                started = subprocess.run(
                    [BATON.with_name(f"baton-{role}"), f"--model-dir={MODEL}", *flags, *case],
                    capture_output=True, text=True, timeout=30)
                self.assertEqual(started.returncode, 1)
                self.assertIn(named, started.stderr)


if __name__ == "__main__":
    unittest.main()
