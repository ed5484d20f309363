/* SPDX-License-Identifier: Apache-2.0 */
/* mutate: changes that are likely to keep the rest of the input meaningful. */
#include "tests/api/mutate.h"

#define GROWTH 16 /* bytes that one change may add */

static void judge_copy(const uint8_t *data, size_t size, cairn_mutate_judge *judge, void *context) {
    uint8_t *copy = malloc(size ? size : 1);
    if (size) memcpy(copy, data, size);
    judge((struct cairn_view){copy, size}, context);
    free(copy);
}

void cairn_mutate_cut(struct cairn_view good, cairn_mutate_judge *judge, void *context) {
    for (size_t size = 0; size < good.size; size++) judge_copy(good.data, size, judge, context);
}

static size_t insert(uint8_t *data, size_t size, size_t at, size_t more, uint64_t value) {
    memmove(data + at + more, data + at, size - at);
    memset(data + at, (int)(value & 0xff), more);
    return size + more;
}

static size_t change(uint8_t *data, size_t size, uint64_t *random) {
    static const uint64_t words[] = {0,
                                     1,
                                     2,
                                     8,
                                     255,
                                     65535,
                                     1 << 20,
                                     INT32_MAX,
                                     UINT32_MAX,
                                     UINT64_MAX,
                                     UINT64_C(1) << 62,
                                     INT64_MAX};
    if (size == 0) return insert(data, size, 0, 1, cairn_test_random(random));
    size_t at = cairn_test_random(random) % size, more = 1 + cairn_test_random(random) % GROWTH;
    uint64_t word = words[cairn_test_random(random) % CAIRN_COUNT(words)];
    switch (cairn_test_random(random) % 8) {
    case 0:
        data[at] ^= (uint8_t)(1u << (cairn_test_random(random) % 8));
        return size;
    case 1:
        data[at] = (uint8_t)cairn_test_random(random);
        return size;
    case 2:
        data[at]++;
        return size;
    case 3:
        data[at]--;
        return size;
    case 4: /* a whole number of some width, at a likely place */
        at = at / 4 * 4;
        for (size_t i = 0; i < (more & 8 ? 8u : 4u) && at + i < size; i++) {
            data[at + i] = (uint8_t)(word >> (8 * i));
        }
        return size;
    case 5:
        return insert(data, size, at, more, cairn_test_random(random));
    case 6:
        if (more > size - at) more = size - at;
        memmove(data + at, data + at + more, size - at - more);
        return size - more;
    default:
        if (more > size - at) more = size - at;
        memmove(data + cairn_test_random(random) % (size - more + 1), data + at, more);
        return size;
    }
}

void cairn_mutate_many(struct cairn_view good, uint32_t count, cairn_mutate_judge *judge,
                       void *context) {
    uint64_t random = cairn_test_seed();
    uint8_t *data = malloc(good.size + 4 * GROWTH);
    for (uint32_t i = 0; i < count; i++) {
        size_t size = good.size;
        if (size) memcpy(data, good.data, size);
        for (uint64_t n = 1 + cairn_test_random(&random) % 4; n > 0; n--) {
            size = change(data, size, &random);
        }
        judge_copy(data, size, judge, context);
    }
    free(data);
}
