/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Judges one try. Success is read here only; a refusal is final, worth a retry, or due to a mistake
 * of ours that can be corrected (keys, clock, region, a feature).
 */

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>
#include <unistd.h>

#include "common/crc.h"
#include "common/text.h"
#include "store/s3/inside.h"
#include "store/time.h"

#define RENEWALS_MAX 2
#define REDIRECTS_MAX 2
#define PAGES_MAX 64
#define DISPUTES_MAX 3
#define MALFORMED_MAX 3
/* Stores accept 15 minutes of skew; a smaller one does not explain a refusal. */
#define SKEW_MS_MIN (4 * 60 * 1000)
#define CLOCK_FIXES_MAX 3        /* per request: a clock may jump again before the next try */
#define ALTERED_MAX 5            /* tries per request, with pauses of about a second in all */
#define SIGNATURES_REFUSED_MAX 3 /* per request, by a store that accepts other signatures */
#define RETRY_AFTER_S_MAX UINT64_C(3600)
#define WORDS_BYTES 160 /* of an answer without a code, as an error quotes it */

static void keep_header(char *to, size_t capacity, struct cairn_view value) {
    if (value.size >= capacity) return; /* a value too long counts as absent */
    memcpy(to, value.data, value.size);
    to[value.size] = '\0';
}

void cairn_s3_reply_header(struct cairn_http_request *http, struct cairn_view name,
                           struct cairn_view value) {
    struct cairn_s3_seen *seen = &((struct cairn_s3_task *)http->owner)->seen;
    const struct {
        const char *name;
        char *to;
        size_t capacity;
    } wanted[] = {
        {"ETag", seen->etag, sizeof seen->etag},
        {"Content-Range", seen->content_range, sizeof seen->content_range},
        {"Date", seen->date, sizeof seen->date},
        {"Retry-After", seen->retry_after, sizeof seen->retry_after},
        {"x-amz-request-id", seen->request_id, sizeof seen->request_id},
        {"x-amz-bucket-region", seen->bucket_region, sizeof seen->bucket_region},
        {"x-amz-checksum-crc32c", seen->crc32c, sizeof seen->crc32c},
        {"x-amz-checksum-type", seen->checksum_type, sizeof seen->checksum_type},
        {"x-amz-checksum-algorithm", seen->checksum_algorithm, sizeof seen->checksum_algorithm},
        {"x-amz-meta-cairn-upload", seen->token, sizeof seen->token},
        {"x-amz-version-id", seen->version_id, sizeof seen->version_id},
        {"x-amz-delete-marker", seen->delete_marker, sizeof seen->delete_marker},
    };
    if (name.size == 3 && !strncasecmp(name.data, "Age", 3)) seen->has_age = true;
    for (size_t i = 0; i < CAIRN_COUNT(wanted); i++)
        if (name.size == strlen(wanted[i].name) &&
            !strncasecmp(name.data, wanted[i].name, name.size))
            keep_header(wanted[i].to, wanted[i].capacity, value);
    /* A compressing proxy weakens the store's ETag, but If-Match needs a strong one. */
    if (!strncmp(seen->etag, "W/\"", 3)) memmove(seen->etag, seen->etag + 2, sizeof seen->etag - 2);
}

/* Reads the CRC32C of a whole object; "...-3" combines parts' checksums and is useless here. */
static bool read_crc32c(const struct cairn_s3_task *task, const char *text, uint32_t *ret) {
    if (atomic_load(&cairn_s3_store_of(task)->misstates)) return false;
    CAIRN_AUTO(buf) raw = {.limit = 64};
    if (cairn_base64_decode(cairn_view_of(text), &raw, NULL) != CAIRN_OK) return false;
    if (raw.size != 4) return false;
    const uint8_t *b = (const uint8_t *)raw.data;
    *ret = (uint32_t)b[0] << 24 | (uint32_t)b[1] << 16 | (uint32_t)b[2] << 8 | b[3];
    return true;
}

static bool seen_crc32c(const struct cairn_s3_task *task, uint32_t *ret) {
    const struct cairn_s3_seen *seen = &task->seen;
    if (!seen->crc32c[0] || !strcasecmp(seen->checksum_type, "COMPOSITE")) return false;
    return read_crc32c(task, seen->crc32c, ret);
}

/* Retry-After as seconds or a date. A date is compared with the same reply's Date (the store's
 * clock); without one, or from a cache, with our clock, corrected by the known skew. */
uint64_t cairn_s3_reply_retry_after_ms(const struct cairn_s3_task *task) {
    const struct cairn_s3_store *store = cairn_s3_store_of(task);
    const char *text = task->seen.retry_after;
    uint64_t seconds = RETRY_AFTER_S_MAX;
    if (*text && !text[strspn(text, "0123456789")]) {
        (void)!cairn_parse_u64(cairn_view_of(text), &seconds, NULL); /* beyond 2^64: the maximum */
        return cairn_min_u64(seconds, RETRY_AFTER_S_MAX) * 1000;
    }
    int64_t until = 0, now = 0;
    if (cairn_s3_time_http(text, &until, NULL) != CAIRN_OK) return 0;
    if (task->seen.has_age || cairn_s3_time_http(task->seen.date, &now, NULL) != CAIRN_OK)
        now = store->clock->wall_ms(store->clock) + atomic_load(&store->clock_offset_ms);
    if (until <= now) return 0;
    return cairn_min_u64((uint64_t)(until - now), RETRY_AFTER_S_MAX * 1000);
}

/* "bytes 0-99/1234" */
static bool parse_content_range(const char *text, uint64_t *first, uint64_t *last,
                                uint64_t *total) {
    if (strncasecmp(text, "bytes ", 6) != 0) return false;
    const char *dash = strchr(text, '-'), *slash = strchr(text, '/');
    if (!dash || !slash || slash < dash) return false;
    const char *from = text + 6;
    return cairn_parse_u64((struct cairn_view){from, (size_t)(dash - from)}, first, NULL) ==
               CAIRN_OK &&
           cairn_parse_u64((struct cairn_view){dash + 1, (size_t)(slash - dash - 1)}, last, NULL) ==
               CAIRN_OK &&
           cairn_parse_u64(cairn_view_of(slash + 1), total, NULL) == CAIRN_OK;
}

static enum cairn_code same_object(const struct cairn_s3_task *task, struct cairn_error *err) {
    const char *asked = task->request->etag, *came = task->seen.etag;
    if (asked[0] && came[0] && strcmp(asked, came) != 0)
        return cairn_fail(err, CAIRN_PRECONDITION, "the range is of another object");
    return CAIRN_OK;
}

