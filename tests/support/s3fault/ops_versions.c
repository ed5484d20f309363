/* SPDX-License-Identifier: Apache-2.0 */
/* ops_versions: ListObjectVersions, pages by key and id. */

#include "tests/support/s3fault/ops.h"

#define PAGE_MAX 1000

static void say_version(const struct s3f_call *call, const struct s3f_version *version,
                        bool latest) {
    struct cairn_buf *body = &call->reply->body;
    const char *name = version->object ? "Version" : "DeleteMarker";
    char time[32];
    s3f_time_iso(version->modified_ms, time);
    s3f_say(body, "<%s>", name);
    s3f_say_key(call, "Key", version->key);
    s3f_say(body, "<VersionId>");
    s3f_say_xml(body, version->id);
    s3f_say(body, "</VersionId><IsLatest>%s</IsLatest><LastModified>%s</LastModified>",
            latest ? "true" : "false", time);
    if (version->object) {
        s3f_say(body, "<ETag>&quot;");
        s3f_say_xml(body, version->object->etag);
        s3f_say(body, "&quot;</ETag><Size>%" PRIu64 "</Size>", version->object->size);
        s3f_say(body, "<StorageClass>STANDARD</StorageClass>");
    }
    s3f_say(body, "<Owner><ID>s3fault</ID></Owner></%s>", name);
}

/* Where a page begins: behind this id of this key, or behind all of the key. */
static size_t begin_at(const struct s3f_state *state, const char *bucket, const char *key,
                       const char *id) {
    size_t place = s3f_version_place(state, bucket, key);
    while (*key && place < state->version_count) {
        const struct s3f_version *version = state->versions[place];
        if (strcmp(version->bucket, bucket) != 0 || strcmp(version->key, key) != 0) break;
        place++;
        if (id && !strcmp(version->id, id)) break;
    }
    return place;
}

static void list_from(const struct s3f_call *call, const char *prefix, size_t place,
                      uint64_t most) {
    const struct s3f_state *state = &call->server->state;
    const char *bucket = call->request->bucket;
    const struct s3f_version *last = NULL;
    bool more = false;
    size_t begin = s3f_version_place(state, bucket, prefix);
    uint64_t shown = 0;
    for (size_t i = place > begin ? place : begin; i < state->version_count; i++) {
        const struct s3f_version *version = state->versions[i];
        if (strcmp(version->bucket, bucket) != 0 || !cairn_text_starts(version->key, prefix)) break;
        more = shown == most;
        if (more) break;
        say_version(call, version, version == s3f_version_newest(state, bucket, version->key));
        last = version;
        shown++;
    }
    if (more && last) {
        s3f_say_key(call, "NextKeyMarker", last->key);
        s3f_say(&call->reply->body, "<NextVersionIdMarker>");
        s3f_say_xml(&call->reply->body, last->id);
        s3f_say(&call->reply->body, "</NextVersionIdMarker>");
    }
    s3f_say(&call->reply->body,
            "<MaxKeys>%" PRIu64 "</MaxKeys><IsTruncated>%s</IsTruncated>"
            "</ListVersionsResult>",
            most, more ? "true" : "false");
}

void s3f_do_versions(const struct s3f_call *call) {
    const struct s3f_request *request = call->request;
    const char *prefix = s3f_query(request, "prefix");
    const char *key = s3f_query(request, "key-marker");
    const char *id = s3f_query(request, "version-id-marker");
    const char *delimiter = s3f_query(request, "delimiter");
    uint64_t most;
    REFUSE_IF(delimiter && *delimiter, call->reply, 501, "NotImplemented", "no delimiter is taken");
    REFUSE_IF(id && (!key || !*key), call->reply, 400, "InvalidArgument",
              "A version-id marker cannot be specified without a key marker.");
    if (!s3f_take_number(call, "max-keys", PAGE_MAX, PAGE_MAX, &most)) return;
    most = cairn_min_u64(most, call->server->options.page_max);
    s3f_begin_xml(call->reply, "ListVersionsResult");
    s3f_say(&call->reply->body, "<Name>%s</Name>", request->bucket);
    s3f_say_key(call, "Prefix", prefix ? prefix : "");
    if (s3f_query(request, "encoding-type"))
        s3f_say(&call->reply->body, "<EncodingType>url</EncodingType>");
    size_t place = key ? begin_at(&call->server->state, request->bucket, key, id) : 0;
    list_from(call, !prefix || s3f_ignores_prefix(call, false) ? "" : prefix, place, most);
}
