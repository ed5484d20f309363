# SPDX-License-Identifier: Apache-2.0
# ctest: engines=again
"""Rates of requests as programs meet them: the command and the uploader come again when the server has
said, and what they do is done."""
import time
import unittest

import cases
from load import Load
from world import wait_until, World


class Rates(unittest.TestCase):
    def setUp(self):
        self.world = World(server_arguments=("--requests-per-second", "2", "--requests-burst", "1"), case=self)
        self.file = cases.file(self.world.root / "weights.bin", b"w" * 3000)

    def limited(self):
        """Of the metrics, which are asked for within the rate."""
        for _ in range(100):
            status, _, body = self.world.get("/metrics")
            if status == 200:
                lines = [line for line in body.decode().splitlines() if line.startswith("cairn_requests_limited_total")]
                return sum(int(float(line.split()[-1])) for line in lines)
            time.sleep(0.2)  # step of a poll
        raise AssertionError("never within the rate")

    def test_commands_and_saves_come_again_and_are_done(self):
        for step in (1, 2, 3):
            self.world.cairn("put", self.file, f"llm/7b@{step}")
        for _ in range(4):
            shown = self.world.cairn("ls", "llm/7b", "--output", "name").stdout
        self.assertEqual(len(shown.split()), 3)
        self.world.cairn("get", "llm/7b@2", "-d", self.world.root / "out")
        self.assertEqual((self.world.root / "out/weights.bin").read_bytes(), b"w" * 3000)
        self.assertGreater(self.limited(), 3)

    def test_a_command_without_the_time_to_come_again_says_so(self):
        others = Load(lambda _: self.world.get("/v1/runs"))
        others.start()
        self.addCleanup(others.stop)

        def refused():
            done = self.world.cairn("ls", "--timeout", "100ms", status=None)
            return done if "address 127.0.0.1 has asked too often: 2 requests a second" in done.stderr else None
        self.assertEqual(wait_until(refused).returncode, 5)


if __name__ == "__main__":
    unittest.main()
