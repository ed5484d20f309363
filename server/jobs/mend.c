/* SPDX-License-Identifier: Apache-2.0 */
/* The transaction of a reconcile; see mend.h. */
#include "server/jobs/mend.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "common/encode.h"
#include "common/text.h"
#include "server/catalog/layouts.h"
#include "server/catalog/shards.h"
#include "server/catalog/versions.h"
#include "server/jobs/marks.h"
#include "server/waiters.h"

void cairn_srv_mend_release(struct cairn_srv_mend *mend) {
    for (size_t i = 0; mend->attempts && i < mend->objects.attempt_count; i++)
        cairn_attempt_record_release(&mend->attempts[i].record);
    for (size_t i = 0; mend->versions && i < mend->objects.version_count; i++)
        cairn_manifest_release(&mend->versions[i].manifest);
    free(mend->attempts);
    free(mend->versions);
    free(mend->missing);
    cairn_srv_run_objects_release(&mend->objects);
}

/* ---- what the catalog says ---- */

struct known {
    const struct cairn_version_id *id;
    bool found;
};
static enum cairn_code find_known(struct cairn_srv_tx *tx, void *argument,
                                  struct cairn_error *err) {
    struct known *known = argument;
    int64_t one = 0;
    return cairn_srv_sql_number(tx, &known->found, &one, err, SQL(version_was_committed),
                                SQL_T(known->id->text));
}

enum cairn_code cairn_srv_mend_is_known(const struct cairn_srv_mend *mend,
                                        const struct cairn_version_id *id, bool *ret,
                                        struct cairn_error *err) {
    struct known known = {.id = id};
    CAIRN_TRY(cairn_srv_catalog_read(mend->server->catalog, find_known, &known, err));
    *ret = known.found;
    return CAIRN_OK;
}

static bool has_record(const struct cairn_srv_mend *mend, const char *id) {
    for (size_t i = 0; i < mend->objects.version_count; i++)
        if (!strcmp(mend->objects.versions[i].id.text, id)) return true;
    return false;
}

static enum cairn_code find_missing(struct cairn_srv_tx *tx, void *argument,
                                    struct cairn_error *err) {
    struct cairn_srv_mend *mend = argument;
    CAIRN_AUTO(srv_rows) rows = {0};
    CAIRN_TRY(cairn_srv_sql_open(tx, &rows, err, SQL(versions_recorded_of_run),
                                 SQL_T(mend->objects.name.project), SQL_T(mend->objects.name.run)));
    for (bool more = true;;) {
        CAIRN_TRY(cairn_srv_rows_next(&rows, &more, err));
        if (!more) return CAIRN_OK;
        if (has_record(mend, cairn_srv_rows_text(&rows, 0))) continue;
        if (mend->missing_count == mend->missing_capacity) {
            size_t wanted = mend->missing_capacity ? 2 * mend->missing_capacity : 64;
            void *grown = reallocarray(mend->missing, wanted, sizeof(*mend->missing));
            if (!grown) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for versions");
            mend->missing = grown;
            mend->missing_capacity = wanted;
        }
        struct cairn_srv_mend_missing *one = &mend->missing[mend->missing_count++];
        *one = (struct cairn_srv_mend_missing){.step = cairn_srv_rows_u64(&rows, 1)};
        (void)cairn_text_copy(one->id.text, sizeof(one->id.text), cairn_srv_rows_text(&rows, 0));
    }
}

enum cairn_code cairn_srv_mend_find_missing(struct cairn_srv_mend *mend, struct cairn_error *err) {
    return cairn_srv_catalog_read(mend->server->catalog, find_missing, mend, err);
}

/* ---- the transaction ---- */

static enum cairn_code put_aside(struct cairn_srv_tx *tx, const struct cairn_srv_mend *mend,
                                 const char *key, const char *cause, struct cairn_error *err) {
    return cairn_srv_sql_run(tx, NULL, err, SQL(aside_put), SQL_T(key), SQL_T(cause),
                             SQL_I(cairn_srv_wall_ms(mend->server)));
}

static enum cairn_code superseded_text(const struct cairn_attempt_record *record, char **ret,
                                       struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *ids = json_array();
    for (size_t i = 0; i < record->superseded_count; i++)
        if (json_array_append_new(ids, json_string(record->superseded[i].text)))
            return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for an attempt");
    *ret = json_dumps(ids, JSON_COMPACT);
    return *ret ? CAIRN_OK : cairn_fail(err, CAIRN_NO_MEMORY, "no memory for an attempt");
}

