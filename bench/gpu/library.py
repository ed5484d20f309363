# SPDX-License-Identifier: Apache-2.0
"""libcairn by ctypes, and a server and an uploader for it.

Structs begin with their size, so what a later release appends to them needs nothing here.
"""
import ctypes as C
import glob
import os
import shutil
import subprocess
import tempfile
import time

MIB, GIB = 1 << 20, 1 << 30
SHARDED, LOCAL = 1, 4
WHOLE = 0
HOST, CUDA = 0, 1
DURABLE, COMMITTED, COPIED = 2, 3, 5
WAIT_MS = 120000
U64, U32, I64, TEXT, POINTER, INT = (C.c_uint64, C.c_uint32, C.c_int64, C.c_char_p, C.c_void_p,
                                     C.c_int)


def struct(name, *fields):
    return type(name, (C.Structure,), {"_fields_": list(fields)})


Error = struct("Error", ("code", INT), ("errno", INT), ("http", INT), ("origin", TEXT),
               ("request", C.c_char * 48), ("message", C.c_char * 320))
OpenOptions = struct(
    "OpenOptions", ("size", C.c_size_t), ("run", TEXT), ("job", TEXT), ("rank", U32),
    ("world_size", U32), ("local_rank", U32), ("local_world_size", U32), ("bytes", U64),
    ("node_bytes", U64), ("resume", TEXT), ("socket", TEXT), ("timeout_ms", U32),
    ("wait_staged_ms", U32), ("read_only", INT), ("copy_threads", U32), ("interruptible", INT),
    ("on_disconnect", INT))
WarmupOptions = struct("WarmupOptions", ("size", C.c_size_t), ("memory", INT), ("timeout_ms", U32))
Piece = struct(
    "Piece", ("size", C.c_size_t), ("name", TEXT), ("dtype", TEXT), ("dimension_count", U32),
    ("shape", C.POINTER(U64)), ("kind", INT), ("alias_of", TEXT), ("form", INT),
    ("start", C.POINTER(U64)), ("count", C.POINTER(U64)), ("source", POINTER),
    ("source_bytes", U64), ("source_stride", C.POINTER(I64)), ("fill", POINTER),
    ("fill_owner", POINTER), ("memory", INT), ("stream", POINTER), ("in_file", TEXT),
    ("file_offset", U64), ("by_caller", INT), ("region_count", U32), ("source_dtype", TEXT))
Status = struct("Status", ("step", U64), ("version", C.c_char * 48), ("reached", INT),
                ("total_bytes", U64), ("staged_bytes", U64), ("sent_bytes", U64),
                ("durable_bytes", U64), ("stall_us", U64), ("wait_us", U64))
Slot = struct("Slot", ("name", TEXT), ("to", POINTER), ("bytes", U64))
RestoreOptions = struct("RestoreOptions", ("size", C.c_size_t), ("ref", TEXT), ("format", TEXT),
                        ("timeout_ms", U32), ("renames", POINTER), ("rename_count", C.c_size_t))
Read = struct(
    "Read", ("size", C.c_size_t), ("shard", TEXT), ("offset", U64), ("bytes", U64),
    ("tensor", TEXT), ("local_rank_of", U32), ("form", INT), ("start", C.POINTER(U64)),
    ("count", C.POINTER(U64)), ("into", POINTER), ("into_bytes", U64), ("memory", INT),
    ("stream", POINTER), ("into_dtype", TEXT), ("into_stride", C.POINTER(I64)), ("optional", INT))


class CairnError(RuntimeError):
    pass


def make(of, **fields):
    return of(size=C.sizeof(of), **fields)


def array(kind, values):
    return (kind * max(1, len(values)))(*values)


def array_of_pieces(pieces, stream, memory):
    """An array of Piece, and what it points to."""
    made, keep = (Piece * max(1, len(pieces)))(), []
    for number, piece in enumerate(pieces):
        fields = dict(piece)
        shape = fields.pop("shape")
        stride = fields.pop("source_stride", None)
        arrays = array(U64, shape), array(I64, stride) if stride else None
        keep.append((fields, arrays))
        made[number] = make(Piece, dimension_count=len(shape), shape=arrays[0], kind=LOCAL,
                            source_stride=arrays[1], memory=memory, stream=stream, **fields)
    return made, keep


