/* SPDX-License-Identifier: Apache-2.0 */
/* Replies: enough of S3 for the bench's clients, and /-/ for bench/run. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/sink.h"
#include "common/clock.h"
#include "common/crc.h"
#include "common/text.h"

#define LIST_BYTES_MAX (4 * CAIRN_MIB) /* of Complete */

static bool reply(struct sink_connection *connection, const struct sink_request *request,
                  const char *status, const char *headers, const char *body) {
    char text[4096];
    size_t size = strlen(body);
    bool bodiless = !strcmp(request->method, "HEAD");
    int length = snprintf(text, sizeof text, "HTTP/1.1 %s\r\n%s", status, headers);
    if (!strstr(headers, "Content-Length:"))
        length +=
            snprintf(text + length, sizeof text - (size_t)length, "Content-Length: %zu\r\n", size);
    length += snprintf(text + length, sizeof text - (size_t)length, "\r\n%s", bodiless ? "" : body);
    return sink_send(connection, text, (size_t)length);
}

static bool fail(struct sink_connection *connection, const struct sink_request *request,
                 const char *status, const char *code) {
    char body[256];
    if (strncmp(status, "404", 3) && strncmp(status, "503", 3))
        atomic_fetch_add(&sink.counters.refused, 1);
    snprintf(body, sizeof body, SINK_XML "<Error><Code>%s</Code><Message>no</Message></Error>",
             code);
    return reply(connection, request, status, "Content-Type: application/xml\r\n", body);
}

void sink_crc_text(uint32_t crc32c, char ret_text[16]) {
    CAIRN_AUTO(buf) text = {0};
    uint32_t big = __builtin_bswap32(crc32c);
    ret_text[0] = 0;
    if (cairn_base64_encode((struct cairn_view){&big, 4}, &text, NULL) == CAIRN_OK)
        snprintf(ret_text, 16, "%s", text.data);
}

uint64_t sink_query_number(const struct sink_request *request, const char *name,
                           uint64_t fallback) {
    size_t size = strlen(name);
    for (const char *at = request->query; at && *at; at = strchr(at, '&')) {
        if (*at == '&') at++;
        if (!strncmp(at, name, size) && at[size] == '=') return strtoull(at + size + 1, NULL, 10);
    }
    return fallback;
}

bool sink_query_has(const struct sink_request *request, const char *name) {
    size_t size = strlen(name);
    for (const char *at = request->query; at && *at; at = strchr(at, '&')) {
        if (*at == '&') at++;
        if (!strncmp(at, name, size) && (!at[size] || at[size] == '=' || at[size] == '&'))
            return true;
    }
    return false;
}

static struct sink_upload *find_upload(const struct sink_request *request) {
    return sink_upload_find(sink_query_number(request, "uploadId", 0));
}

/* If-None-Match; called with the lock held. */
static bool may_replace(const struct sink_request *request) {
    return !request->only_new || !sink_object_find(request->path);
}

/* ---- multipart ---- */

static bool create_upload(struct sink_connection *connection, const struct sink_request *request) {
    char body[512];
    pthread_mutex_lock(&sink.lock);
    uint64_t number = 0;
    struct sink_upload *upload = sink_upload_make();
    if (upload) {
        number = upload->id;
        snprintf(upload->key, sizeof upload->key, "%.255s", request->path);
        snprintf(upload->meta, sizeof upload->meta, "%s", request->meta);
    }
    pthread_mutex_unlock(&sink.lock);
    if (!number) return fail(connection, request, "507 Full", "TooManyUploads");
    snprintf(body, sizeof body,
             SINK_XML "<InitiateMultipartUploadResult><Bucket>bench</Bucket><Key>k</Key>"
                      "<UploadId>%llu</UploadId></InitiateMultipartUploadResult>",
             (unsigned long long)number);
    return reply(connection, request, "200 OK", "Content-Type: application/xml\r\n", body);
}

