/* SPDX-License-Identifier: Apache-2.0 */
/* Reads and verifies one run in all stores and imports it into the catalog, for a reconcile, which
 * ends the freeze of a run, and for a reindex. The stores alone suffice to restore, and therefore
 * to repair a catalog run by run while the other runs continue.
 *  1  Imported are numbers, nonces and jobs of attempts; each version that is whole in some store
 *     (Q37); what newer attempts superseded or revived. A version that claims to be committed and
 *     does not verify is set aside, by key and cause; one of a newer release never is.
 *  2  Nothing is deleted: a version that the catalog calls committed, without a record in any store
 *     and a manifest in main, goes into the trash. If another store has it, the rows of its copies
 *     are corrected instead.
 *  3  The generation is raised first, then `reconcile-wait` passes, then the stores are read (Q35),
 *     so that requests of other servers have ended. One transaction imports everything and ends the
 *     freeze; rows of copies of known versions are corrected before it, under their hold.
 *  4  While a configured store does not answer, the run stays frozen.
 *  5  A version moves by api/lifecycle.def; one that a store calls committed and this catalog open
 *     or given up becomes committed. An attempt's record that is missing or damaged in one store is
 *     read from the next.
 *  6  A whole copy counts whatever its row says, so the copy is read. A copy that is absent
 *     although its row says whole becomes gone if the version lies elsewhere, also in the main
 *     store.
 *  7  A damaged copy with a record counts as present and is reported by name: readers fall back,
 *     and `cairn verify --repair` repairs it.
 *  8  Objects without a record in a store of copies are an unfinished copy, which the sweep
 *     continues. In the main store they stay as they are.
 * 16 runs a round. */

#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include "common/log.h"
#include "server/copies/copies.h"
#include "server/guard/identity.h"
#include "server/guard/records.h"
#include "server/http/waiters.h"
#include "server/ledger/attempts.h"
#include "server/ledger/layouts.h"
#include "server/ledger/policies.h"
#include "server/ledger/shards.h"
#include "server/ledger/version_lists.h"
#include "server/recovery/mend.h"
#include "server/recovery/recovery.h"

#define MISSING_MAX 1000000
#define RECOUNT_MS 60000
#define HOLD_MS 10000 /* below the timeouts of proxies; callers retry */

enum cairn_code srv_mend_open(struct srv_mend *mend, struct cairn_store_worker *worker,
                              struct cairn_error *err) {
    CAIRN_TRY(srv_run_stores_open(&mend->stores, mend->server, worker, err));
    return srv_run_stores_list(&mend->stores, &mend->objects, err);
}

void srv_mend_release(struct srv_mend *mend) {
    for (size_t i = 0; mend->attempts && i < mend->objects.attempt_count; i++)
        cairn_attempt_record_release(&mend->attempts[i].record);
    for (size_t i = 0; mend->versions && i < mend->objects.version_count; i++)
        cairn_manifest_release(&mend->versions[i].manifest);
    free(mend->attempts);
    free(mend->versions);
    free(mend->missing);
    srv_run_objects_release(&mend->objects);
    srv_run_stores_release(&mend->stores);
}

enum cairn_code srv_mend_is_known(const struct srv_mend *mend, const struct cairn_version_id *id,
                                  bool *ret, struct cairn_error *err) {
    bool shown = false;
    SRV_LOOK(look, mend->server->catalog, err);
    return srv_version_was_committed(look.tx, id->text, ret, &shown, err);
}

static bool is_read(const struct srv_mend *mend, const char *store) {
    for (size_t i = 0; i < mend->stores.count; i++)
        if (!strcmp(mend->stores.stores[i].name, store)) return true;
    return false;
}

static bool is_elsewhere(const struct srv_mend *mend, const struct srv_run_copies *copies,
                         const char *id) {
    for (size_t i = 1; i < mend->stores.count; i++)
        if (srv_run_objects_touch(&mend->stores.stores[i].objects, id)) return true;
    for (size_t i = 0; i < copies->count; i++) {
        const struct srv_copy_left *row = &copies->items[i];
        bool there = row->copy.state != SRV_COPY_GONE;
        if (there && !strcmp(row->version.text, id) && !is_read(mend, row->copy.store)) return true;
    }
    return false;
}

