/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Builds one try: query and headers of the operation, common headers, then the signature over them.
 * Each try is built anew, since time, keys and region may have changed.
 */

#include <inttypes.h>
#include <stdio.h>

#include "common/clock.h"
#include "common/text.h"
#include "store/s3/inside.h"

/* Small bodies are always hashed with SHA-256: it costs 40 us and the store checks it. */
#define HASHED_BYTES_MAX (64 * CAIRN_KIB)
/* From here on a single put is handled like a part. */
#define DIRECT_PUT_BYTES_MIN (64 * CAIRN_KIB)
#define EMPTY_HASH "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

static void add_query(struct cairn_s3_task *task, const char *name, const char *value) {
    CAIRN_ASSERT(task->query_count < CAIRN_S3_PAIRS_MAX);
    task->query[task->query_count++] = (struct cairn_sigv4_pair){name, value};
}

static void add_header(struct cairn_s3_task *task, const char *name, const char *value) {
    if (!value || !*value) return;
    CAIRN_ASSERT(task->header_count < CAIRN_S3_PAIRS_MAX);
    task->headers[task->header_count++] = (struct cairn_sigv4_pair){name, value};
}

/* DeleteObjects, not in quiet mode: a key counts as deleted only when the store says so. Without
 * that operation, or for keys missing from the answer, one DELETE per key in the same task. *. */

/* Retries of keys that failed temporarily. The store answered, so one key must not pause it. */
#define ROUNDS_MAX 4

static bool is_decided(const struct cairn_store_deletion *deletion) {
    return deletion->deleted || deletion->refused;
}

/* The first undecided deletion from `from` on, wrapping around; deletion_count: none. */
static size_t next_of(const struct cairn_store_request *request, size_t from) {
    for (size_t i = 0; i < request->deletion_count; i++) {
        size_t at = (from + i) % request->deletion_count;
        if (!is_decided(&request->deletions[at])) return at;
    }
    return request->deletion_count;
}

/* Chooses the method, and the key of this try. */
static void choose_deletion(struct cairn_s3_task *task) {
    const struct cairn_store_request *request = task->request;
    if (atomic_load(&cairn_s3_store_of(task)->no_delete_many)) task->one_by_one = true;
    /* Skips the last one: a key that always fails must not hold up the others. */
    task->deletion = next_of(request, task->tries + task->ticket.tries_sent > 1 ? task->deletion + 1
                                                                                : task->deletion);
    CAIRN_ASSERT(task->deletion < request->deletion_count);
}

static void refuse_deletion(struct cairn_store_deletion *deletion, enum cairn_code code,
                            const char *reason) {
    deletion->refused = true;
    deletion->code = code;
    (void)cairn_text_copy(deletion->reason, sizeof deletion->reason, reason);
}

/* When all is decided: the request's error is the first refusal, or none. */
static void conclude_deletions(const struct cairn_store_request *request,
                               struct cairn_error *ret_error) {
    for (size_t i = 0; i < request->deletion_count; i++) {
        const struct cairn_store_deletion *deletion = &request->deletions[i];
        if (!deletion->refused) continue;
        cairn_fail(ret_error, deletion->code, "%s: %s", cairn_short(deletion->key).text,
                   deletion->reason);
        return;
    }
}

bool cairn_s3_delete_decided(const struct cairn_store_request *request,
                             struct cairn_error *ret_error) {
    if (next_of(request, 0) < request->deletion_count) return false;
    conclude_deletions(request, ret_error);
    return true;
}

struct outcome {
    struct cairn_s3_task *task;
    size_t at; /* answers mostly come in key order */
    bool slow;
    struct cairn_error again; /* of a key worth another try */
};

/* An answer without a version applies to the key's first unanswered deletion. */
static bool is_told_of(const struct cairn_store_deletion *deletion, const char *key,
                       const char *version) {
    if (strcmp(deletion->key, key) != 0) return false;
    if (!*version) return !is_decided(deletion);
    return !deletion->version_id || !strcmp(deletion->version_id, version);
}

