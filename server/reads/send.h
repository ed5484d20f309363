/* SPDX-License-Identifier: Apache-2.0 */
/*
 * send: bytes of a source as the answer to a GET or HEAD, with its conditions and its range; which
 *       reads may hold memory now, and the memory itself.
 *
 * Why:     a shard's data, a tensor's and a model file's are answered by one rule (RFC 9110), and
 *          wait for the same slots. Reads through the server are bounded in memory, not in number:
 *          more readers than slots take turns, and one that takes nothing keeps no other out
 *          (stream.h#3). A restore through the server is one request after another: memory that
 *          each of them takes from the kernel and gives back is cleared each time, which cost the
 *          server a third of its time. Every server that got Range wrong got it wrong in arithmetic
 *          (B06).
 * Promise: 1    If-Match, If-None-Match, then Range with If-Range, in this order; a range that
 *               cannot be served is CAIRN_RANGE with Content-Range: bytes *, a slash and the size.
 *          2    a request that finds no slot waits for at most 20 s, then it is CAIRN_BUSY.
 *          B06  exactly one range, "bytes=a-b", "bytes=a-" or "bytes=-n"; several, none that can be
 *               served, and every malformed one are CAIRN_RANGE. Nothing is added before it was
 *               compared.
 *          3    no more slots are held at once than there are.
 *          4    a holder that lends its slot gets one back, in the order of want(), before any
 *               newcomer does.
 *          5    got() is called exactly once for each want() that the owner does not take back by
 *               leave(), and never after leave() has returned.
 *          6    chunks in use and idle ones together are never more than the capacity because of an
 *               idle one: what is given back beyond it goes to the system.
 *          7    an idle chunk that was not needed between two looks goes to the system, so a server
 *               that serves nothing holds none.
 * Limits:  one range a request; objects below 2^62 bytes, longer digit strings count as "to the
 *          end". As many holders as settings say; those that wait are bounded by connections. 16
 *          idle chunks.
 * Threads: send: one pool thread; slots and chunks: any. The functions of a slot's owner are called
 *          with the lock of slots held, and may take and give chunks.
 * Next:    server/reads/stream.h, server/reads/source.h, common/memory.h.
 */
#pragma once

#include "server/http/request.h"
#include "server/reads/source.h"

/* tag: its ETag, with quotes; what: what it is of, for people. */
enum cairn_code cairn_srv_send(struct cairn_srv_request *request, struct cairn_srv_reply *reply,
                               struct cairn_srv_source *take_source, const char *what,
                               const char *tag, struct cairn_error *err) CAIRN_MUST_USE;

/* ---- ranges ---- */

/* [*ret_begin, *ret_end) of an object of size bytes. */
enum cairn_code cairn_srv_range_parse(const char *text, uint64_t size, uint64_t *ret_begin,
                                      uint64_t *ret_end, struct cairn_error *err) CAIRN_MUST_USE;

/* ---- slots ---- */

struct cairn_srv_read_slots;
struct cairn_srv_read_slot {
    /* Another reader needs it: an owner that can do without for now frees its memory and returns
     * true. */
    bool (*lend)(struct cairn_srv_read_slot *slot);
    void (*got)(struct cairn_srv_read_slot *slot); /* after want(): it is held again */
    struct cairn_srv_read_slot *next, **at;        /* of read_slots.c */
    bool held;
};

enum cairn_code cairn_srv_read_slots_new(size_t capacity, struct cairn_srv_read_slots **ret,
                                         struct cairn_error *err) CAIRN_MUST_USE;
void cairn_srv_read_slots_free(struct cairn_srv_read_slots *slots); /* NULL is fine; none is held */
/* A newcomer's: false when all are held and no holder lends one, or others wait already. */
bool cairn_srv_read_slots_take(struct cairn_srv_read_slots *slots,
                               struct cairn_srv_read_slot *slot) CAIRN_MUST_USE;
/* An owner that has lent its slot needs one again: true when it was not lent after all; otherwise
 * got() is called, now or later. */
bool cairn_srv_read_slots_want(struct cairn_srv_read_slots *slots,
                               struct cairn_srv_read_slot *slot) CAIRN_MUST_USE;
/* To be called now and then: holders become able to lend by time alone. */
void cairn_srv_read_slots_look(struct cairn_srv_read_slots *slots);
/* The owner ends, whether it holds a slot, has lent it or waits for one. */
void cairn_srv_read_slots_leave(struct cairn_srv_read_slots *slots,
                                struct cairn_srv_read_slot *slot);

/* ---- chunks ---- */

struct cairn_srv_chunks;
enum cairn_code cairn_srv_chunks_new(size_t bytes, size_t capacity, struct cairn_srv_chunks **ret,
                                     struct cairn_error *err) CAIRN_MUST_USE;
void cairn_srv_chunks_free(struct cairn_srv_chunks *chunks); /* NULL is fine; none is in use */
/* NULL: no memory. What it holds is not zeros but what another read has left. */
void *cairn_srv_chunks_take(struct cairn_srv_chunks *chunks) CAIRN_MUST_USE;
void cairn_srv_chunks_give(struct cairn_srv_chunks *chunks, void *data);
/* To be called now and then. */
void cairn_srv_chunks_look(struct cairn_srv_chunks *chunks);
/* For tests and whoever asks: how many lie idle. */
size_t cairn_srv_chunks_idle(struct cairn_srv_chunks *chunks);
