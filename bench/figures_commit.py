# SPDX-License-Identifier: Apache-2.0
"""Figures of the server's commits, from its own debug lines."""
import os
import re
import shutil
import sqlite3
import subprocess
import tempfile
import time
import urllib.request

from bench import peers
from bench.daemons import Daemon
from bench.figures_s3 import Figure
from bench.programs import program

FIGURES = {}
SHARDS = 1000
SHARD_BYTES = 4096
SERVER_PORT = 7497
S3FAULT_PORT = 7496
DELAY_MS = 30  # of every answer; what an endpoint in the same region takes
KEYS = {"AWS_ACCESS_KEY_ID": "s3fault", "AWS_SECRET_ACCESS_KEY": "s3fault-secret",
        "AWS_REGION": "us-east-1", "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_ENDPOINT_URL": "http://127.0.0.1:%d" % S3FAULT_PORT}


class Node:
    """Server and uploader over one store, and a directory of shards to put."""

    def __init__(self, lab, store, environment):
        self.environment = dict(peers.environment(), **environment)
        self.folder = tempfile.mkdtemp(prefix="commit-", dir=lab.folder)
        self.steps, self.took_seconds = 0, 0.0
        self.source = self.path("source")
        os.makedirs(self.source)
        for i in range(SHARDS):
            with open(os.path.join(self.source, "%04d" % i), "wb") as shard:
                shard.write(os.urandom(SHARD_BYTES))
        if not store:
            store = self.path("store")
            os.makedirs(store)
        url = "127.0.0.1:%d" % SERVER_PORT
        self.daemons = [
            Daemon([program("cairn-server"), "--listen", url, "--store", store, "--data-dir",
                    self.path("data"), "--port-file", self.path("port"), "--log-level", "debug"],
                   self.path("server.log"), self.path("port"), self.environment),
            Daemon([program("cairn-uploader"), "--server", "http://" + url, "--store", store,
                    "--run-dir", self.folder, "--socket", self.path("s"), "--state-dir",
                    self.folder, "--node", "bench", "--ready-file", self.path("ready")],
                   self.path("uploader.log"), self.path("ready"), self.environment)]
        self.environment.update(CAIRN_SERVER="http://" + url, CAIRN_SOCKET=self.path("s"))
        try:
            for daemon in self.daemons:
                daemon.start()
        except BaseException:
            self.close()
            raise

    def path(self, name):
        return os.path.join(self.folder, name)

    def commit(self):
        """One save; (milliseconds of waiting for the objects, milliseconds of the commit)."""
        self.steps += 1
        put = subprocess.run([program("cairn"), "put", self.source, "bench/commit@%d" % self.steps],
                             env=self.environment, capture_output=True, text=True, timeout=120)
        if put.returncode:
            raise RuntimeError("put: " + put.stderr[-500:])
        with open(self.path("server.log"), encoding="utf-8", errors="replace") as log:
            looks = re.findall(r"commit\.objects.* shards=%d .*waited_ms=(\d+)" % SHARDS, log.read())
        if len(looks) != self.steps:
            raise RuntimeError("%d looks of %d saves" % (len(looks), self.steps))
        return float(looks[-1]), self.took()

    def took(self):
        """Milliseconds of the newest commit, by the server's own clock; it is counted just after `put` was told."""
        for _ in range(200):
            with urllib.request.urlopen("http://127.0.0.1:%d/metrics" % SERVER_PORT, timeout=10) as answer:
                text = answer.read().decode()
            count, total = (float(re.search(r"^cairn_commit_duration_seconds_%s (\S+)" % what, text, re.M)[1])
                            for what in ("count", "sum"))
            if count == self.steps:
                took, self.took_seconds = total - self.took_seconds, total
                return 1000 * took
            time.sleep(0.01)
        raise RuntimeError("%d commits of %d saves" % (count, self.steps))

    def close(self):
        for daemon in reversed(self.daemons):
            daemon.stop()
        shutil.rmtree(self.folder, ignore_errors=True)


    def documents(self):
        """(sizes of what the last commit published before its transaction), the folder that holds it."""
        for where, _, names in os.walk(self.path("store")):
            if "%012d" % self.steps in where and "manifest.json" in names:
                return [os.path.getsize(os.path.join(where, name))
                        for name in ("checksums.bin", "manifest.json")], where
        raise RuntimeError("no manifest of save %d" % self.steps)


