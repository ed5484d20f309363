/* SPDX-License-Identifier: Apache-2.0 */
/* One thread and one HTTP engine; see ask.h. */
#include "uploader/port/ask.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

#include "common/text.h"
#include "common/trace.h"

#define LOOK_MS 50
#define IDLE_MS 1000
#define FAILURES_MAX 256

struct failure { /* of a peer */
    char node[CAIRN_NAME_BYTES_MAX + 1];
    uint64_t until_ms; /* mono clock */
    uint32_t in_a_row, busy_in_a_row;
};
struct cairn_up_asks {
    char node[CAIRN_NAME_BYTES_MAX + 1];
    struct cairn_metrics *metrics; /* borrowed; NULL: none */
    struct cairn_http_engine *engine;
    struct cairn_late_bell bell;
    struct cairn_late late;      /* the thread's */
    struct cairn_up_ask *flying; /* the thread's */
    struct cairn_up_thread thread;
    struct cairn_lock lock; /* uploader_asks */
    struct {
        struct cairn_up_ask *first, **last; /* not yet begun */
        size_t count;                       /* of queued and flying requests */
        struct failure failures[FAILURES_MAX];
        bool stopping;
    } locked;
};

/* The lock is held. *ret_oldest: the entry to replace. */
static struct failure *find_failure(struct cairn_up_asks *asks, const char *node,
                                    struct failure **ret_oldest) {
    *ret_oldest = asks->locked.failures;
    for (size_t i = 0; i < FAILURES_MAX; i++) {
        struct failure *at = &asks->locked.failures[i];
        if (!strcmp(at->node, node)) return at;
        if (at->until_ms < (*ret_oldest)->until_ms) *ret_oldest = at;
    }
    return NULL;
}

/* False: another request already counted this failure of the peer. */
static bool note_failure(struct cairn_up_asks *asks, const char *node, bool busy) {
    CAIRN_HOLD(&asks->lock);
    struct failure *oldest = NULL, *found = find_failure(asks, node, &oldest);
    uint64_t now_ms = cairn_mono_ms();
    if (!found) {
        found = oldest;
        *found = (struct failure){0};
        (void)cairn_text_copy(found->node, sizeof(found->node), node);
    }
    if (found->until_ms > now_ms) return false;
    uint64_t pause_ms = busy ? CAIRN_UP_ASK_BUSY_MS : CAIRN_UP_ASK_AGAIN_MS;
    uint32_t *in_a_row = busy ? &found->busy_in_a_row : &found->in_a_row;
    found->until_ms = now_ms + (pause_ms << cairn_min_u64(*in_a_row, busy ? 3 : 6));
    ++*in_a_row;
    return true;
}

static void note_success(struct cairn_up_asks *asks, const char *node) {
    CAIRN_HOLD(&asks->lock);
    struct failure *oldest = NULL, *found = find_failure(asks, node, &oldest);
    if (found && found->until_ms <= cairn_mono_ms()) *found = (struct failure){0};
}

void cairn_up_asks_wrong(struct cairn_up_asks *asks, const char *node) {
    CAIRN_HOLD(&asks->lock);
    struct failure *oldest = NULL, *found = find_failure(asks, node, &oldest);
    if (!found) found = oldest;
    (void)cairn_text_copy(found->node, sizeof(found->node), node);
    found->until_ms = cairn_mono_ms() + CAIRN_UP_ASK_WRONG_MS;
}

static bool passes_by(struct cairn_up_asks *asks, const char *node) {
    struct failure *oldest = NULL, *found = find_failure(asks, node, &oldest);
    return found && found->until_ms > cairn_mono_ms();
}

bool cairn_up_asks_passes_by(struct cairn_up_asks *asks, const char *node) {
    CAIRN_HOLD(&asks->lock);
    return passes_by(asks, node);
}

static bool stays_busy(struct cairn_up_asks *asks, const char *node) {
    CAIRN_HOLD(&asks->lock);
    struct failure *oldest = NULL, *found = find_failure(asks, node, &oldest);
    return found && found->busy_in_a_row;
}

static bool is_named(struct cairn_view name, const char *wanted) {
    return name.size == strlen(wanted) && !strncasecmp(name.data, wanted, name.size);
}

static void on_header(struct cairn_http_request *request, struct cairn_view name,
                      struct cairn_view value) {
    struct cairn_up_ask *ask = request->owner;
    if (is_named(name, "Cairn-Shared"))
        ask->shared = value.size == 1 && *(const char *)value.data == '1';
    if (is_named(name, CAIRN_PEER_ANSWER_HEADER) && value.size < sizeof(ask->proof)) {
        memcpy(ask->proof, value.data, value.size);
        ask->proof[value.size] = '\0';
    }
}

