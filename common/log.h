/* SPDX-License-Identifier: Apache-2.0 */
/*
 * log: one line per thing that happened, in the daemons and the cli.
 *
 * Why:     an operator greps for one event and finds the code that wrote it.
 * Promise: 1   a line is: time level event key=value...; written whole, never torn. The first key
 *              is trace where the thread works for one (common/trace.h).
 *          2   control bytes in values are escaped; in what stands in quotes, so are \" and \\,
 *              and a bare value with a space or a quote gets quotes: no value ends before its end.
 *              A secret type has no way into a line.
 *          3   where standard error cannot be written, lines are dropped, the program goes on.
 *          4   as JSON a line is one object: time, level, event, trace, and a member for each key
 *              of the text; one that does not fit is cut, and the line is an object all the same.
 *          5   of a cause that repeats, the first line is allowed; those within CAIRN_LOG_LIMIT_MS
 *              after it are counted instead, so that a caller who is turned away and comes again at
 *              once fills no disk.
 *          6   the next line that is allowed gets that count; none is missing from it.
 * Limits:  2,048 bytes a line of text, 4,096 of JSON, cut with "...". CAIRN_LOG_LIMIT_CAUSES causes
 *          of one limit are told apart; all others are one cause.
 * Threads: any thread; a limit has one owner, or the lock of its owner.
 * Next:    docs/runbook.md for what each error line asks of a person.
 */
#pragma once

#include "common/base.h"
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

/* ---- at most one line a minute for each cause ---- */

#define CAIRN_LOG_LIMIT_MS 60000
#define CAIRN_LOG_LIMIT_CAUSES 8

struct cairn_log_limit { /* zeroed: no line was written */
    struct {
        uint64_t cause; /* a hash; 0: free */
        uint64_t said_ms;
        uint64_t unsaid;
    } causes[CAIRN_LOG_LIMIT_CAUSES + 1];
};
/* now_ms on the mono clock. True: write the line, with *ret_unsaid, how many were left out. */
bool cairn_log_limit_allows(struct cairn_log_limit *limit, const char *cause, uint64_t now_ms,
                            uint64_t *ret_unsaid);
