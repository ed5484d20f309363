/* SPDX-License-Identifier: Apache-2.0 */
/*
 * watched: what is being saved now, node by node, as the server knows it.
 *
 * Why:     `cairn watch` shows the saves of a version, of a run, of a project or of all alike.
 * Promise: 1   a look replaces what the one before found; the rate is that since a version was seen
 *              first.
 * Limits:  8 saves of 16 nodes each; of others nothing is shown.
 * Threads: main thread.
 * Next:    cli/watch_view.h, cli/verbs/watch.c.
 */
#pragma once

#include "api/documents/keys.h"
#include "cli/call.h"

#define CAIRN_CLI_WATCHED_SAVES 8
#define CAIRN_CLI_WATCHED_NODES 16

/* Numbers are CAIRN_MESSAGE_NONE where nobody has said them. */
struct cairn_cli_watched_node {
    char name[CAIRN_NAME_BYTES_MAX + 1];
    uint64_t bytes_done, bytes_total, parts_done, parts_total, silent_ms;
    bool waited_for, left;
    char error[200]; /* what went wrong last, with its version or with itself; "" */
};
struct cairn_cli_watched_save {
    char run[2 * CAIRN_NAME_BYTES_MAX + 2]; /* project/run */
    char version[CAIRN_VERSION_ID_BYTES];
    uint64_t step, attempt, world_size, ranks_sealed, shards, shards_done;
    uint64_t bytes_done, bytes_total, parts_done, parts_total; /* sums */
    uint64_t first_ms, first_bytes, rate_bytes;                /* a second; 0: not known yet */
    char commit[200]; /* what its commit waits for; "" */
    struct cairn_cli_watched_node nodes[CAIRN_CLI_WATCHED_NODES];
    size_t node_count, waited_count; /* waited_count: of all nodes, also of those not kept */
    json_t *why;                     /* as the server said it; owned */
};
struct cairn_cli_watched {
    struct cairn_cli_watched_save saves[CAIRN_CLI_WATCHED_SAVES];
    size_t save_count;
};
void cairn_cli_watched_release(struct cairn_cli_watched *watched);

/* Whose saves: all; those of a project; of its run; of it those of a step, or the one version. */
struct cairn_cli_scope {
    char project[CAIRN_NAME_BYTES_MAX + 1]; /* "": all */
    char run[CAIRN_NAME_BYTES_MAX + 1];     /* "": all of it */
    char version[CAIRN_VERSION_ID_BYTES];   /* "": any */
    uint64_t step;
    bool step_given;
};
bool cairn_cli_scope_has(const struct cairn_cli_scope *scope, const char *project, const char *run,
                         const char *version, uint64_t step);
enum cairn_code cairn_cli_watched_look(const struct cairn_cli *cli,
                                       const struct cairn_cli_scope *scope,
                                       struct cairn_cli_watched *watched,
                                       struct cairn_error *err) CAIRN_MUST_USE;
