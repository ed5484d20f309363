/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels have a stream of their own, so that one runs while a copy is under way. A copy out of a
 * scratch waits for the event that it is filled, and the next kernel that fills it for the one that
 * it is empty. */
#include "client/stage_cuda/lane.h"

#include "client/stage_cuda/rows.h"

/* As much as is asked for at once (client/save/copy.c). With 8 MiB an H200 converted at 0.88 of the
 * speed of a bare copy: a copy that waits for an event begins some 20 us late. */
#define SCRATCH_BYTES_MAX (16 * CAIRN_MIB)
#define SCRATCH_BYTES_MIN (64 * CAIRN_KIB)
#define PACKED_BYTES_MAX (64 * CAIRN_KIB) /* copied in as long as a call of a copy takes */
#define ROW_BYTES_MIN (16 * CAIRN_KIB)    /* from here on rows are copied from where they lie */

enum cairn_code cairn_cuda_lane_init(struct cairn_cuda_lane *lane, struct cairn_cuda *cuda,
                                     struct cairn_cuda_place *place,
                                     struct cairn_cuda_summed *summed, struct cairn_error *err) {
    *lane = (struct cairn_cuda_lane){.cuda = cuda, .place = place, .summed = summed};
    CAIRN_TRY(cairn_cuda_streams_take(cuda, place, &lane->streams, err));
    lane->has_kernels = !cairn_cuda_kernels_load(cuda, place, NULL);
    return CAIRN_OK;
}

enum cairn_code cairn_cuda_lane_wait(struct cairn_cuda_lane *lane, void *event,
                                     struct cairn_error *err) {
    const struct cairn_cuda_runtime *runtime = &lane->cuda->runtime;
    CAIRN_TRY(CAIRN_CUDA(runtime, StreamWaitEvent, (lane->streams.kernels, event, 0), err));
    return CAIRN_CUDA(runtime, StreamWaitEvent, (lane->streams.copies, event, 0), err);
}

/* ---- sums ---- */

static bool is_there(const struct cairn_cuda_summed *summed, uint64_t asked) {
    return !asked || __atomic_load_n(&summed->sums.at[asked - 1], __ATOMIC_ACQUIRE);
}

bool cairn_cuda_is_late(struct cairn_cuda_summed *summed, uint64_t asked) {
    if (!summed->sums.at || is_there(summed, asked)) return false;
    atomic_store(&summed->late, true);
    return true;
}

/* Of whole chunks among the bytes that go to `host`, which the device has at `bytes`. */
static enum cairn_code sum(struct cairn_cuda_lane *lane, const uint8_t *bytes, const uint8_t *host,
                           uint64_t size, struct cairn_error *err) {
    struct cairn_cuda_summed *summed = lane->summed;
    if (!lane->has_kernels || !summed || !summed->sums.at) return CAIRN_OK;
    uint64_t at = (uint64_t)(host - summed->host);
    uint64_t first = cairn_div_up(at, CAIRN_DEVICE_SUM_BYTES);
    uint64_t end = (at + size) / CAIRN_DEVICE_SUM_BYTES;
    if (end <= first) return CAIRN_OK;
    if (atomic_load(&summed->late)) {
        if (!is_there(summed, summed->asked)) return CAIRN_OK;
        atomic_store(&summed->late, false);
    }
    summed->asked = end;
    return cairn_cuda_sum(lane->cuda, lane->place, lane->streams.kernels,
                          bytes + (first * CAIRN_DEVICE_SUM_BYTES - at), end - first,
                          summed->sums.at + first, err);
}

/* ---- by way of a scratch ---- */

static enum cairn_code make_scratch(struct cairn_cuda_lane *lane,
                                    struct cairn_cuda_scratch *scratch, struct cairn_error *err) {
    const struct cairn_cuda_runtime *runtime = &lane->cuda->runtime;
    if (!scratch->filled)
        CAIRN_TRY(cairn_cuda_event_take(lane->cuda, lane->place, &scratch->filled, err));
    if (!scratch->emptied)
        CAIRN_TRY(cairn_cuda_event_take(lane->cuda, lane->place, &scratch->emptied, err));
    for (size_t bytes = SCRATCH_BYTES_MAX;; bytes /= 2) {
        void *memory = NULL;
        struct cairn_error why = {0};
        enum cairn_code code = CAIRN_CUDA(runtime, Malloc, (&memory, bytes), &why);
        if (code == CAIRN_NO_MEMORY && bytes > SCRATCH_BYTES_MIN) continue;
        if (code && err) *err = why;
        if (code)
            return cairn_within(err, code, "device %d, %zu bytes to convert", lane->place->device,
                                bytes);
        scratch->memory = memory;
        scratch->bytes = bytes;
        return CAIRN_OK;
    }
}

