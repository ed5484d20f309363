# SPDX-License-Identifier: Apache-2.0
"""What daemons said while they were recorded (recording.py), and what each word promises: once it
went out, the disk has to keep what it says through a power cut.

A word is a frame of the uploader to a trainer (docs/socket.md), what the uploader tells the server,
or the server's answer. `Ledger.hear` gives, for each, the promises it makes as (name, look): look()
gives None when a power cut at this moment would leave what was promised, else what is missing."""
import collections
import dataclasses
import json
import pathlib
import re
import sqlite3
import struct
import tempfile

# The first group has a head of its own, see uploader/journal/format.h.
FIRST, GROUP, TOUCHED = struct.Struct("<IIQQII"), struct.Struct("<IIIIQQQQII"), 12
RECORD = struct.Struct("<IIIQII")
FIRST_MAGIC, GROUP_MAGIC, RECORD_MAGIC = 0x32475243, 0x33475243, 0x314A5243
VERSION = re.compile(r"/checkpoints/(ckpt_[0-9a-f-]+)/shards$")


# ---- words ----

@dataclasses.dataclass
class Word:
    at: int  # the event with its last byte
    stream: tuple
    body: dict
    path: str = ""  # of a request: "METHOD /path"; of an answer: that of its request
    request: dict = None  # of an answer: what was asked
    status: int = 0  # of an answer


class Stream:
    def __init__(self, ports):
        self.ports, self.bytes, self.marks, self.taken = ports, bytearray(), [], 0

    def take(self, size):
        """The next bytes, and the event with the last of them; None: they did not all leave."""
        if self.taken + size > len(self.bytes):
            return None, None
        part = bytes(self.bytes[self.taken:self.taken + size])
        self.taken += size
        return part, next(at for end, at in self.marks if end >= self.taken)


def _streams(events):
    streams, going = {}, {}
    for at, event in enumerate(events):
        if event.kind == "send":
            going[event.thread] = (at, event)
        elif event.kind == "sent" and event.at > 0:
            began, send = going.pop(event.thread)
            key = (event.thread[0], event.file[0], send.at)
            stream = streams.setdefault(key, Stream((send.at >> 16, send.at & 0xFFFF)))
            stream.bytes += send.data[:event.at]
            stream.marks.append((len(stream.bytes), began))
    return streams


def _frames(key, stream):
    while True:
        head, _ = stream.take(8)
        if head is None:
            return
        json_bytes, blob_bytes = struct.unpack("<II", head)
        text, at = stream.take(json_bytes)
        _, at = stream.take(blob_bytes) if blob_bytes else (b"", at)
        if text is None or at is None:
            return
        yield Word(at, key, json.loads(text))


def _json(body):
    try:
        value = json.loads(body)
        return value if isinstance(value, dict) else {}
    except ValueError:
        return {}


def _messages(stream):
    """(first line, body, event) of HTTP, one way."""
    while True:
        end = stream.bytes.find(b"\r\n\r\n", stream.taken)
        if end < 0:
            return
        head, _ = stream.take(end + 4 - stream.taken)
        size = re.search(rb"\r\ncontent-length: *(\d+)", head, re.I)
        body, at = stream.take(int(size.group(1)) if size else 0)
        line = head.split(b"\r\n", 1)[0].decode()
        if at is None:
            at = next(mark for stop, mark in stream.marks if stop >= stream.taken)
        if body is None:
            return
        if not line.startswith("HTTP/1.1 1"):
            yield line, _json(body), at


def words(events):
    """All words, by the event that sent them."""
    found, asked, answers = [], {}, []
    for key, stream in _streams(events).items():
        if stream.ports == (0, 0):
            found += _frames(key, stream)
        elif stream.bytes.startswith(b"HTTP/"):
            answers.append((key, stream))
        else:
            asked[stream.ports] = [Word(at, key, body, line.rsplit(" ", 1)[0]) for line, body, at in _messages(stream)]
            found += asked[stream.ports]
    for key, stream in answers:
        of = asked.get(stream.ports[::-1], [])
        for number, (line, body, at) in enumerate(_messages(stream)):
            word = Word(at, key, body, status=int(line.split()[1]))
            if number < len(of):
                word.path, word.request = of[number].path, of[number].body
            found.append(word)
    by_event = collections.defaultdict(list)
    for word in found:
        by_event[word.at].append(word)
    return by_event


# ---- what the disk keeps ----

def _group(raw, at):
    """Where the records of a group begin and end; None: no group is there."""
    if at + FIRST.size <= len(raw) and not at:
        magic, _, _, size, _, _ = FIRST.unpack_from(raw, at)
        return (FIRST.size, FIRST.size + size) if magic == FIRST_MAGIC else None
    if at + GROUP.size > len(raw):
        return None
    magic, _, _, _, _, size, _, _, _, count = GROUP.unpack_from(raw, at)
    begin = at + GROUP.size + TOUCHED * count
    return (begin, begin + size) if magic == GROUP_MAGIC else None