/* K2: which parts get a fault. Parts sent again are counted, too. */
static bool hits(uint64_t counter, uint32_t every, uint32_t phase) {
    return every && counter % every == phase % every;
}

static void pause_ms(uint32_t ms) {
    struct timespec pause = {ms / 1000, ms % 1000 * 1000000L};
    nanosleep(&pause, NULL);
}

static bool answer_part(struct sink_connection *connection, const struct sink_request *request,
                        uint32_t crc32c, uint8_t **data) {
    const struct sink_faults *faults = &sink.faults;
    uint64_t counter = atomic_fetch_add(&sink.part_counter, 1);
    if (hits(counter, faults->busy_every, faults->busy_every / 2)) {
        atomic_fetch_add(&sink.counters.busy, 1);
        return fail(connection, request, "503 Slow Down", "SlowDown");
    }
    if (request->has_crc32c && request->crc32c != crc32c) {
        atomic_fetch_add(&sink.counters.wrong, 1);
        return fail(connection, request, "400 Bad Request", "BadDigest");
    }
    uint64_t number = sink_query_number(request, "partNumber", 0);
    pthread_mutex_lock(&sink.lock);
    struct sink_upload *upload = find_upload(request);
    bool good = upload && number >= 1 && number <= SINK_PARTS_MAX;
    if (good) {
        struct sink_part *part = &upload->parts[number - 1];
        atomic_fetch_add(part->there ? &sink.counters.parts_again : &sink.counters.parts, 1);
        free(part->data);
        *part = (struct sink_part){request->content_length, crc32c, true, *data};
        *data = NULL;
    }
    pthread_mutex_unlock(&sink.lock);
    if (!good) return fail(connection, request, "404 Not Found", "NoSuchUpload");
    if (hits(counter, faults->late_every, faults->late_every / 2)) {
        atomic_fetch_add(&sink.counters.late, 1);
        pause_ms(faults->late_ms);
    }
    char headers[256], text[16];
    sink_crc_text(crc32c, text);
    snprintf(headers, sizeof headers, "ETag: \"%08x\"\r\n%s%s%s", crc32c,
             request->has_crc32c ? "x-amz-checksum-crc32c: " : "", request->has_crc32c ? text : "",
             request->has_crc32c ? "\r\n" : "");
    return reply(connection, request, "200 OK", headers, "");
}

static bool take_part(struct sink_connection *connection, const struct sink_request *request) {
    uint32_t crc32c = 0;
    uint8_t *data = sink.keeps_all ? sink_room(request->content_length) : NULL;
    bool good = (data || !sink.keeps_all) &&
                sink_read_body(connection, request, true, &crc32c, data) &&
                answer_part(connection, request, crc32c, &data);
    free(data);
    return good;
}

/* The next part of Complete; NULL: the end, or a missing part. */
static struct sink_part *next_part(const struct sink_upload *upload, const char **at) {
    *at = strstr(*at, "<PartNumber>");
    if (!*at) return NULL;
    *at += strlen("<PartNumber>");
    uint64_t number = strtoull(*at, NULL, 10);
    bool there = number >= 1 && number <= SINK_PARTS_MAX && upload->parts[number - 1].there;
    return there ? &upload->parts[number - 1] : NULL;
}

/* Combines checksums and bytes in the order of Complete; false: a part is missing. */
static bool combine(const struct sink_upload *upload, const char *list, struct sink_object *ret) {
    size_t count = 0, taken = 0;
    const char *at = list;
    struct sink_part *part;
    while ((part = next_part(upload, &at))) {
        ret->crc32c = cairn_crc32c_combine(ret->crc32c, part->crc32c, part->size_bytes);
        ret->size_bytes += part->size_bytes;
        count++;
    }
    if (at || !count) return false;
    ret->body = sink.keeps_all ? sink_body_new(count) : NULL;
    for (at = list; ret->body && (part = next_part(upload, &at)); taken++)
        ret->body->pieces[taken] = (struct sink_piece){part->size_bytes, CAIRN_TAKE(part->data)};
    return true;
}

