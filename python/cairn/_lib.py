# SPDX-License-Identifier: Apache-2.0
"""libcairn by ctypes: its structs, its functions, and one way to call them.

Every foreign call releases the GIL (ctypes.CDLL). The structs repeat include/cairn; tests/python/test_abi.py
compares sizes and offsets with what the C compiler says of the headers."""
from __future__ import annotations

import ctypes
import os
import pathlib
from collections.abc import Sequence
from ctypes import (CDLL, CFUNCTYPE, POINTER, Structure, byref, c_char, c_char_p, c_int, c_int64, c_size_t,
                    c_uint32, c_uint64, c_void_p)
from typing import Any

from . import errors

U64 = c_uint64
DIMENSIONS_MAX = 8
WHOLE_END = 2**64 - 1


class Error(Structure):
    _fields_ = [("code", c_int), ("os_errno", c_int), ("http_status", c_int), ("origin", c_char_p),
                ("request_id", c_char * 48), ("message", c_char * 320)]


class ErrorAbout(Structure):
    _fields_ = [("run", c_char * 258), ("step", U64), ("rank", c_uint32), ("has_step", c_int), ("has_rank", c_int)]


class CodeInfo(Structure):
    _fields_ = [("name", c_char_p), ("slug", c_char_p), ("http_status", c_int), ("retryable", c_int),
                ("exit_status", c_int), ("meaning", c_char_p)]


class Options(Structure):
    """A struct of options: its first field is its size, every other default is zero."""

    def __init__(self, **values: Any) -> None:
        super().__init__(size=ctypes.sizeof(type(self)), **values)


class OpenOptions(Options):
    _fields_ = [("size", c_size_t), ("run", c_char_p), ("job", c_char_p), ("rank", c_uint32),
                ("world_size", c_uint32), ("local_rank", c_uint32), ("local_world_size", c_uint32),
                ("bytes", U64), ("node_bytes", U64), ("resume", c_char_p), ("socket", c_char_p),
                ("timeout_ms", c_uint32), ("wait_staged_ms", c_uint32), ("read_only", c_int),
                ("copy_threads", c_uint32), ("interruptible", c_int), ("on_disconnect", c_int)]


class Resume(Structure):
    _fields_ = [("attempt", U64), ("found", c_int), ("step", U64), ("version", c_char * 48)]


class WarmupOptions(Options):
    _fields_ = [("size", c_size_t), ("memory", c_int), ("timeout_ms", c_uint32)]


SHARDED, REPLICATED, ALIAS, LOCAL = 1, 2, 3, 4
WHOLE, FLAT, BOX = 0, 1, 2
HOST, CUDA = 0, 1
Fill = CFUNCTYPE(c_int, c_void_p, U64, c_void_p, U64)


class Piece(Options):
    _fields_ = [("size", c_size_t), ("name", c_char_p), ("dtype", c_char_p), ("dimension_count", c_uint32),
                ("shape", POINTER(U64)), ("kind", c_int), ("alias_of", c_char_p), ("form", c_int),
                ("start", POINTER(U64)), ("count", POINTER(U64)), ("source", c_void_p),
                ("source_bytes", U64), ("source_stride", POINTER(c_int64)), ("fill", c_void_p),
                ("fill_owner", c_void_p), ("memory", c_int), ("stream", c_void_p), ("in_file", c_char_p),
                ("file_offset", U64), ("by_caller", c_int), ("region_count", c_uint32),
                ("source_dtype", c_char_p)]


SPLIT_FIRST, SPLIT_LAYER, SPLIT_TENSOR, SPLIT_SLICE = 0, 1, 2, 3


class SplitOptions(Options):
    _fields_ = [("size", c_size_t), ("group", c_char_p), ("member", c_uint32), ("members", c_uint32),
                ("by", c_int), ("weights", POINTER(c_uint32))]


EXISTS = {"error": 0, "new-version": 1, "supersede": 2}
STAGED, DURABLE, COMMITTED, PARTNERED, COPIED, DECIDED = 1, 2, 3, 4, 5, 6


class SaveStatus(Structure):
    _fields_ = [("step", U64), ("version", c_char * 48), ("reached", c_int), ("away", c_int),
                ("total_bytes", U64), ("staged_bytes", U64), ("sent_bytes", U64), ("durable_bytes", U64),
                ("stall_us", U64), ("wait_us", U64)]


