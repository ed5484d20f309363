/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies between CUDA devices and memory shared with the uploader. A job has a lane per context of
 * its memory. The lane's streams wait, by an event, for the work on the trainer's stream at the
 * job's begin; the trainer's stream never waits. A mark is an event behind the copies of each lane:
 * once it passes, everything queued before it is done.
 */
#include <stdlib.h>

#include "client/stage_cuda/inside.h"
#include "common/buf.h"

#define LANES_MAX CAIRN_CUDA_PLACES_MAX
#define LOCKED_MAX 64

struct locked_memory {
    void *memory;
    struct cairn_cuda_place *place;
};
struct cairn_device {
    struct cairn_cuda cuda;
    struct cairn_lock lock;
    struct {
        struct locked_memory memory[LOCKED_MAX];
        size_t memory_count;
    } locked;
};
struct followed {
    void *stream, *event;
    size_t lane;
};
struct mark {
    uint64_t asked;          /* `summed.asked` when the mark was put */
    void *events[LANES_MAX]; /* NULL: nothing was queued there before */
};
struct cairn_device_job {
    struct cairn_device *device;
    struct cairn_cuda_lane *lanes[LANES_MAX];
    size_t lane_count;
    struct followed *followed;
    size_t followed_count, followed_capacity;
    struct mark **marks; /* NULL: nothing was queued before */
    size_t mark_count;
    struct followed *fences; /* events behind the job's copies; guarded by the device's lock */
    size_t fence_count, fence_capacity;
    struct cairn_cuda_summed summed;
    _Atomic bool failed;
    struct { /* the last allocation looked up */
        uint64_t begin, bytes;
        size_t lane;
    } near;
};

static enum cairn_code note(struct cairn_device_job *job, enum cairn_code code) {
    if (code) atomic_store(&job->failed, true);
    return code;
}

/* ---- devices ---- */

static enum cairn_code check(struct cairn_device *device, const void *source,
                             struct cairn_error *err) {
    struct cairn_cuda_place *place = NULL;
    return cairn_cuda_place_of(&device->cuda, source, &place, err);
}

/* Loads the kernels, so that an unsuitable device is reported before staging. */
static enum cairn_code convertible(struct cairn_device *device, const void *source,
                                   unsigned source_dtype, unsigned dtype, struct cairn_error *err) {
    struct cairn_cuda_place *place = NULL;
    CAIRN_TRY(cairn_cuda_kernels_convert(source_dtype, dtype, err));
    CAIRN_TRY(cairn_cuda_place_of(&device->cuda, source, &place, err));
    CAIRN_CUDA_WITHIN(&device->cuda, place, err);
    return cairn_cuda_kernels_load(&device->cuda, place, err);
}

/* ---- lanes ---- */

static enum cairn_code make_lane(struct cairn_device_job *job, struct cairn_cuda_place *place,
                                 struct cairn_cuda_lane *lane, struct cairn_error *err) {
    struct cairn_cuda *cuda = &job->device->cuda;
    struct cairn_cuda_summed *summed = &job->summed;
    CAIRN_CUDA_WITHIN(cuda, place, err);
    CAIRN_TRY(cairn_cuda_lane_init(lane, cuda, place, summed, err));
    if (lane->has_kernels && summed->host && !summed->sums.at)
        summed->sums =
            cairn_cuda_sums_take(cuda, (size_t)cairn_div_up(summed->bytes, CAIRN_DEVICE_SUM_BYTES));
    return CAIRN_OK;
}

static enum cairn_code lane_in(struct cairn_device_job *job, struct cairn_cuda_place *place,
                               size_t *ret, struct cairn_error *err) {
    for (*ret = 0; *ret < job->lane_count; ++*ret)
        if (job->lanes[*ret]->place == place) return CAIRN_OK;
    if (job->lane_count == LANES_MAX)
        return cairn_fail(err, CAIRN_TOO_LARGE, "pieces in more than %d contexts", LANES_MAX);
    struct cairn_cuda_lane *lane = malloc(sizeof *lane);
    if (!lane) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for copies from a device");
    enum cairn_code code = make_lane(job, place, lane, err);
    if (code)
        free(lane);
    else
        job->lanes[job->lane_count++] = lane;
    return code;
}

