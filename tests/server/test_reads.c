/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: labels=tsan engines=again */
/* Bytes of shards through the server: ranges, verification, slow readers (B06, P3). */
#include "tests/server/world.h"

#define SIZE (9 * CAIRN_MIB + 5)

/* A committed version of one shard "rank-00000/x" of SIZE bytes. */
static bool saved(struct cairn_world *world, struct cairn_hand_save *save, size_t size) {
    static struct cairn_hand hand;
    return !hand_open(world, &hand, "j1", 0, "latest", 1) &&
           !hand_save_all(&hand, 1, 1, "error", size, save);
}

static int send_request(struct cairn_world *world, const struct cairn_hand_save *save,
                        const char *method, const char *headers, struct cairn_buf *ret) {
    const char *path = TEXT("%s/shards/rank-00000%%2Fx/data", save->path);
    ret->limit = 16 * CAIRN_MIB;
    return world_ask(world, method, path, TEXT("Connection: close\r\n%s", headers), NULL, ret);
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

/* A world with one shard of that many bytes. */
#define SHARD(bytes, ...)                                                                          \
    struct cairn_hand_save save;                                                                   \
    WORLD(__VA_ARGS__);                                                                            \
    REQUIRE(saved(&world, &save, bytes))

TEST(b06_one_range_is_served_exactly_and_everything_else_is_416) { /* B06 */
    SHARD(SIZE);
    CAIRN_AUTO_HEAP uint8_t *wanted = malloc(SIZE);
    hand_fill(wanted, SIZE, 1);
    for (size_t i = 0; i < CAIRN_COUNT(ranges); i++) {
        CAIRN_AUTO(buf) reply = {0};
        int status =
            send_request(&world, &save, "GET", TEXT("Range: %s\r\n", ranges[i].range), &reply);
        cairn_test_check(status == ranges[i].status, __FILE__, __LINE__, "%s: %d", ranges[i].range,
                         status);
        if (ranges[i].status == 416) {
            EXPECT(strstr(reply.data, "Content-Range: bytes */9437189\r\n"));
            continue;
        }
        uint64_t size = ranges[i].end - ranges[i].begin;
        EXPECT(!strstr(reply.data, TEXT("Content-Range: bytes %llu-%llu/9437189\r\n",
                                        (unsigned long long)ranges[i].begin,
                                        (unsigned long long)ranges[i].end - 1)) == (status == 200));
        const char *body = cairn_body_of(&reply);
        EXPECT_EQ_U64(reply.size - (size_t)(body - reply.data), size);
        EXPECT(!memcmp(body, wanted + ranges[i].begin, size));
    }
}

TEST(the_whole_shard_has_a_strong_tag_and_conditions_hold) {
    SHARD(1000);
    CAIRN_AUTO(buf) reply = {0};
    EXPECT(send_request(&world, &save, "GET", "", &reply) == 200);
    const char *at = strstr(reply.data, "ETag: ");
    REQUIRE(at);
    const char *tag = TEXT("%.*s", (int)strcspn(at + 6, "\r"), at + 6);
    EXPECT(strstr(tag, "-1000\""));
    EXPECT(send_request(&world, &save, "HEAD", "", &reply) == 200);
    EXPECT(strstr(reply.data, "Content-Length: 1000\r\n"));
    EXPECT(!*cairn_body_of(&reply));
    EXPECT(send_request(&world, &save, "GET", TEXT("Range: bytes=0-0\r\nIf-Range: %s\r\n", tag),
                        &reply) == 206);
    EXPECT(send_request(&world, &save, "GET", "Range: bytes=0-0\r\nIf-Range: \"other\"\r\n",
                        &reply) == 200);
    EXPECT(send_request(&world, &save, "GET", TEXT("If-None-Match: %s\r\n", tag), &reply) == 304);
    EXPECT(send_request(&world, &save, "GET", "If-Match: \"other\"\r\n", &reply) == 412);
}

/* One call with one conditional header; the status. */
static int ask_if(struct cairn_world *world, const char *path, const char *name,
                  const char *value) {
    return world_ask(world, "GET", path, TEXT("%s: %s\r\n", name, value), NULL, NULL);
}

TEST(conditions_take_lists_weak_tags_and_a_star) { /* RFC 9110, 13.1 */
    SHARD(1000);
    char paths[2][300];
    snprintf(paths[0], sizeof(paths[0]), "%s", save.path);
    snprintf(paths[1], sizeof(paths[1]), "%s/shards/rank-00000%%2Fx/data", save.path);
    for (size_t i = 0; i < 2; i++) {
        CAIRN_AUTO(buf) reply = {0};
        const char *value = NULL;
        EXPECT(world_ask(&world, "GET", paths[i], "", NULL, &reply) == 200);
        const char *at = strstr(reply.data, "ETag: ");
        REQUIRE(at);
        const char *tag = TEXT("%.*s", (int)strcspn(at + 6, "\r"), at + 6);
        EXPECT(ask_if(&world, paths[i], "If-None-Match", "*") == 304);
        EXPECT(ask_if(&world, paths[i], "If-None-Match", tag) == 304);
        EXPECT(ask_if(&world, paths[i], "If-None-Match", TEXT("W/%s", tag)) == 304);
        EXPECT(ask_if(&world, paths[i], "If-None-Match",
                      TEXT("\"a,b\", W/\"c\",%s , \"d\"", tag)) == 304);
        EXPECT(ask_if(&world, paths[i], "If-None-Match", TEXT("\"x%s", tag + 1)) == 200);
        EXPECT(ask_if(&world, paths[i], "If-None-Match", "\"other\", W/\"c\"") == 200);
        EACH_TEXT(text, "-gzip", "--gzip", "-br", "-zstd", "-deflate", ";gzip") {
            value = TEXT("\"a\", W/%.*s%s\"", (int)strlen(tag) - 1, tag, text);
            EXPECT(ask_if(&world, paths[i], "If-None-Match", value) == 304);
            if (i) EXPECT(ask_if(&world, paths[i], "If-Match", value) == 200);
        }
        EXPECT(ask_if(&world, paths[i], "If-None-Match", TEXT("\"x-gzip\", W/\"%s", "-gzip\"")) ==
               200);
    }
    EXPECT(ask_if(&world, paths[1], "If-Match", "*") == 200);
    EXPECT(ask_if(&world, paths[1], "If-Match", "\"other\"") == 412);
}

/* Of one reply of 200, or "" */
static const char *cache_of(struct cairn_world *world, const char *ref, const char *what,
                            char ret[100]) {
    CAIRN_AUTO(buf) reply = {0};
    ret[0] = '\0';
    const char *path = TEXT(WORLD_RUN "/checkpoints/%s%s", ref, what);
    int status = world_ask(world, "GET", path, "", NULL, &reply);
    const char *at = status == 200 ? strstr(reply.data, "Cache-Control: ") : NULL;
    if (at) snprintf(ret, 100, "%.*s", (int)strcspn(at + 15, "\r"), at + 15);
    return ret;
}

TEST(only_what_a_version_id_names_may_be_kept_by_a_cache) {
    char cache[100];
    SHARD(1000);
    EACH_TEXT(one, "/shards/rank-00000%2Fx/data", "/manifest", "/checksums") {
        EXPECT_EQ_TEXT(cache_of(&world, save.id.text, one, cache),
                       "private, immutable, max-age=3600");
        EXPECT_EQ_TEXT(cache_of(&world, "latest", one, cache), "private, no-cache");
        EXPECT_EQ_TEXT(cache_of(&world, "1", one, cache), "private, no-cache");
    }
    EXPECT_EQ_TEXT(cache_of(&world, save.id.text, "", cache), "private, no-cache"); /* its state */
    EXPECT_EQ_TEXT(cache_of(&world, "latest", "", cache), "private, no-cache");
    EXPECT_EQ_TEXT(cache_of(&world, save.id.text, "/shards", cache), "no-store"); /* no ETag */
}

TEST(a_flipped_byte_in_the_first_block_is_a_problem_that_names_it) { /* P3 */
    SHARD(SIZE, "--ready-streams-max=0");
    REQUIRE(cairn_flip_byte(hand_file(&save), 1048576));
    REQUIRE(cairn_flip_byte(hand_file(&save), 2 * CAIRN_MIB)); /* of the second chunk */
    CAIRN_AUTO(buf) reply = {0};
    EXPECT(send_request(&world, &save, "GET", "Range: bytes=1048580-\r\n", &reply) == 502);
    EXPECT_HAS(reply.data, "store-corrupt",
               "run llm/seven step 1 shard \\\"rank-00000/x\\\": bytes 1048576-2097151",
               "expected CRC32C");
    EXPECT(cairn_daemon_logged(&world.server, "read.refused"));
    EXPECT(!cairn_daemon_logged(&world.server, "read.again") &&
           !cairn_daemon_logged(&world.server, "read.broken") &&
           !cairn_daemon_logged(&world.server, "http.failed")); /* one cause, one line */
    /* Blocks that are whole are still served. */
    EXPECT(send_request(&world, &save, "GET", "Range: bytes=0-9\r\n", &reply) == 206);
}

TEST(only_the_first_block_is_waited_for_before_a_long_answer_begins) { /* stream.h#1, stream.h#2 */
    SHARD(SIZE);
    REQUIRE(cairn_flip_byte(hand_file(&save), CAIRN_MIB));
    CAIRN_AUTO(buf) reply = {0};
    EXPECT(send_request(&world, &save, "GET", "", &reply) == 200);
    EXPECT(reply.size - (size_t)(cairn_body_of(&reply) - reply.data) <= CAIRN_MIB);
    EXPECT(cairn_daemon_logged(&world.server, "read.broken"));
    /* One chunk is loaded at once. */
    EXPECT(send_request(&world, &save, "GET", "Range: bytes=0-4194303\r\n", &reply) == 502);
}

TEST(a_flipped_byte_far_behind_breaks_the_connection) { /* P3: never ended cleanly */
    SHARD(SIZE, "--ready-streams-max=0");
    REQUIRE(cairn_flip_byte(hand_file(&save), 9 * CAIRN_MIB + 2));
    CAIRN_AUTO(buf) reply = {0};
    EXPECT(send_request(&world, &save, "GET", "", &reply) == 200);
    size_t body = reply.size - (size_t)(cairn_body_of(&reply) - reply.data);
    EXPECT(strstr(reply.data, "Content-Length: 9437189\r\n"));
    EXPECT(body <= 9 * CAIRN_MIB); /* the block that holds the damage never left */
    EXPECT(cairn_daemon_logged(&world.server, "read.broken"));
}

TEST(an_object_that_is_missing_or_shorter_is_reported_as_damage, err) {
    SHARD(1000);
    SHARD_KEY(key, &save, "rank-00000/x");
    REQUIRE_OK(cairn_store_delete(world.worker, key.text, &err));
    CAIRN_AUTO(buf) reply = {0};
    EXPECT(send_request(&world, &save, "GET", "", &reply) == 502);
}

TEST(a_reader_that_does_not_read_is_cut) { /* B05 */
    struct cairn_hand_save save;
    WITH(passing, passing, cairn_passing_open(&passing));
    WITH(world, world, world_start(&world, WORLD_ARGS("--request-timeout=5min"), passing.env));
    REQUIRE(saved(&world, &save, 40 * CAIRN_MIB));
    WITH(raw, raw, cairn_raw_open(&raw, world.server.port));
    REQUIRE(cairn_raw_text(
        &raw,
        TEXT("GET %s/shards/rank-00000/x/data HTTP/1.1\r\nHost: localhost\r\n\r\n", save.path)));
    CAIRN_AUTO(buf) reply = {.limit = 64 * CAIRN_MIB};
    REQUIRE(cairn_raw_more(&raw, HANG_MS, &reply)); /* it has begun */
    struct cairn_raw_queues queues; /* until all are full, each byte that goes has its own time */
    REQUIRE_AWAIT((cairn_passing_pass(&passing, UINT64_C(6) * 60000),
                   !cairn_raw_queues(world.server.port, cairn_raw_port(&raw), &queues)));
    while (cairn_raw_more(&raw, HANG_MS, &reply)) continue;
    EXPECT(reply.size < 40 * CAIRN_MIB);
}

TEST(open_and_aborted_versions_have_no_bytes) {
    JOB(1);
    BEGUN(save, 1);
    CAIRN_AUTO(buf) reply = {0};
    EXPECT(send_request(&world, &save, "GET", "", &reply) == 409);
    EXPECT(strstr(reply.data, "not-committed"));
    ASK("POST", TEXT("%s/abort", save.path), json_pack("{s:s}", "reason", "test"));
    EXPECT(send_request(&world, &save, "GET", "", &reply) == 410);
}

TEST(a_folder_has_no_redirect_and_only_two_ways_are_known) {
    SHARD(100);
    EACH(one, FIELDS(const char *query; int status), {"?via=proxy", 200}, {"?via=redirect", 400},
         {"?via=carrier-pigeon", 400}, {"?via=", 400}, {"?by=proxy", 400}, {"", 200}) {
        CAIRN_AUTO(buf) reply = {0};
        const char *path = TEXT("%s/shards/rank-00000%%2Fx/data%s", save.path, one->query);
        EXPECT_EQ_U64(world_ask(&world, "GET", path, "", NULL, &reply), one->status);
        EXPECT(!strstr(reply.data, "Location"));
    }
}
