/* SPDX-License-Identifier: Apache-2.0 */
/* Taking over what the store says of one run; see reconcile.h. */
#include "server/jobs/reconcile.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/log.h"
#include "common/text.h"
#include "server/catalog/frozen.h"
#include "server/catalog/values.h"
#include "server/jobs/identity.h"
#include "server/jobs/lease.h"
#include "server/jobs/mend.h"
#include "server/waiters.h"
#include "store/presence.h"

struct requests {
    struct cairn_srv_reconcile_request runs[CAIRN_SRV_RECONCILES_MAX];
    size_t count;
    uint64_t tick;
    /* of a note */
    struct cairn_srv_reconcile_request *run;
    const char *note;
};

/* ---- one version, as the store has it ---- */

static char *copy_key(const struct cairn_key *key) {
    return strdup(key->text);
}

static int by_key(const void *a, const void *b) {
    return strcmp(((const struct cairn_store_object *)a)->key,
                  ((const struct cairn_store_object *)b)->key);
}

/* Every shard and checksums.bin with their sizes. */
static enum cairn_code look_at_objects(struct cairn_store_worker *worker,
                                       const struct cairn_version_place *place,
                                       const struct cairn_manifest *manifest,
                                       struct cairn_error *err) {
    size_t count = manifest->shard_count + 1;
    struct cairn_key key, prefix;
    cairn_key_version_prefix(place, &prefix);
    struct cairn_store_presence presence = {.prefix = prefix.text, .count = count};
    CAIRN_AUTO_HEAP struct cairn_store_object *objects = calloc(count, sizeof(*objects));
    if (!objects) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory to look at objects");
    cairn_key_checksums(place, &key);
    objects[0] =
        (struct cairn_store_object){.key = copy_key(&key), .size_bytes = 4 * manifest->block_count};
    bool whole = objects[0].key != NULL;
    for (size_t i = 0; i < manifest->shard_count; i++) {
        cairn_key_shard(place, cairn_view_of(manifest->shards[i].name), &key);
        objects[i + 1] = (struct cairn_store_object){.key = copy_key(&key),
                                                     .size_bytes = manifest->shards[i].size_bytes};
        whole &= objects[i + 1].key != NULL;
    }
    enum cairn_code code = CAIRN_OK;
    if (!whole) code = cairn_fail(err, CAIRN_NO_MEMORY, "no memory to look at objects");
    if (!code) qsort(objects, count, sizeof(*objects), by_key);
    presence.objects = objects;
    if (!code) code = cairn_store_presence_look(&presence, worker, err);
    for (size_t i = 0; i < count; i++) {
        if (!code && !objects[i].there)
            code =
                cairn_fail(err, CAIRN_CORRUPT, "%s is missing or of another size", objects[i].key);
    }
    for (size_t i = 0; i < count; i++) free(objects[i].key);
    return code;
}

static enum cairn_code verify(struct cairn_store_worker *worker,
                              const struct cairn_version_place *place,
                              struct cairn_srv_mend_version *ret, struct cairn_error *err) {
    CAIRN_TRY(cairn_srv_committed_read(worker, place, &ret->record, &ret->manifest, err));
    CAIRN_TRY(look_at_objects(worker, place, &ret->manifest, err));
    if (!ret->manifest.has_layout) return CAIRN_OK;
    struct cairn_key key;
    cairn_key_layout(&place->name, ret->manifest.layout_digest, &ret->manifest.layout_writer, &key);
    struct cairn_store_request head = {.op = CAIRN_STORE_HEAD, .key = key.text};
    enum cairn_code code = cairn_store_perform(worker, &head, err);
    return code == CAIRN_NOT_FOUND ? cairn_fail(err, CAIRN_CORRUPT, "%s is missing", key.text)
                                   : code;
}

/* ---- one run ---- */

static enum cairn_code read_attempts(struct cairn_srv_mend *mend, struct cairn_store_worker *worker,
                                     struct cairn_error *err) {
    const struct cairn_srv_run_objects *objects = &mend->objects;
    mend->attempts = calloc(objects->attempt_count + 1, sizeof(*mend->attempts));
    if (!mend->attempts) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for attempt records");
    for (; mend->attempt_count < objects->attempt_count; mend->attempt_count++) {
        struct cairn_srv_mend_attempt *one = &mend->attempts[mend->attempt_count];
        struct cairn_error why = {0};
        one->number = objects->attempts[mend->attempt_count];
        enum cairn_code code =
            cairn_srv_attempt_read(worker, &objects->name, one->number, &one->record, &why);
        one->readable = code == CAIRN_OK;
        (void)cairn_text_copy(one->cause, sizeof(one->cause), why.message);
        if (!code || code == CAIRN_CORRUPT) continue;
        if (err) *err = why;
        return code;
    }
    return CAIRN_OK;
}

static enum cairn_code read_versions(struct cairn_srv_mend *mend, struct cairn_store_worker *worker,
                                     struct cairn_error *err) {
    const struct cairn_srv_run_objects *objects = &mend->objects;
    mend->versions = calloc(objects->version_count + 1, sizeof(*mend->versions));
    if (!mend->versions) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for versions");
    for (; mend->version_count < objects->version_count; mend->version_count++) {
        struct cairn_srv_mend_version *one = &mend->versions[mend->version_count];
        const struct cairn_srv_seen *seen = &objects->versions[mend->version_count];
        struct cairn_error why = {0};
        one->place = (struct cairn_version_place){objects->name, seen->step, seen->id};
        CAIRN_TRY(cairn_srv_mend_is_known(mend, &seen->id, &one->known, err));
        if (one->known) continue;
        enum cairn_code code = verify(worker, &one->place, one, &why);
        one->verified = code == CAIRN_OK;
        (void)cairn_text_copy(one->cause, sizeof(one->cause), why.message);
        if (!code || code == CAIRN_CORRUPT || code == CAIRN_NOT_FOUND) continue;
        if (err) *err = why;
        return code;
    }
    return CAIRN_OK;
}

