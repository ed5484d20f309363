# SPDX-License-Identifier: Apache-2.0
"""What an uploader that slept may still do when it goes on."""
import json
import signal
import time
import unittest

from test_jobs import Job
from world import World, wait_until


class Sleepers(unittest.TestCase):
    def setUp(self):
        delay = {"CAIRN_STORE_FAULT": "part:*:*:delay@400; put:*data*:*:delay@400"}
        self.world = World(nodes=2, env=delay, uploader_arguments=["--heartbeat", "200ms"],
                           server_arguments=["--silence-max", "2s", "--sweep-interval", "200ms"])
        self.addCleanup(self.world.close)

    def objects(self, version):
        return {str(path) for path in self.world.stored("*") if version in str(path)}

    def test_k05_an_uploader_that_slept_past_its_lease_touches_nothing_of_the_next_attempt(self):
        # Stopped in the middle of sending; the version ends without it and another job saves; what it
        # still does when it goes on must not show.
        sleeper = self.world.uploaders[0]
        old = Job(self.world, "old", 1, [1], run="k/run", rows=8)
        self.addCleanup(old.kill)
        wait_until(lambda: self.world.version("k/run", "1"), 30)
        sleeper.process.send_signal(signal.SIGSTOP)
        state = self.world.version("k/run", "1")["state"]
        self.assertEqual(state, "open", "it was stopped too late")
        lost = self.world.version("k/run", "1")["version"]
        self.assertIsNone(self.world.version("k/run"))
        wait_until(lambda: not self.open_versions(), 30)
        self.save_on_the_other_node()
        before = self.objects("ckpt_")
        sleeper.process.send_signal(signal.SIGCONT)
        status, lines, said = old.end()[0]
        self.assertEqual(status, 1, said)
        # The newer attempt, or why its own version ended ("was not heard for"): what it hears first.
        self.assertIn(lines[-1]["code"], ("stale-attempt", "checkpoint-aborted", "timeout"), said)
        self.assertEqual(self.world.version("k/run")["step"], 7)
        # What it writes late lies under its own version, where the next of the later sweeps finds it
        # (Q30; tests/server/test_time.c); of the others nothing is touched.
        time.sleep(2)
        self.assertEqual({path for path in before if lost not in path},
                         {path for path in self.objects("ckpt_") if lost not in path})
        self.world.cairn("verify", "k/run@7", "--store", self.world.store)

    def open_versions(self):
        _, _, body = self.world.get("/v1/runs/k/run/checkpoints?limit=100")
        return [item for item in json.loads(body)["items"] if item["state"] == "open"]

    def save_on_the_other_node(self):
        socket, self.world.socket = self.world.socket, lambda node: socket(1)
        try:
            for status, lines, said in Job(self.world, "new", 1, [7], run="k/run").end():
                self.assertEqual((status, lines[-1]), (0, {"step": 7, "code": "ok"}), said)
        finally:
            self.world.socket = socket


if __name__ == "__main__":
    unittest.main(verbosity=2)
