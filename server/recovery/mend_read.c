/* SPDX-License-Identifier: Apache-2.0 */
/* Attempt records, and each version with all its objects; see mend_read.h. */
#include "server/recovery/mend_read.h"

#include <stdlib.h>

#include "common/text.h"
#include "server/recovery/mend_copies.h"
#include "store/whole.h"

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
    struct cairn_error why = {0};
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
    for (size_t i = 0; i < count && !code; i++)
        if (cairn_store_object_check(&objects[i], &why))
            code = cairn_fail(err, CAIRN_CORRUPT, "%s: %s", objects[i].key, why.message);
    for (size_t i = 0; i < count; i++) free(objects[i].key);
    return code;
}

enum cairn_code cairn_srv_mend_verify(struct cairn_store_worker *worker,
                                      const struct cairn_version_place *place,
                                      struct cairn_record *ret_record,
                                      struct cairn_manifest *ret_manifest,
                                      struct cairn_error *err) {
    CAIRN_TRY(cairn_srv_committed_read(worker, place, ret_record, ret_manifest, err));
    CAIRN_TRY(look_at_objects(worker, place, ret_manifest, err));
    if (!ret_manifest->has_layout) return CAIRN_OK;
    struct cairn_key key;
    cairn_key_layout(&place->name, ret_manifest->layout_digest, &ret_manifest->layout_writer, &key);
    struct cairn_store_request head = {.op = CAIRN_STORE_HEAD, .key = key.text};
    enum cairn_code code = cairn_store_perform(worker, &head, err);
    return code == CAIRN_NOT_FOUND ? cairn_fail(err, CAIRN_CORRUPT, "%s is missing", key.text)
                                   : code;
}

/* ---- one run ---- */

/* mend_read.h#3. What is damaged everywhere is damaged as in the nearest store that has it. */
static enum cairn_code read_attempt(struct cairn_srv_mend *mend, struct cairn_srv_mend_attempt *one,
                                    struct cairn_error *err) {
    for (size_t i = 0; i < mend->stores.count && !one->readable; i++) {
        const struct cairn_srv_run_store *store = &mend->stores.stores[i];
        struct cairn_error why = {0};
        if (!cairn_srv_run_objects_has_attempt(&store->objects, one->number)) continue;
        enum cairn_code code = cairn_srv_attempt_read(store->worker, &mend->objects.name,
                                                      one->number, &one->record, &why);
        one->readable = code == CAIRN_OK;
        one->newer = !one->readable && (one->newer || code == CAIRN_UNSUPPORTED);
        if (!one->cause[0]) (void)cairn_text_copy(one->cause, sizeof(one->cause), why.message);
        if (!code || code == CAIRN_CORRUPT || code == CAIRN_UNSUPPORTED) continue;
        if (err) *err = why;
        return cairn_srv_run_store_within(&mend->stores, i, code, err);
    }
    return CAIRN_OK;
}

enum cairn_code cairn_srv_mend_read_attempts(struct cairn_srv_mend *mend, struct cairn_error *err) {
    const struct cairn_srv_run_objects *objects = &mend->objects;
    mend->attempts = calloc(objects->attempt_count + 1, sizeof(*mend->attempts));
    if (!mend->attempts) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for attempt records");
    for (; mend->attempt_count < objects->attempt_count; mend->attempt_count++) {
        struct cairn_srv_mend_attempt *one = &mend->attempts[mend->attempt_count];
        one->number = objects->attempts[mend->attempt_count];
        CAIRN_TRY(read_attempt(mend, one, err));
    }
    return CAIRN_OK;
}

enum cairn_code cairn_srv_mend_read_version(struct cairn_srv_mend *mend, size_t index,
                                            struct cairn_error *err) {
    struct cairn_srv_mend_version *one = &mend->versions[index];
    const struct cairn_srv_seen *seen = &mend->objects.versions[index];
    one->place = (struct cairn_version_place){mend->objects.name, seen->step, seen->id};
    CAIRN_TRY(cairn_srv_mend_is_known(mend, &seen->id, &one->known, err));
    return one->known ? cairn_srv_mend_settle_copies(mend, one, err)
                      : cairn_srv_mend_look_at_copies(mend, one, err);
}

enum cairn_code cairn_srv_mend_read_versions(struct cairn_srv_mend *mend, struct cairn_error *err) {
    CAIRN_TRY(cairn_srv_mend_versions_new(mend, err));
    for (size_t i = 0; i < mend->version_count; i++)
        CAIRN_TRY(cairn_srv_mend_read_version(mend, i, err));
    return CAIRN_OK;
}

enum cairn_code cairn_srv_mend_versions_new(struct cairn_srv_mend *mend, struct cairn_error *err) {
    const struct cairn_srv_run_objects *objects = &mend->objects;
    mend->versions = calloc(objects->version_count + 1, sizeof(*mend->versions));
    if (!mend->versions) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for versions");
    mend->version_count = objects->version_count;
    return CAIRN_OK;
}

/* Committed in the catalog, without a record in the store: deleted by a later catalog when the
 * manifest is gone, too; else the record is missing and is written again (Q24). */
enum cairn_code cairn_srv_mend_look_for_missing(struct cairn_srv_mend *mend,
                                                struct cairn_error *err) {
    CAIRN_TRY(cairn_srv_mend_find_missing(mend, err));
    for (size_t i = 0; i < mend->missing_count; i++) {
        struct cairn_srv_mend_missing *one = &mend->missing[i];
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
