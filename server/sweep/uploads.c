/* SPDX-License-Identifier: Apache-2.0 */
/* Finds, run by run, multipart uploads that no save will end, and ends them; /v1/uploads. A store
 * bills the parts of an open upload, and no listing of objects shows them.
 *  1  An upload below a version that is open, or without a record yet, is neither shown nor ended.
 *  2  Uploads below committed or gone versions are ended if two hourly listings found them;
 *     listings that a request asked for end none. Such a version gets no new upload (P8, P8b).
 *     Uploads of versions that this catalog does not know are shown here and judged by orphans.c.
 *  3  No request lists the store: answers show the last finished listing.
 *  4  An unreadable answer about one upload or one run hides no other.
 * 64 runs a round, a listing an hour, 10 pages a run; the first 1,000 orphans are shown. */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "api/wire/messages.h"
#include "common/log.h"
#include "server/copies/copies.h"
#include "server/guard/identity.h"
#include "server/metrics.h"
#include "server/sweep/sweep.h"
#include "server/sweep/sweep_objects.h"

#define RUNS_A_ROUND 64
#define PAGES_MAX 10
#define SHOWN_MAX 1000
#define PARTS_MAX 10000
#define HOUR_MS UINT64_C(3600000)
#define FRESH_MS 2000

enum owner {
    OWNER_SAVE,    /* open: its uploader may still end it */
    OWNER_SWEEP,   /* aborting or deleting: the sweep ends the upload, too */
    OWNER_NOBODY,  /* committed or gone */
    OWNER_UNKNOWN, /* no row in this catalog */
};
struct found {
    struct cairn_version_id id;
    enum owner owner;
    const char *state;
};
struct srv_uploads {
    struct srv *server;
    bool looking, by_hand;
    uint64_t begun_ms; /* start of the last hourly one; mono clock; 0: never */
    struct srv_run_names runs;
    size_t next;
    json_t *items;
    uint64_t bytes;
    struct srv_ids before, now; /* of OWNER_NOBODY, by the last listing and this one */
    struct found last;          /* a version's uploads are adjacent in a listing */
    struct cairn_store_part *parts;
    struct cairn_lock lock;
    struct {
        json_t *items;
        uint64_t ended_ms;
        bool asked, looking; /* looking: a requested listing runs */
    } locked;
};

enum cairn_code srv_uploads_new(struct srv *server, struct srv_uploads **ret,
                                struct cairn_error *err) {
    struct srv_uploads *uploads = calloc(1, sizeof(*uploads));
    if (!uploads) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a look at uploads");
    uploads->server = server;
    cairn_lock_init(&uploads->lock, CAIRN_LOCK_server_uploads);
    *ret = uploads;
    return CAIRN_OK;
}

void srv_uploads_free(struct srv_uploads *uploads) {
    if (!uploads) return;
    srv_run_names_release(&uploads->runs);
    srv_ids_release(&uploads->before);
    srv_ids_release(&uploads->now);
    json_decref(uploads->items);
    json_decref(uploads->locked.items);
    free(uploads->parts);
    cairn_lock_release(&uploads->lock);
    free(uploads);
}

/* ---- which version it belongs to ---- */

static enum cairn_code judge_owner(struct srv_tx *tx, struct found *found,
                                   struct cairn_error *err) {
    SRV_AUTO(version) version = {0};
    struct cairn_error none = {0};
    enum cairn_code code = srv_version_get(tx, found->id.text, &version, &none);
    found->owner = OWNER_UNKNOWN;
    found->state = "unknown";
    if (code == CAIRN_NOT_FOUND) return CAIRN_OK;
    if (code) return cairn_fail(err, code, "%s", none.message);
    found->state = cairn_state_text(version.state);
    switch (version.state) {
    case CAIRN_STATE_OPEN:
        found->owner = OWNER_SAVE;
        break;
    case CAIRN_STATE_COMMITTED:
        found->owner = version.recorded ? OWNER_NOBODY : OWNER_SAVE;
        break;
    case CAIRN_STATE_DELETING:
    case CAIRN_STATE_ABORTING:
        found->owner = OWNER_SWEEP;
        break;
    case CAIRN_STATE_GONE:
        found->owner = OWNER_NOBODY;
        break;
    }
    return CAIRN_OK;
}

static enum cairn_code owner_of(struct srv_uploads *uploads, const struct cairn_version_id *id,
                                struct cairn_error *err) {
    if (!strcmp(uploads->last.id.text, id->text)) return CAIRN_OK;
    struct found found = {.id = *id};
    SRV_LOOK(look, uploads->server->catalog, err);
    CAIRN_TRY(judge_owner(look.tx, &found, err));
    uploads->last = found;
    if (found.owner != OWNER_NOBODY || uploads->now.count == SHOWN_MAX) return CAIRN_OK;
    return srv_ids_add(&uploads->now, id, err);
}

