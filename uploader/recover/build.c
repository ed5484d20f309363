/* SPDX-License-Identifier: Apache-2.0 */
/* Saves and rights out of what the journal held. */
#include "uploader/recover/build.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "api/wire/messages.h"
#include "common/hooks.h"
#include "common/log.h"
#include "common/text.h"
#include "uploader/recover/inside.h"
#include "uploader/saves/begin.h"
#include "uploader/saves/ended.h"
#include "uploader/saves/save.h"

#define TICK_MS_MAX 1000

/* ---- one save ---- */

/* What this node sent in the stead of another (Q57): it was staged in no slab. */
static bool is_of_partner(const struct cairn_up_past *past) {
    return past->owner && !past->inode;
}

static enum cairn_code read_begin(const struct cairn_up_past *past, struct cairn_up_begin *ret,
                                  struct cairn_error *err) {
    struct cairn_msg_record_begin told = {0};
    struct cairn_msg_begin_place place = {0};
    CAIRN_TRY(cairn_msg_record_begin_read(past->begin, "", &told, err));
    CAIRN_TRY(cairn_msg_begin_place_read(told.body, "/body", &place, err));
    *ret = (struct cairn_up_begin){.grant_text = told.grant,
                                   .proc = told.proc,
                                   .trace = told.traceparent,
                                   .rank = (uint32_t)place.rank,
                                   .world_size = (uint32_t)place.world_size,
                                   .of_partner = is_of_partner(past)};
    CAIRN_TRY(cairn_up_begin_read(told.body, "/body", ret, err));
    ret->abort_on_disconnect = told.abort_on_disconnect;
    return CAIRN_OK;
}

/* A file's descriptor died with the old process. What a partner has is not gone (Q57), nor is what
 * this node has sent in the stead of another: that one may be back. */
static enum cairn_up_source_wait wait_of(const struct cairn_up_save *save,
                                         const struct cairn_up_past *past,
                                         const struct cairn_up_past_shard *shard) {
    if (shard->is_file) return CAIRN_UP_SOURCE_GONE;
    return save->partner.node[0] || is_of_partner(past) ? CAIRN_UP_SOURCE_FOREVER
                                                        : CAIRN_UP_SOURCE_OFFERED;
}

static enum cairn_code build_shard(struct cairn_up *up, struct cairn_up_save *save,
                                   const struct cairn_up_past_shard *past,
                                   enum cairn_up_source_wait wait, struct cairn_error *err) {
    struct cairn_key key;
    cairn_up_save_key(save, past->name, &key);
    struct cairn_up_shard_options options = {
        .entry = save->entry,
        .index = save->state.shard_count,
        .name = past->name,
        .key = key.text,
        .tensors = past->tensors,
        .slab_offset = past->offset,
        .size_bytes = past->bytes,
        .take_fd = -1,
        .token = past->intent ? past->token : NULL,
        .part_bytes = past->part_bytes,
    };
    struct cairn_up_shard *shard = NULL;
    CAIRN_TRY(cairn_up_shard_new(up->queue, &options, &shard, err));
    struct cairn_up_shard_past journaled = {
        .intent = past->intent,
        .durable = past->durable,
        .upload_id = past->upload_id,
        .blocks = past->blocks,
        .source_wait = wait,
        .parts = past->parts,
        .part_count = past->part_count,
    };
    enum cairn_code code = cairn_up_shard_recover(up->queue, shard, &journaled, err);
    if (code != CAIRN_OK) {
        cairn_up_shard_free(up->queue, shard);
        return code;
    }
    return cairn_up_save_shard_add_locked(up, save, shard, err);
}

