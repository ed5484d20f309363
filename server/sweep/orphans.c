/* SPDX-License-Identifier: Apache-2.0 */
/* Objects and uploads of versions that this catalog does not know: left by an isolated node, by a
 * process that resumed after days, or by a restore of an older catalog. One listing of the whole
 * store at a time, a few pages a round; then /v1/orphans, /v1/not-freed and /v1/gc.
 *  Q31  A version qualifies if by the store's clock nothing was written for 48 h and a listing at
 *     least an hour ago found the same. Its id first becomes a row in a given-up state, so that no
 *     begin can join it; then the sweep deletes its objects as for any such row (Q30).
 *  Q30  Objects that arrived after the last sweep of a GONE version are swept once more, by the
 *     same rule.
 *  1  A committed.json, or a run that the catalog does not know, keeps all objects: the version may
 *     be a checkpoint of a lost catalog. The list shows it with advice.
 *  2  No request lists the store: answers show the last finished listing; a request may start one.
 *  3  Marks alone are kept: the copy in the main store is removed without them (records.h#3), so
 *     the version may lie in a store that was not listed.
 * A listing starts every 6 hours, first an hour after startup; it takes 20 pages a round and keeps
 * 1,000 orphans; the next listing finds further ones once those are gone. */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/log.h"
#include "server/guard/jobs.h"
#include "server/ledger/events.h"
#include "server/metrics.h"
#include "server/sweep/sweep.h"
#include "server/versions/versions.h"

#define PAGES_A_ROUND 20
#define KEPT_MAX 1000
#define HOUR_MS UINT64_C(3600000)
#define LOOK_EVERY_MS (6 * HOUR_MS)
#define OLD_MS (48 * HOUR_MS)
#define FRESH_MS 2000

#define VERDICTS(X)                                                                                \
    X(DUE, "it is deleted now")                                                                    \
    X(SEEN_ONCE, "it was found for the first time: a look an hour later decides")                  \
    X(YOUNG, "it was written less than 48 hours ago, by the store's clock")                        \
    X(ONLY_MARKS, "nothing but marks: it may lie in a store of copies that was not read")          \
    X(HAS_RECORD, "it has a committed.json: cairn reconcile RUN takes it up if it is whole")       \
    X(RUN_UNKNOWN, "the catalog does not know its run: cairn reindex would take it up")
enum verdict {
#define X(name, text) VERDICT_##name,
    VERDICTS(X)
#undef X
};
static const char *const verdict_texts[] = {
#define X(name, text) text,
    VERDICTS(X)
#undef X
};

struct orphan {
    struct srv_met met;
    uint64_t objects, bytes, uploads;
    int64_t newest_ms; /* latest write, by the store's clock */
    bool record;
    bool more;        /* has objects other than marks */
    uint64_t seen_ms; /* mono clock: when it was first seen unchanged */
    enum verdict verdict;
};
struct orphans {
    struct orphan *items;
    size_t count;
};
struct look_status {
    bool looking;            /* a listing is running or about to start */
    uint64_t objects, bytes; /* seen by the running listing, or the last one */
    uint64_t versions;
    uint64_t orphan_bytes;
    int64_t looked_ms; /* wall clock: end of the last listing; 0: none yet */
    char trouble[200]; /* why the last listing failed; "": it did not */
};
enum phase { PHASE_IDLE, PHASE_OBJECTS, PHASE_UPLOADS };
struct srv_orphans {
    struct srv *server;
    enum phase phase;
    uint64_t begun_ms; /* mono clock: start of the last listing; at first, of the server */
    bool hurried;      /* a request waits for the listing */
    struct cairn_store_pages pages;
    struct orphans before, now;
    struct cairn_version_id last; /* a version's keys are adjacent in a listing */
    struct orphan *current;       /* the orphan of `last`; NULL: no orphan */
    int64_t store_ms;             /* latest time that the store gave an object of ours (T01) */
    uint64_t objects, bytes;
    struct cairn_lock lock;
    struct {
        bool asked;
        uint64_t ended_ms; /* mono clock: end of the last listing; 0: none */
        json_t *items;     /* of the last finished listing */
        struct look_status status;
    } locked;
};

enum cairn_code srv_orphans_new(struct srv *server, struct srv_orphans **ret,
                                struct cairn_error *err) {
    struct srv_orphans *orphans = calloc(1, sizeof(*orphans));
    if (!orphans) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a look at orphans");
    orphans->server = server;
    orphans->begun_ms = srv_mono_ms(server) + HOUR_MS - LOOK_EVERY_MS;
    cairn_lock_init(&orphans->lock, CAIRN_LOCK_server_orphans);
    *ret = orphans;
    return CAIRN_OK;
}

