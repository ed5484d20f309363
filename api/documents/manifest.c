/* SPDX-License-Identifier: Apache-2.0 */
/* manifest: written as text shard by shard, which needs an eighth of the memory of a JSON tree;
 * read through the strict parser, then checked field by field. */
#include "api/documents/manifest.h"

#include <inttypes.h>
#include <stdlib.h>

#include "api/documents/names.h"
#include "api/documents/records.h"
#include "common/crc.h"
#include "common/text.h"

#define MANIFEST_KIND "cairn_manifest"
#define SHARDS_MAX (UINT32_C(1) << 20)
#define NODES_MAX (16u * SHARDS_MAX) /* 10 values a shard, plus meta */
#define SIZE_BYTES_MAX (UINT64_C(1) << 62)
#define FORMAT_TAG_BYTES_MAX CAIRN_NAME_BYTES_MAX
#define META_DEPTH_MAX 15 /* meta lies in a document of depth at most 16 */

uint64_t cairn_block_count(uint64_t size_bytes) {
    return cairn_div_up(size_bytes, CAIRN_BLOCK_BYTES);
}

uint32_t cairn_blocks_combine(const uint32_t *blocks, uint64_t size_bytes) {
    uint32_t crc = 0;
    uint64_t count = cairn_block_count(size_bytes), left = size_bytes;
    for (uint64_t i = 0; i < count; i++) {
        uint64_t bytes = cairn_min_u64(left, CAIRN_BLOCK_BYTES);
        crc = i == 0 ? blocks[0] : cairn_crc32c_combine(crc, blocks[i], bytes);
        left -= bytes;
    }
    return crc;
}

void cairn_manifest_release(struct cairn_manifest *manifest) {
    for (size_t i = 0; i < manifest->shard_count; i++) free(manifest->shards[i].name);
    free(manifest->shards);
    free(manifest->format_tag);
    free(manifest->meta_json);
    free(manifest->labels_json);
    *manifest = (struct cairn_manifest){0};
}

const struct cairn_manifest_shard *cairn_manifest_find(const struct cairn_manifest *manifest,
                                                       struct cairn_view name) {
    size_t low = 0, high = manifest->shard_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = cairn_view_compare(cairn_view_of(manifest->shards[middle].name), name);
        if (order == 0) return &manifest->shards[middle];
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

static int compare_shards(const void *a, const void *b) {
    const struct cairn_manifest_shard *shard_a = a, *shard_b = b;
    return strcmp(shard_a->name, shard_b->name);
}

/* Checks the sums that follow from the sorted shards, or fills them in; for writer and reader. */
static enum cairn_code check_shards(struct cairn_manifest *manifest, bool fill,
                                    struct cairn_error *err) {
    uint64_t bytes = 0, blocks = 0;
    for (size_t i = 0; i < manifest->shard_count; i++) {
        struct cairn_manifest_shard *shard = &manifest->shards[i];
        CAIRN_TRY(cairn_shard_name_check(cairn_view_of(shard->name), err));
        if (i > 0 && strcmp(shard[-1].name, shard->name) >= 0)
            return cairn_fail(err, CAIRN_INVALID, "shard \"%s\": twice or out of order",
                              cairn_short(shard->name).text);
        if (shard->size_bytes > SIZE_BYTES_MAX || shard->rank >= manifest->world_size)
            return cairn_fail(err, CAIRN_INVALID, "shard \"%s\": size or rank out of range",
                              cairn_short(shard->name).text);
        if (fill) shard->first_block = blocks;
        if (shard->first_block != blocks || (shard->size_bytes == 0 && shard->crc32c != 0))
            return cairn_fail(err, CAIRN_INVALID, "shard \"%s\": wrong first_block or crc32c",
                              cairn_short(shard->name).text);
        blocks += cairn_block_count(shard->size_bytes); /* 2^20 times 2^42: no overflow */
        if (cairn_add_overflows(bytes, shard->size_bytes, &bytes) || bytes > SIZE_BYTES_MAX)
            return cairn_fail(err, CAIRN_INVALID, "the shards' sizes add up to too much");
    }
    if (fill) {
        manifest->total_bytes = bytes;
        manifest->block_count = blocks;
    }
    if (manifest->total_bytes != bytes || manifest->block_count != blocks)
        return cairn_fail(err, CAIRN_INVALID, "bytes or blocks are not the sum over the shards");
    return CAIRN_OK;
}

static enum cairn_code check_fields(const struct cairn_manifest *manifest,
                                    struct cairn_error *err) {
    if (manifest->world_size == 0 || manifest->origin.n == 0)
        return cairn_fail(err, CAIRN_INVALID, "world_size and n count from 1");
    if (manifest->origin.step > CAIRN_STEP_MAX)
        return cairn_fail(err, CAIRN_INVALID, "step out of range");
    if (manifest->shard_count > SHARDS_MAX)
        return cairn_fail(err, CAIRN_TOO_LARGE, "%s, at most %u",
                          cairn_counted(manifest->shard_count, "shard").text, SHARDS_MAX);
    return CAIRN_OK;
}

/* ---- encode ---- */

static enum cairn_code object_parse(const char *what, const char *text, json_t **ret,
                                    struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *json = NULL;
    enum cairn_code code = cairn_json_parse(cairn_view_of(text && *text ? text : "{}"),
                                            (struct cairn_json_limits){0}, &json, err);
    if (code == CAIRN_OK && (!json_is_object(json) || cairn_json_depth(json) > META_DEPTH_MAX))
        code = cairn_fail(err, CAIRN_INVALID, "want a JSON object, nested at most %d deep",
                          META_DEPTH_MAX);
    if (code != CAIRN_OK) return cairn_within(err, code, "%s", what);
    *ret = CAIRN_TAKE(json);
    return CAIRN_OK;
}

static enum cairn_code labels_check(const json_t *labels, struct cairn_error *err) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)labels, key, value) {
        if (!json_is_string(value))
            return cairn_fail(err, CAIRN_INVALID, "labels: want an object of strings");
    }
    return CAIRN_OK;
}