def journal_records(raw):
    """[(entry, message)] of a journal, up to its torn end."""
    records, end = [], 0
    while (group := _group(raw, end)) and group[1] <= len(raw):
        at, end = group
        while at < end:
            magic, payload, _, entry, _, json_bytes = RECORD.unpack_from(raw, at)
            assert magic == RECORD_MAGIC
            records.append((entry, json.loads(raw[at + RECORD.size:at + RECORD.size + json_bytes])))
            at += 12 + payload
    return records


class Kept:
    """What a power cut would leave of journal, catalog and store at this moment."""

    def __init__(self, disk, run):
        self.disk, self.run, self.cache = disk, run, {}

    def _cached(self, name, files, make):
        """make(files), again only when one of them has changed."""
        if name not in self.cache or self.cache[name][0] != files:
            self.cache[name] = (files, make(files))
        return self.cache[name][1]

    def journal(self):
        raw = self.disk.kept("uploader-0/node-0.journal") or b""
        return self._cached("journal", raw, journal_records)

    def record(self, entry, name):
        return [message for at, message in self.journal() if at == entry and message["t"] == name]

    def rows(self, query, *values):
        files = {name: self.disk.kept(f"server/catalog.db{name}") for name in ("", "-wal", "-journal")}
        return self._cached("catalog", files, self._open).execute(query, values).fetchall()

    def _open(self, files):
        with tempfile.TemporaryDirectory(prefix="cairn-catalog-") as folder:
            for name, raw in files.items():
                if raw is not None:
                    (pathlib.Path(folder) / f"catalog.db{name}").write_bytes(raw)
            on_disk, copy = sqlite3.connect(f"{folder}/catalog.db"), sqlite3.connect(":memory:")
            on_disk.backup(copy)
            on_disk.close()
        return copy

    def folder(self, step, version):
        return f"store/{self.run}/{step:012}/{version}"

    def missing_object(self, path, size=None):
        raw = self.disk.kept(path)
        if raw is None:
            return f"{path} has no name that is synced"
        if not isinstance(raw, bytes) or (size is not None and len(raw) != size):
            return f"{path} has {len(raw)} bytes that are synced, not {size}"
        node = self.disk.root
        for name in path.split("/"):
            node = node.kept[name]
        return None if node.kept == node.content() else f"the bytes of {path} are not those synced"


# ---- promises ----

