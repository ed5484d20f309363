/* SPDX-License-Identifier: Apache-2.0 */
/*
 * parent: a daemon that was started for the life of one command ends with it.
 *
 * Why:     `cairn up` may be killed with SIGKILL; its daemons must not stay behind unseen.
 * Promise: 1   after _follow the process gets SIGTERM when the given parent ends; if it has ended
 *              already, CAIRN_UNAVAILABLE.
 * Limits:  the parent is the process that started this one.
 * Threads: call it from the main thread before others start.
 * Next:    cli/shell/daemons.h.
 */
#pragma once

#include "common/error.h"

/* parent_pid 0: nothing is followed. */
enum cairn_code cairn_parent_follow(uint64_t parent_pid, struct cairn_error *err) CAIRN_MUST_USE;