/* The scratch whose turn it is, free to be filled by the stream of the kernels. */
static enum cairn_code begin_scratch(struct cairn_cuda_lane *lane, struct cairn_cuda_scratch **ret,
                                     struct cairn_error *err) {
    struct cairn_cuda_scratch *scratches = lane->streams.scratches;
    struct cairn_cuda_scratch *scratch = &scratches[lane->single ? 0 : lane->turn];
    if (!scratch->memory) {
        enum cairn_code code = make_scratch(lane, scratch, err);
        lane->single = code == CAIRN_NO_MEMORY && scratches[0].memory;
        if (lane->single) return begin_scratch(lane, ret, err);
        CAIRN_TRY(code);
    }
    *ret = scratch;
    if (!scratch->used) return CAIRN_OK;
    return CAIRN_CUDA(&lane->cuda->runtime, StreamWaitEvent,
                      (lane->streams.kernels, scratch->emptied, 0), err);
}

/* The bytes [skip, skip + size) of it go to host. */
static enum cairn_code end_scratch(struct cairn_cuda_lane *lane, struct cairn_cuda_scratch *scratch,
                                   size_t skip, uint8_t *host, uint64_t size,
                                   struct cairn_error *err) {
    const struct cairn_cuda_runtime *runtime = &lane->cuda->runtime;
    const struct cairn_cuda_streams *streams = &lane->streams;
    CAIRN_TRY(CAIRN_CUDA(runtime, EventRecord, (scratch->filled, streams->kernels), err));
    CAIRN_TRY(CAIRN_CUDA(runtime, StreamWaitEvent, (streams->copies, scratch->filled, 0), err));
    CAIRN_TRY(CAIRN_CUDA(runtime, MemcpyAsync,
                         (host, scratch->memory + skip, (size_t)size, CAIRN_CUDA_DEVICE_TO_HOST,
                          streams->copies),
                         err));
    CAIRN_TRY(CAIRN_CUDA(runtime, EventRecord, (scratch->emptied, streams->copies), err));
    scratch->used = true;
    lane->turn = (lane->turn + 1) % CAIRN_CUDA_SCRATCHES;
    return sum(lane, scratch->memory + skip, host, size, err);
}

/* A part may begin and end within an element, since blocks do. What is not converted can do without
 * a scratch. */
static enum cairn_code gather(struct cairn_cuda_lane *lane, const struct cairn_device_part *part,
                              const struct cairn_cuda_elements *elements,
                              struct cairn_error *err) {
    size_t width = elements->width;
    struct cairn_cuda_scratch *ignored = NULL;
    if (part->source_dtype == part->dtype &&
        begin_scratch(lane, &ignored, NULL) == CAIRN_NO_MEMORY)
        return cairn_cuda_rows_copy(&lane->cuda->runtime, lane->streams.copies, part, err);
    for (uint64_t done = 0, copied; done < part->bytes; done += copied) {
        struct cairn_cuda_scratch *scratch = NULL;
        size_t skip = (size_t)((part->at + done) % width);
        uint64_t from = (part->at + done) / width;
        CAIRN_TRY(begin_scratch(lane, &scratch, err));
        uint64_t count =
            cairn_min_u64(scratch->bytes / width, cairn_div_up(skip + part->bytes - done, width));
        copied = cairn_min_u64(part->bytes - done, count * width - skip);
        CAIRN_TRY(cairn_cuda_gather(lane->cuda, lane->place, lane->streams.kernels, elements, from,
                                    count, scratch->memory, err));
        CAIRN_TRY(end_scratch(lane, scratch, skip, part->host + done, copied, err));
    }
    return CAIRN_OK;
}

/* ---- small ranges ---- */

