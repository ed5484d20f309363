/* SPDX-License-Identifier: Apache-2.0 */
/*
 * show: what the journal of a stopped uploader still holds, one JSON line per record.
 *
 * Why:     an operator must know which saves a node has not finished before its disk is dropped.
 * Promise: 1   prints the live records in file order and changes nothing but a torn tail.
 * Limits:  the uploader of that node must not be running (CAIRN_CONFLICT).
 * Threads: main thread.
 * Next:    uploader/journal/journal.h.
 */
#pragma once

#include "uploader/settings.h"

enum cairn_code cairn_up_show_journal(const struct cairn_up_places *places,
                                      struct cairn_error *err) CAIRN_MUST_USE;
