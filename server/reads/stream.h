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
 *          4   what memory holds of a long range (store/ready.h) is read and compared by the thread
 *              that sends it, a block at a time, and takes neither slot nor chunk; from the first
 *              block on that is not ready, or is wrong, all is loaded as ever.
 *          Q29  while more than its first chunk is to be sent its version is leased
 *               (stream_leases.h).
 * Limits:  two chunks of at most 4 MiB a stream, and what its source needs to load
 *          them; settings streams-max at once, CAIRN_BUSY beyond. ready-streams-max at once take
 *          what is ready: a step of theirs is 1 MiB, about 0.3 ms of the event loop, and beside 16
 *          readers ordinary calls took twice as long.
 * Threads: take and free from the connection's event loop, where what is ready is read; loading on
 *          a pool thread.
 * Next:    server/reads/source.h, server/reads/send.c, server/http/reply.c,
 *          server/reads/read_slots.h.
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
