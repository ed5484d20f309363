/* SPDX-License-Identifier: Apache-2.0 */
/* Scopes by name, and patterns of projects; see scope.h. */
#include "api/scope.h"

#include <stdio.h>

#include "api/keys.h"
#include "common/text.h"

static const char *const scope_names[] = {
#define SCOPE(id, name, what) name,
#include "api/scopes.def"
#undef SCOPE
};

/* ---- scopes ---- */

static enum cairn_code add_scope(const char *name, size_t size, unsigned *scopes,
                                 struct cairn_error *err) {
    for (unsigned i = 0; i < CAIRN_SCOPE_COUNT; i++) {
        if (strlen(scope_names[i]) != size || memcmp(scope_names[i], name, size) != 0) continue;
        if (*scopes & (1u << i))
            return cairn_fail(err, CAIRN_INVALID, "the scope %s stands there twice",
                              scope_names[i]);
        *scopes |= 1u << i;
        return CAIRN_OK;
    }
    return cairn_fail(err, CAIRN_INVALID, "scopes are read, write, retain and admin, not \"%.*s\"",
                      (int)cairn_min_u64(size, 32), name);
}

enum cairn_code cairn_scopes_parse(const char *text, unsigned *ret, struct cairn_error *err) {
    unsigned scopes = 0;
    for (;; text++) {
        size_t size = strcspn(text, ",");
        CAIRN_TRY(add_scope(text, size, &scopes, err));
        text += size;
        if (!*text) break;
    }
    *ret = scopes;
    return CAIRN_OK;
}

enum cairn_code cairn_scopes_read(const json_t *array, unsigned *ret, struct cairn_error *err) {
    unsigned scopes = 0;
    for (size_t i = 0; i < json_array_size(array); i++) {
        const char *name = json_string_value(json_array_get(array, i));
        CAIRN_TRY(add_scope(name ? name : "", name ? strlen(name) : 0, &scopes, err));
    }
    if (!scopes) return cairn_fail(err, CAIRN_INVALID, "a scope is needed");
    *ret = scopes;
    return CAIRN_OK;
}

void cairn_scopes_text(unsigned scopes, char ret[CAIRN_SCOPES_TEXT_BYTES]) {
    size_t used = 0;
    ret[0] = '\0';
    for (unsigned i = 0; i < CAIRN_SCOPE_COUNT; i++) {
        if (!(scopes & (1u << i))) continue;
        int size = snprintf(ret + used, CAIRN_SCOPES_TEXT_BYTES - used, "%s%s", used ? "," : "",
                            scope_names[i]);
        used += (size_t)size;
        CAIRN_ASSERT(used < CAIRN_SCOPES_TEXT_BYTES);
    }
}

json_t *cairn_scopes_json(unsigned scopes) {
    json_t *array = json_array();
    for (unsigned i = 0; array && i < CAIRN_SCOPE_COUNT; i++) {
        if (!(scopes & (1u << i)) || !json_array_append_new(array, json_string(scope_names[i])))
            continue;
        json_decref(array);
        return NULL;
    }
    return array;
}

/* ---- projects ---- */

static bool has_wildcard(const char *pattern) {
    return strpbrk(pattern, "*?") != NULL;
}

bool cairn_project_pattern_valid(const char *pattern) {
    char name[CAIRN_NAME_BYTES_MAX + 1];
    if (!pattern[0] || !cairn_text_copy(name, sizeof(name), pattern)) return false;
    /* As a name whose wildcards stand for a letter each, it must be one. */
    for (char *at = name; *at; at++)
        if (*at == '*' || *at == '?') *at = 'x';
    return cairn_name_valid(cairn_view_of(name));
}

/* The last '*' alone is come back to: what stands before it has been fitted as early as it can. */
bool cairn_project_pattern_fits(const char *pattern, const char *project) {
    const char *star = NULL, *from = NULL;
    while (*project) {
        if (*pattern == '*') {
            star = ++pattern;
            from = project;
        } else if (*pattern && (*pattern == '?' || *pattern == *project)) {
            pattern++;
            project++;
        } else if (star) {
            pattern = star;
            project = ++from;
        } else {
            return false;
        }
    }
    while (*pattern == '*') pattern++;
    return !*pattern;
}

bool cairn_project_pattern_covers(const char *outer, const char *inner) {
    if (!strcmp(outer, "*") || !strcmp(outer, inner)) return true;
    return !has_wildcard(inner) && cairn_project_pattern_fits(outer, inner);
}
