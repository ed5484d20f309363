/* SPDX-License-Identifier: Apache-2.0 */
/* Tables made from lifecycle.def, awaited.def and scopes.def; quotas as sentences. */
#include "api/wire/words.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/text.h"

struct move {
    enum cairn_state from;
    enum cairn_event event;
    enum cairn_state to;
};
static const struct move moves[] = {
#define MOVE(from, event, to, why) {CAIRN_STATE_##from, CAIRN_EVENT_##event, CAIRN_STATE_##to},
#include "api/lifecycle.def"
#undef MOVE
};
static const char *const state_texts[] = {
    [CAIRN_STATE_OPEN] = "open",         [CAIRN_STATE_COMMITTED] = "committed",
    [CAIRN_STATE_DELETING] = "deleting", [CAIRN_STATE_ABORTING] = "aborting",
    [CAIRN_STATE_GONE] = "gone",
};

bool cairn_state_after(enum cairn_state from, enum cairn_event event, enum cairn_state *ret) {
    for (size_t i = 0; i < CAIRN_COUNT(moves); i++) {
        if (moves[i].from != from || moves[i].event != event) continue;
        *ret = moves[i].to;
        return true;
    }
    return false;
}

const char *cairn_state_text(enum cairn_state state) {
    CAIRN_ASSERT((size_t)state < CAIRN_COUNT(state_texts));
    return state_texts[state];
}

bool cairn_state_parse(struct cairn_view text, enum cairn_state *ret) {
    for (size_t i = 0; i < CAIRN_COUNT(state_texts); i++) {
        if (strlen(state_texts[i]) != text.size) continue;
        if (memcmp(state_texts[i], text.data, text.size) != 0) continue;
        *ret = (enum cairn_state)i;
        return true;
    }
    return false;
}

/* ---- awaited states ---- */

static const char *const states[] = {
#define AWAITED(id, text, when) [CAIRN_AWAITED_##id] = text,
#include "api/awaited.def"
#undef AWAITED
};
static const char *const outcomes[] = {[CAIRN_OUTCOME_NOT_YET] = "not_yet",
                                       [CAIRN_OUTCOME_REACHED] = "reached",
                                       [CAIRN_OUTCOME_NEVER] = "never"};

struct cairn_view cairn_awaited_word(enum cairn_awaited_state state) {
    CAIRN_ASSERT(state < CAIRN_AWAITED_COUNT);
    return (struct cairn_view){states[state], strcspn(states[state], ":")};
}

static enum cairn_code refuse(const char *text, struct cairn_error *err) {
    char known[160] = "";
    for (size_t i = 0, used = 0; i < CAIRN_COUNT(states); i++)
        used +=
            (size_t)snprintf(known + used, sizeof(known) - used, "%s%s", i ? ", " : "", states[i]);
    return cairn_fail(err, CAIRN_INVALID, "\"%.64s\" cannot be waited for; what can is %s", text,
                      known);
}

enum cairn_code cairn_awaited_parse(const char *text, struct cairn_awaited *ret,
                                    struct cairn_error *err) {
    size_t size = strcspn(text, ":"), state = 0;
    for (; state < CAIRN_AWAITED_COUNT; state++) {
        struct cairn_view word = cairn_awaited_word((enum cairn_awaited_state)state);
        if (word.size == size && !memcmp(word.data, text, size)) break;
    }
    const char *store = text[size] ? text + size + 1 : NULL;
    if (state == CAIRN_AWAITED_COUNT || (state == CAIRN_AWAITED_PROMOTED) != (store != NULL))
        return refuse(text, err);
    if (store) CAIRN_TRY(cairn_store_name_check(cairn_view_of(store), err));
    *ret = (struct cairn_awaited){.state = (enum cairn_awaited_state)state};
    snprintf(ret->store, sizeof(ret->store), "%s", store ? store : "");
    return CAIRN_OK;
}

bool cairn_awaited_is_removal(enum cairn_awaited_state state) {
    return state == CAIRN_AWAITED_TRASHED || state == CAIRN_AWAITED_DELETED ||
           state == CAIRN_AWAITED_GONE;
}

