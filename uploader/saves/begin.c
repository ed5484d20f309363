/* SPDX-License-Identifier: Apache-2.0 */
/* Begins, begins that never came (Q8), and the description of a save: the same save has the same,
 * to the byte, as long as this process lives. */
#include "uploader/saves/begin.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "api/wire/messages.h"
#include "common/hooks.h"
#include "common/text.h"
#include "uploader/journal/journal.h"
#include "uploader/mail.h"

/* ---- reading ---- */

enum cairn_code cairn_up_begin_read(const json_t *json, const char *pointer,
                                    struct cairn_up_begin *ret, struct cairn_error *err) {
    struct cairn_msg_begin told = {0};
    CAIRN_TRY(cairn_msg_begin_read(json, pointer, &told, err));
    if (!told.n) return cairn_fail(err, CAIRN_INVALID, "%s/n counts from 1", pointer);
    ret->step = told.step;
    ret->n = told.n;
    ret->on_exists = told.on_exists;
    ret->skip = told.skip;
    ret->format = told.format;
    ret->labels = told.labels;
    ret->meta = told.meta;
    ret->splits = told.splits;
    ret->abort_on_disconnect = told.abort_on_disconnect;
    ret->follow = told.follow;
    return CAIRN_OK;
}

/* ---- begin ---- */

/* Q8: the same begin may come again after the uploader's restart. */
static enum cairn_code take_known(struct cairn_up *up, struct cairn_up_save *known,
                                  const struct cairn_up_begin *begin, struct cairn_up_reply reply,
                                  struct cairn_error *err) {
    if (!cairn_up_save_state_begins_again(&known->state) || strcmp(known->proc, begin->proc) != 0)
        return cairn_fail(err, CAIRN_CONFLICT,
                          "step %" PRIu64 " (n %u) was begun already by rank %u", begin->step,
                          begin->n, begin->rank);
    known->conn = begin->conn;
    known->number = begin->number;
    known->state.trainer = CAIRN_UP_TRAINER_HERE;
    known->follows = begin->follow;
    known->decided = false; /* this connection has not heard it */
    cairn_up_mail_answer(up->mail, reply.conn, reply.request, cairn_up_save_begun(known));
    return CAIRN_OK;
}

static enum cairn_code admit(struct cairn_up *up, const struct cairn_up_begin *begin,
                             struct cairn_error *err) {
    if (up->locked.draining)
        return cairn_fail(err, CAIRN_UNAVAILABLE, "the uploader of node %s is stopping",
                          up->places.node);
    if (begin->attempt->foreign.code != CAIRN_OK) {
        if (err) *err = begin->attempt->foreign;
        return begin->attempt->foreign.code;
    }
    if (begin->attempt->stale)
        return cairn_fail(err, CAIRN_STALE_ATTEMPT,
                          "a newer attempt of %s has taken over from %" PRIu64,
                          begin->attempt->run_text, begin->attempt->grant.attempt);
    return CAIRN_OK;
}

/* Q8: where the journal cannot take it, now or later, its rank is refused and the server hears from
 * memory that the rank gives the save up: the others must not wait for it. */
static bool remember(struct cairn_up *up, struct cairn_up_save *save,
                     const struct cairn_up_record *records, size_t count) {
    struct cairn_error why = {0};
    if (cairn_up_save_post_locked(up, save, records, count, &why) == CAIRN_OK) return true;
    save->why = why;
    save->state.unjournaled = true;
    cairn_up_save_event_locked(up, save, CAIRN_UP_EVENT_UNWRITTEN);
    return false;
}

/* Another save of that rank's and version: there is one at most. */
static struct cairn_up_save *same_save(struct cairn_up *up, const struct cairn_up_save *save) {
    for (size_t i = 0; i < up->locked.save_count; i++) {
        struct cairn_up_save *at = up->locked.saves[i];
        if (at != save && at->rank == save->rank && !strcmp(at->place.id.text, save->place.id.text))
            return at;
    }
    return NULL;
}

enum cairn_code cairn_up_save_begin(struct cairn_up *up, const struct cairn_up_begin *begin,
                                    struct cairn_up_reply reply, struct cairn_error *err) {
    CAIRN_HOLD(&up->lock);
    CAIRN_TRY(admit(up, begin, err));
    struct cairn_up_save *save = NULL;
    uint64_t entry = cairn_up_journal_entry_new(up->journal);
    CAIRN_TRY(cairn_up_save_new_locked(up, entry, begin, &save, err));
    struct cairn_up_save *known = same_save(up, save);
    if (known) {
        cairn_up_save_drop_locked(up, save);
        return take_known(up, known, begin, reply, err);
    }
    save->begin_reply = reply;
    save->begun_us = cairn_mono_us();
    save->follows = begin->follow;
    CAIRN_AUTO_JSON json_t *message = cairn_up_save_begin_record(save);
    struct cairn_up_record record = {.entry = entry, .message = message};
    remember(up, save, &record, 1);
    return CAIRN_OK;
}

/* ---- count ---- */

