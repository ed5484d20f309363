/* SPDX-License-Identifier: Apache-2.0 */
/* /v1/uploads: multipart uploads that no save will end, as the last look found them, and the end of
 * those of one version. */
#include "server/sweep/uploads.h"

#include <inttypes.h>
#include <stdio.h>

#include "api/wire/messages.h"
#include "common/text.h"
#include "server/copies/copying_now.h"
#include "server/guard/identity.h"
#include "server/guard/jobs.h"
#include "server/http/request.h"
#include "server/ledger/events.h"
#include "server/ledger/frozen.h"
#include "server/ledger/versions.h"
#include "server/sweep/orphans.h"
#include "server/sweep/sweep_objects.h"

static enum cairn_code must_list(struct cairn_srv *server, struct cairn_error *err) {
    CAIRN_TRY(cairn_srv_thawed(server, err));
    if (server->uploads && cairn_store_profile(server->store)->lists_uploads) return CAIRN_OK;
    return cairn_fail(err, CAIRN_UNSUPPORTED,
                      "the store does not list the uploads below a prefix: a lifecycle rule of "
                      "the bucket has to end them, as cairn doctor says");
}

/* POST /v1/uploads may be repeated until nothing is under way: what has just ended is not begun
 * again. */
enum cairn_code cairn_srv_on_upload_look(struct cairn_srv_request *request,
                                         struct cairn_srv_reply *reply, struct cairn_error *err) {
    CAIRN_TRY(must_list(request->server, err));
    bool looking = cairn_srv_uploads_ask(request->server->uploads);
    if (looking) cairn_srv_jobs_sweep(request->server);
    return cairn_srv_reply_json(reply, looking ? 202 : 200,
                                CAIRN_PACK(upload_look, .looking = looking), err);
}

enum cairn_code cairn_srv_on_upload_list(struct cairn_srv_request *request,
                                         struct cairn_srv_reply *reply, struct cairn_error *err) {
    struct cairn_srv *server = request->server;
    uint64_t limit = 0, from = 0;
    char place[24] = "";
    bool more = false;
    CAIRN_TRY(cairn_srv_query_limit(request, &limit, err));
    CAIRN_TRY(cairn_srv_cursor_read(request, place, sizeof(place), err));
    if (place[0]) CAIRN_TRY(cairn_parse_u64(cairn_view_of(place), &from, err));
    CAIRN_TRY(must_list(server, err));
    json_t *items = cairn_srv_uploads_page(server->uploads, from, limit, &more);
    if (more) snprintf(place, sizeof(place), "%" PRIu64, from + limit);
    json_t *next = more ? cairn_srv_cursor_write(server, place) : NULL;
    return cairn_srv_reply_page(reply, items, next, err);
}

/* ---- DELETE /v1/uploads/{ref} ---- */

struct ending {
    struct cairn_srv *server;
    struct cairn_srv_version version;
    struct cairn_srv_met met; /* where the store has it, for one without a row */
    bool buried;
};

static enum cairn_code look(struct cairn_srv_tx *tx, void *argument, struct cairn_error *err) {
    struct ending *ending = argument;
    cairn_srv_version_release(&ending->version);
    ending->version = (struct cairn_srv_version){0};
    CAIRN_TRY(cairn_srv_version_get(tx, ending->met.id.text, &ending->version, err));
    return cairn_srv_tx_run_thawed(tx, ending->version.run_id, err);
}

static enum cairn_code bury(struct cairn_srv_tx *tx, void *argument, struct cairn_error *err) {
    struct ending *ending = argument;
    return cairn_srv_met_bury(tx, &ending->met, "its uploads were ended by hand",
                              cairn_srv_wall_ms(ending->server), &ending->buried, err);
}

/* Q31 by hand: the row first, so that no begin joins it; but a record says that it may be a
 * checkpoint. */
