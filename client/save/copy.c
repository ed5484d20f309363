/* SPDX-License-Identifier: Apache-2.0 */
/* Threads take the shard's next segment until none is left; where there are several, the caller's
 * copies none, so that a source that stands still keeps nothing back that the others have copied.
 * Segments hold whole blocks; only piece checksums span segments. */
#include "client/save/copy.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "api/table/dtype.h"
#include "common/crc.h"
#include "formats/convert.h"

#define SEGMENT_BYTES CAIRN_CLIENT_SEGMENT_BYTES
#define THREADS_MAX CAIRN_CLIENT_COPY_THREADS_MAX
/* Long rows are copied and checksummed in one pass, as plain sources are. Short ones are gathered
 * first and checksummed at the destination, in parts that stay in the cache. */
#define LONG_ROW_BYTES CAIRN_KIB
#define ROWS_BYTES (128 * CAIRN_KIB)
#define CONVERTED_AT_ONCE 512 /* elements, twice on the stack */
/* Segments that a device copies while others are checksummed: 256 MiB, 5 ms at 50 GB/s. */
#define SEGMENTS_AHEAD 16

struct work {
    const struct cairn_client_copy *copy;
    size_t segment_count; /* up to the end of the part to copy */
    _Atomic size_t next;
    _Atomic bool stop;
    _Atomic bool *done;  /* per segment */
    size_t reported;     /* leading segments reported as done; caller's thread only */
    _Atomic bool failed; /* a source failed; `problem` is the first thread's */
    struct cairn_error problem;
    pthread_t caller;
    struct cairn_device_job *job; /* NULL: no device source */
    const uint64_t *sums;         /* the device's, per chunk; NULL: none */
    struct cairn_lock lock;
    struct cairn_condition changed; /* a segment is done or requested, or the copy ends */
    struct {
        size_t asked; /* segments requested from the device */
    } locked;
};

static uint64_t end_of(const struct cairn_client_copy *copy) {
    return copy->until ? copy->until : copy->bytes;
}

/* ---- copying ---- */

/* The run that holds the byte at offset; behind runs without bytes. */
static size_t run_at(const struct cairn_client_copy *copy, uint64_t offset) {
    size_t low = 0, high = copy->run_count;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (copy->runs[middle].offset <= offset)
            low = middle;
        else
            high = middle;
    }
    return low;
}

enum source { PLAIN, ROWS, APART, FILLED, DEVICE, THERE, CONVERTED };

static enum source source_of(const struct cairn_client_run *run) {
    if (!run->piece || !run->bytes) return PLAIN;
    if (run->piece->by_caller) return THERE; /* already in place */
    if (run->piece->fill) return FILLED;
    if (run->piece->on_device) return DEVICE;
    if (run->piece->source_dtype != run->piece->dtype) return CONVERTED;
    if (!run->piece->strided) return PLAIN;
    return cairn_strided_has_rows(run->piece->strided) ? ROWS : APART;
}

struct cairn_client_sources cairn_client_copy_sources(const struct cairn_client_copy *copy) {
    struct cairn_client_sources ret = {0};
    for (size_t i = 0; i < copy->run_count; i++) {
        enum source source = source_of(&copy->runs[i]);
        if (source == PLAIN)
            ret.plain += copy->runs[i].bytes;
        else if (source == ROWS || source == APART || source == CONVERTED)
            ret.worked += copy->runs[i].bytes;
        else
            ret.others += copy->runs[i].bytes;
    }
    return ret;
}

/* Converts the stored bytes [at, at + size) of a run; blocks may cut inside an element. */
static void convert(const struct cairn_client_run *run, uint8_t *to, uint64_t at, size_t size) {
    const struct cairn_client_piece *piece = run->piece;
    size_t from_width = cairn_dtype_bits(piece->source_dtype) / 8;
    size_t width = cairn_dtype_bits(piece->dtype) / 8;
    uint64_t source[CONVERTED_AT_ONCE], made[CONVERTED_AT_ONCE]; /* aligned for any width */
    while (size) {
        uint64_t element = at / width;
        size_t skip = (size_t)(at % width);
        uint64_t count = cairn_min_u64(CONVERTED_AT_ONCE, cairn_div_up(skip + size, width));
        const uint8_t *first = (const uint8_t *)run->source + element * from_width;
        if (piece->strided)
            cairn_strided_gather(piece->strided, run->source,
                                 piece->source_from + element * from_width, source,
                                 (size_t)count * from_width);
        else
            memcpy(source, first, (size_t)count * from_width); /* the source may be unaligned */
        cairn_convert(piece->source_dtype, source, piece->dtype, made, (size_t)count);
        size_t part = (size_t)cairn_min_u64(size, count * width - skip);
        memcpy(to, (const uint8_t *)made + skip, part);
        to += part;
        at += part;
        size -= part;
    }
}

