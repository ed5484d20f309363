# SPDX-License-Identifier: Apache-2.0
# ctest: engines=again
"""RLIMIT_FSIZE: a write beyond it fails as on a full disk, and ends no program by SIGXFSZ. Each limit
is set on the running process, and taken away again."""
import os
import resource
import unittest

import cases
from world import wait_until, World

NO_LIMIT = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
SOURCE_BYTES = 4 << 20
ABOVE_THE_JOURNAL_BYTES = 1 << 20


def limit(daemon, size):
    resource.prlimit(daemon.process.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


class FileSize(unittest.TestCase):
    def setUp(self):
        self.world = World(server_arguments=["--check-interval", "100ms"], case=self)
        self.source = cases.file(self.world.root / "source", os.urandom(SOURCE_BYTES))

    def await_ready(self, status):
        def look():
            self.assertIsNone(self.world.server.process.poll(), self.world.logs())
            return self.world.get("/readyz")[0] == status
        wait_until(look)

    def test_a_server_that_may_not_write_says_so_and_is_ready_again_without_the_limit(self):
        self.await_ready(200)
        limit(self.world.server, 1)
        self.await_ready(503)
        resource.prlimit(self.world.server.process.pid, resource.RLIMIT_FSIZE, NO_LIMIT)
        self.await_ready(200)
        self.world.cairn("put", self.source, "size/run@1")

    def test_a_save_of_an_uploader_that_may_not_write_waits_until_it_may(self):
        uploader = self.world.uploaders[0]
        limit(uploader, ABOVE_THE_JOURNAL_BYTES)
        put = self.world.begin("put", self.source, "size/run@1")
        wait_until(lambda: "send.retry" in uploader.log.read_text() or uploader.process.poll() is not None)
        resource.prlimit(uploader.process.pid, resource.RLIMIT_FSIZE, NO_LIMIT)
        self.world.ended(put)
        self.world.cairn("verify", "size/run@1")

    def test_a_get_that_may_not_write_says_that_the_file_is_too_large(self):
        self.world.cairn("put", self.source, "size/run@1")
        done = self.world.cairn(
            "get", "size/run@1", "-d", self.world.root / "back", status=1,
            preexec_fn=lambda: resource.setrlimit(  # pylint: disable=subprocess-popen-preexec-fn
                resource.RLIMIT_FSIZE, (SOURCE_BYTES // 2, resource.RLIM_INFINITY)))
        self.assertIn("File too large", done.stderr)


if __name__ == "__main__":
    unittest.main()
