/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fetch: every block of some shards of a version, read and checked by several threads, with
 * progress.
 *
 * Why:     `get` writes what it reads, `verify` only checks it; both want all connections busy.
 * Promise: 1   bad shards are all named, not only the first; the code of the first is returned.
 *          2   a shard's bytes are handed to the sink only after they were checked.
 * Limits:  memory is workers * CAIRN_CLI_PIECE_BYTES.
 * Threads: starts `workers` threads and joins them; the sink is called from any of them.
 * Next:    cli/bucket/source.h.
 */
#pragma once

#include "cli/bucket/source.h"
#include "cli/shell/progress.h"

#define CAIRN_CLI_PIECE_BYTES (8 * CAIRN_MIB)

struct cairn_cli_fetch {
    const struct cairn_cli_source *source;
    const char *verb; /* in the progress: "get llm/7b@1000" */
    bool one_worker;  /* pieces come in their order; else --workers, or 8 */
    bool stat_only;   /* compare lengths, read nothing */
    /* NULL: bytes are only checked. */
    enum cairn_code (*sink)(void *owner, uint32_t shard, uint64_t offset, const void *bytes,
                            size_t size, struct cairn_error *err);
    /* NULL, or: are these bytes there already? memory is room for them. */
    bool (*have)(void *owner, uint32_t shard, uint64_t offset, void *memory, size_t size);
    /* NULL, or called once for each bad shard, under a lock, from any thread. */
    void (*bad)(void *owner, uint32_t shard, const char *why);
    void *owner;
    /* By _choose; owned. */
    uint32_t *shards; /* indexes into the manifest */
    size_t shard_count;
    uint64_t total_bytes; /* of these shards */
    /* By _run. */
    uint64_t bad_shards;
    struct cairn_cli_meter meter;
};
/* The shards of which wants() is true; the fields before it are set. */
enum cairn_code cairn_cli_fetch_choose(struct cairn_cli_fetch *fetch,
                                       bool (*wants)(const void *owner, uint32_t index,
                                                     const struct cairn_manifest_shard *shard),
                                       const void *owner,
                                       struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_cli_fetch_run(struct cairn_cli_fetch *fetch,
                                    struct cairn_error *err) CAIRN_MUST_USE;
void cairn_cli_fetch_release(struct cairn_cli_fetch *fetch);
