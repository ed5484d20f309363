/* SPDX-License-Identifier: Apache-2.0 */
/* The multipart state machine, one scripted answer at a time. The random world is in
 * test_multipart_world.c. */
#include "tests/store/multipart_run.h"

TEST(part_sizes_keep_every_limit) {
    struct cairn_store_profile profile = {
        .part_bytes_min = 5 * CAIRN_MIB, .part_bytes_max = 5 * CAIRN_GIB, .part_count_max = 10000};
    EXPECT_ALL_U64(cairn_multipart_part_bytes(&profile, CAIRN_GIB, 64 * CAIRN_MIB, 1),
                   64 * CAIRN_MIB, cairn_multipart_part_bytes(&profile, 0, 1, 1), 5 * CAIRN_MIB,
                   cairn_multipart_part_bytes(&profile, 0, 6 * CAIRN_MIB + 1, 1), 7 * CAIRN_MIB,
                   cairn_multipart_part_bytes(&profile, 9 * CAIRN_GIB, 9 * CAIRN_GIB, 1),
                   5 * CAIRN_GIB);
    for (uint32_t connections = 0; connections <= 4096; connections += 64) {
        uint64_t huge = 5 * CAIRN_GIB * 1000 - 1, part;
        profile.part_count_max = 10000;
        part = cairn_multipart_part_bytes(&profile, huge, 1, connections);
        EXPECT(part % CAIRN_MIB == 0 && cairn_div_up(huge, part) <= 10000);
        profile.part_count_max = 1000;
        part = cairn_multipart_part_bytes(&profile, huge, 1, connections);
        EXPECT(part % CAIRN_MIB == 0 && cairn_div_up(huge, part) <= 1000);
    }
}

TEST(part_sizes_let_every_connection_carry_one) {
    struct cairn_store_profile profile = {
        .part_bytes_min = 5 * CAIRN_MIB, .part_bytes_max = 5 * CAIRN_GIB, .part_count_max = 10000};
    EACH(row, FIELDS(uint64_t size_mib, most_mib, part_mib; uint32_t connections),
         {256, 64, 16, 16},                       /* sixteen parts instead of four */
         {256, 64, 8, 64},                        /* not below 8 MiB */
         {256, 64, 64, 4},                        /* the setting, by chance */
         {256, 64, 64, 1},                        /* the setting bounds it */
         {4096, 64, 64, 64},                      /* and here */
         {4096, 64, 32, 128}, {1000, 64, 16, 64}, /* 15.6 MiB, rounded up */
         {256, 6, 6, 64},                         /* a setting below 8 MiB is meant */
         {16, 64, 16, 64},                        /* small: one request */
         {17, 64, 8, 64})
        EXPECT_EQ_U64(cairn_multipart_part_bytes(&profile, row->size_mib * CAIRN_MIB,
                                                 row->most_mib * CAIRN_MIB, row->connections),
                      row->part_mib * CAIRN_MIB);
}

TEST(wrong_sizes_are_refused, err) {
    struct cairn_multipart mp = {0};
    EXPECT_CODE(cairn_multipart_init(&mp, 1, CAIRN_MIB + 1, TOKEN, &err), CAIRN_INVALID);
    EXPECT_CODE(cairn_multipart_init(&mp, 1, 0, TOKEN, &err), CAIRN_INVALID);
    EXPECT_CODE(cairn_multipart_init(&mp, 10001 * CAIRN_MIB, CAIRN_MIB, TOKEN, &err),
                CAIRN_TOO_LARGE);
    cairn_multipart_release(&mp);
}

TEST(a_shard_of_several_parts_is_created_sent_completed_and_looked_at) {
    RUN(run, CAIRN_MIB);
    PLAY(&run, "SENT, COMPLETE");
    EXPECT_EQ_U64(run.action.crc32c, whole_crc32c());
    EXPECT_EQ_TEXT(run.mp.parts[1].sent.etag, "etag-2");
    EXPECT_NEXT(&run, WAIT);
    run.action.kind = CAIRN_MULTIPART_COMPLETE;
    answer(&run, CAIRN_OK);
    PLAY(&run, "HEAD: ours, DURABLE, DURABLE");
}

