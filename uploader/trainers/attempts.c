/* SPDX-License-Identifier: Apache-2.0 */
/* Attempts, requested from the server once for all ranks with the same request; requests for slabs,
 * and slabs that a trainer offers again after a restart of this process. */
#include "uploader/trainers/attempts.h"

#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api/wire/messages.h"
#include "api/wire/routes.h"
#include "common/hooks.h"
#include "common/text.h"
#include "uploader/journal/journal.h"
#include "uploader/send/send.h"
#include "uploader/server/calls.h"
#include "uploader/server/watch.h"
#include "uploader/trainers/inside.h"

#define RETRY_PAUSE_MS 100
#define ANSWER_MS 20000

struct cairn_up_attempt_call {
    struct cairn_up_attempt_call *next; /* in one chain, or queued for the next request */
    struct cairn_up *up;
    struct cairn_up_mail_item item;
    uint64_t conn;
    int64_t request;
    char run_text[2 * CAIRN_NAME_BYTES_MAX + 2];
    uint32_t rank, world_size;
    char *job, *resume, *incarnation; /* owned; incarnation "": unknown */
    char proc[CAIRN_UUID_TEXT_BYTES];
    int process; /* the session's; owned */
    char process_name[CAIRN_UP_PROCESS_BYTES];
    uint64_t wait_ms, answer_by_ms; /* from cairn_up_answer_by_ms() */
    json_t *counts;                 /* owned; the process's counts (Q12), or NULL */
    /* the answer */
    enum cairn_code code;
    struct cairn_error error;
    char grant[CAIRN_GRANT_BYTES_MAX];
    bool found;
    uint64_t resume_step;
    char resume_version[CAIRN_VERSION_ID_BYTES];
    char *weights;                    /* owned; NULL: equal weights */
    struct cairn_up_attempt *attempt; /* one use */
    uint64_t entry;                   /* in the journal */
};

static void call_free(struct cairn_up_attempt_call *call) {
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
                                      struct cairn_rest *rest, uint64_t answer_by_ms, uint64_t *ret,
                                      struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *reply = NULL;
    CAIRN_AUTO(buf) path = {0};
    CAIRN_TRY(cairn_buf_printf(&path, err, "/v1/runs/%s", call->run_text));
    enum cairn_code code = cairn_rest_call(rest, "GET", path.data, NULL,
                                           cairn_up_call_ms(answer_by_ms, 0), &reply, err);
    code = cairn_up_heard(rest, code, err);
    *ret = 0;
    if (code == CAIRN_NOT_FOUND) return CAIRN_OK; /* the first attempt creates the run */
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

/* Q54: ranks of this node whose process ended, of the attempt to be joined. */
static json_t *ended_of(struct cairn_up_attempt_call *call, uint64_t newest) {
    struct cairn_up *up = call->up;
    CAIRN_HOLD(&up->lock);
    for (const struct cairn_up_attempt *at = up->locked.attempts; at; at = at->next)
        if (!strcmp(at->run_text, call->run_text) && at->grant.attempt == newest)
            return cairn_up_ended_ranks_locked(up, at);
    return NULL;
}

/* Q3: the run's part of a heartbeat, so that the server need not wait for one. */
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

/* The latest deadline in the chain, so that a shorter one ends no other call. */
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
        .ranks = ranks, .node = call->up->places.node, .incarnation = call->incarnation,
        .ended = json_array_size(ended) ? ended : NULL, .said = said);
    CAIRN_AUTO(buf) path = {0};
    if (!body) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for an attempt");
    CAIRN_TRY(cairn_buf_printf(&path, err, "/v1/runs/%s/attempts", call->run_text));
    enum cairn_code code = cairn_rest_call(rest, "POST", path.data, body,
                                           cairn_up_call_ms(answer_by_ms, usual_ms), &reply, err);
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

/* Q2: only a living process reads the newest attempt and calls again; for an ended one the call
 * would take the run from its present holder (V5). */
static bool lives(const struct cairn_up_attempt_call *call) {
    struct pollfd ended = {.fd = call->process, .events = POLLIN};
    return !CAIRN_RULE(Q2) || call->process < 0 || poll(&ended, 1, 0) <= 0;
}