/* What the call asked for as `resume` stands in no record; "" joins with any (Q2). */
static enum cairn_code insert_attempt(struct cairn_srv_tx *tx, const struct cairn_srv_mend *mend,
                                      int64_t run_id, const struct cairn_attempt_record *record,
                                      struct cairn_error *err) {
    CAIRN_AUTO_HEAP char *superseded = NULL;
    CAIRN_TRY(superseded_text(record, &superseded, err));
    CAIRN_TRY(cairn_srv_sql_run(tx, NULL, err, SQL(attempt_drop), SQL_I(run_id),
                                SQL_I(record->attempt), SQL_T(record->job)));
    CAIRN_TRY(
        cairn_srv_sql_run(tx, NULL, err, SQL(members_drop), SQL_I(run_id), SQL_I(record->attempt)));
    return cairn_srv_sql_run(tx, NULL, err, SQL(attempt_take), SQL_I(run_id),
                             SQL_I(record->attempt), SQL_T(record->nonce), SQL_T(record->job),
                             SQL_I(record->world_size),
                             SQL_T(record->has_resume ? record->resume_version.text : NULL),
                             SQL_T(superseded), SQL_I(cairn_srv_wall_ms(mend->server)));
}

static enum cairn_code is_taken(struct cairn_srv_tx *tx, int64_t run_id,
                                const struct cairn_attempt_record *record, bool *ret,
                                struct cairn_error *err) {
    int64_t one = 0;
    return cairn_srv_sql_number(tx, ret, &one, err, SQL(attempt_there), SQL_I(run_id),
                                SQL_I(record->attempt), SQL_T(record->nonce));
}

/* Numbers are taken over even of records that nobody can read: they are in the way for good. */
static enum cairn_code take_attempts(struct cairn_srv_tx *tx, struct cairn_srv_mend *mend,
                                     struct cairn_srv_run *run, struct cairn_error *err) {
    for (size_t i = 0; i < mend->attempt_count; i++) {
        const struct cairn_srv_mend_attempt *one = &mend->attempts[i];
        bool taken = false;
        if (one->number < run->attempt) continue;
        run->attempt = one->number;
        if (!one->readable) {
            struct cairn_key key;
            uint8_t nonce[16];
            mend->server->random(nonce, sizeof(nonce));
            cairn_hex_encode(nonce, sizeof(nonce), run->nonce);
            cairn_key_attempt(&mend->objects.name, one->number, &key);
            CAIRN_TRY(put_aside(tx, mend, key.text, one->cause, err));
            continue;
        }
        (void)cairn_text_copy(run->nonce, sizeof(run->nonce), one->record.nonce);
        CAIRN_TRY(is_taken(tx, run->id, &one->record, &taken, err));
        if (!taken) CAIRN_TRY(insert_attempt(tx, mend, run->id, &one->record, err));
    }
    return cairn_srv_run_set_attempt(tx, run->id, run->attempt, run->nonce, err);
}

static int64_t wall_ms_of(const struct cairn_record *record) {
    struct tm when = {0};
    if (!strptime(record->committed_at, "%Y-%m-%dT%H:%M:%S", &when)) return 1;
    time_t seconds = timegm(&when);
    return seconds > 0 ? (int64_t)seconds * 1000 : 1; /* 0 would read as never committed */
}

static enum cairn_code make_version(struct cairn_srv_tx *tx, int64_t run_id,
                                    const struct cairn_srv_mend_version *one,
                                    struct cairn_error *err) {
    const struct cairn_manifest *manifest = &one->manifest;
    return cairn_srv_sql_run(
        tx, NULL, err, SQL(version_take), SQL_T(one->place.id.text), SQL_I(run_id),
        SQL_I(manifest->origin.attempt), SQL_I(manifest->origin.step), SQL_I(manifest->origin.n),
        SQL_T(manifest->origin.nonce), SQL_I(manifest->world_size), SQL_T(manifest->format_tag),
        SQL_T(manifest->labels_json), SQL_T(manifest->meta_json), SQL_I(wall_ms_of(&one->record)),
        SQL_I(cairn_srv_tick(tx)));
}

static enum cairn_code set_committed(struct cairn_srv_tx *tx,
                                     const struct cairn_srv_mend_version *one,
                                     struct cairn_error *err) {
    const struct cairn_manifest *manifest = &one->manifest;
    const char *id = one->place.id.text;
    struct cairn_view layout = {manifest->has_layout ? manifest->layout_digest : NULL, 32};
    CAIRN_TRY(
        cairn_srv_sql_run(tx, NULL, err, SQL(version_set_taken), SQL_T(id),
                          SQL_I(manifest->total_bytes), SQL_I(manifest->shard_count), SQL_B(layout),
                          SQL_T(manifest->has_layout ? manifest->layout_writer.text : NULL),
                          SQL_D(one->record.manifest_sha256), SQL_I(wall_ms_of(&one->record))));
    return cairn_srv_shards_drop(tx, id, err);
}

