/* SPDX-License-Identifier: Apache-2.0 */
/* committed.json and `recorded` (Q24, Q52), marks, and attempt records (Q5); see records.h. */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "api/documents/manifest.h"
#include "api/documents/records.h"
#include "common/clock.h"
#include "common/hooks.h"
#include "common/log.h"
#include "server/guard/identity.h"
#include "server/guard/records.h"
#include "server/http/waiters.h"
#include "server/ledger/attempts.h"
#include "server/ledger/shards.h"
#include "server/ledger/version_lists.h"
#include "server/sweep/sweep_objects.h"

#define MISSING_MAX 1000

/* ---- marks beside committed.json ---- */

#define OLDER_MAX 1000
#define SETTLE_TRIES_MAX 8

static enum cairn_code put(struct cairn_store_worker *worker, const struct cairn_key *key,
                           const char *kind, const char *id, struct cairn_error *err) {
    char text[128];
    int size = snprintf(text, sizeof(text), "{\"%s\":1,\"version\":\"%s\"}", kind, id);
    return cairn_store_put_same(worker, key->text, (struct cairn_view){text, (size_t)size}, err);
}

enum cairn_code cairn_srv_mark_trashed(struct cairn_store_worker *worker,
                                       const struct cairn_srv_version *version, bool trashed,
                                       struct cairn_error *err) {
    struct cairn_version_place place = cairn_srv_version_place(version);
    struct cairn_key key;
    cairn_key_trashed(&place, &key);
    enum cairn_code code = trashed ? put(worker, &key, "cairn_trashed", version->id.text, err)
                                   : cairn_store_delete(worker, key.text, err);
    return code ? cairn_within(err, code, "%s", key.text) : CAIRN_OK;
}

struct look {
    const char *id;
    struct cairn_srv_version version;
};

static enum cairn_code get_version(struct cairn_srv_tx *tx, void *argument,
                                   struct cairn_error *err) {
    struct look *look = argument;
    cairn_srv_version_release(&look->version);
    return cairn_srv_version_get(tx, look->id, &look->version, err);
}

/* Calls about one version may cross: the last to read the row sets the mark last. */
enum cairn_code cairn_srv_mark_settle(struct cairn_srv *server, struct cairn_store_worker *worker,
                                      const char *id, struct cairn_error *err) {
    struct look look = {.id = id};
    enum cairn_code code = cairn_srv_catalog_read(server->catalog, get_version, &look, err);
    for (int i = 0; !code && i < SETTLE_TRIES_MAX; i++) {
        bool trashed = look.version.trashed;
        if (look.version.state != CAIRN_STATE_COMMITTED) break;
        code = cairn_srv_mark_trashed(worker, &look.version, trashed, err);
        if (!code) code = cairn_srv_catalog_read(server->catalog, get_version, &look, err);
        if (!code && look.version.trashed == trashed) break;
    }
    cairn_srv_version_release(&look.version);
    return code;
}

/* ---- superseded by a save ---- */

struct older {
    const struct cairn_srv_version *by;
    struct cairn_srv_ids ids;
};

static enum cairn_code find_older(struct cairn_srv_tx *tx, void *argument,
                                  struct cairn_error *err) {
    struct older *older = argument;
    return cairn_srv_versions_older(tx, older->by, OLDER_MAX, &older->ids, err);
}

/* Marks the versions that a committed version supersedes. */
static enum cairn_code mark_superseded(struct cairn_srv *server, struct cairn_store_worker *worker,
                                       const struct cairn_srv_version *version,
                                       struct cairn_error *err) {
    if (version->on_exists != CAIRN_SRV_EXISTS_SUPERSEDE) return CAIRN_OK;
    struct older older = {.by = version};
    enum cairn_code code = cairn_srv_catalog_read(server->catalog, find_older, &older, err);
    for (size_t i = 0; i < older.ids.count && !code; i++) {
        const struct cairn_version_id *id = &older.ids.ids[i];
        struct cairn_version_place place = {version->name, version->step, *id};
        struct cairn_key key;
        cairn_key_superseded(&place, version->attempt, &key);
        code = put(worker, &key, "cairn_superseded", id->text, err);
    }
    cairn_srv_ids_release(&older.ids);
    return code;
}

