/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The store against a server that follows a script: the n-th request gets the n-th line, the last
 * line is repeated. What is checked is what the store makes of it and what it sent.
 */
#include "tests/support/s3_script.h"

TEST(a_put_carries_checksum_token_and_guard_and_is_signed) {
    RIG(plain, {200, STORED, ""});
    PERFORMED(put, rig.worker, PUT_REQUEST);
    EXPECT_EQ_TEXT(put.etag, "\"e\"");
    const char *head = rig.heads[0];
    EXPECT_HAS(head, "PUT /bucket/pre/fix/k HTTP/1.1\r\n", "x-amz-checksum-crc32c: 4waSgw==\r\n",
               "x-amz-meta-cairn-upload: tok\r\n", "If-None-Match: *\r\n",
               "Authorization: AWS4-HMAC-SHA256 Credential=AKIDCANARY/",
               "x-amz-content-sha256: 15e2b0d3", "!canary-of-a-secret");
}

TEST(a_big_body_is_not_hashed_unless_asked) {
    for (int asked = 0; asked < 2; asked++) {
        struct cairn_store_s3_options options = {.sign_payload = asked};
        RIG(options, {200, STORED, ""});
        CAIRN_AUTO_HEAP char *body = calloc(1, CAIRN_MIB);
        PERFORMED(put, rig.worker, {.op = CAIRN_STORE_PUT, .key = "k", .body = {body, CAIRN_MIB}});
        bool unsigned_body = strstr(rig.heads[0], "x-amz-content-sha256: UNSIGNED-PAYLOAD");
        EXPECT_EQ_U64(unsigned_body, !asked);
    }
}

TEST(refusals_become_codes_once_and_name_the_request) { /* S10 */
    EACH(one, FIELDS(int status; const char *body; enum cairn_code code),
         {403, ERROR_BODY("AccessDenied"), CAIRN_FORBIDDEN},
         {403, ERROR_BODY("SignatureDoesNotMatch"), CAIRN_UNAUTHORIZED},
         {403, ERROR_BODY("InvalidAccessKeyId"), CAIRN_UNAUTHORIZED},
         {404, ERROR_BODY("NoSuchBucket"), CAIRN_STORE},
         {404, ERROR_BODY("NoSuchUpload"), CAIRN_NOT_FOUND}, {404, "", CAIRN_NOT_FOUND},
         {412, "", CAIRN_PRECONDITION}, {400, ERROR_BODY("EntityTooLarge"), CAIRN_TOO_LARGE},
         {403, ERROR_BODY("QuotaExceeded"), CAIRN_NO_SPACE}, {418, "", CAIRN_STORE}) {
        struct cairn_s3_line script[] = {{one->status, "", one->body}};
        WITH_OK(rig, rig, cairn_rig_open(&rig, script, 1, plain));
        EXPECT_PERFORMED(one->code, put, rig.worker, PUT_REQUEST);
        EXPECT_ALL_U64(requests(&rig), 1, (uint64_t)err.http_status, (uint64_t)one->status);
        EXPECT(!put.ambiguous);
        EXPECT_HAS(err.message, "put k: ", "!canary");
        if (*one->body) EXPECT_EQ_TEXT(err.request_id, "req-1");
    }
}

TEST(a_lost_reply_makes_the_outcome_ambiguous) { /* store/store.h#6 */
    struct cairn_store_s3_options options = {.deadline_ms = 300};
    RIG(options, {0, "", ""});
    EXPECT_PERFORMED(CAIRN_TIMEOUT, put, rig.worker, PUT_REQUEST);
    EXPECT(put.ambiguous);
    EXPECT(put.tries >= 1);
}

TEST(a_guard_that_fails_after_a_lost_reply_is_ambiguous) { /* S25 */
    RIG(plain, {0, "", ""}, {412, "", ERROR_BODY("PreconditionFailed")});
    EXPECT_PERFORMED(CAIRN_PRECONDITION, put, rig.worker, PUT_REQUEST);
    EXPECT(put.ambiguous);
}

