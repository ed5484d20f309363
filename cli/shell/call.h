/* SPDX-License-Identifier: Apache-2.0 */
/*
 * call: requests of a verb to the server or to this node's uploader, and their replies.
 *
 * Why:     verbs name runs and checkpoints in the same way, and most make one or two requests. A
 *          restart behind a load balancer or a proxy's 502 must not end a wait of an hour.
 * Promise: 1   only this file builds the path of a run or checkpoint.
 *          2   a reply that does not fit api/messages.def is CAIRN_PROTOCOL naming the member.
 *          3   a patient call retries transient failures (no answer, unavailable, busy, timeout, a
 *              proxy's 5xx) until its deadline, then returns the last failure.
 *          4   before the first answer only a 5xx is retried: where nothing listens the address is
 *              probably wrong, and the call fails at once.
 *          5   an outage is noted once, and its end once.
 *          6   long polls stay below proxies' timeouts (docs/proxies.md): CLI_LONG_POLL_MS.
 *          7   a failed, cancelled or interrupted operation is an error with its code and message;
 *              at the deadline it is CAIRN_TIMEOUT, and the server continues. Promote and verify
 *              are begun again where their server was stopped.
 *          8   a request to the uploader ends at its deadline; CAIRN_UPLOADER_GONE: nothing
 *              listens, or the uploader ended.
 * Limits:  one connection per call; retries every half second; an operation is polled every second,
 *          for an hour without --timeout.
 * Threads: main thread.
 * Next:    cli/verbs/rm.c, cli/verbs/wait.c; docs/socket.md.
 */
#pragma once

#include "api/documents/keys.h"
#include "api/wire/frame.h"
#include "api/wire/messages.h"
#include "cli/shell/progress.h"

/* ---- references: project/run@1200 ---- */

struct cli_ref {
    struct cairn_run_name name;
    char version[64]; /* "latest", "prod", "1200", "ckpt_..."; "": no @ */
};
enum cairn_code cli_ref_parse(const char *text, struct cli_ref *ret,
                              struct cairn_error *err) CAIRN_MUST_USE;
/* Parses a reference without @: a run. */
enum cairn_code cli_ref_run(const char *verb, const char *text, struct cli_ref *ret,
                            struct cairn_error *err) CAIRN_MUST_USE;
/* Parses a reference with @: a checkpoint. */
enum cairn_code cli_ref_checkpoint(const char *text, struct cli_ref *ret,
                                   struct cairn_error *err) CAIRN_MUST_USE;
/* ("/v1/runs/PROJECT/RUN[/checkpoints/VERSION]"; ref NULL: "/v1") + tail: "/...", "?..." or "". */
enum cairn_code cli_path(const struct cli_ref *ref, const char *tail, struct cairn_buf *ret,
                         struct cairn_error *err) CAIRN_MUST_USE;

struct cli_call {
    const char *method;   /* NULL: GET */
    const char *tail;     /* begins with "/" or "?"; NULL: none */
    const json_t *body;   /* NULL: none */
    const char *if_match; /* NULL: none */
    uint32_t timeout_ms;
    uint32_t wait_ms; /* long poll of a GET; timeout_ms is then unused */
};
/* ref NULL: tail is below /v1. */
enum cairn_code cli_call(const struct cli *cli, const struct cli_ref *ref, struct cli_call call,
                         json_t **ret, struct cairn_error *err) CAIRN_MUST_USE;
