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
 * Limits:  16 columns; 64 --fields; CLI_SPARK_MAX spark values. Longer texts are truncated.
 * Threads: main thread; sizes from any thread after cli_print_as.
 * Next:    cli/shell/output_tables.c, cli/shell/output.c.
 */
#pragma once

#include "api/wire/messages.h"
#include "cli/shell/call.h"
#include "common/json.h"

/* Sets YAML, --fields and the form of sizes; called once, before any output. */
void cli_print_as(const struct cli *cli);
/* --output json or jsonl. */
bool cli_wants_json(const struct cli *cli);
enum cairn_code cli_print_json(const json_t *json, bool pretty,
                               struct cairn_error *err) CAIRN_MUST_USE;
/* Indented with --output json. */
enum cairn_code cli_print_reply(const struct cli *cli, const json_t *json,
                                struct cairn_error *err) CAIRN_MUST_USE;
/* The member of that name; dots select inner ones. NULL: none. */
json_t *cli_member(const json_t *object, struct cairn_view name);
/* One line for each item of the array. */
enum cairn_code cli_print_lines(const json_t *items, struct cairn_error *err) CAIRN_MUST_USE;
/* Flushes standard output and reports write errors. */
enum cairn_code cli_flush(struct cairn_error *err) CAIRN_MUST_USE;

/* ---- text ---- */

/* Use within a printf's arguments, like cairn_counted. */
struct cli_size {
    char text[24];
};
struct cli_size cli_size(uint64_t bytes);

/* Control and bidirectional characters become '?': foreign text must not steer the terminal. */
void cli_clean(char *text);
/* Adds to a CAIRN_NO_SPACE: space needed and free, the way out, and `left`, what stays on disk. */
enum cairn_code cli_no_space(const char *folder, uint64_t needed_bytes, const char *left,
                             struct cairn_error *err);
/* One cleaned line on standard error. */
void cli_note(const char *format, ...) CAIRN_PRINTF(1, 2);
/* Reads the answer to a [y/N] question. */
bool cli_says_yes(void);
/* Appends to text, after `between` unless text is empty; truncates at capacity. */
void cli_add(char *text, size_t capacity, const char *between, const char *format, ...)
    CAIRN_PRINTF(4, 5);

/* ---- paint ---- */

#define CLI_SPARK_MAX 60

enum cli_tone {
    CLI_TONE_NONE,
    CLI_TONE_HEAD,
    CLI_TONE_GOOD,
    CLI_TONE_BUSY,
    CLI_TONE_BAD,
    CLI_TONE_QUIET, /* trashed, superseded */
};
/* Called once, before any output. */
void cli_paint_init(const struct cli *cli);
/* Whether standard output is a terminal, also if colours are off. */
bool cli_paint_terminal(void);
/* Escapes before and after coloured text; "" if colours are off. */
const char *cli_tone(enum cli_tone tone);
const char *cli_tone_end(enum cli_tone tone);
/* Terminals only: spark lines of stalls and commit intervals; `versions` is newest first. */
void cli_spark_versions(const json_t *versions);

/* ---- tables ---- */

#define CLI_COLUMNS_MAX 16

/* The text of an item: "{name}" is a member, dots select inner ones; "[...]" is left out unless all
 * members in it are there. A member is not there if it is absent, null or "". Inside the braces:
 *   a|b|=text            the first that is there, else text
 *   a?text               text if a is true
 *   a#object  a#is/are   "1 object", "2 objects"; "1 is", "2 are"
 *   a:size               a number of bytes; a:some the same, but 0 is not there; a:rate with "/s"
 *   a:list  a:packed     the words of an array, or name=value of an object, after ", " or ","
 *   a:if                 nothing; there if a is neither false nor 0
 *   a>10  a:size<10      filled up to ten characters on its left, on its right */
void cli_format(const char *format, const json_t *item, char *ret, size_t capacity);
/* The text, cleaned, as a line on standard output or as a note; an empty note is none. */
void cli_tell(const char *format, const json_t *item);
void cli_note_of(const char *format, const json_t *item);
/* Format of an answer to GET /gc. */
#define CLI_KEPT_BYTES                                                                             \
    "[{not_freed:if}kept by the store: {not_freed_bytes:size} of {not_freed#deleted version}; "    \
    "cairn gc --not-freed says why]"

struct cli_column {
    const char *title; /* NULL: past the last column */
    const char *text;  /* by cli_format; NULL: by cell */
    enum cli_column_kind {
        CLI_LEFT = 0,
        CLI_RIGHT = 1, /* right-aligned */
        CLI_WIDE = 2,  /* needs --wide */
    } kind;            /* or'ed */
    void (*cell)(const json_t *item, char *ret, size_t capacity);
};
struct cli_table {
    enum cairn_message form; /* of an item; none: this program made it */
    const char *name;        /* format of --output name */
    const char *line;        /* format of an item without columns; NULL: columns */
    struct cli_column columns[CLI_COLUMNS_MAX + 1];
};
/* A table with lines prints --output jsonl as a stream: item by item. */
enum cairn_code cli_print(const struct cli *cli, const json_t *items, const struct cli_table *table,
                          struct cairn_error *err) CAIRN_MUST_USE;
/* Prints the list that cli_list gets. */
enum cairn_code cli_print_list(const struct cli *cli, const struct cli_ref *ref, const char *tail,
                               uint64_t limit, const struct cli_table *table,
                               struct cairn_error *err) CAIRN_MUST_USE;
/* One row; as JSON the object itself. */
enum cairn_code cli_print_one(const struct cli *cli, json_t *json, const struct cli_table *table,
                              struct cairn_error *err) CAIRN_MUST_USE;

extern const struct cli_table cli_tensor_table;

/* ---- a checkpoint ---- */

/* "damaged": every whole copy has known damage; "damaged-in:STORE ...": some have; "": none. */
void cli_damage_words(const json_t *copies, char *ret, size_t capacity);
/* One field per line, or by --output. */
enum cairn_code cli_print_version(const struct cli *cli, const json_t *version,
                                  struct cairn_error *err) CAIRN_MUST_USE;
