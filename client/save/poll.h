/* SPDX-License-Identifier: Apache-2.0 */
/*
 * poll: the descriptor by which a loop of events hears of a save.
 *
 * Why:     include/cairn/poll.h.
 * Promise: 1   a change is noted (cairn_client_save_changed), whether a descriptor was asked for or
 *              not, so that one that is asked for later is readable for it.
 *          2   a save that nobody has asked a descriptor for has none and costs no system call; one
 *              that was asked for costs one for each change that was looked at.
 * Limits:  one for each save.
 * Threads: by the session's lock.
 * Next:    cairn_client_save_changed in client/save/save.c; tests/client/test_poll.c.
 */
#pragma once

#include "client/save/save.h"

/* The uploader of the saves that are not over went away or came back. The lock is held. */
void cairn_client_saves_changed(struct cairn_session *session);
/* cairn_save_poll looks at it: what comes from now on is a change. The lock is held. */
void cairn_client_save_looked_at(struct cairn_save *save);
/* Nobody has the handle any more. */
void cairn_client_save_fd_close(struct cairn_save *save);
