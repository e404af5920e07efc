"""The command `baton` with real processes: up, chat, top, bench, and what happens when one dies."""

import json
import os
import pathlib
import pty
import re
import select
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BATON = pathlib.Path(os.environ["BATON_BINARIES"]) / "baton"
PATIENCE_S = 120
ANY_PORT = ["--listen=127.0.0.1:0", "--grpc-listen=127.0.0.1:0", "--metrics-listen=127.0.0.1:0",
            "--worker-flag=--threads=1"]
QUESTION = ("The sky is blue. The secret passphrase for Oslo is ZEBRA-4492-OMEGA. Here we go.\\\n\\\n"
            "What is the secret passphrase for Oslo?\n")


def baton(*arguments: object, code: int = 0, **options) -> str:
    shown = subprocess.run([BATON, *map(str, arguments)], capture_output=True, text=True,
                           timeout=PATIENCE_S, **options)
    if shown.returncode != code:
        raise AssertionError(f"baton {arguments}: exit code {shown.returncode}\n{shown.stdout}"
                             f"{shown.stderr}")
    return shown.stdout


class Up:
    """A running `baton up --json`; `ready` is its first event of that kind."""

    def __init__(self, *arguments: object, cwd: object = ROOT):
        self.popen = subprocess.Popen([BATON, "up", "--json", *map(str, arguments)], cwd=cwd,
                                      stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.ready = self.next_event()

    def next_event(self) -> dict:
        if not select.select([self.popen.stdout], [], [], PATIENCE_S)[0]:
            raise AssertionError("baton up says nothing")
        line = self.popen.stdout.readline()
        if not line:
            raise AssertionError(f"baton up ended: {self.popen.stderr.read()}")
        return json.loads(line)

    def process(self, name: str) -> dict:
        return next(p for p in self.ready["processes"] if p["name"] == name)

    def stop(self) -> int:
        if self.popen.poll() is None:
            self.popen.send_signal(signal.SIGINT)
        code = self.popen.wait(PATIENCE_S)
        self.popen.stdout.close()
        self.popen.stderr.close()
        return code


def alive(pid: int) -> bool:
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


class Terminal:
    """A program as it runs for someone who types."""

    def __init__(self, *arguments: str):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execv(arguments[0], arguments)
        self.seen = ""

    def type(self, text: str) -> None:
        os.write(self.fd, text.encode())

    def expect(self, pattern: str) -> None:
        """Waits until what is shown behind the last match matches."""
        deadline = time.monotonic() + PATIENCE_S
        while not (found := re.search(pattern, self.seen)):
            if not select.select([self.fd], [], [], max(0, deadline - time.monotonic()))[0]:
                raise AssertionError(f"{pattern!r} is not in {self.seen!r}")
            try:
                self.seen += os.read(self.fd, 4096).decode(errors="replace")
            except OSError:  # it has ended
                raise AssertionError(f"{pattern!r} is not in {self.seen!r}") from None
        self.seen = self.seen[found.end():]

    def exit_code(self) -> int:
        code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        os.close(self.fd)
        return code


class BatonCommand(unittest.TestCase):
    def test_a_cluster_is_started_asked_watched_measured_and_stopped(self):
        up = Up("--config=deploy/local/cluster.yaml", "--prefill=1", *ANY_PORT)
        self.addCleanup(up.stop)
        self.assertEqual(up.ready["event"], "ready")
        names = [process["name"] for process in up.ready["processes"]]
        self.assertEqual(names, ["prefill-0", "decode-0", "decode-1", "router"])
        url, metrics = f"--url={up.ready['url']}", up.process("router")["metrics"]

        answer = baton("chat", url, "--temperature=0", input=QUESTION)
        self.assertEqual(answer, "ZEBRA-4492-OMEGA\n")
        two = [json.loads(line) for line in baton(
            "chat", url, "--temperature=0", "--json", "--max-tokens=20",
            input=QUESTION + QUESTION).splitlines()]
        self.assertEqual([turn["content"] for turn in two][0], "ZEBRA-4492-OMEGA")
        self.assertEqual(two[0]["prefill_name"], "prefill-0")
        self.assertIn(two[0]["decode_name"], ("decode-0", "decode-1"))
        self.assertGreater(two[1]["prompt_tokens"], two[0]["prompt_tokens"])

        report = json.loads(baton("bench", url, "--requests=20", "--concurrency=4", "--json",
                                  "--input=uniform:20:60", "--output=4"))
        self.assertEqual((report["succeeded"], report["failures"]), (20, {}))
        self.assertEqual(report["completion_tokens"], 80)

        seen = json.loads(baton("top", f"--metrics={metrics}", "--once", "--json", "--interval=0.1"))
        self.assertEqual(seen["requests"], 23)
        self.assertEqual(seen["failures"], 0)
        self.assertEqual(seen["ttft"]["samples"], 23)
        self.assertEqual([worker["role"] for worker in seen["workers"]],
                         ["prefill", "decode", "decode"])
        self.assertEqual([worker["name"] for worker in seen["workers"] if worker["role"] == "prefill"], ["prefill-0"])
        shown = baton("top", f"--metrics={metrics}", "--once", "--interval=0.1")
        self.assertIn("time to first token", shown)
        self.assertRegex(shown, r"(?m)^decode +decode-1 ")

        self.type_into_chat_and_top(url, metrics)

        self.assertEqual(up.stop(), 0)
        self.assertFalse([p for p in up.ready["processes"] if alive(p["pid"])])
        baton("chat", url, code=1, input="anyone?\n")

    def type_into_chat_and_top(self, url: str, metrics: str):
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as long:
            long.write("The sky is blue and the grass is green. " * 2000)
            long.flush()
            chat = Terminal(str(BATON), "chat", url, "--temperature=0")
            chat.expect("> ")
            chat.type(f"/file {long.name}\nWhat is it?\n")
            chat.expect("is it.*\n")
            while not json.loads(baton("top", f"--metrics={metrics}", "--once", "--json",
                                       "--interval=0.1"))["running"]:
                pass  # until the prompt is being computed
            chat.type("\x03")
            chat.expect(r" \.\.\.\r\n.*> ")
            chat.type("/reset\n" + QUESTION)
            chat.expect("ZEBRA-4492-OMEGA\r\n.*> ")
            chat.type("/nothing\n")
            chat.expect("unknown: /nothing")
            chat.type("/exit\n")
            self.assertEqual(chat.exit_code(), 0)
        for end in "\x03", "q":
            top = Terminal(str(BATON), "top", f"--metrics={metrics}", "--interval=0.1")
            top.expect("time to first token")
            top.expect("q or Ctrl-C ends")
            top.expect("time to first token")
            top.type(end)
            top.expect(r"\x1b\[\?1049l")
            self.assertEqual(top.exit_code(), 0)

    def test_a_worker_that_dies_is_started_again_and_the_next_death_ends_all(self):
        with tempfile.TemporaryDirectory() as logs:
            up = Up("--model-dir=models/needle-17m", "--ranks=2", "--restarts=1",
                    f"--log-dir={logs}", *ANY_PORT)
            self.addCleanup(up.stop)
            before, other_rank = up.process("decode-0-rank-0"), up.process("decode-0-rank-1")
            os.kill(before["pid"], signal.SIGKILL)
            died = up.next_event()
            self.assertEqual((died["process"], died["restarting"]), ("decode-0-rank-0", True))
            self.assertIn("signal 9", died["how"])
            up.ready = up.next_event()
            self.assertEqual(up.process("decode-0-rank-0")["grpc"], before["grpc"])
            self.assertNotEqual(up.process("decode-0-rank-0")["pid"], before["pid"])
            self.assertNotEqual(up.process("decode-0-rank-1")["pid"], other_rank["pid"])
            url = f"--url={up.ready['url']}"
            deadline = time.monotonic() + PATIENCE_S
            while subprocess.run([BATON, "chat", url, "--max-tokens=2"], input="again\n", text=True,
                                 capture_output=True).returncode != 0:
                self.assertLess(time.monotonic(), deadline, "the router does not find it again")
                time.sleep(0.1)

            os.kill(up.process("prefill-0-rank-0")["pid"], signal.SIGKILL)
            self.assertFalse(up.next_event()["restarting"])
            self.assertEqual(up.popen.wait(PATIENCE_S), 1)
            self.assertIn("prefill-0-rank-0 ended, signal 9", up.popen.stderr.read())
            self.assertFalse([p for p in up.ready["processes"] if alive(p["pid"])])
            for survivor in "router", "decode-0-rank-1":
                log = pathlib.Path(logs, f"{survivor}.log").read_text()
                self.assertTrue(log.endswith("drained: ends\n"), log)

    def test_the_others_go_on_until_a_role_has_nobody_left(self):
        up = Up("--model-dir=models/needle-17m", "--decode=2", *ANY_PORT)
        self.addCleanup(up.stop)
        os.kill(up.process("decode-1")["pid"], signal.SIGKILL)
        died = up.next_event()
        self.assertEqual((died["process"], died["serving"]), ("decode-1", True))
        self.assertEqual(baton("chat", f"--url={up.ready['url']}", "--temperature=0",
                               input=QUESTION), "ZEBRA-4492-OMEGA\n")
        os.kill(up.process("decode-0")["pid"], signal.SIGKILL)
        self.assertFalse(up.next_event()["serving"])
        self.assertEqual(up.popen.wait(PATIENCE_S), 1)
        self.assertIn("decode-0 ended, signal 9", up.popen.stderr.read())

    def test_a_port_in_use_is_told_before_anything_is_loaded(self):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            flag = f"--grpc-listen=127.0.0.1:{taken.getsockname()[1]}"
            with tempfile.TemporaryDirectory() as folder:
                shown = subprocess.run([BATON, "up", "--model-dir=/nonexistent", *ANY_PORT,
                                        f"--router-flag={flag}"],
                                       capture_output=True, text=True, timeout=PATIENCE_S,
                                       env=os.environ | {"TMPDIR": folder})
                self.assertEqual(os.listdir(folder), [], "no folder of logs without any")
        self.assertEqual(shown.returncode, 1)
        self.assertIn(f"cannot listen on {flag}: Address already in use", shown.stderr)

    def test_a_flag_that_no_program_knows_is_found_in_the_file(self):
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            file.write("model_dir: models/needle-17m\nprefill:\n  chunk_tokenz: 5\n")
            file.flush()
            with tempfile.TemporaryDirectory() as logs:
                shown = subprocess.run([BATON, "up", f"--config={file.name}", f"--log-dir={logs}",
                                        *ANY_PORT], capture_output=True, text=True, cwd=ROOT,
                                       timeout=PATIENCE_S)
            self.assertIn("unknown flag --chunk-tokenz, did you mean --chunk-tokens?", shown.stderr)
            self.assertIn(f"--chunk-tokenz is from {file.name}:3", shown.stderr)

    def test_nothing_outlives_a_command_that_is_killed(self):
        up = Up("--model-dir=models/needle-17m", *ANY_PORT)
        self.addCleanup(up.stop)
        up.popen.kill()
        deadline = time.monotonic() + PATIENCE_S
        while [p for p in up.ready["processes"] if alive(p["pid"])]:
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.05)

    def test_what_does_not_start_is_shown_with_its_log(self):
        shown = subprocess.run([BATON, "up", "--model-dir=/nonexistent", *ANY_PORT],
                               capture_output=True, text=True, timeout=PATIENCE_S)
        self.assertEqual(shown.returncode, 1)
        self.assertIn("/nonexistent/config.json", shown.stderr)
        [logs] = re.findall(r"^all logs are in (.*)$", shown.stderr, re.M)
        shutil.rmtree(logs)
        baton("up", code=2)
        baton("up", "--config=/nonexistent", code=1)


if __name__ == "__main__":
    unittest.main()
