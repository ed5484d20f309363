# SPDX-License-Identifier: Apache-2.0
"""Runs one entry of ctest and ends it when it hangs: when nothing in it makes progress any more.

    watched.py COMMAND [ARGUMENT]...

Progress is output, or time on a processor. A process that waits for its turn on a busy machine is
runnable and counts as making progress, so how busy the machine is changes how long an entry takes and not
how it ends. An entry hangs when for CAIRN_TEST_HANG_S seconds (120) all of its processes slept, wrote
nothing and used less than a thousandth of one core. What each of its threads waits for is printed then.
Where CAIRN_TEST_MEMORY names a folder in memory, the entry writes to a folder of its own there (TMPDIR): it is
removed when the entry passes, and named when it fails. CAIRN_TEST_ON=disk: it writes to the disk.
The last line tells the seconds that it took and those on processors, of all processes that it waited for.
The exit status is the command's; 124 after a hang.
"""
import os
import pathlib
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

HANG_S = float(os.environ.get("CAIRN_TEST_HANG_S", 120))
LOOK_S = 2.0
SKIPPED = 77
PROC = pathlib.Path("/proc")


def parents():
    """{pid: parent} of all processes that are there."""
    found = {}
    for entry in PROC.iterdir():
        if entry.name.isdigit():
            try:
                found[int(entry.name)] = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
            except (OSError, IndexError):
                pass  # it ended meanwhile
    return found


def descendants(root):
    children = {}
    for pid, parent in parents().items():
        children.setdefault(parent, []).append(pid)
    found, left = [], [root]
    while left:
        pid = left.pop()
        found.append(pid)
        left += children.get(pid, [])
    return found


def threads(pid):
    try:
        return list((PROC / str(pid) / "task").iterdir())
    except OSError:
        return []


def state(thread):
    try:
        return (thread / "stat").read_text().rsplit(")", 1)[1].split()[0]
    except (OSError, IndexError):
        return "gone"


def processor_s(pids):
    """Seconds on processors of all their threads that live."""
    total = 0
    for thread in (thread for pid in pids for thread in threads(pid)):
        try:
            total += int((thread / "schedstat").read_text().split()[0])
        except (OSError, IndexError, ValueError):
            pass
    return total / 1e9


def tell(pids):
    print(f"watched: no progress for {HANG_S:g} s: all processes sleep", flush=True)
    for pid in pids:
        try:
            command = (PROC / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        print(f"watched:   {pid} {command[:200]}")
        for thread in threads(pid):
            try:
                name, where = (thread / "comm").read_text().strip(), (thread / "wchan").read_text()
            except OSError:
                continue
            print(f"watched:     {thread.name} {name} {state(thread)} {where}")
    sys.stdout.flush()


class Output(threading.Thread):
    """Passes the command's output on as it comes, and counts it."""

    def __init__(self, pipe):
        super().__init__(daemon=True)
        self.pipe, self.bytes = pipe, 0

    def run(self):
        while chunk := self.pipe.read1(65536):
            self.bytes += len(chunk)
            sys.stdout.buffer.write(chunk)
            sys.stdout.buffer.flush()


def watch(process, output):
    """The exit status; None when it hangs."""
    used, written, since = 0.0, 0, time.monotonic()
    while True:
        try:
            return process.wait(LOOK_S)
        except subprocess.TimeoutExpired:
            pass
        pids = descendants(process.pid)
        now = processor_s(pids)
        busy = any(state(thread) in "RD" for pid in pids for thread in threads(pid))
        if busy or output.bytes != written or abs(now - used) > 1e-3 * HANG_S:
            used, written, since = now, output.bytes, time.monotonic()
        elif time.monotonic() - since > HANG_S:
            tell(pids)
            for pid in reversed(pids):
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            process.wait()
            return None


def own_folder():
    """For all that the entry writes; None: where it would write by itself."""
    memory = os.environ.get("CAIRN_TEST_MEMORY")
    if not memory or os.environ.get("CAIRN_TEST_ON") == "disk":
        return None
    folder = tempfile.mkdtemp(prefix="t-", dir=memory)  # short: the paths of sockets have 107 bytes
    os.chmod(folder, 0o1777)  # as /tmp: PostgreSQL runs as another user
    return folder


def run():
    folder = own_folder()
    environment = {**os.environ, "TMPDIR": folder} if folder else None
    began = time.monotonic()
    process = subprocess.Popen(sys.argv[1:], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment)
    output = Output(process.stdout)
    output.start()
    status = watch(process, output)
    output.join(2)  # a daemon that stays may hold the pipe
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(f"watched: {time.monotonic() - began:.1f} s, {used.ru_utime + used.ru_stime:.1f} s on processors", flush=True)
    if folder and status in (0, SKIPPED):
        shutil.rmtree(folder, ignore_errors=True)
    elif folder:
        print(f"watched: what it wrote stays in {folder}, which is memory", flush=True)
    if status is None:
        return 124
    if status < 0:
        print(f"watched: ended by signal {-status} ({signal.Signals(-status).name})", flush=True)
        return 128 - status
    return status


if __name__ == "__main__":
    sys.exit(run())
