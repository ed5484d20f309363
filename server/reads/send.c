/* SPDX-License-Identifier: Apache-2.0 */
/* Conditions and range of an answer, read slots and chunks; see send.h. */
#include "server/reads/send.h"

#include <inttypes.h>
#include <stdlib.h>
#include <strings.h>

#include "common/memory.h"
#include "server/http/waiters.h"
#include "server/reads/stream.h"

#define SLOT_WAIT_MS 20000
#define LOOK_AGAIN_MS 500
#define WHOLE_BYTES_MAX (16 * CAIRN_KIB) /* a plain reply costs less than a stream's steps */

/* ---- the byte range of a request (B06) ---- */

/* Reads digits at *at; values above 2^64-1 become 2^64-1. False: none. */
static bool digits(const char **at, uint64_t *ret) {
    uint64_t value = 0;
    const char *from = *at;
    for (; **at >= '0' && **at <= '9'; (*at)++) {
        uint64_t digit = (uint64_t)(**at - '0');
        if (cairn_mul_overflows(value, UINT64_C(10), &value) ||
            cairn_add_overflows(value, digit, &value)) {
            while (**at >= '0' && **at <= '9') (*at)++;
            *ret = UINT64_MAX;
            return true;
        }
    }
    *ret = value;
    return *at > from;
}

enum cairn_code srv_range_parse(const char *text, uint64_t size, uint64_t *ret_begin,
                                uint64_t *ret_end, struct cairn_error *err) {
    static const char unit[] = "bytes=";
    const char *at = text + sizeof(unit) - 1;
    if (strncasecmp(text, unit, sizeof(unit) - 1))
        return cairn_fail(err, CAIRN_RANGE, "Range must be bytes=FIRST-LAST");
    uint64_t first = 0, last = 0;
    bool has_first = digits(&at, &first);
    if (*at++ != '-') return cairn_fail(err, CAIRN_RANGE, "Range must be bytes=FIRST-LAST");
    bool has_last = digits(&at, &last);
    if (*at || (!has_first && !has_last))
        return cairn_fail(err, CAIRN_RANGE, "Range must be bytes=FIRST-LAST");
    if (!has_first) {
        if (!last || !size)
            return cairn_fail(err, CAIRN_RANGE, "the last 0 bytes cannot be served");
        *ret_begin = last < size ? size - last : 0;
        *ret_end = size;
        return CAIRN_OK;
    }
    if (first >= size || (has_last && last < first))
        return cairn_fail(err, CAIRN_RANGE, "the object has %" PRIu64 " bytes", size);
    *ret_begin = first;
    *ret_end = has_last && last < size ? last + 1 : size;
    return CAIRN_OK;
}

/* ---- the answer ---- */

struct send {
    struct srv_request *request;
    struct srv_reply *reply;
    struct srv_source *source;
    const char *what, *tag;
    uint64_t begin, end;
};

/* In the order of RFC 9110, 13.2.2. */
static enum cairn_code judge_conditions(struct send *send, bool *ret_done,
                                        struct cairn_error *err) {
    const struct srv_request *request = send->request;
    uint64_t size = send->source->size_bytes;
    *ret_done = false;
    send->begin = 0;
    send->end = size;
    send->reply->status = 200;
    if (request->if_match[0] && !srv_tag_listed(request->if_match, send->tag, false))
        return cairn_fail(err, CAIRN_PRECONDITION, "the %s's ETag is %s", send->what, send->tag);
    if (srv_tag_listed(request->if_none_match, send->tag, true)) {
        send->reply->status = 304;
        *ret_done = true;
        return CAIRN_OK;
    }
    /* Ranges of an unknown unit, and several ranges, are ignored (RFC 9110, 14.2). */
    if (strncasecmp(request->range, "bytes=", 6) != 0 || strchr(request->range, ',') ||
        (request->if_range[0] && strcmp(request->if_range, send->tag)))
        return CAIRN_OK;
    enum cairn_code code = srv_range_parse(request->range, size, &send->begin, &send->end, err);
    if (code) {
        srv_reply_header(send->reply, "Content-Range", "bytes */%" PRIu64, size);
        return code;
    }
    send->reply->status = 206;
    srv_reply_header(send->reply, "Content-Range", "bytes %" PRIu64 "-%" PRIu64 "/%" PRIu64,
                     send->begin, send->end - 1, size);
    return CAIRN_OK;
}

/* Parks a request without a slot (stream.h#3) for up to 20 s, then *err stays as the caller set it.
 * Only time makes a reader count as stalled, so it looks again every 500 ms. */
