# SPDX-License-Identifier: Apache-2.0
"""Where an array's elements lie: torch, numpy, JAX, DLPack, the buffer protocol, CUDA's array interface.

No framework is imported for it: an array of one can exist only where that one is imported already."""
from __future__ import annotations

import ctypes
import functools
import math
import sys
from dataclasses import dataclass, field
from typing import Any

from . import _lib, errors

# Names of element types as frameworks have them, and as safetensors (docs/format.md, Element types) does.
DTYPES = {
    "bool": "BOOL", "uint8": "U8", "int8": "I8", "uint16": "U16", "int16": "I16", "uint32": "U32", "int32": "I32",
    "uint64": "U64", "int64": "I64", "float16": "F16", "bfloat16": "BF16", "float32": "F32", "float64": "F64",
    "complex32": "C32", "complex64": "C64", "complex128": "C128", "longdouble": "F128",
    "float8_e5m2": "F8_E5M2", "float8_e4m3fn": "F8_E4M3", "float8_e8m0fnu": "F8_E8M0",
    "float8_e4m3fnuz": "F8_E4M3FNUZ", "float8_e5m2fnuz": "F8_E5M2FNUZ", "float8_e4m3": "F8_E4M3_IEEE",
    "float8_e3m4": "F8_E3M4", "float8_e4m3b11fnuz": "F8_E4M3B11FNUZ", "float4_e2m1fn_x2": "F4X2",
    "bits1x8": "BITS1X8", "bits2x4": "BITS2X4", "bits4x2": "BITS4X2", "bits8": "BITS8", "bits16": "BITS16",
    **{f"int{bits}": f"I{bits}X1" for bits in range(1, 8)}, **{f"uint{bits}": f"U{bits}X1" for bits in range(1, 8)},
}
NAMES = {stored: name for name, stored in DTYPES.items()}
# Formats of the buffer protocol that have a fixed size everywhere Cairn runs.
_FORMATS = {"?": "BOOL", "B": "U8", "b": "I8", "H": "U16", "h": "I16", "I": "U32", "i": "I32", "L": "U64", "l": "I64",
            "Q": "U64", "q": "I64", "e": "F16", "f": "F32", "d": "F64", "Zf": "C64", "Zd": "C128", "c": "U8"}
_WIDTHS = {"BOOL": 1, "F16": 2, "BF16": 2, "F32": 4, "F64": 8, "C32": 4, "C64": 8, "C128": 16, "F128": 16, "F4X2": 1}


@functools.cache
def width(dtype: str) -> int:
    """Bytes of one element."""
    if dtype in _WIDTHS:
        return _WIDTHS[dtype]
    if dtype.startswith("F8_") or dtype.endswith("X1") or dtype in ("BITS1X8", "BITS2X4", "BITS4X2", "ITEM"):
        return 1
    digits = "".join(letter for letter in dtype if letter.isdigit())
    bits = int(digits)
    if bits % 8:
        raise errors.make(f"elements of type {dtype} are less than a byte", code="unsupported",
                          hint="pack them into bytes")
    return bits // 8


@dataclass(frozen=True)
class Box:
    """Which part of a tensor an array is: start and count for each dimension, in elements."""
    shape: tuple[int, ...]
    start: tuple[int, ...]
    count: tuple[int, ...]


@dataclass(slots=True)
class Source:
    """Elements in memory. box: of a tensor of which this is a part. whole: each rank that has it has all of it. group:
    (name, member, members) where several ranks hold the same part; held: of what _torch.find_replicas computes the group.
    identity: of an array without elements, its memory. keep: what holds the memory."""
    dtype: str
    shape: tuple[int, ...]
    stride: tuple[int, ...] | None
    pointer: int
    kind: str
    keep: Any
    memory: int = _lib.HOST
    stream: int = 0
    box: Box | None = None
    group: tuple[str, int, int] | None = None
    whole: bool = False
    held: Any = None
    identity: int = 0
    local: bool = False
    writable: bool = True
    rest: tuple[Source, ...] | list[Source] = ()
    count: int = field(init=False)
    bytes: int = field(init=False)

    def __post_init__(self) -> None:
        self.count = math.prod(self.shape)
        self.bytes = self.count * width(self.dtype)


def contiguous(shape: tuple[int, ...], stride: tuple[int, ...] | None) -> bool:
    if stride is None or 0 in shape:
        return True
    step = 1
    for extent, own in zip(reversed(shape), reversed(stride)):
        if extent != 1 and own != step:
            return False
        step *= extent
    return True


