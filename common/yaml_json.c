/* SPDX-License-Identifier: Apache-2.0 */
/* By descent: a line's indent says to which mapping or sequence it belongs; see yaml_json.h. */
#include "common/yaml_json.h"

#include <stdio.h>

#include "common/text.h"

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

/* Behind empty lines and comments; -1 at the end, else the indent of the line. */
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

/* What stands behind a value on its line: nothing, or a comment. */
static bool ends_line(struct reader *reader) {
    skip_spaces(reader);
    if (char_at(reader, 0) != '\n' && char_at(reader, 0) != '#') return false;
    next_line(reader);
    return true;
}

/* ---- scalars ---- */

/* "1.5", "-2", but not "3.1.0": a number that is no whole one from 0 on. */
static bool is_other_number(struct cairn_view text) {
    const char *at = text.data;
    size_t sign = text.size && (at[0] == '-' || at[0] == '+'), digits = 0, dots = 0;
    for (size_t i = sign; i < text.size; i++) {
        digits += at[i] >= '0' && at[i] <= '9';
        dots += at[i] == '.';
    }
    return digits && dots <= 1 && sign + digits + dots == text.size && (sign || dots);
}

static json_t *plain(struct cairn_view text) {
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

/* Up to the end of the line, or in a flow up to what ends a value there. */
static struct cairn_view plain_at(const struct reader *reader, bool in_flow) {
    const char *at = reader->at, *end = at;
    for (; at < reader->end && *at != '\n'; at++) {
        bool blank_behind = at + 1 == reader->end || strchr(" \n", at[1]);
        if (*at == '#' && at > reader->at && at[-1] == ' ') break;
        if (*at == ':' && blank_behind) break;
        if (in_flow && strchr(",]}[{", *at)) break;
        if (*at != ' ') end = at + 1;
    }
    return (struct cairn_view){reader->at, (size_t)(end - reader->at)};
}

static json_t *scalar(struct reader *reader, bool in_flow) {
    char first = char_at(reader, 0);
    if (first == '\'' || first == '"') return quoted(reader);
    if (strchr("&*!%@`|>", first)) return refuse(reader, "an indicator that is not taken");
    struct cairn_view text = plain_at(reader, in_flow);
    if (!text.size) return refuse(reader, "a value is wanted");
    if (is_other_number(text)) return refuse(reader, "numbers are whole, from 0 on");
    reader->at += text.size;
    return plain(text);
}

/* "|", ">", each also with "-": the lines below that are indented further than `outer`. */
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

/* Also over the ends of lines. */
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

static bool add_member(struct reader *reader, json_t *object) {
    CAIRN_AUTO_JSON json_t *key = scalar(reader, true);
    char number[24];
    const char *name = json_string_value(key);
    if (!key) return false;
    if (json_is_integer(key)) {
        snprintf(number, sizeof(number), "%lld", (long long)json_integer_value(key));
        name = number;
    }
    if (!name || char_at(reader, 0) != ':') return refuse(reader, "a member is name: value");
    if (json_object_get(object, name)) return refuse(reader, "a name twice");
    reader->at++;
    return !json_object_set_new(object, name, flow_value(reader));
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

/* What stands behind "name:" or "-", whose line has this indent. in_list: a list may stand at the
 * indent of its name. */
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

/* At the first word of a line, whose place in it is `column`: "name: value" and those below it. */
static json_t *mapping(struct reader *reader, int column) {
    CAIRN_AUTO_JSON json_t *object = json_object();
    for (;;) {
        CAIRN_AUTO_JSON json_t *key = scalar(reader, false);
        char number[24];
        const char *name = json_string_value(key);
        if (!key) return NULL;
        if (json_is_integer(key)) {
            snprintf(number, sizeof(number), "%lld", (long long)json_integer_value(key));
            name = number;
        }
        if (!name || char_at(reader, 0) != ':') return refuse(reader, "a member is name: value");
        if (json_object_get(object, name)) return refuse(reader, "a name twice");
        reader->at++;
        json_t *value = value_behind(reader, column, true);
        if (!value || json_object_set_new(object, name, value)) return NULL;
        int next = indent_of_next(reader);
        if (next > column) return refuse(reader, "a line that belongs to nothing");
        if (next < column || char_at(reader, (size_t)next) == '-') return CAIRN_TAKE(object);
        reader->at += next;
    }
}

/* Does a name begin here: a scalar, a colon, and a blank or the end of the line? */
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
