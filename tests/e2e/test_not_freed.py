# SPDX-License-Identifier: Apache-2.0
# ctest: engines=again
"""A bucket with versioning, object lock and rights that are missing: what deleted checkpoints cost there,
who is told of it, and how it ends."""
import contextlib
import json
import os
import re
import sys
import unittest
import urllib.error

import cases
from s3world import BUCKET, RealS3, S3Fault, S3World, signed
from test_commands import shapes
from world import wait_until

ENABLED = "<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>"
SIZE = 300_000


class NotFreed(unittest.TestCase):
    def start(self, *arguments, versioning=ENABLED, rules=""):
        self.s3 = S3Fault(cases.folder(self), arguments, case=self)
        self.s3.ask("versioning", versioning)
        self.s3.rules(rules)
        self.world = S3World(self.s3, server_arguments=["--sweep-interval", "100ms", "--trash-grace", "1s"], case=self)
        self.file = cases.file(self.world.root / "file", b"x" * SIZE)

    def save(self, *steps):
        for step in steps:
            self.world.cairn("put", self.file, f"u/run@{step}")
        return [self.world.version("u/run", step)["version"] for step in steps]

    def delete(self, version):
        self.world.cairn("rm", f"u/run@{version}", "--yes")

    def state(self, version):
        rows = self.world.read("/v1/runs/u/run/checkpoints?state=gone")["items"]
        return next((row for row in rows if row["version"] == version), None)

    def gone(self, version):
        return wait_until(lambda: self.state(version), 60)

    def markers(self, version):
        listing = signed(self.s3.env(), f"/{BUCKET}", versions="", prefix="cairn/u/").decode()
        return len([part for part in listing.split("<DeleteMarker>")[1:] if version in part])

    def rows(self):
        return self.world.read("/v1/not-freed")["items"]

    def events(self, version):
        items = self.world.read("/v1/events")["items"]
        return [(row["event"], row.get("reason") or "") for row in items if row.get("version") == version]

    def metric(self, name):
        text = self.world.get("/metrics")[2].decode()
        return int(next(line for line in text.splitlines() if line.startswith(name + " ")).split()[1])

    def tried_again(self):
        """The pauses are of catalog time, which cairn gc does not wait for."""
        return self.world.json("gc", "--not-freed")

    def test_in_a_bucket_with_versioning_a_deleted_checkpoint_leaves_not_a_byte_and_no_marker(self):
        self.start("--page-max", "3")
        first, second = self.save(1, 2)
        self.delete(first)
        self.gone(first)
        keys = self.s3.keys("cairn/u/")
        self.assertFalse([key for key in keys if first in key])
        self.assertTrue([key for key in keys if second in key])
        self.assertEqual(self.rows(), [])
        counters = self.s3.state()["counters"]
        # What is left of versions is what is shown, but for the server's own few documents.
        self.assertLess(counters["version_bytes"], SIZE * 1.2)
        self.assertGreater(counters["op_versions"], 0)
        # Q30: nothing was deleted by its id while the record could still be read.
        order = [line["op"] for line in self.s3.journal() if line["op"] in ("delete", "delete-many")
                 and (first in line.get("key", "") or line["op"] == "delete-many")]
        self.assertEqual(order[0], "delete")
        self.world.cairn("get", "u/run@2", "-d", self.world.root / "out")

    def test_nothing_is_listed_by_versions_where_there_are_none(self):
        self.start(versioning="")
        first, _ = self.save(1, 2)
        self.delete(first)
        self.gone(first)
        counters = self.s3.state()["counters"]
        self.assertEqual((counters.get("op_versions", 0), counters["markers"]), (0, 0))

    def test_what_is_locked_is_gone_for_readers_and_told_with_its_bytes_until_the_lock_ends(self):
        self.start()
        first, second, third = self.save(1, 2, 3)
        self.s3.ask("hold", f"*{first}/data/*")
        self.delete(first)
        self.delete(second)
        self.gone(first)
        self.gone(second)  # the other one is kept from nothing
        rows = wait_until(self.rows)
        self.assertEqual(len(rows), 1)
        row = rows[0]
        self.assertEqual(set(row), shapes()["gc --not-freed"])
        self.assertEqual((row["project"], row["run"], row["version"], row["step"], row["state"], row["bytes"],
                          row["objects"], row["counted"], row["code"]),
                         ("u", "run", first, 1, "gone", SIZE, 1, True, "forbidden"))
        self.assertIn("object lock", row["reason"])
        # Deleted, and nowhere to be seen: neither by its id nor in the bucket.
        status, _, body = self.world.get(f"/v1/runs/u/run/checkpoints/{first}")
        self.assertEqual(status, 410)
        self.assertIn("the store keeps 293.0 KiB of it: AccessDenied", json.loads(body)["detail"])
        self.assertFalse([key for key in self.s3.keys("cairn/") if first in key])
        self.assertEqual(self.gone(first)["not_freed"]["bytes"], SIZE)
        self.assertNotIn("not_freed", self.gone(second))
        gc = self.world.read("/v1/gc")
        self.assertEqual((gc["not_freed"], gc["not_freed_bytes"]), (1, SIZE))
        wait_until(lambda: self.metric("cairn_not_freed_bytes") == SIZE)
        self.assertIn("293.0 KiB of 1 deleted version", self.world.cairn("gc", "--dry-run").stderr)
        self.assertIn("293.0 KiB of 1 deleted version", self.world.cairn("du").stderr)
        self.assertIn({"state": "not freed", "count": 1, "bytes": SIZE}, self.world.json("du", "u/run"))
        kinds = [event for event, _ in self.events(first)]
        self.assertEqual(kinds.count("checkpoint.not_freed"), 1)
        self.assertLess(kinds.index("checkpoint.gone"), kinds.index("checkpoint.not_freed"))
        # It is not asked for in every round: some tries, while there were dozens of rounds.
        tries = self.rows()[0]["tries"]
        self.assertLess(tries, 10)
        self.s3.ask("hold", "")
        wait_until(lambda: self.tried_again() == [], 30, 0.5)
        self.assertIn("checkpoint.freed", [event for event, _ in self.events(first)])
        self.assertFalse(any(first in key for key in self.s3.keys("cairn/")))
        wait_until(lambda: self.metric("cairn_not_freed_bytes") == 0)
        self.assertLess(self.s3.state()["counters"]["version_bytes"], SIZE * 1.2)
        self.assertEqual(self.world.version("u/run")["version"], third)

    def test_keys_that_may_not_list_versions_leave_at_least_what_the_catalog_knows(self):
        self.start(rules="op=versions : status=403/AccessDenied")
        first, _ = self.save(1, 2)
        self.delete(first)
        self.gone(first)
        row = wait_until(self.rows)[0]
        self.assertFalse(row["counted"])
        self.assertGreaterEqual(row["bytes"], SIZE)
        self.assertIn("AccessDenied", row["reason"])
        self.s3.rules("")
        markers = self.markers(first)
        self.s3.rules("op=versions : status=403/AccessDenied")
        self.assertGreater(markers, 2)
        before = self.rows()[0]["tries"]
        wait_until(lambda: self.tried_again()[0]["tries"] > before, 30, 0.5)
        # What is deleted already gets no marker more from each try, and its bytes are not forgotten.
        self.assertGreaterEqual(self.rows()[0]["bytes"], SIZE)
        self.s3.rules("")
        self.assertEqual(self.markers(first), markers)
        wait_until(lambda: self.tried_again() == [], 30, 0.5)
        self.assertLess(self.s3.state()["counters"]["version_bytes"], SIZE * 1.2)

    def test_a_refused_plain_delete_keeps_no_other_sweep_waiting_and_says_why(self):
        self.start(versioning="")
        first, second, _ = self.save(1, 2, 3)
        self.s3.rules(f"op=delete key=*{first}* : status=403/AccessDenied")
        self.delete(first)
        self.delete(second)
        self.gone(second)
        row = wait_until(self.rows)[0]
        self.assertEqual((row["version"], row["state"]), (first, "deleting"))
        self.assertIsNone(self.state(first))
        # The record went first or not at all: the objects are all there.
        self.assertTrue([key for key in self.s3.keys("cairn/") if first in key and "/data/" in key])
        self.s3.rules("")
        wait_until(lambda: self.tried_again() == [], 30, 0.5)
        self.gone(first)
        self.assertFalse([key for key in self.s3.keys("cairn/") if first in key])


