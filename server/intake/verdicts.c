/* SPDX-License-Identifier: Apache-2.0 */
/* How a version ends, each decided in one transaction over its whole condition: POST {C}/fail,
 * /abort, /commit and /undelete, DELETE {C} (rules Q12, Q27, Q29, Q40). */
#include "server/intake/intake.h"

#include <inttypes.h>
#include <stdio.h>

#include "common/hooks.h"
#include "common/log.h"
#include "server/guard/records.h"
#include "server/http/waiters.h"
#include "server/ledger/shards.h"
#include "server/versions/versions.h"

/* ---- naming a version ---- */

enum cairn_code srv_save_version(struct srv_tx *tx, const struct srv_request *request,
                                 struct srv_version *ret, struct cairn_error *err) {
    const char *ref = request->params.ref;
    if (!cairn_version_id_valid(cairn_view_of(ref)))
        return cairn_fail(err, CAIRN_INVALID, "writes name the version by its id, not \"%s\"", ref);
    struct srv_ref wanted = {&request->params.run_name, ref, true};
    return srv_version_find(tx, &wanted, ret, err);
}

enum cairn_code srv_save_admit(struct srv_tx *tx, const struct cairn_grant *grant,
                               const struct srv_version *version, struct cairn_error *err) {
    SRV_GET(run, run, srv_admit(tx, grant, &run, err));
    if (grant->attempt != version->attempt)
        return cairn_fail(err, CAIRN_FORBIDDEN,
                          "%s was begun by attempt %" PRIu64 ", the grant is of %" PRIu64,
                          version->id.text, version->attempt, grant->attempt);
    return CAIRN_OK;
}

/* ---- ranks that have not sealed ---- */

struct gaps {
    uint32_t next, count; /* next: one past the last sealed rank */
    uint32_t ranks[SRV_UNSEALED_MAX];
};

static void skip_to(struct gaps *gaps, uint32_t rank) {
    for (; gaps->next < rank; gaps->next++, gaps->count++)
        if (gaps->count < SRV_UNSEALED_MAX) gaps->ranks[gaps->count] = gaps->next;
    gaps->next = rank + 1;
}

enum cairn_code srv_save_unsealed(struct srv_tx *tx, const struct srv_version *version, size_t most,
                                  json_t *list, uint32_t *ret_count, struct cairn_error *err) {
    struct gaps gaps = {0};
    SRV_GET(rows, rows, srv_ranks_sealed(tx, version->id.text, &rows, err));
    SQL_EACH(&rows, err) skip_to(&gaps, srv_row_rank_sealed(&rows).rank);
    skip_to(&gaps, version->world_size);
    *ret_count = gaps.count;
    most = cairn_min_u64(most, cairn_min_u64(gaps.count, SRV_UNSEALED_MAX));
    for (size_t i = 0; i < most; i++) {
        char node[CAIRN_NAME_BYTES_MAX + 1];
        CAIRN_TRY(srv_member_node(tx, version->run_id, version->attempt, gaps.ranks[i], node, err));
        CAIRN_TRY(
            cairn_json_append(list,
                              CAIRN_PACK(missing_rank, .rank = gaps.ranks[i],
                                         .node = node[0] ? node : NULL, .state = "not sealed"),
                              "the answer", err));
    }
    return CAIRN_OK;
}

struct verdict {
    struct srv_request *request;
    struct cairn_grant grant;
    bool with_grant;
    const char *reason;
    struct cairn_error cause; /* code CAIRN_OK: none given */
    char full_reason[SRV_REASON_BYTES];
    struct srv_version version;
    bool changed, whole;
    bool asked;                      /* a commit by hand was asked for before */
    const struct srv_trash_one *one; /* for delete and undelete */
    const char *id; /* the version that the reference meant when the mark was put */
    json_t *shown, *missing;
    uint64_t expected, present;
};

static void release_verdict(struct verdict *verdict) {
    srv_version_release(&verdict->version);
    json_decref(verdict->shown);
    json_decref(verdict->missing);
}

/* ---- fail and abort ---- */

