/* SPDX-License-Identifier: Apache-2.0 */
/* cairn operation ls|show|wait|cancel: imports, exports, copies and removals by the server. */
#include "cli/verbs/operation.h"

#include <inttypes.h>
#include <stdio.h>

#include "api/wire/messages.h"
#include "cli/patience.h"
#include "cli/sizes.h"
#include "common/clock.h"
#include "common/text.h"

#define LIST_DEFAULT 100
#define TIMEOUT_DEFAULT_MS 600000

static const struct cairn_cli_flag flags[] = {
    {"limit", 'n', CAIRN_CLI_COUNT, CAIRN_CLI_AT(limit), 0, "N",
     "Of ls: how many, the newest first (100 by default)."},
};

/* ---- as a table ---- */

static void cell_id(const union cairn_cli_row *row, char *ret, size_t capacity) {
    snprintf(ret, capacity, "%s", row->operation.id);
}
static void cell_kind(const union cairn_cli_row *row, char *ret, size_t capacity) {
    snprintf(ret, capacity, "%s", row->operation.kind);
}
static void cell_run(const union cairn_cli_row *row, char *ret, size_t capacity) {
    snprintf(ret, capacity, "%s/%s", row->operation.project, row->operation.run);
}
static void cell_state(const union cairn_cli_row *row, char *ret, size_t capacity) {
    snprintf(ret, capacity, "%s", row->operation.state);
}
static void cell_progress(const union cairn_cli_row *row, char *ret, size_t capacity) {
    struct cairn_msg_operation_progress at = {0};
    *ret = '\0';
    if (cairn_msg_operation_progress_read(row->operation.progress, "", &at, NULL) || !at.total)
        return;
    char done[24], total[24];
    if (strcmp(at.unit, "bytes") != 0) {
        snprintf(ret, capacity, "%" PRIu64 " of %" PRIu64 " %s", at.done, at.total, at.unit);
        return;
    }
    cairn_cli_size(at.done, done);
    cairn_cli_size(at.total, total);
    snprintf(ret, capacity, "%s of %s", done, total);
}
static void cell_why(const union cairn_cli_row *row, char *ret, size_t capacity) {
    struct cairn_error why = {0};
    *ret = '\0';
    if (!row->operation.problem) return;
    cairn_failure_get(row->operation.problem, "detail", &why);
    snprintf(ret, capacity, "%s", why.message);
}
static const struct cairn_cli_column columns[] = {
    {"OPERATION", false, cell_id}, {"KIND", false, cell_kind},
    {"RUN", false, cell_run},      {"STATE", false, cell_state},
    {"PROGRESS", true, cell_progress}, {"WHY", false, cell_why},
};
static const struct cairn_cli_table table = {CAIRN_MESSAGE_operation_row, columns,
                                             CAIRN_COUNT(columns), cell_id, NULL};

static enum cairn_code print_one(const struct cairn_cli *cli, json_t *json,
                                 struct cairn_error *err) {
    if (cli->output == CAIRN_CLI_JSON || cli->output == CAIRN_CLI_JSONL)
        return cairn_cli_print_json(json, cli->output == CAIRN_CLI_JSON, err);
    CAIRN_AUTO_JSON json_t *items = json_pack("[O]", json);
    if (!items) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the answer");
    return cairn_cli_print(cli, items, &table, err);
}

/* ---- what is asked ---- */

bool cairn_cli_is_operation(const char *text) {
    return cairn_text_starts(text, "op_") && !strchr(text, '/');
}

static enum cairn_code ask(const struct cairn_cli *cli, const char *id, const char *method,
                           struct cairn_cli_patience *patience, json_t **ret,
                           struct cairn_error *err) {
    char tail[100];
    if (strlen(id) > 64 || !id[0] || id[strspn(id, "abcdefghijklmnopqrstuvwxyz_0123456789")])
        return cairn_fail(err, CAIRN_INVALID, "\"%.80s\" is no operation: they begin with op_", id);
    snprintf(tail, sizeof tail, "/operations/%s", id);
    struct cairn_cli_call call = {.method = method, .tail = tail};
    if (!patience) return cairn_cli_call(cli, NULL, call, ret, err);
    call.wait_ms = CAIRN_CLI_LONG_POLL_MS;
    return cairn_cli_patient_call(patience, cli, NULL, call, ret, err);
}

