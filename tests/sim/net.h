/* SPDX-License-Identifier: Apache-2.0 */
/*
 * net: the way from an uploader to the server and back, and what can go wrong on it.
 *
 * Why:     requests that arrive late, twice or never, and answers that somebody else gave, are
 *          where "retry" and "final" are mixed up.
 * Promise: 1   server/http/ itself and the handlers judge and answer;
 *              net.c stands where libmicrohttpd and libcurl stand and copies bytes.
 *          2   a request is delivered at most once for each time that it was sent, but possibly
 *              after its sender has given it up; an answer may be lost after it was applied.
 * Limits:  one server at a time.
 * Threads: one (tests/sim/kernel.h).
 * Next:    mhd.c is the server's end, net.c the sender's.
 */
#pragma once

#include "tests/sim/kernel.h"

#define SIM_NODES_MAX 4

/* What the seed does to the way of one node, from now on. */
struct sim_way {
    bool cut;        /* nothing gets through: no answer until the time is over */
    bool foreign;    /* a proxy answers 404 with a page of its own */
    uint32_t lost;   /* per mille: applied, and the answer is lost */
    uint32_t late;   /* per mille: given up by the sender, delivered later */
    uint64_t us_max; /* one way */
};
extern struct sim_way sim_ways[SIM_NODES_MAX];

#define SIM_REPLY_HEADERS_MAX 24
struct sim_exchange {
    char method[16];
    char *target;
    char *headers[40], *values[40];
    size_t header_count;
    uint8_t *body;
    size_t body_bytes;
    /* the answer */
    bool done, broken;
    int status;
    char *reply_names[SIM_REPLY_HEADERS_MAX], *reply_values[SIM_REPLY_HEADERS_MAX];
    size_t reply_header_count;
    uint8_t *reply;
    size_t reply_bytes;
};
/* Hand it to the server that runs; false: nobody listens. The exchange is woken when it is done;
 * `broken`: the server died over it. It is never freed: its server may still be at it. */
bool sim_mhd_submit(struct sim_exchange *exchange);
/* The server was killed: what hung on it is broken. */
void sim_mhd_killed(const struct sim_process *process);
