/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: engines=again */
/* What a token lets its bearer do and know: scopes, projects, and the grant beside them (A01, A02,
 * P16). */
#include "tests/server/office.h"
#include "tests/support/route_path.h"

#define MORE_BYTES 12000
#define say office_say
#define make office_make
#define expect_at office_expect
static struct cairn_error err;

/* ---- who comes without one ---- */

TEST(a01_without_a_good_token_every_call_of_the_api_is_401_and_says_so_in_the_header) {
    OFFICE();
    char wrong[100], unknown[100], path[512];
    snprintf(wrong, sizeof(wrong), "%s", office.admin);
    wrong[60] = wrong[60] == '0' ? '1' : '0'; /* of the secret */
    snprintf(unknown, sizeof(unknown), "%s", office.admin);
    unknown[8] = unknown[8] == '0' ? '1' : '0'; /* of the id */
    const char *const tokens[] = {NULL, wrong, unknown, "x", "cairn_"};
    for (int id = 0; id < CAIRN_ROUTE_COUNT; id++) {
        const struct cairn_route *route = cairn_route_at((enum cairn_route_id)id);
        CAIRN_AUTO(buf) first = {.limit = CAIRN_MIB}; /* body to a wrong secret */
        cairn_route_path(route, path);
        for (size_t i = 0; i < CAIRN_COUNT(tokens); i++) {
            CAIRN_AUTO(buf) reply = {.limit = CAIRN_MIB};
            bool head = !strcmp(route->method, "HEAD");
            int status = say(&office, tokens[i], route->method, path, NULL, NULL, &reply);
            if (!route->need.token) {
                cairn_test_check(status != 401, __FILE__, __LINE__, "%s: 401", path);
                continue;
            }
            cairn_test_check(status == 401, __FILE__, __LINE__, "%s %s: %d", route->method, path,
                             status);
            cairn_test_check(strstr(reply.data, "WWW-Authenticate: Bearer realm=\"cairn\""),
                             __FILE__, __LINE__, "%s: no header", path);
            EXPECT(!strstr(reply.data, "invalid_token") == !tokens[i]);
            EXPECT(head || strstr(reply.data, "\"code\":\"unauthorized\""));
            const char *body = strstr(reply.data, "\r\n\r\n");
            REQUIRE(body != NULL);
            if (tokens[i] == wrong) EXPECT(!cairn_buf_append_text(&first, body, NULL));
            /* Which ids there are is not told. */
            if (tokens[i] == unknown) EXPECT_EQ_TEXT(first.data, body);
        }
    }
    EXPECT_SAID(200, &office, office.admin, "GET", "/v1/runs", NULL);
    EXPECT_SAID(401, &office, NULL, "PUT", WORLD_RUN, "{}"); /* before its body is looked at */
}

TEST(a01_one_header_that_holds_one_token_is_taken_and_nothing_that_two_could_read_differently) {
    OFFICE();
    EACH(one, FIELDS(const char *lines; /* %s: the token */ int status),
         {"Authorization: Bearer %s\r\n", 200}, {"authorization: bearer %s\r\n", 200},
         {"AUTHORIZATION: BEARER   %s  \r\n", 200}, {"Authorization: Bearer\t%s\r\n", 401},
         {"Authorization: Bearer%s\r\n", 401}, {"Authorization: %s\r\n", 401},
         {"Authorization: Basic %s\r\n", 401}, {"Authorization: Bearer %s,\r\n", 401},
         {"Authorization: Bearer %s x\r\n", 401}, {"Authorization: Bearer x %s\r\n", 401},
         {"Authorization: Bearer \"%s\"\r\n", 401}, {"Authorization: Bearer\r\n", 401},
         {"Authorization:\r\n", 401},
         {"Authorization: Bearer %s\r\nAuthorization: Bearer %s\r\n", 400},
         {"Authorization: Bearer x\r\nAuthorization: Bearer %s\r\n", 400},
         {"Authorization: Bearer %s\r\nauthorization: x\r\n", 400},
         {"Authorization: Bearer %s\r\nAuthorization:\r\n", 400},
         {"Authorization : Bearer %s\r\n", 400}, {"Authorization: Bearer\r\n %s\r\n", 400},
         {"X-Authorization: Bearer %s\r\n", 401}, {"Cookie: Authorization=Bearer %s\r\n", 401},
         {"Proxy-Authorization: Bearer %s\r\n", 401},
         {"Authorization: Bearer %s\r\nX-Cairn-Grant: a\r\nx-cairn-grant: b\r\n", 400}) {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
        const char *lines = TEXT(one->lines, office.admin, office.admin);
#pragma GCC diagnostic pop
        expect_at(__LINE__, say(&office, NULL, "GET", "/v1/runs", lines, NULL, NULL), one->status,
                  one->lines);
    }
    char *huge = malloc(MORE_BYTES);
    memset(huge, 'a', MORE_BYTES);
    memcpy(huge, "Authorization: Bearer ", 22);
    memcpy(huge + MORE_BYTES - 3, "\r\n", 3);
    EXPECT(say(&office, NULL, "GET", "/v1/runs", huge, NULL, NULL) == 401);
    free(huge);
}

