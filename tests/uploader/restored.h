/* SPDX-License-Identifier: Apache-2.0 */
/*
 * restored: a trainer that saves one version and reads it again, by raw frames.
 *
 * Why:     tests about where bytes come from ask for the same ones in the same way.
 * Promise: 1   what is read is compared with what trainer_stage had staged.
 * Limits:  shards of SHARD_BYTES; one window a trainer.
 * Threads: main thread only.
 * Next:    tests/uploader/test_restore.c, tests/uploader/test_kept.c.
 */
#pragma once

#include "tests/uploader/trainer.h"

#define SHARD_BYTES 2500000

struct restored {
    int64_t number;
    struct cairn_manifest manifest;
    uint64_t layout_bytes;
};
void cairn_restored_release(struct restored *restored);
#define AUTO_RESTORED __attribute__((cleanup(cairn_restored_release))) struct restored

/* A trainer of job-1 with two shards of step 1 in slab 0, committed. */
bool saved(struct cairn_up_world *world, struct cairn_trainer *trainer, struct trainer_save *save);
/* `world`, `trainer`, `save` of this scope, read from the store: SAVED_WORLD(.s3_rules = ""). */
#define SAVED_WORLD(...)                                                                           \
    static const char *const world_args[] = {"--memory-tier=0", NULL};                             \
    WORLD_WITH(.uploader_args = world_args, __VA_ARGS__);                                          \
    CAIRN_AUTO(trainer) trainer = {0};                                                             \
    struct trainer_save save;                                                                      \
    REQUIRE(saved(&world, &trainer, &save))
enum cairn_code restore(struct cairn_trainer *trainer, const char *ref, const char *format,
                        struct restored *ret);
#define RESTORED(name, trainer, ref)                                                               \
    AUTO_RESTORED name = {0};                                                                      \
    REQUIRE(restore(trainer, ref, NULL, &name) == CAIRN_OK)
bool open_window(struct cairn_trainer *trainer, uint64_t bytes);
struct range {
    uint32_t shard;
    uint64_t offset, bytes, at;
};
enum cairn_code read_ranges(struct cairn_trainer *trainer, const struct restored *restored,
                            const struct range *ranges, size_t count);
bool holds(const struct cairn_trainer *trainer, const struct range *range);
/* Flips a bit of what is stored of step 1. */
void damage(struct cairn_up_world *world, const struct trainer_save *save, const char *name,
            off_t at);
