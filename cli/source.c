/* SPDX-License-Identifier: Apache-2.0 */
/* Opening a committed version and reading its blocks, checked, from the server or the store. */
#include "cli/source.h"

#include <stdio.h>
#include <stdlib.h>

#include "cli/patience.h"
#include "common/encode.h"
#include "common/hash.h"
#include "common/text.h"
#include "store/s3/settings.h"

/* Of a shard that the server reads before it sends a byte of it. */
#define SERVER_CHUNK_BYTES (4 * CAIRN_MIB)

struct cairn_cli_reader {
    const struct cairn_cli_source *source;
    struct cairn_rest *rest;
    struct cairn_store_worker *worker;
    struct cairn_buf path, reply;
};

/* ---- opening ---- */

static enum cairn_code check_digest(const char *what, struct cairn_view bytes,
                                    const uint8_t expected[32], struct cairn_error *err) {
    uint8_t found[CAIRN_SHA256_BYTES];
    char expected_text[65], found_text[65];
    cairn_sha256_of(bytes, found);
    if (!memcmp(found, expected, sizeof found)) return CAIRN_OK;
    cairn_hex_encode(expected, 32, expected_text);
    cairn_hex_encode(found, 32, found_text);
    return cairn_fail(err, CAIRN_CORRUPT, "%s: SHA-256 is %.16s..., expected %.16s...", what,
                      found_text, expected_text);
}

enum cairn_code cairn_cli_source_check(struct cairn_cli_source *source, struct cairn_view manifest,
                                       const uint8_t manifest_sha256[32], struct cairn_error *err) {
    CAIRN_TRY(check_digest("manifest.json", manifest, manifest_sha256, err));
    CAIRN_TRY(cairn_manifest_decode(manifest, &source->manifest, err));
    memcpy(source->manifest_sha256, manifest_sha256, sizeof source->manifest_sha256);
    source->place = (struct cairn_version_place){.name = source->manifest.origin.name,
                                                 .step = source->manifest.origin.step,
                                                 .id = source->manifest.id};
    return CAIRN_OK;
}

/* The parts that hang on the manifest, however they were fetched. */
static enum cairn_code check_rest(struct cairn_cli_source *source, struct cairn_error *err) {
    const struct cairn_manifest *manifest = &source->manifest;
    if (source->checksums.size != 4 * manifest->block_count)
        return cairn_fail(err, CAIRN_CORRUPT, "checksums.bin has %zu bytes, expected %llu",
                          source->checksums.size, (unsigned long long)manifest->block_count * 4);
    CAIRN_TRY(check_digest("checksums.bin", cairn_buf_view(&source->checksums),
                           manifest->checksums_sha256, err));
    return CAIRN_OK;
}

static enum cairn_code fetch(struct cairn_rest *rest, const struct cairn_cli_ref *ref,
                             const char *tail, struct cairn_buf *ret, struct cairn_error *err) {
    CAIRN_AUTO(buf) path = {0};
    CAIRN_TRY(cairn_cli_path(ref, tail, &path, err));
    return cairn_rest_bytes(rest, "GET", path.data, NULL, CAIRN_VIEW(""), NULL, ret, err);
}

static enum cairn_code open_from_server(struct cairn_cli_source *source,
                                        const struct cairn_cli_ref *asked,
                                        struct cairn_error *err) {
    CAIRN_AUTO_PTR(rest) rest = NULL;
    CAIRN_AUTO(buf) path = {0};
    CAIRN_AUTO(buf) manifest = {.limit = CAIRN_MANIFEST_BYTES_MAX};
    CAIRN_AUTO_JSON json_t *version = NULL;
    struct cairn_cli_ref ref = *asked;
    uint8_t digest[CAIRN_SHA256_BYTES];
    CAIRN_TRY(cairn_cli_connect(source->cli, &rest, err));
    CAIRN_TRY(cairn_cli_path(&ref, "", &path, err));
    CAIRN_TRY(cairn_rest_call(rest, "GET", path.data, NULL, 0, &version, err));
    /* From here on by id: "latest" may move while we read. */
    const char *id = json_string_value(json_object_get(version, "version"));
    const char *sha256 = json_string_value(json_object_get(version, "manifest_sha256"));
    if (!id || !cairn_text_copy(ref.version, sizeof ref.version, id))
        return cairn_fail(err, CAIRN_PROTOCOL, "the server's answer names no version");
    if (!sha256)
        return cairn_fail(err, CAIRN_NOT_COMMITTED, "%s of %s/%s is %s", id, ref.name.project,
                          ref.name.run,
                          json_string_value(json_object_get(version, "state"))
                              ? json_string_value(json_object_get(version, "state"))
                              : "not committed");
    CAIRN_TRY(cairn_hex_decode(cairn_view_of(sha256), digest, sizeof digest, err));
    CAIRN_TRY(fetch(rest, &ref, "/manifest", &manifest, err));
    CAIRN_TRY(cairn_cli_source_check(source, cairn_buf_view(&manifest), digest, err));
    return fetch(rest, &ref, "/checksums", &source->checksums, err);
}

