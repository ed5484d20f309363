# SPDX-License-Identifier: Apache-2.0
# ctest: engines=again
"""Q55: one of two nodes without the mount. Nothing of it is committed without its bytes, nothing is
lost, and nothing lies on the node's own disk. A mount is a link to the store's folder; where it is
away there is an empty folder."""
import json
import os
import pathlib
import subprocess
import unittest

from signs import go_round
from build_folder import preload
from world import BIN, HANG_S, wait_until, World

RUN = "mount/run"
RANKS, STEPS = 2, list(range(1, 9))


class Mount(unittest.TestCase):
    def setUp(self):
        self.world = World(uploader_arguments=["--heartbeat", "200ms"],
                           env={"CAIRN_STORE_FAULT": "put:*:*:delay@30; complete:*:*:delay@30"})
        self.trainers = []
        self.addCleanup(self.close)
        self.mount = self.world.root / "mount-1"

    def close(self):
        for trainer in self.trainers:
            trainer.kill()
        self.world.close()

    def second_node(self, mounted):
        if mounted:
            self.mount.symlink_to(self.world.store)
        else:
            self.mount.mkdir()
        uploader = self.world.make_uploader(1)
        uploader.command[uploader.command.index("--store") + 1] = str(self.mount)
        self.world.uploaders.append(uploader)
        uploader.start()

    def mount_goes(self):
        self.mount.unlink()
        self.mount.mkdir()

    def mount_comes(self):
        self.assertEqual(self.on_own_disk(), [])
        self.mount.rmdir()
        self.mount.symlink_to(self.world.store)

    def on_own_disk(self):
        return [p for p in pathlib.Path(self.mount).rglob("*") if p.is_file()]

    def start_job(self):
        env = {**os.environ, "CAIRN_JOB": "mount", "TRAINER_ROWS": "1", "TRAINER_AHEAD": "4000"}
        self.trainers = [
            subprocess.Popen([BIN / "tests/trainer", RUN, str(rank), str(RANKS), *map(str, STEPS)],
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                             env={**env, "CAIRN_SOCKET": self.world.socket(rank)})
            for rank in range(RANKS)]

    def ended(self):
        return [(*trainer.communicate(timeout=HANG_S), trainer.returncode)
                for trainer in self.trainers]

    def states(self):
        _, _, body = self.world.get(f"/v1/runs/{RUN}/checkpoints?limit=1000")
        return {i["step"]: i["state"] for i in json.loads(body).get("items", [])}

    def test_q55_a_node_that_never_had_its_mount_takes_no_job_and_nothing_is_committed(self):
        self.second_node(mounted=False)
        self.start_job()
        out, err, status = self.ended()[1]
        self.assertNotEqual(status, 0, out)
        self.assertIn("store", err)
        self.assertNotIn("committed", self.states().values())
        self.assertEqual(self.on_own_disk(), [])

    def test_q55_file_handles_that_went_stale_are_a_mount_that_is_away(self):
        away = self.world.root / "away"
        uploader = self.world.make_uploader(1)
        uploader.env = {
            **uploader.env, **preload("stale"),
            "LIBSTALE_ROOT": str(self.world.store), "LIBSTALE_WHILE": str(away),
            "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0"}
        self.world.uploaders.append(uploader)
        uploader.start()
        self.start_job()
        for reached in (2, 4):
            wait_until(lambda: max(self.states(), default=0) >= reached, 60)
            away.touch()
            go_round(uploader.process.pid, times=10)  # it looks, and looks again
            wait_until(lambda: "store.not_ready" in uploader.log.read_text())
            away.unlink()
        self.expect_all_committed()

    def test_q55_a_restart_while_the_mount_is_away_loses_nothing(self):
        self.second_node(mounted=True)
        self.start_job()
        wait_until(lambda: max(self.states(), default=0) >= 3, 60)
        self.world.uploaders[1].kill()
        self.mount_goes()
        self.world.uploaders[1].start()
        wait_until(lambda: "store.not_ready" in self.world.uploaders[1].log.read_text(), 20)
        go_round(self.world.uploaders[1].process.pid, times=5)  # it has looked again
        self.mount_comes()
        self.expect_all_committed()

    def expect_all_committed(self):
        lines = [[json.loads(line) for line in out.splitlines()] for out, _, _ in self.ended()]
        for rank in lines:
            # That the node waits for its store is told, to who asks just then; nothing else is.
            told = {line["problem"] for line in rank if "problem" in line}
            self.assertLessEqual(told, {"unavailable"})
            self.assertEqual({line["step"] for line in rank if line.get("code") == "staged"},
                             set(STEPS))
        wait_until(lambda: self.states() == dict.fromkeys(STEPS, "committed"), 60)
        self.world.cairn("verify", f"{RUN}", "--store", self.world.store)


if __name__ == "__main__":
    unittest.main()
