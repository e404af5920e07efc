"""Workers whose experts are spread over several processes: answers are those of one, and when a rank dies all of its
group end at once, say who it was, and serve again after a restart."""

import concurrent.futures
import json
import os
import pathlib
import sys
import time
import unittest
import urllib.error
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "deploy/local"))

from cluster import Cluster  # noqa: E402
from golden_file import load_cases  # noqa: E402

MODEL = ROOT / "models/needle-17m"
CASES = [case for case in load_cases(ROOT / "tests/golden/needle-17m.safetensors") if case.found]
FLAGS = os.environ.get("BATON_WORKER_FLAGS", "--threads=1").split()  # e.g. --device=cuda
COUNT = int(os.environ.get("BATON_GOLDEN_CASES", "4"))
RANKS = 2
GONE_S = 5  # a killed rank takes the others with it
RESTART_S = 60


def complete(url: str, case) -> dict:
    body = {"model": MODEL.name, "prompt": case.prompt, "temperature": 0,
            "max_tokens": len(case.tokens)}
    request = urllib.request.Request(url + "/v1/completions", json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=120) as response:
        return json.load(response)


class ExpertParallel(unittest.TestCase):
    def start(self) -> Cluster:
        return Cluster(pathlib.Path(os.environ["BATON_BINARIES"]), MODEL, ranks=RANKS,
                       worker_flags=FLAGS)

    def assert_answers(self, cluster: Cluster, cases) -> None:
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            completions = list(pool.map(lambda case: complete(cluster.url, case), cases))
        for case, completion in zip(cases, completions):
            with self.subTest(case.name):
                self.assertEqual(completion["choices"][0]["text"], case.output)

    def assert_others_end(self, ranks, dead: int) -> None:
        began = time.monotonic()
        for rank, process in enumerate(ranks):
            if rank != dead:
                self.assertEqual(process.popen.wait(GONE_S), 1)
                self.assertIn(f"rank {dead} ", process.log_end(3))
        print(f"{ranks[dead].name} killed: the others were gone {time.monotonic() - began:.2f} s "
              "later", file=sys.stderr)

    def test_golden_cases_are_answered_and_everybody_drains(self):
        with self.start() as cluster:
            self.assert_answers(cluster, CASES[:COUNT])

    def test_a_group_ends_with_any_of_its_ranks_and_serves_again_once_restarted(self):
        with self.start() as cluster:
            self.assert_answers(cluster, CASES[:2])
            for group, rank in (("decode", 1), ("prefill", 0)):
                ranks = getattr(cluster, group)
                ranks[rank].kill()
                self.assert_others_end(ranks, rank)
                began = time.monotonic()
                # As a supervisor would: the same commands, at the addresses that the router knows.
                setattr(cluster, group, [cluster.restart(process) for process in ranks])
                while True:
                    try:
                        complete(cluster.url, CASES[0])
                        break
                    except (urllib.error.HTTPError, OSError):
                        self.assertLess(time.monotonic() - began, RESTART_S)
                        time.sleep(0.1)
                print(f"served again {time.monotonic() - began:.2f} s after the restart",
                      file=sys.stderr)
                self.assert_answers(cluster, CASES[:2])


if __name__ == "__main__":
    unittest.main()
