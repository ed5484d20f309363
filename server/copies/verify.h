/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verify: every copy of a version is looked at, each in its own store; and, where asked for, read
 * and mended from the others.
 *
 * Why:     reads fall back, so a damaged copy is not noticed until the last good one is damaged.
 * Promise: P14  each copy that is whole by the catalog is looked at by itself, and each finding
 *               names its store; a store that is away is said, and keeps the others from nothing.
 *          1    a look reads the documents, and a HEAD of each object; with `reads` every block of
 *               the shards that were chosen, of every copy.
 *          2    with `repairs` what is damaged or missing is written anew (repair.h), shards first,
 *               committed.json last; what is right is not touched, and nothing is deleted.
 *          3    a committed.json that is not there is written again from the catalog (Q24).
 *          4    what is found of a copy is kept with it (server/copies/damage.h), also by one that is
 *               ended.
 * Limits:  one copy after the other, one range under way; CAIRN_SRV_CHECK_BYTES, and a part of
 *          copy_shard.h where one is mended.
 * Threads: any with a worker of the main store. One that reads is alone with the version
 *          (copying_now.h).
 * Next:    server/copies/verify_copy.h, server/copies/verify_calls.c; docs/tiers.md.
 */
#pragma once

#include "common/json.h"
#include "server/guard/stores.h"

struct cairn_srv_verify {
    struct cairn_srv *server;
    struct cairn_store_worker *worker; /* of the main store */
    const char *version;
    bool reads, repairs;  /* who repairs reads */
    uint64_t part, parts; /* the N-th of T equal groups of shards is read; 0 of 0: all */
    /* Now and then, in bytes; false: end here, by CAIRN_CANCELLED. NULL: nobody asks. */
    bool (*tell)(void *owner, uint64_t done, uint64_t total);
    void *owner;
};
/* CAIRN_OK whatever was found; *ret: verified (api/messages.def). CAIRN_BUSY: a copy of it is being
 * made or removed. */
enum cairn_code cairn_srv_verify_run(const struct cairn_srv_verify *verify, json_t **ret,
                                     struct cairn_error *err) CAIRN_MUST_USE;