static const char *complete_locked(const struct sink_request *request, const char *list,
                                   uint32_t *ret_crc32c) {
    struct sink_upload *upload = find_upload(request);
    struct sink_object whole = {0};
    if (!upload) return "NoSuchUpload";
    if (!may_replace(request)) return "PreconditionFailed";
    if (!combine(upload, list, &whole)) return "InvalidPart";
    struct sink_object *object = NULL;
    if (!request->has_crc32c || request->crc32c == whole.crc32c)
        object = sink_object_make(upload->key);
    else
        atomic_fetch_add(&sink.counters.wrong, 1);
    if (!object) sink_body_leave(whole.body);
    if (!object) return "BadDigest";
    snprintf(object->meta, sizeof object->meta, "%s", upload->meta);
    object->size_bytes = whole.size_bytes;
    object->crc32c = *ret_crc32c = whole.crc32c;
    object->body = whole.body;
    sink_upload_drop(upload);
    atomic_fetch_add(&sink.counters.objects, 1);
    return NULL;
}

static bool complete(struct sink_connection *connection, const struct sink_request *request) {
    CAIRN_AUTO_HEAP uint8_t *list = NULL;
    uint32_t crc32c = 0;
    if (request->content_length > LIST_BYTES_MAX) return false;
    list = calloc(1, request->content_length + 1);
    if (!list || !sink_read_body(connection, request, false, &crc32c, list)) return false;
    pthread_mutex_lock(&sink.lock);
    const char *problem = complete_locked(request, (const char *)list, &crc32c);
    pthread_mutex_unlock(&sink.lock);
    if (problem && !strcmp(problem, "NoSuchUpload"))
        return fail(connection, request, "404 Not Found", problem);
    if (problem && !strcmp(problem, "PreconditionFailed"))
        return fail(connection, request, "412 Precondition Failed", problem);
    if (problem) return fail(connection, request, "400 Bad Request", problem);
    char body[512], text[16];
    sink_crc_text(crc32c, text);
    snprintf(body, sizeof body,
             SINK_XML "<CompleteMultipartUploadResult><ETag>\"%08x-n\"</ETag><ChecksumCRC32C>%s"
                      "</ChecksumCRC32C><ChecksumType>FULL_OBJECT</ChecksumType>"
                      "</CompleteMultipartUploadResult>",
             crc32c, text);
    return reply(connection, request, "200 OK", "Content-Type: application/xml\r\n", body);
}

static bool list_parts(struct sink_connection *connection, const struct sink_request *request) {
    CAIRN_AUTO(buf) body = {0};
    pthread_mutex_lock(&sink.lock);
    const struct sink_upload *upload = find_upload(request);
    enum cairn_code code = upload ? sink_list_parts(upload, &body) : CAIRN_OK;
    pthread_mutex_unlock(&sink.lock);
    if (!upload) return fail(connection, request, "404 Not Found", "NoSuchUpload");
    return code == CAIRN_OK &&
           reply(connection, request, "200 OK", "Content-Type: application/xml\r\n", body.data);
}

/* ---- whole objects ---- */

static bool answer_object(struct sink_connection *connection, const struct sink_request *request,
                          uint32_t crc32c, uint8_t **data) {
    bool right = !request->has_crc32c || request->crc32c == crc32c;
    if (!right) atomic_fetch_add(&sink.counters.wrong, 1);
    if (!right) return fail(connection, request, "400 Bad Request", "BadDigest");
    pthread_mutex_lock(&sink.lock);
    bool may = may_replace(request);
    struct sink_object *object = may ? sink_object_make(request->path) : NULL;
    if (object) {
        object->size_bytes = request->content_length;
        object->crc32c = crc32c;
        snprintf(object->meta, sizeof object->meta, "%s", request->meta);
        object->body = *data ? sink_body_new(1) : NULL;
        if (object->body)
            *object->body->pieces = (struct sink_piece){request->content_length, CAIRN_TAKE(*data)};
    }
    pthread_mutex_unlock(&sink.lock);
    if (!may) return fail(connection, request, "412 Precondition Failed", "PreconditionFailed");
    if (!object) return fail(connection, request, "507 Full", "TooManyObjects");
    char headers[160], text[16];
    sink_crc_text(crc32c, text);
    snprintf(headers, sizeof headers, "ETag: \"%08x\"\r\nx-amz-checksum-crc32c: %s\r\n", crc32c,
             text);
    return reply(connection, request, "200 OK", headers, "");
}

