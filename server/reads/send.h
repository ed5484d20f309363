/* SPDX-License-Identifier: Apache-2.0 */
/*
 * send: answers a GET or HEAD from a source, with conditions and a range; the read slots, which
 * bound how many reads hold memory, and the chunks, which are that memory.
 *
 * Why:     shard data, tensors and model files are answered by one rule (RFC 9110). Reads through
 *          the server are bounded in memory, not in number: more readers than slots take turns, and
 *          a stalled reader blocks no other (stream.h#3). Chunks are reused, since clearing fresh
 *          memory for each request of a restore cost the server a third of its time. Range
 *          arithmetic, a common source of faults, has one place (B06).
 * Promise: 1    If-Match, If-None-Match, then Range with If-Range, in this order; a range that
 *               cannot be served is CAIRN_RANGE with Content-Range: bytes *, a slash and the size.
 *          2    a request without a slot waits at most 20 s, then it is CAIRN_BUSY.
 *          B06  exactly one range, "bytes=a-b", "bytes=a-" or "bytes=-n"; several, an unservable
 *               and a malformed one are CAIRN_RANGE. Numbers are compared before they are added.
 *          3    no more slots are held at once than there are.
 *          4    a holder that lends its slot gets one back before newcomers, in order of want().
 *          5    got() is called exactly once for each want() that the owner does not take back by
 *               leave(), and never after leave() has returned.
 *          6    a returned chunk is freed if used and idle chunks would exceed the capacity.
 *          7    an idle chunk that was not needed between two looks is freed.
 * Limits:  one range a request; objects below 2^62 bytes, longer numbers count as "to the end". As
 *          many holders as settings say; connections bound the waiting. 16 idle chunks.
 * Threads: send: one pool thread; slots and chunks: any. The functions of a slot's owner are called
 *          with the lock of slots held, and may take and give chunks.
 * Next:    server/reads/stream.h, server/reads/source.h, common/memory.h.
 */
#pragma once

#include "server/http/request.h"
#include "server/reads/source.h"

/* tag: the ETag, with quotes; what: the kind of resource, for error messages. */
enum cairn_code srv_send(struct srv_request *request, struct srv_reply *reply,
                         struct srv_source *take_source, const char *what, const char *tag,
                         struct cairn_error *err) CAIRN_MUST_USE;

/* ---- ranges ---- */

/* *ret_begin and *ret_end: half open, within an object of size bytes. */
enum cairn_code srv_range_parse(const char *text, uint64_t size, uint64_t *ret_begin,
                                uint64_t *ret_end, struct cairn_error *err) CAIRN_MUST_USE;

/* ---- slots ---- */

struct srv_read_slot {
    /* Another reader needs the slot: an owner that can pause frees its memory and returns true. */
    bool (*lend)(struct srv_read_slot *slot);
    void (*got)(struct srv_read_slot *slot); /* after want(): the slot is held again */
    struct srv_read_slot *next, **at;        /* links of the lists in send.c */
    bool held;
};

enum cairn_code srv_read_slots_new(size_t capacity, struct srv_read_slots **ret,
                                   struct cairn_error *err) CAIRN_MUST_USE;
void srv_read_slots_free(struct srv_read_slots *slots); /* NULL is fine; none is held */
/* For a new reader: false when all slots are held and none is lent, or other readers wait. */
bool srv_read_slots_take(struct srv_read_slots *slots, struct srv_read_slot *slot) CAIRN_MUST_USE;
/* For an owner that has lent its slot: true when it still holds it, else got() is called. */
bool srv_read_slots_want(struct srv_read_slots *slots, struct srv_read_slot *slot) CAIRN_MUST_USE;
/* To be called periodically: time alone makes holders able to lend. */
void srv_read_slots_look(struct srv_read_slots *slots);
/* The owner ends, whether its slot is held, lent or wanted. */
void srv_read_slots_leave(struct srv_read_slots *slots, struct srv_read_slot *slot);

/* ---- chunks ---- */

enum cairn_code srv_chunks_new(size_t bytes, size_t capacity, struct srv_chunks **ret,
                               struct cairn_error *err) CAIRN_MUST_USE;
void srv_chunks_free(struct srv_chunks *chunks); /* NULL is fine; none is in use */
/* NULL: no memory. A chunk is not zeroed: it holds bytes of an earlier read. */
void *srv_chunks_take(struct srv_chunks *chunks) CAIRN_MUST_USE;
void srv_chunks_give(struct srv_chunks *chunks, void *data);
/* To be called periodically: frees chunks that stayed idle since the last call. */
void srv_chunks_look(struct srv_chunks *chunks);
size_t srv_chunks_idle(struct srv_chunks *chunks);
