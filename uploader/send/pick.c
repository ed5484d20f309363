/* SPDX-License-Identifier: Apache-2.0 */
/* What to send next: the oldest shard first, as long as the store takes more, then the next shard.
 * Then the journal (one append for the batch), then the store. */
#include <stdlib.h>

#include "api/wire/messages.h"
#include "common/hooks.h"
#include "uploader/journal/format.h"
#include "uploader/saves/save.h"
#include "uploader/send/inside.h"

#define BATCH_MAX 512 /* requests that share one fsync */

/* How many more requests this worker may start. */
struct room {
    uint32_t large, small, all;
};

void cairn_up_sending_free(struct cairn_up_sending *sending) {
    free(sending->parts);
    free(sending);
}

/* ---- choosing, with the lock held ---- */

static bool is_body(enum cairn_multipart_kind kind) {
    return kind == CAIRN_MULTIPART_PUT || kind == CAIRN_MULTIPART_PART;
}

/* Ensures that a file's bytes are in a buffer; false: still being read, or no buffer is free. */
static bool take_buffer(struct cairn_up_sender *sender, struct cairn_up_shard *shard,
                        const struct cairn_multipart_action *action,
                        struct cairn_up_sending *sending) {
    uint32_t part = action->kind == CAIRN_MULTIPART_PUT ? 1 : action->part_number;
    if (!shard->is_file || !shard->size_bytes) return true;
    CAIRN_ASSERT(!sending->buffer);
    if (shard->queue.filled && shard->queue.filled_part == part) {
        sending->buffer = shard->queue.filled;
        sending->bytes = shard->queue.filled_bytes;
        shard->queue.filled = NULL;
        return true;
    }
    if (shard->queue.filled)
        cairn_up_pool_give(&sender->send->queue->pool, CAIRN_TAKE(shard->queue.filled));
    (void)cairn_up_fill_begin(sender->send, shard, part, true);
    return false;
}

static bool take_parts(const struct cairn_up_shard *shard,
                       const struct cairn_multipart_action *action,
                       struct cairn_up_sending *sending) {
    const struct cairn_multipart *mp = &shard->queue.mp;
    if (action->kind != CAIRN_MULTIPART_COMPLETE && action->kind != CAIRN_MULTIPART_LIST_PARTS)
        return true;
    sending->parts = calloc(mp->part_count + 1, sizeof(*sending->parts));
    if (!sending->parts) return false;
    CAIRN_ASSERT(action->kind != CAIRN_MULTIPART_COMPLETE || mp->parts_acked == mp->part_count);
    for (uint32_t i = 0; action->kind == CAIRN_MULTIPART_COMPLETE && i < mp->part_count; i++)
        sending->parts[i] = mp->parts[i].sent;
    sending->request.parts = sending->parts;
    sending->request.part_count = mp->part_count;
    return true;
}

/* One read-back per sender; false: another is in progress. */
static bool take_read(struct cairn_up_sender *sender, const struct cairn_multipart_action *action,
                      struct cairn_up_sending *sending) {
    if (action->kind != CAIRN_MULTIPART_READ) return true;
    if (sender->reading) return false;
    if (!sender->read_buffer) sender->read_buffer = malloc(CAIRN_MULTIPART_READ_BYTES);
    if (!sender->read_buffer) return false;
    sender->reading = true;
    sending->read_into = sender->read_buffer;
    return true;
}

static enum cairn_store_op op_of(enum cairn_multipart_kind kind) {
    static const struct {
        bool is_request;
        enum cairn_store_op op;
    } ops[] = {[CAIRN_MULTIPART_PUT] = {true, CAIRN_STORE_PUT},
               [CAIRN_MULTIPART_CREATE] = {true, CAIRN_STORE_UPLOAD_CREATE},
               [CAIRN_MULTIPART_PART] = {true, CAIRN_STORE_UPLOAD_PART},
               [CAIRN_MULTIPART_COMPLETE] = {true, CAIRN_STORE_UPLOAD_COMPLETE},
               [CAIRN_MULTIPART_HEAD] = {true, CAIRN_STORE_HEAD},
               [CAIRN_MULTIPART_LIST_PARTS] = {true, CAIRN_STORE_UPLOAD_PARTS},
               [CAIRN_MULTIPART_READ] = {true, CAIRN_STORE_GET},
               [CAIRN_MULTIPART_ABORT] = {true, CAIRN_STORE_UPLOAD_ABORT}};
    CAIRN_ASSERT((size_t)kind < CAIRN_COUNT(ops));
    CAIRN_ASSERT(ops[kind].is_request);
    return ops[kind].op;
}

