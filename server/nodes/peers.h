/* SPDX-License-Identifier: Apache-2.0 */
/*
 * peers: which nodes hold an attempt, and where their uploaders are asked for what they have.
 *
 * Why:     uploaders of one attempt pass bytes to each other, and the server is the one place that
 *          all of them report to.
 * Promise: 1   only who has shown the attempt's grant is told, so whoever has the list has the key
 *              that its nodes take (api/wire/rights.h).
 *          2   who asks hears the same list as all others that ask then, in the order of names.
 *          Q57 with partner_copies, of the policy that holds for the run or else of the settings,
 *              the one that asks is told its partner (plan/partner.h), once every rank has joined,
 *              among those with partner_memory that are not silent.
 * Limits:  CAIRN_SRV_PEERS_MAX nodes.
 * Threads: inside a transaction.
 * Next:    server/nodes/node_calls.c; docs/peers.md.
 */
#pragma once

#include "common/json.h"
#include "server/ledger/runs.h"
#include "server/server.h"

#define CAIRN_SRV_PEERS_MAX 1024

struct cairn_srv_peers_ask {
    struct cairn_srv *server;
    const struct cairn_srv_run *run; /* its newest attempt is meant */
    size_t index;                    /* of that attempt in the request */
    const char *node;                /* who asks, and is told its partner */
};
/* One item of a heartbeat's answer. */
enum cairn_code cairn_srv_peers_json(struct cairn_srv_tx *tx,
                                     const struct cairn_srv_peers_ask *ask, json_t **ret,
                                     struct cairn_error *err) CAIRN_MUST_USE;
