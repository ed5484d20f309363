/* SPDX-License-Identifier: Apache-2.0 */
/* Which bytes of a range were noted, and the sum of their remainders. */
#include "formats/seals.h"

#include <stdlib.h>

#include "common/buf.h"
#include "common/crc.h"
#include "common/text.h"

#define SEALS_MAX 16777216
#define PARTS_MAX 8192

void cairn_seals_release(struct cairn_seals *seals) {
    for (size_t i = 0; i < seals->count; i++) {
        free(seals->seals[i].name);
        free(seals->seals[i].parts);
    }
    free(seals->seals);
    if (seals->sorted) cairn_lock_release(&seals->lock);
    *seals = (struct cairn_seals){0};
}

enum cairn_code cairn_seals_add(struct cairn_seals *seals, const struct cairn_seal *seal,
                                struct cairn_view name, struct cairn_error *err) {
    if (!seal->crc32 || !seal->size_bytes) return CAIRN_OK;
    if (seals->sorted) cairn_lock_release(&seals->lock);
    seals->sorted = false;
    CAIRN_TRY(CAIRN_ARRAY_ROOM(seals->seals, seals->count, seals->capacity, SEALS_MAX,
                               "checksums of files", err));
    struct cairn_seal *made = &seals->seals[seals->count];
    *made = *seal;
    made->name = strndup(name.data, name.size);
    if (!made->name) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a name");
    seals->count++;
    return CAIRN_OK;
}

static int by_place(const void *a, const void *b) {
    const struct cairn_seal *x = a, *y = b;
    if (x->input != y->input) return x->input < y->input ? -1 : 1;
    return (x->offset_bytes > y->offset_bytes) - (x->offset_bytes < y->offset_bytes);
}

void cairn_seals_sort(struct cairn_seals *seals) {
    size_t kept = 0;
    CAIRN_ASSERT(!seals->sorted);
    if (seals->count) qsort(seals->seals, seals->count, sizeof *seals->seals, by_place);
    for (size_t i = 0; i < seals->count; i++) {
        if (kept && by_place(&seals->seals[kept - 1], &seals->seals[i]) == 0) {
            free(seals->seals[i].name);
            free(seals->seals[i].parts);
        } else
            seals->seals[kept++] = seals->seals[i];
    }
    seals->count = kept;
    cairn_lock_init(&seals->lock, CAIRN_LOCK_file_seals);
    seals->sorted = true;
}

/* ---- what was noted of one range ---- */

