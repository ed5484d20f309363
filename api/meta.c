/* SPDX-License-Identifier: Apache-2.0 */
/* Type, depth and size of labels and meta; see meta.h. */
#include "api/meta.h"

#include <stdio.h>

#define SHOWN 64 /* bytes of a name in a message */

/* Documents are at most 16 deep before they come here (json.h#1). */
static unsigned depth_of(const json_t *json) {
    unsigned deepest = 0;
    const char *key = NULL;
    json_t *value = NULL;
    size_t index = 0;
    if (json_is_object(json)) {
        json_object_foreach((json_t *)(uintptr_t)json, key, value) {
            unsigned depth = depth_of(value);
            deepest = depth > deepest ? depth : deepest;
        }
    } else if (json_is_array(json)) {
        json_array_foreach(json, index, value) {
            unsigned depth = depth_of(value);
            deepest = depth > deepest ? depth : deepest;
        }
    } else {
        return 0;
    }
    return deepest + 1;
}

/* 0: it has none. */
static unsigned control_byte(const char *text) {
    for (; *text; text++)
        if ((unsigned char)*text < 0x20 || *text == 0x7f) return (unsigned char)*text;
    return 0;
}

#define PLACE_BYTES 256
/* Where `what` is a pointer (RFC 6901) that of its member, as far as its name is no longer. */
static void place_of(const char *what, const char *key, char ret[PLACE_BYTES]) {
    int size = snprintf(ret, PLACE_BYTES, "%s", what);
    if (what[0] != '/' || size < 0 || size + 2 * SHOWN >= PLACE_BYTES) return;
    ret[size++] = '/';
    for (size_t i = 0; key[i] && i < SHOWN; i++) {
        bool escaped = key[i] == '~' || key[i] == '/';
        ret[size++] = escaped ? '~' : key[i];
        if (escaped) ret[size++] = key[i] == '~' ? '0' : '1';
    }
    ret[size] = '\0';
}

/* Labels are chosen by selectors, shown in tables and written into logs. */
static enum cairn_code check_label(const char *what, const char *key, const json_t *value,
                                   struct cairn_error *err) {
    char place[PLACE_BYTES];
    place_of(what, key, place);
    if (!*key) return cairn_fail(err, CAIRN_INVALID, "%s: a label needs a name", place);
    if (control_byte(key))
        return cairn_fail(err, CAIRN_INVALID, "%s: the name of a label has the control byte 0x%02x",
                          what, control_byte(key));
    if (!json_is_string(value))
        return cairn_fail(err, CAIRN_INVALID, "%s: the value of %.64s must be a text", place, key);
    const char *text = json_string_value(value);
    if (!control_byte(text)) return CAIRN_OK;
    return cairn_fail(err, CAIRN_INVALID, "%s: the value of %.64s has the control byte 0x%02x",
                      place, key, control_byte(text));
}

enum cairn_code cairn_label_changes_check(const json_t *changes, const char *what,
                                          struct cairn_error *err) {
    const char *key = NULL;
    json_t *value = NULL;
    json_object_foreach((json_t *)(uintptr_t)changes, key, value) {
        if (!json_is_null(value)) CAIRN_TRY(check_label(what, key, value, err));
    }
    return CAIRN_OK;
}

static enum cairn_code check_values(const json_t *json, const char *what, bool of_texts,
                                    struct cairn_error *err) {
    const char *key = NULL;
    json_t *value = NULL;
    if (!json_is_object(json)) return cairn_fail(err, CAIRN_INVALID, "%s must be an object", what);
    json_object_foreach((json_t *)(uintptr_t)json, key, value) {
        if (of_texts) CAIRN_TRY(check_label(what, key, value, err));
    }
    if (depth_of(json) > CAIRN_META_DEPTH_MAX)
        return cairn_fail(err, CAIRN_INVALID, "%s is nested deeper than %d", what,
                          CAIRN_META_DEPTH_MAX);
    return CAIRN_OK;
}

enum cairn_code cairn_meta_check(const json_t *json, const char *what, bool of_texts,
                                 struct cairn_buf *ret_canonical, struct cairn_error *err) {
    CAIRN_AUTO(buf) own = {0};
    struct cairn_buf *text = ret_canonical ? ret_canonical : &own;
    if (!json) return cairn_buf_append_text(text, "{}", err);
    CAIRN_TRY(check_values(json, what, of_texts, err));
    text->limit = CAIRN_META_BYTES_MAX;
    enum cairn_code code = cairn_json_dump(json, text, err);
    if (code == CAIRN_TOO_LARGE)
        return cairn_fail(err, code, "%s has more than %zu bytes as canonical JSON", what,
                          (size_t)CAIRN_META_BYTES_MAX);
    return code;
}
