# SPDX-License-Identifier: Apache-2.0
"""What the server costs: sealing a save of many ranks, and `latest` of another run meanwhile."""
import http.client
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time

from bench.daemons import Daemon
from bench.figures_s3 import Figure
from bench.harness import ROOT
from bench.programs import program

FIGURES = {}

SHARDS = 4
SENDERS = 16
LATEST_EVERY_S = 0.005
SIZES = (512, 1024, 2048, 4096)


class Server:
    """cairn-server over a folder store; post() and get() over a connection of the caller."""

    def __init__(self, folder, port=7497, name=None, arguments=()):
        store = os.path.join(folder, "store")
        os.makedirs(store, exist_ok=True)
        self.port = port
        self.daemon = Daemon([name or program("cairn-server"), "--listen", "127.0.0.1:%d" % port,
                              "--store", store, "--data-dir", os.path.join(folder, "data"),
                              "--port-file", os.path.join(folder, "port"), *arguments],
                             os.path.join(folder, "log"), os.path.join(folder, "port"))
        self.daemon.start()

    def connect(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)

    def cpu_s(self):
        with open("/proc/%d/stat" % self.daemon.child.pid, encoding="ascii") as file:
            ticks = file.read().rsplit(")", 1)[1].split()
        return (int(ticks[11]) + int(ticks[12])) / os.sysconf("SC_CLK_TCK")

    def close(self):
        self.daemon.stop()


def call(connection, method, path, body=None):
    data = body if isinstance(body, (bytes, type(None))) else json.dumps(body).encode()
    connection.request(method, path, data, {"Content-Type": "application/json"} if data else {})
    reply = connection.getresponse()
    text = reply.read()
    if reply.status not in (200, 201):
        raise RuntimeError("%s %s: %d %s" % (method, path, reply.status, text[:300]))
    return json.loads(text)


def open_run(connection, run, ranks):
    """The grant of its first attempt, and the version that all ranks have begun."""
    path = "/v1/runs/bench/" + run
    attempt = call(connection, "POST", path + "/attempts", {
        "job": "j", "world_size": ranks, "after": 0, "node": "n", "resume": "none",
        "ranks": [{"rank": rank, "proc": "p%d" % rank} for rank in range(ranks)]})
    begun = call(connection, "POST", path + "/checkpoints", {
        "grant": attempt["grant"], "node": "n",
        "begins": [{"step": 1, "n": 1, "rank": rank, "world_size": ranks}
                   for rank in range(ranks)]})
    return attempt["grant"], begun["results"][0]["version"]


def seal(grant, rank):
    """One rank's call: its shards, all of them empty, and its seal."""
    names = ["rank-%05d/part-%d" % (rank, i) for i in range(SHARDS)]
    return json.dumps({
        "grant": grant, "node": "n",
        "shards": [{"name": name, "rank": rank, "bytes": 0, "crc32c": "00000000", "blocks": "",
                    "token": "00000000-0000-4000-8000-%012d" % rank} for name in names],
        "seals": [{"rank": rank, "bytes": 0,
                   "shards": [{"name": name, "bytes": 0} for name in names]}]}).encode()


class Latest(threading.Thread):
    """GET latest of a run that has nothing to do with it, again and again."""

    def __init__(self, server, run):
        super().__init__(daemon=True)
        self.connection, self.path = server.connect(), "/v1/runs/bench/" + run
        self.times, self.stopping = [], False

    def run(self):
        while not self.stopping:
            begun = time.monotonic()
            call(self.connection, "GET", self.path)
            self.times.append(time.monotonic() - begun)
            time.sleep(LATEST_EVERY_S)

    def p99_ms(self):
        self.stopping = True
        self.join(60)
        return 1000 * sorted(self.times)[int(len(self.times) * 0.99)]