/* ---- rows follow the store ---- */

struct unmarked {
    struct cairn_srv_run_objects *objects;
    struct cairn_srv_seen **missing; /* trashed in their rows, without a mark; owned */
    size_t count;
    int64_t run_id; /* 0: no mark is missing */
};

static enum cairn_code add_missing(void *argument, const char *id, uint64_t step, bool trashed,
                                   struct cairn_error *err) {
    struct unmarked *unmarked = argument;
    const struct cairn_srv_seen *seen = cairn_srv_run_objects_find(unmarked->objects, id);
    (void)step;
    (void)err;
    if (!trashed || !seen || seen->trashed) return CAIRN_OK;
    unmarked->missing[unmarked->count++] =
        &unmarked->objects->versions[seen - unmarked->objects->versions];
    return CAIRN_OK;
}

static enum cairn_code find_unmarked(struct cairn_srv_tx *tx, void *argument,
                                     struct cairn_error *err) {
    struct unmarked *unmarked = argument;
    CAIRN_AUTO(srv_run) run = {0};
    enum cairn_code code = cairn_srv_run_get(tx, &unmarked->objects->name, &run, err);
    if (code || !run.unmarked) return code == CAIRN_NOT_FOUND ? CAIRN_OK : code;
    unmarked->run_id = run.id;
    return cairn_srv_versions_recorded(tx, &run.name, add_missing, unmarked, err);
}

static enum cairn_code set_marked(struct cairn_srv_tx *tx, void *argument,
                                  struct cairn_error *err) {
    const struct unmarked *unmarked = argument;
    return cairn_srv_run_set_marked(tx, unmarked->run_id, err);
}

enum cairn_code cairn_srv_marks_write_missing(struct cairn_srv *server,
                                              struct cairn_store_worker *worker,
                                              struct cairn_srv_run_objects *objects,
                                              struct cairn_error *err) {
    if (!objects->listed || server->settings->adopt_store) return CAIRN_OK;
    CAIRN_AUTO_HEAP struct cairn_srv_seen **missing =
        calloc(objects->version_count + 1, sizeof(*missing));
    if (!missing) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for marks");
    struct unmarked unmarked = {.objects = objects, .missing = missing};
    CAIRN_TRY(cairn_srv_catalog_read(server->catalog, find_unmarked, &unmarked, err));
    if (!unmarked.run_id) return CAIRN_OK;
    for (size_t i = 0; i < unmarked.count; i++) {
        struct cairn_version_place place = {objects->name, missing[i]->step, missing[i]->id};
        struct cairn_key key;
        cairn_key_trashed(&place, &key);
        CAIRN_TRY(put(worker, &key, "cairn_trashed", missing[i]->id.text, err));
        missing[i]->trashed = true;
    }
    cairn_log(INFO, "trash.marked", "run=%s/%s versions=%zu", objects->name.project,
              objects->name.run, unmarked.count);
    return cairn_srv_catalog_write(server->catalog, set_marked, &unmarked, err);
}

struct follow {
    const struct cairn_srv_run_objects *objects;
    bool differs;
};

static enum cairn_code compare_one(void *argument, const char *id, uint64_t step, bool trashed,
                                   struct cairn_error *err) {
    struct follow *follow = argument;
    (void)step;
    (void)err;
    const struct cairn_srv_seen *seen = cairn_srv_run_objects_find(follow->objects, id);
    follow->differs |= seen && seen->trashed != trashed;
    return CAIRN_OK;
}

static enum cairn_code find_differing(struct cairn_srv_tx *tx, void *argument,
                                      struct cairn_error *err) {
    struct follow *follow = argument;
    return cairn_srv_versions_recorded(tx, &follow->objects->name, compare_one, follow, err);
}

