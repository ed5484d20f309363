/* SPDX-License-Identifier: Apache-2.0 */
/* The attempt call: a request of a helper for all ranks of the node that ask the same. */
#include "uploader/trainers/attempt_call.h"

#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "api/wire/messages.h"
#include "api/wire/routes.h"
#include "common/hooks.h"
#include "common/log.h"
#include "common/text.h"
#include "uploader/journal/journal.h"
#include "uploader/saves/ended.h"
#include "uploader/send/store_check.h"
#include "uploader/server/outcome.h"
#include "uploader/server/watch.h"
#include "uploader/trainers/inside.h"

#define RETRY_PAUSE_MS 100
#define ANSWER_MS 20000

/* ---- the attempt call ---- */

void cairn_up_attempt_call_free(struct cairn_up_attempt_call *call) {
    if (!call) return;
    if (call->process >= 0) close(call->process);
    free(call->job);
    free(call->resume);
    free(call->incarnation);
    free(call->weights);
    json_decref(call->counts);
    free(call);
}

static enum cairn_code newest_attempt(const struct cairn_up_attempt_call *call,
                                      struct cairn_rest *rest, uint64_t answer_by_ms,
                                      uint64_t *ret, struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *reply = NULL;
    CAIRN_AUTO(buf) path = {0};
    CAIRN_TRY(cairn_buf_printf(&path, err, "/v1/runs/%s", call->run_text));
    enum cairn_code code = cairn_rest_call(rest, "GET", path.data, NULL,
                                           cairn_up_call_ms(answer_by_ms, 0), &reply, err);
    code = cairn_up_heard(rest, code, err);
    *ret = 0;
    if (code == CAIRN_NOT_FOUND) return CAIRN_OK; /* the first attempt makes the run */
    if (code != CAIRN_OK) return code;
    struct cairn_msg_run_got told = {0};
    CAIRN_TRY(cairn_msg_run_got_read(reply, "", &told, err));
    *ret = told.attempt;
    return CAIRN_OK;
}

static enum cairn_code read_answer(const json_t *reply, struct cairn_up_attempt_call *call,
                                   struct cairn_error *err) {
    struct cairn_msg_attempt_opened told = {.resume_step = call->resume_step};
    CAIRN_TRY(cairn_msg_attempt_opened_read(reply, "", &told, err));
    call->resume_step = told.resume_step;
    (void)cairn_text_copy(call->grant, sizeof(call->grant), told.grant);
    (void)cairn_text_copy(call->resume_version, sizeof(call->resume_version),
                          told.resume_version ? told.resume_version : "");
    call->found = told.resume_version != NULL;
    free(call->weights);
    call->weights = told.weights ? strdup(told.weights) : NULL;
    if (told.weights && !call->weights)
        return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for an attempt");
    return CAIRN_OK;
}

/* Q54: whose process of this node has ended, of the attempt that may be joined. */
static json_t *ended_of(struct cairn_up_attempt_call *call, uint64_t newest) {
    struct cairn_up *up = call->up;
    CAIRN_HOLD(&up->lock);
    for (const struct cairn_up_attempt *at = up->locked.attempts; at; at = at->next)
        if (!strcmp(at->run_text, call->run_text) && at->grant.attempt == newest)
            return cairn_up_ended_ranks_locked(up, at);
    return NULL;
}

/* Q3: what a heartbeat of now would say of the run, so that the server need not wait for one. */
static json_t *said_of(struct cairn_up_attempt_call *call, uint64_t newest) {
    struct cairn_up *up = call->up;
    uint64_t unsent = 0;
    bool holds = false;
    CAIRN_HOLD(&up->lock);
    for (size_t i = 0; i < up->locked.save_count; i++) {
        const struct cairn_up_save *save = up->locked.saves[i];
        unsent += !strcmp(save->attempt->run_text, call->run_text) &&
                  cairn_up_save_state_is_unsent(&save->state);
    }
    for (const struct cairn_up_attempt *at = up->locked.attempts; at; at = at->next)
        holds |= at->grant.attempt == newest && !strcmp(at->run_text, call->run_text) &&
                 cairn_up_ended_holds_locked(up, at);
    return CAIRN_PACK(attempt_said, .unsent = unsent, .holds = holds);
}

