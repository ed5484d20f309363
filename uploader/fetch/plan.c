/* SPDX-License-Identifier: Apache-2.0 */
/* Ranges are sorted and joined, then cut: whole blocks go straight into the window, the ends are
 * fragments that are gathered per block. */
#include <inttypes.h>
#include <stdlib.h>

#include "common/buf.h"
#include "plan/reads.h"
#include "uploader/fetch/inside.h"

#define PIECES_MAX (1 << 24)

static int by_place(const void *a, const void *b) {
    const struct cairn_up_range *x = a, *y = b;
    if (x->shard != y->shard) return x->shard < y->shard ? -1 : 1;
    if (x->offset != y->offset) return x->offset < y->offset ? -1 : 1;
    return x->at < y->at ? -1 : x->at > y->at;
}

static int by_block(const void *a, const void *b) {
    const struct cairn_up_fragment *x = a, *y = b;
    if (x->shard != y->shard) return x->shard < y->shard ? -1 : 1;
    if (x->block != y->block) return x->block < y->block ? -1 : 1;
    return 0;
}

static enum cairn_code check(const struct cairn_up_reading *reading,
                             const struct cairn_up_range *range, struct cairn_error *err) {
    const struct cairn_manifest *manifest = &reading->version->manifest;
    if (range->shard >= manifest->shard_count)
        return cairn_fail(err, CAIRN_INVALID, "shard %u of %zu", range->shard,
                          manifest->shard_count);
    uint64_t size = manifest->shards[range->shard].size_bytes;
    uint64_t window = reading->window->memory.size_bytes;
    if (range->bytes > size || range->offset > size - range->bytes)
        return cairn_fail(err, CAIRN_RANGE,
                          "%" PRIu64 " bytes from %" PRIu64 " of a shard of %" PRIu64, range->bytes,
                          range->offset, size);
    if (range->bytes > window || range->at > window - range->bytes)
        return cairn_fail(err, CAIRN_INVALID,
                          "%" PRIu64 " bytes at %" PRIu64 " of a window of %" PRIu64, range->bytes,
                          range->at, window);
    return CAIRN_OK;
}

/* Neighbours in the shard that are neighbours in the window become one. */
static size_t join(struct cairn_up_range *ranges, size_t count) {
    size_t kept = 0;
    for (size_t i = 0; i < count; i++) {
        if (!ranges[i].bytes) continue;
        struct cairn_up_range *last = kept ? &ranges[kept - 1] : NULL;
        if (last && last->shard == ranges[i].shard &&
            last->offset + last->bytes == ranges[i].offset &&
            last->at + last->bytes == ranges[i].at)
            last->bytes += ranges[i].bytes;
        else
            ranges[kept++] = ranges[i];
    }
    return kept;
}

static enum cairn_code no_memory(struct cairn_error *err) {
    return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a read");
}

static enum cairn_code add_piece(struct cairn_up_reading *reading, size_t *capacity,
                                 const struct cairn_up_piece *piece, struct cairn_error *err) {
    CAIRN_TRY(CAIRN_ARRAY_ROOM(reading->pieces, reading->piece_count, *capacity, PIECES_MAX,
                               "requests for one read", err));
    reading->pieces[reading->piece_count++] = *piece;
    return CAIRN_OK;
}

static void add_fragment(struct cairn_up_reading *reading, const struct cairn_up_range *range,
                         uint64_t from, uint64_t end) {
    if (from >= end) return;
    reading->fragments[reading->fragment_count++] = (struct cairn_up_fragment){
        .shard = range->shard,
        .block = from / CAIRN_BLOCK_BYTES,
        .from = (uint32_t)(from % CAIRN_BLOCK_BYTES),
        .bytes = (uint32_t)(end - from),
        .at = range->at + (from - range->offset),
    };
}

static enum cairn_code cut(struct cairn_up_reading *reading, const struct cairn_up_range *range,
                           size_t *capacity, struct cairn_error *err) {
    uint64_t size = reading->version->manifest.shards[range->shard].size_bytes;
    uint64_t end = range->offset + range->bytes;
    struct cairn_plan_range whole =
        cairn_plan_range_within((struct cairn_plan_range){range->offset, end}, size);
    uint64_t first = whole.begin, last = whole.end;
    add_fragment(reading, range, range->offset, first); /* without a whole block: up to a border */
    add_fragment(reading, range, last, end);
    for (uint64_t at = first, border; at < last; at = border) {
        border = at - at % CAIRN_UP_PIECE_BYTES + CAIRN_UP_PIECE_BYTES; /* the cell's end */
        struct cairn_up_piece piece = {
            .shard = range->shard,
            .offset = at,
            .bytes = cairn_min_u64(border, last) - at,
            .at = range->at + (at - range->offset),
        };
        CAIRN_TRY(add_piece(reading, capacity, &piece, err));
    }
    return CAIRN_OK;
}

static enum cairn_code gather_fragments(struct cairn_up_reading *reading, size_t *capacity,
                                        struct cairn_error *err) {
    qsort(reading->fragments, reading->fragment_count, sizeof(*reading->fragments), by_block);
    for (size_t i = 0; i < reading->fragment_count;) {
        size_t first = i;
        const struct cairn_up_fragment *fragment = &reading->fragments[first];
        while (i < reading->fragment_count && !by_block(&reading->fragments[i], fragment)) i++;
        uint64_t size = reading->version->manifest.shards[fragment->shard].size_bytes;
        uint64_t offset = fragment->block * CAIRN_BLOCK_BYTES;
        struct cairn_up_piece piece = {
            .shard = fragment->shard,
            .offset = offset,
            .bytes = cairn_min_u64(CAIRN_BLOCK_BYTES, size - offset),
            .bounced = true,
            .fragment_first = first,
            .fragment_count = i - first,
        };
        CAIRN_TRY(add_piece(reading, capacity, &piece, err));
    }
    return CAIRN_OK;
}

enum cairn_code cairn_up_fetch_plan(struct cairn_up_reading *reading,
                                    const struct cairn_up_range *ranges, size_t count,
                                    struct cairn_error *err) {
    CAIRN_AUTO_HEAP struct cairn_up_range *sorted = calloc(count + 1, sizeof(*sorted));
    reading->fragments = calloc(2 * count + 1, sizeof(*reading->fragments));
    if (!sorted || !reading->fragments) return no_memory(err);
    for (size_t i = 0; i < count; i++) {
        CAIRN_TRY(check(reading, &ranges[i], err));
        sorted[i] = ranges[i];
    }
    qsort(sorted, count, sizeof(*sorted), by_place);
    count = join(sorted, count);
    size_t capacity = 0;
    for (size_t i = 0; i < count; i++) CAIRN_TRY(cut(reading, &sorted[i], &capacity, err));
    return gather_fragments(reading, &capacity, err);
}
