/* SPDX-License-Identifier: Apache-2.0 */
/* ops_multipart: create, part, complete, abort and the listings of uploads and parts. */
#include <openssl/evp.h>

#include "common/crc.h"
#include "tests/support/s3fault/ops.h"

#define PAGE_MAX 1000

static void no_such_upload(const struct s3f_call *call) {
    s3f_refuse(call->reply, 404, "NoSuchUpload",
               "The specified upload does not exist. The upload ID may be invalid, or the "
               "upload may have been aborted or completed.");
}

static struct s3f_upload *find_upload(const struct s3f_call *call) {
    const struct s3f_request *request = call->request;
    return s3f_upload_find(&call->server->state, request->bucket, request->key, request->upload_id);
}

static bool same_etag(const char *told, const char *etag) {
    size_t size = strlen(told);
    if (size >= 2 && told[0] == '"' && told[size - 1] == '"') {
        told++;
        size -= 2;
    }
    return strlen(etag) == size && !strncmp(told, etag, size);
}

/* ---- create ---- */

void s3f_do_create(const struct s3f_call *call) {
    const struct s3f_request *request = call->request;
    const struct s3f_profile *profile = call->server->options.profile;
    const char *algorithm = s3f_header(request, "x-amz-checksum-algorithm");
    const char *type = s3f_header(request, "x-amz-checksum-type");
    bool full = type && !strcmp(type, "FULL_OBJECT");
    REFUSE_IF(profile->checksums && ((algorithm && strcmp(algorithm, "CRC32C") != 0) ||
                                     (full && !profile->checksum_full)),
              call->reply, 501, "NotImplemented",
              "of checksums only CRC32C is taken, in the forms that this store knows");
    REFUSE_IF(type && ((!full && strcmp(type, "COMPOSITE") != 0) || !algorithm), call->reply, 400,
              "InvalidRequest", "the checksum type is not valid");
    CAIRN_AUTO(buf) metadata = {0};
    s3f_metadata_of(request, &metadata);
    struct s3f_upload *upload =
        s3f_upload_new(&call->server->state, request->bucket, request->key, metadata.data);
    upload->checksums = algorithm && (profile->checksums || profile->tells_crc32);
    upload->checksum_full = upload->checksums && full;
    s3f_begin_xml(call->reply, "InitiateMultipartUploadResult");
    if (upload->checksums)
        s3f_say(&call->reply->headers,
                "x-amz-checksum-algorithm: CRC32C\r\nx-amz-checksum-type: %s\r\n",
                full ? "FULL_OBJECT" : "COMPOSITE");
    s3f_say(&call->reply->body, "<Bucket>%s</Bucket>", request->bucket);
    s3f_say_key(call, "Key", request->key);
    s3f_say(&call->reply->body, "<UploadId>%s</UploadId></InitiateMultipartUploadResult>",
            upload->id);
}

/* ---- part ---- */

/* "/bucket/key", percent-encoded, and "bytes=first-last" of it. NULL: refused. */
static const struct s3f_object *copy_source(const struct s3f_call *call, uint64_t *ret_first,
                                            uint64_t *ret_last) {
    const struct s3f_request *request = call->request;
    const char *named = s3f_header(request, "x-amz-copy-source");
    const char *range = s3f_header(request, "x-amz-copy-source-range");
    const char *if_match = s3f_header(request, "x-amz-copy-source-if-match");
    CAIRN_AUTO(buf) path = {0};
    if (cairn_percent_decode(cairn_view_of(named + (*named == '/')), &path, NULL) || !path.size) {
        s3f_refuse(call->reply, 400, "InvalidArgument", "the copy source is not valid");
        return NULL;
    }
    char *slash = strchr(path.data, '/');
    if (slash) *slash = '\0';
    const struct s3f_object *object =
        slash ? s3f_object_find(&call->server->state, path.data, slash + 1) : NULL;
    if (!object) {
        s3f_refuse(call->reply, 404, "NoSuchKey", "The specified key does not exist.");
        return NULL;
    }
    if (if_match && !same_etag(if_match, object->etag)) {
        s3f_refuse(call->reply, 412, "PreconditionFailed",
                   "At least one of the pre-conditions you specified did not hold");
        return NULL;
    }
    *ret_first = 0;
    *ret_last = object->size - 1;
    if ((range && sscanf(range, "bytes=%" SCNu64 "-%" SCNu64, ret_first, ret_last) != 2) ||
        *ret_first > *ret_last || *ret_last >= object->size) {
        s3f_refuse(call->reply, 400, "InvalidArgument", "the copy source range is not valid");
        return NULL;
    }
    return object;
}

