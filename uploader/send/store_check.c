/* SPDX-License-Identifier: Apache-2.0 */
/* store.json is read, compared with the grants, and the result is logged and reported. */
#include "uploader/send/store_check.h"

#include <stdio.h>

#include "api/documents/records.h"
#include "common/hooks.h"
#include "common/log.h"
#include "common/text.h"
#include "store/record.h"
#include "uploader/saves/attempt.h"
#include "uploader/send/send.h"

#define PERIOD_MS 200
#define READ_MS 5000
#define CHECK_WAIT_MS 5000
#define MISMATCHES_MAX 3

enum cairn_code cairn_up_store_check_init(struct cairn_up_store_check *check, struct cairn_up *up,
                                          struct cairn_error *err) {
    *check = (struct cairn_up_store_check){0};
    return cairn_store_worker_new(up->store, &check->worker, err);
}

void cairn_up_store_check_release(struct cairn_up_store_check *check) {
    cairn_store_worker_free(CAIRN_TAKE(check->worker));
}

/* ---- one check ---- */

static enum cairn_code compare_grants(struct cairn_up *up, const char *uuid,
                                      struct cairn_error *err) {
    CAIRN_HOLD(&up->lock);
    for (struct cairn_up_attempt *at = up->locked.attempts; at; at = at->next) {
        if (!strcmp(at->grant.store_uuid, uuid)) continue;
        return cairn_fail(err, CAIRN_CONFLICT,
                          "store %s is %s, but the journal or the server speaks of store %s "
                          "(run %s)",
                          cairn_store_url(up->store), uuid, at->grant.store_uuid, at->run_text);
    }
    return CAIRN_OK;
}

static enum cairn_code check_once(struct cairn_up_store_check *check, struct cairn_up *up,
                                  struct cairn_error *err) {
    struct cairn_store_record record = {0};
    enum cairn_code code =
        cairn_store_record_get(check->worker, cairn_mono_ms() + READ_MS, &record, err);
    if (code != CAIRN_OK)
        return cairn_within(err, code, "store %s: store.json", cairn_store_url(up->store));
    CAIRN_TRY(compare_grants(up, record.uuid, err));
    if (strcmp(up->locked.store_uuid, record.uuid) != 0) /* which this thread alone writes */
        CAIRN_TRY(cairn_up_claim(up, CAIRN_UP_CLAIM_STORE, record.uuid, err));
    CAIRN_HOLD(&up->lock);
    bool first = !up->locked.store_uuid[0];
    (void)cairn_text_copy(up->locked.store_uuid, sizeof(up->locked.store_uuid), record.uuid);
    up->locked.store_waits[0] = '\0';
    up->locked.store_fails = false;
    cairn_condition_broadcast(&up->changed);
    if (first || check->reported)
        cairn_log(INFO, "store.met", "url=%s uuid=%s", cairn_store_url(up->store), record.uuid);
    return CAIRN_OK;
}

/* ---- a store that was met, and fails ---- */

/* Requests are repeated for minutes, each by itself; who waits hears sooner what all wait for. */
static void note_failing(struct cairn_up *up) {
    struct cairn_store_health health;
    cairn_store_health(up->store, &health);
    CAIRN_HOLD(&up->lock);
    if (!health.failing_ms) {
        if (up->locked.store_fails) up->locked.store_waits[0] = '\0';
        up->locked.store_fails = false;
        return;
    }
    if (up->locked.store_fails) return; /* a text that changed would be a write of the server's */
    up->locked.store_waits_since_ms = cairn_mono_ms() - health.failing_ms;
    up->locked.store_fails = true;
    snprintf(up->locked.store_waits, sizeof(up->locked.store_waits),
             "the store fails, and is tried on: %s", health.failing);
}

/* ---- tick ---- */

