/* SPDX-License-Identifier: Apache-2.0 */
/* Marks beside committed.json; see marks.h. */
#include "server/guard/marks.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/log.h"
#include "common/text.h"
#include "server/ledger/version_lists.h"

#define OLDER_MAX 1000
#define SETTLE_TRIES_MAX 8

static enum cairn_code put(struct cairn_store_worker *worker, const struct cairn_key *key,
                           const char *kind, const char *id, struct cairn_error *err) {
    char text[128];
    int size = snprintf(text, sizeof(text), "{\"%s\":1,\"version\":\"%s\"}", kind, id);
    return cairn_store_put_same(worker, key->text, (struct cairn_view){text, (size_t)size}, err);
}

/* ---- the trash ---- */

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

/* Two calls about one version may cross: who sees the row last sets the mark last. */
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

enum cairn_code cairn_srv_mark_superseded(struct cairn_srv *server,
                                          struct cairn_store_worker *worker,
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

/* ---- rows after the store ---- */

struct unmarked {
    struct cairn_srv_run_objects *objects;
    struct cairn_srv_seen **missing; /* in the trash by their rows alone; owned */
    size_t count;
    int64_t run_id; /* 0: all marks are there */
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

static enum cairn_code find_missing(struct cairn_srv_tx *tx, void *argument,
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
    CAIRN_TRY(cairn_srv_catalog_read(server->catalog, find_missing, &unmarked, err));
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

/* Its grace begins now: the deletion was not answered, or this catalog has forgotten when. */
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
