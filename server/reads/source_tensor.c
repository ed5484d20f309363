/* SPDX-License-Identifier: Apache-2.0 */
/* A tensor or a slice of it out of the shards of all ranks; see source.h. Each load plans the
 * elements that it needs alone, so that no plan of a large tensor is kept; it reads in the order of
 * the shards and puts what comes to its place. */
#include "server/reads/source_inside.h"

#include <stdlib.h>

#include "api/table/dtype.h"
#include "formats/convert.h"
#include "plan/boxes.h"
#include "server/http/chunks.h"
#include "server/reads/stream.h"

#define BUFFER_BYTES CAIRN_SRV_STREAM_CHUNK_BYTES /* what server->chunks gives */
#define PIECES_MAX (UINT32_C(1) << 17)
#define PART_READ_BYTES (256 * CAIRN_MIB) /* that a chunk should read */
#define TOGETHER 8                        /* elements: they fill bytes, of whatever type they are */

struct tensor_source {
    struct cairn_srv_source source; /* first */
    struct cairn_srv *server;
    struct cairn_srv_held *manifest, *layout;
    struct cairn_version_place place;
    struct cairn_srv_tensor_view view;
    struct cairn_srv_reading *reading; /* by the numbers of shards */
};
struct load {
    struct tensor_source *own;
    struct cairn_srv_piece_reader reader;
    uint8_t *elements; /* BUFFER_BYTES, as stored; NULL: they are not converted */
    struct cairn_error *err;
};

/* ---- pieces of some elements ---- */

/* Elements [from, from + count) of the view as wants; returns how many. */
static unsigned make_wants(const struct tensor_source *own, uint64_t from, uint64_t count,
                           struct cairn_plan_box boxes[CAIRN_PLAN_SPLIT_MAX],
                           struct cairn_plan_want wants[CAIRN_PLAN_SPLIT_MAX]) {
    const struct cairn_srv_tensor_view *view = &own->view;
    unsigned dimensions = view->tensor.dimension_count, many = 1;
    bool flat = view->flat || !dimensions;
    if (flat) {
        boxes[0] = (struct cairn_plan_box){.low = {from + (view->flat ? view->start[0] : 0)},
                                           .high = {count}};
    } else {
        many = cairn_plan_flat_split(view->count, dimensions, from, from + count, boxes);
    }
    for (unsigned i = 0; i < many; i++) {
        for (unsigned d = 0; !flat && d < dimensions; d++) {
            boxes[i].high[d] -= boxes[i].low[d];
            boxes[i].low[d] += view->start[d];
        }
        wants[i] = (struct cairn_plan_want){.tensor = view->name,
                                            .local_rank = view->local_rank,
                                            .form = flat ? CAIRN_PLAN_FLAT : CAIRN_PLAN_BOX,
                                            .start = boxes[i].low,
                                            .count = boxes[i].high};
    }
    return many;
}

/* at counts from the first of the elements. */
static enum cairn_code plan_part(const struct load *load, uint64_t from, uint64_t count,
                                 struct cairn_plan_pieces *ret) {
    struct cairn_plan_box boxes[CAIRN_PLAN_SPLIT_MAX];
    struct cairn_plan_want wants[CAIRN_PLAN_SPLIT_MAX];
    uint64_t before[CAIRN_PLAN_SPLIT_MAX] = {0};
    const struct tensor_source *own = load->own;
    unsigned many = make_wants(own, from, count, boxes, wants);
    CAIRN_TRY(cairn_plan_reads_most(&own->manifest->manifest, &own->layout->layout, wants, many,
                                    PIECES_MAX, ret, load->err));
    for (unsigned i = 1; i < many; i++) before[i] = before[i - 1] + ret->want_bytes[i - 1];
    for (size_t i = 0; i < ret->count; i++) ret->pieces[i].at += before[ret->pieces[i].want];
    return CAIRN_OK;
}

/* ---- their bytes ---- */

/* Elements as they are stored. Where they are too many pieces, one half after the other. */
static enum cairn_code load_elements(struct load *load, uint64_t from, uint64_t count,
                                     uint8_t *into) {
    uint64_t bits = cairn_dtype_bits(load->own->view.tensor.dtype), done = 0, part = count;
    while (done < count) {
        struct cairn_plan_pieces pieces = {0};
        part = cairn_min_u64(part, count - done);
        enum cairn_code code = plan_part(load, from + done, part, &pieces);
        if (code == CAIRN_TOO_LARGE && part > TOGETHER) {
            part = cairn_round_up(part / 2, TOGETHER);
            continue;
        }
        if (!code)
            code = cairn_srv_pieces_read(&load->reader, &pieces, into + done * bits / 8, load->err);
        cairn_plan_pieces_release(&pieces);
        CAIRN_TRY(code);
        done += part;
    }
    return CAIRN_OK;
}

static enum cairn_code load_some(struct load *load, uint64_t from, uint64_t bytes, uint8_t *into) {
    const struct cairn_srv_tensor_view *view = &load->own->view;
    uint64_t bits = cairn_dtype_bits(view->dtype);
    uint64_t stored_bits = cairn_dtype_bits(view->tensor.dtype);
    uint64_t first = from * 8 / bits, count = bytes * 8 / bits;
    if (view->dtype == view->tensor.dtype) return load_elements(load, first, count, into);
    uint64_t part = BUFFER_BYTES / stored_bits * TOGETHER;
    for (uint64_t done = 0; done < count; done += part) {
        uint64_t some = cairn_min_u64(part, count - done);
        CAIRN_TRY(load_elements(load, first + done, some, load->elements));
        cairn_convert(view->tensor.dtype, load->elements, view->dtype, into + done * bits / 8,
                      (size_t)some);
    }
    return CAIRN_OK;
}

