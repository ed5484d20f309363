/* SPDX-License-Identifier: Apache-2.0 */
/* committed.json and `recorded` (Q24, Q52), marks, and attempt records (Q5); see records.h. */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

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

/* Room for one mark. */
struct mark_text {
    char bytes[128];
};

static struct cairn_view mark_of(const char *kind, const char *id, struct mark_text *text) {
    int size =
        snprintf(text->bytes, sizeof(text->bytes), "{\"%s\":1,\"version\":\"%s\"}", kind, id);
    return (struct cairn_view){text->bytes, (size_t)size};
}

/* No version is deleted without this mark: a full store must take it. */
static enum cairn_code put_trashed(struct cairn_store_worker *worker, const struct cairn_key *key,
                                   const char *id, struct cairn_error *err) {
    struct mark_text text;
    return cairn_store_put_to_free(worker, key->text, mark_of("cairn_trashed", id, &text), false,
                                   err);
}

enum cairn_code srv_mark_trashed(struct cairn_store_worker *worker,
                                 const struct srv_version *version, bool trashed,
                                 struct cairn_error *err) {
    struct cairn_version_place place = srv_version_place(version);
    struct cairn_key key;
    cairn_key_trashed(&place, &key);
    enum cairn_code code = trashed ? put_trashed(worker, &key, version->id.text, err)
                                   : cairn_store_delete(worker, key.text, err);
    return code ? cairn_within(err, code, "%s", key.text) : CAIRN_OK;
}

/* Calls about one version may cross: the last to read the row sets the mark last. */
enum cairn_code srv_mark_settle(struct srv *server, struct cairn_store_worker *worker,
                                const char *id, struct cairn_error *err) {
    SRV_GET(version, version, srv_version_look(server->catalog, id, &version, err));
    for (int i = 0; i < SETTLE_TRIES_MAX && version.state == CAIRN_STATE_COMMITTED; i++) {
        bool trashed = version.trashed;
        CAIRN_TRY(srv_mark_trashed(worker, &version, trashed, err));
        CAIRN_TRY(srv_version_look(server->catalog, id, &version, err));
        if (version.trashed == trashed) break;
    }
    return CAIRN_OK;
}

/* ---- superseded by a save ---- */

/* Marks the versions that a committed version supersedes. */
static enum cairn_code mark_superseded(struct srv *server, struct cairn_store_worker *worker,
                                       const struct srv_version *version, struct cairn_error *err) {
    if (version->on_exists != SRV_EXISTS_SUPERSEDE) return CAIRN_OK;
    SRV_LOOK(look, server->catalog, err);
    SRV_GET(ids, older, srv_versions_older(look.tx, version, OLDER_MAX, &older, err));
    srv_look_release(&look);
    for (size_t i = 0; i < older.count; i++) {
        struct cairn_version_place place = {version->name, version->step, older.ids[i]};
        struct cairn_key key;
        struct mark_text text;
        cairn_key_superseded(&place, version->attempt, &key);
        CAIRN_TRY(cairn_store_put_same(worker, key.text,
                                       mark_of("cairn_superseded", older.ids[i].text, &text), err));
    }
    return CAIRN_OK;
}

/* ---- rows follow the store ---- */

SRV_CHANGE(set_marked, const struct srv_run *run) {
    return srv_run_set_marked(tx, run->id, err);
}

