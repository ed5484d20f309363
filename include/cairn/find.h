/* SPDX-License-Identifier: Apache-2.0 */
/*
 * find: look up versions; change labels, metrics, pins and aliases after the commit.
 *
 * Why:     a training loop keeps its best checkpoint, pins those it will need and names the one to
 *          serve, once a step's loss is known; it has the uploader's socket but no token of its
 *          own.
 * Promise: 1   a run or version that does not exist gives an empty list. A page that fails is an
 *              error of the call, never a shorter list.
 *          2   labels and metrics are merged key by key: concurrent callers do not undo each
 *              other's changes.
 * Limits:  the permissions of the uploader's token; a million versions; a selector of 1,024 bytes.
 * Threads: as a session.
 * Next:    cairn/cairn.h (cairn_list: all versions of the session's run); cairn/runs.h.
 */
#ifndef CAIRN_FIND_H
#define CAIRN_FIND_H

#include <cairn/cairn.h>

#ifdef __cplusplus
extern "C" {
#endif
#if defined(__GNUC__)
#pragma GCC visibility push(default)
#endif

struct cairn_find_options {
    size_t size;
    const char *run;    /* "project/run"; NULL: the session's */
    const char *ref;    /* "latest", "best", an alias, a step or a version id; NULL: all */
    const char *state;  /* "open", "committed", "aborting", "deleting", "gone"; NULL: any */
    const char *labels; /* a label selector, "kind=eval,lang!=de"; NULL: any */
    uint64_t limit;     /* at most this many, the first ones; 0: all */
};
struct cairn_version_info {
    char version[48];
    uint64_t step, attempt, total_bytes;
    uint32_t shard_count, world_size; /* world_size: ranks that saved it */
    char state[16];                   /* as in struct cairn_checkpoint */
    char saved_at[32];                /* RFC 3339 */
    char format[64];                  /* the save's format tag; "": none */
    int superseded, latest, pinned;
    /* Present values, JSON objects; owned by the list. */
    const char *labels_json, *metrics_json;
};
/* Versions saved by the newest attempt first, within an attempt the highest step first. The caller
 * frees *ret_list with cairn_find_free, also if *ret_count is 0. options may be NULL: all versions
 * of the session's run. CAIRN_INVALID: an unknown state, or a malformed selector;
 * CAIRN_UNSUPPORTED: the uploader is of an older release; CAIRN_TOO_LARGE: too many versions. */
enum cairn_code cairn_find(struct cairn_session *session, const struct cairn_find_options *options,
                           struct cairn_version_info **ret_list, size_t *ret_count,
                           struct cairn_error *err);
void cairn_find_free(struct cairn_version_info *list);

enum cairn_pin {
    CAIRN_PIN_KEEP = 0, /* unchanged */
    CAIRN_PIN_YES = 1,  /* neither a policy nor a removal by name removes it */
    CAIRN_PIN_NO = 2
};
struct cairn_annotate_options {
    size_t size;
    const char *labels_json;  /* JSON object of strings; null removes a label; NULL: unchanged */
    const char *metrics_json; /* JSON object of numbers; null removes a metric; NULL: unchanged */
    enum cairn_pin pin;
    uint32_t timeout_ms; /* 0: the session's */
};
/* Changes a version of the session's run; ref as in cairn_find_options. Metrics may also be set
 * while it is open. CAIRN_NOT_FOUND, CAIRN_NOT_COMMITTED (labels of an open version),
 * CAIRN_CONFLICT (a pin of a trashed version), CAIRN_FORBIDDEN, CAIRN_INVALID; CAIRN_UNSUPPORTED as
 * above. */
enum cairn_code cairn_annotate(struct cairn_session *session, const char *ref,
                               const struct cairn_annotate_options *options,
                               struct cairn_error *err);
/* Points `alias` ([a-z][a-z0-9-]*, 63 bytes) to that version of the session's run, and protects it
 * from removal; ref NULL removes the alias. timeout_ms 0: the session's. CAIRN_NOT_FOUND,
 * CAIRN_FORBIDDEN, CAIRN_NOT_COMMITTED, CAIRN_CONFLICT ("latest", "best" are computed),
 * CAIRN_UNSUPPORTED as above. */
enum cairn_code cairn_alias_set(struct cairn_session *session, const char *alias, const char *ref,
                                uint32_t timeout_ms, struct cairn_error *err);

#if defined(__GNUC__)
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif
#endif
