/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs the tasks of one worker. No list is walked across a call of done(), which may submit and
 * cancel: the next due task is searched anew each time.
 */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/clock.h"
#include "common/crc.h"
#include "common/log.h"
#include "common/text.h"
#include "store/s3/inside.h"

#define HEDGES_MAX 2
#define COMPLETE_TRIES_MAX 3
#define TROUBLE_AGAIN_MS 60000
/* Interval of checks on parts that wait for a reply. */
#define HEDGE_LOOK_MS 50

static struct cairn_s3_worker *worker_of(struct cairn_store_worker *worker) {
    return (struct cairn_s3_worker *)worker;
}

/* Adds the tries of a finished ticket. */
static void note_tries(struct cairn_s3_task *task) {
    task->tries += task->ticket.tries_sent;
    for (int i = 0; i < CAIRN_RETRY_OUTCOMES; i++) task->retried[i] += task->ticket.retried[i];
    task->ticket = (struct cairn_retry_ticket){0};
}

static void finish_task(struct cairn_s3_task *task) {
    struct cairn_s3_worker *worker = task->worker;
    struct cairn_store_request *request = task->request;
    char part[24] = "";
    CAIRN_ASSERT(!task->ticket.under_way);
    TAILQ_REMOVE(task->is_active ? &worker->active : &worker->waiting, task, place);
    note_tries(task);
    request->tries = task->tries;
    memcpy(request->retried, task->retried, sizeof(request->retried));
    cairn_s3_reply_compare_sent(task);
    if (request->code == CAIRN_OK) {
        request->ambiguous = false;
        request->error = (struct cairn_error){0};
    } else {
        if (request->op == CAIRN_STORE_UPLOAD_PART)
            snprintf(part, sizeof part, " %" PRIu32 " of", request->part_number);
        request->error.code = request->code;
        cairn_within(&request->error, request->code, "%s%s %s", cairn_store_op_verb(request->op),
                     part, cairn_short(request->key).text);
    }
    request->worker_private = NULL;
    if (task->lines.data) explicit_bzero(task->lines.data, task->lines.capacity);
    cairn_buf_release(&task->url);
    cairn_buf_release(&task->lines);
    cairn_buf_release(&task->document);
    cairn_buf_release(&task->reply);
    cairn_buf_release(&task->prefix);
    free(task);
    worker->finished_count++;
    request->done(request);
}

static void finish_with(struct cairn_s3_task *task, enum cairn_code code,
                        const struct cairn_error *error) {
    task->request->code = code;
    task->request->error = *error;
    task->request->ambiguous = task->may_be_applied;
    finish_task(task);
}

/* A body that arrived altered stays CAIRN_CORRUPT: it is the way that has to be mended. */
static void finish_late(struct cairn_s3_task *task) {
    struct cairn_error error = task->last;
    if (!error.message[0]) cairn_fail(&error, CAIRN_TIMEOUT, "it was not its turn yet");
    enum cairn_code code =
        task->altered && error.code == CAIRN_CORRUPT ? CAIRN_CORRUPT : CAIRN_TIMEOUT;
    cairn_within(&error, code, "no success before the deadline; last");
    finish_with(task, code, &error);
}

static enum cairn_retry_decision report_outcome(struct cairn_s3_task *task,
                                                enum cairn_retry_outcome outcome) {
    struct cairn_s3_store *store = cairn_s3_store_of(task);
    CAIRN_HOLD(&store->lock);
    return cairn_retry_result(&store->locked.retry, &task->ticket, outcome,
                              cairn_s3_reply_retry_after_ms(task));
}

static void drop_ticket(struct cairn_s3_task *task) {
    struct cairn_s3_store *store = cairn_s3_store_of(task);
    CAIRN_HOLD(&store->lock);
    cairn_retry_drop(&store->locked.retry, &task->ticket);
}

/* Goes before tasks that were never sent: other parts wait for theirs. */
static void wait_again(struct cairn_s3_task *task) {
    struct cairn_s3_worker *worker = task->worker;
    TAILQ_REMOVE(&worker->active, task, place);
    task->is_active = false;
    task->wait_until_ms = 0;
    TAILQ_INSERT_HEAD(&worker->waiting, task, place);
}