uint32_t cairn_up_attempt_call_timeout_ms(uint64_t left_ms) {
    return (uint32_t)cairn_min_u64(left_ms, CAIRN_WAIT_MS_MAX) + ANSWER_MS;
}

/* The latest of the chain: nobody's call ends for the sake of one that waits less. */
static uint64_t chain_answer_by_ms(const struct cairn_up_attempt_call *chain) {
    uint64_t latest_ms = 0;
    for (const struct cairn_up_attempt_call *at = chain; at; at = at->next) {
        if (!at->answer_by_ms) return 0;
        latest_ms = cairn_max_u64(latest_ms, at->answer_by_ms);
    }
    return latest_ms;
}

static json_t *ranks_of(const struct cairn_up_attempt_call *chain) {
    json_t *ranks = json_array();
    for (const struct cairn_up_attempt_call *at = chain; at; at = at->next)
        json_array_append_new(ranks, CAIRN_PACK(attempt_rank, .rank = at->rank, .proc = at->proc));
    return ranks;
}

static enum cairn_code post_attempt(struct cairn_up_attempt_call *call, struct cairn_rest *rest,
                                    uint64_t left_ms, struct cairn_error *err) {
    uint64_t after = 0, answer_by_ms = chain_answer_by_ms(call);
    uint32_t usual_ms = cairn_up_attempt_call_timeout_ms(left_ms);
    CAIRN_TRY(newest_attempt(call, rest, answer_by_ms, &after, err));
    CAIRN_AUTO_JSON json_t *reply = NULL;
    CAIRN_AUTO_JSON json_t *ranks = ranks_of(call), *ended = ended_of(call, after),
                           *said = said_of(call, after);
    CAIRN_AUTO_JSON json_t *body = CAIRN_PACK(
        attempt_open, .job = call->job, .world_size = call->world_size, .resume = call->resume,
        .after = after, .wait_staged_ms = cairn_min_u64(left_ms, CAIRN_WAIT_STAGED_MS_MAX),
        .ranks = ranks, .node = call->up->places.node,
        .incarnation = call->incarnation, .ended = json_array_size(ended) ? ended : NULL,
        .said = said);
    CAIRN_AUTO(buf) path = {0};
    if (!body) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for an attempt");
    CAIRN_TRY(cairn_buf_printf(&path, err, "/v1/runs/%s/attempts", call->run_text));
    enum cairn_code code = cairn_rest_call(
        rest, "POST", path.data, body, cairn_up_call_ms(answer_by_ms, usual_ms), &reply, err);
    CAIRN_TRY(cairn_up_heard(rest, code, err));
    for (; call; call = call->next) CAIRN_TRY(read_answer(reply, call, err));
    return CAIRN_OK;
}

static void pause_ms(struct cairn_up *up, uint64_t ms) {
    CAIRN_HOLD(&up->lock);
    uint64_t until_ms = cairn_mono_ms() + ms;
    while (!up->locked.draining && cairn_condition_wait(&up->changed, &up->lock, until_ms))
        continue;
}

/* Q2: only a living process reads the newest attempt again and asks anew; a call for one that has
 * ended would take the run from whoever holds it now (V5). */
static bool lives(const struct cairn_up_attempt_call *call) {
    struct pollfd ended = {.fd = call->process, .events = POLLIN};
    return !CAIRN_RULE(Q2) || call->process < 0 || poll(&ended, 1, 0) <= 0;
}

static bool is_due(const struct cairn_up_attempt_call *chain) {
    uint64_t answer_by_ms = chain_answer_by_ms(chain);
    return answer_by_ms && cairn_mono_ms() >= answer_by_ms;
}

