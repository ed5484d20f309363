# SPDX-License-Identifier: Apache-2.0
"""Restores of the same bytes by several ranks and nodes, over a store that gives so much and no more."""
import json
import os
import shutil
import subprocess
import tempfile
import time
import urllib.request

from bench import peers
from bench.daemons import Daemon
from bench.figures_s3 import Figure
from bench.programs import program

FIGURES = {}
MIB = 1 << 20
RUN = "bench/restore"
SERVER_PORT = 7493
NODES = 4
SHARED_BYTES_PER_S = 400_000_000  # of a store to one node
TOTAL_BYTES_PER_S, LINK_BYTES_PER_S = 200_000_000, 50_000_000  # of a store, and of one connection to it


def figure(name, about, metrics):
    def keep(run):
        FIGURES[name] = Figure(run, about, metrics,
                               {"cairn-server", "cairn-uploader", "s3fault", "trainer", "restorer"}, ())
        return run
    return keep


class World:
    """A server and a store in memory with one version; uploaders as they are wanted."""

    def __init__(self, lab, size, *caps):
        self.folder, self.daemons, self.jobs, self.size = tempfile.mkdtemp(prefix="r-", dir=lab.folder), [], 0, size
        keys = {"AWS_ACCESS_KEY_ID": "AK", "AWS_SECRET_ACCESS_KEY": "SK", "AWS_REGION": "us-east-1",
                "AWS_EC2_METADATA_DISABLED": "true"}
        self.environment = dict(peers.environment(), **keys, LD_LIBRARY_PATH=os.path.dirname(program("cairn-server")))
        try:
            self.start("s3fault", "--port", "0", "--port-file", self.path("s3fault.ready"), "--bucket", "lab",
                       "--access-key", "AK", "--secret-key", "SK", "--memory-max", "16GiB", *caps)
            with open(self.path("s3fault.ready"), encoding="ascii") as file:
                self.s3 = "http://127.0.0.1:%d" % int(file.read().split()[0])
            self.environment["AWS_ENDPOINT_URL"] = self.s3
            self.start("cairn-server", "--listen", "127.0.0.1:%d" % SERVER_PORT, "--store", "s3://lab/cairn",
                       "--data-dir", self.path("data"), "--port-file", self.path("cairn-server.ready"))
            self.nodes("save", 1)
            self.save()
        except BaseException:
            self.close()
            raise

    def path(self, name):
        return os.path.join(self.folder, name)

    def start(self, name, *arguments, log=None):
        ready = self.path((log or name) + ".ready")
        self.daemons.append(Daemon([program(name), *arguments], self.path((log or name) + ".log"), ready,
                                   self.environment))
        self.daemons[-1].start()

    def nodes(self, kind, count, *arguments):
        """Uploaders named KIND-0 and so on."""
        for number in range(count):
            node = "%s-%d" % (kind, number)
            self.start("cairn-uploader", "--server", "http://127.0.0.1:%d" % SERVER_PORT, "--store",
                       "s3://lab/cairn", "--run-dir", self.folder, "--socket", self.path(node), "--state-dir",
                       self.folder, "--node", node, "--memory-budget", "8GiB", "--ready-file",
                       self.path(node + ".ready"), *arguments, log=node)

    def child(self, command, kind, rank, hold, **environment):
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True,
                                env=dict(self.environment, CAIRN_SOCKET=self.path(kind), RESTORER_HOLD=hold, RESTORER_SLICE="512",
                                         CAIRN_JOB="job-%d" % self.jobs, **environment))

    def save(self):
        child = self.child([program("tests/trainer"), RUN, "0", "1", "1"], "save-0", 0, "",
                           TRAINER_ROWS=str(self.size // MIB))
        if child.wait(600):
            raise RuntimeError("the version could not be saved")

    def sent(self):
        """Bytes of shards that the store has sent."""
        with urllib.request.urlopen(self.s3 + "/-/journal", timeout=30) as reply:
            lines = [json.loads(line) for line in reply.read().decode().splitlines()]
        return sum(line["bytes_out"] for line in lines if line["op"] == "get" and "/data/" in line["key"])

    def restore(self, kind, nodes, ranks_per_node):
        """(seconds of the slowest rank, bytes that the store has sent); all begin at one moment."""
        self.jobs += 1
        ranks, hold = nodes * ranks_per_node, self.path("go-%d" % self.jobs)
        children = [self.child([program("tests/restorer"), RUN, str(rank), str(ranks), str(ranks_per_node)],
                               "%s-%d" % (kind, rank // ranks_per_node), rank, hold) for rank in range(ranks)]
        for child in children:
            for what in ("open", "restore"):
                if json.loads(child.stdout.readline()) != {what: "ok"}:
                    raise RuntimeError("a rank could not %s" % what)
        before = self.sent()
        with open(hold, "w", encoding="ascii"):
            pass
        said = [json.loads(child.communicate(timeout=600)[0].splitlines()[-1]) for child in children]
        if any(each.get("bytes", 0) < self.size for each in said):
            raise RuntimeError("a rank has restored less: %s" % said)
        time.sleep(0.2)  # the last line of the journal
        return max(each["ms"] for each in said) / 1000, self.sent() - before

    def close(self):
        for daemon in reversed(self.daemons):
            daemon.stop()
        shutil.rmtree(self.folder, ignore_errors=True)


def compare(lab, world, ours, theirs):
    """[(ours, theirs)] of each pair."""
    return [(world.restore(*ours), world.restore(*theirs)) for _ in range(lab.pairs_wanted)]


@figure("restore-shared", "8 ranks of a node want the same 1 GiB of a store of 400 MB/s, against one rank; and how "
        "often the store has sent it", [("time", 1.4, "lower"), ("store_bytes", 1.0, "lower")])
def restore_shared(lab):
    world = lab.keep(World(lab, lab.bytes, "--cap-all-bytes-per-s", str(SHARED_BYTES_PER_S)))
    world.nodes("shared", 1)
    pairs = compare(lab, world, ("shared", 1, 8), ("shared", 1, 1))
    lab.report("time", [ours[0] / theirs[0] for ours, theirs in pairs], 1.4, "lower",
               [ours[0] for ours, _ in pairs], [theirs[0] for _, theirs in pairs], unit="s", bytes=lab.bytes)
    lab.report("store_bytes", [ours[1] / theirs[1] for ours, theirs in pairs], 1.0, "lower",
               [ours[1] for ours, _ in pairs], [theirs[1] for _, theirs in pairs], unit="B", bytes=lab.bytes)


@figure("fan-out", "4 uploaders want the same 2 GiB of a store of 200 MB/s in all and 50 MB/s a connection, the "
        "nodes dividing it, against each reading all; and how often the store has sent it",
        [("speed", 3.0, "higher"), ("store_bytes", 1.02, "lower")])
def fan_out(lab):
    size = 2 * lab.bytes
    world = lab.keep(World(lab, size, "--cap-all-bytes-per-s", str(TOTAL_BYTES_PER_S), "--cap-bytes-per-s",
                           str(LINK_BYTES_PER_S)))
    world.nodes("divided", NODES, "--peer-listen", "127.0.0.1:0", "--heartbeat", "500ms")
    world.nodes("alone", NODES)
    pairs = compare(lab, world, ("divided", NODES, 1), ("alone", NODES, 1))
    lab.report("speed", [theirs[0] / ours[0] for ours, theirs in pairs], 3.0, "higher",
               [size / ours[0] / 1e6 for ours, _ in pairs], [size / theirs[0] / 1e6 for _, theirs in pairs],
               unit="MB/s a node", bytes=size)
    lab.report("store_bytes", [ours[1] / size for ours, _ in pairs], 1.02, "lower",
               [ours[1] for ours, _ in pairs], [theirs[1] for _, theirs in pairs], unit="B", bytes=size)
