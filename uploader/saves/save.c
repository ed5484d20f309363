/* SPDX-License-Identifier: Apache-2.0 */
/* Moves a save by its table and carries out actions due; rank tables; errors by shard; begins; and
 * descriptions, which are byte-identical while this process lives. */
#include "uploader/saves/save.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/documents/digest.h"
#include "api/table/table.h"
#include "api/wire/messages.h"
#include "common/buf.h"
#include "common/hooks.h"
#include "common/text.h"
#include "uploader/journal/journal.h"
#include "uploader/mail.h"

#define SAVES_MAX (1 << 20)
#define FILES_SAY_MS 100

static size_t place_of(struct cairn_up *up, uint64_t entry) {
    size_t low = 0, high = up->locked.save_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (up->locked.saves[middle]->entry < entry)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

struct cairn_up_save *cairn_up_save_find_locked(struct cairn_up *up, uint64_t entry) {
    size_t at = place_of(up, entry);
    bool found = at < up->locked.save_count && up->locked.saves[at]->entry == entry;
    return found ? up->locked.saves[at] : NULL;
}

struct cairn_up_save *cairn_up_save_of_locked(struct cairn_up *up, uint64_t conn, uint32_t number) {
    for (size_t i = up->locked.save_count; conn && i-- > 0;) {
        struct cairn_up_save *save = up->locked.saves[i];
        if (save->conn == conn && save->number == number) return save;
    }
    return NULL;
}

struct cairn_up_save *cairn_up_save_known_locked(struct cairn_up *up, const char *version,
                                                 uint32_t rank) {
    for (size_t i = up->locked.save_count; i-- > 0;) {
        struct cairn_up_save *save = up->locked.saves[i];
        if (save->rank == rank && !strcmp(save->place.id.text, version)) return save;
    }
    return NULL;
}

bool cairn_up_save_awaits_decision(const struct cairn_up_save *save) {
    return save->follows && !save->decided && save->state.reported >= CAIRN_UP_REPORTED_BEGIN &&
           (cairn_up_save_state_is_staging(&save->state) ||
            cairn_up_save_state_may_be_committed(&save->state));
}

static void save_free(struct cairn_up *up, struct cairn_up_save *save) {
    for (size_t i = 0; i < save->state.shard_count; i++)
        cairn_up_shard_free(up->queue, save->shards[i]);
    free(save->shards);
    cairn_shard_names_release(&save->names);
    json_decref(save->replicated);
    json_decref(save->labels);
    json_decref(save->meta);
    json_decref(save->begin);
    free(save->held);
    cairn_up_attempt_leave(up, save->attempt);
    free(save);
}

/* Omits what the trainer omitted, so that the server's defaults apply. Deep copies, like all JSON
 * of a save: another thread frees the frame before the save. */
static json_t *begin_body(const struct cairn_up_begin *begin) {
    CAIRN_AUTO_JSON json_t *shared = CAIRN_PACK(
        begin_save, .step = begin->told.step, .n = begin->told.n, .rank = begin->rank,
        .world_size = begin->world_size,
        .on_exists = begin->told.on_exists ? begin->told.on_exists : "error",
        .skip = begin->told.skip, .format = begin->told.format ? begin->told.format : "",
        .labels = begin->told.labels, .meta = begin->told.meta, .splits = begin->told.splits);
    return json_deep_copy(shared);
}

static enum cairn_code insert(struct cairn_up *up, struct cairn_up_save *save,
                              struct cairn_error *err) {
    CAIRN_TRY(CAIRN_ARRAY_ROOM(up->locked.saves, up->locked.save_count, up->locked.save_capacity,
                               SAVES_MAX, "saves of this node that are not over", err));
    size_t at = place_of(up, save->entry);
    memmove(&up->locked.saves[at + 1], &up->locked.saves[at],
            (up->locked.save_count - at) * sizeof(*up->locked.saves));
    up->locked.saves[at] = save;
    up->locked.save_count++;
    return CAIRN_OK;
}

enum cairn_code cairn_up_save_new_locked(struct cairn_up *up, uint64_t entry,
                                         const struct cairn_up_begin *begin,
                                         struct cairn_up_save **ret, struct cairn_error *err) {
    struct cairn_up_save *save = calloc(1, sizeof(*save));
    if (!save) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a save");
    save->entry = entry;
    save->stall_ms = CAIRN_MESSAGE_NONE;
    cairn_up_save_state_init(entry, &save->state);
    (void)cairn_text_copy(save->proc, sizeof(save->proc), begin->proc ? begin->proc : "");
    (void)cairn_text_copy(save->trace, sizeof(save->trace), begin->trace ? begin->trace : "");
    save->abort_on_disconnect = begin->told.abort_on_disconnect;
    save->conn = begin->conn;
    save->number = begin->number;
    save->rank = begin->rank;
    save->n = begin->told.n;
    save->attempt = begin->attempt;
    enum cairn_code code = CAIRN_OK;
    if (save->attempt)
        save->attempt->users++;
    else
        code = cairn_up_attempt_join(up, begin->grant_text, &save->attempt, err);
    if (code == CAIRN_OK) {
        save->place.name = save->attempt->grant.name;
        save->place.step = begin->told.step;
        cairn_up_attempt_version(save->attempt, begin->told.step, begin->told.n, &save->place.id);
    }
    if (code == CAIRN_OK && !(save->begin = begin_body(begin)))
        code = cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a save");
    if (code == CAIRN_OK) code = insert(up, save, err);
    if (code != CAIRN_OK) {
        save_free(up, save);
        return code;
    }
    if (!begin->of_partner)
        cairn_up_attempt_count(save->attempt, begin->rank, begin->world_size, begin->told.step,
                               begin->told.n);
    *ret = save;
    return CAIRN_OK;
}

void cairn_up_save_drop_locked(struct cairn_up *up, struct cairn_up_save *save) {
    size_t at = place_of(up, save->entry);
    CAIRN_ASSERT(up->locked.saves[at] == save);
    up->locked.save_count--;
    memmove(&up->locked.saves[at], &up->locked.saves[at + 1],
            (up->locked.save_count - at) * sizeof(*up->locked.saves));
    cairn_up_table_leave_locked(up, &save->table);
    save_free(up, save);
}

enum cairn_code cairn_up_save_shard_new_locked(struct cairn_up *up, struct cairn_up_save *save,
                                               struct cairn_up_shard_options *options,
                                               const struct cairn_up_shard_past *past,
                                               struct cairn_error *err) {
    struct cairn_up_shard *shard = NULL;
    struct cairn_key key;
    cairn_key_shard(&save->place, cairn_view_of(options->name), &key);
    options->entry = save->entry;
    options->index = save->state.shard_count;
    options->key = key.text;
    CAIRN_TRY(cairn_up_shard_new(up->queue, options, &shard, err));
    enum cairn_code code = past ? cairn_up_shard_recover(up->queue, shard, past, err) : CAIRN_OK;
    if (code == CAIRN_OK)
        code = CAIRN_ARRAY_ROOM(save->shards, save->state.shard_count, save->shard_capacity,
                                CAIRN_UP_SHARDS_MAX, "shards of a save", err);
    if (code != CAIRN_OK) {
        cairn_up_shard_free(up->queue, shard);
        return code;
    }
    save->shards[save->state.shard_count++] = shard;
    save->total_bytes += shard->size_bytes;
    save->stream_count += shard->is_stream;
    return CAIRN_OK;
}

const uint8_t *cairn_up_save_bytes_locked(struct cairn_up *up, const struct cairn_up_save *save,
                                          size_t index) {
    const struct cairn_up_shard *shard = save->shards[index];
    if (shard->is_stream) return cairn_up_shard_stream_bytes(up->queue, shard);
    return save->slab && !shard->is_file ? save->slab->memory.data + shard->slab_offset : NULL;
}

bool cairn_up_save_is_here_locked(struct cairn_up *up, const struct cairn_up_save *save) {
    if (save->file_count || save->streams_released || (save->stage_count && !save->slab))
        return false;
    for (size_t i = 0; save->stream_count && i < save->state.shard_count; i++)
        if (save->shards[i]->is_stream && !cairn_up_save_bytes_locked(up, save, i)) return false;
    return true;
}

/* false: no memory; the old value stays. */
static bool copy_into(json_t **place, const json_t *json) {
    json_t *copy = json_deep_copy(json);
    if (json && !copy) return false;
    json_decref(*place);
    *place = copy;
    return true;
}

enum cairn_code cairn_up_save_set_sealed(struct cairn_up_save *save, const json_t *replicated,
                                         const json_t *labels, const json_t *meta,
                                         struct cairn_error *err) {
    if (copy_into(&save->replicated, replicated) && copy_into(&save->labels, labels) &&
        copy_into(&save->meta, meta))
        return CAIRN_OK;
    return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for what a seal says");
}

json_t *cairn_up_save_begin_record(const struct cairn_up_save *save) {
    return CAIRN_PACK(record_begin, .grant = save->attempt->text, .proc = save->proc,
                      .body = save->begin, .abort_on_disconnect = save->abort_on_disconnect,
                      .traceparent = save->trace[0] ? save->trace : NULL);
}

void cairn_up_save_trace(const struct cairn_up_save *save, struct cairn_trace *ret) {
    if (!cairn_trace_parse(cairn_view_of(save->trace), ret))
        cairn_trace_of_version(save->place.id.text, ret);
}

json_t *cairn_up_save_begun(const struct cairn_up_save *save) {
    return CAIRN_PACK(begun, .save = save->number, .version = save->place.id.text,
                      .owner = save->state.owner);
}

json_t *cairn_up_save_sealed(const struct cairn_up_save *save) {
    const struct cairn_up_table *table = save->table && save->table->written ? save->table : NULL;
    return CAIRN_PACK(sealed, .table = table ? table->hex : NULL);
}

static void record_fail(struct cairn_up *up, struct cairn_up_save *save, bool with_begin) {
    CAIRN_AUTO_JSON json_t *begin = cairn_up_save_begin_record(save);
    CAIRN_AUTO_JSON json_t *fail = CAIRN_PACK(record_fail, CAIRN_PACK_WHY(&save->why, reason));
    struct cairn_up_record records[2] = {{.entry = save->entry, .message = begin},
                                         {.entry = save->entry, .message = fail}};
    size_t first = with_begin ? 0 : 1;
    cairn_up_journal_note(up->journal, &records[first], 2 - first);
    cairn_up_journal_hurry(up->journal); /* the trainer has its refusal, and will not repeat it */
}

/* Answers a waiting request: with take_message when why is NULL, otherwise with a refusal. */
static void answer(struct cairn_up *up, struct cairn_up_reply *take_reply, json_t *take_message,
                   const struct cairn_error *why) {
    struct cairn_up_reply reply = *take_reply;
    *take_reply = (struct cairn_up_reply){0};
    if (reply.conn && !why) {
        cairn_up_mail_answer(up->mail, reply.conn, reply.request, take_message);
        return;
    }
    json_decref(take_message);
    if (reply.conn) cairn_up_mail_refuse(up->mail, reply.conn, reply.request, why);
}

/* Refuses a request when the save ended before its answer. */
static void refuse(struct cairn_up *up, const struct cairn_up_save *save,
                   struct cairn_up_reply *take_reply) {
    struct cairn_error why = save->why;
    if (why.code == CAIRN_OK)
        cairn_fail(&why, CAIRN_CONFLICT, "%s is committed already", save->place.id.text);
    answer(up, take_reply, NULL, &why);
}

static void say_verdict(struct cairn_up *up, const struct cairn_up_save *save) {
    if (!save->conn) return;
    cairn_up_mail_post(up->mail, save->conn,
                       CAIRN_PACK(verdict, .save = save->number,
                                  .state = cairn_up_end_text(save->end),
                                  CAIRN_PACK_WHY(&save->why, message)));
}

static void give_slab(struct cairn_up *up, struct cairn_up_save *save) {
    struct cairn_up_slab *slab = save->slab;
    save->slab = NULL;
    cairn_up_kept_give_locked(up, save, slab);
    if (slab->conn)
        cairn_up_mail_post(up->mail, slab->conn,
                           CAIRN_PACK(free, .slab = slab->index, .owner = save->state.owner));
    else
        cairn_up_slabs_sweep_locked(up);
}

/* Q19: HEADs every durable shard again. */
static void look_again(struct cairn_up *up, struct cairn_up_save *save) {
    for (size_t i = 0; i < save->state.shard_count; i++) {
        struct cairn_up_shard *shard = save->shards[i];
        if (cairn_up_save_state_shard_move(&save->state, &shard->phase,
                                           CAIRN_UP_SHARD_EVENT_UNKNOWN) &&
            cairn_up_shard_again(up->queue, shard))
            (void)cairn_up_save_state_shard_move(&save->state, &shard->phase,
                                                 CAIRN_UP_SHARD_EVENT_LOOK);
    }
}

/* save.h#1: the journal alone answers begin and seal. */
struct waiting { /* a save whose phase waits for a record */
    struct cairn_up *up;
    uint64_t entry;
};

static void record_written(void *owner, enum cairn_code code, const struct cairn_error *why) {
    struct waiting *waiting = owner;
    struct cairn_up *up = waiting->up;
    cairn_up_mail_begin(up->mail); /* a trainer waits for the answer now due */
    cairn_lock_take(&up->lock);
    struct cairn_up_save *save = cairn_up_save_find_locked(up, waiting->entry);
    enum cairn_up_phase phase = save ? save->state.phase : CAIRN_UP_PHASE_OVER;
    if (phase == CAIRN_UP_PHASE_BEGINNING) CAIRN_CRASHPOINT("uploader.begin.journaled");
    if (phase == CAIRN_UP_PHASE_SEALING) CAIRN_CRASHPOINT("uploader.seal.journaled");
    if (save && code != CAIRN_OK && save->why.code == CAIRN_OK) save->why = *why;
    if (save && save->table && phase == CAIRN_UP_PHASE_SEALING) save->table->written |= !code;
    if (save)
        cairn_up_save_event_locked(
            up, save, code == CAIRN_OK ? CAIRN_UP_EVENT_WRITTEN : CAIRN_UP_EVENT_UNWRITTEN);
    cairn_lock_give(&up->lock);
    cairn_up_mail_end(up->mail);
    free(waiting);
}

void cairn_up_save_unwritten(void *owner_up, uint64_t entry, const struct cairn_error *why) {
    struct cairn_up *up = owner_up;
    CAIRN_HOLD(&up->lock);
    struct cairn_up_save *save = cairn_up_save_find_locked(up, entry);
    if (!save || save->state.broken) return;
    cairn_log(ERROR, "save.unwritten", "run=%s step=%" PRIu64 " rank=%u version=%s cause=\"%s\"",
              save->attempt->run_text, save->place.step, save->rank, save->place.id.text,
              why->message);
    if (save->why.code == CAIRN_OK) save->why = *why;
    cairn_up_save_event_locked(up, save, CAIRN_UP_EVENT_UNWRITTEN);
}

enum cairn_code cairn_up_save_post_locked(struct cairn_up *up, struct cairn_up_save *save,
                                          const struct cairn_up_record *records, size_t count,
                                          struct cairn_error *err) {
    struct waiting *waiting = calloc(1, sizeof(*waiting));
    if (!waiting) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a journal record");
    *waiting = (struct waiting){up, save->entry};
    enum cairn_code code =
        cairn_up_journal_post(up->journal, records, count, record_written, waiting, err);
    if (code != CAIRN_OK) free(waiting);
    return code;
}

/* Measures once: a lost answer is repeated. */
static void measure_stall(struct cairn_up *up, struct cairn_up_save *save) {
    uint64_t now_us = cairn_mono_us(), described_us = save->described_us;
    if (!described_us) return;
    save->described_us = 0;
    cairn_metrics_observe(up->metrics, CAIRN_UP_METRIC(stage_duration_seconds),
                          now_us - described_us);
    if (!save->begun_us) return;
    cairn_metrics_observe(up->metrics, CAIRN_UP_METRIC(save_stall_seconds),
                          now_us - save->begun_us);
    save->stall_ms = (now_us - save->begun_us + 999) / 1000;
}

/* Carries out actions in the order of enum cairn_up_due, so that an answer precedes every event. */
static void carry_out(struct cairn_up *up, struct cairn_up_save *save, uint32_t due) {
    if (due & CAIRN_UP_DUE_RECORD_FAIL)
        record_fail(up, save, (due & CAIRN_UP_DUE_RECORD_BEGIN) != 0);
    if (due & CAIRN_UP_DUE_ANSWER_BEGIN)
        answer(up, &save->begin_reply, cairn_up_save_begun(save), NULL);
    if (due & CAIRN_UP_DUE_ANSWER_COUNT) answer(up, &save->begin_reply, CAIRN_PACK(ok, 0), NULL);
    if (due & CAIRN_UP_DUE_REFUSE_BEGIN) {
        refuse(up, save, &save->begin_reply);
        save->conn = 0; /* refused without a save number, so no event can follow */
    }
    if (due & CAIRN_UP_DUE_ANSWER_SEAL) measure_stall(up, save);
    if (due & CAIRN_UP_DUE_ANSWER_SEAL)
        answer(up, &save->seal_reply, cairn_up_save_sealed(save), NULL);
    if (due & CAIRN_UP_DUE_ANSWER_SEAL) cairn_up_wakeup_raise(&up->partner_work);
    if (due & CAIRN_UP_DUE_REFUSE_SEAL) refuse(up, save, &save->seal_reply);
    if (due & CAIRN_UP_DUE_VERDICT) say_verdict(up, save);
    if (due & CAIRN_UP_DUE_ANSWER_FAIL) {
        struct cairn_error why = {0};
        cairn_fail(&why, CAIRN_ALREADY_COMMITTED, "%s is committed; it can no longer fail",
                   save->place.id.text);
        answer(up, &save->fail_reply, CAIRN_PACK(ok, 0),
               save->end == CAIRN_UP_COMMITTED ? &why : NULL);
    }
    if (due & CAIRN_UP_DUE_GIVE_UP_SHARDS) {
        for (size_t i = 0; i < save->state.shard_count; i++) {
            if (save->shards[i]->phase == CAIRN_UP_SHARD_SENDING)
                cairn_up_shard_give_up(up->queue, save->shards[i], &save->why);
        }
    }
    if (due & CAIRN_UP_DUE_REPORT) cairn_up_wakeup_raise(&up->outbox_work);
    if (due & CAIRN_UP_DUE_LOOK_AGAIN) look_again(up, save);
    if ((due & CAIRN_UP_DUE_SAY_DURABLE) && save->conn)
        cairn_up_mail_post(up->mail, save->conn, CAIRN_PACK(durable, .save = save->number));
    if (due & CAIRN_UP_DUE_FREE_SLAB) give_slab(up, save);
    if (!(due & CAIRN_UP_DUE_CLOSE)) return;
    CAIRN_CRASHPOINT("uploader.over.before_close");
    if (!save->state.unjournaled)
        cairn_up_journal_close(up->journal, save->entry,
                               CAIRN_PACK(record_over, .end = cairn_up_end_text(save->end)));
    cairn_up_save_drop_locked(up, save);
    cairn_condition_broadcast(&up->changed);
}

/* True when all shards pass the test. Starts at the shard that last failed it: shards pass one by
 * one, each with a check, so that a scan of 65,536 files each time would be quadratic. */
static bool all_are(struct cairn_up *up, const struct cairn_up_save *save, size_t *at,
                    bool (*is)(struct cairn_up_queue *queue, const struct cairn_up_shard *shard)) {
    size_t count = save->state.shard_count;
    for (size_t i = 0; i < count; i++) {
        size_t shard = (*at + i) % count;
        if (is(up->queue, save->shards[shard])) continue;
        *at = shard;
        return false;
    }
    return true;
}

/* ---- streams' memory, which a helper unmaps: that may free gigabytes ---- */

struct streams {
    size_t count;
    struct cairn_slab memory[];
};

static void streams_free(void *owner) {
    struct streams *streams = owner;
    for (size_t i = 0; i < streams->count; i++) cairn_slab_release(&streams->memory[i]);
    free(streams);
}

static void free_streams_task(struct cairn_up_helper *helper, void *owner) {
    (void)helper;
    streams_free(owner);
}

static void release_streams(struct cairn_up *up, struct cairn_up_save *save) {
    struct streams *taken =
        calloc(1, sizeof(*taken) + save->stream_count * sizeof(struct cairn_slab));
    save->streams_released = true;
    for (size_t i = 0; i < save->state.shard_count; i++) {
        struct cairn_slab memory = cairn_up_shard_take_stream(up->queue, save->shards[i]);
        if (taken && memory.data)
            taken->memory[taken->count++] = memory;
        else
            cairn_slab_release(&memory);
    }
    if (taken && (!up->tasks || cairn_up_tasks_add(up->tasks, free_streams_task, streams_free,
                                                   taken, NULL) != CAIRN_OK))
        streams_free(taken);
}

void cairn_up_save_settle_locked(struct cairn_up *up, struct cairn_up_save *save) {
    bool quiet =
        all_are(up, save, &save->unquiet, cairn_up_shard_is_quiet) && !save->partner.reading;
    bool ended = all_are(up, save, &save->unended, cairn_up_shard_has_ended);
    quiet |= !CAIRN_RULE(Q20);
    uint32_t due = cairn_up_save_state_settle(&save->state, quiet, quiet && ended);
    bool needed = cairn_up_save_state_needs_slab(&save->state) || !quiet;
    if (save->stream_count && !needed && !save->streams_released) release_streams(up, save);
    carry_out(up, save, due);
}

void cairn_up_save_event_locked(struct cairn_up *up, struct cairn_up_save *save,
                                enum cairn_up_event event) {
    carry_out(up, save, cairn_up_save_state_move(&save->state, event));
    cairn_up_save_settle_locked(up, save);
}

bool cairn_up_save_slab_take_locked(struct cairn_up_save *save, struct cairn_up_slab *slab) {
    if (!cairn_up_slab_state_take(&slab->state, save->state.owner)) return false;
    cairn_up_kept_forget_locked(slab);
    CAIRN_ASSERT(!save->slab || save->slab == slab);
    save->slab = slab;
    save->state.holds_slab = true;
    return true;
}

void cairn_up_save_store_error(struct cairn_up *up, uint64_t entry, const char *shard,
                               uint32_t part, const struct cairn_error *why) {
    CAIRN_HOLD(&up->lock);
    struct cairn_up_save *save = cairn_up_save_find_locked(up, entry);
    char text[sizeof(why->message) + 300];
    if (!save) return;
    snprintf(text, sizeof(text), "shard %.256s: %s", shard, why->message);
    cairn_utf8_shorten(save->store_error, sizeof(save->store_error), text);
    cairn_up_errors_add(&save->errors, shard, part, why->message, cairn_mono_ms());
}

void cairn_up_save_fail_locked(struct cairn_up *up, struct cairn_up_save *save,
                               enum cairn_code code, const char *reason) {
    struct cairn_error why = {0};
    cairn_fail(&why, code, "%s", reason);
    cairn_up_save_fail_for_locked(up, save, &why);
}

void cairn_up_save_fail_for_locked(struct cairn_up *up, struct cairn_up_save *save,
                                   const struct cairn_error *cause) {
    if (cairn_up_save_state_is_failing(&save->state) || save->state.phase == CAIRN_UP_PHASE_OVER)
        return;
    struct cairn_error why = *cause; /* cause may be the save's own field */
    save->why = why;
    cairn_log(WARN, "save.failed", "run=%s step=%" PRIu64 " rank=%u version=%s cause=\"%s\"",
              save->attempt->run_text, save->place.step, save->rank, save->place.id.text,
              why.message);
    cairn_up_save_event_locked(up, save, CAIRN_UP_EVENT_FAIL);
}

void cairn_up_save_over_locked(struct cairn_up *up, struct cairn_up_save *save,
                               enum cairn_up_end end, enum cairn_code code, const char *message) {
    struct cairn_error why = {0};
    cairn_fail(&why, code, "%s", message);
    cairn_up_save_end_locked(up, save, end, &why);
}

void cairn_up_save_end_locked(struct cairn_up *up, struct cairn_up_save *save,
                              enum cairn_up_end end, const struct cairn_error *cause) {
    if (save->state.phase == CAIRN_UP_PHASE_OVER) return;
    struct cairn_error why = {0};
    if (end != CAIRN_UP_COMMITTED) why = *cause; /* cause may be the save's own field */
    save->end = end;
    save->why = why;
    if (save->begun_us)
        cairn_metrics_observe(
            up->metrics, (struct cairn_metric_at){CAIRN_UP_METRIC_save_duration_seconds, end, 0},
            cairn_mono_us() - save->begun_us);
    if (end == CAIRN_UP_COMMITTED)
        cairn_log(INFO, "save.committed", "run=%s step=%" PRIu64 " rank=%u version=%s",
                  save->attempt->run_text, save->place.step, save->rank, save->place.id.text);
    else
        cairn_log(WARN, "save.over",
                  "run=%s step=%" PRIu64 " rank=%u version=%s end=%s cause=\"%s\"",
                  save->attempt->run_text, save->place.step, save->rank, save->place.id.text,
                  cairn_up_end_text(end), why.message);
    cairn_up_kept_ended_locked(up, save);
    cairn_up_save_event_locked(
        up, save, end == CAIRN_UP_COMMITTED ? CAIRN_UP_EVENT_COMMITTED : CAIRN_UP_EVENT_ENDED);
}

void cairn_up_save_report_again_locked(struct cairn_up *up, struct cairn_up_save *save) {
    if (cairn_up_save_state_unknown(&save->state) || !CAIRN_RULE(Q47)) look_again(up, save);
    cairn_up_wakeup_raise(&up->outbox_work);
}

bool cairn_up_save_is_staged_in(const struct cairn_up_save *save,
                                const struct cairn_up_slab *slab) {
    return save->staged_in.bytes == slab->memory.size_bytes &&
           save->staged_in.device == slab->memory.device &&
           save->staged_in.inode == slab->memory.inode;
}

void cairn_up_save_settle(struct cairn_up *up, uint64_t entry) {
    CAIRN_HOLD(&up->lock);
    struct cairn_up_save *save = cairn_up_save_find_locked(up, entry);
    if (save) cairn_up_save_settle_locked(up, save);
}

void cairn_up_save_free_all(struct cairn_up *up) {
    CAIRN_HOLD(&up->lock);
    for (size_t i = 0; i < up->locked.save_count; i++) {
        struct cairn_up_save *save = up->locked.saves[i];
        if (save->slab) cairn_up_slab_state_give(&save->slab->state, save->state.owner);
        save_free(up, save);
    }
    free(up->locked.saves);
    up->locked.saves = NULL;
    up->locked.save_count = up->locked.save_capacity = 0;
}

/* Streams that the trainer has not brought to this process come from the partner, or never. */
static void leave(struct cairn_up *up, struct cairn_up_save *save) {
    for (size_t i = 0; save->stream_count && i < save->state.shard_count; i++)
        if (!save->partner.node[0]) cairn_up_shard_unawait(up->queue, save->shards[i]);
    cairn_up_save_event_locked(up, save, CAIRN_UP_EVENT_LEFT);
}

void cairn_up_save_orphan_locked(struct cairn_up *up, uint64_t conn, bool said_bye) {
    for (size_t i = up->locked.save_count; i-- > 0;) {
        if (i >= up->locked.save_count) continue; /* an earlier fail may have ended saves */
        struct cairn_up_save *save = up->locked.saves[i];
        if (save->conn != conn) continue;
        save->conn = 0;
        save->begin_reply = save->seal_reply = save->fail_reply = (struct cairn_up_reply){0};
        enum cairn_up_phase phase = save->state.phase;
        if (phase == CAIRN_UP_PHASE_BEGINNING || phase == CAIRN_UP_PHASE_OPEN)
            cairn_up_save_fail_locked(up, save, CAIRN_SOURCE_GONE,
                                      "the trainer went away before it had sealed the save");
        else if (save->abort_on_disconnect && !said_bye)
            cairn_up_save_fail_locked(up, save, CAIRN_CANCELLED,
                                      "the trainer went away without a bye, and its saves do not "
                                      "outlive it (on_disconnect)");
        else
            leave(up, save);
    }
}

uint64_t cairn_up_save_unfinished(struct cairn_up *up, uint64_t *ret_open) {
    CAIRN_HOLD(&up->lock);
    uint64_t count = 0, open = 0;
    for (size_t i = 0; i < up->locked.save_count; i++) {
        const struct cairn_up_save_state *state = &up->locked.saves[i]->state;
        bool staging = state->phase == CAIRN_UP_PHASE_BEGINNING ||
                       state->phase == CAIRN_UP_PHASE_OPEN ||
                       state->phase == CAIRN_UP_PHASE_SEALING;
        if (!staging) open++;
        if (cairn_up_save_state_is_unfinished(state)) count++;
    }
    if (ret_open) *ret_open = open;
    return count;
}

/* Joins acknowledgements of files, lest a tree of small files send a frame each. */
static void say_of_files(struct cairn_up *up, struct cairn_up_save *save, uint64_t bytes) {
    uint64_t now_ms = cairn_mono_ms();
    save->unsaid_bytes += bytes;
    if (now_ms < save->said_ms + FILES_SAY_MS) return;
    cairn_up_mail_post(up->mail, save->conn,
                       CAIRN_PACK(released, .save = save->number, .shard = UINT32_MAX,
                                  .bytes = save->unsaid_bytes));
    save->unsaid_bytes = 0;
    save->said_ms = now_ms;
}

void cairn_up_save_part_acked(struct cairn_up *up, uint64_t entry, uint32_t index,
                              const struct cairn_up_acked *acked) {
    CAIRN_HOLD(&up->lock);
    struct cairn_up_save *save = cairn_up_save_find_locked(up, entry);
    if (!save || !save->conn) return;
    bool staged = !save->shards[index]->is_file && !save->shards[index]->is_stream;
    if (!staged) say_of_files(up, save, acked->bytes);
    if (!staged || index < save->stage_first) return;
    cairn_up_mail_post(up->mail, save->conn,
                       CAIRN_PACK(released, .save = save->number,
                                  .shard = index - (uint32_t)save->stage_first,
                                  .offset = acked->offset, .bytes = acked->bytes,
                                  .link_us = acked->link_us, .store_us = acked->store_us));
}

void cairn_up_save_shard_ended(struct cairn_up *up, uint64_t entry, uint32_t index,
                               const struct cairn_error *why) {
    CAIRN_HOLD(&up->lock);
    struct cairn_up_save *save = cairn_up_save_find_locked(up, entry);
    if (!save) return;
    struct cairn_up_shard *shard = save->shards[index];
    (void)cairn_up_save_state_shard_move(&save->state, &shard->phase,
                                         why ? CAIRN_UP_SHARD_EVENT_FAILED
                                             : CAIRN_UP_SHARD_EVENT_STORED);
    if (!why) {
        cairn_up_wakeup_raise(&up->outbox_work);
        return;
    }
    struct cairn_error told = *why;
    cairn_within(&told, told.code, "shard %s", shard->name);
    cairn_up_save_fail_for_locked(up, save, &told);
}

/* ---- rank tables ---- */

/* A list suffices: tables are as few as ranks and open saves, and only the start looks one up. */

static void table_free(struct cairn_up_table *table) {
    cairn_buf_release(&table->bytes);
    free(table);
}

enum cairn_code cairn_up_table_new_locked(struct cairn_up *up, struct cairn_view bytes,
                                          uint64_t entry, struct cairn_up_table **ret,
                                          struct cairn_error *err) {
    struct cairn_table opened;
    uint8_t digest[32];
    CAIRN_TRY(cairn_table_open(bytes, &opened, err));
    struct cairn_up_table *table = calloc(1, sizeof(*table));
    if (!table) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a rank's table");
    *table = (struct cairn_up_table){.entry = entry, .rank = opened.rank, .users = 1};
    table->bytes.limit = CAIRN_TABLE_BYTES_MAX;
    enum cairn_code code = cairn_buf_append(&table->bytes, bytes.data, bytes.size, err);
    if (code != CAIRN_OK) {
        table_free(table);
        return code;
    }
    cairn_table_digest(bytes, digest);
    cairn_hex_encode(digest, sizeof(digest), table->hex);
    table->next = up->locked.tables;
    up->locked.tables = table;
    *ret = table;
    return CAIRN_OK;
}

struct cairn_up_table *cairn_up_table_find_locked(struct cairn_up *up, const char *hex) {
    for (struct cairn_up_table *table = up->locked.tables; table; table = table->next)
        if (table->written && !strcmp(table->hex, hex)) return table;
    return NULL;
}

json_t *cairn_up_table_record(const struct cairn_up_table *table) {
    return CAIRN_PACK(record_table, .table = table->hex);
}

struct cairn_up_table *cairn_up_table_use(struct cairn_up_table *table) {
    CAIRN_ASSERT(table->users < UINT32_MAX);
    table->users++;
    return table;
}

static void drop_table(struct cairn_up *up, struct cairn_up_table **place) {
    struct cairn_up_table *table = *place;
    CAIRN_ASSERT(!table->users);
    *place = table->next;
    if (table->entry) cairn_up_journal_close(up->journal, table->entry, CAIRN_PACK(record_over, 0));
    table_free(table);
}

void cairn_up_table_leave_locked(struct cairn_up *up, struct cairn_up_table **in_table) {
    struct cairn_up_table *table = *in_table, **place = &up->locked.tables;
    *in_table = NULL;
    if (!table) return;
    CAIRN_ASSERT(table->users > 0);
    if (--table->users) return;
    while (*place != table) place = &(*place)->next;
    drop_table(up, place);
}

void cairn_up_tables_sweep_locked(struct cairn_up *up) {
    for (struct cairn_up_table **place = &up->locked.tables; *place;) {
        if ((*place)->users)
            place = &(*place)->next;
        else
            drop_table(up, place);
    }
}

void cairn_up_tables_free_all(struct cairn_up *up) {
    CAIRN_HOLD(&up->lock);
    for (struct cairn_up_table *table = up->locked.tables, *next; table; table = next) {
        next = table->next;
        table_free(table);
    }
    up->locked.tables = NULL;
}

void cairn_up_errors_add(struct cairn_up_errors *errors, const char *shard, uint32_t part,
                         const char *text, uint64_t now_ms) {
    struct cairn_up_shard_error one = {.part = part, .tries = 1, .at_ms = now_ms};
    cairn_utf8_shorten(one.shard, sizeof(one.shard), shard);
    cairn_utf8_shorten(one.text, sizeof(one.text), text);
    size_t at = 0;
    for (; at < errors->count; at++)
        if (errors->items[at].part == part && !strcmp(errors->items[at].shard, one.shard)) break;
    if (at < errors->count) one.tries += errors->items[at].tries;
    if (at == errors->count && at < CAIRN_UP_ERRORS_MAX) errors->count++;
    if (at == CAIRN_UP_ERRORS_MAX) at--; /* replaces the oldest */
    memmove(&errors->items[1], &errors->items[0], at * sizeof(errors->items[0]));
    errors->items[0] = one;
    CAIRN_ASSERT(errors->count <= CAIRN_UP_ERRORS_MAX);
}

enum cairn_code cairn_up_begin_read(const json_t *json, const char *pointer,
                                    struct cairn_up_begin *ret, struct cairn_error *err) {
    CAIRN_TRY(cairn_msg_begin_read(json, pointer, &ret->told, err));
    if (!ret->told.n) return cairn_fail(err, CAIRN_INVALID, "%s/n counts from 1", pointer);
    return CAIRN_OK;
}

static enum cairn_code admit(struct cairn_up *up, const struct cairn_up_begin *begin,
                             struct cairn_error *err) {
    if (up->locked.draining)
        return cairn_fail(err, CAIRN_UNAVAILABLE, "the uploader of node %s is stopping",
                          up->places.node);
    if (begin->attempt->foreign.code != CAIRN_OK)
        return cairn_pass(err, begin->attempt->foreign.code, &begin->attempt->foreign);
    if (begin->attempt->stale)
        return cairn_fail(err, CAIRN_STALE_ATTEMPT,
                          "a newer attempt of %s has taken over from %" PRIu64,
                          begin->attempt->run_text, begin->attempt->grant.attempt);
    return CAIRN_OK;
}

/* Q8: when the journal cannot take the begin, now or later, refuses the rank; the server receives
 * from memory that the rank gives the save up, so that other ranks do not wait. */
static bool remember(struct cairn_up *up, struct cairn_up_save *save,
                     const struct cairn_up_record *records, size_t count) {
    struct cairn_error why = {0};
    if (cairn_up_save_post_locked(up, save, records, count, &why) == CAIRN_OK) return true;
    save->why = why;
    save->state.unjournaled = true;
    cairn_up_save_event_locked(up, save, CAIRN_UP_EVENT_UNWRITTEN);
    return false;
}

/* Finds another save of the same rank and version; there is at most one. */
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
        /* Q8: a begin may repeat after the uploader's restart. */
        if (!cairn_up_save_state_begins_again(&known->state) ||
            strcmp(known->proc, begin->proc) != 0)
            return cairn_fail(err, CAIRN_CONFLICT,
                              "step %" PRIu64 " (n %u) was begun already by rank %u",
                              begin->told.step, begin->told.n, begin->rank);
        known->conn = begin->conn;
        known->number = begin->number;
        known->state.trainer = CAIRN_UP_TRAINER_HERE;
        known->follows = begin->told.follow;
        known->decided = false; /* `decided` was not sent on this connection */
        cairn_up_mail_answer(up->mail, reply.conn, reply.request, cairn_up_save_begun(known));
        return CAIRN_OK;
    }
    save->begin_reply = reply;
    save->begun_us = cairn_mono_us();
    save->follows = begin->told.follow;
    CAIRN_AUTO_JSON json_t *message = cairn_up_save_begin_record(save);
    struct cairn_up_record record = {.entry = entry, .message = message};
    remember(up, save, &record, 1);
    return CAIRN_OK;
}