def send_all(server, path, bodies):
    """All bodies, by SENDERS connections."""
    failed = []

    def send(mine):
        connection = server.connect()
        try:
            for body in mine:
                call(connection, "POST", path, body)
        except Exception as error:  # pylint: disable=broad-except
            failed.append(error)

    threads = [threading.Thread(target=send, args=(bodies[i::SENDERS],)) for i in range(SENDERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]


def register(server, ranks):
    """All ranks but one register and seal: seconds, the server's CPU, p99 of a look meanwhile."""
    connection = server.connect()
    open_run(connection, "other-%d" % ranks, 1)
    grant, version = open_run(connection, "run-%d" % ranks, ranks)
    bodies = [seal(grant, rank) for rank in range(ranks - 1)]
    watcher = subprocess.Popen(
        [sys.executable, "-c", "from bench import figures_server as f; f.watch()", str(server.port),
         "other-%d" % ranks], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    watcher.stdout.readline()
    begun, cpu = time.monotonic(), server.cpu_s()
    send_all(server, "/v1/runs/bench/run-%d/checkpoints/%s/shards" % (ranks, version), bodies)
    seconds, cpu = time.monotonic() - begun, server.cpu_s() - cpu
    p99 = float(watcher.communicate(b"\n")[0])
    return seconds, cpu, p99


def watch():
    """In a process of its own, so that the senders' Python does not stand in its way."""
    class Port:
        port = int(sys.argv[1])

        def connect(self):
            return http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)

    latest = Latest(Port(), sys.argv[2])
    latest.start()
    print("ready", flush=True)
    sys.stdin.readline()
    print(latest.p99_ms(), flush=True)


def register_figure(lab):
    per_rank = {}
    for ranks in SIZES:
        folder = tempfile.mkdtemp(prefix="register-", dir=lab.folder)
        server = lab.keep(Server(folder))
        seconds, cpu, p99 = register(server, ranks)
        server.close()
        shutil.rmtree(folder, ignore_errors=True)
        per_rank[ranks] = cpu / ranks
        last = ranks == SIZES[-1]
        lab.report("cpu_s_%d" % ranks, [cpu], 3.0 if last else None, "lower", unit="s",
                   seconds=round(seconds, 3), shards=ranks * SHARDS)
        lab.report("latest_p99_ms_%d" % ranks, [p99], 50.0 if last else None, "lower", unit="ms")
    lab.report("cpu_per_rank_4096_vs_512", [per_rank[SIZES[-1]] / per_rank[SIZES[0]]], 1.5, "lower")


FIGURES["register"] = Figure(
    register_figure, "registering and sealing a save of 512 to 4,096 ranks, each with 4 shards",
    [("cpu_s_4096", 3.0, "lower"), ("latest_p99_ms_4096", 50.0, "lower"),
     ("cpu_per_rank_4096_vs_512", 1.5, "lower")], {"cairn-server"}, ())


# ---- callers that a server should not have ----

def hostile_callers():
    """tests/e2e/hostile.py: the attacks are those of the test."""
    sys.path.insert(0, os.path.join(ROOT, "tests", "e2e"))
    import hostile as module  # noqa: PLC0415  it is of the tests

    return module


HOSTILE_S = 2.0
HOSTILE = ("idle", "slow", "objects", "parameters", "streams")


def hostile(lab):
    callers = hostile_callers()
    folder = tempfile.mkdtemp(prefix="hostile-", dir=lab.folder)
    server = lab.keep(Server(folder))
    connection = server.connect()
    call(connection, "PUT", "/v1/runs/bench/hostile", {})
    ordinary = callers.Ordinary(server.port, "bench/hostile")
    ordinary.calls = ordinary.calls[1:]  # it has no checkpoint
    ordinary.go(HOSTILE_S)
    for attack in HOSTILE:
        pairs = []
        for _ in range(lab.pairs_wanted):
            without = callers.p99(ordinary.go(HOSTILE_S))
            with callers.Under(attack, server.port, ordinary) as under:
                took = under.took + ordinary.go(HOSTILE_S)
            pairs.append((1000 * callers.p99(took), 1000 * without))
        lab.report("p99_%s" % attack, [a / b for a, b in pairs], 3.0, "lower",
                   [a for a, _ in pairs], [b for _, b in pairs], unit="ms")
    connection.close()
    shutil.rmtree(folder, ignore_errors=True)


FIGURES["hostile"] = Figure(
    hostile, "p99 of ordinary calls while a server is under each attack of tests/e2e/hostile.py / "
    "the same before it", [("p99_%s" % attack, 3.0, "lower") for attack in HOSTILE],
    {"cairn-server"}, ())


def main():
    """python3 -m bench.figures_server PROGRAM: the curve of another build."""
    for ranks in SIZES:
        with tempfile.TemporaryDirectory() as folder:
            server = Server(folder, name=sys.argv[1])
            seconds, cpu, p99 = register(server, ranks)
            server.close()
            print(json.dumps({"ranks": ranks, "seconds": round(seconds, 2), "cpu_s": round(cpu, 2),
                              "latest_p99_ms": round(p99, 1)}), flush=True)


if __name__ == "__main__":
    main()
