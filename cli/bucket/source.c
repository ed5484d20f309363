/* SPDX-License-Identifier: Apache-2.0 */
/* Opening a committed version and reading its blocks, checked, from the server or the store. */
#include "cli/bucket/source.h"

#include <stdio.h>
#include <stdlib.h>

#include "cli/bucket/history.h"
#include "cli/bucket/store.h"
#include "cli/shell/call.h"
#include "cli/shell/options.h"
#include "cli/shell/output.h"
#include "cli/shell/wait_notice.h"
#include "common/encode.h"
#include "common/text.h"
#include "store/documents.h"

/* The server reads and checks this much of a shard before it sends the first byte of it, so damage
 * in a shorter range is named in its answer. */
#define SERVER_CHUNK_BYTES (4 * CAIRN_MIB)

struct cairn_cli_reader {
    const struct cairn_cli_source *source;
    struct cairn_rest *rest;
    struct cairn_store_worker *worker;
    struct cairn_buf path;
};

/* ---- which version ---- */

static enum cairn_code find_by_server(struct cairn_cli_source *source,
                                      const struct cairn_cli_ref *ref, struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *json = NULL;
    struct cairn_msg_version_row version = {0};
    struct cairn_version_place *place = &source->version.place;
    CAIRN_TRY(cairn_cli_call(source->cli, ref, (struct cairn_cli_call){0}, &json, err));
    CAIRN_TRY(cairn_cli_reply_read(CAIRN_MESSAGE_version_row, json, &version, err));
    if (!cairn_version_id_valid(cairn_view_of(version.version)))
        return cairn_fail(err, CAIRN_PROTOCOL, "the server's answer names no version");
    if (!version.manifest_sha256)
        return cairn_fail(err, CAIRN_NOT_COMMITTED, "%s of %s/%s is %s", version.version,
                          place->name.project, place->name.run, version.state);
    /* Every later request names the id: "latest" may move meanwhile. */
    place->step = version.step;
    cairn_text_copy(place->id.text, sizeof place->id.text, version.version);
    source->version.has_digest = true;
    return cairn_hex_decode(cairn_view_of(version.manifest_sha256), source->version.manifest_sha256,
                            32, err);
}

static enum cairn_code find(const struct cairn_cli *cli, const struct cairn_cli_ref *ref,
                            bool damaged_too, struct cairn_cli_source *ret,
                            struct cairn_error *err) {
    struct cairn_cli_ref wanted = *ref;
    if (!wanted.version[0]) cairn_text_copy(wanted.version, sizeof wanted.version, "latest");
    *ret = (struct cairn_cli_source){.cli = cli, .version = {.place = {.name = ref->name}}};
    if (!cli->store) return find_by_server(ret, &wanted, err);
    CAIRN_AUTO_PTR(store_worker) worker = NULL;
    CAIRN_TRY(cairn_cli_store_open(cli, &ret->store, err));
    CAIRN_TRY(cairn_store_worker_new(ret->store, &worker, err));
    return cairn_cli_history_find(worker, &wanted, damaged_too, &ret->version.place, err);
}

/* ---- its documents ---- */

static void note_document_retry(const char *key, const struct cairn_error *why) {
    cairn_cli_note("note: %s: %s; it was read once more, and was right", key, why->message);
}

/* The server has proven them; they are proven again here, since a proxy may stand between. */
static enum cairn_code get_from_server(void *owner, enum cairn_document document, const char *key,
                                       bool again, struct cairn_buf *ret, struct cairn_error *err) {
    static const char *const tails[CAIRN_DOCUMENT_COUNT] = {
        [CAIRN_DOCUMENT_MANIFEST] = "/manifest",
        [CAIRN_DOCUMENT_CHECKSUMS] = "/checksums",
        [CAIRN_DOCUMENT_LAYOUT] = "/layout"};
    const struct cairn_cli_source *source = owner;
    CAIRN_AUTO_PTR(rest) rest = NULL;
    CAIRN_AUTO(buf) path = {0};
    struct cairn_cli_ref ref = {.name = source->version.place.name};
    (void)key, (void)again; /* each has a connection of its own */
    CAIRN_ASSERT(tails[document]);
    cairn_text_copy(ref.version, sizeof ref.version, source->version.place.id.text);
    CAIRN_TRY(cairn_cli_connect(source->cli, &rest, err));
    CAIRN_TRY(cairn_cli_path(&ref, tails[document], &path, err));
    enum cairn_code code =
        cairn_rest_bytes(rest, "GET", path.data, NULL, CAIRN_VIEW(""), NULL, ret, err);
    return code == CAIRN_NOT_FOUND ? cairn_within(err, CAIRN_DELETED, "deleted meanwhile") : code;
}