static bool put_object(struct sink_connection *connection, const struct sink_request *request) {
    uint32_t crc32c = 0;
    bool keep = sink.keeps_all || request->content_length <= SINK_KEPT_BYTES;
    uint8_t *data = keep ? sink_room(request->content_length) : NULL;
    bool good = (data || !keep) && sink_read_body(connection, request, !keep, &crc32c, data) &&
                answer_object(connection, request, crc32c, &data);
    free(data);
    return good;
}

/* The copy shares its bytes with the source. */
static bool copy_object(struct sink_connection *connection, const struct sink_request *request) {
    pthread_mutex_lock(&sink.lock);
    const struct sink_object *found = sink_object_find(request->copied);
    struct sink_object copy = found ? *found : (struct sink_object){0};
    if (copy.body) copy.body->users++;
    struct sink_object *object = found ? sink_object_make(request->path) : NULL;
    if (object) {
        memcpy(copy.key, object->key, sizeof copy.key);
        *object = copy;
    } else {
        sink_body_leave(copy.body);
    }
    pthread_mutex_unlock(&sink.lock);
    if (!object) return fail(connection, request, "404 Not Found", "NoSuchKey");
    char body[256];
    snprintf(body, sizeof body,
             SINK_XML "<CopyObjectResult><LastModified>2026-03-02T10:14:07.000Z</LastModified>"
                      "<ETag>\"%08x\"</ETag></CopyObjectResult>",
             copy.crc32c);
    return reply(connection, request, "200 OK", "Content-Type: application/xml\r\n", body);
}

/* "bytes=A-B", "bytes=A-", "bytes=-N"; false: not satisfiable. */
static bool range_of(const struct sink_request *request, uint64_t size, uint64_t *ret_first,
                     uint64_t *ret_end) {
    *ret_first = 0;
    *ret_end = size;
    const char *text = request->range;
    if (strncmp(text, "bytes=", 6)) return true;
    text += 6;
    if (*text == '-') {
        uint64_t last = strtoull(text + 1, NULL, 10);
        *ret_first = size - cairn_min_u64(last, size);
        return true;
    }
    char *dash = NULL;
    *ret_first = strtoull(text, &dash, 10);
    if (dash && dash[0] == '-' && dash[1])
        *ret_end = cairn_min_u64(size, strtoull(dash + 1, NULL, 10) + 1);
    return *ret_first < size;
}

/* Dropped bytes cannot be sent: the connection ends. */
static bool send_pieces(struct sink_connection *connection, const struct sink_body *body,
                        uint64_t first, uint64_t end) {
    uint64_t begin = 0;
    for (size_t i = 0; body && i < body->piece_count && begin < end; i++) {
        const struct sink_piece *piece = &body->pieces[i];
        uint64_t from = cairn_max_u64(first, begin);
        uint64_t until = cairn_min_u64(end, begin + piece->size_bytes);
        if (from < until && !sink_send(connection, piece->data + (from - begin), until - from))
            return false;
        begin += piece->size_bytes;
    }
    return body && begin >= end;
}

