# SPDX-License-Identifier: Apache-2.0
# ctest: engines=again
"""P3, S17, S20: one byte of any part that flips, at the part's begin, in its middle or at its end, on
its way to a store that checks nothing or on its way back, is found and named: shard and range."""
import os
import pathlib
import re
import shutil
import tempfile
import unittest

from s3world import S3Fault, S3World

MIB = 1 << 20
PART, BLOCK = 5 * MIB, MIB
SIZE = 2 * PART + 2 * MIB + 17
PARTS = [(1, PART), (2, PART), (3, SIZE - 2 * PART)]
READ_SIZE = 33 * MIB + 17  # ranges of 8 MiB
PLACES = {"first": ("0", lambda size: 0), "middle": ("50%", lambda size: size // 2),
          "last": ("-1", lambda size: size - 1)}
DAMAGE = re.compile(r'^bad: .*shard "?([^\s":]+)"?: bytes (\d+)-(\d+): .*expected', re.MULTILINE)


class Flips(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="cairn-s3-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.s3 = S3Fault(self.folder, ["--profile", "radosgw"])
        self.addCleanup(self.s3.stop)
        self.world = S3World(self.s3, debug=False,
                             server_arguments=["--sweep-interval", "200ms"],
                             uploader_arguments=["--part-size", "5MiB", "--heartbeat", "200ms"])
        self.addCleanup(self.world.close)

    def make_tree(self, names, size=SIZE):
        tree = self.world.root / "tree"
        tree.mkdir()
        for name in names:
            (tree / name).write_bytes(os.urandom(size))
        return tree

    def readers(self):
        """Commands that read every byte, by name: through the server and past it."""
        out = self.world.root / "out"
        past = ("--store", self.world.store)
        return {"verify": ("verify", "f/run@1"), "verify --store": ("verify", "f/run@1", *past),
                "get": ("get", "f/run@1", "-d", out),
                "get --store": ("get", "f/run@1", "-d", out, *past)}

    def named(self, text):
        """{shard: [(first, last)]} of what was called damaged."""
        found = {}
        for name, first, last in DAMAGE.findall(text):
            found.setdefault(name, set()).add((int(first), int(last)))
        return found

    def expect_block(self, ranges, at, why, size=SIZE):
        """One block is named, the one that holds this byte."""
        first = at // BLOCK * BLOCK
        self.assertEqual(ranges, {(first, min(first + BLOCK, size) - 1)}, why)

    def test_a_byte_flipped_in_any_part_is_named_with_its_block_by_every_reader(self):
        wanted = {f"part-{part}-{place}": (part, place) for part, _ in PARTS for place in PLACES}
        tree = self.make_tree([*wanted, "whole"])
        self.s3.rules("\n".join(f"op=part key=*/data/{name} part={part} : "
                                f"req-flip@{PLACES[place][0]}"
                                for name, (part, place) in wanted.items()))
        self.world.cairn("put", tree, "f/run@1")
        self.assertTrue(all(rule["acted"] for rule in self.s3.state()["rules"]))
        self.s3.rules("")
        sizes = dict(PARTS)
        for reader, arguments in self.readers().items():
            with self.subTest(reader):
                said = self.world.cairn(*arguments, status=7).stderr
                named = self.named(said)
                self.assertEqual(set(named), set(wanted), said)
                for name, (part, place) in wanted.items():
                    at = (part - 1) * PART + PLACES[place][1](sizes[part])
                    self.expect_block(named[name], at, said)
                    self.assertFalse((self.world.root / "out" / name).exists(), name)
                shutil.rmtree(self.world.root / "out", ignore_errors=True)
        self.world.audit()

    def flip_each_get(self, reader, place):
        """Flips one byte of the n-th answer and of what is asked again for it, for every n."""
        arguments, turn = (*self.readers()[reader], "--workers", "1"), 0
        while True:
            turn += 1
            before = len(self.s3.journal())
            self.s3.rules(f"op=get key=*/data/* nth={turn}-{turn + 1} : flip@{PLACES[place][0]}")
            said = self.world.cairn(*arguments, status=None)
            hit = [line for line in self.s3.journal()[before:] if line["rule"] == 0]
            shutil.rmtree(self.world.root / "out", ignore_errors=True)
            if not hit:
                self.assertEqual(said.returncode, 0, said.stderr)
                return turn - 1
            first, last = map(int, hit[0]["range"].removeprefix("bytes=").split("-"))
            self.assertEqual([line["range"] for line in hit], [hit[0]["range"]] * 2)
            self.assertEqual(said.returncode, 7, said.stderr)
            named = self.named(said.stderr)
            self.assertEqual(list(named), ["model.bin"], said.stderr)
            at = first + PLACES[place][1](last - first + 1)
            self.expect_block(named["model.bin"], at, said.stderr, READ_SIZE)

    def test_a_byte_flipped_twice_in_any_answer_is_named_with_its_block(self):
        source = self.make_tree(["model.bin"], READ_SIZE) / "model.bin"
        self.world.cairn("put", source, "f/run@1")
        for reader in ("verify --store", "get --store"):
            for place in PLACES:
                with self.subTest(reader=reader, place=place):
                    self.assertGreaterEqual(self.flip_each_get(reader, place), 5)
        self.s3.rules("")
        self.world.audit()


if __name__ == "__main__":
    unittest.main(verbosity=2)
