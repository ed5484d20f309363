/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verify_copy: what is wrong with one copy of a version, and the mending of it.
 *
 * Why:     each copy is judged by its own store, whatever the others are like.
 * Promise: 1   an object has one finding at most.
 *          2   mended is what was read again and is right (repair.h#3).
 * Limits:  CAIRN_SRV_FINDINGS_MAX findings a copy; what is more ends it with CAIRN_TOO_LARGE.
 * Threads: one owner.
 * Next:    server/copies/verify.h; store/whole.h.
 */
#pragma once

#include "server/copies/repair.h"
#include "server/copies/verify.h"
#include "store/whole.h"

#define CAIRN_SRV_FINDINGS_MAX 1000000
#define CAIRN_SRV_NO_SHARD SIZE_MAX

struct cairn_srv_finding {
    enum cairn_store_finding what;
    char *key, *detail;
    size_t shard; /* CAIRN_SRV_NO_SHARD: of none */
    bool mended;
};
/* Of all copies. */
struct cairn_srv_verifying {
    const struct cairn_srv_verify *verify;
    struct cairn_srv_copy_hold hold;
    struct cairn_srv_version row;
    struct cairn_srv_where where;
    struct cairn_committed documents; /* proven by one store or another */
    bool proven;                      /* manifest and checksums are known */
    uint8_t *buffer;                  /* CAIRN_SRV_CHECK_BYTES, where blocks are read */
    uint64_t done, total, read_bytes, told_ms;
    bool gone; /* the version is no longer there */
    /* After each piece of work; false: it is to end. */
    bool (*goes_on)(void *verifying, uint64_t bytes);
};
static inline bool cairn_srv_verify_chosen(const struct cairn_srv_verify *verify, size_t shard) {
    return !verify->parts || shard % verify->parts == verify->part - 1;
}

struct cairn_srv_verified_copy {
    struct cairn_srv_verifying *all;
    const struct cairn_srv_tier *tier; /* NULL: a server without `stores`, its main store */
    struct cairn_store_worker *worker; /* of its store */
    struct cairn_srv_finding *findings;
    size_t count, capacity;
    uint64_t mended;
    bool listed, record_rewritten;
    enum cairn_code failed; /* of a finding that could not be kept */
};
/* An error is of this copy, and of its store: it was not looked at to its end. */
enum cairn_code cairn_srv_verify_copy(struct cairn_srv_verified_copy *copy,
                                      struct cairn_error *err) CAIRN_MUST_USE;
void cairn_srv_verified_copy_release(struct cairn_srv_verified_copy *copy);
/* That is not mended; strays are none. */
uint64_t cairn_srv_verified_copy_damaged(const struct cairn_srv_verified_copy *copy);
/* Documents of a newer release, which are not looked into. */
uint64_t cairn_srv_verified_copy_newer(const struct cairn_srv_verified_copy *copy);
/* Of the damaged ones, those that a restore needs: all but the attempt's record. */
uint64_t cairn_srv_verified_copy_needed(const struct cairn_srv_verified_copy *copy);