def publish(folder, name, size):
    """As a folder store does it: no reader sees a part, and a crash after it loses nothing."""
    final = os.path.join(folder, name)
    with open(final + ".tmp", "wb", buffering=0) as file:
        file.write(bytes(size))
        os.fdatasync(file.fileno())
    os.link(final + ".tmp", final)
    os.unlink(final + ".tmp")
    directory = os.open(folder, os.O_RDONLY)
    os.fsync(directory)
    os.close(directory)


class Least:
    """What no commit can do without: its two documents, one after the other, and a transaction."""

    def __init__(self, node):
        self.node, self.count = node, 0
        self.folder = os.path.join(node.path("store"), "least")
        os.makedirs(self.folder)
        self.catalog = sqlite3.connect(os.path.join(node.path("data"), "least.db"), isolation_level=None)
        self.catalog.execute("PRAGMA journal_mode = WAL")
        self.catalog.execute("PRAGMA synchronous = FULL")
        self.catalog.execute("CREATE TABLE versions(version INTEGER PRIMARY KEY, manifest BLOB)")

    def commit(self):
        sizes, _ = self.node.documents()
        self.count += 1
        start = time.monotonic()
        for number, size in enumerate(sizes):
            publish(self.folder, "%d-%d" % (self.count, number), size)
        self.catalog.execute("INSERT INTO versions VALUES(?, ?)", (self.count, bytes(1000)))
        return (time.monotonic() - start) * 1000

    def close(self):
        self.catalog.close()


class S3Fault:
    """An S3 server whose every answer takes DELAY_MS."""

    def __init__(self, lab):
        ready = os.path.join(lab.folder, "s3fault.port")
        self.daemon = Daemon([program("s3fault"), "--port", str(S3FAULT_PORT), "--bucket", "lab",
                              "--port-file", ready, "--rules", "op=* : delay=%d" % DELAY_MS],
                             os.path.join(lab.folder, "s3fault.log"), ready)
        self.daemon.start()

    def close(self):
        self.daemon.stop()


def shares(lab, metric, node):
    node.commit()  # the first one learns what the store does
    runs = [node.commit() for _ in range(lab.pairs_wanted)]
    looks, commits = [x[0] for x in runs], [x[1] for x in runs]
    lab.report(metric, [a / max(b, 1) for a, b in runs], 0.1, "lower", looks, commits, unit="ms")


def figure(name, about, metrics, targets):
    def keep(run):
        FIGURES[name] = Figure(run, about, metrics, targets, ())
        return run
    return keep


@figure("commit-look", "what a commit of %d shards waits for its own look at them" % SHARDS,
        [("folder", 0.1, "lower"), ("s3", 0.1, "lower")],
        {"cairn-server", "cairn-uploader", "cairn-command", "s3fault"})
def commit_look(lab):
    node = Node(lab, None, {})
    try:
        shares(lab, "folder", node)
    finally:
        node.close()
    lab.keep(S3Fault(lab))
    shares(lab, "s3", lab.keep(Node(lab, "s3://lab/bench", KEYS)))


@figure("commit-1000", "from the last seal to the record of a version of %d shards, against two publishes of "
        "documents of the same sizes and one commit of SQLite with synchronous = FULL" % SHARDS,
        [("folder", 1.5, "lower")], {"cairn-server", "cairn-uploader", "cairn-command"})
def commit_1000(lab):
    node = lab.keep(Node(lab, None, {}))
    node.commit()  # the first one writes the layout, too
    least = lab.keep(Least(node))
    least.commit()
    ours, theirs = [], []
    for _ in range(lab.pairs_wanted):
        ours.append(node.commit()[1])
        theirs.append(least.commit())
    lab.report("folder", [a / b for a, b in zip(ours, theirs)], 1.5, "lower", ours, theirs, unit="ms")
