/* SPDX-License-Identifier: Apache-2.0 */
/*
 * remove_run: a run with all that it has, as an operation.
 *
 * Why:     a run that has versions is deleted only by who names it once more and has seen what it
 *          frees; thousands of versions are more than one call can wait for.
 * Promise: Q27  each version is judged as server/intake/intake.h says and moved by itself, in
 *               transactions of its own.
 *          1    what refuses it is said before anything is begun. What comes later (a pin, a lease,
 *               an alias, a trainer, another attempt) ends it; asked for again it goes on.
 *          2    the run is hidden in a transaction that finds nothing left of it.
 *          3    its events name who asked for it.
 * Limits:  REMOVE_ROUND_MAX versions between two looks at the whole run.
 * Threads: that of the worker.
 * Next:    server/retention/remove_run.c, server/operations/operations.h.
 */
#pragma once

#include "server/http/request.h"

/* DELETE {R}?confirm=: the operation, begun or already under way. */
enum cairn_code cairn_srv_run_delete_whole(struct cairn_srv_request *request, const char *confirm,
                                           struct cairn_srv_reply *reply,
                                           struct cairn_error *err) CAIRN_MUST_USE;
/* DELETE {R}?dry_run=true: what that would take away, and what would refuse it. confirm may be
 * NULL. */
enum cairn_code cairn_srv_run_removal_show(struct cairn_srv_request *request, const char *confirm,
                                           struct cairn_srv_reply *reply,
                                           struct cairn_error *err) CAIRN_MUST_USE;
/* DELETE {R} of one that has versions, without either: refused, with what confirm= takes away. */
enum cairn_code cairn_srv_run_delete_unconfirmed(struct cairn_srv_request *request,
                                                 struct cairn_srv_reply *reply,
                                                 struct cairn_error *err) CAIRN_MUST_USE;

/* What the operation does. */
struct cairn_srv_remove_run {
    struct cairn_srv *server;
    struct cairn_store_worker *worker;
    const struct cairn_run_name *name;
    uint64_t attempt;       /* the newest when it was asked for */
    uint64_t versions;      /* how many it was to take away then, with open ones */
    const char *who, *from; /* for its events */
    /* As in server/operations/operations.h; NULL: progress is not told, and nothing is checked. */
    bool (*tell)(void *owner, uint64_t done, uint64_t total);
    enum cairn_code (*check)(struct cairn_srv_tx *tx, void *owner, struct cairn_error *err);
    void *owner;
};
/* *ret_result: what was done; also where it fails. */
enum cairn_code cairn_srv_remove_run(const struct cairn_srv_remove_run *wish, json_t **ret_result,
                                     struct cairn_error *err) CAIRN_MUST_USE;
