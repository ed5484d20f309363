/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of copies and of stores; see copies.h. */
#include "server/ledger/copies.h"

#include <stdio.h>
#include <stdlib.h>

#include "api/wire/messages.h"

#define RUN_COPIES_MAX 10000000

static const char *copy_state_name(enum srv_copy_state state) {
    static const char *const texts[] = {[SRV_COPY_MAKING] = "making",
                                        [SRV_COPY_WHOLE] = "whole",
                                        [SRV_COPY_REMOVING] = "removing",
                                        [SRV_COPY_GONE] = "gone"};
    CAIRN_ASSERT((size_t)state < CAIRN_COUNT(texts));
    return texts[state];
}

/* Adds main's implicit row (copies.h#1), first in every list. */
static void put_main_first(struct srv_copies *copies) {
    struct srv_copy main = {.state = SRV_COPY_WHOLE};
    size_t at = 0;
    (void)cairn_text_copy(main.store, sizeof(main.store), SRV_TIER_MAIN);
    while (at < copies->count && strcmp(copies->copies[at].store, main.store)) at++;
    if (at < copies->count) main = copies->copies[at];
    CAIRN_ASSERT(at < SRV_COPIES_MAX);
    if (at == copies->count) copies->count++;
    memmove(&copies->copies[1], &copies->copies[0], at * sizeof(main));
    copies->copies[0] = main;
}

enum cairn_code srv_copies_get(struct srv_tx *tx, const char *version, struct srv_copies *ret,
                               struct cairn_error *err) {
    ret->count = 0;
    SQL_OPEN(rows, tx, err, SQL(copies_of), SQL_T(version));
    SQL_EACH(&rows, err) {
        if (ret->count == SRV_COPIES_MAX)
            return cairn_fail(err, CAIRN_TOO_LARGE, "%s has copies in more than %d stores", version,
                              SRV_COPIES_MAX);
        (void)srv_rows_take(&rows, 0, ROW(copy), &ret->copies[ret->count++]);
    }
    if (ret->count == SRV_COPIES_MAX && !srv_copies_find(ret, SRV_TIER_MAIN))
        return cairn_fail(err, CAIRN_TOO_LARGE, "%s has copies in more than %d stores", version,
                          SRV_COPIES_MAX);
    put_main_first(ret);
    return CAIRN_OK;
}

const struct srv_copy *srv_copies_find(const struct srv_copies *copies, const char *store) {
    for (size_t i = 0; i < copies->count; i++)
        if (!strcmp(copies->copies[i].store, store)) return &copies->copies[i];
    return NULL;
}

size_t srv_copies_whole(const struct srv_copies *copies) {
    size_t count = 0;
    for (size_t i = 0; i < copies->count; i++) count += copies->copies[i].state == SRV_COPY_WHOLE;
    return count;
}

bool srv_copy_sound(const struct srv_copy *copy) {
    return copy->state == SRV_COPY_WHOLE && !copy->damaged;
}

static json_t *damage_json(const struct srv_copy *copy) {
    char found[32];
    cairn_time_text(copy->damaged_ms, true, found);
    return CAIRN_PACK(copy_damage, .objects = copy->damaged, .found_at = found);
}

enum cairn_code srv_copies_json(const struct srv_copies *copies, json_t **ret,
                                struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *array = json_array();
    for (size_t i = 0; i < copies->count; i++) {
        const struct srv_copy *copy = &copies->copies[i];
        CAIRN_AUTO_JSON json_t *damage = copy->damaged ? damage_json(copy) : NULL;
        if (copy->state == SRV_COPY_GONE) continue;
        json_t *item =
            CAIRN_PACK(copy_row, .store = copy->store, .state = copy_state_name(copy->state),
                       .by_policy = copy->by_policy, .damage = damage);
        if ((copy->damaged && !damage) || json_array_append_new(array, item))
            return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the answer");
    }
    *ret = CAIRN_TAKE(array);
    return CAIRN_OK;
}