TEST(a_small_or_empty_shard_is_one_put, err) {
    RUN(run, 4 * CAIRN_MIB);
    EXPECT_NEXT(&run, PUT);
    EXPECT_ALL_U64(run.action.length, SIZE, run.action.crc32c, whole_crc32c());
    answer(&run, CAIRN_OK);
    PLAY(&run, "HEAD: ours, DURABLE");
    WITH_OK(run, empty, cairn_multipart_init(&empty.mp, 0, CAIRN_MIB, TOKEN, &err));
    PLAY(&empty, "PUT: ok, HEAD");
    answer_head(&empty, TOKEN, 0, 0);
    EXPECT_NEXT(&empty, DURABLE);
}

TEST(parts_are_asked_for_as_their_bytes_become_ready, err) {
    WITH_OK(run, run, cairn_multipart_init(&run.mp, SIZE, CAIRN_MIB, TOKEN, &err));
    EXPECT_NEXT(&run, WAIT);
    REQUIRE_OK(cairn_multipart_ready(&run.mp, CAIRN_MIB + 5, blocks, 0, 1, &err));
    PLAY(&run, "CREATE: ok, PART");
    EXPECT_EQ_U64(run.action.crc32c, blocks[0]);
    EXPECT_NEXT(&run, WAIT);
    REQUIRE_OK(cairn_multipart_ready(&run.mp, SIZE, blocks + 1, 1, 2, &err));
    PLAY(&run, "PART, PART");
    EXPECT_EQ_U64(run.action.length, CAIRN_MIB - 7);
    EXPECT_NEXT(&run, WAIT);
}

TEST(gaps_and_changed_checksums_are_refused, err) {
    WITH_OK(run, run, cairn_multipart_init(&run.mp, SIZE, CAIRN_MIB, TOKEN, &err));
    EXPECT_CODE(cairn_multipart_ready(&run.mp, 2 * CAIRN_MIB, blocks, 0, 1, &err), CAIRN_INVALID);
    EXPECT_CODE(cairn_multipart_ready(&run.mp, SIZE + 1, blocks, 0, 3, &err), CAIRN_INVALID);
    EXPECT_CODE(cairn_multipart_ready(&run.mp, 2 * CAIRN_MIB, blocks, 1, 1, &err), CAIRN_INVALID);
    EXPECT_CODE(cairn_multipart_ready(&run.mp, 2 * CAIRN_MIB, blocks, 0, 2, &err), CAIRN_OK);
    EXPECT_CODE(cairn_multipart_ready(&run.mp, CAIRN_MIB, blocks, 0, 1, &err), CAIRN_INVALID);
    EXPECT_CODE(cairn_multipart_ready(&run.mp, SIZE, blocks + 2, 0, 3, &err), CAIRN_SOURCE_CHANGED);
}

TEST(s01_a_failed_complete_is_repeated) {
    RUN(run, CAIRN_MIB);
    PLAY(&run, "SENT, COMPLETE: unavailable, COMPLETE: busy, COMPLETE");
}

TEST(s02_refused_parts_are_compared_and_sent_again_once) {
    RUN(run, CAIRN_MIB);
    PLAY(&run, "SENT, COMPLETE: invalid, LIST_PARTS");
    EXPECT_EQ_U64(run.action.length, CAIRN_MIB);
    answer_listed(&run, 2);
    PLAY(&run,
         "PART 2: ok, COMPLETE: invalid, LIST_PARTS: listed-2, ABORT: ok, FAILED: store-corrupt");
    EXPECT(strstr(run.mp.error.message, "part 2"));
}

TEST(s02_a_forbidden_complete_fails_at_once) {
    RUN(run, CAIRN_MIB);
    PLAY(&run, "SENT, COMPLETE: forbidden, ABORT: ok, FAILED: forbidden");
}

TEST(s05_a_lost_reply_to_complete_is_success_when_the_object_is_ours) { /* multipart.h#2 */
    RUN(run, CAIRN_MIB);
    PLAY(&run, "SENT, COMPLETE: lost, HEAD: ours, DURABLE");
}

/* multipart.h#2: moto's HEAD, for one, states the CRC32 of an object made of parts as its CRC32C.
 * */