/* Sums the listed parts, all that an object store tells of an upload; 0 if it has ended. */
static enum cairn_code measure(struct srv_uploads *uploads, struct cairn_store_worker *worker,
                               const struct cairn_store_entry *entry, uint64_t *ret,
                               struct cairn_error *err) {
    *ret = entry->size_bytes;
    if (cairn_store_profile(uploads->server->store)->leaves_temporaries) return CAIRN_OK;
    if (!uploads->parts) uploads->parts = calloc(PARTS_MAX, sizeof(*uploads->parts));
    if (!uploads->parts) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for parts");
    struct cairn_store_request list = {.op = CAIRN_STORE_UPLOAD_PARTS,
                                       .key = entry->key,
                                       .upload_id_in = entry->upload_id,
                                       .parts = uploads->parts,
                                       .part_count = PARTS_MAX};
    struct cairn_error why = {0};
    enum cairn_code code = cairn_store_perform(worker, &list, &why);
    *ret = 0;
    if (code == CAIRN_NOT_FOUND) return CAIRN_OK;
    if (code) { /* 4 */
        cairn_log(INFO, "sweep.upload_unread", "key=%s cause=\"%s\"", entry->key, why.message);
        *ret = CAIRN_MESSAGE_NONE;
        return CAIRN_OK;
    }
    for (size_t i = 0; i < list.part_count; i++) *ret += uploads->parts[i].size_bytes;
    return CAIRN_OK;
}

static enum cairn_code take_entry(struct srv_uploads *uploads, struct cairn_store_worker *worker,
                                  const struct cairn_run_name *name,
                                  const struct cairn_store_entry *entry, struct cairn_error *err) {
    struct cairn_key_parts parts;
    char begun[32];
    uint64_t bytes = 0;
    cairn_key_read(entry->key + strlen(name->project) + strlen(name->run) + 2, &parts);
    if (parts.kind == CAIRN_KEY_OTHER || parts.kind == CAIRN_KEY_ATTEMPT ||
        parts.kind == CAIRN_KEY_ATTEMPT_COPY)
        return CAIRN_OK; /* not below a version: Cairn makes no multipart upload there */
    CAIRN_TRY(owner_of(uploads, &parts.id, err));
    if (uploads->last.owner == OWNER_SAVE || json_array_size(uploads->items) == SHOWN_MAX)
        return CAIRN_OK;
    CAIRN_TRY(measure(uploads, worker, entry, &bytes, err));
    cairn_time_text(entry->modified_ms, true, begun);
    if (bytes != CAIRN_MESSAGE_NONE) uploads->bytes += bytes;
    return cairn_json_append(uploads->items,
                             CAIRN_PACK(upload_row, .project = name->project, .run = name->run,
                                        .version = parts.id.text, .state = uploads->last.state,
                                        .key = entry->key, .bytes = bytes,
                                        .begun_at = entry->modified_ms ? begun : NULL),
                             "the list of uploads", err);
}

/* ---- one run ---- */

static void look_at_run(struct srv_uploads *uploads, struct cairn_store_worker *worker,
                        const struct cairn_run_name *name) {
    char prefix[2 * CAIRN_NAME_BYTES_MAX + 3];
    snprintf(prefix, sizeof(prefix), "%s/%s/", name->project, name->run);
    CAIRN_AUTO(store_pages) pages = {.list = {.op = CAIRN_STORE_UPLOADS, .key = prefix}};
    struct cairn_error why = {0};
    enum cairn_code code = CAIRN_OK;
    while (!code && !pages.ended && pages.count < PAGES_MAX) {
        code = cairn_store_pages_next(&pages, worker, &why);
        for (size_t i = 0; !code && i < pages.listing.count; i++) {
            const struct cairn_store_entry *entry = &pages.listing.entries[i];
            if (cairn_text_starts(entry->key, prefix))
                code = take_entry(uploads, worker, name, entry, &why);
            else
                cairn_log(INFO, "sweep.upload_strange", "key=%s cause=\"it is not below %s\"",
                          entry->key, prefix);
        }
    }
    if (code)
        cairn_log(INFO, "sweep.uploads_unread", "run=%s/%s cause=\"%s\"", name->project, name->run,
                  why.message);
}

/* ---- one listing ---- */

