/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies between CUDA devices and memory that is shared with the uploader. A job has a stream of
 * its own on each of its devices. That stream waits, by an event, for what the trainer's stream had
 * when the job began, so the trainer's stream itself never waits. A mark is an event on each of
 * these streams: what was queued before it is done once it has passed.
 *
 * The caller's current device is as before after every call. A thread that waits for a mark makes
 * the mark's device its own first: a call of a thread that has none would open a context on
 * device 0, hundreds of megabytes of another rank's memory.
 */
#include <limits.h>
#include <stdlib.h>

#include "client/stage_cuda/convert.h"
#include "common/array.h"

#define DEVICES_MAX CAIRN_CUDA_DEVICES_MAX
#define LOCKED_MAX 64
#define PITCH_MAX INT_MAX /* of a copy in rows; more is copied row by row */

struct cairn_device {
    struct cairn_cuda_runtime cuda;
    struct cairn_cuda_converter converter;
    struct cairn_lock lock;
    struct {
        void *memory[LOCKED_MAX];
        size_t memory_count;
    } locked;
};
struct lane { /* one device of a job */
    int device;
    void *stream;
    struct cairn_cuda_scratch scratch; /* of elements that are converted */
};
struct followed {
    void *stream, *event;
    int device;
};
struct mark {
    void *events[DEVICES_MAX]; /* by lane; NULL: nothing was queued there before it */
};
struct cairn_device_job {
    struct cairn_device *device;
    pthread_t caller;
    int device_before; /* of the caller's thread */
    struct lane lanes[DEVICES_MAX];
    size_t lane_count;
    bool queued[DEVICES_MAX]; /* since the last mark; by lane */
    struct followed *followed;
    size_t followed_count, followed_capacity;
    struct mark **marks; /* NULL: nothing was queued before it */
    size_t mark_count;
};

/* ---- devices ---- */

/* SetDevice opens the device's context where there is none, so it is not called for nothing. */
static enum cairn_code use(const struct cairn_cuda_runtime *cuda, int device,
                           struct cairn_error *err) {
    int present = -1;
    CAIRN_TRY(CAIRN_CUDA(cuda, GetDevice, (&present), err));
    if (present == device) return CAIRN_OK;
    return CAIRN_CUDA(cuda, SetDevice, (device), err);
}

static void use_before(const struct cairn_device_job *job) {
    if (!pthread_equal(pthread_self(), job->caller)) return;
    CAIRN_UNUSED enum cairn_code code = use(&job->device->cuda, job->device_before, NULL);
}

static enum cairn_code place(struct cairn_device *device, const void *source, int *ret_device,
                             struct cairn_error *err) {
    const struct cairn_cuda_runtime *cuda = &device->cuda;
    struct cairn_cuda_pointer found = {0};
    CAIRN_TRY(CAIRN_CUDA(cuda, PointerGetAttributes, (&found, source), err));
    if (found.type != CAIRN_CUDA_MEMORY_OF_DEVICE && found.type != CAIRN_CUDA_MEMORY_MANAGED)
        return cairn_fail(err, CAIRN_INVALID, "the source is not memory of a CUDA device");
    *ret_device = found.device;
    return CAIRN_OK;
}

static enum cairn_code check(struct cairn_device *device, const void *source,
                             struct cairn_error *err) {
    int found = 0;
    return place(device, source, &found, err);
}

/* Loads the kernels, so that what a device lacks is told before a save is staged. */
static enum cairn_code convertible(struct cairn_device *device, const void *source,
                                   unsigned source_dtype, unsigned dtype, struct cairn_error *err) {
    const struct cairn_cuda_runtime *cuda = &device->cuda;
    int found = 0, before = 0;
    CAIRN_TRY(place(device, source, &found, err));
    CAIRN_TRY(CAIRN_CUDA(cuda, GetDevice, (&before), err));
    enum cairn_code code = use(cuda, found, err);
    if (!code) code = cairn_cuda_convertible(&device->converter, found, source_dtype, dtype, err);
    CAIRN_UNUSED enum cairn_code after = use(cuda, before, NULL);
    return code;
}

