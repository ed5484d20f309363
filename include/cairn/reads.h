/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reads: parts of a version read in the background, each with a state of its own.
 *
 * Why:     a loader asks for the next tensors while it works on the last ones, and a program with a
 *          loop of events waits for descriptors, not in calls.
 * Promise: P3  as cairn_restore_read: every block was compared with its checksum before a read is
 *              done with CAIRN_OK.
 *          1   after a read is done, nothing of the library writes to its destinations.
 * Limits:  65,536 reads of a session that are not freed; each holds a descriptor once it was asked
 *          for one.
 * Threads: a read's functions may be called by any thread at once, but for cairn_read_free, after
 *          which there is no handle. From its first read on a session has a second thread.
 * Next:    cairn/cairn.h.
 *
 * Those that wait at the same time are read together: their requests are under way at once, and
 * blocks that they share are read once. cairn_restore_read may be called meanwhile, also by
 * several threads on one restore handle.
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
/* Begin what cairn_restore_read does, and return. The structs and what they point to are copied,
 * but for `into`, which stays until the read is done. timeout_ms counts from here; 0 = the
 * session's default. *ret is freed by cairn_read_free, before its restore. */
enum cairn_code cairn_read_begin(struct cairn_restore *restore, const struct cairn_read *reads,
                                 size_t count, uint32_t timeout_ms, struct cairn_reading **ret,
                                 struct cairn_error *err);
/* Waits for nothing: 1 when it is done; *ret_code (NULL is allowed) is then what cairn_restore_read
 * would have returned, and CAIRN_CANCELLED for one that was cancelled, or whose session was closed,
 * before it was done. NULL is done, with CAIRN_INVALID. */
int cairn_read_poll(struct cairn_reading *reading, enum cairn_code *ret_code);
/* What cairn_restore_read would have returned. CAIRN_TIMEOUT while cairn_read_poll says 0: it is
 * not done within this call's timeout_ms (0 = the session's default), and goes on. */
enum cairn_code cairn_read_wait(struct cairn_reading *reading, uint32_t timeout_ms,
                                struct cairn_error *err);
/* Give it up, without waiting: it is done soon, with CAIRN_CANCELLED unless it was done before.
 * NULL is allowed. */
void cairn_read_cancel(struct cairn_reading *reading);
/* A descriptor that is readable (poll, epoll) once the read is done; the handle's, not to be read
 * from or closed. -1: there is none left, or the read is NULL. */
int cairn_read_fd(struct cairn_reading *reading);
/* Cancels it and waits until it is done. NULL is allowed. */
void cairn_read_free(struct cairn_reading *reading);

#if defined(__GNUC__)
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif
#endif