/* ---- who comes with one for something else ---- */

TEST(a02_what_is_outside_of_a_tokens_projects_is_answered_as_if_it_were_not_there) {
    OFFICE();
    RUNS("run1/a", "run10/a");
    MADE(mine, "read,write,retain,admin", "run1");
    EXPECT_SAID(200, &office, mine.text, "GET", "/v1/runs/run1/a", NULL);
    const char *there = ANSWER(&office, mine.text, "404 GET /v1/runs/run10/a");
    const char *absent = ANSWER(&office, mine.text, "404 GET /v1/runs/run19/a");
    EXPECT_HAS(there, "there is no run run10/a");
    EXPECT_HAS(absent, "there is no run run19/a");
    EXPECT_EQ_U64(strlen(there), strlen(absent));
    SAYS(&office, mine.text, "404 PUT /v1/runs/run10/a {}", "404 PUT /v1/runs/run19/new {}",
         "404 DELETE /v1/runs/run10/a?confirm=a", "404 GET /v1/runs/run%31%30/a",
         "400 GET /v1/runs/run1/../run10/a", "400 GET /v1/runs/run1/%2e%2e/run10/a",
         "400 GET /v1/runs/run1%2Frun10/a", "404 GET /v1/projects/run10/retention",
         "404 PUT /v1/projects/run10/retention {\"keep\":{}}");
    /* Of the whole server it sees its own part, and changes nothing. */
    SAYS(&office, mine.text, "200 GET /v1/retention", "403 PUT /v1/retention {\"keep\":{}}",
         "403 GET /v1/nodes", "403 DELETE /v1/nodes/n1");
    EXPECT_HAS(ANSWER(&office, mine.text, "200 GET /v1/runs"), "\"run1\"", "!run10");
}

TEST(a02_a_token_does_what_its_scope_says_and_403_is_for_who_may_see_it) {
    CAIRN_AUTO(passing) passing = {0};
    AUTO_OFFICE office = {0};
    struct made old;
    REQUIRE(cairn_passing_open(&passing));
    REQUIRE(cairn_office_open_with(&office, passing.env));
    REQUIRE_OK(world_call(&office.world, "PUT", WORLD_RUN, json_object(), NULL));
    MADE(reader, "read", "llm");
    MADE(writer, "write", "llm");
    MADE(keeper, "read,retain", "llm");
    REQUIRE(make(&office, "read", "llm", 3600, &old));
    SAYS(&office, reader.text, "200 GET " WORLD_RUN, "403 PUT " WORLD_RUN " {}",
         "403 DELETE " WORLD_RUN, "403 POST " WORLD_RUN "/reconcile", "403 PUT /v1/nodes/n1 {}",
         "403 GET /v1/tokens", "403 POST /v1/tokens {\"scopes\":[\"read\"]}");
    EXPECT_SAID(404, &office, writer.text, "GET", WORLD_RUN, NULL); /* it may not see */
    SAYS(&office, writer.text, "200 PUT " WORLD_RUN " {}", "404 DELETE " WORLD_RUN,
         "403 GET /v1/runs");
    SAYS(&office, keeper.text, "403 PUT " WORLD_RUN " {}", "200 DELETE " WORLD_RUN,
         "200 GET /v1/whoami");
    cairn_passing_pass(&passing, 3601 * 1000);
    /* Over PostgreSQL the hour has aged the list of tokens in memory, too: until the server has
     * read it again, no token is known to be good (A02), and the answer is 503. */
    int status = 0;
    AWAIT((status = say(&office, old.text, "GET", WORLD_RUN, NULL, NULL, NULL)) != 503);
    EXPECT_EQ_U64((uint64_t)status, 401);
}

