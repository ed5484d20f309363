/* SPDX-License-Identifier: Apache-2.0 */
/* Formats 1 and 2. A bad place is a torn tail only when nothing whole follows it. */
#include "uploader/journal/before.h"

#include <inttypes.h>

#include "common/crc.h"
#include "uploader/journal/scan.h"

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

bool cairn_up_is_format1(struct cairn_view file) {
    return file.size >= 4 && cairn_load_u32le(file.data) == CAIRN_UP_RECORD_MAGIC;
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
    CAIRN_TRY(cairn_up_scan_records(file, 0, file.size, sink, ret_end, err));
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

enum cairn_code cairn_up_scan_before(struct cairn_view file, const struct cairn_up_scan_sink *sink,
                                     struct cairn_up_scanned *ret, struct cairn_error *err) {
    if (cairn_up_is_format1(file)) return scan_format1(file, sink, &ret->end, err);
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
        CAIRN_TRY(cairn_up_scan_records(file, records, records + group.records.size, sink, &end,
                                        err));
        if (end != records + group.records.size)
            return cairn_fail(err, CAIRN_CORRUPT, "the record at offset %" PRIu64 " is damaged",
                              end);
        ret->end = end;
        ret->sequence = group.sequence;
    }
    return CAIRN_OK;
}
