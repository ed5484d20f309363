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

#include <unistd.h>

#include <cairn/cairn.h>

#include "tests/client/stage.h"
#include "tests/harness.h"
#include "tests/support/fake_uploader.h"

#define RANK_BYTES (4 * CAIRN_MIB)

struct cairn_rank {
    char path[120];
    struct cairn_fake_uploader *fake;
    struct cairn_session *session;
};

static inline void cairn_rank_release(struct cairn_rank *rank) {
    (void)cairn_close(rank->session, NULL);
    cairn_fake_uploader_free(rank->fake);
    *rank = (struct cairn_rank){0};
}

static inline struct cairn_open_options rank_options(const struct cairn_rank *rank) {
    return (struct cairn_open_options){.size = sizeof(struct cairn_open_options),
                                       .run = "llm/7b",
                                       .job = "job-1",
                                       .rank = 3,
                                       .world_size = 4,
                                       .bytes = RANK_BYTES,
                                       .socket = rank->path,
                                       .timeout_ms = 3000};
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

/* A flat piece of an F32 tensor of twice its size. */
static inline enum cairn_code rank_add(struct cairn_save *save, const char *name,
                                       const void *source, uint64_t elements,
                                       struct cairn_error *err) {
    const uint64_t shape[1] = {2 * elements}, start[1] = {elements}, count[1] = {elements};
    const struct cairn_tensor_piece piece = {.size = sizeof piece,
                                             .name = name,
                                             .dtype = "F32",
                                             .dimension_count = 1,
                                             .shape = shape,
                                             .kind = CAIRN_SHARDED,
                                             .form = CAIRN_FLAT,
                                             .start = start,
                                             .count = count,
                                             .source = source,
                                             .source_bytes = 4 * elements};
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

static inline json_t *rank_verdict(uint64_t save, const char *state, const char *code) {
    return json_pack("{s:s, s:I, s:s, s:s, s:s}", "t", "verdict", "save", (json_int_t)save, "state",
                     state, "code", code, "message", "the server says so");
}
