# SPDX-License-Identifier: Apache-2.0
# ctest: seconds=100 engines=again
# ctest: as=full_behind with="Full FullCopies Commands Inodes" seconds=70 env=CAIRN_TEST_BEHIND=1
"""A folder store that is full, or read-only, for a moment: the save waits with its bytes where they
were staged, and is committed once there is room again. The folder is a real file system of its own,
in a mount namespace of this test's.

Q55: one of two nodes without the mount. Nothing of it is committed without its bytes, nothing is
lost, and nothing lies on the node's own disk. A mount is a link to the store's folder; where it is
away there is an empty folder.

readyz while the disk of a folder store is full, read-only or gives I/O errors: 503 with a
sentence that names the store and what to do, and 200 again when that is over. Each is a real file
system, in a mount namespace of this test's."""
import json
import os
import pathlib
import re
import tempfile
import unittest

import cases
import mounted
from build_folder import preload
from signs import go_round
from world import BIN, HANG_S, Job, World, files_below, wait_until

RUN = "full/run"
ZERO = pathlib.Path(__file__).resolve().parents[1] / "vectors/deepspeed/stage2"
MIB = 1 << 20
STEPS = list(range(1, 5))
# Small documents still fit; a shard of several MiB does not.
LEFT_OVER_BYTES = MIB


class Full(unittest.TestCase):
    def setUp(self):
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="cairn-full-"))
        self.store = cases.made(self.root / "store")
        self.assertTrue(mounted.mount(self.store, "tmpfs", "-t", "tmpfs", "-o", "size=96m,mode=0777"))
        self.world = World(store=str(self.store), root=self.root,
                           server_arguments=["--sweep-interval", "200ms"],
                           uploader_arguments=["--heartbeat", "200ms"])
        self.addCleanup(self.close)

    def close(self):
        mounted.mount(self.store, "none", "-o", "remount,rw")
        try:
            self.world.close()
        finally:
            mounted.unmount(self.store)

    def start_job(self, **more):
        self.job = Job(self.world, "full", 1, STEPS, run=RUN, rows=4, ahead=4000, case=self, **more)

    def states(self):
        return self.world.states(RUN)

    def refused(self):
        return "send.retry" in self.world.log("uploader-0")

    def wait_for_refusals(self):
        """Five tries of a step were all there were before: they took less than a second."""
        wait_until(self.refused)
        go_round(self.world.uploaders[0].process.pid, "sender", 40)

    def ends_well(self):
        (status, lines, said), = self.job.end()
        problems = [line for line in lines if "problem" in line]
        # Of a store that takes nothing for five seconds it is told, too, and goes on.
        self.assertTrue(all(line == {"problem": "unavailable"} for line in problems), problems)
        self.assertTrue(problems or status == 0, said + self.world.logs())
        wait_until(lambda: self.world.committed(RUN) == STEPS)
        self.world.cairn("verify", f"{RUN}@{STEPS[-1]}")

    def test_a_save_outlives_a_folder_that_is_full_for_a_moment(self):
        filler = mounted.fill(self.store, LEFT_OVER_BYTES)
        self.start_job()
        self.wait_for_refusals()
        self.assertNotIn("committed", self.states().values())
        filler.unlink()
        self.ends_well()

    def test_a_put_says_while_it_waits_that_the_folder_is_full(self):
        tree = cases.tree(self.root / "tree", {"large": 8 * MIB})
        filler = mounted.fill(self.store, LEFT_OVER_BYTES)
        putting = self.world.begin("put", tree, "full/put@1", "--progress", "none")
        line = next((line for line in putting.stderr if "the store fails, and is tried on" in line), "")
        self.assertIn("No space left on device", line)
        filler.unlink()
        self.assertEqual(self.world.ended(putting)[1], "")
        self.world.cairn("verify", "full/put@1")

    def test_a_save_outlives_a_folder_that_is_read_only_for_a_moment(self):
        hold = self.root / "hold"
        self.start_job(hold=hold)
        (self.root / "hold.1").touch()
        wait_until(lambda: self.states().get(1) == "committed")
        wait_until(lambda: mounted.mount(self.store, "none", "-o", "remount,ro"))  # between two writers
        for step in STEPS[1:]:
            (self.root / f"hold.{step}").touch()
        self.wait_for_refusals()
        self.assertTrue(mounted.mount(self.store, "none", "-o", "remount,rw"))
        self.ends_well()


