# SPDX-License-Identifier: Apache-2.0
"""What one save gives to libcairn: an array of pieces that is kept from save to save, items, splits.

Where the next state has the same names, types and places, only what has changed is written to the structs."""
from __future__ import annotations

import ctypes
import gc
import struct
from collections.abc import Callable
from typing import Any, TypeVar

from . import _lib
from ._again import Template
from ._arrays import Source
from ._state import TREE, VALUES, Flat, dump, flatten

# Below this a replicated tensor is saved by each rank: that costs less than to agree on who saves it.
SHARED_BYTES_MIN = 64 * 1024
# What a save needs beside its elements: of each tensor and item an entry in the header of the shard, and its name there
# (twice where safetensors does not know its type). The rest of a header is in what libcairn adds to a session's memory.
_ENTRY_BYTES, _NAMES = 512, 2
_PIECE_BYTES = ctypes.sizeof(_lib.Piece)
# A whole piece in one call, where setting its fields one by one takes thrice as long: _lib.Piece, with addresses as numbers.
_PIECE = struct.Struct("@NPPIPiPiPPPQPPPiPPQiIP")
assert _PIECE.size == _PIECE_BYTES


def _signature(source: Source) -> tuple[Any, ...]:
    return (source.dtype, source.shape, source.stride, source.box, source.whole, source.group, source.local,
            source.memory)


_T = TypeVar("_T")


def without_collection(work: Callable[[], _T]) -> _T:
    """A state of 100,000 tensors is taken apart into some hundred thousand objects, all of which stay: looking through
    them again and again for cycles takes longer than making them."""
    collects = gc.isenabled()
    gc.disable()
    try:
        return work()
    finally:
        if collects:
            gc.enable()


def _rows(flat: Flat) -> list[tuple[str, Source]]:
    return [*flat.arrays.items(), *flat.further]


class Splits:
    """Replica groups of this rank, with what each lists. The structs are libcairn's until the save is staged."""

    def __init__(self, groups: dict[tuple[str, int, int], list[int]], pieces: Any) -> None:
        self.handles: list[ctypes.c_void_p] = []
        try:
            for (name, member, members), rows in groups.items():
                handle = ctypes.c_void_p()
                options = _lib.SplitOptions(group=name.encode(), member=member, members=members,
                                            by=_lib.SPLIT_TENSOR)
                _lib.call("cairn_split_new", ctypes.byref(options), ctypes.byref(handle))
                self.handles.append(handle)
                for row in rows:
                    _lib.call("cairn_split_add", handle, ctypes.byref(pieces[row]))
        except BaseException:
            self.free()
            raise

    def free(self) -> None:
        for handle in self.handles:
            _lib.LIB.cairn_split_free(handle)
        self.handles = []

    __del__ = free


