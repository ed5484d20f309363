/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reads: read parts of a version in the background, each read with its own state.
 *
 * Why:     a loader requests the next tensors while it works on the last ones, and a program with
 *          an event loop waits for descriptors, not in calls.
 * Promise: P3  as cairn_restore_read: a read ends with CAIRN_OK only after every block matched its
 *              checksum.
 *          1   after a read is done, the library no longer writes to its destinations.
 * Limits:  65,536 unfreed reads per session; each holds a descriptor once cairn_read_fd was called.
 * Threads: several threads may call a read's functions at once, except cairn_read_free, which
 *          invalidates the handle. The session's first read starts its second thread.
 * Next:    cairn/cairn.h.
 *
 * Reads that wait at the same time are merged: their requests run concurrently, and shared blocks
 * are fetched once. cairn_restore_read may be called meanwhile, also by several threads on one
 * restore.
 */
#ifndef CAIRN_READS_H
#define CAIRN_READS_H

#include <cairn/cairn.h>

#ifdef __cplusplus
extern "C" {
#endif
#if defined(__GNUC__)
#pragma GCC visibility push(default)
#endif

struct cairn_reading;
/* Starts what cairn_restore_read does, and returns. The structs and what they point to are copied,
 * except `into`, which must stay valid until the read is done. timeout_ms counts from now; 0 = the
 * session's default. The caller frees *ret with cairn_read_free, before its restore. */
enum cairn_code cairn_read_begin(struct cairn_restore *restore, const struct cairn_read *reads,
                                 size_t count, uint32_t timeout_ms, struct cairn_reading **ret,
                                 struct cairn_error *err);
/* Returns 1 if the read is done; does not wait. *ret_code (may be NULL) is then the code that
 * cairn_restore_read would have returned, or CAIRN_CANCELLED for a read that was cancelled, or
 * whose session was closed, first. NULL returns 1 with CAIRN_INVALID. */
int cairn_read_poll(struct cairn_reading *reading, enum cairn_code *ret_code);
/* Waits, and returns the code that cairn_restore_read would have returned. CAIRN_TIMEOUT while
 * cairn_read_poll still returns 0: the read is not done within this call's timeout_ms (0 = the
 * session's default), and continues. */
enum cairn_code cairn_read_wait(struct cairn_reading *reading, uint32_t timeout_ms,
                                struct cairn_error *err);
/* Cancels the read without waiting: it is soon done, CAIRN_CANCELLED unless done before. Takes
 * NULL. */
void cairn_read_cancel(struct cairn_reading *reading);
/* Returns a descriptor that is readable (poll, epoll) once the read is done. The handle owns it: do
 * not read from it or close it. -1: no descriptors are left, or the read is NULL. */
int cairn_read_fd(struct cairn_reading *reading);
/* Cancels the read, waits until it is done, and frees it. Takes NULL. */
void cairn_read_free(struct cairn_reading *reading);

#if defined(__GNUC__)
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif
#endif