static enum cairn_code write_row(struct srv_tx *tx, const char *version,
                                 const struct srv_copy *copy, struct cairn_error *err) {
    CAIRN_ASSERT(copy->store[0]);
    bool main = !strcmp(copy->store, SRV_TIER_MAIN);
    /* Damage ends with the copy, also if it is made again. */
    bool there = copy->state == SRV_COPY_WHOLE || copy->state == SRV_COPY_REMOVING;
    uint64_t damaged = there ? copy->damaged : 0;
    srv_notify_text(tx, version);
    if (main && srv_copy_sound(copy)) /* copies.h#1 */
        return srv_sql_run(tx, NULL, err, SQL(copy_drop), SQL_T(version), SQL_T(copy->store));
    return srv_sql_run(tx, NULL, err, SQL(copy_put), SQL_T(version), SQL_T(copy->store),
                       SQL_I(copy->state), SQL_I(copy->by_policy), SQL_I(copy->changed_ms),
                       SQL_I(damaged), SQL_I(damaged ? copy->damaged_ms : 0));
}

enum cairn_code srv_copy_damage_put(struct srv_tx *tx, const char *version,
                                    const struct srv_copy *copy, const enum srv_event *event,
                                    struct cairn_error *err) {
    CAIRN_ASSERT(copy->state == SRV_COPY_WHOLE);
    CAIRN_TRY(write_row(tx, version, copy, err));
    if (!event) return CAIRN_OK;
    return srv_event_of_version(tx, *event, version, CAIRN_OK, copy->store, err);
}

enum cairn_code srv_copy_put(struct srv_tx *tx, const char *version, const struct srv_copy *copy,
                             struct cairn_error *err) {
    CAIRN_TRY(write_row(tx, version, copy, err));
    if (copy->state == SRV_COPY_MAKING) return CAIRN_OK; /* its operation has an event */
    enum srv_event event = SRV_EVENT_COPY_REMOVING;
    if (copy->state == SRV_COPY_WHOLE) event = SRV_EVENT_COPY_MADE;
    if (copy->state == SRV_COPY_GONE) event = SRV_EVENT_COPY_REMOVED;
    return srv_event_of_version(tx, event, version, CAIRN_OK, copy->store, err);
}

static void read_left(const struct srv_rows *rows, struct srv_copy_left *ret) {
    SQL_COPY(ret->version.text, rows, 0);
    (void)srv_rows_take(rows, 1, ROW(copy), &ret->copy);
}

enum cairn_code srv_copies_unfinished(struct srv_tx *tx, const char *store, size_t limit,
                                      struct srv_copy_left *ret, size_t *ret_count,
                                      struct cairn_error *err) {
    *ret_count = 0;
    SQL_OPEN(rows, tx, err, SQL(copies_unfinished), SQL_T(store), SQL_I(limit));
    SQL_EACH(&rows, err) {
        if (*ret_count == limit) break;
        read_left(&rows, &ret[(*ret_count)++]);
    }
    return CAIRN_OK;
}

void srv_run_copies_release(struct srv_run_copies *copies) {
    free(copies->items);
    *copies = (struct srv_run_copies){0};
}

static int by_version(const void *a, const void *b) {
    const struct srv_copy_left *x = a, *y = b;
    int order = strcmp(x->version.text, y->version.text);
    return order ? order : strcmp(x->copy.store, y->copy.store);
}

static enum cairn_code read_copies(struct srv_rows *rows, struct srv_run_copies *ret,
                                   struct cairn_error *err) {
    SQL_EACH(rows, err) {
        CAIRN_TRY(
            CAIRN_ARRAY_ROOM(ret->items, ret->count, ret->capacity, RUN_COPIES_MAX, "copies", err));
        read_left(rows, &ret->items[ret->count++]);
    }
    return CAIRN_OK;
}

