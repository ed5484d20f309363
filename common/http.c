/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One libcurl multi per engine. A transfer is a kept easy handle lent to one request at a time:
 * waiting (more requests than connections) -> active -> idle. Deadlines and stalls are counted
 * here and not by libcurl, so that every way of giving up ends in the same function and resets the
 * connection.
 */
#include "common/http.h"

#include <pthread.h>
#include <stdlib.h>

#include "common/clock.h"
#include "common/http_transfer.h"

#define STALL_MS_DEFAULT 30000
/* The longest single wait; it only keeps the number within libcurl's int. */
#define WAIT_MS_MAX 60000

static pthread_once_t curl_once = PTHREAD_ONCE_INIT;
static void start_curl(void) {
    curl_global_init(CURL_GLOBAL_DEFAULT);
}

static void list_push(struct cairn_http_transfer **list, struct cairn_http_transfer *transfer) {
    transfer->next = *list;
    *list = transfer;
}

static void list_append(struct cairn_http_transfer **list, struct cairn_http_transfer *transfer) {
    while (*list) list = &(*list)->next;
    transfer->next = NULL;
    *list = transfer;
}

static void list_remove(struct cairn_http_transfer **list,
                        const struct cairn_http_transfer *transfer) {
    while (*list && *list != transfer) list = &(*list)->next;
    if (*list) *list = transfer->next;
}

/* ---- engine ---- */

static enum cairn_code copy_option(const char *text, char **ret, struct cairn_error *err) {
    *ret = text ? strdup(text) : NULL;
    return text && !*ret ? cairn_fail(err, CAIRN_NO_MEMORY, "no memory for http options")
                         : CAIRN_OK;
}

enum cairn_code cairn_http_engine_new(const struct cairn_http_options *options,
                                      struct cairn_http_engine **ret, struct cairn_error *err) {
    pthread_once(&curl_once, start_curl);
    struct cairn_http_engine *engine = calloc(1, sizeof *engine);
    if (!engine) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for an http engine");
    engine->multi = curl_multi_init();
    enum cairn_code code = engine->multi
                               ? CAIRN_OK
                               : cairn_fail(err, CAIRN_NO_MEMORY, "libcurl gives no multi handle");
    if (options) engine->options = *options;
    if (!code) code = copy_option(engine->options.ca_bundle, &engine->ca_bundle, err);
    if (!code) code = copy_option(engine->options.interface_name, &engine->interface_name, err);
    if (!code) code = copy_option(engine->options.congestion, &engine->congestion, err);
    if (code) {
        cairn_http_engine_free(engine);
        return code;
    }
    if (!engine->options.connections_max) engine->options.connections_max = 64;
    if (!engine->options.connect_ms) engine->options.connect_ms = 5000;
    curl_multi_setopt(engine->multi, CURLMOPT_PIPELINING, (long)CURLPIPE_NOTHING);
    curl_multi_setopt(engine->multi, CURLMOPT_MAXCONNECTS, (long)engine->options.connections_max);
    *ret = engine;
    return CAIRN_OK;
}

static void free_transfers(struct cairn_http_transfer *list) {
    while (list) {
        struct cairn_http_transfer *next = list->next;
        curl_easy_cleanup(list->easy);
        free(list);
        list = next;
    }
}

void cairn_http_engine_free(struct cairn_http_engine *engine) {
    if (!engine) return;
    while (engine->waiting) cairn_http_cancel(engine, engine->waiting->request);
    while (engine->active) cairn_http_cancel(engine, engine->active->request);
    free_transfers(engine->idle);
    if (engine->multi) curl_multi_cleanup(engine->multi);
    free(engine->ca_bundle);
    free(engine->interface_name);
    free(engine->congestion);
    free(engine);
}

static enum cairn_code take_transfer(struct cairn_http_engine *engine,
                                     struct cairn_http_transfer **ret, struct cairn_error *err) {
    struct cairn_http_transfer *transfer = engine->idle;
    if (transfer) {
        list_remove(&engine->idle, transfer);
        curl_easy_reset(transfer->easy);
        *transfer = (struct cairn_http_transfer){.easy = transfer->easy, .engine = engine};
        *ret = transfer;
        return CAIRN_OK;
    }
    transfer = calloc(1, sizeof *transfer);
    CURL *easy = transfer ? curl_easy_init() : NULL;
    if (!easy) {
        free(transfer);
        return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for an http request");
    }
    transfer->easy = easy;
    transfer->engine = engine;
    *ret = transfer;
    return CAIRN_OK;
}

