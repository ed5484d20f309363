# SPDX-License-Identifier: Apache-2.0
# ctest: engines=again
"""`cairn export --to dcp`: what it writes is read back to the same bytes, its objects too, and a
folder has its `.metadata` last. That torch itself reads it is e2e/torch."""
import argparse
import io
import json
import os
import shutil
import struct
import unittest
import zipfile

import cases
from test_dcp import DCP, Reader
from test_dcp import EXPECTED as DCP_CASES
from test_export import EXPECTED, VECTORS, ZERO, export, read
from test_stored_tensors import Case, Restored
from world import BIN

TORCH = VECTORS / "torch" / "everything.pt"


def metadata(folder):
    return Reader(io.BytesIO((folder / ".metadata").read_bytes())).load()


def items(folder):
    """{name: the bytes of its archive}"""
    return {key.fqn: (folder / place.relative_path).read_bytes()[place.offset:][:place.length]
            for key, place in metadata(folder).storage_data.items()}


def value(archive):
    """What torch.load gives of one that holds no tensor."""
    with zipfile.ZipFile(io.BytesIO(archive)) as opened:
        return Reader(opened.open("archive/data.pkl")).load()


def plain_values(folder):
    objects = {name for name, kind in metadata(folder).state_dict_metadata.items()
               if type(kind).__name__ == "BytesStorageMetadata"}
    return {name: value(data) for name, data in items(folder).items() if name in objects}


GROUP = {"lr": 0.001, "betas": (0.9, 0.999), "eps": 1e-08, "weight_decay": 0.01, "amsgrad": False,
         "maximize": False, "foreach": None, "capturable": False, "differentiable": False,
         "fused": None, "decoupled_weight_decay": True, "params": [0, 1, 2, 3]}
# Of everything.pt, as torch.distributed.checkpoint flattens it (tests/vectors/torch/make.py).
PLAIN = {**{f"optimizer.param_groups.0.{name}": told for name, told in GROUP.items()},
         "epoch": 3, "rate": 1e-3, "large": 2 ** 80, "negative": -70000, "text": 'caf\u00e9 "q"\n',
         "nothing": None, "yes": True, "no": False, "far": float("inf"), "size": (2, 3),
         "options": argparse.Namespace(depth=12, ratio=0.5), "list.0": 1, "list.1": 2,
         "list.2.0": 3, "pair": (1, "x"), "bytes": b"abc", "lists.k": [1], "7": "by number"}


def torch_file(path, pickled):
    """One of torch.save, its only storage of four fp32."""
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("archive/data.pkl", pickled)
        file.writestr("archive/byteorder", "little")
        file.writestr("archive/data/0", struct.pack("<4f", 1, 2, 3, 4))
        file.writestr("archive/version", "3\n")


