# SPDX-License-Identifier: Apache-2.0
"""The next state of the same form: looked through once and compared, at well under a microsecond a tensor.

A training loop saves the same names, types and places again and again; only values change. A template knows what the
last state looked like, without holding any of it. Where anything but plain values and addresses differs, there is no
match, and the state is taken apart anew. It knows plain tensors of torch on the host; states with others are always
taken apart."""
from __future__ import annotations

import sys
from collections import OrderedDict
from typing import Any

from ._arrays import Source
from ._state import Flat, encode_plain

_DICT, _LIST, _TENSOR, _VALUE = 0, 1, 2, 3
_PLAIN = (bool, int, float, str, type(None))


class Match:
    """A state that fits: what its arrays are held by, its plain values, and the addresses that are new."""

    def __init__(self) -> None:
        self.held: list[Any] = []
        self.values: list[Any] = []
        self.moved: list[tuple[int, int]] = []


class Template:
    def __init__(self, state: Any, flat: Flat) -> None:
        torch: Any = sys.modules.get("torch")
        self._types: tuple[Any, ...] = (torch.Tensor, torch.nn.Parameter) if torch else ()
        self._row = 0
        self._sources = list(flat.arrays.values())
        simple = not (flat.aliases or flat.further or flat.items)
        self._pointers: list[int] = [source.pointer for source in self._sources]
        self.root = self._node(state) if simple else None
        self._sources = []

    def _node(self, value: Any) -> Any:
        """None: the state has something that is not known here."""
        kind = type(value)
        if kind in self._types:
            source: Source = self._sources[self._row]
            if source.kind != "torch" or source.memory or source.box or source.local:
                return None
            self._row += 1
            return _TENSOR, self._row - 1, kind, tuple(value.shape), tuple(value.stride()), value.dtype
        if kind in _PLAIN:
            return _VALUE, kind
        if kind in (dict, OrderedDict):
            named = all(type(key) is str for key in value)
            if not named and not all(type(key) in _PLAIN for key in value):
                return None
            children = [(key, self._node(entry)) for key, entry in value.items()]
            return None if any(child is None for _, child in children) else (_DICT, kind, children, named)
        if kind in (list, tuple):
            nodes = [self._node(entry) for entry in value]
            return None if any(node is None for node in nodes) else (_LIST, kind, nodes)
        return None

    def match(self, state: Any) -> Match | None:
        if self.root is None:
            return None
        found = Match()
        if not self._fits(self.root, state, found):
            return None
        if found.moved:
            pointers = [tensor.data_ptr() for tensor in found.held if tensor.numel()]
            if len(set(pointers)) != len(pointers):
                return None  # two of them are one by now
        return found

    def moved(self, rows: list[tuple[int, int]]) -> None:
        for row, pointer in rows:
            self._pointers[row] = pointer

    def _fits(self, node: Any, value: Any, found: Match) -> bool:
        kind = node[0]
        if kind == _TENSOR:
            _, row, own, shape, stride, dtype = node
            if type(value) is not own or value.shape != shape or value.dtype is not dtype or value.stride() != stride:
                return False
            if value.is_conj() or value.is_neg() or not value.is_cpu:
                return False
            now = value.data_ptr()
            if now != self._pointers[row]:
                found.moved.append((row, now))
            found.held.append(value)
            return True
        if kind == _VALUE:
            if type(value) not in _PLAIN:
                return False
            found.values.append(encode_plain(value))
            return True
        if type(value) is not node[1] or len(value) != len(node[2]):
            return False
        if kind == _LIST:
            return all(self._fits(child, entry, found) for child, entry in zip(node[2], value))
        for (key, child), (own, entry) in zip(node[2], value.items()):
            if own != key:
                return False
            if not node[3]:
                found.values.append(encode_plain(own))
            if not self._fits(child, entry, found):
                return False
        return True
