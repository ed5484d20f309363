/* SPDX-License-Identifier: Apache-2.0 */
/* How often callers may ask: the buckets, what costs a request and whom, and how a refusal is told
 * (server/access/access.h#3). */
#include "tests/server/office.h"

static struct cairn_error failure;
#define err failure

static struct srv_rates *make(uint64_t per_second, uint64_t burst) {
    struct srv_rates *rates = NULL;
    const struct srv_rates_options options = {per_second, burst, cairn_random};
    EXPECT_CODE(srv_rates_new(&options, &rates, &err), CAIRN_OK);
    return rates;
}

/* How many of `count` at one time are let in. */
static uint64_t take(struct srv_rates *rates, const char *caller, uint64_t now_ms, uint64_t count) {
    uint64_t taken = 0, wait_ms = 0;
    for (uint64_t i = 0; i < count; i++) taken += srv_rates_take(rates, caller, now_ms, &wait_ms);
    return taken;
}

TEST(a_caller_has_its_burst_and_then_its_rate_and_is_told_when_to_come_again) { /* access.h#4 */
    struct srv_rates *rates = make(10, 20);
    uint64_t wait_ms = 0, now_ms = 1000000;
    REQUIRE(rates != NULL);
    EXPECT_EQ_U64(take(rates, "a", now_ms, 100), 20);
    EXPECT(!srv_rates_take(rates, "a", now_ms, &wait_ms));
    EXPECT_EQ_U64(wait_ms, 100);
    EXPECT(!srv_rates_take(rates, "a", now_ms + 99, &wait_ms));
    EXPECT_EQ_U64(wait_ms, 1);
    EXPECT(srv_rates_take(rates, "a", now_ms + 100, &wait_ms));
    EXPECT_EQ_U64(take(rates, "a", now_ms + 1100, 100), 10);
    EXPECT_EQ_U64(take(rates, "a", now_ms, 100), 0); /* read before, by another thread */
    EXPECT_EQ_U64(take(rates, "a", now_ms + 1100 + 86400000, 100), 20); /* never more */
    EXPECT_EQ_U64(take(rates, "b", now_ms + 1100, 100), 20);            /* access.h#5 */
    srv_rates_free(rates);
    rates = make(SRV_RATES_PER_SECOND_MAX, SRV_RATES_PER_SECOND_MAX);
    REQUIRE(rates != NULL);
    EXPECT_EQ_U64(take(rates, "a", 1, 5), 5);
    EXPECT_EQ_U64(take(rates, "a", UINT64_MAX, 5), 5);
    srv_rates_free(rates);
}

TEST(who_asks_on_stays_limited_beside_more_callers_than_are_remembered) { /* rates.h, limits */
    struct srv_rates *rates = make(1, 5);
    REQUIRE(rates != NULL);
    EXPECT_EQ_U64(take(rates, "busy", 1, 100), 5);
    for (unsigned i = 0; i < 20 * SRV_RATES_MAX; i++) {
        if (!EXPECT(take(rates, TEXT("address %u", i), 1 + i / 200, 1) == 1))
            break; /* 409 ms pass */
        if (i % 100 == 0 && !EXPECT(take(rates, "busy", 1 + i / 200, 1) == 0)) break;
    }
    srv_rates_free(rates);
}

/* ---- over HTTP ---- */

static unsigned limited(const struct office *office, const char *token, const char *method,
                        const char *path, unsigned count) {
    unsigned refused = 0;
    for (unsigned i = 0; i < count; i++)
        refused += office_say(office, token, method, path, NULL, NULL, NULL) == 429;
    return refused;
}

static bool open_office(struct office *office, bool tokens, const char *const *env) {
    return world_start(&office->world,
                       WORLD_ARGS("--requests-per-second=1", "--requests-burst=20",
                                  "--log-level=debug",
                                  tokens ? "--require-token" : "--adopt-store=false"),
                       env) &&
           (!tokens || office_admin(office));
}

