/* SPDX-License-Identifier: Apache-2.0 */
/* source: opens a version and reads its verified blocks from server or store, also in parallel. */

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "api/documents/keys.h"
#include "api/wire/rest.h"
#include "cli/bucket/bucket.h"
#include "cli/shell/output.h"
#include "common/clock.h"
#include "common/lock.h"
#include "common/memory.h"
#include "common/process.h"
#include "common/text.h"
#include "common/trace.h"
#include "store/whole.h"

/* ---- the read lease of a version ---- */

/* Q29: the lease is taken before the first byte is read, renewed three times per TTL and released
 * at the end; after Ctrl-C it expires. An older server has no leases: the command notes that and
 * continues. CAIRN_DELETED, CAIRN_ABORTED: too late. */

#define TTL_S 300
#define AGAIN_MS 5000

struct cli_held {
    struct cairn_read_lease lease;
    struct cairn_rest *rest;
    struct cairn_thread thread;
    bool noted;
};

static void note_once(struct cli_held *held, const struct cairn_error *why) {
    if (!held->noted)
        cli_note("note: %s is not leased, so it may be deleted while it is read: %s",
                 held->lease.version.text, why->message);
    held->noted = true;
}

static void renew(struct cairn_thread *thread, void *owner) {
    struct cli_held *held = owner;
    uint64_t wait_ms = held->lease.id[0] ? cairn_read_lease_every_ms(&held->lease) : AGAIN_MS;
    while (cairn_thread_wait(thread, cairn_mono_ms() + wait_ms)) {
        struct cairn_error why = {0};
        enum cairn_code code = cairn_read_lease_keep(&held->lease, held->rest, &why);
        if (code) note_once(held, &why);
        wait_ms = code ? AGAIN_MS : cairn_read_lease_every_ms(&held->lease);
    }
}

static enum cairn_code begin(struct cli_held *held, const struct cli *cli,
                             struct cairn_error *err) {
    struct cairn_error why = {0};
    CAIRN_TRY(cli_connect(cli, &held->rest, err));
    enum cairn_code code = cairn_read_lease_keep(&held->lease, held->rest, &why);
    if (code == CAIRN_DELETED || code == CAIRN_ABORTED) return cairn_pass(err, code, &why);
    if (code) note_once(held, &why);
    held->thread = (struct cairn_thread){.name = "cairn-lease", .run = renew, .owner = held};
    return cairn_thread_start(&held->thread, err);
}

static void end_lease(struct cli_held *held) {
    if (!held) return;
    if (held->thread.started) cairn_thread_stop(&held->thread);
    /* If releasing fails, the lease expires. */
    if (held->rest) (void)!cairn_read_lease_give(&held->lease, held->rest, NULL);
    if (held->rest) cairn_rest_free(held->rest);
    free(held);
}

static enum cairn_code begin_lease(const struct cli *cli, const struct cairn_version_place *place,
                                   struct cli_held **ret, struct cairn_error *err) {
    struct cli_held *held = calloc(1, sizeof *held);
    if (!held) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a lease");
    held->lease =
        (struct cairn_read_lease){.name = place->name, .version = place->id, .ttl_s = TTL_S};
    /* Unique per command, so that releasing it never ends another reader's lease. */
    char host[65] = "", uuid[CAIRN_UUID_TEXT_BYTES];
    if (gethostname(host, sizeof host - 1)) host[0] = '\0';
    cairn_uuid_random(uuid);
    snprintf(held->lease.job, sizeof held->lease.job, "cairn on %s, pid %d, %s", host,
             (int)getpid(), uuid);
    enum cairn_code code = begin(held, cli, err);
    if (code)
        end_lease(held);
    else
        *ret = held;
    return code;
}

/* The server verifies this much before it sends: damage in a shorter range is an error reply. */
#define SERVER_CHUNK_BYTES (4 * CAIRN_MIB)

struct cairn_cli_reader {
    const struct cli_source *source;
    struct cairn_rest *rest;
    struct cairn_store_worker *worker;
    struct cairn_buf path;
};

