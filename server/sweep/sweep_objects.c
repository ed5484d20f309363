/* SPDX-License-Identifier: Apache-2.0 */
/* Deletes a dead version's objects; promises in sweep_objects.h. */
#include "server/sweep/sweep_objects.h"

#include <inttypes.h>
#include <stdlib.h>

#include "common/hooks.h"
#include "common/log.h"
#include "server/copies/copies.h"
#include "server/guard/identity.h"
#include "server/http/waiters.h"
#include "server/ledger/layouts.h"
#include "server/ledger/shards.h"
#include "server/ledger/version_lists.h"

#define PAGES_MAX 1000000

struct dead {
    struct srv *server;
    struct cairn_store_worker *worker;
    const char *id;
    struct srv_lease lease;
    struct srv_version version;
    struct srv_copies copies;
    uint64_t *away;
    bool record_aside;         /* a reconcile found that its committed.json is no record */
    bool own_layout;           /* written by this version, and used by no committed one */
    struct srv_not_freed kept; /* what the store refused at earlier sweeps */
    bool is_due;               /* for a sweep of Q30, not only to retry a refusal */
    bool hidden;               /* no listing shows an object of it any more */
    /* S27: a key that the store refuses to delete does not stop the deletion of others. */
    enum cairn_code refused;
    struct cairn_error refusal;
    uint64_t refused_objects, refused_bytes;
    uint64_t deleted_objects, deleted_bytes; /* deleted; old object versions may remain */
    struct srv_left left;
    bool (*spares)(const char *key); /* keys to keep; NULL: none */
};

static enum cairn_code read_dead(struct dead *dead, struct cairn_error *err) {
    SRV_LOOK(look, dead->server->catalog, err);
    CAIRN_TRY(srv_version_get(look.tx, dead->id, &dead->version, err));
    /* may have thawed since the query */
    CAIRN_TRY(srv_tx_run_thawed(look.tx, dead->version.run_id, err));
    CAIRN_TRY(srv_not_freed_get(look.tx, dead->id, &dead->kept, err));
    const struct srv_version *version = &dead->version;
    if (version->copied) CAIRN_TRY(srv_copies_get(look.tx, dead->id, &dead->copies, err));
    struct cairn_version_place place = srv_version_place(version);
    struct cairn_key key;
    cairn_key_committed(&place, &key);
    CAIRN_TRY(srv_aside_there(look.tx, key.text, &dead->record_aside, err));
    if (!version->has_layout || strcmp(version->layout_writer.text, dead->id)) return CAIRN_OK;
    bool named = false;
    CAIRN_TRY(srv_layout_written_by(look.tx, version->run_id, dead->id, &named, err));
    dead->own_layout = !named;
    return CAIRN_OK;
}

/* Q32: freezes the run if a given-up version has a record. */
static enum cairn_code no_record(struct dead *dead, const char *key, struct cairn_error *err) {
    struct cairn_store_request head = {.op = CAIRN_STORE_HEAD, .key = key};
    enum cairn_code code = cairn_store_perform(dead->worker, &head, err);
    if (code == CAIRN_NOT_FOUND) return CAIRN_OK;
    if (code) return code;
    cairn_log(ERROR, "sweep.record_found",
              "version=%s the store says it is committed, the catalog that it was given up",
              dead->id);
    return srv_run_freeze(dead->server, &dead->version.name,
                          "a version that was given up has a committed.json", err);
}

/* HEAD first: in a versioned bucket, deleting an absent key adds a delete marker at each sweep. */
static enum cairn_code delete_key(struct dead *dead, const char *key, struct cairn_error *err) {
    struct cairn_store_request head = {.op = CAIRN_STORE_HEAD, .key = key};
    struct cairn_error why = {0};
    enum cairn_code code = cairn_store_keeps_versions(dead->server->store)
                               ? cairn_store_perform(dead->worker, &head, &why)
                               : CAIRN_OK;
    if (code == CAIRN_NOT_FOUND) return CAIRN_OK;
    if (code) return cairn_fail(err, code, "%s", why.message);
    return cairn_store_delete(dead->worker, key, err);
}