enum cairn_code cairn_s3_reply_check(struct cairn_http_request *http, struct cairn_error *err) {
    struct cairn_s3_task *task = http->owner;
    struct cairn_store_request *request = task->request;
    uint64_t first = 0, last = 0, total = 0, wanted_last = request->offset + request->length - 1;
    if (http->status >= 300) return CAIRN_OK; /* an error body, not written to `into` */
    /* A store without ranges sends the whole object, which satisfies up_to. */
    if (http->status == 200 && request->up_to && !request->offset &&
        http->content_length <= request->length) {
        request->object_bytes = request->length = http->content_length;
        return same_object(task, err);
    }
    if (http->status != 206)
        return cairn_fail(err, CAIRN_PROTOCOL, "asked for a range, the store answered %d",
                          http->status);
    if (!parse_content_range(task->seen.content_range, &first, &last, &total))
        return cairn_fail(err, CAIRN_PROTOCOL, "a range came without a usable Content-Range");
    bool ends_before =
        first == request->offset && last >= first && last < wanted_last && last + 1 == total;
    if (ends_before && !request->up_to)
        return cairn_fail(err, CAIRN_RANGE,
                          "the object has %" PRIu64 " bytes, asked for up to %" PRIu64, total,
                          wanted_last);
    if (ends_before) {
        request->length = total - first;
        wanted_last = last;
    }
    if (first != request->offset || last != wanted_last || total <= last)
        return cairn_fail(err, CAIRN_PROTOCOL, "asked for %s, got %.80s", task->range,
                          task->seen.content_range);
    if (http->content_length != UINT64_MAX && http->content_length != request->length)
        return cairn_fail(err, CAIRN_PROTOCOL, "the range has another Content-Length");
    request->object_bytes = total;
    return same_object(task, err);
}

void cairn_s3_reply_bytes(struct cairn_http_request *http, const void *bytes, size_t size) {
    struct cairn_store_request *request = ((struct cairn_s3_task *)http->owner)->request;
    request->got_crc32c = cairn_crc32c(request->got_crc32c, bytes, size);
}

/* Sets the code for the case that no try is left. */
static enum cairn_s3_judgement fail_with(struct cairn_s3_task *task,
                                         enum cairn_s3_judgement judgement,
                                         const struct cairn_error *error) {
    struct cairn_store_request *request = task->request;
    request->code = error->code;
    request->error = *error;
    request->error.http_status = task->http.status;
    cairn_error_request_id(&request->error, task->seen.request_id);
    request->ambiguous = task->may_be_applied;
    task->last = request->error;
    return judgement;
}

#define FAIL(task, judgement, code, ...)                                                           \
    do {                                                                                           \
        struct cairn_error fail_error = {0};                                                       \
        cairn_fail(&fail_error, (code), __VA_ARGS__);                                              \
        return fail_with((task), (judgement), &fail_error);                                        \
    } while (0)

/* S20: the store's checksum and ours differ: has the source changed? */
static bool source_changed(const struct cairn_store_request *request) {
    return request->has_crc32c && request->body.size &&
           cairn_crc32c(0, request->body.data, request->body.size) != request->crc32c;
}

/* Bytes altered on the way differ each time; equal answers are settled by reading back. */
static bool is_disputed(struct cairn_s3_task *task, uint32_t stated) {
    if (task->disputed_crc32c != stated) task->disputes = 0;
    task->disputed_crc32c = stated;
    return ++task->disputes >= DISPUTES_MAX && (task->request->settles || task->own_crc32c) &&
           !source_changed(task->request);
}

static enum cairn_s3_judgement take_etag(struct cairn_s3_task *task) {
    struct cairn_store_request *request = task->request;
    const struct cairn_store_profile *profile = &cairn_s3_store_of(task)->base.profile;
    uint32_t crc32c;
    bool stated = request->has_crc32c && seen_crc32c(task, &crc32c);
    if (!task->seen.etag[0])
        FAIL(task, CAIRN_S3_FAILURE, CAIRN_PROTOCOL,
             "the store took it and gave no ETag"); /* S19 */
    bool differs = stated && crc32c != request->crc32c;
    if (differs && !is_disputed(task, crc32c))
        FAIL(task, CAIRN_S3_FAILURE, CAIRN_CORRUPT,
             "the store has checksum %08" PRIx32 ", sent was %08" PRIx32
             "; if it is right otherwise, set checksum = md5 or none",
             crc32c, request->crc32c);
    request->disputed = differs;
    /* Some stores echo the header without checking; a test has shown which compare. */
    task->confirmed = stated && !differs && task->used_checksum && profile->part_checksum;
    memcpy(request->etag, task->seen.etag, sizeof request->etag);
    request->code = CAIRN_OK;
    return CAIRN_S3_DONE;
}

/* The caller compares: the store summed bytes that were never seen here. */
static enum cairn_s3_judgement take_copied(struct cairn_s3_task *task) {
    struct cairn_store_request *request = task->request;
    struct cairn_error error = {0};
    char crc32c[24] = "";
    if (cairn_xml_copied(cairn_buf_view(&task->reply), request->etag, crc32c, &error))
        return fail_with(task, CAIRN_S3_FAILURE, &error);
    request->object_has_crc32c = crc32c[0] && read_crc32c(task, crc32c, &request->object_crc32c);
    request->code = CAIRN_OK;
    return CAIRN_S3_DONE;
}

/* Content-Length, or Content-Range where a GET of one byte replaces the HEAD. */
static bool read_length(const struct cairn_s3_task *task, uint64_t *ret) {
    uint64_t first = 0, last = 0;
    *ret = task->http.content_length;
    if (task->http.status != 206) return *ret != UINT64_MAX;
    return parse_content_range(task->seen.content_range, &first, &last, ret);
}

/* The store answered once the checksum was not requested: it does not know that header. 403 proves
 * no such thing: AWS gives it where the credentials may not decrypt. */
static void note_plain_head(struct cairn_s3_task *task) {
    if (task->request->op != CAIRN_STORE_HEAD || task->head == CAIRN_S3_HEAD_FULL) return;
    if (task->head_refused && task->head_refused != 403)
        atomic_store(&cairn_s3_store_of(task)->no_checksum_mode, true);
}

static enum cairn_s3_judgement take_head(struct cairn_s3_task *task) {
    struct cairn_store_request *request = task->request;
    if (!read_length(task, &request->object_bytes)) {
        /* Proxies that compress drop Content-Length; a range's total stays. */
        bool again = task->head != CAIRN_S3_HEAD_BY_GET;
        task->head = CAIRN_S3_HEAD_BY_GET;
        FAIL(task, again ? CAIRN_S3_CORRECTED : CAIRN_S3_FAILURE, CAIRN_PROTOCOL,
             "neither HEAD nor a GET of one byte says how long it is");
    }
    note_plain_head(task);
    memcpy(request->etag, task->seen.etag, sizeof request->etag);
    memcpy(request->object_token, task->seen.token, sizeof request->object_token);
    request->object_has_crc32c = seen_crc32c(task, &request->object_crc32c);
    request->code = CAIRN_OK;
    return CAIRN_S3_DONE;
}

