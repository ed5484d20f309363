/* SPDX-License-Identifier: Apache-2.0 */
/*
 * call: requests of a verb to the server, and what their answers say.
 *
 * Why:     most verbs are one or two requests about what their argument names.
 * Promise: 1   the path of a run or checkpoint is made in cli/ref.h alone.
 *          2   an answer is read by its form of api/messages.def; one of another form is
 *              CAIRN_PROTOCOL naming the member.
 * Limits:  one connection a call.
 * Threads: main thread.
 * Next:    cli/verbs/ls.c, cli/verbs/rm.c, cli/verbs/show.c.
 */
#pragma once

#include "api/wire/messages.h"
#include "cli/ref.h"
#include "cli/verb.h"

struct cairn_cli_call {
    const char *method;   /* NULL: GET */
    const char *tail;     /* NULL: none; begins with "/" or "?" */
    const json_t *body;   /* NULL: none */
    const char *if_match; /* NULL: none */
    uint32_t timeout_ms;
    uint32_t
        wait_ms; /* of a GET that the server may hold for so long; then timeout_ms is not used */
};
/* ref NULL: of the API as a whole. */
enum cairn_code cairn_cli_call(const struct cairn_cli *cli, const struct cairn_cli_ref *ref,
                               struct cairn_cli_call call, json_t **ret,
                               struct cairn_error *err) CAIRN_MUST_USE;
/* A version by its id, step or name; of a step of which no save can be read any more or yet, and
 * one has failed, that one (its state tells). */
enum cairn_code cairn_cli_version_or_failed(const struct cairn_cli *cli,
                                            const struct cairn_cli_ref *ref, json_t **ret,
                                            struct cairn_error *err) CAIRN_MUST_USE;
/* The items of the list at path, page by page, at most limit. *ret_more: there are others; it may
 * be NULL. */
enum cairn_code cairn_cli_list(const struct cairn_cli *cli, const char *path, uint64_t limit,
                               json_t *items, bool *ret_more,
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
