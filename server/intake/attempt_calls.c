/* SPDX-License-Identifier: Apache-2.0 */
/* POST {R}/attempts: opening an attempt is the resume call (rules Q1-Q7). A look: a known job
 * joins, a new one may have to wait (Q3). One transaction chooses, supersedes, aborts and counts up
 * (Q4). Then the record goes to the store, and the answer to the caller (Q5). */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "api/wire/messages.h"
#include "common/hooks.h"
#include "common/log.h"
#include "server/guard/identity.h"
#include "server/guard/records.h"
#include "server/http/request.h"
#include "server/http/waiters.h"
#include "server/ledger/attempts.h"
#include "server/ledger/version_lists.h"
#include "server/nodes/nodes.h"

#define BUSY_MS (10 * 60000) /* Q7 */
#define ROW_LATE_MS 120000   /* rows are written once a minute, ticks twice */
#define LOOK_AGAIN_MS 250    /* a node's silence ends a wait without waking its waiters */
#define WAIT_STAGED_MS 30000 /* default of the body */
#define OPEN_TRIES_MAX 5     /* a commit may slip in between the records and the transaction */

struct open_call {
    struct srv_request *request;
    bool shared;  /* nodes may report to other servers */
    uint64_t ask; /* the number to ask nodes with; 0: do not ask now */
    struct srv *server;
    const struct cairn_run_name *name;
    struct cairn_msg_attempt_open msg;
    uint64_t wait_ms, arrived_ms;
    uint64_t left_ms; /* what is left of wait_ms when this call may wait no longer */
    /* results of the transaction */
    bool known, must_wait;
    struct srv_run run;
    struct srv_attempt attempt;
    bool record_missing; /* a committed version has no record yet (Q52) */
    struct srv_ids superseded, aborted;
};

/* `keep` and `ahead` resume from nothing and supersede nothing. */
static bool keeps(const struct open_call *call) {
    return !strcmp(call->msg.resume, SRV_RESUME_KEEP) ||
           !strcmp(call->msg.resume, SRV_RESUME_AHEAD);
}

static bool resume_valid(const char *text) {
    uint64_t step = 0;
    return !strcmp(text, "latest") || !strcmp(text, "none") || !strcmp(text, SRV_RESUME_KEEP) ||
           !strcmp(text, SRV_RESUME_AHEAD) || cairn_version_id_valid(cairn_view_of(text)) ||
           (!cairn_parse_u64(cairn_view_of(text), &step, NULL) && step <= CAIRN_STEP_MAX);
}

static enum cairn_code parse(const json_t *body, struct open_call *call, struct cairn_error *err) {
    call->msg.resume = "latest";
    call->msg.wait_staged_ms = WAIT_STAGED_MS;
    call->msg.incarnation = "";
    CAIRN_TRY(cairn_msg_attempt_open_read(body, "", &call->msg, err));
    if (!call->msg.job[0]) return cairn_fail(err, CAIRN_INVALID, "/job: it is empty");
    if (!call->msg.world_size)
        return cairn_fail(err, CAIRN_INVALID, "/world_size: wanted at least 1");
    if (!cairn_name_valid(cairn_view_of(call->msg.node)))
        return cairn_fail(err, CAIRN_INVALID, "/node: " CAIRN_NAME_WANTED);
    if (!resume_valid(call->msg.resume))
        return cairn_fail(err, CAIRN_INVALID,
                          "/resume: wanted latest, none, keep, ahead, a step or a version id");
    call->wait_ms = call->msg.wait_staged_ms;
    if (!CAIRN_RULE(Q51)) call->wait_ms = cairn_min_u64(call->wait_ms, CAIRN_WAIT_MS_MAX);
    return srv_members_check(call->msg.ranks, call->msg.ended, call->msg.world_size, err);
}

/* ---- a known job (Q2) ---- */

