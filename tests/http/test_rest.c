/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: labels=tsan */
/* Calls to the server's API: every kind of answer becomes the right code and sentence. */
#include "api/wire/rest.h"

#include "tests/harness.h"
#include "tests/support/http_responder.h"

struct cairn_rig {
    struct cairn_responder *server;
    struct cairn_rest *rest;
    struct cairn_error error;
};
static void cairn_rig_release(struct cairn_rig *rig) {
    cairn_rest_free(rig->rest);
    cairn_responder_stop(rig->server);
}
#define err (rig.error)

static bool open_rig(struct cairn_rig *rig, void (*answer)(struct cairn_responder_request *)) {
    struct cairn_responder_options options = {.answer = answer};
    rig->server = cairn_responder_start(&options);
    if (!rig->server) return false;
    struct cairn_rest_options rest = {
        .url = cairn_responder_url(rig->server), .token = "canary-token", .timeout_ms = HANG_MS};
    return cairn_rest_new(&rest, &rig->rest, &rig->error) == CAIRN_OK;
}

#define JSON_TYPE "Content-Type: application/json; charset=utf-8\r\n"
#define PROBLEM_TYPE "Content-Type: application/problem+json\r\n"

static void echo_json(struct cairn_responder_request *request) {
    char authorization[512] = "", type[512] = "", body[4096];
    cairn_responder_header(request, "Authorization", authorization);
    cairn_responder_header(request, "Content-Type", type);
    snprintf(
        body, sizeof body,
        "{\"method\":\"%s\",\"target\":\"%.500s\",\"auth\":\"%s\",\"type\":\"%s\",\"size\":%zu}",
        request->method, request->target, authorization, type, request->body.size);
    cairn_responder_reply(request, 200, JSON_TYPE, body);
}

TEST(a_call_sends_json_and_the_token_and_returns_json) {
    WITH(rig, rig, open_rig(&rig, echo_json));
    CAIRN_AUTO_JSON json_t *body = json_pack("{s:i}", "a", 1), *reply = NULL;
    REQUIRE_OK(cairn_rest_call(rig.rest, "PUT", "/v1/runs/a/b?x=%2F", body, 0, &reply, &err));
    EXPECT_EQ_TEXT(json_string_value(json_object_get(reply, "method")), "PUT");
    EXPECT_EQ_TEXT(json_string_value(json_object_get(reply, "target")), "/v1/runs/a/b?x=%2F");
    EXPECT_EQ_TEXT(json_string_value(json_object_get(reply, "auth")), "Bearer canary-token");
    EXPECT_EQ_TEXT(json_string_value(json_object_get(reply, "type")), "application/json");
    EXPECT_EQ_U64(json_integer_value(json_object_get(reply, "size")), 7);
    EXPECT(cairn_rest_problem(rig.rest) == NULL);
}

/* Twice, then as asked for. The second answer names a time that is longer than the header's. */
static void limit_rate(struct cairn_responder_request *request) {
    static const char body[] = "{\"status\":429,\"title\":\"More requests than ...\","
                               "\"code\":\"rate-limited\"%s}";
    if (request->index >= 2) {
        echo_json(request);
        return;
    }
    cairn_responder_reply(request, 429, PROBLEM_TYPE "Retry-After: 1\r\n",
                          TEXT(body, request->index ? ",\"retry_after_ms\":300" : ""));
}

TEST(a_call_that_is_refused_for_its_rate_is_made_again_when_the_server_has_said) { /* rest.h#8 */
    WITH(rig, rig, open_rig(&rig, limit_rate));
    CAIRN_AUTO_JSON json_t *body = json_pack("{s:i}", "a", 1), *reply = NULL;
    uint64_t begun_ms = cairn_mono_ms();
    REQUIRE_OK(cairn_rest_call(rig.rest, "PUT", "/x", body, 5000, &reply, &err));
    EXPECT_EQ_U64(cairn_responder_requests(rig.server), 3);
    EXPECT_EQ_U64(json_integer_value(json_object_get(reply, "size")), 7);
    EXPECT(cairn_mono_ms() - begun_ms >= 1300);
}

