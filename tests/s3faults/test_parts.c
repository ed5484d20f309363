/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: labels=s3 */
/* S07-S09, S13 (requests), S19-S23, S26: what happens to parts on their way, and to uploads. */
#include "tests/s3faults/cases.h"

TEST(s07_an_upload_that_the_store_swept_is_begun_anew_from_the_buffer) {
    WORLD(0);
    SENT_WHOLE(run, "op=part nth=2 : drop-upload", .size_bytes = SHARD_BYTES);
    EXPECT_ALL_U64(run.rounds, 1, cairn_s3world_counter(&world, "op_create"), 2,
                   cairn_s3world_open_uploads(&world), 0);
}

static bool is_complete(struct cairn_s3world *world, const struct cairn_multipart_action *action,
                        struct cairn_s3run *run) {
    (void)world, (void)run;
    return action->kind == CAIRN_MULTIPART_COMPLETE;
}

TEST(s07_without_the_bytes_a_swept_upload_is_source_gone_and_a_kept_one_is_completed) {
    WORLD(0);
    CAIRN_AUTO(s3run) run = {.size_bytes = SHARD_BYTES, .stop = is_complete};
    EXPECT_CODE(cairn_s3run_send(&world, &run), CAIRN_INTERRUPTED);
    char id[CAIRN_UPLOAD_ID_BYTES_MAX], token[CAIRN_UUID_TEXT_BYTES];
    memcpy(id, run.upload_id, sizeof id);
    memcpy(token, run.used_token, sizeof token);
    SENT_WHOLE(again, NULL, .size_bytes = SHARD_BYTES, .token = token, .recover = id,
               .recover_blocks = true);
    EXPECT_EQ_U64(cairn_s3world_counter(&world, "op_part"), 3); /* none was sent again */
    run.key = "other";
    EXPECT_CODE(cairn_s3run_send(&world, &run), CAIRN_INTERRUPTED);
    memcpy(id, run.upload_id, sizeof id);
    memcpy(token, run.used_token, sizeof token);
    again.key = "other";
    cairn_s3world_rules(&world, "op=parts nth=1 : drop-upload");
    EXPECT_CODE(cairn_s3run_send(&world, &again), CAIRN_SOURCE_GONE);
    EXPECT_EQ_U64(cairn_s3world_open_uploads(&world), 0);
}

TEST(s08_every_kind_of_refusal_in_between_is_waited_out) {
    WORLD(0);
    ALL_BECOME_DURABLE(
        "op=part nth=1 : status=500/InternalError", "op=part nth=1-2 : status=503/SlowDown",
        "op=part nth=2 : status=429/TooManyRequests", "op=part nth=1 : status=400/RequestTimeout",
        "op=create nth=1 : status=503/SlowDown", "op=head nth=1 : status=500/InternalError",
        "op=part nth=1 : status=502/BadGateway, html", "op=complete nth=1 : status=503/SlowDown");
}

TEST(s08_a_burst_of_a_minute_is_outlived_with_few_requests) {
    WORLD(.virtual_clock = true, .s3 = {.deadline_ms = 3600000});
    CAIRN_AUTO(s3run) run = {.size_bytes = SHARD_BYTES, .advance_ms = 300};
    cairn_s3world_rules(&world, "op=part nth=1-70 : status=503/SlowDown");
    uint64_t began = world.clock.elapsed_ms;
    REQUIRE_OK(cairn_s3run_send(&world, &run));
    EXPECT(cairn_s3run_is_whole(&world, &run));
    EXPECT(world.clock.elapsed_ms - began > 60000);
    /* 70 refusals and 3 parts; on a busy machine the clock overtakes a part, which is hedged */
    EXPECT(cairn_s3world_counter(&world, "op_part") >= 73);
    EXPECT(cairn_s3world_counter(&world, "op_part") <= 76);
    EXPECT_EQ_U64(run.count_of[CAIRN_MULTIPART_PART], 3); /* none of it counted as a try */
    cairn_clock_virtual_advance(&world.clock, 30000);
    EXPECT_EQ_U64(cairn_store_appetite(world.worker), 64); /* back at full rate */
}

TEST(s08_slow_downs_halve_what_is_under_way_and_a_single_one_does_not) {
    WORLD(0);
    EXPECT(cairn_case_is_durable(&world, "op=part nth=1 : status=503/SlowDown", "shard"));
    EXPECT_EQ_U64(cairn_store_appetite(world.worker), 64);
    EXPECT(cairn_case_is_durable(&world, "op=part nth=1-3 : status=503/SlowDown", "other"));
    EXPECT(cairn_store_appetite(world.worker) < 64);
}

/* Good answers come all the time, so that the store counts as healthy and tries are counted. */
#define STEADY_TRAFFIC                                                                             \
    "; op=part part=3 : delay=800; op=part part=4 : delay=1600; op=part part=5 : delay=2400; "     \
    "op=part part=6 : delay=3200; op=part part=7 : delay=4000; op=part part=8 : delay=4800"