/* Like cli_call; parses into ret_row (zeroed or with defaults); strings point into *ret. */
enum cairn_code cli_ask(const struct cli *cli, const struct cli_ref *ref, struct cli_call call,
                        enum cairn_message form, json_t **ret, void *ret_row,
                        struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cli_get(const struct cli *cli, const struct cli_ref *ref, const char *tail,
                        enum cairn_message form, json_t **ret, void *ret_row,
                        struct cairn_error *err) CAIRN_MUST_USE;
/* A version by id, step or name; for a step without a readable save its failed save, if any. */
enum cairn_code cli_version_or_failed(const struct cli *cli, const struct cli_ref *ref,
                                      json_t **ret, struct cairn_error *err) CAIRN_MUST_USE;
/* Appends up to limit items of a paged list. *ret_more: the list has more; may be NULL. */
enum cairn_code cli_list(const struct cli *cli, const struct cli_ref *ref, const char *tail,
                         uint64_t limit, json_t *items, bool *ret_more,
                         struct cairn_error *err) CAIRN_MUST_USE;
/* take_item NULL counts as out of memory. */
enum cairn_code cli_list_add(json_t *items, json_t *take_item,
                             struct cairn_error *err) CAIRN_MUST_USE;
/* ret: the form's struct, zeroed or with its defaults; its strings point into json. */
enum cairn_code cli_reply_read(enum cairn_message form, const json_t *json, void *ret,
                               struct cairn_error *err) CAIRN_MUST_USE;
/* Declares row, reads json into it, and returns from the caller if that fails. */
#define CLI_READ(form, row, json, err)                                                             \
    struct cairn_msg_##form row = {0};                                                             \
    CAIRN_TRY(cli_reply_read(CAIRN_MESSAGE_##form, json, &row, err))
/* If an older server may have refused something unknown, asks its release and names it in *err. */
void cli_name_older_server(const struct cli *cli, enum cairn_code code, struct cairn_error *err);
/* Parses the first argument; without a version it means latest. */
enum cairn_code cli_ref_latest(const struct cli *cli, struct cli_ref *ret,
                               struct cairn_error *err) CAIRN_MUST_USE;

/* ---- calls that retry ---- */

#define CLI_LONG_POLL_MS 10000

struct cli_patience {
    uint64_t deadline; /* monotonic clock; UINT64_MAX: none */
    bool answered;     /* the server has answered at least once */
    bool away;         /* the last call got no answer */
};
/* Deadline of a whole wait: --timeout (cleared, so that it does not bound each request), else
 * otherwise_ms; 0: no deadline. */
uint64_t cli_begin_wait(struct cli *cli, uint64_t otherwise_ms);
/* Promises 3 and 4 for one failure. answered: the server has answered before. */
bool cli_failure_is_transient(bool answered, enum cairn_code code, const struct cairn_error *why);
/* cli_call with retries. Long polls are bounded by call.wait_ms and the deadline. */
enum cairn_code cli_patient_call(struct cli_patience *patience, const struct cli *cli,
                                 const struct cli_ref *ref, struct cli_call call, json_t **ret,
                                 struct cairn_error *err) CAIRN_MUST_USE;

/* ---- server operations ---- */

/* Makes a call that begins an operation, and waits for its end. If the server of the operation is
 * stopped meanwhile the call is repeated, until the deadline: it must be one that finds what is
 * done. *ret: the operation's row on success. job: label of the meter. */
enum cairn_code cli_operation_run(const struct cli *cli, const char *job, const struct cli_ref *ref,
                                  struct cli_call call, json_t **ret,
                                  struct cairn_error *err) CAIRN_MUST_USE;
/* Waits for the operation's end. *ret: its row on success; may be NULL. */
enum cairn_code cli_operation_follow(const struct cli *cli, const char *job, const char *id,
                                     json_t **ret, struct cairn_error *err) CAIRN_MUST_USE;
/* Promise 7 for an operation that has ended. */
enum cairn_code cli_operation_end(const struct cairn_msg_operation_row *row,
                                  struct cairn_error *err) CAIRN_MUST_USE;

/* ---- this node's uploader, over its socket ---- */

struct cli_uploader {
    int fd; /* -1: not connected */
    uint64_t numbered;
    struct cairn_frame_reader reader;
};
enum cairn_code cli_uploader_open(const char *socket_path, struct cli_uploader *ret,
                                  struct cairn_error *err) CAIRN_MUST_USE;
void cli_uploader_close(struct cli_uploader *uploader);
/* take_request: a message of the group REQUEST, made by CAIRN_PACK. *ret: the reply. */
enum cairn_code cli_uploader_ask(struct cli_uploader *uploader, json_t *take_request,
                                 uint64_t deadline_ms, json_t **ret,
                                 struct cairn_error *err) CAIRN_MUST_USE;
