# SPDX-License-Identifier: Apache-2.0
"""A world to be struck: daemons that die or stop at a named point or after a while and come back, be
it together with a trainer, a network between uploaders and server that can be cut, a disk that can
be filled, wall clocks that jump, and somebody who looks at `latest` all the time."""
import collections
import contextlib
import json
import os
import pathlib
import select
import signal
import socket
import struct
import subprocess
import threading
import time
import urllib.error
import urllib.request

from s3world import S3World
from build_folder import preload
from world import found, HANG_S, server_name, World

TICK_S = 0.004
LOOK_TIMEOUT_S = 1.0
PATIENCE_S = 5.0
HOUR_S = 3600
# A session connects again within a second of its uploader's return (client/session/wire.c), offers
# what it has, and asks for its begin.
RECONNECT_S = 2.0
# The named states of a save, and the points of common/crashpoints.def that stand for them.
STATES = {
    "staging": ("uploader.begin.journaled", "uploader.begin.told", "uploader.send.journaled"),
    "sealed": ("uploader.seal.journaled", "uploader.create.done", "uploader.upload.journaled",
               "uploader.part.done"),
    "durable": ("uploader.complete.done", "uploader.shards.before_told", "uploader.shards.told"),
    "committing": ("server.commit.before_proof", "server.commit.after_layout",
                   "server.commit.after_checksums", "server.commit.after_manifest",
                   "server.commit.after_transaction", "server.commit.after_record",
                   "server.commit.after_recorded"),
}
STATE_OF = {point: state for state, points in STATES.items() for point in points}


class Strike:
    """One deed: `how` is kill, stop (and go on) or stop-kill; at the nth pass of a point from now
    on, or after so many seconds; `down_s` until the process runs again. `also`: a rank that is
    killed at the same moment."""

    def __init__(self, how, down_s, point=None, nth=1, after_s=0.0, also=None):
        self.how, self.down_s, self.point, self.nth, self.after_s = how, down_s, point, nth, after_s
        self.also = also

    def kind(self, name):
        what = name.split("-")[0]
        return f"{self.how} {what}{' and trainer' if self.also else ''}"

    def armed(self):
        """The process does it to itself, exactly there."""
        return f"{self.point}:{self.nth}:{'kill' if self.how == 'kill' else 'stop'}"

    def __str__(self):
        where = f"at {self.point}:{self.nth}" if self.point else f"after {self.after_s:.2f} s"
        return f"{self.how} {where} for {self.down_s:.2f} s"