TEST(r3_a_stated_checksum_that_differs_is_settled_by_reading_the_object_back) {
    for (int right = 0; right < 2; right++) {
        RUN(run, CAIRN_MIB);
        PLAY(&run, "SENT, COMPLETE: ok, HEAD");
        answer_head(&run, TOKEN, SIZE, whole_crc32c() ^ 1);
        EXPECT_NEXT(&run, READ);
        run.request.got_crc32c = run.action.crc32c ^ (right ? 0 : 1);
        answer(&run, CAIRN_OK);
        if (right) {
            EXPECT_NEXT(&run, DURABLE);
            EXPECT(run.mp.misstated);
            continue;
        }
        PLAY(&run, "ABORT: ok, FAILED: store-corrupt");
    }
}

TEST(r3_an_object_whose_parts_answers_were_disputed_is_read_back) {
    RUN(run, CAIRN_MIB);
    PLAY(&run, "CREATE: ok");
    for (uint32_t i = 1; i <= PARTS; i++) {
        EXPECT_NEXT(&run, PART);
        run.request.disputed = i == 2;
        answer(&run, CAIRN_OK);
    }
    PLAY(&run, "COMPLETE: ok, HEAD: unsummed, READ: same, DURABLE");
    EXPECT(run.mp.misstated);
}

TEST(r3_an_object_with_another_token_length_or_checksum_proves_nothing) {
    EACH(one, FIELDS(const char *token; uint64_t size; uint32_t flip; const char *code),
         {"other", SIZE, 0, "conflict"}, {"", SIZE, 1, "store-corrupt"},
         {TOKEN, SIZE - 1, 0, "conflict"}, {TOKEN, SIZE, 1, "store-corrupt"}) {
        RUN(run, CAIRN_MIB);
        PLAY(&run, "SENT, COMPLETE: lost, HEAD");
        answer_head(&run, one->token, one->size, whole_crc32c() ^ one->flip);
        if (one->flip) PLAY(&run, "READ: other");
        PLAY(&run, TEXT("ABORT: ok, FAILED: %s", one->code));
    }
}

/* One COMPLETE without an outcome, HEAD finds nothing, and all parts are still listed. */
static bool complete_in_vain(struct cairn_run *run, uint64_t *ret_pause_ms) {
    if (next(run) != CAIRN_MULTIPART_COMPLETE) return false;
    answer_ambiguous(run);
    *ret_pause_ms = run->mp.pause_ms;
    return play(run, __LINE__, "HEAD: not-found, LIST_PARTS: listed");
}

TEST(r3_a_complete_in_progress_is_asked_about_for_five_minutes_with_pauses_that_grow) {
    struct cairn_clock_virtual clock;
    uint64_t pause_ms = 0, longest_ms = 0, waited_ms = 0;
    unsigned completes = 0;
    cairn_clock_virtual_init(&clock, 0);
    WITH(run, run, start(&run, CAIRN_MIB));
    run.mp.clock = &clock.clock;
    REQUIRE(send_parts(&run));
    for (; complete_in_vain(&run, &pause_ms); completes++) {
        EXPECT(pause_ms >= longest_ms);
        longest_ms = pause_ms;
        waited_ms += pause_ms;
        cairn_clock_virtual_advance(&clock, pause_ms);
    }
    EXPECT_EQ_U64(run.action.kind, CAIRN_MULTIPART_ABORT);
    EXPECT(waited_ms >= CAIRN_MULTIPART_PATIENCE_MS && waited_ms < 2 * CAIRN_MULTIPART_PATIENCE_MS);
    EXPECT_EQ_U64(longest_ms, 10000);
    EXPECT(completes > 10 && completes < 50);
    answer(&run, CAIRN_NOT_FOUND);
    EXPECT_FAILED(&run, STORE);
    EXPECT_HAS(run.mp.error.message, "complete was asked for", "last: scripted");
}

TEST(whoever_does_not_wait_is_given_a_bounded_number_of_actions) { /* multipart.h#4 */
    struct cairn_clock_virtual clock;
    uint64_t pause_ms = 0;
    unsigned completes = 0;
    cairn_clock_virtual_init(&clock, 0);
    WITH(run, run, start(&run, CAIRN_MIB));
    run.mp.clock = &clock.clock;
    REQUIRE(send_parts(&run));
    while (completes < 1000 && complete_in_vain(&run, &pause_ms)) completes++;
    EXPECT(completes < 100);
}