/* S01: HEAD settles a repeatedly failing Complete (R3). Ceph answers 500 for ever to a vanished
 * upload. */
static bool is_for_head(const struct cairn_s3_task *task) {
    return task->request->op == CAIRN_STORE_UPLOAD_COMPLETE && task->may_be_applied &&
           task->ticket.tries_sent >= COMPLETE_TRIES_MAX;
}

/* Retries may last minutes; their cause is reported sooner. */
static void tell_trouble(struct cairn_s3_task *task) {
    struct cairn_s3_store *store = cairn_s3_store_of(task);
    uint64_t now_ms = cairn_s3_mono_ms(store), since_ms = 0;
    bool tell = false;
    {
        CAIRN_HOLD(&store->lock);
        const struct cairn_retry *retry = &store->locked.retry;
        store->locked.failed_ms = now_ms;
        cairn_utf8_shorten(store->locked.failed, sizeof(store->locked.failed), task->last.message);
        if (retry->failing) since_ms = now_ms - retry->failing_since_ms;
        tell =
            since_ms >= CAIRN_S3_TROUBLE_MS && now_ms - store->locked.told_ms >= TROUBLE_AGAIN_MS;
        if (tell) store->locked.told_ms = now_ms;
    }
    if (tell)
        cairn_log(WARN, "store.failing", "url=%s for_s=%" PRIu64 " last=\"%s %s: %s\"",
                  store->base.url, since_ms / 1000, cairn_store_op_verb(task->request->op),
                  cairn_short(task->request->key).text, task->last.message);
}

/* From 50, 100, 200 and 400 ms up to twice that. */
static uint64_t altered_pause_ms(struct cairn_s3_task *task) {
    struct cairn_s3_store *store = cairn_s3_store_of(task);
    CAIRN_HOLD(&store->lock);
    return (UINT64_C(25) << task->altered) +
           cairn_retry_delay_ms(&store->locked.retry, task->altered) / 2;
}

/* If the pause would outlast the deadline, this answer is the last. */
static void resend(struct cairn_s3_task *task) {
    uint64_t until_ms = cairn_s3_mono_ms(cairn_s3_store_of(task)) + altered_pause_ms(task);
    if (until_ms >= task->deadline_ms) {
        finish_task(task);
        return;
    }
    wait_again(task);
    task->wait_until_ms = until_ms;
}

static void act_on(struct cairn_s3_task *task, enum cairn_s3_judgement judgement) {
    bool answered = task->http.status != 0;
    switch (judgement) {
    case CAIRN_S3_DONE:
        (void)report_outcome(task, answered ? CAIRN_RETRY_GOOD : CAIRN_RETRY_FAILURE);
        const struct cairn_http_request *http = &task->http;
        if (task->request->op == CAIRN_STORE_UPLOAD_PART && !task->request->code) {
            if (http->sent_at_us && http->reply_at_us > http->sent_at_us)
                cairn_s3_hedge_answer(&task->worker->hedge, http->reply_at_us - http->sent_at_us);
        }
        struct cairn_store_request *request = task->request;
        if (!(request->code || !request->body.size || http->link_us == UINT64_MAX)) {
            request->link_us = http->link_us;
            request->store_us = http->first_byte_us - http->link_us;
        }
        finish_task(task);
        return;
    case CAIRN_S3_CORRECTED:
        (void)report_outcome(task, CAIRN_RETRY_GOOD);
        wait_again(task);
        return;
    case CAIRN_S3_MORE:
        (void)report_outcome(task, CAIRN_RETRY_GOOD);
        note_tries(task);
        wait_again(task);
        return;
    case CAIRN_S3_RESEND:
        (void)report_outcome(task, CAIRN_RETRY_GOOD);
        resend(task);
        return;
    case CAIRN_S3_FAILURE:
    case CAIRN_S3_SLOW:
        break;
    }
    enum cairn_retry_outcome outcome = judgement == CAIRN_S3_SLOW ? CAIRN_RETRY_SLOW_DOWN
                                       : task->http.reached       ? CAIRN_RETRY_FAILURE
                                                                  : CAIRN_RETRY_UNREACHED;
    enum cairn_retry_decision again = report_outcome(task, outcome);
    tell_trouble(task);
    if (again == CAIRN_RETRY_GIVE_UP || is_for_head(task))
        finish_task(task);
    else
        wait_again(task);
}

