# SPDX-License-Identifier: Apache-2.0
# ctest: engines=again
"""Damage on the store: a flipped byte, a cut, a missing object, a changed checksum list."""
import hashlib
import json
import os
import pathlib
import unittest

import cases
from world import World

MIB = 1 << 20


class Damage(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.world = World(case=cls)
        source = cases.made(cls.world.root / "source")
        (source / "a.bin").write_bytes(os.urandom(3 * MIB + 5))
        (source / "b.bin").write_bytes(os.urandom(2 * MIB))
        cls.world.cairn("put", source, "d/run@1")
        cls.shard = [p for p in cls.world.stored("a.bin") if "data" in p.parts][0]
        cls.checksums = cls.world.stored("checksums.bin")[0]
        cls.manifest = cls.world.stored("manifest.json")[0]

    def with_bytes(self, path, change):
        """Run the refusals with path's content changed, then put it back."""
        original = path.read_bytes()
        try:
            os.chmod(path, 0o644)
            change(path, original)
            yield original
        finally:
            path.write_bytes(original)

    def refused(self, name, text):
        """get, verify (server and store) and the proxy refuse and name the shard."""
        for number, arguments in enumerate((
                ("get", "d/run@1", "-d", self.world.root / f"out-{name}-1"),
                ("get", "d/run@1", "--store", self.world.store, "-d",
                 self.world.root / f"out-{name}-2"),
                ("verify", "d/run@1"),
                ("verify", "d/run@1", "--store", self.world.store))):
            said = self.world.cairn(*arguments, status=None)
            self.assertIn(said.returncode, (7, 1, 5), (arguments, said.stderr))
            self.assertRegex(said.stderr, text, (number, arguments))
            self.assertFalse((self.world.root / f"out-{name}-1" / "a.bin").exists())
            self.assertFalse((self.world.root / f"out-{name}-2" / "a.bin").exists())

    def test_a_flipped_byte_anywhere_is_named(self):  # P14
        for at in (0, 1, MIB - 1, MIB, 2 * MIB + 77, 3 * MIB, 3 * MIB + 4):
            def flip(path, original, at=at):
                path.write_bytes(original[:at] + bytes([original[at] ^ 0x40]) + original[at + 1:])
            for _ in self.with_bytes(self.shard, flip):
                self.refused(f"flip{at}", r"a\.bin")
                said = self.world.cairn("verify", "d/run@1", "--store", self.world.store, status=7)
                self.assertIn("CRC32C", said.stderr)
                self.assertIn("step 1", said.stderr)
                try:
                    status, _, body = self.world.get("/v1/runs/d/run/checkpoints/1/shards/a.bin/data")
                    self.assertEqual(status, 502)
                    self.assertIn(b"store-corrupt", body)
                except OSError:
                    self.assertGreaterEqual(at, MIB)  # the connection was broken after a good start
                except Exception as error:  # http.client.IncompleteRead is no OSError
                    self.assertEqual(type(error).__name__, "IncompleteRead")

    def test_a_cut_shard_is_named(self):
        for size in (0, 1, MIB, 3 * MIB + 4):
            for _ in self.with_bytes(self.shard, lambda p, o, n=size: p.write_bytes(o[:n])):
                self.refused(f"cut{size}", r"a\.bin")
                self.world.cairn("verify", "d/run@1", "--metadata", "--store", self.world.store, status=7)

    def test_a_longer_shard_is_named(self):
        for _ in self.with_bytes(self.shard, lambda p, o: p.write_bytes(o + b"more")):
            self.refused("longer", r"a\.bin")

    def test_the_last_shard_is_verified_too(self):
        last = [p for p in self.world.stored("b.bin") if "data" in p.parts][0]
        for _ in self.with_bytes(last, lambda p, o: p.write_bytes(o[:-1] + bytes([o[-1] ^ 1]))):
            self.refused("last", r"b\.bin")

    def test_a_missing_shard_is_named(self):
        for _ in self.with_bytes(self.shard, lambda p, o: p.unlink()):
            self.refused("missing", r"a\.bin")

    def test_a_changed_checksum_list_is_named(self):
        for _ in self.with_bytes(self.checksums, lambda p, o: p.write_bytes(b"\x00" + o[1:])):
            said = self.world.cairn("verify", "d/run@1", "--store", self.world.store, status=7)
            self.assertIn("checksums.bin", said.stderr)
            said = self.world.cairn("get", "d/run@1", "--store", self.world.store, "-d",
                                    self.world.root / "out-sums", status=7)
            self.assertIn("checksums.bin", said.stderr)

    def test_a_changed_manifest_is_named(self):
        def change(path, original):
            path.write_bytes(original.replace(b'"step":1', b'"step":2'))
        for _ in self.with_bytes(self.manifest, change):
            said = self.world.cairn("verify", "d/run@1", "--store", self.world.store, status=7)
            self.assertIn("manifest.json", said.stderr)

    def test_m07_a_forged_manifest_cannot_name_what_is_not_its_own(self):
        """Manifest and record agree, so that only the rule on names can refuse it (R10)."""
        record = self.world.stored("committed.json")[0]
        cases.file(pathlib.Path(self.world.store) / "secret.bin", os.urandom(2 * MIB))
        for number, name in enumerate((
                "../../../../../secret.bin", "/etc/passwd", "a/../../manifest.json", "", ".",
                "b.bin/", "x\\y", "s3://bucket/key", "http://127.0.0.1/x")):
            forged = json.loads(self.manifest.read_text())
            victim = [s for s in forged["shards"] if s["name"] == "b.bin"][0]
            victim["name"] = name
            victim["key"] = "secret.bin"
            forged["shards"].sort(key=lambda s: s["name"].encode())
            text = json.dumps(forged, sort_keys=True, separators=(",", ":"))
            names = json.loads(record.read_text())
            names["manifest_sha256"] = hashlib.sha256(text.encode()).hexdigest()
            out = self.world.root / f"out-forged-{number}"
            for _ in self.with_bytes(self.manifest, lambda p, o: p.write_text(text)):
                for _ in self.with_bytes(record, lambda p, o: p.write_text(json.dumps(names))):
                    said = self.world.cairn("get", "d/run@1", "--store", self.world.store, "-d", out, status=None)
                    self.assertIn(said.returncode, (3, 5, 7), (name, said.stderr))
                    self.assertIn("manifest", said.stderr, name)
            self.assertEqual([p for p in out.rglob("*") if p.is_file()], [], name)
            self.assertFalse((self.world.root / "secret.bin").exists())

    def test_the_last_shard_is_verified_like_the_first(self):  # P14
        last = [p for p in self.world.stored("b.bin") if "data" in p.parts][0]
        for _ in self.with_bytes(last, lambda p, o: p.write_bytes(o[:-1] + bytes([o[-1] ^ 1]))):
            for more in ((), ("--store", self.world.store)):
                said = self.world.cairn("verify", "d/run@1", *more, status=7)
                self.assertIn("b.bin", said.stderr)

    def test_a_record_that_is_gone_is_said_once_and_written_again(self):  # P13, P14, D5
        record = self.world.stored("committed.json")[0]
        original = record.read_bytes()
        record.unlink()
        said = self.world.cairn("verify", "d/run@1")
        self.assertIn("committed.json", said.stderr)
        self.assertIn("written it again", said.stderr)
        self.assertEqual(record.read_bytes(), original)
        self.assertEqual(self.world.cairn("verify", "d/run@1").stderr.count("committed.json"), 0)

    def test_an_attempt_record_that_is_gone_and_a_stray_object_are_named(self):  # P14, D5
        attempt = self.world.stored("000000000001.json")[0]
        for _ in self.with_bytes(attempt, lambda p, o: p.unlink()):
            for more in ((), ("--store", self.world.store)):
                said = self.world.cairn("verify", "d/run@1", *more, status=7)
                self.assertIn("000000000001.json", said.stderr)
        stray = cases.file(self.shard.parent / "stranger", b"?")
        try:
            for more in ((), ("--store", self.world.store)):
                self.assertIn("stranger", self.world.cairn("verify", "d/run@1", *more).stderr)
        finally:
            stray.unlink()

    def test_a_good_version_stays_good(self):
        self.world.cairn("verify", "d/run@1")
        self.world.cairn("verify", "d/run@1", "--read-data-subset", "1/2")
        self.world.cairn("verify", "d/run@1", "--read-data-subset", "3/2", status=2)


if __name__ == "__main__":
    unittest.main(verbosity=2)
