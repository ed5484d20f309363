/* SPDX-License-Identifier: Apache-2.0 */
/* Annotations: cairn pin, unpin, label, metric; alias: a name that protects a checkpoint; lease:
 * keeps a checkpoint for readers outside Cairn. */

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "cli/shell/output.h"
#include "common/text.h"

static const struct cairn_cli_flag pin_flags[] = {
    {"note", 0, CAIRN_CLI_TEXT, CAIRN_CLI_AT(note), 0, "TEXT", "Why; shown with the checkpoint."},
};

/* Prints "is pinned", or the labels or metrics after the change. */
static void say_changed(const json_t *shown, const char *done, const char *pairs) {
    char text[4000];
    cairn_cli_pairs(pairs ? json_object_get(shown, pairs) : NULL, ", ", text, sizeof text);
    cairn_cli_clean(text);
    if (pairs)
        printf(" has %s %s\n", *text ? pairs : "no", *text ? text : pairs);
    else
        printf(" %s\n", done);
}

/* take_changes: the body; NULL: no memory. pairs: the member changed, or NULL. */
static enum cairn_code patch(const struct cairn_cli *cli, const struct cairn_cli_ref *ref,
                             json_t *take_changes, const char *done, const char *pairs,
                             struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *changes = take_changes, *shown = NULL;
    if (!changes) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a change");
    struct cairn_cli_call call = {.method = "PATCH", .body = changes, .if_match = "*"};
    CAIRN_TRY(cairn_cli_call(cli, ref, call, &shown, err));
    if (cairn_cli_wants_json(cli)) return cairn_cli_print_reply(cli, shown, err);
    if (!ref->version[0]) {
        printf("%s/%s", ref->name.project, ref->name.run);
        say_changed(shown, done, pairs);
        return cairn_cli_flush(err);
    }
    struct cairn_msg_version_row version = {0};
    CAIRN_TRY(cairn_cli_reply_read(CAIRN_MESSAGE_version_row, shown, &version, err));
    if (cli->output == CAIRN_CLI_NAME) {
        puts(version.version);
    } else {
        printf("%s (step %llu)", version.version, (unsigned long long)version.step);
        say_changed(shown, done, pairs);
    }
    return cairn_cli_flush(err);
}

static enum cairn_code run_pin(struct cairn_cli *cli, struct cairn_error *err) {
    struct cairn_cli_ref ref;
    CAIRN_TRY(cairn_cli_ref_checkpoint(cli->arguments[0], &ref, err));
    json_t *body = json_pack("{s:b, s:s*}", "pinned", true, "note", cli->note);
    return patch(cli, &ref, body, "is pinned", NULL, err);
}

static enum cairn_code run_unpin(struct cairn_cli *cli, struct cairn_error *err) {
    struct cairn_cli_ref ref;
    CAIRN_TRY(cairn_cli_ref_checkpoint(cli->arguments[0], &ref, err));
    return patch(cli, &ref, json_pack("{s:b}", "pinned", false), "is not pinned", NULL, err);
}

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
    CAIRN_TRY(cairn_cli_ref_checkpoint(cli->arguments[0], &ref, err));
    return change_pairs(cli, &ref, true, err);
}

const struct cairn_cli_verb cairn_cli_verb_pin = {
    .name = "pin",
    .synopsis = "cairn pin [flags] project/run@step",
    .purpose = "Keep a checkpoint, whatever policy there is.",
    .examples = "  cairn pin llm/7b@1200\n  cairn pin llm/7b@latest --note \"before the merge\"\n"
                "  cairn pin llm/7b@ckpt_... --json\n",
    CAIRN_CLI_FLAGS(pin_flags),
    CAIRN_CLI_ARGUMENTS(1, 1),
    .run = run_pin,
};
const struct cairn_cli_verb cairn_cli_verb_unpin = {
    .name = "unpin",
    .synopsis = "cairn unpin [flags] project/run@step",
    .purpose = "Leave a checkpoint to the policy again.",
    .examples = "  cairn unpin llm/7b@1200\n  cairn unpin llm/7b@latest\n"
                "  cairn unpin llm/7b@ckpt_... --json\n",
    CAIRN_CLI_ARGUMENTS(1, 1),
    .run = run_unpin,
};
const struct cairn_cli_verb cairn_cli_verb_label = {
    .name = "label",
    .synopsis = "cairn label [flags] project/run[@step] name=value|name- ...",
    .purpose = "Set or take away labels of a checkpoint or a run.",
    .examples = "  cairn label llm/7b@1200 tier=keep\n  cairn label llm/7b team=nlp owner=ann\n"
                "  cairn label llm/7b@1200 tier-\n",
    CAIRN_CLI_ARGUMENTS(2, CAIRN_CLI_ARGUMENTS_MAX),
    .run = run_label,
};
const struct cairn_cli_verb cairn_cli_verb_metric = {
    .name = "metric",
    .synopsis = "cairn metric [flags] project/run@step name=number|name- ...",
    .purpose = "Set or take away what was measured of a checkpoint.",
    .examples = "  cairn metric llm/7b@1200 eval_loss=1.93\n"
                "  cairn metric llm/7b@latest eval_loss=1.93 acc=0.71\n"
                "  cairn metric llm/7b@1200 acc-\n",
    CAIRN_CLI_ARGUMENTS(2, CAIRN_CLI_ARGUMENTS_MAX),
    .run = run_metric,
};

