/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: labels=s3 */
/* S10-S12: keys that end, clocks that are off, regions and redirects. */
#include "tests/s3faults/cases.h"
#include "tests/support/http_responder.h"

#define SECOND_SECRET "canary+secret/key=second"

/* ---- S10 ---- */

enum { WORKS, SAYS_THE_FIRST, SAYS_500, SAYS_403, SAYS_RUBBISH, HANGS };

/* Hands out the first pair of keys once; then what `then` says, `times` times; then the second. */
struct cairn_key_source {
    struct cairn_responder *responder;
    int then;
    uint32_t times;
};
static void cairn_key_source_release(struct cairn_key_source *source) {
    cairn_responder_stop(source->responder);
    unsetenv("AWS_CONTAINER_CREDENTIALS_FULL_URI");
}

static void answer_keys(struct cairn_responder_request *request) {
    const struct cairn_key_source *source = request->owner;
    int now = request->index && request->index <= source->times ? source->then : WORKS;
    bool second = request->index && now != SAYS_THE_FIRST;
    const char *keys = TEXT("{\"AccessKeyId\":\"%s\",\"SecretAccessKey\":\"%s\",\"Token\":\"%s\","
                            "\"Expiration\":\"2099-01-01T00:00:00Z\"}",
                            second ? "CANARYSECOND" : CAIRN_S3WORLD_ACCESS,
                            second ? SECOND_SECRET : CAIRN_S3WORLD_SECRET, CAIRN_S3WORLD_TOKEN);
    if (now == HANGS) (void)cairn_responder_drain(request, 1); /* until the other side has left */
    if (now <= SAYS_THE_FIRST)
        cairn_responder_reply(request, 200, "Content-Type: application/json\r\n", keys);
    if (now == SAYS_500) cairn_responder_reply(request, 500, "", "away");
    if (now == SAYS_403) cairn_responder_reply(request, 403, "", "");
    if (now == SAYS_RUBBISH) cairn_responder_reply(request, 200, "", "<html>log in</html>");
}

static void forget_keys(void) {
    unsetenv("AWS_ACCESS_KEY_ID");
    unsetenv("AWS_SECRET_ACCESS_KEY");
    unsetenv("AWS_SESSION_TOKEN");
}

static void start_source(struct cairn_key_source *source) {
    struct cairn_responder_options options = {.answer = answer_keys, .owner = source};
    source->responder = cairn_responder_start(&options);
    forget_keys();
    setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", cairn_responder_url(source->responder), 1);
}

/* A world whose keys come from a source. */
#define KEYS_OF(...)                                                                               \
    CAIRN_AUTO(key_source) source = {__VA_ARGS__};                                                 \
    start_source(&source)

TEST(s10_keys_that_end_in_the_middle_are_renewed_once_and_the_upload_goes_on) {
    KEYS_OF(.then = WORKS);
    WORLD(.own_keys = true, .token = true);
    cairn_s3world_post(&world, "keys", "CANARYSECOND " SECOND_SECRET " " CAIRN_S3WORLD_TOKEN);
    SENT_WHOLE(run, "op=part nth=2 : expire-keys", .size_bytes = 6 * CAIRN_S3WORLD_PART);
    EXPECT_EQ_U64(cairn_s3world_counter(&world, "op_create"), 1);
    EXPECT(cairn_s3world_journaled(&world, "part", 400) >= 2);    /* several met the end */
    EXPECT_EQ_U64(cairn_responder_requests(source.responder), 2); /* one of them renewed */
    char key[256];
    cairn_s3world_last(&world, "complete", "access_key", key);
    EXPECT_EQ_TEXT(key, "CANARYSECOND");
}

TEST(s10_invalid_token_is_renewed_too) {
    KEYS_OF(.then = WORKS);
    WORLD(.own_keys = true, .token = true);
    cairn_s3world_post(&world, "keys", "CANARYSECOND " SECOND_SECRET " " CAIRN_S3WORLD_TOKEN);
    EXPECT(cairn_case_is_durable(&world, "op=part nth=1 : status=400/InvalidToken", "a"));
    EXPECT_EQ_U64(cairn_responder_requests(source.responder), 2);
}

TEST(s10_keys_that_cannot_be_renewed_fail_at_once) {
    KEYS_OF(.then = SAYS_THE_FIRST, .times = UINT32_MAX);
    WORLD(.own_keys = true, .token = true);
    CAIRN_AUTO(s3run) run = {.size_bytes = SHARD_BYTES};
    cairn_s3world_rules(&world, "op=part nth=1 : expire-keys");
    EXPECT_CODE(cairn_s3run_send(&world, &run), CAIRN_UNAUTHORIZED);
    EXPECT(cairn_s3world_counter(&world, "op_part") <= 4);
    EXPECT(cairn_responder_requests(source.responder) <= 12); /* a few for each of three parts */
    EXPECT(!strstr(err.message, CAIRN_S3WORLD_SECRET));
}

/* ---- whoever has new ones fails, or says nothing ---- */

/* Each takes seconds; a request that only its deadline ends takes 5 min. */
#define SOON_MS 120000