static enum cairn_code delete_records(struct dead *dead, struct cairn_error *err) {
    struct cairn_version_place place = srv_version_place(&dead->version);
    struct cairn_key key;
    cairn_key_committed(&place, &key);
    bool given_up = dead->version.state == CAIRN_STATE_ABORTING ||
                    (dead->version.state == CAIRN_STATE_GONE && !dead->version.committed_ms);
    if (given_up && !dead->record_aside)
        CAIRN_TRY(no_record(dead, key.text, err));
    else
        CAIRN_TRY(delete_key(dead, key.text, err));
    CAIRN_CRASHPOINT("server.sweep.after_record");
    cairn_key_manifest(&place, &key);
    CAIRN_TRY(delete_key(dead, key.text, err));
    CAIRN_CRASHPOINT("server.sweep.after_manifest");
    CAIRN_TRY(srv_lease_still(&dead->lease, err));
    return CAIRN_OK;
}

/* At most CAIRN_STORE_DELETIONS_MAX entries, in one request if the store supports it. */
static enum cairn_code remove_batch(struct dead *dead, const char *prefix,
                                    const struct cairn_store_entry *entries, size_t count,
                                    struct cairn_error *err) {
    struct cairn_error why = {0};
    CAIRN_AUTO_HEAP struct cairn_store_deletion *batch = calloc(count, sizeof(*batch));
    if (!batch) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a sweep");
    for (size_t i = 0; i < count; i++) batch[i].key = entries[i].key;
    enum cairn_code code = cairn_store_delete_many(dead->worker, prefix, batch, count, &why);
    bool each_done = true;
    for (size_t i = 0; i < count; i++) {
        each_done &= batch[i].deleted || batch[i].code;
        dead->deleted_objects += batch[i].deleted;
        dead->deleted_bytes += batch[i].deleted ? entries[i].size_bytes : 0;
        dead->refused_objects += !batch[i].deleted;
        dead->refused_bytes += batch[i].deleted ? 0 : entries[i].size_bytes;
    }
    if (!code || !each_done) return cairn_pass(err, code, &why);
    if (!dead->refused) dead->refusal = why;
    dead->refused = dead->refusal.code;
    return CAIRN_OK;
}

static bool is_spared(const struct dead *dead, const struct cairn_store_entry *entry) {
    return dead->spares && dead->spares(entry->key);
}

static enum cairn_code remove_objects(struct dead *dead, const char *prefix,
                                      const struct cairn_store_listing *listing,
                                      struct cairn_error *err) {
    size_t end = 0;
    for (size_t i = 0; i < listing->count; i = end) {
        end = i + 1;
        if (is_spared(dead, &listing->entries[i])) continue;
        while (end < listing->count && end - i < CAIRN_STORE_DELETIONS_MAX &&
               !is_spared(dead, &listing->entries[end]))
            end++;
        CAIRN_TRY(remove_batch(dead, prefix, listing->entries + i, end - i, err));
    }
    return CAIRN_OK;
}

static enum cairn_code abort_uploads(struct dead *dead, const struct cairn_store_listing *listing,
                                     struct cairn_error *err) {
    for (size_t i = 0; i < listing->count; i++) {
        const struct cairn_store_entry *entry = &listing->entries[i];
        struct cairn_store_request abort_upload = {
            .op = CAIRN_STORE_UPLOAD_ABORT, .key = entry->key, .upload_id_in = entry->upload_id};
        CAIRN_TRY(cairn_store_perform(dead->worker, &abort_upload, err));
    }
    return CAIRN_OK;
}

/* Asserts again what store/ checked: one wrong key in a listing would delete a checkpoint. A store
 * whose listings are wrong ends the sweep. */
static enum cairn_code next_page(struct dead *dead, struct cairn_store_pages *pages,
                                 struct cairn_error *err) {
    struct cairn_error why = {0};
    enum cairn_code code = cairn_store_pages_next(pages, dead->worker, &why);
    for (size_t i = 0; !code && i < pages->listing.count; i++) {
        const char *key = pages->listing.entries[i].key;
        if (!cairn_text_starts(key, pages->list.key))
            code = cairn_fail(&why, CAIRN_STORE, "%s was listed, which is not below %s", key,
                              pages->list.key);
    }
    if (code == CAIRN_STORE)
        cairn_log(ERROR, "sweep.listing_wrong", "version=%s prefix=%s cause=\"%s\"", dead->id,
                  pages->list.key, why.message);
    return cairn_pass(err, code, &why);
}

