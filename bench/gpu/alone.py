# SPDX-License-Identifier: Apache-2.0
"""alone.py call NAME | session host|foreign SOCKET

One question about contexts in a process of its own, whose only context is not the primary one of
device 0: so the primary one tells that a call of a thread without a context has made it, as it
would on a device that other ranks use.
"""
import ctypes as C
import json
import mmap
import os
import sys
import threading

sys.dont_write_bytecode = True
import cuda  # noqa: E402
import library  # noqa: E402

MIB = 1 << 20
CALLS = ("cudaGetDevice", "cudaGetLastError", "cudaPointerGetAttributes", "cudaSetDevice",
         "cudaFree(NULL)", "cudaStreamCreateWithFlags", "cudaStreamDestroy", "cudaStreamWaitEvent",
         "cudaStreamSynchronize", "cudaEventCreateWithFlags", "cudaEventDestroy", "cudaEventRecord",
         "cudaEventSynchronize", "cudaHostRegister", "cudaHostUnregister", "cudaMemcpyAsync",
         "cudaFree", "cudaDeviceGetAttribute", "cudaThreadExchangeStreamCaptureMode",
         "cuPointerGetAttribute", "cuCtxPushCurrent_v2 and cudaEventCreateWithFlags",
         "cuCtxPushCurrent_v2 and cudaHostRegister")


class Own:
    """A context that is not primary, and what calls are made of; made with the driver alone."""

    def __init__(self):
        self.cuda = cuda.Cuda()
        self.context = self.cuda.foreign_context()
        self.memory, self.stream, self.event = C.c_void_p(), C.c_void_p(), C.c_void_p()
        self.cuda.do("cuMemAlloc_v2", C.byref(self.memory), C.c_size_t(64 * MIB))
        self.cuda.do("cuStreamCreate", C.byref(self.stream), C.c_uint(1))
        self.cuda.do("cuEventCreate", C.byref(self.event), C.c_uint(2))
        self.pages = mmap.mmap(-1, 4 * MIB)
        self.host = C.addressof((C.c_char * (4 * MIB)).from_buffer(self.pages))

    def call(self, name):
        made, number, room = C.c_void_p(), C.c_int(), C.create_string_buffer(512)
        arguments = {
            "cudaGetDevice": (C.byref(number),), "cudaGetLastError": (),
            "cudaPointerGetAttributes": (room, self.memory), "cudaSetDevice": (0,),
            "cudaFree(NULL)": (None,), "cudaStreamCreateWithFlags": (C.byref(made), C.c_uint(1)),
            "cudaStreamDestroy": (self.stream,),
            "cudaStreamWaitEvent": (self.stream, self.event, C.c_uint(0)),
            "cudaStreamSynchronize": (self.stream,),
            "cudaEventCreateWithFlags": (C.byref(made), C.c_uint(3)),
            "cudaEventDestroy": (self.event,), "cudaEventRecord": (self.event, self.stream),
            "cudaEventSynchronize": (self.event,),
            "cudaHostRegister": (C.c_void_p(self.host), C.c_size_t(4 * MIB), C.c_uint(1)),
            "cudaHostUnregister": (C.c_void_p(self.host),),
            "cudaMemcpyAsync": (C.c_void_p(self.host), self.memory, C.c_size_t(MIB), 2,
                                self.stream),
            "cudaFree": (self.memory,), "cudaDeviceGetAttribute": (C.byref(number), 99, 0),
            "cudaThreadExchangeStreamCaptureMode": (C.byref(C.c_int(2)),),
            "cuPointerGetAttribute": (C.byref(made), 1, self.memory)}
        if name.startswith("cuCtxPushCurrent_v2 and "):
            self.cuda.do("cuCtxPushCurrent_v2", self.context)
            name = name.split(" and ")[1]
        return self.cuda.call(name.split("(")[0], *arguments[name])


def in_thread(work):
    told = []
    thread = threading.Thread(target=lambda: told.append(work()))
    thread.start()
    thread.join()
    return told[0] if told else None


def call(name):
    own = Own()
    if name == "cudaHostUnregister":
        own.cuda.do("cuMemHostRegister_v2", C.c_void_p(own.host), C.c_size_t(4 * MIB), C.c_uint(1))
    before = own.cuda.primary_active()
    status = in_thread(lambda: own.call(name))
    return dict(status=status, primary=own.cuda.primary_active(), before=before)


def session(what, socket):
    own = Own()
    lib = library.Library(os.path.dirname(os.path.abspath(__file__)))
    world = type("World", (), {"socket": socket, "forget": lambda self, run, step: None})()
    size, told = 64 * MIB, {}
    lib.so.cairn_close.argtypes = [C.c_void_p, C.c_void_p]
    host = C.create_string_buffer(size)
    source = own.memory.value if what == "foreign" else C.addressof(host)
    memory = library.CUDA if what == "foreign" else library.HOST
    piece = dict(name=b"w", dtype=b"U8", shape=[size], source=source, source_bytes=size)
    one = library.Session(lib, world, "gpu/alone-" + what, size)
    steps = (("save", lambda: one.save([piece], own.stream.value, memory=memory)),
             ("save by a thread", lambda: in_thread(lambda: told.update(saved=save_or_say(
                 one, piece, own, memory)))),
             ("restore", lambda: one.restore([(b"w", source, size)], own.stream.value, memory)),
             ("close by a thread", lambda: in_thread(one.close)))
    made = None
    for name, work in steps:
        try:
            work()
        except library.CairnError as error:
            told[name] = str(error)
        if made is None and own.cuda.primary_active():
            made = name
    assert host
    current = C.c_void_p()
    own.cuda.do("cuCtxGetCurrent", C.byref(current))
    return dict(told, context_made_by=made, own_is_current=current.value == own.context.value)


def save_or_say(one, piece, own, memory):
    try:
        one.save([piece], own.stream.value, memory=memory)
        return "ok"
    except library.CairnError as error:
        return str(error)


if __name__ == "__main__":
    answer = call(sys.argv[2]) if sys.argv[1] == "call" else session(*sys.argv[2:4])
    print(json.dumps(answer))