/* Cached, because a trainer's tensors lie side by side in few allocations. */
static enum cairn_code lane_of(struct cairn_device_job *job, const void *memory, size_t *ret,
                               struct cairn_error *err) {
    const struct cairn_cuda_driver *driver = &job->device->cuda.driver;
    struct cairn_cuda_place *place = NULL;
    uint64_t at = (uintptr_t)memory, begin = 0, bytes = 0;
    *ret = job->near.lane;
    if (at - job->near.begin < job->near.bytes) return CAIRN_OK;
    CAIRN_TRY(cairn_cuda_place_of(&job->device->cuda, memory, &place, err));
    CAIRN_TRY(lane_in(job, place, ret, err));
    if (driver->PointerGetAttribute(&begin, CAIRN_CUDA_BEGIN_OF, at) ||
        driver->PointerGetAttribute(&bytes, CAIRN_CUDA_BYTES_OF, at))
        bytes = 0;
    job->near.begin = begin;
    job->near.bytes = bytes;
    job->near.lane = *ret;
    return CAIRN_OK;
}

/* ---- a job ---- */

static enum cairn_code begin(struct cairn_device *device,
                             const struct cairn_device_job_options *options,
                             struct cairn_device_job **ret, struct cairn_error *err) {
    struct cairn_device_job *job = calloc(1, sizeof *job);
    struct mark **marks = calloc(options->mark_count + 1, sizeof *marks);
    if (!job || !marks) {
        free(job);
        free(marks);
        return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for copies from a device");
    }
    job->device = device;
    job->marks = marks;
    job->mark_count = options->mark_count;
    job->summed.host = options->host;
    job->summed.bytes = options->bytes;
    *ret = job;
    return CAIRN_OK;
}

static enum cairn_code follow_stream(struct cairn_device_job *job, const void *source, void *stream,
                                     struct cairn_error *err) {
    struct cairn_cuda *cuda = &job->device->cuda;
    struct followed made = {.stream = stream};
    CAIRN_TRY(lane_of(job, source, &made.lane, err));
    for (size_t i = 0; i < job->followed_count; i++)
        if (job->followed[i].stream == stream && job->followed[i].lane == made.lane)
            return CAIRN_OK;
    CAIRN_TRY(CAIRN_ARRAY_ROOM(job->followed, job->followed_count, job->followed_capacity,
                               UINT16_MAX, "streams", err));
    struct cairn_cuda_lane *lane = job->lanes[made.lane];
    CAIRN_CUDA_WITHIN(cuda, lane->place, err);
    CAIRN_TRY(cairn_cuda_event_take(cuda, lane->place, &made.event, err));
    job->followed[job->followed_count++] = made;
    CAIRN_TRY(CAIRN_CUDA(&cuda->runtime, EventRecord, (made.event, stream), err));
    return cairn_cuda_lane_wait(lane, made.event, err);
}

static enum cairn_code follow(struct cairn_device_job *job, const void *source, void *stream,
                              struct cairn_error *err) {
    return note(job, follow_stream(job, source, stream, err));
}

static enum cairn_code copy_part(struct cairn_device_job *job, const struct cairn_device_part *part,
                                 struct cairn_error *err) {
    size_t number = 0;
    CAIRN_TRY(lane_of(job, part->memory, &number, err));
    struct cairn_cuda_lane *lane = job->lanes[number];
    if (cairn_cuda_lane_joins(lane, part)) {
        cairn_cuda_lane_join(lane, part);
        return CAIRN_OK;
    }
    CAIRN_CUDA_WITHIN(lane->cuda, lane->place, err);
    CAIRN_TRY(cairn_cuda_lane_flush(lane, err));
    if (!cairn_cuda_lane_joins(lane, part)) return cairn_cuda_lane_put(lane, part, err);
    cairn_cuda_lane_join(lane, part);
    return CAIRN_OK;
}

