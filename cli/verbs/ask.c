/* SPDX-License-Identifier: Apache-2.0 */
/* cairn wait, resume and nodes: one question to the server each. */
#include <poll.h>
#include <stdio.h>

#include "cli/call.h"
#include "cli/output.h"
#include "common/clock.h"

#define WAIT_DEFAULT_MS 600000
#define POLL_MS 30000
#define LOOK_AGAIN_MS 500

static const struct cairn_cli_flag wait_flags[] = {
    {"for", 0, CAIRN_CLI_TEXT, CAIRN_CLI_AT(wait_for), 0, "STATE", "committed (the default)."},
};
static const struct cairn_cli_flag resume_flags[] = {
    {"or-none", 0, CAIRN_CLI_SWITCH, CAIRN_CLI_AT(or_none), 0, NULL,
     "Status 0 and no output for a run of a known project that has no checkpoint yet."},
};

/* One long poll after the other, each shorter than any proxy's patience. */
static enum cairn_code run_wait(struct cairn_cli *cli, struct cairn_error *err) {
    if (cli->wait_for && strcmp(cli->wait_for, "committed"))
        return cairn_fail(err, CAIRN_INVALID, "--for takes committed, not %s", cli->wait_for);
    struct cairn_cli_ref ref;
    CAIRN_TRY(cairn_cli_ref_latest(cli, &ref, err));
    uint64_t patience = cli->timeout_ms ? cli->timeout_ms : WAIT_DEFAULT_MS;
    uint64_t deadline = cairn_deadline_in(&cairn_clock_real, patience);
    cli->timeout_ms = 0;
    for (;;) {
        CAIRN_AUTO_JSON json_t *version = NULL;
        uint64_t left = cairn_deadline_left_ms(&cairn_clock_real, deadline);
        uint64_t poll_ms = cairn_min_u64(left, POLL_MS);
        char tail[64];
        snprintf(tail, sizeof tail, "?for=committed&wait=%llums", (unsigned long long)poll_ms);
        struct cairn_cli_call call = {.tail = tail, .timeout_ms = (uint32_t)poll_ms + 10000};
        enum cairn_code code = cairn_cli_call(cli, &ref, call, &version, err);
        if (code == CAIRN_NOT_FOUND && left) { /* nobody has begun it yet */
            (void)poll(NULL, 0, (int)cairn_min_u64(left, LOOK_AGAIN_MS));
            continue;
        }
        if (code == CAIRN_NOT_FOUND)
            return cairn_fail(err, CAIRN_TIMEOUT, "nobody has begun %s", cli->arguments[0]);
        if (code != CAIRN_OK) return code;
        const char *state = cairn_cli_text_of(version, "state");
        if (!strcmp(state, "committed")) {
            if (cli->output != CAIRN_CLI_TABLE) return cairn_cli_print_json(version, true, err);
            cairn_cli_print_version(version);
            return CAIRN_OK;
        }
        if (strcmp(state, "open"))
            return cairn_fail(err, CAIRN_ABORTED, "%s is %s: %s", cli->arguments[0], state,
                              cairn_cli_text_of(version, "reason"));
        if (!left)
            return cairn_fail(err, CAIRN_TIMEOUT, "%s is still open: %llu of %llu ranks sealed",
                              cli->arguments[0],
                              (unsigned long long)cairn_cli_number_of(version, "ranks_sealed"),
                              (unsigned long long)cairn_cli_number_of(version, "world_size"));
    }
}

/* Nothing to resume from: a first run, or a name that nobody meant? A run that is known has begun
 * without committing; one that is not may be new in a project that others use. */
static enum cairn_code none_yet(struct cairn_cli *cli, const struct cairn_cli_ref *asked,
                                const struct cairn_error *why, struct cairn_error *err) {
    CAIRN_AUTO_PTR(rest) rest = NULL;
    CAIRN_AUTO_JSON json_t *reply = NULL;
    CAIRN_AUTO(buf) path = {0};
    CAIRN_TRY(cairn_buf_printf(&path, err, "/v1/runs?project=%s&limit=1", asked->name.project));
    CAIRN_TRY(cairn_cli_connect(cli, &rest, err));
    CAIRN_TRY(cairn_rest_call(rest, "GET", path.data, NULL, 0, &reply, err));
    if (!json_array_size(json_object_get(reply, "items")))
        return cairn_fail(err, CAIRN_NOT_FOUND, "the server knows no project %s",
                          asked->name.project);
    if (!cli->or_none) {
        if (err) *err = *why;
        return CAIRN_NOT_FOUND;
    }
    if (cli->output == CAIRN_CLI_JSON || cli->output == CAIRN_CLI_JSONL) puts("null");
    return fflush(stdout) ? cairn_fail_errno(err, "standard output") : CAIRN_OK;
}