static void forget_reply(struct cairn_http_request *request) {
    request->code = CAIRN_OK;
    request->status = 0;
    request->reply_bytes = request->sent_bytes = request->first_byte_us = 0;
    request->sent_at_us = request->reply_at_us = 0;
    request->starts = 0;
    request->reached = false;
    request->content_length = UINT64_MAX;
    request->error = (struct cairn_error){0};
}

static void release_transfer(struct cairn_http_transfer *transfer) {
    curl_slist_free_all(transfer->headers);
    transfer->headers = NULL;
    transfer->request = NULL;
    list_push(&transfer->engine->idle, transfer);
}

enum cairn_code cairn_http_submit(struct cairn_http_engine *engine,
                                  struct cairn_http_request *request, struct cairn_error *err) {
    CAIRN_ASSERT(!request->engine_private);
    if (request->header_count > CAIRN_HTTP_HEADERS_MAX)
        return cairn_fail(err, CAIRN_INVALID, "more than %d request headers",
                          CAIRN_HTTP_HEADERS_MAX);
    struct cairn_http_transfer *transfer = NULL;
    CAIRN_TRY(take_transfer(engine, &transfer, err));
    forget_reply(request);
    transfer->request = request;
    transfer->submitted_us = cairn_mono_us();
    enum cairn_code code = cairn_http_transfer_prepare(transfer, err);
    if (code) {
        release_transfer(transfer);
        return code;
    }
    request->engine_private = transfer;
    list_append(&engine->waiting, transfer);
    engine->waiting_count++;
    return CAIRN_OK;
}

/* ---- the end of a request ---- */

/* scheme://host without user, path or query, for error messages. */
static int origin_size(const char *url) {
    const char *host = strstr(url, "://");
    return (int)(host ? (size_t)(host + 3 - url) + strcspn(host + 3, "/?#") : strcspn(url, "/?#"));
}

static bool was_sent(const struct cairn_http_transfer *transfer) {
    curl_off_t before_us = 0;
    curl_easy_getinfo(transfer->easy, CURLINFO_PRETRANSFER_TIME_T, &before_us);
    return before_us > 0;
}

static enum cairn_code code_of_curl(const struct cairn_http_transfer *transfer, CURLcode result) {
    switch (result) {
    case CURLE_OPERATION_TIMEDOUT:
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_CONNECT:
    case CURLE_GOT_NOTHING:
    case CURLE_RECV_ERROR:
    case CURLE_SEND_ERROR:
    case CURLE_PARTIAL_FILE:
    case CURLE_INTERFACE_FAILED:
        return CAIRN_UNAVAILABLE;
    case CURLE_SSL_CONNECT_ERROR: /* a cut handshake may pass, a port without TLS will not */
        return strstr(transfer->curl_text, "wrong version number") ? CAIRN_INVALID
                                                                   : CAIRN_UNAVAILABLE;
    case CURLE_PEER_FAILED_VERIFICATION:
        return CAIRN_FORBIDDEN;
    case CURLE_UNSUPPORTED_PROTOCOL: /* also: an answer that is no HTTP/1 */
        return was_sent(transfer) ? CAIRN_PROTOCOL : CAIRN_INVALID;
    case CURLE_URL_MALFORMAT:
    case CURLE_SSL_CACERT_BADFILE:
        return CAIRN_INVALID;
    case CURLE_OUT_OF_MEMORY: /* also: a reply's header line longer than libcurl takes */
        return was_sent(transfer) ? CAIRN_PROTOCOL : CAIRN_NO_MEMORY;
    default:
        return transfer->request->status ? CAIRN_PROTOCOL : CAIRN_UNAVAILABLE;
    }
}

/* CURLE_OK proves little: a clean close in the middle of a body is CURLE_OK when no length was
 * announced, so the caller must compare with what it expects when content_length is not said. */
static enum cairn_code judge(struct cairn_http_transfer *transfer, CURLcode result,
                             struct cairn_error *err) {
    const struct cairn_http_request *request = transfer->request;
    if (transfer->refused) {
        if (err) *err = transfer->error;
        return transfer->refused;
    }
    if (result != CURLE_OK)
        return cairn_fail(err, code_of_curl(transfer, result), "%s",
                          transfer->curl_text[0] ? transfer->curl_text
                                                 : curl_easy_strerror(result));
    if (!transfer->headers_over) return cairn_fail(err, CAIRN_PROTOCOL, "no whole reply came");
    bool bodiless =
        !strcmp(request->method, "HEAD") || request->status == 204 || request->status == 304;
    if (!bodiless && request->content_length != UINT64_MAX &&
        request->content_length != request->reply_bytes)
        return cairn_fail(err, CAIRN_UNAVAILABLE, "the reply ended after %llu of %llu bytes",
                          (unsigned long long)request->reply_bytes,
                          (unsigned long long)request->content_length);
    return CAIRN_OK;
}

