/* SPDX-License-Identifier: Apache-2.0 */
/* chunks: what is kept for the next read, and what is not. */
#include "common/base.h"
#include "server/reads/send.h"
#include "tests/harness.h"

#define BYTES (2 * CAIRN_MIB)

TEST(a_chunk_that_was_given_back_is_taken_again) {
    struct cairn_error err = {0};
    struct cairn_srv_chunks *chunks = NULL;
    REQUIRE(!cairn_srv_chunks_new(BYTES, 4, &chunks, &err));
    uint8_t *first = cairn_srv_chunks_take(chunks), *second = cairn_srv_chunks_take(chunks);
    REQUIRE(first && second && first != second);
    memset(first, 1, BYTES);
    cairn_srv_chunks_give(chunks, first);
    EXPECT_EQ_U64(cairn_srv_chunks_idle(chunks), 1);
    EXPECT(cairn_srv_chunks_take(chunks) == first);
    EXPECT_EQ_U64(first[BYTES - 1], 1); /* nobody cleared it */
    cairn_srv_chunks_give(chunks, first);
    cairn_srv_chunks_give(chunks, second);
    cairn_srv_chunks_free(chunks);
}

TEST(idle_chunks_and_used_ones_are_no_more_than_the_capacity) /* server/reads/send.h#6 */
{
    struct cairn_error err = {0};
    struct cairn_srv_chunks *chunks = NULL;
    void *taken[6];
    REQUIRE(!cairn_srv_chunks_new(BYTES, 4, &chunks, &err));
    for (size_t i = 0; i < 6; i++) REQUIRE((taken[i] = cairn_srv_chunks_take(chunks)));
    for (size_t i = 0; i < 3; i++) {
        cairn_srv_chunks_give(chunks, taken[i]);
        EXPECT(cairn_srv_chunks_idle(chunks) + (5 - i) <= 4 || !cairn_srv_chunks_idle(chunks));
    }
    for (size_t i = 3; i < 6; i++) cairn_srv_chunks_give(chunks, taken[i]);
    EXPECT_EQ_U64(cairn_srv_chunks_idle(chunks), 4);
    cairn_srv_chunks_free(chunks);
}

/* server/reads/send.h#7 */
TEST(a_chunk_that_nobody_needed_between_two_looks_is_given_to_the_system) {
    struct cairn_error err = {0};
    struct cairn_srv_chunks *chunks = NULL;
    REQUIRE(!cairn_srv_chunks_new(BYTES, 8, &chunks, &err));
    void *first = cairn_srv_chunks_take(chunks), *second = cairn_srv_chunks_take(chunks);
    cairn_srv_chunks_give(chunks, first);
    cairn_srv_chunks_give(chunks, second);
    cairn_srv_chunks_look(chunks);
    EXPECT_EQ_U64(cairn_srv_chunks_idle(chunks), 2); /* they were in use since the last look */
    void *again = cairn_srv_chunks_take(chunks);
    cairn_srv_chunks_give(chunks, again);
    cairn_srv_chunks_look(chunks);
    EXPECT_EQ_U64(cairn_srv_chunks_idle(chunks), 1); /* one was enough */
    cairn_srv_chunks_look(chunks);
    EXPECT_EQ_U64(cairn_srv_chunks_idle(chunks), 0);
    cairn_srv_chunks_look(chunks);
    cairn_srv_chunks_free(chunks);
}
