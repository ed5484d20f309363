/* SPDX-License-Identifier: Apache-2.0 */
/* Q46: what an object that is there proves, where tokens and checksums are not told. */
#include "tests/store/multipart_run.h"

TEST(v30_a_store_without_tokens_is_believed_after_a_plain_ok_or_read) { /* Q46 */
    RUN(run, 4 * CAIRN_MIB);
    PLAY(&run, "PUT: ok, HEAD: untold, DURABLE");
    RUN(lost, 4 * CAIRN_MIB);
    PLAY(&lost, "PUT: lost, HEAD: nameless, READ");
    EXPECT_ALL_U64(lost.action.offset, 0, lost.action.length, SIZE);
    EXPECT_EQ_U64(lost.action.crc32c, whole_crc32c());
    answer(&lost, CAIRN_UNAVAILABLE);
    PLAY(&lost, "READ: same, DURABLE");
    RUN(other, 4 * CAIRN_MIB);
    PLAY(&other, "PUT: lost, HEAD: nameless, READ: other, FAILED: conflict");
    RUN(told, 4 * CAIRN_MIB); /* the store's own checksum is as good as reading */
    PLAY(&told, "PUT: lost, HEAD: untold, DURABLE");
}

TEST(v30_what_the_journal_calls_durable_needs_no_token_but_its_length) { /* Q46 */
    RECOVERED(run, CAIRN_MIB, NULL, blocks);
    cairn_multipart_proven(&run.mp);
    PLAY(&run, "HEAD: nameless, DURABLE");
    RECOVERED(shorter, CAIRN_MIB, NULL, blocks);
    cairn_multipart_proven(&shorter.mp);
    EXPECT_NEXT(&shorter, HEAD);
    answer_head_plain(&shorter, "", SIZE - 1);
    EXPECT_FAILED(&shorter, CONFLICT);
    RECOVERED(foreign, CAIRN_MIB, NULL, blocks);
    cairn_multipart_proven(&foreign.mp);
    EXPECT_NEXT(&foreign, HEAD);
    answer_head_plain(&foreign, "somebody-else", SIZE);
    EXPECT_FAILED(&foreign, CONFLICT);
}

/* The process that put it may have died before it compared what it had sent (O8). */
TEST(v26_what_a_dead_process_put_at_once_is_read_where_no_checksum_is_told) {
    RECOVERED(run, 4 * CAIRN_MIB, NULL, blocks);
    PLAY(&run, "HEAD: unsummed, READ: other, FAILED: store-corrupt");
    RECOVERED(parts, CAIRN_MIB, NULL, blocks); /* completed: each part was compared before */
    PLAY(&parts, "HEAD: unsummed, DURABLE");
}
