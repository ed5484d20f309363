/* SPDX-License-Identifier: Apache-2.0 */
/* Compares the catalog with its stores, run by run, before any answer about a run or change of it.
 *  Q35  Once in the life of a server, before the first answer about a run and the first sweep in
 *     it, the newest attempt record and every committed.json are compared: the catalog must know
 *     them. Anything newer in the store freezes that run (Q36).
 *  1  The store is read before the catalog, so that concurrent changes never look like a catalog
 *     that is behind. A version with a record in the store and not in its row is recorded first: a
 *     reader may have seen it, so `latest` must not be older.
 *  2  A record of another run, or without a manifest, does not freeze the run; an unreadable
 *     attempt record does, since its number is taken.
 *  3  Other stores are compared only while the catalog marks them unread: the store was adopted or
 *     taken back. The mark goes when every run was compared.
 *  4  A difference there, or an unreachable store, freezes the run; the reconcile that follows
 *     resolves it. After a restored backup, a version moved since is missing in the main store but
 *     not lost, and a copy made since has no row.
 * Two listings of a run's prefix; where keys may not list, a HEAD of the next attempt. */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/hooks.h"
#include "common/log.h"
#include "server/guard/identity.h"
#include "server/guard/records.h"
#include "server/http/waiters.h"
#include "server/ledger/version_lists.h"
#include "server/reads/tier_reads.h"
#include "server/recovery/mend.h"
#include "server/recovery/recovery.h"

#define BUSY_MAX 64
#define CAUSE_BYTES 400

/* A set of hashes of run names. Only runs of the catalog enter, which bounds its size. */
struct srv_compared {
    struct cairn_lock lock;
    struct {
        uint64_t *keys;
        size_t count, capacity;
        uint64_t busy[BUSY_MAX];
        size_t busy_count;
    } locked;
};

enum cairn_code srv_compared_new(struct srv_compared **ret, struct cairn_error *err) {
    struct srv_compared *compared = calloc(1, sizeof(*compared));
    if (!compared) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for compared runs");
    cairn_lock_init(&compared->lock, CAIRN_LOCK_server_compared);
    *ret = compared;
    return CAIRN_OK;
}

void srv_compared_free(struct srv_compared *compared) {
    if (!compared) return;
    cairn_lock_release(&compared->lock);
    free(compared->locked.keys);
    free(compared);
}

/* The slot of a key, or the free slot to insert it; capacity is a power of two. */
static size_t place_of(const uint64_t *keys, size_t capacity, uint64_t key) {
    size_t at = key & (capacity - 1);
    while (keys[at] && keys[at] != key) at = (at + 1) & (capacity - 1);
    return at;
}

/* The caller holds the lock. */
static bool is_known(const struct srv_compared *compared, uint64_t key) {
    size_t capacity = compared->locked.capacity;
    return capacity && compared->locked.keys[place_of(compared->locked.keys, capacity, key)] == key;
}

/* The caller holds the lock. Without memory the run is merely compared again. */
static void add_key(struct srv_compared *compared, uint64_t key) {
    size_t capacity = compared->locked.capacity;
    if (2 * compared->locked.count >= capacity) {
        size_t wanted = capacity ? 2 * capacity : 256;
        uint64_t *keys = calloc(wanted, sizeof(*keys));
        if (!keys) return;
        for (size_t i = 0; i < capacity; i++) {
            uint64_t old = compared->locked.keys[i];
            if (old) keys[place_of(keys, wanted, old)] = old;
        }
        free(compared->locked.keys);
        compared->locked.keys = keys;
        compared->locked.capacity = capacity = wanted;
    }
    CAIRN_ASSERT(compared->locked.count < capacity); /* a free slot must remain */
    size_t at = place_of(compared->locked.keys, capacity, key);
    compared->locked.count += compared->locked.keys[at] == 0;
    compared->locked.keys[at] = key;
}

/* 0 marks a free slot. */
static uint64_t key_of(const struct cairn_run_name *name) {
    uint64_t key = srv_key_of_run(name);
    return key ? key : 1;
}

/* ---- a run in the other stores ---- */

static bool any_unread(const struct srv *server) {
    for (size_t i = 0; srv_tiers_any(server) && i < server->tiers->count; i++)
        if (server->tiers->tiers[i].unread) return true;
    return false;
}

