"""The README's curl examples, executed as they stand there, but for the ports, against a cluster."""

import json
import os
import pathlib
import re
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "deploy/local"))

from cluster import Cluster  # noqa: E402

MODEL = ROOT / "models/needle-17m"
BLOCK = re.compile(r"^```sh\n(curl .*?)^```$", re.M | re.S)


def setUpModule():
    global cluster
    cluster = Cluster(pathlib.Path(os.environ["BATON_BINARIES"]), MODEL).__enter__()
    unittest.addModuleCleanup(cluster.stop)


def run(block: str) -> str:
    for port, address in (("8000", "http"), ("9000", "metrics")):
        block = block.replace(f"localhost:{port}", cluster.router.addresses[address])
    shown = subprocess.run(["bash", "-ec", block], capture_output=True, text=True, timeout=120)
    if shown.returncode != 0:
        raise AssertionError(f"{block}\nexit code {shown.returncode}: {shown.stderr}")
    return shown.stdout


def leading_json(text: str, count: int) -> tuple[list[dict], str]:
    """The first `count` JSON values, which curl writes one after another, and what follows them."""
    values, at = [], 0
    for _ in range(count):
        value, at = json.JSONDecoder().raw_decode(text, at)
        values.append(value)
    return values, text[at:]


class ReadmeExamples(unittest.TestCase):
    def test_every_curl_example_answers_what_it_promises(self):
        blocks = BLOCK.findall((ROOT / "README.md").read_text())
        checks = [self.chat, self.completions, self.state]
        self.assertEqual(len(blocks), len(checks), "an example without a check, or the reverse")
        for block, check in zip(blocks, checks):
            with self.subTest(check.__name__):
                check(run(block))

    def chat(self, output: str):
        events = re.findall(r"^data: (.*)$", output, re.M)
        self.assertEqual(events.pop(), "[DONE]")
        chunks = [json.loads(event) for event in events]
        text = "".join(choice["delta"].get("content") or ""
                       for chunk in chunks for choice in chunk["choices"])
        self.assertEqual(text, "ZEBRA-4492-OMEGA")

    def completions(self, output: str):
        (answer, refusal), _ = leading_json(output, 2)
        self.assertEqual(answer["usage"]["completion_tokens"], 5)
        self.assertTrue(answer["choices"][0]["text"])
        self.assertGreater(answer["baton"]["handoff_bytes"], 0)
        self.assertEqual(refusal["error"]["param"], "n")
        self.assertIn("n is 2", refusal["error"]["message"])

    def state(self, output: str):
        (models, health), metrics = leading_json(output, 2)
        self.assertEqual(models["data"][0]["id"], "needle-17m")
        self.assertEqual({w["role"] for w in health["workers"]}, {"prefill", "decode"})
        self.assertIn("baton_time_to_first_token_seconds_count", metrics)

    def test_every_series_of_the_operating_notes_is_exported(self):
        notes = (ROOT / "deploy/README.md").read_text()
        exported = "".join(run(f"curl -s {process.addresses['metrics']}/metrics")
                           for process in cluster.processes)
        series = set(re.findall(r"`(baton_\w+)", notes))
        self.assertGreater(len(series), 10)
        self.assertEqual({name for name in series if name not in exported}, set())


if __name__ == "__main__":
    unittest.main()
