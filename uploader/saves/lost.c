/* SPDX-License-Identifier: Apache-2.0 */
/* A list, newest first. An entry goes when its rank is back, when its attempt is over, when its
 * process cannot be seen, and when there are too many. */
#include "uploader/saves/lost.h"

#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>

#include "api/messages.h"
#include "common/file.h"
#include "common/log.h"
#include "common/text.h"
#include "uploader/journal/journal.h"
#include "uploader/saves/save.h"

#define HOLD_MS 2000 /* ranks open an attempt one after the other */
#define LOST_MAX 256 /* descriptors, too */

enum said { SAID_NOTHING, SAID_ENDED, SAID_SETTLED };

struct cairn_up_lost {
    struct cairn_up_lost *next;
    struct cairn_up_attempt *attempt; /* in use */
    uint32_t rank;
    char proc[CAIRN_UUID_TEXT_BYTES];
    uint64_t entry; /* in the journal; 0: closed */
    int process;    /* -1: it has ended, or cannot be seen */
    bool bye, ended;
    bool taken;     /* the server knows, in its present catalog */
    enum said said; /* for what a heartbeat was asked for */
    uint64_t hold_until_ms;
    bool awaited; /* of a process before this one: it holds while offers are awaited */
};

/* ---- in and out ---- */

static void close_entry(struct cairn_up *up, uint64_t *entry) {
    if (!*entry) return;
    CAIRN_AUTO_JSON json_t *message = CAIRN_PACK(record_left, 0);
    struct cairn_up_record record = {.entry = *entry, .closes = true, .message = message};
    cairn_up_journal_note(up->journal, &record, 1);
    *entry = 0;
}

static void unlink_at(struct cairn_up *up, struct cairn_up_lost **at) {
    struct cairn_up_lost *lost = *at;
    *at = lost->next;
    if (lost->process >= 0) cairn_fd_close_at(&lost->process);
    cairn_up_attempt_leave(up, lost->attempt);
    free(lost);
}

static void drop(struct cairn_up *up, struct cairn_up_lost **at) {
    close_entry(up, &(*at)->entry);
    unlink_at(up, at);
}

/* The oldest of which the server knows, else the oldest. */
static void make_room(struct cairn_up *up) {
    struct cairn_up_lost **oldest = NULL, **taken = NULL;
    size_t count = 0;
    for (struct cairn_up_lost **at = &up->locked.lost; *at; at = &(*at)->next, count++) {
        oldest = at;
        if ((*at)->taken) taken = at;
    }
    if (count >= LOST_MAX) drop(up, taken ? taken : oldest);
}

/* Nobody waits for the only rank of a world, and nobody else could join it. */
static bool matters(const struct cairn_up_rank *rank) {
    return rank->world_size > 1 && (rank->ended || rank->process >= 0);
}

static void add(struct cairn_up *up, const struct cairn_up_rank *take, bool bye,
                uint64_t hold_until_ms, bool awaited) {
    int process = take->process;
    uint64_t entry = take->entry;
    make_room(up);
    struct cairn_up_lost *lost = calloc(1, sizeof(*lost));
    if (process >= 0 && (!lost || !matters(take))) cairn_fd_close_at(&process);
    if (!lost) { /* then the others wait for their deadlines */
        close_entry(up, &entry);
        cairn_up_attempt_leave(up, take->attempt);
        return;
    }
    *lost = (struct cairn_up_lost){.next = up->locked.lost,
                                   .attempt = take->attempt,
                                   .rank = take->rank,
                                   .entry = entry,
                                   .process = matters(take) ? process : -1,
                                   .bye = bye,
                                   .ended = take->ended && matters(take),
                                   .hold_until_ms = hold_until_ms,
                                   .awaited = awaited};
    (void)cairn_text_copy(lost->proc, sizeof(lost->proc), take->proc);
    up->locked.lost = lost;
}

/* After a restart, it does not hold the attempt. */
static void record_bye(struct cairn_up *up, const struct cairn_up_rank *rank) {
    CAIRN_AUTO_JSON json_t *message = CAIRN_PACK(
        record_session, .grant = rank->attempt->text, .rank = rank->rank,
        .world_size = rank->world_size, .proc = rank->proc, .process = rank->name, .bye = true);
    struct cairn_up_record record = {.entry = rank->entry, .message = message};
    cairn_up_journal_note(up->journal, &record, 1);
}

void cairn_up_lost_add_locked(struct cairn_up *up, const struct cairn_up_rank *take, bool bye) {
    struct cairn_up_rank rank = *take;
    if (!matters(take)) close_entry(up, &rank.entry);
    if (matters(take) && bye) record_bye(up, take);
    add(up, &rank, bye, bye ? 0 : cairn_mono_ms() + HOLD_MS, false);
}

void cairn_up_lost_recover_locked(struct cairn_up *up, const struct cairn_up_rank *take, bool bye) {
    add(up, take, bye, 0, !bye && !take->ended);
}

void cairn_up_lost_back_locked(struct cairn_up *up, const struct cairn_up_attempt *attempt,
                               uint32_t rank) {
    for (struct cairn_up_lost **at = &up->locked.lost; *at;) {
        if ((*at)->attempt == attempt && (*at)->rank == rank)
            drop(up, at);
        else
            at = &(*at)->next;
    }
}

