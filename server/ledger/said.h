/* SPDX-License-Identifier: Apache-2.0 */
/*
 * said: what people have said to this catalog and its store does not tell, as one document.
 *
 * Why:     a catalog that is made again from its bucket must not have lost what was pinned, named,
 *          measured, limited and allowed.
 * Promise: 1   the same rows give the same bytes, whichever engine keeps them.
 *          2   what is taken over again is checked as far as rows refer to each other: a version
 *              that is not committed there gets nothing, and no attempt's number goes back.
 *          3   of a token it has the digest, as the catalog; never the token.
 *          4   many versions have pieces of their own: they keep nothing else from being written.
 * Limits:  CAIRN_SRV_SAID_BYTES_MAX without these, and for each piece; more is CAIRN_TOO_LARGE.
 * Threads: inside a transaction; take inside a change.
 * Next:    server/guard/said_copy.h; docs/format.md, "The catalog's own words".
 */
#pragma once

#include "common/buf.h"
#include "common/hash/hash.h"
#include "common/json.h"
#include "server/db/sql.h"

#define CAIRN_SRV_SAID_BYTES_MAX (64 * CAIRN_MIB)

/* The members of the document but for its generation, of which the first stand before it. */
struct cairn_srv_said {
    struct cairn_buf before, behind;
    uint64_t rows;
    uint8_t sha256[CAIRN_SHA256_BYTES]; /* of both */
};
void cairn_srv_said_release(struct cairn_srv_said *record);
/* Of how many versions something was said, at most. */
enum cairn_code cairn_srv_said_count(struct cairn_srv_tx *tx, uint64_t *ret,
                                     struct cairn_error *err) CAIRN_MUST_USE;
/* whole: with the versions; else they are in pieces. */
enum cairn_code cairn_srv_said_make(struct cairn_srv_tx *tx, bool whole, struct cairn_srv_said *ret,
                                    struct cairn_error *err) CAIRN_MUST_USE;
/* The piece of the versions from `from` on and before `to`. */
enum cairn_code cairn_srv_said_piece(struct cairn_srv_tx *tx, const char *from, const char *to,
                                     struct cairn_buf *ret, uint64_t *ret_rows,
                                     struct cairn_error *err) CAIRN_MUST_USE;
/* pieces: "pieces":[...], or "" where it is whole. */
enum cairn_code cairn_srv_said_print(const struct cairn_srv_said *said, uint64_t generation,
                                     const char *pieces, struct cairn_buf *ret,
                                     struct cairn_error *err) CAIRN_MUST_USE;
/* A copy without its pieces, or a piece. *ret_rows: how many were taken over. CAIRN_CORRUPT: it is
 * no such document. */
enum cairn_code cairn_srv_said_take(struct cairn_srv_tx *tx, const json_t *document,
                                    uint64_t *ret_rows, struct cairn_error *err) CAIRN_MUST_USE;
