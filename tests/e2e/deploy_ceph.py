# SPDX-License-Identifier: Apache-2.0
"""docs/deploy.md, "MinIO and Ceph", as a reader plays it: its commands make two users and a bucket at Ceph's gateway,
doctor finds that each pair of keys has its rights and no more, and what the uploader's keys have sent the server's
keys commit, read and delete. real_server.py runs it against the gateway that it has started:

    python3 tests/e2e/deploy_ceph.py FOLDER       with the variables of tests/s3/radosgw.sh env FOLDER PORT
"""
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import unittest

from world import BIN, HANG_S, World

PAGE = (pathlib.Path(__file__).resolve().parents[2] / "docs/deploy.md").read_text()
STORE = "s3://checkpoints/prod"
ENDPOINT = os.environ.get("AWS_ENDPOINT_URL")
CLEAN = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}


def chapter(name):
    return re.search(rf"^## {name}$(.*?)^## ", PAGE, re.S | re.M).group(1)


def listings(text, kind):
    """Those of one kind: json, or "" for commands."""
    return [one for one in re.finditer(r"^```(\w*)\n(.*?)^```$", text, re.S | re.M) if one.group(1) == kind]


def command_block(word):
    """The commands of the chapter among which `word` is."""
    return next(one.group(2) for one in listings(chapter("MinIO and Ceph"), "") if word in one.group(2))


def files():
    """{name: content} of the files that the reader saves: each is named before its listing."""
    text = chapter("The bucket") + chapter("MinIO and Ceph")
    return {re.findall(r"`([a-z-]+\.json)`", text[:one.start()])[-1]: one.group(2) for one in listings(text, "json")}


def shell(commands, folder, env):
    done = subprocess.run(["bash", "-euo", "pipefail", "-c", commands], cwd=folder, env={**CLEAN, **env}, text=True,
                          capture_output=True, timeout=HANG_S, check=False)
    if done.returncode:
        raise AssertionError(f"{commands}\nstatus {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done.stdout


class TwoKeys(World):
    """The server has the one pair of keys, the uploader the other."""

    def __init__(self, keys, **options):
        self.keys = keys
        super().__init__(store=f"{STORE}?endpoint={ENDPOINT}", env=keys["cairn-server"], **options)

    def make_uploader(self, number):
        daemon = super().make_uploader(number)
        daemon.env = {**self.env, **self.keys["cairn-uploader"]}
        return daemon


class Ceph(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix="cairn-ceph-")
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        for name, content in files().items():
            pathlib.Path(cls.folder, name).write_text(content)
        commands = command_block("radosgw-admin").replace("https://rgw.example", ENDPOINT)
        admin = re.findall(r"^radosgw-admin .*\n", commands, re.M)
        admin_env = {"CEPH_CONF": f"{GATEWAY}/ceph.conf", "CEPH_ARGS": "-n client.gateway"}
        cls.keys = {}
        for line in admin:
            user = json.loads(shell(line, cls.folder, admin_env))
            cls.keys[user["user_id"]] = {"AWS_ACCESS_KEY_ID": user["keys"][0]["access_key"],
                                         "AWS_SECRET_ACCESS_KEY": user["keys"][0]["secret_key"],
                                         "AWS_DEFAULT_REGION": "us-east-1", "AWS_EC2_METADATA_DISABLED": "true"}
        rest = commands.replace("".join(admin), "")
        exported, others = re.subn(r"^export AWS_ACCESS_KEY_ID=.*\n", "", rest, flags=re.M)
        assert others == 1, rest
        shell(exported, cls.folder, cls.keys["cairn-server"])

    def test_a_reader_is_asked_to_save_the_four_documents_that_the_commands_name(self):
        self.assertEqual(set(files()), {"uploader.json", "server.json", "lifecycle.json", "bucket-policy.json"})
        for content in files().values():
            json.loads(content)

    def test_b_doctor_finds_no_right_that_either_side_lacks_and_none_too_many(self):
        lines = command_block("cairn doctor").replace("https://minio.example:9000", ENDPOINT).splitlines()
        url = re.sub(r"&ca_bundle=[^']*", "", lines[0])
        for role in ("server", "uploader"):
            with self.subTest(role=role):
                line = next(line for line in lines if f"--for {role}" in line).replace("sudo -u cairn cairn", shlex.quote(str(BIN / "cairn")))
                said = shell(f"{url}\n{line}", self.folder, {**self.keys[f"cairn-{role}"], "CAIRN_PROGRESS": "none"})
                print(said)
                self.assertNotIn("FAIL", said)
                for right in ("list", "list uploads", "delete"):
                    self.assertRegex(said, rf"(?m)^ok +{right} +these keys may {'not ' if role == 'uploader' else ''}{right}")

    def test_c_a_save_of_the_uploader_s_keys_is_committed_read_and_deleted_by_the_server_s(self):
        world = TwoKeys(self.keys, server_arguments=["--trash-grace", "0ms", "--sweep-interval", "100ms"])
        self.addCleanup(world.close)
        source = pathlib.Path(self.folder, "model")
        source.mkdir()
        (source / "large").write_bytes(os.urandom(20 << 20))
        (source / "small").write_bytes(b"small")
        for step in (1, 2):
            world.cairn("put", source, f"llm/7b@{step}")
        world.cairn("get", "llm/7b@2", "-d", world.root / "back")
        self.assertEqual((world.root / "back" / "large").read_bytes(), (source / "large").read_bytes())
        world.cairn("verify", "llm/7b@2")
        gone = world.version("llm/7b", "1")["version"]
        world.cairn("rm", "llm/7b@1")
        world.cairn("wait", f"llm/7b@{gone}", "--for", "gone")


if __name__ == "__main__":
    if not shutil.which("aws"):
        print("SKIPPED: there is no aws to play docs/deploy.md with: apt-get install awscli")
        sys.exit(0)
    GATEWAY = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main(verbosity=2)
