# SPDX-License-Identifier: Apache-2.0
"""Arrays of JAX. A sharded one is saved as boxes of the shards that this process can address, each global index once
(JAX says which copy is the first), and loaded into the sharding that the target has."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy

from ._arrays import Box, Source, of_numpy


def _box(shape: tuple[int, ...], index: tuple[slice, ...]) -> Box:
    ranges = [part.indices(extent) for part, extent in zip(index, shape)]
    return Box(shape, tuple(first for first, _, _ in ranges), tuple(last - first for first, last, _ in ranges))


def _host(data: jax.Array) -> Source:
    """The elements of one device's shard, on the host; without a copy where they lie there."""
    source = of_numpy(numpy.asarray(data))
    source.kind, source.writable = "jax", False
    return source


def describe(array: jax.Array) -> Source:
    first = [shard for shard in array.addressable_shards if shard.replica_id == 0]
    if array.is_fully_addressable and len(first) == 1:
        return _host(first[0].data)
    found: list[Source] = []
    for shard in first:
        source = _host(shard.data)
        source.box = _box(array.shape, shard.index)
        found.append(source)
    if not found:  # another process has every first copy
        own = _host(array.addressable_shards[0].data)
        own.box = Box(array.shape, (0,) * array.ndim, (0,) * array.ndim)
        own.shape, own.stride = own.box.count, None
        own.count = own.bytes = 0
        found = [own]
    found[0].rest = found[1:]
    return found[0]


def load(array: jax.Array, read: Callable[[Any, Box], None]) -> jax.Array:
    """An array of the same sharding. read(into, box) fills a NumPy array with a box of the tensor."""
    boxes: dict[tuple[Any, ...], Any] = {}
    parts: list[jax.Array] = []
    for shard in array.addressable_shards:
        box = _box(array.shape, shard.index)
        key = (box.start, box.count)
        if key not in boxes:
            boxes[key] = numpy.empty(box.count, dtype=array.dtype)
            read(boxes[key], box)
        parts.append(jax.device_put(boxes[key], shard.device))
    return jax.make_array_from_single_device_arrays(array.shape, array.sharding, parts)
