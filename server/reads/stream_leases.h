/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stream_leases: the leases of the versions whose bytes this server sends.
 *
 * Why:     a download of hours has no lease of its own, so the deletion of its version, due
 *          meanwhile, took the objects from under it and broke the connection.
 * Promise: Q29  a version is leased from before the first byte of a long answer until that answer
 *               has ended, however many there are at once; all of one server share one lease.
 *          1    the lease is renewed while bytes are loaded; of a server that died it ends after
 *               CAIRN_SRV_STREAM_LEASE_S.
 *          2    where the catalog takes no change the bytes are sent without a lease.
 * Limits:  a catalog change when the first long answer of a version begins, one when the last ends,
 *          and one each third of the lease's time in between.
 * Threads: take: any that may wait for the catalog; renew, give: any, a thread of the pool of reads
 *          does what they need.
 * Next:    server/reads/stream.c; server/ledger/read_leases.h.
 */
#pragma once

#include "api/documents/keys.h"
#include "server/server.h"

#define CAIRN_SRV_STREAM_LEASE_S 120

struct cairn_srv_stream_leases;
enum cairn_code cairn_srv_stream_leases_new(struct cairn_srv_stream_leases **ret,
                                            struct cairn_error *err) CAIRN_MUST_USE;
void cairn_srv_stream_leases_free(struct cairn_srv_stream_leases *leases); /* NULL is fine */
/* false: no memory, nothing is to be given back. */
bool cairn_srv_stream_lease_take(struct cairn_srv *server, const struct cairn_version_id *version);
void cairn_srv_stream_lease_renew(struct cairn_srv *server, const struct cairn_version_id *version);
void cairn_srv_stream_lease_give(struct cairn_srv *server, const struct cairn_version_id *version);
