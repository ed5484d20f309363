/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks of a node stand beside each other most of the time, so its place is looked for once. */
#include "server/ledger/weights.h"

#include <stdlib.h>

#include "common/buf.h"
#include "common/json.h"
#include "server/ledger/members.h"

struct node {
    char *name; /* owned */
    uint64_t rate, ranks;
};
struct cairn_rates {
    struct node *nodes;
    size_t node_count, node_capacity;
    uint32_t *node_of; /* by rank */
    uint64_t rank_count;
};
static void cairn_rates_release(struct cairn_rates *rates) {
    for (size_t i = 0; i < rates->node_count; i++) free(rates->nodes[i].name);
    free(rates->nodes);
    free(rates->node_of);
}

static uint64_t rate_of(const char *uploader) {
    CAIRN_AUTO_JSON json_t *json = json_loads(uploader, JSON_DECODE_ANY, NULL);
    json_int_t rate = json_integer_value(json_object_get(json, "upload_bytes_per_s"));
    return rate > 0 ? (uint64_t)rate : 0;
}

static enum cairn_code find_node(struct cairn_rates *rates, const char *name, const char *uploader,
                                 uint32_t *ret, struct cairn_error *err) {
    for (size_t i = rates->node_count; i-- > 0;) {
        *ret = (uint32_t)i;
        if (!strcmp(rates->nodes[i].name, name)) return CAIRN_OK;
    }
    CAIRN_TRY(CAIRN_ARRAY_ROOM(rates->nodes, rates->node_count, rates->node_capacity,
                               CAIRN_SRV_RANKS_MAX, "nodes of an attempt", err));
    char *copy = strdup(name);
    if (!copy) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the nodes of an attempt");
    *ret = (uint32_t)rates->node_count;
    rates->nodes[rates->node_count++] = (struct node){copy, rate_of(uploader), 0};
    return CAIRN_OK;
}

/* *ret_all: each rank from 0 on has a node whose rate is known. */
static enum cairn_code read_rates(struct cairn_srv_tx *tx, int64_t run_id, uint64_t attempt,
                                  uint64_t world_size, struct cairn_rates *rates, bool *ret_all,
                                  struct cairn_error *err) {
    CAIRN_AUTO(srv_rows) rows = {0};
    *ret_all = false;
    CAIRN_TRY(cairn_srv_sql_open(tx, &rows, err, SQL(attempt_rates), SQL_I(run_id),
                                 SQL_I(attempt)));
    for (;;) {
        bool more = false;
        uint32_t node = 0;
        CAIRN_TRY(cairn_srv_rows_next(&rows, &more, err));
        if (!more) break;
        if (cairn_srv_rows_u64(&rows, 0) != rates->rank_count) return CAIRN_OK;
        if (rates->rank_count == world_size) return CAIRN_OK;
        CAIRN_TRY(find_node(rates, cairn_srv_rows_text(&rows, 1), cairn_srv_rows_text(&rows, 2),
                            &node, err));
        if (!rates->nodes[node].rate) return CAIRN_OK;
        rates->nodes[node].ranks++;
        rates->node_of[rates->rank_count++] = node;
    }
    *ret_all = rates->rank_count == world_size;
    return CAIRN_OK;
}

static char weight_of(uint64_t rate, uint64_t best) {
    static const struct {
        uint64_t percent;
        char weight;
    } levels[] = {{75, '8'}, {55, '5'}, {40, '4'}, {27, '3'}, {15, '2'}};
    for (size_t i = 0; i < CAIRN_COUNT(levels); i++)
        if (rate >= best / 100 * levels[i].percent) return levels[i].weight;
    return '1';
}

enum cairn_code cairn_srv_weights(struct cairn_srv_tx *tx, int64_t run_id, uint64_t attempt,
                                  uint64_t world_size, char **ret, struct cairn_error *err) {
    CAIRN_AUTO(rates) rates = {0};
    uint64_t best = 0;
    bool all = false, differ = false;
    CAIRN_ASSERT(world_size);
    *ret = NULL;
    CAIRN_AUTO_HEAP char *made = calloc(1, CAIRN_SRV_RANKS_MAX + 1);
    rates.node_of = calloc(CAIRN_SRV_RANKS_MAX, sizeof(*rates.node_of));
    if (!made || !rates.node_of)
        return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the weights of an attempt");
    if (attempt && world_size <= CAIRN_SRV_RANKS_MAX)
        CAIRN_TRY(read_rates(tx, run_id, attempt, world_size, &rates, &all, err));
    for (size_t i = 0; all && i < rates.node_count; i++) {
        rates.nodes[i].rate /= rates.nodes[i].ranks;
        best = cairn_max_u64(best, rates.nodes[i].rate);
    }
    for (uint64_t rank = 0; all && rank < world_size; rank++) {
        made[rank] = weight_of(rates.nodes[rates.node_of[rank]].rate, best);
        differ |= made[rank] != *made;
    }
    if (!differ) *made = '\0';
    *ret = CAIRN_TAKE(made);
    return CAIRN_OK;
}
