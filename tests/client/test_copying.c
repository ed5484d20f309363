/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: labels=tsan */
/* copying: real copies, and by how many threads each goes. What they took is the machine's; which
 * numbers are tried before anything is decided is not. */
#include <sched.h>

#include "client/save/threads.h"
#include "tests/client/rank.h"

#define BYTES (128 * CAIRN_MIB) /* two threads learn from it, and it is one leg */
#define CORES 2

/* In turns, by who is first: what the first six copies are compared by. */
static const uint32_t turns[6] = {1, 2, 2, 1, 1, 2};

/* ---- a process that may use two cores ---- */

struct cores {
    cpu_set_t before;
    bool two;
};

static struct cores take_two(void) {
    struct cores ret = {.two = false};
    cpu_set_t two;
    CPU_ZERO(&two);
    if (sched_getaffinity(0, sizeof ret.before, &ret.before)) return ret;
    for (size_t i = 0; i < CPU_SETSIZE && CPU_COUNT(&two) < CORES; i++)
        if (CPU_ISSET(i, &ret.before)) CPU_SET(i, &two);
    ret.two = CPU_COUNT(&two) == CORES && !sched_setaffinity(0, sizeof two, &two);
    return ret;
}

static void give_back(struct cores *cores) {
    if (cores->two) (void)sched_setaffinity(0, sizeof cores->before, &cores->before);
}
#define TWO_CORES()                                                                                \
    __attribute__((cleanup(give_back))) struct cores cores = take_two();                           \
    if (!cores.two) SKIP("the process may use one core only")

/* ---- one shard ---- */

struct shard {
    struct cairn_client_piece piece;
    struct cairn_client_run runs[2];
    size_t run_count;
    uint8_t *source, *to;
    uint32_t *blocks;
    uint64_t bytes, told;
    bool in_order;
};

static void close_shard(struct shard *shard) {
    free(shard->source);
    free(shard->to);
    free(shard->blocks);
}

static void open_shard(struct shard *ret, uint64_t bytes) {
    *ret = (struct shard){.bytes = bytes, .run_count = 1, .in_order = true};
    ret->source = malloc(bytes);
    ret->to = malloc(bytes);
    ret->blocks = calloc(cairn_div_up(bytes, CAIRN_BLOCK_BYTES) + 1, 4);
    for (uint64_t i = 0; i < bytes / 8; i++)
        ((uint64_t *)ret->source)[i] = (i + 1) * UINT64_C(0x9e3779b97f4a7c15);
    ret->runs[0] = (struct cairn_client_run){ret->source, 0, bytes, NULL};
}

static enum cairn_code told(void *owner, uint64_t bytes, struct cairn_error *err) {
    struct shard *shard = owner;
    CAIRN_UNUSED struct cairn_error *none = err;
    shard->in_order = shard->in_order && bytes > shard->told;
    shard->told = bytes;
    return CAIRN_OK;
}

static struct cairn_client_copied copy(struct shard *shard, uint32_t ranks, uint32_t fixed) {
    struct cairn_error err = {0};
    struct cairn_client_copied ret = {0};
    struct cairn_session session = {.local_world_size = ranks, .copy_threads = fixed};
    const struct cairn_client_copy order = {.runs = shard->runs,
                                            .run_count = shard->run_count,
                                            .bytes = shard->bytes,
                                            .to = shard->to,
                                            .blocks = shard->blocks,
                                            .copied = told,
                                            .owner = shard};
    shard->told = 0;
    EXPECT_CODE(cairn_client_copying(&session, &order, &ret, &err), CAIRN_OK);
    EXPECT(shard->in_order);
    EXPECT_ALL_U64(shard->told, shard->bytes, ret.bytes, shard->bytes);
    EXPECT(ret.us > 0 && cairn_client_copied_rate(&ret) > 0);
    return ret;
}

/* A node with other ranks is another machine: what was learned before is gone. */
static void forget(struct shard *shard) {
    struct shard small = *shard;
    small.bytes = small.runs[0].bytes = CAIRN_MIB;
    EXPECT_EQ_U64(copy(&small, CORES, 0).threads, 1);
}

