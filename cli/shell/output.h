/* SPDX-License-Identifier: Apache-2.0 */
/*
 * output: what the API answered, as a table, as JSON or YAML, or as names; and what people read.
 *
 * Why:     every verb that lists prints the same forms; on a terminal a state is seen sooner than
 *          read; who compares with a bill of the store reads powers of ten.
 * Promise: 1   JSON forms print what the server said, the same values; only tables are for eyes.
 *          2   control characters and marks that turn the direction of writing are printed as '?'
 *              in text and as an escape in JSON.
 *          3   --fields: members stand under the names they were asked for by, in that order; one
 *              that an item lacks is null. Each has to be there, in an item at least, or it is
 *              CAIRN_INVALID with those that are; of an item of a stream at least one.
 *          4   a reader of YAML 1.1 or 1.2 gets the value back: a text that could be taken for a
 *              number, a truth, a date or a mark is quoted.
 *          5   every size in a table or a line of text is in the form that was asked for: "1.5
 *              GiB", with --si "1.6 GB", with --bytes "1610612736". JSON has bytes always.
 *          6   nothing is painted unless standard output is a terminal that knows colours, tables
 *              are printed, and NO_COLOR is unset or empty (no-color.org); the text stays the same.
 *              A colour is never the only thing that says something.
 * Limits:  16 columns; 64 names of --fields; a spark line of CAIRN_CLI_SPARK_MAX values. Texts that
 *          do not fit are cut.
 * Threads: main thread; sizes from any, once they are set.
 * Next:    cli/shell/output_tables.c, cli/shell/output.c.
 */
#pragma once

#include "api/wire/messages.h"
#include "cli/shell/call.h"
#include "common/json.h"

/* Once, before anything is printed: yaml, fields and sizes are those of all that follows. */
void cairn_cli_print_as(const struct cairn_cli *cli);
/* As --output json or jsonl? */
bool cairn_cli_wants_json(const struct cairn_cli *cli);
enum cairn_code cairn_cli_print_json(const json_t *json, bool pretty,
                                     struct cairn_error *err) CAIRN_MUST_USE;
/* Pretty where --output is json. */
enum cairn_code cairn_cli_print_reply(const struct cairn_cli *cli, const json_t *json,
                                      struct cairn_error *err) CAIRN_MUST_USE;
/* Each item of an array on a line. */
enum cairn_code cairn_cli_print_lines(const json_t *items, struct cairn_error *err) CAIRN_MUST_USE;
/* Standard output, at the end of what is printed. */
enum cairn_code cairn_cli_flush(struct cairn_error *err) CAIRN_MUST_USE;

/* ---- text ---- */

void cairn_cli_size(uint64_t bytes, char ret_text[24]);
/* "1 shard", "2 shards". */
struct cairn_cli_count {
    char text[64];
};
struct cairn_cli_count cairn_cli_counted(uint64_t count, const char *one, const char *many);

/* Control characters and marks that turn the direction of writing become '?', so that text of
 * another user cannot steer the terminal. */
void cairn_cli_clean(char *text);
/* Of a CAIRN_NO_SPACE in err: what is needed in that folder, what is free there, and the way out;
 * then says what was left. */
enum cairn_code cairn_cli_no_space(const char *folder, uint64_t needed_bytes, const char *left,
                                   struct cairn_error *err);
/* One line of chatter on standard error, cleaned. */
void cairn_cli_note(const char *format, ...) CAIRN_PRINTF(1, 2);
/* The answer to a question that ends in [y/N]. */
bool cairn_cli_says_yes(void);
/* Behind what text holds, with `between` where it holds something; what has no room is cut. */
void cairn_cli_add(char *text, size_t capacity, const char *between, const char *format, ...)
    CAIRN_PRINTF(4, 5);

/* ---- paint ---- */

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
/* Spark lines of the stall and of the interval of the committed ones among `versions`, the newest
 * first as lists have them. On a terminal alone. */
void cairn_cli_spark_versions(const json_t *versions);

/* ---- tables ---- */

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
    size_t field;     /* of the row; how it is printed is said by its kind in the form */
    bool size;        /* the number is one of bytes */
    const char *none; /* for null; NULL: no text, or the number */
    /* In place of a field; NULL: none. */
    void (*cell)(const union cairn_cli_row *row, char *ret, size_t capacity);
    bool right; /* of a cell; numbers always are */
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
    enum cairn_message form; /* of an item */
    const struct cairn_cli_column *columns;
    size_t column_count, wide_count; /* the last wide_count are those of a wide table alone */
    struct cairn_cli_column name;    /* what --output name prints of an item */
};
/* Behind wide_count: the name. */
#define CAIRN_CLI_ROWS(form, columns, wide_count, ...)                                             \
    { CAIRN_MESSAGE_##form, (columns), CAIRN_COUNT(columns), (wide_count), __VA_ARGS__ }
/* items: a JSON array. */
enum cairn_code cairn_cli_print(const struct cairn_cli *cli, const json_t *items,
                                const struct cairn_cli_table *table,
                                struct cairn_error *err) CAIRN_MUST_USE;
/* Those of cairn_cli_list. */
enum cairn_code cairn_cli_print_list(const struct cairn_cli *cli, const struct cairn_cli_ref *ref,
                                     const char *tail, uint64_t limit,
                                     const struct cairn_cli_table *table,
                                     struct cairn_error *err) CAIRN_MUST_USE;
/* A row alone; as JSON the object itself. */
enum cairn_code cairn_cli_print_one(const struct cairn_cli *cli, json_t *json,
                                    const struct cairn_cli_table *table,
                                    struct cairn_error *err) CAIRN_MUST_USE;

extern const struct cairn_cli_table cairn_cli_tensor_table; /* rows of the form tensor_row */

/* ---- a checkpoint ---- */

/* "tier=keep,team=nlp", "eval_loss=1.93": labels and metrics as the command line takes them. */
void cairn_cli_pairs(const json_t *pairs, const char *between, char *ret, size_t capacity);
/* "prod, good" */
void cairn_cli_words(const json_t *words, const char *between, char *ret, size_t capacity);
/* "damaged" where each whole copy of a version has known damage, "damaged-in:STORE ..." where
 * another one has none, "" where all are sound. */
void cairn_cli_damage_words(const json_t *copies, char *ret, size_t capacity);
/* One checkpoint: a field a line, or in the form of --output. */
enum cairn_code cairn_cli_print_version(const struct cairn_cli *cli, const json_t *version,
                                        struct cairn_error *err) CAIRN_MUST_USE;
