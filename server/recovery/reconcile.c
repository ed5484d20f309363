/* SPDX-License-Identifier: Apache-2.0 */
/* Taking over what the store says of one run; see reconcile.h. */
#include "server/recovery/reconcile.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/log.h"
#include "common/text.h"
#include "server/db/sql.h"
#include "server/guard/identity.h"
#include "server/guard/jobs.h"
#include "server/http/waiters.h"
#include "server/ledger/policies.h"
#include "server/ledger/runs.h"
#include "server/recovery/mend_read.h"

#define RECOUNT_MS 60000 /* between two, of any project */

struct requests {
    struct cairn_srv_reconcile_request runs[CAIRN_SRV_RECONCILES_MAX];
    size_t count;
    uint64_t tick;
    /* of a note */
    struct cairn_srv_reconcile_request *run;
    const char *note;
};

/* ---- one run ---- */

static void announce(const struct cairn_srv_mend *mend) {
    const struct cairn_run_name *name = &mend->objects.name;
    cairn_log(INFO, "run.reconciled",
              "run=%s/%s attempts=%zu taken=%zu set_aside=%zu trashed=%zu given_up=%" PRIu64,
              name->project, name->run, mend->attempt_count, mend->taken, mend->set_aside,
              mend->trashed, mend->given_up);
    for (size_t i = 0; i < mend->version_count; i++) {
        const struct cairn_srv_mend_version *one = &mend->versions[i];
        if (one->known || one->verified) continue;
        cairn_log(WARN, "reconcile.set_aside", "version=%s step=%" PRIu64 " cause=\"%s\"",
                  one->place.id.text, one->place.step, one->cause);
    }
}

struct recount {
    const char *project;
    struct cairn_srv_usage before, after;
};
static enum cairn_code count_again(struct cairn_srv_tx *tx, void *argument,
                                   struct cairn_error *err) {
    struct recount *recount = argument;
    return cairn_srv_usage_recount(tx, recount->project, &recount->before, &recount->after, err);
}

/* policies.h#2: what a hand has changed in the database is put right here. It looks at every version
 * of the project while all other changes wait, so thousands of runs that are reconciled one after
 * the other share one. */
static enum cairn_code recount(struct cairn_srv *server, const char *project,
                               struct cairn_error *err) {
    struct recount call = {.project = project};
    uint64_t now_ms = cairn_srv_mono_ms(server), last_ms = server->recounted_ms;
    if (last_ms && now_ms < last_ms + RECOUNT_MS) return CAIRN_OK;
    CAIRN_TRY(cairn_srv_catalog_write(server->catalog, count_again, &call, err));
    server->recounted_ms = cairn_max_u64(now_ms, 1);
    if (call.before.versions == call.after.versions && call.before.bytes == call.after.bytes)
        return CAIRN_OK;
    cairn_log(WARN, "usage.differed",
              "project=%s versions=%" PRIu64 " bytes=%" PRIu64 " were_versions=%" PRIu64
              " were_bytes=%" PRIu64,
              project, call.after.versions, call.after.bytes, call.before.versions,
              call.before.bytes);
    return CAIRN_OK;
}

static void tell_damaged(void *owner, const char *store, const char *key, enum cairn_code code,
                         const char *cause) {
    const struct cairn_srv_mend *mend = owner;
    if (mend->stores.count > 1 && code == CAIRN_CORRUPT)
        cairn_log(WARN, "reconcile.copy_damaged", "store=%s key=%s cause=\"%s\"", store, key,
                  cause);
}

/* What this release cannot read it must not set aside: the newer one takes it over. */
static enum cairn_code refuse_newer(const struct cairn_srv_mend *mend, struct cairn_error *err) {
    for (size_t i = 0; i < mend->attempt_count; i++)
        if (mend->attempts[i].newer)
            return cairn_fail(err, CAIRN_UNSUPPORTED, "%s", mend->attempts[i].cause);
    for (size_t i = 0; i < mend->version_count; i++)
        if (mend->versions[i].newer && !mend->versions[i].verified)
            return cairn_fail(err, CAIRN_UNSUPPORTED, "%s", mend->versions[i].cause);
    return CAIRN_OK;
}