static json_t *layout_pack(const struct cairn_manifest *manifest) {
    if (!manifest->has_layout) return json_null();
    return json_pack("{so ss}", "digest", cairn_document_hex(manifest->layout_digest, 32), "writer",
                     manifest->layout_writer.text);
}

/* Packs the fields whose names sort before "shards". */
static enum cairn_code head_pack(const struct cairn_manifest *manifest, json_t **ret,
                                 struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *meta = NULL;
    CAIRN_AUTO_JSON json_t *labels = NULL;
    CAIRN_TRY(object_parse("meta", manifest->meta_json, &meta, err));
    CAIRN_TRY(object_parse("labels", manifest->labels_json, &labels, err));
    CAIRN_TRY(labels_check(labels, err));
    const char *tag = manifest->format_tag ? manifest->format_tag : "";
    if (strlen(tag) > FORMAT_TAG_BYTES_MAX)
        return cairn_fail(err, CAIRN_INVALID, "format: more than %d bytes", FORMAT_TAG_BYTES_MAX);
    *ret = json_pack("{si sI sI sI sI ss so ss sO so sO sI ss ss ss}", MANIFEST_KIND,
                     DOCUMENT_MAJOR, "attempt", (json_int_t)manifest->origin.attempt, "block_bytes",
                     (json_int_t)CAIRN_BLOCK_BYTES, "blocks", (json_int_t)manifest->block_count,
                     "bytes", (json_int_t)manifest->total_bytes, "checksum", "crc32c",
                     "checksums_sha256", cairn_document_hex(manifest->checksums_sha256, 32),
                     "format", tag, "labels", labels, "layout", layout_pack(manifest), "meta", meta,
                     "n", (json_int_t)manifest->origin.n, "nonce", manifest->origin.nonce,
                     "project", manifest->origin.name.project, "run", manifest->origin.name.run);
    if (!*ret) return cairn_fail(err, CAIRN_INVALID, "a field is not UTF-8, or memory is short");
    return CAIRN_OK;
}

