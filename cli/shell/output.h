/* SPDX-License-Identifier: Apache-2.0 */
/*
 * output: what the API answered, as a table, as JSON or YAML, or as names.
 *
 * Why:     every verb that lists prints the same forms.
 * Promise: 1   JSON forms print what the server said, the same values; only tables are for eyes.
 *          2   control characters and marks that turn the direction of writing are printed as '?'
 *              in text and as an escape in JSON.
 *          3   of --fields each has to be there, in an item at least, or it is CAIRN_INVALID with
 *              those that are.
 * Limits:  16 columns.
 * Threads: main thread.
 * Next:    cli/shell/verb.h.
 */
#pragma once

#include "cli/shell/call.h"
#include "cli/shell/paint.h"

#define CAIRN_CLI_COLUMNS_MAX 16

/* An item of a list of the API. */
union cairn_cli_row {
    struct cairn_msg_version_row version;
    struct cairn_msg_run_row run;
    struct cairn_msg_shard_row shard;
    struct cairn_msg_tensor_row tensor;
    struct cairn_msg_node_row node;
    struct cairn_msg_operation_row operation;
    struct cairn_msg_quota_row quota;
    struct cairn_msg_upload_row upload;
    struct cairn_msg_orphan_row orphan;
    struct cairn_msg_not_freed_row not_freed;
    struct cairn_msg_webhook_row webhook;
    struct cairn_msg_letter_row letter;
    struct cairn_msg_probe_row probe;
    struct cairn_msg_event_row event;
};
struct cairn_cli_column {
    const char *title;
    bool right; /* numbers */
    void (*cell)(const union cairn_cli_row *row, char *ret, size_t capacity);
};
struct cairn_cli_table {
    enum cairn_message form; /* of an item */
    const struct cairn_cli_column *columns;
    size_t column_count;
    /* What --output name prints of an item. */
    void (*name)(const union cairn_cli_row *row, char *ret, size_t capacity);
    const union cairn_cli_row *none; /* what absent and null fields hold; NULL: 0 */
};
/* Before anything is printed: yaml and fields are those of every JSON that follows. */
void cairn_cli_print_as(const struct cairn_cli *cli);
/* items: a JSON array. */
enum cairn_code cairn_cli_print(const struct cairn_cli *cli, const json_t *items,
                                const struct cairn_cli_table *table,
                                struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_cli_print_json(const json_t *json, bool pretty,
                                     struct cairn_error *err) CAIRN_MUST_USE;

extern const struct cairn_cli_table cairn_cli_tensor_table; /* rows of the form tensor_row */

/* A line of what is printed of one thing; nothing where there is no value. */
void cairn_cli_print_field(const char *name, const char *value);
/* One checkpoint: a field a line, or in the form of --output. */
enum cairn_code cairn_cli_print_version(const struct cairn_cli *cli, const json_t *version,
                                        struct cairn_error *err) CAIRN_MUST_USE;

/* "1 shard", "2 shards". */
struct cairn_cli_count {
    char text[64];
};
struct cairn_cli_count cairn_cli_counted(uint64_t count, const char *one, const char *many);

/* Control characters and marks that turn the direction of writing become '?', so that text of
 * another user cannot steer the terminal. */
void cairn_cli_clean(char *text);
/* One line of chatter on standard error, cleaned. */
/* Of a CAIRN_NO_SPACE in err: what is needed in that folder, what is free there, and the way out;
 * then says what was left. */
enum cairn_code cairn_cli_no_space(const char *folder, uint64_t needed_bytes, const char *left,
                                   struct cairn_error *err);
/* "damaged" where each whole copy of a version has known damage, "damaged-in:STORE ..." where
 * another one has none, "" where all are sound. */
void cairn_cli_damage_words(const json_t *copies, char *ret, size_t capacity);
void cairn_cli_note(const char *format, ...) CAIRN_PRINTF(1, 2);
