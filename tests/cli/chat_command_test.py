"""`baton chat` at a terminal, and a server that fails now and then."""

import http.server
import json
import os
import pathlib
import pty
import subprocess
import tempfile
import threading
import time
import unittest

from fake_server import FakeServer

BATON = pathlib.Path(os.environ["BATON_BINARIES"]) / "baton"


class FakeRouter(FakeServer):
    """Refuses the first question in words that a terminal would obey, answers later ones."""

    def do_GET(self):
        if self.server.wants_key:
            return self.answer(401, json.dumps({"error": {"message": "no key"}}).encode())
        self.answer(200, json.dumps({"data": [{"id": "fake"}]}).encode())

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append(body["messages"])
        if len(self.server.asked) == 1:
            message = "\x1b]0;stolen\x07 no \x9b2J"
            return self.answer(500, json.dumps({"error": {"message": message}}).encode())
        chunk = {"choices": [{"index": 0, "delta": {"content": "green."}}]}
        events = f"data: {json.dumps(chunk)}\n\ndata: [DONE]\n\n"
        self.answer(200, events.encode(), "text/event-stream")


class ChatCommand(unittest.TestCase):
    def setUp(self):
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), FakeRouter)
        self.server.asked = []
        self.server.wants_key = False
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.addCleanup(self.server.server_close)
        self.addCleanup(self.server.shutdown)

    def converse(self, *turns: tuple[str, str]) -> str:
        """Types each line once what is expected before it has been shown; returns all of it."""
        child, terminal = pty.fork()
        if child == 0:
            url = f"--url=http://127.0.0.1:{self.server.server_address[1]}"
            os.execve(BATON, [BATON, "chat", url], {**os.environ, "NO_COLOR": "1", "TERM": "dumb"})
        shown, seen = b"", 0
        deadline = time.monotonic() + 30
        for awaited, line in turns:
            while awaited.encode() not in shown[seen:] and time.monotonic() < deadline:
                shown += os.read(terminal, 4096)
            seen = len(shown)
            os.write(terminal, line.encode() + b"\n")
        try:
            while more := os.read(terminal, 4096):
                shown += more
        except OSError:  # how a terminal says that nobody is left
            pass
        os.close(terminal)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)
        return shown.decode()

    def test_after_a_failed_answer_the_file_is_still_there_and_the_terminal_whole(self):
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
            file.write("text of the file")
            file.flush()
            shown = self.converse(("> ", f"/file {file.name}"), ("> ", "first"),
                                  ("no 2J", "second"), ("green.", "/exit"))
        for messages, question in zip(self.server.asked, ("first", "second"), strict=True):
            self.assertEqual(messages, [{"role": "user",
                                         "content": f"text of the file\n\n{question}"}])
        self.assertNotIn("\x1b", shown)
        self.assertNotIn("\x9b", shown)

    def ask(self, *flags: str) -> subprocess.CompletedProcess:
        url = f"--url=http://127.0.0.1:{self.server.server_address[1]}"
        return subprocess.run([BATON, "chat", url, *flags], input="what colour?\n",
                              capture_output=True, text=True, timeout=30)

    def test_an_answer_that_came_in_one_piece_has_no_speed(self):
        self.server.asked.append("refused")
        shown = self.ask("--stats")
        self.assertEqual(shown.stdout, "green.\n")
        self.assertIn("then - tokens/s", shown.stderr)

    def test_who_shows_no_key_is_told_how_to_give_one(self):
        self.server.wants_key = True
        shown = self.ask()
        self.assertEqual(shown.returncode, 1)
        self.assertIn("HTTP 401: no key; give --api-key-file or BATON_API_KEY", shown.stderr)


if __name__ == "__main__":
    unittest.main()
