/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of events and of webhooks; see events.h. */
#include "server/ledger/events.h"

#include <inttypes.h>
#include <stdio.h>

#include "api/wire/messages.h"
#include "common/clock.h"
#include "server/db/engine.h"
#include "server/ledger/versions.h"

static const char *const names[SRV_EVENT_COUNT] = {
#define EVENT(id, name, kept, about, ...) [SRV_EVENT_##id] = name,
#include "api/events.def"
#undef EVENT
};

enum about { NONE, ALIAS, JOB, STORE, OPERATION, NODE, TOKEN, WEBHOOK, ABOUT_COUNT };
static const enum about abouts[SRV_EVENT_COUNT] = {
#define EVENT(id, name, kept, about, ...) [SRV_EVENT_##id] = about,
#include "api/events.def"
#undef EVENT
};

enum { FEED, AUDIT };
static const int kept[SRV_EVENT_COUNT] = {
#define EVENT(id, name, kept, about, ...) [SRV_EVENT_##id] = kept,
#include "api/events.def"
#undef EVENT
};

/* Key in meta: from this number on no event is missing. */
#define TRIMMED_TO "events_trimmed_to"

const char *srv_event_name(enum srv_event event) {
    CAIRN_ASSERT((size_t)event < SRV_EVENT_COUNT);
    return names[event];
}

_Static_assert(SRV_EVENT_COUNT <= 64, "a set of kinds has a bit for each");

/* SRV_EVENT_COUNT: a name of another release. */
enum srv_event srv_event_named(const char *name) {
    size_t i = 0;
    while (i < SRV_EVENT_COUNT && strcmp(names[i], name) != 0) i++;
    return (enum srv_event)i;
}

