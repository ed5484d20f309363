# SPDX-License-Identifier: Apache-2.0
"""Tensors of torch: where they lie, which part of a DTensor this rank has, and who has the same part."""
from __future__ import annotations

import functools
import hashlib
import inspect
import itertools
import math
import re
from collections.abc import Iterable
from typing import Any, NamedTuple, Protocol, cast

import torch

from . import _lib, errors
from ._arrays import NAMES, Box, Source, contiguous, stored_dtype


_names: dict[torch.dtype, str] = {}


def dtype_name(dtype: torch.dtype) -> str:
    if dtype not in _names:
        _names[dtype] = stored_dtype(str(dtype).removeprefix("torch."))
    return _names[dtype]


def dtype_of(stored: str) -> torch.dtype:
    found = getattr(torch, NAMES.get(stored, "none"), None)
    if not isinstance(found, torch.dtype):
        raise errors.make(f"torch has no element type {stored}", code="unsupported",
                          hint="a newer torch may have it; tensor(name, kind=\"numpy\") needs none")
    return found


def empty(stored: str, shape: tuple[int, ...], location: Any) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype_of(stored), device=location if location is not None else "cpu")


def describe(tensor: torch.Tensor) -> Source:
    part = _part_of(tensor)
    if part is None:
        return describe_plain(tensor)
    own, box, whole, held = part
    source = describe_plain(own)
    source.box, source.whole, source.held = box, whole, held
    if not source.bytes:
        source.identity = own.untyped_storage().data_ptr()
    return source


def describe_plain(tensor: torch.Tensor) -> Source:
    """Of a tensor that is whole on this rank."""
    name = _names.get(tensor.dtype)
    if name and tensor.is_cpu and tensor.layout is torch.strided and not (tensor.is_conj() or tensor.is_neg()):
        shape = tuple(tensor.shape)
        stride = None if tensor.is_contiguous() or contiguous(shape, tensor.stride()) else tensor.stride()
        pointer = tensor.data_ptr()
        if pointer or not tensor.numel():
            return Source(name, shape, stride, pointer, "torch", tensor)
    return _describe_other(tensor)


def _describe_other(tensor: torch.Tensor) -> Source:
    """On a device, of a type that is met for the first time, or what is not taken as it is."""
    if tensor.layout != torch.strided or tensor.is_quantized:
        raise errors.make("a sparse, nested or quantized tensor is not taken", code="unsupported",
                          hint="save its parts (indices and values, values and offsets, int_repr and scale)")
    if tensor.is_meta:
        raise errors.make("a tensor of the meta device has no elements", code="invalid",
                          hint="materialize it first: module.to_empty(device=...), then load or initialize it")
    writable = True
    if tensor.is_conj() or tensor.is_neg():
        tensor, writable = tensor.detach().resolve_conj().resolve_neg(), False
    memory = _lib.HOST
    stream = 0
    if tensor.is_cuda:
        memory, stream = _lib.CUDA, torch.cuda.current_stream(tensor.device).cuda_stream
    elif not tensor.is_cpu:
        raise errors.make(f"memory of device {tensor.device} cannot be read", code="unsupported",
                          hint="copy it to the host first: tensor.cpu()")
    shape, pointer = tuple(tensor.shape), tensor.data_ptr()
    if not pointer and tensor.numel():
        raise errors.make(f"a {type(tensor).__name__} has no memory of its own", code="unsupported",
                          hint="save the tensors that it is made of, or what it stands for: tensor.dequantize()")
    stride = None if tensor.is_contiguous() or contiguous(shape, tensor.stride()) else tensor.stride()
    return Source(dtype_name(tensor.dtype), shape, stride, pointer, "torch", tensor, memory, stream, writable=writable)


# ---- DTensor ----

class _OnMesh(Protocol):
    """A DTensor, which torch may be built without."""
    device_mesh: Any
    placements: tuple[Any, ...]


class Held(NamedTuple):
    """Where a DTensor lies: its mesh, and the dimensions of the mesh along which it is replicated."""
    mesh: Any
    replicated: tuple[int, ...]


# A dimension of a mesh with such a name has whole copies of a tensor that lies on the mesh's other dimensions only.
_PLAIN = (torch.Tensor, torch.nn.Parameter)
_DATA_PARALLEL = re.compile(r"dp|data|rep|batch", re.IGNORECASE)


