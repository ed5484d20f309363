/* SPDX-License-Identifier: Apache-2.0 */
/*
 * input: a file that a person names, by its path or as s3://bucket/path, read by ranges.
 *
 * Why:     what a checkpoint holds is asked of files on a disk and of objects alike.
 * Promise: 1   of a file only the ranges that are asked for are read, of an object what
 *              cli/bucket/bucket_source.h says.
 *          2   a folder, a pipe or a socket is refused by name; an object that is not there is
 *              CAIRN_NOT_FOUND, also where others lie below its name.
 * Limits:  one file or object.
 * Threads: one owner.
 * Next:    formats/input.h; cli/convert/inspect.c.
 */
#pragma once

#include "cli/bucket/bucket_source.h"
#include "common/file.h"
#include "formats/input.h"

struct cairn_cli_input {
    struct cairn_input input; /* points into this struct: it may not be moved */
    struct cairn_file file;
    struct cairn_cli_bucket_source *bucket; /* NULL: it is a file */
};
enum cairn_code cairn_cli_input_open(const struct cairn_cli *cli, const char *name,
                                     struct cairn_cli_input *ret,
                                     struct cairn_error *err) CAIRN_MUST_USE;
void cairn_cli_input_release(struct cairn_cli_input *input);
