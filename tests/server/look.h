/* SPDX-License-Identifier: Apache-2.0 */
/*
 * look: a function over one look at a catalog (server/db/catalog.h), for tests that ask one thing.
 *
 * Why:     a test's question is the same function within a change and within a look.
 * Promise: 1   the look has ended when the function's code is returned.
 * Limits:  as a look.
 * Threads: as a look.
 * Next:    server/db/catalog.h.
 */
#pragma once

#include "server/db/catalog.h"

static inline enum cairn_code look_by(struct srv_catalog *catalog,
                                      enum cairn_code (*ask)(struct srv_tx *tx, void *argument,
                                                             struct cairn_error *err),
                                      void *argument, struct cairn_error *err) {
    SRV_AUTO(look) look = {0};
    enum cairn_code code = srv_look_begin(catalog, &look, err);
    return code ? code : ask(look.tx, argument, err);
}