static enum cairn_code find_in_store(struct cairn_cli_source *source,
                                     const struct cairn_cli_ref *ref, struct cairn_error *err) {
    struct cairn_store_s3_environment said;
    CAIRN_TRY(cairn_store_s3_environment_load(&said, err));
    uint32_t deadline_ms = (uint32_t)cairn_min_u64(source->cli->timeout_ms, UINT32_MAX);
    if (deadline_ms) said.choice.options.deadline_ms = deadline_ms;
    struct cairn_store_options options = {
        .url = source->cli->store, .read_only = true, .s3 = &said.choice.options};
    enum cairn_code code = cairn_store_open(&options, &source->store, err);
    cairn_store_s3_environment_release(&said);
    CAIRN_TRY(code);
    CAIRN_TRY(cairn_cli_source_find(source, ref, err));
    return cairn_store_tags_new(source->manifest.shard_count, &source->tags, err);
}

static enum cairn_code open_from_store(struct cairn_cli_source *source,
                                       const struct cairn_cli_ref *ref, struct cairn_error *err) {
    struct cairn_cli_patience patience;
    cairn_cli_patience_start(&patience, "store", source->cli->store);
    enum cairn_code code = find_in_store(source, ref, err);
    cairn_cli_patience_end(&patience);
    return code;
}

static enum cairn_code open_once(const struct cairn_cli *cli, const struct cairn_cli_ref *ref,
                                 struct cairn_cli_source *ret, struct cairn_error *err) {
    *ret = (struct cairn_cli_source){.cli = cli,
                                     .name = ref->name,
                                     .checksums = {.limit = CAIRN_GIB}};
    enum cairn_code code =
        cli->store ? open_from_store(ret, ref, err) : open_from_server(ret, ref, err);
    if (code == CAIRN_OK) code = check_rest(ret, err);
    if (code == CAIRN_OK) return code;
    cairn_cli_source_release(ret);
    return cairn_within(err, code, "%s/%s@%s", ref->name.project, ref->name.run, ref->version);
}

enum cairn_code cairn_cli_source_open(const struct cairn_cli *cli, const struct cairn_cli_ref *ref,
                                      struct cairn_cli_source *ret, struct cairn_error *err) {
    struct cairn_cli_ref wanted = *ref;
    struct cairn_error why = {0};
    if (!wanted.version[0]) cairn_text_copy(wanted.version, sizeof wanted.version, "latest");
    enum cairn_code code = open_once(cli, &wanted, ret, &why);
    /* Each try has connections of its own; what a server calls damage it has read twice. */
    if (code == CAIRN_CORRUPT && why.http_status < 400) {
        fprintf(stderr, "note: %s; reading it once more\n", why.message);
        code = open_once(cli, &wanted, ret, &why);
    }
    if (code != CAIRN_OK && err) *err = why;
    return code;
}

void cairn_cli_source_release(struct cairn_cli_source *source) {
    cairn_buf_release(&source->checksums);
    cairn_manifest_release(&source->manifest);
    cairn_store_tags_free(source->tags);
    source->tags = NULL;
    if (source->store) cairn_store_free(source->store);
    source->store = NULL;
}

/* ---- reading ---- */