enum cairn_code srv_mend_find_missing(struct srv_mend *mend, struct cairn_error *err) {
    SRV_AUTO(run_copies) copies = {0};
    mend->missing_count = 0;
    SRV_LOOK(look, mend->server->catalog, err);
    SRV_GET(run, run, srv_run_get(look.tx, &mend->objects.name, &run, err));
    CAIRN_TRY(srv_copies_of_run(look.tx, run.id, NULL, &copies, err));
    SRV_GET(rows, rows, srv_versions_recorded(look.tx, &mend->objects.name, &rows, err));
    SQL_EACH(&rows, err) {
        const struct srv_recorded_row row = srv_row_recorded(&rows);
        if (row.trashed || srv_run_objects_find(&mend->objects, row.id) ||
            is_elsewhere(mend, &copies, row.id))
            continue;
        CAIRN_TRY(CAIRN_ARRAY_ROOM(mend->missing, mend->missing_count, mend->missing_capacity,
                                   MISSING_MAX, "versions without a record", err));
        struct srv_mend_missing *one = &mend->missing[mend->missing_count++];
        *one = (struct srv_mend_missing){.step = row.step};
        (void)cairn_text_copy(one->id.text, sizeof(one->id.text), row.id);
    }
    return CAIRN_OK;
}

/* Q37, in one store. CAIRN_CORRUPT: damaged; CAIRN_UNSUPPORTED: of a newer release;
 * CAIRN_NOT_FOUND: remains of a deletion. */
static enum cairn_code verify_in_store(struct cairn_store_worker *worker,
                                       const struct cairn_version_place *place,
                                       struct cairn_record *ret_record,
                                       struct cairn_manifest *ret_manifest,
                                       struct cairn_error *err) {
    CAIRN_TRY(srv_committed_read(worker, place, ret_record, ret_manifest, err));
    const struct cairn_committed version = {.place = *place, .manifest = *ret_manifest};
    return srv_copy_look(worker, &version, CAIRN_DOCUMENT_BIT(LAYOUT), err);
}

/* Readers look for the record: without it there is no copy. */
static enum srv_copy_seen by_listing(const struct srv_run_store *store,
                                     const struct srv_mend_version *one) {
    const struct srv_seen *seen = srv_run_objects_find(&store->objects, one->place.id.text);
    if (seen && seen->step == one->place.step) return SRV_SEEN_RECORD;
    return srv_run_objects_touch(&store->objects, one->place.id.text) ? SRV_SEEN_OBJECTS
                                                                      : SRV_SEEN_NOTHING;
}

static void tell_wrong(const struct srv_mend *mend, size_t index,
                       const struct srv_mend_version *one, const struct cairn_error *why) {
    struct cairn_key key;
    cairn_key_committed(&one->place, &key);
    if (mend->tell)
        mend->tell(mend->owner, mend->stores.stores[index].name, key.text, why->code, why->message);
}

/* The first whole copy supplies record and manifest, which others must match. digest: or NULL. */
static enum cairn_code read_copy(const struct srv_mend *mend, struct srv_mend_version *one,
                                 size_t index, const uint8_t digest[32], struct cairn_error *err) {
    CAIRN_AUTO(manifest) manifest = {0};
    struct cairn_record record = {0};
    struct cairn_error why = {0};
    enum cairn_code code =
        verify_in_store(mend->stores.stores[index].worker, &one->place, &record, &manifest, &why);
    if (one->verified) digest = one->record.manifest_sha256;
    if (!code && digest && memcmp(digest, record.manifest_sha256, 32) != 0)
        code = cairn_fail(&why, CAIRN_CORRUPT, "its record is of another manifest than %s",
                          one->verified ? "a nearer store's" : "the catalog's");
    if (!code && !one->verified) {
        one->record = record;
        one->manifest = manifest;
        manifest = (struct cairn_manifest){0};
        one->verified = true;
    }
    bool newer = code == CAIRN_UNSUPPORTED, wrong = code == CAIRN_CORRUPT || newer;
    one->copies[index] = code == CAIRN_OK        ? SRV_SEEN_WHOLE
                         : code == CAIRN_CORRUPT ? SRV_SEEN_DAMAGED
                         : newer                 ? SRV_SEEN_NEWER
                                                 : SRV_SEEN_REMAINS;
    one->damaged |= code == CAIRN_CORRUPT;
    one->newer |= newer;
    if (wrong) tell_wrong(mend, index, one, &why);
    if (code && (wrong || !one->cause[0]))
        (void)cairn_text_copy(one->cause, sizeof(one->cause), why.message);
    if (!code || wrong || code == CAIRN_NOT_FOUND) return CAIRN_OK;
    if (err) *err = why;
    return srv_run_store_within(&mend->stores, index, code, err);
}

