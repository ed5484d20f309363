# SPDX-License-Identifier: Apache-2.0
# ctest: labels=torch seconds=20 rooms=python,client,uploader,server,cli,formats
"""`cairn export --to dcp` of what torch.save wrote has the names and kinds that torch.distributed.checkpoint gives of the
same state dict, and dcp.load gives its values back: tuples and sets of tensors are one object, lists are gone into."""
import argparse
import collections
import datetime
import decimal
import fractions
import json
import pathlib
import pickle
import shutil
import warnings
import zipfile

import package

warnings.filterwarnings("ignore")
Named = collections.namedtuple("Named", "a b")


def nested():
    """States by name, as programs may nest them."""
    import torch
    torch.manual_seed(1)
    t, shared, large = torch.arange(4.0), torch.arange(12.0).reshape(3, 4), torch.randn(64, 33)
    parameter = torch.nn.Parameter(torch.randn(3, 2))
    frozen = torch.nn.Parameter(torch.ones(2, dtype=torch.int8), requires_grad=False)
    leaf = torch.ones(3, requires_grad=True)
    return {
        "pair": (t, t), "one": (t.clone(),), "mixed": (1, "x", None, t.clone(), 2.5),
        "list of pairs": [1, (t, t)], "list of tensors": [t, (t, t), "x", [], [1]], "pairs": [(t, 1), (t, 2)],
        "map": {"a": (t, 1), "b": {"c": [(shared, {"k": shared})], "d": t}}, "list of maps": [{"a": (t,)}, {"b": 1}],
        "list in list": [[[t, (t,)]], [[1, (t,)]]], "maps in a pair": ({"a": t, "b": [t]}, {"c": {}}),
        "shared outside": shared, "shared inside": (shared, shared[0], shared.t()), "shared again": [shared[1:], (shared[1:],)],
        "parameters": (parameter, frozen, leaf), "parameter": parameter, "list of parameters": [parameter, frozen],
        "views": (large.t(), large[::3, 5:], large[:, 0], large.expand(2, 64, 33), large.view(-1)[7:9]),
        "signs": (torch.randn(3, dtype=torch.complex64).conj(), torch.randn(3, dtype=torch.complex128).conj().imag),
        "types": tuple(torch.arange(5).to(kind) for kind in (
            torch.bfloat16, torch.float16, torch.float64, torch.int8, torch.uint8, torch.bool, torch.int64, torch.complex64)),
        "set": {t, 1}, "frozenset": frozenset([shared]), "set of numbers": {1, 2}, "size": torch.Size([2, 3]),
        "empty": (), "empties": {"a": [], "b": {}, "c": [[]], "d": [{}], "e": ((), []), "f": [()], "h": [[{}]]},
        "no elements": (torch.empty(0, 3), torch.empty(2, 0)), "number": (torch.tensor(7), torch.tensor(2.5)),
        "ordered": collections.OrderedDict([("x", (t, 1)), ("y", [t])]), "counter": collections.Counter("aab"),
        "defaults": collections.defaultdict(list, {"x": [(t,)]}), "record": argparse.Namespace(a=t, b=(t, 1)),
        "sparse": (torch.eye(3).to_sparse(), torch.eye(3).to_sparse_csr()),
        "storage": torch.ones(3, dtype=torch.uint8).untyped_storage(), "list of storages": [torch.ones(2).storage(), 1],
        "deep": ((((((((((((t,),),),),),),),),),),),), "random": (torch.get_rng_state(), 7),
    }


def odd():
    """What DCP itself does not load into a nested state."""
    import torch
    t = torch.arange(4.0)
    import numpy
    keys = (..., NotImplemented, range(3), range(0, 9, 2), (range(2), ...), int, str, dict, type(None), torch.nn.Linear, torch.float32,
            torch.device("cuda", 1), torch.device("cpu"), torch.strided, torch.per_tensor_affine, datetime.date(2024, 1, 2),
            datetime.datetime(2024, 1, 2, 3, 4, 5, 6), datetime.timedelta(-1, 2, 3), datetime.time(1, 2), decimal.Decimal("1.50"),
            fractions.Fraction(1, 3), pathlib.PurePosixPath("/a/b"), numpy.int64(-3), numpy.uint8(250), numpy.bool_(True),
            numpy.float64(0.1))
    return {"keys": {1: (t,), (2, "x"): (t,), None: [t, (t,)], 3.5: t}, "kinds of keys": {key: t for key in keys}, "meta": (torch.empty(3, device="meta"), t),
            "empties": [[], {}, [{}]], "lists of maps": [{"a": (t,)}, {}, [{}], []]}


