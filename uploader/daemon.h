/* SPDX-License-Identifier: Apache-2.0 */
/*
 * daemon: start, serve, drain and stop of one uploader.
 *
 * Why:     the order in which parts start and stop decides what may be told of what is not yet
 *          remembered, and what is lost.
 * Promise: 1   parts start in the order claim, journal, recovery, senders, outbox, watch, socket,
 *              and stop in the reverse, so that nobody is told of something that is not remembered.
 *          2   drain: nothing new is admitted; what was staged is sent within drain_timeout; the
 *              rest stays in the journal for the next start.
 * Limits:  see uploader/settings.def.
 * Threads: the main thread.
 * Next:    uploader/README.md; uploader/up.h.
 */
#pragma once

#include "uploader/up.h"

enum cairn_code cairn_up_start(struct cairn_up *up, struct cairn_error *err) CAIRN_MUST_USE;
/* Serves until stop_fd becomes readable (SIGTERM), then drains. */
enum cairn_code cairn_up_run(struct cairn_up *up, int stop_fd,
                             struct cairn_error *err) CAIRN_MUST_USE;
/* Ends the process with status by itself when a helper still waits for the server; all that counts
 * is in the journal. */
void cairn_up_stop(struct cairn_up *up, int status);
