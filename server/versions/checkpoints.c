/* SPDX-License-Identifier: Apache-2.0 */
/* GET {C} with its long polls: for what a version becomes (Q24), and for the next `latest`. */
#include "common/clock.h"
#include "common/text.h"
#include "server/events/feed.h"
#include "server/guard/jobs.h"
#include "server/http/waiters.h"
#include "server/intake/saves.h"
#include "server/versions/awaited.h"
#include "server/versions/versions_json.h"

struct shown {
    struct cairn_srv_request *request;
    struct cairn_srv_awaited awaited;
    struct cairn_srv_version version;
    bool has_run; /* where the version was not found */
    json_t *json;
};

/* Who asks for one that was deleted is told what the store keeps of it. */
static enum cairn_code still_there(struct cairn_srv_tx *tx,
                                   const struct cairn_srv_version *version,
                                   struct cairn_error *err) {
    struct cairn_error why = {0};
    struct cairn_srv_not_freed kept;
    char size[24];
    enum cairn_code code = cairn_srv_version_there(version, &why);
    if (!code) return CAIRN_OK;
    CAIRN_TRY(cairn_srv_not_freed_get(tx, version->id.text, &kept, err));
    if (!kept.there) return cairn_fail(err, code, "%s", why.message);
    cairn_size_text(kept.left.bytes, size);
    return cairn_fail(err, code, "%s; the store keeps %s%s of it: %s", why.message,
                      kept.left.counted ? "" : "at least ", size, kept.left.reason);
}

static enum cairn_code look(struct cairn_srv_tx *tx, void *argument, struct cairn_error *err) {
    struct shown *shown = argument;
    struct cairn_srv_request *request = shown->request;
    struct cairn_srv_awaited *awaited = &shown->awaited;
    struct cairn_srv_ref ref = {
        &request->params.run_name,
        request->awaited.text[0] ? request->awaited.text : request->params.ref, false};
    enum cairn_code code = cairn_srv_version_find(tx, &ref, &shown->version, err);
    if (code == CAIRN_NOT_FOUND && awaited->asked && !cairn_awaited_is_removal(awaited->what.state))
        code = cairn_srv_version_find_given_up(tx, &ref, &shown->version, err);
    if (code == CAIRN_NOT_FOUND) {
        CAIRN_AUTO(srv_run) run = {0};
        shown->has_run = !cairn_srv_run_get(tx, ref.name, &run, NULL);
    }
    CAIRN_TRY(code);
    /* A step or a name may mean another version when this one goes. Who waits for a commit takes
     * that one, too. */
    if (awaited->asked && awaited->what.state != CAIRN_AWAITED_COMMITTED)
        request->awaited = shown->version.id;
    if (!awaited->asked || !cairn_awaited_is_removal(awaited->what.state))
        CAIRN_TRY(still_there(tx, &shown->version, err));
    CAIRN_TRY(cairn_srv_awaited_look(tx, awaited, &shown->version, err));
    /* Who asked for `latest` was given it: it is not looked for again. */
    struct cairn_srv_newest newest = {.id = shown->version.id};
    newest.looked = newest.found = !strcmp(ref.text, "latest");
    return cairn_srv_version_json_among(tx, &shown->version, &newest, &shown->json, err);
}

/* ---- ?wait=30s&for=committed ---- */

/* *ret_until_ms: 0 where it is not to be waited for any more. */
static enum cairn_code must_wait(const struct shown *shown, enum cairn_outcome *ret_outcome,
                                 uint64_t *ret_until_ms, struct cairn_error *err) {
    const struct cairn_srv_request *request = shown->request;
    bool over = cairn_srv_version_shown(&shown->version) != CAIRN_STATE_OPEN;
    *ret_outcome = over ? CAIRN_OUTCOME_REACHED : CAIRN_OUTCOME_NOT_YET;
    if (shown->awaited.asked)
        CAIRN_TRY(cairn_srv_awaited_judge(&shown->awaited, &shown->version, shown->json,
                                          ret_outcome, err));
    else if (request->if_none_match[0])
        return CAIRN_OK; /* for its change: changes.h */
    CAIRN_TRY(cairn_srv_query_wait(request, ret_until_ms, err));
    if (*ret_outcome != CAIRN_OUTCOME_NOT_YET) *ret_until_ms = 0;
    return CAIRN_OK;
}

/* One that nobody has begun is waited for where it can be begun yet: by its step or a name, in a
 * run that is there. Of no run the caller hears at once. */
static enum cairn_code judge_missing(const struct shown *shown, struct cairn_srv_reply *reply,
                                     struct cairn_error *err) {
    const struct cairn_srv_request *request = shown->request;
    char key[CAIRN_SRV_EVENTS_KEY_BYTES];
    uint64_t until_ms = 0;
    bool comes = shown->awaited.asked && shown->has_run && !request->awaited.text[0] &&
                 !cairn_awaited_is_removal(shown->awaited.what.state) &&
                 !cairn_version_id_valid(cairn_view_of(request->params.ref));
    if (!comes) return CAIRN_NOT_FOUND;
    CAIRN_TRY(cairn_srv_query_wait(request, &until_ms, err));
    if (!until_ms)
        return cairn_fail(err, CAIRN_NOT_YET, "run %s/%s has no checkpoint %s yet",
                          request->params.run_name.project, request->params.run_name.run,
                          request->params.ref);
    cairn_srv_events_key_of_run(&request->params.run_name, key);
    reply->park = reply->rung = true;
    reply->park_key = cairn_srv_key_of(key);
    reply->park_until_ms = until_ms;
    return CAIRN_OK;
}

