/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sink: what a session hears about saves.
 *
 * Why:     the session's thread takes frames in and knows no saves.
 * Promise: 1   a verdict is the last word about a save, whoever has its handle.
 *          Q41  only the word about the owner that is known here frees a generation.
 * Limits:  none beyond those of the session.
 * Threads: the session's thread, with the lock held.
 * Next:    client/session/dispatch.c, which calls it.
 */
#pragma once

#include "client/save/save.h"

extern const struct cairn_client_sink cairn_client_saves_sink;