TEST(who_asks_too_often_is_told_429_with_a_time_and_probes_are_always_answered) {
    CAIRN_AUTO(passing) passing = {0};
    AUTO_OFFICE office = {0};
    REQUIRE(cairn_passing_open(&passing));
    REQUIRE(open_office(&office, false, passing.env));
    unsigned refused = limited(&office, NULL, "GET", "/v1/runs", 40);
    EXPECT(refused >= 15 && refused <= 20);
    EXPECT_HAS(ANSWER(&office, NULL, "429 GET /v1/runs"), "\r\nRetry-After: 1\r\n",
               "\"code\":\"rate-limited\"", "\"retryable\":true", "\"retry_after_ms\":");
    EACH_TEXT(text, "/livez", "/readyz", "/version", "/openapi.yaml", "/openapi.json")
        EXPECT_EQ_U64(limited(&office, NULL, "GET", text, 30), 0);
    cairn_passing_pass(&passing, 1200);
    EXPECT_SAID(200, &office, NULL, "GET", "/v1/runs", NULL);
    cairn_passing_pass(&passing, 1200);
    EXPECT_HAS(ANSWER(&office, NULL, "200 GET /metrics"),
               "cairn_requests_limited_total{by=\"address\"}");
}

TEST(a01_each_token_has_a_rate_of_its_own_and_who_guesses_tokens_the_one_of_his_address) { /* A01 */
    AUTO_OFFICE office = {0};
    REQUIRE(open_office(&office, true, NULL));
    struct cairn_rest_options options = {.url = office.world.server.url, .token = office.admin};
    cairn_rest_free(office.world.rest);
    office.world.rest = NULL;
    REQUIRE_OK(cairn_rest_new(&options, &office.world.rest, &err));
    MADE(one, "read", "*");
    MADE(other, "read", "*");
    EXPECT(limited(&office, one.text, "GET", "/v1/runs", 40) >= 15);
    /* What it may not is asked for at its cost, too. */
    EXPECT_SAID(429, &office, one.text, "PUT", "/v1/runs/llm/x", "{}");
    EXPECT_EQ_U64(limited(&office, other.text, "GET", "/v1/runs", 15), 0);
    char guess[CAIRN_TOKEN_TEXT_BYTES];
    snprintf(guess, sizeof(guess), "%s", one.text);
    guess[strlen(guess) - 1] = guess[strlen(guess) - 1] == 'A' ? 'B' : 'A';
    unsigned refused = limited(&office, guess, "GET", "/v1/runs", 40);
    EXPECT(refused >= 15 && refused <= 20); /* the others are 401 */
    EXPECT_SAID(429, &office, NULL, "GET", "/v1/runs", NULL);
    EXPECT_SAID(200, &office, other.text, "GET", "/v1/whoami", NULL);
}

TEST(saves_and_heartbeats_go_on_while_their_address_has_used_up_its_rate) { /* access.h#3 */
    AUTO_OFFICE office = {0};
    struct cairn_world *world = &office.world;
    struct cairn_hand hand;
    struct cairn_hand_save save;
    REQUIRE(open_office(&office, false, NULL));
    REQUIRE_OK(hand_open(world, &hand, "j1", 0, "latest", 2));
    REQUIRE_OK(cairn_rest_set_grant(world->rest, hand.grant, &err));
    CAIRN_AUTO(buf) page = {.limit = CAIRN_MIB};
    unsigned refusals = 0;
    int status = 0;
    for (uint64_t step = 1; step <= 8; step++) {
        unsigned now = limited(&office, NULL, "GET", "/v1/runs", 25);
        EXPECT(now > 0);
        refusals += now;
        REQUIRE_OK(hand_save_all(&hand, step, 1, "error", 100, &save));
        REQUIRE_OK(world_call(
            world, "PUT", "/v1/nodes/node-a",
            json_pack("{s:{s:s}, s:[], s:[]}", "uploader", "version", "1", "attempts", "versions"),
            NULL));
    }
    /* Only those of the address were refused. */
    AWAIT((cairn_buf_clear(&page),
           status = office_say(&office, NULL, "GET", "/metrics", NULL, NULL, &page),
           refusals += status == 429, status == 200));
    EXPECT_HAS(page.data, TEXT("cairn_requests_limited_total{by=\"address\"} %u\n", refusals));
    /* A grant that is none buys nothing. */
    char more[300] = "X-Cairn-Grant: cairn1:none\r\n";
    EXPECT(limited(&office, NULL, "GET", "/v1/runs", 25) > 0);
    bool refused = false; /* the rate gives one call a second, perhaps just now */
    for (unsigned i = 0; i < 25 && !refused; i++)
        refused = office_say(&office, NULL, "GET", save.path, more, NULL, NULL) == 429;
    EXPECT(refused);
}
