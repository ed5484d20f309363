/* SPDX-License-Identifier: Apache-2.0 */
/*
 * said: what people and programs have said of a checkpoint, as text.
 *
 * Why:     pins, labels, metrics and names decide what stays and what is found again, so whoever
 *          looks at a checkpoint must see them without another command.
 * Promise: none of its own; what is printed is the version's row and GET {C}/events.
 * Limits:  texts that do not fit are cut; of a version the newest 20 events.
 * Threads: main thread.
 * Next:    cli/shell/output.c, cli/verbs/show.c, cli/verbs/ls.c.
 */
#pragma once

#include "cli/shell/call.h"

/* "tier=keep,team=nlp", "eval_loss=1.93": labels and metrics as the command line takes them. */
void cairn_cli_pairs(const json_t *pairs, const char *between, char *ret, size_t capacity);
/* "prod, good" */
void cairn_cli_words(const json_t *words, const char *between, char *ret, size_t capacity);

/* Each on a line of its own, and only what there is: names, pin, note, labels, metrics, and where
 * it was made (`origin` of its meta, docs/http.md). */
void cairn_cli_print_said(const struct cairn_msg_version_row *version);
/* What has happened to it, oldest first. */
enum cairn_code cairn_cli_print_happened(const struct cairn_cli *cli,
                                         const struct cairn_cli_ref *version,
                                         struct cairn_error *err) CAIRN_MUST_USE;