void srv_orphans_free(struct srv_orphans *orphans) {
    if (!orphans) return;
    cairn_store_pages_release(&orphans->pages);
    free(orphans->before.items);
    free(orphans->now.items);
    json_decref(orphans->locked.items);
    cairn_lock_release(&orphans->lock);
    free(orphans);
}

static struct orphan *find_orphan(const struct orphans *orphans, const char *id) {
    for (size_t i = 0; i < orphans->count; i++)
        if (!strcmp(orphans->items[i].met.id.text, id)) return &orphans->items[i];
    return NULL;
}

/* The version may be found already: objects are listed first, then uploads. */
static enum cairn_code turn_to(struct srv_orphans *orphans, const struct srv_met *place,
                               struct cairn_error *err) {
    struct srv_met met = *place;
    orphans->last = met.id;
    orphans->current = find_orphan(&orphans->now, met.id.text);
    if (orphans->current || orphans->now.count == KEPT_MAX) return CAIRN_OK;
    SRV_LOOK(look, orphans->server->catalog, err);
    CAIRN_TRY(srv_met_look(look.tx, &met, err));
    if (met.known && !met.gone) return CAIRN_OK;
    orphans->current = &orphans->now.items[orphans->now.count++];
    *orphans->current = (struct orphan){.met = met};
    return CAIRN_OK;
}

static enum cairn_code take_entry(struct srv_orphans *orphans,
                                  const struct cairn_store_entry *entry, struct cairn_error *err) {
    struct cairn_key_parts parts;
    struct srv_met met = {0};
    const char *rest = NULL;
    bool upload = orphans->phase == PHASE_UPLOADS;
    if (!upload) orphans->objects++, orphans->bytes += entry->size_bytes;
    if (cairn_text_starts(entry->key, ".cairn/") && entry->modified_ms > orphans->store_ms)
        orphans->store_ms = entry->modified_ms;
    if (!cairn_key_run(entry->key, &met.name, &rest)) return CAIRN_OK;
    cairn_key_read(rest, &parts);
    if (parts.kind < CAIRN_KEY_COMMITTED) return CAIRN_OK; /* not the key of a version */
    met.id = parts.id;
    met.step = parts.step;
    if (strcmp(orphans->last.text, met.id.text) != 0) CAIRN_TRY(turn_to(orphans, &met, err));
    struct orphan *orphan = orphans->current;
    if (!orphan) return CAIRN_OK;
    orphan->objects += !upload;
    orphan->uploads += upload;
    orphan->bytes += entry->size_bytes;
    orphan->record |= !upload && parts.kind == CAIRN_KEY_COMMITTED;
    orphan->more |= upload || !cairn_key_is_mark(entry->key);
    if (entry->modified_ms > orphan->newest_ms) orphan->newest_ms = entry->modified_ms;
    return CAIRN_OK;
}

/* ---- one listing ---- */

static void begin_phase(struct srv_orphans *orphans, enum phase phase) {
    cairn_store_pages_release(&orphans->pages);
    orphans->pages = (struct cairn_store_pages){
        .list = {.op = phase == PHASE_UPLOADS ? CAIRN_STORE_UPLOADS : CAIRN_STORE_LIST, .key = ""}};
    orphans->phase = phase;
}

static enum cairn_code begin_look(struct srv_orphans *orphans, struct cairn_error *err) {
    struct orphans *const both[] = {&orphans->before, &orphans->now};
    for (size_t i = 0; i < CAIRN_COUNT(both); i++) {
        if (!both[i]->items) both[i]->items = calloc(KEPT_MAX, sizeof(*both[i]->items));
        if (!both[i]->items) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for orphans");
    }
    orphans->now.count = 0;
    orphans->objects = orphans->bytes = 0;
    orphans->store_ms = 0;
    orphans->begun_ms = srv_mono_ms(orphans->server);
    begin_phase(orphans, PHASE_OBJECTS);
    return CAIRN_OK;
}

/* DUE needs an unchanged finding of an hour ago: after a jump of the store's clock, objects that
 * are still being written look old. */