static void note_key(void *owner, const char *key, const char *version, const char *code,
                     const char *message) {
    struct outcome *outcome = owner;
    const struct cairn_store_request *request = outcome->task->request;
    struct cairn_store_deletion *deletion = NULL;
    for (size_t i = 0; i < request->deletion_count && !deletion; i++) {
        size_t at = (outcome->at + i) % request->deletion_count;
        if (is_told_of(&request->deletions[at], key, version)) deletion = &request->deletions[at];
    }
    if (!deletion || is_decided(deletion)) return;
    outcome->at = (size_t)(deletion - request->deletions) + 1;
    struct cairn_s3_meaning meaning = cairn_s3_meaning_of(code ? code : "", 500);
    char reason[120];
    snprintf(reason, sizeof reason, "%.40s%s%.70s", code ? code : "", *message ? ": " : "",
             message);
    if (!code || meaning.code == CAIRN_NOT_FOUND) {
        deletion->deleted = true;
    } else if (meaning.policy == CAIRN_S3_FINAL || meaning.policy == CAIRN_S3_FEATURE) {
        refuse_deletion(deletion, meaning.code, reason);
    } else {
        outcome->slow |= meaning.policy == CAIRN_S3_SLOW_DOWN;
        deletion->code = meaning.code;
        (void)cairn_text_copy(deletion->reason, sizeof deletion->reason, reason);
        cairn_fail(&outcome->again, meaning.code, "%s: %s", cairn_short(key).text, reason);
    }
}

static enum cairn_s3_judgement take_document(struct cairn_s3_task *task,
                                             struct cairn_error *ret_error) {
    struct outcome outcome = {.task = task};
    struct cairn_xml_deletions reader = {cairn_s3_store_of(task)->config.prefix, note_key,
                                         &outcome};
    if (cairn_xml_deletions_read(cairn_buf_view(&task->reply), &reader, ret_error) != CAIRN_OK)
        return CAIRN_S3_FAILURE;
    if (cairn_s3_delete_decided(task->request, ret_error)) return CAIRN_S3_DONE;
    if (outcome.again.code) {
        *ret_error = outcome.again;
        if (++task->deletion_rounds > ROUNDS_MAX) return CAIRN_S3_DONE;
        return outcome.slow ? CAIRN_S3_SLOW : CAIRN_S3_FAILURE;
    }
    task->one_by_one = true; /* the answer omitted keys */
    return CAIRN_S3_MORE;
}

static enum cairn_s3_judgement next_key(struct cairn_s3_task *task, struct cairn_error *ret_error) {
    return cairn_s3_delete_decided(task->request, ret_error) ? CAIRN_S3_DONE : CAIRN_S3_MORE;
}

enum cairn_s3_judgement cairn_s3_delete_take(struct cairn_s3_task *task,
                                             struct cairn_error *ret_error) {
    if (!task->one_by_one) return take_document(task, ret_error);
    if (task->reply.size && strcasestr(task->reply.data, "<html")) {
        cairn_fail(ret_error, CAIRN_PROTOCOL, "a removal was answered with a document");
        return CAIRN_S3_FAILURE;
    }
    task->request->deletions[task->deletion].deleted = true;
    return next_key(task, ret_error);
}

/* Refusals that another key may not meet. */
static bool is_of_key(enum cairn_code code) {
    return !code || code == CAIRN_FORBIDDEN || code == CAIRN_PRECONDITION ||
           code == CAIRN_INVALID || code == CAIRN_UNSUPPORTED;
}

bool cairn_s3_delete_refused(struct cairn_s3_task *task, const struct cairn_error *why,
                             bool is_final, enum cairn_s3_judgement *ret_judgement,
                             struct cairn_error *ret_error) {
    struct cairn_store_deletion *deletion = &task->request->deletions[task->deletion];
    if (!task->one_by_one || !is_final || !is_of_key(why->code)) return false;
    if (why->code)
        refuse_deletion(deletion, why->code, why->message);
    else
        deletion->deleted = true;
    *ret_judgement = next_key(task, ret_error);
    return true;
}

