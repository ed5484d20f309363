/* SPDX-License-Identifier: Apache-2.0 */
/* S10: the keys end in the middle of an upload, and whoever has new ones fails or says nothing. */
#include "tests/s3faults/cases.h"
#include "tests/support/http_responder.h"

enum { WORKS, SAYS_500, SAYS_403, SAYS_RUBBISH, HANGS };

/* Hands out good keys once; then what `then` says. */
struct cairn_failing_source {
    struct cairn_responder *responder;
    int then;
};
static void cairn_failing_source_release(struct cairn_failing_source *source) {
    cairn_responder_stop(source->responder);
    unsetenv("AWS_CONTAINER_CREDENTIALS_FULL_URI");
}

static void answer_once(struct cairn_responder_request *request) {
    const struct cairn_failing_source *source = request->owner;
    const char *keys = "{\"AccessKeyId\":\"" CAIRN_S3WORLD_ACCESS
                       "\",\"SecretAccessKey\":\"" CAIRN_S3WORLD_SECRET
                       "\",\"Token\":\"" CAIRN_S3WORLD_TOKEN
                       "\",\"Expiration\":\"2099-01-01T00:00:00Z\"}";
    int now = request->index ? source->then : WORKS;
    if (now == HANGS) (void)cairn_responder_drain(request, 1); /* until the other side has left */
    if (now == WORKS) cairn_responder_reply(request, 200, "", keys);
    if (now == SAYS_500) cairn_responder_reply(request, 500, "", "away");
    if (now == SAYS_403) cairn_responder_reply(request, 403, "", "");
    if (now == SAYS_RUBBISH) cairn_responder_reply(request, 200, "", "<html>log in</html>");
}

static void start_source(struct cairn_failing_source *source) {
    struct cairn_responder_options options = {.answer = answer_once, .owner = source};
    source->responder = cairn_responder_start(&options);
    unsetenv("AWS_ACCESS_KEY_ID");
    unsetenv("AWS_SECRET_ACCESS_KEY");
    unsetenv("AWS_SESSION_TOKEN");
    setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", cairn_responder_url(source->responder), 1);
}

/* One failure that names the source; few questions to it, few parts to the store, soon. */
static void expect_one_failure(int then, uint64_t ms, uint64_t most_asked) {
    CAIRN_AUTO(failing_source) source = {.then = then};
    start_source(&source);
    WORLD(.own_keys = true, .token = true, .s3 = {.no_hedge = true});
    CAIRN_AUTO(s3run) run = {.size_bytes = 6 * CAIRN_S3WORLD_PART, .limit_ms = 60000};
    cairn_s3world_rules(&world, "op=part nth=2 : expire-keys");
    uint64_t began = cairn_mono_ms();
    enum cairn_code code = cairn_s3run_send(&world, &run);
    uint64_t took = cairn_mono_ms() - began, asked = cairn_responder_requests(source.responder);
    EXPECT(asked >= 2 && asked <= most_asked);
    EXPECT(code != CAIRN_OK);
    EXPECT(strstr(run.error.message, "container endpoint") != NULL);
    EXPECT(!strstr(run.error.message, CAIRN_S3WORLD_SECRET));
    EXPECT(took < ms);
    EXPECT(cairn_s3world_counter(&world, "op_part") <= 8);
    /* Nobody may abort without keys: that is the sweep's, which has its own. */
    EXPECT(cairn_s3world_open_uploads(&world) <= 1);
}

/* The tries of a part and of the abort, with the pauses between them. */
TEST(s10_a_renewal_that_is_refused_or_makes_no_sense_is_one_failure) {
    expect_one_failure(SAYS_500, 20000, 20);
    expect_one_failure(SAYS_403, 20000, 20);
    expect_one_failure(SAYS_RUBBISH, 20000, 20);
}

TEST(s10_a_renewal_that_hangs_is_one_failure) {
    expect_one_failure(HANGS, 11000, 3); /* 5 s it is waited for, and not by each part */
}
