/* SPDX-License-Identifier: Apache-2.0 */
/*
 * call: requests of a verb to the server or to this node's uploader, and what their answers say.
 *
 * Why:     every verb names a run or a checkpoint in the same way, and most are one or two requests
 *          about it. One of two servers behind a balancer restarts, a proxy answers 502: a wait of
 *          an hour must not end for that.
 * Promise: 1   the path of a run or checkpoint is made here alone.
 *          2   an answer is read by its form of api/messages.def; one of another form is
 *              CAIRN_PROTOCOL naming the member.
 *          3   a patient call that fails in a way that passes (no answer, unavailable, busy,
 *              timeout, what a proxy says) is made again until the deadline; then its failure is
 *              the answer.
 *          4   before the first answer, only a 5xx is waited out: where nobody listens the address
 *              is more likely wrong, and that is said at once.
 *          5   that the server is away is noted once, and so is that it answers again.
 *          6   no call is held for longer than CAIRN_CLI_LONG_POLL_MS, less than proxies wait for
 *              an answer (docs/proxies.md).
 *          7   an operation that failed, was cancelled or interrupted is an error with its code and
 *              words; where the time is over it is CAIRN_TIMEOUT, and the server goes on.
 *          8   a request to the uploader ends at its deadline; CAIRN_UPLOADER_GONE: nobody listens,
 *              or the process ended meanwhile.
 * Limits:  one connection a call; half a second between two patient ones; an operation is looked at
 *          once a second, for an hour without --timeout.
 * Threads: main thread.
 * Next:    cli/verbs/rm.c, cli/verbs/wait.c; docs/socket.md.
 */
#pragma once

#include "api/documents/keys.h"
#include "api/wire/frame.h"
#include "api/wire/messages.h"
#include "cli/shell/progress.h"

/* ---- references: project/run@1200 as people type it ---- */

struct cairn_cli_ref {
    struct cairn_run_name name;
    char version[64]; /* "latest", "prod", "1200", "ckpt_..."; "" without an @ */
};
enum cairn_code cairn_cli_ref_parse(const char *text, struct cairn_cli_ref *ret,
                                    struct cairn_error *err) CAIRN_MUST_USE;
/* A reference without @, for a verb that takes a whole run. */
enum cairn_code cairn_cli_ref_run(const char *verb, const char *text, struct cairn_cli_ref *ret,
                                  struct cairn_error *err) CAIRN_MUST_USE;
/* One with @, for a verb that takes a checkpoint. */
enum cairn_code cairn_cli_ref_checkpoint(const char *text, struct cairn_cli_ref *ret,
                                         struct cairn_error *err) CAIRN_MUST_USE;
/* "/v1/runs/p/r" tail; ref "" leaves out the checkpoint, and NULL is the API as a whole. tail
 * begins with "/" or "?" or is "". */
enum cairn_code cairn_cli_path(const struct cairn_cli_ref *ref, const char *tail,
                               struct cairn_buf *ret, struct cairn_error *err) CAIRN_MUST_USE;

struct cairn_cli_call {
    const char *method;   /* NULL: GET */
    const char *tail;     /* NULL: none; begins with "/" or "?" */
    const json_t *body;   /* NULL: none */
    const char *if_match; /* NULL: none */
    uint32_t timeout_ms;
    uint32_t wait_ms; /* of a GET that the server may hold so long; then timeout_ms is not used */
};
/* ref NULL: of the API as a whole. */
enum cairn_code cairn_cli_call(const struct cairn_cli *cli, const struct cairn_cli_ref *ref,
                               struct cairn_cli_call call, json_t **ret,
                               struct cairn_error *err) CAIRN_MUST_USE;
/* The same, and its answer read as a form: ret_row is the form's struct, zeroed or with its
 * defaults, and its texts are borrowed from *ret. */
