# SPDX-License-Identifier: Apache-2.0
# ctest: seconds=90 engines=again
"""Settings that no other test names, each by what the real programs do with it. tests/docs/test_named.c
fails for a setting that no test names at all.

Where secrets come from and where they may lie (G01, A04): files that everybody can read are refused by
their name, nothing takes a secret as an argument, and no daemon's memory is open to its user's other
processes or written to a core file.

cairn profile: servers by name, what wins over what, and to whom a token is shown."""
import contextlib
import json
import os
import pathlib
import shutil
import signal
import stat
import subprocess
import tempfile
import unittest

import cases
from s3world import S3Fault, S3World, SECRET, TOKEN
from test_commands import shapes
from world import BIN, Daemon, HANG_S, World, files_below, wait_until

NOBODY = 65534
ELSEWHERE = "192.0.2.1:0"  # RFC 5737: nobody's address, so nothing can be bound there


def recorder(case):
    """A server that answers 503; its URL and what Authorization it was shown."""
    seen = []
    return cases.StandIn(lambda request: (seen.append(request.headers.get("Authorization")) or 503, b""), case=case).url, seen


class Case(unittest.TestCase):
    def world(self, *arguments, **options):
        return World(*arguments, **options, case=self)

    def source(self, world, size=1000):
        return cases.file(world.root / f"source-{size}", os.urandom(size))


class Server(Case):
    def fail_to_start(self, *arguments):
        folder = tempfile.mkdtemp(prefix="cairn-settings-")
        self.addCleanup(shutil.rmtree, folder)
        return cases.run([BIN / "cairn-server", "--store", f"{folder}/store", "--data-dir", f"{folder}/data", *arguments],
                         status=None)

    def test_allow_remote_is_needed_to_listen_beyond_loopback(self):
        said = self.fail_to_start("--listen", ELSEWHERE)
        self.assertEqual(said.returncode, 2)
        self.assertIn("allow-remote", said.stderr)
        said = self.fail_to_start("--listen", ELSEWHERE, "--allow-remote")
        self.assertNotIn("allow-remote", said.stderr)  # it got as far as the system's refusal
        self.assertIn("192.0.2.1", said.stderr)

    def test_owner_is_written_into_a_new_store(self):
        world = self.world(nodes=0, server_arguments=["--owner", "lab-7"])
        record = json.loads((pathlib.Path(world.store) / ".cairn/store.json").read_text())
        self.assertEqual(record["owner"], "lab-7")

    def test_log_level_says_how_much_both_daemons_write(self):
        loud, quiet = (self.world(server_arguments=["--log-level", level],
                                  uploader_arguments=["--log-level", level])
                       for level in ("debug", "error"))
        for world in (loud, quiet):
            world.cairn("put", self.source(world), "s/run@1")
        for log in ("server.log", "uploader-0.log"):
            self.assertIn(" INFO ", (loud.root / log).read_text())
            self.assertEqual((quiet.root / log).read_text(), "", log)

    def test_parent_the_server_ends_with_its_starter(self):
        self.ends_with_its_starter("cairn-server", "--data-dir", "data", "--listen", "127.0.0.1:0", "--port-file")

    def ends_with_its_starter(self, program, *arguments):
        folder = cases.folder(self)
        (folder / "store").mkdir()
        starter = cases.begin(["bash", "-c", '"$0" --parent $$ "$@" & echo $!; wait', BIN / program, "--store",
                              "store", *arguments, "ready"], cwd=folder, stderr=subprocess.DEVNULL)
        with starter:
            child = int(starter.stdout.readline())
            wait_until((folder / "ready").exists)
            starter.kill()
            starter.wait()
            wait_until(lambda: not os.path.exists(f"/proc/{child}") or
                       ") Z" in pathlib.Path(f"/proc/{child}/stat").read_text(), 40)


class Variables(Case):
    def test_cairn_config_names_the_file_of_settings(self):
        folder = cases.folder(self)
        (folder / "one").write_text('owner = "by variable"\n')
        (folder / "two").write_text('owner = "by flag"\n')
        for words, expected in (((), "by variable"), (("--config", folder / "two"), "by flag")):
            said = cases.run([BIN / "cairn-server", "--print-config", "--store", "/nowhere", *words],
                             env={**os.environ, "CAIRN_CONFIG": str(folder / "one")})
            self.assertIn(f'owner = "{expected}"', said.stdout)
        said = cases.run([BIN / "cairn-uploader", "--print-config"], status=2,
                         env={**os.environ, "CAIRN_CONFIG": str(folder / "one")})
        self.assertIn("owner", said.stderr)

    def test_cairn_token_file_is_what_the_command_shows_the_server(self):
        url, seen = recorder(self)
        folder = cases.folder(self)
        (folder / "one").write_text("first \t\r\n")
        (folder / "two").write_text("second")
        for name in ("one", "two"):
            (folder / name).chmod(0o600)
        for words in ((), ("--token-file", folder / "two")):
            cases.run([BIN / "cairn", "nodes", "--server", url, *words], status=None, text=False,
                      env={**os.environ, "CAIRN_TOKEN_FILE": str(folder / "one")})
        self.assertEqual(list(dict.fromkeys(seen)), ["Bearer first", "Bearer second"])


