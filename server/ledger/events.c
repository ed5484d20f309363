/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of events and of webhooks; see events.h. */
#include "server/ledger/events.h"

#include <inttypes.h>
#include <stdio.h>

#include "api/wire/messages.h"
#include "common/clock.h"
#include "common/text.h"
#include "server/db/catalog.h"
#include "server/db/engine.h"
#include "server/db/sql.h"
#include "server/ledger/versions.h"

static const char *const names[CAIRN_SRV_EVENT_COUNT] = {
#define EVENT(id, name, kept, about, what) [CAIRN_SRV_EVENT_##id] = name,
#include "api/events.def"
#undef EVENT
};

enum about { NONE, ALIAS, JOB, STORE, OPERATION, NODE, TOKEN, WEBHOOK, ABOUT_COUNT };
static const enum about abouts[CAIRN_SRV_EVENT_COUNT] = {
#define EVENT(id, name, kept, about, what) [CAIRN_SRV_EVENT_##id] = about,
#include "api/events.def"
#undef EVENT
};

enum { FEED, AUDIT };
static const int kept[CAIRN_SRV_EVENT_COUNT] = {
#define EVENT(id, name, kept, about, what) [CAIRN_SRV_EVENT_##id] = kept,
#include "api/events.def"
#undef EVENT
};

/* Key in meta: from this number on no event is missing. */
#define TRIMMED_TO "events_trimmed_to"

const char *cairn_srv_event_name(enum cairn_srv_event event) {
    CAIRN_ASSERT((size_t)event < CAIRN_SRV_EVENT_COUNT);
    return names[event];
}

_Static_assert(CAIRN_SRV_EVENT_COUNT <= 64, "a set of kinds has a bit for each");

/* CAIRN_SRV_EVENT_COUNT: a name of another release. */
enum cairn_srv_event cairn_srv_event_named(const char *name) {
    size_t i = 0;
    while (i < CAIRN_SRV_EVENT_COUNT && strcmp(names[i], name) != 0) i++;
    return (enum cairn_srv_event)i;
}

enum cairn_code cairn_srv_event_kinds_parse(const char *text, uint64_t *ret,
                                            struct cairn_error *err) {
    *ret = 0;
    for (const char *at = text;; at++) {
        size_t size = strcspn(at, ",");
        uint64_t found = 0;
        for (size_t i = 0; size && i < CAIRN_SRV_EVENT_COUNT; i++) {
            bool begins = !strncmp(names[i], at, size);
            if (begins && (!names[i][size] || names[i][size] == '.')) found |= UINT64_C(1) << i;
        }
        if (!found)
            return cairn_fail(err, CAIRN_INVALID,
                              "kind: \"%.*s\" is no event: want names as checkpoint.committed, or "
                              "what they begin with as checkpoint, with commas between them",
                              (int)cairn_min_u64(size, 64), at);
        *ret |= found;
        at += size;
        if (!*at) return CAIRN_OK;
    }
}

/* Formats kinds as ",checkpoint.opened,copy.made,"; "": all. */
static void kinds_text(uint64_t kinds, char *ret, size_t capacity) {
    size_t used = 0;
    ret[0] = '\0';
    for (size_t i = 0; i < CAIRN_SRV_EVENT_COUNT; i++)
        if (kinds >> i & 1)
            used +=
                (size_t)snprintf(ret + used, capacity - used, "%s%s,", used ? "" : ",", names[i]);
}

/* ---- writing: inside a change ---- */

static const char *who(const struct cairn_srv_tx *tx) {
    return tx->actor ? tx->actor->who : "server";
}

static const char *from(const struct cairn_srv_tx *tx) {
    return tx->actor ? tx->actor->from : "";
}

/* Wakes followers: here by tx->events at commit, at other servers by notification. */
static void note_event(struct cairn_srv_tx *tx) {
    tx->events++;
    cairn_srv_notify_events(tx);
}

struct reason {
    char text[CAIRN_SRV_REASON_BYTES];
};

static struct reason reason_of(const char *text) {
    struct reason ret;
    (void)cairn_text_copy(ret.text, sizeof(ret.text), text ? text : "");
    return ret;
}

enum cairn_code cairn_srv_event_of_version(struct cairn_srv_tx *tx, enum cairn_srv_event event,
                                           const char *version, enum cairn_code why,
                                           const char *reason, struct cairn_error *err) {
    note_event(tx);
    struct reason said = reason_of(reason);
    return cairn_srv_sql_run(tx, NULL, err, SQL(event_of_version), SQL_T(version),
                             SQL_I(tx->wall_ms), SQL_T(names[event]), SQL_I(why), SQL_T(said.text),
                             SQL_T(who(tx)), SQL_T(from(tx)), SQL_I(kept[event]));
}