/* ---- alias ls|set|rm ---- */

static enum cairn_code print_alias(const struct cairn_cli *cli, const json_t *json,
                                   const char *what, struct cairn_error *err) {
    struct cairn_msg_alias_row row = {0};
    CAIRN_TRY(cairn_cli_reply_read(CAIRN_MESSAGE_alias_row, json, &row, err));
    if (cairn_cli_wants_json(cli)) return cairn_cli_print_reply(cli, json, err);
    if (cli->output == CAIRN_CLI_NAME)
        puts(row.alias);
    else
        printf("%s %s %s\n", row.alias, what, row.version);
    return cairn_cli_flush(err);
}

static enum cairn_code list_aliases(const struct cairn_cli *cli, struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *page = NULL;
    struct cairn_msg_page row = {0};
    struct cairn_cli_ref run;
    json_t *item = NULL;
    CAIRN_TRY(cairn_cli_ref_run("alias", cli->arguments[1], &run, err));
    CAIRN_TRY(cairn_cli_get(cli, &run, "/aliases", CAIRN_MESSAGE_page, &page, &row, err));
    if (cli->output == CAIRN_CLI_JSON) return cairn_cli_print_json(row.items, true, err);
    for (size_t i = 0; (item = json_array_get(row.items, i)); i++)
        CAIRN_TRY(print_alias(cli, item, "is", err));
    return CAIRN_OK;
}

/* Sends the alias's current state as the condition, so that a concurrent change makes this fail. */
static enum cairn_code change_alias(const struct cairn_cli *cli, const struct cairn_cli_ref *run,
                                    const char *alias, const char *ref, struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *now = NULL, *after = NULL, *body = NULL;
    struct cairn_msg_alias_row row = {0};
    char tail[160], match[CAIRN_VERSION_ID_BYTES + 2] = "";
    snprintf(tail, sizeof tail, "/aliases/%s", alias);
    enum cairn_code code =
        cairn_cli_call(cli, run, (struct cairn_cli_call){.tail = tail}, &now, err);
    if (code && (code != CAIRN_NOT_FOUND || !ref)) return code;
    if (!code) {
        CAIRN_TRY(cairn_cli_reply_read(CAIRN_MESSAGE_alias_row, now, &row, err));
        snprintf(match, sizeof match, "\"%s\"", row.version);
    }
    struct cairn_cli_call call = {
        .method = ref ? "PUT" : "DELETE", .tail = tail, .if_match = match[0] ? match : NULL};
    if (ref) call.body = body = json_pack("{s:s}", "ref", ref);
    CAIRN_TRY(cairn_cli_call(cli, run, call, &after, err));
    if (!after) return CAIRN_OK; /* removed concurrently */
    return print_alias(cli, after, ref ? "is" : "is no alias any more of", err);
}

static enum cairn_code run_alias(struct cairn_cli *cli, struct cairn_error *err) {
    const char *what = cli->arguments[0], *alias = cli->arguments[2];
    struct cairn_cli_ref ref;
    bool sets = !strcmp(what, "set"), drops = !strcmp(what, "rm");
    if (!strcmp(what, "ls") && cli->argument_count == 2) return list_aliases(cli, err);
    if ((!sets && !drops) || cli->argument_count != 3)
        return cairn_fail(err, CAIRN_INVALID,
                          "cairn alias ls project/run, cairn alias set project/run@step NAME, or "
                          "cairn alias rm project/run NAME");
    if (!*alias || alias[strspn(alias, "abcdefghijklmnopqrstuvwxyz0123456789-")] ||
        strlen(alias) > 63)
        return cairn_fail(err, CAIRN_INVALID, "\"%.80s\": an alias is [a-z][a-z0-9-]*", alias);
    if (drops) {
        CAIRN_TRY(cairn_cli_ref_run("alias rm", cli->arguments[1], &ref, err));
        return change_alias(cli, &ref, alias, NULL, err);
    }
    char version[sizeof ref.version];
    CAIRN_TRY(cairn_cli_ref_checkpoint(cli->arguments[1], &ref, err));
    (void)cairn_text_copy(version, sizeof version, ref.version);
    ref.version[0] = '\0';
    return change_alias(cli, &ref, alias, version, err);
}

const struct cairn_cli_verb cairn_cli_verb_alias = {
    .name = "alias",
    .synopsis = "cairn alias ls|set|rm [flags] project/run[@step] [NAME]",
    .purpose = "Names that point at checkpoints, and protect them.",
    .examples = "  cairn alias set llm/7b@1200 prod\n  cairn alias ls llm/7b\n"
                "  cairn alias rm llm/7b prod\n",
    CAIRN_CLI_ARGUMENTS(2, 3),
    .run = run_alias,
};

/* ---- lease ls|take|rm ---- */