class Emptied(unittest.TestCase):
    """A store without one free block is emptied by the commands that make room (store/dir/inside.h#7)."""

    def setUp(self):
        self.root = cases.folder(self)
        self.store = cases.made(self.root / "store")
        self.assertTrue(mounted.mount(self.store, "tmpfs", "-t", "tmpfs", "-o", "size=24m,mode=0777"))
        self.addCleanup(mounted.unmount, self.store)
        self.world = World(store=str(self.store), root=self.root, case=self, server_arguments=[
            "--sweep-interval", "200ms", "--check-interval", "100ms", "--trash-grace", "0ms"])
        self.model = cases.tree(self.root / "model", {"a.bin": 5 * MIB})
        self.world.put(self.model, f"{RUN}@1", f"{RUN}@2", f"{RUN}@3")

    def fill(self):
        mounted.fill(self.store)
        self.assertEqual(os.statvfs(self.store).f_bavail, 0)

    def no_room_for_a_record(self):
        """An ordinary write of the server: the record of an attempt."""
        return self.world.call("POST", "/v1/runs/a/b/attempts", {
            "job": "j", "world_size": 1, "after": 0, "node": "n", "ranks": [{"rank": 0, "proc": "p"}]})[0] == 507

    def is_gone(self, step):
        return not [path for path in files_below(self.store / RUN) if f"{step:012}" in path.parts]

    def ballast(self):
        return sum(path.stat().st_blocks * 512 for path in (self.store / ".cairn").glob(".ballast-*"))

    def test_a_version_is_removed_from_a_store_without_a_free_block_and_its_room_is_saved_into(self):
        self.fill()
        self.assertTrue(self.no_room_for_a_record())
        self.world.cairn("rm", "--yes", f"{RUN}@1")
        wait_until(lambda: self.is_gone(1))
        self.world.cairn("put", self.model, f"{RUN}@4")
        self.assertEqual(self.world.committed(RUN), [2, 3, 4])
        self.world.cairn("verify", f"{RUN}@4")
        self.assertEqual(self.world.got(f"{RUN}@4"), cases.content(self.model))

    def test_the_ballast_is_whole_again_when_there_is_room_and_no_command_takes_it_for_an_object(self):
        whole = self.ballast()
        self.assertEqual(whole, MIB)
        self.fill()
        for step in (1, 2):
            self.world.cairn("rm", "--yes", f"{RUN}@{step}")
        wait_until(lambda: self.is_gone(1) and self.is_gone(2))
        self.world.cairn("rm", "--yes", f"{RUN}@3")
        self.assertEqual(self.ballast(), whole)
        for words in (("gc",), ("gc", "--json"), ("ls", "--store", self.store), ("uploads", "ls")):
            self.assertNotIn("ballast", self.world.cairn(*words).stdout)

    def test_a_server_that_starts_on_a_full_store_empties_it(self):
        self.world.server.kill()
        self.fill()
        self.world.server.start()
        self.world.cairn("rm", "--yes", f"{RUN}@1")
        wait_until(lambda: self.is_gone(1))

    def test_a_policy_removes_from_a_store_without_a_free_block(self):
        """Carried out by hand: no commit, after which a policy is carried out, has room."""
        self.fill()
        policy = {"policy": {"keep": {"last": 1}}}
        plan = self.world.call("POST", f"/v1/runs/{RUN}/retention/preview", policy)[2]["plan_etag"]
        said = self.world.call("POST", f"/v1/runs/{RUN}/retention/apply", {**policy, "plan_etag": plan})
        self.assertEqual((said[0], said[2]["removed"]), (200, 2), said)
        wait_until(lambda: self.is_gone(1) and self.is_gone(2))
        self.assertEqual(self.world.committed(RUN), [3])


