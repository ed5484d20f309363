/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libcurl's own BIO stays where records are read. For writing it is replaced by one that appends
 * to a buffer and sends that when it is full or when the link says so.
 */
#include "common/http/tls.h"

#include <openssl/ssl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

struct cairn_http_tls {
    int fd;
    uint64_t sent; /* with the kernel */
    size_t from, to;
    char bytes[CAIRN_HTTP_TLS_BYTES];
};

int cairn_http_tls_flush(struct cairn_http_tls *tls) {
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

/* ---- the BIO ---- */

static int gather_write(BIO *bio, const char *bytes, int size) {
    struct cairn_http_tls *tls = BIO_get_data(bio);
    BIO_clear_retry_flags(bio);
    if (size <= 0) return 0;
    if ((size_t)size > sizeof tls->bytes - tls->to) {
        int problem = cairn_http_tls_flush(tls);
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

/* OpenSSL flushes after a message of the handshake, and waits for its answer. Any result but 1 is a
 * failure to it: what the socket does not take now goes with the link's next flush. */
static long gather_control(BIO *bio, int command, long number, void *pointer) {
    struct cairn_http_tls *tls = BIO_get_data(bio);
    (void)number, (void)pointer;
    if (command == BIO_CTRL_FLUSH && tls && tls->fd >= 0) (void)cairn_http_tls_flush(tls);
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

/* ---- a connection ---- */

/* Two copies of OpenSSL in one process know nothing of each other's structs. */
static bool is_ours(void) {
    const curl_version_info_data *info = curl_version_info(CURLVERSION_NOW);
    char own[64];
    snprintf(own, sizeof own, "OpenSSL/%s", OpenSSL_version(OPENSSL_VERSION_STRING));
    return info->ssl_version && !strcmp(info->ssl_version, own);
}

/* Reading ahead is safe on links alone: they read until nothing is left, whereas libcurl's own
 * transfers wait for the socket without asking OpenSSL what it still holds. */
static CURLcode on_context(CURL *easy, void *context, void *owner) {
    (void)easy, (void)owner;
    SSL_CTX_set_read_ahead(context, 1);
    SSL_CTX_set_default_read_buffer_len(context, CAIRN_HTTP_TLS_BYTES);
    /* Otherwise the buffer is freed and taken again with each record. */
    SSL_CTX_clear_mode(context, SSL_MODE_RELEASE_BUFFERS);
    SSL_CTX_set_quiet_shutdown(context, 1);
    return CURLE_OK;
}

void cairn_http_tls_prepare(CURL *easy) {
    if (is_ours()) curl_easy_setopt(easy, CURLOPT_SSL_CTX_FUNCTION, on_context);
}

void cairn_http_tls_connected(struct cairn_http_tls *tls, int fd) {
    tls->fd = fd;
}

struct cairn_http_tls *cairn_http_tls_gather(CURL *easy) {
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
    SSL_set0_wbio(session->internals, bio); /* which lets go of libcurl's, kept for reading */
    return tls;
}
