/* SPDX-License-Identifier: Apache-2.0 */
/* cairn warmup node|ls: before a job, whether the ranks of this node could save; or what the ranks
 * of a run's newest attempt have found. An attempt ends every older one of its run, so the node's
 * look has a run of its own, on which nothing trains. */
#include <cairn/cairn.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "api/wire/routes.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/uploader_link.h"
#include "common/clock.h"
#include "common/text.h"
#include "common/trace.h"

#define RANKS_MAX 256
#define ROWS_MAX 1000000
#define ANSWER_MS 10000
#define CALL_MS 60000
#define RUN_PREFIX "warmup-"

static const struct cairn_cli_flag flags[] = {
    {"ranks", 'n', CAIRN_CLI_COUNT, CAIRN_CLI_AT(ranks), 0, "N",
     "Of node: ranks of the job on this node; default 1."},
    {"bytes", 'b', CAIRN_CLI_SIZE, CAIRN_CLI_AT(bytes), 0, "SIZE",
     "Of node: what one save of a rank stages; default: its memory is not looked at."},
};

/* ---- what is printed ---- */

static void cell_node(const union cairn_cli_row *row, char *ret, size_t capacity) {
    snprintf(ret, capacity, "%s", row->probe.node);
}
static void cell_rank(const union cairn_cli_row *row, char *ret, size_t capacity) {
    snprintf(ret, capacity, "%" PRIu64, (uint64_t)row->probe.rank);
}
static void cell_found(const union cairn_cli_row *row, char *ret, size_t capacity) {
    snprintf(ret, capacity, "%s", row->probe.ok ? "ok" : row->probe.code ? row->probe.code : "");
}
static void cell_reason(const union cairn_cli_row *row, char *ret, size_t capacity) {
    snprintf(ret, capacity, "%s", row->probe.reason ? row->probe.reason : "");
}
static const struct cairn_cli_column columns[] = {
    {"NODE", false, cell_node},
    {"RANK", true, cell_rank},
    {"FOUND", false, cell_found},
    {"REASON", false, cell_reason},
};
static const struct cairn_cli_table table = {CAIRN_MESSAGE_probe_row, columns, CAIRN_COUNT(columns),
                                             cell_rank, NULL};

/* ---- node ---- */

struct warm {
    char node[CAIRN_NAME_BYTES_MAX + 1];
    char run[2 * CAIRN_NAME_BYTES_MAX + 2], job[CAIRN_UUID_TEXT_BYTES];
    const char *socket;
    uint64_t bytes;
    uint32_t ranks, timeout_ms;
    struct cairn_session *sessions[RANKS_MAX]; /* all stay open: the node holds all at once */
};

static void warm_release(struct warm *warm) {
    for (uint32_t rank = 0; rank < warm->ranks; rank++)
        (void)cairn_close(warm->sessions[rank], NULL);
}

static enum cairn_code name_node(struct warm *warm, struct cairn_error *err) {
    struct cairn_cli_uploader link = {.fd = -1};
    struct cairn_msg_report report = {.node = ""};
    CAIRN_AUTO_JSON json_t *json = NULL;
    CAIRN_TRY(cairn_cli_uploader_open(warm->socket, &link, err));
    enum cairn_code code = cairn_cli_uploader_ask(
        &link, CAIRN_PACK(status, 0), cairn_deadline_in(&cairn_clock_real, ANSWER_MS), &json, err);
    cairn_cli_uploader_close(&link);
    if (!code) code = cairn_cli_reply_read(CAIRN_MESSAGE_report, json, &report, err);
    if (code) return code;
    (void)cairn_text_copy(warm->node, sizeof warm->node, report.node);
    return CAIRN_OK;
}

static enum cairn_code prepare(const struct cairn_cli *cli, struct warm *ret,
                               struct cairn_error *err) {
    const char *project = cli->arguments[1];
    struct cairn_run_name name;
    if (!cairn_name_valid(cairn_view_of(project)))
        return cairn_fail(err, CAIRN_INVALID, "\"%s\": want a project: " CAIRN_NAME_WANTED,
                          project);
    if (cli->ranks > RANKS_MAX)
        return cairn_fail(err, CAIRN_INVALID, "at most %d ranks", RANKS_MAX);
    *ret = (struct warm){.socket = cairn_cli_uploader_socket(cli),
                         .bytes = cli->bytes,
                         .timeout_ms = cli->timeout_ms
                                           ? (uint32_t)cairn_min_u64(cli->timeout_ms, UINT32_MAX)
                                           : CALL_MS};
    CAIRN_TRY(name_node(ret, err));
    cairn_uuid_random(ret->job);
    int length = snprintf(ret->run, sizeof ret->run, "%s/" RUN_PREFIX "%s", project, ret->node);
    if (length >= (int)sizeof ret->run || cairn_run_name_parse(ret->run, &name, err) != CAIRN_OK)
        return cairn_fail(err, CAIRN_INVALID, "node %s: its name makes no run", ret->node);
    ret->ranks = cli->ranks ? (uint32_t)cli->ranks : 1;
    return CAIRN_OK;
}