static enum cairn_code build_seal(struct cairn_up *up, struct cairn_up_save *save,
                                  const struct cairn_up_past *past, struct cairn_error *err) {
    struct cairn_msg_record_seal told = {0};
    CAIRN_TRY(cairn_msg_record_seal_read(past->seal, "/seal", &told, err));
    CAIRN_TRY(cairn_up_save_set_sealed(save, told.replicated, told.labels, told.meta, err));
    if (past->table.size)
        return cairn_up_table_new_locked(up, cairn_buf_view(&past->table), 0, &save->table, err);
    if (!told.table) return CAIRN_OK;
    struct cairn_up_table *table = cairn_up_table_find_locked(up, told.table);
    if (!table)
        return cairn_fail(err, CAIRN_CORRUPT, "the journal has not the table %s of its seal",
                          told.table);
    save->table = cairn_up_table_use(table);
    return CAIRN_OK;
}

static bool was_sent(const struct cairn_up_past *past) {
    for (size_t i = 0; i < past->shard_count; i++) {
        if (past->shards[i].intent || past->shards[i].is_file) return true;
    }
    return false;
}

static bool has_files(const struct cairn_up_past *past) {
    for (size_t i = 0; i < past->shard_count; i++) {
        if (past->shards[i].is_file) return true;
    }
    return false;
}

/* Uploads that were begun on the store are looked at again, to be finished or aborted. */
static void queue_shards(struct cairn_up *up, struct cairn_up_save *save,
                         const struct cairn_up_past *past) {
    for (size_t i = 0; i < save->state.shard_count; i++) {
        if (past->seal || past->shards[i].intent) cairn_up_queue_add(up->queue, save->shards[i]);
    }
}

static void build_fail(struct cairn_up *up, struct cairn_up_save *save, const json_t *fail) {
    cairn_failure_get(fail, "reason", &save->why);
    if (!save->why.code) save->why.code = CAIRN_CANCELLED;
    for (size_t i = 0; i < save->state.shard_count; i++)
        cairn_up_shard_give_up(up->queue, save->shards[i], &save->why);
}

static enum cairn_code fill_save(struct cairn_up *up, const struct cairn_up_past *past,
                                 struct cairn_up_save *save, struct cairn_error *err) {
    if (past->bad.code != CAIRN_OK) {
        if (err) *err = past->bad;
        return past->bad.code;
    }
    const struct cairn_up_save_past state = {.staged = past->slab_bytes != 0,
                                             .sealed = past->seal != NULL,
                                             .failed = past->fail != NULL,
                                             .sent = was_sent(past)};
    cairn_up_save_state_recover(past->entry, &state, &save->state);
    (void)cairn_text_copy(save->partner.node, sizeof(save->partner.node),
                          past->seal && up->partner ? past->partner : "");
    save->partner.recovered = save->partner.node[0] != '\0';
    bool keep = past->seal || past->fail || state.sent;
    for (size_t i = 0; keep && i < past->shard_count; i++)
        CAIRN_TRY(build_shard(up, save, &past->shards[i], wait_of(save, past, &past->shards[i]),
                              err));
    save->stage_first = past->stage_first;
    save->stage_count = keep ? past->shard_count - past->stage_first : 0;
    save->staged_in.device = past->device;
    save->staged_in.inode = past->inode;
    save->staged_in.bytes = past->slab_bytes;
    if (past->seal) CAIRN_TRY(build_seal(up, save, past, err));
    queue_shards(up, save, past);
    if (past->fail)
        build_fail(up, save, past->fail);
    else if (!past->seal && has_files(past))
        cairn_up_save_fail_locked(up, save, CAIRN_SOURCE_GONE,
                                  "the uploader restarted before the save was sealed and lost the "
                                  "files that it had been given");
    cairn_log(INFO, "recover.save", "run=%s step=%" PRIu64 " rank=%u version=%s phase=%s shards=%u",
              save->attempt->run_text, save->place.step, save->rank, save->place.id.text,
              cairn_up_phase_text(save->state.phase), save->state.shard_count);
    return CAIRN_OK;
}

