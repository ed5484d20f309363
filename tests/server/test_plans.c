/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: engines=again */
/* Restore plans on a folder store: which ranges of which shards hold what is wanted (P3). */
#include "tests/server/world.h"

#define ROWS 1024
#define HALF 1024    /* columns of one rank; 4 KiB a row */
#define PREFIX 8192  /* bytes before the tensor: row 254 begins the second block */
#define THIN 1100000 /* rows of one column's width: more pieces than a plan may have */
#define HALF_BYTES (PREFIX + ROWS * HALF * 4)
#define ALL_BYTES (HALF_BYTES + 2 * THIN)
#define MANY 4097

/* Status of POST {C}/restore-plans; the body is parsed. */
static int plan(struct cairn_world *world, const char *at, const char *body, json_t **ret,
                struct cairn_buf *ret_text) {
    ret_text->limit = 64 * CAIRN_MIB;
    cairn_buf_clear(ret_text);
    const char *path = TEXT("%s/restore-plans", at);
    int status = world_ask(world, "POST", path, "Connection: close\r\n", body, ret_text);
    json_decref(*ret);
    *ret = json_loads(cairn_body_of(ret_text), 0, NULL);
    return status;
}

/* "shard [[offset,bytes],...] ..." of all objects. */
static void ranges_of(const json_t *reply, struct cairn_buf *ret) {
    size_t i = 0;
    json_t *object = NULL;
    cairn_buf_clear(ret);
    json_array_foreach(json_object_get(reply, "objects"), i, object) {
        char *ranges = json_dumps(json_object_get(object, "ranges"), JSON_COMPACT);
        (void)!cairn_buf_printf(ret, NULL, "%s%s %s", i ? " " : "", world_text(object, "shard"),
                                ranges ? ranges : "?");
        free(ranges);
    }
    if (!ret->data) (void)!cairn_buf_append_text(ret, "", NULL);
}

/* ---- a save of tensors: "w" F32 [1024, 2048], a column half each; "thin" U8 [THIN, 2] of rank
 * 0; "own" U8 [4] of rank 0, and [2, 2] of rank 1 ---- */

static bool add_tensors(struct cairn_table_builder *builder, uint32_t rank, uint32_t shard) {
    struct cairn_tensor w = {.name = CAIRN_VIEW("w"),
                             .dtype = CAIRN_DTYPE_F32,
                             .dimension_count = 2,
                             .shape = {ROWS, 2 * HALF},
                             .kind = CAIRN_TENSOR_SHARDED};
    struct cairn_fragment half = {.form = CAIRN_FRAGMENT_BOX,
                                  .start = {0, rank * HALF},
                                  .count = {ROWS, HALF},
                                  .shard = shard,
                                  .offset_bytes = PREFIX,
                                  .size_bytes = HALF_BYTES - PREFIX};
    struct cairn_tensor thin = {.name = CAIRN_VIEW("thin"),
                                .dtype = CAIRN_DTYPE_U8,
                                .dimension_count = 2,
                                .shape = {THIN, 2},
                                .kind = CAIRN_TENSOR_SHARDED};
    struct cairn_fragment all = {.form = CAIRN_FRAGMENT_FLAT,
                                 .count = {2 * THIN},
                                 .shard = shard,
                                 .offset_bytes = HALF_BYTES,
                                 .size_bytes = 2 * THIN};
    struct cairn_tensor own = {.name = CAIRN_VIEW("own"),
                               .dtype = CAIRN_DTYPE_U8,
                               .dimension_count = rank ? 2 : 1,
                               .shape = {rank ? 2 : 4, rank ? 2 : 0},
                               .kind = CAIRN_TENSOR_LOCAL};
    struct cairn_fragment four = {
        .form = CAIRN_FRAGMENT_FLAT, .count = {4}, .shard = shard, .size_bytes = 4};
    return !cairn_table_add_tensor(builder, &w, &half, 1, NULL) &&
           !cairn_table_add_tensor(builder, &own, &four, 1, NULL) &&
           (rank || !cairn_table_add_tensor(builder, &thin, &all, 1, NULL));
}

static bool make_table(uint32_t rank, const char *name, uint64_t size, struct cairn_buf *ret,
                       char ret_hex[65]) {
    CAIRN_AUTO_PTR(table_builder) builder = NULL;
    struct cairn_table_shard shard = {cairn_view_of(name), size, false};
    uint32_t index = 0;
    uint8_t digest[32];
    if (cairn_table_builder_new(rank, &builder, NULL) ||
        cairn_table_add_shard(builder, &shard, &index, NULL) ||
        !add_tensors(builder, rank, index) || cairn_table_finish(builder, ret, NULL))
        return false;
    cairn_table_digest(cairn_buf_view(ret), digest);
    cairn_hex_encode(digest, 32, ret_hex);
    return true;
}

