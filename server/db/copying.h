/* SPDX-License-Identifier: Apache-2.0 */
/*
 * copying: cairn-server --copy-catalog and --backup-catalog, which `cairn catalog` runs.
 *
 * Why:     the command is installed on machines that have no database's libraries; the server's
 *          program has both engines, and stands where a catalog does.
 * Promise: 1   results go to standard output, progress and failures to standard error, in the forms
 *              of docs/command.md; the exit status is that of docs/codes.md.
 *          2   what becomes of grant.key is said: copied from folder to folder, else where it is
 *              needed.
 * Limits:  none of its own.
 * Threads: one.
 * Next:    server/db/copy.h; cli/verbs/upkeep.c.
 */
#pragma once

/* What stands behind --copy-catalog: FROM TO [--json] [--progress plain|json|none]. Returns the
 * exit status. */
int cairn_srv_copying_main(int argc, char **argv);
/* What stands behind --backup-catalog, which `cairn catalog backup` runs: FROM FILE [--json]. */
int cairn_srv_backup_main(int argc, char **argv);
