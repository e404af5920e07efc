"""What the fake servers of these tests have in common."""

import http.server


class FakeServer(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def answer(self, status: int, body: bytes, content_type: str = "application/json"):
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
