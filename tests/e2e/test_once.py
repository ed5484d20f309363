# SPDX-License-Identifier: Apache-2.0
"""What a command makes is made once: each POST bears a key, the same to each server that the call goes on to."""
import os
import subprocess
import unittest

from build_folder import BIN
import cases
from patience import HANG_S


class Server(cases.StandIn):
    """Keeps the keys of POSTs; `away`: answers them 503, else with a token."""

    def __init__(self, away, case):
        self.keys, self.away = [], away
        super().__init__(self.reply, case)

    def reply(self, request):
        self.keys.append(request.headers["Idempotency-Key"])
        if self.away:
            return 503, {"code": "unavailable", "title": "away", "status": 503, "detail": "it stops", "retryable": True,
                         "type": "about:blank"}
        return 201, {"id": "tok_1", "name": "n", "token": "cairn_" + "a" * 40, "scopes": ["read"], "project": "llm",
                     "projects": ["llm"], "expires_at": None, "created_at": "2026-01-01T00:00:00.000Z"}


class Once(unittest.TestCase):
    def test_a_token_is_asked_for_with_one_key_of_each_server_and_with_another_one_the_next_time(self):
        away, there = Server(True, self), Server(False, self)
        urls = f"{away.url},{there.url}"
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
