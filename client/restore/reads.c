/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Wants become pieces (plan/reads.h), pieces that share blocks become ranges, and ranges are cut
 * into batches that fill a window slot. Several batches are under way at once, so that copying one
 * overlaps fetching the next. A slot is reused only after its answer arrived, even if its call
 * failed: until then the uploader may write into it.
 */
#include "client/restore/restore.h"

#include <cairn/inspect.h>
#include <cairn/items.h>
#include <inttypes.h>
#include <stdlib.h>

#include "api/table/dtype.h"
#include "client/session/memory.h"
#include "client/session/options.h"
#include "common/crc.h"
#include "common/text.h"
#include "formats/convert.h"
#include "plan/reads.h"

#define SLOTS CAIRN_CLIENT_SLOTS
#define RANGES_MAX 2048
#define WINDOW_BYTES (64 * CAIRN_MIB)
#define WINDOW_BYTES_LARGE (256 * CAIRN_MIB)
#define WINDOW_BYTES_SMALL (16 * CAIRN_MIB)
#define TRIES_MAX 3
#define BLOCK 512 /* elements; at most 8 KiB */
#define ITEM_BYTES_MAX CAIRN_GIB

/* ---- elements, through an aligned block on the stack: the window is not aligned ---- */

static enum cairn_code read_dtype(const struct cairn_read *read, struct cairn_client_target *ret,
                                  struct cairn_error *err) {
    if (!read->into_dtype) return CAIRN_OK;
    if (!cairn_dtype_parse(cairn_view_of(read->into_dtype), &ret->to_dtype))
        return cairn_fail(err, CAIRN_INVALID,
                          "unknown dtype %.16s; names are such as F32, BF16 or I64",
                          read->into_dtype);
    if (!cairn_convertible(ret->from_dtype, ret->to_dtype))
        return cairn_fail(err, CAIRN_UNSUPPORTED, "%s is not converted to %s",
                          cairn_dtype_text(ret->from_dtype), cairn_dtype_text(ret->to_dtype));
    return CAIRN_OK;
}

static enum cairn_code read_strides(const struct cairn_tensor *tensor,
                                    const struct cairn_read *read, struct cairn_client_target *ret,
                                    struct cairn_error *err) {
    unsigned dimensions = read->form == CAIRN_FLAT ? 1 : tensor->dimension_count;
    const uint64_t *count = read->form == CAIRN_WHOLE ? tensor->shape : read->count;
    if (!read->into_stride || !dimensions) return CAIRN_OK;
    for (unsigned d = 0; d < dimensions; d++)
        if (!count[d]) return CAIRN_OK; /* no elements */
    if (!cairn_strided_make(ret->to_width, dimensions, count, read->into_stride, &ret->strided))
        return cairn_fail(err, CAIRN_INVALID, "strides of places that memory cannot have");
    ret->apart = !cairn_strided_is_contiguous(&ret->strided);
    if (ret->apart && cairn_strided_may_overlap(&ret->strided))
        return cairn_fail(err, CAIRN_INVALID, "strides that put two elements to one place");
    return CAIRN_OK;
}

enum cairn_code cairn_client_target_make(const struct cairn_tensor *tensor,
                                         const struct cairn_read *read,
                                         struct cairn_client_target *ret, struct cairn_error *err) {
    struct cairn_client_target made = {.from_dtype = tensor->dtype, .to_dtype = tensor->dtype};
    CAIRN_TRY(read_dtype(read, &made, err));
    unsigned from_bits = cairn_dtype_bits(made.from_dtype);
    if (from_bits % 8 && (read->into_stride || made.to_dtype != made.from_dtype))
        return cairn_fail(err, CAIRN_UNSUPPORTED, "strides need elements of whole bytes");
    made.from_width = from_bits / 8;
    made.to_width = cairn_dtype_bits(made.to_dtype) / 8;
    CAIRN_TRY(read_strides(tensor, read, &made, err));
    made.plain = made.from_dtype == made.to_dtype && !made.apart;
    *ret = made;
    return CAIRN_OK;
}

uint64_t cairn_client_target_bytes(const struct cairn_client_target *target,
                                   uint64_t stored_bytes) {
    return target->plain ? stored_bytes : stored_bytes / target->from_width * target->to_width;
}

static void put_dense(const struct cairn_client_target *target, void *into, uint64_t element,
                      const void *from, size_t count) {
    uint64_t at = element * target->to_width;
    size_t size = count * target->to_width;
    if (target->apart)
        cairn_strided_scatter(&target->strided, into, at, from, size);
    else
        memcpy((uint8_t *)into + at, from, size);
}

static void put_elements(const struct cairn_client_target *target, void *into, uint64_t element,
                         const uint8_t *from, size_t count) {
    uint64_t stored[BLOCK], wanted[BLOCK]; /* aligned for every convertible type */
    if (target->from_dtype == target->to_dtype) {
        put_dense(target, into, element, from, count);
        return;
    }
    for (size_t done = 0; done < count; done += BLOCK) {
        size_t some = count - done < BLOCK ? count - done : BLOCK;
        memcpy(stored, from + done * target->from_width, some * target->from_width);
        cairn_convert(target->from_dtype, stored, target->to_dtype, wanted, some);
        put_dense(target, into, element + done, wanted, some);
    }
}

/* Takes whole elements, where they are stored. */
typedef void put_fn(void *owner, const struct cairn_client_target *target, uint64_t element,
                    const uint8_t *from, size_t count);

