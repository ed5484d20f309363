# SPDX-License-Identifier: Apache-2.0
# ctest: engines=again
"""One damage, one list of findings: `cairn verify` through the server and from the store alone."""
import json
import os
import pathlib
import struct
import unittest

import cases
from world import World

MIB = 1 << 20


def safetensors(path, count):
    """A file of so many tensors of 1,024 bytes."""
    head = json.dumps({f"t{i}": {"dtype": "F32", "shape": [256],
                                 "data_offsets": [1024 * i, 1024 * (i + 1)]}
                       for i in range(count)}).encode()
    path.write_bytes(struct.pack("<Q", len(head)) + head + os.urandom(1024 * count))


def gone(path, _original):
    path.unlink()


def flipped(path, original):
    """The last byte but one: never the end of a line alone."""
    at = len(original) - 2
    path.write_bytes(original[:at] + bytes([original[at] ^ 0x10]) + original[at + 1:])


def headless(path, original):
    path.write_bytes(b"#" + original[1:])


def renumbered(path, original):
    """Still a record of this attempt, of another world."""
    changed = original.replace(b'"world_size":1', b'"world_size":2')
    assert changed != original
    path.write_bytes(changed)


# what is damaged, how, kind of the finding
TABLE = [
    ("committed.json", gone, "record"),
    ("committed.json", headless, "record"),
    ("manifest.json", gone, "object"),
    ("manifest.json", flipped, "object"),
    ("manifest.json", headless, "object"),
    ("checksums.bin", gone, "object"),
    ("checksums.bin", flipped, "object"),
    ("layout", gone, "object"),
    ("layout", flipped, "object"),
    ("layout", headless, "object"),
    ("attempt", gone, "attempt"),
    ("attempt", headless, "attempt"),
    ("copy", headless, "attempt"),
    ("copy", renumbered, "attempt"),
    ("shard", gone, "object"),
    ("shard", flipped, "object"),
]