static enum cairn_code find(const struct cli *cli, const struct cli_ref *ref, bool damaged_too,
                            struct cli_source *ret, struct cairn_error *err) {
    struct cli_ref wanted = *ref;
    if (!wanted.version[0]) cairn_text_copy(wanted.version, sizeof wanted.version, "latest");
    *ret = (struct cli_source){.cli = cli, .version = {.place = {.name = ref->name}}};
    if (!cli->store) {
        CAIRN_AUTO_JSON json_t *json = NULL;
        struct cairn_msg_version_row version = {0};
        struct cairn_version_place *place = &ret->version.place;
        CAIRN_TRY(cli_get(ret->cli, &wanted, "", CAIRN_MESSAGE_version_row, &json, &version, err));
        if (!cairn_version_id_valid(cairn_view_of(version.version)))
            return cairn_fail(err, CAIRN_PROTOCOL, "the server's answer names no version");
        if (!version.manifest_sha256)
            return cairn_fail(err, CAIRN_NOT_COMMITTED, "%s of %s/%s is %s", version.version,
                              place->name.project, place->name.run, version.state);
        /* Later requests use the id, because "latest" may move. */
        place->step = version.step;
        cairn_text_copy(place->id.text, sizeof place->id.text, version.version);
        ret->version.has_digest = true;
        return cairn_hex_decode(cairn_view_of(version.manifest_sha256),
                                ret->version.manifest_sha256, 32, err);
    }
    CAIRN_AUTO_PTR(store_worker) worker = NULL;
    CAIRN_TRY(cli_store_open(cli, &ret->store, err));
    CAIRN_TRY(cairn_store_worker_new(ret->store, &worker, err));
    return cli_history_find(worker, &wanted, damaged_too, &ret->version.place, err);
}

/* ---- opening: documents, and a note while a store does not answer ---- */

static void note_document_retry(const char *key, const struct cairn_error *why) {
    cli_note("note: %s: %s; it was read once more, and was right", key, why->message);
}

/* The server's documents are proven again here, because a proxy may have altered them. */
static enum cairn_code get_from_server(void *owner, enum cairn_document document, const char *key,
                                       bool again, struct cairn_buf *ret, struct cairn_error *err) {
    static const char *const tails[CAIRN_DOCUMENT_COUNT] = {[CAIRN_DOCUMENT_MANIFEST] = "/manifest",
                                                            [CAIRN_DOCUMENT_CHECKSUMS] =
                                                                "/checksums",
                                                            [CAIRN_DOCUMENT_LAYOUT] = "/layout"};
    const struct cli_source *source = owner;
    CAIRN_AUTO_PTR(rest) rest = NULL;
    CAIRN_AUTO(buf) path = {0};
    struct cli_ref ref = {.name = source->version.place.name};
    (void)key, (void)again; /* every request has its own connection */
    CAIRN_ASSERT(tails[document]);
    cairn_text_copy(ref.version, sizeof ref.version, source->version.place.id.text);
    CAIRN_TRY(cli_connect(source->cli, &rest, err));
    CAIRN_TRY(cli_path(&ref, tails[document], &path, err));
    enum cairn_code code =
        cairn_rest_bytes(rest, "GET", path.data, NULL, CAIRN_VIEW(""), NULL, ret, err);
    return code == CAIRN_NOT_FOUND ? cairn_within(err, CAIRN_DELETED, "deleted meanwhile") : code;
}

static enum cairn_code load_documents(struct cli_source *source, unsigned wanted,
                                      struct cairn_error *err) {
    CAIRN_AUTO_PTR(store_worker) worker = NULL;
    struct cairn_document_source from = {
        .get = get_from_server, .tell_again = note_document_retry, .owner = source};
    if (source->store) {
        CAIRN_TRY(cairn_store_worker_new(source->store, &worker, err));
        from = cairn_store_documents(worker, note_document_retry);
    }
    return cairn_committed_load(&source->version, &from, wanted, err);
}

