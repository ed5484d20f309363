# SPDX-License-Identifier: Apache-2.0
# ctest: seconds=20 engines=again
"""Folders of model files as Hugging Face's libraries, torch's distributed checkpointing and trainers
of adapters leave them: which files are the model, what lies beside it, pieces, links, and the texts
in the headers."""
import json
import os
import shutil
import struct
import unittest

import cases
import torch_files
from test_export import export, read
from torch_files import Storage, tensor
from world import BIN, World

STEM = "diffusion_pytorch_model"


def floats(*values):
    return struct.pack(f"<{len(values)}f", *values)


def write(path, tensors, texts=None):
    """A safetensors file. tensors: {name: (shape, values)} of fp32; texts: its __metadata__."""
    cases.safetensors(path, {name: ("F32", shape, floats(*values)) for name, (shape, values) in tensors.items()}, texts)


def write_index(path, weight_map):
    path.write_text(json.dumps({"metadata": {"total_size": 0}, "weight_map": weight_map}))


def texts_of(path):
    data = path.read_bytes()
    return json.loads(data[8:8 + struct.unpack("<Q", data[:8])[0]]).get("__metadata__", {})


def one(*values):
    return [len(values)], values


def pieces(name, parts, folder, whole=None):
    """Files as HuggingFaceStorageWriter writes them: parts are (offsets, shape, values) by rank."""
    for rank, (offsets, shape, values) in enumerate(parts, 1):
        texts = {"DCP_VERSION": "1.0", "format": "pt",
                 "DCP_SHARDING_INFO": json.dumps({name: {"saved_offsets": offsets}})}
        tensors = {name: (shape, values)}
        if whole and rank == 1:
            tensors.update(whole)
        write(folder / f"shard-{rank:05}-model-00001-of-00001.safetensors", tensors, texts)


class Case(cases.Case):
    def setUp(self):
        self.source = cases.made(self.folder / "source")
        self.outs = 0

    def out(self):
        self.outs += 1
        return self.folder / f"out{self.outs}"

    def exported(self, *words, source=None):
        """{name: values' bytes}, and what the command says."""
        out = self.out()
        told = json.loads(export(source or self.source, out, "--json", *words).stdout)
        return {name: row[2] for name, row in read(out).items()}, told

    def refused(self, status, *texts, source=None):
        out = self.out()
        said = export(source or self.source, out, status=status).stderr
        for text in texts:
            self.assertIn(text, said)
        self.assertFalse(out.exists() and list(out.iterdir()))
        return said

    def left_out(self, told):
        return {row["name"]: row["why"] for row in told["left_out"]}