static enum cairn_code copy(struct cairn_device_job *job, const struct cairn_device_part *part,
                            struct cairn_error *err) {
    return note(job, copy_part(job, part, err));
}

/* ---- marks ---- */

static enum cairn_code mark_lane(struct cairn_cuda_lane *lane, void **event,
                                 struct cairn_error *err) {
    struct cairn_cuda *cuda = lane->cuda;
    CAIRN_CUDA_WITHIN(cuda, lane->place, err);
    CAIRN_TRY(cairn_cuda_lane_flush(lane, err));
    if (!*event) CAIRN_TRY(cairn_cuda_event_take(cuda, lane->place, event, err));
    return CAIRN_CUDA(&cuda->runtime, EventRecord, (*event, lane->streams.copies), err);
}

static enum cairn_code mark_lanes(struct cairn_device_job *job, struct mark *mark,
                                  struct cairn_error *err) {
    for (size_t i = 0; i < job->lane_count; i++) {
        struct cairn_cuda_lane *lane = job->lanes[i];
        if (!lane->queued) continue;
        CAIRN_TRY(mark_lane(lane, &mark->events[i], err));
        lane->queued = false;
    }
    mark->asked = job->summed.asked;
    return CAIRN_OK;
}

static enum cairn_code mark(struct cairn_device_job *job, size_t number, struct cairn_error *err) {
    CAIRN_PROMISE(number < job->mark_count, return cairn_fail(err, CAIRN_BROKEN, "no such mark"));
    if (!job->marks[number]) job->marks[number] = calloc(1, sizeof(struct mark));
    if (!job->marks[number]) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a mark");
    return note(job, mark_lanes(job, job->marks[number], err));
}

static enum cairn_code await_lanes(const struct cairn_device_job *job, const struct mark *mark,
                                   struct cairn_error *err) {
    const struct cairn_cuda *cuda = &job->device->cuda;
    for (size_t i = 0; i < LANES_MAX; i++) {
        if (!mark->events[i]) continue;
        CAIRN_CUDA_WITHIN(cuda, job->lanes[i]->place, err);
        CAIRN_TRY(CAIRN_CUDA(&cuda->runtime, EventSynchronize, (mark->events[i]), err));
    }
    return CAIRN_OK;
}

static enum cairn_code await(struct cairn_device_job *job, size_t number, struct cairn_error *err) {
    CAIRN_PROMISE(number < job->mark_count, return cairn_fail(err, CAIRN_BROKEN, "no such mark"));
    const struct mark *mark = job->marks[number];
    if (!mark) return CAIRN_OK;
    CAIRN_TRY(note(job, await_lanes(job, mark, err)));
    (void)cairn_cuda_is_late(&job->summed, mark->asked);
    return CAIRN_OK;
}

static const uint64_t *sums(const struct cairn_device_job *job) {
    return job->summed.sums.at;
}

/* ---- fences ---- */

/* Also fences the kernel stream, whose gather and checksum kernels read the memory. */
static enum cairn_code fence_after(struct cairn_device_job *job, size_t number, void *own,
                                   void *stream, struct cairn_error *err) {
    struct cairn_cuda *cuda = &job->device->cuda;
    struct followed made = {.stream = stream, .lane = number};
    CAIRN_TRY(CAIRN_ARRAY_ROOM(job->fences, job->fence_count, job->fence_capacity, UINT16_MAX,
                               "fences", err));
    CAIRN_TRY(cairn_cuda_event_take(cuda, job->lanes[number]->place, &made.event, err));
    job->fences[job->fence_count++] = made;
    CAIRN_TRY(CAIRN_CUDA(&cuda->runtime, EventRecord, (made.event, own), err));
    return CAIRN_CUDA(&cuda->runtime, StreamWaitEvent, (stream, made.event, 0), err);
}