enum cairn_code srv_mend_look_at_copies(const struct srv_mend *mend, struct srv_mend_version *one,
                                        struct cairn_error *err) {
    for (size_t i = 0; i < mend->stores.count; i++) {
        one->copies[i] = by_listing(&mend->stores.stores[i], one);
        if (one->copies[i] == SRV_SEEN_RECORD) CAIRN_TRY(read_copy(mend, one, i, NULL, err));
    }
    return CAIRN_OK;
}

/* ---- rows of copies ---- */

static bool is_there(enum srv_copy_seen seen) {
    return seen == SRV_SEEN_WHOLE || seen == SRV_SEEN_DAMAGED || seen == SRV_SEEN_NEWER ||
           seen == SRV_SEEN_RECORD;
}

/* row NULL means whole in the main store, and no copy in others (copies.h#1). False: no change. */
static bool wanted(const struct srv_copy *row, enum srv_copy_seen seen, bool main,
                   enum srv_copy_state *ret) {
    bool whole = row ? row->state == SRV_COPY_WHOLE : main;
    bool begun = seen == SRV_SEEN_OBJECTS && !main;
    if (is_there(seen)) {
        *ret = SRV_COPY_WHOLE;
        return !whole;
    }
    *ret = begun && !row ? SRV_COPY_MAKING : SRV_COPY_GONE;
    return whole || (!row && seen != SRV_SEEN_NOTHING);
}

struct rows {
    const struct srv_mend *mend;
    struct srv_mend_version *one;
    struct srv_version version;
    struct srv_copies copies;
    struct srv_copy_hold hold;
};

static enum cairn_code put_rows(struct srv_tx *tx, const struct rows *rows,
                                struct cairn_error *err) {
    const struct srv_mend *mend = rows->mend;
    const char *id = rows->one->place.id.text;
    for (size_t i = 0; i < mend->stores.count; i++) {
        const char *store = mend->stores.stores[i].name;
        const struct srv_copy *row = srv_copies_find(&rows->copies, store);
        struct srv_copy copy = {.changed_ms = srv_wall_ms(mend->server)};
        if (!wanted(row, rows->one->copies[i], i == 0, &copy.state)) continue;
        if (row) copy.by_policy = row->by_policy;
        (void)cairn_text_copy(copy.store, sizeof(copy.store), store);
        CAIRN_TRY(srv_copy_put(tx, id, &copy, err));
    }
    return CAIRN_OK;
}

static enum cairn_code put_copies(struct srv_tx *tx, const struct srv_mend *mend,
                                  const struct srv_mend_version *one, struct cairn_error *err) {
    struct srv_mend_version copy = *one;
    struct rows rows = {.mend = mend, .one = &copy};
    CAIRN_ASSERT(one->verified);
    return put_rows(tx, &rows, err);
}

/* ---- copies of a known version ---- */

static enum cairn_code read_rows(struct srv_tx *tx, struct rows *rows, struct cairn_error *err) {
    srv_version_release(&rows->version);
    CAIRN_TRY(srv_version_get(tx, rows->one->place.id.text, &rows->version, err));
    return srv_copies_get(tx, rows->one->place.id.text, &rows->copies, err);
}

/* A copy with a record is not verified if its row says whole. *ret: a row differs. */
static enum cairn_code compare_rows(struct rows *rows, bool verify, bool *ret,
                                    struct cairn_error *err) {
    const struct srv_mend *mend = rows->mend;
    struct srv_mend_version *one = rows->one;
    const struct srv_version *version = &rows->version;
    const uint8_t *digest = version->has_manifest ? version->manifest_sha256 : NULL;
    bool differs = false, there = false;
    for (size_t i = 0; i < mend->stores.count; i++) {
        enum srv_copy_state state;
        const struct srv_copy *row = srv_copies_find(&rows->copies, mend->stores.stores[i].name);
        bool whole = row && row->state == SRV_COPY_WHOLE;
        one->copies[i] = by_listing(&mend->stores.stores[i], one);
        if (one->copies[i] == SRV_SEEN_RECORD && !whole && verify)
            CAIRN_TRY(read_copy(mend, one, i, digest, err));
        there |= is_there(one->copies[i]);
        differs |= wanted(row, one->copies[i], i == 0, &state);
    }
    *ret = differs && there && version->state == CAIRN_STATE_COMMITTED;
    return CAIRN_OK;
}

SRV_CHANGE(put_right, struct rows *rows) {
    CAIRN_TRY(srv_lease_check(tx, &rows->hold.lease, err));
    CAIRN_TRY(read_rows(tx, rows, err));
    return rows->version.state == CAIRN_STATE_COMMITTED ? put_rows(tx, rows, err) : CAIRN_OK;
}

