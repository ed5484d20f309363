# SPDX-License-Identifier: Apache-2.0
# ctest: seconds=60 engines=again
"""Checkpoints of PyTorch's DCP, written by torch itself with FSDP2 and tensor parallelism: exported
and imported to the values of torch's own converter; what is damaged is named, and leaves nothing."""
import io
import json
import pickle
import shutil
import sys
import types
import unittest

from test_export import VECTORS, export, read
from test_stored_tensors import Case, Restored

DCP = VECTORS / "dcp"
EXPECTED = json.loads((DCP / "expected.json").read_text())["cases"]
DTYPES = {"float32": "F32", "int64": "I64", "bfloat16": "BF16"}


def wanted(case):
    return {name: (DTYPES[row["dtype"]], row["shape"], bytes.fromhex(row["bytes"]))
            for name, row in EXPECTED[case].items()}


class Size(tuple):
    pass


class Stub:
    """An instance of a class of torch, without torch."""

    def __new__(cls, *_):
        return super().__new__(cls)

    def __init__(self, *_):
        pass

    def __setstate__(self, state):
        self.__dict__ = state if isinstance(state, dict) else {"state": state}

    def __getstate__(self):
        return self.__dict__.get("state", self.__dict__)

    def __hash__(self):
        return id(self)


class Reader(pickle.Unpickler):
    def find_class(self, module, name):
        there = sys.modules.setdefault(module, types.ModuleType(module))
        if not hasattr(there, name):
            setattr(there, name, type(name, (Size if name == "Size" else Stub,),
                                      {"__module__": module, "__qualname__": name}))
        return getattr(there, name)


class Dcp(Case, Restored):
    def copy(self, case):
        shutil.copytree(DCP / case, self.folder / case)
        return self.folder / case

    def test_each_checkpoint_is_exported_to_what_torch_makes_of_it(self):
        self.assertEqual(len(EXPECTED), 4)
        for case in EXPECTED:
            told = json.loads(export(DCP / case, self.folder / case, "--json").stdout)
            self.assertEqual(told["format"], "torch-dcp")
            self.assertEqual(read(self.folder / case), wanted(case), case)
            self.assertEqual((told["left_out"], told["aliases"]), ([], {}))

    def test_each_checkpoint_restores_by_name_and_is_exported_from_the_store(self):
        for step, case in enumerate(EXPECTED):
            told, shown = self.imported("dcp", DCP / case, f"d/dcp@{step}")
            tensors = wanted(case)
            self.assertEqual((shown["format"], told["tensors"]), ("torch-dcp", len(tensors)))
            for name, (_, _, data) in tensors.items():
                self.assertEqual(self.restored("d/dcp", name), data, (case, name))
            _, found = self.both(f"d/dcp@{step}", case)
            self.assertEqual(found, tensors)

    def test_a_file_that_is_missing_or_cut_is_named_and_nothing_is_written(self):
        folder = self.copy("tensor_parallel")
        last = folder / "__1_0.distcp"
        whole = last.read_bytes()
        for size in [*range(0, len(whole), 4096), len(whole) - 1]:
            last.write_bytes(whole[:size])
            ran = export(folder, self.out, status=7)
            self.assertIn("__1_0.distcp", ran.stderr)
            self.assertFalse(self.out.exists())
        last.unlink()
        ran = export(folder, self.out, status=3)
        self.assertIn("__1_0.distcp is not there", ran.stderr)
        metadata = folder / ".metadata"
        whole = metadata.read_bytes()
        for size in [*range(0, len(whole), 4096), len(whole) - 1]:
            metadata.write_bytes(whole[:size])
            ran = export(folder, self.out, status=7)
            self.assertIn(".metadata", ran.stderr)
        self.assertFalse(self.out.exists())

    def test_a_piece_of_another_tensor_is_not_taken_for_it(self):
        """A metadata that exchanges the places of two tensors, of 6 x 8 elements and of 8 x 6."""
        folder = self.copy("single")
        path = folder / ".metadata"
        metadata = Reader(io.BytesIO(path.read_bytes())).load()
        keys = {key.fqn: key for key in metadata.storage_data}
        one, other = keys["model.first.weight"], keys["model.second.weight"]
        places = metadata.storage_data
        places[one], places[other] = places[other], places[one]
        path.write_bytes(pickle.dumps(metadata))
        ran = export(folder, self.out, status=7)
        self.assertIn("model.first.weight: its file holds another shape", ran.stderr)
        self.assertFalse(self.out.exists())

    def test_pieces_that_overlap_or_leave_a_hole_are_refused(self):
        folder = self.copy("fsdp_and_tensor_parallel")
        path = folder / ".metadata"
        whole = path.read_bytes()
        for what, edit in (("leave a hole", lambda chunks: chunks.pop()),
                           ("leave a hole", lambda chunks: chunks.pop(0)),
                           ("overlap", lambda chunks: chunks.append(chunks[0]))):
            metadata = Reader(io.BytesIO(whole)).load()
            edit(metadata.state_dict_metadata["model.second.weight"].chunks)
            path.write_bytes(pickle.dumps(metadata))
            ran = export(folder, self.out, status=7)
            self.assertIn("model.second.weight: its pieces " + what, ran.stderr)
            self.assertFalse(self.out.exists())
        metadata = Reader(io.BytesIO(whole)).load()
        path.write_bytes(pickle.dumps(metadata))
        export(folder, self.out)
        self.assertEqual(read(self.out), wanted("fsdp_and_tensor_parallel"))

    def test_a_metadata_that_asks_for_a_command_is_refused_with_its_name(self):
        class Command:
            def __reduce__(self):
                import os
                return os.system, ("touch " + str(self.path),)

        folder = self.copy("single")
        command = Command()
        Command.path = self.folder / "ran"
        (folder / ".metadata").write_bytes(pickle.dumps(command))
        ran = export(folder, self.out, status=1)
        self.assertIn("posix.system", ran.stderr)
        self.assertFalse((self.folder / "ran").exists())

    def test_a_flipped_byte_of_the_metadata_never_gives_other_values_in_silence(self):
        """Either it is refused, or no tensor of a name that is told has other bytes."""
        folder = self.copy("single")
        metadata = folder / ".metadata"
        whole = metadata.read_bytes()
        tensors = wanted("single")
        values = {data for _, _, data in tensors.values()}
        for place in range(0, len(whole), 37):
            data = bytearray(whole)
            data[place] ^= 0x20
            metadata.write_bytes(data)
            ran = export(folder, self.out, status=None)
            if ran.returncode:
                self.assertIn(ran.returncode, (1, 3, 7), (place, ran.stderr))
                self.assertFalse(self.out.exists() and list(self.out.iterdir()))
                continue
            for name, (_, _, found) in read(self.out).items():
                self.assertIn(found, values if name not in tensors else {tensors[name][2]}, (place, name))
            shutil.rmtree(self.out)


if __name__ == "__main__":
    unittest.main()
