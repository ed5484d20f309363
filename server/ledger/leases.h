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
 *          3   no two calls of srv_generation_take get one number, over all servers.
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
 * Limits:  job names of up to SRV_JOB_BYTES - 1; a SQLite file has one server;
 *          SRV_NODE_ROWS_MAX rows of nodes, enforced at each sweep, with 4 KiB of uploader
 *          data; SRV_READ_LEASES_MAX readers of a version, jobs of CAIRN_JOB_BYTES_MAX.
 * Threads: inside a transaction; writes inside a change.
 * Next:    server/guard/jobs.h, server/guard/identity.c, server/nodes/nodes.h,
 *          server/reads/plans.c; E2 in server/README.md.
 */
#pragma once

#include "common/json.h"
#include "server/ledger/rows.h"

#define SRV_JOB_BYTES 96

struct srv_holder {
    const char *job, *server;
    uint64_t fence; /* set by take */
};
struct srv_lease_row {
    bool there;
    char server[CAIRN_UUID_TEXT_BYTES];
    uint64_t fence, until_tick;
};
SRV_WORD srv_lease_row_find(struct srv_tx *tx, const char *job, struct srv_lease_row *ret,
                            struct cairn_error *err) {
    *ret = (struct srv_lease_row){0};
    return srv_sql_row(tx, ROW(lease), ret, &ret->there, err, SQL(lease_get), SQL_T(job));
}
SRV_EXPECTS(lease_row_expect, (const char *job), lease_get, SQL_T(job));
/* found: from find in the same change. until_tick: the new end. *ret_taken false: held. */
enum cairn_code srv_lease_row_take(struct srv_tx *tx, struct srv_holder *holder,
                                   const struct srv_lease_row *found, uint64_t now_tick,
                                   uint64_t until_tick, bool *ret_taken,
                                   struct cairn_error *err) CAIRN_MUST_USE;
SRV_FINDS(lease_row_is, (const struct srv_holder *holder), lease_is, SQL_T(holder->job),
          SQL_T(holder->server), SQL_I(holder->fence));
SRV_EXPECTS(lease_row_is_expect, (const struct srv_holder *holder), lease_is, SQL_T(holder->job),
            SQL_T(holder->server), SQL_I(holder->fence));
SRV_RUNS(lease_row_drop, (const struct srv_holder *holder), lease_drop, SQL_T(holder->job),
         SQL_T(holder->server), SQL_I(holder->fence));
SRV_RUNS(lease_rows_renew, (const char *server, uint64_t until_tick), leases_renew, SQL_T(server),
         SQL_I(until_tick));

/* ---- servers ---- */

SRV_RUNS(server_put, (const char *server, const char *name, int64_t wall_ms), server_put,
         SQL_T(server), SQL_T(name), SQL_I(wall_ms), SQL_I(srv_tick(tx)));
/* Updates its last sign of life, in catalog time. */
SRV_RUNS(server_seen, (const char *server), server_seen, SQL_T(server), SQL_I(srv_tick(tx)));
/* True for a server of this catalog. Rows are kept as long as those of nodes. */
SRV_FINDS(server_there, (const char *server), server_there, SQL_T(server));
SRV_RUNS(servers_trim, (const char *server, uint64_t tick_ms), servers_drop_silent, SQL_T(server),
         SQL_I(tick_ms));
/* Writes a text to be read back: tests that the catalog is writable. */
SRV_RUNS(server_mark, (const char *server, const char *mark), server_mark, SQL_T(server),
         SQL_T(mark));
SRV_FINDS(server_mark_is, (const char *server, const char *mark), server_mark_is, SQL_T(server),
          SQL_T(mark));

/* True when another joined server is alive. Inside a change. */
enum cairn_code srv_servers_others(struct srv_tx *tx, bool *ret,
                                   struct cairn_error *err) CAIRN_MUST_USE;
/* From here on other servers see this one as alive, until its process ends. */
enum cairn_code srv_server_join(struct srv_tx *tx, struct cairn_error *err) CAIRN_MUST_USE;
/* Sets seen->generation to the next number above the catalog's and at_least, and stores it. */
SRV_WORD srv_generation_take(struct srv_tx *tx, uint64_t at_least, struct srv_store_seen *seen,
                             struct cairn_error *err) {
    struct srv_store_seen now = {0};
    CAIRN_TRY(srv_store_seen_get(tx, &now, err));
    seen->generation = cairn_max_u64(now.generation, at_least) + 1;
    return srv_store_seen_put(tx, seen, err);
}
/* The life sent to uploaders (Q19): *ret, unless another server's life continues. */
enum cairn_code srv_life_join(struct srv_tx *tx, bool goes_on, uint64_t *ret,
                              struct cairn_error *err) CAIRN_MUST_USE;
