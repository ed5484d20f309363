/* SPDX-License-Identifier: Apache-2.0 */
/* POST {R}/attempts: opening an attempt is the resume call (rules Q1-Q7). First a look: a known job
 * joins, an unseen one may have to wait (Q3). Then one transaction chooses, supersedes, aborts and
 * counts up (Q4). Then the record in the store, then the answer (Q5). */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "api/manifest.h"
#include "api/messages.h"
#include "common/clock.h"
#include "common/crashpoint.h"
#include "common/encode.h"
#include "common/log.h"
#include "common/rule.h"
#include "common/text.h"
#include "server/catalog/attempts.h"
#include "server/catalog/members.h"
#include "server/catalog/node_rows.h"
#include "server/catalog/version_lists.h"
#include "server/handlers/request.h"
#include "server/jobs/attempt_records.h"
#include "server/jobs/freeze.h"
#include "server/jobs/identity.h"
#include "server/jobs/jobs.h"
#include "server/jobs/record.h"
#include "server/nodes.h"
#include "server/pool.h"
#include "server/waiters.h"

#define BUSY_MS (10 * 60000) /* Q7 */
#define LOOK_AGAIN_MS 250    /* a node's silence ends a wait without anybody telling */
#define OPEN_TRIES_MAX 5     /* a commit may come between the records and the transaction */

struct ask {
    struct cairn_srv *server;
    const struct cairn_run_name *name;
    struct cairn_msg_attempt_open told;
    uint64_t wait_ms, arrived_ms;
    uint64_t left_ms; /* of the wait, when this call may not wait for longer */
    /* what the transaction found */
    bool known, must_wait;
    struct cairn_srv_run run;
    struct cairn_srv_attempt attempt;
    bool owed; /* a version was committed and has no record yet (Q52) */
    struct cairn_srv_ids superseded, aborted;
};

static bool resume_valid(const char *text) {
    uint64_t step = 0;
    return !strcmp(text, "latest") || !strcmp(text, "none") || !strcmp(text, "keep") ||
           cairn_version_id_valid(cairn_view_of(text)) ||
           (!cairn_parse_u64(cairn_view_of(text), &step, NULL) && step <= CAIRN_STEP_MAX);
}

static enum cairn_code parse(const json_t *body, struct ask *ask, struct cairn_error *err) {
    ask->told.resume = "latest";
    ask->told.wait_staged = "30s";
    ask->told.incarnation = "";
    CAIRN_TRY(cairn_msg_attempt_open_read(body, "", &ask->told, err));
    if (!ask->told.job[0]) return cairn_fail(err, CAIRN_INVALID, "/job is empty");
    if (!ask->told.world_size)
        return cairn_fail(err, CAIRN_INVALID, "/world_size must be at least 1");
    if (!cairn_name_valid(cairn_view_of(ask->told.node)))
        return cairn_fail(err, CAIRN_INVALID, "/node: " CAIRN_NAME_WANTED);
    if (!resume_valid(ask->told.resume))
        return cairn_fail(err, CAIRN_INVALID,
                          "/resume must be latest, none, keep, a step or a version id");
    enum cairn_code code =
        cairn_parse_duration(cairn_view_of(ask->told.wait_staged), &ask->wait_ms, err);
    if (code) return cairn_within(err, code, "/wait_staged");
    if (!CAIRN_RULE(Q51)) ask->wait_ms = cairn_min_u64(ask->wait_ms, CAIRN_WAIT_MS_MAX);
    return cairn_srv_members_check(ask->told.ranks, ask->told.ended, ask->told.world_size, err);
}

/* ---- a known job (Q2) ---- */

static enum cairn_code compare_known(const struct ask *ask, struct cairn_error *err) {
    const struct cairn_srv_attempt *attempt = &ask->attempt;
    if (attempt->number != ask->run.attempt)
        return cairn_fail(err, CAIRN_STALE_ATTEMPT,
                          "job \"%s\" opened attempt %" PRIu64 "; attempt %" PRIu64
                          " is the newest",
                          ask->told.job, attempt->number, ask->run.attempt);
    if (attempt->world_size != ask->told.world_size)
        return cairn_fail(err, CAIRN_ATTEMPT_DIFFERS,
                          "job \"%s\" was opened with world size %" PRIu64 ", not %" PRIu64,
                          ask->told.job, attempt->world_size, ask->told.world_size);
    /* "": taken over from the store (reconcile) */
    if (attempt->resume[0] && strcmp(attempt->resume, ask->told.resume))
        return cairn_fail(err, CAIRN_ATTEMPT_DIFFERS,
                          "job \"%s\" was opened with resume \"%s\", not \"%s\"", ask->told.job,
                          attempt->resume, ask->told.resume);
    return CAIRN_OK;
}