static enum cairn_code begin_look(struct srv_uploads *uploads, struct cairn_error *err) {
    json_t *items = json_array();
    if (!items) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the list of uploads");
    json_decref(uploads->items);
    uploads->items = items;
    uploads->bytes = uploads->next = 0;
    uploads->runs.count = 0;
    uploads->now.count = 0;
    SRV_LOOK(look, uploads->server->catalog, err);
    CAIRN_TRY(srv_runs_all(look.tx, &uploads->runs, err));
    uploads->looking = true;
    if (!uploads->by_hand) uploads->begun_ms = srv_mono_ms(uploads->server);
    return CAIRN_OK;
}

/* True if a listing is due; an hourly one also counts as the requested one. */
static bool is_due(struct srv_uploads *uploads) {
    uint64_t now_ms = srv_mono_ms(uploads->server);
    bool hourly = !uploads->begun_ms || now_ms - uploads->begun_ms >= HOUR_MS;
    CAIRN_HOLD(&uploads->lock);
    bool asked = uploads->locked.asked;
    uploads->locked.asked = false;
    uploads->locked.looking = asked;
    uploads->by_hand = asked && !hourly;
    return asked || hourly;
}

static bool was_there(const struct srv_ids *ids, const char *id) {
    for (size_t i = 0; i < ids->count; i++)
        if (!strcmp(ids->ids[i].text, id)) return true;
    return false;
}

/* Ends the listing; *ret_due gets the versions that the previous one found, too (2). */
static enum cairn_code end_look(struct srv_uploads *uploads, struct srv_ids *ret_due,
                                struct cairn_error *err) {
    struct srv *server = uploads->server;
    enum cairn_code code = CAIRN_OK;
    for (size_t i = 0; i < uploads->now.count && !code && !uploads->by_hand; i++)
        if (was_there(&uploads->before, uploads->now.ids[i].text))
            code = srv_ids_add(ret_due, &uploads->now.ids[i], err);
    struct srv_ids spare = uploads->before;
    if (!uploads->by_hand) {
        uploads->before = uploads->now;
        uploads->now = spare;
    }
    uploads->looking = false;
    uploads->last = (struct found){0};
    {
        CAIRN_HOLD(&uploads->lock);
        json_decref(uploads->locked.items);
        uploads->locked.items = CAIRN_TAKE(uploads->items);
        uploads->locked.ended_ms = srv_mono_ms(server);
        uploads->locked.looking = false;
    }
    if (server->metrics)
        cairn_metrics_set(server->metrics, SRV_METRIC(orphan_upload_bytes),
                          (int64_t)uploads->bytes);
    return code;
}

enum cairn_code srv_uploads_look(struct srv_uploads *uploads, struct cairn_store_worker *worker,
                                 struct srv_ids *ret_due, struct cairn_error *err) {
    ret_due->count = 0;
    if (!cairn_store_profile(uploads->server->store)->lists_uploads) return CAIRN_OK;
    if (!uploads->looking) {
        if (!is_due(uploads)) return CAIRN_OK;
        CAIRN_TRY(begin_look(uploads, err));
    }
    uploads->last = (struct found){0}; /* its row may have changed since the last round */
    for (size_t i = 0; i < RUNS_A_ROUND && uploads->next < uploads->runs.count; i++)
        look_at_run(uploads, worker, &uploads->runs.names[uploads->next++]);
    if (uploads->next < uploads->runs.count) return CAIRN_OK;
    return end_look(uploads, ret_due, err);
}

/* ---- ending a version's uploads ---- */

static enum cairn_code look_again(struct srv *server, struct found *found, struct srv_version *ret,
                                  struct cairn_error *err) {
    SRV_LOOK(look, server->catalog, err);
    CAIRN_TRY(judge_owner(look.tx, found, err));
    if (found->owner != OWNER_NOBODY) return CAIRN_OK;
    CAIRN_TRY(srv_version_get(look.tx, found->id.text, ret, err));
    return srv_tx_run_thawed(look.tx, ret->run_id, err);
}

/* A promotion to main, or a repair, holds the version and ends its own uploads. */
enum cairn_code srv_uploads_end(struct srv_uploads *uploads, struct cairn_store_worker *worker,
                                const char *version, struct cairn_error *err) {
    struct srv *server = uploads->server;
    struct found found = {0};
    SRV_AUTO(version) row = {0};
    snprintf(found.id.text, sizeof(found.id.text), "%s", version);
    struct srv_copy_hold hold = {0};
    if (server->tiers) {
        enum cairn_code held = srv_copy_hold_take(&hold, server, version, err);
        if (held) return held == CAIRN_BUSY ? CAIRN_OK : held;
    }
    enum cairn_code code = look_again(server, &found, &row, err);
    if (!code && found.owner == OWNER_NOBODY) {
        cairn_log(INFO, "sweep.uploads_ended", "version=%s state=%s", version, found.state);
        srv_sweep_uploads(worker, &row);
    }
    srv_copy_hold_end(&hold);
    return code;
}

