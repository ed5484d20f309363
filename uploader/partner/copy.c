/* SPDX-License-Identifier: Apache-2.0 */
/* The description of a save that another node has made (saves/description.h), read strictly. */
#include <inttypes.h>
#include <stdlib.h>

#include "api/documents/digest.h"
#include "api/table/table.h"
#include "api/wire/messages.h"
#include "common/memory.h"
#include "common/text.h"
#include "common/trace.h"
#include "store/multipart.h"
#include "uploader/partner/inside.h"
#include "uploader/saves/begin.h"

#define NODES_MAX (1 << 20)

static enum cairn_code no_memory(struct cairn_error *err) {
    return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a copy");
}

void cairn_up_copy_free(struct cairn_up_copy *copy) {
    if (!copy) return;
    for (size_t i = 0; i < copy->shard_count; i++) cairn_buf_release(&copy->shards[i].blocks_le);
    free(copy->shards);
    cairn_buf_release(&copy->table);
    cairn_pages_unmap(copy->data, copy->data_bytes);
    free(copy->pieces);
    json_decref(copy->head);
    free(copy);
}

static bool same_shard(const struct cairn_up_copy_shard *one,
                       const struct cairn_up_copy_shard *other) {
    return !strcmp(one->name, other->name) && one->tensors == other->tensors &&
           one->bytes == other->bytes && one->blocks_le.size == other->blocks_le.size &&
           (!one->blocks_le.size ||
            !memcmp(one->blocks_le.data, other->blocks_le.data, one->blocks_le.size));
}

bool cairn_up_copy_same_bytes(const struct cairn_up_copy *one, const struct cairn_up_copy *other) {
    if (one->shard_count != other->shard_count) return false;
    for (size_t i = 0; i < one->shard_count; i++)
        if (!same_shard(&one->shards[i], &other->shards[i])) return false;
    return true;
}

bool cairn_up_copy_same_tokens(const struct cairn_up_copy *one, const struct cairn_up_copy *other) {
    CAIRN_ASSERT(one->shard_count == other->shard_count);
    for (size_t i = 0; i < one->shard_count; i++)
        if (strcmp(one->shards[i].token, other->shards[i].token) != 0) return false;
    return true;
}

enum cairn_code cairn_up_copy_begin(const struct cairn_up_copy *copy, struct cairn_up_begin *ret,
                                    struct cairn_error *err) {
    struct cairn_msg_begin_place place = {0};
    CAIRN_TRY(cairn_msg_begin_place_read(copy->begin, "/begin", &place, err));
    *ret = (struct cairn_up_begin){.attempt = copy->attempt,
                                   .proc = copy->proc,
                                   .rank = (uint32_t)place.rank,
                                   .world_size = (uint32_t)place.world_size,
                                   .of_partner = true};
    return cairn_up_begin_read(copy->begin, "/begin", ret, err);
}

static enum cairn_code read_begin(struct cairn_up_copy *copy,
                                  const struct cairn_up_attempt *attempt,
                                  struct cairn_error *err) {
    struct cairn_up_begin begin = {0};
    const struct cairn_grant *grant = &attempt->grant;
    CAIRN_TRY(cairn_up_copy_begin(copy, &begin, err));
    struct cairn_version_origin origin = {
        .name = grant->name, .attempt = grant->attempt, .step = begin.step, .n = begin.n};
    (void)cairn_text_copy(origin.nonce, sizeof(origin.nonce), grant->nonce);
    cairn_version_id_make(&origin, &copy->version);
    copy->rank = begin.rank;
    copy->step = begin.step;
    copy->n = begin.n;
    return CAIRN_OK;
}

static enum cairn_code read_table(struct cairn_up_copy *copy, const char *text,
                                  struct cairn_error *err) {
    struct cairn_table table;
    if (!text) return CAIRN_OK;
    copy->table.limit = CAIRN_UP_DESCRIPTION_BYTES_MAX;
    CAIRN_TRY(cairn_base64_decode(cairn_view_of(text), &copy->table, err));
    CAIRN_TRY(cairn_table_open(cairn_buf_view(&copy->table), &table, err));
    if (table.rank == copy->rank) return CAIRN_OK;
    return cairn_fail(err, CAIRN_TABLE_INVALID, "the table is of rank %u, the save of rank %u",
                      table.rank, copy->rank);
}

