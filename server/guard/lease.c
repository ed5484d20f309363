/* SPDX-License-Identifier: Apache-2.0 */
/* Leases of this server, and the thread that renews them; see lease.h. */
#include "server/guard/lease.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/clock.h"
#include "common/log.h"
#include "common/process.h"
#include "server/db/values.h"
#include "server/guard/ticks.h"

struct cairn_srv_leases {
    struct cairn_srv *server;
    struct cairn_thread thread;
    _Atomic uint64_t held;
};

static bool is_needed(const struct cairn_srv *server) {
    return cairn_srv_catalog_is_shareable(server->catalog);
}

static struct cairn_srv_holder holder_of(const struct cairn_srv_lease *lease) {
    return (struct cairn_srv_holder){.job = lease->job,
                                     .server = cairn_srv_catalog_server(lease->server->catalog),
                                     .fence = lease->fence};
}

/* ---- renewing ---- */

static enum cairn_code renew(struct cairn_srv_tx *tx, void *argument, struct cairn_error *err) {
    struct cairn_srv *server = argument;
    CAIRN_TRY(cairn_srv_ticks_advance(tx, server, err));
    uint64_t until = cairn_srv_ticks_now(server) + server->settings->job_lease_ms;
    return cairn_srv_lease_rows_renew(tx, cairn_srv_catalog_server(server->catalog), until, err);
}

static void renew_loop(struct cairn_thread *thread, void *owner) {
    struct cairn_srv_leases *leases = owner;
    uint64_t every_ms = leases->server->settings->job_lease_ms / 3;
    while (cairn_thread_wait(thread, cairn_mono_ms() + every_ms)) {
        struct cairn_error why = {0};
        if (!leases->held) continue;
        if (cairn_srv_catalog_write(leases->server->catalog, renew, leases->server, &why))
            cairn_log(WARN, "lease.not_renewed", "cause=\"%s\"", why.message);
    }
}

enum cairn_code cairn_srv_leases_new(struct cairn_srv *server, struct cairn_srv_leases **ret,
                                     struct cairn_error *err) {
    struct cairn_srv_leases *leases = calloc(1, sizeof(*leases));
    if (!leases) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for leases");
    leases->server = server;
    leases->thread =
        (struct cairn_thread){.name = "cairn-leases", .run = renew_loop, .owner = leases};
    enum cairn_code code = is_needed(server) ? cairn_thread_start(&leases->thread, err) : CAIRN_OK;
    if (code)
        free(leases);
    else
        *ret = leases;
    return code;
}

void cairn_srv_leases_free(struct cairn_srv_leases *leases) {
    if (!leases) return;
    if (leases->thread.started) cairn_thread_stop(&leases->thread);
    free(leases);
}

/* ---- one job ---- */

void cairn_srv_lease_init(struct cairn_srv_lease *lease, struct cairn_srv *server, const char *kind,
                          const char *id) {
    *lease = (struct cairn_srv_lease){.server = server};
    snprintf(lease->job, sizeof(lease->job), "%s/%s", kind, id);
}

static void count(const struct cairn_srv_lease *lease, int64_t more) {
    if (!lease->server->leases) return;
    uint64_t before = atomic_fetch_add(&lease->server->leases->held, (uint64_t)more);
    CAIRN_ASSERT(more > 0 || before > 0); /* renewed as long as any is held */
}

static enum cairn_code try_to_take(struct cairn_srv_tx *tx, void *argument,
                                   struct cairn_error *err) {
    struct cairn_srv_lease *lease = argument;
    struct cairn_srv_holder holder = holder_of(lease);
    struct cairn_srv_lease_row found;
    bool taken = false;
    CAIRN_TRY(cairn_srv_lease_row_find(tx, lease->job, &found, err)); /* expected */
    CAIRN_TRY(cairn_srv_ticks_advance(tx, lease->server, err));
    uint64_t now = cairn_srv_ticks_now(lease->server);
    uint64_t until = now + lease->server->settings->job_lease_ms;
    CAIRN_TRY(cairn_srv_lease_row_take(tx, &holder, &found, now, until, &taken, err));
    if (taken && !lease->held) count(lease, 1);
    lease->held |= taken;
    lease->fence = holder.fence;
    return CAIRN_OK;
}

