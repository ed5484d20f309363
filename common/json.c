/* SPDX-License-Identifier: Apache-2.0 */
/* A scan that bounds a document before jansson parses it, the typed reader, and YAML read as JSON.
 *
 * jansson takes up to 81 times its input in memory and nests 2,048 deep, so depth, bytes and
 * values are counted in the raw text first; an input that jansson then refuses costs little. */
#include "common/json.h"

#include <stdlib.h>

#include "common/text.h"

#define JSON_DEPTH_MAX 16
#define JSON_BYTES_DEFAULT CAIRN_MIB
#define JSON_NODES_DEFAULT 100000
#define JSON_TEXT_BYTES_DEFAULT 4096
#define JSON_U64_MAX (UINT64_C(1) << 62)

/* A copy for messages: plain ASCII without quotes, so that a hostile key can neither forge a log
 * line nor break the problem body, which is JSON again. */
static const char *shown(const char *text, size_t size, char ret[72]) {
    size_t used = 0;
    for (; used < size && used < 64; used++) {
        unsigned char c = (unsigned char)text[used];
        ret[used] = c < 0x20 || c > 0x7e || c == '"' ? '?' : (char)c;
    }
    memcpy(ret + used, used < size ? "..." : "", used < size ? 4 : 1);
    return ret;
}

/* ---- the scan before the parse ---- */

struct scan {
    const char *text;
    size_t size, at;
    size_t nodes, nodes_max;
    unsigned depth;
    bool after_string; /* the last token was a string: a colon makes it a key */
};

static bool is_bare(char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' ||
           c == '+' || c == '.';
}

/* Counts one value and steps over its first token; jansson checks the structure. */
static enum cairn_code scan_token(struct scan *scan, struct cairn_error *err) {
    char c = scan->text[scan->at];
    bool string = c == '"', opens = c == '{' || c == '[';
    if (!string && !opens && !is_bare(c)) {
        if (c == ':' && scan->after_string) scan->nodes--;
        if ((c == '}' || c == ']') && scan->depth > 0) scan->depth--;
        if (c == ':' || c == ',' || c == '}' || c == ']') scan->after_string = false;
        scan->at++;
        return CAIRN_OK;
    }
    scan->nodes++;
    scan->after_string = string;
    /* Allows one value too many: a string is known to be a key only at its colon. */
    if (scan->nodes > scan->nodes_max + 1)
        return cairn_fail(err, CAIRN_TOO_LARGE, "JSON: more than %zu values", scan->nodes_max);
    if (string) {
        scan->at++;
        while (scan->at < scan->size && scan->text[scan->at] != '"')
            scan->at += scan->text[scan->at] == '\\' ? 2 : 1;
        scan->at++;
        return CAIRN_OK;
    }
    if (!opens) {
        /* "-0" is the only integer that would be read as 0 and written back as another text. */
        size_t start = scan->at;
        while (scan->at < scan->size && is_bare(scan->text[scan->at])) scan->at++;
        if (scan->at - start == 2 && !memcmp(scan->text + start, "-0", 2))
            return cairn_fail(err, CAIRN_INVALID, "JSON: -0 at byte %zu is no integer", start);
        return CAIRN_OK;
    }
    scan->at++;
    if (++scan->depth > JSON_DEPTH_MAX)
        return cairn_fail(err, CAIRN_INVALID, "JSON: nested deeper than %d at byte %zu",
                          JSON_DEPTH_MAX, scan->at - 1);
    return CAIRN_OK;
}

/* This thread's last parse ran out of memory; set only after cairn_json_watch_memory. */
static _Thread_local bool starved;

static void *watched_malloc(size_t size) {
    void *memory = malloc(size);
    if (!memory) starved = true;
    return memory;
}

void cairn_json_watch_memory(void) {
    json_set_alloc_funcs(watched_malloc, free);
}

