/* SPDX-License-Identifier: Apache-2.0 */
/* Reads through the uploader: right bytes or a named failure. */
#include "tests/uploader/restored.h"

static const struct cairn_view none = {NULL, 0};

/* What is restored here comes from the store. */
static const char *const from_store[] = {"--memory-tier=0", NULL};

TEST(any_ranges_come_back_as_they_were_saved) { /* P3 */
    SAVED_WORLD();
    RESTORED(restored, &trainer, "latest");
    EXPECT_EQ_TEXT(restored.manifest.id.text, save.version);
    EXPECT_EQ_U64(restored.manifest.shard_count, 2);
    REQUIRE(open_window(&trainer, 8 * CAIRN_MIB));
    const struct range whole[] = {{0, 0, SHARD_BYTES, 0}, {1, 0, SHARD_BYTES, 4 * CAIRN_MIB}};
    EXPECT(read_ranges(&trainer, &restored, whole, 2) == CAIRN_OK);
    EXPECT(holds(&trainer, &whole[0]));
    EXPECT(holds(&trainer, &whole[1]));
    uint64_t seed = cairn_test_seed();
    for (int round = 0; round < 30; round++) {
        struct range ranges[8];
        for (size_t i = 0; i < CAIRN_COUNT(ranges); i++) {
            uint64_t offset = cairn_test_random(&seed) % SHARD_BYTES;
            uint64_t most = cairn_min_u64(SHARD_BYTES - offset, CAIRN_MIB);
            ranges[i] = (struct range){(uint32_t)(cairn_test_random(&seed) % 2), offset,
                                       cairn_test_random(&seed) % (most + 1), i * CAIRN_MIB};
        }
        REQUIRE(read_ranges(&trainer, &restored, ranges, CAIRN_COUNT(ranges)) == CAIRN_OK);
        for (size_t i = 0; i < CAIRN_COUNT(ranges); i++) EXPECT(holds(&trainer, &ranges[i]));
    }
    CAIRN_AUTO_JSON json_t *ok = trainer_call(
        &trainer, json_pack("{s:s, s:I}", "t", "release", "restore", (json_int_t)restored.number));
    EXPECT(ok != NULL);
    EXPECT(read_ranges(&trainer, &restored, whole, 1) == CAIRN_NOT_FOUND);
}

TEST(ranges_outside_shard_or_window_are_refused) {
    SAVED_WORLD();
    RESTORED(restored, &trainer, "1");
    const struct range fine = {0, 0, 10, 0};
    EXPECT(read_ranges(&trainer, &restored, &fine, 1) == CAIRN_INVALID); /* no window yet */
    REQUIRE(open_window(&trainer, 2 * CAIRN_MIB));
    const struct range wrong[] = {
        {2, 0, 1, 0},
        {0, SHARD_BYTES, 1, 0},
        {0, 1, SHARD_BYTES, 0},
        {0, 0, SHARD_BYTES, 0},
        {0, 0, 10, 2 * CAIRN_MIB - 5},
        {0, UINT64_C(1) << 61, UINT64_C(1) << 61, 0},
    };
    for (size_t i = 0; i < CAIRN_COUNT(wrong); i++)
        EXPECT(read_ranges(&trainer, &restored, &wrong[i], 1) != CAIRN_OK);
    EXPECT(read_ranges(&trainer, &restored, &fine, 1) == CAIRN_OK);
    EXPECT(restore(&trainer, "Nonsense", NULL, &restored) == CAIRN_INVALID);
    EXPECT(restore(&trainer, "77", NULL, &restored) == CAIRN_NOT_FOUND);
    EXPECT(restore(&trainer, "1", "torch-7", &restored) == CAIRN_UNSUPPORTED);
}

