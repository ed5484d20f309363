# SPDX-License-Identifier: Apache-2.0
"""fsspec's `cairn://project/run/STEP/file`: code that saves to a bucket today saves to Cairn with another URL.

STEP is a step number, also with the word that a framework puts before it (`step-100`, `epoch_3`), a version id, `latest`,
`best` or an alias of the run. What is written becomes visible whole, at
once, when it is committed; _files.py says when that is."""
from __future__ import annotations

import ctypes
import datetime
import io
from collections.abc import Callable
from typing import Any, cast

from fsspec import AbstractFileSystem

from . import _files, _lib, errors
from ._arrays import Pinned
from ._run import Run, run as open_run, session_of
from ._version import Version
from .checkpoint import Checkpoint, Shard


class ReadFile(io.RawIOBase):
    """A shard as a file; reads go straight into the caller's memory."""

    def __init__(self, shard: Shard) -> None:
        self._shard, self._at, self.size, self.name, self.mode = shard, 0, shard.bytes, shard.name, "rb"

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = 0) -> int:
        at = offset + (0, self._at, self.size)[whence]
        if at < 0:
            raise ValueError(f"a place before the beginning: {at}")
        self._at = at
        return at

    def readinto(self, into: Any) -> int:
        view = memoryview(into).cast("B")
        count = max(0, min(len(view), self.size - self._at))
        if count:
            self._shard.read(self._at, count, out=view[:count])
        self._at += count
        return count


class BufferedFile(io.BufferedReader):
    """What open() gives for reading, with the size that fsspec's own files have: read_block() and its caches ask for it."""

    def __init__(self, file: ReadFile) -> None:
        super().__init__(file, 1 << 20)
        self.size = file.size


