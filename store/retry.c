/* SPDX-License-Identifier: Apache-2.0 */
/* All state changes happen in _admit and _result. */
#include "store/retry.h"

#define BUDGET_UNIT 100 /* one request */
#define BUDGET_MAX (20 * BUDGET_UNIT)
#define BUDGET_START (10 * BUDGET_UNIT)
/* One flight of requests gets many 503 at once: they count as one sign. */
#define CUT_EVERY_MS 1000
#define CROWDED_PART 8 /* an eighth of the answers are slow-downs: halve */
/* Fewer bad answers say nothing about the endpoint, however far apart they are. */
#define PAUSE_RESULTS_MIN 3
/* After a pause the endpoint gets a quarter of the full number. */
#define AFTER_PAUSE_PART 4

static uint64_t now_ms(const struct cairn_retry *retry) {
    return retry->options.clock->mono_ms(retry->options.clock);
}

static uint64_t draw_between(struct cairn_retry *retry, uint64_t low, uint64_t high) {
    /* splitmix64 */
    uint64_t z = (retry->random += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return low + (z ^ (z >> 31)) % (high - low + 1);
}

static void default_u32(uint32_t *value, uint32_t standard) {
    if (!*value) *value = standard;
}
static void default_u64(uint64_t *value, uint64_t standard) {
    if (!*value) *value = standard;
}

void cairn_retry_init(struct cairn_retry *retry, const struct cairn_retry_options *options) {
    *retry = (struct cairn_retry){.options = *options, .random = options->seed};
    struct cairn_retry_options *o = &retry->options;
    if (!o->clock) o->clock = &cairn_clock_real;
    default_u32(&o->tries_max, 5);
    default_u32(&o->put_offs_max, 20);
    default_u32(&o->concurrency_max, 64);
    default_u32(&o->extra_percent, 10);
    default_u64(&o->delay_ms_min, 100);
    default_u64(&o->delay_ms_max, 10 * 1000);
    default_u64(&o->retry_after_ms_max, 60 * 1000);
    default_u64(&o->pause_after_ms, 2000);
    default_u64(&o->probe_ms_min, 1000);
    default_u64(&o->probe_ms_max, 5000);
    default_u64(&o->recover_ms, 20 * 1000);
    CAIRN_ASSERT(o->probe_ms_min <= o->probe_ms_max);
    retry->cut_to = o->concurrency_max;
    retry->budget = BUDGET_START;
    retry->budget_ms = now_ms(retry);
}

bool cairn_retry_paused(const struct cairn_retry *retry) {
    return retry->paused;
}

uint32_t cairn_retry_concurrency(const struct cairn_retry *retry) {
    uint32_t full = retry->options.concurrency_max;
    if (retry->paused) return 1;
    if (retry->cut_to >= full) return full;
    uint64_t passed = now_ms(retry) - retry->cut_ms;
    if (passed >= retry->options.recover_ms) return full;
    uint64_t climbed = (uint64_t)(full - retry->cut_to) * passed / retry->options.recover_ms;
    return retry->cut_to + (uint32_t)climbed;
}

uint64_t cairn_retry_delay_ms(struct cairn_retry *retry, uint32_t tries) {
    uint64_t bound = retry->options.delay_ms_max;
    if (tries > 0 && tries <= 20)
        bound = cairn_min_u64(bound, retry->options.delay_ms_min << (tries - 1));
    return draw_between(retry, 0, bound);
}

/* Failures before or in a pause say nothing about the request, so they are not counted. */
static void forgive_before_pause(const struct cairn_retry *retry,
                                 struct cairn_retry_ticket *ticket) {
    if (ticket->pauses_seen == retry->pauses) return;
    ticket->pauses_seen = retry->pauses;
    ticket->tries_counted = ticket->put_offs = 0;
}

static void budget_grow(struct cairn_retry *retry, uint64_t now) {
    uint64_t grown = (now - retry->budget_ms) * BUDGET_UNIT / 1000;
    if (retry->paused) retry->budget_ms = now; /* probes use up the extra requests of that time */
    if (!grown || retry->paused) return;       /* keep the fraction of a second */
    retry->budget = cairn_min_u64(BUDGET_MAX, retry->budget + grown);
    retry->budget_ms = now;
}

static enum cairn_retry_answer wait_for(uint64_t ms, uint64_t *ret_wait_ms) {
    *ret_wait_ms = ms ? ms : 1;
    return CAIRN_RETRY_WAIT;
}

static enum cairn_retry_answer send_now(struct cairn_retry *retry,
                                        struct cairn_retry_ticket *ticket) {
    if (ticket->tries_sent == 0) ticket->pauses_seen = retry->pauses;
    if (ticket->tries_sent++) ticket->retried[ticket->last]++;
    ticket->under_way = true;
    retry->under_way++;
    return CAIRN_RETRY_SEND;
}

enum cairn_retry_answer cairn_retry_admit(struct cairn_retry *retry,
                                          struct cairn_retry_ticket *ticket,
                                          uint64_t *ret_wait_ms) {
    CAIRN_ASSERT(!ticket->under_way);
    uint64_t now = now_ms(retry);
    budget_grow(retry, now);
    if (now < ticket->not_before_ms) return wait_for(ticket->not_before_ms - now, ret_wait_ms);
    if (retry->paused) {
        if (retry->probe_under_way) return wait_for(retry->options.probe_ms_min, ret_wait_ms);
        if (now < retry->next_probe_ms) return wait_for(retry->next_probe_ms - now, ret_wait_ms);
        retry->probe_under_way = true;
        ticket->probe = true;
        return send_now(retry, ticket);
    }
    if (retry->under_way >= cairn_retry_concurrency(retry))
        return wait_for(retry->options.delay_ms_min, ret_wait_ms);
    if (ticket->tries_sent == 0) {
        retry->budget = cairn_min_u64(BUDGET_MAX, retry->budget + retry->options.extra_percent);
        return send_now(retry, ticket);
    }
    forgive_before_pause(retry, ticket);
    if (ticket->tries_counted + ticket->put_offs == 0) return send_now(retry, ticket);
    if (retry->budget < BUDGET_UNIT)
        return wait_for((BUDGET_UNIT - retry->budget) * 1000 / BUDGET_UNIT, ret_wait_ms);
    retry->budget -= BUDGET_UNIT;
    return send_now(retry, ticket);
}

/* A store that refuses one request in twenty is not crowded: halving for each would leave two
 * connections of 32 and a save that takes fifteen times as long (docs/bench.md, throttled). */
static bool is_crowded(const struct cairn_retry *retry) {
    return retry->slow_since_cut > 1 &&
           retry->slow_since_cut * CROWDED_PART >= retry->slow_since_cut + retry->good_since_cut;
}

static void window_cut(struct cairn_retry *retry, uint32_t to, uint64_t now) {
    retry->cut_to = to ? to : 1;
    retry->slow_since_cut = retry->good_since_cut = 0;
    retry->cut_ms = now;
}

static void note_good(struct cairn_retry *retry, uint64_t now) {
    retry->good_answers++;
    retry->good_since_cut++;
    retry->failing = false;
    retry->probes_failed = 0;
    if (!retry->paused) return;
    retry->paused = false;
    window_cut(retry, retry->options.concurrency_max / AFTER_PAUSE_PART, now);
}

static void schedule_probe(struct cairn_retry *retry, uint64_t now) {
    const struct cairn_retry_options *o = &retry->options;
    uint32_t doublings = retry->probes_failed < 16 ? retry->probes_failed : 16;
    uint64_t longest = cairn_min_u64(o->probe_ms_max, o->probe_ms_min << doublings);
    retry->next_probe_ms = now + draw_between(retry, o->probe_ms_min, longest);
}

static void note_bad(struct cairn_retry *retry, enum cairn_retry_outcome outcome, bool probe,
                     uint64_t now) {
    if (!retry->failing) {
        retry->failing = true;
        retry->failing_since_ms = now;
        retry->failing_results = 0;
    }
    retry->failing_results++;
    if (outcome == CAIRN_RETRY_SLOW_DOWN) retry->slow_since_cut++;
    if (outcome == CAIRN_RETRY_SLOW_DOWN && !retry->paused && is_crowded(retry) &&
        (retry->cut_ms == 0 || now - retry->cut_ms >= CUT_EVERY_MS))
        window_cut(retry, cairn_retry_concurrency(retry) / 2, now);
    if (retry->paused) {
        if (!probe) return;
        retry->probes_failed++;
        schedule_probe(retry, now);
    } else if (now - retry->failing_since_ms >= retry->options.pause_after_ms &&
               retry->failing_results >= PAUSE_RESULTS_MIN) {
        retry->paused = true;
        retry->pauses++;
        schedule_probe(retry, now);
    }
}

/* True if the endpoint answered well since this request's last failure: the fault is the request's
 * own. Otherwise the endpoint is about to be paused, and nothing counts. Good answers since the
 * first failure prove nothing: at the start of an outage requests on the wire still end well, and
 * five tries fit into the time before the pause. */
static bool works_for_others(const struct cairn_retry *retry,
                             const struct cairn_retry_ticket *ticket) {
    return retry->good_answers != ticket->good_seen;
}

static void ticket_ended(struct cairn_retry *retry, struct cairn_retry_ticket *ticket) {
    CAIRN_ASSERT(ticket->under_way);
    CAIRN_ASSERT(retry->under_way > 0);
    ticket->under_way = false;
    retry->under_way--;
    if (ticket->probe) retry->probe_under_way = false;
}

const char *cairn_retry_cause_text(enum cairn_retry_outcome outcome) {
    static const char *const texts[] = {[CAIRN_RETRY_GOOD] = "corrected",
                                        [CAIRN_RETRY_SLOW_DOWN] = "slow-down",
                                        [CAIRN_RETRY_FAILURE] = "failure",
                                        [CAIRN_RETRY_UNREACHED] = "unreached"};
    return texts[outcome];
}

enum cairn_retry_decision cairn_retry_result(struct cairn_retry *retry,
                                             struct cairn_retry_ticket *ticket,
                                             enum cairn_retry_outcome outcome,
                                             uint64_t retry_after_ms) {
    uint64_t now = now_ms(retry);
    ticket_ended(retry, ticket);
    ticket->last = outcome;
    if (outcome == CAIRN_RETRY_GOOD) {
        note_good(retry, now);
        ticket->probe = false;
        return CAIRN_RETRY_DONE;
    }
    note_bad(retry, outcome, ticket->probe, now);
    forgive_before_pause(retry, ticket);
    if (!retry->paused && outcome != CAIRN_RETRY_FAILURE) ticket->put_offs++;
    if (!retry->paused && outcome == CAIRN_RETRY_FAILURE) ticket->tries_counted++;
    uint32_t tries = ticket->tries_counted + ticket->put_offs;
    uint64_t delay = cairn_retry_delay_ms(retry, tries ? tries : 1);
    /* A failed probe steps back for another request: it may be the only one that fails. */
    if (ticket->probe) delay = retry->next_probe_ms - now + retry->options.probe_ms_min / 2;
    uint64_t asked = cairn_min_u64(retry_after_ms, retry->options.retry_after_ms_max);
    ticket->not_before_ms = now + cairn_max_u64(delay, asked);
    ticket->probe = false;
    bool used_up = ticket->tries_counted >= retry->options.tries_max ||
                   ticket->put_offs >= retry->options.put_offs_max;
    bool gives_up = used_up && works_for_others(retry, ticket);
    ticket->good_seen = retry->good_answers;
    return gives_up ? CAIRN_RETRY_GIVE_UP : CAIRN_RETRY_AGAIN;
}

void cairn_retry_drop(struct cairn_retry *retry, struct cairn_retry_ticket *ticket) {
    if (!ticket->under_way) return;
    ticket_ended(retry, ticket);
    ticket->probe = false;
}