/* Adds bytes to the incomplete element; returns how many it took. */
static size_t put_part(struct cairn_client_target *target, put_fn *put, void *owner,
                       const uint8_t *from, size_t size) {
    size_t some = cairn_min_u64(target->from_width - target->part.have, size);
    memcpy(target->part.bytes + target->part.have, from, some);
    target->part.have += (uint32_t)some;
    if (target->part.have == target->from_width) {
        put(owner, target, target->part.element, target->part.bytes, 1);
        target->part.have = 0;
    }
    return some;
}

/* Puts the stored bytes [at, at + size) of the read as whole elements; false: out of order. */
static bool put_all(struct cairn_client_target *target, uint64_t at, struct cairn_view from,
                    put_fn *put, void *owner) {
    const uint8_t *bytes = from.data;
    size_t size = from.size;
    uint64_t element = at / target->from_width;
    if (at % target->from_width) {
        CAIRN_PROMISE(target->part.element == element, return false);
        CAIRN_PROMISE(target->part.have == at % target->from_width, return false);
        size_t took = put_part(target, put, owner, bytes, size);
        bytes += took;
        size -= took;
        element++;
    }
    size_t whole = size / target->from_width;
    put(owner, target, element, bytes, whole);
    size -= whole * target->from_width;
    if (!size) return true;
    target->part.element = element + whole;
    target->part.have = 0;
    (void)put_part(target, put, owner, bytes + whole * target->from_width, size);
    return true;
}

static void put_into(void *owner, const struct cairn_client_target *target, uint64_t element,
                     const uint8_t *from, size_t count) {
    put_elements(target, owner, element, from, count);
}

bool cairn_client_target_put(struct cairn_client_target *target, void *into, uint64_t at,
                             const void *from, size_t size) {
    return put_all(target, at, (struct cairn_view){from, size}, put_into, into);
}

/* ---- landing: from the window to host memory or to a device ---- */

struct landing {
    const struct cairn_client_device *device;
    struct cairn_device_job *job; /* NULL: all reads go to host memory */
    bool put;                     /* copies were queued since the last await */
    bool needs_writable;          /* a device page-locks no memory that is mapped to be read */
};

/* One mark is enough: it is awaited before more copies are queued. */
static enum cairn_code begin_landing(struct cairn_session *session, const struct cairn_read *reads,
                                     const struct cairn_client_target *targets, size_t count,
                                     struct landing *ret, struct cairn_error *err) {
    *ret = (struct landing){.device = &session->device};
    for (size_t i = 0; i < count; i++) {
        if (reads[i].memory == CAIRN_MEMORY_HOST || !reads[i].into_bytes) continue;
        const char *name = reads[i].tensor ? reads[i].tensor : reads[i].shard;
        enum cairn_code code = CAIRN_OK;
        if (reads[i].memory != CAIRN_MEMORY_CUDA)
            code = cairn_fail(err, CAIRN_INVALID, "memory %d is none of enum cairn_memory",
                              (int)reads[i].memory);
        if (!code) code = cairn_client_device_need(session, reads[i].into, err);
        if (!code && targets[i].to_dtype != targets[i].from_dtype)
            code =
                ret->device->plugin->convertible(ret->device->handle, reads[i].into,
                                                 targets[i].to_dtype, targets[i].from_dtype, err);
        if (!code && !ret->job)
            code = ret->device->plugin->begin(ret->device->handle,
                                              &(struct cairn_device_job_options){.mark_count = 1},
                                              &ret->job, err);
        if (!code)
            code = ret->device->plugin->follow(ret->job, reads[i].into, reads[i].stream, err);
        if (!code && !ret->needs_writable)
            ret->needs_writable =
                !ret->device->plugin->locks_read_only(ret->device->handle, reads[i].into);
        if (code) return cairn_within(err, code, "read %zu, of %.300s", i, name);
    }
    return CAIRN_OK;
}

/* Elements for a device, which converts them and puts them apart. */
struct placing {
    struct landing *landing;
    const struct cairn_read *read;
    enum cairn_code code;
    struct cairn_error *err;
};
static void place(void *owner, const struct cairn_client_target *target, uint64_t element,
                  const uint8_t *from, size_t count) {
    struct placing *placing = owner;
    bool converted = target->from_dtype != target->to_dtype;
    const struct cairn_device_part part = {.memory = placing->read->into,
                                           .strided = target->apart ? &target->strided : NULL,
                                           .at = element * target->from_width,
                                           .bytes = count * target->from_width,
                                           .host = (uint8_t *)(uintptr_t)from,
                                           .into_device = true,
                                           .source_dtype = converted ? target->to_dtype : 0,
                                           .dtype = converted ? target->from_dtype : 0};
    if (placing->code || !count) return;
    placing->landing->put = true;
    placing->code =
        placing->landing->device->plugin->copy(placing->landing->job, &part, placing->err);
}

/* Puts the stored bytes [at, at + size) of the read. */
static enum cairn_code land(struct landing *landing, const struct cairn_read *read,
                            struct cairn_client_target *target, uint64_t at, struct cairn_view from,
                            struct cairn_error *err) {
    if (!target->plain) {
        struct placing placing = {landing, read, CAIRN_OK, err};
        bool host = read->memory == CAIRN_MEMORY_HOST;
        bool in_order = host ? cairn_client_target_put(target, read->into, at, from.data, from.size)
                             : put_all(target, at, from, place, &placing);
        if (in_order) return placing.code;
        return cairn_fail(err, CAIRN_INTERNAL, "the bytes of an element came out of order");
    }
    if (read->memory == CAIRN_MEMORY_HOST) {
        /* Bypasses the cache, unlike memcpy at these sizes; the checksum costs nothing extra. */
        (void)cairn_crc32c_copy(0, (uint8_t *)read->into + at, from.data, from.size);
        return CAIRN_OK;
    }
    const struct cairn_device_part part = {.memory = read->into,
                                           .at = at,
                                           .bytes = from.size,
                                           .host = (uint8_t *)(uintptr_t)from.data,
                                           .into_device = true};
    landing->put = true;
    return landing->device->plugin->copy(landing->job, &part, err);
}