static enum cairn_code wait_for_slot(struct send *send, struct cairn_error *err) {
    const struct srv_request *request = send->request;
    uint64_t now_ms = srv_mono_ms(request->server);
    uint64_t until_ms = request->arrived_ms + SLOT_WAIT_MS;
    if (now_ms >= until_ms) return CAIRN_BUSY;
    if (err) *err = (struct cairn_error){0};
    send->reply->park = true;
    send->reply->park_key = srv_key_of(SRV_STREAMS_KEY);
    send->reply->park_until_ms = cairn_min_u64(now_ms + LOOK_AGAIN_MS, until_ms);
    return CAIRN_OK;
}

/* Sends small files without a stream, since a model's folder may have thousands. */
static void send_whole(struct srv_reply *reply) {
    if (reply->flow.size_bytes > WHOLE_BYTES_MAX) return;
    reply->body.limit = WHOLE_BYTES_MAX;
    if (!srv_stream_whole(reply->flow.owner, &reply->body)) return;
    reply->flow.free(reply->flow.owner);
    reply->flow = (struct srv_flow){0};
}

static enum cairn_code send_bytes(struct send *send, struct cairn_error *err) {
    struct srv_request *request = send->request;
    bool done = false;
    CAIRN_TRY(judge_conditions(send, &done, err));
    send->reply->content_type = "application/octet-stream";
    srv_reply_header(send->reply, "ETag", "%s", send->tag);
    srv_reply_header(send->reply, "Accept-Ranges", "bytes");
    srv_reply_cached(request, send->reply);
    if (done || send->begin == send->end) return CAIRN_OK;
    if (request->head_only) {
        send->reply->head_bytes = send->end - send->begin;
        return CAIRN_OK;
    }
    struct srv_stream_options options = {.server = request->server,
                                         .worker = request->store,
                                         .take_source = CAIRN_TAKE(send->source),
                                         .begin = send->begin,
                                         .end = send->end};
    enum cairn_code code = srv_stream_open(&options, &send->reply->flow, err);
    /* A problem answer must not carry the headers of the bytes. */
    if (code) send->reply->header_count = 0;
    if (!code) send_whole(send->reply);
    return code == CAIRN_BUSY ? wait_for_slot(send, err) : code;
}

enum cairn_code srv_send(struct srv_request *request, struct srv_reply *reply,
                         struct srv_source *take_source, const char *what, const char *tag,
                         struct cairn_error *err) {
    struct send send = {
        .request = request, .reply = reply, .source = take_source, .what = what, .tag = tag};
    enum cairn_code code = send_bytes(&send, err);
    srv_source_free(send.source);
    return code;
}

/* ---- slots ---- */

/* Under one lock: holders, newest first, and owners that want a slot back, oldest first. */
struct srv_read_slots {
    struct cairn_lock lock;
    size_t capacity;
    struct {
        size_t held;
        struct srv_read_slot *holders;
        struct srv_read_slot *waiting, **waiting_end;
    } locked;
};

enum cairn_code srv_read_slots_new(size_t capacity, struct srv_read_slots **ret,
                                   struct cairn_error *err) {
    struct srv_read_slots *slots = calloc(1, sizeof(*slots));
    if (!slots) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the slots of reads");
    cairn_lock_init(&slots->lock, CAIRN_LOCK_server_read_slots);
    slots->capacity = capacity;
    slots->locked.waiting_end = &slots->locked.waiting;
    *ret = slots;
    return CAIRN_OK;
}

void srv_read_slots_free(struct srv_read_slots *slots) {
    if (!slots) return;
    CAIRN_ASSERT(!slots->locked.held);
    CAIRN_ASSERT(!slots->locked.waiting);
    cairn_lock_release(&slots->lock);
    free(slots);
}

/* ---- functions that need the lock ---- */

static void take_out(struct srv_read_slots *slots, struct srv_read_slot *slot) {
    if (!slot->at) return; /* it has lent its slot and wants none yet */
    if (slots->locked.waiting_end == &slot->next) slots->locked.waiting_end = slot->at;
    *slot->at = slot->next;
    if (slot->next) slot->next->at = slot->at;
    slot->next = NULL;
    slot->at = NULL;
}

static void hold(struct srv_read_slots *slots, struct srv_read_slot *slot) {
    CAIRN_ASSERT(slots->locked.held < slots->capacity); /* server/reads/send.h#3 */
    slots->locked.held++;
    slot->held = true;
    slot->next = slots->locked.holders;
    slot->at = &slots->locked.holders;
    if (slot->next) slot->next->at = &slot->next;
    slots->locked.holders = slot;
}

static void let_go(struct srv_read_slots *slots, struct srv_read_slot *slot) {
    take_out(slots, slot);
    slots->locked.held -= slot->held;
    slot->held = false;
}

static bool borrow(struct srv_read_slots *slots) {
    for (struct srv_read_slot *one = slots->locked.holders; one; one = one->next) {
        if (!one->lend(one)) continue;
        let_go(slots, one);
        return true;
    }
    return false;
}

