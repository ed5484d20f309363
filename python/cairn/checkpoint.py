# SPDX-License-Identifier: Apache-2.0
"""A committed version that is open for reading: its tensors by name, its items, its shards, or the state that it
was saved from. Every block is compared with its checksum before a call returns."""
from __future__ import annotations

import ctypes
import json
import pathlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from . import _lib, errors
from ._arrays import Box, Pinned, Source, allocate, describe
from ._state import TREE, VALUES, parse

if TYPE_CHECKING:
    from ._run import Run

_KINDS = {_lib.SHARDED: "sharded", _lib.REPLICATED: "replicated", _lib.ALIAS: "alias", _lib.LOCAL: "local"}
_READS_MAX = 4096  # of one call; more go in several


@dataclass(frozen=True)
class Row:
    """One version of a list."""
    version: str
    step: int
    attempt: int
    bytes: int
    shards: int
    state: str
    saved_at: str
    superseded: bool
    latest: bool
    pinned: bool
    world_size: int
    format: str
    labels: dict[str, str]  # as they are now; a Checkpoint's are those of its save
    metrics: dict[str, float]

    @classmethod
    def of(cls, row: _lib.VersionInfo) -> Row:
        return cls(row.version.decode(), row.step, row.attempt, row.total_bytes, row.shard_count, row.state.decode(),
                   row.saved_at.decode(), bool(row.superseded), bool(row.latest), bool(row.pinned), row.world_size,
                   row.format.decode(), json.loads(row.labels_json), json.loads(row.metrics_json))


@dataclass(frozen=True)
class Tensor:
    """One tensor of a version; an item is one of dtype ITEM. Of a local one shape and bytes are its first rank's."""
    name: str
    dtype: str
    shape: tuple[int, ...]
    kind: str
    bytes: int
    alias_of: str | None
    ranks: int


@dataclass(frozen=True)
class Shard:
    """An object of the version: a rank's tensors, or bytes under a name."""
    checkpoint: Checkpoint
    name: str
    rank: int
    bytes: int

    def read(self, offset: int = 0, size: int | None = None, out: Any = None) -> Any:
        """Bytes of it, into `out` (any writable buffer) where one is given."""
        size = max(0, self.bytes - offset) if size is None else size
        into = out if out is not None else bytearray(size)
        pinned = Pinned(into, writable=True)
        read = _lib.Read(shard=_lib.text(self.name), offset=offset, bytes=size, into=pinned.pointer,
                         into_bytes=min(pinned.bytes, size) if out is None else pinned.bytes)
        self.checkpoint._read([read])
        return into