TEST(n03_a_flipped_byte_is_named_by_run_step_shard_and_range) { /* P3, N03 */
    SAVED_WORLD();
    damage(&world, &save, "data/rank-00000/part-1.bin", 1500000);
    RESTORED(restored, &trainer, "latest");
    REQUIRE(open_window(&trainer, 8 * CAIRN_MIB));
    const struct range good = {1, 0, 1000, 0}, whole = {1, 0, SHARD_BYTES, 0},
                       inside = {1, 1400000, 7, 0};
    EXPECT(read_ranges(&trainer, &restored, &good, 1) == CAIRN_OK);
    EXPECT(read_ranges(&trainer, &restored, &whole, 1) == CAIRN_CORRUPT);
    printf("  %s\n", trainer.err.message);
    EXPECT(strstr(trainer.err.message, "llm/seven step 1 shard rank-00000/part-1.bin") != NULL);
    EXPECT(strstr(trainer.err.message, ": bytes 1048576-2097151: expected ") != NULL);
    /* The bad byte lies in the same block as the range, so the range is not to be trusted. */
    EXPECT(read_ranges(&trainer, &restored, &inside, 1) == CAIRN_CORRUPT);
}

TEST(a_byte_that_is_flipped_on_the_way_is_read_again) { /* S17 */
    NEEDS_POINTS();
    SAVED_WORLD(.fault = "get:*part-0*:1:flip@100");
    RESTORED(restored, &trainer, "latest");
    REQUIRE(open_window(&trainer, 4 * CAIRN_MIB));
    const struct range whole = {0, 0, SHARD_BYTES, 0};
    EXPECT(read_ranges(&trainer, &restored, &whole, 1) == CAIRN_OK);
    EXPECT(holds(&trainer, &whole));
}

struct ranges_seen {
    size_t count;
    struct {
        int64_t connection;
        char if_match[128];
    } of[8];
};

/* What the S3 server's journal says of the reads of part-0. */
static struct ranges_seen ranges_seen(struct cairn_up_world *world) {
    struct ranges_seen seen = {0};
    CAIRN_AUTO(buf) lines = {.limit = CAIRN_MIB};
    (void)world_page(world, world->s3.url, "/-/journal", &lines);
    for (char *at = lines.data, *end; at && (end = strchr(at, '\n')); at = end + 1) {
        CAIRN_AUTO_JSON json_t *line = json_loadb(at, (size_t)(end - at), 0, NULL);
        const char *key = json_string_value(json_object_get(line, "key"));
        const char *op = json_string_value(json_object_get(line, "op"));
        if (!op || strcmp(op, "get") != 0 || !strstr(key, "part-0.bin")) continue;
        if (!EXPECT(seen.count < CAIRN_COUNT(seen.of))) break;
        const char *match = json_string_value(json_object_get(line, "if_match"));
        seen.of[seen.count].connection = json_integer_value(json_object_get(line, "connection"));
        snprintf(seen.of[seen.count++].if_match, 128, "%s", match ? match : "");
    }
    return seen;
}

TEST(a_byte_that_is_flipped_on_the_way_from_s3_comes_over_another_connection) { /* S17 */
    SAVED_WORLD(.s3_rules = "");
    RESTORED(restored, &trainer, "latest");
    REQUIRE(open_window(&trainer, 4 * CAIRN_MIB));
    const struct range whole = {0, 0, SHARD_BYTES, 0}, inside = {0, 1200000, 7, 100};
    REQUIRE(world_s3_rules(&world, "op=get key=*part-0* nth=2 : flip@100"));
    EXPECT(read_ranges(&trainer, &restored, &inside, 1) == CAIRN_OK);
    EXPECT(holds(&trainer, &inside));
    EXPECT(read_ranges(&trainer, &restored, &whole, 1) == CAIRN_OK);
    EXPECT(holds(&trainer, &whole));
    EXPECT(cairn_daemon_logged(&world.uploader, "fetch.again"));
    struct ranges_seen seen = ranges_seen(&world);
    REQUIRE(seen.count == 3);
    EXPECT(seen.of[2].connection != seen.of[0].connection);
    EXPECT(seen.of[2].connection != seen.of[1].connection);
    EXPECT_EQ_TEXT(seen.of[0].if_match, "");
    EXPECT(seen.of[1].if_match[0] == '"');
    EXPECT_EQ_TEXT(seen.of[2].if_match, seen.of[1].if_match);
    /* Each time, it is damage: read twice and no more. */
    REQUIRE(world_s3_rules(&world, "op=get key=*part-0* : flip@100"));
    EXPECT(read_ranges(&trainer, &restored, &whole, 1) == CAIRN_CORRUPT);
    EXPECT(strstr(trainer.err.message, ": bytes 0-1048575: expected ") != NULL);
    EXPECT_EQ_U64(ranges_seen(&world).count, 5);
}

