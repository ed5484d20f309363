/* SPDX-License-Identifier: Apache-2.0 */
/*
 * copy_page: one side of a copy: its tables, read in pages of rows in key order, and rows as bytes.
 *
 * Why:     copying, comparing and hashing must read the same bytes from both databases. A table or
 *          column that a later migration adds must be included without being named here.
 * Promise: 1   pages have no gap or repeated row: each begins after the previous page's last key.
 *          2   each side is locked against other processes from open to close (engine.h#4).
 *          3   equal rows have equal bytes, different rows different ones: per row the number of
 *              columns (2 bytes), per column its length (4; all ones: null) and value; integers
 *              have 8 bytes; most significant byte first.
 *          4   the bytes are the body of PostgreSQL's COPY ... WITH (FORMAT binary).
 *          5   tables are read from a new in-memory catalog, referenced tables before others.
 * Limits:  SRV_COPY_ROWS_MAX rows a page; as many as filled 4 MiB in the previous page;
 *          SRV_PACK_BYTES_MAX together. 64 columns, 8 of them a key, in a table.
 * Threads: one; tables are immutable after read.
 * Next:    server/db/copy.c; engine.h (load).
 */
#pragma once

#include "server/db/engine.h"

#define SRV_COLUMNS_MAX 64
#define SRV_KEY_MAX 8
#define SRV_COLUMN_BYTES 64

struct srv_table {
    char name[SRV_COLUMN_BYTES];
    char columns[SRV_COLUMNS_MAX][SRV_COLUMN_BYTES];
    char types[SRV_COLUMNS_MAX + 1]; /* as in sql.h: i, t, b */
    size_t column_count;
    size_t key[SRV_KEY_MAX]; /* column indexes, in key order */
    size_t key_count;
};

struct srv_tables {
    struct srv_table *at;
    size_t count, capacity;
    void *place;
    struct srv_tx *tx; /* the in-memory catalog: the rows of a new one */
};
enum cairn_code srv_tables_read(struct srv_tables *ret, struct cairn_error *err) CAIRN_MUST_USE;
void srv_tables_release(struct srv_tables *tables);

#define SRV_PACK_BYTES_MAX (CAIRN_GIB)

/* Packed rows: SRV_AUTO(pack) pack = {0}. */
struct srv_pack {
    struct cairn_buf bytes;
    uint64_t rows;
};
void srv_pack_release(struct srv_pack *pack);

/* One packed row, split into columns. */
struct srv_unpacked {
    struct cairn_view left; /* the bytes after it; set to all bytes at first */
    struct cairn_view row;
    struct cairn_view columns[SRV_COLUMNS_MAX]; /* data NULL: null */
    size_t column_count;
};
/* False after the last row. */
bool srv_unpack(struct srv_unpacked *at);
int64_t srv_unpacked_number(const struct srv_unpacked *at, size_t column);
/* Compares keys, which both engines order alike: < 0, 0, > 0. */
int srv_unpacked_compare(const struct srv_table *table, const struct srv_unpacked *a,
                         const struct srv_unpacked *b);

struct srv_copy_texts;

struct srv_copy_end {
    const struct srv_engine *engine;
    void *place;
    struct srv_tx *writer, *reader; /* in memory: the same connection */
    const struct srv_tables *tables;
    struct srv_copy_texts *texts;
    const char *called; /* name in messages */
};
/* is_source: the catalog must exist. */
enum cairn_code srv_copy_end_open(const char *where, bool is_source,
                                  const struct srv_tables *tables, struct srv_copy_end *ret,
                                  struct cairn_error *err) CAIRN_MUST_USE;
/* Opens the in-memory catalog that the tables were read from. */
enum cairn_code srv_copy_end_of(const struct srv_tables *tables, struct srv_copy_end *ret,
                                struct cairn_error *err) CAIRN_MUST_USE;
void srv_copy_end_close(struct srv_copy_end *end);

/* Position in a table; zero: before its first row. */
struct srv_copy_cursor {
    bool begun;
    struct srv_pack page; /* rows read last; empty: the end */
    struct cairn_buf key; /* packed key: the next page begins after it */
    uint64_t rows_next;
};
void srv_copy_cursor_release(struct srv_copy_cursor *at);
enum cairn_code srv_copy_page(struct srv_copy_end *end, size_t table, struct srv_copy_cursor *at,
                              struct cairn_error *err) CAIRN_MUST_USE;
/* Moves past the table's last row. */
enum cairn_code srv_copy_last(struct srv_copy_end *end, size_t table, struct srv_copy_cursor *at,
                              struct cairn_error *err) CAIRN_MUST_USE;
/* Moves past the row with this text key. */
enum cairn_code srv_copy_behind(struct srv_copy_end *end, size_t table, const char *key,
                                struct srv_copy_cursor *at, struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code srv_copy_count(struct srv_copy_end *end, size_t table, uint64_t *ret,
                               struct cairn_error *err) CAIRN_MUST_USE;
/* Deletes all rows of a table; inside a transaction of the writer. */
enum cairn_code srv_copy_clear(struct srv_copy_end *end, size_t table,
                               struct cairn_error *err) CAIRN_MUST_USE;
