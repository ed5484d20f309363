/* SPDX-License-Identifier: Apache-2.0 */
/* The clocks that rules of time read, and the freeze of a whole catalog; see server.h. */
#include "server/server.h"

#include <stdatomic.h>

#include "common/log.h"

int64_t cairn_srv_wall_ms(const struct cairn_srv *server) {
    return server->clock->wall_ms(server->clock);
}

uint64_t cairn_srv_mono_ms(const struct cairn_srv *server) {
    return server->clock->mono_ms(server->clock);
}

void cairn_srv_freeze(struct cairn_srv *server, const char *why) {
    if (atomic_exchange(&server->frozen, true)) return;
    cairn_log(ERROR, "catalog.behind",
              "cause=\"%s\" effect=\"attempts, lists, begins, commits and "
              "sweeps are refused until an operator has reconciled\"",
              why);
}

enum cairn_code cairn_srv_thawed(struct cairn_srv *server, struct cairn_error *err) {
    if (!server->frozen && cairn_srv_catalog_is_behind(server->catalog))
        cairn_srv_freeze(server,
                         "the catalog's database has lost commits that this server has seen: "
                         "it was restored, or a standby without them took over (start the "
                         "server again, which compares each run with the store)");
    if (!server->frozen) return CAIRN_OK;
    return cairn_fail(err, CAIRN_CATALOG_BEHIND,
                      "the catalog is behind its store; the server's log says why");
}
