/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: engines=again races="full: as server/save and server/http, other requests" */
/* Callers behind a proxy: who is believed about them, and the bounds that they meet. */
#include "tests/server/world.h"

#define WAITS_MAX 12

struct cairn_waits {
    struct cairn_raw raws[WAITS_MAX];
    struct cairn_hand hand;
    struct cairn_hand_save save;
};
static void cairn_waits_release(struct cairn_waits *waits) {
    for (size_t i = 0; i < WAITS_MAX; i++) cairn_raw_release(&waits->raws[i]);
}

static bool begin_save(struct cairn_world *world, struct cairn_waits *waits) {
    for (size_t i = 0; i < WAITS_MAX; i++) waits->raws[i].fd = -1;
    return !hand_open(world, &waits->hand, "j1", 0, "latest", 1) &&
           !hand_begin(&waits->hand, 1, 1, "error", &waits->save);
}

/* One more call that waits for the save to end, for somebody: -1 where the server has read it and
 * holds it. */
static int wait_for(const struct cairn_world *world, struct cairn_waits *waits, size_t number,
                    const char *header, struct cairn_buf *ret) {
    const char *request =
        TEXT("GET %s?wait=60s HTTP/1.1\r\nHost: localhost\r\n%s\r\n", waits->save.path, header);
    if (!cairn_raw_open(&waits->raws[number], world->server.port) ||
        !cairn_raw_text(&waits->raws[number], request))
        return -2;
    (void)COMES(cairn_raw_all_read(world->server.port));
    return cairn_raw_reply(&waits->raws[number], 400, ret);
}

static int ask(const struct cairn_world *world, const char *method, const char *path,
               const char *header, struct cairn_buf *ret) {
    return world_ask(world, method, path, header, *method == 'P' ? "{}" : NULL, ret);
}

TEST(at_the_bound_of_an_address_health_is_answered_and_the_rest_refused_in_words) { /* B05 */
    WORLD("--connections-per-address=6");
    WITH(waits, waits, begin_save(&world, &waits));
    for (size_t i = 0; i < 8; i++) {
        CAIRN_AUTO(buf) reply = {0};
        int status = wait_for(&world, &waits, i, "", &reply);
        EXPECT(status == -1 || status == 503);
        EXPECT(status == -1 || strstr(reply.data, "connections_per_address"));
    }
    for (int i = 0; i < 3; i++) {
        CAIRN_AUTO(buf) ready = {0}, refused = {0};
        EXPECT(ask(&world, "GET", "/readyz", "Connection: close\r\n", &ready) == 200);
        EXPECT(ask(&world, "GET", "/v1/runs", "Connection: close\r\n", &refused) == 503);
    }
    cairn_raw_release(&waits.raws[0]);
    cairn_raw_release(&waits.raws[1]);
    CAIRN_AUTO(buf) page = {0};
    REQUIRE_AWAIT((cairn_buf_clear(&page),
                   ask(&world, "GET", "/metrics", "Connection: close\r\n", &page) == 200));
    EXPECT(page.data && strstr(page.data, "cairn_bounds_reached_total{bound=\"address\"}"));
    EXPECT(page.data && !strstr(page.data, "bounds_reached_total{bound=\"address\"} 0\n"));
}

TEST(each_caller_of_a_trusted_proxy_has_a_bound_of_his_own) { /* B05 */
    WORLD("--connections-per-address=3", "--trusted-proxies=10.9.0.0/16, 127.0.0.1");
    WITH(waits, waits, begin_save(&world, &waits));
    for (size_t i = 0; i < 8; i++) { /* what stands further left is a caller's own word */
        CAIRN_AUTO(buf) reply = {0};
        EXPECT(
            wait_for(
                &world, &waits, i,
                TEXT("X-Forwarded-For: 1.2.3.4\r\nX-Forwarded-For: 192.0.2.%zu, 10.9.8.7\r\n", i),
                &reply) == -1);
    }
    for (size_t i = 8; i < 12; i++) {
        CAIRN_AUTO(buf) reply = {0};
        int status = wait_for(&world, &waits, i, "X-Forwarded-For: 198.51.100.1:4711\r\n", &reply);
        EXPECT(status == (i < 11 ? -1 : 503));
    }
    CAIRN_AUTO(buf) other = {0};
    EXPECT(ask(&world, "GET", "/v1/runs", "X-Forwarded-For: 192.0.2.99\r\n", &other) == 200);
}

/* Whom the newest event names. */
static bool event_is_from(struct cairn_world *world, const char *address) {
    CAIRN_AUTO_JSON json_t *page = NULL;
    if (world_call(world, "GET", "/v1/events?limit=1", NULL, &page)) return false;
    const json_t *event = json_array_get(json_object_get(page, "items"), 0);
    const char *found = json_string_value(json_object_get(event, "address"));
    cairn_test_check(found && !strcmp(found, address), __FILE__, __LINE__, "%s instead of %s",
                     found ? found : "nobody", address);
    return true;
}

