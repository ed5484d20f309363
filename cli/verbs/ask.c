/* SPDX-License-Identifier: Apache-2.0 */
/* cairn show, wait, resume and nodes: one question to the server each. */
#include <poll.h>
#include <stdio.h>

#include "cli/output.h"
#include "cli/ref.h"
#include "common/clock.h"
#include "common/encode.h"
#include "common/text.h"

#define WAIT_DEFAULT_MS 600000
#define POLL_MS 30000
#define LOOK_AGAIN_MS 500
#define TENSORS_SHOWN 1000

static const struct cairn_cli_flag wait_flags[] = {
    {"for", 0, CAIRN_CLI_TEXT, CAIRN_CLI_AT(wait_for), 0, "STATE", "committed (the default)."},
};

static enum cairn_code call(struct cairn_cli *cli, const char *method, const char *tail,
                            uint32_t timeout_ms, json_t **ret, struct cairn_error *err) {
    CAIRN_AUTO_PTR(rest) rest = NULL;
    CAIRN_AUTO(buf) path = {0};
    struct cairn_cli_ref ref;
    CAIRN_TRY(cairn_cli_ref_parse(cli->arguments[0], &ref, err));
    if (!ref.version[0]) cairn_text_copy(ref.version, sizeof ref.version, "latest");
    CAIRN_TRY(cairn_cli_connect(cli, &rest, err));
    CAIRN_TRY(cairn_cli_path(&ref, tail, &path, err));
    return cairn_rest_call(rest, method, path.data, NULL, timeout_ms, ret, err);
}

static void print_field(const char *name, const char *value) {
    char text[4200];
    if (!*value) return;
    snprintf(text, sizeof text, "%s", value);
    cairn_cli_clean(text);
    printf("%-12s %s\n", name, text);
}

static void print_version(const json_t *version) {
    char size[24];
    cairn_size_text(cairn_cli_number_of(version, "bytes"), size);
    printf("%-12s %s/%s step %llu, attempt %llu\n", "checkpoint",
           cairn_cli_text_of(version, "project"), cairn_cli_text_of(version, "run"),
           (unsigned long long)cairn_cli_number_of(version, "step"),
           (unsigned long long)cairn_cli_number_of(version, "attempt"));
    print_field("version", cairn_cli_text_of(version, "version"));
    print_field("state", cairn_cli_text_of(version, "state"));
    print_field("code", cairn_cli_text_of(version, "code"));
    print_field("reason", cairn_cli_text_of(version, "reason"));
    print_field("request id", cairn_cli_text_of(version, "request_id"));
    printf("%-12s %s in %llu shards of %llu ranks\n", "content", size,
           (unsigned long long)cairn_cli_number_of(version, "shards"),
           (unsigned long long)cairn_cli_number_of(version, "world_size"));
    print_field("format", cairn_cli_text_of(version, "format"));
    print_field("layout", cairn_cli_text_of(version, "layout"));
    print_field("created", cairn_cli_text_of(version, "created_at"));
    print_field("committed", cairn_cli_text_of(version, "committed_at"));
}

static void cell_name(const json_t *item, char *ret, size_t capacity) {
    snprintf(ret, capacity, "%s", cairn_cli_text_of(item, "name"));
}
static void cell_rank(const json_t *item, char *ret, size_t capacity) {
    snprintf(ret, capacity, "%llu", (unsigned long long)cairn_cli_number_of(item, "rank"));
}
static void cell_bytes(const json_t *item, char *ret, size_t capacity) {
    char text[24];
    uint64_t size = cairn_cli_number_of(item, "size");
    cairn_size_text(size ? size : cairn_cli_number_of(item, "bytes"), text);
    snprintf(ret, capacity, "%s", text);
}
static void cell_crc(const json_t *item, char *ret, size_t capacity) {
    snprintf(ret, capacity, "%s", cairn_cli_text_of(item, "crc32c"));
}
static void cell_dtype(const json_t *item, char *ret, size_t capacity) {
    snprintf(ret, capacity, "%s", cairn_cli_text_of(item, "dtype"));
}
static void cell_shape(const json_t *item, char *ret, size_t capacity) {
    size_t used = 0, index;
    json_t *dimension;
    ret[0] = '\0';
    json_array_foreach(json_object_get(item, "shape"), index, dimension) {
        if (used < capacity)
            used += (size_t)snprintf(ret + used, capacity - used, "%s%lld", index ? "x" : "",
                                     (long long)json_integer_value(dimension));
    }
    if (!used) snprintf(ret, capacity, "scalar");
}
static void cell_kind(const json_t *item, char *ret, size_t capacity) {
    const char *alias = cairn_cli_text_of(item, "alias_of");
    snprintf(ret, capacity, "%s%s%s", cairn_cli_text_of(item, "kind"), *alias ? " of " : "", alias);
}
static const struct cairn_cli_column shard_columns[] = {
    {"SHARD", false, cell_name},
    {"RANK", true, cell_rank},
    {"SIZE", true, cell_bytes},
    {"CRC32C", false, cell_crc},
};
static const struct cairn_cli_column tensor_columns[] = {
    {"TENSOR", false, cell_name}, {"DTYPE", false, cell_dtype}, {"SHAPE", false, cell_shape},
    {"SIZE", true, cell_bytes},   {"KIND", false, cell_kind},
};

