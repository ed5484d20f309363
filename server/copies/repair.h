/* SPDX-License-Identifier: Apache-2.0 */
/*
 * repair: one object of one copy, which was found damaged or missing, is written anew.
 *
 * Why:     a copy that is removed and made again would be no copy meanwhile, and every byte of it
 *          would be sent for one that was wrong.
 * Promise: 1   what is written was proven: a shard's blocks by checksums.bin, wherever each of them
 *              is right; a document by the manifest's digest, the record by the catalog.
 *          2   the object under the key is replaced at once by a whole one (an S3 put or complete,
 *              a rename): never a gap, and where anything fails the old one stays.
 *          3   afterwards it is read from that store and compared: only then is it mended.
 *          4   nothing is written where a block is right in no copy: CAIRN_CORRUPT names the bytes
 *              that are lost.
 * Limits:  one object at a time; copy_shard.h's memory.
 * Threads: whoever holds the version (copying_now.h).
 * Next:    server/copies/verify.c, which finds what is damaged; docs/tiers.md.
 */
#pragma once

#include "server/copies/copying_now.h"
#include "server/ledger/versions.h"
#include "server/reads/tier_reads.h"

struct cairn_srv_repair {
    struct cairn_srv *server;
    struct cairn_store_worker *worker;   /* of the main store */
    const struct cairn_srv_where *where; /* all copies that are whole by the catalog */
    const struct cairn_srv_tier *tier;   /* the copy that is mended */
    struct cairn_store_worker *target;   /* of its store */
    const struct cairn_srv_version *row;
    const struct cairn_committed *version; /* proven documents */
    const struct cairn_srv_copy_hold *hold;
    bool (*goes_on)(void *owner, uint64_t bytes); /* as in copy_shard.h */
    void *owner;
    uint8_t *buffer;  /* for shard_check.h */
    bool uploads_ended; /* ours */
};
enum cairn_code cairn_srv_repair_shard(struct cairn_srv_repair *repair, size_t shard,
                                       struct cairn_error *err) CAIRN_MUST_USE;
/* CAIRN_CORRUPT: no copy has it right. */
enum cairn_code cairn_srv_repair_document(struct cairn_srv_repair *repair,
                                          enum cairn_document document,
                                          struct cairn_error *err) CAIRN_MUST_USE;