static void on_http_done(struct cairn_http_request *http) {
    struct cairn_s3_task *task = http->owner;
    task->worker->fresh_wait_until_ms = 0;
    if (task->hedging) {
        task->hedging = false;
        task->hedges++;
        cairn_s3_hedge_resent(&task->worker->hedge);
        drop_ticket(task);
        wait_again(task);
        return;
    }
    enum cairn_s3_judgement judgement = cairn_s3_reply_judge(task);
    if (!task->cancelling) {
        act_on(task, judgement);
        return;
    }
    drop_ticket(task);
    finish_task(task);
}

/* False: not yet; wait_until_ms says when. */
static bool may_send(struct cairn_s3_task *task, uint64_t now) {
    struct cairn_s3_store *store = cairn_s3_store_of(task);
    uint64_t cap = store->config.options.bandwidth_bytes_per_s, wait_ms = 0;
    uint64_t now_us = cairn_mono_us(), bytes = cap ? task->request->body.size : 0;
    CAIRN_HOLD(&store->lock);
    if (bytes && store->locked.line_free_at_us > now_us) {
        task->wait_until_ms = now + 1 + (store->locked.line_free_at_us - now_us) / 1000;
        return false;
    }
    bool fresh = task->ticket.tries_sent == 0;
    if (cairn_retry_admit(&store->locked.retry, &task->ticket, &wait_ms) == CAIRN_RETRY_WAIT) {
        task->wait_until_ms = now + wait_ms;
        if (fresh) task->worker->fresh_wait_until_ms = now + wait_ms;
        return false;
    }
    if (bytes)
        store->locked.line_free_at_us = now_us + (uint64_t)((double)bytes * 1e6 / (double)cap);
    return true;
}

static void start_task(struct cairn_s3_task *task, uint64_t now) {
    struct cairn_s3_worker *worker = task->worker;
    struct cairn_error error = {0};
    enum cairn_code code = cairn_s3_request_build(task, &error);
    if (!code) {
        task->http.total_ms = (uint32_t)cairn_min_u64(task->deadline_ms - now, UINT32_MAX);
        task->http.done = on_http_done;
        code = cairn_http_submit(worker->engine, &task->http, &error);
    }
    if (code) {
        drop_ticket(task);
        finish_with(task, code, &error);
        return;
    }
    TAILQ_REMOVE(&worker->waiting, task, place);
    task->is_active = true;
    TAILQ_INSERT_HEAD(&worker->active, task, place);
}

static void refuse_without_task(struct cairn_s3_worker *worker) {
    while (worker->without_task) {
        struct cairn_store_request *request = worker->without_task;
        worker->without_task = request->worker_private;
        request->worker_private = NULL;
        request->code =
            cairn_fail(&request->error, CAIRN_NO_MEMORY, "no memory for a request to the store");
        worker->finished_count++;
        request->done(request);
    }
}

/* Settles without the network what is forbidden here, and empty requests. */
static bool is_settled(struct cairn_s3_task *task) {
    struct cairn_store_request *request = task->request;
    struct cairn_error error = {0};
    if (cairn_s3_store_of(task)->read_only && cairn_store_op_writes(request->op)) {
        finish_with(task, cairn_fail(&error, CAIRN_FORBIDDEN, "the store was opened for reading"),
                    &error);
        return true;
    }
    bool nothing = request->op == CAIRN_STORE_GET && !request->length;
    if (request->op == CAIRN_STORE_DELETE_MANY) nothing = cairn_s3_delete_decided(request, &error);
    if (!nothing) return false;
    finish_with(task, error.code, &error);
    return true;
}

static uint64_t due_ms(const struct cairn_s3_task *task) {
    uint64_t due = task->wait_until_ms;
    if (!task->ticket.tries_sent) due = cairn_max_u64(due, task->worker->fresh_wait_until_ms);
    return cairn_min_u64(due, task->deadline_ms);
}