TEST(an_object_that_is_shown_late_is_looked_for_before_its_shard_is_sent_again) {
    for (int taken = 0; taken < 2; taken++) {
        RUN(run, CAIRN_MIB);
        PLAY(&run, "SENT, COMPLETE");
        answer(&run, taken ? CAIRN_PRECONDITION : CAIRN_OK);
        for (int i = 0; i < 5; i++) {
            PLAY(&run, "HEAD: not-found");
            EXPECT(run.mp.pause_ms > 0);
        }
        PLAY(&run, "HEAD: ours, DURABLE");
    }
}

/* The second COMPLETE finds no upload, since the first one has used it up. */
TEST(an_upload_that_a_lost_complete_has_used_up_is_no_reason_to_begin_anew) {
    RUN(run, CAIRN_MIB);
    PLAY(&run, "SENT, COMPLETE: lost, HEAD: not-found, LIST_PARTS: listed, COMPLETE: not-found");
    for (int i = 0; i < 3; i++) PLAY(&run, "HEAD: not-found");
    PLAY(&run, "HEAD: ours, DURABLE");
    EXPECT_EQ_U64(run.mp.rounds, 0);
}

/* ---- multipart.h#6: without the right to list, what is not there is 403 ---- */

TEST(a_refused_head_after_a_lost_complete_is_decided_by_the_list_of_parts) {
    RUN(run, CAIRN_MIB);
    PLAY(&run, "SENT, COMPLETE: lost, HEAD: refused, LIST_PARTS: listed, COMPLETE: ok, HEAD: ours, "
               "DURABLE");
}

TEST(where_neither_head_nor_list_of_parts_is_allowed_the_right_is_named) {
    RUN(run, CAIRN_MIB);
    PLAY(&run,
         "SENT, COMPLETE: lost, HEAD: refused, LIST_PARTS: refused, ABORT: ok, FAILED: forbidden");
    EXPECT(strstr(run.mp.error.message, "s3:ListMultipartUploadParts"));
}

TEST(a_refused_head_after_a_lost_put_is_decided_by_another_put) {
    RUN(run, 4 * CAIRN_MIB);
    PLAY(&run, "PUT: lost, HEAD: refused, PUT: precondition-failed, HEAD: ours, DURABLE");
}

TEST(a_head_that_is_refused_though_the_object_must_be_there_fails_the_shard) {
    unsigned heads = 0;
    WITH(run, run, start(&run, CAIRN_MIB));
    PLAY(&run, "SENT, COMPLETE: ok");
    while (heads < 100 && next(&run) == CAIRN_MULTIPART_HEAD) {
        answer_refused(&run);
        heads++;
    }
    EXPECT(heads > 1 && heads < 20);
    EXPECT_EQ_U64(run.action.kind, CAIRN_MULTIPART_ABORT);
    answer(&run, CAIRN_NOT_FOUND);
    EXPECT_FAILED(&run, FORBIDDEN);
}

TEST(a_complete_that_is_applied_late_is_found_before_anything_is_sent_again) {
    RUN(run, CAIRN_MIB);
    PLAY(&run, "SENT, COMPLETE: lost, HEAD: not-found, LIST_PARTS: not-found, HEAD: ours, DURABLE");
}

TEST(s06_no_such_upload_at_complete_is_settled_by_head) {
    for (int there = 0; there < 3; there++) {
        RUN(run, CAIRN_MIB);
        PLAY(&run, "SENT, COMPLETE: not-found, HEAD");
        if (there == 0) {
            answer_ours(&run);
            EXPECT_NEXT(&run, DURABLE);
        } else if (there == 1) {
            answer_head(&run, "other", 5, 0);
            EXPECT_FAILED(&run, CONFLICT); /* no upload to abort, and nothing is replaced */
        } else {
            answer(&run, CAIRN_NOT_FOUND);
            REQUIRE(send_parts(&run));
            EXPECT_EQ_U64(run.mp.rounds, 1);
        }
    }
}

TEST(s07_an_upload_that_vanishes_is_begun_anew_three_times) {
    RUN(run, CAIRN_MIB);
    for (int i = 0; i <= 3; i++) {
        EXPECT_NEXT(&run, CREATE);
        snprintf(run.request.upload_id, sizeof run.request.upload_id, "upload-%d", i);
        answer(&run, CAIRN_OK);
        EXPECT_NEXT(&run, PART);
        struct cairn_multipart_action first = run.action;
        PLAY(&run, "PART: not-found, WAIT"); /* part 1 may still be on the wire */
        run.action = first;
        answer(&run, CAIRN_OK);
        PLAY(&run, "HEAD: not-found");
    }
    EXPECT_FAILED(&run, STORE);
}