/* The bytes never leave this process: that is what a test counts. */
static struct s3f_body *copy_bytes(const struct s3f_call *call, const struct s3f_object *object,
                                   uint64_t first, uint64_t last) {
    struct s3f_body *body = s3f_body_new(&call->server->state, last - first + 1, true);
    uint64_t at = 0, done = 0;
    for (size_t i = 0; body && i < object->body_count; i++) {
        const struct s3f_body *from = object->bodies[i];
        uint64_t begin = cairn_max_u64(first, at);
        uint64_t end = cairn_min_u64(last + 1, at + from->size);
        if (begin < end && from->bytes) {
            memcpy(body->bytes + done, from->bytes + (begin - at), end - begin);
            done += end - begin;
        }
        at += from->size;
    }
    if (body) body->crc32c = cairn_crc32c(0, body->bytes, body->size);
    return body;
}

static void copy_part(const struct s3f_call *call, struct s3f_upload *upload) {
    uint64_t first = 0, last = 0;
    const struct s3f_object *object = copy_source(call, &first, &last);
    if (!object) return;
    struct s3f_body *body = copy_bytes(call, object, first, last);
    REFUSE_IF(!body, call->reply, 503, "SlowDown", "no memory for a copy");
    s3f_name_etag(call, body);
    s3f_part_store(&call->server->state, upload, call->request->part_number, body,
                   upload->checksums);
    s3f_begin_xml(call->reply, "CopyPartResult");
    s3f_say(&call->reply->body, "<ETag>&quot;%s&quot;</ETag>", body->etag);
    if (upload->checksums) {
        char checksum[16];
        s3f_checksum_text(body->crc32c, checksum);
        s3f_say(&call->reply->body, "<ChecksumCRC32C>%s</ChecksumCRC32C>", checksum);
    }
    s3f_say(&call->reply->body, "</CopyPartResult>");
}

void s3f_do_part(const struct s3f_call *call) {
    const struct s3f_request *request = call->request;
    const struct s3f_profile *profile = call->server->options.profile;
    struct s3f_upload *upload = find_upload(call);
    const char *checksum = s3f_header(request, "x-amz-checksum-crc32c");
    if (!upload || upload->completed) {
        no_such_upload(call);
        return;
    }
    REFUSE_IF(request->part_number > profile->part_count_max, call->reply, 400, "InvalidArgument",
              "Part number must be at most %" PRIu32, profile->part_count_max);
    if (s3f_header(request, "x-amz-copy-source")) {
        copy_part(call, upload);
        return;
    }
    REFUSE_IF(profile->checksums && upload->checksums != (checksum != NULL), call->reply, 400,
              "InvalidRequest",
              "Checksum Type mismatch occurred, expected checksum Type: %s, actual "
              "checksum Type: %s",
              upload->checksums ? "crc32c" : "null", checksum ? "crc32c" : "null");
    s3f_name_etag(call, call->body);
    call->body->references++;
    s3f_part_store(&call->server->state, upload, request->part_number, call->body,
                   upload->checksums);
    call->reply->status = 200;
    s3f_say_etag(call, call->body->etag);
    if (upload->checksums)
        s3f_say(&call->reply->headers, "x-amz-checksum-crc32c: %s\r\n", checksum);
}

/* ---- complete ---- */

struct chosen {
    uint64_t number;
    char etag[96], checksum[16];
};
struct completion {
    const struct s3f_call *call;
    struct s3f_upload *upload;
    struct chosen *parts;
    size_t count, capacity;
};

