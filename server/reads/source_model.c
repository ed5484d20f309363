/* SPDX-License-Identifier: Apache-2.0 */
/* One safetensors file of a version's tensors, put together from the shards of all ranks; see
 * source.h. A load plans all tensors of its range at once, so that many small ones that lie in one
 * block cost one read. */
#include <stdlib.h>

#include "api/table/dtype.h"
#include "formats/convert.h"
#include "server/http/chunks.h"
#include "server/reads/source_inside.h"
#include "server/reads/stream.h"

#define BUFFER_BYTES CAIRN_SRV_STREAM_CHUNK_BYTES /* what server->chunks gives */
#define PIECES_MAX (UINT32_C(1) << 17)
#define GRAIN_BYTES 16 /* elements have 1, 2, 4, 8 or 16 */

struct model_source {
    struct cairn_srv_source source; /* first */
    struct cairn_srv *server;
    struct cairn_srv_held *manifest, *layout;
    struct cairn_version_place place;
    struct cairn_srv_reading *reading;
    struct cairn_srv_model model;
    struct cairn_buf head;
    const struct cairn_safetensors_entry *entries; /* of the file, by their offsets */
    size_t count;
    uint64_t part_bytes; /* of the file: as they are stored they fit into a buffer */
};
/* What a part of the file has of one tensor. */
struct item {
    const struct cairn_safetensors_entry *entry;
    unsigned stored; /* element type */
    uint64_t first, elements;
    uint64_t at;                      /* in the part */
    uint64_t stored_at, stored_bytes; /* where all are one behind the other as they are stored */
};
struct part {
    struct model_source *own;
    uint64_t from, bytes; /* of the file */
    struct item *items;
    struct cairn_plan_want *wants;
    size_t count;
    bool converts;
    uint64_t stored_bytes;
};
struct load {
    struct model_source *own;
    struct cairn_srv_piece_reader reader;
    uint8_t *elements; /* BUFFER_BYTES */
    struct cairn_error *err;
};

/* ---- what lies in a part ---- */

