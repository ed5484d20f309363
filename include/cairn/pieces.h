/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pieces: many of them described in one call, and once for many saves.
 *
 * Why:     training stands still while a save is described. A job of 100,000 pieces describes the
 *          same ones for each save, at the same addresses or at others.
 * Promise: 1   a call that describes many takes all of them or none.
 *          2   a save of known pieces, or again of what a save before consisted of, checks and
 *              sorts nothing, and its table is not sent again.
 * Limits:  as cairn/cairn.h.
 * Threads: known pieces may be used by several threads at once.
 * Next:    cairn/cairn.h; cairn/stage.h.
 */
#ifndef CAIRN_PIECES_H
#define CAIRN_PIECES_H

#include <cairn/cairn.h>

#ifdef __cplusplus
extern "C" {
#endif
#if defined(__GNUC__)
#pragma GCC visibility push(default)
#endif

/* As cairn_save_tensor for each of the pieces, which are all of the first one's size (an array as
 * the program was compiled with). After an error none is part of the save; *ret_bad (NULL is
 * allowed) is the number of the one that was refused, from 0. */
enum cairn_code cairn_save_tensors(struct cairn_save *save, const struct cairn_tensor_piece *pieces,
                                   size_t count, size_t *ret_bad, struct cairn_error *err);

/* Known pieces: described and checked once. */
struct cairn_pieces;
struct cairn_pieces_options {
    size_t size; /* of this struct */
    /* Replica groups, as of cairn_save_options: saves of the pieces are begun with them. */
    struct cairn_split *const *splits;
    size_t split_count;
};
/* Pieces as for cairn_save_tensors; their sources are those of saves that name no others, and may
 * be any address until then. Memory of a device must be there. options may be NULL. Errors and
 * *ret_bad as of cairn_save_tensors; CAIRN_INVALID also where the pieces do not fit together, with
 * *ret_bad = count. *ret is freed by cairn_pieces_free; saves that use it keep what they need. */
enum cairn_code cairn_pieces_new(struct cairn_session *session,
                                 const struct cairn_tensor_piece *pieces, size_t count,
                                 const struct cairn_pieces_options *options, size_t *ret_bad,
                                 struct cairn_pieces **ret, struct cairn_error *err);
void cairn_pieces_free(struct cairn_pieces *pieces);
/* What `bytes` of a session must be for a save of the pieces: this rank's shares, headers and gaps
 * between shards, and item_bytes for what each save has beside it (items, streams, raw shards). */
enum cairn_code cairn_pieces_bytes(const struct cairn_pieces *pieces, uint64_t item_bytes,
                                   uint64_t *ret, struct cairn_error *err);
/* The known pieces are part of the save. sources: an address for each piece of
 * cairn_pieces_new, in its order (of one without bytes, or whose bytes `fill`, a file or the caller
 * gives, it is not read); NULL: those of cairn_pieces_new. source_count is their number, or 0.
 * CAIRN_INVALID: another number of sources, one is NULL, or other splits than theirs. */
enum cairn_code cairn_save_pieces(struct cairn_save *save, struct cairn_pieces *pieces,
                                  const void *const *sources, size_t source_count,
                                  struct cairn_error *err);
/* cairn_save_begin, and what `previous` consisted of. sources: an address for each piece, item and
 * raw shard, in the order in which they were described; NULL: the same. It waits until `previous`
 * is sealed or over, up to options.timeout_ms. CAIRN_INVALID, before anything is begun: previous
 * was not described or not staged, had files or streams, or known pieces and more
 * (cairn_save_pieces is for these); other errors as of cairn_save_begin. */
enum cairn_code cairn_save_again(struct cairn_session *session, uint64_t step,
                                 const struct cairn_save_options *options,
                                 struct cairn_save *previous, const void *const *sources,
                                 size_t source_count, struct cairn_save **ret,
                                 struct cairn_error *err);
/* Read a version into what is described: into has an address for each piece, in its order
 * (an alias is left out), of its type and with its strides; of a tensor that a split lists the
 * whole part that was listed. optional 1: of tensors that the version does not have, into stays as
 * it is. Errors as of cairn_restore_read. */
enum cairn_code cairn_restore_pieces(struct cairn_restore *restore,
                                     const struct cairn_pieces *pieces, void *const *into,
                                     size_t into_count, int optional, uint32_t timeout_ms,
                                     struct cairn_error *err);

#if defined(__GNUC__)
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif
#endif