class Ledger:
    """Words heard so far; what they promise all in all is for those who look at an image."""

    def __init__(self, kept):
        self.kept = kept
        self.attempt = self.opened = 0
        self.owners, self.unsealed = {}, collections.defaultdict(list)
        self.saves = {}  # owner -> (version, step); an owner is an entry of the journal
        self.sealed, self.durable, self.committed = set(), set(), {}

    def hear(self, word):
        if word.status:
            return self._answer(word) if 200 <= word.status < 300 else []
        if word.path:
            return self._request(word)
        hear = getattr(self, f"_{word.body['t']}", None)
        return hear(word.stream, word.body) if hear else []

    # ---- frames ----

    def _attempted(self, _stream, body):
        self.attempt, self.opened = max(self.attempt, body["attempt"]), self.opened + 1
        count = self.opened
        yield "attempted", lambda: self._no_attempt(body["attempt"])
        yield "attempted", lambda: (
            None if sum(m["t"] == "session" for _, m in self.kept.journal()) >= count
            else "the session's grant is not in the journal")

    def _begun(self, stream, body):
        owner = body["owner"]
        self.owners[(stream, body["save"])] = owner
        self.unsealed[stream].append(owner)
        begins = self.kept.record(owner, "begin")
        self.saves[owner] = (body["version"], begins[0]["body"]["step"] if begins else -1)
        yield "begun", lambda: None if begins else f"entry {owner} has no begin in the journal"

    def _sealed(self, stream, _body):
        owner = self.unsealed[stream].pop(0)
        self.sealed.add(owner)
        yield "sealed", lambda: self._no_seal(owner)

    def _durable(self, stream, body):
        owner = self.owners[(stream, body["save"])]
        self.durable.add(owner)
        yield "durable", lambda: self._not_durable(owner)

    def _free(self, _stream, body):
        yield "free", lambda: self._not_durable(body["owner"])

    def _verdict(self, stream, body):
        owner = self.owners[(stream, body["save"])]
        if body["state"] == "committed":
            self.committed[self.saves[owner][0]] = self.saves[owner][1]
            yield "verdict", lambda: self._not_committed(*self.saves[owner])

    # ---- uploader to server ----

    def _owner_of(self, version, rank):
        return next((owner for owner, (name, _) in self.saves.items() if name == version and
                     self.kept.record(owner, "begin")[0]["body"]["rank"] == rank), None)

    def _request(self, word):
        version = VERSION.search(word.path)
        if not version:
            return
        for seal in word.body["seals"]:
            owner = self._owner_of(version.group(1), seal["rank"])
            yield "told: sealed", lambda owner=owner: self._no_seal(owner)
        for shard in word.body["shards"]:
            owner = self._owner_of(version.group(1), shard["rank"])
            yield "told: durable", lambda owner=owner, shard=shard: self._not_durable(owner, shard["name"])

    # ---- server to uploader ----

    def _answer(self, word):
        kept, asked = self.kept, word.request or {}
        if word.path.endswith("/attempts"):
            yield "answer: attempt", lambda: self._no_attempt(word.body["attempt"])
        elif word.path.startswith("PUT ") and "/tables/" in word.path:
            digest = bytes.fromhex(word.body["digest"])
            yield "answer: table", lambda: (
                None if kept.rows("SELECT 1 FROM tables WHERE digest = ?", digest)
                else "the table is not in the catalog")
        elif word.path.startswith("POST ") and word.path.endswith("/checkpoints"):
            for result in word.body["results"]:
                yield "answer: begun", lambda result=result: (
                    None if kept.rows("SELECT 1 FROM versions WHERE version = ?", result["version"])
                    else f"{result['version']} is not in the catalog")
        elif VERSION.search(word.path):
            version = word.body["version"]
            for seal in asked["seals"]:
                yield "answer: sealed", lambda rank=seal["rank"]: (
                    None if kept.rows("SELECT 1 FROM version_ranks WHERE version = ? AND rank = ? "
                                      "AND sealed", version, rank)
                    else f"the seal of rank {rank} is not in the catalog")
            for shard in asked["shards"]:
                yield "answer: registered", lambda name=shard["name"]: (
                    None if kept.rows("SELECT 1 FROM shards WHERE version = ? AND name = ? AND "
                                      "registered", version, name)
                    else f"{name} is not in the catalog")
        for item in [word.body, *word.body.get("items", [])]:
            if item.get("recorded") and "step" in item:
                self.committed[item["version"]] = item["step"]
                yield "answer: committed", lambda item=item: self._not_committed(item["version"], item["step"])

    # ---- looks ----

    def _no_attempt(self, number):
        record = f"store/{self.kept.run}/attempts/{number:012}.json"
        rows = self.kept.rows("SELECT recorded FROM attempts WHERE attempt = ?", number)
        return (None if rows else f"attempt {number} is not in the catalog") or self.kept.missing_object(record)

    def _stage(self, owner):
        stages = self.kept.record(owner, "stage")
        return stages[0]["shards"] if stages else []

    def _no_seal(self, owner):
        blocks = {record["s"] for record in self.kept.record(owner, "blocks")}
        if not self.kept.record(owner, "seal"):
            return f"entry {owner} has no seal in the journal"
        if blocks != set(range(len(self._stage(owner)))):
            return f"entry {owner} has checksums of shards {blocks} alone in the journal"
        return None

    def _not_durable(self, owner, name=None):
        version, step = self.saves[owner]
        said = {record["s"] for record in self.kept.record(owner, "durable")}
        shards = [(i, shard) for i, shard in enumerate(self._stage(owner)) if name in (None, shard["name"])]
        if not shards:
            return f"entry {owner} has no shard {name or ''} in the journal"
        for i, shard in shards:
            if i not in said:
                return f"entry {owner} does not say in the journal that {shard['name']} is durable"
            missing = self.kept.missing_object(
                f"{self.kept.folder(step, version)}/data/{shard['name']}", shard["bytes"])
            if missing:
                return missing
        return None

    def not_whole(self, folder, manifest=None):
        """Of all that a committed version consists of, what a power cut would not leave; with the
        bytes of a manifest: of all that one names."""
        missing = None
        if manifest is None:
            for name in ("checksums.bin", "manifest.json"):
                missing = missing or self.kept.missing_object(f"{folder}/{name}")
            manifest = missing or self.kept.disk.kept(f"{folder}/manifest.json")
        if missing:
            return missing
        said = json.loads(manifest)
        looks = [(f"{folder}/data/{shard['name']}", shard["size"]) for shard in said["shards"]]
        if said["layout"]:
            writer = said["layout"]["writer"].removeprefix("ckpt_").replace("-", "")[:16]
            looks.append((f"store/{self.kept.run}/layouts/{said['layout']['digest']}-{writer}.layout", None))
        return next(filter(None, (self.kept.missing_object(*look) for look in looks)), None)

    def _not_committed(self, version, step):
        record = f"{self.kept.folder(step, version)}/committed.json"
        rows = self.kept.rows("SELECT state, recorded FROM versions WHERE version = ?", version)
        if rows != [(1, 1)]:
            return f"the catalog has {rows} of {version}"
        return self.kept.missing_object(record) or self.not_whole(self.kept.folder(step, version))
