# SPDX-License-Identifier: Apache-2.0
# ctest: engines=again
"""Restore plans on S3: someone without an uploader asks for ranges and URLs, reads them at the store
by plain HTTP, and compares what comes with what was saved and with the checksums of the blocks."""
import concurrent.futures
import json
import os
import pathlib
import struct
import sys
import time
import unittest
import urllib.error
import urllib.parse
import urllib.request

import cases
from passing import Passing
from patience import HANG_S
from s3world import BIN, S3Fault, S3World, wait_until, run

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "python"))
from read_without_cairn import crc32c  # noqa: E402

MIB = 1 << 20
COLUMNS, ROWS = 1024 * 256, 3  # of the trainer's tensor: 1 MiB a row; ROWS of each rank


def fetch(url, offset=None, size=None, method="GET", body=None):
    """(status, bytes) of a range, or of the whole."""
    headers = {} if offset is None else {"Range": f"bytes={offset}-{offset + size - 1}"}
    request = urllib.request.Request(url, data=body, headers=headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=HANG_S) as reply:
            return reply.status, reply.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def life_of(item):
    query = urllib.parse.parse_qs(urllib.parse.urlsplit(item["url"]).query)
    return int(query["X-Amz-Expires"][0])


class Plans(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.s3 = S3Fault(cases.folder(cls), case=cls)
        cls.world = S3World(cls.s3, nodes=2, server_arguments=["--sweep-interval", "200ms"],
                            uploader_arguments=["--part-size", "5MiB", "--heartbeat", "200ms"], case=cls)
        cases.at_the_end(cls, cls.world.audit)

    def plan(self, checkpoint, body, world=None):
        """(status, headers, answer)"""
        return (world or self.world).call("POST", f"/v1/runs/{checkpoint}/restore-plans", body)

    def read(self, checkpoint, answer):
        """{shard: {offset: bytes}}: all ranges at once; each block is compared with its checksum."""
        path = f"/v1/runs/{checkpoint}"
        manifest = self.world.read(path + "/manifest")
        sums = self.world.get(path + "/checksums")[2]
        first = {shard["name"]: shard["first_block"] for shard in manifest["shards"]}
        wanted = [(item, offset, size) for item in answer["objects"] for offset, size in item["ranges"]]
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            replies = list(pool.map(lambda want: fetch(want[0]["url"], *want[1:]), wanted))
        found = {item["shard"]: {} for item in answer["objects"]}
        for (item, offset, size), (status, data) in zip(wanted, replies):
            self.assertEqual((status, len(data), offset % MIB), (206, size, 0), item["shard"])
            for at in range(0, size, MIB):
                block = first[item["shard"]] + (offset + at) // MIB
                self.assertEqual(crc32c(data[at:at + MIB]), struct.unpack_from("<I", sums, 4 * block)[0], item["shard"])
            found[item["shard"]][offset] = data
        return found

    def test_all_shards_of_a_tree_are_read_from_their_urls(self):
        world, tree = self.world, self.world.root / "tree"
        (tree / "déjà vu").mkdir(parents=True)
        (tree / "many parts.bin").write_bytes(os.urandom(6 * MIB + 17))
        (tree / "empty").write_bytes(b"")
        (tree / "déjà vu" / "a+b = 100%#?&").write_bytes(os.urandom(MIB + 1))
        world.cairn("put", tree, "t/tree@1")
        checkpoint = "t/tree/checkpoints/1"
        status, headers, answer = self.plan(checkpoint, {})
        self.assertEqual((status, headers["Cache-Control"]), (201, "no-store"))
        self.assertEqual(answer["version"], world.version("t/tree", 1)["version"])
        self.assertEqual(answer["expires_s"], 300)
        self.assertEqual({life_of(item) for item in answer["objects"]}, {300})
        self.assertFalse([item for item in answer["objects"] if "path" in item])
        files = {str(p.relative_to(tree)): p.read_bytes() for p in tree.rglob("*") if p.is_file()}
        found = self.read(checkpoint, answer)
        self.assertEqual({name: b"".join(parts.values()) for name, parts in found.items()}, files)
        self.assertEqual({i["shard"]: i["bytes"] for i in answer["objects"]},
                         {name: len(data) for name, data in files.items()})
        for item in answer["objects"]:
            self.assertEqual(int(item["crc32c"], 16), crc32c(files[item["shard"]]))
        again = self.plan(checkpoint, {})[2]
        self.assertEqual([(i["shard"], i["ranges"]) for i in again["objects"]],
                         [(i["shard"], i["ranges"]) for i in answer["objects"]])

    def test_a03_a_url_is_for_one_key_and_for_reading(self):  # A03
        tree = cases.made(self.world.root / "two")
        for name in "ab":
            (tree / name).write_bytes(name.encode() * 1000)
        self.world.cairn("put", tree, "t/two@1")
        status, _, answer = self.plan("t/two/checkpoints/1", {"shards": ["a"]})
        self.assertEqual((status, [i["shard"] for i in answer["objects"]]), (201, ["a"]))
        url = answer["objects"][0]["url"]
        self.assertEqual(fetch(url), (200, b"a" * 1000))
        self.assertEqual(fetch(url.replace("/data/a?", "/data/b?"))[0], 403)
        self.assertEqual(fetch(url.replace("/data/a?", "/manifest.json?"))[0], 403)
        self.assertEqual(fetch(url, method="PUT", body=b"x")[0], 403)
        self.assertEqual(fetch(url, method="DELETE")[0], 403)
        self.assertEqual(fetch(url.replace("Expires=300", "Expires=3000"))[0], 403)
        self.assertEqual(fetch(url), (200, b"a" * 1000))

    def save_tensors(self):
        def rank(number):
            return run([BIN / "tests/trainer", "t/tensors", number, 2, 5],
                       env={**os.environ, "CAIRN_SOCKET": self.world.socket(number),
                            "CAIRN_JOB": "tensors", "TRAINER_ROWS": str(ROWS)})
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            for done in pool.map(rank, range(2)):
                self.assertEqual(done.returncode, 0, done.stderr + self.world.logs())

    def header(self, checkpoint, shard):
        """(where the tensors begin, the header) of a safetensors file."""
        path = f"/v1/runs/{checkpoint}/shards/{urllib.parse.quote(shard, safe='')}/data"
        size = struct.unpack("<Q", self.world.get(path, headers={"Range": "bytes=0-7"})[2])[0]
        text = self.world.get(path, headers={"Range": f"bytes=8-{8 + size - 1}"})[2]
        return 8 + size, json.loads(text)

    def test_a_box_of_a_tensor_is_in_the_ranges_of_its_plan(self):
        self.save_tensors()
        checkpoint = "t/tensors/checkpoints/5"
        rows, columns = (ROWS - 1, ROWS + 1), (1000, 4000)  # the last of rank 0, the first of 1
        box = {"name": "w", "start": [rows[0], columns[0]], "count": [rows[1] - rows[0], columns[1] - columns[0]]}
        status, _, answer = self.plan(checkpoint, {"tensors": [box]})
        self.assertEqual((status, len(answer["objects"])), (201, 2), answer)
        found = self.read(checkpoint, answer)
        self.assertLessEqual(sum(len(d) for parts in found.values() for d in parts.values()), 4 * MIB)
        for rank, item in enumerate(sorted(answer["objects"], key=lambda i: i["shard"])):
            begin, header = self.header(checkpoint, item["shard"])
            row = rows[0] + rank - ROWS * rank  # of this rank's rows
            at = begin + header["w"]["data_offsets"][0] + 4 * (row * COLUMNS + columns[0])
            offset, data = [(o, d) for o, d in found[item["shard"]].items() if o <= at][-1]
            numbers = struct.unpack_from(f"<{columns[1] - columns[0]}I", data, at - offset)
            first = row * COLUMNS + columns[0] + 5
            self.assertEqual(list(numbers), [(i * 2654435761 & 0xffffffff) ^ rank << 20 for i in
                                             range(first, first + len(numbers))])
        self.assertEqual(self.plan(checkpoint, {"tensors": ["v"]})[0], 404)

    def test_a03_urls_end_within_the_grace_also_of_what_is_in_the_trash(self):  # C03
        passing = Passing()
        self.addCleanup(self.s3.ask, "clock", "0")
        world = S3World(self.s3, "short", nodes=1, env=passing.env(), server_arguments=[
            "--sweep-interval", "100ms", "--trash-grace", "200s"], case=self)
        source = cases.file(world.root / "f", b"x" * 1000)
        for step in (1, 2):
            world.cairn("put", source, f"t/short@{step}")
        asked = time.monotonic()

        def now():
            return passing.passed_ms / 1000 + time.monotonic() - asked
        answer = self.plan("t/short/checkpoints/1", {}, world)[2]
        self.assertEqual(answer["expires_s"], 199)
        url = answer["objects"][0]["url"]
        world.cairn("rm", "t/short@1")
        trashed, lives, urls = f"t/short/checkpoints/{answer['version']}", [], [(url, 199)]

        def planned():
            """Once the server's catalog has seen that 20 s have passed, too."""
            reply = self.plan(trashed, {}, world)
            return reply if reply[0] != 201 or not lives or reply[2]["expires_s"] <= lives[-1] - 20 else None
        while (reply := wait_until(planned))[0] == 201:
            lives.append(reply[2]["expires_s"])
            if lives[-1] > 1:
                urls.append((reply[2]["objects"][0]["url"], now() + lives[-1] - 1))
            for held, end in urls:
                status = fetch(held)[0]
                self.assertIn(status, (200,) if now() < end - 1 else (200, 403))
            passing.passes(20)
            self.s3.ask("clock", str(passing.passed_ms // 1000))
        self.assertEqual((reply[0], reply[2]["code"]), (410, "checkpoint-deleted"))
        self.assertEqual(lives, sorted(lives, reverse=True))
        self.assertGreater(now(), 199)
        self.assertEqual(fetch(url)[0], 403)
        self.assertEqual(world.leaks(), [])
        world.audit()

    def test_zz_a04_no_url_is_in_any_log(self):
        self.assertIn("http.line", (self.world.root / "server.log").read_text())
        self.assertEqual(self.world.leaks(), [], self.world.logs())


if __name__ == "__main__":
    unittest.main(verbosity=2)
