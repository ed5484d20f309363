/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mend_read: what the store says of one run, read and verified for the catalog to take over.
 *
 * Why:     a reconcile of a run and a reindex of a bucket believe the same things.
 * Promise: 1   a version is verified when in one store its record, the manifest of the record's
 *              digest, the layout, and every object with its length are there (Q37); else `cause`
 *              says what is not so, `damaged` and `newer` whether that is damage or a newer
 *              release's; with neither it is the rest of a deletion.
 *          2   a store that does not answer is a failure, never a statement about a version.
 *          3   an attempt's record is read from the next store where one has it not, or damaged.
 * Limits:  as server/guard/stores.h.
 * Threads: one owner.
 * Next:    server/recovery/mend.h takes it over; server/recovery/reconcile.c, server/recovery/reindex.c.
 */
#pragma once

#include "server/recovery/mend.h"

/* Record, manifest, layout and every object with its length, in one store (Q37). CAIRN_CORRUPT:
 * something is there that is not what it should be; CAIRN_UNSUPPORTED: a newer release wrote it;
 * CAIRN_NOT_FOUND: the rest of a deletion. */
enum cairn_code cairn_srv_mend_verify(struct cairn_store_worker *worker,
                                      const struct cairn_version_place *place,
                                      struct cairn_record *ret_record,
                                      struct cairn_manifest *ret_manifest,
                                      struct cairn_error *err) CAIRN_MUST_USE;
/* It was opened before. */
enum cairn_code cairn_srv_mend_read_attempts(struct cairn_srv_mend *mend,
                                             struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_srv_mend_read_versions(struct cairn_srv_mend *mend,
                                             struct cairn_error *err) CAIRN_MUST_USE;
/* The same one by one: room for all, then each. */
enum cairn_code cairn_srv_mend_versions_new(struct cairn_srv_mend *mend,
                                            struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_srv_mend_read_version(struct cairn_srv_mend *mend, size_t index,
                                            struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_srv_mend_look_for_missing(struct cairn_srv_mend *mend,
                                                struct cairn_error *err) CAIRN_MUST_USE;
