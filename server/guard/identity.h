/* SPDX-License-Identifier: Apache-2.0 */
/*
 * identity: which store this catalog belongs to, and which of the two is ahead.
 *
 * Why:     a catalog restored from an old copy, or a second deployment on one prefix, would take
 *          the newest checkpoints for rubbish and sweep them (D07).
 * Promise: 1   a store of another uuid is refused at start; an empty one gets store.json.
 *          2   the generation in the store is raised at every start, before each round of sweeps
 *              that deletes something and every ten minutes, by compare-and-set and after the
 *              catalog's; a store whose generation is ahead of the catalog freezes the server
 *              (Q35, Q36).
 *          3   the grant key is made once, 0600, beside the catalog and not inside it (Q38); a
 *              catalog that has runs does not start without it (Q49).
 * Limits:  -
 * Threads: start; raise on the sweeping thread; compare on any thread.
 * Next:    api/documents/manifest.h, struct cairn_store_record.
 */
#pragma once

#include "server/server.h"

enum cairn_code cairn_srv_identity_start(struct cairn_srv *server,
                                         struct cairn_store_worker *worker,
                                         struct cairn_error *err) CAIRN_MUST_USE;
/* Q35: by compare-and-set, on the sweeping thread alone. A number that another server got first
 * freezes. */
enum cairn_code cairn_srv_identity_raise(struct cairn_srv *server,
                                         struct cairn_store_worker *worker,
                                         struct cairn_error *err) CAIRN_MUST_USE;
/* Freezes and fails with CAIRN_CATALOG_BEHIND when the store is not ours at our generation. */
enum cairn_code cairn_srv_identity_compare(struct cairn_srv *server,
                                           struct cairn_store_worker *worker,
                                           struct cairn_error *err) CAIRN_MUST_USE;
