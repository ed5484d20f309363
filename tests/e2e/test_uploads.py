# SPDX-License-Identifier: Apache-2.0
# ctest: engines=again
"""What lies in a store and is nobody's: uploads on S3 that no save will end, and objects below
versions that the server does not know; who sees them, and how they end."""
import os
import pathlib
import re
import time
import unittest
import urllib.request

import cases
from s3world import BUCKET, S3Fault, S3World, signed
from test_commands import shapes
from world import HANG_S, World, wait_until

PARTS = (5 << 20, 70_000)


class Uploads(unittest.TestCase):
    def start(self, *profile):
        s3 = S3Fault(cases.folder(self), profile, case=self)
        world = S3World(s3, server_arguments=["--sweep-interval", "100ms"], case=self)
        return world

    def upload(self, world, key):
        """Begun, with two parts, and left there."""
        begun = signed(world.s3.env(), f"/{BUCKET}/{key}", "POST", uploads="").decode()
        upload = re.search(r"<UploadId>(.*?)</UploadId>", begun)[1]
        for number, size in enumerate(PARTS, 1):
            signed(world.s3.env(), f"/{BUCKET}/{key}", "PUT", b"x" * size, partNumber=str(number), uploadId=upload)

    def test_an_upload_below_a_committed_version_is_listed_with_the_bytes_of_its_parts(self):
        world = self.start()
        file = cases.file(world.root / "file", b"model")
        world.cairn("put", file, "u/run@1")
        self.assertEqual(world.json("uploads", "ls"), [])
        key = next(key for key in world.keys("/committed.json"))
        late = key.replace("committed.json", "shards/rank-00000/late")
        self.upload(world, late)
        world.server.stop()  # the next server looks when it starts, and then once an hour
        world.start_server()
        rows = wait_until(lambda: world.json("uploads", "ls"))
        self.assertEqual(len(rows), 1)
        self.assertEqual(set(rows[0]), shapes()["uploads ls"])
        self.assertEqual((rows[0]["project"], rows[0]["run"], rows[0]["state"], rows[0]["bytes"]),
                         ("u", "run", "committed", sum(PARTS)))
        self.assertEqual("cairn/" + rows[0]["key"], late)
        self.assertEqual(rows[0]["version"], world.version("u/run")["version"])
        shown = world.cairn("uploads", "ls")
        self.assertIn("rank-00000/late", shown.stdout)
        self.assertIn("1 upload, 5.1 MiB", shown.stderr)
        text = world.get("/metrics")[2].decode()
        self.assertIn(f"cairn_orphan_upload_bytes {sum(PARTS)}\n", text)
        self.assertEqual(world.s3.uploads("cairn/"), [late])  # seen once: it is still there
        ended = world.json("uploads", "abort", rows[0]["version"])
        self.assertEqual(set(ended), shapes()["uploads abort"])
        self.assertEqual((ended["state"], ended["done"]), ("committed", True))
        self.assertEqual(world.s3.uploads("cairn/"), [])
        self.assertEqual(world.json("uploads", "ls"), [])

    def test_a_look_that_was_asked_for_shows_what_is_there_and_ends_nothing(self):
        world = self.start()
        file = cases.file(world.root / "file", b"model")
        world.cairn("put", file, "u/run@1")
        self.assertEqual(world.json("uploads", "ls", "--now"), [])
        late = next(key for key in world.keys("/committed.json")).replace("committed.json", "shards/rank-00000/late")
        self.upload(world, late)
        request = urllib.request.Request(f"{world.url}/v1/uploads", method="POST", headers={"X-Cairn": "1"})
        for _ in range(3):  # no two of these are an hour apart
            def begun():  # what has ended within two seconds is not begun again
                with urllib.request.urlopen(request, timeout=HANG_S) as reply:
                    return reply.status == 202
            wait_until(begun)
            rows = world.json("uploads", "ls", "--now")
            self.assertEqual(["cairn/" + row["key"] for row in rows], [late])
        self.assertEqual(world.s3.uploads("cairn/"), [late])

    def test_an_answer_about_one_upload_that_cannot_be_read_hides_no_other(self):
        world = self.start()
        file = cases.file(world.root / "file", b"model")
        world.cairn("put", file, "u/run@1")
        record = next(key for key in world.keys("/committed.json"))
        late = [record.replace("committed.json", f"shards/rank-00000/late{i}") for i in range(3)]
        for key in late:
            self.upload(world, key)
        def looked_at(unread):  # what has ended within two seconds is not begun again: until it is another look
            rows = world.json("uploads", "ls", "--now")
            return len(rows) == 3 and (None in [row["bytes"] for row in rows]) == unread and rows

        for answer in ("body=<ListPartsResult><Part><Size>x", "html", "entity-bomb", "status=403/AccessDenied"):
            world.s3.rules(f"op=parts key=*late1 : {answer}")
            rows = wait_until(lambda: looked_at(unread=True))
            self.assertEqual({"cairn/" + row["key"]: row["bytes"] for row in rows},
                             {late[0]: sum(PARTS), late[1]: None, late[2]: sum(PARTS)}, answer)
            self.assertEqual(world.cairn("uploads", "ls").stdout.count("rank-00000/late"), 3)
            world.s3.rules("")
            wait_until(lambda: looked_at(unread=False))
        self.assertEqual(world.s3.uploads("cairn/"), sorted(late))

    def test_of_a_store_that_lists_no_uploads_it_says_so_and_what_helps(self):
        world = self.start("--profile", "minio")
        said = world.cairn("uploads", "ls", status=1).stderr
        self.assertIn("lifecycle rule", said)

    def test_a_word_that_is_none_is_named(self):
        world = self.start()
        self.assertIn('not "list"', world.cairn("uploads", "list", status=2).stderr)
        self.assertIn("no version id", world.cairn("uploads", "abort", "latest", status=2).stderr)
        unknown = "ckpt_0f0f1c1e-5a55-8c6b-9d4b-0b3f6a5f9f01"
        self.assertIn(unknown, world.cairn("uploads", "abort", unknown, status=3).stderr)


