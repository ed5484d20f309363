/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: labels=tsan engines=again */
/* Bytes of shards through the server: ranges, verification, slow readers (B06, P3). */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/clock.h"
#include "tests/server/world.h"
#include "tests/support/raw.h"

#define SIZE (9 * CAIRN_MIB + 5)

/* A committed version of one shard "rank-00000/x" of SIZE bytes. */
static bool saved(struct cairn_world *world, struct cairn_hand_save *save, size_t size) {
    static struct cairn_hand hand;
    return !cairn_hand_open(world, &hand, "j1", 0, "latest", 1) &&
           !cairn_hand_save_all(&hand, 1, 1, "error", size, save);
}

static int send_request(struct cairn_world *world, const struct cairn_hand_save *save,
                        const char *method, const char *headers, struct cairn_buf *ret) {
    char request[800];
    snprintf(request, sizeof(request),
             "%s %s/shards/rank-00000%%2Fx/data HTTP/1.1\r\nHost: localhost\r\nConnection: "
             "close\r\n%s\r\n",
             method, save->path, headers);
    ret->limit = 16 * CAIRN_MIB;
    return cairn_raw_exchange(world->server.port, request, strlen(request), ret);
}

static const char *body_of(const struct cairn_buf *reply) {
    const char *end = reply->data ? strstr(reply->data, "\r\n\r\n") : NULL;
    return end ? end + 4 : "";
}

static const struct {
    const char *range;
    int status;
    uint64_t begin, end;
} ranges[] = {
    {"bytes=0-0", 206, 0, 1},
    {"bytes=0-18446744073709551615", 206, 0, SIZE},
    {"bytes=0-99999999999999999999999999", 206, 0, SIZE},
    {"bytes=1048575-1048576", 206, 1048575, 1048577},
    {"bytes=4194303-4194310", 206, 4194303, 4194311},
    {"bytes=5-", 206, 5, SIZE},
    {"bytes=-5", 206, SIZE - 5, SIZE},
    {"bytes=-99999999999", 206, 0, SIZE},
    {"bytes=9437188-9437189", 206, SIZE - 1, SIZE},
    {"bytes=5-2", 416, 0, 0},
    {"bytes=-0", 416, 0, 0},
    {"bytes=--1", 416, 0, 0},
    {"Bytes=2-3", 206, 2, 4},
    {"byt", 200, 0, SIZE}, /* a unit that nobody knows: as if there were none */
    {"items=0-1", 200, 0, SIZE},
    {"bytes=", 416, 0, 0},
    {"bytes=-", 416, 0, 0},
    {"bytes=a-b", 416, 0, 0},
    {"bytes=0x1-2", 416, 0, 0},
    {"bytes=+1-2", 416, 0, 0},
    {"bytes=9437189-", 416, 0, 0},
    {"bytes=18446744073709551615-18446744073709551615", 416, 0, 0},
    {"bytes=0-0,0-0", 200, 0, SIZE}, /* several may be answered with the whole */
    {"bytes=0-0, 2-3, 5-9", 200, 0, SIZE},
};

TEST(b06_one_range_is_served_exactly_and_everything_else_is_416) /* B06 */
{
    CAIRN_AUTO(world) world = {0};
    struct cairn_hand_save save;
    REQUIRE(cairn_world_start(&world, NULL, NULL));
    REQUIRE(saved(&world, &save, SIZE));
    CAIRN_AUTO_HEAP uint8_t *wanted = malloc(SIZE);
    cairn_hand_fill(wanted, SIZE, 1);
    for (size_t i = 0; i < CAIRN_COUNT(ranges); i++) {
        CAIRN_AUTO(buf) reply = {0};
        char header[128], content_range[96];
        snprintf(header, sizeof(header), "Range: %s\r\n", ranges[i].range);
        int status = send_request(&world, &save, "GET", header, &reply);
        cairn_test_check(status == ranges[i].status, __FILE__, __LINE__, "%s: %d", ranges[i].range,
                         status);
        if (ranges[i].status == 416) {
            EXPECT(strstr(reply.data, "Content-Range: bytes */9437189\r\n"));
            continue;
        }
        uint64_t size = ranges[i].end - ranges[i].begin;
        snprintf(content_range, sizeof(content_range), "Content-Range: bytes %llu-%llu/9437189\r\n",
                 (unsigned long long)ranges[i].begin, (unsigned long long)ranges[i].end - 1);
        EXPECT(!strstr(reply.data, content_range) == (status == 200));
        const char *body = body_of(&reply);
        EXPECT_EQ_U64(reply.size - (size_t)(body - reply.data), size);
        EXPECT(!memcmp(body, wanted + ranges[i].begin, size));
    }
}

