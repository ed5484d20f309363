# SPDX-License-Identifier: Apache-2.0
# ctest: seconds=15
"""Files of torch.save and DCP as people have them: views, unknown classes, old forms, damage. Each tensor
has the values that torch.load gives of it, or is named as left out; nothing of a pickle is run."""
import bz2
import collections
import datetime
import enum
import functools
import gzip
import io
import itertools
import json
import lzma
import os
import pickle
import random
import shutil
import struct
import subprocess
import tarfile
import unittest
import zipfile

import cases
import torch_files
from test_export import VECTORS, export, read
from test_stored_tensors import Case, Restored
from torch_files import (Call, Storage, dtensor, made, mesh_of, named, placed, save, save_dcp, save_legacy,
                         sharded_tensor, tensor)
from world import BIN, HANG_S

FLOATS = struct.pack("<6f", 0.0, 1.5, -2.25, 3.0, float("inf"), -5.0)


def inspect(path, *words, status=0):
    ran = subprocess.run([BIN / "cairn", "inspect", path, "--json", *words], capture_output=True, text=True,
                         timeout=HANG_S)
    if ran.returncode != status:
        raise AssertionError(f"{path}: exit {ran.returncode}: {ran.stdout}{ran.stderr}")
    return json.loads(ran.stdout) if not status else ran.stderr


def expect_whole(test, made, folder):
    """Each folder of tests/vectors/torch_ranks is exported to the tensors that its expected.json has."""
    expected = json.loads((made / "expected.json").read_text())
    test.assertEqual(sorted(expected), ["fsdp1", "fsdp2", "fsdp2-tp", "placed"])
    for kind, tensors in expected.items():
        out = folder / f"out-{kind}"
        told = json.loads(export(made / kind, out, "--json", "--optimizer", "--strict").stdout)
        found = {name: row[2].hex() for name, row in read(out).items()}
        found.update({name: found[of] for name, of in told["aliases"].items()})
        test.assertEqual(told["left_out"], [], kind)
        test.assertEqual(found, tensors, kind)


class Files(cases.Case):
    def setUp(self):
        self.number = itertools.count()

    def file(self, value, protocol=2):
        path = self.folder / f"file{next(self.number)}.pt"
        save(path, value, protocol)
        return path

    def exported(self, path, *words):
        """{name: (dtype, shape, bytes)}, and what the command said."""
        out = self.folder / f"out{next(self.number)}"
        ran = export(path, out, "--json", *words)
        return read(out), json.loads(ran.stdout)


class Views(Files):
    def test_conjugated_and_negated_views_of_every_type_are_what_they_stand_for(self):
        complex_of = {"complex64": "f", "complex128": "d"}
        state, wanted = {}, {}
        for dtype, letter in complex_of.items():
            numbers = [1.0, 2.0, -3.0, 0.0, 5.0, -6.0]
            data = Storage(dtype, struct.pack(f"<6{letter}", *numbers))
            for metadata, signs in (({"conj": True}, (1, -1)), ({"neg": True}, (-1, -1)),
                                    ({"conj": True, "neg": True}, (-1, 1)), ({"conj": False}, (1, 1))):
                name = dtype + "".join(metadata) + str(metadata.get("conj"))
                state[name] = tensor(dtype, (3,), data, **metadata)
                wanted[name] = struct.pack(f"<6{letter}", *(number * signs[i % 2] for i, number in enumerate(numbers)))
        for dtype, letter in (("float32", "f"), ("float64", "d"), ("float16", "e")):
            numbers = [0.0, 1.5, -2.25, float("inf")]
            state[dtype] = tensor(dtype, (2, 2), struct.pack(f"<4{letter}", *numbers), neg=True)
            wanted[dtype] = struct.pack(f"<4{letter}", *(-number for number in numbers))
        for dtype, letter in (("int64", "q"), ("int32", "i"), ("int16", "h"), ("int8", "b")):
            state[dtype] = tensor(dtype, (3,), struct.pack(f"<3{letter}", 0, 7, -9), neg=True)
            wanted[dtype] = struct.pack(f"<3{letter}", 0, -7, 9)
        state["uint8"] = tensor("uint8", (3,), bytes([0, 1, 200]), neg=True)
        wanted["uint8"] = bytes([0, 255, 56])
        state["bfloat16"] = tensor("bfloat16", (2,), b"\x80\x3f\x00\xc0", neg=True)
        wanted["bfloat16"] = b"\x80\xbf\x00\x40"
        state["float8_e4m3fn"] = tensor("float8_e4m3fn", (2,), b"\x38\xb8", neg=True)
        wanted["float8_e4m3fn"] = b"\xb8\x38"
        state["float8_e4m3fnuz"] = tensor("float8_e4m3fnuz", (3,), b"\x38\x80\x00", neg=True)
        wanted["float8_e4m3fnuz"] = b"\xb8\x80\x00"
        state["nothing"] = tensor("float32", (0,), b"", neg=True)
        wanted["nothing"] = b""
        state["real.conj"] = tensor("float32", (1,), struct.pack("<f", 2.5), conj=True)
        wanted["real.conj"] = struct.pack("<f", 2.5)
        for form in ("safetensors", "torch", "dcp"):
            out = self.folder / form
            export(self.file(state), out, "--to", form, "--copy-tied")
            back = out / "pytorch_model.bin" if form == "torch" else out
            found, _ = self.exported(back, "--copy-tied")
            self.assertEqual({name: row[2] for name, row in found.items()}, wanted, form)

    def test_the_imaginary_part_of_a_conjugate_is_strided_and_negated(self):
        data = Storage("float32", struct.pack("<8f", *range(8)))
        found, _ = self.exported(self.file({"imag": tensor("float32", (4,), data, (2,), 1, neg=True),
                                            "real": tensor("float32", (4,), data, (2,), 0)}))
        self.assertEqual(found["imag"][2], struct.pack("<4f", -1, -3, -5, -7))
        self.assertEqual(found["real"][2], struct.pack("<4f", 0, 2, 4, 6))

    def test_a_conjugate_is_no_alias_of_what_it_conjugates(self):
        data = Storage("complex64", struct.pack("<4f", 1, 2, 3, 4))
        state = {"x": tensor("complex64", (2,), data), "conjugate": tensor("complex64", (2,), data, conj=True),
                 "again": tensor("complex64", (2,), data, conj=True)}
        found, told = self.exported(self.file(state))
        self.assertEqual(told["aliases"], {"again": "conjugate"})
        self.assertEqual(found["conjugate"][2], struct.pack("<4f", 1, -2, 3, -4))
        self.assertEqual(found["x"][2], struct.pack("<4f", 1, 2, 3, 4))

    def test_metadata_of_a_tensor_that_is_not_known_is_refused_by_name(self):
        for metadata, words in (({"zero_tensor": True}, "zero_tensor"), ({"conj": 1}, "conj")):
            path = self.file({"layer.weight": tensor("float32", (6,), FLOATS, **metadata)})
            for ran in (export(path, self.folder / "out", status=1).stderr, inspect(path, status=1)):
                self.assertIn("layer.weight", ran)
                self.assertIn(words, ran)
        path = self.file({"flags": tensor("bool", (2,), b"\0\1", neg=True)})
        self.assertIn("flags", export(path, self.folder / "out", status=1).stderr)

    def test_views_of_any_strides_and_size_are_put_into_order(self):
        rows, columns = 1500, 1100  # 1,650,000 elements, each apart from the next; several windows
        numbers = range(rows * columns)
        data = Storage("float32", struct.pack(f"<{rows * columns}f", *numbers))
        small = Storage("int16", struct.pack("<120h", *range(120)))
        state = {"turned": tensor("float32", (columns, rows), data, (1, columns)),
                 "last": tensor("int16", (2, 3, 4, 5), small, (60, 1, 15, 3)),  # channels_last
                 "middle": tensor("int16", (2, 2, 4), small, (60, 15, 3), 1),
                 "repeated": tensor("int16", (3, 4), small, (0, 2)),
                 "overlapping": tensor("int16", (5, 4), small, (2, 1), 7)}
        path = self.file(state)
        found, _ = self.exported(path)
        turned = struct.unpack(f"<{rows * columns}f", found["turned"][2])
        self.assertEqual(turned[:3], (0.0, float(columns), float(2 * columns)))
        self.assertEqual(turned, tuple(float(r * columns + c) for c in range(columns) for r in range(rows)))
        words = lambda name: struct.unpack(f"<{len(found[name][2]) // 2}h", found[name][2])
        self.assertEqual(words("last"), tuple(60 * n + c + 15 * h + 3 * w for n in range(2) for c in range(3)
                                              for h in range(4) for w in range(5)))
        self.assertEqual(words("middle"), tuple(1 + 60 * i + 15 * j + 3 * k for i in range(2)
                                                for j in range(2) for k in range(4)))
        self.assertEqual(words("repeated"), (0, 2, 4, 6) * 3)
        self.assertEqual(words("overlapping"), tuple(7 + 2 * i + j for i in range(5) for j in range(4)))
        ran = subprocess.run([BIN / "cairn", "diff", path, self.folder / "out1", "--json"], capture_output=True,
                             text=True, timeout=HANG_S)
        self.assertTrue(json.loads(ran.stdout)["equal"], ran.stdout)


