/* SPDX-License-Identifier: Apache-2.0 */
/* The transaction of a reconcile; see mend.h. */
#include "server/recovery/mend.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include "api/records.h"
#include "common/array.h"
#include "common/encode.h"
#include "common/text.h"
#include "server/db/catalog.h"
#include "server/guard/records.h"
#include "server/http/waiters.h"
#include "server/ledger/attempts.h"
#include "server/ledger/copies.h"
#include "server/ledger/layouts.h"
#include "server/ledger/runs.h"
#include "server/ledger/shards.h"
#include "server/ledger/version_lists.h"
#include "server/recovery/mend_copies.h"

#define MISSING_MAX 1000000

enum cairn_code cairn_srv_mend_open(struct cairn_srv_mend *mend, struct cairn_store_worker *worker,
                                    struct cairn_error *err) {
    CAIRN_TRY(cairn_srv_run_stores_open(&mend->stores, mend->server, worker, err));
    return cairn_srv_run_stores_list(&mend->stores, &mend->objects, err);
}

void cairn_srv_mend_release(struct cairn_srv_mend *mend) {
    for (size_t i = 0; mend->attempts && i < mend->objects.attempt_count; i++)
        cairn_attempt_record_release(&mend->attempts[i].record);
    for (size_t i = 0; mend->versions && i < mend->objects.version_count; i++)
        cairn_manifest_release(&mend->versions[i].manifest);
    free(mend->attempts);
    free(mend->versions);
    free(mend->missing);
    cairn_srv_run_objects_release(&mend->objects);
    cairn_srv_run_stores_release(&mend->stores);
}

/* ---- what the catalog says ---- */

struct known {
    const struct cairn_version_id *id;
    bool found;
};
static enum cairn_code find_known(struct cairn_srv_tx *tx, void *argument,
                                  struct cairn_error *err) {
    struct known *known = argument;
    bool shown = false;
    return cairn_srv_version_was_committed(tx, known->id->text, &known->found, &shown, err);
}

enum cairn_code cairn_srv_mend_is_known(const struct cairn_srv_mend *mend,
                                        const struct cairn_version_id *id, bool *ret,
                                        struct cairn_error *err) {
    struct known known = {.id = id};
    CAIRN_TRY(cairn_srv_catalog_read(mend->server->catalog, find_known, &known, err));
    *ret = known.found;
    return CAIRN_OK;
}

struct missing {
    struct cairn_srv_mend *mend;
    struct cairn_srv_run_copies copies;
};

static bool is_read(const struct cairn_srv_mend *mend, const char *store) {
    for (size_t i = 0; i < mend->stores.count; i++)
        if (!strcmp(mend->stores.stores[i].name, store)) return true;
    return false;
}

/* Something of it lies, or may lie, in a store beside main: that is no loss to be settled here. */
static bool is_elsewhere(const struct missing *missing, const char *id) {
    const struct cairn_srv_mend *mend = missing->mend;
    for (size_t i = 1; i < mend->stores.count; i++)
        if (cairn_srv_run_objects_touch(&mend->stores.stores[i].objects, id)) return true;
    for (size_t i = 0; i < missing->copies.count; i++) {
        const struct cairn_srv_copy_left *row = &missing->copies.items[i];
        bool there = row->copy.state != CAIRN_SRV_COPY_GONE;
        if (there && !strcmp(row->version.text, id) && !is_read(mend, row->copy.store)) return true;
    }
    return false;
}

static enum cairn_code add_missing(void *argument, const char *id, uint64_t step, bool trashed,
                                   struct cairn_error *err) {
    struct missing *missing = argument;
    struct cairn_srv_mend *mend = missing->mend;
    if (trashed || cairn_srv_run_objects_find(&mend->objects, id) || is_elsewhere(missing, id))
        return CAIRN_OK;
    CAIRN_TRY(CAIRN_ARRAY_ROOM(mend->missing, mend->missing_count, mend->missing_capacity,
                               MISSING_MAX, "versions without a record", err));
    struct cairn_srv_mend_missing *one = &mend->missing[mend->missing_count++];
    *one = (struct cairn_srv_mend_missing){.step = step};
    (void)cairn_text_copy(one->id.text, sizeof(one->id.text), id);
    return CAIRN_OK;
}

static enum cairn_code find_missing(struct cairn_srv_tx *tx, void *argument,
                                    struct cairn_error *err) {
    struct cairn_srv_mend *mend = argument;
    struct missing missing = {.mend = mend};
    CAIRN_AUTO(srv_run) run = {0};
    enum cairn_code code = cairn_srv_run_get(tx, &mend->objects.name, &run, err);
    mend->missing_count = 0;
    if (!code) code = cairn_srv_copies_of_run(tx, run.id, NULL, &missing.copies, err);
    if (!code)
        code = cairn_srv_versions_recorded(tx, &mend->objects.name, add_missing, &missing, err);
    cairn_srv_run_copies_release(&missing.copies);
    return code;
}