/* The first part that ends at this byte or later. */
static size_t first_part(const struct cairn_seal *seal, uint64_t at) {
    size_t low = 0, high = seal->part_count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (seal->parts[middle].end < at)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void give_up(struct cairn_seal *seal) {
    seal->given_up = true;
    free(seal->parts);
    seal->parts = NULL;
    seal->part_count = 0;
}

/* [begin, end) is free, and becomes a part before number `at`, joined to its neighbours. */
static void insert(struct cairn_seal *seal, size_t at, uint64_t begin, uint64_t end) {
    bool before = at < seal->part_count && seal->parts[at].end == begin;
    size_t next = at + before;
    bool behind = next < seal->part_count && seal->parts[next].begin == end;
    if (before && behind) {
        seal->parts[at].end = seal->parts[next].end;
        memmove(&seal->parts[next], &seal->parts[next + 1],
                (seal->part_count - next - 1) * sizeof *seal->parts);
        seal->part_count--;
    } else if (before) {
        seal->parts[at].end = end;
    } else if (behind) {
        seal->parts[next].begin = begin;
    } else {
        if (CAIRN_ARRAY_ROOM(seal->parts, seal->part_count, seal->part_capacity, PARTS_MAX,
                             "parts of a range", NULL) != CAIRN_OK) {
            give_up(seal);
            return;
        }
        memmove(&seal->parts[at + 1], &seal->parts[at],
                (seal->part_count - at) * sizeof *seal->parts);
        seal->parts[at] = (struct cairn_seal_part){begin, end};
        seal->part_count++;
    }
}

/* Take the next bytes of [*begin, end) that nobody noted; false: there are none. */
static bool take(struct cairn_seals *seals, struct cairn_seal *seal, uint64_t *begin, uint64_t end,
                 uint64_t *ret_end) {
    CAIRN_HOLD(&seals->lock);
    if (seal->given_up) return false;
    size_t at = first_part(seal, *begin);
    if (at < seal->part_count && seal->parts[at].begin <= *begin && seal->parts[at].end > *begin)
        *begin = seal->parts[at].end;
    size_t next = at < seal->part_count && seal->parts[at].end <= *begin ? at + 1 : at;
    if (*begin >= end) return false;
    *ret_end = next < seal->part_count ? cairn_min_u64(end, seal->parts[next].begin) : end;
    insert(seal, at, *begin, *ret_end);
    return !seal->given_up;
}

static enum cairn_code refuse(const struct cairn_seal *seal, const struct cairn_input *input,
                              struct cairn_error *err) {
    return cairn_fail(err, CAIRN_CORRUPT,
                      "%s%szip entry %s does not match its CRC-32: the file is damaged",
                      input->name ? cairn_short(input->name).text : "", input->name ? ": " : "",
                      cairn_short(seal->name).text);
}

/* Bytes [begin, end) of the file, which lie in the range. */
static enum cairn_code note(struct cairn_seals *seals, struct cairn_seal *seal,
                            const struct cairn_input *input, uint64_t begin, uint64_t end,
                            const char *bytes, struct cairn_error *err) {
    const uint64_t first = begin, seal_end = seal->offset_bytes + seal->size_bytes;
    for (uint64_t taken_end; take(seals, seal, &begin, end, &taken_end); begin = taken_end) {
        uint32_t sum = cairn_crc32_shift(
            cairn_crc32_remainder(bytes + (begin - first), (size_t)(taken_end - begin)),
            seal_end - taken_end);
        CAIRN_HOLD(&seals->lock);
        seal->sum ^= sum;
        seal->noted_bytes += taken_end - begin;
        if (seal->noted_bytes == seal->size_bytes &&
            cairn_crc32_of_remainder(seal->sum, seal->size_bytes) != seal->crc32)
            return refuse(seal, input, err);
    }
    return CAIRN_OK;
}

/* ---- all ---- */

/* The first range of the file that ends behind this byte. */
static size_t first_seal(const struct cairn_seals *seals, uint32_t input, uint64_t offset) {
    size_t low = 0, high = seals->count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        const struct cairn_seal *seal = &seals->seals[middle];
        if (seal->input < input ||
            (seal->input == input && seal->offset_bytes + seal->size_bytes <= offset))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

enum cairn_code cairn_seals_note(struct cairn_seals *seals, uint32_t number,
                                 const struct cairn_input *input, uint64_t offset_bytes,
                                 const void *bytes, size_t size, struct cairn_error *err) {
    uint64_t end = offset_bytes + size;
    if (!seals->sorted || !size) return CAIRN_OK;
    for (size_t i = first_seal(seals, number, offset_bytes); i < seals->count; i++) {
        struct cairn_seal *seal = &seals->seals[i];
        if (seal->input != number || seal->offset_bytes >= end) break;
        uint64_t seal_end = seal->offset_bytes + seal->size_bytes;
        uint64_t from = seal->offset_bytes > offset_bytes ? seal->offset_bytes : offset_bytes;
        CAIRN_TRY(note(seals, seal, input, from, cairn_min_u64(end, seal_end),
                       (const char *)bytes + (from - offset_bytes), err));
    }
    return CAIRN_OK;
}

enum cairn_code cairn_seal_check(const struct cairn_seal *seal, const struct cairn_input *input,
                                 void *scratch, size_t size, struct cairn_error *err) {
    uint32_t sum = 0;
    for (uint64_t done = 0; done < seal->size_bytes; done += size) {
        size_t some = (size_t)cairn_min_u64(size, seal->size_bytes - done);
        CAIRN_TRY(cairn_input_read(input, seal->offset_bytes + done, scratch, some, err));
        sum = cairn_crc32_shift(sum, some) ^ cairn_crc32_remainder(scratch, some);
    }
    if (cairn_crc32_of_remainder(sum, seal->size_bytes) == seal->crc32) return CAIRN_OK;
    return refuse(seal, input, err);
}
