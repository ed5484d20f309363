/* SPDX-License-Identifier: Apache-2.0 */
/*
 * output: answers of the API as a table, as JSON, or as names.
 *
 * Why:     every verb that lists prints the same forms.
 * Promise: 1   JSON forms print what the server said, the same values; only tables are for eyes.
 *          2   what a terminal obeys never reaches it: '?' in text, an escape in JSON.
 * Limits:  16 columns.
 * Threads: main thread.
 * Next:    cli/verb.h.
 */
#pragma once

#include "cli/verb.h"

#define CAIRN_CLI_COLUMNS_MAX 16

struct cairn_cli_column {
    const char *title;
    bool right; /* numbers */
    /* Write the cell of one item. */
    void (*cell)(const json_t *item, char *ret, size_t capacity);
};
/* items: a JSON array. name_key: what --output name prints of each. */
enum cairn_code cairn_cli_print(const struct cairn_cli *cli, const json_t *items,
                                const struct cairn_cli_column *columns, size_t column_count,
                                const char *name_key, struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_cli_print_json(const json_t *json, bool pretty,
                                     struct cairn_error *err) CAIRN_MUST_USE;

/* One checkpoint, a field a line. */
void cairn_cli_print_version(const json_t *version);

/* "1 shard", "2 shards". */
struct cairn_cli_count {
    char text[64];
};
struct cairn_cli_count cairn_cli_counted(uint64_t count, const char *one, const char *many);

/* What a terminal obeys becomes '?': control bytes, those of two bytes too, and what turns the
 * direction of writing. What a stranger wrote may be printed then. */
void cairn_cli_clean(char *text);
/* One line of chatter on standard error, cleaned. */
void cairn_cli_note(const char *format, ...) CAIRN_PRINTF(1, 2);

/* Fields of an item, "" or 0 when absent. */
const char *cairn_cli_text_of(const json_t *item, const char *key);
uint64_t cairn_cli_number_of(const json_t *item, const char *key);
bool cairn_cli_flag_of(const json_t *item, const char *key);