/* Fills the answer's fields when the job is known; a mismatch fails. */
static enum cairn_code find_job(struct cairn_srv_tx *tx, struct ask *ask, struct cairn_error *err) {
    CAIRN_TRY(
        cairn_srv_attempt_of_job(tx, ask->run.id, ask->told.job, &ask->known, &ask->attempt, err));
    return ask->known ? compare_known(ask, err) : CAIRN_OK;
}

/* ---- Q3, Q7: may it be opened now? ---- */

struct nodes {
    const struct ask *ask;
    bool unsent; /* one that still has something unsent */
    bool busy;   /* one that was heard lately, with trainers */
};
static void look_at_node(void *argument, const char *node) {
    struct nodes *nodes = argument;
    const struct ask *ask = nodes->ask;
    if (CAIRN_RULE(Q3) && cairn_srv_node_unsent(ask->server, node, ask->name, ask->arrived_ms))
        nodes->unsent = true;
    if (cairn_srv_node_silence_ms(ask->server, node) < BUSY_MS &&
        cairn_srv_node_writes(ask->server, node, ask->name, ask->run.attempt))
        nodes->busy = true;
}

/* Q51: no call waits for longer than CAIRN_WAIT_MS_MAX; whoever asked for more asks again with
 * what is left, and until then nothing is given up. */
static enum cairn_code decide_wait(struct ask *ask, bool something, struct cairn_error *err) {
    uint64_t waited_ms = cairn_srv_mono_ms(ask->server) - ask->arrived_ms;
    ask->must_wait = something && waited_ms < cairn_min_u64(ask->wait_ms, CAIRN_WAIT_MS_MAX);
    if (!something || ask->must_wait || waited_ms >= ask->wait_ms) return CAIRN_OK;
    ask->left_ms = ask->wait_ms - waited_ms;
    return cairn_fail(err, CAIRN_BUSY,
                      "staged saves of attempt %" PRIu64 " are still on their way; ask again with "
                      "wait_staged %" PRIu64 "ms",
                      ask->run.attempt, ask->left_ms);
}

static enum cairn_code look(struct cairn_srv_tx *tx, void *argument, struct cairn_error *err) {
    struct ask *ask = argument;
    enum cairn_code code = cairn_srv_run_get(tx, ask->name, &ask->run, err);
    if (code == CAIRN_NOT_FOUND) return CAIRN_OK; /* the first attempt makes the run */
    if (code) return code;
    CAIRN_TRY(find_job(tx, ask, err));
    if (ask->known) return CAIRN_OK;
    if (ask->told.after != ask->run.attempt)
        return cairn_fail(err, CAIRN_ATTEMPT_MOVED,
                          "the newest attempt is %" PRIu64 ", the call names %" PRIu64,
                          ask->run.attempt, ask->told.after);
    bool staged = false;
    struct nodes nodes = {.ask = ask};
    CAIRN_TRY(
        cairn_srv_attempt_nodes(tx, ask->run.id, ask->run.attempt, look_at_node, &nodes, err));
    CAIRN_TRY(cairn_srv_run_has_staged(tx, ask->run.id, &staged, err));
    CAIRN_TRY(decide_wait(ask, staged || nodes.unsent, err));
    /* Judged on a heartbeat of after the call, so that a job that just ended is not in the way. */
    if (nodes.busy && !ask->must_wait && !strcmp(ask->told.resume, "keep") && !ask->told.force)
        return cairn_fail(err, CAIRN_RUN_BUSY,
                          "trainers of attempt %" PRIu64 " of %s/%s are connected to a node that "
                          "was heard within 10 minutes; end them, or force it",
                          ask->run.attempt, ask->name->project, ask->name->run);
    return CAIRN_OK;
}

/* ---- Q4: one transaction ---- */

