/* SPDX-License-Identifier: Apache-2.0 */
/*
 * calls: the three requests of the outbox, and the server's answers applied to this node's saves.
 *
 * Why:     the same state (committed, aborted, fenced, unknown) comes as answers to begins, seals,
 *          registrations, heartbeats and polls; it must have the same effect everywhere.
 * Promise: Q6   an error is final, temporary, or a fail, by one table.
 *          Q40  committed beats a fail of ours that came later.
 *          1    a request is built under the lock, sent without it, and applied to remaining saves.
 *          2    when a refusal names no save, each save is sent alone to find it.
 * Limits:  see uploader/server/outbox.h.
 * Threads: requests: the outbox's thread. uploader_state is held where the name says so.
 * Next:    uploader/server/outbox.c, uploader/server/watch.c.
 */
#pragma once

#include "api/wire/rest.h"
#include "uploader/saves/save.h"

/* Copied from a save, which may be freed meanwhile. */
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
    const struct cairn_up_due_save *due; /* the first; its run, version and grant serve all */
    uint64_t entries[256];
    size_t count;
    bool unreachable; /* the server gave no answer */
};
/* CAIRN_OK: answered, with success or not; otherwise due again. */
enum cairn_code cairn_up_report_begins(struct cairn_up_batch *batch,
                                       struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_up_report_fail(struct cairn_up_batch *batch,
                                     struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_up_report_shards(struct cairn_up_batch *batch,
                                       struct cairn_error *err) CAIRN_MUST_USE;

struct cairn_up_version_status {
    const char *state; /* "open", "committed", "aborting", "deleting", "gone" */
    bool recorded;
    bool was_committed;     /* it has a commit time */
    bool whole;             /* all ranks sealed, all shards registered; only polls report it */
    struct cairn_error why; /* why the version was given up; code CAIRN_OK: unknown */
};
void cairn_up_version_status_read(const json_t *version, struct cairn_up_version_status *ret);
/* Applies it to all saves of a version, and to other nodes' copies. */
void cairn_up_outcome_version_locked(struct cairn_up *up, const char *version,
                                     const struct cairn_up_version_status *found);
/* True when rank 0 has sealed the version, by an answer to `for=decided`. */
bool cairn_up_version_decided(const json_t *version);
/* Tells each connection with a following save of the version once. */
void cairn_up_outcome_decided_locked(struct cairn_up *up, const char *version);
/* Applies a poll to the version's saves that the journal does not have: they end with the
 * version; while it is open, not whole, they fail, as no node has their bytes. found NULL:
 * unknown version. */
void cairn_up_outcome_forgotten_locked(struct cairn_up *up, const char *version,
                                       const struct cairn_up_version_status *found);
/* The server refuses the grant for good (Q49): saves under it end. */
void cairn_up_outcome_foreign_locked(struct cairn_up *up, const char *grant,
                                     const struct cairn_error *why);
/* Ends saves of the run's older attempts, but for possibly committed ones, which watchers poll. */
void cairn_up_outcome_fence_locked(struct cairn_up *up, const char *run_text, uint64_t newest);

enum cairn_up_refusal {
    CAIRN_UP_PASSING, /* retry later */
    CAIRN_UP_OVER_STALE,
    CAIRN_UP_OVER_RUN,  /* the run no longer exists */
    CAIRN_UP_UNKNOWN,   /* unknown version: begin again */
    CAIRN_UP_ENDED,     /* the version is over: poll the outcome */
    CAIRN_UP_TABLE,     /* upload the tables */
    CAIRN_UP_MUST_FAIL, /* fail the ranks concerned */
};
/* Q48: only errors of this API end anything; any other answer counts as none. */
enum cairn_code cairn_up_heard(const struct cairn_rest *rest, enum cairn_code code,
                               struct cairn_error *err);
/* about_run: the request named no version. */
enum cairn_up_refusal cairn_up_refusal_of(enum cairn_code code, int http_status, bool about_run);
