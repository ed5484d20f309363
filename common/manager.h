/* SPDX-License-Identifier: Apache-2.0 */
/*
 * manager: tells the service manager how this daemon stands, as systemd's sd_notify does.
 *
 * Why:     a unit of Type=notify is started when the daemon answers, not when it was forked, and
 *          one whose loop stands still is started anew.
 * Promise: 1   nobody is waited for; without NOTIFY_SOCKET nothing is done.
 * Limits:  paths of a socket's length, and abstract names.
 * Threads: any thread; cairn_manager_alive one owner.
 * Next:    packaging/cairn-server.service.
 */
#pragma once

#include "common/base.h"

/* "READY=1", "STOPPING=1". */
void cairn_manager_tell(const char *state);
/* From a loop that turns at least once a second or so: that it does, where a watchdog asks. */
void cairn_manager_alive(void);
