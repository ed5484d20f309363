/* SPDX-License-Identifier: Apache-2.0 */
/* multipart_size: how large a part is, out of the shard, the store's limits and the connections. */
#include "store/multipart.h"

#define PART_COUNT_MAX 10000

uint64_t cairn_multipart_part_bytes(const struct cairn_store_profile *profile, uint64_t size_bytes,
                                    uint64_t most_bytes, uint32_t connections) {
    uint64_t least = cairn_div_up(size_bytes, profile->part_count_max ? profile->part_count_max
                                                                      : PART_COUNT_MAX);
    uint64_t most = profile->part_bytes_max - profile->part_bytes_max % CAIRN_MIB;
    /* Below 8 MiB a part's own round trip is felt; two requests instead of five for a small shard
     * are worth more than its second connection. */
    uint64_t share = cairn_div_up(size_bytes, connections ? connections : 1);
    if (size_bytes <= 2 * CAIRN_MULTIPART_LEAST_BYTES) share = size_bytes;
    uint64_t wanted = cairn_min_u64(cairn_max_u64(share, CAIRN_MULTIPART_LEAST_BYTES), most_bytes);
    uint64_t bytes = cairn_max_u64(wanted, cairn_max_u64(least, profile->part_bytes_min));
    if (bytes > most) bytes = most;
    return cairn_max_u64(cairn_round_up(bytes, CAIRN_MIB), CAIRN_MIB);
}