/* On a kept connection libcurl sends the put a second time by itself. */
TEST(a_guard_that_fails_after_a_kept_connection_died_is_ambiguous) {
    RIG(plain, {200, STORED, ""}, {0, "", ""}, {412, "", ERROR_BODY("PreconditionFailed")});
    struct cairn_store_request first = PUT_REQUEST, second = PUT_REQUEST;
    REQUIRE_OK(cairn_store_perform(rig.worker, &first, &err));
    EXPECT(!first.ambiguous);
    EXPECT_CODE(cairn_store_perform(rig.worker, &second, &err), CAIRN_PRECONDITION);
    EXPECT(second.ambiguous);
}

TEST(nothing_that_was_never_sent_is_ambiguous) {
    struct cairn_store_s3_options options = {.endpoint = "http://127.0.0.1:1", .deadline_ms = 200};
    struct cairn_store_options open = {.url = "s3://bucket", .s3 = &options};
    WITH_OK(rig, rig, cairn_store_s3_open(&open, &rig.store, &err));
    REQUIRE_OK(cairn_store_worker_new(rig.store, &rig.worker, &err));
    EXPECT_PERFORMED(CAIRN_TIMEOUT, put, rig.worker, PUT_REQUEST);
    EXPECT(!put.ambiguous);
    EXPECT(strstr(err.message, "127.0.0.1"));
}

/* ---- complete ---- */

#define DONE_BODY                                                                                  \
    "<CompleteMultipartUploadResult><ETag>\"e-1\"</ETag></CompleteMultipartUploadResult>"
static struct cairn_store_part one_part = {1, 9, true, 0xe3069283, "\"p1\""};
#define COMPLETE_REQUEST                                                                           \
    {                                                                                              \
        .op = CAIRN_STORE_UPLOAD_COMPLETE, .key = "k", .upload_id_in = "u/1", .parts = &one_part,  \
        .part_count = 1, .length = 9                                                               \
    }

TEST(a_complete_with_an_error_in_its_200_is_repeated) { /* S01 */
    RIG(plain, {200, "", "  \n" ERROR_BODY("InternalError")}, {200, "", ERROR_BODY("SlowDown")},
        {200, "", "   " DONE_BODY});
    PERFORMED(complete, rig.worker, COMPLETE_REQUEST);
    EXPECT_EQ_TEXT(complete.etag, "\"e-1\"");
    EXPECT_EQ_U64(complete.tries, 3);
    EXPECT(strstr(rig.heads[0], "POST /bucket/pre/fix/k?uploadId=u%2F1 HTTP/1.1"));
}

TEST(a_complete_whose_answer_is_lost_or_no_result_is_left_to_head) { /* S03-S05 */
    static const struct cairn_s3_line lines[] = {
        {0, "", ""},
        {200, "", ""},
        {200, "", "<html>Sign in</html>"},
        {200, "", "<CompleteMultipartUploadResult><ETag>\"e"},
    };
    for (size_t i = 0; i < CAIRN_COUNT(lines); i++) {
        WITH_OK(rig, rig, cairn_rig_open(&rig, &lines[i], 1, plain));
        struct cairn_store_request complete = COMPLETE_REQUEST;
        EXPECT(cairn_store_perform(rig.worker, &complete, &err) != CAIRN_OK);
        EXPECT(complete.ambiguous);
        EXPECT_EQ_U64(complete.tries, 1);
    }
}

/* ---- reading ---- */

#define RANGE_OK                                                                                   \
    { 206, "Content-Range: bytes 2-5/10\r\nETag: \"e\"\r\n", "cdef" }
#define GET_REQUEST                                                                                \
    { .op = CAIRN_STORE_GET, .key = "k", .offset = 2, .length = 4, .into = into }