static void limit_for_an_hour(struct cairn_responder_request *request) {
    cairn_responder_reply(request, 429, PROBLEM_TYPE "Retry-After: 3600\r\n",
                          "{\"status\":429,\"code\":\"rate-limited\"}");
}

TEST(a_rate_that_lets_nobody_in_within_the_calls_time_is_its_answer_at_once) { /* rest.h#8 */
    WITH(rig, rig, open_rig(&rig, limit_for_an_hour));
    uint64_t begun_ms = cairn_mono_ms();
    EXPECT_CODE(cairn_rest_call(rig.rest, "GET", "/x", NULL, 60000, NULL, &err),
                CAIRN_RATE_LIMITED);
    EXPECT_EQ_U64(cairn_responder_requests(rig.server), 1);
    EXPECT_EQ_U64(err.http_status, 429);
    EXPECT(cairn_mono_ms() - begun_ms < 55000);
}

static void refuse(struct cairn_responder_request *request) {
    cairn_responder_reply(request, 409, PROBLEM_TYPE,
                          "{\"type\":\"urn:cairn:problem:checkpoint-incomplete\",\"status\":409,"
                          "\"title\":\"The checkpoint is not complete.\",\"detail\":\"2 of\\n4\","
                          "\"hint\":\"wait\",\"code\":\"checkpoint-incomplete\",\"missing\":[3]}");
}

TEST(a_problem_becomes_its_code_and_sentence_and_stays_readable) { /* rest.h#1 */
    WITH(rig, rig, open_rig(&rig, refuse));
    EXPECT_CODE(cairn_rest_call(rig.rest, "POST", "/x", NULL, 0, NULL, &err), CAIRN_INCOMPLETE);
    EXPECT_EQ_TEXT(err.message, "2 of\\x0a4 (wait). The checkpoint is not complete.");
    EXPECT_EQ_U64(err.http_status, 409);
    const json_t *missing = json_object_get(cairn_rest_problem(rig.rest), "missing");
    EXPECT_EQ_U64(json_array_size(missing), 1);
}

static const char *scripted_type, *scripted_body;
static int scripted_status;
static void say_script(struct cairn_responder_request *request) {
    cairn_responder_reply(request, scripted_status, scripted_type, scripted_body);
}

TEST(answers_that_are_no_api_answers_get_an_honest_code) { /* rest.h#1 */
    WITH(rig, rig, open_rig(&rig, say_script));
    EACH(one, FIELDS(int status; const char *type, *body; enum cairn_code code),
         {200, "Content-Type: text/html\r\n", "<html>sign in</html>", CAIRN_PROTOCOL},
         {200, JSON_TYPE, "{\"a\":", CAIRN_PROTOCOL}, {200, JSON_TYPE, "", CAIRN_OK},
         {204, "", "", CAIRN_OK}, {302, "Location: /login\r\n", "", CAIRN_PROTOCOL},
         {301, "Location: https://new.example/cairn\r\n", "", CAIRN_PROTOCOL},
         {401, "", "", CAIRN_UNAUTHORIZED},
         {403, "Content-Type: text/html\r\n", "<html>RBAC</html>", CAIRN_UNAVAILABLE},
         {404, "", "", CAIRN_UNAVAILABLE},
         {404, JSON_TYPE, "{\"message\":\"no route matched\"}", CAIRN_UNAVAILABLE},
         {404, PROBLEM_TYPE, "{\"title\":\"Not Found\",\"status\":404}", CAIRN_UNAVAILABLE},
         {404, PROBLEM_TYPE, "{\"type\":\"urn:cairn:problem:x\",\"code\":\"x\"}", CAIRN_NOT_FOUND},
         {404, PROBLEM_TYPE, "{\"code\":\"not-found\"}", CAIRN_NOT_FOUND},
         {408, "", "", CAIRN_UNAVAILABLE},
         {413, "Content-Type: text/html\r\n", "<html>too large</html>", CAIRN_PROTOCOL},
         {429, "", "", CAIRN_BUSY}, {500, "", "", CAIRN_UNAVAILABLE},
         {502, "Content-Type: text/html\r\n", "<html>bad gateway</html>", CAIRN_UNAVAILABLE},
         {400, PROBLEM_TYPE, "not json", CAIRN_PROTOCOL},
         {409, PROBLEM_TYPE, "{\"type\":\"urn:cairn:problem:y\",\"code\":\"y\"}", CAIRN_CONFLICT},
         {500, PROBLEM_TYPE, "{\"code\":\"internal\"}", CAIRN_INTERNAL},
         {400, PROBLEM_TYPE, "{\"code\":\"ok\"}", CAIRN_PROTOCOL}) {
        scripted_status = one->status;
        scripted_type = one->type;
        scripted_body = one->body;
        CAIRN_AUTO_JSON json_t *reply = NULL;
        EXPECT_CODE(cairn_rest_call(rig.rest, "GET", "/x", NULL, 0, &reply, &err), one->code);
        EXPECT(!reply);
    }
}

