/* SPDX-License-Identifier: Apache-2.0 */
/* Deleting what a dead version left in the store; see sweep_objects.h. */
#include "server/jobs/sweep_objects.h"

#include <inttypes.h>
#include <stdlib.h>

#include "common/crashpoint.h"
#include "common/log.h"
#include "common/text.h"
#include "server/catalog/layouts.h"
#include "server/catalog/shards.h"
#include "server/jobs/freeze.h"
#include "server/jobs/identity.h"
#include "server/jobs/lease.h"
#include "server/jobs/ticks.h"
#include "server/waiters.h"

#define PAGES_MAX 1000000

struct dead {
    struct cairn_srv *server;
    struct cairn_store_worker *worker;
    const char *id;
    struct cairn_srv_lease lease;
    struct cairn_srv_version version;
    bool record_aside; /* a reconcile found that its committed.json is none */
    bool own_layout;   /* written by this version, and named by none that committed */
    /* S27: a key that the store does not delete keeps none of the others. */
    enum cairn_code refused;
    struct cairn_error refusal; /* the first */
};

static enum cairn_code look(struct cairn_srv_tx *tx, void *argument, struct cairn_error *err) {
    struct dead *dead = argument;
    CAIRN_TRY(cairn_srv_version_get(tx, dead->id, &dead->version, err));
    const struct cairn_srv_version *version = &dead->version;
    struct cairn_version_place place = cairn_srv_version_place(version);
    struct cairn_key key;
    cairn_key_committed(&place, &key);
    CAIRN_TRY(cairn_srv_aside_there(tx, key.text, &dead->record_aside, err));
    if (!version->has_layout || strcmp(version->layout_writer.text, dead->id)) return CAIRN_OK;
    bool named = false;
    CAIRN_TRY(cairn_srv_layout_written_by(tx, version->run_id, dead->id, &named, err));
    dead->own_layout = !named;
    return CAIRN_OK;
}

/* Q32 */
static enum cairn_code no_record(struct dead *dead, const char *key, struct cairn_error *err) {
    struct cairn_store_request head = {.op = CAIRN_STORE_HEAD, .key = key};
    enum cairn_code code = cairn_store_perform(dead->worker, &head, err);
    if (code == CAIRN_NOT_FOUND) return CAIRN_OK;
    if (code) return code;
    cairn_log(ERROR, "sweep.record_found",
              "version=%s the store says it is committed, the catalog that it was given up",
              dead->id);
    return cairn_srv_run_freeze(dead->server, &dead->version.name,
                                "a version that was given up has a committed.json", err);
}

static enum cairn_code delete_records(struct dead *dead, struct cairn_error *err) {
    struct cairn_version_place place = cairn_srv_version_place(&dead->version);
    struct cairn_key key;
    cairn_key_committed(&place, &key);
    bool given_up = dead->version.state == CAIRN_STATE_ABORTING ||
                    (dead->version.state == CAIRN_STATE_GONE && !dead->version.committed_ms);
    if (given_up && !dead->record_aside)
        CAIRN_TRY(no_record(dead, key.text, err));
    else
        CAIRN_TRY(cairn_store_delete(dead->worker, key.text, err));
    CAIRN_CRASHPOINT("server.sweep.after_record");
    cairn_key_manifest(&place, &key);
    CAIRN_TRY(cairn_store_delete(dead->worker, key.text, err));
    CAIRN_CRASHPOINT("server.sweep.after_manifest");
    CAIRN_TRY(cairn_srv_lease_still(&dead->lease, err));
    return CAIRN_OK;
}

/* At most CAIRN_STORE_DELETIONS_MAX entries, in one request where the store has one for that. */
static enum cairn_code remove_batch(struct dead *dead, const char *prefix,
                                    const struct cairn_store_entry *entries, size_t count,
                                    struct cairn_error *err) {
    struct cairn_error why = {0};
    CAIRN_AUTO_HEAP struct cairn_store_deletion *batch = calloc(count, sizeof(*batch));
    if (!batch) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a sweep");
    for (size_t i = 0; i < count; i++) batch[i].key = entries[i].key;
    enum cairn_code code = cairn_store_delete_many(dead->worker, prefix, batch, count, &why);
    bool each_done = true;
    for (size_t i = 0; i < count; i++) each_done &= batch[i].deleted || batch[i].code;
    if (!code || !each_done) {
        if (code && err) *err = why;
        return code;
    }
    if (!dead->refused) dead->refusal = why;
    dead->refused = dead->refusal.code;
    return CAIRN_OK;
}

