/* SPDX-License-Identifier: Apache-2.0 */
/* One round of timed work: catalog time, unfinished commits and records, versions open for too
 * long, the trash (Q24, Q26, Q27, Q34), temporary files, old rows. sweep_objects.c deletes
 * objects. */
#include "server/sweep/sweep.h"
#include "server/sweep/sweep_objects.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/log.h"
#include "server/copies/copies.h"
#include "server/guard/identity.h"
#include "server/guard/records.h"
#include "server/guard/said_copy.h"
#include "server/http/waiters.h"
#include "server/ledger/attempts.h"
#include "server/ledger/policies.h"
#include "server/ledger/shards.h"
#include "server/ledger/version_lists.h"
#include "server/metrics.h"
#include "server/nodes/nodes.h"
#include "server/recovery/recovery.h"

#define ROUND_VERSIONS_MAX 1000
#define TEMPORARIES_MAX 1000
#define HOUR_MS UINT64_C(3600000)
#define UNUSED_MS (48 * HOUR_MS)
#define NOTED_MS (10 * UINT64_C(60000))
/* of the catalog's WAL, which is truncated at a quarter of this */
#define LOG_BYTES_MAX (256 * CAIRN_MIB)
#define RAISE_MS (10 * UINT64_C(60000))

struct temporaries {
    char *keys[TEMPORARIES_MAX];
    size_t count;
};
struct both_temporaries {
    struct temporaries before, now;
};

/* Version ids are collected by one query, then worked on outside of it. */
struct srv_sweep {
    struct srv *server;
    struct srv_ids ids;
    size_t passed; /* rows to skip in the next query: they failed in this round */
    uint64_t away; /* bits of stores that did not answer in this round (sweep_objects.h) */
    struct srv_version version;
    char reason[SRV_REASON_BYTES];
    bool changed;
    uint64_t tidied_ms, noted_ms; /* mono clock; 0: never */
    struct both_temporaries temporaries;
    bool raised;
    uint64_t raised_ms; /* mono clock */
    struct srv_said_copy said_copy;
    bool went_well;
    bool log_told;
};

/* sweep.h#4: a signal arrived. */
static bool is_ending(const struct srv_sweep *sweep) {
    return sweep->server->leaving || sweep->server->stopping;
}

/* ---- Q34: catalog time ---- */

SRV_CHANGE(advance, struct srv_sweep *found) {
    CAIRN_TRY(srv_server_seen(tx, srv_catalog_server(found->server->catalog), err));
    return srv_ticks_advance(tx, found->server, err);
}

/* Finds the versions of a round. AGAIN (Q30): 10 s after the version was given up, for requests
 * then in flight, and after 1, 24 and 48 h, for late writes of paused processes. */
static enum cairn_code find_round(struct srv_sweep *found, enum srv_round round,
                                  struct cairn_error *err) {
    found->ids.count = 0; /* also if the query fails */
    SRV_LOOK(look, found->server->catalog, err);
    uint64_t tick = srv_tick(look.tx), grace_ms = found->server->settings->trash_grace_ms;
    struct srv_round_query query = {round, tick, ROUND_VERSIONS_MAX, found->passed};
    if (round == SRV_ROUND_TRASHED) {
        if (tick < grace_ms) return CAIRN_OK;
        query.tick_ms -= grace_ms;
    }
    return srv_versions_round(look.tx, &query, &found->ids, err);
}

/* ---- Q26: open too long, or a needed node is silent ---- */

