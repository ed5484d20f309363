/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tables: rank tables that seals name, each once in memory and once in the journal.
 *
 * Why:     a rank whose layout did not change would send and journal the same table with each seal,
 *          up to 64 MiB of it.
 * Promise: 1   a table has an entry of its own in the journal, which ends when no save and no
 *              session uses it; a save that was journaled with its digest finds it there after
 *              every restart and every rewrite.
 *          2   a table is named by a later seal once its record is on the disk, and not before.
 * Limits:  a table of CAIRN_TABLE_BYTES_MAX for each session and each save that is open.
 * Threads: all functions need uploader_state held.
 * Next:    uploader/trainers/staging.c takes them, uploader/recover/build.c finds them again.
 */
#pragma once

#include "common/buf.h"
#include "uploader/up.h"

struct cairn_up_table {
    struct cairn_up_table *next;
    uint64_t entry; /* its own in the journal; 0: it stands in a seal's, of an older format */
    uint32_t rank;
    uint32_t users;
    bool written;
    char hex[65];
    struct cairn_buf bytes;
};

/* Checked, copied and with one user. entry 0: of an older journal's seal. */
enum cairn_code cairn_up_table_new_locked(struct cairn_up *up, struct cairn_view bytes,
                                          uint64_t entry, struct cairn_up_table **ret,
                                          struct cairn_error *err) CAIRN_MUST_USE;
/* One that is written; NULL: none. No user is added. */
struct cairn_up_table *cairn_up_table_find_locked(struct cairn_up *up, const char *hex);
/* For the journal, with the table's bytes as the blob. */
json_t *cairn_up_table_record(const struct cairn_up_table *table);
struct cairn_up_table *cairn_up_table_use(struct cairn_up_table *table);
/* The last user closes the entry. */
void cairn_up_table_leave_locked(struct cairn_up *up, struct cairn_up_table **in_table);
/* After a restart: those that no save uses. */
void cairn_up_tables_sweep_locked(struct cairn_up *up);
void cairn_up_tables_free_all(struct cairn_up *up); /* at the end of the process */
