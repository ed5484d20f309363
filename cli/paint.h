/* SPDX-License-Identifier: Apache-2.0 */
/*
 * paint: colours and small drawings of what is printed for eyes.
 *
 * Why:     on a terminal a state is seen sooner than read; a file or a pipe gets the bare text.
 * Promise: 1   nothing is painted unless standard output is a terminal that knows colours, tables
 *              are printed, and NO_COLOR is unset or empty (no-color.org); the text stays the same.
 *          2   a colour is never the only thing that says something.
 * Limits:  a spark line of CAIRN_CLI_SPARK_MAX values.
 * Threads: main thread.
 * Next:    cli/output.c.
 */
#pragma once

#include "api/wire/messages.h"
#include "cli/verb.h"

#define CAIRN_CLI_SPARK_MAX 60

enum cairn_cli_tone {
    CAIRN_CLI_TONE_NONE,
    CAIRN_CLI_TONE_HEAD, /* of a table */
    CAIRN_CLI_TONE_GOOD,
    CAIRN_CLI_TONE_BUSY,
    CAIRN_CLI_TONE_BAD,
    CAIRN_CLI_TONE_QUIET, /* in the trash, superseded */
};
/* Once, before anything is printed. */
void cairn_cli_paint_init(const struct cairn_cli *cli);
/* Is standard output a terminal for people? Also where it is to have no colours. */
bool cairn_cli_paint_terminal(void);
/* What is printed before and after; "" where nothing is painted. */
const char *cairn_cli_tone(enum cairn_cli_tone tone);
const char *cairn_cli_tone_end(enum cairn_cli_tone tone);
enum cairn_cli_tone cairn_cli_tone_of(const struct cairn_msg_version_row *version);
/* "9 ms", from a second on as cairn_duration_text. */
void cairn_cli_moment(uint64_t ms, char ret[24]);
/* "stall     ▁▂▁█  9 ms to 120 ms, the last 40 ms": durations, the oldest first. */
void cairn_cli_spark(const char *name, const uint64_t *values_ms, size_t count);
/* Spark lines of the stall and of the interval of the committed ones among `versions`, the newest
 * first as lists have them. On a terminal alone. */
void cairn_cli_spark_versions(const json_t *versions);
