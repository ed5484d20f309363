/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config: one table of settings per program, flag over environment over file over default; and the
 * start of every program, from main's argv to its settings.
 *
 * Why:     a setting is one line: flag, variable, file key, bounds, help text and documentation
 *          come from it. --help, --version, --print-config, --print-docs and the error messages
 *          are the same in all daemons.
 * Promise: 1   an unknown key or flag, a value out of bounds or malformed is an error that names
 *              key, value, bound and origin. Nothing is ignored.
 *          2   --print-config shows every value with its origin; values of SECRET_FILE settings
 *              are paths, never contents.
 *          3   bounds and defaults are parsed by the parser of user input.
 *          4   flags that only print are handled before anything else is read.
 *          5   an argument that is no setting is CAIRN_INVALID naming it.
 *          6   a write to a closed pipe, or beyond RLIMIT_FSIZE, fails (EPIPE, EFBIG); its signal
 *              ends no program.
 *          7   a process with hidden memory leaves no core file, and no other process of its user
 *              can read its keys, tokens and environment.
 * Limits:  64 KiB config files, `key = value` or `key = "value"` lines, # comment lines; names of
 *          64 bytes, TEXT values of 4,096.
 * Threads: parsed once at start, then immutable.
 * Next:    server/settings.def, uploader/settings.def.
 *
 * A program's table is a .def file of lines
 *     CONFIG(SIZE, part_size, "64MiB", "5MiB", "5GiB", "Larger parts need fewer requests.")
 * expanded into a struct (fields through CAIRN_CONFIG_FIELD_<TYPE>) and an array of struct
 * cairn_config_row. Flag --part-size, variable CAIRN_PART_SIZE, key part_size.
 */
#pragma once

#include "common/buf.h"

enum cairn_config_type {
    CAIRN_CONFIG_TEXT,  /* char *; min and max bound the length */
    CAIRN_CONFIG_FLAG,  /* a TEXT without a variable: CAIRN_<NAME> belongs to another program */
    CAIRN_CONFIG_COUNT, /* uint64_t */
    CAIRN_CONFIG_SIZE,  /* uint64_t, bytes */
    CAIRN_CONFIG_TIME,  /* uint64_t, ms */
    CAIRN_CONFIG_BOOL,  /* bool: true/false/yes/no/1/0 */
};
#define CAIRN_CONFIG_FIELD_TEXT(name) char *name;
#define CAIRN_CONFIG_FIELD_FLAG(name) char *name;
#define CAIRN_CONFIG_FIELD_COUNT(name) uint64_t name;
#define CAIRN_CONFIG_FIELD_SIZE(name) uint64_t name##_bytes;
#define CAIRN_CONFIG_FIELD_TIME(name) uint64_t name##_ms;
#define CAIRN_CONFIG_FIELD_BOOL(name) bool name;
#define CAIRN_CONFIG_MEMBER_TEXT(name) name
#define CAIRN_CONFIG_MEMBER_FLAG(name) name
#define CAIRN_CONFIG_MEMBER_COUNT(name) name
#define CAIRN_CONFIG_MEMBER_SIZE(name) name##_bytes
#define CAIRN_CONFIG_MEMBER_TIME(name) name##_ms
#define CAIRN_CONFIG_MEMBER_BOOL(name) name

struct cairn_config_row {
    const char *name;
    enum cairn_config_type type;
    const char *fallback, *min, *max, *why;
    size_t offset; /* of the field in `values` */
};
#define CAIRN_CONFIG_ROW(program, type, name, fallback, min, max, why)                             \
    {#name,                                                                                        \
     CAIRN_CONFIG_##type,                                                                          \
     fallback,                                                                                     \
     min,                                                                                          \
     max,                                                                                          \
     why,                                                                                          \
     offsetof(struct program, CAIRN_CONFIG_MEMBER_##type(name))},

struct cairn_config {
    const struct cairn_config_row *rows;
    size_t row_count;
    void *values;        /* the program's struct */
    char (*origins)[96]; /* one per row: "default", "environment", "flag", "FILE:LINE" */
};
enum cairn_code cairn_config_init(struct cairn_config *config, const struct cairn_config_row *rows,
                                  size_t row_count, void *values,
                                  struct cairn_error *err) CAIRN_MUST_USE;
void cairn_config_release(struct cairn_config *config); /* frees TEXT values too */
enum cairn_code cairn_config_file(struct cairn_config *config, const char *path,
                                  struct cairn_error *err) CAIRN_MUST_USE;
/* Reads CAIRN_<NAME> of each row except FLAG rows; ignores other CAIRN_ variables. */
enum cairn_code cairn_config_environment(struct cairn_config *config,
                                         struct cairn_error *err) CAIRN_MUST_USE;
/* For --help, --print-config and the like, before settings are read: removes `flag` from argv if it
 * stands before "--"; returns whether it did. */
bool cairn_config_take(int *argc, char **argv, const char *flag);
enum cairn_code cairn_config_set(struct cairn_config *config, const char *name, const char *value,
                                 const char *origin, struct cairn_error *err) CAIRN_MUST_USE;
/* Is the value the table's default, so that a program may choose a better one? */
bool cairn_config_is_default(const struct cairn_config *config, const char *name);
/* Applies defaults, file (--config or $CAIRN_CONFIG), environment and flags, in this order. A flag
 * is --name value, --name=value, or --name of a BOOL; the first other argument ends them. *ret_used
 * counts the arguments consumed. */
enum cairn_code cairn_config_load(struct cairn_config *config, int argc, char **argv, int *ret_used,
                                  struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_config_print(const struct cairn_config *config, struct cairn_buf *ret,
                                   struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_config_help(const struct cairn_config *config, struct cairn_buf *ret,
                                  struct cairn_error *err) CAIRN_MUST_USE;
/* Markdown table for docs/config.md. */
enum cairn_code cairn_config_docs(const struct cairn_config *config, struct cairn_buf *ret,
                                  struct cairn_error *err) CAIRN_MUST_USE;

/* ---- the start of a program ---- */

void cairn_start_signals(void); /* config.h#6 */
/* config.h#7. Not for libcairn: the process belongs to the trainer. */
enum cairn_code cairn_start_hide_memory(struct cairn_error *err) CAIRN_MUST_USE;

struct cairn_start {
    const char *version; /* one line */
    const char *usage;   /* the help text above the settings, with its blank line */
    const struct cairn_config_row *rows;
    size_t row_count;
    void *values; /* the program's struct */
};
/* *ret_done: a flag that only prints was handled. Release config in any case. */
enum cairn_code cairn_start_settings(const struct cairn_start *start, int argc, char **argv,
                                     struct cairn_config *config, bool *ret_done,
                                     struct cairn_error *err) CAIRN_MUST_USE;