TEST(a02_a_revoked_token_is_refused_at_once_and_a_bound_admin_rules_his_projects_alone) {
    OFFICE();
    MADE(mine, "read", "*");
    MADE(boss, "admin", "nlp-*");
    MADE(other, "read", "vision");
    EXPECT_SAID(200, &office, mine.text, "GET", "/v1/runs", NULL);
    EXPECT_CODE(office_end(&office, &mine), CAIRN_OK);
    EXPECT_SAID(401, &office, mine.text, "GET", "/v1/runs", NULL);
    EXPECT_CODE(office_end(&office, &mine), CAIRN_NOT_FOUND);
    /* what the bound admin makes is bound as well */
    SAYS(&office, boss.text, "403 POST /v1/tokens {\"scopes\":[\"read\"],\"project\":\"*\"}",
         "403 POST /v1/tokens {\"scopes\":[\"read\"],\"project\":\"vision\"}",
         "201 POST /v1/tokens {\"scopes\":[\"read\"],\"project\":\"nlp-1\"}");
    EXPECT_HAS(ANSWER(&office, boss.text, "201 POST /v1/tokens {\"scopes\":[\"read\"]}"),
               "\"project\":\"nlp-*\"");
    SAYS(&office, boss.text, TEXT("404 DELETE /v1/tokens/%s", other.id));
    EXPECT_HAS(ANSWER(&office, boss.text, "200 GET /v1/tokens"), "nlp-1", "!vision",
               "!\"project\":\"*\"");
    EACH_TEXT(one, "{}", "{\"scopes\":[]}", "{\"scopes\":[\"root\"]}",
              "{\"scopes\":[\"read\"],\"project\":\"a/b\"}", "{\"scopes\":[\"read\",\"read\"]}",
              "{\"scopes\":[1]}", "{\"scopes\":[\"read\"],\"name\":\"a b\"}")
        SAYS(&office, office.admin, TEXT("400 POST /v1/tokens %s", one));
}

/* ---- a token that made others ---- */

static bool make_by(struct office *office, const struct made *maker, const char *scopes,
                    struct made *ret) {
    const char *reply = ANSWER(
        office, maker->text,
        TEXT("201 POST /v1/tokens {\"scopes\":[\"%s\"],\"name\":\"of-%.8s\"}", scopes, maker->id));
    const char *id = strstr(reply, "\"id\":\""), *text = strstr(reply, "\"token\":\"");
    if (!id || !text) return false;
    snprintf(ret->id, sizeof(ret->id), "%s", id + 6);
    snprintf(ret->text, sizeof(ret->text), "%s", text + 9);
    ret->id[strcspn(ret->id, "\"")] = ret->text[strcspn(ret->text, "\"")] = '\0';
    return true;
}

#define REVOKED(status, made, query)                                                               \
    ANSWER(&office, office.admin, TEXT(status " DELETE /v1/tokens/%s" query, (made).id))

TEST(a_token_that_made_others_is_revoked_with_them_or_without_as_the_call_says) {
    OFFICE();
    struct made deputy, reader, late;
    MADE(boss, "admin", "*");
    REQUIRE(make_by(&office, &boss, "admin", &deputy));
    REQUIRE(make_by(&office, &deputy, "read", &reader) && make_by(&office, &boss, "read", &late));
    EXPECT_HAS(REVOKED("409", boss, ""), deputy.id, "children=revoke");
    (void)REVOKED("400", boss, "?children=all");
    EXPECT_SAID(200, &office, boss.text, "GET", "/v1/whoami", NULL);
    EXPECT_SAID(200, &office, reader.text, "GET", "/v1/whoami", NULL);
    /* what a token made that is gone belongs to the token that made it */
    EXPECT_HAS(REVOKED("200", deputy, "?children=keep"), "\"children\":[]");
    EXPECT_SAID(401, &office, deputy.text, "GET", "/v1/whoami", NULL);
    EXPECT_SAID(200, &office, reader.text, "GET", "/v1/whoami", NULL);
    (void)REVOKED("200", late, ""); /* it made none */
    EXPECT_HAS(REVOKED("200", boss, "?children=revoke"), reader.id, "\"stored\":true");
    EXPECT_SAID(401, &office, boss.text, "GET", "/v1/whoami", NULL);
    EXPECT_SAID(401, &office, reader.text, "GET", "/v1/whoami", NULL);
    (void)REVOKED("404", reader, "");
}