/* Q45: what cannot be read of a save makes it fail by name at the server; nothing else does. */
static enum cairn_code build_save(struct cairn_up *up, const struct cairn_up_past *past,
                                  struct cairn_error *err) {
    struct cairn_up_begin begin = {0};
    struct cairn_up_save *save = NULL;
    struct cairn_error why = {0};
    CAIRN_TRY(read_begin(past, &begin, err));
    CAIRN_TRY(cairn_up_save_new_locked(up, past->entry, &begin, &save, err));
    const struct cairn_up_save_past open = {0};
    cairn_up_save_state_recover(past->entry, &open, &save->state);
    enum cairn_code code = fill_save(up, past, save, &why);
    if (code == CAIRN_OK) return CAIRN_OK;
    (void)cairn_within(&why, code, "the journal's records of it cannot be used");
    cairn_up_save_fail_for_locked(up, save, &why);
    if (err) *err = why;
    return code;
}

/* ---- rights ---- */

static enum cairn_code build_session(struct cairn_up *up, const struct cairn_up_past *past,
                                     struct cairn_error *err) {
    struct cairn_msg_record_session told = {.world_size = UINT32_MAX, .proc = "", .process = ""};
    CAIRN_TRY(cairn_msg_record_session_read(past->session, "", &told, err));
    struct cairn_up_rank rank = {.rank = told.rank,
                                 .world_size = told.world_size,
                                 .proc = told.proc,
                                 .entry = past->entry,
                                 .process = -1};
    CAIRN_TRY(cairn_up_attempt_join(up, told.grant, &rank.attempt, err));
    rank.ended = cairn_up_process_find(told.process, &rank.process) == CAIRN_UP_PROCESS_ENDED;
    cairn_up_ended_recover_locked(up, &rank, told.bye);
    return CAIRN_OK;
}

/* Of a table nobody asks any more when no save names it; that is known once all are built. */
static enum cairn_code build_table(struct cairn_up *up, const struct cairn_up_past *past,
                                   struct cairn_error *err) {
    struct cairn_up_table *table = NULL;
    struct cairn_view bytes = cairn_buf_view(&past->table);
    CAIRN_TRY(cairn_up_table_new_locked(up, bytes, past->entry, &table, err));
    table->users = 0;
    table->written = !strcmp(table->hex, past->table_hex);
    return table->written ? CAIRN_OK
                          : cairn_fail(err, CAIRN_CORRUPT, "table %s has another digest",
                                       past->table_hex);
}

/* Setting it aside would fail a save that the newer uploader finishes. */
static enum cairn_code newer(const struct cairn_up *up, const struct cairn_up_past *past,
                             const struct cairn_error *why, struct cairn_error *err) {
    return cairn_fail(err, CAIRN_UNSUPPORTED,
                      "journal %s: entry %" PRIu64 ": %s; start that, what it staged is unharmed",
                      up->places.journal_path, past->entry, why->message);
}

static enum cairn_code refuse_newer(const struct cairn_up *up,
                                    const struct cairn_up_recovery *recovery,
                                    struct cairn_error *err) {
    for (const struct cairn_up_past *past = recovery->first; past; past = past->next)
        if (past->bad.code == CAIRN_UNSUPPORTED) return newer(up, past, &past->bad, err);
    return CAIRN_OK;
}

static enum cairn_code build_tables(struct cairn_up *up, const struct cairn_up_recovery *recovery,
                                    struct cairn_error *err) {
    for (const struct cairn_up_past *past = recovery->first; past; past = past->next) {
        struct cairn_error why = {0};
        if (!past->table_hex[0] || past->bad.code) continue;
        enum cairn_code code = build_table(up, past, &why);
        if (!code) continue;
        if (code == CAIRN_UNSUPPORTED) return newer(up, past, &why, err);
        if (code == CAIRN_NO_MEMORY) return cairn_fail(err, code, "%s", why.message);
        cairn_log(ERROR, "recover.table", "journal=%s entry=%" PRIu64 " cause=\"%s\"",
                  up->places.journal_path, past->entry, why.message);
    }
    return CAIRN_OK;
}