/* Its end is the command's: whoever waits in a script need not read what is printed. */
static enum cairn_code end_of(const struct cairn_msg_operation_row *row, struct cairn_error *err) {
    struct cairn_error why = {0};
    if (!strcmp(row->state, "done")) return CAIRN_OK;
    if (row->problem) cairn_failure_get(row->problem, "detail", &why);
    enum cairn_code code = why.code ? why.code : CAIRN_CANCELLED;
    return cairn_fail(err, code, "%s %s: %s", row->id, row->state, why.message);
}

enum cairn_code cairn_cli_operation_wait(struct cairn_cli *cli, const char *id,
                                         struct cairn_error *err) {
    uint64_t timeout_ms = cli->timeout_ms ? cli->timeout_ms : TIMEOUT_DEFAULT_MS;
    struct cairn_cli_patience patience = {
        .deadline = cairn_deadline_in(&cairn_clock_real, timeout_ms)};
    cli->timeout_ms = 0; /* of the whole wait, not of each request */
    for (;;) {
        CAIRN_AUTO_JSON json_t *json = NULL;
        struct cairn_msg_operation_row row = {0};
        uint64_t left_ms = cairn_deadline_left_ms(&cairn_clock_real, patience.deadline);
        CAIRN_TRY(ask(cli, id, NULL, &patience, &json, err));
        CAIRN_TRY(cairn_cli_reply_read(CAIRN_MESSAGE_operation_row, json, &row, err));
        bool over = strcmp(row.state, "queued") != 0 && strcmp(row.state, "running") != 0;
        if (!over && left_ms) continue;
        CAIRN_TRY(print_one(cli, json, err));
        return over ? end_of(&row, err)
                    : cairn_fail(err, CAIRN_TIMEOUT, "%s is %s yet", row.id, row.state);
    }
}

static enum cairn_code list(const struct cairn_cli *cli, struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *items = json_array();
    bool more = false;
    CAIRN_TRY(cairn_cli_list(cli, "/v1/operations", cli->limit ? cli->limit : LIST_DEFAULT, items,
                             &more, err));
    CAIRN_TRY(cairn_cli_print(cli, items, &table, err));
    if (more) cairn_cli_note("there are older ones: --limit");
    return CAIRN_OK;
}

static enum cairn_code run_operation(struct cairn_cli *cli, struct cairn_error *err) {
    const char *what = cli->arguments[0];
    CAIRN_AUTO_JSON json_t *json = NULL;
    bool lists = !strcmp(what, "ls"), waits = !strcmp(what, "wait");
    bool cancels = !strcmp(what, "cancel");
    if ((!lists && !waits && !cancels && strcmp(what, "show") != 0) ||
        cli->argument_count != (lists ? 1 : 2))
        return cairn_fail(err, CAIRN_INVALID,
                          "cairn operation ls, or cairn operation show|wait|cancel ID");
    if (lists) return list(cli, err);
    if (waits) return cairn_cli_operation_wait(cli, cli->arguments[1], err);
    CAIRN_TRY(ask(cli, cli->arguments[1], cancels ? "DELETE" : NULL, NULL, &json, err));
    return print_one(cli, json, err);
}

const struct cairn_cli_verb cairn_cli_verb_operation = {
    .name = "operation",
    .synopsis = "cairn operation ls|show|wait|cancel [flags] [ID]",
    .purpose = "What the server does for somebody, as imports: how far it is, and its end.",
    .examples = "  cairn operation ls\n"
                "  cairn operation wait op_01a2... --timeout 1h\n"
                "  cairn operation cancel op_01a2...\n",
    .flags = flags,
    .flag_count = CAIRN_COUNT(flags),
    .arguments_min = 1,
    .arguments_max = 2,
    .run = run_operation,
};