static void end_landing(struct landing *landing) {
    if (landing->job) landing->device->plugin->end(landing->job);
    landing->job = NULL;
}

/* ---- a call ---- */

struct range {                /* part of a shard that pieces need */
    uint64_t offset, end, at; /* at: in the window */
    uint32_t shard;
    size_t first_piece; /* by place: the first that may overlap it */
};
struct batch {
    struct range ranges[RANGES_MAX];
    size_t count;
};
struct reading {
    const struct cairn_client_reads *call;
    struct cairn_restore *restore;
    struct cairn_session *session;
    const struct cairn_read *reads;
    struct cairn_client_target *targets; /* one per read */
    struct cairn_plan_piece *pieces;     /* by shard, then offset */
    size_t piece_count;
    size_t next_piece; /* start of the next range */
    uint64_t next_offset;
    struct batch *batches; /* one per slot */
    uint64_t slot_bytes;
    struct landing landing;
    uint64_t deadline_ms;
    uint32_t epoch;
};

/* ---- cutting ---- */

static int by_place(const void *a, const void *b) {
    const struct cairn_plan_piece *x = a, *y = b;
    if (x->shard != y->shard) return x->shard < y->shard ? -1 : 1;
    if (x->offset != y->offset) return x->offset < y->offset ? -1 : 1;
    return x->at < y->at ? -1 : x->at > y->at;
}

/* End of the range that starts at `offset` and merges joining pieces, at most `room` bytes;
 * `offset` if the cut would fall inside a block, which would then be read twice. */
static uint64_t range_end(const struct reading *reading, size_t piece, uint64_t offset,
                          uint64_t room, size_t *ret_next) {
    const struct cairn_plan_piece *pieces = reading->pieces;
    struct cairn_plan_range range = {pieces[piece].offset,
                                     pieces[piece].offset + pieces[piece].bytes};
    size_t next = piece + 1;
    for (; next < reading->piece_count && pieces[next].shard == pieces[piece].shard; next++) {
        uint64_t end = pieces[next].offset + pieces[next].bytes;
        struct cairn_plan_range more = {pieces[next].offset, end};
        if (!cairn_plan_range_joins(range, more) || range.end - offset > room) break;
        range.end = cairn_max_u64(range.end, end);
    }
    *ret_next = next;
    range.begin = offset;
    return cairn_plan_range_cut(range, room);
}

/* The first piece from `piece` on with bytes at or after `offset` of its shard. */
static size_t skip_done(const struct reading *reading, size_t piece, uint64_t offset) {
    uint32_t shard = reading->pieces[piece].shard;
    while (piece < reading->piece_count && reading->pieces[piece].shard == shard &&
           reading->pieces[piece].offset + reading->pieces[piece].bytes <= offset)
        piece++;
    return piece;
}

static bool next_range(struct reading *reading, uint64_t room, struct range *ret) {
    size_t next = 0, piece = reading->next_piece;
    if (piece >= reading->piece_count || !room) return false;
    const struct cairn_plan_piece *first = &reading->pieces[piece];
    uint64_t offset = cairn_max_u64(first->offset, reading->next_offset);
    uint64_t end = range_end(reading, piece, offset, room, &next);
    if (end == offset) return false;
    *ret = (struct range){offset, end, 0, first->shard, piece};
    size_t after = skip_done(reading, piece, end);
    bool same = after < reading->piece_count && reading->pieces[after].shard == first->shard;
    reading->next_offset = same ? end : 0;
    reading->next_piece = after;
    return true;
}

static bool next_batch(struct reading *reading, size_t slot) {
    struct batch *batch = &reading->batches[slot];
    uint64_t used = 0;
    batch->count = 0;
    while (batch->count < RANGES_MAX &&
           next_range(reading, reading->slot_bytes - used, &batch->ranges[batch->count])) {
        struct range *range = &batch->ranges[batch->count++];
        range->at = slot * reading->slot_bytes + used;
        used += range->end - range->offset;
    }
    return batch->count > 0;
}

/* ---- requesting and copying ---- */

static enum cairn_code copy_out(struct reading *reading, const struct batch *batch,
                                struct cairn_error *err) {
    const uint8_t *window = reading->session->window.slab.data;
    for (size_t i = 0; i < batch->count; i++) {
        const struct range *range = &batch->ranges[i];
        for (size_t p = range->first_piece; p < reading->piece_count; p++) {
            const struct cairn_plan_piece *piece = &reading->pieces[p];
            if (piece->shard != range->shard || piece->offset >= range->end) break;
            uint64_t from = cairn_max_u64(piece->offset, range->offset);
            uint64_t end = cairn_min_u64(piece->offset + piece->bytes, range->end);
            if (from >= end) continue;
            struct cairn_view bytes = {window + range->at + (from - range->offset),
                                       (size_t)(end - from)};
            CAIRN_TRY(land(&reading->landing, &reading->reads[piece->want],
                           &reading->targets[piece->want], piece->at + (from - piece->offset),
                           bytes, err));
        }
    }
    struct landing *landing = &reading->landing;
    if (!landing->put) return CAIRN_OK;
    landing->put = false;
    CAIRN_TRY(landing->device->plugin->mark(landing->job, 0, err));
    return landing->device->plugin->await(landing->job, 0, err);
}

