/* SPDX-License-Identifier: Apache-2.0 */
/*
 * peers: what this uploader has to do with those of other nodes: who they are, a port for them, and
 *        requests to theirs.
 *
 * Why:     bytes that another node of the attempt has are nearer than the store's.
 * Promise: 1   without peer_listen there is nothing of it: no port, no thread, no request.
 *          2   what it knows of an attempt is what heartbeats were told (members.h).
 * Limits:  those of its parts.
 * Threads: the pointers are immutable after new.
 * Next:    uploader/peers/port.h (to serve), uploader/peers/ask.h (to ask), docs/peers.md.
 */
#pragma once

#include "uploader/peers/ask.h"
#include "uploader/peers/port.h"
#include "uploader/up.h"

struct cairn_up_peers {
    struct cairn_up_members members;
    struct cairn_up_port *port;
    struct cairn_up_asks *asks;
};
/* *ret stays NULL where peer_listen is empty. Rooms then add routes to the port. */
enum cairn_code cairn_up_peers_new(struct cairn_up *up, struct cairn_up_peers **ret,
                                   struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_up_peers_start(struct cairn_up_peers *peers,
                                     struct cairn_error *err) CAIRN_MUST_USE;
/* No route runs any more, no ask ends any more. NULL is fine for both. */
void cairn_up_peers_stop(struct cairn_up_peers *peers);
void cairn_up_peers_free(struct cairn_up_peers *peers);