static enum verdict judge_orphan(const struct srv_orphans *orphans, struct orphan *orphan) {
    const struct orphan *before = find_orphan(&orphans->before, orphan->met.id.text);
    uint64_t now_ms = srv_mono_ms(orphans->server);
    bool same = before && before->newest_ms == orphan->newest_ms &&
                before->objects == orphan->objects && before->uploads == orphan->uploads;
    orphan->seen_ms = same ? before->seen_ms : now_ms;
    if (!orphan->met.run) return VERDICT_RUN_UNKNOWN;
    if (orphan->record && !orphan->met.gone) return VERDICT_HAS_RECORD;
    if (!orphan->more && !orphan->met.gone) return VERDICT_ONLY_MARKS;
    if (!orphan->newest_ms || orphans->store_ms - orphan->newest_ms < (int64_t)OLD_MS)
        return VERDICT_YOUNG;
    return now_ms - orphan->seen_ms < HOUR_MS ? VERDICT_SEEN_ONCE : VERDICT_DUE;
}

static json_t *row_of(const struct orphan *orphan) {
    char written[32];
    cairn_time_text(orphan->newest_ms, true, written);
    return CAIRN_PACK(orphan_row, .project = orphan->met.name.project, .run = orphan->met.name.run,
                      .version = orphan->met.id.text, .step = orphan->met.step,
                      .state = orphan->met.gone ? "gone" : "unknown", .objects = orphan->objects,
                      .uploads = orphan->uploads, .bytes = orphan->bytes,
                      .written_at = orphan->newest_ms ? written : NULL,
                      .due = orphan->verdict == VERDICT_DUE, .why = verdict_texts[orphan->verdict]);
}

static void publish(struct srv_orphans *orphans, json_t *take_items, uint64_t orphan_bytes) {
    struct srv *server = orphans->server;
    CAIRN_HOLD(&orphans->lock);
    json_decref(orphans->locked.items);
    orphans->locked.items = take_items;
    orphans->locked.ended_ms = srv_mono_ms(server);
    orphans->locked.status = (struct look_status){.objects = orphans->objects,
                                                  .bytes = orphans->bytes,
                                                  .versions = orphans->before.count,
                                                  .orphan_bytes = orphan_bytes,
                                                  .looked_ms = srv_wall_ms(server)};
    if (server->metrics)
        cairn_metrics_set(server->metrics, SRV_METRIC(orphan_object_bytes), (int64_t)orphan_bytes);
}

static enum cairn_code end_look(struct srv_orphans *orphans, size_t *ret_due,
                                struct cairn_error *err) {
    uint64_t bytes = 0;
    CAIRN_AUTO_JSON json_t *items = json_array();
    for (size_t i = 0; i < orphans->now.count; i++) {
        struct orphan *orphan = &orphans->now.items[i];
        orphan->verdict = judge_orphan(orphans, orphan);
        *ret_due += orphan->verdict == VERDICT_DUE;
        bytes += orphan->bytes;
        CAIRN_TRY(cairn_json_append(items, row_of(orphan), "the list of orphans", err));
    }
    struct orphans spare = orphans->before;
    orphans->before = orphans->now;
    orphans->now = spare;
    publish(orphans, CAIRN_TAKE(items), bytes);
    if (orphans->before.count)
        cairn_log(INFO, "sweep.orphans", "versions=%zu bytes=%" PRIu64 " due=%zu",
                  orphans->before.count, bytes, *ret_due);
    return CAIRN_OK;
}

static bool is_due(struct srv_orphans *orphans) {
    CAIRN_HOLD(&orphans->lock);
    bool asked = orphans->locked.asked;
    orphans->locked.asked = false;
    orphans->hurried = asked;
    orphans->locked.status.looking =
        asked || srv_mono_ms(orphans->server) - orphans->begun_ms >= LOOK_EVERY_MS;
    return orphans->locked.status.looking;
}

static enum cairn_code read_pages(struct srv_orphans *orphans, struct cairn_store_worker *worker,
                                  size_t *ret_due, struct cairn_error *err) {
    bool lists_uploads = cairn_store_profile(orphans->server->store)->lists_uploads;
    if (orphans->phase == PHASE_IDLE) CAIRN_TRY(begin_look(orphans, err));
    for (int i = 0; i < PAGES_A_ROUND && orphans->phase != PHASE_IDLE; i++) {
        const struct cairn_store_listing *listing = &orphans->pages.listing;
        CAIRN_TRY(cairn_store_pages_next(&orphans->pages, worker, err));
        for (size_t j = 0; j < listing->count; j++)
            CAIRN_TRY(take_entry(orphans, &listing->entries[j], err));
        if (!orphans->pages.ended) continue;
        orphans->last.text[0] = '\0';
        bool more = orphans->phase == PHASE_OBJECTS && lists_uploads;
        begin_phase(orphans, more ? PHASE_UPLOADS : PHASE_IDLE);
    }
    if (orphans->phase == PHASE_IDLE) return end_look(orphans, ret_due, err);
    orphans->last.text[0] = '\0'; /* its row may have changed since the last round */
    CAIRN_HOLD(&orphans->lock);
    orphans->locked.status.objects = orphans->objects;
    orphans->locked.status.bytes = orphans->bytes;
    return CAIRN_OK;
}

