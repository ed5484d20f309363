# SPDX-License-Identifier: Apache-2.0
"""A year of a site (bench/year): saves by hand over HTTP, without bytes; the server is the shipped one."""
import argparse
import concurrent.futures
import http.client
import json
import os
import random
import shutil
import signal
import sqlite3
import statistics
import struct
import sys
import tempfile
import time

from bench.daemons import Daemon

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir)
BIN = os.environ.get("CAIRN_BIN_DIR") or os.path.join(ROOT, "build", "shipped")  # with the clock of the tests

DAY_MS = 24 * 3600 * 1000
SLICES = 4          # of a day
MONTH = 30          # days
SAVES = 2           # of a run on a day
LIFE = 90           # days of a run; it is removed then, and another one begins
RESTART = 7         # days of an attempt
PROJECTS = 4
CALLERS = 8
LOOKS = 50          # of each kind, at the end of a month
POLICY = {"keep": {"last": 5, "daily": 14, "weekly": 8, "unmeasured_grace_s": 0,
                   "best": [{"count": 2, "metric": "loss", "order": "min"}]}}
FIRST = 5           # the month from which on a site of this kind has everything that it will have
LAST = 3            # months that are held against those from FIRST on
# What may grow, and by which rule; docs/promises.md (R16) has the others.
GROWS = {"runs": "one row for each name that a run ever had (Q1)"}


def note(text, *arguments):
    print("year: " + text % arguments, file=sys.stderr, flush=True)


class Site:
    """The server, its clock and its catalog."""

    def __init__(self, folder):
        self.folder, self.passed_ms = folder, 0
        self.store, self.data = os.path.join(folder, "store"), os.path.join(folder, "data")
        os.makedirs(self.store)
        self.clock = os.path.join(folder, "clock")
        with open(self.clock, "wb") as file:
            file.write(bytes(16))
        server, library = os.path.join(BIN, "cairn-server"), os.path.join(BIN, "tests", "libclock.so")
        for path in (server, library):
            if not os.path.exists(path):
                raise RuntimeError("%s is not built: ninja -C build/shipped end_to_end" % path)
        environment = dict(os.environ, LD_PRELOAD=library, LIBCLOCK_AHEAD=self.clock)
        self.port_file = os.path.join(folder, "port")
        self.daemon = Daemon([server, "--listen", "127.0.0.1:0", "--store", self.store, "--data-dir", self.data,
                              "--port-file", self.port_file, "--events-age", "30d"],
                             os.path.join(folder, "server.log"), self.port_file, environment)
        self.start()

    def start(self):
        self.daemon.start()
        with open(self.port_file, encoding="ascii") as file:
            self.port = int(file.read())

    def stop(self, how=signal.SIGTERM):
        self.daemon.stop(how)

    def catalog(self):
        return sqlite3.connect(os.path.join(self.data, "catalog.db"), timeout=60, isolation_level=None)

    def passes(self, ms):
        """The clocks go on by so much, and catalog time as if the server had lived through it."""
        with self.catalog() as db:
            db.execute("UPDATE ticks SET value = value + ?", (ms,))
            tick = db.execute("SELECT value FROM ticks").fetchone()[0]
            self.advance(ms)
            for _ in range(2):  # the first round of the sweep sees the new tick, the next ones go on from it
                until = time.monotonic() + 120
                while db.execute("SELECT value FROM ticks").fetchone()[0] <= tick:
                    if time.monotonic() > until:
                        raise RuntimeError("no round of the sweep ends")
                    self.advance(11000)  # the interval between two rounds
                    time.sleep(0.02)  # a step of the poll
                tick = db.execute("SELECT value FROM ticks").fetchone()[0]
        db.close()

    def advance(self, ms):
        self.passed_ms += ms
        with open(self.clock, "r+b") as file:
            file.seek(8)
            file.write(struct.pack("=q", self.passed_ms))

    def call(self, connection, method, path, body=None, headers=None, good=(200, 201, 202)):
        data = None if body is None else json.dumps(body).encode()
        connection.request(method, path, data, {**({"Content-Type": "application/json"} if data else {}),
                                                **(headers or {})})
        reply = connection.getresponse()
        text = reply.read()
        if reply.status not in good:
            raise RuntimeError("%s %s: %d %s" % (method, path, reply.status, text[:300]))
        return json.loads(text) if text else None

    def connect(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)