enum cairn_code cairn_srv_mend_find_missing(struct cairn_srv_mend *mend, struct cairn_error *err) {
    return cairn_srv_catalog_read(mend->server->catalog, find_missing, mend, err);
}

/* ---- the transaction ---- */

static enum cairn_code put_aside(struct cairn_srv_tx *tx, const struct cairn_srv_mend *mend,
                                 const char *key, const char *cause, struct cairn_error *err) {
    return cairn_srv_aside_put(tx, key, cause, cairn_srv_wall_ms(mend->server), err);
}

/* Numbers of unreadable records are taken over, too: their keys are in use for good. */
static enum cairn_code take_attempts(struct cairn_srv_tx *tx, struct cairn_srv_mend *mend,
                                     struct cairn_srv_run *run, struct cairn_error *err) {
    for (size_t i = 0; i < mend->attempt_count; i++) {
        const struct cairn_srv_mend_attempt *one = &mend->attempts[i];
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
        int64_t wall_ms = cairn_srv_wall_ms(mend->server);
        CAIRN_TRY(cairn_srv_attempt_take(tx, run->id, &one->record, wall_ms, err));
    }
    return cairn_srv_run_set_attempt(tx, run->id, run->attempt, run->nonce, err);
}

static int64_t wall_ms_of(const struct cairn_record *record) {
    struct tm when = {0};
    if (!strptime(record->committed_at, "%Y-%m-%dT%H:%M:%S", &when)) return 1;
    time_t seconds = timegm(&when);
    return seconds > 0 ? (int64_t)seconds * 1000 : 1; /* 0 would read as never committed */
}

static enum cairn_code take_version(struct cairn_srv_tx *tx, struct cairn_srv_mend *mend,
                                    int64_t run_id, const struct cairn_srv_mend_version *one,
                                    struct cairn_error *err) {
    CAIRN_ASSERT(one->verified);
    CAIRN_ASSERT(!one->known);
    struct cairn_srv_version_taken taken = {.run_id = run_id,
                                            .id = &one->place.id,
                                            .manifest = &one->manifest,
                                            .manifest_sha256 = one->record.manifest_sha256,
                                            .line = one->record.line,
                                            .committed_ms = wall_ms_of(&one->record)};
    CAIRN_TRY(cairn_srv_version_take(tx, &taken, err));
    CAIRN_TRY(cairn_srv_mend_put_copies(tx, mend, one, err));
    CAIRN_TRY(cairn_srv_shards_drop(tx, one->place.id.text, err));
    mend->taken++;
    if (!one->manifest.has_layout) return CAIRN_OK;
    struct cairn_srv_layout layout = {.run_id = run_id, .writer = one->manifest.layout_writer};
    memcpy(layout.digest, one->manifest.layout_digest, 32);
    return cairn_srv_layout_take(tx, &layout, err);
}

static enum cairn_code take_versions(struct cairn_srv_tx *tx, struct cairn_srv_mend *mend,
                                     int64_t run_id, struct cairn_error *err) {
    mend->taken = mend->set_aside = 0;
    for (size_t i = 0; i < mend->version_count; i++) {
        const struct cairn_srv_mend_version *one = &mend->versions[i];
        if (one->known) continue;
        if (one->verified) {
            CAIRN_TRY(take_version(tx, mend, run_id, one, err));
            continue;
        }
        if (one->newer) continue; /* a server that compares the run names it */
        struct cairn_key key;
        cairn_key_committed(&one->place, &key);
        CAIRN_TRY(put_aside(tx, mend, key.text, one->cause, err));
        mend->set_aside++;
    }
    return CAIRN_OK;
}

struct some {
    struct cairn_srv_mend *mend;
    size_t from, to;
};
static enum cairn_code take_some(struct cairn_srv_tx *tx, void *argument, struct cairn_error *err) {
    const struct some *some = argument;
    CAIRN_AUTO(srv_run) run = {0};
    CAIRN_TRY(cairn_srv_run_get(tx, &some->mend->objects.name, &run, err));
    for (size_t i = some->from; i < some->to; i++) {
        const struct cairn_srv_mend_version *one = &some->mend->versions[i];
        if (one->verified && !one->known)
            CAIRN_TRY(take_version(tx, some->mend, run.id, one, err));
    }
    return CAIRN_OK;
}

enum cairn_code cairn_srv_mend_take(struct cairn_srv_mend *mend, size_t from, size_t to,
                                    struct cairn_error *err) {
    struct some some = {mend, from, to};
    CAIRN_ASSERT(to <= mend->version_count);
    CAIRN_TRY(cairn_srv_catalog_write(mend->server->catalog, take_some, &some, err));
    for (size_t i = from; i < to; i++) {
        struct cairn_srv_mend_version *one = &mend->versions[i];
        one->known |= one->verified;
        cairn_manifest_release(&one->manifest);
        one->manifest = (struct cairn_manifest){0};
    }
    return CAIRN_OK;
}