TEST(a_strangers_answer_is_told_with_its_url_status_and_where_it_leads) { /* rest.h#10 */
    CAIRN_AUTO(rig) rig = {0};
    CAIRN_AUTO_JSON json_t *body = json_pack("{s:i}", "a", 1);
    REQUIRE(open_rig(&rig, say_script));
    scripted_body = "";
    EACH(one, FIELDS(int status; const char *headers, *said),
         {301, "Location: https://new.example/c\r\n", "301 and leads to https://new.example/c"},
         {404, "Server: nginx/1.22\r\n",
          "404. That is no answer of cairn-server: a proxy (nginx/1.22)"},
         {413, "Content-Type: text/html\r\n",
          "413 to a body of 7 bytes: its limit has to be larger"}) {
        scripted_status = one->status;
        scripted_type = one->headers;
        EXPECT(cairn_rest_call(rig.rest, "PUT", "/v1/runs/a/b", body, 0, NULL, &err));
        EXPECT_HAS(err.message, one->said, "/v1/runs/a/b: PUT answered");
        EXPECT_EQ_U64(err.http_status, (uint64_t)one->status);
        EXPECT(!cairn_rest_spoke(rig.rest));
    }
}

/* A server of release 0.9.1, which does not know what it is asked for. */
static void answer_of_0_9_1(struct cairn_responder_request *request) {
    if (!strcmp(request->target, "/version"))
        cairn_responder_reply(request, 200, JSON_TYPE, "{\"version\":\"0.9.1\",\"schema\":7}");
    else
        cairn_responder_reply(request, 400, PROBLEM_TYPE,
                              "{\"code\":\"invalid\",\"detail\":\"/seals/0/new: unknown field\"}");
}

TEST(a_server_of_an_earlier_release_is_named_and_one_of_a_later_one_is_not) {
    WITH(rig, rig, open_rig(&rig, answer_of_0_9_1));
    EXPECT_CODE(cairn_rest_call(rig.rest, "POST", "/x", NULL, 0, NULL, &err), CAIRN_INVALID);
    struct cairn_error refused = err;
    EACH_TEXT(text, "0.9.1", "0.9.0", "0.8.12", "0.9") {
        cairn_rest_name_older(rig.rest, "this test", text, &err);
        EXPECT_EQ_TEXT(err.message, refused.message);
    }
    EACH_TEXT(one, "0.9.2", "0.10.0", "1.0.0") {
        const char *wanted = TEXT("; the server is older (0.9.1, this test is %s)", one);
        err = refused;
        cairn_rest_name_older(rig.rest, "this test", one, &err);
        EXPECT(strstr(err.message, wanted) != NULL);
    }
}

