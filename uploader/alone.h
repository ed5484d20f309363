/* SPDX-License-Identifier: Apache-2.0 */
/*
 * alone: this process is the only uploader of its node on this machine (Q15).
 *
 * Why:     two uploaders of one node would take turns in the server's row of that node, and a
 *          trainer could offer its memory to the one that does not have its journal. The journal's
 *          lock follows state_dir, so it sees only those that share the folder.
 * Promise: 1   a node is a name of one server, and of the one store that it writes to: claimed
 *              under the server's address before anything is opened, and under the store's uuid
 *              once that was read, since a server has several addresses.
 *          2   the claims end with the process, however it ends.
 *          3   somebody else's process that holds the name stops nobody: it is logged.
 * Limits:  one user's processes, or root's, in one network namespace.
 * Threads: the main thread.
 * Next:    common/net.h (cairn_net_claim); uploader/send/store_check.h.
 */
#pragma once

#include "common/error.h"

enum cairn_up_claim { CAIRN_UP_CLAIM_SERVER, CAIRN_UP_CLAIM_STORE };
struct cairn_up_claims {
    int fds[2]; /* by enum cairn_up_claim, each + 1; 0: none */
};
struct cairn_up;
/* In place of the one before of that kind. CAIRN_CONFLICT: another uploader of the node runs. */
enum cairn_code cairn_up_claim(struct cairn_up *up, enum cairn_up_claim kind, const char *scope,
                               struct cairn_error *err) CAIRN_MUST_USE;
void cairn_up_claims_tick(struct cairn_up *up);
void cairn_up_claims_release(struct cairn_up *up);