static json_t *read_message(const struct reading *reading, const struct batch *batch) {
    CAIRN_AUTO_JSON json_t *ranges = json_array();
    for (size_t i = 0; i < batch->count; i++) {
        const struct range *range = &batch->ranges[i];
        json_array_append_new(ranges,
                              CAIRN_PACK(read_range, .shard = range->shard, .offset = range->offset,
                                         .bytes = range->end - range->offset, .at = range->at));
    }
    return CAIRN_PACK(read, .restore = reading->restore->id, .ranges = ranges);
}

static struct cairn_client_request read_request(const struct reading *reading,
                                                json_t *take_message) {
    return (struct cairn_client_request){.take_message = take_message,
                                         .wanted = cairn_client_wanted(CAIRN_MESSAGE_read),
                                         .epoch = reading->epoch,
                                         .deadline_ms = reading->deadline_ms};
}

/* The lock is held. */
static enum cairn_code check_stopped(const struct reading *reading, struct cairn_error *err) {
    const struct cairn_client_reads *call = reading->call;
    if (!call->stopped || !call->stopped(call->owner)) return CAIRN_OK;
    return cairn_fail(err, CAIRN_CANCELLED, "the read was cancelled");
}

static enum cairn_code await_slot(const struct reading *reading, size_t slot,
                                  struct cairn_error *err) {
    struct cairn_session *session = reading->session;
    const struct cairn_client_request request = read_request(reading, NULL);
    const struct cairn_client_pending *pending = &session->window.pending[slot];
    cairn_lock_take(&session->lock);
    enum cairn_code code = check_stopped(reading, err);
    while (!pending->done && !code) code = cairn_client_pause(session, request.deadline_ms, err);
    bool done = pending->done && code != CAIRN_CANCELLED;
    if (!done && code == CAIRN_TIMEOUT)
        code = cairn_client_timed_out(session, "the bytes", pending->since_ms, err);
    cairn_lock_give(&session->lock);
    if (!done) return code;
    session->window.busy[slot] = false;
    return cairn_client_await(session, &request, &session->window.pending[slot], NULL, err);
}

/* Waits for slots that an earlier, failed call left busy. */
static enum cairn_code await_left_over(const struct reading *reading, struct cairn_error *err) {
    for (size_t slot = 0; slot < SLOTS; slot++) {
        if (!reading->session->window.busy[slot]) continue;
        enum cairn_code code = await_slot(reading, slot, err);
        if (code == CAIRN_TIMEOUT)
            return cairn_within(err, code, "an earlier read is still under way");
        if (code == CAIRN_INTERRUPTED || code == CAIRN_CANCELLED) return code;
    }
    return CAIRN_OK;
}

static enum cairn_code post_slot(struct reading *reading, size_t slot, bool *ret_asked,
                                 struct cairn_error *err) {
    *ret_asked = next_batch(reading, slot);
    if (!*ret_asked) return CAIRN_OK;
    const struct cairn_client_request request =
        read_request(reading, read_message(reading, &reading->batches[slot]));
    CAIRN_TRY(cairn_client_post(reading->session, &request, &reading->session->window.pending[slot],
                                err));
    reading->session->window.busy[slot] = true;
    return CAIRN_OK;
}

static bool are_all_free(const struct cairn_session *session) {
    for (size_t slot = 0; slot < SLOTS; slot++)
        if (session->window.busy[slot]) return false;
    return true;
}

/* The kernel clears each page of a window first, so that many ranks that restore little have small
 * ones. */
static uint64_t window_bytes(const struct cairn_session *session, uint64_t version_bytes) {
    uint64_t each = version_bytes > 4 * CAIRN_GIB ? WINDOW_BYTES_LARGE : WINDOW_BYTES;
    return cairn_max_u64(WINDOW_BYTES_SMALL, each / session->local_world_size);
}

static enum cairn_code read_once(struct reading *reading, struct cairn_error *err) {
    struct cairn_session *session = reading->session;
    bool asked = true;
    uint64_t wanted_bytes = window_bytes(session, reading->restore->manifest.total_bytes);
    CAIRN_TRY(
        cairn_client_restore_known(reading->restore, reading->deadline_ms, &reading->epoch, err));
    CAIRN_TRY(await_left_over(reading, err));
    CAIRN_TRY(cairn_client_window_open(session, reading->epoch, wanted_bytes,
                                       reading->landing.needs_writable, reading->deadline_ms, err));
    if (reading->landing.job && session->window.locked != reading->epoch) {
        session->window.locked = reading->epoch;
        cairn_client_device_lock(session, &session->window.slab, !session->window.writable,
                                 "restores");
    }
    reading->slot_bytes =
        session->window.slab.size_bytes / SLOTS / CAIRN_BLOCK_BYTES * CAIRN_BLOCK_BYTES;
    CAIRN_PROMISE(reading->slot_bytes > 0, return cairn_client_sound(session, err));
    reading->next_piece = 0;
    reading->next_offset = 0;
    for (size_t slot = 0; slot < SLOTS && asked; slot++)
        CAIRN_TRY(post_slot(reading, slot, &asked, err));
    for (size_t slot = 0; session->window.busy[slot]; slot = (slot + 1) % SLOTS) {
        CAIRN_TRY(await_slot(reading, slot, err));
        CAIRN_TRY(copy_out(reading, &reading->batches[slot], err));
        CAIRN_TRY(post_slot(reading, slot, &asked, err));
    }
    CAIRN_PROMISE(reading->next_piece == reading->piece_count && are_all_free(session),
                  return cairn_client_sound(session, err));
    return CAIRN_OK;
}

