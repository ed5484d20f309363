# SPDX-License-Identifier: Apache-2.0
# ctest: engines=again
"""What waits longest goes first: in which order the store sees the parts of several saves, and how
many of them at once."""
import json
import os
import unittest

import cases
import held
from s3world import S3Fault, S3World, wait_until
from signs import go_round
from world import Job

MIB = 1 << 20
PARTS = 5
SIZE = (PARTS - 1) * 5 * MIB + MIB


class Order(unittest.TestCase):
    def start(self, requests, *uploader_arguments):
        """No connection is given up while a busy machine takes its time."""
        self.folder = cases.folder(self)
        self.s3 = S3Fault(self.folder, case=self)
        self.world = S3World(self.s3, debug=False, uploader_arguments=[
            "--part-size", "5MiB", "--heartbeat", "200ms", "--no-hedge", "--workers", "1",
            "--store-requests", str(requests), "--store-connections", str(requests),
            "--store-stall-timeout", "10min", *uploader_arguments], case=self)
        self.tried_out = self.s3.state()["counters"].get("op_part", 0)  # by the daemons' looks at the store

    def put(self, name):
        source = cases.file(self.world.root / f"{name}.bin", os.urandom(SIZE))
        return self.world.begin("put", source, f"{name}/run@1")

    def wait_sealed(self, count):
        """So many saves stand in the uploader's queue with all their bytes."""
        def sealed():
            lines = held.journal_entries(self.world.root / "uploader-0", "node-0", self.world.store, self.world.env)
            return sum(json.loads(line).get("t") == "seal" for line in lines) >= count
        wait_until(sealed, every=0.1)

    def sent(self):
        """Parts that have come to the store, answered or not."""
        return self.s3.state()["counters"].get("op_part", 0) - self.tried_out

    def parts(self):
        """The journal's lines of parts, in the order in which they came."""
        lines = [line for line in self.s3.journal(op="part") if "/data/" in line["key"]]
        return sorted(lines, key=lambda line: line["mono_us"] - line["took_us"])

    def save_three(self, rules):
        """A file, staged memory and a file, one after the other, while the first one's first part
        waits for its answer; rules hold from that answer on. Returns the runs' names in that order."""
        self.s3.rules("op=part key=*/data/* : held")
        first = self.put("first")
        wait_until(self.sent)
        self.wait_sealed(1)
        job = Job(self.world, "job", 1, [1], run="second/run", rows=SIZE // MIB)
        self.wait_sealed(2)
        third = self.put("third")
        self.wait_sealed(3)
        self.s3.rules(rules)
        for process in (first, third):
            self.world.ended(process)
        job.succeeds()
        self.world.audit()
        return ["first", "second", "third"]

    def test_with_one_slot_the_oldest_goes_first_and_what_was_put_off_before_the_younger(self):
        self.start(1)
        names = self.save_three("op=part key=*/first/* nth=1 : status=503/SlowDown\n"
                                "op=part key=*/second/* nth=3 : status=500/InternalError")
        seen = [(name, line["part"]) for line in self.parts() if line["status"] == 200
                for name in names if f"/{name}/" in line["key"]]
        self.assertEqual(seen, [(name, part) for name in names for part in range(1, PARTS + 1)])
        self.assertEqual([rule["acted"] for rule in self.s3.state()["rules"]], [1, 1])
        ends = 0
        for line in self.parts():
            self.assertLessEqual(ends, line["mono_us"] - line["took_us"], "two at once")
            ends = line["mono_us"]

    def test_with_more_slots_parts_of_several_saves_are_under_way_at_once(self):
        self.start(8)
        self.s3.rules("op=part : held")
        jobs = [Job(self.world, name, 1, [1], run=f"{name}/run", rows=SIZE // MIB)
                for name in ("first", "second", "third")]
        wait_until(lambda: self.sent() >= 8)  # more than one save has parts
        go_round(self.world.uploaders[0].process.pid, "sender", 10)
        self.assertEqual(self.sent(), 8)
        self.s3.rules("")
        for job in jobs:
            job.succeeds()
        self.world.audit()

    def test_while_one_part_stalls_the_others_end(self):  # S14
        self.start(4, "--store-stall-timeout", "3s")
        for side in ("req-stall@50%", "stall@h10"):
            with self.subTest(side):
                before = len(self.parts())

                def whole(before=before):
                    return {line["part"] for line in self.parts()[before:] if line["rule"] < 0}
                self.s3.rules(f"op=part part=2 : {side}")
                job = Job(self.world, side, 1, [1], run=f"stall/{side[:3]}", rows=SIZE // MIB)
                wait_until(lambda whole=whole: whole() == {1, 3, 4, 5})
                wait_until(lambda: self.s3.acted() >= 2)  # the first one was given up
                self.s3.rules("")
                job.succeeds()
                parts = self.parts()[before:]
                self.assertEqual({line["part"] for line in parts if line["rule"] < 0}, {1, 2, 3, 4, 5})
                begins = [line["mono_us"] - line["took_us"] for line in parts if line["part"] == 2]
                self.assertGreaterEqual(min(b - a for a, b in zip(begins, begins[1:])), 2500000)
        self.world.audit()


if __name__ == "__main__":
    unittest.main(verbosity=2)