class Unknown(Files):
    def values(self):
        def instance(module, name, **members):
            return made(module, name, **members)

        kind = named("megatron.core.transformer.enums", "AttnBackend", enum.Enum("AttnBackend", {"auto": 5}))
        weights = tensor("float32", (6,), FLOATS)
        return {
            "collections.deque": collections.deque([1.0], maxlen=3),
            "datetime.date": datetime.date(2024, 1, 1),
            "datetime.timezone": datetime.datetime(2024, 1, 1, tzinfo=datetime.timezone.utc),
            "Ellipsis": ...,
            "range": range(3),
            "partial": functools.partial(int, "7"),
            "AttnBackend": kind.auto,
            "omegaconf.dictconfig.DictConfig": instance("omegaconf.dictconfig", "DictConfig", _content={"lr": 0.1}),
            "own.State": instance("own", "State", weights=weights, more=[weights, 7]),
            "own.Kind": named("own", "Kind"),
            "numpy._core.numeric._frombuffer": Call("numpy._core.numeric", "_frombuffer", bytearray(b"1234"), "<f4",
                                                    (1,), "C"),
            "torchao.quantized.Int8": Call("torch._utils", "_rebuild_wrapper_subclass",
                                           named("torchao.quantized", "Int8"), weights),
            "own.Tensor": Call("torch._tensor", "_rebuild_from_type_v2", named("torch._utils", "_rebuild_tensor_v2"),
                               named("own", "Tensor"), weights.arguments, {"scale": 2}),
            "torch.uint4": tensor("uint4", (4,), Storage("uint4", b"1234")),
        }

    def test_a_value_of_an_unknown_class_is_left_out_by_name_and_tensors_are_there(self):
        torch_files.WIDTHS["uint4"] = 1
        values = {name.replace(".", "/"): value for name, value in self.values().items()}
        for protocol in (2, 4):
            path = self.file({"w": tensor("float32", (6,), FLOATS), **values, "step": 3}, protocol)
            found, told = self.exported(path)
            self.assertEqual({key: row[2] for key, row in found.items()}, {"w": FLOATS})
            as_dcp = json.loads(export(path, self.folder / f"dcp{protocol}", "--json", "--to", "dcp").stdout)
            shown = inspect(path)
            self.assertEqual([row["name"] for row in shown["tensors"]], ["w"])
            self.assertIn("step", [row["name"] for row in shown["values"]])
            for rows in (told["left_out"], as_dcp["left_out"], shown["left_out"]):
                self.assertEqual([row["name"] for row in rows], list(values))
                for row in rows:
                    self.assertIn(row["name"].replace("/", "."), row["why"].replace("__builtin__.", ""))

    def test_maps_that_are_made_of_their_items_have_them(self):
        # Python 2 wrote an OrderedDict as the call of a list of pairs, a Counter is the call of a dict.
        pairs = [["w", tensor("float32", (6,), FLOATS)], ["inner", collections.Counter("aab")]]
        state = Call("collections", "OrderedDict", pairs)
        found, told = self.exported(self.file({"epoch": 3, "state_dict": state}))
        self.assertEqual({name: row[2] for name, row in found.items()}, {"state_dict.w": FLOATS})
        self.assertEqual(set(told["plain"]), {"epoch", "state_dict.inner.a", "state_dict.inner.b"})
        odd = Call("collections", "OrderedDict", [["w"]])
        _, told = self.exported(self.file({"w": tensor("float32", (6,), FLOATS), "odd": odd}))
        self.assertIn("odd", told["plain"])

    def test_a_text_that_is_no_unicode_is_left_out_by_name(self):
        for protocol in (2, 4):
            path = self.file({"w": tensor("float32", (6,), FLOATS), "path": b"a\xff".decode(errors="surrogateescape")}, protocol)
            found, told = self.exported(path)
            self.assertEqual({name: row[2] for name, row in found.items()}, {"w": FLOATS})
            self.assertEqual([row["name"] for row in told["left_out"]], ["path"])

    def test_a_file_without_a_tensor_says_what_is_left_out_of_it(self):
        said = export(self.file({"model": made("my.models", "Net")}), self.folder / "none", status=3).stderr
        self.assertRegex(said, r"file0.pt: there is no tensor; left out: model: .*my.models.Net")

    def test_tensors_in_an_unknown_value_are_counted(self):
        told = inspect(self.file({"state": self.values()["own.State"]}))
        self.assertEqual(told["left_out"], [{"name": "state", "class": "own.State", "why": "a value of own.State, a "
                                             "class that is not known, with 1 tensor in it"}])

    def test_many_values_of_unknown_classes_are_counted_in_text(self):
        values = {f"v{i:02}": collections.deque([i]) for i in range(30)}
        ran = export(self.file({"w": tensor("float32", (6,), FLOATS), **values}), self.folder / "out")
        self.assertEqual(ran.stderr.count("collections.deque"), 8)
        self.assertIn("left out: 30 values of classes that are not known", ran.stderr)

    def test_strict_refuses_an_unknown_class_by_name(self):
        path = self.file({"w": tensor("float32", (6,), FLOATS), "value": collections.deque()})
        out = self.folder / "out"
        other = self.file({"w": tensor("float32", (6,), FLOATS)})
        for words in (("export", path, out), ("inspect", path), ("diff", path, other)):
            ran = cases.run([BIN / "cairn", *map(str, words), "--strict"], status=1)
            self.assertIn("collections.deque", ran.stderr)
        self.assertFalse(out.exists())
        export(other, out, "--strict")

    def test_a_file_that_runs_code_is_refused_loudly_and_nothing_is_run(self):
        mark = self.folder / "ran"

        class Bad:
            def __init__(self, *call):
                self.call = call

            def __reduce__(self):
                return self.call

        for call, name in (((os.system, (f"touch {mark}",)), "posix.system"),
                           ((subprocess.Popen, (["touch", str(mark)],)), "subprocess.Popen"),
                           ((eval, (f"open({str(mark)!r}, 'w')",)), "eval"),
                           ((shutil.rmtree, (str(mark),)), "shutil.rmtree"),
                           ((pickle.loads, (b"N.",)), "pickle.loads")):
            path = self.file({"w": tensor("float32", (6,), FLOATS), "value": Bad(*call)}, 4)
            for ran in (inspect(path, status=1), export(path, self.folder / "out", status=1).stderr):
                self.assertIn(name, ran)
                self.assertIn("DO NOT LOAD IT", ran)
        self.assertFalse(mark.exists())
        for module, name in (("dill", "loads"), ("joblib", "load"), ("torch.storage", "_load_from_bytes"),
                             ("torch._inductor.codecache", "compile_file"), ("imaplib", "IMAP4_stream"),
                             ("torch.ops", "load_library"), ("numpy.ctypeslib", "load_library"),
                             ("telnetlib", "Telnet"), ("lib2to3.pgen2", "grammar"), ("numpy.testing", "runstring")):
            path = self.file({"w": tensor("float32", (6,), FLOATS), "value": Call(module, name, "x")})
            self.assertRegex(inspect(path, status=1), f"{module}.{name}.*DO NOT LOAD IT")

    def test_what_another_module_has_imported_runs_code_too(self):
        for module, name in (("torch.serialization", "os.system"), ("own.tools", "subprocess.Popen"),
                             ("own.tools", "__builtins__.eval"), ("own.tools", "Own.__init__.__globals__.get"),
                             ("builtins", "print.__class__.__base__.__subclasses__"),
                             ("builtins", "__getattribute__"), ("_operator", "methodcaller"), ("io", "FileIO")):
            path = self.folder / "dotted.pt"
            call = b"\x8c" + bytes([len(module)]) + module.encode() + b"\x8c" + bytes([len(name)]) + name.encode() + \
                b"\x93" + b"\x8c\x01x\x85R."
            with zipfile.ZipFile(path, "w") as archive:
                archive.writestr("archive/data.pkl", b"\x80\x04" + call)
                archive.writestr("archive/version", "3\n")
            self.assertRegex(inspect(path, status=1), f"{module}.{name}.*DO NOT LOAD IT")

    def test_methods_and_members_of_objects_are_left_out_by_name(self):
        take = lambda *what: Call("builtins", "getattr", *what)
        weights = tensor("float32", (6,), FLOATS)
        values = {"dict": take({"a": 1}, "get"), "str": take(",", "join"), "collections.OrderedDict": take(
            collections.OrderedDict, "fromkeys"), "own.Trainer": take(made("own", "Trainer", w=weights), "step"),
            "own.Config": take(take(named("own", "Config"), "Kind"), "small"),
            "own.Named": take(named("own", "Named"), "__new__"), "datetime.datetime": take(datetime.datetime, "now")}
        for protocol in (2, 4):
            path = self.file({"w": weights, **{name.replace(".", "/"): value for name, value in values.items()}}, protocol)
            found, told = self.exported(path)
            self.assertEqual({name: row[2] for name, row in found.items()}, {"w": FLOATS})
            self.assertEqual([row["name"].replace("/", ".") for row in told["left_out"]], list(values))
            for row in told["left_out"]:
                self.assertIn(row["name"].replace("/", "."), row["why"].replace("__builtin__.", ""))
            self.assertIn("with 1 tensor in it", told["left_out"][3]["why"])
            cases.run([BIN / "cairn", "inspect", path, "--strict"], status=1)
        for name in ("__subclasses__", "__class__", "__globals__"):
            path = self.file({"w": weights, "value": take(collections.OrderedDict, name)})
            self.assertIn("getattr", export(path, self.folder / "out", status=1).stderr)

    def test_values_that_hold_themselves_or_lie_too_deep_hide_no_tensors(self):
        weights, other = tensor("float32", (6,), FLOATS), tensor("float32", (1,), FLOATS[:4])
        itself, list_of_itself = {"w": other}, [1]
        itself["self"] = itself
        list_of_itself.append(list_of_itself)
        deep = {"k": other}
        for _ in range(70):
            deep = {"k": deep}
        path = self.file({"w": weights, "dict": itself, "list": list_of_itself, "deep": deep})
        for form in ("safetensors", "dcp"):
            found, told = self.exported(path) if form == "safetensors" else (None, json.loads(
                export(path, self.folder / form, "--json", "--to", form).stdout))
            if found:
                self.assertEqual({name: row[2] for name, row in found.items()}, {"w": FLOATS, "dict.w": FLOATS[:4]})
            rows = {row["name"].split(".k")[0]: row["why"] for row in told["left_out"]}
            self.assertEqual(set(rows), {"dict.self", "list", "deep"}, form)
            self.assertIn("holds itself", rows["dict.self"])
            self.assertIn("with 1 tensor among them", rows["deep"])
        self.assertEqual([row["name"] for row in inspect(path)["tensors"]], ["w", "dict.w"])

    def test_long_names_of_plain_values_hide_no_tensors(self):
        name = "a prompt " * 1000
        path = self.file({"w": tensor("float32", (6,), FLOATS), "cache": {name: 3}})
        found, told = self.exported(path)
        self.assertEqual({name: row[2] for name, row in found.items()}, {"w": FLOATS})
        self.assertEqual([row["name"] for row in told["left_out"]], [f"cache.{name}"])
        path = self.file({name: tensor("float32", (6,), FLOATS)})
        self.assertIn("its name has 9000 bytes", export(path, self.folder / "long", status=1).stderr)

    def test_a_name_with_a_nul_byte_is_never_cut(self):
        path = self.file({"w": tensor("float32", (6,), FLOATS), "a\0b": 3})
        found, told = self.exported(path)
        self.assertEqual(set(found), {"w"})
        self.assertEqual([(row["name"], "NUL" in row["why"]) for row in told["left_out"]], [("a?b", True)])
        path = self.file({"a\0b": tensor("float32", (6,), FLOATS)})
        for said in (inspect(path, status=1), export(path, self.folder / "nul", status=1).stderr):
            self.assertIn("tensor a?b: its name has a NUL byte", said)

    def test_tensors_without_data_are_named_as_left_out(self):
        meta = Call("torch._utils", "_rebuild_meta_tensor_no_storage", torch_files.Dtype("float32"), (2,), (1,), False)
        parameter = Call("torch._utils", "_rebuild_parameter", meta, True, collections.OrderedDict())
        path = self.file({"w": tensor("float32", (6,), FLOATS), "m": meta, "p": parameter})
        for told in (self.exported(path)[1], inspect(path),
                     json.loads(export(path, self.folder / "dcp", "--json", "--to", "dcp").stdout)):
            self.assertEqual([row["name"] for row in told["left_out"]], ["m", "p"])
            self.assertIn("meta device", told["left_out"][0]["why"])
            self.assertEqual(told.get("plain", []), [])

    def test_quantised_tensors_are_named_as_left_out(self):
        quantised = Call("torch._utils", "_rebuild_qtensor", Storage("qint8", b"\1\2\3\4"), 0, (4,), (1,),
                         (torch_files.Dtype("per_tensor_affine"), 0.1, 3), False, collections.OrderedDict())
        for write in (save, save_legacy):
            path = self.folder / f"{write.__name__}.pt"
            write(path, {"q": quantised, "w": tensor("float32", (6,), FLOATS)})
            found, told = self.exported(path)
            self.assertEqual({name: row[2] for name, row in found.items()}, {"w": FLOATS})
            self.assertEqual([row["name"] for row in told["left_out"]], ["q"])
            self.assertIn("quantised", told["left_out"][0]["why"])
            self.assertIn("q", [row["name"] for row in inspect(path)["values"]])


