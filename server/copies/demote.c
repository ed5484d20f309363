/* SPDX-License-Identifier: Apache-2.0 */
/* Removes one copy of a version while the version stays.
 *  1  A copy becomes REMOVING in a transaction that sees another copy WHOLE and not known to be
 *     damaged. Before it, the other copy is checked in its store: identity, documents, and size of
 *     each object. The last copy is never removed.
 *  2  If all other copies are found damaged before the deletion begins, the copy becomes WHOLE
 *     again, unless its record was deleted already.
 *  Q29  A version keeps all its copies while it is read, or while the newest attempt resumed from
 *     it and has committed nothing since.
 *  Q30  The record is deleted first, then the manifest, the rest of the version's own prefix, and
 *     open uploads; then the row becomes GONE. Marks stay: they belong to the version. */

#include <inttypes.h>

#include "common/hooks.h"
#include "common/log.h"
#include "server/copies/copies.h"
#include "server/guard/identity.h"
#include "server/http/waiters.h"
#include "server/metrics.h"
#include "server/sweep/sweep_objects.h"

struct asking {
    const struct srv_demote *demote;
    struct srv_version version;
    struct srv_copies copies;
    const struct srv_copy *copy;
    struct srv_where others;
};

static enum cairn_code judge_holders(struct srv_tx *tx, const struct srv_version *version,
                                     struct cairn_error *err) {
    bool leased = false, needed = false;
    CAIRN_TRY(srv_version_leased(tx, version->id.text, &leased, err));
    CAIRN_TRY(srv_version_needed(tx, version, &needed, err));
    if (leased)
        return cairn_fail(err, CAIRN_IN_USE,
                          "%s is being read: its leases end by themselves (cairn lease ls)",
                          version->id.text);
    if (needed)
        return cairn_fail(err, CAIRN_IN_USE,
                          "the newest attempt resumed from %s and has committed nothing since",
                          version->id.text);
    return CAIRN_OK;
}

/* 1. Two damaged copies together may still be complete, so neither counts as the other copy. */
static enum cairn_code judge_others(const struct asking *asking, struct cairn_error *err) {
    const struct srv_copies *copies = &asking->copies;
    const struct srv_version *version = &asking->version;
    const struct srv_copy *damaged = NULL;
    for (size_t i = 0; i < copies->count; i++) {
        const struct srv_copy *other = &copies->copies[i];
        if (other == asking->copy || other->state != SRV_COPY_WHOLE) continue;
        if (srv_copy_sound(other)) return CAIRN_OK;
        damaged = other;
    }
    if (!damaged)
        return cairn_fail(err, CAIRN_IN_USE, "the copy of %s in %s is its last one",
                          version->id.text, asking->copy->store);
    char found[32];
    cairn_time_text(damaged->damaged_ms, false, found);
    return cairn_fail(err, CAIRN_IN_USE,
                      "no copy of %s beside the one in %s is without known damage: in %s %" PRIu64
                      " of its objects %s found damaged or missing (%s). Mend it first: cairn "
                      "verify %s/%s@%s --repair",
                      version->id.text, asking->copy->store, damaged->store, damaged->damaged,
                      damaged->damaged == 1 ? "was" : "were", found, version->name.project,
                      version->name.run, version->id.text);
}

static enum cairn_code judge_removal(struct srv_tx *tx, struct asking *asking,
                                     struct cairn_error *err) {
    const struct srv_demote *demote = asking->demote;
    struct srv_version *version = &asking->version;
    srv_version_release(version);
    CAIRN_TRY(srv_version_get(tx, demote->version, version, err));
    CAIRN_TRY(srv_version_there(version, err));
    CAIRN_TRY(srv_tx_run_thawed(tx, version->run_id, err));
    if (version->state != CAIRN_STATE_COMMITTED || !version->recorded)
        return cairn_fail(err, CAIRN_NOT_COMMITTED, "%s is %s", version->id.text,
                          cairn_state_text(srv_version_shown(version)));
    CAIRN_TRY(srv_copies_get(tx, demote->version, &asking->copies, err));
    asking->copy = srv_copies_find(&asking->copies, demote->store);
    if (!asking->copy || asking->copy->state == SRV_COPY_GONE)
        return cairn_fail(err, CAIRN_NOT_FOUND, "%s has no copy in %s", version->id.text,
                          demote->store);
    if (asking->copy->state == SRV_COPY_REMOVING) return CAIRN_OK;
    bool main = !strcmp(demote->store, SRV_TIER_MAIN);
    if (demote->by_policy && !main && !asking->copy->by_policy)
        return cairn_fail(err, CAIRN_IN_USE, "the copy of %s in %s was made by hand",
                          version->id.text, demote->store);
    bool whole = asking->copy->state == SRV_COPY_WHOLE;
    if (whole) CAIRN_TRY(judge_others(asking, err));
    return whole ? judge_holders(tx, version, err) : CAIRN_OK;
}

