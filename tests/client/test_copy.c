/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: labels=tsan */
/* copy: one shard by one thread and by several, against the plain concatenation of its runs. */
#include <dirent.h>

#include "client/save/copy.h"
#include "tests/harness.h"

/* Odd sizes, one of none, and pieces that reach over blocks and over segments of 16 MiB. */
static const uint64_t sizes[] = {4096,      3 * CAIRN_MIB + 7, 1, 0, 30 * CAIRN_MIB + 1, 255,
                                 CAIRN_MIB, 17 * CAIRN_MIB - 9};
#define RUNS CAIRN_COUNT(sizes)

struct shard {
    struct cairn_client_run runs[RUNS];
    struct cairn_client_piece pieces[RUNS];
    uint8_t *source, *to;
    uint32_t *blocks;
    uint64_t bytes, told;
    unsigned calls;
    pthread_t caller;
    bool in_order, refuse;
};

static void open_shard(struct shard *shard) {
    *shard = (struct shard){.caller = pthread_self(), .in_order = true};
    for (size_t i = 0; i < RUNS; i++) shard->bytes += sizes[i];
    shard->source = malloc(shard->bytes);
    shard->to = calloc(1, shard->bytes);
    shard->blocks = calloc(cairn_div_up(shard->bytes, CAIRN_BLOCK_BYTES), 4);
    uint64_t at = 0, word = 88172645463325252u;
    for (uint64_t i = 0; i < shard->bytes; i++) {
        word = word * 6364136223846793005u + 1442695040888963407u;
        shard->source[i] = (uint8_t)(word >> 56);
    }
    for (size_t i = 0; i < RUNS; at += sizes[i++]) {
        shard->pieces[i].kind = i % 2 ? CAIRN_TENSOR_REPLICATED : CAIRN_TENSOR_SHARDED;
        shard->runs[i] =
            (struct cairn_client_run){shard->source + at, at, sizes[i], &shard->pieces[i]};
    }
    shard->runs[0].piece = NULL; /* as a header has none */
}

static void close_shard(struct shard *shard) {
    free(shard->source);
    free(shard->to);
    free(shard->blocks);
}

/* What is told is there, in order, on the caller's thread. */
static enum cairn_code copied(void *owner, uint64_t bytes, struct cairn_error *err) {
    struct shard *shard = owner;
    shard->calls++;
    if (bytes <= shard->told || !pthread_equal(pthread_self(), shard->caller) ||
        memcmp(shard->source + shard->told, shard->to + shard->told, bytes - shard->told) != 0)
        shard->in_order = false;
    shard->told = bytes;
    return shard->refuse ? cairn_fail(err, CAIRN_CANCELLED, "no more") : CAIRN_OK;
}

static struct cairn_client_copy order_of(struct shard *shard, uint32_t threads) {
    return (struct cairn_client_copy){.runs = shard->runs,
                                      .run_count = RUNS,
                                      .bytes = shard->bytes,
                                      .to = shard->to,
                                      .blocks = shard->blocks,
                                      .threads = threads,
                                      .copied = copied,
                                      .owner = shard};
}

static enum cairn_code copy(struct shard *shard, uint32_t threads, struct cairn_error *err) {
    const struct cairn_client_copy order = order_of(shard, threads);
    return cairn_client_copy(&order, err);
}

static void expect_copied(const struct shard *shard) {
    EXPECT(memcmp(shard->source, shard->to, shard->bytes) == 0);
    EXPECT(shard->in_order);
    EXPECT_EQ_U64(shard->told, shard->bytes);
    for (uint64_t at = 0; at < shard->bytes; at += CAIRN_BLOCK_BYTES) {
        size_t size = (size_t)cairn_min_u64(CAIRN_BLOCK_BYTES, shard->bytes - at);
        EXPECT_EQ_U64(shard->blocks[at / CAIRN_BLOCK_BYTES],
                      cairn_crc32c(0, shard->source + at, size));
    }
    for (size_t i = 0; i < RUNS; i++) {
        uint32_t whole = cairn_crc32c(0, shard->runs[i].source, sizes[i]);
        EXPECT_EQ_U64(shard->pieces[i].crc32c, i % 2 ? whole : 0);
    }
}