/* ---- by way of what is not in the path ---- */

TEST(a02_ids_origins_and_lineage_of_another_project_tell_nothing) {
    OFFICE();
    struct cairn_hand hand;
    REQUIRE_OK(hand_open(&office.world, &hand, "j1", 0, "latest", 1));
    SAVED(save, 100);
    RUNS("mine/a");
    MADE(mine, "read,write,retain", "mine");
    const char *id = save.id.text;
    EACH_TEXT(word, "", "/manifest", "/shards", "/leases", "/lineage", "/events", "/tensors/w",
              "/tensors/a%2Fb/data", "/tensor?name=w")
        SAYS(&office, mine.text, TEXT("404 GET /v1/runs/mine/a/checkpoints/%s%s", id, word));
    SAYS(&office, mine.text, TEXT("404 POST /v1/runs/mine/a/checkpoints/%s/restore-plans {}", id),
         TEXT("404 POST /v1/runs/mine/a/checkpoints/%s/leases {\"job\":\"j\"}", id),
         TEXT("404 PUT /v1/runs/mine/a/aliases/x {\"ref\":\"%s\"}", id));
    EXPECT_HAS(ANSWER(&office, mine.text,
                      TEXT("200 POST /v1/runs/mine/a/trash {\"versions\":[\"%s\"]}", id)),
               "not-found");
    /* A heartbeat that names it hears of it as of one that nobody knows. */
    EXPECT_HAS(ANSWER(&office, mine.text,
                      TEXT("200 PUT /v1/nodes/n9 {\"uploader\":{},\"attempts\":[],\"versions\":[{"
                           "\"version\":\"%s\",\"project\":\"llm\",\"run\":\"seven\"}]}",
                           id)),
               "\"versions\":[]", "!committed");
    /* Nobody takes a run's origin from what he may not read, nor reads on there. */
    static const char from[] = "{\"from\":\"llm/seven@100\"}";
    EXPECT(say(&office, mine.text, "PATCH", "/v1/runs/mine/a", "If-Match: *\r\n", from, NULL) ==
           404);
    EXPECT(say(&office, office.admin, "PATCH", "/v1/runs/mine/a", "If-Match: *\r\n", from, NULL) ==
           200);
    SAYS(&office, mine.text, "404 GET /v1/runs/llm/seven/checkpoints/100/lineage");
}

TEST(a02_lineage_ends_where_a_project_begins_that_the_token_may_not_read) {
    OFFICE();
    struct cairn_hand hand;
    CAIRN_AUTO_JSON json_t *reply = NULL;
    REQUIRE_OK(hand_open(&office.world, &hand, "j1", 0, "latest", 1));
    SAVED(save, 100);
    /* a run of another project that began from it, with a version of its own */
    RUNS("mine/a");
    EXPECT_SAID(200, &office, office.admin, "GET", WORLD_RUN "/checkpoints/100/lineage", NULL);
    EXPECT(say(&office, office.admin, "PATCH", "/v1/runs/mine/a", "If-Match: *\r\n",
               "{\"from\":\"llm/seven@100\"}", NULL) == 200);
    REQUIRE_OK(
        world_call(&office.world, "POST", "/v1/runs/mine/a/attempts",
                   json_pack("{s:s, s:i, s:s, s:I, s:i, s:[{s:i, s:s}], s:s}", "job", "j",
                             "world_size", 1, "resume", "latest", "after", (json_int_t)0,
                             "wait_staged_ms", 1000, "ranks", "rank", 0, "proc", "p", "node", "n"),
                   &reply));
    CAIRN_AUTO_JSON json_t *begun = NULL;
    REQUIRE_OK(world_call(&office.world, "POST", "/v1/runs/mine/a/checkpoints",
                          json_pack("{s:s, s:s, s:i, s:i, s:i, s:i, s:s, s:b, s:s, s:{}, s:{}}",
                                    "grant", world_text(reply, "grant"), "node", "n", "step", 1,
                                    "n", 1, "rank", 0, "world_size", 1, "on_exists", "error",
                                    "skip", 0, "format", "t", "labels", "meta"),
                          &begun));
    MADE(mine, "read", "mine");
    const char *lineage =
        TEXT("200 GET /v1/runs/mine/a/checkpoints/%s/lineage", world_text(begun, "version"));
    EXPECT_HAS(ANSWER(&office, office.admin, lineage), "\"project\":\"llm\",\"run\":\"seven\"",
               "\"more\":false");
    EXPECT_HAS(ANSWER(&office, mine.text, lineage), "!\"project\":\"llm\",\"run\":\"seven\"",
               TEXT("!%s", save.id.text), "\"project\":\"mine\",\"run\":\"a\"", "\"more\":true");
}