TEST(the_whole_shard_has_a_strong_tag_and_conditions_hold) {
    CAIRN_AUTO(world) world = {0};
    struct cairn_hand_save save;
    REQUIRE(cairn_world_start(&world, NULL, NULL));
    REQUIRE(saved(&world, &save, 1000));
    CAIRN_AUTO(buf) reply = {0};
    EXPECT(send_request(&world, &save, "GET", "", &reply) == 200);
    const char *at = strstr(reply.data, "ETag: ");
    REQUIRE(at);
    char tag[64], header[200];
    snprintf(tag, sizeof(tag), "%.*s", (int)strcspn(at + 6, "\r"), at + 6);
    EXPECT(strstr(tag, "-1000\""));
    EXPECT(send_request(&world, &save, "HEAD", "", &reply) == 200);
    EXPECT(strstr(reply.data, "Content-Length: 1000\r\n"));
    EXPECT(!*body_of(&reply));
    snprintf(header, sizeof(header), "Range: bytes=0-0\r\nIf-Range: %s\r\n", tag);
    EXPECT(send_request(&world, &save, "GET", header, &reply) == 206);
    EXPECT(send_request(&world, &save, "GET", "Range: bytes=0-0\r\nIf-Range: \"other\"\r\n",
                        &reply) == 200);
    snprintf(header, sizeof(header), "If-None-Match: %s\r\n", tag);
    EXPECT(send_request(&world, &save, "GET", header, &reply) == 304);
    EXPECT(send_request(&world, &save, "GET", "If-Match: \"other\"\r\n", &reply) == 412);
}

/* One call with one conditional header; the status. */
static int ask_if(struct cairn_world *world, const char *path, const char *name,
                  const char *value) {
    CAIRN_AUTO(buf) reply = {0};
    char request[600];
    snprintf(request, sizeof(request), "GET %s HTTP/1.1\r\nHost: localhost\r\n%s: %s\r\n\r\n", path,
             name, value);
    return cairn_raw_exchange(world->server.port, request, strlen(request), &reply);
}

