/* SPDX-License-Identifier: Apache-2.0 */
/* cairn quota ls|get|set|unset: what projects take up in the store, and how much they may. */
#include <inttypes.h>
#include <stdio.h>

#include "cli/shell/output.h"
#include "cli/shell/sizes.h"
#include "common/text.h"

#define PROJECTS_MAX 1000000

static const struct cairn_cli_flag quota_flags[] = {
    {"versions", 0, CAIRN_CLI_NUMBER, CAIRN_CLI_AT(quota_versions),
     CAIRN_CLI_AT(quota_versions_given), "N",
     "Of set: at most N versions at once; those in the trash and open ones count."},
    {"bytes", 0, CAIRN_CLI_SIZE, CAIRN_CLI_AT(quota_bytes), CAIRN_CLI_AT(quota_bytes_given), "SIZE",
     "Of set: no further save begins from so many bytes on, as 20TiB."},
};

/* ---- as a table ---- */

static void cell_project(const union cairn_cli_row *row, char *ret, size_t capacity) {
    snprintf(ret, capacity, "%s", row->quota.project ? row->quota.project : "*");
}
static void number(uint64_t value, const char *none, char *ret, size_t capacity) {
    snprintf(ret, capacity, "%s", none);
    if (value != CAIRN_MESSAGE_NONE) snprintf(ret, capacity, "%" PRIu64, value);
}
static void size(uint64_t value, const char *none, char *ret, size_t capacity) {
    char text[24];
    cairn_cli_size(value, text);
    snprintf(ret, capacity, "%s", value == CAIRN_MESSAGE_NONE ? none : text);
}
static void cell_versions(const union cairn_cli_row *row, char *ret, size_t capacity) {
    number(row->quota.used_versions, "", ret, capacity);
}
static void cell_limit_versions(const union cairn_cli_row *row, char *ret, size_t capacity) {
    number(row->quota.limit_versions, "-", ret, capacity);
}
static void cell_bytes(const union cairn_cli_row *row, char *ret, size_t capacity) {
    size(row->quota.used_bytes, "", ret, capacity);
}
static void cell_limit_bytes(const union cairn_cli_row *row, char *ret, size_t capacity) {
    size(row->quota.limit_bytes, "-", ret, capacity);
}
static void cell_from(const union cairn_cli_row *row, char *ret, size_t capacity) {
    snprintf(ret, capacity, "%s", row->quota.from ? row->quota.from : "");
}
static const struct cairn_cli_column quota_columns[] = {
    {"PROJECT", false, cell_project}, {"VERSIONS", true, cell_versions},
    {"OF", true, cell_limit_versions}, {"BYTES", true, cell_bytes},
    {"OF", true, cell_limit_bytes},   {"FROM", false, cell_from},
};
static const union cairn_cli_row none = {.quota = {.limit_versions = CAIRN_MESSAGE_NONE,
                                                   .used_versions = CAIRN_MESSAGE_NONE,
                                                   .limit_bytes = CAIRN_MESSAGE_NONE,
                                                   .used_bytes = CAIRN_MESSAGE_NONE}};
static const struct cairn_cli_table quota_table = {
    .form = CAIRN_MESSAGE_quota_row,
    .columns = quota_columns,
    .column_count = CAIRN_COUNT(quota_columns),
    .name = cell_project,
    .none = &none,
};

static enum cairn_code print_one(const struct cairn_cli *cli, json_t *json,
                                 struct cairn_error *err) {
    if (cli->output == CAIRN_CLI_JSON || cli->output == CAIRN_CLI_JSONL)
        return cairn_cli_print_json(json, cli->output == CAIRN_CLI_JSON, err);
    CAIRN_AUTO_JSON json_t *items = json_pack("[O]", json);
    if (!items) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the answer");
    return cairn_cli_print(cli, items, &quota_table, err);
}

/* ---- what is asked ---- */

/* Without a name it is the default of all projects that have none of their own. */
static enum cairn_code ask_quota(const struct cairn_cli *cli, const char *method, json_t *body,
                                 struct cairn_error *err) {
    const char *project = cli->arguments[1];
    char tail[CAIRN_NAME_BYTES_MAX + 40] = "/quota";
    CAIRN_AUTO_JSON json_t *reply = NULL;
    if (project && !cairn_name_valid(cairn_view_of(project)))
        return cairn_fail(err, CAIRN_INVALID,
                          "\"%.200s\": name a project; without one it is the default of all",
                          project);
    if (project) snprintf(tail, sizeof tail, "/projects/%s/quota", project);
    struct cairn_cli_call call = {.method = method, .tail = tail, .body = body};
    CAIRN_TRY(cairn_cli_call(cli, NULL, call, &reply, err));
    return print_one(cli, reply, err);
}

static enum cairn_code set_quota(const struct cairn_cli *cli, struct cairn_error *err) {
    if (!cli->quota_versions_given && !cli->quota_bytes_given)
        return cairn_fail(err, CAIRN_INVALID,
                          "say how much, as --versions 200 or --bytes 20TiB; what is not named has "
                          "no bound, and `cairn quota unset` takes the quota away");
    CAIRN_AUTO_JSON json_t *body = CAIRN_PACK(
        quota_put,
        .versions = cli->quota_versions_given ? cli->quota_versions : CAIRN_MESSAGE_NONE,
        .bytes = cli->quota_bytes_given ? cli->quota_bytes : CAIRN_MESSAGE_NONE);
    if (!body) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a request");
    return ask_quota(cli, "PUT", body, err);
}

static enum cairn_code list_quotas(const struct cairn_cli *cli, struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *items = json_array();
    CAIRN_TRY(cairn_cli_list(cli, "/v1/quotas", PROJECTS_MAX, items, NULL, err));
    return cairn_cli_print(cli, items, &quota_table, err);
}

static enum cairn_code run_quota(struct cairn_cli *cli, struct cairn_error *err) {
    const char *what = cli->arguments[0];
    if (!strcmp(what, "ls") && cli->argument_count == 1) return list_quotas(cli, err);
    if (!strcmp(what, "get")) return ask_quota(cli, NULL, NULL, err);
    if (!strcmp(what, "set")) return set_quota(cli, err);
    if (!strcmp(what, "unset")) return ask_quota(cli, "DELETE", NULL, err);
    return cairn_fail(err, CAIRN_INVALID,
                      "want ls, or get, set or unset [PROJECT]; usage: %s",
                      cairn_cli_verb_quota.synopsis);
}

const struct cairn_cli_verb cairn_cli_verb_quota = {
    .name = "quota",
    .synopsis = "cairn quota ls|get|set|unset [flags] [PROJECT]",
    .purpose = "What projects take up in the store, and how much they may.",
    .examples = "  cairn quota set llm --versions 200 --bytes 20TiB\n"
                "  cairn quota ls\n"
                "  cairn quota unset llm\n",
    .flags = quota_flags,
    .flag_count = CAIRN_COUNT(quota_flags),
    .arguments_min = 1,
    .arguments_max = 2,
    .run = run_quota,
};
