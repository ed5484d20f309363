# SPDX-License-Identifier: Apache-2.0
"""Faults of the store, seen by the whole chain. After each: committed and verified, or failed by
name; no open upload, no orphan, no secret in any log. CAIRN_TEST_SLOW=1 adds the minute's outage."""
import collections
import http.server
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import threading
import time
import unittest

from s3world import ACCESS, BIN, SECRET, TOKEN, S3Fault, S3World, wait_until
from test_jobs import Job

MIB = 1 << 20
PART = 5 * MIB
SLOW = os.environ.get("CAIRN_TEST_SLOW") == "1"


class KeyServer:
    """A container's credentials endpoint: the pair that `current` numbers."""

    def __init__(self):
        self.pairs = [(ACCESS, SECRET, TOKEN), ("AKIDCANARYSECOND", SECRET + "2", TOKEN + "2")]
        self.current, self.asked = 0, 0
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                outer.asked += 1
                access, secret, token = outer.pairs[outer.current]
                body = json.dumps({"AccessKeyId": access, "SecretAccessKey": secret, "Token": token,
                                   "Expiration": "2099-01-01T00:00:00Z"}).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/keys"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def stop(self):
        self.server.shutdown()
        self.server.server_close()


class Faults(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="cairn-s3-"))
        self.s3 = self.world = None

    def tearDown(self):
        if self.world:
            self.world.close()
        if self.s3:
            self.s3.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def start(self, s3_arguments=(), nodes=1, uploader_arguments=(), env=None):
        self.s3 = self.s3 or S3Fault(self.folder, s3_arguments)
        self.world = S3World(self.s3, nodes=nodes, env=env or {},
                             server_arguments=["--sweep-interval", "200ms"],
                             uploader_arguments=["--part-size", "5MiB", "--heartbeat", "200ms",
                                                 *uploader_arguments])
        return self.world

    def source(self, mib=40, name="model.bin"):
        path = self.world.root / name
        path.write_bytes(os.urandom(mib * MIB + 17))
        return path

    def put_in_background(self, source, ref="f/run@1"):
        return subprocess.Popen(
            [BIN / "cairn", "put", source, ref], text=True, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, **self.world.env, "CAIRN_URL": self.world.url,
                 "CAIRN_SOCKET": self.world.socket(0), "CAIRN_PROGRESS": "none"})

    def finish(self, process, seconds=120):
        out, err = process.communicate(timeout=seconds)
        self.assertEqual(process.returncode, 0, f"{out}\n{err}\n{self.world.logs()}")

    def check(self, ref="f/run@1"):
        """What must hold after every fault that a save survives."""
        self.s3.rules("")
        self.world.cairn("verify", ref)
        self.world.cairn("verify", ref, "--store", self.world.store)
        self.world.audit()
        self.assertEqual(self.world.leaks(), [])

    def shard_parts(self, status=200):
        return [line for line in self.s3.journal(op="part", status=status)
                if "/data/" in line["key"]]

    def save_of_8_shards(self, rows=16):
        for status, lines, said in Job(self.world, "job", 8, [1], run="f/run", rows=rows).end():
            self.assertEqual((status, lines[-1]["code"]), (0, "ok"), said + self.world.logs())

    # ---- a save of 8 shards survives ----

    def test_503s_and_resets(self):
        # A hedge sends a slow part twice on purpose, and a busy machine makes parts slow: it has
        # tests of its own.
        self.start(nodes=2, uploader_arguments=["--no-hedge"])
        self.s3.rules("op=part|put|complete|create p=0.05 : status=503/SlowDown\n"
                      "op=part|put p=0.01 : req-rst@50%\n"
                      "op=complete|create p=0.01 : lose-reply")
        self.save_of_8_shards(rows=40)
        self.assertGreater(self.s3.acted(0), 1)
        stored = sum(size for key, size in self.world.keys("/data/").items())
        sent = sum(line["bytes_in"] for line in self.s3.journal() if "/data/" in line["key"])
        self.assertLessEqual(sent, 1.15 * stored, "bytes that were sent again")
        whole = collections.Counter((line["key"], line.get("part"))
                                    for line in self.shard_parts())
        self.assertEqual(set(whole.values()), {1}, "a part was stored twice")
        self.check()

    def outage(self, seconds):
        self.start()
        self.s3.rules("op=part nth=3+ : status=503/ServiceUnavailable\n"
                      "op=complete|head : fin@0")
        putting = self.put_in_background(self.source())
        wait_until(lambda: self.s3.acted(0) or putting.poll() is not None, 20)
        time.sleep(seconds)
        self.assertIsNone(putting.poll(), "it gave up")
        self.s3.rules("")
        started = time.monotonic()
        self.finish(putting)
        self.assertLess(time.monotonic() - started, 30, "it did not come back soon")
        self.check()

    def test_an_outage_of_5_s(self):
        self.outage(5)

    @unittest.skipUnless(SLOW, "CAIRN_TEST_SLOW=1 runs it")
    def test_an_outage_of_60_s(self):
        self.outage(60)

    def test_keys_that_expire_midway(self):  # S10
        keys = KeyServer()
        try:
            self.s3 = S3Fault(self.folder)
            second = keys.pairs[1]
            self.s3.ask("keys", " ".join(second))
            env = {name: "" for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY",
                                         "AWS_SESSION_TOKEN")}
            env["AWS_CONTAINER_CREDENTIALS_FULL_URI"] = keys.url
            env["AWS_CONFIG_FILE"] = env["AWS_SHARED_CREDENTIALS_FILE"] = "/nonexistent"
            self.start(env=env)
            before = keys.asked
            keys.current = 1
            self.s3.rules("op=part nth=4 : expire-keys")
            self.finish(self.put_in_background(self.source()))
            used = {line["access_key"] for line in self.shard_parts()}
            self.assertEqual(used, {ACCESS, second[0]})
            self.assertLessEqual(keys.asked - before, 12, "one renewal serves all threads")
            creates = [line for line in self.s3.journal(op="create") if "/data/" in line["key"]]
            self.assertEqual(len(creates), 1, "the same upload goes on")
            self.check()
        finally:
            keys.stop()

    def test_replies_of_complete_and_of_records_that_are_lost(self):  # S05
        self.start()
        self.s3.rules("op=complete nth=1 : lose-reply\n"
                      "op=put key=*manifest.json nth=1 : lose-reply\n"
                      "op=put key=*committed.json nth=1 : lose-reply\n"
                      "op=put key=*checksums.bin nth=1 : lose-reply\n"
                      "op=create nth=1 : lose-reply")
        self.finish(self.put_in_background(self.source()))
        self.assertEqual([rule["acted"] for rule in self.s3.state()["rules"]], [1] * 5)
        self.check()

    def test_store_json_whose_reply_is_lost(self):
        self.s3 = S3Fault(self.folder)
        self.s3.rules("op=put key=*store.json nth=1 : lose-reply")
        self.start()
        self.assertEqual(self.s3.acted(), 1)
        self.finish(self.put_in_background(self.source(1)))
        self.check()

    def test_an_upload_that_vanishes(self):  # S07
        self.start()
        self.s3.rules("op=part nth=4 : drop-upload")
        self.finish(self.put_in_background(self.source()))
        self.assertEqual(self.s3.acted(), 1)
        self.check()

    def test_a_killed_uploader_does_not_send_finished_parts_again(self):
        self.start()
        self.s3.rules("op=part nth=5+ : req-stall@50%")
        job = Job(self.world, "job", 1, [1], run="f/run", rows=40)
        wait_until(lambda: len(self.shard_parts()) >= 4 and
                   self.s3.state()["counters"]["op_part"] >= 5, 30)
        self.world.uploaders[0].kill()
        finished = {line["part"] for line in self.shard_parts()}
        self.s3.rules("")
        self.world.uploaders[0].start()
        for status, lines, said in job.end():  # its slab was brought again
            self.assertEqual((status, lines[-1]["code"]), (0, "ok"), said + self.world.logs())
        sent = collections.Counter(line["part"] for line in self.shard_parts())
        self.assertEqual({part: sent[part] for part in finished}, dict.fromkeys(finished, 1))
        self.assertEqual(set(sent), set(range(1, len(sent) + 1)))
        self.assertEqual(len({line["upload"] for line in self.shard_parts()}), 1)
        self.check()

    # ---- bytes that change ----

    def test_a_byte_that_flips_on_the_way_to_the_store(self):  # S20
        self.start()
        self.s3.rules("op=part nth=2 : req-flip@1000")
        self.finish(self.put_in_background(self.source()))
        self.assertEqual(self.s3.acted(), 1)
        self.assertEqual(len(self.s3.journal(op="part", code="BadDigest")) +
                         len(self.s3.journal(op="part", status=400)) > 0, True)
        self.check()

    def test_a_byte_that_flips_on_the_way_back(self):  # S17
        self.start()
        self.finish(self.put_in_background(self.source()))
        flips = {"server": (), "store": ("--store", self.world.store)}
        for name, arguments in flips.items():
            self.s3.rules("op=get key=*/data/* : flip@1000")
            said = self.world.cairn("verify", "f/run@1", *arguments, status=None)
            self.assertNotEqual(said.returncode, 0, name)
            self.assertIn("model.bin", said.stderr)
            out = self.world.root / f"out-{name}"
            said = self.world.cairn("get", "f/run@1", *arguments, "-d", out, status=None)
            self.assertNotEqual(said.returncode, 0, name)
            self.assertFalse((out / "model.bin").exists())
        self.check()

    def test_a_byte_that_flips_where_the_store_does_not_check(self):
        """Found and named by verify; with checksum = md5 the store finds it itself."""
        self.start(s3_arguments=["--profile", "radosgw"])
        self.assertIn("not checked", (self.world.root / "server.log").read_text())
        self.s3.rules("op=part nth=2 : req-flip@1000")
        self.finish(self.put_in_background(self.source()))
        self.s3.rules("")
        said = self.world.cairn("verify", "f/run@1", "--store", self.world.store, status=7)
        self.assertIn("model.bin", said.stderr)
        self.assertRegex(said.stderr, r"bytes 5242880-")
        self.world.uploaders[0].stop()
        self.world.uploader_arguments += ["--checksum", "md5"]
        self.world.uploaders[0] = self.world.make_uploader(0).start()
        self.s3.rules("op=part nth=2 : req-flip@1000")
        self.finish(self.put_in_background(self.world.root / "model.bin", "f/run@2"))
        self.assertEqual(self.s3.acted(), 1)
        self.check("f/run@2")


if __name__ == "__main__":
    unittest.main(verbosity=2)
