/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pieces: describe many pieces in one call, and once for many saves.
 *
 * Why:     training stands still while a save is described. A job of 100,000 pieces describes the
 *          same pieces for each save, at the same or other addresses.
 * Promise: 1   a call that describes many pieces takes all or none.
 *          2   a save of known pieces, or a repeat of an earlier save, checks and sorts nothing,
 *              and its table is not sent again.
 * Limits:  as cairn/cairn.h.
 * Threads: several threads may use known pieces at once.
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

/* As cairn_save_tensor for each piece. Every piece must have the size of the first (an array as
 * the program was compiled). After an error no piece is part of the save, and *ret_bad (may be
 * NULL) is the index of the refused piece. */
enum cairn_code cairn_save_tensors(struct cairn_save *save, const struct cairn_tensor_piece *pieces,
                                   size_t count, size_t *ret_bad, struct cairn_error *err);

/* Known pieces: described and checked once. Opaque. */
struct cairn_pieces;
struct cairn_pieces_options {
    size_t size;
    /* Replica groups as in cairn_save_options: saves of these pieces must begin with the same. */
    struct cairn_split *const *splits;
    size_t split_count;
};
/* Describes pieces as for cairn_save_tensors. Their sources are the default of saves that pass
 * none, and may be any address until then; device memory must already exist. options may be
 * NULL. Errors and *ret_bad as cairn_save_tensors; CAIRN_INVALID with *ret_bad = count: the
 * pieces do not fit together. The caller frees *ret with cairn_pieces_free; saves under way keep
 * what they need. */
enum cairn_code cairn_pieces_new(struct cairn_session *session,
                                 const struct cairn_tensor_piece *pieces, size_t count,
                                 const struct cairn_pieces_options *options, size_t *ret_bad,
                                 struct cairn_pieces **ret, struct cairn_error *err);
void cairn_pieces_free(struct cairn_pieces *pieces);
/* Computes the session's `bytes` for a save of these pieces: this rank's shares, headers and gaps
 * between shards, plus item_bytes for the save's items, streams and raw shards. */
enum cairn_code cairn_pieces_bytes(const struct cairn_pieces *pieces, uint64_t item_bytes,
                                   uint64_t *ret, struct cairn_error *err);
/* Adds the known pieces to the save. sources has one address per piece, in the order of
 * cairn_pieces_new (ignored for pieces that are empty or come from `fill`, a file or the caller);
 * NULL: those of cairn_pieces_new. source_count is their number, or 0. CAIRN_INVALID: a wrong
 * number of sources, a NULL source, or other splits than those of the pieces. */
enum cairn_code cairn_save_pieces(struct cairn_save *save, struct cairn_pieces *pieces,
                                  const void *const *sources, size_t source_count,
                                  struct cairn_error *err);
/* Begins a save with the contents of `previous`. sources has one address per piece, item and raw
 * shard, in the order of description; NULL: the same addresses. Waits until `previous` is sealed
 * or over, up to options.timeout_ms. CAIRN_INVALID, before anything begins: `previous` was not
 * described or not staged, had files or streams, or mixes known pieces with others (use
 * cairn_save_pieces). Other errors as cairn_save_begin. The caller frees *ret with
 * cairn_save_free. */
enum cairn_code cairn_save_again(struct cairn_session *session, uint64_t step,
                                 const struct cairn_save_options *options,
                                 struct cairn_save *previous, const void *const *sources,
                                 size_t source_count, struct cairn_save **ret,
                                 struct cairn_error *err);
/* Reads a version into the described pieces. into has one address per piece, in order (aliases left
 * out), with the piece's type and strides; of a tensor that a split lists, the whole listed part.
 * optional 1: destinations of tensors that the version lacks stay unchanged. Errors as
 * cairn_restore_read. */
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