enum cairn_code cairn_json_parse(struct cairn_view text, struct cairn_json_limits limits,
                                 json_t **ret_json, struct cairn_error *err) {
    size_t bytes_max = limits.bytes ? limits.bytes : JSON_BYTES_DEFAULT;
    size_t nodes_max = limits.nodes ? limits.nodes : JSON_NODES_DEFAULT;
    if (text.size > bytes_max)
        return cairn_fail(err, CAIRN_TOO_LARGE, "JSON: %zu bytes, at most %zu are taken", text.size,
                          bytes_max);
    if (text.size == 0) return cairn_fail(err, CAIRN_INVALID, "JSON: the document is empty");
    struct scan scan = {.text = text.data, .size = text.size, .nodes_max = nodes_max};
    while (scan.at < scan.size) CAIRN_TRY(scan_token(&scan, err));
    if (scan.nodes > nodes_max)
        return cairn_fail(err, CAIRN_TOO_LARGE, "JSON: more than %zu values", nodes_max);
    json_error_t problem;
    starved = false;
    json_t *json = json_loadb(text.data, text.size, JSON_REJECT_DUPLICATES, &problem);
    if (!json) {
        char what[72];
        /* Without memory jansson says nothing, or "string expected" if it was copying one. */
        if (starved || !problem.text[0] || json_error_code(&problem) == json_error_out_of_memory)
            return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a JSON document");
        return cairn_fail(err, CAIRN_INVALID, "JSON: line %d column %d: %s", problem.line,
                          problem.column, shown(problem.text, strlen(problem.text), what));
    }
    *ret_json = json;
    return CAIRN_OK;
}

/* ---- writing ---- */

struct sink {
    struct cairn_buf *buf;
    struct cairn_error *err;
    enum cairn_code code;
};

/* jansson continues after a key that could not be appended, so the first failure is kept. */
static int sink_append(const char *text, size_t size, void *context) {
    struct sink *sink = context;
    if (sink->code == CAIRN_OK) sink->code = cairn_buf_append(sink->buf, text, size, sink->err);
    return sink->code == CAIRN_OK ? 0 : -1;
}

/* On failure ret is unchanged. */
static enum cairn_code dump(const json_t *json, size_t flags, struct cairn_buf *ret,
                            struct cairn_error *err) {
    struct sink sink = {.buf = ret, .err = err, .code = CAIRN_OK};
    size_t before = ret->size;
    int failed = json_dump_callback(json, sink_append, &sink, flags | JSON_ENCODE_ANY);
    if (!failed && sink.code == CAIRN_OK) return CAIRN_OK;
    ret->size = before;
    if (ret->data) ret->data[before] = '\0';
    if (sink.code != CAIRN_OK) return sink.code;
    /* A json_t holds only valid UTF-8 and finite numbers: nothing else can fail. */
    return cairn_fail(err, CAIRN_NO_MEMORY, "no memory to write a JSON document");
}

enum cairn_code cairn_json_dump(const json_t *json, struct cairn_buf *ret,
                                struct cairn_error *err) {
    return dump(json, JSON_SORT_KEYS | JSON_COMPACT, ret, err);
}

/* Offset after the text that begins at `at`. */
static size_t behind_text(struct cairn_view document, size_t at) {
    const char *text = document.data;
    for (at++; at < document.size && text[at] != '"'; at++)
        if (text[at] == '\\') at++;
    return at + 1;
}

static enum cairn_code put_real(const char *text, struct cairn_buf *ret, struct cairn_error *err) {
    struct cairn_real real = cairn_real(strtod(text, NULL));
    CAIRN_TRY(cairn_buf_append_text(ret, real.text, err));
    /* Without ".0" a reader would take it for an integer. */
    return strpbrk(real.text, ".e") ? CAIRN_OK : cairn_buf_append_text(ret, ".0", err);
}

/* jansson has one precision for all doubles of a document, so each is rewritten in its output. */
static enum cairn_code put_shown(struct cairn_view document, struct cairn_buf *ret,
                                 struct cairn_error *err) {
    const char *text = document.data;
    size_t kept = 0, at = 0;
    while (at < document.size) {
        size_t size = strspn(text + at, "+-.0123456789e");
        if (text[at] == '"') {
            at = behind_text(document, at);
        } else if (!size || (text[at] != '-' && (text[at] < '0' || text[at] > '9'))) {
            at++;
        } else {
            if (strcspn(text + at, ".e") < size) {
                CAIRN_TRY(cairn_buf_append(ret, text + kept, at - kept, err));
                CAIRN_TRY(put_real(text + at, ret, err));
                kept = at + size;
            }
            at += size;
        }
    }
    return cairn_buf_append(ret, text + kept, document.size - kept, err);
}

