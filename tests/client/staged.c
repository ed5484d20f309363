/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/client/staged.h"

#include <stdio.h>
#include <stdlib.h>

#include "api/table/layout.h"
#include "api/table/table.h"
#include "common/crc.h"

#define NONCE "00112233445566778899aabbccddeeff"
#define VERSION "ckpt_00000000-0000-8000-8000-000000000000"

const uint8_t *cairn_staged_tensor(struct cairn_fake_uploader *fake, const char *name,
                                   size_t save) {
    struct cairn_fake_message stage, seal;
    struct cairn_table table;
    struct cairn_tensor tensor;
    struct cairn_fragment fragment;
    uint32_t index = 0;
    if (!cairn_fake_uploader_saw(fake, "stage", save, &stage) ||
        !cairn_fake_uploader_saw(fake, "seal", save, &seal) ||
        cairn_table_open(seal.blob, &table, NULL) != CAIRN_OK ||
        !cairn_table_find(&table, cairn_view_of(name), &index))
        return NULL;
    cairn_table_tensor_at(&table, index, &tensor);
    cairn_table_fragment_at(&table, tensor.fragment_first, &fragment);
    uint32_t slab = (uint32_t)json_integer_value(json_object_get(stage.message, "slab"));
    return cairn_fake_uploader_slab(fake, slab) + fragment.offset_bytes;
}

void cairn_staged_version_release(struct cairn_staged_version *version) {
    for (size_t i = 0; i < CAIRN_STAGED_SHARDS_MAX; i++) free(version->memory[i]);
    for (size_t i = 0; i < CAIRN_STAGED_RANKS_MAX; i++) cairn_buf_release(&version->tables[i]);
    cairn_buf_release(&version->manifest_text);
    cairn_buf_release(&version->layout);
    cairn_manifest_release(&version->manifest);
}

static enum cairn_code keep_shard(struct cairn_staged_version *version,
                                  struct cairn_fake_uploader *fake, uint32_t rank,
                                  const json_t *shard, struct cairn_error *err) {
    size_t bytes = (size_t)json_integer_value(json_object_get(shard, "bytes"));
    size_t offset = (size_t)json_integer_value(json_object_get(shard, "offset"));
    size_t at = version->manifest.shard_count;
    if (at == CAIRN_STAGED_SHARDS_MAX) return cairn_fail(err, CAIRN_TOO_LARGE, "too many shards");
    void *memory = malloc(bytes);
    if (!memory) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory");
    memcpy(memory, cairn_fake_uploader_slab(fake, 0) + offset, bytes);
    version->memory[at] = memory;
    version->shards[at] = (struct cairn_view){memory, bytes};
    version->manifest.shards[at] = (struct cairn_manifest_shard){
        .name = strdup(json_string_value(json_object_get(shard, "name"))),
        .rank = rank,
        .size_bytes = bytes,
        .crc32c = cairn_crc32c(0, memory, bytes)};
    version->manifest.shard_count++;
    return CAIRN_OK;
}

enum cairn_code cairn_staged_keep(struct cairn_staged_version *version,
                                  struct cairn_fake_uploader *fake, uint32_t rank,
                                  struct cairn_error *err) {
    struct cairn_manifest *manifest = &version->manifest;
    struct cairn_fake_message stage, seal;
    size_t stages = cairn_fake_uploader_count(fake, "stage");
    if (!stages || !cairn_fake_uploader_saw(fake, "stage", stages, &stage) ||
        !cairn_fake_uploader_saw(fake, "seal", stages, &seal))
        return cairn_fail(err, CAIRN_INTERNAL, "nothing was staged");
    if (!manifest->shards)
        manifest->shards = calloc(CAIRN_STAGED_SHARDS_MAX, sizeof *manifest->shards);
    if (!manifest->shards) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory");
    const json_t *shards = json_object_get(stage.message, "shards");
    for (size_t i = 0; i < json_array_size(shards); i++)
        CAIRN_TRY(keep_shard(version, fake, rank, json_array_get(shards, i), err));
    return cairn_buf_append(&version->tables[rank], seal.blob.data, seal.blob.size, err);
}

