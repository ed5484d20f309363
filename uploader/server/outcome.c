/* SPDX-License-Identifier: Apache-2.0 */
/* Two tables: what each refusal means, and what each state of a version means. */
#include "uploader/server/outcome.h"

#include <inttypes.h>

#include "api/wire/messages.h"
#include "api/wire/words.h"
#include "common/hooks.h"
#include "common/log.h"
#include "common/text.h"
#include "uploader/mail.h"
#include "uploader/partner/partner.h"
#include "uploader/server/lists.h"

enum cairn_code cairn_up_heard(const struct cairn_rest *rest, enum cairn_code code,
                               struct cairn_error *err) {
    if (code == CAIRN_OK || err->http_status < 400 || cairn_rest_spoke(rest) || !CAIRN_RULE(Q48))
        return code;
    err->code = CAIRN_UNAVAILABLE;
    return cairn_within(err, CAIRN_UNAVAILABLE, "not an answer of cairn-server");
}

enum cairn_up_refusal cairn_up_refusal_of(enum cairn_code code, int http_status, bool about_run) {
    /* It was never sent: no later try makes it smaller. */
    if (http_status == 0 && code == CAIRN_TOO_LARGE) return CAIRN_UP_MUST_FAIL;
    if (http_status == 0 || http_status == 401 || http_status == 429 || http_status >= 500)
        return CAIRN_UP_PASSING;
    switch (code) {
    case CAIRN_STALE_ATTEMPT:
        return CAIRN_UP_OVER_STALE;
    case CAIRN_NOT_FOUND:
    case CAIRN_NOT_YET: /* of a step, which no uploader asks for: the version is not there */
        return about_run ? CAIRN_UP_OVER_RUN : CAIRN_UP_UNKNOWN;
    case CAIRN_DELETED:
        return about_run ? CAIRN_UP_OVER_RUN : CAIRN_UP_ENDED;
    case CAIRN_ABORTED:
    case CAIRN_NOT_OPEN:
    case CAIRN_ALREADY_COMMITTED:
        return CAIRN_UP_ENDED;
    case CAIRN_TABLE_UNKNOWN:
        return CAIRN_UP_TABLE;
    case CAIRN_TIMEOUT:
    case CAIRN_BUSY:
    case CAIRN_UNAVAILABLE:
    case CAIRN_CATALOG_BEHIND:
        return CAIRN_UP_PASSING;
    default:
        return http_status >= 400 ? CAIRN_UP_MUST_FAIL : CAIRN_UP_PASSING;
    }
}

static bool is_whole(const json_t *version) {
    const json_t *shards = json_object_get(version, "shards");
    const json_t *ranks = json_object_get(version, "world_size");
    return shards && ranks && json_equal(shards, json_object_get(version, "shards_registered")) &&
           json_equal(ranks, json_object_get(version, "ranks_sealed"));
}

void cairn_up_version_status_read(const json_t *version, struct cairn_up_version_status *ret) {
    const char *state = json_string_value(json_object_get(version, "state"));
    *ret = (struct cairn_up_version_status){
        .state = state ? state : "",
        .recorded = json_is_true(json_object_get(version, "recorded")),
        .was_committed = json_is_string(json_object_get(version, "committed_at")),
        .whole = is_whole(version),
    };
    cairn_failure_get(version, "reason", &ret->why);
}

static enum cairn_up_end end_of(enum cairn_code code) {
    if (code == CAIRN_SKIPPED) return CAIRN_UP_SKIPPED;
    if (code == CAIRN_STEP_EXISTS || code == CAIRN_QUOTA_EXCEEDED) return CAIRN_UP_REFUSED;
    return CAIRN_UP_ABORTED;
}

/* A fail of ours may come from what another's abort did (its sweep takes our files away): then the
 * first reason is the true one. */
static bool is_ours(const struct cairn_up_save *save, const char *reason) {
    char start[64];
    (void)cairn_text_copy(start, sizeof(start), save->why.message);
    return !reason[0] || strstr(reason, start);
}

bool cairn_up_outcome_apply_locked(struct cairn_up *up, struct cairn_up_save *save,
                                   const struct cairn_up_version_status *found) {
    bool committed = !strcmp(found->state, "committed") && found->recorded;
    bool left = !strcmp(found->state, "deleting") || !strcmp(found->state, "gone");
    if (committed || !strcmp(found->state, "deleting") ||
        (left && (found->was_committed || found->recorded))) {
        cairn_up_save_over_locked(up, save, CAIRN_UP_COMMITTED, CAIRN_OK, "");
        return true;
    }
    if (!left && strcmp(found->state, "aborting") != 0) return false;
    if (cairn_up_save_state_is_failing(&save->state) && is_ours(save, found->why.message)) {
        cairn_up_save_end_locked(up, save, CAIRN_UP_FAILED, &save->why);
        return true;
    }
    struct cairn_error why = found->why;
    if (why.code == CAIRN_OK || why.code == CAIRN_INTERNAL) why.code = CAIRN_ABORTED;
    if (!why.message[0]) cairn_fail(&why, why.code, "the version was given up");
    if (cairn_up_lists_hold_locked(up, save, end_of(why.code), &why)) return false;
    cairn_up_save_end_locked(up, save, end_of(why.code), &why);
    return true;
}

