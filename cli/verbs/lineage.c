/* SPDX-License-Identifier: Apache-2.0 */
/* cairn lineage: what a checkpoint was trained from; and saying from what a run began. */
#include <stdio.h>

#include "cli/shell/output.h"
#include "common/text.h"

static const struct cairn_cli_flag lineage_flags[] = {
    {"from", 0, CAIRN_CLI_TEXT, CAIRN_CLI_AT(from), 0, "RUN@STEP",
     "Say that this run began from that checkpoint; none takes it back."},
};

static void print_item(const struct cairn_msg_lineage_row *row) {
    printf("%s%s/%s@%llu  %s  attempt %llu%s%s  %s\n",
           !row->by                     ? ""
           : !strcmp(row->by, "resume") ? "resumed from  "
                                        : "began from    ",
           row->project, row->run, (unsigned long long)row->step, row->version,
           (unsigned long long)row->attempt, row->job ? " of job " : "", row->job ? row->job : "",
           row->committed_at ? row->committed_at
           : row->state      ? row->state
                             : "(forgotten)");
}

static enum cairn_code show_lineage(const struct cairn_cli *cli, const struct cairn_cli_ref *ref,
                                    struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *reply = NULL;
    struct cairn_msg_lineage chain = {0};
    size_t index = 0;
    json_t *item = NULL;
    CAIRN_TRY(cairn_cli_call(cli, ref, (struct cairn_cli_call){.tail = "/lineage"}, &reply, err));
    CAIRN_TRY(cairn_cli_reply_read(CAIRN_MESSAGE_lineage, reply, &chain, err));
    if (cli->output == CAIRN_CLI_JSON) return cairn_cli_print_json(chain.items, true, err);
    json_array_foreach(chain.items, index, item) {
        struct cairn_msg_lineage_row row = {0};
        CAIRN_TRY(cairn_cli_reply_read(CAIRN_MESSAGE_lineage_row, item, &row, err));
        if (cli->output == CAIRN_CLI_JSONL)
            CAIRN_TRY(cairn_cli_print_json(item, false, err));
        else if (cli->output == CAIRN_CLI_NAME)
            puts(row.version);
        else
            print_item(&row);
    }
    if (chain.more && cli->output == CAIRN_CLI_TABLE) puts("... and further back");
    return fflush(stdout) ? cairn_fail_errno(err, "standard output") : CAIRN_OK;
}

static enum cairn_code set_lineage(const struct cairn_cli *cli, const struct cairn_cli_ref *run,
                                   struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *body = NULL, *reply = NULL;
    struct cairn_cli_ref from;
    char text[400] = "";
    bool none = !strcmp(cli->from, "none");
    if (!none) {
        CAIRN_TRY(cairn_cli_ref_parse(cli->from, &from, err));
        snprintf(text, sizeof text, "%s/%s@%s", from.name.project, from.name.run,
                 from.version[0] ? from.version : "latest");
    }
    body = json_pack("{s:s?}", "from", none ? NULL : text);
    if (!body) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a change");
    struct cairn_cli_call call = {.method = "PATCH", .body = body, .if_match = "*"};
    CAIRN_TRY(cairn_cli_call(cli, run, call, &reply, err));
    if (cli->output == CAIRN_CLI_JSON) return cairn_cli_print_json(reply, true, err);
    printf("%s/%s %s%s\n", run->name.project, run->name.run,
           none ? "says no more what it began from" : "began from ", text);
    return fflush(stdout) ? cairn_fail_errno(err, "standard output") : CAIRN_OK;
}

static enum cairn_code run_lineage(struct cairn_cli *cli, struct cairn_error *err) {
    struct cairn_cli_ref ref;
    if (cli->from) {
        CAIRN_TRY(cairn_cli_ref_run("lineage --from", cli->arguments[0], &ref, err));
        return set_lineage(cli, &ref, err);
    }
    CAIRN_TRY(cairn_cli_ref_latest(cli, &ref, err));
    return show_lineage(cli, &ref, err);
}

const struct cairn_cli_verb cairn_cli_verb_lineage = {
    .name = "lineage",
    .synopsis = "cairn lineage [flags] project/run[@step]",
    .purpose = "What a checkpoint was trained from, attempt by attempt and across runs.",
    .examples = "  cairn lineage llm/7b@1200\n  cairn lineage llm/7b@prod --json\n"
                "  cairn lineage llm/7b-chat --from llm/7b@1200\n",
    .flags = lineage_flags,
    .flag_count = CAIRN_COUNT(lineage_flags),
    .arguments_min = 1,
    .arguments_max = 1,
    .run = run_lineage,
};
