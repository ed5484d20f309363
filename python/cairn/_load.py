# SPDX-License-Identifier: Apache-2.0
"""Checkpoint.load: which saved name goes where, then one read for all arrays."""
from __future__ import annotations

import fnmatch
import functools
import sys
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from typing import TYPE_CHECKING, Any

from . import _lib
from ._arrays import Local, Source, allocate, describe
from ._state import (Node, Unflatten, array_names, is_mapping, is_name_of, is_own, is_sequence, is_stateful,
                     join)

if TYPE_CHECKING:
    from ._version import Tensor, Version

_NAMED = 5  # names that an error lists


def _cut(name: str, prefix: str) -> str | None:
    """The rest of a name below a prefix, at a border of its components."""
    if not prefix:
        return name
    if name == prefix:
        return ""
    head = prefix if prefix.endswith(".") else prefix + "."
    return name[len(head):] if name.startswith(head) else None


class Loader:
    def __init__(self, version: Version, prefix: str, strict: bool, rename: Mapping[str, str],
                 location: Any, weights_only: bool, only: Iterable[str] | None) -> None:
        self.version, self.prefix, self.strict, self.rename = version, prefix, strict, rename
        self.location, self.weights_only = location, weights_only
        self.only = list(only) if only is not None else None
        self.known: dict[str, Tensor] = {}
        for name, tensor in version.tensors.items():
            told = self._known_as(name)
            if told is not None and not is_own(name):
                self.known[told] = tensor
        self.reads: list[_lib.Read] = []
        self.held: list[Any] = []

    def _known_as(self, name: str) -> str | None:
        rest = _cut(name, self.prefix)
        if rest is None:
            return None
        for stored, known in self.rename.items():
            if rest.startswith(stored):
                rest = known + rest[len(stored):]
                break
        return rest

    def _wanted(self, name: str) -> bool:
        return self.only is None or any(fnmatch.fnmatchcase(name, pattern) for pattern in self.only)

    # ---- a new state ----

    def new(self) -> Any:
        saved = self.version.saved_state()
        if saved is None:
            chosen = {name: tensor for name, tensor in self.known.items() if self._wanted(name)}
            items = self.version.items(tensor.name for tensor in chosen.values() if tensor.dtype == "ITEM")
            state: Any = {name: items[tensor.name] if tensor.dtype == "ITEM" else self._array("torch", tensor)
                          for name, tensor in chosen.items()}
        else:
            tree, values = saved
            state = Unflatten(values, self._array_named, self.version.item, self.weights_only).build(
                self._subtree(tree))
        self.version.read(self.reads)
        return state

    def _subtree(self, tree: Node) -> Node:
        """The node of the tree that the prefix names, without what `only` leaves out."""
        node, rest = tree, self.prefix.rstrip(".")
        while rest:
            node, rest = self._below(node, rest)
        return self._pruned(node) if self.only is not None else node

    def _below(self, node: Node, name: str) -> tuple[Node, str]:
        """The entry of a dict whose key a name begins with, and the rest of the name."""
        entries: dict[str, Node] = node if isinstance(node, dict) else {}
        for key in sorted(entries, key=len, reverse=True):
            rest = _cut(name, key)
            if rest is not None:
                return entries[key], rest
        raise self.version.error(f"{self.version!r} has no part {self.prefix!r}", "not-found")

    def _pruned(self, node: Node) -> Node:
        """Dicts without the entries whose arrays are all left out."""
        if not isinstance(node, dict):
            return node
        kept: dict[str, Any] = {}
        for key, entry in node.items():
            names = array_names(entry)
            if not names or any(self._wanted(_cut(name, self.prefix) or name) for name in names):
                kept[key] = self._pruned(entry)
        return kept

    def _array_named(self, kind: str, name: str) -> Any:
        return self._array(kind, self.version.known(name))

    def _array(self, kind: str, tensor: Tensor) -> Any:
        owner, shape = self.version.part_of(tensor)
        made = allocate(kind, tensor.dtype, shape, self.location)
        self._fill(tensor, made, owner)
        return made

    def _fill(self, tensor: Tensor, into: Any, owner: int) -> None:
        source = self.version.target(tensor.name, into)
        if source.bytes:
            self.reads.append(self.version.request(tensor.name, source, tensor.dtype, source.box, owner))
        self.held.append(into)

    # ---- into a state that is there ----

    def into(self, state: Any) -> Any:
        saved = self.version.saved_state()
        values = None
        if saved:
            values = Unflatten(saved[1], self._array_named, self.version.item, self.weights_only)
        node = self._subtree(saved[0]) if saved else None
        self.missing: list[str] = []
        self.used: set[str] = set()
        self.finish: list[Callable[[], object]] = []
        result = self._walk(state, node, "", values)
        if self.strict:
            self._compare()
        self.version.read(self.reads)
        for done in self.finish:
            done()
        return result

    def _compare(self) -> None:
        surplus = [name for name in self.known if name not in self.used and self._wanted(name)
                   and self.known[name].dtype != "ITEM"]
        told: list[str] = []
        for what, names in (("is missing in the checkpoint", self.missing), ("is not wanted", surplus)):
            if names:
                shown = ", ".join(names[:_NAMED]) + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else "")
                told.append(f"{shown} {what}")
        if told:
            raise self.version.error("; ".join(told), "not-found", rank=self.version.session.rank,
                                     hint="strict=False loads what is there; rename and prefix say what is called otherwise")

    def _walk(self, value: Any, node: Node | None, path: str, values: Unflatten | None) -> Any:
        if isinstance(value, Local):
            return self._walk(value.value, node, path, values)
        if is_stateful(value):
            return self._stateful(value, node, path, values)
        if is_mapping(value):
            return self._into_dict(value, node, path, values)
        source = describe(value)
        if source is not None:
            return self._into_array(value, source, self._name_of(node, path))
        if is_sequence(value):
            rows: list[Any] = node[1:] if isinstance(node, list) and node[0] in ("l", "u") else []
            if len(rows) == len(value) or not node:
                filled = [self._walk(entry, rows[at] if rows else None, join(path, at), values)
                          for at, entry in enumerate(value)]
                if isinstance(value, list):
                    value[:] = filled
                    return value
                return tuple(filled)
        return self._replaced(value, node, path, values)

    def _replaced(self, value: Any, node: Node | None, path: str, values: Unflatten | None) -> Any:
        """What is no array: the saved value, or what is there where none was saved."""
        if node is None or values is None or not self._wanted(path):
            tensor = self.known.get(path)
            if isinstance(value, (bytes, bytearray)) and tensor is not None and tensor.dtype == "ITEM":
                return self.version.item(tensor.name)
            return value
        for name in array_names(node):
            self.used.add(self._known_as(name) or name)
        return values.build(node)

    def _name_of(self, node: Node | None, path: str) -> str:
        """What the array of a place in the state was saved as: the place's path, with a number where another one has that
        path, too: `{"a.b": ..., "a": {"b": ...}}`."""
        if not isinstance(node, list) or node[0] != "a":
            return path
        name = self._known_as(node[2])
        return name if name is not None and is_name_of(name, path) else path

    def _into_array(self, value: Any, source: Source, path: str) -> Any:
        tensor = self.known.get(path)
        if not self._wanted(path):
            return value
        if tensor is None:
            self.missing.append(path)
            return value
        self.used.add(path)
        owner, stored = self.version.part_of(tensor)
        wanted = source.box.shape if source.box else source.shape
        if source.kind == "jax" and wanted == stored:
            return self._jax(value, tensor, owner)
        if wanted != stored:
            raise self.version.error(f"{path}: saved with shape {list(stored)}, wanted {list(wanted)}", "invalid")
        self._fill(tensor, value, owner)
        return value

    def _jax(self, value: Any, tensor: Tensor, owner: int) -> Any:
        """A new array: those of JAX do not change."""
        from . import jax

        def read(into: Any, box: Any) -> None:
            source = self.version.target(tensor.name, into)
            if source.bytes:
                self.version.read([self.version.request(tensor.name, source, tensor.dtype, box, owner)])
        return jax.load(value, read)

    def _into_dict(self, value: Mapping[Any, Any], node: Node | None, path: str, values: Unflatten | None) -> Any:
        saved = self._entries(node, values)
        for key, entry in list(value.items()):
            filled = self._walk(entry, saved.get(key), join(path, key), values)
            if filled is not entry and isinstance(value, MutableMapping):
                value[key] = filled
        return value

    @staticmethod
    def _entries(node: Node | None, values: Unflatten | None) -> dict[Any, Any]:
        if isinstance(node, dict):
            return node
        if isinstance(node, list) and node[0] == "d" and values:
            return {values.build(key): entry for key, entry in node[1:]}
        return {}

    def _stateful(self, value: Any, node: Node | None, path: str, values: Unflatten | None) -> Any:
        """Its state is filled in place where it has one, and what it has none of yet is made; then it takes both. An
        optimizer before its first step is given the state that it will have, since its parts follow its parameters."""
        give: Callable[[Any], object] = value.load_state_dict
        if "torch" in sys.modules:
            from . import _torch
            _torch.give_state(value)
            give = functools.partial(_torch.load_state, value)
        filled = self._merged(value.state_dict(), node, path, values)
        self.finish.append(lambda: give(filled))
        return value

    def _merged(self, state: Any, node: Node | None, path: str, values: Unflatten | None) -> Any:
        if is_mapping(state):
            saved = self._entries(node, values)
            merged = {key: self._merged(entry, saved.get(key), join(path, key), values) for key, entry in state.items()}
            if path and not self._is_module(state):
                for key, entry in saved.items():
                    if key not in merged and values:
                        merged[key] = self._made(entry, values)
            return merged
        return self._walk(state, node, path, values)

    @staticmethod
    def _is_module(state: Any) -> bool:
        return hasattr(state, "_metadata")  # torch.nn.Module.state_dict()

    def _made(self, node: Node, values: Unflatten) -> Any:
        for name in array_names(node):
            self.used.add(self._known_as(name) or name)
        return values.build(node)
