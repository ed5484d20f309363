# SPDX-License-Identifier: Apache-2.0
"""The catalog in PostgreSQL beside SQLite: what each call takes, commits a second, a big save.

The database is a private one of Debian's package, on the same disk as SQLite's files, with its
default settings but for shared_buffers. The shards are empty, so that the store costs the same on
both sides and little."""
import json
import os
import shutil
import statistics
import sys
import tempfile
import threading
import time

from bench.figures_s3 import Figure
from bench.figures_server import Server, call
from bench.harness import ROOT, Skip, say

FIGURES = {}
ENGINES = ("postgresql", "sqlite")
PORT = 7501
AT_ONCE = 32
COMMITS = 96
NODES, RANKS_A_NODE, SHARDS_A_RANK, SENDERS = 256, 8, 8, 16
TICKS = os.sysconf("SC_CLK_TCK")


# ---- the database ----


def import_postgres(folder):
    """tests/e2e/postgres.py; what it keeps for the next one lies in folder."""
    os.makedirs(os.path.join(folder, "tests"), exist_ok=True)
    shutil.copy(os.path.join(ROOT, "tests", "support", "postgres.sh"), os.path.join(folder, "tests"))
    os.environ["CAIRN_BIN_DIR"] = folder
    sys.path.insert(0, os.path.join(ROOT, "tests", "e2e"))
    import postgres  # pylint: disable=import-outside-toplevel,import-error
    return postgres


class Database:
    def __init__(self, lab):
        postgres = import_postgres(os.path.join(lab.folder, "programs"))
        if postgres.missing():
            raise Skip(postgres.missing())
        self.server = postgres.Postgres({"shared_buffers": "128MB"}).make().start()

    def catalog(self):
        return self.server.catalog()

    def cpu_s(self):
        """Of all its processes, and of those that have ended."""
        total = 0
        for pid in self.server.processes():
            words = stat_of(pid)
            total += sum(int(word) for word in words[11:15 if pid == self.server.process.pid else 13])
        return total / TICKS

    def memory_mb(self):
        """What its processes have in memory, shared pages counted once."""
        total = 0
        for pid in self.server.processes():
            try:
                with open("/proc/%d/smaps_rollup" % pid, encoding="ascii") as file:
                    total += sum(int(line.split()[1]) for line in file if line.startswith("Pss:"))
            except OSError:
                pass
        return total / 1024

    def close(self):
        self.server.end()


def stat_of(pid):
    try:
        with open("/proc/%d/stat" % pid, encoding="ascii") as file:
            return file.read().rsplit(")", 1)[1].split()
    except OSError:
        return ["0"] * 20


# ---- the server, and saves by hand ----


class Site:
    """cairn-server over a folder store, with its catalog in one engine."""

    def __init__(self, lab, engine, database, port=PORT, folder=None, arguments=()):
        self.engine, self.database = engine, database if engine == "postgresql" else None
        self.folder = folder or tempfile.mkdtemp(prefix="catalog-", dir=lab.folder)
        self.catalog = self.database.catalog() if self.database else None
        self.server = lab.keep(Server(
            self.folder, port, arguments=[*(["--catalog", self.catalog] if self.catalog else []),
                                          *arguments]))

    def pid(self):
        return self.server.daemon.child.pid

    def peak_mb(self):
        with open("/proc/%d/status" % self.pid(), encoding="ascii") as file:
            return next(int(line.split()[1]) / 1024 for line in file if line.startswith("VmHWM:"))


