/* SPDX-License-Identifier: Apache-2.0 */
/*
 * export_bucket: the files of an export in a bucket.
 *
 * Why:     who keeps models in a bucket should not need a disk of their size on the way.
 * Promise: 1   each file is a multipart upload with a part for each window; uploads are completed,
 *              which gives files their names, when all parts of all files are there.
 *          2   the object .cairn-export holds the ids of the uploads, so that the same command goes
 *              on with the parts that are there. Only who has read it knows these ids, and it names
 *              source and plan: what is a part of them was made of the same bytes.
 *          3   an answer that was lost is settled by a look: an object is ours by its token.
 *          4   one export at a time: another one that runs, here or on another machine, is
 *              CAIRN_CONFLICT (cli/convert/export_claim.h), and nothing of its files is removed.
 * Limits:  10,000 windows a file; where the store ignores If-None-Match, what comes between the
 *          last look and the completion is replaced.
 * Threads: as cli/convert/export_sink.h says.
 * Next:    cli/convert/export_sink.h; cli/convert/export.c.
 */
#pragma once

#include "cli/convert/export_sink.h"

bool cairn_cli_export_is_bucket(const char *place);
/* *ret is to be closed also after a failure; NULL: there was no memory. */
enum cairn_code cairn_cli_export_bucket_open(struct cairn_cli_export_plan *plan,
                                             const struct cairn_cli_export_identity *identity,
                                             struct cairn_cli_export_sink **ret,
                                             struct cairn_error *err) CAIRN_MUST_USE;