/* Starts the grace period now: the deletion was not acknowledged, or this catalog lost its time. */
enum cairn_code cairn_srv_mark_take(struct cairn_srv_tx *tx, const struct cairn_srv_seen *seen,
                                    struct cairn_error *err) {
    return cairn_srv_version_follow_mark(tx, seen->id.text, seen->trashed, err);
}

static enum cairn_code take_all(struct cairn_srv_tx *tx, void *argument, struct cairn_error *err) {
    const struct follow *follow = argument;
    uint64_t changes = 0;
    CAIRN_TRY(cairn_srv_versions_trash_changes(tx, &follow->objects->name, &changes, err));
    if (changes != follow->objects->trash_changes)
        return cairn_fail(err, CAIRN_BUSY, "the trash of %s/%s changes while it is compared",
                          follow->objects->name.project, follow->objects->name.run);
    for (size_t i = 0; i < follow->objects->version_count; i++)
        CAIRN_TRY(cairn_srv_mark_take(tx, &follow->objects->versions[i], err));
    return CAIRN_OK;
}

enum cairn_code cairn_srv_marks_follow(struct cairn_srv *server,
                                       const struct cairn_srv_run_objects *objects,
                                       struct cairn_error *err) {
    struct follow follow = {.objects = objects};
    if (!objects->listed) return CAIRN_OK;
    CAIRN_TRY(cairn_srv_catalog_read(server->catalog, find_differing, &follow, err));
    if (!follow.differs) return CAIRN_OK;
    cairn_log(INFO, "trash.followed", "run=%s/%s the store's marks and the catalog differed",
              objects->name.project, objects->name.run);
    return cairn_srv_catalog_write(server->catalog, take_all, &follow, err);
}

/* ---- committed.json ---- */

enum cairn_code cairn_srv_record_text(const struct cairn_srv_version *version,
                                      struct cairn_buf *ret, struct cairn_error *err) {
    struct cairn_record record = {.id = version->id,
                                  .attempt = version->attempt,
                                  .step = version->step,
                                  .n = version->n,
                                  .line = version->line};
    memcpy(record.manifest_sha256, version->manifest_sha256, 32);
    cairn_time_text(version->committed_ms, false, record.committed_at);
    return cairn_record_encode(&record, ret, err);
}

enum cairn_code cairn_srv_record_supersede(struct cairn_srv_tx *tx,
                                           const struct cairn_srv_version *version,
                                           struct cairn_error *err) {
    if (version->on_exists != CAIRN_SRV_EXISTS_SUPERSEDE) return CAIRN_OK;
    return cairn_srv_versions_supersede_step(tx, version, err);
}

struct recording {
    const struct cairn_srv_version *version;
    struct cairn_srv_lease *lease;
    bool first; /* this transaction set `recorded` */
};

static enum cairn_code mark_recorded(struct cairn_srv_tx *tx, void *argument,
                                     struct cairn_error *err) {
    struct recording *recording = argument;
    const struct cairn_srv_version *version = recording->version;
    bool changed = false;
    CAIRN_TRY(cairn_srv_lease_check_expect(tx, recording->lease, err));
    CAIRN_TRY(cairn_srv_version_set_recorded_expect(tx, version->id.text, err));
    CAIRN_TRY(cairn_srv_lease_check(tx, recording->lease, err));
    CAIRN_TRY(cairn_srv_version_set_recorded(tx, version, &changed, err));
    CAIRN_TRY(cairn_srv_lease_drop_in(tx, recording->lease, err));
    recording->first = changed;
    return changed && CAIRN_RULE(Q52) ? cairn_srv_record_supersede(tx, version, err) : CAIRN_OK;
}

