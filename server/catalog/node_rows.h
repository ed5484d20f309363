/* SPDX-License-Identifier: Apache-2.0 */
/*
 * node_rows: one row for each node that ever sent a heartbeat with a grant of ours.
 *
 * Why:     which nodes of an attempt are uploaders at all must outlive a server (Q26).
 * Promise: 1    a row is never older than the last heartbeat by more than a minute.
 * Limits:  CAIRN_SRV_NODE_ROWS_MAX rows, kept at each sweep; what an uploader says of itself is at
 *          most 4 KiB.
 * Threads: inside a transaction.
 * Next:    server/nodes.h, server/handlers/nodes.c.
 */
#pragma once

#include "server/catalog/sql.h"

#define CAIRN_SRV_NODE_ROWS_MAX 65536

struct cairn_srv_node_row {
    const char *node, *uploader; /* uploader: JSON; both live during the call */
    int64_t wall_ms;             /* when it was written */
};
enum cairn_code cairn_srv_node_put(struct cairn_srv_tx *tx, const char *node, const char *uploader,
                                   int64_t wall_ms, struct cairn_error *err) CAIRN_MUST_USE;
/* *ret_there: it had a row. */
enum cairn_code cairn_srv_node_drop(struct cairn_srv_tx *tx, const char *node, bool *ret_there,
                                    struct cairn_error *err) CAIRN_MUST_USE;
/* Those that are silent since before tick_ms, and the longest silent of more than
 * CAIRN_SRV_NODE_ROWS_MAX. */
enum cairn_code cairn_srv_nodes_trim(struct cairn_srv_tx *tx, uint64_t tick_ms,
                                     struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_srv_node_there(struct cairn_srv_tx *tx, const char *node, bool *ret,
                                     struct cairn_error *err) CAIRN_MUST_USE;
/* Those behind a name, in the order of names. */
enum cairn_code cairn_srv_nodes_page(struct cairn_srv_tx *tx, const char *after, size_t limit,
                                     enum cairn_code (*each)(void *argument,
                                                             const struct cairn_srv_node_row *row,
                                                             struct cairn_error *err),
                                     void *argument, struct cairn_error *err) CAIRN_MUST_USE;
