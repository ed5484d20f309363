/* SPDX-License-Identifier: Apache-2.0 */
/*
 * options: the words of a command line into struct cairn_cli, and what every verb asks of them.
 *
 * Why:     flags, help and defaults must be the same for all verbs.
 * Promise: verb.h#3.
 * Limits:  as cli/verb.h.
 * Threads: main thread.
 * Next:    cli/verb.h.
 */
#pragma once

#include "cli/verb.h"

/* argv[0] is the verb's name. */
enum cairn_code cairn_cli_parse(const struct cairn_cli_verb *verb, int argc, char **argv,
                                struct cairn_cli *cli, struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_cli_help(const struct cairn_cli_verb *verb,
                               struct cairn_error *err) CAIRN_MUST_USE;
/* The verb's own flags, then the common ones; NULL behind the last. */
const struct cairn_cli_flag *cairn_cli_flag_at(const struct cairn_cli_verb *verb, size_t index);
/* What the flag's value may be, where that is a list of words; NULL behind the last. */
const char *cairn_cli_flag_word(const struct cairn_cli_flag *flag, size_t index);
/* The candidate nearest to word by edit distance, or NULL when none is near. */
const char *cairn_cli_nearest(const char *word, const char *const *candidates, size_t count);

/* One, or a list (api/wire/rest.h), in the order of cli/profile.h#1. */
const char *cairn_cli_server_url(const struct cairn_cli *cli);
const char *cairn_cli_uploader_socket(const struct cairn_cli *cli);
/* A client of that server. */
enum cairn_code cairn_cli_connect(const struct cairn_cli *cli, struct cairn_rest **ret,
                                  struct cairn_error *err) CAIRN_MUST_USE;
