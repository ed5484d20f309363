/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: engines=again */
/* A stop that comes while the layout of a save is being proven (server/README.md, B3c). */
#include "tests/server/world.h"

#define TENSORS 12
#define ROWS 60000 /* with TENSORS nearly as much as 64 MiB of table hold */
#define SHARD_BYTES (2 * CAIRN_MIB)
#define DRAIN_MS 60000 /* seconds of it are a proof that goes on: its version is committed then */
#define INTO_THE_PROOF_MS 400
#define POINT "CAIRN_CRASH_AT=server.commit.before_proof"

/* Rows between four boxes that no straight line goes through: the proof sorts all of them. They
 * share the bytes of a raw shard, so that it is small. */
static bool add_pinwheel(struct cairn_table_builder *builder, uint32_t number, uint32_t shard) {
    static struct cairn_fragment boxes[ROWS + 4];
    const uint64_t low = 1, high = 1 + ROWS, end = high + 1;
    const uint64_t around[4][4] = {
        {0, 0, 1, high}, {0, high, high, end}, {high, low, end, end}, {1, 0, end, 1}};
    const char *name = TEXT("w%02u", number);
    for (uint32_t i = 0; i < ROWS + 4; i++) {
        const uint64_t row[4] = {low, low + i, high, low + i + 1};
        const uint64_t *at = i < ROWS ? row : around[i - ROWS];
        boxes[i] = (struct cairn_fragment){.form = CAIRN_FRAGMENT_BOX,
                                           .start = {at[0], at[1]},
                                           .count = {at[2] - at[0], at[3] - at[1]},
                                           .shard = shard,
                                           .offset_bytes = i};
        boxes[i].size_bytes = boxes[i].count[0] * boxes[i].count[1];
    }
    struct cairn_tensor tensor = {.name = cairn_view_of(name),
                                  .dtype = CAIRN_DTYPE_U8,
                                  .dimension_count = 2,
                                  .shape = {end, end},
                                  .kind = CAIRN_TENSOR_SHARDED};
    return !cairn_table_add_tensor(builder, &tensor, boxes, ROWS + 4, NULL);
}

static bool make_table(struct cairn_buf *ret, char ret_hex[65]) {
    CAIRN_AUTO_PTR(table_builder) builder = NULL;
    const struct cairn_table_shard shard = {CAIRN_VIEW("r0"), SHARD_BYTES, false};
    uint32_t index = 0;
    uint8_t digest[32];
    if (cairn_table_builder_new(0, &builder, NULL) ||
        cairn_table_add_shard(builder, &shard, &index, NULL))
        return false;
    for (uint32_t i = 0; i < TENSORS; i++)
        if (!add_pinwheel(builder, i, index)) return false;
    ret->limit = CAIRN_TABLE_BYTES_MAX;
    if (cairn_table_finish(builder, ret, NULL)) return false;
    cairn_table_digest(cairn_buf_view(ret), digest);
    cairn_hex_encode(digest, 32, ret_hex);
    return true;
}

/* Committed within a minute and a half; *ret_ms: how long it took. */
static bool is_committed_at_last(struct cairn_hand_save *save, uint64_t *ret_ms) {
    uint64_t start_ms = cairn_mono_ms();
    for (int i = 0; i < 5; i++) {
        CAIRN_AUTO_JSON json_t *version = NULL;
        if (hand_wait(save, &version)) return false;
        if (strcmp(world_text(version, "state"), "open") != 0) {
            *ret_ms = cairn_mono_ms() - start_ms;
            return !strcmp(world_text(version, "state"), "committed");
        }
    }
    return false;
}

#define err world.err /* of the macros */

TEST(a_stop_ends_a_proof_of_the_largest_table_within_the_drain_time_and_the_next_server_commits) {
    CAIRN_AUTO(world) world = {0};
    static uint8_t bytes[SHARD_BYTES];
    char hex[65];
    const char *drain = TEXT("--http-drain=%dms", DRAIN_MS);
    WITH(buf, table, make_table(&table, hex));
    REQUIRE(world_start(&world, WORLD_ARGS(drain), WORLD_ARGS(POINT ":stop")));
    HAND(1);
    BEGUN(save, 1);
    REQUIRE_OK(hand_register(&save, "r0", 0, (struct cairn_view){bytes, sizeof(bytes)}));
    REQUIRE(hand_table(&hand, cairn_buf_view(&table), hex) == 201);
    CAIRN_AUTO(calling) sealing = {0}; /* no answer comes while the server is stopped */
    int status = 0;
    REQUIRE(
        hand_send_begin(&save, json_pack("[o]", hand_seal(0, hex, "r0", sizeof(bytes))), &sealing));
    EXPECT(waitpid(world.server.pid, &status, WUNTRACED) == world.server.pid);
    EXPECT(WIFSTOPPED(status));
    kill(world.server.pid, SIGCONT);
    cairn_test_pause_ms(INTO_THE_PROOF_MS); /* pause of chaos: a moment of the proof */
    uint64_t stop_ms = cairn_mono_ms(), whole_ms = 0;
    EXPECT(cairn_daemon_stop(&world.server, SIGTERM, 2 * DRAIN_MS) == 0);
    stop_ms = cairn_mono_ms() - stop_ms;
    (void)calling_end(&sealing);
    EXPECT(stop_ms < DRAIN_MS);
    REQUIRE(world_restart(&world, WORLD_ARGS(drain), NULL));
    EXPECT_STATE(&save, "open"); /* the proof had not ended, and did not go on */
    EXPECT(is_committed_at_last(&save, &whole_ms));
    printf("# the stop took %llu ms, the commit %llu ms\n", (unsigned long long)stop_ms,
           (unsigned long long)whole_ms);
}