/* Committed in the catalog, without a record in the store: deleted by a later catalog when the
 * manifest is gone, too; else the record is missing and is written again (Q24). */
static enum cairn_code look_for_missing(struct cairn_srv_mend *mend,
                                        struct cairn_store_worker *worker,
                                        struct cairn_error *err) {
    CAIRN_TRY(cairn_srv_mend_find_missing(mend, err));
    for (size_t i = 0; i < mend->missing_count; i++) {
        struct cairn_srv_mend_missing *one = &mend->missing[i];
        struct cairn_version_place place = {mend->objects.name, one->step, one->id};
        struct cairn_key key;
        cairn_key_manifest(&place, &key);
        struct cairn_store_request head = {.op = CAIRN_STORE_HEAD, .key = key.text};
        enum cairn_code code = cairn_store_perform(worker, &head, err);
        if (code && code != CAIRN_NOT_FOUND) return code;
        one->gone = code == CAIRN_NOT_FOUND;
    }
    return CAIRN_OK;
}

static void announce(const struct cairn_srv_mend *mend) {
    const struct cairn_run_name *name = &mend->objects.name;
    cairn_log(INFO, "run.reconciled",
              "run=%s/%s attempts=%zu taken=%zu set_aside=%zu trashed=%zu given_up=%" PRIu64,
              name->project, name->run, mend->attempt_count, mend->taken, mend->set_aside,
              mend->trashed, mend->given_up);
    for (size_t i = 0; i < mend->version_count; i++) {
        const struct cairn_srv_mend_version *one = &mend->versions[i];
        if (one->known || one->verified) continue;
        cairn_log(WARN, "reconcile.set_aside", "version=%s step=%" PRIu64 " cause=\"%s\"",
                  one->place.id.text, one->place.step, one->cause);
    }
}

static enum cairn_code reconcile(struct cairn_srv *server, struct cairn_store_worker *worker,
                                 const struct cairn_run_name *name, struct cairn_error *err) {
    struct cairn_srv_mend mend = {.server = server, .objects.name = *name};
    enum cairn_code code = cairn_srv_run_objects_list(&mend.objects, worker, false, err);
    if (!code && !mend.objects.listed)
        code = cairn_fail(err, CAIRN_FORBIDDEN, "the server's keys may not list the store");
    if (!code) code = read_attempts(&mend, worker, err);
    if (!code) code = read_versions(&mend, worker, err);
    if (!code) code = look_for_missing(&mend, worker, err);
    if (!code) code = cairn_srv_mend_apply(&mend, err);
    if (!code) announce(&mend);
    cairn_srv_mend_release(&mend);
    return code;
}

/* ---- those that were asked for ---- */

static enum cairn_code find_requests(struct cairn_srv_tx *tx, void *argument,
                                     struct cairn_error *err) {
    struct requests *requests = argument;
    requests->tick = cairn_srv_tick(tx);
    return cairn_srv_frozen_requests(tx, requests->runs, &requests->count, err);
}

static enum cairn_code keep_note(struct cairn_srv_tx *tx, void *argument, struct cairn_error *err) {
    const struct requests *requests = argument;
    return cairn_srv_frozen_set_note(tx, requests->run->run_id, requests->note,
                                     requests->run->due_tick, err);
}

static enum cairn_code serve_request(struct cairn_srv *server, struct cairn_store_worker *worker,
                                     struct requests *requests, struct cairn_error *err) {
    struct cairn_srv_reconcile_request *run = requests->run;
    if (!run->due_tick) { /* the generation was not raised for it yet */
        CAIRN_TRY(cairn_srv_identity_raise(server, worker, err));
        run->due_tick = requests->tick + server->settings->reconcile_wait_ms;
        requests->note = "the generation was raised; the store is read after reconcile-wait";
        CAIRN_TRY(cairn_srv_catalog_write(server->catalog, keep_note, requests, err));
    }
    if (requests->tick < run->due_tick) return CAIRN_OK;
    CAIRN_TRY(cairn_srv_identity_compare(server, worker, err));
    return reconcile(server, worker, &run->name, err);
}

void cairn_srv_reconcile_requested(struct cairn_srv *server, struct cairn_store_worker *worker) {
    struct requests requests = {0};
    bool shared = cairn_srv_catalog_is_shared(server->catalog);
    if ((!server->frozen_runs && !shared) || server->frozen) return;
    if (cairn_srv_catalog_read(server->catalog, find_requests, &requests, NULL)) return;
    for (size_t i = 0; i < requests.count; i++) {
        struct cairn_error why = {0};
        requests.run = &requests.runs[i];
        struct cairn_srv_lease lease;
        cairn_srv_lease_init(&lease, server, "reconcile", "");
        enum cairn_code code = cairn_srv_lease_take(&lease, &why);
        if (code == CAIRN_BUSY) return; /* another server does */
        if (!code) code = serve_request(server, worker, &requests, &why);
        cairn_srv_lease_end(&lease);
        if (!code) continue;
        cairn_log(WARN, "reconcile.delayed", "run=%s/%s cause=\"%s\"", requests.run->name.project,
                  requests.run->name.run, why.message);
        requests.note = why.message;
        (void)!cairn_srv_catalog_write(server->catalog, keep_note, &requests, NULL);
    }
}
