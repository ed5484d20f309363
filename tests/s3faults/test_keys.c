/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: labels=s3 */
/* S10-S12: keys that end, clocks that are off, regions and redirects. */
#include <stdlib.h>

#include "tests/s3faults/cases.h"
#include "tests/support/http_responder.h"

#define SECOND_SECRET "canary+secret/key=second"

/* ---- S10 ---- */

/* Hands out the first pair of keys once, then the second; or only ever the first. */
struct cairn_key_source {
    struct cairn_responder *responder;
    bool renews;
};
static void cairn_key_source_release(struct cairn_key_source *source) {
    cairn_responder_stop(source->responder);
    unsetenv("AWS_CONTAINER_CREDENTIALS_FULL_URI");
}

static void answer_keys(struct cairn_responder_request *request) {
    const struct cairn_key_source *source = request->owner;
    bool second = source->renews && request->index > 0;
    char body[600];
    snprintf(body, sizeof body,
             "{\"AccessKeyId\":\"%s\",\"SecretAccessKey\":\"%s\",\"Token\":\"%s\","
             "\"Expiration\":\"2099-01-01T00:00:00Z\"}",
             second ? "CANARYSECOND" : CAIRN_S3WORLD_ACCESS,
             second ? SECOND_SECRET : CAIRN_S3WORLD_SECRET, CAIRN_S3WORLD_TOKEN);
    cairn_responder_reply(request, 200, "Content-Type: application/json\r\n", body);
}

static void start_source(struct cairn_key_source *source) {
    struct cairn_responder_options options = {.answer = answer_keys, .owner = source};
    source->responder = cairn_responder_start(&options);
    unsetenv("AWS_ACCESS_KEY_ID");
    unsetenv("AWS_SECRET_ACCESS_KEY");
    unsetenv("AWS_SESSION_TOKEN");
    setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", cairn_responder_url(source->responder), 1);
}

TEST(s10_keys_that_end_in_the_middle_are_renewed_once_and_the_upload_goes_on) {
    CAIRN_AUTO(key_source) source = {.renews = true};
    start_source(&source);
    WORLD(.own_keys = true, .token = true);
    cairn_s3world_post(&world, "keys", "CANARYSECOND " SECOND_SECRET " " CAIRN_S3WORLD_TOKEN);
    CAIRN_AUTO(s3run) run = {.size_bytes = 6 * CAIRN_S3WORLD_PART};
    cairn_s3world_rules(&world, "op=part nth=2 : expire-keys");
    REQUIRE_OK(cairn_s3run_send(&world, &run));
    EXPECT(cairn_s3run_is_whole(&world, &run));
    EXPECT_EQ_U64(cairn_s3world_counter(&world, "op_create"), 1);
    EXPECT(cairn_s3world_journaled(&world, "part", 400) >= 2);    /* several met the end */
    EXPECT_EQ_U64(cairn_responder_requests(source.responder), 2); /* one of them renewed */
    char key[256];
    cairn_s3world_last(&world, "complete", "access_key", key);
    EXPECT_EQ_TEXT(key, "CANARYSECOND");
}

TEST(s10_invalid_token_is_renewed_too) {
    CAIRN_AUTO(key_source) source = {.renews = true};
    start_source(&source);
    WORLD(.own_keys = true, .token = true);
    cairn_s3world_post(&world, "keys", "CANARYSECOND " SECOND_SECRET " " CAIRN_S3WORLD_TOKEN);
    EXPECT(cairn_case_is_durable(&world, "op=part nth=1 : status=400/InvalidToken", "a"));
    EXPECT_EQ_U64(cairn_responder_requests(source.responder), 2);
}

TEST(s10_keys_that_cannot_be_renewed_fail_at_once) {
    CAIRN_AUTO(key_source) source = {.renews = false};
    start_source(&source);
    WORLD(.own_keys = true, .token = true);
    CAIRN_AUTO(s3run) run = {.size_bytes = SHARD_BYTES};
    cairn_s3world_rules(&world, "op=part nth=1 : expire-keys");
    EXPECT_CODE(cairn_s3run_send(&world, &run), CAIRN_UNAUTHORIZED);
    EXPECT(cairn_s3world_counter(&world, "op_part") <= 4);
    EXPECT(cairn_responder_requests(source.responder) <= 12); /* a few for each of three parts */
    EXPECT(!strstr(err.message, CAIRN_S3WORLD_SECRET));
}

static void write_keys(const char *access, const char *secret) {
    char path[512];
    snprintf(path, sizeof path, "%s/keys", cairn_test_folder());
    FILE *file = fopen(path, "w");
    EXPECT(file && fprintf(file,
                           "[default]\naws_access_key_id = %s\naws_secret_access_key = %s\n"
                           "aws_session_token = " CAIRN_S3WORLD_TOKEN "\n",
                           access, secret) > 0);
    if (file) EXPECT(fclose(file) == 0);
    setenv("AWS_SHARED_CREDENTIALS_FILE", path, 1);
}

