# SPDX-License-Identifier: Apache-2.0
"""A real server and a real uploader on a folder of their own, and the command to talk to them. With
CAIRN_TEST_CATALOG=postgresql the server's catalog is in PostgreSQL (postgres.py)."""
import contextlib
import http.client
import glob
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

import cases
import failures
import ports
import postgres
import reports
from build_folder import BIN
from patience import HANG_S

# How long a daemon may take to end by itself, and the signals that nobody sends to it.
END_S = 3
DEADLY = {signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL}


def wait_until(what, seconds=0.0, every=None):
    """The first true value of what(), which must come, however long a busy machine takes: fails after
    HANG_S. seconds: at least so long, where the product itself takes longer than that. every: for a state
    that passes."""
    value = value_within(what, max(seconds, HANG_S), every)
    if not value:
        raise AssertionError(f"never came: {described(what)}")
    return value


def in_time(tried, seconds=1.0):
    """The first true value of tried(seconds), of a command that must come so far before the end of a time that it is
    given: a busy machine needs more time than a quiet one, so each try has twice as much."""
    while not (value := tried(seconds)):
        if seconds > HANG_S:
            raise AssertionError(f"not even in {seconds:g} s: {described(tried)}")
        seconds *= 2
    return value


def value_within(what, seconds, every=None):
    """The first true value of what(); its last one when the time is over. Without `every` it is asked more seldom the
    longer it takes."""
    begun = now = time.monotonic()
    while not (value := what()) and now < begun + seconds:
        time.sleep(every or min(0.02 + (now - begun) / 16, 0.25))  # step of a poll
        now = time.monotonic()
    return value


def line_of(process):
    """The next line that a process prints, and nothing behind it: what readline() of a file of Python reads
    beyond the line is lost to communicate(), which reads the pipe itself."""
    line = b""
    while not line.endswith(b"\n") and (byte := os.read(process.stdout.fileno(), 1)):
        line += byte
    return line.decode()


def described(what):
    """Where a condition stands: a lambda alone says nothing."""
    code = getattr(what, "__code__", None)
    if not code:
        return repr(what)
    lines = pathlib.Path(code.co_filename).read_text(errors="replace").splitlines()
    return f"{pathlib.Path(code.co_filename).name}:{code.co_firstlineno}: {lines[code.co_firstlineno - 1].strip()}"


def files_below(folder):
    """All files. A folder that a sweep removes meanwhile is passed over: Path.rglob raises then."""
    return [pathlib.Path(where, name) for where, _, names in os.walk(folder) for name in names]


def found(folder, pattern):
    """What matches below a folder in which others remove things: Path.glob raises then."""
    return [pathlib.Path(folder, name) for name in glob.glob(pattern, root_dir=folder)]


