/* SPDX-License-Identifier: Apache-2.0 */
/*
 * poll: saves in an event loop, which waits for descriptors and not in calls.
 *
 * Why:     such a program (asyncio, libuv, epoll) would need a thread for each cairn_save_wait.
 * Promise: 1   after each change of its save the descriptor is readable until the next
 *              cairn_save_poll, and permanently once the save is over; no change is missed.
 * Limits:  one descriptor per handle, created on request.
 * Threads: any thread may make both calls at any time, but not after cairn_save_free.
 * Next:    cairn/cairn.h; cairn/reads.h has the same for reads.
 *
 *     struct epoll_event event = {.events = EPOLLIN, .data.ptr = save};
 *     epoll_ctl(loop, EPOLL_CTL_ADD, cairn_save_fd(save), &event);
 *     ...                                                         when it is readable:
 *     enum cairn_code code = cairn_save_poll(save, CAIRN_COMMITTED, &err);
 *     if (code == CAIRN_TIMEOUT || code == CAIRN_UPLOADER_GONE) return;   not yet
 *     epoll_ctl(loop, EPOLL_CTL_DEL, cairn_save_fd(save), NULL);          committed, or err
 *     cairn_save_free(save);
 */
#ifndef CAIRN_POLL_H
#define CAIRN_POLL_H

#include <cairn/cairn.h>

#ifdef __cplusplus
extern "C" {
#endif
#if defined(__GNUC__)
#pragma GCC visibility push(default)
#endif

/* Returns a descriptor (poll, epoll; level-triggered) that is readable if, since the last
 * cairn_save_poll, the save reached a milestone, failed or was cancelled, or its uploader went away
 * or came back, and permanently once the save is committed or failed or its session is closed. The
 * handle owns it; each call returns the same. Do not read from it or close it, and remove it from
 * an epoll before cairn_save_free, which closes it. Valid at any time after the begin; earlier
 * changes make it readable at once. -1: no descriptors are left, or the handle is CAIRN_INVALID. */
int cairn_save_fd(struct cairn_save *save);
/* Returns what cairn_save_wait would return at this moment; does not wait, so no signal
 * interrupts it. CAIRN_TIMEOUT: not yet, also for a save that is not staged.
 * CAIRN_UPLOADER_GONE: not yet, and the uploader is away; the next one takes the save over. Any
 * other error is final, except that a cancelled save may turn out committed if the server had
 * decided that first. A connected uploader that does not answer is not detected here, only by
 * cairn_save_wait or the program's own deadline. */
enum cairn_code cairn_save_poll(struct cairn_save *save, enum cairn_milestone milestone,
                                struct cairn_error *err);

#if defined(__GNUC__)
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif
#endif
