/* SPDX-License-Identifier: Apache-2.0 */
/*
 * http_responder: a real HTTP server on loopback whose every answer a test writes itself.
 *
 * Why:     what matters about a client is what it does with short, late, cut and wrong answers,
 *          and no proper server gives those.
 * Promise: the answer function sees each request whole (or, with `early`, before its body is
 *          read) and writes any bytes it likes; what it does not write is not sent.
 * Limits:  heads 32 KiB, bodies 64 MiB, 256 connections a responder.
 * Threads: one per connection calls answer; the counters may be read by any thread.
 * Next:    tests/http/test_http.c.
 */
#pragma once

#include <stdatomic.h>

#include "common/base.h"

struct cairn_responder;

struct cairn_responder_request {
    struct cairn_responder *responder;
    void *owner;
    int fd;
    uint32_t index;      /* of all requests, from 0 */
    uint32_t connection; /* from 0 */
    char method[16];
    char target[8192];
    char head[32768]; /* all of it, NUL-terminated */
    struct cairn_view body;
    uint64_t body_bytes; /* announced */
    bool close;          /* set by answer: end this connection */
    bool reset;          /* set by answer: end it with RST */
};

struct cairn_responder_options {
    void (*answer)(struct cairn_responder_request *request);
    void *owner;
    bool early;              /* answer before the body is read */
    const char *unix_socket; /* NULL: TCP on 127.0.0.1 */
    uint16_t port;           /* 0: a free one; else in place of who listened there */
};

struct cairn_responder *cairn_responder_start(const struct cairn_responder_options *options);
void cairn_responder_stop(struct cairn_responder *responder);
/* "http://127.0.0.1:PORT" */
const char *cairn_responder_url(const struct cairn_responder *responder);
uint32_t cairn_responder_requests(const struct cairn_responder *responder);
uint32_t cairn_responder_connections(const struct cairn_responder *responder);

/* Raw bytes. */
void cairn_responder_say(struct cairn_responder_request *request, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void cairn_responder_send(struct cairn_responder_request *request, const void *bytes, size_t size);
/* A proper answer. headers: lines that each end in CRLF, or "". */
void cairn_responder_reply(struct cairn_responder_request *request, int status, const char *headers,
                           const char *body);
/* Value of a header of the request into ret_value (512 bytes); false when absent. */
bool cairn_responder_header(const struct cairn_responder_request *request, const char *name,
                            char ret_value[512]);
/* Read and drop up to size body bytes; returns how many came before the end. */
uint64_t cairn_responder_drain(struct cairn_responder_request *request, uint64_t size);
