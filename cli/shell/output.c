/* SPDX-License-Identifier: Apache-2.0 */
/* output: JSON and YAML, filtered by --fields; notes, sizes and cleaned text. */
#include "cli/shell/output.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>
#include <sys/statvfs.h>

#include "common/text.h"

static struct {
    const char *fields;
    bool yaml, lines, si_sizes, plain_sizes;
} forms;

void cli_print_as(const struct cli *cli) {
    forms.fields = cli->fields;
    forms.yaml = cli->yaml;
    forms.lines = cli->output == CLI_JSONL;
    forms.si_sizes = cli->si_sizes;
    forms.plain_sizes = cli->plain_sizes;
}

bool cli_wants_json(const struct cli *cli) {
    return cli->output == CLI_JSON || cli->output == CLI_JSONL;
}

enum cairn_code cli_flush(struct cairn_error *err) {
    return fflush(stdout) ? cairn_fail_errno(err, "standard output") : CAIRN_OK;
}

struct cli_size cli_size(uint64_t bytes) {
    struct cli_size ret;
    if (forms.plain_sizes)
        snprintf(ret.text, sizeof ret.text, "%" PRIu64, bytes);
    else if (forms.si_sizes)
        cairn_size_text_si(bytes, ret.text);
    else
        cairn_size_text(bytes, ret.text);
    return ret;
}

/* Bidirectional marks and separators: U+200E, U+200F, U+2028 to U+202E, U+2066 to U+2069. */
static bool turns_direction(const unsigned char *at) {
    if (at[0] != 0xe2) return false;
    if (at[1] == 0x80) return at[2] == 0x8e || at[2] == 0x8f || (at[2] >= 0xa8 && at[2] <= 0xae);
    return at[1] == 0x81 && at[2] >= 0xa6 && at[2] <= 0xa9;
}

static bool is_c1(const unsigned char *at) { /* U+0080 to U+009F */
    return at[0] == 0xc2 && at[1] >= 0x80 && at[1] < 0xa0;
}

void cli_clean(char *text) {
    for (unsigned char *at = (unsigned char *)text; *at; at++) {
        bool two = is_c1(at);
        bool three = turns_direction(at);
        if (*at < 0x20 || *at == 0x7f || two || three) *at = '?';
        if (two || three) at[1] = '?';
        if (three) at[2] = '?';
    }
}

void cli_note(const char *format, ...) {
    char text[1200];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    cli_clean(text);
    fprintf(stderr, "%s\n", text);
}

void cli_add(char *text, size_t capacity, const char *between, const char *format, ...) {
    size_t used = strlen(text);
    va_list arguments;
    if (used) used += (size_t)snprintf(text + used, capacity - used, "%s", between);
    if (used >= capacity) return;
    va_start(arguments, format);
    vsnprintf(text + used, capacity - used, format, arguments);
    va_end(arguments);
}

bool cli_says_yes(void) {
    char answer[8] = "";
    return fgets(answer, sizeof answer, stdin) && (answer[0] == 'y' || answer[0] == 'Y');
}

enum cairn_code cli_no_space(const char *folder, uint64_t needed_bytes, const char *left,
                             struct cairn_error *err) {
    struct statvfs room = {0};
    if (!err || err->code != CAIRN_NO_SPACE) return CAIRN_NO_SPACE;
    if (err->os_errno == EFBIG)
        return cairn_fail(err, CAIRN_NO_SPACE,
                          "%s: files may not be that large here: raise the limit (ulimit -f); %s",
                          err->message, left);
    (void)statvfs(folder, &room);
    if (room.f_files && !room.f_favail)
        return cairn_fail(err, CAIRN_NO_SPACE,
                          "%s: make room, or name a folder on another disk; %s", err->message,
                          left);
    return cairn_fail(err, CAIRN_NO_SPACE,
                      "%s: %s are needed and %s free in %s: make room, or name a folder on another "
                      "disk; %s",
                      err->message, cli_size(needed_bytes).text,
                      cli_size((uint64_t)room.f_bavail * room.f_frsize).text, folder, left);
}