SRV_CHANGE(give_up, struct verdict *verdict) {
    struct srv_version *version = &verdict->version;
    srv_version_release(version);
    verdict->changed = false;
    CAIRN_TRY(srv_save_version(tx, verdict->request, version, err));
    if (version->state == CAIRN_STATE_COMMITTED || version->committed_ms)
        return cairn_fail(err, CAIRN_ALREADY_COMMITTED, "%s (step %" PRIu64 ") is committed",
                          version->id.text, version->step);
    if (version->state != CAIRN_STATE_OPEN) return CAIRN_OK;
    if (verdict->with_grant) CAIRN_TRY(srv_save_admit(tx, &verdict->grant, version, err));
    struct srv_move move = {CAIRN_EVENT_GIVE_UP,
                            verdict->cause.code ? verdict->cause.code : CAIRN_ABORTED,
                            verdict->full_reason};
    version->http_status = verdict->cause.http_status;
    (void)cairn_text_copy(version->request_id, sizeof(version->request_id),
                          verdict->cause.request_id);
    verdict->changed = true;
    return srv_version_move(tx, version, &move, err);
}

static enum cairn_code serve_give_up(struct verdict *verdict, const char *event, int status,
                                     struct srv_reply *reply, struct cairn_error *err) {
    struct srv *server = verdict->request->server;
    const struct srv_version *version = &verdict->version;
    CAIRN_TRY(srv_catalog_write(server->catalog, give_up, verdict, err));
    if (verdict->changed) {
        cairn_log(INFO, event, "version=%s step=%" PRIu64 " reason=\"%s\"", version->id.text,
                  version->step, version->reason);
        srv_waiters_wake_version(server->waiters, &version->id, &version->name);
        srv_jobs_sweep(server);
    }
    return srv_reply_json(reply, status, srv_version_brief(version), err);
}

SRV_HANDLER(fail) {
    CAIRN_TRY(srv_thawed(request->server, err));
    CAIRN_AUTO_JSON json_t *body = NULL;
    CAIRN_TRY(srv_body(request, 100, &body, err));
    CAIRN_RELEASED(release_verdict)
    struct verdict verdict = {.request = request, .with_grant = true};
    struct cairn_msg_rank_fail msg = {0};
    CAIRN_TRY(cairn_msg_rank_fail_read(body, "", &msg, err));
    verdict.reason = msg.reason;
    cairn_failure_get(body, "reason", &verdict.cause);
    /* Only the rank's own caller cares that it was cancelled; for other ranks it is an abort. */
    if (verdict.cause.code == CAIRN_INTERNAL || verdict.cause.code == CAIRN_CANCELLED)
        verdict.cause.code = CAIRN_ABORTED;
    CAIRN_TRY(srv_grant_read(request, msg.grant, &verdict.grant, err));
    snprintf(verdict.full_reason, sizeof(verdict.full_reason), "rank %u on node %s: %s", msg.rank,
             msg.node, verdict.reason);
    return serve_give_up(&verdict, "save.failed", 200, reply, err);
}

SRV_HANDLER(abort) {
    CAIRN_TRY(srv_thawed(request->server, err));
    CAIRN_AUTO_JSON json_t *body = NULL;
    if (request->body.size) CAIRN_TRY(srv_body(request, 100, &body, err));
    CAIRN_RELEASED(release_verdict) struct verdict verdict = {.request = request};
    struct cairn_msg_abort msg = {.reason = "given up by hand"};
    if (body) CAIRN_TRY(cairn_msg_abort_read(body, "", &msg, err));
    verdict.reason = msg.reason;
    /* Without a grant an operator's call; a grant may only abort a save of its own attempt. */
    verdict.with_grant = msg.grant != NULL;
    if (msg.grant) CAIRN_TRY(srv_grant_read(request, msg.grant, &verdict.grant, err));
    snprintf(verdict.full_reason, sizeof(verdict.full_reason), "aborted: %s", verdict.reason);
    return serve_give_up(&verdict, "save.aborted", 202, reply, err);
}

/* ---- commit by hand ---- */

#define EVENTS_LOOKED_AT 1000 /* a version has a handful */

static enum cairn_code see_asked(const struct srv_event_row *row, void *owner,
                                 struct cairn_error *err) {
    struct verdict *verdict = owner;
    (void)err;
    const char *asked = srv_event_name(SRV_EVENT_CHECKPOINT_COMMIT_ASKED);
    verdict->asked |= !strcmp(row->event, asked);
    return CAIRN_OK;
}

