/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pages: a list of the server, read page by page through the uploader.
 *
 * Why:     versions and runs are listed alike, and a caller could not tell a short list from
 *          checkpoints that are gone.
 * Promise: 1   all rows or none: a page that fails or cannot be read fails the whole call.
 *          2   a list that goes in circles ends.
 * Limits:  rows_max rows.
 * Threads: any; each call has rows of its own.
 * Next:    client/restore/list.c, client/restore/runs.c.
 */
#pragma once

#include "client/session/session.h"

struct cairn_client_list {
    const char *what; /* its rows, in messages */
    bool runs;        /* of all runs; else of the session's versions */
    uint32_t page;
    const char *run, *ref, *state, *labels; /* of versions; NULL: the session's run, all */
    uint64_t limit;                         /* rows that are wanted; 0: all */
    size_t row_bytes, rows_max;
    enum cairn_code (*read)(const json_t *item, void *ret_row, struct cairn_error *err);
    void (*drop)(void *row); /* what read() has made; NULL: rows own nothing */
};
/* *ret_rows is the caller's, for free(); it is never NULL. */
enum cairn_code cairn_client_pages(struct cairn_session *session,
                                   const struct cairn_client_list *list, void **ret_rows,
                                   size_t *ret_count, struct cairn_error *err) CAIRN_MUST_USE;
