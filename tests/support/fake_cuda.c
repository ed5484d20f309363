/* SPDX-License-Identifier: Apache-2.0 */
/* One lock for all; a stream's thread gives it back while it carries work out. */
#include "tests/support/fake_cuda.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "client/stage_cuda/runtime.h"

/* A toolkit's headers declare what is defined here. */
#pragma GCC diagnostic ignored "-Wmissing-prototypes"

#define MANY 64
#define DEVICES 2
#define EXPORT __attribute__((visibility("default")))
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
struct stream {
    int device;
    bool started, leaving;
    pthread_t thread;
    struct op *first, **last;
    bool busy;
};
struct memory {
    uint8_t *shown, *real; /* what the host may not touch, and what the fake does */
    size_t bytes;
    int device;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static struct stream defaults[DEVICES] = {{.device = 0}, {.device = 1}};
static struct memory memories[MANY];
static size_t memory_count;
static struct {
    uint8_t *at;
    size_t bytes;
} registered[MANY];
static struct fake_cuda_state state;
static uint64_t ahead;
static size_t room;
static unsigned slow_us;
static int sticky;
static struct {
    char call[32];
    unsigned after;
    int status, sticky;
} failure;
static __thread int current, last_error;

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
    nanosleep(&time, NULL);
}

static void carry_out(struct op *op) {
    if (op->kind == WRITE) pause_us(op->ms * 1000);
    if (op->kind == COPY && slow_us) pause_us(slow_us);
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
    pthread_mutex_unlock(&lock);
    if (!dead) carry_out(op);
    pthread_mutex_lock(&lock);
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

EXPORT int cudaMalloc(void **ret, size_t bytes) {
    int status = begins("Malloc");
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
    made->device = current;
    state.memories++;
    close(fd);
    *ret = made->shown;
    return ends(0);
}

EXPORT int cudaFree(void *at) {
    int status = begins("Free");
    struct memory *memory = memory_of(at);
    if (memory) {
        munmap(memory->shown, memory->bytes);
        munmap(memory->real, memory->bytes);
        *memory = memories[--memory_count];
        state.memories--;
    }
    return ends(status);
}

EXPORT int cudaGetDeviceCount(int *ret) {
    int status = begins("GetDeviceCount");
    if (!status) *ret = DEVICES;
    return ends(status);
}

EXPORT int cudaGetDevice(int *ret) {
    int status = begins("GetDevice");
    if (!status) *ret = current;
    return ends(status);
}

EXPORT int cudaSetDevice(int device) {
    int status = begins("SetDevice");
    if (!status && (device < 0 || device >= DEVICES)) status = 101;
    if (!status) current = device;
    if (!status) state.contexts |= 1u << device;
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

EXPORT int cudaHostRegister(void *at, size_t bytes, unsigned flags) {
    int status = begins("HostRegister");
    if (!status && is_registered(at, 1)) status = 712;
    if (!status && !(flags & 1)) status = 1;
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
    int status = begins("HostUnregister");
    for (size_t i = 0; i < MANY; i++) {
        if (registered[i].at != at) continue;
        registered[i].at = NULL;
        state.registered--;
    }
    return ends(status);
}

EXPORT int cudaStreamCreateWithFlags(void **ret, unsigned flags) {
    int status = begins("StreamCreateWithFlags");
    struct stream *stream = calloc(1, sizeof *stream);
    if (!stream || flags != 1) status = 2;
    if (status) {
        free(stream);
        return ends(status);
    }
    stream->device = current;
    state.streams++;
    *ret = stream;
    return ends(0);
}

EXPORT int cudaStreamDestroy(void *at) {
    struct stream *stream = at;
    int status = begins("StreamDestroy");
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
    int status = begins("StreamSynchronize");
    drain(STREAM_OF_DEVICE((struct stream *)at, current));
    return ends(sticky ? sticky : status);
}

EXPORT int cudaEventCreateWithFlags(void **ret, unsigned flags) {
    int status = begins("EventCreateWithFlags");
    struct event *event = status ? NULL : calloc(1, sizeof *event);
    if (!event || flags & ~3u) return ends(status ? status : 2);
    event->device = current;
    event->held = 1;
    state.events++;
    *ret = event;
    return ends(0);
}

EXPORT int cudaEventDestroy(void *at) {
    struct event *event = at;
    int status = begins("EventDestroy");
    if (--event->held == 0) free(event);
    state.events--;
    return ends(status);
}

EXPORT int cudaEventRecord(void *at, void *to) {
    struct event *event = at;
    struct stream *stream = STREAM_OF_DEVICE((struct stream *)to, current);
    int status = begins("EventRecord");
    if (!status && event->device != stream->device) status = 400;
    if (!status) add(stream, (struct op){.kind = RECORD, .event = event, .number = ++event->asked});
    return ends(status);
}

EXPORT int cudaStreamWaitEvent(void *to, void *at, unsigned flags) {
    struct event *event = at;
    int status = begins("StreamWaitEvent");
    if (!status && flags) status = 1;
    if (!status)
        add(STREAM_OF_DEVICE((struct stream *)to, current),
            (struct op){.kind = WAIT, .event = event, .number = event->asked});
    return ends(status);
}

EXPORT int cudaEventSynchronize(void *at) {
    struct event *event = at;
    int status = begins("EventSynchronize");
    uint64_t number = event->asked;
    while (!status && event->done < number && !sticky) pthread_cond_wait(&changed, &lock);
    return ends(sticky ? sticky : status);
}

/* The lock is held; it is given back. */
static int copy(const struct op *op, int kind, void *at, int status) {
    struct stream *stream = STREAM_OF_DEVICE((struct stream *)at, current);
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
    int status = begins(rows == 1 ? "MemcpyAsync" : "Memcpy2DAsync");
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
    int status = begins("Memcpy3DAsync");
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
    return &defaults[current];
}

void fake_cuda_count_module(int more) {
    state.modules += (unsigned)more;
}

void *fake_cuda_real(const void *at) {
    return real_of(at);
}

int fake_cuda_launch(void *module, void *at, void (*kernel)(void *owner), const void *owner,
                     size_t owner_bytes) {
    struct stream *stream = STREAM_OF_DEVICE((struct stream *)at, current);
    uint8_t *own = malloc(owner_bytes);
    if (!own) abort();
    memcpy(own, owner, owner_bytes);
    if (stream->device != current || module != &defaults[current]) {
        free(own);
        return 400;
    }
    state.launches++;
    add(stream, (struct op){.kind = KERNEL, .owned = own, .run = kernel});
    return sticky;
}

/* ---- for tests ---- */

EXPORT void fake_cuda_reset(void) {
    pthread_mutex_lock(&lock);
    struct fake_cuda_state kept = {.streams = state.streams,
                                   .events = state.events,
                                   .registered = state.registered,
                                   .modules = state.modules,
                                   .memories = state.memories};
    state = kept;
    failure.call[0] = '\0';
    sticky = 0;
    slow_us = 0;
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

EXPORT void fake_cuda_room(size_t bytes) {
    pthread_mutex_lock(&lock);
    room = bytes;
    pthread_mutex_unlock(&lock);
}

EXPORT void fake_cuda_slow(unsigned us) {
    pthread_mutex_lock(&lock);
    slow_us = us;
    pthread_mutex_unlock(&lock);
}
