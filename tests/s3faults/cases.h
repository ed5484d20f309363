/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cases: one shard under one set of rules, and what must have come of it.
 *
 * Why:     every row of the catalogue asks the same questions of another fault.
 * Promise: 1   durable means: the server holds exactly the bytes, under this upload's token, and
 *              no upload is left open.
 *          2   a case whose first rule never acted has failed.
 * Limits:  shards of three parts unless said otherwise.
 * Threads: main thread only.
 * Next:    tests/support/s3world.h.
 */
#pragma once

#include "tests/harness.h"
#include "tests/support/s3world.h"

#define SHARD_BYTES (2 * CAIRN_S3WORLD_PART + 12345)
#define err (world.error)
#define WORLD(...)                                                                                 \
    CAIRN_AUTO(s3world) world = {0};                                                               \
    struct cairn_s3world_options world_options = {__VA_ARGS__};                                    \
    REQUIRE_OK(cairn_s3world_start(&world, &world_options))

/* Sends a fresh shard under these rules: is it durable, once, with all its bytes? */
bool cairn_case_is_durable(struct cairn_s3world *world, const char *rules, const char *key);
/* The same for each, under keys of their own, each by a store that is opened anew. */
void cairn_case_all_durable(struct cairn_s3world *world,
                            const struct cairn_s3world_options *options, const char *const *rules,
                            size_t count);
#define ALL_BECOME_DURABLE(...)                                                                    \
    cairn_case_all_durable(&world, &world_options, (const char *const[]){__VA_ARGS__},             \
                           CAIRN_COUNT(((const char *const[]){__VA_ARGS__})))
/* A shard that is sent under these rules (NULL: those that hold) and is whole at the server:
 * SENT_WHOLE(run, "op=put nth=1 : fin@h7", .size_bytes = 4321). */
#define SENT_WHOLE(run, rules, ...)                                                                \
    CAIRN_AUTO(s3run) run = {__VA_ARGS__};                                                         \
    REQUIRE_OK(cairn_case_send(&world, rules, &run));                                              \
    EXPECT(cairn_s3run_is_whole(&world, &run))
enum cairn_code cairn_case_send(struct cairn_s3world *world, const char *rules,
                                struct cairn_s3run *run);
/* Counters of the server: EXPECT_COUNTED("op_create=1 op_part=3"). */
#define EXPECT_COUNTED(wanted) cairn_case_counted(&world, __FILE__, __LINE__, wanted)
void cairn_case_counted(struct cairn_s3world *world, const char *file, int line,
                        const char *wanted);
/* The store has refused a request, and the worker knows; nothing succeeded since. */
bool cairn_case_is_refused(const struct cairn_s3world *world);
/* It fails with this code and leaves no upload behind; the message is in world->error. */
bool cairn_case_fails(struct cairn_s3world *world, const char *rules, enum cairn_code wanted);
