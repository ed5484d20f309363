/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ask: requests to the ports of other nodes' uploaders.
 *
 * Why:     bytes that a node of the attempt has, or will read, need not come from the store again.
 * Promise: 1   each request ends once, by done() on this room's thread: whole, or with a code.
 *          2   a peer is avoided when it refuses the connection, is silent for
 *              CAIRN_UP_ASK_QUIET_MS, or takes longer for a body than that and a second for each
 *              CAIRN_UP_ASK_BYTES_PER_S. A working peer signs (102) and has CAIRN_UP_ASK_WHOLE_MS.
 *          3   an avoided peer is retried after a pause that doubles, after wrong bytes once
 *              CAIRN_UP_ASK_WRONG_MS are over; until then requests fail with CAIRN_UNAVAILABLE.
 *          4   a GET answered by 503 is retried after CAIRN_UP_ASK_TURN_MS, then twice as long each
 *              time, within CAIRN_UP_ASK_QUIET_MS; then it ends with CAIRN_BUSY. Such a peer is
 *              alive: it is avoided for CAIRN_UP_ASK_BUSY_MS, doubled at most three times while it
 *              serves nothing, and without retries.
 *          5   an address of a cloud's instance metadata is never connected to.
 * Limits:  CAIRN_UP_ASKS_MAX in flight, then CAIRN_BUSY. Failures of 256 peers are remembered.
 * Threads: one of its own; any thread adds. Locked by uploader_asks.
 * Next:    uploader/port/port.h for the other side.
 */
#pragma once

#include "api/wire/rights.h"
#include "common/http/http.h"
#include "common/lock.h"
#include "common/metrics.h"
#include "uploader/port/peers.h"

#define CAIRN_UP_ASK_QUIET_MS 1900 /* with a poll every 50 ms: below 2 s */
#define CAIRN_UP_ASK_BYTES_PER_S (8 * CAIRN_MIB)
#define CAIRN_UP_ASK_WHOLE_MS 30000
#define CAIRN_UP_ASK_AGAIN_MS 5000
#define CAIRN_UP_ASK_WRONG_MS 600000
#define CAIRN_UP_ASK_TURN_MS 100
#define CAIRN_UP_ASK_BUSY_MS 500
#define CAIRN_UP_ASKS_MAX 64

struct cairn_up_asks;
struct cairn_up_ask {
    /* set by the caller; stays until done() */
    struct cairn_up_member to;
    struct cairn_run_name run;
    uint64_t attempt;
    uint8_t key[CAIRN_PEER_KEY_BYTES];
    const char *method; /* GET: a range's bytes go into `into`; PUT: `body` is sent */
    char path[1024];
    uint64_t offset, bytes;
    void *into;
    struct cairn_view body;
    void (*begun)(struct cairn_up_ask *ask); /* once, when its body begins to arrive; may be NULL */
    void (*done)(struct cairn_up_ask *ask);
    void *owner;
    /* set before done() */
    enum cairn_code code; /* of a refused PUT: the meaning of the peer's status */
    struct cairn_error error;
    bool shared; /* the bytes served several readers (Cairn-Shared: 1) */
    /* used by ask.c */
    struct cairn_up_ask *next;
    struct cairn_up_asks *asks;
    struct cairn_http_request request;
    bool late, has_begun;
    struct cairn_peer_right right_shown;
    char nonce[CAIRN_PEER_NONCE_TEXT_BYTES], proof[CAIRN_PEER_ANSWER_TEXT_BYTES];
    uint64_t added_ms, body_since_ms; /* mono clock; 0: not yet */
    uint64_t turn_ms;                 /* mono clock of the retry; 0: in flight */
    uint32_t turns;                   /* answers of 503 so far */
    char url[1200], range[64], right[CAIRN_PEER_RIGHT_BYTES_MAX + 16], once[64];
    const char *headers[3];
};

/* metrics: borrowed; NULL: no metrics. */
enum cairn_code cairn_up_asks_new(const char *node, struct cairn_metrics *metrics,
                                  struct cairn_up_asks **ret,
                                  struct cairn_error *err) CAIRN_MUST_USE;
/* Ends requests in flight with CAIRN_CANCELLED and refuses new ones. NULL is allowed for both. */
void cairn_up_asks_stop(struct cairn_up_asks *asks);
void cairn_up_asks_free(struct cairn_up_asks *asks);
/* CAIRN_UNAVAILABLE: that peer is avoided now; CAIRN_BUSY: too many are in flight. */
enum cairn_code cairn_up_asks_add(struct cairn_up_asks *asks, struct cairn_up_ask *ask,
                                  struct cairn_error *err) CAIRN_MUST_USE;
bool cairn_up_asks_passes_by(struct cairn_up_asks *asks, const char *node);
/* Reports bytes of the node that failed their checksums. */
void cairn_up_asks_wrong(struct cairn_up_asks *asks, const char *node);