class Indexes(Case):
    def sharded(self, stem, end="safetensors", index=None):
        """Two files and their index; returns its path."""
        for number, name in enumerate("ab", 1):
            write(self.source / f"{stem}-0000{number}-of-00002.{end}", {name: one(number)})
        path = self.source / (index or f"{stem}.{end}.index.json")
        write_index(path, {name: f"{stem}-0000{number}-of-00002.{end}" for number, name in enumerate("ab", 1)})
        return path

    def test_an_index_of_any_name_decides_and_files_beside_it_are_left_out_by_name(self):
        for stem, index in (("model", None), (STEM, None), ("adapter_model", None),
                            ("consolidated", None), ("model.fp16", None),
                            ("model.fp16", "model.safetensors.index.fp16.json"),
                            (f"{STEM}.fp16", f"{STEM}.safetensors.fp16.index.json")):
            with self.subTest(index or stem):
                self.sharded(stem, index=index)
                write(self.source / "other.safetensors", {"x": one(9), "a": one(9)})
                write(self.source / f"{stem}-00003-of-00003.safetensors", {"c": one(9)})
                (self.source / "optimizer.pt").write_bytes(b"no matter")
                tensors, told = self.exported()
                self.assertEqual(tensors, {"a": floats(1), "b": floats(2)})
                self.assertEqual(set(self.left_out(told)),
                                 {"other.safetensors", f"{stem}-00003-of-00003.safetensors",
                                  "optimizer.pt"})
                said = export(self.source, self.out()).stderr
                self.assertIn("left out: other.safetensors: ", said)
                shutil.rmtree(self.source)
                self.source.mkdir()

    def test_a_file_that_an_index_names_and_that_is_not_there_is_named_with_a_tensor_of_it(self):
        index = self.sharded(STEM)
        missing = self.source / f"{STEM}-00002-of-00002.safetensors"
        missing.rename(self.folder / "kept")
        self.refused(3, missing.name, "tensor b", index.name)
        self.assertIn(missing.name, self.inspect(3))
        missing.with_name(missing.name + ".incomplete").write_bytes(b"half")
        self.refused(3, missing.name, "its download has not ended")
        write(missing, {"c": one(1)})
        self.refused(3, "tensor b is not in", missing.name)
        write_index(index, {"a": 1})
        self.refused(7, "the file of tensor a is no text")
        index.write_text("[]")
        self.refused(7, f"{index.name} has no weight_map")

    def inspect(self, status):
        ran = cases.run([BIN / "cairn", "inspect", self.source], status=status)
        return ran.stderr

    def test_a_tensor_is_taken_from_the_file_that_the_index_names_for_it(self):
        self.sharded("model")
        write(self.source / "model-00001-of-00002.safetensors", {"a": one(1), "b": one(7), "old": one(8)})
        tensors, told = self.exported()
        self.assertEqual(tensors, {"a": floats(1), "b": floats(2)})
        self.assertEqual(set(self.left_out(told)), {"b of model-00001-of-00002.safetensors",
                                                    "old of model-00001-of-00002.safetensors"})

    def test_what_a_file_ties_to_a_tensor_that_the_index_takes_elsewhere_keeps_its_own_values(self):
        shared = Storage("float32", floats(7, 8))
        torch_files.save(self.source / "m-1.bin", {"emb": tensor("float32", [2], floats(1, 2))})
        torch_files.save(self.source / "m-2.bin", {"emb": tensor("float32", [2], shared),
                                                   "head": tensor("float32", [2], shared),
                                                   "tail": tensor("float32", [2], shared)})
        write_index(self.source / "pytorch_model.bin.index.json",
                    {"emb": "m-1.bin", "head": "m-2.bin", "tail": "m-2.bin"})
        tensors, told = self.exported("--copy-tied")
        self.assertEqual(tensors, {"emb": floats(1, 2), "head": floats(7, 8), "tail": floats(7, 8)})
        self.assertEqual(set(self.left_out(told)), {"emb of m-2.bin"})

    def test_of_two_indexes_the_usual_one_decides_else_one_has_to_be_named(self):
        fp16 = self.sharded("consolidated")
        ema = self.sharded("ema")
        self.refused(2, fp16.name, ema.name, "name the one that is meant")
        tensors, told = self.exported(source=ema)
        self.assertEqual(len(tensors), 2)
        self.assertIn("consolidated-00001-of-00002.safetensors", self.left_out(told))
        write(self.source / "main.safetensors", {"m": one(3)})
        write_index(self.source / "model.safetensors.index.json", {"m": "main.safetensors"})
        tensors, _ = self.exported()
        self.assertEqual(tensors, {"m": floats(3)})
        # An index is named in a folder that is not this one, too, and without any folder.
        self.assertEqual(set(self.exported(source=os.path.relpath(ema))[0]), {"a", "b"})

    def test_without_an_index_names_in_parts_say_how_many_there_must_be(self):
        for stem in ("model", "anything"):
            with self.subTest(stem):
                for number in (1, 3):
                    write(self.source / f"{stem}-0000{number}-of-00003.safetensors", {f"t{number}": one(number)})
                self.refused(3, f"{stem}-00002-of-00003.safetensors is not there")
                write(self.source / f"{stem}-00002-of-00003.safetensors", {"t2": one(2)})
                self.assertEqual(set(self.exported()[0]), {"t1", "t2", "t3"})
                shutil.rmtree(self.source)
        for number in range(2):
            write(self.source / f"x-{number}-of-2.safetensors", {f"t{number}": one(number)})
        self.assertEqual(set(self.exported()[0]), {"t0", "t1"})
        shutil.rmtree(self.source)
        for form in ("m_{}_of_{}", "m.{}-of-{}", "m-part{}-of-{}", "{}-of-{}", "m-{}_of_{}", "m-{}-of-{}"):
            for pad, count in (("05", 2), ("", 11)):
                with self.subTest(form, pad=pad):
                    name = (form.replace("{}", f"{{:{pad}}}") + ".safetensors").format
                    for number in range(1, count + 1):
                        write(self.source / name(number, count), {f"t{number}": one(number)})
                    self.assertEqual(len(self.exported()[0]), count)
                    (self.source / name(2, count)).unlink()
                    said = self.refused(3, "is not there")
                    self.assertTrue(name(2, count) in said or form.format("02", count) in said, said)
                    shutil.rmtree(self.source)
        write(self.source / "m-00001-of-00002.safetensors", {"t1": one(1)})
        (self.source / "m-00002-of-00002.safetensors.4f2a.incomplete").write_bytes(b"half")
        self.refused(3, "m-00002-of-00002.safetensors is not there, its download has not ended")

    def test_files_of_two_sets_are_not_one_model(self):
        for name in ("model-00001-of-00002", "model-00002-of-00002"):
            write(self.source / f"{name}.safetensors", {name: one(1)})
        for other in ("model-00001-of-00001", "model-00003-of-00003", "model-1-of-2"):
            write(self.source / f"{other}.safetensors", {other: one(2)})
            self.refused(2, f"{other}.safetensors", "are of two sets")
            (self.source / f"{other}.safetensors").unlink()
        write(self.source / "model-00003-of-00002.safetensors", {"c": one(3)})
        self.refused(2, "model-00003-of-00002.safetensors: there is no number 3 of 2")
        write_index(self.source / "model.safetensors.index.json",
                    {name: f"{name}.safetensors" for name in ("model-00001-of-00002", "model-00002-of-00002")})
        self.assertEqual(set(self.exported()[0]), {"model-00001-of-00002", "model-00002-of-00002"})

    def test_variants_of_a_set_are_not_one_model(self):
        for stem, tail in (("model", ".safetensors"), ("model.fp16", ".safetensors"), ("model", ".fp16.safetensors")):
            for number in (1, 2):
                name = f"{stem}-0000{number}-of-00002{tail}"
                write(self.source / name, {f"{stem}{tail}.{number}": one(number)})
        both = sorted(path.name for path in self.source.iterdir())
        self.refused(2, both[0], both[1], "are of two variants", "to a folder of their own")
        other = cases.made(self.folder / "other")
        for path in self.source.glob("*.fp16.safetensors"):
            path.rename(other / path.name)
        self.refused(2, "model-00001-of-00002.safetensors", "model.fp16-00001-of-00002.safetensors", "two variants")
        for path in self.source.glob("model.fp16*"):
            path.rename(other / path.name)
        self.assertEqual(set(self.exported()[0]), {"model.safetensors.1", "model.safetensors.2"})
        # Sets of other names are parts of the model, as all files are.
        write(self.source / "model-head-00001-of-00001.safetensors", {"head": one(1)})
        self.assertEqual(len(self.exported()[0]), 3)

    def test_names_in_capitals_are_known(self):
        names = [f"MODEL-0000{number}-OF-00002.SAFETENSORS" for number in (1, 2)]
        write(self.source / names[0], {"a": one(1), "old": one(8)})
        self.refused(3, f"{names[1]} is not there")
        write(self.source / names[1], {"b": one(2)})
        self.assertEqual(set(self.exported()[0]), {"a", "b", "old"})
        index = self.source / "MODEL.SAFETENSORS.INDEX.JSON"
        write_index(index, {"a": names[0], "b": names[1]})
        write(self.source / "OTHER.SAFETENSORS", {"x": one(9)})
        tensors, told = self.exported()
        self.assertEqual(tensors, {"a": floats(1), "b": floats(2)})
        self.assertEqual(set(self.left_out(told)), {"OTHER.SAFETENSORS", f"old of {names[0]}"})
        self.assertEqual(set(self.exported(source=index)[0]), {"a", "b"})
        write_index(self.source / "model.safetensors.index.json", {"x": "OTHER.SAFETENSORS"})
        self.assertEqual(set(self.exported()[0]), {"x"})

    def test_a_file_of_an_index_may_be_written_with_its_own_folder(self):
        for name in ("a", "b"):
            write(self.source / f"{name}.safetensors", {name: one(1)})
        write_index(self.source / "model.safetensors.index.json", {"a": "./a.safetensors", "b": ".//./b.safetensors"})
        tensors, told = self.exported()
        self.assertEqual(set(tensors), {"a", "b"})
        self.assertEqual(told["left_out"], [])

    def test_an_index_that_cannot_be_read_is_named_with_the_cause(self):
        write(self.source / "m.safetensors", {"w": one(1)})
        name = "m.safetensors.index.json"
        for content, status, text in ((b"", 7, "an empty file"), (b"\0" * 64, 7, "begins with zeros"),
                                      (b"version https://git-lfs.github.com/spec/v1\n", 3, "git-lfs"),
                                      (b'\xef\xbb\xbf{"weight_map": {}}', 7, "is no JSON: line 1"),
                                      (b'{"weight_map": {"w": "m.safetensors"}} x', 7, "is no JSON: line 1")):
            (self.source / name).write_bytes(content)
            self.refused(status, f"{self.source}: {name}", text)

    def test_an_index_that_names_a_file_of_another_folder_says_so(self):
        write(self.source / "weights" / "a.safetensors", {"a": one(1)})
        for name in ("weights/a.safetensors", "../a.safetensors"):
            write_index(self.source / "model.safetensors.index.json", {"a": name})
            self.refused(1, name, "is of another folder")

    def test_a_download_that_has_not_ended_is_named(self):
        write(self.source / "a.safetensors", {"a": one(1)})
        half = cases.file(self.source / "b.safetensors.4f2a.incomplete", b"half")
        self.refused(3, "b.safetensors is not there", half.name)
        write(self.source / "b.safetensors", {"b": one(1)})
        self.assertEqual(set(self.exported()[0]), {"a", "b"})
        for end in (".part", ".partial", ".crdownload", ".download", ".aria2"):
            half = cases.file(self.source / f"c.safetensors{end}", b"half")
            self.refused(3, "c.safetensors is not there", half.name)
            half.unlink()
        # aria2 makes a file as long as it is to be, and fills it from several places.
        half = cases.file(self.source / "b.safetensors.aria2", b"half")
        self.refused(3, "b.safetensors is not whole", half.name)
        self.refused(3, "its download has not ended", half.name, source=self.source / "b.safetensors")
        write_index(self.source / "model.safetensors.index.json", {"b": "b.safetensors"})
        self.refused(3, "b.safetensors is not whole", half.name)
        write(self.source / "model.safetensors", {"w": one(2)})
        (self.source / "model.safetensors.index.json").unlink()
        self.assertEqual(set(self.exported()[0]), {"w"})

    def test_a_name_in_two_files_names_both_and_one_file_can_be_taken(self):
        for name in ("one.fp16.safetensors", "one.safetensors"):
            write(self.source / name, {"w": one(1)})
        self.refused(2, "tensor w is in one.fp16.safetensors and in one.safetensors")
        self.assertEqual(self.exported(source=self.source / "one.safetensors")[0], {"w": floats(1)})
        # The one by the name that loaders look for first is the model.
        write(self.source / "model.safetensors", {"w": one(2)})
        tensors, told = self.exported()
        self.assertEqual(tensors, {"w": floats(2)})
        self.assertIn("which is model.safetensors", self.left_out(told)["one.safetensors"])

    def test_torch_files_of_diffusers_and_adapters_are_models_too(self):
        write(self.folder / "model.safetensors", {"a": one(1), "b": one(2)})
        torch = self.folder / "torch"
        export(self.folder / "model.safetensors", torch, "--to", "torch", "--max-shard-size", "4B")
        names = sorted(path.name for path in torch.glob("*.bin"))
        self.assertEqual(len(names), 2)
        for stem in ("pytorch_model", STEM, "adapter_model"):
            with self.subTest(stem):
                for name in names:
                    shutil.copy(torch / name, self.source / name.replace("pytorch_model", stem))
                tensors, told = self.exported()
                self.assertEqual(tensors, {"a": floats(1), "b": floats(2)})
                self.assertEqual(told["format"], "hf-torch")
                some = self.source / names[1].replace("pytorch_model", stem)
                write_index(self.source / f"{stem}.bin.index.json",
                            {"a": names[0].replace("pytorch_model", stem), "b": some.name})
                some.unlink()
                self.refused(3, some.name, "tensor b")
                shutil.rmtree(self.source)
                self.source.mkdir()
        export(self.folder / "model.safetensors", self.folder / "whole", "--to", "torch")
        shutil.copy(self.folder / "whole" / "pytorch_model.bin", self.source / "adapter_model.bin")
        self.assertEqual(set(self.exported()[0]), {"a", "b"})


