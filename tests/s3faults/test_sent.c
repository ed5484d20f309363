/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: labels=s3 */
/* Q42, V26: bytes that are sent are those that were staged, whoever checks. Where the store
 * confirms the CRC32C of what it took, its word counts; a Content-MD5 is made of the same memory
 * that is sent and proves nothing; elsewhere the bytes are summed here, after they went out. */
#include "store/s3/probe.h"
#include "tests/s3faults/cases.h"

/* Another save's bytes lie in the slab when the second part (or the only one) is sent. */
static void overwrite(struct cairn_s3world *world, const struct cairn_multipart_action *action,
                      struct cairn_s3run *run) {
    (void)world;
    bool part = action->kind == CAIRN_MULTIPART_PART && action->part_number == 2;
    if (part || action->kind == CAIRN_MULTIPART_PUT) run->bytes[action->offset + 77] ^= 1;
}

static void overwritten_bytes_are_refused(const char *profile,
                                          enum cairn_store_s3_checksum checksum, bool met,
                                          uint64_t size) {
    WORLD(.profile = profile, .s3 = {.checksum = checksum});
    if (met) REQUIRE_OK(cairn_store_s3_probe_all(world.store, NULL, &err));
    CAIRN_AUTO(s3run) run = {.size_bytes = size, .before = overwrite};
    enum cairn_code code = cairn_s3run_send(&world, &run);
    if (!EXPECT(code == CAIRN_SOURCE_CHANGED))
        fprintf(stderr, "%s, checksum %d, met %d, %" PRIu64 " bytes: %s\n", profile, (int)checksum,
                (int)met, size, cairn_code_info(code)->name);
    EXPECT_EQ_U64(cairn_s3world_open_uploads(&world), 0);
    EXPECT_EQ_U64(run.count_of[CAIRN_MULTIPART_COMPLETE], 0);
}

static void by_parts_and_at_once(const char *profile, enum cairn_store_s3_checksum checksum) {
    for (int met = 0; met < 2; met++) {
        overwritten_bytes_are_refused(profile, checksum, met, SHARD_BYTES);
        overwritten_bytes_are_refused(profile, checksum, met, 300 * CAIRN_KIB);
    }
}

CASE(v26_where_crc32c_is_ignored_other_bytes_than_those_staged_are_not_durable,
     by_parts_and_at_once("radosgw", CAIRN_S3_CHECKSUM_AUTO));
TEST(v26_where_md5_is_checked_other_bytes_than_those_staged_are_not_durable) {
    by_parts_and_at_once("b2", CAIRN_S3_CHECKSUM_AUTO);
    by_parts_and_at_once("radosgw", CAIRN_S3_CHECKSUM_MD5);
    by_parts_and_at_once("aws", CAIRN_S3_CHECKSUM_MD5);
}
CASE(v26_where_no_checksum_is_sent_other_bytes_than_those_staged_are_not_durable,
     by_parts_and_at_once("aws", CAIRN_S3_CHECKSUM_NONE));
CASE(v26_where_crc32c_is_confirmed_the_store_refuses_other_bytes_than_those_staged,
     by_parts_and_at_once("aws", CAIRN_S3_CHECKSUM_AUTO));

/* What is not known to have arrived is summed, too: its proof by token would take it for ours. */
TEST(v26_a_lost_answer_proves_nothing_about_the_bytes) {
    WORLD(.profile = "radosgw");
    CAIRN_AUTO(s3run) run = {.size_bytes = 300 * CAIRN_KIB, .before = overwrite};
    cairn_s3world_rules(&world, "op=put key=*shard nth=1-9 : lose-reply");
    EXPECT_CODE(cairn_s3run_send(&world, &run), CAIRN_SOURCE_CHANGED);
    EXPECT(cairn_s3world_acted(&world, 0) >= 1);
}

TEST(v26_a_store_is_not_taken_for_one_that_checks_because_the_client_does) {
    WORLD(.profile = "radosgw");
    WITH_OK(buf, report, cairn_store_s3_probe_all(world.store, &report, &err));
    EXPECT(!cairn_store_profile(world.store)->part_checksum);
    EXPECT(strstr(report.data, "the store checks the checksum of what it is sent: no") != NULL);
}

TEST(v26_a_store_that_answers_late_is_not_taken_for_one_that_checks) {
    WORLD(.profile = "radosgw");
    /* The first put stores the object, the second asks for "create only", the third is wrong. */
    cairn_s3world_rules(&world, "op=put nth=3+ : delay=900");
    REQUIRE_OK(cairn_store_s3_probe_all(world.store, NULL, &err));
    EXPECT(cairn_s3world_acted(&world, 0) >= 1);
    EXPECT(!cairn_store_profile(world.store)->part_checksum);
}

TEST(v26_a_store_that_refuses_late_is_known_to_check) {
    WORLD(.profile = "aws");
    cairn_s3world_rules(&world, "op=put nth=3 : delay=900");
    REQUIRE_OK(cairn_store_s3_probe_all(world.store, NULL, &err));
    EXPECT(cairn_s3world_acted(&world, 0) == 1);
    EXPECT(cairn_store_profile(world.store)->part_checksum);
}
