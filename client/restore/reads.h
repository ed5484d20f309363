/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reads: one call's reads, from their plan to the last byte in its place.
 *
 * Why:     a caller waits for them, or a thread of the session does it for several callers.
 * Promise: P3  CAIRN_OK: every destination is filled with verified bytes.
 *          1   after the call nothing writes to a destination.
 * Limits:  as plan/reads.h.
 * Threads: any; calls of one session take turns.
 * Next:    client/restore/readings.c.
 */
#pragma once

#include "client/restore/restore.h"

struct cairn_client_reads {
    struct cairn_restore *restore;
    const struct cairn_read *reads; /* of this library's size */
    size_t count;
    uint64_t deadline_ms;
    /* True: the call ends with CAIRN_CANCELLED. Asked with the session's lock held, before bytes
     * are awaited and put; waits are stopped by cairn_client_stoppable. NULL: never. */
    bool (*stopped)(const void *owner);
    const void *owner;
};
/* The session is entered by the caller. */
enum cairn_code cairn_client_reads_run(const struct cairn_client_reads *call,
                                       struct cairn_error *err) CAIRN_MUST_USE;
/* The caller's structs have the size that its header gave them; the first says it for all. */
enum cairn_code cairn_client_reads_copy(const struct cairn_read *reads, size_t count,
                                        struct cairn_read *ret,
                                        struct cairn_error *err) CAIRN_MUST_USE;