/* The tag is that of the version: what was waited for is no part of it. */
static enum cairn_code answer(struct shown *shown, enum cairn_outcome outcome,
                              struct cairn_srv_reply *reply, struct cairn_error *err) {
    char tag[CAIRN_SRV_TAG_BYTES];
    CAIRN_TRY(cairn_srv_version_tag(shown->json, tag, err));
    if (shown->awaited.asked &&
        json_object_set_new(shown->json, "awaited", json_string(cairn_outcome_text(outcome))))
        return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the answer");
    CAIRN_TRY(cairn_srv_reply_json(reply, 200, CAIRN_TAKE(shown->json), err));
    cairn_srv_reply_header(reply, "ETag", "%s", tag);
    cairn_srv_reply_header(reply, "Cache-Control", "private, no-cache"); /* its state changes */
    return CAIRN_OK;
}

/* ---- ?newer_than= ---- */

struct newer {
    const char *text; /* as it was asked; NULL: it was not */
    uint64_t step;
    bool by_id;
};

static enum cairn_code read_newer(const struct cairn_srv_request *request, struct newer *ret,
                                  struct cairn_error *err) {
    *ret = (struct newer){.text = cairn_query_get(&request->query, "newer_than")};
    if (!ret->text) return CAIRN_OK;
    if (strcmp(request->params.ref, "latest") != 0)
        return cairn_fail(err, CAIRN_INVALID, "newer_than: of `latest` alone");
    ret->by_id = cairn_version_id_valid(cairn_view_of(ret->text));
    if (ret->by_id || (!cairn_parse_u64(cairn_view_of(ret->text), &ret->step, NULL) &&
                       ret->step <= CAIRN_STEP_MAX))
        return CAIRN_OK;
    return cairn_fail(err, CAIRN_INVALID, "newer_than: want a step or a version id");
}

/* After a resume that went back, `latest` has a lower step; who waits by id is told of it, too. */
static bool is_newer(const struct newer *newer, const struct cairn_srv_version *version) {
    if (newer->by_id) return strcmp(version->id.text, newer->text) != 0;
    return version->step > newer->step;
}

/* found: what the look for `latest` said. CAIRN_NOT_YET when the time is over: nothing is lost, the
 * same call may be made again. */
static enum cairn_code judge_newer(const struct shown *shown, const struct newer *newer,
                                   enum cairn_code found, struct cairn_srv_reply *reply,
                                   struct cairn_error *err) {
    const struct cairn_srv_request *request = shown->request;
    uint64_t until_ms = 0;
    if (found && (found != CAIRN_NOT_FOUND || !shown->has_run)) return found;
    if (!found && is_newer(newer, &shown->version)) return CAIRN_OK;
    CAIRN_TRY(cairn_srv_query_wait(request, &until_ms, err));
    if (!until_ms)
        return cairn_fail(err, CAIRN_NOT_YET, "run %s/%s has no checkpoint newer than %s yet",
                          request->params.run_name.project, request->params.run_name.run,
                          newer->text);
    reply->park = reply->rung = true;
    reply->park_key = cairn_srv_key_of_run(&request->params.run_name);
    reply->park_until_ms = until_ms;
    return CAIRN_OK;
}

static enum cairn_code serve(struct shown *shown, struct cairn_srv_reply *reply,
                             struct cairn_error *err) {
    struct cairn_srv_request *request = shown->request;
    if (!cairn_version_id_valid(cairn_view_of(request->params.ref)))
        CAIRN_TRY(cairn_srv_thawed(request->server, err));
    struct newer newer;
    uint64_t changes = cairn_srv_catalog_changes(request->server->catalog); /* before the look */
    CAIRN_TRY(read_newer(request, &newer, err));
    CAIRN_TRY(cairn_srv_awaited_read(request, &shown->awaited, err));
    enum cairn_code code = cairn_srv_catalog_read(request->server->catalog, look, shown, err);
    if (newer.text)
        code = judge_newer(shown, &newer, code, reply, err);
    else if (code == CAIRN_NOT_FOUND)
        code = judge_missing(shown, reply, err);
    if (code || reply->park) return code;
    /* Q24: a question about a version has its missing record written. */
    if (shown->version.state == CAIRN_STATE_COMMITTED && !shown->version.recorded)
        cairn_srv_jobs_commit(request->server, shown->version.id.text);
    enum cairn_outcome outcome = CAIRN_OUTCOME_NOT_YET;
    uint64_t until_ms = 0;
    CAIRN_TRY(must_wait(shown, &outcome, &until_ms, err));
    if (until_ms) {
        static const struct cairn_awaited its_end = {.state = CAIRN_AWAITED_COMMITTED};
        reply->park = reply->rung = true;
        reply->park_key = cairn_srv_awaited_key(
            shown->awaited.asked ? &shown->awaited.what : &its_end, &shown->version.id);
        reply->park_until_ms = until_ms;
        return CAIRN_OK;
    }
    CAIRN_TRY(answer(shown, outcome, reply, err));
    reply->in_vain = outcome == CAIRN_OUTCOME_NOT_YET;
    /* An open version's missing record is asked for each time (Q24). */
    bool over = shown->version.state != CAIRN_STATE_COMMITTED || shown->version.recorded;
    if (over && !request->query.count) reply->holds_for = changes;
    return CAIRN_OK;
}

enum cairn_code cairn_srv_on_checkpoint_get(struct cairn_srv_request *request,
                                            struct cairn_srv_reply *reply,
                                            struct cairn_error *err) {
    struct shown shown = {.request = request};
    enum cairn_code code = serve(&shown, reply, err);
    cairn_srv_version_release(&shown.version);
    json_decref(shown.json);
    return code;
}
