# SPDX-License-Identifier: Apache-2.0
"""Element types that safetensors has no name for: saved by ranks in pieces, they come back as what they
were by every way that there is, and every safetensors file that holds them is one that readers open."""
import json
import math
import os
import pathlib
import random
import shutil
import struct
import subprocess
import sys
import unittest
import urllib.parse

import cases
from test_export import read_file
from world import BIN, HANG_S, World

SHARDED, REPLICATED, LOCAL = 1, 2, 4
WHOLE, FLAT, BOX = 0, 1, 2
RANKS = 3
TESTS = pathlib.Path(__file__).resolve().parents[1]
# What safetensors' own readers take (0.8).
KNOWN = {"BOOL": 8, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8,
         "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "I16": 16, "U16": 16, "F16": 16, "BF16": 16,
         "I32": 32, "U32": 32, "F32": 32, "C64": 64, "F64": 64, "I64": 64, "U64": 64}
# name: (type, bits, shape, type and shape as it is shown)
TENSORS = {
    "c.boxes": ("C128", 128, [6, 8], "F64", [6, 8, 2]),
    "c.flat": ("C32", 32, [30, 7], "F16", [30, 7, 2]),
    "q.eight": ("QI8", 8, [12, 5], "I8", [12, 5]),
    "b.sixteen": ("BITS16", 16, [24], "U16", [24]),
    "f.eight": ("F8_E3M4", 8, [9, 3], "U8", [9, 3]),
    "f.wide": ("F128", 128, [3, 3], "U8", [3, 3, 16]),
    "i.packed": ("I4", 4, [6, 10], "U8", [30]),
    "w.plain": ("F32", 32, [6, 4], "F32", [6, 4]),
}


def cut(name, rank):
    """(form, start, count) of what a rank saves: rows, as boxes or flat."""
    shape = TENSORS[name][2]
    first, end = shape[0] * rank // RANKS, shape[0] * (rank + 1) // RANKS
    inner = math.prod(shape[1:])
    if name in ("c.boxes", "i.packed", "w.plain"):
        return BOX, [first] + [0] * (len(shape) - 1), [end - first, *shape[1:]]
    return FLAT, [first * inner], [(end - first) * inner]


def say(numbers):
    return ",".join(map(str, numbers)) or "-"