static enum cairn_code look_and_compare(struct rows *rows, bool verify, bool *ret,
                                        struct cairn_error *err) {
    SRV_LOOK(look, rows->mend->server->catalog, err);
    CAIRN_TRY(read_rows(look.tx, rows, err));
    srv_look_release(&look);
    return compare_rows(rows, verify, ret, err);
}

enum cairn_code srv_mend_copies_differ(const struct srv_mend *mend, struct srv_mend_version *one,
                                       bool *ret, struct cairn_error *err) {
    struct rows rows = {.mend = mend, .one = one};
    enum cairn_code code = look_and_compare(&rows, false, ret, err);
    srv_version_release(&rows.version);
    return code;
}

static enum cairn_code settle_copies(const struct srv_mend *mend, struct srv_mend_version *one,
                                     struct cairn_error *err) {
    struct rows rows = {.mend = mend, .one = one};
    bool differs = false;
    one->copies[0] = SRV_SEEN_RECORD;
    if (mend->stores.count < 2) return CAIRN_OK;
    enum cairn_code code = look_and_compare(&rows, false, &differs, err);
    if (!code && differs) {
        code = srv_copy_hold_take(&rows.hold, mend->server, one->place.id.text, err);
        if (!code) code = look_and_compare(&rows, true, &differs, err);
        if (!code && differs)
            code = srv_catalog_write(mend->server->catalog, put_right, &rows, err);
        srv_copy_hold_end(&rows.hold);
    }
    cairn_manifest_release(&one->manifest);
    one->manifest = (struct cairn_manifest){0};
    one->verified = false; /* known: nothing to import */
    srv_version_release(&rows.version);
    return code;
}

/* ---- attempts and versions of a run ---- */

/* 5. If no store has it undamaged, reports the damage in the nearest store. */
static enum cairn_code read_attempt(struct srv_mend *mend, struct srv_mend_attempt *one,
                                    struct cairn_error *err) {
    for (size_t i = 0; i < mend->stores.count && !one->readable; i++) {
        const struct srv_run_store *store = &mend->stores.stores[i];
        struct cairn_error why = {0};
        if (!srv_run_objects_has_attempt(&store->objects, one->number)) continue;
        enum cairn_code code =
            srv_attempt_read(store->worker, &mend->objects.name, one->number, &one->record, &why);
        one->readable = code == CAIRN_OK;
        one->newer = !one->readable && (one->newer || code == CAIRN_UNSUPPORTED);
        if (!one->cause[0]) (void)cairn_text_copy(one->cause, sizeof(one->cause), why.message);
        if (!code || code == CAIRN_CORRUPT || code == CAIRN_UNSUPPORTED) continue;
        if (err) *err = why;
        return srv_run_store_within(&mend->stores, i, code, err);
    }
    return CAIRN_OK;
}

enum cairn_code srv_mend_read_attempts(struct srv_mend *mend, struct cairn_error *err) {
    const struct srv_run_objects *objects = &mend->objects;
    mend->attempts = calloc(objects->attempt_count + 1, sizeof(*mend->attempts));
    if (!mend->attempts) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for attempt records");
    for (; mend->attempt_count < objects->attempt_count; mend->attempt_count++) {
        struct srv_mend_attempt *one = &mend->attempts[mend->attempt_count];
        one->number = objects->attempts[mend->attempt_count];
        CAIRN_TRY(read_attempt(mend, one, err));
    }
    return CAIRN_OK;
}

enum cairn_code srv_mend_versions_new(struct srv_mend *mend, struct cairn_error *err) {
    const struct srv_run_objects *objects = &mend->objects;
    mend->versions = calloc(objects->version_count + 1, sizeof(*mend->versions));
    if (!mend->versions) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for versions");
    mend->version_count = objects->version_count;
    return CAIRN_OK;
}

enum cairn_code srv_mend_read_version(struct srv_mend *mend, size_t index,
                                      struct cairn_error *err) {
    struct srv_mend_version *one = &mend->versions[index];
    const struct srv_seen *seen = &mend->objects.versions[index];
    one->place = (struct cairn_version_place){mend->objects.name, seen->step, seen->id};
    CAIRN_TRY(srv_mend_is_known(mend, &seen->id, &one->known, err));
    return one->known ? settle_copies(mend, one, err) : srv_mend_look_at_copies(mend, one, err);
}

/* Of a version without a record: if the manifest is gone, too, a later catalog deleted it;
 * otherwise the record is written again (Q24). */
