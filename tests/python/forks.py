# SPDX-License-Identifier: Apache-2.0
"""Python processes that begin with torch imported, and with what else a test names: a process that has done nothing
but that forks them. The import takes longer than what most ranks do, and a test starts dozens of them.

A program sees what `python3 -c TEXT` would have it see: its environment, sys.argv, a __main__ of its own, its standard
output and error, random numbers of its own, and Python's whole end."""
import atexit
import gc
import json
import os
import random
import select
import signal
import subprocess
import sys
import threading
import types

IMPORTED = ("torch", "torch._dynamo", "torch.distributed", "torch.distributed.checkpoint", "torch.distributed.fsdp",
            "torch.distributed.tensor.parallel", "torch.nn", "torch.optim")


class Forked:
    """As much of subprocess.Popen as ranks.py needs."""

    def __init__(self, forks):
        self.forks, self.pid, self.returncode = forks, None, None

    def poll(self):
        return self.returncode

    def wait(self, seconds=None):
        with self.forks.news:
            if not self.forks.news.wait_for(lambda: self.returncode is not None, seconds):
                raise subprocess.TimeoutExpired("a forked rank", seconds)
        return self.returncode

    def kill(self):
        if self.returncode is None:
            os.kill(self.pid, signal.SIGKILL)


class Forks:
    """The process that forks, from the first fork to the end of this one."""

    def __init__(self, *imports):
        self.news, self.started = threading.Condition(), []
        self.process = subprocess.Popen([sys.executable, __file__, *imports], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        env={**os.environ, "OMP_NUM_THREADS": "1"})
        threading.Thread(target=self.hear, daemon=True).start()
        atexit.register(self.end)

    def hear(self):
        for line in self.process.stdout:
            number, pid, status = json.loads(line)
            with self.news:
                self.started[number].pid, self.started[number].returncode = pid, status
                self.news.notify_all()

    def fork(self, text, arguments, env, out):
        with self.news:
            self.started.append(made := Forked(self))
            request = [len(self.started) - 1, text, list(map(str, arguments)), env, f"/proc/{os.getpid()}/fd/{out.fileno()}"]
            print(json.dumps(request), file=self.process.stdin, flush=True)
            self.news.wait_for(lambda: made.pid or self.process.poll() is not None)
        assert made.pid, "the process that forks ranks has ended"
        return made

    def end(self):
        self.process.stdin.close()
        self.process.wait()


def serve():
    """Forks what standard input asks for and says what becomes of it. Returns in each child, with its request."""
    children, asked = {}, b""
    while True:
        for ready in select.select([0, *children], [], [])[0]:
            if ready:
                number, pid = children.pop(ready)
                os.close(ready)
                print(json.dumps([number, pid, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])]), flush=True)
                continue
            if not (data := os.read(0, 65536)):
                for _, pid in children.values():
                    os.kill(pid, signal.SIGKILL)
                os._exit(0)
            *lines, asked = (asked + data).split(b"\n")
            for request in map(json.loads, lines):
                pid = os.fork()
                if not pid:
                    return request
                children[os.pidfd_open(pid)] = request[0], pid
                print(json.dumps([request[0], pid, None]), flush=True)


def play(_, text, arguments, env, out):
    for number, path, flags in ((0, os.devnull, os.O_RDONLY), (1, out, os.O_WRONLY | os.O_APPEND)):
        os.dup2(os.open(path, flags), number)
    os.dup2(1, 2)
    os.environ.clear()
    os.environ.update(env)
    random.seed()
    sys.argv = ["-c", *arguments]
    sys.modules["__main__"] = types.ModuleType("__main__")
    exec(compile(text, "<string>", "exec"), sys.modules["__main__"].__dict__)  # pylint: disable=exec-used


if __name__ == "__main__":
    gc.disable()
    for name in (*IMPORTED, *sys.argv[1:]):
        __import__(name)
    # What was imported is never garbage: a collection that looked at it would cost a rank a third of a second, and its
    # own copy of each page that it lies in.
    gc.freeze()
    gc.enable()
    play(*serve())