TEST(a_shard_that_is_replaced_between_two_reads_is_named, err) { /* S17 */
    SAVED_WORLD();
    RESTORED(restored, &trainer, "latest");
    REQUIRE(open_window(&trainer, 4 * CAIRN_MIB));
    const struct range begin = {0, 0, 1000, 0}, whole = {0, 0, SHARD_BYTES, 0};
    EXPECT(read_ranges(&trainer, &restored, &begin, 1) == CAIRN_OK);
    /* By an object of the same bytes: which of the two it is, is what counts. */
    CAIRN_AUTO(buf) bytes = {.limit = 4 * CAIRN_MIB};
    const char *path =
        TEXT("%s/llm/seven/%012d/%s/data/rank-00000/part-0.bin", world.store_path, 1, save.version);
    REQUIRE_OK(cairn_file_load(path, &bytes, &err));
    REQUIRE_OK(cairn_file_replace(path, cairn_buf_view(&bytes), 0600, &err));
    EXPECT(read_ranges(&trainer, &restored, &whole, 1) == CAIRN_CORRUPT);
    EXPECT(strstr(trainer.err.message, "shard rank-00000/part-0.bin: bytes ") != NULL);
    EXPECT(strstr(trainer.err.message, ": the object was replaced while it was read") != NULL);
    EXPECT(!cairn_daemon_logged(&world.uploader, "fetch.again"));
}

TEST(a_version_is_restored_by_the_alias_that_people_gave_it) {
    SAVED_WORLD();
    CAIRN_AUTO_JSON json_t *body = json_pack("{s:s}", "ref", "1");
    REQUIRE(!world_call(&world, "PUT", "/v1/runs/llm/seven/aliases/prod", body, NULL));
    AUTO_RESTORED restored = {0}, other = {0};
    REQUIRE(restore(&trainer, "prod", NULL, &restored) == CAIRN_OK);
    EXPECT_EQ_TEXT(restored.manifest.id.text, save.version);
    EXPECT(restore(&trainer, "staging", NULL, &other) == CAIRN_NOT_FOUND);
    EXPECT(restore(&trainer, "ckpt_1", NULL, &other) == CAIRN_INVALID);
    EXPECT(restore(&trainer, "../prod", NULL, &other) == CAIRN_INVALID);
}

TEST(a_missing_shard_is_named) { /* S18 */
    SAVED_WORLD();
    const char *path =
        TEXT("%s/llm/seven/%012d/%s/data/rank-00000/part-0.bin", world.store_path, 1, save.version);
    EXPECT(unlink(path) == 0);
    RESTORED(restored, &trainer, "latest");
    REQUIRE(open_window(&trainer, 4 * CAIRN_MIB));
    const struct range whole = {0, 0, SHARD_BYTES, 0};
    EXPECT(read_ranges(&trainer, &restored, &whole, 1) == CAIRN_CORRUPT);
    EXPECT(strstr(trainer.err.message, "rank-00000/part-0.bin: bytes 0-") != NULL);
    EXPECT(strstr(trainer.err.message, "is missing: expected 2500000 bytes") != NULL);
}

TEST(a_document_with_a_byte_that_is_flipped_on_the_way_is_read_again) { /* S17 */
    SAVED_WORLD(.s3_rules = "");
    EACH_TEXT(one, "committed.json", "manifest.json", "checksums.bin") {
        char rule[100];
        snprintf(rule, sizeof(rule), "op=get key=*%s nth=1 : flip@3", one);
        REQUIRE(world_s3_rules(&world, rule));
        AUTO_RESTORED restored = {0};
        EXPECT(restore(&trainer, "latest", NULL, &restored) == CAIRN_OK);
        EXPECT_EQ_TEXT(restored.manifest.id.text, save.version);
        json_t *released = trainer_call(&trainer, json_pack("{s:s, s:I}", "t", "release", "restore",
                                                            (json_int_t)restored.number));
        EXPECT(released != NULL);
        json_decref(released);
        snprintf(rule, sizeof(rule), "op=get key=*%s : flip@3", one);
        REQUIRE(world_s3_rules(&world, rule));
        AUTO_RESTORED refused = {0};
        EXPECT(restore(&trainer, "latest", NULL, &refused) == CAIRN_CORRUPT);
    }
}