/* Uses the device's checksums instead of reading those chunks. */
static uint32_t join_sums(const struct work *work, uint32_t crc, const uint8_t *at, size_t size) {
    uint64_t offset = (uint64_t)(at - work->copy->to), end = offset + size;
    for (uint64_t next; offset < end; offset = next) {
        uint64_t chunk = offset / CAIRN_DEVICE_SUM_BYTES, sum = 0;
        next = cairn_min_u64((chunk + 1) * CAIRN_DEVICE_SUM_BYTES, end);
        if (next - offset == CAIRN_DEVICE_SUM_BYTES)
            sum = __atomic_load_n(&work->sums[chunk], __ATOMIC_ACQUIRE);
        crc = sum ? cairn_crc32c_combine(crc, (uint32_t)sum, CAIRN_DEVICE_SUM_BYTES)
                  : cairn_crc32c(crc, work->copy->to + offset, (size_t)(next - offset));
    }
    return crc;
}

static bool has_long_rows(const struct cairn_strided *strided) {
    unsigned n = strided->dimension_count;
    return n && strided->count[n - 1] * strided->element_bytes >= LONG_ROW_BYTES;
}

struct summing {
    const uint8_t *first; /* element 0 of the source */
    uint8_t *to;
    size_t element_bytes;
    uint32_t crc;
};

static bool copy_rows(void *owner, const struct cairn_strided_rows *rows) {
    struct summing *summing = owner;
    size_t size = (size_t)rows->columns * summing->element_bytes;
    for (uint64_t row = 0; row < rows->rows; row++)
        summing->crc = cairn_crc32c_copy_part(
            summing->crc, summing->to + rows->dense + row * size,
            summing->first + rows->place + (int64_t)row * rows->row_bytes, size);
    return true;
}

/* Puts the run's bytes [at, at + size) at `to`, and continues checksum crc over them. */
static uint32_t put_and_sum(const struct work *work, const struct cairn_client_run *run,
                            uint32_t crc, uint8_t *to, uint64_t at, size_t size) {
    enum source source = source_of(run);
    if (source == DEVICE && work->sums) return join_sums(work, crc, to, size);
    if (source == PLAIN) return cairn_crc32c_copy(crc, to, (const uint8_t *)run->source + at, size);
    if (source != ROWS && source != CONVERTED)
        return cairn_crc32c(crc, to, size); /* put_early() put it there */
    if (source == ROWS && has_long_rows(run->piece->strided)) {
        struct summing summing = {run->source, to, run->piece->strided->element_bytes, crc};
        (void)cairn_strided_cut(run->piece->strided, run->piece->source_from + at, size, copy_rows,
                                &summing);
        return summing.crc;
    }
    for (size_t done = 0, part; done < size; done += part) {
        part = (size_t)cairn_min_u64(size - done, ROWS_BYTES);
        if (source == CONVERTED)
            convert(run, to + done, at + done, part);
        else
            cairn_strided_gather(run->piece->strided, run->source,
                                 run->piece->source_from + at + done, to + done, part);
        crc = cairn_crc32c(crc, to + done, part);
    }
    return crc;
}

/* A checksum shifted over the bytes that follow it can be xored in any order. */
static uint32_t put_and_sum_replicated(const struct work *work, const struct cairn_client_run *run,
                                       uint32_t crc, uint8_t *to, uint64_t at, size_t size) {
    uint32_t own = put_and_sum(work, run, 0, to, at, size);
    atomic_fetch_xor(&run->piece->crc32c, cairn_crc32c_combine(own, 0, run->bytes - at - size));
    return cairn_crc32c_combine(crc, own, size);
}