enum cairn_code cairn_srv_event_of_run(struct cairn_srv_tx *tx, enum cairn_srv_event event,
                                       int64_t run_id, uint64_t attempt, const char *reason,
                                       struct cairn_error *err) {
    note_event(tx);
    struct reason said = reason_of(reason);
    return cairn_srv_sql_run(tx, NULL, err, SQL(event_of_run), SQL_I(run_id), SQL_I(tx->wall_ms),
                             SQL_T(names[event]), SQL_I(attempt), SQL_T(said.text), SQL_T(who(tx)),
                             SQL_T(from(tx)), SQL_I(kept[event]));
}

enum cairn_code cairn_srv_event_of_change(struct cairn_srv_tx *tx, enum cairn_srv_event event,
                                          const struct cairn_run_name *name, const char *reason,
                                          const char *before, const char *after,
                                          struct cairn_error *err) {
    note_event(tx);
    struct reason said = reason_of(reason);
    return cairn_srv_sql_run(tx, NULL, err, SQL(event_of_name), SQL_T(name->project),
                             SQL_T(name->run), SQL_I(tx->wall_ms), SQL_T(names[event]),
                             SQL_T(said.text), SQL_T(who(tx)), SQL_T(from(tx)), SQL_I(kept[event]),
                             SQL_T(before), SQL_T(after));
}

enum cairn_code cairn_srv_event_of_name(struct cairn_srv_tx *tx, enum cairn_srv_event event,
                                        const struct cairn_run_name *name, const char *reason,
                                        struct cairn_error *err) {
    return cairn_srv_event_of_change(tx, event, name, reason, "", "", err);
}

/* The first number whose tick is `since` or later, or `last`; ticks rise with the numbers. */
static enum cairn_code first_since(struct cairn_srv_tx *tx, uint64_t first, uint64_t last,
                                   uint64_t since, uint64_t *ret, struct cairn_error *err) {
    while (first < last) {
        uint64_t middle = first + (last - first) / 2;
        bool found = false;
        int64_t tick = 0;
        CAIRN_TRY(cairn_srv_sql_number(tx, &found, &tick, err, SQL(event_tick), SQL_I(middle)));
        CAIRN_ASSERT(found); /* the last event exists */
        if ((uint64_t)tick < since)
            first = middle + 1;
        else
            last = middle;
    }
    *ret = first;
    return CAIRN_OK;
}

static enum cairn_code number_of(struct cairn_srv_tx *tx,
                                 const struct cairn_srv_statement *statement, uint64_t *ret,
                                 struct cairn_error *err) {
    bool found = false;
    int64_t number = 0;
    CAIRN_TRY(cairn_srv_sql_number(tx, &found, &number, err, statement));
    *ret = found ? (uint64_t)number : 0;
    return CAIRN_OK;
}

static enum cairn_code get_trimmed(struct cairn_srv_tx *tx, uint64_t *ret,
                                   struct cairn_error *err) {
    char text[24];
    *ret = 0;
    CAIRN_TRY(cairn_srv_value_get(tx, TRIMMED_TO, text, sizeof(text), err));
    return text[0] ? cairn_parse_u64(cairn_view_of(text), ret, err) : CAIRN_OK;
}

/* Never decreases: trimming by age reaches audit rows far below it. */
static enum cairn_code set_trimmed(struct cairn_srv_tx *tx, uint64_t to, struct cairn_error *err) {
    char text[24];
    uint64_t before = 0;
    CAIRN_TRY(get_trimmed(tx, &before, err));
    if (to <= before) return CAIRN_OK;
    snprintf(text, sizeof(text), "%" PRIu64, to);
    return cairn_srv_value_put(tx, TRIMMED_TO, text, err);
}

