/* SPDX-License-Identifier: Apache-2.0 */
/*
 * leases: rows of servers, leases of their jobs, nodes, and leases of readers.
 *
 * Why:     several servers share a catalog and the numbering of the store's generation; if the one
 *          that runs a job stops, another takes over and the first must finish nothing. The
 *          uploaders of an attempt's nodes must outlive a server (Q26). Deleting a version during a
 *          restore fails a whole job.
 * Promise: 1   a job has at most one holder: a server and a fence, a number that is never reused.
 *          2   an expired lease, or one of a dead server, goes to the next server that asks.
 *          3   no two calls of cairn_srv_generation_take get one number, over all servers.
 *          4   the catalog's life is the number of the server that found no other running: it
 *              changes with each start of a first server, and not with starts of further ones.
 *          5   a row is at most a minute older than the node's last heartbeat.
 *          6   a node that is asked answers with its next heartbeat, to whichever server.
 *          Q58  a node's projects are those of the grants in its last heartbeat with any: a caller
 *               without a grant or token of one of them does not speak for the node.
 *          Q29  a read lease is taken in one transaction, on a committed version only; a leased
 *               version is never trashed and does not leave the trash for `deleting`.
 *          7   a read lease is named by version and job: a repeated call, and all processes, share
 *              it.
 *          8   taking or renewing never shortens a read lease.
 *          9   a read lease ends in catalog time (Q34), which stops while no server runs.
 * Limits:  job names of up to CAIRN_SRV_JOB_BYTES - 1; a SQLite file has one server;
 *          CAIRN_SRV_NODE_ROWS_MAX rows of nodes, enforced at each sweep, with 4 KiB of uploader
 *          data; CAIRN_SRV_READ_LEASES_MAX readers of a version, jobs of CAIRN_JOB_BYTES_MAX.
 * Threads: inside a transaction; writes inside a change.
 * Next:    server/guard/jobs.h, server/guard/identity.c, server/nodes/nodes.h,
 *          server/reads/plans.c; E2 in server/README.md.
 */
#pragma once

#include "common/json.h"
#include "common/trace.h"
#include "server/db/sql.h"

#define CAIRN_SRV_JOB_BYTES 96

struct cairn_srv_holder {
    const char *job, *server;
    uint64_t fence; /* set by take */
};
struct cairn_srv_lease_row {
    bool there;
    char server[CAIRN_UUID_TEXT_BYTES];
    uint64_t fence, until_tick;
};
enum cairn_code cairn_srv_lease_row_find(struct cairn_srv_tx *tx, const char *job,
                                         struct cairn_srv_lease_row *ret,
                                         struct cairn_error *err) CAIRN_MUST_USE;
CAIRN_SRV_WORD cairn_srv_lease_row_expect(struct cairn_srv_tx *tx, const char *job,
                                          struct cairn_error *err) {
    return cairn_srv_sql_expect(tx, err, SQL(lease_get), SQL_T(job));
}
/* found: from find in the same change. until_tick: the new end. *ret_taken false: held. */
enum cairn_code cairn_srv_lease_row_take(struct cairn_srv_tx *tx, struct cairn_srv_holder *holder,
                                         const struct cairn_srv_lease_row *found, uint64_t now_tick,
                                         uint64_t until_tick, bool *ret_taken,
                                         struct cairn_error *err) CAIRN_MUST_USE;
CAIRN_SRV_WORD cairn_srv_lease_row_is(struct cairn_srv_tx *tx,
                                      const struct cairn_srv_holder *holder, bool *ret,
                                      struct cairn_error *err) {
    return cairn_srv_sql_found(tx, ret, err, SQL(lease_is), SQL_T(holder->job),
                               SQL_T(holder->server), SQL_I(holder->fence));
}
CAIRN_SRV_WORD cairn_srv_lease_row_is_expect(struct cairn_srv_tx *tx,
                                             const struct cairn_srv_holder *holder,
                                             struct cairn_error *err) {
    return cairn_srv_sql_expect(tx, err, SQL(lease_is), SQL_T(holder->job), SQL_T(holder->server),
                                SQL_I(holder->fence));
}
CAIRN_SRV_WORD cairn_srv_lease_row_drop(struct cairn_srv_tx *tx,
                                        const struct cairn_srv_holder *holder,
                                        struct cairn_error *err) {
    return cairn_srv_sql_run(tx, NULL, err, SQL(lease_drop), SQL_T(holder->job),
                             SQL_T(holder->server), SQL_I(holder->fence));
}
CAIRN_SRV_WORD cairn_srv_lease_rows_renew(struct cairn_srv_tx *tx, const char *server,
                                          uint64_t until_tick, struct cairn_error *err) {
    return cairn_srv_sql_run(tx, NULL, err, SQL(leases_renew), SQL_T(server), SQL_I(until_tick));
}

/* ---- servers ---- */

