/* SPDX-License-Identifier: Apache-2.0 */
/*
 * saves: what several handlers of one save share.
 *
 * Why:     registration, seal, fail and abort name a version and carry a grant in the same way.
 * Promise: 1   a write names its version by id; an older attempt is refused, and so is another
 *              attempt's version (Q6).
 * Limits:  -
 * Threads: any pool thread.
 * Next:    begin.c, register.c and verdicts.c beside this file; server/commit/commit.c.
 */
#pragma once

#include "server/http/request.h"
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
