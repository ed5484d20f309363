# SPDX-License-Identifier: Apache-2.0
# ctest: seconds=30
"""What a later release wrote is not damage (P15): each way in which a later one may differ, written into a store as that one
would write it, with every digest right. No reader calls it damaged (status 7) or leaves it out in silence, all name it."""
import contextlib
import hashlib
import json
import os
import pathlib
import shutil
import sqlite3
import struct
import sys
import unittest

import cases
from test_verify import safetensors
from world import BIN, in_time, wait_until, World

RUN = "later/run"
WITHOUT_CAIRN = pathlib.Path(__file__).parents[1] / "python/read_without_cairn.py"


def number(kind, value=2, needs=""):
    """The document with another number; `needs` as a later release says which one reads it."""
    words = f'"{kind}":{value}' + (f',"needs":"{needs}"' if needs else "")
    return lambda text: text.replace(f'"{kind}":1'.encode(), words.encode(), 1)


def table_byte(at, value):
    """A byte of the first rank table, by its offset there; -1 - N: of the first tensor's row."""
    def change(layout):
        table = struct.unpack_from("<Q", layout, 24)[0]
        shards = struct.unpack_from("<I", layout, table + 12)[0]
        place = table + (at if at >= 0 else 40 + 16 * shards - 1 - at)
        return layout[:place] + bytes([value]) + layout[place + 1:]
    return change


def layout_digest(layout):
    sha = hashlib.sha256()
    for i in range(struct.unpack_from("<I", layout, 8)[0]):
        at, size = struct.unpack_from("<2Q", layout, 24 + 16 * i)
        table = layout[at:at + size]
        sha.update(table[8:12] + hashlib.sha256(table).digest())
    return sha.hexdigest()


# document, how it is changed, what the message names
CASES = {
    "a later record of the commit": ("committed.json", number("cairn_committed"), "format 2"),
    "a later manifest that says what it needs": ("manifest.json", number("cairn_manifest", 3, "0.9.1"), "release 0.9.1"),
    "another checksum": ("manifest.json", lambda text: text.replace(b'"checksum":"crc32c"', b'"checksum":"xxh3"'), "xxh3"),
    "pieces of older objects": ("manifest.json", lambda text: text.replace(b'"extents":[[0,', b'"extents":[[0,1],[1,'), "extents"),
    "a later record of the attempt": ("attempt", number("cairn_attempt"), "format 2"),
    "an element type": ("layout", table_byte(-1 - 9, 200), "element type 200"),
    "a kind of tensors": ("layout", table_byte(-1 - 8, 9), "kind 9"),
    "a flag of tensors": ("layout", table_byte(-1 - 11, 1), "flags 0x1"),
    "a flag of tables": ("layout", table_byte(36, 4), "flags 0x4"),
    "a later rank table": ("layout", table_byte(7, ord("2")), "version 2"),
    "a flag of layouts": ("layout", lambda text: text[:20] + b"\1" + text[21:], "flags 0x1"),
    "a later layout": ("layout", lambda text: text[:7] + b"2" + text[8:], "version 2"),
}
# Whole files need no layout, and a version by its step from the server no record but the catalog's.
NEEDED = {"committed.json": "get-alone", "manifest.json": "get get-alone", "attempt": "get-alone", "layout": ""}