enum cairn_code cairn_srv_events_trim(struct cairn_srv_tx *tx, uint64_t keep, uint64_t since,
                                      uint64_t *ret_dropped, struct cairn_error *err) {
    uint64_t oldest = 0, last = 0, of_feed = 0, by_age = 0, by_count = 0, dropped = 0;
    int64_t first = 0;
    bool found = false;
    *ret_dropped = 0;
    CAIRN_TRY(number_of(tx, SQL(event_first), &oldest, err));
    CAIRN_TRY(get_trimmed(tx, &of_feed, err)); /* no feed event below it */
    CAIRN_TRY(
        cairn_srv_sql_number(tx, &found, &first, err, SQL(event_first_of_feed), SQL_I(of_feed)));
    of_feed = found ? (uint64_t)first : 0;
    CAIRN_TRY(number_of(tx, SQL(event_last), &last, err));
    CAIRN_TRY(first_since(tx, oldest, last, since, &by_age, err));
    by_age = cairn_min_u64(by_age, oldest + CAIRN_SRV_EVENTS_TRIM);
    by_age = cairn_min_u64(by_age, last);
    if (of_feed && last >= keep) by_count = cairn_min_u64(last - keep + 1, last);
    by_count = cairn_min_u64(by_count, of_feed + CAIRN_SRV_EVENTS_TRIM);
    if (by_age > oldest)
        CAIRN_TRY(cairn_srv_sql_run(tx, ret_dropped, err, SQL(events_drop), SQL_I(by_age)));
    if (by_count > of_feed && by_count > by_age)
        CAIRN_TRY(cairn_srv_sql_run(tx, &dropped, err, SQL(events_drop_of_feed), SQL_I(by_count)));
    *ret_dropped += dropped;
    return *ret_dropped ? set_trimmed(tx, cairn_max_u64(by_age, by_count), err) : CAIRN_OK;
}

/* ---- reading ---- */

enum cairn_code cairn_srv_events_bounds(struct cairn_srv_tx *tx, uint64_t *ret_first,
                                        uint64_t *ret_last, struct cairn_error *err) {
    uint64_t trimmed_to = 0;
    CAIRN_TRY(get_trimmed(tx, &trimmed_to, err));
    CAIRN_TRY(number_of(tx, SQL(event_first), ret_first, err));
    CAIRN_TRY(number_of(tx, SQL(event_last), ret_last, err));
    *ret_first = cairn_min_u64(cairn_max_u64(*ret_first, trimmed_to), *ret_last);
    return CAIRN_OK;
}

static enum cairn_code open_rows(struct cairn_srv_tx *tx,
                                 const struct cairn_srv_events_query *query, const char *kinds,
                                 struct cairn_srv_rows *ret, struct cairn_error *err) {
    int64_t after = (int64_t)query->after, limit = (int64_t)query->limit;
    const char *project = query->project ? query->project : "";
    if (query->version[0])
        return cairn_srv_sql_open(
            tx, ret, err, query->newest ? SQL(events_newest_of_version) : SQL(events_of_version),
            SQL_T(query->version), SQL_I(after), SQL_I(limit), SQL_T(kinds));
    if (query->name->run[0])
        return cairn_srv_sql_open(tx, ret, err,
                                  query->newest ? SQL(events_newest_of_run) : SQL(events_of_run),
                                  SQL_T(query->name->project), SQL_T(query->name->run),
                                  SQL_I(after), SQL_I(limit), SQL_T(kinds));
    if (query->audit)
        return cairn_srv_sql_open(
            tx, ret, err, query->newest ? SQL(events_newest_of_audit) : SQL(events_of_audit),
            SQL_I(after), SQL_I(limit), SQL_T(kinds), SQL_T(project));
    return cairn_srv_sql_open(tx, ret, err, query->newest ? SQL(events_newest) : SQL(events_all),
                              SQL_I(after), SQL_I(limit), SQL_T(kinds), SQL_T(project));
}

/* NULL: no value. */
static json_t *value_of(const struct cairn_srv_rows *rows, int column) {
    const char *text = cairn_srv_rows_text(rows, column);
    return text[0] ? json_loads(text, 0, NULL) : NULL; /* written by the server itself */
}

/* The subject of an event, from its reason: told[about]; the others are NULL. */
struct told {
    char text[CAIRN_JOB_BYTES_MAX + 1];
    const char *of[ABOUT_COUNT];
};

static void read_about(const char *event, const char *reason, struct told *ret) {
    enum cairn_srv_event known = cairn_srv_event_named(event);
    enum about about = known < CAIRN_SRV_EVENT_COUNT ? abouts[known] : NONE;
    size_t size = about == JOB ? strlen(reason) : strcspn(reason, " ");
    *ret = (struct told){0};
    if (about == NONE || !size || size >= sizeof(ret->text)) return;
    memcpy(ret->text, reason, size);
    ret->of[about] = ret->text;
}

/* Columns: seq, at_ms, event, project, run, version, step, attempt, code, reason, who, origin,
 * old_value, new_value. */
