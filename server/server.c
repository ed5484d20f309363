/* SPDX-License-Identifier: Apache-2.0 */
/* Clocks, the freeze of the whole catalog, and freed memory; see server.h. */
#include "server/server.h"

#include <malloc.h>
#include <stdatomic.h>

#include "common/log.h"

#define LARGE_BYTES (512 * CAIRN_KIB)
#define TRIM_EVERY_MS 1000

int64_t srv_wall_ms(const struct srv *server) {
    return server->clock->wall_ms(server->clock);
}

uint64_t srv_mono_ms(const struct srv *server) {
    return server->clock->mono_ms(server->clock);
}

void srv_freeze(struct srv *server, const char *why) {
    if (atomic_exchange(&server->frozen, true)) return;
    cairn_log(ERROR, "catalog.behind",
              "cause=\"%s\" effect=\"attempts, lists, begins, commits and "
              "sweeps are refused until an operator has reconciled\"",
              why);
}

enum cairn_code srv_thawed(struct srv *server, struct cairn_error *err) {
    if (!server->frozen && srv_catalog_is_behind(server->catalog))
        srv_freeze(server, "the catalog's database has lost commits that this server has seen: "
                           "it was restored, or a standby without them took over (start the "
                           "server again, which compares each run with the store)");
    if (!server->frozen) return CAIRN_OK;
    return cairn_fail(err, CAIRN_CATALOG_BEHIND,
                      "the catalog is behind its store; the server's log says why");
}

static _Atomic uint64_t trimmed_ms; /* mono clock */
static _Atomic bool untrimmed;

void srv_trim_left(void) {
#ifdef __GLIBC__ /* musl frees memory by itself */
    if (atomic_exchange(&untrimmed, false)) (void)malloc_trim(0);
#endif
}

void srv_trim_later(size_t bytes) {
    if (bytes >= LARGE_BYTES) atomic_store(&untrimmed, true);
}

/* The allocator keeps freed memory in each thread's arena: for 16 MiB of JSON some hundred MiB. */
void srv_trim_after(size_t bytes) {
    uint64_t now_ms = cairn_mono_ms(), at_ms = trimmed_ms;
    if (bytes < LARGE_BYTES) return;
    atomic_store(&untrimmed, true);
    if (at_ms && now_ms < at_ms + TRIM_EVERY_MS) return;
    if (atomic_compare_exchange_strong(&trimmed_ms, &at_ms, now_ms)) srv_trim_left();
}