/* An empty object has no byte to range over: stores answer 416. */
static enum cairn_s3_judgement take_empty(struct cairn_s3_task *task) {
    struct cairn_store_request *request = task->request;
    request->object_bytes = 0;
    memcpy(request->etag, task->seen.etag, sizeof request->etag);
    memcpy(request->object_token, task->seen.token, sizeof request->object_token);
    request->object_has_crc32c = false;
    request->code = CAIRN_OK;
    return CAIRN_S3_DONE;
}

/* "null" comes from buckets with versioning suspended, and from some that never had it. */
static void note_versions(struct cairn_s3_task *task) {
    const struct cairn_s3_seen *seen = &task->seen;
    bool named = seen->version_id[0] && strcmp(seen->version_id, "null") != 0;
    if (named || !strcasecmp(seen->delete_marker, "true"))
        atomic_store(&cairn_s3_store_of(task)->keeps_versions, true);
}

/* The next page must differ, and pages must end (S24). */
static enum cairn_code check_progress(struct cairn_s3_task *task, uint32_t marker_before,
                                      struct cairn_error *err) {
    uint32_t marker = task->parts.next_marker;
    if (marker && (marker <= marker_before || ++task->pages > PAGES_MAX))
        return cairn_fail(err, CAIRN_STORE, "the list of parts does not end");
    return CAIRN_OK;
}

static enum cairn_code read_listing(struct cairn_s3_task *task, struct cairn_error *err) {
    struct cairn_store_request *request = task->request;
    struct cairn_view text = cairn_buf_view(&task->reply);
    struct cairn_xml_listed listed = {
        .prefix = task->prefix.data,
        .cut_bytes = strlen(cairn_s3_store_of(task)->config.prefix),
    };
    size_t first = request->listing->count;
    switch (request->op) {
    case CAIRN_STORE_LIST:
        CAIRN_TRY(cairn_xml_objects(text, &listed, request->listing, err));
        break;
    case CAIRN_STORE_VERSIONS:
        CAIRN_TRY(cairn_xml_versions(text, &listed, request->listing, err));
        break;
    default:
        CAIRN_TRY(cairn_xml_uploads(text, &listed, request->listing, err));
    }
    return cairn_s3_page_take(request, first, err);
}

static enum cairn_code read_document(struct cairn_s3_task *task, struct cairn_error *err) {
    struct cairn_store_request *request = task->request;
    struct cairn_view text = cairn_buf_view(&task->reply);
    uint32_t marker = task->parts.next_marker;
    switch (request->op) {
    case CAIRN_STORE_UPLOAD_CREATE:
        CAIRN_TRY(cairn_xml_upload_id(text, request->upload_id, err));
        int kind = CAIRN_S3_UPLOAD_IGNORED;
        if (task->used_checksum) {
            if (!strcasecmp(task->seen.checksum_type, "FULL_OBJECT"))
                kind = CAIRN_S3_UPLOAD_FULL;
            else if (!strcasecmp(task->seen.checksum_algorithm, "CRC32C"))
                kind = CAIRN_S3_UPLOAD_COMPOSITE;
            atomic_store(&cairn_s3_store_of(task)->upload_checksum, kind);
        }
        return CAIRN_OK;
    case CAIRN_STORE_UPLOAD_COMPLETE:
        return cairn_xml_completed(text, request->etag, err);
    case CAIRN_STORE_UPLOAD_PARTS:
        CAIRN_TRY(cairn_xml_parts_read(text, &task->parts, err));
        return check_progress(task, marker, err);
    default:
        return read_listing(task, err);
    }
}

static enum cairn_s3_judgement take_document(struct cairn_s3_task *task) {
    struct cairn_error error = {0};
    struct cairn_store_request *request = task->request;
    if (read_document(task, &error) != CAIRN_OK) {
        /* S04: unknown whether it was applied; HEAD settles it. */
        bool complete = request->op == CAIRN_STORE_UPLOAD_COMPLETE;
        task->may_be_applied |= complete;
        bool is_final = complete || error.code == CAIRN_STORE; /* the answer would not change */
        if (request->op == CAIRN_STORE_UPLOAD_PARTS && ++task->malformed == MALFORMED_MAX) {
            error.code = CAIRN_UNSUPPORTED; /* not a portal's transient page */
            is_final = true;
        }
        return fail_with(task, is_final ? CAIRN_S3_DONE : CAIRN_S3_FAILURE, &error);
    }
    if (request->op == CAIRN_STORE_UPLOAD_PARTS) {
        if (task->parts.next_marker) return CAIRN_S3_MORE;
        request->part_count = task->parts.count;
        bool wrong = atomic_load(&cairn_s3_store_of(task)->misstates);
        for (size_t i = 0; i < request->part_count && wrong; i++)
            request->parts[i].has_crc32c = false;
    }
    request->code = CAIRN_OK;
    return CAIRN_S3_DONE;
}

/* A portal's or firewall's HTML page is no answer (S04). */
static bool is_page(const struct cairn_buf *reply) {
    return reply->size && strcasestr(reply->data, "<html");
}

/* A delete's reply has no body; some stores send a document or a word. */
static enum cairn_s3_judgement take_removal(struct cairn_s3_task *task) {
    if (is_page(&task->reply))
        FAIL(task, CAIRN_S3_FAILURE, CAIRN_PROTOCOL, "a removal was answered with a document");
    task->request->code = CAIRN_OK;
    return CAIRN_S3_DONE;
}

static enum cairn_s3_judgement take_range(struct cairn_s3_task *task) {
    struct cairn_store_request *request = task->request;
    if (task->http.reply_bytes != request->length) /* S15 */
        FAIL(task, CAIRN_S3_FAILURE, CAIRN_UNAVAILABLE,
             "the reply ended after %" PRIu64 " of %" PRIu64 " bytes", task->http.reply_bytes,
             request->length);
    memcpy(request->etag, task->seen.etag, sizeof request->etag);
    request->code = CAIRN_OK;
    return CAIRN_S3_DONE;
}

/* Each key has its own outcome (S27); undecided ones are sent again. */
static enum cairn_s3_judgement take_removals(struct cairn_s3_task *task) {
    struct cairn_error error = {0};
    enum cairn_s3_judgement judgement = cairn_s3_delete_take(task, &error);
    task->request->code = CAIRN_OK;
    return error.code ? fail_with(task, judgement, &error) : judgement;
}

