/* SPDX-License-Identifier: Apache-2.0 */
/* Token buckets in sets of WAYS; levels are thousandths of a request, so that a rate of R a second
 * is R a millisecond. See rates.h. */
#include "server/access/rates.h"

#include <stdlib.h>
#include <string.h>

#include "common/hash/hash.h"
#include "common/process.h"

#define WAYS 8
#define SETS (CAIRN_SRV_RATES_MAX / WAYS)
#define ONE 1000 /* request */

struct bucket {
    uint64_t caller; /* 0: nobody's */
    uint64_t level, at_ms;
};
struct cairn_srv_rates {
    uint64_t per_second, full;
    uint8_t seed[16];
    struct cairn_lock lock;
    struct {
        struct bucket buckets[SETS][WAYS];
    } locked;
};

enum cairn_code cairn_srv_rates_new(const struct cairn_srv_rates_options *options,
                                    struct cairn_srv_rates **ret, struct cairn_error *err) {
    CAIRN_ASSERT(options->per_second > 0);
    CAIRN_ASSERT(options->burst > 0);
    struct cairn_srv_rates *rates = calloc(1, sizeof(*rates));
    if (!rates) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for rates of callers");
    rates->per_second = options->per_second;
    rates->full = options->burst * ONE;
    options->random(rates->seed, sizeof(rates->seed));
    cairn_lock_init(&rates->lock, CAIRN_LOCK_server_rates);
    *ret = rates;
    return CAIRN_OK;
}

void cairn_srv_rates_free(struct cairn_srv_rates *rates) {
    if (!rates) return;
    cairn_lock_release(&rates->lock);
    free(rates);
}

uint64_t cairn_srv_rates_per_second(const struct cairn_srv_rates *rates) {
    return rates->per_second;
}

static uint64_t number_of(const struct cairn_srv_rates *rates, const char *caller) {
    uint8_t digest[32];
    uint64_t number = 0;
    char text[16 + 256] = "";
    size_t size = strnlen(caller, sizeof(text) - sizeof(rates->seed));
    memcpy(text, rates->seed, sizeof(rates->seed));
    memcpy(text + sizeof(rates->seed), caller, size);
    cairn_sha256_of((struct cairn_view){text, sizeof(rates->seed) + size}, digest);
    memcpy(&number, digest, sizeof(number));
    return number ? number : 1;
}

/* The caller's own, or the one of its set that nobody has asked for longest. */
static struct bucket *find(struct cairn_srv_rates *rates, uint64_t number, uint64_t now_ms) {
    struct bucket *set = rates->locked.buckets[number % SETS], *oldest = &set[0];
    for (size_t i = 0; i < WAYS; i++) {
        if (set[i].caller == number) return &set[i];
        if (oldest->caller && (!set[i].caller || set[i].at_ms < oldest->at_ms)) oldest = &set[i];
    }
    *oldest = (struct bucket){.caller = number, .level = rates->full, .at_ms = now_ms};
    return oldest;
}

bool cairn_srv_rates_take(struct cairn_srv_rates *rates, const char *caller, uint64_t now_ms,
                          uint64_t *ret_wait_ms) {
    uint64_t number = number_of(rates, caller);
    CAIRN_HOLD(&rates->lock);
    struct bucket *own = find(rates, number, now_ms);
    uint64_t passed_ms = now_ms > own->at_ms ? now_ms - own->at_ms : 0;
    uint64_t missing = rates->full - own->level;
    bool refilled = passed_ms > missing / rates->per_second; /* and so no product overflows */
    own->level = refilled ? rates->full : own->level + passed_ms * rates->per_second;
    own->at_ms = cairn_max_u64(own->at_ms, now_ms);
    CAIRN_ASSERT(own->level <= rates->full);
    *ret_wait_ms = 0;
    if (own->level >= ONE) {
        own->level -= ONE;
        return true;
    }
    *ret_wait_ms = (ONE - own->level + rates->per_second - 1) / rates->per_second;
    return false;
}