static enum cairn_code read_all(struct reading *reading, struct cairn_error *err) {
    enum cairn_code code = CAIRN_UPLOADER_GONE;
    if (!reading->piece_count) return CAIRN_OK;
    CAIRN_TRY(cairn_client_window_take(reading->session, reading->deadline_ms, err));
    for (int tries = 0; tries < TRIES_MAX && code == CAIRN_UPLOADER_GONE; tries++)
        code = read_once(reading, err);
    end_landing(&reading->landing); /* before others use the window */
    cairn_client_window_give(reading->session);
    return code;
}

/* ---- the call ---- */

static enum cairn_code make_want(const struct cairn_restore *restore, const struct cairn_read *read,
                                 struct cairn_plan_want *ret, struct cairn_error *err) {
    uint32_t index, first, count;
    if (!read->shard == !read->tensor)
        return cairn_fail(err, CAIRN_INVALID, "either a shard or a tensor is read");
    if (read->shard && (read->into_dtype || read->into_stride))
        return cairn_fail(
            err, CAIRN_INVALID,
            "a whole shard is read as bytes: into_dtype and into_stride are for tensors");
    *ret = (struct cairn_plan_want){.offset = read->offset,
                                    .bytes = read->bytes,
                                    .local_rank = read->local_rank_of,
                                    .form = (enum cairn_plan_form)read->form,
                                    .start = read->start,
                                    .count = read->count};
    if (read->shard) {
        ret->shard = cairn_view_of(read->shard);
        return CAIRN_OK;
    }
    ret->tensor = cairn_view_of(read->tensor);
    if (restore->names.rule_count) { /* without renames the plan reports a missing tensor */
        if (!cairn_client_restore_find(restore, read->tensor, &index))
            return cairn_fail(err, CAIRN_NOT_FOUND, "no tensor %s, after the renames",
                              cairn_short(read->tensor).text);
        cairn_layout_name_at(&restore->layout, index, &ret->tensor, &first, &count);
    }
    if (read->form < CAIRN_WHOLE || read->form > CAIRN_BOX ||
        (read->form == CAIRN_FLAT && (!read->start || !read->count)))
        return cairn_fail(err, CAIRN_INVALID, "tensor %s: form, start or count is missing",
                          cairn_short(read->tensor).text);
    return CAIRN_OK;
}

/* Only a box of a scalar may omit start and count. */
static enum cairn_code check_box(struct cairn_restore *restore, const struct cairn_read *read,
                                 struct cairn_error *err) {
    struct cairn_tensor_info info;
    if (!read->tensor || read->form != CAIRN_BOX || (read->start && read->count)) return CAIRN_OK;
    CAIRN_TRY(cairn_restore_tensor_find(restore, read->tensor, &info, err));
    if (info.dimension_count == 0) return CAIRN_OK;
    return cairn_fail(err, CAIRN_INVALID, "tensor %s: start and count of the box are missing",
                      cairn_short(read->tensor).text);
}

static enum cairn_code check_sizes(const struct cairn_read *reads, size_t count,
                                   const struct cairn_plan_pieces *plan,
                                   const struct cairn_client_target *targets,
                                   struct cairn_error *err) {
    for (size_t i = 0; i < count; i++) {
        const char *name = reads[i].shard ? reads[i].shard : reads[i].tensor;
        uint64_t bytes = cairn_client_target_bytes(&targets[i], plan->want_bytes[i]);
        if (reads[i].into_bytes != bytes)
            return cairn_fail(err, CAIRN_INVALID,
                              "%s: there is room for %" PRIu64 " bytes, it has %" PRIu64,
                              cairn_short(name).text, reads[i].into_bytes, bytes);
        if (reads[i].into_bytes && !reads[i].into)
            return cairn_fail(err, CAIRN_INVALID, "%s: nowhere to put it", cairn_short(name).text);
    }
    return CAIRN_OK;
}

/* Resolves the want's tensor (aliases followed) and plans its conversion. */
static enum cairn_code make_target(const struct cairn_restore *restore,
                                   const struct cairn_read *read,
                                   const struct cairn_plan_want *want,
                                   struct cairn_client_target *ret, struct cairn_error *err) {
    struct cairn_plan_fragments fragments = {0};
    uint32_t index = 0;
    *ret = (struct cairn_client_target){.plain = true};
    if (!read->into_dtype && !read->into_stride) return CAIRN_OK;
    if (!restore->has_layout) return CAIRN_OK; /* the plan reports it */
    CAIRN_TRY(cairn_plan_resolve(&restore->layout, want->tensor, &index, err));
    enum cairn_code code =
        cairn_plan_fragments_choose(&fragments, &restore->layout, index, want->local_rank, err);
    if (!code) code = cairn_client_target_make(&fragments.tensor, read, ret, err);
    cairn_plan_fragments_release(&fragments);
    return code ? cairn_within(err, code, "tensor %s", cairn_short(read->tensor).text) : CAIRN_OK;
}

static enum cairn_code plan_reads(struct cairn_restore *restore, const struct cairn_read *reads,
                                  size_t count, struct cairn_client_target *targets,
                                  struct cairn_plan_pieces *ret, struct cairn_error *err) {
    CAIRN_AUTO_HEAP struct cairn_plan_want *wants = calloc(count + 1, sizeof *wants);
    if (!wants) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the reads");
    for (size_t i = 0; i < count; i++) {
        CAIRN_TRY(make_want(restore, &reads[i], &wants[i], err));
        CAIRN_TRY(check_box(restore, &reads[i], err));
        CAIRN_TRY(make_target(restore, &reads[i], &wants[i], &targets[i], err));
    }
    CAIRN_TRY(cairn_plan_reads(&restore->manifest, restore->has_layout ? &restore->layout : NULL,
                               wants, count, ret, err));
    return check_sizes(reads, count, ret, targets, err);
}

