/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tree_meta: what a tree has besides the bytes of its files: modes, links, empty folders.
 *
 * Why:     `put` keeps a tree as it is; shards are bytes and names alone, so the rest is
 *          "cairn_tree" (docs/format.md): in the manifest's meta, where readers of tensors pass it
 *          by, or, where it is long, in a shard of its own that meta names.
 * Promise: 1   what is read is checked as another user's input is: no name leaves the tree, no link
 *              points out of it, no mode has more than the permission bits.
 *          2   what was put comes back, less the umask of who gets it.
 * Limits:  CAIRN_CLI_TREE_IN_META_BYTES in meta; CAIRN_CLI_TREE_BYTES_MAX in a shard.
 * Threads: one owner.
 * Next:    cli/tree/tree.c fills it, cli/tree/target.c restores it.
 */
#pragma once

#include "common/json.h"

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
/* May a link of this name have this target? It is relative, ".." stands at its beginning alone, and
 * not more often than there are folders above the link. */
bool cairn_cli_link_stays(const char *name, const char *target);
