/* SPDX-License-Identifier: Apache-2.0 */
/* Collects records per entry first, since tokens and checksums follow the shards they belong to;
 * then builds saves, sessions and tables. */
#include "uploader/journal/recover.h"

#include <inttypes.h>
#include <stdlib.h>

#include "api/documents/records.h"
#include "api/table/table.h"
#include "api/wire/messages.h"
#include "common/buf.h"
#include "common/hooks.h"
#include "common/text.h"
#include "uploader/saves/save.h"

/* A part retried under one upload has several records. */
#define PARTS_MAX (1 << 20)

struct cairn_up_past_shard {
    char *name; /* owned */
    bool tensors, is_file, is_stream;
    uint64_t offset, bytes;
    bool intent, durable;
    char token[CAIRN_UUID_TEXT_BYTES];
    uint64_t part_bytes;
    char *upload_id;                /* owned; NULL: none */
    uint32_t *blocks;               /* owned; NULL: unknown */
    struct cairn_store_part *parts; /* owned: acknowledged under upload_id */
    size_t part_count, part_capacity;
};
/* One live entry. */
struct cairn_up_past {
    struct cairn_up_past *next;
    uint64_t entry;
    json_t *begin, *session, *seal, *fail;  /* owned; NULL: no such record */
    char table_hex[65];                     /* of a table's entry; "" */
    uint64_t device, inode, slab_bytes;     /* from the record `stage`; slab_bytes 0: none */
    uint64_t owner;                         /* from `stage`; 0: an older journal */
    char partner[CAIRN_NAME_BYTES_MAX + 1]; /* the node with a full copy; "" */
    struct cairn_up_past_shard *shards;     /* owned */
    size_t shard_count, shard_capacity, stage_first;
    struct cairn_buf table; /* of a table's entry, or of an older journal's seal */
    struct cairn_error bad; /* the first unreadable record, or CAIRN_OK */
    bool damaged;           /* the cause is damage to the journal */
};
struct cairn_up_recovery {
    struct cairn_up_past *first, **last;
};

enum cairn_code cairn_up_recovery_new(struct cairn_up_recovery **ret, struct cairn_error *err) {
    struct cairn_up_recovery *recovery = calloc(1, sizeof(*recovery));
    if (!recovery) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the recovery");
    recovery->last = &recovery->first;
    *ret = recovery;
    return CAIRN_OK;
}

static void drop_shards(struct cairn_up_past *past, bool staged_only) {
    size_t kept = 0;
    for (size_t i = 0; i < past->shard_count; i++) {
        struct cairn_up_past_shard *shard = &past->shards[i];
        if (staged_only && (shard->is_file || shard->is_stream)) {
            past->shards[kept++] = *shard;
            continue;
        }
        free(shard->name);
        free(shard->upload_id);
        free(shard->blocks);
        free(shard->parts);
    }
    past->shard_count = kept;
}

void cairn_up_recovery_free(struct cairn_up_recovery *recovery) {
    if (!recovery) return;
    for (struct cairn_up_past *past = recovery->first, *next; past; past = next) {
        next = past->next;
        drop_shards(past, false);
        free(past->shards);
        json_decref(past->begin);
        json_decref(past->session);
        json_decref(past->seal);
        json_decref(past->fail);
        cairn_buf_release(&past->table);
        free(past);
    }
    free(recovery);
}

static struct cairn_up_past *past_of(struct cairn_up_recovery *recovery, uint64_t entry) {
    for (struct cairn_up_past *past = recovery->first; past; past = past->next) {
        if (past->entry == entry) return past;
    }
    struct cairn_up_past *past = calloc(1, sizeof(*past));
    if (!past) return NULL;
    past->entry = entry;
    *recovery->last = past;
    recovery->last = &past->next;
    return past;
}

static enum cairn_code add_shard(struct cairn_up_past *past, const char *name, bool tensors,
                                 bool is_file, uint64_t offset, uint64_t bytes,
                                 struct cairn_error *err) {
    CAIRN_TRY(CAIRN_ARRAY_ROOM(past->shards, past->shard_count, past->shard_capacity,
                               CAIRN_UP_SHARDS_MAX, "shards of a save", err));
    char *copy = strdup(name);
    if (!copy) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the recovery");
    past->shards[past->shard_count++] = (struct cairn_up_past_shard){
        .name = copy, .tensors = tensors, .is_file = is_file, .offset = offset, .bytes = bytes};
    return CAIRN_OK;
}