static enum cairn_code take_version(struct cairn_srv_tx *tx, struct cairn_srv_mend *mend,
                                    int64_t run_id, const struct cairn_srv_mend_version *one,
                                    struct cairn_error *err) {
    CAIRN_TRY(make_version(tx, run_id, one, err));
    CAIRN_AUTO(srv_version) version = {0};
    CAIRN_TRY(cairn_srv_version_get(tx, one->place.id.text, &version, err));
    struct cairn_srv_move move = {.event = CAIRN_EVENT_TAKE_OVER};
    CAIRN_TRY(cairn_srv_version_move(tx, &version, &move, err));
    CAIRN_TRY(set_committed(tx, one, err));
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
        struct cairn_key key;
        cairn_key_committed(&one->place, &key);
        CAIRN_TRY(put_aside(tx, mend, key.text, one->cause, err));
        mend->set_aside++;
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
        CAIRN_TRY(cairn_srv_sql_run(tx, NULL, err, SQL(version_settle_missing), SQL_T(one->id.text),
                                    SQL_I(one->gone), SQL_I(cairn_srv_tick(tx))));
    }
    return CAIRN_OK;
}

/* A newer attempt has taken over from what is open under older ones (Q26). */
static enum cairn_code give_up_open(struct cairn_srv_tx *tx, struct cairn_srv_mend *mend,
                                    const struct cairn_srv_run *run, struct cairn_error *err) {
    mend->given_up = 0;
    for (;;) {
        char id[CAIRN_VERSION_ID_BYTES] = "";
        {
            CAIRN_AUTO(srv_rows) rows = {0};
            bool more = false;
            CAIRN_TRY(cairn_srv_sql_open(tx, &rows, err, SQL(version_open_before), SQL_I(run->id),
                                         SQL_I(run->attempt)));
            CAIRN_TRY(cairn_srv_rows_next(&rows, &more, err));
            if (more) (void)cairn_text_copy(id, sizeof(id), cairn_srv_rows_text(&rows, 0));
        }
        if (!id[0]) return CAIRN_OK;
        CAIRN_AUTO(srv_version) version = {0};
        CAIRN_TRY(cairn_srv_version_get(tx, id, &version, err));
        struct cairn_srv_move move = {.event = CAIRN_EVENT_GIVE_UP,
                                      .code = CAIRN_STALE_ATTEMPT,
                                      .reason = "a newer attempt was found in the store"};
        CAIRN_TRY(cairn_srv_version_move(tx, &version, &move, err));
        mend->given_up++;
    }
}

static enum cairn_code apply(struct cairn_srv_tx *tx, void *argument, struct cairn_error *err) {
    struct cairn_srv_mend *mend = argument;
    CAIRN_AUTO(srv_run) run = {0};
    CAIRN_TRY(cairn_srv_run_get(tx, &mend->objects.name, &run, err));
    uint64_t known_attempt = run.attempt;
    CAIRN_TRY(take_attempts(tx, mend, &run, err));
    CAIRN_TRY(take_versions(tx, mend, run.id, err));
    CAIRN_TRY(replay(tx, mend, known_attempt, err));
    for (size_t i = 0; i < mend->objects.version_count; i++)
        CAIRN_TRY(cairn_srv_mark_take(tx, &mend->objects.versions[i], err));
    CAIRN_TRY(settle_missing(tx, mend, err));
    CAIRN_TRY(give_up_open(tx, mend, &run, err));
    return cairn_srv_sql_run(tx, NULL, err, SQL(frozen_drop), SQL_I(run.id));
}

enum cairn_code cairn_srv_mend_apply(struct cairn_srv_mend *mend, struct cairn_error *err) {
    CAIRN_TRY(cairn_srv_catalog_write(mend->server->catalog, apply, mend, err));
    atomic_fetch_sub(&mend->server->frozen_runs, 1);
    char text[2 * CAIRN_NAME_BYTES_MAX + 2];
    snprintf(text, sizeof(text), "%s/%s", mend->objects.name.project, mend->objects.name.run);
    cairn_srv_waiters_tell(mend->server->waiters, text);
    return CAIRN_OK;
}
