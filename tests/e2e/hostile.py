# SPDX-License-Identifier: Apache-2.0
"""Callers that a server should not have, each in a process of its own, and one that is as it should
be:  hostile.py ATTACK PORT   says "ready" when it is under way, goes on until its standard input
ends, and says then what it was answered, as JSON.
"""
import collections
import http.client
import json
import os
import pathlib
import resource
import selectors
import socket
import subprocess
import sys
import threading
import time
from patience import HANG_S

IDLE, SLOW, STREAMS = 10000, 1000, 1000
NICE = 10  # attackers are on other machines: here they leave the cores to the server and its callers
PER_ADDRESS = 2000
REQUEST_TAIL = b" HTTP/1.1\r\nHost: localhost\r\n"
EMPTY_OBJECTS = b"[" + b"{}," * (1 << 20)
EMPTY_OBJECTS = EMPTY_OBJECTS[:(1 << 20) - 3] + b"{}]"
OBJECTS_REQUEST = (b"POST /v1/runs/a/b/checkpoints" + REQUEST_TAIL + b"Content-Type: application/json\r\n"
                   b"Content-Length: %d\r\n\r\n" % len(EMPTY_OBJECTS)) + EMPTY_OBJECTS


def connect(port, number, first=2):
    """From another address of loopback for every PER_ADDRESS of them."""
    caller = socket.socket()
    caller.bind((f"127.0.0.{first + number // PER_ADDRESS}", 0))
    caller.settimeout(HANG_S)
    caller.connect(("127.0.0.1", port))
    return caller


class Attack:
    """The connections of one kind, and what came back."""

    def __init__(self, port):
        self.port, self.all, self.told = port, [], collections.Counter()

    def run(self):
        self.begin()
        print("ready", flush=True)
        with selectors.DefaultSelector() as over:
            over.register(sys.stdin, selectors.EVENT_READ)
            while not over.select(self.go_on()):
                pass
        print(json.dumps(self.told), flush=True)

    def open(self, count, first=2):
        for number in range(count):
            try:
                self.all.append(connect(self.port, number, first))
            except OSError:
                self.told["refused"] += 1

    def begin(self):
        raise NotImplementedError

    def go_on(self):
        """One round; for how long to wait for the end until the next one."""
        return 0.5


class Idle(Attack):
    """10,000 connections that ask nothing."""

    def begin(self):
        self.open(IDLE)


class Slow(Attack):
    """1,000 requests of which one byte comes each second: half of them in their headers, half in
    their bodies. Who is cut comes again."""

    def ask(self, number):
        caller = connect(self.port, number, 20)
        caller.setblocking(False)
        caller.send(b"GET /v1/runs" + REQUEST_TAIL + b"X-Slow: " if number % 2 else
                    b"POST /v1/tokens" + REQUEST_TAIL + b"Content-Type: application/json\r\n"
                    b"Content-Length: 100000\r\n\r\n{")
        return caller

    def begin(self):
        self.all = [self.ask(number) for number in range(SLOW)]

    def go_on(self):
        for number, caller in enumerate(self.all):
            try:
                caller.send(b" " if number % 2 == 0 else b"x")
            except BlockingIOError:
                pass
            except OSError:
                self.told["cut"] += 1
                caller.close()
                self.all[number] = self.ask(number)
        return 1.0


class Busy(Attack):
    """The same request over and over, on a few connections at once, as fast as it is answered."""

    CONNECTIONS = 4

    def request(self):
        raise NotImplementedError

    def begin(self):
        self.text = self.request()
        for number in range(self.CONNECTIONS):
            threading.Thread(target=self.ask_on, args=(number,), daemon=True).start()

    def ask_on(self, number):
        caller = None
        while True:
            try:
                caller = caller or connect(self.port, number, 40)
                caller.sendall(self.text)
                reply = http.client.HTTPResponse(caller)
                reply.begin()
                reply.read()
                self.told[str(reply.status)] += 1
                kept = not reply.will_close
            except (OSError, http.client.HTTPException):
                self.told["reset"] += 1
                kept = False
            if caller and not kept:
                caller.close()
                caller = None