static enum cairn_code judge_unknown_there(const struct srv_mend *mend,
                                           struct srv_mend_version *one, char ret[CAUSE_BYTES],
                                           struct cairn_error *err) {
    struct cairn_key key;
    cairn_key_committed(&one->place, &key);
    bool aside = false;
    SRV_LOOK(look, mend->server->catalog, err);
    CAIRN_TRY(srv_aside_there(look.tx, key.text, &aside, err));
    srv_look_release(&look);
    if (aside) return CAIRN_OK;
    enum cairn_code code = srv_mend_look_at_copies(mend, one, err);
    if (!code && (one->verified || one->damaged || one->newer))
        snprintf(ret, CAUSE_BYTES,
                 "step %" PRIu64 " (%s) is committed in a store, the catalog does not know of that",
                 one->place.step, one->place.id.text);
    cairn_manifest_release(&one->manifest);
    return code;
}

static enum cairn_code judge_one(const struct srv_mend *mend, const struct srv_seen *seen,
                                 char ret[CAUSE_BYTES], struct cairn_error *err) {
    struct srv_mend_version one = {.place = {mend->objects.name, seen->step, seen->id}};
    bool differs = false;
    CAIRN_TRY(srv_mend_is_known(mend, &seen->id, &one.known, err));
    if (!one.known) return judge_unknown_there(mend, &one, ret, err);
    CAIRN_TRY(srv_mend_copies_differ(mend, &one, &differs, err));
    if (differs)
        snprintf(ret, CAUSE_BYTES,
                 "step %" PRIu64 " (%s) lies in other stores than the catalog says", seen->step,
                 seen->id.text);
    return CAIRN_OK;
}

static enum cairn_code judge_there(struct srv_mend *mend, char ret[CAUSE_BYTES],
                                   struct cairn_error *err) {
    for (size_t i = 0; i < mend->objects.version_count && !ret[0]; i++)
        CAIRN_TRY(judge_one(mend, &mend->objects.versions[i], ret, err));
    if (ret[0]) return CAIRN_OK;
    enum cairn_code code = srv_mend_find_missing(mend, err);
    if (code == CAIRN_NOT_FOUND) return CAIRN_OK;
    if (!code && mend->missing_count)
        snprintf(ret, CAUSE_BYTES, "step %" PRIu64 " (%s) is in no store", mend->missing[0].step,
                 mend->missing[0].id.text);
    return code;
}

/* An unreachable store is not retried for each run. */
static const struct srv_tier *find_away(struct srv *server) {
    for (size_t i = 0; i < server->tiers->count; i++)
        if (server->tiers->tiers[i].unread &&
            server->tiers->tiers[i].away_until_ms > cairn_mono_ms())
            return &server->tiers->tiers[i];
    return NULL;
}

static void note_away(struct srv *server, const struct srv_mend *mend) {
    const struct srv_run_stores *stores = &mend->stores;
    struct srv_tier *tier = stores->count ? stores->stores[stores->count - 1].tier : NULL;
    if (tier && !srv_tier_is_main(server, tier))
        tier->away_until_ms = cairn_mono_ms() + SRV_TIER_SHUN_MS;
}

/* ret_cause "": no difference, or nothing to compare. */
static enum cairn_code compare_stores(struct srv *server, struct cairn_store_worker *worker,
                                      const struct cairn_run_name *name,
                                      char ret_cause[CAUSE_BYTES], struct cairn_error *err) {
    struct srv_mend mend = {.server = server, .objects.name = *name};
    struct cairn_error why = {0};
    ret_cause[0] = '\0';
    if (!any_unread(server)) return CAIRN_OK;
    const struct srv_tier *away = find_away(server);
    enum cairn_code code = away ? cairn_fail(&why, CAIRN_UNAVAILABLE, "stores: %s", away->name)
                                : srv_run_stores_open(&mend.stores, server, worker, &why);
    if (code && !away) note_away(server, &mend);
    if (!code) code = srv_run_stores_list(&mend.stores, &mend.objects, &why);
    if (!code) code = judge_there(&mend, ret_cause, &why);
    srv_mend_release(&mend);
    if (code == CAIRN_UNAVAILABLE || code == CAIRN_TIMEOUT || code == CAIRN_FORBIDDEN) {
        snprintf(ret_cause, CAUSE_BYTES,
                 "this catalog is older than its stores, and one of them does not answer: %s",
                 why.message);
        return CAIRN_OK;
    }
    return cairn_pass(err, code, &why);
}

