/* SPDX-License-Identifier: Apache-2.0 */
/* ops_bucket: listings, buckets and the few settings of them that are asked about. */

#include "tests/support/s3fault/ops.h"

#define PAGE_MAX 1000
#define STALE_MS 10000

/* ---- list ---- */

/* A token is made of the last key, in a form that only this server reads. */
static void say_token(const struct s3f_call *call, const char *name, const char *key) {
    struct cairn_buf *body = &call->reply->body;
    s3f_say(body, "<%s>ct+", name);
    for (; *key; key++) s3f_say(body, "%02x", (unsigned char)*key);
    s3f_say(body, "=</%s>", name);
}

static bool read_token(const char *token, char *ret, size_t capacity) {
    size_t size = 0;
    if (strncmp(token, "ct+", 3) != 0) return false;
    for (token += 3; isxdigit((unsigned char)token[0]) && isxdigit((unsigned char)token[1]);
         token += 2) {
        char pair[3] = {token[0], token[1], '\0'};
        if (size + 1 == capacity) return false;
        ret[size++] = (char)strtoul(pair, NULL, 16);
    }
    ret[size] = '\0';
    return !strcmp(token, "=");
}

static void say_object(const struct s3f_call *call, const struct s3f_object *object) {
    struct cairn_buf *body = &call->reply->body;
    char time[32];
    s3f_time_iso(object->modified_ms, time);
    s3f_say(body, "<Contents>");
    s3f_say_key(call, "Key", object->key);
    s3f_say(body, "<LastModified>%s</LastModified><ETag>&quot;", time);
    s3f_say_xml(body, object->etag);
    s3f_say(body,
            "&quot;</ETag><Size>%" PRIu64 "</Size><StorageClass>STANDARD</StorageClass>"
            "</Contents>",
            object->size);
}

/* Objects younger than this are not seen by this listing. */
static int64_t youngest_shown(const struct s3f_call *call) {
    const struct s3f_action *stale = s3f_plan_find(call->plan, S3F_DO_STALE_LIST);
    if (!stale) return INT64_MAX;
    return s3f_now_ms(&call->server->state) - (stale->number ? stale->number : STALE_MS);
}

bool s3f_ignores_prefix(const struct s3f_call *call, bool uploads) {
    const struct s3f_profile *profile = call->server->options.profile;
    return s3f_plan_find(call->plan, S3F_DO_IGNORE_PREFIX) ||
           (uploads ? profile->uploads_ignore_prefix : profile->objects_ignore_prefix);
}

bool s3f_repeats_pages(const struct s3f_call *call) {
    return s3f_plan_find(call->plan, S3F_DO_REPEAT_PAGES) ||
           call->server->options.profile->pages_repeat;
}

static void list_from(const struct s3f_call *call, const char *prefix, const char *after,
                      uint64_t most) {
    const struct s3f_state *state = &call->server->state;
    struct cairn_buf *body = &call->reply->body;
    const char *bucket = call->request->bucket, *last = after;
    int64_t youngest = youngest_shown(call);
    size_t shown = 0, i = s3f_object_place(state, bucket, prefix);
    bool more = false;
    for (; i < state->object_count; i++) {
        const struct s3f_object *object = state->objects[i];
        if (strcmp(object->bucket, bucket) != 0 || !cairn_text_starts(object->key, prefix)) break;
        if (strcmp(object->key, after) <= 0 || object->modified_ms > youngest) continue;
        more = shown == most;
        if (more) break;
        say_object(call, object);
        last = object->key;
        shown++;
    }
    bool endless = s3f_plan_find(call->plan, S3F_DO_ENDLESS_LIST) != NULL;
    bool repeats = shown && s3f_repeats_pages(call);
    char unique[32];
    snprintf(unique, sizeof unique, "%" PRIu64, ++call->server->state.pages_told);
    bool lost = s3f_plan_find(call->plan, S3F_DO_NO_TOKEN) != NULL;
    if (endless || repeats || lost) more = true;
    if (more && !lost)
        say_token(call, "NextContinuationToken", repeats ? unique : endless ? "again" : last);
    s3f_say(body,
            "<KeyCount>%zu</KeyCount><MaxKeys>%" PRIu64 "</MaxKeys><IsTruncated>%s"
            "</IsTruncated></ListBucketResult>",
            shown, most, more ? "true" : "false");
}

