/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stage: the calls that give every byte its place, copy and seal.
 *
 * Why:     slots are given out before anything is copied, so places are asked for on their own; and
 *          what must be done before a trainer goes on is little of what a stage does.
 * Promise: 1  what was described has a place from then on, and nothing is added until it is copied.
 * Limits:  as client/save/stager.h.
 * Threads: the handle's caller, but for cairn_client_stage_behind.
 * Next:    client/save/slots.c, client/save/behind.c.
 */
#pragma once

#include "client/save/save.h"

/* save->kept has the places. Once; an error is final. */
enum cairn_code cairn_client_stage_place(struct cairn_save *save,
                                         struct cairn_error *err) CAIRN_MUST_USE;
/* The save's stager, which has the places and the point in each device's streams behind which it is
 * copied. An error is final, but for CAIRN_INVALID (an order of calls). */
enum cairn_code cairn_client_stage_ready(struct cairn_save *save, struct cairn_client_stager **ret,
                                         struct cairn_error *err) CAIRN_MUST_USE;
/* Copy, seal and free it; what becomes of it is the save's. */
void cairn_client_stage_behind(struct cairn_client_stager *stager);
