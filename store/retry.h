/* SPDX-License-Identifier: Apache-2.0 */
/*
 * retry: decides when a request is sent, retried or given up; one object per endpoint.
 *
 * Why:     a 60 s outage must not fail a save, and a storm of retries must not prolong the outage.
 * Promise: 1   at a healthy endpoint a request is sent at most tries_max times. Slow-downs do not
 *              count (while a store splits a prefix, one request in thousands gets five in a row),
 *              nor tries without a connection while kept connections work (a name server is down);
 *              put_offs_max bounds their sum. Retries are at most extra_percent of the first sends
 *              plus one a second, so an empty budget never blocks the last requests of a save.
 *          2   an endpoint that gave only slow-downs and failures for pause_after_ms (at least
 *              three) is paused: one request at a time is sent as a probe, every probe_ms_min to
 *              probe_ms_max; all others wait. Failures in a pause or just before it do not count as
 *              tries. The first good answer ends the pause.
 *          3   delays have full jitter and are never shorter than Retry-After.
 *          4   when an eighth of the answers (and more than one) are slow-downs, the number of
 *              requests under way is halved, at most once a second; it is full after recover_ms.
 * Limits:  deadlines are the caller's: a ticket waits for ever unless dropped.
 * Threads: none of its own: the caller's lock. No I/O, allocation or sleep; time from clock, chance
 *          from seed.
 * Next:    store/s3/s3.c; tests/store/test_retry.c.
 */
#pragma once

#include "common/clock.h"

/* Zero selects the default in the field's comment. */
struct cairn_retry_options {
    const struct cairn_clock *clock;
    uint64_t seed;               /* any; a different one for each endpoint */
    uint32_t tries_max;          /* 5 */
    uint32_t put_offs_max;       /* 20: with their delays about 90 s */
    uint32_t concurrency_max;    /* 64 requests under way at once */
    uint32_t extra_percent;      /* 10 */
    uint64_t delay_ms_min;       /* 100: bound of the first delay; doubles with each try */
    uint64_t delay_ms_max;       /* 10 s */
    uint64_t retry_after_ms_max; /* 60 s: a longer Retry-After is cut to this */
    uint64_t pause_after_ms;     /* 2 s */
    uint64_t probe_ms_min;       /* 1 s */
    uint64_t probe_ms_max;       /* 5 s */
    uint64_t recover_ms;         /* 20 s: below the promised 30 s */
};

enum cairn_retry_outcome {
    CAIRN_RETRY_GOOD,      /* any answer that shows a working endpoint: 2xx, 404, 403, 412, ... */
    CAIRN_RETRY_SLOW_DOWN, /* 503, 429 */
    CAIRN_RETRY_FAILURE,   /* other 5xx, time-out, cut connection, a broken answer */
    CAIRN_RETRY_UNREACHED, /* no connection was made: no name, refused, no route */
    CAIRN_RETRY_OUTCOMES
};
/* Cause of a retry: "corrected" (region, clock, body), "slow-down", "failure", "unreached". */
const char *cairn_retry_cause_text(enum cairn_retry_outcome outcome);
enum cairn_retry_answer {
    CAIRN_RETRY_SEND, /* send now; the ticket counts as under way until _result or _drop */
    CAIRN_RETRY_WAIT, /* call again after ret_wait_ms, or when another request ends */
};
enum cairn_retry_decision {
    CAIRN_RETRY_DONE,
    CAIRN_RETRY_AGAIN,   /* call _admit with the same ticket, which gives the delay */
    CAIRN_RETRY_GIVE_UP, /* all tries are used up, at an endpoint that works for others */
};

/* One request over all its tries. A zeroed ticket is a new request. */
struct cairn_retry_ticket {
    uint32_t tries_sent;    /* all, for the log */
    uint32_t tries_counted; /* tries at a healthy endpoint, without put_offs */
    uint32_t put_offs;      /* slow-downs and tries without a connection, at a healthy endpoint */
    uint64_t not_before_ms; /* mono clock */
    uint64_t good_seen;     /* private: good answers of the endpoint before the last failure */
    uint64_t pauses_seen;   /* private */
    uint32_t retried[CAIRN_RETRY_OUTCOMES]; /* retries, by cause */
    enum cairn_retry_outcome last;
    bool under_way, probe;
};

struct cairn_retry {
    struct cairn_retry_options options;
    uint64_t random;
    uint32_t under_way;
    /* Health. failing_since_ms is valid while failing. */
    bool failing, paused, probe_under_way;
    uint64_t failing_since_ms, next_probe_ms;
    uint32_t probes_failed, failing_results;
    uint64_t pauses, good_answers;
    uint64_t slow_since_cut,
        good_since_cut; /* slow-downs and good answers since the last halving */
    /* Window of concurrency: cut_to at cut_ms, then climbing. */
    uint32_t cut_to;
    uint64_t cut_ms;
    /* Budget of repeats, in hundredths of a request. */
    uint64_t budget, budget_ms;
};

void cairn_retry_init(struct cairn_retry *retry, const struct cairn_retry_options *options);
/* Whether this ticket's request may be sent now. ret_wait_ms (1 or more) is set for WAIT only. */
enum cairn_retry_answer cairn_retry_admit(struct cairn_retry *retry,
                                          struct cairn_retry_ticket *ticket, uint64_t *ret_wait_ms);
/* The outcome of a send. retry_after_ms: the endpoint's Retry-After, or 0. */
enum cairn_retry_decision cairn_retry_result(struct cairn_retry *retry,
                                             struct cairn_retry_ticket *ticket,
                                             enum cairn_retry_outcome outcome,
                                             uint64_t retry_after_ms);
/* The request was cancelled or its deadline passed; says nothing about the endpoint. */
void cairn_retry_drop(struct cairn_retry *retry, struct cairn_retry_ticket *ticket);

bool cairn_retry_paused(const struct cairn_retry *retry);
/* Bound of requests under way at once: 1 while paused. */
uint32_t cairn_retry_concurrency(const struct cairn_retry *retry);
/* Delay before the try after `tries` failures: uniform from 0 to a bound that doubles. */
uint64_t cairn_retry_delay_ms(struct cairn_retry *retry, uint32_t tries);
