/* SPDX-License-Identifier: Apache-2.0 */
/*
 * copy: a whole catalog into another one, of the same engine or the other, and a backup of it:
 * cairn-server --copy-catalog and --backup-catalog, which `cairn catalog` runs.
 *
 * Why:     a site that outgrows one file, or one that goes back to it, takes along all that its
 *          catalog decided; that a database took rows does not say that it gives the same ones
 *          back. The command is installed on machines that have no database's libraries; the
 *          server's program has both engines, and stands where a catalog does.
 * Promise: 1   neither is used by a server meanwhile: both engines' locks are held, or the copy is
 *              refused.
 *          2   the target is empty before, or a part of an earlier copy of the same catalog, which
 *              is gone on with: a copy that is killed at any time is started again, also when it
 *              had ended and nobody was told.
 *          3   when it returns CAIRN_OK every row of every table was read on both sides and is the
 *              same; a row that differs is named, with its column.
 *          4   until then no server starts on the target (cairn_srv_copy_is_over).
 *          5   the source is brought to this program's schema, as by a start of the server, and
 *              changed in nothing else.
 *          6   CAIRN_OK means that all rows and all columns are equal, bit by bit, and none is on
 *              one side alone.
 *          7   the first row that differs is named by its key, with the column and both values, as
 *              CAIRN_CORRUPT.
 *          8   results go to standard output, progress and failures to standard error, in the forms
 *              of docs/command.md; the exit status is that of docs/codes.md.
 *          9   what becomes of grant.key is said: copied from folder to folder, else where it is
 *              needed.
 * Limits:  pages of CAIRN_SRV_COPY_ROWS_MAX rows, about 4 MiB; a row of 256 MiB; values of rows
 *          that differ are shown with at most 48 bytes.
 * Threads: one.
 * Next:    server/db/copy_page.h; cli/verbs/upkeep.c; docs/catalog.md.
 */
#pragma once

#include "common/hash/hash.h"
#include "server/db/catalog.h"
#include "server/db/copy_page.h"

#define CAIRN_SRV_COPY_ROWS_MAX 8192
#define CAIRN_SRV_COPY_TABLES_MAX 64

struct cairn_srv_copy_progress {
    bool comparing; /* false: copying */
    const char *table;
    uint64_t rows, rows_in_all; /* of all tables */
};

struct cairn_srv_copy_options {
    const char *from, *to; /* as the setting `catalog` names them, or a folder of SQLite */
    void (*progress)(void *owner, const struct cairn_srv_copy_progress *progress); /* or NULL */
    void *owner;
};

struct cairn_srv_copied {
    struct {
        char name[64];
        uint64_t rows;
        uint8_t sha256[CAIRN_SHA256_BYTES]; /* of its rows (copy_page.h), in the order of its key */
    } tables[CAIRN_SRV_COPY_TABLES_MAX];
    size_t table_count;
    uint64_t rows, rows_found; /* found: of an earlier, unfinished copy */
    bool from_folder, to_folder;
};

enum cairn_code cairn_srv_copy(const struct cairn_srv_copy_options *options,
                               struct cairn_srv_copied *ret,
                               struct cairn_error *err) CAIRN_MUST_USE;

struct cairn_srv_backup {
    uint64_t bytes;  /* of the file */
    unsigned schema; /* of the catalog */
};
/* A backup while a server runs: one state of the catalog, in a file that was not there before. A
 * catalog of PostgreSQL is CAIRN_UNSUPPORTED, and the message says what to use. */
enum cairn_code cairn_srv_backup(const char *from, const char *file, struct cairn_srv_backup *ret,
                                 struct cairn_error *err) CAIRN_MUST_USE;

/* CAIRN_CONFLICT: the catalog is the target of a copy or a reindex that has not ended. */
enum cairn_code cairn_srv_copy_is_over(struct cairn_srv_catalog *catalog,
                                       struct cairn_error *err) CAIRN_MUST_USE;
/* A catalog that is new, or was begun in this way before: until the end no server starts on it.
 * CAIRN_CONFLICT: it holds something. */
enum cairn_code cairn_srv_copy_begin_reindex(const char *where,
                                             struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_srv_copy_end_reindex(struct cairn_srv_catalog *catalog,
                                           struct cairn_error *err) CAIRN_MUST_USE;

/* ---- comparing ---- */

struct cairn_srv_copy_compared {
    void (*counted)(void *owner, uint64_t rows); /* as they were compared; or NULL */
    void *owner;
    uint64_t rows; /* set */
    uint8_t sha256[CAIRN_SHA256_BYTES];
};

/* ---- the command line ---- */

/* What stands behind --copy-catalog: FROM TO [--json] [--progress plain|json|none]. Returns the
 * exit status. */
int cairn_srv_copying_main(int argc, char **argv);
/* What stands behind --backup-catalog, which `cairn catalog backup` runs: FROM FILE [--json]. */
int cairn_srv_backup_main(int argc, char **argv);