class Orphans(unittest.TestCase):
    def test_gc_lists_what_a_cut_off_node_left_and_says_what_becomes_of_it(self):
        world = World(server_arguments=["--sweep-interval", "100ms"], case=self)
        file = cases.file(world.root / "file", b"model")
        world.cairn("put", file, "u/run@1")
        said = world.cairn("gc", "--dry-run")
        self.assertIn("has not looked yet", said.stderr)
        version = "ckpt_0f0f1c1e-5a55-8c6b-9d4b-0b3f6a5f9f01"
        left = pathlib.Path(world.store) / "u" / "run" / "000000000007" / version / "data" / "rank-00000" / "x"
        left.parent.mkdir(parents=True)
        left.write_bytes(b"x" * 1000)
        then = time.time() - 3 * 86400
        os.utime(left, (then, then))
        rows = world.json("gc")
        self.assertEqual(len(rows), 1)
        self.assertEqual(set(rows[0]), shapes()["gc"])
        self.assertEqual((rows[0]["project"], rows[0]["run"], rows[0]["version"], rows[0]["step"], rows[0]["bytes"], rows[0]["state"]),
                         ("u", "run", version, 7, 1000, "unknown"))
        self.assertIn("first time", rows[0]["why"])
        self.assertTrue(left.exists())
        shown = world.cairn("gc", "--dry-run")
        self.assertIn("u/run@" + version, shown.stdout)
        self.assertIn("1 version is nobody's, 1000 B", shown.stderr)
        name = world.cairn("gc", "--dry-run", "-o", "name").stdout.strip()
        self.assertEqual(world.json("uploads", "abort", name)["state"], "aborting")
        wait_until(lambda: not left.exists())
        self.assertIn("cairn_orphan_object_bytes 1000\n", world.get("/metrics")[2].decode())
        self.assertEqual(world.version("u/run")["step"], 1)


if __name__ == "__main__":
    unittest.main(verbosity=2)