class Daemon:
    """One process that says that it is ready by writing a file."""

    def __init__(self, program, arguments, ready, log, env=None):
        self.ready, self.log = pathlib.Path(ready), pathlib.Path(log)
        self.command = [str(BIN / program), *map(str, arguments)]
        self.env = env
        self.process = None

    def start(self):
        self.ready.unlink(missing_ok=True)
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                self.command, stdout=log, stderr=log,  # who looks into them need not be root
                env={"CAIRN_CORE_DUMPS": "true", "CAIRN_STOP_NOTICE": "0ms", **os.environ, **(self.env or {})})
        try:
            wait_until(lambda: self.ready.exists() or self.process.poll() is not None)
        except AssertionError:
            self.kill()
            raise
        if self.process.poll() is not None:
            raise AssertionError(f"{self.command[0]} ended: {self.log.read_text()[-2000:]}")
        return self

    def stop(self, how=signal.SIGTERM, seconds=HANG_S):
        if self.process and self.process.poll() is None:
            self.process.send_signal(how)
            try:
                self.process.wait(seconds)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
                raise
        return self.process.returncode if self.process else None

    def kill(self):
        return self.stop(signal.SIGKILL)

    def end(self):
        """At the end of a test: by itself, so that its leaks are reported; killed after END_S."""
        if not self.process:
            return
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            self.process.send_signal(signal.SIGCONT)  # where a crash point has stopped it
            try:
                self.process.wait(END_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        said = self.log.read_text(errors="replace") if self.log.exists() else ""
        late = [line for line in said.splitlines() if " wait.late " in line]
        assert not late, f"{self.command[0]}: a wake was forgotten: {late[0]}"
        died = -self.process.returncode
        assert died not in DEADLY, f"{self.command[0]}: signal {died}\n{self.tail()}"

    def tail(self):
        return self.log.read_text(errors="replace")[-2000:] if self.log.exists() else ""


def server_name(number):
    return f"server-{number}" if number else "server"


class World:
    """Temporary folder with server, uploaders (nodes) and store; all ended by close(), and at the end of a case."""

    def __init__(self, nodes=1, store=None, server_arguments=(), uploader_arguments=(), env=None,
                 root=None, catalog=None, servers=1, case=None):
        self.root = root or pathlib.Path(tempfile.mkdtemp(prefix="cairn-"))
        self.store = store or str(self.root / "store")
        if not store:
            (self.root / "store").mkdir(exist_ok=True)
        self.env = env or {}
        self.port = 0
        self.catalog = catalog or postgres.catalog()
        self.server_arguments = list(server_arguments)
        self.uploader_arguments = list(uploader_arguments)
        self.server, self.further, self.urls = None, [], [""]
        self.uploaders = []
        failures.living.add(self)
        try:
            self.start_server()
            for _ in range(servers - 1):
                self.start_further_server()
            for number in range(nodes):
                self.uploaders.append(self.make_uploader(number))
                self.uploaders[-1].start()
        except BaseException:
            for daemon in filter(None, (self.server, *self.further, *self.uploaders)):
                daemon.kill()
            raise
        if case:
            cases.at_the_end(case, self.close)

    def start_server(self):
        """The first one, which makes the grant key; others get it as operators give it to them. Each comes back at
        its port when it is started again."""
        self.server = self.make_server(0, self.port or ports.free()).start()
        self.port = self.port_of(0)
        self.url = self.urls[0] = f"http://127.0.0.1:{self.port}"

    def start_further_server(self):
        number = len(self.urls)
        folder = self.root / f"server-{number}"
        folder.mkdir(mode=0o700)
        shutil.copy(self.root / "server" / "grant.key", folder)
        self.further.append(self.make_server(number, ports.free()).start())
        self.urls.append(f"http://127.0.0.1:{self.port_of(number)}")

    def port_of(self, number):
        return int((self.root / f"{server_name(number)}.port").read_text().split()[0])

    def make_server(self, number, port):
        name = server_name(number)
        ready = self.root / f"{name}.port"
        return Daemon(
            "cairn-server",
            ["--listen", f"127.0.0.1:{port}", "--store", self.store, "--data-dir",
             self.root / name, "--port-file", ready, *self.catalog_arguments(),
             *self.server_arguments],
            ready, self.root / f"{name}.log", self.env)

    def catalog_arguments(self):
        return ["--catalog", self.catalog] if self.catalog else []

    def addresses(self):
        """Of all servers, as uploaders and commands take them."""
        return ",".join([self.url, *self.urls[1:]])

    def make_uploader(self, number):
        ready = self.root / f"uploader-{number}.ready"
        return Daemon(
            "cairn-uploader",
            ["--node", f"node-{number}", "--server", self.addresses(), "--store", self.store, "--socket",
             self.socket(number), "--state-dir", self.root / f"uploader-{number}", "--ready-file",
             ready, "--memory-budget", "2GiB", *self.uploader_arguments],
            ready, self.root / f"uploader-{number}.log", self.env)

    def within(self, _number):
        """The beginning of a command line that runs where that node is."""
        return []

    def socket(self, number=0):
        return str(self.root / f"uploader-{number}.sock")

    def close(self):
        """Ends all daemons and removes the folder. Fails where one of them died or a sanitizer
        has reported something."""
        with contextlib.ExitStack() as last:
            last.callback(reports.check)
            if self.root in failures.kept:
                print(f"what the test wrote stays in {self.root}", file=sys.stderr)
            else:
                last.callback(shutil.rmtree, self.root, ignore_errors=True)
            failures.living.discard(self)
            for daemon in [self.server, *self.further, *reversed(self.uploaders)]:
                if daemon:
                    last.callback(daemon.end)

    def env_of(self, node=0, **more):
        """The environment of a program that talks to this world from that node."""
        return {**os.environ, **self.env, "CAIRN_URL": self.addresses(), "CAIRN_SOCKET": self.socket(node),
                "CAIRN_PROGRESS": "none", **more}

    def begin(self, *arguments, node=0, env=None, case=None, **options):
        """The command, which goes on beside the test; case: it is killed at its end."""
        return cases.begin([BIN / "cairn", *arguments], env=self.env_of(node, **(env or {})), case=case, **options)

    def ended(self, process, status=0):
        """What it has said: (stdout, stderr). Its exit status must be the one that is wanted; None: any."""
        out, said = process.communicate(timeout=HANG_S)
        if status is not None and process.returncode != status:
            raise AssertionError(f"{process.args}: status {process.returncode}, wanted {status}\n{out}\n{said}\n{self.logs()}")
        return out, said

    def cairn(self, *arguments, node=0, status=0, env=None, timeout=HANG_S, **options):
        """Run the command; its exit status must be the one that is wanted. options: of subprocess.run."""
        done = subprocess.run([str(BIN / "cairn"), *map(str, arguments)], check=False, timeout=timeout, **{
            "env": self.env_of(node, **(env or {})), "text": True, "stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE, **options})
        if status is not None and done.returncode != status:
            raise AssertionError(f"cairn {' '.join(map(str, arguments))}: status {done.returncode},"
                                 f" wanted {status}\n{done.stdout}\n{done.stderr}\n{self.logs()}")
        return done

    def put(self, source, *refs, to=None):
        """This file or folder is saved at each of them; to: and copied to that store."""
        for ref in refs:
            self.cairn("put", source, ref)
            if to:
                self.cairn("promote", ref, "--to", to)

    def got(self, ref, *words, **options):
        """{name: bytes} of what `cairn get` writes."""
        back = pathlib.Path(tempfile.mkdtemp(dir=self.root), "back")
        self.cairn("get", ref, "-d", back, *words, **options)
        return cases.content(back)

    def on_a_terminal(self, answer, *words, status=1):
        """What the command asks when a terminal is its standard input and this is typed."""
        leader, terminal = os.openpty()
        try:
            os.write(leader, answer.encode())
            return self.cairn(*words, status=status, stdin=terminal).stderr
        finally:
            os.close(terminal)
            os.close(leader)

    def lose_catalog(self):
        """The catalog goes; grant.key stays, as a backup has it. Returns where the new one is."""
        self.server.stop()
        shutil.copy(self.root / "server" / "grant.key", cases.made(self.root / "new"))
        (self.root / "new").chmod(0o700)
        self.catalog = postgres.catalog()
        return self.root / "new"

    def reindex(self, new, *more, status=0, store=None):
        to = ["--catalog", self.catalog, "--data-dir", new] if self.catalog else ["--catalog", new]
        return self.cairn("reindex", store or self.store, *to, *more, status=status)

    def start_on(self, new):
        (self.root / "server").rename(self.root / "old")
        new.rename(self.root / "server")
        self.start_server()

    def restored(self, ref, tensor):
        """As libcairn restores it, by the first node's uploader."""
        run, _, step = ref.partition("@")
        done = subprocess.run(
            [str(BIN / "tests" / "tensor_reader"), run, step, tensor], capture_output=True, timeout=HANG_S, check=False,
            env=self.env_of())
        if done.returncode:
            raise AssertionError(f"{ref} {tensor}: {done.stderr.decode()}\n{self.logs()}")
        return done.stdout

    def logs(self):
        return failures.tails(self.root)

    def json(self, *arguments, **options):
        """What the command answers to --json."""
        return json.loads(self.cairn(*arguments, "--json", **options).stdout)

    def read(self, path, **options):
        """What a GET answers, whatever its status."""
        return json.loads(self.get(path, **options)[2])

    def call(self, method, path, body=None, headers=None, url=None, context=None):
        """(status, headers, what is answered) of a call with a JSON body."""
        request = urllib.request.Request(
            (url or self.url) + path, method=method, data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json", "X-Cairn": "1", **(headers or {})})
        try:
            with urllib.request.urlopen(request, timeout=HANG_S, context=context) as reply:
                return reply.status, dict(reply.headers), json.loads(reply.read() or "null")
        except urllib.error.HTTPError as error:
            return error.code, dict(error.headers), json.loads(error.read() or "null")

    def send(self, method, path, body=None, **options):
        """What a call answers that must be taken; body None: an empty one."""
        status, _, answer = self.call(method, path, {} if body is None else body, **options)
        assert status < 300, (method, path, status, answer)
        return answer

    def get(self, path, method="GET", headers=None):
        """(status, headers) of one request; of several servers the first one that answers."""
        for number, url in enumerate([self.url, *self.urls[1:]], 1):
            try:
                return self.get_from(url, path, method, headers)
            except OSError:
                if number == len(self.urls):
                    raise
        return None

    def get_from(self, url, path, method="GET", headers=None):
        request = urllib.request.Request(url + path, method=method, headers=headers or {})
        try:
            with urllib.request.urlopen(request, timeout=HANG_S) as reply:
                return reply.status, dict(reply.headers), reply.read()
        except urllib.error.HTTPError as error:
            return error.code, dict(error.headers), error.read()

    def fetch(self, path, method="GET", headers=None):
        """(status, headers, body, whether the connection broke before the body was whole)."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=HANG_S)
        try:
            connection.request(method, path, headers=headers or {})
            reply = connection.getresponse()
            try:
                return reply.status, reply.headers, reply.read(), False
            except http.client.IncompleteRead as cut:
                return reply.status, reply.headers, cut.partial, True
        finally:
            connection.close()

    def answered(self, route, url=None):
        """How often the server has answered a request of that route (api/routes.def)."""
        page = self.get_from(url or self.url, "/metrics")[2].decode()
        begin = f'cairn_http_request_duration_seconds_count{{route="{route}"'
        return sum(int(line.rsplit(" ", 1)[1]) for line in page.splitlines() if line.startswith(begin))

    def metric(self, node, name):
        """A counter of that node's uploader, without labels."""
        port = re.findall(r"metrics.listening .*?port=(\d+)", self.log(f"uploader-{node}"))[-1]
        found = re.search(rf"^cairn_{name} (\d+)$", self.get_from(f"http://127.0.0.1:{port}", "/metrics")[2].decode(), re.M)
        return int(found[1]) if found else 0

    def wait_for_beats(self, count):
        """Until so many more heartbeats of uploaders were answered."""
        before = self.answered("node_put")
        wait_until(lambda: self.answered("node_put") >= before + count)

    def version(self, run, ref="latest"):
        status, _, body = self.get(f"/v1/runs/{run}/checkpoints/{ref}")
        return json.loads(body) if status == 200 else None

    def versions(self, run):
        """All of a run; none before its first attempt."""
        return self.read(f"/v1/runs/{run}/checkpoints?limit=1000").get("items", [])

    def states(self, run):
        return {item["step"]: item["state"] for item in self.versions(run)}

    def committed(self, run):
        """Steps, in their order."""
        return sorted(item["step"] for item in self.versions(run) if item["state"] == "committed")

    def copies(self, ref):
        """{store: state} of RUN@STEP."""
        return {copy["store"]: copy["state"] for copy in self.version(*ref.split("@"))["copies"]}

    def log(self, daemon="server"):
        return (self.root / f"{daemon}.log").read_text(errors="replace")

    def stored(self, pattern):
        """Files below a folder store."""
        return sorted(path for path in files_below(self.store) if path.match(pattern))

    def temporaries(self):
        """What puts that died leave in versions. What the server's own small puts leave beside
        versions when it is killed goes after two looks an hour apart
        (server/sweep/sweep.c); tests/server shows that."""
        return [path for path in self.stored(".*.tmp")
                if path.parent.name not in ("layouts", "attempts", ".cairn", "generations")]


class Job:
    """Ranks of one incarnation of tests/trainer, spread over the world's nodes. more: its TRAINER_… variables, in small
    letters and without that; env: other variables; only: not all ranks; case: they are killed at its end."""

    def __init__(self, world, name, ranks, steps, run="j/run", only=None, env=None, case=None, stderr=subprocess.PIPE,
                 **more):
        more = {f"TRAINER_{key.upper()}": str(value) for key, value in {"rows": 1, **more}.items() if value is not None}
        self.world, self.processes = world, []
        for rank in range(ranks) if only is None else only:
            node = rank % len(world.uploaders)
            self.processes.append(subprocess.Popen(
                [*world.within(node), BIN / "tests/trainer", run, str(rank), str(ranks), *map(str, steps)], text=True,
                stdout=subprocess.PIPE, stderr=stderr,
                env={**os.environ, "CAIRN_JOB": name, **more, "CAIRN_SOCKET": world.socket(node), **(env or {})}))
        if case:
            cases.at_the_end(case, self.kill)

    def first_lines(self):
        return [json.loads(line_of(process)) for process in self.processes]

    def end(self):
        """[(status, [lines], what it said)] of every rank."""
        ended = []
        for process in self.processes:
            out, err = process.communicate(timeout=HANG_S)
            ended.append((process.returncode, [json.loads(line) for line in out.splitlines()], err))
        return ended

    def succeeds(self):
        """Every rank ends well, and its last save is committed."""
        for status, lines, said in self.end():
            assert (status, lines[-1]["code"]) == (0, "ok"), f"{status}: {lines}\n{said}\n{self.world.logs()}"

    def kill(self):
        for process in self.processes:
            process.kill()
            process.communicate()


class InWorld(cases.Case):
    """Cases with one `world` for all of their class."""
    WORLD = {}

    @classmethod
    def setUpClass(cls):
        cls.world = World(case=cls, **cls.WORLD)
