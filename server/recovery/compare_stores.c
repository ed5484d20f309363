/* SPDX-License-Identifier: Apache-2.0 */
/* What a reconcile would change, looked for; see compare_stores.h. */
#include "server/recovery/compare_stores.h"

#include <inttypes.h>
#include <stdio.h>

#include "common/log.h"
#include "server/ledger/runs.h"
#include "server/reads/tier_reads.h"
#include "server/recovery/mend_copies.h"
#include "server/recovery/mend_read.h"

static bool any_unread(const struct cairn_srv *server) {
    for (size_t i = 0; cairn_srv_tiers_any(server) && i < server->tiers->count; i++)
        if (server->tiers->tiers[i].unread) return true;
    return false;
}

struct aside {
    const char *key;
    bool there;
};
static enum cairn_code find_aside(struct cairn_srv_tx *tx, void *argument,
                                  struct cairn_error *err) {
    struct aside *aside = argument;
    return cairn_srv_aside_there(tx, aside->key, &aside->there, err);
}

/* Of a version that this catalog has not committed. */
static enum cairn_code judge_unknown(const struct cairn_srv_mend *mend,
                                     struct cairn_srv_mend_version *one,
                                     char ret[CAIRN_SRV_STORES_CAUSE_BYTES],
                                     struct cairn_error *err) {
    struct cairn_key key;
    cairn_key_committed(&one->place, &key);
    struct aside aside = {.key = key.text};
    CAIRN_TRY(cairn_srv_catalog_read(mend->server->catalog, find_aside, &aside, err));
    if (aside.there) return CAIRN_OK;
    enum cairn_code code = cairn_srv_mend_look_at_copies(mend, one, err);
    if (!code && (one->verified || one->damaged || one->newer))
        snprintf(ret, CAIRN_SRV_STORES_CAUSE_BYTES,
                 "step %" PRIu64 " (%s) is committed in a store, the catalog does not know of that",
                 one->place.step, one->place.id.text);
    cairn_manifest_release(&one->manifest);
    return code;
}

static enum cairn_code judge_one(const struct cairn_srv_mend *mend,
                                 const struct cairn_srv_seen *seen,
                                 char ret[CAIRN_SRV_STORES_CAUSE_BYTES], struct cairn_error *err) {
    struct cairn_srv_mend_version one = {.place = {mend->objects.name, seen->step, seen->id}};
    bool differs = false;
    CAIRN_TRY(cairn_srv_mend_is_known(mend, &seen->id, &one.known, err));
    if (!one.known) return judge_unknown(mend, &one, ret, err);
    CAIRN_TRY(cairn_srv_mend_copies_differ(mend, &one, &differs, err));
    if (differs)
        snprintf(ret, CAIRN_SRV_STORES_CAUSE_BYTES,
                 "step %" PRIu64 " (%s) lies in other stores than the catalog says", seen->step,
                 seen->id.text);
    return CAIRN_OK;
}

static enum cairn_code judge(struct cairn_srv_mend *mend, char ret[CAIRN_SRV_STORES_CAUSE_BYTES],
                             struct cairn_error *err) {
    for (size_t i = 0; i < mend->objects.version_count && !ret[0]; i++)
        CAIRN_TRY(judge_one(mend, &mend->objects.versions[i], ret, err));
    if (ret[0]) return CAIRN_OK;
    enum cairn_code code = cairn_srv_mend_find_missing(mend, err);
    if (code == CAIRN_NOT_FOUND) return CAIRN_OK; /* the catalog has no such run */
    if (!code && mend->missing_count)
        snprintf(ret, CAIRN_SRV_STORES_CAUSE_BYTES, "step %" PRIu64 " (%s) is in no store",
                 mend->missing[0].step, mend->missing[0].id.text);
    return code;
}

/* A store that has just not answered is not waited for once more with each run. */
static const struct cairn_srv_tier *find_away(struct cairn_srv *server) {
    for (size_t i = 0; i < server->tiers->count; i++)
        if (server->tiers->tiers[i].unread &&
            server->tiers->tiers[i].away_until_ms > cairn_mono_ms())
            return &server->tiers->tiers[i];
    return NULL;
}

static void note_away(struct cairn_srv *server, const struct cairn_srv_mend *mend) {
    const struct cairn_srv_run_stores *stores = &mend->stores;
    struct cairn_srv_tier *tier = stores->count ? stores->stores[stores->count - 1].tier : NULL;
    if (tier && !cairn_srv_tier_is_main(server, tier))
        tier->away_until_ms = cairn_mono_ms() + CAIRN_SRV_TIER_SHUN_MS;
}

enum cairn_code cairn_srv_compare_stores(struct cairn_srv *server,
                                         struct cairn_store_worker *worker,
                                         const struct cairn_run_name *name,
                                         char ret_cause[CAIRN_SRV_STORES_CAUSE_BYTES],
                                         struct cairn_error *err) {
    struct cairn_srv_mend mend = {.server = server, .objects.name = *name};
    struct cairn_error why = {0};
    ret_cause[0] = '\0';
    if (!any_unread(server)) return CAIRN_OK;
    const struct cairn_srv_tier *away = find_away(server);
    enum cairn_code code = away ? cairn_fail(&why, CAIRN_UNAVAILABLE, "stores: %s", away->name)
                                : cairn_srv_run_stores_open(&mend.stores, server, worker, &why);
    if (code && !away) note_away(server, &mend);
    if (!code) code = cairn_srv_run_stores_list(&mend.stores, &mend.objects, &why);
    if (!code) code = judge(&mend, ret_cause, &why);
    cairn_srv_mend_release(&mend);
    if (code == CAIRN_UNAVAILABLE || code == CAIRN_TIMEOUT || code == CAIRN_FORBIDDEN) {
        snprintf(ret_cause, CAIRN_SRV_STORES_CAUSE_BYTES,
                 "this catalog is older than its stores, and one of them does not answer: %s",
                 why.message);
        return CAIRN_OK;
    }
    if (code && err) *err = why;
    return code;
}

/* ---- all of them ---- */

static enum cairn_code put_read(struct cairn_srv_tx *tx, void *argument, struct cairn_error *err) {
    const struct cairn_srv *server = argument;
    for (size_t i = 0; i < server->tiers->count; i++)
        if (server->tiers->tiers[i].unread)
            CAIRN_TRY(cairn_srv_tier_unread_put(tx, server->tiers->tiers[i].name, false, err));
    return CAIRN_OK;
}

enum cairn_code cairn_srv_compare_stores_end(struct cairn_srv *server, struct cairn_error *err) {
    if (!any_unread(server)) return CAIRN_OK;
    CAIRN_TRY(cairn_srv_catalog_write(server->catalog, put_read, server, err));
    for (size_t i = 0; i < server->tiers->count; i++) {
        if (!server->tiers->tiers[i].unread) continue;
        cairn_log(INFO, "tier.compared", "store=%s", server->tiers->tiers[i].name);
        server->tiers->tiers[i].unread = false;
    }
    return CAIRN_OK;
}