/* ---- names beside the answers ---- */

/* What the answer, or a cursor in it, says in plain or in hexadecimal. */
static bool tells(const struct office *office, const char *token, const char *path,
                  const char *name) {
    CAIRN_AUTO(buf) got = {.limit = CAIRN_MIB};
    char hex[64] = "";
    for (size_t i = 0; name[i] && i < 16; i++)
        snprintf(hex + 2 * i, sizeof(hex) - 2 * i, "%02x", (unsigned)name[i]);
    EXPECT(say(office, token, "GET", path, NULL, NULL, &got) == 200);
    return !got.data || strstr(got.data, name) || strstr(got.data, hex);
}

/* One that was changed anywhere was given out by nobody. */
static bool is_refused(const struct office *office, const char *token, const char *list,
                       char *cursor, size_t at) {
    CAIRN_AUTO(buf) page = {.limit = CAIRN_MIB};
    char path[900], was = cursor[at];
    cursor[at] = was == '0' ? '1' : '0';
    snprintf(path, sizeof(path), "%s?limit=1&cursor=%s", list, cursor);
    cursor[at] = was;
    return say(office, token, "GET", path, NULL, NULL, &page) == 400;
}

/* Follows the cursors of pages of one item: how many there are; 99: without end. */
static uint64_t count_pages(const struct office *office, const char *token, const char *list) {
    char path[900], cursor[700] = "";
    for (uint64_t pages = 1; pages < 99; pages++) {
        CAIRN_AUTO(buf) page = {.limit = CAIRN_MIB};
        static const char next[] = "\"next_cursor\":\"";
        snprintf(path, sizeof(path), "%s?limit=1%s%s", list, cursor[0] ? "&cursor=" : "", cursor);
        if (!EXPECT(say(office, token, "GET", path, NULL, NULL, &page) == 200)) return 99;
        const char *at = strstr(page.data, next);
        if (!at) return pages;
        snprintf(cursor, sizeof(cursor), "%.*s", (int)strcspn(at + sizeof(next) - 1, "\""),
                 at + sizeof(next) - 1);
        EXPECT(is_refused(office, token, list, cursor, 0));
        EXPECT(is_refused(office, token, list, cursor, strlen(cursor) - 1));
    }
    return 99;
}

TEST(a02_no_cursor_names_a_run_or_a_project_that_the_token_may_not_read) {
    OFFICE();
    MADE(mine, "read", "p?");
    static const char *const projects[] = {"p1", "p1-secret", "p2", "p2-secret", "zero"};
    for (size_t i = 0; i < CAIRN_COUNT(projects); i++) {
        REQUIRE_OK(world_call(&office.world, "PUT", TEXT("/v1/runs/%s/r", projects[i]),
                              json_object(), NULL));
        REQUIRE_OK(world_call(&office.world, "PUT", TEXT("/v1/projects/%s/quota", projects[i]),
                              json_pack("{s:i}", "versions", 9), NULL));
    }
    EXPECT(!tells(&office, mine.text, "/v1/runs?limit=1", "secret"));
    EXPECT(!tells(&office, mine.text, "/v1/runs?limit=2", "secret"));
    for (int limit = 1; limit <= 5; limit++) {
        EXPECT(!tells(&office, mine.text, TEXT("/v1/quotas?limit=%d", limit), "secret"));
    }
    /* and they are good all the same */
    EXPECT_EQ_U64(count_pages(&office, office.admin, "/v1/runs"), 5);
    EXPECT_EQ_U64(count_pages(&office, mine.text, "/v1/runs"), 2);
    EXPECT(count_pages(&office, mine.text, "/v1/quotas") < 99);
    EXPECT_SAID(400, &office, mine.text, "GET", "/v1/runs?cursor=70312f72", NULL); /* p1/r */
}

