/* SPDX-License-Identifier: Apache-2.0 */
/*
 * said: data that users gave to this catalog and the store does not hold, as one document.
 *
 * Why:     a catalog rebuilt from its bucket must keep pins, aliases, metrics, quotas and tokens.
 * Promise: 1   equal rows give equal bytes, with either engine.
 *          2   import drops data of versions that are not committed, and decreases no attempt
 *              number.
 *          3   a token is stored by its digest, as in the catalog, never in clear.
 *          4   data of many versions goes to pieces: their size never prevents writing the rest.
 * Limits:  SRV_SAID_BYTES_MAX for the document and each piece; more is CAIRN_TOO_LARGE.
 * Threads: inside a transaction; take inside a change.
 * Next:    server/guard/said_copy.h; docs/format.md, "Copies of annotations, policies and tokens".
 */
#pragma once

#include "common/hash/hash.h"
#include "common/json.h"
#include "server/db/sql.h"

#define SRV_SAID_BYTES_MAX (64 * CAIRN_MIB)

/* The document's members except generation, whose place is after the first ones. */
struct srv_said {
    struct cairn_buf before, behind;
    uint64_t rows;
    uint8_t sha256[CAIRN_SHA256_BYTES]; /* of both texts */
};
void srv_said_release(struct srv_said *record);
/* Upper bound of the number of versions with such data. */
SRV_WORD srv_said_count(struct srv_tx *tx, uint64_t *ret, struct cairn_error *err) {
    return srv_sql_u64(tx, ret, err, SQL(said_versions_count));
}
/* whole: includes the versions; otherwise they go to pieces. */
enum cairn_code srv_said_make(struct srv_tx *tx, bool whole, struct srv_said *ret,
                              struct cairn_error *err) CAIRN_MUST_USE;
/* The piece of versions from `from` on and before `to`. */
enum cairn_code srv_said_piece(struct srv_tx *tx, const char *from, const char *to,
                               struct cairn_buf *ret, uint64_t *ret_rows,
                               struct cairn_error *err) CAIRN_MUST_USE;
/* pieces: "pieces":[...], or "" when whole. */
enum cairn_code srv_said_print(const struct srv_said *said, uint64_t generation, const char *pieces,
                               struct cairn_buf *ret, struct cairn_error *err) CAIRN_MUST_USE;
/* Imports a document or a piece. *ret_rows: imported rows. CAIRN_CORRUPT: not such a document. */
enum cairn_code srv_said_take(struct srv_tx *tx, const json_t *document, uint64_t *ret_rows,
                              struct cairn_error *err) CAIRN_MUST_USE;