static enum cairn_code remove_prefix(struct dead *dead, const char *prefix, bool uploads,
                                     struct cairn_error *err) {
    CAIRN_AUTO(store_pages) pages = {
        .list = {.op = uploads ? CAIRN_STORE_UPLOADS : CAIRN_STORE_LIST, .key = prefix}};
    while (!pages.ended && pages.count < PAGES_MAX) {
        CAIRN_TRY(next_page(dead, &pages, err));
        if (uploads) CAIRN_TRY(abort_uploads(dead, &pages.listing, err));
        if (!uploads) CAIRN_TRY(remove_objects(dead, prefix, &pages.listing, err));
    }
    if (pages.ended) return CAIRN_OK;
    return cairn_fail(err, CAIRN_TOO_LARGE, "%s has more than %d pages", prefix, PAGES_MAX);
}

enum cairn_code srv_sweep_end_uploads(struct cairn_store_worker *worker,
                                      const struct cairn_version_place *place,
                                      struct cairn_error *err) {
    struct dead dead = {.worker = worker, .id = place->id.text};
    struct cairn_key prefix;
    if (!cairn_store_profile(worker->store)->lists_uploads) return CAIRN_OK;
    cairn_key_version_prefix(place, &prefix);
    return remove_prefix(&dead, prefix.text, true, err);
}

/* In a versioned bucket, deletes only hide objects. Refused object versions are logged and billed
 * until their lock ends; the copy is gone for readers, and so is its row. */
static enum cairn_code purge_copy(const struct dead *dead, const struct srv_version *version,
                                  const char *prefix, struct cairn_error *err) {
    struct cairn_store_purge all = {.prefix = prefix, .spares = dead->spares};
    CAIRN_TRY(cairn_store_purge(dead->worker, &all, err));
    if (!all.why) return CAIRN_OK;
    cairn_log(WARN, "copy.not_freed",
              "version=%s step=%" PRIu64 " prefix=%s objects=%" PRIu64 " bytes=%" PRIu64
              " cause=\"%s\"",
              dead->id, version->step, prefix, all.left_objects,
              all.uncounted ? version->bytes : all.left_bytes, all.reason);
    return CAIRN_OK;
}

enum cairn_code srv_sweep_copy(struct srv *server, struct cairn_store_worker *worker,
                               const struct srv_version *version, const struct srv_lease *lease,
                               struct cairn_error *err) {
    struct dead dead = {.server = server, .worker = worker, .id = version->id.text};
    struct cairn_version_place place = srv_version_place(version);
    struct cairn_key key;
    if (worker->store == server->store) dead.spares = cairn_key_is_mark;
    cairn_key_committed(&place, &key);
    CAIRN_TRY(srv_lease_still(lease, err));
    CAIRN_TRY(cairn_store_delete(worker, key.text, err));
    CAIRN_CRASHPOINT("server.demote.after_record");
    cairn_key_manifest(&place, &key);
    CAIRN_TRY(cairn_store_delete(worker, key.text, err));
    CAIRN_TRY(srv_lease_still(lease, err));
    cairn_key_version_prefix(&place, &key);
    CAIRN_TRY(remove_prefix(&dead, key.text, false, err));
    CAIRN_TRY(srv_sweep_end_uploads(worker, &place, err));
    if (dead.refused && err) *err = dead.refusal;
    return dead.refused ? dead.refused : purge_copy(&dead, version, key.text, err);
}

/* Skips a store that did not answer for an earlier version of the round. */
static enum cairn_code remove_copy(struct dead *dead, struct srv_tier *tier,
                                   struct cairn_error *err) {
    struct srv *server = dead->server;
    uint64_t bit = UINT64_C(1) << (tier - server->tiers->tiers);
    struct cairn_store_worker *worker = NULL;
    struct cairn_error why = {0};
    if (*dead->away & bit)
        return cairn_fail(err, CAIRN_UNAVAILABLE, "store %s did not answer just now", tier->name);
    enum cairn_code code = srv_tier_borrow(server, tier, &worker, &why);
    if (!code) code = srv_tier_ready(server, tier, worker, &why);
    if (!code) code = srv_sweep_copy(server, worker, &dead->version, &dead->lease, &why);
    srv_tier_return(server, tier, worker);
    if (code == CAIRN_UNAVAILABLE || code == CAIRN_TIMEOUT) *dead->away |= bit;
    return cairn_pass(err, code, &why);
}

/* Copies go before the version's own objects, since their rows say what to delete. A GONE copy is
 * swept with its version, for late writes. */