enum cairn_code srv_marks_write_missing(struct srv *server, struct cairn_store_worker *worker,
                                        struct srv_run_objects *objects, struct cairn_error *err) {
    if (!objects->listed || server->settings->adopt_store) return CAIRN_OK;
    CAIRN_AUTO_HEAP struct srv_seen **missing =
        calloc(objects->version_count + 1, sizeof(*missing));
    if (!missing) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for marks");
    size_t count = 0; /* trashed in their rows, without a mark */
    SRV_AUTO(run) run = {0};
    {
        SRV_LOOK(look, server->catalog, err);
        enum cairn_code code = srv_run_get(look.tx, &objects->name, &run, err);
        if (code || !run.unmarked) return code == CAIRN_NOT_FOUND ? CAIRN_OK : code;
        SRV_GET(rows, rows, srv_versions_recorded(look.tx, &run.name, &rows, err));
        SQL_EACH(&rows, err) {
            const struct srv_recorded_row row = srv_row_recorded(&rows);
            const struct srv_seen *seen = srv_run_objects_find(objects, row.id);
            if (row.trashed && seen && !seen->trashed)
                missing[count++] = &objects->versions[seen - objects->versions];
        }
    }
    for (size_t i = 0; i < count; i++) {
        struct cairn_version_place place = {objects->name, missing[i]->step, missing[i]->id};
        struct cairn_key key;
        cairn_key_trashed(&place, &key);
        CAIRN_TRY(put_trashed(worker, &key, missing[i]->id.text, err));
        missing[i]->trashed = true;
    }
    cairn_log(INFO, "trash.marked", "run=%s/%s versions=%zu", objects->name.project,
              objects->name.run, count);
    return srv_catalog_write(server->catalog, set_marked, &run, err);
}

SRV_CHANGE(take_all, const struct srv_run_objects *objects) {
    uint64_t changes = 0;
    CAIRN_TRY(srv_versions_trash_changes(tx, &objects->name, &changes, err));
    if (changes != objects->trash_changes)
        return cairn_fail(err, CAIRN_BUSY, "the trash of %s/%s changes while it is compared",
                          objects->name.project, objects->name.run);
    /* Grace periods start now: the deletion was not acknowledged, or this catalog lost its time. */
    for (size_t i = 0; i < objects->version_count; i++)
        CAIRN_TRY(srv_version_follow_mark(tx, objects->versions[i].id.text,
                                          objects->versions[i].trashed, err));
    return CAIRN_OK;
}

enum cairn_code srv_marks_follow(struct srv *server, const struct srv_run_objects *objects,
                                 struct cairn_error *err) {
    bool differs = false;
    if (!objects->listed) return CAIRN_OK;
    {
        SRV_LOOK(look, server->catalog, err);
        SRV_GET(rows, rows, srv_versions_recorded(look.tx, &objects->name, &rows, err));
        SQL_EACH(&rows, err) {
            const struct srv_recorded_row row = srv_row_recorded(&rows);
            const struct srv_seen *seen = srv_run_objects_find(objects, row.id);
            differs |= seen && seen->trashed != row.trashed;
        }
    }
    if (!differs) return CAIRN_OK;
    cairn_log(INFO, "trash.followed", "run=%s/%s the store's marks and the catalog differed",
              objects->name.project, objects->name.run);
    return srv_catalog_write(server->catalog, take_all, (void *)(uintptr_t)objects, err);
}

/* ---- committed.json ---- */

enum cairn_code srv_record_text(const struct srv_version *version, struct cairn_buf *ret,
                                struct cairn_error *err) {
    struct cairn_record record = {.id = version->id,
                                  .attempt = version->attempt,
                                  .step = version->step,
                                  .n = version->n,
                                  .line = version->line};
    memcpy(record.manifest_sha256, version->manifest_sha256, 32);
    cairn_time_text(version->committed_ms, false, record.committed_at);
    return cairn_record_encode(&record, ret, err);
}

enum cairn_code srv_record_supersede(struct srv_tx *tx, const struct srv_version *version,
                                     struct cairn_error *err) {
    if (version->on_exists != SRV_EXISTS_SUPERSEDE) return CAIRN_OK;
    return srv_versions_supersede_step(tx, version, err);
}

struct recording {
    const struct srv_version *version;
    struct srv_lease *lease;
    bool first; /* this transaction set `recorded` */
};

SRV_CHANGE(mark_recorded, struct recording *recording) {
    const struct srv_version *version = recording->version;
    bool changed = false;
    CAIRN_TRY(srv_lease_check_expect(tx, recording->lease, err));
    CAIRN_TRY(srv_version_set_recorded_expect(tx, version->id.text, err));
    CAIRN_TRY(srv_lease_check(tx, recording->lease, err));
    CAIRN_TRY(srv_version_set_recorded(tx, version, &changed, err));
    CAIRN_TRY(srv_lease_drop_in(tx, recording->lease, err));
    recording->first = changed;
    return changed && CAIRN_RULE(Q52) ? srv_record_supersede(tx, version, err) : CAIRN_OK;
}

