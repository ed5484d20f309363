/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: labels=tsan */
/* C07: more ranks than a node has ever threads for, on memory that is just enough. */

#include "tests/client/stage.h"
#include "tests/support/world.h"

#define RANKS 256
#define STEPS 3
/* ThreadSanitizer looks at each byte: as many threads and messages over fewer of them. */
#ifdef __SANITIZE_THREAD__
#define RANK_BYTES (192 * CAIRN_KIB)
#define BUDGET "588MiB" /* 256 slabs of 2 MiB */
#else
#define RANK_BYTES (CAIRN_MIB + CAIRN_MIB / 2)
#define BUDGET "1100MiB" /* 256 slabs of 4 MiB */
#endif
#define WITHIN_MS 240000

struct rank {
    pthread_t thread;
    const char *socket;
    uint32_t rank;
    enum cairn_code code;
    char message[320];
    uint64_t opened_ms, longest_begin_ms;
};

/* Some ranks are slow: what they hold must not hold up the others (Q14). */
static void dawdle(const struct rank *rank, uint64_t step) {
    if (rank->rank % 37 == step) cairn_test_pause_ms(700); /* pause of a stand-in: a slow rank */
}

static enum cairn_code save_one(struct rank *rank, struct cairn_session *session, uint64_t step,
                                const uint8_t *bytes, struct cairn_save **ret,
                                struct cairn_error *err) {
    const uint64_t shape = (uint64_t)RANKS * RANK_BYTES, start = rank->rank * RANK_BYTES,
                   count = RANK_BYTES;
    const struct cairn_tensor_piece piece =
        SIZED(cairn_tensor_piece, .name = "w", .dtype = "U8", .dimension_count = 1, .shape = &shape,
              .kind = CAIRN_SHARDED, .form = CAIRN_FLAT, .start = &start, .count = &count,
              .source = bytes, .source_bytes = RANK_BYTES);
    const struct cairn_save_options options = {.size = sizeof options, .timeout_ms = WITHIN_MS};
    uint64_t began_ms = cairn_mono_ms();
    CAIRN_TRY(cairn_save_begin(session, step, &options, ret, err));
    rank->longest_begin_ms = cairn_max_u64(rank->longest_begin_ms, cairn_mono_ms() - began_ms);
    dawdle(rank, step);
    CAIRN_TRY(cairn_save_tensor(*ret, &piece, err));
    return cairn_save_stage(*ret, err);
}

static enum cairn_code live(struct rank *rank, struct cairn_session **session,
                            struct cairn_save *saves[STEPS], struct cairn_error *err) {
    const struct cairn_open_options options =
        SIZED(cairn_open_options, .run = "llm/many", .job = "many-1", .rank = rank->rank,
              .world_size = RANKS, .local_rank = rank->rank, .local_world_size = RANKS,
              .bytes = RANK_BYTES, .socket = rank->socket, .wait_staged_ms = WITHIN_MS,
              .timeout_ms = WITHIN_MS);
    static uint8_t bytes[RANK_BYTES];
    uint64_t began_ms = cairn_mono_ms();
    CAIRN_TRY(cairn_open(&options, session, NULL, err));
    rank->opened_ms = cairn_mono_ms() - began_ms;
    for (uint64_t step = 0; step < STEPS; step++)
        CAIRN_TRY(save_one(rank, *session, step, bytes, &saves[step], err));
    for (uint64_t step = 0; step < STEPS; step++)
        CAIRN_TRY(cairn_save_wait(saves[step], CAIRN_COMMITTED, HANG_MS, err));
    return CAIRN_OK;
}

static void *run_rank(void *argument) {
    struct rank *rank = argument;
    struct cairn_session *session = NULL;
    struct cairn_save *saves[STEPS] = {0};
    struct cairn_error err = {0};
    rank->code = live(rank, &session, saves, &err);
    snprintf(rank->message, sizeof rank->message, "%s", err.message);
    for (size_t i = 0; i < STEPS; i++) cairn_save_free(saves[i]);
    if (session) (void)cairn_close(session, NULL);
    return NULL;
}

TEST(c07_256_ranks_with_memory_for_one_generation_each_commit_all_saves_and_none_waits_for_ever) {
    if (!cairn_world_possible()) SKIP("cairn-server and cairn-uploader are not built here");
    CAIRN_AUTO(world) world = {0};
    struct cairn_error err = {0};
    const struct cairn_world_options options = {.budget = BUDGET};
    REQUIRE_OK(cairn_world_open(&options, &world, &err));
    static struct rank ranks[RANKS];
    uint64_t began_ms = cairn_mono_ms(), opened_ms = 0, begin_ms = 0;
    for (uint32_t i = 0; i < RANKS; i++) {
        ranks[i] = (struct rank){.socket = world.sockets[0], .rank = i};
        REQUIRE(pthread_create(&ranks[i].thread, NULL, run_rank, &ranks[i]) == 0);
    }
    for (uint32_t i = 0; i < RANKS; i++) pthread_join(ranks[i].thread, NULL);
    for (uint32_t i = 0; i < RANKS; i++) {
        EXPECT_CODE(ranks[i].code, CAIRN_OK);
        if (ranks[i].code) printf("rank %u: %s\n", i, ranks[i].message);
        opened_ms = cairn_max_u64(opened_ms, ranks[i].opened_ms);
        begin_ms = cairn_max_u64(begin_ms, ranks[i].longest_begin_ms);
    }
    printf("%u ranks, %u saves: %" PRIu64 " ms; longest open %" PRIu64 " ms, begin %" PRIu64
           " ms\n",
           RANKS, STEPS, cairn_mono_ms() - began_ms, opened_ms, begin_ms);
}