static bool fails_at_a_healthy_store(struct cairn_s3world *world, const char *rule,
                                     enum cairn_code wanted, const char *text) {
    CAIRN_AUTO(s3run) run = {.size_bytes = 8 * CAIRN_S3WORLD_PART};
    cairn_s3world_rules(world, TEXT("%s" STEADY_TRAFFIC, rule));
    EXPECT(cairn_s3run_send(world, &run) == wanted);
    uint64_t sent = cairn_s3world_acted(world, 0);
    /* Five, and those that fell into a moment without a good answer. */
    bool good = sent <= 8 && strstr(run.error.message, text) && run.error.request_id[0] &&
                strstr(run.error.message, "part 2 of 8");
    if (!good) fprintf(stderr, "sent %" PRIu64 " times: %s\n", sent, run.error.message);
    return good && cairn_s3world_open_uploads(world) == 0;
}

TEST(s08_a_part_that_always_fails_at_a_healthy_store_ends_after_five_tries) {
    WORLD(.s3 = {.no_hedge = true});
    EXPECT(fails_at_a_healthy_store(&world, "op=part part=2 : status=500/InternalError",
                                    CAIRN_UNAVAILABLE, "InternalError"));
}

TEST(s19_a_part_that_never_gets_an_etag_fails_by_name) {
    WORLD(.s3 = {.no_hedge = true});
    EXPECT(fails_at_a_healthy_store(&world, "op=part part=2 : etag=none", CAIRN_PROTOCOL, "ETag"));
}

TEST(s09_an_early_refusal_while_the_body_is_sent_is_understood) {
    WORLD(0);
    ALL_BECOME_DURABLE("op=part nth=2 : early@1000000, status=503/SlowDown",
                       "op=part nth=1 : early@0, status=500/InternalError",
                       "op=part nth=1 : early@4000000");
    EXPECT(cairn_case_fails(&world, "op=part part=2 : early@100000, status=403/AccessDenied",
                            CAIRN_FORBIDDEN));
    EXPECT(strstr(err.message, "AccessDenied") != NULL);
}

TEST(s13_a_lost_reply_to_create_leaves_an_upload_to_the_sweep_alone) {
    WORLD(0);
    SENT_WHOLE(run, "op=create nth=1 : rst@50%", .size_bytes = SHARD_BYTES);
    EXPECT_EQ_U64(cairn_s3world_open_uploads(&world), 1); /* nobody knows its id: Q21 */
    CAIRN_AUTO(store_listing) listing = {0};
    PERFORMED(uploads, world.worker,
              {.op = CAIRN_STORE_UPLOADS, .key = "shard", .listing = &listing});
    REQUIRE(listing.count == 1);
    PERFORMED(abort, world.worker,
              {.op = CAIRN_STORE_UPLOAD_ABORT,
               .key = listing.entries[0].key,
               .upload_id_in = listing.entries[0].upload_id});
    EXPECT_EQ_U64(cairn_s3world_open_uploads(&world), 0);
}

TEST(s19_etags_are_opaque_and_needed_and_checksums_in_replies_are_compared) {
    WORLD(0);
    ALL_BECOME_DURABLE("op=part|complete|put|head : etag=opaque", "op=part : etag=bare",
                       "op=part nth=1 : etag=none",
                       "op=part nth=2 : header=x-amz-checksum-crc32c:AAAAAA==",
                       "op=part : drop-header=x-amz-checksum-crc32c");
}

TEST(s20_a_part_that_was_damaged_on_the_way_is_sent_again) {
    WORLD(0);
    ALL_BECOME_DURABLE("op=part nth=1 : req-flip@5000", "op=part nth=3 : req-flip@0",
                       "op=part nth=1 : status=500/InternalError; op=part nth=4 : req-flip@99");
    SENT_WHOLE(small, "op=put nth=1 : req-flip@999", .size_bytes = 1000, .key = "small");
}

static void change_source(struct cairn_s3world *world, const struct cairn_multipart_action *action,
                          struct cairn_s3run *run) {
    (void)world;
    if (action->kind == CAIRN_MULTIPART_PART && action->part_number == 2)
        run->bytes[action->offset + 77] ^= 1;
}

TEST(s20_a_source_that_changed_is_found_by_the_store_and_never_committed) {
    WORLD(0);
    CAIRN_AUTO(s3run) run = {.size_bytes = SHARD_BYTES, .before = change_source};
    EXPECT_CODE(cairn_s3run_send(&world, &run), CAIRN_SOURCE_CHANGED);
    struct cairn_s3world_object object;
    EXPECT(!cairn_s3world_object(&world, "shard", &object));
    EXPECT_EQ_U64(cairn_s3world_open_uploads(&world), 0);
}

TEST(s21_a_store_that_refuses_crc32c_gets_md5_and_says_so) {
    WORLD(.profile = "b2");
    struct cairn_store_health health;
    cairn_store_health(world.store, &health);
    EXPECT(!health.degraded);
    EXPECT(cairn_case_is_durable(&world, "", "shard"));
    cairn_store_health(world.store, &health);
    EXPECT(health.degraded);
    EXPECT(strstr(health.text, "Content-MD5") != NULL);
    EXPECT(cairn_case_is_durable(&world, "op=part nth=2 : req-flip@77", "damaged"));
    EXPECT_EQ_U64(cairn_s3world_acted(&world, 0), 1);
    char code[256];
    cairn_s3world_last(&world, "part", "code", code);
    EXPECT(cairn_s3world_journaled(&world, "part", 400) >= 1);
}