TEST(conditions_take_lists_weak_tags_and_a_star) /* RFC 9110, 13.1 */
{
    CAIRN_AUTO(world) world = {0};
    struct cairn_hand_save save;
    REQUIRE(cairn_world_start(&world, NULL, NULL));
    REQUIRE(saved(&world, &save, 1000));
    char paths[2][300];
    snprintf(paths[0], sizeof(paths[0]), "%s", save.path);
    snprintf(paths[1], sizeof(paths[1]), "%s/shards/rank-00000%%2Fx/data", save.path);
    for (size_t i = 0; i < 2; i++) {
        CAIRN_AUTO(buf) reply = {0};
        char request[700], tag[64], value[200];
        snprintf(request, sizeof(request), "GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n", paths[i]);
        EXPECT(cairn_raw_exchange(world.server.port, request, strlen(request), &reply) == 200);
        const char *at = strstr(reply.data, "ETag: ");
        REQUIRE(at);
        snprintf(tag, sizeof(tag), "%.*s", (int)strcspn(at + 6, "\r"), at + 6);
        EXPECT(ask_if(&world, paths[i], "If-None-Match", "*") == 304);
        EXPECT(ask_if(&world, paths[i], "If-None-Match", tag) == 304);
        snprintf(value, sizeof(value), "W/%s", tag);
        EXPECT(ask_if(&world, paths[i], "If-None-Match", value) == 304);
        snprintf(value, sizeof(value), "\"a,b\", W/\"c\",%s , \"d\"", tag);
        EXPECT(ask_if(&world, paths[i], "If-None-Match", value) == 304);
        snprintf(value, sizeof(value), "\"x%s", tag + 1);
        EXPECT(ask_if(&world, paths[i], "If-None-Match", value) == 200);
        EXPECT(ask_if(&world, paths[i], "If-None-Match", "\"other\", W/\"c\"") == 200);
        static const char *const ends[] = {"-gzip", "--gzip", "-br", "-zstd", "-deflate", ";gzip"};
        for (size_t k = 0; k < CAIRN_COUNT(ends); k++) {
            snprintf(value, sizeof(value), "\"a\", W/%.*s%s\"", (int)strlen(tag) - 1, tag, ends[k]);
            EXPECT(ask_if(&world, paths[i], "If-None-Match", value) == 304);
            if (i) EXPECT(ask_if(&world, paths[i], "If-Match", value) == 200);
        }
        snprintf(value, sizeof(value), "\"x-gzip\", W/\"%s", "-gzip\"");
        EXPECT(ask_if(&world, paths[i], "If-None-Match", value) == 200);
    }
    EXPECT(ask_if(&world, paths[1], "If-Match", "*") == 200);
    EXPECT(ask_if(&world, paths[1], "If-Match", "\"other\"") == 412);
}

/* Of one reply of 200, or "" */
static const char *cache_of(struct cairn_world *world, const char *ref, const char *what,
                            char ret[100]) {
    CAIRN_AUTO(buf) reply = {0};
    char request[600];
    ret[0] = '\0';
    snprintf(request, sizeof(request),
             "GET " WORLD_RUN "/checkpoints/%s%s HTTP/1.1\r\nHost: localhost\r\n\r\n", ref, what);
    int status = cairn_raw_exchange(world->server.port, request, strlen(request), &reply);
    const char *at = status == 200 ? strstr(reply.data, "Cache-Control: ") : NULL;
    if (at) snprintf(ret, 100, "%.*s", (int)strcspn(at + 15, "\r"), at + 15);
    return ret;
}

TEST(only_what_a_version_id_names_may_be_kept_by_a_cache) {
    CAIRN_AUTO(world) world = {0};
    struct cairn_hand_save save;
    char cache[100];
    REQUIRE(cairn_world_start(&world, NULL, NULL));
    REQUIRE(saved(&world, &save, 1000));
    static const char *const bytes[] = {"/shards/rank-00000%2Fx/data", "/manifest", "/checksums"};
    for (size_t i = 0; i < CAIRN_COUNT(bytes); i++) {
        EXPECT_EQ_TEXT(cache_of(&world, save.id.text, bytes[i], cache),
                       "private, immutable, max-age=3600");
        EXPECT_EQ_TEXT(cache_of(&world, "latest", bytes[i], cache), "private, no-cache");
        EXPECT_EQ_TEXT(cache_of(&world, "1", bytes[i], cache), "private, no-cache");
    }
    EXPECT_EQ_TEXT(cache_of(&world, save.id.text, "", cache), "private, no-cache"); /* its state */
    EXPECT_EQ_TEXT(cache_of(&world, "latest", "", cache), "private, no-cache");
    EXPECT_EQ_TEXT(cache_of(&world, save.id.text, "/shards", cache), "no-store"); /* no ETag */
}

static bool flip_byte(struct cairn_world *world, const struct cairn_hand_save *save, off_t offset) {
    struct cairn_version_place place = {{"llm", "seven"}, save->step, save->id};
    struct cairn_key key;
    cairn_key_shard(&place, CAIRN_VIEW("rank-00000/x"), &key);
    char path[1600];
    snprintf(path, sizeof(path), "%s/%s", world->store_path, key.text);
    (void)chmod(path, 0600);
    CAIRN_AUTO_FD fd = open(path, O_RDWR | O_CLOEXEC);
    uint8_t byte = 0;
    if (fd < 0 || pread(fd, &byte, 1, offset) != 1) return false;
    byte ^= 1;
    return pwrite(fd, &byte, 1, offset) == 1;
}

