/* SPDX-License-Identifier: Apache-2.0 */
/* GET {C}/hf and {C}/hf/{name}: a version as a Hugging Face model folder.
 *
 * Names, sizes and headers of the files follow from the layout and the options alone, and are those
 * of `cairn export`. Left out and counted: aliases of tensors, tensors local to a rank, items
 * (named bytes, not tensors) and, unless `only` asks for it, the optimizer's state. Every element
 * begins in its file at a multiple of its size. At most CAIRN_MODEL_FILES_MAX files; elements
 * smaller than a byte are CAIRN_UNSUPPORTED.
 *
 * __metadata__ of the files merges the header texts of kept safetensors files (a LoRA's settings,
 * the description of quantised weights) as `cairn export` does: files with tensors, in their order;
 * the first text of a key counts. A version's headers are read once while the cache holds the
 * result; a header above 32 MiB gives no texts. */
#include <fnmatch.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "api/wire/messages.h"
#include "common/crc.h"
#include "formats/assembly/assembly.h"
#include "formats/convert.h"
#include "formats/safetensors.h"
#include "server/reads/send.h"
#include "server/reads/shard_calls.h"
#include "server/reads/stream.h"

#define TAG_BYTES 96
#define RANK_FOLDER_BYTES 20
#define FILE_BYTES_DEFAULT UINT64_C(5000000000)
#define STORED_FILES_MAX 100000
#define INDEX_NAME "model.safetensors.index.json"
#define STEM "model"
#define END "safetensors"
#define METADATA "__metadata__"
#define HEADER_BYTES_MAX (32 * CAIRN_MIB)
#define TEXTS "texts"
#define DROPPED "dropped"
#define BUFFER_BYTES SRV_STREAM_CHUNK_BYTES /* the size of server->chunks */
#define PIECES_MAX (UINT32_C(1) << 17)
#define GRAIN_BYTES 16 /* a multiple of every element's size */

struct model_options {
    unsigned dtype;          /* of floats; CAIRN_DTYPE_NONE: as stored */
    uint64_t file_bytes_max; /* of tensors; a larger tensor has its own file */
    const char *only;        /* a shell pattern of names; NULL: all but the optimizer's */
};
/* Names of entries borrow from the layout. */
struct model {
    struct cairn_safetensors_entry *entries; /* tag: index of its name in the layout */
    size_t entry_count;
    struct model_file {
        size_t first, count; /* entries */
    } * files;
    size_t file_count, file_capacity;
    uint64_t total_bytes;                            /* of tensors */
    uint64_t aliases, items, local, optimizer, only; /* left out */
    json_t *texts;                                   /* __metadata__, owned; NULL: none */
    uint64_t texts_dropped;                          /* another text had the key already */
};
struct view {
    struct srv_request *request;
    struct srv_reply *reply;
    struct srv_version version;
    struct srv_held *manifest, *layout; /* layout: NULL without tensors */
    struct model_options options;
    struct model model;
    const char **tops; /* list only: names of stored files below rank folders, sorted; owned */
    size_t top_count;
};

/* ---- model files: a layout's tensors, sorted by name ---- */

static void release_model(struct model *model) {
    free(model->entries);
    free(model->files);
    json_decref(model->texts);
    *model = (struct model){0};
}

static void stored_tensor(const struct cairn_layout *layout, size_t tag, struct cairn_tensor *ret) {
    struct cairn_view name;
    uint32_t first, count;
    cairn_layout_name_at(layout, (uint32_t)tag, &name, &first, &count);
    (void)cairn_layout_tensor_at(layout, first, ret);
}

/* Copies the name, which has no NUL, for fnmatch. */
static enum cairn_code is_named(const struct model_options *options, struct cairn_view name,
                                bool *ret, struct cairn_error *err) {
    CAIRN_AUTO(buf) text = {0};
    CAIRN_TRY(cairn_buf_append(&text, name.data, name.size, err));
    *ret = fnmatch(options->only, text.data, 0) == 0;
    return CAIRN_OK;
}

