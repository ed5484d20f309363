/* SPDX-License-Identifier: Apache-2.0 */
/*
 * keep: retention policies as flags, and plans as people read them.
 *
 * Why:     `forget` and `policy` take the same rules, and a plan must be believed before it is
 *          carried out: every kept checkpoint with its reasons, every removed one with its bytes.
 * Promise: 1   the flags are those of api/policy.def, --keep-<key>; a policy of flags says the same
 *              as its JSON.
 * Limits:  api/wire/policy.h; one label selector by flags.
 * Threads: main thread.
 * Next:    cli/verbs/forget.c, cli/verbs/policy.c.
 */
#pragma once

#include "api/wire/policy.h"
#include "cli/call.h"

/* Rows of a verb's table of flags. */
#define CAIRN_CLI_KEEP(name, id, help)                                                             \
    { "keep-" name, 0, CAIRN_CLI_COUNT, CAIRN_CLI_AT(keep_numbers[CAIRN_KEEP_##id]), 0, "N", help }
#define CAIRN_CLI_KEEP_FLAGS                                                                       \
    CAIRN_CLI_KEEP("last", LAST, "Keep the newest N."),                                            \
        CAIRN_CLI_KEEP("first", FIRST, "Keep the oldest N."),                                      \
        CAIRN_CLI_KEEP("every-steps", EVERY_STEPS, "Keep every step that N divides."),             \
        CAIRN_CLI_KEEP("hourly", HOURLY, "Keep one of each of the last N hours that hold one."),   \
        CAIRN_CLI_KEEP("daily", DAILY, "The same of days (UTC)."),                                 \
        CAIRN_CLI_KEEP("weekly", WEEKLY, "The same of weeks, from Monday on."),                    \
        CAIRN_CLI_KEEP("monthly", MONTHLY, "The same of months."),                                 \
        {"keep-within",                                                                            \
         0,                                                                                        \
         CAIRN_CLI_TEXT,                                                                           \
         CAIRN_CLI_AT(keep_within),                                                                \
         0,                                                                                        \
         "TIME",                                                                                   \
         "Keep what was committed at most this long before the newest, e.g. 6h."},                 \
        {"keep-best",                                                                              \
         0,                                                                                        \
         CAIRN_CLI_TEXTS,                                                                          \
         CAIRN_CLI_AT(keep_best),                                                                  \
         0,                                                                                        \
         "RULES",                                                                                  \
         "Keep the best by a metric: 1:eval_loss:min, more with commas or given again."},          \
        {"unmeasured-grace",                                                                       \
         0,                                                                                        \
         CAIRN_CLI_TEXT,                                                                           \
         CAIRN_CLI_AT(unmeasured_grace),                                                           \
         0,                                                                                        \
         "TIME",                                                                                   \
         "How long --keep-best keeps what lacks the metric, from its commit; default 24h."},       \
        {"force",                                                                                  \
         0,                                                                                        \
         CAIRN_CLI_SWITCH,                                                                         \
         CAIRN_CLI_AT(force),                                                                      \
         0,                                                                                        \
         NULL,                                                                                     \
         "Take a metric that no checkpoint has."},                                                 \
    {                                                                                              \
        "keep-labels", 0, CAIRN_CLI_TEXTS, CAIRN_CLI_AT(keep_labels), 0, "LABELS",                 \
            "Keep what all of these choose, e.g. team=nlp,tier!=tmp; given again: or these."       \
    }

/* The policy of the flags; *ret NULL when there is none among them. */
enum cairn_code cairn_cli_keep_policy(const struct cairn_cli *cli, json_t **ret,
                                      struct cairn_error *err) CAIRN_MUST_USE;
/* CAIRN_INVALID, with the metrics that there are: a rule of the plan asks for one that no
 * checkpoint of the run has. Not with --force, and not of a run without checkpoints. */
enum cairn_code cairn_cli_keep_check(const struct cairn_cli *cli, const struct cairn_cli_ref *run,
                                     const json_t *plan, struct cairn_error *err) CAIRN_MUST_USE;
/* POST {R}/retention/preview. take_body may be NULL. */
enum cairn_code cairn_cli_keep_preview(const struct cairn_cli *cli, const struct cairn_cli_ref *run,
                                       json_t *take_body, json_t **ret,
                                       struct cairn_error *err) CAIRN_MUST_USE;
/* Policy, a line for each checkpoint, and the sum. tail: how the last line ends. */
enum cairn_code cairn_cli_keep_print(const struct cairn_cli_ref *run, const json_t *plan,
                                     const char *tail, struct cairn_error *err) CAIRN_MUST_USE;