/* ---- --fields: members by dotted names ---- */

#define NAMES_MAX 64

struct fields {
    struct cairn_view names[NAMES_MAX];
    bool found[NAMES_MAX];
    size_t count;
};

static enum cairn_code parse(const char *text, struct fields *ret, struct cairn_error *err) {
    *ret = (struct fields){0};
    for (const char *at = text;; at++) {
        size_t size = strcspn(at, ",");
        if (!size)
            return cairn_fail(err, CAIRN_INVALID, "--fields %s: an empty name",
                              cairn_short(text).text);
        if (ret->count == NAMES_MAX)
            return cairn_fail(err, CAIRN_INVALID, "--fields: more than %d names", NAMES_MAX);
        ret->names[ret->count++] = (struct cairn_view){at, size};
        at += size;
        if (!*at) return CAIRN_OK;
    }
}

/* Member names may contain dots, as labels do: the longest matching prefix wins. */
json_t *cli_member(const json_t *object, struct cairn_view name) {
    json_t *whole = json_object_getn(object, name.data, name.size);
    if (whole) return whole;
    for (size_t size = name.size; size-- > 0;) {
        const char *text = name.data;
        if (text[size] != '.') continue;
        const json_t *inner = json_object_getn(object, text, size);
        json_t *value =
            json_is_object(inner)
                ? cli_member(inner, (struct cairn_view){text + size + 1, name.size - size - 1})
                : NULL;
        if (value) return value;
    }
    return NULL;
}

static enum cairn_code choose(struct fields *fields, const json_t *item, json_t **ret,
                              struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *chosen = json_object();
    for (size_t i = 0; chosen && i < fields->count; i++) {
        json_t *value = cli_member(item, fields->names[i]);
        fields->found[i] |= value != NULL;
        if (json_object_setn_new(chosen, fields->names[i].data, fields->names[i].size,
                                 value ? json_incref(value) : json_null()) != 0)
            return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for fields");
    }
    *ret = json_incref(chosen);
    return chosen ? CAIRN_OK : cairn_fail(err, CAIRN_NO_MEMORY, "no memory for fields");
}

static enum cairn_code check_found(const struct fields *fields, const json_t *sample, bool all,
                                   struct cairn_error *err) {
    CAIRN_AUTO(buf) known = {.limit = 4096};
    const char *key;
    json_t *value;
    json_object_foreach(
        (json_t *)(uintptr_t)sample, key,
        value) if (cairn_buf_printf(&known, NULL, "%s%s", known.size ? ", " : "", key)) break;
    for (size_t i = 0; !all && i < fields->count; i++)
        if (fields->found[i]) return CAIRN_OK;
    for (size_t i = 0; i < fields->count; i++)
        if (!fields->found[i])
            return cairn_fail(err, CAIRN_INVALID, "--fields: there is no %.*s; there are %.600s",
                              (int)cairn_min_u64(fields->names[i].size, 100),
                              (const char *)fields->names[i].data,
                              known.size ? known.data : "none");
    return CAIRN_OK;
}

/* names: separated by commas; dots select members. all: every name must exist in some item. */
static enum cairn_code choose_fields(const json_t *json, const char *names, bool all, json_t **ret,
                                     struct cairn_error *err) {
    struct fields fields;
    CAIRN_TRY(parse(names, &fields, err));
    if (!json_is_array(json)) {
        CAIRN_TRY(choose(&fields, json, ret, err));
        return check_found(&fields, json, all, err);
    }
    CAIRN_AUTO_JSON json_t *list = json_array();
    for (size_t i = 0; list && i < json_array_size(json); i++) {
        json_t *chosen = NULL;
        CAIRN_TRY(choose(&fields, json_array_get(json, i), &chosen, err));
        if (json_array_append_new(list, chosen) != 0)
            return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for fields");
    }
    if (!list) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for fields");
    if (json_array_size(json)) CAIRN_TRY(check_found(&fields, json_array_get(json, 0), all, err));
    *ret = json_incref(list);
    return CAIRN_OK;
}

