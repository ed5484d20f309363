/* SPDX-License-Identifier: Apache-2.0 */
/* route: method, path and query become an operation; what no operation knows is refused. */
#include "tests/support/s3fault/server.h"

struct route {
    const char *method;
    bool has_key;
    const char *marker; /* a parameter that must be there; "" when none may decide */
    enum s3f_op op;
    const char *parameters; /* all that it takes, each between blanks */
};

static const struct route routes[] = {
    {"PUT", true, "uploadId", S3F_PART, " uploadId partNumber "},
    {"PUT", true, "", S3F_PUT, " "},
    {"GET", true, "uploadId", S3F_PARTS, " uploadId max-parts part-number-marker encoding-type "},
    {"GET", true, "", S3F_GET, " "},
    {"HEAD", true, "", S3F_HEAD, " "},
    {"DELETE", true, "uploadId", S3F_ABORT, " uploadId "},
    {"DELETE", true, "versionId", S3F_DELETE_VERSION, " versionId "},
    {"DELETE", true, "", S3F_DELETE, " "},
    {"POST", true, "uploads", S3F_CREATE, " uploads "},
    {"POST", true, "uploadId", S3F_COMPLETE, " uploadId "},
    {"GET", false, "list-type", S3F_LIST,
     " list-type prefix max-keys continuation-token start-after encoding-type fetch-owner "
     "delimiter "},
    {"GET", false, "uploads", S3F_UPLOADS,
     " uploads prefix max-uploads key-marker upload-id-marker encoding-type delimiter "},
    {"GET", false, "versions", S3F_VERSIONS,
     " versions prefix max-keys key-marker version-id-marker encoding-type delimiter "},
    {"GET", false, "location", S3F_LOCATION, " location "},
    {"GET", false, "versioning", S3F_VERSIONING, " versioning "},
    {"GET", false, "lifecycle", S3F_LIFECYCLE, " lifecycle "},
    {"GET", false, "object-lock", S3F_OBJECT_LOCK, " object-lock "},
    {"PUT", false, "lifecycle", S3F_LIFECYCLE_PUT, " lifecycle "},
    {"POST", false, "delete", S3F_DELETE_MANY, " delete "},
    {"HEAD", false, "", S3F_BUCKET_HEAD, " "},
    {"PUT", false, "", S3F_BUCKET_CREATE, " "},
    {"DELETE", false, "", S3F_BUCKET_DELETE, " "},
};

/* Headers of S3 that are understood; any other x-amz-* is refused, since ignoring it could break
 * what it asks for. */
static const char known_headers[] =
    " x-amz-content-sha256 x-amz-date x-amz-security-token x-amz-checksum-crc32c "
    "x-amz-checksum-crc32 x-amz-checksum-algorithm x-amz-sdk-checksum-algorithm "
    "x-amz-checksum-type x-amz-checksum-mode x-amz-mp-object-size x-amz-user-agent "
    "x-amz-storage-class x-amz-expected-bucket-owner x-amz-server-side-encryption "
    "x-amz-server-side-encryption-aws-kms-key-id x-amz-tagging x-amz-copy-source "
    "x-amz-copy-source-range x-amz-copy-source-if-match x-amz-source-expected-bucket-owner "
    "x-amz-acl x-amz-request-payer ";

static bool is_listed(const char *list, const char *name) {
    char word[80];
    if (strlen(name) + 3 > sizeof word) return false;
    snprintf(word, sizeof word, " %s ", name);
    return strstr(list, word) != NULL;
}

static bool refuse_unknown(const struct s3f_request *request, const struct route *route,
                           struct s3f_reply *reply) {
    for (size_t i = 0; i < request->query_count; i++) {
        const char *name = request->query[i].name;
        if (!strncasecmp(name, "X-Amz-", 6) || is_listed(route->parameters, name)) continue;
        s3f_refuse(reply, 400, "InvalidArgument", "parameter %s is not known here", name);
        return false;
    }
    for (size_t i = 0; i < request->header_count; i++) {
        const char *name = request->headers[i].name;
        if (strncmp(name, "x-amz-", 6) != 0 || !strncmp(name, "x-amz-meta-", 11) ||
            is_listed(known_headers, name))
            continue;
        s3f_refuse(reply, 501, "NotImplemented", "header %s is not known here", name);
        return false;
    }
    return true;
}

/* "/bucket/key", or "/key" at a host that begins with a bucket's name. */
static bool split_path(struct s3f_server *server, struct s3f_request *request) {
    CAIRN_HOLD(&server->lock);
    const char *host = s3f_header(request, "host"), *path = request->path + 1;
    for (size_t i = 0; i < server->state.bucket_count; i++) {
        const char *bucket = server->state.buckets[i];
        size_t size = strlen(bucket);
        if (strncmp(host, bucket, size) != 0 || host[size] != '.') continue;
        cairn_text_copy(request->bucket, sizeof request->bucket, bucket);
        request->key = path;
        return true;
    }
    size_t size = strcspn(path, "/");
    if (size >= sizeof request->bucket) return false;
    memcpy(request->bucket, path, size);
    request->bucket[size] = '\0';
    request->key = path[size] ? path + size + 1 : "";
    return strlen(request->key) <= 1024;
}

static bool take_part_number(struct s3f_request *request, struct s3f_reply *reply) {
    const char *text = s3f_query(request, "partNumber");
    uint64_t number = 0;
    if (text && cairn_parse_u64(cairn_view_of(text), &number, NULL) == CAIRN_OK && number >= 1 &&
        number <= 10000) {
        request->part_number = (uint32_t)number;
        return true;
    }
    s3f_refuse(reply, 400, "InvalidArgument",
               "Part number must be an integer between 1 and 10000, inclusive");
    return false;
}

bool s3f_route(struct s3f_server *server, struct s3f_request *request, struct s3f_reply *reply) {
    request->op = S3F_UNKNOWN;
    request->key = "";
    if (!split_path(server, request)) {
        s3f_refuse(reply, 400, "InvalidBucketName", "the bucket or key is too long");
        return false;
    }
    if (!request->bucket[0] && !strcmp(request->method, "GET")) {
        request->op = S3F_BUCKETS;
        return true;
    }
    request->upload_id = s3f_query(request, "uploadId");
    for (size_t i = 0; i < CAIRN_COUNT(routes); i++) {
        const struct route *route = &routes[i];
        if (strcmp(route->method, request->method) != 0 || route->has_key != (*request->key != 0))
            continue;
        if (*route->marker && !s3f_query(request, route->marker)) continue;
        request->op = route->op;
        if (!refuse_unknown(request, route, reply)) return false;
        return request->op != S3F_PART || take_part_number(request, reply);
    }
    s3f_refuse(reply, 405, "MethodNotAllowed", "no such operation");
    return false;
}
