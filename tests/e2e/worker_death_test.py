"""Real processes; one of them is killed, stopped or left by its client at a known step of a request.
The answer comes from the others and is right, or a clear error comes at once; on every survivor all
pages and slots are free afterwards."""

import concurrent.futures
import http.client
import json
import os
import pathlib
import re
import signal
import sys
import time
import unittest
import urllib.error
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "deploy/local"))

from cluster import Cluster, Process  # noqa: E402
from golden_file import load_cases  # noqa: E402

MODEL = ROOT / "models/needle-17m"
CASES = {case.name: case for case in load_cases(ROOT / "tests/golden/needle-17m.safetensors")}
LONG, SHORT = CASES["n6000"], CASES["n300"]
PATIENCE_S = 240  # for what must happen, on a loaded machine
DETECTION_S = 1.0  # of a dead process
HALF_OPEN_S = 5.0  # of a stopped one
# How late this machine may notice and answer when everything runs at once on few cores.
SLACK_S = 2.0

COMMON = ["--threads=1", "--page-tokens=128", "--pages=128", "--step-tokens=256",
          "--chunk-tokens=128"]
FLAGS = os.environ.get("BATON_WORKER_FLAGS", "").split()  # e.g. --device=cuda


class RoleCluster(Cluster):
    """Small steps, so that every step of a request lasts long enough to be seen."""

    def __init__(self, prefill_flags=(), decode_flags=(), **arguments):
        super().__init__(pathlib.Path(os.environ["BATON_BINARIES"]), MODEL, worker_flags=COMMON + FLAGS,
                         **arguments)
        self.role_flags = {"prefill": list(prefill_flags), "decode": list(decode_flags)}

    def start_worker(self, role, index, listen="127.0.0.1:0"):
        common, self.worker_flags = self.worker_flags, self.worker_flags + self.role_flags[role]
        try:
            return super().start_worker(role, index, listen)
        finally:
            self.worker_flags = common

    def workers(self):
        return [*self.prefill, *self.decode]


def metrics(process: Process) -> dict[str, float]:
    """Series without the role label, as written in the text format: baton_kv_pages{owner="free"}."""
    url = f"http://{process.addresses['metrics']}/metrics"
    with urllib.request.urlopen(url, timeout=30) as response:
        text = response.read().decode()
    series = {}
    for name, labels, value in re.findall(r"^(\w+)(?:\{(.*)\})? (\S+)$", text, re.MULTILINE):
        kept = [pair for pair in re.findall(r'\w+="[^"]*"', labels)
                if not pair.startswith(("role=", "pool="))]
        series[name + ("{" + ",".join(sorted(kept)) + "}" if kept else "")] = float(value)
    return series


def pages(process: Process, owner: str) -> float:
    return metrics(process)[f'baton_kv_pages{{owner="{owner}"}}']