class Job:
    """One run: its attempt, and whole saves; times[name] are the seconds of each call."""

    def __init__(self, site, run, ranks=1, server=None):
        self.site, self.run, self.ranks, self.times = site, run, ranks, {}
        self.connection = (server or site.server).connect()
        self.path = "/v1/runs/bench/" + run
        self.attempt = self.timed("attempt", "POST", self.path + "/attempts", {
            "job": run, "world_size": ranks, "after": 0, "node": "n", "resume": "none",
            "ranks": [{"rank": rank, "proc": "p%d" % rank} for rank in range(ranks)]})
        self.step = 0

    def timed(self, name, method, path, body=None):
        begun = time.monotonic()
        try:
            return call(self.connection, method, path, body)
        finally:
            self.times.setdefault(name, []).append(time.monotonic() - begun)

    def begin(self):
        self.step += 1
        begun = self.timed("begin", "POST", self.path + "/checkpoints", {
            "grant": self.attempt["grant"], "node": "n",
            "begins": [{"step": self.step, "n": 1, "rank": rank, "world_size": self.ranks}
                       for rank in range(self.ranks)]})
        return begun["results"][0]["version"]

    def put(self, version, names):
        """Empty objects."""
        data = os.path.join(self.site.folder, "store", "bench", self.run, "%012d" % self.step,
                            version, "data")
        for name in names:
            path = os.path.join(data, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb"):
                pass

    def register(self, version, ranks, shards, connection=None):
        names = {rank: ["rank-%05d/part-%d" % (rank, i) for i in range(shards)] for rank in ranks}
        self.put(version, [name for some in names.values() for name in some])
        body = {"grant": self.attempt["grant"], "node": "n",
                "shards": [{"name": name, "rank": rank, "bytes": 0, "crc32c": "00000000",
                            "blocks": "", "token": "00000000-0000-4000-8000-%012d" % rank}
                           for rank in ranks for name in names[rank]],
                "seals": [{"rank": rank, "bytes": 0,
                           "shards": [{"name": name, "bytes": 0} for name in names[rank]]}
                          for rank in ranks]}
        path = "%s/checkpoints/%s/shards" % (self.path, version)
        if connection:
            return call(connection, "POST", path, body)
        return self.timed("register", "POST", path, body)

    def wait(self, version):
        seen = self.timed("commit", "GET", "%s/checkpoints/%s?wait=60s&for=committed" %
                          (self.path, version))
        if seen["state"] != "committed":
            raise RuntimeError("%s is %s" % (version, seen["state"]))

    def save(self):
        version = self.begin()
        self.register(version, range(self.ranks), 1)
        self.wait(version)
        return version

    def restore(self, version):
        one = "%s/checkpoints/%s" % (self.path, version)
        self.timed("latest", "GET", self.path + "/checkpoints/latest")
        self.timed("manifest", "GET", one + "/manifest")
        self.timed("plan", "POST", one + "/restore-plans", {"shards": ["rank-00000/part-0"]})
        self.timed("list", "GET", self.path + "/checkpoints?limit=20")


# ---- pg-vs-sqlite ----


def percentile(values, share):
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


CALLS = ("attempt", "begin", "register", "commit", "latest", "manifest", "plan", "list")


def pg_vs_sqlite(lab):
    database = lab.keep(Database(lab))
    sites = [Site(lab, engine, database, PORT + i) for i, engine in enumerate(ENGINES)]
    times = [{name: [] for name in CALLS} for _ in sites]
    rounds = max(20, lab.pairs_wanted * 12)
    for number in range(rounds + 1):
        for site, mine in zip(sites, times):
            job = Job(site, "run-%d" % number)
            job.restore(job.save())
            for name, seconds in job.times.items():
                mine[name] += seconds if number else []  # the first one warms
    for name in CALLS:
        ours, theirs = ([1000 * s for s in mine[name]] for mine in times)
        lab.report("%s_ms" % name, [a / b for a, b in zip(ours, theirs)], None, "lower", ours,
                   theirs, unit="ms", p99_ours=round(percentile(ours, 0.99), 3),
                   p99_theirs=round(percentile(theirs, 0.99), 3))


# ---- commit-32 ----


def commits_per_s(jobs, count):
    """Whole saves of all jobs, each job's one after the other."""
    failed = []

    def work(job):
        try:
            for _ in range(count):
                job.save()
        except Exception as error:  # pylint: disable=broad-except
            failed.append(error)

    threads = [threading.Thread(target=work, args=(job,)) for job in jobs]
    begun = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]
    return len(jobs) * count / (time.monotonic() - begun)


class Costs:
    """CPU time of everybody in one side's turns: what a save costs, and how many cores are busy."""

    def __init__(self, servers, database):
        self.sources = {"servers": lambda: sum(server.cpu_s() for server in servers),
                        "database": database.cpu_s if database else lambda: 0.0,
                        "callers": time.process_time}
        self.used = dict.fromkeys(self.sources, 0.0)
        self.saves, self.wall_s = 0, 0.0

    def commits_per_s(self, jobs, count):
        before = {name: read() for name, read in self.sources.items()}
        rate = commits_per_s(jobs, count)
        for name, read in self.sources.items():
            self.used[name] += read() - before[name]
        self.saves += len(jobs) * count
        self.wall_s += len(jobs) * count / rate
        return rate

    def fields(self, side):
        costs = {name: round(1000 * used / self.saves, 2) for name, used in self.used.items()}
        return {"cpu_ms_a_save_" + side: costs,
                "busy_cores_" + side: round(sum(self.used.values()) / self.wall_s, 2)}