static enum cairn_s3_judgement take_success(struct cairn_s3_task *task) {
    atomic_store(&cairn_s3_store_of(task)->keys_work, true);
    switch (task->request->op) {
    case CAIRN_STORE_PUT:
    case CAIRN_STORE_UPLOAD_PART:
        return task->request->copy_store ? take_copied(task) : take_etag(task);
    case CAIRN_STORE_GET:
        return take_range(task);
    case CAIRN_STORE_HEAD:
        return take_head(task);
    case CAIRN_STORE_DELETE:
    case CAIRN_STORE_UPLOAD_ABORT:
        return take_removal(task);
    case CAIRN_STORE_DELETE_MANY:
        return take_removals(task);
    default:
        return take_document(task);
    }
}

/* ---- corrections ---- */

static bool correct_keys(struct cairn_s3_task *task) {
    if (task->renewals++ >= RENEWALS_MAX) return false;
    task->worker->refused_generation = task->keys_generation;
    return true;
}

/* Compares the store's Date with our clock at the middle between sending and receiving, by the
 * steady clock, since the wall clock may have jumped. Whether this try was signed wrongly depends
 * on its signing time: another task may have corrected the clock since, or the clock itself may be
 * back. A cached reply's Date is old and says nothing. */
static bool correct_clock(struct cairn_s3_task *task) {
    struct cairn_s3_store *store = cairn_s3_store_of(task);
    int64_t theirs = 0;
    if (task->clock_fixes >= CLOCK_FIXES_MAX || task->seen.has_age) return false;
    if (cairn_s3_time_http(task->seen.date, &theirs, NULL) != CAIRN_OK) return false;
    int64_t half_ms = (int64_t)((cairn_s3_mono_ms(store) - task->sent_mono_ms) / 2);
    int64_t off = theirs - half_ms - (task->sent_wall_ms + task->signed_offset_ms);
    if (off < SKEW_MS_MIN && off > -SKEW_MS_MIN) return false;
    atomic_store(&store->clock_offset_ms, theirs + half_ms - store->clock->wall_ms(store->clock));
    task->clock_fixes++;
    return true;
}

static bool is_region(const char *text) {
    size_t size = strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789-");
    return size && !text[size] && size < 64;
}

static bool correct_region(struct cairn_s3_task *task, const struct cairn_xml_problem *problem) {
    struct cairn_s3_store *store = cairn_s3_store_of(task);
    const char *named = task->seen.bucket_region[0] ? task->seen.bucket_region : problem->region;
    if (!is_region(named) || !strcmp(named, task->region)) return false;
    if (task->redirects++ >= REDIRECTS_MAX) return false;
    CAIRN_HOLD(&store->lock);
    snprintf(store->locked.region, sizeof store->locked.region, "%s", named);
    return true;
}

/* With AWS's switch "when_required" no checksum is sent until S3 demands one, as a bucket with
 * Object Lock does. An upload begun without CRC32C accepts parts with MD5 only. */
static bool add_required_checksum(struct cairn_s3_task *task,
                                  const struct cairn_xml_problem *problem) {
    struct cairn_s3_store *store = cairn_s3_store_of(task);
    bool knows_crc32c = strcasestr(problem->message, "x-amz-checksum") != NULL;
    bool asks = knows_crc32c || strcasestr(problem->message, "Content-MD5") != NULL;
    bool sends =
        task->request->op == CAIRN_STORE_PUT || task->request->op == CAIRN_STORE_UPLOAD_PART;
    int none = CAIRN_S3_CHECKSUM_NONE;
    if (!asks || !sends || !store->config.checksum_if_required) return false;
    int method = knows_crc32c && task->request->op == CAIRN_STORE_PUT ? CAIRN_S3_CHECKSUM_CRC32C
                                                                      : CAIRN_S3_CHECKSUM_MD5;
    return atomic_compare_exchange_strong(&store->checksum, &none, method) ||
           none != CAIRN_S3_CHECKSUM_NONE; /* another request has found out already */
}

/* Once per store; cairn_store_s3_degraded reports it. */
static bool correct_feature(struct cairn_s3_task *task, const struct cairn_xml_problem *problem) {
    struct cairn_s3_store *store = cairn_s3_store_of(task);
    if (task->request->op == CAIRN_STORE_HEAD) return false; /* look_closer handles it */
    bool bare = !task->used_checksum && !task->used_md5;
    if (bare && add_required_checksum(task, problem)) return true;
    if (task->used_create_only && task->http.status == 501) {
        atomic_store(&store->no_create_only, true);
        return true;
    }
    /* AWS, and a store that took the upload's checksum, knows the header: bytes were refused. */
    if (store->config.is_aws || task->request->op == CAIRN_STORE_UPLOAD_COMPLETE) return false;
    int automatic = CAIRN_S3_CHECKSUM_AUTO;
    return task->used_checksum &&
           (atomic_compare_exchange_strong(&store->checksum, &automatic, CAIRN_S3_CHECKSUM_MD5) ||
            automatic == CAIRN_S3_CHECKSUM_MD5);
}

/* A refused HEAD has no body. It is retried without the header that some stores refuse (Backblaze
 * B2), then as a GET of one byte, whose answer names the cause or replaces the HEAD. */
static bool look_closer(struct cairn_s3_task *task) {
    if (task->request->op != CAIRN_STORE_HEAD || task->head == CAIRN_S3_HEAD_BY_GET) return false;
    if (task->head == CAIRN_S3_HEAD_FULL && task->used_checksum) {
        task->head_refused = task->http.status;
        task->head = CAIRN_S3_HEAD_PLAIN;
    } else {
        task->head = CAIRN_S3_HEAD_BY_GET;
    }
    return true;
}

/* After a correction learnt from the GET, HEAD is tried again. */
static void head_again(struct cairn_s3_task *task) {
    task->head = task->head_refused ? CAIRN_S3_HEAD_PLAIN : CAIRN_S3_HEAD_FULL;
}

/* Some stores give no code; expired keys and a wrong clock look alike. */
static bool correct_unnamed(struct cairn_s3_task *task, const struct cairn_xml_problem *problem) {
    int status = task->http.status;
    if (problem->code[0] || (status != 400 && status != 403)) return false;
    if (correct_region(task, problem) || correct_clock(task)) return true;
    if (task->request->op == CAIRN_STORE_HEAD && task->head != CAIRN_S3_HEAD_BY_GET) return false;
    return task->worker->keys_expire && !task->renewals && correct_keys(task);
}

/* Some stores demand a signed body hash, by this code. */
static bool correct_unsigned(struct cairn_s3_task *task, const struct cairn_xml_problem *problem) {
    bool unsigned_body = task->payload && !strcmp(task->payload, CAIRN_SIGV4_UNSIGNED);
    if (!unsigned_body || !strcasestr(problem->message, "UNSIGNED-PAYLOAD")) return false;
    atomic_store(&cairn_s3_store_of(task)->signs_payload, true);
    return true;
}

