/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: labels=s3 */
/*
 * S01-S06 and S25: what the answer to Complete says, what it hides, and what is there after it.
 * Each case sends a shard of three parts through the client against s3fault.
 */
#include "tests/s3faults/cases.h"

TEST(s01_a_200_with_an_error_in_it_is_no_success_and_complete_is_repeated) {
    WORLD(0);
    ALL_BECOME_DURABLE("op=complete nth=1 : complete-200-error=InternalError",
                       "op=complete nth=1 : complete-200-error=SlowDown",
                       "op=complete nth=1-2 : complete-200-error=InternalError",
                       "op=complete nth=1 : complete-200-error=InternalError, apply");
    cairn_s3world_post(&world, "reset", "");
    EXPECT(cairn_case_is_durable(&world, "op=complete nth=1 : complete-200-error=InternalError",
                                 "once"));
    EXPECT_COUNTED("op_complete=2 op_create=1 op_part=3");
}

TEST(s01_where_a_second_complete_finds_no_upload_the_object_proves_it) {
    WORLD(.profile = "minio");
    EXPECT(cairn_case_is_durable(
        &world, "op=complete nth=1 : complete-200-error=InternalError, apply", "shard"));
    EXPECT_EQ_U64(cairn_s3world_counter(&world, "op_create"), 1);
}

/* Another writer of the same upload: part 2 becomes something else just before Complete. */
static void spoil_part(struct cairn_s3world *world, const struct cairn_multipart_action *action,
                       struct cairn_s3run *run) {
    if (action->kind == CAIRN_MULTIPART_COMPLETE && run->count_of[action->kind] == 1) {
        char id[256];
        cairn_s3world_last(world, "part", "upload", id);
        uint8_t *other = calloc(1, CAIRN_S3WORLD_PART);
        struct cairn_store_request part = {.op = CAIRN_STORE_UPLOAD_PART,
                                           .key = run->key,
                                           .upload_id_in = id,
                                           .part_number = 2,
                                           .body = {other, CAIRN_S3WORLD_PART},
                                           .has_crc32c = true};
        part.crc32c = cairn_crc32c(0, other, CAIRN_S3WORLD_PART);
        EXPECT(cairn_store_perform(world->worker, &part, NULL) == CAIRN_OK);
        free(other);
    }
}

TEST(s02_after_invalid_part_what_differs_is_sent_again) {
    WORLD(0);
    SENT_WHOLE(run, NULL, .size_bytes = SHARD_BYTES, .before = spoil_part);
    EXPECT_EQ_U64(cairn_s3world_journaled(&world, "complete", 400), 1);
    EXPECT_EQ_U64(run.count_of[CAIRN_MULTIPART_PART], 4); /* one of three again */
    EXPECT_EQ_U64(run.rounds, 0);
}

TEST(s02_an_invalid_part_that_stays_fails_by_name_and_is_not_repeated_for_ever) {
    WORLD(0);
    ALL_BECOME_DURABLE("op=complete nth=1 : status=400/InvalidPart",
                       "op=complete nth=1 : complete-200-error=InvalidPart");
    cairn_s3world_post(&world, "reset", "");
    EXPECT(cairn_case_fails(&world, "op=complete : status=400/InvalidPart", CAIRN_INCOMPLETE));
    EXPECT(strstr(err.message, "InvalidPart") != NULL);
    EXPECT(cairn_s3world_counter(&world, "op_complete") <= 5);
}

TEST(s02_a_forbidden_complete_fails_at_once) {
    WORLD(0);
    EXPECT(cairn_case_fails(&world, "op=complete : status=403/AccessDenied", CAIRN_FORBIDDEN));
    EXPECT(strstr(err.message, "AccessDenied") != NULL);
    EXPECT(err.request_id[0]);
    EXPECT(
        cairn_case_fails(&world, "op=complete : complete-200-error=AccessDenied", CAIRN_FORBIDDEN));
    EXPECT_EQ_U64(cairn_s3world_counter(&world, "op_complete"), 2);
}

TEST(s03_white_space_keeps_a_slow_complete_alive) {
    WORLD(.s3 = {.stall_ms = 400});
    EXPECT(cairn_case_is_durable(&world, "op=complete nth=1 : complete-whitespace=900", "shard"));
    EXPECT_EQ_U64(cairn_s3world_counter(&world, "op_complete"), 1);
}

