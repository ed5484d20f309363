/* SPDX-License-Identifier: Apache-2.0 */
/*
 * intake: what begin, registration, fail, abort and deletion share with each other and other rooms.
 *
 * Why:     registration, seal, fail and abort name a version and carry a grant in the same way; one
 *          rule judges a deletion alone, in bulk or with its run.
 * Promise: 1    a write names its version by id, and only one of its own, newest attempt (Q6).
 *          Q27  trashing is judged in the transaction that changes the version; a version that is
 *               leased (Q29), pinned or has an alias stays, CAIRN_IN_USE.
 *          2    members of a replica group split its tensors by the same list, that of the group's
 *               first rank. A rank with another list ends the version (Q10); the reason names both
 *               ranks and, where both sent marks, the tensors between which the lists part; for
 *               lists whose tensors all have marks, the first that differs.
 *          3    for longer lists, POST {C}/lists asks both ranks after the version has ended, and
 *               changes only its reason: each round compares 32 equal parts of both lists, by name,
 *               until one place is left. The lesser of the two names there is missing in one list.
 *          4    a look that decides nothing (the list is gone, or has another length than asked
 *               for) settles the dispute with the reason that the begin gave.
 * Limits:  64 groups a rank, 256 marks a group; one dispute a version, of the first rank that
 *          differed, over CAIRN_PLAN_SPLIT_ITEMS_MAX tensors: five looks of at most 1.6 KiB.
 * Threads: any pool thread, or inside the transaction that is passed.
 * Next:    server/intake/begin.c, server/intake/verdicts.c; plan/split.h; server/commit/commit.c.
 */
#pragma once

#include "server/http/request.h"
#include "server/ledger/attempts.h"

/* The version in a write's path: by id, of this run. */
enum cairn_code srv_save_version(struct srv_tx *tx, const struct srv_request *request,
                                 struct srv_version *ret, struct cairn_error *err) CAIRN_MUST_USE;
/* Fails unless the grant is of the newest attempt (Q6) and of the version's own. */
enum cairn_code srv_save_admit(struct srv_tx *tx, const struct cairn_grant *grant,
                               const struct srv_version *version,
                               struct cairn_error *err) CAIRN_MUST_USE;
/* Ranks of an open version that have not sealed: their count; appends the first ones, at most
 * `most` and SRV_UNSEALED_MAX, to *list as missing_rank of messages.def. */
#define SRV_UNSEALED_MAX 100
enum cairn_code srv_save_unsealed(struct srv_tx *tx, const struct srv_version *version, size_t most,
                                  json_t *list, uint32_t *ret_count,
                                  struct cairn_error *err) CAIRN_MUST_USE;

/* ---- the trash ---- */

struct srv_trashed {
    struct cairn_version_id id;
    uint64_t step, bytes;
    bool changed; /* newly trashed by this call */
};
struct srv_trash_one {
    struct srv *server;
    struct cairn_store_worker *worker;
    const struct cairn_run_name *name;
    const char *ref;    /* as in a path */
    const char *reason; /* for the event */
    bool with_run;      /* its run is deleted, too: a resume from it does not protect it */
    /* Called in each transaction before the version is judged; NULL: none. */
    enum cairn_code (*first)(struct srv_tx *tx, void *argument, struct cairn_error *err);
    void *argument;
};
enum cairn_code srv_trash_one(const struct srv_trash_one *one, struct srv_trashed *ret,
                              struct cairn_error *err) CAIRN_MUST_USE;