static void request_done(struct cairn_store_request *request) {
    struct cairn_up_sending *sending = request->owner;
    sending->finished = true;
}

static void fill_request(struct cairn_up_sending *sending) {
    const struct cairn_up_shard *shard = sending->shard;
    const struct cairn_multipart *mp = &shard->queue.mp;
    const struct cairn_multipart_action *action = &sending->action;
    struct cairn_store_request *request = &sending->request;
    request->op = op_of(action->kind);
    request->key = shard->key;
    request->token = mp->token;
    request->upload_id_in = mp->upload_id;
    request->part_number = action->part_number;
    request->done = request_done;
    request->owner = sending;
    request->create =
        action->kind == CAIRN_MULTIPART_PUT || action->kind == CAIRN_MULTIPART_COMPLETE;
    request->has_crc32c = is_body(action->kind) || action->kind == CAIRN_MULTIPART_COMPLETE;
    request->crc32c = action->kind == CAIRN_MULTIPART_PART ? action->crc32c : mp->crc32c;
    request->offset = action->offset;
    bool of_action =
        action->kind == CAIRN_MULTIPART_LIST_PARTS || action->kind == CAIRN_MULTIPART_READ;
    request->length = of_action ? action->length : shard->size_bytes;
    request->into = sending->read_into;
    request->wants_crc32c = action->kind == CAIRN_MULTIPART_READ;
    sending->carries = is_body(action->kind);
    request->settles = sending->carries;
    if (!sending->carries) return;
    CAIRN_ASSERT(shard->queue.upload != CAIRN_UP_UPLOAD_ENDING); /* Q20 */
    CAIRN_ASSERT(action->offset + action->length <= mp->ready_bytes);
    CAIRN_ASSERT(!action->length || sending->buffer || shard->queue.data);
    CAIRN_ASSERT(!sending->buffer || !shard->queue.data);
    const uint8_t *data = sending->buffer     ? sending->bytes
                          : shard->queue.data ? shard->queue.data + action->offset
                                              : (const uint8_t *)"";
    request->body = (struct cairn_view){data, (size_t)action->length};
    request->length = action->length;
}

/* Flags may precede the journal's record, since a shard never has a second CREATE, PUT or COMPLETE
 * in flight; if the record fails, so does the shard. */
static void mark_notes(struct cairn_up_sending *sending) {
    struct cairn_up_shard *shard = sending->shard;
    enum cairn_multipart_kind kind = sending->action.kind;
    bool begins = kind == CAIRN_MULTIPART_CREATE || kind == CAIRN_MULTIPART_PUT;
    bool settles = kind == CAIRN_MULTIPART_COMPLETE || kind == CAIRN_MULTIPART_PUT;
    sending->notes_intent = begins && !shard->queue.intent_journaled;
    sending->notes_blocks = settles && !shard->queue.blocks_journaled;
    shard->queue.intent_journaled |= begins;
    shard->queue.blocks_journaled |= settles;
}

/* Makes a request of an action; false: the action was returned to the shard. */
static bool make_sending(struct cairn_up_sender *sender, struct cairn_up_shard *shard,
                         const struct cairn_multipart_action *action,
                         struct cairn_up_sending ***tail) {
    struct cairn_up_sending *sending = calloc(1, sizeof(*sending));
    if (!sending || (is_body(action->kind) && !take_buffer(sender, shard, action, sending)) ||
        !take_parts(shard, action, sending) || !take_read(sender, action, sending)) {
        if (sending) cairn_up_sending_free(sending);
        cairn_multipart_unsent(&shard->queue.mp, action);
        return false;
    }
    sending->action = *action;
    sending->shard = shard;
    sending->sender = sender;
    sending->small = cairn_up_send_is_small(sender->send, shard);
    fill_request(sending);
    mark_notes(sending);
    shard->queue.in_flight++;
    if (sending->carries) cairn_up_queue_body_begins(sender->send->queue, shard);
    CAIRN_ASSERT(shard->queue.bodies_in_flight <= shard->queue.in_flight);
    **tail = sending;
    *tail = &sending->next;
    return true;
}