static enum cairn_code take_choice(struct cairn_srv_tx *tx, struct ask *ask, const char *id,
                                   struct cairn_error *err) {
    CAIRN_AUTO(srv_version) version = {0};
    CAIRN_TRY(cairn_srv_version_get(tx, id, &version, err));
    if (version.run_id != ask->run.id)
        return cairn_fail(err, CAIRN_NOT_FOUND, "%s is not a version of this run", id);
    if (version.state != CAIRN_STATE_COMMITTED || !version.recorded) {
        CAIRN_TRY(cairn_srv_version_there(&version, err));
        return cairn_fail(err, CAIRN_NOT_COMMITTED, "%s is %s, not committed", id,
                          cairn_state_text(cairn_srv_version_shown(&version)));
    }
    if (version.trashed) return cairn_fail(err, CAIRN_DELETED, "%s is in the trash", id);
    ask->attempt.choice = version.id;
    ask->attempt.choice_step = version.step;
    ask->attempt.has_choice = true;
    return CAIRN_OK;
}

/* A step names its shown version, or a superseded one, which is revived (V6). */
static enum cairn_code choose_step(struct cairn_srv_tx *tx, struct ask *ask, uint64_t step,
                                   struct cairn_error *err) {
    struct cairn_version_id id;
    CAIRN_TRY(cairn_srv_version_resumable(tx, ask->run.id, step, &id, err));
    if (!id.text[0])
        return cairn_fail(err, CAIRN_NOT_FOUND,
                          "run %s/%s has no committed checkpoint of step %" PRIu64,
                          ask->name->project, ask->name->run, step);
    return take_choice(tx, ask, id.text, err);
}

static enum cairn_code choose(struct cairn_srv_tx *tx, struct ask *ask, struct cairn_error *err) {
    uint64_t step = 0;
    if (!strcmp(ask->told.resume, "none") || !strcmp(ask->told.resume, "keep")) return CAIRN_OK;
    if (!strcmp(ask->told.resume, "latest"))
        return cairn_srv_latest(tx, ask->run.id, &ask->attempt.has_choice, &ask->attempt.choice,
                                &ask->attempt.choice_step, err);
    if (!cairn_parse_u64(cairn_view_of(ask->told.resume), &step, NULL))
        return choose_step(tx, ask, step, err);
    return take_choice(tx, ask, ask->told.resume, err);
}

/* Committed versions that lie beyond the choice; `none` supersedes all, `keep` none. */
static enum cairn_code supersede(struct cairn_srv_tx *tx, struct ask *ask,
                                 struct cairn_error *err) {
    const struct cairn_srv_attempt *attempt = &ask->attempt;
    const struct cairn_version_id *choice = attempt->has_choice ? &attempt->choice : NULL;
    bool keep = !strcmp(ask->told.resume, "keep") || (!choice && strcmp(ask->told.resume, "none"));
    if (!keep)
        CAIRN_TRY(cairn_srv_versions_supersede_beyond(tx, ask->run.id, choice, attempt->choice_step,
                                                      &ask->superseded, err));
    return choice ? cairn_srv_version_revive(tx, choice->text, err) : CAIRN_OK;
}

static enum cairn_code abort_open(struct cairn_srv_tx *tx, struct ask *ask,
                                  struct cairn_error *err) {
    char reason[96];
    snprintf(reason, sizeof(reason), "attempt %" PRIu64 " took over before it was committed",
             ask->attempt.number);
    CAIRN_TRY(cairn_srv_versions_open_of_run(tx, ask->run.id, &ask->aborted, err));
    struct cairn_srv_move move = {CAIRN_EVENT_GIVE_UP, CAIRN_STALE_ATTEMPT, reason};
    for (size_t i = 0; i < ask->aborted.count; i++) {
        CAIRN_AUTO(srv_version) version = {0};
        CAIRN_TRY(cairn_srv_version_get(tx, ask->aborted.ids[i].text, &version, err));
        CAIRN_TRY(cairn_srv_version_move(tx, &version, &move, err));
    }
    return CAIRN_OK;
}

