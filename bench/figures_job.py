# SPDX-License-Identifier: Apache-2.0
"""Figures of whole saves and restores, as a user runs them: files got back, and a training job."""
import filecmp
import json
import os
import shutil
import statistics
import subprocess
import tempfile
import time

from bench import peers
from bench.daemons import Daemon
from bench.figures_s3 import Figure
from bench.harness import Skip
from bench.programs import Sink, program

FIGURES = {}
SERVER_PORT = 7495
TORCH_PORT = 7460
TREE_FILES = 8
TICK = os.sysconf("SC_CLK_TCK")


def figure(name, about, metrics, targets, wanted=()):
    def keep(run):
        FIGURES[name] = Figure(run, about, metrics, targets, wanted)
        return run
    return keep


def cpu_of(pid):
    with open("/proc/%d/stat" % pid, encoding="ascii") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICK


def files_below(folder):
    return sorted(os.path.join(where, name) for where, _, names in os.walk(folder)
                  for name in names)


def cool(folder):
    """What is written is written, and nothing of it is left in memory."""
    if folder.startswith("s3://"):
        return
    os.sync()
    for path in files_below(folder):
        try:
            fd = os.open(path, os.O_RDONLY)
        except FileNotFoundError:
            continue  # the server puts a new number beside the last one and removes that
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


def environment_of(sink=None):
    return dict(peers.environment(), **({"AWS_ENDPOINT_URL": sink.url} if sink else {}))


class Daemons:
    """Server and uploader over a folder (`within`: in which one), or over the sink; relay: a class
    for what is between them."""

    def __init__(self, lab, sink=None, relay=None, grace="0ms", within=None):
        self.folder = tempfile.mkdtemp(prefix="job-", dir=lab.folder)
        self.store = "s3://bench/cairn" if sink else os.path.join(within or self.folder, "store")
        if not sink:
            os.makedirs(self.store)
        url = "127.0.0.1:%d" % SERVER_PORT
        self.relay = lab.keep(relay(SERVER_PORT)) if relay else None
        through = "127.0.0.1:%d" % self.relay.port if relay else url
        self.environment = dict(environment_of(sink), CAIRN_URL="http://" + url,
                                CAIRN_SOCKET=self.path("s"), CAIRN_PROGRESS="none",
                                LD_LIBRARY_PATH=os.path.dirname(program("cairn")))
        self.daemons = [
            Daemon([program("cairn-server"), "--listen", url, "--store", self.store, "--data-dir",
                    self.path("data"), "--port-file", self.path("port"), "--trash-grace", grace,
                    "--sweep-interval", "200ms"],
                   self.path("server.log"), self.path("port"), self.environment),
            Daemon([program("cairn-uploader"), "--server", "http://" + through, "--store", self.store,
                    "--run-dir", self.folder, "--socket", self.path("s"), "--state-dir",
                    self.folder, "--node", "bench", "--memory-budget", "8GiB", "--ready-file",
                    self.path("ready")],
                   self.path("uploader.log"), self.path("ready"), self.environment)]
        try:
            for daemon in self.daemons:
                daemon.start()
        except BaseException:
            self.close()
            raise

    def path(self, name):
        return os.path.join(self.folder, name)

    def cairn(self, *arguments):
        done = subprocess.run([program("cairn"), *arguments], env=self.environment,
                              capture_output=True, text=True, timeout=600)
        if done.returncode:
            raise RuntimeError("cairn %s: %s" % (arguments[0], done.stderr[-500:]))

    def cpu(self):
        return sum(cpu_of(daemon.child.pid) for daemon in self.daemons)

    def close(self):
        for daemon in reversed(self.daemons):
            daemon.stop()
        shutil.rmtree(self.folder, ignore_errors=True)  # the next figure needs the space


# ---- files ----


def timed(command, environment):
    """(seconds, CPU seconds) of a whole program."""
    start = time.monotonic()
    child = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise RuntimeError("%s ended with %d" % (command[0], child.returncode))
    return time.monotonic() - start, usage.ru_utime + usage.ru_stime


@figure("get-files", "cairn get of 2 GiB into files, against cp and fdatasync of the same cold bytes",
        [("store", 0.85, "higher"), ("server", 0.7, "higher")],
        {"cairn-server", "cairn-uploader", "cairn-command"})