TEST(s03_white_space_without_end_meets_the_deadline_and_a_cut_is_settled_by_head) {
    WORLD(.s3 = {.deadline_ms = 700});
    EXPECT(
        cairn_case_is_durable(&world, "op=complete nth=1 : complete-whitespace=300, cut", "cut"));
    uint64_t began = cairn_mono_ms();
    EXPECT(
        cairn_case_is_durable(&world, "op=complete nth=1 : complete-whitespace=200000", "endless"));
    EXPECT(cairn_mono_ms() - began < 60000);
    EXPECT_EQ_U64(cairn_s3world_counter(&world, "op_complete"), 2);
}

TEST(s04_an_answer_that_is_no_result_is_never_success) {
    WORLD(0);
    ALL_BECOME_DURABLE("op=complete nth=1 : empty", "op=complete nth=1 : html",
                       "op=complete nth=1 : body=<Surprise></Surprise>",
                       "op=complete nth=1 : body=<CompleteMultipartUploadResult><ETag>x");
    EXPECT_EQ_U64(cairn_s3world_counter(&world, "op_complete"), 8); /* it was not there: again */
}

TEST(s04_an_answer_that_is_no_result_may_hide_a_success) {
    WORLD(0);
    ALL_BECOME_DURABLE("op=complete nth=1 : empty, apply", "op=complete nth=1 : html, apply",
                       "op=complete nth=1 : truncate@50%", "op=complete nth=1 : truncate@-1",
                       "op=complete nth=1 : gzip, flip@0");
    EXPECT_EQ_U64(cairn_s3world_counter(&world, "op_complete"), 5); /* it was there: HEAD says so */
}

TEST(s04_a_create_without_a_result_is_begun_again) {
    WORLD(0);
    ALL_BECOME_DURABLE("op=create nth=1 : html", "op=create nth=1 : empty",
                       "op=create nth=1 : body=<InitiateMultipartUploadResult/>");
    EXPECT_EQ_U64(cairn_s3world_counter(&world, "op_create"), 6);
}

TEST(s05_a_lost_reply_to_complete_is_success_exactly_once) {
    WORLD(.s3 = {.stall_ms = 400});
    ALL_BECOME_DURABLE("op=complete nth=1 : lose-reply", "op=complete nth=1 : fin@h0",
                       "op=complete nth=1 : rst@h10", "op=complete nth=1 : rst@50%",
                       "op=complete nth=1 : fin@-1", "op=complete nth=1 : stall@h0",
                       "op=complete nth=1 : stall@50%");
    EXPECT_COUNTED("op_complete=7 op_create=7");
}

TEST(s05_a_gateway_error_after_complete_was_applied_is_success) {
    WORLD(.profile = "minio");
    ALL_BECOME_DURABLE("op=complete nth=1 : status=502/BadGateway, apply",
                       "op=complete nth=1 : status=504/, apply",
                       "op=complete nth=1 : status=500/InternalError, html, apply");
    EXPECT_EQ_U64(cairn_s3world_counter(&world, "op_create"), 3);
}

TEST(s05_a_complete_that_is_applied_late_is_not_lost_and_not_doubled) {
    WORLD(0);
    EXPECT(cairn_case_is_durable(&world, "op=complete nth=1 : apply-late=300", "shard"));
    EXPECT_EQ_U64(cairn_s3world_counter(&world, "op_create"), 1);
}

/* Ceph joins the parts for as long as that takes, and answers each further Complete with 500. */
TEST(s05_a_complete_that_is_called_in_progress_for_seconds_is_waited_for) {
    WORLD(0);
    EXPECT(cairn_case_is_durable(&world,
                                 "op=complete nth=1 : apply-late=3000\n"
                                 "op=complete nth=2+ : status=500/InternalError",
                                 "shard"));
    EXPECT_COUNTED("op_create=1 op_part=3");
}

/* Keys without s3:ListBucket get 403 for what is not there. */
TEST(s05_where_a_missing_object_is_403_a_lost_complete_is_repeated) {
    WORLD(0);
    EXPECT(cairn_case_is_durable(&world,
                                 "op=complete nth=1 : req-rst@50%\n"
                                 "op=head nth=1-2 : status=403/AccessDenied\n"
                                 "op=get nth=1 : status=403/AccessDenied",
                                 "shard"));
    EXPECT_EQ_U64(cairn_s3world_counter(&world, "op_create"), 1);
    EXPECT(cairn_s3world_acted(&world, 2) == 1); /* which named the cause */
    EXPECT(cairn_s3world_counter(&world, "op_parts") >= 1);
}

