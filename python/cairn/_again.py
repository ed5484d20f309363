# SPDX-License-Identifier: Apache-2.0
"""The next state of the same form: looked through once and compared, at about a microsecond a tensor.

A training loop saves the same names, types and places again and again; only values change. A template knows what the
last state looked like, without holding any of it. Where anything but plain values and addresses differs, there is no
match, and the state is taken apart anew. It knows torch's plain tensors and DTensors on the host, tied ones and those of
local() too; states with others are always taken apart.

The walk only collects the tensors. What they are is compared afterwards, for all of them at once, by loops that run in C."""
from __future__ import annotations

import operator
import sys
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from ._arrays import Local
from ._state import Flat, array_names, class_of, encode_plain

_DICT, _LIST, _DTENSOR, _TENSOR, _TENSORS, _VALUE, _LOCAL = 0, 1, 2, 3, 4, 5, 6
_PLAIN_TENSOR = (_TENSOR,)
_PLAIN = (bool, int, float, str, type(None))
_SHAPE, _DTYPE, _IS_CPU = operator.attrgetter("shape"), operator.attrgetter("dtype"), operator.attrgetter("is_cpu")


class Match:
    """A state that fits: what its arrays are held by, its plain values, and the addresses that are new."""

    def __init__(self) -> None:
        self.held: list[Any] = []
        self.values: list[Any] = []
        self.moved: dict[int, int] = {}


class Template:
    def __init__(self, state: Any, flat: Flat) -> None:
        torch: Any = sys.modules.get("torch")
        self._types: tuple[Any, ...] = (torch.Tensor, torch.nn.Parameter) if torch else ()
        self._tensor: Any = torch.Tensor if torch else ()
        sources = list(flat.arrays.values())
        self._pointers = [source.pointer for source in sources]
        # Of each tensor, in the order of the walk: its row, and whether it is another name for what has the row.
        self._rows = list(range(len(sources)))
        self._tied = [False] * len(sources)
        if flat.aliases:
            rows, names = {name: row for row, name in enumerate(flat.arrays)}, array_names(flat.tree)
            self._rows = [rows[flat.aliases.get(name, name)] for name in names]
            self._tied = [name in flat.aliases for name in names]
        self._expected = [self._pointers[row] for row in self._rows]
        held: list[Any] = []
        known = not (flat.further or flat.items) and all(source.kind == "torch" and not source.memory for source in sources) \
            and all(sources[row].bytes for row, tied in zip(self._rows, self._tied) if tied)
        self.root = self._node(state, held) if known else None
        if self.root is None:
            return
        self._kinds = list(map(type, held))
        self._shapes = list(map(_SHAPE, held))
        self._strides: list[tuple[int, ...]] = list(map(self._tensor.stride, held)) if held else []
        self._dtypes = list(map(_DTYPE, held))
        self._complex = any(dtype.is_complex for dtype in set(self._dtypes))

    def _node(self, value: Any, held: list[Any]) -> Any:
        """None: the state has something that is not known here. held: where its tensors are put."""
        kind = class_of(value)
        if kind in self._types:
            held.append(value)
            return _PLAIN_TENSOR
        if isinstance(value, self._tensor):
            spec, own = getattr(value, "_spec", None), getattr(value, "_local_tensor", None)
            if spec is None or type(own) not in self._types:
                return None
            held.append(own)
            return _DTENSOR, kind, spec
        if kind in _PLAIN:
            return _VALUE, kind
        if kind is Local:
            child = self._node(value.value, held)
            return None if child is None else (_LOCAL, kind, child)
        if kind in (dict, OrderedDict):
            return self._dict_node(value, kind, held)
        if kind in (list, tuple):
            nodes = [self._node(entry, held) for entry in value]
            return None if any(node is None for node in nodes) else (_LIST, kind, nodes)
        return None

    def _dict_node(self, value: Any, kind: Any, held: list[Any]) -> Any:
        named = all(type(key) is str for key in value)
        if not named and not all(type(key) in _PLAIN for key in value):
            return None
        if named and value and set(map(type, value.values())).issubset(self._types):
            held.extend(value.values())
            return _TENSORS, kind, list(value)
        nodes = [self._node(entry, held) for entry in value.values()]
        return None if any(node is None for node in nodes) else (_DICT, kind, list(zip(value, nodes)), named)

    def match(self, state: Any) -> Match | None:
        if self.root is None:
            return None
        found = Match()
        return found if self._fits(self.root, state, found) and self._tensors_fit(found) else None

    def moved(self, rows: dict[int, int]) -> None:
        for row, pointer in rows.items():
            self._pointers[row] = pointer
        self._expected = [self._pointers[row] for row in self._rows]

    def _tensors_fit(self, found: Match) -> bool:
        held, tensor = found.held, self._tensor
        if not held:
            return True
        stride: Callable[[Any], tuple[int, ...]] = tensor.stride
        # Nothing is collected into lists: Python would look through them for cycles, again and again.
        if not (all(map(operator.is_, map(type, held), self._kinds)) and
                all(map(operator.is_, map(_DTYPE, held), self._dtypes)) and all(map(_IS_CPU, held))):
            return False
        try:
            if not (all(map(operator.eq, map(_SHAPE, held), self._shapes)) and
                    all(map(operator.eq, map(stride, held), self._strides))):
                return False
            if any(map(tensor.is_neg, held)) or self._complex and any(map(tensor.is_conj, held)):
                return False
            pointers: list[int] = list(map(tensor.data_ptr, held))
        except RuntimeError:
            return False  # a sparse one has no strides
        return pointers == self._expected or self._moves(found, pointers)

    def _moves(self, found: Match, pointers: list[int]) -> bool:
        places: list[int] = []  # of tensors with elements, a tied one's once
        for row, tied, now in zip(self._rows, self._tied, pointers):
            if tied:
                if now != found.moved.get(row, self._pointers[row]):
                    return False
                continue
            if now != self._pointers[row]:
                found.moved[row] = now
            if now:
                places.append(now)
        return len(set(places)) == len(places)  # else two of them are one by now

    def _fits(self, node: Any, value: Any, found: Match) -> bool:
        kind = node[0]
        if kind == _TENSOR:
            found.held.append(value)
            return True
        if kind == _VALUE:
            if type(value) not in _PLAIN:
                return False
            found.values.append(encode_plain(value))
            return True
        if type(value) is not node[1]:
            return False
        if kind == _TENSORS:
            if list(value) != node[2]:
                return False
            found.held.extend(value.values())
            return True
        if kind == _DTENSOR:
            found.held.append(value._local_tensor)
            return value._spec is node[2] or value._spec == node[2]
        if kind == _LOCAL:
            return self._fits(node[2], value.value, found)
        if len(value) != len(node[2]):
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