static bool on_part(void *owner, const char *path, const char *value) {
    static const char root[] = "CompleteMultipartUpload", part[] = "CompleteMultipartUpload/Part";
    struct completion *completion = owner;
    if (!strcmp(path, root)) return !value;
    if (!strcmp(path, part)) {
        if (value) return false;
        if (completion->count == completion->capacity) {
            completion->capacity = completion->capacity * 2 + 64;
            completion->parts =
                realloc(completion->parts, completion->capacity * sizeof *completion->parts);
            if (!completion->parts) abort();
        }
        completion->parts[completion->count++] = (struct chosen){0};
        return true;
    }
    if (!value || !completion->count || strncmp(path, part, sizeof part - 1) != 0) return false;
    struct chosen *chosen = &completion->parts[completion->count - 1];
    const char *name = path + sizeof part;
    if (!strcmp(name, "PartNumber"))
        return cairn_parse_u64(cairn_view_of(value), &chosen->number, NULL) == CAIRN_OK;
    if (!strcmp(name, "ETag")) return cairn_text_copy(chosen->etag, sizeof chosen->etag, value);
    return !strcmp(name, "ChecksumCRC32C") &&
           cairn_text_copy(chosen->checksum, sizeof chosen->checksum, value);
}

static bool refuse_part(const struct completion *completion, const char *code, const char *what,
                        uint64_t number) {
    s3f_refuse(completion->call->reply, 400, code, "%s: part %" PRIu64, what, number);
    return false;
}

static bool part_fits(const struct completion *completion, size_t index) {
    const struct s3f_profile *profile = completion->call->server->options.profile;
    const struct s3f_upload *upload = completion->upload;
    const struct chosen *chosen = &completion->parts[index];
    uint64_t number = chosen->number;
    bool last = index + 1 == completion->count;
    if (number < 1 || number > profile->part_count_max)
        return refuse_part(completion, "InvalidArgument", "its number is out of range", number);
    const struct s3f_part *part = s3f_part_find(upload, (uint32_t)number);
    if (!part || !same_etag(chosen->etag, part->body->etag))
        return refuse_part(completion, "InvalidPart", "absent, or its ETag differs", number);
    if (!last && part->body->size < profile->part_bytes_min)
        return refuse_part(completion, "EntityTooSmall", "smaller than the least size", number);
    const struct s3f_part *first = s3f_part_find(upload, (uint32_t)completion->parts[0].number);
    if (profile->equal_parts &&
        (last ? part->body->size > first->body->size : part->body->size != first->body->size))
        return refuse_part(completion, "InvalidPart",
                           "all parts but the last must have the same length", number);
    char checksum[16];
    s3f_checksum_text(part->body->crc32c, checksum);
    if (chosen->checksum[0] && strcmp(chosen->checksum, checksum) != 0 && profile->checksums)
        return refuse_part(completion, "InvalidPart", "its checksum differs", number);
    if (chosen->checksum[0] && profile->checksums && !upload->checksums)
        return refuse_part(completion, "InvalidRequest", "the upload has no checksums", number);
    if (!chosen->checksum[0] && upload->checksums && !upload->checksum_full)
        return refuse_part(completion, "InvalidRequest",
                           "The complete request must include the checksum for each part", number);
    return true;
}

static bool upload_fits(const struct completion *completion) {
    const struct s3f_profile *profile = completion->call->server->options.profile;
    struct s3f_reply *reply = completion->call->reply;
    if (completion->count > 10000) {
        s3f_refuse(reply, 400, "MalformedXML", "more than 10,000 parts");
        return false;
    }
    for (size_t i = 1; i < completion->count; i++)
        if (completion->parts[i].number <= completion->parts[i - 1].number)
            return refuse_part(completion, "InvalidPartOrder", "not in ascending order",
                               completion->parts[i].number);
    for (size_t i = 0; i < completion->count; i++)
        if (!part_fits(completion, i)) return false;
    if (!profile->complete_subset && completion->count != completion->upload->part_count) {
        s3f_refuse(reply, 400, "InvalidPart", "some uploaded parts are left out");
        return false;
    }
    return true;
}