static enum cairn_code read_shard(struct cairn_up_copy *copy, const json_t *item,
                                  struct cairn_shard_names *names, struct cairn_error *err) {
    struct cairn_msg_copy_shard told = {0};
    CAIRN_TRY(cairn_msg_copy_shard_read(item, "/shards", &told, err));
    struct cairn_up_copy_shard *shard = &copy->shards[copy->shard_count++];
    *shard = (struct cairn_up_copy_shard){.name = told.name,
                                          .token = told.token,
                                          .tensors = told.tensors,
                                          .bytes = told.bytes,
                                          .part_bytes = told.part_bytes,
                                          .offset = copy->data_bytes,
                                          .first_piece = copy->piece_count,
                                          .blocks_le.limit = CAIRN_UP_DESCRIPTION_BYTES_MAX};
    CAIRN_TRY(cairn_shard_name_check(cairn_view_of(told.name), err));
    CAIRN_TRY(cairn_shard_names_add(names, cairn_view_of(told.name), err));
    CAIRN_TRY(cairn_base64_decode(cairn_view_of(told.blocks), &shard->blocks_le, err));
    if (told.bytes > CAIRN_UP_COPY_BYTES_MAX - copy->data_bytes ||
        shard->blocks_le.size != 4 * cairn_div_up(told.bytes, CAIRN_BLOCK_BYTES) ||
        !cairn_uuid_text_valid(cairn_view_of(told.token)))
        return cairn_fail(err, CAIRN_INVALID, "shard %s: its size, checksums or token", told.name);
    enum cairn_code code = cairn_multipart_check(told.bytes, told.part_bytes, err);
    if (code) return cairn_within(err, code, "shard %s", told.name);
    copy->data_bytes += cairn_round_up(told.bytes, CAIRN_BLOCK_BYTES);
    copy->piece_count += cairn_div_up(told.bytes, CAIRN_UP_COPY_PIECE_BYTES);
    return CAIRN_OK;
}

static enum cairn_code read_shards(struct cairn_up_copy *copy, const json_t *items,
                                   struct cairn_error *err) {
    CAIRN_AUTO(shard_names) names = {0};
    size_t count = json_array_size(items);
    if (count > CAIRN_UP_SHARDS_MAX)
        return cairn_fail(err, CAIRN_INVALID, "/shards: more than %d", CAIRN_UP_SHARDS_MAX);
    copy->shards = calloc(count + 1, sizeof(*copy->shards));
    if (!copy->shards) return no_memory(err);
    for (size_t i = 0; i < count; i++)
        CAIRN_TRY(read_shard(copy, json_array_get(items, i), &names, err));
    copy->missing = copy->piece_count;
    copy->pieces = calloc(copy->piece_count + 1, 1);
    return copy->pieces ? CAIRN_OK : no_memory(err);
}

static enum cairn_code read_head(struct cairn_up_copy *copy,
                                 const struct cairn_up_attempt *attempt, struct cairn_error *err) {
    struct cairn_msg_copy told = {.proc = ""};
    CAIRN_TRY(cairn_msg_copy_read(copy->head, "", &told, err));
    copy->uploader = told.uploader;
    copy->proc = told.proc;
    copy->begin = told.begin;
    copy->replicated = told.replicated;
    copy->labels = told.labels;
    copy->meta = told.meta;
    CAIRN_TRY(read_begin(copy, attempt, err));
    CAIRN_TRY(read_table(copy, told.table, err));
    return read_shards(copy, told.shards, err);
}

enum cairn_code cairn_up_copy_new(const struct cairn_up_attempt *attempt, json_t *take_head,
                                  struct cairn_up_copy **ret, struct cairn_error *err) {
    struct cairn_up_copy *copy = calloc(1, sizeof(*copy));
    if (!copy) {
        json_decref(take_head);
        return no_memory(err);
    }
    copy->head = take_head;
    enum cairn_code code = read_head(copy, attempt, err);
    if (code) {
        copy->data_bytes = 0; /* nothing is mapped yet */
        cairn_up_copy_free(copy);
        return code;
    }
    *ret = copy;
    return CAIRN_OK;
}
