# SPDX-License-Identifier: Apache-2.0
"""Signs that a process has come as far as a test wants it, where it says nothing itself: it waits for an answer
of a server that has read its request, or a thread of it has gone round. For wait_until."""
import contextlib
import pathlib

from world import wait_until

ESTABLISHED, CLOSED_BY_PEER = "01", "08"


def _tasks(pid):
    """(name, number, state, how often it has slept) of each thread."""
    for task in pathlib.Path(f"/proc/{pid}/task").glob("*"):
        with contextlib.suppress(OSError, KeyError):
            said = dict(line.split(":", 1) for line in (task / "status").read_text().splitlines())
            yield said["Name"].strip(), int(task.name), said["State"].split()[0], int(said["voluntary_ctxt_switches"])


def asleep(pid, thread=None):
    """All threads, or the one of that number."""
    states = [state for _, number, state, _ in _tasks(pid) if thread in (None, number)]
    return bool(states) and set(states) == {"S"}


def rounds(pid, thread=None):
    """How often the threads of that name have slept, or the main one: a loop that waits sleeps each time."""
    return sum(slept for name, number, _, slept in _tasks(pid) if (name == thread if thread else number == pid))


def go_round(pid, thread=None, times=3):
    """Waits until they have slept so many more times."""
    before = rounds(pid, thread)
    wait_until(lambda: rounds(pid, thread) >= before + times)


class Held:
    """A point of common/crashpoints.def at which a daemon with env() waits until go_on(); nth 0: at each pass."""

    def __init__(self, folder, point, nth=1):
        self.point, self.nth, self.goes_on, self.passed = point, nth, folder / f"{point}.go-on", folder / f"{point}.passed"

    def env(self):
        return {"CAIRN_CRASH_AT": f"{self.point}:{self.nth}:until={self.goes_on}", "CAIRN_CRASH_LIST": str(self.passed)}

    def reached(self, times=1):
        wait_until(lambda: self.passed.exists() and self.passed.read_text().split().count(self.point) >= times)

    def go_on(self):
        self.goes_on.touch()


def is_pending(pid, signal):
    """For a process that is stopped: it gets it when it goes on."""
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(("SigPnd:", "ShdPnd:")) and int(line.split()[1], 16) >> signal - 1 & 1:
            return True
    return False


def _connections():
    """{inode: (own port, other port, state, unsent, unread)}"""
    found = {}
    for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]:
        words = line.split()
        own, other = (int(words[i].rsplit(":", 1)[1], 16) for i in (1, 2))
        unsent, unread = (int(number, 16) for number in words[4].split(":"))
        found[words[9]] = (own, other, words[3], unsent, unread)
    return found


def connected(pid, port):
    """Its connections to that port, by the ports of their ends here."""
    table, own = _connections(), []
    for descriptor in pathlib.Path(f"/proc/{pid}/fd").glob("*"):
        with contextlib.suppress(OSError):
            row = table.get(str(descriptor.readlink()).removeprefix("socket:[").removesuffix("]"))
            if row and row[1] == port and row[2] == ESTABLISHED:
                own.append(row[0])
    return own


def has_socket(pid):
    with contextlib.suppress(OSError):
        return any(str(one.readlink()).startswith("socket:") for one in pathlib.Path(f"/proc/{pid}/fd").glob("*"))
    return False


def is_read(port):
    """The server of that port has read all that anybody here has sent it."""
    rows = [row for row in _connections().values() if row[2] == ESTABLISHED]
    return not any(unsent if other == port else unread if own == port else 0 for own, other, _, unsent, unread in rows)


def waits_on(process, port):
    """It has asked the server of that port, which has read it, and sleeps until the answer."""
    return asleep(process.pid) and bool(connected(process.pid, port)) and is_read(port)