static bool correct_request(struct cairn_s3_task *task, const struct cairn_s3_meaning *meaning,
                            const struct cairn_xml_problem *problem) {
    if (correct_unsigned(task, problem)) return true;
    switch (meaning->policy) {
    case CAIRN_S3_KEYS:
        return correct_keys(task);
    case CAIRN_S3_CLOCK:
        return correct_clock(task);
    case CAIRN_S3_REGION:
        return correct_region(task, problem);
    case CAIRN_S3_FEATURE:
        return correct_feature(task, problem) || correct_unnamed(task, problem);
    case CAIRN_S3_FINAL:
        return correct_unnamed(task, problem);
    default:
        return false;
    }
}

static bool is_removal(const struct cairn_s3_task *task) {
    enum cairn_store_op op = task->request->op;
    return op == CAIRN_STORE_DELETE || op == CAIRN_STORE_UPLOAD_ABORT;
}

/* Content-MD5 and the signed hash cover the memory as sent, not as staged. The sum is made after
 * sending, since memory changed meanwhile stays changed. Refused or unsent bodies need none. */
void cairn_s3_reply_compare_sent(struct cairn_s3_task *task) {
    struct cairn_store_request *request = task->request;
    bool body = request->op == CAIRN_STORE_PUT || request->op == CAIRN_STORE_UPLOAD_PART;
    bool applied = request->code == CAIRN_OK || request->code == CAIRN_PRECONDITION ||
                   request->code == CAIRN_CONFLICT || request->ambiguous;
    if (!body || !applied || task->confirmed || !source_changed(request)) return;
    struct cairn_error error = {0};
    cairn_fail(&error, CAIRN_SOURCE_CHANGED,
               "the bytes that were sent no longer have the checksum %08" PRIx32
               " that they were staged with",
               request->crc32c);
    task->may_be_applied = false;
    (void)fail_with(task, CAIRN_S3_DONE, &error);
}

/* A body that arrives altered is repeated until the deadline, as a failure of the endpoint: a save
 * waits for its way to recover. A request with a deadline of its own (doctor, a test) ends within
 * seconds, and what it finds does not pause the endpoint for others. */
static enum cairn_s3_judgement judgement_of(struct cairn_s3_task *task,
                                            const struct cairn_s3_meaning *meaning) {
    if (meaning->policy == CAIRN_S3_REPEAT) return CAIRN_S3_FAILURE;
    if (meaning->policy == CAIRN_S3_ALTERED && !task->request->deadline_ms) return CAIRN_S3_FAILURE;
    if (meaning->policy == CAIRN_S3_ALTERED && ++task->altered < ALTERED_MAX)
        return CAIRN_S3_RESEND;
    return meaning->policy == CAIRN_S3_SLOW_DOWN ? CAIRN_S3_SLOW : CAIRN_S3_DONE;
}

/* Records a refusal of this try's key in a DELETE_MANY. False: the refusal is not the key's own. */
static bool take_refused_key(struct cairn_s3_task *task, const struct cairn_s3_meaning *meaning,
                             const struct cairn_xml_problem *problem,
                             enum cairn_s3_judgement *ret_judgement) {
    struct cairn_error why = {0}, error = {0};
    if (task->request->op != CAIRN_STORE_DELETE_MANY) return false;
    if (meaning->code != CAIRN_NOT_FOUND)
        cairn_fail(&why, meaning->code, "%d %s", task->http.status, problem->code);
    bool is_final = meaning->policy != CAIRN_S3_REPEAT && meaning->policy != CAIRN_S3_ALTERED &&
                    meaning->policy != CAIRN_S3_SLOW_DOWN;
    if (!cairn_s3_delete_refused(task, &why, is_final, ret_judgement, &error)) return false;
    task->request->code = CAIRN_OK;
    if (error.code) *ret_judgement = fail_with(task, *ret_judgement, &error);
    return true;
}

/* Advice that the store's own words do not give; mostly "". */
static const char *advice_of(const struct cairn_s3_task *task,
                             const struct cairn_xml_problem *problem) {
    const char *code = problem->code;
    if (task->http.status == 413 && !*code)
        return ": something before the store takes no body of this size (nginx: "
               "client_max_body_size)";
    if (!*code && is_page(&task->reply))
        return " with a page for people: something before the store, such as a firewall or a "
               "proxy, answered in its place";
    if (!strcmp(code, "InvalidObjectState") || !strcmp(code, "RestoreAlreadyInProgress"))
        return "; the object is archived: restore it first (RestoreObject)";
    if (!strcmp(code, "BadDigest") || !strncmp(code, "XAmzContent", 11))
        return "; the body, or its checksum, is changed on the way: `cairn doctor` finds out which";
    bool unsigned_body = task->payload && !strcmp(task->payload, CAIRN_SIGV4_UNSIGNED);
    if (!strcmp(code, "AccessDenied") && unsigned_body)
        return "; this body is not signed as small ones are: if a policy denies that, set "
               "sign_payload = true";
    if (!strcmp(code, "AccessDenied") &&
        (task->request->op == CAIRN_STORE_PUT || task->request->op == CAIRN_STORE_UPLOAD_CREATE))
        return "; a policy may ask for sse, acl, object_tags or more: `cairn doctor` tries";
    if (!strcmp(code, "SignatureDoesNotMatch") && atomic_load(&cairn_s3_store_of(task)->keys_work))
        return "; other requests with these keys are taken, so something on the way changes this "
               "one: `cairn doctor` finds out what";
    return "";
}

/* A redirect names the bucket's place: a region is followed, another host never. */
static bool tell_place(const struct cairn_s3_task *task, const struct cairn_xml_problem *problem,
                       char ret_text[320]) {
    const char *region = task->seen.bucket_region[0] ? task->seen.bucket_region : problem->region;
    if (!*region && !problem->endpoint[0]) return false;
    snprintf(ret_text, 320, "; the bucket is%s%s%s%s: name that one", *region ? " in region " : "",
             region, problem->endpoint[0] ? " at endpoint " : "", problem->endpoint);
    return true;
}

/* A refused signature with valid keys was altered on the way, as some proxies do: a few retries. */
static bool may_be_of_the_way(struct cairn_s3_task *task, const char *code) {
    return !strcmp(code, "SignatureDoesNotMatch") &&
           atomic_load(&cairn_s3_store_of(task)->keys_work) &&
           ++task->signatures_refused < SIGNATURES_REFUSED_MAX;
}

