/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fields: some of a JSON object's members, or of each of a list's.
 *
 * Why:     --fields, so that a script has what it needs without another program.
 * Promise: 1   members that were named stand under the names they were asked for by, in that order;
 *              where an item of a list lacks one that another has, it is null.
 *          2   one that no item has is CAIRN_INVALID, with those that there are; of an item of a
 *              stream at least one has to be there.
 * Limits:  64 names.
 * Threads: stateless.
 * Next:    cli/shell/output.c.
 */
#pragma once

#include "common/json.h"

/* names: with commas; a dot leads into a member that is an object. all: each has to be there. */
enum cairn_code cairn_cli_fields(const json_t *json, const char *names, bool all, json_t **ret,
                                 struct cairn_error *err) CAIRN_MUST_USE;
