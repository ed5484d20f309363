# SPDX-License-Identifier: Apache-2.0
"""Builds, isolates, runs interleaved pairs and reports: what all figures of bench/run share.

A figure is a function that is given a Lab and calls lab.pairs() and lab.report(). Both sides of a
pair run one after the other, A/B/A/B, in one network namespace with one congestion control, with
memory touched and programs warm. The value of a ratio is the median of the ratios of the pairs; it
counts only when its quartiles lie within a fifth of it.
"""
import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

from bench import machine, smoke

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUILD = os.path.join(ROOT, "build", "release")
SPREAD_MAX = 0.20
IDLE_MIN = 0.9
GIB = 1 << 30


class Skip(Exception):
    """The figure cannot be measured here; the sentence says why."""


def say(text):
    print("bench: " + text, file=sys.stderr, flush=True)


def size_of(text):
    units = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "B": 1}
    for unit, factor in units.items():
        if text.endswith(unit):
            return int(text[: -len(unit)]) * factor
    return int(text)


def configure(folder, *options):
    if not os.path.exists(os.path.join(folder, "build.ninja")):
        subprocess.run(["cmake", "--preset", "release", "-B", folder, *options], cwd=ROOT,
                       check=True, stdout=sys.stderr)


def build(targets, folder=BUILD, *options):
    """The release preset, and of it only what the chosen figures need."""
    configure(folder, *options)
    command = ["cmake", "--build", folder, "-j2", "--target", *sorted(targets)]
    return subprocess.run(command, cwd=ROOT, stdout=sys.stderr).returncode == 0


def commit():
    def git(*words):
        done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True)
        return done.stdout.strip() if done.returncode == 0 else ""

    changed = git("status", "--porcelain", "--untracked-files=no")
    return (git("rev-parse", "--short=12", "HEAD") or "unknown") + ("+changes" if changed else "")


# ---- a network of our own ----


def isolated(arguments):
    """Run this program again inside a network namespace; None: there is none to be had."""
    for flags in (["-n"], ["-rn"]):
        if not shutil.which("unshare") or not shutil.which("ip"):
            break
        if subprocess.run(["unshare", *flags, "true"], capture_output=True).returncode:
            continue
        here = os.path.join(ROOT, "bench", "run")
        environment = dict(os.environ, CAIRN_BENCH_INSIDE="1")
        child = subprocess.Popen(["unshare", *flags, sys.executable, here, *arguments],
                                 env=environment)
        try:
            return child.wait()
        except KeyboardInterrupt:
            child.terminate()  # it ends what it started
            return child.wait()
    return None


def stop(*_):
    raise KeyboardInterrupt


def set_up_network():
    """Loopback up, cubic on its routes: pacing (bbr) moves loopback by a factor of two."""
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    route = ["ip", "route", "change", "local", "127.0.0.0/8", "dev", "lo", "proto", "kernel",
             "scope", "host", "src", "127.0.0.1", "table", "local", "congctl", "cubic"]
    if subprocess.run(route, capture_output=True).returncode:
        say("the routes did not take congctl cubic; programs that do not set it use the default")


# ---- one run of the bench ----


