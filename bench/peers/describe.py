# SPDX-License-Identifier: Apache-2.0
"""describe.py BUILD SOCKET PIECES: what one call of Python takes that describes so many pieces at new addresses, over the
libcairn of BUILD. Each line `go` is two saves: of known pieces (cairn_save_pieces), and as the one before
(cairn_save_again, its begin included). The addresses are a list of Python's, as a state has them; what makes an array of
them counts."""
import array
import ctypes as C
import json
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "gpu"))
import library  # noqa: E402

PIECE_BYTES = 64
build, socket, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
lib = library.Library(build)
world = type("World", (), {"socket": socket, "forget": lambda self, run, step: None})()
session = library.Session(lib, world, "bench/describe-python", count * PIECE_BYTES + (64 << 20))
memory = C.create_string_buffer(2 * count * PIECE_BYTES)
halves = [[C.addressof(memory) + PIECE_BYTES * (half * count + i) for i in range(count)] for half in (0, 1)]
made, keep = library.array_of_pieces(
    [dict(name=b"layers.%d.weight" % i, dtype=b"U8", shape=[PIECE_BYTES], source=at, source_bytes=PIECE_BYTES)
     for i, at in enumerate(halves[0])], None, library.HOST)
pieces, step = C.c_void_p(), 0
lib.do("cairn_pieces_new", session.handle, made, C.c_size_t(count), None, None, C.byref(pieces))


def sources(half):
    """By the array module: ctypes takes six times as long to convert a list."""
    return (C.c_void_p * count).from_buffer(array.array("Q", halves[half]))


def commit(save):
    lib.do("cairn_save_stage", save)
    lib.do("cairn_save_wait", save, library.COMMITTED, library.U32(library.WAIT_MS))


def go():
    global step
    known, again = C.c_void_p(), C.c_void_p()
    lib.do("cairn_save_begin", session.handle, library.U64(step + 1), None, C.byref(known))
    began = time.perf_counter()
    lib.do("cairn_save_pieces", known, pieces, sources(1), C.c_size_t(count))
    known_s = time.perf_counter() - began
    commit(known)
    began = time.perf_counter()
    lib.do("cairn_save_again", session.handle, library.U64(step + 2), None, known, sources(0), C.c_size_t(count),
           C.byref(again))
    again_s = time.perf_counter() - began
    commit(again)
    step += 2
    lib.so.cairn_save_free(known)
    lib.so.cairn_save_free(again)
    return {"known": known_s, "again": again_s}


print(json.dumps({"ready": True}), flush=True)
for _ in sys.stdin:
    print(json.dumps(go()), flush=True)
assert keep
session.close()
