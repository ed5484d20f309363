/* SPDX-License-Identifier: Apache-2.0 */
/*
 * target: the folder that `get` fills, and what of it is there already.
 *
 * Why:     whatever interrupts a restore, nothing may look like a checkpoint that is none, and what
 *          was read must not be read again.
 * Promise: 1   a file has its own name only when every block of it was verified and is on the disk;
 *              until then it lies in `.cairn-get-<version>` in the folder, under its number.
 *          2   what lies there, or has its final name already, is compared block by block; what
 *              is right is not read again. Other content under a final name is never replaced.
 *          3   below the folder no symbolic link is followed; links are made last.
 *          4   a get that does not hold the lock of `.cairn-get-<version>` writes and removes
 *              nothing. What final names hold is looked at under the lock.
 * Limits:  one `get` of a version into a folder at a time; a second one is CAIRN_CONFLICT.
 * Threads: have and write from any; the others one owner.
 * Next:    cli/tree/get.c, cli/tree/tree_meta.h.
 */
#pragma once

#include "cli/bucket/source.h"
#include "cli/tree/tree_meta.h"

struct cairn_cli_target {
    const struct cairn_cli_source *source;
    const uint32_t *shards; /* indexes into the manifest */
    size_t shard_count;
    bool whole; /* links and empty folders, too */
    int root_fd, part_fd;
    char part_name[64];
    bool locked;    /* the folder of parts is this get's own */
    bool resumed;   /* an earlier get left something */
    bool moved;     /* each part has its name */
    bool *in_place; /* by number in the manifest: its final name is there, with these bytes */
    bool *written;  /* likewise: this get wrote all of it, with its mode, into a file of its own */
    unsigned mask;  /* umask */
    struct cairn_cli_tree_meta meta;
};
enum cairn_code cairn_cli_target_open(struct cairn_cli_target *target, const char *folder,
                                      struct cairn_error *err) CAIRN_MUST_USE;
bool cairn_cli_target_have(void *target, uint32_t shard, uint64_t offset, void *memory,
                           size_t size);
enum cairn_code cairn_cli_target_write(void *target, uint32_t shard, uint64_t offset,
                                       const void *bytes, size_t size, struct cairn_error *err);
/* Of meta, or of the shard that it names. */
enum cairn_code cairn_cli_tree_description(const struct cairn_cli_source *source,
                                           struct cairn_cli_tree_meta *ret,
                                           struct cairn_error *err) CAIRN_MUST_USE;
/* Everything under its name. */
enum cairn_code cairn_cli_target_finish(struct cairn_cli_target *target,
                                        struct cairn_error *err) CAIRN_MUST_USE;
/* keep: what was read stays for the next get. Without the lock nothing is removed. */
void cairn_cli_target_close(struct cairn_cli_target *target, bool keep);
