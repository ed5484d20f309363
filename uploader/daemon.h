/* SPDX-License-Identifier: Apache-2.0 */
/*
 * daemon: start, serve, drain and stop of one uploader.
 *
 * Why:     the order decides which answers precede their journal record, and what a stop loses.
 * Promise: 1   parts start in the order claim, journal, recovery, senders, outbox, watch, socket,
 *              and stop in the reverse, so that no answer precedes its journal record.
 *          2   drain admits nothing new and sends what is staged within drain_timeout; the rest
 *              stays in the journal for the next start.
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
/* Exits with status while a helper waits for the server: a restart needs only the journal. */
void cairn_up_stop(struct cairn_up *up, int status);