static uint32_t copy_block(const struct work *work, size_t *run, uint64_t offset, uint64_t end) {
    const struct cairn_client_copy *copy = work->copy;
    uint32_t crc = 0;
    while (offset < end) {
        const struct cairn_client_run *from = &copy->runs[*run];
        uint64_t at = offset - from->offset;
        size_t size = (size_t)cairn_min_u64(end - offset, from->bytes - at);
        uint8_t *to = copy->to + offset;
        if (from->piece && from->piece->kind == CAIRN_TENSOR_REPLICATED && !copy->check)
            crc = put_and_sum_replicated(work, from, crc, to, at, size);
        else
            crc = put_and_sum(work, from, crc, to, at, size);
        offset += size;
        if (at + size == from->bytes) ++*run;
    }
    return crc;
}

static void tell_change(struct work *work) {
    CAIRN_HOLD(&work->lock);
    cairn_condition_broadcast(&work->changed);
}

static void fail(struct work *work, const struct cairn_error *why) {
    if (!atomic_exchange(&work->failed, true)) work->problem = *why;
    tell_change(work);
}

/* Puts the segment's sources that need more than a block at once: a transposed tile exceeds a
 * block, and `fill` is called once. False: a source failed. */
static bool put_early(struct work *work, size_t run, uint64_t offset, uint64_t end) {
    const struct cairn_client_copy *copy = work->copy;
    for (; run < copy->run_count && copy->runs[run].offset < end; run++) {
        const struct cairn_client_run *from = &copy->runs[run];
        enum source source = source_of(from);
        uint64_t first = cairn_max_u64(offset, from->offset);
        uint64_t size = cairn_min_u64(end, from->offset + from->bytes) - first;
        uint64_t at = first - from->offset + (source == PLAIN ? 0 : from->piece->source_from);
        int status = 0;
        if (source == APART)
            cairn_strided_gather(from->piece->strided, from->source, at, copy->to + first,
                                 (size_t)size);
        if (source == FILLED)
            status = from->piece->fill(from->piece->fill_owner, at, copy->to + first, size);
        if (!status) continue;
        struct cairn_error why = {0};
        (void)cairn_fail(&why, CAIRN_SOURCE_GONE,
                         "tensor %s: its fill function returned %d instead of 0", from->piece->name,
                         status);
        fail(work, &why);
        return false;
    }
    return true;
}

/* ---- device sources: the caller requests ahead, each segment's thread waits ---- */

/* The run's first byte in its source's sequence, in stored elements. */
static uint64_t stored_from(const struct cairn_client_piece *piece) {
    if (piece->source_dtype == piece->dtype) return piece->source_from;
    return piece->source_from / (cairn_dtype_bits(piece->source_dtype) / 8) *
           (cairn_dtype_bits(piece->dtype) / 8);
}

static enum cairn_code ask_segment(struct work *work, size_t index, struct cairn_error *err) {
    const struct cairn_client_copy *copy = work->copy;
    uint64_t offset = index * SEGMENT_BYTES;
    uint64_t end = cairn_min_u64(offset + SEGMENT_BYTES, copy->bytes);
    for (size_t run = run_at(copy, offset); run < copy->run_count; run++) {
        const struct cairn_client_run *from = &copy->runs[run];
        if (from->offset >= end) break;
        if (source_of(from) != DEVICE) continue;
        uint64_t first = cairn_max_u64(offset, from->offset);
        uint64_t stop = cairn_min_u64(end, from->offset + from->bytes);
        const struct cairn_device_part part = {.memory = from->source,
                                               .strided = from->piece->strided,
                                               .at =
                                                   first - from->offset + stored_from(from->piece),
                                               .bytes = stop - first,
                                               .host = copy->to + first,
                                               .source_dtype = from->piece->source_dtype,
                                               .dtype = from->piece->dtype};
        enum cairn_code code = copy->device->plugin->copy(work->job, &part, err);
        if (code) return cairn_within(err, code, "tensor %s", from->piece->name);
    }
    return copy->device->plugin->mark(work->job, index, err);
}

/* On the caller's thread only: requests all segments below `until`. */
static void ask_until(struct work *work, size_t until) {
    struct cairn_error why = {0};
    if (!work->job) return;
    until = cairn_min_u64(until, work->segment_count);
    for (size_t index = work->locked.asked; index < until; index++) {
        if (atomic_load(&work->failed)) return;
        if (ask_segment(work, index, &why) != CAIRN_OK) {
            fail(work, &why);
            return;
        }
        CAIRN_HOLD(&work->lock);
        work->locked.asked = index + 1;
        cairn_condition_broadcast(&work->changed);
    }
}

