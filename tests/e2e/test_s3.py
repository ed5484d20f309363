# SPDX-License-Identifier: Apache-2.0
# ctest: engines=again
"""The whole chain on S3: put, get, verify, a save of 8 ranks, restore with the server down, and no
secret anywhere. On s3fault, or with --endpoint-from-environment on what AWS_* variables name."""
import concurrent.futures
import hashlib
import http.client
import json
import os
import re
import subprocess
import sys
import unittest
import urllib.error
import urllib.parse
import urllib.request
import uuid

import cases
from patience import HANG_S
from s3world import BIN, LEAKS, RealS3, S3Fault, S3World, run, wait_until
from world import in_time

MIB = 1 << 20
REAL = "--endpoint-from-environment" in sys.argv
RANKS = 8


def tree_of(folder):
    return {str(p.relative_to(folder)): hashlib.sha256(p.read_bytes()).hexdigest()
            for p in sorted(folder.rglob("*")) if p.is_file()}


def trainer(world, step, rank, ranks=RANKS, run_name="s/run", job="job"):
    """(status, what it said) of one rank."""
    done = run([BIN / "tests/trainer", run_name, rank, ranks, step],
               env={**os.environ, "CAIRN_SOCKET": world.socket(rank % len(world.uploaders)),
                    "CAIRN_JOB": job})
    return done.returncode, done.stderr


def save_all(world, step, ranks=RANKS, run_name="s/run", job="job"):
    with concurrent.futures.ThreadPoolExecutor(ranks) as pool:
        return list(pool.map(lambda rank: trainer(world, step, rank, ranks, run_name, job), range(ranks)))


