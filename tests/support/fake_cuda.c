/* SPDX-License-Identifier: Apache-2.0 */
/* One lock for all; a stream's thread gives it back while it carries work out. */
#include "tests/support/fake_cuda.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "client/stage_cuda/kernel.h"
#include "client/stage_cuda/runtime.h"

/* A toolkit's headers declare what is defined here. */
#pragma GCC diagnostic ignored "-Wmissing-prototypes"

#define MANY 64
#define DEVICES 2
#define EXPORT __attribute__((visibility("default")))
#define STACK_MAX 8
#define CAPTURE_UNSUPPORTED 900
#define CAPTURE_INVALIDATED 901
#define CAPTURE_RELAXED 2
#define STREAM_OF_DEVICE(stream, device) ((stream) ? (stream) : &defaults[device])

enum kind { COPY, WRITE, RECORD, WAIT, KERNEL };
struct event {
    int device;
    uint64_t asked, done; /* records */
    unsigned held;        /* by work that is queued, and by who made it */
};
struct op {
    struct op *next;
    enum kind kind;
    uint8_t *to;
    const uint8_t *from;
    size_t to_step, from_step, width, rows;
    size_t to_plane, from_plane, planes; /* steps between planes of rows, and how many */
    unsigned ms;
    struct event *event;
    uint64_t number; /* the event's record */
    uint8_t *owned;
    void (*run)(void *owner); /* KERNEL: with `owned` */
};
struct context {
    int device;
    bool active;
    unsigned held; /* of a primary one */
};
struct stream {
    int device;
    const struct context *context;
    bool started, leaving;
    pthread_t thread;
    struct op *first, **last;
    bool busy;
};
struct memory {
    uint8_t *shown, *real; /* what the host may not touch, and what the fake does */
    size_t bytes;
    int device;
    struct context *context; /* NULL: it is of a pool */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static struct context primaries[DEVICES] = {{.device = 0}, {.device = 1}};
static struct stream defaults[DEVICES] = {{.device = 0}, {.device = 1}};
static struct memory memories[MANY];
static size_t memory_count;
static struct {
    uint8_t *at;
    size_t bytes;
} registered[MANY];
static struct fake_cuda_state state;
static uint64_t ahead;
static unsigned copying; /* copies that streams are carrying out */
static size_t room;
static unsigned slow_us, slow_kernels_us;
static int without_read_only;
static struct { bool on, broken; } capture; /* global mode */
static int sticky;
static struct {
    char call[32];
    unsigned after;
    int status, sticky;
} failure;
static __thread int chosen, last_error, capture_mode;
static __thread struct context *stack[STACK_MAX];
static __thread unsigned depth;

/* ---- errors ---- */

/* Of this call; the lock is held. */
static int injected(const char *call) {
    if (sticky) return sticky;
    if (strcmp(failure.call, call) != 0) return 0;
    if (failure.after-- > 0) return 0;
    failure.call[0] = '\0';
    if (failure.sticky) sticky = failure.status;
    return failure.status;
}

static int ends(int status) {
    if (status) last_error = status;
    pthread_mutex_unlock(&lock);
    return status;
}

static int begins(const char *call) {
    pthread_mutex_lock(&lock);
    return injected(call);
}

/* ---- contexts ---- */

static struct context *top(void) {
    return depth ? stack[depth - 1] : NULL;
}

static int current(void) {
    return top() ? top()->device : chosen;
}

/* The lock is held. */
static void choose(int device) {
    primaries[device].active = true;
    state.contexts |= 1u << device;
    if (!depth) depth = 1;
    stack[depth - 1] = &primaries[device];
}

/* Of a call that opens the context of the chosen device where the thread has none. */
static int begins_in(const char *call) {
    int status = begins(call);
    if (!top()) choose(chosen);
    return status;
}

/* Of a call that another thread's capture does not survive. */
static int begins_unless_captured(const char *call) {
    int status = begins_in(call);
    if (!capture.on || capture_mode == CAPTURE_RELAXED) return status;
    capture.broken = true;
    return CAPTURE_UNSUPPORTED;
}

/* ---- memory ---- */

static struct memory *memory_of(const void *at) {
    for (size_t i = 0; i < memory_count; i++)
        if ((const uint8_t *)at >= memories[i].shown &&
            (const uint8_t *)at < memories[i].shown + memories[i].bytes)
            return &memories[i];
    return NULL;
}

static void *real_of(const void *at) {
    const struct memory *memory = memory_of(at);
    return memory ? memory->real + ((const uint8_t *)at - memory->shown) : (void *)(uintptr_t)at;
}

static bool is_registered(const uint8_t *at, size_t size) {
    for (size_t i = 0; i < MANY; i++)
        if (registered[i].at && at >= registered[i].at &&
            at + size <= registered[i].at + registered[i].bytes)
            return true;
    return false;
}

/* ---- streams ---- */

static void pause_us(unsigned us) {
    const struct timespec time = {.tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000};
    nanosleep(&time, NULL); /* pause of a stand-in: a device at work */
}

static void carry_out(struct op *op) {
    if (op->kind == WRITE) pause_us(op->ms * 1000);
    if (op->kind == COPY && slow_us) pause_us(slow_us);
    if (op->kind == KERNEL && slow_kernels_us) pause_us(slow_kernels_us);
    if (op->kind == KERNEL) op->run(op->owned);
    if (op->kind == COPY || op->kind == WRITE)
        for (size_t plane = 0; plane < op->planes; plane++)
            for (size_t row = 0; row < op->rows; row++)
                memcpy(op->to + plane * op->to_plane + row * op->to_step,
                       op->from + plane * op->from_plane + row * op->from_step, op->width);
}

/* The lock is held, but while work is carried out. */
static void run_one(struct stream *stream) {
    struct op *op = stream->first;
    stream->first = op->next;
    if (!op->next) stream->last = &stream->first;
    stream->busy = true;
    while (op->kind == WAIT && op->event->done < op->number && !sticky)
        pthread_cond_wait(&changed, &lock);
    bool dead = sticky || (op->kind == COPY && injected("execute")) ||
                (op->kind == KERNEL && injected("kernel"));
    if (op->kind == COPY) copying++;
    pthread_mutex_unlock(&lock);
    if (!dead) carry_out(op);
    pthread_mutex_lock(&lock);
    if (op->kind == COPY) copying--;
    if (op->kind == KERNEL && copying) state.overlaps++;
    if (op->kind == RECORD && op->event->done < op->number) op->event->done = op->number;
    if (op->kind == COPY) ahead--;
    if (op->event && --op->event->held == 0) free(op->event);
    stream->busy = false;
    pthread_cond_broadcast(&changed);
    free(op->owned);
    free(op);
}

static void *run(void *argument) {
    struct stream *stream = argument;
    pthread_mutex_lock(&lock);
    for (;;) {
        if (stream->first)
            run_one(stream);
        else if (stream->leaving)
            break;
        else
            pthread_cond_wait(&changed, &lock);
    }
    pthread_mutex_unlock(&lock);
    return NULL;
}

static void add(struct stream *stream, struct op op) {
    struct op *made = malloc(sizeof *made);
    if (!made) abort();
    *made = op;
    if (op.event) op.event->held++;
    if (!stream->started) {
        stream->last = &stream->first;
        stream->started = !pthread_create(&stream->thread, NULL, run, stream);
    }
    *stream->last = made;
    stream->last = &made->next;
    pthread_cond_broadcast(&changed);
}

static void drain(struct stream *stream) {
    while (stream->first || stream->busy) pthread_cond_wait(&changed, &lock);
}

/* ---- CUDA's own ---- */

static size_t memory_bytes(void) {
    size_t bytes = 0;
    for (size_t i = 0; i < memory_count; i++) bytes += memories[i].bytes;
    return bytes;
}

static int make_memory(void **ret, size_t bytes, struct context *context, int status) {
    if (!status && room && memory_bytes() + bytes > room) status = 2;
    int fd = memfd_create("device", MFD_CLOEXEC);
    if (status || memory_count == MANY || fd < 0 || ftruncate(fd, (off_t)bytes)) {
        if (fd >= 0) close(fd);
        return ends(status ? status : 2);
    }
    struct memory *made = &memories[memory_count++];
    made->real = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    made->shown = mmap(NULL, bytes, PROT_NONE, MAP_SHARED, fd, 0);
    made->bytes = bytes;
    made->device = current();
    made->context = context;
    state.memories++;
    close(fd);
    *ret = made->shown;
    return ends(0);
}

EXPORT int cudaMalloc(void **ret, size_t bytes) {
    int status = begins_unless_captured("Malloc");
    return make_memory(ret, bytes, top(), status);
}

EXPORT int cudaMallocAsync(void **ret, size_t bytes, void *stream) {
    int status = begins_in("MallocAsync");
    (void)stream;
    return make_memory(ret, bytes, NULL, status);
}

EXPORT int cudaFree(void *at) {
    int status = begins_unless_captured("Free");
    struct memory *memory = memory_of(at);
    if (memory) {
        munmap(memory->shown, memory->bytes);
        munmap(memory->real, memory->bytes);
        *memory = memories[--memory_count];
        state.memories--;
    }
    return ends(status);
}

EXPORT int cudaHostAlloc(void **ret, size_t bytes, unsigned flags) {
    int status = begins_unless_captured("HostAlloc");
    if (!status && flags > 1) status = 1;
    if (!status) *ret = calloc(1, bytes);
    if (!status) state.pinned++;
    for (size_t i = 0; i < MANY && !status; i++) {
        if (registered[i].at) continue;
        registered[i].at = *ret;
        registered[i].bytes = bytes;
        break;
    }
    return ends(status);
}

EXPORT int cudaFreeHost(void *at) {
    int status = begins_unless_captured("FreeHost");
    for (size_t i = 0; i < MANY && at; i++)
        if (registered[i].at == at) registered[i].at = NULL;
    free(at);
    if (at) state.pinned--;
    return ends(status);
}

EXPORT int cudaGetDeviceCount(int *ret) {
    int status = begins("GetDeviceCount");
    if (!status) *ret = DEVICES;
    return ends(status);
}

EXPORT int cudaGetDevice(int *ret) {
    int status = begins("GetDevice");
    if (!status) *ret = current();
    return ends(status);
}

EXPORT int cudaSetDevice(int device) {
    int status = begins("SetDevice");
    if (!status && (device < 0 || device >= DEVICES)) status = 101;
    if (!status) chosen = device;
    if (!status) choose(device);
    return ends(status);
}

EXPORT int cudaDeviceGetAttribute(int *ret, int attribute, int device) {
    int status = begins("DeviceGetAttribute");
    if (!status) *ret = attribute == CAIRN_CUDA_READ_ONLY_SUPPORTED && !without_read_only;
    if (!status && attribute == CAIRN_CUDA_HOST_NUMA_NODE) *ret = device; /* each its own */
    return ends(status);
}

EXPORT int cudaGetLastError(void) {
    int status = last_error;
    pthread_mutex_lock(&lock);
    last_error = sticky;
    pthread_mutex_unlock(&lock);
    return status;
}

EXPORT const char *cudaGetErrorName(int status) {
    return status == 2     ? "cudaErrorMemoryAllocation"
           : status == 700 ? "cudaErrorIllegalAddress"
           : status == 801 ? "cudaErrorNotSupported"
                           : "cudaErrorOther";
}

EXPORT const char *cudaGetErrorString(int status) {
    return status == 700 ? "an illegal memory access was encountered" : "it failed";
}

struct attributes {
    int type, device;
    void *on_device, *on_host;
    long reserved[8];
};
EXPORT int cudaPointerGetAttributes(struct attributes *ret, const void *at) {
    int status = begins("PointerGetAttributes");
    const struct memory *memory = memory_of(at);
    if (!status)
        *ret = (struct attributes){memory ? 2 : 0, memory ? memory->device : -2, 0, 0, {0}};
    return ends(status);
}

/* May the process write there? */
static bool is_writable(const void *at) {
    unsigned long long begin, end;
    char line[512], may[8] = "";
    bool ret = true;
    FILE *maps = fopen("/proc/self/maps", "re");
    while (maps && fgets(line, sizeof line, maps))
        if (sscanf(line, "%llx-%llx %7s", &begin, &end, may) == 3 && (uintptr_t)at >= begin &&
            (uintptr_t)at < end)
            ret = may[1] == 'w';
    if (maps) fclose(maps);
    return ret;
}

EXPORT int cudaHostRegister(void *at, size_t bytes, unsigned flags) {
    int status = begins_unless_captured("HostRegister");
    bool read_only = flags & CAIRN_CUDA_HOST_READ_ONLY;
    if (!status && is_registered(at, 1)) status = 712;
    if (!status && !(flags & 1)) status = 1;
    if (!status && read_only && without_read_only) status = 801;
    if (!status && !read_only && !is_writable(at)) status = 1;
    for (size_t i = 0; i < MANY && !status; i++) {
        if (registered[i].at) continue;
        registered[i].at = at;
        registered[i].bytes = bytes;
        state.registered++;
        break;
    }
    return ends(status);
}

EXPORT int cudaHostUnregister(void *at) {
    int status = begins_unless_captured("HostUnregister");
    for (size_t i = 0; i < MANY; i++) {
        if (registered[i].at != at) continue;
        registered[i].at = NULL;
        state.registered--;
    }
    return ends(status);
}

EXPORT int cudaDeviceGetStreamPriorityRange(int *ret_least, int *ret_greatest) {
    int status = begins_in("DeviceGetStreamPriorityRange");
    *ret_least = 0;
    *ret_greatest = -5;
    return ends(status);
}

EXPORT int cudaStreamCreateWithPriority(void **ret, unsigned flags, int priority) {
    int status = begins_in("StreamCreateWithPriority");
    struct stream *stream = calloc(1, sizeof *stream);
    if (!stream || flags != 1 || priority > 0 || priority < -5) status = 2;
    if (status) {
        free(stream);
        return ends(status);
    }
    stream->device = current();
    stream->context = top();
    state.streams++;
    state.made++;
    *ret = stream;
    return ends(0);
}

EXPORT int cudaStreamCreateWithFlags(void **ret, unsigned flags) {
    return cudaStreamCreateWithPriority(ret, flags, 0);
}

EXPORT int cudaStreamBeginCapture(void *stream, int mode) {
    int status = begins("StreamBeginCapture");
    (void)stream;
    if (!status && mode != 0) status = 1; /* the others end nothing of other threads */
    if (!status) capture.on = true;
    return ends(status);
}

EXPORT int cudaStreamEndCapture(void *stream, void **ret) {
    int status = begins("StreamEndCapture");
    (void)stream;
    *ret = NULL;
    if (!status && capture.broken) status = CAPTURE_INVALIDATED;
    capture.on = capture.broken = false;
    return ends(status);
}

EXPORT int cudaStreamDestroy(void *at) {
    struct stream *stream = at;
    int status = begins_in("StreamDestroy");
    stream->leaving = true;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    if (stream->started) pthread_join(stream->thread, NULL);
    free(stream);
    pthread_mutex_lock(&lock);
    state.streams--;
    return ends(status);
}

EXPORT int cudaStreamSynchronize(void *at) {
    int status = begins_unless_captured("StreamSynchronize");
    drain(STREAM_OF_DEVICE((struct stream *)at, current()));
    return ends(sticky ? sticky : status);
}

EXPORT int cudaEventCreateWithFlags(void **ret, unsigned flags) {
    int status = begins_in("EventCreateWithFlags");
    struct event *event = status ? NULL : calloc(1, sizeof *event);
    if (!event || flags & ~3u) return ends(status ? status : 2);
    event->device = current();
    event->held = 1;
    state.events++;
    state.made++;
    *ret = event;
    return ends(0);
}

EXPORT int cudaEventDestroy(void *at) {
    struct event *event = at;
    int status = begins_in("EventDestroy");
    if (--event->held == 0) free(event);
    state.events--;
    return ends(status);
}

EXPORT int cudaEventRecord(void *at, void *to) {
    struct event *event = at;
    struct stream *stream = STREAM_OF_DEVICE((struct stream *)to, current());
    int status = begins_in("EventRecord");
    if (!status && event->device != stream->device) status = 400;
    if (!status) add(stream, (struct op){.kind = RECORD, .event = event, .number = ++event->asked});
    return ends(status);
}

EXPORT int cudaStreamWaitEvent(void *to, void *at, unsigned flags) {
    struct event *event = at;
    int status = begins_in("StreamWaitEvent");
    if (!status && flags) status = 1;
    if (!status)
        add(STREAM_OF_DEVICE((struct stream *)to, current()),
            (struct op){.kind = WAIT, .event = event, .number = event->asked});
    return ends(status);
}

EXPORT int cudaEventQuery(void *at) {
    struct event *event = at;
    int status = begins_unless_captured("EventQuery");
    if (!status && event->done < event->asked) status = 600;
    return ends(status);
}

EXPORT int cudaEventSynchronize(void *at) {
    struct event *event = at;
    int status = begins("EventSynchronize"); /* opens no context */
    if (capture.on && capture_mode != CAPTURE_RELAXED) {
        capture.broken = true;
        return ends(CAPTURE_UNSUPPORTED);
    }
    uint64_t number = event->asked;
    while (!status && event->done < number && !sticky) pthread_cond_wait(&changed, &lock);
    return ends(sticky ? sticky : status);
}

/* The lock is held; it is given back. */
static int copy(const struct op *op, int kind, void *at, int status) {
    struct stream *stream = STREAM_OF_DEVICE((struct stream *)at, current());
    bool out = kind == 2;
    const uint8_t *host = out ? op->to : op->from;
    size_t step = out ? op->to_step : op->from_step, plane = out ? op->to_plane : op->from_plane;
    const struct memory *memory = memory_of(out ? op->from : op->to);
    state.copied_bytes += op->width * op->rows * op->planes;
    if (!status && (!memory || memory->device != stream->device || op->to_step < op->width ||
                    op->from_step < op->width || memory_of(host)))
        status = 1;
    if (status) return ends(status);
    bool pageable =
        !is_registered(host, plane * (op->planes - 1) + step * (op->rows - 1) + op->width);
    state.copies++;
    state.rows_copies += op->rows > 1 && op->planes == 1;
    state.planes_copies += op->planes > 1;
    state.pageable_copies += pageable;
    if (++ahead > state.ahead_most) state.ahead_most = ahead;
    struct op queued = *op;
    queued.to = real_of(op->to);
    queued.from = real_of(op->from);
    add(stream, queued);
    if (pageable) drain(stream);
    return ends(sticky);
}

EXPORT int cudaMemcpy2DAsync(void *to, size_t to_step, const void *from, size_t from_step,
                             size_t width, size_t rows, int kind, void *at) {
    const struct op op = {.kind = COPY,
                          .to = to,
                          .from = from,
                          .to_step = to_step,
                          .from_step = from_step,
                          .width = width,
                          .rows = rows,
                          .planes = 1};
    int status = begins_in(rows == 1 ? "MemcpyAsync" : "Memcpy2DAsync");
    return copy(&op, kind, at, status);
}

EXPORT int cudaMemcpy3DAsync(const struct cairn_cuda_planes *planes, void *at) {
    const struct cairn_cuda_pitched *to = &planes->to, *from = &planes->from;
    const struct op op = {.kind = COPY,
                          .to = to->memory,
                          .from = from->memory,
                          .to_step = to->pitch,
                          .from_step = from->pitch,
                          .to_plane = to->pitch * to->height,
                          .from_plane = from->pitch * from->height,
                          .width = planes->row_bytes,
                          .rows = planes->rows,
                          .planes = planes->planes};
    int status = begins_in("Memcpy3DAsync");
    bool whole = to->height >= planes->rows && from->height >= planes->rows && planes->planes &&
                 !planes->from_array && !planes->to_array;
    return copy(&op, planes->kind, at, status || whole ? status : 1);
}

EXPORT int cudaMemcpyAsync(void *to, const void *from, size_t size, int kind, void *stream) {
    return cudaMemcpy2DAsync(to, size, from, size, size, 1, kind, stream);
}

/* ---- for the driver's half ---- */

int fake_cuda_begins(const char *call) {
    return begins(call);
}

int fake_cuda_ends(int status) {
    pthread_mutex_unlock(&lock); /* the driver keeps no last error */
    return status;
}

void *fake_cuda_module(void) {
    return top();
}

void fake_cuda_count_kernel(unsigned kernel, uint64_t count) {
    if (kernel == CAIRN_KERNEL_sum) state.summed += (unsigned)count;
    if (kernel == CAIRN_KERNEL_gather) state.gathers++;
    if (kernel == CAIRN_KERNEL_scatter) state.scatters++;
    if (kernel == CAIRN_KERNEL_pack) state.packs++;
}

void fake_cuda_count_module(int more) {
    state.modules += (unsigned)more;
}

void *fake_cuda_real(const void *at) {
    return real_of(at);
}

int fake_cuda_launch(void *module, void *at, void (*kernel)(void *owner), const void *owner,
                     size_t owner_bytes) {
    struct stream *stream = STREAM_OF_DEVICE((struct stream *)at, current());
    uint8_t *own = malloc(owner_bytes);
    if (!own) abort();
    memcpy(own, owner, owner_bytes);
    if (!top() || stream->device != current() || module != top() ||
        (stream->context && stream->context != top())) {
        free(own);
        return 400;
    }
    state.launches++;
    add(stream, (struct op){.kind = KERNEL, .owned = own, .run = kernel});
    return sticky;
}

/* ---- the driver's contexts ---- */

EXPORT int cuPointerGetAttribute(void *ret, int attribute, unsigned long long at) {
    int status = begins("PointerGetAttribute");
    const struct memory *memory = memory_of((const void *)(uintptr_t)at);
    if (!memory && !status) status = 1;
    if (!status && attribute == CAIRN_CUDA_CONTEXT_OF)
        memcpy(ret, &memory->context, sizeof(void *));
    if (!status && attribute == CAIRN_CUDA_BEGIN_OF) memcpy(ret, &memory->shown, sizeof(void *));
    if (!status && attribute == CAIRN_CUDA_BYTES_OF) memcpy(ret, &memory->bytes, sizeof(size_t));
    return fake_cuda_ends(status);
}

EXPORT int cuCtxGetCurrent(void **ret) {
    *ret = top();
    return 0;
}

EXPORT int cuCtxGetDevice(int *ret) {
    if (top()) *ret = top()->device;
    return top() ? 0 : 201;
}

EXPORT int cuCtxPushCurrent_v2(void *context) {
    if (depth == STACK_MAX) abort();
    stack[depth++] = context;
    return 0;
}

EXPORT int cuCtxPopCurrent_v2(void **ret) {
    if (!depth) return 201;
    *ret = stack[--depth];
    return 0;
}

/* One that is not primary, and the thread's from here on. */
EXPORT int cuCtxCreate_v2(void **ret, unsigned flags, int device) {
    struct context *made = calloc(1, sizeof *made);
    if (!made || flags || depth == STACK_MAX) abort();
    made->device = device;
    made->active = true;
    *ret = stack[depth++] = made;
    return 0;
}

EXPORT int cuCtxDestroy_v2(void *context) {
    if (top() == context) depth--;
    free(context);
    return 0;
}

EXPORT int cuDevicePrimaryCtxGetState(int device, unsigned *ret_flags, int *ret_active) {
    int status = fake_cuda_begins("DevicePrimaryCtxGetState");
    *ret_flags = 0;
    *ret_active = primaries[device].active;
    return fake_cuda_ends(status);
}

EXPORT int cuDevicePrimaryCtxRetain(void **ret, int device) {
    int status = fake_cuda_begins("DevicePrimaryCtxRetain");
    if (!status && !primaries[device].active) state.contexts |= 1u << device;
    if (!status) primaries[device].active = true;
    if (!status) state.primaries++;
    *ret = &primaries[device];
    return fake_cuda_ends(status);
}

EXPORT int cuDevicePrimaryCtxRelease_v2(int device) {
    int status = fake_cuda_begins("DevicePrimaryCtxRelease");
    (void)device;
    state.primaries--;
    return fake_cuda_ends(status);
}

EXPORT int cuInit(unsigned flags) {
    return flags ? 1 : 0;
}

EXPORT int cuMemAlloc_v2(void **ret, size_t bytes) {
    return cudaMalloc(ret, bytes);
}

EXPORT int cuMemHostRegister_v2(void *at, size_t bytes, unsigned flags) {
    return cudaHostRegister(at, bytes, flags);
}

EXPORT int cuStreamCreate(void **ret, unsigned flags) {
    return cudaStreamCreateWithFlags(ret, flags);
}

EXPORT int cuEventCreate(void **ret, unsigned flags) {
    return cudaEventCreateWithFlags(ret, flags);
}

EXPORT int cudaThreadExchangeStreamCaptureMode(int *mode) {
    int status = begins_in("ThreadExchangeStreamCaptureMode"); /* the driver's opens none */
    int before = capture_mode;
    capture_mode = *mode;
    *mode = before;
    return ends(status);
}

EXPORT int cuThreadExchangeStreamCaptureMode(int *mode) {
    int before = capture_mode;
    capture_mode = *mode;
    *mode = before;
    return 0;
}

/* ---- for tests ---- */

EXPORT void fake_cuda_reset(void) {
    pthread_mutex_lock(&lock);
    struct fake_cuda_state kept = {.streams = state.streams,
                                   .events = state.events,
                                   .registered = state.registered,
                                   .modules = state.modules,
                                   .pinned = state.pinned,
                                   .primaries = state.primaries,
                                   .memories = state.memories};
    state = kept;
    failure.call[0] = '\0';
    sticky = 0;
    slow_us = slow_kernels_us = 0;
    without_read_only = 0;
    capture.on = capture.broken = false;
    room = 0;
    last_error = 0;
    pthread_mutex_unlock(&lock);
}

EXPORT void fake_cuda_state(struct fake_cuda_state *ret) {
    pthread_mutex_lock(&lock);
    *ret = state;
    pthread_mutex_unlock(&lock);
}

EXPORT void fake_cuda_fail(const char *call, unsigned after, int status, int is_sticky) {
    pthread_mutex_lock(&lock);
    strncpy(failure.call, call, sizeof failure.call - 1);
    failure.after = after;
    failure.status = status;
    failure.sticky = is_sticky;
    pthread_mutex_unlock(&lock);
}

EXPORT void fake_cuda_write_later(void *stream, void *to, const void *from, size_t size,
                                  unsigned ms) {
    uint8_t *own = malloc(size);
    if (!own) abort();
    memcpy(own, from, size);
    pthread_mutex_lock(&lock);
    const struct memory *memory = memory_of(to);
    add(STREAM_OF_DEVICE((struct stream *)stream, memory ? memory->device : 0),
        (struct op){.kind = WRITE,
                    .to = real_of(to),
                    .from = own,
                    .width = size,
                    .rows = 1,
                    .planes = 1,
                    .ms = ms,
                    .owned = own});
    pthread_mutex_unlock(&lock);
}

#define SETTER(name, type, variable)                                                               \
    EXPORT void fake_cuda_##name(type value) {                                                     \
        pthread_mutex_lock(&lock);                                                                 \
        variable = value;                                                                          \
        pthread_mutex_unlock(&lock);                                                               \
    }
SETTER(room, size_t, room)
SETTER(slow, unsigned, slow_us)
SETTER(slow_kernels, unsigned, slow_kernels_us)
SETTER(without_read_only, int, without_read_only)

EXPORT void fake_cuda_forget_contexts(void) {
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < DEVICES; i++) primaries[i].active = false;
    depth = 0;
    chosen = 0;
    pthread_mutex_unlock(&lock);
}