static enum cairn_code fence(struct cairn_device_job *job, void *stream, struct cairn_error *err) {
    CAIRN_HOLD(&job->device->lock);
    for (size_t i = 0; i < job->lane_count; i++) {
        const struct cairn_cuda_lane *lane = job->lanes[i];
        CAIRN_CUDA_WITHIN(lane->cuda, lane->place, err);
        CAIRN_TRY(fence_after(job, i, lane->streams.copies, stream, err));
        CAIRN_TRY(fence_after(job, i, lane->streams.kernels, stream, err));
    }
    return CAIRN_OK;
}

/* ---- ends ---- */

/* Errors here come after the last byte or were reported already, so none is returned. */
static void end_lane(struct cairn_device_job *job, size_t number, bool last) {
    struct cairn_cuda_lane *lane = job->lanes[number];
    struct cairn_cuda *cuda = lane->cuda;
    CAIRN_AUTO(cuda_entry) entered = {0};
    if (cairn_cuda_enter(cuda, lane->place, &entered, NULL)) return; /* the context is gone */
    for (size_t k = 0; k < job->mark_count; k++)
        if (job->marks[k]) cairn_cuda_event_give(cuda, lane->place, job->marks[k]->events[number]);
    for (size_t k = 0; k < job->followed_count; k++)
        if (job->followed[k].lane == number)
            cairn_cuda_event_give(cuda, lane->place, job->followed[k].event);
    for (size_t k = 0; k < job->fence_count; k++)
        if (job->fences[k].lane == number)
            cairn_cuda_event_give(cuda, lane->place, job->fences[k].event);
    cairn_cuda_lane_release(lane, atomic_load(&job->failed));
    if (last) cairn_cuda_sums_give(cuda, &job->summed.sums);
}

static void end(struct cairn_device_job *job) {
    for (size_t i = 0; i < job->lane_count; i++) end_lane(job, i, i + 1 == job->lane_count);
    for (size_t i = 0; i < job->lane_count; i++) free(job->lanes[i]);
    for (size_t k = 0; k < job->mark_count; k++) free(job->marks[k]);
    free(job->marks);
    free(job->followed);
    free(job->fences);
    free(job);
}

/* ---- page-locked host memory ---- */

static enum cairn_code register_memory(struct cairn_cuda *cuda, struct cairn_cuda_place *place,
                                       void *memory, size_t bytes, bool read_only,
                                       struct cairn_error *err) {
    unsigned flags = CAIRN_CUDA_HOST_PORTABLE | (read_only ? CAIRN_CUDA_HOST_READ_ONLY : 0);
    int supported = 0;
    if (read_only)
        CAIRN_TRY(CAIRN_CUDA(&cuda->runtime, DeviceGetAttribute,
                             (&supported, CAIRN_CUDA_READ_ONLY_SUPPORTED, place->device), err));
    if (read_only && !supported)
        return cairn_fail(err, CAIRN_UNSUPPORTED,
                          "device %d takes no memory that is mapped to be read", place->device);
    CAIRN_CUDA_WITHIN(cuda, place, err);
    enum cairn_code code = CAIRN_CUDA(&cuda->runtime, HostRegister, (memory, bytes, flags), err);
    /* Preloads the kernels outside of any save; a failure is reported when they are needed. */
    CAIRN_UNUSED enum cairn_code kernels = cairn_cuda_kernels_load(cuda, place, NULL);
    return code;
}

static enum cairn_code lock_memory(struct cairn_device *device, void *memory, uint64_t bytes,
                                   bool read_only, struct cairn_error *err) {
    struct cairn_cuda_place *place = NULL;
    CAIRN_TRY(cairn_cuda_place_any(&device->cuda, &place, err));
    if (!place) return CAIRN_OK;
    CAIRN_HOLD(&device->lock);
    for (size_t i = 0; i < device->locked.memory_count; i++)
        if (device->locked.memory[i].memory == memory) return CAIRN_OK;
    if (device->locked.memory_count == LOCKED_MAX)
        return cairn_fail(err, CAIRN_TOO_LARGE, "more than %d pieces of memory", LOCKED_MAX);
    CAIRN_TRY(register_memory(&device->cuda, place, memory, (size_t)bytes, read_only, err));
    device->locked.memory[device->locked.memory_count++] = (struct locked_memory){memory, place};
    return CAIRN_OK;
}