class Forms(Files):
    def test_the_form_before_1_6_is_read_in_every_protocol_that_torch_loads(self):
        state = {"w": tensor("float32", (2, 3), FLOATS), "large": 2 ** 80, "negative": -2 ** 70, "step": 3}
        for protocol in (1, 2, 3, 4, 5):
            path = self.folder / f"protocol{protocol}.pt"
            save_legacy(path, state, protocol)
            found, told = self.exported(path)
            self.assertEqual({name: row[2] for name, row in found.items()}, {"w": FLOATS}, protocol)
            self.assertEqual(sorted(told["plain"]), ["large", "negative", "step"])
            self.assertEqual(inspect(path)["format"], "torch-legacy")

    def test_a_module_in_the_form_before_1_6_hides_no_tensors(self):
        module = {name: made("torch.nn.modules.linear", "Linear", weight=tensor("float32", (6,), FLOATS))
                  for name in "ab"}
        path = self.folder / "module.pt"
        save_legacy(path, {"w": tensor("float32", (6,), FLOATS), "model": module})
        found, told = self.exported(path)
        self.assertEqual({name: row[2] for name, row in found.items()}, {"w": FLOATS})
        self.assertEqual([row["class"] for row in told["left_out"]], ["torch.nn.modules.linear.Linear"] * 2)

    def test_a_dcp_folder_of_torch_2_0_to_2_2_has_the_same_values(self):
        old = "torch.distributed._shard.sharded_tensor.metadata"
        chunks = {"w": ("float32", (2, 3), [((0, 0), tensor("float32", (2, 3), FLOATS))])}
        for properties in (old, torch_files.PROPERTIES):
            folder = self.folder / properties
            save_dcp(folder, chunks, {"step": 3}, properties)
            found, told = self.exported(folder, "--strict")
            self.assertEqual(found, {"w": ("F32", [2, 3], FLOATS)})
            self.assertEqual(told["plain"], ["step"])

    def test_pieces_of_dcp_that_are_transposed_or_conjugated_have_their_values(self):
        data = lambda first: struct.pack("<6h", *range(first, first + 6))
        chunks = {"turned": ("int16", (3, 4), [((0, 0), tensor("int16", (3, 2), data(0), (1, 3))),
                                              ((0, 2), tensor("int16", (3, 2), data(6)))]),
                  "last": ("int16", (1, 3, 2, 1), [((0, 0, 0, 0), tensor("int16", (1, 3, 2, 1), data(0),
                                                                          (6, 1, 3, 3)))]),
                  "conjugate": ("complex64", (1,), [((0,), tensor("complex64", (1,), struct.pack("<2f", 1, 2),
                                                                  conj=True))])}
        save_dcp(self.folder / "dcp", chunks)
        found, _ = self.exported(self.folder / "dcp")
        words = lambda name: struct.unpack(f"<{len(found[name][2]) // 2}h", found[name][2])
        self.assertEqual(words("turned"), (0, 3, 6, 7, 1, 4, 8, 9, 2, 5, 10, 11))
        self.assertEqual(words("last"), (0, 3, 1, 4, 2, 5))
        self.assertEqual(found["conjugate"][2], struct.pack("<2f", 1, -2))

    def test_a_value_of_dcp_of_an_unknown_class_is_left_out_by_name(self):
        chunks = {"w": ("float32", (6,), [((0,), tensor("float32", (6,), FLOATS))])}
        save_dcp(self.folder / "dcp", chunks, {"good": 3, "queue": collections.deque([1])})
        for words in ((), ("--to", "dcp")):
            out = self.folder / f"out{next(self.number)}"
            told = json.loads(export(self.folder / "dcp", out, "--json", *words).stdout)
            self.assertEqual([row["name"] for row in told["left_out"]], ["queue"], words)
            self.assertIn("collections.deque", told["left_out"][0]["why"])
        ran = export(self.folder / "dcp", self.folder / "strict", "--strict", status=1)
        self.assertIn("collections.deque", ran.stderr)

    def test_names_of_dcp_that_no_form_can_hold_hide_no_tensors(self):
        weights = ("float32", (6,), [((0,), tensor("float32", (6,), FLOATS))])
        long = "a prompt " * 1000
        save_dcp(self.folder / "dcp", {"w": weights}, {long: 3, "a\0b": 4, "step": 5})
        for words in ((), ("--to", "dcp")):
            told = json.loads(export(self.folder / "dcp", self.folder / f"out{len(words)}", "--json", *words).stdout)
            rows = {row["name"]: row["why"] for row in told["left_out"] if row["name"] != "step"}
            self.assertEqual(set(rows), {long, "a?b"})
            self.assertIn("NUL", rows["a?b"])
            self.assertEqual(told["tensors"], 1)
        save_dcp(self.folder / "nul", {"a\0b": weights})
        said = export(self.folder / "nul", self.folder / "none", status=1).stderr
        self.assertIn("tensor a?b: its name has a NUL byte", said)


