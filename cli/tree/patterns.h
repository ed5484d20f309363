/* SPDX-License-Identifier: Apache-2.0 */
/*
 * patterns: names of a tree's files by patterns, as .gitignore writes them.
 *
 * Why:     a folder of a model holds caches, logs and locks that no checkpoint should have, and of
 *          a checkpoint a part is wanted.
 * Promise: 1   * and ? and [...] match within one component, ** any folders. A pattern with a slash
 *              before its end counts from the root of the tree, another one at any depth; with a
 *              slash at its end it means folders alone.
 *          2   the last pattern that matches decides; one that begins with ! takes a name back in.
 *              What lies in a folder that is left out is not looked at.
 *          3   a [ without its ] is refused, with the pattern: it would match nothing, unseen.
 * Limits:  10,000 patterns; a file of them has 1 MiB.
 * Threads: one owner.
 * Next:    cli/tree/tree.c, cli/tree/get.c.
 */
#pragma once

#include "common/error.h"

#define CAIRN_CLI_IGNORE_FILE ".cairnignore"

struct cairn_cli_pattern {
    char *text; /* owned; without !, and slashes at its ends */
    bool keeps, anchored, folders;
};
struct cairn_cli_patterns {
    struct cairn_cli_pattern *items;
    size_t count, capacity;
};
enum cairn_code cairn_cli_patterns_add(struct cairn_cli_patterns *patterns, const char *text,
                                       struct cairn_error *err) CAIRN_MUST_USE;
/* The lines of a file: empty ones and those that begin with # say nothing. */
enum cairn_code cairn_cli_patterns_add_lines(struct cairn_cli_patterns *patterns,
                                             struct cairn_view lines,
                                             struct cairn_error *err) CAIRN_MUST_USE;
void cairn_cli_patterns_release(struct cairn_cli_patterns *patterns);
/* Do they match this name, or would they match a folder that it lies in? */
bool cairn_cli_patterns_match(const struct cairn_cli_patterns *patterns, const char *name,
                              bool folder);
/* Does one pattern match all of this name, * and ? and [...] within a component, ** beyond? */
bool cairn_cli_glob(const char *pattern, const char *name);