enum cairn_code cairn_srv_record_write(struct cairn_srv *server, struct cairn_store_worker *worker,
                                       const struct cairn_srv_version *version,
                                       struct cairn_srv_lease *lease, struct cairn_error *err) {
    struct recording recording = {version, lease, false};
    CAIRN_AUTO(buf) text = {0};
    CAIRN_ASSERT(version->state == CAIRN_STATE_COMMITTED);
    CAIRN_ASSERT(version->has_manifest);
    CAIRN_ASSERT(version->committed_ms); /* the record is permanent: 1970 would stay */
    CAIRN_TRY(cairn_srv_record_text(version, &text, err));
    struct cairn_version_place place = cairn_srv_version_place(version);
    struct cairn_key key;
    cairn_key_committed(&place, &key);
    CAIRN_CRASHPOINT("server.commit.before_record");
    CAIRN_TRY(cairn_srv_lease_still(lease, err));
    enum cairn_code code = cairn_store_put_same(worker, key.text, cairn_buf_view(&text), err);
    if (code == CAIRN_CONFLICT)
        return cairn_srv_run_freeze(server, &version->name,
                                    "the store holds another committed.json of a version", err);
    if (code) return code;
    CAIRN_CRASHPOINT("server.commit.after_record");
    CAIRN_TRY(mark_superseded(server, worker, version, err));
    /* Before `recorded` is set: after a crash the next server does both. */
    cairn_srv_sweep_uploads(worker, version);
    CAIRN_TRY(cairn_srv_catalog_write(server->catalog, mark_recorded, &recording, err));
    if (lease) lease->dropped = true;
    CAIRN_CRASHPOINT("server.commit.after_recorded");
    if (!recording.first) return CAIRN_OK;
    cairn_log(INFO, "checkpoint.committed", "version=%s run=%s/%s step=%" PRIu64 " bytes=%" PRIu64,
              version->id.text, version->name.project, version->name.run, version->step,
              version->bytes);
    cairn_srv_waiters_wake_version(server->waiters, &version->id, &version->name);
    return CAIRN_OK;
}

/* ---- rows ---- */

static enum cairn_code drop_rows(struct cairn_srv_tx *tx, void *argument, struct cairn_error *err) {
    const char *id = argument;
    return cairn_srv_shards_drop(tx, id, err);
}

void cairn_srv_record_drop_rows(struct cairn_srv *server, const struct cairn_srv_version *version) {
    struct cairn_version_id id = version->id;
    struct cairn_error why = {0};
    if (cairn_srv_catalog_write(server->catalog, drop_rows, id.text, &why) != CAIRN_OK)
        cairn_log(INFO, "commit.rows_left", "version=%s cause=\"%s\"", id.text, why.message);
}

/* ---- missing records of a run ---- */

struct missing {
    const struct cairn_run_name *name;
    struct cairn_srv_ids ids;
    const char *id;
    struct cairn_srv_version version;
};

static enum cairn_code find_missing(struct cairn_srv_tx *tx, void *argument,
                                    struct cairn_error *err) {
    struct missing *missing = argument;
    return cairn_srv_versions_unrecorded(tx, missing->name, MISSING_MAX, &missing->ids, err);
}

static enum cairn_code get_missing(struct cairn_srv_tx *tx, void *argument,
                                   struct cairn_error *err) {
    struct missing *missing = argument;
    cairn_srv_version_release(&missing->version);
    return cairn_srv_version_get(tx, missing->id, &missing->version, err);
}

enum cairn_code cairn_srv_record_write_missing(struct cairn_srv *server,
                                               struct cairn_store_worker *worker,
                                               const struct cairn_run_name *name,
                                               struct cairn_error *err) {
    struct missing missing = {.name = name};
    enum cairn_code code = cairn_srv_catalog_read(server->catalog, find_missing, &missing, err);
    for (size_t i = 0; i < missing.ids.count && !code; i++) {
        missing.id = missing.ids.ids[i].text;
        code = cairn_srv_catalog_read(server->catalog, get_missing, &missing, err);
        if (code || missing.version.state != CAIRN_STATE_COMMITTED || missing.version.recorded)
            continue;
        code = cairn_srv_record_write(server, worker, &missing.version, NULL, err);
        if (!code) cairn_srv_record_drop_rows(server, &missing.version);
        if (code) (void)cairn_within(err, code, "the record of %s is missing", missing.id);
    }
    cairn_srv_ids_release(&missing.ids);
    cairn_srv_version_release(&missing.version);
    return code;
}

/* ---- attempt records and their copies ---- */

#define COPY_MS 2000 /* total wait of an attempt call for all copies */

