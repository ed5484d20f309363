/* SPDX-License-Identifier: Apache-2.0 */
/* Pieces of a version that a slab of this node still holds. Its trainer may write there while it is
 * read, so the copy is compared, never the source. */
#include "uploader/fetch/inside.h"
#include "uploader/metrics.h"
#include "uploader/saves/kept.h"

/* Block by block: what was copied is summed while it is in the cache. */
static bool copy(const uint8_t *from, const uint8_t *checksums, uint64_t bytes, uint8_t *into) {
    for (uint64_t at = 0; at < bytes; at += CAIRN_BLOCK_BYTES, checksums += 4) {
        size_t size = cairn_min_u64(CAIRN_BLOCK_BYTES, bytes - at);
        memcpy(into + at, from + at, size);
        if (cairn_store_blocks_check(checksums, at, (struct cairn_view){into + at, size}, NULL))
            return false;
    }
    return true;
}

bool cairn_up_fetch_kept(struct cairn_up *up, const struct cairn_up_get *get, uint8_t *into) {
    const struct cairn_up_version *version = get->version;
    const struct cairn_manifest_shard *shard = &version->manifest.shards[get->shard];
    struct cairn_up_kept_bytes kept;
    if (!cairn_up_kept_pin(up, version->place.id.text, shard->name, shard->size_bytes, &kept))
        return false;
    uint64_t block = shard->first_block + get->offset / CAIRN_BLOCK_BYTES;
    bool same = copy(kept.data + get->offset, version->checksums + 4 * block, get->bytes, into);
    cairn_up_kept_unpin(up, &kept, same);
    if (same)
        cairn_metrics_add(up->metrics, CAIRN_UP_METRIC(restore_memory_bytes_total), get->bytes);
    return same;
}