static bool is_due(const struct cairn_up_attempt_call *chain) {
    uint64_t answer_by_ms = chain_answer_by_ms(chain);
    return answer_by_ms && cairn_mono_ms() >= answer_by_ms;
}

/* Sends one call for a chain of one attempt; fills grant and resume of each. */
static enum cairn_code call_send(struct cairn_up_helper *helper, struct cairn_up_attempt_call *call,
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

/* Journals the grant, joins the attempt, fences older attempts. */
static enum cairn_code call_settle(struct cairn_up_attempt_call *call, struct cairn_error *err) {
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

/* Gives the session its attempt. Takes over one use of the attempt and the entry. */
static void call_adopt(struct cairn_up_session *session, struct cairn_up_attempt *take_attempt,
                       uint64_t take_entry) {
    CAIRN_HOLD(&session->up->lock);
    if (session->attempt) session->attempt->sessions--;
    cairn_up_attempt_leave(session->up, session->attempt);
    if (session->entry)
        cairn_up_journal_close(session->up->journal, session->entry, CAIRN_PACK(record_left, 0));
    session->attempt = take_attempt;
    take_attempt->sessions++;
    if (take_attempt->local_world_size < session->local_world_size)
        take_attempt->local_world_size = session->local_world_size;
    session->entry = take_entry;
    cairn_up_ended_back_locked(session->up, take_attempt, session->rank);
}

/* Q12: takes the process's own counts, once the session has its attempt: pairs of step and n, the
 * newest step last; counts of other attempts are dropped. */
static void call_count(const struct cairn_up_attempt_call *call, struct cairn_up_session *session) {
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

/* Gives up the grant of a trainer that disconnected meanwhile. */
static void call_abandon(struct cairn_up_attempt_call *call) {
    struct cairn_up *up = call->up;
    const struct cairn_up_rank rank = {
        call->attempt,      call->rank,  call->world_size, call->proc,
        call->process_name, call->entry, call->process,    false};
    CAIRN_HOLD(&up->lock);
    cairn_up_ended_add_locked(up, &rank, false);
    call->attempt = NULL;
    call->process = -1;
}

static void attempt_done(void *owner, struct cairn_up_session *session) {
    struct cairn_up_attempt_call *call = owner;
    struct cairn_up *up = call->up;
    if (session) session->attempting = false;
    if (call->code != CAIRN_OK) {
        cairn_up_mail_refuse(up->mail, call->conn, call->request, &call->error);
    } else if (session) {
        const struct cairn_grant *grant = &call->attempt->grant;
        call_adopt(session, call->attempt, call->entry);
        call->attempt = NULL;
        (void)cairn_text_copy(session->resume_version, sizeof(session->resume_version),
                              call->resume_version);
        session->resume_step = call->resume_step;
        session->resume_found = call->found;
        call_count(call, session);
        cairn_up_mail_answer(up->mail, call->conn, call->request,
                             CAIRN_PACK(attempted, .attempt = grant->attempt, .nonce = grant->nonce,
                                        .found = call->found, .resume_step = call->resume_step,
                                        .resume_version = call->resume_version,
                                        .weights = call->weights));
    } else { /* the trainer left: no rank holds the grant */
        call_abandon(call);
    }
    call_free(call);
}

/* ---- one call for all ranks of the node ---- */

struct cairn_up_attempt_batch {
    struct cairn_up_attempt_batch *next;
    struct cairn_up_attempt_call *chain; /* in the present request; owned until answered */
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

/* Moves calls queued during the last request to the chain; without any the batch ends. */
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

static void attempt_task(struct cairn_up_helper *helper, void *owner) {
    struct cairn_up_attempt_batch *batch = owner;
    while (gather_calls(helper->up, batch)) {
        struct cairn_up_attempt_call *chain = batch->chain;
        batch->chain = NULL;
        /* A final refusal may concern one rank (another process of it is known), so each is
         * repeated. */
        struct cairn_error error = {0};
        enum cairn_code code = call_send(helper, chain, &error);
        bool each = code != CAIRN_OK && chain->next && !cairn_code_info(code)->retryable;
        for (struct cairn_up_attempt_call *at = chain, *next; at; at = next) {
            next = at->next;
            if (each) at->next = NULL;
            at->code = code;
            at->error = error;
            if (each) at->code = call_send(helper, at, &at->error);
            if (at->code == CAIRN_OK) at->code = call_settle(at, &at->error);
            at->next = next;
        }
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
        call_free(call);
    }
    while (up->locked.attempt_batches) { /* its task never ran */
        struct cairn_up_attempt_batch *batch = up->locked.attempt_batches;
        up->locked.attempt_batches = batch->next;
        batch_free(batch);
    }
}

static struct cairn_up_attempt_call *call_new(const struct cairn_up_session *session,
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
    call_free(call);
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
    struct cairn_up_attempt_call *call = call_new(session, told.job, told.resume, told.incarnation);
    if (!call) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for an attempt");
    call->request = request->id;
    call->wait_ms = told.wait_staged_ms;
    call->answer_by_ms = cairn_up_answer_by_ms(told.timeout_ms);
    call->counts = json_deep_copy(told.counts);
    cairn_lock_take(&session->up->lock);
    enum cairn_code code = queue_call(session->up, call, err);
    cairn_lock_give(&session->up->lock);
    if (code != CAIRN_OK)
        call_free(call);
    else
        session->attempting = true;
    return code;
}

/* A trainer reconnects with its memory after the old uploader's end. A helper maps the slabs and
 * finds the trainer's grant; the socket's thread then joins saves and slabs. */

struct offering {
    struct cairn_up_attempt_call *call;
    uint64_t attempt;
    char nonce[CAIRN_NONCE_TEXT_BYTES];
    struct {
        int fd;
        uint64_t bytes, device, inode;
        uint64_t owner;           /* the owning save by the trainer; 0: none */
        struct cairn_slab memory; /* fd -1: not attached */
    } slabs[CAIRN_UP_GENERATIONS_MAX];
    size_t slab_count;
    json_t *saves; /* owned: the trainer's saves, read into `parsed` */
    struct cairn_msg_offer_save *parsed;
    size_t parsed_count;
};

static void offering_free(void *owner) {
    struct offering *offering = owner;
    for (size_t i = 0; i < offering->slab_count; i++) {
        if (offering->slabs[i].fd >= 0) cairn_fd_close_at(&offering->slabs[i].fd);
        if (offering->slabs[i].memory.data) cairn_slab_release(&offering->slabs[i].memory);
    }
    json_decref(offering->saves);
    free(offering->parsed);
    call_free(offering->call);
    free(offering);
}

/* Requires memory as an uploader makes it, whole and counted in the budget: reading missing pages
 * would allocate them, without bound. */
static enum cairn_code check_whole(int fd, size_t index, uint64_t bytes, struct cairn_error *err) {
    struct stat status;
    if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode) ||
        (uint64_t)status.st_blocks * 512 >= bytes)
        return CAIRN_OK; /* the next check tests whether it is memory */
    return cairn_fail(err, CAIRN_PROTOCOL,
                      "slab %zu has pages for %llu of its %" PRIu64 " bytes: no uploader made it",
                      index, (unsigned long long)status.st_blocks * 512, bytes);
}

/* Checked before any mapping. Slabs of other sessions are counted when adopted. */
static enum cairn_code check_budget(const struct offering *offering, struct cairn_error *err) {
    uint64_t budget = offering->call->up->budget.total_bytes, bytes = 0;
    for (size_t i = 0; i < offering->slab_count; i++) {
        if (!cairn_add_overflows(bytes, offering->slabs[i].bytes, &bytes) && bytes <= budget)
            continue;
        return cairn_up_slabs_no_room(offering->call->up, offering->slabs[i].bytes, err);
    }
    return CAIRN_OK;
}

static enum cairn_code attach(struct offering *offering, struct cairn_error *err) {
    CAIRN_TRY(check_budget(offering, err));
    for (size_t i = 0; i < offering->slab_count; i++) {
        int fd = offering->slabs[i].fd;
        CAIRN_TRY(check_whole(fd, i, offering->slabs[i].bytes, err));
        offering->slabs[i].fd = -1;
        struct cairn_slab *memory = &offering->slabs[i].memory;
        CAIRN_TRY(cairn_slab_attach(fd, offering->slabs[i].bytes, false, memory, err));
        if (memory->device != offering->slabs[i].device ||
            memory->inode != offering->slabs[i].inode)
            return cairn_fail(err, CAIRN_PROTOCOL,
                              "slab %zu is not the memory that it is said to be (device %" PRIu64
                              " inode %" PRIu64 ")",
                              i, memory->device, memory->inode);
    }
    return CAIRN_OK;
}

/* The journal's copy of the grant, otherwise the server's answer to the same job and process. */
static enum cairn_code find_right(struct cairn_up_helper *helper, struct offering *offering,
                                  struct cairn_error *err) {
    struct cairn_up_attempt_call *call = offering->call;
    struct cairn_up *up = helper->up;
    cairn_lock_take(&up->lock);
    struct cairn_up_attempt *known =
        cairn_up_attempt_find(up, call->run_text, offering->attempt, offering->nonce);
    if (known) (void)cairn_text_copy(call->grant, sizeof(call->grant), known->text);
    cairn_lock_give(&up->lock);
    if (!known) CAIRN_TRY(call_send(helper, call, err));
    struct cairn_grant grant;
    CAIRN_TRY(cairn_grant_parse(call->grant, &grant, err));
    if (grant.attempt != offering->attempt || strcmp(grant.nonce, offering->nonce) != 0)
        return cairn_fail(err, CAIRN_STALE_ATTEMPT,
                          "attempt %" PRIu64 " of %s is the newest, the trainer has %" PRIu64,
                          grant.attempt, call->run_text, offering->attempt);
    return call_settle(call, err);
}

/* Q41: gives the generation to the save that trainer and journal call its owner. */
static void claim_slab(struct cairn_up_session *session, const struct offering *offering,
                       struct cairn_up_save *save, uint32_t index) {
    struct cairn_up_slab *slab = index < offering->slab_count
                                     ? cairn_up_slab_of_locked(session->up, session->conn, index)
                                     : NULL;
    if (!slab || save->slab || !save->staged_in.bytes) return; /* unstaged, so without memory */
    const struct cairn_up_slab_claim claim = {
        .offered_owner = CAIRN_RULE(Q41) ? offering->slabs[index].owner : save->state.owner,
        .save_owner = save->state.owner,
        .journaled_owner = save->state.owner,
        .same_memory = cairn_up_save_is_staged_in(save, slab),
        .needed = cairn_up_save_state_needs_slab(&save->state)};
    enum cairn_up_claimed claimed = cairn_up_slab_state_claim(&slab->state, &claim);
    if (claimed == CAIRN_UP_CLAIM_NOT_NEEDED) return;
    if (claimed != CAIRN_UP_CLAIM_JOINED) {
        cairn_log(INFO, "offer.not_joined",
                  "version=%s rank=%u slab=%u owner=%" PRIu64 " of=%" PRIu64, save->place.id.text,
                  save->rank, index, offering->slabs[index].owner, save->state.owner);
        return;
    }
    bool taken = cairn_up_save_slab_take_locked(save, slab);
    CAIRN_ASSERT(taken);
    if (save->state.phase == CAIRN_UP_PHASE_SEALED) {
        for (size_t i = 0; i < save->stage_count; i++) {
            struct cairn_up_shard *shard = save->shards[save->stage_first + i];
            cairn_up_shard_source(session->up->queue, shard,
                                  save->slab->memory.data + shard->slab_offset);
        }
    }
}

static const char *join_save(struct cairn_up_session *session, const struct offering *offering,
                             struct cairn_up_save *save, const struct cairn_msg_offer_save *told) {
    static const char *const texts[] = {"continues", "durable", "committed",
                                        "aborted",   "failed",  "ended"};
    enum cairn_up_joined joined = cairn_up_save_state_join(&save->state, save->end);
    save->conn = session->conn;
    save->number = told->save;
    save->follows = told->follow;
    save->decided = false; /* `decided` was not sent on this connection */
    if (joined != CAIRN_UP_JOINED_CONTINUES) return texts[joined];
    bool again = save->state.staging == CAIRN_UP_STAGING_AGAIN;
    for (size_t i = 0; i < save->state.shard_count; i++) /* `stream` follows for each of these */
        if (again || save->shards[i]->is_stream)
            cairn_up_shard_await(session->up->queue, save->shards[i]);
    claim_slab(session, offering, save, told->slab);
    return texts[joined];
}

/* The entry was closed at the version's end, or the journal was lost. Q40: only the server knows; a
 * watcher polls it without a deadline, and the trainer gets a verdict. */
static bool remember(struct cairn_up_session *session, const struct cairn_msg_offer_save *told) {
    struct cairn_up *up = session->up;
    struct cairn_up_save *save = NULL;
    const struct cairn_up_begin begin = {.attempt = session->attempt,
                                         .conn = session->conn,
                                         .number = told->save,
                                         .session = session->uuid,
                                         .proc = session->proc,
                                         .rank = session->rank,
                                         .world_size = session->world_size,
                                         .told = {.step = told->step, .n = told->n}};
    if (cairn_up_save_new_locked(up, cairn_up_journal_entry_new(up->journal), &begin, &save,
                                 NULL) != CAIRN_OK)
        return false;
    if (strcmp(save->place.id.text, told->version) != 0) {
        cairn_up_save_drop_locked(up, save);
        return false;
    }
    cairn_up_save_state_init_in_doubt(save->entry, &save->state);
    return true;
}

static const char *answer_offer(struct cairn_up_session *session, const struct offering *offering,
                                const struct cairn_msg_offer_save *told, bool *ret_sealed) {
    if (told->save > session->save_last) session->save_last = told->save;
    struct cairn_up_save *save =
        cairn_up_save_known_locked(session->up, told->version, session->rank);
    *ret_sealed = save && cairn_up_save_state_is_sealed(&save->state);
    if (save) return join_save(session, offering, save, told);
    return told->sealed && remember(session, told) ? "ended" : "unknown";
}

static bool same_right(const struct cairn_up_attempt *a, const struct cairn_up_attempt *b) {
    return !strcmp(a->run_text, b->run_text) && a->grant.attempt == b->grant.attempt &&
           !strcmp(a->grant.nonce, b->grant.nonce);
}

/* Only the process that began a save offers it, under the same attempt: by version and rank alone,
 * another run's trainer, or another life of the rank, could seal its bytes into it. `busy`: the end
 * of the old connection is not known yet. */
static enum cairn_code check_claims(struct cairn_up_session *session,
                                    const struct offering *offering, struct cairn_error *err) {
    for (size_t i = 0; i < offering->parsed_count; i++) {
        const char *version = offering->parsed[i].version;
        const struct cairn_up_save *save =
            cairn_up_save_known_locked(session->up, version, session->rank);
        if (!save) continue;
        if (!same_right(save->attempt, session->attempt))
            return cairn_fail(err, CAIRN_FORBIDDEN,
                              "%s was begun by attempt %" PRIu64 " of %s, not by attempt %" PRIu64
                              " of %s",
                              version, save->attempt->grant.attempt, save->attempt->run_text,
                              session->attempt->grant.attempt, session->run_text);
        if (save->proc[0] && strcmp(save->proc, session->proc) != 0)
            return cairn_fail(err, CAIRN_FORBIDDEN,
                              "%s was begun by another process (%s) of rank %u", version,
                              save->proc, session->rank);
        if (save->conn && save->conn != session->conn)
            return cairn_fail(err, CAIRN_BUSY, "the old connection of rank %u has not ended yet",
                              session->rank);
    }
    return CAIRN_OK;
}

static enum cairn_code join_slabs(struct cairn_up_session *session, struct offering *offering,
                                  struct cairn_error *err) {
    for (size_t i = 0; i < offering->slab_count; i++) {
        struct cairn_slab memory = offering->slabs[i].memory;
        offering->slabs[i].memory = (struct cairn_slab){.fd = -1};
        struct cairn_up_slab *slab = NULL;
        CAIRN_TRY(cairn_up_slabs_adopt_locked(session->up, session->conn, (uint32_t)i,
                                              session->attempt, &memory, &slab, err));
    }
    session->reserved = offering->slab_count > 0;
    return CAIRN_OK;
}

static json_t *join_all(struct cairn_up_session *session, struct offering *offering,
                        struct cairn_error *err) {
    struct cairn_up *up = session->up;
    CAIRN_AUTO_JSON json_t *answers = json_array();
    CAIRN_AUTO_JSON json_t *owners = json_array();
    CAIRN_HOLD(&up->lock);
    if (check_claims(session, offering, err) != CAIRN_OK) return NULL;
    if (join_slabs(session, offering, err) != CAIRN_OK) {
        cairn_up_slabs_orphan_locked(up, session->conn);
        return NULL;
    }
    for (size_t i = 0; i < offering->parsed_count; i++) {
        const struct cairn_msg_offer_save *told = &offering->parsed[i];
        bool sealed = false;
        const char *state = answer_offer(session, offering, told, &sealed);
        json_array_append_new(answers, CAIRN_PACK(offered_save, .save = told->save, .state = state,
                                                  .sealed = sealed));
    }
    for (size_t i = 0; i < offering->slab_count; i++) {
        const struct cairn_up_slab *slab = cairn_up_slab_of_locked(up, session->conn, (uint32_t)i);
        json_array_append_new(owners, json_integer((json_int_t)slab->state.owner));
    }
    json_t *answer =
        CAIRN_PACK(offered, .session = session->uuid, .saves = answers, .owners = owners);
    if (!answer) cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the answer");
    return answer;
}

static void offer_done(void *owner, struct cairn_up_session *session) {
    struct offering *offering = owner;
    struct cairn_up_attempt_call *call = offering->call;
    struct cairn_up *up = call->up;
    if (session) session->attempting = false;
    json_t *answer = NULL;
    if (call->code == CAIRN_OK && !session) call_abandon(call);
    if (call->code == CAIRN_OK && session) {
        call_adopt(session, CAIRN_TAKE(call->attempt), call->entry);
        answer = join_all(session, offering, &call->error);
        if (answer) call_count(call, session);
    }
    if (answer) {
        cairn_up_mail_answer(up->mail, call->conn, call->request, answer);
        cairn_up_wakeup_raise(&up->outbox_work);
        cairn_up_wakeup_raise(&up->partner_work);
        cairn_up_watch_poke(up->watch);
    } else {
        cairn_up_mail_refuse(up->mail, call->conn, call->request, &call->error);
    }
    offering_free(offering);
}

static void offer_task(struct cairn_up_helper *helper, void *owner) {
    struct offering *offering = owner;
    struct cairn_up_attempt_call *call = offering->call;
    call->code = attach(offering, &call->error);
    if (call->code == CAIRN_OK) call->code = find_right(helper, offering, &call->error);
    CAIRN_CRASHPOINT("uploader.offer.checked");
    cairn_up_mail_call(helper->up->mail, call->conn, offer_done, offering, &call->item);
}

static enum cairn_code read_slabs(struct offering *offering, const json_t *slabs,
                                  struct cairn_frame *frame, struct cairn_error *err) {
    size_t count = json_array_size(slabs);
    if (count > CAIRN_UP_GENERATIONS_MAX || count != frame->fd_count)
        return cairn_fail(err, CAIRN_PROTOCOL, "offer: %s and %s",
                          cairn_counted(count, "slab").text,
                          cairn_counted(frame->fd_count, "descriptor").text);
    for (size_t i = 0; i < count; i++) {
        struct cairn_msg_offer_slab told = {0};
        CAIRN_TRY(cairn_msg_offer_slab_read(json_array_get(slabs, i), "/slabs", &told, err));
        offering->slabs[i].bytes = told.bytes;
        offering->slabs[i].device = told.device;
        offering->slabs[i].inode = told.inode;
        offering->slabs[i].owner = told.owner;
    }
    for (size_t i = 0; i < count; i++) {
        offering->slabs[i].fd = frame->fds[i];
        frame->fds[i] = -1;
    }
    offering->slab_count = count;
    return CAIRN_OK;
}

static enum cairn_code read_offer(struct cairn_up_session *session,
                                  const struct cairn_up_request *request, struct offering *offering,
                                  struct cairn_error *err) {
    struct cairn_msg_offer told = {.resume = "latest", .incarnation = ""};
    CAIRN_TRY(cairn_msg_offer_read(request->frame->message, "", &told, err));
    offering->attempt = told.attempt;
    (void)cairn_text_copy(offering->nonce, sizeof(offering->nonce), told.nonce);
    size_t count = json_array_size(told.saves);
    offering->saves = json_deep_copy(told.saves);
    offering->parsed = calloc(count + 1, sizeof(*offering->parsed));
    if (!offering->saves || !offering->parsed)
        return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for an offer");
    for (; offering->parsed_count < count; offering->parsed_count++) {
        struct cairn_msg_offer_save *one = &offering->parsed[offering->parsed_count];
        one->slab = (uint32_t)CAIRN_MESSAGE_NONE;
        CAIRN_TRY(cairn_msg_offer_save_read(json_array_get(offering->saves, offering->parsed_count),
                                            "/saves", one, err));
        if (!one->save) return cairn_fail(err, CAIRN_INVALID, "/saves/save counts from 1");
    }
    offering->call = call_new(session, told.job, told.resume, told.incarnation);
    if (!offering->call) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for an offer");
    offering->call->request = request->id;
    offering->call->counts = json_deep_copy(told.counts);
    return read_slabs(offering, told.slabs, request->frame, err);
}

enum cairn_code cairn_up_on_offer(struct cairn_up_session *session,
                                  const struct cairn_up_request *request, struct cairn_error *err) {
    if (session->attempt || session->attempting || session->reserved || session->reserving)
        return cairn_fail(err, CAIRN_PROTOCOL, "an offer comes right after hello");
    struct offering *offering = calloc(1, sizeof(*offering));
    if (!offering) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for an offer");
    for (size_t i = 0; i < CAIRN_UP_GENERATIONS_MAX; i++) {
        offering->slabs[i].fd = -1;
        offering->slabs[i].memory.fd = -1;
    }
    enum cairn_code code = read_offer(session, request, offering, err);
    if (code == CAIRN_OK)
        code = cairn_up_tasks_add(session->up->tasks, offer_task, offering_free, offering, err);
    if (code != CAIRN_OK)
        offering_free(offering);
    else
        session->attempting = true;
    return code;
}

struct reserving {
    struct cairn_up_slab_request memory; /* first: decided() casts it to its owner */
    struct cairn_up_mail_item item;
    struct cairn_up *up;
    int64_t request;
    struct cairn_up_slab *slabs[CAIRN_UP_GENERATIONS_MAX];
    bool made;
};

static void slabs_done(void *owner, struct cairn_up_session *session) {
    struct reserving *reserving = owner;
    struct cairn_up *up = reserving->up;
    uint64_t conn = reserving->memory.conn;
    cairn_lock_take(&up->lock);
    int fds[CAIRN_UP_GENERATIONS_MAX];
    size_t fd_count = 0;
    uint64_t bytes = 0;
    if (!session) cairn_up_slabs_orphan_locked(up, conn);
    enum cairn_code *code = &reserving->memory.code;
    uint32_t count = reserving->made ? reserving->memory.count : 0;
    for (uint32_t i = 0; session && i < count; i++) {
        bytes = reserving->slabs[i]->memory.size_bytes;
        int fd = fcntl(reserving->slabs[i]->memory.fd, F_DUPFD_CLOEXEC, 0);
        if (fd >= 0) fds[fd_count++] = fd;
    }
    if (*code == CAIRN_OK && session && fd_count < count) {
        *code = cairn_fail(&reserving->memory.error, CAIRN_IO, "no descriptor for a slab");
        for (size_t i = 0; i < fd_count; i++) close(fds[i]);
        cairn_up_slabs_orphan_locked(up, conn);
    }
    cairn_up_attempt_leave(up, reserving->memory.attempt);
    cairn_lock_give(&up->lock);
    if (session) {
        session->reserving = false;
        session->reserved = *code == CAIRN_OK;
    }
    if (*code != CAIRN_OK)
        cairn_up_mail_refuse(up->mail, conn, reserving->request, &reserving->memory.error);
    else if (session)
        cairn_up_mail_answer_fds(up->mail, conn, reserving->request,
                                 CAIRN_PACK(slabs_given, .count = count, .bytes = bytes), fds,
                                 fd_count);
    free(reserving);
}

static void slabs_task(struct cairn_up_helper *helper, void *owner) {
    struct reserving *reserving = owner;
    reserving->memory.code = cairn_up_slabs_make(helper->up, &reserving->memory, reserving->slabs,
                                                 &reserving->memory.error);
    reserving->made = reserving->memory.code == CAIRN_OK;
    cairn_up_mail_call(helper->up->mail, reserving->memory.conn, slabs_done, reserving,
                       &reserving->item);
}

static void slabs_drop(void *owner) { /* the process stops */
    struct reserving *reserving = owner;
    cairn_lock_take(&reserving->up->lock);
    cairn_up_attempt_leave(reserving->up, reserving->memory.attempt);
    cairn_lock_give(&reserving->up->lock);
    free(reserving);
}

/* Has a helper make the pages; answers a refusal at once. */
static void slabs_decided(struct cairn_up_slab_request *memory) {
    struct reserving *reserving = (struct reserving *)memory;
    struct cairn_up *up = reserving->up;
    if (memory->code == CAIRN_OK) {
        /* Once added, the request is the helper's, which may have freed it. */
        enum cairn_code code =
            cairn_up_tasks_add(up->tasks, slabs_task, slabs_drop, reserving, &memory->error);
        if (code == CAIRN_OK) return;
        memory->code = code;
        cairn_up_slabs_unmake(up, memory);
    }
    cairn_up_mail_call(up->mail, memory->conn, slabs_done, reserving, &reserving->item);
}

/* Memory of another size than in hello: the session gives its slabs back before it waits, so that
 * no session holds memory while it waits for memory (Q13). */
static enum cairn_code resize(struct cairn_up_session *session, const struct cairn_msg_slabs *told,
                              struct cairn_error *err) {
    struct cairn_up *up = session->up;
    if (session->reserving) return cairn_fail(err, CAIRN_BUSY, "slabs are being made");
    CAIRN_HOLD(&up->lock);
    for (uint32_t i = 0; i < CAIRN_UP_GENERATIONS_MAX; i++) {
        const struct cairn_up_slab *slab = cairn_up_slab_of_locked(up, session->conn, i);
        if (slab && slab->state.owner)
            return cairn_fail(err, CAIRN_BUSY, "a save still needs slab %u", i);
    }
    cairn_up_slabs_orphan_locked(up, session->conn);
    session->reserved = false;
    session->bytes = told->bytes;
    session->node_bytes = told->node_bytes;
    return CAIRN_OK;
}

enum cairn_code cairn_up_on_slabs(struct cairn_up_session *session,
                                  const struct cairn_up_request *request, struct cairn_error *err) {
    struct cairn_msg_slabs told = {.wait_staged_ms = CAIRN_UP_WAIT_STAGED_MS,
                                   .numa_node = (uint32_t)CAIRN_MESSAGE_NONE};
    CAIRN_TRY(cairn_msg_slabs_read(request->frame->message, "", &told, err));
    if (!session->attempt)
        return cairn_fail(err, CAIRN_PROTOCOL, "slabs before the attempt was opened");
    if (told.bytes) CAIRN_TRY(resize(session, &told, err));
    if (!session->bytes)
        return cairn_fail(err, CAIRN_INVALID, "hello said bytes 0: this session cannot save");
    if (session->reserving || session->reserved)
        return cairn_fail(err, CAIRN_PROTOCOL, "slabs were asked for twice");
    if (told.numa_node != (uint32_t)CAIRN_MESSAGE_NONE) session->numa_node = (int)told.numa_node;
    struct reserving *reserving = calloc(1, sizeof(*reserving));
    if (!reserving) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for slabs");
    reserving->up = session->up;
    reserving->request = request->id;
    reserving->memory = (struct cairn_up_slab_request){
        .conn = session->conn,
        .attempt = session->attempt,
        .rank = session->rank,
        .local_world_size = session->local_world_size,
        .numa_node = session->numa_node,
        .bytes = session->bytes,
        .node_bytes = session->node_bytes,
        .deadline_ms = cairn_mono_ms() + told.wait_staged_ms,
        .decided = slabs_decided,
    };
    cairn_lock_take(&session->up->lock);
    session->attempt->users++;
    cairn_lock_give(&session->up->lock);
    session->reserving = true;
    cairn_up_slabs_request(session->up, &reserving->memory);
    return CAIRN_OK;
}