static bool save_tensors(struct cairn_world *world, struct cairn_hand *hand,
                         struct cairn_hand_save *save) {
    CAIRN_AUTO_HEAP uint8_t *bytes = malloc(ALL_BYTES);
    hand_fill(bytes, ALL_BYTES, 7);
    if (hand_open(world, hand, "j1", 0, "latest", 2) || hand_begin(hand, 1, 1, "error", save))
        return false;
    for (uint32_t rank = 0; rank < 2; rank++) {
        CAIRN_AUTO(buf) table = {0};
        const char *name = rank ? "r/1" : "r/0";
        uint64_t size = rank ? HALF_BYTES : ALL_BYTES;
        char hex[65];
        if (!make_table(rank, name, size, &table, hex) ||
            hand_table(hand, cairn_buf_view(&table), hex) != 201)
            return false;
        json_t *shard = hand_shard(save, name, rank, (struct cairn_view){bytes, size});
        if (hand_send(save, json_pack("[o]", shard),
                      json_pack("[o]", hand_seal(rank, hex, name, size)), NULL))
            return false;
    }
    CAIRN_AUTO_JSON json_t *version = NULL;
    return !hand_wait(save, &version) && !strcmp(world_text(version, "state"), "committed");
}

/* A server with such a save, and where a plan and its text go. */
#define TENSORS()                                                                                  \
    WORLD();                                                                                       \
    struct cairn_hand hand;                                                                        \
    struct cairn_hand_save save;                                                                   \
    CAIRN_AUTO_JSON json_t *reply = NULL;                                                          \
    CAIRN_AUTO(buf) text = {0};                                                                    \
    REQUIRE(save_tensors(&world, &hand, &save))

static const struct {
    const char *body, *ranges;
} wanted[] = {
    {"", "r/0 [[0,6402496]] r/1 [[0,4202496]]"},
    {"{}", "r/0 [[0,6402496]] r/1 [[0,4202496]]"},
    /* As generated clients send them where nothing was named. */
    {"{\"shards\":[],\"tensors\":[],\"ttl_s\":300}", "r/0 [[0,6402496]] r/1 [[0,4202496]]"},
    {"{\"shards\":[\"r/1\"],\"tensors\":[]}", "r/1 [[0,4202496]]"},
    {"{\"shards\":[\"r/1\"]}", "r/1 [[0,4202496]]"},
    {"{\"shards\":[\"r/1\",\"r/0\",\"r/1\"]}", "r/0 [[0,6402496]] r/1 [[0,4202496]]"},
    {"{\"tensors\":[\"w\"]}", "r/0 [[0,5242880]] r/1 [[0,4202496]]"},
    {"{\"tensors\":[{\"name\":\"w\"}]}", "r/0 [[0,5242880]] r/1 [[0,4202496]]"},
    {"{\"tensors\":[\"thin\"]}", "r/0 [[4194304,2208192]]"},
    /* A row that ends a block, one that begins one, and both. */
    {"{\"tensors\":[{\"name\":\"w\",\"start\":[253,0],\"count\":[1,1024]}]}", "r/0 [[0,1048576]]"},
    {"{\"tensors\":[{\"name\":\"w\",\"start\":[254,0],\"count\":[1,1]}]}",
     "r/0 [[1048576,1048576]]"},
    {"{\"tensors\":[{\"name\":\"w\",\"start\":[253,0],\"count\":[2,1]}]}", "r/0 [[0,2097152]]"},
    /* Over the border of the halves; the last row, in the short last block of the second. */
    {"{\"tensors\":[{\"name\":\"w\",\"start\":[0,1023],\"count\":[1,2]},"
     "{\"name\":\"w\",\"start\":[1023,2047],\"count\":[1,1]}]}",
     "r/0 [[0,1048576]] r/1 [[0,1048576],[4194304,8192]]"},
    {"{\"tensors\":[{\"name\":\"w\",\"start\":[1023,0],\"count\":[1,2048]},"
     "{\"name\":\"w\",\"start\":[0,0],\"count\":[1,1]}],\"shards\":[\"r/1\"]}",
     "r/0 [[0,1048576],[4194304,1048576]] r/1 [[0,4202496]]"},
    {"{\"tensors\":[{\"name\":\"w\",\"start\":[5,5],\"count\":[0,1]}]}", ""},
    {"{\"tensors\":[\"own\"]}", "r/0 [[0,1048576]]"},
    {"{\"tensors\":[{\"name\":\"own\",\"rank\":1}]}", "r/1 [[0,1048576]]"},
    {"{\"tensors\":[{\"name\":\"own\",\"rank\":1,\"start\":[1,1],\"count\":[1,1]}]}",
     "r/1 [[0,1048576]]"},
};

