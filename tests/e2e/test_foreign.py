# SPDX-License-Identifier: Apache-2.0
"""Other people's S3 clients read what Cairn wrote, and Cairn reads what they wrote: a checkpoint that
they copied object by object to another prefix verifies there. On what AWS_* variables name. A client
that is not installed is skipped; CAIRN_TEST_SLOW=1 installs Debian's."""
import hashlib
import os
import pathlib
import shutil
import subprocess
import sys
import unittest
import uuid

from s3world import RealS3, S3World, run

MIB = 1 << 20
SLOW = os.environ.get("CAIRN_TEST_SLOW") == "1"


def program(name, package):
    """A program of Debian's, installed where slow tests are wanted and that is possible."""
    if not shutil.which(name) and SLOW and os.geteuid() == 0 and shutil.which("apt-get"):
        subprocess.run(["apt-get", "-qq", "install", "-y", "--no-install-recommends", package],
                       env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"}, check=False,
                       stdout=subprocess.DEVNULL)
    if not shutil.which(name):
        raise unittest.SkipTest(f"no {name}; CAIRN_TEST_SLOW=1 installs {package}")
    return shutil.which(name)


class Foreign(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.s3 = RealS3()
        cls.prefix = f"foreign-{uuid.uuid4()}"
        cls.world = S3World(cls.s3, cls.prefix, bucket=cls.s3.bucket, debug=False,
                            uploader_arguments=["--part-size", "5MiB"])
        cls.tree = cls.world.root / "tree"
        cls.tree.mkdir()
        for name, size in (("big.bin", 17 * MIB + 3), ("a b+c.bin", MIB), ("small", 10)):
            (cls.tree / name).write_bytes(os.urandom(size))
        cls.world.cairn("put", cls.tree, "f/run@1")

    @classmethod
    def tearDownClass(cls):
        cls.world.close()

    def check_bytes(self, folder):
        """folder holds the objects below the prefix."""
        for path in self.tree.iterdir():
            copy = next(pathlib.Path(folder).rglob(f"data/{path.name}"))
            self.assertEqual(hashlib.sha256(copy.read_bytes()).digest(),
                             hashlib.sha256(path.read_bytes()).digest(), path.name)

    def check_copy(self, prefix):
        self.world.cairn("verify", "f/run@1", "--store", f"s3://{self.s3.bucket}/{prefix}")

    def folder(self, name):
        path = self.world.root / name
        path.mkdir()
        return path

    def test_boto3(self):
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
        environment = {**os.environ, **(env or {})}
        environment.pop("AWS_CA_BUNDLE", None)  # rclone 1.60 fails where it is set
        done = run(arguments, env=environment)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_rclone(self):
        rclone = [program("rclone", "rclone"), "--config", "/dev/null", "--s3-no-check-bucket"]
        env = {"RCLONE_CONFIG_X_TYPE": "s3", "RCLONE_CONFIG_X_PROVIDER": "Other",
               "RCLONE_CONFIG_X_ENV_AUTH": "true", "RCLONE_CONFIG_X_REGION": "us-east-1",
               "RCLONE_CONFIG_X_ENDPOINT": os.environ["AWS_ENDPOINT_URL"]}
        folder = self.folder("rclone")
        self.call([*rclone, "copy", f"x:{self.s3.bucket}/{self.prefix}", folder], env)
        self.check_bytes(folder)
        self.call([*rclone, "copy", folder, f"x:{self.s3.bucket}/rclone-{self.prefix}"], env)
        self.check_copy(f"rclone-{self.prefix}")

    def test_aws(self):
        aws = [program("aws", "awscli"), "--endpoint-url", os.environ["AWS_ENDPOINT_URL"],
               "--region", "us-east-1", "s3", "cp", "--recursive", "--only-show-errors"]
        folder = self.folder("aws")
        self.call([*aws, f"s3://{self.s3.bucket}/{self.prefix}/", folder])
        self.check_bytes(folder)
        self.call([*aws, folder, f"s3://{self.s3.bucket}/aws-{self.prefix}/"])
        self.check_copy(f"aws-{self.prefix}")


if __name__ == "__main__":
    if not os.environ.get("AWS_ENDPOINT_URL"):
        print("no AWS_ENDPOINT_URL: skipped")
        sys.exit(77)
    unittest.main(verbosity=2)