/* Backblaze B2 calls an account beyond its cap AccessDenied, as a policy's refusal. */
static struct cairn_s3_meaning refusal_meaning(const struct cairn_xml_problem *problem,
                                               int status) {
    static const struct cairn_s3_meaning full = {NULL, CAIRN_NO_SPACE, CAIRN_S3_FINAL};
    if (!strcmp(problem->code, "AccessDenied") && strcasestr(problem->message, "cap exceeded"))
        return full;
    return cairn_s3_meaning_of(problem->code, status);
}

/* What an answer without a code says, in one line: a gateway's JSON or a firewall's words. */
static void tell_words(const struct cairn_s3_task *task, char ret_text[WORDS_BYTES]) {
    char words[WORDS_BYTES - 16] = "";
    size_t size = 0, i = 0;
    *ret_text = '\0';
    if (!task->reply.size || is_page(&task->reply)) return;
    for (; i < task->reply.size && size < sizeof words - 1; i++) {
        char byte = task->reply.data[i];
        bool blank = (unsigned char)byte <= ' ' || byte == 0x7f;
        if (!blank || (size && words[size - 1] != ' ')) words[size++] = blank ? ' ' : byte;
    }
    if (i < task->reply.size) size = cairn_utf8_border(words, size);
    while (size && words[size - 1] == ' ') size--;
    words[size] = '\0';
    if (size && cairn_utf8_valid((struct cairn_view){words, size}))
        snprintf(ret_text, WORDS_BYTES, " and says: %s", words);
}

static enum cairn_s3_judgement take_refusal(struct cairn_s3_task *task,
                                            const struct cairn_xml_problem *problem) {
    struct cairn_store_request *request = task->request;
    int status = task->http.status;
    struct cairn_s3_meaning meaning = refusal_meaning(problem, status);
    if (meaning.code == CAIRN_NOT_FOUND && is_removal(task)) {
        request->code = CAIRN_OK;
        return CAIRN_S3_DONE;
    }
    bool is_final = meaning.policy == CAIRN_S3_FINAL || meaning.policy == CAIRN_S3_FEATURE;
    if (request->op == CAIRN_STORE_DELETE_MANY &&
        cairn_s3_delete_split(task, problem->code, is_final))
        return CAIRN_S3_CORRECTED;
    if (meaning.code == CAIRN_NOT_FOUND) note_plain_head(task);
    if (correct_request(task, &meaning, problem)) {
        head_again(task);
        return CAIRN_S3_CORRECTED;
    }
    bool unnamed = meaning.code != CAIRN_NOT_FOUND && meaning.code != CAIRN_PRECONDITION &&
                   (is_final || meaning.policy == CAIRN_S3_REGION) && !problem->code[0];
    if (unnamed && look_closer(task)) return CAIRN_S3_CORRECTED;
    enum cairn_s3_judgement of_key;
    if (take_refused_key(task, &meaning, problem, &of_key)) return of_key;
    if (!task->seen.request_id[0])
        (void)cairn_text_copy(task->seen.request_id, sizeof task->seen.request_id,
                              problem->request_id);
    if (meaning.code == CAIRN_CORRUPT && source_changed(request))
        FAIL(task, CAIRN_S3_DONE, CAIRN_SOURCE_CHANGED,
             "the bytes to be sent no longer have their checksum %08" PRIx32, request->crc32c);
    /* A gateway's 5xx may hide a success (S05), as may an unknown error in a 200, and the operation
     * that a 409 is in conflict with may be an earlier Complete of ours; a slow-down was never
     * begun, and a final refusal is final under any status (S02). */
    bool repeats = meaning.policy == CAIRN_S3_REPEAT || meaning.policy == CAIRN_S3_ALTERED;
    bool perhaps = status < 300 || status >= 500 ||
                   (status == 409 && request->op == CAIRN_STORE_UPLOAD_COMPLETE);
    if (repeats && perhaps) task->may_be_applied = true;
    enum cairn_s3_judgement judgement = judgement_of(task, &meaning);
    if (may_be_of_the_way(task, problem->code)) judgement = CAIRN_S3_FAILURE;
    char elsewhere[320];
    bool led = meaning.policy == CAIRN_S3_REGION && tell_place(task, problem, elsewhere);
    const char *advice = led                              ? elsewhere
                         : meaning.code == CAIRN_NO_SPACE ? ""
                                                          : advice_of(task, problem);
    if (!problem->code[0]) {
        char words[WORDS_BYTES];
        tell_words(task, words);
        FAIL(task, judgement, meaning.code, "the store answered %d%s%s", status, words, advice);
    }
    FAIL(task, judgement, meaning.code, "%d %s%s%s%s", status, problem->code,
         problem->message[0] ? ": " : "", problem->message, advice);
}

static enum cairn_s3_judgement take_loss(struct cairn_s3_task *task) {
    struct cairn_http_request *http = &task->http;
    struct cairn_store_request *request = task->request;
    bool is_final = http->code == CAIRN_FORBIDDEN || http->code == CAIRN_INVALID ||
                    http->code == CAIRN_NO_MEMORY || http->code == CAIRN_RANGE ||
                    http->code == CAIRN_PRECONDITION || http->code == CAIRN_CANCELLED;
    bool sent_whole = http->reached && http->sent_bytes >= http->body.size;
    if (cairn_store_op_writes(request->op) && sent_whole) task->may_be_applied = true;
    /* HEAD, not another Complete, follows a lost reply (R3). */
    if (request->op == CAIRN_STORE_UPLOAD_COMPLETE && sent_whole) is_final = true;
    atomic_store(&cairn_s3_store_of(task)->tls_fault, (int)http->tls_fault);
    /* The TLS library names neither the setting nor the fault in its file. */
    const char *bundle = (cairn_s3_store_of(task))->config.options.ca_bundle;
    const char *named = bundle ? bundle : "not set, so the system's file counts";
    struct cairn_error told = {0};
    if (http->tls_fault == CAIRN_HTTP_TLS_AUTHORITY)
        cairn_fail(&told, http->error.code,
                   "%s; ca_bundle (AWS_CA_BUNDLE) is %s, which does not hold the certificate of "
                   "its authority",
                   http->error.message, named);
    else if (http->tls_fault == CAIRN_HTTP_TLS_FILE && bundle)
        cairn_fail(&told, http->error.code, "%s; ca_bundle (AWS_CA_BUNDLE) is %s, which %s%s",
                   http->error.message, bundle,
                   access(bundle, R_OK) ? "cannot be read: " : "holds no certificate in PEM form",
                   access(bundle, R_OK) ? strerror(errno) : "");
    if (told.code) http->error = told;
    return fail_with(task, is_final ? CAIRN_S3_DONE : CAIRN_S3_FAILURE, &http->error);
}