void cairn_up_outcome_version_locked(struct cairn_up *up, const char *version,
                                     const struct cairn_up_version_status *found) {
    if (found->state[0] && strcmp(found->state, "open") != 0)
        cairn_up_partner_over_locked(up->partner, version, !strcmp(found->state, "committed"));
    for (size_t i = up->locked.save_count; i-- > 0;) {
        if (i >= up->locked.save_count) continue;
        struct cairn_up_save *save = up->locked.saves[i];
        if (save->state.phase != CAIRN_UP_PHASE_OVER && !strcmp(save->place.id.text, version))
            (void)cairn_up_outcome_apply_locked(up, save, found);
    }
}

bool cairn_up_version_decided(const json_t *version) {
    const char *outcome = json_string_value(json_object_get(version, "awaited"));
    return outcome && !strcmp(outcome, cairn_outcome_text(CAIRN_OUTCOME_REACHED));
}

void cairn_up_outcome_decided_locked(struct cairn_up *up, const char *version) {
    for (size_t i = 0; i < up->locked.save_count; i++) {
        struct cairn_up_save *save = up->locked.saves[i];
        if (!cairn_up_save_awaits_decision(save) || strcmp(save->place.id.text, version) != 0)
            continue;
        save->decided = true;
        cairn_up_mail_post(up->mail, save->conn, CAIRN_PACK(decided, .save = save->number));
    }
}

/* The journal goes by the node's name. */
static void fail_unknown(struct cairn_up *up, struct cairn_up_save *save) {
    struct cairn_error why = {0};
    (void)cairn_fail(&why, CAIRN_SOURCE_GONE,
                     "the uploader came back without its journal, or under another node name: it "
                     "is of node %s now, on host %s%s",
                     up->places.node, up->places.host,
                     *up->settings.node ? ""
                                        : "; the setting node is not set, so that the node's name "
                                          "changes with the host name");
    cairn_up_save_fail_for_locked(up, save, &why);
}

void cairn_up_outcome_forgotten_locked(struct cairn_up *up, const char *version,
                                       const struct cairn_up_version_status *found) {
    for (size_t i = up->locked.save_count; i-- > 0;) {
        if (i >= up->locked.save_count) continue;
        struct cairn_up_save *save = up->locked.saves[i];
        if (save->state.phase != CAIRN_UP_PHASE_IN_DOUBT ||
            strcmp(save->place.id.text, version) != 0)
            continue;
        if (!found)
            cairn_up_save_over_locked(up, save, CAIRN_UP_FAILED, CAIRN_SOURCE_GONE,
                                      "neither the uploader's journal nor the server knows it");
        else if (!strcmp(found->state, "open") && !found->whole)
            fail_unknown(up, save);
    }
}

void cairn_up_outcome_fence_locked(struct cairn_up *up, const char *run_text, uint64_t newest) {
    for (struct cairn_up_attempt *at = up->locked.attempts; at; at = at->next) {
        if (!strcmp(at->run_text, run_text) && at->grant.attempt < newest) at->stale = true;
    }
    for (size_t i = up->locked.save_count; i-- > 0;) {
        if (i >= up->locked.save_count) continue;
        struct cairn_up_save *save = up->locked.saves[i];
        if (save->state.phase == CAIRN_UP_PHASE_OVER || !save->attempt->stale ||
            cairn_up_save_state_may_be_committed(&save->state))
            continue;
        cairn_up_save_over_locked(up, save, CAIRN_UP_ABORTED, CAIRN_STALE_ATTEMPT,
                                  "a newer attempt of the run has taken over");
    }
}

void cairn_up_outcome_foreign_locked(struct cairn_up *up, const char *grant,
                                     const struct cairn_error *why) {
    struct cairn_up_attempt *attempt = up->locked.attempts;
    while (attempt && strcmp(attempt->text, grant) != 0) attempt = attempt->next;
    if (!attempt) return;
    if (attempt->foreign.code == CAIRN_OK)
        cairn_log(ERROR, "attempt.foreign", "run=%s attempt=%" PRIu64 " cause=\"%s\"",
                  attempt->run_text, attempt->grant.attempt, why->message);
    attempt->foreign = *why;
    for (size_t i = up->locked.save_count; i-- > 0;) {
        if (i >= up->locked.save_count) continue;
        struct cairn_up_save *save = up->locked.saves[i];
        /* Also one that was counted since; nobody takes it from this node. */
        if (save->attempt == attempt && save->state.phase != CAIRN_UP_PHASE_OVER)
            cairn_up_save_end_locked(up, save, CAIRN_UP_ABORTED, why);
    }
}
