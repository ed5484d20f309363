# SPDX-License-Identifier: Apache-2.0
# ctest: engines=again
"""Versions in more than one store: copied by the command, restored from either store alone by docs/format.md
and by `cairn get --store`, removed and deleted."""
import os
import pathlib
import re
import signal
import subprocess
import sys
import time
import unittest

import cases
from s3world import BUCKET, S3Fault, S3World, signed
from signs import Held
from test_peers import metric
from test_verify import safetensors
from world import BIN, files_below, HANG_S, wait_until, World

READER = pathlib.Path(__file__).resolve().parents[1] / "python" / "read_without_cairn.py"
SIZE = 300_000


def tree(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in files_below(folder)}


def read_fallbacks(world):
    """How often the server has asked a further store, since a nearer one had not given what was asked for."""
    metrics = world.get("/metrics")[2].decode()
    return next(float(line.split()[1]) for line in metrics.splitlines()
                if line.startswith("cairn_read_fallbacks_total"))


class Tiers:
    """What holds whatever the further store is; `url` names it."""

    def model(self, number=1):
        folder = self.world.root / f"model-{number}"
        folder.mkdir(exist_ok=True)
        safetensors(folder / "model.safetensors", 3)
        (folder / "bytes.bin").write_bytes(bytes((number + at * at) % 251 for at in range(40000)) * 80)
        return folder

    def copies(self, ref):
        run, _, step = ref.partition("@")
        return {copy["store"]: copy["state"] for copy in self.world.version(run, step)["copies"]}

    def test_each_store_alone_gives_back_what_was_saved(self):
        model = self.model()
        self.world.cairn("put", model, "t/alone@1")
        self.assertEqual(self.copies("t/alone@1"), {"main": "whole"})
        said = self.world.cairn("promote", "t/alone@1", "--to", "slow").stdout
        self.assertIn("is whole in slow", said)
        self.assertIn("lies in      main, slow", self.world.cairn("show", "t/alone@1").stdout)
        for number, store in enumerate((self.world.store, self.url)):
            back = self.world.root / f"alone-{number}"
            self.world.cairn("get", "t/alone@1", "-d", back, "--store", store, env={"CAIRN_URL": "http://127.0.0.1:9"})
            self.assertEqual(tree(back), tree(model))
            self.world.cairn("verify", "t/alone@1", "--store", store)
        self.world.cairn("promote", "t/alone@1", "--to", "slow")  # once more does nothing
        self.world.cairn("promote", "t/alone@1", "--to", "nowhere", status=2)

    def test_a_copy_is_removed_and_the_last_one_is_not(self):
        self.world.cairn("put", self.model(2), "t/gone@1")
        self.world.cairn("put", self.model(2), "t/gone@2")
        refused = self.world.cairn("demote", "t/gone@1", "--from", "main", status=6)
        self.assertIn("its last one", refused.stderr)
        self.world.cairn("promote", "t/gone@1", "--to", "slow")
        self.world.cairn("demote", "t/gone@1", "--from", "slow")
        self.assertEqual(self.copies("t/gone@1"), {"main": "whole"})
        self.assertFalse(self.slow_keys("t/gone/000000000001/"))

    def test_the_deletion_of_a_version_takes_its_copies_along(self):
        self.world.cairn("put", self.model(3), "t/deleted@1")
        self.world.cairn("put", self.model(3), "t/deleted@2")
        self.world.cairn("promote", "t/deleted@1", "--to", "slow")
        self.assertTrue(self.slow_keys("t/deleted/000000000001/"))
        self.world.cairn("rm", "t/deleted@1", "--yes")
        wait_until(lambda: not self.slow_keys("t/deleted/000000000001/"))
        wait_until(lambda: not self.world.stored("t/deleted/000000000001/*/data/*"))
        events = self.world.cairn("events", "t/deleted", "--since", "0").stdout
        self.assertIn("copy.made", events)

    def data(self, ref, shard):
        run, _, step = ref.partition("@")
        status, _, body = self.world.get(f"/v1/runs/{run}/checkpoints/{step}/shards/{shard}/data")
        return status, body

    def damage(self, pattern, *offsets):
        """One byte at each offset of a file of the main store."""
        path, = self.world.stored(pattern)
        return cases.flip(path, *offsets)

    def test_a_read_falls_back_to_the_copy_where_the_nearer_one_is_damaged_or_gone(self):
        model = self.model(7)
        wanted = (model / "bytes.bin").read_bytes()
        for step in (1, 2, 3):
            self.world.cairn("put", model, f"t/back@{step}")
        self.damage("t/back/000000000001/*/data/bytes.bin", (2 << 20) + 5)
        self.world.cairn("get", "t/back@1", "-d", self.world.root / "alone", status=7)  # there is no other
        self.damage("t/back/000000000001/*/data/bytes.bin", (2 << 20) + 5)  # and mended
        for step in (1, 2, 3):
            self.world.cairn("promote", f"t/back@{step}", "--to", "slow")
        self.damage("t/back/000000000001/*/data/bytes.bin", 3, (2 << 20) + 5)
        self.assertEqual(self.data("t/back@1", "bytes.bin"), (200, wanted))
        self.world.stored("t/back/000000000002/*/data/bytes.bin")[0].unlink()
        self.assertEqual(self.data("t/back@2", "bytes.bin"), (200, wanted))
        self.damage("t/back/000000000003/*/manifest.json", 40)
        self.assertEqual(self.data("t/back@3", "bytes.bin"), (200, wanted))
        for step in (1, 2, 3):
            back = self.world.root / f"back-{step}"
            self.world.cairn("get", f"t/back@{step}", "-d", back)
            self.assertEqual(tree(back), tree(model))
        log = (self.world.root / "server.log").read_text()
        self.assertIn("read.fallback", log)
        self.assertGreater(read_fallbacks(self.world), 0)

    def test_a_version_that_lies_in_the_further_store_alone_is_read_like_any(self):
        model = self.model(8)
        self.world.cairn("put", model, "t/far@1")
        self.world.cairn("put", model, "t/far@2")
        self.world.cairn("promote", "t/far@1", "--to", "slow")
        self.world.cairn("demote", "t/far@1", "--from", "main")
        self.assertEqual(self.copies("t/far@1"), {"slow": "whole"})
        self.assertFalse(self.world.stored("t/far/000000000001/*/*"))
        back = self.world.root / "far"
        self.world.cairn("get", "t/far@1", "-d", back)
        self.assertEqual(tree(back), tree(model))
        status, _, body = self.world.get("/v1/runs/t/far/checkpoints/1/tensors/t1/data")
        self.assertEqual(status, 200)
        self.assertEqual(body, self.world.get("/v1/runs/t/far/checkpoints/2/tensors/t1/data")[2])

    def test_a_job_restores_from_the_copy_where_the_nearer_one_is_damaged_or_there_is_no_other(self):
        model = self.model(10)
        for step in (1, 2, 3):
            self.world.cairn("put", model, f"t/job@{step}")
        wanted = self.world.restored("t/job@3", "t1")
        self.assertEqual(len(wanted), 1024)
        for step in (1, 2):
            self.world.cairn("promote", f"t/job@{step}", "--to", "slow")
        self.damage("t/job/000000000001/*/data/model.safetensors", -2000 + (model / "model.safetensors").stat().st_size)
        self.assertEqual(self.world.restored("t/job@1", "t1"), wanted)
        self.world.cairn("demote", "t/job@2", "--from", "main")
        self.assertEqual(self.world.restored("t/job@2", "t1"), wanted)
        log = (self.world.root / "uploader-0.log").read_text()
        self.assertIn("fetch.fallback", log)
        self.assertIn("fetch.documents_elsewhere", log)

    def verified(self, ref, *words, status=0):
        return self.world.json("verify", ref, *words, status=status)

    def test_a_copy_that_is_damaged_is_named_though_reads_fall_back_and_repair_mends_it_from_the_other(self):
        model = self.model(11)
        self.world.cairn("put", model, "t/mend@1")
        self.world.cairn("promote", "t/mend@1", "--to", "slow")
        good = self.verified("t/mend@1")
        self.assertEqual([(copy["store"], copy["ok"]) for copy in good["copies"]], [("main", True), ("slow", True)])
        self.assertEqual(good["read_bytes"], 2 * sum(len(data) for data in tree(model).values()))
        self.damage("t/mend/000000000001/*/data/bytes.bin", (2 << 20) + 5)
        self.damage("t/mend/000000000001/*/manifest.json", 40)
        self.world.stored("t/mend/000000000001/*/data/model.safetensors")[0].unlink()
        untouched = self.world.stored("t/mend/000000000001/*/checksums.bin")[0].stat()
        before = self.slow_state("t/mend/")
        found = self.verified("t/mend@1", status=7)
        self.assertEqual({(item["store"], item["key"].rsplit("/", 1)[1]) for item in found["findings"]},
                         {("main", "bytes.bin"), ("main", "manifest.json"), ("main", "model.safetensors")})
        self.assertEqual([(copy["store"], copy["damaged"]) for copy in found["copies"]], [("main", 3), ("slow", 0)])
        self.assertEqual(self.verified("t/mend@1", "--metadata", status=7)["copies"][1]["ok"], True)
        said = self.world.cairn("verify", "t/mend@1", "--repair")
        self.assertIn("3 objects mended, all good", said.stdout)
        self.assertIn("main: mended:", said.stderr)
        self.assertTrue(self.verified("t/mend@1")["ok"])
        for number, store in enumerate((self.world.store, self.url)):
            back = self.world.root / f"mend-{number}"
            self.world.cairn("get", "t/mend@1", "-d", back, "--store", store)
            self.assertEqual(tree(back), tree(model))
        self.assertEqual(self.slow_state("t/mend/"), before)  # what is right is not touched
        now = self.world.stored("t/mend/000000000001/*/checksums.bin")[0].stat()
        self.assertEqual((now.st_ino, now.st_mtime_ns), (untouched.st_ino, untouched.st_mtime_ns))
        self.assertIn("copy.mended", self.world.cairn("events", "t/mend", "--since", "0").stdout)
        again = self.verified("t/mend@1", "--repair")  # once more does nothing
        self.assertEqual((again["ok"], again["mended"]), (True, 0))

    def test_a_further_copy_is_mended_like_the_main_one(self):
        model = self.model(12)
        self.world.cairn("put", model, "t/far-mend@1")
        self.world.cairn("promote", "t/far-mend@1", "--to", "slow")
        self.spoil("t/far-mend/", "bytes.bin", 3)
        self.spoil("t/far-mend/", "checksums.bin", 1)
        self.spoil("t/far-mend/", "committed.json", 30)
        self.assertEqual(self.data("t/far-mend@1", "bytes.bin")[0], 200)
        self.assertEqual({item["store"] for item in self.verified("t/far-mend@1", status=7)["findings"]}, {"slow"})
        refused = self.world.cairn("demote", "t/far-mend@1", "--from", "main", status=6)
        self.assertIn("in slow 3 of its objects were found damaged or missing", refused.stderr)
        mended = self.verified("t/far-mend@1", "--repair")
        self.assertEqual((mended["ok"], mended["mended"], mended["bad_objects"]), (True, 3, 0))
        self.world.cairn("verify", "t/far-mend@1", "--store", self.url)
        self.world.cairn("verify", "t/far-mend@1", "--repair", "--store", self.url, status=2)
        self.world.cairn("demote", "t/far-mend@1", "--from", "main")

    def test_copies_that_are_damaged_in_different_blocks_mend_each_other_and_what_is_lost_is_said(self):
        model = self.model(13)
        for step in (1, 2):
            self.world.cairn("put", model, f"t/cross@{step}")
            self.world.cairn("promote", f"t/cross@{step}", "--to", "slow")
        self.damage("t/cross/000000000001/*/data/bytes.bin", 3)
        self.spoil("t/cross/000000000001/", "bytes.bin", (2 << 20) + 5)
        mended = self.verified("t/cross@1", "--repair")
        self.assertEqual((mended["ok"], mended["mended"]), (True, 2))
        self.damage("t/cross/000000000002/*/data/bytes.bin", 3, (1 << 20) + 9)
        self.spoil("t/cross/000000000002/", "bytes.bin", (1 << 20) + 5)
        lost = self.verified("t/cross@2", "--repair", status=7)
        self.assertEqual((lost["mended"], lost["bad_objects"]), (0, 2))
        for item in lost["findings"]:
            self.assertIn("bytes that are lost: 1048576-2097151", item["detail"])
        self.spoil("t/cross/000000000002/", "bytes.bin", (1 << 20) + 5)  # it comes back
        self.assertTrue(self.verified("t/cross@2", "--repair")["ok"])

    def test_json_of_promote_and_demote_is_that_of_show(self):
        self.world.cairn("put", self.model(4), "t/shape@1")
        self.world.cairn("put", self.model(4), "t/shape@2")
        fields = set(self.world.json("show", "t/shape@1"))
        for words in (("promote", "t/shape@1", "--to", "slow"), ("demote", "t/shape@1", "--from", "slow")):
            self.assertEqual(set(self.world.json(*words)), fields)


