/* SPDX-License-Identifier: Apache-2.0 */
/*
 * log: one line per event, in the daemons and the cli.
 *
 * Why:     an operator greps for one event and finds the code that wrote it.
 * Promise: 1   a line is: time level event key=value...; written whole, never torn. The first key
 *              is trace if the thread works for one (common/trace.h).
 *          2   control bytes in values are escaped, in quotes also \" and \\; an unquoted value
 *              with a space or a quote gets quotes: every value has one readable end.
 *              A secret type has no way into a line.
 *          3   if standard error cannot be written, lines are dropped and the program continues.
 *          4   as JSON a line is one object: time, level, event, trace, and a member for each key
 *              of the text; a line that is too long is cut and remains a valid object.
 *          5   of a repeated cause the first line is written; lines within CAIRN_LOG_LIMIT_MS after
 *              it are only counted, so that a client that retries at once does not fill a disk.
 *          6   the next line of the cause gets that count; no line is left uncounted.
 * Limits:  2,048 bytes a line of text, 4,096 of JSON, cut with "...". One limit distinguishes
 *          CAIRN_LOG_LIMIT_CAUSES causes; all others share one count.
 * Threads: any thread; a limit has one owner, or the lock of its owner.
 * Next:    docs/runbook.md for what each error line asks of a person.
 */
#pragma once

#include "common/base.h"
#include "common/error.h"

enum cairn_log_level { CAIRN_LOG_ERROR, CAIRN_LOG_WARN, CAIRN_LOG_INFO, CAIRN_LOG_DEBUG };

enum cairn_log_format { CAIRN_LOG_TEXT, CAIRN_LOG_JSON };

void cairn_log_start(const char *program, enum cairn_log_level level, int fd);
/* Call before other threads start; the default is text. */
void cairn_log_write_as(enum cairn_log_format format);
enum cairn_code cairn_log_format_parse(const char *text, enum cairn_log_format *ret,
                                       struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_log_level_parse(const char *text, enum cairn_log_level *ret,
                                      struct cairn_error *err) CAIRN_MUST_USE;
/* Reports why a daemon ends: "PROGRAM: CAUSE", or the event process.failed where lines are JSON, so
 * that a collector sees it. format_said: the log_format setting if known, or NULL. */
void cairn_log_failed(const char *program, const char *format_said, const char *cause);
bool cairn_log_enabled(enum cairn_log_level level);
/* format: key=value pairs, integer and text conversions only; quote free text: cause=\"%s\". */
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

struct cairn_log_limit { /* zeroed: no line written yet */
    struct {
        uint64_t cause; /* a hash; 0: slot is free */
        uint64_t said_ms;
        uint64_t unsaid;
    } causes[CAIRN_LOG_LIMIT_CAUSES + 1];
};
/* now_ms on the mono clock. True: write the line, with *ret_unsaid, the number of lines omitted. */
bool cairn_log_limit_allows(struct cairn_log_limit *limit, const char *cause, uint64_t now_ms,
                            uint64_t *ret_unsaid);