enum cairn_code cairn_up_attempt_call_send(struct cairn_up_helper *helper,
                                           struct cairn_up_attempt_call *call,
                                           struct cairn_error *err) {
    struct cairn_rest *rest = NULL;
    CAIRN_TRY(cairn_up_helper_rest(helper, &rest, err));
    uint64_t deadline_ms = cairn_mono_ms() + call->wait_ms;
    cairn_up_watch_hurry(helper->up->watch, true);
    enum cairn_code code = CAIRN_OK;
    for (;;) {
        uint64_t left_ms = cairn_deadline_left_ms(&cairn_clock_real, deadline_ms);
        code = lives(call) ? post_attempt(call, rest, left_ms, err)
                           : cairn_fail(err, CAIRN_CANCELLED, "the process of rank %u has ended",
                                        call->rank);
        bool again = code == CAIRN_ATTEMPT_MOVED || code == CAIRN_UNAVAILABLE ||
                     code == CAIRN_BUSY || code == CAIRN_TIMEOUT;
        if (code == CAIRN_OK || !again || !left_ms || is_due(call)) break;
        if (cairn_up_admits(helper->up, NULL) != CAIRN_OK) break;
        if (code != CAIRN_ATTEMPT_MOVED) pause_ms(helper->up, RETRY_PAUSE_MS);
    }
    cairn_up_watch_hurry(helper->up->watch, false);
    return code;
}

enum cairn_code cairn_up_attempt_call_settle(struct cairn_up_attempt_call *call,
                                             struct cairn_error *err) {
    struct cairn_up *up = call->up;
    struct cairn_grant grant;
    CAIRN_TRY(cairn_grant_parse(call->grant, &grant, err));
    CAIRN_TRY(cairn_up_store_check_grant(up, grant.store_uuid, err));
    call->entry = cairn_up_journal_entry_new(up->journal);
    CAIRN_AUTO_JSON json_t *message = CAIRN_PACK(
        record_session, .grant = call->grant, .rank = call->rank, .world_size = call->world_size,
        .job = call->job, .proc = call->proc, .process = call->process_name);
    struct cairn_up_record record = {.entry = call->entry, .message = message};
    CAIRN_TRY(cairn_up_journal_append(up->journal, &record, 1, err));
    CAIRN_HOLD(&up->lock);
    CAIRN_TRY(cairn_up_attempt_join(up, call->grant, &call->attempt, err));
    cairn_up_outcome_fence_locked(up, call->run_text, grant.attempt);
    return CAIRN_OK;
}

void cairn_up_attempt_call_adopt(struct cairn_up_session *session,
                                 struct cairn_up_attempt *take_attempt, uint64_t take_entry) {
    CAIRN_HOLD(&session->up->lock);
    cairn_up_attempt_leave(session->up, session->attempt);
    if (session->entry) {
        CAIRN_AUTO_JSON json_t *left = CAIRN_PACK(record_left, 0);
        struct cairn_up_record record = {.entry = session->entry, .closes = true, .message = left};
        cairn_up_journal_note(session->up->journal, &record, 1);
    }
    session->attempt = take_attempt;
    session->entry = take_entry;
    cairn_up_ended_back_locked(session->up, take_attempt, session->rank);
}

static void attempt_done(void *owner, struct cairn_up_session *session) {
    struct cairn_up_attempt_call *call = owner;
    struct cairn_up *up = call->up;
    if (session) session->attempting = false;
    if (call->code != CAIRN_OK) {
        cairn_up_mail_refuse(up->mail, call->conn, call->request, &call->error);
    } else if (session) {
        const struct cairn_grant *grant = &call->attempt->grant;
        cairn_up_attempt_call_adopt(session, call->attempt, call->entry);
        call->attempt = NULL;
        (void)cairn_text_copy(session->resume_version, sizeof(session->resume_version),
                              call->resume_version);
        session->resume_step = call->resume_step;
        session->resume_found = call->found;
        cairn_up_attempt_call_counts(call, session);
        cairn_up_mail_answer(up->mail, call->conn, call->request,
                             CAIRN_PACK(attempted, .attempt = grant->attempt, .nonce = grant->nonce,
                                        .found = call->found, .resume_step = call->resume_step,
                                        .resume_version = call->resume_version,
                                        .weights = call->weights));
    } else { /* the trainer is gone: nobody holds the right */
        cairn_up_attempt_call_abandon(call);
    }
    cairn_up_attempt_call_free(call);
}

/* Pairs of step and n, the newest step last; of other attempts nothing is kept. */
void cairn_up_attempt_call_counts(const struct cairn_up_attempt_call *call,
                                  struct cairn_up_session *session) {
    struct cairn_up_attempt *attempt = session->attempt;
    CAIRN_HOLD(&session->up->lock);
    const json_t *pairs = json_object_get(call->counts, attempt->grant.nonce);
    for (size_t i = 0; i < json_array_size(pairs) && i < CAIRN_UP_COUNTED_STEPS_MAX; i++) {
        const json_t *pair = json_array_get(pairs, i);
        json_int_t step = json_integer_value(json_array_get(pair, 0));
        json_int_t n = json_integer_value(json_array_get(pair, 1));
        if (step < 0 || (uint64_t)step > CAIRN_STEP_MAX || n < 1 || n > INT32_MAX) continue;
        cairn_up_attempt_count(attempt, session->rank, session->world_size, (uint64_t)step,
                               (uint32_t)n);
    }
}