TEST(a_part_is_tried_five_times_and_then_named) {
    RUN(run, CAIRN_MIB);
    PLAY(&run, "CREATE: ok, PART: ok");
    for (int i = 0; i < 5; i++) {
        PLAY(&run, "PART 2");
        answer(&run, i % 2 ? CAIRN_TIMEOUT : CAIRN_CORRUPT);
    }
    PLAY(&run, "ABORT: ok, FAILED: store-corrupt");
    EXPECT(strstr(run.mp.error.message, "part 2 of 3"));
}

/* What a full folder, a bucket beyond its quota and a read-only mount answer. */
static void answer_full(struct cairn_run *run, bool read_only) {
    if (read_only) run->request.error.os_errno = EROFS;
    run->request.code = read_only ? CAIRN_IO : CAIRN_NO_SPACE;
    cairn_multipart_result(&run->mp, &run->action, &run->request);
}

TEST(a_store_that_is_full_or_read_only_is_asked_twenty_times_more_at_each_step) {
    for (int read_only = 0; read_only < 2; read_only++) {
        RUN(run, CAIRN_MIB);
        for (int i = 0; i < 20; i++) {
            EXPECT_NEXT(&run, CREATE);
            answer_full(&run, read_only);
        }
        PLAY(&run, "CREATE: ok");
        for (uint32_t part = 1; part <= PARTS; part++) {
            for (int i = 0; i < 20; i++) {
                EXPECT_NEXT(&run, PART);
                EXPECT_EQ_U64(run.action.part_number, part);
                answer_full(&run, read_only);
            }
            PLAY(&run, "PART: ok");
        }
        for (int i = 0; i < 20; i++) {
            EXPECT_NEXT(&run, COMPLETE);
            answer_full(&run, read_only);
        }
        PLAY(&run, "COMPLETE: ok, HEAD: ours, DURABLE");
    }
}

TEST(a_store_that_stays_full_fails_the_shard_with_that_reason) {
    RUN(run, 4 * CAIRN_MIB);
    for (int i = 0; i < 21; i++) PLAY(&run, "PUT: no-space");
    EXPECT_FAILED(&run, NO_SPACE);
}

TEST(s25_a_refused_precondition_is_settled_by_head) {
    RUN(run, 4 * CAIRN_MIB);
    PLAY(&run, "PUT: conflict, PUT: precondition-failed, HEAD: ours, DURABLE");
}

TEST(s26_abort_waits_for_every_part_and_is_repeated) {
    RUN(run, CAIRN_MIB);
    PLAY(&run, "CREATE: ok, PART");
    struct cairn_multipart_action part = run.action;
    struct cairn_error why = {0};
    cairn_fail(&why, CAIRN_CANCELLED, "the save was cancelled");
    cairn_multipart_give_up(&run.mp, &why);
    EXPECT_NEXT(&run, WAIT);
    run.action = part;
    answer(&run, CAIRN_OK);
    PLAY(&run, "ABORT: unavailable, ABORT: not-found, FAILED: cancelled");
}

TEST(q17_a_restart_finds_the_finished_object) {
    RECOVERED(run, CAIRN_MIB, "upload-1", blocks);
    PLAY(&run, "HEAD: ours, DURABLE");
}

TEST(q17_a_restart_completes_without_a_slab_when_all_parts_arrived) {
    RECOVERED(run, CAIRN_MIB, "upload-1", blocks);
    PLAY(&run, "HEAD: not-found, LIST_PARTS: listed, COMPLETE");
    EXPECT_EQ_U64(run.mp.parts_acked, PARTS);
    answer(&run, CAIRN_OK);
    PLAY(&run, "HEAD: ours, DURABLE");
}

TEST(q17_a_restart_waits_for_the_source_and_sends_what_is_missing) {
    RECOVERED(run, CAIRN_MIB, "upload-1", blocks);
    PLAY(&run, "HEAD: not-found, LIST_PARTS: listed-3, NEED_SOURCE, NEED_SOURCE");
    cairn_multipart_source(&run.mp);
    PLAY(&run, "PART 3: ok, COMPLETE");
}