static struct cairn_s3_task *first_due(const struct cairn_s3_worker *worker, uint64_t now,
                                       uint64_t *ret_next_ms) {
    struct cairn_s3_task *task;
    *ret_next_ms = UINT64_MAX;
    TAILQ_FOREACH(task, &worker->waiting, place) {
        uint64_t due = due_ms(task);
        if (due <= now) return task;
        *ret_next_ms = cairn_min_u64(*ret_next_ms, due);
    }
    return NULL;
}

/* Returns the next due time of a waiting task, on the store's mono clock. */
static uint64_t start_waiting(struct cairn_s3_worker *worker) {
    for (;;) {
        uint64_t next_ms, now = cairn_s3_mono_ms(worker->store);
        struct cairn_s3_task *task = first_due(worker, now, &next_ms);
        if (!task) return next_ms;
        if (now >= task->deadline_ms)
            finish_late(task);
        else if (!is_settled(task) && may_send(task, now))
            start_task(task, now);
    }
}

static bool is_slow(const struct cairn_s3_task *task, uint64_t now_us, uint64_t limit_us) {
    const struct cairn_http_request *http = &task->http;
    return task->request->op == CAIRN_STORE_UPLOAD_PART && task->hedges < HEDGES_MAX &&
           http->sent_at_us && !http->reply_at_us && now_us - http->sent_at_us > limit_us;
}

/* True while some part may become slow. */
static bool hedge_slow_part(struct cairn_s3_worker *worker) {
    struct cairn_s3_store *store = worker->store;
    uint64_t limit_us = cairn_s3_hedge_limit_us(&worker->hedge), now_us = cairn_mono_us();
    if (store->config.options.no_hedge || limit_us == UINT64_MAX || TAILQ_EMPTY(&worker->active))
        return false;
    {
        CAIRN_HOLD(&store->lock);
        if (cairn_retry_paused(&store->locked.retry)) return false;
    }
    struct cairn_s3_task *task;
    TAILQ_FOREACH(task, &worker->active, place)
        if (is_slow(task, now_us, limit_us)) break;
    if (task) {
        task->hedging = true;
        cairn_http_cancel(worker->engine, &task->http);
    }
    return true;
}

enum cairn_code cairn_s3_poll(struct cairn_store_worker *base, uint32_t timeout_ms,
                              struct cairn_error *err) {
    struct cairn_s3_worker *worker = worker_of(base);
    uint64_t until = cairn_mono_ms() + timeout_ms, finished = worker->finished_count;
    for (;;) {
        refuse_without_task(worker);
        bool watching = hedge_slow_part(worker);
        uint64_t next_ms = start_waiting(worker), now = cairn_s3_mono_ms(worker->store);
        uint64_t left = cairn_mono_ms() < until ? until - cairn_mono_ms() : 0;
        if (watching) left = cairn_min_u64(left, HEDGE_LOOK_MS);
        if (worker->finished_count != finished || atomic_exchange(&worker->woken, false))
            return CAIRN_OK;
        if (next_ms != UINT64_MAX) left = cairn_min_u64(left, next_ms > now ? next_ms - now : 0);
        CAIRN_TRY(cairn_http_poll(worker->engine, (uint32_t)left, err));
        if (worker->finished_count != finished) return CAIRN_OK;
        if (cairn_mono_ms() >= until) return CAIRN_OK;
    }
}

enum cairn_code cairn_s3_of(struct cairn_store *base, struct cairn_s3_store **ret,
                            struct cairn_error *err) {
    if (base->vtable->poll != cairn_s3_poll)
        return cairn_fail(err, CAIRN_UNSUPPORTED, "store %s is not in S3", base->url);
    *ret = (struct cairn_s3_store *)base;
    return CAIRN_OK;
}

