/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shards: which version a read means, and its shards wherever they are kept.
 *
 * Why:     shards are rows while a version is open and lines of its manifest afterwards; readers
 *          do not care which.
 * Promise: 1   only committed and recorded versions are readable: CAIRN_NOT_COMMITTED before,
 *              CAIRN_ABORTED or CAIRN_DELETED after.
 * Limits:  lists of at most 1,000.
 * Threads: any pool thread.
 * Next:    server/reads/reads.c, server/reads/tensors.c.
 */
#pragma once

#include "server/http/request.h"
#include "server/ledger/versions.h"

/* The version of the path, whose bytes may be read. */
enum cairn_code cairn_srv_readable(struct cairn_srv_request *request, struct cairn_srv_version *ret,
                                   struct cairn_error *err) CAIRN_MUST_USE;
