/* SPDX-License-Identifier: Apache-2.0 */
/* Annotations: cairn pin, unpin, label, metric; alias: a name that protects a checkpoint; lease:
 * keeps a checkpoint for readers outside Cairn. */

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "cli/shell/output.h"
#include "common/text.h"

static const struct cli_flag pin_flags[] = {
    {"note", 0, CLI_TEXT, CLI_AT(note), 0, "TEXT", "Why; shown with the checkpoint."},
};

/* Prints "is pinned", or the labels or metrics after the change. */
static void say_changed(const json_t *shown, const char *done, const char *pairs) {
    char format[32], text[4000];
    snprintf(format, sizeof format, "{%s:list}", pairs ? pairs : "");
    cli_format(format, shown, text, sizeof text);
    cli_clean(text);
    if (pairs)
        printf(" has %s %s\n", *text ? pairs : "no", *text ? text : pairs);
    else
        printf(" %s\n", done);
}

/* take_changes: the body; NULL: no memory. pairs: the member changed, or NULL. */
static enum cairn_code patch(const struct cli *cli, const struct cli_ref *ref, json_t *take_changes,
                             const char *done, const char *pairs, struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *changes = take_changes, *shown = NULL;
    if (!changes) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a change");
    struct cli_call call = {.method = "PATCH", .body = changes, .if_match = "*"};
    CAIRN_TRY(cli_call(cli, ref, call, &shown, err));
    if (cli_wants_json(cli)) return cli_print_reply(cli, shown, err);
    if (!ref->version[0]) {
        printf("%s/%s", ref->name.project, ref->name.run);
        say_changed(shown, done, pairs);
        return cli_flush(err);
    }
    CLI_READ(version_row, version, shown, err);
    if (cli->output == CLI_NAME) {
        puts(version.version);
    } else {
        printf("%s (step %llu)", version.version, (unsigned long long)version.step);
        say_changed(shown, done, pairs);
    }
    return cli_flush(err);
}

static enum cairn_code run_pin(struct cli *cli, struct cairn_error *err) {
    struct cli_ref ref;
    CAIRN_TRY(cli_ref_checkpoint(cli->arguments[0], &ref, err));
    json_t *body = json_pack("{s:b, s:s*}", "pinned", true, "note", cli->note);
    return patch(cli, &ref, body, "is pinned", NULL, err);
}