class FullCopies(unittest.TestCase):
    """The further store is a disk that is full for a moment."""
    SIZES = {"a.bin": 5 * MIB, "b.bin": 3 * MIB}

    def setUp(self):
        self.root = cases.folder(self)
        self.far = cases.made(self.root / "far")
        self.assertTrue(mounted.mount(self.far, "tmpfs", "-t", "tmpfs", "-o", "size=32m,mode=0777"))
        self.addCleanup(mounted.unmount, self.far)
        self.world = World(root=self.root, server_arguments=[
            "--stores", f"main,far={self.far}", "--sweep-interval", "200ms", "--trash-grace", "0ms"], case=self)
        self.model = cases.tree(self.root / "model", self.SIZES)

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
        cases.has(said, "no room left in store far; make room, and it goes on by itself", "No space left on device")
        self.assertEqual(self.world.copies(f"{RUN}@1"), {"main": "whole", "far": "making"})
        self.assertFalse([path for path in files_below(self.far) if path.name == "committed.json"])
        wait_until(lambda: not [path for path in files_below(self.far) if path.suffix == ".tmp"], 60)  # of a next try
        self.assertRegex((self.root / "server.log").read_text(), r"copy.delayed .* store=far .*no room left in store far")
        self.is_given_back(1)
        filler.unlink()
        self.world.cairn("wait", f"{RUN}@1", "--for", "promoted:far", "--timeout", f"{HANG_S}s")
        self.is_given_back(1, "--store", self.far)

    def test_the_same_command_goes_on_at_once_and_what_was_copied_is_not_copied_again(self):
        self.world.cairn("put", self.model, f"{RUN}@1")
        filler = mounted.fill(self.far, 6 * MIB)  # of the two shards one fits
        self.world.cairn("promote", f"{RUN}@1", "--to", "far", status=1)
        kept = {path: path.stat().st_ino for path in files_below(self.far) if path.name in self.SIZES}
        self.assertEqual(len(kept), 1)
        filler.unlink()
        self.world.cairn("promote", f"{RUN}@1", "--to", "far")
        self.assertEqual(self.world.copies(f"{RUN}@1"), {"main": "whole", "far": "whole"})
        self.assertEqual({path: path.stat().st_ino for path in kept}, kept)
        self.is_given_back(1, "--store", self.far)

    def test_a_copy_is_given_up_while_its_store_is_full(self):
        self.world.cairn("put", self.model, f"{RUN}@1")
        mounted.fill(self.far, LEFT_OVER_BYTES)
        self.world.cairn("promote", f"{RUN}@1", "--to", "far", status=1)
        self.world.cairn("demote", f"{RUN}@1", "--from", "far")
        self.assertEqual(self.world.copies(f"{RUN}@1"), {"main": "whole"})
        self.assertFalse([path for path in files_below(self.far / RUN) if "000000000001" in path.parts])
        self.is_given_back(1)

    def test_a_full_store_loses_a_copy_and_keeps_the_last_one(self):
        self.world.put(self.model, f"{RUN}@1", f"{RUN}@2", to="far")
        mounted.fill(self.far).rename(self.far / "more")  # to the last byte
        self.world.cairn("demote", f"{RUN}@1", "--from", "far")  # which makes room
        self.assertEqual(self.world.copies(f"{RUN}@1"), {"main": "whole"})
        mounted.fill(self.far)
        self.world.cairn("demote", f"{RUN}@2", "--from", "main")  # whose other copy is looked at there
        self.assertEqual(self.world.copies(f"{RUN}@2"), {"far": "whole"})
        self.world.cairn("demote", f"{RUN}@2", "--from", "far", status=6)
        for step in (1, 2):
            self.is_given_back(step)

    def damage(self, name, offset=-1):
        path, = [path for path in files_below(self.far) if path.name == name]
        return cases.flip(path, offset)  # in place: there is no room for another

    def test_a_repair_in_a_full_store_says_so_keeps_what_is_there_and_mends_it_when_there_is_room(self):
        self.world.put(self.model, f"{RUN}@1", to="far")
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
        mended = self.world.json("verify", f"{RUN}@1", "--repair")
        self.assertEqual((mended["ok"], mended["mended"]), (True, 2))
        self.is_given_back(1, "--store", self.far)