static void expect_disbelief(const char *document) {
    SAVED_WORLD();
    damage(&world, &save, document, 3);
    AUTO_RESTORED restored = {0};
    EXPECT(restore(&trainer, "latest", NULL, &restored) != CAIRN_OK);
    printf("  %s: %s\n", document, trainer.err.message);
}

TEST(a_damaged_manifest_is_never_believed) {
    expect_disbelief("manifest.json");
} /* manifest.h#1 */
TEST(damaged_checksums_are_never_believed) {
    expect_disbelief("checksums.bin");
}
CASE(a_damaged_record_is_never_believed, expect_disbelief("committed.json"));

TEST(a_resume_is_restored_while_the_server_is_away) {
    WORLD_WITH(.uploader_args = from_store);
    struct trainer_save save;
    {
        CAIRN_AUTO(trainer) first = {0};
        REQUIRE(saved(&world, &first, &save));
    }
    TRAINER(next, .job = "job-2", .no_slabs = true);
    world_server_kill(&world);
    RESTORED(restored, &next, "resume");
    EXPECT_EQ_TEXT(restored.manifest.id.text, save.version);
    REQUIRE(open_window(&next, 4 * CAIRN_MIB));
    const struct range whole = {1, 0, SHARD_BYTES, 0};
    EXPECT(read_ranges(&next, &restored, &whole, 1) == CAIRN_OK);
    EXPECT(holds(&next, &whole));
}

TEST(a_list_over_the_socket_has_the_items_of_the_server) {
    WORLD_WITH(.uploader_args = from_store);
    CAIRN_AUTO(trainer) trainer = {0}, reader = {0};
    struct trainer_save save;
    REQUIRE(saved(&world, &trainer, &save));
    REQUIRE(trainer_open(&reader, &(struct trainer_options){.socket = world.socket_path}));
    CAIRN_AUTO_JSON json_t *listed =
        trainer_call(&reader, json_pack("{s:s, s:i}", "t", "list", "limit", 10));
    const json_t *items = json_object_get(json_object_get(listed, "reply"), "items");
    EXPECT_EQ_U64(json_array_size(items), 1);
    EXPECT_EQ_TEXT(json_string_value(json_object_get(json_array_get(items, 0), "version")),
                   save.version);
}

#define HUNG_SHARDS 4 /* two readers of a folder take two requests each */
#define HUNG_BYTES CAIRN_MIB

static void ask_for_all(struct cairn_trainer *trainer, const struct restored *restored) {
    json_t *ranges = json_array();
    for (uint64_t i = 0; i < HUNG_SHARDS; i++)
        json_array_append_new(ranges, json_pack("{s:I, s:i, s:I, s:I}", "shard", (json_int_t)i,
                                                "offset", 0, "bytes", (json_int_t)HUNG_BYTES, "at",
                                                (json_int_t)(i * HUNG_BYTES)));
    EXPECT(trainer_send(trainer,
                        json_pack("{s:s, s:i, s:I, s:o}", "t", "read", "id", 77, "restore",
                                  (json_int_t)restored->number, "ranges", ranges),
                        none, NULL, 0));
}