static enum cairn_code remove_copies(struct dead *dead, struct cairn_error *err) {
    struct srv *server = dead->server;
    for (size_t i = 0; i < dead->copies.count; i++) {
        const char *store = dead->copies.copies[i].store;
        struct srv_tier *tier = srv_tier_find(server, store);
        if (!strcmp(store, SRV_TIER_MAIN)) continue;
        if (!tier)
            return cairn_fail(err, CAIRN_UNAVAILABLE,
                              "it has a copy in %s, which the setting stores does not name", store);
        CAIRN_TRY(remove_copy(dead, tier, err));
    }
    return CAIRN_OK;
}

static enum cairn_code remove_all(struct dead *dead, struct cairn_error *err) {
    struct cairn_version_place place = srv_version_place(&dead->version);
    struct cairn_key key;
    CAIRN_ASSERT(dead->version.state != CAIRN_STATE_OPEN);
    CAIRN_ASSERT(dead->version.state != CAIRN_STATE_COMMITTED); /* or a checkpoint is lost */
    CAIRN_TRY(remove_copies(dead, err));
    CAIRN_TRY(delete_records(dead, err));
    cairn_key_version_prefix(&place, &key);
    CAIRN_TRY(remove_prefix(dead, key.text, false, err));
    CAIRN_TRY(srv_sweep_end_uploads(dead->worker, &place, err));
    if (dead->own_layout) {
        cairn_key_layout(&dead->version.name, dead->version.layout, &dead->version.id, &key);
        CAIRN_TRY(delete_key(dead, key.text, err));
    }
    CAIRN_CRASHPOINT("server.sweep.before_gone");
    if (dead->refused && err) *err = dead->refusal;
    return dead->refused;
}

/* ---- objects that the store keeps ---- */

static void note_left(struct dead *dead, enum cairn_code code, const char *reason, uint64_t objects,
                      uint64_t bytes, bool counted) {
    dead->left.counted = counted && (!dead->left.code || dead->left.counted);
    dead->left.objects += objects;
    dead->left.bytes += bytes;
    if (dead->left.code) return;
    dead->left.code = code;
    (void)cairn_text_copy(dead->left.reason, sizeof(dead->left.reason), reason);
}

/* After the deletes of Q30, frees the object versions of a versioned bucket. If they cannot be
 * listed, the bytes known to the catalog or to this sweep are reported as a lower bound. */
static enum cairn_code purge(struct dead *dead, struct cairn_error *err) {
    struct cairn_version_place place = srv_version_place(&dead->version);
    struct cairn_key below, layout;
    cairn_key_version_prefix(&place, &below);
    struct cairn_store_purge all = {.prefix = below.text};
    CAIRN_TRY(cairn_store_purge(dead->worker, &all, err));
    if (all.why && all.uncounted)
        note_left(dead, all.why, all.reason, dead->deleted_objects,
                  cairn_max_u64(dead->deleted_bytes, dead->version.bytes), false);
    else if (all.why)
        note_left(dead, all.why, all.reason, all.left_objects, all.left_bytes, true);
    if (!dead->own_layout) return CAIRN_OK;
    cairn_key_layout(&dead->version.name, dead->version.layout, &dead->version.id, &layout);
    struct cairn_store_purge one = {.prefix = layout.text, .is_key = true};
    CAIRN_TRY(cairn_store_purge(dead->worker, &one, err));
    if (one.why)
        note_left(dead, one.why, one.reason, one.left_objects, one.left_bytes, !one.uncounted);
    return CAIRN_OK;
}

static bool is_kept(const struct dead *dead, enum cairn_code code) {
    return code && (dead->refused || code == CAIRN_FORBIDDEN || code == CAIRN_UNSUPPORTED);
}

/* A refusal of the store is no failure of the sweep: it is noted and retried after a pause. */
static enum cairn_code remove_what_may_go(struct dead *dead, struct cairn_error *err) {
    struct cairn_error why = {0};
    enum cairn_code code = remove_all(dead, &why);
    dead->hidden = !code;
    if (!code) return purge(dead, err);
    if (!is_kept(dead, code)) return cairn_pass(err, code, &why);
    if (dead->refused)
        note_left(dead, code, why.message, dead->refused_objects, dead->refused_bytes, true);
    else
        note_left(dead, code, why.message, 0, dead->version.bytes, false);
    return CAIRN_OK;
}

