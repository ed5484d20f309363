# SPDX-License-Identifier: Apache-2.0
# ctest: seconds=60 engines=again
"""Stored versions as tensors: what `cairn export` reads of a run, through the server and from the
store alone, value for value what went in."""
import json
import shutil
import struct
import subprocess
import unittest

import cases
from test_export import EXPECTED, ZERO, as_fp32, export, read
from world import BIN, HANG_S, InWorld

TORCH = ZERO.parent / "torch"


class Case(InWorld):
    def setUp(self):
        self.out = self.folder / "out"

    def both(self, ref, name, *words, status=0):
        """What export says and writes, the same by the server and from the store."""
        told = []
        for way, where in (("server", ()), ("store", ("--store", self.world.store))):
            out = self.folder / f"{name}-{way}"
            ran = self.world.cairn("export", ref, out, "--json", *words, *where, status=status)
            told.append((json.loads(ran.stdout) if not status else ran.stderr, read(out) if not status else None))
            if not status:
                told[-1][0].pop("folder")
        if not status:
            self.assertEqual(told[0], told[1])
        return told[0]


class Stored(Case):
    def test_a_version_of_safetensors_files_is_exported_with_the_same_values(self):
        export(ZERO / "stage2", self.folder / "model", "--max-shard-size", "200B")
        self.world.cairn("put", self.folder / "model", "t/model@1")
        told, tensors = self.both("t/model@1", "model")
        self.assertEqual(tensors, read(self.folder / "model"))
        self.assertEqual(told["format"], "cairn")
        self.assertEqual([row["name"] for row in told["left_out"]], ["model.safetensors.index.json"])
        _, some = self.both("t/model@latest", "some", "--only", "l*", "--dtype", "bf16")
        self.assertEqual({name: row[0] for name, row in some.items()}, {"last.weight": "BF16", "last.bias": "BF16"})

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
        self.assertIn("opaque: `cairn get t/notes@1 -d FOLDER`", told)
        self.world.cairn("put", self.folder / "notes" / "a", "t/note@1")
        told, _ = self.both("t/note@1", "note", status=1)
        self.assertIn("t/note@1: a: neither a file of torch.save nor a safetensors file", told)
        self.assertIn("opaque: `cairn get t/note@1 -d FOLDER`", told)
        told = self.world.cairn("diff", "--tensors", "t/note@1", "t/notes@1", status=1).stderr
        self.assertIn("t/note@1: a: neither a file of torch.save", told)
        self.assertIn("opaque: `cairn get t/note@1 -d FOLDER`", told)
        told, _ = self.both("t/notes@2", "none", status=3)
        self.assertFalse((self.folder / "none-store").exists())

    def test_a_damaged_block_is_named_and_leaves_no_file(self):
        export(ZERO / "stage1", self.folder / "model")
        self.world.cairn("put", self.folder / "model", "t/damage@1")
        path, = (path for path in self.world.stored("model.safetensors") if "damage" in path.parts)
        cases.flip(path, -1)
        told, _ = self.both("t/damage@1", "damage", status=7)
        self.assertRegex(told, r"shard .{0,2}model\.safetensors")
        for way in ("server", "store"):
            self.assertEqual(list((self.folder / f"damage-{way}").glob("*")), [])


class Restored:
    """What an import is asked for afterwards."""

    def restored(self, run, name, *box):
        """As libcairn gives it to a job that asks for a box of it."""
        ran = subprocess.run(
            [BIN / "tests" / "tensor_reader", run, "latest", name, *map(str, box)], capture_output=True,
            env={"CAIRN_SOCKET": self.world.socket()}, timeout=HANG_S)
        self.assertEqual(ran.returncode, 0, ran.stderr)
        return ran.stdout

    def imported(self, kind, path, ref, *flags):
        ran = self.world.cairn("import", kind, path, ref, "--json", *flags)
        told = {**json.loads(ran.stdout), "notes": ran.stderr}
        shown = self.world.json("show", ref)
        self.assertEqual(shown["version"], told["version"])
        return told, shown