bool cairn_s3_delete_split(struct cairn_s3_task *task, const char *code, bool is_final) {
    int status = task->http.status;
    bool absent =
        status == 405 || status == 501 || (status == 404 && strcmp(code, "NoSuchBucket") != 0);
    /* 411, 412: from proxies and stores that refuse the POST or its Content-MD5. */
    bool final = is_final && (status == 400 || status == 411 || status == 412);
    if (task->one_by_one || (!absent && !final)) return false;
    if (absent) atomic_store(&cairn_s3_store_of(task)->no_delete_many, true);
    task->one_by_one = true;
    return true;
}

static enum cairn_code encode_crc32c(uint32_t crc, char ret_text[16], struct cairn_error *err) {
    const uint8_t bytes[4] = {(uint8_t)(crc >> 24), (uint8_t)(crc >> 16), (uint8_t)(crc >> 8),
                              (uint8_t)crc};
    CAIRN_AUTO(buf) text = {.limit = 64};
    CAIRN_TRY(cairn_base64_encode((struct cairn_view){bytes, sizeof bytes}, &text, err));
    snprintf(ret_text, 16, "%s", text.data);
    return CAIRN_OK;
}

static bool wants_crc32c(const struct cairn_s3_task *task) {
    int mode = atomic_load(&cairn_s3_store_of(task)->checksum);
    return mode == CAIRN_S3_CHECKSUM_AUTO || mode == CAIRN_S3_CHECKSUM_CRC32C;
}

static enum cairn_code add_md5(struct cairn_s3_task *task, struct cairn_error *err) {
    uint8_t digest[CAIRN_MD5_BYTES];
    const struct cairn_store_request *request = task->request;
    if (request->md5)
        memcpy(digest, request->md5, sizeof digest);
    else
        cairn_md5_of(task->http.body, digest);
    CAIRN_AUTO(buf) text = {.limit = 64};
    CAIRN_TRY(cairn_base64_encode((struct cairn_view){digest, sizeof digest}, &text, err));
    snprintf(task->md5, sizeof task->md5, "%s", text.data);
    add_header(task, "Content-MD5", task->md5);
    task->used_md5 = true;
    return CAIRN_OK;
}

static enum cairn_code add_body_checksum(struct cairn_s3_task *task, struct cairn_error *err) {
    const struct cairn_store_request *request = task->request;
    if (atomic_load(&cairn_s3_store_of(task)->checksum) == CAIRN_S3_CHECKSUM_MD5)
        return add_md5(task, err);
    if (!wants_crc32c(task) || !request->has_crc32c) return CAIRN_OK;
    task->used_checksum = true;
    CAIRN_TRY(encode_crc32c(request->crc32c, task->crc32c, err));
    add_header(task, "x-amz-checksum-crc32c", task->crc32c);
    return CAIRN_OK;
}

static void add_object_headers(struct cairn_s3_task *task) {
    const struct cairn_store_s3_options *options = &cairn_s3_store_of(task)->config.options;
    add_header(task, "x-amz-meta-cairn-upload", task->request->token);
    add_header(task, "x-amz-server-side-encryption", options->sse);
    add_header(task, "x-amz-server-side-encryption-aws-kms-key-id", options->sse_kms_key_id);
    add_header(task, "x-amz-storage-class", options->storage_class);
    add_header(task, "x-amz-tagging", options->object_tags);
    add_header(task, "x-amz-acl", options->acl);
}

static void add_create_only(struct cairn_s3_task *task) {
    if (!task->request->create || atomic_load(&cairn_s3_store_of(task)->no_create_only)) return;
    task->used_create_only = true;
    add_header(task, "If-None-Match", "*");
}

static enum cairn_code build_get(struct cairn_s3_task *task, struct cairn_error *err) {
    struct cairn_store_request *request = task->request;
    uint64_t last;
    if (cairn_add_overflows(request->offset, request->length - 1, &last))
        return cairn_fail(err, CAIRN_RANGE, "a range beyond 2^64");
    task->http.method = "GET";
    snprintf(task->range, sizeof task->range, "bytes=%" PRIu64 "-%" PRIu64, request->offset, last);
    add_header(task, "Range", task->range);
    add_header(task, "If-Match", request->etag);
    task->http.reply_data = request->into;
    task->http.reply_capacity = request->length;
    task->http.on_reply = cairn_s3_reply_check;
    request->got_crc32c = 0;
    if (request->wants_crc32c) task->http.on_bytes = cairn_s3_reply_bytes;
    return CAIRN_OK;
}

