/* SPDX-License-Identifier: Apache-2.0 */
/* Marks beside committed.json; see marks.h. */
#include "server/jobs/marks.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/log.h"
#include "common/text.h"

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
    struct cairn_version_id ids[OLDER_MAX];
    size_t count;
};

static enum cairn_code find_older(struct cairn_srv_tx *tx, void *argument,
                                  struct cairn_error *err) {
    struct older *older = argument;
    CAIRN_AUTO(srv_rows) rows = {0};
    CAIRN_TRY(cairn_srv_sql_open(tx, &rows, err, SQL(versions_older_of_step),
                                 SQL_I(older->by->run_id), SQL_I(older->by->step),
                                 SQL_I(older->by->attempt), SQL_I(older->by->n)));
    for (bool more = true; older->count < OLDER_MAX; older->count++) {
        CAIRN_TRY(cairn_srv_rows_next(&rows, &more, err));
        if (!more) return CAIRN_OK;
        (void)cairn_text_copy(older->ids[older->count].text, sizeof(older->ids[0].text),
                              cairn_srv_rows_text(&rows, 0));
    }
    return CAIRN_OK;
}

enum cairn_code cairn_srv_mark_superseded(struct cairn_srv *server,
                                          struct cairn_store_worker *worker,
                                          const struct cairn_srv_version *version,
                                          struct cairn_error *err) {
    if (version->on_exists != CAIRN_SRV_EXISTS_SUPERSEDE) return CAIRN_OK;
    CAIRN_AUTO_HEAP struct older *older = calloc(1, sizeof(*older));
    if (!older) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for marks");
    older->by = version;
    CAIRN_TRY(cairn_srv_catalog_read(server->catalog, find_older, older, err));
    for (size_t i = 0; i < older->count; i++) {
        struct cairn_version_place place = {version->name, version->step, older->ids[i]};
        struct cairn_key key;
        cairn_key_superseded(&place, version->attempt, &key);
        CAIRN_TRY(put(worker, &key, "cairn_superseded", older->ids[i].text, err));
    }
    return CAIRN_OK;
}

/* ---- rows after the store ---- */

struct follow {
    const struct cairn_srv_run_objects *objects;
    bool differs;
};

static enum cairn_code each_row(struct cairn_srv_tx *tx, struct follow *follow,
                                struct cairn_error *err) {
    CAIRN_AUTO(srv_rows) rows = {0};
    CAIRN_TRY(cairn_srv_sql_open(tx, &rows, err, SQL(versions_trash_of_run),
                                 SQL_T(follow->objects->name.project),
                                 SQL_T(follow->objects->name.run)));
    for (bool more = true; !follow->differs;) {
        CAIRN_TRY(cairn_srv_rows_next(&rows, &more, err));
        if (!more) return CAIRN_OK;
        const struct cairn_srv_seen *seen =
            cairn_srv_run_objects_find(follow->objects, cairn_srv_rows_text(&rows, 0));
        follow->differs = seen && seen->trashed == cairn_srv_rows_null(&rows, 1);
    }
    return CAIRN_OK;
}

static enum cairn_code find_differing(struct cairn_srv_tx *tx, void *argument,
                                      struct cairn_error *err) {
    return each_row(tx, argument, err);
}

/* Its grace begins now: nobody was told of it, or this catalog has forgotten when. */
enum cairn_code cairn_srv_mark_take(struct cairn_srv_tx *tx, const struct cairn_srv_seen *seen,
                                    struct cairn_error *err) {
    return cairn_srv_sql_run(tx, NULL, err, SQL(version_follow_mark), SQL_T(seen->id.text),
                             SQL_I(seen->trashed), SQL_I(cairn_srv_tick(tx)));
}

static enum cairn_code take_all(struct cairn_srv_tx *tx, void *argument, struct cairn_error *err) {
    const struct follow *follow = argument;
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
