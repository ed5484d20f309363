/* SPDX-License-Identifier: Apache-2.0 */
/* cairn nodes: the uploaders that the server has heard of; and to forget one that is silent. */
#include <stdio.h>

#include "cli/shell/output.h"
#include "cli/shell/sizes.h"
#include "common/encode.h"

#define NODES_MAX 100000

static void cell_node(const union cairn_cli_row *row, char *ret, size_t capacity) {
    snprintf(ret, capacity, "%s", row->node.node);
}
static void cell_heard(const union cairn_cli_row *row, char *ret, size_t capacity) {
    snprintf(ret, capacity, "%s", row->node.heard_at ? row->node.heard_at : "never");
}
/* What the uploader says of itself; all 0 where it says nothing. */
static struct cairn_msg_node_uploader uploader_of(const union cairn_cli_row *row) {
    struct cairn_msg_node_uploader said = {0};
    if (!row->node.uploader || cairn_msg_node_uploader_read(row->node.uploader, "", &said, NULL))
        return (struct cairn_msg_node_uploader){0};
    return said;
}
static void print_bytes(uint64_t bytes, const char *behind, char *ret, size_t capacity) {
    char size[24];
    cairn_cli_size(bytes, size);
    snprintf(ret, capacity, "%s%s", bytes ? size : "-", bytes ? behind : "");
}

static void cell_open(const union cairn_cli_row *row, char *ret, size_t capacity) {
    snprintf(ret, capacity, "%llu", (unsigned long long)row->node.versions);
}
static void cell_rate(const union cairn_cli_row *row, char *ret, size_t capacity) {
    print_bytes(uploader_of(row).upload_bytes_per_s, "/s", ret, capacity);
}
static void cell_state(const union cairn_cli_row *row, char *ret, size_t capacity) {
    snprintf(ret, capacity, "%s", uploader_of(row).draining ? "draining" : "");
}
static void cell_version(const union cairn_cli_row *row, char *ret, size_t capacity) {
    const char *version = uploader_of(row).version;
    snprintf(ret, capacity, "%s", version ? version : "");
}
static void cell_kept(const union cairn_cli_row *row, char *ret, size_t capacity) {
    print_bytes(uploader_of(row).kept_bytes, "", ret, capacity);
}
static void cell_domain(const union cairn_cli_row *row, char *ret, size_t capacity) {
    const char *domain = uploader_of(row).failure_domain;
    snprintf(ret, capacity, "%s", domain ? domain : "");
}
static void cell_trouble(const union cairn_cli_row *row, char *ret, size_t capacity) {
    snprintf(ret, capacity, "%s", row->node.trouble ? row->node.trouble : "");
}
/* What a wide table has besides stands behind. */
static const struct cairn_cli_column node_columns[] = {
    {"NODE", false, cell_node},       {"HEARD", false, cell_heard},
    {"OPEN", true, cell_open},        {"UPLOADS", true, cell_rate},
    {"STATE", false, cell_state},     {"TROUBLE", false, cell_trouble},
    {"VERSION", false, cell_version}, {"IN MEMORY", true, cell_kept},
    {"DOMAIN", false, cell_domain},
};
#define WIDE_COLUMNS 3
static const struct cairn_cli_table node_table = {CAIRN_MESSAGE_node_row, node_columns,
                                                  CAIRN_COUNT(node_columns) - WIDE_COLUMNS,
                                                  cell_node, NULL};
static const struct cairn_cli_table node_wide_table = {CAIRN_MESSAGE_node_row, node_columns,
                                                  CAIRN_COUNT(node_columns), cell_node, NULL};

static enum cairn_code list_nodes(const struct cairn_cli *cli, struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *nodes = json_array();
    CAIRN_TRY(cairn_cli_list(cli, "/v1/nodes", NODES_MAX, nodes, NULL, err));
    return cairn_cli_print(cli, nodes, cli->wide ? &node_wide_table : &node_table, err);
}

static enum cairn_code forget_node(const struct cairn_cli *cli, const char *node,
                                   struct cairn_error *err) {
    CAIRN_AUTO(buf) tail = {0};
    CAIRN_AUTO_JSON json_t *json = NULL;
    CAIRN_TRY(cairn_buf_printf(&tail, err, "/nodes/"));
    CAIRN_TRY(cairn_percent_encode(cairn_view_of(node), false, &tail, err));
    struct cairn_cli_call call = {.method = "DELETE", .tail = tail.data};
    CAIRN_TRY(cairn_cli_call(cli, NULL, call, &json, err));
    if (cli->output != CAIRN_CLI_TABLE) return cairn_cli_print_json(json, true, err);
    printf("node %s is forgotten; its next heartbeat makes it known again\n", node);
    return fflush(stdout) ? cairn_fail_errno(err, "standard output") : CAIRN_OK;
}

static enum cairn_code run_nodes(struct cairn_cli *cli, struct cairn_error *err) {
    const char *what = cli->argument_count ? cli->arguments[0] : "ls";
    if (!strcmp(what, "ls") && cli->argument_count <= 1) return list_nodes(cli, err);
    if (!strcmp(what, "rm") && cli->argument_count == 2)
        return forget_node(cli, cli->arguments[1], err);
    return cairn_fail(err, CAIRN_INVALID, "want ls, or rm NODE, not \"%.40s\"; usage: %s", what,
                      cairn_cli_verb_nodes.synopsis);
}

const struct cairn_cli_verb cairn_cli_verb_nodes = {
    .name = "nodes",
    .synopsis = "cairn nodes [ls|rm] [flags] [NODE]",
    .purpose = "List the uploaders the server has heard of, and how they fare; or forget one.",
    .examples = "  cairn nodes\n  cairn nodes -o wide\n"
                "  cairn nodes rm gpu-07                       (one that will not come back)\n",
    .arguments_max = 2,
    .run = run_nodes,
};