void cairn_up_attempt_call_abandon(struct cairn_up_attempt_call *call) {
    struct cairn_up *up = call->up;
    const struct cairn_up_rank rank = {
        call->attempt,      call->rank,  call->world_size, call->proc,
        call->process_name, call->entry, call->process,    false};
    CAIRN_HOLD(&up->lock);
    cairn_up_ended_add_locked(up, &rank, false);
    call->attempt = NULL;
    call->process = -1;
}

/* ---- one call for all ranks of the node ---- */

struct cairn_up_attempt_batch {
    struct cairn_up_attempt_batch *next;
    struct cairn_up_attempt_call *chain; /* asked in this call; owned until it is answered */
    char run_text[2 * CAIRN_NAME_BYTES_MAX + 2];
    char *job, *resume, *incarnation; /* owned */
    uint32_t world_size;
};

static void batch_free(struct cairn_up_attempt_batch *batch) {
    free(batch->job);
    free(batch->resume);
    free(batch->incarnation);
    free(batch);
}

static bool is_alike(const struct cairn_up_attempt_batch *batch,
                     const struct cairn_up_attempt_call *call) {
    return !strcmp(batch->run_text, call->run_text) && !strcmp(batch->job, call->job) &&
           !strcmp(batch->resume, call->resume) && !strcmp(batch->incarnation, call->incarnation) &&
           batch->world_size == call->world_size;
}

static struct cairn_up_attempt_batch *batch_new(const struct cairn_up_attempt_call *call) {
    struct cairn_up_attempt_batch *batch = calloc(1, sizeof(*batch));
    if (!batch) return NULL;
    (void)cairn_text_copy(batch->run_text, sizeof(batch->run_text), call->run_text);
    batch->job = strdup(call->job);
    batch->resume = strdup(call->resume);
    batch->incarnation = strdup(call->incarnation);
    batch->world_size = call->world_size;
    if (batch->job && batch->resume && batch->incarnation) return batch;
    batch_free(batch);
    return NULL;
}

/* Calls that were queued during the last request join the chain; without any the batch ends. */
static bool gather_calls(struct cairn_up *up, struct cairn_up_attempt_batch *batch) {
    CAIRN_HOLD(&up->lock);
    struct cairn_up_attempt_call **end = &batch->chain;
    while (*end) end = &(*end)->next;
    for (struct cairn_up_attempt_call **at = &up->locked.attempt_calls; *at;) {
        struct cairn_up_attempt_call *call = *at;
        if (!is_alike(batch, call)) {
            at = &call->next;
            continue;
        }
        *at = call->next;
        call->next = NULL;
        *end = call;
        end = &call->next;
    }
    if (batch->chain) return true;
    struct cairn_up_attempt_batch **at = &up->locked.attempt_batches;
    while (*at != batch) at = &(*at)->next;
    *at = batch->next;
    return false;
}

/* A refusal that is final may be one rank's alone (another process of it is known). */
static void send_chain(struct cairn_up_helper *helper, struct cairn_up_attempt_call *chain) {
    struct cairn_error error = {0};
    enum cairn_code code = cairn_up_attempt_call_send(helper, chain, &error);
    bool each = code != CAIRN_OK && chain->next && !cairn_code_info(code)->retryable;
    for (struct cairn_up_attempt_call *at = chain, *next; at; at = next) {
        next = at->next;
        if (each) at->next = NULL;
        at->code = code;
        at->error = error;
        if (each) at->code = cairn_up_attempt_call_send(helper, at, &at->error);
        if (at->code == CAIRN_OK) at->code = cairn_up_attempt_call_settle(at, &at->error);
        at->next = next;
    }
}

