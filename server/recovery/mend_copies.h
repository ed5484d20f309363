/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mend_copies: in which stores a version lies, as the stores say, and the rows of copies after it.
 *
 * Why:     a catalog that is made again, or was put back, does not know which copies were made and
 *          removed: without their rows a copy is never read, and never deleted.
 * Promise: 1   a copy that is whole is whatever its row says, so it is read again; nothing is
 *              deleted and no object is written.
 *          2   one that is not there and whose row says whole is gone, where the version lies
 *              elsewhere; in the main store too.
 *          3   a copy whose record is there and that is damaged counts as there: readers fall
 *              back, `cairn verify --repair` mends it. It is told by name.
 *          4   objects without a record in a further store are a copy that is being made: the
 *              sweep goes on with it. In the main store they stay as they are.
 *          5   of a known version the rows change under its hold (copying_now.h).
 * Limits:  as server/guard/stores.h; a copy that its row calls whole is not verified again.
 * Threads: one owner.
 * Next:    server/recovery/mend_read.h.
 */
#pragma once

#include "server/recovery/mend.h"

/* Of a version that the catalog does not know: each store that has its record, the nearest first;
 * sets all of `one` but known. */
enum cairn_code cairn_srv_mend_look_at_copies(const struct cairn_srv_mend *mend,
                                              struct cairn_srv_mend_version *one,
                                              struct cairn_error *err) CAIRN_MUST_USE;
/* Inside the transaction that takes it: its rows. */
enum cairn_code cairn_srv_mend_put_copies(struct cairn_srv_tx *tx,
                                          const struct cairn_srv_mend *mend,
                                          const struct cairn_srv_mend_version *one,
                                          struct cairn_error *err) CAIRN_MUST_USE;
/* Of a version that the catalog knows: its rows are compared, and put right in a change of their
 * own. CAIRN_BUSY: a copy of it is being made or removed. */
enum cairn_code cairn_srv_mend_settle_copies(const struct cairn_srv_mend *mend,
                                             struct cairn_srv_mend_version *one,
                                             struct cairn_error *err) CAIRN_MUST_USE;
/* Would settle change anything? Nothing is verified or written. */
enum cairn_code cairn_srv_mend_copies_differ(const struct cairn_srv_mend *mend,
                                             struct cairn_srv_mend_version *one, bool *ret,
                                             struct cairn_error *err) CAIRN_MUST_USE;
