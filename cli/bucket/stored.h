/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stored: runs, checkpoints, shards and tensors as a store alone tells them, in the API's form.
 *
 * Why:     with the server down one must still see what there is to get back.
 * Promise: 1   items have the fields of the API's; what only a catalog knows is null.
 *          2   no more is listed than is committed; which of it is the latest, superseded or in the
 *              trash is said as the server would (cli/bucket/history.h).
 *          3   what is damaged is listed as `damaged` with the reason, and hides nothing else.
 * Limits:  one manifest in memory; a list of runs reads each key of the store.
 * Threads: one owner.
 * Next:    cli/verbs/ls.c, cli/verbs/show.c.
 */
#pragma once

#include "cli/shell/ref.h"
#include "cli/shell/verb.h"

/* Each appends at most `limit` items. */
enum cairn_code cairn_cli_stored_runs(const struct cairn_cli *cli, uint64_t limit, json_t *items,
                                      struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_cli_stored_versions(const struct cairn_cli *cli,
                                          const struct cairn_run_name *name, uint64_t limit,
                                          json_t *items, struct cairn_error *err) CAIRN_MUST_USE;

struct cairn_cli_stored {
    json_t *version, *shards, *tensors; /* owned; the lists are arrays */
};
/* Of a list of shards, as the server gives it too. */
size_t cairn_cli_opaque_count(const json_t *shards);
void cairn_cli_stored_release(struct cairn_cli_stored *stored);
enum cairn_code cairn_cli_stored_version(const struct cairn_cli *cli,
                                         const struct cairn_cli_ref *ref,
                                         struct cairn_cli_stored *ret,
                                         struct cairn_error *err) CAIRN_MUST_USE;
