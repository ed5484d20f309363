# SPDX-License-Identifier: Apache-2.0
# ctest: engines=again
"""`cairn diff`: which shards and tensors of stored checkpoints differ by what is known of them; with
`--tensors` how many elements, and by how much."""
import json
import struct
import unittest
import urllib.error
import urllib.request

import cases
from patience import HANG_S
from test_export import EXPECTED, ZERO, export
from test_stored_tensors import Case


def floats(*values):
    return struct.pack(f"<{len(values)}f", *values)


def with_long_names(url):
    """An answer of StandIn: that of the server, with one name longer than any that a save may have."""
    def answer(request):
        try:
            with urllib.request.urlopen(url + request.path, timeout=HANG_S) as said:
                status, kind, body = said.status, said.headers["Content-Type"], said.read()
        except urllib.error.HTTPError as refused:
            status, kind, body = refused.code, refused.headers["Content-Type"], refused.read()
        return status, body.replace(b"gone.bin", b"gone" + 400_000 * b"x"), {"Content-Type": kind}
    return answer


class Diff(Case):
    def diff(self, *words, status=0):
        ran = self.world.cairn("diff", "--tensors", *words, "--json", status=status)
        return json.loads(ran.stdout) if not status else ran.stderr

    def test_each_difference_is_counted_and_measured(self):
        big = [float(i) for i in range(3_000_000)]  # of several windows
        changed = list(big)
        changed[0], changed[2_999_999] = 0.5, -1.0
        nan = float("nan")
        a = cases.safetensors(self.folder / "a", {
            "same": ("F32", [2], floats(1, nan)), "big": ("F32", [3_000_000], floats(*big)),
            "int": ("I64", [2], struct.pack("<2q", 5, -7)), "shape": ("F32", [2], floats(1, 2)),
            "gone": ("F32", [1], floats(1)), "kind": ("I32", [1], b"\1\0\0\0"),
            "bf16": ("F32", [3], floats(1, 2.5, 3)), "zero": ("F32", [2], floats(0.0, 4))})
        b = cases.safetensors(self.folder / "b", {
            "same": ("F32", [2], floats(1, nan)), "big": ("F32", [3_000_000], floats(*changed)),
            "int": ("I64", [2], struct.pack("<2q", 5, 35)), "shape": ("F32", [1, 2], floats(1, 2)),
            "new": ("F32", [1], floats(1)), "kind": ("F32", [1], floats(1)),
            "bf16": ("BF16", [3], struct.pack("<3H", 0x3f80, 0x4020, 0x4080)),
            "zero": ("F32", [2], floats(-0.0, nan))})
        told = self.diff(a, b)
        rows = {row["name"]: (row["verdict"], row["elements"], row["differing"], row["largest"])
                for row in told["differ"]}
        self.assertEqual(rows, {
            "big": ("differs", 3_000_000, 2, 3_000_000.0), "int": ("differs", 2, 1, 42.0),
            "shape": ("shape", 0, 0, None), "gone": ("only in A", 0, 0, None),
            "new": ("only in B", 0, 0, None), "kind": ("dtype", 0, 0, None),
            "bf16": ("differs", 3, 1, 1.0), "zero": ("differs", 2, 2, 0.0)})
        self.assertEqual((told["same"], told["equal"]), (1, False))
        said = self.world.cairn("diff", a, b, "--only", "b*", "--workers", "1").stdout
        self.assertIn("big: 2 of 3000000 elements differ, at most by 3000000 (F32 3000000)\n", said)
        self.assertIn("0 tensors are the same, 2 not", said)

    def test_a_checkpoint_and_what_was_made_of_it_are_the_same_wherever_they_lie(self):
        export(ZERO / "stage3", self.folder / "safe", "--optimizer")
        self.world.cairn("import", "deepspeed", ZERO / "stage3", "f/run@1")
        for other in (self.folder / "safe", "f/run@1"):
            told = self.diff(ZERO / "stage3", other)
            # An export to safetensors has no second names.
            self.assertEqual([row["name"] for row in told["differ"]], ["head.weight"] if other != "f/run@1" else [])
        self.world.cairn("import", "deepspeed", ZERO / "stage2", "f/run@2")
        row, = self.diff("f/run@1", "f/run@2", "--only", "embed*")["differ"]
        sides = [struct.unpack("<77f", bytes.fromhex(EXPECTED[case]["embed.weight"]["fp32"]))
                 for case in ("stage3", "stage2")]
        apart = [abs(x - y) for x, y in zip(*sides) if x != y]
        self.assertEqual((row["elements"], row["differing"], row["largest"]), (77, len(apart), max(apart)))
        self.assertIn("f/run@3", self.diff("f/run@1", "f/run@3", status=3))

    def test_what_is_known_of_two_checkpoints_is_compared_without_their_bytes(self):
        cairn, tree = self.world.cairn, self.folder / "tree"
        tree.mkdir()
        (tree / "kept.bin").write_bytes(b"kept")
        (tree / "gone.bin").write_bytes(b"g" * 2048)
        (tree / "grown.bin").write_bytes(b"1")
        cases.safetensors(tree / "m.safetensors", {"same": ("F32", [2], floats(1, 2)), "went": ("F32", [1], floats(1)),
                                             "turned": ("F32", [2, 1], floats(1, 2))})
        cairn("put", tree, "known/run@1")
        (tree / "gone.bin").unlink()
        (tree / "grown.bin").write_bytes(b"12")
        (tree / "new.bin").write_bytes(b"new")
        cases.safetensors(tree / "m.safetensors", {"same": ("F32", [2], floats(1, 3)), "came": ("BF16", [1], b"\0\0"),
                                             "turned": ("F32", [1, 2], floats(1, 2))})
        cairn("put", tree, "known/run@2")
        data = self.world.stored("known/run/*/*/data/*")
        self.assertEqual(len(data), 8)
        for path in data:  # no byte of them is read
            path.unlink()
        store = ("--store", self.world.store)
        for more in ((), store):
            told = json.loads(cairn("diff", "known/run@1", "known/run@2", "--json", *more).stdout)
            shards = {row["name"]: (row["verdict"], row["fields"]) for row in told["shards"]["differ"]}
            self.assertEqual(shards, {
                "gone.bin": ("only in A", []), "new.bin": ("only in B", []),
                "grown.bin": ("differs", ["bytes", "crc32c"]), "m.safetensors": ("differs", ["bytes", "crc32c"])})
            tensors = {row["name"]: (row["verdict"], row["fields"]) for row in told["tensors"]["differ"]}
            self.assertEqual(tensors, {"went": ("only in A", []), "came": ("only in B", []),
                                       "turned": ("differs", ["shape"])})
            self.assertEqual((told["equal"], told["shards"]["same"], told["tensors"]["same"]), (False, 1, 1))
            self.assertTrue(json.loads(cairn("diff", "known/run@1", "known/run@1", "--json", *more).stdout)["equal"])
        said = cairn("diff", "known/run@1", "known/run@2").stdout.splitlines()
        self.assertRegex(said[0], r"^A  known/run@1 ckpt_\S+: .* in 4 shards of 1 rank$")
        self.assertIn("shard gone.bin: only in A (2.0 KiB)", said)
        self.assertIn("tensor turned: shape [2,1] and [1,2]", said)
        self.assertEqual(said[-1], "1 shard the same, 4 not; 1 tensor the same, 3 not")
        self.assertRegex(cairn("diff", "known/run@1", "known/run@7", status=3).stderr, "known/run@7")

    def test_a_name_that_is_longer_than_a_line_is_cut(self):
        tree = cases.made(self.folder / "long")
        (tree / "kept.bin").write_bytes(b"kept")
        (tree / "gone.bin").write_bytes(b"g" * 2048)
        self.world.cairn("put", tree, "long/run@1")
        (tree / "gone.bin").unlink()
        self.world.cairn("put", tree, "long/run@2")
        between = cases.StandIn(with_long_names(self.world.url), case=self)
        said = self.world.cairn("diff", "long/run@1", "long/run@2", "--server", between.url).stdout
        self.assertIn("gone" + 1000 * "x", said)
        self.assertTrue(all(len(line) <= 2200 for line in said.splitlines()))


if __name__ == "__main__":
    unittest.main()