TEST(a02_gauges_checks_and_origins_name_nothing_that_the_caller_may_not_read) {
    OFFICE();
    struct cairn_hand hand;
    struct made mine, theirs;
    struct cairn_key key;
    const struct cairn_run_name seven = {"llm", "seven"};
    REQUIRE(make(&office, "read", "mine", 0, &mine) && make(&office, "read", "llm", 0, &theirs));
    REQUIRE_OK(hand_open(&office.world, &hand, "j1", 0, "latest", 1));
    SAVED(save, 100);
    RUNS("mine/a");
    EXPECT(say(&office, office.admin, "PATCH", "/v1/runs/mine/a", "If-Match: *\r\n",
               "{\"from\":\"llm/seven@100\"}", NULL) == 200);
    EXPECT(tells(&office, office.admin, "/v1/runs/mine/a", "\"run\":\"seven\""));
    EXPECT(!tells(&office, mine.text, "/v1/runs/mine/a", "seven"));
    EXPECT(!tells(&office, mine.text, "/v1/runs", save.id.text));
    EXPECT(tells(&office, office.admin, "/metrics", "run=\"seven\""));
    EXPECT(tells(&office, theirs.text, "/metrics", "run=\"seven\""));
    EXPECT(!tells(&office, mine.text, "/metrics", "seven"));
    /* a run that is frozen is the operator's to hear of */
    cairn_key_attempt(&seven, 2, &key);
    REQUIRE_OK(cairn_store_put_small(office.world.worker, key.text, CAIRN_VIEW("{}"), true, &err));
    struct cairn_hand next;
    EXPECT_CODE(hand_open(&office.world, &next, "j2", 1, "latest", 1), CAIRN_CATALOG_BEHIND);
    EXPECT(tells(&office, office.admin, "/readyz", "llm/seven"));
    EXPECT(!tells(&office, mine.text, "/readyz", "seven"));
    EXPECT(!tells(&office, NULL, "/readyz", "seven"));
    EXPECT(tells(&office, NULL, "/readyz", "not ok"));
}

/* ---- events ---- */

TEST(a02_events_of_other_projects_are_in_no_list_and_no_stream_and_a_revoked_stream_ends) {
    OFFICE();
    struct cairn_raw stream;
    CAIRN_AUTO(buf) got = {.limit = CAIRN_MIB};
    MADE(mine, "read", "mine");
    RUNS("secret/s", "mine/a");
    EXPECT_HAS(ANSWER(&office, mine.text, "200 GET /v1/events?since=0"), "\"project\":\"mine\"",
               "!secret", "!token.made");
    EXPECT_HAS(ANSWER(&office, mine.text, "200 GET /v1/events"), "\"project\":\"mine\"", "!secret");
    /* page by page: what is passed over is not come back to */
    uint64_t since = 0, seen = 0;
    for (int i = 0; i < 10; i++) {
        const char *page =
            ANSWER(&office, mine.text, TEXT("200 GET /v1/events?limit=1&since=%" PRIu64, since));
        seen += strstr(page, "\"project\":\"mine\"") != NULL;
        EXPECT_HAS(page, "!secret");
        const char *next = strstr(page, "\"since\":");
        REQUIRE(next != NULL);
        since = strtoull(next + 8, NULL, 10);
    }
    EXPECT_EQ_U64(seen, 1);
    REQUIRE(cairn_raw_open(&stream, office.world.server.port));
    REQUIRE(cairn_raw_text(
        &stream, TEXT("GET /v1/events HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n"
                      "Last-Event-ID: 1\r\nAuthorization: Bearer %s\r\n\r\n",
                      mine.text)));
    EXPECT(cairn_raw_until(&stream, &got, "mine", HANG_MS));
    RUNS("secret/t", "mine/b");
    EXPECT(cairn_raw_until(&stream, &got, "\"run\":\"b\"", HANG_MS));
    EXPECT(got.data && !strstr(got.data, "secret"));
    EXPECT_CODE(office_end(&office, &mine), CAIRN_OK);
    RUNS("mine/c");
    CAIRN_AUTO(buf) rest = {.limit = CAIRN_MIB};
    EXPECT(cairn_raw_until(&stream, &rest, "0\r\n\r\n", HANG_MS)); /* the last chunk */
    EXPECT(!rest.data || !strstr(rest.data, "\"run\":\"c\""));
    cairn_raw_release(&stream);
}

struct parked {
    const struct office *office;
    const char *token;
    int status;
    pthread_t thread;
    _Atomic int id;
};

