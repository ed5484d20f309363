/* SPDX-License-Identifier: Apache-2.0 */
/*
 * progress: how far a save is, for whoever asks and for the function that is told.
 *
 * Why:     a job that shows its saves' progress would need a thread that asks again and again.
 * Promise: 1   the function is called by the thread that is in a call on the handle, while no lock
 *              is held, and only when a figure has changed.
 *          2   what a call was made for is told before it returns CAIRN_OK.
 * Limits:  one function a save.
 * Threads: the handle's caller; look takes any thread that holds the session's lock.
 * Next:    client/save/stage.c and client/save/wait.c; tests/client/test_progress.c.
 */
#pragma once

#include "client/save/save.h"

/* What is known at this moment. The lock is held. */
void cairn_client_progress_look(const struct cairn_save *save, struct cairn_save_status *ret);
/* Tell what has changed, and what changes while the function runs, but that only until then. The
 * lock is held, but for the time in which the function runs. */
void cairn_client_progress_tell(struct cairn_save *save, uint64_t until_ms);
