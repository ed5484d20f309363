# SPDX-License-Identifier: Apache-2.0
# ctest: engines=again
"""What bash completes `cairn` by: made from the tables of the help, and asking the server for names."""
import os
import pty
import re
import select
import shlex
import shutil
import socket
import subprocess
import time
import unittest

import cases
from world import BIN, HANG_S, World


class Completion(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.world = World(case=cls)
        source = cases.file(cls.world.root / "file", b"x" * 5000)
        for step in (10, 12, 20):
            cls.world.cairn("put", source, f"llm/seven@{step}")
        cls.world.cairn("put", source, "llm/other@1")
        cls.world.cairn("alias", "set", "llm/seven@12", "prod")
        cls.script = cases.file(cls.world.root / "completion", cls.world.cairn("completion", "bash").stdout)

    def env(self, **more):
        return {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", "CAIRN_URL": self.world.addresses(), **more}

    def complete(self, line, breaks=" \t\n", **env):
        """What bash is offered at the end of the line. Without '@' and '=' among the characters that
        cut words, whole words are."""
        done = subprocess.run(
            ["bash", "--norc", "-c",
             f"source {shlex.quote(str(self.script))}; COMP_WORDBREAKS=$2; COMP_LINE=$1; "
             "COMP_POINT=${#COMP_LINE}; COMP_WORDS=(cairn); _cairn; printf '%s\\n' \"${COMPREPLY[@]}\"",
             "bash", line, breaks], capture_output=True, text=True, check=True, timeout=HANG_S,
            env=self.env(**env))
        self.assertEqual(done.stderr, "")
        return done.stdout.split()

    def test_bash_takes_the_script(self):
        subprocess.run(["bash", "-n", self.script], check=True)

    def test_every_verb_and_flag_of_the_help_is_completed(self):
        verbs = re.findall(r"^  (\w+) +[A-Z]", self.world.cairn("--help").stdout, re.M)
        self.assertGreater(len(verbs), 30)
        self.assertEqual(set(self.complete("cairn ")), {*verbs, "help"})
        self.assertEqual(set(self.complete("cairn help ")), {*verbs, "help"})
        self.assertEqual(self.complete("cairn verif"), ["verify"])
        for verb in verbs:
            if verb == "version":
                continue
            text = self.world.cairn(verb, "--help").stdout.split("\nFlags:\n")[1]
            flags = re.findall(r"^ +(?:-\w, )?(--[\w-]+)", text, re.M)
            self.assertEqual(self.complete(f"cairn {verb} -"), flags, verb)

    def test_what_a_verb_does_and_what_a_flag_may_be_is_completed(self):
        self.assertEqual(self.complete("cairn alias "), ["ls", "set", "rm"])
        self.assertEqual(self.complete("cairn policy s"), ["set"])
        self.assertEqual(self.complete("cairn catalog "), ["copy"])
        self.assertEqual(self.complete("cairn ls -o "), ["table", "wide", "json", "jsonl", "yaml", "name"])
        self.assertEqual(self.complete("cairn ls --output js"), ["json", "jsonl"])
        self.assertEqual(self.complete("cairn ls --output=js"), ["--output=json", "--output=jsonl"])
        self.assertEqual(self.complete("cairn ls --output=n", breaks=" ="), ["name"])
        self.assertEqual(self.complete("cairn ls --limit "), [], "a number is not guessed")
        self.assertEqual(self.complete("cairn put ./fi"), [], "bash itself completes files")

    def test_runs_and_checkpoints_are_those_of_the_server(self):
        self.assertEqual(set(self.complete("cairn show ")), {"llm/seven", "llm/other"})
        self.assertEqual(self.complete("cairn put file llm/s"), ["llm/seven"])
        self.assertEqual(self.complete("cairn alias ls llm/o"), ["llm/other"])
        self.assertEqual(set(self.complete("cairn get --rank 0 llm/seven@")),
                         {f"llm/seven@{name}" for name in ("latest", "10", "12", "20", "prod")})
        self.assertEqual(set(self.complete("cairn get llm/seven@1")), {"llm/seven@10", "llm/seven@12"})
        self.assertEqual(self.complete("cairn get llm/seven@p", breaks=" @"), ["prod"])
        self.assertEqual(self.complete("cairn show llm/none@"), [])
        url = self.world.url
        self.assertEqual(self.complete(f"cairn show --server {url} llm/s", CAIRN_URL="http://127.0.0.1:1"),
                         ["llm/seven"])

    def test_a_server_that_is_away_or_silent_holds_nobody_up(self):
        silent = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(silent.close)
        for port in (1, silent.getsockname()[1]):
            self.assertEqual(self.complete("cairn show ", CAIRN_URL=f"http://127.0.0.1:{port}"), [])

    def test_a_shell_that_it_is_not_made_for_is_status_2(self):
        self.assertIn("bash", self.world.cairn("completion", "tcsh", status=2).stderr)
        self.world.cairn("completion", "refs", "no-slash@", status=2)
        self.world.cairn("completion", "refs", "x" * 600 + "@", status=2)

    def test_a_key_in_a_real_bash(self):
        leader, follower = pty.openpty()
        shell = subprocess.Popen(["bash", "--norc", "--noprofile", "-i"], stdin=follower, stdout=follower,
                                 stderr=follower, start_new_session=True,
                                 env=self.env(TERM="dumb", PS1="> ", HISTFILE="", INPUTRC="/dev/null"))
        os.close(follower)
        self.addCleanup(lambda: (shell.kill(), shell.wait(), os.close(leader)))
        said = ""

        def expect(what):
            nonlocal said
            until = time.monotonic() + HANG_S
            while what not in said:
                self.assertLess(time.monotonic(), until, said)
                if select.select([leader], [], [], 1)[0]:
                    said += os.read(leader, 4096).decode(errors="replace")
            said = said.split(what, 1)[1]

        os.write(leader, f"source {self.script}; echo re''ady\n".encode())
        expect("ready")
        os.write(leader, b"cairn sho\tllm/se\t@pr\t")
        expect("cairn show llm/seven@prod")



class Fish(unittest.TestCase):
    """The same in fish, where it is installed."""

    @classmethod
    def setUpClass(cls):
        if not shutil.which("fish"):
            raise unittest.SkipTest("no fish")
        cls.world = World(case=cls)
        source = cases.file(cls.world.root / "file", b"x")
        cls.world.cairn("put", source, "llm/seven@10")
        cls.script = cases.file(cls.world.root / "completion.fish", cls.world.cairn("completion", "fish").stdout)

    def complete(self, line):
        """{what fish offers: what it says of it}"""
        done = subprocess.run(
            ["fish", "--no-config", "-c", f"source {shlex.quote(str(self.script))}; complete -C {shlex.quote(line)}"],
            capture_output=True, text=True, check=True, timeout=HANG_S, cwd=self.world.root,
            env={**os.environ, "HOME": str(self.world.root), "TERM": "dumb",
                 "PATH": f"{BIN}:{os.environ['PATH']}", "CAIRN_URL": self.world.addresses()})
        self.assertEqual(done.stderr, "")
        return dict((line + "\t").split("\t")[:2] for line in done.stdout.splitlines())

    def test_verbs_flags_and_words_are_those_of_the_help(self):
        said = self.world.cairn("--help").stdout
        verbs = dict(re.findall(r"^  (\w+) +([A-Z].*)$", said, re.M))
        self.assertEqual({**self.complete("cairn "), "help": "", "version": ""}, {**verbs, "help": "", "version": ""})
        for verb in ("export", "ls", "alias"):
            flags = re.findall(r"^ +(?:-\w, )?(--[\w-]+)",
                               self.world.cairn(verb, "--help").stdout.split("\nFlags:\n")[1], re.M)
            self.assertEqual(set(self.complete(f"cairn {verb} --")), set(flags), verb)
        self.assertEqual(set(self.complete("cairn ls -o ")), {"table", "wide", "json", "jsonl", "yaml", "name"})
        self.assertEqual(set(self.complete("cairn alias ")) & {"ls", "set", "rm"}, {"ls", "set", "rm"})
        self.assertNotIn("--step-ge", self.complete("cairn alias ls --"))
        self.assertIn("file", self.complete("cairn put fi"))  # files where a path may stand

    def test_runs_and_checkpoints_are_those_of_the_server(self):
        self.assertIn("llm/seven", self.complete("cairn show llm/"))
        self.assertIn("llm/seven@10", self.complete("cairn show llm/seven@"))
        self.assertIn("llm/seven@latest", self.complete(f"cairn show -s {self.world.addresses()} llm/seven@"))


class Zsh(unittest.TestCase):
    """The same in zsh, where it is installed; a terminal of its own presses the tabulator."""

    @classmethod
    def setUpClass(cls):
        if not shutil.which("zsh"):
            raise unittest.SkipTest("no zsh")
        cls.world = World(case=cls)
        source = cases.file(cls.world.root / "file", b"x")
        cls.world.cairn("put", source, "llm/seven@10")
        cls.script = cases.file(cls.world.root / "completion.zsh", cls.world.cairn("completion", "zsh").stdout)

    def complete(self, line):
        """The words that zsh hands to its list: what compadd is given, with what is said of each."""
        program = f"""
            autoload -Uz compinit; compinit -u -d {self.world.root}/dump
            source {self.script}
            LISTMAX=10000; zstyle ':completion:*' list-grouped false; zstyle ':completion:*' verbose no
            null-line() {{ zle accept-line }}; zle -N null-line
            comppostfuncs=(_told); _told() {{ compstate[insert]=''; compstate[list]=''; print >>{self.world.root}/told }}
            compadd() {{
                if [[ ${{@[1,(i)(-|--)]}} == *-(O|A|D)* ]]; then builtin compadd "$@"; return; fi
                typeset -a __hits; builtin compadd -A __hits "$@"; builtin compadd "$@"
                print -rl -- $__hits >>{self.world.root}/offered
            }}
            bindkey '^I' complete-word; PS1='ready> '
        """
        offered = cases.file(self.world.root / "offered", "")
        cases.file(self.world.root / ".zshrc", program)
        primary, secondary = pty.openpty()
        shell = subprocess.Popen(
            ["zsh", "-i"], stdin=secondary, stdout=secondary, stderr=secondary, cwd=self.world.root,
            env={**os.environ, "ZDOTDIR": str(self.world.root), "TERM": "dumb", "HOME": str(self.world.root),
                 "PATH": f"{BIN}:{os.environ['PATH']}", "CAIRN_URL": self.world.addresses()})
        os.close(secondary)
        said = b""
        sent = over = False
        told = self.world.root / "told"
        told.unlink(missing_ok=True)
        end = time.monotonic() + HANG_S
        try:
            while time.monotonic() < end and b"done-of-zsh" not in said.replace(b"echo done-of-zsh", b""):
                if select.select([primary], [], [], 0.2)[0]:
                    said += os.read(primary, 65536)
                if not sent and b"ready> " in said:
                    os.write(primary, line.encode() + b"\t")
                    sent = True
                if not over and told.exists():
                    os.write(primary, b"\x15echo done-of-zsh\n")
                    over = True
        finally:
            shell.kill()
            shell.wait()
            os.close(primary)
        self.assertIn(b"done-of-zsh", said)
        return set(offered.read_text().split("\n")) - {""}

    def test_verbs_flags_words_and_names_are_offered(self):
        said = self.world.cairn("--help").stdout
        verbs = set(re.findall(r"^  (\w+) +[A-Z].*$", said, re.M))
        self.assertEqual(self.complete("cairn "), verbs | {"help", "version"})
        flags = set(re.findall(r"^ +(?:-\w, )?(--[\w-]+)",
                               self.world.cairn("export", "--help").stdout.split("\nFlags:\n")[1], re.M))
        self.assertLessEqual(flags, self.complete("cairn export --"))
        self.assertEqual(self.complete("cairn alias "), {"ls", "set", "rm"})
        self.assertEqual(self.complete("cairn show llm/"), {"llm/seven"})
        self.assertEqual(self.complete("cairn show llm/seven@"), {"llm/seven@latest", "llm/seven@10"})
        self.assertLessEqual({"table", "json", "yaml"}, self.complete("cairn ls --output="))


if __name__ == "__main__":
    unittest.main()
