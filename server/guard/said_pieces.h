/* SPDX-License-Identifier: Apache-2.0 */
/*
 * said_pieces: what was said of many versions, in the store as objects that change where it did.
 *
 * Why:     one document of it was as large as a year of saves, and beyond 64 MiB none was written.
 * Promise: 1   a piece has the versions whose ids begin alike; its key is the SHA-256 of its bytes,
 *              so one that is there is not written again, and none is ever written over.
 *          2   a piece that a kept copy names is not deleted, nor is any where such a copy cannot
 *              be read.
 * Limits:  one piece in memory, CAIRN_SRV_SAID_BYTES_MAX; CAIRN_SRV_SAID_PIECES_MAX of them.
 * Threads: as said_copy.h.
 * Next:    server/guard/said_copy.h; docs/format.md, "The catalog's own words".
 */
#pragma once

#include "common/json.h"
#include "server/ledger/said.h"
#include "server/server.h"

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
enum cairn_code cairn_srv_pieces_write(struct cairn_srv *server, struct cairn_store_worker *worker,
                                       uint64_t rows,
                                       enum cairn_code (*raise)(void *owner,
                                                                struct cairn_error *err),
                                       void *owner, struct cairn_srv_pieces *ret,
                                       struct cairn_error *err) CAIRN_MUST_USE;
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