bool srv_uploads_hurried(struct srv_uploads *uploads) {
    CAIRN_HOLD(&uploads->lock);
    return uploads->locked.looking;
}

/* ---- /v1/uploads ---- */

static enum cairn_code must_list(struct srv *server, struct cairn_error *err) {
    CAIRN_TRY(srv_thawed(server, err));
    if (server->uploads && cairn_store_profile(server->store)->lists_uploads) return CAIRN_OK;
    return cairn_fail(err, CAIRN_UNSUPPORTED,
                      "the store does not list the uploads below a prefix: a lifecycle rule of "
                      "the bucket has to end them, as cairn doctor says");
}

/* Asks for a listing in the next round, unless one runs or ended within two seconds; it ends no
 * upload (2). True: one runs or is about to. */
static bool ask_for_look(struct srv_uploads *uploads) {
    CAIRN_HOLD(&uploads->lock);
    uint64_t ended_ms = uploads->locked.ended_ms;
    bool fresh = ended_ms && srv_mono_ms(uploads->server) - ended_ms < FRESH_MS;
    if (!uploads->locked.looking && !fresh) uploads->locked.asked = true;
    return uploads->locked.looking || uploads->locked.asked;
}

/* POST /v1/uploads can be polled: a listing that has just ended is not started again. */
SRV_HANDLER(upload_look) {
    CAIRN_TRY(must_list(request->server, err));
    bool looking = ask_for_look(request->server->uploads);
    if (looking) srv_jobs_sweep(request->server);
    return srv_reply_json(reply, looking ? 202 : 200, CAIRN_PACK(upload_look, .looking = looking),
                          err);
}

enum cairn_code srv_reply_found(struct srv_request *request, struct cairn_lock *lock,
                                json_t *const *items, struct srv_reply *reply,
                                struct cairn_error *err) {
    uint64_t from = 0;
    SRV_GET(list, list, srv_list_open(request, &list, err));
    CAIRN_TRY(srv_list_after(&list, &from, err));
    json_decref(list.items);
    {
        CAIRN_HOLD(lock);
        list.items = cairn_json_page(*items, from, list.limit, &list.more);
    }
    snprintf(list.place, sizeof(list.place), "%" PRIu64, from + list.limit);
    return srv_list_reply(&list, reply, err);
}

SRV_HANDLER(upload_list) {
    CAIRN_TRY(must_list(request->server, err));
    struct srv_uploads *uploads = request->server->uploads;
    return srv_reply_found(request, &uploads->lock, &uploads->locked.items, reply, err);
}

/* ---- DELETE /v1/uploads/{ref} ---- */

struct ending {
    struct srv *server;
    struct srv_version version;
    struct srv_met met; /* place in the store of a version without a row */
    bool buried;
};

static enum cairn_code read_version(struct ending *ending, struct cairn_error *err) {
    SRV_LOOK(look, ending->server->catalog, err);
    CAIRN_TRY(srv_version_get(look.tx, ending->met.id.text, &ending->version, err));
    return srv_tx_run_thawed(look.tx, ending->version.run_id, err);
}

SRV_CHANGE(bury, struct ending *ending) {
    return srv_met_bury(tx, &ending->met, "its uploads were ended by hand",
                        srv_wall_ms(ending->server), &ending->buried, err);
}

/* Q31 by hand: writes the row first, so that no begin joins the version; a version with a record
 * may be a checkpoint and is refused. */
static enum cairn_code end_unknown(struct srv_request *request, struct ending *ending,
                                   struct cairn_error *err) {
    struct cairn_version_place place = {ending->met.name, ending->met.step, ending->met.id};
    struct cairn_key key;
    cairn_key_committed(&place, &key);
    struct cairn_store_request head = {.op = CAIRN_STORE_HEAD, .key = key.text};
    struct cairn_error why = {0};
    enum cairn_code code = cairn_store_perform(request->store, &head, &why);
    if (!code)
        return cairn_fail(err, CAIRN_IN_USE,
                          "%s has a committed.json: cairn reconcile %s/%s takes it up if it is "
                          "whole",
                          ending->met.id.text, ending->met.name.project, ending->met.name.run);
    if (code != CAIRN_NOT_FOUND) return cairn_fail(err, code, "%s", why.message);
    return srv_catalog_write(ending->server->catalog, bury, ending, err);
}