static enum cairn_code open_new(struct cairn_srv_tx *tx, struct ask *ask, struct cairn_error *err) {
    uint8_t nonce[16];
    struct cairn_srv_attempt *attempt = &ask->attempt;
    *attempt = (struct cairn_srv_attempt){.number = ask->run.attempt + 1,
                                          .world_size = ask->told.world_size};
    ask->server->random(nonce, sizeof(nonce));
    cairn_hex_encode(nonce, sizeof(nonce), attempt->nonce);
    (void)cairn_text_copy(attempt->resume, sizeof(attempt->resume), ask->told.resume);
    CAIRN_TRY(cairn_srv_tx_run_thawed(tx, ask->run.id, err));
    if (CAIRN_RULE(Q52)) CAIRN_TRY(cairn_srv_run_owes_record(tx, ask->run.id, &ask->owed, err));
    if (ask->owed)
        return cairn_fail(err, CAIRN_BUSY, "%s/%s has a commit whose record is being written",
                          ask->name->project, ask->name->run);
    CAIRN_TRY(choose(tx, ask, err));
    CAIRN_TRY(supersede(tx, ask, err));
    CAIRN_TRY(abort_open(tx, ask, err));
    CAIRN_TRY(cairn_srv_run_set_attempt(tx, ask->run.id, attempt->number, attempt->nonce, err));
    struct cairn_srv_attempt_new opened = {.attempt = attempt,
                                           .job = ask->told.job,
                                           .incarnation = ask->told.incarnation,
                                           .superseded = &ask->superseded,
                                           .wall_ms = cairn_srv_wall_ms(ask->server)};
    return cairn_srv_attempt_insert(tx, ask->run.id, &opened, err);
}

static void forget_answer(struct ask *ask) {
    cairn_srv_run_release(&ask->run);
    cairn_srv_ids_release(&ask->superseded);
    cairn_srv_ids_release(&ask->aborted);
    ask->attempt.has_choice = ask->known = false;
}

static enum cairn_code join_or_open(struct cairn_srv_tx *tx, void *argument,
                                    struct cairn_error *err) {
    struct ask *ask = argument;
    forget_answer(ask);
    int64_t wall_ms = cairn_srv_wall_ms(ask->server);
    CAIRN_TRY(cairn_srv_run_make(tx, ask->name, NULL, wall_ms, &ask->run, NULL, err));
    CAIRN_TRY(find_job(tx, ask, err));
    if (!ask->known) {
        if (ask->told.after != ask->run.attempt)
            return cairn_fail(err, CAIRN_ATTEMPT_MOVED,
                              "the newest attempt is %" PRIu64 ", the call names %" PRIu64,
                              ask->run.attempt, ask->told.after);
        CAIRN_TRY(open_new(tx, ask, err));
    }
    struct cairn_srv_joining joining = {
        .run_id = ask->run.id,
        .attempt = ask->attempt.number,
        .job = ask->told.job,
        .node = ask->told.node,
        .incarnation = ask->told.incarnation,
        .ranks = ask->told.ranks,
        /* It was said of the attempt that the caller saw. */
        .ended = ask->told.after == ask->attempt.number ? ask->told.ended : NULL};
    return cairn_srv_members_join(tx, &joining, err);
}

static enum cairn_code answer(const struct ask *ask, struct cairn_srv_reply *reply,
                              struct cairn_error *err) {
    const struct cairn_srv_attempt *attempt = &ask->attempt;
    struct cairn_grant grant = {.name = *ask->name, .attempt = attempt->number};
    (void)cairn_text_copy(grant.store_uuid, sizeof(grant.store_uuid), ask->server->store_uuid);
    (void)cairn_text_copy(grant.nonce, sizeof(grant.nonce), attempt->nonce);
    char text[CAIRN_GRANT_BYTES_MAX];
    cairn_grant_sign(&grant, ask->server->grant_key, text);
    bool found = attempt->has_choice;
    return cairn_srv_reply_json(
        reply, ask->known ? 200 : 201,
        CAIRN_PACK(attempt_opened, .attempt = attempt->number, .nonce = attempt->nonce,
                   .grant = text, .resume_version = found ? attempt->choice.text : NULL,
                   .resume_step = found ? attempt->choice_step : CAIRN_MESSAGE_NONE),
        err);
}

static void tell(const struct ask *ask) {
    cairn_log(INFO, "attempt.opened",
              "run=%s/%s attempt=%" PRIu64 " job=\"%s\" resume=%s aborted=%zu", ask->name->project,
              ask->name->run, ask->attempt.number, ask->told.job,
              ask->attempt.has_choice ? ask->attempt.choice.text : "nothing", ask->aborted.count);
    for (size_t i = 0; i < ask->aborted.count; i++)
        cairn_srv_waiters_tell(ask->server->waiters, ask->aborted.ids[i].text);
    cairn_srv_waiters_tell_run(ask->server->waiters, ask->name);
    if (ask->aborted.count) cairn_srv_jobs_sweep(ask->server);
}

