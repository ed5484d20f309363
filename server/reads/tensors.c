/* SPDX-License-Identifier: Apache-2.0 */
/* GET {C}/tensors, the layout's names in pages; GET {C}/tensors/{tensor} and its /data, and
 * {C}/tensor and {C}/tensor/data, which take the name in the query. A tensor or slice is put
 * together from the shards of all ranks (source.h); each load plans only its own elements. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/crc.h"
#include "formats/convert.h"
#include "server/reads/send.h"
#include "server/reads/shard_calls.h"
#include "server/reads/stream.h"

#define TAG_BYTES 96
#define BUFFER_BYTES SRV_STREAM_CHUNK_BYTES /* the size of server->chunks */
#define PIECES_MAX (UINT32_C(1) << 17)
#define PART_READ_BYTES (256 * CAIRN_MIB) /* target for one chunk */
#define TOGETHER 8                        /* elements: they fill bytes, whatever their type */

/* ---- names ---- */

static enum cairn_code list_names(const struct cairn_layout *layout, uint64_t from,
                                  struct srv_list *list, struct cairn_error *err) {
    const char *part = cairn_query_get(&list->request->query, "q"); /* of the name; NULL: all */
    for (uint64_t i = from; i < layout->name_count && !list->more; i++) {
        struct cairn_view name;
        uint32_t first = 0, count = 0;
        char next[32];
        cairn_layout_name_at(layout, (uint32_t)i, &name, &first, &count);
        if (part && !memmem(name.data, name.size, part, strlen(part))) continue;
        snprintf(next, sizeof(next), "%" PRIu64, i + 1);
        if (srv_list_takes(list, next))
            CAIRN_TRY(srv_list_add(list, cairn_listing_tensor(layout, (uint32_t)i), err));
    }
    return CAIRN_OK;
}

SRV_HANDLER(tensor_list) {
    uint64_t from = 0;
    SRV_GET(list, list, srv_list_open(request, &list, err));
    CAIRN_TRY(srv_list_after(&list, &from, err));
    SRV_GET(version, version, srv_readable(request, &version, err));
    if (version.has_layout) {
        struct srv_held *held = NULL;
        CAIRN_TRY(srv_cache_layout(request->server, request->store, &version, &held, err));
        enum cairn_code code = list_names(&held->layout, from, &list, err);
        srv_cache_give(request->server, held);
        if (code) return code;
    }
    return srv_list_reply(&list, reply, err);
}

/* ---- one tensor ---- */

static enum cairn_code read_name(const struct srv_request *request, const char **ret,
                                 struct cairn_error *err) {
    *ret = request->params.tensor;
    if (**ret) return CAIRN_OK;
    *ret = cairn_query_get(&request->query, "name");
    if (!*ret || !**ret)
        return cairn_fail(err, CAIRN_INVALID, "name is wanted: ?name= and the tensor's name");
    if (strlen(*ret) <= CAIRN_TENSOR_NAME_BYTES_MAX) return CAIRN_OK;
    return cairn_fail(err, CAIRN_INVALID, "name: a tensor's has at most %d bytes, not %zu",
                      CAIRN_TENSOR_NAME_BYTES_MAX, strlen(*ret));
}

/* Hints at a tensor that the request may mean, if its name was escaped wrongly in the path. */
static void hint_at_writing(const struct srv_request *request, const struct cairn_layout *layout,
                            const char *name, struct srv_reply *reply) {
    CAIRN_AUTO(buf) longer = {0}, plain = {0};
    bool word = strstr(request->route->template_text, "{tensor}/data") != NULL;
    uint32_t index = 0;
    if (cairn_buf_printf(&longer, NULL, "%s/data", name)) return;
    if (word && cairn_layout_find(layout, cairn_buf_view(&longer), &index))
        snprintf(reply->hint, sizeof(reply->hint),
                 "There is a tensor \"%s\": the slash before its \"data\" is written %%2F.",
                 cairn_short(longer.data).text);
    if (cairn_percent_decode(cairn_view_of(name), &plain, NULL)) return;
    if (cairn_layout_find(layout, cairn_buf_view(&plain), &index))
        snprintf(reply->hint, sizeof(reply->hint),
                 "There is a tensor \"%s\": the name was percent-encoded twice.",
                 cairn_short(plain.data).text);
}