class Commands(unittest.TestCase):
    """What writes files says how much room it wants, and leaves none of them half written."""

    def setUp(self):
        self.root = cases.folder(self)
        self.disk = cases.made(self.root / "disk")
        self.assertTrue(mounted.mount(self.disk, "tmpfs", "-t", "tmpfs", "-o", "size=1m,mode=0777"))
        self.addCleanup(mounted.unmount, self.disk)

    def test_an_export_to_a_full_disk_says_what_it_needs_and_leaves_nothing(self):
        filler = mounted.fill(self.disk)
        words = [BIN / "cairn", "export", ZERO, self.disk / "out"]
        said = cases.run(words, status=1)
        self.assertRegex(said.stderr, r"No space left on device: [0-9.]+ KiB are needed and 0 B free")
        self.assertIn("name a folder on another disk", said.stderr)
        self.assertEqual(list((self.disk / "out").iterdir()), [])
        filler.unlink()
        cases.run(words, text=False)

    def test_a_get_to_a_full_disk_says_what_it_needs_and_goes_on_when_there_is_room(self):
        world = World(root=self.root, case=self)
        source = cases.tree(self.root / "source", {"a.bin": 300000})
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
        back = cases.made(root / "back")
        self.assertTrue(mounted.mount(back, "tmpfs", "-t", "tmpfs", "-o", "size=96m,nr_inodes=30,mode=0777"))
        self.addCleanup(mounted.unmount, back)
        world = World(root=root, case=self)
        world.cairn("put", cases.tree(root / "tree", {str(number): b"x" for number in range(60)}), "full/inodes@1")
        said = world.cairn("get", "full/inodes@1", "-d", back, status=None)
        self.assertNotEqual(said.returncode, 0)
        self.assertIn("no inode is left", said.stderr)


MOUNT_RUN = "mount/run"
RANKS, MOUNT_STEPS = 2, list(range(1, 9))


class Mount(unittest.TestCase):
    def setUp(self):
        self.world = World(uploader_arguments=["--heartbeat", "200ms"],
                           env={"CAIRN_STORE_FAULT": "put:*:*:delay@30; complete:*:*:delay@30"}, case=self)
        self.mount = self.world.root / "mount-1"

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
        self.job = Job(self.world, "mount", RANKS, MOUNT_STEPS, run=MOUNT_RUN, ahead=4000, case=self)

    def states(self):
        return self.world.states(MOUNT_RUN)

    def test_q55_a_node_that_never_had_its_mount_takes_no_job_and_nothing_is_committed(self):
        self.second_node(mounted=False)
        self.start_job()
        status, lines, err = self.job.end()[1]
        self.assertNotEqual(status, 0, lines)
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
        wait_until(lambda: "store.not_ready" in self.world.uploaders[1].log.read_text())
        go_round(self.world.uploaders[1].process.pid, times=5)  # it has looked again
        self.mount_comes()
        self.expect_all_committed()

    def expect_all_committed(self):
        for _, rank, _ in self.job.end():
            # That the node waits for its store is told, to who asks just then; nothing else is.
            told = {line["problem"] for line in rank if "problem" in line}
            self.assertLessEqual(told, {"unavailable"})
            self.assertEqual({line["step"] for line in rank if line.get("code") == "staged"}, set(MOUNT_STEPS))
        wait_until(lambda: self.states() == dict.fromkeys(MOUNT_STEPS, "committed"), 60)
        self.world.cairn("verify", f"{MOUNT_RUN}", "--store", self.world.store)