static bool send_object(struct sink_connection *connection, const struct sink_request *request,
                        const struct sink_object *object) {
    uint64_t first, end, size = object->size_bytes;
    char headers[1024], text[16], range[128] = "", sum[96] = "";
    if (!range_of(request, size, &first, &end))
        return fail(connection, request, "416 Range Not Satisfiable", "InvalidRange");
    bool partial = request->range[0] || sink_query_has(request, "partNumber");
    if (partial)
        snprintf(range, sizeof range, "Content-Range: bytes %llu-%llu/%llu\r\n",
                 (unsigned long long)first, (unsigned long long)end - 1, (unsigned long long)size);
    sink_crc_text(object->crc32c, text);
    if (end - first == size) /* S3 sends no checksum for a range */
        snprintf(sum, sizeof sum,
                 "x-amz-checksum-crc32c: %s\r\nx-amz-checksum-type: FULL_OBJECT\r\n", text);
    snprintf(headers, sizeof headers,
             "ETag: \"%08x\"\r\nAccept-Ranges: bytes\r\nContent-Length: %llu\r\n"
             "Last-Modified: Mon, 02 Mar 2026 10:14:07 GMT\r\n%s%s%s",
             object->crc32c, (unsigned long long)(end - first), sum, range, object->meta);
    if (!reply(connection, request, partial ? "206 Partial Content" : "200 OK", headers, ""))
        return false;
    return !strcmp(request->method, "HEAD") || send_pieces(connection, object->body, first, end);
}

static bool get_object(struct sink_connection *connection, const struct sink_request *request) {
    struct sink_object object = {0};
    pthread_mutex_lock(&sink.lock);
    bool served = !strncmp(request->path, "/bench/served", 13) && sink.served_body;
    const struct sink_object *found = served ? NULL : sink_object_find(request->path);
    if (found) object = *found;
    if (served)
        object = (struct sink_object){.size_bytes = sink.served_bytes,
                                      .crc32c = sink.served_crc32c,
                                      .body = sink.served_body};
    if (object.body) object.body->users++;
    pthread_mutex_unlock(&sink.lock);
    if (!found && !served) return fail(connection, request, "404 Not Found", "NoSuchKey");
    char etag[16];
    snprintf(etag, sizeof etag, "\"%08x\"", object.crc32c);
    bool other = request->if_match[0] && strcmp(request->if_match, etag) != 0;
    bool good = other ? fail(connection, request, "412 Precondition Failed", "PreconditionFailed")
                      : send_object(connection, request, &object);
    pthread_mutex_lock(&sink.lock);
    sink_body_leave(object.body);
    pthread_mutex_unlock(&sink.lock);
    return good;
}

static bool delete_object(struct sink_connection *connection, const struct sink_request *request) {
    pthread_mutex_lock(&sink.lock);
    struct sink_upload *upload = find_upload(request);
    struct sink_object *object = upload ? NULL : sink_object_find(request->path);
    if (upload) sink_upload_drop(upload);
    if (object) sink_object_drop(object);
    pthread_mutex_unlock(&sink.lock);
    return reply(connection, request, "204 No Content", "", "");
}

/* ---- /-/ ---- */

static void forget(void) {
    pthread_mutex_lock(&sink.lock);
    for (uint32_t i = 0; i < SINK_UPLOADS_MAX; i++) sink_upload_drop(&sink.uploads[i]);
    while (sink.object_count) sink_object_drop(&sink.objects[sink.object_count - 1]);
    pthread_mutex_unlock(&sink.lock);
    uint64_t connected = atomic_load(&sink.counters.connected);
    memset(&sink.counters, 0, sizeof sink.counters);
    atomic_store(&sink.counters.connected, connected);
    atomic_store(&sink.counters.connected_most, connected);
    atomic_store(&sink.part_counter, 0);
}

static void set_faults(const struct sink_request *request) {
    sink.faults = (struct sink_faults){
        .bytes_per_second = sink_query_number(request, "rate", 0),
        .late_every = (uint32_t)sink_query_number(request, "late_every", 0),
        .late_ms = (uint32_t)sink_query_number(request, "late_ms", 5000),
        .busy_every = (uint32_t)sink_query_number(request, "busy_every", 0),
        .reset_every = (uint32_t)sink_query_number(request, "reset_every", 0),
        .wait_ms = (uint32_t)sink_query_number(request, "wait_ms", 0),
    };
}

