/* SPDX-License-Identifier: Apache-2.0 */
/* Heads of groups, and the list that they carry. */
#include "uploader/journal/head.h"

#include <stdlib.h>

#include "common/buf.h"
#include "common/crc.h"

#define HEAD_MAGIC UINT32_C(0x33475243) /* "CRG3" */
#define FIXED_BYTES 56
#define ITEM_BYTES 12
#define ITEMS_MAX UINT32_MAX /* as many as the head can count */
#define COVERED_GROUPS 64
#define COVERED_ENTRIES 64

void cairn_up_touches_release(struct cairn_up_touches *touches) {
    free(touches->items);
    *touches = (struct cairn_up_touches){0};
}

static void remove_first(struct cairn_up_touches *touches, size_t count) {
    touches->count -= count;
    memmove(touches->items, touches->items + count, touches->count * sizeof(*touches->items));
}

void cairn_up_touches_add(struct cairn_up_touches *touches, uint64_t sequence, uint64_t entry,
                          bool closed) {
    size_t at = 0;
    while (at < touches->count && touches->items[at].entry != entry) at++;
    if (at < touches->count) {
        touches->count--;
        memmove(&touches->items[at], &touches->items[at + 1],
                (touches->count - at) * sizeof(*touches->items));
    }
    if (CAIRN_ARRAY_ROOM(touches->items, touches->count, touches->capacity, ITEMS_MAX,
                         "entries in the head of a group", NULL)) {
        touches->covers_from = sequence + 1;
        return;
    }
    touches->items[touches->count++] = (struct cairn_up_touched){entry, sequence, closed};
}

void cairn_up_touches_trim(struct cairn_up_touches *touches, uint64_t sequence) {
    if (sequence > COVERED_GROUPS)
        touches->covers_from = cairn_max_u64(touches->covers_from, sequence + 1 - COVERED_GROUPS);
    size_t old = 0;
    while (old < touches->count && touches->items[old].sequence < touches->covers_from) old++;
    while (touches->count - old > COVERED_ENTRIES && touches->items[old].sequence < sequence) {
        touches->covers_from = touches->items[old].sequence + 1;
        old++;
    }
    if (old) remove_first(touches, old);
}

/* ---- bytes ---- */

enum cairn_code cairn_up_head_encode(const struct cairn_up_head *head,
                                     const struct cairn_up_touches *touches, struct cairn_buf *ret,
                                     struct cairn_error *err) {
    size_t from = ret->size, bytes = FIXED_BYTES + ITEM_BYTES * touches->count;
    CAIRN_TRY(cairn_buf_reserve(ret, bytes, err));
    uint8_t *at = (uint8_t *)ret->data + from;
    cairn_store_u32le(at, HEAD_MAGIC);
    cairn_store_u32le(at + 8, head->id.file);
    cairn_store_u32le(at + 12, head->id.node_crc);
    cairn_store_u64le(at + 16, head->sequence);
    cairn_store_u64le(at + 24, head->size);
    cairn_store_u64le(at + 32, head->entry_last);
    cairn_store_u64le(at + 40, touches->covers_from);
    cairn_store_u32le(at + 48, head->records_crc);
    cairn_store_u32le(at + 52, (uint32_t)touches->count);
    for (size_t i = 0; i < touches->count; i++) {
        const struct cairn_up_touched *touched = &touches->items[i];
        uint8_t *item = at + FIXED_BYTES + ITEM_BYTES * i;
        cairn_store_u64le(item, touched->entry);
        cairn_store_u32le(item + 8,
                          (uint32_t)(head->sequence - touched->sequence) * 2 + touched->closed);
    }
    cairn_store_u32le(at + 4, cairn_crc32c(0, at + 8, bytes - 8));
    ret->size += bytes;
    return CAIRN_OK;
}

bool cairn_up_head_at(struct cairn_view file, uint64_t offset, struct cairn_up_head *ret) {
    if (offset > file.size || file.size - offset < FIXED_BYTES) return false;
    const uint8_t *at = (const uint8_t *)file.data + offset;
    uint64_t left = file.size - offset - FIXED_BYTES;
    uint64_t count = cairn_load_u32le(at + 52);
    if (cairn_load_u32le(at) != HEAD_MAGIC || count > left / ITEM_BYTES) return false;
    uint64_t bytes = FIXED_BYTES + ITEM_BYTES * count;
    if (cairn_load_u32le(at + 4) != cairn_crc32c(0, at + 8, (size_t)bytes - 8)) return false;
    *ret = (struct cairn_up_head){
        .id = {cairn_load_u32le(at + 8), cairn_load_u32le(at + 12)},
        .sequence = cairn_load_u64le(at + 16),
        .size = cairn_load_u64le(at + 24),
        .entry_last = cairn_load_u64le(at + 32),
        .covers_from = cairn_load_u64le(at + 40),
        .records_crc = cairn_load_u32le(at + 48),
        .bytes = bytes,
        .list = at + FIXED_BYTES,
        .count = (size_t)count,
    };
    return true;
}

bool cairn_up_head_after(struct cairn_view file, uint64_t offset, const struct cairn_up_file_id *id,
                         uint64_t sequence, uint64_t *ret_where, struct cairn_up_head *ret) {
    uint8_t magic[4];
    cairn_store_u32le(magic, HEAD_MAGIC);
    while (offset < file.size) {
        const uint8_t *from = (const uint8_t *)file.data + offset;
        const uint8_t *hit = memmem(from, (size_t)(file.size - offset), magic, sizeof(magic));
        if (!hit) return false;
        offset += (uint64_t)(hit - from);
        bool ours = cairn_up_head_at(file, offset, ret) && ret->sequence >= sequence &&
                    (!id || (ret->id.file == id->file && ret->id.node_crc == id->node_crc));
        if (ours) {
            *ret_where = offset;
            return true;
        }
        offset++;
    }
    return false;
}

struct cairn_view cairn_up_head_records(struct cairn_view file, uint64_t offset,
                                        const struct cairn_up_head *head, bool *ret_whole) {
    uint64_t from = offset + head->bytes;
    *ret_whole = head->size <= file.size - from;
    if (!*ret_whole) return (struct cairn_view){0};
    struct cairn_view records = {(const uint8_t *)file.data + from, (size_t)head->size};
    *ret_whole = cairn_crc32c(0, records.data, records.size) == head->records_crc;
    return records;
}

void cairn_up_head_touched(const struct cairn_up_head *head, size_t index,
                           struct cairn_up_touched *ret) {
    CAIRN_ASSERT(index < head->count);
    const uint8_t *item = head->list + ITEM_BYTES * index;
    uint32_t ago = cairn_load_u32le(item + 8);
    *ret = (struct cairn_up_touched){cairn_load_u64le(item), head->sequence - ago / 2, ago & 1};
}
