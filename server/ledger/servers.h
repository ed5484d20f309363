/* SPDX-License-Identifier: Apache-2.0 */
/*
 * servers: who else writes this catalog, and what all of them go by.
 *
 * Why:     several servers over one catalog number the store's generation together, and what was
 *          told to uploaders under one number must hold whichever server is asked next.
 * Promise: 1   no two calls of cairn_srv_generation_take get one number, of all servers.
 *          2   the life of a catalog is the number of the server that found no other one there:
 *              it changes with each start of the first server, and with none of a further one.
 * Limits:  a file of SQLite has one server, to which no other lives.
 * Threads: inside a transaction; take and what writes inside a change.
 * Next:    server/guard/identity.c, server/health.c; E2 in server/README.md.
 */
#pragma once

#include "server/db/values.h"

/* This server's own row, which its transactions keep. */
enum cairn_code cairn_srv_server_put(struct cairn_srv_tx *tx, const char *server, const char *name,
                                     int64_t wall_ms, struct cairn_error *err) CAIRN_MUST_USE;
/* It was there, in catalog time. */
enum cairn_code cairn_srv_server_seen(struct cairn_srv_tx *tx, const char *server,
                                      struct cairn_error *err) CAIRN_MUST_USE;
/* Was it one of this catalog's? Rows are kept as long as those of nodes. */
enum cairn_code cairn_srv_server_there(struct cairn_srv_tx *tx, const char *server, bool *ret,
                                       struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_srv_servers_trim(struct cairn_srv_tx *tx, const char *server,
                                       uint64_t tick_ms, struct cairn_error *err) CAIRN_MUST_USE;
/* A text that is written and read back, to see that it can be. */
enum cairn_code cairn_srv_server_mark(struct cairn_srv_tx *tx, const char *server, const char *mark,
                                      struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_srv_server_mark_is(struct cairn_srv_tx *tx, const char *server,
                                         const char *mark, bool *ret,
                                         struct cairn_error *err) CAIRN_MUST_USE;

/* Does another one live that has joined? Inside a change. */
enum cairn_code cairn_srv_servers_others(struct cairn_srv_tx *tx, bool *ret,
                                         struct cairn_error *err) CAIRN_MUST_USE;
/* Has that one joined, and not ended? */
enum cairn_code cairn_srv_server_lives(struct cairn_srv_tx *tx, const char *server, bool *ret,
                                       struct cairn_error *err) CAIRN_MUST_USE;
/* From here on others know that this server lives, until its process ends. */
enum cairn_code cairn_srv_server_join(struct cairn_srv_tx *tx,
                                      struct cairn_error *err) CAIRN_MUST_USE;
/* seen->generation becomes the next number behind the catalog's and at_least; kept with its
 * uuid. */
enum cairn_code cairn_srv_generation_take(struct cairn_srv_tx *tx, uint64_t at_least,
                                          struct cairn_srv_store_seen *seen,
                                          struct cairn_error *err) CAIRN_MUST_USE;
/* What uploaders are told (Q19): *ret, unless another server has begun a life that goes on. */
enum cairn_code cairn_srv_life_join(struct cairn_srv_tx *tx, bool goes_on, uint64_t *ret,
                                    struct cairn_error *err) CAIRN_MUST_USE;
/* What all servers sign grants with, as a digest in hexadecimal; "" in a new catalog. */
#define CAIRN_SRV_KEY_DIGEST_BYTES 65
enum cairn_code cairn_srv_key_digest_get(struct cairn_srv_tx *tx,
                                         char ret[CAIRN_SRV_KEY_DIGEST_BYTES],
                                         struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_srv_key_digest_put(struct cairn_srv_tx *tx, const char *digest,
                                         struct cairn_error *err) CAIRN_MUST_USE;
