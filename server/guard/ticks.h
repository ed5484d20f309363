/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ticks: catalog time goes on with this server's clock (Q34, S4).
 *
 * Why:     the sweep counts in catalog time, and so do leases, whichever server looks at them.
 * Promise: 1   by at most the boot clock's time since this server last saw it change, and at most
 *              60 s at once; who finds that another has raised it has only seen it change.
 * Limits:  -
 * Threads: inside a change.
 * Next:    server/db/values.h.
 */
#pragma once

#include "server/server.h"

enum cairn_code cairn_srv_ticks_advance(struct cairn_srv_tx *tx, struct cairn_srv *server,
                                        struct cairn_error *err) CAIRN_MUST_USE;
/* As that has left it. */
uint64_t cairn_srv_ticks_now(const struct cairn_srv *server);