static void attempt_task(struct cairn_up_helper *helper, void *owner) {
    struct cairn_up_attempt_batch *batch = owner;
    while (gather_calls(helper->up, batch)) {
        struct cairn_up_attempt_call *chain = batch->chain;
        batch->chain = NULL;
        send_chain(helper, chain);
        for (struct cairn_up_attempt_call *next; chain; chain = next) {
            next = chain->next;
            chain->next = NULL;
            cairn_up_mail_call(helper->up->mail, chain->conn, attempt_done, chain, &chain->item);
        }
    }
    batch_free(batch);
}

/* The lock is held. */
static enum cairn_code queue_call(struct cairn_up *up, struct cairn_up_attempt_call *call,
                                  struct cairn_error *err) {
    struct cairn_up_attempt_batch *batch = up->locked.attempt_batches;
    while (batch && !is_alike(batch, call)) batch = batch->next;
    if (!batch) {
        batch = batch_new(call);
        if (!batch) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for an attempt");
        enum cairn_code code = cairn_up_tasks_add(up->tasks, attempt_task, NULL, batch, err);
        if (code != CAIRN_OK) {
            batch_free(batch);
            return code;
        }
        batch->next = up->locked.attempt_batches;
        up->locked.attempt_batches = batch;
    }
    struct cairn_up_attempt_call **end = &up->locked.attempt_calls;
    while (*end) end = &(*end)->next;
    *end = call;
    return CAIRN_OK;
}

void cairn_up_attempt_calls_free(struct cairn_up *up) {
    while (up->locked.attempt_calls) {
        struct cairn_up_attempt_call *call = up->locked.attempt_calls;
        up->locked.attempt_calls = call->next;
        cairn_up_attempt_call_free(call);
    }
    while (up->locked.attempt_batches) { /* its task never ran */
        struct cairn_up_attempt_batch *batch = up->locked.attempt_batches;
        up->locked.attempt_batches = batch->next;
        batch_free(batch);
    }
}

struct cairn_up_attempt_call *cairn_up_attempt_call_new(const struct cairn_up_session *session,
                                                        const char *job, const char *resume,
                                                        const char *incarnation) {
    struct cairn_up_attempt_call *call = calloc(1, sizeof(*call));
    if (!call) return NULL;
    call->up = session->up;
    call->conn = session->conn;
    call->rank = session->rank;
    call->process =
        session->process >= 0 ? fcntl(session->process, F_DUPFD_CLOEXEC, 0) : session->process;
    call->world_size = session->world_size;
    (void)cairn_text_copy(call->run_text, sizeof(call->run_text), session->run_text);
    (void)cairn_text_copy(call->proc, sizeof(call->proc), session->proc);
    (void)cairn_text_copy(call->process_name, sizeof(call->process_name), session->process_name);
    call->job = strdup(job);
    call->resume = strdup(resume);
    call->incarnation = strdup(incarnation);
    if (call->job && call->resume && call->incarnation) return call;
    cairn_up_attempt_call_free(call);
    return NULL;
}

enum cairn_code cairn_up_on_attempt(struct cairn_up_session *session,
                                    const struct cairn_up_request *request,
                                    struct cairn_error *err) {
    struct cairn_msg_attempt told = {
        .resume = "latest", .incarnation = "", .wait_staged_ms = CAIRN_UP_WAIT_STAGED_MS};
    CAIRN_TRY(cairn_msg_attempt_read(request->frame->message, "", &told, err));
    if (session->read_only)
        return cairn_fail(err, CAIRN_INVALID, "a read-only session opens no attempt");
    if (session->attempt || session->attempting)
        return cairn_fail(err, CAIRN_PROTOCOL, "a second attempt in one session");
    CAIRN_TRY(cairn_up_admits(session->up, err));
    struct cairn_up_attempt_call *call =
        cairn_up_attempt_call_new(session, told.job, told.resume, told.incarnation);
    if (!call) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for an attempt");
    call->request = request->id;
    call->wait_ms = told.wait_staged_ms;
    call->answer_by_ms = cairn_up_answer_by_ms(told.timeout_ms);
    call->counts = json_deep_copy(told.counts);
    cairn_lock_take(&session->up->lock);
    enum cairn_code code = queue_call(session->up, call, err);
    cairn_lock_give(&session->up->lock);
    if (code != CAIRN_OK)
        cairn_up_attempt_call_free(call);
    else
        session->attempting = true;
    return code;
}