class Objects(Busy):
    """1 MiB of empty objects, to a route that takes as much; on as many connections as there are
    workers."""

    CONNECTIONS = 16

    def request(self):
        return OBJECTS_REQUEST


class Parameters(Busy):
    """10,000 parameters in one query."""

    def request(self):
        query = "&".join(f"p{number}={number}" for number in range(10000))
        return b"GET /v1/runs?" + query.encode() + REQUEST_TAIL + b"\r\n"


class Streams(Attack):
    """1,000 streams of events, of which half are never read."""

    def begin(self):
        for number in range(STREAMS):  # each asks at once: a connection without a request is cut after CUT_S
            self.all.append(connect(self.port, number, 60))
            self.all[-1].sendall(b"GET /v1/events" + REQUEST_TAIL + b"Accept: text/event-stream\r\n\r\n")
        self.told["streams"] = sum(b" 200 " in caller.recv(64) for caller in self.all[::2])
        for caller in self.all:
            caller.setblocking(False)

    def go_on(self):
        for caller in self.all[::2]:
            try:
                while data := caller.recv(1 << 16):
                    self.told["events"] += data.count(b"\nevent: ")
            except OSError:
                pass
        return 0.05


ATTACKS = {"idle": Idle, "slow": Slow, "objects": Objects, "parameters": Parameters, "streams": Streams}


class Ordinary:
    """A few kept connections that list, look and change, as often as dashboards and jobs do."""

    PAUSE_S = 0.004

    def __init__(self, port, run):
        self.connections = [http.client.HTTPConnection("127.0.0.1", port, timeout=HANG_S) for _ in range(4)]
        self.run, self.number = run, 0
        self.calls = [("GET", f"/v1/runs/{run}/checkpoints/latest", None),
                      ("GET", f"/v1/runs/{run}/checkpoints?limit=20", None),
                      ("GET", f"/v1/runs/{run}", None)]

    def ask(self):
        """How long one call took, and its status."""
        connection = self.connections[self.number % len(self.connections)]
        method, path, body = self.calls[self.number % len(self.calls)]
        if self.number % 50 == 49:
            method, path = "PUT", f"/v1/runs/{self.run}"
            body = json.dumps({"labels": {"n": str(self.number)}})
        self.number += 1
        begun_s = time.monotonic()
        for tries_left in (1, 0):
            try:
                connection.request(method, path, body, {"Content-Type": "application/json"} if body else {})
                reply = connection.getresponse()
                reply.read()
                break
            except (OSError, http.client.HTTPException):
                connection.close()  # a kept one that was idle for longest may be closed: once more
                if not tries_left:
                    raise
        return time.monotonic() - begun_s, reply.status

    def go(self, seconds):
        """Of all calls of that time."""
        until, took = time.monotonic() + seconds, []
        while time.monotonic() < until:
            took.append(self.ask())
            time.sleep(self.PAUSE_S)  # pause of a stand-in: the rate of its calls
        return took


def p99(took):
    return sorted(seconds for seconds, _ in took)[int(len(took) * 0.99)]


class Under:
    """An attack from a process of its own, for as long as the scope lasts; `took`: what the ordinary
    calls took that were made while it got under way."""

    def __init__(self, name, port, ordinary):
        self.command = [sys.executable, str(pathlib.Path(__file__).resolve()), name, str(port)]
        self.told, self.ordinary, self.took = None, ordinary, []

    def __enter__(self):
        self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE, text=True, stdout=subprocess.PIPE)
        with selectors.DefaultSelector() as over:
            over.register(self.process.stdout, selectors.EVENT_READ)
            while not over.select(0):
                self.took += self.ordinary.go(0.1)
        if self.process.stdout.readline() != "ready\n":
            raise AssertionError(f"{self.command}: status {self.process.wait()}")
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.told = json.loads(self.process.stdout.readline() or "{}")
        self.process.stdout.close()
        self.process.wait(HANG_S)


if __name__ == "__main__":
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    os.nice(NICE)
    ATTACKS[sys.argv[1]](int(sys.argv[2])).run()
