# SPDX-License-Identifier: Apache-2.0
"""Runs one entry of ctest and ends it when it hangs: when nothing in it makes progress any more.

    watched.py COMMAND [ARGUMENT]...

Progress is output, or time on a processor. A process that waits for its turn on a busy machine is
runnable and counts as making progress, so how busy the machine is changes how long an entry takes and not
how it ends. An entry hangs when for CAIRN_TEST_HANG_S seconds (120) all of its processes slept, wrote
nothing and used less than a thousandth of one core. What each of its threads waits for is printed then.
Where CAIRN_TEST_MEMORY names a folder in memory, the entry writes to a folder of its own there (TMPDIR): it is
removed when the entry passes, and named when it fails. CAIRN_TEST_ON=disk: it writes to the disk.
The last line tells the seconds that it took, those on processors, of all processes that it waited for, and how many
of these in the kernel; tests/support/costs.py makes a table of them.
The exit status is the command's; 124 after a hang.
"""
import os
import resource
import select
import signal
import sys
import time

# One of these runs beside each entry: what it imports is most of what it costs, and subprocess, tempfile and pathlib
# would treble that.
HANG_S = float(os.environ.get("CAIRN_TEST_HANG_S", 120))
LOOK_S = HANG_S / 24
SKIPPED = 77


def read(*place):
    with open("/proc/" + "/".join(map(str, place)), "rb") as file:
        return file.read().decode(errors="replace")


def parents():
    """{pid: parent} of all processes that are there."""
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                found[int(name)] = int(read(name, "stat").rsplit(")", 1)[1].split()[1])
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
    """The places of its threads below /proc."""
    try:
        return [f"{pid}/task/{thread}" for thread in os.listdir(f"/proc/{pid}/task")]
    except OSError:
        return []


def state(thread):
    try:
        return read(thread, "stat").rsplit(")", 1)[1].split()[0]
    except (OSError, IndexError):
        return "gone"


def processor_s(pids):
    """Seconds on processors of all their threads that live."""
    total = 0
    for thread in (thread for pid in pids for thread in threads(pid)):
        try:
            total += int(read(thread, "schedstat").split()[0])
        except (OSError, IndexError, ValueError):
            pass
    return total / 1e9


def tell(pids):
    print(f"watched: no progress for {HANG_S:g} s: all processes sleep", flush=True)
    for pid in pids:
        try:
            command = read(pid, "cmdline").replace("\0", " ")
        except OSError:
            continue
        print(f"watched:   {pid} {command[:200]}")
        for thread in threads(pid):
            try:
                name, where = read(thread, "comm").strip(), read(thread, "wchan")
            except OSError:
                continue
            print(f"watched:     {thread.rsplit('/', 1)[1]} {name} {state(thread)} {where}")
    sys.stdout.flush()


class Command:
    """A process whose output is passed on as it comes, and counted."""

    def __init__(self, words, environment):
        self.pipe, end = os.pipe()
        sys.stdout.flush()
        self.pid = os.posix_spawnp(words[0], words, environment, file_actions=[
            (os.POSIX_SPAWN_DUP2, end, 1), (os.POSIX_SPAWN_DUP2, end, 2)],
            setsigdef=[signal.SIGPIPE, signal.SIGXFSZ])  # which Python ignores
        os.close(end)
        self.bytes, self.open, self.end = 0, True, os.pidfd_open(self.pid)

    def passes_on(self, seconds):
        """What it writes in that time. True: it has ended."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) >= 0:
            ready = select.select([self.end, *([self.pipe] if self.open else [])], [], [], left)[0]
            if self.pipe in ready:
                self.pass_on()
            elif self.end in ready:
                return True
        return False

    def pass_on(self):
        data = os.read(self.pipe, 65536)
        self.bytes, self.open = self.bytes + len(data), bool(data)
        while data:
            data = data[os.write(1, data):]

    def status(self):
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def watch(command):
    """The exit status; None when it hangs."""
    used, written, since = 0.0, 0, time.monotonic()
    while not command.passes_on(LOOK_S):
        if command.bytes != written:
            written, since = command.bytes, time.monotonic()
            continue
        pids = descendants(command.pid)
        now = processor_s(pids)
        if abs(now - used) > 1e-3 * HANG_S or any(state(thread) in "RD" for pid in pids for thread in threads(pid)):
            used, since = now, time.monotonic()
        elif time.monotonic() - since > HANG_S:
            tell(pids)
            for pid in reversed(pids):
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            command.status()
            return None
    return command.status()


def own_folder():
    """For all that the entry writes; None: where it would write by itself."""
    memory = os.environ.get("CAIRN_TEST_MEMORY")
    if not memory or os.environ.get("CAIRN_TEST_ON") == "disk":
        return None
    folder = f"{memory}/t-{os.urandom(4).hex()}"  # short: the paths of sockets have 107 bytes
    os.mkdir(folder)
    os.chmod(folder, 0o1777)  # as /tmp: PostgreSQL runs as another user
    return folder


def remove(folder):
    """As far as that goes: a daemon that stays writes there."""
    for entry in os.scandir(folder):
        try:
            if entry.is_dir(follow_symlinks=False):
                remove(entry.path)
            else:
                os.unlink(entry.path)
        except OSError:
            pass
    try:
        os.rmdir(folder)
    except OSError:
        pass


def run():
    folder = own_folder()
    environment = {**os.environ, "TMPDIR": folder} if folder else os.environ
    began = time.monotonic()
    command = Command(sys.argv[1:], environment)
    status = watch(command)
    while command.open and select.select([command.pipe], [], [], 0)[0]:
        command.pass_on()  # a daemon that stays may hold the pipe
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(f"watched: {time.monotonic() - began:.1f} s, {used.ru_utime + used.ru_stime:.1f} s on processors, "
          f"{used.ru_stime:.1f} s of them in the kernel", flush=True)
    if folder and status in (0, SKIPPED):
        remove(folder)
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
