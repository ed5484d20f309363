/* SPDX-License-Identifier: Apache-2.0 */
/*
 * memory: memory that a session shares with its uploader, and the accelerator that copies from it.
 *
 * Why:     bytes are staged in slabs that outlive the uploader. Bytes that are read are checked
 *          before anybody sees them, so they come by way of a window and not into the caller's
 *          memory. Most trainers' saves and restores need no accelerator, and then nothing is
 *          loaded.
 * Promise: 1   one window a session, made at the first read; after the uploader was restarted a new
 *              one. One read call uses it at a time; others wait for their turn, up to their
 *              deadline.
 *          2   the device is opened when something on it is named for the first time. What two
 *              threads open at once is one in the end, and stays until the session's end.
 * Limits:  a window of 64 MiB, 256 MiB for large versions; halved down to 8 MiB where the node's
 *          memory is short. Devices as client/device/device.h.
 * Threads: any. `window` belongs to whoever holds `window_taken`, which the session's lock guards.
 * Next:    client/restore/reads.c, client/save/pieces.c.
 */
#pragma once

#include "client/session/session.h"

/* ---- slabs ---- */

/* Memory to stage into, mapped. */
struct cairn_client_slabs {
    struct cairn_slab slabs[CAIRN_CLIENT_GENERATIONS_MAX];
    uint32_t count;
};
/* Out of the answer to `slabs`, for saves of so many bytes. After an error ret has what was mapped
 * until then. */
enum cairn_code cairn_client_slabs_map(struct cairn_frame *answer, uint64_t bytes,
                                       struct cairn_client_slabs *ret,
                                       struct cairn_error *err) CAIRN_MUST_USE;
void cairn_client_slabs_unmap(struct cairn_client_slabs *slabs);
/* Take the slabs out of the session, or put them in where it has none. With the lock held, once the
 * session has a thread. */
void cairn_client_slabs_take(struct cairn_session *session, struct cairn_client_slabs *ret);
void cairn_client_slabs_set(struct cairn_session *session, struct cairn_client_slabs *take_slabs);

/* ---- the window ---- */

void cairn_client_window_release(struct cairn_session *session);
/* Waits until no other read uses the window. */
enum cairn_code cairn_client_window_take(struct cairn_session *session, uint64_t deadline_ms,
                                         struct cairn_error *err) CAIRN_MUST_USE;
void cairn_client_window_give(struct cairn_session *session);
/* While taken: a window of the link `epoch`. wanted_bytes: it may get less. */
enum cairn_code cairn_client_window_open(struct cairn_session *session, uint32_t epoch,
                                         uint64_t wanted_bytes, uint64_t deadline_ms,
                                         struct cairn_error *err) CAIRN_MUST_USE;

/* ---- the device ---- */

/* Opens the device unless it is open. CAIRN_INVALID: `memory` is not of the device. NULL: not
 * checked. */
enum cairn_code cairn_client_device_need(struct cairn_session *session, const void *memory,
                                         struct cairn_error *err) CAIRN_MUST_USE;
/* Load libcairn_cuda.so from beside libcairn, else by the loader's search. It stays loaded. */
enum cairn_code cairn_client_device_open(struct cairn_client_device *ret,
                                         struct cairn_error *err) CAIRN_MUST_USE;
void cairn_client_device_release(struct cairn_client_device *device);
/* Page-lock this memory of the session, which the uploader shares. Where that fails, a device
 * copies at a quarter of the speed and holds up its caller: the next cairn_session_problem says so,
 * and why; `which` is "saves" or "restores". */
void cairn_client_device_lock(struct cairn_session *session, const struct cairn_slab *slab,
                              bool read_only, const char *which);