static enum cairn_code load_tensor(struct cairn_srv_source *source,
                                   struct cairn_store_worker *worker, uint64_t from, uint64_t bytes,
                                   void *into, struct cairn_error *err) {
    struct tensor_source *own = (struct tensor_source *)source;
    struct cairn_srv_chunks *chunks = own->server->chunks;
    bool converts = own->view.dtype != own->view.tensor.dtype;
    struct load load = {.own = own,
                        .reader = {.manifest = own->manifest,
                                   .place = &own->place,
                                   .reading = own->reading,
                                   .worker = worker,
                                   .blocks = cairn_srv_chunks_take(chunks)},
                        .elements = converts ? cairn_srv_chunks_take(chunks) : NULL,
                        .err = err};
    enum cairn_code code = CAIRN_OK;
    if (!load.reader.blocks || (converts && !load.elements))
        code = cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a read");
    if (!code) code = load_some(&load, from, bytes, into);
    if (load.reader.blocks) cairn_srv_chunks_give(chunks, load.reader.blocks);
    if (load.elements) cairn_srv_chunks_give(chunks, load.elements);
    return code;
}

static void free_tensor(struct cairn_srv_source *source) {
    struct tensor_source *own = (struct tensor_source *)source;
    cairn_srv_cache_give(own->server, own->manifest);
    cairn_srv_cache_give(own->server, own->layout);
    cairn_srv_reading_free(own->reading);
    free(own);
}

/* ---- its size ---- */

/* Narrow columns of wide rows need a block for each few of their bytes: their chunks are shorter,
 * so that none has to wait for all of the tensor. */
static uint64_t chunk_for(const struct cairn_srv_tensor_view *view) {
    unsigned dimensions = view->tensor.dimension_count;
    uint64_t strides[CAIRN_DIMENSIONS_MAX], run = 1, apart = 1;
    uint64_t bits = cairn_dtype_bits(view->dtype), stored = cairn_dtype_bits(view->tensor.dtype);
    if (view->flat || !dimensions) return BUFFER_BYTES;
    cairn_plan_strides(view->tensor.shape, dimensions, strides);
    for (unsigned d = dimensions; d-- > 0;) {
        run *= view->count[d];
        apart = strides[d] * view->tensor.shape[d];
        if (view->count[d] != view->tensor.shape[d]) break;
    }
    uint64_t each = cairn_min_u64(apart, CAIRN_BLOCK_BYTES) * stored / 8;
    each = cairn_max_u64(1, cairn_min_u64(each, CAIRN_BLOCK_BYTES));
    uint64_t runs = PART_READ_BYTES / each;
    if (run >= BUFFER_BYTES || runs * run * bits / 8 >= BUFFER_BYTES) return BUFFER_BYTES;
    return runs * run * bits / 8;
}

static uint64_t count_elements(const struct cairn_srv_tensor_view *view) {
    uint64_t elements = view->flat ? view->count[0] : 1;
    for (unsigned d = 0; !view->flat && d < view->tensor.dimension_count; d++)
        elements *= view->count[d];
    return elements;
}

static enum cairn_code measure(struct tensor_source *own, struct cairn_error *err) {
    uint64_t elements = count_elements(&own->view);
    uint64_t bits = cairn_dtype_bits(own->view.dtype);
    if (!bits || elements * bits % 8)
        return cairn_fail(err, CAIRN_UNSUPPORTED, "the slice does not fill bytes");
    own->source.size_bytes = elements * bits / 8;
    own->source.grain_bytes = bits; /* of as many elements as a byte has bits */
    own->source.head_bytes = UINT64_MAX; /* a second load may read the same blocks again */
    own->source.chunk_bytes = chunk_for(&own->view);
    if (own->source.chunk_bytes < bits) own->source.chunk_bytes = bits;
    return cairn_srv_reading_new(own->server, own->place.id.text,
                                 own->manifest->manifest.shard_count, &own->reading, err);
}

enum cairn_code cairn_srv_source_tensor(struct cairn_srv *server,
                                        struct cairn_srv_held *take_manifest,
                                        struct cairn_srv_held *take_layout,
                                        const struct cairn_version_place *place,
                                        const struct cairn_srv_tensor_view *view,
                                        struct cairn_srv_source **ret, struct cairn_error *err) {
    struct tensor_source *own = calloc(1, sizeof(*own));
    if (!own) {
        cairn_srv_cache_give(server, take_manifest);
        cairn_srv_cache_give(server, take_layout);
        return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a read");
    }
    *own = (struct tensor_source){.source = {.version = place->id,
                                             .load = load_tensor,
                                             .free = free_tensor},
                                  .server = server,
                                  .manifest = take_manifest,
                                  .layout = take_layout,
                                  .place = *place,
                                  .view = *view};
    enum cairn_code code = measure(own, err);
    if (code)
        free_tensor(&own->source);
    else
        *ret = &own->source;
    return code;
}