class Texts(Case):
    KOHYA = {"ss_network_dim": "4", "modelspec.title": "a \"title\"\n", "format": "pt",
             "ss_tag_frequency": json.dumps({"a": {"ü": 3}})}

    def test_texts_of_the_header_are_carried_into_each_file(self):
        write(self.source / "a.safetensors", {"a": one(1), "b": one(2)}, self.KOHYA)
        for words in ((), ("--dtype", "bf16"), ("--max-shard-size", "4B")):
            out = self.out()
            export(self.source / "a.safetensors", out, *words)
            files = list(out.glob("*.safetensors"))
            self.assertEqual(len(files), 2 if "4B" in words else 1)
            for path in files:
                self.assertEqual(texts_of(path), {**self.KOHYA, "cairn": "1"})
        write(self.source / "b.safetensors", {"c": one(3)}, {"format": "mlx"})
        export(self.source / "b.safetensors", self.out())
        self.assertEqual(texts_of(self.folder / f"out{self.outs}" / "model.safetensors"),
                         {"format": "mlx", "cairn": "1"})

    def test_texts_that_an_output_cannot_hold_are_left_out_by_name(self):
        write(self.source / "a.safetensors", {"a": one(1)}, self.KOHYA)
        for form in ("torch", "dcp"):
            ran = export(self.source / "a.safetensors", self.out(), "--to", form, "--json")
            self.assertEqual(set(self.left_out(json.loads(ran.stdout))),
                             {f"__metadata__.{key}" for key in self.KOHYA if key != "format"})
            said = export(self.source / "a.safetensors", self.out(), "--to", form).stderr
            for key in self.KOHYA:
                self.assertEqual(key in said, key != "format", said)

    def test_of_texts_that_differ_the_first_is_kept_and_the_other_named(self):
        write(self.source / "a.safetensors", {"a": one(1)}, {"k": "1", "same": "x"})
        write(self.source / "b.safetensors", {"b": one(2)}, {"k": "2", "same": "x", "own": "y"})
        out = self.out()
        told = json.loads(export(self.source, out, "--json").stdout)
        self.assertEqual(texts_of(out / "model.safetensors"),
                         {"format": "pt", "cairn": "1", "k": "1", "same": "x", "own": "y"})
        self.assertEqual(set(self.left_out(told)), {"__metadata__.k of b.safetensors"})