SRV_CHANGE(expire, struct srv_sweep *found) {
    found->reason[0] = 0;
    found->changed = false;
    uint64_t tick = srv_tick(tx);
    const char *id = found->version.id.text;
    struct srv_version fresh = {0};
    CAIRN_TRY(srv_version_get(tx, id, &fresh, err));
    srv_version_release(&found->version);
    found->version = fresh;
    if (fresh.state != CAIRN_STATE_OPEN) return CAIRN_OK;
    /* Q53: a fully uploaded version waits, however long, for a store or release that can commit
     * it. */
    bool whole = false;
    CAIRN_TRY(srv_version_whole(tx, &fresh, &whole, err));
    if (whole) return CAIRN_OK;
    uint64_t open_max_ms = found->server->settings->open_max_ms;
    enum cairn_code code = CAIRN_TIMEOUT;
    CAIRN_TRY(srv_members_gone(tx, &fresh, found->reason, err));
    if (found->reason[0]) {
        code = CAIRN_SOURCE_GONE; /* Q56, for a run that was frozen at the report */
    } else if (tick >= fresh.opened_tick + open_max_ms) {
        char text[24];
        cairn_duration_text(open_max_ms, text);
        snprintf(found->reason, sizeof(found->reason), "it was open for more than %s", text);
    } else {
        SRV_GET(rows, rows, srv_version_needs_nodes(tx, &fresh, &rows, err));
        SQL_EACH(&rows, err) {
            const struct srv_node_mark node = srv_row_node_mark(&rows);
            uint64_t silence_ms = srv_node_silent_ms(found->server, &node, tick);
            char text[24];
            if (silence_ms < found->server->settings->silence_max_ms) continue;
            cairn_duration_text(silence_ms, text);
            snprintf(found->reason, sizeof(found->reason), "node %s was not heard for %s",
                     node.node, text);
            break;
        }
    }
    if (!found->reason[0]) return CAIRN_OK;
    struct srv_move move = {CAIRN_EVENT_GIVE_UP, code, found->reason};
    found->changed = true;
    return srv_version_move(tx, &found->version, &move, err);
}

static enum cairn_code expire_all(struct srv_sweep *found, struct cairn_error *err) {
    struct srv *server = found->server;
    srv_nodes_awake(server);
    CAIRN_TRY(find_round(found, SRV_ROUND_OPEN, err));
    enum cairn_code code = CAIRN_OK;
    for (size_t i = 0; i < found->ids.count && !code && !is_ending(found); i++) {
        found->version.id = found->ids.ids[i];
        code = srv_catalog_write(server->catalog, expire, found, err);
        if (code || !found->changed) continue;
        cairn_log(WARN, "save.expired", "version=%s step=%" PRIu64 " reason=\"%s\"",
                  found->ids.ids[i].text, found->version.step, found->reason);
        srv_waiters_wake_version(server->waiters, &found->version.id, &found->version.name);
    }
    srv_version_release(&found->version);
    return code;
}

/* ---- Q35: the generation ---- */

/* sweep.h#2: the first deletion of a round raises the generation by compare-and-set, so that a
 * catalog restored from an earlier copy is recognized; later deletions compare it. */
static enum cairn_code raise_once(struct srv_sweep *sweep, struct cairn_store_worker *worker,
                                  struct cairn_error *err) {
    if (sweep->raised) return srv_identity_compare(sweep->server, worker, err);
    CAIRN_TRY(srv_identity_raise(sweep->server, worker, err));
    sweep->raised = true;
    sweep->raised_ms = srv_mono_ms(sweep->server);
    return CAIRN_OK;
}

/* Raises the generation every ten minutes, which bounds the age of an unrecognized catalog copy. */
static enum cairn_code raise_now_and_then(struct srv_sweep *sweep,
                                          struct cairn_store_worker *worker,
                                          struct cairn_error *err) {
    uint64_t now_ms = srv_mono_ms(sweep->server);
    sweep->raised = false;
    if (!sweep->raised_ms) sweep->raised_ms = now_ms; /* startup has just raised it */
    return now_ms - sweep->raised_ms < RAISE_MS ? CAIRN_OK : raise_once(sweep, worker, err);
}

/* ---- the trash ---- */