def model(path, count, elements):
    """A safetensors file of that many fp32 tensors, each of one element more."""
    sizes = [4 * (elements + i) for i in range(count)]
    header = {f"layer.{i:02}": {"dtype": "F32", "shape": [size // 4],
                                "data_offsets": [sum(sizes[:i]), sum(sizes[:i + 1])]}
              for i, size in enumerate(sizes)}
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for size in sizes:
            file.write(os.urandom(4096) * (size // 4096) + os.urandom(size % 4096))


class ToDcp(cases.Case):
    def setUp(self):
        self.out = self.folder / "out"

    def there_and_back(self, source, *flags, back=()):
        """What export says of --to dcp; the values must be those of an export without it."""
        for name in ("out", "back", "direct"):
            shutil.rmtree(self.folder / name, ignore_errors=True)
        told = json.loads(export(source, self.out, "--to", "dcp", "--json", *flags).stdout)
        again = json.loads(export(self.out, self.folder / "back", "--json", *back).stdout)
        direct = json.loads(export(source, self.folder / "direct", "--json", *flags).stdout)
        self.assertEqual(again["format"], "torch-dcp")
        self.assertEqual(read(self.folder / "back"), read(self.folder / "direct"))
        written = items(self.out)
        self.assertEqual(again["aliases"], {name: of for name, of in direct["aliases"].items()
                                            if name in written and of in written})
        self.assertEqual((told["tensors"], told["bytes"]), (direct["tensors"], direct["bytes"]))
        return told

    def test_what_is_written_is_read_back_byte_for_byte(self):
        for source in (*(ZERO / case for case in EXPECTED), *(DCP / case for case in DCP_CASES), TORCH):
            told = self.there_and_back(source)
            self.assertEqual(sorted(path.name for path in self.out.iterdir()), [".metadata", "__0_0.distcp"])
            found = metadata(self.out)
            self.assertEqual(set(found.planner_data), set(found.state_dict_metadata))
            self.assertEqual({key.fqn for key in found.storage_data}, set(found.planner_data))
            for name in told["aliases"]:  # there by name, and its bytes once
                self.assertEqual(items(self.out)[name], items(self.out)[told["aliases"][name]])
            for place in found.storage_data.values():
                self.assertEqual(place.offset % 64, 0)

    def test_what_is_no_tensor_is_copied_as_it_is(self):
        for case in DCP_CASES:
            source = items(DCP / case)
            told = self.there_and_back(DCP / case)
            objects = [name for name, value in metadata(DCP / case).state_dict_metadata.items()
                       if type(value).__name__ == "BytesStorageMetadata"]
            self.assertEqual(len(objects), 14)
            written = items(self.out)
            for name in objects:
                self.assertEqual(written[name], source[name], name)
            self.assertEqual(told["left_out"], [])
        self.there_and_back(DCP / "single", "--only", "*step")
        self.assertIn("step", items(self.out))
        self.assertNotIn("note.text", items(self.out))

    def test_plain_values_of_torch_files_are_kept_by_the_names_that_dcp_gives_them(self):
        for name in ("everything.pt", "everything_legacy.pt"):
            told = self.there_and_back(VECTORS / "torch" / name)
            self.assertEqual((told["left_out"], told["plain"]), ([], []))
            found = plain_values(self.out)
            self.assertEqual(found.pop("type").__name__, "float16")
            self.assertEqual(found, PLAIN)
            for name, told in found.items():
                self.assertIs(type(told), type(PLAIN[name]) if name != "size" else type(told))
        export(TORCH, self.folder / "epoch", "--to", "dcp", "--only", "epoch*")
        self.assertEqual(plain_values(self.folder / "epoch"), {"epoch": 3})

    def test_forms_without_a_place_for_plain_values_name_each(self):
        for form in ("safetensors", "torch"):
            told = json.loads(export(TORCH, self.folder / form, "--to", form, "--json").stdout)
            self.assertEqual(set(told["plain"]), {*PLAIN, "type"})
            self.assertEqual(told["left_out"], [])
        ran = export(TORCH, self.out)
        self.assertIn(f"left out: {len(PLAIN) + 1} plain values, as optimizer.param_groups.0.lr;", ran.stderr)
        told = json.loads(export(TORCH, self.folder / "e", "--json", "--only", "e*").stdout)
        self.assertEqual(told["plain"], ["epoch"])
        for case in DCP_CASES:
            told = json.loads(export(DCP / case, self.folder / case, "--json").stdout)
            self.assertEqual((len(told["plain"]), told["left_out"]), (14, []))

    def test_the_first_ranks_plain_values_of_deepspeed_are_kept(self):
        for case in EXPECTED:
            told = self.there_and_back(ZERO / case)
            self.assertEqual(told["plain"], [])
            found = plain_values(self.out)
            self.assertEqual([found[name] for name in ("global_steps", "skipped_steps",
                                                       "ds_version", "ds_config.optimizer.type")],
                             [2, 0, "0.19.8", "Adam"])
            for name in found:  # what the merge has used is no value of its own
                self.assertNotIn(name.split(".")[0], ("module", "param_shapes", "buffer_names",
                                                      "shared_params", "frozen_param_shapes"))
            told = json.loads(export(ZERO / case, self.folder / case, "--json").stdout)
            self.assertEqual(set(told["plain"]), set(found))
            self.assertFalse({name for name in found if name.startswith("optimizer_state_dict.")})
            self.there_and_back(ZERO / case, "--optimizer")
            found = plain_values(self.out)
            rates = [found[name] for name in found if name.endswith("param_groups.0.lr")]
            self.assertEqual(rates, [0.01])
            self.assertIn("optimizer_state_dict.overflow", found)
            # Who loads it need not have DeepSpeed: an instance of its class is values by name.
            self.assertEqual(found["optimizer_state_dict.loss_scaler.dynamic"], False)
            for data in items(self.out).values():
                self.assertNotIn(b"deepspeed", data)

    def test_what_cannot_be_written_again_is_left_out_by_name(self):
        source = self.folder / "odd.pt"
        storage = (b"(X\x07\0\0\0storagectorch\nFloatStorage\nX\x01\0\0\0" b"0"
                   b"X\x03\0\0\0cpuK\x04tQ")
        tensor = (b"ctorch._utils\n_rebuild_tensor_v2\n(" + storage +
                  b"K\0K\x04\x85K\x01\x85\x89ccollections\nOrderedDict\n)RtR")
        torch_file(source, b"\x80\x02}(X\x01\0\0\0w" + tensor +
                   b"X\x06\0\0\0sparsectorch._utils\n_rebuild_sparse_tensor\n(K\x01" + tensor +
                   b"tRX\x04\0\0\0stepK\x05u.")
        for form in ("dcp", "safetensors"):
            told = json.loads(export(source, self.folder / form, "--to", form, "--json").stdout)
            why = {row["name"]: row["why"] for row in told["left_out"]}
            self.assertEqual(set(why), {"sparse"})
            self.assertIn("it holds a storage", why["sparse"])
        self.assertEqual(plain_values(self.folder / "dcp"), {"step": 5})

    def test_the_flags_of_export_mean_what_they_mean_elsewhere(self):
        self.there_and_back(ZERO / "stage3", "--dtype", "bf16")
        self.there_and_back(ZERO / "stage2", "--optimizer", "--only", "*last*")
        self.assertIn("optimizer.state.last.weight.exp_avg", items(self.out))
        told = self.there_and_back(ZERO / "stage3", "--exclude-frozen")
        self.assertIn("frozen.weight", {row["name"] for row in told["left_out"]})
        told = self.there_and_back(ZERO / "stage2", "--max-shard-size", "200B")
        files = sorted(path.name for path in self.out.glob("*.distcp"))
        self.assertEqual(files, [f"__0_{i}.distcp" for i in range(told["files"])])
        self.assertGreater(len(files), 2)
        # A further name whose tensor is not wanted has the bytes.
        self.there_and_back(ZERO / "stage1", "--only", "head*")

    def test_many_windows_are_the_same_with_any_number_of_workers(self):
        source = self.folder / "source.safetensors"
        model(source, 40, 250_000)
        for workers in (1, 7):
            told = self.there_and_back(source, "-j", workers, "--max-shard-size", "19MB")
            self.assertEqual(told["files"], 3)
            shutil.move(self.out, self.folder / f"w{workers}")
        for path in (self.folder / "w1").iterdir():
            self.assertEqual(path.read_bytes(), (self.folder / "w7" / path.name).read_bytes())

    def test_a_folder_gets_its_metadata_when_every_byte_is_on_the_disk(self):
        calls = self.folder / "calls"
        cases.run(["strace", "-f", "-y", "-e", "trace=pwrite64,fdatasync,linkat", "-o",
             calls, BIN / "cairn", "export", ZERO / "stage2", self.out, "--to", "dcp",
             "--max-shard-size", "200B"],
            env={**os.environ, "ASAN_OPTIONS": "detect_leaks=0"})
        lines = calls.read_text().splitlines()

        def places(call, name):
            return [i for i, line in enumerate(lines) if call in line and name in line]
        files = sorted(path.name for path in self.out.glob("*.distcp"))
        self.assertGreater(len(files), 2)
        last = min(places("linkat(", ".metadata"))
        for name in files:
            self.assertLess(max(places("pwrite64(", name)), min(places("fdatasync(", name)))
            self.assertLess(max(places("fdatasync(", name)), min(places("linkat(", name)))
            self.assertLess(max(places("linkat(", name)), last)

    def test_what_is_there_is_kept_and_what_fails_leaves_nothing(self):
        for name in (".metadata", "__0_0.distcp"):
            self.out.mkdir()
            (self.out / name).write_bytes(b"mine")
            ran = export(ZERO / "stage2", self.out, "--to", "dcp", status=6)
            self.assertIn(f"{name} already", ran.stderr)
            self.assertEqual([(path.name, path.read_bytes()) for path in self.out.iterdir()], [(name, b"mine")])
            shutil.rmtree(self.out)
        ran = export(ZERO / "stage2", self.out, "--to", "dpc", status=2)
        self.assertIn("it is safetensors, torch or dcp", ran.stderr)
        self.assertFalse(self.out.exists())
        said = cases.run(["bash", "-c", 'ulimit -f 1; exec "$@"', "limit", BIN / "cairn", "export", ZERO / "stage2",
                               self.out, "--to", "dcp"], status=1)
        self.assertIn("ulimit -f", said.stderr)
        self.assertEqual(list(self.out.iterdir()), [])

    def test_an_element_type_that_torch_lacks_is_named(self):
        source = cases.safetensors(self.folder / "source.safetensors", {"a.weight": ("F4", [8], b"1234")})
        ran = export(source, self.out, "--to", "dcp", status=1)
        self.assertIn("a.weight: torch has no element type F4", ran.stderr)
        self.assertFalse(self.out.exists())


class Stored(Case, Restored):
    def test_a_version_is_written_as_dcp_and_what_is_written_can_be_imported(self):
        self.world.cairn("import", "deepspeed", ZERO / "stage3", "t/zero@1")
        for number, where in enumerate(((), ("--store", self.world.store))):
            out = self.folder / f"dcp-{number}"
            self.world.cairn("export", "t/zero@1", out, "--to", "dcp", *where)
            export(out, self.folder / f"back-{number}")
            export(ZERO / "stage3", self.folder / f"direct-{number}")
            tensors = read(self.folder / f"direct-{number}")
            self.assertEqual(read(self.folder / f"back-{number}"), tensors)
        told, _ = self.imported("dcp", self.folder / "dcp-0", "t/again@1")
        self.assertEqual(told["tensors"], len(tensors) + 1)  # the tied one by both its names
        for name, (_, _, data) in tensors.items():
            self.assertEqual(self.restored("t/again", name), data, name)
        self.assertEqual(self.restored("t/again", "head.weight"), tensors["embed.weight"][2])

    def test_plain_values_of_an_imported_version_are_those_of_its_files(self):
        for kind, source in (("torch", TORCH), ("dcp", DCP / "single"), ("deepspeed", ZERO / "stage1")):
            self.world.cairn("import", kind, source, f"p/{kind}@1")
            export(source, self.folder / f"{kind}-direct", "--to", "dcp")
            direct = plain_values(self.folder / f"{kind}-direct")
            self.assertGreater(len(direct), 10)
            for number, where in enumerate(((), ("--store", self.world.store))):
                out = self.folder / f"{kind}-{number}"
                self.world.cairn("export", f"p/{kind}@1", out, "--to", "dcp", *where)
                found = plain_values(out)
                self.assertEqual(found.keys(), direct.keys())
                for name in found.keys() - {"type"}:
                    self.assertEqual(repr(found[name]), repr(direct[name]), (kind, name))


if __name__ == "__main__":
    unittest.main()