class OnS3(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.s3 = RealS3() if REAL else S3Fault(cases.folder(cls), case=cls)
        cls.prefix = f"cairn-{uuid.uuid4()}"
        cls.world = S3World(cls.s3, cls.prefix, bucket=cls.s3.bucket, nodes=2,
                            server_arguments=["--sweep-interval", "200ms"],
                            uploader_arguments=["--part-size", "5MiB", "--heartbeat", "200ms"], case=cls)
        cases.at_the_end(cls, cls.world.audit)

    def make_tree(self, name):
        tree = self.world.root / name
        (tree / "déjà vu").mkdir(parents=True)
        (tree / "many parts.bin").write_bytes(os.urandom(23 * MIB + 17))
        (tree / "one-part").write_bytes(os.urandom(MIB))
        (tree / "empty").write_bytes(b"")
        (tree / "déjà vu" / "a+b = 100%#?&").write_bytes(os.urandom(3 * MIB + 1))
        return tree

    def test_a_tree_comes_back_from_the_server_and_from_the_bucket_alone(self):
        tree, world = self.make_tree("tree"), self.world
        world.cairn("put", tree, "t/tree@1")
        world.cairn("verify", "t/tree@1")
        world.cairn("get", "t/tree@1", "-d", world.root / "back")
        self.assertEqual(tree_of(tree), tree_of(world.root / "back"))
        world.server.stop()
        try:
            for name, arguments in (("by-step", "t/tree@1"), ("by-latest", "t/tree")):
                world.cairn("get", arguments, "--store", world.store, "-d", world.root / name)
                self.assertEqual(tree_of(tree), tree_of(world.root / name))
            world.cairn("verify", "t/tree@1", "--store", world.store)
        finally:
            world.start_server()
        world.cairn("verify", "t/tree@1")
        world.audit()

    def test_a_save_of_eight_ranks_is_committed_and_verifies(self):
        codes = save_all(self.world, 1)
        self.assertTrue(all(code == 0 for code, _ in codes), (codes, self.world.logs()))
        self.world.cairn("verify", "s/run@1")
        self.world.cairn("verify", "s/run@1", "--store", self.world.store)
        self.world.audit()

    @unittest.skipUnless(os.environ.get("CAIRN_TEST_SLOW") == "1", "CAIRN_TEST_SLOW=1 runs it")
    def test_the_example_model_comes_back_to_another_number_of_ranks(self):
        env = {**os.environ, "CAIRN_JOB": "example", "CAIRN_SOCKET": self.world.socket(0)}
        saving = [subprocess.Popen([BIN / "examples/transformer-save", "e/model", "7", str(rank),
                                    "4"], env=env, stdout=subprocess.DEVNULL) for rank in range(4)]
        self.assertEqual([process.wait(HANG_S) for process in saving], [0] * 4)
        env["CAIRN_JOB"] = "example-2"
        out = cases.made(self.world.root / "example")
        loading = [subprocess.Popen([BIN / "examples/transformer-restore", "e/model", str(rank),
                                     "3", out], env=env, stdout=subprocess.DEVNULL)
                   for rank in range(3)]
        self.assertEqual([process.wait(HANG_S) for process in loading], [0] * 3)
        checked = run([BIN / "examples/transformer-check", out, 3, 4])
        self.assertEqual(checked.returncode, 0, checked.stdout + checked.stderr)

    def test_a_deleted_checkpoint_leaves_the_bucket(self):
        world = S3World(self.s3, f"{self.prefix}-rm", nodes=1,
                        bucket=self.s3.bucket,
                        server_arguments=["--sweep-interval", "100ms", "--trash-grace", "0ms"],
                        uploader_arguments=["--part-size", "5MiB", "--heartbeat", "100ms"])
        try:
            source = cases.file(world.root / "f", os.urandom(11 * MIB))
            for step in (1, 2):
                world.cairn("put", source, f"x/run@{step}")
            gone = world.json("show", "x/run@1")["version"]
            world.cairn("rm", "x/run@1")
            wait_until(lambda: not world.keys(gone), 30)
            world.cairn("verify", "x/run@2")
            world.audit()
        finally:
            world.close()

    def test_a03_a_redirect_leads_to_the_object_for_five_minutes_at_most(self):  # A03
        tree, world = self.make_tree("redirect"), self.world
        world.cairn("put", tree, "t/redirect@1")
        for name in ("one-part", "déjà vu/a+b = 100%#?&"):
            path = ("/v1/runs/t/redirect/checkpoints/1/shards/"
                    f"{urllib.parse.quote(name, safe='')}/data")
            connection = http.client.HTTPConnection("127.0.0.1", world.port, timeout=HANG_S)
            connection.request("GET", path + "?via=redirect")
            reply = connection.getresponse()
            self.assertEqual((reply.status, reply.read()), (307, b""))
            self.assertEqual(reply.headers["Cache-Control"], "no-store")
            url = reply.headers["Location"]
            query = urllib.parse.parse_qs(urllib.parse.urlsplit(url).query)
            self.assertLessEqual(int(query["X-Amz-Expires"][0]), 300)
            with urllib.request.urlopen(url, timeout=HANG_S) as got:
                self.assertEqual(got.read(), (tree / name).read_bytes())
            for other in (url.replace("redirect", "tree"), url[:-1] + "0"):
                with self.assertRaises(urllib.error.HTTPError):  # this one object, signed
                    if other != url:
                        urllib.request.urlopen(other, timeout=HANG_S)
                    raise urllib.error.HTTPError(other, 403, "the same by chance", None, None)
            status, _, body = world.get(path + "?via=proxy")
            self.assertEqual((status, body), (200, (tree / name).read_bytes()))
            self.assertEqual(world.get(path + "?via=redirect", method="HEAD")[0], 200)
            connection.close()

    def test_doctor_finds_nothing_wrong_and_leaves_no_object(self):
        said = self.world.cairn("doctor", self.world.store, "--json")
        findings = {f["check"]: f["level"] for f in json.loads(said.stdout)["findings"]}
        for check in ("keys", "put", "range", "multipart", "abort", "list parts", "delete",
                      "presigned", "server", "uploader", "clock", "endpoint", "profile",
                      "list uploads"):
            self.assertEqual(findings[check], "ok", (check, said.stdout))
        self.assertFalse([secret for secret in LEAKS if secret in said.stdout + said.stderr])
        self.world.audit()
        self.assertFalse([key for key in self.world.keys() if "doctor" in key])
        self.world.cairn("doctor", "s3://no-such-bucket-here/x", status=1)
        self.world.cairn("doctor", self.world.store, "--for", "nobody", status=2)
        refused = self.world.cairn("doctor", self.world.store, status=1, env={"AWS_SECRET_ACCESS_KEY": "wrong"})
        self.assertIn("FAIL", refused.stdout)

    def test_a_stranger_in_store_json_is_refused_by_both_daemons(self):
        strange = S3World(self.s3, f"{self.prefix}-other", nodes=0, bucket=self.s3.bucket)
        try:
            # An uploader whose server speaks of another store than the one that it was given.
            strange.store = self.world.store
            strange.uploaders.append(strange.make_uploader(7).start())
            source = cases.file(strange.root / "f", b"x" * 100)

            def refused(seconds):
                said = strange.cairn("put", source, "x/run@1", "--timeout", f"{seconds:g}s", node=7, status=None)
                self.assertNotEqual(said.returncode, 0)
                return re.search("the server writes to store|speaks of store", said.stderr + strange.logs())
            in_time(refused, 5)
            # A server whose catalog belongs to another store.
            strange.server.stop()
            with self.assertRaisesRegex(AssertionError, "this catalog belongs to"):
                strange.start_server()
            self.assertFalse([key for key in self.world.keys() if "/x/run/" in key])
        finally:
            strange.close()

    def test_a_second_server_with_an_empty_catalog_writes_nothing(self):
        before = self.world.keys()
        second = S3World(self.s3, self.prefix, nodes=0, bucket=self.s3.bucket)
        try:
            status, _, _ = second.get("/v1/runs/y/run", method="PUT")
            self.assertGreaterEqual(status, 400)
            self.assertEqual(before.keys(), self.world.keys().keys())
        finally:
            second.close()

    def test_zz_a04_no_secret_is_in_any_log_or_argument(self):
        text = self.world.logs()
        self.assertIn("http.line", (self.world.root / "uploader-0.log").read_text())
        self.assertEqual(self.world.leaks(), [], text)


if __name__ == "__main__":
    if REAL and not os.environ.get("AWS_ENDPOINT_URL"):
        print("no AWS_ENDPOINT_URL: skipped")
        sys.exit(77)
    unittest.main(argv=[a for a in sys.argv if not a.startswith("--endpoint")], verbosity=2)
