/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inside: what the parts of the HTTP client share; for this room alone.
 *
 * Why:     libcurl moves every body through a buffer of its own, which costs a third of the CPU
 *          time of a large upload or download. Parts of uploads and ranges of restores are nearly
 *          all the bytes that Cairn moves, and lie in memory that is known beforehand: over a link,
 *          a connection of CURLOPT_CONNECT_ONLY, they go from there to the kernel and back. OpenSSL
 *          hands each record of 16 KiB to the kernel by itself and reads each in two calls, half of
 *          the CPU time of an upload over TLS; gathered, 16 records go at once. A machine that lost
 *          its power and a gateway that forgot a connection send neither FIN nor RST, and requests
 *          on such a connection would wait until their own deadlines.
 * Promise: 1   after cairn_http_transfer_prepare the easy handle calls back into this transfer
 *              only, and every refusal of a callback is in `refused` and `error`.
 *          2   a reply is read by the same functions whichever way its bytes came, so that both
 *              ways refuse the same.
 *          3   direct: body bytes go from the caller's memory to the kernel (or to OpenSSL), and a
 *              body of known length from the kernel into the caller's memory.
 *          4   direct: what is not HTTP/1.0 or 1.1 as RFC 9112 writes it is CAIRN_PROTOCOL: a line
 *              end, a length, a chunk or a coding that could be read in two ways.
 *          5   direct: a link is kept only when request and reply both went over it whole and
 *              nothing more; otherwise it is dropped.
 *          6   direct: a kept link that turns out to be dead before the first byte of a reply is
 *              replaced once, by a new one (request->starts tells).
 *          7   direct: a reply that refuses (300 and above) ends the request at once, body sent or
 *              not, and is found even when the peer has reset the connection behind it.
 *          8   half open: a request on a kept connection that has had no acknowledgement since it
 *              began is sent once more on a new one, after CAIRN_HTTP_HALF_OPEN_US and two
 *              retransmissions.
 *          9   half open: so is one whose peer has sent its FIN and no reply before the body was
 *              taken whole.
 *          10  half open: any other whose bytes were acknowledged is left alone, however long its
 *              reply takes.
 *          11  link: names, addresses, connecting, TLS and its verification are libcurl's, set as
 *              for any other request.
 *          12  link: each new one resolves its name anew and takes the addresses in any order, so
 *              that many links use many machines and a changed name is seen at once.
 *          13  link: an idle one that has something to read (the peer's end, or bytes that nobody
 *              asked for) is not used again.
 *          14  link: a dropped one is reset: nothing of what the kernel still held is sent.
 *          15  TLS: records leave in the order OpenSSL made them, and none is dropped.
 *          16  TLS: a connection whose TLS is not this program's OpenSSL is left as it is.
 *          17  TLS: after the connection is given up nothing more is sent, no close_notify either.
 *          18  trace: only header values of a closed list are shown; all others become "<hidden>".
 *          19  trace: of a query, names are shown and values of a closed list; all others hidden.
 * Limits:  as in common/http/http.h. Direct: lines of CAIRN_HTTP_LINK_INPUT_BYTES; no Unix socket,
 *          no HEAD, no 100-continue. Half open: TCP alone, once for each request. Links:
 *          connections_max of the engine, idle ones counted in; an idle one lives for a minute, or
 *          until the peer ends it; libcurl keeps as many connections of its own. TLS:
 *          CAIRN_HTTP_TLS_BYTES a connection in each direction. A trace shows 512 bytes of a line.
 * Threads: the engine's owner.
 * Next:    common/http/http.c, setup.c, direct.c, link.c.
 */
#pragma once

#include <curl/curl.h>
#include <stdatomic.h>
#include <sys/queue.h>

#include "common/buf.h"
#include "common/http/http.h"
#include "common/net.h"

struct cairn_http_link;

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
    /* Of direct requests only. */
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

/* ---- setup.c: replies ---- */

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

/* The one way out of a request. The code and sentence are in error when it failed. */
void cairn_http_end(struct cairn_http_transfer *transfer, enum cairn_code code,
                    const struct cairn_error *error);

/* ---- direct.c: one request and its reply over a link, without a copy ---- */

/* Checks the request and writes its head. */
enum cairn_code cairn_http_direct_prepare(struct cairn_http_transfer *transfer,
                                          struct cairn_error *err) CAIRN_MUST_USE;
/* On a kept link or a new one. */
enum cairn_code cairn_http_direct_start(struct cairn_http_transfer *transfer,
                                        struct cairn_error *err) CAIRN_MUST_USE;