static bool control(struct sink_connection *connection, const struct sink_request *request) {
    if (!strcmp(request->path, "/-/reset")) {
        forget();
        set_faults(request);
    }
    const struct sink_counters *at = &sink.counters;
    CAIRN_AUTO(buf) body = {0};
    pthread_mutex_lock(&sink.lock);
    enum cairn_code code = cairn_buf_printf(
        &body, NULL,
        "{\"body_bytes\":%lu,\"parts\":%lu,\"parts_again\":%lu,\"wrong\":%lu,\"refused\":%lu,"
        "\"late\":%lu,\"busy\":%lu,\"reset\":%lu,\"connections\":%lu,\"connected_most\":%lu,"
        "\"sent_bytes\":%lu,\"requests\":%lu,\"objects\":[",
        at->body_bytes, at->parts, at->parts_again, at->wrong, at->refused, at->late, at->busy,
        at->reset, at->connections, at->connected_most, at->sent_bytes, at->requests);
    for (uint32_t i = 0; code == CAIRN_OK && i < sink.object_count; i++)
        code = cairn_buf_printf(&body, NULL, "%s{\"key\":\"%s\",\"size\":%llu,\"crc32c\":\"%08x\"}",
                                i ? "," : "", sink.objects[i].key,
                                (unsigned long long)sink.objects[i].size_bytes,
                                sink.objects[i].crc32c);
    pthread_mutex_unlock(&sink.lock);
    if (code != CAIRN_OK || cairn_buf_append_text(&body, "]}", NULL) != CAIRN_OK) return false;
    char head[128];
    int size =
        snprintf(head, sizeof head, "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\n\r\n", body.size);
    return sink_send(connection, head, (size_t)size) && sink_send(connection, body.data, body.size);
}

static bool list(struct sink_connection *connection, const struct sink_request *request) {
    CAIRN_AUTO(buf) body = {0};
    pthread_mutex_lock(&sink.lock);
    enum cairn_code code = sink_query_has(request, "uploads") ? sink_list_uploads(request, &body)
                                                              : sink_list_objects(request, &body);
    pthread_mutex_unlock(&sink.lock);
    return code == CAIRN_OK &&
           reply(connection, request, "200 OK", "Content-Type: application/xml\r\n", body.data);
}

static bool is_bucket(const struct sink_request *request) {
    const char *slash = strchr(request->path + 1, '/');
    return !slash || !slash[1];
}

bool sink_answer(struct sink_connection *connection, const struct sink_request *request) {
    atomic_fetch_add(&sink.counters.requests, 1);
    if (request->unreadable) {
        (void)fail(connection, request, "501 Not Implemented", "NotImplemented");
        return false;
    }
    bool upload = sink_query_has(request, "uploadId"), put = !strcmp(request->method, "PUT");
    bool post = !strcmp(request->method, "POST");
    if (!strncmp(request->path, "/-/", 3)) return control(connection, request);
    if (sink.faults.wait_ms) pause_ms(sink.faults.wait_ms);
    if (put && upload) return take_part(connection, request);
    if (put && is_bucket(request)) return reply(connection, request, "200 OK", "", "");
    if (put && request->copied[0]) return copy_object(connection, request);
    if (put) return put_object(connection, request);
    if (post && sink_query_has(request, "uploads")) return create_upload(connection, request);
    if (post && upload) return complete(connection, request);
    if (post && sink_query_has(request, "delete"))
        return fail(connection, request, "501 Not Implemented", "NotImplemented");
    if (!strcmp(request->method, "DELETE")) return delete_object(connection, request);
    if (!strcmp(request->method, "HEAD") && is_bucket(request))
        return reply(connection, request, "200 OK", "", "");
    if (!strcmp(request->method, "GET") && upload) return list_parts(connection, request);
    if (!strcmp(request->method, "GET") && is_bucket(request)) return list(connection, request);
    if (!strcmp(request->method, "GET") || !strcmp(request->method, "HEAD"))
        return get_object(connection, request);
    return fail(connection, request, "405 Not Allowed", "MethodNotAllowed");
}