class Pieces:
    """The pieces of one state. sources() renews them for the next save of the same kind of state."""

    def __init__(self, flat: Flat, world_size: int, rank: int) -> None:
        rows = _rows(flat)
        self.names = [name for name, _ in rows]
        self.aliases = dict(flat.aliases)
        self.signatures = [_signature(source) for _, source in rows]
        # What libcairn reads: one array of each shape, the names and types as C has them.
        self._numbers: dict[tuple[int, ...], Any] = {}
        self._places: dict[Any, int] = {}
        self._texts: list[Any] = []
        self.count = len(self.names) + len(self.aliases)
        self.structs = (_lib.Piece * max(1, self.count))()
        self.tree = b""
        self.template: Template
        groups: dict[tuple[str, int, int], list[int]] = {}
        for row, (place, (name, source)) in enumerate(zip(self._text_places(self.names), rows)):
            if source.box is None and source.stride is None:
                self._describe_plain(row, place, source)
                sharded = False
            else:
                sharded = self._describe(self.structs[row], name, source)
            group = source.group or (("world", rank, world_size) if world_size > 1 and source.box is None else None)
            if group and not source.local and (sharded or source.bytes >= SHARED_BYTES_MIN):
                groups.setdefault(group, []).append(row)
        for row, (name, other) in enumerate(flat.aliases.items(), len(self.names)):
            self._alias(self.structs[row], name, other, flat.arrays[other])
        self.splits = Splits(groups, self.structs)
        self._name_bytes = _NAMES * (ctypes.sizeof(self._texts[0]) + sum(map(len, self.aliases)))
        self.bytes = sum(source.bytes for _, source in rows)

    def _u64s(self, values: tuple[int, ...]) -> Any:
        found = self._numbers.get(values)
        if found is None:
            found = self._numbers[values] = _lib.u64s(values)
        return found

    def _text_places(self, texts: list[str]) -> list[int]:
        """Where each of them lies as C has texts."""
        encoded = [_lib.text(text) or b"" for text in texts]
        self._texts.append(ctypes.create_string_buffer(b"\0".join(encoded)))
        place = ctypes.addressof(self._texts[-1])
        places: list[int] = []
        for one in encoded:
            places.append(place)
            place += len(one) + 1
        return places

    def _place(self, known: Any) -> int:
        """Of an element type's name, or of a shape's numbers."""
        found = self._places.get(known)
        if found is None:
            found = self._text_places([known])[0] if isinstance(known, str) else ctypes.addressof(self._u64s(known))
            self._places[known] = found
        return found

    def _describe_plain(self, row: int, name: int, source: Source) -> None:
        """A whole tensor, whose elements lie in their order."""
        kind = _lib.LOCAL if source.local else _lib.REPLICATED
        _PIECE.pack_into(self.structs, row * _PIECE_BYTES, _PIECE_BYTES, name, self._place(source.dtype),
                         len(source.shape), self._place(source.shape), kind, 0, _lib.WHOLE, 0, 0, source.pointer,
                         source.bytes, 0, 0, 0, source.memory, source.stream, 0, 0, 0, 0, 0)

    def _describe(self, piece: _lib.Piece, name: str, source: Source) -> bool:
        """Whether ranks have parts of it."""
        piece.size = _PIECE_BYTES
        piece.name, piece.dtype = _lib.text(name), source.dtype.encode()
        box = source.box
        shape = box.shape if box else source.shape
        piece.dimension_count = len(shape)
        piece.shape = self._u64s(shape)
        replicated = box is None or source.whole and source.group
        piece.kind = _lib.LOCAL if source.local else _lib.REPLICATED if replicated else _lib.SHARDED
        if box and not source.whole:
            piece.form = _lib.BOX
            piece.start, piece.count = self._u64s(box.start), self._u64s(box.count)
        piece.source_bytes = source.bytes
        if source.stride is not None:
            piece.source_stride = _lib.i64s(source.stride)
        piece.memory, piece.source, piece.stream = source.memory, source.pointer, source.stream
        return piece.kind == _lib.SHARDED

    def _alias(self, piece: _lib.Piece, name: str, other: str, source: Source) -> None:
        self._describe(piece, name, source)
        piece.kind, piece.alias_of, piece.form = _lib.ALIAS, _lib.text(other), _lib.WHOLE
        piece.source_bytes, piece.memory = 0, _lib.HOST
        piece.source = piece.stream = piece.source_stride = None

    def fits(self, flat: Flat) -> bool:
        rows = _rows(flat)
        return (len(rows) == len(self.names) and flat.aliases == self.aliases and
                all(name == known for (name, _), known in zip(rows, self.names)) and
                all(_signature(source) == known for (_, source), known in zip(rows, self.signatures)))

    def sources(self, flat: Flat) -> None:
        for piece, (_, source) in zip(self.structs, _rows(flat)):
            piece.source = source.pointer
            piece.stream = source.stream

    def needed(self, items: int, item_bytes: int) -> int:
        return self.bytes + item_bytes + self._name_bytes + _ENTRY_BYTES * (self.count + items)


class Prepared:
    """One save, ready to be staged. It holds every source until then."""

    def __init__(self, held: Any, pieces: Pieces, items: dict[str, Any], values: list[Any], pickled: list[str]) -> None:
        self.held, self.pieces, self.pickled = held, pieces, pickled
        self.is_empty = not (pieces.count or items or values)
        self.items: dict[str, Any] = {**items, TREE: pieces.tree, VALUES: dump(values)}
        self.item_bytes = sum(len(data) for data in self.items.values())
        self.bytes = pieces.needed(len(self.items), self.item_bytes)


def prepare(state: Any, known: Pieces | None, world_size: int, rank: int) -> Prepared:
    """known: the pieces of the save before; used again where the state has the same form."""
    match = known.template.match(state) if known else None
    if known and match:
        for row, pointer in match.moved.items():
            known.structs[row].source = pointer
        if match.moved:
            known.template.moved(match.moved)
        return Prepared(match.held, known, {}, match.values, [])
    return without_collection(lambda: _take_apart(state, known, world_size, rank))


def _take_apart(state: Any, known: Pieces | None, world_size: int, rank: int) -> Prepared:
    flat = flatten(state)
    if flat.describe is not None and world_size > 1:
        from . import _torch
        _torch.find_replicas(flat.arrays.values())
    if known and known.fits(flat):
        pieces = known
        pieces.sources(flat)
    else:
        pieces = Pieces(flat, world_size, rank)
    pieces.tree = dump(flat.tree)
    pieces.template = Template(state, flat)
    return Prepared(flat, pieces, dict(flat.items), flat.values, flat.pickled)