enum cairn_code srv_orphans_look(struct srv_orphans *orphans, struct cairn_store_worker *worker,
                                 size_t *ret_due, struct cairn_error *err) {
    struct cairn_error why = {0};
    *ret_due = 0;
    if (orphans->phase == PHASE_IDLE && !is_due(orphans)) return CAIRN_OK;
    enum cairn_code code = read_pages(orphans, worker, ret_due, &why);
    {
        CAIRN_HOLD(&orphans->lock);
        orphans->locked.status.looking = !code && orphans->phase != PHASE_IDLE;
        if (code) {
            orphans->locked.ended_ms = srv_mono_ms(orphans->server);
            snprintf(orphans->locked.status.trouble, sizeof(orphans->locked.status.trouble),
                     "%.199s", why.message);
        }
    }
    if (!code) return CAIRN_OK;
    begin_phase(orphans, PHASE_IDLE);
    orphans->begun_ms = srv_mono_ms(orphans->server);
    return cairn_fail(err, code, "%s", why.message);
}

bool srv_orphans_hurried(const struct srv_orphans *orphans) {
    return orphans->hurried && orphans->phase != PHASE_IDLE;
}

/* ---- Q31: the row first ---- */

struct burial {
    struct orphan *orphan;
    char reason[SRV_REASON_BYTES];
    int64_t wall_ms;
    bool done;
};

SRV_CHANGE(bury, struct burial *burial) {
    return srv_met_bury(tx, &burial->orphan->met, burial->reason, burial->wall_ms, &burial->done,
                        err);
}

static enum cairn_code bury_one(struct srv_orphans *orphans, struct orphan *orphan,
                                struct cairn_error *err) {
    struct burial burial = {.orphan = orphan, .wall_ms = srv_wall_ms(orphans->server)};
    char written[32];
    cairn_time_text(orphan->newest_ms, true, written);
    snprintf(burial.reason, sizeof(burial.reason),
             "it was never begun here; %" PRIu64 " objects and %" PRIu64
             " uploads lay in the store, the last of %s",
             orphan->objects, orphan->uploads, written);
    CAIRN_TRY(srv_catalog_write(orphans->server->catalog, bury, &burial, err));
    orphan->verdict = VERDICT_SEEN_ONCE; /* found anew if it is still in the store */
    if (burial.done)
        cairn_log(WARN, "sweep.orphan", "version=%s run=%s/%s step=%" PRIu64 " reason=\"%s\"",
                  orphan->met.id.text, orphan->met.name.project, orphan->met.name.run,
                  orphan->met.step, burial.reason);
    return CAIRN_OK;
}

enum cairn_code srv_orphans_bury(struct srv_orphans *orphans, struct cairn_error *err) {
    for (size_t i = 0; i < orphans->before.count; i++) {
        struct cairn_error why = {0};
        struct orphan *orphan = &orphans->before.items[i];
        if (orphan->verdict != VERDICT_DUE) continue;
        enum cairn_code code = bury_one(orphans, orphan, &why);
        if (code == CAIRN_CATALOG_BEHIND) continue;
        if (code) return cairn_fail(err, code, "%s", why.message);
    }
    return CAIRN_OK;
}

bool srv_orphans_met(struct srv_orphans *orphans, const char *version, struct srv_met *ret) {
    CAIRN_HOLD(&orphans->lock);
    CAIRN_JSON_EACH(item, orphans->locked.items) {
        struct cairn_msg_orphan_row row = {0};
        if (cairn_msg_orphan_row_read(item, "", &row, NULL) || strcmp(row.version, version) != 0)
            continue;
        (void)cairn_text_copy(ret->id.text, sizeof(ret->id.text), row.version);
        (void)cairn_text_copy(ret->name.project, sizeof(ret->name.project), row.project);
        (void)cairn_text_copy(ret->name.run, sizeof(ret->name.run), row.run);
        ret->step = row.step;
        return true;
    }
    return false;
}

/* ---- /v1/orphans ---- */

static enum cairn_code orphans_of(struct srv *server, struct srv_orphans **ret,
                                  struct cairn_error *err) {
    CAIRN_TRY(srv_thawed(server, err));
    *ret = server->orphans;
    if (*ret) return CAIRN_OK;
    return cairn_fail(err, CAIRN_UNAVAILABLE, "the server is starting");
}

