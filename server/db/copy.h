/* SPDX-License-Identifier: Apache-2.0 */
/*
 * copy: copies a catalog into another one, of either engine, and makes backups: cairn-server
 * --copy-catalog and --backup-catalog, which `cairn catalog` runs.
 *
 * Why:     a site that outgrows one file, or returns to it, keeps everything its catalog decided;
 *          only reading rows back proves that a database stored them. The server's program runs the
 *          copy, since `cairn` is installed where no database library is.
 * Promise: 1   no server uses source or target: both engines' locks are held, or the copy is
 *              refused.
 *          2   the target is empty, or a partial copy of the same catalog, which is continued: a
 *              copy can be killed at any time and started again, even if it had ended without
 *              reporting.
 *          3   when it returns CAIRN_OK every row of every table was read on both sides and is the
 *              same; a row that differs is named, with its column.
 *          4   until then no server starts on the target (srv_copy_is_over).
 *          5   the source is migrated to this program's schema, and changed in nothing else.
 *          6   CAIRN_OK: all rows and columns are equal, bit by bit, and none is on one side alone.
 *          7   CAIRN_CORRUPT names the first differing row by key, with the column and both values.
 *          8   results go to standard output, progress and failures to standard error, in the forms
 *              of docs/command.md; the exit status is that of docs/codes.md.
 *          9   the output says whether grant.key was copied (folder to folder) or where it is
 *              needed.
 * Limits:  pages of SRV_COPY_ROWS_MAX rows, about 4 MiB; a row of 256 MiB; 48 bytes shown of
 *          a value.
 * Threads: one.
 * Next:    server/db/copy_page.h; cli/verbs/upkeep.c; docs/catalog.md.
 */
#pragma once

#include "common/hash/hash.h"
#include "server/db/copy_page.h"

#define SRV_COPY_ROWS_MAX 8192
#define SRV_COPY_TABLES_MAX 64

struct srv_copy_progress {
    bool comparing; /* false: copying */
    const char *table;
    uint64_t rows, rows_in_all; /* rows_in_all: of all tables */
};

struct srv_copy_options {
    const char *from, *to; /* as in the setting `catalog`, or a folder of SQLite */
    void (*progress)(void *owner, const struct srv_copy_progress *progress); /* or NULL */
    void *owner;
};

struct srv_copied {
    struct {
        char name[64];
        uint64_t rows;
        uint8_t sha256[CAIRN_SHA256_BYTES]; /* of its rows (copy_page.h), in key order */
    } tables[SRV_COPY_TABLES_MAX];
    size_t table_count;
    uint64_t rows, rows_found; /* rows_found: from an earlier, unfinished copy */
    bool from_folder, to_folder;
};

enum cairn_code srv_copy(const struct srv_copy_options *options, struct srv_copied *ret,
                         struct cairn_error *err) CAIRN_MUST_USE;

struct srv_backup {
    uint64_t bytes;
    unsigned schema;
};
/* Backs up one state of the catalog into a new file while a server runs. For PostgreSQL:
 * CAIRN_UNSUPPORTED, with a message that names the alternative. */
enum cairn_code srv_backup(const char *from, const char *file, struct srv_backup *ret,
                           struct cairn_error *err) CAIRN_MUST_USE;

/* CAIRN_CONFLICT: the catalog is the target of an unfinished copy or reindex. */
enum cairn_code srv_copy_is_over(struct srv_catalog *catalog,
                                 struct cairn_error *err) CAIRN_MUST_USE;
/* Prepares a new catalog, closed to servers until the end. CAIRN_CONFLICT: it holds other rows. */
enum cairn_code srv_copy_begin_reindex(const char *where, struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code srv_copy_end_reindex(struct srv_catalog *catalog,
                                     struct cairn_error *err) CAIRN_MUST_USE;

struct srv_copy_compared {
    void (*counted)(void *owner, uint64_t rows); /* progress; or NULL */
    void *owner;
    uint64_t rows; /* set by the comparison */
    uint8_t sha256[CAIRN_SHA256_BYTES];
};

/* Runs --copy-catalog: FROM TO [--json] [--progress plain|json|none]. Returns the exit status. */
int srv_copying_main(int argc, char **argv);
/* Runs --backup-catalog, which `cairn catalog backup` calls: [FROM] FILE [--json]. find_from: the
 * data_dir where FROM is not given. */
#define SRV_FROM_BYTES 513
typedef enum cairn_code srv_backup_from(char ret[SRV_FROM_BYTES], struct cairn_error *err);
int srv_backup_main(int argc, char **argv, srv_backup_from *find_from);