/* The records left of a damaged session are true; only that it said bye can be among the lost. */
static enum cairn_code build_entry(struct cairn_up *up, const struct cairn_up_past *past,
                                   struct cairn_error *err) {
    if (past->table_hex[0] && past->bad.code == CAIRN_OK) return CAIRN_OK; /* above */
    if (past->begin) return build_save(up, past, err);
    if (past->session && (past->bad.code == CAIRN_OK || past->damaged))
        return build_session(up, past, err);
    if (past->damaged) {
        /* Nothing says whose it was: nobody can do anything for it any more, also not after the
         * next restart. A trainer that lives offers what it has, and hears how that ended (UR4). */
        CAIRN_AUTO_JSON json_t *over = CAIRN_PACK(record_over, 0);
        struct cairn_up_record record = {.entry = past->entry, .closes = true, .message = over};
        cairn_up_journal_note(up->journal, &record, 1);
    }
    if (past->bad.code == CAIRN_OK)
        return cairn_fail(err, CAIRN_CORRUPT, "its first record is not there");
    if (err) *err = past->bad;
    return past->bad.code;
}

enum cairn_code cairn_up_recovery_build(struct cairn_up_recovery *recovery, struct cairn_up *up,
                                        struct cairn_error *err) {
    CAIRN_HOLD(&up->lock);
    up->locked.offers_awaited = true;
    up->locked.offers_left_ms = up->settings.offer_wait_ms;
    up->locked.offers_ticked_ms = cairn_mono_ms();
    CAIRN_TRY(refuse_newer(up, recovery, err));
    CAIRN_TRY(build_tables(up, recovery, err));
    for (const struct cairn_up_past *past = recovery->first; past; past = past->next) {
        struct cairn_error why = {0};
        enum cairn_code code = build_entry(up, past, &why);
        if (code == CAIRN_UNSUPPORTED) return newer(up, past, &why, err);
        if (code == CAIRN_NO_MEMORY || (code != CAIRN_OK && !CAIRN_RULE(Q45))) {
            if (err) *err = why;
            return cairn_within(err, code, "journal %s: entry %" PRIu64, up->places.journal_path,
                                past->entry);
        }
        if (code != CAIRN_OK)
            cairn_log(ERROR, "recover.set_aside", "journal=%s entry=%" PRIu64 " cause=\"%s\"",
                      up->places.journal_path, past->entry, why.message);
    }
    cairn_up_tables_sweep_locked(up);
    return CAIRN_OK;
}

/* ---- the end of the wait ---- */

/* UR1: a process that was suspended has heard nobody meanwhile. */
static bool count_down(struct cairn_up *up) {
    uint64_t now_ms = cairn_mono_ms();
    uint64_t passed_ms = cairn_min_u64(now_ms - up->locked.offers_ticked_ms, TICK_MS_MAX);
    up->locked.offers_ticked_ms = now_ms;
    up->locked.offers_left_ms -= cairn_min_u64(up->locked.offers_left_ms, passed_ms);
    return up->locked.offers_left_ms == 0;
}

void cairn_up_recovery_tick(struct cairn_up *up) {
    CAIRN_HOLD(&up->lock);
    if (!up->locked.offers_awaited || !count_down(up)) return;
    up->locked.offers_awaited = false;
    cairn_up_queue_end_offers(up->queue);
    cairn_up_wakeup_raise(&up->partner_work); /* what no trainer has brought is handed over */
    if (up->locked.draining) return; /* the next start waits for them once more */
    for (size_t i = up->locked.save_count; i-- > 0;) {
        if (i >= up->locked.save_count) continue;
        struct cairn_up_save *save = up->locked.saves[i];
        if (save->state.trainer != CAIRN_UP_TRAINER_AWAITED ||
            save->state.phase != CAIRN_UP_PHASE_OPEN)
            continue;
        cairn_up_save_fail_locked(up, save, CAIRN_SOURCE_GONE,
                                  "the uploader restarted and the trainer did not come back");
    }
}
