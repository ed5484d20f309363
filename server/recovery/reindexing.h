/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reindexing: cairn-server --reindex, which is what `cairn reindex` runs.
 *
 * Why:     the command is installed on machines that have no database's libraries; the server's
 *          program has both engines, and the settings that the store is opened with.
 * Promise: 1   the catalog is new, or was begun by the same command; no server starts on it before
 *              the command has ended with nothing unread.
 *          2   without grant.key in the data_dir nothing is begun, unless new-grant-key says that
 *              it is lost for good.
 *          3   results go to standard output; progress, what is damaged or unread, and failures to
 *              standard error; the exit status is that of docs/codes.md: 7 where something is
 *              damaged, 5 where something was not answered.
 * Limits:  none of its own.
 * Threads: one.
 * Next:    server/recovery/reindex.h; cli/verbs/upkeep.c.
 */
#pragma once

#include "server/server.h"

struct cairn_srv_reindexing {
    bool wanted, dry, json, json_progress, quiet, force;
    const char *without; /* NULL, or further stores to leave out, with commas between */
};
/* Takes --reindex, --dry-run, --json, --progress=none, --progress=json and --without=NAMES out of
 * argv. */
void cairn_srv_reindexing_take(int *argc, char **argv, struct cairn_srv_reindexing *ret);
/* server has settings, clock, random and its open stores; what is made besides is the caller's to
 * take down. settings: the same as the server's. */
enum cairn_code cairn_srv_reindexing_run(const struct cairn_srv_reindexing *asked,
                                         struct cairn_srv *server,
                                         struct cairn_srv_settings *settings,
                                         struct cairn_error *err) CAIRN_MUST_USE;
/* Says the failure in the form that was asked for. */
void cairn_srv_reindexing_tell(const struct cairn_srv_reindexing *asked,
                               const struct cairn_error *why);