class Uploader(Case):
    def test_parent_the_uploader_ends_with_its_starter(self):
        Server.ends_with_its_starter(self, "cairn-uploader", "--state-dir", ".", "--socket",
                                     "u.sock", "--server", "http://127.0.0.1:9", "--node",
                                     f"n-{os.getpid()}", "--ready-file")

    def test_run_dir_holds_the_socket_whatever_the_node_is_called_and_trainers_are_told(self):
        world = self.world(nodes=0)
        name = "uploader.sock"
        for number, node in enumerate(((), ("--node", "n7"))):
            ready = world.root / f"ready-{number}"
            folder = cases.made(world.root / f"run-{number}")
            daemon = Daemon("cairn-uploader",
                            ["--store", world.store, "--server", world.url, "--run-dir", folder,
                             "--state-dir", folder, "--ready-file", ready, *node],
                            ready, world.root / f"{number}.log", env={"CAIRN_SOCKET": str(world.root / "trainers.sock")})
            with contextlib.ExitStack() as last:
                last.callback(daemon.end)
                daemon.start()
                self.assertTrue((folder / name).is_socket())

    def test_token_file_is_what_the_server_is_shown(self):
        url, seen = recorder(self)
        world = self.world(nodes=0)
        token = cases.file(world.root / "token", "sesame\n")
        token.chmod(0o600)
        world.url = url
        world.uploader_arguments = ["--token-file", token, "--heartbeat", "100ms"]
        world.uploaders.append(world.make_uploader(0))
        world.uploaders[0].start()
        wait_until(lambda: seen)
        self.assertEqual(set(seen), {"Bearer sesame"})
        self.assertNotIn("sesame", (world.root / "uploader-0.log").read_text())

    def threads_of_a_restore(self, workers):
        world = self.world(uploader_arguments=["--restore-workers", workers])
        world.cairn("bench", "save", "--ranks", "1", "--bytes", "8MiB", "--steps", "1")
        tasks = f"/proc/{world.uploaders[0].process.pid}/task"
        before = len(os.listdir(tasks))
        said = world.cairn("bench", "restore", "--ranks", "1", "--bytes", "8MiB", "--steps", "1")
        self.assertTrue(json.loads(said.stdout)["checked"])
        return len(os.listdir(tasks)) - before

    def test_restore_workers_are_so_many_threads(self):
        few, many = self.threads_of_a_restore("1"), self.threads_of_a_restore("61")
        # Helpers are made when several things are to be done at once, so one run has some more.
        self.assertAlmostEqual(many - few, 60, delta=6)

    def test_connections_max_turns_more_trainers_away(self):
        world = self.world(uploader_arguments=["--connections-max", "1"])
        source = self.source(world)
        fifo = world.root / "never"
        os.mkfifo(fifo)
        world.cairn("put", source, "t/run@1")
        with world.begin("bench", "save", "--ranks", "1", "--bytes", "1MiB", "--steps", "100000",
                         stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as first:
            try:
                log = world.root / "uploader-0.log"
                wait_until(lambda: "save.committed" in log.read_text().split("t/run")[-1] and
                           "bench" in log.read_text())
                self.assertNotEqual(world.cairn("put", source, "t/run@2", status=None).returncode, 0)
                wait_until(lambda: "connections_max" in log.read_text())
            finally:
                first.kill()
        wait_until(lambda: world.cairn("put", source, "t/run@3", status=None).returncode == 0, 60)

    def put_as_nobody(self, world):
        return cases.run([BIN / "cairn", "put", world.root / "source-1000", "u/run@1"], status=None, user=NOBODY,
                         group=NOBODY, extra_groups=[],
                         env={"PATH": os.environ["PATH"], "CAIRN_URL": world.url, "CAIRN_PROGRESS": "none", "CAIRN_SOCKET": world.socket()})

    def test_allow_uids_lists_who_may_connect_besides_root_and_its_own(self):
        if os.geteuid():
            self.skipTest("only root can be two users")
        for allowed, works in (("", False), ("12345", False), (f"12345,{NOBODY}", True), ("any", True)):
            world = self.world(uploader_arguments=["--allow-uids", allowed])
            world.root.chmod(0o755)
            self.source(world).chmod(0o644)
            os.chmod(world.socket(), 0o666)
            try:
                said = self.put_as_nobody(world)
            except PermissionError:
                self.skipTest("another user cannot run this build")
            self.assertEqual(said.returncode == 0, works, (allowed, said.stderr))
            if not works:
                self.assertRegex(said.stderr, rf"user {NOBODY} may not connect .* node-0: its setting allow_uids")
                self.assertEqual(said.returncode, 4)
                wait_until(lambda: "allow_uids" in (world.root / "uploader-0.log").read_text())
        for bad in ("me", "1000,"):
            with self.assertRaisesRegex(AssertionError, "allow_uids"):
                World(uploader_arguments=["--allow-uids", bad])

    def test_cpu_list_and_nice_keep_the_uploader_out_of_the_trainers_way(self):
        core = min(os.sched_getaffinity(0))
        world = self.world(uploader_arguments=["--cpu-list", str(core), "--nice", "7"])
        pid = world.uploaders[0].process.pid
        for task in os.listdir(f"/proc/{pid}/task"):
            self.assertEqual(os.sched_getaffinity(int(task)), {core})
        self.assertEqual(os.getpriority(os.PRIO_PROCESS, pid), 7)


class TlsS3(S3Fault):
    """s3fault behind a certificate that it alone vouches for."""

    def __init__(self, folder):
        cases.certificate(folder, "localhost", "IP:127.0.0.1,DNS:localhost")
        super().__init__(folder, ["--tls-cert", folder / "cert", "--tls-key", folder / "key"])
        self.bundle = str(folder / "cert")

    def env(self):
        return {**super().env(), "AWS_ENDPOINT_URL": f"https://127.0.0.1:{self.port}", "CAIRN_CA_BUNDLE": self.bundle}


@unittest.skipUnless(shutil.which("openssl"), "no openssl to make a certificate with")
class S3(Case):
    def setUp(self):
        folder = cases.folder(self)
        self.s3 = TlsS3(folder)
        self.addCleanup(self.s3.stop)

    def test_ca_bundle_says_whose_certificates_are_believed(self):
        for bundle, good in (("", False), (self.s3.bundle, True)):
            said = cases.run([BIN / "cairn", "doctor", f"s3://{self.s3.bucket}/ca", "--json"], status=None,
                             env={**os.environ, **self.s3.env(), "CAIRN_CA_BUNDLE": bundle})
            findings = json.loads(said.stdout)["findings"]
            self.assertEqual(any(f["check"] == "put" and f["level"] == "ok" for f in findings), good, said.stdout)

    def test_sign_payload_signs_the_sha256_of_every_body(self):
        for flag, hashed in (("--no-sign-payload", False), ("--sign-payload", True)):
            world = S3World(self.s3, prefix=f"p{hashed}", server_arguments=[flag], uploader_arguments=[flag], case=self)
            world.cairn("put", self.source(world, 12 << 20), "p/run@1")
            log = (world.root / "uploader-0.log").read_text()
            shown = [line.rsplit(": ")[1].strip('"\n') for line in log.splitlines() if "x-amz-content-sha256: " in line]
            self.assertTrue(shown)
            self.assertEqual("UNSIGNED-PAYLOAD" not in shown, hashed, shown)
            world.cairn("verify", "p/run@1")

    def test_trace_store_writes_heads_and_nothing_secret(self):
        for flag in ("--no-trace-store", "--trace-store"):
            words = ["--log-level", "debug", flag]
            world = S3World(self.s3, prefix=flag.strip("-"), debug=False, server_arguments=words,
                            uploader_arguments=words, case=self)
            world.cairn("put", self.source(world), "t/run@1")
            for log in ("server.log", "uploader-0.log"):
                text = (world.root / log).read_text()
                self.assertEqual("http.line" in text, flag == "--trace-store", log)
                for secret in (SECRET, TOKEN, "Signature="):
                    self.assertNotIn(secret, text)


CANARY = "whsec_" + "Q2FuYXJ5" * 6
COMMAND = "cairn"


class Files(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = cases.folder(cls)
        cases.certificate(cls.folder)
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
        done = cases.run(self.command(program, *words), status=None, env={**os.environ, **(env or {})})
        self.assertIn(done.returncode, (2, 4), done)
        cases.has(done.stderr, str(path), f"mode {mode:04o}", "chmod 600")
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
        world = World(nodes=0, case=self)
        world.server.stop()
        key = world.root / "server/grant.key"
        key.chmod(0o640)
        done = cases.run(world.server.command, status=None)
        key.chmod(0o600)
        self.assertEqual(done.returncode, 4, done)
        self.assertIn(f"{key} can be read by others: chmod 600 it", done.stderr)
        world.start_server()

    def test_g01_a_journals_folder_that_everybody_can_write_is_refused(self):
        state = self.folder / "state"
        state.mkdir(exist_ok=True)
        state.chmod(0o777)
        self.addCleanup(state.chmod, 0o700)
        done = cases.run([str(word) for word in self.command("cairn-uploader")], status=4)
        self.assertIn(f"state_dir {state} may be written to by everybody", done.stderr)

    def test_g01_a_folder_of_rights_that_its_group_can_write_or_that_is_anothers_is_refused(self):
        folder = cases.made(self.folder / "given")
        changes = [(lambda: folder.chmod(0o770), f"{folder} may be written to by its group (its mode is 0770)")]
        if os.geteuid() == 0:
            changes.append((lambda: os.chown(folder, 65534, -1), f"{folder} belongs to user 65534"))
        for program, setting in (("cairn-uploader", "state_dir"), ("cairn-server", "data_dir")):
            for change, said in changes:
                folder.chmod(0o700)
                change()
                command = self.command(program)
                command[command.index("--" + setting.replace("_", "-")) + 1] = folder
                done = cases.run(command, status=None)
                if os.geteuid() == 0:
                    os.chown(folder, 0, -1)
                self.assertEqual(done.returncode, 4, done)
                self.assertIn(f"{setting} {said}", done.stderr)

    def test_stored_files_have_the_mode_of_the_setting_whoever_writes_them(self):
        for words, mode in (((), 0o640), (("--file-mode", "0644"), 0o644)):
            world = World(server_arguments=words, uploader_arguments=words, case=self)
            world.cairn("put", cases.file(world.root / "f", b"kept" * 1000), "m/run@1")
            files = [path for path in pathlib.Path(world.store).rglob("*") if path.is_file()]
            self.assertTrue(any(path.name == "committed.json" for path in files))  # the server's
            self.assertTrue(any("data" in path.parts for path in files))  # the uploader's
            self.assertEqual({path.stat().st_mode & 0o777 for path in files}, {mode})
        for program in ("cairn-server", "cairn-uploader"):
            for wrong in ("0666x", "rw", "0440", "0750"):
                done = cases.run([str(word) for word in self.command(program, "--file-mode", wrong)], status=2)
                self.assertIn("file_mode", done.stderr)

    @unittest.skipIf(os.geteuid(), "only root can run an uploader as another user")
    def test_a_socket_of_a_user_that_was_not_named_is_not_spoken_to(self):
        world = World(nodes=0, case=self)
        world.root.chmod(0o755)
        home = cases.folder(self)
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
            job = cases.run([BIN / "tests/trainer", "o/run", "0", "1", "1"], status=None,
                            env={**os.environ, "CAIRN_SOCKET": str(socket), "CAIRN_JOB": "one", "TRAINER_TIMEOUT_MS": "2000", **named})
            refused = f"user {NOBODY} listens there, who is neither root nor this user"
            self.assertEqual(refused in said.stderr, status == 4, said.stderr)
            self.assertEqual(refused in job.stderr, status == 4, job.stderr)

    def test_g01_what_a_group_can_read_is_taken_and_warned_of(self):
        world = World(nodes=0, case=self)
        token = cases.file(world.root / "token", CANARY)
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
            done = cases.run([str(word) for word in self.command(*words)], status=2)
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
                place = cases.made(folder / f"{program}-{hidden}")
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
        folder = cases.folder(self)
        s3 = S3Fault(folder, case=self)
        world = S3World(s3, case=self)
        source = cases.file(world.root / "source", os.urandom(200_000))
        world.cairn("put", source, "llm/7b@1")
        s3.rules("op=put|part|create : status=403/AccessDenied")
        done = world.cairn("put", source, "llm/7b@2", status=None, timeout=HANG_S)
        self.assertNotEqual(done.returncode, 0)
        self.assertNotIn(SECRET, done.stdout + done.stderr)
        for path in filter(pathlib.Path.is_file, files_below(world.root)):
            text = path.read_bytes()
            for secret in (SECRET, TOKEN):
                self.assertNotIn(secret.encode(), text, path)


class Profile(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.world = World(nodes=0, server_arguments=["--require-token"], case=cls)
        cls.token = cls.world.root / "server" / "admin.token"
        cls.away = "http://127.0.0.1:9"

    def setUp(self):
        self.home = cases.made(self.world.root / self.id().rsplit(".", 1)[1])
        self.file = self.home / "cairn" / "profiles"

    def cairn(self, *words, status=0, stdin=None, **env):
        keep = {key: value for key, value in os.environ.items() if not key.startswith("CAIRN_")}
        done = cases.run([BIN / "cairn", *map(str, words)], status=None, input=stdin,
                         env={**keep, "XDG_CONFIG_HOME": str(self.home), **env})
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
        file = cases.file(self.home / "file", b"x" * 5000)
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