static size_t threads_here(void) {
    DIR *tasks = opendir("/proc/self/task");
    size_t count = 0;
    while (tasks && readdir(tasks)) count++;
    if (tasks) closedir(tasks);
    return count;
}

TEST(one_thread_or_four_copy_the_same_bytes_and_make_the_same_checksums) { /* copy.h#1, #2 */
    for (uint32_t threads = 1; threads <= 4; threads += 3) {
        struct shard shard;
        struct cairn_error err = {0};
        open_shard(&shard);
        EXPECT_CODE(copy(&shard, threads, &err), CAIRN_OK);
        EXPECT(shard.calls >= 1 && shard.calls <= 4);
        expect_copied(&shard);
        close_shard(&shard);
    }
}

TEST(a_shard_may_be_copied_by_parts_each_by_other_threads, err) { /* copy.h#6 */
    struct shard shard;
    struct cairn_client_copy order;
    open_shard(&shard);
    order = order_of(&shard, 1);
    EACH_OF(uint64_t, number, 16 * CAIRN_MIB, 48 * CAIRN_MIB, 0) {
        order.from = order.until;
        order.until = number;
        order.threads = (uint32_t)AT_OF(number) + 1;
        EXPECT_CODE(cairn_client_copy(&order, &err), CAIRN_OK);
        EXPECT_EQ_U64(shard.told, number ? number : shard.bytes);
    }
    expect_copied(&shard);
    close_shard(&shard);
}

TEST(a_copy_that_is_refused_ends_with_its_threads, err) { /* copy.h#3 */
    struct shard shard;
    size_t before = threads_here();
    open_shard(&shard);
    shard.refuse = true;
    EXPECT_CODE(copy(&shard, 4, &err), CAIRN_CANCELLED);
    EXPECT_ALL_U64(shard.calls, 1, threads_here(), before);
    close_shard(&shard);
}

TEST(a_shard_without_bytes_needs_nothing, err) {
    const struct cairn_client_run none = {0};
    const struct cairn_client_copy order = {.runs = &none, .run_count = 1, .threads = 1};
    EXPECT_CODE(cairn_client_copy(&order, &err), CAIRN_OK);
}

/* ---- a source that stands still ---- */

#define SEGMENT_BYTES CAIRN_CLIENT_SEGMENT_BYTES

/* Of three segments the last one stands until both others are told, and one of those, which the
 * caller's thread has not, until the last one is begun. */
struct stand {
    pthread_t caller;
    _Atomic uint64_t told;
    atomic_bool one_waits, last_is_begun, last_was_told;
};

static int stand(void *owner, uint64_t offset, void *to, uint64_t bytes) {
    struct stand *own = owner;
    memset(to, 1, bytes);
    bool last = offset >= 2 * SEGMENT_BYTES;
    if (last) atomic_store(&own->last_is_begun, true);
    if (last) atomic_store(&own->last_was_told, COMES(own->told == 2 * SEGMENT_BYTES));
    if (!last && !pthread_equal(pthread_self(), own->caller) &&
        !atomic_exchange(&own->one_waits, true))
        (void)COMES(atomic_load(&own->last_is_begun));
    return 0;
}

static enum cairn_code note_told(void *owner, uint64_t bytes, struct cairn_error *err) {
    CAIRN_UNUSED struct cairn_error *none = err;
    atomic_store(&((struct stand *)owner)->told, bytes);
    return CAIRN_OK;
}

TEST(what_is_copied_is_told_while_a_source_stands_still_in_any_thread, err) { /* copy.h#2 */
    struct stand own = {.caller = pthread_self()};
    struct cairn_client_piece piece = {.name = "w", .fill = stand, .fill_owner = &own};
    const struct cairn_client_run run = {NULL, 0, 3 * SEGMENT_BYTES, &piece};
    CAIRN_AUTO_HEAP uint8_t *to = malloc(run.bytes);
    uint32_t blocks[3 * SEGMENT_BYTES / CAIRN_BLOCK_BYTES];
    REQUIRE(to);
    const struct cairn_client_copy order = {.runs = &run,
                                            .run_count = 1,
                                            .bytes = run.bytes,
                                            .to = to,
                                            .blocks = blocks,
                                            .threads = 2,
                                            .copied = note_told,
                                            .owner = &own};
    EXPECT_CODE(cairn_client_copy(&order, &err), CAIRN_OK);
    EXPECT(atomic_load(&own.last_was_told));
    EXPECT_EQ_U64(own.told, run.bytes);
}

