/* SPDX-License-Identifier: Apache-2.0 */
/* The port of peers and its other side, in this process: who is served, what is refused, and who is
 * passed by. */
#include <arpa/inet.h>
#include <netinet/in.h>

#include "common/net.h"
#include "tests/harness.h"
#include "uploader/port/ask.h"
#include "uploader/port/peers.h"
#include "uploader/port/port.h"
#include "uploader/saves/ranks.h"

static struct cairn_error err; /* of the last call */

#define DATA_BYTES (3 * CAIRN_MIB)

static const uint8_t server_key[CAIRN_GRANT_KEY_BYTES] = "a key of exactly thirty-two byte";

/* ---- heads ---- */

static int head(const char *text, struct cairn_up_request_head *ret) {
    return cairn_up_head_read(cairn_view_of(text), ret);
}

TEST(a_plain_head_is_read_field_by_field) {
    struct cairn_up_request_head got;
    REQUIRE(!head("GET /v1/a~b/c_d HTTP/1.1\r\nhost: x:1\r\nRange:  bytes=5-9 \r\n"
                  "Authorization: Cairn-Peer x\r\nConnection: close\r\n\r\n",
                  &got));
    EXPECT_ALL_TEXT(got.method, "GET", got.path, "/v1/a~b/c_d", got.right, "Cairn-Peer x");
    EXPECT_ALL_U64(got.first, 5, got.last, 9);
    EXPECT(got.has_range);
    EXPECT(got.closes);
    REQUIRE(!head("PUT /x HTTP/1.1\r\nHost: y\r\nContent-Length: 12\r\n\r\n", &got));
    EXPECT_EQ_U64(got.body_bytes, 12);
}

