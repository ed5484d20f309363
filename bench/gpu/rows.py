# SPDX-License-Identifier: Apache-2.0
"""The rows of bench/gpu/run, in the order in which they run. The last one makes the device unusable
for this process."""
import ctypes as C
import json
import mmap
import os
import subprocess
import sys
import threading
import time

import cuda
import library
from library import CUDA, GIB, HOST, MIB

ROWS = {}
LIBC = C.CDLL(None)
TENSORS = 300


class Skip(Exception):
    pass


def row(name):
    def keep(run):
        ROWS[name] = run
        return run
    return keep


class Lab:
    """What rows share, made when the first of them needs it."""

    def __init__(self, folder, gib, side, tell):
        self.folder, self.side, self.tell = folder, side, tell
        self.cuda = cuda.Cuda()
        self.torch = cuda.find_torch()
        self.bytes = max(int(gib * GIB) // MIB, 1) * MIB
        self.library = library.Library(folder)
        self.made = {}

    def once(self, key, make):
        if key not in self.made:
            self.made[key] = make()
        return self.made[key]

    @property
    def world(self):
        return self.once("world", lambda: library.World(self.folder, 4 * self.bytes + GIB))

    @property
    def session(self):
        return self.once("session", lambda: library.Session(
            self.library, self.world, "gpu/rows", self.bytes + 64 * MIB))

    @property
    def stream(self):
        return self.once("stream", self.cuda.stream)

    @property
    def device(self):
        """Memory of the device without a pattern that repeats within a tensor."""
        return self.once("device", self.fill)

    @property
    def tensor(self):
        """That memory as torch has it."""
        assert self.device
        return self.made["tensor"]

    @property
    def second(self):
        return self.once("second", lambda: self.cuda.malloc(self.bytes))

    def fill(self):
        if self.torch:
            self.made["tensor"] = self.torch.empty(self.bytes, dtype=self.torch.uint8,
                                                   device="cuda")
            self.torch.cuda.synchronize()
        at = self.tensor_at() or self.cuda.malloc(self.bytes)
        part = min(self.bytes, 96 * MIB)
        noise = C.create_string_buffer(os.urandom(part), part)
        for offset in range(0, self.bytes, part):
            self.cuda.copy(at + offset, C.addressof(noise), min(part, self.bytes - offset),
                           cuda.TO_DEVICE, self.stream)
        return at

    def tensor_at(self):
        return self.made["tensor"].data_ptr() if self.torch else None

    @property
    def bare(self):
        """Bytes a second from the device into page-locked memory, and back."""
        return self.once("bare", self.measure_bare)

    def measure_bare(self):
        if not self.cuda.has("cudaHostAlloc"):
            return 1e9, 1e9
        host = C.c_void_p()
        self.cuda.do("cudaHostAlloc", C.byref(host), C.c_size_t(self.bytes), 0)
        out = min(self.cuda.copy(host.value, self.device, self.bytes, cuda.TO_HOST, self.stream)
                  for _ in range(4))
        into = min(self.cuda.copy(self.second, host.value, self.bytes, cuda.TO_DEVICE, self.stream)
                   for _ in range(4))
        self.cuda.do("cudaFreeHost", host)
        return self.bytes / out, self.bytes / into

    @property
    def flat(self):
        return [dict(name=b"block%d" % i, dtype=b"F32", shape=[size // 4], source=self.device + at,
                     source_bytes=size)
                for i, (at, size) in enumerate(pieces_of(self.bytes))]

    def save(self, name, pieces, moved, times=3, **more):
        """The fastest of so many saves; `moved` is what crosses the link."""
        saves = [self.session.save(pieces, self.stream) for _ in range(times)]
        best = min(saves, key=lambda saved: saved.stall_s)
        self.tell(name, dict(
            stall_ms=ms(best.stall_s), describe_ms=ms(best.describe_s),
            GBps=gbps(moved, best.stall_s),
            of_bare=round(moved / best.stall_s / self.bare[0], 3),
            stalls_ms=[ms(saved.stall_s) for saved in saves], pieces=len(pieces),
            problem=self.session.problem(), **more))
        return best

    def close(self):
        if "session" in self.made:
            try:
                self.session.close()
            except library.CairnError as error:
                self.tell("close", {"said": str(error)})
        if "world" in self.made:
            self.world.close()


def pieces_of(size):
    """Where 300 tensors begin, and their bytes; fewer where they would be less than 64 KiB."""
    step = max(size // TENSORS // 4096 * 4096, 64 * 1024)
    begins = list(range(0, size, step))[:TENSORS]
    return list(zip(begins, [b - a for a, b in zip(begins, begins[1:] + [size])]))


def ms(seconds):
    return round(seconds * 1e3, 2)


def gbps(size, seconds):
    return round(size / seconds / 1e9, 2)


def need(condition, why):
    if not condition:
        raise Skip(why)


def shell(command):
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    return (done.stdout or done.stderr).strip()[:800]


# ---- the machine ----

@row("machine")
def machine(lab):
    lab.tell("machine", dict(
        commit=library.read(os.path.join(lab.folder, "commit")),
        gpu=shell("nvidia-smi --query-gpu=name,driver_version,pcie.link.gen.current,"
                  "pcie.link.width.current,memory.total --format=csv,noheader"),
        cpu=shell("lscpu | grep -E 'Model name|^CPU\\(s\\)|NUMA node\\(s\\)'"),
        kernel=shell("uname -r"), memlock=shell("ulimit -l"),
        huge=shell("cat /sys/kernel/mm/transparent_hugepage/shmem_enabled"),
        runtime=lab.cuda.path, torch=lab.torch.__version__ if lab.torch else None,
        attributes={name: lab.cuda.attribute(number)
                    for name, number in cuda.ATTRIBUTES.items()},
        optional={name: lab.cuda.has(name) for name in (
            "cudaMemcpyBatchAsync", "cudaMemcpy3DBatchAsync",
            "cudaThreadExchangeStreamCaptureMode", "cuPointerGetAttribute", "cuStreamGetCtx")}))


# ---- contexts, each in a process of its own ----

def alone(lab, *names):
    """The lines that rows give in a new process."""
    done = subprocess.run([sys.executable, os.path.join(lab.folder, "alone.py"), *names],
                          capture_output=True, text=True, check=False, timeout=60)
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or not lines:
        raise RuntimeError("alone.py %s: %s" % (" ".join(names), done.stderr[-400:]))
    return lines[-1]


@row("contexts-by-call")
def contexts_by_call(lab):
    """Which calls of a thread that has no context make the primary one?"""
    need(lab.cuda.has("cuCtxCreate_v2"), "the driver has no cuCtxCreate_v2")
    import alone as probes
    found, threads = {}, []
    for call in probes.CALLS:
        def probe(call=call):
            try:
                found[call] = alone(lab, "call", call)
            except RuntimeError as error:
                found[call] = {"failed": str(error)[-200:]}
        threads.append(threading.Thread(target=probe))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lab.tell("contexts-by-call", dict(
        make_one=sorted(call for call, told in found.items() if told.get("primary")),
        make_none=sorted(call for call, told in found.items() if told.get("primary") is False),
        unanswered={call: told["failed"] for call, told in found.items() if "failed" in told},
        status={call: told["status"] for call, told in found.items() if told.get("status")}))


@row("contexts")
def contexts(lab):
    """Does the library make a context on a device that the process did not use?"""
    need(lab.cuda.has("cuCtxCreate_v2"), "the driver has no cuCtxCreate_v2")
    made = []
    for what in ("host", "foreign"):
        told = alone(lab, "session", what, lab.world.socket)
        lab.tell("contexts", dict(memory=what, **told))
        if told["context_made_by"] or not told["own_is_current"]:
            made.append(what)
    if made:
        raise RuntimeError("another context was made, or is current: " + ", ".join(made))


# ---- the link ----

@row("bare")
def bare(lab):
    need(lab.cuda.has("cudaHostAlloc"), "the runtime has no cudaHostAlloc")
    size = min(lab.bytes, GIB)
    host = C.create_string_buffer(size)
    pageable = min(lab.cuda.copy(C.addressof(host), lab.device, size, cuda.TO_HOST, lab.stream)
                   for _ in range(2))
    lab.tell("bare", dict(to_host_GBps=round(lab.bare[0] / 1e9, 2),
                          to_device_GBps=round(lab.bare[1] / 1e9, 2),
                          pageable_to_host_GBps=gbps(size, pageable)))


@row("open")
def opened(lab):
    start = time.perf_counter()
    made = lab.session
    took = time.perf_counter() - start
    lab.tell("open", dict(s=round(took, 3), s_per_GiB=round(took / (2 * lab.bytes / GIB), 3)))
    for number in (1, 2):
        saved = made.save(lab.flat, lab.stream)
        lab.tell("open", dict(first_saves=number, stall_ms=ms(saved.stall_s),
                              problem=made.problem()))
    lab.tell("open", dict(warm_again_s=round(made.warm(CUDA), 3)))


@row("warm")
def warm(lab):
    """Populating and page-locking fresh slabs by cairn_warmup."""
    size = lab.bytes // 4
    start = time.perf_counter()
    fresh = library.Session(lab.library, lab.world, "gpu/warm", size)
    opened_s = time.perf_counter() - start
    took = fresh.warm(CUDA)
    lab.tell("warm", dict(open_s=round(opened_s, 3), s=round(took, 3),
                          s_per_GiB=round(took / (2 * size / GIB), 3), problem=fresh.problem()))
    stalls = [fresh.save([dict(name=b"w", dtype=b"U8", shape=[size], source=lab.device,
                               source_bytes=size)], lab.stream).stall_s for _ in range(3)]
    lab.tell("warm", dict(stalls_ms=[ms(stall) for stall in stalls], bare_ms=ms(
        size / lab.bare[0])))
    fresh.close()


# ---- saves ----

@row("stage-gpu")
def stage_gpu(lab):
    lab.save("stage-gpu", lab.flat, lab.bytes, 5)


BEHIND_ROUNDS, TRAINED_ROUNDS = 8, 4
BLOCKED_MS, COPY_OF_BARE, SLOWER = 20, 0.95, 1.02  # goals, of 8 GiB


def expect_same(lab, piece, wanted):
    """The stored bytes of a piece, against what it had before."""
    size = piece["source_bytes"]
    got = C.create_string_buffer(size)
    lab.session.restore([(piece["name"], C.addressof(got), size)])
    if LIBC.memcmp(got, wanted, C.c_size_t(size)):
        raise RuntimeError("what the stream did behind its fence is in the save")


@row("stage-async-gpu")
def stage_async_gpu(lab):
    """Saves that are copied beside the stream's next work, which waits for the copy on the device and then overwrites
    the first tensor, as an optimizer's step would."""
    first, blocked, took = lab.flat[0], [], []
    size = first["source_bytes"]
    noise, before = C.c_void_p(), C.create_string_buffer(size)
    lab.cuda.do("cudaHostAlloc", C.byref(noise), C.c_size_t(size), 0)
    for number in range(BEHIND_ROUNDS + 1):
        C.memmove(noise, os.urandom(min(size, MIB)), min(size, MIB))
        lab.cuda.copy(C.addressof(before), lab.device, size, cuda.TO_HOST, lab.stream)
        save = lab.session.behind(lab.flat, lab.stream)
        save.fence_stream(lab.stream)
        lab.cuda.do("cudaMemcpyAsync", C.c_void_p(lab.device), noise, C.c_size_t(size), cuda.TO_DEVICE,
                    C.c_void_p(lab.stream))
        copied_s = save.fence()
        save.commit()
        expect_same(lab, first, before)
        if number:  # not the one that meets new memory
            blocked.append(save.blocked_s)
            took.append(copied_s)
    lab.cuda.do("cudaFreeHost", noise)
    of_bare = lab.bytes / min(took) / lab.bare[0]
    lab.tell("stage-async-gpu", dict(
        blocked_ms=ms(max(blocked)), blocked_each_ms=[ms(one) for one in blocked], begin_ms=ms(save.begin_s),
        copy_GBps=gbps(lab.bytes, min(took)), of_bare=round(of_bare, 3), problem=lab.session.problem(),
        met=max(blocked) * 1e3 <= BLOCKED_MS and of_bare >= COPY_OF_BARE))
    if lab.torch:
        train_beside(lab)


def train_beside(lab):
    """Steps in torch's own stream while a save of it is copied, against steps alone, in turns."""
    x = lab.torch.randn(8192, 8192, device="cuda", dtype=lab.torch.bfloat16)
    stream = lab.torch.cuda.current_stream().cuda_stream
    alone, beside = [], []
    steps(lab, x, 100)
    for _ in range(TRAINED_ROUNDS):
        alone += [steps(lab, x, 10) for _ in range(3)]
        save = lab.session.behind(lab.flat, stream)
        while not save.copied():
            beside.append(steps(lab, x, 10))
        save.fence_stream(stream)
        save.fence()
        save.commit()
    slower = sum(beside) / len(beside) / (sum(alone) / len(alone))
    lab.tell("stage-async-gpu", dict(step_ms=ms(sum(alone) / len(alone)), beside_ms=ms(sum(beside) / len(beside)),
                                     steps=10 * len(beside), slower=round(slower, 3), met=slower <= SLOWER))


@row("stage-convert")
def stage_convert(lab):
    for dtype in (b"BF16", b"F16"):
        lab.save("stage-convert", [dict(piece, dtype=dtype, source_dtype=b"F32")
                                   for piece in lab.flat], lab.bytes // 2, to=dtype.decode())


def strided_piece(lab, label, dtype, width, shape, stride, stored=None):
    """One tensor of the device's memory; what was stored is compared with torch's own gathering."""
    count = 1
    for edge in shape:
        count *= edge
    piece = dict(name=b"strided", dtype=stored or dtype, source_dtype=dtype, shape=shape,
                 source_stride=stride, source=lab.device, source_bytes=count * width)
    moved = count * (2 if stored else width)
    same = None
    saved = lab.save("strided", [piece], moved, 2, shape=label)
    if lab.torch and not stored:
        kind = {1: lab.torch.uint8, 2: lab.torch.int16, 4: lab.torch.int32,
                8: lab.torch.int64}[width]
        expected = lab.tensor.view(kind).as_strided(shape, stride).contiguous().view(-1)
        same = bool((read_back(lab, b"strided", moved, kind) == expected).all())
        lab.tell("strided", dict(shape=label, same_as_torch=same))
        if not same:
            raise RuntimeError("%s: other elements than torch's" % label)
    return saved


@row("strided")
def strided(lab):
    """As parallel trainers hold their parameters: shards of columns, transposed, interleaved."""
    side = min(lab.side, int((lab.bytes // 8) ** .5) // 64 * 64)
    half = side // 2
    for label, shape, stride in (
            ("a column shard of 8", [side, side // 8], [side, 1]),
            ("transposed", [side, side], [1, side]),
            ("every second element", [side, half], [side, 2]),
            ("every second head of 64", [half, side // 128, 64], [side, 128, 1]),
            ("three dimensions turned round", [64, side // 64, side // 8], [1, 64, side])):
        strided_piece(lab, label, b"BF16", 2, shape, stride)
    for width, dtype in ((1, b"U8"), (4, b"F32"), (8, b"F64")):
        strided_piece(lab, "transposed, %d bytes each" % width, dtype, width, [side, side],
                      [1, side])
    strided_piece(lab, "transposed, F32 to BF16", b"F32", 4, [side, side], [1, side], b"BF16")


@row("small")
def small(lab):
    for size, most in ((8192, 20000), (256, 50000)):
        count = min(most, lab.bytes // size // 2)
        pieces = [dict(name=b"small%d" % i, dtype=b"F32", shape=[size // 4],
                       source=lab.device + 2 * size * i, source_bytes=size) for i in range(count)]
        lab.save("small", pieces, count * size, bytes_each=size)


@row("batch")
def batch(lab):
    """The runtime's own ways for 20,000 copies of 8 KiB: one call each, and one for all."""
    need(lab.cuda.has("cudaHostAlloc"), "the runtime has no cudaHostAlloc")
    count, size = 20000, 8192
    need(2 * count * size <= lab.bytes, "too few bytes")
    host = C.c_void_p()
    lab.cuda.do("cudaHostAlloc", C.byref(host), C.c_size_t(count * size), 0)
    copy = lab.cuda.runtime.cudaMemcpyAsync
    arguments = [(C.c_void_p(host.value + size * i), C.c_void_p(lab.device + 2 * size * i),
                  C.c_size_t(size), cuda.TO_HOST, C.c_void_p(lab.stream)) for i in range(count)]
    times = []
    for _ in range(3):
        start = time.perf_counter()
        for one in arguments:
            copy(*one)
        called = time.perf_counter() - start
        lab.cuda.do("cudaStreamSynchronize", C.c_void_p(lab.stream))
        times.append((time.perf_counter() - start, called))
    best, called = min(times)
    lab.tell("batch", dict(way="one call each (from Python)", ms=ms(best), calls_ms=ms(called)))
    if lab.cuda.has("cudaMemcpyBatchAsync"):
        batch_call(lab, host, count, size)
    lab.cuda.do("cudaFreeHost", host)


def batch_call(lab, host, count, size):
    """Release 13's form of the call, without the index of a failure."""
    attributes = library.struct("Attributes", ("order", C.c_int), ("from_type", C.c_int),
                                ("from_id", C.c_int), ("to_type", C.c_int), ("to_id", C.c_int),
                                ("flags", C.c_uint))(1, 0, 0, 0, 0, 0)
    to = (C.c_void_p * count)(*[host.value + size * i for i in range(count)])
    source = (C.c_void_p * count)(*[lab.device + 2 * size * i for i in range(count)])
    sizes = (C.c_size_t * count)(*[size] * count)
    first = (C.c_size_t * 1)(0)
    times = []
    for _ in range(3):
        start = time.perf_counter()
        status = lab.cuda.call("cudaMemcpyBatchAsync", to, source, sizes, C.c_size_t(count),
                               C.byref(attributes), first, C.c_size_t(1), C.c_void_p(lab.stream))
        called = time.perf_counter() - start
        lab.cuda.do("cudaStreamSynchronize", C.c_void_p(lab.stream))
        times.append((time.perf_counter() - start, called))
    best, called = min(times)
    lab.tell("batch", dict(way="cudaMemcpyBatchAsync", ms=ms(best), calls_ms=ms(called),
                           status=status))


@row("checksums")
def checksums(lab):
    """What the host's sums cost beside the copies: by one thread, and by as many as it takes."""
    size = lab.bytes // 4
    for threads in (1, 4, 8):
        one = library.Session(lab.library, lab.world, "gpu/sums%d" % threads, size,
                              copy_threads=threads)
        one.warm(CUDA)
        piece = dict(name=b"w", dtype=b"U8", shape=[size], source=lab.device, source_bytes=size)
        host = lab.once("host", lambda: C.create_string_buffer(size))
        stalls = [one.save([piece], lab.stream).stall_s for _ in range(3)]
        hosts = [one.save([dict(piece, source=C.addressof(host))], memory=HOST).stall_s
                 for _ in range(3)]
        lab.tell("checksums", dict(threads=threads, GBps=gbps(size, min(stalls)),
                                   of_bare=round(size / min(stalls) / lab.bare[0], 3),
                                   host_memory_GBps=gbps(size, min(hosts))))
        one.close()
    lab.made.pop("host")


# ---- restores ----

@row("restore-gpu")
def restore_gpu(lab):
    session = lab.session
    session.save(lab.flat, lab.stream)
    host = C.create_string_buffer(lab.bytes)
    for label, memory, base in (("host", HOST, C.addressof(host)), ("gpu", CUDA, lab.second),
                                ("gpu again", CUDA, lab.second), ("host again", HOST, C.addressof(
                                    host))):
        reads = [(piece["name"], base + at, size)
                 for piece, (at, size) in zip(lab.flat, pieces_of(lab.bytes))]
        took = session.restore(reads, lab.stream, memory)
        lab.tell("restore-gpu", dict(
            into=label, s=round(took, 3), GBps=gbps(lab.bytes, took),
            of_bare=round(lab.bytes / took / lab.bare[1], 3), problem=session.problem()))
    back = C.create_string_buffer(lab.bytes)
    lab.cuda.copy(C.addressof(back), lab.second, lab.bytes, cuda.TO_HOST, lab.stream)
    same_read = not LIBC.memcmp(back, host, C.c_size_t(lab.bytes))
    lab.cuda.copy(C.addressof(back), lab.device, lab.bytes, cuda.TO_HOST, lab.stream)
    same = not LIBC.memcmp(back, host, C.c_size_t(lab.bytes))
    lab.tell("restore-gpu", dict(gpu_is_host=same_read, restored_is_saved=same))
    if not same or not same_read:
        raise RuntimeError("what came back is not what was saved")


# ---- beside a trainer: these need torch ----

def need_torch(lab):
    need(lab.torch, "no torch that sees the device")
    return lab.torch


def steps(lab, x, count):
    """Seconds of one step, the mean of so many; each tenth is waited for, as a trainer would."""
    start = time.perf_counter()
    for number in range(count):
        x @ x
        if number % 10 == 9:
            lab.torch.cuda.current_stream().synchronize()
    return (time.perf_counter() - start) / count


@row("training")
def training(lab):
    """Steps of a trainer alone, and while a second thread copies: bare, and by saves."""
    torch = need_torch(lab)
    x = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    host = C.c_void_p()
    lab.cuda.do("cudaHostAlloc", C.byref(host), C.c_size_t(lab.bytes), 0)
    half = [dict(piece, dtype=b"BF16", source_dtype=b"F32") for piece in lab.flat]
    works = {
        "nothing": lambda: time.sleep(.1),
        "a bare copy": lambda: lab.cuda.copy(host.value, lab.device, lab.bytes, cuda.TO_HOST,
                                             lab.stream),
        "a save": lambda: lab.session.save(lab.flat, lab.stream, wait=False),
        "a save to BF16": lambda: lab.session.save(half, lab.stream, wait=False)}
    beside, took = {label: [] for label in works}, {label: [] for label in works}
    steps(lab, x, 100)
    for label, work in 3 * list(works.items()):
        start = time.perf_counter()
        thread = threading.Thread(target=work)
        thread.start()
        while thread.is_alive():
            beside[label].append(steps(lab, x, 10))
        took[label].append(time.perf_counter() - start)
        thread.join()
        for _ in range(2):  # the memory of the save before is free again
            lab.session.save(lab.flat[:1], lab.stream)
    means = {label: sum(times) / len(times) for label, times in beside.items()}
    for label in works:
        lab.tell("training", dict(
            beside=label, step_ms=ms(means[label]), s=round(min(took[label]), 3),
            slower=round(means[label] / means["nothing"], 3)))
    lab.cuda.do("cudaFreeHost", host)


def read_back(lab, name, size, dtype):
    torch = lab.torch
    got = torch.zeros(size // dtype.itemsize, dtype=dtype, device="cuda")
    torch.cuda.synchronize()
    lab.session.restore([(name, got.data_ptr(), size)], memory=CUDA)
    torch.cuda.synchronize()
    return got


@row("order")
def order(lab):
    """A save behind a stream that sleeps has what the stream writes after it woke."""
    torch = need_torch(lab)
    side = torch.cuda.Stream()
    count = 1 << 26
    memory = torch.zeros(count, device="cuda")
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        torch.cuda._sleep(10 ** 9)
        memory.fill_(7)
    saved = lab.session.save([dict(name=b"late", dtype=b"F32", shape=[count],
                                   source=memory.data_ptr(), source_bytes=4 * count)],
                             side.cuda_stream)
    got = read_back(lab, b"late", 4 * count, torch.float32)
    right = bool((got == 7).all())
    lab.tell("order", dict(all_written=right, stall_ms=ms(saved.stall_s)))
    if not right:
        raise RuntimeError("bytes were copied before the trainer's stream had written them")


@row("rounding")
def rounding(lab):
    """2^26 random patterns of 32 bits, rounded by the kernel and by torch."""
    torch = need_torch(lab)
    count = 1 << 26
    bits = torch.randint(-2 ** 31, 2 ** 31 - 1, (count,), device="cuda", dtype=torch.int32)
    source = bits.view(torch.float32)
    nan = source.isnan()
    torch.cuda.synchronize()
    for name, dtype in ((b"BF16", torch.bfloat16), (b"F16", torch.float16)):
        lab.session.save([dict(name=b"bits", dtype=name, source_dtype=b"F32", shape=[count],
                               source=source.data_ptr(), source_bytes=4 * count)], None)
        got = read_back(lab, b"bits", 2 * count, dtype)
        theirs = source.to(dtype)
        differ = int(((got.view(torch.int16) != theirs.view(torch.int16)) & ~nan).sum())
        lab.tell("rounding", dict(to=name.decode(), count=count, differ=differ,
                                  nan=int(nan.sum()), nan_kept=bool(got[nan].isnan().all())))
        if differ or not got[nan].isnan().all():
            raise RuntimeError("the device rounds otherwise than torch")


@row("capture")
def capture(lab):
    """A save, a restore and an opening by a thread while another captures a graph, by its mode."""
    torch = need_torch(lab)
    add = torch.ones(1 << 20, device="cuda")
    part = lab.flat[:20]
    size = sum(piece["source_bytes"] for piece in part)
    half = [dict(piece, dtype=b"BF16", source_dtype=b"F32") for piece in part]

    def fresh():
        number = lab.made["captures"] = lab.made.get("captures", 0) + 1
        session = library.Session(lab.library, lab.world, "gpu/capture%d" % number, 2 * size)
        session.save(part, lab.stream)
        session.restore([(piece["name"], lab.second + piece["source"] - lab.device,
                          piece["source_bytes"]) for piece in part], lab.stream, CUDA)
        session.close()

    failed = []
    for mode in ("global", "thread_local", "relaxed"):
        for label, work in (("a save", lambda: lab.session.save(part, lab.stream)),
                            ("a converting save", lambda: lab.session.save(half, lab.stream)),
                            ("a session, its save, restore and close", fresh)):
            said, other = "captured", []

            def beside():
                try:
                    work()
                except Exception as error:
                    other.append(str(error)[:300])
            graph = torch.cuda.CUDAGraph()
            try:
                with torch.cuda.graph(graph, capture_error_mode=mode):
                    add.add_(1)
                    thread = threading.Thread(target=beside)
                    thread.start()
                    thread.join()
                    add.add_(1)
                graph.replay()
                torch.cuda.synchronize()
            except Exception as error:
                said = str(error)[:300]
            lab.tell("capture", dict(mode=mode, beside=label, capture=said, save=other))
            if other or said != "captured":
                failed.append("%s, mode %s" % (label, mode))
    if failed:
        raise RuntimeError("not both done: " + "; ".join(failed))


@row("capture-by-call")
def capture_by_call(lab):
    """Which calls of one thread end the capture of another, as they are and in relaxed mode."""
    need(lab.cuda.has("cudaThreadExchangeStreamCaptureMode"), "the runtime captures nothing")
    stream, event, made = C.c_void_p(lab.cuda.stream()), C.c_void_p(), C.c_void_p()
    lab.cuda.do("cudaEventCreateWithFlags", C.byref(event), C.c_uint(3))
    size, room = 4 * MIB, C.create_string_buffer(512)
    fresh = [lab.cuda.stream() for _ in range(2)]
    memory = mmap.mmap(-1, size)
    host = C.c_void_p(C.addressof((C.c_char * size).from_buffer(memory)))
    other = C.c_void_p(lab.stream)
    calls = [("cudaEventCreateWithFlags", lambda: (C.byref(made), C.c_uint(3))),
             ("cudaEventRecord", lambda: (event, other)),
             ("cudaStreamWaitEvent", lambda: (other, event, C.c_uint(0))),
             ("cudaEventQuery", lambda: (event,)), ("cudaEventSynchronize", lambda: (event,)),
             ("cudaStreamSynchronize", lambda: (other,)),
             ("cudaStreamCreateWithFlags", lambda: (C.byref(made), C.c_uint(1))),
             ("cudaStreamDestroy", lambda: (C.c_void_p(fresh.pop()),)),
             ("cudaPointerGetAttributes", lambda: (room, C.c_void_p(lab.device))),
             ("cudaMemcpyAsync", lambda: (host, C.c_void_p(lab.device), C.c_size_t(MIB), 2, other)),
             ("cudaHostRegister", lambda: (host, C.c_size_t(size), C.c_uint(1))),
             ("cudaMemcpyAsync", lambda: (host, C.c_void_p(lab.device), C.c_size_t(MIB), 2, other)),
             ("cudaHostUnregister", lambda: (host,)),
             ("cudaMalloc", lambda: (C.byref(made), C.c_size_t(MIB))),
             ("cudaFree", lambda: (made,)), ("cudaGetLastError", lambda: ())]
    for relaxed in (False, True):
        told = []
        for name, arguments in calls:
            graph, status = C.c_void_p(), []

            def work():
                mode = C.c_int(2)
                if relaxed:
                    lab.cuda.call("cudaThreadExchangeStreamCaptureMode", C.byref(mode))
                status.append(lab.cuda.call(name, *arguments()))
                lab.cuda.call("cudaGetLastError")
            lab.cuda.do("cudaStreamBeginCapture", stream, 0)
            thread = threading.Thread(target=work)
            thread.start()
            thread.join()
            ended = lab.cuda.call("cudaStreamEndCapture", stream, C.byref(graph))
            lab.cuda.call("cudaGetLastError")
            told.append([name, status[0], ended])
        lab.tell("capture-by-call", dict(relaxed=relaxed, call_status_end=told))


@row("pools")
def pools(lab):
    """Whose context do the kinds of memory have that trainers use?"""
    torch = need_torch(lab)
    kinds = {"cudaMalloc": lab.device}
    pool = C.c_void_p()
    if not lab.cuda.call("cudaMallocAsync", C.byref(pool), C.c_size_t(MIB), C.c_void_p(lab.stream)):
        kinds["cudaMallocAsync"] = pool.value
    managed = C.c_void_p()
    if not lab.cuda.call("cudaMallocManaged", C.byref(managed), C.c_size_t(MIB), C.c_uint(1)):
        kinds["cudaMallocManaged"] = managed.value
    try:
        torch._C._accelerator_setAllocatorSettings("expandable_segments:True")
        kept = torch.zeros(64 * MIB, dtype=torch.uint8, device="cuda")
        kinds["torch's expandable segments"] = kept.data_ptr()
    except Exception as error:
        lab.tell("pools", dict(expandable=str(error)[:200]))
    found = {}
    for name, at in kinds.items():
        context, ordinal = C.c_void_p(), C.c_int(-1)
        found[name] = dict(
            status=lab.cuda.call("cuPointerGetAttribute", C.byref(context), 1, C.c_void_p(at)),
            context=bool(context.value),
            device_status=lab.cuda.call("cuPointerGetAttribute", C.byref(ordinal), 9,
                                        C.c_void_p(at)), device=ordinal.value)
        saved = lab.session.save([dict(name=b"w", dtype=b"U8", shape=[MIB], source=at,
                                       source_bytes=MIB)], lab.stream)
        found[name]["saved_ms"] = ms(saved.stall_s)
    lab.tell("pools", found)
    torch._C._accelerator_setAllocatorSettings("expandable_segments:False")


@row("registering")
def registering(lab):
    """What cudaHostRegister takes of shared memory: fresh, populated, mapped to be read."""
    size = min(lab.bytes, 2 * GIB)

    def shared(populated):
        fd = os.memfd_create("probe")
        os.ftruncate(fd, size)
        memory = mmap.mmap(fd, size)
        start = time.perf_counter()
        if populated:
            memory.madvise(23)  # MADV_POPULATE_WRITE
        return fd, memory, time.perf_counter() - start

    def register(at, length, flags):
        start = time.perf_counter()
        status = lab.cuda.call("cudaHostRegister", C.c_void_p(at), C.c_size_t(length),
                               C.c_uint(flags))
        return status, time.perf_counter() - start

    for label, populated, parts in (("fresh", False, 1), ("populated", True, 1),
                                    ("populated, by 8 threads", True, 8)):
        fd, memory, populate_s = shared(populated)
        at = C.addressof((C.c_char * size).from_buffer(memory))
        told = []
        start = time.perf_counter()
        threads = [threading.Thread(target=lambda i=i: told.append(
            register(at + size // parts * i, size // parts, cuda.PORTABLE))) for i in range(parts)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        took = time.perf_counter() - start
        lab.tell("registering", dict(memory=label, s_per_GiB=round(took / size * GIB, 3),
                                     populate_s_per_GiB=round(populate_s / size * GIB, 3),
                                     status=sorted({status for status, _ in told})))
        for i in range(parts):
            lab.cuda.call("cudaHostUnregister", C.c_void_p(at + size // parts * i))
        os.close(fd)
    fd, memory, _ = shared(True)
    seen = LIBC.mmap
    seen.restype = C.c_void_p
    seen.argtypes = [C.c_void_p, C.c_size_t, C.c_int, C.c_int, C.c_int, C.c_long]
    at = seen(None, size, 1, 1, fd, 0)  # PROT_READ, MAP_SHARED
    for label, flags in (("portable", cuda.PORTABLE), ("portable, read-only",
                                                       cuda.PORTABLE | cuda.READ_ONLY)):
        status, took = register(at, size, flags)
        told = dict(memory="mapped to be read", flags=label, status=status, s=round(took, 3))
        if not status:
            told["to_device_GBps"] = gbps(size, min(lab.cuda.copy(
                lab.second, at, size, cuda.TO_DEVICE, lab.stream) for _ in range(2)))
            lab.cuda.call("cudaHostUnregister", C.c_void_p(at))
        lab.cuda.call("cudaGetLastError")
        lab.tell("registering", told)
    os.close(fd)


# ---- the last one ----

@row("sticky")
def sticky(lab):
    """After an error that ends the context, saves of the device fail by name and others go on."""
    torch = need_torch(lab)
    try:
        torch.zeros(1, device="cuda")[torch.full((1,), 10 ** 6, device="cuda")].sum().item()
    except Exception:
        pass
    try:
        lab.session.save(lab.flat[:1], lab.stream)
        said = "committed"
    except library.CairnError as error:
        said = str(error)
    host = C.create_string_buffer(os.urandom(MIB), MIB)
    lab.session.save([dict(name=b"h", dtype=b"U8", shape=[MIB], source=C.addressof(host),
                           source_bytes=MIB)], memory=HOST)
    lab.tell("sticky", dict(device_save=said, host_save="committed"))
    if said == "committed":
        raise RuntimeError("a save of a device that has failed was committed")
