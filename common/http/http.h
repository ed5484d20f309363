/* SPDX-License-Identifier: Apache-2.0 */
/*
 * http: every HTTP request Cairn makes (owner of curl/curl.h).
 *
 * Why:     one place that knows how libcurl must be set to be fast (1 MiB upload buffer, no
 *          Expect, no redirect) and safe (nothing trusted because CURLE_OK came back).
 * Promise: 1   a reply body goes to the caller's memory and never beyond reply_capacity; a longer
 *              one is CAIRN_PROTOCOL, a shorter one than Content-Length is CAIRN_UNAVAILABLE.
 *          2   redirects are never followed, .netrc and proxy variables are ignored, only http and
 *              https (and the caller's Unix socket) are spoken, paths are sent as they are.
 *          3   a cancelled request's connection is reset (SO_LINGER 0) before _cancel returns: no
 *              byte of its body can still be sent from the caller's memory.
 *          4   done() is called exactly once per submitted request, from _poll or _cancel, on the
 *              polling thread.
 *          5   a header line or query that may hold a secret never reaches a trace or an error.
 *          6   a direct request's body goes from the caller's memory to the kernel, and its reply
 *              to reply_data, with no copy between; everything else holds as it stands here.
 * Limits:  CAIRN_HTTP_HEADERS_MAX request headers; reply headers 64 KiB together, those of 1xx
 *          replies and trailers counted in. on_header and on_reply may not call the engine.
 * Threads: one engine per thread, one owner; cairn_http_wake may be called by any thread.
 * Next:    store/s3/s3.h, api/wire/rest.h.
 */
#pragma once

#include "common/buf.h"

#define CAIRN_HTTP_HEADERS_MAX 32

struct cairn_http_engine; /* one libcurl multi */

struct cairn_http_options {     /* zero is a good default */
    uint32_t connections_max;   /* 0 = 64 */
    uint32_t connect_ms;        /* 0 = 5,000 */
    bool verbose_trace;         /* redacted protocol lines to the debug log */
    bool refuses_link_local;    /* whatever a name resolves to: CAIRN_FORBIDDEN */
    const char *ca_bundle;      /* NULL: the system's */
    const char *interface_name; /* NULL: any */
    const char *congestion;     /* TCP_CONGESTION, benches only */
};

/* Why no TLS came about, as far as that is known. */
enum cairn_http_tls_fault {
    CAIRN_HTTP_TLS_FINE,
    CAIRN_HTTP_TLS_AUTHORITY,   /* its authority is not among those of ca_bundle */
    CAIRN_HTTP_TLS_CERTIFICATE, /* out of its time, or of another name */
    CAIRN_HTTP_TLS_FILE,        /* ca_bundle cannot be read, or holds no certificate */
    CAIRN_HTTP_TLS_CLEAR,       /* it answered in the clear, and speaks no TLS at all */
};
struct cairn_http_request {
    /* set by the caller; all of it stays valid until done() */
    const char *method;
    const char *url;
    const char *unix_socket;    /* NULL: TCP */
    const char *const *headers; /* "Name: value" */
    size_t header_count;
    struct cairn_view body; /* sent in place, rewound by itself on a resend */
    bool has_body;          /* an empty body is sent with Content-Length: 0 */
    void *reply_data;       /* or NULL: then the body goes to reply_buf */
    size_t reply_capacity;
    struct cairn_buf *reply_buf; /* bounded by its limit; error bodies of replies whose
                                    status is >= 300 always go here when it is set */
    uint32_t total_ms;           /* 0 = no bound on the whole */
    uint32_t stall_ms;           /* 0 = 30,000: no byte in either direction this long */
    bool fresh_connection;       /* never reuse a kept one (retries, hedges) */
    bool direct; /* for large bodies: they move without a copy (http.h#6); not over a Unix socket */
    uint64_t send_bytes_per_s; /* 0: as fast as it goes */
    /* Called once per header line of the final reply, trimmed; may be NULL. */
    void (*on_header)(struct cairn_http_request *request, struct cairn_view name,
                      struct cairn_view value);
    /* Called once, when all headers of the final reply are known and before its first body byte;
     * may be NULL. Another code than CAIRN_OK ends the request with it, nothing written. */
    enum cairn_code (*on_reply)(struct cairn_http_request *request, struct cairn_error *err);
    /* Called for each run of body bytes that has just come to reply_data, in order; may be NULL. */
    void (*on_bytes)(struct cairn_http_request *request, const void *bytes, size_t size);
    void (*done)(struct cairn_http_request *request);
    void *owner;
    /* set before done() */
    enum cairn_code code; /* CAIRN_OK: a whole reply arrived, whatever its status */
    int status;
    uint64_t reply_bytes;    /* body bytes received */
    uint64_t content_length; /* UINT64_MAX: not said */
    uint64_t sent_bytes;     /* handed to the kernel; may be ahead of the peer */
    bool reached;            /* a connection was made: the peer may have received it */
    uint32_t starts;         /* connections it was begun on: the second follows by itself when a
                                 kept one was dead, and the peer may have received the first */
    uint64_t first_byte_us;  /* from sending to the first reply byte; 0: none came */
    uint64_t sent_at_us;     /* mono clock, also while under way: when the last body byte was
                                 handed over; 0: not yet */
    uint64_t reply_at_us;    /* mono clock, also while under way: first reply byte */
    uint64_t link_us;        /* of first_byte_us: bytes were on their way, and not for want of room
                                 in the peer's memory; of direct ones; UINT64_MAX: not known */
    enum cairn_http_tls_fault tls_fault;
    struct cairn_error error; /* when code is not CAIRN_OK */
    void *engine_private;
};

enum cairn_code cairn_http_engine_new(const struct cairn_http_options *options,
                                      struct cairn_http_engine **ret,
                                      struct cairn_error *err) CAIRN_MUST_USE;
void cairn_http_engine_free(struct cairn_http_engine *engine); /* cancels what is under way */
enum cairn_code cairn_http_submit(struct cairn_http_engine *engine,
                                  struct cairn_http_request *request,
                                  struct cairn_error *err) CAIRN_MUST_USE;
void cairn_http_cancel(struct cairn_http_engine *engine, struct cairn_http_request *request);
/* Run transfers; returns after something completed, a wake, or timeout_ms. */
enum cairn_code cairn_http_poll(struct cairn_http_engine *engine, uint32_t timeout_ms,
                                struct cairn_error *err) CAIRN_MUST_USE;
void cairn_http_wake(struct cairn_http_engine *engine);
uint32_t cairn_http_in_flight(const struct cairn_http_engine *engine);
/* Submit and poll until done. request->done may be NULL. */
enum cairn_code cairn_http_perform(struct cairn_http_engine *engine,
                                   struct cairn_http_request *request,
                                   struct cairn_error *err) CAIRN_MUST_USE;