class World:
    """A server and an uploader, over a folder in memory where one can be mounted."""

    def __init__(self, folder, budget_bytes):
        self.folder = folder
        self.at = tempfile.mkdtemp(prefix="cairn-gpu-")
        self.children = []
        self.in_memory = not subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=%d,mode=700" % (2 * budget_bytes), "none",
             self.at], stderr=subprocess.DEVNULL, check=False).returncode
        self.environment = dict(os.environ, LD_LIBRARY_PATH=folder + "/lib:" + folder)
        port = self.at + "/port"
        self.start("cairn-server", port, "--listen", "127.0.0.1:0", "--store", self.at + "/store",
                   "--data-dir", self.at + "/data", "--port-file", port)
        while not read(port):
            time.sleep(.02)
        self.socket = self.at + "/socket"
        self.start("cairn-uploader", self.at + "/ready", "--node", "gpu", "--server",
                   "http://127.0.0.1:" + read(port).split(":")[-1], "--store", self.at + "/store",
                   "--run-dir", self.at, "--socket", self.socket, "--state-dir", self.at,
                   "--memory-budget", "%dMiB" % (budget_bytes // MIB), "--memory-tier", "0",
                   "--workers", "4", "--restore-workers", str(max(2, (os.cpu_count() or 2) // 2)),
                   "--ready-file", self.at + "/ready")

    def start(self, name, ready, *options):
        with open(self.at + "/log", "a", encoding="utf-8") as log:
            child = subprocess.Popen([os.path.join(self.folder, name), *options],
                                     env=self.environment, stderr=log)
        self.children.append(child)
        while not os.path.exists(ready):
            if child.poll() is not None:
                raise RuntimeError("%s ended: %s" % (name, read(self.at + "/log")[-800:]))
            time.sleep(.02)

    def forget(self, run, step):
        """The bytes of an older step, so that the folder stays small."""
        for path in glob.glob("%s/store/%s/%012d*" % (self.at, run, step)):
            shutil.rmtree(path, ignore_errors=True)

    def close(self):
        for child in reversed(self.children):
            child.terminate()
            child.wait()
        if self.in_memory:
            subprocess.run(["umount", "-l", self.at], check=False)
        shutil.rmtree(self.at, ignore_errors=True)


def read(path):
    try:
        with open(path, encoding="utf-8") as file:
            return file.read().strip()
    except OSError:
        return ""


class Library:
    def __init__(self, folder):
        jansson = os.path.join(folder, "lib", "libjansson.so.4")
        if os.path.exists(jansson):
            C.CDLL(jansson, mode=C.RTLD_GLOBAL)
        self.so = C.CDLL(os.path.join(folder, "libcairn.so.1"))
        for name in ("cairn_save_free", "cairn_save_status", "cairn_restore_free"):
            getattr(self.so, name).restype = None

    def do(self, name, *arguments):
        error = Error()
        if getattr(self.so, name)(*arguments, C.byref(error)):
            raise CairnError(error.message.decode(errors="replace"))


class Session:
    """One rank. Saves are numbered from 1."""

    def __init__(self, library, world, run, size, **options):
        self.library, self.world, self.run, self.step = library, world, run, 0
        self.handle = C.c_void_p()
        library.do("cairn_open", C.byref(make(
            OpenOptions, run=run.encode(), job=b"gpu", bytes=size, socket=world.socket.encode(),
            **options)), C.byref(self.handle), None)

    def problem(self):
        """What has gone wrong, or is slow, and was not said yet; "" for nothing."""
        try:
            self.library.do("cairn_session_problem", self.handle)
        except CairnError as error:
            return str(error)
        return ""

    def warm(self, memory):
        start = time.perf_counter()
        self.library.do("cairn_warmup", self.handle, C.byref(make(WarmupOptions, memory=memory)))
        return time.perf_counter() - start

    def save(self, pieces, stream=None, wait=True, memory=CUDA):
        """pieces: dicts of Piece's fields with lists for shape and source_stride. Gives a Saved."""
        self.step += 1
        return Saved(self, pieces, stream, wait, memory)

    def behind(self, pieces, stream=None, memory=CUDA):
        """The same while the caller goes on. Gives a Behind, which is to be finished."""
        self.step += 1
        return Behind(self, pieces, stream, memory)

    def restore(self, reads, stream=None, memory=HOST):
        """reads: (tensor, address, bytes). Seconds of the read, without the opening."""
        restore = C.c_void_p()
        self.library.do("cairn_restore_open", self.handle,
                        C.byref(make(RestoreOptions, ref=str(self.step).encode())),
                        C.byref(restore), None)
        wanted = (Read * len(reads))(*[
            make(Read, tensor=name, into=at, into_bytes=size, memory=memory,
                 stream=stream if memory else None) for name, at, size in reads])
        try:
            start = time.perf_counter()
            self.library.do("cairn_restore_read", restore, wanted, C.c_size_t(len(reads)),
                            U32(WAIT_MS))
            return time.perf_counter() - start
        finally:
            self.library.so.cairn_restore_free(restore)

    def close(self):
        self.library.do("cairn_close", self.handle)


class Saved:
    def __init__(self, session, pieces, stream, wait, memory):
        library = session.library
        save = C.c_void_p()
        library.do("cairn_save_begin", session.handle, U64(session.step), None, C.byref(save))
        try:
            start = time.perf_counter()
            made, keep = array_of_pieces(pieces, stream, memory)
            library.do("cairn_save_tensors", save, made, C.c_size_t(len(pieces)), None)
            assert keep is not None
            self.describe_s = time.perf_counter() - start
            start = time.perf_counter()
            library.do("cairn_save_stage", save)
            self.stage_s = time.perf_counter() - start
            status = Status()
            library.so.cairn_save_status(save, C.byref(status))
            self.stall_s, self.bytes = status.stall_us / 1e6, status.total_bytes
            if wait:
                library.do("cairn_save_wait", save, COMMITTED, U32(WAIT_MS))
        finally:
            library.so.cairn_save_free(save)
            session.world.forget(session.run, session.step - 2)


class Behind:
    """A save whose copy goes on beside its caller. blocked_s: for how long the caller's calls kept it; what
    Python does to describe the pieces is not in it, for a trainer describes them once."""

    def __init__(self, session, pieces, stream, memory):
        self.session, self.save = session, C.c_void_p()
        self.pieces = array_of_pieces(pieces, stream, memory)
        start = time.perf_counter()
        self.do("cairn_save_begin", session.handle, U64(session.step), None, C.byref(self.save))
        self.begin_s = time.perf_counter() - start
        self.started = time.perf_counter()
        self.do("cairn_save_tensors", self.save, self.pieces[0], C.c_size_t(len(pieces)), None)
        self.do("cairn_save_stage_begin", self.save)
        self.blocked_s = time.perf_counter() - self.started

    def do(self, name, *arguments):
        self.session.library.do(name, *arguments)

    def fence_stream(self, stream):
        start = time.perf_counter()
        self.do("cairn_save_fence_stream", self.save, C.c_void_p(stream))
        self.blocked_s += time.perf_counter() - start

    def copied(self):
        return not self.session.library.so.cairn_save_poll(self.save, COPIED, None)

    def fence(self):
        """Seconds from the beginning of the copy to its end."""
        self.do("cairn_save_fence", self.save, U32(WAIT_MS))
        return time.perf_counter() - self.started

    def commit(self):
        try:
            self.do("cairn_save_wait", self.save, COMMITTED, U32(WAIT_MS))
        finally:
            self.session.library.so.cairn_save_free(self.save)
            self.session.world.forget(self.session.run, self.session.step - 2)