static enum cairn_code compare_known(const struct open_call *call, struct cairn_error *err) {
    const struct srv_attempt *attempt = &call->attempt;
    if (attempt->number != call->run.attempt)
        return cairn_fail(err, CAIRN_STALE_ATTEMPT,
                          "job \"%s\" opened attempt %" PRIu64 "; attempt %" PRIu64
                          " is the newest",
                          call->msg.job, attempt->number, call->run.attempt);
    if (attempt->world_size != call->msg.world_size)
        return cairn_fail(err, CAIRN_ATTEMPT_DIFFERS,
                          "job \"%s\" was opened with world size %" PRIu64 ", not %" PRIu64,
                          call->msg.job, attempt->world_size, call->msg.world_size);
    /* "": reconcile took the attempt over from the store */
    if (attempt->resume[0] && strcmp(attempt->resume, call->msg.resume))
        return cairn_fail(err, CAIRN_ATTEMPT_DIFFERS,
                          "job \"%s\" was opened with resume \"%s\", not \"%s\"", call->msg.job,
                          attempt->resume, call->msg.resume);
    return CAIRN_OK;
}

/* Fills the answer's fields for a known job; a mismatch fails. */
static enum cairn_code find_job(struct srv_tx *tx, struct open_call *call,
                                struct cairn_error *err) {
    free(CAIRN_TAKE(call->attempt.weights));
    CAIRN_TRY(
        srv_attempt_of_job(tx, call->run.id, call->msg.job, &call->known, &call->attempt, err));
    return call->known ? compare_known(call, err) : CAIRN_OK;
}

/* ---- Q3, Q7: may the attempt be opened now? ---- */

struct nodes {
    const struct open_call *call;
    uint64_t tick, asked; /* asked: the highest number that a node was asked with */
    bool unsent;          /* a node has unsent bytes */
    bool silent;          /* a node has not reported since the call */
    bool vouched;         /* a node has reported since the call that all is sent */
    bool busy;            /* a node with trainers was heard within BUSY_MS */
    bool ask_again;       /* a node has answered, but still has unsent bytes */
};

static bool is_silent(const struct nodes *nodes, const struct srv_node_mark *node) {
    const struct open_call *call = nodes->call;
    uint64_t row_ms = nodes->tick - cairn_min_u64(nodes->tick, node->last_tick);
    uint64_t asked_ms = srv_mono_ms(call->server) - call->request->asked_ms;
    uint64_t silent_ms = call->server->settings->resume_silence_ms;
    bool unanswered = node->asked > node->answered && asked_ms >= silent_ms;
    if (srv_node_silence_ms(call->server, node->node) < silent_ms) return false;
    return row_ms >= silent_ms + ROW_LATE_MS || (unanswered && row_ms >= silent_ms);
}

/* The node may send its heartbeats to another server, which answers through the node's row. */
static void look_at_shared(struct nodes *nodes, const struct srv_node_mark *node) {
    const struct open_call *call = nodes->call;
    bool unsent = false, writes = false;
    uint64_t asked = call->request->asked;
    bool answered = asked && node->answered >= asked;
    nodes->asked = cairn_max_u64(nodes->asked, node->asked);
    if (answered) srv_node_read_said(node->said, call->name, call->run.attempt, &unsent, &writes);
    nodes->ask_again |= answered && unsent && node->asked == node->answered;
    bool said = (answered && !unsent) ||
                srv_node_sent_all(call->server, node->node, call->name, call->arrived_ms);
    bool missed = CAIRN_RULE(Q3) && !said && !node->away && !is_silent(nodes, node);
    nodes->vouched |= said && !node->away;
    nodes->unsent |= missed && answered;
    nodes->silent |= missed && !answered;
    nodes->busy |= writes;
}

static void look_at_node(struct nodes *nodes, const struct srv_node_mark *node) {
    const struct open_call *call = nodes->call;
    const char *name = node->node;
    if (call->shared)
        look_at_shared(nodes, node);
    else if (CAIRN_RULE(Q3) && srv_node_unsent(call->server, name, call->name, call->arrived_ms)) {
        bool heard = srv_node_heard_since(call->server, name, call->arrived_ms);
        nodes->unsent |= heard;
        nodes->silent |= !heard;
    } else {
        nodes->vouched |= srv_node_sent_all(call->server, name, call->name, call->arrived_ms) &&
                          srv_node_heard_since(call->server, name, call->arrived_ms);
    }
    if (srv_node_silence_ms(call->server, name) < BUSY_MS &&
        srv_node_writes(call->server, name, call->name, call->run.attempt))
        nodes->busy = true;
}

/* Q3: a version needs every rank of its attempt. Without an open version, a node with a rank of the
 * attempt that has reported all its begins shows that no silent node alone holds a save that every
 * rank has staged, so a silent (lost) node is not waited for. A call with `keep` or `ahead` must
 * know whether trainers still run (Q7), which no other node can say. */