static json_t *as_json(const struct cairn_srv_rows *rows) {
    char at[32];
    struct told told;
    read_about(cairn_srv_rows_text(rows, 2), cairn_srv_rows_text(rows, 9), &told);
    CAIRN_AUTO_JSON json_t *before = value_of(rows, 12);
    CAIRN_AUTO_JSON json_t *after = value_of(rows, 13);
    enum cairn_code why = (enum cairn_code)cairn_srv_rows_i64(rows, 8);
    cairn_time_text(cairn_srv_rows_i64(rows, 1), true, at);
    return CAIRN_PACK(
        event_row, .id = cairn_srv_rows_u64(rows, 0), .event = cairn_srv_rows_text(rows, 2),
        .at = at, .project = cairn_srv_rows_text(rows, 3), .run = cairn_srv_rows_text(rows, 4),
        .version = cairn_srv_rows_text(rows, 5),
        .step = cairn_srv_rows_null(rows, 6) ? CAIRN_MESSAGE_NONE : cairn_srv_rows_u64(rows, 6),
        .attempt = cairn_srv_rows_u64(rows, 7), .alias = told.of[ALIAS], .job = told.of[JOB],
        .store = told.of[STORE], .operation = told.of[OPERATION], .node = told.of[NODE],
        .token = told.of[TOKEN], .webhook = told.of[WEBHOOK],
        .code = why ? cairn_code_info(why)->slug : NULL, .reason = cairn_srv_rows_text(rows, 9),
        .actor = cairn_srv_rows_text(rows, 10), .address = cairn_srv_rows_text(rows, 11),
        .before = before, .after = after);
}

enum cairn_code cairn_srv_events_read(struct cairn_srv_tx *tx,
                                      const struct cairn_srv_events_query *query,
                                      enum cairn_code (*each)(const struct cairn_srv_event_row *row,
                                                              void *owner, struct cairn_error *err),
                                      void *owner, struct cairn_error *err) {
    char kinds[CAIRN_SRV_EVENT_COUNT * 32]; /* must live as long as rows */
    kinds_text(query->kinds, kinds, sizeof(kinds));
    CAIRN_AUTO(srv_rows) rows = {0};
    CAIRN_TRY(open_rows(tx, query, kinds, &rows, err));
    for (bool more = true;;) {
        CAIRN_TRY(cairn_srv_rows_next(&rows, &more, err));
        if (!more) return CAIRN_OK;
        CAIRN_AUTO_JSON json_t *json = as_json(&rows);
        if (!json) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for an event");
        struct cairn_srv_event_row row = {.number = cairn_srv_rows_u64(&rows, 0),
                                          .event = cairn_srv_rows_text(&rows, 2),
                                          .json = json};
        cairn_srv_rows_name(&rows, 3, &row.name);
        SQL_COPY(row.version.text, &rows, 5);
        CAIRN_TRY(each(&row, owner, err));
    }
}

enum cairn_code cairn_srv_events_since(struct cairn_srv_tx *tx, const struct cairn_run_name *name,
                                       uint64_t after, size_t limit,
                                       void (*each)(const struct cairn_srv_event_short *event,
                                                    void *owner),
                                       void *owner, struct cairn_error *err) {
    CAIRN_AUTO(srv_rows) rows = {0};
    CAIRN_TRY(cairn_srv_sql_open(tx, &rows, err, SQL(events_of_run_since), SQL_T(name->project),
                                 SQL_T(name->run), SQL_I(after), SQL_I(limit)));
    for (bool more = true;;) {
        CAIRN_TRY(cairn_srv_rows_next(&rows, &more, err));
        if (!more) return CAIRN_OK;
        const struct cairn_srv_event_short event = {
            cairn_srv_event_named(cairn_srv_rows_text(&rows, 0)), cairn_srv_rows_text(&rows, 1),
            cairn_srv_rows_u64(&rows, 2), cairn_srv_rows_u64(&rows, 3)};
        each(&event, owner);
    }
}

static enum cairn_code get(struct cairn_srv_tx *tx, const char *name, bool *ret_found,
                           struct cairn_srv_webhook_row *ret, struct cairn_error *err) {
    CAIRN_AUTO(srv_rows) rows = {0};
    *ret = (struct cairn_srv_webhook_row){0};
    CAIRN_TRY(cairn_srv_sql_first(tx, &rows, ret_found, err, SQL(webhook_get), SQL_T(name)));
    if (!*ret_found) return CAIRN_OK;
    ret->position = cairn_srv_rows_u64(&rows, 0);
    ret->failures = cairn_srv_rows_u64(&rows, 1);
    ret->failing_tick = cairn_srv_rows_u64(&rows, 2);
    ret->missed = cairn_srv_rows_u64(&rows, 3);
    ret->delivered = cairn_srv_rows_u64(&rows, 4);
    ret->tried_ms = cairn_srv_rows_i64(&rows, 5);
    ret->delivered_ms = cairn_srv_rows_i64(&rows, 6);
    snprintf(ret->cause, sizeof(ret->cause), "%s", cairn_srv_rows_text(&rows, 7));
    ret->letters = cairn_srv_rows_u64(&rows, 8);
    return CAIRN_OK;
}