static enum cairn_code run_resume(struct cairn_cli *cli, struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *version = NULL;
    struct cairn_cli_ref ref;
    struct cairn_error why = {0};
    CAIRN_TRY(cairn_cli_ref_latest(cli, &ref, err));
    if (strcmp(ref.version, "latest") != 0)
        return cairn_fail(err, CAIRN_INVALID, "resume takes project/run, not a checkpoint of it");
    enum cairn_code code = cairn_cli_call(cli, &ref, (struct cairn_cli_call){0}, &version, &why);
    if (code == CAIRN_NOT_FOUND) return none_yet(cli, &ref, &why, err);
    if (code) {
        if (err) *err = why;
        return code;
    }
    if (cli->output == CAIRN_CLI_JSON || cli->output == CAIRN_CLI_JSONL)
        return cairn_cli_print_json(version, cli->output == CAIRN_CLI_JSON, err);
    if (cli->output == CAIRN_CLI_NAME)
        puts(cairn_cli_text_of(version, "version"));
    else
        printf("%llu\n", (unsigned long long)cairn_cli_number_of(version, "step"));
    return CAIRN_OK;
}

static void cell_node(const json_t *item, char *ret, size_t capacity) {
    snprintf(ret, capacity, "%s", cairn_cli_text_of(item, "node"));
}
static void cell_heard(const json_t *item, char *ret, size_t capacity) {
    snprintf(ret, capacity, "%s", cairn_cli_text_of(item, "last_heard"));
}
static const struct cairn_cli_column node_columns[] = {
    {"NODE", false, cell_node},
    {"HEARD", false, cell_heard},
};

static enum cairn_code run_nodes(struct cairn_cli *cli, struct cairn_error *err) {
    CAIRN_AUTO_PTR(rest) rest = NULL;
    CAIRN_AUTO_JSON json_t *reply = NULL;
    CAIRN_TRY(cairn_cli_connect(cli, &rest, err));
    CAIRN_TRY(cairn_rest_call(rest, "GET", "/v1/nodes", NULL, 0, &reply, err));
    return cairn_cli_print(cli, json_object_get(reply, "items"), node_columns,
                           CAIRN_COUNT(node_columns), "node", err);
}

const struct cairn_cli_verb cairn_cli_verb_wait = {
    .name = "wait",
    .synopsis = "cairn wait [flags] project/run@step",
    .purpose = "Wait until a checkpoint is committed.",
    .examples = "  cairn wait llm/7b@1200 --timeout 10min\n"
                "  cairn wait llm/7b@ckpt_... --for committed\n"
                "  cairn wait llm/7b@1200 --json\n",
    .flags = wait_flags,
    .flag_count = CAIRN_COUNT(wait_flags),
    .arguments_min = 1,
    .arguments_max = 1,
    .run = run_wait,
};
const struct cairn_cli_verb cairn_cli_verb_resume = {
    .name = "resume",
    .synopsis = "cairn resume [flags] project/run",
    .purpose = "Print the step that a restarted job would go on from.",
    .examples = "  cairn resume llm/7b\n  cairn resume llm/7b --output name\n"
                "  STEP=$(cairn resume llm/7b --or-none) || exit   (empty: a first run)\n",
    .flags = resume_flags,
    .flag_count = CAIRN_COUNT(resume_flags),
    .arguments_min = 1,
    .arguments_max = 1,
    .run = run_resume,
};
const struct cairn_cli_verb cairn_cli_verb_nodes = {
    .name = "nodes",
    .synopsis = "cairn nodes [flags]",
    .purpose = "List the uploaders the server has heard of.",
    .examples = "  cairn nodes\n  cairn nodes --json\n  cairn nodes --output name\n",
    .run = run_nodes,
};
