/* SPDX-License-Identifier: Apache-2.0 */
/*
 * memory: memory shared with the uploader, and the accelerator that copies from it.
 *
 * Why:     slabs hold staged bytes beyond the uploader's death. Restored bytes pass through a
 *          window, not straight into the caller's memory, so that they are verified before the
 *          caller sees them. Most trainers need no accelerator; then no plug-in is loaded.
 * Promise: 1   one window per session, created by the first read, and again after an uploader
 *              restart. One read call uses it at a time; others wait for their turn until their
 *              deadline. It goes back when the session's last restore is freed, and before the
 *              session requests memory for saves: a job that has restored can save (Q13). The next
 *              read creates another.
 *          2   the device is opened when a call first names device memory. If two threads open it
 *              at once, one handle remains, until the session's end.
 * Limits:  a window of 64 MiB, 256 MiB for large versions; less, down to 8 MiB, if the node's
 *          memory is short. Devices as client/device/device.h.
 * Threads: any. The holder of `window_taken`, which the session's lock guards, owns `window`.
 * Next:    client/restore/reads.c, client/save/pieces.c.
 */
#pragma once

#include "client/session/session.h"

/* ---- slabs ---- */

struct cairn_client_slabs {
    struct cairn_slab slabs[CAIRN_CLIENT_GENERATIONS_MAX];
    uint32_t count;
};
/* Maps the slabs in the answer to `slabs`, for saves of `bytes`; after an error ret may hold
 * some. */
enum cairn_code cairn_client_slabs_map(struct cairn_frame *answer, uint64_t bytes,
                                       struct cairn_client_slabs *ret,
                                       struct cairn_error *err) CAIRN_MUST_USE;
void cairn_client_slabs_unmap(struct cairn_client_slabs *slabs);
/* Move the slabs out of, or into, the session. The lock is held once the session has a thread. */
void cairn_client_slabs_take(struct cairn_session *session, struct cairn_client_slabs *ret);
void cairn_client_slabs_set(struct cairn_session *session, struct cairn_client_slabs *take_slabs);

/* ---- the window ---- */

void cairn_client_window_release(struct cairn_session *session);
/* Waits until no other read uses the window. */
enum cairn_code cairn_client_window_take(struct cairn_session *session, uint64_t deadline_ms,
                                         struct cairn_error *err) CAIRN_MUST_USE;
void cairn_client_window_give(struct cairn_session *session);
/* Unmaps the window and gives it back to the uploader, or has the read call that uses it do so at
 * its end. Waits until the uploader has the memory, at most until deadline_ms; 0: does not wait.
 * An uploader of an older release keeps it, and so does the session. The caller has entered the
 * session. */
void cairn_client_window_give_back(struct cairn_session *session, uint64_t deadline_ms);
/* While taken: opens a window on link `epoch`; it may be smaller than wanted_bytes. writable: for a
 * device that page-locks no memory that is mapped to be read; where the uploader is of an older
 * release the window is not. */
enum cairn_code cairn_client_window_open(struct cairn_session *session, uint32_t epoch,
                                         uint64_t wanted_bytes, bool writable, uint64_t deadline_ms,
                                         struct cairn_error *err) CAIRN_MUST_USE;

/* ---- the device ---- */

/* Opens the device unless open. CAIRN_INVALID: `memory` is not device memory; NULL: not checked. */
enum cairn_code cairn_client_device_need(struct cairn_session *session, const void *memory,
                                         struct cairn_error *err) CAIRN_MUST_USE;
/* Loads libcairn_cuda.so from libcairn's folder, else by the loader's search. Never unloaded. */
/* The device if a call has opened it, else without a handle. Any thread; the lock is not held. */
struct cairn_client_device cairn_client_device_known(struct cairn_session *session);
enum cairn_code cairn_client_device_open(struct cairn_client_device *ret,
                                         struct cairn_error *err) CAIRN_MUST_USE;
void cairn_client_device_release(struct cairn_client_device *device);
/* Page-locks memory shared with the uploader. If that fails, a device copies at a quarter of the
 * speed and blocks its caller: cairn_session_problem reports why; `which` is "saves" or
 * "restores". */
void cairn_client_device_lock(struct cairn_session *session, const struct cairn_slab *slab,
                              bool read_only, const char *which);