/* ---- how many threads copy at once ---- */

static enum cairn_code ignore(void *owner, uint64_t bytes, struct cairn_error *err) {
    CAIRN_UNUSED void *none = owner;
    return bytes ? CAIRN_OK : cairn_fail(err, CAIRN_INTERNAL, "nothing was told");
}

struct crowd {
    pthread_t caller;
    _Atomic unsigned now, most, callers;
};

static int crowd_in(void *owner, uint64_t offset, void *to, uint64_t bytes) {
    struct crowd *own = owner;
    unsigned now = atomic_fetch_add(&own->now, 1) + 1, most = atomic_load(&own->most);
    while (now > most && !atomic_compare_exchange_weak(&own->most, &most, now)) continue;
    atomic_fetch_add(&own->callers, pthread_equal(pthread_self(), own->caller) ? 1u : 0u);
    memset(to, (int)(offset >> 20), bytes);
    atomic_fetch_sub(&own->now, 1);
    return 0;
}

TEST(no_more_threads_copy_than_are_asked_for_and_one_is_the_callers, err) {
    const uint64_t bytes = 6 * SEGMENT_BYTES;
    CAIRN_AUTO_HEAP uint8_t *to = malloc(bytes);
    CAIRN_AUTO_HEAP uint32_t *blocks = calloc(bytes / CAIRN_BLOCK_BYTES, 4);
    REQUIRE(to && blocks);
    for (uint32_t threads = 1; threads <= 3; threads++) {
        struct crowd own = {.caller = pthread_self()};
        struct cairn_client_piece piece = {.name = "w", .fill = crowd_in, .fill_owner = &own};
        const struct cairn_client_run run = {NULL, 0, bytes, &piece};
        const struct cairn_client_copy order = {.runs = &run,
                                                .run_count = 1,
                                                .bytes = bytes,
                                                .to = to,
                                                .blocks = blocks,
                                                .threads = threads,
                                                .copied = ignore};
        EXPECT_CODE(cairn_client_copy(&order, &err), CAIRN_OK);
        EXPECT(own.most <= threads);
        EXPECT_EQ_U64(own.callers, threads == 1 ? 6 : 0);
    }
}

/* ---- sources that are no plain memory ---- */

#define SIDE 2600 /* F32: 27 MB, so that segments and tiles end within rows */
struct filled {
    _Atomic uint64_t asked;
    _Atomic unsigned calls;
    const uint8_t *bytes;
    int refuse_from; /* the call that returns 5; 0: none */
};

static int fill(void *owner, uint64_t offset, void *to, uint64_t bytes) {
    struct filled *filled = owner;
    if (bytes > 16 * CAIRN_MIB) return 1;
    if (++filled->calls == (unsigned)filled->refuse_from) return 5;
    memcpy(to, filled->bytes + offset, bytes);
    filled->asked += bytes;
    return 0;
}

struct views {
    struct cairn_strided transposed, columns;
    struct cairn_client_piece pieces[3];
    struct cairn_client_run runs[4];
    struct filled filled;
    uint32_t *square, *wanted, *to, *blocks;
    uint64_t bytes;
};