class SaveOptions(Options):
    _fields_ = [("size", c_size_t), ("on_exists", c_int), ("skip", c_int), ("format", c_char_p),
                ("labels_json", c_char_p), ("meta_json", c_char_p), ("timeout_ms", c_uint32),
                ("splits", POINTER(c_void_p)), ("split_count", c_size_t), ("progress", c_void_p),
                ("progress_owner", c_void_p), ("verify_sources", c_int), ("follow", c_int)]


class Item(Options):
    _fields_ = [("size", c_size_t), ("name", c_char_p), ("kind", c_int), ("source", c_void_p), ("bytes", U64)]


class Rename(Options):
    _fields_ = [("size", c_size_t), ("stored", c_char_p), ("known", c_char_p), ("whole", c_int)]


class RestoreOptions(Options):
    _fields_ = [("size", c_size_t), ("ref", c_char_p), ("format", c_char_p), ("timeout_ms", c_uint32),
                ("renames", POINTER(Rename)), ("rename_count", c_size_t), ("run", c_char_p), ("look", c_int)]


class RestoreInfo(Structure):
    _fields_ = [("step", U64), ("attempt", U64), ("total_bytes", U64), ("world_size", c_uint32),
                ("shard_count", c_uint32), ("tensor_count", c_uint32), ("version", c_char * 48),
                ("format", c_char * 64)]


class ShardInfo(Structure):
    _fields_ = [("name", c_char * 513), ("rank", c_uint32), ("bytes", U64)]


class Read(Options):
    _fields_ = [("size", c_size_t), ("shard", c_char_p), ("offset", U64), ("bytes", U64),
                ("tensor", c_char_p), ("local_rank_of", c_uint32), ("form", c_int),
                ("start", POINTER(U64)), ("count", POINTER(U64)), ("into", c_void_p), ("into_bytes", U64),
                ("memory", c_int), ("stream", c_void_p), ("into_dtype", c_char_p),
                ("into_stride", POINTER(c_int64)), ("optional", c_int), ("region_count", c_uint32)]


class VersionInfo(Structure):
    _fields_ = [("version", c_char * 48), ("step", U64), ("attempt", U64), ("total_bytes", U64),
                ("shard_count", c_uint32), ("world_size", c_uint32), ("state", c_char * 16), ("saved_at", c_char * 32),
                ("format", c_char * 64), ("superseded", c_int), ("latest", c_int), ("pinned", c_int),
                ("labels_json", c_char_p), ("metrics_json", c_char_p)]


class FindOptions(Options):
    _fields_ = [("size", c_size_t), ("run", c_char_p), ("ref", c_char_p), ("state", c_char_p), ("labels", c_char_p),
                ("limit", U64)]


PIN_KEEP, PIN_YES, PIN_NO = 0, 1, 2


class AnnotateOptions(Options):
    _fields_ = [("size", c_size_t), ("labels_json", c_char_p), ("metrics_json", c_char_p), ("pin", c_int),
                ("timeout_ms", c_uint32)]


class RunRow(Structure):
    _fields_ = [("run", c_char * 258), ("attempt", U64), ("version_count", U64), ("total_bytes", U64),
                ("latest", c_char * 48), ("latest_step", U64), ("created_at", c_char * 32)]


class Text(Structure):
    _fields_ = [("data", c_void_p), ("bytes", c_size_t)]

    def __str__(self) -> str:
        return ctypes.string_at(self.data, self.bytes).decode() if self.bytes else ""


class TensorView(Structure):
    _fields_ = [("name", Text), ("alias_of", Text), ("dtype", c_char_p), ("dimension_count", c_uint32),
                ("kind", c_int), ("shape", U64 * DIMENSIONS_MAX), ("bytes", U64), ("holder_count", c_uint32)]


class Holder(Structure):
    _fields_ = [("rank", c_uint32), ("dtype", c_char_p), ("dimension_count", c_uint32),
                ("shape", U64 * DIMENSIONS_MAX), ("bytes", U64), ("piece_count", c_uint32)]


class StoredPiece(Structure):
    _fields_ = [("rank", c_uint32), ("shard", Text), ("offset", U64), ("bytes", U64), ("form", c_int),
                ("start", U64 * DIMENSIONS_MAX), ("count", U64 * DIMENSIONS_MAX)]


class LastChanceOptions(Options):
    _fields_ = [("size", c_size_t), ("signals", POINTER(c_int)), ("signal_count", c_size_t),
                ("grace_ms", c_uint32)]