/* The parts' bodies, as one object; md5 of md5s where all are known. */
static struct s3f_object *join(const struct completion *completion) {
    const struct s3f_upload *upload = completion->upload;
    struct s3f_object *object =
        s3f_object_new(upload->bucket, upload->key, upload->metadata, completion->count);
    EVP_MD_CTX *md5 = EVP_MD_CTX_new();
    if (!md5 || !EVP_DigestInit_ex(md5, EVP_md5(), NULL)) abort();
    for (size_t i = 0; i < completion->count; i++) {
        struct s3f_body *body = s3f_part_find(upload, (uint32_t)completion->parts[i].number)->body;
        object->bodies[i] = body;
        body->references++;
        object->size += body->size;
        object->crc32c = cairn_crc32c_combine(object->crc32c, body->crc32c, body->size);
        EVP_DigestUpdate(md5, body->has_md5 ? (void *)body->md5 : (void *)body->etag, 16);
    }
    uint8_t digest[16];
    EVP_DigestFinal_ex(md5, digest, NULL);
    EVP_MD_CTX_free(md5);
    for (size_t i = 0; i < 16; i++) snprintf(object->etag + 2 * i, 3, "%02x", digest[i]);
    snprintf(object->etag + 32, sizeof object->etag - 32, "-%zu", completion->count);
    return object;
}

/* CRC-32 of IEEE 802.3, which is not CRC32C. */
static uint32_t crc32_of(const struct s3f_object *object) {
    uint32_t crc = UINT32_MAX;
    for (size_t i = 0; i < object->body_count; i++)
        for (uint64_t at = 0; at < object->bodies[i]->size && object->bodies[i]->bytes; at++) {
            crc ^= object->bodies[i]->bytes[at];
            for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? UINT32_C(0xedb88320) : 0);
        }
    return ~crc;
}

/* What the store tells of the whole: its own checksum, or that of the parts' checksums. */
static void tell_checksum(const struct completion *completion, struct s3f_object *object) {
    const struct s3f_upload *upload = completion->upload;
    bool broken = completion->call->server->options.profile->tells_crc32;
    if (!upload->checksums) return;
    uint32_t crc32c = broken ? crc32_of(object) : object->crc32c;
    for (size_t i = 0; i < object->body_count && !upload->checksum_full && !broken; i++) {
        uint8_t bytes[4];
        for (int j = 0; j < 4; j++) bytes[j] = (uint8_t)(object->bodies[i]->crc32c >> (24 - 8 * j));
        crc32c = cairn_crc32c(i ? crc32c : 0, bytes, 4);
    }
    s3f_checksum_text(crc32c, object->checksum);
    if (upload->checksum_full || broken) return;
    object->checksum_type = "COMPOSITE";
    snprintf(object->checksum + 8, sizeof object->checksum - 8, "-%zu", object->body_count);
}

static bool whole_fits(const struct completion *completion, const struct s3f_object *object) {
    const struct s3f_request *request = completion->call->request;
    struct s3f_reply *reply = completion->call->reply;
    if (!completion->call->server->options.profile->checksums) return true;
    const char *checksum = s3f_header(request, "x-amz-checksum-crc32c");
    const char *type = s3f_header(request, "x-amz-checksum-type");
    const char *size_text = s3f_header(request, "x-amz-mp-object-size");
    uint64_t size = object->size;
    if (type && (!completion->upload->checksums || strcmp(type, object->checksum_type) != 0)) {
        s3f_refuse(reply, 400, "InvalidRequest", "the upload has another checksum type");
        return false;
    }
    if (checksum && strcmp(checksum, object->checksum) != 0) {
        s3f_refuse(reply, 400, completion->upload->checksums ? "BadDigest" : "InvalidRequest",
                   "The checksum of the whole differs, or the upload has none");
        return false;
    }
    if (size_text && (cairn_parse_u64(cairn_view_of(size_text), &size, NULL) != CAIRN_OK ||
                      size != object->size)) {
        s3f_refuse(reply, 400, "InvalidRequest", "x-amz-mp-object-size differs");
        return false;
    }
    return true;
}