/* Journals begin and fail together. */
static void count_new(struct cairn_up *up, struct cairn_up_save *save,
                      const struct cairn_error *why, struct cairn_up_reply reply) {
    CAIRN_AUTO_JSON json_t *began = cairn_up_save_begin_record(save);
    CAIRN_AUTO_JSON json_t *failed = CAIRN_PACK(record_fail, CAIRN_PACK_WHY(why, reason));
    struct cairn_up_record records[2] = {{.entry = save->entry, .message = began},
                                         {.entry = save->entry, .message = failed}};
    save->begin_reply = reply;
    if (!remember(up, save, records, 2)) return;
    save->why = *why;
    /* The fail's record was posted with the begin's. The answer waits for the journal. */
    (void)cairn_up_save_state_move(&save->state, CAIRN_UP_EVENT_FAIL);
}

enum cairn_code cairn_up_save_abandoned_locked(struct cairn_up *up,
                                               const struct cairn_up_begin *begin,
                                               const struct cairn_error *why,
                                               struct cairn_error *err) {
    struct cairn_up_save *save = NULL;
    CAIRN_TRY(
        cairn_up_save_new_locked(up, cairn_up_journal_entry_new(up->journal), begin, &save, err));
    cairn_up_save_state_answered(&save->state, CAIRN_UP_REPORTED_BEGIN); /* the server named it */
    count_new(up, save, why, (struct cairn_up_reply){0});
    return CAIRN_OK;
}

/* Q44: cancels a known save, also after its seal; then the server's verdict is the answer. An
 * abandoned save (no request waits) stays as it is once sealed. */
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