# Which struct stands for which of the headers; the test of the ABI goes through this table.
STRUCTS: dict[str, type[Structure]] = {
    "cairn_error": Error, "cairn_error_about": ErrorAbout, "cairn_code_info": CodeInfo, "cairn_open_options": OpenOptions,
    "cairn_resume": Resume, "cairn_warmup_options": WarmupOptions, "cairn_tensor_piece": Piece,
    "cairn_split_options": SplitOptions, "cairn_save_status": SaveStatus, "cairn_save_options": SaveOptions,
    "cairn_item": Item, "cairn_rename": Rename, "cairn_restore_options": RestoreOptions,
    "cairn_restore_info": RestoreInfo, "cairn_shard_info": ShardInfo, "cairn_read": Read,
    "cairn_version_info": VersionInfo, "cairn_find_options": FindOptions,
    "cairn_annotate_options": AnnotateOptions, "cairn_run": RunRow, "cairn_text": Text,
    "cairn_tensor_view": TensorView, "cairn_holder": Holder, "cairn_stored_piece": StoredPiece,
    "cairn_last_chance_options": LastChanceOptions}

_P = c_void_p
_ERR = POINTER(Error)
# Calls that return a code and take `struct cairn_error *` last: argument types without it.
_CALLS: dict[str, list[Any]] = {
    "cairn_open": [POINTER(OpenOptions), POINTER(_P), POINTER(Resume)],
    "cairn_close": [_P], "cairn_session_problem": [_P], "cairn_session_warning": [_P],
    "cairn_session_reserve": [_P, U64, U64, c_uint32],
    "cairn_session_weights": [_P, POINTER(c_uint32), c_size_t, POINTER(c_uint32)],
    "cairn_warmup": [_P, POINTER(WarmupOptions)],
    "cairn_split_new": [POINTER(SplitOptions), POINTER(_P)], "cairn_split_add": [_P, POINTER(Piece)],
    "cairn_save_begin": [_P, U64, POINTER(SaveOptions), POINTER(_P)],
    "cairn_save_tensor": [_P, POINTER(Piece)],
    "cairn_save_raw": [_P, c_char_p, _P, U64], "cairn_save_file": [_P, c_char_p, c_int, U64],
    "cairn_save_set_meta": [_P, c_char_p, c_char_p], "cairn_save_item": [_P, POINTER(Item)],
    "cairn_save_stream": [_P, c_char_p, c_int, POINTER(_P)],
    "cairn_stream_write": [_P, _P, c_size_t], "cairn_stream_close": [_P],
    "cairn_save_stage": [_P], "cairn_save_stage_begin": [_P], "cairn_save_copy": [_P], "cairn_save_seal": [_P],
    "cairn_save_fence": [_P, c_uint32], "cairn_save_wait": [_P, c_int, c_uint32], "cairn_save_poll": [_P, c_int],
    "cairn_save_fail": [_P, c_char_p], "cairn_save_cancel": [_P, c_char_p],
    "cairn_restore_open": [_P, POINTER(RestoreOptions), POINTER(_P), POINTER(RestoreInfo)],
    "cairn_restore_shard_at": [_P, c_uint32, POINTER(ShardInfo)],
    "cairn_restore_read": [_P, POINTER(Read), c_size_t, c_uint32],
    "cairn_restore_next": [_P, POINTER(U64), POINTER(TensorView)],
    "cairn_restore_holder_next": [_P, c_char_p, POINTER(U64), POINTER(Holder)],
    "cairn_restore_piece_next": [_P, c_char_p, POINTER(U64), POINTER(StoredPiece)],
    "cairn_find": [_P, POINTER(FindOptions), POINTER(POINTER(VersionInfo)), POINTER(c_size_t)],
    "cairn_annotate": [_P, c_char_p, POINTER(AnnotateOptions)], "cairn_alias_set": [_P, c_char_p, c_char_p, c_uint32],
    "cairn_runs": [_P, POINTER(POINTER(RunRow)), POINTER(c_size_t)],
    "cairn_remove": [_P, c_char_p, c_uint32],
    "cairn_last_chance_watch": [POINTER(LastChanceOptions)],
}
# The rest: result and argument types.
_PLAIN: dict[str, tuple[Any, list[Any]]] = {
    "cairn_version": (c_char_p, []), "cairn_code_at": (POINTER(CodeInfo), [c_uint32]),
    "cairn_split_free": (None, [_P]), "cairn_stream_free": (None, [_P]), "cairn_save_free": (None, [_P]),
    "cairn_error_about": (c_int, [_ERR, POINTER(ErrorAbout)]),
    "cairn_save_fd": (c_int, [_P]), "cairn_save_status": (None, [_P, POINTER(SaveStatus)]),
    "cairn_restore_free": (None, [_P]), "cairn_restore_labels": (c_char_p, [_P]),
    "cairn_restore_meta": (c_char_p, [_P]), "cairn_find_free": (None, [_P]), "cairn_runs_free": (None, [_P]),
    "cairn_last_chance": (c_int, [POINTER(c_uint32)]), "cairn_last_chance_unwatch": (None, []),
}


