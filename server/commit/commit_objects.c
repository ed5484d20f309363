/* SPDX-License-Identifier: Apache-2.0 */
/* Are the shards of a version in this server's store? See commit_objects.h. */
#include "server/commit/commit_objects.h"

#include <inttypes.h>
#include <stdlib.h>

#include "common/clock.h"
#include "common/hooks.h"
#include "common/log.h"
#include "common/text.h"
#include "server/guard/identity.h"

static void release_keys(struct cairn_store_object *objects, size_t count) {
    for (size_t i = 0; i < count; i++) free(objects[i].key);
    free(objects);
}

static enum cairn_code fill(const struct cairn_srv_objects *objects, struct cairn_store_object *ret,
                            struct cairn_error *err) {
    for (size_t i = 0; i < objects->manifest->shard_count; i++) {
        const struct cairn_manifest_shard *shard = &objects->manifest->shards[i];
        struct cairn_key key;
        cairn_key_shard(&objects->place, cairn_view_of(shard->name), &key);
        ret[i] =
            (struct cairn_store_object){.key = strdup(key.text), .size_bytes = shard->size_bytes};
        if (!ret[i].key) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory to look at objects");
    }
    return CAIRN_OK;
}

static enum cairn_code judge(const struct cairn_srv_objects *objects,
                             const struct cairn_store_presence *presence, struct cairn_error *err) {
    CAIRN_ASSERT(presence->count == objects->manifest->shard_count);
    CAIRN_ASSERT(presence->there_count <= presence->count);
    if (presence->there_count == presence->count) return CAIRN_OK;
    size_t at = 0;
    while (at < presence->count && presence->objects[at].there) at++;
    CAIRN_ASSERT(at < presence->count);
    const struct cairn_store_object *object = &presence->objects[at];
    CAIRN_ASSERT(object->known && (!object->found || object->found_bytes != object->size_bytes));
    const struct cairn_manifest_shard *shard = &objects->manifest->shards[at];
    /* Absence in a store that is not ours, or not there, says nothing about the save. */
    CAIRN_TRY(cairn_srv_identity_compare(objects->server, objects->worker, err));
    const char *node = objects->nodes[at];
    size_t bad = presence->count - presence->there_count;
    if (!object->found)
        return cairn_fail(err, CAIRN_CORRUPT,
                          "%zu of %s: not in the server's store; the first: node %s "
                          "registered shard %s of rank %u, there is no such object (is the store "
                          "mounted on that node?)",
                          bad, cairn_counted(presence->count, "shard").text, node, shard->name,
                          shard->rank);
    return cairn_fail(err, CAIRN_CORRUPT,
                      "%zu of %s: not as registered; the first: node %s "
                      "registered shard %s of rank %u with %" PRIu64
                      " bytes, the store has %" PRIu64,
                      bad, cairn_counted(presence->count, "shard").text, node, shard->name,
                      shard->rank, shard->size_bytes, object->found_bytes);
}

enum cairn_code cairn_srv_objects_start(struct cairn_srv_objects *objects,
                                        struct cairn_error *err) {
    size_t count = objects->manifest->shard_count;
    if (!CAIRN_RULE(Q55)) return CAIRN_OK;
    uint64_t from_ms = cairn_srv_mono_ms(objects->server);
    struct cairn_store_presence *presence = &objects->presence;
    cairn_key_version_prefix(&objects->place, &objects->prefix);
    *presence = (struct cairn_store_presence){.prefix = objects->prefix.text, .count = count};
    presence->objects = calloc(count + 1, sizeof(*presence->objects));
    if (!presence->objects) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory to look at objects");
    enum cairn_code code = fill(objects, presence->objects, err);
    if (code)
        release_keys(presence->objects, count);
    else
        cairn_store_presence_start(presence, objects->worker);
    objects->waited_ms = cairn_srv_mono_ms(objects->server) - from_ms;
    return code;
}

enum cairn_code cairn_srv_objects_finish(struct cairn_srv_objects *objects, bool *ret_final,
                                         struct cairn_error *err) {
    struct cairn_store_presence *presence = &objects->presence;
    if (!CAIRN_RULE(Q55)) return CAIRN_OK;
    uint64_t from_ms = cairn_srv_mono_ms(objects->server);
    enum cairn_code code = cairn_store_presence_finish(presence, objects->worker, err);
    bool looked = !code;
    if (!code) code = judge(objects, presence, err);
    *ret_final = looked && code == CAIRN_CORRUPT;
    objects->waited_ms += cairn_srv_mono_ms(objects->server) - from_ms;
    cairn_log(DEBUG, "commit.objects", "version=%s shards=%zu requests=%u waited_ms=%" PRIu64,
              objects->place.id.text, presence->count, presence->requests, objects->waited_ms);
    release_keys(presence->objects, presence->count);
    return code;
}
