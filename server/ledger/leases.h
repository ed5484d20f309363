/* SPDX-License-Identifier: Apache-2.0 */
/*
 * leases: who is there and holds what: servers, their jobs, nodes, and readers of versions.
 *
 * Why:     several servers over one catalog number the store's generation together, and one of
 *          several works on a job, also when it stops in the middle: another takes over, and the
 *          first must then finish nothing. Which nodes of an attempt are uploaders must outlive a
 *          server (Q26). A restore takes minutes, and retention does not wait: a version that goes
 *          while somebody reads it fails a restart of the whole job.
 * Promise: 1    a job has at most one holder: a server, and a number (fence) that no later one has.
 *          2    one that is over, or whose server no longer lives, goes to whoever asks next.
 *          3    no two calls of cairn_srv_generation_take get one number, of all servers.
 *          4    the life of a catalog is the number of the server that found no other one there: it
 *               changes with each start of the first server, and with none of a further one.
 *          5    a row is never older than the last heartbeat by more than a minute.
 *          6    who is asked answers with the next heartbeat, whichever server that comes to.
 *          Q58  projects are those of the grants that its last heartbeat with any has shown: who
 *               shows neither a grant nor a token of one of them does not speak for the node.
 *          Q29  a lease is taken in one transaction, on a committed version only; what is leased is
 *               trashed by nobody and does not leave the trash for `deleting`.
 *          7    a lease is named by its version and its job: the same call gives the same lease, so
 *               that a lost answer may be asked for again, and all processes of a job share one.
 *          8    it never becomes shorter by being taken or renewed.
 *          9    it ends in catalog time (Q34): an hour in which no server runs does not end it.
 * Limits:  job names of up to CAIRN_SRV_JOB_BYTES - 1; a file of SQLite has one server;
 *          CAIRN_SRV_NODE_ROWS_MAX rows of nodes, kept at each sweep, with at most 4 KiB of what an
 *          uploader says of itself; CAIRN_SRV_READ_LEASES_MAX readers of a version, jobs of
 *          CAIRN_JOB_BYTES_MAX.
 * Threads: inside a transaction; what writes inside a change.
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
/* Who has it now. */
struct cairn_srv_lease_row {
    bool there;
    char server[CAIRN_UUID_TEXT_BYTES];
    uint64_t fence, until_tick;
};
enum cairn_code cairn_srv_lease_row_find(struct cairn_srv_tx *tx, const char *job,
                                         struct cairn_srv_lease_row *ret,
                                         struct cairn_error *err) CAIRN_MUST_USE;
/* What find will look at (sql.h). */
CAIRN_SRV_WORD cairn_srv_lease_row_expect(struct cairn_srv_tx *tx, const char *job,
                                          struct cairn_error *err) {
    return cairn_srv_sql_expect(tx, err, SQL(lease_get), SQL_T(job));
}
/* From whom find has found in the same change. until_tick: of the new holder. *ret_taken false:
 * another one has it. */
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
/* What is will look at (sql.h). */
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
/* All that the server holds. */
CAIRN_SRV_WORD cairn_srv_lease_rows_renew(struct cairn_srv_tx *tx, const char *server,
                                          uint64_t until_tick, struct cairn_error *err) {
    return cairn_srv_sql_run(tx, NULL, err, SQL(leases_renew), SQL_T(server), SQL_I(until_tick));
}

/* ---- servers ---- */

/* This server's own row, which its transactions keep. */
CAIRN_SRV_WORD cairn_srv_server_put(struct cairn_srv_tx *tx, const char *server, const char *name,
                                    int64_t wall_ms, struct cairn_error *err) {
    return cairn_srv_sql_run(tx, NULL, err, SQL(server_put), SQL_T(server), SQL_T(name),
                             SQL_I(wall_ms), SQL_I(cairn_srv_tick(tx)));
}
/* It was there, in catalog time. */
CAIRN_SRV_WORD cairn_srv_server_seen(struct cairn_srv_tx *tx, const char *server,
                                     struct cairn_error *err) {
    return cairn_srv_sql_run(tx, NULL, err, SQL(server_seen), SQL_T(server),
                             SQL_I(cairn_srv_tick(tx)));
}
/* Was it one of this catalog's? Rows are kept as long as those of nodes. */
CAIRN_SRV_WORD cairn_srv_server_there(struct cairn_srv_tx *tx, const char *server, bool *ret,
                                      struct cairn_error *err) {
    return cairn_srv_sql_found(tx, ret, err, SQL(server_there), SQL_T(server));
}
CAIRN_SRV_WORD cairn_srv_servers_trim(struct cairn_srv_tx *tx, const char *server, uint64_t tick_ms,
                                      struct cairn_error *err) {
    return cairn_srv_sql_run(tx, NULL, err, SQL(servers_drop_silent), SQL_T(server),
                             SQL_I(tick_ms));
}
/* A text that is written and read back, to see that it can be. */
CAIRN_SRV_WORD cairn_srv_server_mark(struct cairn_srv_tx *tx, const char *server, const char *mark,
                                     struct cairn_error *err) {
    return cairn_srv_sql_run(tx, NULL, err, SQL(server_mark), SQL_T(server), SQL_T(mark));
}
CAIRN_SRV_WORD cairn_srv_server_mark_is(struct cairn_srv_tx *tx, const char *server,
                                        const char *mark, bool *ret, struct cairn_error *err) {
    return cairn_srv_sql_found(tx, ret, err, SQL(server_mark_is), SQL_T(server), SQL_T(mark));
}

