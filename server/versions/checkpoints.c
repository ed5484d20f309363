/* SPDX-License-Identifier: Apache-2.0 */
/* GET {C} and its long polls: for a version's next state (`for`, Q24), for the next `latest`
 * (`newer_than`); ETags and long polls for a changed answer of every route
 * (server/versions/versions.h#3). A call is parked only while its answer may change; each change of
 * NOT_YET wakes the calls under its key. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "server/events/feed.h"
#include "server/guard/jobs.h"
#include "server/guard/stores.h"
#include "server/intake/intake.h"
#include "server/ledger/shards.h"
#include "server/versions/versions.h"

/* ---- ?for=: a judgement for each row of api/awaited.def ---- */

struct awaited {
    bool asked;
    struct cairn_awaited what;
    bool decided; /* rank 0 has sealed; looked up for CAIRN_AWAITED_DECIDED only */
};

static enum cairn_code read_awaited(const struct srv_request *request, struct awaited *ret,
                                    struct cairn_error *err) {
    const char *text = cairn_query_get(&request->query, "for");
    *ret = (struct awaited){.asked = text != NULL};
    if (!text) return CAIRN_OK;
    enum cairn_code code = cairn_awaited_parse(text, &ret->what, err);
    if (code) return cairn_within(err, code, "for");
    if (ret->what.state != CAIRN_AWAITED_PROMOTED ||
        srv_tier_find(request->server, ret->what.store))
        return CAIRN_OK;
    return cairn_fail(err, CAIRN_INVALID, "for=%s: this server has no store %s", text,
                      ret->what.store);
}

static uint64_t awaited_key(const struct cairn_awaited *what,
                            const struct cairn_version_id *version) {
    char key[SRV_EVENTS_KEY_BYTES];
    /* Every node of a save waits for COMMITTED: only the version's end wakes them. */
    if (what->state == CAIRN_AWAITED_COMMITTED) return srv_key_of(version->text);
    srv_events_key_of_version(version, key);
    return srv_key_of(key);
}

static bool is_whole_in(const struct cairn_msg_version_row *row, const char *store) {
    CAIRN_JSON_EACH(item, row->copies) {
        struct cairn_msg_copy_row copy = {0};
        if (cairn_msg_copy_row_read(item, "", &copy, NULL)) continue;
        if (!strcmp(copy.store, store)) return !strcmp(copy.state, "whole");
    }
    return false;
}

/* For an open version, or a committed one that is not deleted. */
static bool has_come_to(const struct awaited *awaited, const struct srv_version *version,
                        const struct cairn_msg_version_row *row) {
    const struct cairn_awaited *what = &awaited->what;
    bool committed = srv_version_shown(version) == CAIRN_STATE_COMMITTED;
    bool staged = row->ranks_sealed >= row->world_size;
    switch (what->state) {
    case CAIRN_AWAITED_BEGUN:
        return true;
    case CAIRN_AWAITED_DECIDED:
        return committed || staged || awaited->decided;
    case CAIRN_AWAITED_STAGED:
        return committed || staged;
    case CAIRN_AWAITED_DURABLE:
        return committed || (staged && row->shards_registered >= row->shards);
    case CAIRN_AWAITED_COMMITTED:
        return committed;
    case CAIRN_AWAITED_PROMOTED:
        return is_whole_in(row, what->store);
    default:
        return what->state == CAIRN_AWAITED_TRASHED && row->trashed;
    }
}