static enum cairn_code load_documents(struct cairn_cli_source *source,
                                      const struct cairn_document_source *from,
                                      struct cairn_error *err) {
    struct cairn_committed *version = &source->version;
    unsigned wanted = 0;
    if (!version->has_digest && !version->manifest_text.size) wanted |= CAIRN_DOCUMENT_BIT(RECORD);
    if (!version->manifest_text.size) wanted |= CAIRN_DOCUMENT_BIT(MANIFEST);
    if (!version->checksums.size) wanted |= CAIRN_DOCUMENT_BIT(CHECKSUMS);
    return cairn_committed_load(version, from, wanted, err);
}

enum cairn_code cairn_cli_source_load(struct cairn_cli_source *source, struct cairn_error *err) {
    CAIRN_AUTO_PTR(store_worker) worker = NULL;
    struct cairn_document_source from = {
        .get = get_from_server, .tell_again = note_document_retry, .owner = source};
    if (!source->store) return load_documents(source, &from, err);
    CAIRN_TRY(cairn_store_worker_new(source->store, &worker, err));
    from = cairn_store_documents(worker, note_document_retry);
    CAIRN_TRY(load_documents(source, &from, err));
    return cairn_store_tags_new(source->version.manifest.shard_count, &source->tags, err);
}

enum cairn_code cairn_cli_source_load_layout(struct cairn_cli_source *source,
                                             struct cairn_error *err) {
    const unsigned layout = CAIRN_DOCUMENT_BIT(LAYOUT);
    CAIRN_AUTO_PTR(store_worker) worker = NULL;
    if (!source->store) {
        const struct cairn_document_source from = {
            .get = get_from_server, .tell_again = note_document_retry, .owner = source};
        return cairn_committed_load(&source->version, &from, layout, err);
    }
    CAIRN_TRY(cairn_store_worker_new(source->store, &worker, err));
    const struct cairn_document_source from = cairn_store_documents(worker, note_document_retry);
    return cairn_committed_load(&source->version, &from, layout, err);
}

/* ---- opening ---- */

static enum cairn_code open_once(const struct cairn_cli *cli, const struct cairn_cli_ref *ref,
                                 bool damaged_too, struct cairn_cli_source *ret,
                                 struct cairn_error *err) {
    struct cairn_cli_wait_notice notice;
    if (cli->store) cairn_cli_wait_notice_start(&notice, "store", cli->store);
    enum cairn_code code = find(cli, ref, damaged_too, ret, err);
    if (code == CAIRN_OK && !cli->store)
        code = cairn_cli_held_begin(cli, &ret->version.place, &ret->held, err);
    if (code == CAIRN_OK && !damaged_too) code = cairn_cli_source_load(ret, err);
    if (cli->store) cairn_cli_wait_notice_stop(&notice);
    if (code == CAIRN_OK) return code;
    cairn_cli_source_release(ret);
    return cairn_within(err, code, "%s/%s@%s", ref->name.project, ref->name.run,
                        ref->version[0] ? ref->version : "latest");
}

enum cairn_code cairn_cli_source_find(const struct cairn_cli *cli, const struct cairn_cli_ref *ref,
                                      struct cairn_cli_source *ret, struct cairn_error *err) {
    return open_once(cli, ref, true, ret, err);
}

enum cairn_code cairn_cli_source_open(const struct cairn_cli *cli, const struct cairn_cli_ref *ref,
                                      struct cairn_cli_source *ret, struct cairn_error *err) {
    struct cairn_error why = {0};
    enum cairn_code code = open_once(cli, ref, false, ret, &why);
    /* Bytes that were read wrong may have chosen the wrong version (S17); with a store only. */
    if (code == CAIRN_CORRUPT && cli->store) {
        const struct cairn_error first = why;
        why = (struct cairn_error){0};
        code = open_once(cli, ref, false, ret, &why);
        if (!code) cairn_cli_note("note: %s; it was read once more, and was right", first.message);
    }
    if (code != CAIRN_OK && err) *err = why;
    return code;
}

void cairn_cli_source_release(struct cairn_cli_source *source) {
    cairn_cli_held_end(source->held);
    cairn_committed_release(&source->version);
    cairn_store_tags_free(source->tags);
    cairn_store_free(source->store);
    *source = (struct cairn_cli_source){0};
}

enum cairn_code cairn_cli_source_use(
    const struct cairn_cli *cli,
    enum cairn_code (*open)(const struct cairn_cli *cli, const struct cairn_cli_ref *ref,
                            struct cairn_cli_source *ret, struct cairn_error *err),
    enum cairn_code (*work)(struct cairn_cli_source *source, struct cairn_error *err),
    struct cairn_error *err) {
    struct cairn_cli_ref ref;
    struct cairn_cli_source source;
    CAIRN_TRY(cairn_cli_ref_parse(cli->arguments[0], &ref, err));
    CAIRN_TRY(open(cli, &ref, &source, err));
    enum cairn_code code = work(&source, err);
    cairn_cli_source_release(&source);
    return code;
}