TEST(wrong_ranges_never_reach_the_destination_and_are_asked_for_again) { /* S13-S17 */
    static const struct cairn_s3_line wrong[] = {
        {200, "", "abcdefghij"},
        {206, "", "cdef"},
        {206, "Content-Range: bytes 3-6/10\r\n", "XXXX"},
        {206, "Content-Range: bytes 2-6/10\r\n", "XXXXX"},
        {206, "Content-Range: bytes 2-5/10\r\n", "XXXXXXX"},
        {206, "Content-Range: bytes 2-5/10\r\n", "xyz"},
        {206, "Content-Range: bytes 2-5/4\r\n", "XXXX"},
        {206, "Content-Type: multipart/byteranges\r\n", "XXXX"},
        {204, "", ""},
        {302, "Location: http://127.0.0.1:1/\r\n", ""},
    };
    for (size_t i = 0; i < CAIRN_COUNT(wrong); i++) {
        struct cairn_s3_line script[] = {wrong[i], RANGE_OK};
        WITH_OK(rig, rig, cairn_rig_open(&rig, script, 2, plain));
        char into[8] = ".......";
        struct cairn_store_request get = GET_REQUEST;
        snprintf(get.etag, sizeof get.etag, "\"e\"");
        enum cairn_code code = cairn_store_perform(rig.worker, &get, &err);
        bool redirect = wrong[i].status == 302;
        EXPECT_EQ_U64(code, redirect ? CAIRN_STORE : CAIRN_OK);
        EXPECT_EQ_TEXT(into, redirect ? "......." : "cdef...");
        EXPECT_HAS(rig.heads[0], "Range: bytes=2-5\r\n", "If-Match: \"e\"\r\n");
        if (redirect) continue;
        EXPECT_EQ_U64(get.object_bytes, 10);
        EXPECT_EQ_U64(cairn_responder_connections(rig.server), 2); /* repeats use a new one */
    }
}

TEST(an_object_shorter_than_asked_is_a_range_error_at_once) {
    RIG(plain, {206, "Content-Range: bytes 2-3/4\r\n", "cd"});
    char into[4];
    EXPECT_PERFORMED(CAIRN_RANGE, get, rig.worker, GET_REQUEST);
    EXPECT_EQ_U64(requests(&rig), 1);
    get.length = 0;
    REQUIRE_OK(cairn_store_perform(rig.worker, &get, &err));
    EXPECT_EQ_U64(requests(&rig), 1);
}

TEST(what_is_asked_for_up_to_its_end_is_whole_also_from_who_takes_no_ranges) {
    static const uint64_t bytes[] = {2, 2, 0, 4};
    EACH_OF(struct cairn_s3_line, one, {206, "Content-Range: bytes 2-3/4\r\nETag: \"e\"\r\n", "cd"},
            {200, "ETag: \"e\"\r\n", "cd"}, {200, "ETag: \"e\"\r\n", ""},
            {206, "Content-Range: bytes 2-2/4\r\nETag: \"e\"\r\n", "c"},
            /* and where is the rest? */) {
        struct cairn_s3_line script[] = {
            one, {206, "Content-Range: bytes 2-5/10\r\nETag: \"e\"\r\n", "cdef"}};
        WITH_OK(rig, rig, cairn_rig_open(&rig, script, 2, plain));
        char into[8] = ".......";
        struct cairn_store_request get = GET_REQUEST;
        get.up_to = true;
        if (one.status == 200) get.offset = 0;
        REQUIRE_OK(cairn_store_perform(rig.worker, &get, &err));
        EXPECT_EQ_U64(get.length, bytes[AT_OF(one)]);
        EXPECT_EQ_U64(get.tries, AT_OF(one) == 3 ? 2 : 1);
        EXPECT(!memcmp(into, "cdef", bytes[AT_OF(one)]) && into[bytes[AT_OF(one)]] == '.');
    }
}