SRV_CHANGE(set_removing, struct asking *asking) {
    CAIRN_TRY(judge_removal(tx, asking, err));
    if (asking->copy->state == SRV_COPY_REMOVING) return CAIRN_OK;
    bool seen = false; /* a checked copy is still whole */
    for (size_t i = 0; i < asking->others.count; i++) {
        const struct srv_copy *other =
            srv_copies_find(&asking->copies, asking->others.tiers[i]->name);
        seen |= other && srv_copy_sound(other);
    }
    if (asking->copy->state == SRV_COPY_WHOLE && !seen)
        return cairn_fail(err, CAIRN_IN_USE, "the other copy of %s has just changed: ask again",
                          asking->demote->version);
    return srv_copy_turn(tx, asking->demote->server, asking->demote->version, asking->copy,
                         SRV_COPY_REMOVING, err);
}

static enum cairn_code look_at_other(const struct asking *asking, struct srv_tier *tier,
                                     struct cairn_error *err) {
    struct srv *server = asking->demote->server;
    struct cairn_store_worker *worker = NULL;
    CAIRN_AUTO(committed) committed = srv_committed_of(&asking->version);
    CAIRN_TRY(srv_tier_borrow(server, tier, &worker, err));
    enum cairn_code code = srv_tier_ready(server, tier, worker, err);
    struct cairn_document_source source = cairn_store_documents(worker, NULL);
    unsigned documents =
        CAIRN_DOCUMENT_BIT(RECORD) | CAIRN_DOCUMENT_BIT(MANIFEST) | CAIRN_DOCUMENT_BIT(CHECKSUMS);
    if (!code) code = cairn_committed_load(&committed, &source, documents, err);
    if (!code) code = srv_copy_look(worker, &committed, ~0u, err);
    srv_tier_return(server, tier, worker);
    return code ? cairn_within(err, code, "in %s", tier->name) : CAIRN_OK;
}

/* 1. Reduces asking->others to the first copy that passes the check. */
static enum cairn_code find_other(struct asking *asking, struct cairn_error *err) {
    struct srv *server = asking->demote->server;
    struct cairn_error why = {0};
    CAIRN_TRY(
        srv_where_of(server, asking->demote->version, asking->demote->store, &asking->others, err));
    enum cairn_code code =
        cairn_fail(&why, CAIRN_IN_USE, "the setting stores names none of their stores");
    for (size_t i = 0; i < asking->others.count; i++) {
        if (asking->others.damaged[i]) continue; /* judge_others found a sound one */
        code = look_at_other(asking, asking->others.tiers[i], &why);
        if (code) continue;
        asking->others.tiers[0] = asking->others.tiers[i];
        asking->others.count = 1;
        return CAIRN_OK;
    }
    return cairn_fail(err, code == CAIRN_CORRUPT ? CAIRN_IN_USE : code,
                      "no other copy of %s was found whole: %s", asking->demote->version,
                      why.message);
}

static enum cairn_code ask(struct asking *asking, struct cairn_error *err) {
    struct srv_catalog *catalog = asking->demote->server->catalog;
    {
        SRV_LOOK(look, catalog, err);
        CAIRN_TRY(judge_removal(look.tx, asking, err));
    }
    if (asking->copy->state == SRV_COPY_WHOLE) CAIRN_TRY(find_other(asking, err));
    CAIRN_CRASHPOINT("server.demote.before_mark");
    return srv_catalog_write(catalog, set_removing, asking, err);
}

enum cairn_code srv_demote_ask(const struct srv_demote *demote, struct cairn_error *err) {
    struct asking asking = {.demote = demote};
    if (!srv_tier_find(demote->server, demote->store))
        return cairn_fail(err, CAIRN_NOT_FOUND, "the setting stores names no store %s",
                          demote->store);
    enum cairn_code code = ask(&asking, err);
    srv_version_release(&asking.version);
    return code;
}

/* ---- deleting ---- */

struct removing {
    struct srv *server;
    const char *store;
    struct srv_copy_hold hold;
    struct srv_version version;
    struct srv_copies copies;
    const struct srv_copy *copy;
    bool kept;
};

static enum cairn_code read_removing(struct srv_tx *tx, struct removing *removing,
                                     struct cairn_error *err) {
    const char *id = removing->hold.version;
    CAIRN_TRY(srv_lease_check(tx, &removing->hold.lease, err));
    srv_version_release(&removing->version);
    CAIRN_TRY(srv_version_get(tx, id, &removing->version, err));
    CAIRN_TRY(srv_tx_run_thawed(tx, removing->version.run_id, err));
    CAIRN_TRY(srv_copies_get(tx, id, &removing->copies, err));
    removing->copy = srv_copies_find(&removing->copies, removing->store);
    return CAIRN_OK;
}

