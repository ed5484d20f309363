/* SPDX-License-Identifier: Apache-2.0 */
/* Opening by libcurl, keeping for the next request, dropping by reset. */
#include "common/http/link.h"

#include <stdlib.h>

#include "common/clock.h"
#include "common/url.h"

#define IDLE_US_MAX 60000000
/* One SSL_write; a plain socket takes as much as it has room for. */
#define TLS_PIECE_BYTES (256 * CAIRN_KIB)

/* A request's URL was checked when its head was made. */
static size_t origin_size(const char *url) {
    struct cairn_url parts;
    return cairn_url_split(url, &parts) ? parts.origin.size : 0;
}

static bool is_to(const struct cairn_http_link *link, const char *url) {
    size_t size = origin_size(url);
    return strlen(link->origin) == size && !memcmp(link->origin, url, size);
}

/* ---- the end of a link ---- */

void cairn_http_link_drop(struct cairn_http_link *link) {
    struct cairn_http_engine *engine = link->engine;
    LIST_REMOVE(link, place);
    engine->link_count--;
    if (link->fd < 0) engine->in_multi--;
    if (link->transfer) link->transfer->link = NULL;
    /* libcurl closes a connection of CONNECT_ONLY with its handle, through on_close. */
    curl_multi_remove_handle(engine->multi, link->easy);
    curl_easy_cleanup(link->easy);
    free(link->origin);
    free(link);
}

void cairn_http_link_keep(struct cairn_http_link *link) {
    CAIRN_ASSERT(link->fd >= 0 && link->from == link->to);
    if (link->transfer) link->transfer->link = NULL;
    link->transfer = NULL;
    link->kept = true;
    link->ready = false;
    link->idle_since_us = cairn_mono_us();
}

/* ---- kept ones ---- */

/* Asked by reading, since over TLS what came may wait within OpenSSL. */
static bool is_silent(const struct cairn_http_link *link) {
    char byte;
    size_t size = 0;
    return curl_easy_recv(link->easy, &byte, 1, &size) == CURLE_AGAIN;
}

static struct cairn_http_link *oldest_idle(const struct cairn_http_engine *engine) {
    struct cairn_http_link *oldest = NULL, *link;
    LIST_FOREACH(link, &engine->links, place)
        if (!link->transfer && (!oldest || link->idle_since_us < oldest->idle_since_us))
            oldest = link;
    return oldest;
}

void cairn_http_link_sweep(struct cairn_http_engine *engine) {
    uint64_t now = cairn_mono_us();
    for (struct cairn_http_link *link = LIST_FIRST(&engine->links), *next; link; link = next) {
        next = LIST_NEXT(link, place);
        if (link->transfer) continue;
        if (now - link->idle_since_us > IDLE_US_MAX || !is_silent(link)) cairn_http_link_drop(link);
    }
}

void cairn_http_link_drop_idle(struct cairn_http_engine *engine, const char *url) {
    for (struct cairn_http_link *link = LIST_FIRST(&engine->links), *next; link; link = next) {
        next = LIST_NEXT(link, place);
        if (!link->transfer && is_to(link, url)) cairn_http_link_drop(link);
    }
}

/* The one that was used last is warmest. */
static struct cairn_http_link *find_kept(struct cairn_http_engine *engine, const char *url) {
    struct cairn_http_link *best = NULL, *link;
    cairn_http_link_sweep(engine);
    LIST_FOREACH(link, &engine->links, place)
        if (!link->transfer && is_to(link, url) &&
            (!best || link->idle_since_us > best->idle_since_us))
            best = link;
    return best;
}

/* ---- new ones ---- */

static int on_ready(void *owner, char *peer, char *local, int peer_port, int local_port) {
    (void)peer, (void)local, (void)peer_port, (void)local_port;
    struct cairn_http_link *link = owner;
    link->tls = cairn_http_tls_gather(link->easy);
    return CURL_PREREQFUNC_OK;
}

