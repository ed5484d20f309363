/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: engines=again */
/* What a page of somebody else can make a browser send (B08). */
#include "tests/server/world.h"

static int send_request(const struct cairn_world *world, const char *method, const char *path,
                        const char *host, const char *more) {
    CAIRN_AUTO(buf) reply = {0};
    const char *request = TEXT("%s %s HTTP/1.1\r\nHost: %s\r\n%s\r\n", method, path, host, more);
    return cairn_raw_exchange(world->server.port, request, strlen(request), &reply);
}

TEST(a_request_that_names_another_host_is_refused) { /* B08 */
    WORLD_IN("CAIRN_ALLOWED_HOSTS=cairn.example, cairn-2.example");
    EACH_TEXT(text, "127.0.0.1", "127.0.0.1:7420", "[::1]:80", "10.1.2.3:7420", "localhost",
              "LocalHost:1", "localhost.", "cairn.example", "CAIRN-2.example:7420")
        cairn_test_check(send_request(&world, "GET", "/livez", text, "") == 200, __FILE__, __LINE__,
                         "%s", text);
    EACH_TEXT(one, "evil.example", "evil.example:7420", "localhost.evil.example",
              "127.0.0.1.evil.example", "xlocalhost", "cairn.example.evil", "[::1", "localhost:x",
              "[localhost") {
        cairn_test_check(send_request(&world, "GET", "/v1/runs", one, "") == 403, __FILE__,
                         __LINE__, "%s", one);
        cairn_test_check(send_request(&world, "PUT", "/v1/runs/a/b", one, "") == 403, __FILE__,
                         __LINE__, "PUT %s", one);
    }
    char name[256] = "";
    REQUIRE(!gethostname(name, sizeof(name) - 1));
    EXPECT(send_request(&world, "GET", "/livez", name, "") == 200);
    EXPECT(send_request(&world, "GET", "/v1/runs/a/b", "localhost", "") == 404);
}

TEST(checks_of_health_are_answered_to_any_host_and_in_http_1_0_without_one) { /* B08 */
    WORLD();
    EACH_TEXT(
        text, "GET /readyz HTTP/1.0\r\n\r\n", "GET /livez HTTP/1.0\r\n\r\n",
        "HEAD /readyz HTTP/1.0\r\n\r\n", "GET /readyz HTTP/1.1\r\nHost: cairn_backend\r\n\r\n",
        "GET /livez HTTP/1.1\r\nHost: evil.example\r\n\r\n", "GET /v1/runs HTTP/1.0\r\n\r\n") {
        CAIRN_AUTO(buf) reply = {0};
        int status = cairn_raw_exchange(world.server.port, text, strlen(text), &reply);
        cairn_test_check(status == 200, __FILE__, __LINE__, "%d: %s", status, text);
    }
    EXPECT(send_request(&world, "GET", "/v1/runs", "cairn_backend", "") == 403);
    EXPECT(send_request(&world, "GET", "/metrics", "cairn_backend", "") == 403);
}

TEST(the_authority_of_an_absolute_target_counts_instead_of_the_host) { /* B08, RFC 9112 3.2.2 */
    WORLD_IN("CAIRN_ALLOWED_HOSTS=cairn.example");
    EACH(row, FIELDS(const char *target, *host; int status),
         {"http://localhost:1/v1/runs", "localhost", 200},
         {"http://cairn.example/v1/runs?limit=1", "evil.example", 200},
         {"http://127.0.0.1/v1/runs/a/b", "localhost", 404}, {"http://[::1]", "localhost", 404},
         {"http://localhost?limit=1", "localhost", 404},
         {"http://evil.example/v1/runs", "localhost", 403},
         {"http://localhost:x/v1/runs", "localhost", 403}) {
        int status = send_request(&world, "GET", row->target, row->host, "");
        cairn_test_check(status == row->status, __FILE__, __LINE__, "%d for %s", status,
                         row->target);
    }
}

