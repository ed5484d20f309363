# SPDX-License-Identifier: Apache-2.0
"""A folder store that is full, or read-only, for a moment: the save waits with its bytes where they
were staged, and is committed once there is room again. The folder is a real file system of its own,
in a mount namespace of this test's."""
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import time
import unittest

import mounted
from world import BIN, World, wait_until

RUN = "full/run"
ZERO = pathlib.Path(__file__).resolve().parents[1] / "vectors/deepspeed/stage2"
MIB = 1 << 20
STEPS = list(range(1, 5))
# Small documents still fit; a shard of several MiB does not.
LEFT_OVER_BYTES = MIB


class Full(unittest.TestCase):
    def setUp(self):
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="cairn-full-"))
        self.store = self.root / "store"
        self.store.mkdir()
        self.assertTrue(mounted.mount(self.store, "tmpfs", "-t", "tmpfs", "-o",
                                      "size=96m,mode=0777"))
        self.world = World(store=str(self.store), root=self.root,
                           server_arguments=["--sweep-interval", "200ms"],
                           uploader_arguments=["--heartbeat", "200ms"])
        self.addCleanup(self.close)
        self.trainer = None

    def close(self):
        if self.trainer and self.trainer.poll() is None:
            self.trainer.kill()
        mounted.mount(self.store, "none", "-o", "remount,rw")
        try:
            self.world.close()
        finally:
            mounted.unmount(self.store)

    def start_job(self, **further):
        env = {**os.environ, **further, "CAIRN_JOB": "full", "TRAINER_ROWS": "4", "TRAINER_AHEAD": "4000",
               "CAIRN_SOCKET": self.world.socket()}
        self.trainer = subprocess.Popen(
            [BIN / "tests/trainer", RUN, "0", "1", *map(str, STEPS)], stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, env=env)

    def states(self):
        _, _, body = self.world.get(f"/v1/runs/{RUN}/checkpoints?limit=1000")
        return {i["step"]: i["state"] for i in json.loads(body).get("items", [])}

    def refused(self):
        log = (self.root / "uploader-0.log").read_text(errors="replace")
        return any("send.retry" in line for line in log.splitlines())

    def wait_for_refusals(self):
        """Five tries of a step were all there were before: they took less than a second."""
        wait_until(self.refused)
        time.sleep(2)

    def ends_well(self):
        out, _ = self.trainer.communicate(timeout=120)
        self.assertEqual(self.trainer.returncode, 0, out + self.world.logs())
        wait_until(lambda: [s for s in STEPS if self.states().get(s) == "committed"] == STEPS)
        self.world.cairn("verify", f"{RUN}@{STEPS[-1]}")

    def test_a_save_outlives_a_folder_that_is_full_for_a_moment(self):
        filler = mounted.fill(self.store, LEFT_OVER_BYTES)
        self.start_job()
        self.wait_for_refusals()
        self.assertNotIn("committed", self.states().values())
        filler.unlink()
        self.ends_well()

    def test_a_save_outlives_a_folder_that_is_read_only_for_a_moment(self):
        hold = self.root / "hold"
        self.start_job(TRAINER_HOLD=str(hold))
        (self.root / "hold.1").touch()
        wait_until(lambda: self.states().get(1) == "committed")
        wait_until(lambda: mounted.mount(self.store, "none", "-o", "remount,ro"))  # between two writers
        for step in STEPS[1:]:
            (self.root / f"hold.{step}").touch()
        self.wait_for_refusals()
        self.assertTrue(mounted.mount(self.store, "none", "-o", "remount,rw"))
        self.ends_well()



class Commands(unittest.TestCase):
    """What writes files says how much room it wants, and leaves none of them half written."""

    def setUp(self):
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="cairn-full-"))
        self.addCleanup(shutil.rmtree, self.root, ignore_errors=True)
        self.disk = self.root / "disk"
        self.disk.mkdir()
        self.assertTrue(mounted.mount(self.disk, "tmpfs", "-t", "tmpfs", "-o", "size=1m,mode=0777"))
        self.addCleanup(mounted.unmount, self.disk)

    def test_an_export_to_a_full_disk_says_what_it_needs_and_leaves_nothing(self):
        filler = mounted.fill(self.disk)
        words = [BIN / "cairn", "export", ZERO, self.disk / "out"]
        said = subprocess.run(words, capture_output=True, text=True, timeout=120)
        self.assertEqual(said.returncode, 1, said)
        self.assertRegex(said.stderr, r"No space left on device: [0-9.]+ KiB are needed and 0 B free")
        self.assertIn("name a folder on another disk", said.stderr)
        self.assertEqual(list((self.disk / "out").iterdir()), [])
        filler.unlink()
        subprocess.run(words, check=True, capture_output=True, timeout=120)

    def test_a_get_to_a_full_disk_says_what_it_needs_and_goes_on_when_there_is_room(self):
        world = World(root=self.root)
        self.addCleanup(world.close)
        source = self.root / "source"
        source.mkdir()
        (source / "a.bin").write_bytes(os.urandom(300000))
        world.cairn("put", source, "full/got@1")
        filler = mounted.fill(self.disk, 100000)
        for more in ((), ("--store", world.store)):
            said = world.cairn("get", "full/got@1", "-d", self.disk / "out", *more, status=1)
            self.assertRegex(said.stderr, r"No space left on device: 293.0 KiB are needed and .* free")
            self.assertIn("goes on where this one stopped", said.stderr)
            self.assertFalse((self.disk / "out" / "a.bin").exists())
        filler.unlink()
        world.cairn("get", "full/got@1", "-d", self.disk / "out")
        self.assertEqual((self.disk / "out" / "a.bin").read_bytes(), (source / "a.bin").read_bytes())


if __name__ == "__main__":
    mounted.main()
