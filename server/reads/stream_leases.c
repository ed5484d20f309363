/* SPDX-License-Identifier: Apache-2.0 */
/* Counted by version in memory, and one row of the catalog for each; see stream_leases.h. */
#include "server/reads/stream_leases.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/lock.h"
#include "common/log.h"
#include "server/guard/jobs.h"
#include "server/http/waiters.h"
#include "server/ledger/leases.h"

#define RENEW_MS (CAIRN_SRV_STREAM_LEASE_S * 1000 / 3)

struct entry {
    struct cairn_srv_task task; /* first */
    struct entry *next;
    struct cairn_srv *server;
    struct cairn_version_id version;
    size_t count;        /* answers under way */
    uint64_t renewed_ms; /* mono clock; 0: it has no row */
    bool queued;         /* the task is queued or runs */
};
struct cairn_srv_stream_leases {
    struct cairn_lock lock;
    struct {
        struct entry *first;
    } locked;
};

enum cairn_code cairn_srv_stream_leases_new(struct cairn_srv_stream_leases **ret,
                                            struct cairn_error *err) {
    struct cairn_srv_stream_leases *leases = calloc(1, sizeof(*leases));
    if (!leases) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for leases of downloads");
    cairn_lock_init(&leases->lock, CAIRN_LOCK_server_stream_leases);
    *ret = leases;
    return CAIRN_OK;
}

void cairn_srv_stream_leases_free(struct cairn_srv_stream_leases *leases) {
    if (!leases) return;
    for (struct entry *one = leases->locked.first, *next = NULL; one; one = next) {
        next = one->next;
        free(one);
    }
    cairn_lock_release(&leases->lock);
    free(leases);
}

/* ---- the row ---- */

struct change {
    struct cairn_srv *server;
    struct entry *entry;
    char job[80];
    char id[CAIRN_SRV_READ_LEASE_BYTES];
    bool put; /* the row was written, not dropped */
};

static enum cairn_code put(struct cairn_srv_tx *tx, struct change *change,
                           struct cairn_error *err) {
    bool made = false;
    CAIRN_TRY(cairn_srv_ticks_advance(tx, change->server, err));
    struct cairn_srv_read_lease lease = {
        .version = change->entry->version.text,
        .job = change->job,
        .until_tick = cairn_srv_ticks_now(change->server) + CAIRN_SRV_STREAM_LEASE_S * 1000,
        .wall_ms = cairn_srv_wall_ms(change->server)};
    memcpy(lease.id, change->id, sizeof(lease.id));
    return cairn_srv_read_lease_take(tx, &lease, &made, err);
}

/* Changes run one after the other, and each looks here whether answers are under way: so an answer
 * that begins beside a drop has its row written behind it. */
static enum cairn_code settle(struct cairn_srv_tx *tx, void *argument, struct cairn_error *err) {
    struct change *change = argument;
    bool found = false;
    {
        CAIRN_HOLD(&change->server->stream_leases->lock);
        change->put = change->entry->count > 0;
        if (!change->put) change->entry->renewed_ms = 0;
    }
    if (change->put) return put(tx, change, err);
    return cairn_srv_read_lease_drop(tx, change->id, change->entry->version.text, &found, err);
}

/* entry stays: it has an answer under way, or is queued. False: its row was dropped, or may be
 * there until it runs out. */
static bool write_row(struct cairn_srv *server, struct entry *entry) {
    struct change change = {.server = server, .entry = entry};
    struct cairn_error why = {0};
    snprintf(change.job, sizeof(change.job), "downloads through server %.40s",
             cairn_srv_catalog_server(server->catalog));
    cairn_srv_read_lease_name(entry->version.text, change.job, change.id);
    if (!cairn_srv_catalog_write(server->catalog, settle, &change, &why)) return change.put;
    cairn_log(WARN, "lease.untaken", "version=%s cause=\"%s\"", entry->version.text, why.message);
    return false;
}

static void settle_in_pool(struct cairn_srv_task *task, struct cairn_store_worker *worker) {
    struct entry *entry = (struct entry *)task;
    struct cairn_srv_stream_leases *leases = entry->server->stream_leases;
    (void)worker;
    for (bool has_row = true; has_row;) {
        has_row = write_row(entry->server, entry);
        CAIRN_HOLD(&leases->lock);
        if (!entry->count && has_row) continue; /* the last answer has ended meanwhile */
        entry->queued = false;
        if (entry->count) return;
        struct entry **at = &leases->locked.first;
        while (*at != entry) at = &(*at)->next;
        *at = entry->next;
    }
    free(entry);
}

/* The lock is held. */
static void queue(struct entry *entry) {
    entry->task.run = settle_in_pool;
    entry->queued = cairn_srv_pool_push(entry->server->reads, &entry->task);
}

/* ---- answers ---- */

static struct entry *find(struct cairn_srv_stream_leases *leases,
                          const struct cairn_version_id *version) {
    struct entry *one = leases->locked.first;
    while (one && strcmp(one->version.text, version->text) != 0) one = one->next;
    return one;
}

static bool is_due(struct entry *entry) {
    uint64_t now_ms = cairn_mono_ms();
    if (entry->renewed_ms && now_ms < entry->renewed_ms + RENEW_MS) return false;
    entry->renewed_ms = now_ms;
    return true;
}

bool cairn_srv_stream_lease_take(struct cairn_srv *server, const struct cairn_version_id *version) {
    struct cairn_srv_stream_leases *leases = server->stream_leases;
    struct entry *made = calloc(1, sizeof(*made)), *entry = NULL;
    bool due = false;
    if (!made) return false;
    *made = (struct entry){.server = server, .version = *version};
    {
        CAIRN_HOLD(&leases->lock);
        entry = find(leases, version);
        if (!entry) {
            made->next = leases->locked.first;
            leases->locked.first = entry = made;
        }
        entry->count++;
        due = is_due(entry);
    }
    if (entry != made) free(made);
    if (due) (void)write_row(server, entry);
    return true;
}

void cairn_srv_stream_lease_renew(struct cairn_srv *server,
                                  const struct cairn_version_id *version) {
    CAIRN_HOLD(&server->stream_leases->lock);
    struct entry *entry = find(server->stream_leases, version);
    if (entry && !entry->queued && is_due(entry)) queue(entry);
}

void cairn_srv_stream_lease_give(struct cairn_srv *server, const struct cairn_version_id *version) {
    CAIRN_HOLD(&server->stream_leases->lock);
    struct entry *entry = find(server->stream_leases, version);
    CAIRN_ASSERT(entry && entry->count);
    if (!--entry->count && !entry->queued) queue(entry);
}