def get_files(lab):
    daemons = lab.keep(Daemons(lab))
    source, target = daemons.path("source"), daemons.path("target")
    os.makedirs(source)
    for i in range(TREE_FILES):
        with open(os.path.join(source, "%d" % i), "wb") as file:
            random = os.urandom(1 << 20)  # no two blocks of a file are alike: each has its number
            for block in range(2 * lab.bytes // TREE_FILES >> 20):
                file.write(block.to_bytes(8, "little") + random[8:])
    daemons.cairn("put", source, "bench/files@1")

    def run(command, cold):
        shutil.rmtree(target, ignore_errors=True)
        cool(cold)
        took = timed(command, daemons.environment)
        match, mismatch, errors = filecmp.cmpfiles(source, target, os.listdir(source), False)
        if mismatch or errors or len(match) != TREE_FILES:
            raise RuntimeError("%s gave other files" % command[0])
        return took

    get = [program("cairn"), "get", "bench/files@1", "-d", target]
    copy = ["sh", "-c", 'mkdir "$2" && cp "$1"/* "$2" && sync -d "$2"/*', "copy", source, target]
    ways = {"store": (get + ["--store", daemons.store], 0.85), "server": (get, 0.7)}
    for metric, (command, goal) in ways.items():
        a, b = lab.pairs(lambda c=command: run(c, daemons.store), lambda: run(copy, source))
        lab.report(metric, [y[0] / x[0] for x, y in zip(a, b)], goal, "higher",
                   [x[0] for x in a], [y[0] for y in b], unit="s", peer="cp, sync -d",
                   cpu=[round(sum(x[1] for x in side) / len(side), 2) for side in (a, b)])


# ---- a training job ----


class Ranks:
    """Processes that do one thing together; their answers are one: the slowest, and all CPU."""

    def __init__(self, commands, environment):
        self.children = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                          env=environment, text=True) for command in commands]
        self.bytes = sum(answer["bytes"] for answer in self.answers())

    def answers(self):
        lines = [child.stdout.readline() for child in self.children]
        if not all(lines):
            raise RuntimeError("a rank ended: %s" % [child.poll() for child in self.children])
        return [json.loads(line) for line in lines]

    def ask(self, what):
        for child in self.children:
            child.stdin.write(what + "\n")
            child.stdin.flush()
        answers = self.answers()
        return {name: (sum if name == "cpu" else max)(answer[name] for answer in answers)
                for name in answers[0]}

    def close(self):
        for child in self.children:
            child.stdin.close()
        for child in self.children:
            try:
                child.wait(20)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
            child.stdout.close()


class CairnJob:
    def __init__(self, lab, daemons, width, ranks):
        self.daemons, self.name = daemons, "Cairn"
        self.run = "bench/job-%d" % ranks
        self.ranks = lab.keep(Ranks(
            [[program("bench_job"), "--socket", daemons.path("s"), "--run", self.run, "--width",
              str(width), "--rank", str(rank), "--ranks", str(ranks)] for rank in range(ranks)],
            daemons.environment))
        self.step = 0

    def save(self):
        used = self.daemons.cpu()
        answer = self.ranks.ask("save")
        answer["cpu"] += self.daemons.cpu() - used
        self.step += 1
        if self.step > 1:  # the others remove their last one, too
            self.daemons.cairn("rm", "%s@%d" % (self.run, self.step - 1), "--yes")
        return answer

    def restore(self):
        cool(self.daemons.store)
        used = self.daemons.cpu()
        answer = self.ranks.ask("restore")
        answer["cpu"] += self.daemons.cpu() - used
        return answer


class TorchJob:
    def __init__(self, lab, kind, width, ranks, within, sink=None):
        self.name = "%s (%s)" % (kind, VERSIONS[kind, bool(sink)]())
        self.sink, name = sink, "%s-%d" % (kind, ranks)
        folder = os.path.join(within, name)
        os.makedirs(folder)
        self.place = "s3://bench/" + name if sink else folder
        self.ranks = lab.keep(Ranks(
            [[peers.python_of("torch"), peers.script("job_torch.py"), kind, self.place,
              str(width), str(rank), str(ranks), str(TORCH_PORT + ranks), folder]
             for rank in range(ranks)], environment_of(sink)))

    def save(self):
        return self.ranks.ask("save")

    def restore(self):
        cool(self.place)
        answer = self.ranks.ask("restore")
        if self.sink:  # its memory is needed for the others
            self.sink.remove(self.place[len("s3:/"):] + "/")
        return answer


