/* SPDX-License-Identifier: Apache-2.0 */
/*
 * copy_page: one end of a copy, read a page of rows at a time in the order of the key.
 *
 * Why:     copying and comparing walk the same way through both databases.
 * Promise: 1   pages follow each other without a gap or a row twice, whatever is between: a page
 *              begins behind the key that the one before ended with.
 *          2   an end is in nobody else's use from open to close (engine.h#4).
 * Limits:  CAIRN_SRV_COPY_ROWS_MAX rows a page; as many as had 4 MiB in the page before.
 * Threads: one.
 * Next:    server/db/copy.c, server/db/copy_compare.c.
 */
#pragma once

#include "server/db/pack.h"

struct cairn_srv_copy_texts; /* a table's statements */

struct cairn_srv_copy_end {
    const struct cairn_srv_engine *engine;
    void *place;
    struct cairn_srv_tx *writer, *reader; /* one and the same in memory */
    const struct cairn_srv_tables *tables;
    struct cairn_srv_copy_texts *texts;
    const char *called; /* for people */
};
/* A source must be there already. */
enum cairn_code cairn_srv_copy_end_open(const char *where, bool is_source,
                                        const struct cairn_srv_tables *tables,
                                        struct cairn_srv_copy_end *ret,
                                        struct cairn_error *err) CAIRN_MUST_USE;
/* The catalog in memory that the tables were read from. */
enum cairn_code cairn_srv_copy_end_of(const struct cairn_srv_tables *tables,
                                      struct cairn_srv_copy_end *ret,
                                      struct cairn_error *err) CAIRN_MUST_USE;
void cairn_srv_copy_end_close(struct cairn_srv_copy_end *end);

/* Where in a table it is; zero: before its first row. */
struct cairn_srv_copy_cursor {
    bool begun;
    struct cairn_srv_pack page; /* the rows read last; none: the end */
    struct cairn_buf key;       /* the row behind which the next page begins, packed */
    uint64_t rows_next;
};
void cairn_srv_copy_cursor_release(struct cairn_srv_copy_cursor *at);
/* The next page. */
enum cairn_code cairn_srv_copy_page(struct cairn_srv_copy_end *end, size_t table,
                                    struct cairn_srv_copy_cursor *at,
                                    struct cairn_error *err) CAIRN_MUST_USE;
/* To behind the table's last row. */
enum cairn_code cairn_srv_copy_last(struct cairn_srv_copy_end *end, size_t table,
                                    struct cairn_srv_copy_cursor *at,
                                    struct cairn_error *err) CAIRN_MUST_USE;
/* To behind the row of a table with one text as its key. */
enum cairn_code cairn_srv_copy_behind(struct cairn_srv_copy_end *end, size_t table, const char *key,
                                      struct cairn_srv_copy_cursor *at,
                                      struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_srv_copy_count(struct cairn_srv_copy_end *end, size_t table, uint64_t *ret,
                                     struct cairn_error *err) CAIRN_MUST_USE;
/* All rows of a table; inside a transaction of the writer. */
enum cairn_code cairn_srv_copy_clear(struct cairn_srv_copy_end *end, size_t table,
                                     struct cairn_error *err) CAIRN_MUST_USE;