/* server/reads/send.h#4: owners that want a slot back come first. */
static void serve_waiting(struct srv_read_slots *slots) {
    for (struct srv_read_slot *first; (first = slots->locked.waiting);) {
        if (slots->locked.held == slots->capacity && !borrow(slots)) return;
        take_out(slots, first);
        hold(slots, first);
        first->got(first);
    }
}

/* ---- public functions of slots ---- */

bool srv_read_slots_take(struct srv_read_slots *slots, struct srv_read_slot *slot) {
    CAIRN_HOLD(&slots->lock);
    serve_waiting(slots);
    if (slots->locked.waiting) return false;
    if (slots->locked.held == slots->capacity && !borrow(slots)) return false;
    hold(slots, slot);
    return true;
}

bool srv_read_slots_want(struct srv_read_slots *slots, struct srv_read_slot *slot) {
    CAIRN_HOLD(&slots->lock);
    if (slot->held) return true; /* the slot was never lent */
    CAIRN_ASSERT(!slot->at);
    slot->at = slots->locked.waiting_end;
    *slots->locked.waiting_end = slot;
    slots->locked.waiting_end = &slot->next;
    serve_waiting(slots);
    return false;
}

void srv_read_slots_look(struct srv_read_slots *slots) {
    CAIRN_HOLD(&slots->lock);
    serve_waiting(slots);
}

void srv_read_slots_leave(struct srv_read_slots *slots, struct srv_read_slot *slot) {
    CAIRN_HOLD(&slots->lock);
    let_go(slots, slot);
    serve_waiting(slots);
}

/* ---- chunks ---- */

/* A stack of idle chunks: the last one given back is still in the CPU's cache. */
#define IDLE_MAX 16

struct srv_chunks {
    struct cairn_lock lock;
    size_t bytes, capacity;
    struct {
        size_t used, idle_count;
        size_t spare; /* the least idle_count since the last look */
        void *idle[IDLE_MAX];
    } locked;
};

enum cairn_code srv_chunks_new(size_t bytes, size_t capacity, struct srv_chunks **ret,
                               struct cairn_error *err) {
    struct srv_chunks *chunks = calloc(1, sizeof(*chunks));
    if (!chunks) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the chunks of reads");
    cairn_lock_init(&chunks->lock, CAIRN_LOCK_server_chunks);
    chunks->bytes = bytes;
    chunks->capacity = capacity;
    *ret = chunks;
    return CAIRN_OK;
}

/* An idle chunk, or NULL; needs the lock. */
static void *pop(struct srv_chunks *chunks) {
    size_t count = chunks->locked.idle_count;
    if (!count) return NULL;
    chunks->locked.idle_count = count - 1;
    chunks->locked.spare = cairn_min_u64(chunks->locked.spare, count - 1);
    return chunks->locked.idle[count - 1];
}

void srv_chunks_free(struct srv_chunks *chunks) {
    if (!chunks) return;
    CAIRN_ASSERT(!chunks->locked.used);
    for (void *data; (data = pop(chunks));) cairn_pages_unmap(data, chunks->bytes);
    cairn_lock_release(&chunks->lock);
    free(chunks);
}

void *srv_chunks_take(struct srv_chunks *chunks) {
    cairn_lock_take(&chunks->lock);
    void *data = pop(chunks);
    chunks->locked.used++;
    cairn_lock_give(&chunks->lock);
    if (data) return data;
    data = cairn_pages_map(chunks->bytes);
    if (data) return data;
    CAIRN_HOLD(&chunks->lock);
    chunks->locked.used--;
    return NULL;
}

void srv_chunks_give(struct srv_chunks *chunks, void *data) {
    if (!data) return;
    cairn_lock_take(&chunks->lock);
    chunks->locked.used--;
    bool keep = chunks->locked.idle_count < IDLE_MAX &&
                chunks->locked.used + chunks->locked.idle_count < chunks->capacity;
    if (keep) chunks->locked.idle[chunks->locked.idle_count++] = data;
    cairn_lock_give(&chunks->lock);
    if (!keep) cairn_pages_unmap(data, chunks->bytes);
}

void srv_chunks_look(struct srv_chunks *chunks) {
    void *spare[IDLE_MAX];
    size_t count = 0;
    {
        CAIRN_HOLD(&chunks->lock);
        for (size_t left = chunks->locked.spare; left; left--) spare[count++] = pop(chunks);
        chunks->locked.spare = chunks->locked.idle_count;
    }
    while (count) cairn_pages_unmap(spare[--count], chunks->bytes);
}

size_t srv_chunks_idle(struct srv_chunks *chunks) {
    CAIRN_HOLD(&chunks->lock);
    return chunks->locked.idle_count;
}
