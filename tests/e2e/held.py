# SPDX-License-Identifier: Apache-2.0
"""What a daemon holds open: its descriptors by kind, and its journal."""
import collections
import os
import pathlib
import shutil
import subprocess
import tempfile

from world import BIN

CONNECTIONS, PAIR, CLAIM = "tcp to ", "unix pair", "unix @cairn/"
# No table of the kernel has it: a TCP connection that was reset. A kept one becomes that about 70 s
# after its peer was killed, when a keep-alive probe is answered by a reset (until then CLOSE_WAIT).
RESET = "tcp that was reset"
# Connections are kept for the next request, so many of each thread.
CONNECTIONS_MAX = 64
# A thread's two ways to talk, to the store and to the server, are made when they are needed, be it
# long after the thread. libcurl holds a pair of sockets for each.
THREAD_SOCKETS = 4


_known = {}  # {(pid, inode): kind} of sockets that were in a table


def _sockets(pid):
    """{inode: kind} of the sockets in this process's namespace. To read a table of TCP takes milliseconds, since the kernel
    looks through all that connections could be in."""
    kinds = {}
    for table in ("tcp", "tcp6"):
        for line in pathlib.Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            words = line.split()
            listens = words[3] == "0A"
            port = int(words[1 if listens else 2].rsplit(":", 1)[1], 16)
            kinds[words[9]] = f"tcp listens at {port}" if listens else f"{CONNECTIONS}{port}"
    for line in pathlib.Path(f"/proc/{pid}/net/unix").read_text().splitlines()[1:]:
        words = line.split()
        kinds[words[6]] = f"unix {words[7]}" if len(words) > 7 else PAIR
    return kinds


def _links(daemon):
    links = []
    for fd in pathlib.Path(f"/proc/{daemon.process.pid}/fd").iterdir():
        try:
            links.append(os.readlink(fd))
        except FileNotFoundError:
            pass
    return links


def descriptors(daemon, anew=True):
    """How many of each kind: files by path, sockets by what they lead to. anew: what was looked up before is looked up
    again: a connection may have been reset since."""
    pid, links = daemon.process.pid, _links(daemon)
    sockets = [link[8:-1] for link in links if link.startswith("socket:")]
    if anew or any((pid, inode) not in _known for inode in sockets):
        kinds = _sockets(pid)
        _known.update({(pid, inode): kinds[inode] for inode in sockets if inode in kinds})
    else:
        kinds = {inode: _known[pid, inode] for inode in sockets}
    return collections.Counter(kinds.get(link[8:-1], RESET) if link.startswith("socket:") else link for link in links)


def threads_of(daemon):
    return len(os.listdir(f"/proc/{daemon.process.pid}/task"))


def baseline_of(daemon):
    """To be taken when it has just started."""
    return descriptors(daemon)


def grown(daemon, baseline, ports):
    """What it holds more than at the baseline, but for what is kept: connections to these ports."""
    return _grown(daemon, baseline, ports, anew=False) and _grown(daemon, baseline, ports, anew=True)


def _grown(daemon, baseline, ports, anew):
    threads = threads_of(daemon)
    kept = {f"{CONNECTIONS}{port}": threads * CONNECTIONS_MAX for port in ports}
    kept[RESET] = threads * CONNECTIONS_MAX
    kept[PAIR] = threads * THREAD_SOCKETS
    more = descriptors(daemon, anew) - baseline
    # Its node's name, once the store was met.
    kept.update({kind: 1 for kind in more if kind.startswith(CLAIM)})
    return {kind: count for kind, count in more.items() if count > kept.get(kind, 0)}


def memory(daemon):
    """Slabs, and files that exist for it alone."""
    return [kind for kind in _links(daemon) if "memfd:" in kind or "(deleted)" in kind]


def journal_entries(state_dir, node, store, env):
    """Lines of the journal's open entries. It is locked while the uploader runs: a copy is read."""
    with tempfile.TemporaryDirectory(prefix="cairn-journal-") as folder:
        for path in pathlib.Path(state_dir).glob(f"{node}.journal"):
            shutil.copy(path, folder)
        done = subprocess.run(
            [BIN / "cairn-uploader", "--print-journal", "--node", node, "--store", store,
             "--state-dir", folder], capture_output=True, text=True, check=False,
            env={**os.environ, **env})
    if done.returncode:
        return [f"status {done.returncode}: {done.stderr}"]
    return [line for line in done.stdout.splitlines() if line.strip()]
