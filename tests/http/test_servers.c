/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: labels=tsan */
/* Lists of servers: which texts are taken, and where a call goes when a server is away. */
#include "api/wire/rest.h"

#include "tests/harness.h"
#include "tests/support/http_responder.h"

#define JSON_TYPE "Content-Type: application/json\r\n"
#define PROBLEM_TYPE "Content-Type: application/problem+json\r\n"
#define NOBODY "http://127.0.0.1:1" /* no process listens there */

/* ---- the text ---- */

TEST(a_list_of_servers_is_cut_at_its_commas, err) { /* rest.h#11 */
    WITH_OK(servers, servers,
            cairn_servers_parse("https://a/x/,https://b:1/x,https://[::1]/x", &servers, &err));
    REQUIRE(servers.count == 3);
    EXPECT_ALL_TEXT(servers.places[0].base, "https://a/x", servers.places[0].name, "https://a/x/",
                    servers.places[2].base, "https://[::1]/x");
    cairn_servers_release(&servers);
    REQUIRE_OK(cairn_servers_parse("unix:/run/a,b.sock", &servers, &err));
    REQUIRE(servers.count == 1);
    EXPECT_EQ_TEXT(servers.places[0].unix_socket, "/run/a,b.sock");
}

TEST(a_bad_list_of_servers_is_refused_in_words_that_name_the_entry) { /* rest.h#12 */
    EACH(one, FIELDS(const char *text, *why), {"", "the server's URL is empty"},
         {"a:7420", "the server's URL must be http(s)://host[:port] or unix:PATH"},
         {"http://a,,http://b", "server 2 of the list is empty: a comma too many"},
         {"http://a,", "server 2 of the list is empty: a comma too many"},
         {",http://a", "server 1 of the list is empty: a comma too many"},
         {"http://a,b:7420", "server 2 of the list must be http(s)://host[:port]"},
         {"http://a, http://b", "server 2 of the list must be http(s)://host[:port]"},
         {"http://a,https://b", "servers 1 and 2 of the list have different schemes"},
         {"http://a/x,http://b", "servers 1 and 2 of the list have different paths"},
         {"http://a,http://b,http://a/", "servers 1 and 3 of the list are the same"},
         {"http://a,unix:/s", "server 2 of the list is a Unix socket"},
         {"unix:/s,http://a", "a Unix socket stands alone"},
         {"http://a,http://u:secret@b", "server 2 of the list takes no user"},
         {"http://0,http://1,http://2,http://3,http://4,http://5,http://6,http://7,http://8,"
          "http://9,http://10,http://11,http://12,http://13,http://14,http://15,http://16",
          "more than 16 servers"}) {
        struct cairn_servers servers = {0};
        struct cairn_error err = {0};
        EXPECT_CODE(cairn_servers_parse(one->text, &servers, &err), CAIRN_INVALID);
        if (!strstr(err.message, one->why)) EXPECT_EQ_TEXT(err.message, one->why);
        EXPECT(!strstr(err.message, "secret"));
        EXPECT(servers.count == 0);
    }
}

/* ---- the call ---- */

/* Two scripted servers, and a connection to both. */
struct cairn_pair {
    struct cairn_responder *servers[2];
    const char *scripts[2];
    struct cairn_rest *rest;
    struct cairn_rest_seen seen;
    struct cairn_error error;
};
static void cairn_pair_release(struct cairn_pair *pair) {
    cairn_rest_free(pair->rest);
    for (size_t i = 0; i < 2; i++)
        if (pair->servers[i]) cairn_responder_stop(pair->servers[i]);
}
#define err (pair.error)

static atomic_uint scripted_turns;

