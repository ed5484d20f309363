/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shard_errors: what the store refused of a save, by shard and part.
 *
 * Why:     who asks why a save is not committed wants to know which shard does not get on, and what
 *          the store says of it: the last error alone is that of another shard a moment later.
 * Promise: 1   of each shard and part the last error is kept, and how often there was one.
 *          2   of more than CAIRN_UP_ERRORS_MAX the one that is longest ago makes room.
 * Limits:  texts are shortened to what the struct holds, on a border of UTF-8.
 * Threads: one owner, which is the save's lock.
 * Next:    uploader/saves/save.h; uploader/server/heartbeat.c tells them to the server.
 */
#pragma once

#include "common/error.h"

#define CAIRN_UP_ERRORS_MAX 4

struct cairn_up_shard_error {
    char shard[160], text[200];
    uint32_t part; /* 0: not of a part: its upload's begin or end, or its proof */
    uint32_t tries;
    uint64_t at_ms; /* mono clock */
};
struct cairn_up_errors {
    struct cairn_up_shard_error items[CAIRN_UP_ERRORS_MAX]; /* the newest first */
    size_t count;
};
void cairn_up_errors_add(struct cairn_up_errors *errors, const char *shard, uint32_t part,
                         const char *text, uint64_t now_ms);