static const struct cairn_cli_flag lease_flags[] = {
    {"job", 0, CAIRN_CLI_TEXT, CAIRN_CLI_AT(job), 0, "NAME",
     "Who reads; the same name has the same lease."},
    {"for", 0, CAIRN_CLI_TIME, CAIRN_CLI_AT(lease_ms), 0, "TIME",
     "How long it lasts unless it is taken again; default 5min, at most 1h."},
};

static enum cairn_code print_lease(const struct cairn_cli *cli, const json_t *json, bool dropped,
                                   struct cairn_error *err) {
    struct cairn_msg_lease_row row = {0};
    CAIRN_TRY(cairn_cli_reply_read(CAIRN_MESSAGE_lease_row, json, &row, err));
    if (cairn_cli_wants_json(cli)) return cairn_cli_print_reply(cli, json, err);
    if (cli->output == CAIRN_CLI_NAME)
        puts(row.lease);
    else if (dropped)
        printf("%s is given back\n", row.lease);
    else
        printf("%s  %s  %llus left  %s\n", row.lease, row.version,
               (unsigned long long)row.expires_s, row.job ? row.job : "");
    return cairn_cli_flush(err);
}

static enum cairn_code list_leases(const struct cairn_cli *cli, const struct cairn_cli_ref *ref,
                                   struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *page = NULL;
    struct cairn_msg_page row = {0};
    json_t *item = NULL;
    CAIRN_TRY(cairn_cli_get(cli, ref, "/leases", CAIRN_MESSAGE_page, &page, &row, err));
    if (cli->output == CAIRN_CLI_JSON) return cairn_cli_print_json(row.items, true, err);
    for (size_t i = 0; (item = json_array_get(row.items, i)); i++)
        CAIRN_TRY(print_lease(cli, item, false, err));
    return CAIRN_OK;
}

static enum cairn_code take_lease(const struct cairn_cli *cli, const struct cairn_cli_ref *ref,
                                  struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *body = NULL, *reply = NULL;
    if (!cli->job) return cairn_fail(err, CAIRN_INVALID, "say with --job who reads it");
    if (cli->lease_ms && cli->lease_ms < 1000)
        return cairn_fail(err, CAIRN_INVALID, "--for: a second at least");
    if (cli->lease_ms / 1000 > CAIRN_LEASE_S_MAX)
        return cairn_fail(err, CAIRN_INVALID,
                          "--for: an hour at most; take it again before it ends");
    body = CAIRN_PACK(lease_take, .job = cli->job, .ttl_s = cli->lease_ms / 1000);
    if (!body) return cairn_fail(err, CAIRN_INVALID, "--job is not UTF-8");
    struct cairn_cli_call call = {.method = "POST", .tail = "/leases", .body = body};
    CAIRN_TRY(cairn_cli_call(cli, ref, call, &reply, err));
    return print_lease(cli, reply, false, err);
}

static enum cairn_code drop_lease(const struct cairn_cli *cli, const struct cairn_cli_ref *ref,
                                  const char *lease, struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *reply = NULL;
    char tail[100];
    if (strlen(lease) > 64 || lease[strspn(lease, "abcdefghijklmnopqrstuvwxyz_0123456789")])
        return cairn_fail(err, CAIRN_INVALID, "\"%.80s\" is no lease", lease);
    snprintf(tail, sizeof tail, "/leases/%s", lease);
    struct cairn_cli_call call = {.method = "DELETE", .tail = tail};
    CAIRN_TRY(cairn_cli_call(cli, ref, call, &reply, err));
    return print_lease(cli, reply, true, err);
}

static enum cairn_code run_lease(struct cairn_cli *cli, struct cairn_error *err) {
    const char *what = cli->arguments[0];
    struct cairn_cli_ref ref;
    bool drops = !strcmp(what, "rm");
    if ((!drops && strcmp(what, "ls") && strcmp(what, "take")) ||
        cli->argument_count != (drops ? 3 : 2))
        return cairn_fail(err, CAIRN_INVALID,
                          "cairn lease ls project/run@step, cairn lease take project/run@step "
                          "--job NAME, or cairn lease rm project/run@step LEASE");
    CAIRN_TRY(cairn_cli_ref_parse(cli->arguments[1], &ref, err));
    if (!ref.version[0]) (void)cairn_text_copy(ref.version, sizeof ref.version, "latest");
    if (drops) return drop_lease(cli, &ref, cli->arguments[2], err);
    return *what == 'l' ? list_leases(cli, &ref, err) : take_lease(cli, &ref, err);
}

const struct cairn_cli_verb cairn_cli_verb_lease = {
    .name = "lease",
    .synopsis = "cairn lease ls|take|rm [flags] project/run[@step] [LEASE]",
    .purpose = "Who reads a checkpoint: what is leased is not deleted meanwhile.",
    .examples = "  cairn lease ls llm/7b@1200\n"
                "  cairn lease take llm/7b@latest --job eval-17 --for 30min\n"
                "  cairn lease rm llm/7b@1200 lease_0b0c...\n",
    CAIRN_CLI_FLAGS(lease_flags),
    CAIRN_CLI_ARGUMENTS(2, 3),
    .run = run_lease,
};