TEST(a_plan_names_the_whole_blocks_that_hold_what_is_wanted) { /* P3 */
    TENSORS();
    CAIRN_AUTO(buf) ranges = {0};
    for (size_t i = 0; i < CAIRN_COUNT(wanted); i++) {
        int status = plan(&world, WORLD_RUN "/checkpoints/latest", wanted[i].body, &reply, &text);
        cairn_test_check(status == 201, __FILE__, __LINE__, "%s: %d", wanted[i].body, status);
        ranges_of(reply, &ranges);
        EXPECT_ALL_TEXT(ranges.data, wanted[i].ranges, world_text(reply, "version"), save.id.text);
    }
}

static const struct {
    const char *body;
    int status;
    const char *said;
} refused[] = {
    {"{\"shards\":[\"r/0\",\"r/2\"]}", 404, "has no shard \\\"r/2\\\""},
    {"{\"tensors\":[\"w\",\"v\"]}", 404, "no tensor \\\"v\\\""},
    {"{\"tensors\":[{\"name\":\"v\",\"start\":[0],\"count\":[1]}]}", 404, "no tensor \\\"v\\\""},
    {"{\"tensors\":[{\"name\":\"w\",\"start\":[0,2040],\"count\":[1,9]}]}", 416, "\\\"w\\\""},
    {"{\"tensors\":[{\"name\":\"w\",\"start\":[0],\"count\":[1]}]}", 400,
     "/tensors/0/start: 1 numbers, the tensor has 2 dimensions"},
    {"{\"tensors\":[{\"name\":\"w\",\"start\":[0,0],\"count\":[1,1,1]}]}", 400, "/tensors/0/count"},
    {"{\"tensors\":[\"w\",{\"name\":\"w\",\"start\":[0,\"0\"],\"count\":[1,1]}]}", 400,
     "\"pointer\":\"/tensors/1/start/1\""},
    {"{\"tensors\":[{\"name\":\"w\",\"start\":[0,0]}]}", 400, "start and count come together"},
    {"{\"tensors\":[{\"name\":\"w\",\"begin\":[0,0]}]}", 400, "/tensors/0/begin: unknown field"},
    {"{\"tensors\":[{\"name\":\"own\",\"rank\":2}]}", 404, "rank 2 has none"},
    {"{\"tensors\":[{\"name\":\"own\",\"rank\":1,\"start\":[0],\"count\":[1]}]}", 400,
     "the tensor has 2 dimensions"},
    {"{\"tensors\":[{}]}", 400, "name"},
    {"{\"tensors\":[7]}", 400, "\"pointer\":\"/tensors/0\""},
    {"{\"shards\":[7]}", 400, "/shards/0: wanted"},
    {"{\"shards\":\"r/0\"}", 400, "/shards"},
    {"{\"shard\":[\"r/0\"]}", 400, "/shard: unknown field"},
    {"[]", 400, "object"},
    {"{\"tensors\":[{\"name\":\"thin\",\"start\":[0,0],\"count\":[1100000,1]}]}", 413,
     "more than 1048576 pieces"},
};

TEST(a_plan_refuses_by_name_what_is_not_there_or_too_much) {
    TENSORS();
    for (size_t i = 0; i < CAIRN_COUNT(refused); i++) {
        int status = plan(&world, save.path, refused[i].body, &reply, &text);
        bool said = text.data && strstr(text.data, refused[i].said);
        cairn_test_check(status == refused[i].status && said, __FILE__, __LINE__, "%s: %d %s",
                         refused[i].body, status, text.data ? text.data : "");
        EXPECT((status == 413) == (strstr(text.data, "Plan in several calls") != NULL));
    }
    EXPECT(plan(&world, WORLD_RUN "/checkpoints/9", "{}", &reply, &text) == 404);
}

TEST(a_folder_gives_paths_that_stay_with_the_version_and_no_url) {
    TENSORS();
    CAIRN_AUTO(buf) got = {.limit = 16 * CAIRN_MIB};
    REQUIRE(plan(&world, WORLD_RUN "/checkpoints/1", "{\"shards\":[\"r/1\"]}", &reply, &text) ==
            201);
    EXPECT(strstr(text.data, "Cache-Control: no-store\r\n"));
    EXPECT(json_is_null(json_object_get(reply, "expires_s")));
    const json_t *object = json_array_get(json_object_get(reply, "objects"), 0);
    EXPECT(!json_object_get(object, "url"));
    EXPECT_EQ_U64(world_number(object, "bytes"), HALF_BYTES);
    EXPECT_EQ_TEXT(world_text(object, "path"), TEXT("%s/shards/r/1/data", save.path));
    EXPECT(world_ask(&world, "GET", world_text(object, "path"), "", NULL, &got) == 200);
    EXPECT(strstr(got.data, TEXT("ETag: \"%s-%d\"\r\n", world_text(object, "crc32c"), HALF_BYTES)));
}

