/* SPDX-License-Identifier: Apache-2.0 */
/* The journal's bytes. A bad group is a torn tail only when no later group follows it. */
#include "uploader/journal/file.h"

#include <inttypes.h>
#include <stdlib.h>

#include "common/crc32c.h"

#define RECORD_MAGIC UINT32_C(0x314a5243) /* "CRJ1" */
#define GROUP_MAGIC UINT32_C(0x32475243)  /* "CRG2" */
#define PAYLOAD_HEAD_BYTES 16
#define FLAG_CLOSES UINT32_C(1)

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

static void *grow(void *array, size_t count, size_t *capacity, size_t item_bytes) {
    if (count < *capacity) return array;
    size_t wanted = *capacity ? *capacity * 2 : 8;
    void *grown = realloc(array, wanted * item_bytes);
    if (grown) *capacity = wanted;
    return grown;
}

static void forget(struct cairn_up_journal_index *index, size_t at) {
    struct cairn_up_journal_entry *entry = &index->entries[at];
    for (size_t i = 0; i < entry->count; i++) index->live_bytes -= entry->spans[i].bytes;
    free(entry->spans);
    index->count--;
    memmove(entry, entry + 1, (index->count - at) * sizeof(*entry));
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
    if (!known) {
        void *entries =
            grow(index->entries, index->count, &index->capacity, sizeof(*index->entries));
        if (!entries) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the journal's index");
        index->entries = entries;
        memmove(&index->entries[at + 1], &index->entries[at],
                (index->count - at) * sizeof(*index->entries));
        index->entries[at] = (struct cairn_up_journal_entry){.entry = entry};
        index->count++;
    }
    struct cairn_up_journal_entry *owner = &index->entries[at];
    void *spans = grow(owner->spans, owner->count, &owner->capacity, sizeof(*owner->spans));
    if (!spans) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the journal's index");
    owner->spans = spans;
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
    cairn_store_u32le(head, RECORD_MAGIC);
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
    if (cairn_load_u32le(at) != RECORD_MAGIC || size < PAYLOAD_HEAD_BYTES ||
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

/* ---- groups ---- */

void cairn_up_group_head(uint64_t sequence, struct cairn_view records,
                         uint8_t ret[CAIRN_UP_GROUP_HEAD_BYTES]) {
    cairn_store_u32le(ret, GROUP_MAGIC);
    cairn_store_u64le(ret + 8, sequence);
    cairn_store_u64le(ret + 16, records.size);
    cairn_store_u32le(ret + 24, cairn_crc32c(0, records.data, records.size));
    cairn_store_u32le(ret + 28, 0);
    cairn_store_u32le(ret + 4, cairn_crc32c(0, ret + 8, CAIRN_UP_GROUP_HEAD_BYTES - 8));
}

struct group_found {
    uint64_t sequence;
    struct cairn_view records;
};

static bool group_at(struct cairn_view file, uint64_t offset, struct group_found *ret) {
    const uint8_t *at = (const uint8_t *)file.data + offset;
    if (offset > file.size || file.size - offset < CAIRN_UP_GROUP_HEAD_BYTES) return false;
    if (cairn_load_u32le(at) != GROUP_MAGIC ||
        cairn_load_u32le(at + 4) != cairn_crc32c(0, at + 8, CAIRN_UP_GROUP_HEAD_BYTES - 8))
        return false;
    uint64_t size = cairn_load_u64le(at + 16);
    if (size > file.size - offset - CAIRN_UP_GROUP_HEAD_BYTES) return false;
    *ret = (struct group_found){cairn_load_u64le(at + 8),
                                {at + CAIRN_UP_GROUP_HEAD_BYTES, (size_t)size}};
    return cairn_crc32c(0, ret->records.data, ret->records.size) == cairn_load_u32le(at + 24);
}

/* A whole group of a higher sequence at or after offset? Only asked once, after the first bad one.
 * One of a lower sequence is what an older file left in these blocks. */
static bool group_after(struct cairn_view file, uint64_t offset, uint64_t sequence,
                        uint64_t *ret_where) {
    uint8_t magic[4];
    cairn_store_u32le(magic, GROUP_MAGIC);
    while (offset < file.size) {
        const uint8_t *from = (const uint8_t *)file.data + offset;
        const uint8_t *hit = memmem(from, (size_t)(file.size - offset), magic, sizeof(magic));
        if (!hit) return false;
        offset += (uint64_t)(hit - from);
        struct group_found found;
        if (group_at(file, offset, &found) && found.sequence > sequence) {
            *ret_where = offset;
            return true;
        }
        offset++;
    }
    return false;
}

/* Records one after the other, from offset to end; *ret_end: where the first bad one begins. */
static enum cairn_code
scan_records(struct cairn_view file, uint64_t offset, uint64_t end,
             enum cairn_code (*each)(void *owner, const struct cairn_up_record_found *found,
                                     struct cairn_error *err),
             void *owner, uint64_t *ret_end, struct cairn_error *err) {
    struct cairn_view part = {file.data, (size_t)end};
    while (offset < end) {
        struct cairn_up_record_found found;
        bool whole = false;
        cairn_up_record_at(part, offset, &found, &whole);
        if (!whole) break;
        CAIRN_TRY(each(owner, &found, err));
        offset += found.span.bytes;
    }
    *ret_end = offset;
    return CAIRN_OK;
}

/* The format before: a bad record is a torn tail when no whole one begins after it. */
static enum cairn_code
scan_before(struct cairn_view file,
            enum cairn_code (*each)(void *owner, const struct cairn_up_record_found *found,
                                    struct cairn_error *err),
            void *owner, uint64_t *ret_end, struct cairn_error *err) {
    CAIRN_TRY(scan_records(file, 0, file.size, each, owner, ret_end, err));
    for (uint64_t offset = *ret_end + 1; offset < file.size; offset++) {
        struct cairn_up_record_found found;
        bool whole = false;
        cairn_up_record_at(file, offset, &found, &whole);
        if (whole)
            return cairn_fail(err, CAIRN_CORRUPT,
                              "the record at offset %" PRIu64 " is damaged, and a whole one "
                              "follows at %" PRIu64,
                              *ret_end, offset);
    }
    return CAIRN_OK;
}

enum cairn_code cairn_up_journal_scan(
    struct cairn_view file,
    enum cairn_code (*each)(void *owner, const struct cairn_up_record_found *found,
                            struct cairn_error *err),
    void *owner, struct cairn_up_scanned *ret, struct cairn_error *err) {
    *ret = (struct cairn_up_scanned){0};
    if (file.size >= 4 && cairn_load_u32le(file.data) == RECORD_MAGIC)
        return scan_before(file, each, owner, &ret->end, err);
    while (ret->end < file.size) {
        struct group_found group;
        uint64_t next = 0, end = 0, records = ret->end + CAIRN_UP_GROUP_HEAD_BYTES;
        bool whole = group_at(file, ret->end, &group) && group.sequence == ret->sequence + 1;
        if (!whole && group_after(file, ret->end, ret->sequence, &next))
            return cairn_fail(err, CAIRN_CORRUPT,
                              "the group of records at offset %" PRIu64 " is damaged or missing, "
                              "and a later one follows at %" PRIu64,
                              ret->end, next);
        if (!whole) return CAIRN_OK;
        CAIRN_TRY(
            scan_records(file, records, records + group.records.size, each, owner, &end, err));
        if (end != records + group.records.size)
            return cairn_fail(err, CAIRN_CORRUPT, "the record at offset %" PRIu64 " is damaged",
                              end);
        ret->end = end;
        ret->sequence = group.sequence;
    }
    return CAIRN_OK;
}