class Checkpoint:
    """Made by run.latest(), run.at(), run.best()."""

    def __init__(self, run: Run, ref: str | None, timeout: float | None = None, look: bool = False) -> None:
        self.run = run
        self._handle: ctypes.c_void_p | None = ctypes.c_void_p()
        info = _lib.RestoreInfo()
        options = _lib.RestoreOptions(ref=_lib.text(ref), timeout_ms=run._ms(timeout), look=look)
        run._call("cairn_restore_open", run._alive(), ctypes.byref(options), ctypes.byref(self._handle),
                  ctypes.byref(info))
        self.step, self.attempt, self.bytes = info.step, info.attempt, info.total_bytes
        self.world_size, self.version, self.format = info.world_size, info.version.decode(), info.format.decode()
        self._shards = info.shard_count
        self._tensors: dict[str, Tensor] | None = None
        self._state: tuple[Any, list[Any]] | None = None

    def __repr__(self) -> str:
        return f"<cairn.Checkpoint {self.run.name}@{self.step} {self.version}>"

    def __enter__(self) -> Checkpoint:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def close(self) -> None:
        """Gives its lease back; retention may remove it from then on."""
        handle, self._handle = self._handle, None
        if handle and not self.run._closed:
            _lib.LIB.cairn_restore_free(handle)

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            import os
            if os.getpid() == self.run._pid:
                self.close()

    def _open(self) -> ctypes.c_void_p:
        self.run._alive()
        if self._handle is None:
            raise errors.make(f"{self!r} is closed", code="invalid", run=self.run.name, step=self.step)
        return self._handle

    def _context(self) -> dict[str, Any]:
        return {"step": self.step}

    # ---- what it holds ----

    @property
    def labels(self) -> dict[str, str]:
        return json.loads(_lib.LIB.cairn_restore_labels(self._open()))

    @property
    def meta(self) -> dict[str, Any]:
        return json.loads(_lib.LIB.cairn_restore_meta(self._open()))

    @property
    def tensors(self) -> dict[str, Tensor]:
        """All by name, items among them."""
        if self._tensors is None:
            self._tensors = {tensor.name: tensor for tensor in self._each_tensor()}
        return self._tensors

    def _each_tensor(self) -> Iterator[Tensor]:
        handle, cursor, view = self._open(), ctypes.c_uint64(), _lib.TensorView()
        while True:
            code, err = _lib.attempt("cairn_restore_next", handle, ctypes.byref(cursor), ctypes.byref(view))
            if code == _lib.NOT_FOUND:
                return
            if code != _lib.OK:
                raise _lib.error_of(code, err, run=self.run.name, step=self.step)
            yield Tensor(str(view.name), view.dtype.decode(), tuple(view.shape[:view.dimension_count]),
                         _KINDS[view.kind], view.bytes, str(view.alias_of) or None, view.holder_count)

    def _holders(self, name: str) -> dict[int, tuple[str, tuple[int, ...], int]]:
        """rank -> dtype, shape, bytes of who lists a tensor."""
        handle, cursor, found = self._open(), ctypes.c_uint64(), _lib.Holder()
        rows = {}
        while True:
            code, err = _lib.attempt("cairn_restore_holder_next", handle, _lib.text(name), ctypes.byref(cursor),
                                     ctypes.byref(found))
            if code == _lib.NOT_FOUND:
                return rows
            if code != _lib.OK:
                raise _lib.error_of(code, err, run=self.run.name, step=self.step)
            rows[found.rank] = found.dtype.decode(), tuple(found.shape[:found.dimension_count]), found.bytes

    @property
    def shards(self) -> dict[str, Shard]:
        found, info = {}, _lib.ShardInfo()
        for at in range(self._shards):
            self.run._call("cairn_restore_shard_at", self._open(), at, ctypes.byref(info))
            name = info.name.decode()
            found[name] = Shard(self, name, info.rank, info.bytes)
        return found

    def shard(self, name: str) -> Shard:
        """By its name, or by the name that put() was given, in any rank's folder."""
        shards = self.shards
        if name in shards:
            return shards[name]
        own = f"rank-{self.run.rank:05d}/{name}"
        of_any = [known for known in shards if re.fullmatch(rf"rank-\d+/{re.escape(name)}", known)]
        if own in shards or of_any:
            return shards[own if own in shards else of_any[0]]
        raise errors.make(f"{self!r} has no shard {name}", code="not-found", run=self.run.name, step=self.step)

    def fetch(self, folder: Any) -> None:
        """Its shards as files below a folder that is not there yet; whole, or nothing."""
        from ._folders import fetch
        fetch(self, pathlib.Path(folder))

    # ---- bytes ----

    def _read(self, reads: Sequence[_lib.Read], timeout: float | None = None) -> None:
        for first in range(0, len(reads), _READS_MAX):
            part = reads[first:first + _READS_MAX]
            array = (_lib.Read * len(part))(*part)
            self.run._call("cairn_restore_read", self._open(), array, len(part), self.run._ms(timeout),
                           **self._context())

    def _rank_of(self, name: str, rank: int | None) -> int:
        """Whose of a local tensor: this rank's own; rank 0's where this world is larger than the one that saved."""
        holders = self._holders(name)
        wanted = self.run.rank if rank is None else rank
        if wanted in holders:
            return wanted
        if rank is not None or not holders:
            raise errors.make(f"{name}: rank {wanted} has none of its own", code="not-found", run=self.run.name,
                              step=self.step)
        return min(holders)

    def item(self, name: str, rank: int | None = None) -> bytes:
        """The bytes of an item; of one that each rank has its own of, this rank's unless another is named."""
        return self.items([name], rank)[name]

    def items(self, names: Iterable[str], rank: int | None = None) -> dict[str, bytes]:
        """The bytes of several, read at the same time."""
        found: dict[str, bytearray] = {}
        reads, pinned = [], []
        for name in names:
            owner = self._rank_of(name, rank)
            size = self._holders(name)[owner][2]
            found[name] = bytearray(size)
            if size:
                pinned.append(Pinned(found[name], writable=True))
                reads.append(_lib.Read(tensor=_lib.text(name), local_rank_of=owner, into=pinned[-1].pointer,
                                       into_bytes=size))
        self._read(reads)
        for one in pinned:
            one.release()
        return {name: bytes(data) for name, data in found.items()}

    def tensor(self, name: str, *, start: Sequence[int] | None = None, count: Sequence[int] | None = None,
               out: Any = None, rank: int | None = None, kind: str = "torch") -> Any:
        """One tensor or, with start and count for each dimension, a box of it; into `out` where one is given, else
        into a new array of torch, numpy or neither (`kind`)."""
        known = self._known(name)
        shape = known.shape
        owner = 0
        if known.kind == "local":
            owner = self._rank_of(name, rank)
            shape = self._holders(name)[owner][1]
        box = None
        if start is not None or count is not None:
            start = tuple(start or (0,) * len(shape))
            count = tuple(count if count is not None else (s - b for s, b in zip(shape, start)))
            box = Box(shape, start, count)
        into = out if out is not None else allocate(kind, known.dtype, box.count if box else shape)
        self._read([self._request(name, self._target(name, into), known.dtype, box, owner)])
        return into

    def _known(self, name: str) -> Tensor:
        found = self.tensors.get(name)
        if not found:
            raise errors.make(f"{self!r} has no tensor {name}", code="not-found", run=self.run.name, step=self.step)
        return found

    def _target(self, name: str, into: Any) -> Source:
        source = describe(into)
        if source is None:
            raise errors.make(f"{name}: {type(into).__name__} is no array to read into", code="invalid")
        if not source.writable:
            raise errors.make(f"{name}: the array to read into is read-only", code="invalid")
        return source

    def _request(self, name: str, source: Source, dtype: str, box: Box | None, owner: int) -> _lib.Read:
        read = _lib.Read(tensor=_lib.text(name), local_rank_of=owner, into=source.pointer, into_bytes=source.bytes,
                         memory=source.memory, stream=source.stream)
        if box:
            read.form = _lib.BOX
            read.start = ctypes.cast(_lib.u64s(box.start), type(read.start))
            read.count = ctypes.cast(_lib.u64s(box.count), type(read.count))
        if source.dtype != dtype and not (dtype == "ITEM" and source.dtype == "U8"):
            read.into_dtype = source.dtype.encode()
        if source.stride is not None:
            strides = (ctypes.c_int64 * max(1, len(source.stride)))(*source.stride)
            read.into_stride = ctypes.cast(strides, type(read.into_stride))
        read._source = source  # its memory stays as long as the request
        return read

    # ---- state ----

    def _saved_state(self) -> tuple[Any, list[Any]] | None:
        """The tree and the plain values of the state that it was saved from; None: it was saved by other means."""
        if self._state is None and TREE in self.tensors:
            own = self.items([TREE, VALUES])
            self._state = parse(own[TREE]), parse(own[VALUES])
        return self._state

    def load(self, into: Any = None, *, prefix: str = "", strict: bool = True, rename: Mapping[str, str] | None = None,
             map_location: Any = None, weights_only: bool = True, only: Iterable[str] | None = None) -> Any:
        """The state that was saved.

        Without `into` a new one, of the frameworks that its arrays were saved from. With `into` (a nested state, or
        objects with state_dict and load_state_dict) its arrays are filled in place, also where they are parts of a
        tensor that other ranks saved in another split; what is no array is replaced in its dicts and lists. Returns
        the state.

        prefix: the part of the saved state that is loaded, such as "model". strict: NotFound where `into` wants
        what was not saved, or what was saved (below the prefix) is not wanted. rename: {saved prefix: prefix in
        `into`}. only: patterns of names (`layers.*`) that are loaded; the rest of `into` stays as it is.
        map_location: the torch device of new tensors. weights_only=False: values that were pickled are loaded,
        which runs code of who saved them."""
        from ._load import Loader
        loader = Loader(self, prefix, strict, rename or {}, map_location, weights_only, only)
        return loader.new() if into is None else loader.into(into)