static enum cairn_code show(const json_t *json, size_t flags, struct cairn_buf *ret,
                            struct cairn_error *err) {
    CAIRN_AUTO(buf) document = {.limit = ret->limit};
    size_t before = ret->size;
    CAIRN_TRY(dump(json, flags, &document, err));
    enum cairn_code code = put_shown(cairn_buf_view(&document), ret, err);
    if (!code) return CAIRN_OK;
    ret->size = before;
    if (ret->data) ret->data[before] = '\0';
    return code;
}

enum cairn_code cairn_json_show(const json_t *json, struct cairn_buf *ret,
                                struct cairn_error *err) {
    return show(json, JSON_SORT_KEYS | JSON_COMPACT, ret, err);
}

enum cairn_code cairn_json_dump_pretty(const json_t *json, struct cairn_buf *ret,
                                       struct cairn_error *err) {
    return show(json, JSON_INDENT(2), ret, err);
}

/* ---- the typed reader ---- */

static const char *type_name(const json_t *value) {
    static const char *const names[] = {
        [JSON_OBJECT] = "an object", [JSON_ARRAY] = "an array",
        [JSON_STRING] = "text",      [JSON_INTEGER] = "an integer",
        [JSON_TRUE] = "a boolean",   [JSON_FALSE] = "a boolean",
        [JSON_NULL] = "null",        [JSON_REAL] = "a number with a fraction or exponent"};
    return names[json_typeof(value)];
}

struct place {
    const char *pointer;
    const struct cairn_json_field *field;
};

static enum cairn_code wrong_type(struct place place, const char *wanted, const json_t *value,
                                  struct cairn_error *err) {
    return cairn_fail(err, CAIRN_INVALID, "%s/%s: wanted %s, got %s", place.pointer,
                      place.field->name, wanted, type_name(value));
}

static enum cairn_code read_number(struct place place, const json_t *value,
                                   struct cairn_error *err) {
    bool small = place.field->kind == CAIRN_JSON_U32;
    uint64_t most = place.field->max ? place.field->max : JSON_U64_MAX;
    if (small && most > UINT32_MAX) most = UINT32_MAX;
    if (!json_is_integer(value)) return wrong_type(place, "an integer", value, err);
    json_int_t number = json_integer_value(value);
    if (number < 0 || (uint64_t)number > most)
        return cairn_fail(err, CAIRN_INVALID, "%s/%s: wanted an integer from 0 to %llu, got %lld",
                          place.pointer, place.field->name, (unsigned long long)most,
                          (long long)number);
    if (small)
        *(uint32_t *)place.field->ret = (uint32_t)number;
    else
        *(uint64_t *)place.field->ret = (uint64_t)number;
    return CAIRN_OK;
}

static enum cairn_code read_text(struct place place, const json_t *value, struct cairn_error *err) {
    uint64_t most = place.field->max ? place.field->max : JSON_TEXT_BYTES_DEFAULT;
    if (!json_is_string(value)) return wrong_type(place, "text", value, err);
    const char *text = json_string_value(value);
    size_t size = json_string_length(value);
    if (size > most)
        return cairn_fail(err, CAIRN_INVALID, "%s/%s: wanted at most %llu bytes of text, got %zu",
                          place.pointer, place.field->name, (unsigned long long)most, size);
    if (strlen(text) != size)
        return cairn_fail(err, CAIRN_INVALID, "%s/%s: the text holds a NUL byte", place.pointer,
                          place.field->name);
    *(const char **)place.field->ret = text;
    return CAIRN_OK;
}

