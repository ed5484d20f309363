/* SPDX-License-Identifier: Apache-2.0 */
/* cairn forget: what a policy removes of a run, of several, or of all of a project is shown first,
 * each by itself, and that and nothing else goes into the trash when somebody says so. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "cli/shell/output.h"
#include "cli/verbs/keep.h"
#include "common/array.h"
#include "common/text.h"

#define RUNS_FORGOTTEN_MAX 10000 /* of projects that are named whole */

static const struct cairn_cli_flag forget_flags[] = {
    CAIRN_CLI_KEEP_FLAGS,
    {"dry-run", 'n', CAIRN_CLI_SWITCH, CAIRN_CLI_AT(dry_run), 0, NULL,
     "Show what would go; change nothing."},
    {"allow-empty", 0, CAIRN_CLI_SWITCH, CAIRN_CLI_AT(allow_empty), 0, NULL,
     "Not even the newest is kept; no rule keeps nothing."},
    {"yes", 'y', CAIRN_CLI_SWITCH, CAIRN_CLI_AT(yes), 0, NULL, "Do not ask."},
};

static json_t *body_of(const struct cairn_cli *cli, json_t *policy, const char *plan_etag) {
    return json_pack("{s:b, s:O*, s:s*}", "allow_empty", cli->allow_empty, "policy", policy,
                     "plan_etag", plan_etag);
}

/* ---- which runs ---- */

struct forgotten {
    struct cairn_cli_ref run;
    json_t *plan;
    struct cairn_msg_retention_plan row; /* of plan */
    uint64_t removed;
};
struct forgetting {
    struct cairn_cli *cli;
    json_t *policy; /* NULL: that of each */
    struct forgotten *items;
    size_t count, capacity;
    uint64_t remove, removed;
};

static void release(struct forgetting *all) {
    for (size_t i = 0; i < all->count; i++) json_decref(all->items[i].plan);
    free(all->items);
}

static enum cairn_code add_run(struct forgetting *all, const char *text, struct cairn_error *err) {
    CAIRN_TRY(
        CAIRN_ARRAY_ROOM(all->items, all->count, all->capacity, RUNS_FORGOTTEN_MAX, "runs", err));
    struct forgotten *one = &all->items[all->count];
    *one = (struct forgotten){0};
    CAIRN_TRY(cairn_cli_ref_run("forget", text, &one->run, err));
    for (size_t i = 0; i < all->count; i++) { /* named twice it is shown once */
        const struct cairn_run_name *name = &all->items[i].run.name;
        if (!strcmp(name->project, one->run.name.project) && !strcmp(name->run, one->run.name.run))
            return CAIRN_OK;
    }
    all->count++;
    return CAIRN_OK;
}

static enum cairn_code add_project(struct forgetting *all, const char *project,
                                   struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *items = json_array();
    char path[CAIRN_NAME_BYTES_MAX + 32], text[2 * CAIRN_NAME_BYTES_MAX + 2];
    bool more = false;
    size_t index = 0;
    json_t *item = NULL;
    if (!cairn_name_valid(cairn_view_of(project)))
        return cairn_fail(err, CAIRN_INVALID, "\"%.64s\" is neither project/run nor a project",
                          project);
    snprintf(path, sizeof path, "/v1/runs?project=%s", project);
    CAIRN_TRY(cairn_cli_list(all->cli, path, RUNS_FORGOTTEN_MAX, items, &more, err));
    if (more || !json_array_size(items))
        return cairn_fail(err, more ? CAIRN_TOO_LARGE : CAIRN_NOT_FOUND,
                          more ? "%s has more than 10000 runs: name some" : "%s has no run",
                          project);
    json_array_foreach(items, index, item) {
        struct cairn_msg_run_row row = {0};
        CAIRN_TRY(cairn_cli_reply_read(CAIRN_MESSAGE_run_row, item, &row, err));
        snprintf(text, sizeof text, "%s/%s", row.project, row.run);
        CAIRN_TRY(add_run(all, text, err));
    }
    return CAIRN_OK;
}