static enum cairn_code remove_objects(struct dead *dead, const char *prefix,
                                      const struct cairn_store_listing *listing,
                                      struct cairn_error *err) {
    for (size_t i = 0; i < listing->count; i += CAIRN_STORE_DELETIONS_MAX) {
        uint64_t count = cairn_min_u64(listing->count - i, CAIRN_STORE_DELETIONS_MAX);
        CAIRN_TRY(remove_batch(dead, prefix, listing->entries + i, (size_t)count, err));
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

/* store/ compares each listing with what was asked; here it is asserted once more, since one wrong
 * key deletes somebody's checkpoint. A store whose listings cannot be trusted ends the sweep. */
static enum cairn_code list_page(struct dead *dead, struct cairn_store_request *list,
                                 struct cairn_error *err) {
    struct cairn_error why = {0};
    enum cairn_code code = cairn_store_perform(dead->worker, list, &why);
    for (size_t i = 0; !code && i < list->listing->count; i++) {
        const char *key = list->listing->entries[i].key;
        if (!cairn_text_starts(key, list->key))
            code = cairn_fail(&why, CAIRN_STORE, "%s was listed, which is not below %s", key,
                              list->key);
    }
    if (code == CAIRN_STORE)
        cairn_log(ERROR, "sweep.listing_wrong", "version=%s prefix=%s cause=\"%s\"", dead->id,
                  list->key, why.message);
    if (code && err) *err = why;
    return code;
}

static enum cairn_code remove_prefix(struct dead *dead, const char *prefix, bool uploads,
                                     struct cairn_error *err) {
    char *page = NULL;
    enum cairn_code code = CAIRN_OK;
    for (size_t i = 0; i < PAGES_MAX && !code; i++) {
        struct cairn_store_listing listing = {0};
        struct cairn_store_request list = {.op = uploads ? CAIRN_STORE_UPLOADS : CAIRN_STORE_LIST,
                                           .key = prefix,
                                           .page = page,
                                           .listing = &listing};
        code = list_page(dead, &list, err);
        if (!code && uploads) code = abort_uploads(dead, &listing, err);
        if (!code && !uploads) code = remove_objects(dead, prefix, &listing, err);
        free(page);
        page = CAIRN_TAKE(listing.next_page);
        cairn_store_listing_release(&listing);
        if (!page) break;
    }
    free(page);
    return code;
}

static enum cairn_code remove_all(struct dead *dead, struct cairn_error *err) {
    struct cairn_version_place place = cairn_srv_version_place(&dead->version);
    struct cairn_key key;
    CAIRN_ASSERT(dead->version.state != CAIRN_STATE_OPEN);
    CAIRN_ASSERT(dead->version.state != CAIRN_STATE_COMMITTED); /* else a checkpoint is lost */
    CAIRN_TRY(delete_records(dead, err));
    cairn_key_version_prefix(&place, &key);
    CAIRN_TRY(remove_prefix(dead, key.text, false, err));
    if (cairn_store_profile(dead->server->store)->lists_uploads)
        CAIRN_TRY(remove_prefix(dead, key.text, true, err));
    if (dead->own_layout) {
        cairn_key_layout(&dead->version.name, dead->version.layout, &dead->version.id, &key);
        CAIRN_TRY(cairn_store_delete(dead->worker, key.text, err));
    }
    CAIRN_CRASHPOINT("server.sweep.before_gone");
    if (dead->refused && err) *err = dead->refusal;
    return dead->refused;
}

static enum cairn_code mark_gone(struct cairn_srv_tx *tx, void *argument, struct cairn_error *err) {
    struct dead *dead = argument;
    CAIRN_AUTO(srv_version) version = {0};
    CAIRN_TRY(cairn_srv_lease_check(tx, &dead->lease, err));
    CAIRN_TRY(cairn_srv_lease_drop_in(tx, &dead->lease, err));
    CAIRN_TRY(cairn_srv_version_get(tx, dead->id, &version, err));
    bool first = version.state != CAIRN_STATE_GONE;
    CAIRN_ASSERT(!dead->refused); /* what a store keeps is asked for again */
    if (first) {
        struct cairn_srv_move move = {.event = CAIRN_EVENT_SWEPT};
        CAIRN_TRY(cairn_srv_version_move(tx, &version, &move, err));
        CAIRN_TRY(cairn_srv_shards_drop(tx, dead->id, err));
    }
    return cairn_srv_version_set_swept(tx, &version, first, err);
}

/* Another server may have done it since it was found. */
static bool is_due(const struct cairn_srv_version *version, uint64_t tick) {
    static const uint64_t pauses_ms[] = {0, 10000, 3600000, 86400000, 172800000};
    if (version->state != CAIRN_STATE_GONE)
        return version->state == CAIRN_STATE_DELETING || version->state == CAIRN_STATE_ABORTING;
    return version->sweeps < CAIRN_COUNT(pauses_ms) &&
           version->gone_tick + pauses_ms[version->sweeps] <= tick;
}

enum cairn_code cairn_srv_sweep_version(struct cairn_srv *server, struct cairn_store_worker *worker,
                                        const char *version_id, struct cairn_error *err) {
    struct dead dead = {.server = server, .worker = worker, .id = version_id};
    cairn_srv_lease_init(&dead.lease, server, "version", version_id);
    enum cairn_code code = cairn_srv_lease_take(&dead.lease, err);
    if (!code) code = cairn_srv_catalog_read(server->catalog, look, &dead, err);
    bool due = !dead.lease.held || is_due(&dead.version, cairn_srv_ticks_now(server));
    if (!code && due) code = remove_all(&dead, err);
    if (!code && due) code = cairn_srv_catalog_write(server->catalog, mark_gone, &dead, err);
    if (!code && due) {
        dead.lease.dropped = true;
        if (dead.version.state != CAIRN_STATE_GONE) {
            cairn_log(INFO, "version.gone", "version=%s step=%" PRIu64 " was=%s", version_id,
                      dead.version.step, cairn_state_text(dead.version.state));
            cairn_srv_waiters_wake_version(server->waiters, &dead.version.id, &dead.version.name);
        }
    }
    cairn_srv_lease_end(&dead.lease);
    cairn_srv_version_release(&dead.version);
    return code;
}

void cairn_srv_sweep_uploads(struct cairn_srv *server, struct cairn_store_worker *worker,
                             const struct cairn_srv_version *version) {
    struct dead dead = {.server = server, .worker = worker, .id = version->id.text};
    struct cairn_version_place place = cairn_srv_version_place(version);
    struct cairn_key key;
    struct cairn_error err = {0};
    if (!cairn_store_profile(server->store)->lists_uploads) return;
    cairn_key_version_prefix(&place, &key);
    if (remove_prefix(&dead, key.text, true, &err) != CAIRN_OK)
        cairn_log(INFO, "sweep.uploads_left", "version=%s cause=\"%s\"", version->id.text,
                  err.message);
}

/* ---- layouts and tables ---- */

struct unused {
    uint64_t unused_ms;
    struct cairn_srv_layout layouts[CAIRN_SRV_LAYOUTS_MAX];
    size_t count;
};

static enum cairn_code retire(struct cairn_srv_tx *tx, void *argument, struct cairn_error *err) {
    struct unused *unused = argument;
    return cairn_srv_layouts_retire(tx, unused->unused_ms, unused->layouts, &unused->count, err);
}

static enum cairn_code mark_deleted(struct cairn_srv_tx *tx, void *argument,
                                    struct cairn_error *err) {
    const struct unused *unused = argument;
    return cairn_srv_layouts_deleted(tx, unused->layouts, unused->count, err);
}

static enum cairn_code sweep_layouts(struct cairn_srv *server, struct cairn_store_worker *worker,
                                     struct unused *unused, const struct cairn_srv_lease *lease,
                                     struct cairn_error *err) {
    CAIRN_TRY(cairn_srv_identity_raise(server, worker, err)); /* Q35 */
    for (size_t i = 0; i < unused->count; i++) {
        struct cairn_key key;
        cairn_key_layout(&unused->layouts[i].name, unused->layouts[i].digest,
                         &unused->layouts[i].writer, &key);
        CAIRN_TRY(cairn_srv_lease_still(lease, err));
        CAIRN_TRY(cairn_store_delete(worker, key.text, err));
    }
    return cairn_srv_catalog_write(server->catalog, mark_deleted, unused, err);
}

enum cairn_code cairn_srv_sweep_layouts(struct cairn_srv *server, struct cairn_store_worker *worker,
                                        uint64_t unused_ms, struct cairn_error *err) {
    CAIRN_AUTO_HEAP struct unused *unused = calloc(1, sizeof(*unused));
    if (!unused) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a sweep");
    struct cairn_srv_lease lease;
    cairn_srv_lease_init(&lease, server, "layouts", "");
    unused->unused_ms = unused_ms;
    CAIRN_TRY(cairn_srv_catalog_write(server->catalog, retire, unused, err));
    if (!unused->count) return CAIRN_OK;
    struct cairn_error why = {0};
    enum cairn_code code = cairn_srv_lease_take(&lease, &why);
    if (code == CAIRN_BUSY) return CAIRN_OK; /* another server deletes them */
    if (!code) code = sweep_layouts(server, worker, unused, &lease, &why);
    cairn_srv_lease_end(&lease);
    if (code && err) *err = why;
    return code;
}