/* Hex digest of the servers' common grant key; "" in a new catalog. */
#define SRV_KEY_DIGEST_BYTES 65
SRV_WORD srv_key_digest_get(struct srv_tx *tx, char ret[SRV_KEY_DIGEST_BYTES],
                            struct cairn_error *err) {
    return srv_value_get(tx, "grant_key_digest", ret, SRV_KEY_DIGEST_BYTES, err);
}
SRV_WORD srv_key_digest_put(struct srv_tx *tx, const char *digest, struct cairn_error *err) {
    return srv_value_put(tx, "grant_key_digest", digest, err);
}

/* ---- nodes ---- */

#define SRV_NODE_ROWS_MAX 65536

struct srv_node_row {
    const char *node, *uploader; /* uploader: JSON; both live during the call */
    int64_t wall_ms;             /* when written */
};
/* away: it has said goodbye. */
SRV_RUNS(node_put, (const char *node, const char *uploader, int64_t wall_ms, bool away), node_put,
         SQL_T(node), SQL_T(uploader), SQL_I(srv_tick(tx)), SQL_I(wall_ms), SQL_I(away));
/* Node state shared by servers; texts live until the next row, or during the call. */
struct srv_node_mark {
    const char *node, *said; /* said: JSON of the answering heartbeat; "": none */
    uint64_t last_tick;      /* catalog time of the last write */
    uint64_t asked, answered;
    bool away;
    const char *projects; /* comma-separated; "": none */
};
/* Reads one node; tick is catalog time. CAIRN_NOT_FOUND: no row. Texts live during the call. */
enum cairn_code srv_node_look(struct srv_tx *tx, const char *node,
                              void (*each)(void *argument, const struct srv_node_mark *mark,
                                           const char *uploader, uint64_t tick),
                              void *argument, struct cairn_error *err) CAIRN_MUST_USE;
#define SRV_NODE_PROJECTS_BYTES 2048
/* projects: see Q58; at most SRV_NODE_PROJECTS_BYTES with NUL. */
SRV_RUNS(node_put_projects, (const char *node, const char *projects), node_put_projects,
         SQL_T(node), SQL_T(projects));
/* Stores a heartbeat that came after question number `asked`. */
SRV_RUNS(node_answer, (const char *node, uint64_t asked, const char *said), node_answer,
         SQL_T(node), SQL_I(asked), SQL_T(said));
/* Asks an attempt's nodes; all: also those that still owe an answer. */
SRV_RUNS(nodes_ask, (int64_t run_id, uint64_t attempt, uint64_t asked, bool all), nodes_ask,
         SQL_I(run_id), SQL_I(attempt), SQL_I(asked), SQL_I(all));
/* *ret_there: the row existed. */
enum cairn_code srv_node_drop(struct srv_tx *tx, const char *node, bool *ret_there,
                              struct cairn_error *err) CAIRN_MUST_USE;
/* Drops a node that ends by itself, without an event. */
SRV_RUNS(node_end, (const char *node), node_drop, SQL_T(node));
/* Drops nodes silent since tick_ms, and the longest silent beyond SRV_NODE_ROWS_MAX. */
enum cairn_code srv_nodes_trim(struct srv_tx *tx, uint64_t tick_ms,
                               struct cairn_error *err) CAIRN_MUST_USE;
/* Rows of nodes after a name, by name. */
SRV_OPENS(nodes_open, (const char *after, size_t limit), nodes_page, SQL_T(after), SQL_I(limit));

/* ---- readers of versions ---- */

#define SRV_READ_LEASES_MAX 16384
#define SRV_READ_LEASE_BYTES 39 /* "lease_", 32 digits, NUL */

void srv_read_lease_name(const char *version, const char *job, char ret[SRV_READ_LEASE_BYTES]);
struct srv_read_lease {
    char id[SRV_READ_LEASE_BYTES];
    const char *version, *job;
    uint64_t until_tick;
    int64_t wall_ms;
};
/* *ret_made: the lease is new. CAIRN_BUSY: the version has too many. */
enum cairn_code srv_read_lease_take(struct srv_tx *tx, const struct srv_read_lease *lease,
                                    bool *ret_made, struct cairn_error *err) CAIRN_MUST_USE;
/* *ret_found false: this version has no such lease, or it has ended and is dropped. */
SRV_CHANGES(read_lease_renew, (const char *id, const char *version, uint64_t until_tick),
            read_lease_renew, SQL_T(id), SQL_T(version), SQL_I(until_tick));
SRV_CHANGES(read_lease_drop, (const char *id, const char *version), read_lease_drop, SQL_T(id),
            SQL_T(version));
/* True when a reader's lease has not ended. */
SRV_FINDS(version_leased, (const char *version), read_lease_holds, SQL_T(version),
          SQL_I(srv_tick(tx)));
/* A JSON array of lease_row (api/messages.def), at most 1,000, latest end first. */
enum cairn_code srv_read_leases_of(struct srv_tx *tx, const char *version, uint64_t step,
                                   json_t **ret, struct cairn_error *err) CAIRN_MUST_USE;
SRV_WORD srv_read_leases_trim(struct srv_tx *tx, struct cairn_error *err) {
    return srv_sql_run(tx, NULL, err, SQL(read_leases_trim), SQL_I(srv_tick(tx)));
}
