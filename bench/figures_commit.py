# SPDX-License-Identifier: Apache-2.0
"""Figures of the server's commits, from its own debug lines."""
import os
import re
import shutil
import subprocess
import tempfile

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
        self.steps = 0
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
            text = log.read()
        looks = re.findall(r"commit\.objects.* shards=%d .*waited_ms=(\d+)" % SHARDS, text)
        commits = re.findall(r"commit\.took.* ms=(\d+)", text)
        if len(looks) != self.steps or len(commits) != self.steps:
            raise RuntimeError("%d looks, %d commits of %d saves" % (len(looks), len(commits),
                                                                      self.steps))
        return float(looks[-1]), float(commits[-1])

    def close(self):
        for daemon in reversed(self.daemons):
            daemon.stop()
        shutil.rmtree(self.folder, ignore_errors=True)


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
