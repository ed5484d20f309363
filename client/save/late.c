/* SPDX-License-Identifier: Apache-2.0 */
/* Looked at before the wait for memory, since that wait ends with the save that is looked for. */
#include "client/save/late.h"

#include <inttypes.h>
#include <stdio.h>

#define ROW 2                /* begins that find an earlier save under way */
#define MEMORY_WAIT_US 10000 /* less is no wait */

static bool is_under_way(const struct cairn_save *save) {
    return save->state.phase == CAIRN_CLIENT_PHASE_STAGED ||
           save->state.phase == CAIRN_CLIENT_PHASE_COPIED || save->behind.busy;
}

void cairn_client_late_look(const struct cairn_save *save, struct cairn_client_late *ret) {
    const struct cairn_save *at;
    *ret = (struct cairn_client_late){0};
    TAILQ_FOREACH(at, &save->session->saves->all, place)
        if (at != save && is_under_way(at)) break;
    if (!at) return;
    bool durable = at->state.reached >= CAIRN_CLIENT_REACHED_DURABLE;
    *ret = (struct cairn_client_late){.found = true,
                                      .step = at->step,
                                      .phase = at->state.phase,
                                      .reached = at->state.reached,
                                      .staged_bytes = at->staged_bytes,
                                      .sent_bytes = cairn_min_u64(at->sent_bytes, at->total_bytes),
                                      .total_bytes = at->total_bytes,
                                      .link_us = at->link_us,
                                      .store_us = at->store_us,
                                      .since_ms = durable ? at->durable_ms : at->copied_ms};
}

/* Which of both, by where the greater part of the parts' time went. */
static void say_sending(const struct cairn_save *save, const struct cairn_client_late *late,
                        double seconds, char *ret, size_t capacity) {
    uint64_t all_us = late->link_us + late->store_us;
    bool link = late->link_us > late->store_us;
    char share[64] = "";
    if (all_us)
        snprintf(share, sizeof share, ", %.0f %% of a part's time %s",
                 100.0 * (double)(link ? late->link_us : late->store_us) / (double)all_us,
                 link ? "on its way" : "with the store");
    snprintf(ret, capacity,
             "by the %s: %" PRIu64 " of %" PRIu64
             " bytes are sent after %.1f s, %.1f MB/s%s; this begin waited %.2f s for memory",
             !all_us ? "store or the link to it"
             : link  ? "link to the store"
                     : "store",
             late->sent_bytes, late->total_bytes, seconds,
             seconds > 0 ? (double)late->sent_bytes / seconds / 1e6 : 0, share,
             (double)save->wait_us / 1000000);
}

/* What the save waits for, with figures. */
static void say_cause(const struct cairn_save *save, const struct cairn_client_late *late,
                      char *ret, size_t capacity) {
    const struct cairn_session *session = save->session;
    double seconds = (double)(cairn_mono_ms() - late->since_ms) / 1000;
    double wait_s = (double)save->wait_us / 1000000;
    if (late->phase == CAIRN_CLIENT_PHASE_COPYING && late->staged_bytes < late->total_bytes)
        snprintf(ret, capacity,
                 "by the copy beside the training: %" PRIu64 " of %" PRIu64
                 " bytes are copied after %.1f s",
                 late->staged_bytes, late->total_bytes, seconds);
    else if (late->phase == CAIRN_CLIENT_PHASE_COPIED)
        snprintf(ret, capacity, "by the uploader, which is away");
    else if (late->reached >= CAIRN_CLIENT_REACHED_DURABLE)
        snprintf(ret, capacity,
                 "by the server or other ranks: its shards here are durable since %.1f s and it "
                 "is not committed",
                 seconds);
    else if (session->slab_count == 1 && save->wait_us >= MEMORY_WAIT_US)
        snprintf(ret, capacity,
                 "by the slab: the node's memory holds one save of this rank, so this begin waited "
                 "%.2f s for it",
                 wait_s);
    else
        say_sending(save, late, seconds, ret, capacity);
}

void cairn_client_late_note(struct cairn_save *save, const struct cairn_client_late *late) {
    struct cairn_client_saves *saves = save->session->saves;
    char cause[256];
    saves->late_in_row = late->found ? saves->late_in_row + 1 : 0;
    if (saves->late_in_row != ROW) return;
    say_cause(save, late, cause, sizeof cause);
    (void)cairn_fail(&saves->late, CAIRN_UNAVAILABLE,
                     "saves take longer than the time between them: step %" PRIu64
                     " was under way when step %" PRIu64 " began, held up %s",
                     late->step, save->step, cause);
}

enum cairn_code cairn_session_warning(struct cairn_session *session, struct cairn_error *err) {
    CAIRN_CLIENT_CALL(session, err);
    CAIRN_HOLD(&session->lock);
    struct cairn_client_saves *saves = session->saves;
    struct cairn_error *first = saves->late.code ? &saves->late : &saves->stale_warning;
    if (!first->code) return CAIRN_OK;
    if (err) *err = *first;
    *first = (struct cairn_error){0};
    return cairn_within(err, CAIRN_UNAVAILABLE, "%s rank %u", session->run, session->rank);
}
