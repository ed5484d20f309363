/* SPDX-License-Identifier: Apache-2.0 */
/* One group of records, and the short list of entries that broke. */
#include "uploader/journal/group.h"

#include <stdlib.h>

#include "common/buf.h"

#define NOTED_MAX (CAIRN_UP_GROUP_BYTES_MAX / CAIRN_UP_RECORD_HEAD_BYTES)
#define BROKEN_MAX (1 << 20)

void cairn_up_group_init(struct cairn_up_group *ret) {
    *ret = (struct cairn_up_group){.bytes = {.limit = CAIRN_UP_GROUP_BYTES_MAX}};
}

void cairn_up_group_release(struct cairn_up_group *group) {
    cairn_buf_release(&group->bytes);
    free(group->noted);
}

static enum cairn_code note(struct cairn_up_group *group, const struct cairn_up_record *record,
                            uint64_t bytes, struct cairn_error *err) {
    CAIRN_TRY(CAIRN_ARRAY_ROOM(group->noted, group->noted_count, group->noted_capacity, NOTED_MAX,
                               "records in a group of the journal", err));
    group->noted[group->noted_count++] =
        (struct cairn_up_noted){record->entry, record->closes, false, bytes};
    return CAIRN_OK;
}

enum cairn_code cairn_up_group_add(struct cairn_up_group *group,
                                   const struct cairn_up_record *records, size_t count,
                                   struct cairn_error *err) {
    size_t bytes_before = group->bytes.size, noted_before = group->noted_count;
    for (size_t i = 0; i < count; i++) {
        size_t from = group->bytes.size;
        enum cairn_code code = cairn_up_record_encode(&records[i], &group->bytes, err);
        if (code == CAIRN_OK) code = note(group, &records[i], group->bytes.size - from, err);
        if (code != CAIRN_OK) {
            group->bytes.size = bytes_before;
            group->noted_count = noted_before;
            return code;
        }
    }
    return CAIRN_OK;
}

void cairn_up_group_wait(struct cairn_up_group *group, struct cairn_up_waiter *waiter) {
    CAIRN_ASSERT(waiter->count <= group->noted_count);
    waiter->first = group->noted_count - waiter->count;
    if (!group->first) group->last = &group->first;
    *group->last = waiter;
    group->last = &waiter->next;
}

void cairn_up_group_drop(struct cairn_up_group *group, const struct cairn_up_broken *broken) {
    size_t from = 0, to = 0;
    for (size_t i = 0; i < group->noted_count; i++) {
        struct cairn_up_noted *noted = &group->noted[i];
        CAIRN_ASSERT(from + noted->bytes <= group->bytes.size);
        noted->dropped = !noted->closes && cairn_up_broken_has(broken, noted->entry);
        if (!noted->dropped) {
            memmove(group->bytes.data + to, group->bytes.data + from, (size_t)noted->bytes);
            to += (size_t)noted->bytes;
        }
        from += (size_t)noted->bytes;
    }
    group->bytes.size = to;
}

bool cairn_up_group_lost(const struct cairn_up_group *group, const struct cairn_up_waiter *waiter) {
    for (size_t i = 0; i < waiter->count; i++) {
        if (group->noted[waiter->first + i].dropped) return true;
    }
    return false;
}

void cairn_up_broken_release(struct cairn_up_broken *broken) {
    free(broken->entries);
    *broken = (struct cairn_up_broken){0};
}

bool cairn_up_broken_has(const struct cairn_up_broken *broken, uint64_t entry) {
    for (size_t i = 0; i < broken->count; i++) {
        if (broken->entries[i] == entry) return true;
    }
    return broken->all;
}

bool cairn_up_broken_add(struct cairn_up_broken *broken, uint64_t entry) {
    if (cairn_up_broken_has(broken, entry)) return false;
    if (CAIRN_ARRAY_ROOM(broken->entries, broken->count, broken->capacity, BROKEN_MAX,
                         "broken entries", NULL)) {
        broken->all = true;
        return true;
    }
    broken->entries[broken->count++] = entry;
    return true;
}

void cairn_up_broken_remove(struct cairn_up_broken *broken, uint64_t entry) {
    for (size_t i = 0; i < broken->count; i++) {
        if (broken->entries[i] == entry) broken->entries[i--] = broken->entries[--broken->count];
    }
}