SRV_CHANGE(put_read, const struct srv *server) {
    for (size_t i = 0; i < server->tiers->count; i++)
        if (server->tiers->tiers[i].unread)
            CAIRN_TRY(srv_tier_unread_put(tx, server->tiers->tiers[i].name, false, err));
    return CAIRN_OK;
}

static enum cairn_code end_stores(struct srv *server, struct cairn_error *err) {
    if (!any_unread(server)) return CAIRN_OK;
    CAIRN_TRY(srv_catalog_write(server->catalog, put_read, server, err));
    for (size_t i = 0; i < server->tiers->count; i++) {
        if (!server->tiers->tiers[i].unread) continue;
        cairn_log(INFO, "tier.compared", "store=%s", server->tiers->tiers[i].name);
        server->tiers->tiers[i].unread = false;
    }
    return CAIRN_OK;
}

/* ---- one run ---- */

struct comparison {
    struct srv *server;
    struct cairn_store_worker *worker;
    struct srv_run_objects objects;
    uint64_t newest; /* newest attempt in the store; 0: none */
    bool readable;   /* the attempt record is of this run */
    char nonce[CAIRN_NONCE_TEXT_BYTES], unreadable[300];
    bool has_run;
    char cause[CAUSE_BYTES];
    struct srv_seen *unknown; /* committed in the store, not in the catalog; owned */
    size_t unknown_count;
    bool unrecorded; /* a version with a record in the store is not recorded in the catalog */
};

static enum cairn_code look_at_attempts(struct comparison *at, struct cairn_error *err) {
    if (!at->newest) return CAIRN_OK;
    CAIRN_AUTO(attempt_record) record = {0};
    struct cairn_error why = {0};
    enum cairn_code code =
        srv_attempt_read(at->worker, &at->objects.name, at->newest, &record, &why);
    at->readable = code == CAIRN_OK;
    (void)cairn_text_copy(at->nonce, sizeof(at->nonce), record.nonce);
    (void)cairn_text_copy(at->unreadable, sizeof(at->unreadable), why.message);
    if (!code || code == CAIRN_CORRUPT || code == CAIRN_UNSUPPORTED) return CAIRN_OK;
    return cairn_pass(err, code, &why);
}

/* Without the right to list: one HEAD of the attempt after the newest known one. */
static enum cairn_code probe(struct comparison *at, uint64_t known, struct cairn_error *err) {
    struct cairn_key key;
    cairn_key_attempt(&at->objects.name, known + 1, &key);
    struct cairn_store_request head = {.op = CAIRN_STORE_HEAD, .key = key.text};
    enum cairn_code code = cairn_store_perform(at->worker, &head, err);
    if (code == CAIRN_NOT_FOUND || code == CAIRN_FORBIDDEN) return CAIRN_OK;
    if (!code) at->newest = known + 1;
    return code;
}

static enum cairn_code compare_attempts(struct srv_tx *tx, struct comparison *at,
                                        const struct srv_run *run, struct cairn_error *err) {
    if (!at->newest || at->newest < run->attempt) return CAIRN_OK;
    if (at->newest > run->attempt) {
        snprintf(at->cause, sizeof(at->cause),
                 "the store has attempt %" PRIu64 ", the catalog knows %" PRIu64, at->newest,
                 run->attempt);
        return CAIRN_OK;
    }
    struct cairn_key key;
    bool aside = false;
    cairn_key_attempt(&at->objects.name, at->newest, &key);
    CAIRN_TRY(srv_aside_there(tx, key.text, &aside, err));
    if (aside) return CAIRN_OK;
    if (!at->readable)
        snprintf(at->cause, sizeof(at->cause),
                 "the record of the newest attempt cannot be read: %s", at->unreadable);
    else if (strcmp(at->nonce, run->nonce))
        snprintf(at->cause, sizeof(at->cause),
                 "attempt %" PRIu64 " of the store has another nonce than the catalog's",
                 at->newest);
    return CAIRN_OK;
}

/* A version that was ever committed here is known; one with a record in the store and not in its
 * row is shown once its row has it. */