static void build_head(struct cairn_s3_task *task) {
    bool by_get = task->head == CAIRN_S3_HEAD_BY_GET;
    task->http.method = by_get ? "GET" : "HEAD";
    if (by_get) add_header(task, "Range", "bytes=0-0");
    if (task->head != CAIRN_S3_HEAD_FULL || !wants_crc32c(task) ||
        atomic_load(&cairn_s3_store_of(task)->no_checksum_mode))
        return;
    task->used_checksum = true;
    add_header(task, "x-amz-checksum-mode", "ENABLED");
}

/* Parameter names of the three listings; below: NULL where one token marks a page. */
struct listing_words {
    const char *what, *most, *below;
};
static struct listing_words words_of(enum cairn_store_op op) {
    if (op == CAIRN_STORE_UPLOADS)
        return (struct listing_words){"uploads", "max-uploads", "upload-id-marker"};
    if (op == CAIRN_STORE_VERSIONS)
        return (struct listing_words){"versions", "max-keys", "version-id-marker"};
    return (struct listing_words){"list-type", "max-keys", NULL};
}

static enum cairn_code build_list(struct cairn_s3_task *task, struct cairn_error *err) {
    const struct cairn_store_request *request = task->request;
    const char *page = cairn_s3_page_token(request->page);
    CAIRN_TRY(cairn_buf_printf(&task->prefix, err, "%s%s", cairn_s3_store_of(task)->config.prefix,
                               request->key));
    task->http.method = "GET";
    add_query(task, "encoding-type", "url");
    const struct listing_words words = words_of(request->op);
    snprintf(task->number, sizeof task->number, "%" PRIu32,
             request->page_entries ? request->page_entries : 1000);
    add_query(task, words.most, task->number);
    add_query(task, words.what, words.below ? "" : "2");
    if (page && !words.below) add_query(task, "continuation-token", page);
    if (page && words.below) {
        /* "key-marker\nid-marker", behind the prefix in the same buffer. */
        size_t prefix_size = task->prefix.size, key_size = strcspn(page, "\n");
        const char *id = page + key_size + (page[key_size] == '\n');
        CAIRN_TRY(cairn_buf_append(&task->prefix, "", 1, err));
        CAIRN_TRY(cairn_buf_append(&task->prefix, page, key_size, err));
        CAIRN_TRY(cairn_buf_append(&task->prefix, "", 1, err));
        add_query(task, "key-marker", task->prefix.data + prefix_size + 1);
        if (*id) add_query(task, words.below, id);
    }
    add_query(task, "prefix", task->prefix.data);
    return CAIRN_OK;
}

static void build_create(struct cairn_s3_task *task) {
    task->http.method = "POST";
    task->http.has_body = true;
    add_query(task, "uploads", "");
    add_object_headers(task);
    if (!wants_crc32c(task)) return;
    task->used_checksum = true;
    add_header(task, "x-amz-checksum-algorithm", "CRC32C");
    add_header(task, "x-amz-checksum-type", "FULL_OBJECT");
}

/* The source's name is a header value, encoded as a path with the bucket. */
static enum cairn_code add_copy_source(struct cairn_s3_task *task, struct cairn_error *err) {
    const struct cairn_store_request *request = task->request;
    struct cairn_s3_store *from = NULL;
    CAIRN_AUTO(buf) path = {0};
    uint64_t last;
    CAIRN_TRY(cairn_s3_of(request->copy_store, &from, err));
    if (cairn_add_overflows(request->offset, request->length - 1, &last))
        return cairn_fail(err, CAIRN_RANGE, "a range beyond 2^64");
    CAIRN_TRY(cairn_buf_printf(&path, err, "/%s/%s%s", from->config.bucket, from->config.prefix,
                               request->copy_key));
    CAIRN_TRY(cairn_sigv4_path(path.data, &task->prefix, err));
    snprintf(task->range, sizeof task->range, "bytes=%" PRIu64 "-%" PRIu64, request->offset, last);
    add_header(task, "x-amz-copy-source", task->prefix.data);
    add_header(task, "x-amz-copy-source-range", task->range);
    add_header(task, "x-amz-copy-source-if-match", request->copy_etag);
    add_header(task, "x-amz-source-expected-bucket-owner", from->config.options.bucket_owner);
    return CAIRN_OK;
}