enum cairn_code cairn_srv_webhook_get(struct cairn_srv_tx *tx, const char *name,
                                      struct cairn_srv_webhook_row *ret, struct cairn_error *err) {
    bool found = false;
    CAIRN_TRY(get(tx, name, &found, ret, err));
    return found ? CAIRN_OK
                 : cairn_fail(err, CAIRN_NOT_FOUND, "webhook %s was not begun yet", name);
}

enum cairn_code cairn_srv_webhook_open(struct cairn_srv_tx *tx, const char *name,
                                       struct cairn_srv_webhook_row *ret, struct cairn_error *err) {
    bool found = false;
    uint64_t first = 0, last = 0;
    CAIRN_TRY(get(tx, name, &found, ret, err));
    if (found) return CAIRN_OK;
    CAIRN_TRY(cairn_srv_events_bounds(tx, &first, &last, err));
    CAIRN_TRY(cairn_srv_sql_run(tx, NULL, err, SQL(webhook_open), SQL_T(name), SQL_I(last)));
    ret->position = last;
    return CAIRN_OK;
}

void cairn_srv_letter_release(struct cairn_srv_letter *letter) {
    json_decref(letter->event);
    *letter = (struct cairn_srv_letter){0};
}

static enum cairn_code read_letter(const struct cairn_srv_rows *rows, struct cairn_srv_letter *ret,
                                   struct cairn_error *err) {
    *ret = (struct cairn_srv_letter){.number = cairn_srv_rows_u64(rows, 0),
                                     .tries = cairn_srv_rows_u64(rows, 1),
                                     .at_ms = cairn_srv_rows_i64(rows, 2)};
    snprintf(ret->cause, sizeof(ret->cause), "%s", cairn_srv_rows_text(rows, 3));
    return cairn_json_parse(cairn_view_of(cairn_srv_rows_text(rows, 4)),
                            (struct cairn_json_limits){0}, &ret->event, err);
}

enum cairn_code cairn_srv_letter_put(struct cairn_srv_tx *tx, const char *name,
                                     const struct cairn_srv_letter *letter,
                                     struct cairn_error *err) {
    CAIRN_AUTO(buf) text = {0};
    CAIRN_TRY(cairn_json_dump(letter->event, &text, err));
    CAIRN_TRY(cairn_srv_sql_run(tx, NULL, err, SQL(letter_put), SQL_T(name), SQL_I(letter->number),
                                SQL_I(letter->tries), SQL_I(letter->at_ms), SQL_T(letter->cause),
                                SQL_T(text.data)));
    return cairn_srv_sql_run(tx, NULL, err, SQL(letters_trim), SQL_T(name),
                             SQL_I(CAIRN_SRV_LETTERS_MAX));
}

enum cairn_code cairn_srv_letter_next(struct cairn_srv_tx *tx, const char *name, bool *ret_found,
                                      struct cairn_srv_letter *ret, struct cairn_error *err) {
    CAIRN_AUTO(srv_rows) rows = {0};
    CAIRN_TRY(cairn_srv_sql_first(tx, &rows, ret_found, err, SQL(letter_next), SQL_T(name)));
    return *ret_found ? read_letter(&rows, ret, err) : CAIRN_OK;
}

enum cairn_code
cairn_srv_letters_each(struct cairn_srv_tx *tx, const char *name, uint64_t after, uint64_t limit,
                       enum cairn_code (*each)(const struct cairn_srv_letter *letter, void *owner,
                                               struct cairn_error *err),
                       void *owner, struct cairn_error *err) {
    CAIRN_AUTO(srv_rows) rows = {0};
    bool more = false;
    CAIRN_TRY(cairn_srv_sql_open(tx, &rows, err, SQL(letters_page), SQL_T(name), SQL_I(after),
                                 SQL_I(limit)));
    for (;;) {
        CAIRN_AUTO(srv_letter) letter = {0};
        CAIRN_TRY(cairn_srv_rows_next(&rows, &more, err));
        if (!more) return CAIRN_OK;
        CAIRN_TRY(read_letter(&rows, &letter, err));
        CAIRN_TRY(each(&letter, owner, err));
    }
}
