# SPDX-License-Identifier: Apache-2.0
# ctest: engines=again
"""Stores in two S3s, each with keys of its own: what the URL of a store says of its place, and that no key is
ever shown to the other endpoint."""
import json
import os
import subprocess
import unittest
import urllib.parse

import cases
from s3world import BUCKET, S3Fault, S3World, signed
from test_tiers import tree
from test_verify import safetensors
from world import BIN, HANG_S, wait_until

HOT = ("AKIDHOT", "hot/Secret+canary", "hot-token==")
COLD = ("AKIDCOLD", "cold/Secret+canary", "cold-token==")
NOBODY = {"AWS_ACCESS_KEY_ID": "AKIDNOBODY", "AWS_SECRET_ACCESS_KEY": "third-secret", "AWS_SESSION_TOKEN": "third",
          "AWS_ENDPOINT_URL": "http://127.0.0.1:9", "AWS_REGION": "nowhere-1", "AWS_EC2_METADATA_DISABLED": "true"}


def url(prefix, **options):
    text = "&".join(f"{name}={urllib.parse.quote(value, safe='')}" for name, value in options.items())
    return f"s3://{BUCKET}/{prefix}" + (f"?{text}" if text else "")


class TwoS3:
    """What holds whichever of the two has its keys and its endpoint from where."""

    @classmethod
    def setUpClass(cls):
        cls.folder = cases.folder(cls)
        cls.hot, cls.cold = (S3Fault(cases.made(cls.folder / name), keys=keys, case=cls)
                             for name, keys in (("hot", HOT), ("cold", COLD)))
        profiles = "".join(f"[{name}]\naws_access_key_id = {access}\naws_secret_access_key = {secret}\n"
                           f"aws_session_token = {token}\n" for name, (access, secret, token) in
                           (("hot", HOT), ("cold", COLD), ("cold, old", COLD)))
        (cls.folder / "credentials").write_text(profiles)
        (cls.folder / "credentials").chmod(0o600)
        (cls.folder / "config").write_text(f"[profile cold]\nendpoint_url = {cls.cold.url}\n")
        files = {"AWS_SHARED_CREDENTIALS_FILE": str(cls.folder / "credentials"),
                 "AWS_CONFIG_FILE": str(cls.folder / "config")}
        stores = ["--stores", f"main,archive={cls.archive()}"]
        cls.world = S3World(cls.hot, prefix="main", env={**files, **cls.environment()}, store=cls.main(),
                            server_arguments=[*stores, "--sweep-interval", "100ms", "--trash-grace", "0ms",
                                              "--import-folders", cls.folder],
                            uploader_arguments=stores, case=cls)

    def tearDown(self):
        for s3, (access, _, _) in ((self.hot, HOT), (self.cold, COLD)):
            self.assertEqual({line["access_key"] for line in s3.journal()}, {access})
        self.assertFalse(self.world.leaks())
        secrets = (HOT[1], HOT[2], COLD[1], COLD[2])
        for log in self.world.root.glob("*.log"):
            text = log.read_text(errors="replace")
            self.assertFalse([secret for secret in secrets if secret in text], log.name)

    def model(self, number):
        folder = cases.made(self.folder / f"model-{number}")
        safetensors(folder / "model.safetensors", 3)
        (folder / "large.bin").write_bytes(bytes(range(256)) * (20 * 4096))  # two parts
        return folder

    def copies(self, ref):
        run, _, step = ref.partition("@")
        return {copy["store"]: copy["state"] for copy in self.world.version(run, step)["copies"]}

    def test_a_copy_goes_to_the_other_s3_and_is_read_from_there_when_the_first_is_gone(self):
        model = self.model(1)
        self.world.cairn("put", model, "t/two@1")
        self.world.cairn("put", model, "t/two@2")
        self.world.cairn("promote", "t/two@1", "--to", "archive")
        self.assertTrue(self.cold.keys("slow/t/two/000000000001/"))
        self.assertFalse(self.hot.keys("slow/"))
        self.assertFalse([line for line in self.cold.journal() if "copy_source" in line])
        wanted = self.world.restored("t/two@2", "t1")
        self.world.cairn("demote", "t/two@1", "--from", "main")
        self.assertEqual(self.copies("t/two@1"), {"archive": "whole"})
        self.assertFalse(self.hot.keys("main/t/two/000000000001/"))
        back = self.folder / "back-1"
        self.world.cairn("get", "t/two@1", "-d", back)
        self.assertEqual(tree(back), tree(model))
        self.assertEqual(self.world.restored("t/two@1", "t1"), wanted)

    def test_a_repair_mends_each_of_the_two_from_the_other(self):
        self.world.cairn("put", self.model(2), "t/mend@1")
        self.world.cairn("promote", "t/mend@1", "--to", "archive")
        for s3, prefix, name in ((self.hot, "main/", "large.bin"), (self.cold, "slow/", "model.safetensors")):
            key, = [key for key in s3.keys(f"{prefix}t/mend/") if key.endswith(f"/{name}")]
            data = bytearray(signed(s3.env(), f"/{BUCKET}/{key}"))
            data[-1] ^= 1
            signed(s3.env(), f"/{BUCKET}/{key}", "PUT", bytes(data))
        found = self.world.json("verify", "t/mend@1", status=7)
        self.assertEqual({item["store"] for item in found["findings"]}, {"main", "archive"})
        mended = self.world.json("verify", "t/mend@1", "--repair")
        self.assertEqual((mended["ok"], mended["mended"]), (True, 2))
        for store in (self.main(), self.archive()):
            self.world.cairn("verify", "t/mend@1", "--store", store)

    def test_the_command_takes_the_url_of_each_store(self):
        model = self.model(3)
        self.world.cairn("put", model, "t/command@1")
        self.world.cairn("promote", "t/command@1", "--to", "archive")
        away = {"CAIRN_URL": "http://127.0.0.1:9"}
        for number, store in enumerate((self.main(), self.archive())):
            back = self.folder / f"command-{number}"
            self.world.cairn("get", "t/command@1", "-d", back, "--store", store, env=away)
            self.assertEqual(tree(back), tree(model))
            self.assertIn("t/command", self.world.cairn("ls", "--store", store, env=away).stdout)
            self.world.cairn("show", "t/command@1", "--store", store, env=away)
            key, = [key for s3 in (self.hot, self.cold) for key in s3.keys(("main/", "slow/")[number] + "t/command/")
                    if key.endswith("/model.safetensors")]
            place, mark, options = store.partition("?")
            source = f"s3://{BUCKET}/{key}{mark}{options}"
            self.assertIn("t1 ", self.world.cairn("inspect", source, "--timeout", f"{HANG_S}s", env=away).stdout)
            self.world.cairn("export", source, f"{place}-out-{self.id()}/m{mark}{options}", "--timeout", f"{HANG_S}s",
                             env=away)
            checks = self.world.json("doctor", store, env=away, status=None)
            text = json.dumps(checks)
            self.assertIn((self.hot, self.cold)[number].url, text)
        self.world.cairn("reindex", self.archive(), "--dry-run", env=away)
        self.assertFalse(self.cold.keys("main-out"))
        self.assertTrue(self.cold.keys("slow-out"))

    def test_what_the_server_imports_goes_to_its_own_store(self):
        self.model(4)
        body = {"kind": "safetensors", "path": str(self.folder / "model-4" / "model.safetensors"), "step": 1}
        operation = self.world.send("POST", "/v1/runs/t/import/imports", body)["id"]
        state = lambda: self.world.read(f"/v1/operations/{operation}?wait=20s")
        self.assertEqual(wait_until(lambda: (found := state())["state"] in ("done", "failed") and found, 90)["state"], "done")
        self.assertTrue(self.hot.keys("main/t/import/000000000001/"))

    def test_a_url_that_says_what_it_cannot_is_refused_by_name(self):
        for wrong, said in (("secret_key=CANARY77", "secret_key is not known"), ("region=a&region=b", "region is given twice"),
                            ("profile=nobody", '"nobody"')):
            refused = self.world.cairn("get", "t/any@1", "-d", self.folder / "none", "--store",
                                       f"s3://{BUCKET}/main?{wrong}", status=2)
            self.assertIn(said, refused.stderr)
            self.assertNotIn("CANARY77", refused.stderr)
            refused = subprocess.run([BIN / "cairn-server", "--listen", "127.0.0.1:0", "--data-dir",
                                      self.folder / "refused", "--store", self.folder / "refused-store",
                                      "--stores", f"main,far=s3://{BUCKET}/slow?{wrong}"], capture_output=True, text=True,
                                     timeout=HANG_S, check=False, env={**os.environ, **self.world.env})
            self.assertNotEqual(refused.returncode, 0)
            self.assertIn(said, refused.stderr)
            self.assertIn("far", refused.stderr)
            self.assertNotIn("CANARY77", refused.stderr + refused.stdout)


class ArchiveByUrl(TwoS3, unittest.TestCase):
    """The main store is where AWS's variables say; the archive has a profile, which knows its endpoint."""

    @classmethod
    def environment(cls):
        return {}

    @classmethod
    def main(cls):
        return url("main")

    @classmethod
    def archive(cls):
        return url("slow", profile="cold")


class BothByUrl(TwoS3, unittest.TestCase):
    """Both are named by URLs alone, with a comma in a profile's name; AWS's variables name a third."""

    @classmethod
    def environment(cls):
        return NOBODY

    @classmethod
    def main(cls):
        return url("main", profile="hot", endpoint=cls.hot.url)

    @classmethod
    def archive(cls):
        return url("slow", endpoint=cls.cold.url, profile="cold, old", region="us-east-1")


if __name__ == "__main__":
    unittest.main()
