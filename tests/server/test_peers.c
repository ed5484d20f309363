/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: labels=tsan engines=again */
/* What peers can make the server hold: bodies that do not come, replies that nobody takes, and
 * connections without requests (B05, B10). */

#include "tests/server/world.h"

#define err world.err /* of the macros */

static const char livez[] = "GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n";

/* All that was sent there has been read by the server. */
static bool is_read(const struct cairn_raw *raw, uint16_t server) {
    struct cairn_raw_queues ours = {0}, theirs = {0};
    uint16_t own = cairn_raw_port(raw);
    return cairn_raw_queues(own, server, &ours) && cairn_raw_queues(server, own, &theirs) &&
           !ours.sending && !theirs.unread;
}

/* ---- callers that wait ---- */

#define WAITERS 60

static const char change[] = "GET %s?wait=60s HTTP/1.1\r\nHost: localhost\r\n\r\n";

static bool open_waiter(struct cairn_raw *raw, const struct cairn_hand_save *save) {
    const char *text = TEXT(change, save->path);
    return cairn_raw_open(raw, save->hand->world->server.port) && cairn_raw_text(raw, text) &&
           AWAIT(is_read(raw, save->hand->world->server.port));
}

TEST(waiters_whose_callers_have_gone_give_their_connections_back_at_once) { /* B05 */
    WORLD("--http-connections-max=64");
    static struct cairn_raw waiters[WAITERS];
    CAIRN_AUTO(raw) still = {0};
    CAIRN_AUTO(buf) reply = {0};
    HAND(1);
    BEGUN(save, 1);
    REQUIRE(open_waiter(&still, &save));
    for (int round = 0; round < 3; round++) {
        for (size_t i = 0; i < WAITERS; i++) REQUIRE(open_waiter(&waiters[i], &save));
        uint64_t gone_ms = cairn_mono_ms();
        for (size_t i = 0; i < WAITERS; i++) cairn_raw_release(&waiters[i]);
        for (size_t i = 0; i < 8; i++) {
            CAIRN_AUTO(buf) alive = {0};
            EXPECT_EQ_U64(
                (uint64_t)cairn_raw_exchange(world.server.port, livez, strlen(livez), &alive), 200);
        }
        EXPECT(cairn_mono_ms() - gone_ms < 50000); /* they would have waited for 60 s */
    }
    EXPECT(!cairn_raw_closed(&still, 0)); /* its caller is there and waits on */
    ASK("POST", TEXT("%s/abort", save.path), NULL);
    EXPECT_EQ_U64((uint64_t)cairn_raw_reply(&still, HANG_MS, &reply), 200);
}

/* ---- bodies ---- */

static const char table[] = "PUT /v1/runs/a/b/tables/"
                            "00000000000000000000000000000000000000000000000000000000000000aa "
                            "HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
                            "application/octet-stream\r\nContent-Length: 67108864\r\n\r\n";

TEST(bodies_that_are_announced_and_never_sent_keep_nobody_out) { /* B10 */
    JOB(1);
    struct cairn_raw silent[8] = {0};
    for (size_t i = 0; i < CAIRN_COUNT(silent); i++)
        REQUIRE(cairn_raw_open(&silent[i], world.server.port) && cairn_raw_text(&silent[i], table));
    for (size_t i = 0; i < CAIRN_COUNT(silent); i++)
        REQUIRE_AWAIT(is_read(&silent[i], world.server.port));
    EXPECT_CODE(hand_beat(&hand, "node-a"), CAIRN_OK);
    EXPECT_CODE(
        world_call(&world, "PUT", "/v1/runs/a/b", json_pack("{s:{s:s}}", "labels", "k", "v"), NULL),
        CAIRN_OK);
    for (size_t i = 0; i < CAIRN_COUNT(silent); i++) cairn_raw_release(&silent[i]);
}

/* A peer whose body goes on, 64 bytes at a time, until it is stopped. */
struct slow_peer {
    struct cairn_raw raw;
    pthread_t thread;
    _Atomic bool still;
};

static void *send_slowly(void *argument) {
    struct slow_peer *peer = argument;
    static const char piece[64];
    while (!peer->still && cairn_raw_send(&peer->raw, piece, sizeof(piece)))
        cairn_test_pause_ms(100); /* pause of a stand-in: it is slow */
    return NULL;
}

/* One byte more than a MiB would be too large for its route. */
static int put_mebibyte(const struct cairn_world *world) {
    static char body[CAIRN_MIB];
    CAIRN_AUTO(raw) raw = {0};
    CAIRN_AUTO(buf) reply = {0};
    memset(body, ' ', sizeof(body));
    if (!cairn_raw_open(&raw, world->server.port) ||
        !cairn_raw_text(&raw, "PUT /v1/runs/a/b HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
                              "application/json\r\nContent-Length: 1048576\r\n\r\n") ||
        !cairn_raw_send(&raw, body, sizeof(body)))
        return -1;
    return cairn_raw_reply(&raw, HANG_MS, &reply);
}