static bool take_end(struct cairn_up_sender *sender, struct cairn_up_shard *shard,
                     const struct cairn_multipart_action *action, struct cairn_up_sending ***tail) {
    struct cairn_up_sending *sending = calloc(1, sizeof(*sending));
    if (!sending) return false; /* the machine returns the action again */
    sending->action = *action;
    sending->shard = shard;
    sending->sender = sender;
    CAIRN_ASSERT(!shard->queue.bodies_in_flight);
    CAIRN_ASSERT(!shard->queue.filling); /* a reader would write into its buffer */
    (void)cairn_up_upload_state_move(&shard->queue.upload, action->kind == CAIRN_MULTIPART_DURABLE
                                                               ? CAIRN_UP_UPLOAD_EVENT_STORED
                                                               : CAIRN_UP_UPLOAD_EVENT_FAILED);
    shard->queue.in_flight++; /* until the save knows the result */
    if (shard->queue.filled)
        cairn_up_pool_give(&sender->send->queue->pool, CAIRN_TAKE(shard->queue.filled));
    cairn_up_queue_remove(sender->send->queue, shard);
    **tail = sending;
    *tail = &sending->next;
    return true;
}

static void want_source(struct cairn_up_sender *sender, struct cairn_up_shard *shard) {
    enum cairn_up_source_wait wait = shard->queue.source_wait;
    shard->queue.needs_source = true;
    if (wait == CAIRN_UP_SOURCE_FOREVER) return;
    if (wait == CAIRN_UP_SOURCE_OFFERED && !sender->send->queue->locked.offers_over) return;
    struct cairn_error why = {0};
    cairn_fail(&why, CAIRN_SOURCE_GONE, "%s",
               wait == CAIRN_UP_SOURCE_GIVEN_BACK
                   ? "it was durable, is not in the store any more, and its memory was given back"
                   : "the uploader restarted and nobody brought its bytes again");
    cairn_up_shard_give_up_locked(sender->send->queue, shard, &why);
}

static bool is_ending(const struct cairn_up_shard *shard) {
    return shard->queue.upload == CAIRN_UP_UPLOAD_ENDING;
}

bool cairn_up_send_is_small(const struct cairn_up_send *send, const struct cairn_up_shard *shard) {
    return cairn_store_profile(send->up->store)->together_max &&
           shard->size_bytes <= CAIRN_STORE_SMALL_BYTES;
}

/* Picks all requests that this shard can send now. */
static void pick_shard(struct cairn_up_sender *sender, struct cairn_up_shard *shard,
                       struct room *room, struct cairn_up_sending ***tail) {
    uint32_t *of_kind = cairn_up_send_is_small(sender->send, shard) ? &room->small : &room->large;
    for (;;) {
        struct cairn_multipart_action action = {0};
        cairn_multipart_next(&shard->queue.mp, &action);
        switch (action.kind) {
        case CAIRN_MULTIPART_DURABLE:
        case CAIRN_MULTIPART_FAILED:
            if (!shard->queue.filling && take_end(sender, shard, &action, tail)) room->all--;
            return;
        case CAIRN_MULTIPART_WAIT:
            if (shard->is_file && !is_ending(shard) && !shard->queue.filled &&
                shard->queue.mp.ready_bytes < shard->size_bytes)
                (void)cairn_up_fill_begin(sender->send, shard, 0, false);
            return;
        case CAIRN_MULTIPART_NEED_SOURCE:
            if (is_ending(shard)) return;
            want_source(sender, shard);
            if (!is_ending(shard)) return;
            break;
        default:
            if (!*of_kind || !room->all) {
                cairn_multipart_unsent(&shard->queue.mp, &action);
                return;
            }
            if (!make_sending(sender, shard, &action, tail)) return;
            --*of_kind;
            room->all--;
        }
    }
}

static uint32_t room_of(uint32_t most, uint32_t taken) {
    return most > taken ? most - taken : 0;
}

struct cairn_up_sending *cairn_up_send_pick(struct cairn_up_sender *sender,
                                            uint64_t *ret_again_ms) {
    struct cairn_up_send *send = sender->send;
    struct cairn_up_sending *first = NULL, **tail = &first;
    uint64_t now_ms = cairn_mono_ms();
    if (cairn_up_send_holds(send, now_ms, ret_again_ms)) return NULL;
    uint32_t small = sender->flying_small;
    struct room room = {
        .large = room_of(cairn_store_appetite(sender->store), sender->flying_count - small),
        .small = room_of(cairn_store_profile(send->up->store)->together_max, small),
        .all = BATCH_MAX};
    bool any = room.large || room.small;
    for (struct cairn_up_shard *shard = send->queue->locked.first, *next;
         shard && room.all && (room.large || room.small); shard = next) {
        next = shard->queue.next;
        if (shard->queue.not_before_ms > now_ms) {
            *ret_again_ms = cairn_min_u64(*ret_again_ms, shard->queue.not_before_ms - now_ms);
            continue;
        }
        pick_shard(sender, shard, &room, &tail);
    }
    /* Last, because shards in progress take buffers first, for their next parts. */
    if (any) cairn_up_fill_unread(send);
    return first;
}

