/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stories: faults that need several things to happen in their order.
 *
 * Why:     what chaos.c does at any moment meets some faults once in ten thousand seeds: a manifest
 *          of another release is there only between a commit's manifest and its transaction.
 * Promise: 1   a story is over before the faults are (world.h#2); what an operator has to do is
 *              done then.
 *          2   what the protocol leaves open by nature (section 6) is not played: an incarnation
 *              that bears no word comes only after the end of the one before was reported.
 * Limits:  one of each a seed.
 * Threads: one (tests/sim/kernel.h).
 * Next:    faults.def; chaos.c for what needs no story.
 */
#pragma once

#include "tests/sim/net.h"

void sim_stories_start(void);
void sim_stories_end(void); /* returns when all are over */
/* Before the ranks of a job start: its job string, and what their launcher tells them. */
void sim_stories_name_job(void);
/* Is the begin of one rank refused in saves of that step? */
bool sim_stories_refuses(uint64_t step);
/* A request on its way to the server. */
void sim_stories_spoil(struct sim_exchange *exchange);
