/* SPDX-License-Identifier: Apache-2.0 */
/* The same save has the same description, to the byte, as long as this process lives. */
#include "uploader/saves/description.h"

#include "api/wire/messages.h"
#include "common/json.h"
#include "common/text.h"

static enum cairn_code no_memory(struct cairn_error *err) {
    return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a copy's description");
}

static enum cairn_code add_shard(struct cairn_up *up, const struct cairn_up_shard *shard,
                                 json_t *shards, struct cairn_error *err) {
    CAIRN_AUTO(up_shard_proof) proof = {0};
    CAIRN_AUTO(buf) blocks = {.limit = CAIRN_UP_DESCRIPTION_BYTES_MAX};
    CAIRN_TRY(cairn_up_shard_describe(up->queue, shard, &proof, err));
    CAIRN_TRY(cairn_base64_encode(cairn_buf_view(&proof.blocks_le), &blocks, err));
    json_t *item = CAIRN_PACK(copy_shard, .name = shard->name, .tensors = shard->tensors,
                              .bytes = shard->size_bytes, .token = proof.token,
                              .part_bytes = proof.part_bytes,
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