class Run:
    """One run after the other in the same place, each for LIFE days."""

    def __init__(self, site, place, places):
        self.site, self.place = site, place
        self.age = place * LIFE // places  # so that not all of them end on one day
        self.number, self.random = 0, random.Random(place)
        self.begin()

    def begin(self):
        self.number += 1
        self.project, self.name = "p%d" % (self.place % PROJECTS), "run-%d-%d" % (self.place, self.number)
        self.path = "/v1/runs/%s/%s" % (self.project, self.name)
        self.attempt, self.step, self.grant = 0, 0, None

    def open(self, connection):
        answer = self.site.call(connection, "POST", self.path + "/attempts", {
            "job": "job-%d" % self.attempt, "world_size": 1, "after": self.attempt, "node": "n%d" % (self.place % 8),
            "resume": "latest" if self.attempt else "none", "ranks": [{"rank": 0, "proc": "p%d" % self.attempt}]})
        self.attempt, self.grant = answer["attempt"], answer["grant"]

    def save(self, connection):
        """Milliseconds from its begin to its record."""
        site, begun = self.site, time.monotonic()
        self.step += 100
        version = site.call(connection, "POST", self.path + "/checkpoints", {
            "grant": self.grant, "node": "n%d" % (self.place % 8),
            "begins": [{"step": self.step, "n": 1, "rank": 0, "world_size": 1}]})["results"][0]["version"]
        where = self.path + "/checkpoints/" + version
        site.call(connection, "POST", where + "/shards", {
            "grant": self.grant, "node": "n%d" % (self.place % 8), "shards": [],
            "seals": [{"rank": 0, "bytes": 0, "shards": []}]})
        if site.call(connection, "GET", where + "?wait=60s&for=committed")["state"] != "committed":
            raise RuntimeError("%s is not committed" % version)
        took = 1000 * (time.monotonic() - begun)
        site.call(connection, "PATCH", where, {"metrics": {"loss": self.random.random()}}, {"If-Match": "*"})
        if self.step % 1400 == 0:
            site.call(connection, "PUT", self.path + "/aliases/good", {"ref": version},
                      {"If-Match": "*"} if self.step > 1400 else None)
        return took

    def end(self, connection):
        self.site.call(connection, "DELETE", self.path + "/aliases/good", headers={"If-Match": "*"},
                       good=(200, 204, 404))
        self.site.call(connection, "DELETE", self.path + "?confirm=" + self.name)

    def day(self, connection):
        took = []
        if self.grant is None or self.age % RESTART == 0:
            self.open(connection)
        for _ in range(SAVES):
            took.append(self.save(connection))
        self.age += 1
        if self.age % LIFE == 0:
            self.end(connection)
            self.begin()
        return took


# ---- what is measured ----

def rows(site):
    with site.catalog() as db:
        names = [name for name, in db.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT "
                                              "LIKE 'sqlite_%' ORDER BY name")]
        counts = {name: db.execute("SELECT count(*) FROM \"%s\"" % name).fetchone()[0] for name in names}
    db.close()
    return counts


def size(path):
    return os.path.getsize(path) if os.path.exists(path) else 0


def files_below(folder):
    return sum(len(names) for _, _, names in os.walk(folder))


def memory_mb(site):
    with open("/proc/%d/status" % site.daemon.child.pid, encoding="ascii") as file:
        for line in file:
            if line.startswith("VmRSS"):
                return int(line.split()[1]) / 1024
    return 0


def median_ms(site, path):
    connection, times = site.connect(), []
    for _ in range(LOOKS):
        begun = time.monotonic()
        site.call(connection, "GET", path, good=(200, 404))
        times.append(1000 * (time.monotonic() - begun))
    connection.close()
    return statistics.median(times)