/* ---- YAML: block style; scalars follow their key on its line ---- */

#define STEP 2

/* Safe unquoted: begins with a letter, no YAML word or special character. */
static bool is_plain(const char *text) {
    static const char *const taken[] = {"true", "false", "yes", "no",  "on",  "off",
                                        "null", "y",     "n",   "nan", "inf", "infinity"};
    bool letter = (*text >= 'a' && *text <= 'z') || (*text >= 'A' && *text <= 'Z');
    size_t size = strlen(text);
    for (size_t i = 0; i < CAIRN_COUNT(taken); i++)
        if (strcasecmp(text, taken[i]) == 0) return false;
    return letter && size == strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
                                          "0123456789_./@-");
}

/* JSON's quoting is valid in YAML. */
static enum cairn_code put_scalar(const json_t *json, struct cairn_buf *ret,
                                  struct cairn_error *err) {
    if (json_is_string(json) && is_plain(json_string_value(json)))
        return cairn_buf_append_text(ret, json_string_value(json), err);
    if (json_is_real(json)) {
        /* YAML 1.1 reads exponents without a point or a sign as text. */
        struct cairn_real real = cairn_real(json_real_value(json));
        const char *point = strchr(real.text, '.') ? "" : ".0", *power = strchr(real.text, 'e');
        if (!power) return cairn_buf_printf(ret, err, "%s%s", real.text, point);
        return cairn_buf_printf(ret, err, "%.*s%se%s%s", (int)(power - real.text), real.text, point,
                                power[1] == '-' ? "" : "+", power + 1);
    }
    CAIRN_AUTO(buf) text = {.limit = CAIRN_GIB};
    CAIRN_TRY(cairn_json_dump(json, &text, err));
    return cairn_buf_append(ret, text.data, text.size, err);
}

static bool is_block(const json_t *json) {
    return (json_is_object(json) && json_object_size(json)) ||
           (json_is_array(json) && json_array_size(json));
}

static enum cairn_code put_block(const json_t *json, unsigned depth, bool begun,
                                 struct cairn_buf *ret, struct cairn_error *err);

/* The value after "key:". */
static enum cairn_code put_value(const json_t *json, unsigned depth, struct cairn_buf *ret,
                                 struct cairn_error *err) {
    if (is_block(json)) {
        CAIRN_TRY(cairn_buf_append(ret, "\n", 1, err));
        return put_block(json, depth, false, ret, err);
    }
    CAIRN_TRY(cairn_buf_append(ret, " ", 1, err));
    CAIRN_TRY(put_scalar(json, ret, err));
    return cairn_buf_append(ret, "\n", 1, err);
}

static enum cairn_code put_indent(unsigned depth, struct cairn_buf *ret, struct cairn_error *err) {
    return cairn_buf_printf(ret, err, "%*s", (int)depth, "");
}

/* begun: the first line is already indented. */
static enum cairn_code put_block(const json_t *json, unsigned depth, bool begun,
                                 struct cairn_buf *ret, struct cairn_error *err) {
    const char *key;
    json_t *value;
    if (json_is_array(json)) {
        for (size_t i = 0; i < json_array_size(json); i++) {
            const json_t *item = json_array_get(json, i);
            if (i || !begun) CAIRN_TRY(put_indent(depth, ret, err));
            CAIRN_TRY(cairn_buf_append(ret, "-", 1, err));
            if (is_block(item)) {
                CAIRN_TRY(cairn_buf_append(ret, " ", 1, err));
                CAIRN_TRY(put_block(item, depth + STEP, true, ret, err));
            } else {
                CAIRN_TRY(put_value(item, depth, ret, err));
            }
        }
        return CAIRN_OK;
    }
    json_object_foreach((json_t *)(uintptr_t)json, key, value) {
        if (!begun) CAIRN_TRY(put_indent(depth, ret, err));
        begun = false;
        CAIRN_AUTO_JSON json_t *text = json_string(key);
        if (!text) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a key");
        CAIRN_TRY(put_scalar(text, ret, err));
        CAIRN_TRY(cairn_buf_append(ret, ":", 1, err));
        CAIRN_TRY(put_value(value, depth + STEP, ret, err));
    }
    return CAIRN_OK;
}

