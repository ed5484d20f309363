/* SPDX-License-Identifier: Apache-2.0 */
/* target: elements that are converted and scattered, whole or in parts. */
#include "client/restore/restore.h"

#include "api/table/dtype.h"
#include "formats/convert.h"
#include "tests/harness.h"

TEST(an_element_that_comes_in_parts_is_put_once_it_is_whole, err) { /* restore.h#3 */
    uint64_t shape[2] = {37, 41};
    const int64_t stride[2] = {1, 37};
    uint32_t stored[37 * 41];
    uint16_t into[37 * 41], whole[37 * 41];
    const struct cairn_tensor tensor = {
        .dtype = CAIRN_DTYPE_F32, .dimension_count = 2, .shape = {37, 41}};
    const struct cairn_read read = {
        .size = sizeof read, .into_dtype = "BF16", .into_stride = stride, .count = shape};
    uint64_t seed = cairn_test_seed();
    for (size_t i = 0; i < CAIRN_COUNT(stored); i++) stored[i] = (uint32_t)cairn_test_random(&seed);
    for (int round = 0; round < 50; round++) {
        struct cairn_client_target target;
        REQUIRE_OK(cairn_client_target_make(&tensor, &read, &target, &err));
        EXPECT_EQ_U64(cairn_client_target_bytes(&target, sizeof stored), sizeof into);
        REQUIRE(cairn_client_target_put(&target, whole, 0, stored, sizeof stored));
        memset(into, 0, sizeof into);
        for (size_t at = 0, size = 0; at < sizeof stored; at += size) {
            size = cairn_min_u64(1 + cairn_test_random(&seed) % 9, sizeof stored - at);
            REQUIRE(cairn_client_target_put(&target, into, at, (uint8_t *)stored + at, size));
        }
        EXPECT(memcmp(into, whole, sizeof into) == 0);
    }
    uint16_t first;
    cairn_convert(CAIRN_DTYPE_F32, &stored[1], CAIRN_DTYPE_BF16, &first, 1);
    EXPECT_EQ_U64(whole[37], first); /* column 1 of row 0 */
}
