# SPDX-License-Identifier: Apache-2.0
"""What the tests of the page have in common: a world of its own for each test, and one browser for all, in which each
has a tab of its own."""
import os
import pathlib
import unittest

import browser
from world import World

RUN = "llm/7b"
MARKUP = '<img src=x onerror="document.title=1">'
VIEWS = ("#/", f"#/run/{RUN}", f"#/checkpoint/{RUN}/latest", f"#/retention/{RUN}", "#/nodes", "#/restores",
         f"#/compare/{RUN}/latest/latest")


@unittest.skipIf(browser.missing(), browser.missing() or "")
class Page(unittest.TestCase):
    SERVER, UPLOADER = (), ("--heartbeat", "200ms")

    def setUp(self):
        self.world = World(server_arguments=self.SERVER, uploader_arguments=self.UPLOADER)
        self.addCleanup(self.world.close)
        self.browser = browser.anew()

    def go(self, view="#/"):
        self.browser.open(f"{self.world.url}/ui/{view}")

    def put(self, step, files=None, run=RUN):
        folder = self.world.root / f"put-{step}"
        folder.mkdir(exist_ok=True)
        for name, data in (files or {"w.bin": os.urandom(300_000), "config.json": b"{}"}).items():
            (folder / name).write_bytes(data)
        self.world.cairn("put", folder, f"{run}@{step}")

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
