/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verdicts: putting one version into the trash, for calls that remove several.
 *
 * Why:     what is removed alone, in bulk or with its run is judged by one text.
 * Promise: Q27  judged in the transaction that changes it; what is leased (Q29), pinned or has an
 *               alias stays, CAIRN_IN_USE.
 * Limits:  none.
 * Threads: the request's.
 * Next:    server/handlers/verdicts.c, server/handlers/remove.c.
 */
#pragma once

#include "server/catalog/versions.h"
#include "server/handlers/request.h"

struct cairn_srv_trashed {
    struct cairn_version_id id;
    uint64_t step, bytes;
};
/* ref as in a path. with_run: the run goes, too, so what its newest attempt needs is no reason. */
enum cairn_code cairn_srv_trash_one(struct cairn_srv_request *request, const char *ref,
                                    bool with_run, struct cairn_srv_trashed *ret,
                                    struct cairn_error *err) CAIRN_MUST_USE;