TEST(s05_a_lost_reply_to_a_single_put_is_success_exactly_once) {
    WORLD(0);
    EACH_TEXT(text, "op=put nth=1 : lose-reply", "op=put nth=1 : status=500/InternalError, apply",
              "op=put nth=1 : fin@h7") {
        SENT_WHOLE(run, text, .size_bytes = 4321);
        EXPECT_EQ_U64(cairn_s3world_journaled(&world, "put", 412), 1); /* the second found it */
        cairn_s3world_post(&world, "reset", "");
    }
}

TEST(s06_no_such_upload_while_ours_is_there_is_success) {
    WORLD(.profile = "minio");
    EXPECT(cairn_case_is_durable(&world, "op=complete nth=1 : status=500/InternalError, apply",
                                 "shard"));
    EXPECT_EQ_U64(cairn_s3world_journaled(&world, "complete", 404), 1);
    EXPECT_EQ_U64(cairn_s3world_counter(&world, "op_part"), 3);
}

TEST(s06_no_such_upload_while_another_object_is_there_fails_by_name_and_leaves_it) {
    WORLD(.profile = "radosgw");
    CAIRN_AUTO(s3run) older = {.size_bytes = 100};
    REQUIRE_OK(cairn_s3run_send(&world, &older));
    EXPECT(cairn_case_fails(&world, "op=complete nth=1 : drop-upload", CAIRN_CONFLICT));
    EXPECT(strstr(err.message, older.used_token) != NULL);
    EXPECT(cairn_s3run_is_whole(&world, &older));
}

TEST(s06_no_such_upload_with_nothing_there_begins_anew) {
    WORLD(0);
    SENT_WHOLE(run, "op=complete nth=1 : drop-upload", .size_bytes = SHARD_BYTES);
    EXPECT_EQ_U64(run.rounds, 1);
    cairn_s3world_post(&world, "reset", "");
    EXPECT(
        cairn_case_fails(&world, "op=complete : drop-upload", CAIRN_STORE)); /* but not for ever */
    EXPECT(cairn_s3world_counter(&world, "op_create") <= 4);
}

TEST(s25_a_412_for_our_own_earlier_success_is_success) {
    WORLD(0);
    ALL_BECOME_DURABLE("op=complete nth=1 : status=412/PreconditionFailed, apply",
                       "op=complete nth=1 : status=500/InternalError, apply");
    SENT_WHOLE(run, "op=put nth=1 : status=503/SlowDown, apply", .size_bytes = 99, .key = "small");
    EXPECT_EQ_U64(cairn_s3world_journaled(&world, "put", 412), 1);
}

TEST(s25_a_412_for_another_object_fails_and_leaves_it) {
    WORLD(0);
    CAIRN_AUTO(s3run) older = {.size_bytes = 100};
    REQUIRE_OK(cairn_s3run_send(&world, &older));
    EXPECT(cairn_case_fails(&world, "", CAIRN_CONFLICT));
    CAIRN_AUTO(s3run) small = {.size_bytes = 200};
    EXPECT_CODE(cairn_s3run_send(&world, &small), CAIRN_CONFLICT);
    EXPECT(cairn_s3run_is_whole(&world, &older));
}

TEST(s25_a_409_is_tried_again) {
    WORLD(0);
    ALL_BECOME_DURABLE("op=complete nth=1 : status=409/ConditionalRequestConflict",
                       "op=complete nth=1-2 : status=409/OperationAborted");
}

TEST(s25_a_409_of_complete_may_hide_a_success_so_the_object_is_looked_for) { /* R3 */
    WORLD(0);
    cairn_s3world_rules(&world, "op=complete : status=409/OperationAborted");
    struct cairn_store_part part = {.number = 1, .size_bytes = 1, .etag = "\"e\""};
    struct cairn_store_request complete = {.op = CAIRN_STORE_UPLOAD_COMPLETE,
                                           .key = "shard",
                                           .upload_id_in = "upload",
                                           .parts = &part,
                                           .part_count = 1,
                                           .create = true};
    EXPECT_CODE(cairn_store_perform(world.worker, &complete, &err), CAIRN_CONFLICT);
    EXPECT(complete.ambiguous); /* store/multipart.h#2: HEAD follows */
    EXPECT_COUNTED("op_complete=3");
}

TEST(s25_where_the_condition_is_ignored_or_refused_a_save_goes_on) {
    EACH_TEXT(text, "radosgw", "b2", "r2") {
        WORLD(.profile = text);
        EXPECT(cairn_case_is_durable(&world, "", "shard"));
    }
}
