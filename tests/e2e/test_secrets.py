# SPDX-License-Identifier: Apache-2.0
# ctest: engines=again
"""Where secrets come from and where they may lie (G01, A04): files that everybody can read are refused by
their name, nothing takes a secret as an argument, and no daemon's memory is open to its user's other
processes or written to a core file."""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import unittest

from s3world import SECRET, TOKEN, S3Fault, S3World
from world import BIN, files_below, HANG_S, wait_until, World

NOBODY = 65534
CANARY = "whsec_" + "Q2FuYXJ5" * 6
COMMAND = "cairn"


class Files(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="cairn-secrets-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=cairn",
                        "-keyout", cls.folder / "key", "-out", cls.folder / "cert"], check=True, capture_output=True)
        hook = {"name": "one", "url": "https://example.com/hook"}
        for name, text in (("token", CANARY), ("secret", CANARY),
                           ("hooks", json.dumps({"webhooks": [{**hook, "secret": CANARY}]})),
                           ("names", json.dumps({"webhooks": [{**hook, "secret_file": str(cls.folder / "secret")}]}))):
            (cls.folder / name).write_text(text)
        for name in ("key", "token", "secret", "hooks", "names"):
            (cls.folder / name).chmod(0o600)

    def command(self, program, *words):
        store = self.folder / f"store-{self.id()}"
        store.mkdir(exist_ok=True)
        common = ["--store", store, "--listen", "127.0.0.1:0", "--data-dir", self.folder / "data"] if "server" in program \
            else ["--store", store, "--state-dir", self.folder / "state", "--socket", self.folder / "u.sock",
                  "--node", f"secrets-{os.getpid()}", "--server", "http://127.0.0.1:9"] if "uploader" in program else []
        return [BIN / program, *common, *words] if common else [BIN / program, *words]

    def refused(self, mode, file, program, *words, env=None):
        path = self.folder / file
        path.chmod(mode)
        self.addCleanup(path.chmod, 0o600)
        done = subprocess.run([str(word) for word in self.command(program, *words)], capture_output=True, text=True,
                              timeout=HANG_S, check=False, env={**os.environ, **(env or {})})
        self.assertIn(done.returncode, (2, 4), done)
        for said in (str(path), f"mode {mode:04o}", "chmod 600"):
            self.assertIn(said, done.stderr)
        self.assertNotIn(CANARY, done.stdout + done.stderr)
        path.chmod(0o600)

    def test_g01_a_file_with_a_secret_that_everybody_can_read_or_write_is_refused_by_its_name(self):
        at = self.folder
        for mode in (0o644, 0o602, 0o604):
            self.refused(mode, "key", "cairn-server", "--tls-cert", at / "cert", "--tls-key", at / "key")
            self.refused(mode, "hooks", "cairn-server", "--webhooks-file", at / "hooks")
            self.refused(mode, "secret", "cairn-server", "--webhooks-file", at / "names")
            self.refused(mode, "token", "cairn-uploader", "--token-file", at / "token")
            self.refused(mode, "token", COMMAND, "ls", "--server", "http://127.0.0.1:9", "--token-file", at / "token")
            self.refused(mode, "token", COMMAND, "ls", "--server", "http://127.0.0.1:9",
                         env={"CAIRN_TOKEN_FILE": str(at / "token")})

    def test_g01_a_grant_key_that_others_can_read_is_refused(self):
        world = World(nodes=0)
        self.addCleanup(world.close)
        world.server.stop()
        key = world.root / "server/grant.key"
        key.chmod(0o640)
        done = subprocess.run(world.server.command, capture_output=True, text=True, timeout=HANG_S, check=False)
        key.chmod(0o600)
        self.assertEqual(done.returncode, 4, done)
        self.assertIn(f"{key} can be read by others: chmod 600 it", done.stderr)
        world.start_server()

    def test_g01_a_journals_folder_that_everybody_can_write_is_refused(self):
        state = self.folder / "state"
        state.mkdir(exist_ok=True)
        state.chmod(0o777)
        self.addCleanup(state.chmod, 0o700)
        done = subprocess.run([str(word) for word in self.command("cairn-uploader")], capture_output=True, text=True,
                              timeout=HANG_S, check=False)
        self.assertEqual(done.returncode, 4, done)
        self.assertIn(f"state_dir {state} may be written to by everybody", done.stderr)

    def test_g01_a_folder_of_rights_that_its_group_can_write_or_that_is_anothers_is_refused(self):
        folder = self.folder / "given"
        folder.mkdir()
        changes = [(lambda: folder.chmod(0o770), f"{folder} may be written to by its group (its mode is 0770)")]
        if os.geteuid() == 0:
            changes.append((lambda: os.chown(folder, 65534, -1), f"{folder} belongs to user 65534"))
        for program, setting in (("cairn-uploader", "state_dir"), ("cairn-server", "data_dir")):
            for change, said in changes:
                folder.chmod(0o700)
                change()
                command = self.command(program)
                command[command.index("--" + setting.replace("_", "-")) + 1] = folder
                done = subprocess.run([str(word) for word in command], capture_output=True, text=True,
                                      timeout=HANG_S, check=False)
                if os.geteuid() == 0:
                    os.chown(folder, 0, -1)
                self.assertEqual(done.returncode, 4, done)
                self.assertIn(f"{setting} {said}", done.stderr)

    def test_stored_files_have_the_mode_of_the_setting_whoever_writes_them(self):
        for words, mode in (((), 0o640), (("--file-mode", "0644"), 0o644)):
            world = World(server_arguments=words, uploader_arguments=words)
            self.addCleanup(world.close)
            source = world.root / "f"
            source.write_bytes(b"kept" * 1000)
            world.cairn("put", source, "m/run@1")
            files = [path for path in pathlib.Path(world.store).rglob("*") if path.is_file()]
            self.assertTrue(any(path.name == "committed.json" for path in files))  # the server's
            self.assertTrue(any("data" in path.parts for path in files))  # the uploader's
            self.assertEqual({path.stat().st_mode & 0o777 for path in files}, {mode})
        for program in ("cairn-server", "cairn-uploader"):
            for wrong in ("0666x", "rw", "0440", "0750"):
                done = subprocess.run([str(word) for word in self.command(program, "--file-mode", wrong)],
                                      capture_output=True, text=True, timeout=HANG_S, check=False)
                self.assertEqual(done.returncode, 2, done)
                self.assertIn("file_mode", done.stderr)

    @unittest.skipIf(os.geteuid(), "only root can run an uploader as another user")
    def test_a_socket_of_a_user_that_was_not_named_is_not_spoken_to(self):
        world = World(nodes=0)
        self.addCleanup(world.close)
        world.root.chmod(0o755)
        home = pathlib.Path(tempfile.mkdtemp(prefix="cairn-other-"))
        self.addCleanup(shutil.rmtree, home, ignore_errors=True)
        os.chown(home, NOBODY, -1)
        socket = home / "u.sock"
        uploader = subprocess.Popen(
            [BIN / "cairn-uploader", "--server", world.url, "--store", home / "store", "--state-dir", home / "state",
             "--socket", socket, "--node", f"other-{os.getpid()}", "--allow-uids", "0"],
            user=NOBODY, group=NOBODY, extra_groups=[], stderr=subprocess.DEVNULL)
        self.addCleanup(uploader.wait)
        self.addCleanup(uploader.kill)
        wait_until(socket.exists)
        for named, status in (({}, 4), ({"CAIRN_UPLOADER_USERS": "1,65533"}, 4),
                              ({"CAIRN_UPLOADER_USERS": f"1,{NOBODY}"}, 0), ({"CAIRN_UPLOADER_USERS": "any"}, 0)):
            said = world.cairn("uploader", "status", "--socket", socket, status=status, env=named)
            job = subprocess.run([BIN / "tests/trainer", "o/run", "0", "1", "1"], capture_output=True, text=True,
                                 env={**os.environ, "CAIRN_SOCKET": str(socket), "CAIRN_JOB": "one",
                                      "TRAINER_TIMEOUT_MS": "2000", **named}, timeout=HANG_S, check=False)
            refused = f"user {NOBODY} listens there, who is neither root nor this user"
            self.assertEqual(refused in said.stderr, status == 4, said.stderr)
            self.assertEqual(refused in job.stderr, status == 4, job.stderr)

    def test_g01_what_a_group_can_read_is_taken_and_warned_of(self):
        world = World(nodes=0)
        self.addCleanup(world.close)
        token = world.root / "token"
        token.write_text(CANARY)
        for mode, warned in ((0o600, False), (0o640, True)):
            token.chmod(mode)
            daemon = world.make_uploader(0)
            daemon.log = world.root / f"uploader-{mode:o}.log"
            daemon.command += ["--token-file", str(token)]
            daemon.start()
            daemon.end()
            log = daemon.log.read_text()
            self.assertEqual("token.file_shared" in log, warned, log)
            self.assertEqual(f'file="{token}"' in log or f'"file":"{token}"' in log, warned, log)
        (self.folder / "hooks").chmod(0o640)
        world.server.stop()
        world.server_arguments += ["--webhooks-file", self.folder / "hooks"]
        world.start_server()
        (self.folder / "hooks").chmod(0o600)
        self.assertIn("settings.secret_shared", (world.root / "server.log").read_text())

    def test_g01_no_url_of_a_setting_or_a_flag_may_hold_a_secret(self):
        """They stand in the list of processes. Who has given one is not told it again."""
        for words in ((COMMAND, "ls", "--server", "http://user:canary-pw@127.0.0.1:9"),
                      (COMMAND, "ls", "cairn://x", "--server", "http://canary-pw@127.0.0.1:9"),
                      ("cairn-server", "--catalog", "postgresql://user:canary-pw@127.0.0.1/x"),
                      ("cairn-server", "--catalog", "postgresql://127.0.0.1/x?password=canary-pw"),
                      ("cairn-uploader", "--server", "http://user:canary-pw@127.0.0.1:9")):
            done = subprocess.run([str(word) for word in self.command(*words)], capture_output=True, text=True,
                                  timeout=HANG_S, check=False)
            self.assertEqual(done.returncode, 2, (words, done))
            self.assertNotIn("canary-pw", done.stdout + done.stderr, words)


