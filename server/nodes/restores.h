/* SPDX-License-Identifier: Apache-2.0 */
/*
 * restores: how nodes have restored versions last, as their heartbeats tell it.
 *
 * Why:     whether nodes divided the reading of the store, why not, and what it saved is known to
 *          the nodes alone; people ask the server.
 * Promise: 1   of a node and a version what it said last, while it is among the last
 *              CAIRN_SRV_RESTORES_MAX; the one that was heard the longest time ago goes first.
 *          2   nothing of it is kept on disk, or known to other servers.
 * Limits:  CAIRN_SRV_RESTORES_MAX.
 * Threads: locked by server_restores.
 * Next:    server/nodes/node_calls.c hears, server/nodes/liveness.c tells.
 */
#pragma once

#include "api/documents/keys.h"
#include "common/json.h"
#include "server/server.h"

#define CAIRN_SRV_RESTORES_MAX 4096

struct cairn_srv_restores;
enum cairn_code cairn_srv_restores_new(struct cairn_srv_restores **ret,
                                       struct cairn_error *err) CAIRN_MUST_USE;
void cairn_srv_restores_free(struct cairn_srv_restores *restores); /* NULL is fine */

struct cairn_srv_restore {
    char node[CAIRN_NAME_BYTES_MAX + 1];
    struct cairn_version_id version;
    struct cairn_run_name run;
    char choice[128];
    uint64_t store_bytes, shared_bytes, peer_bytes, memory_bytes;
    uint64_t heard; /* a number that rises; 0: a free place */
};
void cairn_srv_restores_hear(struct cairn_srv_restores *restores,
                             const struct cairn_srv_restore *restore);
/* What its nodes said, an item of `why` each; NULL: no memory. */
json_t *cairn_srv_restores_json(struct cairn_srv_restores *restores,
                                const struct cairn_run_name *run, const char *version);
