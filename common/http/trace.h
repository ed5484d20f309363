/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trace: protocol lines that may be shown to people.
 *
 * Why:     traces are switched on when something is wrong and then pasted into tickets; a
 *          signature or token in one of them is a leak.
 * Promise: 1   only header values of a closed list are shown; all others become "<hidden>".
 *          2   of a query, names are shown and values of a closed list; all others are hidden.
 * Limits:  a line is shown up to 512 bytes.
 * Threads: stateless.
 * Next:    common/http/http.h, option verbose_trace.
 */
#pragma once

#include "common/buf.h"

/* One request, status or header line without its end. */
enum cairn_code cairn_http_trace_redact(struct cairn_view line, struct cairn_buf *ret,
                                        struct cairn_error *err) CAIRN_MUST_USE;
/* Each line of a block, redacted, to the debug log. mark is '>' for sent, '<' for received. */
void cairn_http_trace_lines(char mark, struct cairn_view block);