static enum cairn_code replay_stage(struct cairn_up_past *past, const json_t *message,
                                    struct cairn_error *err) {
    struct cairn_msg_record_stage told = {0};
    CAIRN_TRY(cairn_msg_record_stage_read(message, "", &told, err));
    past->device = told.device;
    past->inode = told.inode;
    past->slab_bytes = told.bytes;
    past->owner = told.owner;
    if (past->owner && past->owner != past->entry)
        return cairn_fail(err, CAIRN_CORRUPT, "its stage record names owner %" PRIu64, past->owner);
    if (!told.more) {
        drop_shards(past, true); /* a new `stage` replaces everything before */
        past->stage_first = past->shard_count;
    }
    for (size_t i = 0; i < json_array_size(told.shards); i++) {
        struct cairn_msg_stage_shard shard = {0};
        CAIRN_TRY(
            cairn_msg_stage_shard_read(json_array_get(told.shards, i), "/shards", &shard, err));
        CAIRN_TRY(add_shard(past, shard.name, !strcmp(shard.kind, "tensors"), false, shard.offset,
                            shard.bytes, err));
    }
    return CAIRN_OK;
}

static enum cairn_code take_blocks(struct cairn_up_past_shard *shard, struct cairn_view blob,
                                   struct cairn_error *err) {
    uint64_t count = cairn_div_up(shard->bytes, CAIRN_BLOCK_BYTES);
    if (blob.size != 4 * count)
        return cairn_fail(err, CAIRN_CORRUPT,
                          "shard %s has %" PRIu64 " blocks, the journal %zu bytes of checksums",
                          shard->name, count, blob.size);
    free(shard->blocks);
    shard->blocks = malloc((size_t)(count + 1) * sizeof(*shard->blocks));
    if (!shard->blocks) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the recovery");
    for (uint64_t i = 0; i < count; i++)
        shard->blocks[i] = cairn_load_u32le((const uint8_t *)blob.data + 4 * i);
    return CAIRN_OK;
}

/* For stores that list parts without checksums: the ETag identifies an acknowledged part. Part of
 * "upload", which older programs read and ignore this. */
static enum cairn_code take_part(struct cairn_up_past_shard *shard, const json_t *message,
                                 struct cairn_error *err) {
    struct cairn_msg_record_part told = {.etag = ""};
    CAIRN_TRY(cairn_msg_record_part_read(message, "", &told, err));
    if (!told.part) return CAIRN_OK;
    struct cairn_store_part part = {
        .number = told.part, .size_bytes = told.bytes, .has_crc32c = true, .crc32c = told.crc32c};
    (void)cairn_text_copy(part.etag, sizeof(part.etag), told.etag);
    CAIRN_TRY(CAIRN_ARRAY_ROOM(shard->parts, shard->part_count, shard->part_capacity, PARTS_MAX,
                               "acknowledged parts of a shard", err));
    shard->parts[shard->part_count++] = part;
    return CAIRN_OK;
}

static enum cairn_code replay_upload(struct cairn_up_past_shard *shard, const json_t *message,
                                     struct cairn_error *err) {
    struct cairn_msg_record_upload told = {0};
    CAIRN_TRY(cairn_msg_record_upload_read(message, "", &told, err));
    if (!told.upload_id) return take_part(shard, message, err);
    free(shard->upload_id);
    shard->part_count = 0; /* the old parts belong to another upload */
    shard->upload_id = strdup(told.upload_id);
    return shard->upload_id ? CAIRN_OK
                            : cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the recovery");
}

static enum cairn_code take_table(struct cairn_up_past *past, struct cairn_view blob,
                                  struct cairn_error *err) {
    past->table.limit = CAIRN_TABLE_BYTES_MAX;
    return blob.size ? cairn_buf_append(&past->table, blob.data, blob.size, err) : CAIRN_OK;
}