/* An error counts as true: `lock` returns it. */
static bool locks_read_only(struct cairn_device *device, const void *memory) {
    const struct cairn_cuda *cuda = &device->cuda;
    struct cairn_cuda_place *place = NULL;
    int supported = 1;
    if (cairn_cuda_place_of(&device->cuda, memory, &place, NULL)) return true;
    if (CAIRN_CUDA(&cuda->runtime, DeviceGetAttribute,
                   (&supported, CAIRN_CUDA_READ_ONLY_SUPPORTED, place->device), NULL))
        return true;
    return supported;
}

/* A place without streams copied nothing: a thread's own device, in which memory was page-locked.
 * Runtimes before 12.2 do not know the attribute. */
static int numa_node(struct cairn_device *device) {
    struct cairn_cuda *cuda = &device->cuda;
    int devices[CAIRN_CUDA_PLACES_MAX], all = -1;
    cairn_lock_take(&cuda->lock);
    size_t count = 0;
    for (size_t i = 0; i < cuda->locked.place_count; i++) {
        const struct cairn_cuda_place *place = cuda->locked.places[i];
        if (place->streams_count || place->streams_taken) devices[count++] = place->device;
    }
    cairn_lock_give(&cuda->lock);
    for (size_t i = 0; i < count; i++) {
        int node = -1;
        if (CAIRN_CUDA(&cuda->runtime, DeviceGetAttribute,
                       (&node, CAIRN_CUDA_HOST_NUMA_NODE, devices[i]), NULL) ||
            node < 0 || (i && node != all))
            return -1;
        all = node;
    }
    return all;
}

static void unregister(struct cairn_cuda *cuda, const struct locked_memory *locked) {
    CAIRN_AUTO(cuda_entry) entered = {0};
    if (cairn_cuda_enter(cuda, locked->place, &entered, NULL)) return;
    if (cuda->runtime.HostUnregister(locked->memory)) (void)cuda->runtime.GetLastError();
}

static void unlock_memory(struct cairn_device *device, void *memory) {
    CAIRN_HOLD(&device->lock);
    for (size_t i = 0; i < device->locked.memory_count; i++) {
        struct locked_memory *locked = &device->locked.memory[i];
        if (locked->memory != memory) continue;
        unregister(&device->cuda, locked);
        *locked = device->locked.memory[--device->locked.memory_count];
        return;
    }
}

/* ---- the plug-in ---- */

static enum cairn_code open_device(struct cairn_device **ret, struct cairn_error *err) {
    struct cairn_device *device = calloc(1, sizeof *device);
    if (!device) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a device");
    enum cairn_code code = cairn_cuda_init(&device->cuda, err);
    if (code) {
        free(device);
        return code;
    }
    cairn_lock_init(&device->lock, CAIRN_LOCK_client_memory);
    *ret = device;
    return CAIRN_OK;
}

static void close_device(struct cairn_device *device) {
    for (size_t i = 0; i < device->locked.memory_count; i++)
        unregister(&device->cuda, &device->locked.memory[i]);
    cairn_cuda_release(&device->cuda);
    cairn_lock_release(&device->lock);
    free(device);
}

static const struct cairn_device_plugin cuda_plugin = {.abi = CAIRN_DEVICE_ABI,
                                                       .open = open_device,
                                                       .close = close_device,
                                                       .check = check,
                                                       .convertible = convertible,
                                                       .lock = lock_memory,
                                                       .unlock = unlock_memory,
                                                       .locks_read_only = locks_read_only,
                                                       .numa_node = numa_node,
                                                       .begin = begin,
                                                       .follow = follow,
                                                       .copy = copy,
                                                       .mark = mark,
                                                       .await = await,
                                                       .sums = sums,
                                                       .fence = fence,
                                                       .end = end};

__attribute__((visibility("default"))) const struct cairn_device_plugin *
cairn_device_plugin_1(void);
const struct cairn_device_plugin *cairn_device_plugin_1(void) {
    return &cuda_plugin;
}
