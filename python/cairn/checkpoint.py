# SPDX-License-Identifier: Apache-2.0
"""A committed version that is open for reading: its tensors by name, its items, its shards, or the state that it
was saved from. Every block is compared with its checksum before a call returns."""
from __future__ import annotations

import json
import pathlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from . import _lib
from ._arrays import Box, Pinned, allocate
from ._version import Row, Tensor, Version

if TYPE_CHECKING:
    from ._run import Run


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
        version_of(self.checkpoint).read([read])
        return into


class Checkpoint:
    """Made by run.latest(), run.at(), run.best()."""

    def __init__(self, version: Version) -> None:
        self._version = version
        self.run: Run = version.session.run
        self.step, self.attempt, self.bytes = version.step, version.attempt, version.bytes
        self.world_size, self.version, self.format = version.world_size, version.id, version.format

    def __repr__(self) -> str:
        return repr(self._version)

    def __enter__(self) -> Checkpoint:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def close(self) -> None:
        """Gives its lease back; retention may remove it from then on."""
        self._version.close()

    # ---- what it holds ----

    @property
    def labels(self) -> dict[str, str]:
        return json.loads(_lib.LIB.cairn_restore_labels(self._version.opened()))

    @property
    def meta(self) -> dict[str, Any]:
        return json.loads(_lib.LIB.cairn_restore_meta(self._version.opened()))

    @property
    def tensors(self) -> dict[str, Tensor]:
        """All by name, items among them."""
        return self._version.tensors

    @property
    def shards(self) -> dict[str, Shard]:
        return {name: Shard(self, name, found.rank, found.bytes) for name, found in self._version.objects().items()}

    def shard(self, name: str) -> Shard:
        """By its name, or by the name that put() was given, in any rank's folder."""
        shards = self.shards
        if name in shards:
            return shards[name]
        own = f"rank-{self.run.rank:05d}/{name}"
        of_any = [known for known in shards if re.fullmatch(rf"rank-\d+/{re.escape(name)}", known)]
        if own in shards or of_any:
            return shards[own if own in shards else of_any[0]]
        raise self._version.error(f"{self!r} has no shard {name}", "not-found")

    def fetch(self, folder: Any) -> None:
        """Its shards as files below a folder that is not there yet; whole, or nothing."""
        from ._folders import fetch
        fetch(self, pathlib.Path(folder))

    # ---- bytes ----

    def item(self, name: str, rank: int | None = None) -> bytes:
        """The bytes of an item; of one that each rank has its own of, this rank's unless another is named."""
        return self._version.item(name, rank)

    def items(self, names: Iterable[str], rank: int | None = None) -> dict[str, bytes]:
        """The bytes of several, read at the same time."""
        return self._version.items(names, rank)

    def tensor(self, name: str, *, start: Sequence[int] | None = None, count: Sequence[int] | None = None,
               out: Any = None, rank: int | None = None, kind: str = "torch") -> Any:
        """One tensor or, with start and count for each dimension, a box of it; into `out` where one is given, else
        into a new array of torch, numpy or neither (`kind`)."""
        version = self._version
        known = version.known(name)
        owner, shape = version.part_of(known, rank)
        box = None
        if start is not None or count is not None:
            start = tuple(start or (0,) * len(shape))
            count = tuple(count if count is not None else (s - b for s, b in zip(shape, start)))
            box = Box(shape, start, count)
        into = out if out is not None else allocate(kind, known.dtype, box.count if box else shape)
        version.read([version.request(name, version.target(name, into), known.dtype, box, owner)])
        return into

    # ---- state ----

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
        loader = Loader(self._version, prefix, strict, rename or {}, map_location, weights_only, only)
        return loader.new() if into is None else loader.into(into)


class _Inside(Checkpoint):
    """For the package's own modules: what derives from a class may see its inside."""

    @staticmethod
    def version_of(checkpoint: Checkpoint) -> Version:
        return checkpoint._version


version_of = _Inside.version_of

__all__ = ["Checkpoint", "Row", "Shard", "Tensor"]
