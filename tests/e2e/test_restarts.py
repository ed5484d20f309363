# SPDX-License-Identifier: Apache-2.0
# ctest: engines=again
# ctest: as=restarts_behind env=CAIRN_TEST_BEHIND=1
"""What an uploader that slept may still do when it goes on."""
import json
import os
import signal
import unittest

from signs import go_round
from world import HANG_S, Job, wait_until, World


class Stopped(unittest.TestCase):
    """Uploaders that are stopped in good order, under a job that saves on."""

    STEPS = list(range(1, 31))

    def setUp(self):
        self.world = World(nodes=2, uploader_arguments=["--heartbeat", "200ms"], case=self)

    def job(self):
        os.environ.update({"TRAINER_AHEAD": "300", "TRAINER_EVERY": "100"})
        try:
            job = Job(self.world, "goes-on", 2, self.STEPS)
        finally:
            del os.environ["TRAINER_AHEAD"], os.environ["TRAINER_EVERY"]
        self.addCleanup(job.kill)
        job.first_lines()
        wait_until(lambda: self.world.version("j/run"), 30)
        return job

    def expect_all(self, job):
        for status, lines, said in job.end():
            self.assertEqual(([line.get("code", line) for line in lines], status),
                             (["staged"] * len(self.STEPS), 0), said)
        wait_until(lambda: len(self.committed()) == len(self.STEPS), 60)
        self.assertEqual(self.committed(), self.STEPS)

    def committed(self):
        _, _, body = self.world.get("/v1/runs/j/run/checkpoints?state=committed&limit=1000")
        return sorted(item["step"] for item in json.loads(body)["items"])

    def test_no_save_is_lost_while_an_uploader_drains_and_the_server_is_away(self):
        job = self.job()
        self.world.server.stop()
        wait_until(lambda: self.world.json("uploader", "status")["unfinished"])
        uploader = self.world.uploaders[0]
        uploader.process.send_signal(signal.SIGTERM)
        wait_until(lambda: "uploader.draining" in uploader.log.read_text())
        go_round(uploader.process.pid, times=10)  # saves go on; it drains for as long as the server is away
        self.assertIsNone(uploader.process.poll(), "it did not wait for the server")
        self.world.start_server()
        self.assertEqual(uploader.process.wait(HANG_S), 0)
        uploader.start()
        self.expect_all(job)

    def test_no_save_is_lost_in_a_rolling_restart_of_all_uploaders(self):
        job = self.job()
        for _ in range(2):
            for uploader in self.world.uploaders:
                self.assertEqual(uploader.stop(), 0)
                uploader.start()
        self.expect_all(job)


class Sleepers(unittest.TestCase):
    def setUp(self):
        delay = {"CAIRN_STORE_FAULT": "part:*:*:delay@400; put:*data*:*:delay@400"}
        self.world = World(nodes=2, env=delay, uploader_arguments=["--heartbeat", "200ms"],
                           server_arguments=["--silence-max", "2s", "--sweep-interval", "200ms"], case=self)

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
        wait_until(lambda: not self.world.json("uploader", "status")["unfinished"])
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