static enum cairn_code waits_for_silent(struct srv_tx *tx, const struct open_call *call,
                                        const struct nodes *nodes, bool *ret,
                                        struct cairn_error *err) {
    bool open = true;
    *ret = nodes->silent;
    if (!nodes->silent || !nodes->vouched || keeps(call)) return CAIRN_OK;
    CAIRN_TRY(srv_run_has_open(tx, call->run.id, &open, err));
    *ret = open;
    return CAIRN_OK;
}

/* Q51: a call waits at most CAIRN_WAIT_MS_MAX; a caller with a longer wait repeats the call with
 * the rest, and until then no version is given up. */
static enum cairn_code decide_wait(struct open_call *call, bool something,
                                   struct cairn_error *err) {
    uint64_t waited_ms = srv_mono_ms(call->server) - call->arrived_ms;
    call->must_wait = something && waited_ms < cairn_min_u64(call->wait_ms, CAIRN_WAIT_MS_MAX);
    if (!something || call->must_wait || waited_ms >= call->wait_ms) return CAIRN_OK;
    call->left_ms = call->wait_ms - waited_ms;
    return cairn_fail(err, CAIRN_BUSY,
                      "staged saves of attempt %" PRIu64 " are still being sent; the same call "
                      "once more waits for them (%" PRIu64 " ms of its wait_staged_ms are left)",
                      call->run.attempt, call->left_ms);
}

/* Q2. A removed run is not found by name, so a caller that makes it again has seen no attempt. */
static enum cairn_code compare_newest(const struct open_call *call, bool removed,
                                      struct cairn_error *err) {
    if (call->msg.after == call->run.attempt || (removed && !call->msg.after)) return CAIRN_OK;
    return cairn_fail(err, CAIRN_ATTEMPT_MOVED,
                      "the newest attempt is %" PRIu64 ", the call names %" PRIu64,
                      call->run.attempt, call->msg.after);
}

static enum cairn_code read_attempt(struct open_call *call, struct cairn_error *err) {
    SRV_LOOK(scope, call->server->catalog, err);
    enum cairn_code code = srv_run_get(scope.tx, call->name, &call->run, err);
    if (code == CAIRN_NOT_FOUND) return CAIRN_OK; /* the first attempt makes the run */
    if (code) return code;
    CAIRN_TRY(find_job(scope.tx, call, err));
    if (call->known) return CAIRN_OK;
    CAIRN_TRY(compare_newest(call, call->run.removed, err));
    bool staged = false;
    struct nodes nodes = {.call = call, .tick = srv_tick(scope.tx)};
    SRV_GET(rows, rows, srv_attempt_nodes(scope.tx, call->run.id, call->run.attempt, &rows, err));
    SQL_EACH(&rows, err) {
        const struct srv_node_mark node = srv_row_node_mark(&rows);
        look_at_node(&nodes, &node);
    }
    call->ask = call->shared && (!call->request->asked || nodes.ask_again) ? nodes.asked + 1 : 0;
    CAIRN_TRY(srv_run_has_staged(scope.tx, call->run.id, &staged, err));
    bool silent = false;
    CAIRN_TRY(waits_for_silent(scope.tx, call, &nodes, &silent, err));
    CAIRN_TRY(decide_wait(call, staged || nodes.unsent || silent, err));
    /* Judged on heartbeats since the call, so that a job that has just ended does not block it. */
    if (nodes.busy && !call->must_wait && keeps(call) && !call->msg.force)
        return cairn_fail(err, CAIRN_RUN_BUSY,
                          "trainers of attempt %" PRIu64 " of %s/%s are connected to a node that "
                          "was heard within 10 minutes; end them, or force it",
                          call->run.attempt, call->name->project, call->name->run);
    return CAIRN_OK;
}

/* ---- Q4: one transaction ---- */

static enum cairn_code take_choice(struct srv_tx *tx, struct open_call *call, const char *id,
                                   struct cairn_error *err) {
    SRV_GET(version, version, srv_version_get(tx, id, &version, err));
    if (version.run_id != call->run.id)
        return cairn_fail(err, CAIRN_NOT_FOUND, "%s is not a version of this run", id);
    if (version.state != CAIRN_STATE_COMMITTED || !version.recorded) {
        CAIRN_TRY(srv_version_there(&version, err));
        return cairn_fail(err, CAIRN_NOT_COMMITTED, "%s is %s, not committed", id,
                          cairn_state_text(srv_version_shown(&version)));
    }
    if (version.trashed) return cairn_fail(err, CAIRN_DELETED, "%s is in the trash", id);
    call->attempt.choice = version.id;
    call->attempt.choice_step = version.step;
    call->attempt.has_choice = true;
    return CAIRN_OK;
}

