/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cut: a relay in front of PostgreSQL that ends a connection at a message of our choice.
 *
 * Why:     what a COMMIT did whose answer never came depends on where the connection broke, so it
 *          is broken at each message, both ways (D08).
 * Promise: 1   without an order everything is passed on.
 *          2   after an order the count-th message that way (torn: its second half), and all after
 *              it, are not passed on and both sides are closed; later connections are not harmed.
 *          3   after silence nothing of the connections over which a session has begun to listen
 *              is passed on any more, either way, and neither side is closed: as where what is
 *              between them drops it. Later connections are not harmed.
 * Limits:  one relay at a time; no TLS.
 * Threads: the test's thread gives orders; the relay has threads of its own.
 * Next:    tests/server/test_postgres_cuts.c.
 */
#pragma once

#include "common/error.h"

/* From folder/.s.PGSQL.5433 to folder/.s.PGSQL.5432. */
bool cairn_cut_start(const char *folder);
void cairn_cut_stop(void);
void cairn_cut_order(bool to_server, unsigned count, bool torn);
/* From here on what goes to the server takes so long for each 16 KiB; 0: as before. */
void cairn_cut_slow(unsigned ms);
/* Of the sessions that listen now. */
void cairn_cut_silence(void);
/* Was the order of before carried out? Takes it back where it was not. */
bool cairn_cut_done(void);
