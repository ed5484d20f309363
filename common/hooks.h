/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hooks: what only test builds have: named places where a process dies, stops, waits or fails, and
 * the protocol's rules as switches.
 *
 * Why:     what survives a death between two writes can only be tested by dying exactly there; and
 *          a test shows that it sees a fault only where the fault is there, so each rule of
 *          docs/protocol.md can be taken out of the running product without a patch.
 * Promise: 1   builds without CAIRN_CRASHPOINTS hold nothing of it: no call, no name, no variable,
 *              and CAIRN_RULE is 1.
 *          2   a point that common/crashpoints.def does not list aborts, in the code and in the
 *              variable, so that no sweep tests a point that is not there. A rule that
 *              common/rules.def does not list does not compile, and one that CAIRN_WITHOUT or
 *              cairn_rule_take_out names wrongly is refused.
 *          3   CAIRN_CRASH_AT="name[:nth][:kill|exit|stop|delay=MS|fail]" chooses one point: nth
 *              counts passes of it from 1 (0: every pass), 1 where left out, and kill is what is
 *              done where no action stands. exit ends with status 70.
 *          4   CAIRN_CRASH_LIST=FILE gets each passed name as a line of its own.
 *          5   CAIRN_WITHOUT="Q41,Q44" takes rules out for the life of the process.
 * Limits:  one point a process; passes are counted up to 2^32. 62 rules.
 * Threads: any; the variables are read at the first pass and the first question.
 * Next:    common/crashpoints.def, common/rules.def; tests/sim plays with each rule taken out.
 */
#pragma once

#include "common/base.h"

#ifdef CAIRN_CRASHPOINTS
#define CAIRN_CRASHPOINT(name) ((void)cairn_crashpoint_pass(name))
/* True where this pass must fail as if the operation behind it had failed (action `fail`). */
#define cairn_crashpoint_fails(name) cairn_crashpoint_pass(name)
bool cairn_crashpoint_pass(const char *name);
/* For tests: choose anew from text instead of CAIRN_CRASH_AT, "" for nothing; NULL goes back to the
 * variable, read at the next pass. Counting restarts. */
void cairn_crashpoint_arm(const char *text);
#else
#define CAIRN_CRASHPOINT(name) ((void)0)
#define cairn_crashpoint_fails(name) false
#endif

/* ---- rules ---- */

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