SRV_HANDLER(tensor_get) {
    const char *name = NULL;
    struct srv_held *held = NULL;
    uint32_t index = 0;
    CAIRN_TRY(read_name(request, &name, err));
    SRV_GET(version, version, srv_readable(request, &version, err));
    CAIRN_TRY(srv_cache_layout(request->server, request->store, &version, &held, err));
    enum cairn_code code = CAIRN_OK;
    if (cairn_layout_find(&held->layout, cairn_view_of(name), &index)) {
        code = srv_reply_json(reply, 200, cairn_listing_tensor(&held->layout, index), err);
    } else {
        hint_at_writing(request, &held->layout, name, reply);
        code = cairn_fail(err, CAIRN_NOT_FOUND, "%s has no tensor \"%s\"", version.id.text,
                          cairn_short(name).text);
    }
    srv_cache_give(request->server, held);
    if (!code) srv_reply_cached(request, reply);
    return code;
}

SRV_HANDLED_AS(tensor_named, tensor_get)

/* ---- a tensor's source ---- */

/* One tensor or a slice of it; borrows from the read's or source's layout. */
struct tensor_view {
    struct cairn_view name; /* in the layout; not an alias */
    uint32_t local_rank;
    struct cairn_tensor tensor;
    bool flat; /* elements [start[0], start[0] + count[0]) of the flattened tensor; else a box */
    uint64_t start[CAIRN_DIMENSIONS_MAX], count[CAIRN_DIMENSIONS_MAX];
    unsigned dtype; /* of the answer */
};
struct tensor_read {
    struct srv_request *request;
    struct srv_reply *reply;
    struct srv_version version;
    struct srv_held *manifest, *layout;
    struct tensor_view view;
    char tag[TAG_BYTES];
};
struct tensor_source {
    struct srv_pieces_source of; /* first */
    struct tensor_view view;
};
struct tensor_load {
    struct tensor_source *own;
    struct srv_pieces_load pieces; /* elements buffer: as stored; NULL: no conversion */
    struct cairn_error *err;
};

/* Makes wants of elements [from, from + count) of the view; returns their count. */
static unsigned make_wants(const struct tensor_source *own, uint64_t from, uint64_t count,
                           struct cairn_plan_box boxes[CAIRN_PLAN_SPLIT_MAX],
                           struct cairn_plan_want wants[CAIRN_PLAN_SPLIT_MAX]) {
    const struct tensor_view *view = &own->view;
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

/* A piece's `at` counts from the first element of the part. */
static enum cairn_code plan_part(const struct tensor_load *load, uint64_t from, uint64_t count,
                                 struct cairn_plan_pieces *ret) {
    struct cairn_plan_box boxes[CAIRN_PLAN_SPLIT_MAX];
    struct cairn_plan_want wants[CAIRN_PLAN_SPLIT_MAX];
    uint64_t before[CAIRN_PLAN_SPLIT_MAX] = {0};
    const struct tensor_source *own = load->own;
    unsigned many = make_wants(own, from, count, boxes, wants);
    CAIRN_TRY(cairn_plan_reads_most(&own->of.manifest->manifest, &own->of.layout->layout, wants,
                                    many, PIECES_MAX, ret, load->err));
    for (unsigned i = 1; i < many; i++) before[i] = before[i - 1] + ret->want_bytes[i - 1];
    for (size_t i = 0; i < ret->count; i++) ret->pieces[i].at += before[ret->pieces[i].want];
    return CAIRN_OK;
}

/* Loads elements as stored; a part with too many pieces is halved. */
static enum cairn_code load_elements(struct tensor_load *load, uint64_t from, uint64_t count,
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
            code = srv_pieces_read(&load->pieces, &pieces, into + done * bits / 8, load->err);
        cairn_plan_pieces_release(&pieces);
        CAIRN_TRY(code);
        done += part;
    }
    return CAIRN_OK;
}

static enum cairn_code load_converted(struct tensor_load *load, uint64_t from, uint64_t bytes,
                                      uint8_t *into) {
    const struct tensor_view *view = &load->own->view;
    uint64_t bits = cairn_dtype_bits(view->dtype);
    uint64_t stored_bits = cairn_dtype_bits(view->tensor.dtype);
    uint64_t first = from * 8 / bits, count = bytes * 8 / bits;
    if (view->dtype == view->tensor.dtype) return load_elements(load, first, count, into);
    uint64_t part = BUFFER_BYTES / stored_bits * TOGETHER;
    for (uint64_t done = 0; done < count; done += part) {
        uint64_t some = cairn_min_u64(part, count - done);
        CAIRN_TRY(load_elements(load, first + done, some, load->pieces.elements));
        cairn_convert(view->tensor.dtype, load->pieces.elements, view->dtype,
                      into + done * bits / 8, (size_t)some);
    }
    return CAIRN_OK;
}

