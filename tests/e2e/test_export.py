# SPDX-License-Identifier: Apache-2.0
# ctest: engines=again
"""`cairn export` over checkpoints that DeepSpeed and torch wrote: each value is what their own tools
say, nothing is left out in silence, and what is damaged leaves no file that looks complete."""
import json
import os
import pathlib
import pickle
import shutil
import struct
import subprocess
import unittest
import zipfile

import cases
from world import BIN, HANG_S

VECTORS = pathlib.Path(__file__).resolve().parents[1] / "vectors"
ZERO = VECTORS / "deepspeed"
EXPECTED = json.loads((ZERO / "expected.json").read_text())["cases"]
TORCH = json.loads((VECTORS / "torch" / "expected.json").read_text())["files"]["everything.pt"]


def export(*words, status=0):
    ran = subprocess.run([BIN / "cairn", "export", *map(str, words)], capture_output=True, text=True, timeout=HANG_S)
    if status is not None and ran.returncode != status:
        raise AssertionError(f"{words}: exit {ran.returncode}: {ran.stdout}{ran.stderr}")
    return ran


def read_file(path):
    """{name: (dtype, shape, bytes)}"""
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + size])
    header.pop("__metadata__", None)
    return {name: (row["dtype"], row["shape"],
                   data[8 + size:][row["data_offsets"][0]:row["data_offsets"][1]])
            for name, row in header.items()}


def read(folder):
    tensors = {}
    for path in sorted(folder.glob("*.safetensors")):
        tensors.update(read_file(path))
    return tensors


def as_fp32(dtype, data):
    """Hex of the same values as fp32, for what fp32 holds exactly."""
    if dtype == "F32":
        return data.hex()
    if dtype == "BF16":
        return b"".join(b"\0\0" + data[i:i + 2] for i in range(0, len(data), 2)).hex()
    return struct.pack(f"<{len(data) // 2}f", *struct.unpack(f"<{len(data) // 2}e", data)).hex()


def rounded(hexed, dtype):
    """The bytes of fp32 values, rounded as Python does it (fp16), or by hand (bf16)."""
    data = bytes.fromhex(hexed)
    if dtype == "F16":
        return struct.pack(f"<{len(data) // 4}e", *struct.unpack(f"<{len(data) // 4}f", data))
    words = struct.unpack(f"<{len(data) // 4}I", data)
    return struct.pack(f"<{len(words)}H", *((word + 0x7fff + (word >> 16 & 1)) >> 16 for word in words))


class TorchReader(pickle.Unpickler):
    """A file of torch.save without torch: each tensor as (type, shape, stride, storage, bytes)."""

    def __init__(self, archive, stem):
        super().__init__(archive.open(f"{stem}/data.pkl"))
        self.archive, self.stem = archive, stem

    def find_class(self, module, name):
        return {"_rebuild_tensor_v2": lambda *a: self.tensor(a[0][0], *a),
                "_rebuild_tensor_v3": lambda *a: self.tensor(a[6], *a),
                "OrderedDict": dict}.get(name, f"{module}.{name}")

    def persistent_load(self, pid):
        return pid[1], pid[2], pid[4]

    def tensor(self, kind, storage, offset, shape, stride, *_):
        with self.archive.open(f"{self.stem}/data/{storage[1]}") as file:
            file._expected_crc = None  # there is none, as where torch does not compute it
            data = file.read()
        return kind, list(shape), stride, storage[1], data[offset:]