static void report(struct cairn_up_store_check *check, struct cairn_up *up,
                   const struct cairn_error *why) {
    cairn_lock_take(&up->lock);
    if (!up->locked.store_waits[0]) up->locked.store_waits_since_ms = cairn_mono_ms();
    up->locked.store_fails = false;
    (void)cairn_text_copy(up->locked.store_waits, sizeof(up->locked.store_waits), why->message);
    cairn_lock_give(&up->lock);
    uint64_t unsaid = 0;
    if (!check->reported &&
        cairn_log_limit_allows(&check->log_limit, "store.not_ready", cairn_mono_ms(), &unsaid))
        cairn_log(WARN, "store.not_ready",
                  "url=%s cause=\"%s\" unsaid=%llu hint=\"nothing is sent before this is the store "
                  "of the grants; is it mounted?\"",
                  cairn_store_url(up->store), why->message, (unsigned long long)unsaid);
    check->reported = true;
}

enum cairn_code cairn_up_store_check_tick(struct cairn_up_store_check *check, struct cairn_up *up,
                                          struct cairn_error *err) {
    if (cairn_mono_ms() < check->next_ms) return CAIRN_OK;
    if (cairn_up_queue_is_admitted(up->queue)) {
        check->next_ms = cairn_mono_ms() + PERIOD_MS;
        note_failing(up);
        return CAIRN_OK;
    }
    if (!CAIRN_RULE(Q55)) cairn_up_queue_admit(up->queue);
    struct cairn_error why = {0};
    enum cairn_code code = CAIRN_OK;
    if (cairn_store_moved(up->store))
        code = cairn_up_queue_is_still(up->queue)
                   ? cairn_store_follow(up->store, &why)
                   : cairn_fail(&why, CAIRN_UNAVAILABLE,
                                "another folder is under %s, and requests to the one before are "
                                "under way",
                                cairn_store_url(up->store));
    if (code == CAIRN_OK) code = check_once(check, up, &why);
    check->next_ms = cairn_mono_ms() + PERIOD_MS;
    if (code == CAIRN_OK) {
        check->reported = false;
        check->mismatches = 0;
        cairn_up_queue_admit(up->queue);
        return CAIRN_OK;
    }
    report(check, up, &why);
    bool mismatch = code == CAIRN_UNSUPPORTED || code == CAIRN_CONFLICT || code == CAIRN_CORRUPT;
    check->mismatches = mismatch ? check->mismatches + 1 : 0;
    if (check->mismatches < MISMATCHES_MAX) return CAIRN_OK;
    if (err) *err = why;
    return code;
}

/* ---- a grant that arrives ---- */

/* A trainer that comes back after a restart brings the memory of saves that the journal holds: they
 * wait for the store, it does not. */
static bool is_known(const struct cairn_up *up, const char *grant_uuid) {
    for (const struct cairn_up_attempt *at = up->locked.attempts; at; at = at->next)
        if (!strcmp(at->grant.store_uuid, grant_uuid)) return true;
    return false;
}

enum cairn_code cairn_up_store_check_grant(struct cairn_up *up, const char *grant_uuid,
                                           struct cairn_error *err) {
    CAIRN_HOLD(&up->lock);
    if (!CAIRN_RULE(Q55)) return CAIRN_OK;
    if (!up->locked.store_uuid[0] && is_known(up, grant_uuid)) return CAIRN_OK;
    uint64_t until_ms = cairn_mono_ms() + CHECK_WAIT_MS;
    while (!up->locked.store_uuid[0] && !up->locked.draining &&
           cairn_condition_wait(&up->changed, &up->lock, until_ms))
        continue;
    if (!up->locked.store_uuid[0])
        return cairn_fail(err, CAIRN_UNAVAILABLE, "the store has not been checked: %s",
                          up->locked.store_waits[0] ? up->locked.store_waits
                                                    : "store.json was not looked at yet");
    if (!strcmp(up->locked.store_uuid, grant_uuid)) return CAIRN_OK;
    return cairn_fail(err, CAIRN_CONFLICT,
                      "the server writes to store %s, this uploader's store %s is %s", grant_uuid,
                      cairn_store_url(up->store), up->locked.store_uuid);
}
