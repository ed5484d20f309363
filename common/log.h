/* SPDX-License-Identifier: Apache-2.0 */
/*
 * log: one line per thing that happened, in the daemons and the cli.
 *
 * Why:     an operator greps for one event and finds the code that wrote it.
 * Promise: 1   a line is: time level event key=value...; written whole, never torn. The first key
 *              is trace where the thread works for one (common/tracing.h).
 *          2   control bytes in values are escaped; in what stands in quotes, so are \" and \\,
 *              and a bare value with a space or a quote gets quotes: no value ends before its end.
 *              A secret type has no way into a line.
 *          3   where standard error cannot be written, lines are dropped, the program goes on.
 *          4   as JSON a line is one object: time, level, event, trace, and a member for each key
 *              of the text; one that does not fit is cut, and the line is an object all the same.
 * Limits:  2,048 bytes a line of text, 4,096 of JSON, cut with "...".
 * Threads: any thread.
 * Next:    docs/runbook.md for what each error line asks of a person.
 */
#pragma once

#include "common/error.h"

enum cairn_log_level { CAIRN_LOG_ERROR, CAIRN_LOG_WARN, CAIRN_LOG_INFO, CAIRN_LOG_DEBUG };

enum cairn_log_format { CAIRN_LOG_TEXT, CAIRN_LOG_JSON };

void cairn_log_start(const char *program, enum cairn_log_level level, int fd);
/* Before there are other threads; text where it is not called. */
void cairn_log_write_as(enum cairn_log_format format);
enum cairn_code cairn_log_format_parse(const char *text, enum cairn_log_format *ret,
                                       struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_log_level_parse(const char *text, enum cairn_log_level *ret,
                                      struct cairn_error *err) CAIRN_MUST_USE;
/* Why a daemon ends: "PROGRAM: CAUSE", or the event process.failed where lines are objects, so that
 * a collector misses nothing. format_said: what log_format says as far as it is known, or NULL. */
void cairn_log_failed(const char *program, const char *format_said, const char *cause);
bool cairn_log_enabled(enum cairn_log_level level);
/* format holds key=value pairs; quote free text with cause=\"%s\". It has conversions of integers
 * and texts alone. */
void cairn_log_write(enum cairn_log_level level, const char *event, const char *format, ...)
    CAIRN_PRINTF(3, 4);
#define cairn_log(level, event, ...)                                                               \
    do {                                                                                           \
        if (cairn_log_enabled(CAIRN_LOG_##level))                                                  \
            cairn_log_write(CAIRN_LOG_##level, (event), __VA_ARGS__);                              \
    } while (0)