/* ---- the caller's structs; regions ---- */

/* The rank's own listing, by bisection, or the first one of what is the same on all ranks. */
static enum cairn_code find_holder(struct cairn_restore *restore, const char *name, uint32_t rank,
                                   struct cairn_holder *ret, struct cairn_error *err) {
    struct cairn_tensor_info info;
    uint64_t cursor = 0;
    CAIRN_TRY(cairn_restore_holder_next(restore, name, &cursor, ret, err));
    CAIRN_TRY(cairn_restore_tensor_find(restore, name, &info, err));
    if (info.kind != CAIRN_LOCAL && info.kind != CAIRN_ALIAS) return CAIRN_OK;
    uint64_t low = 0, high = UINT32_MAX;
    while (low < high) {
        uint64_t middle = cursor = low + (high - low) / 2;
        struct cairn_holder at;
        if (cairn_restore_holder_next(restore, name, &cursor, &at, NULL) || at.rank > rank)
            high = middle;
        else
            low = middle + 1, *ret = at;
    }
    if (ret->rank == rank || info.kind == CAIRN_ALIAS) return CAIRN_OK;
    return cairn_fail(err, CAIRN_NOT_FOUND, "rank %u has no %s", rank, cairn_short(name).text);
}

/* Bytes of the region in the destination. */
static enum cairn_code region_bytes(const struct cairn_read *region, unsigned bits,
                                    unsigned dimensions, uint64_t *ret, struct cairn_error *err) {
    uint64_t total_bits = bits;
    bool empty = false, large = false;
    for (unsigned d = 0; d < dimensions; d++) {
        empty = empty || !region->count[d];
        large = large || (region->count[d] &&
                          cairn_mul_overflows(total_bits, region->count[d], &total_bits));
    }
    if (large && !empty)
        return cairn_fail(err, CAIRN_RANGE, "tensor %s: a region of too many elements",
                          cairn_short(region->tensor).text);
    if (!empty && total_bits % 8)
        return cairn_fail(err, CAIRN_UNSUPPORTED, "tensor %s: a region ends inside a byte",
                          cairn_short(region->tensor).text);
    *ret = empty ? 0 : total_bits / 8;
    return CAIRN_OK;
}

/* Makes a read of each region; they fill `into` one after the other. */
static enum cairn_code split_regions(struct cairn_restore *restore, const struct cairn_read *read,
                                     struct cairn_read *ret, struct cairn_error *err) {
    struct cairn_holder holder;
    unsigned dtype = 0;
    uint64_t done = 0, bytes = 0;
    bool formed = read->form == CAIRN_FLAT || read->form == CAIRN_BOX;
    if (!read->tensor || read->shard || !formed || !read->start || !read->count ||
        read->into_stride)
        return cairn_fail(err, CAIRN_INVALID,
                          "several regions are flat ranges or boxes of a tensor, with start and "
                          "count, and without strides");
    CAIRN_TRY(find_holder(restore, read->tensor, read->local_rank_of, &holder, err));
    unsigned places = read->form == CAIRN_FLAT ? 1 : holder.dimension_count;
    if (!cairn_dtype_parse(cairn_view_of(read->into_dtype ? read->into_dtype : holder.dtype),
                           &dtype))
        return cairn_fail(err, CAIRN_INVALID,
                          "unknown dtype %.16s; names are such as F32, BF16 or I64",
                          read->into_dtype);
    for (uint32_t i = 0; i < read->region_count; i++) {
        ret[i] = *read;
        ret[i].region_count = 0;
        ret[i].start += (size_t)i * places;
        ret[i].count += (size_t)i * places;
        CAIRN_TRY(region_bytes(&ret[i], cairn_dtype_bits(dtype), places, &bytes, err));
        if (bytes > read->into_bytes - done)
            return cairn_fail(err, CAIRN_INVALID,
                              "%s: there is room for %" PRIu64 " bytes, the regions have more",
                              cairn_short(read->tensor).text, read->into_bytes);
        ret[i].into = read->into ? (uint8_t *)read->into + done : NULL;
        ret[i].into_bytes = bytes;
        done += bytes;
    }
    if (done == read->into_bytes) return CAIRN_OK;
    return cairn_fail(err, CAIRN_INVALID,
                      "%s: there is room for %" PRIu64 " bytes, the regions have %" PRIu64,
                      cairn_short(read->tensor).text, read->into_bytes, done);
}

static bool is_absent(const struct cairn_restore *restore, const struct cairn_read *read) {
    uint32_t index;
    return read->optional && read->tensor && !read->shard &&
           !cairn_client_restore_find(restore, read->tensor, &index);
}