static enum cairn_code mark_gone(struct srv_tx *tx, struct dead *dead, struct cairn_error *err) {
    SRV_GET(version, version, srv_version_get(tx, dead->id, &version, err));
    bool first = version.state != CAIRN_STATE_GONE;
    CAIRN_ASSERT(!dead->refused); /* visible objects: not gone */
    if (first) {
        struct srv_move move = {.event = CAIRN_EVENT_SWEPT};
        CAIRN_TRY(srv_version_move(tx, &version, &move, err));
        CAIRN_TRY(srv_shards_drop(tx, dead->id, err));
    }
    return srv_version_set_swept(tx, &version, first, err);
}

SRV_CHANGE(settle_dead, struct dead *dead) {
    CAIRN_TRY(srv_lease_check(tx, &dead->lease, err));
    CAIRN_TRY(srv_lease_drop_in(tx, &dead->lease, err));
    if (dead->hidden && dead->is_due) CAIRN_TRY(mark_gone(tx, dead, err));
    if (dead->left.code) return srv_not_freed_note(tx, dead->id, &dead->left, err);
    return srv_not_freed_drop(tx, dead->id, err);
}

static bool is_due_by(const struct srv_version *version, uint64_t tick) {
    static const uint64_t pauses_ms[] = {0, 10000, 3600000, 86400000, 172800000};
    if (version->state != CAIRN_STATE_GONE)
        return version->state == CAIRN_STATE_DELETING || version->state == CAIRN_STATE_ABORTING;
    return version->sweeps < CAIRN_COUNT(pauses_ms) &&
           version->gone_tick + pauses_ms[version->sweeps] <= tick;
}

/* False if another server has swept it since the query. A version with visible objects waits for
 * its retry; later sweeps of Q30 do not. */
static bool judge_due(struct dead *dead) {
    uint64_t tick = srv_ticks_now(dead->server);
    bool waits = dead->kept.there && dead->kept.next_tick > tick;
    dead->is_due = is_due_by(&dead->version, tick);
    if (waits && dead->version.state != CAIRN_STATE_GONE) dead->is_due = false;
    if (!dead->lease.held && !dead->kept.there) dead->is_due = true;
    return dead->is_due || (dead->kept.there && !waits);
}

/* Logs a result that differs from the previous try's. */
static void tell_end(const struct dead *dead) {
    const struct srv_version *version = &dead->version;
    const struct srv_left *left = &dead->left, *before = &dead->kept.left;
    bool same = left->code == before->code && !strcmp(left->reason, before->reason);
    if (dead->hidden && dead->is_due && version->state != CAIRN_STATE_GONE) {
        cairn_log(INFO, "version.gone", "version=%s step=%" PRIu64 " was=%s", dead->id,
                  version->step, cairn_state_text(version->state));
        srv_waiters_wake_version(dead->server->waiters, &version->id, &version->name);
    }
    if (left->code && !same)
        cairn_log(WARN, "version.not_freed",
                  "version=%s step=%" PRIu64 " objects=%" PRIu64 " bytes=%" PRIu64 " cause=\"%s\"",
                  dead->id, version->step, left->objects, left->bytes, left->reason);
    if (!left->code && dead->kept.there)
        cairn_log(INFO, "version.freed", "version=%s bytes=%" PRIu64 " tries=%" PRIu64, dead->id,
                  before->bytes, dead->kept.tries);
}

enum cairn_code srv_sweep_version(struct srv *server, struct cairn_store_worker *worker,
                                  const char *version_id, uint64_t *away, struct cairn_error *err) {
    struct dead dead = {.server = server, .worker = worker, .id = version_id, .away = away};
    srv_lease_init(&dead.lease, server, "version", version_id);
    struct srv_copy_hold hold = {0};
    bool tiers = srv_tiers_any(server); /* busy until a promotion sees its copy unwanted */
    if (tiers) CAIRN_TRY(srv_copy_hold_take(&hold, server, version_id, err));
    enum cairn_code code = srv_lease_take(&dead.lease, err);
    if (!code) code = read_dead(&dead, err);
    bool due = !code && judge_due(&dead);
    if (due) code = remove_what_may_go(&dead, err);
    if (!code && due) code = srv_catalog_write(server->catalog, settle_dead, &dead, err);
    if (!code && due) {
        dead.lease.dropped = true;
        tell_end(&dead);
    }
    srv_lease_end(&dead.lease);
    srv_copy_hold_end(&hold);
    srv_version_release(&dead.version);
    return code;
}

void srv_sweep_uploads(struct cairn_store_worker *worker, const struct srv_version *version) {
    struct cairn_version_place place = srv_version_place(version);
    struct cairn_error err = {0};
    if (srv_sweep_end_uploads(worker, &place, &err) != CAIRN_OK)
        cairn_log(INFO, "sweep.uploads_left", "version=%s cause=\"%s\"", version->id.text,
                  err.message);
}