TEST(a_rank_begins_with_half_of_the_cores_that_it_has_for_itself) { /* threads.h#7 */
    static const uint32_t rows[][4] = {                             /* cores, ranks, first, limit */
                                       {128, 8, 4, 16}, {48, 8, 3, 6},  {4, 8, 1, 1},
                                       {4, 1, 2, 4},    {2, 1, 1, 2},   {8, 0, 4, 8},
                                       {0, 1, 1, 1},    {384, 1, 4, 64}};
    for (size_t i = 0; i < CAIRN_COUNT(rows); i++) {
        struct cairn_client_bounds bounds = cairn_client_copying_bounds(rows[i][0], rows[i][1]);
        EXPECT_ALL_U64(bounds.first, rows[i][2], bounds.limit, rows[i][3]);
    }
}

TEST(copies_of_plain_memory_are_compared_in_turns_also_by_another_session) { /* threads.h#8, #4 */
    TWO_CORES();
    struct shard shard;
    open_shard(&shard, BYTES);
    forget(&shard);
    for (size_t i = 0; i < CAIRN_COUNT(turns); i++) /* each with a session of its own */
        EXPECT_EQ_U64(copy(&shard, 1, 0).threads, turns[i]);
    EXPECT(memcmp(shard.source, shard.to, shard.bytes) == 0);
    forget(&shard);
    for (size_t i = 0; i < 2; i++) EXPECT_EQ_U64(copy(&shard, 1, 0).threads, turns[i]);
    close_shard(&shard);
}

TEST(the_setting_wins_and_teaches_nothing) { /* threads.h#6 */
    TWO_CORES();
    struct shard shard;
    open_shard(&shard, BYTES);
    forget(&shard);
    EXPECT_ALL_U64(copy(&shard, 1, 3).threads, 3, copy(&shard, 1, 1).threads, 1);
    for (size_t i = 0; i < 2; i++) EXPECT_EQ_U64(copy(&shard, 1, 0).threads, turns[i]);
    close_shard(&shard);
}

static int fill(void *owner, uint64_t offset, void *to, uint64_t bytes) {
    memcpy(to, (const uint8_t *)owner + offset, bytes);
    return 0;
}

TEST(what_functions_and_the_caller_write_teaches_nothing) { /* threads.h#8 */
    TWO_CORES();
    struct shard plain, filled, written;
    open_shard(&plain, BYTES);
    filled = written = plain; /* all in the same memory */
    filled.piece = (struct cairn_client_piece){
        .name = "lazy", .fill = fill, .fill_owner = plain.source, .kind = CAIRN_TENSOR_LOCAL};
    filled.runs[0] = (struct cairn_client_run){NULL, 0, BYTES, &filled.piece};
    written.piece = (struct cairn_client_piece){
        .name = "slot", .by_caller = true, .written = true, .kind = CAIRN_TENSOR_LOCAL};
    written.run_count = 2; /* one part in 32 is enough */
    written.runs[0].bytes = BYTES - 4 * CAIRN_MIB;
    written.runs[1] =
        (struct cairn_client_run){plain.to, BYTES - 4 * CAIRN_MIB, 4 * CAIRN_MIB, &written.piece};
    forget(&plain);
    for (size_t i = 0; i < 2; i++) {
        EXPECT_ALL_U64(copy(&filled, 1, 0).threads, 1, copy(&written, 1, 0).threads, 1,
                       copy(&plain, 1, 0).threads, turns[i]);
    }
    EXPECT(memcmp(plain.source, plain.to, plain.bytes) == 0);
    close_shard(&plain);
}

#define LARGE (224 * CAIRN_MIB) /* a leg of one thread, and more than what is left with it */

static void expect_sums(const struct shard *shard) {
    bool equal = true;
    for (uint64_t at = 0; at < shard->bytes; at += CAIRN_BLOCK_BYTES)
        equal = equal && shard->blocks[at / CAIRN_BLOCK_BYTES] ==
                             cairn_crc32c(0, shard->to + at, CAIRN_BLOCK_BYTES);
    EXPECT(equal);
}