/* Begin and fail go to the disk together. */
static void count_new(struct cairn_up *up, struct cairn_up_save *save,
                      const struct cairn_error *why, struct cairn_up_reply reply) {
    CAIRN_AUTO_JSON json_t *began = cairn_up_save_begin_record(save);
    CAIRN_AUTO_JSON json_t *failed = CAIRN_PACK(record_fail, CAIRN_PACK_WHY(why, reason));
    struct cairn_up_record records[2] = {{.entry = save->entry, .message = began},
                                         {.entry = save->entry, .message = failed}};
    save->begin_reply = reply;
    if (!remember(up, save, records, 2)) return;
    save->why = *why;
    /* What is due by the table, the record of the fail, was posted with the begin's. The answer
     * waits for the journal. */
    (void)cairn_up_save_state_move(&save->state, CAIRN_UP_EVENT_FAIL);
}

enum cairn_code cairn_up_save_abandoned_locked(struct cairn_up *up,
                                               const struct cairn_up_begin *begin,
                                               const struct cairn_error *why,
                                               struct cairn_error *err) {
    struct cairn_up_save *save = NULL;
    CAIRN_TRY(
        cairn_up_save_new_locked(up, cairn_up_journal_entry_new(up->journal), begin, &save, err));
    cairn_up_save_state_answered(&save->state, CAIRN_UP_REPORTED_BEGIN); /* it has just named it */
    count_new(up, save, why, (struct cairn_up_reply){0});
    return CAIRN_OK;
}

/* Q44: a save that this process knows is cancelled, also after its seal; then the server's word
 * answers. What a rank has merely abandoned (nobody asks) is left alone once it is sealed. */
static void count_known(struct cairn_up *up, struct cairn_up_save *known,
                        const struct cairn_error *why, struct cairn_up_reply reply) {
    enum cairn_up_phase phase = known->state.phase;
    bool sealed = phase == CAIRN_UP_PHASE_SEALING || cairn_up_save_state_is_sealed(&known->state);
    if (reply.conn && sealed && CAIRN_RULE(Q44)) {
        known->fail_reply = reply;
        cairn_up_save_fail_for_locked(up, known, why);
        return;
    }
    if (!sealed) cairn_up_save_fail_for_locked(up, known, why);
    if (reply.conn) cairn_up_mail_answer(up->mail, reply.conn, reply.request, CAIRN_PACK(ok, 0));
}

enum cairn_code cairn_up_save_count(struct cairn_up *up, const struct cairn_up_begin *begin,
                                    const struct cairn_error *why, struct cairn_up_reply reply,
                                    struct cairn_error *err) {
    CAIRN_HOLD(&up->lock);
    struct cairn_up_save *save = NULL;
    uint64_t entry = cairn_up_journal_entry_new(up->journal);
    CAIRN_TRY(cairn_up_save_new_locked(up, entry, begin, &save, err));
    struct cairn_up_save *known = same_save(up, save);
    if (known) cairn_up_save_drop_locked(up, save);
    if (known)
        count_known(up, known, why, reply);
    else
        count_new(up, save, why, reply);
    return CAIRN_OK;
}

/* ---- description ---- */

static enum cairn_code no_memory(struct cairn_error *err) {
    return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a copy's description");
}

static enum cairn_code add_shard(struct cairn_up *up, const struct cairn_up_shard *shard,
                                 json_t *shards, struct cairn_error *err) {
    CAIRN_AUTO(up_shard_proof) proof = {0};
    CAIRN_AUTO(buf) blocks = {.limit = CAIRN_UP_DESCRIPTION_BYTES_MAX};
    CAIRN_TRY(cairn_up_shard_describe(up->queue, shard, &proof, err));
    CAIRN_TRY(cairn_base64_encode(cairn_buf_view(&proof.blocks_le), &blocks, err));
    json_t *item =
        CAIRN_PACK(copy_shard, .name = shard->name, .tensors = shard->tensors,
                   .bytes = shard->size_bytes, .token = proof.token, .part_bytes = proof.part_bytes,
                   .blocks = blocks.size ? blocks.data : "");
    return json_array_append_new(shards, item) ? no_memory(err) : CAIRN_OK;
}

enum cairn_code cairn_up_save_describe_locked(struct cairn_up *up, const struct cairn_up_save *save,
                                              struct cairn_buf *ret, struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *shards = json_array();
    CAIRN_AUTO(buf) table = {.limit = CAIRN_UP_DESCRIPTION_BYTES_MAX};
    for (size_t i = 0; i < save->state.shard_count; i++)
        CAIRN_TRY(add_shard(up, save->shards[i], shards, err));
    if (save->table)
        CAIRN_TRY(cairn_base64_encode(cairn_buf_view(&save->table->bytes), &table, err));
    CAIRN_AUTO_JSON json_t *head =
        CAIRN_PACK(copy, .uploader = up->uuid, .proc = save->proc, .begin = save->begin,
                   .table = table.size ? table.data : NULL, .replicated = save->replicated,
                   .labels = save->labels, .meta = save->meta, .shards = shards);
    if (!head) return no_memory(err);
    ret->limit = CAIRN_UP_DESCRIPTION_BYTES_MAX;
    return cairn_json_dump(head, ret, err);
}