class Packed(Files):
    def packed(self, value, level=zipfile.ZIP_DEFLATED):
        path = self.folder / f"packed{next(self.number)}.pt"
        save(path, value, compression=level)
        return path

    def test_a_file_that_a_zip_program_compressed_has_the_same_values(self):
        chosen = random.Random(5)
        texts = {"zeros": bytes(3000000), "noise": chosen.randbytes(200000), "few": bytes(chosen.choices(b"abc", k=700000)),
                 "runs": b"".join(bytes([i % 251]) * (i % 300) for i in range(6000)), "one": b"x", "none": b"",
                 "words": b" ".join(str(i).encode() for i in range(100000))}
        state = {name: tensor("uint8", (len(data),), data) for name, data in texts.items()}
        shared = Storage("float32", struct.pack("<2000f", *range(2000)))
        state["turned"] = tensor("float32", (40, 50), shared, (1, 40))
        path = self.packed(state)
        self.assertLess(path.stat().st_size, 1000000)
        plain, _ = self.exported(self.file(state))
        for words in ((), ("--workers", "1")):
            found, _ = self.exported(path, *words)
            self.assertEqual({name: row[2] for name, row in found.items() if name in texts}, texts)
            self.assertEqual(found, plain)
        self.assertEqual(len(inspect(path)["tensors"]), len(state))

    def test_a_packed_file_that_is_damaged_is_named(self):
        words = b" ".join(str(i).encode() for i in range(20000))
        path = self.packed({"w": tensor("uint8", (len(words),), words)})
        whole = path.read_bytes()
        begin = whole.index(b"archive/data/0") + 14
        for at in range(begin, begin + 20000, 1777):
            path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x10]) + whole[at + 1:])
            out = self.folder / f"out{next(self.number)}"
            ran = export(path, out, status=7)
            self.assertIn(f"{path.name}: zip entry archive/data/0", ran.stderr)
            self.assertFalse(out.exists() and list(out.iterdir()))