TEST(plain_memory_is_compared_leg_by_leg_and_strided_memory_by_whole_shards) { /* threads.h#8 */
    TWO_CORES();
    struct shard plain, strided;
    const uint64_t counts[2] = {LARGE / CAIRN_MIB, CAIRN_MIB};
    const int64_t strides[2] = {CAIRN_KIB, 1}; /* rows that overlap */
    struct cairn_strided view;
    open_shard(&plain, LARGE);
    open_shard(&strided, LARGE);
    REQUIRE(cairn_strided_make(1, 2, counts, strides, &view));
    strided.piece = (struct cairn_client_piece){
        .name = "w", .strided = &view, .dtype = CAIRN_DTYPE_U8, .source_dtype = CAIRN_DTYPE_U8};
    strided.runs[0].piece = &strided.piece;
    forget(&plain);
    for (size_t i = 0; i < 4; i++) {
        struct cairn_client_copied how = copy(&strided, 1, 0);
        EXPECT_ALL_U64(how.threads, turns[i], how.part_bytes, LARGE);
        if (i < 2) how = copy(&plain, 1, 0);
        if (i < 2) EXPECT_EQ_U64(how.part_bytes, i ? LARGE : 128 * CAIRN_MIB);
    }
    EXPECT(memcmp(plain.source, plain.to, LARGE) == 0);
    EXPECT(memcmp(strided.source, strided.to, CAIRN_MIB) == 0);
    EXPECT(memcmp(strided.source + 7 * CAIRN_KIB, strided.to + 7 * CAIRN_MIB, CAIRN_MIB) == 0);
    expect_sums(&plain);
    expect_sums(&strided);
    close_shard(&plain);
    close_shard(&strided);
}

/* ---- a process and its child ---- */

static void in_child(void *argument) {
    struct shard *shard = argument;
    for (size_t i = 0; i < 2; i++)
        if (copy(shard, 1, 0).threads != turns[i]) _exit(1);
}

TEST(a_forked_child_begins_anew) {
    TWO_CORES();
    struct shard shard;
    open_shard(&shard, BYTES);
    forget(&shard);
    EXPECT_EQ_U64(copy(&shard, 1, 0).threads, turns[0]); /* a second one follows here */
    EXPECT_EQ_U64(cairn_test_in_child(in_child, &shard, NULL, 0), 0);
    EXPECT_EQ_U64(copy(&shard, 1, 0).threads, turns[1]);
    close_shard(&shard);
}

/* ---- through the public calls ---- */

static uint32_t sealed_threads(struct cairn_rank *rank, size_t number, bool *ret_rated) {
    struct cairn_fake_message seal;
    *ret_rated = false;
    if (!cairn_fake_uploader_at(rank->fake, "seal", number, &seal)) return 0;
    *ret_rated = json_integer_value(json_object_get(seal.message, "copy_rate")) > 0;
    return (uint32_t)json_integer_value(json_object_get(seal.message, "copy_threads"));
}

TEST(saves_of_a_session_learn_and_their_seals_say_by_how_many_they_were_copied, err) {
    TWO_CORES();
    CAIRN_AUTO(rank) rank = {0};
    struct shard shard;
    bool rated = false;
    open_shard(&shard, BYTES);
    forget(&shard);
    REQUIRE_OK(rank_uploader(&rank, 1, &err));
    RANK_OPENS(options.bytes = BYTES, options.timeout_ms = HANG_MS);
    for (size_t i = 0; i < CAIRN_COUNT(turns); i++) {
        AUTO_SAVE *save = NULL;
        EXPECT_CODE(cairn_save_begin(rank.session, i + 1, NULL, &save, &err), CAIRN_OK);
        EXPECT_CODE(cairn_save_raw(save, "state.bin", shard.source, BYTES, &err), CAIRN_OK);
        EXPECT_CODE(cairn_save_stage(save, &err), CAIRN_OK);
        EXPECT_EQ_U64(sealed_threads(&rank, i, &rated), turns[i]);
        EXPECT(rated);
        cairn_fake_uploader_event(
            rank.fake, json_pack("{s:s, s:i, s:i}", "t", "free", "slab", 0, "owner", (int)i + 1));
    }
    close_shard(&shard);
}
