"""Needle requests and their second turns under random faults and with clients that leave: every
answer that comes equals that of a run without faults and without a prefix cache, and afterwards no
worker has lost a page. BATON_SOAK_REQUESTS sets how many (1,000); BATON_SOAK_SEED what happens (1)."""

import collections
import concurrent.futures
import dataclasses
import os
import random
import time
import unittest
import urllib.error

from fault_matrix_test import is_empty, plan
from worker_death_test import CASES, RoleCluster, Stream, complete, metrics, wait_until

REQUESTS = int(os.environ.get("BATON_SOAK_REQUESTS", "1000"))
SEED = int(os.environ.get("BATON_SOAK_SEED", "1"))
FIRST_TURNS = [case for case in CASES.values() if len(case.prompt) < 4000]
# The answer and the end of the text once more: begins in the prefix caches where the first turn was.
SECOND_TURNS = [dataclasses.replace(case, name=f"{case.name}, second turn",
                                    prompt=[*case.prompt, *case.tokens, *case.prompt[-40:]])
                for case in FIRST_TURNS]
PROMPTS = FIRST_TURNS + SECOND_TURNS

PREFILL_PLAN = """
seed: {seed}
frames: {{corrupt: 0.03, duplicate: 0.03, delay: 0.05, reorder: 0.05, drop: 0.001, cut: 0.004,
          fail: 0.002, max-duration: 50ms}}
control: {{delay: 0.05, cut: 0.005, fail: 0.002, duplicate: 0.002, max-duration: 50ms}}
"""
DECODE_PLAN = """
seed: {seed}
frames: {{corrupt: 0.02, duplicate: 0.02, delay: 0.03, max-duration: 20ms}}
control: {{delay: 0.05, cut: 0.005, drop: 0.0005, max-duration: 50ms}}
"""


class HandoffSoak(unittest.TestCase):
    def test_answers_survive(self):
        uncached = ["--prefix-cache=0"]
        with RoleCluster(prefill=1, decode=1, prefill_flags=uncached,
                         decode_flags=uncached) as cluster:
            expected = {case.name: complete(cluster.url, case)["choices"][0]["text"]
                        for case in PROMPTS}
        dice = random.Random(SEED)
        outcomes = collections.Counter()
        # Transports differ from worker to worker: the first pair has both.
        with RoleCluster(
                prefill=2, decode=2,
                prefill_flags=[*plan(PREFILL_PLAN.format(seed=SEED)), "--grant-timeout=5s"],
                decode_flags=[*plan(DECODE_PLAN.format(seed=SEED)), "--queue-timeout=30s"]) as cluster:
            def ask(case, leaves_after):
                if leaves_after is not None:
                    stream = Stream(cluster.url, case, 64)
                    time.sleep(leaves_after)
                    stream.close()
                    return "left"
                try:
                    answer = complete(cluster.url, case)
                except urllib.error.HTTPError as error:
                    # Whatever happens to workers, it is not the client's fault.
                    self.assertTrue(error.code in (429, 500, 503), f"{error.code} {error.read()}")
                    return f"error {error.code}"
                text = answer["choices"][0]["text"]
                self.assertEqual(text, expected[case.name], case.name)
                return f"right, attempt {answer['baton']['attempts']}"

            started = time.monotonic()
            with concurrent.futures.ThreadPoolExecutor(6) as pool:
                runs = [pool.submit(ask, dice.choice(PROMPTS),
                                    dice.uniform(0, 0.4) if dice.random() < 0.15 else None)
                        for _ in range(REQUESTS)]
                for run in runs:
                    outcomes[run.result()] += 1
            seconds = time.monotonic() - started
            for process in cluster.workers():
                wait_until(lambda process=process: is_empty(process),
                           f"{process.name} is empty: {metrics(process)}")
            frames = collections.Counter()
            for process in cluster.decode:
                for name, value in metrics(process).items():
                    if name.startswith("baton_kv_frames_total"):
                        frames[name.split('"')[1]] += int(value)
            hits = sum(metrics(process)["baton_prefix_cache_hits_total"]
                       for process in cluster.workers())
        print(f"\n{REQUESTS} requests in {seconds:.0f} s: {dict(outcomes)}; frames {dict(frames)}; "
              f"{hits:.0f} began in a prefix cache")
        right = sum(n for outcome, n in outcomes.items() if outcome.startswith("right"))
        self.assertGreater(right, REQUESTS * 0.6)
        self.assertGreater(frames["corrupt"], 0)
        self.assertGreater(hits, REQUESTS * 0.2)


if __name__ == "__main__":
    unittest.main()