static enum cairn_code load_tensor(struct srv_source *source, struct cairn_store_worker *worker,
                                   uint64_t from, uint64_t bytes, void *into,
                                   struct cairn_error *err) {
    struct tensor_source *own = (struct tensor_source *)source;
    bool converts = own->view.dtype != own->view.tensor.dtype;
    struct tensor_load load = {
        .own = own, .pieces = {.source = &own->of, .worker = worker}, .err = err};
    enum cairn_code code = srv_pieces_load_begin(&load.pieces, converts, err);
    if (!code) code = load_converted(&load, from, bytes, into);
    srv_pieces_load_end(&load.pieces);
    return code;
}

static void free_tensor(struct srv_source *source) {
    srv_pieces_source_free((struct srv_pieces_source *)source);
}

/* Narrow columns of wide rows need a block for every few bytes: short chunks start sooner. */
static uint64_t chunk_for(const struct tensor_view *view) {
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

static uint64_t count_elements(const struct tensor_view *view) {
    uint64_t elements = view->flat ? view->count[0] : 1;
    for (unsigned d = 0; !view->flat && d < view->tensor.dimension_count; d++)
        elements *= view->count[d];
    return elements;
}

/* read's manifest and layout are taken, and given back with the source. */
static enum cairn_code open_tensor(struct srv *server, struct tensor_read *read,
                                   struct srv_source **ret, struct cairn_error *err) {
    const struct tensor_view *view = &read->view;
    uint64_t elements = count_elements(view), bits = cairn_dtype_bits(view->dtype);
    struct cairn_version_place place = srv_version_place(&read->version);
    if (!bits || elements * bits % 8)
        return cairn_fail(err, CAIRN_UNSUPPORTED, "the slice does not fill bytes");
    struct tensor_source *own = (struct tensor_source *)srv_pieces_source_new(
        sizeof(*own), server, CAIRN_TAKE(read->manifest), CAIRN_TAKE(read->layout), &place, err);
    if (!own) return CAIRN_NO_MEMORY;
    own->view = *view;
    own->of.source = (struct srv_source){
        .version = place.id,
        .size_bytes = elements * bits / 8,
        .grain_bytes = bits,      /* as many elements as a byte has bits */
        .head_bytes = UINT64_MAX, /* a second load might read the same blocks again */
        .chunk_bytes = cairn_max_u64(chunk_for(view), bits),
        .load = load_tensor,
        .free = free_tensor};
    enum cairn_code code = srv_reading_new(
        server, place.id.text, own->of.manifest->manifest.shard_count, &own->of.reading, err);
    if (code)
        free_tensor(&own->of.source);
    else
        *ret = &own->of.source;
    return code;
}

/* ---- choosing elements ---- */

/* An alias resolves to its tensor. */
static enum cairn_code choose_tensor(struct tensor_read *read, const char *name,
                                     struct cairn_error *err) {
    const struct cairn_query *query = &read->request->query;
    const struct cairn_layout *layout = &read->layout->layout;
    const char *rank = cairn_query_get(query, "rank");
    struct cairn_plan_fragments fragments = {0};
    uint32_t index = 0, first = 0, count = 0;
    uint64_t number = 0;
    if (rank && (cairn_parse_u64(cairn_view_of(rank), &number, err) || number > UINT32_MAX))
        return cairn_fail(err, CAIRN_INVALID, "rank is a number: whose, of a local tensor");
    enum cairn_code code = cairn_plan_resolve(layout, cairn_view_of(name), &index, err);
    if (code == CAIRN_NOT_FOUND) hint_at_writing(read->request, layout, name, read->reply);
    CAIRN_TRY(code);
    read->view.local_rank = (uint32_t)number;
    CAIRN_TRY(cairn_plan_fragments_choose(&fragments, layout, index, read->view.local_rank, err));
    read->view.tensor = fragments.tensor;
    cairn_layout_name_at(layout, index, &read->view.name, &first, &count);
    return CAIRN_OK;
}

static enum cairn_code choose_dtype(struct tensor_read *read, struct cairn_error *err) {
    const char *text = cairn_query_get(&read->request->query, "dtype");
    unsigned stored = read->view.tensor.dtype;
    read->view.dtype = stored;
    if (!text) return CAIRN_OK;
    if (!cairn_dtype_parse_word(cairn_view_of(text), &read->view.dtype))
        return cairn_fail(err, CAIRN_INVALID,
                          "dtype: want F64, F32, BF16 or F16, or fp32, bf16 or fp16");
    if (cairn_convertible(stored, read->view.dtype)) return CAIRN_OK;
    return cairn_fail(err, CAIRN_INVALID, "dtype: elements of %s cannot be given as %s",
                      cairn_dtype_text(stored), text);
}

static enum cairn_code choose_slice(struct tensor_read *read, struct cairn_error *err) {
    const struct cairn_query *query = &read->request->query;
    const char *slice = cairn_query_get(query, "slice"), *flat = cairn_query_get(query, "flat");
    struct tensor_view *view = &read->view;
    const struct cairn_tensor *tensor = &view->tensor;
    if (slice && flat)
        return cairn_fail(err, CAIRN_INVALID,
                          "slice is of dimensions, flat of all elements: one of them, not both");
    view->flat = flat != NULL;
    if (!flat)
        return cairn_plan_slice_parse(slice ? slice : "", tensor->dimension_count, tensor->shape,
                                      view->start, view->count, err);
    uint64_t elements = 0, bytes = 0;
    if (!cairn_tensor_size(tensor->dtype, tensor->dimension_count, tensor->shape, &elements,
                           &bytes))
        return cairn_fail(err, CAIRN_CORRUPT, "the layout has a tensor of no size");
    return cairn_plan_slice_parse(flat, 1, &elements, view->start, view->count, err);
}

/* Versions are immutable, so the id and the selection identify the bytes. */
static void make_tag(struct tensor_read *read) {
    const struct tensor_view *view = &read->view;
    uint32_t crc = cairn_crc32c(0, view->name.data, view->name.size);
    crc = cairn_crc32c(crc, &view->local_rank, sizeof(view->local_rank));
    crc = cairn_crc32c(crc, &view->flat, sizeof(view->flat));
    crc = cairn_crc32c(crc, view->start, sizeof(view->start));
    crc = cairn_crc32c(crc, view->count, sizeof(view->count));
    snprintf(read->tag, sizeof(read->tag), "\"%s-%s-%08x\"", read->version.id.text,
             cairn_dtype_text(view->dtype), crc);
}

/* "3", not "3:4": drops the dimension, as in numpy. */
static bool is_one_place(const char *slice, unsigned dimension) {
    for (unsigned d = 0; d < dimension && *slice; d++) {
        slice += strcspn(slice, ",");
        slice += *slice == ',';
    }
    size_t size = strcspn(slice, ",");
    return size && !memchr(slice, ':', size);
}

/* The headers describe the bytes. A scalar has no X-Cairn-Shape: an empty header cannot be sent. */
static void say_shape(struct tensor_read *read) {
    const struct tensor_view *view = &read->view;
    const char *slice = cairn_query_get(&read->request->query, view->flat ? "flat" : "slice");
    unsigned dimensions = view->flat ? 1 : view->tensor.dimension_count;
    char text[CAIRN_DIMENSIONS_MAX * 24] = "";
    size_t used = 0;
    for (unsigned d = 0; d < dimensions; d++) {
        if (slice && is_one_place(slice, d)) continue;
        used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%" PRIu64, used ? "," : "",
                                 view->count[d]);
    }
    srv_reply_header(read->reply, "X-Cairn-Dtype", "%s", cairn_dtype_text(view->dtype));
    if (used) srv_reply_header(read->reply, "X-Cairn-Shape", "%s", text);
}

