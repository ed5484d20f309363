# SPDX-License-Identifier: Apache-2.0
# ctest: engines=again
"""What waits longest goes first: in which order the store sees the parts of several saves, and how
many of them at once."""
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

from patience import HANG_S
import held
from s3world import BIN, S3Fault, S3World, wait_until
from test_jobs import Job

MIB = 1 << 20
PARTS = 5
SIZE = (PARTS - 1) * 5 * MIB + MIB


class Order(unittest.TestCase):
    def start(self, requests, *uploader_arguments):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="cairn-s3-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.s3 = S3Fault(self.folder)
        self.addCleanup(self.s3.stop)
        self.world = S3World(self.s3, debug=False, uploader_arguments=[
            "--part-size", "5MiB", "--heartbeat", "200ms", "--no-hedge", "--workers", "1",
            "--store-requests", str(requests), "--store-connections", str(requests),
            *uploader_arguments])
        self.addCleanup(self.world.close)

    def put(self, name):
        source = self.world.root / f"{name}.bin"
        source.write_bytes(os.urandom(SIZE))
        return subprocess.Popen(
            [BIN / "cairn", "put", source, f"{name}/run@1"], text=True, stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            env={**os.environ, **self.world.env, "CAIRN_URL": self.world.url,
                 "CAIRN_SOCKET": self.world.socket(0), "CAIRN_PROGRESS": "none"})

    def wait_sealed(self, count):
        """So many saves stand in the uploader's queue with all their bytes."""
        def sealed():
            lines = held.journal_entries(self.world.root / "uploader-0", "node-0",
                                         self.world.store, self.world.env)
            return sum(json.loads(line).get("t") == "seal" for line in lines) >= count
        wait_until(sealed, 30, 0.1)

    def parts(self):
        """The journal's lines of parts, in the order in which they came."""
        lines = [line for line in self.s3.journal(op="part") if "/data/" in line["key"]]
        return sorted(lines, key=lambda line: line["mono_us"] - line["took_us"])

    def save_three(self, rules):
        """A file, staged memory and a file, one after the other, while the first one's first part
        is on its way. Returns the runs' names in that order."""
        self.s3.rules(f"op=part key=*/data/* nth=1 : delay=6000\n{rules}")
        first = self.put("first")
        wait_until(lambda: self.s3.state()["counters"]["op_part"])
        self.wait_sealed(1)
        job = Job(self.world, "job", 1, [1], run="second/run", rows=SIZE // MIB)
        self.wait_sealed(2)
        third = self.put("third")
        self.wait_sealed(3)
        self.assertEqual(len(self.parts()), 0, "too slow: the first part has its answer already")
        for process in (first, third):
            _, said = process.communicate(timeout=HANG_S)
            self.assertEqual(process.returncode, 0, said + self.world.logs())
        for status, lines, said in job.end():
            self.assertEqual((status, lines[-1]["code"]), (0, "ok"), said + self.world.logs())
        self.world.audit()
        return ["first", "second", "third"]

    def test_with_one_slot_the_oldest_goes_first_and_what_was_put_off_before_the_younger(self):
        self.start(1)
        names = self.save_three("op=part key=*/first/* nth=2 : status=503/SlowDown\n"
                                "op=part key=*/second/* nth=3 : status=500/InternalError")
        seen = [(name, line["part"]) for line in self.parts() if line["status"] == 200
                for name in names if f"/{name}/" in line["key"]]
        self.assertEqual(seen, [(name, part) for name in names for part in range(1, PARTS + 1)])
        self.assertEqual([rule["acted"] for rule in self.s3.state()["rules"]], [1, 1, 1])
        ends = 0
        for line in self.parts():
            self.assertLessEqual(ends, line["mono_us"] - line["took_us"], "two at once")
            ends = line["mono_us"]

    def test_with_more_slots_parts_of_several_saves_are_under_way_at_once(self):
        self.start(8)
        self.s3.rules("op=part : delay=700")
        jobs = [Job(self.world, name, 1, [1], run=f"{name}/run", rows=SIZE // MIB)
                for name in ("first", "second", "third")]
        for job in jobs:
            for status, lines, said in job.end():
                self.assertEqual((status, lines[-1]["code"]), (0, "ok"), said + self.world.logs())
        self.world.audit()
        spans = [(line["key"], line["mono_us"] - line["took_us"], line["mono_us"])
                 for line in self.parts()]
        beside = max(len({key for key, begin, end in spans if begin <= at < end})
                     for _, at, _ in spans)
        under_way = max(sum(begin <= at < end for _, begin, end in spans) for _, at, _ in spans)
        self.assertGreaterEqual(beside, 2)
        self.assertGreaterEqual(under_way, 7)
        self.assertLessEqual(under_way, 8)

    def test_while_one_part_stalls_the_others_end(self):  # S14
        self.start(4, "--store-stall-timeout", "3s")
        for side in ("req-stall@50%", "stall@h10"):
            with self.subTest(side):
                before = len(self.parts())
                self.s3.rules(f"op=part part=2 nth=1 : {side}")
                job = Job(self.world, side, 1, [1], run=f"stall/{side[:3]}", rows=SIZE // MIB)
                for status, lines, said in job.end():
                    self.assertEqual((status, lines[-1]["code"]), (0, "ok"),
                                     said + self.world.logs())
                parts = self.parts()[before:]
                self.assertEqual(self.s3.acted(), 1)
                begin = {line["part"]: line["mono_us"] - line["took_us"] for line in parts
                         if line["rule"] < 0}
                ends = {line["part"]: line["mono_us"] for line in parts if line["rule"] < 0}
                self.assertEqual(set(ends), set(range(1, PARTS + 1)))
                again = begin.pop(2)
                stalled = again - min(begin.values())
                self.assertGreater(stalled, 2500000)
                self.assertLess(stalled, 5000000, "it was given up late")
                for part in begin:
                    self.assertLess(ends[part], again - 1500000, "it waited for the stalled one")
        self.world.audit()


if __name__ == "__main__":
    unittest.main(verbosity=2)
