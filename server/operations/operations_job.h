/* SPDX-License-Identifier: Apache-2.0 */
/*
 * operations: what this server does for somebody who does not wait for it: by the command `cairn`
 * in a process of its own, or on a thread here.
 *
 * Why:     who starts an import or an export by a call has no shell; and what reads a stranger's
 *          files must be able to die without the server.
 * Promise: O02  an operation ends: as done, failed or cancelled, or, when its server ended or was
 *               stopped, as interrupted, said by whichever server finds it.
 *          O03  a server that was stopped for longer than job-lease changes nothing of an operation
 *               that another one has ended.
 *          1    at most operations-at-once run that change something, and as many that only read;
 *               projects take turns at these places. CAIRN_SRV_OPERATIONS_WAITING_MAX of each kind
 *               wait; of one token CAIRN_SRV_OPERATIONS_OF_TOKEN_MAX run or wait.
 *          2    the command gets a token of its own, for one project, that ends with it.
 * Limits:  see above; progress is written once a second.
 * Threads: begin and look from any; threads of its own run the commands.
 * Next:    server/ledger/operations.h, server/operations/child.h, server/operations/operation_calls.c.
 */
#pragma once

#include "common/json.h"
#include "server/access/access.h"
#include "server/ledger/operations.h"
#include "server/operations/folders.h"

#define CAIRN_SRV_OPERATIONS_WAITING_MAX 256
#define CAIRN_SRV_OPERATIONS_OF_TOKEN_MAX 64

enum cairn_code cairn_srv_operations_new(struct cairn_srv *server,
                                         struct cairn_srv_operations **ret,
                                         struct cairn_error *err) CAIRN_MUST_USE;
/* Ends what runs and what waits, as interrupted; none is begun any more. */
void cairn_srv_operations_stop(struct cairn_srv_operations *operations);
/* Stops, too. NULL is fine. */
void cairn_srv_operations_free(struct cairn_srv_operations *operations);
/* The port at which commands reach this server. */
void cairn_srv_operations_listen(struct cairn_srv_operations *operations, uint16_t port);

/* What a thread of the operations does itself, with the arguments of the wish. owner is for
 * cairn_srv_operation_tell. *ret_result: an object of its own, which is shown; also of one that
 * fails or is cancelled, as what was done until then. */
typedef enum cairn_code cairn_srv_operation_work(struct cairn_srv *server,
                                                 struct cairn_store_worker *worker,
                                                 const json_t *arguments, void *owner,
                                                 json_t **ret_result, struct cairn_error *err);
/* How far it is; false: it is to end, by CAIRN_CANCELLED. */
bool cairn_srv_operation_tell(void *owner, uint64_t done, uint64_t total);
/* Inside a change of the work: is it still this server's (O03)? Else CAIRN_BUSY. */
enum cairn_code cairn_srv_operation_check(struct cairn_srv_tx *tx, void *owner,
                                          struct cairn_error *err) CAIRN_MUST_USE;
/* Is that since somebody cancelled it? Else the server stops. */
bool cairn_srv_operation_cancelled(const void *owner);

struct cairn_srv_operation_wish {
    const char *kind; /* "import", "export", "promote", "verify", "remove" */
    bool reads;       /* it changes nothing: whoever may read may have begun it */
    bool alone;       /* one of that kind and run at a time, whatever is asked for */
    cairn_srv_operation_work *work; /* NULL: the command `cairn` does it */
    const struct cairn_run_name *name;
    const struct cairn_srv_caller *caller;
    const char *path;   /* as it was asked for; stands in messages */
    json_t *request;    /* as it was asked for, and is shown */
    json_t *arguments;  /* of the command: texts */
    struct cairn_srv_place place; /* taken over */
    bool inside; /* the command works in the place's folder; else it is its descriptor 3 */
    bool sends;  /* the command brings an uploader, which needs the store's keys */
    /* What is to be kept or refused together with its row: in that change, and before it. NULL:
     * nothing. */
    enum cairn_code (*first)(struct cairn_srv_tx *tx, void *argument, struct cairn_error *err);
    void *argument; /* of first */
};
/* *ret_made false: one that is alike is not over, and that is the id. */
enum cairn_code cairn_srv_operation_begin(struct cairn_srv *server,
                                          struct cairn_srv_operation_wish *take_wish,
                                          char ret_id[CAIRN_SRV_OPERATION_BYTES], bool *ret_made,
                                          struct cairn_error *err) CAIRN_MUST_USE;
/* Ends what a server left that is gone, and forgets old ones; now and then. */
enum cairn_code cairn_srv_operations_look(struct cairn_srv *server,
                                          struct cairn_error *err) CAIRN_MUST_USE;
