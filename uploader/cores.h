/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cores: on which cores this process runs, and how far it steps back.
 *
 * Why:     the trainers beside it need their cores for themselves; what it may use of the others
 *          only the operator knows.
 * Promise: 1   a list that names no core of this machine, or is no list, is refused at start.
 * Limits:  cores 0 to CPU_SETSIZE - 1.
 * Threads: call it before the process starts threads; they inherit it.
 * Next:    cpu_list and nice in uploader/settings.def.
 */
#pragma once

#include <sched.h>

#include "uploader/settings.h"

/* "0-3,8" */
enum cairn_code cairn_up_cores_parse(const char *text, cpu_set_t *ret,
                                     struct cairn_error *err) CAIRN_MUST_USE;
/* Cores that are also the trainers'; UINT32_MAX where cpu_list parts them. */
uint32_t cairn_up_cores_shared(const struct cairn_up_settings *settings);
enum cairn_code cairn_up_cores_apply(const struct cairn_up_settings *settings,
                                     struct cairn_error *err) CAIRN_MUST_USE;