CAIRN_SRV_WORD cairn_srv_server_put(struct cairn_srv_tx *tx, const char *server, const char *name,
                                    int64_t wall_ms, struct cairn_error *err) {
    return cairn_srv_sql_run(tx, NULL, err, SQL(server_put), SQL_T(server), SQL_T(name),
                             SQL_I(wall_ms), SQL_I(cairn_srv_tick(tx)));
}
/* Updates its last sign of life, in catalog time. */
CAIRN_SRV_WORD cairn_srv_server_seen(struct cairn_srv_tx *tx, const char *server,
                                     struct cairn_error *err) {
    return cairn_srv_sql_run(tx, NULL, err, SQL(server_seen), SQL_T(server),
                             SQL_I(cairn_srv_tick(tx)));
}
/* True for a server of this catalog. Rows are kept as long as those of nodes. */
CAIRN_SRV_WORD cairn_srv_server_there(struct cairn_srv_tx *tx, const char *server, bool *ret,
                                      struct cairn_error *err) {
    return cairn_srv_sql_found(tx, ret, err, SQL(server_there), SQL_T(server));
}
CAIRN_SRV_WORD cairn_srv_servers_trim(struct cairn_srv_tx *tx, const char *server, uint64_t tick_ms,
                                      struct cairn_error *err) {
    return cairn_srv_sql_run(tx, NULL, err, SQL(servers_drop_silent), SQL_T(server),
                             SQL_I(tick_ms));
}
/* Writes a text to be read back: tests that the catalog is writable. */
CAIRN_SRV_WORD cairn_srv_server_mark(struct cairn_srv_tx *tx, const char *server, const char *mark,
                                     struct cairn_error *err) {
    return cairn_srv_sql_run(tx, NULL, err, SQL(server_mark), SQL_T(server), SQL_T(mark));
}
CAIRN_SRV_WORD cairn_srv_server_mark_is(struct cairn_srv_tx *tx, const char *server,
                                        const char *mark, bool *ret, struct cairn_error *err) {
    return cairn_srv_sql_found(tx, ret, err, SQL(server_mark_is), SQL_T(server), SQL_T(mark));
}

/* True when another joined server is alive. Inside a change. */
enum cairn_code cairn_srv_servers_others(struct cairn_srv_tx *tx, bool *ret,
                                         struct cairn_error *err) CAIRN_MUST_USE;
/* From here on other servers see this one as alive, until its process ends. */
enum cairn_code cairn_srv_server_join(struct cairn_srv_tx *tx,
                                      struct cairn_error *err) CAIRN_MUST_USE;
/* Sets seen->generation to the next number above the catalog's and at_least, and stores it. */
enum cairn_code cairn_srv_generation_take(struct cairn_srv_tx *tx, uint64_t at_least,
                                          struct cairn_srv_store_seen *seen,
                                          struct cairn_error *err) CAIRN_MUST_USE;
/* The life sent to uploaders (Q19): *ret, unless another server's life continues. */
enum cairn_code cairn_srv_life_join(struct cairn_srv_tx *tx, bool goes_on, uint64_t *ret,
                                    struct cairn_error *err) CAIRN_MUST_USE;