static enum cairn_outcome judge_state(const struct awaited *awaited,
                                      const struct srv_version *version,
                                      const struct cairn_msg_version_row *row) {
    const struct cairn_awaited *what = &awaited->what;
    enum cairn_state state = srv_version_shown(version);
    bool goes = what->state == CAIRN_AWAITED_GONE;
    bool deleted = srv_version_there(version, NULL) != CAIRN_OK;
    bool given_up = !deleted && state != CAIRN_STATE_OPEN && state != CAIRN_STATE_COMMITTED;
    if (goes) return state == CAIRN_STATE_GONE ? CAIRN_OUTCOME_REACHED : CAIRN_OUTCOME_NOT_YET;
    if (deleted)
        return cairn_awaited_is_removal(what->state) ? CAIRN_OUTCOME_REACHED : CAIRN_OUTCOME_NEVER;
    if (given_up)
        return what->state == CAIRN_AWAITED_ABORTED || what->state == CAIRN_AWAITED_BEGUN
                   ? CAIRN_OUTCOME_REACHED
                   : CAIRN_OUTCOME_NEVER;
    if (what->state == CAIRN_AWAITED_ABORTED && state == CAIRN_STATE_COMMITTED)
        return CAIRN_OUTCOME_NEVER;
    return has_come_to(awaited, version, row) ? CAIRN_OUTCOME_REACHED : CAIRN_OUTCOME_NOT_YET;
}

static enum cairn_code judge_awaited(const struct awaited *awaited,
                                     const struct srv_version *version, const json_t *shown,
                                     enum cairn_outcome *ret, struct cairn_error *err) {
    struct cairn_msg_version_row row = {0};
    CAIRN_TRY(cairn_msg_version_row_read(shown, "", &row, err));
    *ret = judge_state(awaited, version, &row);
    return CAIRN_OK;
}

static void park(struct srv_reply *reply, uint64_t key, uint64_t until_ms) {
    reply->park = reply->rung = true;
    reply->park_key = key;
    reply->park_until_ms = until_ms;
}

/* ---- the version ---- */

struct shown {
    struct srv_request *request;
    struct awaited awaited;
    struct srv_version version;
    bool has_run; /* set when the version was not found */
    json_t *json;
};

/* Fails for a deleted version, and says what the store still holds of it. */
static enum cairn_code still_there(struct srv_tx *tx, const struct srv_version *version,
                                   struct cairn_error *err) {
    struct cairn_error why = {0};
    struct srv_not_freed kept;
    char size[24];
    enum cairn_code code = srv_version_there(version, &why);
    if (!code) return CAIRN_OK;
    CAIRN_TRY(srv_not_freed_get(tx, version->id.text, &kept, err));
    if (!kept.there) return cairn_fail(err, code, "%s", why.message);
    cairn_size_text(kept.left.bytes, size);
    return cairn_fail(err, code, "%s; the store keeps %s%s of it: %s", why.message,
                      kept.left.counted ? "" : "at least ", size, kept.left.reason);
}

static enum cairn_code look_at_version(struct shown *shown, struct cairn_error *err) {
    struct srv_request *request = shown->request;
    struct awaited *awaited = &shown->awaited;
    SRV_LOOK(look, request->server->catalog, err);
    struct srv_ref ref = {&request->params.run_name,
                          request->awaited.text[0] ? request->awaited.text : request->params.ref,
                          false};
    enum cairn_code code = srv_version_find(look.tx, &ref, &shown->version, err);
    if (code == CAIRN_NOT_FOUND && awaited->asked && !cairn_awaited_is_removal(awaited->what.state))
        code = srv_version_find_given_up(look.tx, &ref, &shown->version, err);
    if (code == CAIRN_NOT_FOUND) {
        SRV_AUTO(run) run = {0};
        shown->has_run = !srv_run_get(look.tx, ref.name, &run, NULL);
    }
    CAIRN_TRY(code);
    /* Pins the id: a step or name may later mean another version; COMMITTED waits for that, too. */
    if (awaited->asked && awaited->what.state != CAIRN_AWAITED_COMMITTED)
        request->awaited = shown->version.id;
    if (!awaited->asked || !cairn_awaited_is_removal(awaited->what.state))
        CAIRN_TRY(still_there(look.tx, &shown->version, err));
    if (awaited->asked && awaited->what.state == CAIRN_AWAITED_DECIDED)
        CAIRN_TRY(srv_rank_sealed(look.tx, shown->version.id.text, 0, &awaited->decided, err));
    /* A version found by `latest` is the latest: no second look-up. */
    struct srv_newest newest = {.id = shown->version.id};
    newest.looked = newest.found = !strcmp(ref.text, "latest");
    return srv_version_json(look.tx, &shown->version, &newest, &shown->json, err);
}