void s3f_do_list(const struct s3f_call *call) {
    const struct s3f_request *request = call->request;
    const char *token = s3f_query(request, "continuation-token");
    const char *start = s3f_query(request, "start-after");
    const char *prefix = s3f_query(request, "prefix");
    const char *delimiter = s3f_query(request, "delimiter");
    const char *type = s3f_query(request, "list-type");
    char after[1100] = "";
    uint64_t most;
    REFUSE_IF(strcmp(type, "2") != 0 || (delimiter && *delimiter), call->reply, 501,
              "NotImplemented", "only ListObjectsV2 without a delimiter is there");
    REFUSE_IF(token && !read_token(token, after, sizeof after), call->reply, 400, "InvalidArgument",
              "The continuation token provided is incorrect");
    if (!token && start) cairn_text_copy(after, sizeof after, start);
    if (s3f_repeats_pages(call)) after[0] = '\0';
    if (!s3f_take_number(call, "max-keys", PAGE_MAX, PAGE_MAX, &most)) return;
    most = cairn_min_u64(most, call->server->options.page_max);
    s3f_begin_xml(call->reply, "ListBucketResult");
    s3f_say(&call->reply->body, "<Name>%s</Name>", request->bucket);
    s3f_say_key(call, "Prefix", prefix ? prefix : "");
    if (s3f_query(request, "encoding-type"))
        s3f_say(&call->reply->body, "<EncodingType>url</EncodingType>");
    list_from(call, !prefix || s3f_ignores_prefix(call, false) ? "" : prefix, after, most);
}

/* ---- buckets ---- */

static void create_bucket(const struct s3f_call *call) {
    struct s3f_state *state = &call->server->state;
    const char *name = call->request->bucket;
    if (s3f_has_bucket(state, name)) {
        s3f_refuse(call->reply, 409, "BucketAlreadyOwnedByYou", "it is there already");
    } else if (state->bucket_count == CAIRN_COUNT(state->buckets)) {
        s3f_refuse(call->reply, 400, "TooManyBuckets", "no room for another bucket");
    } else {
        cairn_text_copy(state->buckets[state->bucket_count++], sizeof state->buckets[0], name);
        call->reply->status = 200;
        s3f_say(&call->reply->headers, "Location: /%s\r\n", name);
    }
}

static void delete_bucket(const struct s3f_call *call) {
    struct s3f_state *state = &call->server->state;
    const char *name = call->request->bucket;
    size_t place = s3f_version_place(state, name, "");
    REFUSE_IF(place < state->version_count && !strcmp(state->versions[place]->bucket, name),
              call->reply, 409, "BucketNotEmpty", "The bucket is not empty");
    for (size_t i = 0; i < state->bucket_count; i++) {
        if (strcmp(state->buckets[i], name) != 0) continue;
        memmove(state->buckets[i], state->buckets[state->bucket_count - 1],
                sizeof state->buckets[0]);
        state->bucket_count--;
        break;
    }
    call->reply->status = 204;
}

static void list_buckets(const struct s3f_call *call) {
    const struct s3f_state *state = &call->server->state;
    s3f_begin_xml(call->reply, "ListAllMyBucketsResult");
    s3f_say(&call->reply->body, "<Owner><ID>s3fault</ID></Owner><Buckets>");
    for (size_t i = 0; i < state->bucket_count; i++)
        s3f_say(&call->reply->body,
                "<Bucket><Name>%s</Name><CreationDate>2020-01-01T00:00:00.000Z"
                "</CreationDate></Bucket>",
                state->buckets[i]);
    s3f_say(&call->reply->body, "</Buckets></ListAllMyBucketsResult>");
}