enum cairn_code srv_event_kinds_parse(const char *text, uint64_t *ret, struct cairn_error *err) {
    *ret = 0;
    for (const char *at = text;; at++) {
        size_t size = strcspn(at, ",");
        uint64_t found = 0;
        for (size_t i = 0; size && i < SRV_EVENT_COUNT; i++) {
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
    for (size_t i = 0; i < SRV_EVENT_COUNT; i++)
        if (kinds >> i & 1)
            used +=
                (size_t)snprintf(ret + used, capacity - used, "%s%s,", used ? "" : ",", names[i]);
}

/* ---- writing: inside a change ---- */

static const char *who(const struct srv_tx *tx) {
    return tx->actor ? tx->actor->who : "server";
}

static const char *from(const struct srv_tx *tx) {
    return tx->actor ? tx->actor->from : "";
}

/* Wakes followers: here by tx->events at commit, at other servers by notification. */
static void note_event(struct srv_tx *tx) {
    tx->events++;
    srv_notify_events(tx);
}

struct reason {
    char text[SRV_REASON_BYTES];
};

static struct reason reason_of(const char *text) {
    struct reason ret;
    (void)cairn_text_copy(ret.text, sizeof(ret.text), text ? text : "");
    return ret;
}

enum cairn_code srv_event_of_version(struct srv_tx *tx, enum srv_event event, const char *version,
                                     enum cairn_code why, const char *reason,
                                     struct cairn_error *err) {
    note_event(tx);
    struct reason said = reason_of(reason);
    return srv_sql_run(tx, NULL, err, SQL(event_of_version), SQL_T(version), SQL_I(tx->wall_ms),
                       SQL_T(names[event]), SQL_I(why), SQL_T(said.text), SQL_T(who(tx)),
                       SQL_T(from(tx)), SQL_I(kept[event]));
}

enum cairn_code srv_event_of_run(struct srv_tx *tx, enum srv_event event, int64_t run_id,
                                 uint64_t attempt, const char *reason, struct cairn_error *err) {
    note_event(tx);
    struct reason said = reason_of(reason);
    return srv_sql_run(tx, NULL, err, SQL(event_of_run), SQL_I(run_id), SQL_I(tx->wall_ms),
                       SQL_T(names[event]), SQL_I(attempt), SQL_T(said.text), SQL_T(who(tx)),
                       SQL_T(from(tx)), SQL_I(kept[event]));
}

enum cairn_code srv_event_of_change(struct srv_tx *tx, enum srv_event event,
                                    const struct cairn_run_name *name, const char *reason,
                                    const char *before, const char *after,
                                    struct cairn_error *err) {
    note_event(tx);
    struct reason said = reason_of(reason);
    return srv_sql_run(tx, NULL, err, SQL(event_of_name), SQL_T(name->project), SQL_T(name->run),
                       SQL_I(tx->wall_ms), SQL_T(names[event]), SQL_T(said.text), SQL_T(who(tx)),
                       SQL_T(from(tx)), SQL_I(kept[event]), SQL_T(before), SQL_T(after));
}

enum cairn_code srv_event_of_name(struct srv_tx *tx, enum srv_event event,
                                  const struct cairn_run_name *name, const char *reason,
                                  struct cairn_error *err) {
    return srv_event_of_change(tx, event, name, reason, "", "", err);
}

/* The first number whose tick is `since` or later, or `last`; ticks rise with the numbers. */
static enum cairn_code first_since(struct srv_tx *tx, uint64_t first, uint64_t last, uint64_t since,
                                   uint64_t *ret, struct cairn_error *err) {
    while (first < last) {
        uint64_t middle = first + (last - first) / 2;
        bool found = false;
        int64_t tick = 0;
        CAIRN_TRY(srv_sql_number(tx, &found, &tick, err, SQL(event_tick), SQL_I(middle)));
        CAIRN_ASSERT(found); /* the last event exists */
        if ((uint64_t)tick < since)
            first = middle + 1;
        else
            last = middle;
    }
    *ret = first;
    return CAIRN_OK;
}

static enum cairn_code get_trimmed(struct srv_tx *tx, uint64_t *ret, struct cairn_error *err) {
    char text[24];
    *ret = 0;
    CAIRN_TRY(srv_value_get(tx, TRIMMED_TO, text, sizeof(text), err));
    return text[0] ? cairn_parse_u64(cairn_view_of(text), ret, err) : CAIRN_OK;
}

/* Never decreases: trimming by age reaches audit rows far below it. */
static enum cairn_code set_trimmed(struct srv_tx *tx, uint64_t to, struct cairn_error *err) {
    char text[24];
    uint64_t before = 0;
    CAIRN_TRY(get_trimmed(tx, &before, err));
    if (to <= before) return CAIRN_OK;
    snprintf(text, sizeof(text), "%" PRIu64, to);
    return srv_value_put(tx, TRIMMED_TO, text, err);
}

enum cairn_code srv_events_trim(struct srv_tx *tx, uint64_t keep, uint64_t since,
                                uint64_t *ret_dropped, struct cairn_error *err) {
    uint64_t oldest = 0, last = 0, of_feed = 0, by_age = 0, by_count = 0, dropped = 0;
    *ret_dropped = 0;
    CAIRN_TRY(srv_sql_u64(tx, &oldest, err, SQL(event_first)));
    CAIRN_TRY(get_trimmed(tx, &of_feed, err)); /* no feed event below it */
    CAIRN_TRY(srv_sql_u64(tx, &of_feed, err, SQL(event_first_of_feed), SQL_I(of_feed)));
    CAIRN_TRY(srv_sql_u64(tx, &last, err, SQL(event_last)));
    CAIRN_TRY(first_since(tx, oldest, last, since, &by_age, err));
    by_age = cairn_min_u64(by_age, oldest + SRV_EVENTS_TRIM);
    by_age = cairn_min_u64(by_age, last);
    if (of_feed && last >= keep) by_count = cairn_min_u64(last - keep + 1, last);
    by_count = cairn_min_u64(by_count, of_feed + SRV_EVENTS_TRIM);
    if (by_age > oldest)
        CAIRN_TRY(srv_sql_run(tx, ret_dropped, err, SQL(events_drop), SQL_I(by_age)));
    if (by_count > of_feed && by_count > by_age)
        CAIRN_TRY(srv_sql_run(tx, &dropped, err, SQL(events_drop_of_feed), SQL_I(by_count)));
    *ret_dropped += dropped;
    return *ret_dropped ? set_trimmed(tx, cairn_max_u64(by_age, by_count), err) : CAIRN_OK;
}

/* ---- reading ---- */

enum cairn_code srv_events_bounds(struct srv_tx *tx, uint64_t *ret_first, uint64_t *ret_last,
                                  struct cairn_error *err) {
    uint64_t trimmed_to = 0;
    CAIRN_TRY(get_trimmed(tx, &trimmed_to, err));
    CAIRN_TRY(srv_sql_u64(tx, ret_first, err, SQL(event_first)));
    CAIRN_TRY(srv_sql_u64(tx, ret_last, err, SQL(event_last)));
    *ret_first = cairn_min_u64(cairn_max_u64(*ret_first, trimmed_to), *ret_last);
    return CAIRN_OK;
}

static enum cairn_code open_rows(struct srv_tx *tx, const struct srv_events_query *query,
                                 const char *kinds, struct srv_rows *ret, struct cairn_error *err) {
    int64_t after = (int64_t)query->after, limit = (int64_t)query->limit;
    const char *project = query->project ? query->project : "";
#define EVENTS(kind) (query->newest ? SQL(events_newest_##kind) : SQL(events_##kind))
    if (query->version[0])
        return srv_sql_open(tx, ret, err, EVENTS(of_version), SQL_T(query->version), SQL_I(after),
                            SQL_I(limit), SQL_T(kinds));
    if (query->name->run[0])
        return srv_sql_open(tx, ret, err, EVENTS(of_run), SQL_T(query->name->project),
                            SQL_T(query->name->run), SQL_I(after), SQL_I(limit), SQL_T(kinds));
    return srv_sql_open(tx, ret, err, query->audit ? EVENTS(of_audit) : EVENTS(of_all),
                        SQL_I(after), SQL_I(limit), SQL_T(kinds), SQL_T(project));
#undef EVENTS
}

/* NULL: no value. */
static json_t *value_of(const struct srv_rows *rows, int column) {
    const char *text = srv_rows_text(rows, column);
    return text[0] ? json_loads(text, 0, NULL) : NULL; /* written by the server itself */
}

/* The subject of an event, from its reason: told[about]; the others are NULL. */
struct told {
    char text[CAIRN_JOB_BYTES_MAX + 1];
    const char *of[ABOUT_COUNT];
};

static void read_about(const char *event, const char *reason, struct told *ret) {
    enum srv_event known = srv_event_named(event);
    enum about about = known < SRV_EVENT_COUNT ? abouts[known] : NONE;
    size_t size = about == JOB ? strlen(reason) : strcspn(reason, " ");
    *ret = (struct told){0};
    if (about == NONE || !size || size >= sizeof(ret->text)) return;
    memcpy(ret->text, reason, size);
    ret->of[about] = ret->text;
}

/* Columns: seq, at_ms, event, project, run, version, step, attempt, code, reason, who, origin,
 * old_value, new_value. */
static json_t *as_json(const struct srv_rows *rows) {
    char at[32];
    struct told told;
    read_about(srv_rows_text(rows, 2), srv_rows_text(rows, 9), &told);
    CAIRN_AUTO_JSON json_t *before = value_of(rows, 12);
    CAIRN_AUTO_JSON json_t *after = value_of(rows, 13);
    enum cairn_code why = (enum cairn_code)srv_rows_i64(rows, 8);
    cairn_time_text(srv_rows_i64(rows, 1), true, at);
    return CAIRN_PACK(event_row, .id = srv_rows_u64(rows, 0), .event = srv_rows_text(rows, 2),
                      .at = at, .project = srv_rows_text(rows, 3), .run = srv_rows_text(rows, 4),
                      .version = srv_rows_text(rows, 5),
                      .step = srv_rows_null(rows, 6) ? CAIRN_MESSAGE_NONE : srv_rows_u64(rows, 6),
                      .attempt = srv_rows_u64(rows, 7), .alias = told.of[ALIAS],
                      .job = told.of[JOB], .store = told.of[STORE], .operation = told.of[OPERATION],
                      .node = told.of[NODE], .token = told.of[TOKEN], .webhook = told.of[WEBHOOK],
                      .code = why ? cairn_code_info(why)->slug : NULL,
                      .reason = srv_rows_text(rows, 9), .actor = srv_rows_text(rows, 10),
                      .address = srv_rows_text(rows, 11), .before = before, .after = after);
}

enum cairn_code srv_events_read(struct srv_tx *tx, const struct srv_events_query *query,
                                enum cairn_code (*each)(const struct srv_event_row *row,
                                                        void *owner, struct cairn_error *err),
                                void *owner, struct cairn_error *err) {
    char kinds[SRV_EVENT_COUNT * 32]; /* must live as long as rows */
    kinds_text(query->kinds, kinds, sizeof(kinds));
    SRV_AUTO(rows) rows = {0};
    CAIRN_TRY(open_rows(tx, query, kinds, &rows, err));
    SQL_EACH(&rows, err) {
        CAIRN_AUTO_JSON json_t *json = as_json(&rows);
        if (!json) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for an event");
        struct srv_event_row row = {
            .number = srv_rows_u64(&rows, 0), .event = srv_rows_text(&rows, 2), .json = json};
        srv_rows_name(&rows, 3, &row.name);
        SQL_COPY(row.version.text, &rows, 5);
        CAIRN_TRY(each(&row, owner, err));
    }
    return CAIRN_OK;
}

/* ---- is what is known of a run still valid? ---- */

#define EVENTS_AT_ONCE 1000

enum {
    STANDS_NONE,
    STANDS_PLAN = SRV_OF_PLAN,
    STANDS_COPIES = SRV_OF_COPIES,
    STANDS_BOTH = STANDS_PLAN | STANDS_COPIES
};
/* Subjects whose knowledge of older versions still holds after an event. */
static const unsigned stands_after[SRV_EVENT_COUNT] = {
#define EVENT(id, name, kept, about, stands, ...) [SRV_EVENT_##id] = STANDS_##stands,
#include "api/events.def"
#undef EVENT
};

bool srv_is_before(const struct cairn_plan_item *item, uint64_t line, uint64_t step) {
    return line != cairn_plan_line(item) ? line > cairn_plan_line(item) : step > item->step;
}

enum cairn_code srv_since_stands(struct srv_tx *tx, const struct srv_since *since, bool *ret,
                                 struct cairn_error *err) {
    const struct srv_known *then = since->then;
    size_t count = 0;
    *ret = then->event <= since->last && since->first <= then->event + 1 &&
           !memcmp(then->policy, since->policy, sizeof(then->policy));
    if (!*ret || then->event == since->last) return CAIRN_OK;
    SQL_OPEN(rows, tx, err, SQL(events_of_run_since), SQL_T(then->name.project),
             SQL_T(then->name.run), SQL_I(then->event), SQL_I(EVENTS_AT_ONCE));
    /* An event of a version without a row has line 0 and is judged as of a known version. */
    SQL_EACH(&rows, err) {
        const struct srv_event_short event = {srv_event_named(srv_rows_text(&rows, 0)),
                                              srv_rows_text(&rows, 1), srv_rows_u64(&rows, 2),
                                              srv_rows_u64(&rows, 3)};
        bool newer = event.version[0] && srv_is_before(&then->newest, event.line, event.step);
        *ret = ++count < EVENTS_AT_ONCE &&
               (newer ||
                (event.event < SRV_EVENT_COUNT && stands_after[event.event] & since->subject)) &&
               (!since->judge || since->judge(since->owner, &event, newer));
        if (!*ret) break;
    }
    return CAIRN_OK;
}

/* ---- webhooks ---- */

static enum cairn_code find_webhook(struct srv_tx *tx, const char *name, bool *ret_found,
                                    struct srv_webhook_row *ret, struct cairn_error *err) {
    *ret = (struct srv_webhook_row){0};
    return srv_sql_row(tx, ROW(webhook), ret, ret_found, err, SQL(webhook_get), SQL_T(name));
}

enum cairn_code srv_webhook_get(struct srv_tx *tx, const char *name, struct srv_webhook_row *ret,
                                struct cairn_error *err) {
    bool found = false;
    CAIRN_TRY(find_webhook(tx, name, &found, ret, err));
    return found ? CAIRN_OK
                 : cairn_fail(err, CAIRN_NOT_FOUND, "webhook %s was not begun yet", name);
}

enum cairn_code srv_webhook_open(struct srv_tx *tx, const char *name, struct srv_webhook_row *ret,
                                 struct cairn_error *err) {
    bool found = false;
    uint64_t first = 0, last = 0;
    CAIRN_TRY(find_webhook(tx, name, &found, ret, err));
    if (found) return CAIRN_OK;
    CAIRN_TRY(srv_events_bounds(tx, &first, &last, err));
    CAIRN_TRY(srv_sql_run(tx, NULL, err, SQL(webhook_open), SQL_T(name), SQL_I(last)));
    ret->position = last;
    return CAIRN_OK;
}

void srv_letter_release(struct srv_letter *letter) {
    json_decref(letter->event);
    *letter = (struct srv_letter){0};
}

enum cairn_code srv_letter_row(const struct srv_rows *rows, struct srv_letter *ret,
                               struct cairn_error *err) {
    *ret = (struct srv_letter){.number = 0};
    (void)srv_rows_take(rows, 0, ROW(letter), ret);
    return cairn_json_parse(cairn_view_of(srv_rows_text(rows, 4)), (struct cairn_json_limits){0},
                            &ret->event, err);
}

enum cairn_code srv_letter_put(struct srv_tx *tx, const char *name, const struct srv_letter *letter,
                               struct cairn_error *err) {
    CAIRN_AUTO(buf) text = {0};
    CAIRN_TRY(cairn_json_dump(letter->event, &text, err));
    CAIRN_TRY(srv_sql_run(tx, NULL, err, SQL(letter_put), SQL_T(name), SQL_I(letter->number),
                          SQL_I(letter->tries), SQL_I(letter->at_ms), SQL_T(letter->cause),
                          SQL_T(text.data)));
    return srv_sql_run(tx, NULL, err, SQL(letters_trim), SQL_T(name), SQL_I(SRV_LETTERS_MAX));
}
