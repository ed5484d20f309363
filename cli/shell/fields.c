/* SPDX-License-Identifier: Apache-2.0 */
/* Members by name, along dots. */
#include "cli/shell/fields.h"

#include "common/utf8.h"

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

/* A name may hold dots itself, as labels do: the longest part that is a member is taken. */
static json_t *find(const json_t *object, struct cairn_view name) {
    json_t *whole = json_object_getn(object, name.data, name.size);
    if (whole) return whole;
    for (size_t size = name.size; size-- > 0;) {
        const char *text = name.data;
        if (text[size] != '.') continue;
        const json_t *inner = json_object_getn(object, text, size);
        json_t *value =
            json_is_object(inner)
                ? find(inner, (struct cairn_view){text + size + 1, name.size - size - 1})
                : NULL;
        if (value) return value;
    }
    return NULL;
}

static enum cairn_code choose(struct fields *fields, const json_t *item, json_t **ret,
                              struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *chosen = json_object();
    for (size_t i = 0; chosen && i < fields->count; i++) {
        json_t *value = find(item, fields->names[i]);
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

enum cairn_code cairn_cli_fields(const json_t *json, const char *names, bool all, json_t **ret,
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