class Damage(Files):
    def damaged(self, value, at=b"\x00\x00\xc0\x3f", path=None):
        """A file in which a bit of the storage that has these bytes is another one."""
        path = path or self.file(value)
        data = bytearray(path.read_bytes())
        self.assertEqual(data.count(at), 1)
        data[data.index(at)] ^= 0x10
        path.write_bytes(data)
        return path

    def check(self, path, tensor_name, entry="data/0", file=None):
        out = self.folder / f"out{next(self.number)}"
        ran = export(path, out, status=7)
        for word in (tensor_name, entry, file or path.name):
            self.assertIn(word, ran.stderr)
        self.assertFalse(out.exists() and list(out.iterdir()))
        ran = cases.run([BIN / "cairn", "diff", path, path], status=7)
        self.assertIn(entry, ran.stderr)

    def test_a_storage_that_does_not_match_its_crc_is_named_with_file_entry_and_tensor(self):
        self.check(self.damaged({"a.weight": tensor("float32", (6,), FLOATS)}), "a.weight")

    def test_views_that_share_or_cut_a_storage_are_compared_all_the_same(self):
        data = Storage("float32", FLOATS)
        for state in ({"a": tensor("float32", (4,), data), "b": tensor("float32", (4,), data, offset=2)},
                      {"a": tensor("float32", (3, 2), data, (1, 3))},
                      {"a": tensor("float32", (3,), data, (2,)), "b": tensor("float32", (3,), data, (2,), 1)}):
            self.check(self.damaged(state), "tensor ")

    def test_a_large_transposed_storage_is_compared_by_several_threads(self):
        numbers = bytearray(struct.pack("<600000f", *range(600000)))
        numbers[4000:4004] = b"\x12\x34\x56\x78"
        state = {"turned": tensor("float32", (1000, 600), bytes(numbers), (1, 1000)),
                 "whole": tensor("float32", (6,), FLOATS)}
        self.exported(self.file(state))
        self.check(self.damaged(state, b"\x12\x34\x56\x78"), "turned")

    def test_a_piece_of_dcp_is_compared(self):
        save_dcp(self.folder / "dcp", {"w": ("float32", (6,), [((0,), tensor("float32", (6,), FLOATS))])})
        self.damaged(None, path=self.folder / "dcp" / "__0_0.distcp")
        self.check(self.folder / "dcp", "w", file="__0_0.distcp")

    def test_a_storage_with_padding_that_no_tensor_has_is_compared(self):
        data = Storage("float32", FLOATS)
        self.check(self.damaged({"a": tensor("float32", (4,), data)}), "tensor a")
        self.check(self.damaged({"b": tensor("float32", (4,), data, offset=1)}), "tensor b")

    def test_a_part_of_a_storage_is_read_without_the_rest(self):
        data = Storage("float32", FLOATS)
        path = self.damaged({"a": tensor("float32", (1,), data), "b": tensor("float32", (5,), data, offset=1)})
        found, _ = self.exported(path, "--only", "a")
        self.assertEqual(found["a"][2], FLOATS[:4])