static void serve(struct cairn_staged_version *version, struct cairn_fake_uploader *fake,
                  size_t count) {
    const struct cairn_fake_version served = {cairn_buf_view(&version->manifest_text),
                                              cairn_buf_view(&version->layout), version->shards,
                                              count};
    cairn_fake_uploader_serve(fake, &served);
}

/* Encoding puts the shards in the order of their names; their bytes follow. */
static enum cairn_code encode(struct cairn_staged_version *version, struct cairn_error *err) {
    struct cairn_manifest *manifest = &version->manifest;
    struct cairn_view by_name[CAIRN_STAGED_SHARDS_MAX] = {{0}};
    struct cairn_manifest_shard before[CAIRN_STAGED_SHARDS_MAX];
    memcpy(before, manifest->shards, manifest->shard_count * sizeof before[0]);
    CAIRN_TRY(cairn_manifest_encode(manifest, &version->manifest_text, err));
    for (size_t i = 0; i < manifest->shard_count; i++)
        for (size_t k = 0; k < manifest->shard_count; k++)
            if (before[k].name == manifest->shards[i].name) by_name[i] = version->shards[k];
    memcpy(version->shards, by_name, sizeof by_name);
    return CAIRN_OK;
}

enum cairn_code cairn_staged_serve(struct cairn_staged_version *version,
                                   struct cairn_fake_uploader *fake, uint32_t ranks,
                                   struct cairn_error *err) {
    struct cairn_manifest *manifest = &version->manifest;
    struct cairn_table tables[CAIRN_STAGED_RANKS_MAX];
    for (uint32_t i = 0; i < ranks; i++)
        CAIRN_TRY(cairn_table_open(cairn_buf_view(&version->tables[i]), &tables[i], err));
    CAIRN_TRY(cairn_layout_build(tables, ranks, &version->layout, err));
    manifest->origin = (struct cairn_version_origin){
        .name = {"llm", "7b"}, .attempt = 7, .nonce = NONCE, .step = 40, .n = 1};
    snprintf(manifest->id.text, sizeof manifest->id.text, VERSION);
    manifest->layout_writer = manifest->id;
    manifest->world_size = ranks;
    manifest->has_layout = true;
    manifest->meta_json = strdup("{}");
    manifest->labels_json = strdup("{}");
    CAIRN_TRY(encode(version, err));
    serve(version, fake, manifest->shard_count);
    return CAIRN_OK;
}

enum cairn_code cairn_staged_serve_raw(struct cairn_staged_version *version,
                                       struct cairn_fake_uploader *fake,
                                       const struct cairn_staged_raw *raw, size_t count,
                                       struct cairn_error *err) {
    struct cairn_manifest_shard shards[CAIRN_STAGED_SHARDS_MAX] = {{0}};
    struct cairn_manifest manifest = {
        .origin = {.name = {"llm", "7b"}, .attempt = 1, .nonce = NONCE, .step = 1, .n = 1},
        .id = {VERSION},
        .world_size = 1,
        .format_tag = (char *)(uintptr_t) "",
        .meta_json = (char *)(uintptr_t) "{}",
        .labels_json = (char *)(uintptr_t) "{}",
        .shards = shards,
        .shard_count = count};
    if (count > CAIRN_STAGED_SHARDS_MAX) return cairn_fail(err, CAIRN_TOO_LARGE, "too many shards");
    for (size_t i = 0; i < count; i++) {
        shards[i] = (struct cairn_manifest_shard){
            .name = (char *)(uintptr_t)raw[i].name,
            .size_bytes = raw[i].bytes.size,
            .crc32c = cairn_crc32c(0, raw[i].bytes.data, raw[i].bytes.size)};
        version->shards[i] = raw[i].bytes;
    }
    CAIRN_TRY(cairn_manifest_encode(&manifest, &version->manifest_text, err));
    serve(version, fake, count);
    return CAIRN_OK;
}
