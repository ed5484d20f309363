/* SPDX-License-Identifier: Apache-2.0 */
/*
 * intake: what begins, registration and the ends of saves share with each other and other rooms.
 *
 * Why:     registration, seal, fail and abort name a version and carry a grant in the same way;
 *          what is removed alone, in bulk or with its run is judged by one text.
 * Promise: 1    a write names its version by id; an older attempt is refused, and so is another
 *               attempt's version (Q6).
 *          Q27  trashing is judged in the transaction that changes the version; what is leased
 *               (Q29), pinned or has an alias stays, CAIRN_IN_USE.
 *          2    members of a replica group split its tensors by the same list: the list of the
 *               group is its first rank's, and a rank with another one ends the version (Q10),
 *               whose reason names both ranks and, where both sent marks, the tensors between which
 *               the lists part; of lists whose tensors all have marks, the first that differs.
 *          3    of longer lists both ranks are asked, after the version has ended, which changes
 *               its reason alone: they look at 32 equal parts of the same places of their lists, in
 *               the order of names, until one place is left, and say the name that stands there:
 *               the lesser of two that differ is what the other list lacks.
 *          4    looks that tell nothing (a list that is gone, of another length than was asked for)
 *               settle it with the reason that the begin gave.
 * Limits:  64 groups a rank, 256 marks a group; one dispute a version, of the first rank that
 *          differed, over CAIRN_PLAN_SPLIT_ITEMS_MAX tensors: four looks and the name, each at most
 *          1.6 KiB.
 * Threads: any pool thread, or inside the transaction that is passed.
 * Next:    server/intake/begin.c, server/intake/verdicts.c; plan/split.h; server/commit/commit.c.
 */
#pragma once

#include "server/http/request.h"
#include "server/ledger/attempts.h"
#include "server/ledger/versions.h"

/* The version that a write's path names: by id, of this run. */
enum cairn_code cairn_srv_save_version(struct cairn_srv_tx *tx,
                                       const struct cairn_srv_request *request,
                                       struct cairn_srv_version *ret,
                                       struct cairn_error *err) CAIRN_MUST_USE;
/* A grant that may still write to this version: newest attempt (Q6), and the version's own. */
enum cairn_code cairn_srv_save_admit(struct cairn_srv_tx *tx, const struct cairn_grant *grant,
                                     const struct cairn_srv_version *version,
                                     struct cairn_error *err) CAIRN_MUST_USE;
/* Ranks of an open version that have not sealed: how many, and the first CAIRN_SRV_UNSEALED_MAX or
 * `most` of them behind what *list holds, as missing_rank of messages.def. */
#define CAIRN_SRV_UNSEALED_MAX 100
enum cairn_code cairn_srv_save_unsealed(struct cairn_srv_tx *tx,
                                        const struct cairn_srv_version *version, size_t most,
                                        json_t *list, uint32_t *ret_count,
                                        struct cairn_error *err) CAIRN_MUST_USE;

/* ---- the trash ---- */

struct cairn_srv_trashed {
    struct cairn_version_id id;
    uint64_t step, bytes;
    bool changed; /* it was not there before */
};
struct cairn_srv_trash_one {
    struct cairn_srv *server;
    struct cairn_store_worker *worker;
    const struct cairn_run_name *name;
    const char *ref;    /* as in a path */
    const char *reason; /* for its event */
    bool with_run;      /* the run goes, too, so what its newest attempt needs is no reason */
    /* Judged before the version is, in the transaction that moves it, too. NULL: nothing. */
    enum cairn_code (*first)(struct cairn_srv_tx *tx, void *argument, struct cairn_error *err);
    void *argument; /* of first */
};
enum cairn_code cairn_srv_trash_one(const struct cairn_srv_trash_one *one,
                                    struct cairn_srv_trashed *ret,
                                    struct cairn_error *err) CAIRN_MUST_USE;
