/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stream: sends one range of a source in order, and loads the next chunk meanwhile.
 *
 * Why:     a reader must get exact bytes or a broken connection, never a clean end after wrong
 *          ones; and the event loop must never wait for the store.
 * Promise: P3  no byte is sent before the source has verified its 1 MiB block (source.h).
 *          1   open reads and compares the first block (of a shard that takes several chunks; else
 *              the first chunk), so that damage there is a problem answer (CAIRN_CORRUPT naming
 *              run, step, shard, range, expected and found).
 *          2   later damage makes take() fail for good, and one error line is logged.
 *          3   a reader that takes nothing for two seconds blocks no other reader: a waiting reader
 *              gets its memory, and its bytes are loaded again when it resumes.
 *          4   blocks of a long range that are in memory already (store/range.h) are read and
 *              compared by the sending thread, one at a time, without slot or chunk; from the first
 *              block on that is not in memory or wrong, the stream loads chunks as usual.
 *          Q29  an answer of more than a chunk leases its version from its first byte to its end,
 *               since a download of hours has no lease of its own. Answers of one server share one
 *               lease per version, renewed while bytes are loaded; it ends 2 min after its server
 *               dies. Where the catalog accepts no write, bytes are sent without a lease.
 * Limits:  two chunks of at most 4 MiB a stream, and what its source needs to load them; settings
 *          streams-max at once, CAIRN_BUSY beyond. ready-streams-max at once read from memory:
 *          their step is 1 MiB, about 0.3 ms of the event loop, and beside 16 such readers ordinary
 *          calls took twice as long. A catalog write when the first long answer of a version
 *          begins, one when the last ends, and one each third of the lease's time in between.
 * Threads: take and free, and reads of ready blocks, on the event loop; loading on a pool thread.
 * Next:    server/reads/source.h, server/reads/send.c, server/http/reply.c, server/reads/send.h.
 */
#pragma once

#include "server/http/request.h"

/* The waiters' key that a stream wakes when it ends. */
#define SRV_STREAMS_KEY "streams"
#define SRV_STREAM_CHUNK_BYTES (4 * CAIRN_MIB)

struct srv_source;
struct srv_stream;
struct srv_stream_options {
    struct srv *server;
    struct cairn_store_worker *worker; /* of the opening thread */
    struct srv_source *take_source;
    uint64_t begin, end; /* bytes of the source, begin < end */
};
/* The flow owns the stream, which owns take_source; freed on failure, too. */
enum cairn_code srv_stream_open(const struct srv_stream_options *options, struct srv_flow *ret,
                                struct cairn_error *err) CAIRN_MUST_USE;
/* True: open has read the whole answer, which is appended; the stream may then be freed. */
bool srv_stream_whole(struct srv_stream *stream, struct cairn_buf *ret) CAIRN_MUST_USE;

/* ---- leases of the versions that this server sends ---- */

enum cairn_code srv_stream_leases_new(struct srv_stream_leases **ret,
                                      struct cairn_error *err) CAIRN_MUST_USE;
void srv_stream_leases_free(struct srv_stream_leases *leases); /* NULL is fine */