TEST(a_flipped_byte_in_the_first_block_is_a_problem_that_names_it) /* P3 */
{
    CAIRN_AUTO(world) world = {0};
    struct cairn_hand_save save;
    REQUIRE(cairn_world_start(&world, WORLD_ARGS("--ready-streams-max=0"), NULL));
    REQUIRE(saved(&world, &save, SIZE));
    REQUIRE(flip_byte(&world, &save, 1048576));
    REQUIRE(flip_byte(&world, &save, 2 * CAIRN_MIB)); /* of the second chunk */
    CAIRN_AUTO(buf) reply = {0};
    EXPECT(send_request(&world, &save, "GET", "Range: bytes=1048580-\r\n", &reply) == 502);
    EXPECT(strstr(reply.data, "store-corrupt"));
    EXPECT(strstr(reply.data,
                  "run llm/seven step 1 shard \\\"rank-00000/x\\\": bytes 1048576-2097151"));
    EXPECT(strstr(reply.data, "expected CRC32C"));
    EXPECT(cairn_daemon_logged(&world.server, "read.refused"));
    EXPECT(!cairn_daemon_logged(&world.server, "read.again") &&
           !cairn_daemon_logged(&world.server, "read.broken") &&
           !cairn_daemon_logged(&world.server, "http.failed")); /* one cause, one line */
    /* Blocks that are whole are still served. */
    EXPECT(send_request(&world, &save, "GET", "Range: bytes=0-9\r\n", &reply) == 206);
}

TEST(only_the_first_block_is_waited_for_before_a_long_answer_begins) /* stream.h#1, stream.h#2 */
{
    CAIRN_AUTO(world) world = {0};
    struct cairn_hand_save save;
    REQUIRE(cairn_world_start(&world, NULL, NULL));
    REQUIRE(saved(&world, &save, SIZE));
    REQUIRE(flip_byte(&world, &save, CAIRN_MIB));
    CAIRN_AUTO(buf) reply = {0};
    EXPECT(send_request(&world, &save, "GET", "", &reply) == 200);
    EXPECT(reply.size - (size_t)(body_of(&reply) - reply.data) <= CAIRN_MIB);
    EXPECT(cairn_daemon_logged(&world.server, "read.broken"));
    /* One chunk is loaded at once. */
    EXPECT(send_request(&world, &save, "GET", "Range: bytes=0-4194303\r\n", &reply) == 502);
}

TEST(a_flipped_byte_far_behind_breaks_the_connection) /* P3: never ended cleanly */
{
    CAIRN_AUTO(world) world = {0};
    struct cairn_hand_save save;
    REQUIRE(cairn_world_start(&world, WORLD_ARGS("--ready-streams-max=0"), NULL));
    REQUIRE(saved(&world, &save, SIZE));
    REQUIRE(flip_byte(&world, &save, 9 * CAIRN_MIB + 2));
    CAIRN_AUTO(buf) reply = {0};
    EXPECT(send_request(&world, &save, "GET", "", &reply) == 200);
    size_t body = reply.size - (size_t)(body_of(&reply) - reply.data);
    EXPECT(strstr(reply.data, "Content-Length: 9437189\r\n"));
    EXPECT(body <= 9 * CAIRN_MIB); /* the block that holds the damage never left */
    EXPECT(cairn_daemon_logged(&world.server, "read.broken"));
}

TEST(an_object_that_is_missing_or_shorter_is_reported_as_damage) {
    CAIRN_AUTO(world) world = {0};
    struct cairn_hand_save save;
    REQUIRE(cairn_world_start(&world, NULL, NULL));
    REQUIRE(saved(&world, &save, 1000));
    struct cairn_version_place place = {{"llm", "seven"}, save.step, save.id};
    struct cairn_key key;
    cairn_key_shard(&place, CAIRN_VIEW("rank-00000/x"), &key);
    struct cairn_error err = {0};
    REQUIRE_OK(cairn_store_delete(world.worker, key.text, &err));
    CAIRN_AUTO(buf) reply = {0};
    EXPECT(send_request(&world, &save, "GET", "", &reply) == 502);
}

