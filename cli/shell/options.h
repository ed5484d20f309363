/* SPDX-License-Identifier: Apache-2.0 */
/*
 * options: verbs, their flags, the parsed command line, and the choice of a server.
 *
 * Why:     flags, help, exit codes and output formats must be the same for all verbs, so they are
 *          rows of tables; users of several servers should retype neither addresses nor paths.
 * Promise: 1   results go to standard output, everything else to standard error.
 *          2   a failure exits with the status that cairn/codes.h lists; it never changes.
 *          3   help begins with examples; a mistyped verb or flag is answered with the nearest one.
 *          4   precedence: flag, profile of --profile, environment variable, profile of
 *              CAIRN_PROFILE or `profile use`, default.
 *          5   a profile's token and certificates are sent to its own server only.
 *          6   the profiles file holds paths of tokens, never a token; it is replaced whole, mode
 *              0600, and refused if other users can read or write it.
 * Limits:  48 flags and 8 plain arguments a verb; 64 profiles, values of 1,023 bytes.
 * Threads: main thread; verbs start their own workers.
 * Next:    cli/verbs/command.c for the table of verbs.
 */
#pragma once

#include "api/wire/policy.h"
#include "api/wire/rest.h"
#include "common/error.h"

#define CLI_ARGUMENTS_MAX 8

enum cli_output { CLI_TABLE, CLI_JSON, CLI_JSONL, CLI_NAME };
enum cli_progress {
    CLI_PROGRESS_AUTO,
    CLI_PROGRESS_BAR,
    CLI_PROGRESS_PLAIN,
    CLI_PROGRESS_JSON,
    CLI_PROGRESS_NONE
};

#define CLI_TEXTS_MAX 8
struct cli_texts {
    const char *items[CLI_TEXTS_MAX];
    size_t count;
};

/* All flags' values; a verb reads those of the flags it lists. */
struct cli {
    const char *arguments[CLI_ARGUMENTS_MAX];
    size_t argument_count;
    const char *server, *token_file, *ca_file, *socket, *store;
    const char *output_text, *progress_text, *fields;
    const char *profile;
    const struct cli_profile *chosen; /* NULL: none */
    const char *directory, *range, *job, *resume, *wait_for, *format, *state, *subset;
    const char *dtype, *only, *to, *tp_rules, *strip_prefix, *rename;
    const char *labels, *part_size, *listen;
    uint64_t rank, world_size, timeout_ms, limit, step, bytes, ranks, steps, workers;
    bool tp_rules_of_any; /* accept --tp-rule for any format; diff checks its sides itself */
    bool whole_run;
    bool repair;
    bool rank_given, json, metadata_only, read_data, force, keep, help, detach, follow, files_only;
    bool latest;
    bool yes, or_none, dry_run, now, not_freed, allow_empty, keep_all, optimizer, exclude_frozen;
    bool copy_tied, why, strict, same;
    bool tensors, no_links;
    uint64_t keep_numbers[CAIRN_KEEP_NUMBERS], saves, lease_ms, idle_ms;
    bool idle_given;
    const char *newer_than, *from, *confirm, *reason;
    uint64_t since;
    bool since_given;
    /* List filters. */
    const char *selector, *since_time, *trashed;
    uint64_t step_ge, step_lt, attempt;
    bool step_lt_given, attempt_given;
    const char *scopes, *project, *out, *children; /* cairn token */
    bool ready;                                    /* cairn health */
    uint64_t expires_ms, quota_versions, quota_bytes;
    bool quota_versions_given, quota_bytes_given;
    const char *catalog, *data_dir, *config, *stores, *without; /* cairn reindex */
    bool new_grant_key;
    const char *until; /* cairn watch */
    uint64_t every_ms;
    struct cli_texts keep_best, keep_labels, copies, exclude, shards;
    const char *keep_within, *unmeasured_grace, *partner_copies, *after, *note;
    enum cli_output output;
    bool si_sizes, plain_sizes;
    bool wide, yaml; /* all columns of tables; YAML instead of JSON */
    enum cli_progress progress;
    const char *program_folder;   /* the folder of this binary and its siblings */
    struct cairn_rest_seen *seen; /* which server of the list answered; shared by all calls */
};

enum cli_flag_kind {
    CLI_TEXT,
    CLI_TEXTS, /* repeatable */
    CLI_NUMBER,
    CLI_COUNT, /* at least 1 */
    CLI_SIZE,
    CLI_TIME,
    CLI_SWITCH
};
struct cli_flag {
    const char *name; /* without dashes */
    char letter;      /* 0: none */
    enum cli_flag_kind kind;
    size_t offset;      /* in struct cli */
    size_t seen_offset; /* of a bool: the flag was given; 0: none */
    const char *value;  /* the value's name in the help; NULL: a switch */
    const char *help;
};
#define CLI_AT(field) offsetof(struct cli, field)

