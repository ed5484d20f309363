/* SPDX-License-Identifier: Apache-2.0 */
/* The answers: enough of S3 for the clients of the bench, and /-/ for bench/run itself. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/sink.h"
#include "common/clock.h"
#include "common/crc32c.h"
#include "common/encode.h"

#define XML "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"

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
    snprintf(body, sizeof body, XML "<Error><Code>%s</Code><Message>no</Message></Error>", code);
    return reply(connection, request, status, "Content-Type: application/xml\r\n", body);
}

static void crc_text(uint32_t crc32c, char ret_text[16]) {
    CAIRN_AUTO(buf) text = {0};
    uint32_t big = __builtin_bswap32(crc32c);
    ret_text[0] = 0;
    if (cairn_base64_encode((struct cairn_view){&big, 4}, &text, NULL) == CAIRN_OK)
        snprintf(ret_text, 16, "%s", text.data);
}

static uint64_t query_number(const struct sink_request *request, const char *name,
                             uint64_t fallback) {
    size_t size = strlen(name);
    for (const char *at = request->query; at && *at; at = strchr(at, '&')) {
        if (*at == '&') at++;
        if (!strncmp(at, name, size) && at[size] == '=') return strtoull(at + size + 1, NULL, 10);
    }
    return fallback;
}

static bool query_has(const struct sink_request *request, const char *name) {
    size_t size = strlen(name);
    for (const char *at = request->query; at && *at; at = strchr(at, '&')) {
        if (*at == '&') at++;
        if (!strncmp(at, name, size) && (!at[size] || at[size] == '=' || at[size] == '&'))
            return true;
    }
    return false;
}

/* ---- objects, with the lock held ---- */

static struct sink_object *find_object(const char *key) {
    for (uint32_t i = 0; i < sink.object_count; i++)
        if (!strcmp(sink.objects[i].key, key)) return &sink.objects[i];
    return NULL;
}

static struct sink_object *make_object(const char *key) {
    struct sink_object *object = find_object(key);
    if (!object && sink.object_count < SINK_OBJECTS_MAX)
        object = &sink.objects[sink.object_count++];
    if (!object) return NULL;
    cairn_buf_release(&object->kept);
    *object = (struct sink_object){0};
    snprintf(object->key, sizeof object->key, "%s", key);
    return object;
}

static struct sink_upload *find_upload(const struct sink_request *request) {
    uint64_t number = query_number(request, "uploadId", 0);
    bool there = number && number <= sink.upload_count && sink.uploads[number - 1].parts;
    return there ? &sink.uploads[number - 1] : NULL;
}

static void drop_upload(struct sink_upload *upload) {
    free(upload->parts);
    *upload = (struct sink_upload){0};
}

/* ---- multipart ---- */

static bool create_upload(struct sink_connection *connection, const struct sink_request *request) {
    char body[512];
    pthread_mutex_lock(&sink.lock);
    uint32_t number = 0;
    if (sink.upload_count < SINK_UPLOADS_MAX) {
        struct sink_upload *upload = &sink.uploads[sink.upload_count];
        upload->parts = calloc(SINK_PARTS_MAX, sizeof *upload->parts);
        if (upload->parts) number = ++sink.upload_count;
        snprintf(upload->key, sizeof upload->key, "%.255s", request->path);
        snprintf(upload->meta, sizeof upload->meta, "%s", request->meta);
    }
    pthread_mutex_unlock(&sink.lock);
    if (!number) return fail(connection, request, "507 Full", "TooManyUploads");
    snprintf(body, sizeof body,
             XML "<InitiateMultipartUploadResult><Bucket>bench</Bucket><Key>k</Key>"
                 "<UploadId>%u</UploadId></InitiateMultipartUploadResult>",
             number);
    return reply(connection, request, "200 OK", "Content-Type: application/xml\r\n", body);
}

/* K2: which parts meet a fault. The counter also counts parts that are sent again. */
static bool hits(uint64_t counter, uint32_t every, uint32_t phase) {
    return every && counter % every == phase % every;
}

