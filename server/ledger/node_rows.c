/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of nodes; see node_rows.h. */
#include "server/ledger/node_rows.h"

#include "server/db/values.h"
#include "server/ledger/events.h"

enum cairn_code cairn_srv_node_put(struct cairn_srv_tx *tx, const char *node, const char *uploader,
                                   int64_t wall_ms, bool away, struct cairn_error *err) {
    return cairn_srv_sql_run(tx, NULL, err, SQL(node_put), SQL_T(node), SQL_T(uploader),
                             SQL_I(cairn_srv_tick(tx)), SQL_I(wall_ms), SQL_I(away));
}

struct cairn_srv_node_mark cairn_srv_node_of(const struct cairn_srv_rows *rows) {
    return (struct cairn_srv_node_mark){.node = cairn_srv_rows_text(rows, 0),
                                        .last_tick = cairn_srv_rows_u64(rows, 1),
                                        .asked = cairn_srv_rows_u64(rows, 2),
                                        .answered = cairn_srv_rows_u64(rows, 3),
                                        .away = cairn_srv_rows_i64(rows, 4) != 0,
                                        .said = cairn_srv_rows_text(rows, 5),
                                        .projects = cairn_srv_rows_text(rows, 6)};
}

enum cairn_code cairn_srv_node_put_projects(struct cairn_srv_tx *tx, const char *node,
                                            const char *projects, struct cairn_error *err) {
    return cairn_srv_sql_run(tx, NULL, err, SQL(node_put_projects), SQL_T(node), SQL_T(projects));
}

enum cairn_code cairn_srv_node_look(struct cairn_srv_tx *tx, const char *node,
                                    void (*each)(void *argument,
                                                 const struct cairn_srv_node_mark *mark,
                                                 const char *uploader, uint64_t tick),
                                    void *argument, struct cairn_error *err) {
    CAIRN_AUTO(srv_rows) marks = {0};
    CAIRN_AUTO(srv_rows) words = {0};
    bool there = false;
    CAIRN_TRY(cairn_srv_sql_open(tx, &marks, err, SQL(node_get), SQL_T(node)));
    CAIRN_TRY(cairn_srv_rows_next(&marks, &there, err));
    if (there) {
        CAIRN_TRY(cairn_srv_sql_open(tx, &words, err, SQL(node_uploader), SQL_T(node)));
        CAIRN_TRY(cairn_srv_rows_next(&words, &there, err));
    }
    if (!there) return cairn_fail(err, CAIRN_NOT_FOUND, "node %s has no row", node);
    const struct cairn_srv_node_mark mark = cairn_srv_node_of(&marks);
    each(argument, &mark, cairn_srv_rows_text(&words, 0), cairn_srv_tick(tx));
    return CAIRN_OK;
}

enum cairn_code cairn_srv_node_answer(struct cairn_srv_tx *tx, const char *node, uint64_t asked,
                                      const char *said, struct cairn_error *err) {
    return cairn_srv_sql_run(tx, NULL, err, SQL(node_answer), SQL_T(node), SQL_I(asked),
                             SQL_T(said));
}

enum cairn_code cairn_srv_nodes_ask(struct cairn_srv_tx *tx, int64_t run_id, uint64_t attempt,
                                    uint64_t asked, bool all, struct cairn_error *err) {
    return cairn_srv_sql_run(tx, NULL, err, SQL(nodes_ask), SQL_I(run_id), SQL_I(attempt),
                             SQL_I(asked), SQL_I(all));
}

enum cairn_code cairn_srv_node_drop(struct cairn_srv_tx *tx, const char *node, bool *ret_there,
                                    struct cairn_error *err) {
    uint64_t changed = 0;
    CAIRN_TRY(cairn_srv_sql_run(tx, &changed, err, SQL(node_drop), SQL_T(node)));
    *ret_there = changed > 0;
    if (!changed) return CAIRN_OK;
    static const struct cairn_run_name all;
    return cairn_srv_event_of_name(tx, CAIRN_SRV_EVENT_NODE_REMOVED, &all, node, err);
}

enum cairn_code cairn_srv_node_end(struct cairn_srv_tx *tx, const char *node,
                                   struct cairn_error *err) {
    return cairn_srv_sql_run(tx, NULL, err, SQL(node_drop), SQL_T(node));
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