class Ranks(Files):
    """Folders in which each rank wrote a file with its pieces of the tensors."""

    def folder_of(self, files):
        folder = cases.made(self.folder / f"ranks{next(self.number)}")
        for name, value in files.items():
            save(folder / name, value)
        return folder

    def test_what_torch_wrote_on_four_ranks_is_whole_again(self):
        expect_whole(self, VECTORS / "torch_ranks", self.folder)

    @staticmethod
    def rows(first, count, width=2):
        return struct.pack(f"<{count * width}h", *range(first * width, (first + count) * width))

    def piece(self, first, count, width=2):
        return tensor("int16", (count, width), self.rows(first, count, width))

    def test_the_pieces_of_a_mesh_are_put_together_as_torch_cut_them(self):
        # seven rows on four ranks: 2, 2, 2 and 1; the mesh as three releases of torch write it
        for form, module in (("axes", "torch.distributed.tensor"), ("shape", "torch.distributed.tensor._api"),
                             ("tensor", "torch.distributed._tensor.api")):
            files = {f"model_world_size_4_rank_{rank}.pt": {"w": dtensor(
                "int16", (7, 2), self.piece(2 * rank, min(2, 7 - 2 * rank)), mesh_of((4,), (rank,), form),
                [placed("Shard", 0)], module)} for rank in range(4)}
            for value in files.values():
                value["p"] = Call("torch._utils", "_rebuild_parameter", value["w"], True, collections.OrderedDict())
            found, told = self.exported(self.folder_of(files), "--strict", "--copy-tied")
            self.assertEqual(found, dict.fromkeys("wp", ("I16", [7, 2], self.rows(0, 7))), form)
            self.assertEqual(told["left_out"], [])

    def test_the_order_of_two_cuts_of_one_dimension_is_what_the_placements_say(self):
        # eight rows over a mesh of 2 x 2: (mesh place) -> the first row of its two
        orders = {
            "left to right": ([placed("Shard", 0), placed("Shard", 0)], {}, lambda x, y: 4 * x + 2 * y),
            "strided": ([placed("_StridedShard", 0, split_factor=2), placed("Shard", 0)], {},
                        lambda x, y: 4 * y + 2 * x),
            "by shard_order": ([placed("Shard", 0), placed("Shard", 0)],
                               {"shard_order": (Call("torch.distributed.tensor._dtensor_spec", "ShardOrderEntry", 0,
                                                     (1, 0)),), "use_strided_shard_as_shard_order": False},
                               lambda x, y: 4 * y + 2 * x)}
        for how, (placements, more, first) in orders.items():
            files = {f"rank{2 * x + y}.pt": {"w": dtensor("int16", (8, 2), self.piece(first(x, y), 2),
                                                         mesh_of((2, 2), (x, y)), placements, **more)}
                     for x in range(2) for y in range(2)}
            found, _ = self.exported(self.folder_of(files), "--strict")
            self.assertEqual(found["w"][2], self.rows(0, 8), how)

    def test_what_ranks_have_twice_counts_once_and_columns_are_boxes(self):
        columns = [struct.pack("<4h", *(3 * row + 2 * y for row in range(4))) if y else
                   struct.pack("<8h", *(3 * row + c for row in range(4) for c in range(2))) for y in range(2)]
        files = {f"rank_{2 * x + y}.pt": {"w": dtensor(
            "int16", (4, 3), tensor("int16", (4, 2 - y), columns[y]), mesh_of((2, 2), (x, y)),
            [placed("Replicate"), placed("Shard", 1)])} for x in range(2) for y in range(2)}
        found, _ = self.exported(self.folder_of(files))
        self.assertEqual(found["w"], ("I16", [4, 3], struct.pack("<12h", *range(12))))
        # a mesh that is a part of the job's: two ranks have the same place in it
        files = {f"rank_{rank}.pt": {"w": dtensor("int16", (4, 2), self.piece(2 * (rank % 2), 2),
                                                  mesh_of((2,), (rank % 2,)), [placed("Shard", 0)])}
                 for rank in range(4)}
        files["rank_4.pt"] = {"w": dtensor("int16", (4, 2), self.piece(0, 0), mesh_of((2,), None), [placed("Shard", 0)])}
        found, _ = self.exported(self.folder_of(files))
        self.assertEqual(found["w"][2], self.rows(0, 4))

    def test_sharded_tensors_of_fsdp_are_put_together_by_their_offsets(self):
        files = {f"ep1-ba7-rank{rank}.pt": {
            "w": sharded_tensor("int16", (5, 2), [((2 * rank, 0), (min(2, 5 - 2 * rank), 2),
                                                   self.piece(2 * rank, min(2, 5 - 2 * rank)))] if rank < 3 else []),
            "step": tensor("int64", (), struct.pack("<q", 7))} for rank in range(4)}
        found, told = self.exported(self.folder_of(files), "--strict")
        self.assertEqual(found["w"], ("I16", [5, 2], self.rows(0, 5)))
        self.assertEqual(found["step"][2], struct.pack("<q", 7))
        self.assertEqual(told["left_out"], [])

    def files_of(self, count=2, **first):
        return {f"model_world_size_{count}_rank_{rank}.pt": {"w": dtensor(
            "int16", (4, 2), self.piece(2 * rank, 2), mesh_of((2,), (rank,)), [placed("Shard", 0)]), **first}
            for rank in range(count)}

    def test_the_optimizers_state_is_taken_on_request_and_other_files_are_named(self):
        files = self.files_of()
        for rank in range(2):
            files[f"optim_world_size_2_rank_{rank}.pt"] = {
                "state": {0: {"exp_avg": dtensor("int16", (4, 2), self.piece(9 + 2 * rank, 2), mesh_of((2,), (rank,)),
                                                 [placed("Shard", 0)]), "step": tensor("int64", (), bytes(8))}},
                "param_groups": [{"lr": 0.5}]}
            files[f"extra_state_world_size_2_rank_{rank}.pt"] = {"rng": tensor("uint8", (1,), bytes([rank]))}
        folder = self.folder_of(files)
        found, told = self.exported(folder)
        self.assertEqual(list(found), ["w"])
        self.assertEqual([row["name"] for row in told["left_out"]],
                         sorted(name for name in files if not name.startswith("model")))
        self.assertIn("--optimizer", told["left_out"][-1]["why"])
        found, told = self.exported(folder, "--optimizer")
        self.assertEqual({name: row[2] for name, row in found.items()}, {
            "w": self.rows(0, 4), "optimizer.state.0.exp_avg": self.rows(9, 4), "optimizer.state.0.step": bytes(8)})
        self.assertEqual([row["name"] for row in told["left_out"]], [f"extra_state_world_size_2_rank_{i}.pt" for i in (0, 1)])
        self.assertIn("optimizer.param_groups.0.lr", json.dumps(told["plain"]))

    def test_a_rank_that_is_missing_and_pieces_that_do_not_fit_are_errors_by_name(self):
        def refused(files, status, *words):
            ran = cases.run([BIN / "cairn", "export", self.folder_of(files), self.folder / "no"], status=status)
            for word in words:
                self.assertIn(word, ran.stderr)
            self.assertFalse((self.folder / "no").exists())

        files = self.files_of()
        refused({name: files[name] for name in list(files)[:1]}, 3, "model_world_size_2_rank_1.pt is not there")
        files = {f"rank{i}.pt": value for i, value in zip((0, 2), files.values())}
        refused(files, 3, "rank1.pt is not there")
        wrong = self.files_of()
        wrong["model_world_size_2_rank_1.pt"]["w"] = dtensor("int16", (4, 2), self.piece(0, 1), mesh_of((2,), (1,)),
                                                             [placed("Shard", 0)])
        refused(wrong, 7, "model_world_size_2_rank_1.pt", "tensor w", "another shape")
        pieces = {f"rank{rank}.pt": {"w": sharded_tensor("int16", (4, 2), [((rank, 0), (2, 2), self.piece(0, 2))])}
                  for rank in range(2)}
        refused(pieces, 7, "w", "element")
        files = {f"{name}-rank{rank}.pt": {} for name in ("ema", "last") for rank in range(2)}
        refused(files, 7, "ema-rank0.pt", "last-rank0.pt")

    def test_what_cannot_be_placed_and_what_differs_is_left_out_by_name(self):
        files = self.files_of(same=tensor("int16", (2,), b"same"), twice=tensor("float32", (3,), FLOATS, (2,)))
        for rank, name in enumerate(files):
            files[name]["sum"] = dtensor("int16", (4, 2), self.piece(0, 4), mesh_of((2,), (rank,)), [placed("Partial")])
            files[name]["own"] = tensor("int16", (1,), struct.pack("<h", rank))
            files[name]["longer"] = tensor("int16", (rank + 1,), bytes(2 * rank + 2))
            files[name]["odd"] = dtensor("int16", (4, 2), self.piece(0, 4),
                                         made("torch.distributed.device_mesh", "DeviceMesh"), [placed("Shard", 0)])
        found, told = self.exported(self.folder_of(files))
        self.assertEqual({name: row[2] for name, row in found.items()}, {
            "w": self.rows(0, 4), "same": b"same", "twice": struct.pack("<3f", 0.0, -2.25, float("inf"))})
        why = {row["name"]: row["why"] for row in told["left_out"]}
        self.assertEqual(sorted(why), ["longer", "odd", "own", "sum"])
        for name, word in (("sum", "added up"), ("own", "differ"), ("longer", "differ"), ("odd", "mesh")):
            self.assertIn(word, why[name])

    def test_one_file_alone_names_its_pieces_and_says_what_to_give(self):
        folder = self.folder_of(self.files_of())
        told = inspect(folder / "model_world_size_2_rank_0.pt")
        self.assertEqual([(row["name"], row["class"]) for row in told["left_out"]],
                         [("w", "torch.distributed.tensor.DTensor")])
        self.assertIn("give the folder", told["left_out"][0]["why"])

    def test_a_piece_that_is_all_of_a_tensor_is_one_in_a_file_alone(self):
        whole = self.piece(0, 4)
        one = dtensor("int16", (4, 2), whole, mesh_of((1,), (0,)), [placed("Shard", 0)])
        copy = dtensor("int16", (4, 2), whole, mesh_of((2,), (1,)), [placed("Replicate")])
        part = dtensor("int16", (8, 2), whole, mesh_of((2,), (0,)), [placed("Shard", 0)])
        itself = dtensor("int16", (4, 2), None, mesh_of((1,), (0,)), [placed("Shard", 0)])
        itself.arguments[3][1]["_local_tensor"] = itself
        found, told = self.exported(self.file({
            "one": one, "copy": copy, "part": part, "itself": itself, "list": [one],
            "fsdp1": sharded_tensor("int16", (4, 2), [((0, 0), (4, 2), whole)])}), "--copy-tied")
        rows = "I16", [4, 2], self.rows(0, 4)
        self.assertEqual(found, {"one": rows, "copy": rows, "list.0": rows, "fsdp1": rows})
        self.assertEqual([row["name"] for row in told["left_out"]], ["part", "itself"])
        # a row of which all other ranks have none is one of a set all the same
        files = {f"rank{rank}.pt": {"w": dtensor("int16", (1, 2), self.piece(0, 1 - min(rank, 1)), mesh_of((3,), (rank,)),
                                                 [placed("Shard", 0)])} for rank in range(3)}
        self.assertEqual(self.exported(self.folder_of(files))[0], {"w": ("I16", [1, 2], self.rows(0, 1))})

    def test_damage_of_a_rank_is_found(self):
        folder = self.folder_of(self.files_of())
        path = folder / "model_world_size_2_rank_1.pt"
        data = bytearray(path.read_bytes())
        data[data.index(self.rows(2, 2))] ^= 1
        path.write_bytes(data)
        ran = cases.run([BIN / "cairn", "export", folder, self.folder / "no"], status=7)
        self.assertIn("model_world_size_2_rank_1.pt", ran.stderr)


