# SPDX-License-Identifier: Apache-2.0
"""A nested state as arrays by name, items by name, and a tree that says how they were nested.

The tree is JSON, kept as an item of its own beside the values that are no arrays; docs/python.md has its form. A
dict with text as keys is an object. Everything else is a list whose first word says what it is:
["l", ...] list, ["u", ...] tuple, ["d", [key, node], ...] other dict, ["a", kind, name] array, ["b", type, name] bytes,
["p", name] pickled, ["v", place] a plain value of `values`."""
from __future__ import annotations

import json
import logging
import pickle
import sys
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, TypeGuard, cast

from . import errors
from ._arrays import Local, Source, describe

Node: TypeAlias = "dict[str, Any] | list[Any]"  # of the tree
Plain: TypeAlias = "bool | int | float | str | dict[str, Any] | None"  # a value of VALUES
TREE, VALUES = "cairn.tree", "cairn.values"
_ROOT = "state"  # the name of a state that is one array
_OWN = {TREE, VALUES}
log = logging.getLogger("cairn")


def is_own(name: str) -> bool:
    """Items that are no part of the state."""
    return name in _OWN


def is_stateful(value: Any) -> bool:
    return callable(getattr(value, "state_dict", None)) and callable(getattr(value, "load_state_dict", None))


class_of: Callable[[object], type[Any]] = type


def is_mapping(value: object) -> TypeGuard[Mapping[Any, Any]]:
    return isinstance(value, Mapping)


def is_sequence(value: object) -> TypeGuard[list[Any] | tuple[Any, ...]]:
    """A list, or a tuple without names."""
    return isinstance(value, (list, tuple)) and not hasattr(cast(object, value), "_fields")


class Flat:
    """What a state consists of."""

    def __init__(self) -> None:
        self.arrays: dict[str, Source] = {}
        self.further: list[tuple[str, Source]] = []  # boxes beside the first one of a tensor
        self.items: dict[str, bytes | bytearray] = {}
        self.aliases: dict[str, str] = {}
        self.values: list[Plain] = []
        self.tree: Node = {}
        self.pickled: list[str] = []
        torch: Any = sys.modules.get("torch")
        self.tensors: tuple[Any, ...] = ()  # plain ones of torch, most of what a state has
        self.describe: Any = None
        if torch is not None:
            from . import _torch
            self.tensors, self.describe = (torch.Tensor, torch.nn.Parameter), _torch.describe_plain
        self.places: dict[tuple[Any, ...], str] = {}
        self._names: set[str] = set()

    def name(self, path: str) -> str:
        """is_name_of() knows its names."""
        own, number = path or _ROOT, 1
        name = own
        while name in self._names or name in _OWN:
            number += 1
            name = f"{own}~{number}"
        self._names.add(name)
        return name


def is_name_of(name: str, path: str) -> bool:
    """Whether Flat.name() gives the name to an array with this path."""
    own = path or _ROOT
    return name == own or name.startswith(own + "~") and name[len(own) + 1:].isdigit()


def _key(key: Any) -> str:
    return key if isinstance(key, str) else str(key)


def join(path: str, key: Any) -> str:
    return f"{path}.{_key(key)}" if path else _key(key)


def flatten(state: Any) -> Flat:
    flat = Flat()
    flat.tree = _walk(flat, state, "", False)
    return flat


def _described(value: Any, path: str, how: Any) -> Any:
    try:
        return how(value)
    except errors.CairnError as error:
        raise errors.make(f"{path or _ROOT}: {error.message}", code=error.code, hint=error.hint) from None
    except (NotImplementedError, RuntimeError, ValueError) as error:  # torch refuses to say where its elements lie
        raise errors.make(f"{path or _ROOT}: a {type(value).__name__} is not taken: {error}", code="invalid",
                          hint="leave it out of the state, or save the tensors that it is made of") from error


def _walk(flat: Flat, value: Any, path: str, own: bool) -> Node:
    kind = class_of(value)
    if kind is dict:
        return _walk_dict(flat, value, path, own)
    if kind in _PLAIN_TYPES:
        return _plain(flat, value)
    if kind in flat.tensors:
        return _array(flat, _described(value, path, flat.describe), path, own)
    if isinstance(value, Local):
        return _walk(flat, value.value, path, True)
    if is_mapping(value):
        return _walk_dict(flat, value, path, own)
    if value is None or isinstance(value, (bool, int, float, str)):
        return _plain(flat, value)
    if is_sequence(value):
        word = "l" if isinstance(value, list) else "u"
        return [word, *(_walk(flat, entry, join(path, at), own) for at, entry in enumerate(value))]
    if is_stateful(value):
        return _walk(flat, value.state_dict(), path, own)
    source = _described(value, path, describe)
    if source is not None:
        return _array(flat, source, path, own)
    if isinstance(value, (bytes, bytearray)):
        name = flat.name(path)
        flat.items[name] = value
        return ["b", type(value).__name__, name]
    return _other(flat, value, path)


