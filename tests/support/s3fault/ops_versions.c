/* SPDX-License-Identifier: Apache-2.0 */
/* ops_versions: ListObjectVersions, pages by key and id. */
#include <inttypes.h>
#include <stdio.h>

#include "common/text.h"
#include "tests/support/s3fault/ops.h"
#include "tests/support/s3fault/versions.h"

#define PAGE_MAX 1000

static void say_version(const struct cairn_s3f_call *call, const struct cairn_s3f_version *version,
                        bool latest) {
    struct cairn_buf *body = &call->reply->body;
    const char *name = version->object ? "Version" : "DeleteMarker";
    char time[32];
    cairn_s3f_time_iso(version->modified_ms, time);
    cairn_s3f_say(body, "<%s>", name);
    cairn_s3f_say_key(call, "Key", version->key);
    cairn_s3f_say(body, "<VersionId>");
    cairn_s3f_say_xml(body, version->id);
    cairn_s3f_say(body, "</VersionId><IsLatest>%s</IsLatest><LastModified>%s</LastModified>",
                  latest ? "true" : "false", time);
    if (version->object) {
        cairn_s3f_say(body, "<ETag>&quot;");
        cairn_s3f_say_xml(body, version->object->etag);
        cairn_s3f_say(body, "&quot;</ETag><Size>%" PRIu64 "</Size>", version->object->size);
        cairn_s3f_say(body, "<StorageClass>STANDARD</StorageClass>");
    }
    cairn_s3f_say(body, "<Owner><ID>s3fault</ID></Owner></%s>", name);
}

/* Where a page begins: behind this id of this key, or behind all of the key. */
static size_t begin_at(const struct cairn_s3f_state *state, const char *bucket, const char *key,
                       const char *id) {
    size_t place = cairn_s3f_version_place(state, bucket, key);
    while (*key && place < state->version_count) {
        const struct cairn_s3f_version *version = state->versions[place];
        if (strcmp(version->bucket, bucket) != 0 || strcmp(version->key, key) != 0) break;
        place++;
        if (id && !strcmp(version->id, id)) break;
    }
    return place;
}

static void list_from(const struct cairn_s3f_call *call, const char *prefix, size_t place,
                      uint64_t most) {
    const struct cairn_s3f_state *state = &call->server->state;
    const char *bucket = call->request->bucket;
    const struct cairn_s3f_version *last = NULL;
    bool more = false;
    size_t begin = cairn_s3f_version_place(state, bucket, prefix);
    uint64_t shown = 0;
    for (size_t i = place > begin ? place : begin; i < state->version_count; i++) {
        const struct cairn_s3f_version *version = state->versions[i];
        if (strcmp(version->bucket, bucket) != 0 || !cairn_text_starts(version->key, prefix)) break;
        more = shown == most;
        if (more) break;
        say_version(call, version,
                    version == cairn_s3f_version_newest(state, bucket, version->key));
        last = version;
        shown++;
    }
    if (more && last) {
        cairn_s3f_say_key(call, "NextKeyMarker", last->key);
        cairn_s3f_say(&call->reply->body, "<NextVersionIdMarker>");
        cairn_s3f_say_xml(&call->reply->body, last->id);
        cairn_s3f_say(&call->reply->body, "</NextVersionIdMarker>");
    }
    cairn_s3f_say(&call->reply->body,
                  "<MaxKeys>%" PRIu64 "</MaxKeys><IsTruncated>%s</IsTruncated>"
                  "</ListVersionsResult>",
                  most, more ? "true" : "false");
}

void cairn_s3f_do_versions(const struct cairn_s3f_call *call) {
    const struct cairn_s3f_request *request = call->request;
    const char *prefix = cairn_s3f_query(request, "prefix");
    const char *key = cairn_s3f_query(request, "key-marker");
    const char *id = cairn_s3f_query(request, "version-id-marker");
    const char *delimiter = cairn_s3f_query(request, "delimiter");
    uint64_t most;
    if (delimiter && *delimiter) {
        cairn_s3f_refuse(call->reply, 501, "NotImplemented", "no delimiter is taken");
        return;
    }
    if (id && (!key || !*key)) {
        cairn_s3f_refuse(call->reply, 400, "InvalidArgument",
                         "A version-id marker cannot be specified without a key marker.");
        return;
    }
    if (!cairn_s3f_take_number(call, "max-keys", PAGE_MAX, PAGE_MAX, &most)) return;
    most = cairn_min_u64(most, call->server->options.page_max);
    cairn_s3f_begin_xml(call->reply, "ListVersionsResult");
    cairn_s3f_say(&call->reply->body, "<Name>%s</Name>", request->bucket);
    cairn_s3f_say_key(call, "Prefix", prefix ? prefix : "");
    if (cairn_s3f_query(request, "encoding-type"))
        cairn_s3f_say(&call->reply->body, "<EncodingType>url</EncodingType>");
    size_t place = key ? begin_at(&call->server->state, request->bucket, key, id) : 0;
    list_from(call, !prefix || cairn_s3f_ignores_prefix(call, false) ? "" : prefix, place, most);
}