TEST(a_body_that_stands_still_for_2_s_loses_its_memory_and_saves_have_their_own) { /* B10 */
    static char piece[64 * 1024];
    JOB(1, "--bodies-max=8MiB");
    BEGUN(save, 1);
    struct slow_peer peer = {0};
    REQUIRE(cairn_raw_open(&peer.raw, world.server.port) && cairn_raw_text(&peer.raw, table));
    for (size_t i = 0; i < 88; i++) /* 5.5 of the 6 MiB that are not kept for saves */
        REQUIRE(cairn_raw_send(&peer.raw, piece, sizeof(piece)));
    REQUIRE(AWAIT(is_read(&peer.raw, world.server.port)));
    REQUIRE(!pthread_create(&peer.thread, NULL, send_slowly, &peer));
    EXPECT_EQ_U64((uint64_t)put_mebibyte(&world), 503);
    EXPECT_CODE(hand_beat(&hand, "node-a"), CAIRN_OK);
    EXPECT_CODE(hand_put(&save, "x", 0, CAIRN_VIEW("abc")), CAIRN_OK);
    EXPECT(!cairn_raw_closed(&peer.raw, 0));
    peer.still = true;
    pthread_join(peer.thread, NULL);
    uint64_t still_ms = cairn_mono_ms();
    EXPECT(cairn_raw_send(&peer.raw, piece, 64));
    int status = 503;
    AWAIT((status = put_mebibyte(&world)) != 503);
    EXPECT_EQ_U64((uint64_t)status, 400); /* it was read, and is no JSON */
    EXPECT(cairn_mono_ms() - still_ms >= 2000);
    EXPECT(cairn_raw_closed(&peer.raw, HANG_MS));
    cairn_raw_release(&peer.raw);
}

/* ---- replies ---- */

#define RUNS 100 /* with labels of 60 KiB: a page of 6 MB, more than a socket holds */

static bool fill_runs(struct cairn_world *world) {
    char *value = malloc(60 * 1024 + 1);
    bool ok = value != NULL;
    for (int i = 0; ok && i < RUNS; i++) {
        memset(value, 'a' + i % 26, 60 * 1024);
        value[60 * 1024] = '\0';
        ok = !world_call(world, "PUT", TEXT("/v1/runs/many/run-%d", i),
                         json_pack("{s:{s:s}}", "labels", "k", value), NULL);
    }
    free(value);
    return ok;
}

static const char page[] =
    "GET /v1/runs?project=many&limit=100 HTTP/1.1\r\nHost: localhost\r\n\r\n";

static int read_page(uint16_t port) {
    CAIRN_AUTO(raw) raw = {0};
    CAIRN_AUTO(buf) reply = {.limit = CAIRN_GIB};
    if (!cairn_raw_open(&raw, port) || !cairn_raw_text(&raw, page)) return -1;
    while (reply.size < RUNS * 60 * 1024 && cairn_raw_more(&raw, HANG_MS, &reply)) continue;
    return reply.size > 12 ? (int)strtol(reply.data + 9, NULL, 10) : 0;
}

/* A peer whose kernel takes little, so that what it does not read stays with the server. */
static bool open_narrow(struct cairn_raw *raw, uint16_t port) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port)};
    int bytes = 4096;
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    raw->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    (void)setsockopt(raw->fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes));
    return raw->fd >= 0 && !connect(raw->fd, (struct sockaddr *)&to, sizeof(to));
}

/* Without taking a byte of what waits there. */
static bool is_reset(const struct cairn_raw *raw) {
    struct pollfd one = {.fd = raw->fd};
    return poll(&one, 1, 0) > 0 && (one.revents & (POLLERR | POLLHUP));
}

static unsigned not_reset(const struct cairn_raw *raws, size_t count) {
    unsigned kept = 0;
    for (size_t i = 0; i < count; i++) kept += !is_reset(&raws[i]);
    return kept;
}

TEST(replies_that_nobody_takes_have_a_bound_and_go_first) { /* B10 */
    struct cairn_raw still[8] = {0};
    unsigned begun = 0, refused = 0;
    WORLD_IN("CAIRN_REPLIES_MAX=16MiB");
    REQUIRE(fill_runs(&world));
    for (size_t i = 0; i < CAIRN_COUNT(still); i++) {
        CAIRN_AUTO(buf) reply = {0};
        REQUIRE(open_narrow(&still[i], world.server.port) && cairn_raw_text(&still[i], page));
        if (!cairn_raw_more(&still[i], HANG_MS, &reply)) continue;
        begun += !strncmp(reply.data, "HTTP/1.1 200", 12);
        refused += !strncmp(reply.data, "HTTP/1.1 503", 12);
    }
    EXPECT_EQ_U64(begun + refused, 8);
    AWAIT(not_reset(still, CAIRN_COUNT(still)) <= refused + 2); /* of 6 MB each, in 16 MiB */
    for (int i = 0; i < 3; i++) /* 503 while one that nobody took still goes */
        AWAIT(read_page(world.server.port) == 200);
    for (size_t i = 0; i < CAIRN_COUNT(still); i++) cairn_raw_release(&still[i]);
}