static enum cairn_code replay_one(struct cairn_up_past *past,
                                  const struct cairn_up_replayed *record, struct cairn_error *err) {
    const char *name = record->name;
    if (!strcmp(name, "stage")) return replay_stage(past, record->message, err);
    if (!strcmp(name, "file")) {
        struct cairn_msg_record_file told = {0};
        CAIRN_TRY(cairn_msg_record_file_read(record->message, "", &told, err));
        CAIRN_TRY(add_shard(past, told.name, false, !told.inode, 0, told.bytes, err));
        past->shards[past->shard_count - 1].is_stream = told.inode != 0;
        return CAIRN_OK;
    }
    if (!strcmp(name, "table")) {
        struct cairn_msg_record_table told = {0};
        CAIRN_TRY(cairn_msg_record_table_read(record->message, "", &told, err));
        (void)cairn_text_copy(past->table_hex, sizeof(past->table_hex), told.table);
        return take_table(past, record->blob, err);
    }
    if (!strcmp(name, "intent") || !strcmp(name, "upload") || !strcmp(name, "blocks") ||
        !strcmp(name, "durable")) {
        struct cairn_msg_record_intent told = {0};
        CAIRN_TRY(cairn_msg_record_intent_read(record->message, "", &told, err));
        if (told.s >= past->shard_count)
            return cairn_fail(err, CAIRN_CORRUPT,
                              "record %s of shard %" PRIu64 ", which was never staged",
                              record->name, told.s);
        struct cairn_up_past_shard *shard = &past->shards[told.s];
        if (!strcmp(record->name, "blocks")) return take_blocks(shard, record->blob, err);
        if (!strcmp(record->name, "upload")) return replay_upload(shard, record->message, err);
        shard->durable |= !strcmp(record->name, "durable");
        if (told.partner) (void)cairn_text_copy(past->partner, sizeof(past->partner), told.partner);
        if (!told.token) return CAIRN_OK;
        shard->intent = true;
        shard->part_bytes = told.part_bytes;
        (void)cairn_text_copy(shard->token, sizeof(shard->token), told.token);
        return CAIRN_OK;
    }
    json_t **place = !strcmp(name, "begin")     ? &past->begin
                     : !strcmp(name, "session") ? &past->session
                     : !strcmp(name, "seal")    ? &past->seal
                     : !strcmp(name, "fail")    ? &past->fail
                                                : NULL;
    if (!place) return cairn_newer(err, "one that knows the journal's record \"%.32s\"", name);
    json_decref(*place);
    *place = json_incref(record->message);
    return strcmp(name, "seal") != 0 ? CAIRN_OK : take_table(past, record->blob, err);
}

enum cairn_code cairn_up_recovery_replay(void *owner, const struct cairn_up_replayed *record,
                                         struct cairn_error *err) {
    struct cairn_up_past *past = past_of(owner, record->entry);
    if (!past) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the recovery");
    if (!strcmp(record->name, CAIRN_UP_RECORD_DAMAGED)) { /* outranks any other error */
        past->damaged = true;
        (void)!cairn_fail(&past->bad, CAIRN_CORRUPT,
                          "the journal is damaged where records of it stood");
    }
    if (past->bad.code != CAIRN_OK) return CAIRN_OK;
    /* Q45: only this entry is set aside. */
    (void)replay_one(past, record, &past->bad);
    return past->bad.code == CAIRN_NO_MEMORY
               ? cairn_fail(err, CAIRN_NO_MEMORY, "%s", past->bad.message)
               : CAIRN_OK;
}

#define TICK_MS_MAX 1000

/* True for a save sent for another node (Q57): it has no slab here. */
static bool is_of_partner(const struct cairn_up_past *past) {
    return past->owner && !past->inode;
}

/* A file's descriptor died with the old process; a stream's trainer has its own. Bytes that a
 * partner has, or that this node sends for another, may come back (Q57), so these wait. */
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
    struct cairn_up_shard_options options = {
        .name = past->name,
        .tensors = past->tensors,
        .slab_offset = past->offset,
        .size_bytes = past->bytes,
        .take_fd = -1,
        .is_stream = past->is_stream,
        .token = past->intent ? past->token : NULL,
        .part_bytes = past->part_bytes,
    };
    const struct cairn_up_shard_past journaled = {
        .intent = past->intent,
        .durable = past->durable,
        .upload_id = past->upload_id,
        .blocks = past->blocks,
        .source_wait = wait,
        .parts = past->parts,
        .part_count = past->part_count,
    };
    return cairn_up_save_shard_new_locked(up, save, &options, &journaled, err);
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
        if (past->shards[i].intent || past->shards[i].is_file || past->shards[i].is_stream)
            return true;
    }
    return false;
}

/* Shards of `stage`, which are adjacent. */
static size_t staged_count(const struct cairn_up_past *past) {
    size_t count = 0;
    for (size_t i = 0; i < past->shard_count; i++)
        count += !past->shards[i].is_file && !past->shards[i].is_stream;
    return count;
}

static bool has_files(const struct cairn_up_past *past) {
    for (size_t i = 0; i < past->shard_count; i++) {
        if (past->shards[i].is_file) return true;
    }
    return false;
}

static void build_fail(struct cairn_up *up, struct cairn_up_save *save, const json_t *fail) {
    cairn_failure_get(fail, "reason", &save->why);
    if (!save->why.code) save->why.code = CAIRN_CANCELLED;
    for (size_t i = 0; i < save->state.shard_count; i++)
        cairn_up_shard_give_up(up->queue, save->shards[i], &save->why);
}

