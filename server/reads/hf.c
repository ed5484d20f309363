/* SPDX-License-Identifier: Apache-2.0 */
/* GET {C}/hf and {C}/hf/{name}: a version seen as a model folder of Hugging Face. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "api/documents/committed.h"
#include "api/table/dtype.h"
#include "api/wire/messages.h"
#include "common/crc.h"
#include "common/text.h"
#include "formats/convert.h"
#include "server/http/request.h"
#include "server/http/send.h"
#include "server/reads/model_texts.h"
#include "server/reads/shard_calls.h"

#define TAG_BYTES 96
#define RANK_FOLDER_BYTES 20
#define FILE_BYTES_DEFAULT UINT64_C(5000000000)
#define STORED_FILES_MAX 100000

struct view {
    struct cairn_srv_request *request;
    struct cairn_srv_reply *reply;
    struct cairn_srv_version version;
    struct cairn_srv_held *manifest, *layout; /* layout: NULL where there is none */
    struct cairn_srv_model_options options;
    struct cairn_srv_model model;
    const char **tops; /* of a list: names of stored files below their ranks, sorted; owned */
    size_t top_count;
};

/* ---- what is asked for ---- */

static enum cairn_code read_options(struct view *view, struct cairn_error *err) {
    const struct cairn_query *query = &view->request->query;
    const char *dtype = cairn_query_get(query, "dtype");
    const char *bytes = cairn_query_get(query, "max_shard_size");
    struct cairn_srv_model_options *options = &view->options;
    *options = (struct cairn_srv_model_options){.file_bytes_max = FILE_BYTES_DEFAULT,
                                                .only = cairn_query_get(query, "only")};
    if (dtype && (!cairn_dtype_parse_word(cairn_view_of(dtype), &options->dtype) ||
                  !cairn_convertible(CAIRN_DTYPE_F32, options->dtype)))
        return cairn_fail(err, CAIRN_INVALID,
                          "dtype: want F64, F32, BF16 or F16, or fp32, bf16 or fp16");
    if (!bytes) return CAIRN_OK;
    struct cairn_error why = {0};
    if (cairn_parse_size(cairn_view_of(bytes), &options->file_bytes_max, &why) ||
        !options->file_bytes_max)
        return cairn_fail(err, CAIRN_INVALID, "max_shard_size: want a size such as 5GB or 500MiB");
    return CAIRN_OK;
}

static enum cairn_code open_view(struct view *view, struct cairn_error *err) {
    struct cairn_srv_request *request = view->request;
    struct cairn_srv *server = request->server;
    CAIRN_TRY(read_options(view, err));
    CAIRN_TRY(cairn_srv_readable(request, &view->version, err));
    CAIRN_TRY(
        cairn_srv_cache_manifest(server, request->store, &view->version, &view->manifest, err));
    struct cairn_error why = {0};
    enum cairn_code code =
        cairn_srv_cache_layout(server, request->store, &view->version, &view->layout, &why);
    if (code == CAIRN_NOT_FOUND) return CAIRN_OK;
    if (code) {
        *err = why;
        return code;
    }
    CAIRN_TRY(cairn_srv_model_make(&view->layout->layout, &view->options, &view->model, err));
    const struct cairn_srv_model_from from = {request, &view->version, view->manifest,
                                              view->layout};
    return cairn_srv_model_texts(&from, &view->model.texts, &view->model.texts_dropped, err);
}

static void close_view(struct view *view) {
    cairn_srv_cache_give(view->request->server, view->manifest);
    cairn_srv_cache_give(view->request->server, view->layout);
    cairn_srv_model_release(&view->model);
    free(view->tops);
    cairn_srv_version_release(&view->version);
}

/* A file that was saved beside the tensors, and holds none that is known by name. */
static bool is_stored(const struct view *view, const struct cairn_manifest_shard *shard) {
    const struct cairn_layout *layout = view->layout ? &view->layout->layout : NULL;
    if (strcmp(shard->name, CAIRN_TREE_SHARD) == 0) return false; /* no file of the folder */
    return strcmp(cairn_listing_content(layout, shard->rank, shard->name), "opaque") == 0;
}

/* Is it the name of a file that is made? Then a stored one of this name is not shown. */
static bool is_made(const struct view *view, const char *name) {
    size_t file;
    if (!view->model.file_count) return false;
    return !strcmp(name, CAIRN_SRV_MODEL_INDEX) || cairn_srv_model_find(&view->model, name, &file);
}

/* cairn_save_raw puts a file below its rank, which is no part of a model's folder. NULL: it lies
 * below none. */
static const char *below_rank(const struct cairn_manifest_shard *shard) {
    char folder[RANK_FOLDER_BYTES];
    int size = snprintf(folder, sizeof(folder), "rank-%05" PRIu32 "/", shard->rank);
    return cairn_text_starts(shard->name, folder) ? shard->name + size : NULL;
}

