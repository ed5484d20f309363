/* SPDX-License-Identifier: Apache-2.0 */
/* ops_object: put, get, head, delete, and what all operations share. */
#include <fnmatch.h>

#include "tests/each.h"
#include "tests/support/s3fault/ops.h"

#define DELETE_MANY_MAX 1000
#define LOCKED "Access Denied because object protected by object lock."

/* ---- shared ---- */

void s3f_time_iso(int64_t wall_ms, char ret_text[32]) {
    time_t seconds = (time_t)(wall_ms / 1000);
    struct tm parts;
    gmtime_r(&seconds, &parts);
    size_t size = strftime(ret_text, 32, "%Y-%m-%dT%H:%M:%S", &parts);
    snprintf(ret_text + size, 32 - size, ".%03dZ", (int)(wall_ms % 1000));
}

void s3f_time_http(int64_t wall_ms, char ret_text[32]) {
    time_t seconds = (time_t)(wall_ms / 1000);
    struct tm parts;
    gmtime_r(&seconds, &parts);
    strftime(ret_text, 32, "%a, %d %b %Y %H:%M:%S GMT", &parts);
}

void s3f_begin_xml(struct s3f_reply *reply, const char *root) {
    reply->status = 200;
    s3f_say(&reply->headers, "Content-Type: application/xml\r\n");
    s3f_say(&reply->body,
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
            "<%s xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">",
            root);
}

bool s3f_take_number(const struct s3f_call *call, const char *name, uint64_t otherwise,
                     uint64_t max, uint64_t *ret) {
    const char *text = s3f_query(call->request, name);
    *ret = otherwise;
    if (text && cairn_parse_u64(cairn_view_of(text), ret, NULL) != CAIRN_OK) {
        s3f_refuse(call->reply, 400, "InvalidArgument", "%s is no number", name);
        return false;
    }
    *ret = cairn_min_u64(*ret, max);
    return true;
}

void s3f_say_key(const struct s3f_call *call, const char *name, const char *key) {
    struct cairn_buf *body = &call->reply->body;
    s3f_say(body, "<%s>", name);
    if (!s3f_query(call->request, "encoding-type")) {
        s3f_say_xml(body, key);
    } else {
        for (; *key; key++) {
            bool plain = strchr("-._~/", *key) || (*key >= '0' && *key <= '9') ||
                         (*key >= 'A' && *key <= 'Z') || (*key >= 'a' && *key <= 'z');
            s3f_say(body, plain ? "%c" : "%%%02X", (unsigned char)*key);
        }
    }
    s3f_say(body, "</%s>", name);
}

void s3f_name_etag(const struct s3f_call *call, struct s3f_body *body) {
    const char *mode = call->request->etag_mode;
    uint64_t serial = ++call->server->state.serial;
    if (mode && !strcmp(mode, "opaque")) {
        snprintf(body->etag, sizeof body->etag, "opaque+%" PRIu64 "/=&<x>", serial);
    } else if (body->has_md5) {
        for (size_t i = 0; i < 16; i++) snprintf(body->etag + 2 * i, 3, "%02x", body->md5[i]);
    } else {
        snprintf(body->etag, sizeof body->etag, "%08x%08" PRIx64 "%016" PRIx64, body->crc32c,
                 serial, body->size);
    }
}

void s3f_say_version(const struct s3f_call *call, const char *id) {
    if (s3f_tells_versions(&call->server->state))
        s3f_say(&call->reply->headers, "x-amz-version-id: %s\r\n", id);
}

void s3f_say_etag(const struct s3f_call *call, const char *etag) {
    const char *mode = call->request->etag_mode;
    if (mode && !strcmp(mode, "none")) return;
    const char *quote = mode && !strcmp(mode, "bare") ? "" : "\"";
    s3f_say(&call->reply->headers, "ETag: %s%s%s\r\n", quote, etag, quote);
}

void s3f_metadata_of(const struct s3f_request *request, struct cairn_buf *ret) {
    const char *type = s3f_header(request, "content-type");
    s3f_say(ret, "Content-Type: %s\r\n", type && *type ? type : "binary/octet-stream");
    for (size_t i = 0; i < request->header_count; i++)
        if (!strncmp(request->headers[i].name, "x-amz-meta-", 11))
            s3f_say(ret, "%s: %s\r\n", request->headers[i].name, request->headers[i].value);
}