static enum cairn_code read_tensor(struct tensor_read *read, struct cairn_error *err) {
    struct srv_request *request = read->request;
    struct srv *server = request->server;
    const char *name = NULL;
    CAIRN_TRY(read_name(request, &name, err));
    CAIRN_TRY(srv_readable(request, &read->version, err));
    CAIRN_TRY(srv_cache_layout(server, request->store, &read->version, &read->layout, err));
    CAIRN_TRY(choose_tensor(read, name, err));
    CAIRN_TRY(choose_dtype(read, err));
    CAIRN_TRY(choose_slice(read, err));
    CAIRN_TRY(srv_cache_manifest(server, request->store, &read->version, &read->manifest, err));
    make_tag(read);
    struct srv_source *source = NULL;
    CAIRN_TRY(open_tensor(server, read, &source, err));
    enum cairn_code code = srv_send(request, read->reply, source, "tensor", read->tag, err);
    if (!code) say_shape(read);
    return code;
}

SRV_HANDLER(tensor_data) {
    struct tensor_read read = {.request = request, .reply = reply};
    enum cairn_code code = read_tensor(&read, err);
    srv_cache_give(request->server, read.manifest);
    srv_cache_give(request->server, read.layout);
    srv_version_release(&read.version);
    return code;
}

SRV_HANDLED_AS(tensor_data_head, tensor_data)

SRV_HANDLED_AS(tensor_named_data, tensor_data)

SRV_HANDLED_AS(tensor_named_data_head, tensor_data)
