# SPDX-License-Identifier: Apache-2.0
"""What the tests of the page have in common: a world of its own for each test, and one browser for all, in which each
has a tab of its own."""
import contextlib
import os
import pathlib
import sqlite3
import unittest

import browser
from world import World

RUN = "llm/7b"
MARKUP = '<img src=x onerror="document.title=1">'
VIEWS = ("#/", f"#/run/{RUN}", f"#/checkpoint/{RUN}/latest", f"#/retention/{RUN}", "#/nodes", "#/restores",
         f"#/compare/{RUN}/latest/latest")


# Rows as commits leave them, in one run.
FILL = """
WITH RECURSIVE k(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM k WHERE i + 1 < :count)
INSERT INTO versions(version, run_id, attempt, step, n, nonce, state, recorded, superseded, trashed_tick, world_size,
  on_exists, skip, format, labels, meta, bytes, shards, created_ms, committed_ms, opened_tick)
SELECT printf('ckpt_%08x-%04x-8%03x-8000-%012x', :run, 0, 0, i), :run, 1 + i / 1000, 10 * i, 1, 'aaaaaaaaaaaaaaaa', 1, 1, 0,
  NULL, 8, 0, 0, 'opaque', '{}', '{}', 1073741824, 8, 1700000000000 + i * 60000, 1700000000000 + i * 60000 + 900, 1 FROM k
"""


def fill(catalog, name, count):
    """A run big/NAME with so many checkpoints, by SQLite's own statements."""
    with contextlib.closing(sqlite3.connect(catalog)) as db, db:
        run = db.execute("INSERT INTO runs(project, run, labels, created_ms, attempt) VALUES ('big', ?, '{}', 1700000000000, ?)"
                         " RETURNING run_id", (name, 1 + count // 1000)).fetchone()[0]
        if count:
            db.execute(FILL, {"run": run, "count": count})


@unittest.skipIf(browser.missing(), browser.missing() or "")
class Page(unittest.TestCase):
    SERVER, UPLOADER = (), ("--heartbeat", "200ms")

    def setUp(self):
        self.world = World(server_arguments=self.SERVER, uploader_arguments=self.UPLOADER)
        self.addCleanup(self.world.close)
        self.browser = browser.anew()

    def go(self, view="#/", *texts):
        """texts: what the view shows then."""
        self.browser.open(f"{self.world.url}/ui/{view}")
        for text in texts:
            self.browser.has(text)

    def done(self, button, says=None):
        """A button, and the one that confirms it."""
        self.browser.click("button", button)
        self.browser.click("dialog button.main")
        if says:
            self.browser.has(says)

    def put(self, step, files=None, run=RUN, more=()):
        folder = self.world.root / f"put-{step}"
        folder.mkdir(exist_ok=True)
        for name, data in (files or {"w.bin": os.urandom(300_000), "config.json": b"{}"}).items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(data)
        self.world.cairn("put", folder, f"{run}@{step}", *more)

    def settled(self):
        self.browser.until("return document.querySelector('#main h1') && !document.querySelector('#main .loading')")

    def expect_quiet(self):
        """The browser has nothing to say of the page. That the machine's network has changed, by tests beside this one that
        make networks, is not the page's fault: it has asked again."""
        said = [entry["message"] for entry in self.browser.log() if entry["level"] in ("SEVERE", "WARNING")
                and "net::ERR_NETWORK_CHANGED" not in entry["message"]]
        self.assertEqual(said, [])

    def keep_picture(self, name):
        if os.environ.get("CAIRN_TEST_PICTURES"):
            self.browser.picture(pathlib.Path(os.environ["CAIRN_TEST_PICTURES"]) / f"{name}.png")
