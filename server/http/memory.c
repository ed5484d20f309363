/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that peers make the server hold: bodies as they arrive and replies until they are taken.
 * It is counted when it is used and not when it is announced (B10). Where there is no more, the
 * connection goes first whose peer has neither sent nor taken anything for longest. */
#include <stdatomic.h>

#include "common/clock.h"
#include "common/log.h"
#include "server/http/inside.h"

#define STALLED_MS 2000
#define SHARE_OF_SAVES 4 /* a quarter of bodies-max */

static uint64_t bound_of(const struct cairn_srv_http *http, enum cairn_srv_memory kind) {
    const struct cairn_srv_settings *settings = http->server->settings;
    uint64_t share = settings->bodies_max_bytes / SHARE_OF_SAVES;
    if (kind == CAIRN_SRV_MEMORY_REPLIES) return settings->replies_max_bytes;
    return kind == CAIRN_SRV_MEMORY_BODIES ? settings->bodies_max_bytes - share : share;
}

/* The connection whose peer has moved least recently of those that hold memory of that kind; the
 * lock is held. */
static struct cairn_srv_conn *longest_still(struct cairn_srv_http *http,
                                            enum cairn_srv_memory kind) {
    struct cairn_srv_conn *found = NULL;
    uint64_t before_ms = cairn_mono_ms() - STALLED_MS;
    for (struct cairn_srv_conn *one = http->locked.conns; one; one = one->next) {
        if (one->is_reset || one->held_kind != (int)kind || !one->held_bytes) continue;
        if (one->moved_ms > before_ms) continue;
        if (!found || one->moved_ms < found->moved_ms) found = one;
    }
    return found;
}

/* The memory of who is reset is given back within a moment, and is counted out at once. */
static bool reset_still(struct cairn_srv_http *http, enum cairn_srv_memory kind) {
    uint64_t held_bytes = 0;
    {
        CAIRN_HOLD(&http->lock);
        struct cairn_srv_conn *conn = longest_still(http, kind);
        if (!conn) return false;
        cairn_srv_conn_reset(http, conn);
        held_bytes = atomic_exchange(&conn->held_bytes, 0);
        atomic_fetch_sub(&http->memory[kind], held_bytes);
    }
    cairn_log(DEBUG, "http.memory_taken_back", "bytes=%llu of=%s", (unsigned long long)held_bytes,
              kind == CAIRN_SRV_MEMORY_REPLIES ? "replies" : "bodies");
    return true;
}

bool cairn_srv_memory_take(struct cairn_srv_exchange *exchange, enum cairn_srv_memory kind,
                           uint64_t bytes) {
    struct cairn_srv_http *http = exchange->http;
    struct cairn_srv_conn *conn = exchange->conn;
    uint64_t bound = bound_of(http, kind);
    uint64_t held_bytes = conn->held_bytes;
    CAIRN_ASSERT(!held_bytes || conn->held_kind == (int)kind);
    uint64_t all = atomic_fetch_add(&http->memory[kind], bytes) + bytes;
    /* A single body or reply is taken whatever the bound. */
    while (all > bound && all > held_bytes + bytes) {
        if (!reset_still(http, kind)) {
            atomic_fetch_sub(&http->memory[kind], bytes);
            return false;
        }
        all = http->memory[kind];
    }
    conn->held_kind = (int)kind;
    conn->moved_ms = cairn_mono_ms();
    atomic_fetch_add(&conn->held_bytes, bytes);
    return true;
}

void cairn_srv_memory_give(struct cairn_srv_http *http, struct cairn_srv_conn *conn) {
    if (!conn) return;
    uint64_t held_bytes = atomic_exchange(&conn->held_bytes, 0);
    if (held_bytes) atomic_fetch_sub(&http->memory[conn->held_kind], held_bytes);
}
