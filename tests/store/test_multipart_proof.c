/* SPDX-License-Identifier: Apache-2.0 */
/* Q46: what an object that is there proves, where tokens and checksums are not told. */
#include "tests/store/multipart_run.h"

static void answer_read(struct cairn_run *run, uint32_t flip) {
    run->request.got_crc32c = run->action.crc32c ^ flip;
    answer(run, CAIRN_OK);
}

TEST(v30_a_store_without_tokens_is_believed_after_a_plain_ok_or_read) { /* Q46 */
    CAIRN_AUTO(run) run = {0};
    REQUIRE(start(&run, 4 * CAIRN_MIB));
    EXPECT_NEXT(&run, PUT);
    answer(&run, CAIRN_OK);
    EXPECT_NEXT(&run, HEAD);
    answer_head(&run, "", SIZE, whole_crc32c());
    EXPECT_NEXT(&run, DURABLE);
    CAIRN_AUTO(run) lost = {0};
    REQUIRE(start(&lost, 4 * CAIRN_MIB));
    EXPECT_NEXT(&lost, PUT);
    answer_ambiguous(&lost);
    EXPECT_NEXT(&lost, HEAD);
    answer_head_plain(&lost, "", SIZE);
    EXPECT_NEXT(&lost, READ);
    EXPECT_EQ_U64(lost.action.offset, 0);
    EXPECT_EQ_U64(lost.action.length, SIZE);
    EXPECT_EQ_U64(lost.action.crc32c, whole_crc32c());
    answer(&lost, CAIRN_UNAVAILABLE);
    EXPECT_NEXT(&lost, READ);
    answer_read(&lost, 0);
    EXPECT_NEXT(&lost, DURABLE);
    CAIRN_AUTO(run) other = {0};
    REQUIRE(start(&other, 4 * CAIRN_MIB));
    EXPECT_NEXT(&other, PUT);
    answer_ambiguous(&other);
    EXPECT_NEXT(&other, HEAD);
    answer_head_plain(&other, "", SIZE);
    EXPECT_NEXT(&other, READ);
    answer_read(&other, 1);
    EXPECT_FAILED(&other, CONFLICT);
    CAIRN_AUTO(run) told = {0}; /* the store's own checksum is as good as reading */
    REQUIRE(start(&told, 4 * CAIRN_MIB));
    EXPECT_NEXT(&told, PUT);
    answer_ambiguous(&told);
    EXPECT_NEXT(&told, HEAD);
    answer_head(&told, "", SIZE, whole_crc32c());
    EXPECT_NEXT(&told, DURABLE);
}

TEST(v30_what_the_journal_calls_durable_needs_no_token_but_its_length) { /* Q46 */
    CAIRN_AUTO(run) run = {0};
    REQUIRE(recover(&run, CAIRN_MIB, NULL, blocks));
    cairn_multipart_proven(&run.mp);
    EXPECT_NEXT(&run, HEAD);
    answer_head_plain(&run, "", SIZE);
    EXPECT_NEXT(&run, DURABLE);
    CAIRN_AUTO(run) shorter = {0};
    REQUIRE(recover(&shorter, CAIRN_MIB, NULL, blocks));
    cairn_multipart_proven(&shorter.mp);
    EXPECT_NEXT(&shorter, HEAD);
    answer_head_plain(&shorter, "", SIZE - 1);
    EXPECT_FAILED(&shorter, CONFLICT);
    CAIRN_AUTO(run) foreign = {0};
    REQUIRE(recover(&foreign, CAIRN_MIB, NULL, blocks));
    cairn_multipart_proven(&foreign.mp);
    EXPECT_NEXT(&foreign, HEAD);
    answer_head_plain(&foreign, "somebody-else", SIZE);
    EXPECT_FAILED(&foreign, CONFLICT);
}

/* The process that put it may have died before it compared what it had sent (O8). */
TEST(v26_what_a_dead_process_put_at_once_is_read_where_no_checksum_is_told) {
    CAIRN_AUTO(run) run = {0};
    REQUIRE(recover(&run, 4 * CAIRN_MIB, NULL, blocks));
    EXPECT_NEXT(&run, HEAD);
    answer_head_plain(&run, TOKEN, SIZE);
    EXPECT_NEXT(&run, READ);
    answer_read(&run, 1);
    EXPECT_FAILED(&run, CORRUPT);
    CAIRN_AUTO(run) parts = {0}; /* completed: each part was compared before */
    REQUIRE(recover(&parts, CAIRN_MIB, NULL, blocks));
    EXPECT_NEXT(&parts, HEAD);
    answer_head_plain(&parts, TOKEN, SIZE);
    EXPECT_NEXT(&parts, DURABLE);
}
