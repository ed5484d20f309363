/* SPDX-License-Identifier: Apache-2.0 */
/* Links are opened by libcurl, kept for the next request and dropped by reset. libcurl's BIO stays
 * for reading. For writing it is replaced by one that appends to a buffer and sends when the buffer
 * is full or the link flushes it. */
#include "common/http/inside.h"

#include <openssl/ssl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "common/clock.h"
#include "common/text.h"

/* ---- TLS: gathers what OpenSSL writes ---- */

struct cairn_http_tls {
    int fd;
    uint64_t sent; /* bytes written to the kernel */
    size_t from, to;
    char bytes[CAIRN_HTTP_TLS_BYTES];
};

/* 0: all sent. EAGAIN: bytes left. Otherwise the errno of the failed connection. */
static int tls_flush(struct cairn_http_tls *tls) {
    while (tls->from < tls->to) {
        ssize_t sent =
            send(tls->fd, tls->bytes + tls->from, tls->to - tls->from, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0 && errno == EINTR) continue;
        if (sent < 0) return errno == EWOULDBLOCK ? EAGAIN : errno;
        tls->from += (size_t)sent;
        tls->sent += (uint64_t)sent;
    }
    tls->from = tls->to = 0;
    return 0;
}

uint64_t cairn_http_tls_sent(const struct cairn_http_tls *tls) {
    return tls->sent;
}
bool cairn_http_tls_pending(const struct cairn_http_tls *tls) {
    return tls->from < tls->to;
}

static int gather_write(BIO *bio, const char *bytes, int size) {
    struct cairn_http_tls *tls = BIO_get_data(bio);
    BIO_clear_retry_flags(bio);
    if (size <= 0) return 0;
    if ((size_t)size > sizeof tls->bytes - tls->to) {
        int problem = tls_flush(tls);
        if (problem == EAGAIN) BIO_set_retry_write(bio);
        if (problem) {
            errno = problem;
            return -1;
        }
    }
    size_t taken = cairn_min_u64((size_t)size, sizeof tls->bytes);
    memcpy(tls->bytes + tls->to, bytes, taken);
    tls->to += taken;
    return (int)taken;
}

/* OpenSSL flushes after each handshake message and takes any result but 1 as a failure: bytes that
 * the socket does not take now are sent by the link's next flush. */
static long gather_control(BIO *bio, int command, long number, void *pointer) {
    struct cairn_http_tls *tls = BIO_get_data(bio);
    (void)number, (void)pointer;
    if (command == BIO_CTRL_FLUSH && tls && tls->fd >= 0) (void)tls_flush(tls);
    return command == BIO_CTRL_FLUSH || command == BIO_CTRL_DUP ? 1 : 0;
}

static int gather_end(BIO *bio) {
    free(BIO_get_data(bio));
    BIO_set_data(bio, NULL);
    return 1;
}

static BIO_METHOD *method;
static pthread_once_t method_once = PTHREAD_ONCE_INIT;
static void make_method(void) {
    BIO_METHOD *made = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "gather");
    if (made && BIO_meth_set_write(made, gather_write) && BIO_meth_set_ctrl(made, gather_control) &&
        BIO_meth_set_destroy(made, gather_end))
        method = made;
}

/* Two copies of OpenSSL in one process must not share structs. */
static bool is_ours(void) {
    const curl_version_info_data *info = curl_version_info(CURLVERSION_NOW);
    char own[64];
    snprintf(own, sizeof own, "OpenSSL/%s", OpenSSL_version(OPENSSL_VERSION_STRING));
    return info->ssl_version && !strcmp(info->ssl_version, own);
}

/* Read-ahead is safe for links only: they read until nothing is left, whereas libcurl's transfers
 * wait for the socket without asking OpenSSL for buffered bytes. */
static CURLcode on_context(CURL *easy, void *context, void *owner) {
    (void)easy, (void)owner;
    SSL_CTX_set_read_ahead(context, 1);
    SSL_CTX_set_default_read_buffer_len(context, CAIRN_HTTP_TLS_BYTES);
    /* Otherwise the buffer is freed and allocated again for each record. */
    SSL_CTX_clear_mode(context, SSL_MODE_RELEASE_BUFFERS);
    SSL_CTX_set_quiet_shutdown(context, 1);
    return CURLE_OK;
}

/* Call after the handshake, while libcurl still holds the connection (CURLOPT_PREREQFUNCTION); set
 * its descriptor before anything is written. NULL: writes are not gathered. */
static struct cairn_http_tls *tls_gather(CURL *easy) {
    struct curl_tlssessioninfo *session = NULL;
    if (!is_ours() || curl_easy_getinfo(easy, CURLINFO_TLS_SSL_PTR, &session) != CURLE_OK ||
        !session || session->backend != CURLSSLBACKEND_OPENSSL || !session->internals)
        return NULL;
    pthread_once(&method_once, make_method);
    BIO *bio = method ? BIO_new(method) : NULL;
    struct cairn_http_tls *tls = bio ? malloc(sizeof *tls) : NULL;
    if (!tls) {
        BIO_free(bio);
        return NULL;
    }
    tls->fd = -1;
    tls->from = tls->to = 0;
    tls->sent = 0;
    BIO_set_data(bio, tls);
    BIO_set_init(bio, 1);
    SSL_set0_wbio(session->internals, bio); /* drops libcurl's BIO for writing only */
    return tls;
}

/* ---- links ---- */

#define IDLE_US_MAX 60000000
/* Size of one SSL_write; a plain socket takes as much as it has room for. */
#define TLS_PIECE_BYTES (256 * CAIRN_KIB)

/* The URL was checked when the request's head was made. */
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
    /* libcurl closes a CONNECT_ONLY connection with its handle, through on_close. */
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

/* Reads a byte instead of polling, since over TLS bytes may be buffered in OpenSSL. */
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

/* Prefers the link used last, the warmest. */
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
    link->tls = tls_gather(link->easy);
    return CURL_PREREQFUNC_OK;
}

static bool set_up(struct cairn_http_link *link) {
    CURL *easy = link->easy;
    cairn_http_set_safety(easy);
    link->dial = (struct cairn_http_dial){.engine = link->engine};
    cairn_http_set_connection(&link->dial, easy);
    if (is_ours()) curl_easy_setopt(easy, CURLOPT_SSL_CTX_FUNCTION, on_context);
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
    if (link->tls) link->tls->fd = fd;
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
    int problem = link->tls ? tls_flush(link->tls) : 0;
    if (!problem) return CURLE_OK;
    return problem == EAGAIN ? CURLE_AGAIN : CURLE_SEND_ERROR;
}