SRV_CHANGE(set_gone, struct removing *removing) {
    CAIRN_TRY(read_removing(tx, removing, err));
    CAIRN_ASSERT(removing->copy->state == SRV_COPY_REMOVING); /* only the holder changes it */
    return srv_copy_turn(tx, removing->server, removing->hold.version, removing->copy,
                         SRV_COPY_GONE, err);
}

static bool is_needed(const struct removing *removing) {
    bool sound = false;
    for (size_t i = 0; i < removing->copies.count; i++)
        sound |= srv_copy_sound(&removing->copies.copies[i]);
    return removing->version.state == CAIRN_STATE_COMMITTED && !sound;
}

SRV_CHANGE(set_whole, struct removing *removing) {
    removing->kept = false;
    CAIRN_TRY(read_removing(tx, removing, err));
    bool still = removing->copy && removing->copy->state == SRV_COPY_REMOVING;
    if (!still || !is_needed(removing)) return CAIRN_OK;
    removing->kept = true;
    return srv_copy_turn(tx, removing->server, removing->hold.version, removing->copy,
                         SRV_COPY_WHOLE, err);
}

/* 2. While the copy's record exists, none of its objects was deleted (Q30). */
static enum cairn_code take_removal_back(struct removing *removing,
                                         struct cairn_store_worker *worker,
                                         struct cairn_error *err) {
    struct srv *server = removing->server;
    struct cairn_version_place place = srv_version_place(&removing->version);
    struct cairn_key key;
    cairn_key_committed(&place, &key);
    struct cairn_store_request head = {.op = CAIRN_STORE_HEAD, .key = key.text};
    struct cairn_error why = {0};
    enum cairn_code code = cairn_store_perform(worker, &head, &why);
    if (code == CAIRN_NOT_FOUND) return CAIRN_OK; /* the deletion has begun */
    CAIRN_TRY(cairn_pass(err, code, &why));
    CAIRN_TRY(srv_catalog_write(server->catalog, set_whole, removing, err));
    if (removing->kept)
        cairn_log(WARN, "copy.removal_taken_back", "version=%s step=%" PRIu64 " store=%s",
                  removing->hold.version, removing->version.step, removing->store);
    return CAIRN_OK;
}

static enum cairn_code remove_copy(struct removing *removing, struct srv_tier *tier,
                                   struct cairn_store_worker *own, struct cairn_error *err) {
    struct srv *server = removing->server;
    struct cairn_store_worker *worker = NULL;
    {
        SRV_LOOK(look, server->catalog, err);
        CAIRN_TRY(read_removing(look.tx, removing, err));
    }
    if (!removing->copy || removing->copy->state != SRV_COPY_REMOVING) return CAIRN_OK;
    /* Checks again: other copies may have been lost since the row became REMOVING. */
    bool last = !srv_copies_whole(&removing->copies);
    if (last && removing->version.state == CAIRN_STATE_COMMITTED)
        return cairn_fail(err, CAIRN_IN_USE, "the copy of %s in %s is its last one",
                          removing->hold.version, removing->store);
    CAIRN_TRY(srv_identity_compare(server, own, err)); /* Q35 */
    CAIRN_TRY(srv_tier_borrow(server, tier, &worker, err));
    enum cairn_code code = srv_tier_ready(server, tier, worker, err);
    srv_copy_asked(server, tier->name, code);
    if (!code && is_needed(removing)) code = take_removal_back(removing, worker, err);
    if (!code && !removing->kept)
        code = srv_sweep_copy(server, worker, &removing->version, &removing->hold.lease, err);
    srv_tier_return(server, tier, worker);
    if (code || removing->kept) return code;
    CAIRN_CRASHPOINT("server.demote.before_gone");
    return srv_catalog_write(server->catalog, set_gone, removing, err);
}

enum cairn_code srv_demote_run(struct srv *server, struct cairn_store_worker *worker,
                               const char *version, const char *store, struct cairn_error *err) {
    struct removing removing = {.server = server, .store = store};
    struct srv_tier *tier = srv_tier_find(server, store);
    if (!tier)
        return cairn_fail(err, CAIRN_NOT_FOUND, "the setting stores names no store %s", store);
    CAIRN_TRY(srv_copy_hold_take(&removing.hold, server, version, err));
    enum cairn_code code = remove_copy(&removing, tier, worker, err);
    srv_copy_failed(server, version, store, code != CAIRN_OK);
    srv_copy_hold_end(&removing.hold);
    if (!code && !removing.kept) {
        cairn_metrics_add(server->metrics, SRV_METRIC(copies_removed_total), 1);
        cairn_log(INFO, "copy.removed", "version=%s step=%" PRIu64 " store=%s", version,
                  removing.version.step, store);
        srv_waiters_wake_version(server->waiters, &removing.version.id, &removing.version.name);
    }
    srv_version_release(&removing.version);
    return code;
}
