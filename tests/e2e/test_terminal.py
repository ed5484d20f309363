# SPDX-License-Identifier: Apache-2.0
# ctest: seconds=15
"""What people see on a terminal and what a pipe gets of the same: colours, spark lines, NO_COLOR."""
import os
import subprocess
import unittest

import cases
from outcome import leave
from terminal import on_terminal, plain
from world import BIN, HANG_S, World

RUN = "llm/seen"


class Terminal(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.world = World(case=cls)
        for step in (100, 200, 300):
            folder = cases.made(cls.world.root / f"put-{step}")
            (folder / "w.bin").write_bytes(os.urandom(300_000))
            cls.world.cairn("put", folder, f"{RUN}@{step}")
        cls.world.cairn("rm", f"{RUN}@100")

    def env(self, **more):
        clean = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
        return {**clean, "CAIRN_URL": self.world.addresses(), "TERM": "xterm-256color", "LC_ALL": "C.UTF-8", **more}

    def seen(self, *words, **more):
        return on_terminal([BIN / "cairn", *words], self.env(**more))

    def piped(self, *words):
        return subprocess.run([BIN / "cairn", *words], env=self.env(), stdout=subprocess.PIPE, check=True, text=True,
                              timeout=HANG_S).stdout

    def test_a_list_is_coloured_and_has_a_line_of_stalls_and_intervals(self):
        seen, piped = self.seen("ls", RUN), self.piped("ls", RUN)
        self.assertIn("\x1b[1mSTATE", seen)
        self.assertIn("\x1b[32mcommitted", seen)
        self.assertIn("\x1b[2mcommitted", seen)  # what lies in the trash is quiet
        bare = plain(seen)
        self.assertTrue(bare.startswith(piped), (bare, piped))
        lines = bare[len(piped):].splitlines()
        self.assertRegex(lines[0], "^stall +[▁▂▃▄▅▆▇█]{3}  .* to .*, the last ")
        self.assertRegex(lines[1], "^interval +[▁▂▃▄▅▆▇█]{2}  .* to .*, the last ")
        self.assertEqual(len(lines), 2)

    def test_one_checkpoint_is_coloured_and_says_how_its_save_went(self):
        seen = self.seen("show", RUN)
        self.assertIn("\x1b[32mstate        committed", seen)
        self.assertRegex(plain(seen), r"pace +training stood still for .*, staged after .*, durable after .*, committed after ")
        self.assertRegex(seen, "stall +")

    def test_a_pipe_and_a_terminal_that_wants_none_get_no_colour(self):
        for words in (("ls",), ("ls", RUN), ("show", f"{RUN}@300"), ("show", RUN)):
            self.assertNotIn("\x1b", self.piped(*words), words)
            self.assertNotIn("stall  ", self.piped(*words), words)
            for more in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
                self.assertNotIn("\x1b", self.seen(*words, **more), (words, more))
        self.assertIn("▁", self.seen("ls", RUN, NO_COLOR="1"))  # a drawing is no colour
        self.assertIn("\x1b[", self.seen("ls", RUN, NO_COLOR=""))  # empty is unset (no-color.org)

    def test_without_utf_8_the_line_is_of_plain_signs(self):
        seen = self.seen("ls", RUN, LC_ALL="C")
        self.assertTrue(seen.isascii(), seen)
        self.assertRegex(plain(seen), r"stall +[_.^-]{3} ")

    def test_json_on_a_terminal_has_no_escape(self):
        self.assertNotIn("\x1b", self.seen("ls", RUN, "--json"))


if __name__ == "__main__":
    leave(unittest.main(exit=False).result)