/* During training a trainer's stream may wait for all copies, so all are queued. */
static size_t wanted_ahead(const struct work *work) {
    size_t ahead = work->copy->behind ? SIZE_MAX : atomic_load(&work->next) + SEGMENTS_AHEAD;
    return (size_t)cairn_min_u64(ahead, work->segment_count);
}

static void ask_ahead(struct work *work) {
    ask_until(work, wanted_ahead(work));
}

/* False: the copy ends. A caller that copies requests its own segments here, so it never waits for
 * itself. */
static bool await_segment(struct work *work, size_t index) {
    struct cairn_error why = {0};
    if (!work->job) return true;
    if (pthread_equal(pthread_self(), work->caller)) ask_until(work, index + 1);
    cairn_lock_take(&work->lock);
    if (work->locked.asked <= index) cairn_condition_broadcast(&work->changed); /* it is wanted */
    while (work->locked.asked <= index && !atomic_load(&work->failed) && !atomic_load(&work->stop))
        (void)cairn_condition_wait(&work->changed, &work->lock, UINT64_MAX);
    bool asked = work->locked.asked > index;
    cairn_lock_give(&work->lock);
    if (!asked || atomic_load(&work->failed)) return false;
    if (work->copy->device->plugin->await(work->job, index, &why) == CAIRN_OK) return true;
    fail(work, &why);
    return false;
}

/* False: none is left, or the copy failed. */
static bool next_segment(struct work *work, size_t *ret) {
    *ret = atomic_fetch_add(&work->next, 1);
    return *ret < work->segment_count && !atomic_load(&work->stop) && !atomic_load(&work->failed);
}

/* False: the copy failed. */
static bool copy_segment(struct work *work, size_t index) {
    const struct cairn_client_copy *copy = work->copy;
    uint64_t offset = index * SEGMENT_BYTES;
    uint64_t end = cairn_min_u64(offset + SEGMENT_BYTES, copy->bytes);
    size_t run = run_at(copy, offset);
    if (!await_segment(work, index) || !put_early(work, run, offset, end)) return false;
    for (uint64_t next; offset < end; offset = next) {
        next = cairn_min_u64(offset + CAIRN_BLOCK_BYTES, end);
        copy->blocks[offset / CAIRN_BLOCK_BYTES] = copy_block(work, &run, offset, next);
    }
    atomic_store(&work->done[index], true);
    return true;
}

/* ---- the call ---- */

static void *copy_segments(void *argument) {
    size_t index;
    while (next_segment(argument, &index) && copy_segment(argument, index)) tell_change(argument);
    return NULL;
}

/* 0: the caller copies alone. */
static uint32_t start_helpers(struct work *work, pthread_t helpers[THREADS_MAX]) {
    uint32_t wanted = (uint32_t)cairn_min_u64(work->copy->threads, THREADS_MAX), count = 0;
    if (wanted < 2) return 0;
    while (count < wanted && !cairn_client_thread(&helpers[count], NULL, copy_segments, work))
        count++;
    return count;
}

static enum cairn_code tell_copied(struct work *work, struct cairn_error *err) {
    const struct cairn_client_copy *copy = work->copy;
    size_t reported = work->reported;
    while (reported < work->segment_count && atomic_load(&work->done[reported])) reported++;
    if (reported == work->reported) return CAIRN_OK;
    work->reported = reported;
    return copy->copied(copy->owner, cairn_min_u64(reported * SEGMENT_BYTES, copy->bytes), err);
}

/* True: the runs fill the shard and the part lies within it, so no thread overruns. */
static bool is_covered(const struct cairn_client_copy *copy) {
    uint64_t at = 0;
    for (size_t i = 0; i < copy->run_count; i++) {
        if (copy->runs[i].offset != at) return false;
        at += copy->runs[i].bytes;
    }
    bool whole = !(copy->from % SEGMENT_BYTES) &&
                 (end_of(copy) == copy->bytes || !(end_of(copy) % SEGMENT_BYTES));
    return at == copy->bytes && whole && copy->from <= end_of(copy) && end_of(copy) <= at;
}

