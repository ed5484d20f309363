/* SPDX-License-Identifier: Apache-2.0 */
/*
 * calls: the three requests of the outbox, and what the server's words mean for the saves of this
 *        node.
 *
 * Why:     the same state (committed, aborted, fenced, unknown) comes as answers to begins, seals,
 *          registrations, heartbeats and waits; it must mean the same everywhere.
 * Promise: Q6   an error is final, passing, or a fail, by one table.
 *          Q40  committed beats a fail of ours that came later.
 *          1    a request is built from what is there under the lock, sent without it, and its
 *               answer is applied only to saves that are still there.
 *          2    a refusal that is nobody's in particular is found by asking for each save alone.
 * Limits:  see uploader/server/outbox.h.
 * Threads: requests: the outbox's thread. uploader_state is held where the name says so.
 * Next:    uploader/server/outbox.c, uploader/server/watch.c.
 */
#pragma once

#include "api/wire/rest.h"
#include "uploader/saves/save.h"

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

/* ---- what the answers mean ---- */

struct cairn_up_version_status { /* of one version */
    const char *state;           /* "open", "committed", "aborting", "deleting", "gone" */
    bool recorded;
    bool was_committed;     /* it has a commit time */
    bool whole;             /* all ranks sealed, all shards registered; only watchers hear of it */
    struct cairn_error why; /* of one that was given up; code CAIRN_OK: none is known */
};
void cairn_up_version_status_read(const json_t *version, struct cairn_up_version_status *ret);
/* All saves of a version, and copies of other nodes' of it. */
void cairn_up_outcome_version_locked(struct cairn_up *up, const char *version,
                                     const struct cairn_up_version_status *found);
/* Has rank 0 sealed it? Of an answer to `for=decided`. */
bool cairn_up_version_decided(const json_t *version);
/* The trainers of its saves that follow hear it once, over each connection. */
void cairn_up_outcome_decided_locked(struct cairn_up *up, const char *version);
/* What a watcher heard of a version's saves that the journal does not have. They end when the
 * version is over; one that is open and not whole lacks what nobody can bring any more, so they
 * fail. found NULL: the server does not know it. */
void cairn_up_outcome_forgotten_locked(struct cairn_up *up, const char *version,
                                       const struct cairn_up_version_status *found);
/* The server refuses that grant for good (Q49): what was to be written under it ends. */
void cairn_up_outcome_foreign_locked(struct cairn_up *up, const char *grant,
                                     const struct cairn_error *why);
/* A newer attempt of the run is there: all of the older ones is over, but for saves that may have
 * been committed; the watchers ask about those. */
void cairn_up_outcome_fence_locked(struct cairn_up *up, const char *run_text, uint64_t newest);

enum cairn_up_refusal {
    CAIRN_UP_PASSING, /* ask again later */
    CAIRN_UP_OVER_STALE,
    CAIRN_UP_OVER_RUN,  /* the run is gone */
    CAIRN_UP_UNKNOWN,   /* the version: begin again */
    CAIRN_UP_ENDED,     /* the version is over: ask how */
    CAIRN_UP_TABLE,     /* send the tables */
    CAIRN_UP_MUST_FAIL, /* fail of the ranks concerned */
};
/* Q48: only what this API said itself ends anything; any other answer counts as no answer. */
enum cairn_code cairn_up_heard(const struct cairn_rest *rest, enum cairn_code code,
                               struct cairn_error *err);
/* about_run: the request named no version. */
enum cairn_up_refusal cairn_up_refusal_of(enum cairn_code code, int http_status, bool about_run);
