/* SPDX-License-Identifier: Apache-2.0 */
/* cairn nodes: the uploaders that the server has heard of. */
#include <stdio.h>

#include "cli/output.h"

#define NODES_MAX 100000

static void cell_node(const union cairn_cli_row *row, char *ret, size_t capacity) {
    snprintf(ret, capacity, "%s", row->node.node);
}
static void cell_heard(const union cairn_cli_row *row, char *ret, size_t capacity) {
    snprintf(ret, capacity, "%s", row->node.last_heard ? row->node.last_heard : "never");
}
static void cell_trouble(const union cairn_cli_row *row, char *ret, size_t capacity) {
    snprintf(ret, capacity, "%s", row->node.trouble ? row->node.trouble : "");
}
static const struct cairn_cli_column columns[] = {
    {"NODE", false, cell_node},
    {"HEARD", false, cell_heard},
    {"TROUBLE", false, cell_trouble},
};
static const struct cairn_cli_table table = {CAIRN_MESSAGE_node_row, columns, CAIRN_COUNT(columns),
                                             cell_node, NULL};

static enum cairn_code run(struct cairn_cli *cli, struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *nodes = json_array();
    CAIRN_TRY(cairn_cli_list(cli, "/v1/nodes", NODES_MAX, nodes, NULL, err));
    return cairn_cli_print(cli, nodes, &table, err);
}

const struct cairn_cli_verb cairn_cli_verb_nodes = {
    .name = "nodes",
    .synopsis = "cairn nodes [flags]",
    .purpose = "List the uploaders the server has heard of.",
    .examples = "  cairn nodes\n  cairn nodes --json\n  cairn nodes --output name\n",
    .run = run,
};
