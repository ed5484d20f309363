/* SPDX-License-Identifier: Apache-2.0 */
/* One libcurl multi per engine. A transfer is a kept easy handle lent to one request at a time:
 * waiting (more requests than connections) -> active -> idle. A direct request is active on a link
 * instead, which libcurl only opens. Deadlines and stalls are counted here and not by libcurl, so
 * that every kind of failure ends in the same function and resets the connection. */
#include "common/http/http.h"

#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/http/inside.h"
#include "common/text.h"

#define STALL_MS_DEFAULT 30000
/* Interval between checks of idle links. */
#define SWEEP_US 1000000
/* Longest single wait; keeps the number within libcurl's int. */
#define WAIT_MS_MAX 60000

static pthread_once_t curl_once = PTHREAD_ONCE_INIT;
static void start_curl(void) {
    curl_global_init(CURL_GLOBAL_DEFAULT);
}

/* ---- certificates ---- */

/* Debian, Ubuntu, Arch, Gentoo; Fedora, RHEL; openSUSE; the file to which Fedora's and RHEL's is a
 * link; Alpine, the BSDs. */
static const char *const ca_files[] = {
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/cert.pem",
};

static const char *variable(const char *name) {
    const char *value = getenv(name);
    return value && value[0] ? value : NULL;
}

const char *cairn_http_system_ca(const char *built_in, const char *const *files, size_t count) {
    const char *named = variable("SSL_CERT_FILE");
    if (named) return named;
    if (built_in && access(built_in, R_OK) == 0) return NULL;
    for (size_t i = 0; i < count; i++)
        if (access(files[i], R_OK) == 0) return files[i];
    return NULL;
}

/* ---- engine ---- */

static enum cairn_code copy_option(const char *text, char **ret, struct cairn_error *err) {
    *ret = text ? strdup(text) : NULL;
    return text && !*ret ? cairn_fail(err, CAIRN_NO_MEMORY, "no memory for http options")
                         : CAIRN_OK;
}

/* Variables count where the caller names no bundle: what it names is the only one. */
static enum cairn_code copy_certificates(struct cairn_http_engine *engine,
                                         struct cairn_error *err) {
    const char *bundle = engine->options.ca_bundle;
    if (bundle) return copy_option(bundle, &engine->ca_bundle, err);
    const char *built_in = curl_version_info(CURLVERSION_NOW)->cainfo;
    bundle = cairn_http_system_ca(built_in, ca_files, CAIRN_COUNT(ca_files));
    CAIRN_TRY(copy_option(bundle, &engine->ca_bundle, err));
    return copy_option(variable("SSL_CERT_DIR"), &engine->ca_folder, err);
}

enum cairn_code cairn_http_engine_new(const struct cairn_http_options *options,
                                      struct cairn_http_engine **ret, struct cairn_error *err) {
    pthread_once(&curl_once, start_curl);
    struct cairn_http_engine *engine = calloc(1, sizeof *engine);
    if (!engine) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for an http engine");
    TAILQ_INIT(&engine->active);
    TAILQ_INIT(&engine->waiting);
    TAILQ_INIT(&engine->idle);
    engine->multi = curl_multi_init();
    enum cairn_code code = engine->multi
                               ? CAIRN_OK
                               : cairn_fail(err, CAIRN_NO_MEMORY, "libcurl gives no multi handle");
    if (options) engine->options = *options;
    if (!code) code = copy_certificates(engine, err);
    if (!code) code = copy_option(engine->options.interface_name, &engine->interface_name, err);
    if (!code) code = copy_option(engine->options.congestion, &engine->congestion, err);
    if (code) {
        cairn_http_engine_free(engine);
        return code;
    }
    if (!engine->options.connections_max) engine->options.connections_max = 64;
    if (!engine->options.connect_ms) engine->options.connect_ms = 5000;
    uint32_t most = engine->options.connections_max;
    engine->waits = calloc(most, sizeof *engine->waits);
    engine->waiter = calloc(most, sizeof *engine->waiter);
    engine->socket_room = 4 * most;
    engine->sockets = calloc(engine->socket_room, sizeof *engine->sockets);
    if (!engine->waits || !engine->waiter || !engine->sockets) {
        cairn_http_engine_free(engine);
        return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for an http engine");
    }
    curl_multi_setopt(engine->multi, CURLMOPT_PIPELINING, (long)CURLPIPE_NOTHING);
    /* libcurl counts links among its connections. */
    curl_multi_setopt(engine->multi, CURLMOPT_MAXCONNECTS, 2 * (long)most);
    *ret = engine;
    return CAIRN_OK;
}