/* ---- remembering, without the lock ---- */

static enum cairn_code note_blocks(struct cairn_up_notes *notes, const struct cairn_up_shard *shard,
                                   struct cairn_error *err) {
    CAIRN_AUTO(buf) blocks = {.limit = CAIRN_UP_BLOCKS_BYTES_MAX};
    const struct cairn_multipart *mp = &shard->queue.mp; /* complete, so no longer changing */
    uint64_t count = cairn_div_up(mp->size_bytes, CAIRN_BLOCK_BYTES);
    for (uint64_t i = 0; i < count; i++)
        CAIRN_TRY(cairn_buf_append_u32le(&blocks, mp->blocks[i], err));
    return cairn_up_notes_add_buf(notes, shard->entry, CAIRN_PACK(record_blocks, .s = shard->index),
                                  &blocks, err);
}

/* send.h#1: adds the records that precede this action. */
static enum cairn_code note_action(struct cairn_up_notes *notes, struct cairn_up_sending *sending,
                                   struct cairn_error *err) {
    struct cairn_up_shard *shard = sending->shard;
    const struct cairn_multipart *mp = &shard->queue.mp;
    const struct cairn_view none = {0};
    if (sending->notes_intent)
        CAIRN_TRY(cairn_up_notes_add(notes, shard->entry,
                                     CAIRN_PACK(record_intent, .s = shard->index,
                                                .token = mp->token, .part_bytes = mp->part_bytes),
                                     none, err));
    if (sending->notes_blocks) CAIRN_TRY(note_blocks(notes, shard, err));
    if (sending->action.kind != CAIRN_MULTIPART_DURABLE) return CAIRN_OK;
    return cairn_up_notes_add(notes, shard->entry,
                              CAIRN_PACK(record_durable, .s = shard->index, .crc32c = mp->crc32c),
                              none, err);
}

static enum cairn_code remember(struct cairn_up_send *send, struct cairn_up_sending *picked,
                                struct cairn_error *err) {
    struct cairn_up_notes notes = {0};
    enum cairn_code code = CAIRN_OK;
    for (struct cairn_up_sending *at = picked; code == CAIRN_OK && at; at = at->next)
        code = note_action(&notes, at, err);
    if (code == CAIRN_OK && notes.count)
        code = cairn_up_journal_append(send->up->journal, notes.records, notes.count, err);
    if (code == CAIRN_OK && notes.count) CAIRN_CRASHPOINT("uploader.send.journaled");
    cairn_up_notes_release(&notes);
    return code;
}

/* After a failed journal write: fails the shard, and aborts what was begun of it. */
static void refuse(struct cairn_up_sender *sender, struct cairn_up_sending *sending,
                   const struct cairn_error *why) {
    struct cairn_up_shard *shard = sending->shard;
    cairn_lock_take(&sender->send->queue->lock);
    CAIRN_ASSERT(shard->queue.in_flight > 0);
    cairn_multipart_unsent(&shard->queue.mp, &sending->action);
    if (sending->read_into) sender->reading = false;
    cairn_up_shard_give_up_locked(sender->send->queue, shard, why);
    if (sending->buffer) cairn_up_pool_give(&sender->send->queue->pool, sending->buffer);
    shard->queue.in_flight--;
    if (sending->carries) cairn_up_queue_body_ends(sender->send->queue, shard, 0);
    cairn_lock_give(&sender->send->queue->lock);
    cairn_up_sending_free(sending);
}

static void report_end(struct cairn_up_sender *sender, struct cairn_up_sending *sending,
                       const struct cairn_error *journal_error) {
    struct cairn_up_send *send = sender->send;
    struct cairn_up_shard *shard = sending->shard;
    uint64_t entry = shard->entry;
    bool durable = sending->action.kind == CAIRN_MULTIPART_DURABLE && !journal_error;
    if (durable && shard->queue.mp.misstated && cairn_store_misstates(send->up->store))
        cairn_log(WARN, "store.misstates", "url=%s shard=%s hint=\"run cairn doctor\"",
                  cairn_store_url(send->up->store), shard->name);
    struct cairn_error why = journal_error ? *journal_error : shard->queue.mp.error;
    cairn_up_save_shard_ended(send->up, entry, shard->index, durable ? NULL : &why);
    cairn_lock_take(&send->queue->lock);
    CAIRN_ASSERT(shard->queue.in_flight > 0);
    shard->queue.in_flight--;
    if (journal_error)
        (void)cairn_up_upload_state_move(&shard->queue.upload, CAIRN_UP_UPLOAD_EVENT_UNWRITTEN);
    cairn_lock_give(&send->queue->lock);
    cairn_up_sending_free(sending);
    cairn_up_save_settle(send->up, entry);
}