/* True when the MAC proves that a holder of the attempt's grant answered this request. */
static bool is_proven(const struct cairn_up_ask *ask) {
    const struct cairn_peer_answer answer = {ask->request.status, ask->request.reply_bytes,
                                             ask->nonce};
    return cairn_peer_answer_check(&ask->right_shown, &answer, ask->key, cairn_view_of(ask->proof));
}

/* A peer without the attempt, or that did not read the request, refuses without a MAC. */
static bool needs_proof(int status) {
    return status < 300 || status == 404 || status == 409;
}

static enum cairn_code on_reply(struct cairn_http_request *request, struct cairn_error *err) {
    struct cairn_up_ask *ask = request->owner;
    (void)err;
    ask->body_since_ms = cairn_mono_ms();
    ask->has_begun = request->status < 300;
    if (ask->has_begun && ask->begun) ask->begun(ask);
    return CAIRN_OK;
}

/* A peer that refuses a PUT is reachable; the status concerns only that request. */
static enum cairn_code refused(int status, struct cairn_error *err) {
    enum cairn_code code = status == 404   ? CAIRN_NOT_FOUND
                           : status == 403 ? CAIRN_FORBIDDEN
                           : status == 409 ? CAIRN_CONFLICT
                           : status == 503 ? CAIRN_NO_MEMORY
                                           : CAIRN_BUSY;
    return cairn_fail(err, code, "it answers %d", status);
}

static enum cairn_code check_reply(struct cairn_up_ask *ask, struct cairn_error *err) {
    const struct cairn_http_request *request = &ask->request;
    bool gets = ask->into != NULL;
    if (ask->late) return cairn_fail(err, CAIRN_TIMEOUT, "it is slow");
    if (request->code) {
        *err = request->error;
        return request->code;
    }
    if (needs_proof(request->status) && !is_proven(ask))
        return cairn_fail(err, CAIRN_UNAVAILABLE,
                          "its answer %d does not show that it holds the attempt", request->status);
    if (!gets && request->status != 200) return refused(request->status, err);
    if (request->status == 409) return cairn_fail(err, CAIRN_CONFLICT, "it asks others itself");
    if (request->status == 503) return cairn_fail(err, CAIRN_BUSY, "it answers 503");
    if (gets && request->status != 206)
        return cairn_fail(err, CAIRN_UNAVAILABLE, "it answers %d", request->status);
    if (gets && request->reply_bytes != ask->bytes)
        return cairn_fail(err, CAIRN_PROTOCOL, "%" PRIu64 " bytes came, %" PRIu64 " are wanted",
                          request->reply_bytes, ask->bytes);
    return CAIRN_OK;
}

static void end_ask(struct cairn_up_ask *ask) {
    struct cairn_up_asks *asks = ask->asks;
    struct cairn_up_ask **at = &asks->flying;
    while (*at && *at != ask) at = &(*at)->next;
    if (*at) *at = ask->next;
    {
        CAIRN_HOLD(&asks->lock);
        asks->locked.count--;
    }
    cairn_wipe(ask->key, sizeof(ask->key));
    ask->done(ask);
}

/* Avoids a failed peer, but not after 409 (it asks others itself) or a refused PUT. */
static void pass_by(struct cairn_up_ask *ask) {
    bool unproven = needs_proof(ask->request.status) && ask->code == CAIRN_UNAVAILABLE;
    bool refuses = !ask->into && ask->request.status >= 400 && !unproven;
    if (ask->code == CAIRN_CONFLICT || refuses) return;
    if (!note_failure(ask->asks, ask->to.node, ask->code == CAIRN_BUSY)) return;
    cairn_log(WARN, "peers.passed_by", "node=%s address=%s cause=\"%s\"", ask->to.node,
              ask->to.address, ask->error.message);
    cairn_metrics_add(ask->asks->metrics, CAIRN_UP_METRIC(peers_passed_by_total), 1);
}

/* True: retried after a pause. The peer reads the bytes anyway; the store would send them twice. */
static bool comes_again(struct cairn_up_ask *ask) {
    if (ask->code != CAIRN_BUSY || ask->request.status != 503 || !ask->into) return false;
    uint64_t turn_ms = cairn_mono_ms() + ((uint64_t)CAIRN_UP_ASK_TURN_MS << ask->turns);
    if (turn_ms > ask->added_ms + CAIRN_UP_ASK_QUIET_MS) return false;
    if (stays_busy(ask->asks, ask->to.node)) return false;
    ask->turn_ms = turn_ms;
    ask->turns++;
    return true;
}