static enum cairn_code taken_by_another(const struct cairn_srv_lease *lease,
                                        struct cairn_error *err) {
    return cairn_fail(err, CAIRN_BUSY, "another server works on %s", lease->job);
}

enum cairn_code cairn_srv_lease_check_expect(struct cairn_srv_tx *tx,
                                             const struct cairn_srv_lease *lease,
                                             struct cairn_error *err) {
    if (!lease || !lease->held || !is_needed(lease->server)) return CAIRN_OK;
    struct cairn_srv_holder holder = holder_of(lease);
    return cairn_srv_lease_row_is_expect(tx, &holder, err);
}

enum cairn_code cairn_srv_lease_take_expect(struct cairn_srv_tx *tx,
                                            const struct cairn_srv_lease *lease,
                                            struct cairn_error *err) {
    if (!is_needed(lease->server)) return CAIRN_OK;
    CAIRN_TRY(cairn_srv_lease_row_expect(tx, lease->job, err));
    return cairn_srv_tick_expect(tx, err);
}

enum cairn_code cairn_srv_lease_take_in(struct cairn_srv_tx *tx, struct cairn_srv_lease *lease,
                                        struct cairn_error *err) {
    if (!is_needed(lease->server)) return CAIRN_OK;
    return try_to_take(tx, lease, err);
}

enum cairn_code cairn_srv_lease_take(struct cairn_srv_lease *lease, struct cairn_error *err) {
    if (!is_needed(lease->server) || lease->held) return CAIRN_OK;
    CAIRN_TRY(cairn_srv_catalog_write(lease->server->catalog, try_to_take, lease, err));
    return lease->held ? CAIRN_OK : taken_by_another(lease, err);
}

enum cairn_code cairn_srv_lease_check(struct cairn_srv_tx *tx, const struct cairn_srv_lease *lease,
                                      struct cairn_error *err) {
    if (!lease || !is_needed(lease->server)) return CAIRN_OK;
    struct cairn_srv_holder holder = holder_of(lease);
    bool ours = false;
    if (lease->held) CAIRN_TRY(cairn_srv_lease_row_is(tx, &holder, &ours, err));
    return ours ? CAIRN_OK : taken_by_another(lease, err);
}

static enum cairn_code look(struct cairn_srv_tx *tx, void *argument, struct cairn_error *err) {
    return cairn_srv_lease_check(tx, argument, err);
}

enum cairn_code cairn_srv_lease_still(const struct cairn_srv_lease *lease,
                                      struct cairn_error *err) {
    if (!lease || !is_needed(lease->server)) return CAIRN_OK;
    return cairn_srv_catalog_read(lease->server->catalog, look, (void *)lease, err);
}

static enum cairn_code drop(struct cairn_srv_tx *tx, void *argument, struct cairn_error *err) {
    const struct cairn_srv_lease *lease = argument;
    struct cairn_srv_holder holder = holder_of(lease);
    return cairn_srv_lease_row_drop(tx, &holder, err);
}

enum cairn_code cairn_srv_lease_drop_in(struct cairn_srv_tx *tx, struct cairn_srv_lease *lease,
                                        struct cairn_error *err) {
    if (!lease || !lease->held) return CAIRN_OK;
    return drop(tx, lease, err);
}

void cairn_srv_lease_end(struct cairn_srv_lease *lease) {
    if (!lease->held) return;
    lease->held = false;
    count(lease, -1);
    if (lease->dropped) return;
    /* Where that fails it is over by itself. */
    (void)!cairn_srv_catalog_write(lease->server->catalog, drop, lease, NULL);
}
