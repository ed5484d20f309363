/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks of keys and dashes; every value that is no block stands behind its key. */
#include "cli/shell/yaml.h"

#include <strings.h>

#include "common/text.h"

#define STEP 2

/* Letters first, and then what means nothing to YAML. */
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

/* YAML 1.1 takes for text what has an exponent, but no point, or no sign in front of it. */
static enum cairn_code put_real(double value, struct cairn_buf *ret, struct cairn_error *err) {
    struct cairn_real real = cairn_real(value);
    const char *point = strchr(real.text, '.') ? "" : ".0", *power = strchr(real.text, 'e');
    if (!power) return cairn_buf_printf(ret, err, "%s%s", real.text, point);
    return cairn_buf_printf(ret, err, "%.*s%se%s%s", (int)(power - real.text), real.text, point,
                            power[1] == '-' ? "" : "+", power + 1);
}

/* What is quoted for JSON is for YAML, too. */
static enum cairn_code put_scalar(const json_t *json, struct cairn_buf *ret,
                                  struct cairn_error *err) {
    if (json_is_string(json) && is_plain(json_string_value(json)))
        return cairn_buf_append_text(ret, json_string_value(json), err);
    if (json_is_real(json)) return put_real(json_real_value(json), ret, err);
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

/* Behind a key. */
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

static enum cairn_code put_key(const char *key, struct cairn_buf *ret, struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *text = json_string(key);
    if (!text) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a key");
    CAIRN_TRY(put_scalar(text, ret, err));
    return cairn_buf_append(ret, ":", 1, err);
}

static enum cairn_code put_items(const json_t *json, unsigned depth, bool begun,
                                 struct cairn_buf *ret, struct cairn_error *err) {
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

/* begun: its first line has its indent already. */
static enum cairn_code put_block(const json_t *json, unsigned depth, bool begun,
                                 struct cairn_buf *ret, struct cairn_error *err) {
    const char *key;
    json_t *value;
    if (json_is_array(json)) return put_items(json, depth, begun, ret, err);
    json_object_foreach((json_t *)(uintptr_t)json, key, value) {
        if (!begun) CAIRN_TRY(put_indent(depth, ret, err));
        begun = false;
        CAIRN_TRY(put_key(key, ret, err));
        CAIRN_TRY(put_value(value, depth + STEP, ret, err));
    }
    return CAIRN_OK;
}

enum cairn_code cairn_cli_yaml(const json_t *json, struct cairn_buf *ret, struct cairn_error *err) {
    if (is_block(json)) return put_block(json, 0, false, ret, err);
    CAIRN_TRY(put_scalar(json, ret, err));
    return cairn_buf_append(ret, "\n", 1, err);
}