static enum cairn_code look_for_missing(struct srv_mend *mend, struct cairn_error *err) {
    CAIRN_TRY(srv_mend_find_missing(mend, err));
    for (size_t i = 0; i < mend->missing_count; i++) {
        struct srv_mend_missing *one = &mend->missing[i];
        struct cairn_version_place place = {mend->objects.name, one->step, one->id};
        struct cairn_key key;
        cairn_key_manifest(&place, &key);
        struct cairn_store_request head = {.op = CAIRN_STORE_HEAD, .key = key.text};
        enum cairn_code code = cairn_store_perform(mend->stores.stores[0].worker, &head, err);
        if (code && code != CAIRN_NOT_FOUND) return code;
        one->gone = code == CAIRN_NOT_FOUND;
    }
    return CAIRN_OK;
}

/* ---- the importing transaction ---- */

static enum cairn_code put_aside(struct srv_tx *tx, const struct srv_mend *mend, const char *key,
                                 const char *cause, struct cairn_error *err) {
    return srv_aside_put(tx, key, cause, srv_wall_ms(mend->server), err);
}

/* Numbers of unreadable records count, too: their keys are used for good. */
static enum cairn_code take_attempts(struct srv_tx *tx, struct srv_mend *mend, struct srv_run *run,
                                     struct cairn_error *err) {
    for (size_t i = 0; i < mend->attempt_count; i++) {
        const struct srv_mend_attempt *one = &mend->attempts[i];
        if (one->number < run->attempt) continue;
        run->attempt = one->number;
        if (!one->readable) {
            struct cairn_key key;
            uint8_t nonce[16];
            mend->server->random(nonce, sizeof(nonce));
            cairn_hex_encode(nonce, sizeof(nonce), run->nonce);
            cairn_key_attempt(&mend->objects.name, one->number, &key);
            if (!one->newer) CAIRN_TRY(put_aside(tx, mend, key.text, one->cause, err));
            continue;
        }
        (void)cairn_text_copy(run->nonce, sizeof(run->nonce), one->record.nonce);
        int64_t wall_ms = srv_wall_ms(mend->server);
        CAIRN_TRY(srv_attempt_take(tx, run->id, &one->record, wall_ms, err));
    }
    return srv_run_set_attempt(tx, run->id, run->attempt, run->nonce, err);
}

static int64_t wall_ms_of(const struct cairn_record *record) {
    struct tm when = {0};
    if (!strptime(record->committed_at, "%Y-%m-%dT%H:%M:%S", &when)) return 1;
    time_t seconds = timegm(&when);
    return seconds > 0 ? (int64_t)seconds * 1000 : 1; /* 0 means never committed */
}

static enum cairn_code take_version(struct srv_tx *tx, struct srv_mend *mend, int64_t run_id,
                                    const struct srv_mend_version *one, struct cairn_error *err) {
    CAIRN_ASSERT(one->verified);
    CAIRN_ASSERT(!one->known);
    struct srv_version_taken taken = {.run_id = run_id,
                                      .id = &one->place.id,
                                      .manifest = &one->manifest,
                                      .manifest_sha256 = one->record.manifest_sha256,
                                      .line = one->record.line,
                                      .committed_ms = wall_ms_of(&one->record)};
    CAIRN_TRY(srv_version_take(tx, &taken, err));
    CAIRN_TRY(put_copies(tx, mend, one, err));
    CAIRN_TRY(srv_shards_drop(tx, one->place.id.text, err));
    mend->taken++;
    if (!one->manifest.has_layout) return CAIRN_OK;
    struct srv_layout layout = {.run_id = run_id, .writer = one->manifest.layout_writer};
    memcpy(layout.digest, one->manifest.layout_digest, 32);
    return srv_layout_take(tx, &layout, err);
}

static enum cairn_code take_versions(struct srv_tx *tx, struct srv_mend *mend, int64_t run_id,
                                     struct cairn_error *err) {
    mend->taken = mend->set_aside = 0;
    for (size_t i = 0; i < mend->version_count; i++) {
        const struct srv_mend_version *one = &mend->versions[i];
        if (one->known) continue;
        if (one->verified) {
            CAIRN_TRY(take_version(tx, mend, run_id, one, err));
            continue;
        }
        if (one->newer) continue; /* a server that compares the run reports it */
        struct cairn_key key;
        cairn_key_committed(&one->place, &key);
        CAIRN_TRY(put_aside(tx, mend, key.text, one->cause, err));
        mend->set_aside++;
    }
    return CAIRN_OK;
}