static enum cairn_code print_list(struct cairn_cli *cli, const char *tail,
                                  const struct cairn_cli_column *columns, size_t count,
                                  struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *reply = NULL;
    CAIRN_TRY(call(cli, "GET", tail, 0, &reply, err));
    const json_t *items = json_object_get(reply, "items");
    if (!json_array_size(items)) return CAIRN_OK;
    printf("\n");
    CAIRN_TRY(cairn_cli_print(cli, items, columns, count, "name", err));
    if (json_is_string(json_object_get(reply, "next_cursor")))
        printf("... and more: curl the API's %.10s list with its cursor\n", tail + 1);
    return CAIRN_OK;
}

static enum cairn_code run_show(struct cairn_cli *cli, struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *version = NULL;
    CAIRN_TRY(call(cli, "GET", "", 0, &version, err));
    if (cli->output == CAIRN_CLI_NAME) {
        puts(cairn_cli_text_of(version, "version"));
        return CAIRN_OK;
    }
    if (cli->output != CAIRN_CLI_TABLE)
        return cairn_cli_print_json(version, cli->output == CAIRN_CLI_JSON, err);
    print_version(version);
    char tail[64];
    snprintf(tail, sizeof tail, "/shards?limit=%d", TENSORS_SHOWN);
    CAIRN_TRY(print_list(cli, tail, shard_columns, CAIRN_COUNT(shard_columns), err));
    if (!*cairn_cli_text_of(version, "layout")) {
        puts("\nopaque content: no shard is described as tensors, only names and bytes are known");
        return CAIRN_OK;
    }
    snprintf(tail, sizeof tail, "/tensors?limit=%d", TENSORS_SHOWN);
    return print_list(cli, tail, tensor_columns, CAIRN_COUNT(tensor_columns), err);
}

/* One long poll after the other, each shorter than any proxy's patience. */
static enum cairn_code run_wait(struct cairn_cli *cli, struct cairn_error *err) {
    if (cli->wait_for && strcmp(cli->wait_for, "committed"))
        return cairn_fail(err, CAIRN_INVALID, "--for takes committed, not %s", cli->wait_for);
    uint64_t patience = cli->timeout_ms ? cli->timeout_ms : WAIT_DEFAULT_MS;
    uint64_t deadline = cairn_deadline_in(&cairn_clock_real, patience);
    cli->timeout_ms = 0;
    for (;;) {
        CAIRN_AUTO_JSON json_t *version = NULL;
        uint64_t left = cairn_deadline_left_ms(&cairn_clock_real, deadline);
        uint64_t poll_ms = cairn_min_u64(left, POLL_MS);
        char tail[64];
        snprintf(tail, sizeof tail, "?for=committed&wait=%llums", (unsigned long long)poll_ms);
        enum cairn_code code = call(cli, "GET", tail, (uint32_t)poll_ms + 10000, &version, err);
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
            print_version(version);
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

static enum cairn_code run_resume(struct cairn_cli *cli, struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *version = NULL;
    CAIRN_TRY(call(cli, "GET", "", 0, &version, err));
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

const struct cairn_cli_verb cairn_cli_verb_show = {
    .name = "show",
    .synopsis = "cairn show [flags] project/run[@step|@latest|@ckpt_...]",
    .purpose = "Show one checkpoint: state, shards, tensors.",
    .examples = "  cairn show llm/7b@latest\n  cairn show llm/7b@1200 --json\n"
                "  cairn show llm/7b@latest --output name\n",
    .arguments_min = 1,
    .arguments_max = 1,
    .run = run_show,
};
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
                "  STEP=$(cairn resume llm/7b) || STEP=0\n",
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