class Export(cases.Case):
    def setUp(self):
        self.out = self.folder / "out"

    def copy(self, case):
        shutil.copytree(ZERO / case, self.folder / case)
        return self.folder / case / "step2"

    def test_what_deepspeed_merges_is_merged_to_the_same_values(self):
        self.assertEqual(len(EXPECTED), 6)
        for case, expected in EXPECTED.items():
            out = self.folder / case
            told = json.loads(export(ZERO / case, out, "--json").stdout)
            tensors = read(out)
            self.assertEqual(told["aliases"], {"head.weight": "embed.weight"})
            self.assertEqual(set(tensors) | {"head.weight"},
                             set(expected) | {"frozen.weight", "frozen.bias", "head.weight"})
            for name, (dtype, shape, data) in tensors.items():
                # Of frozen parameters DeepSpeed's tool leaves out those of stage 1.
                if name in expected:
                    self.assertEqual((shape, as_fp32(dtype, data)),
                                     (expected[name]["shape"], expected[name]["fp32"]), name)
            self.assertEqual([row["name"] for row in told["left_out"]], ["optimizer.state."])
            self.assertEqual(told["bytes"], sum(len(t[2]) for t in tensors.values()))
            # The same by the name of the folder that `latest` names.
            export(ZERO / case / "step2", self.folder / f"{case}-tag")
            self.assertEqual(read(self.folder / f"{case}-tag"), tensors)

    def test_a_universal_checkpoint_of_stage_3_has_shapes_and_what_was_not_trained(self):
        source = ZERO / "stage3_universal"
        told = json.loads(export(source, self.out, "--json").stdout)
        export(ZERO / "stage3", self.folder / "whole")
        self.assertEqual(read(self.out), read(self.folder / "whole"))
        self.assertEqual(told["format"], "deepspeed-universal")
        self.assertEqual(told["aliases"], {"head.weight": "embed.weight"})
        self.assertEqual([row["name"] for row in told["left_out"]], ["zero/optimizer_state.pt", "optimizer.state."])
        for words in (("--optimizer",), ("--exclude-frozen",)):
            export(source, self.folder / words[0], *words)
            export(ZERO / "stage3", self.folder / f"{words[0]}-whole", *words)
            wanted = read(self.folder / f"{words[0]}-whole")
            self.assertEqual(read(self.folder / words[0]),  # its steps are in optimizer_state.pt
                             {name: row for name, row in wanted.items()
                              if not name.endswith(".step")})
        folder = self.folder / "cut"
        shutil.copytree(source, folder)
        first, second = sorted(folder.glob("*/*_model_states.pt"))
        second.rename(self.folder / "kept")
        self.assertIn("fragments lack", export(folder, self.folder / "none", status=7).stderr)
        first.unlink()
        self.assertIn("zero_pp_rank_*_model_states.pt is there", export(folder, self.folder / "none", status=3).stderr)
        self.assertFalse((self.folder / "none").exists())

    def plain_file(self, value, protocol):
        """A file as torch.save writes it of a value without tensors."""
        path = self.folder / f"plain{protocol}.pt"
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("archive/data.pkl", pickle.dumps(value, protocol))
            archive.writestr("archive/version", b"3\n")
        return path

    def test_a_frozenset_stays_one(self):
        for protocol in (2, 4):
            for value in (frozenset({"a", 1}), {"b", 2}, frozenset(), set()):
                out = self.folder / f"{protocol}-{value}"
                export(self.plain_file({"f": value}, protocol), out, "--to", "dcp")
                with zipfile.ZipFile(out / "__0_0.distcp") as archive:
                    name, = (n for n in archive.namelist() if n.endswith("data.pkl"))
                    got = pickle.loads(archive.read(name))
                self.assertEqual((type(got), got), (type(value), value))

    def test_keys_that_are_no_text_have_the_names_that_dcp_gives_them(self):
        keys = [None, True, 0, -1, 2 ** 63, -2 ** 63 - 1, 2 ** 70, -2 ** 200, 10 ** 30, 2.5, 1e15,
                1e16, 0.0001, 1e-5, 123456.0, 1 / 3, 5e-324, 1.7976931348623157e308, float("inf"),
                float("-inf"), -1.5e-7, 3j, 1 + 2j, -0.5 - 1e22j, complex(-0.0, float("nan")), b"x", b"",
                b"a'b", b"\0\xff\"'\n\\", ("a", 1), (), (1,),
                ("it's", '"', "'\"", "\n\t\\\x01\x7f\xa0\u3000é日😀"), (None, (2.0, b"y")),
                frozenset(), frozenset({"a"}), frozenset({(1, 2)}), ""]
        value = {"s": {key: number for number, key in enumerate(keys)}, "": {"x": 1}}
        wanted = {"s." + str(key): number for number, key in enumerate(keys)}
        for protocol in (2, 4):
            ran = subprocess.run([BIN / "cairn", "inspect", "--json",
                                  self.plain_file(value, protocol)], capture_output=True)
            rows = {row["name"]: row["value"] for row in json.loads(ran.stdout)["values"]}
            self.assertEqual(rows, {**wanted, ".x": 1})

    def safetensors(self, tensors):
        return cases.safetensors(self.folder / "made.safetensors", tensors)

    def test_what_dtype_leaves_as_it_is_and_what_overflows_is_counted_and_named(self):
        one = struct.pack("<f", 1)
        large = struct.pack("<6f", 65519.9, 65520, -1e30, float("inf"), float("nan"), 3.4e38)
        source = self.safetensors({
            "w": ("F32", [6], large), "q": ("F8_E4M3", [2], b"ab"), "i": ("I64", [1], bytes(8)),
            "k": ("I64", [1], bytes(8)), "q_scale": ("F32", [1], one),
            "a.weight_scale_inv": ("F32", [1], one), "b.absmax": ("F32", [1], one),
            "b.quant_map": ("F32", [1], one), "c.SCB": ("F32", [1], one), "g.scales": ("F16", [1], b"\0\x3c"),
            "scaled": ("F32", [1], one), "d": ("F64", [2], struct.pack("<2d", 1e300, 2))})
        told = json.loads(export(source, self.out, "--dtype", "fp16", "--json").stdout)
        self.assertEqual({row["name"]: row["dtype"] for row in told["kept"]},
                         {"q": "F8_E4M3", "i": "I64", "k": "I64", "q_scale": "F32",
                          "a.weight_scale_inv": "F32", "b.absmax": "F32", "b.quant_map": "F32", "c.SCB": "F32"})
        self.assertEqual({row["name"]: row["elements"] for row in told["overflowed"]}, {"w": 3, "d": 1})
        tensors = read(self.out)
        self.assertEqual({name: row[0] for name, row in tensors.items()
                          if name not in {row["name"] for row in told["kept"]}},
                         {"w": "F16", "scaled": "F16", "d": "F16", "g.scales": "F16"})
        self.assertEqual(tensors["w"][2].hex(), "ff7b007c00fc007c007e007c")
        said = export(source, self.folder / "text", "--dtype", "fp16").stderr
        for text in ("kept as I64: 2 tensors, no float that is converted: such as i",
                     "kept as F32: 5 tensors, by its name a scale", "kept as F8_E4M3: 1 tensor",
                     "overflowed: w: 3 of its elements are too large for F16",
                     "overflowed: d: 1 of its elements"):
            self.assertIn(text, said)
        told = json.loads(export(source, self.folder / "bf16", "--dtype", "bf16", "--json").stdout)
        self.assertEqual(told["overflowed"], [{"name": "w", "elements": 1},  # 3.4e38
                                              {"name": "d", "elements": 1}])
        told = json.loads(export(source, self.folder / "keep", "--json").stdout)
        self.assertEqual((told["kept"], told["overflowed"]), ([], []))

    def test_names_lose_a_prefix_and_become_others(self):
        source = self.safetensors({name: ("U8", [1], bytes([i])) for i, name in enumerate(
            ("module.h.0.w", "module.h.1.w", "module.lm_head.weight", "other"))})
        export(source, self.out, "--strip-prefix", "module.", "--rename",
               "lm_head.weight=output.weight,h.*.w=layers.*.weight")
        self.assertEqual({name: row[2] for name, row in read(self.out).items()},
                         {"layers.0.weight": b"\0", "layers.1.weight": b"\1",
                          "output.weight": b"\2", "other": b"\3"})
        export(source, self.folder / "some", "--only", "module.h.*", "--rename", "*.w=*")
        self.assertEqual(set(read(self.folder / "some")), {"module.h.0", "module.h.1"})
        none = self.folder / "none"
        for words, text in (
                (("--strip-prefix", "model."), "no name begins so"),
                (("--rename", "x*=y*"), "no name is like it"),
                (("--rename", "other"), "it is OLD=NEW"), (("--rename", "a*=b"), "each with one *"),
                (("--strip-prefix", "other"), "other would have no name left"),
                (("--rename", f"*={'n' * 1020}*"), "would have a name of 1032 bytes"),
                (("--rename", "module.h.0.w=other"), "module.h.0.w and other would both be other"),
                (("--rename", "module.h.0*=x*,module.h.1*=x*"),
                 "module.h.0.w and module.h.1.w would both be x.w")):
            self.assertIn(text, export(source, none, *words, status=2).stderr)
            self.assertFalse(none.exists())
        # What is not written collides with nothing.
        export(source, self.folder / "one", "--only", "module.h.0.w", "--rename", "module.h.0.w=other")
        self.assertEqual(set(read(self.folder / "one")), {"other"})
        told = json.loads(export(ZERO / "stage2", self.folder / "state", "--optimizer", "--rename",
                                 "embed.weight=tok", "--json").stdout)
        self.assertEqual(told["aliases"], {"head.weight": "tok"})
        names = set(read(self.folder / "state"))
        self.assertIn("optimizer.state.tok.exp_avg", names)
        self.assertNotIn("optimizer.state.embed.weight.exp_avg", names)

    def test_a_file_url_is_a_path(self):
        source = self.folder / "a b%c"
        shutil.copytree(ZERO / "stage2", source)
        export(source.as_uri(), self.out.as_uri())
        export(source, self.folder / "plain")
        self.assertEqual(read(self.out), read(self.folder / "plain"))
        self.assertIn("three slashes", export("file://host/x", self.out, status=2).stderr)
        self.assertIn("NUL", export("file:///x%00y", self.out, status=2).stderr)

    def test_the_optimizers_state_is_cut_like_its_parameters(self):
        for case, expected in json.loads((ZERO / "optimizer.json").read_text())["cases"].items():
            told = json.loads(export(ZERO / case, self.folder / case, "--optimizer", "--json").stdout)
            tensors = {name: row for name, row in read(self.folder / case).items()
                       if name.startswith("optimizer.state.")}
            self.assertEqual(told["left_out"], [])
            # Of stage 3 the converter keeps no shape, and the step in another place.
            steps = {name for name in tensors if name.endswith(".step")}
            self.assertEqual(len(steps), 5)
            self.assertEqual(set(tensors) - steps, {n for n in expected if n not in steps})
            for name, (dtype, shape, data) in tensors.items():
                if name in steps:
                    self.assertEqual((dtype, shape, struct.unpack("<f", data)), ("F32", [], (2.0,)))
                    continue
                self.assertEqual((dtype, data.hex()), ("F32", expected[name]["fp32"]), name)
                whole = EXPECTED[case][name.removeprefix("optimizer.state.").rpartition(".")[0]]
                self.assertEqual(shape, whole["shape"])

    def test_frozen_parameters_are_left_out_by_name_where_it_is_known_which_they_are(self):
        for case in EXPECTED:
            told = json.loads(export(ZERO / case, self.folder / case, "--exclude-frozen", "--json",
                                     "--only", "[!l]*").stdout)
            self.assertEqual(set(read(self.folder / case)),
                             {"embed.weight", "first.weight", "first.bias", "scale"}, case)
            self.assertEqual({row["name"] for row in told["left_out"]},
                             {"frozen.weight", "frozen.bias", "optimizer.state."})
            self.assertEqual(told["filtered"], 2)
        self.refuse(VECTORS / "torch" / "everything.pt", 1, "--exclude-frozen", "torch", flags=["--exclude-frozen"])

    def test_a_torch_file_has_the_same_values_and_shares_what_is_tied(self):
        source = VECTORS / "torch" / "everything.pt"
        export(source, self.out, "--to", "torch")
        export(source, self.folder / "safe")
        wanted = read(self.folder / "safe")
        path = self.out / "pytorch_model.bin"
        with zipfile.ZipFile(path) as archive:
            tensors = TorchReader(archive, "pytorch_model").load()
            self.assertEqual(archive.read("pytorch_model/version"), b"3\n")
            for info in archive.infolist():
                with open(path, "rb") as file:  # data begin at multiples of 64
                    file.seek(info.header_offset + 26)
                    name, extra = struct.unpack("<HH", file.read(4))
                    self.assertEqual((info.header_offset + 30 + name + extra) % 64, 0, info.filename)
        self.assertEqual(set(tensors), set(wanted) | {"tied_again"})
        self.assertEqual(tensors["tied_again"], tensors["tied"])
        for name, (_, shape, data) in wanted.items():
            self.assertEqual((tensors[name][1], tensors[name][4]), (shape, data), name)
        self.assertEqual(tensors["every.BF16"][0], "torch.BFloat16Storage")
        self.assertEqual(tensors["every.F8_E4M3"][0], "torch.float8_e4m3fn")
        export(path, self.folder / "back")
        self.assertEqual(read(self.folder / "back"), wanted)

    def test_what_is_tied_is_copied_on_request(self):
        source = VECTORS / "torch" / "everything.pt"
        once = json.loads(export(source, self.folder / "once", "--json").stdout)
        wanted = read(self.folder / "once")
        for again, first in once["aliases"].items():
            wanted[again] = wanted[first]
        self.assertIn("tied_again", wanted)
        told = json.loads(export(source, self.out, "--copy-tied", "--json").stdout)
        self.assertEqual((read(self.out), told["aliases"]), (wanted, {}))
        self.assertEqual(told["bytes"], sum(len(t[2]) for t in wanted.values()))
        self.assertNotIn("another name", export(source, self.folder / "text", "--copy-tied").stderr)
        export(source, self.folder / "torch", "--copy-tied", "--to", "torch")
        with zipfile.ZipFile(self.folder / "torch" / "pytorch_model.bin") as archive:
            tensors = TorchReader(archive, "pytorch_model").load()
        self.assertEqual({name: tensor[4] for name, tensor in tensors.items()},
                         {name: tensor[2] for name, tensor in wanted.items()})
        self.assertEqual(len({tensor[3] for tensor in tensors.values()}), len(wanted))
        export(source, self.folder / "dcp", "--copy-tied", "--to", "dcp")
        export(self.folder / "dcp", self.folder / "back", "--copy-tied")
        self.assertEqual(read(self.folder / "back"), wanted)

    def test_torch_files_of_a_bounded_size_come_with_their_index(self):
        export(ZERO / "stage2", self.out, "--to", "torch", "--max-shard-size", "200B")
        index = json.loads((self.out / "pytorch_model.bin.index.json").read_text())["weight_map"]
        expected, seen = EXPECTED["stage2"], {}
        for path in sorted(self.out.glob("*.bin")):
            with zipfile.ZipFile(path) as archive:
                tensors = TorchReader(archive, path.stem).load()
            seen.update(tensors)
            self.assertEqual({index[name] for name in tensors}, {path.name})
        self.assertEqual(set(seen), set(expected))
        for name, (_, shape, _, _, data) in seen.items():
            if name != "scale" and not name.startswith("frozen."):
                self.assertEqual((shape, data.hex()), (expected[name]["shape"], expected[name]["fp32"]), name)
        self.assertEqual(index["head.weight"], index["embed.weight"])
        export(self.out, self.folder / "back")
        export(ZERO / "stage2", self.folder / "safe")
        self.assertEqual(read(self.folder / "back"), read(self.folder / "safe"))
        ran = export(ZERO / "stage2", self.folder / "no", "--to", "onnx", status=2)
        self.assertIn("safetensors, torch or dcp", ran.stderr)

    def test_floats_are_converted_with_correct_rounding(self):
        expected = EXPECTED["stage3"]
        for word, dtype in (("bf16", "BF16"), ("fp16", "F16"), ("fp32", "F32")):
            out = self.folder / word
            export(ZERO / "stage3", out, "--dtype", word)
            for name, (found, _, data) in read(out).items():
                self.assertEqual(found, dtype)
                wanted = expected[name]["fp32"]
                self.assertEqual(data, bytes.fromhex(wanted) if word == "fp32" else rounded(wanted, dtype), name)

    def test_files_of_a_bounded_size_come_with_their_index(self):
        export(ZERO / "stage2", self.out, "--max-shard-size", "200B")
        whole = self.folder / "whole"
        export(ZERO / "stage2", whole)
        index = json.loads((self.out / "model.safetensors.index.json").read_text())
        names = sorted(path.name for path in self.out.glob("*.safetensors"))
        self.assertGreater(len(names), 2)
        self.assertEqual(names[0], f"model-00001-of-{len(names):05}.safetensors")
        self.assertEqual(read(self.out), read(whole))
        self.assertEqual(sorted(set(index["weight_map"].values())), names)
        for name, file in index["weight_map"].items():
            self.assertIn(name, read_file(self.out / file))
        self.assertEqual(index["metadata"]["total_size"], sum(len(t[2]) for t in read(whole).values()))
        for name in names:
            held = read_file(self.out / name)
            self.assertTrue(len(held) == 1 or sum(len(t[2]) for t in held.values()) <= 200)

    def test_only_what_is_named_is_written_and_what_is_there_is_kept(self):
        told = json.loads(export(ZERO / "stage1", self.out, "--only", "l*", "--json").stdout)
        self.assertEqual(set(read(self.out)), {"last.weight", "last.bias"})
        self.assertEqual(told["filtered"], 7)
        export(ZERO / "stage1", self.folder / "head", "--only", "head*")
        self.assertEqual(read(self.folder / "head")["head.weight"][2].hex(), EXPECTED["stage1"]["embed.weight"]["fp32"])
        before = (self.out / "model.safetensors").read_bytes()
        ran = export(ZERO / "stage1", self.out, status=6)
        self.assertIn("model.safetensors already", ran.stderr)
        self.assertEqual((self.out / "model.safetensors").read_bytes(), before)
        ran = export(ZERO / "stage1", self.folder / "none", "--only", "nothing*", status=3)
        self.assertIn("nothing*", ran.stderr)
        ran = export(ZERO / "stage1", self.folder / "none", "--dtype", "int8", status=2)
        self.assertIn("int8", ran.stderr)
        self.assertFalse((self.folder / "none").exists())

    def test_a_torch_file_with_strides_and_shared_tensors(self):
        told = json.loads(export(VECTORS / "torch" / "everything.pt", self.out, "--json").stdout)
        tensors, expected = read(self.out), {row["name"]: row for row in TORCH["tensors"]}
        self.assertEqual(told["aliases"]["tied_again"], "tied")
        self.assertEqual(set(tensors) | set(told["aliases"]), set(expected))
        for name, (dtype, shape, data) in tensors.items():
            row = expected[name]
            self.assertEqual((dtype, shape, data.hex()), (row["dtype"], row["shape"], row["hex"]))
        # and of the safetensors file that was made
        again = self.folder / "again"
        export(self.out / "model.safetensors", again)
        self.assertEqual(read(again), tensors)

    def test_a_model_of_many_windows_is_the_same_with_any_number_of_workers(self):
        source = self.folder / "source.safetensors"
        header, at = {}, 0
        for i in range(40):
            header[f"layer.{i:02}"] = {"dtype": "F32", "shape": [250_000 + i],
                                       "data_offsets": [at, at + 4 * (250_000 + i)]}
            at += 4 * (250_000 + i)
        text = json.dumps(header).encode()
        numbers = struct.pack("<250040f", *((i * 0.37) ** 3 for i in range(250_040)))
        with open(source, "wb") as file:
            file.write(struct.pack("<Q", len(text)) + text)
            for i in range(40):
                file.write(numbers[:4 * (250_000 + i)])
        for workers in (1, 7):
            export(source, self.folder / f"w{workers}", "-j", workers, "--dtype", "bf16", "--max-shard-size", "9MB")
        self.assertEqual([path.read_bytes() for path in sorted((self.folder / "w1").iterdir())],
                         [path.read_bytes() for path in sorted((self.folder / "w7").iterdir())])
        for name, (dtype, shape, data) in read(self.folder / "w7").items():
            self.assertEqual(data, rounded(numbers[:4 * shape[0]].hex(), dtype), name)

    def test_every_byte_is_on_the_disk_before_a_file_has_its_name(self):
        calls = self.folder / "calls"
        cases.run(["strace", "-f", "-y", "-e", "trace=pwrite64,fdatasync,linkat", "-o", calls,
             BIN / "cairn", "export", ZERO / "stage2", self.out, "--max-shard-size", "200B"],
            env={**os.environ, "ASAN_OPTIONS": "detect_leaks=0"})
        lines = calls.read_text().splitlines()
        names = sorted(path.name for path in self.out.glob("*.safetensors"))
        self.assertGreater(len(names), 2)
        for name in names:
            def places(call):
                return [i for i, line in enumerate(lines) if call in line and f"{name}.part" in line]
            writes, syncs, links = places("pwrite64("), places("fdatasync("), places("linkat(")
            self.assertTrue(writes and syncs and links, name)
            self.assertLess(max(writes), min(syncs))
            self.assertLess(max(syncs), min(links))
        # and no name before all of them are there, the index last
        links = [i for i, line in enumerate(lines) if "linkat(" in line]
        self.assertLess(max(i for i, line in enumerate(lines) if "fdatasync(" in line
                            and ".safetensors.part" in line), min(links))
        self.assertIn("index.json.part", lines[max(links)])
        self.assertTrue([i for i, line in enumerate(lines) if "fdatasync(" in line
                         and "index.json.part" in line and min(links) < i < max(links)])

    # ---- what is damaged, missing or of another kind ----

    def refuse(self, source, status, *words, flags=()):
        ran = export(source, self.out, *flags, status=status)
        for word in words:
            self.assertIn(word, ran.stderr)
        self.assertEqual(list(self.out.glob("*")) if self.out.exists() else [], [])

    def test_a_file_that_is_cut_is_named_and_nothing_is_written(self):
        for case in ("stage2", "stage3"):
            folder = self.copy(case)
            for path in sorted(folder.glob("*.pt")):
                whole = path.read_bytes()
                for size in range(0, len(whole), len(whole) // 5):
                    path.write_bytes(whole[:size])
                    self.refuse(folder, 7, path.name)
                path.write_bytes(whole)

    def test_a_limit_of_file_sizes_is_named_with_the_way_out_and_nothing_is_left(self):
        said = cases.run(["bash", "-c", 'ulimit -f 1; exec "$@"', "limit", BIN / "cairn", "export",
                               self.copy("stage2").parent, self.out], status=1)
        self.assertIn("ulimit -f", said.stderr)
        self.assertEqual(list(self.out.iterdir()), [])

    def test_a_rank_that_is_missing_is_named(self):
        folder = self.copy("stage2")
        (folder / "bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt").unlink()
        self.refuse(folder, 7, "rank 1", "_optim_states.pt")
        folder = self.copy("stage1_fp32")
        (folder / "zero_pp_rank_2_mp_rank_00_optim_states.pt").unlink()
        self.refuse(folder, 7, "written by 3 ranks")
        folder = self.copy("stage3")
        (folder / "zero_pp_rank_1_mp_rank_00_model_states.pt").unlink()
        self.refuse(folder, 7, "model files")
        for path in folder.glob("*_model_states.pt"):
            path.unlink()
        self.refuse(folder, 7, "no file *_model_states.pt")

    def test_a_partition_of_another_checkpoint_does_not_fit(self):
        folder = self.copy("stage2")
        shutil.copy(ZERO / "stage3_subgroups" / "step2" / "bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt", folder)
        self.refuse(folder, 7, "bf16_zero_pp_rank_1")

    def test_parameters_use_their_partitions_up(self):
        for case, file in (("stage1", "mp_rank_00_model_states.pt"),
                           ("stage3", "zero_pp_rank_0_mp_rank_00_model_states.pt")):
            # The shape of the embedding, 11 x 7, becomes a smaller or a larger one.
            for rows, words in ((b"K\x01", "that no parameter uses"), (b"K\x1f", "partitions end")):
                folder = self.copy(case)
                with zipfile.ZipFile(folder / file) as whole:
                    entries = {name: whole.read(name) for name in whole.namelist()}
                with zipfile.ZipFile(folder / file, "w") as changed:
                    for name, data in entries.items():
                        if name.endswith("data.pkl"):
                            self.assertIn(b"K\x0bK\x07", data)
                            data = data.replace(b"K\x0bK\x07", rows + b"K\x07")
                        changed.writestr(name, data)
                self.refuse(folder, 7, words)
                shutil.rmtree(folder.parent)

    def test_what_is_cut_in_another_way_is_refused_and_not_left_out(self):
        for name, status, words in (
                ("mp_rank_01_model_states.pt", 7, "model parallel rank 1"),
                ("layer_03-model_01-model_states.pt", 7, "2 tensor parallel ranks"),
                ("layer_1_expert_2_mp_rank_00_model_states.pt", 7, "experts"),
                ("expert_2_mp_rank_00_model_states.pt", 1, "experts")):
            folder = self.copy("stage1")
            shutil.copy(folder / "mp_rank_00_model_states.pt", folder / name)
            self.refuse(folder, status, words)
            shutil.rmtree(folder.parent)

    def test_what_is_no_checkpoint_is_said(self):
        self.refuse(self.folder / "none", 3, "no such file or folder")
        self.refuse(self.folder, 1, "latest")
        (self.folder / "latest").write_text("../elsewhere\n")
        self.refuse(self.folder, 7, "latest")
        (self.folder / "latest").write_text("step9\n")
        self.refuse(self.folder, 3, "the folder in it that its file `latest` names is not there")
        self.refuse(VECTORS / "torch" / "command.pt", 1, "posix.system")


if __name__ == "__main__":
    unittest.main()
