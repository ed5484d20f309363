/* SPDX-License-Identifier: Apache-2.0 */
/* One listing of the version's prefix, and a HEAD of its documents; see copy_look.h. */
#include "server/copies/copy_look.h"

#include <stdlib.h>

#include "store/whole.h"

static int by_key(const void *a, const void *b) {
    return strcmp(((const struct cairn_store_object *)a)->key,
                  ((const struct cairn_store_object *)b)->key);
}

/* Of shards and checksums.bin the sizes are known. */
static enum cairn_code name_objects(const struct cairn_committed *version,
                                    struct cairn_store_object *ret, size_t *ret_count,
                                    struct cairn_error *err) {
    const struct cairn_manifest *manifest = &version->manifest;
    struct cairn_key key;
    for (size_t i = 0; i <= manifest->shard_count; i++) {
        bool shard = i < manifest->shard_count;
        if (shard)
            cairn_key_shard(&version->place, cairn_view_of(manifest->shards[i].name), &key);
        else
            cairn_key_checksums(&version->place, &key);
        ret[i] = (struct cairn_store_object){
            .key = strdup(key.text),
            .size_bytes = shard ? manifest->shards[i].size_bytes : 4 * manifest->block_count};
        if (!ret[i].key) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory to look at a copy");
        *ret_count = i + 1;
    }
    qsort(ret, *ret_count, sizeof(*ret), by_key);
    return CAIRN_OK;
}

static enum cairn_code look_at_objects(struct cairn_store_worker *worker,
                                       const struct cairn_committed *version,
                                       struct cairn_error *err) {
    CAIRN_AUTO_HEAP struct cairn_store_object *objects =
        calloc(version->manifest.shard_count + 1, sizeof(*objects));
    struct cairn_error why = {0};
    struct cairn_key prefix;
    if (!objects) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory to look at a copy");
    cairn_key_version_prefix(&version->place, &prefix);
    struct cairn_store_presence presence = {.prefix = prefix.text, .objects = objects};
    enum cairn_code code = name_objects(version, objects, &presence.count, err);
    size_t named = presence.count;
    if (!code) code = cairn_store_presence_look(&presence, worker, err);
    for (size_t i = 0; i < named && !code; i++)
        if (cairn_store_object_check(&objects[i], &why))
            code = cairn_fail(err, CAIRN_CORRUPT, "%s: %s", objects[i].key, why.message);
    for (size_t i = 0; i < named; i++) free(objects[i].key);
    return code;
}

enum cairn_code cairn_srv_copy_look(struct cairn_store_worker *worker,
                                    const struct cairn_committed *version, bool with_record,
                                    struct cairn_error *err) {
    static const enum cairn_document documents[] = {
        CAIRN_DOCUMENT_MANIFEST, CAIRN_DOCUMENT_LAYOUT, CAIRN_DOCUMENT_RECORD};
    CAIRN_TRY(look_at_objects(worker, version, err));
    for (size_t i = 0; i < CAIRN_COUNT(documents); i++) {
        struct cairn_key key;
        if (documents[i] == CAIRN_DOCUMENT_LAYOUT && !version->manifest.has_layout) continue;
        if (documents[i] == CAIRN_DOCUMENT_RECORD && !with_record) continue;
        cairn_committed_key(version, documents[i], &key);
        struct cairn_store_request head = {.op = CAIRN_STORE_HEAD, .key = key.text};
        enum cairn_code code = cairn_store_perform(worker, &head, err);
        if (code == CAIRN_NOT_FOUND)
            return cairn_fail(err, CAIRN_CORRUPT, "%s is missing", key.text);
        CAIRN_TRY(code);
    }
    return CAIRN_OK;
}
