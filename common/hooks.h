/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hooks: code of test builds only: named points where a process dies, stops, waits or fails, and
 * the protocol's rules as switches.
 *
 * Why:     what survives a death between two writes can only be tested by dying exactly there; and
 *          a test must be shown to fail when a rule of docs/protocol.md is missing, so each rule
 *          can be taken out of the running product without a patch.
 * Promise: 1   builds without CAIRN_CRASHPOINTS contain no call, name or variable of this file, and
 *              CAIRN_RULE is 1.
 *          2   a point that common/crashpoints.def does not list aborts, in the code and in the
 *              variable. A rule that common/rules.def does not list does not compile; CAIRN_WITHOUT
 *              and cairn_rule_take_out refuse it.
 *          3   CAIRN_CRASH_AT="name[:nth][:kill|exit|stop|delay=MS|until=FILE|fail]" chooses one
 *              point: nth counts passes from 1 (0: every pass; default 1); the default action is
 *              kill. exit ends with status 70; until waits for FILE to exist.
 *          4   CAIRN_CRASH_LIST=FILE gets each passed name as a line of its own.
 *          5   CAIRN_WITHOUT="Q41,Q44" takes rules out for the life of the process.
 * Limits:  one point a process; passes are counted up to 2^32. 62 rules.
 * Threads: any; the variables are read at the first pass and the first use of a rule.
 * Next:    common/crashpoints.def, common/rules.def; tests/sim plays with each rule taken out.
 */
#pragma once

#include "common/base.h"

/* Only macros differ between a build with points and one without, so that a source that has none is
 * the same to ccache. */
#ifdef CAIRN_CRASHPOINTS
#define CAIRN_CRASHPOINT(name) ((void)cairn_crashpoint_pass(name))
/* True if the caller must fail as if the operation of the point had failed (action `fail`). */
#define cairn_crashpoint_fails(name) cairn_crashpoint_pass(name)
#else
#define CAIRN_CRASHPOINT(name) ((void)0)
#define cairn_crashpoint_fails(name) false
#endif
bool cairn_crashpoint_pass(const char *name);
/* For tests: replaces CAIRN_CRASH_AT; "" for none, NULL for the variable. Counting restarts. */
void cairn_crashpoint_arm(const char *text);

/* ---- rules ---- */

enum cairn_rule {
#define RULE(name, what) CAIRN_RULE_##name,
#include "common/rules.def"
#undef RULE
    CAIRN_RULES
};

#ifdef CAIRN_CRASHPOINTS
/* Does the rule hold? `if (CAIRN_RULE(Q41) && slab->owner != owner) refuse` */
#define CAIRN_RULE(name) cairn_rule_holds(CAIRN_RULE_##name)
#else
#define CAIRN_RULE(name) 1
#endif
bool cairn_rule_holds(enum cairn_rule rule);
/* Comma-separated names; false if one is not in the table. NULL: back to the variable. */
bool cairn_rule_take_out(const char *names);
