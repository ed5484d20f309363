/* SPDX-License-Identifier: Apache-2.0 */
/*
 * send: a reply on its way out, byte by byte where a rule asks for it.
 *
 * Why:     what a client makes of a cut, late or wrong reply is what most faults are about.
 * Promise: 1   head and body are edited first and then sent as they are: places of rules count in
 *              the edited head (@hN) or the edited body (@N).
 * Limits:  none.
 * Threads: the connection's.
 * Next:    exchange.c.
 */
#pragma once

#include "tests/support/s3fault/server.h"

/* Replaces the reply by what the rule wants said instead; false: no rule does. */
bool s3f_override(const struct s3f_server *server, const struct s3f_plan *plan,
                  struct s3f_reply *reply);
/* Does the rule replace the answer, so that nothing is to be applied? */
bool s3f_overrides(const struct s3f_plan *plan);
/* False: the connection is over, and was ended. `last` ends it after the reply. */
bool s3f_send(struct s3f_connection *connection, const struct s3f_plan *plan,
              struct s3f_reply *reply, bool last);