static void *park(void *argument) {
    struct parked *parked = argument;
    parked->id = gettid();
    parked->status =
        say(parked->office, parked->token, "GET",
            "/v1/runs/mine/a/checkpoints/latest?newer_than=0&wait=20s", NULL, NULL, NULL);
    return NULL;
}

TEST(a02_a_call_that_waits_is_judged_again_when_it_goes_on) {
    OFFICE();
    MADE(mine, "read", "mine");
    RUNS("mine/a");
    struct parked parked = {.office = &office, .token = mine.text};
    REQUIRE(!pthread_create(&parked.thread, NULL, park, &parked));
    REQUIRE_AWAIT(parked.id && cairn_test_thread_sleeps(parked.id) &&
                  cairn_raw_all_read(office.world.server.port));
    EXPECT_CODE(office_end(&office, &mine), CAIRN_OK);
    REQUIRE_OK(world_call(&office.world, "POST", "/v1/runs/mine/a/attempts",
                          json_pack("{s:s, s:i, s:s, s:I, s:[{s:i, s:s}], s:s}", "job", "j",
                                    "world_size", 1, "resume", "none", "after", (json_int_t)0,
                                    "ranks", "rank", 0, "proc", "p", "node", "n"),
                          NULL));
    pthread_join(parked.thread, NULL);
    EXPECT(parked.status == 401);
}

/* ---- the grant ---- */

TEST(a_save_goes_on_by_its_grant_after_its_uploaders_token_was_revoked) {
    OFFICE();
    struct cairn_hand hand;
    struct cairn_hand_save save;
    MADE(mine, "read,write", "llm");
    struct cairn_rest_options options = {.url = office.world.server.url, .token = mine.text};
    struct cairn_rest *admins = office.world.rest;
    office.world.rest = NULL;
    REQUIRE_OK(cairn_rest_new(&options, &office.world.rest, &err));
    REQUIRE_OK(hand_open(&office.world, &hand, "j1", 0, "latest", 1));
    struct cairn_rest *uploaders = office.world.rest;
    office.world.rest = admins;
    REQUIRE_OK(office_end(&office, &mine));
    office.world.rest = uploaders;
    EXPECT_CODE(hand_begin(&hand, 1, 1, "error", &save), CAIRN_UNAUTHORIZED);
    REQUIRE_OK(cairn_rest_set_grant(uploaders, hand.grant, &err));
    REQUIRE_OK(hand_begin(&hand, 1, 1, "error", &save));
    REQUIRE_OK(hand_put(&save, "x", 0, CAIRN_VIEW("abc")));
    EXPECT_WAITED(&save, "state", "committed");
    /* It is good for that alone. */
    char more[700];
    snprintf(more, sizeof(more), "X-Cairn-Grant: %s\r\n", hand.grant);
    EXPECT(say(&office, NULL, "GET", WORLD_RUN, more, NULL, NULL) == 401);
    EXPECT(say(&office, NULL, "DELETE", WORLD_RUN, more, NULL, NULL) == 401);
    EXPECT(say(&office, NULL, "GET", "/v1/runs", more, NULL, NULL) == 401);
    EXPECT(say(&office, NULL, "GET", "/v1/runs/llm/eight/checkpoints/1", more, NULL, NULL) == 401);
    EXPECT(say(&office, NULL, "POST", TEXT("%s/abort", save.path), more, "{}", NULL) == 401);
    EXPECT(say(&office, NULL, "POST", WORLD_RUN "/attempts", more, "{}", NULL) == 401);
    EXPECT(say(&office, NULL, "PUT", "/v1/nodes/n1", more,
               "{\"uploader\":{},\"attempts\":[],\"versions\":[]}", NULL) == 200);
    more[30] = more[30] == 'A' ? 'B' : 'A';
    EXPECT(say(&office, NULL, "GET", save.path, more, NULL, NULL) == 401);
    cairn_rest_free(admins);
}

/* ---- who speaks for a node (Q58) ---- */

/* An attempt of that run with one rank on that node; its grant. */
static bool open_attempt(const struct office *office, const char *token, const char *run,
                         const char *node, char ret_grant[600]) {
    CAIRN_AUTO(buf) reply = {.limit = CAIRN_MIB};
    const char *path = TEXT("/v1/runs/%s/attempts", run);
    int status = say(office, token, "POST", path, NULL,
                     TEXT("{\"job\":\"j\",\"world_size\":1,\"after\":0,\"node\":\"%s\","
                          "\"ranks\":[{\"rank\":0,\"proc\":\"p\"}]}",
                          node),
                     &reply);
    const char *grant = reply.data ? strstr(reply.data, "\"grant\":\"") : NULL;
    if (!EXPECT(status == 200 || status == 201) || !EXPECT(grant)) return false;
    size_t size = strcspn(grant + 9, "\"");
    snprintf(ret_grant, 600, "%.*s", (int)size, grant + 9);
    return true;
}