struct unrecorded {
    const struct cairn_run_name *name;
    enum cairn_srv_recorded state;
    uint64_t copies_until_ms;
    bool found;
    int64_t run_id;
    struct cairn_attempt_record record;
};

static enum cairn_code find_unrecorded(struct cairn_srv_tx *tx, void *argument,
                                       struct cairn_error *err) {
    struct unrecorded *unrecorded = argument;
    return cairn_srv_attempt_unrecorded(tx, unrecorded->name, unrecorded->state, &unrecorded->found,
                                        &unrecorded->run_id, &unrecorded->record, err);
}

static enum cairn_code mark_attempt(struct cairn_srv_tx *tx, void *argument,
                                    struct cairn_error *err) {
    const struct unrecorded *unrecorded = argument;
    return cairn_srv_attempt_set_recorded(tx, unrecorded->run_id, unrecorded->record.attempt,
                                          unrecorded->state, err);
}

/* The key has other content (Q36). */
static enum cairn_code judge_put(struct cairn_srv *server, const struct unrecorded *unrecorded,
                                 enum cairn_code code, struct cairn_error *err) {
    if (code == CAIRN_CONFLICT) {
        char why[96];
        snprintf(why, sizeof(why), "the store already has another attempt %" PRIu64,
                 unrecorded->record.attempt);
        return cairn_srv_run_freeze(server, unrecorded->name, why, err);
    }
    return code ? cairn_within(err, code, "record of attempt %" PRIu64, unrecorded->record.attempt)
                : CAIRN_OK;
}

static enum cairn_code put_record(struct cairn_srv *server, struct cairn_store_worker *worker,
                                  const struct unrecorded *unrecorded, const struct cairn_buf *text,
                                  struct cairn_error *err) {
    struct cairn_key key;
    cairn_key_attempt(unrecorded->name, unrecorded->record.attempt, &key);
    return judge_put(server, unrecorded,
                     cairn_store_put_same(worker, key.text, cairn_buf_view(text), err), err);
}

/* CAIRN_OK: the same bytes. CAIRN_CONFLICT: other bytes. */
static enum cairn_code compare_copy(struct cairn_store_worker *worker, const char *key,
                                    const struct cairn_buf *text, struct cairn_error *err) {
    CAIRN_AUTO(buf) there = {.limit = CAIRN_MANIFEST_BYTES_MAX};
    enum cairn_code code = cairn_store_get_small(worker, key, &there, err);
    if (code && code != CAIRN_TOO_LARGE) return code;
    if (!code && there.size == text->size && !memcmp(there.data, text->data, text->size))
        return CAIRN_OK;
    return cairn_fail(err, CAIRN_CONFLICT, "object %s is there with other content", key);
}

/* *ret_late: an object store timed out, and nothing else is wrong. */
static enum cairn_code put_copy(struct cairn_srv *server, struct cairn_store_worker *worker,
                                const struct unrecorded *unrecorded, const struct cairn_buf *text,
                                bool *ret_late, struct cairn_error *err) {
    const struct cairn_store_profile *profile = cairn_store_profile(worker->store);
    struct cairn_key key;
    struct cairn_error why = {0};
    uint64_t until_ms = unrecorded->copies_until_ms;
    cairn_key_attempt_copy(unrecorded->name, unrecorded->record.attempt, &key);
    if (!profile->over_network || !profile->create_only_put)
        return judge_put(server, unrecorded,
                         cairn_store_put_same(worker, key.text, cairn_buf_view(text), err), err);
    struct cairn_store_request put = {.op = CAIRN_STORE_PUT,
                                      .key = key.text,
                                      .body = cairn_buf_view(text),
                                      .create = true,
                                      .deadline_ms = until_ms};
    enum cairn_code code = cairn_store_perform(worker, &put, &why);
    if (code == CAIRN_PRECONDITION || code == CAIRN_CONFLICT) /* ours, after a lost answer? */
        code = compare_copy(worker, key.text, text, &why);
    *ret_late = code && (code == CAIRN_NOT_FOUND || cairn_code_info(code)->retryable);
    if (code && err) *err = why;
    return *ret_late ? CAIRN_OK : judge_put(server, unrecorded, code, err);
}