SRV_CHANGE(to_deleting, struct srv_sweep *found) {
    SRV_GET(version, version, srv_version_get(tx, found->version.id.text, &version, err));
    uint64_t grace_ms = found->server->settings->trash_grace_ms;
    CAIRN_TRY(srv_tx_run_thawed(tx, version.run_id, err));
    if (version.state != CAIRN_STATE_COMMITTED || !version.trashed || version.pinned ||
        srv_tick(tx) < version.trashed_tick + grace_ms)
        return CAIRN_OK;
    bool aliased = false; /* a mark by another program may have trashed an aliased version */
    bool leased = false;  /* Q29: a trashed version may still be read by its id */
    CAIRN_TRY(srv_version_aliased(tx, version.id.text, &aliased, err));
    CAIRN_TRY(srv_version_leased(tx, version.id.text, &leased, err));
    if (aliased || leased) return CAIRN_OK;
    struct srv_move move = {.event = CAIRN_EVENT_DELETE};
    return srv_version_move(tx, &version, &move, err);
}

static enum cairn_code empty_trash(struct srv_sweep *found, struct cairn_store_worker *worker,
                                   struct cairn_error *err) {
    struct srv *server = found->server;
    CAIRN_TRY(find_round(found, SRV_ROUND_TRASHED, err));
    if (found->ids.count) CAIRN_TRY(raise_once(found, worker, err));
    for (size_t i = 0; i < found->ids.count && !is_ending(found); i++) {
        CAIRN_ASSERT(found->raised); /* Q35 */
        found->version = (struct srv_version){.id = found->ids.ids[i]};
        CAIRN_TRY(srv_catalog_write(server->catalog, to_deleting, found, err));
    }
    return CAIRN_OK;
}

/* ---- objects ---- */

static void keep_first(enum cairn_code code, const struct cairn_error *why,
                       struct cairn_error *first) {
    if (code && !first->code) *first = *why;
}

/* sweep.h#1. CAIRN_CATALOG_BEHIND: stop deleting. */
static enum cairn_code sweep_found(struct srv_sweep *found, struct cairn_store_worker *worker,
                                   struct cairn_error *first, struct cairn_error *err) {
    CAIRN_ASSERT(found->raised); /* Q35 */
    for (size_t i = 0; i < found->ids.count && !is_ending(found); i++) {
        const char *id = found->ids.ids[i].text;
        struct cairn_error why = {0};
        enum cairn_code code = srv_sweep_version(found->server, worker, id, &found->away, &why);
        if (code == CAIRN_CATALOG_BEHIND && found->server->frozen)
            return cairn_fail(err, code, "%s", why.message);
        found->passed += code != CAIRN_OK;
        if (code == CAIRN_CATALOG_BEHIND) continue; /* only that run is frozen */
        if (code == CAIRN_BUSY) continue;           /* another server sweeps it */
        if (code) (void)cairn_within(&why, code, "%s", id);
        keep_first(code, &why, first);
    }
    return CAIRN_OK;
}

/* Skips versions that fail (a store with a copy is unreachable, or no longer configured), so that
 * any number of them cannot starve the versions behind. */
static enum cairn_code sweep_kind(struct srv_sweep *found, struct cairn_store_worker *worker,
                                  enum srv_round round, struct cairn_error *first,
                                  struct cairn_error *err) {
    enum cairn_code code = CAIRN_OK;
    size_t looked = 0;
    found->passed = 0;
    do {
        code = find_round(found, round, err);
        if (!code && found->ids.count) code = raise_once(found, worker, err);
        if (!code && found->ids.count) code = sweep_found(found, worker, first, err);
        looked += found->ids.count;
    } while (!code && found->ids.count == ROUND_VERSIONS_MAX && !is_ending(found) &&
             looked - found->passed < ROUND_VERSIONS_MAX);
    found->passed = 0;
    return code;
}

/* Ends uploads found after the sweeps of their versions; a failure does not end the round. */
static void sweep_uploads(struct srv_sweep *found, struct cairn_store_worker *worker) {
    struct srv_uploads *uploads = found->server->uploads;
    struct cairn_error why = {0};
    enum cairn_code code = srv_uploads_look(uploads, worker, &found->ids, &why);
    if (!code && found->ids.count) code = raise_once(found, worker, &why);
    for (size_t i = 0; i < found->ids.count && !code && !is_ending(found); i++)
        code = srv_uploads_end(uploads, worker, found->ids.ids[i].text, &why);
    if (code) cairn_log(INFO, "sweep.uploads_kept", "cause=\"%s\"", why.message);
    if (srv_uploads_hurried(uploads)) srv_jobs_sweep(found->server);
}

