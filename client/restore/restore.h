/* SPDX-License-Identifier: Apache-2.0 */
/*
 * restore: one committed version, opened for reading through the uploader; and lists of versions.
 *
 * Why:     manifest and layout come once, as read-only memory; everything after that is planned
 *          here and read in parallel. One framework saves "model.w" and another asks for "w"; a job
 *          keeps BF16 of what was saved as F32, reads into views of its tensors, or into a GPU: a
 *          copy of the whole tensor in between would need as much memory again.
 * Promise: P3  bytes reach the caller only after the uploader verified the blocks that hold them; a
 *              restore never mixes two versions: after the uploader was restarted it is opened
 *              again by its version id. CAIRN_OK of a read: every destination is filled, and after
 *              the call nothing writes to one.
 *          1   blocks that several wants share are read once in a call.
 *          2   the first rule that fits a stored name gives the name by which it is known; one that
 *              no rule fits keeps its own. Each known name stands for one tensor: two that would
 *              share it are refused.
 *          3   elements are correctly rounded, as formats/convert.h; one whose bytes come in
 *              several turns is put once all of them are there; between strides nothing is written.
 *          4   what goes to a device comes after what the read's stream had. A slot of the window
 *              is filled again when the device has read it, and after the call nothing of the
 *              window is read any more, also after an error.
 *          5   reads in the background that wait for one restore are run as one call; where that
 *              fails, each alone, so that each has its own error.
 *          6   each of them is done once, and nothing writes to its destinations after that. One
 *              that cairn_close ends is cancelled, by whatever it saw of the end: a call that is
 *              refused, a connection that is gone.
 *          7   of a list all rows come or none: a page that fails or cannot be read fails the whole
 *              call, and a list that goes in circles ends.
 * Limits:  as plan/reads.h; names of CAIRN_TENSOR_NAME_BYTES_MAX bytes, also after a rule. Elements
 *          of whole bytes are converted, into host memory.
 * Threads: of a restore one caller at a time; reads of a session take turns; nothing here is
 *          touched by the I/O thread. Reads in the background are guarded by the session's lock.
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
struct cairn_client_names { /* a zeroed one: all names are as they are stored */
    struct cairn_client_rule *rules;
    size_t rule_count;
    struct cairn_client_name *all; /* of every name of the layout, sorted by `known` */
    size_t count;
};

struct cairn_restore {
    struct cairn_session *session;   /* NULL once the session is closed */
    LIST_ENTRY(cairn_restore) place; /* by the session's lock */
    uint64_t id;
    uint32_t epoch; /* link on which the uploader knows it by `id` */
    struct cairn_manifest manifest;
    struct cairn_layout layout;
    bool has_layout;
    struct cairn_client_names names; /* by which the caller knows the tensors */
    void *memory;                    /* manifest and layout as they came */
    size_t memory_bytes;
};
/* Make sure the present uploader knows the restore, waiting for one until the deadline; *ret_epoch
 * is its link. */
enum cairn_code cairn_client_restore_known(struct cairn_restore *restore, uint64_t deadline_ms,
                                           uint32_t *ret_epoch,
                                           struct cairn_error *err) CAIRN_MUST_USE;
/* The tensor of that known name in the layout; false: there is none. */
bool cairn_client_restore_find(const struct cairn_restore *restore, const char *known,
                               uint32_t *ret_index);
/* The session ends; calls on the restores' handles fail from then on. */
void cairn_client_restores_close(struct cairn_session *session);

/* ---- elements of a read to where its caller wants them, as the type that it wants ---- */

struct cairn_client_target {
    bool plain; /* the bytes as they are stored, one behind the other */
    unsigned from_dtype, to_dtype;
    uint32_t from_width, to_width; /* of an element, in bytes */
    bool apart;
    struct cairn_strided strided; /* of the destination, where it is apart */
    struct {
        uint64_t element;
        uint32_t have; /* bytes of it; 0: none is under way */
        uint8_t bytes[16];
    } part;
};
/* How the elements of `tensor` come to `read`; CAIRN_INVALID, CAIRN_UNSUPPORTED. */
enum cairn_code cairn_client_target_make(const struct cairn_tensor *tensor,
                                         const struct cairn_read *read,
                                         struct cairn_client_target *ret,
                                         struct cairn_error *err) CAIRN_MUST_USE;
/* Size of the destination for so many bytes of the store. */
uint64_t cairn_client_target_bytes(const struct cairn_client_target *target, uint64_t stored_bytes);
/* The stored bytes [at, at + size) of the read. False: they did not come in order, a bug. */
bool cairn_client_target_put(struct cairn_client_target *target, void *into, uint64_t at,
                             const void *from, size_t size) CAIRN_MUST_USE;

/* ---- one call's reads, from their plan to the last byte in its place ---- */

struct cairn_client_reads {
    struct cairn_restore *restore;
    const struct cairn_read *reads; /* of this library's size */
    size_t count;
    uint64_t deadline_ms;
    /* True: the call ends with CAIRN_CANCELLED. Asked with the session's lock held, before bytes
     * are awaited and put; waits are stopped by cairn_client_stoppable. NULL: never. */
    bool (*stopped)(const void *owner);
    const void *owner;
};
/* The session is entered by the caller. */
enum cairn_code cairn_client_reads_run(const struct cairn_client_reads *call,
                                       struct cairn_error *err) CAIRN_MUST_USE;
/* Copies the caller's structs, whose size is that of the first one, to structs of this library's
 * size. */
enum cairn_code cairn_client_reads_copy(const struct cairn_read *reads, size_t count,
                                        struct cairn_read *ret,
                                        struct cairn_error *err) CAIRN_MUST_USE;

/* The session ends: unfinished reads in the background end as CAIRN_CANCELLED; their handles stay.
 * No call is under way. */
void cairn_client_readings_stop(struct cairn_session *session);