def _part_of(tensor: torch.Tensor) -> tuple[torch.Tensor, Box, bool, Held | None] | None:
    """This rank's part of a DTensor, whether that is the whole on each rank, and where it lies; None: a plain tensor."""
    own: torch.Tensor | None = None if type(tensor) in _PLAIN else getattr(tensor, "_local_tensor", None)
    if own is None:
        return None
    placed = cast(_OnMesh, tensor)
    mesh, shape = placed.device_mesh, tuple(tensor.shape)
    coordinate = mesh.get_coordinate()
    if coordinate is None:
        return own, Box(shape, (0,) * len(shape), (0,) * len(shape)), False, None
    box, whole, held = _placed(shape, mesh, tuple(placed.placements), tuple(coordinate))
    if own.numel() != math.prod(box.count) or own.numel() and tuple(own.shape) != box.count:
        raise errors.make(f"a DTensor of shape {list(shape)} has {list(own.shape)} of it on this rank, and by its placements "
                          f"{list(box.count)}", code="invalid", hint="DTensor.from_local wants shape= for uneven parts")
    return own, box, whole, held


@functools.lru_cache(maxsize=1 << 16)
def _placed(shape: tuple[int, ...], mesh: Any, placements: tuple[Any, ...],
            coordinate: tuple[int, ...]) -> tuple[Box, bool, Held]:
    if any(placement.is_partial() for placement in placements):
        raise errors.make("a DTensor with a partial placement has no values yet", code="invalid",
                          hint="redistribute() it first")
    sizes = tuple(mesh.size(d) for d in range(len(placements)))
    replicated = tuple(d for d, placement in enumerate(placements) if placement.is_replicate() and sizes[d] > 1)
    whole = all(placement.is_replicate() or sizes[d] == 1 for d, placement in enumerate(placements))
    return place_of(shape, sizes, placements, coordinate), whole, Held(mesh, replicated)


