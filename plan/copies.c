/* SPDX-License-Identifier: Apache-2.0 */
/* Items by their order, the newest first; see copies.h. */
#include "plan/copies.h"

#include <stdlib.h>

static int newest_first(const void *a, const void *b) {
    const struct cairn_plan_item *x = *(const struct cairn_plan_item *const *)a;
    const struct cairn_plan_item *y = *(const struct cairn_plan_item *const *)b;
    return cairn_plan_order(y, x);
}

enum cairn_code cairn_plan_copies(const struct cairn_policy_copies *rules,
                                  const struct cairn_plan_item *items, size_t count, bool *ret,
                                  struct cairn_error *err) {
    if (count > CAIRN_PLAN_ITEMS_MAX)
        return cairn_fail(err, CAIRN_TOO_LARGE, "%zu versions, at most %d", count,
                          CAIRN_PLAN_ITEMS_MAX);
    CAIRN_AUTO_HEAP const struct cairn_plan_item **order = calloc(count + 1, sizeof(*order));
    if (!order) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory to plan copies");
    size_t counted = 0;
    for (size_t i = 0; i < count; i++) {
        bool counts = !(items[i].marks & (CAIRN_PLAN_IN_FLIGHT | CAIRN_PLAN_SUPERSEDED));
        if (counts) order[counted++] = &items[i];
        ret[i] = counts && rules->every_steps && items[i].step % rules->every_steps == 0;
    }
    if (counted) qsort(order, counted, sizeof(*order), newest_first);
    for (size_t i = 0; i < counted && i < rules->last; i++) ret[order[i] - items] = true;
    return CAIRN_OK;
}