static enum cairn_code put_yaml(const json_t *json, struct cairn_buf *ret,
                                struct cairn_error *err) {
    if (is_block(json)) return put_block(json, 0, false, ret, err);
    CAIRN_TRY(put_scalar(json, ret, err));
    return cairn_buf_append(ret, "\n", 1, err);
}

/* ---- JSON ---- */

/* Escapes control characters and bidirectional marks; jansson escapes those below U+0020. */
static enum cairn_code escape_json(const struct cairn_buf *json, struct cairn_buf *ret,
                                   struct cairn_error *err) {
    const unsigned char *text = (const unsigned char *)json->data;
    for (size_t at = 0; at < json->size;) {
        size_t run = at;
        while (run < json->size && text[run] != 0x7f && !is_c1(text + run) &&
               !turns_direction(text + run))
            run++;
        CAIRN_TRY(cairn_buf_append(ret, text + at, run - at, err));
        at = run;
        if (at == json->size) break;
        unsigned point = text[at] == 0x7f ? 0x7f
                         : is_c1(text + at)
                             ? text[at + 1]
                             : 0x2000u | (text[at + 1] & 0x3fu) << 6 | (text[at + 2] & 0x3fu);
        CAIRN_TRY(cairn_buf_printf(ret, err, "\\u%04x", point));
        at += text[at] == 0x7f ? 1 : is_c1(text + at) ? 2 : 3;
    }
    return CAIRN_OK;
}

static enum cairn_code print_value(const json_t *json, bool pretty, struct cairn_error *err) {
    CAIRN_AUTO(buf) raw = {.limit = CAIRN_GIB}, text = {.limit = 2 * CAIRN_GIB};
    if (forms.yaml)
        CAIRN_TRY(put_yaml(json, &raw, err));
    else
        CAIRN_TRY(pretty && !forms.lines ? cairn_json_dump_pretty(json, &raw, err)
                                         : cairn_json_show(json, &raw, err));
    CAIRN_TRY(escape_json(&raw, &text, err));
    if (!forms.yaml) CAIRN_TRY(cairn_buf_append_text(&text, "\n", err));
    if (fwrite(text.data, 1, text.size, stdout) != text.size)
        return cairn_fail_errno(err, "standard output");
    return cli_flush(err);
}

enum cairn_code cli_print_json(const json_t *json, bool pretty, struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *chosen = NULL;
    if (!forms.fields) return print_value(json, pretty, err);
    CAIRN_TRY(choose_fields(json, forms.fields, pretty, &chosen, err));
    return print_value(chosen, pretty, err);
}

enum cairn_code cli_print_reply(const struct cli *cli, const json_t *json,
                                struct cairn_error *err) {
    return cli_print_json(json, cli->output == CLI_JSON, err);
}

/* --fields: each name must exist in some item of the whole array. */
enum cairn_code cli_print_lines(const json_t *items, struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *chosen = NULL;
    if (forms.fields) CAIRN_TRY(choose_fields(items, forms.fields, true, &chosen, err));
    if (chosen) items = chosen;
    for (size_t i = 0; i < json_array_size(items); i++)
        CAIRN_TRY(print_value(json_array_get(items, i), false, err));
    return CAIRN_OK;
}