static int by_text(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static enum cairn_code find_tops(struct view *view, struct cairn_error *err) {
    const struct cairn_manifest *manifest = &view->manifest->manifest;
    view->tops = calloc(manifest->shard_count + (size_t)1, sizeof(*view->tops));
    if (!view->tops) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a list of files");
    for (uint32_t i = 0; i < manifest->shard_count; i++) {
        const char *top = below_rank(&manifest->shards[i]);
        if (top && is_stored(view, &manifest->shards[i])) view->tops[view->top_count++] = top;
    }
    qsort(view->tops, view->top_count, sizeof(*view->tops), by_text);
    return CAIRN_OK;
}

/* As the model's folder has it: at the top where one rank alone has a file of that name. */
static const char *name_of(const struct view *view, const struct cairn_manifest_shard *shard) {
    const char *top = below_rank(shard);
    const char **at = top ? bsearch(&top, view->tops, view->top_count, sizeof(*view->tops), by_text)
                          : NULL;
    if (!at) return shard->name;
    size_t place = (size_t)(at - view->tops);
    bool several = (place && !strcmp(at[-1], top)) ||
                   (place + 1 < view->top_count && !strcmp(at[1], top));
    bool taken = cairn_manifest_find(&view->manifest->manifest, cairn_view_of(top)) != NULL;
    return several || taken || is_made(view, top) ? shard->name : top;
}

/* The file that name_of() calls so; NULL: there is none, or several ranks have one. */
static const struct cairn_manifest_shard *find_top(const struct view *view, const char *name) {
    const struct cairn_manifest *manifest = &view->manifest->manifest;
    const struct cairn_manifest_shard *found = NULL;
    for (uint32_t i = 0; i < manifest->shard_count; i++) {
        const struct cairn_manifest_shard *shard = &manifest->shards[i];
        const char *top = below_rank(shard);
        if (!top || strcmp(top, name) != 0 || !is_stored(view, shard)) continue;
        if (found) return NULL;
        found = shard;
    }
    return found;
}

static enum cairn_code make_index(const struct view *view, struct cairn_buf *ret,
                                  struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *index = cairn_srv_model_index(&view->model);
    if (!index) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for an index");
    ret->limit = CAIRN_GIB;
    return cairn_json_dump(index, ret, err);
}

/* ---- the list ---- */

static enum cairn_code add_file(json_t *files, const char *name, uint64_t bytes,
                                const char *content, struct cairn_error *err) {
    json_t *row = CAIRN_PACK(model_file, .name = name, .bytes = bytes, .content = content);
    return json_array_append_new(files, row) == 0
               ? CAIRN_OK
               : cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a list of files");
}

static enum cairn_code list_made(struct view *view, json_t *files, struct cairn_error *err) {
    CAIRN_AUTO(buf) index = {0};
    for (size_t i = 0; i < view->model.file_count; i++) {
        CAIRN_AUTO(buf) head = {0};
        char name[CAIRN_MODEL_FILE_NAME_BYTES];
        uint64_t bytes = 0;
        cairn_srv_model_name(&view->model, i, name);
        CAIRN_TRY(cairn_srv_model_head(&view->model, i, &head, &bytes, err));
        CAIRN_TRY(add_file(files, name, bytes, "tensors", err));
    }
    if (!view->model.file_count) return CAIRN_OK;
    CAIRN_TRY(make_index(view, &index, err));
    return add_file(files, CAIRN_SRV_MODEL_INDEX, index.size, "index", err);
}

static enum cairn_code list_stored(struct view *view, json_t *files, struct cairn_error *err) {
    const struct cairn_manifest *manifest = &view->manifest->manifest;
    CAIRN_TRY(find_tops(view, err));
    for (uint32_t i = 0; i < manifest->shard_count; i++) {
        const struct cairn_manifest_shard *shard = &manifest->shards[i];
        if (!is_stored(view, shard) || is_made(view, shard->name)) continue;
        if (json_array_size(files) >= STORED_FILES_MAX)
            return cairn_fail(err, CAIRN_TOO_LARGE, "more than %d files; .../shards lists them",
                              STORED_FILES_MAX);
        CAIRN_TRY(add_file(files, name_of(view, shard), shard->size_bytes, "stored", err));
    }
    return CAIRN_OK;
}

static json_t *folder_json(const struct cairn_srv_model *model, json_t *files) {
    CAIRN_AUTO_JSON json_t *left_out = CAIRN_PACK(
        model_left_out, .aliases = model->aliases, .items = model->items, .local = model->local,
        .optimizer = model->optimizer, .only = model->only, .texts = model->texts_dropped);
    if (!left_out) return NULL;
    return CAIRN_PACK(model_folder, .files = files, .tensors = model->entry_count,
                      .bytes = model->total_bytes, .left_out = left_out);
}

enum cairn_code cairn_srv_on_hf_list(struct cairn_srv_request *request,
                                     struct cairn_srv_reply *reply, struct cairn_error *err) {
    struct view view = {.request = request, .reply = reply};
    CAIRN_AUTO_JSON json_t *files = json_array();
    enum cairn_code code = open_view(&view, err);
    if (!code) code = list_made(&view, files, err);
    if (!code) code = list_stored(&view, files, err);
    if (!code) code = cairn_srv_reply_json(reply, 200, folder_json(&view.model, files), err);
    if (!code) cairn_srv_reply_cached(request, reply);
    close_view(&view);
    return code;
}

/* ---- one file ---- */

/* A version does not change, so its id and what is asked for name the bytes. */
static void make_tag(const struct view *view, const char *name, char ret[TAG_BYTES]) {
    const struct cairn_srv_model_options *options = &view->options;
    uint32_t crc = cairn_crc32c(0, name, strlen(name));
    crc = cairn_crc32c(crc, &options->dtype, sizeof(options->dtype));
    crc = cairn_crc32c(crc, &options->file_bytes_max, sizeof(options->file_bytes_max));
    if (options->only) crc = cairn_crc32c(crc, options->only, strlen(options->only));
    const char *key;
    json_t *text;
    json_object_foreach(view->model.texts, key, text) {
        crc = cairn_crc32c(crc, key, strlen(key) + 1);
        crc = cairn_crc32c(crc, json_string_value(text), json_string_length(text) + 1);
    }
    snprintf(ret, TAG_BYTES, "\"%s-hf-%08x\"", view->version.id.text, crc);
}

static enum cairn_code send_index(struct view *view, const char *tag, struct cairn_error *err) {
    CAIRN_AUTO(buf) text = {0};
    struct cairn_srv_source *source = NULL;
    CAIRN_TRY(make_index(view, &text, err));
    CAIRN_TRY(cairn_srv_source_bytes(&text, &source, err));
    return cairn_srv_send(view->request, view->reply, source, "index", tag, err);
}

static enum cairn_code send_model(struct view *view, size_t file, const char *tag,
                                  struct cairn_error *err) {
    const struct cairn_version_place place = cairn_srv_version_place(&view->version);
    const struct cairn_srv_model_read read = {.server = view->request->server,
                                              .take_manifest = CAIRN_TAKE(view->manifest),
                                              .take_layout = CAIRN_TAKE(view->layout),
                                              .place = &place,
                                              .model = &view->model,
                                              .file = file};
    struct cairn_srv_source *source = NULL;
    CAIRN_TRY(cairn_srv_source_model(&read, &source, err));
    return cairn_srv_send(view->request, view->reply, source, "file", tag, err);
}

static enum cairn_code send_stored(struct view *view, const struct cairn_manifest_shard *shard,
                                   struct cairn_error *err) {
    const struct cairn_version_place place = cairn_srv_version_place(&view->version);
    struct cairn_srv_source *source = NULL;
    char tag[TAG_BYTES];
    snprintf(tag, sizeof(tag), "\"%08x-%" PRIu64 "\"", shard->crc32c, shard->size_bytes);
    CAIRN_TRY(cairn_srv_source_shard(view->request->server, CAIRN_TAKE(view->manifest), shard,
                                     &place, &source, err));
    return cairn_srv_send(view->request, view->reply, source, "file", tag, err);
}

/* Also where its tensors cannot be files: the others are there all the same. */
static enum cairn_code send_beside(struct view *view, struct cairn_error *err) {
    const char *name = view->request->params.shard;
    const struct cairn_manifest *manifest = &view->manifest->manifest;
    const struct cairn_manifest_shard *shard = cairn_manifest_find(manifest, cairn_view_of(name));
    if (shard && is_stored(view, shard)) return send_stored(view, shard, err);
    shard = find_top(view, name);
    if (shard) return send_stored(view, shard, err);
    return cairn_fail(err, CAIRN_NOT_FOUND, "%s has no model file \"%s\"; .../hf lists them",
                      view->version.id.text, cairn_short(name).text);
}

static enum cairn_code send_file(struct view *view, struct cairn_error *err) {
    const char *name = view->request->params.shard;
    struct cairn_error why = {0};
    char tag[TAG_BYTES];
    size_t file = 0;
    enum cairn_code code = open_view(view, &why);
    if (code == CAIRN_UNSUPPORTED && view->manifest && send_beside(view, err) == CAIRN_OK)
        return CAIRN_OK;
    if (code) {
        *err = why;
        return code;
    }
    make_tag(view, name, tag);
    if (view->model.file_count && !strcmp(name, CAIRN_SRV_MODEL_INDEX))
        return send_index(view, tag, err);
    if (cairn_srv_model_find(&view->model, name, &file)) return send_model(view, file, tag, err);
    return send_beside(view, err);
}

enum cairn_code cairn_srv_on_hf_file(struct cairn_srv_request *request,
                                     struct cairn_srv_reply *reply, struct cairn_error *err) {
    struct view view = {.request = request, .reply = reply};
    enum cairn_code code = send_file(&view, err);
    close_view(&view);
    return code;
}

enum cairn_code cairn_srv_on_hf_file_head(struct cairn_srv_request *request,
                                          struct cairn_srv_reply *reply, struct cairn_error *err) {
    return cairn_srv_on_hf_file(request, reply, err);
}