static enum cairn_code find_runs(struct forgetting *all, struct cairn_error *err) {
    for (size_t i = 0; i < all->cli->argument_count; i++) {
        const char *text = all->cli->arguments[i];
        CAIRN_TRY(strchr(text, '/') ? add_run(all, text, err) : add_project(all, text, err));
    }
    return CAIRN_OK;
}

/* ---- what would go ---- */

static enum cairn_code look_at(struct forgetting *all, struct forgotten *one,
                               struct cairn_error *err) {
    json_t *body = body_of(all->cli, all->policy, NULL);
    CAIRN_TRY(cairn_cli_keep_preview(all->cli, &one->run, body, &one->plan, err));
    CAIRN_TRY(cairn_cli_reply_read(CAIRN_MESSAGE_retention_plan, one->plan, &one->row, err));
    all->remove += one->row.remove;
    return all->policy ? cairn_cli_keep_check(all->cli, &one->run, one->plan, err) : CAIRN_OK;
}

static bool has_rule(const struct forgetting *all, const struct forgotten *one) {
    const json_t *keep = json_object_get(json_object_get(one->plan, "policy"), "keep");
    return all->cli->allow_empty || json_object_size(keep);
}

/* A run without a rule loses nothing, which is not what was asked for; of several it is said. */
static enum cairn_code check_ruled(const struct forgetting *all, struct cairn_error *err) {
    const struct forgotten *none = NULL;
    size_t ruled = 0;
    for (size_t i = 0; i < all->count; i++) {
        const struct forgotten *one = &all->items[i];
        ruled += has_rule(all, one);
        if (has_rule(all, one)) continue;
        none = one;
        if (all->count > 1)
            cairn_cli_note("%s/%s has no policy: nothing of it goes", one->run.name.project,
                           one->run.name.run);
    }
    if (ruled || !none) return CAIRN_OK;
    return cairn_fail(err, CAIRN_CONFLICT,
                      "%s has no policy (%s): name rules, as --keep-last 3, or set one with cairn "
                      "policy set",
                      all->cli->arguments[0], none->row.text);
}

static enum cairn_code confirm_forget(const struct forgetting *all, struct cairn_error *err) {
    char answer[8] = "", of[48] = "";
    struct cairn_cli_count what = cairn_cli_counted(all->remove, "checkpoint", "checkpoints");
    if (all->cli->yes) return CAIRN_OK;
    if (all->count > 1) snprintf(of, sizeof of, " of %zu runs", all->count);
    if (!isatty(STDIN_FILENO))
        return cairn_fail(err, CAIRN_INVALID,
                          "%s%s would go into the trash: say --yes, or --dry-run", what.text, of);
    fprintf(stderr, "%s%s into the trash? [y/N] ", what.text, of);
    if (fgets(answer, sizeof answer, stdin) && (answer[0] == 'y' || answer[0] == 'Y'))
        return CAIRN_OK;
    return cairn_fail(err, CAIRN_CANCELLED, "nothing of %s was changed", all->cli->arguments[0]);
}

/* The server removes at most so many a call; the rest has a tag of its own. */
static enum cairn_code apply_plan(const struct cairn_cli *cli, const struct cairn_cli_ref *run,
                                  json_t *policy, const char *plan_etag, uint64_t *ret_removed,
                                  struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *reply = NULL;
    for (uint64_t left = 1; left;) {
        struct cairn_msg_retention_applied applied = {0};
        CAIRN_AUTO_JSON json_t *body = body_of(cli, policy, plan_etag);
        struct cairn_cli_call call = {
            .method = "POST", .tail = "/retention/apply", .body = body, .timeout_ms = 600000};
        json_t *answer = NULL;
        CAIRN_TRY(cairn_cli_call(cli, run, call, &answer, err));
        json_decref(reply);
        reply = answer;
        CAIRN_TRY(cairn_cli_reply_read(CAIRN_MESSAGE_retention_applied, reply, &applied, err));
        *ret_removed += applied.removed;
        left = applied.removed ? applied.left : 0;
        plan_etag = applied.plan_etag;
    }
    return CAIRN_OK;
}