TEST(a_caller_is_named_by_trusted_proxies_alone) { /* trusted_proxies */
    WORLD("--trusted-proxies=127.0.0.0/8");
    CAIRN_AUTO(buf) reply = {0};
    EXPECT(ask(&world, "PUT", "/v1/runs/a/one", "X-Forwarded-For: 192.0.2.1\r\n", &reply) == 201);
    EXPECT(event_is_from(&world, "192.0.2.1"));
    EXPECT(ask(&world, "PUT", "/v1/runs/a/two", "Forwarded: for=192.0.2.2\r\n", &reply) == 201);
    EXPECT(event_is_from(&world, "127.0.0.1"));
    EXPECT(ask(&world, "PUT", "/v1/runs/a/three", "X-Forwarded-For: 192.0.2.3, unknown\r\n",
               &reply) == 201);
    EXPECT(event_is_from(&world, "127.0.0.1"));
}

TEST(trusted_proxies_may_name_callers_in_forwarded) { /* trusted_header */
    WORLD("--trusted-proxies=127.0.0.1", "--trusted-header=Forwarded");
    CAIRN_AUTO(buf) reply = {0};
    EXPECT(ask(&world, "PUT", "/v1/runs/a/one", "Forwarded: by=x;for=\"[2001:db8::7]:80\"\r\n",
               &reply) == 201);
    EXPECT(event_is_from(&world, "2001:db8::7"));
    EXPECT(ask(&world, "PUT", "/v1/runs/a/two", "X-Forwarded-For: 192.0.2.1\r\n", &reply) == 201);
    EXPECT(event_is_from(&world, "127.0.0.1"));
}

TEST(nobody_is_believed_where_no_proxy_is_trusted) { /* trusted_proxies */
    WORLD("--trusted-proxies=10.0.0.0/8");
    CAIRN_AUTO(buf) reply = {0};
    EXPECT(ask(&world, "PUT", "/v1/runs/a/one", "X-Forwarded-For: 192.0.2.1\r\n", &reply) == 201);
    EXPECT(event_is_from(&world, "127.0.0.1"));
}

/* PUT of a run behind these bytes. */
static int put_behind(const struct cairn_world *world, const void *header, size_t header_size,
                      const char *run, struct cairn_buf *ret) {
    CAIRN_AUTO(buf) bytes = {0};
    const char *request =
        TEXT("PUT /v1/runs/a/%s HTTP/1.1\r\nHost: localhost\r\nX-Forwarded-For: 203.0.113.9\r\n"
             "Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{}",
             run);
    if (cairn_buf_append(&bytes, header, header_size, NULL) ||
        cairn_buf_append(&bytes, request, strlen(request), NULL))
        return -2;
    return cairn_raw_exchange(world->server.port, bytes.data, bytes.size, ret);
}

#define V2(command, family, size) "\r\n\r\n\0\r\nQUIT\n" command family "\0" size
#define PUT_BEHIND(header, run) put_behind(&world, header, sizeof(header) - 1, run, &reply)

TEST(a_trusted_proxy_names_its_caller_by_the_proxy_protocol_alone) { /* trusted_header */
    WORLD("--trusted-proxies=127.0.0.1", "--trusted-header=PROXY");
    CAIRN_AUTO(buf) reply = {0};
    EXPECT(PUT_BEHIND("PROXY TCP4 192.0.2.1 10.0.0.1 4711 7420\r\n", "one") == 201);
    EXPECT(event_is_from(&world, "192.0.2.1"));
    EXPECT(PUT_BEHIND("PROXY TCP6 2001:db8::7 2001:db8::1 4711 7420\r\n", "two") == 201);
    EXPECT(event_is_from(&world, "2001:db8::7"));
    EXPECT(PUT_BEHIND(V2("\x21", "\x11", "\x0f") "\xc0\x00\x02\x05" /* 192.0.2.5 */
                                                 "\x0a\x00\x00\x01\x12\x67\x1c\xfc"
                                                 "\x04\x00\x00", /* a TLV of no bytes */
                      "three") == 201);
    EXPECT(event_is_from(&world, "192.0.2.5"));
    EXPECT(PUT_BEHIND(V2("\x20", "\x00", "\x00"), "four") == 201); /* LOCAL */
    EXPECT(event_is_from(&world, "127.0.0.1"));
    EXPECT(PUT_BEHIND("PROXY UNKNOWN\r\n", "five") == 201);
    EXPECT(event_is_from(&world, "127.0.0.1"));
    EXPECT(PUT_BEHIND("", "six") == 201);
    EXPECT(event_is_from(&world, "127.0.0.1"));
    EXPECT(PUT_BEHIND("PROXY TCP4 nobody 10.0.0.1 1 2\r\n", "seven") / 100 != 2);
    EXPECT(PUT_BEHIND(V2("\x31", "\x11", "\x0c") "123456789012", "eight") / 100 != 2);
    EXPECT(PUT_BEHIND(V2("\x21", "\x11", "\x04") "1234", "nine") / 100 != 2);
}