static void tell_completed(const struct s3f_call *call, const struct s3f_object *object) {
    s3f_begin_xml(call->reply, "CompleteMultipartUploadResult");
    s3f_say(&call->reply->body, "<Location>http://s3fault/%s</Location><Bucket>%s</Bucket>",
            object->bucket, object->bucket);
    s3f_say_key(call, "Key", object->key);
    s3f_say(&call->reply->body, "<ETag>&quot;%s&quot;</ETag>", object->etag);
    if (object->checksum[0])
        s3f_say(&call->reply->body,
                "<ChecksumCRC32C>%s</ChecksumCRC32C><ChecksumType>%s</ChecksumType>",
                object->checksum, object->checksum_type);
    s3f_say(&call->reply->body, "</CompleteMultipartUploadResult>");
    s3f_say_version(call, object->version_id);
}

static void complete_open(struct completion *completion) {
    const struct s3f_call *call = completion->call;
    struct s3f_state *state = &call->server->state;
    const struct s3f_body *body = call->body;
    REFUSE_IF(!body || !s3f_xml_read((const char *)body->bytes, body->size, on_part, completion) ||
                  completion->count == 0,
              call->reply, 400, "MalformedXML",
              "The XML you provided was not well-formed or did not validate");
    if (!upload_fits(completion)) return;
    struct s3f_object *object = join(completion);
    tell_checksum(completion, object);
    if (!whole_fits(completion, object) ||
        !s3f_may_create(call, call->server->options.profile->create_complete)) {
        s3f_object_drop(state, object);
        return;
    }
    cairn_text_copy(completion->upload->etag, sizeof completion->upload->etag, object->etag);
    s3f_object_store(state, object);
    tell_completed(call, object);
    s3f_upload_complete(state, completion->upload);
}

void s3f_do_complete(const struct s3f_call *call) {
    const struct s3f_request *request = call->request;
    struct completion completion = {.call = call, .upload = find_upload(call)};
    if (!completion.upload) {
        no_such_upload(call);
    } else if (completion.upload->completed) {
        const struct s3f_object *object =
            s3f_object_find(&call->server->state, request->bucket, request->key);
        bool same = object && !strcmp(object->etag, completion.upload->etag);
        if (same && call->server->options.profile->complete_again)
            tell_completed(call, object);
        else
            no_such_upload(call);
    } else {
        complete_open(&completion);
    }
    free(completion.parts);
}

void s3f_do_abort(const struct s3f_call *call) {
    struct s3f_upload *upload = find_upload(call);
    if (!upload || upload->completed) {
        no_such_upload(call);
        return;
    }
    s3f_upload_remove(&call->server->state, upload);
    call->reply->status = 204;
}

/* ---- listings ---- */

void s3f_do_parts(const struct s3f_call *call) {
    const struct s3f_upload *upload = find_upload(call);
    struct cairn_buf *body = &call->reply->body;
    uint64_t most, marker;
    if (!s3f_take_number(call, "max-parts", PAGE_MAX, PAGE_MAX, &most) ||
        !s3f_take_number(call, "part-number-marker", 0, 10000, &marker))
        return;
    REFUSE_IF(!upload || upload->completed, call->reply, 404, call->server->options.profile->gone,
              "no such upload");
    most = cairn_min_u64(most, call->server->options.page_max);
    const char *broken = call->server->options.profile->parts_root;
    const char *root = *broken ? broken : "ListPartsResult";
    s3f_begin_xml(call->reply, root);
    s3f_say(body, "<Bucket>%s</Bucket>", upload->bucket);
    s3f_say_key(call, "Key", upload->key);
    s3f_say(body, "<UploadId>%s</UploadId><PartNumberMarker>%" PRIu64 "</PartNumberMarker>",
            upload->id, marker);
    size_t i = 0, shown = 0;
    while (i < upload->part_count && upload->parts[i].number <= marker) i++;
    for (; i < upload->part_count && shown < most; i++, shown++) {
        const struct s3f_part *part = &upload->parts[i];
        char time[32], checksum[16];
        s3f_time_iso(part->modified_ms, time);
        s3f_checksum_text(part->body->crc32c, checksum);
        s3f_say(body,
                "<Part><PartNumber>%" PRIu32 "</PartNumber><LastModified>%s"
                "</LastModified><ETag>&quot;",
                part->number, time);
        s3f_say_xml(body, part->body->etag);
        s3f_say(body, "&quot;</ETag><Size>%" PRIu64 "</Size>", part->body->size);
        if (part->has_checksum) s3f_say(body, "<ChecksumCRC32C>%s</ChecksumCRC32C>", checksum);
        s3f_say(body, "</Part>");
        marker = part->number;
    }
    bool more = i < upload->part_count;
    if (s3f_plan_find(call->plan, S3F_DO_ENDLESS_LIST)) more = true;
    if (upload->checksums)
        s3f_say(body,
                "<ChecksumAlgorithm>CRC32C</ChecksumAlgorithm><ChecksumType>%s"
                "</ChecksumType>",
                upload->checksum_full ? "FULL_OBJECT" : "COMPOSITE");
    if (more) s3f_say(body, "<NextPartNumberMarker>%" PRIu64 "</NextPartNumberMarker>", marker);
    s3f_say(body, "<MaxParts>%" PRIu64 "</MaxParts><IsTruncated>%s</IsTruncated></%s>", most,
            more ? "true" : "false", root);
}