/* A run whose plan is another by now keeps all it has, and the others go on. */
static enum cairn_code apply_all(struct forgetting *all, struct cairn_error *err) {
    struct cairn_error first = {0};
    size_t failed = 0;
    for (size_t i = 0; i < all->count; i++) {
        struct forgotten *one = &all->items[i];
        struct cairn_error why = {0};
        if (!one->row.remove) continue;
        enum cairn_code code =
            apply_plan(all->cli, &one->run, all->policy, one->row.plan_etag, &one->removed, &why);
        all->removed += one->removed;
        if (code && all->count == 1) *err = why;
        if (code && all->count == 1) return code;
        if (!code) continue;
        cairn_cli_note("%s/%s: %s", one->run.name.project, one->run.name.run, why.message);
        if (!failed++) first = why;
    }
    if (!failed) return CAIRN_OK;
    return cairn_fail(err, first.code, "of %zu of %zu runs not all went that was shown", failed,
                      all->count);
}

static enum cairn_code show_json(const struct forgetting *all, struct cairn_error *err) {
    bool pretty = all->cli->output == CAIRN_CLI_JSON, several = all->count > 1;
    CAIRN_AUTO_JSON json_t *list = json_array();
    bool whole = list != NULL;
    for (size_t i = 0; whole && i < all->count; i++) {
        const struct forgotten *one = &all->items[i];
        json_t *removed = json_integer((json_int_t)one->removed);
        whole &= !json_object_set_new(one->plan, "removed", removed);
        if (several)
            whole &= !json_object_set_new(one->plan, "project",
                                          json_string(one->run.name.project)) &&
                     !json_object_set_new(one->plan, "run", json_string(one->run.name.run));
        whole &= !json_array_append(list, one->plan);
    }
    if (!whole) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the answer");
    if (several && pretty) return cairn_cli_print_json(list, true, err);
    for (size_t i = 0; i < all->count; i++)
        CAIRN_TRY(cairn_cli_print_json(all->items[i].plan, pretty, err));
    return CAIRN_OK;
}

static enum cairn_code show_tables(const struct forgetting *all, struct cairn_error *err) {
    const char *end = all->cli->dry_run ? "nothing was changed (--dry-run)" : "";
    for (size_t i = 0; i < all->count; i++)
        CAIRN_TRY(cairn_cli_keep_print(&all->items[i].run, all->items[i].plan, end, err));
    return CAIRN_OK;
}

static enum cairn_code forget(struct forgetting *all, struct cairn_error *err) {
    const struct cairn_cli *cli = all->cli;
    bool is_table = cli->output == CAIRN_CLI_TABLE;
    enum cairn_code code = CAIRN_OK;
    CAIRN_TRY(find_runs(all, err));
    for (size_t i = 0; i < all->count; i++) CAIRN_TRY(look_at(all, &all->items[i], err));
    CAIRN_TRY(check_ruled(all, err));
    if (is_table) CAIRN_TRY(show_tables(all, err));
    if (all->remove && !cli->dry_run) CAIRN_TRY(confirm_forget(all, err));
    if (all->remove && !cli->dry_run) code = apply_all(all, err);
    if (code && all->count == 1) return code;
    if (!is_table) CAIRN_TRY(show_json(all, code ? NULL : err));
    if (is_table && !cli->dry_run) printf("%" PRIu64 " in the trash\n", all->removed);
    if (fflush(stdout) && !code) return cairn_fail_errno(err, "standard output");
    return code;
}

static enum cairn_code run_forget(struct cairn_cli *cli, struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *policy = NULL;
    CAIRN_TRY(cairn_cli_keep_policy(cli, &policy, err));
    struct forgetting all = {.cli = cli, .policy = policy};
    enum cairn_code code = forget(&all, err);
    release(&all);
    return code;
}

const struct cairn_cli_verb cairn_cli_verb_forget = {
    .name = "forget",
    .synopsis = "cairn forget [flags] project/run|project ...",
    .purpose = "Show what a policy removes of runs, and remove that.",
    .examples = "  cairn forget llm/7b --dry-run\n"
                "  cairn forget llm/7b --keep-last 3 --keep-every-steps 1000\n"
                "  cairn forget llm vision/vit --keep-last 1 --yes\n",
    .flags = forget_flags,
    .flag_count = CAIRN_COUNT(forget_flags),
    .arguments_min = 1,
    .arguments_max = CAIRN_CLI_ARGUMENTS_MAX,
    .run = run_forget,
};
