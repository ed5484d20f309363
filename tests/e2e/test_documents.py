# SPDX-License-Identifier: Apache-2.0
# ctest: engines=again
"""Every document of the store, damaged in every way: whatever needs it ends with status 7, what does
not goes on, and nothing ends otherwise; a launcher takes status 3 for "start afresh"."""
import os
import pathlib
import subprocess
import unittest

import cases
from test_verify import safetensors
from world import BIN, HANG_S, World

MIB = 1 << 20
RUN = "documents/run"


def changed(original, at):
    return original[:at] + bytes([original[at] ^ 0x10]) + original[at + 1:]


DAMAGES = {
    "removed": None,
    "empty": lambda original: b"",
    "cut": lambda original: original[:len(original) // 2],
    "headless": lambda original: b"#" + original[1:],
    "flipped": lambda original: changed(original, len(original) // 2),
}
# status of get, verify and show: through a server that has just started, and from the store alone
WANTED = {
    "manifest.json": ("777", "777"),
    "checksums.bin": ("777", "777"),
    "layout": ("077", "077"),  # whole files need none
    "shard": ("770", "770"),
    "attempt": ("070", "070"),  # its copy is read instead
    "committed.json": ("070", "777"),  # the catalog knows that it is committed
}
# A server writes a record that is gone again when it starts.
MENDED = {("committed.json", "removed"): ("000", "000")}


class Documents(unittest.TestCase):
    def setUp(self):
        self.world = World(case=self)
        source = cases.made(self.world.root / "source")
        safetensors(source / "model.safetensors", 40)
        (source / "notes.bin").write_bytes(os.urandom(MIB))
        self.world.cairn("put", source, f"{RUN}@1")
        self.outputs = 0
        self.documents = {
            "manifest.json": self.one("manifest.json"),
            "checksums.bin": self.one("checksums.bin"),
            "layout": self.one("*.layout"),
            "shard": self.one("model.safetensors"),
            "attempt": self.one("attempts/000000000001.json"),
            "committed.json": self.one("committed.json"),
        }

    def one(self, pattern):
        found = self.world.stored(pattern)
        self.assertEqual(len(found), 1, (pattern, found))
        return found[0]

    def statuses(self, more):
        said = ""
        for verb in ("get", "verify", "show"):
            self.outputs += 1
            into = ["-d", self.world.root / f"out-{self.outputs}"] if verb == "get" else []
            said += str(self.world.cairn(verb, f"{RUN}@1", *into, *more, status=None).returncode)
        return said

    def test_what_needs_a_damaged_document_ends_with_status_7_and_nothing_else_fails(self):
        for name, path in self.documents.items():
            original = path.read_bytes()
            for damage, change in DAMAGES.items():
                path.chmod(0o644)
                if change:
                    path.write_bytes(change(original))
                else:
                    path.unlink()
                self.world.server.kill()
                self.world.start_server()  # nothing is in its memory
                with self.subTest(document=name, damage=damage):
                    wanted = MENDED.get((name, damage), WANTED[name])
                    self.assertEqual((self.statuses(()), self.statuses(("--store", self.world.store))), wanted)
                path.write_bytes(original)

    def test_a_damaged_store_json_ends_a_start_with_status_7_and_commands_go_on(self):
        path = pathlib.Path(self.world.store) / ".cairn/store.json"
        original = path.read_bytes()
        self.world.server.kill()
        for damage, change in DAMAGES.items():
            if not change:
                continue  # a store without it is one that was lost, or is not mounted
            path.chmod(0o644)
            path.write_bytes(change(original))
            done = subprocess.run(
                [BIN / "cairn-server", "--store", self.world.store, "--listen", "127.0.0.1:0",
                 "--data-dir", self.world.root / "server"],
                capture_output=True, text=True, timeout=HANG_S, check=False)
            with self.subTest(damage=damage):
                self.assertEqual(done.returncode, 7, done.stderr)
                self.assertIn("store.json", done.stderr)
                self.assertEqual(self.statuses(("--store", self.world.store)), "000")
        path.write_bytes(original)

    def test_a_store_of_another_number_is_refused_by_every_reader(self):
        path = pathlib.Path(self.world.store) / ".cairn/store.json"
        original = path.read_bytes()
        self.assertIn(b'"cairn_store":1', original)
        path.chmod(0o644)
        path.write_bytes(original.replace(b'"cairn_store":1', b'"cairn_store":2'))
        back = self.world.root / "back"
        for words in (("ls",), ("ls", RUN), ("show", f"{RUN}@latest"), ("get", f"{RUN}@latest", "-d", back),
                      ("verify", f"{RUN}@latest"), ("doctor",)):
            with self.subTest(words=words):
                done = self.world.cairn(*words, *(() if words == ("doctor",) else ("--store",)), self.world.store, status=None)
                self.assertEqual(done.returncode, 1, done.stderr)
                self.assertIn("newer release", done.stdout + done.stderr)
        self.assertFalse(back.exists())
        path.write_bytes(original)


if __name__ == "__main__":
    unittest.main()
