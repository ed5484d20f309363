/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inside: shared by the parts of the HTTP client, for this room only.
 *
 * Why:     libcurl copies every body through its own buffer, a third of the CPU time of a large
 *          upload or download. Nearly all bytes are parts of uploads and ranges of restores, whose
 *          memory is known beforehand: over a link, a connection of CURLOPT_CONNECT_ONLY, they
 *          move between that memory and the kernel. OpenSSL writes each record of 16 KiB in a call
 *          of its own and reads each in two, half of the CPU time of an upload over TLS; gathered,
 *          16 records are one write. A machine without power and a gateway that dropped its state
 *          send neither FIN nor RST, so requests on kept connections would wait until their own
 *          deadlines.
 * Promise: 1   after cairn_http_transfer_prepare the easy handle calls back into this transfer
 *              only, and every refusal of a callback is in `refused` and `error`.
 *          2   the same functions read the replies of libcurl and of links, so both refuse alike.
 *          3   direct: body bytes go from the caller's memory to the kernel (or to OpenSSL), and a
 *              body of known length from the kernel into the caller's memory.
 *          4   direct: a reply that is not HTTP/1.0 or 1.1 by RFC 9112 is CAIRN_PROTOCOL: a line
 *              end, a length, a chunk or a coding that could be read in two ways.
 *          5   direct: a link is kept only if request and reply were transferred whole and nothing
 *              more; otherwise it is dropped.
 *          6   direct: a kept link that turns out to be dead before the first byte of a reply is
 *              replaced once by a new one (counted in request->starts).
 *          7   direct: an error reply (300 and above) ends the request at once, body sent or not,
 *              and is read even if the peer has reset the connection after it.
 *          8   half open: a request on a kept connection without an acknowledgement since its start
 *              is repeated once on a new connection, after CAIRN_HTTP_HALF_OPEN_US and two
 *              retransmissions.
 *          9   half open: also if the peer sent FIN and no reply before it took the whole body.
 *          10  half open: a request with acknowledged bytes is left alone, however late its reply.
 *          11  link: names, addresses, connecting, TLS and its verification are libcurl's, set as
 *              for any other request.
 *          12  link: each new link resolves its name again and takes the addresses in random order,
 *              so that links spread over a store's machines and a changed name is seen at once.
 *          13  link: an idle link with readable data (the peer's end, or unsolicited bytes) is not
 *              reused.
 *          14  link: a dropped link is reset: bytes still in the kernel are not sent.
 *          15  TLS: records leave in the order OpenSSL made them, and none is dropped.
 *          16  TLS: a connection whose TLS is not this program's OpenSSL is not gathered.
 *          17  TLS: after the connection is dropped nothing more is sent, not even close_notify.
 *          18  trace: only header values of a closed list are shown; all others become "<hidden>".
 *          19  trace: of a query, names and the values of a closed list are shown.
 * Limits:  as in common/http/http.h. Direct: lines of CAIRN_HTTP_LINK_INPUT_BYTES; no Unix socket,
 *          no HEAD, no 100-continue. Half open: TCP only, once per request. Links: at most the
 *          engine's connections_max, including idle ones, which live for a minute or until the
 *          peer ends them; libcurl keeps as many connections of its own. TLS:
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

/* Addresses tried by one handle. */
struct cairn_http_dial {
    struct cairn_http_engine *engine;
    bool refused, tried; /* a link-local address was refused; another one was tried */
};

/* Type of the struct that CURLOPT_PRIVATE points to. */
enum cairn_http_kind { CAIRN_HTTP_TRANSFER, CAIRN_HTTP_LINK };

/* Parser state of a reply on a link. */
enum cairn_http_reading {
    CAIRN_HTTP_STATUS_LINE,
    CAIRN_HTTP_HEADERS,
    CAIRN_HTTP_BODY,       /* as many bytes as Content-Length */
    CAIRN_HTTP_BODY_REST,  /* until the connection ends */
    CAIRN_HTTP_CHUNK_SIZE, /* a line such as "1f40" */
    CAIRN_HTTP_CHUNK,
    CAIRN_HTTP_CHUNK_END, /* the line end after a chunk */
    CAIRN_HTTP_TRAILERS,
    CAIRN_HTTP_WHOLE,
};

struct cairn_http_transfer {
    enum cairn_http_kind kind;              /* first member: see CURLOPT_PRIVATE */
    TAILQ_ENTRY(cairn_http_transfer) place; /* in one of the engine's lists */
    struct cairn_http_engine *engine;
    struct cairn_http_request *request;
    CURL *easy;
    struct cairn_http_dial dial;
    struct curl_slist *headers;
    bool is_active; /* in the multi, or on a link */
    uint64_t submitted_us, moved_us;
    curl_off_t sent_bytes, received_bytes;
    size_t header_bytes;
    bool resent;         /* already once, since its kept connection was dead */
    bool on_kept;        /* its connection served a request before; started_us is set */
    uint16_t local_port; /* local port of a connection run by libcurl */
    bool heard;          /* the peer has acknowledged bytes of the request, or replied */
    uint64_t started_us,
        half_open_check_us; /* start on this connection; next check of the peer's silence */
    bool headers_over, chunked;
    enum cairn_code refused; /* why a callback stopped the request; the message is in error */
    struct cairn_error error;
    char curl_text[CURL_ERROR_SIZE];
    /* Direct requests only. */
    bool direct;
    struct cairn_http_link *link; /* NULL: no link yet */
    struct cairn_buf head;
    size_t head_sent;
    struct cairn_net_times times; /* of the link at the request's start */
    bool has_times;
    uint64_t looked_us; /* when queued_bytes was read */
    int queued_bytes;   /* sent bytes that the peer had not acknowledged */
    enum cairn_http_reading reading;
    uint64_t chunk_left;
    bool says_close, strange_coding;
    uint32_t pass; /* last round of the engine in which it took a step */
};

TAILQ_HEAD(cairn_http_transfers, cairn_http_transfer);

struct cairn_http_engine {
    CURLM *multi;
    struct cairn_http_options options;
    char *ca_bundle; /* the options', else the system's; NULL: libcurl's own */
    char *ca_folder; /* SSL_CERT_DIR; NULL: libcurl's own */
    char *interface_name, *congestion;
    struct cairn_http_transfers active, waiting, idle;
    uint32_t active_count, waiting_count;
    LIST_HEAD(, cairn_http_link) links; /* busy and idle */
    uint32_t link_count;
    uint32_t in_multi; /* handles added to the multi */
    uint32_t pass;
    struct curl_waitfd *waits;       /* [connections_max] */
    struct cairn_http_link **waiter; /* link of each entry of waits */
    uint64_t ended_count, swept_us;
    int *sockets; /* of libcurl's connections, the first socket_room */
    uint32_t socket_count, socket_room;
    atomic_bool woken;
};

/* ---- setup.c ---- */

/* Sets all options of the request; does not start it. */
enum cairn_code cairn_http_transfer_prepare(struct cairn_http_transfer *transfer,
                                            struct cairn_error *err) CAIRN_MUST_USE;
void cairn_http_set_safety(CURL *easy);
void cairn_http_set_connection(struct cairn_http_dial *dial, CURL *easy);

/* ---- setup.c: replies ---- */

void cairn_http_reply_start(struct cairn_http_transfer *transfer, int status);
/* One header line, with or without its end; the empty line ends the head. */
void cairn_http_reply_line(struct cairn_http_transfer *transfer, const char *line, size_t size);
void cairn_http_reply_body(struct cairn_http_transfer *transfer, const void *bytes, size_t size);
/* Size of the memory at *ret that may receive body bytes directly; 0: use _body. */
size_t cairn_http_reply_room(const struct cairn_http_transfer *transfer, void **ret);
/* Counts bytes received there. */
void cairn_http_reply_arrived(struct cairn_http_transfer *transfer, size_t size);
/* After the last byte: is the reply complete? */
enum cairn_code cairn_http_reply_judge(const struct cairn_http_transfer *transfer,
                                       struct cairn_error *err) CAIRN_MUST_USE;

/* ---- http.c ---- */

/* The system's file of CA certificates: SSL_CERT_FILE; NULL, which leaves it to libcurl, where the
 * file that libcurl was built with is there; else the first of `files` that is. A libcurl that
 * travels with Cairn in a wheel was built on another distribution, which has its file elsewhere. */
const char *cairn_http_system_ca(const char *built_in, const char *const *files, size_t count);

/* Ends a request; the only function that does. error: the failure. */
void cairn_http_end(struct cairn_http_transfer *transfer, enum cairn_code code,
                    const struct cairn_error *error);

/* ---- direct.c: a request and its reply over a link, without a copy ---- */

/* Checks the request and writes its head. */
enum cairn_code cairn_http_direct_prepare(struct cairn_http_transfer *transfer,
                                          struct cairn_error *err) CAIRN_MUST_USE;
/* Starts on a kept link or a new one. */
enum cairn_code cairn_http_direct_start(struct cairn_http_transfer *transfer,
                                        struct cairn_error *err) CAIRN_MUST_USE;
/* Restarts on a new link if a kept one is dead (inside.h#6); false: stays on its link. */
bool cairn_http_direct_replace(struct cairn_http_transfer *transfer);
/* Moves the bytes that can be moved now; may end the request. */
void cairn_http_direct_step(struct cairn_http_transfer *transfer);
/* CURL_WAIT_ flags its link waits for; no POLLOUT while the pace forbids sending. */
short cairn_http_direct_events(const struct cairn_http_transfer *transfer);
/* When a paced request may continue, mono clock; UINT64_MAX: it waits for its link only. */
uint64_t cairn_http_direct_due_us(const struct cairn_http_transfer *transfer);
/* Did the peer take bytes since the last check, while none were sent? Then it is slow, not dead. */
bool cairn_http_direct_drains(struct cairn_http_transfer *transfer);

/* ---- setup.c: kept connections whose peer has gone ---- */

#define CAIRN_HTTP_HALF_OPEN_US 1000000

/* When to check this transfer, mono clock; UINT64_MAX: never. */
uint64_t cairn_http_half_open_due_us(const struct cairn_http_transfer *transfer);
/* For a transfer that is due: true if it must be restarted on a new connection. */
bool cairn_http_half_open_check(struct cairn_http_transfer *transfer);

/* ---- link.c: connections opened by libcurl and used by Cairn ---- */

#define CAIRN_HTTP_LINK_INPUT_BYTES (16 * CAIRN_KIB)

struct cairn_http_link {
    enum cairn_http_kind kind; /* first member: see CURLOPT_PRIVATE */
    LIST_ENTRY(cairn_http_link) place;
    struct cairn_http_engine *engine;
    struct cairn_http_transfer *transfer; /* NULL: idle */
    CURL *easy;
    struct cairn_http_dial dial;
    struct cairn_http_tls *tls; /* NULL: writes are not gathered */
    int fd;                     /* -1: not connected yet */
    bool kept;                  /* served a request before the present one */
    bool ready;                 /* a step may make progress */
    uint64_t idle_since_us;
    char *origin;    /* "https://host:port" */
    size_t from, to; /* unread bytes of input */
    char curl_text[CURL_ERROR_SIZE];
    char input[CAIRN_HTTP_LINK_INPUT_BYTES];
};

/* Takes a kept link to the transfer's origin, or starts connecting a new one (fd -1). */
enum cairn_code cairn_http_link_take(struct cairn_http_transfer *transfer,
                                     struct cairn_error *err) CAIRN_MUST_USE;
/* Call when libcurl has connected or failed; false: failed. */
bool cairn_http_link_connected(struct cairn_http_link *link, CURLcode result);
void cairn_http_link_keep(struct cairn_http_link *link);
void cairn_http_link_drop(struct cairn_http_link *link);
void cairn_http_link_drop_idle(struct cairn_http_engine *engine, const char *url);
/* Drops idle links that are too old or whose peer has ended. */
void cairn_http_link_sweep(struct cairn_http_engine *engine);
/* CURLE_OK with *ret_size 0: the peer's end. CURLE_AGAIN: no bytes now. */
CURLcode cairn_http_link_receive(struct cairn_http_link *link, void *into, size_t room,
                                 size_t *ret_size);
/* After CURLE_AGAIN, call again with the same bytes. */
CURLcode cairn_http_link_send(struct cairn_http_link *link, struct cairn_view bytes,
                              size_t *ret_size);
/* CURLE_AGAIN: gathered bytes are left that the kernel did not take. */
CURLcode cairn_http_link_flush(struct cairn_http_link *link);

/* ---- link.c: gathers what OpenSSL writes ---- */

#define CAIRN_HTTP_TLS_BYTES (256 * CAIRN_KIB)

struct cairn_http_tls; /* freed with its connection */

/* Bytes written to the kernel so far; are gathered bytes left? */
uint64_t cairn_http_tls_sent(const struct cairn_http_tls *tls);
bool cairn_http_tls_pending(const struct cairn_http_tls *tls);

/* ---- setup.c: protocol lines without secrets ---- */

/* One request, status or header line without its end. */
enum cairn_code cairn_http_trace_redact(struct cairn_view line, struct cairn_buf *ret,
                                        struct cairn_error *err) CAIRN_MUST_USE;
/* Logs each line of a block, redacted, at debug level. mark: '>' sent, '<' received. */
void cairn_http_trace_lines(char mark, struct cairn_view block);
