/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of nodes; see node_rows.h. */
#include "server/catalog/node_rows.h"

#include "server/catalog/values.h"

enum cairn_code cairn_srv_node_put(struct cairn_srv_tx *tx, const char *node, const char *uploader,
                                   int64_t wall_ms, struct cairn_error *err) {
    return cairn_srv_sql_run(tx, NULL, err, SQL(node_put), SQL_T(node), SQL_T(uploader),
                             SQL_I(cairn_srv_tick(tx)), SQL_I(wall_ms));
}

enum cairn_code cairn_srv_node_drop(struct cairn_srv_tx *tx, const char *node, bool *ret_there,
                                    struct cairn_error *err) {
    uint64_t changed = 0;
    CAIRN_TRY(cairn_srv_sql_run(tx, &changed, err, SQL(node_drop), SQL_T(node)));
    *ret_there = changed > 0;
    return CAIRN_OK;
}

enum cairn_code cairn_srv_nodes_trim(struct cairn_srv_tx *tx, uint64_t tick_ms,
                                     struct cairn_error *err) {
    int64_t count = 0;
    bool found = false;
    CAIRN_TRY(cairn_srv_sql_run(tx, NULL, err, SQL(nodes_drop_silent), SQL_I(tick_ms)));
    CAIRN_TRY(cairn_srv_sql_number(tx, &found, &count, err, SQL(nodes_count)));
    if (count <= CAIRN_SRV_NODE_ROWS_MAX) return CAIRN_OK;
    return cairn_srv_sql_run(tx, NULL, err, SQL(nodes_drop_oldest),
                             SQL_I(count - CAIRN_SRV_NODE_ROWS_MAX));
}

enum cairn_code cairn_srv_node_there(struct cairn_srv_tx *tx, const char *node, bool *ret,
                                     struct cairn_error *err) {
    return cairn_srv_sql_found(tx, ret, err, SQL(node_there), SQL_T(node));
}

enum cairn_code cairn_srv_nodes_page(struct cairn_srv_tx *tx, const char *after, size_t limit,
                                     enum cairn_code (*each)(void *argument,
                                                             const struct cairn_srv_node_row *row,
                                                             struct cairn_error *err),
                                     void *argument, struct cairn_error *err) {
    CAIRN_AUTO(srv_rows) rows = {0};
    CAIRN_TRY(cairn_srv_sql_open(tx, &rows, err, SQL(nodes_page), SQL_T(after), SQL_I(limit)));
    for (bool more = true;;) {
        CAIRN_TRY(cairn_srv_rows_next(&rows, &more, err));
        if (!more) return CAIRN_OK;
        struct cairn_srv_node_row row = {.node = cairn_srv_rows_text(&rows, 0),
                                         .uploader = cairn_srv_rows_text(&rows, 1),
                                         .wall_ms = cairn_srv_rows_i64(&rows, 2)};
        CAIRN_TRY(each(argument, &row, err));
    }
}