/* Behind the marker: a later key, or the same with a later upload. */
static bool is_behind(const struct s3f_upload *upload, const char *key_marker,
                      const char *id_marker, bool *seen_marker) {
    if (!key_marker || !*key_marker) return true;
    int result = strcmp(upload->key, key_marker);
    if (result) return result > 0;
    if (!id_marker || !*id_marker) return false;
    bool behind = *seen_marker;
    if (!strcmp(upload->id, id_marker)) *seen_marker = true;
    return behind;
}

void s3f_do_uploads(const struct s3f_call *call) {
    const struct s3f_state *state = &call->server->state;
    const struct s3f_request *request = call->request;
    const char *prefix = s3f_query(request, "prefix");
    const char *key_marker = s3f_query(request, "key-marker");
    const char *id_marker = s3f_query(request, "upload-id-marker");
    struct cairn_buf *body = &call->reply->body;
    uint64_t most;
    if (!s3f_take_number(call, "max-uploads", PAGE_MAX, PAGE_MAX, &most)) return;
    most = cairn_min_u64(most, call->server->options.page_max);
    bool none = s3f_plan_find(call->plan, S3F_DO_NO_UPLOADS_LISTED) != NULL;
    bool exact = !call->server->options.profile->lists_by_prefix, more = false, seen = false;
    const struct s3f_upload *last = NULL;
    bool all = s3f_ignores_prefix(call, true), repeats = s3f_repeats_pages(call);
    if (!prefix) prefix = "";
    s3f_begin_xml(call->reply, "ListMultipartUploadsResult");
    s3f_say(body, "<Bucket>%s</Bucket>", request->bucket);
    s3f_say_key(call, "Prefix", prefix);
    size_t shown = 0;
    for (size_t i = 0; i < state->upload_count && !more && !none; i++) {
        const struct s3f_upload *upload = state->uploads[i];
        bool fits = exact ? !strcmp(upload->key, prefix) : cairn_text_starts(upload->key, prefix);
        fits |= all;
        if (upload->completed || strcmp(upload->bucket, request->bucket) != 0 || !fits) continue;
        if (!repeats && !is_behind(upload, key_marker, id_marker, &seen)) continue;
        more = shown++ == most;
        if (more) break;
        char time[32];
        s3f_time_iso(upload->begun_ms, time);
        s3f_say(body, "<Upload>");
        s3f_say_key(call, "Key", upload->key);
        s3f_say(body, "<UploadId>%s</UploadId><Initiated>%s</Initiated></Upload>", upload->id,
                time);
        last = upload;
    }
    more |= repeats && last;
    if (more && last) {
        s3f_say_key(call, "NextKeyMarker", last->key);
        s3f_say(body, "<NextUploadIdMarker>%s</NextUploadIdMarker>", last->id);
    }
    s3f_say(body,
            "<MaxUploads>%" PRIu64 "</MaxUploads><IsTruncated>%s</IsTruncated>"
            "</ListMultipartUploadsResult>",
            most, more ? "true" : "false");
}
