/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inspect: list the tensors, holders and pieces of an opened version.
 *
 * Why:     a framework looks at 100,000 tensors before it reads one; it needs to know which ranks
 *          hold which parts, and where, without copying every name.
 * Promise: P3  results come from the version's layout; no message is sent.
 * Limits:  8 dimensions; names as cairn/cairn.h.
 * Threads: as a restore handle: one at a time.
 * Next:    cairn/cairn.h for the restore handles.
 *
 * Cursor:  start with 0; a cursor belongs to one restore and one function. CAIRN_NOT_FOUND, with
 *          err unwritten, means the end.
 */
#ifndef CAIRN_INSPECT_H
#define CAIRN_INSPECT_H

#include <cairn/cairn.h>

#ifdef __cplusplus
extern "C" {
#endif
#if defined(__GNUC__)
#pragma GCC visibility push(default)
#endif

/* UTF-8 without a terminating NUL; owned by the restore, valid until it is freed. */
struct cairn_text {
    const char *data;
    size_t bytes;
};
struct cairn_tensor_view {
    struct cairn_text name, alias_of; /* after renames; alias_of.bytes 0: no alias */
    const char *dtype;                /* static storage */
    uint32_t dimension_count;
    enum cairn_kind kind;
    uint64_t shape[8], bytes; /* LOCAL tensor: those of its first holder */
    uint32_t holder_count;    /* ranks that list it */
};
/* The next tensor, in the order of names. */
enum cairn_code cairn_restore_next(struct cairn_restore *restore, uint64_t *cursor,
                                   struct cairn_tensor_view *ret, struct cairn_error *err);

/* A rank that lists a tensor. For a LOCAL tensor, type, shape and size may differ per rank. */
struct cairn_holder {
    uint32_t rank;
    const char *dtype; /* static storage */
    uint32_t dimension_count;
    uint64_t shape[8], bytes;
    uint32_t piece_count; /* pieces in its shards; 0: it stores no element */
};
/* The next rank that lists the named tensor, ascending; aliases are followed. CAIRN_NOT_FOUND with
 * a message, at cursor 0: no such tensor. */
enum cairn_code cairn_restore_holder_next(struct cairn_restore *restore, const char *tensor,
                                          uint64_t *cursor, struct cairn_holder *ret,
                                          struct cairn_error *err);

/* The location of one piece of a tensor. */
struct cairn_stored_piece {
    uint32_t rank;               /* the rank that saved it */
    struct cairn_text shard;     /* name as in cairn_restore_shard_at */
    uint64_t offset, bytes;      /* in the shard; row-major, contiguous */
    enum cairn_form form;        /* CAIRN_FLAT or CAIRN_BOX */
    uint64_t start[8], count[8]; /* in elements, as in struct cairn_tensor_piece */
};
/* The next piece of the named tensor, by rank. For a REPLICATED tensor each holder's piece is the
 * whole tensor. Errors as cairn_restore_holder_next. */
enum cairn_code cairn_restore_piece_next(struct cairn_restore *restore, const char *tensor,
                                         uint64_t *cursor, struct cairn_stored_piece *ret,
                                         struct cairn_error *err);

#if defined(__GNUC__)
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif
#endif
