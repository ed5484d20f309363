# SPDX-License-Identifier: Apache-2.0
# ctest: labels=moto seconds=50
"""The whole chain on moto, an S3 of Python that people test with: it states the CRC32 of an object made
of parts as its CRC32C, and names its list of parts otherwise than S3 does.

setup/extras.sh fetches moto; without it the tests are skipped by name."""
import filecmp
import importlib.util
import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import unittest
import urllib.error
import urllib.request

import reports
from outcome import leave
from s3world import signed
from world import BIN, HANG_S, wait_until

MIB = 1 << 20


def answers(url):
    try:
        with urllib.request.urlopen(url, timeout=2):
            return True
    except OSError:
        return False


class OnMoto(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        if not importlib.util.find_spec("moto"):
            raise unittest.SkipTest("moto was not fetched (setup/extras.sh)")
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="cairn-moto-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder, ignore_errors=True)
        cls.url = f"http://127.0.0.1:{port}"
        with open(cls.folder / "moto.log", "wb") as log:
            cls.moto = subprocess.Popen([sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
                                        stdout=log, stderr=log)
        cls.addClassCleanup(cls.moto.wait)
        cls.addClassCleanup(cls.moto.kill)
        wait_until(lambda: answers(cls.url), 60)
        cls.env = {**{name: value for name, value in os.environ.items()
                      if not name.startswith("AWS_")},
                   "AWS_ENDPOINT_URL": cls.url, "AWS_ACCESS_KEY_ID": "a",
                   "AWS_SECRET_ACCESS_KEY": "b", "AWS_REGION": "us-east-1",
                   "AWS_EC2_METADATA_DISABLED": "true", "CAIRN_PROGRESS": "none"}

    def setUp(self):
        self.bucket = re.sub(r"[^a-z]+", "-", self.id().rsplit(".", 1)[1].lower())[:40].strip("-")
        with urllib.request.urlopen(urllib.request.Request(
                f"{self.url}/{self.bucket}", method="PUT"), timeout=HANG_S):
            pass
        self.addCleanup(reports.check)
        self.store, self.up = f"s3://{self.bucket}/cairn", None
        self.home = self.folder / self.bucket
        self.home.mkdir()
        self.addCleanup(self.stop)

    def start(self, **settings):
        """`cairn up` with its own time-out of 30 s, and the variables that it says."""
        log = self.home / "up.log"
        with open(log, "wb") as out:
            self.up = subprocess.Popen([BIN / "cairn", "up", self.home / "up", "--store", self.store,
                                        "--listen", "127.0.0.1:0"],
                                       stdout=out, stderr=out, env={**self.env, **settings})
        wait_until(lambda: b"Ctrl-C stops both" in log.read_bytes() or self.up.poll() is not None, 60)
        self.assertIsNone(self.up.poll(), log.read_text())
        said = dict(re.findall(r"export (CAIRN_\w+)=(\S+)", log.read_text()))
        self.env_up = {**self.env, **said}

    def stop(self):
        if self.up and self.up.poll() is None:
            self.up.terminate()
            self.up.wait(HANG_S)

    def log(self):
        return "".join(path.read_text() for path in self.home.rglob("*.log"))

    def cairn(self, *arguments, status=0, env=None):
        done = subprocess.run([BIN / "cairn", *arguments], env=env or self.env_up, text=True,
                              capture_output=True, timeout=HANG_S, check=False)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr + self.log())
        return done

    def save_and_restore(self, step):
        source, back = self.home / f"model-{step}", self.home / f"back-{step}"
        source.mkdir()
        (source / "large").write_bytes(os.urandom(40 * MIB + 7))
        (source / "small").write_bytes(b"small")
        self.cairn("put", source, f"p/run@{step}")
        self.cairn("get", f"p/run@{step}", "-d", back)
        match, differ, missing = filecmp.cmpfiles(source, back, ["large", "small"], shallow=False)
        self.assertEqual((len(match), differ, missing), (2, [], []))
        self.cairn("verify", f"p/run@{step}")

    def test_a_store_that_misstates_checksums_is_named_and_saves_and_restores(self):
        self.start()
        self.save_and_restore(1)
        self.assertIn("checksums that the store states are wrong", self.log())
        self.stop()
        self.start()  # what was found stands in profile.json
        self.save_and_restore(2)
        self.cairn("get", "p/run@latest", "--store", self.store, "-d", self.home / "alone")

    def test_without_a_test_at_the_start_the_first_upload_finds_misstated_checksums(self):
        self.start(CAIRN_TEST_STORE="false")
        self.save_and_restore(1)
        self.assertEqual(self.log().count("store.misstates"), 1, self.log())

    def test_in_a_bucket_with_versioning_a_deleted_checkpoint_leaves_nothing(self):
        document = b"<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>"
        signed(self.env, f"/{self.bucket}", "PUT", document, versioning="")
        self.start(CAIRN_TRASH_GRACE="1s", CAIRN_SWEEP_INTERVAL="100ms")
        for step in (1, 2):
            self.save_and_restore(step)

        def left(step):
            try:
                text = signed(self.env, f"/{self.bucket}", versions="",
                              prefix=f"cairn/p/run/{step:012d}/").decode()
            except urllib.error.HTTPError as problem:  # moto fails while something is being deleted
                return problem.code, None
            return text.count("<Version>"), text.count("<DeleteMarker>")

        self.assertGreaterEqual(left(1)[0], 5)
        version = json.loads(self.cairn("show", "p/run@1", "--json").stdout)["version"]
        self.cairn("rm", f"p/run@{version}", "--yes")
        wait_until(lambda: left(1) == (0, 0), 60)
        self.assertGreaterEqual(left(2)[0], 5)
        self.assertEqual(json.loads(self.cairn("gc", "--not-freed", "--json").stdout), [])

    def test_each_store_of_a_bucket_has_the_storage_class_of_its_own_url(self):
        cold = f"s3://{self.bucket}/cold?storage_class=STANDARD_IA&sse=AES256"
        self.start(CAIRN_STORES=f"main,cold={cold}", CAIRN_ADOPT_STORE="true")
        self.save_and_restore(1)
        self.cairn("promote", "p/run@1", "--to", "cold")

        def classes(prefix):
            said = signed(self.env, f"/{self.bucket}", prefix=f"{prefix}/p/", **{"list-type": "2"}).decode()
            return re.findall(r"<StorageClass>(\w+)</StorageClass>", said)

        self.assertEqual(set(classes("cairn")), {"STANDARD"})
        self.assertEqual((set(classes("cold")), len(classes("cold")) >= 5), ({"STANDARD_IA"}, True))
        self.cairn("get", "p/run@1", "--store", cold, "-d", self.home / "from-cold")
        self.assertEqual((self.home / "from-cold" / "small").read_bytes(), b"small")

    def test_doctor_warns_of_misstated_checksums_and_of_lists_of_parts(self):
        # Else the server that somebody has at the usual port is looked at, too.
        said = self.cairn("doctor", self.store, env={**self.env, "CAIRN_URL": "http://127.0.0.1:1"}).stdout
        self.assertRegex(said, r"WARN +stated checksums")
        self.assertRegex(said, r"WARN +list parts .*ListPartsResponse")

    def test_a_bucket_that_is_not_there_is_not_found(self):
        done = self.cairn("get", "p/run@latest", "--store", "s3://no-such-bucket/x", "-d",
                          self.home / "none", status=3, env=self.env)
        self.assertIn("NoSuchBucket", done.stderr)


if __name__ == "__main__":
    leave(unittest.main(exit=False).result)
