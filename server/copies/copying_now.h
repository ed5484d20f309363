/* SPDX-License-Identifier: Apache-2.0 */
/*
 * copying_now: who copies a version, or removes a copy of it, is alone with it.
 *
 * Why:     a copy that is made and removed at once would read as whole and not be; and two servers
 *          would copy every byte twice.
 * Promise: 1   of one version one copy is made or removed at a time, on all servers of a catalog:
 *              in this process by a list, among servers by the job lease `copy/VERSION`.
 *          2   what failed is tried again by the sweep after a pause that grows, and holds up no
 *              copy of the same version in another store.
 *          3   a store that is away is asked for one version a minute, and for all of them again
 *              once it has answered: its wishes take no place from those of other stores.
 * Limits:  4,096 copies that failed are remembered; the others are tried at each sweep.
 * Threads: any; a hold belongs to one.
 * Next:    server/copies/promote.c, server/copies/demote.c.
 */
#pragma once

#include "server/guard/jobs.h"
#include "server/guard/stores.h"

struct cairn_srv_copy_hold {
    struct cairn_srv *server;
    struct cairn_srv_lease lease;
    char version[CAIRN_VERSION_ID_BYTES];
    bool held;
    struct cairn_srv_copy_hold *next;
};
/* CAIRN_BUSY: somebody works on it. */
enum cairn_code cairn_srv_copy_hold_take(struct cairn_srv_copy_hold *hold,
                                         struct cairn_srv *server, const char *version,
                                         struct cairn_error *err) CAIRN_MUST_USE;
void cairn_srv_copy_hold_end(struct cairn_srv_copy_hold *hold);
/* Does this process hold it? */
bool cairn_srv_copy_is_held(struct cairn_srv *server, const char *version);

/* The last try failed, or did not: when may the sweep try again? */
void cairn_srv_copy_failed(struct cairn_srv *server, const char *version, const char *store,
                           bool failed);
bool cairn_srv_copy_may_try(struct cairn_srv *server, const char *version, const char *store);
/* What the store answered, or CAIRN_OK where somebody says that it is back. */
void cairn_srv_copy_asked(struct cairn_srv *server, const char *store, enum cairn_code code);
/* False: it is away, and another version is the one to ask it for. */
bool cairn_srv_copy_may_ask(struct cairn_srv *server, const char *version, const char *store);
/* Before the stores are freed. */
void cairn_srv_copies_forget_failures(struct cairn_srv *server);
