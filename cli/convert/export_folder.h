/* SPDX-License-Identifier: Apache-2.0 */
/*
 * export_folder: the files of an export in a folder.
 *
 * Why:     a file that looks whole and is not must never have its name.
 * Promise: 1   a file is written under a name that ends in .part, and gets its own by link() when
 *              all of them are on the disk.
 *          2   each window is noted in a log with its checksum (cli/convert/export_log.h); what is there
 *              still is compared before it is believed.
 * Limits:  one export into a folder at a time, by a lock.
 * Threads: as cli/convert/export_sink.h says.
 * Next:    cli/convert/export_sink.h; cli/convert/export.c.
 */
#pragma once

#include "cli/convert/export_sink.h"

/* *ret is to be closed also after a failure; NULL: there was no memory. */
enum cairn_code cairn_cli_export_folder_open(struct cairn_cli_export_plan *plan,
                                             const struct cairn_cli_export_identity *identity,
                                             struct cairn_cli_export_sink **ret,
                                             struct cairn_error *err) CAIRN_MUST_USE;