static enum cairn_code is_unknown(struct srv_tx *tx, struct comparison *at,
                                  const struct srv_seen *seen, bool *ret, struct cairn_error *err) {
    bool known = false, shown = false, aside = false;
    struct cairn_key key;
    struct cairn_version_place place = {at->objects.name, seen->step, seen->id};
    *ret = false;
    CAIRN_TRY(srv_version_was_committed(tx, seen->id.text, &known, &shown, err));
    if (known) at->unrecorded |= !shown;
    if (known) return CAIRN_OK;
    cairn_key_committed(&place, &key);
    CAIRN_TRY(srv_aside_there(tx, key.text, &aside, err));
    *ret = !aside;
    return CAIRN_OK;
}

static enum cairn_code look_in_catalog(struct comparison *at, struct cairn_error *err) {
    SRV_LOOK(look, at->server->catalog, err);
    SRV_AUTO(run) run = {0};
    enum cairn_code code = srv_run_get(look.tx, &at->objects.name, &run, err);
    if (code && code != CAIRN_NOT_FOUND) return code;
    at->has_run = !code;
    CAIRN_TRY(compare_attempts(look.tx, at, &run, err));
    for (size_t i = 0; i < at->objects.version_count; i++) {
        bool unknown = false;
        CAIRN_TRY(is_unknown(look.tx, at, &at->objects.versions[i], &unknown, err));
        CAIRN_ASSERT(at->unknown_count <= i);
        if (unknown) at->unknown[at->unknown_count++] = at->objects.versions[i];
    }
    return CAIRN_OK;
}

/* Finds the first unknown version that the store holds committed; a record alone is remains. */
static enum cairn_code judge_unknown(struct comparison *at, struct cairn_error *err) {
    for (size_t i = 0; i < at->unknown_count && !at->cause[0]; i++) {
        const struct srv_seen *seen = &at->unknown[i];
        struct cairn_version_place place = {at->objects.name, seen->step, seen->id};
        struct cairn_record record;
        struct cairn_error why = {0};
        CAIRN_AUTO(manifest) manifest = {0};
        enum cairn_code code = srv_committed_read(at->worker, &place, &record, &manifest, &why);
        if (!code)
            snprintf(at->cause, sizeof(at->cause),
                     "step %" PRIu64 " (%s) is committed in the store, the catalog does not know "
                     "of that",
                     seen->step, seen->id.text);
        else if (code == CAIRN_UNSUPPORTED)
            snprintf(at->cause, sizeof(at->cause), "step %" PRIu64 " (%s): %s", seen->step,
                     seen->id.text, why.message);
        else if (code != CAIRN_NOT_FOUND && code != CAIRN_CORRUPT)
            return cairn_pass(err, code, &why);
    }
    return CAIRN_OK;
}

static enum cairn_code list_run(struct comparison *at, struct cairn_error *err) {
    struct srv_run_objects *objects = &at->objects;
    SRV_AUTO(run) run = {0};
    SRV_LOOK(look, at->server->catalog, err);
    enum cairn_code code = srv_run_get(look.tx, &objects->name, &run, err);
    if (code && code != CAIRN_NOT_FOUND) return code;
    at->has_run = !code;
    objects->trash_changes = 0;
    if (at->has_run)
        CAIRN_TRY(
            srv_versions_trash_changes(look.tx, &objects->name, &objects->trash_changes, err));
    srv_look_release(&look);
    /* Unknown names are compared, too, for one short listing each. */
    CAIRN_TRY(srv_run_objects_list(objects, at->worker, true, err));
    if (!objects->listed) return probe(at, run.attempt, err);
    if (objects->attempt_count) at->newest = objects->attempts[objects->attempt_count - 1];
    if (!at->newest && !at->has_run) return CAIRN_OK;
    objects->attempt_count = 0;
    CAIRN_TRY(srv_run_objects_list(objects, at->worker, false, err));
    if (objects->attempt_count) at->newest = objects->attempts[objects->attempt_count - 1];
    return CAIRN_OK;
}