class Ready(unittest.TestCase):
    def setUp(self):
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="cairn-ready-"))
        self.store, self.below = self.root / "store", self.root / "below"
        self.store.mkdir()
        self.below.mkdir()
        self.world = None
        self.addCleanup(self.close)

    def close(self):
        try:
            if self.world:
                self.world.close()
        finally:
            mounted.unmount(self.store)
            mounted.unmount(self.below)

    def start(self):
        self.world = World(nodes=0, store=str(self.store), root=self.root,
                           server_arguments=["--check-interval", "100ms"])
        self.says("ok", 200)

    def says(self, wanted, status):
        """Waits until the store's line of readyz holds it; the whole answer of that moment."""
        def look():
            got, _, body = self.world.get("/readyz")
            said = json.loads(body)
            return got == status and wanted in said["checks"]["store"] and said
        return wait_until(look)

    def expect_trouble(self, errno_text, what_to_do):
        said = self.says(errno_text, 503)
        self.assertFalse(said["ready"])
        cases.has(said["checks"]["store"], str(self.store), what_to_do)
        self.assertEqual(said["checks"]["catalog"], "ok")
        log = (self.root / "server.log").read_text()
        self.assertRegex(log, f"WARN health.failed check=store cause=.*{errno_text}")

    def test_a_full_store_is_named_with_what_to_do_and_readyz_is_503_until_there_is_room(self):
        self.assertTrue(mounted.mount(self.store, "tmpfs", "-t", "tmpfs", "-o", "size=8m"))
        self.start()
        filler = mounted.fill(self.store)
        self.expect_trouble("No space left on device", "make room there")
        filler.unlink()
        self.says("ok", 200)

    def open_attempt(self):
        """Its record is written to the store before it is answered."""
        return self.world.call("POST", "/v1/runs/a/b/attempts", {
            "job": "j", "world_size": 1, "after": 0, "node": "n", "ranks": [{"rank": 0, "proc": "p"}]})[0]

    def test_a_call_that_fails_makes_readyz_503_at_once_however_long_the_checks_are_apart(self):
        self.assertTrue(mounted.mount(self.store, "tmpfs", "-t", "tmpfs", "-o", "size=8m"))
        self.world = World(nodes=0, store=str(self.store), root=self.root, server_arguments=["--check-interval", "1h"])
        self.says("ok", 200)
        filler = mounted.fill(self.store)
        self.assertEqual(self.world.get("/readyz")[0], 200)
        self.assertGreater(self.open_attempt(), 499)
        self.assertEqual(self.world.get("/readyz")[0], 503)
        self.says("No space left on device", 503)
        filler.unlink()
        self.says("ok", 200)

    def test_a_read_only_store_is_named_with_what_to_do_and_readyz_is_503_until_it_can_be_written(self):
        self.assertTrue(mounted.mount(self.store, "tmpfs", "-t", "tmpfs", "-o", "size=8m"))
        self.start()
        wait_until(lambda: mounted.mount(self.store, "none", "-o", "remount,ro"))
        self.expect_trouble("Read-only file system", "mount it read-write")
        self.assertTrue(mounted.mount(self.store, "none", "-o", "remount,rw"))
        self.says("ok", 200)

    def test_a_store_with_io_errors_is_named_with_what_to_do_and_readyz_is_503_while_they_last(self):
        """A disk without room below an ext4 that has: what it is told to sync is an I/O error."""
        self.assertTrue(mounted.mount(self.below, "tmpfs", "-t", "tmpfs", "-o", "size=32m"))
        image = self.below / "image"
        with open(image, "wb") as file:
            file.truncate(256 << 20)
        made = cases.run(["mkfs.ext4", "-q", "-O", "^has_journal", str(image)], status=None, text=False)
        if made.returncode or not mounted.mount(self.store, str(image), "-o", "loop,discard"):
            self.skipTest("needs ext4 and a loop device")
        self.start()
        filler = mounted.fill(self.below)
        self.expect_trouble("Input/output error", "see to its disk")
        filler.unlink()
        self.says("ok", 200)

    def test_cairn_nodes_shows_what_an_uploader_waits_for(self):
        self.start()
        uploader, empty = self.world.make_uploader(0), self.root / "not-mounted"
        empty.mkdir()
        uploader.command[uploader.command.index("--store") + 1] = str(empty)
        uploader.command += ["--heartbeat", "200ms"]
        self.world.uploaders.append(uploader)
        uploader.start()
        wait_until(lambda: re.search(f"node-0 .*{empty}.*store.json", self.world.cairn("nodes").stdout))


if __name__ == "__main__":
    mounted.main()