enum cairn_code cli_source_load(struct cli_source *source, struct cairn_error *err) {
    struct cairn_committed *version = &source->version;
    unsigned wanted = 0;
    if (!version->has_digest && !version->manifest_text.size) wanted |= CAIRN_DOCUMENT_BIT(RECORD);
    if (!version->manifest_text.size) wanted |= CAIRN_DOCUMENT_BIT(MANIFEST);
    if (!version->checksums.size) wanted |= CAIRN_DOCUMENT_BIT(CHECKSUMS);
    CAIRN_TRY(load_documents(source, wanted, err));
    if (!source->store) return CAIRN_OK;
    return cairn_store_tags_new(version->manifest.shard_count, &source->tags, err);
}

enum cairn_code cli_source_load_layout(struct cli_source *source, struct cairn_error *err) {
    return load_documents(source, CAIRN_DOCUMENT_BIT(LAYOUT), err);
}

/* Requests to an unresponsive store are retried for minutes: after 5 s, then every 30 s, a line
 * names the store and the time waited. Without memory for a thread there is no note. */

#define FIRST_MS 5000
#define EVERY_MS 30000

struct wait_notice {
    const char *store;
    uint64_t started_ms;
    struct cairn_thread thread;
};

static void tell_of_wait(struct cairn_thread *thread, void *owner) {
    const struct wait_notice *notice = owner;
    uint64_t next_ms = notice->started_ms + FIRST_MS;
    for (; cairn_thread_wait(thread, next_ms); next_ms += EVERY_MS)
        fprintf(stderr, "waiting for the store %s, %llu s so far; --timeout TIME gives up sooner\n",
                notice->store, (unsigned long long)(cairn_mono_ms() - notice->started_ms) / 1000);
}

static enum cairn_code open_once(const struct cli *cli, const struct cli_ref *ref, bool damaged_too,
                                 struct cli_source *ret, struct cairn_error *err) {
    struct wait_notice notice = {.store = cli->store, .started_ms = cairn_mono_ms()};
    notice.thread =
        (struct cairn_thread){.name = "cairn-notice", .run = tell_of_wait, .owner = &notice};
    if (cli->store) (void)!cairn_thread_start(&notice.thread, NULL);
    enum cairn_code code = find(cli, ref, damaged_too, ret, err);
    if (code == CAIRN_OK && !cli->store)
        code = begin_lease(cli, &ret->version.place, &ret->held, err);
    if (code == CAIRN_OK && !damaged_too) code = cli_source_load(ret, err);
    cairn_thread_stop(&notice.thread);
    if (code == CAIRN_OK) return code;
    cli_source_release(ret);
    return cairn_within(err, code, "%s/%s@%s", ref->name.project, ref->name.run,
                        ref->version[0] ? ref->version : "latest");
}

enum cairn_code cli_source_find(const struct cli *cli, const struct cli_ref *ref,
                                struct cli_source *ret, struct cairn_error *err) {
    return open_once(cli, ref, true, ret, err);
}

enum cairn_code cli_source_open(const struct cli *cli, const struct cli_ref *ref,
                                struct cli_source *ret, struct cairn_error *err) {
    struct cairn_error why = {0};
    enum cairn_code code = open_once(cli, ref, false, ret, &why);
    /* Misread bytes may have chosen the wrong version (S17): a store is tried twice. */
    if (code == CAIRN_CORRUPT && cli->store) {
        const struct cairn_error first = why;
        why = (struct cairn_error){0};
        code = open_once(cli, ref, false, ret, &why);
        if (!code) cli_note("note: %s; it was read once more, and was right", first.message);
    }
    return cairn_pass(err, code, &why);
}

void cli_source_release(struct cli_source *source) {
    end_lease(source->held);
    cairn_committed_release(&source->version);
    cairn_store_tags_free(source->tags);
    cairn_store_free(source->store);
    *source = (struct cli_source){0};
}

