/* SPDX-License-Identifier: Apache-2.0 */
/*
 * output: replies of the API as tables, JSON, YAML or names; text and colours for people.
 *
 * Why:     every verb that lists prints the same formats; a terminal's user sees a coloured state
 *          before reading it; comparing with a store's bill needs powers of ten.
 * Promise: 1   JSON and YAML print the server's values unchanged; only tables reformat them.
 *          2   control characters and bidirectional marks are '?' in text and escaped in JSON.
 *          3   --fields: members appear under the names given, in that order; a member that an item
 *              lacks is null. A name that no item has is CAIRN_INVALID, listing the existing
 *              ones; in a stream each item needs at least one of the names.
 *          4   YAML 1.1 and 1.2 readers get the value back: text that looks like a number, boolean,
 *              date or indicator is quoted.
 *          5   sizes in tables and text have the chosen form: "1.5 GiB", with --si "1.6 GB", with
 *              --bytes "1610612736". JSON always has bytes.
 *          6   only tables on a terminal that supports colours have them, unless NO_COLOR is set
 *              (no-color.org). The text is the same without; no information is in a colour alone.
 * Limits:  16 columns; 64 --fields; CAIRN_CLI_SPARK_MAX spark values. Longer texts are truncated.
 * Threads: main thread; sizes from any thread after cairn_cli_print_as.
 * Next:    cli/shell/output_tables.c, cli/shell/output.c.
 */
#pragma once

#include "api/wire/messages.h"
#include "cli/shell/call.h"
#include "common/json.h"

/* Sets YAML, --fields and the form of sizes; called once, before any output. */
void cairn_cli_print_as(const struct cairn_cli *cli);
/* --output json or jsonl. */
bool cairn_cli_wants_json(const struct cairn_cli *cli);
enum cairn_code cairn_cli_print_json(const json_t *json, bool pretty,
                                     struct cairn_error *err) CAIRN_MUST_USE;
/* Indented with --output json. */
enum cairn_code cairn_cli_print_reply(const struct cairn_cli *cli, const json_t *json,
                                      struct cairn_error *err) CAIRN_MUST_USE;
/* One line for each item of the array. */
enum cairn_code cairn_cli_print_lines(const json_t *items, struct cairn_error *err) CAIRN_MUST_USE;
/* Flushes standard output and reports write errors. */
enum cairn_code cairn_cli_flush(struct cairn_error *err) CAIRN_MUST_USE;

/* ---- text ---- */

void cairn_cli_size(uint64_t bytes, char ret_text[24]);
/* "1 shard", "2 shards". */
struct cairn_cli_count {
    char text[64];
};
struct cairn_cli_count cairn_cli_counted(uint64_t count, const char *one, const char *many);

/* Control and bidirectional characters become '?': foreign text must not steer the terminal. */
void cairn_cli_clean(char *text);
/* Adds to a CAIRN_NO_SPACE: space needed and free, the way out, and `left`, what stays on disk. */
enum cairn_code cairn_cli_no_space(const char *folder, uint64_t needed_bytes, const char *left,
                                   struct cairn_error *err);
/* One cleaned line on standard error. */
void cairn_cli_note(const char *format, ...) CAIRN_PRINTF(1, 2);
/* Reads the answer to a [y/N] question. */
bool cairn_cli_says_yes(void);
/* Appends to text, after `between` unless text is empty; truncates at capacity. */
void cairn_cli_add(char *text, size_t capacity, const char *between, const char *format, ...)
    CAIRN_PRINTF(4, 5);

/* ---- paint ---- */

#define CAIRN_CLI_SPARK_MAX 60

