"""The archive of deploy/package.sh starts wherever it is unpacked."""

import json
import os
import pathlib
import re
import signal
import subprocess
import tarfile
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARIES = pathlib.Path(os.environ["BATON_BINARIES"])


class Package(unittest.TestCase):
    def test_an_unpacked_archive_serves(self):
        with tempfile.TemporaryDirectory() as folder:
            archive = pathlib.Path(folder, "baton.tar.gz")
            subprocess.run([ROOT / "deploy/package.sh", BINARIES, archive], check=True, umask=0o077)
            with tarfile.open(archive) as tar:
                for member in tar:
                    self.assertEqual((member.uid, member.gid), (0, 0), member.name)
                    self.assertIn(member.mode, (0o755,) if member.isdir() else (0o755, 0o644), member.name)
                tar.extractall(pathlib.Path(folder, "elsewhere"))
            package = pathlib.Path(folder, "elsewhere/baton")
            for page in "README.md", "docker/Dockerfile", "k8s/fill-models.yaml":  # what they take out of it is there
                for path in re.findall(r"/opt/baton/([\w./*-]+)", (ROOT / "deploy" / page).read_text()):
                    self.assertTrue(list(package.glob(path)), f"{page}: {path}")
            up = subprocess.Popen([package / "bin/baton", "up", "--json", "--listen=127.0.0.1:0",
                                   "--grpc-listen=127.0.0.1:0", "--metrics-listen=127.0.0.1:0",
                                   f"--model-dir={package / 'models/needle-17m'}"],
                                  stdout=subprocess.PIPE, text=True)
            try:
                url = json.loads(up.stdout.readline())["url"]
                answer = subprocess.run(
                    [package / "bin/baton", "chat", f"--url={url}", "--temperature=0"], text=True,
                    input="The sky is blue. The secret passphrase for Oslo is ZEBRA-4492-OMEGA. Here "
                    "we go. What is the secret passphrase for Oslo?\n", capture_output=True,
                    timeout=60).stdout
            finally:
                up.send_signal(signal.SIGINT)
                self.assertEqual(up.wait(60), 0)
                up.stdout.close()
        self.assertEqual(answer, "ZEBRA-4492-OMEGA\n")

    def test_a_binary_that_is_not_built_is_named(self):
        made = subprocess.run([ROOT / "deploy/package.sh", BINARIES, "/dev/null", "baton-nothing"],
                              capture_output=True, text=True)
        self.assertEqual(made.returncode, 1)
        self.assertIn("baton-nothing is not built", made.stderr)


if __name__ == "__main__":
    unittest.main()
