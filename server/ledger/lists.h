/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lists: lists of versions and of runs as statements give them.
 *
 * Why:     a list is read whole before anything is done with it, since a row that is changed while
 *          its list is being read may be met twice or not at all.
 * Promise: 1    a list is filled anew: what it held before is gone.
 *          2    no more than the limit is read; the rest comes with the next round.
 * Limits:  what the caller says; CAIRN_SRV_ALL has none.
 * Threads: filled inside a transaction; a list belongs to its caller.
 * Next:    server/ledger/version_lists.h, server/ledger/runs.h.
 */
#pragma once

#include "api/keys.h"
#include "server/db/sql.h"

#define CAIRN_SRV_ALL SIZE_MAX

struct cairn_srv_ids {
    struct cairn_version_id *ids; /* owned */
    size_t count, capacity;
};
void cairn_srv_ids_release(struct cairn_srv_ids *ids);
enum cairn_code cairn_srv_ids_add(struct cairn_srv_ids *ids, const struct cairn_version_id *id,
                                  struct cairn_error *err) CAIRN_MUST_USE;
/* The first column of each row. */
enum cairn_code cairn_srv_ids_read(struct cairn_srv_rows *rows, size_t limit,
                                   struct cairn_srv_ids *ret,
                                   struct cairn_error *err) CAIRN_MUST_USE;

/* The project and the run of a row: this column and the next. */
void cairn_srv_rows_name(const struct cairn_srv_rows *rows, int column,
                         struct cairn_run_name *ret);
struct cairn_srv_run_names {
    struct cairn_run_name *names; /* owned */
    size_t count, capacity;
};
void cairn_srv_run_names_release(struct cairn_srv_run_names *names);
/* The first two columns of each row: project and run. */
enum cairn_code cairn_srv_run_names_read(struct cairn_srv_rows *rows, size_t limit,
                                         struct cairn_srv_run_names *ret,
                                         struct cairn_error *err) CAIRN_MUST_USE;