def torch_with(*packages):
    return lambda: ", ".join(["PyTorch " + peers.pypi_version("torch")] +
                             ["%s %s" % (name, peers.pypi_version(name)) for name in packages])


VERSIONS = {("dcp", False): torch_with(), ("dcp", True): torch_with("s3torchconnector"),
            ("torch", False): torch_with(), ("torch", True): torch_with("s3torchconnector"),
            ("raw", False): lambda: "write, read, fsync", ("numpy", False): torch_with("numpy"),
            ("safetensors", False): torch_with("safetensors"),
            ("safetensors", True): torch_with("safetensors", "s5cmd")}


def one_round(job):
    saved = job.save()
    restored = job.restore()
    return {"stall": saved["stall"], "durable": saved["durable"], "restore": restored["restore"],
            "cpu": saved["cpu"] + restored["cpu"]}


JOB_GOALS = {"stall": (0.2, "lower"), "durable": (2, "higher"), "restore": (1.5, "higher"),
             "cpu": (0.35, "lower")}


def ratios_of(name, rounds):
    lower = JOB_GOALS[name][1] == "lower"
    return [x[name] / y[name] if lower else y[name] / x[name] for x, y in rounds]


def report_job(lab, others, ranks):
    """others: by name, rounds of (ours, theirs). Of the stall DCP's counts, else the best one's."""
    for name, (goal, better) in JOB_GOALS.items():
        hardest = max if better == "lower" else min
        peer = next(iter(others)) if name == "stall" else hardest(
            others, key=lambda other, n=name: statistics.median(ratios_of(n, others[other])))
        rounds = others[peer]
        lab.report(name, ratios_of(name, rounds), goal, better, [x[name] for x, _ in rounds],
                   [y[name] for _, y in rounds], unit="s", ranks=ranks, peer=peer,
                   all={other: round(statistics.median(y[name] for _, y in theirs), 3)
                        for other, theirs in others.items()})


def run_jobs(lab, sink=None):
    """One of the others at a time: eight ranks of all of them do not fit into memory."""
    for peer in ("torch", "s3torchconnector", "s5cmd") if sink else ("torch",):
        if not peers.name_of(peer):
            raise Skip("%s could not be installed" % peer)
    # The model has 257 bytes for each of its width's squares, and must part evenly among 8 ranks.
    width = max(128, round((lab.bytes / 257) ** 0.5 / 128) * 128)
    daemons = lab.keep(Daemons(lab, sink))
    kept = len(lab.opened)
    for ranks in (1, 8):
        ours, others = CairnJob(lab, daemons, width, ranks), {}
        for kind in ("dcp", "torch", "safetensors"):
            theirs = TorchJob(lab, kind, width, ranks, daemons.folder, sink)
            a, b = lab.pairs(lambda: one_round(ours), lambda t=theirs: one_round(t))
            others[theirs.name] = list(zip(a, b))
            lab.opened.pop().close()
        report_job(lab, others, ranks)
        while len(lab.opened) > kept:  # all ranks end before others begin
            lab.opened.pop().close()


JOB_METRICS = [(name, *goal) for name, goal in JOB_GOALS.items()]
JOB_TARGETS = {"bench_job", "cairn-server", "cairn-uploader", "cairn-command"}


@figure("job-folder", "a job's save and restore in a folder, 1 and 8 ranks, against PyTorch's ways",
        JOB_METRICS, JOB_TARGETS, ("torch",))
def job_folder(lab):
    run_jobs(lab)


@figure("job-s3", "a job's save and restore in S3, 1 and 8 ranks, against PyTorch's ways",
        JOB_METRICS, JOB_TARGETS | {"bench_sink"}, ("torch", "s3torchconnector", "s5cmd"))
def job_s3(lab):
    # Two versions of each side are in the sink at once.
    run_jobs(lab, lab.keep(Sink(lab, keep=True, warm=4 * lab.bytes)))