class Pieces(Case):
    def test_pieces_of_ranks_are_put_together_by_their_offsets(self):
        values = list(range(28))
        rows = [([0, 0], [4, 4], values[:16]), ([4, 0], [3, 4], values[16:])]
        columns = [([0, at], [7, size], [v for r in range(7) for v in
                                         values[4 * r + at:4 * r + at + size]])
                   for at, size in ((2, 2), (0, 1), (1, 1))]
        for name, parts in (("rows", rows), ("columns", columns), ("empty", rows + [([7, 0], [0, 4], [])])):
            with self.subTest(name):
                folder = self.folder / name
                pieces("embed", parts, folder, {"norm": one(5)})
                tensors, told = self.exported(source=folder)
                self.assertEqual(tensors, {"embed": floats(*values), "norm": floats(5)})
                self.assertEqual(told["left_out"], [])
                self.assertEqual(texts_of(self.folder / f"out{self.outs}" / "model.safetensors"),
                                 {"format": "pt", "cairn": "1"})

    def test_a_rank_that_has_nothing_of_a_file_writes_none(self):
        for rank, number, name, offsets in ((1, 1, "a", [0]), (2, 1, "a", [1]), (2, 2, "b", [0])):
            texts = {"DCP_SHARDING_INFO": json.dumps({name: {"saved_offsets": offsets}})}
            write(self.source / f"shard-{rank:05}-model-{number:05}-of-00002.safetensors", {name: one(rank)}, texts)
        self.assertEqual(self.exported()[0], {"a": floats(1, 2), "b": floats(2)})
        (self.source / "shard-00002-model-00002-of-00002.safetensors").unlink()
        self.refused(3, "model-00002-of-00002.safetensors is not there")

    def test_a_piece_is_no_tensor(self):
        values = list(range(28))
        low, high = ([0, 0], [4, 4], values[:16]), ([4, 0], [3, 4], values[16:])
        for parts, text in (((high,), "hole"), ((low, ([3, 0], [4, 4], values[12:])), "twice"),
                            ((low, ([5, 0], [2, 4], values[20:])), "hole"),
                            ((low, ([4], [3], values[:3])), "differ in type or dimensions")):
            with self.subTest(text):
                folder = self.folder / f"p{self.outs}"
                pieces("embed", parts, folder)
                self.refused(7, "tensor embed", source=folder)
        pieces("embed", (low, high), self.source)
        first, second = sorted(self.source.iterdir())
        self.refused(2, "one rank's pieces", "give the folder", source=first)
        self.refused(2, "one rank's pieces", source=second)
        second.unlink()
        write(second, {"embed": ([3, 4], values[16:])},
              {"DCP_SHARDING_INFO": json.dumps({"embed": {"saved_offsets": [-1, 0]}})})
        self.refused(7, "does not say where it lies")


