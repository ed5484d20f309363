# SPDX-License-Identifier: Apache-2.0
"""Stored versions as tensors: what `cairn export` reads of a run, through the server and from the
store alone, value for value what went in."""
import json
import pathlib
import shutil
import tempfile
import unittest

from test_export import EXPECTED, ZERO, as_fp32, export, read
from world import World

TORCH = ZERO.parent / "torch"


class Stored(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.world = World()

    @classmethod
    def tearDownClass(cls):
        cls.world.close()

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="cairn-stored-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.out = self.folder / "out"

    def both(self, ref, name, *words, status=0):
        """What export says and writes, the same by the server and from the store."""
        told = []
        for way, where in (("server", ()), ("store", ("--store", self.world.store))):
            out = self.folder / f"{name}-{way}"
            ran = self.world.cairn("export", ref, out, "--json", *words, *where, status=status)
            told.append((json.loads(ran.stdout) if not status else ran.stderr,
                         read(out) if not status else None))
            if not status:
                told[-1][0].pop("folder")
        if not status:
            self.assertEqual(told[0], told[1])
        return told[0]

    def test_a_version_of_safetensors_files_is_exported_with_the_same_values(self):
        export(ZERO / "stage2", self.folder / "model", "--max-shard-size", "200B")
        self.world.cairn("put", self.folder / "model", "t/model@1")
        told, tensors = self.both("t/model@1", "model")
        self.assertEqual(tensors, read(self.folder / "model"))
        self.assertEqual(told["format"], "cairn")
        self.assertEqual([row["name"] for row in told["left_out"]],
                         ["model.safetensors.index.json"])
        _, some = self.both("t/model@latest", "some", "--only", "l*", "--dtype", "bf16")
        self.assertEqual({name: row[0] for name, row in some.items()},
                         {"last.weight": "BF16", "last.bias": "BF16"})

    def test_files_of_deepspeed_and_torch_that_were_put_as_they_are_are_exported_too(self):
        self.world.cairn("put", ZERO / "stage3", "t/raw@3")
        told, tensors = self.both("t/raw@3", "raw")
        self.assertEqual(told["format"], "deepspeed-zero")
        for name, (dtype, shape, data) in tensors.items():
            wanted = EXPECTED["stage3"][name]
            self.assertEqual((shape, as_fp32(dtype, data)), (wanted["shape"], wanted["fp32"]), name)
        self.world.cairn("put", TORCH / "protocol2.pt", "t/raw@4")
        told, tensors = self.both("t/raw@4", "file")
        export(TORCH / "protocol2.pt", self.out)
        self.assertEqual((told["format"], tensors), ("torch", read(self.out)))

    def test_what_is_no_checkpoint_is_refused_with_what_was_looked_for(self):
        (self.folder / "notes").mkdir()
        for name in "ab":
            (self.folder / "notes" / name).write_text(name)
        self.world.cairn("put", self.folder / "notes", "t/notes@1")
        told, _ = self.both("t/notes@1", "notes", status=1)
        self.assertIn("neither a DeepSpeed folder", told)
        told, _ = self.both("t/notes@2", "none", status=3)
        self.assertFalse((self.folder / "none-store").exists())

    def test_a_damaged_block_is_named_and_leaves_no_file(self):
        export(ZERO / "stage1", self.folder / "model")
        self.world.cairn("put", self.folder / "model", "t/damage@1")
        path, = (path for path in self.world.stored("model.safetensors")
                 if "damage" in path.parts)
        data = bytearray(path.read_bytes())
        data[-1] ^= 1
        path.chmod(0o644)
        path.write_bytes(data)
        told, _ = self.both("t/damage@1", "damage", status=7)
        self.assertIn("shard model.safetensors", told)
        for way in ("server", "store"):
            self.assertEqual(list((self.folder / f"damage-{way}").iterdir()), [])


if __name__ == "__main__":
    unittest.main()