/* Sorted here: the databases have different text orders. */
enum cairn_code srv_copies_of_run(struct srv_tx *tx, int64_t run_id,
                                  const struct cairn_plan_item *after, struct srv_run_copies *ret,
                                  struct cairn_error *err) {
    const uint64_t line = after ? cairn_plan_line(after) : 0;
    ret->count = 0;
    if (after) {
        SQL_OPEN(rows, tx, err, SQL(copies_of_run_of_line), SQL_I(run_id), SQL_I(line),
                 SQL_I(after->step), SQL_I(after->attempt), SQL_I(after->n));
        CAIRN_TRY(read_copies(&rows, ret, err));
    }
    SQL_OPEN(rows, tx, err, SQL(copies_of_run), SQL_I(run_id), SQL_I(line));
    CAIRN_TRY(read_copies(&rows, ret, err));
    if (ret->count) qsort(ret->items, ret->count, sizeof(*ret->items), by_version);
    return CAIRN_OK;
}

const struct srv_copy *srv_run_copies_find(const struct srv_run_copies *copies, const char *version,
                                           const char *store) {
    struct srv_copy_left wanted = {0};
    (void)cairn_text_copy(wanted.version.text, sizeof(wanted.version.text), version);
    (void)cairn_text_copy(wanted.copy.store, sizeof(wanted.copy.store), store);
    const struct srv_copy_left *found =
        copies->count ? bsearch(&wanted, copies->items, copies->count, sizeof(wanted), by_version)
                      : NULL;
    return found ? &found->copy : NULL;
}

bool srv_run_copies_elsewhere(const struct srv_run_copies *copies, const char *version,
                              const char *store) {
    bool main =
        strcmp(store, SRV_TIER_MAIN) != 0 && !srv_run_copies_find(copies, version, SRV_TIER_MAIN);
    struct srv_copy_left first = {0};
    (void)cairn_text_copy(first.version.text, sizeof(first.version.text), version);
    size_t from = 0, to = copies->count; /* the version's first row */
    while (from < to) {
        size_t middle = from + (to - from) / 2;
        if (by_version(&copies->items[middle], &first) < 0)
            from = middle + 1;
        else
            to = middle;
    }
    for (; from < copies->count && !strcmp(copies->items[from].version.text, version); from++) {
        const struct srv_copy *copy = &copies->items[from].copy;
        if (strcmp(copy->store, store) != 0 && srv_copy_sound(copy)) return true;
    }
    return main;
}

enum cairn_code srv_tier_uuid_put(struct srv_tx *tx, const char *store, const char *uuid,
                                  struct cairn_error *err) {
    char other[SRV_TIER_NAME_BYTES];
    CAIRN_TRY(srv_sql_text(tx, SQL_INTO(other), err, SQL(store_of_uuid), SQL_T(uuid)));
    if (other[0] && strcmp(other, store) != 0)
        return cairn_fail(err, CAIRN_FORBIDDEN,
                          "it is the store that this catalog knows as %s: call it so", other);
    return srv_sql_run(tx, NULL, err, SQL(store_put), SQL_T(store), SQL_T(uuid));
}

#define UNREAD "store_unread." /* the prefix in stores_unread_put */

enum cairn_code srv_tier_unread_get(struct srv_tx *tx, const char *store, bool *ret,
                                    struct cairn_error *err) {
    char name[sizeof(UNREAD) + SRV_TIER_NAME_BYTES], value[8];
    snprintf(name, sizeof(name), UNREAD "%s", store);
    CAIRN_TRY(srv_value_get(tx, name, value, sizeof(value), err));
    *ret = value[0] == '1';
    return CAIRN_OK;
}

enum cairn_code srv_tier_unread_put(struct srv_tx *tx, const char *store, bool unread,
                                    struct cairn_error *err) {
    char name[sizeof(UNREAD) + SRV_TIER_NAME_BYTES];
    snprintf(name, sizeof(name), UNREAD "%s", store);
    return srv_value_put(tx, name, unread ? "1" : "0", err);
}