def fragment(name, data, start, count, form):
    bits, shape = TENSORS[name][1:3]
    inner = math.prod(shape[1:]) if form == BOX else 1
    first, size = start[0] * inner, math.prod(count)
    return data[first * bits // 8:(first + size) * bits // 8]


def read_header(path):
    data = path.read_bytes()
    return json.loads(data[8:8 + struct.unpack("<Q", data[:8])[0]])


def save_by_ranks(world, folder, run, step, lines_of):
    """By as many processes as there are lists of lines, each a rank that says them to tensor_writer."""
    ranks = []
    for rank, lines in enumerate(lines_of):
        told = cases.file(folder / f"{step}-{rank}.txt", "".join(f"{line}\n" for line in lines))
        with told.open() as stdin:
            ranks.append(subprocess.Popen(
                [BIN / "tests" / "tensor_writer", run, str(rank), str(len(lines_of)), str(step)],
                stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                env={**os.environ, **world.env, "CAIRN_SOCKET": world.socket(0),
                     "CAIRN_JOB": f"{run}-{step}"}))
    said = [process.communicate(timeout=HANG_S) for process in ranks]
    if any(process.returncode for process in ranks):
        raise AssertionError(said)


def lines_of(folder, step, data):
    """Of each rank the pieces that it saves."""
    lines = []
    for rank in range(RANKS):
        lines.append([])
        for name, (dtype, _, shape, _, _) in TENSORS.items():
            form, start, count = cut(name, rank)
            path = cases.file(folder / f"{step}-{rank}-{name}", fragment(name, data[name], start, count, form))
            lines[-1].append(f"tensor {name} {dtype} {SHARDED} {form} {say(shape)} {say(start)}"
                             f" {say(count)} {path}")
    return lines


class Types(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.world = World(case=cls)
        cls.folder = cases.folder(cls)
        dice = random.Random(11)
        cls.data = {name: dice.randbytes(math.prod(shape) * bits // 8)
                    for name, (_, bits, shape, _, _) in TENSORS.items()}
        save_by_ranks(cls.world, cls.folder, "t/types", 1, lines_of(cls.folder, 1, cls.data))

    def ask(self, name, what="/data", step=1, **query):
        query = urllib.parse.urlencode({"name": name, **query}, quote_via=urllib.parse.quote)
        return self.world.get(f"/v1/runs/t/types/checkpoints/{step}/tensor{what}?{query}")

    def test_listings_name_the_type_that_was_saved(self):
        status, _, body = self.world.get("/v1/runs/t/types/checkpoints/1/tensors")
        self.assertEqual(status, 200)
        rows = {row["name"]: (row["dtype"], row["shape"], row["bytes"]) for row in json.loads(body)["items"]}
        self.assertEqual(rows, {name: (dtype, shape, math.prod(shape) * bits // 8)
                                for name, (dtype, bits, shape, _, _) in TENSORS.items()})
        for way in ((), ("--store", self.world.store)):
            shown = self.world.cairn("show", "t/types@1", *way).stdout
            for name, (dtype, _, shape, _, _) in TENSORS.items():
                self.assertRegex(shown, rf"(?m)^{name} +{dtype} +{'x'.join(map(str, shape))} ")

    def test_the_tensor_route_gives_bytes_slices_and_their_type(self):
        for name, (dtype, bits, shape, _, _) in TENSORS.items():
            status, headers, body = self.ask(name)
            self.assertEqual((status, body), (200, self.data[name]), name)
            self.assertEqual((headers["X-Cairn-Dtype"], headers["X-Cairn-Shape"]), (dtype, ",".join(map(str, shape))))
            rows = json.loads(self.ask(name, what="")[2])
            self.assertEqual((rows["dtype"], rows["shape"]), (dtype, shape))
        status, headers, body = self.ask("c.boxes", slice="1:5,3:6")
        data = self.data["c.boxes"]
        self.assertEqual(body, b"".join(data[(row * 8 + 3) * 16:(row * 8 + 6) * 16] for row in range(1, 5)))
        self.assertEqual(headers["X-Cairn-Shape"], "4,3")
        self.assertEqual(self.ask("i.packed", flat="2:8")[2], self.data["i.packed"][1:4])
        for cut_at in ({"flat": "1:8"}, {"slice": "0:6,1:2"}, {"slice": ":,0:1"}):
            status, _, body = self.ask("i.packed", **cut_at)
            self.assertEqual(status, 501, body)
            self.assertRegex(json.loads(body)["detail"], "inside a byte|does not fill bytes")

    def test_what_cannot_be_converted_is_refused_by_its_name(self):
        for name, (dtype, _, _, _, _) in TENSORS.items():
            for wanted in ("F32", "bf16", "F64"):
                status, _, body = self.ask(name, dtype=wanted)
                if dtype == "F32":
                    self.assertEqual(status, 200)
                    continue
                self.assertEqual(status, 400)
                self.assertIn(f"elements of {dtype} cannot be given as {wanted}", body.decode())
        status, _, body = self.ask("w.plain", dtype="C128")
        self.assertIn("elements of F32 cannot be given as C128", body.decode())
        self.assertEqual(self.ask("c.boxes", dtype="C128")[2], self.data["c.boxes"])

    def test_a_job_of_another_size_restores_boxes_of_them(self):
        env = {**os.environ, **self.world.env, "CAIRN_SOCKET": self.world.socket(0)}

        def box(name, *pairs):
            return subprocess.run([BIN / "tests" / "tensor_reader", "t/types", "1", name,
                                   *map(str, pairs)], env=env, capture_output=True, timeout=HANG_S,
                                  check=False)
        for name, (_, _, shape, _, _) in TENSORS.items():
            for parts in (1, 2, 5):
                found = b""
                for part in range(parts):
                    first, end = shape[0] * part // parts, shape[0] * (part + 1) // parts
                    rest = [n for extent in shape[1:] for n in (0, extent)]
                    found += box(name, first, end - first, *rest).stdout
                self.assertEqual(found, self.data[name], (name, parts))
        refused = box("i.packed", 0, 6, 1, 2)
        self.assertNotEqual(refused.returncode, 0)
        self.assertIn(b"elements of 4 bits cut inside a byte", refused.stderr)

    def test_stored_shards_are_files_that_readers_of_safetensors_open(self):
        found = {}
        shards = [path for path in self.world.stored("*.safetensors") if "/t/types/" in str(path)]
        self.assertTrue(shards)
        for path in shards:
            header = read_header(path)
            tags = header.pop("__metadata__")
            for name, row in header.items():
                size = row["data_offsets"][1] - row["data_offsets"][0]
                self.assertEqual(math.prod(row["shape"]) * KNOWN[row["dtype"]], 8 * size)
                dtype, _, _, shown, _ = TENSORS[name.partition("@")[0]]
                self.assertEqual(row["dtype"], shown)
                tag = tags.get(f"cairn.logical:{name}")
                self.assertEqual(tag is not None, dtype != shown)
                self.assertEqual((tag or dtype).split(" ")[0], dtype)
                found[name] = True
        self.assertEqual(set(found), set(TENSORS))

    def test_a_program_without_cairn_restores_them(self):
        out = self.folder / "alone"
        subprocess.run([sys.executable, TESTS / "python" / "read_without_cairn.py", self.world.store,
                        "t/types@1", out], check=True, timeout=HANG_S)
        index = json.loads((out / "tensors.json").read_text())
        for name, (dtype, _, shape, _, _) in TENSORS.items():
            self.assertEqual((index[name]["dtype"], index[name]["shape"]), (dtype, shape))
            self.assertEqual((out / "tensors" / index[name]["file"]).read_bytes(), self.data[name])

    def test_an_export_shows_them_and_put_reads_them_back(self):
        out = self.folder / "model"
        self.world.cairn("export", "t/types@1", out)
        written, = out.glob("*.safetensors")
        rows = read_file(written)
        self.assertEqual({name: (dtype, shape) for name, (dtype, shape, _) in rows.items()},
                         {name: row[3:] for name, row in
                          ((name, tuple(value)) for name, value in TENSORS.items())})
        self.assertEqual({name: data for name, (_, _, data) in rows.items()}, self.data)
        told = self.world.json("inspect", written)
        self.assertEqual({row["name"]: (row["dtype"], row["shape"]) for row in told["tensors"]},
                         {name: (value[0], value[2]) for name, value in TENSORS.items()})
        self.world.cairn("put", out, "t/again@1")
        self.assertTrue(json.loads(self.world.cairn("diff", "--tensors", "t/types@1", "t/again@1",
                                                    "--json").stdout)["equal"])
        status, _, body = self.world.get("/v1/runs/t/types/checkpoints/1/hf/model.safetensors"
                                         "?only=[bcfqw]*")
        self.assertEqual(status, 200)
        (self.folder / "hf.safetensors").write_bytes(body)
        self.assertEqual(read_file(self.folder / "hf.safetensors"),
                         {name: row for name, row in rows.items() if name != "i.packed"})
        self.assertEqual(read_header(self.folder / "hf.safetensors")["__metadata__"]
                         ["cairn.logical:c.boxes"], "C128 [6,8]")

    def test_torch_and_dcp_get_what_torch_has_and_the_rest_is_refused_by_name(self):
        for to in ("torch", "dcp"):
            refused = self.world.cairn("export", "t/types@1", self.folder / f"no-{to}", "--to", to,
                                       "--only", "q*", status=None)
            self.assertIn("q.eight: torch has no element type QI8", refused.stderr)
            self.world.cairn("export", "t/types@1", self.folder / to, "--to", to, "--only", "[bc]*")
            self.world.cairn("export", self.folder / to, self.folder / f"of-{to}")
            rows = read_file(next((self.folder / f"of-{to}").glob("*.safetensors")))
            self.assertEqual({name: row[2] for name, row in rows.items()},
                             {name: self.data[name] for name in ("b.sixteen", "c.boxes", "c.flat")})
            self.assertEqual(read_header(next((self.folder / f"of-{to}").glob("*.safetensors")))
                             ["__metadata__"]["cairn.logical:c.flat"], "C32 [30,7]")

    def test_a_difference_is_counted_in_elements_of_the_type(self):
        changed = {**self.data, "c.boxes": self.data["c.boxes"][:-1] + b"\x55",
                   "f.wide": bytes(len(self.data["f.wide"]))}
        save_by_ranks(self.world, self.folder, "t/types", 2, lines_of(self.folder, 2, changed))
        told = self.world.json("diff", "--tensors", "t/types@1", "t/types@2", status=None)
        self.assertEqual({row["name"]: (row["verdict"], row["elements"], row["differing"])
                          for row in told["differ"]},
                         {"c.boxes": ("differs", 48, 1), "f.wide": ("differs", 9, 9)})

    def test_elements_of_sixteen_bytes_are_compared_in_windows_and_sent_in_ranges(self):
        count = 1_100_000  # of more than one window
        data = random.Random(2).randbytes(16 * count)
        for name, content in (("a", data), ("b", data[:-8] + bytes(8))):
            (self.folder / name).mkdir()
            text = json.dumps({"__metadata__": {"cairn.logical:z": f"C128 [{count}]"},
                               "z": {"dtype": "F64", "shape": [count, 2],
                                     "data_offsets": [0, 16 * count]}}).encode()
            (self.folder / name / "m.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + content)
        told = self.world.json(
            "diff", "--tensors", self.folder / "a" / "m.safetensors",
            self.folder / "b" / "m.safetensors", status=None)
        self.assertEqual([(row["elements"], row["differing"]) for row in told["differ"]], [(count, 1)])
        self.world.cairn("put", self.folder / "a", "t/wide@1")
        path = "/v1/runs/t/wide/checkpoints/1/hf/model.safetensors"
        _, _, whole = self.world.get(path)
        head = len(whole) - len(data)
        self.assertEqual(whole[head:], data)
        for first in (head + 1, head + 8, head + 24, len(whole) - 8, head + (1 << 22) + 8):
            status, _, body = self.world.get(path, headers={"Range": f"bytes={first}-{first + 99}"})
            self.assertEqual((status, body), (206, whole[first:first + 100]), first - head)
        _, _, body = self.world.get("/v1/runs/t/wide/checkpoints/1/tensors/z/data", headers={"Range": "bytes=24-60"})
        self.assertEqual(body, data[24:61])


class Items(unittest.TestCase):
    """Bytes by name beside tensors: listed as what they are, and in no file of tensors."""

    ITEMS = {"loader.state": (LOCAL, [b"of rank 0", b"of another rank"]),
             "tokenizer": (REPLICATED, [b"{}" * 300] * 2), "empty": (LOCAL, [b"", b""])}

    @classmethod
    def setUpClass(cls):
        cls.world = World(case=cls)
        cls.folder = cases.folder(cls)
        lines = [[], []]
        for rank, own in enumerate(lines):
            for name, (kind, contents) in cls.ITEMS.items():
                path = cases.file(cls.folder / f"{name}-{rank}", contents[rank])
                own.append(f"item {name} {kind} {path}")
            path = cases.file(cls.folder / f"w-{rank}", bytes(range(4 * rank, 4 * rank + 4)))
            own.append(f"tensor w U8 {SHARDED} {FLAT} 8 {4 * rank} 4 {path}")
        save_by_ranks(cls.world, cls.folder, "t/items", 1, lines)

    def get(self, path, **query):
        return self.world.get(f"/v1/runs/t/items/checkpoints/1{path}?{urllib.parse.urlencode(query)}")

    def test_listings_say_which_names_are_items(self):
        rows = {row["name"]: (row["dtype"], row["kind"]) for row in json.loads(self.get("/tensors")[2])["items"]}
        self.assertEqual(rows, {"loader.state": ("ITEM", "local"), "tokenizer": ("ITEM", "replicated"),
                                "empty": ("ITEM", "local"), "w": ("U8", "sharded")})
        for way in ((), ("--store", self.world.store)):
            shown = self.world.cairn("show", "t/items@1", *way).stdout
            self.assertRegex(shown, r"(?m)^tokenizer +ITEM +600 ")
            self.assertRegex(shown, r"(?m)^w +U8 +8 ")

    def test_their_bytes_are_given_by_name_and_as_no_numbers(self):
        for name, (_, contents) in self.ITEMS.items():
            for rank, wanted in enumerate(contents):
                status, headers, body = self.get(f"/tensors/{name}/data", rank=rank)
                self.assertEqual((status, body, headers["X-Cairn-Dtype"]), (200, wanted, "ITEM"))
                self.assertEqual(self.get("/tensor/data", name=name, rank=rank, dtype="U8")[2], wanted)
        status, _, body = self.get("/tensor/data", name="tokenizer", dtype="F32")
        self.assertEqual(status, 400)
        self.assertIn(b"elements of ITEM cannot be given as F32", body)
        out = self.folder / "alone"
        subprocess.run([sys.executable, TESTS / "python" / "read_without_cairn.py", self.world.store,
                        "t/items@1", out], check=True, timeout=HANG_S)
        index = json.loads((out / "tensors.json").read_text())
        self.assertEqual((index["tokenizer"]["dtype"], index["w"]["dtype"]), ("ITEM", "U8"))

    def test_a_model_folder_and_exports_leave_them_out_and_say_so(self):
        told = json.loads(self.get("/hf")[2])
        self.assertEqual((told["tensors"], told["left_out"]),
                         (1, {"aliases": 0, "items": 3, "local": 0, "optimizer": 0, "only": 0, "texts": 0}))
        self.assertEqual(json.loads(self.get("/hf", only="tok*")[2])["tensors"], 0)
        for to in ("safetensors", "torch", "dcp"):
            out = self.folder / f"to-{to}"
            told = self.world.json("export", "t/items@1", out, "--to", to)
            self.assertEqual(told["tensors"], 1)
            self.assertEqual({row["name"].partition("@")[0] for row in told["left_out"]}, set(self.ITEMS))
            self.assertTrue(all(row["why"].startswith("an item") for row in told["left_out"]))
        self.assertEqual(set(read_file(self.folder / "to-safetensors" / "model.safetensors")), {"w"})
        self.world.cairn("export", "t/items@1", self.folder / "none", "--only", "tok*", status=3)

    def test_they_are_compared_as_the_tensors_are(self):
        told = json.loads(self.world.cairn("diff", "--tensors", "t/items@1", "t/items@1", "--json").stdout)
        self.assertEqual((told["equal"], told["same"]), (True, 6))

    def test_a_shard_that_is_put_as_a_file_keeps_them_apart(self):
        folder = cases.made(self.folder / "shard")
        shutil.copy(next(path for path in self.world.stored("*.safetensors")
                         if "/t/items/" in str(path)), folder / "s.safetensors")
        self.world.cairn("put", folder, "t/shard@1")
        _, _, body = self.world.get("/v1/runs/t/shard/checkpoints/1/tensors")
        self.assertEqual({row["name"]: row["dtype"] for row in json.loads(body)["items"]},
                         {"loader.state": "ITEM", "tokenizer": "ITEM", "empty": "ITEM", "w": "U8"})


if __name__ == "__main__":
    unittest.main()
