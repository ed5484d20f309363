/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rank: what every test of libcairn needs: a scripted uploader, a session, and a save to stage.
 *
 * Why:     tests should say what is special about them and nothing else.
 * Promise: everything is released at the scope's end, sessions before the uploader.
 * Limits:  two sessions.
 * Threads: main thread.
 * Next:    tests/support/fake_uploader.h.
 */
#pragma once

#include "api/table/dtype.h"
#include "api/table/table.h"
#include "api/wire/messages.h"
#include "tests/client/stage.h"
#include "tests/client/staged.h"
#include "tests/support/fake_uploader.h"

#define RANK_BYTES (4 * CAIRN_MIB)

struct cairn_rank {
    char path[120];
    struct cairn_fake_uploader *fake;
    struct cairn_session *session;
};

static inline void cairn_rank_leave(struct cairn_rank *rank) {
    (void)cairn_close(rank->session, NULL);
    rank->session = NULL;
}

static inline void cairn_rank_release(struct cairn_rank *rank) {
    cairn_rank_leave(rank);
    cairn_fake_uploader_free(rank->fake);
    *rank = (struct cairn_rank){0};
}

static inline struct cairn_open_options rank_options(const struct cairn_rank *rank) {
    return SIZED(cairn_open_options, .run = "llm/7b", .job = "job-1", .rank = 3, .world_size = 4,
                 .bytes = RANK_BYTES, .socket = rank->path, .timeout_ms = HANG_MS);
}

static inline enum cairn_code rank_uploader(struct cairn_rank *ret, uint32_t slab_count,
                                            struct cairn_error *err) {
    /* Sun's socket paths hold 107 bytes; the test's folder may be longer. */
    static int number;
    snprintf(ret->path, sizeof ret->path, "/tmp/cairn-test-%ld-%d.sock", (long)getpid(), number++);
    return cairn_fake_uploader_new(ret->path, slab_count, &ret->fake, err);
}

static inline enum cairn_code rank_open(struct cairn_rank *ret, uint32_t slab_count,
                                        struct cairn_error *err) {
    CAIRN_TRY(rank_uploader(ret, slab_count, err));
    struct cairn_open_options options = rank_options(ret);
    return cairn_open(&options, &ret->session, NULL, err);
}

/* `err` and `rank` of this scope: a session over a scripted uploader with so many slabs, or that
 * uploader alone. */
#define RANK(slab_count) RANK_BY(rank_open, slab_count)
#define RANK_UPLOADER(slab_count) RANK_BY(rank_uploader, slab_count)
#define RANK_BY(open, slab_count)                                                                  \
    struct cairn_error err = {0};                                                                  \
    CAIRN_AUTO(rank) rank = {0};                                                                   \
    REQUIRE_OK(open(&rank, slab_count, &err))

/* The session of a RANK_UPLOADER: RANK_OPENS(), or RANK_OPENS(options.bytes = 0). */
#define RANK_OPENS(...)                                                                            \
    struct cairn_open_options options = rank_options(&rank);                                       \
    __VA_ARGS__;                                                                                   \
    REQUIRE_OK(cairn_open(&options, &rank.session, NULL, &err))

/* A flat piece of an F32 tensor of twice its size. */
static inline enum cairn_code rank_add(struct cairn_save *save, const char *name,
                                       const void *source, uint64_t elements,
                                       struct cairn_error *err) {
    const uint64_t shape[1] = {2 * elements}, start[1] = {elements}, count[1] = {elements};
    const struct cairn_tensor_piece piece =
        SIZED(cairn_tensor_piece, .name = name, .dtype = "F32", .dimension_count = 1,
              .shape = shape, .kind = CAIRN_SHARDED, .form = CAIRN_FLAT, .start = start,
              .count = count, .source = source, .source_bytes = 4 * elements);
    return cairn_save_tensor(save, &piece, err);
}

/* Begin, one raw shard, stage. */
static inline enum cairn_code rank_save(struct cairn_session *session, uint64_t step,
                                        struct cairn_save **ret, struct cairn_error *err) {
    static const char bytes[] = "raw bytes";
    CAIRN_TRY(cairn_save_begin(session, step, NULL, ret, err));
    CAIRN_TRY(cairn_save_raw(*ret, "state.bin", bytes, sizeof bytes, err));
    return cairn_test_stage(*ret, err);
}

/* A handle of this scope: begun; or of rank_save, over `rank`. */
#define BEGUN(name, step)                                                                          \
    AUTO_SAVE *name = NULL;                                                                        \
    REQUIRE_OK(cairn_save_begin(rank.session, step, NULL, &name, &err))
#define SAVED(name, step)                                                                          \
    AUTO_SAVE *name = NULL;                                                                        \
    REQUIRE_OK(rank_save(rank.session, step, &name, &err))

static inline json_t *rank_verdict(uint64_t save, const char *state, const char *code) {
    return json_pack("{s:s, s:I, s:s, s:s, s:s}", "t", "verdict", "save", (json_int_t)save, "state",
                     state, "code", code, "message", "the server says so");
}