static enum cairn_code is_wanted(struct model *model, const struct model_options *options,
                                 const struct cairn_tensor *tensor, bool *ret,
                                 struct cairn_error *err) {
    static const struct cairn_view optimizer = {CAIRN_ASSEMBLY_OPTIMIZER,
                                                sizeof CAIRN_ASSEMBLY_OPTIMIZER - 1};
    bool of_optimizer = tensor->name.size >= optimizer.size &&
                        memcmp(tensor->name.data, optimizer.data, optimizer.size) == 0;
    *ret = false;
    if (options->only) {
        CAIRN_TRY(is_named(options, tensor->name, ret, err));
        model->only += !*ret;
    } else {
        *ret = !of_optimizer;
        model->optimizer += of_optimizer;
    }
    if (!*ret) return CAIRN_OK;
    bool item = tensor->dtype == CAIRN_DTYPE_ITEM;
    model->items += item;
    model->aliases += !item && tensor->kind == CAIRN_TENSOR_ALIAS;
    model->local += !item && tensor->kind == CAIRN_TENSOR_LOCAL;
    *ret = !item && tensor->kind != CAIRN_TENSOR_ALIAS && tensor->kind != CAIRN_TENSOR_LOCAL;
    return CAIRN_OK;
}

static enum cairn_code add_entry(struct model *model, const struct model_options *options,
                                 uint32_t index, const struct cairn_tensor *tensor,
                                 struct cairn_model_split *split, struct cairn_error *err) {
    struct cairn_safetensors_entry *entry = &model->entries[model->entry_count];
    uint64_t elements = 0, bytes = 0;
    *entry = (struct cairn_safetensors_entry){
        .name = tensor->name,
        .dtype = cairn_model_dtype(tensor->name, tensor->dtype, options->dtype),
        .dimension_count = tensor->dimension_count,
        .tag = index};
    memcpy(entry->shape, tensor->shape, sizeof(entry->shape));
    if (cairn_dtype_bits(entry->dtype) < 8)
        return cairn_fail(err, CAIRN_UNSUPPORTED,
                          "tensor %.*s has elements of less than a byte; its own route gives it: "
                          ".../tensors/NAME/data",
                          (int)cairn_min_u64(tensor->name.size, 200),
                          (const char *)tensor->name.data);
    if (!cairn_tensor_size(entry->dtype, entry->dimension_count, entry->shape, &elements, &bytes))
        return cairn_fail(err, CAIRN_CORRUPT, "the layout has a tensor of no size");
    if (cairn_model_split_begins(split, bytes)) {
        CAIRN_TRY(CAIRN_ARRAY_ROOM(model->files, model->file_count, model->file_capacity,
                                   CAIRN_MODEL_FILES_MAX, "files of a model", err));
        model->files[model->file_count++] = (struct model_file){.first = model->entry_count};
    }
    model->files[model->file_count - 1].count++;
    model->entry_count++;
    model->total_bytes += bytes;
    return CAIRN_OK;
}

static enum cairn_code make_model(const struct cairn_layout *layout,
                                  const struct model_options *options, struct model *model,
                                  struct cairn_error *err) {
    struct cairn_model_split split = {.file_bytes_max = options->file_bytes_max};
    model->entries = calloc((size_t)layout->name_count + 1, sizeof(*model->entries));
    if (!model->entries) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for tensors' names");
    for (uint32_t i = 0; i < layout->name_count; i++) {
        struct cairn_tensor tensor;
        bool wanted = false;
        stored_tensor(layout, i, &tensor);
        CAIRN_TRY(is_wanted(model, options, &tensor, &wanted, err));
        if (wanted) CAIRN_TRY(add_entry(model, options, i, &tensor, &split, err));
    }
    return CAIRN_OK;
}