/* Does another one live that has joined? Inside a change. */
enum cairn_code cairn_srv_servers_others(struct cairn_srv_tx *tx, bool *ret,
                                         struct cairn_error *err) CAIRN_MUST_USE;
/* From here on others know that this server lives, until its process ends. */
enum cairn_code cairn_srv_server_join(struct cairn_srv_tx *tx,
                                      struct cairn_error *err) CAIRN_MUST_USE;
/* seen->generation becomes the next number behind the catalog's and at_least; kept with its
 * uuid. */
enum cairn_code cairn_srv_generation_take(struct cairn_srv_tx *tx, uint64_t at_least,
                                          struct cairn_srv_store_seen *seen,
                                          struct cairn_error *err) CAIRN_MUST_USE;
/* What uploaders are told (Q19): *ret, unless another server has begun a life that goes on. */
enum cairn_code cairn_srv_life_join(struct cairn_srv_tx *tx, bool goes_on, uint64_t *ret,
                                    struct cairn_error *err) CAIRN_MUST_USE;
/* What all servers sign grants with, as a digest in hexadecimal; "" in a new catalog. */
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
    int64_t wall_ms;             /* when it was written */
};
/* away: it has said good-bye. */
CAIRN_SRV_WORD cairn_srv_node_put(struct cairn_srv_tx *tx, const char *node, const char *uploader,
                                  int64_t wall_ms, bool away, struct cairn_error *err) {
    return cairn_srv_sql_run(tx, NULL, err, SQL(node_put), SQL_T(node), SQL_T(uploader),
                             SQL_I(cairn_srv_tick(tx)), SQL_I(wall_ms), SQL_I(away));
}
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
CAIRN_SRV_WORD cairn_srv_node_put_projects(struct cairn_srv_tx *tx, const char *node,
                                           const char *projects, struct cairn_error *err) {
    return cairn_srv_sql_run(tx, NULL, err, SQL(node_put_projects), SQL_T(node), SQL_T(projects));
}
/* A heartbeat of after it was asked says so much. */
CAIRN_SRV_WORD cairn_srv_node_answer(struct cairn_srv_tx *tx, const char *node, uint64_t asked,
                                     const char *said, struct cairn_error *err) {
    return cairn_srv_sql_run(tx, NULL, err, SQL(node_answer), SQL_T(node), SQL_I(asked),
                             SQL_T(said));
}
/* Nodes of an attempt; all: also those whose answer is still awaited. */
CAIRN_SRV_WORD cairn_srv_nodes_ask(struct cairn_srv_tx *tx, int64_t run_id, uint64_t attempt,
                                   uint64_t asked, bool all, struct cairn_error *err) {
    return cairn_srv_sql_run(tx, NULL, err, SQL(nodes_ask), SQL_I(run_id), SQL_I(attempt),
                             SQL_I(asked), SQL_I(all));
}
/* *ret_there: it had a row. */
enum cairn_code cairn_srv_node_drop(struct cairn_srv_tx *tx, const char *node, bool *ret_there,
                                    struct cairn_error *err) CAIRN_MUST_USE;
/* The same of a node that ends by itself, of which no event tells. */
CAIRN_SRV_WORD cairn_srv_node_end(struct cairn_srv_tx *tx, const char *node,
                                  struct cairn_error *err) {
    return cairn_srv_sql_run(tx, NULL, err, SQL(node_drop), SQL_T(node));
}
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
/* *ret_made: there was none. CAIRN_BUSY: the version has too many. */
enum cairn_code cairn_srv_read_lease_take(struct cairn_srv_tx *tx,
                                          const struct cairn_srv_read_lease *lease, bool *ret_made,
                                          struct cairn_error *err) CAIRN_MUST_USE;
/* Of this version; *ret_found false: there is none, or it has ended and is forgotten. */
enum cairn_code cairn_srv_read_lease_renew(struct cairn_srv_tx *tx, const char *id,
                                           const char *version, uint64_t until_tick,
                                           bool *ret_found, struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_srv_read_lease_drop(struct cairn_srv_tx *tx, const char *id,
                                          const char *version, bool *ret_found,
                                          struct cairn_error *err) CAIRN_MUST_USE;
/* Does one last beyond this moment? */
CAIRN_SRV_WORD cairn_srv_version_leased(struct cairn_srv_tx *tx, const char *version, bool *ret,
                                        struct cairn_error *err) {
    return cairn_srv_sql_found(tx, ret, err, SQL(read_lease_holds), SQL_T(version),
                               SQL_I(cairn_srv_tick(tx)));
}
/* A JSON array of lease_row (api/messages.def), at most 1,000, the one that ends last first. */
enum cairn_code cairn_srv_read_leases_of(struct cairn_srv_tx *tx, const char *version,
                                         uint64_t step, json_t **ret,
                                         struct cairn_error *err) CAIRN_MUST_USE;
/* Those that have ended are forgotten. */
CAIRN_SRV_WORD cairn_srv_read_leases_trim(struct cairn_srv_tx *tx, struct cairn_error *err) {
    return cairn_srv_sql_run(tx, NULL, err, SQL(read_leases_trim), SQL_I(cairn_srv_tick(tx)));
}
