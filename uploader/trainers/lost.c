/* SPDX-License-Identifier: Apache-2.0 */
/* A short list: entries go when nobody else of this node is in the attempt (any more, or yet after
 * KEEP_MS: ranks open it one after the other). */
#include "uploader/trainers/lost.h"

#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/pidfd.h>

#include "common/file.h"
#include "common/log.h"
#include "uploader/save.h"
#include "uploader/server/watch.h"

#define KEEP_MS 2000
#define REPORT_MS 15000 /* how long the server is told of an end, when nobody else is left */
#define REASON "its process ended before it had begun this save"

struct cairn_up_lost {
    struct cairn_up_lost *next;
    struct cairn_up_attempt *attempt; /* in use */
    uint32_t rank;
    int process; /* -1: it has ended */
    uint64_t keep_until_ms;
};

int cairn_up_lost_watch(pid_t pid) {
    return pid > 0 ? pidfd_open(pid, 0) : -1;
}

static void drop(struct cairn_up *up, struct cairn_up_lost **at) {
    struct cairn_up_lost *lost = *at;
    *at = lost->next;
    if (lost->process >= 0) cairn_fd_close_at(&lost->process);
    cairn_up_attempt_leave(up, lost->attempt);
    free(lost);
}

void cairn_up_lost_add_locked(struct cairn_up *up, struct cairn_up_attempt *take_attempt,
                              uint32_t rank, int take_process) {
    struct cairn_up_lost *lost = take_process >= 0 ? calloc(1, sizeof(*lost)) : NULL;
    if (!lost) { /* then the others wait for their deadlines */
        if (take_process >= 0) cairn_fd_close_at(&take_process);
        cairn_up_attempt_leave(up, take_attempt);
        return;
    }
    *lost = (struct cairn_up_lost){up->locked.lost, take_attempt, rank, take_process,
                                   cairn_mono_ms() + KEEP_MS};
    up->locked.lost = lost;
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

/* Does anybody else use its attempt? */
static bool matters(const struct cairn_up *up, const struct cairn_up_lost *lost) {
    uint32_t lost_users = 0;
    for (const struct cairn_up_lost *at = up->locked.lost; at; at = at->next)
        if (at->attempt == lost->attempt) lost_users++;
    return !lost->attempt->stale &&
           (lost->attempt->users > lost_users || cairn_mono_ms() < lost->keep_until_ms);
}

/* True when the end of a process was news. */
static bool look(struct cairn_up *up) {
    bool ended = false;
    CAIRN_HOLD(&up->lock);
    for (struct cairn_up_lost **at = &up->locked.lost; *at;) {
        struct cairn_up_lost *lost = *at;
        if (!matters(up, lost)) {
            drop(up, at);
            continue;
        }
        at = &lost->next;
        struct pollfd process = {.fd = lost->process, .events = POLLIN};
        if (lost->process < 0 || poll(&process, 1, 0) <= 0) continue;
        cairn_fd_close_at(&lost->process);
        lost->process = -1;
        lost->keep_until_ms = cairn_mono_ms() + REPORT_MS;
        ended = true;
        cairn_log(WARN, "session.lost", "run=%s attempt=%" PRIu64 " rank=%u",
                  lost->attempt->run_text, lost->attempt->grant.attempt, lost->rank);
    }
    return ended;
}

json_t *cairn_up_lost_ranks_locked(struct cairn_up *up, const struct cairn_up_attempt *attempt) {
    json_t *ranks = json_array();
    for (const struct cairn_up_lost *at = up->locked.lost; at; at = at->next)
        if (at->process < 0 && !strcmp(at->attempt->run_text, attempt->run_text) &&
            at->attempt->grant.attempt == attempt->grant.attempt)
            json_array_append_new(ranks, json_integer((json_int_t)at->rank));
    return ranks;
}

struct missing {
    struct cairn_up_begin begin; /* one use of its attempt */
    json_t *body;                /* owned; the begin's texts stand in it */
};

/* The begin of a rank that all others made alike (Q10). */
static enum cairn_code copy_begin(const struct cairn_up_lost *lost,
                                  const struct cairn_up_save *save, struct missing *ret,
                                  struct cairn_error *err) {
    ret->begin = (struct cairn_up_begin){
        .rank = lost->rank, .n = save->n, .step = save->place.step, .session = ""};
    const struct cairn_json_field fields[] = {
        {"world_size", CAIRN_JSON_U32, true, &ret->begin.world_size, 0},
        {"on_exists", CAIRN_JSON_TEXT, false, &ret->begin.on_exists, 0},
        {"skip", CAIRN_JSON_BOOL, false, &ret->begin.skip, 0},
        {"format", CAIRN_JSON_TEXT, false, &ret->begin.format, 0},
    };
    CAIRN_TRY(cairn_json_read(save->begin, "", fields, CAIRN_COUNT(fields), true, err));
    ret->body = json_incref(save->begin);
    ret->begin.attempt = save->attempt;
    save->attempt->users++;
    return CAIRN_OK;
}

/* A save of another rank whose version the lost one had not begun. */
static bool find_missing(struct cairn_up *up, struct missing *ret) {
    struct cairn_error error = {0};
    CAIRN_HOLD(&up->lock);
    for (const struct cairn_up_lost *lost = up->locked.lost; lost; lost = lost->next) {
        for (size_t i = 0; lost->process < 0 && i < up->locked.save_count; i++) {
            const struct cairn_up_save *save = up->locked.saves[i];
            if (save->attempt == lost->attempt && cairn_up_save_state_is_begun(&save->state) &&
                !cairn_up_save_known_locked(up, save->place.id.text, lost->rank))
                return copy_begin(lost, save, ret, &error) == CAIRN_OK;
        }
    }
    return false;
}

void cairn_up_lost_tick(struct cairn_up *up) {
    struct missing missing = {0};
    if (look(up)) cairn_up_watch_beat(up->watch);
    while (find_missing(up, &missing)) {
        struct cairn_error error = {0};
        enum cairn_code code =
            cairn_up_save_count(up, &missing.begin, REASON, (struct cairn_up_reply){0}, &error);
        json_decref(missing.body);
        cairn_lock_take(&up->lock);
        cairn_up_attempt_leave(up, missing.begin.attempt);
        cairn_lock_give(&up->lock);
        if (code == CAIRN_OK) continue;
        cairn_log(WARN, "session.passed", "step=%" PRIu64 " n=%u cause=\"%s\"", missing.begin.step,
                  missing.begin.n, error.message);
        return;
    }
}

void cairn_up_lost_free(struct cairn_up *up) {
    CAIRN_HOLD(&up->lock);
    while (up->locked.lost) drop(up, &up->locked.lost);
}