static void send_over(const struct cairn_key_source *source, struct cairn_s3world *world,
                      struct cairn_s3run *run, uint64_t *ret_ms) {
    cairn_s3world_post(world, "keys", "CANARYSECOND " SECOND_SECRET " " CAIRN_S3WORLD_TOKEN);
    cairn_s3world_rules(world, "op=part nth=2 : expire-keys");
    uint64_t began = cairn_mono_ms();
    enum cairn_code code = cairn_s3run_send(world, run);
    *ret_ms = cairn_mono_ms() - began;
    EXPECT(code == run->error.code);
    EXPECT(cairn_responder_requests(source->responder) >= 2);
    EXPECT(cairn_responder_requests(source->responder) <= 20);
    EXPECT(cairn_s3world_counter(world, "op_part") <= 12); /* of 6 */
    /* Nobody may abort without keys: that is the sweep's, which has its own. */
    EXPECT(cairn_s3world_open_uploads(world) <= 1);
}

/* One failure that names the source; few questions to it, few parts to the store, soon: the tries
 * of a part and of the abort, with the pauses between them. */
static void expect_one_failure(int then) {
    uint64_t took_ms = 0;
    KEYS_OF(.then = then, .times = UINT32_MAX);
    WORLD(.own_keys = true, .token = true, .s3 = {.no_hedge = true});
    CAIRN_AUTO(s3run) run = {.size_bytes = 6 * CAIRN_S3WORLD_PART};
    send_over(&source, &world, &run, &took_ms);
    EXPECT(run.error.code != CAIRN_OK);
    EXPECT(strstr(run.error.message, "container endpoint") != NULL);
    EXPECT(!strstr(run.error.message, CAIRN_S3WORLD_SECRET));
    EXPECT(took_ms < SOON_MS);
}

/* A source that is away for a moment is a store that is away for a moment: waited for. */
static void expect_waiting(int then, uint32_t times) {
    uint64_t took_ms = 0;
    KEYS_OF(.then = then, .times = times);
    WORLD(.own_keys = true, .token = true, .s3 = {.no_hedge = true});
    CAIRN_AUTO(s3run) run = {.size_bytes = 6 * CAIRN_S3WORLD_PART};
    send_over(&source, &world, &run, &took_ms);
    EXPECT(run.durable);
    EXPECT(took_ms < SOON_MS);
}

TEST(s10_a_renewal_that_is_refused_or_makes_no_sense_is_one_failure) {
    expect_one_failure(SAYS_403);
    expect_one_failure(SAYS_RUBBISH);
}

TEST(s10_a_renewal_that_fails_for_a_moment_or_hangs_is_waited_for_and_loses_nothing) {
    expect_waiting(SAYS_500, 3);
    expect_waiting(HANGS, 1); /* 5 s it is waited for, and not by each part */
}

/* ---- refusals ---- */

static void write_keys(const char *access, const char *secret) {
    const char *path = TEXT("%s/keys", cairn_test_folder());
    FILE *file = fopen(path, "w");
    EXPECT(file && fprintf(file,
                           "[default]\naws_access_key_id = %s\naws_secret_access_key = %s\n"
                           "aws_session_token = " CAIRN_S3WORLD_TOKEN "\n",
                           access, secret) > 0);
    if (file) EXPECT(fclose(file) == 0);
    setenv("AWS_SHARED_CREDENTIALS_FILE", path, 1);
}

TEST(s10_keys_of_a_file_that_were_refused_are_read_again_without_a_restart) {
    forget_keys();
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
    EACH(one, FIELDS(const char *rules, *text; enum cairn_code code),
         {"op=create : status=403/SignatureDoesNotMatch", "DoesNotMatch", CAIRN_UNAUTHORIZED},
         {"op=create : status=403/AccessDenied", "AccessDenied", CAIRN_FORBIDDEN},
         {"op=create : status=404/NoSuchBucket", "NoSuchBucket", CAIRN_STORE},
         {"op=create : status=403/InvalidAccessKeyId", "InvalidAccessKeyId", CAIRN_UNAUTHORIZED},
         {"op=create : status=400/ExpiredToken", "has no others", CAIRN_UNAUTHORIZED}) {
        REQUIRE_OK(cairn_s3world_open(&world, &world_options));
        EXPECT(cairn_case_fails(&world, one->rules, one->code));
        EXPECT(strstr(err.message, one->text) != NULL);
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
    EXPECT_FAILS(cairn_s3run_send(&world, &run), CAIRN_UNAUTHORIZED, "SignatureDoesNotMatch");
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
    REQUIRE_AWAIT((cairn_store_poll(world.worker, 20, &err) || cairn_case_is_refused(&world)));
    cairn_s3world_post(&world, "clock", "1200");
    cairn_clock_virtual_advance(&world.clock, 1200000);
    AWAIT((cairn_store_poll(world.worker, 50, &err) || done));
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
    static const int statuses[] = {301, 302, 307, 308};
    EACH_TEXT(text, "create", "part", "complete")
        for (size_t j = 0; j < CAIRN_COUNT(statuses); j++) {
            EXPECT(cairn_case_fails(&world,
                                    TEXT("op=%s : redirect=%s/taken/%d", text,
                                         cairn_responder_url(foreign), statuses[j]),
                                    CAIRN_STORE));
            EXPECT(cairn_s3world_acted(&world, 0) <= 3);
        }
    EXPECT_EQ_U64(cairn_responder_requests(foreign), 0);
    cairn_responder_stop(foreign);
}
