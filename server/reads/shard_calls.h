/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shard_calls: which version a read means, its shards wherever they are kept, and their URLs.
 *
 * Why:     shards are rows while a version is open and lines of its manifest afterwards; readers
 *          do not care which. A redirect and a restore plan hand out the same right, so one rule
 *          says for how long.
 * Promise: 1    only committed and recorded versions are readable: CAIRN_NOT_COMMITTED before,
 *               CAIRN_ABORTED or CAIRN_DELETED after.
 *          A03  a URL gives one object to whoever has it, and ends within 5 minutes and the life
 *               of the keys that signed it.
 *          C03  it ends within what is left of the trash's grace, less a sweep's interval, since
 *               ticks are so coarse, or within the asker's lease: no object goes before its URLs.
 *               But it lives 1 s at least, also where no more than that is left.
 * Limits:  lists of at most 1,000; URLs of stores in S3 only.
 * Threads: any pool thread; not inside a transaction.
 * Next:    server/reads/tensors.c, server/reads/plans.c, store/store.h.
 */
#pragma once

#include "server/http/request.h"
#include "server/ledger/versions.h"
#include "server/server.h"

/* The version of the path, whose bytes may be read. */
enum cairn_code cairn_srv_readable(struct cairn_srv_request *request, struct cairn_srv_version *ret,
                                   struct cairn_error *err) CAIRN_MUST_USE;

/* ---- presigned URLs ---- */

/* The nearest store that has the version whole and URLs of its own; NULL: none has. */
enum cairn_code cairn_srv_urls_find(struct cairn_srv *server,
                                    const struct cairn_srv_version *version,
                                    struct cairn_store **ret,
                                    struct cairn_error *err) CAIRN_MUST_USE;
/* How long a URL of this version may live from now on, keys apart; leased_ms: so long it is kept
 * for who asks (Q29). */
enum cairn_code cairn_srv_urls_life(struct cairn_srv *server,
                                    const struct cairn_srv_version *version, uint64_t leased_ms,
                                    uint32_t *ret_s, struct cairn_error *err) CAIRN_MUST_USE;
/* ret_life_s: what became of life_s; may be NULL. */
enum cairn_code cairn_srv_urls_sign(struct cairn_store *store,
                                    const struct cairn_srv_version *version, const char *shard,
                                    uint32_t life_s, struct cairn_buf *ret_url,
                                    uint32_t *ret_life_s, struct cairn_error *err) CAIRN_MUST_USE;
