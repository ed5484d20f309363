/* SPDX-License-Identifier: Apache-2.0 */
/* Records are collected per entry first: tokens and checksums come after the shards they are of. */
#include "uploader/recover/recover.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "api/documents/records.h"
#include "api/table/table.h"
#include "api/wire/messages.h"
#include "common/buf.h"
#include "common/log.h"
#include "common/text.h"
#include "uploader/recover/inside.h"
#include "uploader/saves/save.h"

/* A part that was sent again under the same upload has more than one record. */
#define PARTS_MAX (1 << 20)

/* ---- collecting ---- */

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
        if (staged_only && shard->is_file) {
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
        drop_shards(past, true); /* staged again: what came before counts no more */
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

static enum cairn_code replay_file(struct cairn_up_past *past, const json_t *message,
                                   struct cairn_error *err) {
    struct cairn_msg_record_file told = {0};
    CAIRN_TRY(cairn_msg_record_file_read(message, "", &told, err));
    return add_shard(past, told.name, false, true, 0, told.bytes, err);
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

/* Written where a store lists parts without their checksums: what it acknowledged is known again by
 * the ETag that it gave. Part of "upload", which older programs read without that. */
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
    shard->part_count = 0; /* those were another upload's */
    shard->upload_id = strdup(told.upload_id);
    return shard->upload_id ? CAIRN_OK
                            : cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the recovery");
}

static enum cairn_code replay_shard(struct cairn_up_past *past,
                                    const struct cairn_up_replayed *record,
                                    struct cairn_error *err) {
    struct cairn_msg_record_intent told = {0};
    CAIRN_TRY(cairn_msg_record_intent_read(record->message, "", &told, err));
    if (told.s >= past->shard_count)
        return cairn_fail(err, CAIRN_CORRUPT,
                          "record %s of shard %" PRIu64 ", which was never staged", record->name,
                          told.s);
    struct cairn_up_past_shard *shard = &past->shards[told.s];
    if (!strcmp(record->name, "blocks")) return take_blocks(shard, record->blob, err);
    if (!strcmp(record->name, "upload")) return replay_upload(shard, record->message, err);
    shard->durable |= !strcmp(record->name, "durable");
    if (told.partner)
        (void)cairn_text_copy(past->partner, sizeof(past->partner), told.partner);
    if (!told.token) return CAIRN_OK;
    shard->intent = true;
    shard->part_bytes = told.part_bytes;
    (void)cairn_text_copy(shard->token, sizeof(shard->token), told.token);
    return CAIRN_OK;
}

static enum cairn_code take_table(struct cairn_up_past *past, struct cairn_view blob,
                                  struct cairn_error *err) {
    past->table.limit = CAIRN_TABLE_BYTES_MAX;
    return blob.size ? cairn_buf_append(&past->table, blob.data, blob.size, err) : CAIRN_OK;
}

static enum cairn_code replay_table(struct cairn_up_past *past,
                                    const struct cairn_up_replayed *record,
                                    struct cairn_error *err) {
    struct cairn_msg_record_table told = {0};
    CAIRN_TRY(cairn_msg_record_table_read(record->message, "", &told, err));
    (void)cairn_text_copy(past->table_hex, sizeof(past->table_hex), told.table);
    return take_table(past, record->blob, err);
}

static enum cairn_code replay_one(struct cairn_up_past *past,
                                  const struct cairn_up_replayed *record, struct cairn_error *err) {
    const char *name = record->name;
    if (!strcmp(name, "stage")) return replay_stage(past, record->message, err);
    if (!strcmp(name, "file")) return replay_file(past, record->message, err);
    if (!strcmp(name, "table")) return replay_table(past, record, err);
    if (!strcmp(name, "intent") || !strcmp(name, "upload") || !strcmp(name, "blocks") ||
        !strcmp(name, "durable"))
        return replay_shard(past, record, err);
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
    if (!strcmp(record->name, CAIRN_UP_RECORD_DAMAGED)) { /* whatever else does not fit then */
        past->damaged = true;
        (void)!cairn_fail(&past->bad, CAIRN_CORRUPT,
                          "the journal is damaged where records of it stood");
    }
    if (past->bad.code != CAIRN_OK) return CAIRN_OK;
    /* Q45: this entry is set aside, the others start. */
    (void)replay_one(past, record, &past->bad);
    return past->bad.code == CAIRN_NO_MEMORY
               ? cairn_fail(err, CAIRN_NO_MEMORY, "%s", past->bad.message)
               : CAIRN_OK;
}