bool cairn_cuda_lane_joins(const struct cairn_cuda_lane *lane,
                           const struct cairn_device_part *part) {
    if (!lane->has_kernels || part->into_device || part->strided ||
        part->source_dtype != part->dtype || part->bytes > PACKED_BYTES_MAX)
        return false;
    if (!lane->packing.count) return true;
    return part->host == lane->packed_host + lane->packed_bytes &&
           lane->packing.count < CAIRN_KERNEL_PACKED_MAX &&
           lane->packed_bytes + part->bytes <= SCRATCH_BYTES_MAX;
}

void cairn_cuda_lane_join(struct cairn_cuda_lane *lane, const struct cairn_device_part *part) {
    if (!lane->packing.count) {
        lane->packed_host = part->host;
        lane->packed_bytes = 0;
    }
    lane->packing.ranges[lane->packing.count++] =
        (struct cairn_kernel_packed){.from = (const uint8_t *)part->memory + part->at,
                                     .at = (uint32_t)lane->packed_bytes,
                                     .bytes = (uint32_t)part->bytes};
    lane->packed_bytes += part->bytes;
    lane->queued = true;
}

/* Each by itself: there is one alone, or too little memory to put them together. */
static enum cairn_code copy_ranges(const struct cairn_cuda_lane *lane, struct cairn_error *err) {
    for (uint64_t i = 0; i < lane->packing.count; i++) {
        const struct cairn_kernel_packed *range = &lane->packing.ranges[i];
        CAIRN_TRY(CAIRN_CUDA(&lane->cuda->runtime, MemcpyAsync,
                             (lane->packed_host + range->at, range->from, range->bytes,
                              CAIRN_CUDA_DEVICE_TO_HOST, lane->streams.copies),
                             err));
    }
    return CAIRN_OK;
}

static enum cairn_code pack(struct cairn_cuda_lane *lane, struct cairn_error *err) {
    struct cairn_cuda_scratch *scratch = NULL;
    enum cairn_code code = CAIRN_NO_MEMORY;
    if (lane->packing.count > 1) code = begin_scratch(lane, &scratch, err);
    if (code == CAIRN_NO_MEMORY || (!code && scratch->bytes < lane->packed_bytes))
        return copy_ranges(lane, err);
    CAIRN_TRY(code);
    lane->packing.into = scratch->memory;
    CAIRN_TRY(cairn_cuda_pack(lane->cuda, lane->place, lane->streams.kernels, &lane->packing, err));
    return end_scratch(lane, scratch, 0, lane->packed_host, lane->packed_bytes, err);
}

enum cairn_code cairn_cuda_lane_flush(struct cairn_cuda_lane *lane, struct cairn_error *err) {
    if (!lane->packing.count) return CAIRN_OK;
    enum cairn_code code = pack(lane, err);
    lane->packing.count = 0;
    return code;
}

/* ---- a part ---- */

enum cairn_code cairn_cuda_lane_put(struct cairn_cuda_lane *lane,
                                    const struct cairn_device_part *part,
                                    struct cairn_error *err) {
    bool converted = part->source_dtype != part->dtype;
    lane->queued = true;
    CAIRN_TRY(cairn_cuda_lane_flush(lane, err));
    if (converted) CAIRN_TRY(cairn_cuda_kernels_load(lane->cuda, lane->place, err));
    if (converted || (part->strided && lane->has_kernels && !part->into_device)) {
        const struct cairn_cuda_elements elements = cairn_cuda_elements_of(part);
        if (converted || cairn_cuda_row_bytes(&elements) < ROW_BYTES_MIN)
            return gather(lane, part, &elements, err);
    }
    const uint8_t *from = (const uint8_t *)part->memory + part->at;
    if (!part->strided && !part->into_device)
        CAIRN_TRY(sum(lane, from, part->host, part->bytes, err));
    return cairn_cuda_rows_copy(&lane->cuda->runtime, lane->streams.copies, part, err);
}

void cairn_cuda_lane_release(struct cairn_cuda_lane *lane, bool failed) {
    const struct cairn_cuda_runtime *runtime = &lane->cuda->runtime;
    int status = runtime->StreamSynchronize(lane->streams.kernels);
    status |= runtime->StreamSynchronize(lane->streams.copies);
    if (status) (void)runtime->GetLastError();
    for (size_t i = 0; i < CAIRN_CUDA_SCRATCHES; i++) lane->streams.scratches[i].used = false;
    cairn_cuda_streams_give(lane->cuda, lane->place, &lane->streams, failed || status);
}