static void model_file_name(const struct model *model, size_t file,
                            char ret[CAIRN_MODEL_FILE_NAME_BYTES]) {
    cairn_model_file_name(STEM, END, file, model->file_count, ret);
}

/* The index of the file of this name; false: none. */
static bool find_model_file(const struct model *model, const char *name, size_t *ret_file) {
    char own[CAIRN_MODEL_FILE_NAME_BYTES];
    for (size_t i = 0; i < model->file_count; i++) {
        model_file_name(model, i, own);
        if (strcmp(own, name) != 0) continue;
        *ret_file = i;
        return true;
    }
    return false;
}

/* The header of a file, and the file's size; sorts the file's entries by offset. */
static enum cairn_code make_head(struct model *model, size_t file, struct cairn_buf *ret,
                                 uint64_t *ret_file_bytes, struct cairn_error *err) {
    const struct model_file *own = &model->files[file];
    ret->limit = CAIRN_SAFETENSORS_HEADER_BYTES_MAX + CAIRN_SAFETENSORS_ALIGN;
    return cairn_safetensors_write(&model->entries[own->first], own->count, model->texts, ret,
                                   ret_file_bytes, err);
}

/* NULL: no memory. */
static json_t *model_index(const struct model *model) {
    CAIRN_AUTO_JSON json_t *map = json_object();
    for (size_t i = 0; map && i < model->file_count; i++) {
        const struct model_file *file = &model->files[i];
        char name[CAIRN_MODEL_FILE_NAME_BYTES];
        model_file_name(model, i, name);
        for (size_t k = file->first; k < file->first + file->count; k++) {
            if (!cairn_model_index_add(map, model->entries[k].name, name)) return NULL;
        }
    }
    return cairn_model_index(map, model->total_bytes);
}

/* ---- texts: headers of kept files, mostly one block each ---- */

struct texts_work {
    const struct view *view;
    struct cairn_version_place place;
    struct srv_reading *reading;
    struct cairn_buf bytes; /* whole blocks of the current file */
    json_t *texts;
    uint64_t dropped;
};

static enum cairn_code read_to(struct texts_work *work, uint32_t shard, uint64_t end,
                               struct cairn_error *err) {
    const struct cairn_manifest_shard *row = &work->view->manifest->manifest.shards[shard];
    const struct srv_blocks blocks = {.manifest = work->view->manifest,
                                      .shard = row,
                                      .place = &work->place,
                                      .reading = work->reading,
                                      .object = shard};
    uint64_t from = work->bytes.size;
    end = cairn_min_u64(cairn_round_up(end, CAIRN_BLOCK_BYTES), row->size_bytes);
    if (end <= from) return CAIRN_OK;
    CAIRN_TRY(cairn_buf_reserve(&work->bytes, (size_t)(end - from), err));
    CAIRN_TRY(srv_blocks_read(&blocks, work->view->request->store, from, end - from,
                              work->bytes.data + from, err));
    work->bytes.size = (size_t)end;
    return CAIRN_OK;
}

/* Libraries write __metadata__ first: the rest need not be read. NULL: not first, or not whole. */
static json_t *first_member(const struct texts_work *work) {
    static const char begin[] = "{\"" METADATA "\":";
    size_t skip = 8 + sizeof begin - 1;
    if (work->bytes.size <= skip || memcmp(work->bytes.data + 8, begin, sizeof begin - 1) != 0)
        return NULL;
    return json_loadb(work->bytes.data + skip, work->bytes.size - skip, JSON_DISABLE_EOF_CHECK,
                      NULL);
}

static void add_texts(struct texts_work *work, json_t *metadata) {
    const char *key;
    json_t *value;
    json_object_foreach(metadata, key, value) {
        const json_t *there = json_object_get(work->texts, key);
        if (!json_is_string(value) || !cairn_safetensors_is_carried(key)) continue;
        if (!there)
            json_object_set(work->texts, key, value);
        else
            work->dropped += !json_equal(there, value);
    }
}