bool s3f_may_create(const struct s3f_call *call, bool honoured) {
    const struct s3f_profile *profile = call->server->options.profile;
    const char *none_match = s3f_header(call->request, "if-none-match");
    if (s3f_header(call->request, "if-match") || (none_match && strcmp(none_match, "*") != 0)) {
        s3f_refuse(call->reply, 501, "NotImplemented", "of conditions only * is taken");
        return false;
    }
    if (!none_match) return true;
    if (profile->create_refused) {
        s3f_refuse(call->reply, profile->create_refused, "NotImplemented",
                   "A header you provided implies functionality that is not implemented");
        return false;
    }
    if (!honoured ||
        !s3f_object_find(&call->server->state, call->request->bucket, call->request->key))
        return true;
    s3f_refuse(call->reply, 412, "PreconditionFailed",
               "At least one of the pre-conditions you specified did not hold");
    return false;
}

/* ---- put ---- */

void s3f_do_put(const struct s3f_call *call) {
    struct s3f_state *state = &call->server->state;
    const struct s3f_request *request = call->request;
    const struct s3f_profile *profile = call->server->options.profile;
    if (!s3f_may_create(call, profile->create_put)) return;
    CAIRN_AUTO(buf) metadata = {0};
    s3f_metadata_of(request, &metadata);
    struct s3f_object *object = s3f_object_new(request->bucket, request->key, metadata.data, 1);
    object->bodies[0] = call->body;
    call->body->references++;
    s3f_name_etag(call, call->body);
    object->size = call->body->size;
    object->crc32c = call->body->crc32c;
    cairn_text_copy(object->etag, sizeof object->etag, call->body->etag);
    const char *checksum = s3f_header(request, "x-amz-checksum-crc32c");
    call->reply->status = 200;
    s3f_say_etag(call, object->etag);
    if (checksum && profile->checksums) {
        cairn_text_copy(object->checksum, sizeof object->checksum, checksum);
        s3f_say(&call->reply->headers,
                "x-amz-checksum-crc32c: %s\r\nx-amz-checksum-type: FULL_OBJECT\r\n", checksum);
    }
    s3f_object_store(state, object);
    s3f_say_version(call, object->version_id);
}

/* ---- get and head ---- */

static bool etag_matches(const char *condition, const char *etag) {
    size_t size = strlen(condition);
    if (size >= 2 && condition[0] == '"' && condition[size - 1] == '"')
        return strlen(etag) == size - 2 && !strncmp(condition + 1, etag, size - 2);
    return !strcmp(condition, "*") || !strcmp(condition, etag);
}

/* True: go on. */
static bool conditions_hold(const struct s3f_call *call, const struct s3f_object *object) {
    const char *match = s3f_header(call->request, "if-match");
    const char *none_match = s3f_header(call->request, "if-none-match");
    if (match && !etag_matches(match, object->etag)) {
        s3f_refuse(call->reply, 412, "PreconditionFailed",
                   "At least one of the pre-conditions you specified did not hold");
        return false;
    }
    if (none_match && etag_matches(none_match, object->etag)) {
        call->reply->status = 304;
        s3f_say_etag(call, object->etag);
        return false;
    }
    return true;
}

/* One range: "bytes=0-99", "bytes=100-", "bytes=-5". 0: no range, 1: this one, -1: refused. */
static int parse_range(const char *text, uint64_t size, uint64_t *ret_first, uint64_t *ret_last) {
    if (strncmp(text, "bytes=", 6) != 0 || strchr(text, ',')) return -1;
    text += 6;
    const char *dash = strchr(text, '-');
    if (!dash) return -1;
    bool has_first = dash > text, has_last = dash[1] != '\0';
    struct cairn_view first_text = {text, (size_t)(dash - text)};
    uint64_t first = 0, last = 0;
    if ((has_first && cairn_parse_u64(first_text, &first, NULL) != CAIRN_OK) ||
        (has_last && cairn_parse_u64(cairn_view_of(dash + 1), &last, NULL) != CAIRN_OK) ||
        (!has_first && !has_last) || (has_first && has_last && first > last))
        return -1;
    if (!has_first) {
        if (last == 0 || size == 0) return -1;
        first = last >= size ? 0 : size - last;
        last = size - 1;
    } else if (!has_last || last >= size) {
        last = size ? size - 1 : 0;
    }
    *ret_first = first;
    *ret_last = last;
    return first < size ? 1 : -1;
}