static enum cairn_code look_whether_asked(struct srv_tx *tx, struct verdict *verdict,
                                          struct cairn_error *err) {
    const struct srv_events_query query = {.name = &verdict->version.name,
                                           .version = verdict->version.id.text,
                                           .limit = EVENTS_LOOKED_AT};
    verdict->asked = false;
    return srv_events_read(tx, &query, see_asked, verdict, err);
}

/* Adds the event commit-asked to the version's history once, however often it is asked. */
SRV_CHANGE(note_asked, struct verdict *verdict) {
    CAIRN_TRY(look_whether_asked(tx, verdict, err));
    if (verdict->asked) return CAIRN_OK;
    return srv_event_of_version(tx, SRV_EVENT_CHECKPOINT_COMMIT_ASKED, verdict->version.id.text,
                                CAIRN_OK, NULL, err);
}

static enum cairn_code look_at_commit(struct verdict *verdict, struct cairn_error *err) {
    SRV_LOOK(look, verdict->request->server->catalog, err);
    CAIRN_TRY(srv_save_version(look.tx, verdict->request, &verdict->version, err));
    CAIRN_TRY(srv_version_there(&verdict->version, err));
    CAIRN_TRY(srv_version_json(look.tx, &verdict->version, NULL, &verdict->shown, err));
    CAIRN_TRY(look_whether_asked(look.tx, verdict, err));
    if (verdict->version.state != CAIRN_STATE_OPEN) return CAIRN_OK;
    CAIRN_TRY(srv_save_admit(look.tx, &verdict->grant, &verdict->version, err));
    CAIRN_TRY(srv_version_whole(look.tx, &verdict->version, &verdict->whole, err));
    if (verdict->whole) return CAIRN_OK;
    uint32_t unsealed = 0;
    verdict->missing = json_array();
    const char *id = verdict->version.id.text;
    CAIRN_TRY(srv_shards_count(look.tx, id, &verdict->expected, &verdict->present, err));
    CAIRN_TRY(srv_shards_missing(look.tx, id, verdict->missing, err));
    size_t shown = cairn_min_u64(json_array_size(verdict->missing), SRV_UNSEALED_MAX);
    return srv_save_unsealed(look.tx, &verdict->version, SRV_UNSEALED_MAX - shown, verdict->missing,
                             &unsealed, err);
}

static enum cairn_code serve_commit(struct verdict *verdict, struct srv_reply *reply,
                                    struct cairn_error *err) {
    struct srv_request *request = verdict->request;
    CAIRN_TRY(look_at_commit(verdict, err));
    const struct srv_version *version = &verdict->version;
    if (version->state != CAIRN_STATE_OPEN && version->state != CAIRN_STATE_COMMITTED)
        return cairn_fail(err, CAIRN_ABORTED, "%s was given up: %s", version->id.text,
                          version->reason);
    if (version->state == CAIRN_STATE_OPEN && !verdict->whole) {
        srv_reply_extra(reply, "expected", json_integer((json_int_t)verdict->expected));
        srv_reply_extra(reply, "present", json_integer((json_int_t)verdict->present));
        srv_reply_extra(reply, "missing", json_incref(verdict->missing));
        return cairn_fail(err, CAIRN_INCOMPLETE,
                          "step %" PRIu64 " has %" PRIu64 " of %" PRIu64
                          " shards, or ranks that have not sealed",
                          version->step, verdict->present, verdict->expected);
    }
    if (!verdict->asked)
        CAIRN_TRY(srv_catalog_write(request->server->catalog, note_asked, verdict, err));
    if (version->state == CAIRN_STATE_COMMITTED && version->recorded)
        return srv_reply_json(reply, 200, CAIRN_TAKE(verdict->shown), err);
    if (srv_mono_ms(request->server) >= request->arrived_ms + CAIRN_WAIT_MS_MAX / 2)
        return cairn_fail(err, CAIRN_TIMEOUT, "the commit of %s is still under way",
                          version->id.text);
    srv_jobs_commit(request->server, version->id.text);
    reply->park = reply->rung = true;
    reply->park_key = srv_key_of(version->id.text);
    reply->park_until_ms = request->arrived_ms + CAIRN_WAIT_MS_MAX / 2;
    return CAIRN_OK;
}

