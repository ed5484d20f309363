/* SPDX-License-Identifier: Apache-2.0 */
/*
 * http: every HTTP request Cairn makes (owner of curl/curl.h).
 *
 * Why:     one place sets up libcurl so that it is fast (1 MiB upload buffer, no Expect, no
 *          redirect) and safe (CURLE_OK alone proves nothing).
 * Promise: 1   a reply body goes to the caller's memory and never beyond reply_capacity; a longer
 *              one is CAIRN_PROTOCOL, a shorter one than Content-Length is CAIRN_UNAVAILABLE.
 *          2   redirects are never followed, .netrc and proxy variables are ignored, only http and
 *              https (and the caller's Unix socket) are used, paths are sent unchanged.
 *          3   a cancelled request's connection is reset (SO_LINGER 0) before _cancel returns: no
 *              byte of its body can still be sent from the caller's memory.
 *          4   done() is called exactly once per submitted request, from _poll or _cancel, on the
 *              polling thread.
 *          5   a header line or query that may hold a secret never reaches a trace or an error.
 *          6   a direct request's body goes from the caller's memory to the kernel, and its reply
 *              to reply_data, without a copy between; all other promises hold for it.
 * Limits:  CAIRN_HTTP_HEADERS_MAX request headers; 64 KiB of reply headers, including those of 1xx
 *          replies and trailers. on_header and on_reply may not call the engine.
 * Threads: one engine per thread, one owner; cairn_http_wake may be called by any thread.
 * Next:    store/s3/s3.h, api/wire/rest.h.
 */
#pragma once

#include "common/buf.h"

#define CAIRN_HTTP_HEADERS_MAX 32

struct cairn_http_engine; /* one libcurl multi */

struct cairn_http_options {     /* a zeroed struct gives the defaults */
    uint32_t connections_max;   /* 0 = 64 */
    uint32_t connect_ms;        /* 0 = 5,000 */
    bool verbose_trace;         /* redacted protocol lines to the debug log */
    bool refuses_link_local;    /* CAIRN_FORBIDDEN for names that resolve to link-local addresses */
    const char *ca_bundle;      /* NULL: SSL_CERT_FILE and SSL_CERT_DIR, else the system's */
    const char *interface_name; /* NULL: any interface */
    const char *congestion;     /* TCP_CONGESTION, benches only */
};

/* Why TLS failed, as far as known. */
enum cairn_http_tls_fault {
    CAIRN_HTTP_TLS_FINE,
    CAIRN_HTTP_TLS_AUTHORITY,   /* the peer's authority is not in ca_bundle */
    CAIRN_HTTP_TLS_CERTIFICATE, /* expired, not yet valid, or for another name */
    CAIRN_HTTP_TLS_FILE,        /* ca_bundle is unreadable or without certificates */
    CAIRN_HTTP_TLS_CLEAR,       /* the peer speaks plain text, not TLS */
};
struct cairn_http_request {
    /* set by the caller; all of it stays valid until done() */
    const char *method;
    const char *url;
    const char *unix_socket;    /* NULL: TCP */
    const char *const *headers; /* "Name: value" */
    size_t header_count;
    struct cairn_view body; /* sent in place, rewound on a resend */
    bool has_body;          /* an empty body is sent with Content-Length: 0 */
    void *reply_data;       /* NULL: the body goes to reply_buf */
    size_t reply_capacity;
    struct cairn_buf *reply_buf; /* bounded by its limit; error bodies of replies whose
                                    status is >= 300 always go here when it is set */
    uint32_t total_ms;           /* 0: no bound on the whole request */
    uint32_t stall_ms;           /* 0: 30,000; longest time without a byte in either direction */
    bool fresh_connection;       /* never reuse a kept connection (retries, hedges) */
    bool direct; /* without a copy, for large bodies (http.h#6); not over a Unix socket */
    uint64_t send_bytes_per_s; /* 0: no limit */
    /* Called once per header line of the final reply, trimmed; may be NULL. */
    void (*on_header)(struct cairn_http_request *request, struct cairn_view name,
                      struct cairn_view value);
    /* Called after all headers of the final reply, before its first body byte; may be NULL. Another
     * code than CAIRN_OK ends the request with that code, nothing written. */
    enum cairn_code (*on_reply)(struct cairn_http_request *request, struct cairn_error *err);
    /* Called for each run of body bytes in reply_data, in order; may be NULL. */
    void (*on_bytes)(struct cairn_http_request *request, const void *bytes, size_t size);
    void (*done)(struct cairn_http_request *request);
    void *owner;
    /* set before done() */
    enum cairn_code code; /* CAIRN_OK: a whole reply arrived, whatever its status */
    int status;
    uint64_t reply_bytes;    /* body bytes received */
    uint64_t content_length; /* UINT64_MAX: not announced */
    uint64_t sent_bytes;     /* handed to the kernel; may be ahead of the peer */
    bool reached;            /* a connection was made: the peer may have received the request */
    uint32_t starts;         /* connections used: a dead kept one is replaced, and the peer may
                                 have received the first request */
    uint64_t first_byte_us;  /* from sending to the first reply byte; 0: no reply */
    uint64_t sent_at_us;     /* mono clock, also while in progress: when the last body byte was
                                 handed to the kernel; 0: not yet */
    uint64_t reply_at_us;    /* mono clock, also while in progress: first reply byte */
    uint64_t link_us;        /* part of first_byte_us with bytes in flight and room in the
                                 peer's memory; direct only; UINT64_MAX: unknown */
    enum cairn_http_tls_fault tls_fault;
    struct cairn_error error; /* when code is not CAIRN_OK */
    void *engine_private;
};

enum cairn_code cairn_http_engine_new(const struct cairn_http_options *options,
                                      struct cairn_http_engine **ret,
                                      struct cairn_error *err) CAIRN_MUST_USE;
void cairn_http_engine_free(struct cairn_http_engine *engine); /* cancels its requests */
enum cairn_code cairn_http_submit(struct cairn_http_engine *engine,
                                  struct cairn_http_request *request,
                                  struct cairn_error *err) CAIRN_MUST_USE;
void cairn_http_cancel(struct cairn_http_engine *engine, struct cairn_http_request *request);
/* Runs transfers; returns after a completion, a wake, or timeout_ms. */
enum cairn_code cairn_http_poll(struct cairn_http_engine *engine, uint32_t timeout_ms,
                                struct cairn_error *err) CAIRN_MUST_USE;
void cairn_http_wake(struct cairn_http_engine *engine);
uint32_t cairn_http_in_flight(const struct cairn_http_engine *engine);
/* Submits and polls until done. request->done may be NULL. */
enum cairn_code cairn_http_perform(struct cairn_http_engine *engine,
                                   struct cairn_http_request *request,
                                   struct cairn_error *err) CAIRN_MUST_USE;
