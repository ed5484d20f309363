/* SPDX-License-Identifier: Apache-2.0 */
/*
 * crashpoint: named places in the code where a test makes the process die, stop, wait or fail.
 *
 * Why:     what survives a death between two writes can only be tested by dying exactly there.
 * Promise: 1   builds without CAIRN_CRASHPOINTS hold nothing of it: no call, no name, no variable.
 *          2   a name that common/crashpoints.def does not list aborts, in the code and in the
 *              variable, so that no sweep tests a point that is not there.
 *          3   CAIRN_CRASH_AT="name[:nth][:kill|exit|stop|delay=MS|fail]" chooses one point: nth
 *              counts passes of it from 1 (0: every pass), 1 where left out, and kill is what is
 *              done where no action stands. exit ends with status 70.
 *          4   CAIRN_CRASH_LIST=FILE gets each passed name as a line of its own.
 * Limits:  one point a process; passes are counted up to 2^32.
 * Threads: any; the variables are read at the first pass.
 * Next:    common/crashpoints.def.
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