/* What one of them does is a word of its script. */
static void act(struct cairn_responder_request *request) {
    const char *script = *(const char *const *)request->owner;
    if (!strcmp(script, "target")) {
        cairn_responder_reply(request, 200, JSON_TYPE,
                              TEXT("{\"target\":\"%s\"}", request->target));
    } else if (!strcmp(script, "stopping")) {
        cairn_responder_reply(request, 503, PROBLEM_TYPE, "{\"code\":\"unavailable\"}");
    } else if (!strcmp(script, "gateway")) {
        cairn_responder_reply(request, 502, "Content-Type: text/html\r\n", "<html>");
    } else if (!strcmp(script, "behind")) {
        cairn_responder_reply(request, 503, PROBLEM_TYPE, "{\"code\":\"catalog-behind\"}");
    } else if (!strcmp(script, "busy")) {
        cairn_responder_reply(request, 503, PROBLEM_TYPE, "{\"code\":\"busy\",\"left_ms\":7}");
    } else if (!strcmp(script, "absent")) {
        cairn_responder_reply(request, 404, PROBLEM_TYPE, "{\"code\":\"not-found\"}");
    } else if (!strcmp(script, "cut")) {
        cairn_responder_say(request, "HTTP/1.1 200 OK\r\nContent-Length: 99\r\n" JSON_TYPE
                                     "\r\n{\"target\":\"no");
        request->close = true;
    } else if (!strcmp(script, "reset")) {
        request->reset = true;
    } else if (!strcmp(script, "hang")) {
        (void)cairn_responder_drain(request, 1);
    } else if (!strcmp(script, "slow")) { /* lives, and answers this after a while */
        if (strcmp(request->target, "/livez") != 0)
            cairn_test_pause_ms(1500); /* pause of a stand-in */
        cairn_responder_reply(request, 200, JSON_TYPE, "{}");
    } else if (!strcmp(script, "paused")) { /* hears nothing at first, as a stopped process */
        if (request->index < 2)
            (void)cairn_responder_drain(request, 1);
        else
            cairn_responder_reply(request, 200, JSON_TYPE, "{}");
    } else if (!strcmp(script, "turns")) { /* stops under the first one, and is back */
        if (request->index == 0) cairn_test_pause_ms(400); /* pause of a stand-in */
        bool is_back = request->index > 0 && scripted_turns++ > 0;
        cairn_responder_reply(request, is_back ? 200 : 503, is_back ? JSON_TYPE : PROBLEM_TYPE,
                              is_back ? "{}" : "{\"code\":\"unavailable\"}");
    } else if (!strcmp(script,
                       "parted")) { /* stops in the middle of what it was asked to wait for */
        cairn_test_pause_ms(500);   /* pause of a stand-in */
        cairn_responder_reply(request, 503, PROBLEM_TYPE, "{\"code\":\"unavailable\"}");
    }
}

static bool open_pair(struct cairn_pair *pair, const char *first, const char *second,
                      uint32_t timeout_ms) {
    pair->scripts[0] = first;
    pair->scripts[1] = second;
    for (size_t i = 0; i < 2; i++) {
        struct cairn_responder_options options = {.answer = act, .owner = &pair->scripts[i]};
        pair->servers[i] = cairn_responder_start(&options);
        if (!pair->servers[i]) return false;
    }
    struct cairn_rest_options options = {.url = TEXT("%s,%s", cairn_responder_url(pair->servers[0]),
                                                     cairn_responder_url(pair->servers[1])),
                                         .timeout_ms = timeout_ms,
                                         .seen = &pair->seen};
    return cairn_rest_new(&options, &pair->rest, &pair->error) == CAIRN_OK;
}

TEST(a_call_goes_to_the_next_server_when_one_is_away) { /* rest.h#4 */
    EACH_TEXT(text, "stopping", "gateway", "cut", "reset") {
        WITH(pair, pair, open_pair(&pair, text, "target", HANG_MS));
        for (int call = 0; call < 3; call++) {
            CAIRN_AUTO_JSON json_t *body = json_pack("{s:i}", "a", call), *reply = NULL;
            REQUIRE_OK(cairn_rest_call(pair.rest, "POST", "/x", body, 0, &reply, &err));
            EXPECT_EQ_TEXT(json_string_value(json_object_get(reply, "target")), "/x");
            EXPECT(!cairn_rest_problem(pair.rest));
        }
        /* The later ones go to the one that answered. */
        EXPECT(cairn_responder_requests(pair.servers[0]) <= 2); /* libcurl may resend a reset one */
        EXPECT_EQ_U64(cairn_responder_requests(pair.servers[1]), 3);
    }
}

TEST(an_answer_is_an_answer_whatever_it_says) { /* rest.h#4 */
    EACH(one, FIELDS(const char *script; enum cairn_code code), {"behind", CAIRN_CATALOG_BEHIND},
         {"busy", CAIRN_BUSY}, {"absent", CAIRN_NOT_FOUND}) {
        WITH(pair, pair, open_pair(&pair, one->script, "target", HANG_MS));
        EXPECT_CODE(cairn_rest_call(pair.rest, "GET", "/x", NULL, 0, NULL, &err), one->code);
        EXPECT(cairn_rest_problem(pair.rest));
        EXPECT_EQ_U64(cairn_responder_requests(pair.servers[1]), 0);
    }
}

TEST(where_no_server_of_a_list_answers_the_last_is_named_and_each_was_called) { /* rest.h#2 */
    struct cairn_rest_options options = {.url = NOBODY ",http://127.0.0.1:2"};
    WITH_OK(pair, pair, cairn_rest_new(&options, &pair.rest, &err));
    EXPECT_FAILS(cairn_rest_call(pair.rest, "GET", "/x", NULL, 0, NULL, &err), CAIRN_UNAVAILABLE,
                 "none of 2 servers; the last: server http://127.0.0.1:2");
    cairn_rest_free(pair.rest);
    pair.rest = NULL;
    REQUIRE(open_pair(&pair, "stopping", "stopping", HANG_MS));
    EXPECT_CODE(cairn_rest_call(pair.rest, "GET", "/x", NULL, 0, NULL, &err), CAIRN_UNAVAILABLE);
    EXPECT_EQ_U64(err.http_status, 503);
    EXPECT(cairn_rest_spoke(pair.rest));
    EXPECT(cairn_responder_requests(pair.servers[0]) >= 1);
    EXPECT(cairn_responder_requests(pair.servers[1]) >= 1);
}

