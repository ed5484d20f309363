/* SPDX-License-Identifier: Apache-2.0 */
/* Pieces of tensors out of verified blocks, read in the order of the shards. */
#include "server/reads/source_inside.h"

#include <stdlib.h>

#include "plan/reads.h"
#include "server/reads/stream.h"

#define BUFFER_BYTES CAIRN_SRV_STREAM_CHUNK_BYTES /* what server->chunks gives */
#define LOAD_READ_BYTES (1024 * CAIRN_MIB)

static int compare_places(const void *a, const void *b) {
    const struct cairn_plan_piece *x = a, *y = b;
    if (x->shard != y->shard) return x->shard < y->shard ? -1 : 1;
    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

/* Of the pieces from first on those bytes that lie in what was read, which is `range`. */
static void put_pieces(const struct cairn_srv_piece_reader *reader,
                       const struct cairn_plan_piece *pieces, size_t first, size_t count,
                       struct cairn_plan_range range, uint8_t *into) {
    for (size_t i = first; i < count && pieces[i].offset < range.end; i++) {
        const struct cairn_plan_piece *piece = &pieces[i];
        uint64_t begin = cairn_max_u64(piece->offset, range.begin);
        uint64_t end = cairn_min_u64(piece->offset + piece->bytes, range.end);
        if (begin >= end) continue;
        memcpy(into + piece->at + (begin - piece->offset), reader->blocks + (begin - range.begin),
               (size_t)(end - begin));
    }
}

/* Pieces [first, count) of one shard, whose blocks are one range. */
static enum cairn_code read_joined(struct cairn_srv_piece_reader *reader,
                                   const struct cairn_plan_piece *pieces, size_t first,
                                   size_t count, struct cairn_plan_range wide, uint8_t *into,
                                   struct cairn_error *err) {
    uint32_t shard = pieces[first].shard;
    struct cairn_srv_blocks blocks = {.manifest = reader->manifest,
                                      .shard = &reader->manifest->manifest.shards[shard],
                                      .place = reader->place,
                                      .reading = reader->reading,
                                      .object = shard};
    while (wide.begin < wide.end) {
        uint64_t end = cairn_plan_range_cut(wide, BUFFER_BYTES);
        if (reader->read_bytes + (end - wide.begin) > LOAD_READ_BYTES)
            return cairn_fail(err, CAIRN_TOO_LARGE,
                              "the slice's elements lie too far apart: %d MiB are read for some "
                              "MiB of it; ask for whole rows",
                              (int)(LOAD_READ_BYTES / CAIRN_MIB));
        reader->read_bytes += end - wide.begin;
        CAIRN_TRY(cairn_srv_blocks_read(&blocks, reader->worker, wide.begin, end - wide.begin,
                                        reader->blocks, err));
        while (first < count && pieces[first].offset + pieces[first].bytes <= wide.begin) first++;
        put_pieces(reader, pieces, first, count, (struct cairn_plan_range){wide.begin, end}, into);
        wide.begin = end;
    }
    return CAIRN_OK;
}

enum cairn_code cairn_srv_pieces_read(struct cairn_srv_piece_reader *reader,
                                      struct cairn_plan_pieces *pieces, uint8_t *into,
                                      struct cairn_error *err) {
    const struct cairn_plan_piece *all = pieces->pieces;
    if (pieces->count)
        qsort(pieces->pieces, pieces->count, sizeof(*pieces->pieces), compare_places);
    for (size_t i = 0, next = 0; i < pieces->count; i = next) {
        uint64_t size = reader->manifest->manifest.shards[all[i].shard].size_bytes;
        struct cairn_plan_range wide = {0};
        for (next = i; next < pieces->count && all[next].shard == all[i].shard; next++) {
            struct cairn_plan_range own = cairn_plan_range_widen(
                (struct cairn_plan_range){all[next].offset, all[next].offset + all[next].bytes},
                size);
            if (next == i)
                wide = own;
            else if (own.begin > wide.end)
                break;
            wide.end = cairn_max_u64(wide.end, own.end);
        }
        CAIRN_TRY(read_joined(reader, all, i, next, wide, into, err));
    }
    return CAIRN_OK;
}
