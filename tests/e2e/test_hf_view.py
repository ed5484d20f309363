# SPDX-License-Identifier: Apache-2.0
# ctest: seconds=60 engines=again
"""A version as a model folder of Hugging Face over HTTP: the files are those of `cairn export`, byte
for byte and in every range, and what was saved beside the tensors lies beside them."""
import json
import os
import random
import struct
import subprocess
import unittest
import urllib.parse

import cases
from test_dcp import DCP
from test_dcp import EXPECTED as DCP_CASES
from test_export import EXPECTED, VECTORS, ZERO, export, read
from world import BIN, HANG_S, InWorld

MIB = 1 << 20
INDEX = "model.safetensors.index.json"
RANKS = 8
HF = VECTORS / "transformers"
HF_CASES = json.loads((HF / "expected.json").read_text())["cases"]
HF_TYPES = {"torch.float32": "F32", "torch.float16": "F16", "torch.bfloat16": "BF16"}


class HfView(InWorld):
    def ask(self, run, name="", method="GET", headers=None, **query):
        """(status, headers, body); the body is what came before the connection broke, if it did."""
        path = f"/v1/runs/{run}/checkpoints/latest/hf" + (f"/{urllib.parse.quote(name)}" if name else "")
        query = urllib.parse.urlencode(query, quote_via=urllib.parse.quote)
        *answer, self.broken = self.world.fetch(f"{path}?{query}", method, headers)
        return tuple(answer)

    def listed(self, run, **query):
        status, _, body = self.ask(run, **query)
        self.assertEqual(status, 200, body)
        return json.loads(body)

    def assert_is(self, run, folder, **query):
        """Its files are those of a folder that `cairn export` wrote."""
        wanted = {path.name: path for path in folder.iterdir()}
        told = self.listed(run, **query)
        rows = {row["name"]: row for row in told["files"] if row["content"] != "stored"}
        self.assertEqual(set(rows), {*wanted, INDEX})
        for name in rows:
            status, headers, body = self.ask(run, name, **query)
            self.assertEqual((status, len(body), headers["Content-Length"]), (200, rows[name]["bytes"], str(len(body))))
            if name != INDEX:
                self.assertTrue(body == wanted[name].read_bytes(), (run, name))
                continue
            index = json.loads(body)
            self.assertEqual(index["metadata"]["total_size"], told["bytes"])
            self.assertEqual(len(index["weight_map"]), told["tensors"])
            if INDEX in wanted:
                self.assertEqual(index, json.loads(wanted[INDEX].read_text()))
        return told

    def fetch_all(self, run, folder, **query):
        """Each file that the list names, as a library's client gets a folder."""
        for row in self.listed(run, **query)["files"]:
            path = folder / row["name"]
            path.parent.mkdir(parents=True, exist_ok=True)
            status, _, body = self.ask(run, row["name"], **query)
            self.assertEqual((status, len(body)), (200, row["bytes"]))
            path.write_bytes(body)
        return folder

    def exported(self, name, *words):
        folder = self.folder / name
        self.world.cairn("export", *words[:1], folder, *words[1:])
        return folder

    def test_what_8_ranks_have_saved_is_one_model(self):
        environment = {**os.environ, "CAIRN_JOB": "eight", "CAIRN_SOCKET": self.world.socket(0)}
        saving = [subprocess.Popen([BIN / "examples/transformer-save", "hf/eight", "7", str(rank),
                                    str(RANKS)], env=environment, stdout=subprocess.DEVNULL)
                  for rank in range(RANKS)]
        self.assertEqual([process.wait(HANG_S) for process in saving], [0] * RANKS)
        told = self.assert_is("hf/eight", self.exported("cut", "hf/eight@7", "--max-shard-size",
                                                        "300MB"), max_shard_size="300MB")
        self.assertGreater(len([row for row in told["files"] if row["content"] == "tensors"]), 3)
        self.assertEqual(told["left_out"], {"aliases": 1, "items": 0, "local": 0, "optimizer": 0,
                                            "only": 0, "texts": 0})
        # Each rank's raw shard is a file beside them.
        stored = [row for row in told["files"] if row["content"] == "stored"]
        self.assertEqual(len(stored), RANKS)
        status, _, body = self.ask("hf/eight", stored[0]["name"])
        self.assertEqual((status, len(body)), (200, stored[0]["bytes"]))
        self.assert_is("hf/eight", self.exported("half", "hf/eight@7", "--only", "model.layers.1*",
                                                 "--dtype", "fp32"),
                       only="model.layers.1*", dtype="fp32")

    def test_every_range_is_that_of_the_file(self):
        dice = random.Random(3)
        for case in EXPECTED:
            self.world.cairn("import", "deepspeed", ZERO / case, f"range/{case}@1")
            for dtype in (None, "bf16", "fp16"):
                query = {"dtype": dtype} if dtype else {}
                flags = ("--dtype", dtype) if dtype else ()
                out = self.exported(f"{case}-{dtype}", f"range/{case}@1", *flags)
                whole = (out / "model.safetensors").read_bytes()
                told = self.assert_is(f"range/{case}", out, **query)
                self.assertEqual(told["left_out"]["aliases"], 1)
                self.assertGreater(told["left_out"]["optimizer"], 0)
                for _ in range(25):
                    begin, end = sorted(dice.sample(range(len(whole) + 1), 2))
                    status, headers, body = self.ask(
                        f"range/{case}", "model.safetensors", **query,
                        headers={"Range": f"bytes={begin}-{end - 1}"})
                    self.assertEqual((status, headers["Content-Range"]), (206, f"bytes {begin}-{end - 1}/{len(whole)}"))
                    self.assertTrue(body == whole[begin:end], (case, dtype, begin, end))
        for case in DCP_CASES:  # boxes of rows and columns, and plain values beside them
            self.world.cairn("import", "dcp", DCP / case, f"range/{case}@1")
            self.assert_is(f"range/{case}", self.exported(case, f"range/{case}@1"), only="*")
        out = self.exported("state", "range/stage1@1", "--optimizer", "--only", "optimizer.state.*")
        self.assert_is("range/stage1", out, only="optimizer.state.*")

    def test_tensors_of_many_chunks_and_very_many_tensors_are_in_their_places(self):
        dice = random.Random(5)
        tensors = {f"small.{i:04}": (("F32", [3, 5], dice.randbytes(60)) if i % 3 else
                                     ("U8", [7], dice.randbytes(7))) for i in range(3000)}
        tensors["none"] = ("F32", [0, 4], b"")
        tensors["scalar"] = ("I64", [], dice.randbytes(8))
        tensors["large"] = ("F32", [5, MIB + 3], bytes(20 * (MIB + 3)))
        tensors["wide"] = ("F64", [MIB + 7], struct.pack("<d", 1.5) * (MIB + 7))
        (self.folder / "source").mkdir()
        cases.safetensors(self.folder / "source" / "weights.safetensors", tensors)
        self.world.cairn("put", self.folder / "source", "many/chunks@1")
        self.assert_is("many/chunks", self.exported("as-it-is", "many/chunks@1"))
        out = self.exported("bf16", "many/chunks@1", "--dtype", "bf16", "--max-shard-size", "7MB")
        self.assert_is("many/chunks", out, dtype="BF16", max_shard_size="7MB")
        found = read(out)
        self.assertEqual(found["wide"][0], "BF16")
        self.assertEqual(found["small.0000"], tensors["small.0000"])

    def test_what_lies_beside_the_tensors_is_served_beside_them(self):
        source = self.folder / "model"
        (source / "extra").mkdir(parents=True)
        cases.safetensors(source / "model-00001-of-00001.safetensors", {"w": ("F32", [2], b"12345678")})
        (source / "config.json").write_text('{"model_type": "llama"}')
        (source / INDEX).write_text("stale")
        (source / "extra" / "ä b.txt").write_bytes(b"text")
        self.world.cairn("put", source, "beside/files@1")
        told = self.listed("beside/files")
        self.assertEqual({row["name"]: row["content"] for row in told["files"]},
                         {"model.safetensors": "tensors", INDEX: "index", "config.json": "stored",
                          "extra/ä b.txt": "stored"})
        for name, data in (("config.json", b'{"model_type": "llama"}'), ("extra/ä b.txt", b"text")):
            self.assertEqual(self.ask("beside/files", name)[::2], (200, data))
        self.assertEqual(json.loads(self.ask("beside/files", INDEX)[2])["weight_map"], {"w": "model.safetensors"})
        # Of stored files with tensors the view's own take the place.
        for name in ("model-00001-of-00001.safetensors", "model-00001-of-00002.safetensors", "no"):
            status, _, body = self.ask("beside/files", name)
            self.assertEqual((status, json.loads(body)["code"]), (404, "not-found"))
        fetched = subprocess.run(
            ["curl", "-sfO", f"http://127.0.0.1:{self.world.port}/v1/runs/beside/files"
                             "/checkpoints/latest/hf/model.safetensors"], cwd=self.folder)
        self.assertEqual(fetched.returncode, 0)
        self.assertEqual(read(self.folder), {"w": ("F32", [2], b"12345678")})

    def test_files_of_several_ranks_are_at_the_top_where_one_rank_alone_has_their_name(self):
        """cairn_save_raw puts what it is given below its rank."""
        def save(step, *names):
            ranks = [subprocess.Popen([BIN / "tests" / "trainer", "llm/ranks", str(rank), "2", str(step)],
                                      stdout=subprocess.DEVNULL, env={
                                          **os.environ, "CAIRN_JOB": f"hf-{step}", "TRAINER_ROWS": "1",
                                          "CAIRN_SOCKET": self.world.socket(0), "TRAINER_RAW": names[rank]})
                     for rank in (0, 1)]
            self.assertEqual([rank.wait(HANG_S) for rank in ranks], [0, 0])
            return {row["name"] for row in self.listed("llm/ranks")["files"] if row["content"] == "stored"}

        self.assertEqual(save(1, "config.json", "tokens/vocab.txt"), {"config.json", "tokens/vocab.txt"})
        for name in ("config.json", "tokens/vocab.txt", "rank-00001/tokens/vocab.txt"):
            status, _, body = self.ask("llm/ranks", name)
            self.assertEqual((status, len(body)), (200, 12345), name)
        self.assertEqual(save(2, "state", "state"), {"rank-00000/state", "rank-00001/state"})
        self.assertEqual(len(self.ask("llm/ranks", "rank-00001/state")[2]), 12345)
        self.assertEqual(self.ask("llm/ranks", "state")[0], 404)

    def test_folders_of_transformers_are_what_the_safetensors_library_reads(self):
        """Exported, imported, restored by name, exported again, and fetched over HTTP."""
        self.assertEqual(len(HF_CASES), 4)
        for case, expected in HF_CASES.items():
            wanted = {name: (HF_TYPES[dtype], shape, bytes.fromhex(data))
                      for name, (dtype, shape, data) in expected["tensors"].items()}
            export(HF / case, self.folder / case)
            self.assertEqual(read(self.folder / case), wanted, case)
            self.world.cairn("import", "hf", HF / case, f"hub/{case}@1")
            self.assertEqual(read(self.exported(f"{case}-again", f"hub/{case}@1")), wanted)
            fetched = self.fetch_all(f"hub/{case}", self.folder / f"{case}-fetched", max_shard_size="4KB")
            self.assertEqual(read(fetched), wanted)
            index = json.loads((fetched / INDEX).read_text())["weight_map"]
            self.assertEqual(set(index), set(wanted))
            for name in ("config.json", "generation_config.json"):
                self.assertEqual((fetched / name).read_bytes(), (HF / case / name).read_bytes())

    def test_texts_in_the_headers_of_kept_files_are_in_each_file_as_export_has_them(self):
        source = cases.made(self.folder / "lora")
        for number, (texts, late) in enumerate((
                ({"ss_network_dim": "4", "same": "x", "long": "t" * (3 * MIB)}, False),
                ({"ss_network_dim": "8", "same": "x", "own": "\"y\"\n"}, True))):
            header = {} if late else {"__metadata__": texts}
            header[f"w{number}"] = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}
            if late:
                header["__metadata__"] = texts
            text = json.dumps(header).encode()
            (source / f"part{number}.safetensors").write_bytes(
                struct.pack("<Q", len(text)) + text + struct.pack("<f", number))
        (source / "broken.safetensors").write_bytes(b"not such a file")
        self.world.cairn("put", source, "hf/texts@1")
        for query, words in (({}, ()), ({"max_shard_size": "4"}, ("--max-shard-size", "4B")),
                             ({"dtype": "bf16"}, ("--dtype", "bf16"))):
            out = self.folder / f"out{len(words)}{''.join(words)}"
            self.world.cairn("export", "hf/texts@1", out, *words)
            told = self.listed("hf/texts", **query)
            self.assertEqual(told["left_out"]["texts"], 1)
            for path in out.glob("*.safetensors"):
                status, _, body = self.ask("hf/texts", path.name, **query)
                self.assertEqual((status, body == path.read_bytes()), (200, True), path)
                texts = json.loads(body[8:8 + struct.unpack("<Q", body[:8])[0]])["__metadata__"]
                self.assertEqual((texts["ss_network_dim"], texts["same"], texts["own"],
                                  len(texts["long"])), ("4", "x", "\"y\"\n", 3 * MIB))

    def test_a_version_without_tensors_has_its_files_alone(self):
        (self.folder / "plain").mkdir()
        (self.folder / "plain" / "a.txt").write_bytes(b"a")
        self.world.cairn("put", self.folder / "plain", "plain/files@1")
        told = self.listed("plain/files")
        self.assertEqual((told["tensors"], [row["name"] for row in told["files"]]), (0, ["a.txt"]))
        self.assertEqual(self.ask("plain/files", "a.txt")[2], b"a")
        self.assertEqual(self.ask("plain/files", INDEX)[0], 404)

    def test_a_tensor_that_no_file_can_hold_is_named_and_hides_no_other_file(self):
        (self.folder / "f4").mkdir()
        cases.safetensors(self.folder / "f4" / "x.safetensors", {"narrow": ("F4", [8], b"1234"), "w": ("F32", [2], b"12345678")})
        (self.folder / "f4" / "config.json").write_text("{}")
        self.world.cairn("put", self.folder / "f4", "narrow/m@1")
        self.assertEqual(self.ask("narrow/m", "config.json")[::2], (200, b"{}"))
        # Its refusals are its own, not those of the tensor.
        self.assertEqual(self.ask("narrow/m", "config.json", headers={"Range": "bytes=2-"})[0], 416)
        self.assertEqual(self.ask("narrow/m", "config.json", headers={"If-Match": '"other"'})[0], 412)
        for name in ("", "model.safetensors"):
            status, _, body = self.ask("narrow/m", name)
            self.assertEqual(status, 501)
            self.assertIn("tensor narrow has elements of less than a byte", json.loads(body)["detail"])
        self.assertEqual(self.listed("narrow/m", only="w")["tensors"], 1)

    def test_tags_heads_and_wrong_queries(self):
        (self.folder / "m").mkdir()
        cases.safetensors(self.folder / "m" / "x.safetensors", {"w": ("F32", [2], b"12345678")})
        self.world.cairn("put", self.folder / "m", "tags/m@1")
        status, headers, body = self.ask("tags/m", "model.safetensors", "HEAD")
        whole = self.ask("tags/m", "model.safetensors")[2]
        self.assertEqual((status, int(headers["Content-Length"]), body), (200, len(whole), b""))
        tag = headers["ETag"]
        self.assertEqual(self.ask("tags/m", "model.safetensors", headers={"If-None-Match": tag})[0], 304)
        tags = {self.ask("tags/m", "model.safetensors", "HEAD", **query)[1]["ETag"]
                for query in ({}, {"dtype": "bf16"}, {"dtype": "F16"}, {"only": "w*"},
                              {"max_shard_size": "1GB"})}
        self.assertEqual(len(tags), 5)
        self.assertEqual(self.ask("tags/m", "model.safetensors", headers={"Range": f"bytes={len(whole)}-"})[0], 416)
        for query in ({"dtype": "int8"}, {"dtype": "I32"}, {"max_shard_size": "0"}, {"max_shard_size": "big"}):
            status, _, body = self.ask("tags/m", "model.safetensors", **query)
            self.assertEqual(status, 400, query)
            self.assertIn(next(iter(query)), json.loads(body)["detail"])
        self.assertEqual(self.listed("tags/m", only="v*")["files"], [])
        self.assertEqual(self.ask("tags/none")[0], 404)

    def test_a_damaged_block_is_an_error_or_cuts_the_connection(self):
        data = random.Random(9).randbytes(20 * MIB)
        (self.folder / "d").mkdir()
        cases.safetensors(self.folder / "d" / "w.safetensors", {"w": ("F32", [5 * MIB], data)})
        self.world.cairn("put", self.folder / "d", "damage/d@1")
        path, = (path for path in self.world.stored("w.safetensors") if "damage" in path.parts)
        cases.flip(path, 15 * MIB)
        status, _, body = self.ask("damage/d", "model.safetensors")
        self.assertEqual((status, self.broken), (200, True))
        self.assertTrue(len(body) < 15 * MIB + 4096 and body[4096:] == data[:len(body) - 4096])
        status, _, body = self.ask("damage/d", "model.safetensors", headers={"Range": f"bytes={15 * MIB + 4096}-"})
        self.assertEqual((status, json.loads(body)["code"]), (502, "store-corrupt"))


if __name__ == "__main__":
    unittest.main()
