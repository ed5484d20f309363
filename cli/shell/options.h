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

#define CAIRN_CLI_ARGUMENTS_MAX 8

enum cairn_cli_output { CAIRN_CLI_TABLE, CAIRN_CLI_JSON, CAIRN_CLI_JSONL, CAIRN_CLI_NAME };
enum cairn_cli_progress {
    CAIRN_CLI_PROGRESS_AUTO,
    CAIRN_CLI_PROGRESS_BAR,
    CAIRN_CLI_PROGRESS_PLAIN,
    CAIRN_CLI_PROGRESS_JSON,
    CAIRN_CLI_PROGRESS_NONE
};

#define CAIRN_CLI_TEXTS_MAX 8
struct cairn_cli_texts {
    const char *items[CAIRN_CLI_TEXTS_MAX];
    size_t count;
};

/* All flags' values; a verb reads those of the flags it lists. */
struct cairn_cli {
    const char *arguments[CAIRN_CLI_ARGUMENTS_MAX];
    size_t argument_count;
    const char *server, *token_file, *ca_file, *socket, *store;
    const char *output_text, *progress_text, *fields;
    const char *profile;
    const struct cairn_cli_profile *chosen; /* NULL: none */
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
    struct cairn_cli_texts keep_best, keep_labels, copies, exclude, shards;
    const char *keep_within, *unmeasured_grace, *partner_copies, *after, *note;
    enum cairn_cli_output output;
    bool si_sizes, plain_sizes;
    bool wide, yaml; /* all columns of tables; YAML instead of JSON */
    enum cairn_cli_progress progress;
    const char *program_folder;   /* the folder of this binary and its siblings */
    struct cairn_rest_seen *seen; /* which server of the list answered; shared by all calls */
};

enum cairn_cli_flag_kind {
    CAIRN_CLI_TEXT,
    CAIRN_CLI_TEXTS, /* repeatable */
    CAIRN_CLI_NUMBER,
    CAIRN_CLI_COUNT, /* at least 1 */
    CAIRN_CLI_SIZE,
    CAIRN_CLI_TIME,
    CAIRN_CLI_SWITCH
};
struct cairn_cli_flag {
    const char *name; /* without dashes */
    char letter;      /* 0: none */
    enum cairn_cli_flag_kind kind;
    size_t offset;      /* in struct cairn_cli */
    size_t seen_offset; /* of a bool: the flag was given; 0: none */
    const char *value;  /* the value's name in the help; NULL: a switch */
    const char *help;
};
#define CAIRN_CLI_AT(field) offsetof(struct cairn_cli, field)

struct cairn_cli_verb {
    const char *name;
    const char *chapter;  /* help heading above this verb; NULL: the previous one continues */
    const char *synopsis; /* "cairn ls [flags] [project/run]" */
    const char *purpose;  /* one line */
    const char *examples; /* one per line */
    const struct cairn_cli_flag *flags;
    size_t flag_count;
    size_t arguments_min, arguments_max;
    bool takes_paths; /* file:///path is accepted, too */
    enum cairn_code (*run)(struct cairn_cli *cli, struct cairn_error *err);
};
#define CAIRN_CLI_FLAGS(flags_) .flags = (flags_), .flag_count = CAIRN_COUNT(flags_)
#define CAIRN_CLI_ARGUMENTS(min, max) .arguments_min = (min), .arguments_max = (max)

extern const struct cairn_cli_verb cairn_cli_verb_up, cairn_cli_verb_put, cairn_cli_verb_ls,
    cairn_cli_verb_show, cairn_cli_verb_get, cairn_cli_verb_verify, cairn_cli_verb_wait,
    cairn_cli_verb_resume, cairn_cli_verb_rm, cairn_cli_verb_undelete, cairn_cli_verb_nodes,
    cairn_cli_verb_bench, cairn_cli_verb_doctor, cairn_cli_verb_reconcile, cairn_cli_verb_inspect,
    cairn_cli_verb_catalog, cairn_cli_verb_forget, cairn_cli_verb_policy, cairn_cli_verb_pin,
    cairn_cli_verb_unpin, cairn_cli_verb_label, cairn_cli_verb_metric, cairn_cli_verb_du,
    cairn_cli_verb_export, cairn_cli_verb_alias, cairn_cli_verb_lease, cairn_cli_verb_lineage,
    cairn_cli_verb_import, cairn_cli_verb_diff, cairn_cli_verb_events, cairn_cli_verb_token,
    cairn_cli_verb_operation, cairn_cli_verb_quota, cairn_cli_verb_uploads, cairn_cli_verb_gc,
    cairn_cli_verb_webhooks, cairn_cli_verb_promote, cairn_cli_verb_demote, cairn_cli_verb_reindex,
    cairn_cli_verb_watch, cairn_cli_verb_profile, cairn_cli_verb_uploader, cairn_cli_verb_warmup,
    cairn_cli_verb_abort, cairn_cli_verb_completion, cairn_cli_verb_health;