TEST(a_proxy_header_counts_for_bounds_and_may_come_in_pieces) { /* trusted_header, B05 */
    WORLD("--trusted-proxies=127.0.0.1", "--trusted-header=PROXY", "--connections-per-address=3");
    CAIRN_AUTO(raw) raw = {.fd = -1};
    CAIRN_AUTO(buf) reply = {0};
    REQUIRE(cairn_raw_open(&raw, world.server.port) && cairn_raw_text(&raw, "PROXY TCP4 192."));
    for (int i = 0; i < 8; i++) { /* the acceptor has gone round meanwhile */
        CAIRN_AUTO(buf) other = {0};
        char header[100];
        int size = snprintf(header, sizeof(header), "PROXY TCP4 192.0.2.%d 10.0.0.1 1 2\r\n", i);
        EXPECT(put_behind(&world, header, (size_t)size, "one", &other) / 100 == 2);
    }
    EXPECT(cairn_raw_text(&raw, "0.2.7 10.0.0.1 4711 7420\r\n"
                                "GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"));
    EXPECT(cairn_raw_reply(&raw, HANG_MS, &reply) == 200);
}

TEST(a_proxy_header_from_anybody_else_is_no_request) { /* trusted_header */
    WORLD("--trusted-proxies=10.0.0.0/8", "--trusted-header=PROXY");
    CAIRN_AUTO(buf) reply = {0};
    EXPECT(PUT_BEHIND("PROXY TCP4 192.0.2.1 10.0.0.1 4711 7420\r\n", "one") / 100 != 2);
}

TEST(with_all_places_taken_health_is_answered_and_the_rest_waits) { /* http_connections_max */
    WORLD("--http-connections-max=8");
    CAIRN_AUTO(waits) waits = {0};
    CAIRN_AUTO(raw) next = {.fd = -1};
    CAIRN_AUTO(buf) reply = {0}, page = {0};
    REQUIRE(begin_save(&world, &waits));
    for (size_t i = 0; i < 8; i++) EXPECT(wait_for(&world, &waits, i, "", &reply) == -1);
    REQUIRE(cairn_raw_open(&next, world.server.port) &&
            cairn_raw_text(&next, "GET /v1/runs HTTP/1.1\r\nHost: localhost\r\n\r\n"));
    for (int i = 0; i < 40; i++) {
        CAIRN_AUTO(buf) ready = {0};
        EXPECT(ask(&world, "GET", i % 2 ? "/readyz" : "/livez", "Connection: close\r\n", &ready) ==
               200);
    }
    EXPECT(!cairn_raw_closed(&next, 0));
    cairn_raw_release(&waits.raws[0]);
    EXPECT(cairn_raw_reply(&next, HANG_MS, &reply) == 200);
    cairn_raw_release(&next);
    REQUIRE_AWAIT((cairn_buf_clear(&page),
                   ask(&world, "GET", "/metrics", "Connection: close\r\n", &page) == 200));
    EXPECT(page.data && !strstr(page.data, "bounds_reached_total{bound=\"connections\"} 0\n"));
}

TEST(a_check_of_health_that_a_busy_server_has_not_read_yet_keeps_its_place) {
    CAIRN_AUTO(world) world = {0};
    CAIRN_AUTO(waits) waits = {0};
    CAIRN_AUTO(raw) next = {.fd = -1};
    CAIRN_AUTO(buf) reply = {0};
    REQUIRE(world_start(&world, WORLD_ARGS("--http-connections-max=8"),
                        WORLD_ARGS("CAIRN_CRASH_AT=server.http.connected:0:delay=250")));
    REQUIRE(begin_save(&world, &waits));
    for (size_t i = 0; i < 8; i++) EXPECT(wait_for(&world, &waits, i, "", &reply) == -1);
    REQUIRE(cairn_raw_open(&next, world.server.port) &&
            cairn_raw_text(&next, "GET /v1/runs HTTP/1.1\r\nHost: localhost\r\n\r\n"));
    for (int i = 0; i < 4; i++) {
        CAIRN_AUTO(buf) ready = {0};
        EXPECT(ask(&world, "GET", "/readyz", "Connection: close\r\n", &ready) == 200);
    }
    EXPECT(!cairn_raw_closed(&next, 0));
}

TEST(a_network_that_is_none_is_refused_at_the_start) { /* trusted_proxies */
    EACH_TEXT(text, "--trusted-proxies=proxy.example", "--trusted-proxies=10.0.0.0/33",
              "--trusted-proxies=::1/x") {
        CAIRN_AUTO(world) world = {0};
        EXPECT(!world_start(&world, WORLD_ARGS(text), NULL));
        EXPECT(strstr(world.err.message, "trusted-proxies"));
    }
}
