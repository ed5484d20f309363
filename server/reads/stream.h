/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stream: the bytes of one range of a source, in order, loaded while others are sent.
 *
 * Why:     a reader must get exact bytes or a broken connection, never a clean end after wrong
 *          ones; and the event loop must never wait for the store.
 * Promise: P3  no byte is handed out before the 1 MiB block that it lies in has had its checksum
 *              compared: that is the source's promise (source.h), and nothing else is handed out.
 *          1   the first block (of a shard from which several chunks are read; elsewhere the first
 *              chunk) is read and compared at open, so that damage there is a problem answer
 *              (CAIRN_CORRUPT naming run, step, shard, range, expected and found).
 *          2   later damage makes take() fail for good, and one error line is logged.
 *          3   a reader that takes nothing for two seconds keeps no other reader out: its memory is
 *              freed for one that waits, and its bytes are loaded again when it goes on.
 *          4   what memory holds of a long range (store/range.h) is read and compared by the thread
 *              that sends it, a block at a time, and takes neither slot nor chunk; from the first
 *              block on that is not ready, or is wrong, all is loaded as ever.
 *          Q29  a version is leased from before the first byte of an answer of more than a chunk
 *               until that answer has ended, however many there are at once: a download of hours
 *               has no lease of its own. All of one server share one lease, which is renewed while
 *               bytes are loaded; of a server that died it ends after 2 min. Where the catalog
 *               takes no change the bytes are sent without a lease.
 * Limits:  two chunks of at most 4 MiB a stream, and what its source needs to load
 *          them; settings streams-max at once, CAIRN_BUSY beyond. ready-streams-max at once take
 *          what is ready: a step of theirs is 1 MiB, about 0.3 ms of the event loop, and beside 16
 *          readers ordinary calls took twice as long.
 *          A catalog change when the first long answer of a version begins, one when the last
 *          ends, and one each third of the lease's time in between.
 * Threads: take and free from the connection's event loop, where what is ready is read; loading on
 *          a pool thread.
 * Next:    server/reads/source.h, server/reads/send.c, server/http/reply.c,
 *          server/reads/send.h.
 */
#pragma once

#include "server/http/request.h"

/* The key of waiters that a stream wakes when it ends. */
#define CAIRN_SRV_STREAMS_KEY "streams"
#define CAIRN_SRV_STREAM_CHUNK_BYTES (4 * CAIRN_MIB)

struct cairn_srv_source;
struct cairn_srv_stream;
struct cairn_srv_stream_options {
    struct cairn_srv *server;
    struct cairn_store_worker *worker; /* of the thread that opens */
    struct cairn_srv_source *take_source;
    uint64_t begin, end; /* bytes of the source, begin < end */
};
/* take_source is freed with the stream, which is the flow's owner, also on failure. */
enum cairn_code cairn_srv_stream_open(const struct cairn_srv_stream_options *options,
                                      struct cairn_srv_flow *ret,
                                      struct cairn_error *err) CAIRN_MUST_USE;
/* All of it at once, where it lies in the first chunk, which is read: it is appended, and the
 * stream may be freed. false: it does not, or there is no memory. */
bool cairn_srv_stream_whole(struct cairn_srv_stream *stream, struct cairn_buf *ret) CAIRN_MUST_USE;

/* ---- leases of the versions whose bytes this server sends ---- */

struct cairn_srv_stream_leases;
enum cairn_code cairn_srv_stream_leases_new(struct cairn_srv_stream_leases **ret,
                                            struct cairn_error *err) CAIRN_MUST_USE;
void cairn_srv_stream_leases_free(struct cairn_srv_stream_leases *leases); /* NULL is fine */