class Folders(Tiers, unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = cases.folder(cls)
        cls.url = str(cls.folder / "slow")
        cls.world = World(server_arguments=["--stores", f"main,slow={cls.url}", "--sweep-interval", "100ms",
                                            "--trash-grace", "0ms"],
                          uploader_arguments=["--stores", f"main,slow={cls.url}"], case=cls)

    def slow_keys(self, prefix):
        return [path for path in files_below(self.url) if str(path.relative_to(self.url)).startswith(prefix)]

    def slow_state(self, prefix):
        return {str(path): (path.stat().st_ino, path.stat().st_mtime_ns) for path in self.slow_keys(prefix)}

    def spoil(self, prefix, name, offset):
        path, = [path for path in self.slow_keys(prefix) if path.name == name]
        cases.flip(path, offset)

    def test_two_copies_that_are_damaged_in_different_blocks_make_a_whole_one(self):
        model = self.model(9)
        self.world.cairn("put", model, "t/both@1")
        self.world.cairn("promote", "t/both@1", "--to", "slow")
        self.damage("t/both/000000000001/*/data/bytes.bin", 3)
        self.spoil("t/both/", "bytes.bin", (2 << 20) + 5)
        self.assertEqual(self.data("t/both@1", "bytes.bin"), (200, (model / "bytes.bin").read_bytes()))

    def test_a_reader_of_the_page_alone_restores_from_the_copy(self):
        model = self.model(5)
        self.world.cairn("put", model, "t/plain@1")
        self.world.cairn("promote", "t/plain@1", "--to", "slow")
        back = self.world.root / "plain"
        subprocess.run([sys.executable, READER, self.url, "t/plain@1", back], check=True,
                       capture_output=True, timeout=HANG_S)
        found = {pathlib.Path(name).name: data for name, data in tree(back).items()}
        self.assertEqual(found["bytes.bin"], (model / "bytes.bin").read_bytes())


class Bucket(Tiers, unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = cases.folder(cls)
        cls.s3 = S3Fault(cls.folder, case=cls)
        cls.url = f"s3://{BUCKET}/slow"
        cls.world = World(server_arguments=["--stores", f"main,slow={cls.url}", "--sweep-interval", "100ms",
                                            "--trash-grace", "0ms"],
                          uploader_arguments=["--stores", f"main,slow={cls.url}"], env=cls.s3.env(), case=cls)

    def slow_keys(self, prefix):
        return [key for key in self.s3.keys("slow/") if key.startswith(f"slow/{prefix}")]

    def slow_state(self, prefix):
        return {item["key"]: item for item in self.s3.state()["objects"] if item["key"].startswith(f"slow/{prefix}")}

    def spoil(self, prefix, name, offset):
        key, = [key for key in self.slow_keys(prefix) if key.endswith(f"/{name}")]
        data = bytearray(signed(self.s3.env(), f"/{BUCKET}/{key}"))
        data[offset] ^= 1
        signed(self.s3.env(), f"/{BUCKET}/{key}", "PUT", bytes(data))

    def test_a_store_that_fails_now_and_then_gets_a_copy_that_is_whole(self):
        model = self.model(6)
        (model / "large.bin").write_bytes(bytes(range(256)) * (40 * 4096))  # three parts
        self.world.cairn("put", model, "t/faults@1")
        self.s3.rules("op=part nth=2 : status=500/InternalError; op=complete nth=1 : lose-reply; "
                      "op=put p=0.2 : status=503/SlowDown")
        try:
            self.world.cairn("promote", "t/faults@1", "--to", "slow")
        finally:
            self.s3.rules("")
        self.world.cairn("verify", "t/faults@1", "--store", self.url)
        self.assertFalse(self.s3.uploads("slow/t/faults/"))


class KilledInARepair(unittest.TestCase):
    def test_a_server_that_is_killed_between_two_objects_of_a_repair_leaves_each_of_them_whole(self):
        folder = cases.folder(self)
        world = World(nodes=1, server_arguments=["--stores", f"main,slow={folder / 'slow'}"], case=self)
        model = cases.made(world.root / "model")
        for number in range(3):
            safetensors(model / f"{number}.safetensors", 3)
        world.cairn("put", model, "t/killed@1")
        world.cairn("promote", "t/killed@1", "--to", "slow")
        shards = sorted(world.stored("t/killed/000000000001/*/data/*"))
        damaged = {}
        for path in shards:
            damaged[path.name] = cases.flip(path, -1).read_bytes()
        world.server.stop()
        world.env["CAIRN_CRASH_AT"] = "server.repair.after_shard:2"
        world.start_server()
        command = world.begin("verify", "t/killed@1", "--repair")
        self.assertNotEqual(world.server.process.wait(HANG_S), 0)
        command.kill()
        command.communicate()
        found = {path.name: path.read_bytes() for path in world.stored("t/killed/000000000001/*/data/*")}
        right = {path.name: path.read_bytes() for path in model.iterdir()}
        self.assertEqual(sum(found[name] == right[name] for name in right), 2)
        self.assertEqual(sum(found[name] == damaged[name] for name in right), 1)
        del world.env["CAIRN_CRASH_AT"]
        world.start_server()
        # Over PostgreSQL the dead server's operation may be found first.
        ended = world.json("verify", "t/killed@1", "--repair")
        self.assertEqual((ended["ok"], ended["mended"]), (True, 1))
        self.assertEqual({path.name: path.read_bytes() for path in world.stored("t/killed/000000000001/*/data/*")},
                         right)


class TwoDemotes(unittest.TestCase):
    def test_of_two_demotes_that_have_each_found_the_others_copy_one_is_refused(self):
        """Both have looked when the first one marks its copy: the second one looks again."""
        folder = cases.folder(self)
        mark = Held(folder, "server.demote.before_mark", 0)
        world = World(nodes=1, server_arguments=["--stores", f"main,slow={folder / 'slow'}"], env=mark.env(), case=self)
        world.cairn("put", __file__, "t/both@1")
        world.cairn("promote", "t/both@1", "--to", "slow")
        commands = [world.begin("demote", "t/both@1", "--from", store) for store in ("main", "slow")]
        mark.reached(2)
        mark.go_on()
        for command in commands:
            world.ended(command, None)
        self.assertEqual(sorted(command.returncode for command in commands), [0, 6])
        world.cairn("get", "t/both@1", "-d", world.root / "again")
        self.assertEqual([path.read_bytes() for path in (world.root / "again").iterdir()],
                         [pathlib.Path(__file__).read_bytes()])


class Restarted(unittest.TestCase):
    def test_a_promote_whose_server_is_stopped_meanwhile_asks_the_next_one_again(self):
        folder = cases.folder(self)
        part = Held(folder, "server.promote.after_part")
        world = World(nodes=1, server_arguments=["--stores", f"main,slow={folder / 'slow'}"], env=part.env(), case=self)
        source = cases.made(world.root / "source")
        for number in range(40):  # more than are copied at once
            cases.file(source / str(number), str(number))
        world.cairn("put", source, "t/again@1")
        promote = world.begin("promote", "t/again@latest", "--to", "slow")
        part.reached()
        wait_until(lambda: world.answered("operation_get"))  # the command has heard that it is begun
        world.server.process.send_signal(signal.SIGTERM)
        wait_until(lambda: "server.stopping" in world.server.tail())
        part.go_on()
        world.server.stop()
        world.start_server()
        out, said = world.ended(promote)
        self.assertRegex(said, "op_.* interrupted: the server was stopped.*; asking again")
        self.assertIn("is whole in slow", out)


class Versioned(unittest.TestCase):
    """The further store is a bucket that keeps versions."""

    def setUp(self):
        self.s3 = S3Fault(cases.folder(self), case=self)
        self.s3.ask("versioning", "<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>")
        self.world = World(nodes=1, server_arguments=["--stores", f"main,slow=s3://{BUCKET}/slow", "--sweep-interval",
                                                      "100ms", "--trash-grace", "0ms"], env=self.s3.env(), case=self)
        self.file = cases.file(self.world.root / "file", b"x" * SIZE)
        for step in (1, 2):
            self.world.cairn("put", self.file, f"v/run@{step}")
            self.world.cairn("promote", f"v/run@{step}", "--to", "slow")
        self.version = self.world.version("v/run", 1)["version"]

    def versions(self):
        """(bytes of all versions of that checkpoint, markers)"""
        text = signed(self.s3.env(), f"/{BUCKET}", versions="", prefix="slow/v/").decode()
        found = [part for part in re.split("<(?=Version>|DeleteMarker>)", text)[1:] if self.version in part]
        return (sum(int(size) for part in found for size in re.findall(r"<Size>(\d+)</Size>", part)),
                sum(part.startswith("DeleteMarker>") for part in found))

    def test_a_copy_that_is_removed_leaves_no_version_and_no_marker(self):
        self.assertGreater(self.versions()[0], SIZE)
        self.world.cairn("demote", "v/run@1", "--from", "slow")
        self.assertEqual(self.versions(), (0, 0))
        self.world.cairn("verify", "v/run@2", "--store", f"s3://{BUCKET}/slow")

    def test_so_does_the_copy_of_a_checkpoint_that_is_deleted(self):
        self.world.cairn("rm", "v/run@1", "--yes")
        wait_until(lambda: self.versions() == (0, 0), 30)

    def test_what_a_lock_keeps_of_a_copy_is_told_with_its_bytes(self):
        self.s3.ask("hold", f"*{self.version}/data/*")
        self.world.cairn("demote", "v/run@1", "--from", "slow")
        log = (self.world.root / "server.log").read_text()
        self.assertRegex(log, rf"copy.not_freed version={self.version} .* bytes={SIZE} .*lock")
        self.assertEqual(self.versions()[0], SIZE)
        self.world.cairn("get", "v/run@1", "-d", self.world.root / "out")  # of the main store


class Away(unittest.TestCase):
    """The nearest store goes away in the middle of a restore."""
    ROWS, SLICES, CHUNKS = 32, 8, 8  # chunks of 4 MiB, as the server reads

    def test_an_uploader_asks_a_store_that_does_not_answer_once_and_then_passes_it_by(self):
        s3 = S3Fault(cases.folder(self), case=self)
        stores = ["--stores", f"near=s3://{BUCKET}/near,main"]
        world = World(nodes=1, server_arguments=stores,
                      uploader_arguments=[*stores, "--metrics-listen", "127.0.0.1:0", "--memory-tier", "0"], env=s3.env(), case=self)
        data = os.urandom(self.ROWS << 20)
        cases.safetensors(world.root / "model" / "model.safetensors", {"t": ("U8", [self.ROWS, 1 << 20], data)})
        world.cairn("put", world.root / "model", "t/away@1")
        world.cairn("promote", "t/away@1", "--to", "near")
        step = self.ROWS // self.SLICES
        reader = subprocess.Popen([str(BIN / "tests" / "tensor_reader"), "t/away", "1", "t", "0", str(self.ROWS), "0",
                                   str(1 << 20)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                  env={**os.environ, **world.env, "CAIRN_SOCKET": world.socket(), "CAIRN_URL": world.url,
                                       "TENSOR_READER_STEP": str(step)})
        self.addCleanup(reader.stdout.close)
        found = b""
        for number in range(self.SLICES):
            if number == 1:
                self.assertEqual(metric(world, 0, "restore_fallbacks_total"), 0)
                s3.stop()
            reader.stdin.write(b"go\n")
            reader.stdin.flush()
            found += reader.stdout.read(step << 20)
        reader.stdin.close()
        self.assertEqual(reader.wait(HANG_S), 0)
        self.assertTrue(found == data)
        asked = metric(world, 0, "restore_fallbacks_total")  # those that were under way together
        self.assertGreater(asked, 0)
        self.assertLessEqual(asked, step)
        began_s = time.monotonic()  # the server has not met it yet
        status, _, body = world.get("/v1/runs/t/away/checkpoints/1/shards/model.safetensors/data")
        self.assertEqual((status, body == (world.root / "model" / "model.safetensors").read_bytes()), (200, True))
        self.assertLess(time.monotonic() - began_s, 300)  # its own patience is as long
        # Asked for what it was met by, at most once for each chunk that is read ahead; then passed by.
        fallbacks = read_fallbacks(world)
        self.assertGreater(fallbacks, 0)
        self.assertLess(fallbacks, self.CHUNKS // 2)


class OneS3(unittest.TestCase):
    """Main and further store are buckets of one S3: it copies large shards by itself."""

    @classmethod
    def setUpClass(cls):
        cls.folder = cases.folder(cls)
        cls.s3 = S3Fault(cls.folder, case=cls)
        signed(cls.s3.env(), "/other", "PUT")
        cls.url = "s3://other/slow"
        cls.world = S3World(cls.s3, prefix="main", server_arguments=[
            "--stores", f"main,slow={cls.url}", "--sweep-interval", "100ms", "--trash-grace", "0ms"], case=cls)
        cases.made(cls.folder / "model")
        (cls.folder / "model" / "large file.bin").write_bytes(bytes(range(256)) * (40 * 4096) + b"end")
        (cls.folder / "model" / "small.bin").write_bytes(b"small" * 1000)

    def promoted(self, ref, status=0):
        """What the store was asked for about the large shard while it was promoted."""
        self.world.cairn("put", self.folder / "model", ref)
        before = len(self.s3.journal())
        self.world.cairn("promote", ref, "--to", "slow", status=status)
        return [line for line in self.s3.journal()[before:] if line["key"].endswith("/large file.bin")]

    def is_whole(self, ref):
        self.world.cairn("verify", ref, "--store", self.url)
        back = self.folder / f"back-{ref.replace('/', '-')}"
        self.world.cairn("get", ref, "-d", back, "--store", self.url)
        self.assertEqual(tree(back), tree(self.folder / "model"))

    def test_a_large_shard_is_copied_by_the_store_and_no_byte_of_it_passes_through_the_server(self):
        asked = self.promoted("t/within@1")
        parts = [line for line in asked if line["op"] == "part"]
        self.assertEqual(len(parts), 3)
        for line in parts:
            self.assertIn("main/t/within/000000000001/", line["copy_source"])
            self.assertEqual(line["bytes_in"], 0)
        self.assertFalse([line for line in asked if line["op"] == "get"])
        self.is_whole("t/within@1")

    def test_a_store_that_refuses_to_copy_gets_the_bytes_from_the_server(self):
        for number, answer in enumerate(("501/NotImplemented", "403/AccessDenied", "412/PreconditionFailed")):
            self.s3.rules(f"op=part key=slow/* nth=2 : status={answer}")
            try:
                asked = self.promoted(f"t/refused{number}@1")
            finally:
                self.s3.rules("")
            sent = [line["bytes_in"] for line in asked if line["op"] == "part"]
            self.assertEqual([size > 0 for size in sent], [False, False, True, True], answer)
            self.is_whole(f"t/refused{number}@1")

    def planned(self, ref):
        """Where the URLs of a restore lead to."""
        run, _, step = ref.partition("@")
        answer = self.world.send("POST", f"/v1/runs/{run}/checkpoints/{step}/restore-plans")
        return {item["url"].split("?")[0].split("/")[3] for item in answer["objects"]}

    def test_urls_are_of_the_nearest_copy_that_is_not_known_to_be_damaged(self):
        self.promoted("t/urls@1")
        self.assertEqual(self.planned("t/urls@1"), {BUCKET})
        key, = [key for key in self.s3.keys("main/t/urls/") if key.endswith("/small.bin")]
        signed(self.s3.env(), f"/{BUCKET}/{key}", "PUT", b"wrong" * 1000)
        self.world.cairn("verify", "t/urls@1", status=7)
        self.assertEqual(self.planned("t/urls@1"), {"other"})
        self.world.cairn("verify", "t/urls@1", "--repair")
        self.assertEqual(self.planned("t/urls@1"), {BUCKET})

    def test_damage_in_the_source_is_seen_by_the_checksum_of_what_the_store_has_copied(self):
        self.promoted("t/good@1")
        self.world.cairn("put", self.folder / "model", "t/bad@1")
        key, = [key for key in self.s3.keys("main/t/bad/") if key.endswith("/large file.bin")]
        good = signed(self.s3.env(), f"/{BUCKET}/{key}")
        bad = bytearray(good)
        bad[20 << 20] ^= 1
        signed(self.s3.env(), f"/{BUCKET}/{key}", "PUT", bytes(bad))
        refused = self.world.cairn("promote", "t/bad@1", "--to", "slow", status=7)
        self.assertIn("large file.bin", refused.stderr)
        self.assertIn("copy.through_server", (self.world.root / "server.log").read_text())
        listed = signed(self.s3.env(), "/other", **{"list-type": "2", "prefix": "slow/t/bad/"}).decode()
        self.assertNotIn("large file.bin", listed)
        self.assertNotIn("committed.json", listed)
        signed(self.s3.env(), f"/{BUCKET}/{key}", "PUT", good)
        self.world.cairn("promote", "t/bad@1", "--to", "slow")
        self.is_whole("t/bad@1")


if __name__ == "__main__":
    unittest.main()
