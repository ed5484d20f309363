# SPDX-License-Identifier: Apache-2.0
# ctest: seconds=40
"""`-o jsonl` of every verb: each thing that it tells is one line, and nothing else is on standard output."""
import json
import os
import unittest

import cases
from test_commands import TORCH_FILE, VERBS
from world import wait_until, World

# What tells nothing in JSON, or does not end: `completion` prints a script, `up` and `watch` go on until they are ended.
WITHOUT = {"completion", "up", "watch"}


class Lines(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = cases.folder(cls)
        hooks = cases.file(folder / "hooks", json.dumps({"webhooks": [
            {"name": "chat", "url": "http://127.0.0.1:9/", "secret": "a secret of more than sixteen bytes"}]}).encode())
        hooks.chmod(0o600)
        cls.imports = cases.made(folder / "imports")
        cls.world = World(case=cls, server_arguments=[
            "--webhooks-file", hooks, "--stores", f"slow={folder / 'slow'}", "--import-folders", cls.imports])
        cls.config = folder / "config"

    def lines(self, *words, status=0):
        out = self.world.cairn(*words, "-o", "jsonl", status=status, env={"XDG_CONFIG_HOME": str(self.config)}).stdout
        things = []
        for line in out.splitlines():
            try:
                things.append(json.loads(line))
            except ValueError:
                self.fail(f"no thing in itself: {line[:100]!r} of {len(out.splitlines())} lines")
        return things

    def begun(self):
        """The id of a save that nobody goes on with."""
        grant = self.world.send("POST", "/v1/runs/l/open/attempts", {
            "job": "j", "world_size": 1, "after": 0, "node": "n", "resume": "latest", "ranks": [{"rank": 0, "proc": "p"}]})
        return self.world.send("POST", "/v1/runs/l/open/checkpoints", {
            "grant": grant["grant"], "node": "n", "begins": [{"step": 1, "n": 1, "rank": 0, "world_size": 1}]})

    def commands(self):
        """One after the other; each is to print a line at least."""
        root, store = self.world.root, self.world.store
        file = cases.file(root / "file", os.urandom(1000))
        yield "put", file, "l/run@1"
        yield "put", file, "l/run@2"
        version = self.world.version("l/run", "2")["version"]
        for words in (("ls",), ("ls", "l/run"), ("show", "l/run@1"), ("show", "--why", "l/run@1"),
                      ("get", "l/run@1", "-d", root / "back"), ("verify", "l/run@1"), ("wait", "l/run@1"), ("resume", "l/run"),
                      ("pin", "l/run@1"), ("unpin", "l/run@1"), ("label", "l/run@1", "a=b"), ("metric", "l/run@1", "a=1"),
                      ("promote", "l/run@1", "--to", "slow"), ("demote", "l/run@1", "--from", "slow"),
                      ("lineage", "l/run@1"), ("events", "l/run", "--since", "0"), ("du",), ("du", "l/run"), ("quota", "ls"),
                      ("quota", "get", "l"), ("alias", "set", "l/run@1", "good"), ("alias", "ls", "l/run"),
                      ("lease", "take", "l/run@1", "--job", "j"), ("lease", "ls", "l/run@1"),
                      ("policy", "set", "l/run", "--keep-last", "9", "--yes"), ("policy", "get", "l/run"), ("policy", "test", "l/run"),
                      ("forget", "l/run", "--yes"),
                      ("rm", "l/run@2"), ("undelete", f"l/run@{version}"), ("uploads", "abort", version),
                      ("reconcile", "l/run"), ("inspect", TORCH_FILE), ("import", "torch", TORCH_FILE, "l/run@3"),
                      ("export", TORCH_FILE, root / "export"), ("diff", "--tensors", TORCH_FILE, TORCH_FILE),
                      ("token", "create", "--scope", "read", "--project", "*", "--expires", "1h", "t"), ("token", "list"),
                      ("token", "whoami"), ("webhooks", "ls"), ("webhooks", "redeliver", "chat"), ("doctor", store),
                      ("reindex", store, "--dry-run"), ("catalog", "backup", root / "backup.db", "--data-dir", root / "server"),
                      ("profile", "add", "lab", "--server", self.world.url), ("profile", "ls"), ("uploader", "status"),
                      ("warmup", "node", "l"), ("health",), ("bench", "save", "--ranks", "1", "--bytes", "1MiB", "--steps", "1")):
            yield words
        self.begun()
        yield "abort", "l/open@1"
        yield "operation", "show", self.operation()
        wait_until(lambda: "node-0" in self.world.cairn("nodes").stdout)
        yield ("nodes",)
        self.world.uploaders[0].stop()
        yield "nodes", "rm", "node-0"
        yield ("gc",)

    def operation(self):
        (self.imports / "m.pt").write_bytes(TORCH_FILE.read_bytes())
        return self.world.send("POST", "/v1/runs/l/imported/imports", {
            "kind": "torch", "path": str(self.imports / "m.pt"), "step": 1})["id"]

    def test_each_thing_is_one_line_of_every_verb(self):
        told = set()
        for words in self.commands():
            with self.subTest(words=words):
                if words[0] != "gc":  # which found nothing
                    self.assertTrue(self.lines(*words))
            told.add(words[0])
        self.assertEqual(told | WITHOUT, {*VERBS, "catalog"})  # of which each has a page, and no other


if __name__ == "__main__":
    unittest.main()