/* A heartbeat that names that address, with that grant or none; peers of the answer in ret. */
static int beat(const struct office *office, const char *token, const char *node,
                const char *address, const char *grant, struct cairn_buf *ret) {
    char path[200], body[1200], attempt[800] = "";
    if (grant)
        snprintf(attempt, sizeof(attempt), "{\"grant\":\"%s\",\"unsent\":0,\"peers\":true}", grant);
    snprintf(path, sizeof(path), "/v1/nodes/%s", node);
    snprintf(body, sizeof(body),
             "{\"uploader\":{\"version\":\"1\",\"peer\":\"%s\"},\"attempts\":[%s],"
             "\"versions\":[]}",
             address, attempt);
    return say(office, token, "PUT", path, NULL, body, ret);
}

static void expect_peer(int line, const struct office *office, const char *token, const char *grant,
                        const char *address) {
    CAIRN_AUTO(buf) reply = {.limit = CAIRN_MIB};
    int status = beat(office, token, "asks", "asks:1", grant, &reply);
    cairn_test_check(status == 200 && strstr(reply.data, address), __FILE__, line,
                     "%d, wanted %s in: %s", status, address, reply.data);
    EXPECT(!strstr(reply.data, "thief"));
}

TEST(a_node_is_spoken_for_by_who_has_a_project_of_it_and_asked_where_its_attempts_grant_says) {
    OFFICE();
    char ours[600], others[600], second[600];
    MADE(mine, "write", "llm");
    MADE(theirs, "write", "other");
    REQUIRE(open_attempt(&office, mine.text, "llm/seven", "node-a", ours));
    REQUIRE(open_attempt(&office, mine.text, "llm/eight", "node-a", second));
    REQUIRE(open_attempt(&office, theirs.text, "other/x", "node-a", others)); /* so he says */
    EXPECT_EQ_U64((uint64_t)beat(&office, mine.text, "node-a", "mine:1", ours, NULL), 200);
    expect_peer(__LINE__, &office, mine.text, ours, "mine:1");
    /* Neither by a token of another project nor by a grant of one. */
    EXPECT_EQ_U64((uint64_t)beat(&office, theirs.text, "node-a", "thief:1", NULL, NULL), 403);
    EXPECT_EQ_U64((uint64_t)beat(&office, theirs.text, "node-a", "thief:1", others, NULL), 403);
    expect_peer(__LINE__, &office, mine.text, ours, "mine:1");
    EXPECT_HAS(ANSWER(&office, office.admin, "200 GET /v1/nodes"), "!thief");
    /* With a grant of another run of the project it is heard, and this attempt is told nothing. */
    EXPECT_EQ_U64((uint64_t)beat(&office, mine.text, "node-a", "thief:1", second, NULL), 200);
    expect_peer(__LINE__, &office, mine.text, ours, "mine:1");
    EXPECT_EQ_U64((uint64_t)beat(&office, mine.text, "node-a", "moved:1", ours, NULL), 200);
    expect_peer(__LINE__, &office, mine.text, ours, "moved:1");
    EXPECT_EQ_U64((uint64_t)beat(&office, office.admin, "node-a", "moved:1", ours, NULL), 200);
}

TEST(a_token_makes_none_that_outlives_it) {
    OFFICE();
    struct made boss;
    REQUIRE(make(&office, "read,admin", "*", 3600, &boss));
    SAYS(&office, boss.text, "403 POST /v1/tokens {\"scopes\":[\"read\"],\"expires_s\":7200}",
         "201 POST /v1/tokens {\"scopes\":[\"read\"],\"expires_s\":60}");
    static const char wanted[] = "201 POST /v1/tokens {\"scopes\":[\"read\"]}";
    EXPECT_HAS(ANSWER(&office, boss.text, wanted), "\"expires_at\":\"20"); /* with its maker */
    EXPECT_HAS(ANSWER(&office, office.admin, wanted), "\"expires_at\":null");
}
