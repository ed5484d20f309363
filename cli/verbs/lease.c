/* SPDX-License-Identifier: Apache-2.0 */
/* cairn lease ls|take|rm: who reads a checkpoint, and keeping one for readers without Cairn. */
#include <stdio.h>

#include "cli/shell/output.h"
#include "common/text.h"

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
    if (cli->output == CAIRN_CLI_JSON || cli->output == CAIRN_CLI_JSONL)
        return cairn_cli_print_json(json, cli->output == CAIRN_CLI_JSON, err);
    if (cli->output == CAIRN_CLI_NAME)
        puts(row.lease);
    else if (dropped)
        printf("%s is given back\n", row.lease);
    else
        printf("%s  %s  %llus left  %s\n", row.lease, row.version,
               (unsigned long long)row.expires_s, row.job ? row.job : "");
    return fflush(stdout) ? cairn_fail_errno(err, "standard output") : CAIRN_OK;
}

static enum cairn_code list_leases(const struct cairn_cli *cli, const struct cairn_cli_ref *ref,
                                   struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *page = NULL;
    struct cairn_msg_page row = {0};
    size_t index = 0;
    json_t *item = NULL;
    CAIRN_TRY(cairn_cli_call(cli, ref, (struct cairn_cli_call){.tail = "/leases"}, &page, err));
    CAIRN_TRY(cairn_cli_reply_read(CAIRN_MESSAGE_page, page, &row, err));
    if (cli->output == CAIRN_CLI_JSON) return cairn_cli_print_json(row.items, true, err);
    json_array_foreach(row.items, index, item) CAIRN_TRY(print_lease(cli, item, false, err));
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
    .flags = lease_flags,
    .flag_count = CAIRN_COUNT(lease_flags),
    .arguments_min = 2,
    .arguments_max = 3,
    .run = run_lease,
};