class Messages(Files):
    def said(self, path, status):
        told = [inspect(path, status=status) if path.is_file() else "",
                export(path, self.folder / f"out{next(self.number)}", status=status).stderr]
        for said in filter(None, told):
            self.assertIn(path.name, said)
        return told[1]

    def test_what_is_no_checkpoint_is_called_what_it_is(self):
        pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 12345\n"
        for data, status, words in ((b"", 7, "an empty file"), (bytes(5000), 7, "zeros"), (pointer, 3, "git lfs pull"),
                                    (b"<html>not found</html>" * 9, 1, "neither a file of torch.save")):
            for name in ("model.pt", "model.safetensors", "pytorch_model.bin"):
                path = cases.file(self.folder / name, data)
                self.assertIn(words, self.said(path, status), (name, status))
        for name in ("model.safetensors.index.json", ".metadata"):
            folder = cases.made(self.folder / f"of{name}")
            for data, status, words in ((b"", 7, "an empty file"), (bytes(99), 7, "zeros"), (pointer, 3, "git lfs pull")):
                (folder / name).write_bytes(data)
                self.assertRegex(self.said(folder, status), f"{name}: .*{words}")

    def test_what_is_packed_is_called_that_and_to_be_unpacked_first(self):
        data = self.file({"w": tensor("float32", (6,), FLOATS)}).read_bytes()
        archive = io.BytesIO()
        with tarfile.open(fileobj=archive, mode="w") as tar:
            tar.addfile(tarfile.TarInfo("w"), io.BytesIO(b""))
        for packed, by, way in ((gzip.compress(data), "packed by gzip", "gunzip"), (lzma.compress(data), "packed by xz", "unxz"),
                                (bz2.compress(data), "packed by bzip2", "bunzip2"), (archive.getvalue(), "a tar archive", "tar -xf"),
                                (b"\x28\xb5\x2f\xfd" + bytes(300), "packed by zstd", "unzstd")):
            for name in ("model.pt.gz", "model.safetensors", "pytorch_model.bin"):
                said = self.said(cases.file(self.folder / name, packed), 1)
                self.assertRegex(said, f"it is {by}.*: unpack it first \\({way}")
        folder = cases.made(self.folder / "index")
        (folder / "model.safetensors.index.json").write_bytes(gzip.compress(data))
        self.assertRegex(self.said(folder, 1), "model.safetensors.index.json: it is packed by gzip.*unpack it first")

    def test_a_file_of_a_few_bytes_is_cut_short(self):
        path = self.folder / "model.safetensors"
        for size in range(1, 9):
            path.write_bytes(struct.pack("<Q", 56)[:size])
            self.assertIn(f"{size} bytes: it is cut short", self.said(path, 7))

    def test_a_file_of_dcp_that_was_never_written_is_named_with_what_it_is(self):
        save_dcp(self.folder / "dcp", {"w": ("float32", (6,), [((0,), tensor("float32", (6,), FLOATS))])})
        data = self.folder / "dcp" / "__0_0.distcp"
        size = data.stat().st_size
        for lost, status, words in ((bytes(size), 7, "zeros"), (b"", 7, "an empty file"),
                                    (b"version https://git-lfs.github.com/spec/v1\n", 3, "git lfs pull")):
            data.write_bytes(lost)
            self.assertRegex(self.said(self.folder / "dcp", status), f"w: its file __0_0.distcp: .*{words}")

    def test_a_torchscript_archive_is_called_one(self):
        path = self.file({"w": tensor("float32", (6,), FLOATS)})
        with zipfile.ZipFile(path, "a") as archive:
            archive.writestr("archive/constants.pkl", pickle.dumps(()))
        self.assertIn("TorchScript", self.said(path, 1))
        other = self.folder / "arrays.npz"
        with zipfile.ZipFile(other, "w") as archive:
            archive.writestr("w.npy", b"x")
        self.assertIn("torch.save did not write it", self.said(other, 1))

    def test_a_name_that_is_too_long_is_told_with_its_file(self):
        long = "m" * 1025
        for path in (cases.safetensors(self.folder / "long.safetensors", {long: ("F32", [6], FLOATS)}), self.file({long: tensor("float32", (6,), FLOATS)})):
            said = self.said(path, 1)
            self.assertIn("its name has 1025 bytes", said)
            self.assertNotIn("server", said)
        save_dcp(self.folder / "dcp", {long: ("float32", (6,), [((0,), tensor("float32", (6,), FLOATS))])})
        self.assertIn("tensor mmm", self.said(self.folder / "dcp", 1))

    def test_items_of_dcp_that_are_safetensors_are_called_that(self):
        save_dcp(self.folder / "dcp", {"w": ("float32", (6,), [((0,), tensor("float32", (6,), FLOATS))])})
        data = self.folder / "dcp" / "__0_0.distcp"
        header = b'{"w":{"dtype":"F32","shape":[6],"data_offsets":[0,24]}}'
        whole = struct.pack("<Q", len(header)) + header + FLOATS
        data.write_bytes(whole + bytes(data.stat().st_size - len(whole)))
        self.assertIn("safetensors", self.said(self.folder / "dcp", 1))

    def test_damage_and_what_is_missing_have_their_own_status(self):
        whole = self.file({"w": tensor("float32", (6,), FLOATS)})
        cut = cases.file(self.folder / "cut.pt", whole.read_bytes()[:-100])
        self.said(cut, 7)
        header = json.dumps({"w": {"dtype": "F32", "shape": [6], "data_offsets": [0, 24]}}).encode()
        short = cases.file(self.folder / "short.safetensors", struct.pack("<Q", len(header)) + header + FLOATS[:20])
        self.said(short, 7)
        save_dcp(self.folder / "dcp", {"w": ("float32", (7,), [((0,), tensor("float32", (6,), FLOATS))])})
        self.assertIn("hole", self.said(self.folder / "dcp", 7))
        (self.folder / "dcp" / "__0_0.distcp").rename(self.folder / "kept")
        self.said(self.folder / "dcp", 3)
        (self.folder / "dcp" / ".metadata").unlink()
        (self.folder / "kept").rename(self.folder / "dcp" / "__0_0.distcp")
        self.assertIn(".metadata (DCP) is not there", self.said(self.folder / "dcp", 3))