def stored_dtype(name: str) -> str:
    found = DTYPES.get(name)
    if not found:
        raise errors.make(f"Cairn has no element type {name}", code="unsupported",
                          hint="docs/format.md lists the element types")
    return found


class Array:
    """Elements without a framework: what `load` gives where neither torch nor numpy stored them. It has the buffer
    protocol through `memoryview(array.data)`, and DLPack-free conversions by numpy.frombuffer or torch.frombuffer."""

    def __init__(self, dtype: str, shape: tuple[int, ...]) -> None:
        self.dtype, self.shape = dtype, tuple(shape)
        elements = 1
        for extent in self.shape:
            elements *= extent
        self.data = bytearray(elements * width(dtype))

    def __repr__(self) -> str:
        return f"cairn.Array({self.dtype}, {list(self.shape)})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Array) and (self.dtype, self.shape, self.data) == (other.dtype, other.shape, other.data)


class Local:
    """A value that is this rank's own: see local()."""

    def __init__(self, value: Any) -> None:
        self.value = value


def local(value: Any) -> Any:
    """Marks tensors (or a whole nested state of them) as this rank's own: each rank saves its own and gets its own
    back. Values that are no tensors are so anyway."""
    return Local(value)


# ---- the buffer protocol ----

class _PyBuffer(ctypes.Structure):
    _fields_ = [("buf", ctypes.c_void_p), ("obj", ctypes.py_object), ("len", ctypes.c_ssize_t),
                ("itemsize", ctypes.c_ssize_t), ("readonly", ctypes.c_int), ("ndim", ctypes.c_int),
                ("format", ctypes.c_char_p), ("shape", ctypes.c_void_p), ("strides", ctypes.c_void_p),
                ("suboffsets", ctypes.c_void_p), ("internal", ctypes.c_void_p)]


class Pinned:
    """Holds the memory of an object with the buffer protocol in its place, read-only ones too."""

    def __init__(self, value: Any, writable: bool = False) -> None:
        self._view = _PyBuffer()
        flags = 0x18 | (1 if writable else 0)  # PyBUF_STRIDES, PyBUF_WRITABLE
        self._held = False
        try:
            ctypes.pythonapi.PyObject_GetBuffer(ctypes.py_object(value), ctypes.byref(self._view), flags)
        except BufferError as error:
            raise errors.make(f"its memory cannot be had: {error}", code="invalid") from None
        self._held = True
        self.pointer, self.bytes = self._view.buf or 0, self._view.len

    def release(self) -> None:
        if self._held:
            self._held = False
            ctypes.pythonapi.PyBuffer_Release(ctypes.byref(self._view))

    __del__ = release


def _of_buffer(value: Any) -> Source:
    view = memoryview(value)
    form = (view.format or "B").lstrip("@=<")
    dtype = _FORMATS.get(form)
    if not dtype:
        raise errors.make(f"a buffer of format {view.format!r} has no element type here", code="unsupported",
                          hint="give it as bytes, or as numbers of one type")
    strides = tuple(step // view.itemsize for step in view.strides or ())
    held = Pinned(view, writable=not view.readonly)
    shape = tuple(view.shape or ())
    return Source(dtype, shape, None if contiguous(shape, strides) else strides, held.pointer, "array", (held, value),
                  writable=not view.readonly)


# ---- DLPack ----

class _DLTensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
                ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
                ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64)]


_DL_CODES = {0: "I", 1: "U", 2: "F", 4: "BF", 5: "C"}
_DL_HOST, _DL_CUDA = (1, 3, 11, 13), (2,)


def _of_dlpack(value: Any) -> Source:
    capsule = value.__dlpack__()
    ctypes.pythonapi.PyCapsule_GetPointer.restype = ctypes.c_void_p
    ctypes.pythonapi.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    table = _DLTensor.from_address(ctypes.pythonapi.PyCapsule_GetPointer(capsule, b"dltensor"))
    dtype = "BOOL" if table.code == 6 else f"{_DL_CODES.get(table.code, '?')}{table.bits}"
    if table.lanes != 1 or dtype not in NAMES:
        raise errors.make(f"DLPack elements of code {table.code} and {table.bits} bits are not taken", code="unsupported",
                          hint="view them as bytes, or convert them first")
    if table.device_type not in (*_DL_HOST, *_DL_CUDA):
        raise errors.make(f"memory of DLPack device {table.device_type} cannot be read", code="unsupported",
                          hint="copy it to the host first")
    shape = tuple(table.shape[d] for d in range(table.ndim))
    strides = tuple(table.strides[d] for d in range(table.ndim)) if table.strides else None
    return Source(dtype, shape, None if contiguous(shape, strides) else strides,
                  (table.data or 0) + table.byte_offset, "array", (capsule, value),
                  memory=_lib.CUDA if table.device_type in _DL_CUDA else _lib.HOST)


