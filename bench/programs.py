# SPDX-License-Identifier: Apache-2.0
"""The programs of a measurement: the sink, and sides that answer "go" with one JSON line."""
import collections
import http.client
import json
import os
import signal
import subprocess
import time
import urllib.parse

from bench.harness import BUILD, Skip

Run = collections.namedtuple("Run", "seconds cpu bytes crc32c memory note total", defaults=(0,))
START_SECONDS = 120


def program(name, build=None):
    path = os.path.join(build or BUILD, name)
    if not os.path.exists(path):
        raise Skip("%s was not built" % name)
    return path


class Process:
    """A child that says {"ready":true} on its first line; ended by its own id."""

    def __init__(self, command, environment=None):
        self.name = os.path.basename(command[0])
        self.child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                      env=environment, text=True)
        self.greeting = self.answer()
        if not self.greeting.get("ready"):
            self.close()
            raise RuntimeError("%s did not start" % self.name)

    def answer(self):
        line = self.child.stdout.readline()
        if not line:
            raise RuntimeError("%s ended with status %s" % (self.name, self.child.wait()))
        return json.loads(line)

    def close(self):
        if self.child.poll() is None:
            self.child.stdin.close()
            try:
                self.child.wait(5)
            except subprocess.TimeoutExpired:
                self.child.send_signal(signal.SIGKILL)
                self.child.wait()
        self.child.stdout.close()


class Side(Process):
    """One side of a pair: warm between its runs."""

    def go(self):
        self.child.stdin.write("go\n")
        self.child.stdin.flush()
        answer = self.answer()
        if not answer["ok"]:
            raise RuntimeError("%s failed" % self.name)
        return Run(answer["seconds"], answer["cpu"], answer["bytes"], answer["crc32c"],
                   answer.get("memory", 0), answer.get("note", ""), answer.get("total", 0))


class OneShot:
    """A side that is a whole program each time (rclone)."""

    def __init__(self, command, environment, bytes_moved):
        self.command, self.environment, self.bytes = command, environment, bytes_moved

    def go(self):
        start = time.monotonic()
        child = subprocess.Popen(self.command, env=self.environment, stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(child.pid, 0)
        seconds = time.monotonic() - start
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode:
            raise RuntimeError("%s ended with %d" % (self.command[0], child.returncode))
        return Run(seconds, usage.ru_utime + usage.ru_stime, self.bytes, None,
                   usage.ru_maxrss * 1024, "")

    def close(self):
        pass


class Sink(Process):
    """bench_sink, and what it counted."""

    def __init__(self, lab, serve=0, tls=None, keep=False, warm=0):
        self.address = "127.0.0.9:80" if lab.isolated else "127.0.0.1:7499"
        if tls:
            self.address = self.address.split(":")[0] + ":7443"
        command = [program("bench_sink"), "--listen", self.address]
        if serve:
            command += ["--serve", str(serve)]
        if keep:
            command += ["--keep", "--warm", str(warm)]
        if tls:
            command += ["--tls", tls.certificate, tls.key]
        self.tls = tls
        super().__init__(command)

    def close(self):
        if self.child.poll() is None:
            self.child.send_signal(signal.SIGKILL)  # it has nothing to lose
            self.child.wait()
        super().close()

    @property
    def url(self):
        return ("https://" if self.tls else "http://") + self.address

    def request(self, method, path):
        if self.tls:
            connection = http.client.HTTPSConnection(self.address, context=self.tls.context())
        else:
            connection = http.client.HTTPConnection(self.address)
        try:
            connection.request(method, path)
            return connection.getresponse().read()
        finally:
            connection.close()

    def ask(self, path):
        return json.loads(self.request("GET", path))

    def remove(self, prefix):
        """All objects whose path ("/bucket/key") begins so."""
        for item in self.ask("/-/stats")["objects"]:
            if item["key"].startswith(prefix):
                self.request("DELETE", urllib.parse.quote(item["key"]))

    def reset(self, **faults):
        self.ask("/-/reset?" + "&".join("%s=%d" % item for item in faults.items()))

    def checked(self, go, size, objects=1, crc32c=None, **faults):
        """One run with everything that arrived compared: number, size and CRC32C of the objects."""
        self.reset(**faults)
        run = go()
        seen = self.ask("/-/stats")
        whole = [item for item in seen["objects"] if item["size"] == size]
        expected = crc32c or run.crc32c
        bad = [item for item in whole if item["crc32c"] != expected]
        if len(whole) != objects or bad or seen["wrong"] or not expected:
            raise RuntimeError("the sink holds %d of %d whole objects, %d of them different, and "
                               "refused %d checksums" % (len(whole), objects, len(bad),
                                                         seen["wrong"]))
        if seen["body_bytes"] < size * objects:
            raise RuntimeError("fewer bytes arrived than were measured")
        return run, seen
