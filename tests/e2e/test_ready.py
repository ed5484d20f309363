# SPDX-License-Identifier: Apache-2.0
"""readyz while the disk of a folder store is full, read-only or gives I/O errors: 503 with a
sentence that names the store and what to do, and 200 again when that is over. Each is a real file
system, in a mount namespace of this test's."""
import json
import pathlib
import re
import subprocess
import tempfile
import unittest
import urllib.error
import urllib.request

import mounted
from world import HANG_S, wait_until, World


class Ready(unittest.TestCase):
    def setUp(self):
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="cairn-ready-"))
        self.store, self.below = self.root / "store", self.root / "below"
        self.store.mkdir()
        self.below.mkdir()
        self.world = None
        self.addCleanup(self.close)

    def close(self):
        try:
            if self.world:
                self.world.close()
        finally:
            mounted.unmount(self.store)
            mounted.unmount(self.below)

    def start(self):
        self.world = World(nodes=0, store=str(self.store), root=self.root,
                           server_arguments=["--check-interval", "100ms"])
        self.says("ok", 200)

    def says(self, wanted, status):
        """Waits until the store's line of readyz holds it; the whole answer of that moment."""
        def look():
            got, _, body = self.world.get("/readyz")
            said = json.loads(body)
            return got == status and wanted in said["checks"]["store"] and said
        return wait_until(look)

    def expect_trouble(self, errno_text, what_to_do):
        said = self.says(errno_text, 503)
        self.assertFalse(said["ready"])
        self.assertIn(str(self.store), said["checks"]["store"])
        self.assertIn(what_to_do, said["checks"]["store"])
        self.assertEqual(said["checks"]["catalog"], "ok")
        log = (self.root / "server.log").read_text()
        self.assertRegex(log, f"WARN health.failed check=store cause=.*{errno_text}")

    def test_a_full_store_is_named_with_what_to_do_and_readyz_is_503_until_there_is_room(self):
        self.assertTrue(mounted.mount(self.store, "tmpfs", "-t", "tmpfs", "-o", "size=8m"))
        self.start()
        filler = mounted.fill(self.store)
        self.expect_trouble("No space left on device", "make room there")
        filler.unlink()
        self.says("ok", 200)

    def open_attempt(self):
        """Its record is written to the store before it is answered."""
        body = json.dumps({"job": "j", "world_size": 1, "after": 0, "node": "n",
                           "ranks": [{"rank": 0, "proc": "p"}]}).encode()
        request = urllib.request.Request(self.world.url + "/v1/runs/a/b/attempts", data=body,
                                         headers={"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=HANG_S) as reply:
                return reply.status
        except urllib.error.HTTPError as error:
            return error.code

    def test_a_call_that_fails_makes_readyz_503_at_once_however_long_the_checks_are_apart(self):
        self.assertTrue(mounted.mount(self.store, "tmpfs", "-t", "tmpfs", "-o", "size=8m"))
        self.world = World(nodes=0, store=str(self.store), root=self.root,
                           server_arguments=["--check-interval", "1h"])
        self.says("ok", 200)
        filler = mounted.fill(self.store)
        self.assertEqual(self.world.get("/readyz")[0], 200)
        self.assertGreater(self.open_attempt(), 499)
        self.assertEqual(self.world.get("/readyz")[0], 503)
        self.says("No space left on device", 503)
        filler.unlink()
        self.says("ok", 200)

    def test_a_read_only_store_is_named_with_what_to_do_and_readyz_is_503_until_it_can_be_written(self):
        self.assertTrue(mounted.mount(self.store, "tmpfs", "-t", "tmpfs", "-o", "size=8m"))
        self.start()
        wait_until(lambda: mounted.mount(self.store, "none", "-o", "remount,ro"))
        self.expect_trouble("Read-only file system", "mount it read-write")
        self.assertTrue(mounted.mount(self.store, "none", "-o", "remount,rw"))
        self.says("ok", 200)

    def test_a_store_with_io_errors_is_named_with_what_to_do_and_readyz_is_503_while_they_last(self):
        """A disk without room below an ext4 that has: what it is told to sync is an I/O error."""
        self.assertTrue(mounted.mount(self.below, "tmpfs", "-t", "tmpfs", "-o", "size=32m"))
        image = self.below / "image"
        with open(image, "wb") as file:
            file.truncate(256 << 20)
        made = subprocess.run(["mkfs.ext4", "-q", "-O", "^has_journal", str(image)], check=False,
                              capture_output=True)
        if made.returncode or not mounted.mount(self.store, str(image), "-o", "loop,discard"):
            self.skipTest("needs ext4 and a loop device")
        self.start()
        filler = mounted.fill(self.below)
        self.expect_trouble("Input/output error", "see to its disk")
        filler.unlink()
        self.says("ok", 200)

    def test_cairn_nodes_shows_what_an_uploader_waits_for(self):
        self.start()
        uploader, empty = self.world.make_uploader(0), self.root / "not-mounted"
        empty.mkdir()
        uploader.command[uploader.command.index("--store") + 1] = str(empty)
        uploader.command += ["--heartbeat", "200ms"]
        self.world.uploaders.append(uploader)
        uploader.start()
        wait_until(lambda: re.search(f"node-0 .*{empty}.*store.json", self.world.cairn("nodes").stdout))


if __name__ == "__main__":
    mounted.main()
