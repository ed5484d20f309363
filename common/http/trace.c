/* SPDX-License-Identifier: Apache-2.0 */
/* Closed lists of what may be shown, so that a header nobody thought of stays hidden. */
#include "common/http/trace.h"

#include <strings.h>

#include "common/log.h"

#define SHOWN_BYTES_MAX 512

static const char *const shown_headers[] = {
    "Accept",
    "Accept-Ranges",
    "Connection",
    "Content-Encoding",
    "Content-Length",
    "Content-MD5",
    "Content-Range",
    "Content-Type",
    "Date",
    "ETag",
    "Expect",
    "Host",
    "If-Match",
    "If-None-Match",
    "Last-Modified",
    "Range",
    "Retry-After",
    "Server",
    "Transfer-Encoding",
    "User-Agent",
    "x-amz-bucket-region",
    "x-amz-checksum-crc32c",
    "x-amz-checksum-mode",
    "x-amz-checksum-type",
    "x-amz-content-sha256",
    "x-amz-date",
    "x-amz-id-2",
    "x-amz-meta-cairn-upload",
    "x-amz-request-id",
};
static const char *const shown_parameters[] = {
    "continuation-token",
    "delimiter",
    "encoding-type",
    "key-marker",
    "list-type",
    "max-keys",
    "max-parts",
    "max-uploads",
    "partNumber",
    "part-number-marker",
    "prefix",
    "uploadId",
    "upload-id-marker",
    "uploads",
    "location",
    "limit",
    "wait",
    "for",
};

static bool listed(const char *const *list, size_t count, struct cairn_view name) {
    for (size_t i = 0; i < count; i++)
        if (strlen(list[i]) == name.size && !strncasecmp(list[i], name.data, name.size))
            return true;
    return false;
}

static size_t find(struct cairn_view text, char wanted) {
    const char *at = text.size ? memchr(text.data, wanted, text.size) : NULL;
    return at ? (size_t)(at - (const char *)text.data) : text.size;
}

static struct cairn_view part(struct cairn_view text, size_t from, size_t to) {
    return (struct cairn_view){(const char *)text.data + from, to - from};
}

static enum cairn_code append(struct cairn_buf *ret, struct cairn_view text,
                              struct cairn_error *err) {
    return cairn_buf_append(ret, text.data, text.size, err);
}

static enum cairn_code redact_query(struct cairn_view query, struct cairn_buf *ret,
                                    struct cairn_error *err) {
    for (size_t from = 0; from <= query.size;) {
        size_t end = from + find(part(query, from, query.size), '&');
        struct cairn_view pair = part(query, from, end);
        size_t equals = find(pair, '=');
        CAIRN_TRY(cairn_buf_append_text(ret, from ? "&" : "?", err));
        CAIRN_TRY(append(ret, part(pair, 0, equals), err));
        if (equals < pair.size) {
            bool show =
                listed(shown_parameters, CAIRN_COUNT(shown_parameters), part(pair, 0, equals));
            struct cairn_view hidden = CAIRN_VIEW("=<hidden>");
            CAIRN_TRY(append(ret, show ? part(pair, equals, pair.size) : hidden, err));
        }
        from = end + 1;
    }
    return CAIRN_OK;
}

/* "PUT /bucket/key?query HTTP/1.1": the query ends at the next space. */
static enum cairn_code redact_request_line(struct cairn_view line, struct cairn_buf *ret,
                                           struct cairn_error *err) {
    size_t question = find(line, '?');
    if (question == line.size) return append(ret, line, err);
    size_t end = question + find(part(line, question, line.size), ' ');
    CAIRN_TRY(append(ret, part(line, 0, question), err));
    CAIRN_TRY(redact_query(part(line, question + 1, end), ret, err));
    return append(ret, part(line, end, line.size), err);
}

/* "PUT /bucket/key", "HTTP/1.1 200": a method is of capital letters alone, so that no header, nor
 * the second line of a folded one, is taken for it when its value begins with a slash. */
static bool is_start_line(struct cairn_view line, size_t space) {
    const char *text = line.data;
    if (line.size > 5 && !memcmp(text, "HTTP/", 5)) return true;
    size_t method = 0;
    while (method < line.size && text[method] >= 'A' && text[method] <= 'Z') method++;
    return method > 0 && method == space && space + 1 < line.size && text[space + 1] == '/';
}

enum cairn_code cairn_http_trace_redact(struct cairn_view line, struct cairn_buf *ret,
                                        struct cairn_error *err) {
    if (!line.size) return CAIRN_OK;
    size_t colon = find(line, ':'), space = find(line, ' ');
    bool is_header = colon < line.size && colon < space;
    if (is_start_line(line, space)) return redact_request_line(line, ret, err);
    if (!is_header) return cairn_buf_append_text(ret, "<hidden>", err);
    CAIRN_TRY(append(ret, part(line, 0, colon), err));
    if (!listed(shown_headers, CAIRN_COUNT(shown_headers), part(line, 0, colon)))
        return cairn_buf_append_text(ret, ": <hidden>", err);
    return append(ret, part(line, colon, line.size), err);
}

void cairn_http_trace_lines(char mark, struct cairn_view block) {
    for (size_t from = 0; from < block.size;) {
        size_t end = from + find(part(block, from, block.size), '\n');
        size_t stop = end > from && ((const char *)block.data)[end - 1] == '\r' ? end - 1 : end;
        if (stop - from > SHOWN_BYTES_MAX) stop = from + SHOWN_BYTES_MAX;
        CAIRN_AUTO(buf) text = {.limit = 8192};
        if (stop > from &&
            cairn_http_trace_redact(part(block, from, stop), &text, NULL) == CAIRN_OK)
            cairn_log(DEBUG, "http.line", "way=%c text=\"%s\"", mark, text.data);
        from = end + 1;
    }
}
