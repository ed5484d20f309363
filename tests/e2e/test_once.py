# SPDX-License-Identifier: Apache-2.0
"""What a command makes is made once: each POST bears a key, the same to each server that the call goes on to."""
import http.server
import json
import os
import subprocess
import threading
import unittest

from build_folder import BIN
from patience import HANG_S


class Server(http.server.ThreadingHTTPServer):
    """Keeps the keys of POSTs; `away`: answers them 503, else with a token."""

    def __init__(self, away):
        self.keys, self.away = [], away
        super().__init__(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()


class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.server.keys.append(self.headers["Idempotency-Key"])
        answer = {"code": "unavailable", "title": "away", "status": 503, "detail": "it stops", "retryable": True,
                  "type": "about:blank"} if self.server.away else {
                      "id": "tok_1", "name": "n", "token": "cairn_" + "a" * 40, "scopes": ["read"], "project": "llm",
                      "projects": ["llm"], "expires_at": None, "created_at": "2026-01-01T00:00:00.000Z"}
        body = json.dumps(answer).encode()
        self.send_response(503 if self.server.away else 201)
        self.send_header("Content-Type", "application/problem+json" if self.server.away else "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Once(unittest.TestCase):
    def test_a_token_is_asked_for_with_one_key_of_each_server_and_with_another_one_the_next_time(self):
        away, there = Server(True), Server(False)
        for server in (away, there):
            self.addCleanup(server.server_close)
            self.addCleanup(server.shutdown)
        urls = ",".join(f"http://127.0.0.1:{server.server_port}" for server in (away, there))
        for _ in range(2):
            subprocess.run([BIN / "cairn", "token", "create", "--scope", "read", "--project", "llm", "--server", urls],
                           env={**os.environ, "CAIRN_PROFILES": "/proc/self/none"}, timeout=HANG_S, check=False,
                           capture_output=True)
        self.assertEqual(len(away.keys), 2)
        self.assertEqual(away.keys, there.keys)
        self.assertEqual(len(set(there.keys)), 2)
        self.assertTrue(all(there.keys))


if __name__ == "__main__":
    unittest.main()