/* The shown version of the step, or a superseded one, which is then revived (V6). */
static enum cairn_code choose_step(struct srv_tx *tx, struct open_call *call, uint64_t step,
                                   struct cairn_error *err) {
    struct cairn_version_id id;
    CAIRN_TRY(srv_version_resumable(tx, call->run.id, step, &id, err));
    if (!id.text[0])
        return cairn_fail(err, CAIRN_NOT_FOUND,
                          "run %s/%s has no committed checkpoint of step %" PRIu64,
                          call->name->project, call->name->run, step);
    return take_choice(tx, call, id.text, err);
}

static enum cairn_code choose(struct srv_tx *tx, struct open_call *call, struct cairn_error *err) {
    uint64_t step = 0;
    if (!strcmp(call->msg.resume, "none") || keeps(call)) return CAIRN_OK;
    if (!strcmp(call->msg.resume, "latest"))
        return srv_latest(tx, call->run.id, &call->attempt.has_choice, &call->attempt.choice,
                          &call->attempt.choice_step, err);
    if (!cairn_parse_u64(cairn_view_of(call->msg.resume), &step, NULL))
        return choose_step(tx, call, step, err);
    return take_choice(tx, call, call->msg.resume, err);
}

/* Supersedes committed versions beyond the choice; `none` all of them, `keep` and `ahead` none. */
static enum cairn_code supersede(struct srv_tx *tx, struct open_call *call,
                                 struct cairn_error *err) {
    const struct srv_attempt *attempt = &call->attempt;
    const struct cairn_version_id *choice = attempt->has_choice ? &attempt->choice : NULL;
    bool keep = keeps(call) || (!choice && strcmp(call->msg.resume, "none"));
    if (!keep)
        CAIRN_TRY(srv_versions_supersede_beyond(tx, call->run.id, choice, attempt->choice_step,
                                                &call->superseded, err));
    return choice ? srv_version_revive(tx, choice->text, err) : CAIRN_OK;
}

static enum cairn_code abort_open(struct srv_tx *tx, struct open_call *call,
                                  struct cairn_error *err) {
    char reason[96];
    snprintf(reason, sizeof(reason), "attempt %" PRIu64 " took over before it was committed",
             call->attempt.number);
    CAIRN_TRY(srv_versions_open_of_run(tx, call->run.id, &call->aborted, err));
    struct srv_move move = {CAIRN_EVENT_GIVE_UP, CAIRN_STALE_ATTEMPT, reason};
    for (size_t i = 0; i < call->aborted.count; i++) {
        SRV_GET(version, version, srv_version_get(tx, call->aborted.ids[i].text, &version, err));
        CAIRN_TRY(srv_version_move(tx, &version, &move, err));
    }
    return CAIRN_OK;
}

static enum cairn_code open_new(struct srv_tx *tx, struct open_call *call,
                                struct cairn_error *err) {
    uint8_t nonce[16];
    struct srv_attempt *attempt = &call->attempt;
    *attempt =
        (struct srv_attempt){.number = call->run.attempt + 1, .world_size = call->msg.world_size};
    call->server->random(nonce, sizeof(nonce));
    cairn_hex_encode(nonce, sizeof(nonce), attempt->nonce);
    (void)cairn_text_copy(attempt->resume, sizeof(attempt->resume), call->msg.resume);
    CAIRN_TRY(srv_tx_run_thawed(tx, call->run.id, err));
    if (CAIRN_RULE(Q52))
        CAIRN_TRY(srv_run_misses_record(tx, call->run.id, &call->record_missing, err));
    if (call->record_missing)
        return cairn_fail(err, CAIRN_BUSY, "%s/%s has a commit whose record is being written",
                          call->name->project, call->name->run);
    CAIRN_TRY(srv_weights(tx, call->run.id, call->run.attempt, attempt->world_size,
                          &attempt->weights, err));
    CAIRN_TRY(choose(tx, call, err));
    CAIRN_TRY(supersede(tx, call, err));
    CAIRN_TRY(abort_open(tx, call, err));
    CAIRN_TRY(srv_run_set_attempt(tx, call->run.id, attempt->number, attempt->nonce, err));
    srv_notify_run(tx, call->name);
    struct srv_attempt_new opened = {.attempt = attempt,
                                     .job = call->msg.job,
                                     .incarnation = call->msg.incarnation,
                                     .superseded = &call->superseded,
                                     .wall_ms = srv_wall_ms(call->server)};
    return srv_attempt_insert(tx, call->run.id, &opened, err);
}