static bool set_up(struct cairn_http_link *link) {
    CURL *easy = link->easy;
    cairn_http_set_safety(easy);
    link->dial = (struct cairn_http_dial){.engine = link->engine};
    cairn_http_set_connection(&link->dial, easy);
    cairn_http_tls_prepare(easy);
    curl_easy_setopt(easy, CURLOPT_CONNECT_ONLY, 1L);
    curl_easy_setopt(easy, CURLOPT_DNS_CACHE_TIMEOUT, 0L);
    curl_easy_setopt(easy, CURLOPT_PREREQFUNCTION, on_ready);
    curl_easy_setopt(easy, CURLOPT_PREREQDATA, link);
    curl_easy_setopt(easy, CURLOPT_PRIVATE, link);
    curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, link->curl_text);
    return curl_easy_setopt(easy, CURLOPT_URL, link->origin) == CURLE_OK &&
           curl_multi_add_handle(link->engine->multi, easy) == CURLM_OK;
}

static enum cairn_code open_link(struct cairn_http_engine *engine, const char *url,
                                 struct cairn_http_link **ret, struct cairn_error *err) {
    struct cairn_http_link *link = calloc(1, sizeof *link);
    if (!link) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a connection");
    *link = (struct cairn_http_link){.kind = CAIRN_HTTP_LINK, .engine = engine, .fd = -1};
    link->origin = strndup(url, origin_size(url));
    link->easy = curl_easy_init();
    if (!link->origin || !link->easy || !set_up(link)) {
        if (link->easy) curl_easy_cleanup(link->easy);
        free(link->origin);
        free(link);
        return cairn_fail(err, CAIRN_NO_MEMORY, "libcurl takes no connection");
    }
    LIST_INSERT_HEAD(&engine->links, link, place);
    engine->link_count++;
    engine->in_multi++;
    *ret = link;
    return CAIRN_OK;
}

enum cairn_code cairn_http_link_take(struct cairn_http_transfer *transfer,
                                     struct cairn_error *err) {
    struct cairn_http_engine *engine = transfer->engine;
    const struct cairn_http_request *request = transfer->request;
    struct cairn_http_link *link = NULL;
    if (!request->fresh_connection && !transfer->resent) link = find_kept(engine, request->url);
    while (!link && engine->link_count >= engine->options.connections_max) {
        struct cairn_http_link *oldest = oldest_idle(engine);
        if (!oldest) break; /* all are busy: the engine starts no more requests than links */
        cairn_http_link_drop(oldest);
    }
    if (!link) CAIRN_TRY(open_link(engine, request->url, &link, err));
    link->transfer = transfer;
    link->ready = link->fd >= 0;
    transfer->link = link;
    return CAIRN_OK;
}

bool cairn_http_link_connected(struct cairn_http_link *link, CURLcode result) {
    curl_socket_t fd = CURL_SOCKET_BAD;
    if (result == CURLE_OK) curl_easy_getinfo(link->easy, CURLINFO_ACTIVESOCKET, &fd);
    if (fd == CURL_SOCKET_BAD) return false;
    link->fd = fd;
    if (link->tls) cairn_http_tls_connected(link->tls, fd);
    link->ready = true;
    link->engine->in_multi--;
    return true;
}

/* ---- bytes ---- */

CURLcode cairn_http_link_receive(struct cairn_http_link *link, void *into, size_t room,
                                 size_t *ret_size) {
    *ret_size = 0;
    return curl_easy_recv(link->easy, into, room, ret_size);
}

CURLcode cairn_http_link_send(struct cairn_http_link *link, struct cairn_view bytes,
                              size_t *ret_size) {
    *ret_size = 0;
    size_t size = link->tls ? cairn_min_u64(bytes.size, TLS_PIECE_BYTES) : bytes.size;
    return curl_easy_send(link->easy, bytes.data, size, ret_size);
}

CURLcode cairn_http_link_flush(struct cairn_http_link *link) {
    int problem = link->tls ? cairn_http_tls_flush(link->tls) : 0;
    if (!problem) return CURLE_OK;
    return problem == EAGAIN ? CURLE_AGAIN : CURLE_SEND_ERROR;
}
