/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: engines=again */
/* A stop that comes while the layout of a save is being proven (server/README.md, B3c). */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "api/documents/digest.h"
#include "api/table/dtype.h"
#include "api/table/table.h"
#include "common/clock.h"
#include "common/text.h"
#include "tests/server/world.h"
#include "tests/support/raw.h"

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
    char name[16];
    snprintf(name, sizeof(name), "w%02u", number);
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

static int put_table(const struct cairn_hand *hand, const struct cairn_buf *table,
                     const char *hex) {
    char head[1200];
    CAIRN_AUTO(buf) request = {.limit = 2 * CAIRN_TABLE_BYTES_MAX};
    CAIRN_AUTO(buf) reply = {0};
    int size = snprintf(head, sizeof(head),
                        "PUT " WORLD_RUN "/tables/%s HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
                        "application/octet-stream\r\nX-Cairn-Grant: %s\r\nContent-Length: %zu\r\n"
                        "\r\n",
                        hex, hand->grant, table->size);
    if (cairn_buf_append(&request, head, (size_t)size, NULL) ||
        cairn_buf_append(&request, table->data, table->size, NULL))
        return -1;
    return cairn_raw_exchange(hand->world->server.port, request.data, request.size, &reply);
}

struct sending {
    const struct cairn_hand_save *save;
    json_t *seals;
};
/* The answer does not come while the server is stopped. */
static void *send_seal(void *argument) {
    const struct sending *sending = argument;
    (void)!cairn_hand_send(sending->save, NULL, sending->seals, NULL);
    return NULL;
}

static bool is_open(struct cairn_world *world, const struct cairn_hand_save *save) {
    CAIRN_AUTO_JSON json_t *version = NULL;
    return !cairn_world_call(world, "GET", save->path, NULL, &version) &&
           !strcmp(cairn_world_text(version, "state"), "open");
}

/* Committed within a minute and a half; *ret_ms: how long it took. */
static bool is_committed_at_last(struct cairn_hand_save *save, uint64_t *ret_ms) {
    uint64_t start_ms = cairn_mono_ms();
    for (int i = 0; i < 5; i++) {
        CAIRN_AUTO_JSON json_t *version = NULL;
        if (cairn_hand_wait(save, &version)) return false;
        if (strcmp(cairn_world_text(version, "state"), "open") != 0) {
            *ret_ms = cairn_mono_ms() - start_ms;
            return !strcmp(cairn_world_text(version, "state"), "committed");
        }
    }
    return false;
}

#define err world.err /* of the macros */

TEST(a_stop_ends_a_proof_of_the_largest_table_within_the_drain_time_and_the_next_server_commits) {
    CAIRN_AUTO(world) world = {0};
    CAIRN_AUTO(buf) table = {0};
    static uint8_t bytes[SHARD_BYTES];
    char drain[32], hex[65];
    snprintf(drain, sizeof(drain), "--http-drain=%dms", DRAIN_MS);
    REQUIRE(make_table(&table, hex));
    REQUIRE(cairn_world_start(&world, WORLD_ARGS(drain), WORLD_ARGS(POINT ":stop")));
    struct cairn_hand hand;
    struct cairn_hand_save save;
    REQUIRE_OK(cairn_hand_open(&world, &hand, "j1", 0, "latest", 1));
    REQUIRE_OK(cairn_hand_begin(&hand, 1, 1, "error", &save));
    json_t *shard = cairn_hand_shard(&save, "r0", 0, (struct cairn_view){bytes, sizeof(bytes)});
    REQUIRE_OK(cairn_hand_send(&save, json_pack("[o]", shard), NULL, NULL));
    REQUIRE(put_table(&hand, &table, hex) == 201);
    struct sending sending = {&save,
                              json_pack("[o]", cairn_hand_seal(0, hex, "r0", sizeof(bytes)))};
    pthread_t thread;
    int status = 0;
    REQUIRE(!pthread_create(&thread, NULL, send_seal, &sending));
    EXPECT(waitpid(world.server.pid, &status, WUNTRACED) == world.server.pid);
    EXPECT(WIFSTOPPED(status));
    kill(world.server.pid, SIGCONT);
    cairn_test_pause_ms(INTO_THE_PROOF_MS); /* pause of chaos: a moment of the proof */
    uint64_t stop_ms = cairn_mono_ms(), whole_ms = 0;
    EXPECT(cairn_daemon_stop(&world.server, SIGTERM, 2 * DRAIN_MS) == 0);
    stop_ms = cairn_mono_ms() - stop_ms;
    pthread_join(thread, NULL);
    EXPECT(stop_ms < DRAIN_MS);
    REQUIRE(cairn_world_restart(&world, WORLD_ARGS(drain), NULL));
    EXPECT(is_open(&world, &save)); /* the proof had not ended, and did not go on */
    EXPECT(is_committed_at_last(&save, &whole_ms));
    printf("# the stop took %llu ms, the commit %llu ms\n", (unsigned long long)stop_ms,
           (unsigned long long)whole_ms);
}
