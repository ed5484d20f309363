/* SPDX-License-Identifier: Apache-2.0 */
/* message: heads taken apart by the letter; text put together for replies. */
#include "tests/support/s3fault/message.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/text.h"
#include "tests/each.h"

/* ---- reading ---- */

void s3f_request_release(struct s3f_request *request) {
    free(request->head);
    free(request->decoded);
    *request = (struct s3f_request){0};
}

static int hex_value(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Decodes text[0, size) to *to with its NUL and moves *to behind it. '+' stays '+', as S3 signs. */
static bool decode(const char *text, size_t size, char **to) {
    char *out = *to;
    for (size_t i = 0; i < size; i++) {
        if (text[i] != '%') {
            *out++ = text[i];
            continue;
        }
        if (i + 2 >= size) return false;
        int first = hex_value(text[i + 1]), second = hex_value(text[i + 2]);
        if (first < 0 || second < 0 || first + second == 0) return false;
        *out++ = (char)(first << 4 | second);
        i += 2;
    }
    *out++ = '\0';
    *to = out;
    return true;
}

static enum cairn_code parse_query(struct s3f_request *request, char *query, char **to,
                                   struct cairn_error *err) {
    char *rest = query;
    for (char *pair = strsep(&rest, "&"); pair; pair = strsep(&rest, "&")) {
        if (request->query_count == S3F_PAIRS_MAX)
            return cairn_fail(err, CAIRN_INVALID, "too many parameters");
        struct s3f_pair *ret = &request->query[request->query_count++];
        size_t name = strcspn(pair, "=");
        const char *value = pair[name] ? pair + name + 1 : "";
        ret->name = *to;
        if (name == 0 || !decode(pair, name, to))
            return cairn_fail(err, CAIRN_INVALID, "a parameter's name is malformed");
        ret->value = *to;
        if (!decode(value, strlen(value), to))
            return cairn_fail(err, CAIRN_INVALID, "a parameter's value is malformed");
        for (size_t i = 0; i + 1 < request->query_count; i++)
            if (!strcmp(request->query[i].name, ret->name))
                return cairn_fail(err, CAIRN_INVALID, "parameter %s comes twice", ret->name);
    }
    return CAIRN_OK;
}

static enum cairn_code parse_target(struct s3f_request *request, char *target,
                                    struct cairn_error *err) {
    request->decoded = malloc(2 * strlen(target) + 4);
    if (!request->decoded) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a request");
    char *to = request->decoded, *query = strchr(target, '?');
    if (query) *query++ = '\0';
    request->path = to;
    if (*target != '/' || strchr(target, '#') || !decode(target, strlen(target), &to))
        return cairn_fail(err, CAIRN_INVALID, "the path is malformed");
    return query && *query ? parse_query(request, query, &to, err) : CAIRN_OK;
}

static enum cairn_code parse_header(struct s3f_request *request, char *line,
                                    struct cairn_error *err) {
    char *colon = strchr(line, ':');
    if (!colon || colon == line || request->header_count == S3F_PAIRS_MAX)
        return cairn_fail(err, CAIRN_INVALID, "a header line has no name, or there are too many");
    for (char *c = line; c < colon; c++) {
        if (!isalnum((unsigned char)*c) && !strchr("-_.!#$%&'*+^`|~", *c))
            return cairn_fail(err, CAIRN_INVALID, "a header's name is malformed");
        *c = (char)tolower((unsigned char)*c);
    }
    *colon = '\0';
    char *value = colon + 1 + strspn(colon + 1, " \t");
    size_t size = strlen(value);
    while (size && (value[size - 1] == ' ' || value[size - 1] == '\t')) value[--size] = '\0';
    if (s3f_header(request, line))
        return cairn_fail(err, CAIRN_INVALID, "header %s comes twice", line);
    request->headers[request->header_count++] = (struct s3f_pair){line, value};
    return CAIRN_OK;
}

static enum cairn_code judge_headers(struct s3f_request *request, struct cairn_error *err) {
    const char *length = s3f_header(request, "content-length");
    if (s3f_header(request, "transfer-encoding"))
        return cairn_fail(err, CAIRN_UNSUPPORTED, "Transfer-Encoding is not taken");
    if (length) {
        CAIRN_TRY(cairn_parse_u64(cairn_view_of(length), &request->content_length, err));
        request->has_length = true;
    }
    if (!s3f_header(request, "host")) return cairn_fail(err, CAIRN_INVALID, "no Host");
    const char *connection = s3f_header(request, "connection");
    request->keep_alive = !connection || strcasecmp(connection, "close") != 0;
    return CAIRN_OK;
}

static enum cairn_code parse_head(struct s3f_request *request, struct cairn_error *err) {
    char *line = request->head, *next;
    for (bool first = true; (next = strstr(line, "\r\n")); first = false, line = next + 2) {
        *next = '\0';
        if (strpbrk(line, "\r\n")) return cairn_fail(err, CAIRN_INVALID, "a bare line end");
        if (next == line) return judge_headers(request, err);
        if (!first) {
            CAIRN_TRY(parse_header(request, line, err));
            continue;
        }
        char *target = strchr(line, ' '), *version = target ? strchr(target + 1, ' ') : NULL;
        if (!version || strcmp(version, " HTTP/1.1") != 0)
            return cairn_fail(err, CAIRN_INVALID, "the request line is malformed");
        *target = *version = '\0';
        request->method = line;
        CAIRN_TRY(parse_target(request, target + 1, err));
    }
    return cairn_fail(err, CAIRN_INVALID, "the head does not end");
}

enum cairn_code s3f_request_read(struct s3f_wire *wire, struct s3f_request *ret,
                                 struct cairn_error *err) {
    for (;;) {
        char *from = wire->buffer + wire->buffer_from;
        size_t size = wire->buffer_size - wire->buffer_from;
        char *end = memmem(from, size, "\r\n\r\n", 4);
        if (end) {
            size = (size_t)(end - from) + 4;
            ret->head = malloc(size + 1);
            if (!ret->head) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a request");
            memcpy(ret->head, from, size);
            ret->head[size] = '\0';
            wire->buffer_from += size;
            if (strlen(ret->head) != size) return cairn_fail(err, CAIRN_INVALID, "a NUL byte");
            return parse_head(ret, err);
        }
        if (size >= S3F_HEAD_BYTES_MAX)
            return cairn_fail(err, CAIRN_INVALID, "the head is too long");
        if (!s3f_wire_fill(wire)) return cairn_fail(err, CAIRN_UNAVAILABLE, "ended");
    }
}

static const char *find(const struct s3f_pair *pairs, size_t count, const char *name) {
    for (size_t i = 0; i < count; i++)
        if (!strcmp(pairs[i].name, name)) return pairs[i].value;
    return NULL;
}
const char *s3f_header(const struct s3f_request *request, const char *name) {
    return find(request->headers, request->header_count, name);
}
const char *s3f_query(const struct s3f_request *request, const char *name) {
    return find(request->query, request->query_count, name);
}

/* ---- writing ---- */

void s3f_say(struct cairn_buf *buf, const char *format, ...) {
    char *text = NULL;
    va_list arguments;
    va_start(arguments, format);
    int size = vasprintf(&text, format, arguments);
    va_end(arguments);
    if (!buf->limit) buf->limit = CAIRN_GIB;
    if (size < 0 || cairn_buf_append(buf, text, (size_t)size, NULL) != CAIRN_OK) abort();
    free(text);
}

void s3f_say_xml(struct cairn_buf *buf, const char *text) {
    for (; *text; text++) {
        switch (*text) {
        case '&':
            s3f_say(buf, "&amp;");
            break;
        case '<':
            s3f_say(buf, "&lt;");
            break;
        case '>':
            s3f_say(buf, "&gt;");
            break;
        case '"':
            s3f_say(buf, "&quot;");
            break;
        default:
            if ((unsigned char)*text < ' ')
                s3f_say(buf, "&#x%x;", (unsigned)*text);
            else
                s3f_say(buf, "%c", *text);
        }
    }
}

void s3f_say_json(struct cairn_buf *buf, const char *text) {
    s3f_say(buf, "\"");
    for (; *text; text++) {
        if (*text == '"' || *text == '\\')
            s3f_say(buf, "\\%c", *text);
        else if ((unsigned char)*text < ' ')
            s3f_say(buf, "\\u%04x", (unsigned)*text);
        else
            s3f_say(buf, "%c", *text);
    }
    s3f_say(buf, "\"");
}

void s3f_refuse(struct s3f_reply *reply, int status, const char *code, const char *format, ...) {
    char message[400];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    reply->status = status;
    cairn_text_copy(reply->code, sizeof reply->code, code);
    cairn_buf_clear(&reply->body);
    cairn_buf_clear(&reply->headers);
    s3f_say(&reply->headers, "Content-Type: application/xml\r\n");
    s3f_say(&reply->body, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>");
    s3f_say_xml(&reply->body, code);
    s3f_say(&reply->body, "</Code><Message>");
    s3f_say_xml(&reply->body, message);
    s3f_say(&reply->body, "</Message><RequestId>s3fault-%" PRIu64 "</RequestId></Error>",
            reply->serial);
}

const char *s3f_status_text(int status) {
    EACH(one, FIELDS(int status; const char *text), {200, "OK"}, {204, "No Content"},
         {206, "Partial Content"}, {301, "Moved Permanently"}, {304, "Not Modified"},
         {307, "Temporary Redirect"}, {400, "Bad Request"}, {403, "Forbidden"}, {404, "Not Found"},
         {405, "Method Not Allowed"}, {409, "Conflict"}, {411, "Length Required"},
         {412, "Precondition Failed"}, {416, "Range Not Satisfiable"}, {429, "Too Many Requests"},
         {500, "Internal Server Error"}, {501, "Not Implemented"}, {502, "Bad Gateway"},
         {503, "Service Unavailable"}, {504, "Gateway Timeout"})
        if (one->status == status) return one->text;
    return "Other";
}