static void forget_answer(struct open_call *call) {
    free(CAIRN_TAKE(call->attempt.weights));
    srv_run_release(&call->run);
    srv_ids_release(&call->superseded);
    srv_ids_release(&call->aborted);
    call->attempt.has_choice = call->known = false;
}

SRV_CHANGE(join_or_open, struct open_call *call) {
    forget_answer(call);
    int64_t wall_ms = srv_wall_ms(call->server);
    bool made = false;
    CAIRN_TRY(srv_run_make(tx, call->name, NULL, wall_ms, &call->run, &made, err));
    CAIRN_TRY(find_job(tx, call, err));
    if (!call->known) {
        CAIRN_TRY(compare_newest(call, made, err));
        CAIRN_TRY(open_new(tx, call, err));
    }
    struct srv_joining joining = {.run_id = call->run.id,
                                  .attempt = call->attempt.number,
                                  .job = call->msg.job,
                                  .node = call->msg.node,
                                  .incarnation = call->msg.incarnation,
                                  .ranks = call->msg.ranks,
                                  /* `ended` reports on the attempt that the caller saw. */
                                  .ended = call->msg.after == call->attempt.number ? call->msg.ended
                                                                                   : NULL};
    return srv_members_join(tx, &joining, err);
}

static enum cairn_code answer(const struct open_call *call, struct srv_reply *reply,
                              struct cairn_error *err) {
    const struct srv_attempt *attempt = &call->attempt;
    struct cairn_grant grant = {.name = *call->name, .attempt = attempt->number};
    (void)cairn_text_copy(grant.store_uuid, sizeof(grant.store_uuid), call->server->store_uuid);
    (void)cairn_text_copy(grant.nonce, sizeof(grant.nonce), attempt->nonce);
    char text[CAIRN_GRANT_BYTES_MAX];
    cairn_grant_sign(&grant, call->server->grant_key, text);
    bool found = attempt->has_choice;
    return srv_reply_json(
        reply, call->known ? 200 : 201,
        CAIRN_PACK(attempt_opened, .attempt = attempt->number, .nonce = attempt->nonce,
                   .grant = text, .resume_version = found ? attempt->choice.text : NULL,
                   .resume_step = found ? attempt->choice_step : CAIRN_MESSAGE_NONE,
                   .weights = attempt->weights && *attempt->weights ? attempt->weights : NULL),
        err);
}

static void announce(const struct open_call *call) {
    cairn_log(
        INFO, "attempt.opened", "run=%s/%s attempt=%" PRIu64 " job=\"%s\" resume=%s aborted=%zu",
        call->name->project, call->name->run, call->attempt.number, call->msg.job,
        call->attempt.has_choice ? call->attempt.choice.text : "nothing", call->aborted.count);
    for (size_t i = 0; i < call->aborted.count; i++)
        srv_waiters_wake(call->server->waiters, call->aborted.ids[i].text);
    srv_waiters_wake_run(call->server->waiters, call->name);
    if (call->aborted.count) srv_jobs_sweep(call->server);
}

/* Q52: the choice is made among recorded versions, so missing records are written first; if a
 * commit slips in between, the loop starts over. */
static enum cairn_code open_or_join(struct srv_request *request, struct open_call *call,
                                    struct cairn_error *err) {
    struct srv *server = call->server;
    enum cairn_code code = CAIRN_OK;
    for (int i = 0; i < OPEN_TRIES_MAX; i++) {
        if (!call->known && CAIRN_RULE(Q52))
            CAIRN_TRY(srv_record_write_missing(server, request->store, call->name, err));
        call->record_missing = false;
        code = srv_catalog_write(server->catalog, join_or_open, call, err);
        if (!code || !call->record_missing) return code;
    }
    return code;
}

SRV_CHANGE(ask, const struct open_call *call) {
    return srv_nodes_ask(tx, call->run.id, call->run.attempt, call->ask, !call->request->asked,
                         err);
}

