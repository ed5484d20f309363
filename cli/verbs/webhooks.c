/* SPDX-License-Identifier: Apache-2.0 */
/* cairn webhooks: who is told of events, how far, and what could not be told. */
#include <inttypes.h>
#include <stdio.h>

#include "cli/shell/output.h"
#include "common/text.h"

#define WEBHOOKS_MAX 1000

/* ---- ls ---- */

static void cell_name(const union cairn_cli_row *row, char *ret, size_t capacity) {
    snprintf(ret, capacity, "%s", row->webhook.name);
}
static void cell_host(const union cairn_cli_row *row, char *ret, size_t capacity) {
    snprintf(ret, capacity, "%s", row->webhook.host);
}
static void cell_delivered(const union cairn_cli_row *row, char *ret, size_t capacity) {
    snprintf(ret, capacity, "%" PRIu64, row->webhook.delivered);
}
static void cell_behind(const union cairn_cli_row *row, char *ret, size_t capacity) {
    snprintf(ret, capacity, "%" PRIu64, row->webhook.behind);
}
static void cell_letters(const union cairn_cli_row *row, char *ret, size_t capacity) {
    snprintf(ret, capacity, "%" PRIu64, row->webhook.dead_letters);
}
static void cell_cause(const union cairn_cli_row *row, char *ret, size_t capacity) {
    snprintf(ret, capacity, "%s", row->webhook.cause ? row->webhook.cause : "");
}
static const struct cairn_cli_column webhook_columns[] = {
    {"NAME", false, cell_name},     {"TOLD", true, cell_delivered},
    {"BEHIND", true, cell_behind},  {"DEAD LETTERS", true, cell_letters},
    {"RECEIVER", false, cell_host}, {"LAST FAILURE", false, cell_cause},
};
static const struct cairn_cli_table webhook_table = {CAIRN_MESSAGE_webhook_row, webhook_columns,
                                             CAIRN_COUNT(webhook_columns), cell_name, NULL};

/* ---- letters ---- */

static void cell_id(const union cairn_cli_row *row, char *ret, size_t capacity) {
    snprintf(ret, capacity, "%" PRIu64, row->letter.id);
}
static void cell_tries(const union cairn_cli_row *row, char *ret, size_t capacity) {
    snprintf(ret, capacity, "%" PRIu64, row->letter.tries);
}
static void cell_tried(const union cairn_cli_row *row, char *ret, size_t capacity) {
    snprintf(ret, capacity, "%s", row->letter.tried_at);
}
static void cell_event(const union cairn_cli_row *row, char *ret, size_t capacity) {
    const char *event = json_string_value(json_object_get(row->letter.event, "event"));
    snprintf(ret, capacity, "%s", event ? event : "");
}
static void cell_why(const union cairn_cli_row *row, char *ret, size_t capacity) {
    snprintf(ret, capacity, "%s", row->letter.cause);
}
static const struct cairn_cli_column letter_columns[] = {
    {"EVENT", true, cell_id},        {"WHAT", false, cell_event}, {"TRIES", true, cell_tries},
    {"LAST TRY", false, cell_tried}, {"WHY", false, cell_why},
};
static const struct cairn_cli_table letter_table = {CAIRN_MESSAGE_letter_row, letter_columns,
                                                    CAIRN_COUNT(letter_columns), cell_id, NULL};

/* ---- what is asked ---- */

static enum cairn_code list_as(const struct cairn_cli *cli, const char *path,
                               const struct cairn_cli_table *as, struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *items = json_array();
    CAIRN_TRY(cairn_cli_list(cli, path, WEBHOOKS_MAX, items, NULL, err));
    return cairn_cli_print(cli, items, as, err);
}

static enum cairn_code redeliver(const struct cairn_cli *cli, const char *tail,
                                 struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *json = NULL;
    struct cairn_msg_redelivered done = {0};
    const struct cairn_cli_call call = {.method = "POST", .tail = tail};
    CAIRN_TRY(cairn_cli_call(cli, NULL, call, &json, err));
    CAIRN_TRY(cairn_cli_reply_read(CAIRN_MESSAGE_redelivered, json, &done, err));
    if (cli->output != CAIRN_CLI_TABLE) return cairn_cli_print_json(json, true, err);
    printf("%s: %s tried once more\n", done.name,
           cairn_cli_counted(done.dead_letters, "dead letter is", "dead letters are").text);
    return fflush(stdout) ? cairn_fail_errno(err, "standard output") : CAIRN_OK;
}

static enum cairn_code run_webhooks(struct cairn_cli *cli, struct cairn_error *err) {
    const char *what = cli->arguments[0], *name = cli->arguments[1];
    char path[CAIRN_NAME_BYTES_MAX + 40];
    bool named = cli->argument_count == 2;
    if (named && !cairn_name_valid(cairn_view_of(name)))
        return cairn_fail(err, CAIRN_INVALID, "\"%.80s\": name a webhook", name);
    if (!strcmp(what, "ls") && !named) return list_as(cli, "/v1/webhooks", &webhook_table, err);
    if (!strcmp(what, "letters") && named) {
        snprintf(path, sizeof path, "/v1/webhooks/%s/dead-letters", name);
        return list_as(cli, path, &letter_table, err);
    }
    if (!strcmp(what, "redeliver") && named) {
        snprintf(path, sizeof path, "/webhooks/%s/redeliver", name);
        return redeliver(cli, path, err);
    }
    return cairn_fail(err, CAIRN_INVALID, "want ls, or letters or redeliver NAME; usage: %s",
                      cairn_cli_verb_webhooks.synopsis);
}

const struct cairn_cli_verb cairn_cli_verb_webhooks = {
    .name = "webhooks",
    .synopsis = "cairn webhooks ls|letters|redeliver [flags] [NAME]",
    .purpose = "Who is told of events, how far, and what they did not take.",
    .examples = "  cairn webhooks ls\n"
                "  cairn webhooks letters chat\n"
                "  cairn webhooks redeliver chat\n",
    .arguments_min = 1,
    .arguments_max = 2,
    .run = run_webhooks,
};