enum cairn_cli_tone {
    CAIRN_CLI_TONE_NONE,
    CAIRN_CLI_TONE_HEAD,
    CAIRN_CLI_TONE_GOOD,
    CAIRN_CLI_TONE_BUSY,
    CAIRN_CLI_TONE_BAD,
    CAIRN_CLI_TONE_QUIET, /* trashed, superseded */
};
/* Called once, before any output. */
void cairn_cli_paint_init(const struct cairn_cli *cli);
/* Whether standard output is a terminal, also if colours are off. */
bool cairn_cli_paint_terminal(void);
/* Escapes before and after coloured text; "" if colours are off. */
const char *cairn_cli_tone(enum cairn_cli_tone tone);
const char *cairn_cli_tone_end(enum cairn_cli_tone tone);
/* Terminals only: spark lines of stalls and commit intervals; `versions` is newest first. */
void cairn_cli_spark_versions(const json_t *versions);

/* ---- tables ---- */

#define CAIRN_CLI_COLUMNS_MAX 16

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
    size_t field;     /* offset in the row; the form's field kind decides the formatting */
    bool size;        /* a number of bytes */
    const char *none; /* text for null; NULL: empty, or the number */
    /* Formats a computed cell; NULL: `field` is printed. */
    void (*cell)(const union cairn_cli_row *row, char *ret, size_t capacity);
    bool right; /* right-aligned; numbers always are */
};
#define CAIRN_CLI_FIELD_OR(title_, form, field_, none_)                                            \
    { .title = (title_), .field = offsetof(struct cairn_msg_##form##_row, field_), .none = (none_) }
#define CAIRN_CLI_FIELD(title_, form, field_) CAIRN_CLI_FIELD_OR(title_, form, field_, NULL)
#define CAIRN_CLI_BYTES_OR(title_, form, field_, none_)                                            \
    {                                                                                              \
        .title = (title_), .field = offsetof(struct cairn_msg_##form##_row, field_),               \
        .none = (none_), .size = true                                                              \
    }
#define CAIRN_CLI_BYTES(title_, form, field_) CAIRN_CLI_BYTES_OR(title_, form, field_, NULL)
#define CAIRN_CLI_CELL(title_, cell_)                                                              \
    { .title = (title_), .cell = (cell_) }
#define CAIRN_CLI_RIGHT_CELL(title_, cell_)                                                        \
    { .title = (title_), .cell = (cell_), .right = true }
struct cairn_cli_table {
    enum cairn_message form; /* form of an item */
    const struct cairn_cli_column *columns;
    size_t column_count, wide_count; /* the last wide_count columns need --wide */
    struct cairn_cli_column name;    /* --output name */
};
/* Arguments after wide_count: the name column. */
#define CAIRN_CLI_ROWS(form, columns, wide_count, ...)                                             \
    { CAIRN_MESSAGE_##form, (columns), CAIRN_COUNT(columns), (wide_count), __VA_ARGS__ }
enum cairn_code cairn_cli_print(const struct cairn_cli *cli, const json_t *items,
                                const struct cairn_cli_table *table,
                                struct cairn_error *err) CAIRN_MUST_USE;
/* Prints the list that cairn_cli_list gets. */
enum cairn_code cairn_cli_print_list(const struct cairn_cli *cli, const struct cairn_cli_ref *ref,
                                     const char *tail, uint64_t limit,
                                     const struct cairn_cli_table *table,
                                     struct cairn_error *err) CAIRN_MUST_USE;
/* One row; as JSON the object itself. */
enum cairn_code cairn_cli_print_one(const struct cairn_cli *cli, json_t *json,
                                    const struct cairn_cli_table *table,
                                    struct cairn_error *err) CAIRN_MUST_USE;

extern const struct cairn_cli_table cairn_cli_tensor_table;

/* ---- a checkpoint ---- */

/* "tier=keep,team=nlp" or "eval_loss=1.93": labels and metrics in command-line form. */
void cairn_cli_pairs(const json_t *pairs, const char *between, char *ret, size_t capacity);
/* "prod, good" */
void cairn_cli_words(const json_t *words, const char *between, char *ret, size_t capacity);
/* "damaged": every whole copy has known damage; "damaged-in:STORE ...": some have; "": none. */
void cairn_cli_damage_words(const json_t *copies, char *ret, size_t capacity);
/* One field per line, or by --output. */
enum cairn_code cairn_cli_print_version(const struct cairn_cli *cli, const json_t *version,
                                        struct cairn_error *err) CAIRN_MUST_USE;
