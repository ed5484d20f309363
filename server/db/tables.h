/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tables: the tables of the catalog's schema: columns, types and keys.
 *
 * Why:     a copy of a catalog takes all that is there; a table or column that a later migration
 *          adds must not have to be named a second time.
 * Promise: 1   they are read from a catalog in memory that the migrations have just made, in the
 *              order in which they were made: what a table refers to stands before it.
 * Limits:  64 columns, 8 of them a key, in a table.
 * Threads: immutable after read.
 * Next:    server/db/copy.h, server/db/pack.h.
 */
#pragma once

#include "server/db/engine.h"

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
