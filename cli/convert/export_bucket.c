/* SPDX-License-Identifier: Apache-2.0 */
/*
 * export_bucket: an export's files as objects of a bucket.
 *
 * Promise: 1   each file is a multipart upload with one part per window; uploads are completed,
 *              which names the files, when all parts of all files are stored.
 *          2   the object .cairn-export logs the upload ids, so that the same command resumes with
 *              the stored parts. Only readers of the log know the ids, and it names source and
 *              plan, so every part was made of the same bytes.
 *          3   a lost reply is settled by a HEAD: the export's objects carry its token.
 *          4   one export at a time: on one machine a second one is CAIRN_CONFLICT while the first
 *              runs, and not after it ended in any way. Another export's files are never removed.
 *          5   a log of another machine belongs to a running export while it changes: its writer
 *              renews it every CLAIM_BEAT_MS. A newcomer is refused on a change, and takes over
 *              after CLAIM_SILENT_MS without one. The old writer learns this at its next renewal
 *              and removes nothing.
 * Limits:  10,000 windows a file. Where the store ignores If-None-Match, an object created between
 *          the last HEAD and the completion is replaced. A machine is its boot id and one user's
 *          folder for temporary files. Buckets lack locks: a renewal detects a double takeover.
 */

#include <fcntl.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/convert/inside.h"
#include "cli/shell/output.h"
#include "common/clock.h"
#include "common/crc.h"
#include "common/file.h"
#include "common/json.h"
#include "common/text.h"
#include "common/trace.h"
#include "store/s3/config.h"

/* ---- the claim: a local lock file and the machine's name ---- */

#define CLAIM_BEAT_MS 5000
#define CLAIM_SILENT_MS 30000

struct claim {
    int folder_fd, fd; /* fd: the lock file; -1: none */
    char name[80];
    char here[128];                     /* the machine; "": unknown */
    char writer[CAIRN_UUID_TEXT_BYTES]; /* this export */
    atomic_uint_fast64_t next_ms;       /* monotonic clock: next renewal of the log */
};

#define TRIES_MAX 100 /* each lost to an export that began and ended meanwhile */

static void name_machine(int folder_fd, char *ret, size_t capacity) {
    CAIRN_AUTO(buf) boot = {.limit = 4096};
    struct stat status;
    if (fstat(folder_fd, &status) ||
        cairn_file_load("/proc/sys/kernel/random/boot_id", &boot, NULL) != CAIRN_OK)
        return;
    snprintf(ret, capacity, "%.*s/%llx/%llx/%u", (int)strcspn(boot.data, "\n "), boot.data,
             (unsigned long long)status.st_dev, (unsigned long long)status.st_ino,
             (unsigned)geteuid());
}

