/* SPDX-License-Identifier: Apache-2.0 */
/* profile: what is known of the makes of store, one row each. */
#include "tests/support/s3fault/server.h"

#define PART_MIN (5 * CAIRN_MIB)

static const struct cairn_s3f_profile profiles[] = {
    {.name = "aws",
     .part_bytes_min = PART_MIN,
     .part_count_max = 10000,
     .checksums = true,
     .checksum_full = true,
     .create_put = true,
     .create_complete = true,
     .complete_again = true,
     .complete_subset = true,
     .lists_by_prefix = true,
     .region_checked = true,
     .gone = "NoSuchUpload"},
    {.name = "minio",
     .part_bytes_min = PART_MIN,
     .part_count_max = 10000,
     .checksums = true,
     .checksum_full = true,
     .create_put = true,
     .create_complete = true,
     .complete_subset = true,
     .gone = "NoSuchUpload"},
    {.name = "r2",
     .part_bytes_min = PART_MIN,
     .part_count_max = 10000,
     .checksums = true,
     .create_put = true,
     .complete_subset = true,
     .lists_by_prefix = true,
     .equal_parts = true,
     .gone = "NoSuchUpload"},
    {.name = "b2",
     .part_bytes_min = PART_MIN,
     .part_count_max = 10000,
     .checksum_refused = 400,
     .create_refused = 501,
     .complete_subset = true,
     .lists_by_prefix = true,
     .region_checked = true,
     .gone = "NoSuchUpload"},
    {.name = "parts1000",
     .part_bytes_min = PART_MIN,
     .part_count_max = 1000,
     .checksums = true,
     .checksum_full = true,
     .create_put = true,
     .create_complete = true,
     .complete_subset = true,
     .lists_by_prefix = true,
     .gone = "NoSuchUpload"},
    {.name = "radosgw",
     .part_bytes_min = PART_MIN,
     .part_count_max = 10000,
     .create_put = true,
     .complete_again = true,
     .lists_by_prefix = true,
     .gone = "NoSuchKey"},
};

const struct cairn_s3f_profile *cairn_s3f_profile_find(const char *name) {
    for (size_t i = 0; i < CAIRN_COUNT(profiles); i++)
        if (!strcmp(profiles[i].name, name)) return &profiles[i];
    return NULL;
}