static bool take_part(struct sink_connection *connection, const struct sink_request *request) {
    uint32_t crc32c = 0;
    if (!sink_read_body(connection, request, true, &crc32c, NULL)) return false;
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
    uint64_t number = query_number(request, "partNumber", 0);
    pthread_mutex_lock(&sink.lock);
    struct sink_upload *upload = find_upload(request);
    bool good = upload && number >= 1 && number <= SINK_PARTS_MAX;
    if (good) {
        struct sink_part *part = &upload->parts[number - 1];
        atomic_fetch_add(part->there ? &sink.counters.parts_again : &sink.counters.parts, 1);
        *part = (struct sink_part){request->content_length, crc32c, true};
    }
    pthread_mutex_unlock(&sink.lock);
    if (!good) return fail(connection, request, "404 Not Found", "NoSuchUpload");
    if (hits(counter, faults->late_every, faults->late_every / 2)) {
        atomic_fetch_add(&sink.counters.late, 1);
        struct timespec pause = {faults->late_ms / 1000, faults->late_ms % 1000 * 1000000L};
        nanosleep(&pause, NULL);
    }
    char headers[256], text[16];
    crc_text(crc32c, text);
    snprintf(headers, sizeof headers, "ETag: \"%08x\"\r\n%s%s%s", crc32c,
             request->has_crc32c ? "x-amz-checksum-crc32c: " : "", request->has_crc32c ? text : "",
             request->has_crc32c ? "\r\n" : "");
    return reply(connection, request, "200 OK", headers, "");
}

/* The parts that Complete names; combined in that order. false: one of them is not there. */
static bool combine(const struct sink_upload *upload, const char *list, uint64_t *ret_bytes,
                    uint32_t *ret_crc32c) {
    uint64_t bytes = 0;
    uint32_t crc32c = 0;
    for (const char *at = list; (at = strstr(at, "<PartNumber>")); at++) {
        uint64_t number = strtoull(at + strlen("<PartNumber>"), NULL, 10);
        if (number < 1 || number > SINK_PARTS_MAX || !upload->parts[number - 1].there) return false;
        const struct sink_part *part = &upload->parts[number - 1];
        crc32c = cairn_crc32c_combine(crc32c, part->crc32c, part->size_bytes);
        bytes += part->size_bytes;
    }
    *ret_bytes = bytes;
    *ret_crc32c = crc32c;
    return bytes > 0;
}

static const char *complete_locked(const struct sink_request *request, const char *list,
                                   uint32_t *ret_crc32c) {
    struct sink_upload *upload = find_upload(request);
    uint64_t bytes = 0;
    uint32_t crc32c = 0;
    if (!upload) return "NoSuchUpload";
    if (!combine(upload, list, &bytes, &crc32c)) return "InvalidPart";
    if (request->has_crc32c && request->crc32c != crc32c) {
        atomic_fetch_add(&sink.counters.wrong, 1);
        return "BadDigest";
    }
    struct sink_object *object = make_object(upload->key);
    if (!object) return "TooManyObjects";
    snprintf(object->meta, sizeof object->meta, "%s", upload->meta);
    object->size_bytes = bytes;
    object->crc32c = *ret_crc32c = crc32c;
    drop_upload(upload);
    atomic_fetch_add(&sink.counters.objects, 1);
    return NULL;
}

static bool complete(struct sink_connection *connection, const struct sink_request *request) {
    CAIRN_AUTO(buf) list = {.limit = 4 * CAIRN_MIB};
    uint32_t crc32c = 0;
    if (!sink_read_body(connection, request, false, &crc32c, &list)) return false;
    pthread_mutex_lock(&sink.lock);
    const char *problem = complete_locked(request, list.size ? list.data : "", &crc32c);
    pthread_mutex_unlock(&sink.lock);
    if (problem && !strcmp(problem, "NoSuchUpload"))
        return fail(connection, request, "404 Not Found", problem);
    if (problem) return fail(connection, request, "400 Bad Request", problem);
    char body[512], text[16];
    crc_text(crc32c, text);
    snprintf(body, sizeof body,
             XML "<CompleteMultipartUploadResult><ETag>\"%08x-n\"</ETag><ChecksumCRC32C>%s"
                 "</ChecksumCRC32C><ChecksumType>FULL_OBJECT</ChecksumType>"
                 "</CompleteMultipartUploadResult>",
             crc32c, text);
    return reply(connection, request, "200 OK", "Content-Type: application/xml\r\n", body);
}

