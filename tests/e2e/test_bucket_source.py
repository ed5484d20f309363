# SPDX-License-Identifier: Apache-2.0
"""Checkpoints that lie in a bucket: `inspect`, `export` and `diff` say and write of them what they do
of the same files on a disk, read what they need by ranges, and name an object that is another one
meanwhile."""
import json
import os
import subprocess
import unittest

import cases
from s3world import BUCKET, S3Fault, signed
from test_export import VECTORS, ZERO
from test_export_resume import content
from test_to_dcp import model
from world import BIN, HANG_S, wait_until

PARALLEL = ZERO / "parallel"


class Source(cases.Case):
    def setUp(self):
        self.s3 = S3Fault(self.folder, case=self)
        self.env = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
        self.env.update(self.s3.env())

    def start(self, *words, **env):
        return subprocess.Popen([BIN / "cairn", *map(str, words)], stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True, env={**self.env, **env})

    def cairn(self, *words, status=0, **env):
        ran = self.start(*words, **env)
        said, noted = ran.communicate(timeout=HANG_S)
        self.assertEqual(ran.returncode, status, said + noted)
        return said if not status else noted

    def put(self, key, body):
        signed(self.env, f"/{BUCKET}/{key}", method="PUT", body=body)

    def upload(self, path, key):
        """Its files, or itself; returns the URL."""
        for file in [path] if path.is_file() else [f for f in path.rglob("*") if f.is_file()]:
            below = "" if file == path else f"/{file.relative_to(path)}"
            self.put(key + below, file.read_bytes())
        return f"s3://{BUCKET}/{key}"

    def read(self):
        """Ranges that were answered: [(key, bytes)]"""
        return [(line["key"], line["bytes_out"]) for line in self.s3.journal(op="get") if line["status"] == 206]

    def test_what_lies_in_a_bucket_is_what_lies_in_a_folder(self):
        large = self.folder / "large.safetensors"
        model(large, 6, 500_000)
        sharded = self.folder / "sharded"
        self.cairn("export", large, sharded, "--max-shard-size", "5MB")
        for number, source in enumerate((
                ZERO / "stage1", ZERO / "stage2", ZERO / "stage3", PARALLEL / "pipeline_cut",
                PARALLEL / "universal", VECTORS / "dcp" / "fsdp", VECTORS / "torch" / "everything.pt",
                large, sharded)):
            url = self.upload(source, f"deep/case {number}/model")
            here, there = (json.loads(self.cairn("inspect", place, "--json")) for place in (source, url))
            self.assertEqual((here.pop("file"), there.pop("file")), (str(source), url))
            self.assertEqual(there, here, source)
            wanted, got = (self.folder / f"{kind}-{number}" for kind in ("here", "there"))
            self.cairn("export", source, wanted)
            self.cairn("export", url, got)
            self.assertEqual(content(got), content(wanted), source)
            self.assertTrue(json.loads(self.cairn("diff", source, url, "--json"))["equal"])
            if source.is_dir():
                self.assertEqual(*(self.cairn("inspect", place, "--output", "name") for place in (source, f"{url}/")))
        self.assertLessEqual({line["op"] for line in self.s3.journal()}, {"put", "get", "head", "list"})

    def test_it_goes_from_a_bucket_into_a_bucket_and_an_export_goes_on(self):
        large = self.folder / "large.safetensors"
        model(large, 8, 1_000_000)
        source = self.upload(large, "in/large.safetensors")
        self.s3.rules("op=part nth=3 : req-stall@100%")
        running = self.start("export", source, f"s3://{BUCKET}/out", "-j", 1)
        wait_until(lambda: self.s3.acted() or running.poll() is not None, every=0.005)
        running.kill()
        running.communicate()
        self.s3.rules("")
        self.cairn("export", source, f"s3://{BUCKET}/out")
        parts = [line["part"] for line in self.s3.journal(op="part") if line["status"] == 200]
        self.assertEqual(len(parts), len(set(parts)))
        self.assertTrue(json.loads(self.cairn("diff", large, f"s3://{BUCKET}/out", "--json"))["equal"])

    def test_inspect_reads_headers_and_no_tensor(self):
        large = self.folder / "large.safetensors"
        model(large, 16, 1_000_000)  # 61 MiB
        torch = self.folder / "torch"
        self.cairn("export", large, torch, "--to", "torch")
        torch = next(torch.glob("*.bin"), None) or next(torch.glob("*.pt"))
        for file in (large, torch):
            url = self.upload(file, f"{file.name}")
            before = len(self.read())
            told = json.loads(self.cairn("inspect", url, "--json"))
            self.assertEqual(len(told["tensors"]), 16)
            ranges = self.read()[before:]
            self.assertLess(sum(size for _, size in ranges), 2 << 20, ranges)
            self.assertLess(len(ranges), 24)
        before = len(self.read())
        self.cairn("export", f"s3://{BUCKET}/{large.name}", self.folder / "some", "--only", "layer.03")
        self.assertLess(sum(size for _, size in self.read()[before:]), 5 << 20)

    def test_several_threads_read_at_once(self):
        large = self.folder / "large.safetensors"
        model(large, 4, 4_000_000)
        url = self.upload(large, "large.safetensors")
        self.s3.rules("op=get nth=2+ : delay=1500")
        self.cairn("export", url, self.folder / "out", "-j", 8)
        spans = [(line["mono_us"] - line["took_us"], line["mono_us"]) for line in self.s3.journal(op="get")]
        self.assertGreaterEqual(len(spans), 8)
        self.assertGreaterEqual(max(sum(begin <= at < end for begin, end in spans) for at, _ in spans), 3)

    def test_an_object_that_is_replaced_or_deleted_meanwhile_is_named(self):
        large = self.folder / "large.safetensors"
        model(large, 6, 1_000_000)
        for number, (change, words) in enumerate(((
                lambda key: self.put(key, large.read_bytes()[:-4] + b"\1\2\3\4"), "replaced"), (
                lambda key: self.put(key, large.read_bytes() + b"more"), "replaced"), (
                lambda key: signed(self.env, f"/{BUCKET}/{key}", method="DELETE"), "deleted"))):
            url = self.upload(large, f"{number}/model.safetensors")
            self.s3.rules("op=get nth=2 : held")
            out = self.folder / f"out-{number}"
            running = self.start("export", f"s3://{BUCKET}/{number}", out, "-j", 1)
            wait_until(lambda: self.s3.acted() or running.poll() is not None, every=0.005)
            change(f"{number}/model.safetensors")
            self.s3.rules("")
            _, said = running.communicate(timeout=HANG_S)
            self.assertEqual(running.returncode, 7, said)
            self.assertIn(f"{url}: it was {words} while it was read", said)
            self.assertFalse([f for f in out.iterdir() if f.name.endswith(".safetensors")])

    def test_what_is_not_there_or_not_allowed_is_named(self):
        url = self.upload(ZERO / "stage2", "zero")
        for verb in (("inspect",), ("export", )):
            out = () if verb == ("inspect",) else (self.folder / "out",)
            said = self.cairn(*verb, f"s3://{BUCKET}/none/model.pt", *out, status=3)
            self.assertIn(f"s3://{BUCKET}/none/model.pt: no such object", said)
            said = self.cairn(*verb, url, *out, status=4, AWS_SECRET_ACCESS_KEY="another")
            self.assertIn(url, said)
            said = self.cairn(*verb, f"s3://{BUCKET}x/zero", *out, status=3)
            self.assertIn(f"{BUCKET}x", said)
            said = self.cairn(*verb, url, *out, "--timeout", "2s", status=8, AWS_ENDPOINT_URL="http://127.0.0.1:9")
            self.assertIn(url, said)
        self.put("lone/notes.txt", b"nothing")
        self.assertIn("neither a DeepSpeed folder", self.cairn("inspect", f"s3://{BUCKET}/lone", status=1))
        self.assertIn("names no bucket", self.cairn("inspect", "s3://", status=2))
        self.assertIn("cairn export", self.cairn("import", "deepspeed", url, "p/r@1", status=1))
        self.put("tag/latest", b"../up\n")
        self.assertIn("latest", self.cairn("inspect", f"s3://{BUCKET}/tag", status=7))


if __name__ == "__main__":
    unittest.main()
