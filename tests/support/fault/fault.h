/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fault: a store around any store that fails on request.
 *
 * Why:     lost replies, slow stores and flipped bytes come once a month in the field and must come
 *          a thousand times a minute in tests, against the real code above the store.
 * Promise: 1   without a matching rule a request passes unchanged.
 *          2   the same script, seed and order of requests give the same faults.
 *          3   "fail" happens before anything is applied; "lose_reply" after the wrapped store has
 *              answered, and the caller sees an unknown outcome (`ambiguous`).
 * Limits:  CAIRN_STORE_FAULT_RULES_MAX rules; the first one that matches a request acts.
 * Threads: as store/store.h; the rules' counters are atomic and shared by all workers.
 * Next:    tests/store/test_fault.c; store/README.md.
 *
 * Script: rules, separated by ';', of four fields, separated by ':' (blanks around are ignored):
 *     op : key glob : which : action
 *   op      a word of store/ops.def, or *
 *   glob    as the shell's, '*' also matches '/'
 *   which   *  every one | 3  the third that matches | 3+  from the third | 2-5 | 10%  by chance
 *   action  the slug of a code (busy, unavailable, timeout, no_space, forbidden, not_found, ...):
 *                        fails so, nothing is applied
 *           lose_reply   applied, then answered as an unknown outcome
 *           delay@MS     waits before it is passed on
 *           hang         is never passed on; ends by cancel or at its deadline
 *           flip@BYTE    a get succeeds with one bit of that byte (of the range) inverted
 *           short@BYTES  a get succeeds with its last BYTES zeroed; a head tells that much less
 *   With log_level=debug each delay and each hang is a line, fault.delays and fault.hangs.
 *   Example: "complete:*:1:lose_reply; part:*rank-0*:2:busy; get:*:3+:flip@100"
 */
#pragma once

#include "common/clock.h"
#include "store/store.h"

#define CAIRN_STORE_FAULT_RULES_MAX 32

struct cairn_store_fault_options {
    const char *script;
    uint64_t seed;
};
/* Takes the store also on failure. A bad script is CAIRN_INVALID and says which rule. */
enum cairn_code cairn_store_fault_wrap(struct cairn_store *take_store,
                                       const struct cairn_store_fault_options *options,
                                       struct cairn_store **ret,
                                       struct cairn_error *err) CAIRN_MUST_USE;
/* How often the rule of that index has acted. */
uint64_t cairn_store_fault_count(const struct cairn_store *store, unsigned rule_index);
