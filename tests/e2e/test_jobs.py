# SPDX-License-Identifier: Apache-2.0
# ctest: engines=again
# ctest: as=jobs_behind env=CAIRN_TEST_BEHIND=1
"""Jobs of many processes: two incarnations on one run, many ranks at once, a server that is away."""
import json
import os
import signal
import subprocess
import time
import unittest

from signs import asleep, go_round
from world import HANG_S, Job, wait_until, World


class Jobs(unittest.TestCase):
    def setUp(self):
        self.world = World(nodes=2, case=self)

    def versions(self, run="j/run"):
        _, _, body = self.world.get(f"/v1/runs/{run}/checkpoints?limit=1000")
        return json.loads(body)["items"]

    def test_the_newer_job_resumes_and_the_older_is_told_stale_attempt_everywhere(self):
        hold = self.world.root / "hold"
        old = Job(self.world, "old", 8, [1, 2], hold=hold)
        self.assertTrue(all(line["resumed"] == -1 for line in old.first_lines()))
        (self.world.root / "hold.1").touch()
        wait_until(lambda: (self.world.version("j/run") or {}).get("step") == 1, 60)
        new = Job(self.world, "new", 8, [3])
        opened = new.first_lines()
        self.assertTrue(all(line["resumed"] == 1 and line["attempt"] == 2 for line in opened), opened)
        for status, lines, said in new.end():
            self.assertEqual((status, lines), (0, [{"step": 3, "code": "ok"}]), said)
        (self.world.root / "hold.2").touch()
        for status, lines, said in old.end():
            self.assertEqual(status, 1, said)
            self.assertEqual(lines[-1], {"step": 2, "code": "stale-attempt"}, said)
        self.assertEqual(self.world.version("j/run")["step"], 3)
        self.assertEqual(self.world.version("j/run")["attempt"], 2)

    def test_v5_no_attempt_is_asked_for_a_process_that_ended_while_the_server_was_away(self):
        self.world.server.stop()
        dead = Job(self.world, "dead", 1, [1])
        wait_until(lambda: asleep(dead.processes[0].pid))
        go_round(self.world.uploaders[0].process.pid, "heart", 2)  # its call is tried again and again
        dead.kill()
        self.world.start_server()
        for status, lines, said in Job(self.world, "living", 1, [2]).end():
            self.assertEqual((status, lines[0]["attempt"]), (0, 1), said)
            self.assertEqual(lines[-1], {"step": 2, "code": "ok"}, said)
        self.world.wait_for_beats(5)  # a call that went on would have come before
        _, _, body = self.world.get("/v1/runs/j/run")
        self.assertEqual(json.loads(body)["attempt"], 1)

    def test_v2_one_job_string_used_by_two_incarnations_is_refused(self):
        first = Job(self.world, "same", 2, [1])
        first.succeeds()
        second = Job(self.world, "same", 2, [2])
        for status, lines, said in second.end():
            self.assertEqual((status, lines), (1, [{"open": "job-reused"}]), said)
        self.assertEqual([v["step"] for v in self.versions()], [1])

    def test_c08_a_resume_supersedes_what_lies_beyond_and_latest_follows(self):
        Job(self.world, "one", 2, [1600, 1700, 1800]).succeeds()
        env = {"CAIRN_RESUME": "1600"}
        os.environ.update(env)
        try:
            opened = Job(self.world, "two", 2, [1620])
            for status, lines, said in opened.end():
                self.assertEqual((status, lines[0]["resumed"]), (0, 1600), said)
        finally:
            os.environ.pop("CAIRN_RESUME")
        self.assertEqual(self.world.version("j/run")["step"], 1620)
        states = {v["step"]: v["superseded"] for v in self.versions()}
        self.assertEqual(states, {1600: False, 1620: False, 1700: True, 1800: True})

    def test_64_processes_begin_one_step_at_once_over_2_uploaders_and_there_is_one_version(self):
        job = Job(self.world, "many", 64, [7])
        for status, lines, said in job.end():
            self.assertEqual(status, 0, said)
            self.assertEqual(lines[-1], {"step": 7, "code": "ok"})
        versions = self.versions()
        self.assertEqual(len(versions), 1)
        self.assertEqual((versions[0]["state"], versions[0]["world_size"], versions[0]["shards"]),
                         ("committed", 64, 128))
        self.world.cairn("verify", "j/run@7", "--store", self.world.store)

    def test_saves_made_while_the_server_is_away_all_commit_when_it_is_back(self):
        hold = self.world.root / "away"
        job = Job(self.world, "away", 4, [1, 2, 3, 4], hold=hold)
        job.first_lines()
        (self.world.root / "away.1").touch()
        wait_until(lambda: self.world.version("j/run"), 60)
        self.world.server.stop()
        for step in (2, 3, 4):
            (self.world.root / f"away.{step}").touch()
        for node in range(len(self.world.uploaders)):
            wait_until(lambda at=node: self.world.json("uploader", "status", node=at)["unfinished"])
        wait_until(lambda: all(asleep(process.pid) for process in job.processes))
        self.assertTrue(all(process.poll() is None for process in job.processes))
        self.world.start_server()
        for status, lines, said in job.end():
            self.assertEqual(status, 0, said)
            self.assertEqual([line["code"] for line in lines], ["ok"] * 4, said)
        self.assertEqual([v["step"] for v in self.versions()], [4, 3, 2, 1])

    def test_a_rank_that_dies_between_saves_is_noticed_from_another_pid_namespace(self):
        inside = ["unshare", *([] if os.geteuid() == 0 else ["--user", "--map-root-user"]),
                  "--pid", "--fork", "--kill-child"]
        if subprocess.run([*inside, "true"], capture_output=True, check=False).returncode:
            self.skipTest("no PID namespace can be made here")
        for uploader in self.world.uploaders:
            uploader.stop()
            uploader.command = [*inside, *uploader.command]
            uploader.start()
        hold = self.world.root / "hold"
        job = Job(self.world, "dies", 2, [1], hold=hold)
        self.addCleanup(job.kill)
        job.first_lines()
        job.processes[1].kill()
        (self.world.root / "hold.1").touch()
        said = job.processes[0].communicate(timeout=HANG_S)[1]
        for uploader in self.world.uploaders:
            uploader.kill()
        self.assertIn("rank 1 has ended", said)

    def test_a_restart_does_not_wait_for_a_lost_node_that_had_nothing_open(self):
        Job(self.world, "first", 2, [1]).succeeds()
        self.world.uploaders[1].kill()
        self.world.server.stop()
        self.world.server_arguments += ["--resume-silence", "2min"]
        self.world.start_server()
        began = time.monotonic()
        again = Job(self.world, "second", 1, [2], wait_staged=120000)  # on the node that is left
        self.addCleanup(again.kill)
        self.assertEqual(again.first_lines()[0]["resumed"], 1)
        self.assertLess(time.monotonic() - began, 100)  # two minutes of silence would have been due
        again.succeeds()

    def test_k03_ranks_that_die_after_staging_are_finished_by_their_uploaders(self):
        job = Job(self.world, "dies", 4, [5], rows=16)
        job.first_lines()
        wait_until(lambda: self.world.version("j/run", "5"), 30)
        wait_until(lambda: (self.world.version("j/run", "5") or {}).get("ranks_sealed", 0) == 4 or
                   (self.world.version("j/run", "5") or {}).get("state") == "committed", 60)
        job.kill()
        wait_until(lambda: self.world.version("j/run", "5")["state"] == "committed", 60)
        self.world.cairn("verify", "j/run@5")

    def test_k06_sigterm_finishes_what_was_staged(self):
        job = Job(self.world, "drain", 2, [6], rows=16)
        job.first_lines()
        wait_until(lambda: (self.world.version("j/run", "6") or {}).get("ranks_sealed", 0) == 2 or
                   (self.world.version("j/run", "6") or {}).get("state") == "committed", 60)
        for uploader in self.world.uploaders:
            self.assertEqual(uploader.stop(signal.SIGTERM), 0, self.world.logs())
        wait_until(lambda: self.world.version("j/run", "6")["state"] == "committed", 60)
        job.kill()


if __name__ == "__main__":
    unittest.main(verbosity=2)