static enum cairn_code read_header(struct texts_work *work, uint32_t shard,
                                   struct cairn_error *err) {
    const struct cairn_manifest_shard *row = &work->view->manifest->manifest.shards[shard];
    CAIRN_AUTO(safetensors) file = {0};
    uint64_t head_bytes = 0;
    work->bytes.size = 0;
    CAIRN_TRY(read_to(work, shard, 1, err));
    if (cairn_safetensors_head_bytes(cairn_buf_view(&work->bytes), row->size_bytes, &head_bytes,
                                     NULL) ||
        head_bytes > HEADER_BYTES_MAX)
        return CAIRN_OK;
    CAIRN_AUTO_JSON json_t *metadata = first_member(work);
    if (!metadata) {
        CAIRN_TRY(read_to(work, shard, head_bytes, err));
        const struct cairn_view head = {work->bytes.data, (size_t)head_bytes};
        if (memmem(head.data, head.size, METADATA, sizeof METADATA - 1) &&
            cairn_safetensors_open(head, row->size_bytes, &file, NULL) == CAIRN_OK)
            metadata = json_incref(json_object_get(file.document, METADATA));
    }
    add_texts(work, metadata);
    return CAIRN_OK;
}

static bool is_kept_file(const struct view *view, const struct cairn_manifest_shard *shard) {
    const char *dot = strrchr(shard->name, '.');
    return dot && strcasecmp(dot, ".safetensors") == 0 &&
           cairn_layout_keeps_file(&view->layout->layout, shard->rank, cairn_view_of(shard->name));
}

static enum cairn_code read_headers(struct texts_work *work, struct cairn_error *err) {
    const struct cairn_manifest *manifest = &work->view->manifest->manifest;
    for (uint32_t i = 0; i < manifest->shard_count; i++) {
        if (!is_kept_file(work->view, &manifest->shards[i])) continue;
        if (!work->reading)
            CAIRN_TRY(srv_reading_new(work->view->request->server, work->place.id.text,
                                      manifest->shard_count, &work->reading, err));
        CAIRN_TRY(read_header(work, i, err));
    }
    return CAIRN_OK;
}

/* Keeps the order of members, which cairn_json_dump would sort. */
static enum cairn_code dump_texts(const json_t *found, struct cairn_buf *ret,
                                  struct cairn_error *err) {
    char *text = json_dumps(found, JSON_COMPACT);
    if (!text) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for texts");
    enum cairn_code code = cairn_buf_append_text(ret, text, err);
    free(text);
    return code;
}

/* Produces the JSON text that the cache keeps. */
static enum cairn_code find_texts(const struct view *view, struct cairn_buf *ret,
                                  struct cairn_error *err) {
    struct texts_work work = {.view = view,
                              .place = srv_version_place(&view->version),
                              .bytes = {.limit = HEADER_BYTES_MAX + 2 * CAIRN_BLOCK_BYTES},
                              .texts = json_object()};
    enum cairn_code code = work.texts ? read_headers(&work, err)
                                      : cairn_fail(err, CAIRN_NO_MEMORY, "no memory for texts");
    CAIRN_AUTO_JSON json_t *found =
        json_pack("{s:o, s:I}", TEXTS, work.texts, DROPPED, (json_int_t)work.dropped);
    ret->limit = CAIRN_GIB;
    if (code == CAIRN_OK) code = dump_texts(found, ret, err);
    srv_reading_free(work.reading);
    cairn_buf_release(&work.bytes);
    return code;
}