enum cairn_code cairn_client_reads_copy(struct cairn_restore *restore,
                                        const struct cairn_read *reads, size_t count,
                                        struct cairn_read **ret, size_t *ret_count,
                                        struct cairn_error *err) {
    const uint8_t *at = (const uint8_t *)reads;
    struct cairn_read own;
    size_t all = 0, done = 0;
    for (size_t i = 0; i < count; i++, at += reads->size) {
        CAIRN_TRY(cairn_client_options(at, &own, sizeof own, "read", err));
        if (memcmp(at, &reads->size, sizeof reads->size) != 0)
            return cairn_fail(err, CAIRN_INVALID,
                              "read %zu: its `size` is not that of the first read", i);
        all += own.region_count > 1 ? own.region_count : 1;
    }
    if (all > UINT32_MAX)
        return cairn_fail(err, CAIRN_TOO_LARGE, "%s at once", cairn_counted(all, "read").text);
    CAIRN_AUTO_HEAP struct cairn_read *made = calloc(all + 1, sizeof *made);
    if (!made) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the reads");
    at = (const uint8_t *)reads;
    for (size_t i = 0; i < count; i++, at += reads->size) {
        CAIRN_TRY(cairn_client_options(at, &own, sizeof own, "read", err));
        if (own.region_count > 1 && !is_absent(restore, &own)) {
            CAIRN_TRY(split_regions(restore, &own, made + done, err));
            done += own.region_count;
        } else {
            own.region_count = 0;
            made[done++] = own;
        }
    }
    *ret = CAIRN_TAKE(made);
    *ret_count = done;
    return CAIRN_OK;
}

/* Drops optional reads of absent tensors; returns how many reads remain. */
static size_t without_absent(const struct cairn_restore *restore, struct cairn_read *reads,
                             size_t count) {
    size_t left = 0;
    for (size_t i = 0; i < count; i++)
        if (!is_absent(restore, &reads[i])) reads[left++] = reads[i];
    return left;
}

static enum cairn_code read_planned(const struct cairn_client_reads *call,
                                    const struct cairn_read *reads, size_t count,
                                    struct cairn_error *err) {
    struct cairn_session *session = call->restore->session;
    CAIRN_AUTO(plan_pieces) planned = {0};
    CAIRN_AUTO_HEAP struct batch *batches = malloc(SLOTS * sizeof *batches);
    CAIRN_AUTO_HEAP struct cairn_client_target *targets = calloc(count + 1, sizeof *targets);
    if (!batches || !targets) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the reads");
    CAIRN_TRY(plan_reads(call->restore, reads, count, targets, &planned, err));
    if (planned.count) qsort(planned.pieces, planned.count, sizeof *planned.pieces, by_place);
    struct reading reading = {.call = call,
                              .restore = call->restore,
                              .session = session,
                              .reads = reads,
                              .targets = targets,
                              .pieces = planned.pieces,
                              .piece_count = planned.count,
                              .batches = batches,
                              .deadline_ms = call->deadline_ms};
    enum cairn_code code = begin_landing(session, reads, targets, count, &reading.landing, err);
    if (!code) code = read_all(&reading, err);
    end_landing(&reading.landing);
    CAIRN_TRY(code);
    return cairn_client_sound(session, err);
}

static enum cairn_code named(const struct cairn_restore *restore, enum cairn_code code,
                             struct cairn_error *err) {
    (void)cairn_within(err, code, "%s step %" PRIu64 " (%s)", restore->run,
                       restore->manifest.origin.step, restore->manifest.id.text);
    return cairn_client_restore_about(restore, code, err);
}

enum cairn_code cairn_client_reads_run(const struct cairn_client_reads *call,
                                       struct cairn_error *err) {
    const struct cairn_restore *restore = call->restore;
    if (call->count > UINT32_MAX)
        return cairn_fail(err, CAIRN_TOO_LARGE, "%s at once",
                          cairn_counted(call->count, "read").text);
    CAIRN_AUTO_HEAP struct cairn_read *own = calloc(call->count + 1, sizeof *own);
    if (!own) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the reads");
    if (call->count) memcpy(own, call->reads, call->count * sizeof *own);
    size_t count = without_absent(restore, own, call->count);
    enum cairn_code code = read_planned(call, own, count, err);
    return code ? named(restore, code, err) : CAIRN_OK;
}

enum cairn_code cairn_restore_read(struct cairn_restore *restore, const struct cairn_read *reads,
                                   size_t count, uint32_t timeout_ms, struct cairn_error *err) {
    if (!restore || (count && !reads))
        return cairn_fail(err, CAIRN_INVALID, "nothing to read from");
    CAIRN_TRY(cairn_client_restore_readable(restore, err));
    struct cairn_session *session = restore->session;
    CAIRN_CLIENT_CALL(session, err);
    CAIRN_AUTO_HEAP struct cairn_read *own = NULL;
    enum cairn_code code = cairn_client_reads_copy(restore, reads, count, &own, &count, err);
    if (code) return named(restore, code, err);
    const struct cairn_client_reads call = {.restore = restore,
                                            .reads = own,
                                            .count = count,
                                            .deadline_ms =
                                                cairn_client_deadline(session, timeout_ms)};
    return cairn_client_reads_run(&call, err);
}

/* ---- items of unknown sizes ---- */

struct item {
    struct cairn_view name;
    uint64_t bytes;
    bool absent;
};
struct items {
    struct item *all; /* owned */
    size_t count, capacity;
    uint64_t name_bytes, data_bytes;
};
static void items_release_at(struct items *items) {
    free(items->all);
}

static enum cairn_code add_item(struct items *items, const struct item *item,
                                struct cairn_error *err) {
    CAIRN_TRY(
        CAIRN_ARRAY_ROOM(items->all, items->count, items->capacity, UINT32_MAX, "items", err));
    items->all[items->count++] = *item;
    items->name_bytes += item->name.size + 1;
    if (cairn_add_overflows(items->data_bytes, item->bytes, &items->data_bytes))
        return cairn_fail(err, CAIRN_TOO_LARGE, "the items have too many bytes");
    return CAIRN_OK;
}

