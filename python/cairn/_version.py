# SPDX-License-Identifier: Apache-2.0
"""A version that is open for reading, as the package has it: who holds which tensor, and reads of several at once.
cairn.Checkpoint is what a user has of it."""
from __future__ import annotations

import ctypes
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from . import _lib, errors
from ._arrays import Box, Pinned, Source, allocate, describe
from ._state import TREE, VALUES, Node, Plain, parse

if TYPE_CHECKING:
    from ._session import Session

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


class Holder(NamedTuple):
    """What a rank lists of a tensor."""
    dtype: str
    shape: tuple[int, ...]
    bytes: int


class Object(NamedTuple):
    """A shard: the rank that saved it, and its size."""
    rank: int
    bytes: int


class Version:
    """Opened by a session. Its lease ends with it, and retention may remove the version from then on."""

    def __init__(self, session: Session, ref: str | None, *, look: bool = False) -> None:
        self.session = session
        self._handle: ctypes.c_void_p | None = ctypes.c_void_p()
        info = _lib.RestoreInfo()
        options = _lib.RestoreOptions(ref=_lib.text(ref), look=look)
        session.call("cairn_restore_open", session.alive(), ctypes.byref(options), ctypes.byref(self._handle),
                     ctypes.byref(info))
        self.step, self.attempt, self.bytes = info.step, info.attempt, info.total_bytes
        self.world_size, self.id, self.format = info.world_size, info.version.decode(), info.format.decode()
        self._objects = info.shard_count
        self._tensors: dict[str, Tensor] | None = None
        self._state: tuple[Node, list[Plain]] | None = None

    def __repr__(self) -> str:
        return f"<cairn.Checkpoint {self.session.name}@{self.step} {self.id}>"

    def __enter__(self) -> Version:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        handle, self._handle = self._handle, None
        if handle and not self.session.closed:
            _lib.LIB.cairn_restore_free(handle)

    def __del__(self) -> None:
        if getattr(self, "_handle", None) and os.getpid() == self.session.pid:
            self.close()

    def opened(self) -> ctypes.c_void_p:
        self.session.alive()
        if self._handle is None:
            raise self.error(f"{self!r} is closed", "invalid")
        return self._handle

    def error(self, message: str, code: str, **more: Any) -> errors.CairnError:
        return errors.make(message, code=code, run=self.session.name, step=self.step, **more)

    # ---- what it holds ----

    @property
    def tensors(self) -> dict[str, Tensor]:
        """All by name, items among them."""
        if self._tensors is None:
            self._tensors = {tensor.name: tensor for tensor in self._each_tensor()}
        return self._tensors

    def _each_tensor(self) -> Iterator[Tensor]:
        handle, cursor, view = self.opened(), ctypes.c_uint64(), _lib.TensorView()
        while self._next("cairn_restore_next", handle, ctypes.byref(cursor), ctypes.byref(view)):
            yield Tensor(str(view.name), view.dtype.decode(), tuple(view.shape[:view.dimension_count]),
                         _KINDS[view.kind], view.bytes, str(view.alias_of) or None, view.holder_count)

    def _next(self, name: str, *arguments: Any) -> bool:
        """False: there is no further one."""
        code, err = _lib.attempt(name, *arguments)
        if code not in (_lib.OK, _lib.NOT_FOUND):
            raise _lib.error_of(code, err, run=self.session.name, step=self.step)
        return code == _lib.OK

    def holders(self, name: str) -> dict[int, Holder]:
        """By rank."""
        handle, cursor, found = self.opened(), ctypes.c_uint64(), _lib.Holder()
        rows: dict[int, Holder] = {}
        while self._next("cairn_restore_holder_next", handle, _lib.text(name), ctypes.byref(cursor), ctypes.byref(found)):
            rows[found.rank] = Holder(found.dtype.decode(), tuple(found.shape[:found.dimension_count]), found.bytes)
        return rows

    def objects(self) -> dict[str, Object]:
        found: dict[str, Object] = {}
        info = _lib.ShardInfo()
        for at in range(self._objects):
            self.session.call("cairn_restore_shard_at", self.opened(), at, ctypes.byref(info))
            found[info.name.decode()] = Object(info.rank, info.bytes)
        return found

    def known(self, name: str) -> Tensor:
        found = self.tensors.get(name)
        if not found:
            raise self.error(f"{self!r} has no tensor {name}", "not-found")
        return found

    def rank_of(self, name: str, rank: int | None = None) -> int:
        """Whose of a local tensor: this rank's own; rank 0's where this world is larger than the one that saved."""
        holders = self.holders(name)
        wanted = self.session.rank if rank is None else rank
        if wanted in holders:
            return wanted
        if rank is not None or not holders:
            raise self.error(f"{name}: rank {wanted} has none of its own", "not-found")
        return min(holders)

    def part_of(self, tensor: Tensor, rank: int | None = None) -> tuple[int, tuple[int, ...]]:
        """Whose of a tensor is read, and its shape there; rank 0 stands for those that all ranks share."""
        if tensor.kind != "local":
            return 0, tensor.shape
        owner = self.rank_of(tensor.name, rank)
        return owner, self.holders(tensor.name)[owner].shape

    # ---- bytes ----

    def read(self, reads: Sequence[_lib.Read]) -> None:
        for first in range(0, len(reads), _READS_MAX):
            part = reads[first:first + _READS_MAX]
            array = (_lib.Read * len(part))(*part)
            self.session.call("cairn_restore_read", self.opened(), array, len(part), 0, step=self.step)

    def items(self, names: Iterable[str], rank: int | None = None) -> dict[str, bytes]:
        """The bytes of several, read at the same time."""
        found: dict[str, bytearray] = {}
        reads: list[_lib.Read] = []
        pinned: list[Pinned] = []
        for name in names:
            owner = self.rank_of(name, rank)
            size = self.holders(name)[owner].bytes
            found[name] = bytearray(size)
            if size:
                pinned.append(Pinned(found[name], writable=True))
                reads.append(_lib.Read(tensor=_lib.text(name), local_rank_of=owner, into=pinned[-1].pointer,
                                       into_bytes=size))
        self.read(reads)
        for one in pinned:
            one.release()
        return {name: bytes(data) for name, data in found.items()}

    def item(self, name: str, rank: int | None = None) -> bytes:
        return self.items([name], rank)[name]

    def target(self, name: str, into: Any) -> Source:
        source = describe(into)
        if source is None:
            raise errors.make(f"{name}: {type(into).__name__} is no array to read into", code="invalid")
        if not source.writable:
            raise errors.make(f"{name}: the array to read into is read-only", code="invalid")
        return source

    def request(self, name: str, source: Source, dtype: str, box: Box | None, owner: int) -> _lib.Read:
        read = _lib.Read(tensor=_lib.text(name), local_rank_of=owner, into=source.pointer, into_bytes=source.bytes,
                         memory=source.memory, stream=source.stream)
        if box:
            read.form = _lib.BOX
            read.start, read.count = _lib.u64s(box.start), _lib.u64s(box.count)
        if source.dtype != dtype and not (dtype == "ITEM" and source.dtype == "U8"):
            read.into_dtype = source.dtype.encode()
        if source.stride is not None:
            read.into_stride = _lib.i64s(source.stride)
        read.keep = source  # its memory stays as long as the request
        return read

    def whole(self, kind: str, name: str) -> Any:
        """A tensor as a new array of a framework."""
        known = self.known(name)
        owner, shape = self.part_of(known)
        into = allocate(kind, known.dtype, shape)
        self.read([self.request(name, self.target(name, into), known.dtype, None, owner)])
        return into

    # ---- state ----

    def saved_state(self) -> tuple[Node, list[Plain]] | None:
        """The tree and the plain values of the state that it was saved from; None: it was saved by other means."""
        if self._state is None and TREE in self.tensors:
            own = self.items([TREE, VALUES])
            self._state = parse(own[TREE]), parse(own[VALUES])
        return self._state