/* lost.h#4 */
static bool holds(const struct cairn_up *up, const struct cairn_up_lost *lost) {
    return cairn_mono_ms() < lost->hold_until_ms || (lost->awaited && up->locked.offers_awaited);
}

bool cairn_up_lost_holds_locked(struct cairn_up *up, const struct cairn_up_attempt *attempt) {
    uint32_t left = 0;
    for (const struct cairn_up_lost *at = up->locked.lost; at; at = at->next)
        if (at->attempt == attempt && !holds(up, at)) left++;
    return attempt->users > left;
}

/* ---- looking ---- */

/* True when the end of its process was news. */
static bool look(struct cairn_up_lost *lost) {
    struct pollfd process = {.fd = lost->process, .events = POLLIN};
    if (lost->process < 0 || poll(&process, 1, 0) <= 0) return false;
    cairn_fd_close_at(&lost->process);
    lost->process = -1;
    lost->ended = true;
    const struct cairn_up_attempt *attempt = lost->attempt;
    if (lost->bye) /* the usual end */
        cairn_log(INFO, "session.over", "run=%s attempt=%" PRIu64 " rank=%u", attempt->run_text,
                  attempt->grant.attempt, lost->rank);
    else
        cairn_log(WARN, "session.lost", "run=%s attempt=%" PRIu64 " rank=%u", attempt->run_text,
                  attempt->grant.attempt, lost->rank);
    return true;
}

/* Q56: is nothing of that rank under way any more? */
static bool is_settled(const struct cairn_up *up, const struct cairn_up_lost *lost) {
    for (size_t i = 0; i < up->locked.save_count; i++) {
        const struct cairn_up_save *save = up->locked.saves[i];
        if (save->attempt == lost->attempt && save->rank == lost->rank &&
            cairn_up_save_state_owes_end(&save->state))
            return false;
    }
    return true;
}

static bool is_over(const struct cairn_up *up, const struct cairn_up_lost *lost) {
    bool unseen = !lost->ended && lost->process < 0;
    return lost->attempt->stale || lost->attempt->foreign.code != CAIRN_OK ||
           (unseen && !holds(up, lost));
}

bool cairn_up_lost_tick(struct cairn_up *up) {
    bool news = false;
    cairn_lock_take(&up->lock);
    for (struct cairn_up_lost **at = &up->locked.lost; *at;) {
        struct cairn_up_lost *lost = *at;
        if (is_over(up, lost)) {
            drop(up, at);
            continue;
        }
        at = &lost->next;
        (void)look(lost);
        if (!lost->ended || lost->taken) continue;
        enum said say = is_settled(up, lost) ? SAID_SETTLED : SAID_ENDED;
        news |= say > lost->said;
        lost->said = say;
    }
    cairn_lock_give(&up->lock);
    return news;
}

/* ---- reporting ---- */

json_t *cairn_up_lost_ranks_locked(struct cairn_up *up, const struct cairn_up_attempt *attempt) {
    json_t *ranks = json_array();
    for (struct cairn_up_lost *at = up->locked.lost; at; at = at->next) {
        (void)look(at);
        if (at->ended && !strcmp(at->attempt->run_text, attempt->run_text) &&
            at->attempt->grant.attempt == attempt->grant.attempt)
            json_array_append_new(ranks, json_integer((json_int_t)at->rank));
    }
    return ranks;
}

json_t *cairn_up_lost_report_locked(struct cairn_up *up) {
    json_t *report = json_array();
    for (struct cairn_up_lost *at = up->locked.lost; at && report; at = at->next) {
        (void)look(at);
        if (!at->ended || at->taken || at->attempt->stale) continue;
        json_t *item = CAIRN_PACK(node_ended, .grant = at->attempt->text, .rank = at->rank,
                                  .proc = at->proc, .settled = is_settled(up, at));
        if (!json_array_append_new(report, item)) continue;
        json_decref(report);
        return NULL;
    }
    return report;
}

static struct cairn_up_lost *find(struct cairn_up *up, const json_t *item) {
    const char *grant = json_string_value(json_object_get(item, "grant"));
    json_int_t rank = json_integer_value(json_object_get(item, "rank"));
    struct cairn_up_lost *at = grant ? up->locked.lost : NULL;
    while (at && (!at->ended || at->rank != rank || strcmp(at->attempt->text, grant) != 0))
        at = at->next;
    return at;
}

void cairn_up_lost_taken(struct cairn_up *up, const json_t *report, const json_t *indexes) {
    CAIRN_HOLD(&up->lock);
    for (size_t i = 0; i < json_array_size(indexes); i++) {
        json_int_t index = json_integer_value(json_array_get(indexes, i));
        struct cairn_up_lost *lost =
            find(up, index < 0 ? NULL : json_array_get(report, (size_t)index));
        if (!lost) continue;
        lost->taken = true;
        close_entry(up, &lost->entry);
    }
}

void cairn_up_lost_again(struct cairn_up *up) {
    CAIRN_HOLD(&up->lock);
    for (struct cairn_up_lost *at = up->locked.lost; at; at = at->next) {
        at->taken = false;
        at->said = SAID_NOTHING;
    }
}

void cairn_up_lost_free(struct cairn_up *up) {
    CAIRN_HOLD(&up->lock);
    while (up->locked.lost) unlink_at(up, &up->locked.lost);
}
