/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tree: a directory as a checkpoint: names by patterns, its files, what it has besides their
 *       bytes, and its save.
 *
 * Why:     `put` must know every name and refuse the impossible ones before it sends a byte; `put`
 *          and `import` keep files in the same way and differ in the tensors that they know of in
 *          them.
 * Promise: 1   every name that cannot be kept is listed, with the reason, not only the first.
 *              Devices, sockets and pipes are refused, and so is a link that points out of the
 *              tree, or where they are followed it is kept as what it points to, unless that is a
 *              folder that it is in. What of a file is not kept is counted.
 *          2   what is excluded, by the caller or by .cairnignore at the root, is passed over, also
 *              where it could not be kept.
 *          3   patterns are those of .gitignore: * and ? and [...] match within one component, **
 *              any folders. One with a slash before its end counts from the root, another one at
 *              any depth; with a slash at its end it means folders alone. The last that matches
 *              decides; one that begins with ! takes a name back in. A [ without its ] is refused.
 *          4   modes, links and empty folders are "cairn_tree" (docs/format.md): in the manifest's
 *              meta, or, where it is long, in a shard of its own that meta names. What is read of
 *              it is checked as another user's input is: no name leaves the tree, no link points
 *              out of it, no mode has more than the permission bits. What was put comes back, less
 *              the umask of who gets it.
 *          5   a save that is interrupted before it is committed is given up, so the same command
 *              can be given again at once; with detach it goes on once it is staged. --timeout is
 *              one deadline over all of it. Where no uploader listens, one of the command alone
 *              sends to --store.
 * Limits:  1,048,576 files; 64 folders deep; 10,000 patterns, a file of them of 1 MiB; one save a
 *          process.
 * Threads: one owner; a signal is taken on its own.
 * Next:    cli/tree/put.c, cli/tree/get.c, cli/convert/import.c.
 */
#pragma once

#include <cairn/cairn.h>

#include "cli/shell/options.h"
#include "common/buf.h"
#include "common/error.h"
#include "common/json.h"

/* ---- what it has besides the bytes of its files ---- */

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
void cairn_cli_patterns_release(struct cairn_cli_patterns *patterns);
/* Do they match this name, or would they match a folder that it lies in? */
bool cairn_cli_patterns_match(const struct cairn_cli_patterns *patterns, const char *name,
                              bool folder);

/* ---- the files ---- */

#define CAIRN_CLI_TREE_IN_META_BYTES (8 * CAIRN_KIB) /* what a list of versions may carry of each */
#define CAIRN_CLI_TREE_BYTES_MAX (256 * CAIRN_MIB)

struct cairn_cli_tree_meta {
    bool there;
    unsigned file_mode, folder_mode; /* of what is not in modes */
    json_t *modes;                   /* object: name -> integer; owned, as the others */
    json_t *links;                   /* object: name -> target */
    json_t *folders;                 /* array of names: the empty ones */
};
void cairn_cli_tree_meta_release(struct cairn_cli_tree_meta *meta);
/* An entry that is not well-formed leaves all of it out, with a note; the files are restored all
 * the same. */
enum cairn_code cairn_cli_tree_meta_read(struct cairn_view meta_json,
                                         struct cairn_cli_tree_meta *ret,
                                         struct cairn_error *err) CAIRN_MUST_USE;
/* Does meta say that it lies in the shard CAIRN_TREE_SHARD? */
bool cairn_cli_tree_meta_is_apart(const char *meta_json);
/* {"cairn_tree": ...} as canonical JSON. */
enum cairn_code cairn_cli_tree_meta_write(const struct cairn_cli_tree_meta *meta,
                                          struct cairn_buf *ret,
                                          struct cairn_error *err) CAIRN_MUST_USE;
/* What stands in meta of a tree whose description lies apart. */
enum cairn_code cairn_cli_tree_meta_name_shard(struct cairn_buf *ret,
                                               struct cairn_error *err) CAIRN_MUST_USE;
unsigned cairn_cli_tree_meta_mode(const struct cairn_cli_tree_meta *meta, const char *name,
                                  bool folder);

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

/* ---- its save ---- */

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
                                const struct cairn_cli_tree *tree, struct cairn_cli_described *ret,
                                struct cairn_error *err);
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
