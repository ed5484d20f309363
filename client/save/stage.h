/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stage: the calls that give every byte its place, copy and seal.
 *
 * Why:     slots are given out before anything is copied, so places are asked for on their own.
 * Promise: 1  what was described has a place from then on, and nothing is added until it is copied.
 * Limits:  as client/save/stager.h.
 * Threads: the handle's caller.
 * Next:    client/save/slots.c.
 */
#pragma once

#include "client/save/save.h"

/* save->kept has the places. Once; an error is final. */
enum cairn_code cairn_client_stage_place(struct cairn_save *save,
                                         struct cairn_error *err) CAIRN_MUST_USE;