TEST(s21_a_method_that_was_asked_for_is_not_silently_changed) {
    WORLD(.profile = "b2", .s3 = {.checksum = CAIRN_S3_CHECKSUM_CRC32C});
    CAIRN_AUTO(s3run) run = {.size_bytes = SHARD_BYTES};
    EXPECT(cairn_s3run_send(&world, &run) != CAIRN_OK);
    EXPECT(strstr(err.message, "x-amz-checksum") != NULL);
}

TEST(s22_a_first_attempt_that_lands_after_its_retry_changes_nothing) {
    WORLD(0);
    ALL_BECOME_DURABLE("op=part nth=1 : apply-late=20", "op=part nth=2 : apply-late=150",
                       "op=part nth=1-3 : apply-late=400");
    AWAIT(!cairn_s3world_counter(&world, "pending"));
    for (unsigned i = 0; i < 3; i++) {
        struct cairn_s3world_object object = {0};
        EXPECT(cairn_s3world_object(&world, TEXT("shard-%u", i), &object));
        EXPECT_EQ_U64(object.size, SHARD_BYTES);
    }
    EXPECT_EQ_U64(cairn_s3world_open_uploads(&world), 0);
}

TEST(s23_sizes_of_parts_suit_every_kind_of_store) {
    EACH_TEXT(text, "r2", "parts1000", "minio", "radosgw") {
        WORLD(.profile = text);
        const struct cairn_store_profile *profile = cairn_store_profile(world.store);
        CAIRN_AUTO(s3run) run = {.size_bytes = 17 * CAIRN_MIB + 1};
        run.part_bytes = cairn_multipart_part_bytes(profile, run.size_bytes, 1, 1);
        EXPECT(run.part_bytes >= 5 * CAIRN_MIB);
        REQUIRE_OK(cairn_s3run_send(&world, &run));
        EXPECT(cairn_s3run_is_whole(&world, &run));
    }
}

TEST(s23_more_parts_than_a_store_takes_are_refused_before_anything_is_sent) {
    struct cairn_s3world world = {0};
    struct cairn_multipart mp;
    EXPECT_CODE(cairn_multipart_init(&mp, 10001 * CAIRN_MIB, CAIRN_MIB, "t", &err),
                CAIRN_TOO_LARGE);
    struct cairn_store_profile profile = {
        .part_bytes_min = 5 * CAIRN_MIB, .part_bytes_max = 5 * CAIRN_GIB, .part_count_max = 1000};
    uint64_t size = 100 * CAIRN_GIB;
    uint64_t part = cairn_multipart_part_bytes(&profile, size, 8 * CAIRN_MIB, 1);
    EXPECT(cairn_div_up(size, part) <= 1000);
    profile.part_count_max = 10000;
    part = cairn_multipart_part_bytes(&profile, 5000 * CAIRN_GIB, 8 * CAIRN_MIB, 1);
    EXPECT(cairn_div_up(5000 * CAIRN_GIB, part) <= 10000);
}

TEST(s26_an_abort_is_repeated_until_the_upload_is_gone) {
    WORLD(.s3 = {.stall_ms = 300});
    EACH_TEXT(text, "op=abort nth=1 : status=500/InternalError", "op=abort nth=1 : stall@h0",
              "op=abort nth=1 : status=404/NoSuchUpload, apply",
              "op=abort nth=1-2 : req-rst@0, rst@h0") {
        const char *rules = TEXT("op=complete : status=403/AccessDenied; %s", text);
        REQUIRE_OK(cairn_s3world_open(&world, &world_options));
        EXPECT(cairn_case_fails(&world, rules, CAIRN_FORBIDDEN));
        EXPECT(cairn_s3world_acted(&world, 1) >= 1);
    }
}

TEST(s26_an_abort_comes_after_every_attempt_of_a_part_has_ended) {
    WORLD(0);
    EXPECT(cairn_case_fails(&world,
                            "op=part part=1 : status=403/AccessDenied; op=part part=2 : delay=300; "
                            "op=part part=3 : req-slow=100000",
                            CAIRN_FORBIDDEN));
    /* A refused shard resets its parts. The store had part 2 whole by then and may go on with it
     * after the abort, which is why an abort is repeated; part 3 was cut in its body. */
    EXPECT(cairn_s3world_journaled(&world, "part", 404) <= 1);
    EXPECT_EQ_U64(cairn_s3world_journaled(&world, "abort", 204), 1);
}

TEST(s26_a_part_that_lands_after_the_abort_leaves_nothing) {
    WORLD(0);
    EXPECT(cairn_case_fails(&world,
                            "op=part nth=1 : apply-late=500; op=complete : status=403/AccessDenied",
                            CAIRN_FORBIDDEN));
    AWAIT(!cairn_s3world_counter(&world, "pending"));
    EXPECT_EQ_U64(cairn_s3world_open_uploads(&world), 0);
}