/* The answer, whose text must hold all of these; NULL ends them. */
static void expect_said(const struct cairn_world *world, const char *request, int status,
                        const char *const texts[], int line) {
    CAIRN_AUTO(buf) reply = {0};
    int found = cairn_raw_exchange(world->server.port, request, strlen(request), &reply);
    cairn_test_check(found == status, __FILE__, line, "%d for %s", found, request);
    for (; *texts; texts++)
        cairn_test_check(reply.data && strstr(reply.data, *texts), __FILE__, line,
                         "no \"%s\" in %s", *texts, reply.data ? reply.data : "");
}
#define EXPECT_SAID(request, status, ...)                                                          \
    expect_said(&world, request, status, (const char *const[]){__VA_ARGS__, NULL}, __LINE__)

TEST(a_name_that_is_not_ours_is_refused_without_a_word_of_credentials) { /* B08 */
    WORLD();
    CAIRN_AUTO(buf) reply = {0};
    static const char request[] = "GET /v1/runs HTTP/1.1\r\nHost: cairn_backend\r\n\r\n";
    EXPECT(cairn_raw_exchange(world.server.port, request, strlen(request), &reply) == 403);
    EXPECT(reply.data && strstr(reply.data, "is not a name of this server"));
    EXPECT(reply.data && strstr(reply.data, "allowed-hosts"));
    EXPECT(reply.data && !strstr(reply.data, "credential"));
}

#define err world.err /* of the macros */

TEST(behind_a_path_of_a_proxy_locations_instances_and_plans_bear_it) { /* public_url */
    struct cairn_hand_save save;
    WORLD("--public-url=https://lab.example:8443/cairn/");
    EXPECT_SAID("GET /v1/runs/a/none HTTP/1.1\r\nHost: lab.example:8443\r\n\r\n", 404,
                "\"instance\":\"/cairn/v1/runs/a/none\"");
    EXPECT_SAID("GET /cairn/v1/runs/a/none HTTP/1.1\r\nHost: lab.example\r\n\r\n", 404,
                "\"instance\":\"/cairn/v1/runs/a/none\"");
    EXPECT(send_request(&world, "GET", "/cairnx/v1/runs", "localhost", "") == 404);
    HAND(1);
    REQUIRE_OK(hand_save_all(&hand, 1, 1, "error", 1000, &save));
    CAIRN_AUTO_JSON json_t *begin = hand_begin_body(&hand, 2, 1, 0, "error");
    CAIRN_AUTO_HEAP char *body = begin ? json_dumps(begin, 0) : NULL;
    REQUIRE(body);
    EXPECT_SAID(TEXT("POST /cairn" WORLD_RUN
                     "/checkpoints HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
                     "application/json\r\nContent-Length: %zu\r\n\r\n%s",
                     strlen(body), body),
                201, "Location: /cairn" WORLD_RUN "/checkpoints/ckpt_");
    EXPECT_SAID(TEXT("POST /cairn%s/restore-plans HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
                     "application/json\r\nContent-Length: 2\r\n\r\n{}",
                     save.path),
                201, "\"path\":\"/cairn" WORLD_RUN "/checkpoints/ckpt_");
}

#undef err

TEST(a_page_of_an_allowed_origin_may_call_and_any_other_may_not) { /* allowed_origins, B08 */
    WORLD("--allowed-origins=https://lab.example, http://two.example:81");
    EXPECT_SAID("OPTIONS /v1/runs/a/b HTTP/1.1\r\nHost: localhost\r\nOrigin: https://lab.example"
                "\r\nAccess-Control-Request-Method: PUT\r\n\r\n",
                204, "Access-Control-Allow-Origin: https://lab.example\r\n",
                "Access-Control-Allow-Methods: GET, HEAD, POST, PUT", "Authorization",
                "Vary: Origin");
    EXPECT_SAID("GET /v1/runs HTTP/1.1\r\nHost: localhost\r\nOrigin: http://two.example:81\r\n\r\n",
                200, "Access-Control-Allow-Origin: http://two.example:81\r\n", "ETag, Location");
    EXPECT_SAID("PUT /v1/runs/a/b HTTP/1.1\r\nHost: localhost\r\nOrigin: https://lab.example\r\n"
                "Content-Type: text/plain\r\nContent-Length: 2\r\n\r\n{}",
                415, "Access-Control-Allow-Origin: https://lab.example\r\n");
    EXPECT(send_request(&world, "PUT", "/v1/runs/a/b", "localhost",
                        "Origin: https://lab.example\r\n") == 201);
    EACH_TEXT(one, "https://lab.example.evil", "http://lab.example", "https://two.example:81",
              "null", "*") {
        CAIRN_AUTO(buf) reply = {0};
        const char *more = TEXT("Origin: %s\r\n", one);
        EXPECT(send_request(&world, "PUT", "/v1/runs/a/c", "localhost", more) == 403);
        EXPECT(send_request(&world, "OPTIONS", "/v1/runs/a/c", "localhost", more) / 100 == 4);
        const char *request = TEXT("GET /v1/runs HTTP/1.1\r\nHost: localhost\r\n%s\r\n", more);
        (void)cairn_raw_exchange(world.server.port, request, strlen(request), &reply);
        EXPECT(reply.data && !strstr(reply.data, "Access-Control"));
    }
}