static bool take_range(const struct s3f_call *call, const struct s3f_object *object) {
    const char *range = s3f_header(call->request, "range");
    const char *condition = s3f_header(call->request, "if-range");
    uint64_t first = 0, last = 0;
    call->reply->status = 200;
    call->reply->length = object->size;
    if (!range || s3f_plan_find(call->plan, S3F_DO_IGNORE_RANGE) ||
        (condition && !etag_matches(condition, object->etag)))
        return true;
    if (parse_range(range, object->size, &first, &last) < 0) {
        s3f_refuse(call->reply, 416, "InvalidRange", "The requested range is not satisfiable");
        s3f_say(&call->reply->headers, "Content-Range: bytes */%" PRIu64 "\r\n", object->size);
        return false;
    }
    call->reply->status = 206;
    call->reply->offset = first;
    call->reply->length = last - first + 1;
    unsigned shift = s3f_plan_find(call->plan, S3F_DO_WRONG_RANGE) ? 1 : 0;
    if (!s3f_plan_find(call->plan, S3F_DO_MULTIPART_RANGE))
        s3f_say(&call->reply->headers,
                "Content-Range: bytes %" PRIu64 "-%" PRIu64 "/%" PRIu64 "\r\n", first + shift,
                last + shift, object->size);
    return true;
}

void s3f_do_get(const struct s3f_call *call) {
    const struct s3f_request *request = call->request;
    struct s3f_reply *reply = call->reply;
    struct s3f_object *object =
        s3f_object_find(&call->server->state, request->bucket, request->key);
    if (!object) {
        s3f_refuse(reply, 404, "NoSuchKey", "The specified key does not exist.");
        if (s3f_version_newest(&call->server->state, request->bucket, request->key))
            s3f_say(&reply->headers, "x-amz-delete-marker: true\r\n");
        return;
    }
    if (!conditions_hold(call, object) || !take_range(call, object)) return;
    for (size_t i = 0; i < object->body_count && request->op == S3F_GET; i++)
        REFUSE_IF(object->size && !object->bodies[i]->bytes, reply, 501, "NotImplemented",
                  "the bytes were not kept (--discard)");
    char time[32];
    s3f_time_http(object->modified_ms, time);
    if (s3f_plan_find(call->plan, S3F_DO_MULTIPART_RANGE))
        s3f_say(&reply->headers, "Content-Type: multipart/byteranges; boundary=s3fault\r\n%s",
                strstr(object->metadata, "\r\n") + 2);
    else
        s3f_say(&reply->headers, "%s", object->metadata);
    s3f_say(&reply->headers, "Last-Modified: %s\r\nAccept-Ranges: bytes\r\n", time);
    s3f_say_etag(call, object->etag);
    s3f_say_version(call, object->version_id);
    const char *mode = s3f_header(request, "x-amz-checksum-mode");
    if (mode && !strcmp(mode, "ENABLED") && object->checksum[0] && reply->status == 200)
        s3f_say(&reply->headers, "x-amz-checksum-crc32c: %s\r\nx-amz-checksum-type: %s\r\n",
                object->checksum, object->checksum_type);
    reply->object = object;
    object->references++;
}

/* ---- delete ---- */

void s3f_do_delete(const struct s3f_call *call) {
    const struct s3f_request *request = call->request;
    struct s3f_deleted deleted;
    s3f_version_delete(&call->server->state, request->bucket, request->key,
                       s3f_query(request, "versionId"), &deleted);
    REFUSE_IF(deleted.locked, call->reply, 403, "AccessDenied", LOCKED);
    call->reply->status = 204;
    if (deleted.id[0]) s3f_say_version(call, deleted.id);
    if (deleted.marker) s3f_say(&call->reply->headers, "x-amz-delete-marker: true\r\n");
}

struct deletion {
    struct {
        char *key, *version; /* NULL: it was not said */
    } items[DELETE_MANY_MAX];
    size_t count;
    bool quiet;
};

static bool keep_text(char **to, const char *value) {
    if (*to) return false; /* said twice */
    *to = strdup(value);
    return *to != NULL;
}