/* As the ranks of a job do it, one after the other: an attempt, memory, a probe in the store. */
static enum cairn_code warm_rank(struct warm *warm, uint32_t rank, struct cairn_error *err) {
    const struct cairn_open_options options = {.size = sizeof options,
                                               .run = warm->run,
                                               .job = warm->job,
                                               .rank = rank,
                                               .world_size = warm->ranks,
                                               .local_rank = rank,
                                               .local_world_size = warm->ranks,
                                               .bytes = warm->bytes,
                                               .socket = warm->socket,
                                               .timeout_ms = warm->timeout_ms};
    CAIRN_TRY(cairn_open(&options, &warm->sessions[rank], NULL, err));
    return cairn_warmup(warm->sessions[rank], NULL, err);
}

static enum cairn_code add_row(const struct warm *warm, uint32_t rank,
                               const struct cairn_error *why, json_t *rows,
                               struct cairn_error *err) {
    json_t *row = CAIRN_PACK(probe_row, .rank = rank, .node = warm->node, .ok = !why->code,
                             .code = why->code ? cairn_code_info(why->code)->slug : NULL,
                             .reason = why->code ? why->message : NULL);
    return row && !json_array_append_new(rows, row)
               ? CAIRN_OK
               : cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a list");
}

static enum cairn_code warm_all(const struct cairn_cli *cli, struct warm *warm,
                                struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *rows = json_array();
    struct cairn_error first = {0};
    uint32_t failed = 0;
    for (uint32_t rank = 0; rank < warm->ranks; rank++) {
        struct cairn_error why = {0};
        why.code = warm_rank(warm, rank, &why);
        if (why.code && !failed++) first = why;
        CAIRN_TRY(add_row(warm, rank, &why, rows, err));
    }
    CAIRN_TRY(cairn_cli_print(cli, rows, &table, err));
    if (!failed) return CAIRN_OK;
    if (err) *err = first;
    return cairn_within(err, first.code, "node %s: %u of %u ranks could not save", warm->node,
                        failed, warm->ranks);
}

/* ---- */

static enum cairn_code list(const struct cairn_cli *cli, struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *rows = json_array();
    struct cairn_run_name name;
    char path[2 * CAIRN_NAME_BYTES_MAX + 40];
    CAIRN_TRY(cairn_run_name_parse(cli->arguments[1], &name, err));
    snprintf(path, sizeof path, "/v1/runs/%s/%s/probes", name.project, name.run);
    CAIRN_TRY(cairn_cli_list(cli, path, ROWS_MAX, rows, NULL, err));
    return cairn_cli_print(cli, rows, &table, err);
}

static enum cairn_code run(struct cairn_cli *cli, struct cairn_error *err) {
    struct warm warm;
    if (!strcmp(cli->arguments[0], "ls") && !cli->ranks && !cli->bytes) return list(cli, err);
    if (strcmp(cli->arguments[0], "node") != 0)
        return cairn_fail(err, CAIRN_INVALID, "want node PROJECT, or ls PROJECT/RUN; usage: %s",
                          cairn_cli_verb_warmup.synopsis);
    CAIRN_TRY(prepare(cli, &warm, err));
    enum cairn_code code = warm_all(cli, &warm, err);
    warm_release(&warm);
    return code;
}

const struct cairn_cli_verb cairn_cli_verb_warmup = {
    .name = "warmup",
    .synopsis = "cairn warmup node|ls [flags] project[/run]",
    .purpose = "Before a job: which of this node's ranks could not save, and why.",
    .examples = "  cairn warmup node llm --ranks 8 --bytes 20GiB\n"
                "  srun --ntasks-per-node=1 cairn warmup node llm --json\n"
                "  cairn warmup ls llm/7b\n",
    .flags = flags,
    .flag_count = CAIRN_COUNT(flags),
    .arguments_min = 2,
    .arguments_max = 2,
    .run = run,
};