/* ---- connections ---- */

static unsigned still_open(struct cairn_raw *raws, size_t count) {
    unsigned open = 0;
    for (size_t i = 0; i < count; i++) open += !cairn_raw_closed(&raws[i], 0);
    return open;
}

TEST(connections_without_requests_lock_no_address_out) { /* B05 */
    struct cairn_raw idle[40] = {0};
    WORLD("--connections-per-address=20");
    for (size_t i = 0; i < 39; i++) REQUIRE(cairn_raw_open(&idle[i], world.server.port));
    /* Event loops take them in any order, so the last one is opened when others are closed. */
    AWAIT(still_open(idle, 39) <= 20);
    EXPECT_EQ_U64(still_open(idle, 39), 20);
    REQUIRE(cairn_raw_open(&idle[39], world.server.port));
    CAIRN_AUTO(buf) reply = {0};
    EXPECT(cairn_raw_exchange(world.server.port, livez, sizeof(livez) - 1, &reply) == 200);
    EXPECT(!cairn_raw_closed(&idle[39], 0));
    for (size_t i = 0; i < CAIRN_COUNT(idle); i++) cairn_raw_release(&idle[i]);
}

TEST(connections_without_requests_keep_no_caller_waiting_at_the_bound) { /* B05, K08 */
    struct cairn_raw idle[40] = {0};
    WORLD_IN("CAIRN_CONNECTIONS_MAX=20", "CAIRN_HTTP_CONNECTIONS_MAX=20");
    for (size_t i = 0; i < CAIRN_COUNT(idle); i++)
        REQUIRE(cairn_raw_open(&idle[i], world.server.port));
    CAIRN_AUTO(buf) reply = {0};
    EXPECT(cairn_raw_exchange(world.server.port, livez, sizeof(livez) - 1, &reply) == 200);
    for (size_t i = 0; i < CAIRN_COUNT(idle); i++) cairn_raw_release(&idle[i]);
}

static void halves_give_their_places(const char *half) {
    CAIRN_AUTO(world) world = {0};
    CAIRN_AUTO(raw) kept = {0};
    struct cairn_raw halves[100] = {0};
    CAIRN_AUTO(buf) first = {0}, last = {0};
    REQUIRE(world_start(&world, WORLD_ARGS("--http-connections-max=64", "--request-timeout=10min"),
                        NULL));
    REQUIRE(cairn_raw_open(&kept, world.server.port) && cairn_raw_text(&kept, livez));
    REQUIRE(cairn_raw_reply(&kept, HANG_MS, &first) == 200);
    for (size_t i = 0; i < CAIRN_COUNT(halves); i++)
        REQUIRE(cairn_raw_open(&halves[i], world.server.port) && cairn_raw_text(&halves[i], half));
    for (int i = 0; i < 20; i++) {
        CAIRN_AUTO(buf) reply = {0};
        CAIRN_AUTO(raw) one = {0};
        EXPECT(cairn_raw_open(&one, world.server.port) && cairn_raw_text(&one, livez) &&
               cairn_raw_reply(&one, HANG_MS, &reply) == 200);
    }
    /* who has asked before is still there */
    EXPECT(cairn_raw_text(&kept, livez) && cairn_raw_reply(&kept, HANG_MS, &last) == 200);
    for (size_t i = 0; i < CAIRN_COUNT(halves); i++) cairn_raw_release(&halves[i]);
}

/* Of a head, and of one whose body does not come. */
TEST(halves_of_requests_give_their_places_to_who_comes_next) { /* B05 */
    halves_give_their_places("GET /v1/runs HTTP/1.1\r\nHost: localhost\r\nX-Half: ");
    halves_give_their_places("POST /v1/tokens HTTP/1.1\r\nHost: localhost\r\n"
                             "Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{");
}

TEST(a_peer_that_vanished_is_probed_for) {
    WORLD();
    CAIRN_AUTO(raw) raw = {0};
    REQUIRE(cairn_raw_open(&raw, world.server.port) && cairn_raw_text(&raw, livez));
    WITH(buf, reply, cairn_raw_reply(&raw, HANG_MS, &reply) == 200);
    struct cairn_raw_queues row = {0};
    AWAIT(cairn_raw_queues(world.server.port, cairn_raw_port(&raw), &row) && row.timer == 2);
}