class Import(Case, Restored):
    """`cairn import`: files are kept as they are, and their tensors are known by name."""

    def test_each_deepspeed_checkpoint_restores_by_name_into_any_layout(self):
        for step, (case, expected) in enumerate(EXPECTED.items()):
            export(ZERO / case, self.folder / case, "--optimizer")
            wanted = read(self.folder / case)
            told, shown = self.imported("deepspeed", ZERO / case, f"i/zero@{step}")
            self.assertEqual(shown["format"], "deepspeed-zero")
            self.assertEqual(told["tensors"], len(wanted) + 1)  # an alias
            for name, (_, shape, data) in wanted.items():
                self.assertEqual(self.restored("i/zero", name), data, (case, name))
                if name in expected:
                    self.assertEqual(shape, expected[name]["shape"])
            self.assertEqual(self.restored("i/zero", "head.weight"), wanted["embed.weight"][2])
            # Rows 2 to 8, columns 3 to 5 of 11 x 7: they lie with all ranks.
            whole = struct.unpack("<77f", wanted["embed.weight"][2])
            self.assertEqual(struct.unpack("<18f", self.restored("i/zero", "embed.weight", 2, 6, 3, 3)),
                             tuple(whole[7 * row + column] for row in range(2, 8)
                                   for column in range(3, 6)))
            _, tensors = self.both(f"i/zero@{step}", f"{case}-back", "--optimizer")
            self.assertEqual(tensors, wanted)
            told, tensors = self.both(f"i/zero@{step}", f"{case}-weights")
            self.assertEqual(tensors, {name: row for name, row in wanted.items() if not name.startswith("optimizer.")})
            self.assertIn("optimizer.state.", [row["name"] for row in told["left_out"]])

    def test_what_was_imported_comes_back_as_the_same_files(self):
        self.imported("deepspeed", ZERO / "stage2", "i/files@1")
        self.world.cairn("get", "i/files@1", "-d", self.out)
        names = sorted(path.name for path in (ZERO / "stage2" / "step2").iterdir())
        self.assertEqual(sorted(path.name for path in self.out.iterdir()), names)
        for name in names:
            self.assertEqual((self.out / name).read_bytes(), (ZERO / "stage2" / "step2" / name).read_bytes())

    def test_a_torch_file_and_a_safetensors_file_restore_by_name(self):
        for step, name in enumerate(("everything_legacy.pt", "everything.pt")):
            export(TORCH / name, self.folder / name)
            wanted = read(self.folder / name)
            told, shown = self.imported("torch", TORCH / name, f"i/torch@{step}")
            self.assertEqual(shown["format"], "torch")
            for tensor, (_, _, data) in wanted.items():
                if tensor == "stretched":  # of stride 0: the same bytes for each row
                    self.assertIn("left out: stretched: ", told["notes"])
                    continue
                self.assertEqual(self.restored("i/torch", tensor), data, tensor)
        _, shown = self.imported("safetensors", self.folder / name / "model.safetensors", "i/safe@1")
        self.assertEqual(shown["format"], "safetensors")
        _, tensors = self.both("i/safe@1", "safe")
        self.assertEqual(tensors, wanted)

    def test_a_folder_of_hugging_face_is_all_its_files_and_its_index_is_held_against_them(self):
        export(ZERO / "stage2", self.folder / "model", "--max-shard-size", "200B")
        (self.folder / "model" / "config.json").write_text("{}")
        wanted = read(self.folder / "model")
        told, shown = self.imported("hf", self.folder / "model", "i/hf@1")
        self.assertEqual((shown["format"], told["tensors"]), ("hf-safetensors", len(wanted)))
        _, tensors = self.both("i/hf@1", "hf")
        self.assertEqual(tensors, wanted)
        some = sorted((self.folder / "model").glob("*.safetensors"))[1]
        some.unlink()
        ran = self.world.cairn("import", "hf", self.folder / "model", "i/hf@2", status=3)
        self.assertIn(f"{some.name}, in which model.safetensors.index.json has", ran.stderr)
        self.assertIsNone(self.world.version("i/hf", "2"))

    def test_a_folder_of_hugging_face_with_torch_files_is_taken_as_one(self):
        export(ZERO / "stage2", self.folder / "wanted")
        wanted = read(self.folder / "wanted")
        source = self.folder / "model"
        export(ZERO / "stage2", source, "--to", "torch", "--max-shard-size", "200B")
        # As the trainer's arguments, which ask for names of their own, it is no model file.
        shutil.copy(TORCH / "command.pt", source / "training_args.bin")
        told, shown = self.imported("hf", source, "i/hft@1")
        self.assertEqual((shown["format"], told["tensors"]), ("hf-torch", len(wanted) + 1))
        for name, (_, _, data) in wanted.items():
            self.assertEqual(self.restored("i/hft", name), data, name)
        self.assertEqual(self.restored("i/hft", "head.weight"), wanted["embed.weight"][2])
        _, tensors = self.both("i/hft@1", "hft")
        self.assertEqual(tensors, wanted)
        self.world.cairn("get", "i/hft@1", "-d", self.folder / "back")
        for path in source.iterdir():
            self.assertEqual((self.folder / "back" / path.name).read_bytes(), path.read_bytes())
        some = sorted(source.glob("pytorch_model-*.bin"))[1]
        some.unlink()
        ran = self.world.cairn("import", "hf", source, "i/hft@2", status=3)
        self.assertIn(f"{some.name}, in which pytorch_model.bin.index.json has", ran.stderr)
        self.assertIsNone(self.world.version("i/hft", "2"))

    def test_a_file_that_cannot_be_looked_into_is_left_out_by_its_name(self):
        source = self.folder / "own"
        export(ZERO / "stage2", source)
        shutil.copy(TORCH / "command.pt", source / "state.pt")
        self.world.cairn("put", source, "i/own@1", "--format", "torch")
        told, tensors = self.both("i/own@1", "own")
        self.assertEqual(tensors, read(source))
        why = {row["name"]: row["why"] for row in told["left_out"]}
        self.assertIn("posix.system", why["state.pt"])

    def test_what_is_another_thing_than_was_said_is_refused_before_anything_is_sent(self):
        for words, status, text in (
                (("torch", ZERO / "stage1", "i/none@1"), 2, "it is deepspeed-zero"),
                (("onnx", ZERO / "stage1", "i/none@1"), 2, "none of deepspeed, dcp"),
                (("torch", TORCH / "command.pt", "i/none@1"), 1, "posix.system"),
                (("deepspeed", ZERO / "stage1", "i/none"), 2, "names no step"),
                (("hf", self.folder, "i/none@1"), 1, "neither a DeepSpeed folder")):
            ran = self.world.cairn("import", *words, status=status)
            self.assertIn(text, ran.stderr)
        self.assertIsNone(self.world.version("i/none"))


if __name__ == "__main__":
    unittest.main()
