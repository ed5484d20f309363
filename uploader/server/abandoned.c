/* SPDX-License-Identifier: Apache-2.0 */
/* Each open version of an answer is held against what the ranks of its attempt have counted. */
#include "uploader/server/abandoned.h"

#include <inttypes.h>

#include "api/documents/digest.h"
#include "api/wire/messages.h"
#include "common/hooks.h"
#include "common/log.h"
#include "common/text.h"
#include "uploader/saves/begin.h"

static bool is_of(const struct cairn_up_attempt *attempt, const struct cairn_msg_brief *open) {
    const struct cairn_grant *grant = &attempt->grant;
    struct cairn_version_origin origin = {
        .name = grant->name, .attempt = grant->attempt, .step = open->step, .n = open->n};
    struct cairn_version_id id;
    (void)cairn_text_copy(origin.nonce, sizeof(origin.nonce), grant->nonce);
    cairn_version_id_make(&origin, &id);
    return !strcmp(id.text, open->version);
}

static bool was_missed(const struct cairn_up_missed *missed, const struct cairn_msg_brief *open,
                       uint32_t rank) {
    for (size_t i = 0; i < missed->count; i++)
        if (missed->at[i].rank == rank && !strcmp(missed->at[i].version, open->version))
            return true;
    return false;
}

static void note(struct cairn_up_missed *missed, const struct cairn_msg_brief *open,
                 uint32_t rank) {
    if (missed->count == CAIRN_COUNT(missed->at)) return;
    if (!cairn_text_copy(missed->at[missed->count].version,
                         sizeof(missed->at[missed->count].version), open->version))
        return;
    missed->at[missed->count++].rank = rank;
}

void cairn_up_abandoned_unreported(uint64_t step, uint32_t n, const struct cairn_error *why) {
    cairn_log(WARN, "session.abandoned", "step=%" PRIu64 " n=%u cause=\"%s\"", step, n,
              why->message);
}

static void fail(struct cairn_up *up, struct cairn_up_attempt *attempt,
                 const struct cairn_up_counted *counted, const struct cairn_msg_brief *open) {
    const struct cairn_up_begin begin = {.attempt = attempt,
                                         .rank = counted->rank,
                                         .world_size = counted->world_size,
                                         .step = open->step,
                                         .n = open->n};
    struct cairn_error why = {0}, error = {0};
    (void)cairn_fail(&why, CAIRN_CANCELLED, "the rank went on without this save");
    cairn_log(WARN, "save.missed", "run=%s step=%" PRIu64 " n=%u rank=%u version=%s",
              attempt->run_text, open->step, open->n, counted->rank, open->version);
    if (cairn_up_save_abandoned_locked(up, &begin, &why, &error) != CAIRN_OK)
        cairn_up_abandoned_unreported(open->step, open->n, &error);
}

static void look(struct cairn_up *up, const struct cairn_msg_brief *open,
                 const struct cairn_up_missed *before, struct cairn_up_missed *now) {
    struct cairn_up_attempt *attempt = up->locked.attempts;
    while (attempt && (!attempt->counted || !is_of(attempt, open))) attempt = attempt->next;
    if (!attempt || attempt->stale || attempt->foreign.code != CAIRN_OK) return;
    for (const struct cairn_up_counted *at = attempt->counted; at; at = at->next) {
        if (cairn_up_counted_of(at, open->step) < open->n) continue;
        if (cairn_up_save_known_locked(up, open->version, at->rank)) continue;
        if (was_missed(before, open, at->rank))
            fail(up, attempt, at, open);
        else
            note(now, open, at->rank);
    }
}

void cairn_up_abandoned_look(struct cairn_up *up, const json_t *versions,
                             struct cairn_up_missed *missed) {
    struct cairn_up_missed now = {.count = 0};
    CAIRN_HOLD(&up->lock);
    for (size_t i = 0; CAIRN_RULE(Q12) && i < json_array_size(versions); i++) {
        struct cairn_msg_brief open = {0};
        if (cairn_msg_brief_read(json_array_get(versions, i), "/versions", &open, NULL) ||
            strcmp(open.state, "open") != 0 || !open.n)
            continue;
        look(up, &open, missed, &now);
    }
    *missed = now;
}
