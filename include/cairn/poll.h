/* SPDX-License-Identifier: Apache-2.0 */
/*
 * poll: saves in a program that has a loop of events, and waits for descriptors and not in calls.
 *
 * Why:     such a program (asyncio, libuv, epoll) would need a thread for each cairn_save_wait.
 * Promise: 1   the descriptor is readable from each change of its save on until cairn_save_poll has
 *              looked at it, and for good once the save is over; no change is missed.
 * Limits:  a descriptor for each handle that was asked for one, and none for any other.
 * Threads: both calls may come from any thread at any time, but not after cairn_save_free.
 * Next:    cairn/cairn.h; cairn/reads.h has the same of reads.
 *
 *     struct epoll_event event = {.events = EPOLLIN, .data.ptr = save};
 *     epoll_ctl(loop, EPOLL_CTL_ADD, cairn_save_fd(save), &event);
 *     ...                                                         it is readable:
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

/* A descriptor that is readable (poll, epoll; level-triggered) when the save reached a milestone,
 * failed or was cancelled, or its uploader went away or came back, since the last cairn_save_poll;
 * and for good once it is committed or failed, or its session is closed. It is the handle's and the
 * same each time: not to be read from or closed, and to be taken out of an epoll before
 * cairn_save_free, which closes it. It may be asked for at any time after the begin; what happened
 * before makes it readable at once. -1: there is none left, or any call on the handle would be
 * CAIRN_INVALID. */
int cairn_save_fd(struct cairn_save *save);
/* What cairn_save_wait would return at this moment; waits for nothing, so that no signal interrupts
 * it. CAIRN_TIMEOUT: not yet, also of a save that is not staged. CAIRN_UPLOADER_GONE: not yet, and
 * the uploader is away; the next one takes the save over. Any other error is final, but for one: a
 * save that was cancelled is committed after all where the server had decided that before. An
 * uploader that is there and does not answer is not found here; a deadline of the program's own,
 * and cairn_save_wait, find it. */
enum cairn_code cairn_save_poll(struct cairn_save *save, enum cairn_milestone milestone,
                                struct cairn_error *err);

#if defined(__GNUC__)
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif
#endif