# ---- CUDA's array interface ----

_CUDA_TYPES = {"b1": "BOOL", "u1": "U8", "i1": "I8", "u2": "U16", "i2": "I16", "u4": "U32", "i4": "I32", "u8": "U64",
               "i8": "I64", "f2": "F16", "f4": "F32", "f8": "F64", "c8": "C64", "c16": "C128"}
_CUDA_LEGACY, _CUDA_PER_THREAD = 1, 2  # what the interface calls the two default streams


def _of_cuda_interface(value: Any) -> Source:
    told = value.__cuda_array_interface__
    form = str(told["typestr"])
    dtype = _CUDA_TYPES.get(form[1:])
    if not dtype or form[0] == ">":
        raise errors.make(f"device elements of type {form!r} are not taken", code="unsupported",
                          hint="view them as bytes, or convert them first")
    stream = told.get("stream") or 0
    if stream == _CUDA_PER_THREAD:
        raise errors.make("an array whose work is queued in the per-thread default stream is not taken", code="unsupported",
                          hint="synchronize that stream, or use one of your own")
    shape = tuple(told["shape"])
    strides = tuple(step // width(dtype) for step in told.get("strides") or ()) or None
    pointer, read_only = told["data"]
    return Source(dtype, shape, None if contiguous(shape, strides) else strides, pointer or 0, "array", value, _lib.CUDA,
                  0 if stream == _CUDA_LEGACY else stream, writable=not read_only)


def of_numpy(value: Any) -> Source:
    interface = value.__array_interface__
    size = value.dtype.itemsize
    name = "longdouble" if value.dtype.char == "g" else value.dtype.name
    if not value.dtype.isnative:
        raise errors.make("an array of the other byte order is not taken", code="unsupported",
                          hint="array.astype(array.dtype.newbyteorder('='))")
    strides = tuple(step // size for step in value.strides)
    return Source(stored_dtype(name), value.shape, None if value.flags.c_contiguous else strides,
                  interface["data"][0], "numpy", value, writable=not interface["data"][1])


def _is_plain_numpy(numpy: Any, value: Any) -> bool:
    """Whether it is all in its elements: no scalar, which has no memory of its own, and no masked array."""
    kind = value.dtype
    return not (isinstance(value, (numpy.generic, numpy.ma.MaskedArray)) or kind.hasobject or kind.kind in "USMm"
                or kind.type is numpy.void)


def describe(value: Any) -> Source | None:
    """None: it is no array."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        from . import _torch
        return _torch.describe(value)
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, (numpy.ndarray, numpy.generic)):
        return of_numpy(numpy.asarray(value)) if _is_plain_numpy(numpy, value) else None
    jax = sys.modules.get("jax")
    if jax is not None and isinstance(value, jax.Array):
        from . import jax as of_jax
        return of_jax.describe(value)
    if isinstance(value, Array):
        held = Pinned(value.data, writable=True)
        return Source(value.dtype, value.shape, None, held.pointer, "array", (held, value))
    if isinstance(value, (bytes, bytearray, str, int, float, complex, type(None), dict, list, tuple)):
        return None
    if hasattr(value, "__cuda_array_interface__"):
        return _of_cuda_interface(value)
    if hasattr(value, "__dlpack__"):
        return _of_dlpack(value)
    try:
        memoryview(value)
    except TypeError:
        return None
    return _of_buffer(value)


def allocate(kind: str, dtype: str, shape: tuple[int, ...], location: Any = None) -> Any:
    """An array of the framework that the elements were saved from; of another one where that is not there."""
    if kind == "torch":
        try:
            from . import _torch
            return _torch.empty(dtype, shape, location)
        except ImportError:
            kind = "numpy"
    if kind in ("numpy", "jax"):
        try:
            import numpy
        except ImportError:
            return Array(dtype, shape)
        name = NAMES.get(dtype)
        if name in ("bfloat16",) or (name or "").startswith("float8"):
            try:
                import ml_dtypes
                return numpy.empty(shape, dtype=getattr(ml_dtypes, name or ""))
            except ImportError:
                return Array(dtype, shape)
        return numpy.empty(shape, dtype=name)
    return Array(dtype, shape)