static void request_done(struct cairn_http_request *request) {
    struct cairn_up_ask *ask = request->owner;
    struct cairn_up_asks *asks = ask->asks;
    ask->code = check_reply(ask, &ask->error);
    if (comes_again(ask)) return;
    if (!ask->code) note_success(asks, ask->to.node);
    if (ask->code && (ask->late || ask->code != CAIRN_CANCELLED)) pass_by(ask);
    end_ask(ask);
}

static void describe(struct cairn_up_ask *ask) {
    struct cairn_peer_right right = {.run = ask->run, .attempt = ask->attempt};
    char value[CAIRN_PEER_RIGHT_BYTES_MAX];
    bool gets = ask->into != NULL;
    (void)cairn_text_copy(right.from, sizeof(right.from), ask->asks->node);
    snprintf(ask->range, sizeof(ask->range), "Range: bytes=%" PRIu64 "-%" PRIu64, ask->offset,
             ask->offset + ask->bytes - 1);
    struct cairn_peer_request told = {.to = ask->to.node,
                                      .method = ask->method,
                                      .path = ask->path,
                                      .range = gets ? ask->range + sizeof("Range: ") - 1 : "",
                                      .body_bytes = ask->body.size};
    uint8_t nonce[(CAIRN_PEER_NONCE_TEXT_BYTES - 1) / 2];
    cairn_random(nonce, sizeof(nonce));
    cairn_hex_encode(nonce, sizeof(nonce), ask->nonce);
    snprintf(ask->once, sizeof(ask->once), CAIRN_PEER_NONCE_HEADER ": %s", ask->nonce);
    cairn_peer_sign(&right, &told, ask->key, value);
    ask->right_shown = right;
    ask->proof[0] = '\0';
    snprintf(ask->right, sizeof(ask->right), "Authorization: %s", value);
    snprintf(ask->url, sizeof(ask->url), "http://%s%s", ask->to.address, ask->path);
    ask->headers[0] = ask->right;
    ask->headers[1] = ask->once;
    ask->headers[2] = ask->range;
    ask->request = (struct cairn_http_request){.method = ask->method,
                                               .url = ask->url,
                                               .headers = ask->headers,
                                               .header_count = gets ? 3 : 2,
                                               .body = ask->body,
                                               .has_body = !gets,
                                               .reply_data = ask->into,
                                               .reply_capacity = gets ? (size_t)ask->bytes : 0,
                                               .total_ms = CAIRN_UP_ASK_WHOLE_MS,
                                               .stall_ms = CAIRN_UP_ASK_QUIET_MS,
                                               .direct = true,
                                               .on_header = on_header,
                                               .on_reply = on_reply,
                                               .done = request_done,
                                               .owner = ask};
}

static void submit(struct cairn_up_asks *asks, struct cairn_up_ask *ask) {
    ask->turn_ms = ask->body_since_ms = 0;
    describe(ask);
    ask->code = cairn_http_submit(asks->engine, &ask->request, &ask->error);
    if (!ask->code) return;
    pass_by(ask);
    end_ask(ask);
}

static void begin_request(struct cairn_up_asks *asks, struct cairn_up_ask *ask) {
    ask->next = asks->flying;
    asks->flying = ask;
    submit(asks, ask);
}

static bool is_late(const struct cairn_up_ask *ask, uint64_t now_ms) {
    uint64_t bytes = ask->into ? ask->bytes : 0;
    uint64_t whole_ms = CAIRN_UP_ASK_QUIET_MS + bytes * 1000 / CAIRN_UP_ASK_BYTES_PER_S;
    return ask->body_since_ms && now_ms > ask->body_since_ms + whole_ms;
}

static struct cairn_up_ask *take_next(struct cairn_up_asks *asks, bool *ret_stopping) {
    CAIRN_HOLD(&asks->lock);
    *ret_stopping = asks->locked.stopping;
    struct cairn_up_ask *ask = asks->locked.first;
    if (!ask) return NULL;
    asks->locked.first = ask->next;
    if (!ask->next) asks->locked.last = &asks->locked.first;
    return ask;
}

