# SPDX-License-Identifier: Apache-2.0
# ctest: seconds=60 engines=again
"""Settings that no other test names, each by what the real programs do with it. tests/docs/test_named.c
fails for a setting that no test names at all."""
import contextlib
import http.server
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import threading
import unittest

from s3world import SECRET, TOKEN, S3Fault, S3World
from world import BIN, Daemon, HANG_S, wait_until, World

NOBODY = 65534
ELSEWHERE = "192.0.2.1:0"  # RFC 5737: nobody's address, so nothing can be bound there


def recorder(case):
    """A server that answers 503; its URL and what Authorization it was shown."""
    seen = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            seen.append(self.headers.get("Authorization"))
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            self.send_error(503)

        do_POST = do_PUT = do_GET

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    case.addCleanup(server.server_close)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    case.addCleanup(server.shutdown)
    return f"http://127.0.0.1:{server.server_port}", seen


class Case(unittest.TestCase):
    def world(self, *arguments, **options):
        world = World(*arguments, **options)
        self.addCleanup(world.close)
        return world

    def source(self, world, size=1000):
        path = world.root / f"source-{size}"
        path.write_bytes(os.urandom(size))
        return path


class Server(Case):
    def fail_to_start(self, *arguments):
        folder = tempfile.mkdtemp(prefix="cairn-settings-")
        self.addCleanup(shutil.rmtree, folder)
        return subprocess.run(
            [BIN / "cairn-server", "--store", f"{folder}/store", "--data-dir", f"{folder}/data",
             *arguments], capture_output=True, text=True, timeout=HANG_S, check=False)

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
        self.ends_with_its_starter("cairn-server", "--data-dir", "data", "--listen", "127.0.0.1:0",
                                   "--port-file")

    def ends_with_its_starter(self, program, *arguments):
        folder = pathlib.Path(tempfile.mkdtemp(prefix="cairn-settings-"))
        self.addCleanup(shutil.rmtree, folder)
        (folder / "store").mkdir()
        starter = subprocess.Popen(
            ["bash", "-c", '"$0" --parent $$ "$@" & echo $!; wait', BIN / program, "--store",
             "store", *arguments, "ready"], cwd=folder, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, text=True)
        with starter:
            child = int(starter.stdout.readline())
            wait_until((folder / "ready").exists)
            starter.kill()
            starter.wait()
            wait_until(lambda: not os.path.exists(f"/proc/{child}") or
                       ") Z" in pathlib.Path(f"/proc/{child}/stat").read_text(), 40)


