/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: engines=again */
/* What a page of somebody else can make a browser send (B08). */
#include <stdio.h>
#include <unistd.h>

#include "tests/server/world.h"
#include "tests/support/raw.h"

static int send_request(const struct cairn_world *world, const char *method, const char *path,
                        const char *host, const char *more) {
    char request[1500];
    CAIRN_AUTO(buf) reply = {0};
    snprintf(request, sizeof(request), "%s %s HTTP/1.1\r\nHost: %s\r\n%s\r\n", method, path, host,
             more);
    return cairn_raw_exchange(world->server.port, request, strlen(request), &reply);
}

TEST(a_request_that_names_another_host_is_refused) /* B08 */
{
    CAIRN_AUTO(world) world = {0};
    REQUIRE(cairn_world_start(&world, NULL,
                              WORLD_ARGS("CAIRN_ALLOWED_HOSTS=cairn.example, cairn-2.example")));
    static const char *const ours[] = {"127.0.0.1",     "127.0.0.1:7420", "[::1]:80",
                                       "10.1.2.3:7420", "localhost",      "LocalHost:1",
                                       "localhost.",    "cairn.example",  "CAIRN-2.example:7420"};
    static const char *const others[] = {"evil.example",
                                         "evil.example:7420",
                                         "localhost.evil.example",
                                         "127.0.0.1.evil.example",
                                         "xlocalhost",
                                         "cairn.example.evil",
                                         "[::1",
                                         "localhost:x",
                                         "[localhost"};
    for (size_t i = 0; i < CAIRN_COUNT(ours); i++)
        cairn_test_check(send_request(&world, "GET", "/livez", ours[i], "") == 200, __FILE__,
                         __LINE__, "%s", ours[i]);
    for (size_t i = 0; i < CAIRN_COUNT(others); i++) {
        cairn_test_check(send_request(&world, "GET", "/v1/runs", others[i], "") == 403, __FILE__,
                         __LINE__, "%s", others[i]);
        cairn_test_check(send_request(&world, "PUT", "/v1/runs/a/b", others[i], "") == 403,
                         __FILE__, __LINE__, "PUT %s", others[i]);
    }
    char name[256] = "";
    REQUIRE(!gethostname(name, sizeof(name) - 1));
    EXPECT(send_request(&world, "GET", "/livez", name, "") == 200);
    EXPECT(send_request(&world, "GET", "/v1/runs/a/b", "localhost", "") == 404);
}

TEST(checks_of_health_are_answered_to_any_host_and_in_http_1_0_without_one) /* B08 */
{
    CAIRN_AUTO(world) world = {0};
    REQUIRE(cairn_world_start(&world, NULL, NULL));
    static const char *const checks[] = {
        "GET /readyz HTTP/1.0\r\n\r\n",
        "GET /livez HTTP/1.0\r\n\r\n",
        "HEAD /readyz HTTP/1.0\r\n\r\n",
        "GET /readyz HTTP/1.1\r\nHost: cairn_backend\r\n\r\n",
        "GET /livez HTTP/1.1\r\nHost: evil.example\r\n\r\n",
        "GET /v1/runs HTTP/1.0\r\n\r\n",
    };
    for (size_t i = 0; i < CAIRN_COUNT(checks); i++) {
        CAIRN_AUTO(buf) reply = {0};
        int status =
            cairn_raw_exchange(world.server.port, checks[i], strlen(checks[i]), &reply);
        cairn_test_check(status == 200, __FILE__, __LINE__, "%d: %s", status, checks[i]);
    }
    EXPECT(send_request(&world, "GET", "/v1/runs", "cairn_backend", "") == 403);
    EXPECT(send_request(&world, "GET", "/metrics", "cairn_backend", "") == 403);
}

TEST(any_name_is_taken_where_an_operator_says_so) /* B08 */
{
    CAIRN_AUTO(world) world = {0};
    REQUIRE(cairn_world_start(&world, NULL, WORLD_ARGS("CAIRN_ALLOWED_HOSTS=*")));
    EXPECT(send_request(&world, "GET", "/livez", "anything.example", "") == 200);
}

/* What a form, an image or fetch() without a question of the browser can send. */
TEST(a_change_that_a_page_of_another_site_can_make_a_browser_send_is_refused) /* B08 */
{
    CAIRN_AUTO(world) world = {0};
    struct cairn_hand hand;
    struct cairn_hand_save save;
    struct cairn_error err = {0};
    REQUIRE(cairn_world_start(&world, NULL, NULL));
    REQUIRE_OK(cairn_hand_open(&world, &hand, "j1", 0, "latest", 1));
    REQUIRE_OK(cairn_hand_begin(&hand, 1, 1, "error", &save));
    char abort_path[300];
    snprintf(abort_path, sizeof(abort_path), "%s/abort", save.path);
    static const char *const forms[] = {
        "", "Content-Length: 0\r\n", "Content-Type: text/plain\r\nContent-Length: 0\r\n",
        "Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 0\r\n",
        "Content-Type: multipart/form-data; boundary=application/json\r\nContent-Length: 0\r\n"};
    for (size_t i = 0; i < CAIRN_COUNT(forms); i++)
        cairn_test_check(send_request(&world, "POST", abort_path, "localhost", forms[i]) == 415,
                         __FILE__, __LINE__, "%s", forms[i]);
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
    CAIRN_AUTO_JSON json_t *now = NULL;
    REQUIRE_OK(cairn_world_call(&world, "GET", save.path, NULL, &now));
    EXPECT_EQ_TEXT(cairn_world_text(now, "state"), "open");
    EXPECT(send_request(&world, "POST", WORLD_RUN "/reconcile", "localhost", "X-Cairn: 1\r\n") ==
           200);
    EXPECT(send_request(&world, "POST", abort_path, "localhost",
                        "Origin: http://localhost:3000\r\nContent-Type: application/json\r\n") ==
           202);
}