static enum cairn_code follow(const struct cairn_client_copy *copy, struct cairn_device_job **job,
                              struct cairn_error *err) {
    for (size_t i = 0; i < copy->run_count; i++) {
        const struct cairn_client_run *run = &copy->runs[i];
        if (source_of(run) != DEVICE) continue;
        const struct cairn_device_plugin *plugin = copy->device->plugin;
        const struct cairn_device_job_options options = {
            .mark_count = (size_t)cairn_div_up(copy->bytes, SEGMENT_BYTES),
            .host = copy->to,
            .bytes = copy->bytes};
        if (!*job) CAIRN_TRY(plugin->begin(copy->device->handle, &options, job, err));
        enum cairn_code code = plugin->follow(*job, run->source, run->piece->stream, err);
        if (code) return cairn_within(err, code, "tensor %s", run->piece->name);
    }
    return CAIRN_OK;
}

enum cairn_code cairn_client_copy_job(const struct cairn_client_copy *copy,
                                      struct cairn_device_job **ret, struct cairn_error *err) {
    struct cairn_device_job *job = NULL;
    enum cairn_code code = follow(copy, &job, err);
    if (code && job) copy->device->plugin->end(job);
    *ret = code ? NULL : job;
    return code;
}

static enum cairn_code copy_alone(struct work *work, struct cairn_error *err) {
    size_t index;
    while (next_segment(work, &index)) {
        if (!copy_segment(work, index)) return CAIRN_OK; /* copy_all returns why */
        ask_ahead(work);
        CAIRN_TRY(tell_copied(work, err));
    }
    return CAIRN_OK;
}

/* Nothing to request or to tell. The lock is held. */
static bool is_quiet(const struct work *work) {
    bool asks = work->job && work->locked.asked < wanted_ahead(work);
    return !asks && !atomic_load(&work->done[work->reported]) && !atomic_load(&work->failed);
}

static enum cairn_code tell_helpers_copies(struct work *work, struct cairn_error *err) {
    while (work->reported < work->segment_count) {
        cairn_lock_take(&work->lock);
        while (is_quiet(work)) (void)cairn_condition_wait(&work->changed, &work->lock, UINT64_MAX);
        cairn_lock_give(&work->lock);
        if (atomic_load(&work->failed)) return CAIRN_OK; /* copy_all returns why */
        ask_ahead(work);
        CAIRN_TRY(tell_copied(work, err));
    }
    return CAIRN_OK;
}

static void stop_helpers(struct work *work) {
    CAIRN_HOLD(&work->lock);
    atomic_store(&work->stop, true);
    cairn_condition_broadcast(&work->changed);
}

static enum cairn_code copy_all(struct work *work, struct cairn_error *err) {
    pthread_t helpers[THREADS_MAX];
    uint32_t helper_count = start_helpers(work, helpers);
    ask_ahead(work);
    if (work->copy->queued && work->locked.asked == work->segment_count)
        work->copy->queued(work->copy->owner);
    enum cairn_code code = helper_count ? tell_helpers_copies(work, err) : copy_alone(work, err);
    if (code) stop_helpers(work);
    for (uint32_t i = 0; i < helper_count; i++) pthread_join(helpers[i], NULL);
    if (!code && atomic_load(&work->failed)) {
        if (err) *err = work->problem;
        code = work->problem.code;
    }
    CAIRN_TRY(code);
    CAIRN_TRY(tell_copied(work, err));
    CAIRN_PROMISE(work->reported == work->segment_count,
                  return cairn_fail(err, CAIRN_BROKEN, "a segment was not copied"));
    return CAIRN_OK;
}

enum cairn_code cairn_client_copy(const struct cairn_client_copy *copy, struct cairn_error *err) {
    struct work work = {.copy = copy, .job = copy->job, .caller = pthread_self()};
    CAIRN_PROMISE(is_covered(copy), return cairn_fail(err, CAIRN_BROKEN, "runs with a gap"));
    work.segment_count = (size_t)cairn_div_up(end_of(copy), SEGMENT_BYTES);
    work.next = work.reported = work.locked.asked = (size_t)(copy->from / SEGMENT_BYTES);
    CAIRN_AUTO_HEAP _Atomic bool *done = calloc(work.segment_count + 1, sizeof *done);
    if (!done) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a list of segments");
    work.done = done;
    if (work.job) work.sums = copy->device->plugin->sums(work.job);
    cairn_lock_init(&work.lock, CAIRN_LOCK_client_copy);
    cairn_condition_init(&work.changed);
    enum cairn_code code = copy_all(&work, err);
    cairn_condition_release(&work.changed);
    cairn_lock_release(&work.lock);
    return code;
}