static enum cairn_code end_unknown(struct cairn_srv_request *request, struct ending *ending,
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
    return cairn_srv_catalog_write(ending->server->catalog, bury, ending, err);
}

/* Said before it is done: what the store then refuses was asked for all the same. */
static enum cairn_code say(struct cairn_srv_tx *tx, void *argument, struct cairn_error *err) {
    const struct ending *ending = argument;
    return cairn_srv_event_of_name(tx, CAIRN_SRV_EVENT_UPLOADS_ENDED, &ending->version.name,
                                   ending->version.id.text, err);
}

/* What is done at once, or is left to the sweep (*ret_done false). */
static enum cairn_code end_known(struct cairn_srv_request *request, struct ending *ending,
                                 bool *ret_done, struct cairn_error *err) {
    const struct cairn_srv_version *version = &ending->version;
    switch (cairn_srv_version_shown(version)) {
    case CAIRN_STATE_OPEN:
        return cairn_fail(err, CAIRN_IN_USE,
                          "%s is being saved; to give it up: POST /v1/runs/%s/%s/checkpoints/%s/"
                          "abort",
                          version->id.text, version->name.project, version->name.run,
                          version->id.text);
    case CAIRN_STATE_COMMITTED:
    case CAIRN_STATE_GONE:
        if (cairn_srv_copy_is_held(request->server, version->id.text))
            return cairn_fail(err, CAIRN_IN_USE, "a copy of %s is being made or mended",
                              version->id.text);
        CAIRN_TRY(cairn_srv_identity_compare(request->server, request->store, err)); /* Q35 */
        CAIRN_TRY(cairn_srv_catalog_write(request->server->catalog, say, ending, err));
        cairn_srv_sweep_uploads(request->server, request->store, version);
        *ret_done = true;
        return CAIRN_OK;
    case CAIRN_STATE_DELETING:
    case CAIRN_STATE_ABORTING:
        return cairn_srv_catalog_write(request->server->catalog, say, ending, err);
    }
    CAIRN_ASSERT(false);
    return CAIRN_OK;
}

static enum cairn_code end(struct cairn_srv_request *request, struct ending *ending,
                           struct cairn_srv_reply *reply, struct cairn_error *err) {
    struct cairn_srv *server = request->server;
    bool done = false;
    enum cairn_code code = cairn_srv_catalog_read(server->catalog, look, ending, err);
    const char *id = ending->met.id.text;
    bool met = code == CAIRN_NOT_FOUND &&
               ((server->uploads && cairn_srv_uploads_met(server->uploads, id, &ending->met)) ||
                (server->orphans && cairn_srv_orphans_met(server->orphans, id, &ending->met)));
    if (met) {
        CAIRN_TRY(end_unknown(request, ending, err));
        code = cairn_srv_catalog_read(server->catalog, look, ending, err);
    }
    CAIRN_TRY(code);
    CAIRN_TRY(end_known(request, ending, &done, err));
    if (done && server->uploads) cairn_srv_uploads_forget(server->uploads, id);
    cairn_srv_jobs_sweep(server);
    return cairn_srv_reply_json(
        reply, done ? 200 : 202,
        CAIRN_PACK(upload_aborted, .version = ending->version.id.text,
                   .state = cairn_state_text(ending->version.state), .done = done),
        err);
}

enum cairn_code cairn_srv_on_upload_abort(struct cairn_srv_request *request,
                                          struct cairn_srv_reply *reply, struct cairn_error *err) {
    struct ending ending = {.server = request->server};
    CAIRN_TRY(cairn_srv_thawed(request->server, err));
    if (!cairn_version_id_valid(cairn_view_of(request->params.ref)))
        return cairn_fail(err, CAIRN_INVALID, "name a version by its id: ckpt_...");
    cairn_text_copy(ending.met.id.text, sizeof(ending.met.id.text), request->params.ref);
    enum cairn_code code = end(request, &ending, reply, err);
    cairn_srv_version_release(&ending.version);
    return code;
}