TEST(a_request_with_a_deadline_whose_body_arrives_altered_each_time_ends_after_five_tries) {
    struct cairn_store_s3_options patient = {.deadline_ms = 60000};
    RIG(patient, {400, "", ERROR_BODY("BadDigest")},
        {400, "", ERROR_BODY("XAmzContentChecksumMismatch")},
        {400, "", ERROR_BODY("XAmzContentSHA256Mismatch")}, {400, "", ERROR_BODY("BadDigest")});
    struct cairn_store_request put = PUT_REQUEST;
    put.deadline_ms = cairn_mono_ms() + HANG_MS;
    EXPECT_CODE(cairn_store_perform(rig.worker, &put, &err), CAIRN_CORRUPT);
    EXPECT_EQ_U64(put.tries, 5);
    EXPECT(!put.ambiguous);
    EXPECT(strstr(err.message, "BadDigest") && strstr(err.message, "is changed on the way"));
    enum cairn_code code = CAIRN_TIMEOUT; /* its deadline ends it in the same words */
    for (uint64_t ms = 700; ms < HANG_MS && code == CAIRN_TIMEOUT; ms *= 2) {
        struct cairn_store_request hasty = PUT_REQUEST;
        hasty.deadline_ms = cairn_mono_ms() + ms;
        code = cairn_store_perform(rig.worker, &hasty, &err);
        if (!strstr(err.message, "not its turn")) break; /* of a busy machine: longer, then */
    }
    EXPECT_CODE(code, CAIRN_CORRUPT);
    EXPECT(strstr(err.message, "BadDigest"));
}

TEST(a_request_of_a_save_waits_for_a_way_that_alters_bodies_to_recover) {
    struct cairn_store_s3_options patient = {.deadline_ms = 60000};
    RIG(patient, {400, "", ERROR_BODY("BadDigest")}, {400, "", ERROR_BODY("BadDigest")},
        {400, "", ERROR_BODY("BadDigest")}, {400, "", ERROR_BODY("BadDigest")},
        {400, "", ERROR_BODY("BadDigest")}, {400, "", ERROR_BODY("BadDigest")}, {200, STORED, ""});
    PERFORMED(put, rig.worker, PUT_REQUEST);
    EXPECT_EQ_U64(put.tries, 7);
}

/* ---- lists, deletion ---- */

TEST(a_store_opened_for_reading_writes_nothing) {
    struct cairn_store_s3_options options = {.endpoint = "http://127.0.0.1:1"};
    struct cairn_store_options open = {.url = "s3://bucket", .s3 = &options, .read_only = true};
    WITH_OK(rig, rig, cairn_store_s3_open(&open, &rig.store, &err));
    REQUIRE_OK(cairn_store_worker_new(rig.store, &rig.worker, &err));
    EXPECT_PERFORMED(CAIRN_FORBIDDEN, put, rig.worker, PUT_REQUEST);
}

/* ---- time ---- */

static void count_done(struct cairn_store_request *request) {
    (*(unsigned *)request->owner)++;
}

TEST(a_cancelled_request_is_done_once_and_says_if_it_may_have_been_applied) {
    RIG(plain, {-1, "", ""});
    unsigned done = 0;
    struct cairn_store_request put = PUT_REQUEST;
    put.done = count_done;
    put.owner = &done;
    cairn_store_submit(rig.worker, &put);
    EXPECT_EQ_U64(done, 0);
    AWAIT((cairn_store_poll(rig.worker, 10, &err) || requests(&rig)));
    cairn_store_cancel(rig.worker, &put);
    EXPECT_ALL_U64(done, 1, put.code, CAIRN_CANCELLED);
    EXPECT(put.ambiguous);
    cairn_store_submit(rig.worker, &put); /* and one that was never sent */
    cairn_store_cancel(rig.worker, &put);
    EXPECT_EQ_U64(done, 2);
    EXPECT(!put.ambiguous);
}

/* Of 9 bytes 3 are sent a second: the first put has until 4.5 s, and from 3 to 6 the other one has
 * its turn. */
TEST(a_deadline_that_ends_the_wait_for_the_next_try_names_the_altered_body_and_not_the_time) {
    struct cairn_store_s3_options options = {.deadline_ms = 60000, .bandwidth_bytes_per_s = 3};
    RIG(options, {400, "", ERROR_BODY("BadDigest")}, {-1, "", ""});
    struct cairn_store_request puts[2] = {PUT_REQUEST, PUT_REQUEST};
    unsigned done = 0;
    puts[0].deadline_ms = cairn_mono_ms() + 4500;
    for (int i = 0; i < 2; i++) {
        puts[i].done = count_done;
        puts[i].owner = &done;
        cairn_store_submit(rig.worker, &puts[i]);
    }
    AWAIT((cairn_store_poll(rig.worker, 100, &err) || done));
    cairn_store_cancel(rig.worker, &puts[1]);
    EXPECT_EQ_U64(puts[0].code, CAIRN_CORRUPT);
    EXPECT(strstr(puts[0].error.message, "no success before the deadline") != NULL);
}

