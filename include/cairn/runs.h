/* SPDX-License-Identifier: Apache-2.0 */
/*
 * runs: list runs and remove versions, through the node's uploader.
 *
 * Why:     a training framework keeps the last few checkpoints by itself, and offers others to
 *          begin from; it has the uploader's socket but no token of its own.
 * Promise: 1   a removed version stays in the trash for the server's grace period and can be taken
 *              out until then (`cairn undelete`).
 * Limits:  the permissions of the uploader's token; removal needs its right to delete.
 * Threads: as a session.
 * Next:    cairn/cairn.h (cairn_list: the versions of a run).
 */
#ifndef CAIRN_RUNS_H
#define CAIRN_RUNS_H

#include <cairn/cairn.h>

#ifdef __cplusplus
extern "C" {
#endif
#if defined(__GNUC__)
#pragma GCC visibility push(default)
#endif

struct cairn_run {
    char run[258];                                /* "project/run" */
    uint64_t attempt, version_count, total_bytes; /* of committed versions */
    char latest[48];                              /* the version that a resume takes; "": none */
    uint64_t latest_step;
    char created_at[32]; /* RFC 3339 */
};
/* Lists all runs, by name. The caller frees *ret_list with cairn_runs_free, also if *ret_count is
 * 0. CAIRN_UNSUPPORTED: the uploader is of an older release. */
enum cairn_code cairn_runs(struct cairn_session *session, struct cairn_run **ret_list,
                           size_t *ret_count, struct cairn_error *err);
void cairn_runs_free(struct cairn_run *list);

/* Moves a version of the session's run to the trash; CAIRN_OK also if it is already there or gone.
 * CAIRN_IN_USE: the version is pinned, leased, aliased, or this attempt resumed from it;
 * CAIRN_NOT_FOUND, CAIRN_FORBIDDEN, CAIRN_NOT_COMMITTED; CAIRN_UNSUPPORTED as above. */
enum cairn_code cairn_remove(struct cairn_session *session, const char *version,
                             uint32_t timeout_ms, struct cairn_error *err);

#if defined(__GNUC__)
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif
#endif