/* ---- layouts and tables ---- */

struct unused {
    uint64_t unused_ms;
    struct srv_layout layouts[SRV_LAYOUTS_MAX];
    size_t count;
};

SRV_CHANGE(retire, struct unused *unused) {
    return srv_layouts_retire(tx, unused->unused_ms, unused->layouts, &unused->count, err);
}

SRV_CHANGE(mark_deleted, const struct unused *unused) {
    return srv_layouts_deleted(tx, unused->layouts, unused->count, err);
}

/* Each copy brings its layout along, which stays while any version uses it. */
static enum cairn_code delete_in_tiers(struct srv *server, const char *key,
                                       struct cairn_error *err) {
    for (size_t i = 0; srv_tiers_any(server) && i < server->tiers->count; i++) {
        struct srv_tier *tier = &server->tiers->tiers[i];
        struct cairn_store_worker *worker = NULL;
        if (srv_tier_is_main(server, tier)) continue;
        CAIRN_TRY(srv_tier_borrow(server, tier, &worker, err));
        enum cairn_code code = srv_tier_ready(server, tier, worker, err);
        if (!code) code = cairn_store_delete(worker, key, err);
        srv_tier_return(server, tier, worker);
        if (code) return code;
    }
    return CAIRN_OK;
}

static enum cairn_code delete_layout(struct srv *server, struct cairn_store_worker *worker,
                                     const struct srv_layout *layout, struct cairn_error *err) {
    struct cairn_key key;
    cairn_key_layout(&layout->name, layout->digest, &layout->writer, &key);
    CAIRN_TRY(cairn_store_delete(worker, key.text, err));
    struct cairn_store_purge purge = {.prefix = key.text, .is_key = true};
    CAIRN_TRY(cairn_store_purge(worker, &purge, err));
    if (purge.why)
        cairn_log(INFO, "sweep.layout_left", "key=%s cause=\"%s\"", key.text, purge.reason);
    return delete_in_tiers(server, key.text, err);
}

/* Layouts of a run frozen since the query stay, and are judged again later (Q36). */
static enum cairn_code sweep_layouts(struct srv *server, struct cairn_store_worker *worker,
                                     struct unused *unused, const struct srv_lease *lease,
                                     struct cairn_error *err) {
    size_t deleted = 0;
    CAIRN_TRY(srv_identity_raise(server, worker, err)); /* Q35 */
    for (size_t i = 0; i < unused->count; i++) {
        const struct srv_layout *layout = &unused->layouts[i];
        struct cairn_error why = {0};
        SRV_AUTO(look) look = {0};
        bool taken = false; /* a reconcile found a version that uses it */
        CAIRN_TRY(srv_lease_still(lease, err));
        enum cairn_code code = srv_look_begin(server->catalog, &look, &why);
        if (!code) code = srv_tx_run_thawed(look.tx, layout->run_id, &why);
        if (!code) code = srv_layout_there(look.tx, layout, &taken, &why);
        srv_look_release(&look);
        if (code == CAIRN_CATALOG_BEHIND || (!code && taken)) continue;
        if (code) return cairn_fail(err, code, "%s", why.message);
        CAIRN_TRY(delete_layout(server, worker, layout, err));
        unused->layouts[deleted++] = *layout;
    }
    unused->count = deleted;
    return srv_catalog_write(server->catalog, mark_deleted, unused, err);
}

enum cairn_code srv_sweep_layouts(struct srv *server, struct cairn_store_worker *worker,
                                  uint64_t unused_ms, struct cairn_error *err) {
    CAIRN_AUTO_HEAP struct unused *unused = calloc(1, sizeof(*unused));
    if (!unused) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a sweep");
    CAIRN_RELEASED(srv_lease_end) struct srv_lease lease;
    srv_lease_init(&lease, server, "layouts", "");
    unused->unused_ms = unused_ms;
    CAIRN_TRY(srv_catalog_write(server->catalog, retire, unused, err));
    if (!unused->count) return CAIRN_OK;
    struct cairn_error why = {0};
    enum cairn_code code = srv_lease_take(&lease, &why);
    if (code == CAIRN_BUSY) return CAIRN_OK;
    CAIRN_TRY(cairn_pass(err, code, &why));
    return sweep_layouts(server, worker, unused, &lease, err);
}
