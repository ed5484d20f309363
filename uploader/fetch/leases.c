/* SPDX-License-Identifier: Apache-2.0 */
/* One thread looks for the lease that is due first; see leases.h. */
#include "uploader/fetch/leases.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/log.h"
#include "common/text.h"
#include "uploader/fetch/inside.h"

#define AGAIN_MS 5000 /* after a failure */
#define OVER_MAX 1000

static bool is_too_late(enum cairn_code code) {
    return code == CAIRN_DELETED || code == CAIRN_ABORTED;
}

/* ---- the thread ---- */

static struct cairn_up_lease *due_first(struct cairn_up_leases *leases) {
    struct cairn_up_lease *found = NULL;
    for (struct cairn_up_lease *at = leases->first; at; at = at->next)
        if (!found || at->due_ms < found->due_ms) found = at;
    return found;
}

static void forget(struct cairn_up_leases *leases, struct cairn_up_lease *lease) {
    struct cairn_up_lease **at = &leases->first;
    while (*at != lease) at = &(*at)->next;
    *at = lease->next;
    leases->over_count -= lease->over;
    free(lease);
}

static enum cairn_code reach(struct cairn_up_fetch *fetch, struct cairn_error *err) {
    struct cairn_rest_options options = {.url = fetch->up->settings.server,
                                         .token = fetch->up->token,
                                         .token_file = fetch->up->settings.token_file,
                                         .ca_bundle = fetch->up->settings.ca_file,
                                         .seen = &fetch->up->servers_seen};
    return fetch->leases.rest ? CAIRN_OK : cairn_rest_new(&options, &fetch->leases.rest, err);
}

static void log_once(struct cairn_up_lease *lease, const struct cairn_error *why) {
    if (!lease->logged)
        cairn_log(WARN, "restore.unleased", "version=%s cause=\"%s\"", lease->lease.version.text,
                  why->message);
    lease->logged = true;
}

/* What is over is asked for once: it ends by itself. */
static void serve(struct cairn_up_fetch *fetch, struct cairn_up_lease *lease, bool over,
                  bool asks) {
    struct cairn_error why = {0};
    enum cairn_code code = asks ? reach(fetch, &why) : CAIRN_OK;
    if (!code && over && asks)
        code = cairn_read_lease_give(&lease->lease, fetch->leases.rest, &why);
    uint64_t asked_ms = cairn_mono_ms(); /* its life begins no earlier */
    if (!code && !over) code = cairn_read_lease_keep(&lease->lease, fetch->leases.rest, &why);
    if (code && !over) log_once(lease, &why);
    if (!code) lease->logged = false;
    CAIRN_HOLD(&fetch->lock);
    uint64_t wait_ms = !code               ? cairn_read_lease_every_ms(&lease->lease)
                       : is_too_late(code) ? UINT32_MAX
                                           : AGAIN_MS;
    if (over) {
        forget(&fetch->leases, lease);
        cairn_condition_broadcast(&fetch->changed);
    } else {
        lease->due_ms = lease->over ? 0 : (code ? cairn_mono_ms() : asked_ms) + wait_ms;
    }
}

static void loop(struct cairn_thread *thread, void *owner) {
    struct cairn_up_fetch *fetch = owner;
    uint64_t until_ms = 0;
    bool asks = true;
    while (cairn_thread_wait(thread, until_ms)) {
        cairn_lock_take(&fetch->lock);
        struct cairn_up_lease *lease = due_first(&fetch->leases);
        bool over = lease && lease->over;
        asks = !over || fetch->leases.over_count <= OVER_MAX;
        until_ms = lease ? lease->due_ms : UINT64_MAX;
        cairn_lock_give(&fetch->lock);
        if (!lease || until_ms > cairn_mono_ms()) continue;
        serve(fetch, lease, over, asks);
        until_ms = 0;
    }
}

enum cairn_code cairn_up_leases_start(struct cairn_up_fetch *fetch, struct cairn_error *err) {
    fetch->leases.thread =
        (struct cairn_thread){.name = "cairn-leases", .run = loop, .owner = fetch};
    return cairn_thread_start(&fetch->leases.thread, err);
}

void cairn_up_leases_stop(struct cairn_up_fetch *fetch) {
    struct cairn_up_leases *leases = &fetch->leases;
    if (leases->thread.started) cairn_thread_stop(&leases->thread);
    if (leases->rest) cairn_rest_free(CAIRN_TAKE(leases->rest));
    while (leases->first) {
        struct cairn_up_lease *lease = leases->first;
        leases->first = lease->next;
        free(lease);
    }
}

/* ---- a version that is loaded ---- */

static void name_it(struct cairn_up_fetch *fetch, struct cairn_up_lease *lease) {
    const struct cairn_up *up = fetch->up;
    cairn_lock_take(&fetch->lock);
    uint64_t number = ++fetch->leases.count;
    cairn_lock_give(&fetch->lock);
    /* Each has its own, so that what is given back is never another restore's. */
    snprintf(lease->lease.job, sizeof(lease->lease.job), "node %s %s/%" PRIu64,
             up->places.node, up->uuid, number);
}

enum cairn_code cairn_up_lease_begin(struct cairn_up_fetch *fetch,
                                     const struct cairn_version_place *place,
                                     struct cairn_rest *rest, struct cairn_up_lease **ret,
                                     struct cairn_error *err) {
    struct cairn_up_lease *lease = calloc(1, sizeof(*lease));
    if (!lease) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a lease");
    lease->lease.name = place->name;
    lease->lease.version = place->id;
    lease->lease.ttl_s = (uint32_t)(fetch->up->settings.restore_lease_ms / 1000);
    name_it(fetch, lease);
    struct cairn_error why = {0};
    uint64_t asked_ms = cairn_mono_ms();
    enum cairn_code code = rest ? cairn_read_lease_keep(&lease->lease, rest, &why) : CAIRN_OK;
    if (is_too_late(code)) {
        free(lease);
        if (err) *err = why;
        return code;
    }
    if (code) log_once(lease, &why);
    lease->due_ms =
        lease->lease.id[0] ? asked_ms + cairn_read_lease_every_ms(&lease->lease) : 0;
    *ret = lease;
    cairn_lock_take(&fetch->lock);
    lease->next = fetch->leases.first;
    fetch->leases.first = lease;
    cairn_lock_give(&fetch->lock);
    cairn_thread_wake(&fetch->leases.thread);
    return CAIRN_OK;
}

void cairn_up_lease_end(struct cairn_up_fetch *fetch, struct cairn_up_lease *lease) {
    if (!lease) return;
    cairn_lock_take(&fetch->lock);
    lease->over = true;
    lease->due_ms = 0;
    fetch->leases.over_count++;
    cairn_lock_give(&fetch->lock);
    cairn_thread_wake(&fetch->leases.thread);
}

void cairn_up_leases_settle(struct cairn_up_fetch *fetch, const char *version, uint64_t until_ms) {
    CAIRN_HOLD(&fetch->lock);
    for (bool more = true; more;) {
        const struct cairn_up_lease *at = fetch->leases.first;
        while (at && (!at->over || strcmp(at->lease.version.text, version) != 0)) at = at->next;
        more = at && !fetch->locked.stopping &&
               cairn_condition_wait(&fetch->changed, &fetch->lock, until_ms);
    }
}
