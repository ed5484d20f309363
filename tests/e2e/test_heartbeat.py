# SPDX-License-Identifier: Apache-2.0
# ctest: engines=again
"""What an uploader does upon each word of a heartbeat's answer, seen between it and a real server.

The proxy hands everything on as it is, but for the one member of an answer that a test changes: a
server says these words after faults (a lost row, a restored catalog) that are rare to make."""
import http.client
import json
import os
import subprocess
import unittest

import cases
from world import BIN, HANG_S, line_of, wait_until, World


class Proxy(cases.StandIn):
    """Between uploader and server; counts requests, changes answers to heartbeats."""

    def __init__(self, port, case):
        self.behind, self.change, self.seen = port, None, []
        super().__init__(self.pass_on, case)

    def pass_on(self, request):
        server = http.client.HTTPConnection("127.0.0.1", self.behind, timeout=HANG_S)
        try:
            server.request(request.command, request.path, request.body or None, dict(request.headers))
            answer = server.getresponse()
            text = answer.read()
        except OSError:
            return None
        finally:
            server.close()
        kept = {name: value for name, value in answer.getheaders() if name.lower() not in (
            "content-length", "connection", "transfer-encoding", "date", "server")}
        return answer.status, self.look(request.command, request.path, answer.status, text), kept

    def look(self, method, path, status, text):
        self.seen.append((method, path, status))
        if method != "PUT" or not path.startswith("/v1/nodes/") or status != 200 or not self.change:
            return text
        answer = json.loads(text)
        self.change(answer)
        return json.dumps(answer).encode()

    def count(self, method, end):
        return sum(m == method and p.endswith(end) and s < 300 for m, p, s in self.seen)


class Heartbeat(unittest.TestCase):
    """Rank 0 of 2 has sealed step 1 and everything of it is registered; rank 1 never comes."""

    def setUp(self):
        self.world = World(nodes=0, uploader_arguments=("--heartbeat=200ms",), case=self)
        self.proxy = Proxy(self.world.port, self)
        direct, self.world.url = self.world.url, self.proxy.url
        self.world.uploaders.append(self.world.make_uploader(0).start())
        self.world.url = direct
        self.rank = subprocess.Popen(
            [BIN / "tests/trainer", "j/run", "0", "2", "1"], stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True,
            env={**os.environ, "CAIRN_JOB": "job", "TRAINER_ROWS": "1",
                 "CAIRN_SOCKET": self.world.socket(0)})
        self.addCleanup(self.end_rank)
        self.version = wait_until(self.whole_but_for_rank_1, 30)
        self.begins = self.proxy.count("POST", "/checkpoints")
        self.seals = self.proxy.count("POST", "/shards")
        self.assertEqual(self.begins, 1)

    def end_rank(self):
        self.rank.kill()
        self.rank.communicate()

    def whole_but_for_rank_1(self):
        status, _, body = self.world.get("/v1/runs/j/run/checkpoints?limit=10")
        for version in json.loads(body)["items"] if status == 200 else []:
            if version["ranks_sealed"] == 1 and version["shards"] and version["shards_registered"] == version["shards"]:
                return version["version"]
        return None

    def told_again(self):
        return self.proxy.count("POST", "/checkpoints") > self.begins and \
            self.proxy.count("POST", "/shards") > self.seals

    def test_a_version_that_the_server_does_not_know_is_begun_and_sealed_again(self):  # Q19
        def unknown(answer):
            self.proxy.change = None
            answer["unknown"] = [self.version]
        self.proxy.change = unknown
        wait_until(self.told_again, 20)

    def test_a_changed_generation_makes_it_tell_its_sealed_saves_again(self):  # Q19, Q47
        def changed(answer):
            answer["generation"] += 1
        self.proxy.change = changed
        wait_until(self.told_again, 20)

    def test_another_catalog_makes_it_tell_its_sealed_saves_again(self):  # Q19, Q47
        def changed(answer):
            answer["catalog"] = "00000000-0000-4000-8000-000000000000"
        self.proxy.change = changed
        wait_until(self.told_again, 20)

    def test_nothing_is_told_again_while_nothing_has_changed(self):
        heartbeats = self.proxy.count("PUT", "/node-0")
        wait_until(lambda: self.proxy.count("PUT", "/node-0") > heartbeats + 5)
        self.assertEqual(self.proxy.count("POST", "/checkpoints"), self.begins)

    def test_a_fence_ends_the_saves_of_the_older_attempt(self):  # Q6, P6
        begun = subprocess.Popen(
            [BIN / "tests/trainer", "j/run", "1", "2", "1"], stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True,
            env={**os.environ, "CAIRN_JOB": "job", "TRAINER_ROWS": "1",
                 "TRAINER_HOLD": str(self.world.root / "hold"),
                 "CAIRN_SOCKET": self.world.socket(0)})
        self.assertIn('"attempt":1', line_of(begun))

        def fenced(answer):
            answer["fenced"] = [{"project": "j", "run": "run", "attempt": 1}]
        self.proxy.change = fenced
        heartbeats = self.proxy.count("PUT", "/node-0")
        wait_until(lambda: self.proxy.count("PUT", "/node-0") > heartbeats + 2)
        (self.world.root / "hold.1").touch()
        out, err = begun.communicate(timeout=HANG_S)
        self.assertIn("stale-attempt", out, err)


if __name__ == "__main__":
    unittest.main(verbosity=2)
