# SPDX-License-Identifier: Apache-2.0
# ctest: engines=sqlite seconds=20
"""A start of a server whose SQLite catalog is large: the file is believed after a clean stop, and read through
beside the calls after any other."""
import json
import os
import signal
import sqlite3
import unittest
import urllib.error
import urllib.request

from world import HANG_S, wait_until, World

ROWS, ROW_BYTES = 80, 1 << 20  # more than is read through before a start


class LargeCatalog(unittest.TestCase):
    def setUp(self):
        self.world = World(nodes=0)
        self.addCleanup(self.world.close)
        self.file = self.world.root / "server" / "catalog.db"

    def fill(self):
        with sqlite3.connect(self.file) as db:
            db.execute("CREATE TABLE filler(number INTEGER PRIMARY KEY, bytes BLOB)")
            db.executemany("INSERT INTO filler VALUES(?, randomblob(?))", ((i, ROW_BYTES) for i in range(ROWS)))
        db.close()

    def damage(self):
        """A page of the last row, which is looked at last."""
        with sqlite3.connect(self.file) as db:
            size = db.execute("PRAGMA page_size").fetchone()[0]
        db.close()
        with open(self.file, "r+b") as file:
            file.seek(-2 * size, os.SEEK_END)
            file.write(b"\xee" * size)

    def log(self):
        return (self.world.root / "server.log").read_text()

    def ready(self):
        try:
            with urllib.request.urlopen(self.world.url + "/readyz", timeout=HANG_S) as reply:
                return reply.status, json.load(reply)["checks"]["file"]
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)["checks"]["file"]

    def put_run(self, name):
        request = urllib.request.Request(self.world.url + "/v1/runs/a/" + name, data=b"{}", method="PUT",
                                         headers={"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=HANG_S) as reply:
                return reply.status
        except urllib.error.HTTPError as error:
            return error.code

    def test_after_a_clean_stop_the_file_is_believed_and_after_any_other_it_is_read_through_beside(self):
        self.world.server.stop()
        self.fill()
        self.world.start_server()  # the sign of the stop is of another file
        wait_until(lambda: "catalog.read_through" in self.log())
        self.assertEqual(self.ready(), (200, "ok"))
        self.world.server.stop()
        self.assertTrue((self.file.parent / "catalog.db.clean").exists())
        self.world.start_server()
        self.assertEqual(self.ready(), (200, "ok"))
        self.assertFalse((self.file.parent / "catalog.db.clean").exists())
        self.world.server.stop(signal.SIGKILL)
        self.assertEqual(self.log().count("catalog.read_through"), 1)
        self.world.start_server()
        wait_until(lambda: self.log().count("catalog.read_through") == 2)

    def test_a_file_that_is_found_damaged_takes_no_change_and_readyz_says_so(self):
        self.world.server.stop()
        self.fill()
        self.damage()
        try:
            self.world.start_server()
        except AssertionError as found_first:  # before the start had its first change
            self.assertIn("the file is damaged", str(found_first))
        else:
            wait_until(lambda: "catalog.damaged" in self.log())
            status, text = self.ready()
            self.assertEqual(status, 503)
            self.assertIn("the file is damaged", text)
            self.assertGreaterEqual(self.put_run("x"), 500)
            self.world.server.stop()
        self.assertFalse((self.file.parent / "catalog.db.clean").exists())

    def test_a_small_file_that_is_damaged_is_refused_at_once(self):
        self.assertEqual(self.put_run("x"), 201)
        self.world.server.stop()
        with open(self.file, "r+b") as file:
            file.seek(4096 * 2)
            file.write(b"\xee" * 4096)
        with self.assertRaisesRegex(AssertionError, "quick_check"):
            self.world.start_server()


if __name__ == "__main__":
    unittest.main()
