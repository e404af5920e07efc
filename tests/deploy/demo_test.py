"""deploy/local/demo.py, interrupted."""

import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def children(pid: int) -> list[str]:
    return pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


class Demo(unittest.TestCase):
    def test_an_interrupt_is_one_line_and_leaves_nothing(self):
        with tempfile.TemporaryDirectory() as folder:
            demo = subprocess.Popen([sys.executable, ROOT / "deploy/local/demo.py",
                                     f"--binaries={os.environ['BATON_BINARIES']}"], text=True,
                                    stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                    env=os.environ | {"TMPDIR": folder})
            while not demo.stdout.readline().startswith("OpenAI API at"):
                self.assertIsNone(demo.poll())
            started = children(demo.pid)
            self.assertEqual(len(started), 5)
            demo.send_signal(signal.SIGINT)
            _, said = demo.communicate(timeout=60)
            self.assertEqual(demo.returncode, 130)
            self.assertEqual(said, "\nInterrupted; no process of the cluster is left.\n")
            self.assertFalse([pid for pid in started if os.path.exists(f"/proc/{pid}")])
            self.assertEqual(os.listdir(folder), [])


if __name__ == "__main__":
    unittest.main()
