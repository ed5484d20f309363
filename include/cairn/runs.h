/* SPDX-License-Identifier: Apache-2.0 */
/*
 * runs: the runs that there are, and the removal of a version, through the node's uploader.
 *
 * Why:     a training framework keeps the last few checkpoints by itself, and offers others to
 *          begin from; it has the uploader's socket and no token of its own.
 * Promise: 1   a removed version is in the trash until the server's grace is over, and can be taken
 *              out of it until then (`cairn undelete`).
 * Limits:  what the uploader's token may see and do; removal needs its right to delete.
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
    uint64_t attempt, version_count, total_bytes; /* committed ones */
    char latest[48];                              /* what a resume takes; "": nothing */
    uint64_t latest_step;
    char created_at[32]; /* RFC 3339 */
};
/* All of them, by name. *ret_list is freed with cairn_runs_free, also when *ret_count is 0.
 * CAIRN_UNSUPPORTED: the uploader is of a release before. */
enum cairn_code cairn_runs(struct cairn_session *session, struct cairn_run **ret_list,
                           size_t *ret_count, struct cairn_error *err);
void cairn_runs_free(struct cairn_run *list);

/* Put a version of the session's run into the trash; one that is there or gone already is CAIRN_OK.
 * CAIRN_IN_USE: pinned, leased, an alias, or what this attempt resumed from;
 * CAIRN_NOT_FOUND, CAIRN_FORBIDDEN, CAIRN_NOT_COMMITTED; CAIRN_UNSUPPORTED as before. */
enum cairn_code cairn_remove(struct cairn_session *session, const char *version,
                             uint32_t timeout_ms, struct cairn_error *err);

#if defined(__GNUC__)
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif
#endif