enum cairn_code srv_record_write(struct srv *server, struct cairn_store_worker *worker,
                                 const struct srv_version *version, struct srv_lease *lease,
                                 struct cairn_error *err) {
    struct recording recording = {version, lease, false};
    CAIRN_AUTO(buf) text = {0};
    CAIRN_ASSERT(version->state == CAIRN_STATE_COMMITTED);
    CAIRN_ASSERT(version->has_manifest);
    CAIRN_ASSERT(version->committed_ms); /* the record is permanent: 1970 would stay */
    CAIRN_TRY(srv_record_text(version, &text, err));
    struct cairn_version_place place = srv_version_place(version);
    struct cairn_key key;
    cairn_key_committed(&place, &key);
    CAIRN_CRASHPOINT("server.commit.before_record");
    CAIRN_TRY(srv_lease_still(lease, err));
    enum cairn_code code = cairn_store_put_same(worker, key.text, cairn_buf_view(&text), err);
    if (code == CAIRN_CONFLICT)
        return srv_run_freeze(server, &version->name,
                              "the store holds another committed.json of a version", err);
    if (code) return code;
    CAIRN_CRASHPOINT("server.commit.after_record");
    CAIRN_TRY(mark_superseded(server, worker, version, err));
    /* Before `recorded` is set: after a crash the next server does both. */
    srv_sweep_uploads(worker, version);
    CAIRN_TRY(srv_catalog_write(server->catalog, mark_recorded, &recording, err));
    if (lease) lease->dropped = true;
    CAIRN_CRASHPOINT("server.commit.after_recorded");
    if (!recording.first) return CAIRN_OK;
    cairn_log(INFO, "checkpoint.committed", "version=%s run=%s/%s step=%" PRIu64 " bytes=%" PRIu64,
              version->id.text, version->name.project, version->name.run, version->step,
              version->bytes);
    srv_waiters_wake_version(server->waiters, &version->id, &version->name);
    return CAIRN_OK;
}

/* ---- rows ---- */

SRV_CHANGE(drop_rows, const char *id) {
    return srv_shards_drop(tx, id, err);
}

void srv_record_drop_rows(struct srv *server, const struct srv_version *version) {
    struct cairn_version_id id = version->id;
    struct cairn_error why = {0};
    if (srv_catalog_write(server->catalog, drop_rows, id.text, &why) != CAIRN_OK)
        cairn_log(INFO, "commit.rows_left", "version=%s cause=\"%s\"", id.text, why.message);
}

/* ---- missing records of a run ---- */

enum cairn_code srv_record_write_missing(struct srv *server, struct cairn_store_worker *worker,
                                         const struct cairn_run_name *name,
                                         struct cairn_error *err) {
    SRV_AUTO(version) version = {0};
    SRV_LOOK(look, server->catalog, err);
    SRV_GET(ids, missing, srv_versions_unrecorded(look.tx, name, MISSING_MAX, &missing, err));
    srv_look_release(&look);
    for (size_t i = 0; i < missing.count; i++) {
        const char *id = missing.ids[i].text;
        CAIRN_TRY(srv_version_look(server->catalog, id, &version, err));
        if (version.state != CAIRN_STATE_COMMITTED || version.recorded) continue;
        enum cairn_code code = srv_record_write(server, worker, &version, NULL, err);
        if (code) return cairn_within(err, code, "the record of %s is missing", id);
        srv_record_drop_rows(server, &version);
    }
    return CAIRN_OK;
}

/* ---- attempt records and their copies ---- */

#define COPY_MS 2000 /* total wait of an attempt call for all copies */

struct unrecorded {
    const struct cairn_run_name *name;
    enum srv_recorded state;
    uint64_t copies_until_ms;
    bool found;
    int64_t run_id;
    struct cairn_attempt_record record;
};

SRV_CHANGE(mark_attempt, const struct unrecorded *unrecorded) {
    return srv_attempt_set_recorded(tx, unrecorded->run_id, unrecorded->record.attempt,
                                    unrecorded->state, err);
}