/* Versions without a layout have no tensors; open, aborted and deleted ones have no plan. */
TEST(only_committed_versions_have_plans) {
    WORLD("--sweep-interval=50ms", "--trash-grace=0ms");
    struct cairn_hand hand;
    struct cairn_hand_save open, save, next;
    CAIRN_AUTO_JSON json_t *reply = NULL;
    CAIRN_AUTO(buf) text = {0};
    REQUIRE(!hand_open(&world, &hand, "j1", 0, "latest", 1));
    REQUIRE(!hand_save_all(&hand, 1, 1, "error", 0, &save));
    REQUIRE(!hand_save_all(&hand, 2, 2, "error", 10, &next));
    REQUIRE(!hand_begin(&hand, 3, 3, "error", &open));
    EXPECT(plan(&world, save.path, "{\"tensors\":[\"w\"]}", &reply, &text) == 404);
    REQUIRE(plan(&world, save.path, "{}", &reply, &text) == 201);
    const json_t *object = json_array_get(json_object_get(reply, "objects"), 0);
    EXPECT_EQ_TEXT(world_text(object, "shard"), "rank-00000/x");
    EXPECT_EQ_U64(json_array_size(json_object_get(object, "ranges")), 0); /* no bytes, no range */
    EXPECT(plan(&world, open.path, "{}", &reply, &text) == 409);
    EXPECT_EQ_TEXT(world_text(reply, "code"), "not-committed");
    REQUIRE(!world_call(&world, "POST", TEXT("%s/abort", open.path),
                        json_pack("{s:s}", "reason", "test"), NULL));
    EXPECT(plan(&world, open.path, "{}", &reply, &text) == 410);
    REQUIRE(!world_call(&world, "DELETE", save.path, NULL, NULL));
    AWAIT(plan(&world, save.path, "{}", &reply, &text) != 201);
    EXPECT_EQ_TEXT(world_text(reply, "code"), "checkpoint-deleted");
}

static bool add_small_shard(const struct cairn_hand_save *save, int number, json_t *shards,
                            json_t *sealed) {
    const char *name = TEXT("%04d", number);
    json_t *shard = hand_shard(save, name, 0, (struct cairn_view){"x", 1});
    return !json_array_append_new(shards, shard) &&
           !json_array_append_new(sealed, json_pack("{s:s, s:i}", "name", name, "bytes", 1));
}

static bool save_many(struct cairn_hand *hand, struct cairn_hand_save *save) {
    CAIRN_AUTO_JSON json_t *sealed = json_array(), *version = NULL;
    if (hand_begin(hand, 1, 1, "error", save)) return false;
    for (int first = 0; first < MANY; first += 4096) {
        CAIRN_AUTO_JSON json_t *shards = json_array();
        for (int i = first; i < MANY && i < first + 4096; i++) {
            if (!add_small_shard(save, i, shards, sealed)) return false;
        }
        if (hand_send(save, json_incref(shards), NULL, NULL)) return false;
    }
    json_t *seal =
        json_pack("{s:i, s:n, s:O, s:i}", "rank", 0, "table", "shards", sealed, "bytes", MANY);
    return !hand_send(save, NULL, json_pack("[o]", seal), NULL) && !hand_wait(save, &version) &&
           !strcmp(world_text(version, "state"), "committed");
}

static void list_names(int count, struct cairn_buf *ret) {
    cairn_buf_clear(ret);
    for (int i = 0; i < count; i++)
        (void)!cairn_buf_printf(ret, NULL, "%s\"%04d\"", i ? "," : "{\"shards\":[", i);
    (void)!cairn_buf_append_text(ret, "]}", NULL);
}

TEST(a_plan_of_more_than_4096_shards_is_made_in_parts) {
    WORLD();
    struct cairn_hand hand;
    struct cairn_hand_save save;
    CAIRN_AUTO_JSON json_t *reply = NULL;
    CAIRN_AUTO(buf) text = {0}, body = {0};
    REQUIRE(!hand_open(&world, &hand, "j1", 0, "latest", 1));
    REQUIRE(save_many(&hand, &save));
    EXPECT(plan(&world, save.path, "{}", &reply, &text) == 413);
    EXPECT_HAS(text.data, "a plan of 4097 shards, at most 4096 are given", "Plan in several calls");
    list_names(MANY, &body);
    EXPECT(plan(&world, save.path, body.data, &reply, &text) == 413);
    EXPECT(strstr(text.data, "/shards: 4097 of them"));
    list_names(MANY - 1, &body);
    EXPECT(plan(&world, save.path, body.data, &reply, &text) == 201);
    EXPECT_EQ_U64(json_array_size(json_object_get(reply, "objects")), MANY - 1);
}
