"""`baton needle` through real clusters: a small grid finds every needle and says so in every form; a build with a
fault in its index loses one, is told to have, and makes the command fail. With BATON_RECALL=all: all lengths and
residues, and memory."""

import json
import os
import pathlib
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARIES = pathlib.Path(os.environ["BATON_BINARIES"])
MODEL = ROOT / "models/needle-17m"
IS_SOAK = os.environ.get("BATON_RECALL") == "all"


def needle(*flags: str, timeout: int = 300) -> subprocess.CompletedProcess:
    return subprocess.run([BINARIES / "baton", "needle", f"--model-dir={MODEL}", *flags],
                          capture_output=True, text=True, timeout=timeout)


class NeedleTest(unittest.TestCase):
    def test_a_cluster_finds_what_is_hidden_and_says_why(self):
        with tempfile.TemporaryDirectory() as folder:
            run = needle("--lengths=338,2300", "--depths=5,95", "--explain", f"--report={folder}/report",
                         f"--svg={folder}/heat.svg", f"--json={folder}/all.json")
            self.assertEqual(run.returncode, 0, run.stderr)
            self.assertIn("4 of 4 needles found", run.stdout)
            self.assertIn("no needle was lost", run.stdout)
            self.assertIn(f"report: {folder}/report/README.md", run.stdout)
            [subject] = json.loads(pathlib.Path(folder, "all.json").read_text())["subjects"]
            self.assertIn("</svg>", pathlib.Path(folder, "heat.svg").read_text())
            page = pathlib.Path(folder, "report/README.md").read_text()
        self.assertIn("4 of 4", page)
        for cell in subject["cells"]:
            self.assertAlmostEqual(cell["prompt_tokens"], cell["tokens"], delta=3)
            self.assertGreater(cell["handoff_bytes"], 0)
            self.assertEqual(cell["explanation"]["verdict"], "found")
            for layer in cell["explanation"]["layers"]:
                self.assertGreater(layer["overlap"], 0.99)

    def test_conversations_and_distractors_through_one_engine(self):
        run = needle("--colocated", "--lengths=700", "--depths=50", "--distractors=0,4", "--turns=1,3", "--align=4",
                     "--json=-")
        self.assertEqual(run.returncode, 0, run.stderr)
        [subject] = json.loads(run.stdout)["subjects"]
        self.assertEqual({cell["position"] % 4 for cell in subject["cells"]}, {0, 1, 2, 3})
        self.assertEqual(len(subject["cells"]), 16)
        self.assertEqual(len(run.stderr.splitlines()), 16, "one for each answer")

    def test_a_fault_of_the_index_is_an_exit_code_and_a_verdict(self):
        mutant = BINARIES / "recall_mutant_key_not_rotated"
        run = needle("--colocated", "--lengths=4509", "--depths=5", "--explain", "--json=-", f"--engine=fault={mutant}")
        self.assertEqual(run.returncode, 1, run.stderr)
        self.assertIn("missed 1 of 2 needles", run.stderr)
        self.assertIn("2 of 2: fault, 4509 tokens, depth 5 %, MISSED after", run.stderr)
        whole, fault = json.loads(run.stdout)["subjects"]
        self.assertEqual((whole["found"], fault["found"]), (1, 0))
        self.assertEqual(fault["cells"][0]["explanation"]["verdict"], "not selected (FP32 selects otherwise)")

    def test_flags_that_make_no_sense_are_named(self):
        for flag, named in (("--depths=101", "--depths"), ("--align=3", "--align"), ("--lengths=5", "--lengths")):
            run = needle(flag)
            self.assertEqual(run.returncode, 2, run.stderr)
            self.assertIn(named, run.stderr)

    @unittest.skipUnless(IS_SOAK, "for make soak")
    def test_every_length_and_residue_is_found_in_bounded_memory(self):
        run = needle("--json=-", timeout=3000)
        self.assertEqual(run.returncode, 0, run.stderr)
        for align in ("4", "128"):
            run = needle("--lengths=943,4509,10498", f"--align={align}", "--json=-", timeout=3000)
            self.assertEqual(run.returncode, 0, run.stderr)
        peaks = {}
        for tokens in (4509, 22000):
            run = subprocess.run([BINARIES / "baton-recall", f"--model-dir={MODEL}"], text=True, capture_output=True,
                                 input=json.dumps({"prompt": [0, 3] + [9] * (tokens - 2), "max_tokens": 1}))
            answer = json.loads(run.stdout)
            peaks[tokens] = answer["peak_bytes"], answer["cache_bytes"]
        self.assertLessEqual(peaks[22000][0], 1.2 * peaks[4509][0] + peaks[22000][1])


if __name__ == "__main__":
    unittest.main()