class Verify(unittest.TestCase):
    def setUp(self):
        self.world = World(case=self)
        source = cases.made(self.world.root / "source")
        safetensors(source / "model.safetensors", 40)
        (source / "a.bin").write_bytes(os.urandom(2 * MIB + 5))
        self.world.cairn("put", source, "v/run@1")
        self.version = self.world.version("v/run", "1")["version"]
        layouts = [p for p in self.world.stored("*") if "layouts" in p.parts]
        self.assertEqual(len(layouts), 1)
        self.paths = {
            "committed.json": self.world.stored("committed.json")[0],
            "manifest.json": self.world.stored("manifest.json")[0],
            "checksums.bin": self.world.stored("checksums.bin")[0],
            "layout": layouts[0],
            "attempt": self.world.stored("000000000001.json")[0],
            "copy": self.world.stored("000000000001.copy.json")[0],
            "shard": [p for p in self.world.stored("a.bin") if "data" in p.parts][0],
        }

    def findings(self, ref, *more, status=7):
        """(kind, key) of each finding, and the answer."""
        said = self.world.cairn("verify", ref, "--json", *more, status=status)
        answer = json.loads(said.stdout)
        return sorted((f["what"], f["key"]) for f in answer["findings"]), answer, said

    def test_server_and_store_find_the_same_in_each_document_P14(self):
        ref = f"v/run@{self.version}"
        from_store = ("--store", self.world.store)
        for restart in (False, True):  # with what the server has in its memory, and without
            for name, damage, kind in TABLE:
                path = self.paths[name]
                original = path.read_bytes()
                if restart:
                    self.world.server.kill()
                    self.world.start_server()
                os.chmod(path, 0o644)
                damage(path, original)
                try:
                    with self.subTest(name=name, damage=damage.__name__, restart=restart):
                        expected = [(kind, str(path.relative_to(self.world.store)))]
                        found, answer, _ = self.findings(ref, *from_store)
                        self.assertEqual(found, expected)
                        self.assertFalse(answer["ok"])
                        # The server writes a record again that is not there (Q24).
                        mended = name == "committed.json" and damage is gone
                        found, answer, said = self.findings(ref, status=0 if mended else 7)
                        self.assertEqual(found, expected)
                        self.assertEqual(answer["ok"], mended)
                        self.assertIn(path.name, said.stderr)
                finally:
                    path.unlink(missing_ok=True)
                    path.write_bytes(original)
        for more in ((), from_store):
            found, answer, _ = self.findings("v/run@1", *more, status=0)
            self.assertEqual(found, [])
            self.assertEqual((answer["shards"], answer["bad_shards"], answer["ok"]), (2, 0, True))

    def test_one_line_names_run_step_and_shard_once_and_one_finding_is_one_line(self):
        path = self.paths["shard"]
        original = path.read_bytes()
        os.chmod(path, 0o644)
        for damage in flipped, gone:
            damage(path, original)
            for more in (), ("--metadata",), ("--store", self.world.store):
                with self.subTest(damage=damage.__name__, more=more):
                    lines = self.world.cairn("verify", "v/run@1", *more, status=7).stderr.splitlines()
                    self.assertEqual(len(set(lines)), len(lines), lines)
                    for line in lines:
                        self.assertLessEqual(line.count("step 1 shard"), 1, line)

    def known(self):
        """What tells of damage: ls, show, resume, the version, readyz, the metric."""
        ready = self.world.read("/readyz")
        metrics = self.world.get("/metrics")[2].decode()
        return {
            "ls": "damaged" in self.world.cairn("ls", "v/run").stdout,
            "show": "1 object damaged" in self.world.cairn("show", "v/run@1").stdout,
            "resume": "damaged" in self.world.cairn("resume", "v/run").stderr,
            "latest": "damage" in self.world.version("v/run", "latest")["copies"][0],
            "readyz": "v/run@1 in store main" in ready["checks"]["copies"] and ready["ready"],
            "metric": "\ncairn_damaged_copies 1\n" in metrics,
        }

    def test_damage_of_the_only_copy_is_told_everywhere_until_a_verify_has_read_all_and_found_it_right(self):
        path = self.paths["shard"]
        original = path.read_bytes()
        self.assertEqual(set(self.known().values()), {False})
        os.chmod(path, 0o644)
        flipped(path, original)
        self.findings("v/run@1")
        self.assertEqual(set(self.known().values()), {True}, self.known())
        path.write_bytes(original)
        self.world.cairn("verify", "v/run@1", "--metadata")  # says nothing of the bytes
        self.assertEqual(set(self.known().values()), {True}, self.known())
        self.assertEqual(self.findings("v/run@1", status=0)[0], [])
        self.assertEqual(set(self.known().values()), {False}, self.known())

    def test_a_repair_of_the_only_copy_names_each_range_that_is_lost_up_to_the_last_partial_block(self):
        path = self.paths["shard"]
        original = path.read_bytes()
        os.chmod(path, 0o644)
        path.write_bytes(bytes([original[0] ^ 1]) + original[1:-1] + bytes([original[-1] ^ 1]))
        _, answer, _ = self.findings("v/run@1", "--repair")
        self.assertIn("lost: 0-1048575, 2097152-2097156, 1048581 of 2097157", answer["findings"][0]["detail"])
        path.unlink()
        _, answer, _ = self.findings("v/run@1", "--repair")
        self.assertIn("lost: 0-2097156, 2097157 of 2097157", answer["findings"][0]["detail"])

    def test_every_version_of_a_run_and_of_a_site_is_read_and_a_second_call_goes_on_from_its_notes(self):
        for run in "v/run", "w/other":
            self.world.cairn("put", self.world.root / "source", f"{run}@7")
        notes = self.world.root / "verified.txt"
        for more in (), ("--store", self.world.store):
            notes.unlink(missing_ok=True)
            said = self.world.cairn("verify", "--all", "v/run", "--resume", str(notes), *more)
            self.assertEqual(said.stdout.count("all good"), 2)
            self.assertIn("verify v/run: 2 of 2", said.stderr)
            said = self.world.cairn("verify", "--all", "--resume", str(notes), *more)
            self.assertEqual(said.stdout.count("all good"), 1)  # that of the other run
            self.assertIn("1 version good, 0 damaged, 2 noted as good before", said.stderr)
            said = self.world.cairn("verify", "--all", "--resume", str(notes), "--metadata", *more)
            self.assertEqual(said.stdout.count("all good"), 3)  # noted apart from reads of all bytes
        path = self.paths["shard"]
        original = path.read_bytes()
        os.chmod(path, 0o644)
        flipped(path, original)
        said = self.world.cairn("verify", "--all", status=7)
        self.assertEqual(said.stdout.count("all good"), 2)
        self.assertIn("1 version is damaged", said.stderr)
        path.write_bytes(original)
        self.world.cairn("verify", status=2)

    def test_a_store_that_is_not_mounted_is_not_called_damaged_by_a_read(self):
        store = pathlib.Path(self.world.store)
        away = cases.made(store.with_name("away"))
        names = os.listdir(store)  # the server holds the folder open: it looks empty, as a mount that is gone
        for name in names:
            (store / name).rename(away / name)
        self.assertNotEqual(self.world.get("/v1/runs/v/run/checkpoints/1/shards/a.bin/data")[0], 200)
        for name in names:
            (away / name).rename(store / name)
        self.assertEqual(set(self.known().values()), {False}, self.known())

    def test_by_its_step_a_damaged_version_is_looked_at_too_P14(self):
        for name in ("committed.json", "manifest.json"):
            path = self.paths[name]
            original = path.read_bytes()
            os.chmod(path, 0o644)
            headless(path, original)
            found, _, said = self.findings("v/run@1", "--store", self.world.store)
            self.assertEqual([key.rsplit("/")[-1] for _, key in found], [name], said.stderr)
            path.write_bytes(original)

    def test_whole_shards_need_no_layout_P14(self):
        self.paths["layout"].unlink()
        for number, more in enumerate(((), ("--store", self.world.store))):
            out = self.world.root / f"out-{number}"
            self.world.cairn("get", "v/run@1", "--shard", "a.bin", "-d", out, *more)
            self.assertEqual((out / "a.bin").stat().st_size, 2 * MIB + 5)


if __name__ == "__main__":
    unittest.main(verbosity=2)
