/* SPDX-License-Identifier: Apache-2.0 */
/*
 * version: what is needed to read one committed version, loaded once and proven.
 *
 * Why:     ranks of a node restore the same version; its documents are read and checked once.
 * Promise: P3   documents are proven as api/committed.h says; anything else is CAIRN_CORRUPT
 *               naming run, step and document.
 *          Q29  it is leased from the server until the last user leaves it (leases.h).
 *          1    the store alone is believed; the server only says which version is meant, and is
 *               not needed when the attempt already said it.
 * Limits:  those of api/committed.h.
 * Threads: immutable after load; the count of users is locked by uploader_fetch.
 * Next:    uploader/fetch/fetch.h; api/committed.h.
 */
#pragma once

#include "api/manifest.h"
#include "store/range.h"
#include "uploader/tasks.h"

struct cairn_up_version {
    struct cairn_up_fetch *fetch;
    struct cairn_up_version *next;
    uint32_t users;
    struct cairn_version_place place;
    struct cairn_manifest manifest;
    uint8_t *checksums;            /* u32le a block; owned */
    struct cairn_store_tags *tags; /* by shard */
    struct cairn_up_lease *lease;  /* NULL: none was begun */
    int documents_fd;              /* sealed memfd: manifest, then layout */
    uint64_t manifest_bytes, layout_bytes;
};
struct cairn_up_version_request {
    const struct cairn_run_name *name;
    const char *ref;           /* "latest", "best", an alias, a step or a version id */
    const char *known_version; /* "" or the version that the attempt resumes, with its step: */
    uint64_t known_step;
    uint64_t answer_by_ms; /* as cairn_up_answer_by_ms() */
};
/* On a helper thread. Shared: give it back with _leave. */
enum cairn_code cairn_up_version_load(struct cairn_up_helper *helper,
                                      const struct cairn_up_version_request *request,
                                      struct cairn_up_version **ret,
                                      struct cairn_error *err) CAIRN_MUST_USE;
void cairn_up_version_leave(struct cairn_up_version *version);
/* "llm/7b step 100 shard x": the start of every sentence about it. */
void cairn_up_version_shard_text(const struct cairn_up_version *version, uint32_t shard,
                                 char ret_text[900]);