/* Q31. The round's query for dead versions then finds the ones given up here. */
static void sweep_orphans(struct srv_sweep *found, struct cairn_store_worker *worker) {
    struct srv_orphans *orphans = found->server->orphans;
    struct cairn_error why = {0};
    size_t due = 0;
    enum cairn_code code = srv_orphans_look(orphans, worker, &due, &why);
    if (!code && due) code = raise_once(found, worker, &why);
    if (!code && due) code = srv_orphans_bury(orphans, &why);
    if (code) cairn_log(INFO, "sweep.orphans_kept", "cause=\"%s\"", why.message);
    if (srv_orphans_hurried(orphans)) srv_jobs_sweep(found->server);
}

static enum cairn_code count_not_freed(struct srv *server, struct cairn_error *err) {
    struct srv_not_freed_sum sum = {0};
    if (!server->metrics) return CAIRN_OK;
    SRV_LOOK(look, server->catalog, err);
    CAIRN_TRY(srv_not_freed_sum(look.tx, &sum, err));
    cairn_metrics_set(server->metrics, SRV_METRIC(not_freed_versions), (int64_t)sum.versions);
    cairn_metrics_set(server->metrics, SRV_METRIC(not_freed_bytes), (int64_t)sum.bytes);
    return CAIRN_OK;
}

/* Each part runs whether or not another fails; the round reports *first at its end. */
static enum cairn_code sweep_objects(struct srv_sweep *found, struct cairn_store_worker *worker,
                                     struct cairn_error *first, struct cairn_error *err) {
    struct srv *server = found->server;
    struct cairn_error why = {0};
    CAIRN_TRY(sweep_kind(found, worker, SRV_ROUND_DEAD, first, err));
    CAIRN_TRY(sweep_kind(found, worker, SRV_ROUND_AGAIN, first, err));
    CAIRN_TRY(sweep_kind(found, worker, SRV_ROUND_NOT_FREED, first, err));
    CAIRN_TRY(count_not_freed(server, err));
    enum cairn_code code = srv_sweep_layouts(server, worker, UNUSED_MS, &why);
    if (code == CAIRN_CATALOG_BEHIND) return cairn_fail(err, code, "%s", why.message);
    keep_first(code, &why, first);
    return CAIRN_OK;
}

/* ---- temporary files ---- */

/* Deletes temporary files that interrupted small puts left in a folder store outside of versions:
 * below .cairn/, and among the layouts and attempts of runs. A file is deleted if two listings an
 * hour apart saw it unpublished: a small put takes far less, and one clock decides. */
static void drop_keys(struct temporaries *seen) {
    for (size_t i = 0; i < seen->count; i++) free(seen->keys[i]);
    seen->count = 0;
}

static bool was_there(const struct temporaries *seen, const char *key) {
    for (size_t i = 0; i < seen->count; i++)
        if (!strcmp(seen->keys[i], key)) return true;
    return false;
}

static enum cairn_code take_temporary(struct both_temporaries *temporaries,
                                      struct cairn_store_worker *worker,
                                      const struct cairn_store_entry *entry,
                                      struct cairn_error *err) {
    if (was_there(&temporaries->before, entry->key)) {
        struct cairn_store_request abort_upload = {
            .op = CAIRN_STORE_UPLOAD_ABORT, .key = entry->key, .upload_id_in = entry->upload_id};
        cairn_log(INFO, "sweep.temporary", "key=%s", entry->key);
        return cairn_store_perform(worker, &abort_upload, err);
    }
    if (temporaries->now.count == TEMPORARIES_MAX) return CAIRN_OK;
    char *key = strdup(entry->key);
    if (!key) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for temporary files");
    temporaries->now.keys[temporaries->now.count++] = key;
    return CAIRN_OK;
}

