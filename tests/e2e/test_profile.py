# SPDX-License-Identifier: Apache-2.0
# ctest: engines=again
"""cairn profile: servers by name, what wins over what, and to whom a token is shown."""
import json
import os
import pathlib
import stat
import subprocess
import unittest

from test_commands import shapes
from world import BIN, HANG_S, World


class Profile(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.world = World(nodes=0, server_arguments=["--require-token"])
        cls.token = cls.world.root / "server" / "admin.token"
        cls.away = "http://127.0.0.1:9"

    @classmethod
    def tearDownClass(cls):
        cls.world.close()

    def setUp(self):
        self.home = self.world.root / self.id().rsplit(".", 1)[1]
        self.home.mkdir()
        self.file = self.home / "cairn" / "profiles"

    def cairn(self, *words, status=0, stdin=None, **env):
        keep = {key: value for key, value in os.environ.items() if not key.startswith("CAIRN_")}
        done = subprocess.run([BIN / "cairn", *map(str, words)], capture_output=True, text=True, input=stdin,
                              timeout=HANG_S, env={**keep, "XDG_CONFIG_HOME": str(self.home), **env})
        if status is not None:
            self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done.stderr if status else done.stdout

    def whoami(self, *words, status=0, **env):
        said = self.cairn("token", "whoami", "--json", *words, status=status, **env)
        return json.loads(said) if status == 0 else said

    def add(self, name, url=None, *words, **more):
        return self.cairn("profile", "add", name, "--server", url or self.world.url, *words, **more)

    def test_a_profile_is_added_used_listed_and_removed(self):
        self.add("lab", None, "--token-file", self.token)
        self.add("away", self.away)
        self.assertEqual(self.cairn("profile", "ls", "-o", "name"), "away\nlab\n")
        self.whoami(CAIRN_URL=self.away, status=5)  # kept is not used
        self.cairn("profile", "use", "lab")
        self.assertEqual(self.whoami()["tokens_needed"], True)
        rows = json.loads(self.cairn("profile", "ls", "--json"))
        self.assertEqual(rows[1], {"name": "lab", "server": self.world.url, "token_file": str(self.token),
                                   "ca_file": None, "socket": None, "in_use": True})
        self.assertEqual(set(rows[0]), shapes()["profile ls"])
        self.assertIn("* lab", self.cairn("profile", "ls"))
        self.assertIn("there already", self.add("lab", self.away, status=6))
        self.add("lab", self.away, "--force")
        self.whoami(status=5)
        self.cairn("profile", "use")
        self.assertFalse(any(row["in_use"] for row in json.loads(self.cairn("profile", "ls", "--json"))))
        self.cairn("profile", "rm", "lab")
        self.assertIn("no profile", self.cairn("profile", "rm", "lab", status=3))
        self.assertIn("no profile", self.whoami("--profile", "lab", status=2))

    def test_flag_then_named_profile_then_variable_then_profile_in_use(self):
        self.add("good", None, "--token-file", self.token)
        self.add("away", self.away)
        url = self.world.url
        token = {"CAIRN_TOKEN_FILE": str(self.token)}
        self.cairn("profile", "use", "away")
        self.whoami(status=5)                                            # in use
        self.whoami(CAIRN_PROFILE="good")                                # the variable's before that
        self.whoami(CAIRN_URL=url, **token)                              # an address before any of both
        self.whoami(CAIRN_URL=self.away, CAIRN_PROFILE="good", status=5)
        self.whoami("--profile", "good", CAIRN_URL=self.away, CAIRN_TOKEN="cairn_no")  # named: before variables
        self.whoami("--profile", "away", "--server", url, "--token-file", self.token)  # a flag before all
        self.whoami("--profile", "good", "--token-file", "/dev/null", status=4)

    def test_a_token_is_shown_to_the_server_of_its_profile_alone(self):
        self.add("good", None, "--token-file", self.token)
        self.cairn("profile", "use", "good")
        self.whoami()
        self.whoami("--server", self.world.url.replace("127.0.0.1", "localhost"), status=4)
        self.whoami(CAIRN_URL=self.world.url.replace("127.0.0.1", "localhost"), status=4)
        self.whoami("--profile", "good", "--server", self.world.url.replace("127.0.0.1", "localhost"), status=4)

    def test_an_uploader_that_put_starts_speaks_to_the_server_of_the_profile(self):
        self.add("good", None, "--token-file", self.token)
        file = self.home / "file"
        file.write_bytes(b"x" * 5000)
        self.cairn("put", file, "llm/seven@1", "--store", self.world.store, "--profile", "good",
                   CAIRN_SOCKET=str(self.world.root / "none.sock"))  # a short path: of a socket 107 bytes are possible
        self.assertIn("committed", self.cairn("ls", "llm/seven", "--profile", "good"))
        self.assertNotIn("WARN  server", self.cairn("doctor", "--profile", "good", status=None))

    def test_a_token_from_standard_input_is_kept_in_a_file_of_its_own(self):
        self.add("in", None, "--token-file", "-", stdin=self.token.read_text())
        kept, = (row["token_file"] for row in json.loads(self.cairn("profile", "ls", "--json")) if row["name"] == "in")
        self.assertEqual(pathlib.Path(kept).read_bytes(), self.token.read_text().strip().encode() + b"\n")
        self.assertNotIn(self.token.read_text().strip(), self.file.read_text())
        own = self.home / "cairn" / "profiles.in.token"
        for path in (self.file, own):
            self.assertEqual(stat.S_IMODE(path.stat().st_mode), 0o600, path)
        self.assertEqual(stat.S_IMODE(self.file.parent.stat().st_mode), 0o700)
        self.whoami("--profile", "in")
        self.cairn("profile", "rm", "in")
        self.assertFalse(own.exists())
        self.assertIn("no token", self.add("in", None, "--token-file", "-", stdin="\n", status=2))
        self.assertEqual(self.cairn("profile", "ls", "-o", "name"), "")
        self.add("lab", None, "--token-file", self.token)
        self.cairn("profile", "rm", "lab")
        self.assertTrue(self.token.exists())  # somebody else's
        other = self.home / "other-profiles"
        self.add("lab", None, "--token-file", self.token, CAIRN_PROFILES=str(other))
        self.assertIn("[lab]", other.read_text())

    def test_a_file_that_others_may_touch_or_that_is_wrong_is_refused_with_its_line(self):
        self.add("good", None, "--token-file", self.token)
        for mode in (0o620, 0o602, 0o640):
            self.file.chmod(mode)
            self.assertIn("chmod 600", self.whoami("--profile", "good", status=2))
        self.file.chmod(0o600)
        for text, why in (("[a]\nserve = x\n", "line 2.*no key serve"), ("[a]\n[a]\n", "line 2.*twice"),
                          ("[../a]\n", "no name"), ("server = x\n", "line 1.*no key"), ("[a\n", "no ]"),
                          ("[a]\nserver\n", "no key = value"), ("[a]\nserver = " + "x" * 2000, "too long")):
            self.file.write_text(text)
            self.assertRegex(self.whoami(status=2), why)
        self.file.write_text("# a remark\nuse = b\n\n[b]\n  server = " + self.world.url + "\n")
        self.whoami(CAIRN_TOKEN_FILE=str(self.token))
        self.cairn("completion", "bash", "--profile", "b")


if __name__ == "__main__":
    unittest.main(verbosity=2)