/* Hex digest of the servers' common grant key; "" in a new catalog. */
#define CAIRN_SRV_KEY_DIGEST_BYTES 65
enum cairn_code cairn_srv_key_digest_get(struct cairn_srv_tx *tx,
                                         char ret[CAIRN_SRV_KEY_DIGEST_BYTES],
                                         struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_srv_key_digest_put(struct cairn_srv_tx *tx, const char *digest,
                                         struct cairn_error *err) CAIRN_MUST_USE;

/* ---- nodes ---- */

#define CAIRN_SRV_NODE_ROWS_MAX 65536

struct cairn_srv_node_row {
    const char *node, *uploader; /* uploader: JSON; both live during the call */
    int64_t wall_ms;             /* when written */
};
/* away: it has said goodbye. */
CAIRN_SRV_WORD cairn_srv_node_put(struct cairn_srv_tx *tx, const char *node, const char *uploader,
                                  int64_t wall_ms, bool away, struct cairn_error *err) {
    return cairn_srv_sql_run(tx, NULL, err, SQL(node_put), SQL_T(node), SQL_T(uploader),
                             SQL_I(cairn_srv_tick(tx)), SQL_I(wall_ms), SQL_I(away));
}
/* Node state shared by servers; texts live during the call. */
struct cairn_srv_node_mark {
    const char *node, *said; /* said: JSON of the answering heartbeat; "": none */
    uint64_t last_tick;      /* catalog time of the last write */
    uint64_t asked, answered;
    bool away;
    const char *projects; /* comma-separated; "": none */
};
struct cairn_srv_node_mark cairn_srv_node_of(const struct cairn_srv_rows *rows);
/* Reads one node; tick is catalog time. CAIRN_NOT_FOUND: no row. Texts live during the call. */
enum cairn_code cairn_srv_node_look(struct cairn_srv_tx *tx, const char *node,
                                    void (*each)(void *argument,
                                                 const struct cairn_srv_node_mark *mark,
                                                 const char *uploader, uint64_t tick),
                                    void *argument, struct cairn_error *err) CAIRN_MUST_USE;
#define CAIRN_SRV_NODE_PROJECTS_BYTES 2048
/* projects: see Q58; at most CAIRN_SRV_NODE_PROJECTS_BYTES with NUL. */
CAIRN_SRV_WORD cairn_srv_node_put_projects(struct cairn_srv_tx *tx, const char *node,
                                           const char *projects, struct cairn_error *err) {
    return cairn_srv_sql_run(tx, NULL, err, SQL(node_put_projects), SQL_T(node), SQL_T(projects));
}
/* Stores a heartbeat that came after question number `asked`. */
CAIRN_SRV_WORD cairn_srv_node_answer(struct cairn_srv_tx *tx, const char *node, uint64_t asked,
                                     const char *said, struct cairn_error *err) {
    return cairn_srv_sql_run(tx, NULL, err, SQL(node_answer), SQL_T(node), SQL_I(asked),
                             SQL_T(said));
}
/* Asks an attempt's nodes; all: also those that still owe an answer. */
CAIRN_SRV_WORD cairn_srv_nodes_ask(struct cairn_srv_tx *tx, int64_t run_id, uint64_t attempt,
                                   uint64_t asked, bool all, struct cairn_error *err) {
    return cairn_srv_sql_run(tx, NULL, err, SQL(nodes_ask), SQL_I(run_id), SQL_I(attempt),
                             SQL_I(asked), SQL_I(all));
}
/* *ret_there: the row existed. */
enum cairn_code cairn_srv_node_drop(struct cairn_srv_tx *tx, const char *node, bool *ret_there,
                                    struct cairn_error *err) CAIRN_MUST_USE;
/* Drops a node that ends by itself, without an event. */
CAIRN_SRV_WORD cairn_srv_node_end(struct cairn_srv_tx *tx, const char *node,
                                  struct cairn_error *err) {
    return cairn_srv_sql_run(tx, NULL, err, SQL(node_drop), SQL_T(node));
}
/* Drops nodes silent since tick_ms, and the longest silent beyond CAIRN_SRV_NODE_ROWS_MAX. */
enum cairn_code cairn_srv_nodes_trim(struct cairn_srv_tx *tx, uint64_t tick_ms,
                                     struct cairn_error *err) CAIRN_MUST_USE;
/* Nodes after a name, by name. */
enum cairn_code cairn_srv_nodes_page(struct cairn_srv_tx *tx, const char *after, size_t limit,
                                     enum cairn_code (*each)(void *argument,
                                                             const struct cairn_srv_node_row *row,
                                                             struct cairn_error *err),
                                     void *argument, struct cairn_error *err) CAIRN_MUST_USE;

/* ---- readers of versions ---- */

#define CAIRN_SRV_READ_LEASES_MAX 16384
#define CAIRN_SRV_READ_LEASE_BYTES 39 /* "lease_", 32 digits, NUL */

void cairn_srv_read_lease_name(const char *version, const char *job,
                               char ret[CAIRN_SRV_READ_LEASE_BYTES]);
struct cairn_srv_read_lease {
    char id[CAIRN_SRV_READ_LEASE_BYTES];
    const char *version, *job;
    uint64_t until_tick;
    int64_t wall_ms;
};
/* *ret_made: the lease is new. CAIRN_BUSY: the version has too many. */
enum cairn_code cairn_srv_read_lease_take(struct cairn_srv_tx *tx,
                                          const struct cairn_srv_read_lease *lease, bool *ret_made,
                                          struct cairn_error *err) CAIRN_MUST_USE;
/* *ret_found false: this version has no such lease, or it has ended and is dropped. */
enum cairn_code cairn_srv_read_lease_renew(struct cairn_srv_tx *tx, const char *id,
                                           const char *version, uint64_t until_tick,
                                           bool *ret_found, struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_srv_read_lease_drop(struct cairn_srv_tx *tx, const char *id,
                                          const char *version, bool *ret_found,
                                          struct cairn_error *err) CAIRN_MUST_USE;
/* True when a reader's lease has not ended. */
CAIRN_SRV_WORD cairn_srv_version_leased(struct cairn_srv_tx *tx, const char *version, bool *ret,
                                        struct cairn_error *err) {
    return cairn_srv_sql_found(tx, ret, err, SQL(read_lease_holds), SQL_T(version),
                               SQL_I(cairn_srv_tick(tx)));
}
/* A JSON array of lease_row (api/messages.def), at most 1,000, latest end first. */
enum cairn_code cairn_srv_read_leases_of(struct cairn_srv_tx *tx, const char *version,
                                         uint64_t step, json_t **ret,
                                         struct cairn_error *err) CAIRN_MUST_USE;
CAIRN_SRV_WORD cairn_srv_read_leases_trim(struct cairn_srv_tx *tx, struct cairn_error *err) {
    return cairn_srv_sql_run(tx, NULL, err, SQL(read_leases_trim), SQL_I(cairn_srv_tick(tx)));
}