/* Source of help, "did you mean" and shell completion. */
extern const struct cairn_cli_verb *const cairn_cli_verbs[];
extern const size_t cairn_cli_verb_count;

/* Flags of every verb: --server, --token-file, --socket, --output, --progress, ... */
extern const struct cairn_cli_flag cairn_cli_common_flags[];
extern const size_t cairn_cli_common_flag_count;

/* argv[0]: the verb's name. */
enum cairn_code cairn_cli_parse(const struct cairn_cli_verb *verb, int argc, char **argv,
                                struct cairn_cli *cli, struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_cli_help(const struct cairn_cli_verb *verb,
                               struct cairn_error *err) CAIRN_MUST_USE;
/* The verb's own flags, then the common ones; NULL past the end. */
const struct cairn_cli_flag *cairn_cli_flag_at(const struct cairn_cli_verb *verb, size_t index);
/* Word `index` of the flag's allowed words; NULL past the end or if any value is allowed. */
const char *cairn_cli_flag_word(const struct cairn_cli_flag *flag, size_t index);
/* The nearest candidate by edit distance; NULL: none is near. */
const char *cairn_cli_nearest(const char *word, const char *const *candidates, size_t count);

/* One URL or a list (api/wire/rest.h), by options.h#4. */
const char *cairn_cli_server_url(const struct cairn_cli *cli);
const char *cairn_cli_uploader_socket(const struct cairn_cli *cli);
enum cairn_code cairn_cli_connect(const struct cairn_cli *cli, struct cairn_rest **ret,
                                  struct cairn_error *err) CAIRN_MUST_USE;

/* ---- profiles: servers by name, in a file of the user ---- */

#define CAIRN_CLI_PROFILES_MAX 64
#define CAIRN_CLI_PROFILE_NAME_BYTES 64
#define CAIRN_CLI_PROFILE_VALUE_BYTES 1024

/* Missing values are "". */
struct cairn_cli_profile {
    char name[CAIRN_CLI_PROFILE_NAME_BYTES];
    char server[CAIRN_CLI_PROFILE_VALUE_BYTES], token_file[CAIRN_CLI_PROFILE_VALUE_BYTES],
        ca_file[CAIRN_CLI_PROFILE_VALUE_BYTES], socket[CAIRN_CLI_PROFILE_VALUE_BYTES];
};
struct cairn_cli_profiles {
    char path[CAIRN_CLI_PROFILE_VALUE_BYTES];               /* "": no folder for it */
    char use[CAIRN_CLI_PROFILE_NAME_BYTES];                 /* "": none */
    struct cairn_cli_profile items[CAIRN_CLI_PROFILES_MAX]; /* sorted by name */
    size_t count;
};
bool cairn_cli_profile_name_valid(const char *name);
/* A missing file has no profiles. */
enum cairn_code cairn_cli_profiles_load(struct cairn_cli_profiles *ret,
                                        struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_cli_profiles_save(const struct cairn_cli_profiles *profiles,
                                        struct cairn_error *err) CAIRN_MUST_USE;
struct cairn_cli_profile *cairn_cli_profiles_find(struct cairn_cli_profiles *profiles,
                                                  const char *name);
/* Sets cli->chosen by --profile, CAIRN_PROFILE or `profile use`; NULL if none is named. */
enum cairn_code cairn_cli_profile_choose(struct cairn_cli *cli,
                                         struct cairn_error *err) CAIRN_MUST_USE;

/* The server's address and the credentials sent to it; NULL: none. */
struct cairn_cli_server {
    const char *url, *token, *token_file, *ca_file, *socket;
};
void cairn_cli_server_of(const struct cairn_cli *cli, struct cairn_cli_server *ret);

/* Copies a failure that the caller has examined into *err. */
static inline enum cairn_code cairn_cli_pass_on(const struct cairn_error *why, enum cairn_code code,
                                                struct cairn_error *err) {
    if (code && err) *err = *why;
    return code;
}