struct some {
    struct srv_mend *mend;
    size_t from, to;
};
SRV_CHANGE(take_some, const struct some *some) {
    SRV_GET(run, run, srv_run_get(tx, &some->mend->objects.name, &run, err));
    for (size_t i = some->from; i < some->to; i++) {
        const struct srv_mend_version *one = &some->mend->versions[i];
        if (one->verified && !one->known) CAIRN_TRY(take_version(tx, some->mend, run.id, one, err));
    }
    return CAIRN_OK;
}

enum cairn_code srv_mend_take(struct srv_mend *mend, size_t from, size_t to,
                              struct cairn_error *err) {
    struct some some = {mend, from, to};
    CAIRN_ASSERT(to <= mend->version_count);
    CAIRN_TRY(srv_catalog_write(mend->server->catalog, take_some, &some, err));
    for (size_t i = from; i < to; i++) {
        struct srv_mend_version *one = &mend->versions[i];
        one->known |= one->verified;
        cairn_manifest_release(&one->manifest);
        one->manifest = (struct cairn_manifest){0};
    }
    return CAIRN_OK;
}

static enum cairn_code replay_marks(struct srv_tx *tx, const struct srv_mend *mend,
                                    uint64_t attempt, struct cairn_error *err) {
    for (size_t i = 0; i < mend->objects.mark_count; i++)
        if (mend->objects.marks[i].superseded_by == attempt)
            CAIRN_TRY(srv_version_supersede(tx, mend->objects.marks[i].id.text, err));
    return CAIRN_OK;
}

/* In order, each attempt unknown so far supersedes, and revives what it resumed from (Q4). */
static enum cairn_code replay(struct srv_tx *tx, const struct srv_mend *mend,
                              uint64_t known_attempt, struct cairn_error *err) {
    if (known_attempt) CAIRN_TRY(replay_marks(tx, mend, known_attempt, err));
    for (size_t i = 0; i < mend->attempt_count; i++) {
        const struct srv_mend_attempt *one = &mend->attempts[i];
        if (one->number <= known_attempt) continue;
        for (size_t j = 0; one->readable && j < one->record.superseded_count; j++)
            CAIRN_TRY(srv_version_supersede(tx, one->record.superseded[j].text, err));
        if (one->readable && one->record.has_resume)
            CAIRN_TRY(srv_version_revive(tx, one->record.resume_version.text, err));
        CAIRN_TRY(replay_marks(tx, mend, one->number, err));
    }
    return CAIRN_OK;
}

static enum cairn_code settle_missing(struct srv_tx *tx, struct srv_mend *mend,
                                      struct cairn_error *err) {
    mend->trashed = 0;
    for (size_t i = 0; i < mend->missing_count; i++) {
        const struct srv_mend_missing *one = &mend->missing[i];
        mend->trashed += one->gone;
        CAIRN_TRY(srv_version_settle_missing(tx, one->id.text, one->gone, err));
    }
    return CAIRN_OK;
}

/* Gives up open versions of older attempts (Q26). */
static enum cairn_code give_up_open(struct srv_tx *tx, struct srv_mend *mend,
                                    const struct srv_run *run, struct cairn_error *err) {
    mend->given_up = 0;
    SRV_GET(ids, open, srv_versions_open_of_run(tx, run->id, &open, err));
    for (size_t i = 0; i < open.count; i++) {
        SRV_GET(version, version, srv_version_get(tx, open.ids[i].text, &version, err));
        CAIRN_ASSERT(version.state == CAIRN_STATE_OPEN);
        if (version.attempt >= run->attempt) continue;
        struct srv_move move = {.event = CAIRN_EVENT_GIVE_UP,
                                .code = CAIRN_STALE_ATTEMPT,
                                .reason = "a newer attempt was found in the store"};
        CAIRN_TRY(srv_version_move(tx, &version, &move, err));
        mend->given_up++;
    }
    return CAIRN_OK;
}

SRV_CHANGE(apply, struct srv_mend *mend) {
    SRV_GET(run, run, srv_run_get(tx, &mend->objects.name, &run, err));
    uint64_t known_attempt = run.attempt;
    CAIRN_TRY(take_attempts(tx, mend, &run, err));
    CAIRN_ASSERT(run.attempt >= known_attempt); /* numbers only grow: they fence */
    CAIRN_TRY(take_versions(tx, mend, run.id, err));
    CAIRN_TRY(replay(tx, mend, known_attempt, err));
    for (size_t i = 0; i < mend->objects.version_count; i++)
        CAIRN_TRY(srv_version_follow_mark(tx, mend->objects.versions[i].id.text,
                                          mend->objects.versions[i].trashed, err));
    CAIRN_TRY(settle_missing(tx, mend, err));
    CAIRN_TRY(give_up_open(tx, mend, &run, err));
    srv_notify_run(tx, &mend->objects.name);
    return srv_frozen_drop(tx, run.id, err);
}