static enum cairn_code find_model_texts(struct view *view, struct cairn_error *err) {
    struct srv *server = view->request->server;
    char key[CAIRN_KEY_BYTES_MAX + 1];
    snprintf(key, sizeof(key), "texts %s", view->version.id.text);
    struct srv_held *held = srv_cache_find(server, key);
    if (!held) {
        CAIRN_AUTO(buf) found = {0};
        CAIRN_TRY(find_texts(view, &found, err));
        held = srv_cache_keep(server, key, &found);
        if (!held) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the cache");
    }
    CAIRN_AUTO_JSON json_t *found = json_loadb(held->text.data, held->text.size, 0, NULL);
    srv_cache_give(server, held);
    view->model.texts = json_incref(json_object_get(found, TEXTS));
    view->model.texts_dropped = (uint64_t)json_integer_value(json_object_get(found, DROPPED));
    return view->model.texts ? CAIRN_OK : cairn_fail(err, CAIRN_NO_MEMORY, "no memory for texts");
}

/* ---- the bytes of a file: a load plans all its tensors, which share reads of blocks ---- */

struct model_source {
    struct srv_pieces_source of; /* first */
    struct model model;
    struct cairn_buf head;
    const struct cairn_safetensors_entry *entries; /* of the file, by offset */
    size_t count;
    uint64_t part_bytes; /* of the file: so many fit into a buffer as stored */
};
/* The elements of one tensor in a part of the file. */
struct part_item {
    const struct cairn_safetensors_entry *entry;
    unsigned stored; /* stored element type */
    uint64_t first, elements;
    uint64_t at;                      /* in the part */
    uint64_t stored_at, stored_bytes; /* in the buffer of all items' stored bytes */
};
struct model_part {
    struct model_source *own;
    uint64_t from, bytes; /* of the file */
    struct part_item *items;
    struct cairn_plan_want *wants;
    size_t count;
    bool converts;
    uint64_t stored_bytes;
};
struct model_load {
    struct model_source *own;
    struct srv_pieces_load pieces;
    struct cairn_error *err;
};

/* The first entry that ends after `from`. */
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

static void set_item(struct model_part *part, const struct cairn_safetensors_entry *entry,
                     struct part_item *ret) {
    uint64_t begin = cairn_max_u64(entry->offset_bytes, part->from);
    uint64_t end = cairn_min_u64(entry->offset_bytes + entry->size_bytes, part->from + part->bytes);
    uint64_t width = cairn_dtype_bits(entry->dtype) / 8;
    struct cairn_tensor tensor;
    stored_tensor(&part->own->of.layout->layout, entry->tag, &tensor);
    *ret = (struct part_item){.entry = entry,
                              .stored = tensor.dtype,
                              .first = (begin - entry->offset_bytes) / width,
                              .elements = (end - begin) / width,
                              .at = begin - part->from,
                              .stored_at = part->stored_bytes};
    ret->stored_bytes = ret->elements * cairn_dtype_bits(tensor.dtype) / 8;
    part->stored_bytes += ret->stored_bytes;
    part->converts |= tensor.dtype != entry->dtype;
}

static enum cairn_code make_part(struct model_part *part, struct cairn_error *err) {
    const struct model_source *own = part->own;
    size_t first = find_entry(own, part->from), end = first;
    while (end < own->count && own->entries[end].offset_bytes < part->from + part->bytes) end++;
    part->items = calloc(end - first + 1, sizeof(*part->items));
    part->wants = calloc(end - first + 1, sizeof(*part->wants));
    if (!part->items || !part->wants)
        return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a read");
    for (size_t i = first; i < end; i++) {
        if (!own->entries[i].size_bytes) continue;
        struct part_item *item = &part->items[part->count];
        set_item(part, &own->entries[i], item);
        part->wants[part->count++] = (struct cairn_plan_want){.tensor = item->entry->name,
                                                              .form = CAIRN_PLAN_FLAT,
                                                              .start = &item->first,
                                                              .count = &item->elements};
    }
    return CAIRN_OK;
}

static void release_part(struct model_part *part) {
    free(part->items);
    free(part->wants);
}