/* The first entry that ends behind `from`. */
static size_t find_entry(const struct model_source *own, uint64_t from) {
    size_t low = 0, high = own->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (own->entries[middle].offset_bytes + own->entries[middle].size_bytes <= from)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void set_item(struct part *part, const struct cairn_safetensors_entry *entry,
                     struct item *ret) {
    uint64_t begin = cairn_max_u64(entry->offset_bytes, part->from);
    uint64_t end = cairn_min_u64(entry->offset_bytes + entry->size_bytes, part->from + part->bytes);
    uint64_t width = cairn_dtype_bits(entry->dtype) / 8;
    struct cairn_tensor tensor;
    cairn_srv_model_stored(&part->own->layout->layout, entry->tag, &tensor);
    *ret = (struct item){.entry = entry,
                         .stored = tensor.dtype,
                         .first = (begin - entry->offset_bytes) / width,
                         .elements = (end - begin) / width,
                         .at = begin - part->from,
                         .stored_at = part->stored_bytes};
    ret->stored_bytes = ret->elements * cairn_dtype_bits(tensor.dtype) / 8;
    part->stored_bytes += ret->stored_bytes;
    part->converts |= tensor.dtype != entry->dtype;
}

static enum cairn_code make_part(struct part *part, struct cairn_error *err) {
    const struct model_source *own = part->own;
    size_t first = find_entry(own, part->from), end = first;
    while (end < own->count && own->entries[end].offset_bytes < part->from + part->bytes) end++;
    part->items = calloc(end - first + 1, sizeof(*part->items));
    part->wants = calloc(end - first + 1, sizeof(*part->wants));
    if (!part->items || !part->wants)
        return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a read");
    for (size_t i = first; i < end; i++) {
        if (!own->entries[i].size_bytes) continue;
        struct item *item = &part->items[part->count];
        set_item(part, &own->entries[i], item);
        part->wants[part->count++] = (struct cairn_plan_want){.tensor = item->entry->name,
                                                              .form = CAIRN_PLAN_FLAT,
                                                              .start = &item->first,
                                                              .count = &item->elements};
    }
    return CAIRN_OK;
}

static void release_part(struct part *part) {
    free(part->items);
    free(part->wants);
}

/* ---- its bytes ---- */

static enum cairn_code read_part(struct load *load, struct part *part, uint8_t *into) {
    struct cairn_plan_pieces pieces = {0};
    const struct model_source *own = load->own;
    CAIRN_TRY(make_part(part, load->err));
    if (!part->count) return CAIRN_OK;
    enum cairn_code code =
        cairn_plan_reads_most(&own->manifest->manifest, &own->layout->layout, part->wants,
                              part->count, PIECES_MAX, &pieces, load->err);
    for (size_t i = 0; !code && i < pieces.count; i++) {
        const struct item *item = &part->items[pieces.pieces[i].want];
        pieces.pieces[i].at += part->converts ? item->stored_at : item->at;
    }
    CAIRN_ASSERT(code || !part->converts || part->stored_bytes <= BUFFER_BYTES);
    if (!code)
        code = cairn_srv_pieces_read(&load->reader, &pieces, part->converts ? load->elements : into,
                                     load->err);
    cairn_plan_pieces_release(&pieces);
    for (size_t i = 0; !code && part->converts && i < part->count; i++) {
        const struct item *item = &part->items[i];
        const uint8_t *stored = load->elements + item->stored_at;
        if (item->stored == item->entry->dtype)
            memcpy(into + item->at, stored, (size_t)item->stored_bytes);
        else
            cairn_convert(item->stored, stored, item->entry->dtype, into + item->at,
                          (size_t)item->elements);
    }
    return code;
}

/* Where a part has too many pieces, one half after the other. */
static enum cairn_code read_data(struct load *load, uint64_t from, uint64_t bytes, uint8_t *into) {
    uint64_t most = load->own->part_bytes;
    for (uint64_t done = 0; done < bytes;) {
        struct part part = {
            .own = load->own, .from = from + done, .bytes = cairn_min_u64(most, bytes - done)};
        enum cairn_code code = read_part(load, &part, into + done);
        release_part(&part);
        if (code == CAIRN_TOO_LARGE && most > GRAIN_BYTES) {
            most = cairn_round_up(most / 2, GRAIN_BYTES);
            continue;
        }
        CAIRN_TRY(code);
        done += part.bytes;
    }
    return CAIRN_OK;
}

/* Elements that become narrower need more room as they are stored. */
static uint64_t part_bytes(const struct model_source *own) {
    uint64_t ratio = 1;
    for (size_t i = 0; i < own->count; i++) {
        struct cairn_tensor tensor;
        cairn_srv_model_stored(&own->layout->layout, own->entries[i].tag, &tensor);
        ratio = cairn_max_u64(ratio, cairn_dtype_bits(tensor.dtype) /
                                         cairn_dtype_bits(own->entries[i].dtype));
    }
    return BUFFER_BYTES / ratio;
}

static enum cairn_code load_model(struct cairn_srv_source *source,
                                  struct cairn_store_worker *worker, uint64_t from, uint64_t bytes,
                                  void *into, struct cairn_error *err) {
    struct model_source *own = (struct model_source *)source;
    struct cairn_srv_chunks *chunks = own->server->chunks;
    uint64_t of_head = from < own->head.size ? cairn_min_u64(bytes, own->head.size - from) : 0;
    if (of_head) memcpy(into, own->head.data + from, (size_t)of_head);
    if (of_head == bytes) return CAIRN_OK;
    struct load load = {.own = own,
                        .reader = {.manifest = own->manifest,
                                   .place = &own->place,
                                   .reading = own->reading,
                                   .worker = worker,
                                   .blocks = cairn_srv_chunks_take(chunks)},
                        .elements = cairn_srv_chunks_take(chunks),
                        .err = err};
    enum cairn_code code = load.reader.blocks && load.elements
                               ? CAIRN_OK
                               : cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a read");
    if (!code) code = read_data(&load, from + of_head, bytes - of_head, (uint8_t *)into + of_head);
    if (load.reader.blocks) cairn_srv_chunks_give(chunks, load.reader.blocks);
    if (load.elements) cairn_srv_chunks_give(chunks, load.elements);
    return code;
}

static void free_model(struct cairn_srv_source *source) {
    struct model_source *own = (struct model_source *)source;
    cairn_srv_cache_give(own->server, own->manifest);
    cairn_srv_cache_give(own->server, own->layout);
    cairn_srv_reading_free(own->reading);
    cairn_srv_model_release(&own->model);
    cairn_buf_release(&own->head);
    free(own);
}

enum cairn_code cairn_srv_source_model(const struct cairn_srv_model_read *read,
                                       struct cairn_srv_source **ret, struct cairn_error *err) {
    struct model_source *own = calloc(1, sizeof(*own));
    if (!own) {
        cairn_srv_cache_give(read->server, read->take_manifest);
        cairn_srv_cache_give(read->server, read->take_layout);
        return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a read");
    }
    *own = (struct model_source){.source = {.grain_bytes = GRAIN_BYTES,
                                            .version = read->place->id,
                                               .head_bytes = UINT64_MAX,
                                            .chunk_bytes = BUFFER_BYTES,
                                            .load = load_model,
                                            .free = free_model},
                                 .server = read->server,
                                 .manifest = read->take_manifest,
                                 .layout = read->take_layout,
                                 .place = *read->place,
                                 .model = *read->model};
    *read->model = (struct cairn_srv_model){0};
    own->entries = &own->model.entries[own->model.files[read->file].first];
    own->count = own->model.files[read->file].count;
    own->part_bytes = part_bytes(own);
    enum cairn_code code =
        cairn_srv_model_head(&own->model, read->file, &own->head, &own->source.size_bytes, err);
    if (!code)
        code = cairn_srv_reading_new(own->server, own->place.id.text,
                                     own->manifest->manifest.shard_count, &own->reading, err);
    if (code)
        free_model(&own->source);
    else
        *ret = &own->source;
    return code;
}