/* ---- ?wait=30s&for=committed ---- */

/* *ret_until_ms: 0 ends the wait. */
static enum cairn_code must_wait(const struct shown *shown, enum cairn_outcome *ret_outcome,
                                 uint64_t *ret_until_ms, struct cairn_error *err) {
    const struct srv_request *request = shown->request;
    bool over = srv_version_shown(&shown->version) != CAIRN_STATE_OPEN;
    *ret_outcome = over ? CAIRN_OUTCOME_REACHED : CAIRN_OUTCOME_NOT_YET;
    if (shown->awaited.asked)
        CAIRN_TRY(judge_awaited(&shown->awaited, &shown->version, shown->json, ret_outcome, err));
    else if (request->if_none_match[0])
        return CAIRN_OK; /* waits for a changed tag instead */
    CAIRN_TRY(srv_query_wait(request, ret_until_ms, err));
    if (*ret_outcome != CAIRN_OUTCOME_NOT_YET) *ret_until_ms = 0;
    return CAIRN_OK;
}

/* Waits for a version that can still begin: named by step or alias, in a run that exists. */
static enum cairn_code judge_missing(const struct shown *shown, struct srv_reply *reply,
                                     struct cairn_error *err) {
    const struct srv_request *request = shown->request;
    char key[SRV_EVENTS_KEY_BYTES];
    uint64_t until_ms = 0;
    bool comes = shown->awaited.asked && shown->has_run && !request->awaited.text[0] &&
                 !cairn_awaited_is_removal(shown->awaited.what.state) &&
                 !cairn_version_id_valid(cairn_view_of(request->params.ref));
    if (!comes) return CAIRN_NOT_FOUND;
    CAIRN_TRY(srv_query_wait(request, &until_ms, err));
    if (!until_ms)
        return cairn_fail(err, CAIRN_NOT_YET, "run %s/%s has no checkpoint %s yet",
                          request->params.run_name.project, request->params.run_name.run,
                          request->params.ref);
    srv_events_key_of_run(&request->params.run_name, key);
    park(reply, srv_key_of(key), until_ms);
    return CAIRN_OK;
}

/* The tag covers the version only, without `awaited`. */
static enum cairn_code answer_shown(struct shown *shown, enum cairn_outcome outcome,
                                    struct srv_reply *reply, struct cairn_error *err) {
    char tag[SRV_TAG_BYTES];
    CAIRN_TRY(srv_version_tag(shown->json, tag, err));
    if (shown->awaited.asked &&
        json_object_set_new(shown->json, "awaited", json_string(cairn_outcome_text(outcome))))
        return srv_no_memory(err);
    CAIRN_TRY(srv_reply_json(reply, 200, CAIRN_TAKE(shown->json), err));
    srv_reply_header(reply, "ETag", "%s", tag);
    srv_reply_header(reply, "Cache-Control", "private, no-cache"); /* its state changes */
    return CAIRN_OK;
}

/* ---- ?newer_than= ---- */

struct newer {
    const char *text; /* NULL: absent */
    uint64_t step;
    bool by_id;
};