TEST(settings_of_a_public_url_and_origins_that_are_none_are_refused) { /* public_url */
    EACH_TEXT(text, "--public-url=lab.example/cairn", "--public-url=https://me@lab.example",
              "--allowed-origins=*", "--allowed-origins=lab.example",
              "--allowed-origins=https://lab.example/page") {
        CAIRN_AUTO(world) world = {0};
        EXPECT(!world_start(&world, WORLD_ARGS(text), NULL));
        EXPECT(strstr(world.err.message, AT_OF(text) < 2 ? "public-url" : "allowed-origins"));
    }
}

TEST(any_name_is_taken_where_an_operator_says_so) { /* B08 */
    WORLD_IN("CAIRN_ALLOWED_HOSTS=*");
    EXPECT(send_request(&world, "GET", "/livez", "anything.example", "") == 200);
}

/* What a form, an image or fetch() without a question of the browser can send. */
TEST(a_change_that_a_page_of_another_site_can_make_a_browser_send_is_refused) { /* B08 */
    JOB(1);
    BEGUN(save, 1);
    const char *abort_path = TEXT("%s/abort", save.path);
    EACH_TEXT(
        one, "", "Content-Length: 0\r\n", "Content-Type: text/plain\r\nContent-Length: 0\r\n",
        "Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 0\r\n",
        "Content-Type: multipart/form-data; boundary=application/json\r\nContent-Length: 0\r\n")
        cairn_test_check(send_request(&world, "POST", abort_path, "localhost", one) == 415,
                         __FILE__, __LINE__, "%s", one);
    EXPECT(send_request(&world, "POST", abort_path, "localhost",
                        "Origin: http://evil.example\r\nContent-Type: application/json\r\n") ==
           403);
    EXPECT(send_request(&world, "POST", abort_path, "localhost",
                        "Origin: http://192.0.2.7\r\nContent-Type: application/json\r\n") == 403);
    EXPECT(send_request(&world, "POST", abort_path, "127.0.0.1:7420",
                        "Origin: http://127.0.0.1:80\r\nContent-Type: application/json\r\n") ==
           403);
    EXPECT(send_request(&world, "POST", WORLD_RUN "/reconcile", "127.0.0.1:7420",
                        "Origin: http://127.0.0.1:7420\r\nX-Cairn: 1\r\n") == 200);
    EXPECT(send_request(&world, "POST", abort_path, "localhost",
                        "Origin: null\r\nContent-Type: application/json\r\n") == 403);
    EXPECT(send_request(&world, "OPTIONS", abort_path, "localhost",
                        "Origin: http://evil.example\r\nAccess-Control-Request-Method: PUT\r\n") >=
           400);
    EXPECT_GET(save.path, "state", "open");
    EXPECT(send_request(&world, "POST", WORLD_RUN "/reconcile", "localhost", "X-Cairn: 1\r\n") ==
           200);
    EXPECT(send_request(&world, "POST", abort_path, "localhost",
                        "Origin: http://localhost:3000\r\nContent-Type: application/json\r\n") ==
           202);
}
