/* SPDX-License-Identifier: Apache-2.0 */
/* Ranges of shards by whole blocks; idle readers wait in a stack, each with its last chunk. */
#include "cli/convert/shard_inputs.h"

#include <stdlib.h>

#include "common/lock.h"
#include "common/pages.h"

/* A connection and the last blocks that were read over it. */
struct slot {
    struct slot *next; /* in the stack of idle ones */
    struct cairn_cli_reader *reader;
    char *chunk;
    const struct cairn_manifest_shard *shard; /* whose bytes the chunk holds; NULL: none */
    uint64_t offset;
    size_t size;
};
struct shard_input {
    struct cairn_cli_shard_inputs *owner;
    const struct cairn_manifest_shard *shard;
    struct cairn_input input;
};
struct cairn_cli_shard_inputs {
    const struct cairn_cli_source *source;
    struct shard_input *items;
    struct cairn_lock lock;
    struct {
        struct slot *idle;
    } locked;
};

static void free_slot(struct slot *slot) {
    if (!slot) return;
    cairn_cli_reader_free(slot->reader);
    cairn_pages_unmap(slot->chunk, CAIRN_CLI_CHUNK_BYTES);
    free(slot);
}

static enum cairn_code new_slot(const struct cairn_cli_shard_inputs *inputs, struct slot **ret,
                                struct cairn_error *err) {
    struct slot *slot = calloc(1, sizeof *slot);
    if (!slot) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a reader");
    enum cairn_code code = cairn_cli_reader_new(inputs->source, &slot->reader, err);
    if (code == CAIRN_OK && !(slot->chunk = cairn_pages_map(CAIRN_CLI_CHUNK_BYTES)))
        code = cairn_fail(err, CAIRN_NO_MEMORY, "no memory for blocks of a shard");
    if (code == CAIRN_OK)
        *ret = slot;
    else
        free_slot(slot);
    return code;
}

static bool holds(const struct slot *slot, const struct cairn_manifest_shard *shard,
                  uint64_t offset) {
    return slot->shard == shard && offset >= slot->offset && offset - slot->offset < slot->size;
}

/* The idle slot that holds this byte, else the last one used; NULL: all are at work. */
static struct slot *take_slot(struct cairn_cli_shard_inputs *inputs,
                              const struct cairn_manifest_shard *shard, uint64_t offset) {
    CAIRN_HOLD(&inputs->lock);
    struct slot **at = &inputs->locked.idle;
    while (*at && !holds(*at, shard, offset)) at = &(*at)->next;
    if (!*at) at = &inputs->locked.idle;
    struct slot *slot = *at;
    if (slot) *at = slot->next;
    return slot;
}

static void give_slot(struct cairn_cli_shard_inputs *inputs, struct slot *slot) {
    CAIRN_HOLD(&inputs->lock);
    slot->next = inputs->locked.idle;
    inputs->locked.idle = slot;
}

/* The blocks around this byte, and as many behind them as `size` needs and the chunk holds. */
static enum cairn_code fill_chunk(struct slot *slot, const struct cairn_manifest_shard *shard,
                                  uint64_t offset, uint64_t size, struct cairn_error *err) {
    uint64_t begin = offset / CAIRN_BLOCK_BYTES * CAIRN_BLOCK_BYTES;
    uint64_t end = cairn_round_up(offset + size, CAIRN_BLOCK_BYTES);
    end = cairn_min_u64(cairn_min_u64(end, shard->size_bytes), begin + CAIRN_CLI_CHUNK_BYTES);
    slot->shard = NULL;
    CAIRN_TRY(
        cairn_cli_read(slot->reader, shard, begin, slot->chunk, (size_t)(end - begin), err));
    slot->shard = shard;
    slot->offset = begin;
    slot->size = (size_t)(end - begin);
    return CAIRN_OK;
}

static enum cairn_code read_range(struct slot *slot, const struct cairn_manifest_shard *shard,
                                  uint64_t offset, char *into, uint64_t size,
                                  struct cairn_error *err) {
    while (size) {
        uint64_t whole = offset + size == shard->size_bytes
                             ? size
                             : size / CAIRN_BLOCK_BYTES * CAIRN_BLOCK_BYTES;
        uint64_t some;
        if (offset % CAIRN_BLOCK_BYTES == 0 && whole >= CAIRN_BLOCK_BYTES &&
            !holds(slot, shard, offset)) {
            some = whole; /* straight to its place */
            CAIRN_TRY(cairn_cli_read(slot->reader, shard, offset, into, (size_t)some, err));
        } else {
            if (!holds(slot, shard, offset))
                CAIRN_TRY(fill_chunk(slot, shard, offset, size, err));
            some = cairn_min_u64(slot->size - (offset - slot->offset), size);
            memcpy(into, slot->chunk + (offset - slot->offset), (size_t)some);
        }
        offset += some;
        into += some;
        size -= some;
    }
    return CAIRN_OK;
}

static enum cairn_code read_shard(void *context, uint64_t offset, void *into, size_t size,
                                  struct cairn_error *err) {
    struct shard_input *item = context;
    struct slot *slot = take_slot(item->owner, item->shard, offset);
    if (!slot) CAIRN_TRY(new_slot(item->owner, &slot, err));
    enum cairn_code code = read_range(slot, item->shard, offset, into, size, err);
    give_slot(item->owner, slot);
    return code;
}

enum cairn_code cairn_cli_shard_inputs_new(const struct cairn_cli_source *source,
                                           struct cairn_cli_shard_inputs **ret,
                                           struct cairn_error *err) {
    const struct cairn_manifest *manifest = &source->version.manifest;
    struct cairn_cli_shard_inputs *inputs = calloc(1, sizeof *inputs);
    if (inputs) inputs->items = calloc(manifest->shard_count + 1, sizeof *inputs->items);
    if (!inputs || !inputs->items) {
        free(inputs);
        return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the list of shards");
    }
    inputs->source = source;
    cairn_lock_init(&inputs->lock, CAIRN_LOCK_client_session);
    for (uint32_t i = 0; i < manifest->shard_count; i++) {
        struct shard_input *item = &inputs->items[i];
        item->owner = inputs;
        item->shard = &manifest->shards[i];
        item->input = (struct cairn_input){
            .size_bytes = item->shard->size_bytes, .context = item, .read = read_shard};
    }
    *ret = inputs;
    return CAIRN_OK;
}

void cairn_cli_shard_inputs_free(struct cairn_cli_shard_inputs *inputs) {
    if (!inputs) return;
    while (inputs->locked.idle) {
        struct slot *slot = inputs->locked.idle;
        inputs->locked.idle = slot->next;
        free_slot(slot);
    }
    cairn_lock_release(&inputs->lock);
    free(inputs->items);
    free(inputs);
}

const struct cairn_input *cairn_cli_shard_inputs_at(const struct cairn_cli_shard_inputs *inputs,
                                                    uint32_t shard) {
    CAIRN_ASSERT(shard < inputs->source->version.manifest.shard_count);
    return &inputs->items[shard].input;
}
