/* SPDX-License-Identifier: Apache-2.0 */
/* A list, newest first. An entry goes when its rank is back, when its attempt is over, when its
 * process cannot be seen, and when there are too many. */
#include "uploader/saves/ended.h"

#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>

#include "api/wire/messages.h"
#include "common/file.h"
#include "common/log.h"
#include "common/text.h"
#include "uploader/journal/journal.h"
#include "uploader/saves/save.h"

#define HOLD_MS 2000 /* ranks open an attempt one after the other */
#define ENDED_MAX 256 /* descriptors, too */

enum said { SAID_NOTHING, SAID_ENDED, SAID_SETTLED };

struct cairn_up_ended {
    struct cairn_up_ended *next;
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

static void unlink_at(struct cairn_up *up, struct cairn_up_ended **at) {
    struct cairn_up_ended *gone = *at;
    *at = gone->next;
    if (gone->process >= 0) cairn_fd_close_at(&gone->process);
    cairn_up_attempt_leave(up, gone->attempt);
    free(gone);
}

static void drop(struct cairn_up *up, struct cairn_up_ended **at) {
    close_entry(up, &(*at)->entry);
    unlink_at(up, at);
}

/* The oldest of which the server knows, else the oldest. */
static void make_room(struct cairn_up *up) {
    struct cairn_up_ended **oldest = NULL, **taken = NULL;
    size_t count = 0;
    for (struct cairn_up_ended **at = &up->locked.ended; *at; at = &(*at)->next, count++) {
        oldest = at;
        if ((*at)->taken) taken = at;
    }
    if (count >= ENDED_MAX) drop(up, taken ? taken : oldest);
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
    struct cairn_up_ended *gone = calloc(1, sizeof(*gone));
    if (process >= 0 && (!gone || !matters(take))) cairn_fd_close_at(&process);
    if (!gone) { /* then the others wait for their deadlines */
        close_entry(up, &entry);
        cairn_up_attempt_leave(up, take->attempt);
        return;
    }
    *gone = (struct cairn_up_ended){.next = up->locked.ended,
                                    .attempt = take->attempt,
                                    .rank = take->rank,
                                    .entry = entry,
                                    .process = matters(take) ? process : -1,
                                    .bye = bye,
                                    .ended = take->ended && matters(take),
                                    .hold_until_ms = hold_until_ms,
                                    .awaited = awaited};
    (void)cairn_text_copy(gone->proc, sizeof(gone->proc), take->proc);
    up->locked.ended = gone;
}

void cairn_up_ended_add_locked(struct cairn_up *up, const struct cairn_up_rank *take, bool bye) {
    struct cairn_up_rank rank = *take;
    if (!matters(take)) close_entry(up, &rank.entry);
    if (matters(take) && bye) { /* after a restart it does not hold the attempt */
        CAIRN_AUTO_JSON json_t *message = CAIRN_PACK(
            record_session, .grant = take->attempt->text, .rank = take->rank,
            .world_size = take->world_size, .proc = take->proc, .process = take->name, .bye = true);
        struct cairn_up_record record = {.entry = take->entry, .message = message};
        cairn_up_journal_note(up->journal, &record, 1);
    }
    add(up, &rank, bye, bye ? 0 : cairn_mono_ms() + HOLD_MS, false);
}

void cairn_up_ended_recover_locked(struct cairn_up *up, const struct cairn_up_rank *take,
                                   bool bye) {
    add(up, take, bye, 0, !bye && !take->ended);
}

void cairn_up_ended_back_locked(struct cairn_up *up, const struct cairn_up_attempt *attempt,
                                uint32_t rank) {
    for (struct cairn_up_ended **at = &up->locked.ended; *at;) {
        if ((*at)->attempt == attempt && (*at)->rank == rank)
            drop(up, at);
        else
            at = &(*at)->next;
    }
}

/* ended.h#4 */
static bool holds(const struct cairn_up *up, const struct cairn_up_ended *gone) {
    return cairn_mono_ms() < gone->hold_until_ms || (gone->awaited && up->locked.offers_awaited);
}

bool cairn_up_ended_holds_locked(struct cairn_up *up, const struct cairn_up_attempt *attempt) {
    uint32_t left = 0;
    for (const struct cairn_up_ended *at = up->locked.ended; at; at = at->next)
        if (at->attempt == attempt && !holds(up, at)) left++;
    return attempt->users > left;
}

/* ---- looking ---- */

/* True when the process has ended since the last look. */
static bool look(struct cairn_up_ended *gone) {
    struct pollfd process = {.fd = gone->process, .events = POLLIN};
    if (gone->process < 0 || poll(&process, 1, 0) <= 0) return false;
    cairn_fd_close_at(&gone->process);
    gone->process = -1;
    gone->ended = true;
    const struct cairn_up_attempt *attempt = gone->attempt;
    if (gone->bye) /* the usual end */
        cairn_log(INFO, "session.over", "run=%s attempt=%" PRIu64 " rank=%u", attempt->run_text,
                  attempt->grant.attempt, gone->rank);
    else
        cairn_log(WARN, "session.lost", "run=%s attempt=%" PRIu64 " rank=%u", attempt->run_text,
                  attempt->grant.attempt, gone->rank);
    return true;
}

/* Q56: is nothing of that rank under way any more? */
static bool is_settled(const struct cairn_up *up, const struct cairn_up_ended *gone) {
    for (size_t i = 0; i < up->locked.save_count; i++) {
        const struct cairn_up_save *save = up->locked.saves[i];
        if (save->attempt == gone->attempt && save->rank == gone->rank &&
            cairn_up_save_state_end_is_unheard(&save->state))
            return false;
    }
    return true;
}

static bool is_over(const struct cairn_up *up, const struct cairn_up_ended *gone) {
    bool unseen = !gone->ended && gone->process < 0;
    return gone->attempt->stale || gone->attempt->foreign.code != CAIRN_OK ||
           (unseen && !holds(up, gone));
}

bool cairn_up_ended_tick(struct cairn_up *up) {
    bool due = false;
    cairn_lock_take(&up->lock);
    for (struct cairn_up_ended **at = &up->locked.ended; *at;) {
        struct cairn_up_ended *gone = *at;
        if (is_over(up, gone)) {
            drop(up, at);
            continue;
        }
        at = &gone->next;
        (void)look(gone);
        if (!gone->ended || gone->taken) continue;
        enum said say = is_settled(up, gone) ? SAID_SETTLED : SAID_ENDED;
        due |= say > gone->said;
        gone->said = say;
    }
    cairn_lock_give(&up->lock);
    return due;
}

/* ---- reporting ---- */

json_t *cairn_up_ended_ranks_locked(struct cairn_up *up, const struct cairn_up_attempt *attempt) {
    json_t *ranks = json_array();
    for (struct cairn_up_ended *at = up->locked.ended; at; at = at->next) {
        (void)look(at);
        if (at->ended && !strcmp(at->attempt->run_text, attempt->run_text) &&
            at->attempt->grant.attempt == attempt->grant.attempt)
            json_array_append_new(ranks, json_integer((json_int_t)at->rank));
    }
    return ranks;
}

json_t *cairn_up_ended_report_locked(struct cairn_up *up) {
    json_t *report = json_array();
    for (struct cairn_up_ended *at = up->locked.ended; at && report; at = at->next) {
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

static struct cairn_up_ended *find(struct cairn_up *up, const json_t *item) {
    const char *grant = json_string_value(json_object_get(item, "grant"));
    json_int_t rank = json_integer_value(json_object_get(item, "rank"));
    struct cairn_up_ended *at = grant ? up->locked.ended : NULL;
    while (at && (!at->ended || at->rank != rank || strcmp(at->attempt->text, grant) != 0))
        at = at->next;
    return at;
}

void cairn_up_ended_taken(struct cairn_up *up, const json_t *report, const json_t *indexes) {
    CAIRN_HOLD(&up->lock);
    for (size_t i = 0; i < json_array_size(indexes); i++) {
        json_int_t index = json_integer_value(json_array_get(indexes, i));
        struct cairn_up_ended *gone =
            find(up, index < 0 ? NULL : json_array_get(report, (size_t)index));
        if (!gone) continue;
        gone->taken = true;
        close_entry(up, &gone->entry);
    }
}

void cairn_up_ended_again(struct cairn_up *up) {
    CAIRN_HOLD(&up->lock);
    for (struct cairn_up_ended *at = up->locked.ended; at; at = at->next) {
        at->taken = false;
        at->said = SAID_NOTHING;
    }
}

void cairn_up_ended_free(struct cairn_up *up) {
    CAIRN_HOLD(&up->lock);
    while (up->locked.ended) unlink_at(up, &up->locked.ended);
}