def commit_32(lab):
    database = lab.keep(Database(lab))
    for i, engine in enumerate(ENGINES):
        site = Site(lab, engine, database, PORT + i, arguments=["--request-workers", "64"])
        jobs = [Job(site, "run-%d" % number) for number in range(AT_ONCE)]
        ours, theirs = (Costs([site.server], site.database) for _ in range(2))
        together, alone = lab.pairs(
            lambda jobs=jobs, costs=ours: costs.commits_per_s(jobs, COMMITS // AT_ONCE),
            lambda jobs=jobs, costs=theirs: costs.commits_per_s(jobs[:1], COMMITS // 4))
        lab.report("%s_commits" % engine, [a / b for a, b in zip(together, alone)],
                   4.0 if engine == "postgresql" else None, "higher", together, alone, unit="1/s",
                   cores=len(os.sched_getaffinity(0)), **ours.fields("ours"),
                   **theirs.fields("theirs"))


# ---- servers-2 ----


class Pair:
    """Two servers on one catalog and one store, with the same grant key."""

    def __init__(self, lab, database):
        self.first = Site(lab, "postgresql", database)
        second = os.path.join(self.first.folder, "second")
        os.makedirs(os.path.join(second, "data"), mode=0o700)
        shutil.copy(os.path.join(self.first.folder, "data", "grant.key"),
                    os.path.join(second, "data"))
        os.symlink(os.path.join(self.first.folder, "store"), os.path.join(second, "store"))
        self.second = lab.keep(Server(second, PORT + 1, arguments=["--catalog",
                                                                   self.first.catalog]))


def servers_2(lab):
    database = lab.keep(Database(lab))
    pair = Pair(lab, database)
    both = [Job(pair.first, "both-%d" % number, server=(pair.first.server, pair.second)[number % 2])
            for number in range(AT_ONCE)]
    one = [Job(pair.first, "one-%d" % number) for number in range(AT_ONCE)]
    cores = len(os.sched_getaffinity(0))
    say("servers-2: %d cores for two servers, the database and the callers together" % cores)
    costs = [Costs([pair.first.server, pair.second], database) for _ in range(2)]
    ours, theirs = lab.pairs(lambda: costs[0].commits_per_s(both, COMMITS // AT_ONCE),
                             lambda: costs[1].commits_per_s(one, COMMITS // AT_ONCE))
    lab.report("commits", [a / b for a, b in zip(ours, theirs)], 1.5, "higher", ours, theirs,
               unit="1/s", cores=cores, **costs[0].fields("ours"), **costs[1].fields("theirs"))


# ---- register-nodes ----


class Memory(threading.Thread):
    """The highest of what the database had at any look."""

    def __init__(self, database):
        super().__init__(daemon=True)
        self.database, self.over, self.peak_mb = database, threading.Event(), 0
        self.start()

    def run(self):
        while not self.over.wait(0.2):
            self.peak_mb = max(self.peak_mb, self.database.memory_mb())

    def end(self):
        self.over.set()
        self.join()
        return self.peak_mb


def register_all(job, version):
    failed = []

    def send(nodes):
        connection = job.site.server.connect()
        try:
            for node in nodes:
                ranks = range(node * RANKS_A_NODE, (node + 1) * RANKS_A_NODE)
                job.register(version, ranks, SHARDS_A_RANK, connection)
        except Exception as error:  # pylint: disable=broad-except
            failed.append(error)

    threads = [threading.Thread(target=send, args=(range(i, NODES, SENDERS),))
               for i in range(SENDERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]


def register_nodes(lab):
    """From begin to commit, once on each engine."""
    database = lab.keep(Database(lab))
    walls = {}
    for i, engine in enumerate(ENGINES):
        site = Site(lab, engine, database, PORT + i)
        job = Job(site, "big", NODES * RANKS_A_NODE)
        memory, used = Memory(database), database.cpu_s()
        begun, cpu = time.monotonic(), site.server.cpu_s()
        version = job.begin()
        register_all(job, version)
        registered = time.monotonic() - begun
        job.wait(version)
        walls[engine] = time.monotonic() - begun
        peak = memory.end()
        lab.report("%s_s" % engine, [walls[engine]], None, "lower", unit="s",
                   registered_s=round(registered, 2),
                   server_cpu_s=round(site.server.cpu_s() - cpu, 2),
                   server_peak_mb=round(site.peak_mb()),
                   database_cpu_s=round(database.cpu_s() - used, 2) if site.database else None,
                   database_peak_mb=round(peak) if site.database else None,
                   ranks=NODES * RANKS_A_NODE, shards=NODES * RANKS_A_NODE * SHARDS_A_RANK)
    lab.report("postgresql_vs_sqlite", [walls["postgresql"] / walls["sqlite"]], None, "lower")


def figure(name, run, about, metrics):
    FIGURES[name] = Figure(run, about, metrics, {"cairn-server"}, ())


figure("pg-vs-sqlite", pg_vs_sqlite,
       "each call of a save and of a restore, the catalog in PostgreSQL against SQLite",
       [("%s_ms" % name, None, "lower") for name in CALLS])
figure("commit-32", commit_32, "saves of %d runs at once, against one after another" % AT_ONCE,
       [("%s_commits" % engine, 4.0 if engine == "postgresql" else None, "higher")
        for engine in ENGINES])
figure("servers-2", servers_2,
       "saves of %d runs at once over two servers of one catalog, against over one" % AT_ONCE,
       [("commits", 1.5, "higher")])
figure("register-nodes", register_nodes,
       "a save of %d nodes with %d ranks and %d shards, begin to commit, on both engines" %
       (NODES, NODES * RANKS_A_NODE, NODES * RANKS_A_NODE * SHARDS_A_RANK),
       [("%s_s" % engine, None, "lower") for engine in ENGINES])