class Bounds(Files):
    def memory_of(self, *words):
        """MiB that the command had at most."""
        command = [BIN / "cairn", *map(str, words)]
        ran = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                               env={**os.environ, "ASAN_OPTIONS": "quarantine_size_mb=1"})
        said = ran.stderr.read()
        ran.stderr.close()
        _, status, usage = os.wait4(ran.pid, 0)
        ran.returncode = os.waitstatus_to_exitcode(status)
        return usage.ru_maxrss // 1024, ran.returncode, said

    def test_values_that_hold_each_other_2_60_times_take_bounded_memory(self):
        names, pairs = None, None
        for _ in range(60):
            names, pairs = {"a" * 20: names, "b" * 20: names}, (pairs, pairs)
        for value in (names, pairs, {"x": pairs}):
            path = self.file({"w": tensor("float32", (6,), FLOATS), "value": value})
            self.assertLess(path.stat().st_size, 4096)
            for words in (("inspect", path, "--json"), ("export", path, self.folder / f"out{next(self.number)}")):
                memory, status, said = self.memory_of(*words)
                self.assertLess(memory, 400, words)
                self.assertIn(status, (0, 2), said)
                self.assertIn("hold each other" if status else "value", said)


class Imports(Case, Restored):
    def test_damage_that_the_files_tell_of_is_refused_before_anything_is_sent(self):
        path = self.folder / "model.pt"
        for wrong, name in ((FLOATS, "a"), (b"only in a queue!", "data/1")):
            # bytes of a value whose class is not known are compared, too
            other = Call("own", "Queue", tensor("uint8", (16,), b"only in a queue!"))
            save(path, {"a": tensor("float32", (6,), FLOATS), "b": other})
            cases.flip(path, path.read_bytes().index(wrong) + 5)
            ran = self.world.cairn("import", "torch", path, "d/torch@1", status=7)
            self.assertIn(name, ran.stderr)
            self.assertIn("model.pt", ran.stderr)
        self.assertIsNone(self.world.version("d/torch"))

    def test_what_no_tensor_of_deepspeed_has_is_compared_too(self):
        # The bf16 weights of ZeRO, of which the fp32 masters are taken.
        shutil.copytree(VECTORS / "deepspeed" / "stage1", self.folder / "stage1")
        path = next(self.folder.glob("stage1/*/mp_rank_00_model_states.pt"))
        with zipfile.ZipFile(path) as archive:
            entry = max((row for row in archive.infolist() if "/data/" in row.filename), key=lambda row: row.file_size)
            taken = archive.read(entry)
        cases.flip(path, path.read_bytes().index(taken) + len(taken) // 2)
        ran = self.world.cairn("import", "deepspeed", path.parent, "d/zero@1", status=7)
        self.assertRegex(ran.stderr, f"{path.name}: zip entry {entry.filename} does not match its CRC-32")
        self.assertIsNone(self.world.version("d/zero"))

    def test_a_view_that_no_range_of_the_file_is_is_left_out_by_name(self):
        data = Storage("complex64", struct.pack("<4f", 1, 2, 3, 4))
        save(self.folder / "model.pt", {
            "plain": tensor("complex64", (2,), data), "conjugate": tensor("complex64", (2,), data, conj=True),
            "again": tensor("complex64", (2,), data, conj=True), "turned": tensor("float32", (3, 2), FLOATS, (1, 3)),
            "repeated": tensor("float32", (4,), FLOATS, (0,)), "value": collections.deque()})
        save(self.folder / "packed.pt", {"w": tensor("float32", (6,), FLOATS)}, compression=zipfile.ZIP_DEFLATED)
        told, _ = self.imported("torch", self.folder / "packed.pt", "v/packed@1")
        self.assertEqual([row["name"] for row in told["left_out"]], ["w"])
        self.assertIn("compressed", told["left_out"][0]["why"])
        told, _ = self.imported("torch", self.folder / "model.pt", "v/torch@1")
        self.assertEqual([row["name"] for row in told["left_out"]], ["conjugate", "again", "repeated"])
        self.assertIn("left out: conjugate", told["notes"])
        self.assertEqual(told["tensors"], 2)
        values = struct.unpack("<6f", FLOATS)
        self.assertEqual(self.restored("v/torch", "turned"), struct.pack("<6f", *(values[i] for i in (0, 3, 1, 4, 2, 5))))
        data = lambda first: struct.pack("<6h", *range(first, first + 6))
        save_dcp(self.folder / "dcp", {"w": ("int16", (3, 4), [
            ((0, 0), tensor("int16", (3, 2), data(0), (1, 3))), ((0, 2), tensor("int16", (3, 2), data(6)))])})
        self.imported("dcp", self.folder / "dcp", "v/dcp@1")
        self.assertEqual(struct.unpack("<12h", self.restored("v/dcp", "w")), (0, 3, 6, 7, 1, 4, 8, 9, 2, 5, 10, 11))

    def test_files_of_ranks_become_a_version_whose_tensors_are_whole(self):
        folder = cases.made(self.folder / "ranks")
        for rank in range(2):
            pieces = [dtensor("int16", (4, 2), tensor("int16", (4, 1), struct.pack("<4h", *range(rank, 8, 2))),
                              mesh_of((2,), (rank,)), [placed("Shard", 1)]) for _ in range(2)]
            save(folder / f"model_world_size_2_rank_{rank}.pt", {"w": pieces[0], "epoch": 3})
            save(folder / f"optim_world_size_2_rank_{rank}.pt", {"state": {0: {"exp_avg": pieces[1]}}, "lr": 0.5})
        told, _ = self.imported("torch", folder, "v/ranks@1")
        self.assertEqual((told["tensors"], told["left_out"]), (2, []))
        for name in ("w", "optimizer.state.0.exp_avg"):
            self.assertEqual(self.restored("v/ranks", name), struct.pack("<8h", *range(8)))
        for flags, names, plain in (([], ["w"], ["epoch"]), (["--optimizer"], ["optimizer.state.0.exp_avg", "w"],
                                                             ["epoch", "optimizer.lr"])):
            out = self.folder / f"out{len(flags)}"
            told = self.world.json("export", "v/ranks@1", out, *flags)
            self.assertEqual(sorted(read(out)), names)
            self.assertEqual(sorted(told["plain"]), plain)


if __name__ == "__main__":
    unittest.main()