/* `value` is not const because json_t's getters are not. */
static enum cairn_code read_field(struct place place, json_t *value, struct cairn_error *err) {
    switch (place.field->kind) {
    case CAIRN_JSON_U64:
    case CAIRN_JSON_U32:
        return read_number(place, value, err);
    case CAIRN_JSON_REAL:
        if (!json_is_number(value)) return wrong_type(place, "a number", value, err);
        *(double *)place.field->ret = json_number_value(value);
        return CAIRN_OK;
    case CAIRN_JSON_TEXT:
        return read_text(place, value, err);
    case CAIRN_JSON_BOOL:
        if (!json_is_boolean(value)) return wrong_type(place, "true or false", value, err);
        *(bool *)place.field->ret = json_is_true(value);
        return CAIRN_OK;
    case CAIRN_JSON_OBJECT:
        if (!json_is_object(value)) return wrong_type(place, "an object", value, err);
        break;
    case CAIRN_JSON_ARRAY:
        if (!json_is_array(value)) return wrong_type(place, "an array", value, err);
        break;
    case CAIRN_JSON_ANY:
        break;
    }
    *(json_t **)place.field->ret = value;
    return CAIRN_OK;
}

static enum cairn_code refuse_unknown(const json_t *object, const char *pointer,
                                      const struct cairn_json_field *fields, size_t count,
                                      struct cairn_error *err) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)object, key, value) {
        size_t i = 0;
        while (i < count && strcmp(fields[i].name, key) != 0) i++;
        if (i < count) continue;
        char name[72];
        return cairn_fail(err, CAIRN_INVALID, "%s/%s: unknown field", pointer,
                          shown(key, strlen(key), name));
    }
    return CAIRN_OK;
}

enum cairn_code cairn_json_read(const json_t *object, const char *pointer,
                                const struct cairn_json_field *fields, size_t count, bool open,
                                struct cairn_error *err) {
    if (!json_is_object(object))
        return cairn_fail(err, CAIRN_INVALID, "%s: wanted an object, got %s",
                          *pointer ? pointer : "the document", object ? type_name(object) : "none");
    for (size_t i = 0; i < count; i++) {
        struct place place = {pointer, &fields[i]};
        json_t *value = json_object_get(object, fields[i].name);
        if (!value || json_is_null(value)) {
            if (!fields[i].required) continue;
            return cairn_fail(err, CAIRN_INVALID, "%s/%s: missing", pointer, fields[i].name);
        }
        CAIRN_TRY(read_field(place, value, err));
    }
    return open ? CAIRN_OK : refuse_unknown(object, pointer, fields, count, err);
}

enum cairn_code cairn_json_append(json_t *array, json_t *take_item, const char *what,
                                  struct cairn_error *err) {
    if (!json_array_append_new(array, take_item)) return CAIRN_OK;
    return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for %s", what);
}

unsigned cairn_json_depth(const json_t *json) {
    unsigned deepest = 0;
    const char *key = NULL;
    json_t *value = NULL;
    size_t index = 0;
    json_object_foreach((json_t *)(uintptr_t)json, key, value) {
        unsigned depth = cairn_json_depth(value);
        deepest = depth > deepest ? depth : deepest;
    }
    json_array_foreach(json, index, value) {
        unsigned depth = cairn_json_depth(value);
        deepest = depth > deepest ? depth : deepest;
    }
    return json_is_object(json) || json_is_array(json) ? deepest + 1 : 0;
}

json_t *cairn_json_page(const json_t *array, uint64_t from, uint64_t limit, bool *ret_more) {
    json_t *page = json_array();
    size_t count = json_array_size(array);
    bool whole = page != NULL;
    for (uint64_t i = from; whole && i < count && i - from < limit; i++)
        whole = !json_array_append_new(page, json_deep_copy(json_array_get(array, (size_t)i)));
    *ret_more = from < count && count - from > limit;
    if (whole) return page;
    json_decref(page);
    return NULL;
}

/* ---- YAML by recursive descent: indentation assigns lines to mappings and sequences ---- */

struct reader {
    const char *at, *end;
    size_t line;
    unsigned depth;
    struct cairn_error *err;
};