class Lab:
    def __init__(self, options):
        self.pairs_wanted = options.pairs
        self.bytes = options.bytes
        self.patience = options.patience
        self.idle = None
        self.isolated = bool(os.environ.get("CAIRN_BENCH_INSIDE"))
        self.commit = commit()
        self.machine = machine.cpu()
        self.lines = []
        self.failed = False
        self.bench = ""
        self.judge = smoke.Judge(ROOT) if options.smoke else None
        self.folder = tempfile.mkdtemp(prefix="cairn-bench-")
        self.disk = machine.disk_of(self.folder)
        self.shared = tempfile.mkdtemp(prefix="cairn-bench-", dir="/dev/shm")
        self.opened = []

    def keep(self, thing):
        """It is closed at the end of the figure, whatever happens."""
        self.opened.append(thing)
        return thing

    def close_all(self):
        while self.opened:
            self.opened.pop().close()

    def end(self):
        self.close_all()
        shutil.rmtree(self.folder, ignore_errors=True)
        shutil.rmtree(self.shared, ignore_errors=True)

    def pairs(self, ours, theirs, count=None):
        """Two lists of runs, interleaved after one warm-up each. Both are callables."""
        ours(), theirs()
        left, right = [], []
        for _ in range(count or self.pairs_wanted):
            left.append(ours())
            right.append(theirs())
        return left, right

    def report(self, metric, ratios, goal, better, ours=None, theirs=None, scale=None, **more):
        """One line. goal None: reported only. scale: what the spread of a difference is held
        against, instead of the difference itself."""
        value = statistics.median(ratios)
        q1, _, q3 = (statistics.quantiles(ratios, n=4, method="inclusive")
                     if len(ratios) > 1 else (value, value, value))
        ok = None
        if goal is not None:
            ok = value >= goal if better == "higher" else value <= goal
            if value and (q3 - q1) / (scale or abs(value)) > SPREAD_MAX:
                ok = None
                more.setdefault("reason", "not measurable now: the quartiles lie too far apart")
            if "ok" in more:
                ok = more.pop("ok")
        else:
            more.setdefault("reason", "reported only")
        if self.judge:
            more.pop("ok", None)
            ok, more["reason"] = self.judge.verdict(self.bench, metric, value)
        self.line(metric=metric, value=round(value, 4), goal=goal, better=better, ok=ok,
                  q1=round(q1, 4), q3=round(q3, 4),
                  ours=None if ours is None else round(statistics.median(ours), 4),
                  theirs=None if theirs is None else round(statistics.median(theirs), 4),
                  pairs=len(ratios), **more)

    def absent(self, metric, goal, better, reason, **more):
        self.line(metric=metric, value=None, goal=goal, better=better, ok=None, q1=None, q3=None,
                  ours=None, theirs=None, pairs=0, reason=reason, **more)

    def line(self, **fields):
        fields = {"bench": self.bench, **fields, "idle": self.idle, "commit": self.commit,
                  "machine": self.machine, "disk": self.disk}
        self.lines.append(fields)
        print(json.dumps(fields), flush=True)

    # Ratios that nearly every figure reports.

    def report_speed(self, ours, theirs, goal, **more):
        self.report("gb_per_s", [b.seconds / a.seconds * a.bytes / b.bytes
                                 for a, b in zip(ours, theirs)],
                    goal, "higher", [a.bytes / a.seconds / 1e9 for a in ours],
                    [b.bytes / b.seconds / 1e9 for b in theirs], **more)

    def report_cpu(self, ours, theirs, goal, **more):
        self.report("cpu_s_per_gb", [(a.cpu / a.bytes) / (b.cpu / b.bytes)
                                     for a, b in zip(ours, theirs)],
                    goal, "lower", [a.cpu / a.bytes * 1e9 for a in ours],
                    [b.cpu / b.bytes * 1e9 for b in theirs], **more)


def idle_share(seconds=0.5):
    """How much of the CPUs nobody used just now."""
    def read():
        with open("/proc/stat", encoding="ascii") as file:
            ticks = [int(word) for word in file.readline().split()[1:9]]
        return ticks[3] + ticks[4], sum(ticks)

    idle, total = read()
    time.sleep(seconds)
    later_idle, later_total = read()
    return (later_idle - idle) / max(1, later_total - total)


def wait_quiet(patience):
    """The machine is idle, or patience is at its end. Returns the idle share."""
    until = time.monotonic() + patience
    share = idle_share()
    while share < IDLE_MIN and time.monotonic() < until:
        time.sleep(1)
        share = idle_share(1)
    return share


def run_one(lab, name, figure):
    """In a short run a figure that is far from the page's value is measured again."""
    for _ in range(smoke.TRIES if lab.judge else 1):
        first = len(lab.lines)
        if lab.judge:
            lab.judge.begin()
        measure(lab, name, figure)
        if not lab.judge or all(line["ok"] is not False for line in lab.lines[first:]):
            return
        again = lab.lines[first:]
        del lab.lines[first:]
    lab.lines += again


def measure(lab, name, figure):
    lab.bench = name
    lab.idle = round(wait_quiet(lab.patience), 2)
    say("%s (%d %% of the CPUs idle)" % (name, 100 * lab.idle))
    try:
        figure.run(lab)
    except Skip as skip:
        for metric, goal, better in figure.metrics:
            lab.absent(metric, goal, better, str(skip))
    except Exception as problem:  # a figure that breaks must not hide the others
        lab.failed = True
        say("%s failed: %s: %s" % (name, type(problem).__name__, problem))
        for metric, goal, better in figure.metrics:
            lab.absent(metric, goal, better, "the measurement failed: %s" % problem)
        if os.environ.get("CAIRN_BENCH_TRACE"):
            raise
    finally:
        lab.close_all()


def number(value):
    return "-" if value is None else "%.3g" % value