/* A checked name is UTF-8 without control bytes and backslashes; only quotes need an escape. */
static enum cairn_code write_name(const char *name, struct cairn_buf *ret,
                                  struct cairn_error *err) {
    const char *quote;
    CAIRN_TRY(cairn_buf_append(ret, "\"", 1, err));
    for (; (quote = strchr(name, '"')); name = quote + 1) {
        CAIRN_TRY(cairn_buf_append(ret, name, (size_t)(quote - name), err));
        CAIRN_TRY(cairn_buf_append(ret, "\\\"", 2, err));
    }
    CAIRN_TRY(cairn_buf_append_text(ret, name, err));
    return cairn_buf_append(ret, "\"", 1, err);
}

/* Writes text: building a JSON tree took a third of the time of a commit of a thousand shards. */
static enum cairn_code write_shard(const struct cairn_manifest_shard *shard, struct cairn_buf *ret,
                                   struct cairn_error *err) {
    CAIRN_TRY(
        cairn_buf_printf(ret, err, "{\"crc32c\":\"%08" PRIx32 "\",\"extents\":[", shard->crc32c));
    if (shard->size_bytes)
        CAIRN_TRY(cairn_buf_printf(ret, err, "[0,%" PRIu64 "]", shard->size_bytes));
    CAIRN_TRY(
        cairn_buf_printf(ret, err, "],\"first_block\":%" PRIu64 ",\"name\":", shard->first_block));
    CAIRN_TRY(write_name(shard->name, ret, err));
    return cairn_buf_printf(
        ret, err, ",\"part_bytes\":%" PRIu64 ",\"rank\":%" PRIu32 ",\"size\":%" PRIu64 "}",
        shard->part_bytes, shard->rank, shard->size_bytes);
}

/* Canonical JSON sorts fields by name: the fields before and after "shards" are dumped as two
 * objects, and the inner braces are cut off. */
static enum cairn_code write_manifest(const struct cairn_manifest *manifest, struct cairn_buf *ret,
                                      struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *head = NULL;
    CAIRN_TRY(head_pack(manifest, &head, err));
    CAIRN_TRY(cairn_json_dump(head, ret, err));
    ret->data[ret->size - 1] = ',';
    CAIRN_TRY(cairn_buf_append_text(ret, "\"shards\":[", err));
    for (size_t i = 0; i < manifest->shard_count; i++) {
        if (i > 0) CAIRN_TRY(cairn_buf_append_text(ret, ",", err));
        CAIRN_TRY(write_shard(&manifest->shards[i], ret, err));
    }
    CAIRN_TRY(cairn_buf_append_text(ret, "],", err));
    size_t tail_at = ret->size;
    json_t *tail = json_pack("{sI ss sI}", "step", (json_int_t)manifest->origin.step, "version",
                             manifest->id.text, "world_size", (json_int_t)manifest->world_size);
    CAIRN_TRY(cairn_document_dump(tail, ret, err));
    ret->size--; /* drops the tail's '{' */
    memmove(ret->data + tail_at, ret->data + tail_at + 1, ret->size - tail_at + 1);
    return CAIRN_OK;
}

enum cairn_code cairn_manifest_encode(struct cairn_manifest *manifest, struct cairn_buf *ret,
                                      struct cairn_error *err) {
    CAIRN_TRY(check_fields(manifest, err));
    if (manifest->shard_count)
        qsort(manifest->shards, manifest->shard_count, sizeof *manifest->shards, compare_shards);
    enum cairn_code code = check_shards(manifest, true, err);
    if (ret->limit == 0) ret->limit = CAIRN_MANIFEST_BYTES_MAX;
    size_t before = ret->size;
    if (code == CAIRN_OK) code = write_manifest(manifest, ret, err);
    if (code == CAIRN_OK) return code;
    ret->size = before;
    return cairn_within(err, code, "manifest");
}

/* ---- decode ---- */

static enum cairn_code copy_text(const char *text, char **ret, struct cairn_error *err) {
    *ret = strdup(text);
    if (!*ret) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a manifest");
    return CAIRN_OK;
}

static enum cairn_code object_copy(const json_t *json, char **ret, struct cairn_error *err) {
    CAIRN_AUTO(buf) text = {0};
    CAIRN_TRY(cairn_json_dump(json, &text, err));
    return copy_text(text.data, ret, err);
}