enum cairn_s3_judgement cairn_s3_reply_judge(struct cairn_s3_task *task) {
    const struct cairn_http_request *http = &task->http;
    struct cairn_xml_problem problem = {0};
    bool cut_error = http->code == CAIRN_PROTOCOL && http->status >= 300;
    /* A kept connection may have died before or after the store took the request. */
    if (http->starts > 1 && cairn_store_op_writes(task->request->op)) task->may_be_applied = true;
    if (http->code != CAIRN_OK && !cut_error) return take_loss(task);
    enum cairn_store_op op = task->request->op;
    bool may_hold_error = op == CAIRN_STORE_UPLOAD_COMPLETE || op == CAIRN_STORE_DELETE_MANY ||
                          task->request->copy_store || is_removal(task); /* within a 200 */
    bool has_body = op != CAIRN_STORE_HEAD || task->head == CAIRN_S3_HEAD_BY_GET;
    bool documented = http->code == CAIRN_OK && has_body &&
                      (http->status >= 300 || may_hold_error) &&
                      cairn_xml_problem_read(cairn_buf_view(&task->reply), &problem);
    bool stores = op == CAIRN_STORE_PUT || op == CAIRN_STORE_UPLOAD_PART;
    bool accepted = (http->status == 202 && is_removal(task)) || (http->status == 201 && stores);
    bool success = http->status == 200 || http->status == 204 || http->status == 206 || accepted;
    note_versions(task);
    if (success && !documented) return take_success(task);
    if (http->status == 416 && task->head == CAIRN_S3_HEAD_BY_GET) return take_empty(task);
    return take_refusal(task, &problem);
}

/*
 * ---- pages of a listing, and their end ----
 *
 * A store that repeats its pages would keep a caller deleting for ever. Each request stands alone,
 * so the memory travels in the page's name, before the store's token: the fingerprint of one
 * earlier page, which a loop meets again (Brent: replaced by the newest after 1, 2, 4, 8 pages).
 * Order proves nothing, because not all stores sort by bytes.
 */
#define EMPTY_PAGES_MAX 1000 /* in a row, which S3 allows */
#define NAME "%" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIx64 " %s"

struct page {
    uint64_t pages, until; /* since one was remembered; when it is replaced */
    uint64_t empty;        /* in a row */
    uint64_t remembered;   /* fingerprint; 0: none */
    const char *token;     /* the store's own */
};

static bool take_number(const char **at, int base, uint64_t *ret) {
    char *end = NULL;
    *ret = strtoull(*at, &end, base);
    if (end == *at || *end != ' ') return false;
    *at = end + 1;
    return true;
}

/* A name without our prefix is a plain token. */
static struct page page_of(const char *name) {
    struct page page = {.until = 1, .token = name};
    if (!name) return page;
    const char *at = name;
    struct page read = {0};
    if (!take_number(&at, 10, &read.pages) || !take_number(&at, 10, &read.until) ||
        !take_number(&at, 10, &read.empty) || !take_number(&at, 16, &read.remembered))
        return page;
    read.token = at;
    return read;
}

const char *cairn_s3_page_token(const char *name) {
    return page_of(name).token;
}

/* FNV-1a over keys and ids with their ends. */
static uint64_t page_fingerprint(const struct cairn_store_listing *listing, size_t first) {
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (size_t i = first; i < listing->count; i++) {
        const char *texts[] = {listing->entries[i].key, listing->entries[i].upload_id,
                               listing->entries[i].version_id};
        for (size_t t = 0; t < CAIRN_COUNT(texts); t++)
            for (const char *at = texts[t] ? texts[t] : "";; at++) {
                hash = (hash ^ (uint8_t)*at) * UINT64_C(0x100000001b3);
                if (!*at) break;
            }
    }
    return hash ? hash : 1;
}

static enum cairn_code fail_endless(const struct cairn_store_request *request,
                                    struct cairn_error *err) {
    return cairn_fail(err, CAIRN_STORE,
                      "the store is broken: the listing of %s below \"%.200s\" does not go on, "
                      "its pages come again",
                      request->op == CAIRN_STORE_UPLOADS ? "uploads" : "objects", request->key);
}

enum cairn_code cairn_s3_page_take(struct cairn_store_request *request, size_t first,
                                   struct cairn_error *err) {
    struct cairn_store_listing *listing = request->listing;
    struct page page = page_of(request->page);
    char *next = listing->next_page;
    if (!next) return CAIRN_OK;
    bool empty = listing->count == first;
    uint64_t print = empty ? 0 : page_fingerprint(listing, first);
    page.empty = empty ? page.empty + 1 : 0;
    if (page.token && !strcmp(next, page.token)) return fail_endless(request, err);
    if ((print && print == page.remembered) || page.empty > EMPTY_PAGES_MAX)
        return fail_endless(request, err);
    page.pages++;
    if (!page.remembered || page.pages >= page.until) {
        page.remembered = print ? print : page.remembered;
        page.until = page.until * 2;
        page.pages = 0;
    }
    CAIRN_AUTO(buf) name = {0};
    CAIRN_TRY(cairn_buf_printf(&name, err, NAME, page.pages, page.until, page.empty,
                               page.remembered, next));
    char *copy = strdup(name.data);
    if (!copy) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a listing");
    free(next);
    listing->next_page = copy;
    return CAIRN_OK;
}

/* ---- error codes, and the fallback by status ---- */