class Links(Case):
    def test_links_are_followed_in_a_cache_of_the_hub(self):
        blobs, snapshot = self.folder / "blobs", self.folder / "snapshots" / "abc"
        snapshot.mkdir(parents=True)
        write(blobs / "0123", {"w": one(1, 2)})
        (snapshot / "model.safetensors").symlink_to("../../blobs/0123")
        self.assertEqual(self.exported(source=snapshot)[0], {"w": floats(1, 2)})
        self.assertEqual(self.exported(source=snapshot / "model.safetensors")[0], {"w": floats(1, 2)})
        for words in (("inspect", snapshot), ("inspect", snapshot / "model.safetensors"),
                      ("diff", snapshot, blobs / "0123")):
            cases.run([BIN / "cairn", *words])

    def test_two_names_of_one_file_are_one_file(self):
        write(self.source / "epoch.safetensors", {"w": one(1)})
        (self.source / "last.safetensors").symlink_to("epoch.safetensors")
        tensors, told = self.exported()
        self.assertEqual(tensors, {"w": floats(1)})
        self.assertEqual(self.left_out(told), {"last.safetensors": "another name of the file epoch.safetensors"})


class Kept(Case):
    """In versions of a server."""

    @classmethod
    def setUpClass(cls):
        cls.world = World(case=cls)

    def saved(self, *words):
        return self.world.json(*words)

    def of(self, ref):
        out = self.out()
        told = self.world.json("export", ref, out)
        return {name: row[2] for name, row in read(out).items()}, told, out

    def test_put_and_import_know_what_the_index_names(self):
        number = 0
        for spelled in (str.lower, str.upper):
            main, other = spelled("main.safetensors"), spelled("consolidated.safetensors")
            write(self.source / main, {"w": one(1), "old": one(5)})
            write(self.source / other, {"layers.w": one(2)})
            write_index(self.source / spelled("model.safetensors.index.json"), {"w": f"./{main}"})
            for words in (("put",), ("import", "hf")):
                number += 1
                told = self.saved(*words, self.source, f"f/index@{number}")
                self.assertEqual(told["tensors"], 1)
                self.assertEqual(set(self.left_out(told)), {f"old of {main}", other})
                self.assertEqual(self.of(f"f/index@{number}")[0], {"w": floats(1)})
                back = self.out()
                self.world.cairn("get", f"f/index@{number}", "-d", back)
                for path in self.source.iterdir():
                    self.assertEqual((back / path.name).read_bytes(), path.read_bytes())
            shutil.rmtree(self.source)

    def test_half_a_model_is_put_as_bytes_alone(self):
        names = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
        index = self.source / "model.safetensors.index.json"
        missing = f"{names[1]} is not there"

        def put(step, *why):
            told = self.saved("put", self.source, f"f/half@{step}")
            self.assertEqual(told["tensors"], 0)
            self.assertEqual(self.left_out(told)[names[0]], why[0])
            said = self.world.cairn("put", self.source, f"f/half@{step + 100}").stderr
            self.assertIn("its folder is kept as plain bytes", said)
            for ref in (f"f/half@{step}", self.source):
                ran = self.world.cairn("export", ref, self.out(), status=3)
                self.assertIn(why[0], ran.stderr)

        write(self.source / names[0], {"a": one(1)})
        put(1, f"{missing}: there is {names[0]}, and no index says that it is all")
        write_index(index, {"a": names[0], "b": names[1]})
        put(2, f"{names[1]}, in which {index.name} has tensor b, is not there")
        write(self.source / names[1], {"other": one(2)})
        put(3, f"tensor b is not in {names[1]}, where {index.name} has it")
        # A whole model of another folder has its tensors.
        write(self.source / "whole" / "model.safetensors", {"w": one(3)})
        told = self.saved("put", self.source, "f/half@4")
        self.assertEqual((told["tensors"], set(self.left_out(told))), (1, set(names) | {f"other of {names[1]}"}))
        self.assertEqual(self.of("f/half@4")[0], {"w": floats(3)})

    def test_put_and_import_make_pieces_one_tensor_or_keep_them_as_bytes(self):
        parts = [([0, 0], [1, 2], [1, 2]), ([1, 0], [1, 2], [3, 4])]
        pieces("embed", parts, self.source, {"norm": one(5)})
        for number, words in enumerate((("put",), ("import", "hf")), 1):
            told = self.saved(*words, self.source, f"f/pieces@{number}")
            self.assertEqual((told["tensors"], told["left_out"]), (2, []))
            self.assertEqual(self.of(f"f/pieces@{number}")[0], {"embed": floats(1, 2, 3, 4), "norm": floats(5)})
        next(self.source.glob("shard-00001*")).unlink()
        told = self.saved("put", self.source, "f/pieces@3")
        self.assertEqual((told["tensors"], list(self.left_out(told))), (0, ["embed"]))
        pieces("embed", parts[:1], self.source)
        next(self.source.glob("shard-00002*")).unlink()
        told = self.saved("put", self.source, "f/pieces@5")
        self.assertEqual((told["tensors"], list(self.left_out(told))), (0, ["embed"]))
        self.assertIn("no other rank's file is there", self.left_out(told)["embed"])
        self.world.cairn("import", "hf", self.source, "f/pieces@6", status=3)
        pieces("embed", parts, self.source)
        next(self.source.glob("shard-00001*")).unlink()
        self.world.cairn("import", "hf", self.source, "f/pieces@4", status=7)

    def test_texts_of_headers_come_back_from_a_version(self):
        cases_of_name = [(name, words) for name in ("model.safetensors", "MODEL.SAFETENSORS")
                         for words in (("put",), ("import", "hf"))]
        for number, (name, words) in enumerate(cases_of_name, 1):
            write(self.source / name, {"a": one(1)}, Texts.KOHYA)
            self.world.cairn(*words, self.source, f"f/texts@{number}")
            (self.source / name).unlink()
            _, told, out = self.of(f"f/texts@{number}")
            self.assertEqual(texts_of(out / "model.safetensors"), {**Texts.KOHYA, "cairn": "1"})
            self.assertEqual(told["left_out"], [])
            status, _, body = self.world.get(f"/v1/runs/f/texts/checkpoints/{number}/hf/model.safetensors")
            view = cases.file(self.folder / f"view-{number}.safetensors", body)
            self.assertEqual((status, texts_of(view)), (200, {**Texts.KOHYA, "cairn": "1"}))

    def test_links_are_followed_by_import(self):
        write(self.folder / "blob", {"w": one(1)})
        (self.source / "model.safetensors").symlink_to("../blob")
        refused = self.world.cairn("import", "hf", self.source, "f/links@1", status=2)
        self.assertIn("--follow", refused.stderr)
        self.world.cairn("import", "hf", self.source, "f/links@1", "--follow")
        self.assertEqual(self.of("f/links@1")[0], {"w": floats(1)})
        shutil.rmtree(self.source)
        write(self.source / "deep" / "epoch.ckpt", {"w": one(2)})
        (self.source / "last.ckpt").symlink_to("deep/epoch.ckpt")
        (self.source / "model.safetensors").symlink_to("last.ckpt")
        self.world.cairn("import", "safetensors", self.source / "last.ckpt", "f/links@2")
        self.world.cairn("import", "hf", self.source, "f/links@3")
        for step in (2, 3):
            self.assertEqual(self.of(f"f/links@{step}")[0], {"w": floats(2)})
        self.world.cairn("import", "hf", self.source, "f/links@4", "--no-links", status=None)
        self.assertIsNone(self.world.version("f/links", "4"))


if __name__ == "__main__":
    unittest.main()