void cairn_s3_submit(struct cairn_store_worker *base, struct cairn_store_request *request) {
    struct cairn_s3_worker *worker = worker_of(base);
    struct cairn_s3_task *task = calloc(1, sizeof *task);
    if (!task) {
        request->worker_private = worker->without_task;
        worker->without_task = request;
        return;
    }
    uint64_t now = cairn_s3_mono_ms(worker->store);
    task->worker = worker;
    task->request = request;
    task->deadline_ms = request->deadline_ms ? request->deadline_ms
                                             : now + worker->store->config.options.deadline_ms;
    bool lists = cairn_store_op_lists(request->op) || request->op == CAIRN_STORE_DELETE_MANY;
    task->reply.limit = lists ? CAIRN_S3_DOCUMENT_BYTES_MAX : CAIRN_MIB; /* S29 */
    task->parts = (struct cairn_xml_parts){request->parts, 0, request->part_count, 0};
    /* A bucket with Object Lock demands a checksum, also of small documents. */
    task->own_crc32c = request->op == CAIRN_STORE_PUT && !request->has_crc32c;
    if (task->own_crc32c) {
        request->has_crc32c = true;
        request->crc32c = cairn_crc32c(0, request->body.data, request->body.size);
    }
    request->worker_private = task;
    TAILQ_INSERT_TAIL(&worker->waiting, task, place);
    worker->reads = request->op == CAIRN_STORE_GET;
}

static bool cancel_without_task(struct cairn_s3_worker *worker,
                                struct cairn_store_request *request) {
    struct cairn_store_request **at = &worker->without_task;
    while (*at && *at != request) at = (struct cairn_store_request **)&(*at)->worker_private;
    if (!*at) return false;
    *at = request->worker_private;
    return true;
}

void cairn_s3_cancel(struct cairn_store_worker *base, struct cairn_store_request *request) {
    struct cairn_s3_worker *worker = worker_of(base);
    struct cairn_error error = {0};
    enum cairn_code code = cairn_fail(&error, CAIRN_CANCELLED, "cancelled");
    if (cancel_without_task(worker, request)) {
        request->worker_private = NULL;
        request->code = code;
        request->error = error;
        request->done(request);
        return;
    }
    struct cairn_s3_task *task = request->worker_private;
    if (!task) return;
    if (!task->is_active) {
        finish_with(task, code, &error);
        return;
    }
    task->cancelling = true;
    cairn_http_cancel(worker->engine, &task->http);
}

void cairn_s3_wake(struct cairn_store_worker *base) {
    struct cairn_s3_worker *worker = worker_of(base);
    atomic_store(&worker->woken, true);
    cairn_http_wake(worker->engine);
}

static void count_share(struct cairn_s3_worker *worker, struct cairn_s3_share share) {
    const struct cairn_s3_share old = worker->share;
    atomic_int *sharing = worker->store->sharing, *busy = worker->store->busy;
    worker->share = share;
    if (share.counts) atomic_fetch_add(&sharing[share.reads], 1);
    if (share.busy) atomic_fetch_add(&busy[share.reads], 1);
    if (old.counts) atomic_fetch_sub(&sharing[old.reads], 1);
    if (old.busy) atomic_fetch_sub(&busy[old.reads], 1);
}

/* Shares connections among active workers of a kind and busy ones of the other: readers yield while
 * shards are sent, and vice versa. store/retry.h limits the sum. */
uint32_t cairn_s3_appetite(const struct cairn_store_worker *base) {
    struct cairn_s3_worker *worker = worker_of((struct cairn_store_worker *)base);
    struct cairn_s3_store *store = worker->store;
    bool reads = worker->reads;
    bool works = !TAILQ_EMPTY(&worker->waiting) || !TAILQ_EMPTY(&worker->active);
    count_share(worker, (struct cairn_s3_share){true, reads, works});
    int workers = atomic_load(&store->sharing[reads]) + atomic_load(&store->busy[!reads]);
    uint32_t all;
    {
        CAIRN_HOLD(&store->lock);
        all = cairn_retry_concurrency(&store->locked.retry);
    }
    uint64_t share = cairn_div_up(all, (uint64_t)workers);
    return (uint32_t)cairn_min_u64(share, store->config.options.connections_max);
}