static enum cairn_code lane_of(struct cairn_device_job *job, int device, size_t *ret,
                               struct cairn_error *err) {
    const struct cairn_cuda_runtime *cuda = &job->device->cuda;
    CAIRN_TRY(use(cuda, device, err));
    for (*ret = 0; *ret < job->lane_count; ++*ret)
        if (job->lanes[*ret].device == device) return CAIRN_OK;
    if (job->lane_count == DEVICES_MAX)
        return cairn_fail(err, CAIRN_TOO_LARGE, "pieces of more than %d devices", DEVICES_MAX);
    struct lane *lane = &job->lanes[job->lane_count];
    lane->device = device;
    CAIRN_TRY(CAIRN_CUDA(cuda, StreamCreateWithFlags,
                         (&lane->stream, CAIRN_CUDA_STREAM_NON_BLOCKING), err));
    job->lane_count++;
    return CAIRN_OK;
}

/* ---- a job ---- */

static enum cairn_code begin(struct cairn_device *device, size_t mark_count,
                             struct cairn_device_job **ret, struct cairn_error *err) {
    struct cairn_device_job *job = calloc(1, sizeof *job);
    struct mark **marks = calloc(mark_count + 1, sizeof *marks);
    if (!job || !marks) {
        free(job);
        free(marks);
        return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for copies from a device");
    }
    *job = (struct cairn_device_job){
        .device = device, .caller = pthread_self(), .marks = marks, .mark_count = mark_count};
    enum cairn_code code = CAIRN_CUDA(&device->cuda, GetDevice, (&job->device_before), err);
    if (!code) {
        *ret = job;
        return CAIRN_OK;
    }
    free(marks);
    free(job);
    return code;
}

static enum cairn_code new_event(const struct cairn_cuda_runtime *cuda, void **ret,
                                 struct cairn_error *err) {
    return CAIRN_CUDA(cuda, EventCreateWithFlags,
                      (ret, CAIRN_CUDA_EVENT_NO_TIMING | CAIRN_CUDA_EVENT_BLOCKING), err);
}

static enum cairn_code follow_stream(struct cairn_device_job *job, const void *source, void *stream,
                                     struct cairn_error *err) {
    const struct cairn_cuda_runtime *cuda = &job->device->cuda;
    struct followed made = {.stream = stream};
    size_t lane = 0;
    CAIRN_TRY(place(job->device, source, &made.device, err));
    for (size_t i = 0; i < job->followed_count; i++)
        if (job->followed[i].stream == stream && job->followed[i].device == made.device)
            return CAIRN_OK;
    CAIRN_TRY(lane_of(job, made.device, &lane, err));
    CAIRN_TRY(CAIRN_ARRAY_ROOM(job->followed, job->followed_count, job->followed_capacity,
                               UINT16_MAX, "streams", err));
    CAIRN_TRY(new_event(cuda, &made.event, err));
    job->followed[job->followed_count++] = made;
    CAIRN_TRY(CAIRN_CUDA(cuda, EventRecord, (made.event, stream), err));
    return CAIRN_CUDA(cuda, StreamWaitEvent, (job->lanes[lane].stream, made.event, 0), err);
}

static enum cairn_code follow(struct cairn_device_job *job, const void *source, void *stream,
                              struct cairn_error *err) {
    enum cairn_code code = follow_stream(job, source, stream, err);
    use_before(job);
    return code;
}

/* ---- copies ---- */

struct copying {
    const struct cairn_cuda_runtime *cuda;
    const struct cairn_device_part *part;
    void *stream;
    struct cairn_strided_rows plane; /* the first of those that wait to be copied at once */
    size_t planes;                   /* how many do */
    int64_t plane_bytes;             /* from one to the next */
    enum cairn_code code;
    struct cairn_error *err;
};