/* Asks all nodes once per call, then again those that had unsent bytes. */
static enum cairn_code ask_nodes(struct open_call *call, struct cairn_error *err) {
    if (!call->ask || !call->must_wait) return CAIRN_OK;
    CAIRN_TRY(srv_catalog_write(call->server->catalog, ask, call, err));
    if (call->request->asked) return CAIRN_OK;
    call->request->asked = call->ask;
    call->request->asked_ms = srv_mono_ms(call->server);
    return CAIRN_OK;
}

/* Q3: the caller's node reports with the call, so that this and other nodes' calls do not wait for
 * its heartbeat. Only once: when a woken call runs again, the report is old. */
static enum cairn_code take_said(struct open_call *call, struct cairn_error *err) {
    struct cairn_msg_attempt_said said = {0};
    if (!call->msg.said || call->request->node_said) return CAIRN_OK;
    CAIRN_TRY(cairn_msg_attempt_said_read(call->msg.said, "/said", &said, err));
    call->request->node_said = true;
    const struct srv_run_report report = {.run = *call->name,
                                          .attempt = call->msg.after,
                                          .unsent = said.unsent,
                                          .released = !said.holds};
    if (srv_node_says(call->server, call->msg.node, &report))
        srv_waiters_wake_run(call->server->waiters, call->name);
    return CAIRN_OK;
}

struct node_row {
    const struct open_call *call;
    char *uploader;
};

SRV_CHANGE(put_node, const struct node_row *row) {
    return srv_node_put(tx, row->call->msg.node, row->uploader, srv_wall_ms(row->call->server),
                        false, err);
}

/* Writes the row of a node heard before its grant; only nodes with rows are awaited (Q3, Q26). */
static enum cairn_code write_node(const struct open_call *call, struct cairn_error *err) {
    struct node_row row = {.call = call};
    if (!srv_node_joins(call->server, call->msg.node, &row.uploader)) return CAIRN_OK;
    enum cairn_code code = srv_catalog_write(call->server->catalog, put_node, &row, err);
    if (code) srv_node_row_failed(call->server, call->msg.node);
    free(row.uploader);
    return code;
}

static enum cairn_code serve_attempt(struct srv_request *request, struct open_call *call,
                                     struct srv_reply *reply, struct cairn_error *err) {
    struct srv *server = call->server;
    CAIRN_TRY(take_said(call, err));
    CAIRN_TRY(read_attempt(call, err));
    CAIRN_TRY(ask_nodes(call, err));
    if (call->must_wait) {
        reply->park = true;
        reply->park_key = srv_key_of_run(call->name);
        reply->park_until_ms =
            cairn_min_u64(srv_mono_ms(server) + LOOK_AGAIN_MS,
                          call->arrived_ms + cairn_min_u64(call->wait_ms, CAIRN_WAIT_MS_MAX));
        return CAIRN_OK;
    }
    /* Q35: a restored catalog must not open new attempts. */
    if (!call->known) CAIRN_TRY(srv_identity_compare(server, request->store, err));
    CAIRN_TRY(open_or_join(request, call, err));
    if (!call->known) announce(call);
    CAIRN_TRY(write_node(call, err));
    if (!call->attempt.recorded)
        CAIRN_TRY(srv_attempt_records_write(server, request->store, call->name, err));
    return answer(call, reply, err);
}

SRV_HANDLER(attempt_open) {
    CAIRN_TRY(srv_thawed(request->server, err));
    CAIRN_AUTO_JSON json_t *body = NULL;
    CAIRN_TRY(srv_body(request, 5 * SRV_RANKS_MAX, &body, err));
    struct open_call call = {.server = request->server,
                             .request = request,
                             .shared = srv_catalog_is_shared(request->server->catalog),
                             .name = &request->params.run_name,
                             .arrived_ms = request->arrived_ms};
    enum cairn_code code = parse(body, &call, err);
    if (!code) code = serve_attempt(request, &call, reply, err);
    if (code == CAIRN_ATTEMPT_MOVED || code == CAIRN_STALE_ATTEMPT)
        srv_reply_extra(reply, "newest", json_integer((json_int_t)call.run.attempt));
    if (call.left_ms) srv_reply_extra(reply, "left_ms", json_integer((json_int_t)call.left_ms));
    forget_answer(&call);
    return code;
}
