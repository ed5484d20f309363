# SPDX-License-Identifier: Apache-2.0
# ctest: engines=again on=disk
"""put and get of directory trees and of models written by other people's software."""
import ctypes
import fcntl
import hashlib
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import unittest
import urllib.request

import cases
from world import HANG_S, InWorld, wait_until, World


def tree_of(folder):
    """{relative name: SHA-256} of every file below folder, links followed."""
    return {str(p.relative_to(folder)): hashlib.sha256(p.read_bytes()).hexdigest()
            for p in sorted(folder.rglob("*")) if p.is_file()}


class Tree(InWorld):
    def folder(self, name):
        path = self.world.root / name
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir(parents=True)
        return path

    def make_tree(self, name="tree"):
        tree = self.folder(name)
        (tree / "empty").write_bytes(b"")
        (tree / "with spaces and + = %").write_bytes(b"spaces" * 100)
        (tree / "déjà/vu ünïcode 名前").parent.mkdir()
        (tree / "déjà/vu ünïcode 名前").write_bytes(os.urandom(3_000_001))
        (tree / "one-block").write_bytes(os.urandom(1 << 20))
        (tree / "odd").write_bytes(os.urandom((5 << 20) + 17))
        (tree / "deep/a/b/c/d").mkdir(parents=True)
        (tree / "deep/a/b/c/d/leaf.bin").write_bytes(b"\x00" * 70_000)
        (tree / "link-to-file").symlink_to("odd")
        return tree

    def test_a_tree_that_was_put_is_the_same_after_get(self):
        tree = self.make_tree()
        said = self.world.cairn("put", tree, "t/tree@1", "--json")
        version = json.loads(said.stdout)
        self.assertEqual(version["files"], 6)
        back = self.folder("back")
        self.world.cairn("get", "t/tree@1", "-d", back)
        self.assertEqual(tree_of(tree), tree_of(back))
        self.world.cairn("verify", "t/tree@latest")

    @staticmethod
    def shape_of(folder):
        """{name: what it is} of everything below folder: modes, links, folders."""
        shape = {}
        for path in sorted(folder.rglob("*")):
            name = str(path.relative_to(folder))
            mode = oct(path.lstat().st_mode & 0o777)
            shape[name] = ("link", os.readlink(path)) if path.is_symlink() else \
                ("folder" if path.is_dir() else "file", mode)
        return shape

    def make_shaped(self, name):
        tree = self.folder(name)
        (tree / "bin").mkdir()
        (tree / "bin/run").write_bytes(b"#!/bin/sh\n")
        (tree / "bin/run").chmod(0o755)
        (tree / "private").mkdir()
        (tree / "private/key").write_bytes(b"secret")
        (tree / "private/key").chmod(0o600)
        (tree / "private/read-only").write_bytes(b"fixed")
        (tree / "private/read-only").chmod(0o444)
        (tree / "private").chmod(0o700)
        for i in range(3):
            (tree / f"weights-{i}").write_bytes(os.urandom(1000))
        (tree / "none/of/it").mkdir(parents=True)
        (tree / "latest").symlink_to("weights-2")
        (tree / "bin/up").symlink_to("../weights-0")
        (tree / "tools").symlink_to("bin")
        (tree / "later").symlink_to("not-there-yet")
        return tree

    def test_modes_links_and_empty_folders_are_the_same_after_get(self):
        tree = self.make_shaped("shaped")
        self.world.cairn("put", tree, "t/shaped@1")
        for number, flags in enumerate(((), ("--store", self.world.store))):
            back = self.world.root / f"shaped-back-{number}"
            self.world.cairn("get", "t/shaped@1", "-d", back, *flags)
            self.assertEqual(self.shape_of(back), self.shape_of(tree))
            self.assertEqual(tree_of(back), tree_of(tree))
        before = os.umask(0o077)
        try:
            self.world.cairn("get", "t/shaped@1", "-d", self.world.root / "shaped-private")
        finally:
            os.umask(before)
        modes = {kind[1] for kind in self.shape_of(self.world.root / "shaped-private").values() if kind[0] == "file"}
        self.assertEqual(modes, {"0o700", "0o600", "0o400"})
        self.world.cairn("put", tree, "t/plain@1", "--files-only")
        self.world.cairn("get", "t/plain@1", "-d", self.world.root / "plain-back")
        self.assertFalse((self.world.root / "plain-back/latest").exists())

    def test_links_out_of_the_tree_are_refused_unless_they_are_followed(self):
        tree, outside = self.folder("linked"), self.folder("outside")
        (tree / "file").write_bytes(b"x")
        (outside / "data").write_bytes(b"outside")
        (tree / "to-file").symlink_to(outside / "data")
        (tree / "to-folder").symlink_to("../outside")
        (tree / "inside-and-out").symlink_to("file/../../outside/data")
        said = self.world.cairn("put", tree, "t/linked@1", status=2)
        for name in ("to-file", "to-folder", "inside-and-out", "--follow"):
            self.assertIn(name, said.stderr)
        self.assertIsNone(self.world.version("t/linked"))
        (tree / "inside-and-out").unlink()
        self.world.cairn("put", tree, "t/linked@1", "--follow")
        back = self.world.root / "linked-back"
        self.world.cairn("get", "t/linked@1", "-d", back)
        self.assertEqual((back / "to-folder/data").read_bytes(), b"outside")
        self.assertFalse((back / "to-file").is_symlink())

    def test_more_files_than_a_checkpoint_has_are_refused_before_an_attempt_is_opened(self):
        tree = self.folder("many")
        for number in range(65537):
            (tree / str(number)).touch()
        said = self.world.cairn("put", tree, "t/too-many@1", status=2).stderr
        for word in ("65537 files", "at most 65536", "tar -cf", "nothing was begun"):
            self.assertIn(word, said)
        shutil.rmtree(tree)
        self.world.cairn("ls", "t/too-many", status=3)

    def test_a_tree_whose_links_and_modes_are_many_comes_back_from_server_and_store(self):
        tree = self.folder("cache")  # as the hub's cache has it
        (tree / "blobs").mkdir()
        for number in range(600):
            blob = cases.file(tree / "blobs" / hashlib.sha256(str(number).encode()).hexdigest(), str(number).encode())
            blob.chmod(0o600 if number % 3 else 0o640)
            folder = tree / f"snapshots/{hashlib.sha1(b'x').hexdigest()}/part-{number % 7}"
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"model-{number:05}-of-00600.safetensors.index").symlink_to(f"../../../blobs/{blob.name}")
        (tree / "none").mkdir()
        self.world.cairn("put", tree, "t/cache@1")
        meta = self.world.version("t/cache")["meta"]
        self.assertEqual(meta["cairn_tree"], {"shard": ".cairn-tree.json"})
        for number, flags in enumerate(((), ("--store", self.world.store))):
            back = self.world.root / f"cache-back-{number}"
            self.world.cairn("get", "t/cache@1", "-d", back, *flags)
            self.assertEqual(self.shape_of(back), self.shape_of(tree))
            self.assertEqual(tree_of(back), tree_of(tree))
            self.world.cairn("verify", "t/cache@1", *flags)
            self.assertIn(".cairn-tree.json", self.world.cairn("show", "t/cache@1", *flags).stdout)
        files = self.world.read("/v1/runs/t/cache/checkpoints/1/hf")["files"]
        self.assertEqual(len(files), 600, "what describes the tree is no file of it")
        kept = pathlib.Path(self.world.store).rglob(".cairn-tree.json")
        for path in kept:
            path.chmod(0o600)
            path.write_bytes(path.read_bytes().replace(b"blobs", b"blubs"))
        self.world.cairn("get", "t/cache@1", "-d", self.world.root / "cache-bad", status=7)
        (tree / ".cairn-tree.json").touch()
        self.assertIn("has this name", self.world.cairn("put", tree, "t/cache@2", status=2).stderr)

    def test_files_by_the_thousand_are_put_verified_and_got(self):
        tree = self.folder("thousands")
        for number in range(3000):
            folder = tree / f"{number % 50}"
            folder.mkdir(exist_ok=True)
            (folder / str(number)).write_bytes(number.to_bytes(4, "little") * (number % 2000))
            (folder / str(number)).chmod((0o644, 0o755, 0o640)[number % 3])
        self.world.cairn("put", tree, "t/thousands@1")
        self.world.cairn("verify", "t/thousands@1")
        back = self.world.root / "thousands-back"
        self.world.cairn("get", "t/thousands@1", "-d", back)
        self.assertEqual(tree_of(tree), tree_of(back))
        self.assertEqual(self.shape_of(back), self.shape_of(tree))
        self.assertEqual(self.world.temporaries(), [])

    def test_right_bytes_with_another_mode_get_the_mode_that_was_put(self):
        tree = self.make_shaped("mended")
        self.world.cairn("put", tree, "t/mended@1")
        back = self.world.root / "mended-back"
        self.world.cairn("get", "t/mended@1", "-d", back)
        (back / "bin/run").chmod(0o600)
        (back / "weights-1").chmod(0o777)
        self.world.cairn("get", "t/mended@1", "-d", back)
        self.assertEqual(self.shape_of(back), self.shape_of(tree))

    def test_holes_take_no_room_in_the_store_and_come_back_as_holes(self):
        tree = self.folder("holes")
        with open(tree / "sparse", "wb") as file:
            file.truncate(256 << 20)
            file.seek(100 << 20)
            file.write(os.urandom(3 << 20))
        self.world.cairn("put", tree, "t/holes@1")
        back = self.world.root / "holes-back"
        self.world.cairn("get", "t/holes@1", "-d", back)
        stored, = pathlib.Path(self.world.store).glob("t/holes/*/*/data/sparse")
        for path in (stored, back / "sparse"):
            self.assertEqual(path.stat().st_size, 256 << 20)
            self.assertLess(path.stat().st_blocks * 512, 32 << 20, path)
        self.assertEqual(tree_of(back), tree_of(tree))

    def test_what_is_not_kept_of_a_tree_is_told_in_a_line(self):
        tree = self.folder("unkept")
        for name in ("a", "b", "c"):
            (tree / name).write_bytes(b"x")
        self.assertNotIn("not kept", self.world.cairn("put", tree, "t/unkept@1").stderr)
        os.setxattr(tree / "a", "user.color", b"red")
        os.link(tree / "b", tree / "b2")
        (tree / "c").chmod(0o4755)
        said = self.world.cairn("put", tree, "t/unkept@2").stderr
        line, = (line for line in said.splitlines() if "not kept" in line)
        for word in ("extended attributes (1)", "hard links (2;", "setuid, setgid, sticky (1)"):
            self.assertIn(word, line)

    def test_what_is_excluded_is_left_out(self):
        tree = self.folder("excluded")
        for name in ("model.bin", "logs/1.log", "logs/keep.log", "a/tmp/x", "a/b/tmp/y", "b/c/d.log", "top/e", "a/top/e"):
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            (tree / name).write_bytes(b"x")
        os.mkfifo(tree / "a/tmp/pipe")  # could not be kept, and need not be
        (tree / ".cairnignore").write_text("# not these\n*.log\n!keep.log\ntmp/\n/top\n")
        said = self.world.cairn("put", tree, "t/excluded@1", "--exclude", "b/**")
        self.assertIn("excluded", said.stderr)
        back = self.world.root / "excluded-back"
        self.world.cairn("get", "t/excluded@1", "-d", back)
        self.assertEqual(sorted(tree_of(back)), [".cairnignore", "a/top/e", "logs/keep.log", "model.bin"])
        part = self.world.root / "excluded-part"
        self.world.cairn("get", "t/excluded@1", "-d", part, "--shard", "logs/*", "--shard", "model.bin")
        self.assertEqual(sorted(tree_of(part)), ["logs/keep.log", "model.bin"])
        self.assertIn("no shard", self.world.cairn("get", "t/excluded@1", "-d", part, "--shard", "*.none", status=3).stderr)

    def test_a_pattern_that_is_none_is_refused_by_name_before_anything_is_begun(self):
        tree = self.folder("brackets")
        for name in ("a[1", "b", "c-7", "logs/x"):
            (tree / name).parent.mkdir(exist_ok=True)
            (tree / name).write_bytes(name.encode())
        for pattern in ("[", "logs/[a-", "[]", "[[:digit:]"):
            said = self.world.cairn("put", tree, "t/brackets@1", "--exclude", pattern, status=2).stderr
            self.assertIn(f"the pattern {pattern} has a [ that no ] ends", said)
        ignored = cases.file(tree / ".cairnignore", "*.log\n!logs/[z\n")
        said = self.world.cairn("put", tree, "t/brackets@1", status=2).stderr
        self.assertIn(".cairnignore: the pattern logs/[z", said)
        ignored.unlink()
        ignored.symlink_to("b")  # what it would leave out is not known
        self.assertIn(".cairnignore cannot be read", self.world.cairn("put", tree, "t/brackets@1", status=2).stderr)
        ignored.unlink()
        self.world.cairn("ls", "t/brackets", status=3)
        self.world.cairn("put", tree, "t/brackets@1", "--exclude", "c-[[:digit:]]", "--exclude", "[]b]")
        back = self.world.root / "brackets-back"
        self.world.cairn("get", "t/brackets@1", "-d", back, "--shard", "a[1", "--shard", "logs/[!a]")
        self.assertEqual(sorted(tree_of(back)), ["a[1", "logs/x"])
        kept = self.world.read("/v1/runs/t/brackets/checkpoints/1/shards")["items"]
        self.assertEqual([shard["name"] for shard in kept], ["a[1", "logs/x"])
        self.assertIn("the pattern x[ has", self.world.cairn("get", "t/brackets@1", "-d", back, "--shard", "x[", status=2).stderr)

    def test_a_file_that_is_written_to_with_its_time_put_back_is_told(self):
        tree = self.folder("sly")
        with open(tree / "file", "wb") as file:
            file.truncate(2 << 30)
        was = (tree / "file").stat()
        world = World(env={"CAIRN_STORE_FAULT": "part:*/data/file:*:unavailable"})  # so it is read again and again
        self.addCleanup(world.close)
        putting = world.begin("put", tree, "t/sly@1")
        wait_until(lambda: world.version("t/sly", "1"))
        with open(tree / "file", "r+b") as file:
            file.write(b"changed")
        os.utime(tree / "file", ns=(was.st_atime_ns, was.st_mtime_ns))
        self.assertIn("was written to while it was sent", putting.communicate(timeout=HANG_S)[1])
        self.assertNotEqual(putting.returncode, 0)

    def test_progress_of_a_put_grows_while_files_are_sent(self):
        tree = self.folder("seen")
        for number in range(40):
            (tree / str(number)).write_bytes(os.urandom(300_000))
        world = World(env={"CAIRN_STORE_FAULT": "put:*/data/39:*:unavailable"}, case=self)
        putting = world.begin("put", tree, "t/seen@1", "--progress", "json")
        for line in putting.stderr:  # all but one are acknowledged in the end, and that is seen
            if line.startswith("{") and 0 < json.loads(line)["done_bytes"] < 12_000_000:
                break
        else:
            self.fail("it stood at nothing")
        putting.send_signal(signal.SIGINT)
        putting.communicate(timeout=HANG_S)

    def test_a_put_whose_output_is_full_says_that_it_is_committed(self):
        tree = self.folder("full")
        (tree / "file").write_bytes(b"x")
        for step, words in enumerate(((), ("--json",), ("-o", "name")), 1):
            ref = f"t/full@{step}"
            with open("/dev/full", "wb") as full:
                done = self.world.cairn("put", tree, ref, *words, stdout=full, status=1)
            self.assertIn(f"{ref} is committed as", done.stderr)
            self.assertIn("No space left on device", done.stderr)

    def test_links_that_lead_upwards_are_named_and_not_followed_without_end(self):
        tree = self.folder("upwards")
        (tree / "a/b").mkdir(parents=True)
        for number in range(2):
            (tree / f"a/file-{number}").write_bytes(b"x")
            (tree / f"a/b/up-{number}").symlink_to(tree)  # absolute, so it points out of the tree
        (tree / "round").symlink_to(tree / "round")
        said = self.world.cairn("put", tree, "t/upwards@1", "--follow", status=2).stderr
        for number in range(2):
            self.assertIn(f"a/b/up-{number}: a link to a folder that it is in", said)
        self.assertIn("round: a link that leads back to itself", said)
        self.assertIn("3 names cannot be kept", said)

    def test_get_follows_no_link_below_its_folder(self):
        source, elsewhere = self.folder("sub-source"), self.folder("elsewhere")
        (source / "sub").mkdir()
        (source / "sub/f").write_bytes(b"x")
        self.world.cairn("put", source, "t/sub@1")
        back = self.folder("sub-back")
        (back / "sub").symlink_to(elsewhere)
        said = self.world.cairn("get", "t/sub@1", "-d", back, status=6)
        self.assertIn("not followed", said.stderr)
        self.assertEqual(list(elsewhere.iterdir()), [])

    def test_no_escape_that_somebody_wrote_reaches_a_terminal(self):
        def post(path, **body):
            request = urllib.request.Request(
                self.world.url + "/v1/runs/t/esc" + path, json.dumps(body).encode(),
                {"Content-Type": "application/json"})
            with urllib.request.urlopen(request, timeout=HANG_S) as reply:
                return json.loads(reply.read())
        grant = post("/attempts", job="j", world_size=1, after=0, node="n", wait_staged_ms=0,
                     ranks=[{"rank": 0, "proc": "ab" * 16}])["grant"]
        version = post("/checkpoints", grant=grant, node="n", step=1, n=1, rank=0, world_size=1,
                       on_exists="error", skip=False, format="", labels={}, meta={})["version"]
        post(f"/checkpoints/{version}/abort", reason="\x1b[31mred\u009b1m end", grant=grant)
        for said in (self.world.cairn("show", f"t/esc@{version}").stdout,
                     self.world.cairn("wait", f"t/esc@{version}", status=None).stderr,
                     self.world.cairn("get", "t/\x1b[31mred", status=2).stderr):
            self.assertIn("red", said)
            self.assertNotRegex(said, "[\x00-\x09\x0b-\x1f\x7f\u0080-\u009f]")

    def test_content_without_known_tensors_is_called_opaque(self):
        source = cases.file(self.folder("opaque") / "model.pt", b"PK\x03\x04" + bytes(100))
        said = self.world.cairn("put", source, "t/opaque@1")
        self.assertIn("opaque", said.stdout)
        self.assertIn("opaque", self.world.cairn("ls", "t/opaque").stdout)
        said = self.world.cairn("show", "t/opaque@1")
        self.assertIn("opaque", said.stdout)

    def test_of_mixed_content_it_is_said_which_shards_are_opaque(self):
        source = self.folder("mixed")
        cases.safetensors(source / "model.safetensors", {"w": ("F32", [4], bytes(16))})
        (source / "optimizer.pt").write_bytes(b"PK\x03\x04" + bytes(100))
        (source / "rng").mkdir()
        (source / "rng" / "0.bin").write_bytes(b"state")
        said = self.world.cairn("put", source, "t/mixed@1")
        self.assertIn("1 tensor; 2 files of opaque content", said.stdout)
        (source / "optimizer.pt").unlink()
        shutil.rmtree(source / "rng")
        self.world.cairn("put", source, "t/mixed@2")
        for more in ((), ("--store", self.world.store)):
            shown = self.world.cairn("show", "t/mixed@1", *more).stdout
            self.assertRegex(shown, "(?m)^model.safetensors .* tensors *$")
            self.assertRegex(shown, "(?m)^optimizer.pt .* opaque *$")
            self.assertRegex(shown, "(?m)^rng/0.bin .* opaque *$")
            self.assertIn("opaque content: 2 shards of 3", shown)
            self.assertNotIn("opaque", self.world.cairn("show", "t/mixed@2", *more).stdout)
            rows = self.world.cairn("ls", "t/mixed", *more).stdout.splitlines()[1:-1]
            self.assertEqual(["opaque-in-part" in row for row in rows], [False, True], rows)
        path = f"/v1/runs/t/mixed/checkpoints/{self.world.version('t/mixed', '1')['version']}/shards"
        def shards(query=""):
            status, _, body = self.world.get(path + query)
            return status, [(i["name"], i["content"]) for i in json.loads(body).get("items", [])]
        opaque = [("optimizer.pt", "opaque"), ("rng/0.bin", "opaque")]
        tensors = [("model.safetensors", "tensors")]
        self.assertEqual(shards(), (200, tensors + opaque))
        self.assertEqual(shards("?content=opaque"), (200, opaque))
        self.assertEqual(shards("?content=tensors"), (200, tensors))
        self.assertEqual(shards("?content=other")[0], 400)
        # Without its layout nothing is made up, and nothing is hidden.
        for layout in [p for p in self.world.stored("*") if "mixed" in p.parts and "layouts" in p.parts]:
            layout.unlink()
        self.world.server.kill()
        self.world.start_server()
        self.assertEqual(shards(), (200, [(name, None) for name, _ in tensors + opaque]))
        self.assertEqual(shards("?content=opaque")[0], 502)

    def test_doctor_makes_no_folder(self):
        nowhere = self.world.root / "nowhere"
        said = self.world.cairn("doctor", nowhere, status=1)
        self.assertIn("no folder", said.stdout)
        self.assertFalse(nowhere.exists())

    def test_one_file_is_put_and_its_shard_is_got_into_a_folder_and_to_standard_output(self):
        source = cases.file(self.folder("one") / "weights.bin", os.urandom(1234567))
        self.world.cairn("put", source, "t/one@1")
        back = self.folder("one-back")
        self.world.cairn("get", "t/one@1", "--shard", "weights.bin", "-d", back)
        self.assertEqual((back / "weights.bin").read_bytes(), source.read_bytes())
        out = self.world.cairn("get", "t/one", "--shard", "weights.bin", "-d", "-", text=False).stdout
        self.assertEqual(out, source.read_bytes())

    def test_names_that_cannot_be_kept_are_all_listed_before_the_first_byte(self):
        tree = self.folder("bad")
        (tree / "good").write_bytes(b"x")
        (tree / "back\\slash").write_bytes(b"x")
        (tree / ("long" * 60)).write_bytes(b"x")
        (tree / "control\x01byte").write_bytes(b"x")
        (tree / "out-link").symlink_to("/etc/passwd")
        (tree / "up-link").symlink_to("../over/f")
        (tree / "folder-link").symlink_to("/tmp")
        with open(os.fsencode(tree) + b"/not-utf8-\xff", "wb") as file:
            file.write(b"x")
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(tree / "socket"))
        said = self.world.cairn("put", tree, "t/bad@1", status=2)
        listener.close()
        for name in ("back", "long", "control", "out-link", "up-link", "folder-link", "not-utf8", "socket"):
            self.assertIn(name, said.stderr)
        self.assertIn("8 names", said.stderr)
        self.assertNotIn("cannot keep good", said.stderr)
        self.assertIsNone(self.world.version("t/bad"))

    def test_get_refuses_to_write_over_a_file(self):
        source = cases.file(self.folder("over") / "f", b"new")
        self.world.cairn("put", source, "t/over@1")
        back = self.folder("over-back")
        (back / "f").write_bytes(b"old")
        said = self.world.cairn("get", "t/over@1", "-d", back, status=6)
        self.assertIn("already there", said.stderr)
        self.assertEqual((back / "f").read_bytes(), b"old")

    def part_folder(self, ref, back, content):
        """What a get that was killed, or that still runs, has in the folder that it fills."""
        part = cases.made(back / f".cairn-get-{self.world.version(ref)['version']}")
        (part / "0").write_bytes(content)
        return part

    def test_a_second_get_into_a_folder_is_refused_and_leaves_what_the_first_one_has_read(self):
        source = cases.file(self.folder("second") / "f", os.urandom(3_000_000))
        self.world.cairn("put", source, "t/second@1")
        back = self.folder("second-back")
        part = self.part_folder("t/second", back, source.read_bytes()[:2_000_000])
        held = os.open(part, os.O_RDONLY)
        fcntl.flock(held, fcntl.LOCK_EX)
        said = self.world.cairn("get", "t/second@1", "-d", back, status=6)
        self.assertIn("another cairn get writes to this folder", said.stderr)
        self.assertEqual((part / "0").read_bytes(), source.read_bytes()[:2_000_000])
        os.close(held)
        self.world.cairn("get", "t/second@1", "-d", back)
        self.assertEqual(tree_of(back), tree_of(source.parent))

    def test_a_file_in_the_way_does_not_cost_what_an_earlier_get_has_read(self):
        source = cases.file(self.folder("way") / "f", os.urandom(3_000_000))
        self.world.cairn("put", source, "t/way@1")
        back = self.folder("way-back")
        part = self.part_folder("t/way", back, source.read_bytes()[:2_000_000])
        (back / "f").write_bytes(b"mine")
        self.world.cairn("get", "t/way@1", "-d", back, status=6)
        self.assertEqual((part / "0").read_bytes(), source.read_bytes()[:2_000_000])
        self.assertEqual((back / "f").read_bytes(), b"mine")

    def test_of_gets_into_one_folder_at_once_none_disturbs_the_one_that_fills_it(self):
        source = self.folder("at-once")
        for number in range(40):
            (source / str(number)).write_bytes(os.urandom(30_000))
        self.world.cairn("put", source, "t/at-once@1")
        for _ in range(6):
            back = self.folder("at-once-back")
            gets = [self.world.begin("get", "t/at-once@1", "-d", back) for _ in range(3)]
            said = [self.world.ended(get, None)[1] for get in gets]
            ends = [get.returncode for get in gets]
            self.assertIn(0, ends, said)
            self.assertLessEqual(set(ends), {0, 6}, said)
            self.assertEqual(tree_of(back), tree_of(source), said)

    def test_a_step_that_is_there_is_refused_and_a_new_version_is_kept_on_demand(self):
        source = cases.file(self.folder("twice") / "f", b"first")
        self.world.cairn("put", source, "t/twice@7")
        said = self.world.cairn("put", source, "t/twice@7", status=6)
        self.assertIn("step", said.stderr)
        source.write_bytes(b"second")
        self.world.cairn("put", source, "t/twice@7", "--new-version")
        back = self.folder("twice-back")
        self.world.cairn("get", "t/twice@7", "-d", back)
        self.assertEqual((back / "f").read_bytes(), b"second")

    def test_the_store_alone_is_enough_when_the_server_is_down(self):
        tree = self.make_tree("tree2")
        self.world.cairn("put", tree, "t/alone@3")
        nowhere = {"CAIRN_URL": "http://127.0.0.1:9"}
        back = self.folder("alone-back")
        self.world.cairn("get", "t/alone@latest", "--store", self.world.store, "-d", back, env=nowhere)
        self.assertEqual(tree_of(tree), tree_of(back))
        self.world.cairn("verify", "t/alone@3", "--store", self.world.store, env=nowhere)
        self.world.cairn("verify", "t/alone@4", "--store", self.world.store, env=nowhere, status=3)
        said = self.world.cairn("get", "t/alone", env=nowhere, status=5)
        self.assertIn("127.0.0.1:9", said.stderr)

    def test_put_brings_its_own_uploader_where_none_listens(self):
        source = cases.file(self.folder("own") / "f", os.urandom(2_000_000))
        none = {"CAIRN_SOCKET": str(self.world.root / "nobody.sock")}
        said = self.world.cairn("put", source, "t/own@1", env=none, status=5)
        self.assertIn("--store", said.stderr)
        self.world.cairn("put", source, "t/own@1", "--store", self.world.store, env=none)
        self.world.cairn("verify", "t/own@1")

    def test_plain_python_restores_from_the_folder_by_the_format_page_alone(self):
        tree = self.make_tree("tree3")
        self.world.cairn("put", tree, "t/python@1")
        reader = pathlib.Path(__file__).parents[1] / "python/read_without_cairn.py"
        back = self.folder("python-back")
        subprocess.run([sys.executable, reader, self.world.store, "t/python@1", back], check=True, capture_output=True)
        (tree / "link-to-file").unlink()  # no shard: it stands in meta
        self.assertEqual(tree_of(tree), tree_of(back / "shards"))


    @staticmethod
    def write_exotic(safetensors, tensors, path):
        """Types that numpy lacks, by the official library's own serialiser, old and new."""
        kept = {name: ctypes.create_string_buffer(os.urandom(size), size) for name, (_, _, size) in tensors.items()}
        if hasattr(safetensors, "TensorSpec"):
            specs = {name: safetensors.TensorSpec(dtype=dtype, shape=shape, data_len=size,
                                                  data_ptr=ctypes.addressof(kept[name]))
                     for name, (dtype, shape, size) in tensors.items()}
        else:
            specs = {name: {"dtype": dtype, "shape": shape, "data": kept[name].raw}
                     for name, (dtype, shape, _) in tensors.items()}
        safetensors.serialize_file(specs, str(path))

    def test_a_model_of_the_official_safetensors_library_comes_back_and_its_tensors_are_listed(self):
        try:
            import numpy
            import safetensors
            from safetensors import safe_open
            from safetensors.numpy import save_file
        except ImportError as error:
            self.skipTest(f"{error.name} is not installed here")
        model = self.folder("model")
        random = numpy.random.default_rng(7)
        first = {"model.embed.weight": random.standard_normal((1000, 64)).astype("float32"),
                 "model.layers.0.w": random.integers(0, 65536, (129, 33)).astype("uint16"),
                 "ids": numpy.arange(77, dtype="int64"),
                 "nothing": numpy.zeros((0, 5), dtype="float32"),
                 "scalar": numpy.array(3.5, dtype="float32")}
        second = {"model.layers.1.w": random.standard_normal((64, 64)).astype("float16"),
                  "ids.more": numpy.arange(5, dtype="int64")}
        save_file(first, model / "model-00001-of-00002.safetensors", metadata={"format": "pt"})
        save_file(second, model / "model-00002-of-00002.safetensors")
        exotic = {"bf16": ("bfloat16", [4, 3], 24), "fp8": ("float8_e4m3fn", [11], 11)}
        self.write_exotic(safetensors, exotic, model / "other.safetensors")
        index = {"weight_map": {**{n: "model-00001-of-00002.safetensors" for n in first},
                                **{n: "model-00002-of-00002.safetensors" for n in second}}}
        (model / "model.safetensors.index.json").write_text(json.dumps(index))
        self.world.cairn("put", model, "m/model@10", "--format", "hf")
        status, _, body = self.world.get("/v1/runs/m/model/checkpoints/10/tensors?limit=1000")
        self.assertEqual(status, 200, body)
        listed = {t["name"]: t for t in json.loads(body)["items"]}
        for name, array in {**first, **second}.items():
            self.assertEqual(listed[name]["shape"], list(array.shape), name)
            self.assertEqual(listed[name]["bytes"], array.nbytes, name)
        self.assertEqual(set(listed), {*first, *second})  # the index names the model's files
        self.world.cairn("put", model / "other.safetensors", "m/exotic@10")
        _, _, body = self.world.get("/v1/runs/m/exotic/checkpoints/10/tensors?limit=1000")
        listed = {t["name"]: t for t in json.loads(body)["items"]}
        self.assertEqual((listed["bf16"]["dtype"], listed["bf16"]["shape"]), ("BF16", [4, 3]))
        self.assertEqual((listed["fp8"]["dtype"], listed["fp8"]["bytes"]), ("F8_E4M3", 11))
        back = self.folder("model-back")
        self.world.cairn("get", "m/model@10", "-d", back)
        self.assertEqual(tree_of(model), tree_of(back))
        with safe_open(str(back / "model-00001-of-00002.safetensors"), framework="np") as opened:
            for name, array in first.items():
                self.assertTrue(numpy.array_equal(opened.get_tensor(name), array), name)


if __name__ == "__main__":
    unittest.main(verbosity=2)
