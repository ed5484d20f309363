/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tiering: the `copies` of a run's policy are carried out: what lies in which store.
 *
 * Why:     a fast store keeps the newest, a slow one every thousandth step, and nobody sits there
 *          and copies.
 * Promise: 1   the plan is plan/copies.h over the state of the catalog at one moment; each copy
 *              that it wants, and each that it does not, is judged again in a transaction of its
 *              own (promote.h, demote.h).
 *          2   it removes what a policy has made, and of the main store what lies elsewhere, too;
 *              a copy that somebody asked for by hand stays, and so does every last one.
 *          3   carried out again it changes nothing; what a server left undone comes with the next
 *              commit, or when a copy was made.
 *          4   up to the version behind which nothing was to do, nothing is read again while the
 *              run's events say that nothing of it has changed: a commit costs what it can change,
 *              and what is done is what a look at all versions does.
 * Limits:  CAIRN_SRV_TIERING_ROUND changes a call; CAIRN_SRV_TIERED_MAX runs are remembered, others
 *          are read whole.
 * Threads: any, with a worker of the main store; what is remembered is locked by server_retained.
 * Next:    server/copies/copies_job.h, which begins what is wanted; docs/tiers.md.
 */
#pragma once

#include "server/guard/stores.h"

#define CAIRN_SRV_TIERING_ROUND 1000
#define CAIRN_SRV_TIERED_MAX 64

struct cairn_srv_tiered; /* how far runs were settled */
enum cairn_code cairn_srv_tiered_new(struct cairn_srv_tiered **ret,
                                     struct cairn_error *err) CAIRN_MUST_USE;
void cairn_srv_tiered_free(struct cairn_srv_tiered *tiered); /* NULL is fine */

/* What fails is logged, and comes again. Returns how many versions were read. */
size_t cairn_srv_tiering_run(struct cairn_srv *server, struct cairn_store_worker *worker,
                             const struct cairn_run_name *name);