/* A document as it was given; without one, this error. */
static void tell_document(const struct s3f_call *call, const struct cairn_buf *document,
                          const char *absent, const char *why) {
    REFUSE_IF(!document->size, call->reply, 404, absent, "%s", why);
    call->reply->status = 200;
    s3f_say(&call->reply->headers, "Content-Type: application/xml\r\n");
    s3f_say(&call->reply->body, "%s", document->data);
}

static void tell_versioning(const struct s3f_call *call) {
    if (call->server->state.versioning.size) {
        tell_document(call, &call->server->state.versioning, "", "");
        return;
    }
    s3f_begin_xml(call->reply, "VersioningConfiguration");
    s3f_say(&call->reply->body, "</VersioningConfiguration>");
}

static void keep_lifecycle(const struct s3f_call *call) {
    struct cairn_buf *lifecycle = &call->server->state.lifecycle;
    cairn_buf_clear(lifecycle);
    if (call->body)
        s3f_say(lifecycle, "%.*s", (int)call->body->size, (const char *)call->body->bytes);
    call->reply->status = 200;
}

void s3f_do_bucket(const struct s3f_call *call) {
    struct s3f_reply *reply = call->reply;
    const char *region = call->server->options.region;
    switch (call->request->op) {
    case S3F_BUCKETS:
        list_buckets(call);
        return;
    case S3F_BUCKET_CREATE:
        create_bucket(call);
        return;
    case S3F_BUCKET_DELETE:
        delete_bucket(call);
        return;
    case S3F_LIFECYCLE:
        tell_document(call, &call->server->state.lifecycle, "NoSuchLifecycleConfiguration",
                      "The lifecycle configuration does not exist");
        return;
    case S3F_LIFECYCLE_PUT:
        keep_lifecycle(call);
        return;
    case S3F_BUCKET_HEAD:
        reply->status = 200;
        s3f_say(&reply->headers, "x-amz-bucket-region: %s\r\n", region);
        return;
    case S3F_LOCATION:
        s3f_begin_xml(reply, "LocationConstraint");
        if (strcmp(region, "us-east-1") != 0) s3f_say(&reply->body, "%s", region);
        s3f_say(&reply->body, "</LocationConstraint>");
        return;
    case S3F_OBJECT_LOCK:
        tell_document(call, &call->server->state.object_lock,
                      "ObjectLockConfigurationNotFoundError",
                      "Object Lock configuration does not exist for this bucket");
        return;
    default:
        tell_versioning(call);
    }
}

/* ---- all operations ---- */

void s3f_apply(const struct s3f_call *call) {
    static s3f_operation *const operations[S3F_OP_COUNT] = {
        [S3F_PUT] = s3f_do_put,
        [S3F_GET] = s3f_do_get,
        [S3F_HEAD] = s3f_do_get,
        [S3F_DELETE] = s3f_do_delete,
        [S3F_DELETE_VERSION] = s3f_do_delete,
        [S3F_DELETE_MANY] = s3f_do_delete_many,
        [S3F_CREATE] = s3f_do_create,
        [S3F_PART] = s3f_do_part,
        [S3F_COMPLETE] = s3f_do_complete,
        [S3F_ABORT] = s3f_do_abort,
        [S3F_PARTS] = s3f_do_parts,
        [S3F_UPLOADS] = s3f_do_uploads,
        [S3F_LIST] = s3f_do_list,
        [S3F_VERSIONS] = s3f_do_versions,
    };
    enum s3f_op op = call->request->op;
    CAIRN_HOLD(&call->server->lock);
    REFUSE_IF(op != S3F_BUCKETS && op != S3F_BUCKET_CREATE &&
                  !s3f_has_bucket(&call->server->state, call->request->bucket),
              call->reply, 404, "NoSuchBucket", "The specified bucket does not exist");
    s3f_operation *operation = operations[op];
    (operation ? operation : s3f_do_bucket)(call);
}
