# SPDX-License-Identifier: Apache-2.0
# ctest: engines=again
"""`cairn inspect` over files that torch and safetensors wrote, on a disk and in a bucket: what it says
is what those libraries say, and no byte of a tensor is read for it."""
import json
import os
import pathlib
import struct
import subprocess
import unittest

import cases
from patience import HANG_S
from s3world import BIN, BUCKET, S3Fault, signed

VECTORS = pathlib.Path(__file__).resolve().parents[1] / "vectors" / "torch"
EXPECTED = json.loads((VECTORS / "expected.json").read_text())


def inspect(*words, status=0, env=None):
    ran = subprocess.run([BIN / "cairn", "inspect", *map(str, words)], capture_output=True,
                         text=True, timeout=HANG_S, env={**os.environ, **(env or {})})
    if ran.returncode != status:
        raise AssertionError(f"{words}: exit {ran.returncode}: {ran.stdout}{ran.stderr}")
    return ran


def safetensors(path, entries, metadata=None):
    header = {"__metadata__": metadata} if metadata else {}
    at = 0
    for name, (dtype, shape, size) in entries.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + at)
    return 8 + len(text)


class Inspect(cases.Case):
    def test_it_says_of_a_torch_file_what_torch_says(self):
        self.assertEqual(len(EXPECTED["files"]), 8)
        for name, expected in EXPECTED["files"].items():
            told = json.loads(inspect(VECTORS / name, "--json").stdout)
            self.assertEqual(told["format"], "torch-legacy" if "legacy" in name else "torch")
            self.assertEqual([(t["name"], t["dtype"], t["shape"]) for t in told["tensors"]],
                             [(t["name"], t["dtype"], t["shape"]) for t in expected["tensors"]])
            self.assertEqual([t["bytes"] for t in told["tensors"]], [len(t["hex"]) // 2 for t in expected["tensors"]])
            self.assertEqual(told["values"], expected["values"])

    def test_tensors_that_share_their_bytes_are_aliases_and_strided_ones_say_so(self):
        told = json.loads(inspect(VECTORS / "everything.pt", "--json").stdout)
        rows = {row["name"]: row for row in told["tensors"]}
        self.assertEqual((rows["tied_again"]["kind"], rows["tied_again"]["alias_of"]), ("alias", "tied"))
        self.assertEqual((rows["turned"]["kind"], rows["turned"]["stride"]), ("strided", [1, 6]))
        self.assertEqual((rows["rows"]["kind"], rows["rows"]["offset"], rows["rows"]["storage"]),
                         ("contiguous", 24, rows["tied"]["storage"]))
        table = inspect(VECTORS / "everything.pt").stdout
        self.assertIn("alias of tied", table)
        names = inspect(VECTORS / "everything.pt", "--output", "name").stdout.split()
        self.assertEqual(names, [row["name"] for row in told["tensors"]])

    def test_a_file_that_asks_for_a_command_is_refused_and_nothing_is_run(self):
        ran = inspect(VECTORS / "command.pt", status=1)
        self.assertIn("posix.system", ran.stderr)
        self.assertFalse(pathlib.Path("/tmp/a-pickle-was-run").exists())

    def test_what_is_no_such_file_is_an_error_that_names_it(self):
        text, short, cut = (self.folder / name for name in ("text.pt", "short.pt", "cut.pt"))
        text.write_text("not a checkpoint, but long enough to be one\n")
        short.write_bytes(b"PK")
        cut.write_bytes((VECTORS / "everything.pt").read_bytes()[:9000])
        for path, status, words in ((text, 1, "neither"), (short, 7, "cut short"),
                                    (cut, 7, "cut short"), (self.folder, 1, "neither a DeepSpeed"),
                                    (self.folder / "none", 3, "no such file"),
                                    ("s3://", 2, "names no bucket")):
            ran = inspect(path, status=status)
            self.assertIn(words, ran.stderr)
            self.assertIn(str(path), ran.stderr)

    def test_a_folder_is_listed_as_it_would_be_exported(self):
        zero = VECTORS.parent / "deepspeed"
        told = json.loads(inspect(zero / "parallel" / "tensor_parallel", "--json").stdout)
        tensors = {row["name"]: row for row in told["tensors"]}
        self.assertEqual((told["format"], told["left_out"], told["values"]), ("deepspeed-zero", [], []))
        self.assertEqual(tensors["row.weight"],
                         {"name": "row.weight", "dtype": "F32", "shape": [7, 6], "kind": "boxes",
                          "bytes": 168, "pieces": tensors["row.weight"]["pieces"]})
        self.assertEqual(tensors["column.bias"]["kind"], "pieces")
        self.assertEqual(tensors["optimizer.state.row.weight.exp_avg"]["shape"], [7, 6])
        told = json.loads(inspect(zero / "stage2", "--json").stdout)
        self.assertEqual([(row["name"], row["alias_of"]) for row in told["tensors"]
                          if row["kind"] == "alias"], [("head.weight", "embed.weight")])
        ran = inspect(zero / "parallel" / "experts")
        for name in ("", "optimizer.state."):
            self.assertIn(name + "first.deepspeed_moe.experts.deepspeed_experts.3.weight", ran.stdout)
        self.assertNotIn("left out: optimizer.state.", ran.stderr)

    def test_of_a_large_file_the_header_alone_is_read(self):
        large = self.folder / "large.safetensors"
        header = safetensors(large, {"w": ("BF16", [1 << 31, 2], 1 << 33), "b": ("F32", [2], 8)}, {"format": "pt"})
        ran = subprocess.run(["strace", "-f", "-P", large, "-e", "trace=pread64,read", "-o",
                              self.folder / "calls", BIN / "cairn", "inspect", large, "--json"],
                             capture_output=True, text=True, timeout=HANG_S,
                             env={**os.environ, "ASAN_OPTIONS": "detect_leaks=0"})
        told = json.loads(ran.stdout)
        self.assertEqual([(t["name"], t["bytes"]) for t in told["tensors"]], [("w", 1 << 33), ("b", 8)])
        self.assertEqual(told["values"], [{"name": "format", "value": "pt"}])
        read = sum(int(line.rsplit("=", 1)[1]) for line in
                   (self.folder / "calls").read_text().splitlines() if "pread64(" in line)
        self.assertLess(read, header + 64)

    def test_an_object_is_read_by_ranges(self):
        bucket = cases.made(self.folder / "s3")
        s3 = S3Fault(bucket, case=self)
        env = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
        env.update(s3.env())
        content = (VECTORS / "everything.pt").read_bytes()
        signed(env, f"/{BUCKET}/plain/deep/model.pt", method="PUT", body=content)
        told = json.loads(inspect(f"s3://{BUCKET}/plain/deep/model.pt", "--json", env=env).stdout)
        self.assertEqual(told["values"], EXPECTED["files"]["everything.pt"]["values"])
        ran = inspect(f"s3://{BUCKET}/plain/deep/none.pt", status=3, env=env)
        self.assertIn("none.pt", ran.stderr)


if __name__ == "__main__":
    unittest.main()
