/* SPDX-License-Identifier: Apache-2.0 */
/*
 * operations: what this server does for a caller who does not wait for it, by the command
 * `cairn` in a process of its own, or on a thread here.
 *
 * Why:     who starts an import or an export by a call has no shell; and what reads a stranger's
 *          files must be able to die without the server.
 * Promise: O01  a path is opened only where it lies in a folder that the settings name (convert.c).
 *          O02  an operation ends: as done, failed or cancelled, or, when its server ended or was
 *               stopped, as interrupted, said by whichever server finds it.
 *          O03  a server that was stopped for longer than job-lease changes nothing of an operation
 *               that another one has ended.
 *          1    at most operations-at-once run that change something, and as many that only read;
 *               projects take turns at these places. CAIRN_SRV_OPERATIONS_WAITING_MAX of each kind
 *               wait; of one token CAIRN_SRV_OPERATIONS_OF_TOKEN_MAX run or wait.
 *          2    the command gets a token of its own, for one project, that ends with it.
 *          3    the answer to a call is the same object whoever begins, lists or cancels it; its
 *               status is 202 until the operation is over, then 200.
 * Limits:  see above; progress is written once a second.
 * Threads: begin and look from any; threads of its own run the commands. A child has one owner.
 * Next:    server/ledger/operations.h, server/operations/child.c, server/operations/convert.c.
 */
#pragma once

#include <sys/types.h>

#include "common/json.h"
#include "server/access/access.h"
#include "server/http/request.h"
#include "server/ledger/operations.h"

#define CAIRN_SRV_OPERATIONS_WAITING_MAX 256
#define CAIRN_SRV_OPERATIONS_OF_TOKEN_MAX 64
#define CAIRN_SRV_REMOVE "remove" /* the kind of operation that counts versions, not bytes */

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
/* Was it cancelled? Else the server stops. */
bool cairn_srv_operation_cancelled(const void *owner);

/* A path on the server's machine that a caller named, opened (convert.c). */
struct cairn_srv_place {
    int folder_fd;  /* of the folder, or of the folder of the file */
    char name[256]; /* of the file in it; "": it is a folder */
};
void cairn_srv_place_release(struct cairn_srv_place *place);

struct cairn_srv_operation_wish {
    const char *kind; /* "import", "export", "promote", "verify", "remove" */
    bool reads;       /* it changes nothing: a scope to read is enough to have begun it */
    bool alone;       /* one of that kind and run at a time, whatever is asked for */
    cairn_srv_operation_work *work; /* NULL: the command `cairn` does it */
    const struct cairn_run_name *name;
    const struct cairn_srv_caller *caller;
    const char *path;             /* as it was asked for; stands in messages */
    json_t *request;              /* as it was asked for, and is shown */
    json_t *arguments;            /* of the command: texts */
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
/* The answer to the call that has begun one: as it stands, with its Location. */
enum cairn_code cairn_srv_reply_begun(struct cairn_srv_request *request, const char *id,
                                      struct cairn_srv_reply *reply,
                                      struct cairn_error *err) CAIRN_MUST_USE;

/* ---- the command `cairn` in a process of its own (child.c) ---- */

struct cairn_srv_child {
    pid_t pid; /* 0: it has ended */
    int status;
    int output_fd, error_fd;
    struct cairn_buf output, line;
};
/* Takes in what it says, for that long at most; false: it has ended, and all was taken in. */
bool cairn_srv_child_listen(struct cairn_srv_child *child, int timeout_ms,
                            void (*line)(void *owner, struct cairn_view text), void *owner);
void cairn_srv_child_signal(const struct cairn_srv_child *child, int signal);
/* Kills it if it runs. */
void cairn_srv_child_release(struct cairn_srv_child *child);

struct cairn_srv_operation_command {
    json_t *arguments; /* owned; the verb first */
    bool sends;        /* to the store itself, by an uploader that it brings */
    struct cairn_srv_place place;
    bool inside;
    char *path; /* owned */
};
void cairn_srv_operation_command_release(struct cairn_srv_operation_command *command);
/* token NULL: none is needed. */
enum cairn_code cairn_srv_operation_command_start(struct cairn_srv *server, uint16_t port,
                                                  const struct cairn_srv_operation_command *command,
                                                  const char *token, struct cairn_srv_child *ret,
                                                  struct cairn_error *err) CAIRN_MUST_USE;
/* The place as the command names it becomes the path that was asked for. */
enum cairn_code cairn_srv_operation_command_say(const struct cairn_srv_operation_command *command,
                                                const char *text, struct cairn_buf *ret,
                                                struct cairn_error *err) CAIRN_MUST_USE;
/* The name by which the command reaches the place that it does not work in. */
#define CAIRN_SRV_OPERATION_FOLDER "/proc/self/fd/3"
