/* SPDX-License-Identifier: Apache-2.0 */
/*
 * calls: the three requests of the outbox and what their answers change.
 *
 * Why:     building, sending and applying each of them is a page; the order of them is another.
 * Promise: 1   a request is built from what is there under the lock, sent without it, and its
 *              answer is applied only to saves that are still there.
 *          2   a refusal that is nobody's in particular is found by asking for each save alone.
 * Limits:  see uploader/server/outbox.h.
 * Threads: the outbox's thread only.
 * Next:    uploader/server/outbox.c; uploader/server/outcome.h.
 */
#pragma once

#include "api/wire/rest.h"
#include "uploader/server/outcome.h"

/* Copied from a save, so that it may go meanwhile. */
struct cairn_up_due_save {
    uint64_t entry;
    uint32_t rank;
    char version[CAIRN_VERSION_ID_BYTES];
    char run_text[2 * CAIRN_NAME_BYTES_MAX + 2];
    char grant[CAIRN_GRANT_BYTES_MAX];
    struct cairn_error why; /* of a fail */
};
void cairn_up_due_fill(const struct cairn_up_save *save, struct cairn_up_due_save *ret);

struct cairn_up_batch {
    struct cairn_up *up;
    struct cairn_rest *rest;
    const struct cairn_up_due_save *due; /* the first; names run, version and grant of all */
    uint64_t entries[256];
    size_t count;
    bool unreachable; /* the server gave no answer at all */
};
/* CAIRN_OK: answered, whatever the answer was; else it is due again. */
enum cairn_code cairn_up_report_begins(struct cairn_up_batch *batch,
                                       struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_up_report_fail(struct cairn_up_batch *batch,
                                     struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_up_report_shards(struct cairn_up_batch *batch,
                                       struct cairn_error *err) CAIRN_MUST_USE;
