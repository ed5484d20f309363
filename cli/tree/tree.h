/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tree: a directory as a checkpoint: patterns, files, metadata besides the bytes, and the save.
 *
 * Why:     `put` must check every name before it sends a byte; `put` and `import` keep files in the
 *          same way and differ in the tensors that they describe.
 * Promise: 1   every name that cannot be kept is listed with its reason. Devices, sockets, pipes
 *              and links out of the tree are refused; with followed links the target is kept,
 *              unless it is a folder that contains the link. Lost metadata is counted.
 *          2   files excluded by the caller or by the root's .cairnignore are skipped, even if they
 *              could not be kept.
 *          3   patterns follow .gitignore: * ? [...] match within a component, ** any folders. With
 *              a slash before its end a pattern is anchored at the root, else it matches at any
 *              depth; a trailing slash means folders only. The last match decides; ! re-includes.
 *              An unclosed [ is refused.
 *          4   modes, links and empty folders are "cairn_tree" (docs/format.md): in the manifest's
 *              meta or, if long, in a shard that meta names. They are validated as untrusted input:
 *              no name leaves the tree, no link points out of it, modes have permission bits only.
 *              A restore equals the saved tree, less the reader's umask.
 *          5   a save interrupted before its commit is aborted, so the command can be repeated at
 *              once; with detach it continues once staged. --timeout is one deadline for all steps.
 *              Where no uploader listens, the command's own one sends to --store.
 * Limits:  1,048,576 files; 64 folders deep; 10,000 patterns, files of 1 MiB; one save per process.
 * Threads: one owner; a signal is taken on its own thread.
 * Next:    cli/tree/put.c, cli/tree/get.c, cli/convert/import.c.
 */
#pragma once

#include <cairn/cairn.h>

#include "cli/shell/options.h"
#include "common/buf.h"
#include "common/error.h"
#include "common/json.h"

/* ---- patterns and metadata ---- */

#define CLI_IGNORE_FILE ".cairnignore"

struct cli_pattern {
    char *text; /* owned; without ! and slashes at its ends */
    bool keeps, anchored, folders;
};
struct cli_patterns {
    struct cli_pattern *items;
    size_t count, capacity;
};
enum cairn_code cli_patterns_add(struct cli_patterns *patterns, const char *text,
                                 struct cairn_error *err) CAIRN_MUST_USE;
void cli_patterns_release(struct cli_patterns *patterns);
/* Whether the patterns exclude the name or a folder above it. */
bool cli_patterns_match(const struct cli_patterns *patterns, const char *name, bool folder);

#define CLI_TREE_IN_META_BYTES (8 * CAIRN_KIB) /* lists of versions carry meta */
#define CLI_TREE_BYTES_MAX (256 * CAIRN_MIB)

struct cli_tree_meta {
    bool there;
    unsigned file_mode, folder_mode; /* of names not in modes */
    json_t *modes;                   /* name -> integer; owned, like the others */
    json_t *links;                   /* name -> target */
    json_t *folders;                 /* names of empty folders */
};
void cli_tree_meta_release(struct cli_tree_meta *meta);
/* A malformed description is ignored with a note; the files are restored all the same. */
enum cairn_code cli_tree_meta_read(struct cairn_view meta_json, struct cli_tree_meta *ret,
                                   struct cairn_error *err) CAIRN_MUST_USE;
/* Whether the description is in the shard CAIRN_TREE_SHARD. */
bool cli_tree_meta_is_apart(const char *meta_json);
/* {"cairn_tree": ...} as canonical JSON. */
enum cairn_code cli_tree_meta_write(const struct cli_tree_meta *meta, struct cairn_buf *ret,
                                    struct cairn_error *err) CAIRN_MUST_USE;
/* Writes the meta that refers to that shard. */
unsigned cli_tree_meta_mode(const struct cli_tree_meta *meta, const char *name, bool folder);

struct cli_file {
    char *name; /* relative to the root, '/' between components */
    uint64_t bytes;
    unsigned mode;
};
enum cli_links {
    CLI_LINKS_KEPT,     /* links out of the tree are refused */
    CLI_LINKS_FOLLOWED, /* links out of the tree are replaced by their targets */
    CLI_LINKS_NONE      /* KEPT, and files are opened with O_NOFOLLOW semantics */
};
#define CLI_TREE_DEPTH 64 /* below the root */
/* Counts of files and folders that lose metadata. */
struct cli_unkept {
    size_t attributes, access_lists; /* extended attributes; POSIX ACLs */
    size_t bits;                     /* setuid, setgid, sticky */
    size_t owners;                   /* owned by another user */
    size_t links;                    /* further hard links of a file in the tree */
};
struct cli_tree {
    int root_fd;
    struct {
        uint64_t device, inode;
    } above[CLI_TREE_DEPTH + 1]; /* ancestors in the walk, the root first */
    struct cli_file *files;
    size_t count, capacity;
    uint64_t total_bytes;
    size_t refused;
    enum cli_links links;
    struct cli_file *folders; /* with modes; bytes unused */
    size_t folder_count, folder_capacity;
    struct cli_tree_meta meta;
    const struct cli_texts *exclude; /* the caller's patterns, or NULL */
    struct cli_patterns patterns;    /* the caller's and .cairnignore's */
    size_t excluded;
    struct cli_unkept unkept;
    bool one_file; /* the path was a file's: what lies beside it was not looked at */
};
/* path: a folder, or one file to keep under its own name. folder_fd: the open folder (path only
 * labels messages), or -1. exclude may be NULL. CAIRN_INVALID: standard error lists the refused
 * names. */
enum cairn_code cli_tree_open(const char *path, int folder_fd, enum cli_links links,
                              const struct cli_texts *exclude, struct cli_tree *ret,
                              struct cairn_error *err) CAIRN_MUST_USE;
void cli_tree_release(struct cli_tree *tree);
enum cairn_code cli_tree_file(const struct cli_tree *tree, size_t index, int *ret_fd,
                              struct cairn_error *err) CAIRN_MUST_USE;
/* Resolves kept links: the name of the tree's file behind `name`. */
enum cairn_code cli_tree_resolve(const struct cli_tree *tree, const char *name,
                                 struct cairn_buf *ret, struct cairn_error *err) CAIRN_MUST_USE;

/* ---- saving a tree ---- */

struct cli_described {
    uint64_t tensors, files; /* files: those that hold described tensors; all others are opaque */
    json_t *left_out;        /* {"name", "why"} of tensors without a description */
};
struct cli_save_tree {
    const struct cli *cli;
    const char *verb, *path, *ref;
    int folder_fd;      /* open folder; -1: opened by path */
    const char *format; /* format tag of the version, or NULL */
    /* Calls cairn_save_tensor for each tensor of the tree's files. */
    enum cairn_code (*describe)(void *owner, struct cairn_save *save, const struct cli_tree *tree,
                                struct cli_described *ret, struct cairn_error *err);
    void *owner;
};
/* Validates ref as project/run@step and the order of arguments. */
enum cairn_code cli_save_tree_check(const char *verb, const char *path, const char *ref,
                                    struct cairn_error *err) CAIRN_MUST_USE;
/* Sets deadline and signal handling; called first. */
enum cairn_code cli_save_tree_start(const struct cli *cli, const char *verb,
                                    struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cli_save_tree_run(const struct cli_save_tree *job,
                                  struct cairn_error *err) CAIRN_MUST_USE;
