"""Every golden prompt, sent through router, prefill and decode processes, is continued exactly as
the reference continued it."""

import concurrent.futures
import json
import os
import pathlib
import sys
import unittest
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "deploy/local"))

from cluster import Cluster  # noqa: E402
from golden_file import load_cases  # noqa: E402

MODEL = ROOT / "models/needle-17m"


class GoldenThroughCluster(unittest.TestCase):
    def complete(self, url: str, case) -> dict:
        body = {"model": MODEL.name, "prompt": case.prompt, "temperature": 0,
                "max_tokens": len(case.tokens)}
        request = urllib.request.Request(url + "/v1/completions", json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=300) as response:
            return json.load(response)

    def test_every_case_with_an_answer_is_continued_as_by_the_reference(self):
        cases = load_cases(ROOT / "tests/golden/needle-17m.safetensors")
        answered = [case for case in cases if case.found]
        self.assertGreater(len(answered), 30)
        binaries = pathlib.Path(os.environ["BATON_BINARIES"])
        flags = os.environ.get("BATON_WORKER_FLAGS", "").split()  # e.g. --device=cuda
        with Cluster(binaries, MODEL, prefill=2, decode=2, worker_flags=flags) as cluster, \
                concurrent.futures.ThreadPoolExecutor(4) as pool:
            completions = list(pool.map(lambda case: self.complete(cluster.url, case), answered))
        for case, completion in zip(answered, completions):
            with self.subTest(case.name):
                self.assertEqual(completion["choices"][0]["text"], case.output)
                self.assertEqual(completion["usage"]["prompt_tokens"], len(case.prompt))
                self.assertGreater(completion["baton"]["handoff_bytes"], 0)


if __name__ == "__main__":
    unittest.main()