/* CAIRN_NOT_FOUND: the export that held it ended and removed it. */
static enum cairn_code lock_once(struct claim *claim) {
    CAIRN_AUTO_FD fd =
        openat(claim->folder_fd, claim->name, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    struct stat status;
    if (fd < 0 || fstat(fd, &status) || !S_ISREG(status.st_mode) || status.st_uid != geteuid())
        return CAIRN_UNSUPPORTED;
    enum cairn_code code = cairn_file_lock_entry(claim->folder_fd, claim->name, fd, NULL);
    if (code != CAIRN_OK) return code;
    claim->fd = fd;
    fd = -1;
    return CAIRN_OK;
}

/* token: the log's UUID. False: another export here holds it. True if no lock can be made. */
static bool take_claim(struct claim *claim, const char *token) {
    const char *folder = getenv("TMPDIR");
    enum cairn_code code = CAIRN_NOT_FOUND;
    snprintf(claim->name, sizeof claim->name, "cairn-export-%s.lock", token);
    claim->folder_fd =
        open(folder && *folder ? folder : "/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (int i = 0; i < TRIES_MAX && claim->folder_fd >= 0 && code == CAIRN_NOT_FOUND; i++)
        code = lock_once(claim);
    if (code == CAIRN_OK) name_machine(claim->folder_fd, claim->here, sizeof claim->here);
    return code != CAIRN_CONFLICT;
}

/* True for one caller per renewal interval. */
static bool claim_is_due(struct claim *claim) {
    uint64_t now_ms = cairn_mono_ms(), due_ms = atomic_load(&claim->next_ms);
    return now_ms >= due_ms &&
           atomic_compare_exchange_strong(&claim->next_ms, &due_ms, now_ms + CLAIM_BEAT_MS);
}

#define FORM "cairn-export 1"
#define PARTS_MAX 10000 /* of one object */
#define LOG_BYTES_MAX (256 * CAIRN_MIB)
#define LOOK_MS 1000 /* how often another export's log is read */

struct upload {
    char *id;                       /* owned; NULL: none, the object is in place */
    struct cairn_store_part *parts; /* owned, by window; number 0: missing */
};
struct bucket {
    struct cli_export_sink sink;
    struct cairn_store *store;
    struct cairn_store_worker *worker; /* main thread's */
    char token[CAIRN_UUID_TEXT_BYTES]; /* carried by all its objects */
    struct claim claim;
    struct cli_export_identity identity;
    atomic_uint_fast64_t beats; /* renewals of the log */
    char *place;                /* owned: the URL without options */
    struct upload *uploads;     /* by shard */
    bool logged;                /* the log is this export's */
};

static struct bucket *bucket_of(struct cli_export_sink *sink) {
    return (struct bucket *)(void *)sink;
}

static size_t window_count(const struct cli_export_shard *shard) {
    return (size_t)cairn_div_up(shard->bytes, CLI_EXPORT_WINDOW_BYTES);
}

static enum cairn_code already(const struct bucket *bucket, const char *name,
                               struct cairn_error *err) {
    return cli_export_already(bucket->sink.place, name, err);
}

/* ---- the log ---- */

/* noted: with the upload ids. */
static enum cairn_code save_log(struct bucket *bucket, struct cairn_store_worker *worker,
                                bool create, bool noted, struct cairn_error *err) {
    const struct cli_export_identity *identity = &bucket->identity;
    char source[2 * CAIRN_SHA256_BYTES + 1], plan[2 * CAIRN_SHA256_BYTES + 1];
    CAIRN_AUTO(buf) text = {.limit = LOG_BYTES_MAX};
    CAIRN_AUTO_JSON json_t *uploads = json_array();
    cairn_hex_encode(identity->source, sizeof identity->source, source);
    cairn_hex_encode(identity->plan, sizeof identity->plan, plan);
    for (size_t i = 0; noted && i < bucket->sink.plan->count; i++)
        json_array_append_new(uploads, bucket->uploads[i].id ? json_string(bucket->uploads[i].id)
                                                             : json_null());
    CAIRN_AUTO_JSON json_t *log = json_pack(
        "{s:s, s:s, s:s, s:s, s:s, s:s, s:I, s:O}", "form", FORM, "source", source, "plan", plan,
        "token", bucket->token, "writer", bucket->claim.writer, "where", bucket->claim.here,
        "beats", (json_int_t)atomic_load(&bucket->beats), "uploads", uploads);
    if (!log) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for " CLI_EXPORT_LOG);
    CAIRN_TRY(cairn_json_dump_pretty(log, &text, err));
    return cairn_store_put_small(worker, CLI_EXPORT_LOG, (struct cairn_view){text.data, text.size},
                                 create, err);
}

static enum cairn_code load_log(struct cairn_store_worker *worker, struct cairn_buf *ret,
                                struct cairn_error *err) {
    struct cairn_error why = {0};
    ret->size = 0;
    enum cairn_code code = cairn_store_get_small(worker, CLI_EXPORT_LOG, ret, &why);
    return cairn_pass(err, code, &why);
}

static enum cairn_code conflict(const struct bucket *bucket, const char *where,
                                struct cairn_error *err) {
    return cairn_fail(err, CAIRN_CONFLICT, "another cairn export writes to %s%s",
                      bucket->sink.place, where);
}

/* Whether the log is still this export's; it may have been taken over or removed. */
static enum cairn_code check_own(struct bucket *bucket, struct cairn_store_worker *worker,
                                 struct cairn_error *err) {
    CAIRN_AUTO(buf) text = {.limit = LOG_BYTES_MAX};
    CAIRN_TRY(load_log(worker, &text, err));
    CAIRN_AUTO_JSON json_t *log = json_loadb(text.data, text.size, 0, NULL);
    const char *writer = json_string_value(json_object_get(log, "writer"));
    if (writer && !strcmp(writer, bucket->claim.writer)) return CAIRN_OK;
    return conflict(bucket, ", and has taken over what this one wrote", err);
}

static enum cairn_code renew(struct bucket *bucket, struct cairn_store_worker *worker,
                             struct cairn_error *err) {
    if (!claim_is_due(&bucket->claim)) return CAIRN_OK;
    CAIRN_TRY(check_own(bucket, worker, err));
    atomic_fetch_add(&bucket->beats, 1);
    return save_log(bucket, worker, false, true, err);
}

static enum cairn_code read_digest(const json_t *log, const char *name,
                                   uint8_t ret[CAIRN_SHA256_BYTES], struct cairn_error *err) {
    const char *text = json_string_value(json_object_get(log, name));
    return cairn_hex_decode(cairn_view_of(text ? text : ""), ret, CAIRN_SHA256_BYTES, err);
}

static enum cairn_code read_log(struct bucket *bucket, const struct cairn_buf *text,
                                struct cairn_error *err) {
    struct cli_export_identity found;
    CAIRN_AUTO_JSON json_t *log = json_loadb(text->data, text->size, 0, NULL);
    const char *form = json_string_value(json_object_get(log, "form"));
    const char *token = json_string_value(json_object_get(log, "token"));
    const json_t *uploads = json_object_get(log, "uploads");
    size_t count = bucket->sink.plan->count, noted = json_array_size(uploads);
    bool read = form && !strcmp(form, FORM) && token &&
                cairn_text_copy(bucket->token, sizeof bucket->token, token) &&
                read_digest(log, "source", found.source, NULL) == CAIRN_OK &&
                read_digest(log, "plan", found.plan, NULL) == CAIRN_OK;
    if (!read)
        return cairn_fail(err, CAIRN_CONFLICT,
                          "%s/" CLI_EXPORT_LOG " is not the log of an export: name another "
                          "folder, or remove it",
                          bucket->sink.place);
    CAIRN_TRY(cli_export_identity_check(&found, &bucket->identity, bucket->sink.place,
                                        "abort the uploads that lie there", err));
    for (size_t i = 0; i < count && i < noted; i++) {
        const char *id = json_string_value(json_array_get(uploads, i));
        if (id && !(bucket->uploads[i].id = strdup(id)))
            return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for an upload");
    }
    bucket->sink.resumed = bucket->logged = true;
    return CAIRN_OK;
}

/* Waits CLAIM_SILENT_MS for a change of another machine's log; without one its writer has ended.
 * CAIRN_NOT_FOUND: the export ended. */
static enum cairn_code await_silence(struct bucket *bucket, const struct cairn_buf *before,
                                     struct cairn_error *err) {
    CAIRN_AUTO(buf) now = {.limit = LOG_BYTES_MAX};
    uint64_t until_ms = cairn_mono_ms() + CLAIM_SILENT_MS;
    cli_note("%s: an export of another machine was here; for %d s it is looked at whether it "
             "still runs",
             bucket->sink.place, CLAIM_SILENT_MS / 1000);
    while (cairn_mono_ms() < until_ms) {
        (void)poll(NULL, 0, LOOK_MS);
        CAIRN_TRY(load_log(bucket->worker, &now, err));
        if (now.size != before->size || memcmp(now.data, before->data, now.size) != 0)
            return conflict(bucket, " from another machine", err);
    }
    return CAIRN_OK;
}

/* Reads the log or creates it; a simultaneous creator is refused. */
static enum cairn_code begin_log(struct bucket *bucket, struct cairn_error *err) {
    CAIRN_AUTO(buf) text = {.limit = LOG_BYTES_MAX};
    struct cairn_error why = {0};
    enum cairn_code code = load_log(bucket->worker, &text, &why);
    if (code == CAIRN_OK) {
        CAIRN_AUTO_JSON json_t *log = json_loadb(text.data, text.size, 0, NULL);
        const char *where = json_string_value(json_object_get(log, "where"));
        CAIRN_TRY(read_log(bucket, &text, err));
        bucket->logged = false;
        if (!take_claim(&bucket->claim, bucket->token)) return conflict(bucket, "", err);
        /* A writer of this machine has ended, since this export holds the machine's claim. */
        if (!bucket->claim.here[0] || !where || strcmp(bucket->claim.here, where) != 0)
            CAIRN_TRY(await_silence(bucket, &text, err));
        CAIRN_TRY(save_log(bucket, bucket->worker, false, true, err));
        bucket->logged = true;
        return check_own(bucket, bucket->worker, err);
    }
    if (code != CAIRN_NOT_FOUND) return cairn_pass(err, code, &why);
    cairn_uuid_random(bucket->token);
    (void)take_claim(&bucket->claim, bucket->token); /* a new token: nobody else has it */
    code = save_log(bucket, bucket->worker, true, false, err);
    bucket->logged = code == CAIRN_OK;
    return code != CAIRN_PRECONDITION ? code : conflict(bucket, "", err);
}

/* ---- objects and their parts ---- */

/* *ret_there: the object exists; *ret_ours: with this export's token. */
static enum cairn_code look(struct bucket *bucket, const char *name, uint64_t bytes,
                            bool *ret_there, bool *ret_ours, struct cairn_error *err) {
    struct cairn_store_request head = {.op = CAIRN_STORE_HEAD, .key = name, .token = bucket->token};
    struct cairn_error why = {0};
    enum cairn_code code = cairn_store_perform(bucket->worker, &head, &why);
    *ret_there = code == CAIRN_OK;
    *ret_ours =
        *ret_there && !strcmp(head.object_token, bucket->token) && head.object_bytes == bytes;
    if (code == CAIRN_OK || code == CAIRN_NOT_FOUND) return CAIRN_OK;
    return cairn_pass(err, code, &why);
}

static enum cairn_code begin_upload(struct bucket *bucket, size_t i, struct cairn_error *err) {
    struct cli_export_shard *shard = &bucket->sink.plan->shards[i];
    struct cairn_store_request create = {.op = CAIRN_STORE_UPLOAD_CREATE,
                                         .key = shard->name,
                                         .token = bucket->token,
                                         .length = shard->bytes};
    CAIRN_TRY(cairn_store_perform(bucket->worker, &create, err));
    free(bucket->uploads[i].id);
    bucket->uploads[i].id = strdup(create.upload_id);
    return bucket->uploads[i].id ? CAIRN_OK
                                 : cairn_fail(err, CAIRN_NO_MEMORY, "no memory for an upload");
}

/* Lists parts that an earlier export sent. *ret_gone: the upload no longer exists. */
static enum cairn_code find_parts(struct bucket *bucket, size_t i, bool *ret_gone,
                                  struct cairn_error *err) {
    const struct cli_export_shard *shard = &bucket->sink.plan->shards[i];
    size_t count = window_count(shard);
    CAIRN_AUTO_HEAP struct cairn_store_part *found = calloc(count, sizeof *found);
    if (!found) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for parts");
    struct cairn_store_request parts = {.op = CAIRN_STORE_UPLOAD_PARTS,
                                        .key = shard->name,
                                        .upload_id_in = bucket->uploads[i].id,
                                        .length = CLI_EXPORT_WINDOW_BYTES,
                                        .parts = found,
                                        .part_count = count};
    struct cairn_error why = {0};
    enum cairn_code code = cairn_store_perform(bucket->worker, &parts, &why);
    *ret_gone = code == CAIRN_NOT_FOUND;
    if (code != CAIRN_OK && !*ret_gone) return cairn_pass(err, code, &why);
    for (size_t p = 0; code == CAIRN_OK && p < parts.part_count; p++) {
        uint32_t number = found[p].number;
        if (number < 1 || number > count) continue;
        uint64_t begin = (uint64_t)(number - 1) * CLI_EXPORT_WINDOW_BYTES;
        uint64_t size = cairn_min_u64(CLI_EXPORT_WINDOW_BYTES, shard->bytes - begin);
        if (found[p].size_bytes == size) bucket->uploads[i].parts[number - 1] = found[p];
    }
    return CAIRN_OK;
}

static enum cairn_code open_shard(struct bucket *bucket, size_t i, struct cairn_error *err) {
    struct cli_export_shard *shard = &bucket->sink.plan->shards[i];
    struct upload *upload = &bucket->uploads[i];
    bool there, ours, gone = true;
    if (window_count(shard) > PARTS_MAX)
        return cairn_fail(err, CAIRN_TOO_LARGE,
                          "%s would have more than %d parts of 8 MiB, the most of an object in a "
                          "bucket: give --max-shard-size 78GiB or less",
                          shard->name, PARTS_MAX);
    upload->parts = calloc(window_count(shard), sizeof *upload->parts);
    if (!upload->parts) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for parts");
    CAIRN_TRY(look(bucket, shard->name, shard->bytes, &there, &ours, err));
    if (there && !(bucket->sink.resumed && ours)) return already(bucket, shard->name, err);
    shard->in_place = there;
    if (there) return CAIRN_OK;
    if (upload->id) CAIRN_TRY(find_parts(bucket, i, &gone, err));
    return gone ? begin_upload(bucket, i, err) : CAIRN_OK;
}

/* Aborts uploads of an export that was killed before it logged their ids. */
static enum cairn_code abort_nameless(struct bucket *bucket, const char *name,
                                      struct cairn_error *err) {
    struct cairn_store_listing listing = {0};
    struct cairn_store_request list = {.op = CAIRN_STORE_UPLOADS, .key = name, .listing = &listing};
    enum cairn_code code = cairn_store_perform(bucket->worker, &list, err);
    for (size_t i = 0; code == CAIRN_OK && i < listing.count; i++) {
        if (strcmp(listing.entries[i].key, name) != 0) continue;
        struct cairn_store_request abort = {.op = CAIRN_STORE_UPLOAD_ABORT,
                                            .key = name,
                                            .upload_id_in = listing.entries[i].upload_id};
        code = cairn_store_perform(bucket->worker, &abort, err);
    }
    cairn_store_listing_release(&listing);
    return code;
}

static enum cairn_code open_all(struct bucket *bucket, struct cairn_error *err) {
    struct cli_export_plan *plan = bucket->sink.plan;
    const char *index = cli_export_naming(plan->export)->index;
    bool there, ours, all = true, lists = cairn_store_profile(bucket->store)->lists_uploads;
    CAIRN_TRY(begin_log(bucket, err));
    for (size_t i = 0; i < plan->count; i++) {
        if (bucket->sink.resumed && lists && !bucket->uploads[i].id)
            CAIRN_TRY(abort_nameless(bucket, plan->shards[i].name, err));
        CAIRN_TRY(open_shard(bucket, i, err));
        all &= plan->shards[i].in_place;
    }
    CAIRN_TRY(look(bucket, index, 0, &there, &ours, err));
    if (there && !(all && bucket->sink.resumed)) return already(bucket, index, err);
    bucket->sink.kept = true;
    return save_log(bucket, bucket->worker, false, true, err);
}

static enum cairn_code new_hand(struct cli_export_sink *sink, void **ret, struct cairn_error *err) {
    struct cairn_store_worker *worker = NULL;
    CAIRN_TRY(cairn_store_worker_new(bucket_of(sink)->store, &worker, err));
    *ret = worker;
    return CAIRN_OK;
}

static void free_hand(void *hand) {
    cairn_store_worker_free(hand);
}

static struct cairn_store_part *part_of(struct cli_export_sink *sink,
                                        const struct cli_export_span *span) {
    size_t shard = (size_t)(span->shard - sink->plan->shards);
    return &bucket_of(sink)->uploads[shard].parts[span->begin / CLI_EXPORT_WINDOW_BYTES];
}

static bool there(struct cli_export_sink *sink, void *hand, const struct cli_export_span *span,
                  void *memory) {
    (void)hand;
    (void)memory;
    return span->shard->in_place || part_of(sink, span)->number;
}

static enum cairn_code write_span(struct cli_export_sink *sink, void *hand,
                                  const struct cli_export_span *span, const void *memory,
                                  struct cairn_error *err) {
    struct cairn_store_part *part = part_of(sink, span);
    size_t shard = (size_t)(span->shard - sink->plan->shards);
    struct cairn_store_request send = {.op = CAIRN_STORE_UPLOAD_PART,
                                       .key = span->shard->name,
                                       .upload_id_in = bucket_of(sink)->uploads[shard].id,
                                       .part_number =
                                           (uint32_t)(span->begin / CLI_EXPORT_WINDOW_BYTES) + 1,
                                       .offset = span->begin,
                                       .body = {memory, span->size},
                                       .has_crc32c = true,
                                       .crc32c = cairn_crc32c(0, memory, span->size)};
    CAIRN_TRY(cairn_store_perform(hand, &send, err));
    CAIRN_TRY(renew(bucket_of(sink), hand, err));
    *part = (struct cairn_store_part){.number = send.part_number,
                                      .size_bytes = span->size,
                                      .has_crc32c = true,
                                      .crc32c = send.crc32c};
    memcpy(part->etag, send.etag, sizeof part->etag);
    return CAIRN_OK;
}

/* Combined CRC32C; false: a part's checksum is unknown. */
static bool whole_crc32c(const struct upload *upload, size_t count, uint32_t *ret) {
    *ret = 0;
    for (size_t i = 0; i < count; i++) {
        if (!upload->parts[i].has_crc32c) return false;
        *ret = cairn_crc32c_combine(*ret, upload->parts[i].crc32c, upload->parts[i].size_bytes);
    }
    return true;
}

/* If the reply is lost or ambiguous, a HEAD decides. */
static enum cairn_code complete(struct bucket *bucket, size_t i, struct cairn_error *err) {
    struct cli_export_shard *shard = &bucket->sink.plan->shards[i];
    struct upload *upload = &bucket->uploads[i];
    bool there = false, ours = false;
    if (!cairn_store_profile(bucket->store)->create_only_complete) {
        CAIRN_TRY(look(bucket, shard->name, shard->bytes, &there, &ours, err));
        if (there && !ours) return already(bucket, shard->name, err);
    }
    struct cairn_store_request request = {.op = CAIRN_STORE_UPLOAD_COMPLETE,
                                          .key = shard->name,
                                          .upload_id_in = upload->id,
                                          .token = bucket->token,
                                          .create = true,
                                          .length = shard->bytes,
                                          .parts = upload->parts,
                                          .part_count = window_count(shard)};
    struct cairn_error why = {0};
    request.has_crc32c = whole_crc32c(upload, request.part_count, &request.crc32c);
    enum cairn_code code = cairn_store_perform(bucket->worker, &request, &why);
    if (code != CAIRN_OK) {
        CAIRN_TRY(look(bucket, shard->name, shard->bytes, &there, &ours, err));
        if (there && !ours) return already(bucket, shard->name, err);
        if (!there) return cairn_pass(err, code, &why);
    }
    shard->published = true;
    return CAIRN_OK;
}

static enum cairn_code publish(struct cli_export_sink *sink, struct cairn_error *err) {
    struct bucket *bucket = bucket_of(sink);
    CAIRN_AUTO(buf) text = {.limit = CAIRN_GIB};
    const char *index = cli_export_naming(sink->plan->export)->index;
    CAIRN_TRY(check_own(bucket, bucket->worker, err));
    for (size_t i = 0; i < sink->plan->count; i++) {
        CAIRN_TRY(renew(bucket, bucket->worker, err));
        if (!sink->plan->shards[i].in_place) CAIRN_TRY(complete(bucket, i, err));
    }
    if (cli_export_has_index(sink->plan)) {
        CAIRN_TRY(cli_export_plan_index(sink->plan, &text, err));
        enum cairn_code code = cairn_store_put_same(bucket->worker, index,
                                                    (struct cairn_view){text.data, text.size}, err);
        if (code != CAIRN_OK) return code == CAIRN_CONFLICT ? already(bucket, index, err) : code;
    }
    return cairn_store_delete(bucket->worker, CLI_EXPORT_LOG, err);
}

/* ---- cleanup ---- */

/* Failures here are only noted: the error that led here is returned. */
static void take_back_shard(struct bucket *bucket, size_t i) {
    struct cli_export_shard *shard = &bucket->sink.plan->shards[i];
    struct cairn_store_request abort = {
        .op = CAIRN_STORE_UPLOAD_ABORT, .key = shard->name, .upload_id_in = bucket->uploads[i].id};
    struct cairn_error why = {0};
    enum cairn_code code = CAIRN_OK;
    if (shard->published)
        code = cairn_store_delete(bucket->worker, shard->name, &why);
    else if (bucket->uploads[i].id && !shard->in_place)
        code = cairn_store_perform(bucket->worker, &abort, &why);
    if (code != CAIRN_OK)
        cli_note("%s/%s is left there: %s", bucket->sink.place, shard->name, why.message);
}

/* After a takeover nothing belongs to this export. */
static void take_back(struct bucket *bucket) {
    struct cairn_error why = {0};
    if (check_own(bucket, bucket->worker, &why) == CAIRN_CONFLICT) return;
    for (size_t i = 0; i < bucket->sink.plan->count; i++) take_back_shard(bucket, i);
    if (cairn_store_delete(bucket->worker, CLI_EXPORT_LOG, &why) != CAIRN_OK)
        cli_note("%s/" CLI_EXPORT_LOG " is left there: %s", bucket->sink.place, why.message);
}

static void close_bucket(struct cli_export_sink *sink, bool published, bool keep) {
    struct bucket *bucket = bucket_of(sink);
    if (bucket->logged && !published && !keep) take_back(bucket);
    for (size_t i = 0; bucket->uploads && i < sink->plan->count; i++) {
        free(bucket->uploads[i].id);
        free(bucket->uploads[i].parts);
    }
    free(bucket->uploads);
    free(bucket->place);
    if (bucket->claim.fd >= 0) {
        (void)unlinkat(bucket->claim.folder_fd, bucket->claim.name, 0);
        close(bucket->claim.fd);
    }
    if (bucket->claim.folder_fd >= 0) close(bucket->claim.folder_fd);
    bucket->claim.folder_fd = bucket->claim.fd = -1;
    if (bucket->worker) cairn_store_worker_free(bucket->worker);
    if (bucket->store) cairn_store_free(bucket->store);
    free(bucket);
}

static const struct cli_export_sink_vtable vtable = {.hand = new_hand,
                                                     .hand_free = free_hand,
                                                     .there = there,
                                                     .write = write_span,
                                                     .publish = publish,
                                                     .close = close_bucket};

enum cairn_code cli_export_bucket_open(struct cli_export_plan *plan,
                                       const struct cli_export_identity *identity,
                                       struct cli_export_sink **ret, struct cairn_error *err) {
    const struct cli_export *export = plan->export;
    struct bucket *bucket = calloc(1, sizeof *bucket);
    if (!bucket) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a bucket");
    bucket->claim = (struct claim){.folder_fd = -1, .fd = -1};
    cairn_uuid_random(bucket->claim.writer);
    atomic_store(&bucket->claim.next_ms, cairn_mono_ms() + CLAIM_BEAT_MS);
    bucket->identity = *identity;
    bucket->place = strndup(export->folder, cairn_s3_url_place_size(export->folder));
    bucket->sink =
        (struct cli_export_sink){.vtable = &vtable, .plan = plan, .place = bucket->place};
    *ret = &bucket->sink;
    bucket->uploads = calloc(plan->count, sizeof *bucket->uploads);
    if (!bucket->uploads || !bucket->place)
        return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for uploads");
    enum cairn_code code =
        cli_store_open_url(export->cli, export->folder, true, &bucket->store, err);
    if (code == CAIRN_OK) code = cairn_store_worker_new(bucket->store, &bucket->worker, err);
    if (code == CAIRN_OK) code = open_all(bucket, err);
    bool names_it = !bucket->worker || code == CAIRN_OK || code == CAIRN_CONFLICT;
    return names_it ? code : cairn_within(err, code, "%s", export->folder);
}