/* A shard has exactly one extent, its whole object. Other extents need a newer release. */
static enum cairn_code extents_read(const json_t *extents, uint64_t size, struct cairn_error *err) {
    if (size == 0 && json_array_size(extents) == 0) return CAIRN_OK;
    const json_t *extent = json_array_get(extents, 0);
    if (json_array_size(extents) != 1 || json_array_size(extent) != 2)
        return cairn_newer(err, "one that knows its extents (this one: whole objects)");
    const json_t *offset = json_array_get(extent, 0), *bytes = json_array_get(extent, 1);
    if (!json_is_integer(offset) || json_integer_value(offset) != 0 || !json_is_integer(bytes) ||
        json_integer_value(bytes) != (json_int_t)size) {
        return cairn_fail(err, CAIRN_INVALID, "extents that are not the whole object");
    }
    return CAIRN_OK;
}

static enum cairn_code shard_read(const json_t *json, struct cairn_manifest_shard *ret,
                                  struct cairn_error *err) {
    const char *name = NULL, *crc = NULL;
    json_t *extents = NULL;
    uint8_t bytes[4];
    const struct cairn_json_field fields[] = {
        {"crc32c", CAIRN_JSON_TEXT, true, &crc, 8},
        {"extents", CAIRN_JSON_ARRAY, true, &extents, 0},
        {"first_block", CAIRN_JSON_U64, true, &ret->first_block, 0},
        {"name", CAIRN_JSON_TEXT, true, &name, CAIRN_SHARD_NAME_BYTES_MAX},
        {"part_bytes", CAIRN_JSON_U64, true, &ret->part_bytes, 0},
        {"rank", CAIRN_JSON_U32, true, &ret->rank, 0},
        {"size", CAIRN_JSON_U64, true, &ret->size_bytes, 0},
    };
    CAIRN_TRY(cairn_json_read(json, "", fields, CAIRN_COUNT(fields), true, err));
    CAIRN_TRY(cairn_hex_decode(cairn_view_of(crc), bytes, sizeof bytes, err));
    ret->crc32c = (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 |
                  (uint32_t)bytes[3];
    CAIRN_TRY(extents_read(extents, ret->size_bytes, err));
    return copy_text(name, &ret->name, err);
}

static enum cairn_code shards_read(const json_t *list, struct cairn_manifest *ret,
                                   struct cairn_error *err) {
    size_t count = json_array_size(list);
    if (count > SHARDS_MAX)
        return cairn_fail(err, CAIRN_INVALID, "%s", cairn_counted(count, "shard").text);
    ret->shards = calloc(count + 1, sizeof *ret->shards);
    if (!ret->shards)
        return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for %s",
                          cairn_counted(count, "shard").text);
    for (size_t i = 0; i < count; i++) {
        ret->shard_count = i + 1;
        enum cairn_code code = shard_read(json_array_get(list, i), &ret->shards[i], err);
        if (code != CAIRN_OK) return cairn_within(err, code, "/shards/%zu", i);
    }
    return CAIRN_OK;
}

static enum cairn_code layout_read(const json_t *layout, struct cairn_manifest *ret,
                                   struct cairn_error *err) {
    if (!layout) return CAIRN_OK;
    const char *digest = NULL, *writer = NULL;
    const struct cairn_json_field fields[] = {
        {"digest", CAIRN_JSON_TEXT, true, &digest, 0},
        {"writer", CAIRN_JSON_TEXT, true, &writer, 0},
    };
    CAIRN_TRY(cairn_json_read(layout, "/layout", fields, CAIRN_COUNT(fields), true, err));
    CAIRN_TRY(cairn_document_digest(digest, ret->layout_digest, err));
    CAIRN_TRY(cairn_document_id(writer, &ret->layout_writer, err));
    ret->has_layout = true;
    return CAIRN_OK;
}

struct texts {
    const char *project, *run, *nonce, *version, *checksum, *checksums_sha256, *format;
    json_t *labels, *layout, *meta, *shards;
    uint64_t block_bytes;
};

