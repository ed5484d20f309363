/* SPDX-License-Identifier: Apache-2.0 */
/*
 * save_tree: a directory as a checkpoint, from the first call to what is printed.
 *
 * Why:     `put` and `import` keep files as they are in the same way; they differ in the tensors
 *          that they know of in them.
 * Promise: 1   a save that is interrupted before it is committed is given up, so the same command
 *              can be given again at once; with detach it goes on once it is staged.
 *          2   --timeout is one deadline over all of it.
 *          3   where no uploader listens, one of the command alone sends to --store.
 * Limits:  one save a process.
 * Threads: main thread; a signal is taken on its own.
 * Next:    cli/tree/tree.h, cli/shell/own_uploader.h; cli/tree/put.c, cli/convert/import.c.
 */
#pragma once

#include "cli/shell/verb.h"
#include "cli/tree/tree.h"
#include "common/json.h"

struct cairn_cli_described {
    uint64_t tensors, files; /* the files that they lie in; all others are opaque */
    json_t *left_out;        /* {"name", "why"} of tensors that are not known by name */
};
struct cairn_cli_save_tree {
    const struct cairn_cli *cli;
    const char *verb, *path, *ref;
    int folder_fd;      /* of the folder that is kept; -1: it is opened by path */
    const char *format; /* tag of the version, or NULL */
    /* Calls cairn_save_tensor for each tensor in the tree's files. */
    enum cairn_code (*describe)(void *owner, struct cairn_save *save,
                                const struct cairn_cli_tree *tree,
                                struct cairn_cli_described *ret, struct cairn_error *err);
    void *owner;
};
/* Is ref project/run@step, and does the path stand first? */
enum cairn_code cairn_cli_save_tree_check(const char *verb, const char *path, const char *ref,
                                          struct cairn_error *err) CAIRN_MUST_USE;
/* Deadline and signals, before any other work. */
enum cairn_code cairn_cli_save_tree_start(const struct cairn_cli *cli, const char *verb,
                                          struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_cli_save_tree_run(const struct cairn_cli_save_tree *job,
                                        struct cairn_error *err) CAIRN_MUST_USE;