static void open_views(struct views *ret) {
    const uint64_t whole[2] = {SIDE, SIDE}, half[2] = {SIDE, SIDE / 2};
    const int64_t turned[2] = {1, SIDE}, rows[2] = {SIDE, 1};
    const uint64_t square = (uint64_t)SIDE * SIDE;
    *ret = (struct views){0};
    ret->bytes = 4096 + square * 4 + square * 2 + square * 4;
    ret->square = malloc(square * 4);
    ret->wanted = calloc(1, ret->bytes);
    ret->to = calloc(1, ret->bytes);
    ret->blocks = calloc(cairn_div_up(ret->bytes, CAIRN_BLOCK_BYTES), 4);
    uint32_t *at = ret->wanted + 1024;
    for (uint64_t i = 0; i < square; i++) ret->square[i] = (uint32_t)(i * 2654435761u);
    for (uint64_t i = 0; i < square; i++) *at++ = ret->square[i % SIDE * SIDE + i / SIDE];
    for (uint64_t i = 0; i < square / 2; i++)
        *at++ = ret->square[i / (SIDE / 2) * SIDE + 7 + i % (SIDE / 2)];
    memcpy(at, ret->square, square * 4);
    ret->filled.bytes = (const uint8_t *)ret->square;
    EXPECT(cairn_strided_make(4, 2, whole, turned, &ret->transposed));
    EXPECT(cairn_strided_make(4, 2, half, rows, &ret->columns));
    ret->pieces[0] = (struct cairn_client_piece){.strided = &ret->transposed};
    ret->pieces[1] = (struct cairn_client_piece){.strided = &ret->columns};
    ret->pieces[2] =
        (struct cairn_client_piece){.name = "lazy", .fill = fill, .fill_owner = &ret->filled};
    ret->pieces[0].kind = ret->pieces[1].kind = CAIRN_TENSOR_SHARDED;
    ret->pieces[2].kind = CAIRN_TENSOR_REPLICATED;
    ret->runs[0] = (struct cairn_client_run){ret->wanted, 0, 4096, NULL};
    ret->runs[1] = (struct cairn_client_run){ret->square, 4096, square * 4, &ret->pieces[0]};
    ret->runs[2] =
        (struct cairn_client_run){ret->square + 7, 4096 + square * 4, square * 2, &ret->pieces[1]};
    ret->runs[3] = (struct cairn_client_run){NULL, 4096 + square * 6, square * 4, &ret->pieces[2]};
}

static void close_views(struct views *views) {
    free(views->square);
    free(views->wanted);
    free(views->to);
    free(views->blocks);
}

static enum cairn_code copy_views(struct views *views, uint32_t threads, struct cairn_error *err) {
    const struct cairn_client_copy order = {.runs = views->runs,
                                            .run_count = CAIRN_COUNT(views->runs),
                                            .bytes = views->bytes,
                                            .to = (uint8_t *)views->to,
                                            .blocks = views->blocks,
                                            .threads = threads,
                                            .copied = ignore};
    return cairn_client_copy(&order, err);
}

TEST(strided_and_filled_pieces_are_staged_as_their_row_major_bytes_by_any_number_of_threads)
/* copy.h#1, copy.h#4 */
{
    for (uint32_t threads = 1; threads <= 5; threads += 2) {
        struct views views;
        struct cairn_error err = {0};
        open_views(&views);
        EXPECT_CODE(copy_views(&views, threads, &err), CAIRN_OK);
        EXPECT(memcmp(views.to, views.wanted, views.bytes) == 0);
        for (uint64_t at = 0; at < views.bytes; at += CAIRN_BLOCK_BYTES)
            EXPECT_EQ_U64(views.blocks[at / CAIRN_BLOCK_BYTES],
                          cairn_crc32c(0, (const uint8_t *)views.wanted + at,
                                       (size_t)cairn_min_u64(CAIRN_BLOCK_BYTES, views.bytes - at)));
        EXPECT_EQ_U64(views.filled.asked, views.runs[3].bytes); /* each byte once */
        EXPECT_EQ_U64(views.pieces[2].crc32c,
                      cairn_crc32c(0, views.square, (size_t)views.runs[3].bytes));
        close_views(&views);
    }
}

TEST(a_fill_function_that_fails_ends_the_copy_and_is_named) { /* copy.h#4 */
    for (int call = 1; call <= 2; call++) {
        struct views views;
        struct cairn_error err = {0};
        size_t before = threads_here();
        open_views(&views);
        views.filled.refuse_from = call;
        EXPECT_FAILS(copy_views(&views, 3, &err), CAIRN_SOURCE_GONE,
                     "tensor lazy: its fill function returned 5");
        EXPECT_EQ_U64(threads_here(), before);
        close_views(&views);
    }
}
