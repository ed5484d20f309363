# SPDX-License-Identifier: Apache-2.0
"""A server of an earlier release: what it does not know is told as that, and an answer that lacks what every server says is an
error of the protocol, never a 0."""
import os
import subprocess
import unittest

import cases
from world import BIN, HANG_S


def problem(status, code, detail):
    return status, {"type": "about:blank", "title": "it is so", "status": status, "code": code, "retryable": False,
                    "detail": detail}


class OlderServer(unittest.TestCase):
    def setUp(self):
        self.answer, self.version = None, "0.1.0"
        self.server = cases.StandIn(self.reply, case=self)

    def reply(self, request):
        asked = request.path.startswith("/version")
        return (200, {"version": self.version, "schema": 1, "api": "v1"}) if asked else self.answer

    def cairn(self, answer, *words, version="0.1.0"):
        self.answer, self.version = answer, version
        return subprocess.run([BIN / "cairn", *words], capture_output=True, text=True, timeout=HANG_S, check=False,
                              env={**os.environ, "CAIRN_URL": self.server.url})

    def test_a_path_parameter_method_or_member_that_it_does_not_know_is_told_as_that(self):
        for answer in (problem(404, "not-found", "no such path: GET /openapi.yaml lists them"),
                       problem(400, "invalid", 'unknown query parameter "for": there are state'),
                       problem(400, "invalid", "/note: unknown field; there are labels"),
                       problem(405, "method-not-allowed", "this path takes GET")):
            done = self.cairn(answer, "ls", "p/r")
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(answer[1]["detail"][:20], done.stderr)
            self.assertIn("the server is older (0.1.0, this command is ", done.stderr)
            same = self.cairn(answer, "ls", "p/r", version="99.0.0")  # then it is no matter of releases
            self.assertNotIn("older", same.stderr)

    def test_the_status_is_that_of_the_answer_and_a_store_alone_has_no_server(self):
        done = self.cairn(problem(404, "not-found", "there is no run p/r"), "ls", "p/r")
        self.assertEqual(done.returncode, 3, done.stderr)
        done = self.cairn(problem(404, "not-found", "there is no run p/r"), "ls", "p/r", "--store", "/nowhere/at/all")
        self.assertNotIn("server is older", done.stderr)

    def test_an_answer_that_lacks_a_field_is_an_error_of_the_protocol_and_no_zero(self):
        row = {"version": "ckpt_62d9b49a-9830-825b-80a2-571eab9f9dd3", "step": 1}
        done = self.cairn((200, row), "show", "p/r@1")
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn("the server's answer: ", done.stderr)
        self.assertIn("the server is older (0.1.0", done.stderr)


if __name__ == "__main__":
    unittest.main()