static bool on_deletion(void *owner, const char *path, const char *value) {
    struct deletion *deletion = owner;
    if (!value && !strcmp(path, "Delete/Object")) return deletion->count++ < DELETE_MANY_MAX;
    if (!value) return !strcmp(path, "Delete");
    if (!strcmp(path, "Delete/Quiet")) {
        deletion->quiet = !strcmp(value, "true");
        return true;
    }
    if (!strcmp(path, "Delete/Object/Key"))
        return keep_text(&deletion->items[deletion->count - 1].key, value);
    return !strcmp(path, "Delete/Object/VersionId") &&
           keep_text(&deletion->items[deletion->count - 1].version, value);
}

/* delete-error=CODE: the first key; delete-error=CODE@GLOB: those that match. */
static bool is_failing(const struct s3f_action *failing, size_t index, const char *key,
                       char ret_code[64]) {
    if (!failing) return false;
    const char *glob = strchr(failing->text, '@');
    snprintf(ret_code, 64, "%.*s", (int)(glob ? glob - failing->text : 63), failing->text);
    return glob ? fnmatch(glob + 1, key, 0) == 0 : index == 0;
}

/* The element of one key is open: which version it was, and what was made of it. */
static void say_deleted(const struct s3f_call *call, const char *asked,
                        const struct s3f_deleted *deleted) {
    struct cairn_buf *body = &call->reply->body;
    if (asked) {
        s3f_say(body, "<VersionId>");
        s3f_say_xml(body, asked);
        s3f_say(body, "</VersionId>");
    }
    if (!deleted || !deleted->marker) return;
    s3f_say(body, "<DeleteMarker>true</DeleteMarker><DeleteMarkerVersionId>");
    s3f_say_xml(body, deleted->id);
    s3f_say(body, "</DeleteMarkerVersionId>");
}

static void delete_each(const struct s3f_call *call, const struct deletion *deletion) {
    const struct s3f_action *failing = s3f_plan_find(call->plan, S3F_DO_DELETE_ERROR);
    struct cairn_buf *body = &call->reply->body;
    char code[64];
    s3f_begin_xml(call->reply, "DeleteResult");
    for (size_t i = 0; i < deletion->count; i++) {
        const char *key = deletion->items[i].key, *version = deletion->items[i].version;
        const char *why = "by rule";
        struct s3f_deleted deleted = {0};
        bool failed = is_failing(failing, i, key, code);
        if (!failed)
            s3f_version_delete(&call->server->state, call->request->bucket, key, version, &deleted);
        if (deleted.locked) {
            snprintf(code, sizeof code, "AccessDenied");
            why = LOCKED;
            failed = true;
        }
        if (!failed && deletion->quiet) continue;
        s3f_say(body, failed ? "<Error>" : "<Deleted>");
        s3f_say_key(call, "Key", key);
        say_deleted(call, version, failed ? NULL : &deleted);
        if (failed) s3f_say(body, "<Code>%s</Code><Message>%s</Message>", code, why);
        s3f_say(body, failed ? "</Error>" : "</Deleted>");
    }
    s3f_say(body, "</DeleteResult>");
}

static bool are_named(const struct deletion *deletion) {
    for (size_t i = 0; i < deletion->count; i++)
        if (!deletion->items[i].key) return false;
    return deletion->count > 0;
}

void s3f_do_delete_many(const struct s3f_call *call) {
    struct deletion deletion = {0};
    bool proven = false;
    EACH_TEXT(text, "content-md5", "x-amz-checksum-crc32c", "x-amz-checksum-crc32")
        proven = proven || s3f_header(call->request, text);
    const struct s3f_body *body = call->body;
    if (!proven) {
        s3f_refuse(call->reply, 400, "InvalidRequest", "Content-MD5 or a checksum is missing");
    } else if (!body ||
               !s3f_xml_read((const char *)body->bytes, body->size, on_deletion, &deletion) ||
               !are_named(&deletion)) {
        s3f_refuse(call->reply, 400, "MalformedXML", "The XML you provided was not well-formed");
    } else {
        delete_each(call, &deletion);
    }
    for (size_t i = 0; i < cairn_min_u64(deletion.count, DELETE_MANY_MAX); i++) {
        free(deletion.items[i].key);
        free(deletion.items[i].version);
    }
}
