# SPDX-License-Identifier: Apache-2.0
"""A store that answers 500 for more than a few seconds is named wherever somebody looks, and the save goes on when it is well."""
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

from patience import HANG_S
from s3world import BIN, S3Fault, S3World, wait_until


class StoreFails(unittest.TestCase):
    def start(self, **options):
        folder = pathlib.Path(tempfile.mkdtemp(prefix="cairn-fails-"))
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        s3 = S3Fault(folder)
        self.addCleanup(s3.stop)
        world = S3World(s3, **options)
        self.addCleanup(world.close)
        (folder / "model").mkdir()
        (folder / "model/weights.bin").write_bytes(os.urandom(100_000))
        return s3, world, folder / "model"

    def put(self, world, model):
        put = subprocess.Popen([str(BIN / "cairn"), "put", str(model), "llm/7b@1"], stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True,
                               env={**os.environ, **world.env, "CAIRN_URL": world.url, "CAIRN_SOCKET": world.socket(0),
                                    "CAIRN_PROGRESS": "none"})
        self.addCleanup(put.communicate)
        self.addCleanup(put.kill)
        return put

    def test_a_listing_that_is_cut_off_without_a_token_is_named_by_the_save(self):
        s3, world, model = self.start(server_arguments=["--test-store=false"], uploader_arguments=["--test-store=false"])
        s3.rules("op=list : no-token")
        said = world.cairn("put", model, "llm/none@1", status=None)
        self.assertNotEqual(said.returncode, 0)
        self.assertIn("IsTruncated without NextContinuationToken", said.stderr)
        s3.rules("op=list key=*/llm/7b/0* : no-token")
        put = self.put(world, model)
        said = put.stderr.readline()
        self.assertIn("its commit is tried again: ", said)
        self.assertIn("IsTruncated without NextContinuationToken", said)
        self.assertIn("IsTruncated", world.cairn("show", "llm/7b@1", "--why").stdout)
        s3.rules("")
        self.assertEqual(put.wait(HANG_S), 0)

    def test_a_store_that_fails_is_named_by_put_status_nodes_why_and_log(self):
        s3, world, model = self.start()
        s3.rules("op=put|part|create key=*/data/* : status=500/InternalError")
        put = self.put(world, model)
        said = put.stderr.readline()
        self.assertIn("note: ", said)
        self.assertIn("the store fails, and is tried on", said)
        self.assertIn("500", said)
        for words in (("uploader", "status"), ("nodes",), ("show", "llm/7b@1", "--why")):
            wait_until(lambda words=words: "500" in world.cairn(*words, status=None).stdout)
        self.assertIn("the store fails", world.cairn("uploader", "status").stdout)
        self.assertIn("store.failing", world.uploaders[0].log.read_text())
        s3.rules("")
        self.assertEqual(put.wait(HANG_S), 0, put.stderr.read())
        wait_until(lambda: "the store fails" not in world.cairn("uploader", "status").stdout)
        wait_until(lambda: "the store fails" not in world.cairn("nodes").stdout)


if __name__ == "__main__":
    unittest.main(verbosity=2)
