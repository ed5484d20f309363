/* SPDX-License-Identifier: Apache-2.0 */
/* Sources over one shard and over memory, and pieces out of the blocks of many shards. */

#include <inttypes.h>
#include <stdlib.h>

#include "server/reads/send.h"
#include "server/reads/source.h"
#include "server/reads/stream.h"

#define READ_MS_MAX 60000
#define BUFFER_BYTES SRV_STREAM_CHUNK_BYTES /* the size of server->chunks */
#define LOAD_READ_BYTES (1024 * CAIRN_MIB)

void srv_source_free(struct srv_source *source) {
    if (source) source->free(source);
}

static enum cairn_code named(const struct srv_blocks *blocks, enum cairn_code code,
                             struct cairn_error *err) {
    if (!code) return CAIRN_OK;
    return cairn_within(err, code, "run %s/%s step %" PRIu64 " shard \"%s\"",
                        blocks->place->name.project, blocks->place->name.run, blocks->place->step,
                        blocks->shard->name);
}

static void log_retry(void *owner, const struct cairn_error *why) {
    const struct srv_blocks *blocks = owner;
    struct cairn_error cause = *why;
    struct cairn_key key;
    cairn_key_shard(blocks->place, cairn_view_of(blocks->shard->name), &key);
    (void)named(blocks, why->code, &cause);
    srv_read_log_retry(key.text, &cause);
}

enum cairn_code srv_blocks_read(const struct srv_blocks *blocks, struct cairn_store_worker *worker,
                                uint64_t offset, uint64_t bytes, void *into,
                                struct cairn_error *err) {
    struct srv_blocks asked = *blocks;
    const char *checksums = blocks->manifest->checksums.data;
    uint64_t block = blocks->shard->first_block + offset / CAIRN_BLOCK_BYTES;
    struct cairn_key key;
    cairn_key_shard(blocks->place, cairn_view_of(blocks->shard->name), &key);
    struct srv_tier_range range = {.key = key.text,
                                   .offset = offset,
                                   .length = bytes,
                                   .into = into,
                                   .object = blocks->object,
                                   .object_bytes = blocks->shard->size_bytes,
                                   .checksums = checksums + 4 * block,
                                   .wait_ms = READ_MS_MAX,
                                   .again = log_retry,
                                   .owner = &asked};
    enum cairn_code code = srv_reading_read(blocks->reading, worker, &range, err);
    return named(blocks, code, err);
}

/* ---- one shard ---- */

struct shard_source {
    struct srv_source source; /* first */
    struct srv *server;
    struct srv_held *manifest;
    const struct cairn_manifest_shard *shard;
    struct cairn_version_place place;
    struct srv_reading *reading; /* of one object */
    struct cairn_store_ready ready;
};

static enum cairn_code load_shard(struct srv_source *source, struct cairn_store_worker *worker,
                                  uint64_t from, uint64_t bytes, void *into,
                                  struct cairn_error *err) {
    struct shard_source *own = (struct shard_source *)source;
    struct srv_blocks blocks = {.manifest = own->manifest,
                                .shard = own->shard,
                                .place = &own->place,
                                .reading = own->reading};
    return srv_blocks_read(&blocks, worker, from, bytes, into, err);
}

static bool open_shard_ready(struct srv_source *source, uint64_t from, uint64_t to) {
    struct shard_source *own = (struct shard_source *)source;
    struct cairn_key key;
    cairn_key_shard(&own->place, cairn_view_of(own->shard->name), &key);
    return cairn_store_ready_open(srv_reading_nearest(own->reading), key.text, from, to,
                                  &own->ready);
}

static bool load_shard_ready(struct srv_source *source, uint64_t from, uint64_t bytes, void *into) {
    const struct shard_source *own = (const struct shard_source *)source;
    const char *checksums = own->manifest->checksums.data;
    uint64_t block = own->shard->first_block + from / CAIRN_BLOCK_BYTES;
    return cairn_store_ready_read(&own->ready, from, into, (size_t)bytes, checksums + 4 * block);
}

