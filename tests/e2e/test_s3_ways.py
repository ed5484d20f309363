# SPDX-License-Identifier: Apache-2.0
# ctest: seconds=20
"""What stands between Cairn and its store: an nginx that bounds bodies, or that drops or rewrites
headers. `cairn doctor` says which size or header the way does not bear, and a save says it, too."""
import json
import os
import pathlib
import shutil
import socket
import subprocess
import tempfile
import unittest

from patience import HANG_S
from s3world import BIN, S3Fault, S3World, run, wait_until

NGINX = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/sbin")
MIB = 1 << 20
DOCTOR_S = 300  # what it sends is tried for 15 s each, in up to nine ways


def is_open(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@unittest.skipUnless(NGINX, "there is no nginx")
class Ways(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="cairn-ways-"))
        self.s3 = S3Fault(self.folder)
        self.nginx = self.world = None

    def tearDown(self):
        if self.world:
            self.world.close()
        if self.nginx:
            self.nginx.terminate()
            self.nginx.wait()
        self.s3.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def lead(self, *lines, host="$http_host"):
        """The environment of a store that is reached through an nginx with these lines."""
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            port = taken.getsockname()[1]
        temporary = " ".join(f"{kind}_temp_path {self.folder}/{kind};" for kind in
                             ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        user = "user root;" if os.geteuid() == 0 else ""
        (self.folder / "nginx.conf").write_text(
            f"daemon off; {user} worker_processes 1; pid {self.folder}/pid; error_log {self.folder}/errors; "
            f"events {{}} http {{ access_log off; {temporary} server {{ listen 127.0.0.1:{port}; "
            f"location / {{ proxy_set_header Host {host}; proxy_http_version 1.1; {' '.join(lines)} "
            f"proxy_pass {self.s3.url}; }} }} }}")
        self.nginx = subprocess.Popen([NGINX, "-c", self.folder / "nginx.conf", "-p", self.folder,
                                       "-e", self.folder / "errors"])
        wait_until(lambda: is_open(port), 20)
        return {**self.s3.env(), "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}"}

    def ask(self, env):
        said = run([BIN / "cairn", "doctor", "s3://lab/cairn", "--json"], env={**os.environ, **env},
                   timeout=max(HANG_S, DOCTOR_S))
        self.assertIn(said.returncode, (0, 1), said.stderr)
        return {f["check"]: f for f in json.loads(said.stdout)["findings"]}

    def test_a_way_that_changes_nothing_takes_a_part_of_a_save(self):
        found = self.ask(self.lead("client_max_body_size 0;"))
        self.assertEqual(found["part of a save"]["level"], "ok")

    def test_a_bound_on_bodies_is_named_with_what_passes_and_the_save_says_it(self):
        env = self.lead()  # nginx's own: 1 MiB
        found = self.ask(env)["part of a save"]
        self.assertEqual(found["level"], "FAIL")
        self.assertIn("8.0 MiB are refused, 1.0 MiB pass", found["text"])
        self.assertIn("client_max_body_size", found["hint"])
        self.world = S3World(self.s3, env=env)
        tree = self.world.root / "tree"
        tree.mkdir()
        (tree / "shard").write_bytes(os.urandom(20 * MIB))
        said = self.world.cairn("put", tree, "w/run@1", status=None)
        self.assertNotEqual(said.returncode, 0)
        self.assertIn("client_max_body_size", said.stderr)

    def test_a_way_that_drops_the_checksum_is_named_by_its_header(self):
        found = self.ask(self.lead("client_max_body_size 0;",
                                   'proxy_set_header x-amz-checksum-crc32c "";'))["part of a save"]
        self.assertEqual(found["level"], "FAIL")
        self.assertIn("x-amz-checksum", found["text"] + found["hint"])

    def test_a_way_that_changes_bodies_is_named_and_never_answered_by_no_checksum(self):
        self.s3.rules("op=part : req-flip@5000")
        found = self.ask(self.s3.env())["part of a save"]
        self.assertEqual(found["level"], "FAIL")
        self.assertIn("the body is changed on the way", found["text"])
        self.assertIn("bodies unchanged", found["hint"])
        self.assertNotIn("checksum = none", found["hint"])

    def test_what_an_uploader_says_of_a_way_that_changes_bodies(self):
        self.s3.rules("op=part : req-flip@5000")
        self.world = S3World(self.s3)
        tree = self.world.root / "tree"
        tree.mkdir()
        (tree / "shard").write_bytes(os.urandom(20 * MIB))
        wanted = "is changed on the way: `cairn doctor` finds out which"
        put = subprocess.Popen([BIN / "cairn", "put", tree, "w/run@1"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                               env={**os.environ, **self.world.env, "CAIRN_URL": self.world.url, "CAIRN_PROGRESS": "none",
                                    "CAIRN_SOCKET": self.world.socket(0)})
        try:
            wait_until(lambda: wanted in self.world.cairn("uploader", "status").stdout)
        finally:
            put.kill()
            put.communicate()

    def test_a_way_that_signs_nothing_anew_and_names_another_host_is_told_as_that(self):
        found = self.ask(self.lead("client_max_body_size 0;", host="other.example"))
        self.assertEqual(found["requests"]["level"], "FAIL")
        self.assertIn("SignatureDoesNotMatch", found["requests"]["text"])
        self.assertIn("Host", found["part of a save"]["hint"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
