# SPDX-License-Identifier: Apache-2.0
"""Tensors of torch: where they lie, which part of a DTensor this rank has, and who has the same part."""
from __future__ import annotations

from typing import Any

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
        raise errors.make(f"torch has no element type {stored}", code="unsupported")
    return found


def empty(stored: str, shape: tuple[int, ...], location: Any) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype_of(stored), device=location if location is not None else "cpu")


def describe(tensor: torch.Tensor) -> Source:
    part = _part_of(tensor)
    if part is None:
        return describe_plain(tensor)
    own, box, group = part
    source = describe_plain(own)
    source.box, source.group = box, group
    return source


def describe_plain(tensor: torch.Tensor) -> Source:
    """Of a tensor that is whole on this rank."""
    if tensor.layout != torch.strided or tensor.is_quantized:
        raise errors.make("a sparse or quantized tensor is not taken", code="unsupported",
                          hint="save its parts (indices and values, int_repr and scale)")
    if tensor.is_meta:
        raise errors.make("a tensor of the meta device has no elements", code="invalid")
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
    shape = tuple(tensor.shape)
    stride = None if tensor.is_contiguous() or contiguous(shape, tensor.stride()) else tensor.stride()
    return Source(dtype_name(tensor.dtype), shape, stride, tensor.data_ptr(), "torch", tensor, memory, stream,
                  writable=writable)


# ---- DTensor ----

def _part_of(tensor: torch.Tensor) -> tuple[torch.Tensor, Box, tuple[str, int, int] | None] | None:
    """This rank's part of a DTensor, and the group of ranks that hold the same; None: a plain tensor."""
    if type(tensor) in (torch.Tensor, torch.nn.Parameter) or not hasattr(tensor, "_local_tensor"):
        return None
    placements, mesh = tensor.placements, tensor.device_mesh  # type: ignore[attr-defined]
    if any(placement.is_partial() for placement in placements):
        raise errors.make("a DTensor with a partial placement has no values yet", code="invalid",
                          hint="redistribute() it first")
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset
    own = tensor._local_tensor  # type: ignore[attr-defined]
    shape = tuple(tensor.shape)
    counts, starts = compute_local_shape_and_global_offset(tensor.shape, mesh, placements)
    count = tuple(counts) if mesh.get_coordinate() is not None else (0,) * len(shape)
    start = tuple(begin if extent else 0 for begin, extent in zip(starts, count))
    return own, Box(shape, start, count), _replicas(mesh, placements)


def _replicas(mesh: Any, placements: Any) -> tuple[str, int, int] | None:
    """Ranks that differ only in mesh dimensions along which the tensor is replicated."""
    coordinate = mesh.get_coordinate()
    replicated = [d for d, placement in enumerate(placements) if placement.is_replicate() and mesh.size(d) > 1]
    if not replicated or coordinate is None:
        return None
    ranks = mesh.mesh
    for d in range(ranks.ndim - 1, -1, -1):
        if d not in replicated:
            ranks = ranks.select(d, coordinate[d])
    members = ranks.flatten().tolist()
    own = ranks[tuple(coordinate[d] for d in replicated)].item()
    return f"ranks {','.join(map(str, members))}"[:250] if len(members) <= 32 else _digest(members), \
        members.index(own), len(members)


def _digest(members: list[int]) -> str:
    import hashlib
    return "ranks " + hashlib.sha256(repr(members).encode()).hexdigest()


def give_state(value: Any) -> None:
    """A step of an optimizer that changes no parameter, by which it makes its state."""
    if not isinstance(value, torch.optim.Optimizer) or value.state:
        return
    from torch.distributed.checkpoint.state_dict import _init_optim_state
    _init_optim_state(value)