SRV_HANDLER(commit) {
    CAIRN_TRY(srv_thawed(request->server, err));
    CAIRN_AUTO_JSON json_t *body = NULL;
    CAIRN_TRY(srv_body(request, 100, &body, err));
    CAIRN_RELEASED(release_verdict) struct verdict verdict = {.request = request};
    struct cairn_msg_commit msg = {0};
    CAIRN_TRY(cairn_msg_commit_read(body, "", &msg, err));
    CAIRN_TRY(srv_grant_read(request, msg.grant, &verdict.grant, err));
    return serve_commit(&verdict, reply, err);
}

/* ---- delete and undelete ---- */

/* `latest` moves with each deletion, so a call that names it must say by If-Match which version it
 * means; for other names If-Match is optional. request NULL: a bulk deletion, which names ids. */
static enum cairn_code judge_name(const struct srv_request *request,
                                  const struct srv_version *version, struct cairn_error *err) {
    char tag[CAIRN_VERSION_ID_BYTES + 2];
    if (!request) return CAIRN_OK;
    snprintf(tag, sizeof(tag), "\"%s\"", version->id.text);
    bool names_one = request->if_match[0] && strcmp(request->if_match, "*") != 0;
    if (names_one && !srv_tag_listed(request->if_match, tag, false))
        return cairn_fail(err, CAIRN_PRECONDITION, "%s is %s", request->params.ref, tag);
    bool moves = !strcmp(request->params.ref, "latest") || !strcmp(request->params.ref, "best");
    if (names_one || !moves) return CAIRN_OK;
    return cairn_fail(err, CAIRN_INVALID,
                      "`%s` means another version after each removal: name %s or its step, or "
                      "send If-Match: %s",
                      request->params.ref, version->id.text, tag);
}

static enum cairn_code find_deletable(struct srv_tx *tx, struct verdict *verdict,
                                      struct cairn_error *err) {
    const struct srv_trash_one *one = verdict->one;
    srv_version_release(&verdict->version);
    struct srv_ref ref = {one->name, verdict->id ? verdict->id : one->ref, true};
    if (one->first) CAIRN_TRY(one->first(tx, one->argument, err));
    CAIRN_TRY(srv_version_find(tx, &ref, &verdict->version, err));
    CAIRN_TRY(judge_name(verdict->request, &verdict->version, err));
    CAIRN_TRY(srv_version_there(&verdict->version, err));
    if (verdict->version.state == CAIRN_STATE_COMMITTED && verdict->version.recorded)
        return CAIRN_OK;
    return cairn_fail(err, CAIRN_NOT_COMMITTED,
                      "%s is %s: only committed versions are deleted; "
                      "cairn abort, or POST .../abort, gives an open one up",
                      verdict->version.id.text,
                      cairn_state_text(srv_version_shown(&verdict->version)));
}

static enum cairn_code show_again(struct srv_tx *tx, struct verdict *verdict,
                                  struct cairn_error *err) {
    struct cairn_version_id id = verdict->version.id;
    srv_version_release(&verdict->version);
    CAIRN_TRY(srv_version_get(tx, id.text, &verdict->version, err));
    json_decref(verdict->shown);
    verdict->shown = NULL;
    return srv_version_json(tx, &verdict->version, NULL, &verdict->shown, err);
}

static enum cairn_code judge_aliases(struct srv_tx *tx, const struct srv_version *version,
                                     struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *aliases = NULL;
    CAIRN_TRY(srv_aliases_of_version(tx, version->id.text, &aliases, err));
    if (!json_array_size(aliases)) return CAIRN_OK;
    return cairn_fail(err, CAIRN_IN_USE, "the alias %s points at %s: let it point elsewhere first",
                      json_string_value(json_array_get(aliases, 0)), version->id.text);
}

static enum cairn_code find_for_trash(struct srv_tx *tx, struct verdict *verdict,
                                      struct cairn_error *err) {
    CAIRN_TRY(find_deletable(tx, verdict, err));
    bool needed = false;
    if (verdict->version.pinned)
        return cairn_fail(err, CAIRN_IN_USE, "%s is pinned: take the pin off first (cairn unpin)",
                          verdict->version.id.text);
    CAIRN_TRY(judge_aliases(tx, &verdict->version, err));
    if (!verdict->one->with_run) CAIRN_TRY(srv_version_needed(tx, &verdict->version, &needed, err));
    bool leased = false;
    CAIRN_TRY(srv_version_leased(tx, verdict->version.id.text, &leased, err));
    if (leased)
        return cairn_fail(err, CAIRN_IN_USE,
                          "%s is being read: its leases end by themselves (cairn lease ls)",
                          verdict->version.id.text);
    if (needed)
        return cairn_fail(err, CAIRN_IN_USE,
                          "the newest attempt resumed from %s and has committed nothing since",
                          verdict->version.id.text);
    return CAIRN_OK;
}

