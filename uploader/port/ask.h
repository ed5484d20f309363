/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ask: requests to the ports of other nodes' uploaders.
 *
 * Why:     what another node of the attempt has, or is about to read, need not come from the store
 *          again.
 * Promise: 1   each ask ends once, by done() on the thread of this room: whole, or with a code.
 *          2   a peer that takes no connection, or says nothing for CAIRN_UP_ASK_QUIET_MS, is
 *              passed by; so is one whose body takes longer than that and a second for each
 *              CAIRN_UP_ASK_BYTES_PER_S. One that is at work says so (102) and has
 *              CAIRN_UP_ASK_WHOLE_MS.
 *          3   who was passed by is asked again after a pause that doubles, who sent wrong bytes
 *              after CAIRN_UP_ASK_WRONG_MS; meanwhile an ask ends at once with CAIRN_UNAVAILABLE.
 *          4   a GET that is answered 503 is sent again, after CAIRN_UP_ASK_TURN_MS and then twice
 *              as long each time, but not later than CAIRN_UP_ASK_QUIET_MS; then it ends with
 *              CAIRN_BUSY. That peer is there: it is passed by for CAIRN_UP_ASK_BUSY_MS, doubled
 *              three times at most while it gives nothing, and then nothing is sent again.
 *          5   an address of a cloud's instance metadata is never connected to.
 * Limits:  CAIRN_UP_ASKS_MAX under way; who adds more is told CAIRN_BUSY. 256 peers' failures are
 *          remembered.
 * Threads: one of its own; any may add. Locked by uploader_asks.
 * Next:    uploader/port/port.h for the other side.
 */
#pragma once

#include "api/wire/rights.h"
#include "common/http/http.h"
#include "common/lock.h"
#include "common/metrics.h"
#include "uploader/port/peers.h"

#define CAIRN_UP_ASK_QUIET_MS 1900 /* and the look every 50 ms: within 2 s */
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
    const char *method; /* GET: bytes of a range into `into`; PUT: `body` goes there */
    char path[1024];
    uint64_t offset, bytes;
    void *into;
    struct cairn_view body;
    void (*begun)(struct cairn_up_ask *ask); /* once: its body begins to come; NULL is fine */
    void (*done)(struct cairn_up_ask *ask);
    void *owner;
    /* set before done() */
    enum cairn_code code; /* of a PUT: what the peer's status means where it refuses */
    struct cairn_error error;
    bool shared; /* the peer had it for others, too (Cairn-Shared: 1) */
    /* of ask.c */
    struct cairn_up_ask *next;
    struct cairn_up_asks *asks;
    struct cairn_http_request request;
    bool late, has_begun;
    struct cairn_peer_right right_shown;
    char nonce[CAIRN_PEER_NONCE_TEXT_BYTES], proof[CAIRN_PEER_ANSWER_TEXT_BYTES];
    uint64_t added_ms, body_since_ms; /* mono clock; 0: none yet */
    uint64_t turn_ms;                 /* mono clock: sent again then; 0: it is under way */
    uint32_t turns;                   /* how often it was answered 503 */
    char url[1200], range[64], right[CAIRN_PEER_RIGHT_BYTES_MAX + 16], once[64];
    const char *headers[3];
};

/* metrics: borrowed; NULL: nothing is counted. */
enum cairn_code cairn_up_asks_new(const char *node, struct cairn_metrics *metrics,
                                  struct cairn_up_asks **ret,
                                  struct cairn_error *err) CAIRN_MUST_USE;
/* Those under way end with CAIRN_CANCELLED; none is taken any more. NULL is fine for both. */
void cairn_up_asks_stop(struct cairn_up_asks *asks);
void cairn_up_asks_free(struct cairn_up_asks *asks);
/* CAIRN_UNAVAILABLE: that peer was passed by a moment ago; CAIRN_BUSY: too many are under way. */
enum cairn_code cairn_up_asks_add(struct cairn_up_asks *asks, struct cairn_up_ask *ask,
                                  struct cairn_error *err) CAIRN_MUST_USE;
bool cairn_up_asks_passes_by(struct cairn_up_asks *asks, const char *node);
/* Reports bytes of that node that did not match their checksums. */
void cairn_up_asks_wrong(struct cairn_up_asks *asks, const char *node);
