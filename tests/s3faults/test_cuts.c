/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: labels=s3 */
/* S13: RST and FIN at byte 0, 1, mid, last-1 and last of each kind of request and of each kind of
 * reply; the single rows that taught something stand in test_parts.c and test_reads.c. */
#include "tests/s3faults/cases.h"

#define LAST_PART_BYTES 777
#define OBJECT_BYTES 300000
#define RANGE_FROM 1234
#define RANGE_BYTES 200000

static const char *const ends[] = {"rst", "fin"};
static const char *const body_places[] = {"0", "1", "50%", "-1", "100%"};
static const char *const reply_places[] = {"h0", "h1", "h50%", "h-1", "0", "1", "50%", "-1"};

/* Two parts, or one PUT, under one rule; the shard must be right in the end. */
static void expect_durable(struct cairn_s3world *world, const char *op, const char *rules) {
    static unsigned count;
    const char *key = TEXT("shard-%u", count++);
    uint64_t size = strcmp(op, "put") != 0 ? CAIRN_S3WORLD_PART + LAST_PART_BYTES : OBJECT_BYTES;
    CAIRN_AUTO(s3run) run = {.key = key, .size_bytes = size};
    cairn_s3world_rules(world, rules);
    enum cairn_code code = cairn_s3run_send(world, &run);
    bool good = code == CAIRN_OK && cairn_s3run_is_whole(world, &run);
    /* Nobody knows the id of an upload whose creation was not told: the sweep's (Q21). */
    bool unknown = !strcmp(op, "create") && cairn_s3world_open_uploads(world) == 1;
    if (!EXPECT(good && (unknown || cairn_s3world_open_uploads(world) == 0)))
        fprintf(stderr, "%s: %s: %s\n", rules, cairn_code_info(code)->name, run.error.message);
    if (!EXPECT(cairn_s3world_acted(world, 0) == 1)) fprintf(stderr, "%s\n", rules);
    cairn_s3world_post(world, "reset", "");
}

static void cut_all(struct cairn_s3world *world, const char *op, const char *side,
                    const char *const *places, size_t place_count) {
    for (size_t i = 0; i < CAIRN_COUNT(ends); i++)
        for (size_t j = 0; j < place_count; j++) {
            expect_durable(world, op, TEXT("op=%s nth=1 : %s%s@%s", op, side, ends[i], places[j]));
        }
}

TEST(s13_each_request_that_is_cut_at_any_of_its_edges_is_made_good) {
    WORLD(0);
    EACH_TEXT(text, "part", "put", "complete")
        cut_all(&world, text, "req-", body_places, CAIRN_COUNT(body_places));
    cut_all(&world, "create", "req-", body_places, 1); /* it has no body */
    cut_all(&world, "head", "req-", body_places, 1);
}

TEST(s13_each_reply_that_is_cut_at_any_of_its_edges_is_made_good) {
    WORLD(0);
    EACH_TEXT(text, "create", "complete")
        cut_all(&world, text, "", reply_places, CAIRN_COUNT(reply_places));
    EACH_TEXT(one, "part", "put", "head") cut_all(&world, one, "", reply_places, 4);
}

TEST(s13_each_range_that_is_cut_at_any_of_its_edges_is_read_again_and_right) {
    WORLD(0);
    static uint8_t bytes[OBJECT_BYTES], into[RANGE_BYTES];
    cairn_s3world_pattern(bytes, sizeof bytes);
    REQUIRE_OK(cairn_s3world_put(&world, "read", (struct cairn_view){bytes, sizeof bytes}));
    for (size_t i = 0; i < CAIRN_COUNT(ends); i++)
        for (size_t j = 0; j < CAIRN_COUNT(reply_places); j++) {
            char rules[80], etag[128] = "";
            snprintf(rules, sizeof rules, "op=get nth=1 : %s@%s", ends[i], reply_places[j]);
            cairn_s3world_rules(&world, rules);
            memset(into, 0, sizeof into);
            enum cairn_code code =
                cairn_s3world_get(&world, "read", RANGE_FROM, RANGE_BYTES, into, etag);
            bool same = !memcmp(into, bytes + RANGE_FROM, RANGE_BYTES);
            if (!EXPECT(code == CAIRN_OK && same && cairn_s3world_acted(&world, 0) == 1))
                fprintf(stderr, "%s: %s, %s\n", rules, err.message, same ? "right" : "wrong");
        }
}
