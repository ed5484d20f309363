/* SPDX-License-Identifier: Apache-2.0 */
/*
 * copy_page: one end of a copy: its tables, read a page of rows at a time in the order of the key,
 * and the rows as bytes.
 *
 * Why:     copying and comparing walk the same way through both databases; what is copied, what is
 *          compared and what a digest is taken of must be one thing. A table or column that a later
 *          migration adds must not have to be named a second time.
 * Promise: 1   pages follow each other without a gap or a row twice, whatever is between: a page
 *              begins behind the key that the one before ended with.
 *          2   an end is in nobody else's use from open to close (engine.h#4).
 *          3   equal rows have equal bytes, different rows different ones: for each row the number
 *              of columns (2 bytes), for each column its length (4; all ones: null) and its value;
 *              integers have 8 bytes; most significant byte first.
 *          4   it is the body of what PostgreSQL takes by COPY ... WITH (FORMAT binary).
 *          5   they are read from a catalog in memory that the migrations have just made, in the
 *              order in which they were made: what a table refers to stands before it.
 * Limits:  CAIRN_SRV_COPY_ROWS_MAX rows a page; as many as had 4 MiB in the page before;
 *          CAIRN_SRV_PACK_BYTES_MAX together. 64 columns, 8 of them a key, in a table.
 * Threads: one; tables are immutable after read.
 * Next:    server/db/copy.c; engine.h (load).
 */
#pragma once

#include "common/buf.h"
#include "server/db/engine.h"

/* ---- the tables of the schema ---- */

#define CAIRN_SRV_COLUMNS_MAX 64
#define CAIRN_SRV_KEY_MAX 8
#define CAIRN_SRV_COLUMN_BYTES 64

struct cairn_srv_table {
    char name[CAIRN_SRV_COLUMN_BYTES];
    char columns[CAIRN_SRV_COLUMNS_MAX][CAIRN_SRV_COLUMN_BYTES];
    char types[CAIRN_SRV_COLUMNS_MAX + 1]; /* as in sql.h: i, t, b */
    size_t column_count;
    size_t key[CAIRN_SRV_KEY_MAX]; /* numbers of columns, in the key's order */
    size_t key_count;
};

struct cairn_srv_tables {
    struct cairn_srv_table *at;
    size_t count, capacity;
    void *place;
    struct cairn_srv_tx *tx; /* the catalog in memory: what a new one holds */
};
enum cairn_code cairn_srv_tables_read(struct cairn_srv_tables *ret,
                                      struct cairn_error *err) CAIRN_MUST_USE;
void cairn_srv_tables_release(struct cairn_srv_tables *tables);

/* ---- rows as bytes ---- */

#define CAIRN_SRV_PACK_BYTES_MAX (CAIRN_GIB)

/* Rows in one piece: CAIRN_AUTO(srv_pack) pack = {0}. */
struct cairn_srv_pack {
    struct cairn_buf bytes;
    uint64_t rows;
};
void cairn_srv_pack_release(struct cairn_srv_pack *pack);

/* A row in such bytes, cut into its columns. */
struct cairn_srv_unpacked {
    struct cairn_view left; /* what follows it; set to all bytes before the first */
    struct cairn_view row;
    struct cairn_view columns[CAIRN_SRV_COLUMNS_MAX]; /* data NULL: null */
    size_t column_count;
};
/* False behind the last one. */
bool cairn_srv_unpack(struct cairn_srv_unpacked *at);
int64_t cairn_srv_unpacked_number(const struct cairn_srv_unpacked *at, size_t column);
/* In the order of the table's key, which is that of both engines: < 0, 0, > 0. */
int cairn_srv_unpacked_compare(const struct cairn_srv_table *table,
                               const struct cairn_srv_unpacked *a,
                               const struct cairn_srv_unpacked *b);

/* ---- one end of a copy ---- */

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