enum cairn_code
cli_source_use(const struct cli *cli,
               enum cairn_code (*open)(const struct cli *cli, const struct cli_ref *ref,
                                       struct cli_source *ret, struct cairn_error *err),
               enum cairn_code (*work)(struct cli_source *source, struct cairn_error *err),
               struct cairn_error *err) {
    struct cli_ref ref;
    struct cli_source source;
    CAIRN_TRY(cli_ref_parse(cli->arguments[0], &ref, err));
    CAIRN_TRY(open(cli, &ref, &source, err));
    enum cairn_code code = work(&source, err);
    cli_source_release(&source);
    return code;
}

/* ---- reading ---- */

enum cairn_code cli_reader_new(const struct cli_source *source, struct cairn_cli_reader **ret,
                               struct cairn_error *err) {
    CAIRN_AUTO_PTR(cli_reader) reader = calloc(1, sizeof *reader);
    if (!reader) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a reader");
    reader->source = source;
    if (source->store)
        CAIRN_TRY(cairn_store_worker_new(source->store, &reader->worker, err));
    else
        CAIRN_TRY(cli_connect(source->cli, &reader->rest, err));
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

/* The server's message names the shard already. */
static enum cairn_code named(const struct cli_source *source,
                             const struct cairn_manifest_shard *shard, enum cairn_code code,
                             struct cairn_error *err) {
    char shards[2 * CAIRN_NAME_BYTES_MAX + 64];
    snprintf(shards, sizeof shards, "run %s/%s step %llu shard ",
             source->version.place.name.project, source->version.place.name.run,
             (unsigned long long)source->version.place.step);
    if (err && cairn_text_starts(err->message, shards)) return code;
    return cairn_within(err, code, "%s%s", shards, shard->name);
}

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
    cli_note("note: %s; reading it once more", cause.message);
}

static enum cairn_code read_from_store(struct piece *piece, struct cairn_error *err) {
    const struct cli_source *source = piece->reader->source;
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
    /* Slashes stay unescaped: proxies refuse %2F, decode it, or encode its % again. */
    struct cli_ref ref = {.name = reader->source->version.place.name};
    cairn_text_copy(ref.version, sizeof ref.version, reader->source->version.manifest.id.text);
    CAIRN_TRY(cli_path(&ref, "/shards/", &reader->path, err));
    CAIRN_TRY(cairn_percent_encode(cairn_view_of(piece->shard->name), true, &reader->path, err));
    CAIRN_TRY(cairn_buf_append_text(&reader->path, "/data", err));
    CAIRN_TRY(cairn_rest_range(reader->rest, reader->path.data, piece->offset, piece->into,
                               piece->size, err));
    struct cairn_view bytes = {piece->into, piece->size};
    return cairn_store_blocks_check(checksums_of(piece), piece->offset, bytes, err);
}

/* The server reads damaged blocks twice before it replies with an error. A difference seen only
 * here arose in transit, so the range is read once more over another connection. */
static enum cairn_code request_range_twice(struct piece *piece, struct cairn_error *err) {
    struct cairn_cli_reader *reader = piece->reader;
    enum cairn_code code = request_range(piece, err);
    if (code != CAIRN_CORRUPT || err->http_status >= 400) return code;
    struct cairn_rest *other = NULL;
    const struct cairn_error first = *err;
    CAIRN_TRY(cli_connect(reader->source->cli, &other, err));
    cairn_rest_free(reader->rest);
    reader->rest = other;
    code = request_range(piece, err);
    if (!code) tell_again(piece, &first);
    return code;
}

/* Damage found after the reply began breaks the connection; found earlier, it comes as an error. So
 * a broken range is requested again in ranges that the server verifies first. */
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
    return cairn_pass(err, code, &why);
}

