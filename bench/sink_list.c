/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Listings. Objects are sorted on each request: they are few and listings rare. A page's token is
 * the last key or common prefix of the page before.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/sink.h"
#include "common/text.h"

#define PAGE_KEYS 1000
#define NO_TIME "2026-03-02T10:14:07.000Z"

struct page {
    const struct sink_request *request;
    struct cairn_buf *ret;
    char bucket[256]; /* "/bench/", the prefix of the table's keys */
    struct cairn_buf prefix, delimiter, after;
};

static void page_release(struct page *page) {
    cairn_buf_release(&page->prefix);
    cairn_buf_release(&page->delimiter);
    cairn_buf_release(&page->after);
}

static enum cairn_code query_text(const struct sink_request *request, const char *name,
                                  struct cairn_buf *ret) {
    size_t size = strlen(name);
    for (const char *at = request->query; at && *at; at = strchr(at, '&')) {
        if (*at == '&') at++;
        if (strncmp(at, name, size) || at[size] != '=') continue;
        const char *value = at + size + 1;
        struct cairn_view text = {value, strcspn(value, "&")};
        return cairn_percent_decode(text, ret, NULL);
    }
    return CAIRN_OK;
}

static const char *text_of(const struct cairn_buf *buf) {
    return buf->size ? buf->data : "";
}

static enum cairn_code page_of(const struct sink_request *request, struct cairn_buf *ret,
                               struct page *page) {
    const char *slash = strchr(request->path + 1, '/');
    size_t bucket = slash ? (size_t)(slash - request->path) : strlen(request->path);
    page->request = request;
    page->ret = ret;
    snprintf(page->bucket, sizeof page->bucket, "%.*s/", (int)cairn_min_u64(bucket, 200),
             request->path);
    CAIRN_TRY(query_text(request, "prefix", &page->prefix));
    CAIRN_TRY(query_text(request, "delimiter", &page->delimiter));
    CAIRN_TRY(query_text(request, "continuation-token", &page->after));
    return page->after.size ? CAIRN_OK : query_text(request, "start-after", &page->after);
}

static const char *key_in(const struct page *page, const char *path) {
    size_t bucket = strlen(page->bucket);
    if (strncmp(path, page->bucket, bucket)) return NULL;
    const char *key = path + bucket;
    return strncmp(key, text_of(&page->prefix), page->prefix.size) ? NULL : key;
}

/* <NAME>text</NAME>, percent-encoded if requested. */
static enum cairn_code element(const struct page *page, const char *name, struct cairn_view text) {
    CAIRN_TRY(cairn_buf_printf(page->ret, NULL, "<%s>", name));
    CAIRN_TRY(sink_query_has(page->request, "encoding-type")
                  ? cairn_percent_encode(text, true, page->ret, NULL)
                  : cairn_buf_append(page->ret, text.data, text.size, NULL));
    return cairn_buf_printf(page->ret, NULL, "</%s>", name);
}

static int by_key(const void *a, const void *b) {
    const struct sink_object *const *x = a, *const *y = b;
    return strcmp((*x)->key, (*y)->key);
}

static enum cairn_code entry(const struct page *page, const struct sink_object *object,
                             const char *key) {
    CAIRN_TRY(cairn_buf_append_text(page->ret, "<Contents>", NULL));
    CAIRN_TRY(element(page, "Key", cairn_view_of(key)));
    return cairn_buf_printf(page->ret, NULL,
                            "<LastModified>" NO_TIME "</LastModified><ETag>\"%08x\"</ETag>"
                            "<Size>%llu</Size><StorageClass>STANDARD</StorageClass></Contents>",
                            object->crc32c, (unsigned long long)object->size_bytes);
}

/* The key up to the delimiter after the prefix, or all of it. */
static struct cairn_view shown(const struct page *page, const char *key) {
    const char *at =
        page->delimiter.size ? strstr(key + page->prefix.size, page->delimiter.data) : NULL;
    return (struct cairn_view){key, at ? (size_t)(at - key) + page->delimiter.size : strlen(key)};
}