SRV_HANDLER(orphan_list) {
    struct srv_orphans *orphans = NULL;
    CAIRN_TRY(orphans_of(request->server, &orphans, err));
    return srv_reply_found(request, &orphans->lock, &orphans->locked.items, reply, err);
}

/* ---- /v1/not-freed ---- */

SRV_HANDLER(not_freed_list) {
    CAIRN_TRY(srv_thawed(request->server, err));
    SRV_GET(list, list, srv_list_open(request, &list, err));
    SRV_LOOK(look, request->server->catalog, err);
    SRV_GET(rows, rows, srv_not_freed_open(look.tx, list.after, list.limit + 1, &rows, err));
    SQL_EACH(&rows, err) {
        const struct srv_not_freed_row row = srv_not_freed_row(&rows);
        if (!srv_list_takes(&list, row.version.text)) break;
        CAIRN_AUTO_JSON json_t *kept = srv_not_freed_json(&row.not_freed);
        json_t *item = json_pack("{s:s, s:s, s:s, s:I, s:s}", "project", row.name.project, "run",
                                 row.name.run, "version", row.version.text, "step",
                                 (json_int_t)row.step, "state", cairn_state_text(row.state));
        if (json_object_update(item, kept) || json_array_append_new(list.items, item))
            return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the list of what is not freed");
    }
    return srv_list_reply(&list, reply, err);
}

/* ---- /v1/gc ---- */

static enum cairn_code reply_gc(struct srv_request *request, struct srv_orphans *orphans,
                                struct srv_reply *reply, struct cairn_error *err) {
    struct srv_kind_count kinds[SRV_KINDS];
    const struct srv_kind_count *trash = &kinds[SRV_KINDS - 1];
    struct srv_not_freed_sum not_freed;
    struct look_status status;
    char looked[32];
    SRV_LOOK(look, request->server->catalog, err);
    CAIRN_TRY(srv_not_freed_sum(look.tx, &not_freed, err));
    CAIRN_TRY(srv_kinds_count(look.tx, kinds, err));
    srv_look_release(&look);
    {
        CAIRN_HOLD(&orphans->lock);
        status = orphans->locked.status;
        status.looking |= orphans->locked.asked;
    }
    cairn_time_text(status.looked_ms, true, looked);
    uint64_t ended = kinds[CAIRN_STATE_ABORTING].versions + kinds[CAIRN_STATE_DELETING].versions;
    return srv_reply_json(
        reply, 200,
        CAIRN_PACK(gc, .looking = status.looking, .objects = status.objects, .bytes = status.bytes,
                   .looked_at = status.looked_ms ? looked : NULL,
                   .trouble = status.trouble[0] ? status.trouble : NULL, .orphans = status.versions,
                   .orphan_bytes = status.orphan_bytes, .ended = ended, .trash = trash->versions,
                   .trash_bytes = trash->bytes, .not_freed = not_freed.versions,
                   .not_freed_bytes = not_freed.bytes),
        err);
}

SRV_HANDLER(gc_get) {
    struct srv_orphans *orphans = NULL;
    CAIRN_TRY(orphans_of(request->server, &orphans, err));
    return reply_gc(request, orphans, reply, err);
}

/* Asks for a listing, unless one runs or ended within two seconds. True: this call started it. */
static bool ask_for_look(struct srv_orphans *orphans) {
    CAIRN_HOLD(&orphans->lock);
    uint64_t ended_ms = orphans->locked.ended_ms;
    bool fresh = ended_ms && srv_mono_ms(orphans->server) - ended_ms < FRESH_MS;
    bool begins = !orphans->locked.status.looking && !orphans->locked.asked && !fresh;
    if (begins) orphans->locked.asked = true;
    return begins;
}

/* Makes the sweep also retry versions that the store has not freed. */
static enum cairn_code say_asked(struct srv_tx *tx, void *argument, struct cairn_error *err) {
    const struct cairn_run_name all = {0};
    (void)argument;
    CAIRN_TRY(srv_not_freed_hurry(tx, err));
    return srv_event_of_name(tx, SRV_EVENT_GC_ASKED, &all, NULL, err);
}

/* Repeatable, to poll: a listing that has just ended is not started again. */
SRV_HANDLER(gc) {
    struct srv_orphans *orphans = NULL;
    CAIRN_TRY(orphans_of(request->server, &orphans, err));
    if (ask_for_look(orphans))
        CAIRN_TRY(srv_catalog_write(request->server->catalog, say_asked, NULL, err));
    srv_jobs_sweep(request->server);
    return reply_gc(request, orphans, reply, err);
}
