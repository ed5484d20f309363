/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pack: rows of a table as bytes, the same whichever database they were read from.
 *
 * Why:     what is copied, what is compared and what a digest is taken of must be one thing.
 * Promise: 1   equal rows have equal bytes, different rows different ones: for each row the number
 *              of columns (2 bytes), for each column its length (4; all ones: null) and its value;
 *              integers have 8 bytes; most significant byte first.
 *          2   it is the body of what PostgreSQL takes by COPY ... WITH (FORMAT binary).
 * Limits:  CAIRN_SRV_PACK_BYTES_MAX together.
 * Threads: one owner.
 * Next:    server/db/copy.h, engine.h (load).
 */
#pragma once

#include "common/buf.h"
#include "server/db/tables.h"

#define CAIRN_SRV_PACK_BYTES_MAX (CAIRN_GIB)

/* Rows in one piece: CAIRN_AUTO(srv_pack) pack = {0}. */
struct cairn_srv_pack {
    struct cairn_buf bytes;
    uint64_t rows;
};
void cairn_srv_pack_release(struct cairn_srv_pack *pack);
void cairn_srv_pack_clear(struct cairn_srv_pack *pack);
/* The row that a query of all columns of the table, in their order, stands at. */
enum cairn_code cairn_srv_pack_add(struct cairn_srv_pack *pack, const struct cairn_srv_table *table,
                                   const struct cairn_srv_rows *row,
                                   struct cairn_error *err) CAIRN_MUST_USE;

/* A row with this text as its key, and nulls beside it. */
enum cairn_code cairn_srv_pack_add_key(struct cairn_srv_pack *pack,
                                       const struct cairn_srv_table *table, const char *key,
                                       struct cairn_error *err) CAIRN_MUST_USE;

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