TEST(what_could_be_read_in_two_ways_is_refused) {
    EACH(row, FIELDS(const char *text; int status), {"GET /x HTTP/1.1\r\n\r\n", 400}, /* no Host */
         {"GET /x HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400},                      /* two */
         {"GET /x HTTP/1.0\r\nHost: a\r\n\r\n", 505}, {"GET  /x HTTP/1.1\r\nHost: a\r\n\r\n", 400},
         {"GET /x?y HTTP/1.1\r\nHost: a\r\n\r\n", 400},
         {"GET /%2e HTTP/1.1\r\nHost: a\r\n\r\n", 400}, {"GET x HTTP/1.1\r\nHost: a\r\n\r\n", 400},
         {"POST /x HTTP/1.1\r\nHost: a\r\n\r\n", 405}, {"PUT /x HTTP/1.1\r\nHost: a\r\n\r\n", 411},
         {"PUT /x HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n", 400},
         {"PUT /x HTTP/1.1\r\nHost: a\r\nContent-Length: +1\r\n\r\n", 400},
         {"PUT /x HTTP/1.1\r\nHost: a\r\nContent-Length: 1, 1\r\n\r\n", 400},
         {"PUT /x HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999999999999\r\n\r\n", 400},
         {"PUT /x HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
          501},
         {"PUT /x HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nExpect: 100-continue\r\n\r\n", 417},
         {"PUT /x HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nRange: bytes=0-0\r\n\r\n", 400},
         {"GET /x HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\n", 400},
         {"GET /x HTTP/1.1\r\nHost : a\r\n\r\n", 400},
         {"GET /x HTTP/1.1\r\nHost: a\r\n b\r\n\r\n", 400}, {"GET /x HTTP/1.1\nHost: a\n\n", 400},
         {"GET /x HTTP/1.1\r\nHost: a\r\nX: \x01\r\n\r\n", 400},
         {"GET /x HTTP/1.1\r\nHost: a\r\nRange: bytes=0-\r\n\r\n", 400},
         {"GET /x HTTP/1.1\r\nHost: a\r\nRange: bytes=-5\r\n\r\n", 400},
         {"GET /x HTTP/1.1\r\nHost: a\r\nRange: bytes=9-5\r\n\r\n", 400},
         {"GET /x HTTP/1.1\r\nHost: a\r\nRange: bytes=0-1,3-4\r\n\r\n", 400},
         {"GET /x HTTP/1.1\r\nHost: a\r\nRange: bytes=0-1\r\nRange: bytes=0-1\r\n\r\n", 400},
         {"GET /x HTTP/1.1\r\nHost: a\r\nAuthorization: a\r\nAuthorization: a\r\n\r\n", 400},
         {"GET /x HTTP/1.1\r\nHost: a\r\nCairn-Nonce: 00\r\n\r\n", 400},
         {"GET /x HTTP/1.1\r\nHost: a\r\n\r\nmore", 400}, {"GET /x HTTP/1.1\r\nHost: a", 400},
         {"", 400}) {
        struct cairn_up_request_head got;
        int status = head(row->text, &got);
        cairn_test_check(status == row->status, __FILE__, __LINE__, "case %zu: %d, wanted %d",
                         AT(row), status, row->status);
    }
}

TEST(a_head_of_too_many_lines_is_refused) {
    struct cairn_up_request_head got;
    for (int extra = 0; extra < 2; extra++) {
        CAIRN_AUTO(buf) text = {0};
        REQUIRE_OK(cairn_buf_append_text(&text, "GET /x HTTP/1.1\r\nHost: a\r\n", &err));
        for (int i = 1; i < CAIRN_UP_HEAD_LINES_MAX + extra; i++)
            REQUIRE_OK(cairn_buf_append_text(&text, "X: y\r\n", &err));
        REQUIRE_OK(cairn_buf_append_text(&text, "\r\n", &err));
        EXPECT_EQ_U64(head(text.data, &got), extra ? 400 : 0);
    }
}

/* ---- addresses ---- */

TEST(an_address_of_all_interfaces_is_never_told) {
    char told[CAIRN_UP_ADDRESS_BYTES + 1];
    EXPECT_CODE(cairn_up_address_told("0.0.0.0:0", "", 81, told, &err), CAIRN_INVALID);
    EXPECT_CODE(cairn_up_address_told("[::]:0", "", 81, told, &err), CAIRN_INVALID);
    EXPECT_CODE(cairn_up_address_told("0.0.0.0:0", "0.0.0.0:7", 81, told, &err), CAIRN_INVALID);
    EXPECT_CODE(cairn_up_address_told("0.0.0.0:0", "a host", 81, told, &err), CAIRN_INVALID);
    EXPECT_CODE(cairn_up_address_told("0.0.0.0:0", "host:0", 81, told, &err), CAIRN_INVALID);
    REQUIRE_OK(cairn_up_address_told("0.0.0.0:0", "lo", 81, told, &err));
    EXPECT_EQ_TEXT(told, "127.0.0.1:81");
    REQUIRE_OK(cairn_up_address_told("127.0.0.1:0", "", 81, told, &err));
    EXPECT_EQ_TEXT(told, "127.0.0.1:81");
    REQUIRE_OK(cairn_up_address_told("0.0.0.0:0", "node-a.example:4000", 81, told, &err));
    EXPECT_EQ_TEXT(told, "node-a.example:4000");
    REQUIRE_OK(cairn_up_address_told("[::]:0", "[fd00::1]", 81, told, &err));
    EXPECT_EQ_TEXT(told, "[fd00::1]:81");
}

/* ---- whose list it is ---- */

static void hear_all(struct cairn_up_members *members, const struct cairn_up_attempt *attempt) {
    struct cairn_up_roster told = {.complete = true};
    cairn_up_members_hear(members, attempt->text, &told);
}

TEST(a_new_attempt_waits_for_its_own_list_and_not_with_that_of_the_one_before) {
    CAIRN_AUTO_HEAP struct cairn_up *up = calloc(1, sizeof(*up));
    CAIRN_AUTO_HEAP struct cairn_up_peers *peers = calloc(1, sizeof(*peers));
    REQUIRE(up && peers);
    struct cairn_up_attempt *attempts[2] = {0};
    up->peers = peers;
    cairn_up_members_init(&peers->members);
    struct cairn_run_name run = {"llm", "seven"};
    for (uint64_t i = 0; i < 2; i++) {
        char text[CAIRN_GRANT_BYTES_MAX];
        struct cairn_grant grant = {.store_uuid = "01234567-89ab-4def-8123-456789abcdef",
                                    .name = run,
                                    .attempt = 1 + i,
                                    .nonce = "00112233445566778899aabbccddeeff"};
        cairn_grant_sign(&grant, server_key, text);
        EXPECT_CODE(cairn_up_attempt_join(up, text, &attempts[i], &err), CAIRN_OK);
        if (i == 0) hear_all(&peers->members, attempts[i]);
    }
    struct cairn_up_roster roster = {0};
    EXPECT_CODE(cairn_up_members_get(&peers->members, &run, "", &roster, &err), CAIRN_OK);
    EXPECT_EQ_U64(roster.attempt, 2);
    EXPECT(!roster.complete);
    cairn_up_roster_release(&roster);
    for (size_t i = 0; i < 2; i++) cairn_up_attempt_leave(up, attempts[i]);
    cairn_up_members_release(&peers->members);
}

/* ---- a port and who asks it ---- */

struct scene {
    struct cairn_up_members members;
    struct cairn_up_port *port;
    struct cairn_up_asks *asks;
    char grant[CAIRN_GRANT_BYTES_MAX];
    uint8_t *data, *put;
    _Atomic unsigned served;
    _Atomic int wait_ms; /* before each answer, with signs */
    bool open;
};
static void scene_release(struct scene *scene) {
    cairn_up_port_stop(scene->port);
    cairn_up_asks_free(scene->asks);
    cairn_up_port_free(scene->port);
    if (scene->open) cairn_up_members_release(&scene->members);
    free(scene->data);
    free(scene->put);
}
#define SCENE(name, connections)                                                                   \
    CAIRN_RELEASED(scene_release) struct scene name = {0};                                         \
    REQUIRE(start(&name, connections))

static void serve_get(struct cairn_up_call *call, void *owner) {
    struct scene *scene = owner;
    struct cairn_error why = {0};
    scene->served++;
    for (int left = scene->wait_ms; left > 0; left -= CAIRN_UP_PORT_SIGN_MS) {
        if (cairn_up_call_sign(call, &why)) return;
        cairn_test_pause_ms(CAIRN_UP_PORT_SIGN_MS); /* pause of a stand-in: a route that works */
    }
    if (!call->head.has_range || call->head.last >= DATA_BYTES || strcmp(call->rest, "data") != 0) {
        cairn_up_call_refuse(call, CAIRN_RANGE);
        return;
    }
    uint64_t bytes = call->head.last - call->head.first + 1;
    if (cairn_up_call_answer(call, 206, "Cairn-Shared: 1\r\n", bytes, &why)) return;
    (void)!cairn_up_call_send(
        call, (struct cairn_view){scene->data + call->head.first, (size_t)bytes}, &why);
}

static void serve_put(struct cairn_up_call *call, void *owner) {
    struct scene *scene = owner;
    struct cairn_error why = {0};
    scene->served++;
    if (call->head.body_bytes > DATA_BYTES) {
        cairn_up_call_refuse(call, CAIRN_TOO_LARGE);
        return;
    }
    if (cairn_up_call_receive(call, scene->put, call->head.body_bytes, &why)) return;
    (void)!cairn_up_call_answer(call, 200, "", 0, &why);
}

static bool start(struct scene *scene, uint64_t connections_max) {
    struct cairn_grant grant = {.store_uuid = "01234567-89ab-4def-8123-456789abcdef",
                                .name = {"llm", "seven"},
                                .attempt = 3,
                                .nonce = "00112233445566778899aabbccddeeff"};
    cairn_grant_sign(&grant, server_key, scene->grant);
    scene->data = malloc(DATA_BYTES);
    scene->put = calloc(1, DATA_BYTES);
    for (size_t i = 0; i < DATA_BYTES; i++) scene->data[i] = (uint8_t)(i * 7 + i / 256);
    cairn_up_members_init(&scene->members);
    scene->open = true;
    EXPECT(cairn_up_members_name(&scene->members, scene->grant));
    struct cairn_up_port_options options = {.listen = "127.0.0.1:0",
                                            .advertise = "",
                                            .node = "node-b",
                                            .connections_max = connections_max,
                                            .members = &scene->members};
    if (!EXPECT(!cairn_up_port_new(&options, &scene->port, &err))) return false;
    cairn_up_port_route(scene->port, &(struct cairn_up_route){"GET", "/v1/", serve_get, scene});
    cairn_up_port_route(scene->port, &(struct cairn_up_route){"PUT", "/v1/", serve_put, scene});
    return EXPECT(!cairn_up_port_start(scene->port, &err)) &&
           EXPECT(!cairn_up_asks_new("node-a", NULL, &scene->asks, &err));
}

struct asked {
    struct cairn_up_ask ask;
    uint8_t *into;
    _Atomic bool over;
};
static void asked_release(struct asked *asked) {
    free(asked->into);
}
static void ask_done(struct cairn_up_ask *ask) {
    struct asked *asked = ask->owner;
    asked->over = true;
}

static void describe(struct scene *scene, struct asked *asked, const char *address) {
    asked->into = calloc(1, DATA_BYTES);
    asked->ask = (struct cairn_up_ask){.run = {"llm", "seven"},
                                       .attempt = 3,
                                       .method = "GET",
                                       .path = "/v1/data",
                                       .offset = 100,
                                       .bytes = 2 * CAIRN_MIB,
                                       .into = asked->into,
                                       .done = ask_done,
                                       .owner = asked};
    snprintf(asked->ask.to.node, sizeof(asked->ask.to.node), "node-b");
    snprintf(asked->ask.to.address, sizeof(asked->ask.to.address), "%s",
             address ? address : cairn_up_port_address(scene->port));
    cairn_peer_key(scene->grant, asked->ask.key);
}

/* Milliseconds until its end. */
static uint64_t carry_out(struct scene *scene, struct asked *asked) {
    uint64_t since_ms = cairn_mono_ms();
    enum cairn_code code = cairn_up_asks_add(scene->asks, &asked->ask, &err);
    if (code) asked->ask.code = code;
    if (code) return 0;
    AWAIT(asked->over);
    return cairn_mono_ms() - since_ms;
}

#define DESCRIBED(name, address)                                                                   \
    CAIRN_RELEASED(asked_release) struct asked name = {0};                                         \
    describe(&scene, &name, address)
#define ASKED(name, address)                                                                       \
    DESCRIBED(name, address);                                                                      \
    carry_out(&scene, &name)

TEST(a_node_of_the_attempt_gets_the_range_that_it_asks_for) {
    SCENE(scene, 8);
    for (int i = 0; i < 3; i++) {
        ASKED(asked, NULL);
        EXPECT_CODE(asked.ask.code, CAIRN_OK);
        EXPECT(asked.ask.shared);
        EXPECT(!memcmp(asked.into, scene.data + 100, 2 * CAIRN_MIB));
    }
    EXPECT_EQ_U64(scene.served, 3);
}

TEST(a_body_arrives_whole) {
    SCENE(scene, 8);
    DESCRIBED(asked, NULL);
    asked.ask.method = "PUT";
    asked.ask.into = NULL;
    asked.ask.body = (struct cairn_view){scene.data, DATA_BYTES};
    carry_out(&scene, &asked);
    EXPECT_CODE(asked.ask.code, CAIRN_OK);
    EXPECT(!memcmp(scene.put, scene.data, DATA_BYTES));
}

TEST(who_has_not_the_grant_is_not_served) {
    SCENE(scene, 8);
    DESCRIBED(asked, NULL);
    asked.ask.key[0] ^= 1;
    carry_out(&scene, &asked);
    EXPECT_CODE(asked.ask.code, CAIRN_UNAVAILABLE);
    EXPECT(strstr(asked.ask.error.message, "403") != NULL);
    /* Nor who holds an attempt that this node does not hold any more. */
    cairn_up_members_forget(&scene.members, cairn_mono_ms());
    DESCRIBED(other, NULL);
    snprintf(other.ask.to.node, sizeof(other.ask.to.node), "node-c"); /* was not passed by */
    carry_out(&scene, &other);
    EXPECT_CODE(other.ask.code, CAIRN_UNAVAILABLE);
    EXPECT(strstr(other.ask.error.message, "403") != NULL);
    EXPECT_EQ_U64(scene.served, 0);
}

/* ---- who listens there is another one ---- */

/* Takes one connection, reads one head, and answers with these bytes. */
struct thief {
    int fd;
    uint16_t port;
    const char *text;
    char head[4096];
    pthread_t thread;
};

static void *thief_main(void *argument) {
    struct thief *thief = argument;
    size_t size = 0;
    CAIRN_AUTO_FD fd = accept(thief->fd, NULL, NULL);
    while (fd >= 0 && !strstr(thief->head, "\r\n\r\n") && size < sizeof(thief->head) - 1) {
        ssize_t got = read(fd, thief->head + size, sizeof(thief->head) - 1 - size);
        if (got <= 0) break;
        size += (size_t)got;
    }
    if (fd >= 0) (void)!write(fd, thief->text, strlen(thief->text));
    return NULL;
}

/* What a PUT of `path` ends with where a thief answers so. */
static enum cairn_code put_to_thief(struct scene *scene, const char *node, const char *text) {
    struct thief thief = {.text = text};
    if (!EXPECT(!cairn_net_listen_tcp("127.0.0.1:0", &thief.fd, &thief.port, &err)))
        return CAIRN_INTERNAL;
    EXPECT(!fcntl(thief.fd, F_SETFL, 0));
    EXPECT(!pthread_create(&thief.thread, NULL, thief_main, &thief));
    const char *address = TEXT("127.0.0.1:%u", thief.port);
    CAIRN_RELEASED(asked_release) struct asked asked = {0};
    describe(scene, &asked, address);
    snprintf(asked.ask.to.node, sizeof(asked.ask.to.node), "%s", node);
    asked.ask.method = "PUT";
    asked.ask.into = NULL;
    asked.ask.body = (struct cairn_view){"", 0};
    carry_out(scene, &asked);
    pthread_join(thief.thread, NULL);
    close(thief.fd);
    return asked.ask.code;
}

TEST(whole_is_believed_from_a_holder_of_the_grant_alone) {
    SCENE(scene, 8);
    EXPECT_CODE(put_to_thief(&scene, "one", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"),
                CAIRN_UNAVAILABLE);
    EXPECT_CODE(put_to_thief(&scene, "two", "HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n"),
                CAIRN_UNAVAILABLE);
    /* Nor by the proof of another answer. */
    EXPECT_CODE(put_to_thief(&scene, "three",
                             "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nCairn-Answer: "
                             "0123456789abcdef0123456789abcdef"
                             "0123456789abcdef0123456789abcdef\r\n\r\n"),
                CAIRN_UNAVAILABLE);
    DESCRIBED(asked, NULL); /* a holder refuses, and is believed */
    snprintf(asked.ask.path, sizeof(asked.ask.path), "/v2/none");
    asked.ask.method = "PUT";
    asked.ask.into = NULL;
    asked.ask.body = (struct cairn_view){"", 0};
    carry_out(&scene, &asked);
    EXPECT_CODE(asked.ask.code, CAIRN_NOT_FOUND);
}

/* ---- raw bytes ---- */

static int connect_raw(const char *address) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    to.sin_port = htons((uint16_t)strtoul(strchr(address, ':') + 1, NULL, 10));
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(fd, (struct sockaddr *)&to, sizeof(to))) return -1;
    return fd;
}