static enum cairn_code look_below(struct both_temporaries *temporaries,
                                  struct cairn_store_worker *worker, const char *prefix,
                                  struct cairn_error *err) {
    CAIRN_AUTO(store_listing) listing = {0}; /* one page an hour suffices */
    struct cairn_store_request list = {
        .op = CAIRN_STORE_UPLOADS, .key = prefix, .listing = &listing};
    CAIRN_TRY(cairn_store_perform(worker, &list, err));
    for (size_t i = 0; i < listing.count; i++) {
        if (!cairn_text_starts(listing.entries[i].key, prefix))
            return cairn_fail(err, CAIRN_STORE, "%s was listed, which is not below %s",
                              listing.entries[i].key, prefix);
        CAIRN_TRY(take_temporary(temporaries, worker, &listing.entries[i], err));
    }
    return CAIRN_OK;
}

static enum cairn_code look_for_temporaries(struct both_temporaries *temporaries,
                                            struct cairn_store_worker *worker,
                                            const struct srv_run_names *names,
                                            struct cairn_error *err) {
    static const char *const folders[] = {"attempts", "layouts"};
    CAIRN_TRY(look_below(temporaries, worker, ".cairn/", err));
    for (size_t i = 0; i < names->count; i++) {
        for (size_t j = 0; j < CAIRN_COUNT(folders); j++) {
            char prefix[2 * CAIRN_NAME_BYTES_MAX + 16];
            snprintf(prefix, sizeof(prefix), "%s/%s/%s/", names->names[i].project,
                     names->names[i].run, folders[j]);
            CAIRN_TRY(look_below(temporaries, worker, prefix, err));
        }
    }
    return CAIRN_OK;
}

static enum cairn_code sweep_temporaries(struct both_temporaries *temporaries, struct srv *server,
                                         struct cairn_store_worker *worker,
                                         struct cairn_error *err) {
    SRV_AUTO(run_names) names = {0};
    SRV_AUTO(look) look = {0};
    if (!cairn_store_profile(server->store)->leaves_temporaries) return CAIRN_OK;
    enum cairn_code code = srv_look_begin(server->catalog, &look, err);
    if (!code) code = srv_runs_all(look.tx, &names, err);
    srv_look_release(&look);
    if (!code) code = look_for_temporaries(temporaries, worker, &names, err);
    drop_keys(&temporaries->before);
    temporaries->before = temporaries->now;
    temporaries->now = (struct temporaries){0};
    return code;
}

/* ---- old rows ---- */

SRV_CHANGE(forget_rows, struct srv_sweep *found) {
    uint64_t tick = srv_tick(tx);
    CAIRN_TRY(srv_read_leases_trim(tx, err));
    uint64_t kept_ms = UNUSED_MS + found->server->settings->gone_retention_ms;
    if (tick <= kept_ms) return CAIRN_OK;
    CAIRN_TRY(srv_versions_over(tx, tick - kept_ms, ROUND_VERSIONS_MAX, &found->ids, err));
    CAIRN_TRY(srv_versions_forget(tx, &found->ids, err));
    const char *server = srv_catalog_server(found->server->catalog);
    CAIRN_TRY(srv_servers_trim(tx, server, tick - kept_ms, err));
    return srv_nodes_trim(tx, tick - kept_ms, err);
}

static enum cairn_code forget_gone(struct srv_sweep *found, struct cairn_error *err) {
    found->ids.count = 0;
    CAIRN_TRY(srv_catalog_write(found->server->catalog, forget_rows, found, err));
    if (found->ids.count) cairn_log(INFO, "sweep.forgotten", "versions=%zu", found->ids.count);
    srv_nodes_forget(found->server, UNUSED_MS + found->server->settings->gone_retention_ms);
    return CAIRN_OK;
}

