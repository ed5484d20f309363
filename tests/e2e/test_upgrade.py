# SPDX-License-Identifier: Apache-2.0
# ctest: seconds=20
"""docs/upgrade.md with the programs of an earlier commit: CAIRN_TEST_BEFORE names the folder of them, as
`git worktree add ../before COMMIT` and a build of its preset `shipped` leave it. Skipped without."""
import json
import os
import pathlib
import subprocess
import unittest

import world as worlds
from outcome import leave
from world import HANG_S, wait_until, World

BEFORE, NOW = os.environ.get("CAIRN_TEST_BEFORE"), worlds.BIN
RUN = "llm/7b"
SLOW = "put:*/000000000300/*/data/*:*:delay@60000"  # of the older programs


@unittest.skipUnless(BEFORE, "CAIRN_TEST_BEFORE names no folder of older programs")
class Upgrade(unittest.TestCase):
    def setUp(self):
        self.use(BEFORE)
        self.addCleanup(self.use, NOW)
        self.world = World(uploader_arguments=("--heartbeat", "200ms"), env={"CAIRN_STORE_FAULT": SLOW})
        self.addCleanup(self.world.close)
        self.folder = self.world.root / "model"
        self.folder.mkdir()
        self.bytes = {}

    @staticmethod
    def use(folder):
        worlds.BIN = pathlib.Path(folder).resolve()

    def put(self, step, *words):
        self.bytes[step] = os.urandom(400_000)
        (self.folder / "w.bin").write_bytes(self.bytes[step])
        self.world.cairn("put", *words, self.folder, f"{RUN}@{step}")

    def newer_uploader(self):
        self.use(NOW)
        self.world.env = {}
        self.world.uploaders[0] = self.world.make_uploader(0).start()

    def all_are_read(self):
        for step, wanted in self.bytes.items():
            into = self.world.root / f"read-{step}-{worlds.BIN.parent.name}"
            self.world.cairn("get", f"{RUN}@{step}", "-d", into)
            self.assertEqual((into / "w.bin").read_bytes(), wanted, step)

    def test_servers_then_uploaders_then_the_command_with_a_save_at_each_step(self):
        self.put(100)
        old_server = self.world.server
        old_server.stop()
        self.use(NOW)
        self.world.start_server()
        self.use(BEFORE)
        self.put(200)  # by the older command and uploader to the newer server
        self.assertIsNone(self.world.version(RUN, "100")["stall_ms"])  # nobody said it then
        # What a job with the older library had staged is sent by the newer uploader, and the job hears of its commit.
        job = subprocess.Popen([worlds.BIN / "tests/trainer", RUN, "0", "1", "300"], stdout=subprocess.PIPE, text=True,
                               env={**os.environ, "CAIRN_JOB": "across", "CAIRN_SOCKET": self.world.socket(), "TRAINER_ROWS": "2"})
        self.addCleanup(lambda: (job.kill(), job.communicate()))
        wait_until(lambda: (self.world.version(RUN, "300") or {}).get("ranks_sealed") == 1)
        self.world.uploaders[0].kill()
        self.newer_uploader()
        said = job.communicate(timeout=HANG_S)[0]
        self.assertEqual(job.returncode, 0, said)
        self.assertEqual(self.world.version(RUN, "300")["state"], "committed")
        self.put(400)
        self.assertIsNotNone(self.world.version(RUN, "400")["stall_ms"])
        for bins in (NOW, BEFORE):  # a command of each
            self.use(bins)
            self.all_are_read()
            steps = [row["step"] for row in json.loads(self.world.cairn("ls", RUN, "--json").stdout)]
            self.assertEqual(steps, [400, 300, 200, 100])
        self.world.server.stop()
        with self.assertRaisesRegex(AssertionError, "newer|release"):  # an older one on the newer tables says so
            old_server.start()
        self.use(NOW)
        self.world.start_server()


if __name__ == "__main__":
    leave(unittest.main(exit=False).result)