static enum cairn_code reconcile(struct cairn_srv *server, struct cairn_store_worker *worker,
                                 const struct cairn_run_name *name, struct cairn_error *err) {
    struct cairn_srv_mend mend = {
        .server = server, .objects.name = *name, .tell = tell_damaged};
    mend.owner = &mend;
    enum cairn_code code = cairn_srv_mend_open(&mend, worker, err);
    if (!code) code = cairn_srv_mend_read_attempts(&mend, err);
    if (!code) code = cairn_srv_mend_read_versions(&mend, err);
    if (!code) code = refuse_newer(&mend, err);
    if (!code) code = cairn_srv_mend_look_for_missing(&mend, err);
    if (!code) code = recount(server, name->project, err);
    if (!code) code = cairn_srv_mend_apply(&mend, err);
    if (!code) announce(&mend);
    cairn_srv_mend_release(&mend);
    return code;
}

/* ---- those that were asked for ---- */

static enum cairn_code find_requests(struct cairn_srv_tx *tx, void *argument,
                                     struct cairn_error *err) {
    struct requests *requests = argument;
    requests->tick = cairn_srv_tick(tx);
    return cairn_srv_frozen_requests(tx, requests->runs, &requests->count, err);
}

static enum cairn_code keep_note(struct cairn_srv_tx *tx, void *argument, struct cairn_error *err) {
    const struct requests *requests = argument;
    return cairn_srv_frozen_set_note(tx, requests->run->run_id, requests->note,
                                     requests->run->due_tick, err);
}

static enum cairn_code serve_request(struct cairn_srv *server, struct cairn_store_worker *worker,
                                     struct requests *requests, struct cairn_error *err) {
    struct cairn_srv_reconcile_request *run = requests->run;
    if (!run->due_tick) { /* the generation was not raised for it yet */
        CAIRN_TRY(cairn_srv_identity_raise(server, worker, err));
        run->due_tick = requests->tick + server->settings->reconcile_wait_ms;
        requests->note = "the generation was raised; the store is read after reconcile-wait";
        CAIRN_TRY(cairn_srv_catalog_write(server->catalog, keep_note, requests, err));
    }
    if (requests->tick < run->due_tick) return CAIRN_OK;
    CAIRN_TRY(cairn_srv_identity_compare(server, worker, err));
    return reconcile(server, worker, &run->name, err);
}

/* False: another server does it. */
static bool serve_alone(struct cairn_srv *server, struct cairn_store_worker *worker,
                        struct requests *requests, enum cairn_code *ret_code,
                        struct cairn_error *err) {
    struct cairn_srv_lease lease;
    cairn_srv_lease_init(&lease, server, "reconcile", "");
    *ret_code = cairn_srv_lease_take(&lease, err);
    if (*ret_code == CAIRN_BUSY) return false;
    if (!*ret_code) *ret_code = serve_request(server, worker, requests, err);
    cairn_srv_lease_end(&lease);
    if (*ret_code == CAIRN_UNSUPPORTED) { /* whoever asked for it is to hear that it will not end */
        requests->note = err->message;
        (void)!cairn_srv_catalog_write(server->catalog, keep_note, requests, NULL);
    }
    if (*ret_code)
        cairn_log(WARN, "reconcile.delayed", "run=%s/%s cause=\"%s\"",
                  requests->run->name.project, requests->run->name.run, err->message);
    return true;
}

void cairn_srv_reconcile_requested(struct cairn_srv *server, struct cairn_store_worker *worker) {
    struct requests requests = {0};
    struct cairn_error away = {0}; /* what did not answer one run is not asked for the next ones */
    bool shared = cairn_srv_catalog_is_shared(server->catalog);
    if ((!server->frozen_runs && !shared) || server->frozen) return;
    if (cairn_srv_catalog_read(server->catalog, find_requests, &requests, NULL)) return;
    for (size_t i = 0; i < requests.count; i++) {
        struct cairn_error why = away;
        enum cairn_code code = away.code;
        requests.run = &requests.runs[i];
        if (!code && !serve_alone(server, worker, &requests, &code, &why)) return;
        if (code == CAIRN_UNAVAILABLE || code == CAIRN_TIMEOUT) away = why;
        if (!code) continue;
        requests.note = why.message;
        (void)!cairn_srv_catalog_write(server->catalog, keep_note, &requests, NULL);
    }
}