void cairn_http_engine_free(struct cairn_http_engine *engine) {
    if (!engine) return;
    struct cairn_http_transfer *first;
    while ((first = TAILQ_FIRST(&engine->waiting))) cairn_http_cancel(engine, first->request);
    while ((first = TAILQ_FIRST(&engine->active))) cairn_http_cancel(engine, first->request);
    while (!LIST_EMPTY(&engine->links)) cairn_http_link_drop(LIST_FIRST(&engine->links));
    while ((first = TAILQ_FIRST(&engine->idle))) {
        TAILQ_REMOVE(&engine->idle, first, place);
        curl_easy_cleanup(first->easy);
        cairn_buf_release(&first->head);
        free(first);
    }
    free(engine->waits);
    free(engine->waiter);
    if (engine->multi) curl_multi_cleanup(engine->multi);
    free(engine->sockets);
    free(engine->ca_bundle);
    free(engine->ca_folder);
    free(engine->interface_name);
    free(engine->congestion);
    free(engine);
}

static enum cairn_code take_transfer(struct cairn_http_engine *engine,
                                     struct cairn_http_transfer **ret, struct cairn_error *err) {
    struct cairn_http_transfer *transfer = TAILQ_FIRST(&engine->idle);
    if (transfer) {
        TAILQ_REMOVE(&engine->idle, transfer, place);
        curl_easy_reset(transfer->easy);
        *transfer = (struct cairn_http_transfer){
            .easy = transfer->easy, .engine = engine, .head = transfer->head};
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

static void release_transfer(struct cairn_http_transfer *transfer) {
    if (transfer->head.data) explicit_bzero(transfer->head.data, transfer->head.capacity);
    cairn_buf_clear(&transfer->head);
    curl_slist_free_all(transfer->headers);
    transfer->headers = NULL;
    transfer->request = NULL;
    TAILQ_INSERT_HEAD(&transfer->engine->idle, transfer, place);
}

enum cairn_code cairn_http_submit(struct cairn_http_engine *engine,
                                  struct cairn_http_request *request, struct cairn_error *err) {
    CAIRN_ASSERT(!request->engine_private);
    if (request->header_count > CAIRN_HTTP_HEADERS_MAX)
        return cairn_fail(err, CAIRN_INVALID, "more than %d request headers",
                          CAIRN_HTTP_HEADERS_MAX);
    struct cairn_http_transfer *transfer = NULL;
    CAIRN_TRY(take_transfer(engine, &transfer, err));
    request->code = CAIRN_OK;
    request->status = 0;
    request->reply_bytes = request->sent_bytes = request->first_byte_us = 0;
    request->sent_at_us = request->reply_at_us = 0;
    request->link_us = UINT64_MAX;
    request->starts = 0;
    request->reached = false;
    request->content_length = UINT64_MAX;
    request->error = (struct cairn_error){0};
    transfer->request = request;
    transfer->submitted_us = cairn_mono_us();
    transfer->direct =
        request->direct && !request->unix_socket && strcmp(request->method, "HEAD") != 0;
    enum cairn_code code = transfer->direct ? cairn_http_direct_prepare(transfer, err)
                                            : cairn_http_transfer_prepare(transfer, err);
    if (code) {
        release_transfer(transfer);
        return code;
    }
    request->engine_private = transfer;
    TAILQ_INSERT_TAIL(&engine->waiting, transfer, place);
    engine->waiting_count++;
    return CAIRN_OK;
}

/* ---- the end of a request ---- */

/* Length of scheme://host without user, path or query, for error messages. */
static int origin_size(const char *url) {
    struct cairn_url parts;
    return cairn_url_split(url, &parts) ? (int)parts.origin.size : (int)strcspn(url, "/?#");
}

static bool was_sent(const struct cairn_http_transfer *transfer) {
    curl_off_t before_us = 0;
    curl_easy_getinfo(transfer->easy, CURLINFO_PRETRANSFER_TIME_T, &before_us);
    return before_us > 0;
}

/* Maps libcurl's result to a code; text is libcurl's error buffer. */
static enum cairn_code code_of(CURLcode result, const char *text, bool sent, int status) {
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
    case CURLE_SSL_CONNECT_ERROR: /* temporary, unless the port has no TLS */
        return strstr(text, "wrong version number") ? CAIRN_INVALID : CAIRN_UNAVAILABLE;
    case CURLE_PEER_FAILED_VERIFICATION:
        return CAIRN_FORBIDDEN;
    case CURLE_UNSUPPORTED_PROTOCOL: /* also for a reply that is not HTTP/1 */
        return sent ? CAIRN_PROTOCOL : CAIRN_INVALID;
    case CURLE_URL_MALFORMAT:
    case CURLE_SSL_CACERT_BADFILE:
        return CAIRN_INVALID;
    default:
        return status ? CAIRN_PROTOCOL : CAIRN_UNAVAILABLE;
    }
}

static enum cairn_http_tls_fault tls_fault_of(CURLcode result, const char *text) {
    if (result == CURLE_SSL_CACERT_BADFILE) return CAIRN_HTTP_TLS_FILE;
    if (result == CURLE_SSL_CONNECT_ERROR && strstr(text, "wrong version number"))
        return CAIRN_HTTP_TLS_CLEAR;
    if (result != CURLE_PEER_FAILED_VERIFICATION) return CAIRN_HTTP_TLS_FINE;
    bool unknown = strstr(text, "issuer") || strstr(text, "self-signed") ||
                   strstr(text, "self signed") || strstr(text, "unknown");
    return unknown ? CAIRN_HTTP_TLS_AUTHORITY : CAIRN_HTTP_TLS_CERTIFICATE;
}

static enum cairn_code fail_with_curl(const struct cairn_http_dial *dial, CURLcode result,
                                      const char *text, bool sent, int status,
                                      struct cairn_error *err) {
    if (result == CURLE_COULDNT_CONNECT && dial->refused && !dial->tried)
        return cairn_fail(
            err, CAIRN_FORBIDDEN,
            "the address is link-local: no store is there, but an instance's keys are");
    return cairn_fail(err, code_of(result, text, sent, status), "%s",
                      text[0] ? text : curl_easy_strerror(result));
}

/* CURLE_OK alone proves little: see cairn_http_reply_judge. */
static enum cairn_code judge(struct cairn_http_transfer *transfer, CURLcode result,
                             struct cairn_error *err) {
    transfer->request->tls_fault = tls_fault_of(result, transfer->curl_text);
    if (!transfer->refused && result != CURLE_OK)
        return fail_with_curl(&transfer->dial, result, transfer->curl_text, was_sent(transfer),
                              transfer->request->status, err);
    return cairn_http_reply_judge(transfer, err);
}

static void leave_libcurl(struct cairn_http_transfer *transfer) {
    struct cairn_http_engine *engine = transfer->engine;
    struct cairn_http_request *request = transfer->request;
    curl_off_t sent = 0, before = 0, first = 0;
    curl_easy_getinfo(transfer->easy, CURLINFO_SIZE_UPLOAD_T, &sent);
    curl_easy_getinfo(transfer->easy, CURLINFO_PRETRANSFER_TIME_T, &before);
    curl_easy_getinfo(transfer->easy, CURLINFO_STARTTRANSFER_TIME_T, &first);
    request->sent_bytes = (uint64_t)sent;
    request->reached = before > 0;
    if (request->reply_at_us && first > before) request->first_byte_us = (uint64_t)(first - before);
    if (request->reply_at_us && !request->first_byte_us) request->first_byte_us = 1;
    curl_multi_remove_handle(engine->multi, transfer->easy);
    engine->in_multi--;
}

void cairn_http_end(struct cairn_http_transfer *transfer, enum cairn_code code,
                    const struct cairn_error *error) {
    struct cairn_http_engine *engine = transfer->engine;
    struct cairn_http_request *request = transfer->request;
    if (transfer->link) cairn_http_link_drop(transfer->link);
    if (transfer->is_active) {
        if (!transfer->direct) leave_libcurl(transfer);
        TAILQ_REMOVE(&engine->active, transfer, place);
        engine->active_count--;
    } else {
        TAILQ_REMOVE(&engine->waiting, transfer, place);
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
    cairn_http_end(transfer, cairn_fail(&error, CAIRN_CANCELLED, "cancelled"), &error);
}

/* ---- the loop ---- */

static enum cairn_code start_one(struct cairn_http_transfer *transfer, struct cairn_error *err) {
    struct cairn_http_engine *engine = transfer->engine;
    if (transfer->direct) return cairn_http_direct_start(transfer, err);
    if (curl_multi_add_handle(engine->multi, transfer->easy) != CURLM_OK)
        return cairn_fail(err, CAIRN_NO_MEMORY, "libcurl takes no request");
    engine->in_multi++;
    return CAIRN_OK;
}

static bool start_anew(struct cairn_http_engine *engine, struct cairn_http_transfer *transfer) {
    transfer->resent = true;
    transfer->sent_bytes = 0;
    transfer->request->sent_at_us = 0;
    curl_multi_remove_handle(engine->multi, transfer->easy);
    curl_easy_setopt(transfer->easy, CURLOPT_FRESH_CONNECT, 1L);
    return curl_multi_add_handle(engine->multi, transfer->easy) == CURLM_OK;
}

/* libcurl itself repeats a request on a dead kept connection, but not if it fails while sending the
 * body. No reply byte came and the body was not taken whole, so one repetition on a new connection
 * cannot have an effect twice. */
static bool resend(struct cairn_http_engine *engine, struct cairn_http_transfer *transfer,
                   CURLcode result) {
    struct cairn_http_request *request = transfer->request;
    long connects = 1;
    curl_easy_getinfo(transfer->easy, CURLINFO_NUM_CONNECTS, &connects);
    if (result != CURLE_SEND_ERROR || connects || request->reply_at_us || transfer->resent)
        return false;
    return start_anew(engine, transfer);
}

static void leave_half_open(struct cairn_http_engine *engine) {
    struct cairn_http_transfer *transfer = TAILQ_FIRST(&engine->active), *next = NULL;
    for (; transfer; transfer = next) {
        next = TAILQ_NEXT(transfer, place);
        if (cairn_http_half_open_due_us(transfer) > cairn_mono_us() ||
            !cairn_http_half_open_check(transfer))
            continue;
        if (!transfer->direct) {
            if (start_anew(engine, transfer)) continue;
            struct cairn_error error = {0};
            cairn_fail(&error, CAIRN_UNAVAILABLE, "the connection is dead");
            cairn_http_end(transfer, CAIRN_UNAVAILABLE, &error);
        } else {
            (void)cairn_http_direct_replace(transfer);
        }
        next = TAILQ_FIRST(&engine->active); /* done() may have started and cancelled others */
    }
}

static void end_connecting(struct cairn_http_link *link, CURLcode result) {
    struct cairn_error error = {0};
    if (cairn_http_link_connected(link, result)) return;
    struct cairn_http_transfer *transfer = link->transfer;
    if (result == CURLE_OK) result = CURLE_COULDNT_CONNECT;
    transfer->request->tls_fault = tls_fault_of(result, link->curl_text);
    enum cairn_code code = fail_with_curl(&link->dial, result, link->curl_text, false, 0, &error);
    cairn_http_end(transfer, code, &error); /* also drops the link */
}

static void reap(struct cairn_http_engine *engine) {
    int left;
    for (CURLMsg *message; (message = curl_multi_info_read(engine->multi, &left));) {
        if (message->msg != CURLMSG_DONE) continue;
        CURLcode result = message->data.result;
        enum cairn_http_kind *kind = NULL;
        curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &kind);
        if (*kind == CAIRN_HTTP_LINK) {
            end_connecting((struct cairn_http_link *)(void *)kind, result);
            continue;
        }
        struct cairn_http_transfer *transfer = (struct cairn_http_transfer *)(void *)kind;
        if (resend(engine, transfer, result)) continue;
        struct cairn_error error = {0};
        enum cairn_code code = judge(transfer, result, &error);
        cairn_http_end(transfer, code, &error);
    }
}

/* Steps each direct request that can move. A step may end its request, and done() may start and
 * cancel others, so the list is searched from its start each time. */
static void step_direct(struct cairn_http_engine *engine) {
    engine->pass++;
    struct cairn_http_transfer *transfer = TAILQ_FIRST(&engine->active);
    while (transfer) {
        if ((transfer->link && transfer->link->fd >= 0 && transfer->link->ready) &&
            transfer->pass != engine->pass) {
            transfer->pass = engine->pass;
            cairn_http_direct_step(transfer);
            transfer = TAILQ_FIRST(&engine->active);
        } else {
            transfer = TAILQ_NEXT(transfer, place);
        }
    }
}

/* Deadline of the request, mono clock in us; *ret_total: the total bound applies, not the stall. */
static uint64_t due_us(const struct cairn_http_transfer *transfer, bool *ret_total) {
    const struct cairn_http_request *request = transfer->request;
    uint64_t stall_ms = request->stall_ms ? request->stall_ms : STALL_MS_DEFAULT;
    uint64_t stall = transfer->is_active ? transfer->moved_us + stall_ms * 1000 : UINT64_MAX;
    uint64_t total = request->total_ms ? transfer->submitted_us + (uint64_t)request->total_ms * 1000
                                       : UINT64_MAX;
    *ret_total = total <= stall;
    return *ret_total ? total : stall;
}

static struct cairn_http_transfer *first_late(const struct cairn_http_transfers *list, uint64_t now,
                                              bool *ret_total) {
    struct cairn_http_transfer *transfer;
    TAILQ_FOREACH(transfer, list, place)
        if (due_us(transfer, ret_total) <= now) break;
    return transfer;
}

/* When to check the kernel's queue next: often enough that a stall counts from about the last byte
 * that the peer took. */
static uint64_t look_us(const struct cairn_http_transfer *transfer) {
    uint64_t stall_ms =
        transfer->request->stall_ms ? transfer->request->stall_ms : STALL_MS_DEFAULT;
    return transfer->queued_bytes ? transfer->looked_us + stall_ms * 1000 / 8 : UINT64_MAX;
}

static void look_at_queues(struct cairn_http_engine *engine) {
    uint64_t now = cairn_mono_us();
    struct cairn_http_transfer *t;
    TAILQ_FOREACH(t, &engine->active, place)
        if (look_us(t) <= now && cairn_http_direct_drains(t)) t->moved_us = now;
}

static void end_late(struct cairn_http_engine *engine) {
    look_at_queues(engine);
    uint64_t now = cairn_mono_us();
    for (;;) {
        bool total = false;
        struct cairn_http_transfer *transfer = first_late(&engine->active, now, &total);
        if (!transfer) transfer = first_late(&engine->waiting, now, &total);
        if (!transfer) return;
        if (transfer->link && transfer->link->fd >= 0 && transfer->pass != engine->pass) {
            transfer->pass = engine->pass; /* it was not polled for long, so it did not stall */
            cairn_http_direct_step(transfer);
            continue;
        }
        struct cairn_error error = {0};
        uint32_t stall_ms = transfer->request->stall_ms;
        if (total)
            cairn_fail(&error, CAIRN_TIMEOUT, "no whole reply within %u ms",
                       transfer->request->total_ms);
        else
            cairn_fail(&error, CAIRN_TIMEOUT, "no byte in either direction for %u ms",
                       stall_ms ? stall_ms : STALL_MS_DEFAULT);
        cairn_http_end(transfer, CAIRN_TIMEOUT, &error);
    }
}

static uint32_t wait_ms(const struct cairn_http_engine *engine, uint64_t until_us) {
    uint64_t now = cairn_mono_us(), due = until_us;
    bool total;
    const struct cairn_http_transfer *t;
    TAILQ_FOREACH(t, &engine->active, place)
        due = cairn_min_u64(due, cairn_min_u64(cairn_min_u64(due_us(t, &total), look_us(t)),
                                               cairn_http_half_open_due_us(t)));
    TAILQ_FOREACH(t, &engine->waiting, place) due = cairn_min_u64(due, due_us(t, &total));
    if (due <= now) return 0;
    return (uint32_t)cairn_min_u64((due - now + 999) / 1000, WAIT_MS_MAX);
}

/* Collects the sockets of links, for libcurl to wait on with its own. */
static unsigned gather_waits(struct cairn_http_engine *engine, uint64_t *ret_due_us) {
    unsigned count = 0;
    const struct cairn_http_transfer *t;
    TAILQ_FOREACH(t, &engine->active, place) {
        if (!t->link || t->link->fd < 0) continue;
        if (t->link->ready) *ret_due_us = 0;
        uint64_t due = cairn_http_direct_due_us(t);
        if (due <= cairn_mono_us()) t->link->ready = true;
        *ret_due_us = cairn_min_u64(*ret_due_us, due);
        short events = cairn_http_direct_events(t);
        if (!events) continue; /* poll would report its end again and again */
        engine->waits[count] = (struct curl_waitfd){.fd = t->link->fd, .events = events};
        engine->waiter[count++] = t->link;
    }
    return count;
}

/* Drops links closed by their peers now, not when the next link is needed. */
static void sweep_links(struct cairn_http_engine *engine) {
    uint64_t now = cairn_mono_us();
    if (!engine->link_count || now - engine->swept_us < SWEEP_US) return;
    engine->swept_us = now;
    cairn_http_link_sweep(engine);
}

enum cairn_code cairn_http_poll(struct cairn_http_engine *engine, uint32_t timeout_ms,
                                struct cairn_error *err) {
    uint64_t until_us = cairn_mono_us() + (uint64_t)timeout_ms * 1000, ended = engine->ended_count;
    for (;;) {
        int running;
        sweep_links(engine);
        while (engine->waiting_count && engine->active_count < engine->options.connections_max) {
            struct cairn_http_transfer *transfer = TAILQ_FIRST(&engine->waiting);
            struct cairn_error error = {0};
            enum cairn_code code = start_one(transfer, &error);
            if (code) {
                cairn_http_end(transfer, code, &error);
                continue;
            }
            TAILQ_REMOVE(&engine->waiting, transfer, place);
            engine->waiting_count--;
            TAILQ_INSERT_HEAD(&engine->active, transfer, place);
            engine->active_count++;
            transfer->is_active = true;
            transfer->moved_us = cairn_mono_us();
        }
        if (engine->in_multi && curl_multi_perform(engine->multi, &running) != CURLM_OK)
            return cairn_fail(err, CAIRN_INTERNAL, "libcurl's multi handle is broken");
        reap(engine);
        step_direct(engine);
        leave_half_open(engine);
        end_late(engine);
        if (engine->ended_count != ended) return CAIRN_OK;
        if (atomic_exchange(&engine->woken, false)) return CAIRN_OK;
        if (cairn_mono_us() >= until_us) return CAIRN_OK;
        uint64_t due_at_us = until_us;
        unsigned count = gather_waits(engine, &due_at_us);
        int timeout = (int)wait_ms(engine, due_at_us);
        if (curl_multi_poll(engine->multi, engine->waits, count, timeout, NULL) != CURLM_OK)
            return cairn_fail(err, CAIRN_INTERNAL, "libcurl cannot wait for its sockets");
        for (unsigned i = 0; i < count; i++)
            if (engine->waits[i].revents) engine->waiter[i]->ready = true;
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
    return cairn_pass(err, request->code, &request->error);
}
