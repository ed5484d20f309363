/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inspect: what an opened version holds, tensor by tensor, without a copy of its names.
 *
 * Why:     a framework looks at 100,000 tensors before it reads one; it wants to know which ranks
 *          hold what, and where.
 * Promise: P3  what is told is what the version's layout says; no message is sent.
 * Limits:  8 dimensions; names as cairn/cairn.h.
 * Threads: as a restore handle: one at a time.
 * Next:    cairn/cairn.h, whose restore handles these are.
 *
 * Cursor:  a number that is 0 at first, and belongs to its restore and function; CAIRN_NOT_FOUND,
 *          for which err is not written, says that nothing follows.
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

/* Bytes of UTF-8 that nothing ends; the restore's, until it is freed. */
struct cairn_text {
    const char *data;
    size_t bytes;
};
struct cairn_tensor_view {
    struct cairn_text name, alias_of; /* as the restore knows them; alias_of.bytes 0: no alias */
    const char *dtype;                /* static */
    uint32_t dimension_count;
    enum cairn_kind kind;
    uint64_t shape[8], bytes; /* of a LOCAL tensor: of the first rank that holds it */
    uint32_t holder_count;    /* ranks that list it */
};
/* The next tensor, in the order of the names. */
enum cairn_code cairn_restore_next(struct cairn_restore *restore, uint64_t *cursor,
                                   struct cairn_tensor_view *ret, struct cairn_error *err);

/* A rank that lists a tensor; of a LOCAL one each has a type, shape and size of its own. */
struct cairn_holder {
    uint32_t rank;
    const char *dtype; /* static */
    uint32_t dimension_count;
    uint64_t shape[8], bytes;
    uint32_t piece_count; /* that its shards hold; 0: it has no element of it */
};
/* The next rank that lists the tensor of that name, in ascending order; aliases are followed.
 * CAIRN_NOT_FOUND with a message, at cursor 0: there is no such tensor. */
enum cairn_code cairn_restore_holder_next(struct cairn_restore *restore, const char *tensor,
                                          uint64_t *cursor, struct cairn_holder *ret,
                                          struct cairn_error *err);

/* Where a piece of a tensor lies. */
struct cairn_stored_piece {
    uint32_t rank;               /* that saved it */
    struct cairn_text shard;     /* as cairn_restore_shard_at names it */
    uint64_t offset, bytes;      /* in the shard; row-major, without gaps */
    enum cairn_form form;        /* CAIRN_FLAT or CAIRN_BOX */
    uint64_t start[8], count[8]; /* in elements, as in struct cairn_tensor_piece */
};
/* The next piece of the tensor of that name, by rank. Of a REPLICATED tensor each holder's is the
 * whole. Errors as before. */
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