/* The status of the answer; 0: the connection ended without one, -1: nothing came in time. */
static int status_of(int fd) {
    char text[1024];
    size_t size = 0;
    struct pollfd waiting = {.fd = fd, .events = POLLIN};
    while (size < 12 && poll(&waiting, 1, (int)cairn_test_hang_ms()) > 0) {
        ssize_t got = read(fd, text + size, sizeof(text) - 1 - size);
        if (got <= 0) return 0;
        size += (size_t)got;
    }
    return size < 12 ? -1 : (int)strtol(text + 9, NULL, 10);
}

static int answer_to(struct scene *scene, const char *text) {
    CAIRN_AUTO_FD fd = connect_raw(cairn_up_port_address(scene->port));
    if (!EXPECT(fd >= 0)) return -1;
    EXPECT((size_t)write(fd, text, strlen(text)) == strlen(text));
    return status_of(fd);
}

TEST(malformed_and_unsigned_requests_get_a_status_and_nothing_else) {
    SCENE(scene, 8);
    EXPECT_EQ_U64(answer_to(&scene, "GET /v1/data HTTP/1.1\r\nHost: a\r\n\r\n"), 401);
    EXPECT_EQ_U64(answer_to(&scene, "GET /v1/data HTTP/1.1\r\nHost: a\r\n"
                                    "Authorization: Bearer x\r\n\r\n"),
                  401);
    EXPECT_EQ_U64(answer_to(&scene, "GET /v1/data HTTP/1.1\r\nHost: a\r\nAuthorization: Cairn-Peer "
                                    "llm/seven:3:node-a:"
                                    "00000000000000000000000000000000"
                                    "00000000000000000000000000000000\r\n\r\n"),
                  403);
    EXPECT_EQ_U64(answer_to(&scene, "\x16\x03\x01\r\n\r\n"), 400);
    EXPECT_EQ_U64(answer_to(&scene, "DELETE /v1/data HTTP/1.1\r\nHost: a\r\n\r\n"), 405);
    char text[CAIRN_UP_HEAD_BYTES_MAX + 10];
    memset(text, 'a', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    EXPECT_EQ_U64(answer_to(&scene, text), 431);
    EXPECT_EQ_U64(scene.served, 0);
}

TEST(a_head_that_does_not_end_is_cut_after_two_seconds) {
    SCENE(scene, 8);
    CAIRN_AUTO_FD fd = connect_raw(cairn_up_port_address(scene.port));
    REQUIRE(fd >= 0);
    uint64_t since_ms = cairn_mono_ms();
    EXPECT(write(fd, "GET /v1", 7) == 7);
    EXPECT_EQ_U64(status_of(fd), 0);
    EXPECT(cairn_mono_ms() - since_ms >= CAIRN_UP_PORT_MS - 100);
}

TEST(one_connection_too_many_is_turned_away_and_the_others_are_served) {
    SCENE(scene, 2);
    CAIRN_AUTO_FD one = connect_raw(cairn_up_port_address(scene.port));
    CAIRN_AUTO_FD two = connect_raw(cairn_up_port_address(scene.port)); /* taken in in order */
    CAIRN_AUTO_FD three = connect_raw(cairn_up_port_address(scene.port));
    REQUIRE(one >= 0 && two >= 0 && three >= 0);
    EXPECT_EQ_U64(status_of(three), 503);
    static const char text[] = "GET /v1/data HTTP/1.1\r\nHost: a\r\n\r\n";
    EXPECT(write(one, text, sizeof(text) - 1) == sizeof(text) - 1);
    EXPECT_EQ_U64(status_of(one), 401);
}

TEST(a_connection_is_not_kept_where_the_next_node_would_find_none) {
    SCENE(scene, 1);
    ASKED(asked, NULL);
    EXPECT_CODE(asked.ask.code, CAIRN_OK);
    int status = 503; /* until the answer's connection has ended */
    uint64_t since_ms = cairn_mono_ms();
    AWAIT((status = answer_to(&scene, "GET /v1/data HTTP/1.1\r\nHost: a\r\n\r\n")) != 503);
    EXPECT(cairn_mono_ms() - since_ms < CAIRN_UP_PORT_QUIET_MS); /* a kept one ends then */
    EXPECT_EQ_U64(status, 401);
}

/* ---- who is passed by ---- */

/* Takes connections and says `say`, or nothing at all. */
struct mute {
    int fd;
    char address[64];
};
static void mute_release(struct mute *mute) {
    if (mute->fd > 0) close(mute->fd);
}
static bool mute_open(struct mute *mute) {
    uint16_t port = 0;
    if (!EXPECT(!cairn_net_listen_tcp("127.0.0.1:0", &mute->fd, &port, &err))) return false;
    snprintf(mute->address, sizeof(mute->address), "127.0.0.1:%u", port);
    return true;
}

TEST(a_peer_that_says_nothing_is_passed_by_within_two_seconds_and_left_alone) {
    CAIRN_RELEASED(mute_release) struct mute mute = {0};
    SCENE(scene, 8);
    REQUIRE(mute_open(&mute));
    ASKED(asked, mute.address);
    EXPECT(asked.ask.code != CAIRN_OK);
    EXPECT(cairn_up_asks_passes_by(scene.asks, "node-b"));
    DESCRIBED(again, mute.address);
    EXPECT_EQ_U64(carry_out(&scene, &again), 0);
    EXPECT_CODE(again.ask.code, CAIRN_UNAVAILABLE);
}

TEST(a_peer_with_too_many_connections_is_asked_again_and_serves_in_its_turn) {
    SCENE(scene, 1);
    bool late = true; /* on a busy machine the place may be free again after the last question */
    for (int tries = 0; late; tries++) {
        REQUIRE(tries < 20);
        REQUIRE_AWAIT(!cairn_up_asks_passes_by(scene.asks, "node-b"));
        int other = connect_raw(cairn_up_port_address(scene.port));
        REQUIRE(other >= 0);
        DESCRIBED(asked, NULL);
        REQUIRE_OK(cairn_up_asks_add(scene.asks, &asked.ask, &err));
        cairn_test_pause_ms(300); /* pause of a stand-in: for as long it keeps the only place */
        close(other);
        REQUIRE_AWAIT(asked.over);
        late = asked.ask.code == CAIRN_BUSY;
        if (late) continue;
        EXPECT_CODE(asked.ask.code, CAIRN_OK);
        EXPECT(!memcmp(asked.into, scene.data + 100, 2 * CAIRN_MIB));
        EXPECT(!cairn_up_asks_passes_by(scene.asks, "node-b"));
    }
}

TEST(a_peer_that_stays_busy_is_left_alone_for_a_moment_and_never_for_long) {
    SCENE(scene, 1);
    CAIRN_AUTO_FD other = connect_raw(cairn_up_port_address(scene.port));
    REQUIRE(other >= 0);
    uint64_t left_alone_ms = 0; /* a dead one: 5, 10 and 20 s */
    for (int i = 0; i < 3; i++) {
        DESCRIBED(asked, NULL);
        uint64_t took_ms = carry_out(&scene, &asked);
        EXPECT_CODE(asked.ask.code, CAIRN_BUSY);
        EXPECT(i || took_ms >= 1000); /* asked for again once; then it is known to be busy */
        uint64_t since_ms = cairn_mono_ms();
        AWAIT(!cairn_up_asks_passes_by(scene.asks, "node-b"));
        left_alone_ms += cairn_mono_ms() - since_ms;
    }
    EXPECT(left_alone_ms < 7 * CAIRN_UP_ASK_AGAIN_MS);
    EXPECT_EQ_U64(scene.served, 0);
}

TEST(a_peer_that_is_gone_is_passed_by_at_once) {
    CAIRN_RELEASED(mute_release) struct mute mute = {0};
    SCENE(scene, 8);
    REQUIRE(mute_open(&mute));
    mute_release(&mute);
    mute.fd = 0;
    ASKED(asked, mute.address);
    EXPECT(asked.ask.code != CAIRN_OK);
    EXPECT(cairn_up_asks_passes_by(scene.asks, "node-b"));
}

/* 206 and then a byte now and then. */
static void *drip(void *argument) {
    const struct mute *mute = argument;
    struct pollfd waiting = {.fd = mute->fd, .events = POLLIN};
    if (poll(&waiting, 1, (int)cairn_test_hang_ms()) <= 0) return NULL;
    int fd = accept4(mute->fd, NULL, NULL, SOCK_CLOEXEC);
    dprintf(fd, "HTTP/1.1 206 OK\r\nContent-Length: %llu\r\n\r\n",
            (unsigned long long)(2 * CAIRN_MIB));
    for (int i = 0; i < 100 && send(fd, "x", 1, MSG_NOSIGNAL) == 1; i++)
        cairn_test_pause_ms(100); /* pause of a stand-in: it drips */
    close(fd);
    return NULL;
}

TEST(a_peer_that_drips_is_passed_by) {
    CAIRN_RELEASED(mute_release) struct mute mute = {0};
    pthread_t thread;
    SCENE(scene, 8);
    REQUIRE(mute_open(&mute));
    REQUIRE(!pthread_create(&thread, NULL, drip, &mute));
    ASKED(asked, mute.address);
    EXPECT_CODE(asked.ask.code, CAIRN_TIMEOUT); /* it does not wait for the end of the drops */
    pthread_join(thread, NULL);
}

TEST(a_peer_that_works_and_says_so_is_waited_for) {
    SCENE(scene, 8);
    scene.wait_ms = 3000;
    DESCRIBED(asked, NULL);
    uint64_t took_ms = carry_out(&scene, &asked);
    EXPECT_CODE(asked.ask.code, CAIRN_OK);
    EXPECT(took_ms >= 3000);
    EXPECT(!memcmp(asked.into, scene.data + 100, 2 * CAIRN_MIB));
}

TEST(an_address_of_metadata_is_never_connected_to) {
    SCENE(scene, 8);
    ASKED(asked, "169.254.169.254:80");
    EXPECT_CODE(asked.ask.code, CAIRN_FORBIDDEN);
}