static enum cairn_code compare_run(struct comparison *at, struct cairn_error *err) {
    CAIRN_TRY(list_run(at, err));
    CAIRN_TRY(look_at_attempts(at, err));
    at->unknown = calloc(at->objects.version_count + 1, sizeof(*at->unknown));
    if (!at->unknown) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory to compare a run");
    CAIRN_TRY(look_in_catalog(at, err));
    CAIRN_TRY(judge_unknown(at, err));
    if (at->cause[0]) return srv_run_freeze(at->server, &at->objects.name, at->cause, err);
    CAIRN_TRY(compare_stores(at->server, at->worker, &at->objects.name, at->cause, err));
    if (at->cause[0]) return srv_run_freeze_asked(at->server, &at->objects.name, at->cause, err);
    CAIRN_TRY(srv_marks_write_missing(at->server, at->worker, &at->objects, err));
    CAIRN_TRY(srv_marks_follow(at->server, &at->objects, err));
    if (at->has_run)
        CAIRN_TRY(srv_attempt_records_write(at->server, at->worker, &at->objects.name, err));
    /* A reader may have seen the version: no older answer may follow (Q24, P7). */
    return at->unrecorded ? srv_record_write_missing(at->server, at->worker, &at->objects.name, err)
                          : CAIRN_OK;
}

/* ---- one thread a run ---- */

static bool begin_run(struct srv_compared *compared, uint64_t key, bool *ret_busy) {
    CAIRN_HOLD(&compared->lock);
    *ret_busy = false;
    if (is_known(compared, key)) return false;
    for (size_t i = 0; i < compared->locked.busy_count; i++)
        *ret_busy |= compared->locked.busy[i] == key;
    if (compared->locked.busy_count == BUSY_MAX) *ret_busy = true;
    if (*ret_busy) return false;
    compared->locked.busy[compared->locked.busy_count++] = key;
    return true;
}

static void end_run(struct srv_compared *compared, uint64_t key, bool keep) {
    CAIRN_HOLD(&compared->lock);
    for (size_t i = 0; i < compared->locked.busy_count; i++) {
        if (compared->locked.busy[i] != key) continue;
        compared->locked.busy[i] = compared->locked.busy[--compared->locked.busy_count];
        break;
    }
    if (keep) add_key(compared, key);
}

enum cairn_code srv_compare(struct srv *server, struct cairn_store_worker *worker,
                            const struct cairn_run_name *name, bool *ret_busy,
                            struct cairn_error *err) {
    uint64_t key = key_of(name);
    *ret_busy = false;
    if (!CAIRN_RULE(Q35) || !begin_run(server->compared, key, ret_busy)) return CAIRN_OK;
    struct comparison at = {.server = server, .worker = worker, .objects.name = *name};
    enum cairn_code code = compare_run(&at, err);
    /* From now on a frozen run has a row that says so. */
    end_run(server->compared, key, (!code && at.has_run) || code == CAIRN_CATALOG_BEHIND);
    srv_run_objects_release(&at.objects);
    free(at.unknown);
    srv_waiters_wake_run(server->waiters, name);
    return code;
}

bool srv_is_compared(struct srv *server, const struct cairn_run_name *name) {
    uint64_t key = key_of(name);
    CAIRN_HOLD(&server->compared->lock);
    return is_known(server->compared, key) || !CAIRN_RULE(Q35);
}

/* ---- all runs ---- */

static enum cairn_code compare_names(struct srv *server, struct cairn_store_worker *worker,
                                     bool *ret_busy, struct cairn_error *err) {
    SRV_AUTO(run_names) names = {0};
    SRV_AUTO(look) look = {0};
    enum cairn_code code = srv_look_begin(server->catalog, &look, err);
    if (!code) code = srv_runs_all(look.tx, &names, err);
    srv_look_release(&look);
    for (size_t i = 0; i < names.count && !code; i++) {
        bool busy = false;
        struct cairn_error why = {0};
        code = srv_compare(server, worker, &names.names[i], &busy, &why);
        if (code == CAIRN_CATALOG_BEHIND && !server->frozen) code = CAIRN_OK;
        *ret_busy |= busy;
        if (code && err) *err = why;
    }
    return code;
}

enum cairn_code srv_compare_all(struct srv *server, struct cairn_store_worker *worker,
                                bool *ret_busy, struct cairn_error *err) {
    *ret_busy = false;
    uint64_t runs = 0;
    size_t known = 0;
    SRV_LOOK(look, server->catalog, err);
    CAIRN_TRY(srv_runs_count(look.tx, &runs, err));
    srv_look_release(&look);
    {
        CAIRN_HOLD(&server->compared->lock);
        known = server->compared->locked.count;
    }
    if (known < runs) CAIRN_TRY(compare_names(server, worker, ret_busy, err));
    return *ret_busy ? CAIRN_OK : end_stores(server, err);
}
