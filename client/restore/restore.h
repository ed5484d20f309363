/* SPDX-License-Identifier: Apache-2.0 */
/*
 * restore: one committed version, opened for reading through the uploader.
 *
 * Why:     manifest and layout come once, as read-only memory; everything after that is planned
 *          here and read in parallel.
 * Promise: P3  bytes reach the caller only after the uploader verified the blocks that hold them;
 *              a restore never mixes two versions: after the uploader was restarted it is opened
 *              again by its version id.
 *          1   blocks that several wants share are read once in a call.
 * Limits:  as plan/reads.h.
 * Threads: one caller at a time; nothing here is touched by the I/O thread.
 * Next:    client/restore/reads.c, client/session/window.h.
 */
#pragma once

#include "api/documents/manifest.h"
#include "api/table/layout.h"
#include "api/table/table.h"
#include "client/restore/names.h"
#include "client/session/session.h"

struct cairn_restore {
    struct cairn_session *session;   /* NULL once the session is closed */
    LIST_ENTRY(cairn_restore) place; /* by the session's lock */
    uint64_t id;
    uint32_t epoch; /* link on which the uploader knows it by `id` */
    struct cairn_manifest manifest;
    struct cairn_layout layout;
    bool has_layout;
    struct cairn_client_names names; /* by which the caller knows the tensors */
    void *memory; /* manifest and layout as they came */
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
/* The session ends; the handles stay, and their calls say so. */
void cairn_client_restores_close(struct cairn_session *session);