const char *cairn_outcome_text(enum cairn_outcome outcome) {
    CAIRN_ASSERT(outcome < CAIRN_COUNT(outcomes));
    return outcomes[outcome];
}

enum cairn_code cairn_outcome_parse(const char *text, enum cairn_outcome *ret,
                                    struct cairn_error *err) {
    for (size_t i = 0; i < CAIRN_COUNT(outcomes); i++) {
        if (strcmp(text, outcomes[i]) != 0) continue;
        *ret = (enum cairn_outcome)i;
        return CAIRN_OK;
    }
    return cairn_fail(err, CAIRN_PROTOCOL, "awaited is \"%.32s\"", text);
}

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
    /* With a letter in place of each wildcard, it must be a valid name. */
    for (char *at = name; *at; at++)
        if (*at == '*' || *at == '?') *at = 'x';
    return cairn_name_valid(cairn_view_of(name));
}

/* Backtracks to the last '*' only: the text before it already matches as early as possible. */
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

/* ---- quotas: writing and parsing the sentence ---- */

static const char *const resources[] = {"versions", "bytes"};

void cairn_quota_excess_text(const struct cairn_quota_excess *excess, const char *project,
                             char *ret, size_t capacity) {
    snprintf(ret, capacity,
             "quota of %s: limit %" PRIu64 ", used %" PRIu64 ", asked %" PRIu64
             "; project %s has no room for another save until some are deleted and gone, or its "
             "quota is raised",
             excess->resource, excess->limit, excess->used, excess->asked, project);
}

/* Reads `before`, then a number. */
static bool take_number(const char **at, const char *before, uint64_t *ret) {
    size_t size = strlen(before);
    if (strncmp(*at, before, size) != 0) return false;
    *at += size;
    size_t digits = strspn(*at, "0123456789");
    struct cairn_view number = {*at, digits};
    *at += digits;
    return cairn_parse_u64(number, ret, NULL) == CAIRN_OK;
}

bool cairn_quota_excess_read(const char *text, struct cairn_quota_excess *ret) {
    static const char head[] = "quota of ";
    struct cairn_quota_excess read = {0};
    if (strncmp(text, head, sizeof(head) - 1) != 0) return false;
    const char *at = text + sizeof(head) - 1;
    for (size_t i = 0; i < CAIRN_COUNT(resources) && !read.resource; i++)
        if (!strncmp(at, resources[i], strlen(resources[i]))) read.resource = resources[i];
    if (!read.resource) return false;
    at += strlen(read.resource);
    if (!take_number(&at, ": limit ", &read.limit) || !take_number(&at, ", used ", &read.used) ||
        !take_number(&at, ", asked ", &read.asked) || *at != ';')
        return false;
    *ret = read;
    return true;
}

bool cairn_quota_excess_put(json_t *object, const struct cairn_quota_excess *excess) {
    int refused = json_object_set_new(object, "resource", json_string(excess->resource)) |
                  json_object_set_new(object, "limit", json_integer((json_int_t)excess->limit)) |
                  json_object_set_new(object, "used", json_integer((json_int_t)excess->used)) |
                  json_object_set_new(object, "asked", json_integer((json_int_t)excess->asked));
    return !refused;
}

void cairn_quota_text(uint64_t versions, uint64_t bytes, char *ret, size_t capacity) {
    bool both = versions != CAIRN_QUOTA_NONE && bytes != CAIRN_QUOTA_NONE;
    char count[40] = "", size[40] = "";
    if (versions != CAIRN_QUOTA_NONE)
        snprintf(count, sizeof(count), "%" PRIu64 " version%s", versions, versions == 1 ? "" : "s");
    if (bytes != CAIRN_QUOTA_NONE)
        snprintf(size, sizeof(size), "%" PRIu64 " byte%s", bytes, bytes == 1 ? "" : "s");
    snprintf(ret, capacity, "%s%s%s", count, both ? ", " : "", size);
    if (!ret[0]) snprintf(ret, capacity, "no bound");
}