static enum cairn_code read_part(struct model_load *load, struct model_part *part, uint8_t *into) {
    struct cairn_plan_pieces pieces = {0};
    const struct model_source *own = load->own;
    CAIRN_TRY(make_part(part, load->err));
    if (!part->count) return CAIRN_OK;
    enum cairn_code code =
        cairn_plan_reads_most(&own->of.manifest->manifest, &own->of.layout->layout, part->wants,
                              part->count, PIECES_MAX, &pieces, load->err);
    for (size_t i = 0; !code && i < pieces.count; i++) {
        const struct part_item *item = &part->items[pieces.pieces[i].want];
        pieces.pieces[i].at += part->converts ? item->stored_at : item->at;
    }
    CAIRN_ASSERT(code || !part->converts || part->stored_bytes <= BUFFER_BYTES);
    if (!code)
        code = srv_pieces_read(&load->pieces, &pieces,
                               part->converts ? load->pieces.elements : into, load->err);
    cairn_plan_pieces_release(&pieces);
    for (size_t i = 0; !code && part->converts && i < part->count; i++) {
        const struct part_item *item = &part->items[i];
        const uint8_t *stored = load->pieces.elements + item->stored_at;
        if (item->stored == item->entry->dtype)
            memcpy(into + item->at, stored, (size_t)item->stored_bytes);
        else
            cairn_convert(item->stored, stored, item->entry->dtype, into + item->at,
                          (size_t)item->elements);
    }
    return code;
}

