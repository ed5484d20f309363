/* SPDX-License-Identifier: Apache-2.0 */
/*
 * record: .cairn/store.json, which names a store, read and written in one place.
 *
 * Why:     the server compares it with its catalog, an uploader with its grants (Q55): both must
 *          take the same bytes for the same store, and the same damage for damage.
 * Promise: 1   get writes a record on CAIRN_OK alone. An object that is there and is no such record
 *              (empty, too large, cut off, another kind) is CAIRN_CORRUPT; one of a later format is
 *              CAIRN_UNSUPPORTED; CAIRN_NOT_FOUND means that no object is there.
 *          2   no reader sees half a record: put is one request.
 * Limits:  1 MiB.
 * Threads: one owner of the worker.
 * Next:    server/guard/identity.c, uploader/send/store_check.c; docs/format.md.
 */
#pragma once

#include "api/documents/manifest.h"
#include "api/documents/records.h"
#include "store/store.h"

/* deadline_ms: mono clock; 0: the store's own default for each request. */
enum cairn_code cairn_store_record_get(struct cairn_store_worker *worker, uint64_t deadline_ms,
                                       struct cairn_store_record *ret,
                                       struct cairn_error *err) CAIRN_MUST_USE;
/* create: CAIRN_PRECONDITION where another is there; else it is replaced. */
enum cairn_code cairn_store_record_put(struct cairn_store_worker *worker,
                                       const struct cairn_store_record *record, bool create,
                                       struct cairn_error *err) CAIRN_MUST_USE;
