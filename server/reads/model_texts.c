/* SPDX-License-Identifier: Apache-2.0 */
/* Headers of kept files, the first block of each as a rule; see model_texts.h. */
#include "server/reads/model_texts.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/json.h"
#include "formats/safetensors.h"
#include "server/reads/source_inside.h"

#define METADATA "__metadata__"
#define HEADER_BYTES_MAX (32 * CAIRN_MIB)
#define TEXTS "texts"
#define DROPPED "dropped"

struct work {
    const struct cairn_srv_model_from *from;
    struct cairn_version_place place;
    struct cairn_srv_reading *reading;
    struct cairn_buf bytes; /* whole blocks of the file that is looked at */
    json_t *texts;
    uint64_t dropped;
};

/* ---- one header ---- */

static enum cairn_code read_to(struct work *work, uint32_t shard, uint64_t end,
                               struct cairn_error *err) {
    const struct cairn_manifest_shard *row = &work->from->manifest->manifest.shards[shard];
    const struct cairn_srv_blocks blocks = {.manifest = work->from->manifest,
                                            .shard = row,
                                            .place = &work->place,
                                            .reading = work->reading,
                                            .object = shard};
    uint64_t from = work->bytes.size;
    end = cairn_min_u64(cairn_round_up(end, CAIRN_BLOCK_BYTES), row->size_bytes);
    if (end <= from) return CAIRN_OK;
    CAIRN_TRY(cairn_buf_reserve(&work->bytes, (size_t)(end - from), err));
    CAIRN_TRY(cairn_srv_blocks_read(&blocks, work->from->request->store, from, end - from,
                                    work->bytes.data + from, err));
    work->bytes.size = (size_t)end;
    return CAIRN_OK;
}

/* As the libraries write it, the texts are the first member of the header; then the rest of it need
 * not be read. NULL: they are not, or not whole. */
static json_t *first_member(const struct work *work) {
    static const char begin[] = "{\"" METADATA "\":";
    size_t skip = 8 + sizeof begin - 1;
    if (work->bytes.size <= skip || memcmp(work->bytes.data + 8, begin, sizeof begin - 1) != 0)
        return NULL;
    return json_loadb(work->bytes.data + skip, work->bytes.size - skip, JSON_DISABLE_EOF_CHECK,
                      NULL);
}

static void add_texts(struct work *work, json_t *metadata) {
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

static enum cairn_code read_header(struct work *work, uint32_t shard, struct cairn_error *err) {
    const struct cairn_manifest_shard *row = &work->from->manifest->manifest.shards[shard];
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

/* ---- all ---- */

static bool is_kept_file(const struct cairn_srv_model_from *from,
                         const struct cairn_manifest_shard *shard) {
    const char *dot = strrchr(shard->name, '.');
    return dot && strcmp(dot, ".safetensors") == 0 &&
           cairn_layout_keeps_file(&from->layout->layout, shard->rank, cairn_view_of(shard->name));
}

static enum cairn_code read_all(struct work *work, struct cairn_error *err) {
    const struct cairn_manifest *manifest = &work->from->manifest->manifest;
    for (uint32_t i = 0; i < manifest->shard_count; i++) {
        if (!is_kept_file(work->from, &manifest->shards[i])) continue;
        if (!work->reading)
            CAIRN_TRY(cairn_srv_reading_new(work->from->request->server, work->place.id.text,
                                            manifest->shard_count, &work->reading, err));
        CAIRN_TRY(read_header(work, i, err));
    }
    return CAIRN_OK;
}

/* In the order of the members, which cairn_json_dump would sort. */
static enum cairn_code dump(const json_t *found, struct cairn_buf *ret, struct cairn_error *err) {
    char *text = json_dumps(found, JSON_COMPACT);
    if (!text) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for texts");
    enum cairn_code code = cairn_buf_append_text(ret, text, err);
    free(text);
    return code;
}

/* What was found, as the cache keeps it. */
static enum cairn_code find(const struct cairn_srv_model_from *from, struct cairn_buf *ret,
                            struct cairn_error *err) {
    struct work work = {.from = from,
                        .place = cairn_srv_version_place(from->version),
                        .bytes = {.limit = HEADER_BYTES_MAX + 2 * CAIRN_BLOCK_BYTES},
                        .texts = json_object()};
    enum cairn_code code =
        work.texts ? read_all(&work, err) : cairn_fail(err, CAIRN_NO_MEMORY, "no memory for texts");
    CAIRN_AUTO_JSON json_t *found =
        json_pack("{s:o, s:I}", TEXTS, work.texts, DROPPED, (json_int_t)work.dropped);
    ret->limit = CAIRN_GIB;
    if (code == CAIRN_OK) code = dump(found, ret, err);
    cairn_srv_reading_free(work.reading);
    cairn_buf_release(&work.bytes);
    return code;
}

enum cairn_code cairn_srv_model_texts(const struct cairn_srv_model_from *from, json_t **ret,
                                      uint64_t *ret_dropped, struct cairn_error *err) {
    struct cairn_srv *server = from->request->server;
    char key[CAIRN_KEY_BYTES_MAX + 1];
    snprintf(key, sizeof(key), "texts %s", from->version->id.text);
    struct cairn_srv_held *held = cairn_srv_cache_find(server, key);
    if (!held) {
        CAIRN_AUTO(buf) found = {0};
        CAIRN_TRY(find(from, &found, err));
        held = cairn_srv_cache_keep(server, key, &found);
        if (!held) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the cache");
    }
    CAIRN_AUTO_JSON json_t *found = json_loadb(held->text.data, held->text.size, 0, NULL);
    cairn_srv_cache_give(server, held);
    *ret = json_incref(json_object_get(found, TEXTS));
    *ret_dropped = (uint64_t)json_integer_value(json_object_get(found, DROPPED));
    return *ret ? CAIRN_OK : cairn_fail(err, CAIRN_NO_MEMORY, "no memory for texts");
}
