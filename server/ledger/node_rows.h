/* SPDX-License-Identifier: Apache-2.0 */
/*
 * node_rows: one row for each node that ever sent a heartbeat with a grant of ours.
 *
 * Why:     which nodes of an attempt are uploaders at all must outlive a server (Q26).
 * Promise: 1    a row is never older than the last heartbeat by more than a minute.
 *          2    who is asked answers with the next heartbeat, whichever server that comes to.
 *          Q58  projects are those of the grants that its last heartbeat with any has shown: who
 *               shows neither a grant nor a token of one of them does not speak for the node.
 * Limits:  CAIRN_SRV_NODE_ROWS_MAX rows, kept at each sweep; what an uploader says of itself is at
 *          most 4 KiB.
 * Threads: inside a transaction.
 * Next:    server/nodes/nodes.h, server/nodes/node_calls.c.
 */
#pragma once

#include "server/db/sql.h"

#define CAIRN_SRV_NODE_ROWS_MAX 65536

struct cairn_srv_node_row {
    const char *node, *uploader; /* uploader: JSON; both live during the call */
    int64_t wall_ms;             /* when it was written */
};
/* away: it has said good-bye. */
enum cairn_code cairn_srv_node_put(struct cairn_srv_tx *tx, const char *node, const char *uploader,
                                   int64_t wall_ms, bool away,
                                   struct cairn_error *err) CAIRN_MUST_USE;
/* What servers tell each other of it; texts live during the call. */
struct cairn_srv_node_mark {
    const char *node, *said; /* said: JSON, of the heartbeat that answered; "" none ever */
    uint64_t last_tick;      /* when the row was written, in catalog time */
    uint64_t asked, answered;
    bool away;
    const char *projects; /* with commas between; "" none yet */
};
struct cairn_srv_node_mark cairn_srv_node_of(const struct cairn_srv_rows *rows);
/* Of one node; tick is catalog time. CAIRN_NOT_FOUND: it has no row. `each` is called once, and its
 * texts live during the call; uploader as in cairn_srv_node_row. */
enum cairn_code cairn_srv_node_look(struct cairn_srv_tx *tx, const char *node,
                                    void (*each)(void *argument,
                                                 const struct cairn_srv_node_mark *mark,
                                                 const char *uploader, uint64_t tick),
                                    void *argument, struct cairn_error *err) CAIRN_MUST_USE;
#define CAIRN_SRV_NODE_PROJECTS_BYTES 2048
/* projects: see Q58; at most CAIRN_SRV_NODE_PROJECTS_BYTES with its end. */
enum cairn_code cairn_srv_node_put_projects(struct cairn_srv_tx *tx, const char *node,
                                            const char *projects,
                                            struct cairn_error *err) CAIRN_MUST_USE;
/* A heartbeat of after it was asked says so much. */
enum cairn_code cairn_srv_node_answer(struct cairn_srv_tx *tx, const char *node, uint64_t asked,
                                      const char *said, struct cairn_error *err) CAIRN_MUST_USE;
/* Nodes of an attempt; all: also those whose answer is still awaited. */
enum cairn_code cairn_srv_nodes_ask(struct cairn_srv_tx *tx, int64_t run_id, uint64_t attempt,
                                    uint64_t asked, bool all,
                                    struct cairn_error *err) CAIRN_MUST_USE;
/* *ret_there: it had a row. */
enum cairn_code cairn_srv_node_drop(struct cairn_srv_tx *tx, const char *node, bool *ret_there,
                                    struct cairn_error *err) CAIRN_MUST_USE;
/* The same of a node that ends by itself, of which no event tells. */
enum cairn_code cairn_srv_node_end(struct cairn_srv_tx *tx, const char *node,
                                   struct cairn_error *err) CAIRN_MUST_USE;
/* Those that are silent since before tick_ms, and the longest silent of more than
 * CAIRN_SRV_NODE_ROWS_MAX. */
enum cairn_code cairn_srv_nodes_trim(struct cairn_srv_tx *tx, uint64_t tick_ms,
                                     struct cairn_error *err) CAIRN_MUST_USE;
/* Those behind a name, in the order of names. */
enum cairn_code cairn_srv_nodes_page(struct cairn_srv_tx *tx, const char *after, size_t limit,
                                     enum cairn_code (*each)(void *argument,
                                                             const struct cairn_srv_node_row *row,
                                                             struct cairn_error *err),
                                     void *argument, struct cairn_error *err) CAIRN_MUST_USE;