class Keeper(threading.Thread):
    """Strikes one daemon by its plan, in order, and brings it back. The first strike is armed when
    the daemon starts, as is each that follows a kill; others watch which points it passes."""

    def __init__(self, world, name, daemon, plan):
        super().__init__(daemon=True)
        self.world, self.name, self.subject = world, name, daemon
        self.plan = collections.deque(plan)
        self.points = pathlib.Path(world.root) / f"{name}.points"
        self.over, self.struck, self.missed, self.faults = threading.Event(), [], [], []
        self.working = False
        self.may_begin = threading.Event()
        self.armed_now = False
        self.alive_s = time.monotonic()  # the last time that it was seen to run
        self.downs = []  # [from, until or None] in which nobody could reach it
        self.arm()

    def goes_down(self, since_s):
        if not self.downs or self.downs[-1][1] is not None:
            self.downs.append([since_s, None])

    def is_up(self):
        self.alive_s = time.monotonic()
        if self.downs and self.downs[-1][1] is None:
            self.downs[-1][1] = self.alive_s

    def was_down(self, from_s, until_s):
        """At any moment of that time, or just before it."""
        return any(down_s <= until_s and (up_s is None or from_s <= up_s + RECONNECT_S) for down_s, up_s in self.downs)

    def arm(self):
        env = {**(self.subject.env or {}), "CAIRN_CRASH_LIST": str(self.points)}
        env.pop("CAIRN_CRASH_AT", None)
        self.armed_now = bool(self.plan and self.plan[0].point)
        if self.armed_now:
            env["CAIRN_CRASH_AT"] = self.plan[0].armed()
        self.subject.env = env

    def passed(self, point):
        with contextlib.suppress(FileNotFoundError):
            return self.points.read_text().split("\n").count(point)
        return 0

    def last_point(self):
        with contextlib.suppress(FileNotFoundError, IndexError):
            return self.points.read_text().split()[-1]
        return "none"

    def state(self):
        with contextlib.suppress(OSError, IndexError):
            text = pathlib.Path(f"/proc/{self.subject.process.pid}/stat").read_text()
            return text.rsplit(")", 1)[1].split()[0]
        return "X"

    def run(self):
        try:
            while not self.over.is_set():
                if not self.plan:
                    self.must_run()
                    time.sleep(TICK_S)  # step of a poll
                else:
                    due, self.working = self.wait_for(self.plan[0]), True
                    strike = self.plan.popleft()
                    if due:
                        self.carry_out(strike)
                    elif not self.over.is_set():
                        self.missed.append(strike.point)
                        self.disarm()
                    self.working = False
        except Exception as error:  # told by the main thread
            self.faults.append(f"{self.name}: {type(error).__name__}: {error}")

    def must_run(self):
        code = self.subject.process.poll()
        if code is not None:
            raise AssertionError(f"ended by itself with {code}: {self.subject.tail()}")

    def wait_for(self, strike):
        """True when it is time; False when all is over first, or the point is not passed."""
        while not (self.armed_now or self.may_begin.wait(TICK_S) or self.over.is_set()):
            self.must_run()
        began, seen = time.monotonic(), self.passed(strike.point) if strike.point else 0
        while not self.over.is_set() and time.monotonic() < began + PATIENCE_S:
            now_s = time.monotonic()
            if self.armed_now:
                if self.subject.process.poll() is not None or self.state() == "T":
                    return True
            else:
                self.must_run()
            self.alive_s = now_s
            if not self.armed_now:
                if strike.point and self.passed(strike.point) >= seen + strike.nth:
                    return True
                if not strike.point and time.monotonic() >= began + strike.after_s:
                    return True
            time.sleep(TICK_S)  # step of a poll
        return False

    def disarm(self):
        """The point may still be passed in this life: it starts again without it."""
        if self.armed_now:
            self.goes_down(self.alive_s)
            self.subject.kill()
            self.arm()
            self.subject.start()
            self.is_up()

    def is_through(self):
        return bool(self.faults) or (not self.plan and not self.working)

    def add(self, strike):
        """While it runs: done after what is planned, which is not armed then."""
        self.plan.append(strike)

    def carry_out(self, strike):
        process = self.subject.process
        exact = self.armed_now
        if strike.also:
            strike.also.killed = True
            strike.also.process.kill()
        if strike.how == "kill":
            self.goes_down(self.alive_s if exact else time.monotonic())
        if not exact:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGKILL if strike.how == "kill" else signal.SIGSTOP)
        if strike.how == "kill":
            code = process.wait(HANG_S)
            if code != -signal.SIGKILL:
                raise AssertionError(f"ended with {code}: {self.subject.tail()}")
        self.struck.append((strike.point or f"any time, {self.last_point()}", exact))
        self.world.kinds[strike.kind(self.name)] += 1
        self.world.look(self.name)
        time.sleep(strike.down_s)  # pause of chaos
        if strike.how == "stop":
            process.send_signal(signal.SIGCONT)
            if exact:
                self.armed_now = False  # the point is passed; the next strike watches
            return
        if strike.how == "stop-kill":
            self.goes_down(time.monotonic())
            process.kill()
            process.wait(HANG_S)
        self.arm()
        self.bring_back()

    def bring_back(self):
        """What it finds in its journal may lead it over the armed point before anybody sees that
        it is ready."""
        try:
            self.subject.start()
            self.is_up()
        except AssertionError:
            if not (self.armed_now and self.subject.process.poll() == -signal.SIGKILL):
                raise

    def end(self):
        self.over.set()
        if self.ident:
            self.join(HANG_S)
        if self.state() == "T":
            self.subject.process.send_signal(signal.SIGCONT)


class Proxy(threading.Thread):
    """TCP to the server. `cut("refuse")` breaks all connections and takes none; `cut("hang")` keeps
    them and moves nothing; `cut(None)` heals."""

    def __init__(self, port):
        super().__init__(daemon=True)
        self.target, self.mode = ("127.0.0.1", port), None
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port = self.listener.getsockname()[1]
        self.pairs, self.over = {}, False
        self.start()

    def cut(self, mode):
        self.mode = mode

    def drop(self, end):
        other = self.pairs.pop(end, None)
        self.pairs.pop(other, None)
        for one in (end, other):
            if one:
                one.close()

    def accept(self):
        near, _ = self.listener.accept()
        if self.mode == "refuse":
            near.close()
            return
        try:
            far = socket.create_connection(self.target, 1)
        except OSError:
            near.close()
            return
        self.pairs[near], self.pairs[far] = far, near

    def move(self, end):
        try:
            data = end.recv(1 << 16)
            if data:
                self.pairs[end].sendall(data)
                return
        except OSError:
            pass
        self.drop(end)

    def run(self):
        while not self.over:
            if self.mode == "refuse":
                for end in list(self.pairs):
                    self.drop(end)
            watched = [self.listener] if self.mode == "hang" else [self.listener, *self.pairs]
            if self.mode == "hang":
                time.sleep(TICK_S)  # step of a poll
                continue
            for end in select.select(watched, [], [], 0.02)[0]:
                if end is self.listener:
                    self.accept()
                elif end in self.pairs:
                    self.move(end)

    def end(self):
        self.over = True
        self.join(HANG_S)
        for end in list(self.pairs):
            self.drop(end)
        self.listener.close()


