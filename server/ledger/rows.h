/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rows: which member of a struct each column of a row goes to, by a table.
 *
 * Why:     a column number in code says nothing, and a column that is added moves all behind it.
 * Promise: 1   rows.def names the columns of a row once, in the order of its statements, and all of
 *              them: a test counts them.
 * Limits:  structs of up to 64 KiB.
 * Threads: immutable.
 * Next:    server/ledger/rows.def, server/db/sql.h; tests/server/test_statements.c.
 */
#pragma once

#include "server/db/sql.h"

/* srv_row_<name>: the current row; texts and bytes are valid until the next one. Not for
 * structs that own texts, which srv_rows_take fills. */
#define ROWS(name, type, statement, from, ...)                                                     \
    struct srv_fields srv_fields_##name(void);                                                     \
    struct type srv_row_##name(const struct srv_rows *rows);
#include "server/ledger/rows.def"
#undef ROWS
#define ROW(name) srv_fields_##name()
