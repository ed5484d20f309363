/* SPDX-License-Identifier: Apache-2.0 */
/* Group heads, records, the index of live records, the scan of a file, and formats 1 and 2. */
#include "uploader/journal/format.h"

#include <inttypes.h>
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
    if (old) {
        touches->count -= old;
        memmove(touches->items, touches->items + old, touches->count * sizeof(*touches->items));
    }
}

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

/* False: no whole head begins at offset. */
static bool head_at(struct cairn_view file, uint64_t offset, struct cairn_up_head *ret) {
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
        bool ours = head_at(file, offset, ret) && ret->sequence >= sequence &&
                    (!id || (ret->id.file == id->file && ret->id.node_crc == id->node_crc));
        if (ours) {
            *ret_where = offset;
            return true;
        }
        offset++;
    }
    return false;
}

/* *ret_whole: the head's records are present and match its checksum. */
static struct cairn_view head_records(struct cairn_view file, uint64_t offset,
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

/* ---- records and their index ---- */

#define PAYLOAD_HEAD_BYTES 16
#define FLAG_CLOSES UINT32_C(1)
#define NOTES_MAX (1 << 20)
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
        if (known) {
            struct cairn_up_journal_entry *gone = &index->entries[at];
            for (size_t i = 0; i < gone->count; i++) index->live_bytes -= gone->spans[i].bytes;
            free(gone->spans);
            index->count--;
            memmove(gone, gone + 1, (index->count - at) * sizeof(*gone));
        }
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

enum cairn_code cairn_up_notes_add_buf(struct cairn_up_notes *notes, uint64_t entry,
                                       json_t *take_message, struct cairn_buf *take_blob,
                                       struct cairn_error *err) {
    static const char what[] = "records of one append to the journal";
    enum cairn_code code =
        CAIRN_ARRAY_ROOM(notes->records, notes->count, notes->capacity, NOTES_MAX, what, err);
    if (!code)
        code = CAIRN_ARRAY_ROOM(notes->blobs, notes->count, notes->blob_capacity, NOTES_MAX, what,
                                err);
    if (code) {
        json_decref(take_message);
        cairn_buf_release(take_blob);
        return code;
    }
    notes->records[notes->count] = (struct cairn_up_record){
        .entry = entry, .message = take_message, .blob = cairn_buf_view(take_blob)};
    notes->blobs[notes->count++] = *take_blob;
    *take_blob = (struct cairn_buf){0};
    return CAIRN_OK;
}

enum cairn_code cairn_up_notes_add(struct cairn_up_notes *notes, uint64_t entry,
                                   json_t *take_message, struct cairn_view blob,
                                   struct cairn_error *err) {
    struct cairn_buf none = {0};
    CAIRN_TRY(cairn_up_notes_add_buf(notes, entry, take_message, &none, err));
    notes->records[notes->count - 1].blob = blob;
    return CAIRN_OK;
}

void cairn_up_notes_release(struct cairn_up_notes *notes) {
    for (size_t i = 0; i < notes->count; i++) {
        json_decref((json_t *)(uintptr_t)notes->records[i].message);
        cairn_buf_release(&notes->blobs[i]);
    }
    free(notes->records);
    free(notes->blobs);
    *notes = (struct cairn_up_notes){0};
}

/* *ret_found false: no whole, valid record begins at offset. */
static void record_at(struct cairn_view file, uint64_t offset, struct cairn_up_record_found *ret,
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

/* Scans consecutive records from offset to end; *ret_end: the offset of the first bad record. */
static enum cairn_code scan_records(struct cairn_view file, uint64_t offset, uint64_t end,
                                    const struct cairn_up_scan_sink *sink, uint64_t *ret_end,
                                    struct cairn_error *err) {
    struct cairn_view part = {file.data, (size_t)end};
    while (offset < end) {
        struct cairn_up_record_found found;
        bool whole = false;
        record_at(part, offset, &found, &whole);
        if (!whole) break;
        CAIRN_TRY(sink->each(sink->owner, &found, err));
        offset += found.span.bytes;
    }
    *ret_end = offset;
    return CAIRN_OK;
}

#define GROUP_MAGIC UINT32_C(0x32475243) /* "CRG2" */

void cairn_up_group2_head(uint64_t sequence, uint32_t spare, struct cairn_view records,
                          uint8_t ret[CAIRN_UP_GROUP2_HEAD_BYTES]) {
    cairn_store_u32le(ret, GROUP_MAGIC);
    cairn_store_u64le(ret + 8, sequence);
    cairn_store_u64le(ret + 16, records.size);
    cairn_store_u32le(ret + 24, cairn_crc32c(0, records.data, records.size));
    cairn_store_u32le(ret + 28, spare);
    cairn_store_u32le(ret + 4, cairn_crc32c(0, ret + 8, CAIRN_UP_GROUP2_HEAD_BYTES - 8));
}

bool cairn_up_group2_at(struct cairn_view file, uint64_t offset, struct cairn_up_group2 *ret) {
    if (offset > file.size || file.size - offset < CAIRN_UP_GROUP2_HEAD_BYTES) return false;
    const uint8_t *at = (const uint8_t *)file.data + offset;
    if (cairn_load_u32le(at) != GROUP_MAGIC ||
        cairn_load_u32le(at + 4) != cairn_crc32c(0, at + 8, CAIRN_UP_GROUP2_HEAD_BYTES - 8))
        return false;
    uint64_t size = cairn_load_u64le(at + 16);
    if (size > file.size - offset - CAIRN_UP_GROUP2_HEAD_BYTES) return false;
    *ret = (struct cairn_up_group2){.sequence = cairn_load_u64le(at + 8),
                                    .spare = cairn_load_u32le(at + 28),
                                    .records = {at + CAIRN_UP_GROUP2_HEAD_BYTES, (size_t)size}};
    return cairn_crc32c(0, ret->records.data, ret->records.size) == cairn_load_u32le(at + 24);
}

/* True for format 1; any other file here is read as format 2. */
static bool is_format1(struct cairn_view file) {
    return file.size >= 4 && cairn_load_u32le(file.data) == CAIRN_UP_RECORD_MAGIC;
}

/* True when a whole group of a higher sequence begins at or after offset; called once, after the
 * first bad group. A lower sequence is left over from an older file in these blocks. */
static bool group_after(struct cairn_view file, uint64_t offset, uint64_t sequence,
                        uint64_t *ret_where) {
    uint8_t magic[4];
    cairn_store_u32le(magic, GROUP_MAGIC);
    while (offset < file.size) {
        const uint8_t *from = (const uint8_t *)file.data + offset;
        const uint8_t *hit = memmem(from, (size_t)(file.size - offset), magic, sizeof(magic));
        if (!hit) return false;
        offset += (uint64_t)(hit - from);
        struct cairn_up_group2 found;
        if (cairn_up_group2_at(file, offset, &found) && found.sequence > sequence) {
            *ret_where = offset;
            return true;
        }
        offset++;
    }
    return false;
}

static enum cairn_code scan_format1(struct cairn_view file, const struct cairn_up_scan_sink *sink,
                                    uint64_t *ret_end, struct cairn_error *err) {
    CAIRN_TRY(scan_records(file, 0, file.size, sink, ret_end, err));
    for (uint64_t offset = *ret_end + 1; offset < file.size; offset++) {
        struct cairn_up_record_found found;
        bool whole = false;
        record_at(file, offset, &found, &whole);
        if (whole)
            return cairn_fail(err, CAIRN_CORRUPT,
                              "the record at offset %" PRIu64 " is damaged, and a whole one "
                              "follows at %" PRIu64,
                              *ret_end, offset);
    }
    return CAIRN_OK;
}

static enum cairn_code scan_before(struct cairn_view file, const struct cairn_up_scan_sink *sink,
                                   struct cairn_up_scanned *ret, struct cairn_error *err) {
    if (is_format1(file)) return scan_format1(file, sink, &ret->end, err);
    while (ret->end < file.size) {
        struct cairn_up_group2 group;
        uint64_t next = 0, end = 0, records = ret->end + CAIRN_UP_GROUP2_HEAD_BYTES;
        bool whole =
            cairn_up_group2_at(file, ret->end, &group) && group.sequence == ret->sequence + 1;
        if (!whole && group_after(file, ret->end, ret->sequence, &next))
            return cairn_fail(err, CAIRN_CORRUPT,
                              "the group of records at offset %" PRIu64 " is damaged or missing, "
                              "and a later one follows at %" PRIu64,
                              ret->end, next);
        if (!whole) return CAIRN_OK;
        CAIRN_TRY(scan_records(file, records, records + group.records.size, sink, &end, err));
        if (end != records + group.records.size)
            return cairn_fail(err, CAIRN_CORRUPT, "the record at offset %" PRIu64 " is damaged",
                              end);
        ret->end = end;
        ret->sequence = group.sequence;
    }
    return CAIRN_OK;
}

#define FILES_MAX 8 /* told apart when the first group is damaged */

/* Finds the file identity that most heads name, for a damaged first group, which defines it. */
static bool find_id(struct cairn_view file, struct cairn_up_file_id *ret) {
    struct cairn_up_file_id ids[FILES_MAX];
    size_t counts[FILES_MAX] = {0}, known = 0, most = 0;
    struct cairn_up_head head;
    for (uint64_t offset = 0; cairn_up_head_after(file, offset, NULL, 0, &offset, &head);
         offset += head.bytes) {
        size_t at = 0;
        while (at < known && (ids[at].file != head.id.file || ids[at].node_crc != head.id.node_crc))
            at++;
        if (at == FILES_MAX) continue;
        if (at == known) ids[known++] = head.id;
        counts[at]++;
        if (counts[at] > counts[most]) most = at;
    }
    if (known) *ret = ids[most];
    return known > 0;
}

struct scan {
    struct cairn_view file;
    const struct cairn_up_scan_sink *sink;
    struct cairn_up_scanned *ret;
};

/* Collects the entries that the group's records belong to, for the head of the next group. */
static void take_head(struct scan *scan, const struct cairn_up_head *head) {
    struct cairn_up_touches *touches = &scan->ret->touches;
    touches->count = 0;
    touches->covers_from = head->covers_from;
    for (size_t i = 0; i < head->count; i++) {
        struct cairn_up_touched touched;
        cairn_up_head_touched(head, i, &touched);
        cairn_up_touches_add(touches, touched.sequence, touched.entry, touched.closed);
    }
    scan->ret->entry_last = cairn_max_u64(scan->ret->entry_last, head->entry_last);
}

static void take_records(struct scan *scan, uint64_t sequence, uint64_t offset, uint64_t end) {
    struct cairn_up_record_found found;
    bool whole = true;
    for (; offset < end; offset += found.span.bytes) {
        record_at(scan->file, offset, &found, &whole);
        if (!whole) break;
        cairn_up_touches_add(&scan->ret->touches, sequence, found.entry, found.closes);
    }
    cairn_up_touches_trim(&scan->ret->touches, sequence);
}

/* Reads the group at scanned->end. *ret_whole false: no progress. */
static enum cairn_code read_group(struct scan *scan, bool *ret_whole, struct cairn_error *err) {
    struct cairn_up_scanned *scanned = scan->ret;
    struct cairn_up_head head;
    uint64_t end = 0;
    *ret_whole = head_at(scan->file, scanned->end, &head) && head.id.file == scanned->id.file &&
                 head.id.node_crc == scanned->id.node_crc && head.sequence == scanned->sequence + 1;
    if (!*ret_whole) return CAIRN_OK;
    struct cairn_view records = head_records(scan->file, scanned->end, &head, ret_whole);
    if (!*ret_whole) return CAIRN_OK;
    uint64_t from = scanned->end + head.bytes;
    CAIRN_TRY(scan_records(scan->file, from, from + records.size, scan->sink, &end, err));
    *ret_whole = end == from + records.size;
    if (!*ret_whole) return CAIRN_OK;
    take_head(scan, &head);
    take_records(scan, head.sequence, from, end);
    scanned->end = end;
    scanned->sequence = head.sequence;
    return CAIRN_OK;
}

static enum cairn_code read_groups(struct scan *scan, struct cairn_error *err) {
    struct cairn_up_scanned *scanned = scan->ret;
    while (scanned->end < scan->file.size) {
        struct cairn_up_head head;
        uint64_t next = 0;
        bool whole = false;
        CAIRN_TRY(read_group(scan, &whole, err));
        if (whole) continue;
        /* A head in the expected place belongs to the damaged group itself. */
        uint64_t wanted = scanned->sequence + 1, after = scanned->end;
        bool own = head_at(scan->file, after, &head) && head.sequence == wanted;
        if (!cairn_up_head_after(scan->file, after + own, &scanned->id, wanted + own, &next, &head))
            return CAIRN_OK; /* a torn tail ends the scan */
        /* Reports that the groups before `head` are damaged; the head lists the entries they
         * touched. */
        uint64_t expected = scanned->sequence + 1;
        scanned->damaged = true;
        if (scan->sink->damaged) {
            struct cairn_up_damage damage = {.offset = scanned->end,
                                             .end = next,
                                             .first = expected,
                                             .last = head.sequence - 1,
                                             .known = head.covers_from <= expected,
                                             .entry_last = head.entry_last,
                                             .head = &head};
            CAIRN_TRY(scan->sink->damaged(scan->sink->owner, &damage, err));
        }
        scanned->end = next;
        scanned->sequence = head.sequence - 1;
    }
    return CAIRN_OK;
}

enum cairn_code cairn_up_journal_scan(struct cairn_view file, uint32_t node_crc,
                                      const struct cairn_up_scan_sink *sink,
                                      struct cairn_up_scanned *ret, struct cairn_error *err) {
    struct scan scan = {file, sink, ret};
    struct cairn_up_group2 first;
    struct cairn_up_head any;
    uint64_t where = 0, end = 0;
    cairn_up_touches_release(&ret->touches);
    *ret = (struct cairn_up_scanned){0};
    bool headed = cairn_up_group2_at(file, 0, &first) && first.sequence == 1;
    if (headed ? !first.spare : !cairn_up_head_after(file, 0, NULL, 0, &where, &any)) {
        ret->before = true;
        return scan_before(file, sink, ret, err);
    }
    if (headed) {
        ret->id = (struct cairn_up_file_id){first.spare, node_crc};
        CAIRN_TRY(scan_records(file, CAIRN_UP_GROUP2_HEAD_BYTES,
                               CAIRN_UP_GROUP2_HEAD_BYTES + first.records.size, sink, &end, err));
        ret->end = CAIRN_UP_GROUP2_HEAD_BYTES + first.records.size;
        ret->sequence = 1;
        ret->touches.covers_from = 1;
    } else if (!find_id(file, &ret->id)) {
        return CAIRN_OK;
    }
    return read_groups(&scan, err);
}
