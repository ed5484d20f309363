/* SPDX-License-Identifier: Apache-2.0 */
/*
 * serve: what other nodes of an attempt restore out of this one.
 *
 * Why:     a piece of a version that several nodes restore is read from the store by one of them.
 * Promise: 1   a node gets blocks of committed versions of the run whose attempt it holds, compared
 *              with their checksums, and nothing else.
 *          2   what this node does not have it reads from the store; it asks no third node, and
 *              says 409 where it is waiting for one.
 *          3   a version that only others restore is let go of ten seconds after they last asked.
 * Limits:  one cell's range an answer; half of the cells at most are held by answers.
 * Threads: those of the port's connections.
 * Next:    docs/peers.md; uploader/peers/port.h.
 */
#pragma once

#include "uploader/up.h"

/* Before the port starts. Without peers there is nothing to do. */
void cairn_up_serve_route(struct cairn_up *up);