static void *asks_main(void *argument) {
    struct cairn_up_asks *asks = argument;
    pthread_setname_np(pthread_self(), "asks");
    for (bool stopping = false; !stopping;) {
        struct cairn_error err = {0};
        bool began = false;
        if (cairn_late_before(&asks->late, &asks->bell, cairn_mono_ms()))
            cairn_up_metrics_late(asks->metrics, CAIRN_UP_WAIT_PEERS);
        for (struct cairn_up_ask *ask; (ask = take_next(asks, &stopping)); began = true)
            begin_request(asks, ask);
        cairn_late_after(&asks->late, &asks->bell, began, cairn_mono_ms());
        uint32_t wait_ms = stopping ? 0 : asks->flying ? LOOK_MS : IDLE_MS;
        uint64_t from_ms = cairn_mono_ms();
        if (cairn_http_poll(asks->engine, wait_ms, &err))
            cairn_log(ERROR, "peers.poll", "cause=\"%s\"", err.message);
        asks->late.timed_out = wait_ms == IDLE_MS && cairn_mono_ms() >= from_ms + IDLE_MS;
        uint64_t now_ms = cairn_mono_ms();
        for (struct cairn_up_ask *at = asks->flying, *next = NULL; at; at = next) {
            next = at->next;
            if (at->turn_ms) {
                if (stopping) {
                    at->code = cairn_fail(&at->error, CAIRN_CANCELLED, "this node stops");
                    end_ask(at);
                } else if (now_ms >= at->turn_ms) {
                    submit(asks, at);
                }
                continue;
            }
            at->late = !stopping && is_late(at, now_ms);
            if (at->late || stopping) cairn_http_cancel(asks->engine, &at->request);
        }
    }
    CAIRN_ASSERT(!asks->flying);
    return NULL;
}

enum cairn_code cairn_up_asks_add(struct cairn_up_asks *asks, struct cairn_up_ask *ask,
                                  struct cairn_error *err) {
    CAIRN_ASSERT(strlen(ask->path) > 0);
    CAIRN_ASSERT(ask->into == NULL || ask->bytes > 0);
    ask->asks = asks;
    ask->next = NULL;
    ask->added_ms = cairn_mono_ms();
    {
        CAIRN_HOLD(&asks->lock);
        if (asks->locked.stopping || passes_by(asks, ask->to.node))
            return cairn_fail(err, CAIRN_UNAVAILABLE, "node %s was passed by", ask->to.node);
        if (asks->locked.count >= CAIRN_UP_ASKS_MAX)
            return cairn_fail(err, CAIRN_BUSY, "%d requests to other nodes are under way",
                              CAIRN_UP_ASKS_MAX);
        asks->locked.count++;
        *asks->locked.last = ask;
        asks->locked.last = &ask->next;
    }
    cairn_late_ring(&asks->bell);
    cairn_http_wake(asks->engine);
    return CAIRN_OK;
}

enum cairn_code cairn_up_asks_new(const char *node, struct cairn_metrics *metrics,
                                  struct cairn_up_asks **ret, struct cairn_error *err) {
    struct cairn_up_asks *asks = calloc(1, sizeof(*asks));
    if (!asks) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for requests to other nodes");
    (void)cairn_text_copy(asks->node, sizeof(asks->node), node);
    asks->metrics = metrics;
    asks->locked.last = &asks->locked.first;
    cairn_lock_init(&asks->lock, CAIRN_LOCK_uploader_asks);
    struct cairn_http_options options = {.connections_max = CAIRN_UP_ASKS_MAX,
                                         .connect_ms = CAIRN_UP_ASK_QUIET_MS,
                                         .refuses_link_local = true};
    enum cairn_code code = cairn_http_engine_new(&options, &asks->engine, err);
    if (!code)
        code =
            cairn_up_thread_start(&asks->thread, asks_main, asks, "requests to other nodes", err);
    if (code) {
        cairn_up_asks_free(asks);
        return code;
    }
    *ret = asks;
    return CAIRN_OK;
}

void cairn_up_asks_stop(struct cairn_up_asks *asks) {
    if (!asks) return;
    cairn_lock_take(&asks->lock);
    asks->locked.stopping = true;
    cairn_lock_give(&asks->lock);
    if (!asks->thread.started) return;
    cairn_http_wake(asks->engine);
    cairn_up_thread_join(&asks->thread);
}

void cairn_up_asks_free(struct cairn_up_asks *asks) {
    if (!asks) return;
    cairn_up_asks_stop(asks);
    if (asks->engine) cairn_http_engine_free(asks->engine);
    cairn_lock_release(&asks->lock);
    free(asks);
}
