/* SPDX-License-Identifier: Apache-2.0 */
/* Pure arithmetic; see the header for the rule. */
#include "store/s3/hedge.h"

#include <stdlib.h>

#define SECOND_US UINT64_C(1000000)
#define LIMIT_MAX_US (5 * SECOND_US)
/* So many parts before their share of repeats means anything. */
#define SHARE_PARTS_MIN 1000

static int by_size(const void *left, const void *right) {
    const uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return (a > b) - (a < b);
}

static void note_first(struct cairn_s3_hedge *hedge, uint64_t waited_us) {
    hedge->first_us[hedge->answers++] = waited_us;
    if (hedge->answers < CAIRN_S3_HEDGE_FIRST) return;
    uint64_t sorted[CAIRN_S3_HEDGE_FIRST], sum = 0;
    memcpy(sorted, hedge->first_us, sizeof sorted);
    qsort(sorted, CAIRN_S3_HEDGE_FIRST, sizeof sorted[0], by_size);
    for (size_t i = 0; i < CAIRN_S3_HEDGE_FIRST; i++) sum += sorted[i];
    hedge->mean_us = sum / CAIRN_S3_HEDGE_FIRST;
    hedge->margin_us = 7 * SECOND_US / 10;
    hedge->limit_first_us = cairn_max_u64(sorted[CAIRN_S3_HEDGE_FIRST * 9 / 10 - 1], SECOND_US);
}

void cairn_s3_hedge_answer(struct cairn_s3_hedge *hedge, uint64_t waited_us) {
    if (hedge->answers < CAIRN_S3_HEDGE_FIRST) {
        note_first(hedge, waited_us);
        return;
    }
    hedge->parts++;
    hedge->mean_us = (99 * hedge->mean_us + waited_us) / 100;
}

void cairn_s3_hedge_resent(struct cairn_s3_hedge *hedge) {
    hedge->parts++;
    hedge->resent++;
    uint64_t more = 0;
    if (hedge->resent * 100 > cairn_max_u64(hedge->parts, SHARE_PARTS_MIN))
        more = SECOND_US;
    else if (hedge->parts >= SHARE_PARTS_MIN && hedge->resent * 1000 > hedge->parts)
        more = SECOND_US / 10;
    if (!more) return;
    hedge->margin_us += more;
    hedge->parts = hedge->resent = 0;
    hedge->stopped = cairn_s3_hedge_limit_us(hedge) >= LIMIT_MAX_US;
}

uint64_t cairn_s3_hedge_limit_us(const struct cairn_s3_hedge *hedge) {
    if (hedge->stopped || hedge->answers < CAIRN_S3_HEDGE_FIRST) return UINT64_MAX;
    uint64_t usual = hedge->mean_us + hedge->margin_us;
    /* The first rule holds until the mean rests on more than its first values. */
    return hedge->parts < CAIRN_S3_HEDGE_FIRST && !hedge->resent
               ? cairn_max_u64(usual, hedge->limit_first_us)
               : usual;
}
