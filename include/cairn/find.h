/* SPDX-License-Identifier: Apache-2.0 */
/*
 * find: versions that are looked for, and what people say of one after its commit.
 *
 * Why:     a training loop keeps its best checkpoint, pins what it will need and names what is to
 *          be served, when the loss of a step is known; it has the uploader's socket and no token
 *          of its own.
 * Promise: 1   a run or a version that is not there is an empty list. A page that fails is an error
 *              of the call, never a shorter list.
 *          2   labels and metrics are merged one by one: of two callers none undoes the other's.
 * Limits:  what the uploader's token may see and do; a million versions; a selector of 1,024 bytes.
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
    size_t size;        /* of this struct */
    const char *run;    /* "project/run"; NULL: the session's */
    const char *ref;    /* one: "latest", "best", an alias, a step, a version id; NULL: all */
    const char *state;  /* "open", "committed", "aborting", "deleting", "gone"; NULL: any */
    const char *labels; /* a selector, "kind=eval,lang!=de"; NULL: any */
    uint64_t limit;     /* at most so many, the first ones; 0: all */
};
struct cairn_version_info {
    char version[48];
    uint64_t step, attempt, total_bytes;
    uint32_t shard_count, world_size; /* ranks that saved it */
    char state[16];                   /* as in struct cairn_checkpoint */
    char saved_at[32];                /* RFC 3339 */
    char format[64];                  /* tag of its save; "": none */
    int superseded, latest, pinned;
    /* As they are now, objects in JSON; the list's. */
    const char *labels_json, *metrics_json;
};
/* Those that the newest attempt saved first, of each attempt the highest step. *ret_list is freed
 * with cairn_find_free, also when *ret_count is 0. options may be NULL: all versions of the
 * session's run. CAIRN_INVALID: the server knows no such state, or cannot read the selector;
 * CAIRN_UNSUPPORTED: the uploader is of a release before; CAIRN_TOO_LARGE. */
enum cairn_code cairn_find(struct cairn_session *session, const struct cairn_find_options *options,
                           struct cairn_version_info **ret_list, size_t *ret_count,
                           struct cairn_error *err);
void cairn_find_free(struct cairn_version_info *list);

enum cairn_pin {
    CAIRN_PIN_KEEP = 0, /* as it is */
    CAIRN_PIN_YES = 1,  /* no policy removes it, and no removal by name */
    CAIRN_PIN_NO = 2
};
struct cairn_annotate_options {
    size_t size;              /* of this struct */
    const char *labels_json;  /* object of strings; null removes one; NULL: as they are */
    const char *metrics_json; /* object of numbers; null removes one; NULL: as they are */
    enum cairn_pin pin;
    uint32_t timeout_ms; /* 0: the session's */
};
/* Of a version of the session's run, by a ref as above. Metrics may be given while it is open, too.
 * CAIRN_NOT_FOUND, CAIRN_NOT_COMMITTED (labels of one that is open), CAIRN_CONFLICT (a pin of what
 * is in the trash), CAIRN_FORBIDDEN, CAIRN_INVALID; CAIRN_UNSUPPORTED as above. */
enum cairn_code cairn_annotate(struct cairn_session *session, const char *ref,
                               const struct cairn_annotate_options *options,
                               struct cairn_error *err);
/* `alias` ([a-z][a-z0-9-]*, 63 bytes) names that version of the session's run from here on, and
 * protects it; ref NULL: it names none. timeout_ms 0: the session's. CAIRN_NOT_FOUND,
 * CAIRN_NOT_COMMITTED, CAIRN_CONFLICT ("latest" and "best" are computed), CAIRN_FORBIDDEN,
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