def newer():
    """Types that only the form since torch 1.6 has."""
    import torch
    return {"fp8": (torch.ones(3).to(torch.float8_e4m3fn), torch.ones(3).to(torch.float8_e5m2)),
            "unsigned": (torch.arange(3).to(torch.uint16), torch.arange(3).view(torch.uint64), [torch.arange(2).to(torch.uint32)]),
            "both": {"a": torch.arange(3).to(torch.uint16), "b": (torch.arange(3).to(torch.uint16),)}}


class Objects(package.Worlds):
    needs = ("torch", "numpy")

    def same(self, one, other, path):
        import torch
        if isinstance(other, torch.UntypedStorage):  # torch.load makes a typed one of it
            return self.assertEqual(list(one), list(other), path)
        self.assertIs(type(one), type(other), path)
        if torch.is_tensor(one):
            kind = [(value.dtype, value.shape, value.layout, value.device, value.requires_grad) for value in (one, other)]
            self.assertEqual(*kind, path)
            if one.layout != torch.strided:
                one, other = one.to_dense(), other.to_dense()
            if one.device.type != "meta":
                one, other = (value.detach().resolve_conj().resolve_neg().contiguous() for value in (one, other))
                self.assertTrue(torch.equal(one.view(torch.uint8) if one.dim() else one,
                                            other.view(torch.uint8) if other.dim() else other), path)
        elif isinstance(one, torch.TypedStorage):
            self.assertEqual(one.tolist(), other.tolist(), path)
        elif isinstance(one, argparse.Namespace):
            self.same(vars(one), vars(other), path)
        elif isinstance(one, dict):
            self.assertEqual(list(one), list(other), path)
            for key in one:
                self.same(one[key], other[key], f"{path}.{key}")
        elif isinstance(one, (list, tuple, set, frozenset)):
            self.assertEqual(len(one), len(other), path)
            if isinstance(one, (set, frozenset)):
                one, other = (sorted(value, key=lambda part: (str(type(part)), str(part))) for value in (one, other))
            for at, parts in enumerate(zip(one, other)):
                self.same(*parts, f"{path}.{at}")
        else:
            self.assertEqual(one, other, path)

    def kinds(self, folder):
        """{name: whether it is a tensor}"""
        found = pickle.loads((folder / ".metadata").read_bytes()).state_dict_metadata
        return {name: type(kind).__name__ for name, kind in found.items()}

    def export(self, source, *flags):
        out = self.folder / "out"
        shutil.rmtree(out, ignore_errors=True)
        told = json.loads(self.world.cairn("export", str(source), str(out), "--to", "dcp", "--json", *flags).stdout)
        return out, told

    def check(self, source, make):
        """What is made of a file or a version is what DCP makes of the state."""
        import torch
        import torch.distributed.checkpoint as dcp
        from torch.distributed.checkpoint._nested_dict import flatten_state_dict
        state, reference = make(), self.folder / "reference"
        shutil.rmtree(reference, ignore_errors=True)
        dcp.save(state, checkpoint_id=reference)
        out, told = self.export(source)
        self.assertEqual(told["left_out"], [])
        self.assertEqual(self.kinds(out), self.kinds(reference))
        items, _ = flatten_state_dict(state)
        loaded = {name: torch.zeros_like(value).detach().contiguous() if torch.is_tensor(value) else None
                  for name, value in items.items()}
        dcp.load(loaded, checkpoint_id=out)
        for name, value in items.items():
            value = value.detach() if torch.is_tensor(value) else value
            loaded[name] = type(value)(loaded[name]) if isinstance(value, torch.nn.Parameter) else loaded[name]
            self.same(loaded[name], value, name)
        if make is odd:
            return
        nested = make()  # of the same form, with other values
        for value in flatten_state_dict(nested)[0].values():
            if torch.is_tensor(value):
                value.detach().zero_()
        dcp.load(nested, checkpoint_id=out)
        self.same(nested, state, "")

    def test_names_and_kinds_are_those_of_dcp_and_the_values_are_loaded(self):
        import torch
        file = self.folder / "state.pt"
        for make in (nested, odd, newer):
            torch.save(make(), file)
            self.check(file, make)
        packed = self.folder / "packed.pt"
        torch.save(nested(), file)
        with zipfile.ZipFile(file) as entries, zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as into:
            for name in entries.namelist():
                into.writestr(name, entries.read(name))
        self.check(packed, nested)
        torch.save(nested(), file, _use_new_zipfile_serialization=False)
        self.check(file, nested)

    def test_versions_and_folders_of_model_files_have_the_same_objects(self):
        import torch
        file, folder = self.folder / "stored.pt", self.folder / "hf"
        folder.mkdir()
        for number, make in enumerate((nested, newer), 1):
            torch.save(make(), file)
            self.world.cairn("import", "torch", str(file), f"test/objects@{number}")
            self.check(f"test/objects@{number}", make)
        torch.save(nested(), folder / "pytorch_model.bin")
        self.check(folder, nested)
        self.world.cairn("import", "hf", str(folder), "test/hf@1")
        self.check("test/hf@1", nested)

    def test_what_is_in_an_object_is_one_memory_and_no_tensor_beside_it(self):
        import torch
        import torch.distributed.checkpoint as dcp
        file, t = self.folder / "shared.pt", torch.arange(6.0)
        torch.save({"s": (t, t.view(2, 3), t[4:]), "w": t, "v": t, "x": (t[:1],)}, file)
        out, told = self.export(file)
        self.assertEqual((told["tensors"], told["aliases"]), (1, {"v": "w"}))  # its bytes once, as by their names before
        state = {"s": None, "w": torch.zeros(6), "v": torch.zeros(6), "x": None}
        dcp.load(state, checkpoint_id=out)
        one, two, three = state["s"]
        one[4] = 9
        self.assertEqual((two[1, 1], three[0]), (9, 9))
        self.assertEqual((state["w"].tolist(), state["v"].tolist(), state["x"][0].tolist()), ([*range(6)], [*range(6)], [0]))
        for flags, names in ((("--only", "s*"), {"s"}), (("--rename", "s=pair,w=weight"), {"pair", "weight", "v", "x"}),
                             (("--copy-tied",), {"s", "w", "v", "x"})):
            self.assertEqual(set(self.kinds(self.export(file, *flags)[0])), names)
        for flags in (("--only", "s.0"), ("--rename", "s.0=y"), ("--rename", "s=w"), ("--strip-prefix", "s")):
            shutil.rmtree(out, ignore_errors=True)
            ran = self.world.cairn("export", str(file), str(out), "--to", "dcp", *flags, check=False)
            self.assertNotEqual(ran.returncode, 0, flags)
            self.assertFalse(out.exists())
        told = json.loads(self.world.cairn("export", str(file), str(self.folder / "st"), "--json").stdout)
        self.assertEqual((told["tensors"], told["plain"], told["left_out"]), (4, [], []))  # by their names, as ever

    def test_objects_with_tensors_fill_files_as_tensors_do(self):
        import torch
        file = self.folder / "large.pt"
        torch.save({"step": 1, **{f"s{at}": (torch.randn(300_000), at) for at in range(4)}, "end": 2}, file)
        for flags, files in (((), 1), (("--max-shard-size", "3MB"), 2)):  # 1.2 MB each
            out, told = self.export(file, *flags)
            self.assertEqual((told["files"], len(list(out.glob("*.distcp")))), (files, files))
            self.assertEqual(set(self.kinds(out)), {"step", "s0", "s1", "s2", "s3", "end"})

    def test_the_first_ranks_values_of_deepspeed_with_tensors_are_objects(self):
        import torch
        import torch.distributed.checkpoint as dcp
        source = self.folder / "zero"
        shutil.copytree(package.TREE / "tests" / "vectors" / "deepspeed" / "stage1", source)
        model, = source.glob("*/mp_rank_00_model_states.pt")
        saved = torch.load(model, weights_only=False)
        torch.save({**saved, "client": {"random": (torch.arange(5.0), 7)}}, model)
        out, _ = self.export(source)
        state = {"client.random": None}
        dcp.load(state, checkpoint_id=out)
        self.assertEqual((state["client.random"][0].tolist(), state["client.random"][1]), ([0, 1, 2, 3, 4], 7))

    def test_what_cannot_be_one_object_has_its_tensors_by_name_and_is_named(self):
        import torch
        file, t = self.folder / "apart.pt", torch.arange(4.0)
        turns = [t]
        turns.append((t, turns))
        large = torch.zeros(20 << 20)
        torch.save({"own": (t, Named(t, 1)), "turns": turns, "large": {str(at): (large[at:at + 1],) for at in range(10)}}, file)
        out, told = self.export(file)
        why = {row["name"]: row["why"] for row in told["left_out"]}
        self.assertIn("it needs __main__.Named", why["own"])
        self.assertIn("holds itself", why["turns.1"])
        kinds = self.kinds(out)
        self.assertEqual((kinds["own.0"], kinds["turns.0"]), ("TensorStorageMetadata",) * 2)
        apart = [at for at in range(10) if f"large.{at}.0" in kinds]
        self.assertEqual({f"large.{at}" for at in range(10) if at not in apart}, {name for name in kinds if name in
                         {f"large.{at}" for at in range(10)}})
        self.assertTrue(0 < len(apart) < 10, apart)  # 80 MiB each: together more than the file's four times and 256 MiB
        for at in apart:
            self.assertIn("since each value has its own copy", why[f"large.{at}"])
        self.assertEqual(kinds[f"large.{apart[0]}.0"], "TensorStorageMetadata")


if __name__ == "__main__":
    package.main()
