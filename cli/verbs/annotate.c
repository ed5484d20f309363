/* SPDX-License-Identifier: Apache-2.0 */
/* cairn pin, unpin, label and metric: what people say of a checkpoint, or of a run. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "cli/shell/output.h"
#include "cli/shell/said.h"

static const struct cairn_cli_flag pin_flags[] = {
    {"note", 0, CAIRN_CLI_TEXT, CAIRN_CLI_AT(note), 0, "TEXT", "Why; shown with the checkpoint."},
};

/* "is pinned"; of labels and metrics those that it has now. */
static void say_changed(const json_t *shown, const char *done, const char *pairs) {
    char text[4000];
    cairn_cli_pairs(pairs ? json_object_get(shown, pairs) : NULL, ", ", text, sizeof text);
    cairn_cli_clean(text);
    if (pairs)
        printf(" has %s %s\n", *text ? pairs : "no", *text ? text : pairs);
    else
        printf(" %s\n", done);
}

/* take_changes: the body; NULL is no memory. pairs: the member that was changed, else NULL. */
static enum cairn_code patch(const struct cairn_cli *cli, const struct cairn_cli_ref *ref,
                             json_t *take_changes, const char *done, const char *pairs,
                             struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *changes = take_changes, *shown = NULL;
    if (!changes) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a change");
    struct cairn_cli_call call = {.method = "PATCH", .body = changes, .if_match = "*"};
    CAIRN_TRY(cairn_cli_call(cli, ref, call, &shown, err));
    if (cli->output == CAIRN_CLI_JSON || cli->output == CAIRN_CLI_JSONL)
        return cairn_cli_print_json(shown, cli->output == CAIRN_CLI_JSON, err);
    if (!ref->version[0]) {
        printf("%s/%s", ref->name.project, ref->name.run);
        say_changed(shown, done, pairs);
        return fflush(stdout) ? cairn_fail_errno(err, "standard output") : CAIRN_OK;
    }
    struct cairn_msg_version_row version = {0};
    CAIRN_TRY(cairn_cli_reply_read(CAIRN_MESSAGE_version_row, shown, &version, err));
    if (cli->output == CAIRN_CLI_NAME) {
        puts(version.version);
    } else {
        printf("%s (step %llu)", version.version, (unsigned long long)version.step);
        say_changed(shown, done, pairs);
    }
    return fflush(stdout) ? cairn_fail_errno(err, "standard output") : CAIRN_OK;
}

static enum cairn_code checkpoint(const struct cairn_cli *cli, struct cairn_cli_ref *ret,
                                  struct cairn_error *err) {
    CAIRN_TRY(cairn_cli_ref_parse(cli->arguments[0], ret, err));
    if (ret->version[0]) return CAIRN_OK;
    return cairn_fail(err, CAIRN_INVALID, "name the checkpoint: %s@step", cli->arguments[0]);
}

static enum cairn_code run_pin(struct cairn_cli *cli, struct cairn_error *err) {
    struct cairn_cli_ref ref;
    CAIRN_TRY(checkpoint(cli, &ref, err));
    json_t *body = json_pack("{s:b, s:s*}", "pinned", true, "note", cli->note);
    return patch(cli, &ref, body, "is pinned", NULL, err);
}

static enum cairn_code run_unpin(struct cairn_cli *cli, struct cairn_error *err) {
    struct cairn_cli_ref ref;
    CAIRN_TRY(checkpoint(cli, &ref, err));
    return patch(cli, &ref, json_pack("{s:b}", "pinned", false), "is not pinned", NULL, err);
}

/* ---- key=value, key- ---- */

static json_t *number_of(const char *text) {
    char *end = NULL;
    double number = strtod(text, &end);
    return *text && !*end && isfinite(number) ? json_real(number) : NULL;
}