/* What a save of that attempt superseded by on_exists. */
static enum cairn_code replay_marks(struct cairn_srv_tx *tx, const struct cairn_srv_mend *mend,
                                    uint64_t attempt, struct cairn_error *err) {
    for (size_t i = 0; i < mend->objects.mark_count; i++)
        if (mend->objects.marks[i].superseded_by == attempt)
            CAIRN_TRY(cairn_srv_version_supersede(tx, mend->objects.marks[i].id.text, err));
    return CAIRN_OK;
}

/* In the order of the attempts that this catalog did not know: each supersedes, and revives what it
 * resumed from (Q4). */
static enum cairn_code replay(struct cairn_srv_tx *tx, const struct cairn_srv_mend *mend,
                              uint64_t known_attempt, struct cairn_error *err) {
    if (known_attempt) CAIRN_TRY(replay_marks(tx, mend, known_attempt, err));
    for (size_t i = 0; i < mend->attempt_count; i++) {
        const struct cairn_srv_mend_attempt *one = &mend->attempts[i];
        if (one->number <= known_attempt) continue;
        for (size_t j = 0; one->readable && j < one->record.superseded_count; j++)
            CAIRN_TRY(cairn_srv_version_supersede(tx, one->record.superseded[j].text, err));
        if (one->readable && one->record.has_resume)
            CAIRN_TRY(cairn_srv_version_revive(tx, one->record.resume_version.text, err));
        CAIRN_TRY(replay_marks(tx, mend, one->number, err));
    }
    return CAIRN_OK;
}

static enum cairn_code settle_missing(struct cairn_srv_tx *tx, struct cairn_srv_mend *mend,
                                      struct cairn_error *err) {
    mend->trashed = 0;
    for (size_t i = 0; i < mend->missing_count; i++) {
        const struct cairn_srv_mend_missing *one = &mend->missing[i];
        mend->trashed += one->gone;
        CAIRN_TRY(cairn_srv_version_settle_missing(tx, one->id.text, one->gone, err));
    }
    return CAIRN_OK;
}

/* A newer attempt has taken over from what is open under older ones (Q26). */
static enum cairn_code give_up_open(struct cairn_srv_tx *tx, struct cairn_srv_mend *mend,
                                    const struct cairn_srv_run *run, struct cairn_error *err) {
    mend->given_up = 0;
    CAIRN_AUTO(srv_ids) open = {0};
    CAIRN_TRY(cairn_srv_versions_open_of_run(tx, run->id, &open, err));
    for (size_t i = 0; i < open.count; i++) {
        CAIRN_AUTO(srv_version) version = {0};
        CAIRN_TRY(cairn_srv_version_get(tx, open.ids[i].text, &version, err));
        CAIRN_ASSERT(version.state == CAIRN_STATE_OPEN);
        if (version.attempt >= run->attempt) continue;
        struct cairn_srv_move move = {.event = CAIRN_EVENT_GIVE_UP,
                                      .code = CAIRN_STALE_ATTEMPT,
                                      .reason = "a newer attempt was found in the store"};
        CAIRN_TRY(cairn_srv_version_move(tx, &version, &move, err));
        mend->given_up++;
    }
    return CAIRN_OK;
}

static enum cairn_code apply(struct cairn_srv_tx *tx, void *argument, struct cairn_error *err) {
    struct cairn_srv_mend *mend = argument;
    CAIRN_AUTO(srv_run) run = {0};
    CAIRN_TRY(cairn_srv_run_get(tx, &mend->objects.name, &run, err));
    uint64_t known_attempt = run.attempt;
    CAIRN_TRY(take_attempts(tx, mend, &run, err));
    CAIRN_ASSERT(run.attempt >= known_attempt); /* a number only grows: it fences */
    CAIRN_TRY(take_versions(tx, mend, run.id, err));
    CAIRN_TRY(replay(tx, mend, known_attempt, err));
    for (size_t i = 0; i < mend->objects.version_count; i++)
        CAIRN_TRY(cairn_srv_mark_take(tx, &mend->objects.versions[i], err));
    CAIRN_TRY(settle_missing(tx, mend, err));
    CAIRN_TRY(give_up_open(tx, mend, &run, err));
    cairn_srv_notify_run(tx, &mend->objects.name);
    return cairn_srv_frozen_drop(tx, run.id, err);
}

enum cairn_code cairn_srv_mend_apply(struct cairn_srv_mend *mend, struct cairn_error *err) {
    CAIRN_TRY(cairn_srv_catalog_write(mend->server->catalog, apply, mend, err));
    /* Another server may have frozen it. */
    if (mend->server->frozen_runs) atomic_fetch_sub(&mend->server->frozen_runs, 1);
    cairn_srv_waiters_wake_run(mend->server->waiters, &mend->objects.name);
    return CAIRN_OK;
}