static void note_figures(struct cairn_http_transfer *transfer) {
    struct cairn_http_request *request = transfer->request;
    curl_off_t sent = 0, before = 0, first = 0;
    curl_easy_getinfo(transfer->easy, CURLINFO_SIZE_UPLOAD_T, &sent);
    curl_easy_getinfo(transfer->easy, CURLINFO_PRETRANSFER_TIME_T, &before);
    curl_easy_getinfo(transfer->easy, CURLINFO_STARTTRANSFER_TIME_T, &first);
    request->sent_bytes = (uint64_t)sent;
    request->reached = before > 0;
    if (request->reply_at_us && first > before) request->first_byte_us = (uint64_t)(first - before);
    if (request->reply_at_us && !request->first_byte_us) request->first_byte_us = 1;
}

/* The one way out of a request. The code and sentence are in error when it failed. */
static void end_request(struct cairn_http_transfer *transfer, enum cairn_code code,
                        const struct cairn_error *error) {
    struct cairn_http_engine *engine = transfer->engine;
    struct cairn_http_request *request = transfer->request;
    if (transfer->is_active) {
        note_figures(transfer);
        curl_multi_remove_handle(engine->multi, transfer->easy);
        list_remove(&engine->active, transfer);
        engine->active_count--;
    } else {
        list_remove(&engine->waiting, transfer);
        engine->waiting_count--;
    }
    transfer->is_active = false;
    engine->ended_count++;
    request->code = code;
    if (code) {
        request->error = *error;
        request->error.code = code;
        request->error.http_status = request->status;
        cairn_within(&request->error, code, "%s %.*s", request->method, origin_size(request->url),
                     request->url);
    }
    request->engine_private = NULL;
    release_transfer(transfer);
    if (request->done) request->done(request);
}

void cairn_http_cancel(struct cairn_http_engine *engine, struct cairn_http_request *request) {
    struct cairn_http_transfer *transfer = request->engine_private;
    if (!transfer) return;
    CAIRN_ASSERT(transfer->engine == engine);
    struct cairn_error error = {0};
    end_request(transfer, cairn_fail(&error, CAIRN_CANCELLED, "cancelled"), &error);
}

/* ---- the loop ---- */

static void start_waiting(struct cairn_http_engine *engine) {
    while (engine->waiting && engine->active_count < engine->options.connections_max) {
        struct cairn_http_transfer *transfer = engine->waiting;
        if (curl_multi_add_handle(engine->multi, transfer->easy) != CURLM_OK) {
            struct cairn_error error = {0};
            end_request(transfer, cairn_fail(&error, CAIRN_NO_MEMORY, "libcurl takes no request"),
                        &error);
            continue;
        }
        list_remove(&engine->waiting, transfer);
        engine->waiting_count--;
        list_push(&engine->active, transfer);
        engine->active_count++;
        transfer->is_active = true;
        transfer->moved_us = cairn_mono_us();
    }
}

/* libcurl itself repeats a request on a kept connection that turns out to be dead, but not when it
 * notices while sending the body. No byte of a reply came and the body was not taken whole, so
 * repeating it, once and on a new connection, cannot do anything twice. */
static bool resend(struct cairn_http_engine *engine, struct cairn_http_transfer *transfer,
                   CURLcode result) {
    struct cairn_http_request *request = transfer->request;
    long connects = 1;
    curl_easy_getinfo(transfer->easy, CURLINFO_NUM_CONNECTS, &connects);
    if (result != CURLE_SEND_ERROR || connects || request->reply_at_us || transfer->resent)
        return false;
    transfer->resent = true;
    transfer->sent_bytes = 0;
    request->sent_at_us = 0;
    curl_multi_remove_handle(engine->multi, transfer->easy);
    curl_easy_setopt(transfer->easy, CURLOPT_FRESH_CONNECT, 1L);
    return curl_multi_add_handle(engine->multi, transfer->easy) == CURLM_OK;
}