# ---- memory ----


FAR_RATE, FAR_WAIT_MS = 25_000_000, 30  # of each connection; one rank's restore has eight at once


def job_of(lab, daemons, width, socket, job, step):
    return lab.keep(Ranks([[program("bench_job"), "--socket", daemons.path(socket), "--run", "bench/tier",
                            "--width", str(width), "--job", job, "--step", str(step)]],
                          daemons.environment))


@figure("memory-tier", "restore of a version that the node's uploader still has in memory after its trainer was "
        "killed, against reading it from a store of 25 MB/s a connection that answers after 30 ms",
        [("restore", 5, "higher")], JOB_TARGETS | {"bench_sink"})
def memory_tier(lab):
    sink = lab.keep(Sink(lab, keep=True))
    sink.reset(rate=FAR_RATE, wait_ms=FAR_WAIT_MS)
    daemons = lab.keep(Daemons(lab, sink))
    far = Daemon(daemons.daemons[1].command + ["--node", "far", "--socket", daemons.path("far"),
                                               "--ready-file", daemons.path("far.ready"), "--memory-tier", "0"],
                 daemons.path("far.log"), daemons.path("far.ready"), daemons.environment)
    daemons.daemons.append(far)
    far.start()
    width = max(128, round((lab.bytes / 257) ** 0.5 / 128) * 128)
    saver = job_of(lab, daemons, width, "s", "bench-1", 0)
    saver.ask("save")
    saver.children[0].kill()
    ours = job_of(lab, daemons, width, "s", "bench-2", 1)
    theirs = job_of(lab, daemons, width, "far", "bench-3", 1)
    a, b = lab.pairs(lambda: ours.ask("restore"), lambda: theirs.ask("restore"))
    for name in ("restore", "cpu"):
        lab.report(name, [y[name] / x[name] for x, y in zip(a, b)], 5 if name == "restore" else None, "higher",
                   [x[name] for x in a], [y[name] for y in b], unit="s", bytes=lab.bytes)


# ---- replicas ----


SPLIT_RANKS, SPLIT_WIDTH = 8, 640  # of 16 processes and 5,120


class SplitJob:
    """The job of DeepSpeed's pull request 1419, its weights saved once, split in one way."""

    def __init__(self, lab, daemons, by):
        self.daemons, self.run, self.step = daemons, "bench/split-" + by, 0
        self.ranks = lab.keep(Ranks(
            [[program("bench_split"), "--socket", daemons.path("s"), "--run", self.run, "--width",
              str(SPLIT_WIDTH), "--rank", str(rank), "--ranks", str(SPLIT_RANKS), "--by", by]
             for rank in range(SPLIT_RANKS)], daemons.environment))

    def save(self):
        answer = self.ranks.ask("save")
        if self.step == 0 and self.ranks.ask("restore")["wrong"]:
            raise RuntimeError("weights came back otherwise")
        self.step += 1
        if self.step > 1:
            self.daemons.cairn("rm", "%s@%d" % (self.run, self.step - 1), "--yes")
        return answer


@figure("split-1419", "one rank writing the weights of its data-parallel group, against each a share",
        [("balance", 1.01, "lower")],
        {"bench_split", "cairn-server", "cairn-uploader", "cairn-command"})
def split_1419(lab):
    """Ways of the same job in turn; the slowest rank counts. balance: the largest share of the
    weights against an even one."""
    daemons = lab.keep(Daemons(lab))
    jobs = {by: SplitJob(lab, daemons, by) for by in ("first", "layer", "tensor", "slice")}
    even = 2 * 12 * 8 * SPLIT_WIDTH ** 2 / SPLIT_RANKS
    for by in ("layer", "tensor", "slice"):
        a, b = lab.pairs(jobs[by].save, jobs["first"].save)
        for metric in ("stall", "durable"):
            lab.report(metric, [y[metric] / x[metric] for x, y in zip(a, b)],
                       None, "higher",
                       [x[metric] for x in a], [y[metric] for y in b], unit="s", by=by)
        lab.report("balance", [x["weights"] / even for x in a], 1.01 if by == "slice" else None,
                   "lower", by=by, alone=b[0]["weights"] / even)