TEST(s10_keys_of_a_file_that_were_refused_are_read_again_without_a_restart) {
    unsetenv("AWS_ACCESS_KEY_ID");
    unsetenv("AWS_SECRET_ACCESS_KEY");
    unsetenv("AWS_SESSION_TOKEN");
    WORLD(.own_keys = true, .token = true, .no_store = true);
    write_keys(CAIRN_S3WORLD_ACCESS, CAIRN_S3WORLD_SECRET);
    REQUIRE_OK(cairn_s3world_open(&world, &world_options));
    cairn_s3world_post(&world, "keys", "CANARYSECOND " SECOND_SECRET " " CAIRN_S3WORLD_TOKEN);
    EXPECT(cairn_case_is_durable(&world, "", "before"));
    CAIRN_AUTO(s3run) run = {.key = "ended", .size_bytes = 1000};
    cairn_s3world_rules(&world, "op=put nth=1 : expire-keys");
    EXPECT_CODE(cairn_s3run_send(&world, &run), CAIRN_UNAUTHORIZED);
    EXPECT(strstr(run.error.message, "the files are read again as soon as they change"));
    write_keys("CANARYSECOND", SECOND_SECRET);
    EXPECT(cairn_case_is_durable(&world, "", "after"));
    char key[256];
    cairn_s3world_last(&world, "complete", "access_key", key);
    EXPECT_EQ_TEXT(key, "CANARYSECOND");
}

TEST(s10_refusals_that_stay_fail_at_once_and_are_not_repeated) {
    WORLD(0);
    static const struct {
        const char *rules, *text;
        enum cairn_code code;
    } refusals[] = {
        {"op=create : status=403/SignatureDoesNotMatch", "DoesNotMatch", CAIRN_UNAUTHORIZED},
        {"op=create : status=403/AccessDenied", "AccessDenied", CAIRN_FORBIDDEN},
        {"op=create : status=404/NoSuchBucket", "NoSuchBucket", CAIRN_STORE},
        {"op=create : status=403/InvalidAccessKeyId", "InvalidAccessKeyId", CAIRN_UNAUTHORIZED},
        {"op=create : status=400/ExpiredToken", "has no others", CAIRN_UNAUTHORIZED}};
    for (size_t i = 0; i < CAIRN_COUNT(refusals); i++) {
        REQUIRE_OK(cairn_s3world_open(&world, &world_options));
        EXPECT(cairn_case_fails(&world, refusals[i].rules, refusals[i].code));
        EXPECT(strstr(err.message, refusals[i].text) != NULL);
        EXPECT(cairn_s3world_acted(&world, 0) <= 2); /* they are not repeated */
    }
    REQUIRE_OK(cairn_s3world_open(&world, &world_options));
    EXPECT(cairn_case_fails(&world, "op=part part=2 : status=403/AccessDenied", CAIRN_FORBIDDEN));
    EXPECT(strstr(err.message, "part 2 of 3") != NULL);
    EXPECT_EQ_U64(cairn_s3world_acted(&world, 0), 1);
}

TEST(s10_a_wrong_secret_and_an_absent_bucket_are_named) {
    WORLD(0);
    setenv("AWS_SECRET_ACCESS_KEY", "canary+of/another", 1);
    REQUIRE_OK(cairn_s3world_open(&world, &world_options));
    CAIRN_AUTO(s3run) run = {.size_bytes = 100};
    EXPECT_CODE(cairn_s3run_send(&world, &run), CAIRN_UNAUTHORIZED);
    EXPECT(strstr(err.message, "SignatureDoesNotMatch") != NULL);
    EXPECT_EQ_U64(cairn_s3world_counter(&world, "op_put"), 1);
}

/* ---- S11 ---- */

TEST(s11_a_clock_that_is_off_is_corrected_from_the_stores_date) {
    WORLD(0);
    EXPECT(cairn_case_is_durable(&world, "op=create nth=1 : clock=+1200", "ahead"));
    EXPECT(cairn_s3world_journaled(&world, "create", 403) == 1);
    cairn_s3world_post(&world, "reset", "");
    REQUIRE_OK(cairn_s3world_open(&world, &world_options));
    EXPECT(cairn_case_is_durable(&world, "op=part nth=2 : clock=-86400", "behind"));
    cairn_s3world_post(&world, "reset", "");
    REQUIRE_OK(cairn_s3world_open(&world, &world_options));
    EXPECT(cairn_case_is_durable(&world, "op=head nth=1 : clock=+3000", "head"));
}

