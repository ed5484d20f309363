# SPDX-License-Identifier: Apache-2.0
"""The CUDA runtime and driver by ctypes: the one that torch brings, else the machine's.

CAIRN_BENCH_CUDA=PATH takes another runtime, such as the tests' own without a GPU. What a runtime
lacks is None here, and rows that need it say so.
"""
import ctypes as C
import glob
import os
import sysconfig
import time

TO_DEVICE, TO_HOST = 1, 2
PORTABLE, READ_ONLY = 1, 8
ATTRIBUTES = {"HostRegisterSupported": 99, "HostRegisterReadOnlySupported": 113,
              "PageableMemoryAccess": 88, "AsyncEngineCount": 40, "MultiProcessorCount": 16,
              "MemoryPoolsSupported": 115}


class CudaError(RuntimeError):
    pass


def find_torch():
    if os.environ.get("CAIRN_BENCH_CUDA"):
        return None
    try:
        import torch
    except ImportError:
        return None
    return torch if torch.cuda.is_available() else None


def find_runtime():
    named = os.environ.get("CAIRN_BENCH_CUDA")
    packages = sysconfig.get_paths()["purelib"]
    paths = [named] if named else (
        sorted(glob.glob(packages + "/nvidia/*/lib/libcudart.so.1[0-9]"), reverse=True)
        + ["libcudart.so.13", "libcudart.so.12", "libcudart.so.11.0"]
        + sorted(glob.glob("/usr/local/cuda*/lib64/libcudart.so.1[0-9]"), reverse=True))
    for path in paths:
        try:
            return path, C.CDLL(path, mode=C.RTLD_GLOBAL)
        except OSError:
            pass
    raise SystemExit("run: no CUDA runtime is found: torch, libcudart.so.13, 12 or 11.0")


class Cuda:
    """Calls that fail raise CudaError; `call` gives the status itself."""

    def __init__(self):
        self.path, self.runtime = find_runtime()
        self.fake = hasattr(self.runtime, "fake_cuda_reset")
        try:
            self.driver = self.runtime if self.fake else C.CDLL("libcuda.so.1")
        except OSError:
            self.driver = None

    def has(self, name):
        return hasattr(self.driver if name.startswith("cu") and not name.startswith("cuda")
                       else self.runtime, name)

    def call(self, name, *arguments):
        library = self.runtime if name.startswith("cuda") else self.driver
        return getattr(library, name)(*arguments)

    def do(self, name, *arguments):
        status = self.call(name, *arguments)
        if status:
            raise CudaError("%s: error %d" % (name, status))

    def attribute(self, number, device=0):
        value = C.c_int(-1)
        if not self.has("cudaDeviceGetAttribute"):
            return None
        self.do("cudaDeviceGetAttribute", C.byref(value), number, device)
        return value.value

    def malloc(self, size):
        made = C.c_void_p()
        self.do("cudaMalloc", C.byref(made), C.c_size_t(size))
        return made.value

    def stream(self):
        made = C.c_void_p()
        self.do("cudaStreamCreateWithFlags", C.byref(made), C.c_uint(1))
        return made.value

    def copy(self, to, source, size, kind, stream):
        """Seconds of one copy and its end."""
        start = time.perf_counter()
        self.do("cudaMemcpyAsync", C.c_void_p(to), C.c_void_p(source), C.c_size_t(size), kind,
                C.c_void_p(stream))
        self.do("cudaStreamSynchronize", C.c_void_p(stream))
        return time.perf_counter() - start

    def primary_active(self, device=0):
        """Does the device have its primary context, whoever made it?"""
        flags, active = C.c_uint(), C.c_int()
        self.do("cuDevicePrimaryCtxGetState", device, C.byref(flags), C.byref(active))
        return bool(active.value)

    def foreign_context(self, device=0):
        """A context that is not the primary one, current in this thread."""
        made = C.c_void_p()
        self.do("cuInit", 0)
        self.do("cuCtxCreate_v2", C.byref(made), C.c_uint(0), device)
        return made