enum cairn_code cairn_cli_reader_new(const struct cairn_cli_source *source,
                                     struct cairn_cli_reader **ret, struct cairn_error *err) {
    CAIRN_AUTO_PTR(cli_reader) reader = calloc(1, sizeof *reader);
    if (!reader) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a reader");
    reader->source = source;
    reader->reply.limit = 64 * CAIRN_MIB;
    if (source->store)
        CAIRN_TRY(cairn_store_worker_new(source->store, &reader->worker, err));
    else
        CAIRN_TRY(cairn_cli_connect(source->cli, &reader->rest, err));
    *ret = CAIRN_TAKE(reader);
    return CAIRN_OK;
}

void cairn_cli_reader_free(struct cairn_cli_reader *reader) {
    if (!reader) return;
    if (reader->rest) cairn_rest_free(reader->rest);
    if (reader->worker) cairn_store_worker_free(reader->worker);
    cairn_buf_release(&reader->path);
    cairn_buf_release(&reader->reply);
    free(reader);
}

static enum cairn_code shard_path(struct cairn_cli_reader *reader, const char *name,
                                  struct cairn_error *err) {
    struct cairn_cli_ref ref = {.name = reader->source->name};
    cairn_text_copy(ref.version, sizeof ref.version, reader->source->manifest.id.text);
    CAIRN_TRY(cairn_cli_path(&ref, "/shards/", &reader->path, err));
    CAIRN_TRY(cairn_percent_encode(cairn_view_of(name), false, &reader->path, err));
    return cairn_buf_append_text(&reader->path, "/data", err);
}

static enum cairn_code named(const struct cairn_cli_source *source,
                             const struct cairn_manifest_shard *shard, enum cairn_code code,
                             struct cairn_error *err) {
    if (code == CAIRN_OK) return CAIRN_OK;
    return cairn_within(err, code, "run %s/%s step %llu shard %s", source->name.project,
                        source->name.run, (unsigned long long)source->place.step, shard->name);
}

/* Whole blocks that are being read. */
struct piece {
    struct cairn_cli_reader *reader;
    const struct cairn_manifest_shard *shard;
    uint64_t offset;
    void *into;
    size_t size;
};

static const void *checksums_of(const struct piece *piece) {
    uint64_t block = piece->shard->first_block + piece->offset / CAIRN_BLOCK_BYTES;
    return piece->reader->source->checksums.data + 4 * block;
}

static void tell_again(void *owner, const struct cairn_error *why) {
    const struct piece *piece = owner;
    struct cairn_error cause = *why;
    (void)named(piece->reader->source, piece->shard, why->code, &cause);
    fprintf(stderr, "note: %s; reading it once more\n", cause.message);
}

static enum cairn_code read_from_store(struct piece *piece, struct cairn_error *err) {
    const struct cairn_cli_source *source = piece->reader->source;
    struct cairn_key key;
    cairn_key_shard(&source->place, cairn_view_of(piece->shard->name), &key);
    struct cairn_store_range range = {.request = {.key = key.text,
                                                  .offset = piece->offset,
                                                  .length = piece->size,
                                                  .into = piece->into},
                                      .tags = source->tags,
                                      .object = (size_t)(piece->shard - source->manifest.shards),
                                      .object_bytes = piece->shard->size_bytes,
                                      .checksums = checksums_of(piece)};
    return cairn_store_range_read(&range, piece->reader->worker, tell_again, piece, err);
}

static enum cairn_code ask_server(struct piece *piece, struct cairn_error *err) {
    struct cairn_cli_reader *reader = piece->reader;
    char range[64];
    CAIRN_TRY(shard_path(reader, piece->shard->name, err));
    snprintf(range, sizeof range, "bytes=%llu-%llu", (unsigned long long)piece->offset,
             (unsigned long long)(piece->offset + piece->size - 1));
    cairn_buf_clear(&reader->reply);
    CAIRN_TRY(cairn_rest_bytes(reader->rest, "GET", reader->path.data, NULL, CAIRN_VIEW(""), range,
                               &reader->reply, err));
    if (reader->reply.size != piece->size)
        return cairn_fail(err, CAIRN_CORRUPT, "the server sent %zu bytes, expected %zu",
                          reader->reply.size, piece->size);
    memcpy(piece->into, reader->reply.data, piece->size);
    struct cairn_view bytes = {piece->into, piece->size};
    return cairn_store_blocks_check(checksums_of(piece), piece->offset, bytes, err);
}