static json_t *refuse(struct reader *reader, const char *what) {
    (void)cairn_fail(reader->err, CAIRN_UNSUPPORTED, "line %zu: %s", reader->line, what);
    return NULL;
}

/* ---- lines ---- */

static void next_line(struct reader *reader) {
    const char *end = memchr(reader->at, '\n', (size_t)(reader->end - reader->at));
    reader->at = end ? end + 1 : reader->end;
    reader->line++;
}

static size_t spaces_at(const struct reader *reader) {
    size_t count = 0;
    while (reader->at + count < reader->end && reader->at[count] == ' ') count++;
    return count;
}

static char char_at(const struct reader *reader, size_t offset) {
    return reader->at + offset < reader->end ? reader->at[offset] : '\n';
}

/* Skips empty lines and comments; indent of the next line, or -1 at the end. */
static int indent_of_next(struct reader *reader) {
    while (reader->at < reader->end) {
        size_t indent = spaces_at(reader);
        char first = char_at(reader, indent);
        if (first != '\n' && first != '#') return (int)indent;
        next_line(reader);
    }
    return -1;
}

static void skip_spaces(struct reader *reader) {
    while (char_at(reader, 0) == ' ') reader->at++;
}

/* Is the rest of the line empty or a comment? */
static bool ends_line(struct reader *reader) {
    skip_spaces(reader);
    if (char_at(reader, 0) != '\n' && char_at(reader, 0) != '#') return false;
    next_line(reader);
    return true;
}

/* ---- scalars ---- */

/* Is it a negative or fractional number, as "1.5" or "-2", but not "3.1.0"? */
static bool is_other_number(struct cairn_view text) {
    const char *at = text.data;
    size_t sign = text.size && (at[0] == '-' || at[0] == '+'), digits = 0, dots = 0;
    for (size_t i = sign; i < text.size; i++) {
        digits += at[i] >= '0' && at[i] <= '9';
        dots += at[i] == '.';
    }
    return digits && dots <= 1 && sign + digits + dots == text.size && (sign || dots);
}

static json_t *quoted(struct reader *reader) {
    CAIRN_AUTO(buf) text = {.limit = CAIRN_MIB};
    char quote = *reader->at++;
    for (;; reader->at++) {
        char c = char_at(reader, 0);
        if (c == '\n') return refuse(reader, "a quoted text ends on its line");
        if (c == '\\' && quote == '"') return refuse(reader, "no escapes in \"\"");
        if (c == quote) {
            reader->at++;
            if (quote == '"' || char_at(reader, 0) != quote) break;
        }
        if (cairn_buf_append(&text, &c, 1, reader->err)) return NULL;
    }
    return json_stringn(text.size ? text.data : "", text.size);
}

static json_t *scalar(struct reader *reader, bool in_flow) {
    char first = char_at(reader, 0);
    if (first == '\'' || first == '"') return quoted(reader);
    if (strchr("&*!%@`|>", first)) return refuse(reader, "an indicator that is not taken");
    /* A plain scalar: up to the end of the line, or in a flow up to the end of the value. */
    const char *at = reader->at, *end = at;
    for (; at < reader->end && *at != '\n'; at++) {
        bool blank_behind = at + 1 == reader->end || strchr(" \n", at[1]);
        if (*at == '#' && at > reader->at && at[-1] == ' ') break;
        if (*at == ':' && blank_behind) break;
        if (in_flow && strchr(",]}[{", *at)) break;
        if (*at != ' ') end = at + 1;
    }
    struct cairn_view text = {reader->at, (size_t)(end - reader->at)};
    if (!text.size) return refuse(reader, "a value is wanted");
    if (is_other_number(text)) return refuse(reader, "numbers are whole, from 0 on");
    reader->at += text.size;
    static const struct {
        const char *word;
        int value;
    } words[] = {{"true", 1}, {"false", 0}, {"null", -1}, {"~", -1}};
    uint64_t number = 0;
    for (size_t i = 0; i < CAIRN_COUNT(words); i++)
        if (strlen(words[i].word) == text.size && !memcmp(words[i].word, text.data, text.size))
            return words[i].value < 0 ? json_null() : json_boolean(words[i].value);
    if (!cairn_parse_u64(text, &number, NULL) && number <= INT64_MAX)
        return json_integer((json_int_t)number);
    return json_stringn(text.data, text.size);
}

