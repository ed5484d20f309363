/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tree_meta: what a tree has besides the bytes of its files: modes, links, empty folders.
 *
 * Why:     `put` keeps a tree as it is; shards are bytes and names alone, so the rest stands in the
 *          manifest's meta as "cairn_tree" (docs/format.md), where readers of tensors pass it by.
 * Promise: 1   what is read is checked as another user's input is: no name leaves the tree, no link
 *              points out of it, no mode has more than the permission bits.
 *          2   what was put comes back, less the umask of who gets it.
 * Limits:  64 KiB as canonical JSON, with everything else in meta.
 * Threads: one owner.
 * Next:    cli/tree.c fills it, cli/target.c restores it.
 */
#pragma once

#include "common/json.h"

#define CAIRN_CLI_TREE_META "cairn_tree"

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
enum cairn_code cairn_cli_tree_meta_read(const char *meta_json, struct cairn_cli_tree_meta *ret,
                                         struct cairn_error *err) CAIRN_MUST_USE;
/* The value of "cairn_tree", a new reference. */
json_t *cairn_cli_tree_meta_write(const struct cairn_cli_tree_meta *meta);
unsigned cairn_cli_tree_meta_mode(const struct cairn_cli_tree_meta *meta, const char *name,
                                  bool folder);
/* May a link of this name have this target? It is relative, ".." stands at its beginning alone, and
 * not more often than there are folders above the link. */
bool cairn_cli_link_stays(const char *name, const char *target);