SRV_CHANGE(trim_rows, struct srv_sweep *found) {
    const struct srv_settings *settings = found->server->settings;
    uint64_t tick = srv_tick(tx), age_ms = settings->events_age_ms, dropped = 0;
    CAIRN_TRY(srv_tokens_end(tx, srv_wall_ms(found->server), err));
    return srv_events_trim(tx, settings->events_max, tick > age_ms ? tick - age_ms : 0, &dropped,
                           err);
}

/* A reader in another program (a SQL shell, a manual copy) keeps the WAL from being truncated. */
static void look_at_log(struct srv_sweep *found) {
    uint64_t bytes = srv_catalog_log_bytes(found->server->catalog);
    bool large = bytes > LOG_BYTES_MAX;
    if (large && !found->log_told) cairn_log(WARN, "catalog.log_large", "bytes=%" PRIu64, bytes);
    found->log_told = large;
}

SRV_CHANGE(drop_left, const struct srv *server) {
    uint64_t tick = srv_tick(tx), kept_ms = UNUSED_MS + server->settings->gone_retention_ms;
    CAIRN_TRY(srv_shards_drop_left(tx, err));
    return tick > kept_ms ? srv_over_forget(tx, tick - kept_ms, err) : CAIRN_OK;
}

static enum cairn_code note_usage(struct srv_tx *tx, void *argument, struct cairn_error *err) {
    return srv_usage_note(tx, srv_wall_ms(argument), err);
}

/* Records projects' usage for the page's chart; a failure only leaves a gap there. */
static void note_usage_now_and_then(struct srv_sweep *sweep) {
    struct cairn_error why = {0};
    uint64_t now_ms = srv_mono_ms(sweep->server);
    if (sweep->noted_ms && now_ms - sweep->noted_ms < NOTED_MS) return;
    sweep->noted_ms = now_ms;
    if (srv_catalog_write(sweep->server->catalog, note_usage, sweep->server, &why))
        cairn_log(INFO, "sweep.usage_not_noted", "cause=\"%s\"", why.message);
}

/* Deletes remains of store probes made with keys that may not delete, temporary files in a folder
 * store, and shard rows of committed versions. */
static void tidy_hourly(struct srv_sweep *sweep, struct cairn_store_worker *worker) {
    struct cairn_store *store = sweep->server->store;
    struct cairn_error why = {0};
    uint64_t now_ms = srv_mono_ms(sweep->server);
    if (sweep->tidied_ms && now_ms - sweep->tidied_ms < HOUR_MS) return;
    sweep->tidied_ms = now_ms;
    if (sweep_temporaries(&sweep->temporaries, sweep->server, worker, &why) != CAIRN_OK)
        cairn_log(INFO, "sweep.temporaries_left", "cause=\"%s\"", why.message);
    if (cairn_store_tidy(store, &why) != CAIRN_OK)
        cairn_log(INFO, "sweep.tests_left", "cause=\"%s\"", why.message);
    if (srv_catalog_write(sweep->server->catalog, drop_left, sweep->server, &why) != CAIRN_OK)
        cairn_log(INFO, "sweep.rows_left", "cause=\"%s\"", why.message);
}

static enum cairn_code raise_for_copies(void *owner, struct cairn_error *err) {
    struct srv_copies_round *round = owner;
    struct srv_sweep *sweep = round->server->sweep;
    return raise_once(sweep, round->worker, err);
}

/* Makes requested copies and deletes removed ones; a failure does not end the round. */
static void sweep_copies(struct srv_sweep *found, struct cairn_store_worker *worker) {
    struct srv_copies_round round = {.server = found->server, .worker = worker};
    struct cairn_error why = {0};
    round.raise = raise_for_copies;
    round.owner = &round;
    if (srv_copies_look(&round, &why) != CAIRN_OK)
        cairn_log(INFO, "sweep.copies_left", "cause=\"%s\"", why.message);
}