class CairnFileSystem(AbstractFileSystem):
    """See the module. Options: socket (of the uploader)."""

    protocol = "cairn"
    root_marker = ""
    async_impl = False

    def __init__(self, socket: str | None = None, **options: Any) -> None:
        super().__init__(**options)
        self._socket = socket
        self._in_transaction: list[_files.Folder] = []
        self._own_transaction = _Transaction(self.start_transaction, self._end_transaction)

    # ---- paths ----

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(one) for one in cast("list[Any]", path)]
        return str(path).removeprefix("cairn://").strip("/")

    def unstrip_protocol(self, name: str) -> str:
        return f"cairn://{self._strip_protocol(name)}"

    def _split(self, path: Any) -> tuple[str, str, str]:
        """Run, reference and file; each "" where the path ends before it."""
        parts = self._strip_protocol(path).split("/")
        return "/".join(parts[:2]), parts[2] if len(parts) > 2 else "", "/".join(parts[3:])

    def _run(self, name: str) -> Run:
        return open_run(name, read_only=True, socket=self._socket)

    def _writing(self, run: str, ref: str, make: bool = False) -> _files.Folder | None:
        step = _files.step_of(ref)
        if step is None:
            if make:
                raise errors.make(f"cairn://{run}/{ref}: a checkpoint is written under a step number", code="invalid",
                                  hint="1200, step-1200, checkpoint-1200, epoch_3")
            return None
        return _files.folder(run, step, make, called=str(step) if ref.isdigit() else ref)

    def _version(self, run: str, ref: str, look: bool = False) -> Version:
        """A step number and an alias may mean another version tomorrow: it is opened anew where it is looked at."""
        opened = self._run(run)
        try:
            return session_of(opened).open(self._known_as(opened, ref), look=look)
        except errors.Invalid:
            if _files.step_of(ref) is None:
                raise
            raise FileNotFoundError(f"cairn://{run}/{ref}") from None  # epoch_3, which no alias can be called

    @staticmethod
    def _known_as(run: Run, ref: str) -> str:
        """The version of a folder `step-100`; any other reference is the run's own, also an alias of such a name."""
        step = None if ref.isdigit() else _files.step_of(ref)
        row = None if step is None else run.find(step)
        return row.version if row and _files.name_of(row) == ref else ref

    # ---- what is there ----

    def info(self, path: Any, **_: Any) -> dict[str, Any]:
        run, ref, file = self._split(path)
        own = self._strip_protocol(path)
        if not ref:
            if not own or any(row["name"] == own or row["name"].startswith(own + "/") for row in self._runs()):
                return {"name": own, "size": 0, "type": "directory"}
            raise FileNotFoundError(f"cairn://{own}")
        writing = self._writing(run, ref)
        if writing:
            if not file:
                return {"name": own, "size": 0, "type": "directory"}
            size = writing.size(file)
            if size is not None:
                return {"name": own, "size": size, "type": "file"}
            if writing.modified(file) is not None:
                return {"name": own, "size": 0, "type": "directory"}
        with self._version(run, ref, look=True) as found:
            if not file:
                return {"name": own, "size": 0, "type": "directory", "version": found.id, "step": found.step}
            objects = found.objects()
            if file in objects:
                return {"name": own, "size": objects[file].bytes, "type": "file", "version": found.id}
            if any(name.startswith(file + "/") for name in objects):
                return {"name": own, "size": 0, "type": "directory", "version": found.id}
        raise FileNotFoundError(f"cairn://{own}")

    def exists(self, path: Any, **options: Any) -> bool:
        """False where there is none. A store or an uploader that does not answer is an error, and not False."""
        try:
            self.info(path, **options)
            return True
        except FileNotFoundError:
            return False

    def modified(self, path: Any) -> datetime.datetime:
        """When the checkpoint that has it was saved: a committed one does not change. Of a file that is not committed yet:
        when it was written."""
        run, ref, file = self._split(path)
        version = self.info(path).get("version")
        row = self._run(run).find(version) if version else None
        if row:
            return datetime.datetime.fromisoformat(row.saved_at.replace("Z", "+00:00"))
        writing = self._writing(run, ref) if ref else None
        written = writing.modified(file) if writing else None
        if written is None:
            raise errors.make(f"cairn://{self._strip_protocol(path)} has no time", code="unsupported",
                              hint="checkpoints and their files have one: cairn://project/run/STEP/FILE")
        return datetime.datetime.fromtimestamp(written, tz=datetime.timezone.utc)

    created = modified

    def _runs(self) -> list[dict[str, Any]]:
        rows, count = ctypes.POINTER(_lib.RunRow)(), ctypes.c_size_t()
        session = session_of(open_run("cairn/list", read_only=True, socket=self._socket))
        session.call("cairn_runs", session.alive(), ctypes.byref(rows), ctypes.byref(count))
        try:
            return [{"name": rows[at].run.decode(), "size": rows[at].total_bytes, "type": "directory"}
                    for at in range(count.value)]
        finally:
            _lib.LIB.cairn_runs_free(rows)

    def ls(self, path: Any, detail: bool = True, **_: Any) -> list[Any]:
        run, ref, file = self._split(path)
        own = self._strip_protocol(path)
        if not ref:
            rows = self._list_above(own)
        else:
            rows = self._list_files(run, ref, own, file)
        return rows if detail else [row["name"] for row in rows]

    def _list_above(self, own: str) -> list[dict[str, Any]]:
        parts = own.split("/") if own else []
        if len(parts) < 2:
            head = own + "/" if own else ""
            runs = [row for row in self._runs() if row["name"].startswith(head)]
            if own and not runs:
                raise FileNotFoundError(f"cairn://{own}")
            if parts:
                return runs
            names = sorted({row["name"].split("/")[0] for row in runs})
            return [{"name": name, "size": 0, "type": "directory"} for name in names]
        steps = {row.step: row for row in self._run(own).list() if not row.superseded}
        if not steps and not any(row["name"] == own for row in self._runs()):
            raise FileNotFoundError(f"cairn://{own}")
        return [{"name": f"{own}/{_files.name_of(row)}", "size": 0, "type": "directory", "version": row.version,
                 "bytes": row.bytes, "saved_at": row.saved_at} for _, row in sorted(steps.items())]

    def _list_files(self, run: str, ref: str, own: str, file: str) -> list[dict[str, Any]]:
        sizes: dict[str, int] = {}
        writing = self._writing(run, ref)
        if writing:
            sizes = {name: writing.size(name) or 0 for name in writing.files}
        else:
            with self._version(run, ref, look=True) as found:
                sizes = {name: one.bytes for name, one in found.objects().items()}
        if file in sizes:
            return [{"name": own, "size": sizes[file], "type": "file"}]
        head = file + "/" if file else ""
        rows: dict[str, dict[str, Any]] = {}
        for name, size in sizes.items():
            if not name.startswith(head):
                continue
            first, _, deeper = name[len(head):].partition("/")
            kind = "directory" if deeper else "file"
            rows[first] = {"name": f"{own}/{first}", "size": 0 if deeper else size, "type": kind}
        if file and not rows:
            raise FileNotFoundError(f"cairn://{own}")
        return [rows[name] for name in sorted(rows)]

    # ---- bytes ----

    def _shard(self, path: Any) -> Shard:
        run, ref, file = self._split(path)
        if not file:
            raise IsADirectoryError(f"cairn://{self._strip_protocol(path)}")
        shards = Checkpoint(self._version(run, ref)).shards
        if file not in shards:
            raise FileNotFoundError(f"cairn://{self._strip_protocol(path)}")
        return shards[file]

    def _open(self, path: Any, mode: str = "rb", block_size: Any = None, autocommit: bool = True,
              cache_options: Any = None, **_: Any) -> Any:
        run, ref, file = self._split(path)
        if mode == "rb":
            writing = self._writing(run, ref)
            if writing and file in writing.files:
                return io.BytesIO(writing.read(file))
            return BufferedFile(ReadFile(self._shard(path)))
        if mode not in ("wb", "xb"):
            raise errors.make(f"mode {mode!r}: a file is written whole (wb) or read (rb)", code="unsupported",
                              hint="read it, and write what it shall be to another step")
        if not file:
            raise IsADirectoryError(f"cairn://{self._strip_protocol(path)}: a file is written below a step: "
                                    "cairn://project/run/STEP/FILE")
        if mode == "xb" and self.exists(path):
            raise FileExistsError(f"cairn://{self._strip_protocol(path)}")
        writing = self._writing(run, ref, make=True)
        assert writing
        if self._intrans and writing not in self._in_transaction:
            writing.transaction = True
            self._in_transaction.append(writing)
        return writing.open(file)

    def cat_file(self, path: Any, start: int | None = None, end: int | None = None, **_: Any) -> bytes:
        return self.cat_ranges([path], [start], [end], on_error="raise")[0]

    def cat_ranges(self, paths: Any, starts: Any, ends: Any, max_gap: Any = None, on_error: str = "return",
                   **options: Any) -> list[Any]:
        """All ranges of one checkpoint in one call: requests are made at the same time, blocks are read once."""
        count = len(paths)
        spans = [slice(start, end) for start, end in zip(_each(starts, count), _each(ends, count))]
        found: list[Any] = [None] * count
        by_version: dict[tuple[str, str], list[int]] = {}
        for at, path in enumerate(paths):
            run, ref, _ = self._split(path)
            by_version.setdefault((run, ref), []).append(at)
        for (run, ref), places in by_version.items():
            try:
                self._cat_version(run, ref, {at: self._split(paths[at])[2] for at in places}, spans, found)
            except Exception as error:
                if on_error == "raise":
                    raise
                for at in places:
                    found[at] = found[at] if isinstance(found[at], bytes) else error
        return found

    def _cat_version(self, run: str, ref: str, files: dict[int, str], spans: list[slice], found: list[Any]) -> None:
        """files: by their places in `spans` and `found`."""
        def missing(file: str) -> FileNotFoundError:
            return FileNotFoundError(f"cairn://{run}/{ref}/{file}")
        writing = self._writing(run, ref)
        if writing:
            for at, file in files.items():
                if file not in writing.files:
                    raise missing(file)
                found[at] = writing.read(file)[spans[at]]
            return
        reads: list[_lib.Read] = []
        buffers: dict[int, bytearray] = {}
        held: list[Pinned] = []
        with self._version(run, ref) as version:
            objects = version.objects()
            for at, file in files.items():
                if file not in objects:
                    raise missing(file)
                first, last, _ = spans[at].indices(objects[file].bytes)
                buffers[at] = bytearray(max(0, last - first))
                if buffers[at]:
                    held.append(Pinned(buffers[at], writable=True))
                    reads.append(_lib.Read(shard=_lib.text(file), offset=first, bytes=len(buffers[at]),
                                           into=held[-1].pointer, into_bytes=len(buffers[at])))
            version.read(reads)
        for one in held:
            one.release()
        for at, data in buffers.items():
            found[at] = bytes(data)

    # ---- changes ----

    def makedirs(self, path: Any, exist_ok: bool = False) -> None:
        self.mkdir(path)

    def mkdir(self, path: Any, create_parents: bool = True, **options: Any) -> None:
        """Folders need no making. A rank that will only follow takes part in the checkpoint from here on: it may
        have no file of its own."""
        run, ref, _ = self._split(path)
        if _files.step_of(ref) is not None and _files.takes_part():
            self._writing(run, ref, make=True)

    def mv(self, path1: Any, path2: Any, recursive: bool = False, maxdepth: Any = None, **_: Any) -> None:
        (run, ref, name), (to_run, to_ref, to_name) = self._split(path1), self._split(path2)
        writing = self._writing(run, ref)
        if (run, ref) != (to_run, to_ref) or not writing or not name or not to_name:
            raise errors.make(f"cairn://{self._strip_protocol(path1)} to cairn://{self._strip_protocol(path2)}: a file "
                              "moves within a checkpoint that is being written", code="unsupported",
                              hint="copy it, and remove the checkpoint that has it")
        writing.rename(name, to_name)
        if name.endswith(".tmp") and not writing.transaction:
            writing.commit()

    rename = move = mv

    def mv_file(self, path1: Any, path2: Any, **_: Any) -> None:
        self.mv(path1, path2)

    def cp_file(self, path1: Any, path2: Any, **options: Any) -> None:
        if self.info(path1)["type"] == "directory":  # one that is copied with all that is in it, and needs no making
            return
        with self.open(path1, "rb") as source, self.open(path2, "wb") as to:
            while data := source.read(16 << 20):
                to.write(data)

    def rm(self, path: Any, recursive: bool = False, maxdepth: Any = None) -> None:
        for one in cast("list[Any]", path) if isinstance(path, list) else [path]:
            self._rm(one)

    def _rm(self, path: Any) -> None:
        """A whole checkpoint goes to the trash; of one that is being written a file is left out."""
        run, ref, file = self._split(path)
        writing = self._writing(run, ref) if ref else None
        if writing:
            if not file:
                _files.forget(writing)
                return
            if writing.remove(file) or self.exists(path):
                return
            raise FileNotFoundError(f"cairn://{self._strip_protocol(path)}")
        if not ref:
            raise errors.make(f"cairn://{self._strip_protocol(path)}: a run is not removed from here", code="forbidden",
                              hint="`cairn rm` removes a run")
        if file:
            raise PermissionError(f"cairn://{self._strip_protocol(path)}: a committed checkpoint does not change; "
                                  "remove it whole")
        opened = self._run(run)
        opened.remove(self._known_as(opened, ref))

    rm_file = _rm

    def rmdir(self, path: Any) -> None:
        self._rm(path)

    # ---- transactions ----

    def start_transaction(self) -> Any:
        self._intrans, self._in_transaction = True, []
        return self._own_transaction

    def end_transaction(self) -> None:
        self._end_transaction(True)

    @property
    def transaction(self) -> Any:
        return self._own_transaction

    def _end_transaction(self, commit: bool) -> None:
        self._intrans = False
        folders, self._in_transaction = self._in_transaction, []
        self._own_transaction.files = []
        for known in folders:
            known.transaction = False
            if commit:
                known.commit()
            else:
                _files.forget(known)


class _Transaction:
    """`with fs.transaction:` what is written in it becomes one checkpoint at its end, or nothing after an error."""

    def __init__(self, start: Callable[[], object], end: Callable[[bool], None]) -> None:
        self._start, self._end = start, end
        self.files: list[Any] = []  # fsspec lists there what it opened

    def __enter__(self) -> _Transaction:
        self._start()
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self._end(kind is None)


def _each(given: Any, count: int) -> list[Any]:
    """One for each of several, as given or the same for all."""
    return list(cast("list[Any]", given)) if isinstance(given, (list, tuple)) else [given] * count
