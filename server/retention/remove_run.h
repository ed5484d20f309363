/* SPDX-License-Identifier: Apache-2.0 */
/*
 * remove_run: deletes a run with all its versions, as an operation.
 *
 * Why:     deleting a run that has versions requires its name once more, from a caller who has seen
 *          what that frees; a call cannot wait for thousands of versions.
 * Promise: Q27  each version is checked as server/intake/intake.h says and moved in transactions of
 *               its own.
 *          1    reasons to refuse are reported before the removal begins. A later one (a pin, a
 *               lease, an alias, a trainer, another attempt) ends it; a repeated call resumes it.
 *          2    the run is hidden in a transaction that finds no version left.
 *          3    its events name the caller.
 * Limits:  REMOVE_ROUND_MAX versions between two checks of the whole run.
 * Threads: the worker's.
 * Next:    server/retention/remove_run.c, server/operations/operations.h.
 */
#pragma once

#include "server/http/request.h"

/* DELETE {R}?confirm=: begins the operation, or returns the running one. */
enum cairn_code srv_run_delete_whole(struct srv_request *request, const char *confirm,
                                     struct srv_reply *reply,
                                     struct cairn_error *err) CAIRN_MUST_USE;
/* DELETE {R}?dry_run=true: what would go, and what refuses it. confirm may be NULL. */
enum cairn_code srv_run_removal_show(struct srv_request *request, const char *confirm,
                                     struct srv_reply *reply,
                                     struct cairn_error *err) CAIRN_MUST_USE;
/* DELETE {R} with versions and neither parameter: refused, with what confirm= would remove. */
enum cairn_code srv_run_delete_unconfirmed(struct srv_request *request, struct srv_reply *reply,
                                           struct cairn_error *err) CAIRN_MUST_USE;

struct srv_remove_run {
    struct srv *server;
    struct cairn_store_worker *worker;
    const struct cairn_run_name *name;
    uint64_t attempt;  /* the newest at the request */
    uint64_t versions; /* how many to remove, as of the request, with open ones */
    const char *who, *from;
    /* As in server/operations/operations.h; NULL: no progress and no checks. */
    bool (*tell)(void *owner, uint64_t done, uint64_t total);
    enum cairn_code (*check)(struct srv_tx *tx, void *owner, struct cairn_error *err);
    void *owner;
};
/* *ret_result: what was done, also on failure. */
enum cairn_code srv_remove_run(const struct srv_remove_run *wish, json_t **ret_result,
                               struct cairn_error *err) CAIRN_MUST_USE;