/* ---- reading ---- */

enum cairn_code cairn_cli_reader_new(const struct cairn_cli_source *source,
                                     struct cairn_cli_reader **ret, struct cairn_error *err) {
    CAIRN_AUTO_PTR(cli_reader) reader = calloc(1, sizeof *reader);
    if (!reader) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a reader");
    reader->source = source;
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
    free(reader);
}

/* Slashes as they are: proxies refuse %2F, decode it, or encode its % once more. */
static enum cairn_code shard_path(struct cairn_cli_reader *reader, const char *name,
                                  struct cairn_error *err) {
    struct cairn_cli_ref ref = {.name = reader->source->version.place.name};
    cairn_text_copy(ref.version, sizeof ref.version, reader->source->version.manifest.id.text);
    CAIRN_TRY(cairn_cli_path(&ref, "/shards/", &reader->path, err));
    CAIRN_TRY(cairn_percent_encode(cairn_view_of(name), true, &reader->path, err));
    return cairn_buf_append_text(&reader->path, "/data", err);
}

static enum cairn_code named(const struct cairn_cli_source *source,
                             const struct cairn_manifest_shard *shard, enum cairn_code code,
                             struct cairn_error *err) {
    if (code == CAIRN_OK) return CAIRN_OK;
    return cairn_within(err, code, "run %s/%s step %llu shard %s",
                        source->version.place.name.project, source->version.place.name.run,
                        (unsigned long long)source->version.place.step, shard->name);
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
    return piece->reader->source->version.checksums.data + 4 * block;
}

static void tell_again(void *owner, const struct cairn_error *why) {
    const struct piece *piece = owner;
    struct cairn_error cause = *why;
    (void)named(piece->reader->source, piece->shard, why->code, &cause);
    cairn_cli_note("note: %s; reading it once more", cause.message);
}

static enum cairn_code read_from_store(struct piece *piece, struct cairn_error *err) {
    const struct cairn_cli_source *source = piece->reader->source;
    struct cairn_key key;
    cairn_key_shard(&source->version.place, cairn_view_of(piece->shard->name), &key);
    struct cairn_store_range range = {.request = {.key = key.text,
                                                  .offset = piece->offset,
                                                  .length = piece->size,
                                                  .into = piece->into},
                                      .tags = source->tags,
                                      .object =
                                          (size_t)(piece->shard - source->version.manifest.shards),
                                      .object_bytes = piece->shard->size_bytes,
                                      .checksums = checksums_of(piece)};
    return cairn_store_range_read(&range, piece->reader->worker, tell_again, piece, err);
}

static enum cairn_code request_range(struct piece *piece, struct cairn_error *err) {
    struct cairn_cli_reader *reader = piece->reader;
    CAIRN_TRY(shard_path(reader, piece->shard->name, err));
    CAIRN_TRY(cairn_rest_range(reader->rest, reader->path.data, piece->offset, piece->into,
                               piece->size, err));
    struct cairn_view bytes = {piece->into, piece->size};
    return cairn_store_blocks_check(checksums_of(piece), piece->offset, bytes, err);
}

/* The server reads damaged blocks twice before it answers with an error. A difference that
 * only this process sees arose on the way, so the range is read once more, over
 * another connection. */
static enum cairn_code request_range_twice(struct piece *piece, struct cairn_error *err) {
    struct cairn_cli_reader *reader = piece->reader;
    enum cairn_code code = request_range(piece, err);
    if (code != CAIRN_CORRUPT || err->http_status >= 400) return code;
    struct cairn_rest *other = NULL;
    const struct cairn_error first = *err;
    CAIRN_TRY(cairn_cli_connect(reader->source->cli, &other, err));
    cairn_rest_free(reader->rest);
    reader->rest = other;
    code = request_range(piece, err);
    if (!code) tell_again(piece, &first);
    return code;
}

/* Damage that the server finds after it has begun to answer breaks the connection; before that, its
 * answer names the damage. So a range whose answer broke is requested once more in short ones. */
static enum cairn_code read_from_server(struct piece *piece, struct cairn_error *err) {
    struct cairn_error why = {0};
    enum cairn_code code = request_range_twice(piece, &why);
    bool cut = code == CAIRN_UNAVAILABLE && why.http_status < 400;
    if (cut && piece->size > SERVER_CHUNK_BYTES) {
        code = CAIRN_OK;
        for (size_t at = 0; code == CAIRN_OK && at < piece->size; at += SERVER_CHUNK_BYTES) {
            size_t size = cairn_min_u64(SERVER_CHUNK_BYTES, piece->size - at);
            struct piece part = {piece->reader, piece->shard, piece->offset + at,
                                 (uint8_t *)piece->into + at, size};
            code = request_range_twice(&part, &why);
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
    cairn_key_shard(&reader->source->version.place, cairn_view_of(shard->name), &key);
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