static enum cairn_code fields_read(const json_t *json, struct cairn_manifest *ret,
                                   struct texts *texts, struct cairn_error *err) {
    const struct cairn_json_field fields[] = {
        {"attempt", CAIRN_JSON_U64, true, &ret->origin.attempt, 0},
        {"block_bytes", CAIRN_JSON_U64, true, &texts->block_bytes, 0},
        {"blocks", CAIRN_JSON_U64, true, &ret->block_count, 0},
        {"bytes", CAIRN_JSON_U64, true, &ret->total_bytes, 0},
        {"checksum", CAIRN_JSON_TEXT, true, &texts->checksum, 0},
        {"checksums_sha256", CAIRN_JSON_TEXT, true, &texts->checksums_sha256, 0},
        {"format", CAIRN_JSON_TEXT, true, &texts->format, FORMAT_TAG_BYTES_MAX},
        {"labels", CAIRN_JSON_OBJECT, true, &texts->labels, 0},
        {"layout", CAIRN_JSON_OBJECT, false, &texts->layout, 0},
        {"meta", CAIRN_JSON_OBJECT, true, &texts->meta, 0},
        {"n", CAIRN_JSON_U32, true, &ret->origin.n, 0},
        {"nonce", CAIRN_JSON_TEXT, true, &texts->nonce, 0},
        {"project", CAIRN_JSON_TEXT, true, &texts->project, 0},
        {"run", CAIRN_JSON_TEXT, true, &texts->run, 0},
        {"shards", CAIRN_JSON_ARRAY, true, &texts->shards, 0},
        {"step", CAIRN_JSON_U64, true, &ret->origin.step, 0},
        {"version", CAIRN_JSON_TEXT, true, &texts->version, 0},
        {"world_size", CAIRN_JSON_U32, true, &ret->world_size, 0},
    };
    return cairn_json_read(json, "", fields, CAIRN_COUNT(fields), true, err);
}

static enum cairn_code manifest_read(const json_t *json, struct cairn_manifest *ret,
                                     struct cairn_error *err) {
    struct texts texts = {0};
    CAIRN_TRY(fields_read(json, ret, &texts, err));
    if (strcmp(texts.checksum, "crc32c") != 0 || texts.block_bytes != CAIRN_BLOCK_BYTES)
        return cairn_newer(err, "one that knows checksum \"%.32s\" over blocks of %llu bytes",
                           texts.checksum, (unsigned long long)texts.block_bytes);
    CAIRN_TRY(cairn_document_run(texts.project, texts.run, &ret->origin.name, err));
    CAIRN_TRY(cairn_document_nonce(texts.nonce, ret->origin.nonce, err));
    CAIRN_TRY(cairn_document_id(texts.version, &ret->id, err));
    CAIRN_TRY(cairn_document_digest(texts.checksums_sha256, ret->checksums_sha256, err));
    CAIRN_TRY(labels_check(texts.labels, err));
    CAIRN_TRY(copy_text(texts.format, &ret->format_tag, err));
    CAIRN_TRY(object_copy(texts.meta, &ret->meta_json, err));
    CAIRN_TRY(object_copy(texts.labels, &ret->labels_json, err));
    CAIRN_TRY(layout_read(texts.layout, ret, err));
    CAIRN_TRY(shards_read(texts.shards, ret, err));
    CAIRN_TRY(check_fields(ret, err));
    return check_shards(ret, false, err);
}

enum cairn_code cairn_manifest_decode(struct cairn_view text, struct cairn_manifest *ret,
                                      struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *json = NULL;
    CAIRN_AUTO(manifest) manifest = {0};
    struct cairn_json_limits limits = {CAIRN_MANIFEST_BYTES_MAX, NODES_MAX};
    enum cairn_code code = cairn_document_parse(text, MANIFEST_KIND, limits, &json, err);
    if (code == CAIRN_OK) code = manifest_read(json, &manifest, err);
    if (code != CAIRN_OK) return cairn_document_bad(err, code, "manifest");
    *ret = manifest;
    manifest = (struct cairn_manifest){0};
    return CAIRN_OK;
}
