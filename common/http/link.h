/* SPDX-License-Identifier: Apache-2.0 */
/*
 * link: connections that libcurl opens and Cairn speaks over; for this room alone.
 *
 * Why:     libcurl moves every body through a buffer of its own, which costs a third of the CPU
 *          time of a large upload or download. Over a connection of CURLOPT_CONNECT_ONLY bytes go
 *          from the caller's memory to the kernel and back.
 * Promise: 1   names, addresses, connecting, TLS and its verification are libcurl's, set as for
 *              any other request.
 *          2   each new link resolves its name anew and takes the addresses in any order, so that
 *              many links use many machines and a changed name is seen at once.
 *          3   an idle link that has something to read (the peer's end, or bytes that nobody asked
 *              for) is not used again.
 *          4   a dropped link is reset: nothing of what the kernel still held is sent.
 * Limits:  connections_max of the engine, idle ones counted in; an idle link lives for a minute, or
 *          until the peer ends it. libcurl keeps as many connections of its own.
 * Threads: the engine's owner.
 * Next:    common/http/direct.c.
 */
#pragma once

#include "common/http/inside.h"
#include "common/http/tls.h"

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
