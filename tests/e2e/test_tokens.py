# SPDX-License-Identifier: Apache-2.0
# ctest: engines=again
"""Server, uploader and command where tokens are asked for: the uploader's token changes while it
runs, and none is in a log, an error or an argument (A04)."""
import json
import os
import pathlib
import shutil
import subprocess
import unittest

import cases
import postgres
from world import World, files_below


class Tokens(unittest.TestCase):
    def setUp(self):
        self.world = World(nodes=0, server_arguments=("--require-token", "--log-level", "debug"), case=self)
        self.admin = (self.world.root / "server/admin.token").read_text().strip()
        self.file = self.world.root / "uploader.token"
        self.secrets = [self.admin]

    def start_uploader(self):
        self.world.uploader_arguments = ["--token-file", self.file, "--log-level", "debug"]
        self.world.uploaders.append(self.world.make_uploader(0))
        self.world.uploaders[0].start()

    def make(self, *words):
        done = self.world.cairn("token", "create", *words, env={"CAIRN_TOKEN": self.admin})
        token = done.stdout.strip()
        self.assertNotIn(token, done.stderr)
        self.secrets.append(token)
        return token

    def give_uploader(self, token):
        new = self.file.with_suffix(".new")
        new.write_text(token + "\n")
        new.chmod(0o600)
        new.rename(self.file)

    def revoke(self, token):
        self.world.cairn("token", "revoke", token.split("_")[1], env={"CAIRN_TOKEN": self.admin})

    def secret_is_nowhere(self):
        """In no log, catalog, journal, object; only in the files that are there for it."""
        kept = {self.file, self.world.root / "server/admin.token"}
        for path in set(filter(pathlib.Path.is_file, files_below(self.world.root))) - kept:
            text = path.read_bytes()
            for token in self.secrets:
                self.assertNotIn(token.split("_")[2].encode(), text, path)
        status, _, counted = self.world.get("/metrics", headers={"Authorization": f"Bearer {self.admin}"})
        self.assertEqual(status, 200)
        for token in self.secrets:
            self.assertNotIn(token.split("_")[2].encode(), counted)
        for daemon in [self.world.server, *self.world.uploaders]:
            words = pathlib.Path(f"/proc/{daemon.process.pid}/cmdline").read_bytes()
            for token in self.secrets:
                self.assertNotIn(token.encode(), words)

    def who(self, token):
        return self.world.get("/v1/whoami", headers={"Authorization": f"Bearer {token}"})[0]

    def test_a_backup_of_the_database_from_before_a_revocation_lets_nobody_in(self):
        if postgres.wanted():
            self.skipTest("a backup of a database is its own tool's")
        kept, ended = (self.make("--scope", "read", "--project", "*", name) for name in ("kept", "ended"))
        catalog, backup = self.world.root / "server/catalog.db", self.world.root / "backup.db"
        self.world.cairn("catalog", "backup", backup, "--data-dir", catalog.parent)
        self.revoke(ended)
        self.assertEqual((self.who(kept), self.who(ended)), (200, 401))
        self.world.server.stop()
        for path in catalog.parent.glob("catalog.db*"):
            path.unlink()
        shutil.copy(backup, catalog)
        self.world.start_server()
        self.assertEqual((self.who(kept), self.who(ended)), (200, 401))
        self.assertIn("token.revoked_again", self.world.server.log.read_text())
        self.world.server.stop()
        shutil.copy(backup, catalog)
        self.world.server_arguments.append("--adopt-store=true")
        self.world.start_server()
        self.assertEqual((self.who(kept), self.who(ended)), (200, 401))

    def test_a04_saves_and_reads_by_token_and_the_uploader_takes_the_next_one_from_its_file(self):
        source = cases.file(self.world.root / "data", os.urandom(100000))
        first = self.make("--scope", "read,write", "--project", "nlp", "one")
        self.give_uploader(first)
        self.start_uploader()
        self.world.cairn("put", source, "nlp/a@1", env={"CAIRN_TOKEN_FILE": str(self.file)})
        second = self.make("--scope", "read,write", "--project", "nlp", "two")
        self.give_uploader(second)
        self.revoke(first)
        self.world.cairn("put", source, "nlp/a@2", env={"CAIRN_TOKEN_FILE": str(self.file)})
        listed = self.world.cairn("ls", "nlp/a", "--json", env={"CAIRN_TOKEN": second})
        self.assertEqual({item["step"] for item in json.loads(listed.stdout)}, {1, 2})
        # Who may not, is told so, without what he came with.
        for token, words, status in ((first, ("ls", "nlp/a"), 4), ("", ("ls", "nlp/a"), 4),
                                     (second, ("ls", "other/a"), 3), (second, ("rm", "nlp/a@1"), 4),
                                     (second, ("token", "list"), 4), ("cairn_x", ("ls",), 4)):
            done = self.world.cairn(*words, env={"CAIRN_TOKEN": token}, status=status)
            self.assertNotIn(token or "-----", done.stderr)
            self.assertEqual("--token-file or CAIRN_TOKEN" in done.stderr, not token, done.stderr)
        who = self.world.cairn("token", "whoami", env={"CAIRN_TOKEN": second}).stdout
        self.assertEqual(who, f"two/{second.split('_')[1]}: read,write in nlp\n")
        events = self.world.cairn("events", "nlp/a", "--json", env={"CAIRN_TOKEN": second}).stdout
        self.assertIn(f"one/{first.split('_')[1]}", events)
        self.secret_is_nowhere()

    def test_uploader_and_command_speak_https_to_a_server_whose_certificate_they_are_given(self):  # --ca-file
        folder = self.world.root
        cases.certificate(folder, alt="IP:127.0.0.1")
        self.world.server.kill()
        self.world.server_arguments += ["--tls-cert", folder / "cert", "--tls-key", folder / "key"]
        self.world.start_server()
        self.world.url = self.world.urls[0] = f"https://127.0.0.1:{self.world.port}"
        self.give_uploader(self.admin)
        self.world.uploader_arguments = ["--token-file", self.file, "--ca-file", folder / "cert"]
        self.world.uploaders.append(self.world.make_uploader(0))
        self.world.uploaders[0].start()
        env = {"CAIRN_TOKEN": self.admin, "CAIRN_CA_FILE": str(folder / "cert")}
        self.world.cairn("put", folder / "cert", "nlp/a@1", env=env)
        self.assertIn("nlp", self.world.cairn("ls", env=env).stdout)


if __name__ == "__main__":
    unittest.main()