/* How long a call takes whose first server hangs, where nobody has heard of it. A busy machine
 * makes that longer, and never shorter. */
static uint64_t left_after_ms(void) {
    CAIRN_AUTO(pair) pair = {0};
    if (!EXPECT(open_pair(&pair, "hang", "target", HANG_MS))) return 0;
    uint64_t begun_ms = cairn_mono_ms();
    enum cairn_code code = cairn_rest_call(pair.rest, "GET", "/x", NULL, 0, NULL, &err);
    return code ? UINT64_MAX : cairn_mono_ms() - begun_ms;
}

TEST(a_server_that_hangs_is_left_within_the_time_of_the_call) { /* rest.h#5 */
    AWAIT(left_after_ms() < 3000); /* one that had answered is given 7 s */
    WITH(pair, pair, open_pair(&pair, "hang", "target", HANG_MS));
    REQUIRE_OK(cairn_rest_call(pair.rest, "GET", "/x", NULL, 0, NULL, &err));
    /* Known to whoever shares the list. */
    struct cairn_rest *other = NULL;
    struct cairn_rest_options options = {.url = TEXT("%s,%s", cairn_responder_url(pair.servers[0]),
                                                     cairn_responder_url(pair.servers[1])),
                                         .timeout_ms = HANG_MS,
                                         .seen = &pair.seen};
    REQUIRE_OK(cairn_rest_new(&options, &other, &err));
    uint32_t before = cairn_responder_requests(pair.servers[0]);
    EXPECT_CODE(cairn_rest_call(other, "GET", "/x", NULL, 0, NULL, &err), CAIRN_OK);
    EXPECT_EQ_U64(cairn_responder_requests(pair.servers[0]), before);
    cairn_rest_free(other);
}

TEST(a_server_that_is_slow_and_lives_is_waited_for) {           /* rest.h#5 */
    WITH(pair, pair, open_pair(&pair, "slow", "target", 3000)); /* asked /livez after 500 ms */
    CAIRN_AUTO_JSON json_t *reply = NULL;
    REQUIRE_OK(cairn_rest_call(pair.rest, "GET", "/x", NULL, 0, &reply, &err));
    EXPECT_EQ_U64(cairn_responder_requests(pair.servers[1]), 0);
    EXPECT(cairn_responder_requests(pair.servers[0]) >= 2);
}

TEST(a_slow_server_that_was_left_is_asked_again_when_no_other_one_answers) { /* rest.h#5 */
    WITH(pair, pair, open_pair(&pair, "paused", "stopping", 20000));
    REQUIRE_OK(cairn_rest_call(pair.rest, "GET", "/x", NULL, 0, NULL, &err));
    EXPECT_EQ_U64(cairn_responder_requests(pair.servers[1]), 1);
}

TEST(a_wait_that_goes_on_elsewhere_asks_for_what_is_left) {
    WITH(pair, pair, open_pair(&pair, "parted", "target", 0));
    CAIRN_AUTO_JSON json_t *reply = NULL;
    REQUIRE_OK(cairn_rest_wait(pair.rest, "/x?for=committed", 60000, &reply, &err));
    unsigned left_ms = 0;
    const char *target = json_string_value(json_object_get(reply, "target"));
    REQUIRE(target && sscanf(target, "/x?for=committed&wait=%ums", &left_ms) == 1);
    EXPECT(left_ms <= 59500 && left_ms > 0);
}

TEST(a_wait_outlives_servers_that_are_restarted_in_turn) { /* rest.h#4 */
    WITH(pair, pair, open_pair(&pair, "turns", "turns", 0));
    CAIRN_AUTO_JSON json_t *reply = NULL;
    REQUIRE_OK(cairn_rest_wait(pair.rest, "/x?for=committed", HANG_MS, &reply, &err));
    EXPECT(cairn_responder_requests(pair.servers[0]) >= 2);
    EXPECT(cairn_responder_requests(pair.servers[1]) >= 2);
}

TEST(a_range_is_read_whole_from_the_next_server) {
    char bytes[99];
    WITH(pair, pair, open_pair(&pair, "cut", "absent", HANG_MS));
    /* The half that the first one sent is no part of the second one's answer. */
    EXPECT_CODE(cairn_rest_range(pair.rest, "/x", 0, bytes, sizeof bytes, &err), CAIRN_NOT_FOUND);
    EXPECT_EQ_U64(cairn_responder_requests(pair.servers[1]), 1);
}
