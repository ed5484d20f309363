/* SPDX-License-Identifier: Apache-2.0 */
/*
 * commit_objects: the commit's own look at the objects, from the server's side of the store.
 *
 * Why:     an uploader whose mount is away, or whose prefix is mistyped, proves its shards in
 *          another place; and what was there at the registration may be gone at the commit.
 * Promise: 1   CAIRN_OK only when every shard of the manifest is in this server's store with its
 *              size.
 *          2   CAIRN_CORRUPT is a verdict and names node, rank and shard. It is given only after
 *              the store was found to be this catalog's own (store.json of its uuid): a store that
 *              is away, or a mount that is gone, is CAIRN_UNAVAILABLE and ends no version.
 *          3   on S3 the commit waits for the listing only as long as it takes longer than the
 *              layout's object and checksums.bin, which are written meanwhile.
 * Limits:  see store/presence.h.
 * Threads: one commit thread each.
 * Next:    server/commit/commit.c, store/presence.h.
 */
#pragma once

#include "api/documents/manifest.h"
#include "server/server.h"
#include "store/presence.h"

struct cairn_srv_objects {
    struct cairn_srv *server;
    struct cairn_store_worker *worker;
    struct cairn_version_place place;
    const struct cairn_manifest *manifest; /* sorted by name */
    char *const *nodes;                    /* by shard: who registered it */
    /* the look's own, between start and finish */
    struct cairn_store_presence presence;
    struct cairn_key prefix;
    uint64_t waited_ms;
};
/* The look begins; the commit goes on with other requests of the same worker. A start that was
 * CAIRN_OK has one finish; `objects` stays where it is until then. */
enum cairn_code cairn_srv_objects_start(struct cairn_srv_objects *objects,
                                        struct cairn_error *err) CAIRN_MUST_USE;
/* *ret_final: the failure is the verdict of commit_objects.h#2. */
enum cairn_code cairn_srv_objects_finish(struct cairn_srv_objects *objects, bool *ret_final,
                                         struct cairn_error *err) CAIRN_MUST_USE;