enum cairn_code cairn_s3_worker_new(struct cairn_store *base, struct cairn_store_worker **ret,
                                    struct cairn_error *err) {
    struct cairn_s3_store *store = (struct cairn_s3_store *)base;
    const struct cairn_store_s3_options *options = &store->config.options;
    struct cairn_s3_worker *worker = calloc(1, sizeof *worker);
    if (!worker) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a store worker");
    TAILQ_INIT(&worker->waiting);
    TAILQ_INIT(&worker->active);
    worker->base.store = base;
    worker->store = store;
    uint32_t index = atomic_fetch_add(&store->workers, 1);
    struct cairn_http_options http = {
        .connections_max = options->connections_max,
        .connect_ms = options->connect_ms,
        .verbose_trace = options->verbose_trace,
        .refuses_link_local = true,
        .ca_bundle = options->ca_bundle,
        .congestion = options->congestion,
        .interface_name =
            options->interface_count ? options->interfaces[index % options->interface_count] : NULL,
    };
    enum cairn_code code = cairn_http_engine_new(&http, &worker->engine, err);
    if (code) {
        atomic_fetch_sub(&store->workers, 1);
        free(worker);
        return code;
    }
    *ret = &worker->base;
    return CAIRN_OK;
}

void cairn_s3_worker_free(struct cairn_store_worker *base) {
    struct cairn_s3_worker *worker = worker_of(base);
    refuse_without_task(worker);
    struct cairn_s3_task *first;
    while ((first = TAILQ_FIRST(&worker->waiting))) cairn_s3_cancel(base, first->request);
    while ((first = TAILQ_FIRST(&worker->active))) cairn_s3_cancel(base, first->request);
    cairn_http_engine_free(worker->engine);
    cairn_sigv4_signer_release(&worker->signer);
    count_share(worker, (struct cairn_s3_share){0});
    atomic_fetch_sub(&worker->store->workers, 1);
    free(worker);
}

/* ---- hedging ---- */

#define SECOND_US UINT64_C(1000000)
#define LIMIT_MAX_US (5 * SECOND_US)
/* With fewer parts the share of resent ones means nothing. */
#define SHARE_PARTS_MIN 1000

static int by_size(const void *left, const void *right) {
    const uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return (a > b) - (a < b);
}

static void note_first(struct cairn_s3_hedge *hedge, uint64_t waited_us) {
    hedge->first_us[hedge->answers++] = waited_us;
    if (hedge->answers < CAIRN_S3_HEDGE_FIRST) return;
    uint64_t sorted[CAIRN_S3_HEDGE_FIRST], sum = 0;
    memcpy(sorted, hedge->first_us, sizeof sorted);
    qsort(sorted, CAIRN_S3_HEDGE_FIRST, sizeof sorted[0], by_size);
    for (size_t i = 0; i < CAIRN_S3_HEDGE_FIRST; i++) sum += sorted[i];
    hedge->mean_us = sum / CAIRN_S3_HEDGE_FIRST;
    hedge->margin_us = 7 * SECOND_US / 10;
    hedge->limit_first_us = cairn_max_u64(sorted[CAIRN_S3_HEDGE_FIRST * 9 / 10 - 1], SECOND_US);
}

void cairn_s3_hedge_answer(struct cairn_s3_hedge *hedge, uint64_t waited_us) {
    if (hedge->answers < CAIRN_S3_HEDGE_FIRST) {
        note_first(hedge, waited_us);
        return;
    }
    hedge->parts++;
    hedge->mean_us = (99 * hedge->mean_us + waited_us) / 100;
}

void cairn_s3_hedge_resent(struct cairn_s3_hedge *hedge) {
    hedge->parts++;
    hedge->resent++;
    uint64_t more = 0;
    if (hedge->resent * 100 > cairn_max_u64(hedge->parts, SHARE_PARTS_MIN))
        more = SECOND_US;
    else if (hedge->parts >= SHARE_PARTS_MIN && hedge->resent * 1000 > hedge->parts)
        more = SECOND_US / 10;
    if (!more) return;
    hedge->margin_us += more;
    hedge->parts = hedge->resent = 0;
    hedge->stopped = cairn_s3_hedge_limit_us(hedge) >= LIMIT_MAX_US;
}

uint64_t cairn_s3_hedge_limit_us(const struct cairn_s3_hedge *hedge) {
    if (hedge->stopped || hedge->answers < CAIRN_S3_HEDGE_FIRST) return UINT64_MAX;
    uint64_t usual = hedge->mean_us + hedge->margin_us;
    /* The first rule holds until the mean rests on enough values. */
    return hedge->parts < CAIRN_S3_HEDGE_FIRST && !hedge->resent
               ? cairn_max_u64(usual, hedge->limit_first_us)
               : usual;
}