/* clang-format off */
static const struct cairn_s3_meaning meanings[] = {
    {"AccessDenied",                   CAIRN_FORBIDDEN,    CAIRN_S3_FINAL},
    {"AllAccessDisabled",              CAIRN_FORBIDDEN,    CAIRN_S3_FINAL},
    {"AuthorizationHeaderMalformed",   CAIRN_STORE,        CAIRN_S3_REGION},
    {"BadDigest",                      CAIRN_CORRUPT,      CAIRN_S3_ALTERED},
    {"ConditionalRequestConflict",     CAIRN_CONFLICT,     CAIRN_S3_REPEAT},
    {"EntityTooLarge",                 CAIRN_TOO_LARGE,    CAIRN_S3_FINAL},
    {"EntityTooSmall",                 CAIRN_INVALID,      CAIRN_S3_FINAL},
    {"ExpiredToken",                   CAIRN_UNAUTHORIZED, CAIRN_S3_KEYS},
    {"IllegalLocationConstraintException", CAIRN_STORE,    CAIRN_S3_REGION},
    {"IncompleteBody",                 CAIRN_UNAVAILABLE,  CAIRN_S3_REPEAT},
    {"InternalError",                  CAIRN_UNAVAILABLE,  CAIRN_S3_REPEAT},
    {"InvalidAccessKeyId",             CAIRN_UNAUTHORIZED, CAIRN_S3_FINAL},
    {"InvalidArgument",                CAIRN_STORE,        CAIRN_S3_FEATURE},
    {"InvalidObjectState",             CAIRN_FORBIDDEN,    CAIRN_S3_FINAL},
    {"InvalidPart",                    CAIRN_INCOMPLETE,   CAIRN_S3_FINAL},
    {"InvalidPartOrder",               CAIRN_INVALID,      CAIRN_S3_FINAL},
    {"InvalidRange",                   CAIRN_RANGE,        CAIRN_S3_FINAL},
    {"InvalidRequest",                 CAIRN_STORE,        CAIRN_S3_FEATURE},
    {"InvalidToken",                   CAIRN_UNAUTHORIZED, CAIRN_S3_KEYS},
    {"MethodNotAllowed",               CAIRN_UNSUPPORTED,  CAIRN_S3_FINAL},
    {"MissingContentLength",           CAIRN_UNSUPPORTED,  CAIRN_S3_FEATURE},
    {"MissingContentMD5",              CAIRN_STORE,        CAIRN_S3_FEATURE},
    {"NoSuchBucket",                   CAIRN_STORE,        CAIRN_S3_FINAL},
    {"NoSuchKey",                      CAIRN_NOT_FOUND,    CAIRN_S3_FINAL},
    {"NoSuchUpload",                   CAIRN_NOT_FOUND,    CAIRN_S3_FINAL},
    {"NotImplemented",                 CAIRN_UNSUPPORTED,  CAIRN_S3_FEATURE},
    {"OperationAborted",               CAIRN_CONFLICT,     CAIRN_S3_REPEAT},
    {"PermanentRedirect",              CAIRN_STORE,        CAIRN_S3_REGION},
    {"PreconditionFailed",             CAIRN_PRECONDITION, CAIRN_S3_FINAL},
    {"QuotaExceeded",                  CAIRN_NO_SPACE,     CAIRN_S3_FINAL},
    {"RequestExpired",                 CAIRN_UNAUTHORIZED, CAIRN_S3_CLOCK},
    {"RequestLimitExceeded",           CAIRN_BUSY,         CAIRN_S3_SLOW_DOWN},
    {"RequestTimeTooSkewed",           CAIRN_UNAUTHORIZED, CAIRN_S3_CLOCK},
    {"RequestTimeout",                 CAIRN_TIMEOUT,      CAIRN_S3_REPEAT},
    {"ServiceUnavailable",             CAIRN_BUSY,         CAIRN_S3_SLOW_DOWN},
    {"RestoreAlreadyInProgress",       CAIRN_FORBIDDEN,    CAIRN_S3_FINAL},
    {"SignatureDoesNotMatch",          CAIRN_UNAUTHORIZED, CAIRN_S3_FINAL},
    {"SlowDown",                       CAIRN_BUSY,         CAIRN_S3_SLOW_DOWN},
    {"SlowDownRead",                   CAIRN_BUSY,         CAIRN_S3_SLOW_DOWN},
    {"SlowDownWrite",                  CAIRN_BUSY,         CAIRN_S3_SLOW_DOWN},
    {"TemporaryRedirect",              CAIRN_STORE,        CAIRN_S3_REGION},
    {"Throttling",                     CAIRN_BUSY,         CAIRN_S3_SLOW_DOWN},
    {"ThrottlingException",            CAIRN_BUSY,         CAIRN_S3_SLOW_DOWN},
    {"TokenRefreshRequired",           CAIRN_UNAUTHORIZED, CAIRN_S3_KEYS},
    {"TooManyRequests",                CAIRN_BUSY,         CAIRN_S3_SLOW_DOWN},
    {"XAmzContentChecksumMismatch",    CAIRN_CORRUPT,      CAIRN_S3_ALTERED},
    {"XAmzContentSHA256Mismatch",      CAIRN_CORRUPT,      CAIRN_S3_ALTERED},
    {"XMinioAdminBucketQuotaExceeded", CAIRN_NO_SPACE,     CAIRN_S3_FINAL},
    {"XMinioStorageFull",              CAIRN_NO_SPACE,     CAIRN_S3_FINAL},
};
static const struct {
    int status;
    enum cairn_code code;
    enum cairn_s3_policy policy;
} statuses[] = {
    {301, CAIRN_STORE,        CAIRN_S3_REGION},
    {302, CAIRN_STORE,        CAIRN_S3_REGION},
    {307, CAIRN_STORE,        CAIRN_S3_REGION},
    {308, CAIRN_STORE,        CAIRN_S3_REGION},
    {400, CAIRN_STORE,        CAIRN_S3_FINAL},
    {401, CAIRN_UNAUTHORIZED, CAIRN_S3_FINAL},
    {403, CAIRN_FORBIDDEN,    CAIRN_S3_FINAL},
    {404, CAIRN_NOT_FOUND,    CAIRN_S3_FINAL},
    {405, CAIRN_UNSUPPORTED,  CAIRN_S3_FINAL},
    {408, CAIRN_TIMEOUT,      CAIRN_S3_REPEAT},
    {409, CAIRN_CONFLICT,     CAIRN_S3_REPEAT},
    {411, CAIRN_UNSUPPORTED,  CAIRN_S3_FEATURE},
    {412, CAIRN_PRECONDITION, CAIRN_S3_FINAL},
    {413, CAIRN_TOO_LARGE,    CAIRN_S3_FINAL},
    {416, CAIRN_RANGE,        CAIRN_S3_FINAL},
    {429, CAIRN_BUSY,         CAIRN_S3_SLOW_DOWN},
    {501, CAIRN_UNSUPPORTED,  CAIRN_S3_FEATURE},
    {503, CAIRN_BUSY,         CAIRN_S3_SLOW_DOWN},
    {507, CAIRN_NO_SPACE,     CAIRN_S3_FINAL},
};
/* clang-format on */

struct cairn_s3_meaning cairn_s3_meaning_of(const char *name, int status) {
    for (size_t i = 0; i < CAIRN_COUNT(meanings); i++)
        if (!strcmp(meanings[i].name, name)) return meanings[i];
    for (size_t i = 0; i < CAIRN_COUNT(statuses); i++)
        if (statuses[i].status == status)
            return (struct cairn_s3_meaning){NULL, statuses[i].code, statuses[i].policy};
    if (status >= 500) return (struct cairn_s3_meaning){NULL, CAIRN_UNAVAILABLE, CAIRN_S3_REPEAT};
    if (status >= 400) return (struct cairn_s3_meaning){NULL, CAIRN_STORE, CAIRN_S3_FINAL};
    /* A false success: S04. */
    return (struct cairn_s3_meaning){NULL, CAIRN_PROTOCOL, CAIRN_S3_REPEAT};
}
