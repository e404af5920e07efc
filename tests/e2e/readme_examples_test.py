"""The README's examples, executed as they stand there, but for the ports: `baton up` starts the cluster
that all the others ask."""

import json
import os
import pathlib
import re
import shlex
import signal
import subprocess
import sys
import unittest

try:
    import grpc_reflection
    import openai
except ImportError:  # see tests/requirements.txt
    grpc_reflection = openai = None

ROOT = pathlib.Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
BLOCK = re.compile(r"^```sh\n((?:curl|echo) .*?)^```$", re.M | re.S)
PYTHON = re.compile(r"^```python\n(.*?)^```$", re.M | re.S)
ENVIRONMENT = os.environ | {"PATH": f"{os.environ['BATON_BINARIES']}:{os.environ['PATH']}"}


def setUpModule():
    global processes
    [command] = re.findall(r"^baton up .*", README, re.M)
    arguments = shlex.split(command, comments=True)
    up = subprocess.Popen([*arguments, "--json", "--listen=127.0.0.1:0",
                           "--grpc-listen=127.0.0.1:0", "--metrics-listen=127.0.0.1:0"], cwd=ROOT, env=ENVIRONMENT,
                          stdout=subprocess.PIPE, text=True)
    unittest.addModuleCleanup(stop, up)
    processes = json.loads(up.stdout.readline())["processes"]


def stop(up: subprocess.Popen):
    up.send_signal(signal.SIGINT)
    code = up.wait(120)
    up.stdout.close()
    if code != 0:
        raise AssertionError(f"baton up: exit code {code}")


def run(block: str, interpreter: tuple[str, ...] = ("bash", "-ec")) -> str:
    router = processes[-1]
    for written, meant in (("localhost:8000", router["http"]), ("localhost:8001", router["grpc"]),
                           ("localhost:9000", router["metrics"]),
                           ("baton chat", f"baton chat --url=http://{router['http']}"),
                           ("baton bench", f"baton bench --url=http://{router['http']}"),
                           ("baton top", f"baton top --metrics={router['metrics']}")):
        block = block.replace(written, meant)
    shown = subprocess.run([*interpreter, block], capture_output=True, text=True, timeout=120,
                           env=ENVIRONMENT)
    if shown.returncode != 0:
        raise AssertionError(f"{block}\nexit code {shown.returncode}: {shown.stderr}")
    return shown.stdout


def leading_json(text: str, count: int) -> tuple[list[dict], str]:
    """The first `count` JSON values, which curl writes one after another, and what follows them."""
    values, at = [], 0
    for _ in range(count):
        value, at = json.JSONDecoder().raw_decode(text, re.compile(r"\s*").match(text, at).end())
        values.append(value)
    return values, text[at:]


class ReadmeExamples(unittest.TestCase):
    def test_every_example_answers_what_it_promises(self):
        blocks = BLOCK.findall(README)
        checks = [self.commands, self.chat, self.completions_and_state]
        self.assertEqual(len(blocks), len(checks), "an example without a check, or the reverse")
        for block, check in zip(blocks, checks):
            with self.subTest(check.__name__):
                check(run(block))

    @unittest.skipUnless(openai, "see tests/requirements.txt")
    def test_the_example_in_python_finds_its_needle(self):
        [block] = PYTHON.findall(README)
        self.assertEqual(run(block, (sys.executable, "-c")), "OTTER-7305-DELTA\n")

    @unittest.skipUnless(grpc_reflection, "see tests/requirements.txt")
    def test_the_example_of_grpc_in_python_is_answered(self):
        [block] = PYTHON.findall((ROOT / "proto/README.md").read_text())
        self.assertIn("completion_tokens: 5", run(block, (sys.executable, "-c")))

    def commands(self, output: str):
        self.assertTrue(output.startswith("ZEBRA-4492-OMEGA\n"), output)
        self.assertIn("20 of 20 requests succeeded", output)
        self.assertIn("time to first token", output)

    def chat(self, output: str):
        events = re.findall(r"^data: (.*)$", output, re.M)
        self.assertEqual(events.pop(), "[DONE]")
        chunks = [json.loads(event) for event in events]
        text = "".join(choice["delta"].get("content") or ""
                       for chunk in chunks for choice in chunk["choices"])
        self.assertEqual(text, "ZEBRA-4492-OMEGA")

    def completions_and_state(self, output: str):
        (answer, refusal, models, health), metrics = leading_json(output, 4)
        self.assertEqual(answer["usage"]["completion_tokens"], 5)
        self.assertTrue(answer["choices"][0]["text"])
        self.assertGreater(answer["baton"]["handoff_bytes"], 0)
        self.assertEqual(refusal["error"]["param"], "echo")
        self.assertIn("echo is true", refusal["error"]["message"])
        self.assertEqual(models["data"][0]["id"], "needle-17m")
        self.assertEqual({w["role"] for w in health["workers"]}, {"prefill", "decode"})
        self.assertIn("baton_time_to_first_token_seconds_count", metrics)

    def test_every_series_of_the_operating_notes_is_exported(self):
        notes = "".join((ROOT / page).read_text() for page in ("deploy/README.md", "deploy/TLS.md"))
        exported = "".join(run(f"curl -s {process['metrics']}/metrics") for process in processes)
        series = set(re.findall(r"`(baton_\w+)", notes))
        self.assertGreater(len(series), 10)
        self.assertEqual({name for name in series if name not in exported}, set())


if __name__ == "__main__":
    unittest.main()