static void reap(struct cairn_http_engine *engine) {
    int left;
    for (CURLMsg *message; (message = curl_multi_info_read(engine->multi, &left));) {
        if (message->msg != CURLMSG_DONE) continue;
        CURLcode result = message->data.result;
        struct cairn_http_transfer *transfer = NULL;
        curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &transfer);
        if (resend(engine, transfer, result)) continue;
        struct cairn_error error = {0};
        enum cairn_code code = judge(transfer, result, &error);
        end_request(transfer, code, &error);
    }
}

/* When this request is given up, on the mono clock in us; *ret_total tells by which of its two
 * bounds. */
static uint64_t due_us(const struct cairn_http_transfer *transfer, bool *ret_total) {
    const struct cairn_http_request *request = transfer->request;
    uint64_t stall_ms = request->stall_ms ? request->stall_ms : STALL_MS_DEFAULT;
    uint64_t stall = transfer->is_active ? transfer->moved_us + stall_ms * 1000 : UINT64_MAX;
    uint64_t total = request->total_ms ? transfer->submitted_us + (uint64_t)request->total_ms * 1000
                                       : UINT64_MAX;
    *ret_total = total <= stall;
    return *ret_total ? total : stall;
}

static struct cairn_http_transfer *first_late(struct cairn_http_transfer *list, uint64_t now,
                                              bool *ret_total) {
    for (; list; list = list->next)
        if (due_us(list, ret_total) <= now) return list;
    return NULL;
}

static void end_late(struct cairn_http_engine *engine) {
    uint64_t now = cairn_mono_us();
    for (;;) {
        bool total = false;
        struct cairn_http_transfer *transfer = first_late(engine->active, now, &total);
        if (!transfer) transfer = first_late(engine->waiting, now, &total);
        if (!transfer) return;
        struct cairn_error error = {0};
        uint32_t stall_ms = transfer->request->stall_ms;
        if (total)
            cairn_fail(&error, CAIRN_TIMEOUT, "no whole reply within %u ms",
                       transfer->request->total_ms);
        else
            cairn_fail(&error, CAIRN_TIMEOUT, "no byte in either direction for %u ms",
                       stall_ms ? stall_ms : STALL_MS_DEFAULT);
        end_request(transfer, CAIRN_TIMEOUT, &error);
    }
}

static uint32_t wait_ms(const struct cairn_http_engine *engine, uint64_t until_us) {
    uint64_t now = cairn_mono_us(), due = until_us;
    bool total;
    for (const struct cairn_http_transfer *t = engine->active; t; t = t->next)
        due = cairn_min_u64(due, due_us(t, &total));
    for (const struct cairn_http_transfer *t = engine->waiting; t; t = t->next)
        due = cairn_min_u64(due, due_us(t, &total));
    if (due <= now) return 0;
    return (uint32_t)cairn_min_u64((due - now + 999) / 1000, WAIT_MS_MAX);
}

enum cairn_code cairn_http_poll(struct cairn_http_engine *engine, uint32_t timeout_ms,
                                struct cairn_error *err) {
    uint64_t until_us = cairn_mono_us() + (uint64_t)timeout_ms * 1000, ended = engine->ended_count;
    for (;;) {
        int running;
        start_waiting(engine);
        if (curl_multi_perform(engine->multi, &running) != CURLM_OK)
            return cairn_fail(err, CAIRN_INTERNAL, "libcurl's multi handle is broken");
        reap(engine);
        end_late(engine);
        if (engine->ended_count != ended) return CAIRN_OK;
        if (atomic_exchange(&engine->woken, false)) return CAIRN_OK;
        if (cairn_mono_us() >= until_us) return CAIRN_OK;
        if (curl_multi_poll(engine->multi, NULL, 0, (int)wait_ms(engine, until_us), NULL) !=
            CURLM_OK)
            return cairn_fail(err, CAIRN_INTERNAL, "libcurl cannot wait for its sockets");
    }
}

void cairn_http_wake(struct cairn_http_engine *engine) {
    atomic_store(&engine->woken, true);
    curl_multi_wakeup(engine->multi);
}

uint32_t cairn_http_in_flight(const struct cairn_http_engine *engine) {
    return engine->active_count + engine->waiting_count;
}

enum cairn_code cairn_http_perform(struct cairn_http_engine *engine,
                                   struct cairn_http_request *request, struct cairn_error *err) {
    CAIRN_TRY(cairn_http_submit(engine, request, err));
    while (request->engine_private) {
        enum cairn_code code = cairn_http_poll(engine, 1000, err);
        if (code) {
            cairn_http_cancel(engine, request);
            return code;
        }
    }
    if (request->code && err) *err = request->error;
    return request->code;
}
