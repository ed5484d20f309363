/* SPDX-License-Identifier: Apache-2.0 */
/* The functions of keys.h and table.h that need SHA-256, apart since libcairn.so has none. */
#include "api/documents/digest.h"

#include <stdio.h>

#include "api/table/table.h"
#include "common/hash/hash.h"

void cairn_version_id_make(const struct cairn_version_origin *origin,
                           struct cairn_version_id *ret) {
    char text[512];
    int size = snprintf(text, sizeof text, "cairn-version-1\n%s\n%s\n%llu\n%s\n%llu\n%u\n",
                        origin->name.project, origin->name.run, (unsigned long long)origin->attempt,
                        origin->nonce, (unsigned long long)origin->step, origin->n);
    CAIRN_ASSERT(size > 0);
    CAIRN_ASSERT((size_t)size < sizeof text);
    uint8_t digest[CAIRN_SHA256_BYTES];
    cairn_sha256_of((struct cairn_view){text, (size_t)size}, digest);
    memcpy(ret->text, "ckpt_", 5);
    cairn_uuid_from_digest(digest, ret->text + 5);
}

void cairn_probe_key(const struct cairn_run_name *name, uint64_t attempt, const char *nonce,
                     uint32_t rank, struct cairn_key *ret) {
    struct cairn_version_origin origin = {.name = *name, .attempt = attempt};
    struct cairn_version_place place = {.name = *name};
    char shard[32];
    CAIRN_ASSERT(strlen(nonce) < sizeof origin.nonce);
    memcpy(origin.nonce, nonce, strlen(nonce) + 1);
    cairn_version_id_make(&origin, &place.id);
    snprintf(shard, sizeof shard, "probe/rank-%05u", rank);
    cairn_key_shard(&place, cairn_view_of(shard), ret);
}

void cairn_table_digest(struct cairn_view bytes, uint8_t ret_digest[32]) {
    cairn_sha256_of(bytes, ret_digest);
}

void cairn_layout_digest(const uint32_t *ranks, const uint8_t (*digests)[32], size_t count,
                         uint8_t ret_digest[32]) {
    struct cairn_sha256 sha = {0};
    cairn_sha256_init(&sha);
    for (size_t i = 0; i < count; i++) {
        CAIRN_ASSERT(i == 0 || ranks[i - 1] < ranks[i]);
        uint8_t rank[4];
        cairn_store_u32le(rank, ranks[i]);
        cairn_sha256_update(&sha, rank, sizeof rank);
        cairn_sha256_update(&sha, digests[i], 32);
    }
    cairn_sha256_final(&sha, ret_digest);
    cairn_sha256_release(&sha);
}