static bool is_item(const struct cairn_holder *holder) {
    bool bytes = !strcmp(holder->dtype, "ITEM") || !strcmp(holder->dtype, "U8");
    return bytes && holder->dimension_count == 1;
}

static enum cairn_code add_named(struct cairn_restore *restore,
                                 const struct cairn_items_options *options, struct items *items,
                                 struct cairn_error *err) {
    for (size_t i = 0; i < options->name_count; i++) {
        const char *name = options->names[i];
        struct cairn_holder holder;
        if (!name) return cairn_fail(err, CAIRN_INVALID, "name %zu is NULL", i);
        enum cairn_code code = find_holder(restore, name, options->local_rank_of, &holder, err);
        bool absent = code == CAIRN_NOT_FOUND && options->optional;
        if (code && !absent) return code;
        if (!absent && !is_item(&holder))
            return cairn_fail(err, CAIRN_INVALID, "%s is a tensor, and no item",
                              cairn_short(name).text);
        const struct item item = {cairn_view_of(name), absent ? 0 : holder.bytes, absent};
        CAIRN_TRY(add_item(items, &item, err));
    }
    return CAIRN_OK;
}

static enum cairn_code add_listed(struct cairn_restore *restore, uint32_t rank, struct items *items,
                                  struct cairn_error *err) {
    struct cairn_tensor_view view;
    enum cairn_code code;
    for (uint64_t cursor = 0; !(code = cairn_restore_next(restore, &cursor, &view, err));) {
        char name[CAIRN_TENSOR_NAME_BYTES_MAX + 1];
        struct cairn_holder holder;
        if (strcmp(view.dtype, "ITEM") != 0 || view.kind == CAIRN_ALIAS) continue;
        memcpy(name, view.name.data, view.name.bytes);
        name[view.name.bytes] = 0;
        if (find_holder(restore, name, rank, &holder, NULL)) continue; /* another rank's own */
        const struct item item = {{view.name.data, view.name.bytes}, holder.bytes, false};
        CAIRN_TRY(add_item(items, &item, err));
    }
    return code == CAIRN_NOT_FOUND ? CAIRN_OK : code;
}

/* One allocation: the list, the data, the names. */
static enum cairn_code make_list(const struct items *items, const struct cairn_items_options *with,
                                 struct cairn_item_read **ret, struct cairn_read *reads,
                                 size_t *ret_reads, struct cairn_error *err) {
    uint64_t most = with->bytes_max ? with->bytes_max : ITEM_BYTES_MAX;
    if (items->data_bytes > most || most > SIZE_MAX / 4)
        return cairn_fail(err, CAIRN_TOO_LARGE,
                          "the items have %" PRIu64 " bytes, at most %" PRIu64 " are taken",
                          items->data_bytes, most);
    size_t list_bytes = (items->count + 1) * sizeof(struct cairn_item_read);
    struct cairn_item_read *list =
        malloc(list_bytes + (size_t)(items->data_bytes + items->name_bytes));
    if (!list) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the items");
    uint8_t *data = (uint8_t *)list + list_bytes;
    char *name = (char *)data + items->data_bytes;
    *ret_reads = 0;
    for (size_t i = 0; i < items->count; i++) {
        const struct item *item = &items->all[i];
        memcpy(name, item->name.data, item->name.size);
        name[item->name.size] = 0;
        list[i] = (struct cairn_item_read){name, item->absent ? NULL : data, item->bytes};
        if (item->bytes)
            reads[(*ret_reads)++] = (struct cairn_read){.size = sizeof *reads,
                                                        .tensor = name,
                                                        .local_rank_of = with->local_rank_of,
                                                        .into = data,
                                                        .into_bytes = item->bytes};
        name += item->name.size + 1;
        data += item->bytes;
    }
    *ret = list;
    return CAIRN_OK;
}

static enum cairn_code read_items(struct cairn_restore *restore,
                                  const struct cairn_items_options *options, struct items *items,
                                  struct cairn_item_read **ret, struct cairn_error *err) {
    size_t count = 0;
    if (options->names)
        CAIRN_TRY(add_named(restore, options, items, err));
    else
        CAIRN_TRY(add_listed(restore, options->local_rank_of, items, err));
    CAIRN_AUTO_HEAP struct cairn_read *reads = calloc(items->count + 1, sizeof *reads);
    if (!reads) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the reads");
    CAIRN_TRY(make_list(items, options, ret, reads, &count, err));
    enum cairn_code code = cairn_restore_read(restore, reads, count, options->timeout_ms, err);
    if (code) free(*ret);
    return code;
}

enum cairn_code cairn_restore_items(struct cairn_restore *restore,
                                    const struct cairn_items_options *options,
                                    struct cairn_item_read **ret_list, size_t *ret_count,
                                    struct cairn_error *err) {
    struct cairn_items_options own;
    struct cairn_item_read *list = NULL;
    __attribute__((cleanup(items_release_at))) struct items items = {0};
    if (!restore) return cairn_fail(err, CAIRN_INVALID, "no restore");
    CAIRN_CLIENT_RET(ret_list, err);
    CAIRN_CLIENT_RET(ret_count, err);
    CAIRN_TRY(cairn_client_restore_readable(restore, err));
    CAIRN_TRY(CAIRN_CLIENT_OPTIONS(options, &own, err));
    if (own.name_count && !own.names)
        return cairn_fail(err, CAIRN_INVALID, "the names are missing");
    CAIRN_TRY(read_items(restore, &own, &items, &list, err));
    *ret_list = list;
    *ret_count = items.count;
    return CAIRN_OK;
}

void cairn_items_free(struct cairn_item_read *list) {
    free(list);
}
