/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rows: the smallest change of a catalog, and how many of them are there.
 *
 * Why:     what an engine does with a change that fails is tested by changes of no meaning.
 * Promise: 1   add is one row of the table meta, by the name that it is given.
 * Limits:  the rows that the catalog itself keeps there are counted, too.
 * Threads: any.
 * Next:    tests/server/test_postgres.c, tests/server/test_postgres_cuts.c.
 */
#pragma once

#include "tests/server/world.h"

static const struct srv_statement insert = {"insert", "t",
                                            "INSERT INTO meta(name, value) VALUES(?1, 'x')"};
static const struct srv_statement counting = {"count", "", "SELECT count(*) FROM meta"};

static inline enum cairn_code add(struct srv_tx *tx, void *argument, struct cairn_error *err) {
    return srv_sql_run(tx, NULL, err, &insert, SQL_T((const char *)argument));
}

static inline enum cairn_code count(struct srv_tx *tx, void *argument, struct cairn_error *err) {
    bool found = false;
    return srv_sql_number(tx, &found, argument, err, &counting);
}

/* -1: said why on standard error. */
static inline int64_t rows_of(struct srv_catalog *catalog) {
    int64_t rows = -1;
    struct cairn_error err = {0};
    if (look_by(catalog, count, &rows, &err)) fprintf(stderr, "%s\n", err.message);
    return rows;
}