class Memory(unittest.TestCase):
    def test_g01_no_other_process_of_a_daemons_user_looks_into_it_unless_the_setting_says_so(self):
        """What is said of /proc/PID/environ, which holds the store's keys: root's means nobody else's."""
        folder = pathlib.Path(tempfile.mkdtemp(prefix="cairn-secrets-", dir="/tmp"))
        self.addCleanup(shutil.rmtree, folder)
        user = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.getuid() == 0 else {}
        folder.chmod(0o777)
        environment = {name: value for name, value in os.environ.items() if name != "CAIRN_CORE_DUMPS"}
        for program in ("cairn-server", "cairn-uploader"):
            for words, hidden in (((), True), (("--core-dumps",), False)):
                place = folder / f"{program}-{hidden}"
                place.mkdir()
                (place / "store").mkdir()
                if user:
                    for path in (place, place / "store"):
                        os.chown(path, NOBODY, NOBODY)
                ready = place / "ready"
                command = [BIN / program, "--store", place / "store", *words] + (
                    ["--listen", "127.0.0.1:0", "--data-dir", place / "data", "--port-file", ready]
                    if program == "cairn-server" else
                    ["--state-dir", place / "state", "--socket", place / "u.sock", "--ready-file", ready,
                     "--node", f"hidden-{hidden}-{os.getpid()}", "--server", "http://127.0.0.1:9"])
                with open(folder / "log", "ab") as log:
                    process = subprocess.Popen([str(word) for word in command], stdout=log, stderr=log, cwd=place,
                                               env=environment, **user)
                try:
                    wait_until(lambda: ready.exists() or process.poll() is not None)
                    self.assertIsNone(process.poll(), (folder / "log").read_text())
                    owner = os.stat(f"/proc/{process.pid}/environ").st_uid
                    self.assertEqual(owner == 0, hidden or os.getuid() == 0 and not user, (program, words))
                finally:
                    process.send_signal(signal.SIGTERM)
                    process.wait(HANG_S)


class Store(unittest.TestCase):
    def test_a04_the_stores_keys_are_in_no_file_that_the_daemons_write(self):
        """Journal, catalog, objects, logs at their finest; also after failures that are told to everybody."""
        folder = pathlib.Path(tempfile.mkdtemp(prefix="cairn-secrets-"))
        self.addCleanup(shutil.rmtree, folder)
        s3 = S3Fault(folder)
        self.addCleanup(s3.stop)
        world = S3World(s3)
        self.addCleanup(world.close)
        source = world.root / "source"
        source.write_bytes(os.urandom(200_000))
        world.cairn("put", source, "llm/7b@1")
        s3.rules("op=put|part|create : status=403/AccessDenied")
        done = world.cairn("put", source, "llm/7b@2", status=None, timeout=HANG_S)
        self.assertNotEqual(done.returncode, 0)
        self.assertNotIn(SECRET, done.stdout + done.stderr)
        for path in filter(pathlib.Path.is_file, files_below(world.root)):
            text = path.read_bytes()
            for secret in (SECRET, TOKEN):
                self.assertNotIn(secret.encode(), text, path)


if __name__ == "__main__":
    unittest.main(verbosity=2)