/* Rows of `bytes` each, `step` apart at the device and one behind the other in host memory. */
static enum cairn_code copy_rows(const struct copying *copying, int64_t place, uint64_t dense,
                                 size_t bytes, uint64_t rows, int64_t step) {
    const struct cairn_cuda_runtime *cuda = copying->cuda;
    const struct cairn_device_part *part = copying->part;
    char *memory = (char *)(uintptr_t)part->memory + place;
    char *host = (char *)part->host + dense;
    bool in = part->into_device;
    int kind = in ? CAIRN_CUDA_HOST_TO_DEVICE : CAIRN_CUDA_DEVICE_TO_HOST;
    if (rows > 1 && step >= (int64_t)bytes && step <= PITCH_MAX) {
        size_t apart = (size_t)step;
        return CAIRN_CUDA(cuda, Memcpy2DAsync,
                          (in ? memory : host, in ? apart : bytes, in ? host : memory,
                           in ? bytes : apart, bytes, (size_t)rows, kind, copying->stream),
                          copying->err);
    }
    for (uint64_t row = 0; row < rows; row++, memory += step, host += bytes)
        CAIRN_TRY(CAIRN_CUDA(cuda, MemcpyAsync,
                             (in ? memory : host, in ? host : memory, bytes, kind, copying->stream),
                             copying->err));
    return CAIRN_OK;
}

static size_t width_of(const struct copying *copying) {
    return copying->part->strided->element_bytes;
}

static enum cairn_code copy_plane(const struct copying *copying) {
    const struct cairn_strided_rows *plane = &copying->plane;
    size_t width = width_of(copying);
    if (plane->column_bytes == (int64_t)width)
        return copy_rows(copying, plane->place, plane->dense, plane->columns * width, plane->rows,
                         plane->row_bytes);
    for (uint64_t row = 0; row < plane->rows; row++)
        CAIRN_TRY(copy_rows(copying, plane->place + (int64_t)row * plane->row_bytes,
                            plane->dense + row * plane->columns * width, width, plane->columns,
                            plane->column_bytes));
    return CAIRN_OK;
}

static enum cairn_code copy_planes(const struct copying *copying) {
    const struct cairn_device_part *part = copying->part;
    const struct cairn_strided_rows *plane = &copying->plane;
    size_t bytes = plane->columns * width_of(copying), pitch = (size_t)plane->row_bytes;
    struct cairn_cuda_pitched memory = {(char *)(uintptr_t)part->memory + plane->place, pitch,
                                        pitch, (size_t)copying->plane_bytes / pitch};
    struct cairn_cuda_pitched host = {part->host + plane->dense, bytes, bytes, plane->rows};
    const struct cairn_cuda_planes planes = {.from = part->into_device ? host : memory,
                                             .to = part->into_device ? memory : host,
                                             .row_bytes = bytes,
                                             .rows = plane->rows,
                                             .planes = copying->planes,
                                             .kind = part->into_device ? CAIRN_CUDA_HOST_TO_DEVICE
                                                                       : CAIRN_CUDA_DEVICE_TO_HOST};
    return CAIRN_CUDA(copying->cuda, Memcpy3DAsync, (&planes, copying->stream), copying->err);
}

/* Is it as the planes that wait, as far behind the last of them as that behind the one before it,
 * and by whole rows? */
static bool joins(const struct copying *copying, const struct cairn_strided_rows *next,
                  int64_t *ret_step) {
    const struct cairn_strided_rows *plane = &copying->plane;
    int64_t width = (int64_t)width_of(copying), pitch = plane->row_bytes;
    if (!copying->planes || plane->rows < 2 || next->rows != plane->rows ||
        next->columns != plane->columns || next->row_bytes != pitch)
        return false;
    if (plane->column_bytes != width || next->column_bytes != width ||
        pitch < (int64_t)plane->columns * width || pitch > PITCH_MAX)
        return false;
    *ret_step = next->place - plane->place - (int64_t)(copying->planes - 1) * copying->plane_bytes;
    if (copying->planes > 1) return *ret_step == copying->plane_bytes;
    return *ret_step % pitch == 0 && *ret_step / pitch >= (int64_t)plane->rows;
}

static void copy_waiting(struct copying *copying) {
    if (!copying->code && copying->planes)
        copying->code = copying->planes > 1 ? copy_planes(copying) : copy_plane(copying);
    copying->planes = 0;
}

