/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tree: the files of a directory as shards, and the tensors inside those that are safetensors.
 *
 * Why:     `put` must know every name and refuse the impossible ones before it sends a byte.
 * Promise: 1   every name that cannot be kept is listed, with the reason, not only the first.
 *          2   files are found in the order of their names; modes, links and empty folders are
 *              noted (cli/tree/tree_meta.h). A link that points out of the tree is refused by name, or
 *              where they are followed kept as what it points to, unless that is a folder which
 *              it is in; devices, sockets and pipes are refused.
 *          3   what is excluded, by the caller or by .cairnignore at the root, is passed over, also
 *              where it could not be kept.
 *          4   what of a file is not kept is counted.
 * Limits:  1,048,576 files; 64 folders deep.
 * Threads: one owner.
 * Next:    cli/tree/put.c.
 */
#pragma once

#include <cairn/cairn.h>

#include "cli/shell/verb.h"
#include "cli/tree/patterns.h"
#include "cli/tree/tree_meta.h"
#include "common/buf.h"

struct cairn_cli_file {
    char *name; /* relative to the root, '/' between components */
    uint64_t bytes;
    unsigned mode;
};
enum cairn_cli_links {
    CAIRN_CLI_LINKS_KEPT,     /* as links; one that points out of the tree is refused */
    CAIRN_CLI_LINKS_FOLLOWED, /* where they point out of it, as what they point to */
    CAIRN_CLI_LINKS_NONE      /* as KEPT, and nothing is opened through one that came later */
};
#define CAIRN_CLI_TREE_DEPTH 64 /* folders below the root */
/* Files and folders of which something is not kept. */
struct cairn_cli_unkept {
    size_t attributes, access_lists; /* extended attributes; POSIX ACLs */
    size_t bits;                     /* setuid, setgid, sticky */
    size_t owners;                   /* others than the user who puts */
    size_t links;                    /* further names of a file that has one here already */
};
struct cairn_cli_tree {
    int root_fd;
    struct {
        uint64_t device, inode;
    } above[CAIRN_CLI_TREE_DEPTH + 1]; /* the folders that are being walked, the root first */
    struct cairn_cli_file *files;
    size_t count, capacity;
    uint64_t total_bytes;
    size_t refused;
    enum cairn_cli_links links;
    struct cairn_cli_file *folders; /* with their modes, bytes unused */
    size_t folder_count, folder_capacity;
    struct cairn_cli_tree_meta meta;
    const struct cairn_cli_texts *exclude; /* patterns of the caller, or NULL */
    struct cairn_cli_patterns patterns;    /* those, and those of the tree */
    size_t excluded;
    struct cairn_cli_unkept unkept;
};
/* path: a folder, or one file (then it is the only one, under its own name). folder_fd: the folder
 * itself, which path then names in messages alone; -1: it is opened by path. exclude may be NULL.
 * CAIRN_INVALID after listing every refused name on standard error. */
enum cairn_code cairn_cli_tree_open(const char *path, int folder_fd, enum cairn_cli_links links,
                                    const struct cairn_cli_texts *exclude,
                                    struct cairn_cli_tree *ret,
                                    struct cairn_error *err) CAIRN_MUST_USE;
void cairn_cli_tree_release(struct cairn_cli_tree *tree);
/* An open file of the tree, for reading. */
enum cairn_code cairn_cli_tree_file(const struct cairn_cli_tree *tree, size_t index, int *ret_fd,
                                    struct cairn_error *err) CAIRN_MUST_USE;
/* The name of the tree's file that a name leads to, through links that are kept as such. */
enum cairn_code cairn_cli_tree_resolve(const struct cairn_cli_tree *tree, const char *name,
                                       struct cairn_buf *ret,
                                       struct cairn_error *err) CAIRN_MUST_USE;