class Clocks(threading.Thread):
    """The wall clock of each machine, by tests/support/libclock.c: the server's, and one for each
    node with its uploader and its trainers. Each is wrong from the start on, and they jump by hours
    and days, forth and back, until the end; then they stay as wrong as they are. The store's is
    right."""

    def __init__(self, folder, chance, kinds):
        super().__init__(daemon=True)
        self.folder, self.chance, self.kinds = folder, chance, kinds
        self.over, self.files = threading.Event(), {}

    def env(self, machine):
        path = self.folder / f"clock-{machine}"
        if machine not in self.files:
            self.files[machine] = open(path, "w+b", buffering=0)
            self.set(machine)
        return {**preload("clock"), "LIBCLOCK_AHEAD": str(path),
                "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0"}

    def set(self, machine):
        ahead_s = self.chance.choice((0, self.chance.uniform(-12 * HOUR_S, 12 * HOUR_S),
                                      self.chance.uniform(-90, 90) * 24 * HOUR_S))
        os.pwrite(self.files[machine].fileno(), struct.pack("=q", int(ahead_s)), 0)

    def run(self):
        while not self.over.wait(self.chance.uniform(0.1, 1.0)):
            self.set(self.chance.choice(sorted(self.files)))
            self.kinds["clock jump"] += 1

    def end(self):
        self.over.set()
        if self.ident:
            self.join(HANG_S)


class LatestWatch(threading.Thread):
    """`latest` of each run never goes back, whoever is struck, and whichever server is asked."""

    def __init__(self, world, runs):
        super().__init__(daemon=True)
        self.world, self.over, self.faults, self.looks = world, threading.Event(), [], 0
        self.asked = 0
        self.seen = {run: -1 for run in runs}

    def look(self, run):
        servers = [self.world.url, *self.world.urls[1:]]
        self.asked += 1
        request = f"{servers[self.asked % len(servers)]}/v1/runs/{run}/checkpoints/latest"
        try:
            with urllib.request.urlopen(request, timeout=LOOK_TIMEOUT_S) as reply:
                version = json.loads(reply.read())
        except urllib.error.HTTPError as error:
            if error.code == 404 and self.seen[run] >= 0:
                self.faults.append(f"{run}: latest was {self.seen[run]} and is not there any more")
            return
        except (OSError, ValueError):
            return
        self.looks += 1
        if version["state"] != "committed":
            self.faults.append(f"{run}: latest is {version['state']}")
        if version["step"] < self.seen[run]:
            self.faults.append(f"{run}: latest went from {self.seen[run]} to {version['step']}")
        self.seen[run] = max(self.seen[run], version["step"])

    def run(self):
        while not self.over.wait(0.05):
            for run in self.seen:
                self.look(run)

    def end(self):
        self.over.set()
        if self.ident:
            self.join(HANG_S)