/* "|" or ">", each also with "-": the text of the following lines indented deeper than `outer`. */
static json_t *block_text(struct reader *reader, int outer) {
    bool folded = char_at(reader, 0) == '>', strips = char_at(reader, 1) == '-';
    CAIRN_AUTO(buf) text = {.limit = CAIRN_MIB};
    size_t indent = 0, empty = 0;
    reader->at += 1 + strips;
    if (!ends_line(reader)) return refuse(reader, "the text begins on the next line");
    for (; reader->at < reader->end; next_line(reader)) {
        size_t spaces = spaces_at(reader);
        if (char_at(reader, spaces) == '\n') {
            empty++;
            continue;
        }
        if ((int)spaces <= outer) break;
        if (!indent) indent = spaces;
        if (spaces < indent || (folded && spaces > indent))
            return refuse(reader, "lines of a text have one indent");
        const char *from = reader->at + indent;
        const char *end = memchr(from, '\n', (size_t)(reader->end - from));
        size_t breaks = folded ? empty : empty + 1;
        if (text.size && !breaks && cairn_buf_append(&text, " ", 1, reader->err)) return NULL;
        for (size_t i = 0; text.size && i < breaks; i++)
            if (cairn_buf_append(&text, "\n", 1, reader->err)) return NULL;
        if (cairn_buf_append(&text, from, (size_t)((end ? end : reader->end) - from), reader->err))
            return NULL;
        empty = 0;
    }
    if (!strips && text.size && cairn_buf_append(&text, "\n", 1, reader->err)) return NULL;
    return json_stringn(text.size ? text.data : "", text.size);
}

/* ---- flow: [a, b], {a: b} ---- */

static json_t *flow(struct reader *reader);

static void skip_in_flow(struct reader *reader) {
    while (reader->at < reader->end && (*reader->at == ' ' || *reader->at == '\n')) {
        if (*reader->at == '\n') reader->line++;
        reader->at++;
    }
}

static json_t *flow_value(struct reader *reader) {
    skip_in_flow(reader);
    char first = char_at(reader, 0);
    return first == '[' || first == '{' ? flow(reader) : scalar(reader, true);
}

/* Reads a new member's name and its colon; an integer is a name as text. NULL: refused. */
static json_t *member_name(struct reader *reader, bool in_flow, const json_t *object) {
    CAIRN_AUTO_JSON json_t *key = scalar(reader, in_flow);
    if (!key) return NULL;
    if (json_is_integer(key)) {
        json_t *name = json_sprintf("%lld", (long long)json_integer_value(key));
        json_decref(key);
        key = name;
    }
    if (!json_is_string(key) || char_at(reader, 0) != ':')
        return refuse(reader, "a member is name: value");
    if (json_object_get(object, json_string_value(key))) return refuse(reader, "a name twice");
    reader->at++;
    return CAIRN_TAKE(key);
}

static bool add_member(struct reader *reader, json_t *object) {
    CAIRN_AUTO_JSON json_t *name = member_name(reader, true, object);
    return name && !json_object_set_new(object, json_string_value(name), flow_value(reader));
}

static json_t *flow(struct reader *reader) {
    bool list = *reader->at++ == '[';
    CAIRN_AUTO_JSON json_t *value = list ? json_array() : json_object();
    if (reader->depth++ == CAIRN_YAML_DEPTH_MAX) return refuse(reader, "nested too deep");
    for (;;) {
        skip_in_flow(reader);
        if (char_at(reader, 0) == (list ? ']' : '}')) break;
        if (list ? json_array_append_new(value, flow_value(reader)) != 0
                 : !add_member(reader, value))
            return NULL;
        skip_in_flow(reader);
        if (char_at(reader, 0) == ',')
            reader->at++;
        else if (char_at(reader, 0) != (list ? ']' : '}'))
            return refuse(reader, "wanted a comma or the end");
    }
    reader->at++;
    reader->depth--;
    return CAIRN_TAKE(value);
}

