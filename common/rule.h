/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rule: the protocol's rules as switches that only test builds have.
 *
 * Why:     a test shows that it sees a fault only where the fault is there; each rule of
 *          docs/protocol.md can be taken out of the running product without a patch.
 * Promise: 1   builds without CAIRN_CRASHPOINTS hold nothing of it: CAIRN_RULE is 1.
 *          2   a name that common/rules.def does not list does not compile, and one that
 *              CAIRN_WITHOUT or cairn_rule_take_out names wrongly is refused.
 *          3   CAIRN_WITHOUT="Q41,Q44" takes rules out for the life of the process.
 * Limits:  64 rules.
 * Threads: any; the variable is read at the first question.
 * Next:    common/rules.def; tests/sim plays with each rule taken out.
 */
#pragma once

#include "common/base.h"

enum cairn_rule {
#define RULE(name, what) CAIRN_RULE_##name,
#include "common/rules.def"
#undef RULE
    CAIRN_RULES
};

#ifdef CAIRN_CRASHPOINTS
/* True where the rule holds: write `if (CAIRN_RULE(Q41) && slab->owner != owner) refuse`. */
#define CAIRN_RULE(name) cairn_rule_holds(CAIRN_RULE_##name)
bool cairn_rule_holds(enum cairn_rule rule);
/* Names with commas between them; false where one is not in the table. NULL: the variable counts
 * again. */
bool cairn_rule_take_out(const char *names);
#else
#define CAIRN_RULE(name) 1
#endif
