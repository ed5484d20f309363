/* SPDX-License-Identifier: Apache-2.0 */
/* The shape proof (B03). The library parses in place and forgives much: bare LF, folded lines, NUL,
 * doubled lengths. If every line was exactly "Name:", spaces or tabs, "value CRLF", then method,
 * target, version and each name and value lie exactly next to each other in its buffer, and the
 * last ends where the header ends. One pointer elsewhere means that something was forgiven, and
 * then it is refused. */
#include <stdio.h>
#include <strings.h>

#include "server/http/inside.h"

struct walk {
    const char *end; /* of what was checked so far; a line's end must follow */
    bool ok;
    bool trims; /* the library leaves out spaces behind a value, and overwrites the first of them */
    unsigned content_lengths, transfer_encodings, hosts, authorizations, grants;
};

static bool is_token(const char *text, size_t size) {
    static const char marks[] = "!#$%&'*+-.^_`|~";
    for (size_t i = 0; i < size; i++) {
        char c = text[i];
        bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
        if (!letter && (!c || !strchr(marks, c))) return false;
    }
    return size > 0;
}

static bool is_field_text(const char *text, size_t size) {
    for (size_t i = 0; i < size; i++) {
        unsigned char c = (unsigned char)text[i];
        if ((c < 0x20 && c != '\t') || c == 0x7f) return false;
    }
    return !size || (text[0] != ' ' && text[0] != '\t');
}

/* RFC 9112, 5.1: any number of spaces and tabs between the colon, which the library has
 * overwritten, and the value. */
static bool is_gap(const char *from, const char *to) {
    if (to <= from) return false;
    for (from++; from < to; from++)
        if (*from != ' ' && *from != '\t') return false;
    return true;
}

/* Exactly one CRLF, which the library may have overwritten, from here to there. Release 1.0 of the
 * library ends a value before the spaces that follow it, 0.9 takes them into it. */
static bool is_line_end(const struct walk *walk, const char *to) {
    if (to - walk->end < 2) return false;
    for (const char *at = walk->end; at < to - 2; at++) {
        bool space = *at == ' ' || *at == '\t' || (!*at && at == walk->end);
        if (!walk->trims || !space) return false;
    }
    return true;
}

static bool named(const char *name, size_t size, const char *wanted) {
    return size == strlen(wanted) && !strncasecmp(name, wanted, size);
}

static enum MHD_Result check_line(void *cls, enum MHD_ValueKind kind, const char *key,
                                  size_t key_size, const char *value, size_t value_size) {
    struct walk *walk = cls;
    (void)kind;
    walk->ok = walk->ok && value && is_line_end(walk, key) && is_token(key, key_size) &&
               is_gap(key + key_size, value) && is_field_text(value, value_size);
    walk->content_lengths += named(key, key_size, "Content-Length");
    walk->transfer_encodings += named(key, key_size, "Transfer-Encoding");
    walk->hosts += named(key, key_size, "Host");
    walk->authorizations += named(key, key_size, "Authorization");
    walk->grants += named(key, key_size, "X-Cairn-Grant");
    if (walk->ok) walk->end = value + value_size;
    return MHD_YES;
}

enum cairn_code cairn_srv_shape_check(struct cairn_srv_exchange *exchange, const char *method,
                                      const char *version, struct cairn_error *err) {
    static const char doubt[] = "the request is not exactly what RFC 9112 asks for (one CRLF after "
                                "each line, no space before a colon and no folded lines)";
    const char *uri = exchange->uri;
    struct walk walk = {.ok = exchange->target != NULL, .trims = MHD_get_version()[0] != '0'};
    walk.ok = walk.ok && is_token(method, strlen(method)) && method + strlen(method) + 1 == uri &&
              uri + exchange->uri_size + 1 == version && strlen(version) == 8;
    walk.end = version + 8;
    MHD_get_connection_values_n(exchange->connection, MHD_HEADER_KIND, check_line, &walk);
    if (exchange->uri_size > CAIRN_SRV_TARGET_BYTES_MAX) {
        exchange->status = 414;
        return cairn_fail(err, CAIRN_INVALID, CAIRN_SRV_TARGET_TOO_LONG,
                          CAIRN_SRV_TARGET_BYTES_MAX);
    }
    if (walk.transfer_encodings)
        return cairn_fail(err, CAIRN_LENGTH_REQUIRED,
                          "Transfer-Encoding is not taken: send Content-Length");
    if (walk.content_lengths > 1) return cairn_fail(err, CAIRN_INVALID, "two Content-Length");
    /* HTTP/1.0 has no Host: checks of health are often asked in it. */
    if (walk.hosts != 1 && (walk.hosts || strcmp(version, "HTTP/1.0") != 0))
        return cairn_fail(err, CAIRN_INVALID, "exactly one Host is needed");
    /* Whoever stands before us may have read the other one. */
    if (walk.authorizations > 1 || walk.grants > 1)
        return cairn_fail(err, CAIRN_INVALID, "two Authorization or X-Cairn-Grant");
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(exchange->connection, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);
    if (!walk.ok || !info || !is_line_end(&walk, method + info->header_size - 2))
        return cairn_fail(err, CAIRN_INVALID, "%s", doubt);
    return CAIRN_OK;
}