SRV_CHANGE(trash, struct verdict *verdict) {
    CAIRN_TRY(find_for_trash(tx, verdict, err));
    verdict->changed = !verdict->version.trashed;
    CAIRN_TRY(srv_ticks_advance(tx, verdict->one->server, err)); /* P8: the grace begins */
    CAIRN_TRY(srv_version_trash(tx, &verdict->version, verdict->one->reason, err));
    return show_again(tx, verdict, err);
}

SRV_CHANGE(untrash, struct verdict *verdict) {
    SRV_AUTO(run) run = {0}; /* revived where it was removed with its versions */
    CAIRN_TRY(find_deletable(tx, verdict, err));
    CAIRN_TRY(srv_run_get(tx, &verdict->version.name, &run, err));
    CAIRN_TRY(srv_run_revive(tx, &run, err));
    CAIRN_TRY(srv_version_untrash(tx, &verdict->version, err));
    return show_again(tx, verdict, err);
}

/* The store's mark precedes the row (records.h#1): a reader of the store alone sees no version that
 * this server has called trashed, and no version is deleted without a mark. */
static enum cairn_code mark_and_move(struct verdict *verdict, bool away, struct cairn_error *err) {
    struct srv *server = verdict->one->server;
    struct cairn_store_worker *worker = verdict->one->worker;
    struct cairn_version_id id;
    struct cairn_error unused = {0};
    SRV_LOOK(look, server->catalog, err);
    CAIRN_TRY((away ? find_for_trash : find_deletable)(look.tx, verdict, err));
    srv_look_release(&look);
    id = verdict->version.id;
    verdict->id = id.text;
    enum cairn_code code = srv_mark_trashed(worker, &verdict->version, away, err);
    CAIRN_CRASHPOINT("server.trash.after_mark");
    if (!code) code = srv_catalog_write(server->catalog, away ? trash : untrash, verdict, err);
    enum cairn_code settled = srv_mark_settle(server, worker, id.text, code ? &unused : err);
    verdict->id = NULL;
    return code ? code : settled;
}

static enum cairn_code serve_trash(struct srv_request *request, struct srv_reply *reply, bool away,
                                   struct cairn_error *err) {
    CAIRN_TRY(srv_thawed(request->server, err));
    const struct srv_trash_one one = {.server = request->server,
                                      .worker = request->store,
                                      .name = &request->params.run_name,
                                      .ref = request->params.ref,
                                      .reason = "by hand"};
    CAIRN_RELEASED(release_verdict) struct verdict verdict = {.request = request, .one = &one};
    const struct srv_version *version = &verdict.version;
    CAIRN_TRY(mark_and_move(&verdict, away, err));
    cairn_log(INFO, away ? "checkpoint.trashed" : "checkpoint.undeleted",
              "version=%s step=%" PRIu64, version->id.text, version->step);
    srv_waiters_wake_version(request->server->waiters, &version->id, &version->name);
    return srv_reply_json(reply, away ? 202 : 200, CAIRN_TAKE(verdict.shown), err);
}

enum cairn_code srv_trash_one(const struct srv_trash_one *one, struct srv_trashed *ret,
                              struct cairn_error *err) {
    CAIRN_RELEASED(release_verdict) struct verdict verdict = {.one = one};
    const struct srv_version *version = &verdict.version;
    CAIRN_TRY(mark_and_move(&verdict, true, err));
    *ret = (struct srv_trashed){version->id, version->step, version->bytes, verdict.changed};
    cairn_log(INFO, "checkpoint.trashed_with", "version=%s step=%" PRIu64, version->id.text,
              version->step);
    srv_waiters_wake_version(one->server->waiters, &version->id, &version->name);
    return CAIRN_OK;
}

SRV_HANDLER(checkpoint_delete) {
    return serve_trash(request, reply, true, err);
}

SRV_HANDLER(undelete) {
    return serve_trash(request, reply, false, err);
}
