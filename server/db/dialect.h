/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dialect: what stands in statements.def and migrations.def, in PostgreSQL's words.
 *
 * Why:     a statement that stands twice is changed once.
 * Promise: 1   a statement's parameters ?1, ?2 become $1, $2, and nothing else changes.
 *          2   a migration's types hold the same values and sort them the same way: TEXT by bytes,
 *              INTEGER in 64 bits; a key that SQLite hands out by itself PostgreSQL hands out, too.
 *          3   what stands in quotes is left alone.
 * Limits:  words in upper case, as the two tables write them; no comments in the text.
 * Threads: stateless.
 * Next:    server/db/engine_postgres.c.
 */
#pragma once

#include "common/buf.h"

enum cairn_code cairn_srv_dialect_statement(const char *sql, struct cairn_buf *ret,
                                            struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_srv_dialect_schema(const char *sql, struct cairn_buf *ret,
                                         struct cairn_error *err) CAIRN_MUST_USE;