/* The key has other content (Q36). */
static enum cairn_code judge_put(struct srv *server, const struct unrecorded *unrecorded,
                                 enum cairn_code code, struct cairn_error *err) {
    if (code == CAIRN_CONFLICT) {
        char why[96];
        snprintf(why, sizeof(why), "the store already has another attempt %" PRIu64,
                 unrecorded->record.attempt);
        return srv_run_freeze(server, unrecorded->name, why, err);
    }
    return code ? cairn_within(err, code, "record of attempt %" PRIu64, unrecorded->record.attempt)
                : CAIRN_OK;
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
static enum cairn_code put_copy(struct srv *server, struct cairn_store_worker *worker,
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
static enum cairn_code write_one(struct srv *server, struct cairn_store_worker *worker,
                                 struct unrecorded *unrecorded, struct cairn_error *err) {
    CAIRN_AUTO(buf) text = {.limit = CAIRN_MANIFEST_BYTES_MAX};
    bool late = false;
    SRV_LOOK(look, server->catalog, err);
    CAIRN_TRY(srv_attempt_unrecorded(look.tx, unrecorded->name, unrecorded->state,
                                     &unrecorded->found, &unrecorded->run_id, &unrecorded->record,
                                     err));
    srv_look_release(&look);
    if (!unrecorded->found) return CAIRN_OK;
    CAIRN_CRASHPOINT("server.attempt.after_transaction");
    CAIRN_TRY(cairn_attempt_record_encode(&unrecorded->record, &text, err));
    if (unrecorded->state == SRV_RECORD_MISSING) {
        struct cairn_key key;
        cairn_key_attempt(unrecorded->name, unrecorded->record.attempt, &key);
        enum cairn_code code = cairn_store_put_same(worker, key.text, cairn_buf_view(&text), err);
        CAIRN_TRY(judge_put(server, unrecorded, code, err));
    }
    CAIRN_TRY(put_copy(server, worker, unrecorded, &text, &late, err));
    CAIRN_CRASHPOINT("server.attempt.after_record");
    if (late) {
        server->copies_missing = true;
        if (unrecorded->state == SRV_RECORD_MISSING)
            cairn_log(WARN, "attempt.copy_late", "run=%s/%s attempt=%" PRIu64,
                      unrecorded->name->project, unrecorded->name->run, unrecorded->record.attempt);
        unrecorded->found &= unrecorded->state == SRV_RECORD_MISSING; /* copies are retried later */
    }
    if (!late && unrecorded->state == SRV_RECORD_COPY_MISSING)
        cairn_log(INFO, "attempt.copy_there", "run=%s/%s attempt=%" PRIu64,
                  unrecorded->name->project, unrecorded->name->run, unrecorded->record.attempt);
    unrecorded->state = late ? SRV_RECORD_COPY_MISSING : SRV_RECORD_THERE;
    return srv_catalog_write(server->catalog, mark_attempt, unrecorded, err);
}

static enum cairn_code write_all(struct srv *server, struct cairn_store_worker *worker,
                                 const struct cairn_run_name *name, enum srv_recorded state,
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

enum cairn_code srv_attempt_records_write(struct srv *server, struct cairn_store_worker *worker,
                                          const struct cairn_run_name *name,
                                          struct cairn_error *err) {
    return write_all(server, worker, name, SRV_RECORD_MISSING, err);
}

enum cairn_code srv_attempt_copies_write(struct srv *server, struct cairn_store_worker *worker,
                                         struct cairn_error *err) {
    struct cairn_run_name name = {0};
    bool found = false;
    SRV_AUTO(look) look = {0};
    if (!server->copies_missing) return CAIRN_OK;
    server->copies_missing = false;
    enum cairn_code code = srv_look_begin(server->catalog, &look, err);
    if (!code) code = srv_attempt_copy_missing(look.tx, &found, &name, err);
    srv_look_release(&look);
    if (!code && found) code = write_all(server, worker, &name, SRV_RECORD_COPY_MISSING, err);
    if (code || found) server->copies_missing = true;
    return code;
}