def wait_until(condition, what: str):
    deadline = time.monotonic() + PATIENCE_S
    while not (found := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {PATIENCE_S} s: {what}")
        time.sleep(0.005)
    return found


def find(processes, condition, what: str) -> Process:
    return wait_until(lambda: next((p for p in processes if condition(p)), None), what)


def complete(url: str, case) -> dict:
    body = {"model": MODEL.name, "prompt": case.prompt, "temperature": 0,
            "max_tokens": len(case.tokens)}
    request = urllib.request.Request(url + "/v1/completions", json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=PATIENCE_S) as response:
        return json.load(response)


class Stream:
    """A streamed completion that goes on for long; `events` yields its JSON objects."""

    def __init__(self, url: str, case, max_tokens: int):
        self.connection = http.client.HTTPConnection(url.removeprefix("http://"),
                                                     timeout=PATIENCE_S)
        self.response = None
        body = {"model": MODEL.name, "prompt": case.prompt, "temperature": 0, "stream": True,
                "ignore_eos": True, "max_tokens": max_tokens}
        self.connection.request("POST", "/v1/completions", json.dumps(body),
                                {"Content-Type": "application/json"})

    def events(self):
        self.response = self.connection.getresponse()
        assert self.response.status == 200, self.response.read()
        for line in self.response:
            if line.startswith(b"data: {"):
                yield json.loads(line[6:])

    def close(self):
        # The socket closes when both have let go of it.
        if self.response is not None:
            self.response.close()
        self.connection.close()


class WorkerDeath(unittest.TestCase):
    def setUp(self):
        self.pool = concurrent.futures.ThreadPoolExecutor(8)

    def tearDown(self):
        self.pool.shutdown()

    def stream(self, cluster, case, max_tokens: int) -> Stream:
        stream = Stream(cluster.url, case, max_tokens)
        self.addCleanup(stream.close)
        return stream

    def assert_answer(self, completion: dict, case):
        self.assertEqual(completion["choices"][0]["text"], case.output)

    def assert_survivors_serve_and_are_empty(self, cluster):
        self.assert_answer(complete(cluster.url, SHORT), SHORT)
        for process in cluster.workers():
            if not process.alive():
                continue
            def empty():
                m = metrics(process)
                idle = m['baton_kv_pages{owner="free"}'] + m['baton_kv_pages{owner="prefix"}']
                return (idle == m["baton_kv_pages_total"]
                        and m["baton_requests_running"] == m["baton_requests_waiting"] == 0)
            wait_until(empty, f"{process.name} is empty: {metrics(process)}")
            series = metrics(process)
            self.assertEqual(series["baton_kv_pages_unaccounted"], 0)
            self.assertEqual(series.get('baton_state_slots{state="used"}', 0), 0)

    def landing(self, cluster) -> tuple[Process, Process]:
        """The pair between which pages are moving while the prompt is still computed."""
        decode = find(cluster.decode, lambda p: pages(p, "transfer") > 0, "a landing")
        prefill = find(cluster.prefill, lambda p: pages(p, "sequences") > 0, "a prompt computed")
        return prefill, decode

    # --- kill -9

    def test_a_prefill_worker_dies_with_a_prompt_in_its_queue(self):
        with RoleCluster(prefill=2, decode=2, prefill_flags=["--slots=1"]) as cluster:
            answers = [self.pool.submit(complete, cluster.url, LONG) for _ in range(3)]
            victim = find(cluster.prefill, lambda p: metrics(p)["baton_requests_waiting"] > 0,
                          "a queued prompt")
            victim.kill()
            for answer in answers:
                self.assert_answer(answer.result(), LONG)
            self.assert_survivors_serve_and_are_empty(cluster)

    def test_a_prefill_worker_dies_while_it_computes_and_sends(self):
        with RoleCluster(prefill=2, decode=1) as cluster:
            answer = self.pool.submit(complete, cluster.url, LONG)
            victim, _ = self.landing(cluster)
            victim.kill()
            completion = answer.result()
            self.assert_answer(completion, LONG)
            self.assertEqual(completion["baton"]["attempts"], 2)
            self.assertNotEqual(completion["baton"]["prefill_worker"], victim.addresses["grpc"])
            self.assert_survivors_serve_and_are_empty(cluster)

    def test_the_only_prefill_worker_dies_and_the_error_says_so_at_once(self):
        with RoleCluster(prefill=1, decode=1) as cluster:
            answer = self.pool.submit(complete, cluster.url, LONG)
            victim, decode = self.landing(cluster)
            victim.kill()
            killed = time.monotonic()
            with self.assertRaises(urllib.error.HTTPError) as error:
                answer.result()
            self.assertLess(time.monotonic() - killed, DETECTION_S + SLACK_S)
            self.assertEqual(error.exception.code, 503)
            wait_until(lambda: (pages(decode, "free") + pages(decode, "prefix")
                                == metrics(decode)["baton_kv_pages_total"]),
                       "pages of the decode worker")

    def test_a_prefill_worker_that_has_handed_over_may_die(self):
        with RoleCluster(prefill=2, decode=1) as cluster:
            stream = self.stream(cluster, SHORT, 400)
            events = stream.events()
            next(events)
            # It counts once it has heard that all is there, a moment after the first token.
            find(cluster.prefill,
                 lambda p: metrics(p).get('baton_kv_transfers_total{outcome="ok"}', 0) > 0,
                 "a hand-off that is counted").kill()
            last = list(events)[-1]
            self.assertEqual(last["choices"][0]["finish_reason"], "length")
            self.assert_survivors_serve_and_are_empty(cluster)

    def test_a_decode_worker_dies_while_pages_land(self):
        with RoleCluster(prefill=1, decode=2) as cluster:
            answer = self.pool.submit(complete, cluster.url, LONG)
            _, victim = self.landing(cluster)
            victim.kill()
            completion = answer.result()
            self.assert_answer(completion, LONG)
            self.assertEqual(completion["baton"]["attempts"], 2)
            self.assert_survivors_serve_and_are_empty(cluster)

    def test_a_decode_worker_dies_while_a_prompt_waits_for_its_grant(self):
        with RoleCluster(prefill=1, decode=2, decode_flags=["--slots=1"]) as cluster:
            hogs = [self.stream(cluster, SHORT, 12000) for _ in range(2)]
            streams = [hog.events() for hog in hogs]
            for stream in streams:
                next(stream)
            answer = self.pool.submit(complete, cluster.url, SHORT)
            wait_until(lambda: pages(cluster.prefill[0], "transfer") > 0, "a prompt not granted")
            victim = find(cluster.decode, lambda p: metrics(p)["baton_requests_waiting"] > 0,
                          "a request waiting for pages")
            victim.kill()
            for hog in hogs:
                hog.close()
            self.assert_answer(answer.result(), SHORT)
            self.assert_survivors_serve_and_are_empty(cluster)

    def test_a_decode_worker_dies_in_the_middle_of_an_answer_that_was_not_sent_yet(self):
        with RoleCluster(prefill=1, decode=2) as cluster:
            body = {"model": MODEL.name, "prompt": SHORT.prompt, "temperature": 0,
                    "ignore_eos": True, "max_tokens": 600}
            def ask():
                request = urllib.request.Request(
                    cluster.url + "/v1/completions", json.dumps(body).encode(),
                    {"Content-Type": "application/json"})
                with urllib.request.urlopen(request, timeout=PATIENCE_S) as response:
                    return json.load(response)
            undisturbed = ask()
            answer = self.pool.submit(ask)
            victim = find(cluster.decode, lambda p: metrics(p)["baton_requests_running"] > 0,
                          "a decoding request")
            victim.kill()
            self.assertEqual(answer.result()["choices"][0]["text"],
                             undisturbed["choices"][0]["text"])
            self.assert_survivors_serve_and_are_empty(cluster)

    def test_a_decode_worker_dies_in_the_middle_of_a_stream_and_the_client_hears_of_it_at_once(self):
        with RoleCluster(prefill=1, decode=2) as cluster:
            events = self.stream(cluster, SHORT, 12000).events()
            next(events)
            victim = find(cluster.decode, lambda p: metrics(p)["baton_requests_running"] > 0,
                          "a decoding request")
            victim.kill()
            killed = time.monotonic()
            last = list(events)[-1]
            self.assertLess(time.monotonic() - killed, DETECTION_S + SLACK_S)
            self.assertIn("error", last)
            self.assert_survivors_serve_and_are_empty(cluster)

    # --- stopped processes, restarted ones, clients that leave

    def test_a_prefill_worker_that_stops_answering_is_given_up(self):
        with RoleCluster(prefill=2, decode=1) as cluster:
            answer = self.pool.submit(complete, cluster.url, LONG)
            victim, decode = self.landing(cluster)
            victim.popen.send_signal(signal.SIGSTOP)
            stopped = time.monotonic()
            try:
                other = next(p for p in cluster.prefill if p is not victim)
                wait_until(lambda: metrics(other)["baton_requests_running"] > 0, "a second attempt")
                self.assertLess(time.monotonic() - stopped, HALF_OPEN_S + SLACK_S)
                self.assert_answer(answer.result(), LONG)
            finally:
                victim.popen.send_signal(signal.SIGCONT)
            # Back again, its late frames change nothing and its own pages come back too.
            self.assert_survivors_serve_and_are_empty(cluster)

    def test_a_worker_restarted_at_its_address_serves_again(self):
        with RoleCluster(prefill=1, decode=1) as cluster:
            self.assert_answer(complete(cluster.url, SHORT), SHORT)
            for role, workers in (("prefill", cluster.prefill), ("decode", cluster.decode)):
                address = workers[0].addresses["grpc"]
                workers[0].kill()
                workers[0] = cluster.start_worker(role, 0, listen=address)
                def answered():
                    try:
                        return complete(cluster.url, SHORT)
                    except urllib.error.HTTPError as error:
                        self.assertEqual(error.code, 503)
                        return None
                self.assert_answer(wait_until(answered, f"{role} is back"), SHORT)
            self.assert_survivors_serve_and_are_empty(cluster)

    def test_a_client_that_leaves_frees_everything_at_every_step(self):
        with RoleCluster(prefill=1, decode=1) as cluster:
            prefill, decode = cluster.prefill[0], cluster.decode[0]
            stream = self.stream(cluster, LONG, 100)
            self.landing(cluster)
            stream.close()
            self.assert_survivors_serve_and_are_empty(cluster)

            stream = self.stream(cluster, SHORT, 12000)
            next(stream.events())
            stream.close()
            self.assert_survivors_serve_and_are_empty(cluster)
            self.assertGreater(metrics(prefill)['baton_requests_total{outcome="cancelled"}'], 0)
            self.assertGreater(metrics(decode)['baton_requests_total{outcome="cancelled"}'], 0)

    def test_sigterm_finishes_what_runs_and_exits_with_0(self):
        with RoleCluster(prefill=2, decode=1) as cluster:
            answer = self.pool.submit(complete, cluster.url, LONG)
            victim, _ = self.landing(cluster)
            victim.popen.send_signal(signal.SIGTERM)
            self.assertEqual(victim.popen.wait(PATIENCE_S), 0)
            self.assert_answer(answer.result(), LONG)
            self.assertEqual(answer.result()["baton"]["attempts"], 1)
            self.assert_survivors_serve_and_are_empty(cluster)

    def test_who_meets_a_worker_that_stops_finds_it_draining_not_crashed(self):
        with RoleCluster(prefill=1, decode=2) as cluster:
            self.assert_answer(complete(cluster.url, SHORT), SHORT)
            victim = find(cluster.decode, lambda p: metrics(p)['baton_requests_total{outcome="ok"}'],
                          "one of them has served it")  # and gets the same prompt again
            victim.drain()
            end = time.monotonic() + 2
            while victim.alive() or time.monotonic() < end:
                self.assert_answer(complete(cluster.url, SHORT), SHORT)
            self.assertEqual(victim.wait(), 0)
            crashes = {name: value for name, value in metrics(cluster.router).items()
                       if name.startswith("baton_retries_total") and "crash" in name and value}
            self.assertEqual(crashes, {})


if __name__ == "__main__":
    unittest.main()
