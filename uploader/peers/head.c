/* SPDX-License-Identifier: Apache-2.0 */
/* One pass over the lines; see head.h. */
#include "uploader/peers/head.h"

#include <strings.h>

#include "api/wire/rights.h"
#include "common/text.h"

enum { SEEN_HOST = 1, SEEN_RANGE = 2, SEEN_LENGTH = 4, SEEN_RIGHT = 8, SEEN_NONCE = 16 };

struct reading {
    const char *at, *end;
    unsigned seen, lines;
};

/* One line without its end; false: the text ends within it, or it holds what no line may. */
static bool next_line(struct reading *reading, struct cairn_view *ret) {
    const char *from = reading->at, *at = from;
    while (at < reading->end && *at != '\r') {
        unsigned char c = (unsigned char)*at++;
        if ((c < 0x20 && c != '\t') || c >= 0x7f) return false;
    }
    if (reading->end - at < 2 || at[1] != '\n') return false;
    *ret = (struct cairn_view){from, (size_t)(at - from)};
    reading->at = at + 2;
    return true;
}

/* Up to the space, which is left out; false: there is none, or it is too long. */
static bool take_word(struct cairn_view *line, char *ret, size_t capacity) {
    const char *text = line->data;
    const char *space = memchr(text, ' ', line->size);
    size_t size = space ? (size_t)(space - text) : 0;
    if (!size || size >= capacity) return false;
    memcpy(ret, text, size);
    ret[size] = '\0';
    *line = (struct cairn_view){space + 1, line->size - size - 1};
    return true;
}

static bool is_path(const char *path) {
    static const char allowed[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~/";
    return path[0] == '/' && !path[strspn(path, allowed)];
}

static int read_start(struct cairn_view line, struct cairn_up_head *ret) {
    if (!take_word(&line, ret->method, sizeof(ret->method))) return 400;
    if (!take_word(&line, ret->path, sizeof(ret->path)) || !is_path(ret->path)) return 400;
    if (line.size != 8 || memcmp(line.data, "HTTP/1.1", 8) != 0) return 505;
    return strcmp(ret->method, "GET") != 0 && strcmp(ret->method, "PUT") != 0 ? 405 : 0;
}

static bool is_named(struct cairn_view name, const char *wanted) {
    return name.size == strlen(wanted) && !strncasecmp(name.data, wanted, name.size);
}

static bool copy(struct cairn_view value, char *ret, size_t capacity) {
    if (!value.size || value.size >= capacity) return false;
    memcpy(ret, value.data, value.size);
    ret[value.size] = '\0';
    return true;
}

static bool read_number(struct cairn_view text, uint64_t *ret) {
    return text.size && text.size < 20 && !cairn_parse_u64(text, ret, NULL);
}

static bool read_range(struct cairn_view value, struct cairn_up_head *ret) {
    if (!copy(value, ret->range, sizeof(ret->range)) || !cairn_text_starts(ret->range, "bytes="))
        return false;
    const char *from = ret->range + 6, *dash = strchr(from, '-');
    if (!dash) return false;
    ret->has_range = true;
    return read_number((struct cairn_view){from, (size_t)(dash - from)}, &ret->first) &&
           read_number(cairn_view_of(dash + 1), &ret->last) && ret->first <= ret->last;
}

static bool read_nonce(struct cairn_view value, struct cairn_up_head *ret) {
    return value.size == sizeof(ret->nonce) - 1 && copy(value, ret->nonce, sizeof(ret->nonce)) &&
           strspn(ret->nonce, "0123456789abcdef") == value.size;
}

static bool first_time(struct reading *reading, unsigned what) {
    bool first = !(reading->seen & what);
    reading->seen |= what;
    return first;
}

static int read_header(struct reading *reading, struct cairn_view name, struct cairn_view value,
                       struct cairn_up_head *ret) {
    if (is_named(name, "Transfer-Encoding")) return 501;
    if (is_named(name, "Expect")) return 417;
    if (is_named(name, "Connection")) ret->closes = is_named(value, "close");
    if (is_named(name, "Host")) return first_time(reading, SEEN_HOST) ? 0 : 400;
    if (is_named(name, "Range"))
        return first_time(reading, SEEN_RANGE) && read_range(value, ret) ? 0 : 400;
    if (is_named(name, "Authorization"))
        return first_time(reading, SEEN_RIGHT) && copy(value, ret->right, sizeof(ret->right)) ? 0
                                                                                              : 400;
    if (is_named(name, CAIRN_PEER_NONCE_HEADER))
        return first_time(reading, SEEN_NONCE) && read_nonce(value, ret) ? 0 : 400;
    if (!is_named(name, "Content-Length")) return 0;
    ret->has_body = true;
    return first_time(reading, SEEN_LENGTH) && read_number(value, &ret->body_bytes) ? 0 : 400;
}

static bool is_token(struct cairn_view name) {
    const char *text = name.data;
    for (size_t i = 0; i < name.size; i++)
        if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_", text[i]))
            return false;
    return name.size > 0;
}

static int read_line(struct reading *reading, struct cairn_view line, struct cairn_up_head *ret) {
    const char *text = line.data, *colon = memchr(text, ':', line.size);
    if (!colon || ++reading->lines > CAIRN_UP_HEAD_LINES_MAX) return 400;
    struct cairn_view name = {text, (size_t)(colon - text)};
    struct cairn_view value = {colon + 1, line.size - name.size - 1};
    if (!is_token(name)) return 400;
    return read_header(reading, name, cairn_text_trimmed(value), ret);
}

int cairn_up_head_read(struct cairn_view text, struct cairn_up_head *ret) {
    struct reading reading = {.at = text.data, .end = (const char *)text.data + text.size};
    struct cairn_view line;
    *ret = (struct cairn_up_head){0};
    if (text.size > CAIRN_UP_HEAD_BYTES_MAX || !next_line(&reading, &line)) return 400;
    int status = read_start(line, ret);
    while (!status) {
        if (!next_line(&reading, &line)) return 400;
        if (!line.size) break;
        status = read_line(&reading, line, ret);
    }
    if (status) return status;
    if (!(reading.seen & SEEN_HOST) || reading.at != reading.end) return 400;
    bool is_put = !strcmp(ret->method, "PUT");
    if (is_put && !ret->has_body) return 411;
    if (is_put && ret->has_range) return 400;
    return !is_put && ret->body_bytes ? 400 : 0;
}
