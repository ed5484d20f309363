/* SPDX-License-Identifier: Apache-2.0 */
/*
 * said_copy: .cairn/catalog/<generation>.json, which keeps in the store what people have said.
 *
 * Why:     pins, aliases, metrics, policies, quotas and tokens stand in the catalog alone; its loss
 *          would take them along. One document of it was as large as a year of saves, and beyond 64
 *          MiB none was written.
 * Promise: 1   what was said is in the store a little after `catalog-copy-interval`, at the next
 *              round of the sweep, at a clean stop, or after the next start.
 *          2   the number is one of the store's generation that this server took for it (Q35): two
 *              servers never write one key, and a server that is frozen writes none.
 *          3   an older copy is deleted when two newer ones are there.
 *          4   no token that was revoked is taken over, however old the copy (revoked.h).
 *          5   where something was said of many versions, that is in objects of its own
 *              (said_copy.h), and a copy is taken over with all of them or not at all.
 *          6   a look takes a twentieth of the time: the next one waits for so long.
 *          7   a piece has the versions whose ids begin alike; its key is the SHA-256 of its bytes,
 *              so one that is there is not written again, and none is ever written over.
 *          8   a piece that a kept copy names is not deleted, nor is any where such a copy cannot
 *              be read.
 * Limits:  as server/ledger/said.h; a catalog with more to say logs that, and readyz says so. One
 *          piece in memory; CAIRN_SRV_SAID_PIECES_MAX of them.
 * Threads: the sweeping thread; take by who reindexes.
 * Next:    server/ledger/said.h; docs/format.md, "The catalog's own words".
 */
#pragma once

#include "common/json.h"
#include "server/ledger/said.h"
#include "server/server.h"

struct cairn_srv_said_copy {
    uint64_t looked_ms, event; /* mono clock, number of the newest event; 0: never */
    bool too_large;            /* logged */
    uint64_t rest_ms;          /* until the next look, at least */
};
/* Where something was said since. */
enum cairn_code cairn_srv_said_copy_write(struct cairn_srv_said_copy *copy,
                                          struct cairn_srv *server,
                                          struct cairn_store_worker *worker,
                                          struct cairn_error *err) CAIRN_MUST_USE;
/* A copy into the catalog: 0 is the newest, 1 the one before. ret_key "": there is none; on
 * CAIRN_CORRUPT the one that is no copy, and nothing of it was taken. */
enum cairn_code cairn_srv_said_copy_take(struct cairn_srv *server,
                                         struct cairn_store_worker *worker, size_t before,
                                         struct cairn_key *ret_key, uint64_t *ret_rows,
                                         struct cairn_error *err) CAIRN_MUST_USE;

/* ---- pieces ---- */

#define CAIRN_SRV_SAID_PIECES_MAX 4096

struct cairn_srv_piece {
    char sha256[2 * CAIRN_SHA256_BYTES + 1];
    uint64_t bytes, rows;
};
struct cairn_srv_pieces {
    struct cairn_srv_piece *items;
    size_t count, capacity;
};
void cairn_srv_pieces_release(struct cairn_srv_pieces *pieces);

/* Reads all that was said of versions, `rows` of them, and puts what the store lacks; raise() comes
 * before the first. */
enum cairn_code
cairn_srv_pieces_write(struct cairn_srv *server, struct cairn_store_worker *worker, uint64_t rows,
                       enum cairn_code (*raise)(void *owner, struct cairn_error *err), void *owner,
                       struct cairn_srv_pieces *ret, struct cairn_error *err) CAIRN_MUST_USE;
/* "pieces":[...] of a copy. */
enum cairn_code cairn_srv_pieces_print(const struct cairn_srv_pieces *pieces,
                                       struct cairn_buf *ret,
                                       struct cairn_error *err) CAIRN_MUST_USE;
/* Those that a copy names, if any. */
enum cairn_code cairn_srv_pieces_of(const json_t *document, struct cairn_srv_pieces *ret,
                                    struct cairn_error *err) CAIRN_MUST_USE;
/* One of them, which is what its name says; CAIRN_CORRUPT: it is not, or it is not there. */
enum cairn_code cairn_srv_piece_get(struct cairn_store_worker *worker,
                                    const struct cairn_srv_piece *piece, json_t **ret,
                                    struct cairn_error *err) CAIRN_MUST_USE;
/* Deletes those in the store that none of both lists has. */
void cairn_srv_pieces_drop(struct cairn_store_worker *worker,
                           const struct cairn_srv_pieces *newest,
                           const struct cairn_srv_pieces *before);
