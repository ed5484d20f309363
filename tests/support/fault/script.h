/* SPDX-License-Identifier: Apache-2.0 */
/*
 * script: the rules of tests/support/fault/fault.h, parsed and matched.
 *
 * Why:     reading text and acting on requests are two jobs; only fault.c uses this header.
 * Promise: 1  of tests/support/fault/fault.h: which request a rule hits depends on script, seed
 *          and the order of matching requests alone.
 * Limits:  keys' globs of 255 bytes.
 * Threads: rules are immutable after parsing but for their atomic counters.
 * Next:    tests/support/fault/fault.h for the language.
 */
#pragma once

#include <stdatomic.h>

#include "tests/support/fault/fault.h"

enum cairn_store_fault_action {
    CAIRN_STORE_FAULT_FAIL,
    CAIRN_STORE_FAULT_LOSE_REPLY,
    CAIRN_STORE_FAULT_DELAY,
    CAIRN_STORE_FAULT_HANG,
    CAIRN_STORE_FAULT_FLIP,
    CAIRN_STORE_FAULT_SHORT,
};
struct cairn_store_fault_rule {
    int op; /* enum cairn_store_op, or -1 for all */
    char glob[256];
    uint64_t first, last; /* counted from 1 */
    uint32_t percent;     /* 0: by count; else by chance */
    enum cairn_store_fault_action action;
    enum cairn_code code; /* FAIL */
    uint64_t argument;    /* ms, byte or bytes */
    _Atomic uint64_t matched, acted;
};
struct cairn_store_fault_script {
    struct cairn_store_fault_rule rules[CAIRN_STORE_FAULT_RULES_MAX];
    unsigned count;
};
enum cairn_code cairn_store_fault_script_parse(const char *text,
                                               struct cairn_store_fault_script *ret,
                                               struct cairn_error *err) CAIRN_MUST_USE;
/* The rule that acts on this request, or NULL; counts it. */
const struct cairn_store_fault_rule *
cairn_store_fault_rule_for(struct cairn_store_fault_script *script, uint64_t seed,
                           const struct cairn_store_request *request);
