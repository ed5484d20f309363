/* SPDX-License-Identifier: Apache-2.0 */
/* A HEAD, then range after range; see shard_check.h. */
#include "server/commit/shard_check.h"

#include <inttypes.h>

#include "common/log.h"

#define READ_MS_MAX 60000

/* Nothing is to be read of an object of 0 bytes, and a HEAD tells a wrong size at once. */
static enum cairn_code look(const struct cairn_srv_shard_check *check, const char *key,
                            uint64_t size_bytes, struct cairn_error *err) {
    struct cairn_store_request head = {.op = CAIRN_STORE_HEAD, .key = key};
    enum cairn_code code = cairn_store_perform(check->worker, &head, err);
    if (code == CAIRN_NOT_FOUND) return cairn_fail(err, CAIRN_CORRUPT, "it is missing");
    CAIRN_TRY(code);
    if (head.object_bytes == size_bytes) return CAIRN_OK;
    return cairn_fail(err, CAIRN_CORRUPT, "it has %" PRIu64 " bytes, not %" PRIu64,
                      head.object_bytes, size_bytes);
}

static void log_again(void *owner, const struct cairn_error *why) {
    const char *key = owner;
    cairn_log(WARN, "verify.read_again", "key=%s cause=\"%s\"", key, why->message);
}

static enum cairn_code read_all(const struct cairn_srv_shard_check *check, struct cairn_key *key,
                                const struct cairn_manifest_shard *shard,
                                struct cairn_store_tags *tags, struct cairn_error *err) {
    const uint8_t *checksums = (const uint8_t *)check->version->checksums.data;
    for (uint64_t at = 0; at < shard->size_bytes; at += CAIRN_SRV_CHECK_BYTES) {
        uint64_t length = cairn_min_u64(CAIRN_SRV_CHECK_BYTES, shard->size_bytes - at);
        struct cairn_store_range range = {
            .request = {.key = key->text, .offset = at, .length = length, .into = check->buffer},
            .tags = tags,
            .object_bytes = shard->size_bytes,
            .checksums = checksums + 4 * (shard->first_block + at / CAIRN_BLOCK_BYTES),
            .wait_ms = READ_MS_MAX};
        CAIRN_TRY(cairn_store_range_read(&range, check->worker, log_again, key->text, err));
        if (!check->goes_on(check->owner, length))
            return cairn_fail(err, CAIRN_CANCELLED, "it was ended");
    }
    return CAIRN_OK;
}

enum cairn_code cairn_srv_shard_check(const struct cairn_srv_shard_check *check, size_t shard,
                                      struct cairn_error *err) {
    const struct cairn_manifest_shard *one = &check->version->manifest.shards[shard];
    struct cairn_store_tags *tags = NULL;
    struct cairn_key key;
    cairn_key_shard(&check->version->place, cairn_view_of(one->name), &key);
    CAIRN_TRY(look(check, key.text, one->size_bytes, err));
    CAIRN_TRY(cairn_store_tags_new(1, &tags, err)); /* of this one reading */
    enum cairn_code code = read_all(check, &key, one, tags, err);
    cairn_store_tags_free(tags);
    return code;
}