/* What the server itself calls damage it has read twice; what only we see came wrong from it. */
static enum cairn_code ask_twice(struct piece *piece, struct cairn_error *err) {
    struct cairn_cli_reader *reader = piece->reader;
    enum cairn_code code = ask_server(piece, err);
    if (code != CAIRN_CORRUPT || err->http_status >= 400) return code;
    struct cairn_rest *other = NULL;
    tell_again(piece, err);
    CAIRN_TRY(cairn_cli_connect(reader->source->cli, &other, err));
    cairn_rest_free(reader->rest);
    reader->rest = other;
    return ask_server(piece, err);
}

/* Damage that the server finds after it has begun to answer breaks the connection; at the begin of
 * an answer it is named. So what broke is asked for once more, chunk by chunk. */
static enum cairn_code read_from_server(struct piece *piece, struct cairn_error *err) {
    struct cairn_error why = {0};
    enum cairn_code code = ask_twice(piece, &why);
    bool cut = code == CAIRN_UNAVAILABLE && why.http_status < 400;
    if (cut && piece->size > SERVER_CHUNK_BYTES) {
        code = CAIRN_OK;
        for (size_t at = 0; code == CAIRN_OK && at < piece->size; at += SERVER_CHUNK_BYTES) {
            size_t size = cairn_min_u64(SERVER_CHUNK_BYTES, piece->size - at);
            struct piece part = {piece->reader, piece->shard, piece->offset + at,
                                 (uint8_t *)piece->into + at, size};
            code = ask_twice(&part, &why);
        }
    }
    if (code != CAIRN_OK && err) *err = why;
    return code;
}

enum cairn_code cairn_cli_read(struct cairn_cli_reader *reader,
                               const struct cairn_manifest_shard *shard, uint64_t offset,
                               void *into, size_t size, struct cairn_error *err) {
    CAIRN_ASSERT(offset % CAIRN_BLOCK_BYTES == 0);
    CAIRN_ASSERT(offset + size <= shard->size_bytes);
    struct piece piece = {reader, shard, offset, into, size};
    enum cairn_code code =
        reader->worker ? read_from_store(&piece, err) : read_from_server(&piece, err);
    return named(reader->source, shard, code, err);
}

static enum cairn_code stat_in_store(struct cairn_cli_reader *reader,
                                     const struct cairn_manifest_shard *shard, uint64_t *ret_bytes,
                                     struct cairn_error *err) {
    struct cairn_key key;
    cairn_key_shard(&reader->source->place, cairn_view_of(shard->name), &key);
    struct cairn_store_request request = {.op = CAIRN_STORE_HEAD, .key = key.text};
    enum cairn_code code = cairn_store_perform(reader->worker, &request, err);
    if (code == CAIRN_NOT_FOUND)
        return cairn_within(err, CAIRN_CORRUPT, "the stored object is missing");
    if (code == CAIRN_OK) *ret_bytes = request.object_bytes;
    return code;
}

enum cairn_code cairn_cli_stat(struct cairn_cli_reader *reader,
                               const struct cairn_manifest_shard *shard, uint64_t *ret_bytes,
                               struct cairn_error *err) {
    if (reader->worker)
        return named(reader->source, shard, stat_in_store(reader, shard, ret_bytes, err), err);
    /* Through the server the last block proves both presence and length. */
    *ret_bytes = shard->size_bytes;
    if (!shard->size_bytes) return CAIRN_OK;
    uint64_t offset = (shard->size_bytes - 1) / CAIRN_BLOCK_BYTES * CAIRN_BLOCK_BYTES;
    CAIRN_AUTO_HEAP void *block = malloc(CAIRN_BLOCK_BYTES);
    if (!block) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for one block");
    return cairn_cli_read(reader, shard, offset, block, (size_t)(shard->size_bytes - offset), err);
}