TEST(a_reader_that_does_not_read_is_cut) /* B05 */
{
    CAIRN_AUTO(passing) passing = {0};
    CAIRN_AUTO(world) world = {0};
    struct cairn_hand_save save;
    REQUIRE(cairn_passing_open(&passing));
    REQUIRE(cairn_world_start(&world, WORLD_ARGS("--request-timeout=5min"), passing.env));
    REQUIRE(saved(&world, &save, 40 * CAIRN_MIB));
    CAIRN_AUTO(raw) raw = {0};
    REQUIRE(cairn_raw_open(&raw, world.server.port));
    char request[400];
    snprintf(request, sizeof(request),
             "GET %s/shards/rank-00000/x/data HTTP/1.1\r\nHost: localhost\r\n\r\n", save.path);
    REQUIRE(cairn_raw_text(&raw, request));
    CAIRN_AUTO(buf) reply = {.limit = 64 * CAIRN_MIB};
    REQUIRE(cairn_raw_more(&raw, 30000, &reply)); /* it has begun */
    struct cairn_raw_queues queues; /* until all are full, each byte that goes has its own time */
    REQUIRE_AWAIT((cairn_passing_pass(&passing, UINT64_C(6) * 60000),
                   !cairn_raw_queues(world.server.port, cairn_raw_port(&raw), &queues)));
    while (cairn_raw_more(&raw, 30000, &reply)) continue;
    EXPECT(reply.size < 40 * CAIRN_MIB);
}

TEST(open_and_aborted_versions_have_no_bytes) {
    CAIRN_AUTO(world) world = {0};
    struct cairn_hand hand;
    struct cairn_hand_save save;
    struct cairn_error err = {0};
    REQUIRE(cairn_world_start(&world, NULL, NULL));
    REQUIRE_OK(cairn_hand_open(&world, &hand, "j1", 0, "latest", 1));
    REQUIRE_OK(cairn_hand_begin(&hand, 1, 1, "error", &save));
    CAIRN_AUTO(buf) reply = {0};
    EXPECT(send_request(&world, &save, "GET", "", &reply) == 409);
    EXPECT(strstr(reply.data, "not-committed"));
    char path[256];
    snprintf(path, sizeof(path), "%s/abort", save.path);
    REQUIRE_OK(cairn_world_call(&world, "POST", path, json_pack("{s:s}", "reason", "test"), NULL));
    EXPECT(send_request(&world, &save, "GET", "", &reply) == 410);
}

static int ask_via(struct cairn_world *world, const struct cairn_hand_save *save, const char *query,
                   struct cairn_buf *ret) {
    char request[800];
    snprintf(request, sizeof(request),
             "GET %s/shards/rank-00000%%2Fx/data%s HTTP/1.1\r\nHost: localhost\r\nConnection: "
             "close\r\n\r\n",
             save->path, query);
    ret->limit = 16 * CAIRN_MIB;
    return cairn_raw_exchange(world->server.port, request, strlen(request), ret);
}

TEST(a_folder_has_no_redirect_and_only_two_ways_are_known) {
    static const struct {
        const char *query;
        int status;
    } ways[] = {{"?via=proxy", 200}, {"?via=redirect", 400}, {"?via=carrier-pigeon", 400},
                {"?via=", 400},      {"?by=proxy", 400},     {"", 200}};
    CAIRN_AUTO(world) world = {0};
    struct cairn_hand_save save;
    REQUIRE(cairn_world_start(&world, NULL, NULL));
    REQUIRE(saved(&world, &save, 100));
    for (size_t i = 0; i < CAIRN_COUNT(ways); i++) {
        CAIRN_AUTO(buf) reply = {0};
        EXPECT_EQ_U64(ask_via(&world, &save, ways[i].query, &reply), ways[i].status);
        EXPECT(!strstr(reply.data, "Location"));
    }
}
