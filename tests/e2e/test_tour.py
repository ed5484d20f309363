# SPDX-License-Identifier: Apache-2.0
# ctest: engines=again
"""docs/http.md is a tour: its commands, pasted one after the other in an empty folder, all work, and
they answer what the page shows. What the page leaves out (…) may be anything; ids, times, digests
and numbers that change from run to run are compared by their form."""
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import unittest

import reports
from world import BIN, HANG_S, wait_until

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "http.md"
PORT = "7420"  # that the page has
MARK = "=== end of answer ==="
# What differs from run to run, and the form that it has.
FORMS = [
    (r"ckpt_[0-9a-f-]{36}", "ckpt_ID"),
    (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "UUID"),
    (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", "TIME"),
    (r"\b[0-9a-f]{32,64}\b", "DIGEST"),
    (r'("nodes_silent_ms"|"idle_s"|"pid"|"schema"):\d+', r"\1:N"),
]


def steps(text):
    """(command, shown answer) of all blocks without a language, in their order; one with a language
    shows what this server is not set up for. A command begins with "$ " and goes on where a quote or
    a backslash is open."""
    found = []
    for language, block in re.findall(r"^```(\w*)\n(.*?)^```", text, re.S | re.M):
        if language:
            continue
        lines = iter(block.splitlines())
        for line in lines:
            if line.startswith("$ "):
                command = line[2:]
                while is_open(command):
                    command += "\n" + next(lines)
                found.append((command, []))
            elif found:
                found[-1][1].append(line)
            else:
                raise AssertionError(f"an answer without a command: {line}")
    return [(command, "\n".join(shown).strip()) for command, shown in found]


def is_open(command):
    """Whether bash would ask for another line."""
    return command.endswith("\\") or subprocess.run(
        ["bash", "-n", "-c", command], capture_output=True, check=False).returncode != 0


def normal(text):
    for pattern, form in FORMS:
        text = re.sub(pattern, form, text)
    return re.sub(r"\s+", "", text)


def agrees(shown, answer):
    """Shown pieces come in their order, the first at the begin, the last at the end. An id or digest
    may be cut: "ckpt_86b3…"."""
    pieces = [re.escape(normal(piece)) for piece in
              re.sub(r"(ckpt_|\b)[0-9a-f-]{3,35}…", "…", shown).split("…")]
    return re.fullmatch(".*?".join(pieces), normal(answer), re.S) is not None


class Tour(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="cairn-tour-"))
        self.addCleanup(reports.check)
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]

    def run_tour(self, commands):
        """What each command wrote, standard error included."""
        script = "set -e\n" + "".join(f"{command}\necho '{MARK}'\n" for command in commands)
        # The only thing the page cannot know: which port is free here.
        script = script.replace("cairn up ./cairn", f"cairn up ./cairn --listen 127.0.0.1:{self.port}")
        script = script.replace(f"127.0.0.1:{PORT}", f"127.0.0.1:{self.port}")
        env = {"PATH": f"{BIN}:{os.environ['PATH']}", "HOME": str(self.folder), "LC_ALL": "C.UTF-8",
               "CAIRN_PROGRESS": "none",
               **{k: v for k, v in os.environ.items() if k.endswith("SAN_OPTIONS")}}
        shell = subprocess.Popen(["bash", "-c", script], cwd=self.folder, env=env, text=True,
                                 stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                 start_new_session=True)
        try:
            out, _ = shell.communicate(timeout=HANG_S)
        finally:
            for pid in self.daemons():
                os.kill(pid, signal.SIGTERM)
            wait_until(lambda: not self.daemons(), 40)
        answers = out.split(f"{MARK}\n")
        reached = commands[min(len(answers), len(commands)) - 1]
        self.assertEqual(shell.returncode, 0, f"stopped at: {reached}\n{out[-2000:]}")
        return answers[:-1]

    def daemons(self):
        """`cairn up` of this folder, which the page leaves running."""
        found = []
        for entry in pathlib.Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and os.readlink(entry / "cwd") == str(self.folder) and \
                        b"\0up\0" in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                continue
        return found

    def test_every_line_of_the_page_works_in_an_empty_folder_and_answers_as_shown(self):
        tour = steps(PAGE.read_text())
        self.assertGreater(len(tour), 40)
        for (command, shown), answer in zip(tour, self.run_tour([c for c, _ in tour])):
            with self.subTest(command=command):
                if shown:
                    self.assertTrue(agrees(shown, answer), f"shown:\n{shown}\nanswered:\n{answer}")

    def test_an_answer_that_differs_is_noticed(self):
        self.assertTrue(agrees('{"a":1,…}', '{"a":1,"b":2}'))
        self.assertFalse(agrees('{"a":2,…}', '{"a":1,"b":2}'))
        self.assertFalse(agrees('{"a":1}', '{"a":1,"b":2}'))
        self.assertTrue(agrees("ckpt_86b3e091-…: 4 files",
                               "ckpt_86b3e091-1d3a-8c2b-9f8e-1a2b3c4d5e6f: 4 files"))


if __name__ == "__main__":
    unittest.main(verbosity=2)