enum cairn_code srv_mend_apply(struct srv_mend *mend, struct cairn_error *err) {
    CAIRN_TRY(srv_catalog_write(mend->server->catalog, apply, mend, err));
    /* Another server may have frozen the run, so the count may be 0. */
    if (mend->server->frozen_runs) atomic_fetch_sub(&mend->server->frozen_runs, 1);
    srv_waiters_wake_run(mend->server->waiters, &mend->objects.name);
    return CAIRN_OK;
}

/* ---- reconciling one run ---- */

static void announce(const struct srv_mend *mend) {
    const struct cairn_run_name *name = &mend->objects.name;
    cairn_log(INFO, "run.reconciled",
              "run=%s/%s attempts=%zu taken=%zu set_aside=%zu trashed=%zu given_up=%" PRIu64,
              name->project, name->run, mend->attempt_count, mend->taken, mend->set_aside,
              mend->trashed, mend->given_up);
    for (size_t i = 0; i < mend->version_count; i++) {
        const struct srv_mend_version *one = &mend->versions[i];
        if (one->known || one->verified) continue;
        cairn_log(WARN, "reconcile.set_aside", "version=%s step=%" PRIu64 " cause=\"%s\"",
                  one->place.id.text, one->place.step, one->cause);
    }
}

struct recount {
    const char *project;
    struct srv_usage before, after;
};
SRV_CHANGE(count_again, struct recount *recount) {
    return srv_usage_recount(tx, recount->project, &recount->before, &recount->after, err);
}

/* policies.h#2: corrects usage after manual changes of the database. It reads every version of the
 * project while all other changes wait, so a series of reconciles shares one recount. */
static enum cairn_code recount(struct srv *server, const char *project, struct cairn_error *err) {
    struct recount call = {.project = project};
    uint64_t now_ms = srv_mono_ms(server), last_ms = server->recounted_ms;
    if (last_ms && now_ms < last_ms + RECOUNT_MS) return CAIRN_OK;
    CAIRN_TRY(srv_catalog_write(server->catalog, count_again, &call, err));
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
    const struct srv_mend *mend = owner;
    if (mend->stores.count > 1 && code == CAIRN_CORRUPT)
        cairn_log(WARN, "reconcile.copy_damaged", "store=%s key=%s cause=\"%s\"", store, key,
                  cause);
}

/* Documents that this release cannot read are not set aside: a newer server imports them. */
static enum cairn_code refuse_newer(const struct srv_mend *mend, struct cairn_error *err) {
    for (size_t i = 0; i < mend->attempt_count; i++)
        if (mend->attempts[i].newer)
            return cairn_fail(err, CAIRN_UNSUPPORTED, "%s", mend->attempts[i].cause);
    for (size_t i = 0; i < mend->version_count; i++)
        if (mend->versions[i].newer && !mend->versions[i].verified)
            return cairn_fail(err, CAIRN_UNSUPPORTED, "%s", mend->versions[i].cause);
    return CAIRN_OK;
}

static enum cairn_code reconcile(struct srv *server, struct cairn_store_worker *worker,
                                 const struct cairn_run_name *name, struct cairn_error *err) {
    SRV_AUTO(mend)
    mend = {.server = server, .objects.name = *name, .tell = tell_damaged, .owner = &mend};
    CAIRN_TRY(srv_mend_open(&mend, worker, err));
    CAIRN_TRY(srv_mend_read_attempts(&mend, err));
    CAIRN_TRY(srv_mend_versions_new(&mend, err));
    for (size_t i = 0; i < mend.version_count; i++) CAIRN_TRY(srv_mend_read_version(&mend, i, err));
    CAIRN_TRY(refuse_newer(&mend, err));
    CAIRN_TRY(look_for_missing(&mend, err));
    CAIRN_TRY(recount(server, name->project, err));
    CAIRN_TRY(srv_mend_apply(&mend, err));
    announce(&mend);
    return CAIRN_OK;
}

/* ---- requested reconciles ---- */

struct requests {
    struct srv_reconcile_request runs[SRV_RECONCILES_MAX];
    size_t count;
    uint64_t tick;
    struct srv_reconcile_request *run;
    const char *note;
};