/* On a new link, where its kept one is dead (inside.h#6); false: it may not, and goes on as it
 * is. */
bool cairn_http_direct_replace(struct cairn_http_transfer *transfer);
/* Moves what can be moved now; may end the request. */
void cairn_http_direct_step(struct cairn_http_transfer *transfer);
/* What its link waits for, in CURL_WAIT_ flags; not to send while the pace forbids it. */
short cairn_http_direct_events(const struct cairn_http_transfer *transfer);
/* When a paced request may go on, mono clock; UINT64_MAX: it waits for its link alone. */
uint64_t cairn_http_direct_due_us(const struct cairn_http_transfer *transfer);
/* The peer took bytes since the last look though none was handed over: it is slow, not dead. */
bool cairn_http_direct_drains(struct cairn_http_transfer *transfer);

/* ---- setup.c: kept connections whose peer has gone ---- */

#define CAIRN_HTTP_HALF_OPEN_US 1000000

/* When this transfer is to be looked at, mono clock; UINT64_MAX: never. */
uint64_t cairn_http_half_open_due_us(const struct cairn_http_transfer *transfer);
/* A transfer that is due: true when it must go on elsewhere. */
bool cairn_http_half_open_check(struct cairn_http_transfer *transfer);

/* ---- link.c: connections that libcurl opens and Cairn speaks over ---- */

#define CAIRN_HTTP_LINK_INPUT_BYTES (16 * CAIRN_KIB)

struct cairn_http_link {
    enum cairn_http_kind kind; /* first: CURLOPT_PRIVATE */
    LIST_ENTRY(cairn_http_link) place;
    struct cairn_http_engine *engine;
    struct cairn_http_transfer *transfer; /* NULL: idle */
    CURL *easy;
    struct cairn_http_dial dial;
    struct cairn_http_tls *tls; /* NULL: not gathered */
    int fd;                     /* -1: not connected yet */
    bool kept;                  /* a request went over it before the present one */
    bool ready;                 /* there may be something to do */
    uint64_t idle_since_us;
    char *origin;    /* "https://host:port" */
    size_t from, to; /* unread bytes of input */
    char curl_text[CURL_ERROR_SIZE];
    char input[CAIRN_HTTP_LINK_INPUT_BYTES];
};

/* A kept link to the transfer's origin, or a new one that is being connected (fd -1). */
enum cairn_code cairn_http_link_take(struct cairn_http_transfer *transfer,
                                     struct cairn_error *err) CAIRN_MUST_USE;
/* libcurl is done with connecting: false when it failed. */
bool cairn_http_link_connected(struct cairn_http_link *link, CURLcode result);
/* For the next request. */
void cairn_http_link_keep(struct cairn_http_link *link);
void cairn_http_link_drop(struct cairn_http_link *link);
/* All idle ones to the origin of url. */
void cairn_http_link_drop_idle(struct cairn_http_engine *engine, const char *url);
/* Drops the idle ones that nobody can use any more. */
void cairn_http_link_sweep(struct cairn_http_engine *engine);
/* CURLE_OK with *ret_size 0: the peer's end. CURLE_AGAIN: nothing now. */
CURLcode cairn_http_link_receive(struct cairn_http_link *link, void *into, size_t room,
                                 size_t *ret_size);
/* The same pieces must be offered again after CURLE_AGAIN. */
CURLcode cairn_http_link_send(struct cairn_http_link *link, struct cairn_view bytes,
                              size_t *ret_size);
/* CURLE_AGAIN: what was sent is not yet with the kernel. */
CURLcode cairn_http_link_flush(struct cairn_http_link *link);

/* ---- link.c: what OpenSSL writes, gathered ---- */

#define CAIRN_HTTP_TLS_BYTES (256 * CAIRN_KIB)

struct cairn_http_tls; /* belongs to the connection and ends with it */

/* How much is with the kernel so far; whether more is to go. */
uint64_t cairn_http_tls_sent(const struct cairn_http_tls *tls);
bool cairn_http_tls_pending(const struct cairn_http_tls *tls);

/* ---- setup.c: protocol lines that may be shown to people ---- */

/* One request, status or header line without its end. */
enum cairn_code cairn_http_trace_redact(struct cairn_view line, struct cairn_buf *ret,
                                        struct cairn_error *err) CAIRN_MUST_USE;
/* Each line of a block, redacted, to the debug log. mark is '>' for sent, '<' for received. */
void cairn_http_trace_lines(char mark, struct cairn_view block);
