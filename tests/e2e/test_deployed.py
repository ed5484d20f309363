# SPDX-License-Identifier: Apache-2.0
# ctest: seconds=20
"""What a platform needs of the programs: secrets that a site brings as files, health without a token, logs
for collectors."""
import json
import os
import pathlib
import secrets
import signal
import socket
import subprocess
import unittest

import cases
from world import BIN, HANG_S, wait_until, World


class Deployed(cases.Case):
    def world(self, *arguments, nodes=0, **options):
        world = World(nodes=nodes, server_arguments=arguments, **options, case=self)
        return world

    def secret(self, name, text, mode=0o600):
        path = self.folder / name
        path.unlink(missing_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        path.chmod(mode)
        return path

    def refused(self, world, *phrases, status=4):
        """The server of that world does not start, and says why."""
        daemon = world.make_server(0, world.port)
        with self.assertRaises(AssertionError):
            daemon.start()
        self.assertEqual(daemon.process.returncode, status, daemon.tail())
        for phrase in phrases:
            self.assertIn(phrase, daemon.tail().splitlines()[-1])

    def who(self, world, token):
        return world.get("/v1/whoami", headers={"Authorization": f"Bearer {token}"})[0]


class Tokens(Deployed):
    def generate(self, world, name):
        path = self.folder / name
        done = world.cairn("token", "generate", "--out", path)
        self.assertEqual(done.stdout, "")
        self.assertEqual(path.stat().st_mode & 0o777, 0o600)
        self.assertNotIn(path.read_text().strip(), done.stderr)
        return path

    def test_the_operator_s_token_is_the_site_s_file_until_it_is_revoked(self):
        plain = self.world()
        file = self.generate(plain, "admin")
        world = self.world("--require-token", "--admin-token-file", file)
        token = file.read_text().strip()
        self.assertEqual(self.who(world, token), 200)
        self.assertFalse((world.root / "server/admin.token").exists())
        said = world.json("token", "whoami", env={"CAIRN_TOKEN": token})
        self.assertEqual((sorted(said["scopes"]), said["project"]), (["admin", "read", "retain", "write"], "*"))
        world.server.stop()
        world.start_server()  # it is known by now
        self.assertEqual(self.who(world, token), 200)
        self.assertEqual(world.server.log.read_text().count("token.given"), 1)
        world.cairn("token", "revoke", token.split("_")[1], env={"CAIRN_TOKEN": token})
        world.server.stop()
        self.refused(world, f"the token {token.split('_')[1]} in admin-token-file {file} was revoked", "generate")
        self.secret("admin", self.generate(plain, "next").read_text())
        world.start_server()
        self.assertEqual(self.who(world, file.read_text().strip()), 200)
        self.assertEqual(self.who(world, token), 401)

    def test_a_file_that_holds_no_token_or_that_everybody_can_read_is_refused(self):
        world = self.world()
        world.server.stop()
        world.server_arguments = ["--require-token", "--admin-token-file", self.secret("admin", "secret\n")]
        self.refused(world, "admin-token-file", "holds no token", "cairn token generate", status=2)
        self.secret("admin", "secret\n", 0o644)
        self.refused(world, "admin-token-file", "everybody can read it")
        world.server_arguments = ["--admin-token-file", self.secret("admin", "secret\n")]
        self.refused(world, "require-token is not", status=2)
        world.server_arguments = []
        world.start_server()

    def test_a_token_is_made_into_a_new_file_or_not_at_all(self):
        world = self.world("--require-token")
        admin = {"CAIRN_TOKEN": (world.root / "server/admin.token").read_text().strip()}
        path = self.folder / "ci"
        make = ("token", "create", "--scope", "read", "--project", "*")
        done = world.cairn(*make, "--out", path, "ci", env=admin)
        self.assertEqual((done.stdout, path.stat().st_mode & 0o777), ("", 0o600))
        self.assertEqual(self.who(world, path.read_text().strip()), 200)
        count = len(world.cairn("token", "list", env=admin).stdout.splitlines())
        done = world.cairn(*make, "--out", path, "ci", env=admin, status=2)
        self.assertIn("is there already", done.stderr)
        self.assertEqual(len(world.cairn("token", "list", env=admin).stdout.splitlines()), count)
        world.cairn(*make, "--out", self.folder / "none", "ci", env={"CAIRN_TOKEN": "cairn_none"}, status=4)
        self.assertFalse((self.folder / "none").exists())
        said = world.json(*make, "--out", self.folder / "two", "ci", env=admin)
        self.assertNotIn("token", said)
        self.assertEqual((self.folder / "two").read_text().split("_")[1], said["id"])

    def test_a_token_whose_scope_or_projects_nobody_said_is_not_made(self):
        world = self.world("--require-token")
        admin = {"CAIRN_TOKEN": (world.root / "server/admin.token").read_text().strip()}
        count = len(world.cairn("token", "list", env=admin).stdout.splitlines())
        for words, missing in (((), "--scope"), (("--scope", "read"), "--project"), (("--project", "*"), "--scope")):
            said = world.cairn("token", "create", *words, "--out", self.folder / "none", "ci", env=admin, status=2).stderr
            self.assertIn(f"{missing} is missing", said)
            self.assertFalse((self.folder / "none").exists())
        self.assertEqual(len(world.cairn("token", "list", env=admin).stdout.splitlines()), count)


class GrantKey(Deployed):
    def test_the_key_that_a_site_brings_signs_and_none_is_made(self):
        key = secrets.token_bytes(32)
        file = self.secret("grant", key)
        world = self.world("--grant-key-file", file, nodes=1)
        source = self.secret("source", os.urandom(1000))
        world.cairn("put", source, "g/run@1")
        self.assertFalse((world.root / "server/grant.key").exists())
        # Digits are the same key: what was granted before holds.
        self.secret("grant", key.hex() + "\n", 0o440)
        world.server.stop()
        world.start_server()
        world.cairn("put", source, "g/run@2")
        self.assertIn("settings.secret_shared", world.server.log.read_text())
        world.server.stop()
        for text, mode, phrase, status in ((key, 0o604, "everybody can read it", 4), (key[:31], 0o600, "holds 31 bytes", 7),
                                           (b"x" * 64, 0o600, "holds 64 bytes", 7)):
            self.secret("grant", text, mode)
            self.refused(world, str(file), phrase, status=status)
        file.unlink()
        self.refused(world, str(file), status=3)
        self.secret("grant", key)
        world.start_server()


class Health(Deployed):
    def test_a_server_tells_without_a_token_whether_it_answers_and_whether_it_is_ready(self):
        world = self.world("--require-token", "--check-interval", "100ms")
        self.assertEqual(world.cairn("health").stdout, f"{world.url} is alive\n")
        wait_until(lambda: world.cairn("health", "--ready", "server", status=None).returncode == 0)
        said = world.json("health", "--ready")
        self.assertEqual(said, {"of": "server", "name": world.url, "alive": True, "ready": True})
        record = pathlib.Path(world.store) / ".cairn/store.json"
        record.rename(record.with_suffix(".away"))
        wait_until(lambda: world.cairn("health", "--ready", status=None).returncode == 5)
        done = world.cairn("health", "--ready", status=5)
        self.assertIn(f"{world.url} is not ready: store: ", done.stderr)
        world.cairn("health")
        record.with_suffix(".away").rename(record)
        wait_until(lambda: world.cairn("health", "--ready", status=None).returncode == 0)
        world.server.stop()
        world.cairn("health", status=5)
        world.start_server()

    def test_an_uploader_tells_it_too_and_why_it_is_not_ready(self):
        world = self.world("--require-token", nodes=1)
        self.assertEqual(world.cairn("health", "uploader").stdout, "node-0 is alive\n")
        self.assertEqual(world.cairn("health", "--ready", "--socket", world.socket()).stdout, "node-0 is ready\n")
        world.cairn("uploader", "drain")
        done = world.cairn("health", "--ready", "uploader", status=5)
        self.assertIn("the uploader of node node-0 is not ready: it is draining", done.stderr)
        done = world.cairn("health", "uploader", env={"CAIRN_SOCKET": str(self.folder / "none.sock")}, status=5)
        self.assertIn("no uploader listens", done.stderr)
        done = world.cairn("health", "somebody", status=2)
        self.assertIn("want server or uploader", done.stderr)


class Manager(Deployed):
    def test_a_service_manager_hears_that_a_daemon_is_ready_alive_and_stopping(self):
        for program in ("server", "uploader"):
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
                manager.bind(str(self.folder / f"{program}.notify"))
                manager.settimeout(HANG_S)
                world = self.world(nodes=0)
                env = {"NOTIFY_SOCKET": str(self.folder / f"{program}.notify"), "WATCHDOG_USEC": "10000000"}
                if program == "server":  # SQLite has one server
                    world.server.stop()
                daemon = world.make_server(0, world.port) if program == "server" else world.make_uploader(0)
                daemon.env = env
                daemon.start()
                said = {manager.recv(100)}
                while b"READY=1" not in said or b"WATCHDOG=1" not in said:
                    said.add(manager.recv(100))
                daemon.stop()
                while b"STOPPING=1" not in said:
                    said.add(manager.recv(100))
                self.assertEqual(said, {b"READY=1", b"WATCHDOG=1", b"STOPPING=1"}, program)


class Logs(Deployed):
    def test_log_format_json_is_an_object_a_line_of_both_daemons(self):
        world = self.world("--log-format", "json", "--log-level", "debug", nodes=1,
                           uploader_arguments=["--log-format", "json", "--log-level", "debug"])
        world.cairn("put", self.secret("source", os.urandom(1000)), "l/run@1")
        for daemon, event in ((world.server, "server.ready"), (world.uploaders[0], "uploader.ready")):
            daemon.stop(signal.SIGTERM)
            lines = [json.loads(line) for line in daemon.log.read_text().splitlines()]
            ready = next(line for line in lines if line["event"] == event)
            self.assertEqual(ready["level"], "info")
            for line in lines:
                self.assertLessEqual({"time", "level", "event"}, set(line))
                self.assertNotIn("text", line, "a format of which no key is known")
            if event == "server.ready":
                self.assertEqual((ready["port"], ready["data_dir"]), (world.port, str(world.root / "server")))

    def test_what_a_daemon_ends_with_is_an_object_too_where_lines_are(self):
        """A collector reads nothing else; only settings that cannot be read themselves are told as text."""
        ends = {"server": (["--data-dir=/proc/none"], ["--store=/proc/none", "--data-dir=/proc/none"]),
                "uploader": (["--state-dir=/proc/none"], ["--memory-budget=-7"])}
        for program, arguments in ends.items():
            for argument in arguments:
                env = {**os.environ, "CAIRN_LOG_FORMAT": "json"}
                done = subprocess.run([BIN / f"cairn-{program}", *argument], env=env, stderr=subprocess.PIPE, text=True, timeout=HANG_S)
                self.assertNotEqual(done.returncode, 0)
                lines = [json.loads(line) for line in done.stderr.splitlines()]
                self.assertEqual((lines[-1]["event"], lines[-1]["level"], lines[-1]["program"]),
                                 ("process.failed", "error", f"cairn-{program}"), done.stderr)
                self.assertRegex(lines[-1]["cause"], "/proc/none|memory.budget|store is not set")
                plain = subprocess.run([BIN / f"cairn-{program}", *argument], stderr=subprocess.PIPE, text=True, timeout=HANG_S)
                self.assertIn(f"cairn-{program}: ", plain.stderr.splitlines()[-1])


if __name__ == "__main__":
    unittest.main()