TEST(many_requests_share_a_worker_and_all_end) {
    struct cairn_store_s3_options options = {.connections_max = 3};
    RIG(options, {200, STORED, ""});
    struct cairn_store_request many[100];
    unsigned done = 0;
    for (size_t i = 0; i < CAIRN_COUNT(many); i++) {
        many[i] = (struct cairn_store_request)PUT_REQUEST;
        many[i].done = count_done;
        many[i].owner = &done;
        cairn_store_submit(rig.worker, &many[i]);
    }
    AWAIT((cairn_store_poll(rig.worker, 100, &err) || done == 100));
    EXPECT_EQ_U64(done, 100);
    for (size_t i = 0; i < CAIRN_COUNT(many); i++) EXPECT_EQ_U64(many[i].code, CAIRN_OK);
    EXPECT(cairn_responder_connections(rig.server) <= 3);
    EXPECT_EQ_U64(cairn_store_appetite(rig.worker), 3);
}

/* The 12th part gets no answer on its first connection. */
static void answer_but_one(struct cairn_responder_request *request) {
    bool first = !atomic_exchange((atomic_bool *)request->owner, true);
    if (strstr(request->target, "partNumber=12&") && first) {
        request->close = cairn_responder_drain(request, 1) == 0;
        return;
    }
    atomic_store((atomic_bool *)request->owner, !strstr(request->target, "partNumber=11&"));
    cairn_responder_reply(request, 200, STORED, "");
}

TEST(a_part_that_waits_much_longer_than_usual_is_sent_again) { /* s3.h#4 */
    atomic_bool seen = true;
    CAIRN_AUTO(rig) rig = {0};
    struct cairn_responder_options serve = {.answer = answer_but_one, .owner = &seen};
    rig.server = cairn_responder_start(&serve);
    REQUIRE(rig.server);
    setenv("AWS_ACCESS_KEY_ID", "AKID", 1);
    setenv("AWS_SECRET_ACCESS_KEY", "secret", 1);
    struct cairn_store_s3_options options = {.endpoint = cairn_responder_url(rig.server)};
    struct cairn_store_options open = {.url = "s3://bucket", .s3 = &options};
    REQUIRE_OK(cairn_store_s3_open(&open, &rig.store, &err));
    REQUIRE_OK(cairn_store_worker_new(rig.store, &rig.worker, &err));
    for (uint32_t i = 1; i <= 12; i++) {
        uint64_t start = cairn_mono_ms();
        PERFORMED(part, rig.worker,
                  {.op = CAIRN_STORE_UPLOAD_PART,
                   .key = "k",
                   .upload_id_in = "u",
                   .part_number = i,
                   .body = CAIRN_VIEW("123456789")});
        uint64_t took = cairn_mono_ms() - start;
        /* An answer that a busy machine makes late is late, too. */
        EXPECT(i == 12 ? part.tries > 1 : part.tries == 1 || took >= 1000);
        EXPECT(i < 12 || (took >= 1000 && took < 60000)); /* its deadline is 5 min away */
    }
}

TEST(a_bandwidth_cap_holds_over_several_parts) {
    struct cairn_store_s3_options options = {.bandwidth_bytes_per_s = 10 * CAIRN_MIB};
    RIG(options, {200, STORED, ""});
    CAIRN_AUTO_HEAP char *body = calloc(1, CAIRN_MIB);
    uint64_t start = cairn_mono_ms();
    for (int i = 0; i < 5; i++) {
        PERFORMED(put, rig.worker, {.op = CAIRN_STORE_PUT, .key = "k", .body = {body, CAIRN_MIB}});
    }
    EXPECT(cairn_mono_ms() - start >= 400);
}