static enum cairn_code list_page(const struct page *page, const struct sink_object **sorted,
                                 size_t count) {
    uint64_t room = sink_query_number(page->request, "max-keys", PAGE_KEYS), told = 0;
    struct cairn_view last = {0};
    for (size_t i = 0; i < count; i++) {
        const char *key = key_in(page, sorted[i]->key);
        if (!key) continue;
        struct cairn_view view = shown(page, key);
        const char *after = text_of(&page->after);
        size_t common = cairn_min_u64(view.size, page->after.size);
        int order = memcmp(key, after, common);
        if (order < 0 || (!order && view.size <= page->after.size)) continue;
        if (view.size == last.size && !memcmp(key, last.data, view.size)) continue;
        if (told == room) {
            CAIRN_TRY(element(page, "NextContinuationToken", last));
            return cairn_buf_append_text(page->ret, "<IsTruncated>true</IsTruncated>", NULL);
        }
        told++;
        last = view;
        if (view.size == strlen(key)) {
            CAIRN_TRY(entry(page, sorted[i], key));
            continue;
        }
        CAIRN_TRY(cairn_buf_append_text(page->ret, "<CommonPrefixes>", NULL));
        CAIRN_TRY(element(page, "Prefix", view));
        CAIRN_TRY(cairn_buf_append_text(page->ret, "</CommonPrefixes>", NULL));
    }
    return cairn_buf_append_text(page->ret, "<IsTruncated>false</IsTruncated>", NULL);
}

static enum cairn_code begin(const struct page *page, const char *name) {
    CAIRN_TRY(cairn_buf_printf(page->ret, NULL, SINK_XML "<%s>", name));
    if (sink_query_has(page->request, "encoding-type"))
        CAIRN_TRY(cairn_buf_append_text(page->ret, "<EncodingType>url</EncodingType>", NULL));
    return element(page, "Prefix", cairn_buf_view(&page->prefix));
}

static enum cairn_code list_sorted(const struct page *page) {
    const struct sink_object **sorted = calloc(sink.object_count + 1, sizeof *sorted);
    if (!sorted) return CAIRN_NO_MEMORY;
    for (uint32_t i = 0; i < sink.object_count; i++) sorted[i] = &sink.objects[i];
    qsort(sorted, sink.object_count, sizeof *sorted, by_key);
    enum cairn_code code = list_page(page, sorted, sink.object_count);
    free(sorted);
    return code;
}

enum cairn_code sink_list_objects(const struct sink_request *request, struct cairn_buf *ret) {
    struct page page = {0};
    enum cairn_code code = page_of(request, ret, &page);
    if (code == CAIRN_OK) code = begin(&page, "ListBucketResult");
    if (code == CAIRN_OK) code = list_sorted(&page);
    if (code == CAIRN_OK) code = cairn_buf_append_text(ret, "</ListBucketResult>", NULL);
    page_release(&page);
    return code;
}

enum cairn_code sink_list_uploads(const struct sink_request *request, struct cairn_buf *ret) {
    struct page page = {0};
    enum cairn_code code = page_of(request, ret, &page);
    if (code == CAIRN_OK) code = begin(&page, "ListMultipartUploadsResult");
    for (size_t i = 0; code == CAIRN_OK && i < SINK_UPLOADS_MAX; i++) {
        const struct sink_upload *upload = &sink.uploads[i];
        const char *key = upload->parts ? key_in(&page, upload->key) : NULL;
        if (!key) continue;
        code = cairn_buf_append_text(ret, "<Upload>", NULL);
        if (code == CAIRN_OK) code = element(&page, "Key", cairn_view_of(key));
        if (code == CAIRN_OK)
            code = cairn_buf_printf(
                ret, NULL, "<UploadId>%llu</UploadId><Initiated>" NO_TIME "</Initiated></Upload>",
                (unsigned long long)upload->id);
    }
    if (code == CAIRN_OK)
        code = cairn_buf_append_text(
            ret, "<IsTruncated>false</IsTruncated></ListMultipartUploadsResult>", NULL);
    page_release(&page);
    return code;
}

enum cairn_code sink_list_parts(const struct sink_upload *upload, struct cairn_buf *ret) {
    CAIRN_TRY(cairn_buf_append_text(
        ret, SINK_XML "<ListPartsResult><IsTruncated>false</IsTruncated>", NULL));
    for (uint32_t i = 0; i < SINK_PARTS_MAX; i++) {
        const struct sink_part *part = &upload->parts[i];
        char text[16];
        if (!part->there) continue;
        sink_crc_text(part->crc32c, text);
        CAIRN_TRY(cairn_buf_printf(ret, NULL,
                                   "<Part><PartNumber>%u</PartNumber><ETag>\"%08x\"</ETag>"
                                   "<Size>%llu</Size><ChecksumCRC32C>%s</ChecksumCRC32C></Part>",
                                   i + 1, part->crc32c, (unsigned long long)part->size_bytes,
                                   text));
    }
    return cairn_buf_append_text(ret, "</ListPartsResult>", NULL);
}