static enum cairn_code round_of(struct srv_sweep *found, struct cairn_store_worker *worker,
                                struct cairn_error *err) {
    struct srv *server = found->server;
    found->away = 0;
    CAIRN_TRY(srv_thawed(server, err));
    CAIRN_TRY(srv_catalog_write(server->catalog, advance, found, err));
    CAIRN_TRY(srv_catalog_write(server->catalog, trim_rows, found, err)); /* sweep.h#3 */
    look_at_log(found);
    srv_trim_left();
    CAIRN_TRY(srv_operations_look(server, err));
    bool busy = false;
    CAIRN_TRY(srv_compare_all(server, worker, &busy, err));
    if (busy) return cairn_fail(err, CAIRN_BUSY, "a run is being compared with the store");
    CAIRN_TRY(raise_now_and_then(found, worker, err));
    srv_reconcile_requested(server, worker);
    CAIRN_TRY(find_round(found, SRV_ROUND_LEFT_OVER, err));
    for (size_t i = 0; i < found->ids.count; i++) srv_jobs_commit(server, found->ids.ids[i].text);
    CAIRN_TRY(expire_all(found, err));
    CAIRN_TRY(empty_trash(found, worker, err));
    if (is_ending(found)) return CAIRN_OK; /* sweep_leave copies user metadata */
    tidy_hourly(found, worker);
    note_usage_now_and_then(found);
    struct cairn_error why = {0};
    if (srv_attempt_copies_write(server, worker, &why) != CAIRN_OK)
        cairn_log(INFO, "sweep.copy_left", "cause=\"%s\"", why.message);
    CAIRN_TRY(srv_said_copy_write(&found->said_copy, server, worker, err));
    if (is_ending(found)) return CAIRN_OK;
    sweep_orphans(found, worker);
    struct cairn_error first = {0};
    CAIRN_TRY(sweep_objects(found, worker, &first, err));
    sweep_uploads(found, worker);
    if (!is_ending(found)) sweep_copies(found, worker);
    CAIRN_TRY(forget_gone(found, err));
    if (err) *err = first;
    return first.code;
}

enum cairn_code srv_sweep_new(struct srv *server, struct srv_sweep **ret, struct cairn_error *err) {
    struct srv_sweep *sweep = calloc(1, sizeof(*sweep));
    if (!sweep) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the sweep");
    sweep->server = server;
    server->ticks = (struct srv_ticks){0};
    enum cairn_code code = srv_uploads_new(server, &server->uploads, err);
    if (!code) code = srv_orphans_new(server, &server->orphans, err);
    if (code)
        srv_sweep_free(sweep);
    else
        *ret = sweep;
    return code;
}

void srv_sweep_free(struct srv_sweep *sweep) {
    if (!sweep) return;
    srv_ids_release(&sweep->ids);
    drop_keys(&sweep->temporaries.before);
    drop_keys(&sweep->temporaries.now);
    srv_uploads_free(sweep->server->uploads);
    srv_orphans_free(sweep->server->orphans);
    sweep->server->uploads = NULL;
    sweep->server->orphans = NULL;
    free(sweep);
}

bool srv_sweep_run(struct srv_sweep *sweep, struct cairn_store_worker *worker) {
    struct cairn_error err = {0};
    srv_revoked_look(sweep->server, worker);
    enum cairn_code code = round_of(sweep, worker, &err);
    if (code && code != CAIRN_CATALOG_BEHIND)
        cairn_log(WARN, "sweep.delayed", "cause=\"%s\"", err.message);
    sweep->went_well = code == CAIRN_OK;
    return code == CAIRN_BUSY;
}

void srv_sweep_leave(struct srv_sweep *sweep, struct cairn_store_worker *worker) {
    struct cairn_error why = {0};
    if (!sweep->went_well || sweep->server->frozen) return;
    sweep->said_copy.looked_ms = 0; /* whatever the interval says */
    if (srv_said_copy_write(&sweep->said_copy, sweep->server, worker, &why) != CAIRN_OK)
        cairn_log(WARN, "catalog.copy_missed", "cause=\"%s\"", why.message);
}
