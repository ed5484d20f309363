/* SPDX-License-Identifier: Apache-2.0 */
/*
 * landing: bytes of the window go to where a read wants them, in host memory or on a device.
 *
 * Why:     a model is restored into a GPU without a copy of it in host memory: each slot of the
 *          window is copied on from there, while the uploader fills the others.
 * Promise: 1   after `settle` the device has read all that was put, so a slot may be filled again.
 *          2   after `end` nothing of the window is read any more, also after an error.
 *          3   what is put on a device comes after what the read's stream had.
 * Limits:  as client/device/device.h.
 * Threads: one thread, which has the window.
 * Next:    client/restore/reads.c.
 */
#pragma once

#include "client/restore/target.h"
#include "client/session/session.h"

struct cairn_client_landing {
    const struct cairn_client_device *device;
    struct cairn_device_job *job; /* NULL: all reads are to host memory */
    bool put;                     /* to the device, since it was settled */
};
enum cairn_code cairn_client_landing_begin(struct cairn_session *session,
                                           const struct cairn_read *reads, size_t count,
                                           struct cairn_client_landing *ret,
                                           struct cairn_error *err) CAIRN_MUST_USE;
/* The bytes [at, at + size) of the read, as they are stored. */
enum cairn_code cairn_client_landing_put(struct cairn_client_landing *landing,
                                         const struct cairn_read *read,
                                         struct cairn_client_target *target, uint64_t at,
                                         struct cairn_view from,
                                         struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_client_landing_settle(struct cairn_client_landing *landing,
                                            struct cairn_error *err) CAIRN_MUST_USE;
void cairn_client_landing_end(struct cairn_client_landing *landing);
