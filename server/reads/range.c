/* SPDX-License-Identifier: Apache-2.0 */
/* The one byte range that a request may name; see range.h. */
#include "server/reads/range.h"

#include <inttypes.h>
#include <strings.h>

/* Digits at *at; values beyond 2^64 stay at 2^64-1. False when there are none. */
static bool digits(const char **at, uint64_t *ret) {
    uint64_t value = 0;
    const char *from = *at;
    for (; **at >= '0' && **at <= '9'; (*at)++) {
        uint64_t digit = (uint64_t)(**at - '0');
        if (cairn_mul_overflows(value, UINT64_C(10), &value) ||
            cairn_add_overflows(value, digit, &value)) {
            while (**at >= '0' && **at <= '9') (*at)++;
            *ret = UINT64_MAX;
            return true;
        }
    }
    *ret = value;
    return *at > from;
}

enum cairn_code cairn_srv_range_parse(const char *text, uint64_t size, uint64_t *ret_begin,
                                      uint64_t *ret_end, struct cairn_error *err) {
    static const char unit[] = "bytes=";
    const char *at = text + sizeof(unit) - 1;
    if (strncasecmp(text, unit, sizeof(unit) - 1))
        return cairn_fail(err, CAIRN_RANGE, "Range must be bytes=FIRST-LAST");
    uint64_t first = 0, last = 0;
    bool has_first = digits(&at, &first);
    if (*at++ != '-') return cairn_fail(err, CAIRN_RANGE, "Range must be bytes=FIRST-LAST");
    bool has_last = digits(&at, &last);
    if (*at || (!has_first && !has_last))
        return cairn_fail(err, CAIRN_RANGE, "Range must be bytes=FIRST-LAST");
    if (!has_first) {
        if (!last || !size)
            return cairn_fail(err, CAIRN_RANGE, "the last 0 bytes cannot be served");
        *ret_begin = last < size ? size - last : 0;
        *ret_end = size;
        return CAIRN_OK;
    }
    if (first >= size || (has_last && last < first))
        return cairn_fail(err, CAIRN_RANGE, "the object has %" PRIu64 " bytes", size);
    *ret_begin = first;
    *ret_end = has_last && last < size ? last + 1 : size;
    return CAIRN_OK;
}