static void free_shard(struct srv_source *source) {
    struct shard_source *own = (struct shard_source *)source;
    cairn_store_ready_release(&own->ready);
    srv_cache_give(own->server, own->manifest);
    srv_reading_free(own->reading);
    free(own);
}

enum cairn_code srv_source_shard(struct srv *server, struct srv_held *take_manifest,
                                 const struct cairn_manifest_shard *shard,
                                 const struct cairn_version_place *place, struct srv_source **ret,
                                 struct cairn_error *err) {
    struct shard_source *own = calloc(1, sizeof(*own));
    if (!own) {
        srv_cache_give(server, take_manifest);
        return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a read");
    }
    *own = (struct shard_source){.source = {.version = place->id,
                                            .size_bytes = shard->size_bytes,
                                            .grain_bytes = CAIRN_BLOCK_BYTES,
                                            .head_bytes = CAIRN_BLOCK_BYTES,
                                            .chunk_bytes = UINT64_MAX,
                                            .load = load_shard,
                                            .open_ready = open_shard_ready,
                                            .load_ready = load_shard_ready,
                                            .free = free_shard},
                                 .server = server,
                                 .manifest = take_manifest,
                                 .shard = shard,
                                 .place = *place};
    enum cairn_code code = srv_reading_new(server, place->id.text, 1, &own->reading, err);
    if (code)
        free_shard(&own->source);
    else
        *ret = &own->source;
    return code;
}

/* ---- memory ---- */

struct bytes_source {
    struct srv_source source; /* first */
    struct cairn_buf bytes;
};

static enum cairn_code load_bytes(struct srv_source *source, struct cairn_store_worker *worker,
                                  uint64_t from, uint64_t bytes, void *into,
                                  struct cairn_error *err) {
    const struct bytes_source *own = (struct bytes_source *)source;
    (void)worker, (void)err;
    memcpy(into, own->bytes.data + from, (size_t)bytes);
    return CAIRN_OK;
}

static void free_bytes(struct srv_source *source) {
    struct bytes_source *own = (struct bytes_source *)source;
    cairn_buf_release(&own->bytes);
    free(own);
}

enum cairn_code srv_source_bytes(struct cairn_buf *take, struct srv_source **ret,
                                 struct cairn_error *err) {
    struct bytes_source *own = calloc(1, sizeof(*own));
    if (!own) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a read");
    own->bytes = *take;
    *take = (struct cairn_buf){0};
    own->source = (struct srv_source){.size_bytes = own->bytes.size,
                                      .grain_bytes = 1,
                                      .head_bytes = UINT64_MAX,
                                      .chunk_bytes = UINT64_MAX,
                                      .load = load_bytes,
                                      .free = free_bytes};
    *ret = &own->source;
    return CAIRN_OK;
}

/* ---- pieces, read from verified blocks in shard order ---- */

struct srv_pieces_source *srv_pieces_source_new(size_t bytes, struct srv *server,
                                                struct srv_held *take_manifest,
                                                struct srv_held *take_layout,
                                                const struct cairn_version_place *place,
                                                struct cairn_error *err) {
    struct srv_pieces_source *own = calloc(1, bytes);
    CAIRN_ASSERT(bytes >= sizeof(*own));
    if (!own) {
        srv_cache_give(server, take_manifest);
        srv_cache_give(server, take_layout);
        (void)cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a read");
        return NULL;
    }
    *own = (struct srv_pieces_source){.source.version = place->id,
                                      .server = server,
                                      .manifest = take_manifest,
                                      .layout = take_layout,
                                      .place = *place};
    return own;
}

void srv_pieces_source_free(struct srv_pieces_source *own) {
    srv_cache_give(own->server, own->manifest);
    srv_cache_give(own->server, own->layout);
    srv_reading_free(own->reading);
    free(own);
}