def measure(site, runs, commits):
    """{figure: (value, unit, is it judged?)}"""
    found = {"rows " + name: (count, "rows", True) for name, count in rows(site).items()}
    catalog = os.path.join(site.data, "catalog.db")
    found["catalog bytes"] = (size(catalog), "bytes", True)
    found["log bytes"] = (size(catalog + "-wal"), "bytes", True)
    found["store files"] = (files_below(site.store), "files", False)  # attempts' records of each run stay
    found["store .cairn files"] = (files_below(os.path.join(site.store, ".cairn")), "files", True)
    found["data files"] = (files_below(site.data), "files", True)
    found["server memory"] = (round(memory_mb(site), 1), "MiB", True)
    # A busy machine is none of the site's growth: times are told and not judged.
    found["latest p50"] = (round(median_ms(site, runs[0].path + "/checkpoints/latest"), 2), "ms", False)
    found["list p50"] = (round(median_ms(site, runs[0].path + "/checkpoints?limit=100"), 2), "ms", False)
    found["commit p50"] = (round(statistics.median(commits), 2), "ms", False)
    found["commit p99"] = (round(sorted(commits)[int(len(commits) * 0.99)], 2), "ms", False)
    return found


SLACK = {"rows": 100, "bytes": 1 << 20, "files": 10, "MiB": 32}


def grown(months):
    """Lines of what no rule lets grow: the last months against those in which all that there is had begun."""
    if len(months) < FIRST + 2 * LAST - 1:
        return []
    told = []
    for name, (_, unit, judged) in months[-1].items():
        before = max(month[name][0] for month in months[FIRST - 1:FIRST - 1 + LAST] if name in month)
        after = max(month[name][0] for month in months[-LAST:])
        if judged and name.split(" ", 1)[-1] not in GROWS and after > 1.3 * before + SLACK[unit]:
            told.append("%s: %g %s in months %d to %d, %g in the last %d" % (
                name, before, unit, FIRST, FIRST + LAST - 1, after, LAST))
    return told


# ---- the year ----

def play(site, words, tell):
    runs = [Run(site, place, words.runs) for place in range(words.runs)]
    months, commits = [], []
    site.call(site.connect(), "PUT", "/v1/retention", POLICY)

    def some(caller):  # yesterday's connections were idle for too long
        connection, took = site.connect(), []
        for run in runs[caller::CALLERS]:
            took += run.day(connection)
        connection.close()
        return took

    with concurrent.futures.ThreadPoolExecutor(CALLERS) as pool:
        for day in range(1, words.days + 1):
            for took in pool.map(some, range(CALLERS)):
                commits += took
            site.call(site.connect(), "POST", "/v1/tokens",
                      {"scopes": ["read"], "name": "day-%d" % day, "expires_s": 7 * 24 * 3600})
            for _ in range(SLICES):
                site.passes(DAY_MS // SLICES)
            if day % MONTH == 0:
                months.append(tell(len(months) + 1, measure(site, runs, commits)))
                commits = []
            if day % MONTH == 0 or day % MONTH == MONTH // 2:
                site.stop(signal.SIGTERM if day % MONTH == 0 else signal.SIGKILL)
                site.start()
            elif day % 10 == 0:
                note("day %d of %d", day, words.days)
    return months


def line(**fields):
    print(json.dumps({"bench": "year", **fields}), flush=True)


def tell_month(month, found):
    note("month %d", month)
    for name, (value, unit, judged) in found.items():
        line(month=month, figure=name, value=value, unit=unit, judged=judged,
             **({"grows": GROWS[name.split(" ", 1)[-1]]} if name.split(" ", 1)[-1] in GROWS else {}))
    return found


def main(arguments):
    parser = argparse.ArgumentParser(prog="bench/year", description="A year of a site, played in minutes.")
    parser.add_argument("--days", type=int, default=365)
    parser.add_argument("--runs", type=int, default=60)
    words = parser.parse_args(arguments)
    memory = "/dev/shm"
    folder = tempfile.mkdtemp(prefix="cairn-year-", dir=memory if os.access(memory, os.W_OK) else None)
    begun, site = time.monotonic(), None
    try:
        site = Site(folder)
        months = play(site, words, tell_month)
    except (RuntimeError, OSError, http.client.HTTPException, sqlite3.Error) as error:
        note("%s", error)
        if site:
            with open(site.daemon.log, encoding="utf-8", errors="replace") as log:
                note("%s", log.read()[-3000:])
        return 2
    finally:
        if site:
            site.stop()
        shutil.rmtree(folder, ignore_errors=True)
    told = grown(months)
    for text in told:
        note("GROWN %s", text)
    line(figure="days", value=words.days, seconds=round(time.monotonic() - begun), grown=told, ok=not told)
    return 1 if told else 0