/* Written before the uploads are ended, so that the request is known even if the store refuses. */
SRV_CHANGE(note_asked, const struct ending *ending) {
    return srv_event_of_name(tx, SRV_EVENT_UPLOADS_ENDED, &ending->version.name,
                             ending->version.id.text, err);
}

/* *ret_done false: left to the sweep. */
static enum cairn_code end_known(struct srv_request *request, struct ending *ending, bool *ret_done,
                                 struct cairn_error *err) {
    const struct srv_version *version = &ending->version;
    switch (srv_version_shown(version)) {
    case CAIRN_STATE_OPEN:
        return cairn_fail(err, CAIRN_IN_USE,
                          "%s is being saved; to give it up: POST /v1/runs/%s/%s/checkpoints/%s/"
                          "abort",
                          version->id.text, version->name.project, version->name.run,
                          version->id.text);
    case CAIRN_STATE_COMMITTED:
    case CAIRN_STATE_GONE:
        if (srv_copy_is_held(request->server, version->id.text))
            return cairn_fail(err, CAIRN_IN_USE, "a copy of %s is being made or mended",
                              version->id.text);
        CAIRN_TRY(srv_identity_compare(request->server, request->store, err)); /* Q35 */
        CAIRN_TRY(srv_catalog_write(request->server->catalog, note_asked, ending, err));
        srv_sweep_uploads(request->store, version);
        *ret_done = true;
        return CAIRN_OK;
    case CAIRN_STATE_DELETING:
    case CAIRN_STATE_ABORTING:
        return srv_catalog_write(request->server->catalog, note_asked, ending, err);
    }
    CAIRN_ASSERT(false);
    return CAIRN_OK;
}

/* Finds the place of a version with an upload in the last listing; false: not found. */
static bool find_met(struct srv_uploads *uploads, const char *version, struct srv_met *ret) {
    CAIRN_HOLD(&uploads->lock);
    CAIRN_JSON_EACH(item, uploads->locked.items) {
        const char *rest = NULL, *key = json_string_value(json_object_get(item, "key"));
        struct cairn_key_parts parts;
        if (!key || strstr(key, version) == NULL) continue;
        if (!cairn_key_run(key, &ret->name, &rest)) continue;
        cairn_key_read(rest, &parts);
        if (parts.kind < CAIRN_KEY_COMMITTED || strcmp(parts.id.text, version) != 0) continue;
        ret->id = parts.id;
        ret->step = parts.step;
        return true;
    }
    return false;
}

/* The next listing finds uploads that the store did not end. */
static void forget(struct srv_uploads *uploads, const char *version) {
    CAIRN_HOLD(&uploads->lock);
    for (size_t i = json_array_size(uploads->locked.items); i-- > 0;) {
        const json_t *item = json_array_get(uploads->locked.items, i);
        const char *of = json_string_value(json_object_get(item, "version"));
        if (of && !strcmp(of, version)) (void)json_array_remove(uploads->locked.items, i);
    }
}

static enum cairn_code end_uploads(struct srv_request *request, struct ending *ending,
                                   struct srv_reply *reply, struct cairn_error *err) {
    struct srv *server = request->server;
    bool done = false;
    enum cairn_code code = read_version(ending, err);
    const char *id = ending->met.id.text;
    bool met = code == CAIRN_NOT_FOUND &&
               ((server->uploads && find_met(server->uploads, id, &ending->met)) ||
                (server->orphans && srv_orphans_met(server->orphans, id, &ending->met)));
    if (met) {
        CAIRN_TRY(end_unknown(request, ending, err));
        code = read_version(ending, err);
    }
    CAIRN_TRY(code);
    CAIRN_TRY(end_known(request, ending, &done, err));
    if (done && server->uploads) forget(server->uploads, id);
    srv_jobs_sweep(server);
    return srv_reply_json(reply, done ? 200 : 202,
                          CAIRN_PACK(upload_aborted, .version = ending->version.id.text,
                                     .state = cairn_state_text(ending->version.state),
                                     .done = done),
                          err);
}

SRV_HANDLER(upload_abort) {
    struct ending ending = {.server = request->server};
    CAIRN_TRY(srv_thawed(request->server, err));
    if (!cairn_version_id_valid(cairn_view_of(request->params.ref)))
        return cairn_fail(err, CAIRN_INVALID, "name a version by its id: ckpt_...");
    cairn_text_copy(ending.met.id.text, sizeof(ending.met.id.text), request->params.ref);
    enum cairn_code code = end_uploads(request, &ending, reply, err);
    srv_version_release(&ending.version);
    return code;
}