enum cairn_code srv_pieces_load_begin(struct srv_pieces_load *load, bool elements,
                                      struct cairn_error *err) {
    struct srv_chunks *chunks = load->source->server->chunks;
    load->blocks = srv_chunks_take(chunks);
    load->elements = elements ? srv_chunks_take(chunks) : NULL;
    if (load->blocks && (load->elements || !elements)) return CAIRN_OK;
    return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a read");
}

void srv_pieces_load_end(struct srv_pieces_load *load) {
    struct srv_chunks *chunks = load->source->server->chunks;
    if (load->blocks) srv_chunks_give(chunks, load->blocks);
    if (load->elements) srv_chunks_give(chunks, load->elements);
}

static int compare_places(const void *a, const void *b) {
    const struct cairn_plan_piece *x = a, *y = b;
    if (x->shard != y->shard) return x->shard < y->shard ? -1 : 1;
    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

/* Copies those bytes of pieces [first, count) that lie in `range`, which was just read. */
static void put_pieces(const struct srv_pieces_load *load, const struct cairn_plan_piece *pieces,
                       size_t first, size_t count, struct cairn_plan_range range, uint8_t *into) {
    for (size_t i = first; i < count && pieces[i].offset < range.end; i++) {
        const struct cairn_plan_piece *piece = &pieces[i];
        uint64_t begin = cairn_max_u64(piece->offset, range.begin);
        uint64_t end = cairn_min_u64(piece->offset + piece->bytes, range.end);
        if (begin >= end) continue;
        memcpy(into + piece->at + (begin - piece->offset), load->blocks + (begin - range.begin),
               (size_t)(end - begin));
    }
}

/* Reads pieces [first, count) of one shard, whose blocks form the range `wide`. */
static enum cairn_code read_joined(struct srv_pieces_load *load,
                                   const struct cairn_plan_piece *pieces, size_t first,
                                   size_t count, struct cairn_plan_range wide, uint8_t *into,
                                   struct cairn_error *err) {
    uint32_t shard = pieces[first].shard;
    const struct srv_pieces_source *own = load->source;
    struct srv_blocks blocks = {.manifest = own->manifest,
                                .shard = &own->manifest->manifest.shards[shard],
                                .place = &own->place,
                                .reading = own->reading,
                                .object = shard};
    while (wide.begin < wide.end) {
        uint64_t end = cairn_plan_range_cut(wide, BUFFER_BYTES);
        if (load->read_bytes + (end - wide.begin) > LOAD_READ_BYTES)
            return cairn_fail(err, CAIRN_TOO_LARGE,
                              "the slice's elements lie too far apart: %d MiB are read for some "
                              "MiB of it; ask for whole rows",
                              (int)(LOAD_READ_BYTES / CAIRN_MIB));
        load->read_bytes += end - wide.begin;
        CAIRN_TRY(srv_blocks_read(&blocks, load->worker, wide.begin, end - wide.begin, load->blocks,
                                  err));
        while (first < count && pieces[first].offset + pieces[first].bytes <= wide.begin) first++;
        put_pieces(load, pieces, first, count, (struct cairn_plan_range){wide.begin, end}, into);
        wide.begin = end;
    }
    return CAIRN_OK;
}

enum cairn_code srv_pieces_read(struct srv_pieces_load *load, struct cairn_plan_pieces *pieces,
                                uint8_t *into, struct cairn_error *err) {
    const struct cairn_plan_piece *all = pieces->pieces;
    if (pieces->count)
        qsort(pieces->pieces, pieces->count, sizeof(*pieces->pieces), compare_places);
    for (size_t i = 0, next = 0; i < pieces->count; i = next) {
        uint64_t size = load->source->manifest->manifest.shards[all[i].shard].size_bytes;
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
        CAIRN_TRY(read_joined(load, all, i, next, wide, into, err));
    }
    return CAIRN_OK;
}
