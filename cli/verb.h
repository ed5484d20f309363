/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verb: what every verb of `cairn` is made of.
 *
 * Why:     flags, help, exit codes and output forms must be the same for all verbs, so they are
 *          rows of tables and not code of each verb.
 * Promise: 1   results go to standard output, everything else to standard error.
 *          2   the exit status of a failure is the one cairn/codes.h lists; it never changes.
 *          3   help begins with examples; a mistyped verb or flag is answered with the nearest one.
 * Limits:  32 flags and 8 plain arguments a verb.
 * Threads: main thread; verbs start their own workers.
 * Next:    cli/verb_table.c for the table of verbs.
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

/* Everything a flag can set; a verb reads the fields of the flags it lists. */
struct cairn_cli {
    const char *arguments[CAIRN_CLI_ARGUMENTS_MAX];
    size_t argument_count;
    const char *server, *token_file, *ca_file, *socket, *store;
    const char *output_text, *progress_text, *fields;
    const char *profile;
    const struct cairn_cli_profile *chosen; /* cli/profile.h; NULL: none */
    const char *directory, *range, *job, *resume, *wait_for, *format, *state, *subset;
    const char *dtype, *only, *to, *tp_rules, *strip_prefix, *rename;
    const char *labels, *part_size, *listen;
    uint64_t rank, world_size, timeout_ms, limit, step, bytes, ranks, steps, workers;
    bool tp_rules_of_any; /* no error of a source that rules are not about; diff says it of both */
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
    /* Of a list. */
    const char *selector, *since_time, *trashed;
    uint64_t step_ge, step_lt, attempt;
    bool step_lt_given, attempt_given;
    const char *scopes, *project, *out, *children; /* of a token */
    bool ready; /* of health */
    uint64_t expires_ms, quota_versions, quota_bytes;
    bool quota_versions_given, quota_bytes_given;
    const char *catalog, *data_dir, *config, *stores, *without; /* of a reindex */
    bool new_grant_key;
    const char *until; /* of a watch */
    uint64_t every_ms;
    struct cairn_cli_texts keep_best, keep_labels, copies, exclude, shards;
    const char *keep_within, *unmeasured_grace, *partner_copies, *after, *note;
    enum cairn_cli_output output;
    bool si_sizes, plain_sizes; /* cli/sizes.h */
    bool wide, yaml; /* tables with all their columns; JSON that is printed as YAML */
    enum cairn_cli_progress progress;
    const char *program_folder;   /* where this binary stands; its siblings are there too */
    struct cairn_rest_seen *seen; /* which server of a list answered; shared by all its calls */
};

enum cairn_cli_flag_kind {
    CAIRN_CLI_TEXT,
    CAIRN_CLI_TEXTS, /* one that may be given again: all of them count */
    CAIRN_CLI_NUMBER,
    CAIRN_CLI_COUNT, /* a number of at least 1 */
    CAIRN_CLI_SIZE,
    CAIRN_CLI_TIME,
    CAIRN_CLI_SWITCH
};
struct cairn_cli_flag {
    const char *name; /* without the dashes */
    char letter;      /* 0: none */
    enum cairn_cli_flag_kind kind;
    size_t offset;      /* of the field in struct cairn_cli */
    size_t seen_offset; /* of a bool that tells it was given; 0: none */
    const char *value;  /* name of the value in the help; NULL for switches */
    const char *help;
};
#define CAIRN_CLI_AT(field) offsetof(struct cairn_cli, field)

struct cairn_cli_verb {
    const char *name;
    const char *synopsis; /* "cairn ls [flags] [project/run]" */
    const char *purpose;  /* one line */
    const char *examples; /* three, one per line */
    const struct cairn_cli_flag *flags;
    size_t flag_count;
    size_t arguments_min, arguments_max;
    bool takes_paths; /* as file:///path, too */
    enum cairn_code (*run)(struct cairn_cli *cli, struct cairn_error *err);
};

extern const struct cairn_cli_verb cairn_cli_verb_up, cairn_cli_verb_put, cairn_cli_verb_ls,
    cairn_cli_verb_show, cairn_cli_verb_get, cairn_cli_verb_verify, cairn_cli_verb_wait,
    cairn_cli_verb_resume, cairn_cli_verb_rm, cairn_cli_verb_undelete, cairn_cli_verb_nodes,
    cairn_cli_verb_bench, cairn_cli_verb_doctor, cairn_cli_verb_reconcile, cairn_cli_verb_inspect,
    cairn_cli_verb_catalog, cairn_cli_verb_forget, cairn_cli_verb_policy, cairn_cli_verb_pin,
    cairn_cli_verb_unpin, cairn_cli_verb_label, cairn_cli_verb_metric, cairn_cli_verb_du,
    cairn_cli_verb_export, cairn_cli_verb_alias, cairn_cli_verb_lease,
    cairn_cli_verb_lineage, cairn_cli_verb_import, cairn_cli_verb_diff,
    cairn_cli_verb_events, cairn_cli_verb_token, cairn_cli_verb_operation,
    cairn_cli_verb_quota, cairn_cli_verb_uploads, cairn_cli_verb_gc, cairn_cli_verb_webhooks,
    cairn_cli_verb_promote, cairn_cli_verb_demote, cairn_cli_verb_reindex,
    cairn_cli_verb_watch, cairn_cli_verb_profile, cairn_cli_verb_uploader,
    cairn_cli_verb_warmup, cairn_cli_verb_abort, cairn_cli_verb_completion,
    cairn_cli_verb_health;

/* All of them: what help, "did you mean" and the shells' completion are made from. */
extern const struct cairn_cli_verb *const cairn_cli_verbs[];
extern const size_t cairn_cli_verb_count;
/* The title of the chapter that begins with this verb; NULL: it goes on. */
const char *cairn_cli_chapter_of(const struct cairn_cli_verb *first);

/* Flags that every verb takes: --server, --token-file, --socket, --output, --progress, ... */
extern const struct cairn_cli_flag cairn_cli_common_flags[];
extern const size_t cairn_cli_common_flag_count;