TEST(no_answer_names_the_server_and_never_the_token) { /* rest.h#2, rest.h#3 */
    struct cairn_rest_options options = {.url = "http://127.0.0.1:1/", .token = "canary-token"};
    WITH_OK(rig, rig, cairn_rest_new(&options, &rig.rest, &err));
    EXPECT_FAILS(cairn_rest_call(rig.rest, "GET", "/x", NULL, 0, NULL, &err), CAIRN_UNAVAILABLE,
                 "http://127.0.0.1:1");
    EXPECT(!strstr(err.message, "canary"));
}

static void hang(struct cairn_responder_request *request) {
    cairn_responder_drain(request, 1);
}

TEST(a_silent_server_is_a_timeout) {
    WITH(rig, rig, open_rig(&rig, hang));
    EXPECT_CODE(cairn_rest_call(rig.rest, "GET", "/x", NULL, 100, NULL, &err), CAIRN_TIMEOUT);
}

static void serve_bytes(struct cairn_responder_request *request) {
    char range[512], grant[512] = "";
    bool ranged = cairn_responder_header(request, "Range", range);
    cairn_responder_header(request, "X-Cairn-Grant", grant);
    if (!strcmp(request->target, "/whole")) ranged = false;
    cairn_responder_reply(request, ranged ? 206 : 200, "", ranged ? range : grant);
}

TEST(bytes_come_by_range_and_a_server_that_ignores_it_is_refused) {
    WITH(rig, rig, open_rig(&rig, serve_bytes));
    struct cairn_view none = {0};
    WITH_OK(buf, bytes,
            cairn_rest_bytes(rig.rest, "GET", "/x", NULL, none, "bytes=1-2", &bytes, &err));
    EXPECT_EQ_TEXT(bytes.data, "bytes=1-2");
    EXPECT_CODE(cairn_rest_bytes(rig.rest, "GET", "/whole", NULL, none, "bytes=1-2", &bytes, &err),
                CAIRN_PROTOCOL);
    EXPECT_EQ_U64(bytes.size, 9);
    REQUIRE_OK(cairn_rest_set_grant(rig.rest, "the-grant", &err));
    cairn_buf_clear(&bytes);
    struct cairn_view body = CAIRN_VIEW("table");
    REQUIRE_OK(cairn_rest_bytes(rig.rest, "PUT", "/t", "application/octet-stream", body, NULL,
                                &bytes, &err));
    EXPECT_EQ_TEXT(bytes.data, "the-grant");
    CAIRN_AUTO(buf) tight = {.limit = 3};
    EXPECT_CODE(cairn_rest_bytes(rig.rest, "GET", "/x", NULL, none, "bytes=1-2", &tight, &err),
                CAIRN_TOO_LARGE);
}

TEST(a_unix_url_and_bad_urls_and_bad_tokens) {
    const char *path = TEXT("%s/rest.sock", cairn_test_folder());
    const char *url = TEXT("unix:%s", path);
    struct cairn_responder_options options = {.answer = echo_json, .unix_socket = path};
    CAIRN_AUTO(rig) rig = {.server = cairn_responder_start(&options)};
    REQUIRE(rig.server);
    struct cairn_rest_options rest = {.url = url};
    REQUIRE_OK(cairn_rest_new(&rest, &rig.rest, &err));
    REQUIRE_OK(cairn_rest_call(rig.rest, "GET", "/livez", NULL, 0, NULL, &err));
    struct cairn_rest *none = NULL;
    EACH_TEXT(text, "ftp://x", "127.0.0.1:7420", "http://u:p@h/", "http://h/?q") {
        rest.url = text;
        EXPECT_CODE(cairn_rest_new(&rest, &none, &err), CAIRN_INVALID);
    }
    rest = (struct cairn_rest_options){.url = "http://h", .token = "a\r\nX-Evil: 1"};
    EXPECT_CODE(cairn_rest_new(&rest, &none, &err), CAIRN_INVALID);
    EXPECT(!none);
}