/* ---- blocks ---- */

static json_t *block(struct reader *reader, int indent);

/* The value after "name:" or "-" on a line with this indent. of_name: a list may have the same. */
static json_t *value_behind(struct reader *reader, int indent, bool of_name) {
    skip_spaces(reader);
    char first = char_at(reader, 0);
    if (first == '|' || first == '>') return block_text(reader, indent);
    if (first == '\n' || first == '#') {
        next_line(reader);
        int next = indent_of_next(reader);
        bool list_here = of_name && next == indent && char_at(reader, (size_t)next) == '-';
        return next > indent || list_here ? block(reader, next) : json_null();
    }
    CAIRN_AUTO_JSON json_t *value =
        first == '[' || first == '{' ? flow(reader) : scalar(reader, false);
    if (value && !ends_line(reader)) return refuse(reader, "more behind a value");
    return CAIRN_TAKE(value);
}

/* A mapping whose first key starts at `column`. */
static json_t *mapping(struct reader *reader, int column) {
    CAIRN_AUTO_JSON json_t *object = json_object();
    for (;;) {
        CAIRN_AUTO_JSON json_t *name = member_name(reader, false, object);
        json_t *value = name ? value_behind(reader, column, true) : NULL;
        if (!value || json_object_set_new(object, json_string_value(name), value)) return NULL;
        int next = indent_of_next(reader);
        if (next > column) return refuse(reader, "a line that belongs to nothing");
        if (next < column || char_at(reader, (size_t)next) == '-') return CAIRN_TAKE(object);
        reader->at += next;
    }
}

/* Does a member begin here: a scalar, a colon, and a blank or the end of the line? */
static bool is_member(const struct reader *reader) {
    struct reader ahead = *reader;
    struct cairn_error unused = {0};
    ahead.err = &unused;
    char first = char_at(&ahead, 0);
    if (strchr("[{|>", first)) return false;
    CAIRN_AUTO_JSON json_t *key = scalar(&ahead, false);
    return key && char_at(&ahead, 0) == ':' && strchr(" \n", char_at(&ahead, 1));
}

static json_t *sequence(struct reader *reader, int indent) {
    CAIRN_AUTO_JSON json_t *array = json_array();
    while (indent_of_next(reader) == indent && char_at(reader, (size_t)indent) == '-' &&
           strchr(" \n", char_at(reader, (size_t)indent + 1))) {
        reader->at += indent + 1;
        size_t gap = spaces_at(reader);
        json_t *value = NULL;
        reader->at += gap;
        if (is_member(reader))
            value = mapping(reader, indent + 1 + (int)gap);
        else
            value = value_behind(reader, indent, false);
        if (json_array_append_new(array, value)) return NULL;
    }
    return CAIRN_TAKE(array);
}

static json_t *block(struct reader *reader, int indent) {
    if (reader->depth++ == CAIRN_YAML_DEPTH_MAX) return refuse(reader, "nested too deep");
    json_t *value = NULL;
    if (char_at(reader, (size_t)indent) == '-') {
        value = sequence(reader, indent);
    } else {
        reader->at += indent;
        value = mapping(reader, indent);
    }
    reader->depth--;
    return value;
}

enum cairn_code cairn_yaml_json(struct cairn_view text, json_t **ret, struct cairn_error *err) {
    struct cairn_error why = {0};
    const char *from = text.data;
    struct reader reader = {.at = from, .end = from + text.size, .line = 1, .err = &why};
    int indent = indent_of_next(&reader);
    CAIRN_AUTO_JSON json_t *value = indent < 0 ? json_null() : block(&reader, indent);
    if (value && indent_of_next(&reader) >= 0) {
        (void)refuse(&reader, "a line that belongs to nothing");
    } else if (value) {
        *ret = CAIRN_TAKE(value);
        return CAIRN_OK;
    }
    if (why.code && err) *err = why;
    return why.code ? why.code : cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a document");
}
