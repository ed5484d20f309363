/* SPDX-License-Identifier: Apache-2.0 */
/* cairn alias ls|set|rm: names that point at checkpoints of a run and protect them. */
#include <stdio.h>

#include "cli/shell/output.h"
#include "common/text.h"

static enum cairn_code print_alias(const struct cairn_cli *cli, const json_t *json,
                                   const char *what, struct cairn_error *err) {
    struct cairn_msg_alias_row row = {0};
    CAIRN_TRY(cairn_cli_reply_read(CAIRN_MESSAGE_alias_row, json, &row, err));
    if (cli->output == CAIRN_CLI_JSON || cli->output == CAIRN_CLI_JSONL)
        return cairn_cli_print_json(json, cli->output == CAIRN_CLI_JSON, err);
    if (cli->output == CAIRN_CLI_NAME)
        puts(row.alias);
    else
        printf("%s %s %s\n", row.alias, what, row.version);
    return fflush(stdout) ? cairn_fail_errno(err, "standard output") : CAIRN_OK;
}

static enum cairn_code list_aliases(const struct cairn_cli *cli, struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *page = NULL;
    struct cairn_msg_page row = {0};
    struct cairn_cli_ref run;
    size_t index = 0;
    json_t *item = NULL;
    CAIRN_TRY(cairn_cli_ref_run("alias", cli->arguments[1], &run, err));
    CAIRN_TRY(cairn_cli_call(cli, &run, (struct cairn_cli_call){.tail = "/aliases"}, &page, err));
    CAIRN_TRY(cairn_cli_reply_read(CAIRN_MESSAGE_page, page, &row, err));
    if (cli->output == CAIRN_CLI_JSON) return cairn_cli_print_json(row.items, true, err);
    json_array_foreach(row.items, index, item) CAIRN_TRY(print_alias(cli, item, "is", err));
    return CAIRN_OK;
}

/* Where it points by now is looked at first: who moves it in between makes this fail. */
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
    if (!after) return CAIRN_OK; /* somebody else has removed it just now */
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
    CAIRN_TRY(cairn_cli_ref_parse(cli->arguments[1], &ref, err));
    if (!ref.version[0])
        return cairn_fail(err, CAIRN_INVALID, "name the checkpoint: %s@step", cli->arguments[1]);
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
    .arguments_min = 2,
    .arguments_max = 3,
    .run = run_alias,
};
