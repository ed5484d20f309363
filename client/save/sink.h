/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sink: the session's callbacks (struct cairn_client_sink), as the saves implement them.
 *
 * Why:     the session's thread takes frames in and knows no saves.
 * Promise: 1   a verdict ends the save, also when its handle was freed.
 *          Q41  `free` frees a generation only with the owner that the generation has here.
 * Limits:  none beyond those of the session.
 * Threads: the session's thread, with the lock held.
 * Next:    client/session/dispatch.c, which calls it.
 */
#pragma once

#include "client/save/save.h"

extern const struct cairn_client_sink cairn_client_saves_sink;
