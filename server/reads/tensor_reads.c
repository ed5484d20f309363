/* SPDX-License-Identifier: Apache-2.0 */
/* GET {C}/tensors/{tensor} and its /data: one tensor by its name. {C}/tensor and {C}/tensor/data
 * are the same with the name in the query. */
#include <inttypes.h>
#include <stdio.h>

#include "api/documents/committed.h"
#include "api/table/dtype.h"
#include "common/crc.h"
#include "common/text.h"
#include "formats/convert.h"
#include "plan/fragments.h"
#include "plan/slices.h"
#include "server/http/request.h"
#include "server/http/send.h"
#include "server/reads/cache.h"
#include "server/reads/shard_calls.h"

#define TAG_BYTES 96

static enum cairn_code read_name(const struct cairn_srv_request *request, const char **ret,
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

/* The name that is missing may be another one by how it was written in the path. */
static void hint_at_writing(const struct cairn_srv_request *request,
                            const struct cairn_layout *layout, const char *name,
                            struct cairn_srv_reply *reply) {
    CAIRN_AUTO(buf) longer = {0}, plain = {0};
    enum cairn_route_id id = request->route->id;
    bool word = id == CAIRN_ROUTE_TENSOR_NAMED_DATA || id == CAIRN_ROUTE_TENSOR_NAMED_DATA_HEAD;
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

enum cairn_code cairn_srv_on_tensor_get(struct cairn_srv_request *request,
                                        struct cairn_srv_reply *reply, struct cairn_error *err) {
    const char *name = NULL;
    CAIRN_AUTO(srv_version) version = {0};
    struct cairn_srv_held *held = NULL;
    uint32_t index = 0;
    CAIRN_TRY(read_name(request, &name, err));
    CAIRN_TRY(cairn_srv_readable(request, &version, err));
    CAIRN_TRY(cairn_srv_cache_layout(request->server, request->store, &version, &held, err));
    enum cairn_code code = CAIRN_OK;
    if (cairn_layout_find(&held->layout, cairn_view_of(name), &index)) {
        code = cairn_srv_reply_json(reply, 200, cairn_listing_tensor(&held->layout, index), err);
    } else {
        hint_at_writing(request, &held->layout, name, reply);
        code = cairn_fail(err, CAIRN_NOT_FOUND, "%s has no tensor \"%s\"", version.id.text,
                          cairn_short(name).text);
    }
    cairn_srv_cache_give(request->server, held);
    if (!code) cairn_srv_reply_cached(request, reply);
    return code;
}

enum cairn_code cairn_srv_on_tensor_named(struct cairn_srv_request *request,
                                          struct cairn_srv_reply *reply, struct cairn_error *err) {
    return cairn_srv_on_tensor_get(request, reply, err);
}

/* ---- its elements ---- */

struct read {
    struct cairn_srv_request *request;
    struct cairn_srv_reply *reply;
    struct cairn_srv_version version;
    struct cairn_srv_held *manifest, *layout;
    struct cairn_srv_tensor_view view;
    char tag[TAG_BYTES];
};

/* Another name of a tensor is that tensor. */
static enum cairn_code choose(struct read *read, const char *name, struct cairn_error *err) {
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

static enum cairn_code choose_dtype(struct read *read, struct cairn_error *err) {
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

static enum cairn_code choose_slice(struct read *read, struct cairn_error *err) {
    const struct cairn_query *query = &read->request->query;
    const char *slice = cairn_query_get(query, "slice"), *flat = cairn_query_get(query, "flat");
    struct cairn_srv_tensor_view *view = &read->view;
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

/* A version does not change, so its id and what is asked for name the bytes. */
static void make_tag(struct read *read) {
    const struct cairn_srv_tensor_view *view = &read->view;
    uint32_t crc = cairn_crc32c(0, view->name.data, view->name.size);
    crc = cairn_crc32c(crc, &view->local_rank, sizeof(view->local_rank));
    crc = cairn_crc32c(crc, &view->flat, sizeof(view->flat));
    crc = cairn_crc32c(crc, view->start, sizeof(view->start));
    crc = cairn_crc32c(crc, view->count, sizeof(view->count));
    snprintf(read->tag, sizeof(read->tag), "\"%s-%s-%08x\"", read->version.id.text,
             cairn_dtype_text(view->dtype), crc);
}

/* "3", not "3:4": as in numpy that dimension is gone. */
static bool is_one_place(const char *slice, unsigned dimension) {
    for (unsigned d = 0; d < dimension && *slice; d++) {
        slice += strcspn(slice, ",");
        slice += *slice == ',';
    }
    size_t size = strcspn(slice, ",");
    return size && !memchr(slice, ':', size);
}

/* Bytes alone do not say what they are. A scalar has no shape: no empty header can be sent. */
static void say_shape(struct read *read) {
    const struct cairn_srv_tensor_view *view = &read->view;
    const char *slice = cairn_query_get(&read->request->query, view->flat ? "flat" : "slice");
    unsigned dimensions = view->flat ? 1 : view->tensor.dimension_count;
    char text[CAIRN_DIMENSIONS_MAX * 24] = "";
    size_t used = 0;
    for (unsigned d = 0; d < dimensions; d++) {
        if (slice && is_one_place(slice, d)) continue;
        used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%" PRIu64, used ? "," : "",
                                 view->count[d]);
    }
    cairn_srv_reply_header(read->reply, "X-Cairn-Dtype", "%s", cairn_dtype_text(view->dtype));
    if (used) cairn_srv_reply_header(read->reply, "X-Cairn-Shape", "%s", text);
}

static enum cairn_code read_tensor(struct read *read, struct cairn_error *err) {
    struct cairn_srv_request *request = read->request;
    struct cairn_srv *server = request->server;
    const char *name = NULL;
    CAIRN_TRY(read_name(request, &name, err));
    CAIRN_TRY(cairn_srv_readable(request, &read->version, err));
    CAIRN_TRY(cairn_srv_cache_layout(server, request->store, &read->version, &read->layout, err));
    CAIRN_TRY(choose(read, name, err));
    CAIRN_TRY(choose_dtype(read, err));
    CAIRN_TRY(choose_slice(read, err));
    CAIRN_TRY(
        cairn_srv_cache_manifest(server, request->store, &read->version, &read->manifest, err));
    make_tag(read);
    struct cairn_version_place place = cairn_srv_version_place(&read->version);
    struct cairn_srv_source *source = NULL;
    CAIRN_TRY(cairn_srv_source_tensor(server, CAIRN_TAKE(read->manifest), CAIRN_TAKE(read->layout),
                                      &place, &read->view, &source, err));
    enum cairn_code code = cairn_srv_send(request, read->reply, source, "tensor", read->tag, err);
    if (!code) say_shape(read);
    return code;
}

enum cairn_code cairn_srv_on_tensor_data(struct cairn_srv_request *request,
                                         struct cairn_srv_reply *reply, struct cairn_error *err) {
    struct read read = {.request = request, .reply = reply};
    enum cairn_code code = read_tensor(&read, err);
    cairn_srv_cache_give(request->server, read.manifest);
    cairn_srv_cache_give(request->server, read.layout);
    cairn_srv_version_release(&read.version);
    return code;
}

enum cairn_code cairn_srv_on_tensor_data_head(struct cairn_srv_request *request,
                                              struct cairn_srv_reply *reply,
                                              struct cairn_error *err) {
    return cairn_srv_on_tensor_data(request, reply, err);
}

enum cairn_code cairn_srv_on_tensor_named_data(struct cairn_srv_request *request,
                                               struct cairn_srv_reply *reply,
                                               struct cairn_error *err) {
    return cairn_srv_on_tensor_data(request, reply, err);
}

enum cairn_code cairn_srv_on_tensor_named_data_head(struct cairn_srv_request *request,
                                                    struct cairn_srv_reply *reply,
                                                    struct cairn_error *err) {
    return cairn_srv_on_tensor_data(request, reply, err);
}
