/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: labels=s3 */
/* Answers that are late: what waits for one is sent again on another connection, by the uploader's
 * own senders, against every make of store; and what of it is lost does not matter. */
#include "tests/s3faults/cases.h"

/* A worker knows after ten answers what is usual; the parts behind those are late. */
#define PARTS 16
#define LATE_MS 60000 /* a busy machine sends the rest in less */

/* Each part behind the tenth has a fate of its own, and the end of the upload, too. */
static const char late_parts[] =
    "op=part part=12 each=1 : delay=60000;"
    "op=part part=13 each=1 : delay=60000; op=part part=13 each=2 : status=503/SlowDown;"
    "op=part part=14 each=1 : delay=60000; op=part part=14 each=2 : lose-reply;"
    "op=part part=15 each=1 : delay=60000; op=part part=15 each=2 : req-rst@50%;"
    "op=part part=16 each=1 : stall@0/60000;"
    "op=complete nth=1 : lose-reply";
static const unsigned late_rules[] = {0, 1, 3, 5, 7}; /* those that are late */

static void expect_late_parts_are_sent_again(const char *profile) {
    WORLD(.profile = profile);
    CAIRN_AUTO(s3run) run = {.size_bytes = PARTS * CAIRN_S3WORLD_PART - 77};
    cairn_s3world_rules(&world, late_parts);
    uint64_t began_ms = cairn_mono_ms();
    REQUIRE_OK(cairn_s3run_send(&world, &run));
    uint64_t took_ms = cairn_mono_ms() - began_ms;
    EXPECT(cairn_s3run_is_whole(&world, &run));
    EXPECT_EQ_U64(cairn_s3world_open_uploads(&world), 0);
    for (size_t i = 0; i < CAIRN_COUNT(late_rules); i++)
        EXPECT_EQ_U64(cairn_s3world_acted(&world, late_rules[i]), 1);
    printf("    %s: %llu ms, %llu parts were sent\n", profile, (unsigned long long)took_ms,
           (unsigned long long)cairn_s3world_counter(&world, "op_part"));
    EXPECT(cairn_s3world_counter(&world, "op_part") >= PARTS + CAIRN_COUNT(late_rules));
    EXPECT(took_ms < LATE_MS); /* nobody waited for what was late */
}

CASE(late_parts_are_sent_again_to_aws, expect_late_parts_are_sent_again("aws"));
CASE(late_parts_are_sent_again_to_minio, expect_late_parts_are_sent_again("minio"));
CASE(late_parts_are_sent_again_to_r2, expect_late_parts_are_sent_again("r2"));
CASE(late_parts_are_sent_again_to_b2, expect_late_parts_are_sent_again("b2"));
CASE(late_parts_are_sent_again_to_parts1000, expect_late_parts_are_sent_again("parts1000"));
CASE(late_parts_are_sent_again_to_radosgw, expect_late_parts_are_sent_again("radosgw"));

TEST(a_shard_that_fails_while_parts_are_late_lets_go_of_its_bytes_and_leaves_no_upload) { /* Q20 */
    WORLD(0);
    CAIRN_AUTO(s3run) run = {.size_bytes = PARTS * CAIRN_S3WORLD_PART};
    cairn_s3world_rules(&world, "op=part part=12 : delay=60000; op=part part=13 : stall@0/60000;"
                                "op=part part=16 : delay=500, status=403/AccessDenied");
    EXPECT_CODE(cairn_s3run_send(&world, &run), CAIRN_FORBIDDEN);
    EXPECT_EQ_U64(cairn_s3world_open_uploads(&world), 0);
}

TEST(without_hedges_what_is_late_is_waited_for) {
    WORLD(.s3 = {.no_hedge = true});
    SENT_WHOLE(run, "op=part part=12 each=1 : delay=3000",
               .size_bytes = PARTS * CAIRN_S3WORLD_PART);
    EXPECT_EQ_U64(cairn_s3world_counter(&world, "op_part"), PARTS);
}
