# SPDX-License-Identifier: Apache-2.0
"""Clients that do what jobs, operators and readers do, at random and all at once, and write down every
call with its answer (history_model.py judges them). They speak HTTP themselves, as uploaders do:
a save is begun, its bytes are put into the folder store, shards and seals are told.
"""
import base64
import contextlib
import hashlib
import http.client
import json
import os
import pathlib
import random
import socket
import struct
import threading
import time
import uuid

STEPS = 24
LEASE_S = 60
PAUSE_S = 0.02
CALL_S = 60
JSON = {"Content-Type": "application/json"}

TABLE = []
for _number in range(256):
    for _ in range(8):
        _number = (_number >> 1) ^ (0x82F63B78 if _number & 1 else 0)
    TABLE.append(_number)


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = (crc >> 8) ^ TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def content(version, rank):
    return hashlib.sha256(f"{version}/{rank}".encode()).digest() * (2 + rank)


def shard_name(rank):
    return f"rank-{rank:05}/x"


class History:
    """The file that is judged: settings, then calls in the order in which they ended."""

    def __init__(self, path, settings):
        self.lock, self.entries, self.path = threading.Lock(), [settings], path
        self.broken = threading.Event()  # no server comes back

    def add(self, entry):
        with self.lock:
            self.entries.append(entry)

    def calls(self):
        return len(self.entries) - 1

    def save(self):
        with open(self.path, "w", encoding="utf-8") as lines:
            lines.writelines(json.dumps(entry) + "\n" for entry in self.entries)


class Save:
    """One begin that somebody made; anybody who holds the grant may go on with it."""

    def __init__(self, attempt, step, n, ranks, on_exists):
        self.attempt, self.step, self.n, self.ranks = attempt, step, n, ranks
        self.on_exists, self.version, self.shards = on_exists, None, {}

    def args(self):
        return {"attempt": self.attempt, "step": self.step, "n": self.n, "ranks": self.ranks,
                "on_exists": self.on_exists}


class Run:
    """What the clients of one run know of each other."""

    def __init__(self, name):
        self.name, self.lock = name, threading.Lock()
        self.newest, self.grants, self.counts = 0, {}, {}
        self.saves, self.committed, self.calls = [], [], []

    def count(self, attempt, step):
        with self.lock:
            self.counts[attempt, step] = self.counts.get((attempt, step), 0) + 1
            return self.counts[attempt, step]