TEST(s11_a_date_with_an_age_is_not_believed) {
    WORLD(0);
    CAIRN_AUTO(s3run) run = {.size_bytes = 1000};
    cairn_s3world_rules(&world, "op=put nth=1 : clock=+1200, header=Age:5; op=put : header=Age:5");
    EXPECT_CODE(cairn_s3run_send(&world, &run), CAIRN_UNAUTHORIZED);
    EXPECT_EQ_U64(cairn_s3world_counter(&world, "op_put"), 1);
}

TEST(s11_a_wrong_date_does_not_make_a_loop) {
    WORLD(0);
    CAIRN_AUTO(s3run) run = {.size_bytes = 1000};
    cairn_s3world_rules(&world, "op=put nth=1 : status=403/RequestTimeTooSkewed; "
                                "op=put : status=403/RequestTimeTooSkewed, "
                                "header=Date:Fri%2C 24 May 2013 00:00:00 GMT");
    EXPECT_CODE(cairn_s3run_send(&world, &run), CAIRN_UNAUTHORIZED);
    EXPECT(cairn_s3world_counter(&world, "op_put") <= 2);
}

static void mark_done(struct cairn_store_request *request) {
    *(bool *)request->owner = true;
}

/* The store slows down, the request waits for 20 minutes, and both clocks go on meanwhile. */
TEST(s11_a_request_is_signed_when_it_is_sent_and_not_when_it_was_queued) {
    WORLD(.virtual_clock = true, .s3 = {.deadline_ms = 3600000});
    bool done = false;
    struct cairn_store_request put = {.op = CAIRN_STORE_PUT,
                                      .key = "queued",
                                      .body = CAIRN_VIEW("bytes"),
                                      .done = mark_done,
                                      .owner = &done};
    cairn_s3world_rules(&world, "op=put nth=1 : status=503/SlowDown, header=Retry-After:50");
    cairn_store_submit(world.worker, &put);
    for (int i = 0; i < 50 && cairn_s3world_counter(&world, "op_put") == 0; i++)
        EXPECT_CODE(cairn_store_poll(world.worker, 20, &err), CAIRN_OK);
    EXPECT_CODE(cairn_store_poll(world.worker, 50, &err), CAIRN_OK);
    cairn_s3world_post(&world, "clock", "1200");
    cairn_clock_virtual_advance(&world.clock, 1200000);
    for (int i = 0; i < 50 && !done; i++)
        EXPECT_CODE(cairn_store_poll(world.worker, 50, &err), CAIRN_OK);
    EXPECT(done);
    if (!done) cairn_store_cancel(world.worker, &put);
    EXPECT_CODE(put.code, CAIRN_OK);
    EXPECT_EQ_U64(cairn_s3world_counter(&world, "op_put"), 2);
    EXPECT_EQ_U64(cairn_s3world_journaled(&world, "put", 403), 0);
}

/* ---- S12 ---- */

TEST(s12_another_region_is_signed_for_and_the_whole_body_sent_again) {
    WORLD(.region = "eu-west-7");
    EXPECT(cairn_case_is_durable(&world, "", "shard"));
    CAIRN_AUTO(s3run) small = {.size_bytes = 54321, .key = "small"};
    REQUIRE_OK(cairn_s3world_open(&world, &world_options));
    REQUIRE_OK(cairn_s3run_send(&world, &small));
    EXPECT(cairn_s3run_is_whole(&world, &small));
    EXPECT_EQ_U64(cairn_s3world_journaled(&world, "put", 400), 1);
    /* And as AWS says it to a bucket's old address. */
    CAIRN_AUTO(s3run) moved = {.size_bytes = 54321, .key = "moved"};
    REQUIRE_OK(cairn_s3world_open(&world, &world_options));
    cairn_s3world_rules(&world, "op=put nth=1 : redirect=/301");
    REQUIRE_OK(cairn_s3run_send(&world, &moved));
    EXPECT(cairn_s3run_is_whole(&world, &moved));
}

static void answer_nothing(struct cairn_responder_request *request) {
    cairn_responder_reply(request, 200, "ETag: \"x\"\r\n", "");
}

TEST(s12_a_redirect_to_another_host_is_never_followed) {
    WORLD(0);
    struct cairn_responder_options options = {.answer = answer_nothing};
    struct cairn_responder *foreign = cairn_responder_start(&options);
    static const char *const ops[] = {"create", "part", "complete"};
    static const int statuses[] = {301, 302, 307, 308};
    for (size_t i = 0; i < CAIRN_COUNT(ops); i++)
        for (size_t j = 0; j < CAIRN_COUNT(statuses); j++) {
            char rules[300];
            snprintf(rules, sizeof rules, "op=%s : redirect=%s/taken/%d", ops[i],
                     cairn_responder_url(foreign), statuses[j]);
            EXPECT(cairn_case_fails(&world, rules, CAIRN_STORE));
            EXPECT(cairn_s3world_acted(&world, 0) <= 3);
        }
    EXPECT_EQ_U64(cairn_responder_requests(foreign), 0);
    cairn_responder_stop(foreign);
}
