/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rates: how many requests a second a caller may make.
 *
 * Why:     a script that asks in a loop must not take the server from all others.
 * Promise: 1   a caller that asks more often than its rate, after a burst, is refused and told when
 *              to come again; what it is refused costs it nothing.
 *          2   callers do not share: what one asks leaves the others' rates as they are.
 * Limits:  CAIRN_SRV_RATES_MAX callers in memory, of fixed size; where there are more, the one that
 *          has asked for nothing for longest is forgotten, and begins anew with a whole burst. Each
 *          server counts for itself.
 * Threads: any; locked by server_rates.
 * Next:    server/http/request.h for what counts, and for whom.
 */
#pragma once

#include "common/error.h"

#define CAIRN_SRV_RATES_MAX 4096
#define CAIRN_SRV_RATES_PER_SECOND_MAX 1000000

struct cairn_srv_rates;
struct cairn_srv_rates_options {
    uint64_t per_second, burst;                  /* each 1 to CAIRN_SRV_RATES_PER_SECOND_MAX */
    void (*random)(void *ret_data, size_t size); /* callers cannot choose whose place they take */
};
enum cairn_code cairn_srv_rates_new(const struct cairn_srv_rates_options *options,
                                    struct cairn_srv_rates **ret,
                                    struct cairn_error *err) CAIRN_MUST_USE;
void cairn_srv_rates_free(struct cairn_srv_rates *rates); /* NULL is fine */
/* One request at that time of the mono clock. False: not before *ret_wait_ms have passed. */
bool cairn_srv_rates_take(struct cairn_srv_rates *rates, const char *caller, uint64_t now_ms,
                          uint64_t *ret_wait_ms) CAIRN_MUST_USE;
uint64_t cairn_srv_rates_per_second(const struct cairn_srv_rates *rates);