/* The one that is late ends requests that ranks share, and wakes the one that has ended. */
TEST(a_reader_that_ends_late_at_a_stop_still_finds_the_others) { /* K06 */
    NEEDS_POINTS();
    CAIRN_AUTO(up_world) world = {0};
    CAIRN_AUTO(trainer) first = {0}, second = {0};
    char state[32];
    REQUIRE(world_open(&world,
                       &(struct world_options){
                           .fault = "get:*part-*:*:hang",
                           .crash_at = "uploader.fetch.stopping:0:delay=500",
                           .uploader_args = ARGS("--memory-tier=0", "--restore-workers=2",
                                                 "--memory-budget=512MiB", "--drain-timeout=1s")}));
    const struct trainer_options options = {
        .socket = world.socket_path, .job = "job-1", .bytes = 6 * CAIRN_MIB};
    REQUIRE(trainer_open(&first, &options));
    SAVE(save, &first, 1, 0, HUNG_SHARDS, HUNG_BYTES);
    REQUIRE(!strcmp(trainer_verdict(&first, save.number, HANG_MS, state), "committed"));
    REQUIRE(trainer_open(&second, &(struct trainer_options){.socket = world.socket_path}));
    AUTO_RESTORED restored = {0};
    AUTO_RESTORED other = {0};
    REQUIRE(restore(&first, "latest", NULL, &restored) == CAIRN_OK);
    REQUIRE(restore(&second, "latest", NULL, &other) == CAIRN_OK);
    REQUIRE(open_window(&first, HUNG_SHARDS * HUNG_BYTES));
    ask_for_all(&first, &restored);
    REQUIRE_AWAIT(cairn_daemon_logged_times(&world.uploader, "fault.hangs") == HUNG_SHARDS);
    EXPECT_EQ_U64((uint64_t)world_uploader_stop(&world), 0);
}

static void release(struct cairn_trainer *trainer, const struct restored *restored) {
    CAIRN_AUTO_JSON json_t *ok = trainer_call(
        trainer, json_pack("{s:s, s:I}", "t", "release", "restore", (json_int_t)restored->number));
    EXPECT(ok != NULL);
}

/* Two that want a part of the same bytes wait for each other's requests: the first one's finds a
 * damaged block, which fails both, while the second one's is under way with nobody left. */
TEST(a_request_that_outlives_all_who_wanted_it_keeps_what_it_writes_to) {
    NEEDS_POINTS();
    CAIRN_AUTO(up_world) world = {0};
    CAIRN_AUTO(trainer) first = {0}, second = {0};
    struct trainer_save save;
    REQUIRE(world_open(
        &world,
        &(struct world_options){.fault = "get:*part-0*:1:delay@3000; get:*part-0*:2:hang",
                                .uploader_args = ARGS("--memory-tier=0", "--memory-budget=512MiB",
                                                      "--drain-timeout=1s")}));
    REQUIRE(saved(&world, &first, &save));
    damage(&world, &save, "data/rank-00000/part-0.bin", 100);
    REQUIRE(trainer_open(&second, &(struct trainer_options){.socket = world.socket_path}));
    AUTO_RESTORED restored = {0};
    AUTO_RESTORED other = {0};
    AUTO_RESTORED again = {0};
    REQUIRE(restore(&first, "latest", NULL, &restored) == CAIRN_OK);
    REQUIRE(restore(&second, "latest", NULL, &other) == CAIRN_OK);
    REQUIRE(open_window(&first, 4 * CAIRN_MIB));
    REQUIRE(open_window(&second, 4 * CAIRN_MIB));
    json_t *range = json_pack("{s:i, s:i, s:I, s:i}", "shard", 0, "offset", 0, "bytes",
                              (json_int_t)(2 * CAIRN_MIB), "at", 0);
    REQUIRE(trainer_send(&first,
                         json_pack("{s:s, s:i, s:I, s:[o]}", "t", "read", "id", 77, "restore",
                                   (json_int_t)restored.number, "ranges", range),
                         none, NULL, 0));
    /* Its blocks 0 and 1 are under way; what is asked for next begins with 2. */
    REQUIRE_AWAIT(cairn_daemon_logged(&world.uploader, "fault.delays"));
    const struct range rest = {0, CAIRN_MIB, SHARD_BYTES - CAIRN_MIB, 0};
    EXPECT(read_ranges(&second, &other, &rest, 1) == CAIRN_CORRUPT);
    release(&first, &restored);
    release(&second, &other);
    EXPECT(restore(&second, "latest", NULL, &again) == CAIRN_OK);
    EXPECT_EQ_U64((uint64_t)world_uploader_stop(&world), 0);
}