def place_of(shape: tuple[int, ...], sizes: tuple[int, ...], placements: tuple[Any, ...],
             coordinate: tuple[int, ...]) -> Box:
    """The box of a DTensor that the rank at a coordinate of the mesh has.

    Each cut is that of torch.chunk. Mesh dimensions cut from left to right, but for FSDP over tensor parallel: there
    `_StridedShard` says that the cuts of the dimensions to its right, split_factor in all, came first."""
    start, count = [0] * len(shape), list(shape)
    for dim in range(len(shape)):
        for d in _order_of_cuts(dim, sizes, placements):
            chunk = -(-count[dim] // sizes[d])
            first = min(count[dim], chunk * coordinate[d])
            start[dim], count[dim] = start[dim] + first, min(chunk, count[dim] - first)
    return Box(shape, tuple(begin if extent else 0 for begin, extent in zip(start, count)), tuple(count))


def _order_of_cuts(dim: int, sizes: tuple[int, ...], placements: tuple[Any, ...]) -> list[int]:
    order: list[int] = []
    for d in reversed(range(len(placements))):
        if placements[d].is_replicate() or getattr(placements[d], "dim", None) != dim:
            continue
        factor, before, place = getattr(placements[d], "split_factor", 1), 1, 0
        while before < factor and place < len(order):
            before *= sizes[order[place]]
            place += 1
        if before != factor:
            raise errors.make(f"a DTensor with placements {placements} is not taken", code="unsupported",
                              hint="redistribute() it to Shard and Replicate first")
        order.insert(place, d)
    return order


# ---- who holds the same ----

def find_replicas(sources: Iterable[Source]) -> None:
    """Sets the group of each DTensor: the ranks that hold the same part.

    These are the ranks along the replicated dimensions of its own mesh, and those at the same place of the same mesh's
    other copies. FSDP's mesh `dp` of a mesh (dp, tp) has one copy for each tp: a norm that tensor parallel leaves alone is
    a DTensor on `dp`, which does not say that each tp rank has it, too. A dimension that the DTensor's mesh lacks counts
    as one of copies where another DTensor of this state lies along it, or where its name is that of data parallel. A
    pipeline's dimension is neither: no tensor lies along it."""
    listed = [source for source in sources if source.held]
    if not listed:
        return
    places = {source.held for source in listed}
    meshes = {place.mesh for place in places if place}
    seen = {rank for mesh in meshes for rank in mesh.mesh.flatten().tolist()}
    larger = {*meshes, *(_root_of(mesh) for mesh in meshes)}
    groups = {place: _group_of(place, larger, seen) for place in places if place}
    for source in listed:
        source.group = groups[source.held]


def _root_of(mesh: Any) -> Any:
    """The mesh that it was sliced from."""
    if hasattr(mesh, "_get_root_mesh"):
        return mesh._get_root_mesh()
    from torch.distributed import device_mesh
    return getattr(device_mesh, "_mesh_resources").get_root_mesh(mesh)  # before torch 2.10


def _numbers(ranks: Any) -> list[int]:
    return ranks.flatten().tolist()


def _group_of(place: Held, larger: Iterable[Any], seen: set[int]) -> tuple[str, int, int] | None:
    mesh, coordinate = place.mesh, place.mesh.get_coordinate()
    found = (_copies(mesh, base, seen) for base in larger)
    ranks = max(found, key=lambda ranks: (ranks.shape[0], _numbers(ranks)))
    for d in reversed(range(mesh.ndim)):
        if d not in place.replicated:
            ranks = ranks.select(d + 1, coordinate[d])
    members = sorted(_numbers(ranks))
    if len(members) == 1:
        return None
    return _name_of(members), members.index(int(mesh.mesh[tuple(coordinate)])), len(members)


def _copies(mesh: Any, base: Any, seen: set[int]) -> torch.Tensor:
    """The ranks of the mesh and of its copies in a larger one: copies first, then the mesh's own dimensions."""
    ranks, at = base.mesh, base.get_coordinate()
    alone = mesh.mesh.unsqueeze(0)
    own = None if at is None else _dimensions_of(_numbers(mesh.mesh), ranks, at)
    if own is None:
        return alone
    names = base.mesh_dim_names or ("",) * ranks.ndim
    copies: list[int] = []
    for d in reversed(range(ranks.ndim)):
        if d in own:
            continue
        line = _numbers(_along(ranks, at, [d]))
        if len(line) > 1 and (seen.issuperset(line) or _DATA_PARALLEL.search(names[d])):
            copies.insert(0, d)
    ranks = _along(ranks, at, [*copies, *own])
    return ranks.reshape(-1, *mesh.mesh.shape)


def _along(ranks: torch.Tensor, at: Any, dimensions: list[int]) -> torch.Tensor:
    """Of a mesh's ranks those that share this rank's coordinate in all other dimensions."""
    kept = sorted(dimensions)
    for d in reversed(range(ranks.ndim)):
        if d not in kept:
            ranks = ranks.select(d, at[d])
    return ranks.permute([kept.index(d) for d in dimensions])


def _dimensions_of(own: list[int], ranks: torch.Tensor, at: Any) -> list[int] | None:
    """The dimensions of a larger mesh that a mesh of these ranks is made of; None: it is no part of it."""
    wide = [d for d in range(ranks.ndim) if ranks.shape[d] > 1]
    for number in range(len(wide) + 1):
        for chosen in itertools.combinations(wide, number):
            if _numbers(_along(ranks, at, list(chosen))) == own:
                return list(chosen)
    return None


def _name_of(members: list[int]) -> str:
    if len(members) <= 32:
        return f"ranks {','.join(map(str, members))}"
    return "ranks " + hashlib.sha256(repr(members).encode()).hexdigest()


def give_state(value: Any) -> None:
    """A step of an optimizer that changes no parameter, by which it makes its state. One that steps by a closure (LBFGS) has
    its state made of what was saved."""
    if not isinstance(value, torch.optim.Optimizer) or value.state or _needs_closure(value):
        return
    from torch.distributed.checkpoint import state_dict
    parameters = _parameters(value)
    gradients = [parameter.grad for parameter in parameters]
    for parameter in parameters:
        parameter.grad = None  # it makes no state where there are any
    try:
        getattr(state_dict, "_init_optim_state")(value)  # torch has no public name for it
    finally:
        for parameter, gradient in zip(parameters, gradients):
            parameter.grad = gradient


def _needs_closure(optimizer: torch.optim.Optimizer) -> bool:
    closure = inspect.signature(optimizer.step).parameters.get("closure")
    return closure is not None and closure.default is inspect.Parameter.empty


def _parameters(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def load_state(value: Any, state: Any) -> None:
    """value.load_state_dict(state). An optimizer of torch makes its state of the type that the parameters have; here it keeps
    the type in which it was filled: moments in fp32 over parameters in bf16 stay fp32."""
    value.load_state_dict(state)
    if not isinstance(value, torch.optim.Optimizer) or not {"state", "param_groups"} <= state.keys():
        return
    numbers = [number for group in state["param_groups"] for number in group["params"]]
    for number, parameter in zip(numbers, _parameters(value)):
        own: dict[str, Any] = value.state.get(parameter, {})
        for key, filled in state["state"].get(number, {}).items():
            now = own.get(key)
            if isinstance(now, torch.Tensor) and isinstance(filled, torch.Tensor) and now.dtype != filled.dtype \
                    and now.shape == filled.shape:
                own[key] = filled.to(now.device)