/* Q52: what is resumed from, and what lies beyond it, is chosen among recorded versions; so the
 * records that are missing come first, and a commit that slips in between starts over. */
static enum cairn_code open_or_join(struct cairn_srv_request *request, struct ask *ask,
                                    struct cairn_error *err) {
    struct cairn_srv *server = ask->server;
    enum cairn_code code = CAIRN_OK;
    for (int i = 0; i < OPEN_TRIES_MAX; i++) {
        if (!ask->known && CAIRN_RULE(Q52))
            CAIRN_TRY(cairn_srv_record_write_missing(server, request->store, ask->name, err));
        ask->owed = false;
        code = cairn_srv_catalog_write(server->catalog, join_or_open, ask, err);
        if (!code || !ask->owed) return code;
    }
    return code;
}

struct node_row {
    const struct ask *ask;
    char *uploader;
};

static enum cairn_code put_node(struct cairn_srv_tx *tx, void *argument, struct cairn_error *err) {
    const struct node_row *row = argument;
    return cairn_srv_node_put(tx, row->ask->told.node, row->uploader,
                              cairn_srv_wall_ms(row->ask->server), err);
}

/* A node that was heard before it held a grant has no row yet, and only nodes with one are waited
 * for and missed (Q3, Q26). */
static enum cairn_code write_node(const struct ask *ask, struct cairn_error *err) {
    struct node_row row = {.ask = ask};
    if (!cairn_srv_node_joins(ask->server, ask->told.node, &row.uploader)) return CAIRN_OK;
    enum cairn_code code = cairn_srv_catalog_write(ask->server->catalog, put_node, &row, err);
    free(row.uploader);
    return code;
}

static enum cairn_code serve(struct cairn_srv_request *request, struct ask *ask,
                             struct cairn_srv_reply *reply, struct cairn_error *err) {
    struct cairn_srv *server = ask->server;
    CAIRN_TRY(cairn_srv_catalog_read(server->catalog, look, ask, err));
    if (ask->must_wait) {
        reply->park = true;
        reply->park_key = cairn_srv_key_of_run(ask->name);
        reply->park_until_ms =
            cairn_min_u64(cairn_srv_mono_ms(server) + LOOK_AGAIN_MS,
                          ask->arrived_ms + cairn_min_u64(ask->wait_ms, CAIRN_WAIT_MS_MAX));
        return CAIRN_OK;
    }
    /* Q35: a restored catalog must not count on. */
    if (!ask->known) CAIRN_TRY(cairn_srv_identity_compare(server, request->store, err));
    CAIRN_TRY(open_or_join(request, ask, err));
    if (!ask->known) tell(ask);
    CAIRN_TRY(write_node(ask, err));
    if (!ask->attempt.recorded)
        CAIRN_TRY(cairn_srv_attempt_records_write(server, request->store, ask->name, err));
    return answer(ask, reply, err);
}

enum cairn_code cairn_srv_on_attempt_open(struct cairn_srv_request *request,
                                          struct cairn_srv_reply *reply, struct cairn_error *err) {
    CAIRN_TRY(cairn_srv_thawed(request->server, err));
    CAIRN_AUTO_JSON json_t *body = NULL;
    CAIRN_TRY(cairn_srv_body(request, 5 * CAIRN_SRV_RANKS_MAX, &body, err));
    struct ask ask = {.server = request->server,
                      .name = &request->params.run_name,
                      .arrived_ms = request->arrived_ms};
    enum cairn_code code = parse(body, &ask, err);
    if (!code) code = serve(request, &ask, reply, err);
    if (code == CAIRN_ATTEMPT_MOVED || code == CAIRN_STALE_ATTEMPT)
        cairn_srv_reply_extra(reply, "newest", json_integer((json_int_t)ask.run.attempt));
    if (ask.left_ms) cairn_srv_reply_extra(reply, "left_ms", json_integer((json_int_t)ask.left_ms));
    forget_answer(&ask);
    return code;
}