SRV_CHANGE(keep_note, const struct requests *requests) {
    return srv_frozen_set_note(tx, requests->run->run_id, requests->note, requests->run->due_tick,
                               err);
}

static enum cairn_code serve_request(struct srv *server, struct cairn_store_worker *worker,
                                     struct requests *requests, struct cairn_error *err) {
    struct srv_reconcile_request *run = requests->run;
    if (!run->due_tick) { /* the generation is not raised yet */
        CAIRN_TRY(srv_identity_raise(server, worker, err));
        run->due_tick = requests->tick + server->settings->reconcile_wait_ms;
        requests->note = "the generation was raised; the store is read after reconcile-wait";
        CAIRN_TRY(srv_catalog_write(server->catalog, keep_note, requests, err));
    }
    if (requests->tick < run->due_tick) return CAIRN_OK;
    CAIRN_TRY(srv_identity_compare(server, worker, err));
    return reconcile(server, worker, &run->name, err);
}

/* False: another server reconciles. */
static bool serve_alone(struct srv *server, struct cairn_store_worker *worker,
                        struct requests *requests, enum cairn_code *ret_code,
                        struct cairn_error *err) {
    struct srv_lease lease;
    srv_lease_init(&lease, server, "reconcile", "");
    *ret_code = srv_lease_take(&lease, err);
    if (*ret_code == CAIRN_BUSY) return false;
    if (!*ret_code) *ret_code = serve_request(server, worker, requests, err);
    srv_lease_end(&lease);
    if (*ret_code == CAIRN_UNSUPPORTED) { /* tell the caller that it cannot end */
        requests->note = err->message;
        (void)!srv_catalog_write(server->catalog, keep_note, requests, NULL);
    }
    if (*ret_code)
        cairn_log(WARN, "reconcile.delayed", "run=%s/%s cause=\"%s\"", requests->run->name.project,
                  requests->run->name.run, err->message);
    return true;
}

void srv_reconcile_requested(struct srv *server, struct cairn_store_worker *worker) {
    struct requests requests = {0};
    struct cairn_error away = {0}; /* skip further runs after a store did not answer */
    bool shared = srv_catalog_is_shared(server->catalog);
    if ((!server->frozen_runs && !shared) || server->frozen) return;
    SRV_AUTO(look) look = {0};
    if (srv_look_begin(server->catalog, &look, NULL)) return;
    requests.tick = srv_tick(look.tx);
    if (srv_frozen_requests(look.tx, requests.runs, &requests.count, NULL)) return;
    srv_look_release(&look);
    for (size_t i = 0; i < requests.count; i++) {
        struct cairn_error why = away;
        enum cairn_code code = away.code;
        requests.run = &requests.runs[i];
        if (!code && !serve_alone(server, worker, &requests, &code, &why)) return;
        if (code == CAIRN_UNAVAILABLE || code == CAIRN_TIMEOUT) away = why;
        if (!code) continue;
        requests.note = why.message;
        (void)!srv_catalog_write(server->catalog, keep_note, &requests, NULL);
    }
}

/* ---- POST {R}/reconcile ---- */

struct reconciling {
    const struct cairn_run_name *name;
    bool frozen;
    char cause[SRV_CAUSE_BYTES], note[SRV_CAUSE_BYTES];
};

SRV_CHANGE(request_reconcile, struct reconciling *reconciling) {
    SRV_GET(run, run, srv_run_get(tx, reconciling->name, &run, err));
    return srv_frozen_request(tx, run.id, &reconciling->frozen, reconciling->cause,
                              reconciling->note, err);
}

SRV_HANDLER(reconcile) {
    struct srv *server = request->server;
    struct reconciling reconciling = {.name = &request->params.run_name};
    CAIRN_TRY(srv_thawed(server, err));
    CAIRN_TRY(srv_catalog_write(server->catalog, request_reconcile, &reconciling, err));
    uint64_t until_ms = request->arrived_ms + HOLD_MS;
    if (reconciling.frozen && srv_mono_ms(server) < until_ms) {
        srv_jobs_sweep(server);
        reply->park = true;
        reply->park_key = srv_key_of_run(reconciling.name);
        reply->park_until_ms = until_ms;
        return CAIRN_OK;
    }
    return srv_reply_json(reply, reconciling.frozen ? 202 : 200,
                          CAIRN_PACK(reconciled, .project = reconciling.name->project,
                                     .run = reconciling.name->run, .frozen = reconciling.frozen,
                                     .cause = reconciling.frozen ? reconciling.cause : NULL,
                                     .note = reconciling.note[0] ? reconciling.note : NULL),
                          err);
}
