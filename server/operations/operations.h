/* SPDX-License-Identifier: Apache-2.0 */
/*
 * operations: work that a caller starts and does not wait for, by the command `cairn` in a child
 * process, or on a thread of this server.
 *
 * Why:     a caller who starts an import or export over HTTP has no shell; a program that reads
 *          foreign files must be able to crash without the server.
 * Promise: O01  a path is opened only within a folder that the settings name (convert.c).
 *          O02  an operation ends as done, failed or cancelled, or, if its server died or was
 *               stopped, as interrupted, which any server records.
 *          O03  a server suspended for longer than job-lease changes nothing of an operation that
 *               another server has ended.
 *          1    at most operations-at-once changing operations run, and as many reading ones;
 *               projects take turns. SRV_OPERATIONS_WAITING_MAX of each kind wait; one token
 *               has at most SRV_OPERATIONS_OF_TOKEN_MAX running or waiting.
 *          2    the command gets its own token, for one project, which ends with it.
 *          3    begin, list and cancel answer with the same object; begin's status is 202 until the
 *               operation is over, then 200.
 * Limits:  see above; progress is written once a second.
 * Threads: begin and look from any; own threads run the commands. A child has one owner.
 * Next:    server/ledger/operations.h, server/operations/child.c, server/operations/convert.c.
 */
#pragma once

#include <sys/types.h>

#include "server/http/request.h"
#include "server/ledger/operations.h"

#define SRV_OPERATIONS_WAITING_MAX 256
#define SRV_OPERATIONS_OF_TOKEN_MAX 64
#define SRV_REMOVE "remove" /* kind of operation; its progress counts versions, not bytes */

enum cairn_code srv_operations_new(struct srv *server, struct srv_operations **ret,
                                   struct cairn_error *err) CAIRN_MUST_USE;
/* Ends running and waiting operations as interrupted; refuses new ones. */
void srv_operations_stop(struct srv_operations *operations);
/* Stops first. Accepts NULL. */
void srv_operations_free(struct srv_operations *operations);
void srv_operations_listen(struct srv_operations *operations, uint16_t port);

/* Work done on a thread of the operations. owner: for srv_operation_tell. *ret_result: a JSON
 * object to show; on failure or cancel, what was done until then. */
typedef enum cairn_code srv_operation_work(struct srv *server, struct cairn_store_worker *worker,
                                           const json_t *arguments, void *owner,
                                           json_t **ret_result, struct cairn_error *err);
/* Reports progress; false: end with CAIRN_CANCELLED. */
bool srv_operation_tell(void *owner, uint64_t done, uint64_t total);
/* In a transaction of the work: CAIRN_BUSY if the operation is no longer this server's (O03). */
enum cairn_code srv_operation_check(struct srv_tx *tx, void *owner,
                                    struct cairn_error *err) CAIRN_MUST_USE;
/* True: it was cancelled; false: the server stops. */
bool srv_operation_cancelled(const void *owner);

/* A path on the server's machine that a caller named, opened (convert.c). */
struct srv_place {
    int folder_fd;  /* the folder, or the file's folder */
    char name[256]; /* the file in it; "": a folder */
};
void srv_place_release(struct srv_place *place);

struct srv_operation_wish {
    const char *kind;         /* "import", "export", "promote", "verify", "remove" */
    bool reads;               /* changes nothing, so that a read scope suffices */
    bool alone;               /* one of this kind and run at a time, whatever the request */
    srv_operation_work *work; /* NULL: run the command `cairn` */
    const struct cairn_run_name *name;
    const struct srv_caller *caller;
    const char *path;       /* as requested; for messages */
    json_t *request;        /* the request, as shown */
    json_t *arguments;      /* the command's, as strings */
    struct srv_place place; /* ownership moves in */
    bool inside;            /* working directory: place's folder; otherwise it is descriptor 3 */
    bool sends;             /* the command uploads and needs the store's keys */
    /* Runs in the transaction of the row, before it, to write or refuse; may be NULL. */
    enum cairn_code (*first)(struct srv_tx *tx, void *argument, struct cairn_error *err);
    void *argument;
};
/* *ret_made false: the same request is still running, and ret_id is its id. */
enum cairn_code srv_operation_begin(struct srv *server, struct srv_operation_wish *take_wish,
                                    char ret_id[SRV_OPERATION_BYTES], bool *ret_made,
                                    struct cairn_error *err) CAIRN_MUST_USE;
/* Ends operations of servers that are gone, and deletes old rows; call at intervals. */
enum cairn_code srv_operations_look(struct srv *server, struct cairn_error *err) CAIRN_MUST_USE;
/* Answers the call that began an operation, with its state and Location. */
enum cairn_code srv_reply_begun(struct srv_request *request, const char *id,
                                struct srv_reply *reply, struct cairn_error *err) CAIRN_MUST_USE;

/* ---- the command `cairn` in a child process (child.c) ---- */

struct srv_child {
    pid_t pid;
    int status;
    int output_fd, error_fd;
    struct cairn_buf output, line;
};
/* Reads output for at most timeout_ms; false: it exited, and all output was read. */
bool srv_child_listen(struct srv_child *child, int timeout_ms,
                      void (*line)(void *owner, struct cairn_view text), void *owner);
void srv_child_signal(const struct srv_child *child, int signal);
void srv_child_release(struct srv_child *child);

struct srv_operation_command {
    json_t *arguments; /* owned; the verb first */
    bool sends;        /* uploads to the store itself */
    struct srv_place place;
    bool inside;
    char *path; /* owned */
};
void srv_operation_command_release(struct srv_operation_command *command);
/* token may be NULL. */
enum cairn_code srv_operation_command_start(struct srv *server, uint16_t port,
                                            const struct srv_operation_command *command,
                                            const char *token, struct srv_child *ret,
                                            struct cairn_error *err) CAIRN_MUST_USE;
/* Replaces the command's name of the place by the requested path. */
enum cairn_code srv_operation_command_say(const struct srv_operation_command *command,
                                          const char *text, struct cairn_buf *ret,
                                          struct cairn_error *err) CAIRN_MUST_USE;
/* The command's path of a place that is not its working directory. */
#define SRV_OPERATION_FOLDER "/proc/self/fd/3"
