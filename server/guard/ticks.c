/* SPDX-License-Identifier: Apache-2.0 */
/* Compare-and-set of the one row; see ticks.h. */
#include "server/guard/ticks.h"

#include "server/db/values.h"

#define TICK_STEP_MS_MAX 60000

enum cairn_code cairn_srv_ticks_advance(struct cairn_srv_tx *tx, struct cairn_srv *server,
                                        struct cairn_error *err) {
    struct cairn_srv_ticks *found = &server->ticks;
    uint64_t tick = cairn_srv_tick(tx);
    const struct cairn_clock *clock = server->clock;
    uint64_t boot_ms = clock->boot_ms(clock);
    if (found->seen_tick != tick) {
        found->seen_tick = tick;
        found->seen_boot_ms = boot_ms;
        return CAIRN_OK;
    }
    uint64_t step_ms = cairn_min_u64(boot_ms - found->seen_boot_ms, TICK_STEP_MS_MAX);
    CAIRN_TRY(cairn_srv_tick_raise(tx, tick, step_ms, err)); /* nobody else changes it (E1) */
    found->seen_tick = tick + step_ms;
    found->seen_boot_ms = boot_ms;
    return CAIRN_OK;
}

uint64_t cairn_srv_ticks_now(const struct cairn_srv *server) {
    return server->ticks.seen_tick;
}