/* Halves a part that has too many pieces. */
static enum cairn_code read_data(struct model_load *load, uint64_t from, uint64_t bytes,
                                 uint8_t *into) {
    uint64_t most = load->own->part_bytes;
    for (uint64_t done = 0; done < bytes;) {
        struct model_part part = {
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

/* Elements that are converted to a narrower type take more room as stored. */
static uint64_t part_bytes(const struct model_source *own) {
    uint64_t ratio = 1;
    for (size_t i = 0; i < own->count; i++) {
        struct cairn_tensor tensor;
        stored_tensor(&own->of.layout->layout, own->entries[i].tag, &tensor);
        ratio = cairn_max_u64(ratio, cairn_dtype_bits(tensor.dtype) /
                                         cairn_dtype_bits(own->entries[i].dtype));
    }
    return BUFFER_BYTES / ratio;
}

static enum cairn_code load_model(struct srv_source *source, struct cairn_store_worker *worker,
                                  uint64_t from, uint64_t bytes, void *into,
                                  struct cairn_error *err) {
    struct model_source *own = (struct model_source *)source;
    uint64_t of_head = from < own->head.size ? cairn_min_u64(bytes, own->head.size - from) : 0;
    if (of_head) memcpy(into, own->head.data + from, (size_t)of_head);
    if (of_head == bytes) return CAIRN_OK;
    struct model_load load = {
        .own = own, .pieces = {.source = &own->of, .worker = worker}, .err = err};
    enum cairn_code code = srv_pieces_load_begin(&load.pieces, true, err);
    if (!code) code = read_data(&load, from + of_head, bytes - of_head, (uint8_t *)into + of_head);
    srv_pieces_load_end(&load.pieces);
    return code;
}

static void free_model(struct srv_source *source) {
    struct model_source *own = (struct model_source *)source;
    release_model(&own->model);
    cairn_buf_release(&own->head);
    srv_pieces_source_free(&own->of);
}

/* Takes the view's manifest, layout and model; released with the source, also on failure. */
static enum cairn_code open_model(struct view *view, size_t file, struct srv_source **ret,
                                  struct cairn_error *err) {
    struct srv *server = view->request->server;
    const struct cairn_version_place place = srv_version_place(&view->version);
    struct model_source *own = (struct model_source *)srv_pieces_source_new(
        sizeof(*own), server, CAIRN_TAKE(view->manifest), CAIRN_TAKE(view->layout), &place, err);
    if (!own) return CAIRN_NO_MEMORY;
    own->model = view->model;
    view->model = (struct model){0};
    own->entries = &own->model.entries[own->model.files[file].first];
    own->count = own->model.files[file].count;
    own->part_bytes = part_bytes(own);
    own->of.source = (struct srv_source){.version = place.id,
                                         .grain_bytes = GRAIN_BYTES,
                                         .head_bytes = UINT64_MAX,
                                         .chunk_bytes = BUFFER_BYTES,
                                         .load = load_model,
                                         .free = free_model};
    enum cairn_code code =
        make_head(&own->model, file, &own->head, &own->of.source.size_bytes, err);
    if (!code)
        code = srv_reading_new(server, place.id.text, own->of.manifest->manifest.shard_count,
                               &own->of.reading, err);
    if (code)
        free_model(&own->of.source);
    else
        *ret = &own->of.source;
    return code;
}

/* ---- opening a view ---- */

static enum cairn_code read_options(struct view *view, struct cairn_error *err) {
    const struct cairn_query *query = &view->request->query;
    const char *dtype = cairn_query_get(query, "dtype");
    const char *bytes = cairn_query_get(query, "max_shard_size");
    struct model_options *options = &view->options;
    *options = (struct model_options){.file_bytes_max = FILE_BYTES_DEFAULT,
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
    struct srv_request *request = view->request;
    struct srv *server = request->server;
    CAIRN_TRY(read_options(view, err));
    CAIRN_TRY(srv_readable(request, &view->version, err));
    CAIRN_TRY(srv_cache_manifest(server, request->store, &view->version, &view->manifest, err));
    struct cairn_error why = {0};
    enum cairn_code code =
        srv_cache_layout(server, request->store, &view->version, &view->layout, &why);
    if (code == CAIRN_NOT_FOUND) return CAIRN_OK;
    CAIRN_TRY(cairn_pass(err, code, &why));
    CAIRN_TRY(make_model(&view->layout->layout, &view->options, &view->model, err));
    return find_model_texts(view, err);
}

static void close_view(struct view *view) {
    srv_cache_give(view->request->server, view->manifest);
    srv_cache_give(view->request->server, view->layout);
    release_model(&view->model);
    free(view->tops);
    srv_version_release(&view->version);
}

/* A shard saved beside the tensors, which contains no named tensor. */
static bool is_stored(const struct view *view, const struct cairn_manifest_shard *shard) {
    const struct cairn_layout *layout = view->layout ? &view->layout->layout : NULL;
    if (strcmp(shard->name, CAIRN_TREE_SHARD) == 0) return false; /* not a file of the folder */
    return strcmp(cairn_listing_content(layout, shard->rank, shard->name), "opaque") == 0;
}

/* Is it the name of a generated file, which hides a stored file of that name? */
static bool is_made(const struct view *view, const char *name) {
    size_t file;
    if (!view->model.file_count) return false;
    return !strcmp(name, INDEX_NAME) || find_model_file(&view->model, name, &file);
}

/* The name without cairn_save_raw's rank folder, which model folders lack. NULL: no rank folder. */
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

/* The name in the folder: without the rank folder if only one rank has a file of that name. */
static const char *name_of(const struct view *view, const struct cairn_manifest_shard *shard) {
    const char *top = below_rank(shard);
    const char **at =
        top ? bsearch(&top, view->tops, view->top_count, sizeof(*view->tops), by_text) : NULL;
    if (!at) return shard->name;
    size_t place = (size_t)(at - view->tops);
    bool several =
        (place && !strcmp(at[-1], top)) || (place + 1 < view->top_count && !strcmp(at[1], top));
    bool taken = cairn_manifest_find(&view->manifest->manifest, cairn_view_of(top)) != NULL;
    return several || taken || is_made(view, top) ? shard->name : top;
}

/* The stored file that name_of() gives this name; NULL: none, or several ranks have one. */
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
    CAIRN_AUTO_JSON json_t *index = model_index(&view->model);
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
        model_file_name(&view->model, i, name);
        CAIRN_TRY(make_head(&view->model, i, &head, &bytes, err));
        CAIRN_TRY(add_file(files, name, bytes, "tensors", err));
    }
    if (!view->model.file_count) return CAIRN_OK;
    CAIRN_TRY(make_index(view, &index, err));
    return add_file(files, INDEX_NAME, index.size, "index", err);
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

static json_t *folder_json(const struct model *model, json_t *files) {
    CAIRN_AUTO_JSON json_t *left_out = CAIRN_PACK(
        model_left_out, .aliases = model->aliases, .items = model->items, .local = model->local,
        .optimizer = model->optimizer, .only = model->only, .texts = model->texts_dropped);
    if (!left_out) return NULL;
    return CAIRN_PACK(model_folder, .files = files, .tensors = model->entry_count,
                      .bytes = model->total_bytes, .left_out = left_out);
}

SRV_HANDLER(hf_list) {
    CAIRN_RELEASED(close_view) struct view view = {.request = request, .reply = reply};
    CAIRN_AUTO_JSON json_t *files = json_array();
    CAIRN_TRY(open_view(&view, err));
    CAIRN_TRY(list_made(&view, files, err));
    CAIRN_TRY(list_stored(&view, files, err));
    CAIRN_TRY(srv_reply_json(reply, 200, folder_json(&view.model, files), err));
    srv_reply_cached(request, reply);
    return CAIRN_OK;
}

/* ---- one file ---- */

/* Versions are immutable, so the id, the options and the texts identify the bytes. */
static void make_tag(const struct view *view, const char *name, char ret[TAG_BYTES]) {
    const struct model_options *options = &view->options;
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
    struct srv_source *source = NULL;
    CAIRN_TRY(make_index(view, &text, err));
    CAIRN_TRY(srv_source_bytes(&text, &source, err));
    return srv_send(view->request, view->reply, source, "index", tag, err);
}

static enum cairn_code send_model(struct view *view, size_t file, const char *tag,
                                  struct cairn_error *err) {
    struct srv_source *source = NULL;
    CAIRN_TRY(open_model(view, file, &source, err));
    return srv_send(view->request, view->reply, source, "file", tag, err);
}

static enum cairn_code send_stored(struct view *view, const struct cairn_manifest_shard *shard,
                                   struct cairn_error *err) {
    const struct cairn_version_place place = srv_version_place(&view->version);
    struct srv_source *source = NULL;
    char tag[TAG_BYTES];
    snprintf(tag, sizeof(tag), "\"%08x-%" PRIu64 "\"", shard->crc32c, shard->size_bytes);
    CAIRN_TRY(srv_source_shard(view->request->server, CAIRN_TAKE(view->manifest), shard, &place,
                               &source, err));
    return srv_send(view->request, view->reply, source, "file", tag, err);
}

/* Sends a stored file, also of a version whose tensors cannot be files. */
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

SRV_HANDLER(hf_file) {
    CAIRN_RELEASED(close_view) struct view view = {.request = request, .reply = reply};
    const char *name = request->params.shard;
    struct cairn_error why = {0};
    char tag[TAG_BYTES];
    size_t file = 0;
    enum cairn_code code = open_view(&view, &why);
    if (code == CAIRN_UNSUPPORTED && view.manifest) {
        enum cairn_code beside = send_beside(&view, err);
        if (beside != CAIRN_NOT_FOUND) return beside;
    }
    CAIRN_TRY(cairn_pass(err, code, &why));
    make_tag(&view, name, tag);
    if (view.model.file_count && !strcmp(name, INDEX_NAME)) return send_index(&view, tag, err);
    if (find_model_file(&view.model, name, &file)) return send_model(&view, file, tag, err);
    return send_beside(&view, err);
}

SRV_HANDLED_AS(hf_file_head, hf_file)