/* Writes one missing record or copy, then updates its row. */
static enum cairn_code write_one(struct cairn_srv *server, struct cairn_store_worker *worker,
                                 struct unrecorded *unrecorded, struct cairn_error *err) {
    CAIRN_AUTO(buf) text = {.limit = CAIRN_MANIFEST_BYTES_MAX};
    bool late = false;
    CAIRN_TRY(cairn_srv_catalog_read(server->catalog, find_unrecorded, unrecorded, err));
    if (!unrecorded->found) return CAIRN_OK;
    CAIRN_CRASHPOINT("server.attempt.after_transaction");
    CAIRN_TRY(cairn_attempt_record_encode(&unrecorded->record, &text, err));
    if (unrecorded->state == CAIRN_SRV_RECORD_MISSING)
        CAIRN_TRY(put_record(server, worker, unrecorded, &text, err));
    CAIRN_TRY(put_copy(server, worker, unrecorded, &text, &late, err));
    CAIRN_CRASHPOINT("server.attempt.after_record");
    if (late) {
        server->copies_missing = true;
        if (unrecorded->state == CAIRN_SRV_RECORD_MISSING)
            cairn_log(WARN, "attempt.copy_late", "run=%s/%s attempt=%" PRIu64,
                      unrecorded->name->project, unrecorded->name->run, unrecorded->record.attempt);
        unrecorded->found &=
            unrecorded->state == CAIRN_SRV_RECORD_MISSING; /* copies are retried later */
    }
    if (!late && unrecorded->state == CAIRN_SRV_RECORD_COPY_MISSING)
        cairn_log(INFO, "attempt.copy_there", "run=%s/%s attempt=%" PRIu64,
                  unrecorded->name->project, unrecorded->name->run, unrecorded->record.attempt);
    unrecorded->state = late ? CAIRN_SRV_RECORD_COPY_MISSING : CAIRN_SRV_RECORD_THERE;
    return cairn_srv_catalog_write(server->catalog, mark_attempt, unrecorded, err);
}

static enum cairn_code write_all(struct cairn_srv *server, struct cairn_store_worker *worker,
                                 const struct cairn_run_name *name, enum cairn_srv_recorded state,
                                 struct cairn_error *err) {
    uint64_t until_ms = cairn_mono_ms() + COPY_MS;
    bool more = true;
    while (more) {
        struct unrecorded unrecorded = {.name = name, .state = state, .copies_until_ms = until_ms};
        enum cairn_code code = write_one(server, worker, &unrecorded, err);
        more = unrecorded.found;
        cairn_attempt_record_release(&unrecorded.record);
        if (code) return code;
    }
    return CAIRN_OK;
}

enum cairn_code cairn_srv_attempt_records_write(struct cairn_srv *server,
                                                struct cairn_store_worker *worker,
                                                const struct cairn_run_name *name,
                                                struct cairn_error *err) {
    return write_all(server, worker, name, CAIRN_SRV_RECORD_MISSING, err);
}

struct run_of_copy {
    bool found;
    struct cairn_run_name name;
};
static enum cairn_code find_run(struct cairn_srv_tx *tx, void *argument, struct cairn_error *err) {
    struct run_of_copy *run = argument;
    return cairn_srv_attempt_copy_missing(tx, &run->found, &run->name, err);
}

enum cairn_code cairn_srv_attempt_copies_write(struct cairn_srv *server,
                                               struct cairn_store_worker *worker,
                                               struct cairn_error *err) {
    struct run_of_copy run = {0};
    if (!server->copies_missing) return CAIRN_OK;
    server->copies_missing = false;
    enum cairn_code code = cairn_srv_catalog_read(server->catalog, find_run, &run, err);
    if (!code && run.found)
        code = write_all(server, worker, &run.name, CAIRN_SRV_RECORD_COPY_MISSING, err);
    if (code || run.found) server->copies_missing = true;
    return code;
}