enum cairn_code cli_read(struct cairn_cli_reader *reader, const struct cairn_manifest_shard *shard,
                         uint64_t offset, void *into, size_t size, struct cairn_error *err) {
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

/* Length of the stored object by HEAD. */
static enum cairn_code stat_shard(struct cairn_cli_reader *reader,
                                  const struct cairn_manifest_shard *shard, uint64_t *ret_bytes,
                                  struct cairn_error *err) {
    if (reader->worker)
        return named(reader->source, shard, stat_in_store(reader, shard, ret_bytes, err), err);
    /* Through the server, reading the last block proves presence and length. */
    *ret_bytes = shard->size_bytes;
    if (!shard->size_bytes) return CAIRN_OK;
    uint64_t offset = (shard->size_bytes - 1) / CAIRN_BLOCK_BYTES * CAIRN_BLOCK_BYTES;
    CAIRN_AUTO_HEAP void *block = malloc(CAIRN_BLOCK_BYTES);
    if (!block) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for one block");
    return cli_read(reader, shard, offset, block, (size_t)(shard->size_bytes - offset), err);
}

/* ---- fetch ---- */

/* While some workers write their 8 MiB pieces, others wait for the store. */
#define WORKERS_DEFAULT 8

struct job {
    struct cli_fetch *fetch;
    struct cli_workers workers;
    struct {             /* guarded by the workers' lock */
        size_t shard;    /* index into fetch->shards */
        uint64_t offset; /* next piece */
        bool *bad;       /* per index: reported once */
        bool stop;       /* set by an error that is no shard's */
    } locked;
};
struct task {
    size_t position;
    const struct cairn_manifest_shard *shard;
    uint64_t offset;
    size_t size;
};

static bool next_piece(struct job *job, struct task *ret) {
    const struct cli_fetch *fetch = job->fetch;
    CAIRN_HOLD(&job->workers.lock);
    for (; !job->locked.stop && job->locked.shard < fetch->shard_count;
         job->locked.shard++, job->locked.offset = 0) {
        size_t position = job->locked.shard;
        const struct cairn_manifest_shard *shard =
            &fetch->source->version.manifest.shards[fetch->shards[position]];
        uint64_t offset = job->locked.offset;
        bool first = offset == 0;
        bool over = fetch->stat_only || !shard->size_bytes ? !first : offset >= shard->size_bytes;
        if (over || job->locked.bad[position]) continue;
        uint64_t size = cairn_min_u64(CLI_PIECE_BYTES, shard->size_bytes - offset);
        *ret = (struct task){position, shard, offset, (size_t)size};
        job->locked.offset += size ? size : 1;
        if (fetch->stat_only) job->locked.offset = UINT64_MAX;
        cli_workers_take_locked(&job->workers);
        return true;
    }
    return false;
}

/* The first failure is returned, but damage yields to any other failure. */
static void note_failure(struct job *job, const struct task *piece, enum cairn_code code,
                         const struct cairn_error *why) {
    CAIRN_HOLD(&job->workers.lock);
    enum cairn_code told = job->workers.locked.code;
    if (told == CAIRN_OK || (told == CAIRN_CORRUPT && code != CAIRN_CORRUPT)) {
        job->workers.locked.code = code;
        job->workers.locked.error = *why;
    }
    if (code != CAIRN_CORRUPT || !piece) job->locked.stop = true;
    if (code == CAIRN_CORRUPT && piece && !job->locked.bad[piece->position]) {
        job->locked.bad[piece->position] = true;
        job->fetch->bad_shards++;
        cli_note("bad: %s", why->message);
        if (job->fetch->bad)
            job->fetch->bad(job->fetch->owner, job->fetch->shards[piece->position], why->message);
    }
}

static enum cairn_code fetch_piece(struct job *job, struct cairn_cli_reader *reader,
                                   const struct task *piece, void *memory,
                                   struct cairn_error *err) {
    struct cli_fetch *fetch = job->fetch;
    bool last = piece->offset + piece->size >= piece->shard->size_bytes || fetch->stat_only;
    if (fetch->have && piece->size &&
        fetch->have(fetch->owner, fetch->shards[piece->position], piece->offset, memory,
                    piece->size)) {
        cli_meter_add(&fetch->meter, piece->size, last);
        return CAIRN_OK;
    }
    uint64_t found = 0;
    if (piece->size && !fetch->stat_only)
        CAIRN_TRY(cli_read(reader, piece->shard, piece->offset, memory, piece->size, err));
    else
        CAIRN_TRY(stat_shard(reader, piece->shard, &found, err));
    if (fetch->stat_only && found != piece->shard->size_bytes)
        return cairn_fail(err, CAIRN_CORRUPT,
                          "run %s/%s step %llu shard %s: the object has %llu bytes, expected %llu",
                          fetch->source->version.place.name.project,
                          fetch->source->version.place.name.run,
                          (unsigned long long)fetch->source->version.place.step, piece->shard->name,
                          (unsigned long long)found, (unsigned long long)piece->shard->size_bytes);
    if (fetch->sink)
        CAIRN_TRY(fetch->sink(fetch->owner, fetch->shards[piece->position], piece->offset, memory,
                              piece->size, err));
    cli_meter_add(&fetch->meter, fetch->stat_only ? piece->shard->size_bytes : piece->size, last);
    return CAIRN_OK;
}

static void *work(void *argument) {
    struct job *job = argument;
    struct cairn_error err = {0};
    CAIRN_AUTO_PTR(cli_reader) reader = NULL;
    enum cairn_code code = cli_reader_new(job->fetch->source, &reader, &err);
    void *memory = cairn_pages_map(CLI_PIECE_BYTES);
    if (code == CAIRN_OK && !memory)
        code = cairn_fail(&err, CAIRN_NO_MEMORY, "no memory for one piece");
    if (code != CAIRN_OK) note_failure(job, NULL, code, &err);
    struct task piece;
    while (code == CAIRN_OK && next_piece(job, &piece)) {
        enum cairn_code result = fetch_piece(job, reader, &piece, memory, &err);
        if (result != CAIRN_OK) note_failure(job, &piece, result, &err);
        cli_workers_done(&job->workers);
    }
    cairn_pages_unmap(memory, CLI_PIECE_BYTES);
    return NULL;
}

enum cairn_code cli_fetch_choose(struct cli_fetch *fetch,
                                 bool (*wants)(const void *owner, uint32_t index,
                                               const struct cairn_manifest_shard *shard),
                                 const void *owner, struct cairn_error *err) {
    const struct cairn_manifest *manifest = &fetch->source->version.manifest;
    fetch->shards = calloc(manifest->shard_count + 1, sizeof *fetch->shards);
    if (!fetch->shards) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the list of shards");
    for (uint32_t i = 0; i < manifest->shard_count; i++) {
        if (!wants(owner, i, &manifest->shards[i])) continue;
        fetch->shards[fetch->shard_count++] = i;
        fetch->total_bytes += manifest->shards[i].size_bytes;
    }
    return CAIRN_OK;
}

void cli_fetch_release(struct cli_fetch *fetch) {
    free(fetch->shards);
    fetch->shards = NULL;
}

enum cairn_code cli_fetch_run(struct cli_fetch *fetch, struct cairn_error *err) {
    const struct cairn_version_place *place = &fetch->source->version.place;
    uint64_t workers = fetch->source->cli->workers ? fetch->source->cli->workers : WORKERS_DEFAULT;
    struct job job = {.fetch = fetch};
    char title[320];
    CAIRN_AUTO_HEAP bool *bad = calloc(fetch->shard_count + 1, sizeof *bad);
    if (!bad) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the list of shards");
    job.locked.bad = bad;
    fetch->bad_shards = 0;
    snprintf(title, sizeof title, "%s %s/%s@%llu", fetch->verb, place->name.project,
             place->name.run, (unsigned long long)place->step);
    cli_meter_init(&fetch->meter, fetch->source->cli, title, fetch->total_bytes,
                   fetch->shard_count);
    enum cairn_code code =
        cli_workers_run(&job.workers, fetch->one_worker ? 1 : workers, work, &job, err);
    CAIRN_ASSERT(job.workers.locked.done == job.workers.locked.taken);
    CAIRN_ASSERT(job.locked.stop || job.locked.shard == fetch->shard_count ||
                 code == CAIRN_NO_MEMORY);
    CAIRN_ASSERT(fetch->bad_shards <= fetch->shard_count);
    cli_meter_end(&fetch->meter, code == CAIRN_OK);
    return code;
}