static enum cairn_code build_complete(struct cairn_s3_task *task, struct cairn_error *err) {
    const struct cairn_store_request *request = task->request;
    int kind = wants_crc32c(task) ? atomic_load(&cairn_s3_store_of(task)->upload_checksum)
                                  : CAIRN_S3_UPLOAD_IGNORED;
    task->http.method = "POST";
    task->http.has_body = true;
    add_query(task, "uploadId", request->upload_id_in);
    add_create_only(task);
    CAIRN_TRY(cairn_buf_append_text(&task->document,
                                    "<CompleteMultipartUpload xmlns=\"http://s3.amazonaws.com/"
                                    "doc/2006-03-01/\">",
                                    err));
    for (size_t i = 0; i < request->part_count; i++) {
        CAIRN_ASSERT(!i || request->parts[i - 1].number < request->parts[i].number); /* S23 */
        const struct cairn_store_part *part = &request->parts[i];
        struct cairn_buf *text = &task->document;
        char crc32c[16];
        CAIRN_TRY(cairn_buf_printf(text, err, "<Part><PartNumber>%" PRIu32 "</PartNumber><ETag>",
                                   part->number));
        CAIRN_TRY(cairn_xml_escape(part->etag, text, err));
        CAIRN_TRY(cairn_buf_append_text(text, "</ETag>", err));
        if ((kind == CAIRN_S3_UPLOAD_COMPOSITE) && part->has_crc32c) {
            CAIRN_TRY(encode_crc32c(part->crc32c, crc32c, err));
            CAIRN_TRY(cairn_buf_printf(text, err, "<ChecksumCRC32C>%s</ChecksumCRC32C>", crc32c));
        }
        CAIRN_TRY(cairn_buf_append_text(text, "</Part>", err));
    }
    CAIRN_TRY(cairn_buf_append_text(&task->document, "</CompleteMultipartUpload>", err));
    task->http.body = cairn_buf_view(&task->document);
    if (kind != CAIRN_S3_UPLOAD_FULL || !request->has_crc32c) return CAIRN_OK;
    task->used_checksum = true;
    CAIRN_TRY(encode_crc32c(request->crc32c, task->crc32c, err));
    snprintf(task->size_text, sizeof task->size_text, "%" PRIu64, request->length);
    add_header(task, "x-amz-checksum-crc32c", task->crc32c);
    add_header(task, "x-amz-checksum-type", "FULL_OBJECT");
    if (request->length) add_header(task, "x-amz-mp-object-size", task->size_text);
    return CAIRN_OK;
}

static void build_parts(struct cairn_s3_task *task) {
    task->http.method = "GET";
    add_query(task, "uploadId", task->request->upload_id_in);
    add_query(task, "max-parts", "1000");
    if (!task->parts.next_marker) return;
    snprintf(task->marker, sizeof task->marker, "%" PRIu32, task->parts.next_marker);
    add_query(task, "part-number-marker", task->marker);
}