class OnARealServer(unittest.TestCase):
    """Of the server that AWS_* variables name, in a bucket of its own with versioning."""

    BUCKET = "cairn-versions"

    def setUp(self):
        if "--endpoint-from-environment" not in sys.argv:
            self.skipTest("no real server is named")

    def ask(self, method="GET", body=b"", **query):
        return signed(os.environ, f"/{self.BUCKET}", method, body, **query).decode()

    def versions(self, prefix):
        """(size of all versions, markers) below it."""
        text = self.ask(versions="", prefix=prefix)
        return (sum(int(size) for size in re.findall(r"<Size>(\d+)</Size>", text)), text.count("<DeleteMarker>"))

    def test_a_deleted_checkpoint_leaves_no_version_and_no_marker(self):
        with contextlib.suppress(urllib.error.HTTPError):  # it may be there
            self.ask("PUT")
        self.ask("PUT", ENABLED.encode(), versioning="")
        s3, prefix = RealS3(), f"cairn-{os.urandom(4).hex()}"
        s3.bucket = self.BUCKET
        world = S3World(s3, prefix=prefix, bucket=self.BUCKET,
                        server_arguments=["--sweep-interval", "100ms", "--trash-grace", "1s"], case=self)
        file = world.root / "file"
        file.write_bytes(os.urandom(20 << 20))  # of several parts
        for step in (1, 2):
            world.cairn("put", file, f"u/run@{step}")
        first = world.version("u/run", 1)["version"]
        below = f"{prefix}/u/run/000000000001/{first}/"
        self.assertGreaterEqual(self.versions(below)[0], 20 << 20)
        world.cairn("rm", f"u/run@{first}", "--yes")
        wait_until(lambda: self.versions(below) == (0, 0), 60, 0.5)
        self.assertEqual(world.read("/v1/not-freed")["items"], [])
        self.assertGreaterEqual(self.versions(f"{prefix}/u/run/000000000002/")[0], 20 << 20)
        world.cairn("get", "u/run@2", "-d", world.root / "back")


if __name__ == "__main__":
    unittest.main(verbosity=2, argv=[word for word in sys.argv if word != "--endpoint-from-environment"])
