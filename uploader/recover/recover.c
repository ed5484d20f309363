/* SPDX-License-Identifier: Apache-2.0 */
/* Records are collected per entry first: tokens and checksums come after the shards they are of. */
#include "uploader/recover/recover.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/encode.h"
#include "common/log.h"
#include "common/text.h"
#include "uploader/recover/inside.h"
#include "uploader/saves/save.h"

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
    void *grown = realloc(past->shards, (past->shard_count + 1) * sizeof(*past->shards));
    char *copy = strdup(name);
    if (grown) past->shards = grown;
    if (!grown || !copy) {
        free(copy);
        return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the recovery");
    }
    past->shards[past->shard_count++] = (struct cairn_up_past_shard){
        .name = copy, .tensors = tensors, .is_file = is_file, .offset = offset, .bytes = bytes};
    return CAIRN_OK;
}

static enum cairn_code replay_stage(struct cairn_up_past *past, const json_t *message,
                                    struct cairn_error *err) {
    json_t *shards = NULL;
    const struct cairn_json_field fields[] = {
        {"device", CAIRN_JSON_U64, true, &past->device, 0},
        {"inode", CAIRN_JSON_U64, true, &past->inode, 0},
        {"bytes", CAIRN_JSON_U64, true, &past->slab_bytes, 0},
        {"owner", CAIRN_JSON_U64, false, &past->owner, 0},
        {"shards", CAIRN_JSON_ARRAY, true, &shards, 0},
    };
    CAIRN_TRY(cairn_json_read(message, "", fields, CAIRN_COUNT(fields), true, err));
    if (past->owner && past->owner != past->entry)
        return cairn_fail(err, CAIRN_CORRUPT, "its stage record names owner %" PRIu64, past->owner);
    drop_shards(past, true); /* staged again: what came before counts no more */
    past->stage_first = past->shard_count;
    for (size_t i = 0; i < json_array_size(shards); i++) {
        const char *name = NULL, *kind = NULL;
        uint64_t offset = 0, bytes = 0;
        const struct cairn_json_field item[] = {
            {"name", CAIRN_JSON_TEXT, true, &name, CAIRN_SHARD_NAME_BYTES_MAX},
            {"kind", CAIRN_JSON_TEXT, true, &kind, 16},
            {"offset", CAIRN_JSON_U64, true, &offset, 0},
            {"bytes", CAIRN_JSON_U64, true, &bytes, 0},
        };
        CAIRN_TRY(cairn_json_read(json_array_get(shards, i), "/shards", item, CAIRN_COUNT(item),
                                  true, err));
        CAIRN_TRY(add_shard(past, name, !strcmp(kind, "tensors"), false, offset, bytes, err));
    }
    return CAIRN_OK;
}

static enum cairn_code replay_file(struct cairn_up_past *past, const json_t *message,
                                   struct cairn_error *err) {
    const char *name = NULL;
    uint64_t bytes = 0;
    const struct cairn_json_field fields[] = {
        {"name", CAIRN_JSON_TEXT, true, &name, CAIRN_SHARD_NAME_BYTES_MAX},
        {"bytes", CAIRN_JSON_U64, true, &bytes, 0},
    };
    CAIRN_TRY(cairn_json_read(message, "", fields, CAIRN_COUNT(fields), true, err));
    return add_shard(past, name, false, true, 0, bytes, err);
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
    const char *etag = "";
    struct cairn_store_part part = {.has_crc32c = true};
    const struct cairn_json_field fields[] = {
        {"part", CAIRN_JSON_U32, false, &part.number, 0},
        {"bytes", CAIRN_JSON_U64, false, &part.size_bytes, 0},
        {"crc32c", CAIRN_JSON_U32, false, &part.crc32c, 0},
        {"etag", CAIRN_JSON_TEXT, false, &etag, sizeof(part.etag) - 1},
    };
    CAIRN_TRY(cairn_json_read(message, "", fields, CAIRN_COUNT(fields), true, err));
    if (!part.number) return CAIRN_OK;
    (void)cairn_text_copy(part.etag, sizeof(part.etag), etag);
    if (shard->part_count == shard->part_capacity) {
        size_t capacity = shard->part_capacity ? 2 * shard->part_capacity : 16;
        void *grown = realloc(shard->parts, capacity * sizeof(*shard->parts));
        if (!grown) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the recovery");
        shard->parts = grown;
        shard->part_capacity = capacity;
    }
    shard->parts[shard->part_count++] = part;
    return CAIRN_OK;
}

static enum cairn_code replay_shard(struct cairn_up_past *past,
                                    const struct cairn_up_replayed *record,
                                    struct cairn_error *err) {
    uint64_t index = 0, part_bytes = 0;
    const char *token = NULL, *upload_id = NULL;
    const struct cairn_json_field fields[] = {
        {"s", CAIRN_JSON_U64, true, &index, 0},
        {"token", CAIRN_JSON_TEXT, false, &token, CAIRN_UUID_TEXT_BYTES - 1},
        {"part_bytes", CAIRN_JSON_U64, false, &part_bytes, 0},
        {"upload_id", CAIRN_JSON_TEXT, false, &upload_id, CAIRN_UPLOAD_ID_BYTES_MAX - 1},
    };
    CAIRN_TRY(cairn_json_read(record->message, "", fields, CAIRN_COUNT(fields), true, err));
    if (index >= past->shard_count)
        return cairn_fail(err, CAIRN_CORRUPT,
                          "record %s of shard %" PRIu64 ", which was never staged", record->name,
                          index);
    struct cairn_up_past_shard *shard = &past->shards[index];
    if (!strcmp(record->name, "blocks")) return take_blocks(shard, record->blob, err);
    shard->durable |= !strcmp(record->name, "durable");
    if (token) {
        shard->intent = true;
        shard->part_bytes = part_bytes;
        (void)cairn_text_copy(shard->token, sizeof(shard->token), token);
    }
    if (upload_id) {
        free(shard->upload_id);
        shard->part_count = 0; /* those were another upload's */
        shard->upload_id = strdup(upload_id);
        if (!shard->upload_id)
            return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the recovery");
    }
    return take_part(shard, record->message, err);
}

static enum cairn_code replay_one(struct cairn_up_past *past,
                                  const struct cairn_up_replayed *record, struct cairn_error *err) {
    const char *name = record->name;
    if (!strcmp(name, "stage")) return replay_stage(past, record->message, err);
    if (!strcmp(name, "file")) return replay_file(past, record->message, err);
    if (!strcmp(name, "intent") || !strcmp(name, "upload") || !strcmp(name, "blocks") ||
        !strcmp(name, "durable"))
        return replay_shard(past, record, err);
    json_t **place = !strcmp(name, "begin")     ? &past->begin
                     : !strcmp(name, "session") ? &past->session
                     : !strcmp(name, "seal")    ? &past->seal
                     : !strcmp(name, "fail")    ? &past->fail
                                                : NULL;
    if (!place) return cairn_fail(err, CAIRN_UNSUPPORTED, "unknown record \"%.32s\"", name);
    json_decref(*place);
    *place = json_incref(record->message);
    if (strcmp(name, "seal") != 0 || !record->blob.size) return CAIRN_OK;
    past->table.limit = 64 * CAIRN_MIB;
    return cairn_buf_append(&past->table, record->blob.data, record->blob.size, err);
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