class Struck:
    """What a struck world adds to a world; first in the list of bases."""

    def prepare(self, runs, proxied, plans, clock_chance):
        """plans: {"server" or the uploader's number: [Strike]}; clock_chance: None, or a
        random.Random for clocks that jump"""
        self.faults, self.plans = [], plans
        self.kinds = collections.Counter()
        self.clock_chance, self.clocks = clock_chance, None
        self.keepers, self.proxy, self.mounted = [], None, []
        self.watch = LatestWatch(self, runs)
        self.wants_proxy = proxied

    def clock_env(self, machine):
        if not self.clock_chance:
            return {}
        if not self.clocks:
            self.clocks = Clocks(self.root, self.clock_chance, self.kinds)
        return self.clocks.env(machine)

    def keeper_of(self, number):
        return next(k for k in self.keepers if k.name == f"uploader-{number}")

    def server_url(self):
        if not self.wants_proxy:
            return self.url
        if not self.proxy:
            self.proxy = Proxy(self.port)
        return f"http://127.0.0.1:{self.proxy.port}"

    def server_ports(self):
        return [self.port, *([self.proxy.port] if self.proxy else [])]

    def small_disk(self, number, size="12m"):
        """The journal of that node lies on a small disk of its own; False: not allowed here."""
        folder = self.root / f"uploader-{number}"
        self.uploaders[number].stop()
        kept = self.root / "kept"
        folder.rename(kept)
        folder.mkdir()
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "none", folder],
                              capture_output=True, check=False)
        if done.returncode:
            folder.rmdir()
            kept.rename(folder)
            self.uploaders[number].start()
            return False
        self.mounted.append(folder)
        subprocess.run(["cp", "-a", f"{kept}/.", folder], check=True)
        self.uploaders[number].start()
        return True

    def fill_disk(self, seconds):
        """Full for so long."""
        for folder in self.mounted:
            ballast = folder / "ballast"
            with open(ballast, "wb", buffering=0) as file, contextlib.suppress(OSError):
                while True:
                    file.write(bytes(4096))
            time.sleep(seconds)  # pause of chaos
            ballast.unlink()

    def make_uploader(self, number):
        direct, self.url = self.url, self.server_url()
        try:
            daemon = super().make_uploader(number)
        finally:
            self.url = direct
        daemon.env = {**(daemon.env or {}), **self.clock_env(f"node-{number}")}
        self.keep(f"uploader-{number}", daemon, self.plans.get(number, ()))
        return daemon

    def keep_servers(self):
        """From now on they are struck."""
        for number, daemon in enumerate([self.server, *self.further]):
            name = server_name(number)
            plan = self.plans.get(name, ())
            daemon.env = {**(daemon.env or {}), **self.clock_env(name)}
            self.keep(name, daemon, plan)
            if self.clocks or (plan and plan[0].point):
                daemon.stop()
                daemon.start()

    def keep(self, label, daemon, plan):
        self.keepers.append(Keeper(self, label, daemon, plan))

    def release(self):
        """The strikes that are armed may come from now on; go() lets the others begin."""
        self.keep_servers()
        for thread in [*self.keepers, self.watch]:
            thread.start()

    def go(self):
        if self.clocks:
            self.clocks.start()
        for keeper in self.keepers:
            keeper.may_begin.set()

    def calm(self):
        """All strikes end; every daemon runs again."""
        if self.clocks:
            self.clocks.end()
        for keeper in self.keepers:
            keeper.end()
        for keeper in self.keepers:
            self.faults += keeper.faults
            if keeper.subject.process.poll() is not None and not keeper.faults:
                keeper.goes_down(keeper.alive_s)
                keeper.subject.start()
                keeper.is_up()

    def look(self, struck):
        """What a reader of the store alone sees while a process is away: each version with a record
        is whole."""
        if isinstance(self, S3World):
            return
        for record in found(self.store, "*/*/*/ckpt_*/committed.json"):
            with contextlib.suppress(FileNotFoundError):
                self.look_at(record, struck)

    def look_at(self, record, struck):
        manifest = json.loads((record.parent / "manifest.json").read_text())
        for shard in manifest["shards"]:
            path = record.parent / "data" / shard["name"]
            if not path.exists() or path.stat().st_size != shard["size"]:
                self.faults.append(f"while {struck} was away: {record} is there, {path} is not whole")

    def end_all(self):
        if self.clocks:
            self.clocks.end()
        for keeper in self.keepers:
            keeper.end()
        self.watch.over.set()
        try:
            self.close()
        finally:
            if self.proxy:
                self.proxy.end()
            for folder in self.mounted:
                subprocess.run(["umount", "-l", folder], check=False)


class StruckFolder(Struck, World):
    def __init__(self, runs, proxied, plans, clock_chance, **options):
        self.prepare(runs, proxied, plans, clock_chance)
        super().__init__(**options)


class StruckS3(Struck, S3World):
    def __init__(self, s3, prefix, runs, proxied, plans, clock_chance, **options):
        self.prepare(runs, proxied, plans, clock_chance)
        super().__init__(s3, prefix, bucket=s3.bucket, debug=False, **options)


def kill_trainer(process):
    process.kill()


def stop_for(process, seconds):
    process.send_signal(signal.SIGSTOP)
    time.sleep(seconds)  # pause of chaos
    with contextlib.suppress(ProcessLookupError):
        os.kill(process.pid, signal.SIGCONT)