TEST(q17_without_a_source_the_upload_is_aborted) {
    RECOVERED(run, CAIRN_MIB, "upload-1", NULL);
    PLAY(&run,
         "HEAD: not-found, LIST_PARTS: listed"); /* nothing to compare with: no checksum is known */
    EXPECT_NEXT(&run, NEED_SOURCE);
    struct cairn_error why = {0};
    cairn_fail(&why, CAIRN_SOURCE_GONE, "nobody offered the slab again");
    cairn_multipart_give_up(&run.mp, &why);
    PLAY(&run, "ABORT: ok, FAILED: source-gone");
}

TEST(a_found_object_without_known_checksums_waits_for_them, err) {
    for (int flip = 0; flip < 2; flip++) {
        RECOVERED(run, 4 * CAIRN_MIB, NULL, NULL);
        EXPECT_NEXT(&run, HEAD);
        answer_head(&run, TOKEN, SIZE, whole_crc32c() ^ (uint32_t)flip);
        EXPECT_NEXT(&run, NEED_SOURCE);
        cairn_multipart_source(&run.mp);
        EXPECT_NEXT(&run, WAIT);
        REQUIRE_OK(cairn_multipart_ready(&run.mp, SIZE, blocks, 0, PARTS, &err));
        if (flip) {
            PLAY(&run, "READ: other, FAILED: store-corrupt");
        } else {
            EXPECT_NEXT(&run, DURABLE);
        }
    }
}

TEST(an_unsent_action_is_asked_for_again) {
    RUN(run, 4 * CAIRN_MIB);
    for (int i = 0; i < 20; i++) {
        EXPECT_NEXT(&run, PUT);
        cairn_multipart_unsent(&run.mp, &run.action);
    }
    EXPECT_NEXT(&run, PUT);
}

TEST(a_listing_without_checksums_is_compared_by_etag) {
    RUN(run, CAIRN_MIB);
    PLAY(&run, "SENT, COMPLETE: lost, HEAD: not-found, LIST_PARTS");
    for (uint32_t i = 0; i < PARTS; i++) {
        run.listed[i] =
            (struct cairn_store_part){.number = i + 1, .size_bytes = CAIRN_MIB - (i == 2 ? 7 : 0)};
        snprintf(run.listed[i].etag, sizeof run.listed[i].etag, "etag-%u", i == 1 ? 9 : i + 1);
    }
    run.request.part_count = PARTS;
    answer(&run, CAIRN_OK);
    PLAY(&run, "PART 2");
}

/* A store that lists parts without their checksums; the journal knows what it acknowledged. */
static void listed_by_etag(struct cairn_run *run, uint32_t crc_wrong, uint32_t etag_other) {
    for (uint32_t i = 0; i < PARTS; i++) {
        struct cairn_store_part part = {.number = i + 1,
                                        .size_bytes = CAIRN_MIB - (i == 2 ? 7 : 0),
                                        .has_crc32c = true,
                                        .crc32c = blocks[i] ^ (i + 1 == crc_wrong)};
        snprintf(part.etag, sizeof part.etag, "etag-%u", i + 1);
        cairn_multipart_remember(&run->mp, &part);
        if (i + 1 == etag_other) snprintf(part.etag, sizeof part.etag, "another");
        part.has_crc32c = false;
        part.crc32c = 0;
        run->listed[i] = part;
    }
    PLAY(run, "HEAD: not-found, LIST_PARTS");
    run->request.part_count = PARTS;
    answer(run, CAIRN_OK);
}

TEST(q17_parts_that_the_journal_knows_by_etag_are_not_sent_again) {
    RECOVERED(run, CAIRN_MIB, "upload-1", blocks);
    listed_by_etag(&run, 0, 0);
    EXPECT_NEXT(&run, COMPLETE);
    EXPECT_EQ_U64(run.action.crc32c, whole_crc32c());
    EXPECT_EQ_TEXT(run.mp.parts[1].sent.etag, "etag-2");
}

TEST(q17_a_part_of_another_etag_or_of_other_bytes_is_sent_again) {
    for (int other_bytes = 0; other_bytes < 2; other_bytes++) {
        RECOVERED(run, CAIRN_MIB, "upload-1", blocks);
        listed_by_etag(&run, other_bytes ? 2 : 0, other_bytes ? 0 : 2);
        EXPECT_NEXT(&run, NEED_SOURCE);
        cairn_multipart_source(&run.mp);
        PLAY(&run, "PART 2, WAIT");
    }
}
