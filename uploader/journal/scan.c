/* SPDX-License-Identifier: Apache-2.0 */
/* Reading a journal from its first byte to its last whole group, past what is damaged. */
#include "uploader/journal/scan.h"

#include "uploader/journal/before.h"

#define FILES_MAX 8 /* that may be told apart when the first group is damaged */

enum cairn_code cairn_up_scan_records(struct cairn_view file, uint64_t offset, uint64_t end,
                                      const struct cairn_up_scan_sink *sink, uint64_t *ret_end,
                                      struct cairn_error *err) {
    struct cairn_view part = {file.data, (size_t)end};
    while (offset < end) {
        struct cairn_up_record_found found;
        bool whole = false;
        cairn_up_record_at(part, offset, &found, &whole);
        if (!whole) break;
        CAIRN_TRY(sink->each(sink->owner, &found, err));
        offset += found.span.bytes;
    }
    *ret_end = offset;
    return CAIRN_OK;
}

/* The identity in most heads of the file, where the first group, which says it, is damaged. */
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

/* ---- format 3 ---- */

struct scan {
    struct cairn_view file;
    const struct cairn_up_scan_sink *sink;
    struct cairn_up_scanned *ret;
};

/* The entries that the group wrote of, for the head of the next group. */
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
        cairn_up_record_at(scan->file, offset, &found, &whole);
        if (!whole) break;
        cairn_up_touches_add(&scan->ret->touches, sequence, found.entry, found.closes);
    }
    cairn_up_touches_trim(&scan->ret->touches, sequence);
}

/* Groups up to the one before `head` are not there; it says what they touched. */
static enum cairn_code pass_damage(struct scan *scan, uint64_t next,
                                   const struct cairn_up_head *head, struct cairn_error *err) {
    struct cairn_up_scanned *scanned = scan->ret;
    uint64_t expected = scanned->sequence + 1;
    scanned->damaged = true;
    if (scan->sink->damaged) {
        struct cairn_up_damage damage = {.offset = scanned->end,
                                         .end = next,
                                         .first = expected,
                                         .last = head->sequence - 1,
                                         .known = head->covers_from <= expected,
                                         .entry_last = head->entry_last,
                                         .head = head};
        CAIRN_TRY(scan->sink->damaged(scan->sink->owner, &damage, err));
    }
    scanned->end = next;
    scanned->sequence = head->sequence - 1;
    return CAIRN_OK;
}

/* The group at the end of what was read. *ret_whole false: nothing was read on. */
static enum cairn_code read_group(struct scan *scan, bool *ret_whole, struct cairn_error *err) {
    struct cairn_up_scanned *scanned = scan->ret;
    struct cairn_up_head head;
    uint64_t end = 0;
    *ret_whole = cairn_up_head_at(scan->file, scanned->end, &head) &&
                 head.id.file == scanned->id.file && head.id.node_crc == scanned->id.node_crc &&
                 head.sequence == scanned->sequence + 1;
    if (!*ret_whole) return CAIRN_OK;
    struct cairn_view records =
        cairn_up_head_records(scan->file, scanned->end, &head, ret_whole);
    if (!*ret_whole) return CAIRN_OK;
    uint64_t from = scanned->end + head.bytes;
    CAIRN_TRY(
        cairn_up_scan_records(scan->file, from, from + records.size, scan->sink, &end, err));
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
        /* A head that stands where it belongs is the damaged group's own. */
        uint64_t wanted = scanned->sequence + 1, after = scanned->end;
        bool own = cairn_up_head_at(scan->file, after, &head) && head.sequence == wanted;
        if (!cairn_up_head_after(scan->file, after + own, &scanned->id, wanted + own, &next, &head))
            return CAIRN_OK; /* the torn tail */
        CAIRN_TRY(pass_damage(scan, next, &head, err));
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
        return cairn_up_scan_before(file, sink, ret, err);
    }
    if (headed) {
        ret->id = (struct cairn_up_file_id){first.spare, node_crc};
        CAIRN_TRY(cairn_up_scan_records(file, CAIRN_UP_GROUP2_HEAD_BYTES,
                                        CAIRN_UP_GROUP2_HEAD_BYTES + first.records.size, sink, &end,
                                        err));
        ret->end = CAIRN_UP_GROUP2_HEAD_BYTES + first.records.size;
        ret->sequence = 1;
        ret->touches.covers_from = 1;
    } else if (!find_id(file, &ret->id)) {
        return CAIRN_OK;
    }
    return read_groups(&scan, err);
}
