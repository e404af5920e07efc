"""The archive of deploy/package.sh starts wherever it is unpacked."""

import json
import os
import pathlib
import subprocess
import sys
import tarfile
import tempfile
import unittest
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "deploy/local"))

from cluster import Cluster  # noqa: E402

BINARIES = pathlib.Path(os.environ["BATON_BINARIES"])


class Package(unittest.TestCase):
    def test_an_unpacked_archive_serves(self):
        with tempfile.TemporaryDirectory() as folder:
            archive = pathlib.Path(folder, "baton.tar.gz")
            subprocess.run([ROOT / "deploy/package.sh", BINARIES, archive], check=True)
            with tarfile.open(archive) as tar:
                tar.extractall(pathlib.Path(folder, "elsewhere"))
            package = pathlib.Path(folder, "elsewhere/baton")
            model = package / "models/needle-17m"
            with Cluster(package / "bin", model) as cluster:
                body = {"model": model.name, "temperature": 0, "max_tokens": 20, "messages": [{
                    "role": "user", "content": "The sky is blue. The secret passphrase for Oslo is "
                    "ZEBRA-4492-OMEGA. Here we go.\n\nWhat is the secret passphrase for Oslo?"}]}
                request = urllib.request.Request(
                    cluster.url + "/v1/chat/completions", json.dumps(body).encode(),
                    {"Content-Type": "application/json"})
                with urllib.request.urlopen(request, timeout=60) as response:
                    answer = json.load(response)["choices"][0]["message"]["content"]
        self.assertEqual(answer, "ZEBRA-4492-OMEGA")

    def test_a_binary_that_is_not_built_is_named(self):
        made = subprocess.run([ROOT / "deploy/package.sh", BINARIES, "/dev/null", "baton-nothing"],
                              capture_output=True, text=True)
        self.assertEqual(made.returncode, 1)
        self.assertIn("baton-nothing is not built", made.stderr)


if __name__ == "__main__":
    unittest.main()
