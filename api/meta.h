/* SPDX-License-Identifier: Apache-2.0 */
/*
 * meta: what labels and meta of a save may be, for whoever takes them.
 *
 * Why:     a save that one rank's library takes and the server then refuses is lost for all ranks;
 *          so both ask this one function, about the same bytes (V34).
 * Promise: Q50  what it passes is taken by the server, journaled, and kept in the manifest: size
 *               and depth are those of the canonical form, whatever spelling it came in.
 * Limits:  CAIRN_META_BYTES_MAX as canonical JSON; objects and arrays CAIRN_META_DEPTH_MAX deep.
 * Threads: stateless.
 * Next:    client/save/begin.c, server/intake/begin.c.
 */
#pragma once

#include "common/json.h"

#define CAIRN_META_BYTES_MAX (64 * CAIRN_KIB)
/* Frames, journal, bodies and manifest put up to four levels around it, of the 16 they may have. */
#define CAIRN_META_DEPTH_MAX 12
/* The member of meta that says what `put` kept of a tree beside its files' bytes; a long one lies
 * in a shard of its own, which is no file of the tree (docs/format.md). */
#define CAIRN_META_TREE "cairn_tree"
#define CAIRN_TREE_SHARD ".cairn-tree.json"
#define CAIRN_NOTE_BYTES_MAX 4096 /* of what somebody writes beside a run or a version */

/* what names it in messages ("meta", "/begins/3/labels"). json NULL is an empty object. of_texts:
 * these are labels: each has a name and a text, both without control bytes. *ret_canonical (may be
 * NULL) gets the canonical bytes. */
enum cairn_code cairn_meta_check(const json_t *json, const char *what, bool of_texts,
                                 struct cairn_buf *ret_canonical,
                                 struct cairn_error *err) CAIRN_MUST_USE;
/* The same of labels that are changed; null takes one away, whatever its name has. */
enum cairn_code cairn_label_changes_check(const json_t *changes, const char *what,
                                          struct cairn_error *err) CAIRN_MUST_USE;