static bool copy_cut(void *owner, const struct cairn_strided_rows *rows) {
    struct copying *copying = owner;
    int64_t step = 0;
    if (joins(copying, rows, &step)) {
        copying->plane_bytes = step;
        copying->planes++;
        return true;
    }
    copy_waiting(copying);
    copying->plane = *rows;
    copying->planes = 1;
    copying->plane_bytes = 0;
    return copying->code == CAIRN_OK;
}

static enum cairn_code copy_part(struct cairn_device_job *job, const struct cairn_device_part *part,
                                 struct cairn_error *err) {
    struct copying copying = {.cuda = &job->device->cuda, .part = part, .err = err};
    size_t lane = 0;
    int device = 0;
    CAIRN_TRY(place(job->device, part->memory, &device, err));
    CAIRN_TRY(lane_of(job, device, &lane, err));
    copying.stream = job->lanes[lane].stream;
    job->queued[lane] = true;
    if (part->source_dtype != part->dtype)
        return cairn_cuda_convert(&job->device->converter, device, &job->lanes[lane].scratch,
                                  copying.stream, part, err);
    if (!part->strided) return copy_rows(&copying, (int64_t)part->at, 0, part->bytes, 1, 0);
    (void)cairn_strided_cut(part->strided, part->at, part->bytes, copy_cut, &copying);
    copy_waiting(&copying);
    return copying.code;
}

static enum cairn_code copy(struct cairn_device_job *job, const struct cairn_device_part *part,
                            struct cairn_error *err) {
    enum cairn_code code = copy_part(job, part, err);
    use_before(job);
    return code;
}

/* ---- marks ---- */

static enum cairn_code mark_lanes(struct cairn_device_job *job, struct mark *mark,
                                  struct cairn_error *err) {
    const struct cairn_cuda_runtime *cuda = &job->device->cuda;
    for (size_t i = 0; i < job->lane_count; i++) {
        if (!job->queued[i]) continue;
        CAIRN_TRY(use(cuda, job->lanes[i].device, err));
        if (!mark->events[i]) CAIRN_TRY(new_event(cuda, &mark->events[i], err));
        CAIRN_TRY(CAIRN_CUDA(cuda, EventRecord, (mark->events[i], job->lanes[i].stream), err));
        job->queued[i] = false;
    }
    return CAIRN_OK;
}

static enum cairn_code mark(struct cairn_device_job *job, size_t number, struct cairn_error *err) {
    CAIRN_PROMISE(number < job->mark_count, return cairn_fail(err, CAIRN_BROKEN, "no such mark"));
    if (!job->marks[number]) job->marks[number] = calloc(1, sizeof(struct mark));
    if (!job->marks[number]) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a mark");
    enum cairn_code code = mark_lanes(job, job->marks[number], err);
    use_before(job);
    return code;
}

static enum cairn_code await_lanes(const struct cairn_device_job *job, const struct mark *mark,
                                   struct cairn_error *err) {
    const struct cairn_cuda_runtime *cuda = &job->device->cuda;
    for (size_t i = 0; i < DEVICES_MAX; i++) {
        if (!mark->events[i]) continue;
        CAIRN_TRY(use(cuda, job->lanes[i].device, err));
        CAIRN_TRY(CAIRN_CUDA(cuda, EventSynchronize, (mark->events[i]), err));
    }
    return CAIRN_OK;
}

static enum cairn_code await(struct cairn_device_job *job, size_t number, struct cairn_error *err) {
    CAIRN_PROMISE(number < job->mark_count, return cairn_fail(err, CAIRN_BROKEN, "no such mark"));
    if (!job->marks[number]) return CAIRN_OK;
    enum cairn_code code = await_lanes(job, job->marks[number], err);
    use_before(job);
    return code;
}