class Newer(unittest.TestCase):
    def setUp(self):
        self.world = World(server_arguments=("--reconcile-wait", "10ms"), case=self)
        source = cases.made(self.world.root / "source")
        safetensors(source / "model.safetensors", 40)
        self.world.cairn("put", source, f"{RUN}@1")
        self.store = pathlib.Path(self.world.store)
        self.outputs = 0

    def one(self, pattern):
        found = self.world.stored(pattern)
        self.assertEqual(len(found), 1, (pattern, found))
        return found[0]

    def write(self, path, text):
        path.chmod(0o644)
        path.write_bytes(text)

    def change(self, document, change):
        """Writes the change, and all that proves it: digests, key, catalog."""
        manifest_path, record_path = self.one("manifest.json"), self.one("committed.json")
        manifest = manifest_path.read_bytes()
        columns = {}
        if document == "attempt":
            for path in self.world.stored("attempts/*.json"):
                self.write(path, change(path.read_bytes()))
            return
        if document == "committed.json":
            self.write(record_path, change(record_path.read_bytes()))
            return
        if document == "layout":
            path, before = self.one("*.layout"), json.loads(manifest)["layout"]["digest"]
            layout = change(path.read_bytes())
            after = layout_digest(layout)
            path.with_name(path.name.replace(before, after)).write_bytes(layout)
            if after != before:
                path.unlink()
            else:
                self.write(path, layout)
            manifest = manifest.replace(before.encode(), after.encode())
            columns["layout"] = bytes.fromhex(after)
        else:
            manifest = change(manifest)
        old, new = hashlib.sha256(manifest_path.read_bytes()).hexdigest(), hashlib.sha256(manifest).hexdigest()
        self.write(manifest_path, manifest)
        self.write(record_path, record_path.read_bytes().replace(old.encode(), new.encode()))
        columns["manifest_sha256"] = bytes.fromhex(new)
        with contextlib.closing(sqlite3.connect(self.world.root / "server/catalog.db")) as db, db:
            for column, value in columns.items():
                db.execute(f"UPDATE versions SET {column} = ?", (value,))
            if "layout" in columns:
                db.execute("UPDATE layouts SET digest = ?", (columns["layout"],))

    def run_command(self, *words):
        self.outputs += 1
        into = ["-d", self.world.root / f"out-{self.outputs}"] if words[0] == "get" else []
        return self.world.cairn(*words, *into, status=None)

    def judge(self, what, done, named, must_fail, status=1):
        said = done.stdout + done.stderr
        self.assertIn(done.returncode, (status,) if must_fail else (0, status), (what, said))
        if done.returncode:
            self.assertIn("newer release", said, what)
            self.assertIn(named, said, what)

    def readers(self, document, named):
        alone = ("--store", self.store)
        needed = NEEDED[document].split()
        if document == "attempt":  # a server does not know what it supersedes: the run is frozen
            self.judge("get", self.run_command("get", f"{RUN}@1"), named, True, status=5)
            self.alone(document, named, alone, needed)
            return
        self.judge("get", self.run_command("get", f"{RUN}@1"), named, "get" in needed)
        self.alone(document, named, alone, needed)
        self.judge("verify", self.run_command("verify", f"{RUN}@1"), named, True)
        answer = json.loads(self.run_command("verify", f"{RUN}@1", "--json").stdout)
        self.assertEqual((answer["bad_objects"], answer["ok"]), (0, False))
        self.assertGreaterEqual(answer["newer"], 1)
        self.assertEqual({f["what"] for f in answer["findings"]}, {"newer"})
        if document in ("manifest.json", "layout"):  # libcairn reads tensors by both
            with self.assertRaisesRegex(AssertionError, "newer release"):
                self.world.restored(f"{RUN}@1", "t0")

    def alone(self, document, named, alone, needed):
        self.judge("get --store", self.run_command("get", f"{RUN}@1", *alone), named, "get-alone" in needed)
        for verb in ("verify", "show"):
            self.judge(f"{verb} --store", self.run_command(verb, f"{RUN}@1", *alone), named, True)
        listed = self.run_command("ls", RUN, *alone, "--json")
        self.assertEqual(listed.returncode, 0, listed.stderr)
        row = json.loads(listed.stdout)[0]
        self.assertEqual((row["state"], row["code"]),
                         ("unsupported", "unsupported") if document in ("committed.json", "manifest.json")
                         else ("committed", None))
        plain = cases.run([sys.executable, WITHOUT_CAIRN, self.store, f"{RUN}@1", self.world.root / "plain"], status=1)
        self.assertIn("newer release", plain.stderr)

    def reindex(self, document, named):
        """Named, not damaged, and no part of the answer's good end; a server on that catalog freezes the run."""
        new = self.world.root / "new"
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir(mode=0o700)
        shutil.copy(self.world.root / "server/grant.key", new)
        env = {"CAIRN_RECONCILE_WAIT": "10ms"}
        done = self.world.cairn("reindex", self.store, "--catalog", new, "--json", "--force", status=None, env=env)
        answer = json.loads(done.stdout)
        if document == "layout":  # its bytes are no part of what makes a version committed
            self.assertEqual((done.returncode, answer["versions"], answer["damaged"]), (0, 1, 0), done.stderr)
            return
        self.assertEqual((done.returncode, answer["damaged"], answer["newer"]), (1, 0, 1), done.stderr)
        self.assertIn('"problem":"newer"', done.stderr.replace(" ", ""))
        self.assertIn(named, done.stderr)
        os.rename(self.world.root / "server", self.world.root / "aside")
        os.rename(new, self.world.root / "server")
        try:
            self.world.start_server()

            def refused(seconds):
                said = self.world.cairn("put", self.world.root / "source", f"{RUN}@2", "--timeout", f"{seconds:g}s", status=None)
                self.assertNotEqual(said.returncode, 0)
                return "newer release" in said.stdout + said.stderr
            in_time(refused, 10)
            if document == "committed.json":  # a round of the server's sweep
                wait_until(lambda: "newer release" in self.world.cairn("reconcile", RUN, "--timeout", "1s", status=None).stderr)
            self.world.server.stop()
        finally:
            shutil.rmtree(self.world.root / "server")
            os.rename(self.world.root / "aside", self.world.root / "server")

    def test_every_reader_names_what_a_newer_release_wrote_and_none_calls_it_damage(self):
        self.world.server.stop()
        aside = self.world.root / "before"
        shutil.copytree(self.store, aside / "store")
        shutil.copytree(self.world.root / "server", aside / "server")
        for case, (document, change, named) in CASES.items():
            with self.subTest(case=case):
                self.change(document, change)
                self.world.start_server()
                self.readers(document, named)
                self.world.server.stop()
                self.reindex(document, named)
            if self.world.server.process.poll() is None:
                self.world.server.stop()
            for name, place in (("store", self.store), ("server", self.world.root / "server")):
                for entry in place.iterdir():  # the folder itself stays: the uploader has it open
                    shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
                shutil.copytree(aside / name, place, dirs_exist_ok=True)

    def test_migrate_makes_no_catalog_where_there_is_none(self):
        self.world.server.stop()
        mistyped = self.world.root / "sever"
        for folder, status, said in ((mistyped, 3, "there is no catalog in"), (self.world.root / "server", 0, "schema")):
            done = cases.run([BIN / "cairn-server", "--migrate", "--store", self.store, "--data-dir", folder], status=status)
            self.assertIn(said, done.stdout + done.stderr)
        self.assertFalse(mistyped.exists())

    def test_a_damaged_byte_where_something_new_may_stand_is_damage(self):
        layout = self.one("*.layout")
        self.write(layout, table_byte(-1 - 9, 200)(layout.read_bytes()))  # its digest does not say so
        self.world.cairn("verify", f"{RUN}@1", "--store", self.store, status=7)


if __name__ == "__main__":
    unittest.main()
