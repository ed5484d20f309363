/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verdicts: putting one version into the trash, for who removes several.
 *
 * Why:     what is removed alone, in bulk or with its run is judged by one text.
 * Promise: Q27  judged in the transaction that changes it; what is leased (Q29), pinned or has an
 *               alias stays, CAIRN_IN_USE.
 * Limits:  none.
 * Threads: that of the worker.
 * Next:    server/intake/verdicts.c, server/retention/remove_run.c.
 */
#pragma once

#include "server/http/request.h"
#include "server/ledger/versions.h"

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
