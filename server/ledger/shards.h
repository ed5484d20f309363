/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shards: the shards, ranks and seals of an open version.
 *
 * Why:     what a node says of its shards is compared with all that was said before, in one
 *          transaction (Q16, Q33); from the commit on the manifest alone knows the shards.
 * Promise: 1    a batch is taken whole, or refused in words that name what does not hold.
 *          2    a seal is final and counted once a rank: the same again is no change, another one
 *               is a conflict.
 *          3    the cost of a batch does not depend on how many ranks and shards there are.
 * Limits:  lists of missing shards name 100.
 * Threads: inside a transaction.
 * Next:    server/intake/register.c, server/ledger/layouts.h.
 */
#pragma once

#include "api/wire/messages.h"
#include "server/ledger/versions.h"

/* As a node says it; the texts live as long as the call's body. */
struct cairn_srv_shard_said {
    struct cairn_msg_registration msg;
    uint32_t crc32c;
    struct cairn_buf blocks;
};
struct cairn_srv_seal_said {
    struct cairn_msg_rank_seal msg; /* table NULL: no tensors */
    uint8_t table[32];
    struct cairn_buf replicated_text;
    struct cairn_buf labels_text, meta_text; /* canonical; of no meaning where msg has none */
};
struct cairn_srv_registration {
    const struct cairn_srv_version *version; /* an open one */
    const char *node;
    int64_t wall_ms; /* now */
    const struct cairn_srv_shard_said *shards;
    size_t shard_count;
    const struct cairn_srv_seal_said *seals;
    size_t seal_count;
};
enum cairn_code cairn_srv_shards_register(struct cairn_srv_tx *tx,
                                          const struct cairn_srv_registration *batch,
                                          struct cairn_error *err) CAIRN_MUST_USE;
/* What register looks at first: said by its caller, together with what that looks at itself. */
enum cairn_code cairn_srv_shards_expect(struct cairn_srv_tx *tx, const char *version,
                                        const struct cairn_srv_shard_said *shards, size_t count,
                                        struct cairn_error *err) CAIRN_MUST_USE;
/* All of it is sealed and registered now. */
enum cairn_code cairn_srv_version_set_durable(struct cairn_srv_tx *tx, const char *version,
                                              int64_t wall_ms,
                                              struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_srv_rank_sealed(struct cairn_srv_tx *tx, const char *version, uint64_t rank,
                                      bool *ret, struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_srv_shards_count(struct cairn_srv_tx *tx, const char *version,
                                       uint64_t *ret_known, uint64_t *ret_registered,
                                       struct cairn_error *err) CAIRN_MUST_USE;
/* Appends {shard, rank, node, state} for those that are sealed and not registered. */
enum cairn_code cairn_srv_shards_missing(struct cairn_srv_tx *tx, const char *version, json_t *ret,
                                         struct cairn_error *err) CAIRN_MUST_USE;
/* Of a version that is no longer open: its shards, ranks and replica groups. */
enum cairn_code cairn_srv_shards_drop(struct cairn_srv_tx *tx, const char *version,
                                      struct cairn_error *err) CAIRN_MUST_USE;
