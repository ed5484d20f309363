/* SPDX-License-Identifier: Apache-2.0 */
/*
 * postgres: a PostgreSQL server of the test's own, and an empty catalog in it for each who asks.
 *
 * Why:     the tests of the server run over both engines, and must never meet a database that
 *          somebody uses.
 * Promise: 1   the server is started from Debian's package in a new folder, answers on a socket in
 *              that folder alone, and runs as an unprivileged user. It ends, and its folder goes,
 *              with the test program, however that ends (postgres.sh).
 *          2   its texts are sorted as English ones, not by bytes, so that a statement that leaves
 *              the order to the database is found out.
 * Limits:  one server a program; started when it is first asked for.
 * Threads: main thread only.
 * Next:    tests/server/test_postgres.c.
 */
#pragma once

#include "common/error.h"

/* CAIRN_TEST_CATALOG=postgresql: worlds keep their catalog there. */
bool cairn_postgres_wanted(void);
/* Why there can be none here; NULL: there can. */
const char *cairn_postgres_missing(void);
#define NEED_POSTGRES                                                                              \
    do {                                                                                           \
        if (cairn_postgres_missing()) SKIP(cairn_postgres_missing());                              \
    } while (0)
/* char url[200] of a new schema; the test is skipped where there is no PostgreSQL. */
#define POSTGRES(url)                                                                              \
    NEED_POSTGRES;                                                                                 \
    char url[200];                                                                                 \
    REQUIRE(cairn_postgres_catalog(url, sizeof(url)))
/* A new schema, as the setting `catalog` names it; false: said why on standard error. */
bool cairn_postgres_catalog(char *ret_url, size_t capacity);
/* Loses all that is in it. */
bool cairn_postgres_empty(const char *url);
/* One statement over a connection of the test's own, in the schema that url names. */
bool cairn_postgres_run(const char *url, const char *sql);
/* Its first column of its first row, as a number; -1: failed. */
int64_t cairn_postgres_number(const char *url, const char *sql);

/* Where its socket is. */
const char *cairn_postgres_folder(void);
/* SIGKILL of all its processes, and started again on what is left. */
bool cairn_postgres_kill(void);
bool cairn_postgres_start_again(void);
