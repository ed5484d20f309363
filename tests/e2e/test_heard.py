# SPDX-License-Identifier: Apache-2.0
# ctest: seconds=30
"""What a trainer hears when its save does not get on, or a restore finds no server: the cause by name, once."""
import contextlib
import os
import pathlib
import socket
import sqlite3
import subprocess
import unittest

from build_folder import BIN
from patience import HANG_S
from world import World, in_time, line_of

RUN = "llm/heard"


class Heard(unittest.TestCase):
    def begin(self, **world):
        self.world = World(**world, case=self)
        self.trainers = []
        self.addCleanup(self.end)

    def end(self):
        for trainer in self.trainers:
            trainer.kill()
            trainer.communicate()

    def trainer(self, *steps, rank=0, world_size=1, program="trainer", **env):
        trainer = subprocess.Popen(
            [BIN / "tests" / program, RUN, str(rank), str(world_size), *map(str, steps)], text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env={**os.environ, "CAIRN_JOB": "heard", "CAIRN_SOCKET": self.world.socket(0), "TRAINER_ROWS": "1",
                 "TRAINER_HOLD": str(self.world.root / "hold"), **env})
        self.trainers.append(trainer)
        return trainer

    def release(self, *steps):
        for step in steps:
            pathlib.Path(f"{self.world.root}/hold.{step}").touch()

    def forget_step(self, step):
        """As in a backup of the same life of the catalog."""
        with contextlib.closing(sqlite3.connect(self.world.root / "server" / "catalog.db")) as catalog, catalog:
            for table in ("shards", "version_ranks", "version_groups", "versions"):
                catalog.execute(f"DELETE FROM {table} WHERE version IN "
                                "(SELECT version FROM versions WHERE step = ?)", (step,))

    def committed(self, trainer, step):
        self.release(step)
        while f'"step":{step},"code":"ok"' not in (line := line_of(trainer)):
            self.assertIn('"open":"ok"', line)

    def ended(self, trainer):
        """What it says at its end."""
        return trainer.communicate(timeout=HANG_S)[1]

    def says(self, text, seconds, job):
        """A rank of two, whose calls end in that time, and which need more of it on a busy machine."""
        in_time(lambda time_s: text in self.ended(self.trainer(
            5, world_size=2, CAIRN_JOB=job.format(time_s), TRAINER_TIMEOUT_MS=f"{1000 * time_s:.0f}")), seconds)

    def test_a_rank_that_never_opened_its_session_is_named_by_the_wait_of_the_others(self):
        self.begin()
        self.release(5)
        self.says("not committed yet: this rank's shards are durable; rank 1 has not opened this attempt: "
                  "its process ended before that, or was never started", 4, job="j-{:g}")

    def test_a_rank_that_is_there_and_has_not_saved_is_named_with_its_node(self):
        self.begin()
        self.release(5)
        other = self.trainer(7, rank=1, world_size=2)
        self.assertIn('"ok"', line_of(other))
        said = self.ended(self.trainer(5, world_size=2, TRAINER_TIMEOUT_MS="10000"))
        self.assertIn("shards are durable; rank 1 on node node-0 has not sealed it", said)

    def test_a_run_that_is_frozen_under_a_living_job_is_what_its_wait_and_why_say(self):
        self.begin()
        trainer = self.trainer(1, 2, 3, TRAINER_TIMEOUT_MS="15000")
        self.committed(trainer, 1)
        self.committed(trainer, 2)
        self.world.server.stop()
        self.forget_step(2)
        self.world.start_server()
        self.release(3)
        said = self.ended(trainer)
        self.assertIn("shards are durable; run llm/heard is frozen until `cairn reconcile llm/heard` has ended: ", said)
        self.assertEqual(said.count("is frozen until"), 1, said)

    def test_a_memory_budget_that_was_lowered_under_a_living_job_is_named_with_what_to_do(self):
        self.begin()
        trainer = self.trainer(1, 2, TRAINER_ROWS="16", TRAINER_TIMEOUT_MS="10000")
        self.committed(trainer, 1)
        self.world.uploaders[0].stop()
        self.world.uploader_arguments = ["--memory-budget", "16MiB"]
        self.world.uploaders[0] = self.world.make_uploader(0).start()
        self.release(2)
        said = self.ended(trainer)
        self.assertRegex(said, r"is back and does not take this session \(tried for .* s\): its memory_budget of 16.0 MiB, "
                               r"\S+ MiB of it free, does not hold the 22.0 MiB that this trainer has from the uploader "
                               r"before; raise it, or restart the job")

    def test_a_restore_waits_for_a_server_that_restarts(self):
        self.begin()
        self.release(1)
        self.assertEqual(self.ended(self.trainer(1)), "")
        self.world.server.kill()
        reader = subprocess.Popen(
            [BIN / "tests" / "tensor_reader", RUN, "1", "w"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env={**os.environ, "CAIRN_SOCKET": self.world.socket(0)})
        self.trainers.append(reader)
        self.see_refused(f"/v1/runs/{RUN}/checkpoints/1")
        self.world.start_server()
        out, err = reader.communicate(timeout=HANG_S)
        self.assertEqual((reader.returncode, err.decode()), (0, ""))
        self.assertEqual(len(out), 1 << 20)

    def see_refused(self, path):
        """Where the server was nobody answers, until that was asked."""
        with socket.create_server(("127.0.0.1", self.world.port)) as listener:
            listener.settimeout(HANG_S)
            while True:
                asked, _ = listener.accept()
                with asked:
                    asked.settimeout(HANG_S)
                    if f"GET {path} ".encode() in asked.recv(4096):
                        return


if __name__ == "__main__":
    unittest.main()