static enum cairn_code run_unpin(struct cli *cli, struct cairn_error *err) {
    struct cli_ref ref;
    CAIRN_TRY(cli_ref_checkpoint(cli->arguments[0], &ref, err));
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

static enum cairn_code change_pairs(const struct cli *cli, bool numbers, struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *changes = json_object();
    struct cli_ref ref;
    CAIRN_TRY(numbers ? cli_ref_checkpoint(cli->arguments[0], &ref, err)
                      : cli_ref_parse(cli->arguments[0], &ref, err));
    for (size_t i = 1; i < cli->argument_count; i++)
        CAIRN_TRY(read_pair(cli->arguments[i], numbers, changes, err));
    const char *pairs = numbers ? "metrics" : "labels";
    return patch(cli, &ref, json_pack("{s:O}", pairs, changes), NULL, pairs, err);
}

static enum cairn_code run_label(struct cli *cli, struct cairn_error *err) {
    return change_pairs(cli, false, err);
}

static enum cairn_code run_metric(struct cli *cli, struct cairn_error *err) {
    return change_pairs(cli, true, err);
}

const struct cli_verb cli_verb_pin = {
    CLI_VERB(pin),
    .synopsis = "cairn pin [flags] project/run@step",
    .purpose = "Pin a checkpoint: no policy deletes it.",
    .examples = "  cairn pin llm/7b@1200\n  cairn pin llm/7b@latest --note \"before the merge\"\n"
                "  cairn pin llm/7b@ckpt_... --json\n",
    CLI_TAKES(pin_flags, 1, 1),
};
const struct cli_verb cli_verb_unpin = {
    CLI_VERB(unpin),
    .synopsis = "cairn unpin [flags] project/run@step",
    .purpose = "Remove a pin: policies may delete the checkpoint again.",
    .examples = "  cairn unpin llm/7b@1200\n  cairn unpin llm/7b@latest\n"
                "  cairn unpin llm/7b@ckpt_... --json\n",
    CLI_ARGUMENTS(1, 1),
};
const struct cli_verb cli_verb_label = {
    CLI_VERB(label),
    .synopsis = "cairn label [flags] project/run[@step] name=value|name- ...",
    .purpose = "Set or remove labels of a checkpoint or a run.",
    .examples = "  cairn label llm/7b@1200 tier=keep\n  cairn label llm/7b team=nlp owner=ann\n"
                "  cairn label llm/7b@1200 tier-\n",
    CLI_ARGUMENTS(2, CLI_ARGUMENTS_MAX),
};
const struct cli_verb cli_verb_metric = {
    CLI_VERB(metric),
    .synopsis = "cairn metric [flags] project/run@step name=number|name- ...",
    .purpose = "Set or remove metrics of a checkpoint.",
    .examples = "  cairn metric llm/7b@1200 eval_loss=1.93\n"
                "  cairn metric llm/7b@latest eval_loss=1.93 acc=0.71\n"
                "  cairn metric llm/7b@1200 acc-\n",
    CLI_ARGUMENTS(2, CLI_ARGUMENTS_MAX),
};

/* ---- alias ls|set|rm ---- */

static const struct cli_table alias_table = {CAIRN_MESSAGE_alias_row, .name = "{alias}",
                                             .line = "{alias} is {version}"};
static const struct cli_table dropped_alias_table = {
    CAIRN_MESSAGE_alias_row, .name = "{alias}",
    .line = "{alias} is no alias any more of {version}"};

/* Prints a list that has no pages. */
static enum cairn_code list_whole(const struct cli *cli, const struct cli_ref *ref,
                                  const char *tail, const struct cli_table *table,
                                  struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *json = NULL;
    struct cairn_msg_page page = {0};
    CAIRN_TRY(cli_get(cli, ref, tail, CAIRN_MESSAGE_page, &json, &page, err));
    return cli_print(cli, page.items, table, err);
}

/* Sends the alias's current state as the condition, so that a concurrent change makes this fail. */
static enum cairn_code change_alias(const struct cli *cli, const struct cli_ref *run,
                                    const char *alias, const char *ref, struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *now = NULL, *after = NULL, *body = NULL;
    struct cairn_msg_alias_row row = {0};
    char tail[160], match[CAIRN_VERSION_ID_BYTES + 2] = "";
    snprintf(tail, sizeof tail, "/aliases/%s", alias);
    enum cairn_code code = cli_call(cli, run, (struct cli_call){.tail = tail}, &now, err);
    if (code && (code != CAIRN_NOT_FOUND || !ref)) return code;
    if (!code) {
        CAIRN_TRY(cli_reply_read(CAIRN_MESSAGE_alias_row, now, &row, err));
        snprintf(match, sizeof match, "\"%s\"", row.version);
    }
    struct cli_call call = {
        .method = ref ? "PUT" : "DELETE", .tail = tail, .if_match = match[0] ? match : NULL};
    if (ref) call.body = body = json_pack("{s:s}", "ref", ref);
    CAIRN_TRY(cli_call(cli, run, call, &after, err));
    if (!after) return CAIRN_OK; /* removed concurrently */
    return cli_print_one(cli, after, ref ? &alias_table : &dropped_alias_table, err);
}

static enum cairn_code run_alias(struct cli *cli, struct cairn_error *err) {
    const char *what = cli->arguments[0], *alias = cli->arguments[2];
    struct cli_ref ref;
    bool sets = !strcmp(what, "set"), drops = !strcmp(what, "rm");
    if (!strcmp(what, "ls") && cli->argument_count == 2) {
        CAIRN_TRY(cli_ref_run("alias", cli->arguments[1], &ref, err));
        return list_whole(cli, &ref, "/aliases", &alias_table, err);
    }
    if ((!sets && !drops) || cli->argument_count != 3)
        return cairn_fail(err, CAIRN_INVALID,
                          "cairn alias ls project/run, cairn alias set project/run@step NAME, or "
                          "cairn alias rm project/run NAME");
    if (!*alias || alias[strspn(alias, "abcdefghijklmnopqrstuvwxyz0123456789-")] ||
        strlen(alias) > 63)
        return cairn_fail(err, CAIRN_INVALID, "\"%.80s\": an alias is [a-z][a-z0-9-]*", alias);
    if (drops) {
        CAIRN_TRY(cli_ref_run("alias rm", cli->arguments[1], &ref, err));
        return change_alias(cli, &ref, alias, NULL, err);
    }
    char version[sizeof ref.version];
    CAIRN_TRY(cli_ref_checkpoint(cli->arguments[1], &ref, err));
    (void)cairn_text_copy(version, sizeof version, ref.version);
    ref.version[0] = '\0';
    return change_alias(cli, &ref, alias, version, err);
}

const struct cli_verb cli_verb_alias = {
    CLI_VERB(alias),
    .synopsis = "cairn alias ls|set|rm [flags] project/run[@step] [NAME]",
    .purpose = "List, set or remove aliases: names that point at checkpoints and protect them.",
    .examples = "  cairn alias set llm/7b@1200 prod\n  cairn alias ls llm/7b\n"
                "  cairn alias rm llm/7b prod\n",
    CLI_ARGUMENTS(2, 3),
};

/* ---- lease ls|take|rm ---- */

static const struct cli_flag lease_flags[] = {
    {"job", 0, CLI_TEXT, CLI_AT(job), 0, "NAME", "Who reads; the same name has the same lease."},
    {"for", 0, CLI_TIME, CLI_AT(lease_ms), 0, "TIME",
     "How long it lasts unless it is taken again; default 5min, at most 1h."},
};

static const struct cli_table lease_table = {CAIRN_MESSAGE_lease_row, .name = "{lease}",
                                             .line =
                                                 "{lease}  {version}  {expires_s}s left  {job}"};
static const struct cli_table dropped_lease_table = {CAIRN_MESSAGE_lease_row, .name = "{lease}",
                                                     .line = "{lease} is given back"};

static enum cairn_code take_lease(const struct cli *cli, const struct cli_ref *ref,
                                  struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *body = NULL, *reply = NULL;
    if (!cli->job)
        return cairn_fail(err, CAIRN_INVALID, "--job is missing: the name of the reader");
    if (cli->lease_ms && cli->lease_ms < 1000)
        return cairn_fail(err, CAIRN_INVALID, "--for: a second at least");
    if (cli->lease_ms / 1000 > CAIRN_LEASE_S_MAX)
        return cairn_fail(err, CAIRN_INVALID,
                          "--for: an hour at most; take it again before it ends");
    body = CAIRN_PACK(lease_take, .job = cli->job, .ttl_s = cli->lease_ms / 1000);
    if (!body) return cairn_fail(err, CAIRN_INVALID, "--job is not UTF-8");
    struct cli_call call = {.method = "POST", .tail = "/leases", .body = body};
    CAIRN_TRY(cli_call(cli, ref, call, &reply, err));
    return cli_print_one(cli, reply, &lease_table, err);
}

static enum cairn_code drop_lease(const struct cli *cli, const struct cli_ref *ref,
                                  const char *lease, struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *reply = NULL;
    char tail[100];
    if (strlen(lease) > 64 || lease[strspn(lease, "abcdefghijklmnopqrstuvwxyz_0123456789")])
        return cairn_fail(err, CAIRN_INVALID, "\"%.80s\" is no lease", lease);
    snprintf(tail, sizeof tail, "/leases/%s", lease);
    struct cli_call call = {.method = "DELETE", .tail = tail};
    CAIRN_TRY(cli_call(cli, ref, call, &reply, err));
    return cli_print_one(cli, reply, &dropped_lease_table, err);
}

static enum cairn_code run_lease(struct cli *cli, struct cairn_error *err) {
    const char *what = cli->arguments[0];
    struct cli_ref ref;
    bool drops = !strcmp(what, "rm");
    if ((!drops && strcmp(what, "ls") && strcmp(what, "take")) ||
        cli->argument_count != (drops ? 3 : 2))
        return cairn_fail(err, CAIRN_INVALID,
                          "cairn lease ls project/run@step, cairn lease take project/run@step "
                          "--job NAME, or cairn lease rm project/run@step LEASE");
    CAIRN_TRY(cli_ref_parse(cli->arguments[1], &ref, err));
    if (!ref.version[0]) (void)cairn_text_copy(ref.version, sizeof ref.version, "latest");
    if (drops) return drop_lease(cli, &ref, cli->arguments[2], err);
    return *what == 'l' ? list_whole(cli, &ref, "/leases", &lease_table, err)
                        : take_lease(cli, &ref, err);
}

const struct cli_verb cli_verb_lease = {
    CLI_VERB(lease),
    .synopsis = "cairn lease ls|take|rm [flags] project/run[@step] [LEASE]",
    .purpose = "List or end leases: a checkpoint that somebody reads is not deleted.",
    .examples = "  cairn lease ls llm/7b@1200\n"
                "  cairn lease take llm/7b@latest --job eval-17 --for 30min\n"
                "  cairn lease rm llm/7b@1200 lease_0b0c...\n",
    CLI_TAKES(lease_flags, 2, 3),
};