static bool list_parts(struct sink_connection *connection, const struct sink_request *request) {
    CAIRN_AUTO(buf) body = {0};
    pthread_mutex_lock(&sink.lock);
    const struct sink_upload *upload = find_upload(request);
    enum cairn_code code =
        cairn_buf_append_text(&body, XML "<ListPartsResult><IsTruncated>false</IsTruncated>", NULL);
    for (uint32_t i = 0; upload && code == CAIRN_OK && i < SINK_PARTS_MAX; i++)
        if (upload->parts[i].there)
            code = cairn_buf_printf(&body, NULL,
                                    "<Part><PartNumber>%u</PartNumber><ETag>\"%08x\"</ETag>"
                                    "<Size>%llu</Size></Part>",
                                    i + 1, upload->parts[i].crc32c,
                                    (unsigned long long)upload->parts[i].size_bytes);
    pthread_mutex_unlock(&sink.lock);
    if (!upload) return fail(connection, request, "404 Not Found", "NoSuchUpload");
    if (code != CAIRN_OK || cairn_buf_append_text(&body, "</ListPartsResult>", NULL) != CAIRN_OK)
        return false;
    return reply(connection, request, "200 OK", "Content-Type: application/xml\r\n", body.data);
}

/* ---- whole objects ---- */

static bool put_object(struct sink_connection *connection, const struct sink_request *request) {
    struct cairn_buf kept = {.limit = SINK_KEPT_BYTES};
    uint32_t crc32c = 0;
    bool keep = request->content_length <= SINK_KEPT_BYTES;
    if (!sink_read_body(connection, request, !keep, &crc32c, keep ? &kept : NULL)) {
        cairn_buf_release(&kept);
        return false;
    }
    bool good = !request->has_crc32c || request->crc32c == crc32c;
    if (!good) atomic_fetch_add(&sink.counters.wrong, 1);
    pthread_mutex_lock(&sink.lock);
    struct sink_object *object = good ? make_object(request->path) : NULL;
    if (object) {
        object->size_bytes = request->content_length;
        object->crc32c = crc32c;
        object->kept = kept;
        snprintf(object->meta, sizeof object->meta, "%s", request->meta);
    } else {
        cairn_buf_release(&kept);
    }
    pthread_mutex_unlock(&sink.lock);
    if (!good || !object) return fail(connection, request, "400 Bad Request", "BadDigest");
    char headers[128];
    snprintf(headers, sizeof headers, "ETag: \"%08x\"\r\n", crc32c);
    return reply(connection, request, "200 OK", headers, "");
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

static bool send_object(struct sink_connection *connection, const struct sink_request *request,
                        const struct sink_object *object, const uint8_t *data) {
    uint64_t first, end, size = object->size_bytes;
    char headers[1024], text[16], range[128] = "";
    if (!range_of(request, size, &first, &end))
        return fail(connection, request, "416 Range Not Satisfiable", "InvalidRange");
    bool partial = request->range[0] || query_has(request, "partNumber");
    if (partial)
        snprintf(range, sizeof range, "Content-Range: bytes %llu-%llu/%llu\r\n",
                 (unsigned long long)first, (unsigned long long)end - 1, (unsigned long long)size);
    crc_text(object->crc32c, text);
    snprintf(headers, sizeof headers,
             "ETag: \"%08x\"\r\nAccept-Ranges: bytes\r\nContent-Length: %llu\r\n"
             "Last-Modified: Mon, 02 Mar 2026 10:14:07 GMT\r\n"
             "x-amz-checksum-crc32c: %s\r\nx-amz-checksum-type: FULL_OBJECT\r\n%s%s",
             object->crc32c, (unsigned long long)(end - first), text, range, object->meta);
    if (!reply(connection, request, partial ? "206 Partial Content" : "200 OK", headers, ""))
        return false;
    return !strcmp(request->method, "HEAD") ||
           (data && sink_send(connection, data + first, end - first));
}

static bool get_object(struct sink_connection *connection, const struct sink_request *request) {
    struct sink_object object = {.size_bytes = sink.served_bytes, .crc32c = sink.served_crc32c};
    CAIRN_AUTO(buf) copy = {0};
    const uint8_t *data = sink.served.data;
    if (strncmp(request->path, "/bench/served", 13)) {
        pthread_mutex_lock(&sink.lock);
        const struct sink_object *found = find_object(request->path);
        bool there =
            found && cairn_buf_append(&copy, found->kept.data, found->kept.size, NULL) == CAIRN_OK;
        if (there) object = *found;
        pthread_mutex_unlock(&sink.lock);
        if (!there) return fail(connection, request, "404 Not Found", "NoSuchKey");
        data = copy.size == object.size_bytes ? (const uint8_t *)copy.data : NULL;
    }
    return send_object(connection, request, &object, data);
}

static bool delete_object(struct sink_connection *connection, const struct sink_request *request) {
    pthread_mutex_lock(&sink.lock);
    struct sink_upload *upload = find_upload(request);
    struct sink_object *object = upload ? NULL : find_object(request->path);
    if (upload) drop_upload(upload);
    if (object) {
        cairn_buf_release(&object->kept);
        *object = sink.objects[--sink.object_count];
        sink.objects[sink.object_count] = (struct sink_object){0};
    }
    pthread_mutex_unlock(&sink.lock);
    return reply(connection, request, "204 No Content", "", "");
}

/* ---- /-/ ---- */

static void forget(void) {
    pthread_mutex_lock(&sink.lock);
    for (uint32_t i = 0; i < sink.upload_count; i++) drop_upload(&sink.uploads[i]);
    for (uint32_t i = 0; i < sink.object_count; i++) cairn_buf_release(&sink.objects[i].kept);
    memset(sink.objects, 0, sizeof sink.objects);
    sink.upload_count = sink.object_count = 0;
    pthread_mutex_unlock(&sink.lock);
    uint64_t connected = atomic_load(&sink.counters.connected);
    memset(&sink.counters, 0, sizeof sink.counters);
    atomic_store(&sink.counters.connected, connected);
    atomic_store(&sink.counters.connected_most, connected);
    atomic_store(&sink.part_counter, 0);
}

static void set_faults(const struct sink_request *request) {
    sink.faults = (struct sink_faults){
        .bytes_per_second = query_number(request, "rate", 0),
        .late_every = (uint32_t)query_number(request, "late_every", 0),
        .late_ms = (uint32_t)query_number(request, "late_ms", 5000),
        .busy_every = (uint32_t)query_number(request, "busy_every", 0),
        .reset_every = (uint32_t)query_number(request, "reset_every", 0),
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
    const char *name =
        query_has(request, "uploads") ? "ListMultipartUploadsResult" : "ListBucketResult";
    char body[256];
    snprintf(body, sizeof body,
             XML "<%s><IsTruncated>false</IsTruncated><KeyCount>0</KeyCount></%s>", name, name);
    return reply(connection, request, "200 OK", "Content-Type: application/xml\r\n", body);
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
    bool upload = query_has(request, "uploadId"), put = !strcmp(request->method, "PUT");
    bool post = !strcmp(request->method, "POST");
    if (!strncmp(request->path, "/-/", 3)) return control(connection, request);
    if (put && upload) return take_part(connection, request);
    if (put && is_bucket(request)) return reply(connection, request, "200 OK", "", "");
    if (put) return put_object(connection, request);
    if (post && query_has(request, "uploads")) return create_upload(connection, request);
    if (post && upload) return complete(connection, request);
    if (!strcmp(request->method, "DELETE")) return delete_object(connection, request);
    if (!strcmp(request->method, "HEAD") && is_bucket(request))
        return reply(connection, request, "200 OK", "", "");
    if (!strcmp(request->method, "GET") && upload) return list_parts(connection, request);
    if (!strcmp(request->method, "GET") && is_bucket(request)) return list(connection, request);
    if (!strcmp(request->method, "GET") || !strcmp(request->method, "HEAD"))
        return get_object(connection, request);
    return fail(connection, request, "405 Not Allowed", "MethodNotAllowed");
}
