/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: labels=s3 */
/* S10: the keys end in the middle of an upload, and whoever has new ones fails or says nothing. */
#include <stdio.h>

#include "tests/s3faults/cases.h"
#include "tests/support/http_responder.h"

#define SECOND_SECRET "canary+secret/key=second"

enum { WORKS, SAYS_500, SAYS_403, SAYS_RUBBISH, HANGS };

/* Hands out good keys once; then what `then` says, `times` times. */
struct cairn_failing_source {
    struct cairn_responder *responder;
    int then;
    uint32_t times;
};
static void cairn_failing_source_release(struct cairn_failing_source *source) {
    cairn_responder_stop(source->responder);
    unsetenv("AWS_CONTAINER_CREDENTIALS_FULL_URI");
}

static void answer_once(struct cairn_responder_request *request) {
    const struct cairn_failing_source *source = request->owner;
    char keys[400];
    snprintf(keys, sizeof keys,
             "{\"AccessKeyId\":\"%s\",\"SecretAccessKey\":\"%s\",\"Token\":\"%s\","
             "\"Expiration\":\"2099-01-01T00:00:00Z\"}",
             request->index ? "CANARYSECOND" : CAIRN_S3WORLD_ACCESS,
             request->index ? SECOND_SECRET : CAIRN_S3WORLD_SECRET, CAIRN_S3WORLD_TOKEN);
    int now = request->index && request->index <= source->times ? source->then : WORKS;
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

static void send_over(const struct cairn_failing_source *source, struct cairn_s3world *world,
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
    CAIRN_AUTO(failing_source) source = {.then = then, .times = UINT32_MAX};
    uint64_t took_ms = 0;
    start_source(&source);
    WORLD(.own_keys = true, .token = true, .s3 = {.no_hedge = true});
    CAIRN_AUTO(s3run) run = {.size_bytes = 6 * CAIRN_S3WORLD_PART};
    send_over(&source, &world, &run, &took_ms);
    EXPECT(run.error.code != CAIRN_OK);
    EXPECT(strstr(run.error.message, "container endpoint") != NULL);
    EXPECT(!strstr(run.error.message, CAIRN_S3WORLD_SECRET));
    EXPECT(took_ms < 20000);
}

/* A source that is away for a moment is a store that is away for a moment: waited for. */
static void expect_waiting(int then, uint32_t times, uint64_t ms) {
    CAIRN_AUTO(failing_source) source = {.then = then, .times = times};
    uint64_t took_ms = 0;
    start_source(&source);
    WORLD(.own_keys = true, .token = true, .s3 = {.no_hedge = true});
    CAIRN_AUTO(s3run) run = {.size_bytes = 6 * CAIRN_S3WORLD_PART};
    send_over(&source, &world, &run, &took_ms);
    EXPECT(run.durable);
    EXPECT(took_ms < ms);
}

TEST(s10_a_renewal_that_is_refused_or_makes_no_sense_is_one_failure) {
    expect_one_failure(SAYS_403);
    expect_one_failure(SAYS_RUBBISH);
}

TEST(s10_a_renewal_that_fails_for_a_moment_or_hangs_is_waited_for_and_loses_nothing) {
    expect_waiting(SAYS_500, 3, 30000);
    expect_waiting(HANGS, 1, 40000); /* 5 s it is waited for, and not by each part */
}
