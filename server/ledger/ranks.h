/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ranks: the ranks of an open version that have begun, and their replica groups.
 *
 * Why:     ranks of one save are compared with the first that began (Q10), and a commit reads what
 *          each has sealed.
 * Promise: 1    a rank that joins again changes nothing.
 * Limits:  -
 * Threads: inside a transaction.
 * Next:    server/intake/begin.c, server/ledger/shards.h for seals.
 */
#pragma once

#include "server/ledger/versions.h"

enum cairn_code cairn_srv_rank_join(struct cairn_srv_tx *tx, const char *version, uint64_t rank,
                                    const char *node, struct cairn_error *err) CAIRN_MUST_USE;
/* The lowest rank that has begun, other than this one; 0 when there is none. */
enum cairn_code cairn_srv_rank_other(struct cairn_srv_tx *tx, const char *version, uint64_t rank,
                                     uint64_t *ret, struct cairn_error *err) CAIRN_MUST_USE;
/* What a group's first rank said of it stays; *ret_words is that, and *ret_first that rank. */
struct cairn_srv_group_said {
    const char *name, *words;
    uint64_t rank;
};
enum cairn_code cairn_srv_group_join(struct cairn_srv_tx *tx, const char *version,
                                     const struct cairn_srv_group_said *said,
                                     struct cairn_buf *ret_words, uint64_t *ret_first,
                                     struct cairn_error *err) CAIRN_MUST_USE;

/* What is known of two lists that differ, while it is sought in which tensor they do (see
 * server/versions/list_calls.h); it stays when the version's groups go. get: appends nothing where
 * there is none. settle: the version, which has ended, keeps these words as its reason. */
enum cairn_code cairn_srv_dispute_get(struct cairn_srv_tx *tx, const char *version,
                                      struct cairn_buf *ret,
                                      struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_srv_dispute_put(struct cairn_srv_tx *tx, const char *version,
                                      const char *words, struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_srv_dispute_settle(struct cairn_srv_tx *tx, const char *version,
                                         const char *reason,
                                         struct cairn_error *err) CAIRN_MUST_USE;

/* A sealed rank; the text lives during the call. */
struct cairn_srv_rank_sealed {
    uint32_t rank;
    bool has_table; /* it has tensors */
    uint8_t table[32];
    const char *replicated; /* JSON, "" for none */
};
/* Sealed ranks, rising. */
enum cairn_code cairn_srv_ranks_sealed(
    struct cairn_srv_tx *tx, const char *version,
    enum cairn_code (*each)(void *argument, const struct cairn_srv_rank_sealed *rank,
                            struct cairn_error *err),
    void *argument, struct cairn_error *err) CAIRN_MUST_USE;