static enum cairn_code fill_save(struct cairn_up *up, const struct cairn_up_past *past,
                                 struct cairn_up_save *save, struct cairn_error *err) {
    if (past->bad.code != CAIRN_OK) return cairn_pass(err, past->bad.code, &past->bad);
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
        CAIRN_TRY(
            build_shard(up, save, &past->shards[i], wait_of(save, past, &past->shards[i]), err));
    save->stage_first = past->stage_first;
    save->stage_count = keep ? staged_count(past) : 0;
    save->staged_in.device = past->device;
    save->staged_in.inode = past->inode;
    save->staged_in.bytes = past->slab_bytes;
    if (past->seal) CAIRN_TRY(build_seal(up, save, past, err));
    /* Checks uploads begun on the store, to finish or abort them. */
    for (size_t i = 0; i < save->state.shard_count; i++) {
        if (past->seal || past->shards[i].intent) cairn_up_queue_add(up->queue, save->shards[i]);
    }
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

/* Q45: only a save with unreadable records fails by name at the server. */
static enum cairn_code build_save(struct cairn_up *up, const struct cairn_up_past *past,
                                  struct cairn_error *err) {
    struct cairn_up_save *save = NULL;
    struct cairn_error why = {0};
    struct cairn_msg_record_begin told = {0};
    struct cairn_msg_begin_place place = {0};
    CAIRN_TRY(cairn_msg_record_begin_read(past->begin, "", &told, err));
    CAIRN_TRY(cairn_msg_begin_place_read(told.body, "/body", &place, err));
    struct cairn_up_begin begin = {.grant_text = told.grant,
                                   .proc = told.proc,
                                   .trace = told.traceparent,
                                   .rank = (uint32_t)place.rank,
                                   .world_size = (uint32_t)place.world_size,
                                   .of_partner = is_of_partner(past)};
    CAIRN_TRY(cairn_up_begin_read(told.body, "/body", &begin, err));
    begin.told.abort_on_disconnect = told.abort_on_disconnect;
    CAIRN_TRY(cairn_up_save_new_locked(up, past->entry, &begin, &save, err));
    const struct cairn_up_save_past open = {0};
    cairn_up_save_state_recover(past->entry, &open, &save->state);
    enum cairn_code code = fill_save(up, past, save, &why);
    if (code == CAIRN_OK) return CAIRN_OK;
    (void)cairn_within(&why, code, "the journal's records of it cannot be used");
    cairn_up_save_fail_for_locked(up, save, &why);
    return cairn_pass(err, code, &why);
}

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

/* The sweep drops tables that no save names, once all saves are built. */
static enum cairn_code build_table(struct cairn_up *up, const struct cairn_up_past *past,
                                   struct cairn_error *err) {
    struct cairn_up_table *table = NULL;
    struct cairn_view bytes = cairn_buf_view(&past->table);
    CAIRN_TRY(cairn_up_table_new_locked(up, bytes, past->entry, &table, err));
    table->users = 0;
    table->written = !strcmp(table->hex, past->table_hex);
    return table->written
               ? CAIRN_OK
               : cairn_fail(err, CAIRN_CORRUPT, "table %s has another digest", past->table_hex);
}

/* Refuses to start: setting the entry aside would fail a save that a newer uploader can finish. */
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

/* A damaged session is usable: at most its `bye` is lost. */
static enum cairn_code build_entry(struct cairn_up *up, const struct cairn_up_past *past,
                                   struct cairn_error *err) {
    if (past->table_hex[0] && past->bad.code == CAIRN_OK) return CAIRN_OK; /* built already */
    if (past->begin) return build_save(up, past, err);
    if (past->session && (past->bad.code == CAIRN_OK || past->damaged))
        return build_session(up, past, err);
    if (past->damaged) {
        /* The entry has no owner, so it is closed: no restart could use it. A live trainer offers
         * its saves and receives their outcome (UR4). */
        cairn_up_journal_close(up->journal, past->entry, CAIRN_PACK(record_over, 0));
    }
    if (past->bad.code == CAIRN_OK)
        return cairn_fail(err, CAIRN_CORRUPT, "its first record is not there");
    return cairn_pass(err, past->bad.code, &past->bad);
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

/* UR1: time while this process was suspended does not count. */
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
    cairn_up_wakeup_raise(&up->partner_work); /* the partner sends what no trainer offered */
    if (up->locked.draining) return;          /* the next start waits again */
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
