/* SPDX-License-Identifier: Apache-2.0 */
/* versions: by bucket and key, the newest of a key first. */
#include "tests/support/s3fault/versions.h"

#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>

#define DAY_MS (INT64_C(24) * 3600 * 1000)

static void *must(void *memory) {
    if (!memory) abort();
    return memory;
}

enum mode { MODE_OFF, MODE_ENABLED, MODE_SUSPENDED };

static enum mode mode_of(const struct s3f_state *state) {
    const char *text = state->versioning.size ? state->versioning.data : "";
    if (strstr(text, "<Status>Enabled</Status>")) return MODE_ENABLED;
    return strstr(text, "<Status>Suspended</Status>") ? MODE_SUSPENDED : MODE_OFF;
}

bool s3f_tells_versions(const struct s3f_state *state) {
    return mode_of(state) != MODE_OFF;
}

/* ---- the table ---- */

static int order(const struct s3f_version *version, const char *bucket, const char *key) {
    int result = strcmp(version->bucket, bucket);
    return result ? result : strcmp(version->key, key);
}

size_t s3f_version_place(const struct s3f_state *state, const char *bucket, const char *key) {
    size_t low = 0, high = state->version_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (order(state->versions[middle], bucket, key) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool is_at(const struct s3f_state *state, size_t place, const char *bucket,
                  const char *key) {
    return place < state->version_count && order(state->versions[place], bucket, key) == 0;
}

const struct s3f_version *s3f_version_newest(const struct s3f_state *state, const char *bucket,
                                             const char *key) {
    size_t place = s3f_version_place(state, bucket, key);
    return is_at(state, place, bucket, key) ? state->versions[place] : NULL;
}

/* version_count: there is none of that id. */
static size_t find(const struct s3f_state *state, const char *bucket, const char *key,
                   const char *id) {
    size_t place = s3f_version_place(state, bucket, key);
    for (; is_at(state, place, bucket, key); place++)
        if (!strcmp(state->versions[place]->id, id)) return place;
    return state->version_count;
}

static void remove_at(struct s3f_state *state, size_t place) {
    if (place == state->version_count) return;
    struct s3f_version *version = state->versions[place];
    state->version_count--;
    memmove(state->versions + place, state->versions + place + 1,
            (state->version_count - place) * sizeof *state->versions);
    s3f_object_drop(state, version->object);
    free(version->bucket);
    free(version->key);
    free(version);
}

/* What a GET finds is the newest version of the key. */
static void refresh(struct s3f_state *state, const char *bucket, const char *key) {
    const struct s3f_version *newest = s3f_version_newest(state, bucket, key);
    if (!newest || !newest->object) {
        s3f_object_hide(state, bucket, key);
        return;
    }
    newest->object->references++;
    s3f_object_show(state, newest->object);
}

/* ---- what is written ---- */

/* Ids hold what must be escaped in a query, so that a client that forgets it is found out. */
static void name_version(struct s3f_state *state, char ret[48]) {
    uint64_t z = state->seed + ++state->serial * UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    snprintf(ret, 48, "ver+%llu/%016llx==", (unsigned long long)state->serial,
             (unsigned long long)(z ^ z >> 31));
}

static int64_t retained_until(const struct s3f_state *state, int64_t now_ms) {
    const char *text = state->object_lock.size ? state->object_lock.data : "";
    const char *rule = strstr(text, "<DefaultRetention>");
    const char *days = rule ? strstr(rule, "<Days>") : NULL;
    return days ? now_ms + strtoll(days + strlen("<Days>"), NULL, 10) * DAY_MS : 0;
}

/* take_object NULL: a marker. */
static const struct s3f_version *add(struct s3f_state *state, const char *bucket, const char *key,
                                     struct s3f_object *take_object) {
    if (state->version_count == state->version_capacity) {
        state->version_capacity = state->version_capacity * 2 + 64;
        state->versions =
            must(realloc(state->versions, state->version_capacity * sizeof *state->versions));
    }
    struct s3f_version *version = must(calloc(1, sizeof *version));
    snprintf(version->id, sizeof version->id, "null");
    if (mode_of(state) == MODE_ENABLED)
        name_version(state, version->id);
    else
        remove_at(state, find(state, bucket, key, version->id));
    version->bucket = must(strdup(bucket));
    version->key = must(strdup(key));
    version->modified_ms = s3f_now_ms(state);
    version->object = take_object;
    if (take_object && mode_of(state) == MODE_ENABLED)
        version->retained_until_ms = retained_until(state, version->modified_ms);
    size_t place = s3f_version_place(state, bucket, key);
    memmove(state->versions + place + 1, state->versions + place,
            (state->version_count - place) * sizeof *state->versions);
    state->versions[place] = version;
    state->version_count++;
    return version;
}

void s3f_object_store(struct s3f_state *state, struct s3f_object *take_object) {
    const struct s3f_version *version =
        add(state, take_object->bucket, take_object->key, take_object);
    take_object->modified_ms = version->modified_ms;
    snprintf(take_object->version_id, sizeof take_object->version_id, "%s", version->id);
    refresh(state, take_object->bucket, take_object->key);
}

/* ---- what is removed ---- */

static bool is_locked(const struct s3f_state *state, const struct s3f_version *version) {
    if (!version->object) return false;
    bool held = state->hold.size && fnmatch(state->hold.data, version->key, 0) == 0;
    return held || version->retained_until_ms > s3f_now_ms(state);
}

static void delete_plain(struct s3f_state *state, const char *bucket, const char *key,
                         struct s3f_deleted *ret) {
    if (mode_of(state) == MODE_OFF) {
        remove_at(state, find(state, bucket, key, "null"));
        return;
    }
    const struct s3f_version *marker = add(state, bucket, key, NULL);
    ret->marker = true;
    memcpy(ret->id, marker->id, sizeof ret->id);
}

void s3f_version_delete(struct s3f_state *state, const char *bucket, const char *key,
                        const char *id, struct s3f_deleted *ret) {
    *ret = (struct s3f_deleted){0};
    if (!id) {
        delete_plain(state, bucket, key, ret);
    } else {
        snprintf(ret->id, sizeof ret->id, "%s", id);
        size_t place = find(state, bucket, key, id);
        if (place == state->version_count) return;
        ret->locked = is_locked(state, state->versions[place]);
        if (ret->locked) return;
        ret->marker = !state->versions[place]->object;
        remove_at(state, place);
    }
    refresh(state, bucket, key);
}

void s3f_object_vanish(struct s3f_state *state, const char *bucket, const char *key) {
    size_t place = s3f_version_place(state, bucket, key);
    while (is_at(state, place, bucket, key)) remove_at(state, place);
    refresh(state, bucket, key);
}

void s3f_versions_clear(struct s3f_state *state) {
    while (state->version_count) remove_at(state, state->version_count - 1);
    free(state->versions);
    state->versions = NULL;
    state->version_capacity = 0;
}