/* What goes wrong here goes wrong after the last byte, or was reported: nothing is returned. */
static void end(struct cairn_device_job *job) {
    const struct cairn_cuda_runtime *cuda = &job->device->cuda;
    int status = 0;
    for (size_t i = 0; i < job->lane_count; i++) {
        CAIRN_UNUSED enum cairn_code code = use(cuda, job->lanes[i].device, NULL);
        status |= cuda->StreamSynchronize(job->lanes[i].stream);
        for (size_t k = 0; k < job->mark_count; k++)
            if (job->marks[k] && job->marks[k]->events[i])
                status |= cuda->EventDestroy(job->marks[k]->events[i]);
        for (size_t k = 0; k < job->followed_count; k++)
            if (job->followed[k].device == job->lanes[i].device)
                status |= cuda->EventDestroy(job->followed[k].event);
        status |= cuda->StreamDestroy(job->lanes[i].stream);
        cairn_cuda_scratch_give(&job->device->converter, &job->lanes[i].scratch);
    }
    if (status) (void)cuda->GetLastError();
    use_before(job);
    for (size_t k = 0; k < job->mark_count; k++) free(job->marks[k]);
    free(job->marks);
    free(job->followed);
    free(job);
}

/* ---- the plug-in ---- */

static enum cairn_code open_device(struct cairn_device **ret, struct cairn_error *err) {
    struct cairn_device *device = calloc(1, sizeof *device);
    if (!device) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a device");
    enum cairn_code code = cairn_cuda_runtime_find(&device->cuda, err);
    if (code) {
        free(device);
        return code;
    }
    cairn_lock_init(&device->lock, CAIRN_LOCK_client_device);
    cairn_cuda_converter_init(&device->converter, &device->cuda);
    *ret = device;
    return CAIRN_OK;
}

static void close_device(struct cairn_device *device) {
    int before = 0;
    bool known = !device->cuda.GetDevice(&before);
    cairn_cuda_converter_release(&device->converter);
    CAIRN_UNUSED enum cairn_code code = known ? use(&device->cuda, before, NULL) : CAIRN_OK;
    for (size_t i = 0; i < device->locked.memory_count; i++)
        if (device->cuda.HostUnregister(device->locked.memory[i])) device->cuda.GetLastError();
    cairn_lock_release(&device->lock);
    free(device);
}

static enum cairn_code lock_memory(struct cairn_device *device, void *memory, uint64_t bytes,
                                   bool read_only, struct cairn_error *err) {
    unsigned flags = CAIRN_CUDA_HOST_PORTABLE | (read_only ? CAIRN_CUDA_HOST_READ_ONLY : 0);
    CAIRN_HOLD(&device->lock);
    for (size_t i = 0; i < device->locked.memory_count; i++)
        if (device->locked.memory[i] == memory) return CAIRN_OK;
    if (device->locked.memory_count == LOCKED_MAX)
        return cairn_fail(err, CAIRN_TOO_LARGE, "more than %d pieces of memory", LOCKED_MAX);
    CAIRN_TRY(CAIRN_CUDA(&device->cuda, HostRegister, (memory, (size_t)bytes, flags), err));
    device->locked.memory[device->locked.memory_count++] = memory;
    return CAIRN_OK;
}

static void unlock_memory(struct cairn_device *device, void *memory) {
    CAIRN_HOLD(&device->lock);
    for (size_t i = 0; i < device->locked.memory_count; i++) {
        if (device->locked.memory[i] != memory) continue;
        if (device->cuda.HostUnregister(memory)) device->cuda.GetLastError();
        device->locked.memory[i] = device->locked.memory[--device->locked.memory_count];
        return;
    }
}

static const struct cairn_device_plugin cuda_plugin = {.abi = CAIRN_DEVICE_ABI,
                                                       .open = open_device,
                                                       .close = close_device,
                                                       .check = check,
                                                       .convertible = convertible,
                                                       .lock = lock_memory,
                                                       .unlock = unlock_memory,
                                                       .begin = begin,
                                                       .follow = follow,
                                                       .copy = copy,
                                                       .mark = mark,
                                                       .await = await,
                                                       .end = end};

__attribute__((visibility("default"))) const struct cairn_device_plugin *
cairn_device_plugin_1(void);
const struct cairn_device_plugin *cairn_device_plugin_1(void) {
    return &cuda_plugin;
}