enum cairn_code cairn_cli_ask(const struct cairn_cli *cli, const struct cairn_cli_ref *ref,
                              struct cairn_cli_call call, enum cairn_message form, json_t **ret,
                              void *ret_row, struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_cli_get(const struct cairn_cli *cli, const struct cairn_cli_ref *ref,
                              const char *tail, enum cairn_message form, json_t **ret,
                              void *ret_row, struct cairn_error *err) CAIRN_MUST_USE;
/* A version by its id, step or name; of a step of which no save can be read any more or yet, and
 * one has failed, that one (its state tells). */
enum cairn_code cairn_cli_version_or_failed(const struct cairn_cli *cli,
                                            const struct cairn_cli_ref *ref, json_t **ret,
                                            struct cairn_error *err) CAIRN_MUST_USE;
/* The items of the list there, page by page, at most limit. *ret_more: there are others; it may be
 * NULL. */
enum cairn_code cairn_cli_list(const struct cairn_cli *cli, const struct cairn_cli_ref *ref,
                               const char *tail, uint64_t limit, json_t *items, bool *ret_more,
                               struct cairn_error *err) CAIRN_MUST_USE;
/* take_item NULL: there was no memory for it. */
enum cairn_code cairn_cli_list_add(json_t *items, json_t *take_item,
                                   struct cairn_error *err) CAIRN_MUST_USE;
/* ret: the form's struct, zeroed or with its defaults; texts are borrowed from json. */
enum cairn_code cairn_cli_reply_read(enum cairn_message form, const json_t *json, void *ret,
                                     struct cairn_error *err) CAIRN_MUST_USE;
/* Where what failed may be how a server of an earlier release refuses what it does not know, or
 * answers less than this command needs: asks it for its release, and names it in *err if it is an
 * earlier one. */
void cairn_cli_name_older_server(const struct cairn_cli *cli, enum cairn_code code,
                                 struct cairn_error *err);
/* The first argument; without a version it means the latest. */
enum cairn_code cairn_cli_ref_latest(const struct cairn_cli *cli, struct cairn_cli_ref *ret,
                                     struct cairn_error *err) CAIRN_MUST_USE;

/* ---- calls with patience ---- */

#define CAIRN_CLI_LONG_POLL_MS 10000

struct cairn_cli_patience {
    uint64_t deadline; /* mono clock; UINT64_MAX: none */
    bool answered;     /* the server has been heard at least once */
    bool away;         /* it did not answer the last call */
};
/* The deadline of a whole wait: --timeout, which is none of each request any more, or
 * otherwise_ms; 0: there is none. */
uint64_t cairn_cli_begin_wait(struct cairn_cli *cli, uint64_t otherwise_ms);
/* 3 and 4, of one failure; answered: the server has been heard before. */
bool cairn_cli_failure_passes(bool answered, enum cairn_code code, const struct cairn_error *why);
/* As cairn_cli_call, with patience. wait_ms of call: at most so long is asked for, and never beyond
 * the deadline; at the deadline the answer is not waited for. */
enum cairn_code cairn_cli_patient_call(struct cairn_cli_patience *patience,
                                       const struct cairn_cli *cli, const struct cairn_cli_ref *ref,
                                       struct cairn_cli_call call, json_t **ret,
                                       struct cairn_error *err) CAIRN_MUST_USE;

/* ---- operations of the server ---- */

/* ret: NULL, or its row when it was done. job: "verify", for the progress. */
enum cairn_code cairn_cli_operation_follow(const struct cairn_cli *cli, const char *job,
                                           const char *id, json_t **ret,
                                           struct cairn_error *err) CAIRN_MUST_USE;
/* 7, of one that has ended. */
enum cairn_code cairn_cli_operation_end(const struct cairn_msg_operation_row *row,
                                        struct cairn_error *err) CAIRN_MUST_USE;

/* ---- this node's uploader, over its socket ---- */

struct cairn_cli_uploader {
    int fd; /* -1: none */
    uint64_t numbered;
    struct cairn_frame_reader reader;
};
enum cairn_code cairn_cli_uploader_open(const char *socket_path, struct cairn_cli_uploader *ret,
                                        struct cairn_error *err) CAIRN_MUST_USE;
void cairn_cli_uploader_close(struct cairn_cli_uploader *uploader);
/* take_request: a form of the group REQUEST, as CAIRN_PACK makes it. *ret: its answer. */
enum cairn_code cairn_cli_uploader_ask(struct cairn_cli_uploader *uploader, json_t *take_request,
                                       uint64_t deadline_ms, json_t **ret,
                                       struct cairn_error *err) CAIRN_MUST_USE;
/* All of it: its report, whose texts are borrowed from *ret. */
enum cairn_code cairn_cli_uploader_report(const char *socket_path, uint64_t timeout_ms,
                                          json_t **ret, struct cairn_msg_report *ret_report,
                                          struct cairn_error *err) CAIRN_MUST_USE;