void cairn_up_send_launch(struct cairn_up_sender *sender, struct cairn_up_sending *picked) {
    struct cairn_error error = {0};
    bool refused_all = remember(sender->send, picked, &error) != CAIRN_OK;
    for (struct cairn_up_sending *at = picked, *next; at; at = next) {
        next = at->next;
        at->next = NULL; /* singly, so that one broken entry (Q45) does not fail its batch */
        bool refused = refused_all && remember(sender->send, at, &error) != CAIRN_OK;
        enum cairn_multipart_kind kind = at->action.kind;
        if (kind == CAIRN_MULTIPART_DURABLE || kind == CAIRN_MULTIPART_FAILED) {
            report_end(sender, at, refused ? &error : NULL);
        } else if (refused && kind != CAIRN_MULTIPART_ABORT) {
            refuse(sender, at, &error);
        } else {
            CAIRN_ASSERT(!at->finished);
            at->next = sender->flying;
            sender->flying = at;
            sender->flying_count++;
            sender->flying_small += at->small;
            at->submitted_us = cairn_mono_us();
            if (at->carries)
                cairn_metrics_shift(sender->send->up->metrics, CAIRN_UP_METRIC(inflight_bytes),
                                    (int64_t)at->action.length);
            cairn_store_submit(sender->store, &at->request);
        }
    }
}

/* ---- leaving cores to ranks that copy ---- */

/* A trainer stalls while it copies into its slab, and sending meanwhile only ends a little earlier.
 * Nothing new is sent for a moment, unless each rank has two cores and a sender one. */

#define CORES_A_RANK 2
#define WORTH_BYTES (64 * CAIRN_MIB) /* a smaller copy ends before a hold takes effect */
#define REST 4                       /* pause after a hold, in multiples of its length */

struct copying {
    uint32_t ranks;
    uint64_t bytes; /* still to copy */
};

static void add_rank(struct copying *copying, uint64_t ready_bytes, uint64_t left_bytes) {
    if (!ready_bytes || !left_bytes) return; /* the copy has not begun, or has ended */
    copying->ranks++;
    copying->bytes += left_bytes;
}

/* The lock is held. Shards of one save, and so of one rank, are adjacent. */
static struct copying ranks_that_copy(const struct cairn_up_queue *queue) {
    struct copying found = {0};
    uint64_t entry = 0, ready_bytes = 0, left_bytes = 0;
    for (const struct cairn_up_shard *shard = queue->locked.first; shard;
         shard = shard->queue.next) {
        if (shard->is_file || shard->is_stream || !shard->queue.data) continue;
        if (shard->queue.upload == CAIRN_UP_UPLOAD_ENDING) continue;
        if (shard->entry != entry) {
            add_rank(&found, ready_bytes, left_bytes);
            entry = shard->entry;
            ready_bytes = left_bytes = 0;
        }
        ready_bytes += shard->queue.mp.ready_bytes;
        left_bytes += shard->size_bytes - shard->queue.mp.ready_bytes;
    }
    add_rank(&found, ready_bytes, left_bytes);
    return found;
}

/* False for ranks that copied nothing since the last hold: they are not copying. */
static bool should_begin(const struct cairn_up_send *send, const struct copying *copying,
                         uint64_t now_ms) {
    return copying->bytes >= WORTH_BYTES && copying->bytes != send->hold.left_bytes &&
           send->cores <= CORES_A_RANK * copying->ranks && now_ms >= send->hold.rests_until_ms;
}

bool cairn_up_send_holds(struct cairn_up_send *send, uint64_t now_ms, uint64_t *ret_again_ms) {
    uint64_t most_ms = send->up->settings.copy_first_ms;
    if (!most_ms) return false;
    struct copying copying = ranks_that_copy(send->queue);
    if (!send->hold.since_ms && !should_begin(send, &copying, now_ms)) return false;
    if (!send->hold.since_ms) send->hold.since_ms = now_ms;
    uint64_t over_ms = send->hold.since_ms + most_ms;
    if (copying.ranks && now_ms < over_ms) {
        *ret_again_ms = cairn_min_u64(*ret_again_ms, over_ms - now_ms);
        return true;
    }
    send->hold.rests_until_ms = now_ms + REST * (now_ms - send->hold.since_ms);
    send->hold.left_bytes = copying.bytes;
    send->hold.since_ms = 0;
    return false;
}
