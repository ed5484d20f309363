/* SPDX-License-Identifier: Apache-2.0 */
/*
 * copies: what rows of copies want is begun, and what is to go is removed.
 *
 * Why:     a copy that somebody asked for must be made though the server that was asked has died,
 *          and by one that is not asked again.
 * Promise: 1   each sweep of any server finds what is MAKING and has nobody at work, and begins it
 *              as an operation; what failed is tried again after pauses (copying_now.h).
 *          2   what is REMOVING is deleted by the sweep, after the generation was raised (Q35).
 *          3   the wish of somebody who asks, its operation and the event that says who asked are
 *              one change: a sweep that is under way finds all of them or none.
 *          4   however many copies wait in one store, those in the others are looked at, too; what
 *              lies in a store that the setting stores does not name stays as it is.
 * Limits:  CAIRN_SRV_COPIES_LOOK_MAX rows of each store a round.
 * Threads: begin on any; look on the sweeping thread.
 * Next:    server/copies/promote.h, server/copies/demote.h, server/sweep/sweep.c.
 */
#pragma once

#include "server/copies/promote.h"
#include "server/operations/operations_job.h"

#define CAIRN_SRV_COPIES_LOOK_MAX 1000

/* The operation that makes a copy, or the one that is under way. */
struct cairn_srv_copy_begin {
    const struct cairn_run_name *name;
    /* Who wishes for it; NULL: the server goes on with a row that says MAKING. */
    const struct cairn_srv_caller *caller;
    const char *version, *store;
};
/* CAIRN_ABORTED: of a wish that was fulfilled or taken back meanwhile. Of somebody's wish as
 * cairn_srv_promote_want; a server without operations (a test's) writes it alone, and *ret_id is
 * empty. */
enum cairn_code cairn_srv_copies_begin(struct cairn_srv *server,
                                       const struct cairn_srv_copy_begin *begin,
                                       char ret_id[CAIRN_SRV_OPERATION_BYTES],
                                       struct cairn_error *err) CAIRN_MUST_USE;
/* raise: before the first removal of a round. */
struct cairn_srv_copies_round {
    struct cairn_srv *server;
    struct cairn_store_worker *worker;
    enum cairn_code (*raise)(void *owner, struct cairn_error *err);
    void *owner;
};
enum cairn_code cairn_srv_copies_look(const struct cairn_srv_copies_round *round,
                                      struct cairn_error *err) CAIRN_MUST_USE;