def _walk_dict(flat: Flat, value: Mapping[Any, Any], path: str, own: bool) -> Node:
    if all(isinstance(key, str) for key in value):
        head, tensors = f"{path}." if path else "", flat.tensors
        tree: dict[str, Any] = {}
        for key, entry in value.items():
            if type(entry) in tensors:  # most of what a state has
                tree[key] = _array(flat, _described(entry, head + key, flat.describe), head + key, own)
            else:
                tree[key] = _walk(flat, entry, head + key, own)
        return tree
    rows: list[list[Node]] = []
    for key, entry in value.items():
        if not (key is None or isinstance(key, (bool, int, float, str))):
            raise errors.make(f"{path or _ROOT}: a key of {type(key).__name__} is not taken", code="invalid",
                              hint="keys are texts, numbers, booleans or None")
        rows.append([_plain(flat, key), _walk(flat, entry, join(path, key), own)])
    return ["d", *rows]


def _array(flat: Flat, source: Source, path: str, own: bool) -> Node:
    name = flat.name(path)
    memory = source.pointer if source.bytes else source.identity
    place = (memory, source.memory, source.shape, source.stride, source.dtype,
             source.box and (source.box.shape, source.box.start))
    other = flat.places.setdefault(place, name) if memory else name
    source.local = own
    if other is not name:
        if flat.arrays[other].local == own and not own:
            flat.aliases[name] = other
            return ["a", source.kind, name]
        flat.places[place] = name
    flat.arrays[name] = source
    flat.further += [(name, part) for part in source.rest]
    return ["a", source.kind, name]


_PLAIN_TYPES = (bool, int, float, str, type(None))


def encode_plain(value: Any) -> Plain:
    """As JSON has it."""
    if type(value) not in _PLAIN_TYPES:  # an enumeration, numpy's float64: as what it derives from
        value = next(kind(value) for kind in (bool, int, float, str) if isinstance(value, kind))
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return {"float": repr(value)}
    return value


def _plain(flat: Flat, value: Any) -> Node:
    flat.values.append(encode_plain(value))
    return ["v", len(flat.values) - 1]


def _number_of(value: Any) -> bool | int | float | complex | None:
    """A complex number, or one of NumPy's, as Python has it; None: it is no such number."""
    numpy: Any = sys.modules.get("numpy")
    number = value.item() if numpy is not None and isinstance(value, numpy.generic) else value
    return number if isinstance(number, (bool, int, float, complex)) else None


def _other(flat: Flat, value: Any, path: str) -> Node:
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, (torch.dtype, torch.device)):
        flat.values.append({type(value).__name__: str(value)})
        return ["v", len(flat.values) - 1]
    number = _number_of(value)
    if isinstance(number, complex):
        flat.values.append({"complex": [number.real.hex(), number.imag.hex()]})
        return ["v", len(flat.values) - 1]
    if number is not None:
        return _plain(flat, number)
    name = flat.name(path)
    try:
        flat.items[name] = pickle.dumps(value)
    except Exception as error:
        raise errors.make(f"{path}: a {type(value).__name__} can be neither taken apart nor pickled: {error}",
                          code="invalid") from None
    flat.pickled.append(name)
    return ["p", name]


def dump(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "surrogatepass")


def parse(data: bytes) -> Any:
    return json.loads(data.decode("utf-8", "surrogatepass"))


def _restore_plain(value: Plain) -> Any:
    if not isinstance(value, dict):
        return value
    (kind, told), = value.items()
    if kind == "float":
        return float(told)
    if kind == "complex":
        return complex(float.fromhex(told[0]), float.fromhex(told[1]))
    if kind in ("dtype", "device"):
        import torch
        return getattr(torch, told.removeprefix("torch.")) if kind == "dtype" else torch.device(told)
    raise errors.make(f"a value of kind {kind} is of a newer release of this package", code="unsupported")


class Unflatten:
    """Builds a state from its tree. array(kind, name) and item(name) give what is stored under a name."""

    def __init__(self, values: list[Plain], array: Callable[[str, str], Any], item: Callable[[str], bytes],
                 weights_only: bool) -> None:
        self.values, self.array, self.item, self.weights_only = values, array, item, weights_only

    def build(self, node: Node) -> Any:
        if isinstance(node, dict):
            return {key: self.build(entry) for key, entry in node.items()}
        word, *rest = node
        if word == "v":
            place: int = rest[0]
            return _restore_plain(self.values[place])
        if word == "a":
            return self.array(*rest)
        if word == "l":
            return [self.build(entry) for entry in rest]
        if word == "u":
            return tuple(self.build(entry) for entry in rest)
        if word == "d":
            return {self.build(key): self.build(entry) for key, entry in rest}
        if word == "b":
            return bytearray(self.item(rest[1])) if rest[0] == "bytearray" else self.item(rest[1])
        if word == "p":
            return self._unpickle(rest[0])
        raise errors.make(f"a node {word!r} of the state's tree is of a newer release of this package",
                          code="unsupported")

    def _unpickle(self, name: str) -> Any:
        if self.weights_only:
            raise errors.make(f"{name} was pickled, and a pickle can run code", code="forbidden",
                              hint="load(weights_only=False) where you trust who saved it")
        return pickle.loads(self.item(name))


def array_names(node: Node) -> dict[str, str]:
    """name -> kind of each array of a tree."""
    found: dict[str, str] = {}

    def look(node: Node) -> None:
        if isinstance(node, dict):
            for entry in node.values():
                look(entry)
        elif node[0] == "a":
            found[node[2]] = node[1]
        elif node[0] in ("l", "u"):
            for entry in node[1:]:
                look(entry)
        elif node[0] == "d":
            for _, entry in node[1:]:
                look(entry)
    look(node)
    return found
