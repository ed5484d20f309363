/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inside: what the parts of the HTTP client share; for this room alone.
 *
 * Why:     setting libcurl up, running it, reading replies and moving large bodies past its
 *          buffers are subjects of their own and would be one long file.
 * Promise: 1   after cairn_http_transfer_prepare the easy handle calls back into this transfer
 *              only, and every refusal of a callback is in `refused` and `error`.
 *          2   a reply is read by the same functions whichever way its bytes came, so that both
 *              ways refuse the same.
 * Limits:  as in common/http/http.h.
 * Threads: the engine's owner.
 * Next:    common/http/setup.c, common/http/reply.c, common/http/direct.c, common/http/http.c.
 */
#pragma once

#include <curl/curl.h>
#include <stdatomic.h>
#include <sys/queue.h>

#include "common/http/http.h"
#include "common/net.h"

struct cairn_http_link; /* common/http/link.h */

/* What became of the addresses that one handle tried. */
struct cairn_http_dial {
    struct cairn_http_engine *engine;
    bool refused, tried; /* some were link-local; some were not */
};

/* What a CURLOPT_PRIVATE of ours points to. */
enum cairn_http_kind { CAIRN_HTTP_TRANSFER, CAIRN_HTTP_LINK };

/* Where the reading of a reply stands; for requests that libcurl does not run. */
enum cairn_http_reading {
    CAIRN_HTTP_STATUS_LINE,
    CAIRN_HTTP_HEADERS,
    CAIRN_HTTP_BODY,       /* as long as Content-Length says            */
    CAIRN_HTTP_BODY_REST,  /* until the connection ends                 */
    CAIRN_HTTP_CHUNK_SIZE, /* "1f40"                                    */
    CAIRN_HTTP_CHUNK,
    CAIRN_HTTP_CHUNK_END, /* the line end behind a chunk               */
    CAIRN_HTTP_TRAILERS,
    CAIRN_HTTP_WHOLE,
};

struct cairn_http_transfer {
    enum cairn_http_kind kind;              /* first: CURLOPT_PRIVATE */
    TAILQ_ENTRY(cairn_http_transfer) place; /* in one of the engine's lists */
    struct cairn_http_engine *engine;
    struct cairn_http_request *request;
    CURL *easy;
    struct cairn_http_dial dial;
    struct curl_slist *headers;
    bool is_active; /* known to the multi, or on a link */
    uint64_t submitted_us, moved_us;
    curl_off_t sent_bytes, received_bytes;
    size_t header_bytes;
    bool resent;         /* once, because the kept connection it was given was dead */
    bool on_kept;        /* a request went over its connection before; started_us is known */
    uint16_t local_port; /* of that connection, where libcurl speaks over it */
    bool heard;          /* the peer has acknowledged bytes of it, or has answered */
    uint64_t started_us,
        half_open_check_us; /* when it began there; the next look at the peer's silence */
    bool headers_over, chunked;
    enum cairn_code refused; /* why a callback of ours stopped it; error holds the sentence */
    struct cairn_error error;
    char curl_text[CURL_ERROR_SIZE];
    /* Of direct requests only (common/http/direct.h). */
    bool direct;
    struct cairn_http_link *link; /* NULL: none yet */
    struct cairn_buf head;
    size_t head_sent;
    struct cairn_net_times times; /* of its link when it was begun on it */
    bool has_times;
    uint64_t looked_us; /* at queued_bytes */
    int queued_bytes;   /* what the peer had not acknowledged when that was last looked at */
    enum cairn_http_reading reading;
    uint64_t chunk_left;
    bool says_close, strange_coding;
    uint32_t pass; /* the last round of the engine that it took part in */
};

TAILQ_HEAD(cairn_http_transfers, cairn_http_transfer);

struct cairn_http_engine {
    CURLM *multi;
    struct cairn_http_options options;
    char *ca_bundle, *interface_name, *congestion;
    struct cairn_http_transfers active, waiting, idle;
    uint32_t active_count, waiting_count;
    LIST_HEAD(, cairn_http_link) links; /* busy ones and idle ones */
    uint32_t link_count;
    uint32_t in_multi; /* handles that libcurl has work with */
    uint32_t pass;
    struct curl_waitfd *waits;       /* connections_max of them */
    struct cairn_http_link **waiter; /* whose each is */
    uint64_t ended_count, swept_us;
    int *sockets; /* of libcurl's connections: socket_room at most are known */
    uint32_t socket_count, socket_room;
    atomic_bool woken;
};

/* ---- setup.c ---- */

/* Everything libcurl must know about the request but its start. */
enum cairn_code cairn_http_transfer_prepare(struct cairn_http_transfer *transfer,
                                            struct cairn_error *err) CAIRN_MUST_USE;
/* What every handle is told: what is refused, how to connect, how to close. */
void cairn_http_set_safety(CURL *easy);
void cairn_http_set_connection(struct cairn_http_dial *dial, CURL *easy);

/* ---- reply.c ---- */

void cairn_http_reply_start(struct cairn_http_transfer *transfer, int status);
/* One line of the head, its end included or not; the empty line ends the head. */
void cairn_http_reply_line(struct cairn_http_transfer *transfer, const char *line, size_t size);
void cairn_http_reply_body(struct cairn_http_transfer *transfer, const void *bytes, size_t size);
/* How many body bytes may be received into *ret at once; 0: they must go through _body. */
size_t cairn_http_reply_room(const struct cairn_http_transfer *transfer, void **ret);
/* So many came there. */
void cairn_http_reply_arrived(struct cairn_http_transfer *transfer, size_t size);
/* Whether what came is a whole reply, now that nothing more will come. */
enum cairn_code cairn_http_reply_judge(const struct cairn_http_transfer *transfer,
                                       struct cairn_error *err) CAIRN_MUST_USE;

/* ---- http.c ---- */

/* libcurl's result as a code; text is what it wrote into its error buffer. */
enum cairn_code cairn_http_code_of(CURLcode result, const char *text, bool sent, int status);
/* The one way out of a request. The code and sentence are in error when it failed. */
void cairn_http_end(struct cairn_http_transfer *transfer, enum cairn_code code,
                    const struct cairn_error *error);
