/* SPDX-License-Identifier: Apache-2.0 */
/*
 * restore: open and read one committed version through the uploader; list versions.
 *
 * Why:     manifest and layout arrive once, as read-only memory; all later reads are planned here
 *          and run in parallel. Frameworks save "model.w" and load "w", keep BF16 of a stored F32,
 *          or read into tensor views or a GPU: an intermediate copy of the whole tensor would need
 *          as much memory again.
 * Promise: P3  bytes reach the caller only after the uploader verified their blocks; a restore
 *              never mixes two versions: after an uploader restart it is reopened by its version
 *              id. CAIRN_OK of a read: every destination is filled, and nothing writes to it after
 *              the call.
 *          1   blocks shared by several wants are read once per call.
 *          2   the first rule that matches a stored name gives the known name; without a match the
 *              name stays. Two tensors with the same known name are refused.
 *          3   elements are rounded correctly, as in formats/convert.h; an element whose bytes
 *              arrive in parts is written once complete; gaps between strides are not written.
 *          4   a copy to a device follows the work queued on the read's stream. A window slot is
 *              refilled only after the device has read it, and after the call, even a failed one,
 *              no device reads the window. Elements that are converted or put apart on a device
 *              lie there as in host memory.
 *          5   background reads that wait for the same restore run as one call; if it fails, each
 *              runs alone, so that each gets its own error.
 *          6   each background read finishes once, and nothing writes to its destinations
 *              afterwards. A read that cairn_close ends is CAIRN_CANCELLED, whichever error the
 *              close caused (a refused call, a lost link).
 *          7   a list is complete or fails: a page that fails or cannot be parsed fails the call,
 *              and so does a cursor that repeats.
 *          8   a look at a version holds nothing at the uploader, so it needs none afterwards.
 * Limits:  as plan/reads.h; names of CAIRN_TENSOR_NAME_BYTES_MAX bytes, also after a rule. Only
 *          elements of whole bytes are converted, in device memory F32, BF16 and F16.
 * Threads: one caller at a time per restore; reads of a session take turns; the I/O thread touches
 *          nothing here. The session's lock guards background reads.
 * Next:    client/restore/reads.c, client/session/memory.h.
 */
#pragma once

#include <cairn/cairn.h>

#include "api/documents/manifest.h"
#include "api/table/layout.h"
#include "api/table/table.h"
#include "client/session/session.h"
#include "common/strided.h"

struct cairn_client_rule {
    char *stored, *known; /* owned */
    bool whole;
};
struct cairn_client_name {
    char *known; /* owned */
    uint32_t index;
};
struct cairn_client_names { /* zeroed: names as stored */
    struct cairn_client_rule *rules;
    size_t rule_count;
    struct cairn_client_name *all; /* every name of the layout, sorted by `known` */
    size_t count;
};

struct cairn_restore {
    struct cairn_session *session; /* NULL once the session is closed */
    char run[2 * CAIRN_NAME_BYTES_MAX + 2];
    uint16_t run_number; /* for errors */
    bool of_other_run;
    bool look;                       /* the uploader keeps nothing for it, and nothing is read */
    LIST_ENTRY(cairn_restore) place; /* guarded by the session's lock */
    uint64_t id;
    uint32_t epoch; /* link on which `id` is valid */
    struct cairn_manifest manifest;
    struct cairn_layout layout;
    bool has_layout;
    struct cairn_client_names names; /* the caller's names for the tensors */
    void *memory;                    /* manifest and layout as received */
    size_t memory_bytes;
};
/* Opens the restore at the present uploader if necessary, until the deadline; *ret_epoch: its
 * link. */
enum cairn_code cairn_client_restore_known(struct cairn_restore *restore, uint64_t deadline_ms,
                                           uint32_t *ret_epoch,
                                           struct cairn_error *err) CAIRN_MUST_USE;
/* Notes run, step and rank in the error of a call on the restore; returns code. */
enum cairn_code cairn_client_restore_about(const struct cairn_restore *restore,
                                           enum cairn_code code, struct cairn_error *err);
/* CAIRN_INVALID: the session is closed, or the restore is a look. */
enum cairn_code cairn_client_restore_readable(const struct cairn_restore *restore,
                                              struct cairn_error *err) CAIRN_MUST_USE;
/* Finds a tensor by its known name; false: not in the layout. */
bool cairn_client_restore_find(const struct cairn_restore *restore, const char *known,
                               uint32_t *ret_index);
/* At the session's end: later calls on its restores fail. */
void cairn_client_restores_close(struct cairn_session *session);

/* ---- stored elements to the caller's type and strides ---- */

struct cairn_client_target {
    bool plain; /* copied as stored, contiguous */
    unsigned from_dtype, to_dtype;
    uint32_t from_width, to_width; /* of an element, in bytes */
    bool apart;
    struct cairn_strided strided; /* the destination, if `apart` */
    struct {
        uint64_t element;
        uint32_t have; /* bytes received; 0: no element is incomplete */
        uint8_t bytes[16];
    } part;
};
/* Plans the conversion of `tensor` for `read`; CAIRN_INVALID, CAIRN_UNSUPPORTED. */
enum cairn_code cairn_client_target_make(const struct cairn_tensor *tensor,
                                         const struct cairn_read *read,
                                         struct cairn_client_target *ret,
                                         struct cairn_error *err) CAIRN_MUST_USE;
/* Destination bytes for stored_bytes. */
uint64_t cairn_client_target_bytes(const struct cairn_client_target *target, uint64_t stored_bytes);
/* Puts the stored bytes [at, at + size) of the read. False: out of order, a bug. */
bool cairn_client_target_put(struct cairn_client_target *target, void *into, uint64_t at,
                             const void *from, size_t size) CAIRN_MUST_USE;

/* ---- the reads of one call ---- */

struct cairn_client_reads {
    struct cairn_restore *restore;
    const struct cairn_read *reads; /* of this library's struct size */
    size_t count;
    uint64_t deadline_ms;
    /* Returns true to end the call with CAIRN_CANCELLED. Called with the session's lock held,
     * before bytes are awaited and put; cairn_client_stoppable ends waits. NULL: never. */
    bool (*stopped)(const void *owner);
    const void *owner;
};
/* The caller has entered the session. */
enum cairn_code cairn_client_reads_run(const struct cairn_client_reads *call,
                                       struct cairn_error *err) CAIRN_MUST_USE;
/* Copies the caller's structs, sized like the first, to this library's struct size, each region as
 * a read of its own. The caller frees *ret. */
enum cairn_code cairn_client_reads_copy(struct cairn_restore *restore,
                                        const struct cairn_read *reads, size_t count,
                                        struct cairn_read **ret, size_t *ret_count,
                                        struct cairn_error *err) CAIRN_MUST_USE;

/* At the session's end: unfinished background reads end with CAIRN_CANCELLED; their handles stay.
 * No call is under way. */
void cairn_client_readings_stop(struct cairn_session *session);