class Client(threading.Thread):
    """One of many; its choices follow from the seed and its number alone."""

    def __init__(self, number, seed, world, runs, history, most):
        super().__init__(daemon=True)
        self.number, self.world, self.runs, self.history = number, world, runs, history
        self.random, self.most = random.Random(f"{seed}/{number}"), most
        self.seed, self.jobs = seed, 0
        self.connections, self.server, self.failure = {}, number, None
        self.run_of = None

    # ---- one call ----

    def ask(self, method, path, body, headers):
        """(status, reply), or None where nobody heard it. Status 0: the answer was cut off."""
        urls = self.world.urls
        port = int(urls[self.server % len(urls)].rsplit(":", 1)[1])
        connection = self.connections.get(port)
        if connection is None:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=CALL_S)
            try:
                connection.connect()
            except OSError:
                self.server += 1
                return None
            connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.connections[port] = connection
        try:
            connection.request(method, path, body, headers)
            reply = connection.getresponse()
            return reply.status, reply.read()
        except (OSError, http.client.HTTPException):
            connection.close()
            self.connections.pop(port, None)
            self.server += 1
            return 0, b""

    def call(self, op, method, path, args, body=None, headers=None, show=None):
        """Asks, writes it down; (status, code, reply)."""
        text = None if body is None else json.dumps(body)
        headers = {**(headers or {}), **({} if method == "GET" else JSON)}
        while True:
            since = time.monotonic()
            told = self.ask(method, f"/v1/runs/{self.run_of.name}{path}", text, headers)
            if told:
                break
            if self.history.broken.is_set():
                raise OSError("no server is there")
            time.sleep(PAUSE_S)  # step of a poll
        until, status, reply, code = time.monotonic(), told[0], told[1], None
        if not (show and status in range(200, 300)):
            with contextlib.suppress(ValueError):
                reply = json.loads(reply)
        if status >= 400:
            code = reply.get("code") if isinstance(reply, dict) else None
            reply = {name: reply[name] for name in ("version", "state") if name in reply}
        elif isinstance(reply, bytes):
            reply = show(reply) if show and status else None
        self.history.add({"at": [since, until], "client": self.number, "op": op, "args": args,
                          "run": self.run_of.name, "status": status, "code": code,
                          "reply": shown(op, reply)})
        if status == 0 and self.random.random() < 0.7:  # as every client does
            return self.call(op, method, path, args, body, headers, show)
        return status, code, reply

    def glance(self, path):
        """What a GET says, written down by nobody."""
        told = (0, b"")
        while not told[0]:
            told = self.ask("GET", f"/v1/runs/{self.run_of.name}{path}", None, {}) or (0, b"")
        return json.loads(told[1])

    # ---- jobs ----

    def open(self):
        run, rng = self.run_of, self.random
        self.jobs += 1
        job = f"job-{self.seed}-{self.number}-{self.jobs}"
        resume = rng.choice(["latest"] * 5 + ["none", "keep", "keep", "ahead", str(rng.randrange(1, STEPS))] +
                            run.committed[-3:])
        ranks = rng.choice((1, 1, 2))
        run.newest = max(run.newest, self.glance("").get("attempt", 0))
        after = run.newest
        body = {"job": job, "world_size": ranks, "resume": resume, "after": after, "node": "node-a",
                "wait_staged_ms": 0, "ranks": [{"rank": rank, "proc": f"{job}-{rank}"}
                                               for rank in range(ranks)]}
        args = {"job": job, "after": after, "resume": resume}
        status, _, reply = self.call("attempt", "POST", "/attempts", args, body)
        if status in (200, 201):
            with run.lock:
                run.newest = max(run.newest, reply["attempt"])
                run.grants[reply["attempt"]] = (reply["grant"], ranks)
        if rng.random() < 0.2:
            self.call("attempt", "POST", "/attempts", args, body)

    def begin(self, save):
        status = 0
        for rank in range(save.ranks):
            body = {"grant": self.run_of.grants[save.attempt][0], "node": "node-a", "format": "test-1",
                    "rank": rank, "world_size": save.ranks, "skip": False, "labels": {}, "meta": {},
                    "on_exists": save.on_exists, "step": save.step, "n": save.n}
            status, _, reply = self.call("begin", "POST", "/checkpoints", save.args(), body)
            if status in (200, 201):
                save.version = reply["version"]
        return status in (200, 201)

    def put(self, save, rank):
        """The bytes as an uploader leaves them; a sweep may take the folder away meanwhile."""
        data = content(save.version, rank)
        folder = self.folder_of(save.step, save.version) / "data" / f"rank-{rank:05}"
        token, crc = str(uuid.UUID(int=self.random.getrandbits(128), version=4)), f"{crc32c(data):08x}"
        folder.mkdir(parents=True, exist_ok=True)
        temporary = folder / f".{token}.tmp"
        temporary.write_bytes(data)
        os.setxattr(temporary, "user.cairn.upload", token.encode())
        os.setxattr(temporary, "user.cairn.crc32c", crc.encode())
        temporary.rename(folder / "x")
        blocks = base64.b64encode(struct.pack("<I", int(crc, 16))).decode()
        return {"name": shard_name(rank), "rank": rank, "bytes": len(data), "crc32c": crc,
                "blocks": blocks, "part_bytes": 0, "token": token}

    def folder_of(self, step, version):
        return pathlib.Path(self.world.store) / self.run_of.name / f"{step:012}" / version

    def seal(self, save, rank):
        if rank not in save.shards:
            with self.run_of.lock:
                if rank not in save.shards:
                    try:
                        save.shards[rank] = self.put(save, rank)
                    except FileNotFoundError:
                        return
        shard = save.shards[rank]
        seal = {"rank": rank, "bytes": shard["bytes"], "shards": [{"name": shard["name"], "bytes": shard["bytes"]}]}
        self.call("seal", "POST", f"/checkpoints/{save.version}/shards",
                  {"version": save.version, "rank": rank, "attempt": save.attempt},
                  {"grant": self.run_of.grants[save.attempt][0], "node": "node-a", "shards": [shard],
                   "seals": [seal]})

    def commit(self, save):
        self.call("commit", "POST", f"/checkpoints/{save.version}/commit",
                  {"version": save.version, "attempt": save.attempt},
                  {"grant": self.run_of.grants[save.attempt][0]})

    # ---- what a client does next ----

    def train(self, step=None):
        run, rng = self.run_of, self.random
        if run.newest not in run.grants or rng.random() < 0.08:
            self.open()
        if run.newest not in run.grants:
            return
        attempt, step = run.newest, step or rng.randrange(1, STEPS)
        on_exists = rng.choice(("error", "error", "new-version", "supersede"))
        save = Save(attempt, step, run.count(attempt, step), run.grants[attempt][1], on_exists)
        if not self.begin(save):
            return
        run.saves.append(save)
        for rank in range(save.ranks):
            if rng.random() < 0.08:
                return  # left as it is
            self.seal(save, rank)
        if rng.random() < 0.3:
            self.commit(save)
        _, _, reply = self.get(save.version, "?wait=5s&for=committed")
        if reply and reply.get("state") == "committed":
            run.committed.append(save.version)

    def go_on(self):
        """With a save that somebody made: what was missing, or all of it once more."""
        save = self.any(self.run_of.saves[-12:])
        if save:
            for rank in range(save.ranks):
                self.seal(save, rank)
            if self.random.random() < 0.5:
                self.commit(save)

    def again(self):
        save = self.any(self.run_of.saves[-12:])
        if save:
            self.begin(save)

    def late(self):
        """A writer that slept through the next attempt."""
        attempt = self.any(list(self.run_of.grants))
        if attempt:
            step = self.random.randrange(1, STEPS)
            save = Save(attempt, step, self.run_of.count(attempt, step), self.run_of.grants[attempt][1], "new-version")
            if self.begin(save):
                self.run_of.saves.append(save)

    def give_up(self):
        save = self.any(self.run_of.saves[-4:])
        if not save:
            return
        args = {"version": save.version, "attempt": save.attempt}
        if self.random.random() < 0.5:
            self.call("give_up", "POST", f"/checkpoints/{save.version}/abort",
                      {"version": save.version}, {"reason": "by hand"})
        else:
            self.call("give_up", "POST", f"/checkpoints/{save.version}/fail", args,
                      {"grant": self.run_of.grants[save.attempt][0], "node": "node-a", "rank": 0,
                       "reason": "the trainer said so"})
        self.train(save.step)  # it is tried again

    def get(self, ref, query=""):
        args = {"ref": ref, **({"version": ref} if ref.startswith("ckpt_") else {})}
        return self.call("get", "GET", f"/checkpoints/{ref}{query}", args)

    def look(self):
        version = self.any(self.run_of.committed)
        kind = self.random.choice(("latest", "latest", "list", "version", "data", "step"))
        if kind == "latest":
            self.get("latest")
        elif kind == "list":
            self.call("list", "GET", "/checkpoints?limit=1000", {})
        elif kind == "step":
            self.get(str(self.random.randrange(1, STEPS)))
        elif version and kind == "version":
            self.get(version)
        elif version:
            self.read(version)

    def read(self, version, rank=0):
        self.call("data", "GET", f"/checkpoints/{version}/shards/{shard_name(rank)}/data",
                  {"version": version, "rank": rank},
                  show=lambda body: {"exact": body == content(version, rank)})

    def pin(self):
        version = self.any(self.run_of.committed)
        if version:
            pinned = self.random.random() < 0.4
            status, _, _ = self.call("pin", "PATCH", f"/checkpoints/{version}",
                                     {"version": version, "pinned": pinned}, {"pinned": pinned},
                                     {"If-Match": "*"})
            if pinned and status == 200 and self.random.random() < 0.5:
                self.delete(version)

    def delete(self, version=None):
        version = version or self.any(self.run_of.committed)
        if version:
            self.call("delete", "DELETE", f"/checkpoints/{version}", {"version": version})

    def undelete(self):
        version = self.any(self.run_of.committed)
        if version:
            self.call("undelete", "POST", f"/checkpoints/{version}/undelete", {"version": version})

    def forget(self):
        policy = {"keep": {self.random.choice(("last", "first")): self.random.randrange(1, 6)}}
        status, _, plan = self.call("preview", "POST", "/retention/preview", {}, {"policy": policy})
        if status == 200 and plan["remove"]:
            self.call("forget", "POST", "/retention/apply", {"plan": removed(plan)},
                      {"policy": policy, "plan_etag": plan["plan_etag"]})

    def restore(self):
        """Slowly, under a lease."""
        version = self.any(self.run_of.committed)
        if not version:
            return
        self.jobs += 1
        args = {"version": version, "job": f"reader-{self.number}-{self.jobs}", "ttl_s": LEASE_S}
        path = f"/checkpoints/{version}/leases"
        status, _, lease = self.call("lease", "POST", path, args, {"job": args["job"], "ttl_s": LEASE_S})
        if status not in (200, 201):
            return
        if self.random.random() < 0.2:
            self.delete(version)
        for _ in range(self.random.randrange(1, 4)):
            self.read(version)
            time.sleep(self.random.uniform(0, 0.6))  # pause of chaos
        if self.random.random() < 0.3:
            self.call("lease", "PUT", f"{path}/{lease['lease']}", args, {"ttl_s": LEASE_S})
            self.read(version)
        self.call("drop", "DELETE", f"{path}/{lease['lease']}", args)

    def any(self, choices):
        return self.random.choice(choices) if choices else None

    def run(self):
        deeds = [(self.train, 30), (self.go_on, 8), (self.again, 5), (self.late, 4),
                 (self.give_up, 5), (self.look, 25), (self.pin, 4), (self.delete, 7),
                 (self.undelete, 5), (self.forget, 3), (self.restore, 7), (self.open, 2)]
        what, weights = zip(*deeds)
        try:
            while self.history.calls() < self.most:
                self.run_of = self.random.choice(self.runs)
                self.random.choices(what, weights)[0]()
        except Exception as error:  # noqa: BLE001  the test fails with it
            self.failure = error
            raise


def removed(plan):
    return [row["version"] for row in plan["versions"] if row["fate"] == "remove"]


ROW = ("version", "line", "attempt", "step", "n", "state", "trashed", "superseded", "pinned", "latest", "code")


def shown(op, reply):
    """Of an answer what is judged."""
    if not isinstance(reply, dict):
        return None
    if op in ("list", "list_gone") and "items" in reply:
        return {"items": [{name: row[name] for name in ROW} for row in reply["items"]]}
    if op == "preview" and "versions" in reply:
        return {"remove": removed(reply)}
    if op == "attempt" and "nonce" in reply:
        return {name: reply[name] for name in ("attempt", "nonce", "resume_version")}
    if op == "data" or (op == "lease" and "lease" in reply):
        return reply
    return {name: reply[name] for name in ROW if name in reply} or None
