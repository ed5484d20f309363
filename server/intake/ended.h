/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ended: processes that have ended, as their own node reports them, and the saves that this ends.
 *
 * Why:     a rank is not replaced inside its attempt (Q2), so a version that it has not sealed can
 *          never become whole; the other ranks would wait for it for a day (V41).
 * Promise: Q54  what is reported counts for the process and the attempt that it names, at once.
 *          Q56  when the report adds that nothing of that rank is under way, every open version of
 *               the attempt that it has not sealed is given up in the same transaction, naming
 *               rank, node and process; versions that are begun later are, too.
 *          1   a report counts only for the catalog that last answered the node (another one may
 *              lack what the node has reported), and only in a run that was compared with its
 *              store and is not frozen (Q35, Q36). A report that was not taken comes again.
 * Limits:  65,536 reports a call.
 * Threads: any pool thread.
 * Next:    server/nodes/node_calls.c, server/ledger/attempts.h, uploader/saves/ended.h.
 */
#pragma once

#include "server/http/request.h"
#include "server/ledger/attempts.h"

struct cairn_srv_ended {
    struct cairn_grant grant;
    const char *proc; /* borrowed from the body */
    uint32_t rank;
    size_t index; /* in the body */
    enum cairn_srv_end end;
    bool possible, taken;
};
/* What one heartbeat reports. */
struct cairn_srv_ends {
    struct cairn_srv_request *request;
    struct cairn_srv_ended *items; /* owned */
    size_t count;
    struct cairn_srv_ids closed; /* that were given up */
};
/* list: the body's `ended`, or NULL. same_catalog: this catalog answered the node last. */
enum cairn_code cairn_srv_ends_read(struct cairn_srv_ends *ends, const json_t *list,
                                    bool same_catalog, struct cairn_error *err) CAIRN_MUST_USE;
/* Writes the ends that no row has yet. Indexes of reports that need not come again are added to
 * `taken`; attempts that are over to `fenced`, as {run, attempt}. */
enum cairn_code cairn_srv_ends_take(struct cairn_srv_ends *ends, json_t *taken, json_t *fenced,
                                    struct cairn_error *err) CAIRN_MUST_USE;
void cairn_srv_ends_release(struct cairn_srv_ends *ends);
