# SPDX-License-Identifier: Apache-2.0
# ctest: engines=again
"""A folder store that is full, or read-only, for a moment: the save waits with its bytes where they
were staged, and is committed once there is room again. The folder is a real file system of its own,
in a mount namespace of this test's."""
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

import mounted
from signs import go_round
from world import BIN, files_below, HANG_S, wait_until, World

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
        go_round(self.world.uploaders[0].process.pid, "sender", 40)

    def ends_well(self):
        out, _ = self.trainer.communicate(timeout=HANG_S)
        problems = {line for line in out.splitlines() if line.startswith('{"problem"')}
        # Of a store that takes nothing for five seconds it is told, too, and goes on.
        self.assertLessEqual(problems, {'{"problem":"unavailable"}'})
        self.assertTrue(problems or self.trainer.returncode == 0, out + self.world.logs())
        wait_until(lambda: [s for s in STEPS if self.states().get(s) == "committed"] == STEPS)
        self.world.cairn("verify", f"{RUN}@{STEPS[-1]}")

    def test_a_save_outlives_a_folder_that_is_full_for_a_moment(self):
        filler = mounted.fill(self.store, LEFT_OVER_BYTES)
        self.start_job()
        self.wait_for_refusals()
        self.assertNotIn("committed", self.states().values())
        filler.unlink()
        self.ends_well()

    def test_a_put_says_while_it_waits_that_the_folder_is_full(self):
        tree = self.root / "tree"
        tree.mkdir()
        (tree / "large").write_bytes(os.urandom(8 * MIB))
        filler = mounted.fill(self.store, LEFT_OVER_BYTES)
        putting = subprocess.Popen(
            [BIN / "cairn", "put", tree, "full/put@1", "--progress", "none"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True, env={**os.environ, "CAIRN_URL": self.world.addresses(), "CAIRN_SOCKET": self.world.socket()})
        line = next((line for line in putting.stderr if "the store fails, and is tried on" in line), "")
        self.assertIn("No space left on device", line)
        filler.unlink()
        self.assertEqual((putting.communicate(timeout=HANG_S)[1], putting.returncode), ("", 0))
        self.world.cairn("verify", "full/put@1")

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


class FullCopies(unittest.TestCase):
    """The further store is a disk that is full for a moment."""
    SIZES = {"a.bin": 5 * MIB, "b.bin": 3 * MIB}

    def setUp(self):
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="cairn-full-"))
        self.addCleanup(shutil.rmtree, self.root, ignore_errors=True)
        self.far = self.root / "far"
        self.far.mkdir()
        self.assertTrue(mounted.mount(self.far, "tmpfs", "-t", "tmpfs", "-o", "size=32m,mode=0777"))
        self.addCleanup(mounted.unmount, self.far)
        self.world = World(root=self.root, server_arguments=[
            "--stores", f"main,far={self.far}", "--sweep-interval", "200ms", "--trash-grace", "0ms"])
        self.addCleanup(self.world.close)
        self.model = self.root / "model"
        self.model.mkdir()
        for name, size in self.SIZES.items():
            (self.model / name).write_bytes(os.urandom(size))

    def copies(self, step):
        return {copy["store"]: copy["state"] for copy in self.world.version(RUN, step)["copies"]}

    def far_files(self):
        """Without what fills the disk."""
        return {str(path.relative_to(self.far)): path.read_bytes() for path in files_below(self.far)
                if path.name != "somebody-elses" and ".cairn" not in path.parts}

    def is_given_back(self, step, *words):
        back = self.root / f"back-{step}-{len(words)}"
        self.world.cairn("get", f"{RUN}@{step}", "-d", back, *words)
        for name in self.SIZES:
            self.assertEqual((back / name).read_bytes(), (self.model / name).read_bytes())

    def test_a_copy_to_a_full_store_says_which_and_goes_on_by_itself_when_there_is_room(self):
        self.world.cairn("put", self.model, f"{RUN}@1")
        filler = mounted.fill(self.far, LEFT_OVER_BYTES)
        said = self.world.cairn("promote", f"{RUN}@1", "--to", "far", status=1).stderr
        self.assertIn("no room left in store far; make room, and it goes on by itself", said)
        self.assertIn("No space left on device", said)
        self.assertEqual(self.copies(1), {"main": "whole", "far": "making"})
        self.assertFalse([path for path in files_below(self.far) if path.name == "committed.json"])
        wait_until(lambda: not [path for path in files_below(self.far) if path.suffix == ".tmp"], 60)  # of a next try
        self.assertRegex((self.root / "server.log").read_text(), r"copy.delayed .* store=far .*no room left in store far")
        self.is_given_back(1)
        filler.unlink()
        self.world.cairn("wait", f"{RUN}@1", "--for", "promoted:far", "--timeout", "100s")
        self.is_given_back(1, "--store", self.far)

    def test_the_same_command_goes_on_at_once_and_what_was_copied_is_not_copied_again(self):
        self.world.cairn("put", self.model, f"{RUN}@1")
        filler = mounted.fill(self.far, 6 * MIB)  # of the two shards one fits
        self.world.cairn("promote", f"{RUN}@1", "--to", "far", status=1)
        kept = {path: path.stat().st_ino for path in files_below(self.far) if path.name in self.SIZES}
        self.assertEqual(len(kept), 1)
        filler.unlink()
        self.world.cairn("promote", f"{RUN}@1", "--to", "far")
        self.assertEqual(self.copies(1), {"main": "whole", "far": "whole"})
        self.assertEqual({path: path.stat().st_ino for path in kept}, kept)
        self.is_given_back(1, "--store", self.far)

    def test_a_copy_is_given_up_while_its_store_is_full(self):
        self.world.cairn("put", self.model, f"{RUN}@1")
        mounted.fill(self.far, LEFT_OVER_BYTES)
        self.world.cairn("promote", f"{RUN}@1", "--to", "far", status=1)
        self.world.cairn("demote", f"{RUN}@1", "--from", "far")
        self.assertEqual(self.copies(1), {"main": "whole"})
        self.assertFalse([path for path in files_below(self.far / RUN) if "000000000001" in path.parts])
        self.is_given_back(1)

    def test_a_full_store_loses_a_copy_and_keeps_the_last_one(self):
        for step in (1, 2):
            self.world.cairn("put", self.model, f"{RUN}@{step}")
            self.world.cairn("promote", f"{RUN}@{step}", "--to", "far")
        mounted.fill(self.far).rename(self.far / "more")  # to the last byte
        self.world.cairn("demote", f"{RUN}@1", "--from", "far")  # which makes room
        self.assertEqual(self.copies(1), {"main": "whole"})
        mounted.fill(self.far)
        self.world.cairn("demote", f"{RUN}@2", "--from", "main")  # whose other copy is looked at there
        self.assertEqual(self.copies(2), {"far": "whole"})
        self.world.cairn("demote", f"{RUN}@2", "--from", "far", status=6)
        for step in (1, 2):
            self.is_given_back(step)

    def damage(self, name, offset=-1):
        path, = [path for path in files_below(self.far) if path.name == name]
        path.chmod(0o644)
        data = bytearray(path.read_bytes())
        data[offset] ^= 1
        with open(path, "r+b") as file:  # in place: there is no room for another
            file.write(data)
        return path

    def test_a_repair_in_a_full_store_says_so_keeps_what_is_there_and_mends_it_when_there_is_room(self):
        self.world.cairn("put", self.model, f"{RUN}@1")
        self.world.cairn("promote", f"{RUN}@1", "--to", "far")
        self.damage("a.bin")
        self.damage("manifest.json", 40)
        filler = mounted.fill(self.far)
        damaged = self.far_files()
        done = self.world.cairn("verify", f"{RUN}@1", "--repair", "--json", status=7)
        found = json.loads(done.stdout)
        self.assertEqual((found["ok"], found["mended"]), (False, 0))
        self.assertEqual({item["key"].rsplit("/", 1)[1] for item in found["findings"]}, {"a.bin", "manifest.json"})
        for item in found["findings"]:
            self.assertEqual(item["store"], "far")
            self.assertIn("no room left in store far; make room, and repair again", item["detail"])
        self.assertEqual(self.far_files(), damaged)
        self.is_given_back(1)
        filler.unlink()
        mended = json.loads(self.world.cairn("verify", f"{RUN}@1", "--repair", "--json").stdout)
        self.assertEqual((mended["ok"], mended["mended"]), (True, 2))
        self.is_given_back(1, "--store", self.far)


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
        said = subprocess.run(words, capture_output=True, text=True, timeout=HANG_S)
        self.assertEqual(said.returncode, 1, said)
        self.assertRegex(said.stderr, r"No space left on device: [0-9.]+ KiB are needed and 0 B free")
        self.assertIn("name a folder on another disk", said.stderr)
        self.assertEqual(list((self.disk / "out").iterdir()), [])
        filler.unlink()
        subprocess.run(words, check=True, capture_output=True, timeout=HANG_S)

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


class Inodes(unittest.TestCase):
    def test_a_file_system_without_inodes_is_said_as_that(self):
        root = pathlib.Path(tempfile.mkdtemp(prefix="cairn-inodes-"))
        back = root / "back"
        back.mkdir()
        self.assertTrue(mounted.mount(back, "tmpfs", "-t", "tmpfs", "-o", "size=96m,nr_inodes=30,mode=0777"))
        self.addCleanup(mounted.unmount, back)
        world = World(root=root)
        self.addCleanup(world.close)
        tree = root / "tree"
        tree.mkdir()
        for number in range(60):
            (tree / str(number)).write_bytes(b"x")
        world.cairn("put", tree, "full/inodes@1")
        said = world.cairn("get", "full/inodes@1", "-d", back, status=None)
        self.assertNotEqual(said.returncode, 0)
        self.assertIn("no inode is left", said.stderr)


if __name__ == "__main__":
    mounted.main()