class Variables(Case):
    def test_cairn_config_names_the_file_of_settings(self):
        folder = pathlib.Path(tempfile.mkdtemp(prefix="cairn-settings-"))
        self.addCleanup(shutil.rmtree, folder)
        (folder / "one").write_text('owner = "by variable"\n')
        (folder / "two").write_text('owner = "by flag"\n')
        for words, expected in (((), "by variable"), (("--config", folder / "two"), "by flag")):
            said = subprocess.run([BIN / "cairn-server", "--print-config", "--store", "/nowhere",
                                   *words], capture_output=True, text=True, check=True,
                                  env={**os.environ, "CAIRN_CONFIG": str(folder / "one")})
            self.assertIn(f'owner = "{expected}"', said.stdout)
        said = subprocess.run([BIN / "cairn-uploader", "--print-config"], capture_output=True,
                              text=True, check=False,
                              env={**os.environ, "CAIRN_CONFIG": str(folder / "one")})
        self.assertEqual(said.returncode, 2)  # a key of the server's alone
        self.assertIn("owner", said.stderr)

    def test_cairn_token_file_is_what_the_command_shows_the_server(self):
        url, seen = recorder(self)
        folder = pathlib.Path(tempfile.mkdtemp(prefix="cairn-settings-"))
        self.addCleanup(shutil.rmtree, folder)
        (folder / "one").write_text("first \t\r\n")
        (folder / "two").write_text("second")
        for name in ("one", "two"):
            (folder / name).chmod(0o600)
        for words in ((), ("--token-file", folder / "two")):
            subprocess.run([BIN / "cairn", "nodes", "--server", url, *words], capture_output=True,
                           check=False, env={**os.environ, "CAIRN_TOKEN_FILE": str(folder / "one")})
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
            folder = world.root / f"run-{number}"
            folder.mkdir()
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
        token = world.root / "token"
        token.write_text("sesame\n")
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
        with subprocess.Popen([BIN / "cairn", "bench", "save", "--ranks", "1", "--bytes", "1MiB",
                               "--steps", "100000"], stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL,
                              env={**os.environ, "CAIRN_URL": world.url,
                                   "CAIRN_SOCKET": world.socket()}) as first:
            try:
                log = world.root / "uploader-0.log"
                wait_until(lambda: "save.committed" in log.read_text().split("t/run")[-1] and
                           "bench" in log.read_text())
                said = world.cairn("put", source, "t/run@2", status=None)
                self.assertNotEqual(said.returncode, 0)
                wait_until(lambda: "connections_max" in log.read_text())
            finally:
                first.kill()
        wait_until(lambda: world.cairn("put", source, "t/run@3", status=None).returncode == 0, 60)

    def put_as_nobody(self, world):
        return subprocess.run(
            [BIN / "cairn", "put", world.root / "source-1000", "u/run@1"], capture_output=True,
            text=True, timeout=HANG_S, check=False, user=NOBODY, group=NOBODY, extra_groups=[],
            env={"PATH": os.environ["PATH"], "CAIRN_URL": world.url, "CAIRN_PROGRESS": "none",
                 "CAIRN_SOCKET": world.socket()})

    def test_allow_uids_lists_who_may_connect_besides_root_and_its_own(self):
        if os.geteuid():
            self.skipTest("only root can be two users")
        for allowed, works in (("", False), ("12345", False), (f"12345,{NOBODY}", True),
                               ("any", True)):
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
        with self.assertRaisesRegex(AssertionError, "allow_uids"):
            World(uploader_arguments=["--allow-uids", "me"])

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
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
                        "-subj", "/CN=localhost", "-addext",
                        "subjectAltName=IP:127.0.0.1,DNS:localhost", "-keyout", folder / "key",
                        "-out", folder / "cert"], capture_output=True, check=True)
        super().__init__(folder, ["--tls-cert", folder / "cert", "--tls-key", folder / "key"])
        self.bundle = str(folder / "cert")

    def env(self):
        return {**super().env(), "AWS_ENDPOINT_URL": f"https://127.0.0.1:{self.port}",
                "CAIRN_CA_BUNDLE": self.bundle}


@unittest.skipUnless(shutil.which("openssl"), "no openssl to make a certificate with")
class S3(Case):
    def setUp(self):
        folder = pathlib.Path(tempfile.mkdtemp(prefix="cairn-settings-"))
        self.addCleanup(shutil.rmtree, folder)
        self.s3 = TlsS3(folder)
        self.addCleanup(self.s3.stop)

    def test_ca_bundle_says_whose_certificates_are_believed(self):
        for bundle, good in (("", False), (self.s3.bundle, True)):
            said = subprocess.run(
                [BIN / "cairn", "doctor", f"s3://{self.s3.bucket}/ca", "--json"],
                capture_output=True, text=True, timeout=HANG_S, check=False,
                env={**os.environ, **self.s3.env(), "CAIRN_CA_BUNDLE": bundle})
            findings = json.loads(said.stdout)["findings"]
            self.assertEqual(any(f["check"] == "put" and f["level"] == "ok" for f in findings), good,
                             said.stdout)

    def test_sign_payload_signs_the_sha256_of_every_body(self):
        for flag, hashed in (("--no-sign-payload", False), ("--sign-payload", True)):
            world = S3World(self.s3, prefix=f"p{hashed}", server_arguments=[flag],
                            uploader_arguments=[flag])
            self.addCleanup(world.close)
            world.cairn("put", self.source(world, 12 << 20), "p/run@1")
            log = (world.root / "uploader-0.log").read_text()
            shown = [line.rsplit(": ")[1].strip('"\n') for line in log.splitlines()
                     if "x-amz-content-sha256: " in line]
            self.assertTrue(shown)
            self.assertEqual("UNSIGNED-PAYLOAD" not in shown, hashed, shown)
            world.cairn("verify", "p/run@1")

    def test_trace_store_writes_heads_and_nothing_secret(self):
        for flag in ("--no-trace-store", "--trace-store"):
            words = ["--log-level", "debug", flag]
            world = S3World(self.s3, prefix=flag.strip("-"), debug=False, server_arguments=words,
                            uploader_arguments=words)
            self.addCleanup(world.close)
            world.cairn("put", self.source(world), "t/run@1")
            for log in ("server.log", "uploader-0.log"):
                text = (world.root / log).read_text()
                self.assertEqual("http.line" in text, flag == "--trace-store", log)
                for secret in (SECRET, TOKEN, "Signature="):
                    self.assertNotIn(secret, text)


if __name__ == "__main__":
    unittest.main(verbosity=2)
