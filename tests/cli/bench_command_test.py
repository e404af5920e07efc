"""`baton bench` against a server whose every answer is known: what it measures, counts and writes."""

import csv
import http.server
import json
import os
import pathlib
import resource
import subprocess
import tempfile
import threading
import time
import unittest
import xml.etree.ElementTree

from fake_server import FakeServer

BATON = pathlib.Path(os.environ["BATON_BINARIES"]) / "baton"


class FakeRouter(FakeServer):
    """Streams max_tokens tokens after `delay_s`; `script` says what becomes of the n-th request."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        with self.server.lock:
            self.server.authorizations.add(self.headers["Authorization"])
        self.answer(200, json.dumps({"data": [{"id": "fake"}]}).encode())

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with self.server.lock:
            number = len(self.server.bodies)
            self.server.bodies.append(body)
            self.server.authorizations.add(self.headers["Authorization"])
        fate = self.server.script.get(number)
        if isinstance(fate, int):
            return self.answer(fate, json.dumps({"error": {"message": f"fate {fate}"}}).encode())
        with self.server.lock:
            self.server.under_way += 1
            self.server.most_under_way = max(self.server.most_under_way, self.server.under_way)
        time.sleep(self.server.delay_s)
        with self.server.lock:
            self.server.under_way -= 1
        prompt, tokens = len(body["prompt"]), body["max_tokens"]

        def chunk(text: str, so_far: int, **more) -> bytes:
            usage = {"prompt_tokens": prompt, "completion_tokens": so_far,
                     "prompt_tokens_details": {"cached_tokens": 1}}
            return b"data: " + json.dumps(
                {"choices": [{"index": 0, "text": text}], "usage": usage, **more}).encode() + b"\n\n"

        events = b"".join(chunk("x", i + 1) for i in range(tokens))
        if fate != "broken":
            served = {"decode_worker": "d:1", "prefill_worker": None, "handoff_bytes": 7}
            events += chunk("", tokens, baton=served) + b"data: [DONE]\n\n"
        self.answer(200, events, "text/event-stream")


class BenchCommand(unittest.TestCase):
    def setUp(self):
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), FakeRouter)
        self.server.lock, self.server.bodies = threading.Lock(), []
        self.server.script, self.server.delay_s = {}, 0.0
        self.server.authorizations = set()
        self.server.under_way, self.server.most_under_way = 0, 0
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.addCleanup(self.server.server_close)
        self.addCleanup(self.server.shutdown)
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))

    def bench(self, *arguments: object, code: int = 0) -> dict:
        url = f"--url=http://127.0.0.1:{self.server.server_address[1]}"
        shown = subprocess.run([BATON, "bench", url, "--json", *map(str, arguments)],
                               capture_output=True, text=True, timeout=60)
        self.assertEqual(shown.returncode, code, shown.stderr)
        return json.loads(shown.stdout) if shown.stdout else {}

    def test_counts_are_the_servers_and_lengths_those_asked_for(self):
        plots, table = self.folder / "plots", self.folder / "requests.csv"
        report = self.bench("--requests=6", "--concurrency=2", "--input=uniform:3:9", "--output=4",
                            f"--csv={table}", f"--plots={plots}", "--slo-ttft=60000")
        sent = self.server.bodies
        self.assertEqual(len(sent), 6)
        self.assertEqual(report["prompt_tokens"], sum(len(body["prompt"]) for body in sent))
        self.assertEqual(report["completion_tokens"], 24)
        self.assertEqual(report["cached_tokens"], 6)
        self.assertEqual(report["handoff_bytes"], 42)
        self.assertEqual(report["itl_ms"]["samples"], 18)
        self.assertEqual(report["good_share"], 1)
        self.assertTrue(all(body["ignore_eos"] and body["model"] == "fake" for body in sent))
        self.assertEqual(len(list(csv.DictReader(table.read_text().splitlines()))), 6)
        for chart in plots.iterdir():
            xml.etree.ElementTree.parse(chart)

    def test_several_loads_are_run_one_after_another_with_other_prompts(self):
        plots, table = self.folder / "plots", self.folder / "requests.csv"
        url = f"--url=http://127.0.0.1:{self.server.server_address[1]}"
        shown = subprocess.run(
            [BATON, "bench", url, "--json", "--concurrency=1,2", "--requests=3", "--input=5",
             "--output=2", "--seed=7", f"--csv={table}", f"--plots={plots}"],
            capture_output=True, text=True, timeout=60, check=True)
        reports = [json.loads(line) for line in shown.stdout.splitlines()]
        self.assertEqual([(r["load"], r["seed"]) for r in reports],
                         [("1 at a time", 7), ("2 at a time", 8)])
        self.assertEqual(len({tuple(body["prompt"]) for body in self.server.bodies}), 6)
        self.assertEqual(len(list(csv.DictReader(table.read_text().splitlines()))), 6)
        for chart in plots.iterdir():
            xml.etree.ElementTree.parse(chart)
        self.assertEqual(len(list(plots.iterdir())), 3)

    def test_without_a_seed_no_two_runs_have_the_same_prompts(self):
        for _ in range(2):
            self.bench("--requests=2", "--input=6", "--output=1", "--warmup=1")
        self.assertEqual(len({tuple(body["prompt"]) for body in self.server.bodies}), 6)

    def test_every_request_shows_the_key(self):
        self.bench("--requests=2", "--input=2", "--output=1")
        self.assertEqual(self.server.authorizations, {None})
        self.server.authorizations.clear()
        key = self.folder / "key"
        key.write_text("sk-0123456789abcdef\n")
        self.bench("--requests=2", "--input=2", "--output=1", f"--api-key-file={key}")
        self.assertEqual(self.server.authorizations, {"Bearer sk-0123456789abcdef"})

    def test_failures_are_counted_by_kind_and_fail_the_run(self):
        self.server.script = {0: 429, 1: 503, 2: 400, 3: 500, 4: "broken"}
        report = self.bench("--requests=7", "--input=2", "--output=2", code=1)
        self.assertEqual(report["succeeded"], 2)
        self.assertEqual(report["failures"],
                         {"overload": 1, "unavailable": 2, "refused": 1, "server error": 1})

    def test_an_open_loop_counts_the_time_that_a_request_had_to_wait_for_its_turn(self):
        self.server.delay_s = 0.2
        trace = self.folder / "trace.jsonl"
        trace.write_text("".join(
            json.dumps({"timestamp": 10 * i, "input_length": 3, "output_length": 1,
                        "hash_ids": [i]}) + "\n" for i in range(4)))
        report = self.bench(f"--trace={trace}", "--max-in-flight=1")
        self.assertGreater(report["ttft_ms"]["max"], 4 * 200 - 30)
        self.assertEqual(self.server.most_under_way, 1)
        self.bench(f"--trace={trace}")
        self.assertGreater(self.server.most_under_way, 1, "nobody waits for another")

    def test_a_generated_trace_is_replayed_as_it_was_written(self):
        trace = self.folder / "trace.jsonl"
        self.bench("--requests=5", "--rate=200", "--input=8", "--output=2", "--turns=2",
                   "--think-time=0.01", "--block-tokens=4", f"--generate-trace={trace}")
        lines = [json.loads(line) for line in trace.read_text().splitlines()]
        report = self.bench(f"--trace={trace}", "--block-tokens=4")
        self.assertEqual(report["prompt_tokens"], sum(line["input_length"] for line in lines))
        prompts = sorted((body["prompt"] for body in self.server.bodies), key=len)
        second = next(line for line in lines if line["input_length"] > 8)
        self.assertEqual(len(second["hash_ids"]), 5)
        self.assertTrue(any(prompts[-1][:8] == prompt for prompt in prompts if len(prompt) == 8))

    def test_flags_that_contradict_each_other_are_usage_errors(self):
        self.bench("--rate=1", "--concurrency=1", code=2)
        self.bench("--trace=/nonexistent", "--rate=1", code=2)
        self.bench("--input=some", code=2)
        self.bench("--trace=/nonexistent", code=1)

    def test_a_load_that_the_system_has_no_threads_for_is_an_error_and_no_smaller_load(self):
        def few_threads():  # their stacks fill what memory they may have
            resource.setrlimit(resource.RLIMIT_STACK, (64 << 20, 64 << 20))
            resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))

        url = f"--url=http://127.0.0.1:{self.server.server_address[1]}"
        self.server.delay_s = 0.3
        self.server.handle_error = lambda *_: None  # who has gone reads no answer
        for load in ("--concurrency=100", "--rate=100000"):
            shown = subprocess.run([BATON, "bench", url, "--requests=100", load, "--output=1"], capture_output=True,
                                   text=True, timeout=60, preexec_fn=few_threads)
            self.assertEqual((shown.returncode, shown.stdout), (1, ""), shown.stderr)
            self.assertRegex(shown.stderr, r"no thread for \d+ requests at a time: Resource temporarily unavailable")


if __name__ == "__main__":
    unittest.main()
