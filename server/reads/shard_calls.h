/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shard_calls: the version of a read, its shards wherever they are kept, and their URLs.
 *
 * Why:     shards are rows while a version is open, and lines of its manifest afterwards; readers
 *          need not know which. One rule sets the life of URLs, for redirects and restore plans.
 * Promise: 1    only committed and recorded versions are readable: CAIRN_NOT_COMMITTED before,
 *               CAIRN_ABORTED or CAIRN_DELETED after.
 *          A03  a URL gives its bearer one object, for at most 5 minutes and its keys' life.
 *          C03  a URL ends within the caller's lease, or what is left of the trash's grace less one
 *               sweep interval, the resolution of ticks: no object is deleted before its URLs end.
 *               But a URL lives at least 1 s, even where less is left.
 * Limits:  lists of at most 1,000; URLs of stores in S3 only.
 * Threads: any pool thread; not inside a transaction.
 * Next:    server/reads/tensors.c, server/reads/plans.c, store/store.h.
 */
#pragma once

#include "server/http/request.h"
#include "server/ledger/versions.h"

/* The version in the path; fails unless it is readable. */
enum cairn_code srv_readable(struct srv_request *request, struct srv_version *ret,
                             struct cairn_error *err) CAIRN_MUST_USE;

/* ---- presigned URLs ---- */

/* The nearest store that has the version whole and can presign; NULL: none. */
enum cairn_code srv_urls_find(struct srv *server, const struct srv_version *version,
                              struct cairn_store **ret, struct cairn_error *err) CAIRN_MUST_USE;
/* Life of a new URL, apart from its keys' life; leased_ms: rest of the caller's lease (Q29). */
enum cairn_code srv_urls_life(struct srv *server, const struct srv_version *version,
                              uint64_t leased_ms, uint32_t *ret_s,
                              struct cairn_error *err) CAIRN_MUST_USE;
/* ret_life_s: life_s, cut to the life of the keys; may be NULL. */
enum cairn_code srv_urls_sign(struct cairn_store *store, const struct srv_version *version,
                              const char *shard, uint32_t life_s, struct cairn_buf *ret_url,
                              uint32_t *ret_life_s, struct cairn_error *err) CAIRN_MUST_USE;