static enum cairn_code read_newer(const struct srv_request *request, struct newer *ret,
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

/* By id also sees an older step: a resume that went back makes `latest` an earlier version. */
static bool is_newer(const struct newer *newer, const struct srv_version *version) {
    if (newer->by_id) return strcmp(version->id.text, newer->text) != 0;
    return version->step > newer->step;
}

/* found: result of looking up `latest`. After CAIRN_NOT_YET a repeat of the call misses nothing. */
static enum cairn_code judge_newer(const struct shown *shown, const struct newer *newer,
                                   enum cairn_code found, struct srv_reply *reply,
                                   struct cairn_error *err) {
    const struct srv_request *request = shown->request;
    uint64_t until_ms = 0;
    if (found && (found != CAIRN_NOT_FOUND || !shown->has_run)) return found;
    if (!found && is_newer(newer, &shown->version)) return CAIRN_OK;
    CAIRN_TRY(srv_query_wait(request, &until_ms, err));
    if (!until_ms)
        return cairn_fail(err, CAIRN_NOT_YET, "run %s/%s has no checkpoint newer than %s yet",
                          request->params.run_name.project, request->params.run_name.run,
                          newer->text);
    park(reply, srv_key_of_run(&request->params.run_name), until_ms);
    return CAIRN_OK;
}

static enum cairn_code serve_get(struct shown *shown, struct srv_reply *reply,
                                 struct cairn_error *err) {
    struct srv_request *request = shown->request;
    if (!cairn_version_id_valid(cairn_view_of(request->params.ref)))
        CAIRN_TRY(srv_thawed(request->server, err));
    struct newer newer;
    uint64_t changes = srv_catalog_changes(request->server->catalog); /* before the look */
    CAIRN_TRY(read_newer(request, &newer, err));
    CAIRN_TRY(read_awaited(request, &shown->awaited, err));
    enum cairn_code code = look_at_version(shown, err);
    if (newer.text)
        code = judge_newer(shown, &newer, code, reply, err);
    else if (code == CAIRN_NOT_FOUND)
        code = judge_missing(shown, reply, err);
    if (code || reply->park) return code;
    /* Q24: a GET of a version without its record has the record written. */
    if (shown->version.state == CAIRN_STATE_COMMITTED && !shown->version.recorded)
        srv_jobs_commit(request->server, shown->version.id.text);
    enum cairn_outcome outcome = CAIRN_OUTCOME_NOT_YET;
    uint64_t until_ms = 0;
    CAIRN_TRY(must_wait(shown, &outcome, &until_ms, err));
    if (until_ms) {
        static const struct cairn_awaited its_end = {.state = CAIRN_AWAITED_COMMITTED};
        const struct cairn_awaited *what = shown->awaited.asked ? &shown->awaited.what : &its_end;
        park(reply, awaited_key(what, &shown->version.id), until_ms);
        return CAIRN_OK;
    }
    CAIRN_TRY(answer_shown(shown, outcome, reply, err));
    reply->in_vain = outcome == CAIRN_OUTCOME_NOT_YET;
    /* Not held while the record is missing: each GET must ask for it again (Q24). */
    bool over = shown->version.state != CAIRN_STATE_COMMITTED || shown->version.recorded;
    if (over && !request->query.count) reply->holds_for = changes;
    return CAIRN_OK;
}

SRV_HANDLER(checkpoint_get) {
    struct shown shown = {.request = request};
    enum cairn_code code = serve_get(&shown, reply, err);
    srv_version_release(&shown.version);
    json_decref(shown.json);
    return code;
}

/* ---- ETags, and long polls for a changed answer ---- */

#define LOOK_AGAIN_MS 1000

/* Members that only move with the clock: they do not change a tag. */
static const char *const ages[] = {"age_ms",   "expires_s", "idle_s",         "last_commit_age_s",
                                   "heard_at", "silent_ms", "nodes_silent_ms"};

static bool looks(const struct srv_request *request) {
    return request->route->wait == CAIRN_WAIT_LOOK;
}

static bool has_tag(const struct srv_request *request) {
    return request->route->wait >= CAIRN_WAIT_EVENT;
}

enum cairn_code srv_changes_check(const struct srv_request *request, struct cairn_error *err) {
    uint64_t until_ms = 0;
    if (!has_tag(request)) return CAIRN_OK;
    CAIRN_TRY(srv_query_wait(request, &until_ms, err));
    bool other = request->route->wait == CAIRN_WAIT_END;
    if (other || request->if_none_match[0] || !cairn_query_get(&request->query, "wait"))
        return CAIRN_OK;
    return cairn_fail(err, CAIRN_INVALID,
                      "wait: for a change of what? Send the ETag of the answer that you have as "
                      "If-None-Match");
}

/* The end of the JSON text whose opening quote is at `at`. */
static const char *end_of_text(const char *at) {
    for (at++; *at && *at != '"'; at++)
        if (*at == '\\' && at[1]) at++;
    return *at ? at + 1 : at;
}

static bool is_age(const char *key, const char *end) {
    if (*end != ':') return false; /* a value */
    size_t size = (size_t)(end - key) - 2;
    for (size_t i = 0; i < CAIRN_COUNT(ages); i++)
        if (strlen(ages[i]) == size && !memcmp(ages[i], key + 1, size)) return true;
    return false;
}

/* Copies the body, as this server formats JSON, without the values of `ages`. */
static enum cairn_code drop_ages(const char *body, struct cairn_buf *ret, struct cairn_error *err) {
    const char *from = body;
    for (const char *at = body; *at;) {
        if (*at != '"') {
            at++;
            continue;
        }
        const char *end = end_of_text(at);
        bool age = is_age(at, end);
        at = end;
        if (!age) continue;
        CAIRN_TRY(cairn_buf_append(ret, from, (size_t)(at - from), err));
        at++;
        at = *at == '"' ? end_of_text(at) : at + strcspn(at, ",}");
        from = at;
    }
    return cairn_buf_append_text(ret, from, err);
}

static enum cairn_code key_of_body(const struct srv_request *request, const struct srv_reply *reply,
                                   uint64_t *ret, struct cairn_error *err) {
    const char *body = reply->body.data ? reply->body.data : "";
    CAIRN_AUTO(buf) text = {.limit = reply->body.size + 1};
    if (looks(request)) CAIRN_TRY(drop_ages(body, &text, err));
    *ret = srv_key_of(looks(request) ? text.data : body);
    return CAIRN_OK;
}

static struct srv_header *tag_header(struct srv_reply *reply) {
    for (size_t i = 0; i < reply->header_count; i++)
        if (!strcasecmp(reply->headers[i].name, "ETag")) return &reply->headers[i];
    return NULL;
}

/* *ret: with its quotes, without W/. A handler's tag may cover only what people change (a run's
 * labels and note): for LOOK a hash of the body is appended to it. */
static enum cairn_code tag_of(const struct srv_request *request, struct srv_reply *reply,
                              const char **ret, struct cairn_error *err) {
    struct srv_header *header = tag_header(reply);
    uint64_t key = 0;
    if (!header || looks(request)) CAIRN_TRY(key_of_body(request, reply, &key, err));
    if (!header) {
        srv_reply_header(reply, "ETag", "W/\"%016" PRIx64 "\"", key);
        header = tag_header(reply);
    } else if (looks(request)) {
        size_t size = strlen(header->value);
        CAIRN_ASSERT(size > 1);
        snprintf(header->value + size - 1, sizeof(header->value) - size + 1, ".%016" PRIx64 "\"",
                 key);
    }
    *ret = header->value[0] == 'W' ? header->value + 2 : header->value;
    return CAIRN_OK;
}

/* A resource without a run is woken by any event. */
static uint64_t key_of_events(const struct cairn_run_name *name) {
    char key[SRV_EVENTS_KEY_BYTES];
    srv_events_key_of_run(name, key);
    return srv_key_of(key);
}

enum cairn_code srv_changes_judge(const struct srv_request *request, struct srv_reply *reply,
                                  struct cairn_error *err) {
    uint64_t until_ms = 0;
    const char *tag = NULL;
    if (!has_tag(request) || reply->park) return CAIRN_OK;
    CAIRN_TRY(tag_of(request, reply, &tag, err));
    if (!srv_tag_listed(request->if_none_match, tag, true)) return CAIRN_OK;
    CAIRN_TRY(srv_query_wait(request, &until_ms, err));
    if (until_ms) {
        uint64_t again_ms = srv_mono_ms(request->server) + LOOK_AGAIN_MS;
        park(reply, key_of_events(&request->params.run_name),
             looks(request) ? cairn_min_u64(until_ms, again_ms) : until_ms);
        reply->rung = !looks(request);
        return CAIRN_OK;
    }
    reply->status = 304;
    cairn_buf_clear(&reply->body);
    return CAIRN_OK;
}