struct cli_verb {
    const char *name;
    const char *chapter;  /* help heading above this verb; NULL: the previous one continues */
    const char *synopsis; /* "cairn ls [flags] [project/run]" */
    const char *purpose;  /* one line */
    const char *examples; /* one per line */
    const struct cli_flag *flags;
    size_t flag_count;
    size_t arguments_min, arguments_max;
    bool takes_paths;    /* file:///path is accepted, too */
    const char *surplus; /* flag that a surplus argument was probably meant for; NULL: none */
    enum cairn_code (*run)(struct cli *cli, struct cairn_error *err);
};
#define CLI_VERB(id) .name = #id, .run = run_##id
#define CLI_FLAGS(flags_) .flags = (flags_), .flag_count = CAIRN_COUNT(flags_)
#define CLI_ARGUMENTS(min, max) .arguments_min = (min), .arguments_max = (max)
#define CLI_TAKES(flags, min, max) CLI_FLAGS(flags), CLI_ARGUMENTS(min, max)

/* In the order of the help; each is defined in the verb's file. */
/* clang-format off */
#define CLI_VERBS(VERB) \
    VERB(up) VERB(put) VERB(get) VERB(resume) VERB(wait) VERB(abort) VERB(warmup) VERB(bench) \
    VERB(ls) VERB(show) VERB(watch) VERB(events) VERB(lineage) VERB(du) VERB(inspect) VERB(diff) \
    VERB(verify) VERB(policy) VERB(forget) VERB(pin) VERB(unpin) VERB(label) VERB(metric) \
    VERB(alias) VERB(lease) VERB(rm) VERB(undelete) VERB(import) VERB(export) VERB(operation) \
    VERB(doctor) VERB(promote) VERB(demote) VERB(uploads) VERB(gc) VERB(nodes) VERB(uploader) \
    VERB(health) VERB(token) VERB(quota) VERB(webhooks) VERB(reconcile) VERB(reindex) \
    VERB(catalog) VERB(profile) VERB(completion)
/* clang-format on */
#define CLI_DECLARED(id) extern const struct cli_verb cli_verb_##id;
CLI_VERBS(CLI_DECLARED)

/* Source of help, "did you mean" and shell completion. */
extern const struct cli_verb *const cli_verbs[];
extern const size_t cli_verb_count;

/* Flags of every verb: --server, --token-file, --socket, --output, --progress, ... */
extern const struct cli_flag cli_common_flags[];
extern const size_t cli_common_flag_count;

/* Index of the word; count if it is none of them. */
size_t cli_word_index(const char *const *words, size_t count, const char *word);
/* argv[0]: the verb's name. */
enum cairn_code cli_parse(const struct cli_verb *verb, int argc, char **argv, struct cli *cli,
                          struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cli_help(const struct cli_verb *verb, struct cairn_error *err) CAIRN_MUST_USE;
/* The verb's own flags, then the common ones; NULL past the end. */
const struct cli_flag *cli_flag_at(const struct cli_verb *verb, size_t index);
/* Word `index` of the flag's allowed words; NULL past the end or if any value is allowed. */
const char *cli_flag_word(const struct cli_flag *flag, size_t index);
/* The nearest candidate by edit distance; NULL: none is near. */
const char *cli_nearest(const char *word, const char *const *candidates, size_t count);

/* One URL or a list (api/wire/rest.h), by options.h#4. */
const char *cli_server_url(const struct cli *cli);
const char *cli_uploader_socket(const struct cli *cli);
enum cairn_code cli_connect(const struct cli *cli, struct cairn_rest **ret,
                            struct cairn_error *err) CAIRN_MUST_USE;

/* ---- profiles: servers by name, in a file of the user ---- */

#define CLI_PROFILES_MAX 64
#define CLI_PROFILE_NAME_BYTES 64
#define CLI_PROFILE_VALUE_BYTES 1024

/* Missing values are "". */
struct cli_profile {
    char name[CLI_PROFILE_NAME_BYTES];
    char server[CLI_PROFILE_VALUE_BYTES], token_file[CLI_PROFILE_VALUE_BYTES],
        ca_file[CLI_PROFILE_VALUE_BYTES], socket[CLI_PROFILE_VALUE_BYTES];
};
struct cli_profiles {
    char path[CLI_PROFILE_VALUE_BYTES];         /* "": no folder for it */
    char use[CLI_PROFILE_NAME_BYTES];           /* "": none */
    struct cli_profile items[CLI_PROFILES_MAX]; /* sorted by name */
    size_t count;
};
bool cli_profile_name_valid(const char *name);
/* A missing file has no profiles. */
enum cairn_code cli_profiles_load(struct cli_profiles *ret, struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cli_profiles_save(const struct cli_profiles *profiles,
                                  struct cairn_error *err) CAIRN_MUST_USE;
struct cli_profile *cli_profiles_find(struct cli_profiles *profiles, const char *name);
/* Sets cli->chosen by --profile, CAIRN_PROFILE or `profile use`; NULL if none is named. */
enum cairn_code cli_profile_choose(struct cli *cli, struct cairn_error *err) CAIRN_MUST_USE;

/* The server's address and the credentials sent to it; NULL: none. */
struct cli_server {
    const char *url, *token, *token_file, *ca_file, *socket;
};
void cli_server_of(const struct cli *cli, struct cli_server *ret);