static enum cairn_code read_pair(const char *word, bool numbers, json_t *changes,
                                 struct cairn_error *err) {
    char key[200];
    const char *equals = strchr(word, '=');
    size_t size = equals ? (size_t)(equals - word) : strlen(word);
    bool dropped = !equals && size > 1 && word[size - 1] == '-';
    json_t *value = dropped  ? json_null()
                    : equals ? numbers ? number_of(equals + 1) : json_string(equals + 1)
                             : NULL;
    snprintf(key, sizeof key, "%.*s", (int)(size - dropped), word);
    if (value && size && size < sizeof key && !json_object_set_new(changes, key, value))
        return CAIRN_OK;
    return cairn_fail(err, CAIRN_INVALID, "\"%s\": write %s to set it, or name- to take it away",
                      word, numbers ? "name=number" : "name=value");
}

static enum cairn_code change_pairs(struct cairn_cli *cli, const struct cairn_cli_ref *ref,
                                    bool numbers, struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *changes = json_object();
    for (size_t i = 1; i < cli->argument_count; i++)
        CAIRN_TRY(read_pair(cli->arguments[i], numbers, changes, err));
    const char *pairs = numbers ? "metrics" : "labels";
    return patch(cli, ref, json_pack("{s:O}", pairs, changes), NULL, pairs, err);
}

static enum cairn_code run_label(struct cairn_cli *cli, struct cairn_error *err) {
    struct cairn_cli_ref ref;
    CAIRN_TRY(cairn_cli_ref_parse(cli->arguments[0], &ref, err));
    return change_pairs(cli, &ref, false, err);
}

static enum cairn_code run_metric(struct cairn_cli *cli, struct cairn_error *err) {
    struct cairn_cli_ref ref;
    CAIRN_TRY(checkpoint(cli, &ref, err));
    return change_pairs(cli, &ref, true, err);
}

const struct cairn_cli_verb cairn_cli_verb_pin = {
    .name = "pin",
    .synopsis = "cairn pin [flags] project/run@step",
    .purpose = "Keep a checkpoint, whatever policy there is.",
    .examples = "  cairn pin llm/7b@1200\n  cairn pin llm/7b@latest --note \"before the merge\"\n"
                "  cairn pin llm/7b@ckpt_... --json\n",
    .flags = pin_flags,
    .flag_count = CAIRN_COUNT(pin_flags),
    .arguments_min = 1,
    .arguments_max = 1,
    .run = run_pin,
};
const struct cairn_cli_verb cairn_cli_verb_unpin = {
    .name = "unpin",
    .synopsis = "cairn unpin [flags] project/run@step",
    .purpose = "Leave a checkpoint to the policy again.",
    .examples = "  cairn unpin llm/7b@1200\n  cairn unpin llm/7b@latest\n"
                "  cairn unpin llm/7b@ckpt_... --json\n",
    .arguments_min = 1,
    .arguments_max = 1,
    .run = run_unpin,
};
const struct cairn_cli_verb cairn_cli_verb_label = {
    .name = "label",
    .synopsis = "cairn label [flags] project/run[@step] name=value|name- ...",
    .purpose = "Set or take away labels of a checkpoint or a run.",
    .examples = "  cairn label llm/7b@1200 tier=keep\n  cairn label llm/7b team=nlp owner=ann\n"
                "  cairn label llm/7b@1200 tier-\n",
    .arguments_min = 2,
    .arguments_max = CAIRN_CLI_ARGUMENTS_MAX,
    .run = run_label,
};
const struct cairn_cli_verb cairn_cli_verb_metric = {
    .name = "metric",
    .synopsis = "cairn metric [flags] project/run@step name=number|name- ...",
    .purpose = "Set or take away what was measured of a checkpoint.",
    .examples = "  cairn metric llm/7b@1200 eval_loss=1.93\n"
                "  cairn metric llm/7b@latest eval_loss=1.93 acc=0.71\n"
                "  cairn metric llm/7b@1200 acc-\n",
    .arguments_min = 2,
    .arguments_max = CAIRN_CLI_ARGUMENTS_MAX,
    .run = run_metric,
};
