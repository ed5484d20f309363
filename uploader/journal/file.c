/* SPDX-License-Identifier: Apache-2.0 */
/* Records as bytes, and the index of those that are alive. */
#include "uploader/journal/file.h"

#include <inttypes.h>
#include <stdlib.h>

#include "common/buf.h"
#include "common/crc.h"

#define PAYLOAD_HEAD_BYTES 16
#define FLAG_CLOSES UINT32_C(1)
#define ENTRIES_MAX (1 << 24)
#define SPANS_MAX (1 << 24) /* each is a record of at least 28 bytes in the file */

void cairn_up_journal_index_release(struct cairn_up_journal_index *index) {
    for (size_t i = 0; i < index->count; i++) free(index->entries[i].spans);
    free(index->entries);
    *index = (struct cairn_up_journal_index){0};
}

static size_t place_of(const struct cairn_up_journal_index *index, uint64_t entry) {
    size_t low = 0, high = index->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (index->entries[middle].entry < entry)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void forget(struct cairn_up_journal_index *index, size_t at) {
    struct cairn_up_journal_entry *entry = &index->entries[at];
    for (size_t i = 0; i < entry->count; i++) index->live_bytes -= entry->spans[i].bytes;
    free(entry->spans);
    index->count--;
    memmove(entry, entry + 1, (index->count - at) * sizeof(*entry));
}

static enum cairn_code insert(struct cairn_up_journal_index *index, size_t at, uint64_t entry,
                              struct cairn_error *err) {
    CAIRN_TRY(CAIRN_ARRAY_ROOM(index->entries, index->count, index->capacity, ENTRIES_MAX,
                               "entries alive in the journal", err));
    memmove(&index->entries[at + 1], &index->entries[at],
            (index->count - at) * sizeof(*index->entries));
    index->entries[at] = (struct cairn_up_journal_entry){.entry = entry};
    index->count++;
    return CAIRN_OK;
}

struct cairn_up_journal_entry *
cairn_up_journal_index_find(const struct cairn_up_journal_index *index, uint64_t entry) {
    size_t at = place_of(index, entry);
    return at < index->count && index->entries[at].entry == entry ? &index->entries[at] : NULL;
}

enum cairn_code cairn_up_journal_index_damage(struct cairn_up_journal_index *index, uint64_t entry,
                                              struct cairn_error *err) {
    index->entry_last = cairn_max_u64(index->entry_last, entry);
    size_t at = place_of(index, entry);
    if (at == index->count || index->entries[at].entry != entry)
        CAIRN_TRY(insert(index, at, entry, err));
    index->entries[at].damaged = true;
    return CAIRN_OK;
}

enum cairn_code cairn_up_journal_index_add(struct cairn_up_journal_index *index, uint64_t entry,
                                           bool closes, struct cairn_up_journal_span span,
                                           struct cairn_error *err) {
    index->entry_last = cairn_max_u64(index->entry_last, entry);
    size_t at = place_of(index, entry);
    bool known = at < index->count && index->entries[at].entry == entry;
    if (closes) {
        if (known) forget(index, at);
        return CAIRN_OK;
    }
    if (!known) CAIRN_TRY(insert(index, at, entry, err));
    struct cairn_up_journal_entry *owner = &index->entries[at];
    CAIRN_TRY(CAIRN_ARRAY_ROOM(owner->spans, owner->count, owner->capacity, SPANS_MAX,
                               "records of an entry of the journal", err));
    owner->spans[owner->count++] = span;
    index->live_bytes += span.bytes;
    return CAIRN_OK;
}

enum cairn_code cairn_up_record_encode(const struct cairn_up_record *record, struct cairn_buf *ret,
                                       struct cairn_error *err) {
    CAIRN_AUTO(buf) json = {.limit = CAIRN_MIB};
    CAIRN_TRY(cairn_json_dump(record->message, &json, err));
    uint64_t payload = PAYLOAD_HEAD_BYTES + json.size + record->blob.size;
    if (payload > CAIRN_UP_RECORD_BYTES_MAX)
        return cairn_fail(err, CAIRN_TOO_LARGE, "a journal record of %" PRIu64 " bytes", payload);
    uint8_t head[CAIRN_UP_RECORD_HEAD_BYTES + PAYLOAD_HEAD_BYTES];
    cairn_store_u32le(head, CAIRN_UP_RECORD_MAGIC);
    cairn_store_u32le(head + 4, (uint32_t)payload);
    cairn_store_u64le(head + 12, record->entry);
    cairn_store_u32le(head + 20, record->closes ? FLAG_CLOSES : 0);
    cairn_store_u32le(head + 24, (uint32_t)json.size);
    uint32_t crc = cairn_crc32c(0, head + 4, 4);
    crc = cairn_crc32c(crc, head + 12, PAYLOAD_HEAD_BYTES);
    crc = cairn_crc32c(crc, json.data, json.size);
    crc = cairn_crc32c(crc, record->blob.data, record->blob.size);
    cairn_store_u32le(head + 8, crc);
    CAIRN_TRY(cairn_buf_reserve(ret, sizeof(head) + json.size + record->blob.size, err));
    CAIRN_TRY(cairn_buf_append(ret, head, sizeof(head), err));
    CAIRN_TRY(cairn_buf_append(ret, json.data, json.size, err));
    if (!record->blob.size) return CAIRN_OK;
    return cairn_buf_append(ret, record->blob.data, record->blob.size, err);
}

void cairn_up_record_at(struct cairn_view file, uint64_t offset, struct cairn_up_record_found *ret,
                        bool *ret_found) {
    *ret_found = false;
    const uint8_t *at = (const uint8_t *)file.data + offset;
    uint64_t left = file.size - offset;
    if (offset > file.size || left < CAIRN_UP_RECORD_HEAD_BYTES + PAYLOAD_HEAD_BYTES) return;
    uint64_t size = cairn_load_u32le(at + 4);
    if (cairn_load_u32le(at) != CAIRN_UP_RECORD_MAGIC || size < PAYLOAD_HEAD_BYTES ||
        size > CAIRN_UP_RECORD_BYTES_MAX || size > left - CAIRN_UP_RECORD_HEAD_BYTES)
        return;
    uint32_t crc = cairn_crc32c(0, at + 4, 4);
    crc = cairn_crc32c(crc, at + CAIRN_UP_RECORD_HEAD_BYTES, (size_t)size);
    uint64_t json_bytes = cairn_load_u32le(at + 24);
    if (crc != cairn_load_u32le(at + 8) || json_bytes > size - PAYLOAD_HEAD_BYTES) return;
    const uint8_t *json = at + CAIRN_UP_RECORD_HEAD_BYTES + PAYLOAD_HEAD_BYTES;
    *ret = (struct cairn_up_record_found){
        .entry = cairn_load_u64le(at + 12),
        .closes = (cairn_load_u32le(at + 20) & FLAG_CLOSES) != 0,
        .span = {offset, CAIRN_UP_RECORD_HEAD_BYTES + size},
        .json = {json, (size_t)json_bytes},
        .blob = {json + json_bytes, (size_t)(size - PAYLOAD_HEAD_BYTES - json_bytes)},
    };
    *ret_found = true;
}
