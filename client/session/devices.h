/* SPDX-License-Identifier: Apache-2.0 */
/*
 * devices: the accelerator of a session, opened when something on it is named for the first time.
 *
 * Why:     most trainers' saves and restores need none, and then nothing is loaded.
 * Promise: 1   what two threads open at once is one in the end, and stays until the session's end.
 * Limits:  as client/device/device.h.
 * Threads: any.
 * Next:    client/save/pieces.c, client/restore/landing.c.
 */
#pragma once

#include "client/session/session.h"

/* CAIRN_INVALID: `memory` is not of the device. NULL: nothing is looked at */
enum cairn_code cairn_client_device_need(struct cairn_session *session, const void *memory,
                                         struct cairn_error *err) CAIRN_MUST_USE;
/* Of memory of the device, once there is one. CAIRN_UNSUPPORTED: it does not convert these. */
enum cairn_code cairn_client_device_converts(struct cairn_session *session, const void *memory,
                                             unsigned source_dtype, unsigned dtype,
                                             struct cairn_error *err) CAIRN_MUST_USE;
/* Page-lock this memory of the session, which the uploader shares. Where that fails, a device
 * copies at a quarter of the speed and holds up its caller: the next cairn_session_problem says so,
 * and why; `which` is "saves" or "restores". */
void cairn_client_device_lock(struct cairn_session *session, const struct cairn_slab *slab,
                              bool read_only, const char *which);