/* S3 always demands a checksum of this document; all stores know this one. */
static enum cairn_code build_delete_many(struct cairn_s3_task *task, struct cairn_error *err) {
    choose_deletion(task);
    task->http.method = task->one_by_one ? "DELETE" : "POST";
    const char *version = task->request->deletions[task->deletion].version_id;
    if (task->one_by_one && version) add_query(task, "versionId", version);
    if (task->one_by_one) return CAIRN_OK;
    /* Writes the undecided keys as a Delete document into task->document. */
    const struct cairn_store_request *request = task->request;
    struct cairn_buf *text = &task->document;
    const char *prefix = cairn_s3_store_of(task)->config.prefix;
    CAIRN_TRY(cairn_buf_append_text(
        text, "<Delete xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">", err));
    for (size_t i = 0; i < request->deletion_count; i++) {
        if (is_decided(&request->deletions[i])) continue;
        CAIRN_TRY(cairn_buf_append_text(text, "<Object><Key>", err));
        CAIRN_TRY(cairn_xml_escape(prefix, text, err));
        CAIRN_TRY(cairn_xml_escape(request->deletions[i].key, text, err));
        CAIRN_TRY(cairn_buf_append_text(text, "</Key>", err));
        const char *id = request->deletions[i].version_id;
        if (id) {
            CAIRN_TRY(cairn_buf_append_text(text, "<VersionId>", err));
            CAIRN_TRY(cairn_xml_escape(id, text, err));
            CAIRN_TRY(cairn_buf_append_text(text, "</VersionId>", err));
        }
        CAIRN_TRY(cairn_buf_append_text(text, "</Object>", err));
    }
    CAIRN_TRY(cairn_buf_append_text(text, "</Delete>", err));
    task->http.body = cairn_buf_view(&task->document);
    task->http.has_body = true;
    add_query(task, "delete", "");
    return add_md5(task, err);
}

static enum cairn_code build_op(struct cairn_s3_task *task, struct cairn_error *err) {
    switch (task->request->op) {
    case CAIRN_STORE_PUT:
        task->http.method = "PUT";
        task->http.body = task->request->body;
        task->http.has_body = true;
        add_create_only(task);
        add_object_headers(task);
        return add_body_checksum(task, err);
    case CAIRN_STORE_GET:
        return build_get(task, err);
    case CAIRN_STORE_HEAD:
        build_head(task);
        return CAIRN_OK;
    case CAIRN_STORE_LIST:
    case CAIRN_STORE_UPLOADS:
    case CAIRN_STORE_VERSIONS:
        return build_list(task, err);
    case CAIRN_STORE_UPLOAD_CREATE:
        build_create(task);
        return CAIRN_OK;
    case CAIRN_STORE_UPLOAD_PART:
        CAIRN_ASSERT(task->request->part_number >= 1);
        CAIRN_ASSERT(task->request->part_number <= 10000);
        task->http.method = "PUT";
        task->http.body = task->request->body;
        task->http.has_body = true;
        snprintf(task->number, sizeof task->number, "%" PRIu32, task->request->part_number);
        add_query(task, "partNumber", task->number);
        add_query(task, "uploadId", task->request->upload_id_in);
        return task->request->copy_store ? add_copy_source(task, err)
                                         : add_body_checksum(task, err);
    case CAIRN_STORE_UPLOAD_COMPLETE:
        return build_complete(task, err);
    case CAIRN_STORE_UPLOAD_PARTS:
        build_parts(task);
        return CAIRN_OK;
    case CAIRN_STORE_UPLOAD_ABORT:
        add_query(task, "uploadId", task->request->upload_id_in);
        task->http.method = "DELETE";
        return CAIRN_OK;
    case CAIRN_STORE_DELETE:
        task->http.method = "DELETE";
        return CAIRN_OK;
    case CAIRN_STORE_DELETE_MANY:
        return build_delete_many(task, err);
    }
    CAIRN_ASSERT(false);
    return CAIRN_BROKEN;
}

enum cairn_code cairn_s3_signer_update(struct cairn_s3_store *store,
                                       struct cairn_sigv4_signer *signer, uint64_t *generation,
                                       uint64_t refused_generation, bool *ret_expires,
                                       struct cairn_error *err) {
    {
        CAIRN_HOLD(&store->lock);
        if (strcmp(signer->region, store->locked.region) != 0) signer->day[0] = '\0';
        memcpy(signer->region, store->locked.region, sizeof signer->region);
    }
    snprintf(signer->service, sizeof signer->service, "s3");
    bool refused = refused_generation && refused_generation == *generation;
    if (!refused && cairn_credentials_current(store->credentials, *generation)) return CAIRN_OK;
    struct cairn_credentials keys = {0};
    CAIRN_TRY(
        cairn_credentials_get(store->credentials, refused ? refused_generation : 0, &keys, err));
    memcpy(signer->access_key, keys.access_key, sizeof signer->access_key);
    cairn_secret_release(&signer->secret);
    cairn_secret_release(&signer->token);
    signer->secret = keys.secret;
    signer->token = keys.token;
    keys.secret = keys.token = (struct cairn_secret){0};
    signer->day[0] = '\0';
    *generation = keys.generation;
    *ret_expires = keys.expires_ms != 0;
    return CAIRN_OK;
}

static const char *hash_of(struct cairn_s3_task *task) {
    struct cairn_view body = task->http.body;
    bool unsigned_body = body.size > HASHED_BYTES_MAX && task->request->body.size &&
                         !atomic_load(&cairn_s3_store_of(task)->signs_payload);
    if (!body.size) return EMPTY_HASH;
    if (unsigned_body) return CAIRN_SIGV4_UNSIGNED;
    uint8_t digest[CAIRN_SHA256_BYTES];
    cairn_sha256_of(body, digest);
    cairn_hex_encode(digest, sizeof digest, task->hash);
    return task->hash;
}

static enum cairn_code sign_try(struct cairn_s3_task *task, const struct cairn_s3_host *host,
                                const char *path, struct cairn_error *err) {
    struct cairn_s3_worker *worker = task->worker;
    const struct cairn_s3_store *store = worker->store;
    CAIRN_AUTO(buf) authorization = {0};
    task->sent_wall_ms = store->clock->wall_ms(store->clock);
    task->sent_mono_ms = cairn_s3_mono_ms(store);
    task->signed_offset_ms = atomic_load(&store->clock_offset_ms);
    cairn_sigv4_time(task->sent_wall_ms + task->signed_offset_ms, task->time);
    const char *hash = task->payload = hash_of(task);
    add_header(task, "host", host->text);
    add_header(task, "x-amz-content-sha256", hash);
    add_header(task, "x-amz-date", task->time);
    add_header(task, "x-amz-expected-bucket-owner", store->config.options.bucket_owner);
    add_header(task, "x-amz-request-payer", store->config.options.request_payer);
    add_header(task, "x-amz-security-token", cairn_secret_view(&worker->signer.token).data);
    struct cairn_sigv4_request request = {.method = task->http.method,
                                          .path = path,
                                          .query = task->query,
                                          .query_count = task->query_count,
                                          .headers = task->headers,
                                          .header_count = task->header_count,
                                          .payload = hash};
    CAIRN_TRY(cairn_sigv4_authorize(&worker->signer, task->time, &request, &authorization, err));
    /* Writes each header as one line of a buffer that no longer grows. */
    add_header(task, "Authorization", authorization.data);
    size_t size = 0, count = 0;
    for (size_t i = 0; i < task->header_count; i++)
        size += strlen(task->headers[i].name) + strlen(task->headers[i].value) + 3;
    CAIRN_TRY(cairn_buf_reserve(&task->lines, size + 1, err));
    for (size_t i = 0; i < task->header_count; i++) {
        if (!strcmp(task->headers[i].name, "host")) continue; /* libcurl writes the same text */
        size_t at = task->lines.size;
        CAIRN_TRY(cairn_buf_printf(&task->lines, err, "%s: %s", task->headers[i].name,
                                   task->headers[i].value));
        CAIRN_TRY(cairn_buf_append(&task->lines, "", 1, err));
        task->line[count++] = task->lines.data + at;
    }
    task->http.headers = task->line;
    task->http.header_count = count;
    return CAIRN_OK;
}

/* NULL: a request to the bucket. */
static const char *key_of(const struct cairn_s3_task *task) {
    const struct cairn_store_request *request = task->request;
    bool many = request->op == CAIRN_STORE_DELETE_MANY;
    if (cairn_store_op_lists(request->op)) return NULL;
    if (!many) return request->key;
    return task->one_by_one ? request->deletions[task->deletion].key : NULL;
}

static enum cairn_code write_url(struct cairn_s3_task *task, const struct cairn_s3_host *host,
                                 const char *path, struct cairn_error *err) {
    const struct cairn_s3_store *store = cairn_s3_store_of(task);
    CAIRN_TRY(cairn_buf_printf(&task->url, err, "%s://%s", store->config.scheme, host->text));
    CAIRN_TRY(cairn_sigv4_path(path, &task->url, err));
    if (task->query_count) CAIRN_TRY(cairn_buf_append_text(&task->url, "?", err));
    return cairn_sigv4_query(task->query, task->query_count, &task->url, err);
}

enum cairn_code cairn_s3_request_build(struct cairn_s3_task *task, struct cairn_error *err) {
    struct cairn_s3_worker *worker = task->worker;
    struct cairn_s3_store *store = worker->store;
    const struct cairn_store_s3_options *options = &store->config.options;
    CAIRN_AUTO(buf) path = {0};
    struct cairn_s3_host host;
    cairn_buf_clear(&task->url);
    cairn_buf_clear(&task->lines);
    cairn_buf_clear(&task->document);
    cairn_buf_clear(&task->reply);
    cairn_buf_clear(&task->prefix);
    task->header_count = task->query_count = 0;
    task->used_create_only = task->used_checksum = task->used_md5 = false;
    task->confirmed = false;
    task->payload = NULL;
    task->seen = (struct cairn_s3_seen){0};
    task->http = (struct cairn_http_request){.owner = task};
    CAIRN_TRY(cairn_s3_signer_update(store, &worker->signer, &worker->signer_generation,
                                     worker->refused_generation, &worker->keys_expire, err));
    task->keys_generation = worker->signer_generation;
    memcpy(task->region, worker->signer.region, sizeof task->region);
    CAIRN_TRY(build_op(task, err));
    cairn_s3_config_host(&store->config, task->region, &host);
    CAIRN_TRY(cairn_s3_config_path(&store->config, key_of(task), &path, err));
    CAIRN_TRY(sign_try(task, &host, path.data, err));
    CAIRN_TRY(write_url(task, &host, path.data, err));
    task->http.url = task->url.data;
    task->http.reply_buf = &task->reply;
    task->http.stall_ms = options->stall_ms;
    /* libcurl resends on a kept connection's end; a lost Complete must be settled by HEAD (R3). */
    task->http.fresh_connection = task->ticket.tries_sent > 1 || task->hedges > 0 ||
                                  task->request->fresh_connection ||
                                  task->request->op == CAIRN_STORE_UPLOAD_COMPLETE;
    const struct cairn_store_request *request = task->request;
    bool part = request->op == CAIRN_STORE_UPLOAD_PART && !request->copy_store;
    task->http.direct =
        part || request->op == CAIRN_STORE_GET ||
        (request->op == CAIRN_STORE_PUT && request->body.size >= DIRECT_PUT_BYTES_MIN);
    task->http.send_bytes_per_s = options->bandwidth_bytes_per_s;
    task->http.on_header = cairn_s3_reply_header;
    return CAIRN_OK;
}

enum cairn_code cairn_s3_presign_get(struct cairn_s3_store *store,
                                     struct cairn_sigv4_signer *signer,
                                     const struct cairn_s3_presigned *what, struct cairn_buf *ret,
                                     struct cairn_error *err) {
    CAIRN_AUTO(buf) path = {0};
    struct cairn_s3_host host;
    char time[CAIRN_SIGV4_TIME_BYTES];
    cairn_s3_config_host(&store->config, signer->region, &host);
    CAIRN_TRY(cairn_s3_config_path(&store->config, what->key, &path, err));
    int64_t offset = atomic_load(&store->clock_offset_ms);
    cairn_sigv4_time(store->clock->wall_ms(store->clock) + offset, time);
    const char *payer = store->config.options.request_payer;
    struct cairn_sigv4_pair headers[] = {{"host", host.text}}, query[2];
    size_t query_count = 0;
    if (what->subresource) query[query_count++] = (struct cairn_sigv4_pair){what->subresource, ""};
    if (payer) query[query_count++] = (struct cairn_sigv4_pair){"x-amz-request-payer", payer};
    struct cairn_sigv4_request request = {.method = "GET",
                                          .path = path.data,
                                          .query = query,
                                          .query_count = query_count,
                                          .headers = headers,
                                          .header_count = 1,
                                          .payload = CAIRN_SIGV4_UNSIGNED};
    CAIRN_TRY(cairn_buf_printf(ret, err, "%s://%s", store->config.scheme, host.text));
    CAIRN_TRY(cairn_sigv4_path(path.data, ret, err));
    CAIRN_TRY(cairn_buf_append_text(ret, "?", err));
    return cairn_sigv4_presign(signer, time, what->expires_s, &request, ret, err);
}