def table(lines):
    rows = [("bench", "metric", "value", "q1..q3", "goal", "ours", "theirs", "")]
    verdicts = {True: "ok", False: "MISSED", None: "-"}
    for line in lines:
        sign = {"higher": ">= ", "lower": "<= "}[line["better"]]
        goal = "-" if line["goal"] is None else sign + number(line["goal"])
        note = verdicts[line["ok"]] + (" " + line["reason"] if line.get("reason") else "")
        side = line.get("peer") or line.get("by")
        name = line["metric"] + (" (%s)" % side if side else "")
        rows.append((line["bench"], name, number(line["value"]),
                     number(line["q1"]) + ".." + number(line["q3"]), goal, number(line["ours"]),
                     number(line["theirs"]), note))
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]) - 1)]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths)) + "  " + row[-1])


def tables_of(files):
    lines = []
    for path in files:
        with open(path, encoding="utf-8") as file:
            lines += [json.loads(text) for text in file if text.startswith("{")]
    table(lines)
    return 0


def parse(arguments):
    parser = argparse.ArgumentParser(prog="bench/run", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--pairs", type=int, default=9, help="interleaved pairs; default 9")
    parser.add_argument("--bytes", type=size_of, default=GIB, help="of one object; default 1GiB")
    parser.add_argument("--patience", type=int, default=0, metavar="SECONDS",
                        help="wait so long before each figure for idle CPUs; default 0")
    parser.add_argument("--smoke", action="store_true",
                        help="each side once, 256MiB: ok is whether a value is within a factor of 2 of the page's")
    parser.add_argument("--since", metavar="COMMIT",
                        help="only figures that measure code that was changed since")
    parser.add_argument("--list", action="store_true", help="names of the figures")
    parser.add_argument("--no-build", action="store_true", help="use what build/release holds")
    parser.add_argument("--no-install", action="store_true", help="never install a peer")
    parser.add_argument("--table", nargs="+", metavar="FILE", help="show kept results")
    options = parser.parse_args(arguments)
    if options.smoke:
        options.pairs, options.bytes = 1, 256 << 20
    return options


def main(arguments):
    from bench import (figures_catalog, figures_commit, figures_control, figures_formats,
                       figures_gpu, figures_job, figures_local, figures_lists, figures_python,
                       figures_reads, figures_restore, figures_s3, figures_server, peers)
    options = parse(arguments)
    figures = {**figures_s3.FIGURES, **figures_local.FIGURES, **figures_commit.FIGURES,
               **figures_server.FIGURES, **figures_lists.FIGURES, **figures_reads.FIGURES,
               **figures_catalog.FIGURES, **figures_job.FIGURES, **figures_formats.FIGURES,
               **figures_control.FIGURES, **figures_restore.FIGURES, **figures_gpu.FIGURES,
               **figures_python.FIGURES}
    if options.table:
        return tables_of(options.table)
    unknown = smoke.unknown_rows(ROOT, figures)
    if unknown:
        say("%s: %s has rows that no figure reports: %s" % (smoke.PAGE, smoke.HEADING, ", ".join(unknown)))
        return 2
    if options.list:
        for name, figure in figures.items():
            print("%-16s %s" % (name, figure.about))
        return 0
    unknown = [name for name in options.names if name not in figures]
    if unknown:
        say("no figure is called %s; bench/run --list shows them" % ", ".join(unknown))
        return 2
    names = options.names or list(figures)
    if options.since:
        configure(BUILD)
        changed = smoke.touched(ROOT, BUILD, figures, options.since)
        names = [name for name in names if name in changed]
        say("changed since %s: %s" % (options.since, " ".join(names) or "nothing that is measured"))
        if not names:
            return 0
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    inside = bool(os.environ.get("CAIRN_BENCH_INSIDE"))
    if not inside:
        targets = {target for name in names for target in figures[name].targets}
        if not options.no_build and not build(targets):
            say("the release build failed")
            return 2
        wanted = {peer for name in names for peer in figures[name].peers}
        peers.prepare(wanted, install=not options.no_install)
        status = isolated(arguments)
        if status is not None:
            return status
        say("no network namespace (needs root or user namespaces): measuring on the machine's own "
            "loopback; peers that need port 80 are left out")
    else:
        set_up_network()
    lab = Lab(options)
    try:
        for name in names:
            run_one(lab, name, figures[name])
    except KeyboardInterrupt:
        say("stopped")
        lab.failed = True
    finally:
        lab.end()
    if len(names) > 1:
        table(lab.lines)
    missed = [line for line in lab.lines if line["ok"] is False]
    return 2 if lab.failed else 1 if missed else 0