def library_path() -> str:
    """CAIRN_LIBRARY, else the one in the wheel, else the system's."""
    given = os.environ.get("CAIRN_LIBRARY")
    if given:
        return given
    beside = pathlib.Path(__file__).with_name("lib") / "libcairn.so.1"
    return str(beside) if beside.exists() else "libcairn.so.1"


def _load() -> Any:
    path = library_path()
    try:
        library = CDLL(path)
    except OSError as error:
        raise errors.CairnError(
            f"libcairn cannot be loaded: {error}", code="unsupported",
            hint="install the wheel `cairn-ckpt`, or set CAIRN_LIBRARY to libcairn.so") from None
    missing = [name for name in (*_CALLS, *_PLAIN) if not hasattr(library, name)]
    if missing:
        raise errors.CairnError(
            f"{path} is older than this package: it has no {missing[0]}", code="unsupported",
            hint="install libcairn and the package of one release; CAIRN_LIBRARY names another library")
    for name, arguments in _CALLS.items():
        function = getattr(library, name)
        function.argtypes, function.restype = [*arguments, _ERR], c_int
    for name, (result, arguments) in _PLAIN.items():
        function = getattr(library, name)
        function.argtypes, function.restype = arguments, result
    return library


LIB = _load()
# Of a release whose libcairn takes an array of pieces; a loop over them is 4 us each.
HAS_ARRAYS = hasattr(LIB, "cairn_save_tensors")
if HAS_ARRAYS:
    LIB.cairn_save_tensors.argtypes = [_P, POINTER(Piece), c_size_t, POINTER(c_size_t), _ERR]
    LIB.cairn_save_tensors.restype = c_int


def _codes() -> list[CodeInfo]:
    rows: list[CodeInfo] = []
    while row := LIB.cairn_code_at(len(rows)):
        rows.append(row.contents)
    return rows


CODES = _codes()
SLUGS = [row.slug.decode() for row in CODES]
OK = 0
NOT_FOUND, TIMEOUT, UPLOADER_GONE, INTERRUPTED, NOT_YET, CANCELLED, IN_USE, UNAVAILABLE, SKIPPED = (
    SLUGS.index(slug) for slug in ("not-found", "timeout", "uploader-gone", "interrupted", "not-yet",
                                   "cancelled", "in-use", "unavailable", "skipped"))


def error_of(code: int, err: Error, **context: Any) -> errors.CairnError:
    row = CODES[code]
    about = ErrorAbout()
    if LIB.cairn_error_about(byref(err), byref(about)):
        told = {"run": about.run.decode() or None, "step": about.step if about.has_step else None,
                "rank": about.rank if about.has_rank else None}
        context = {**told, **{name: value for name, value in context.items() if value is not None}}
    message = err.message.decode() or row.meaning.decode()
    return errors.make(
        message, code=SLUGS[code], retryable=bool(row.retryable), exit_status=row.exit_status,
        os_errno=err.os_errno, http_status=err.http_status, request_id=err.request_id.decode(),
        origin=(err.origin or b"").decode(), **context)


def attempt(name: str, *arguments: Any) -> tuple[int, Error]:
    """The code, for callers that act on it."""
    err = Error()
    return getattr(LIB, name)(*arguments, byref(err)), err


def call(name: str, *arguments: Any, again: bool = False, **context: Any) -> None:
    """Raises what is no OK. again: a call that a signal interrupted is made anew, once Python's handler of it
    has run and has not raised."""
    while True:
        code, err = attempt(name, *arguments)
        if code == OK:
            return
        if code != INTERRUPTED or not again:
            raise error_of(code, err, **context)


def text(value: str | None) -> bytes | None:
    if value is None:
        return None
    if "\0" in value:
        raise errors.make(f"a name has no zero byte: {value!r}", code="invalid")
    return value.encode()


def u64s(values: Sequence[int]) -> ctypes.Array[c_uint64]:
    return (U64 * max(1, len(values)))(*values)


def i64s(values: Sequence[int]) -> ctypes.Array[c_int64]:
    return (c_int64 * max(1, len(values)))(*values)
