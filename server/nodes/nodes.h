/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nodes: the newest heartbeat of each node, and whether a resume or a save still waits for a node.
 *
 * Why:     a resume must not throw away what a node has staged and not reported yet (Q3), and a
 *          save must not stay open for a lost node (Q26).
 * Promise: 1    a node is silent since its last heartbeat to any server, but not since before this
 *               server listens (it started, or resumed after a pause); a node without a heartbeat
 *               in the catalog's life is no uploader and is never waited for.
 *          2    "sent all" counts only from a heartbeat that arrived after the attempt call.
 *          3    a node without a grant of ours and without a row is a stranger: it takes no row and
 *               evicts no known node. A full table evicts its longest silent node or takes no more.
 *          4    two uploaders that alternate under one node name are noticed by their uuids.
 *          5    for each node and version the last reported restore is kept, while it is among the
 *               last SRV_RESTORES_MAX; in memory, and not shared with other servers.
 *          Q54  a reported end counts at once for its process and attempt.
 *          Q56  when the report adds that nothing of that rank is under way, every open version of
 *               the attempt that the rank has not sealed is given up in the same transaction, and
 *               so are versions begun later; the reason names rank, node and process.
 *          6    a reported end is settled only with the catalog that last answered the node
 *               (another may lack what the node has reported), and in a run that was compared with
 *               its store and is not frozen (Q35, Q36). A report not taken is repeated.
 * Limits:  65,536 known nodes, 1,024 strangers, 65,536 ends a call; 4,096 runs, 16 open versions
 *          and 256 copies a node.
 * Threads: locked by server_nodes and server_restores.
 * Next:    server/nodes/node_calls.c, server/intake/attempt_calls.c, server/sweep/sweep.c.
 */
#pragma once

#include "server/ledger/leases.h"
#include "server/server.h"

#define SRV_SILENT_MS 30000
#define SRV_VERSION_ERROR_BYTES 240
#define SRV_VERSION_REPORTS_MAX 16 /* per node; further versions are dropped */

enum cairn_code srv_nodes_new(struct srv_nodes **ret, struct cairn_error *err) CAIRN_MUST_USE;
void srv_nodes_free(struct srv_nodes *nodes); /* NULL is fine */
/* A node's report about one run. */
struct srv_run_report {
    struct cairn_run_name run;
    uint64_t attempt, unsent;
    uint64_t said_ms; /* mono clock time of an attempt call's report; 0: from a heartbeat */
    bool released;    /* no trainer of the node holds the attempt */
};
#define SRV_SHARD_ERRORS_MAX 4 /* per version and node: the newest */
struct srv_shard_error {
    char shard[160], error[SRV_VERSION_ERROR_BYTES];
    uint32_t part, rank;    /* part 0: no part */
    uint64_t tries, age_ms; /* age_ms: since the node saw it; brought up to date when read */
};
/* A node's report about one open version. */
struct srv_version_report {
    struct cairn_version_id id;
    uint64_t bytes_done, bytes_total;
    uint64_t shards_done, shards_total, parts_done, parts_total; /* CAIRN_MESSAGE_NONE: unknown */
    char error[SRV_VERSION_ERROR_BYTES];                         /* the newest; "": none */
    struct srv_shard_error errors[SRV_SHARD_ERRORS_MAX];
    size_t error_count;
};
#define SRV_KEPT_MAX 256 /* copies per node; further ones are dropped */
/* A complete copy of another node's rank (docs/partner.md); node: whose rank it is. */
struct srv_kept {
    struct cairn_version_id version;
    uint32_t rank;
    char node[CAIRN_NAME_BYTES_MAX + 1];
};
struct srv_heartbeat {
    const char *node;
    struct cairn_view uploader;          /* JSON for the node's row */
    struct srv_run_report *take_reports; /* owned; NULL once taken */
    size_t report_count, version_count;
    struct srv_version_report *take_versions; /* owned, likewise */
    size_t version_report_count;
    struct srv_kept *take_kept; /* owned, likewise */
    size_t kept_count;
    const char *uuid;    /* of the uploader; "": none */
    const char *trouble; /* the trouble that it reports; "": none */
    bool known;          /* it has shown a grant of ours, or has a row */
    bool has_row;        /* else GET /v1/nodes lists it from memory */
    bool leaving;        /* not waited for until its next heartbeat */
};
/* Records a heartbeat. True when the node's row is due: the first time, once a minute (or a quarter
 * of silence_max), and when its content has changed. */
bool srv_nodes_hear(struct srv *server, struct srv_heartbeat *beat);
/* The row that was due could not be written: it is due again with the next heartbeat. */
void srv_node_row_failed(struct srv *server, const char *node);
#define SRV_TROUBLE_BYTES 600
/* Counts nodes with trouble reported within SRV_SILENT_MS; ret describes the first. */
size_t srv_nodes_trouble(struct srv *server, char ret[SRV_TROUBLE_BYTES]);
/* The trouble of one node; "": none. */
void srv_node_trouble(struct srv *server, const char *node, char ret[SRV_TROUBLE_BYTES]);
/* The node's newest report to this server about the version; false: none. */
bool srv_node_said_of(struct srv *server, const char *node, const char *version,
                      struct srv_version_report *ret);
/* Copies of ranks of that version that the node reported last; returns their count. */
size_t srv_node_keeps(struct srv *server, const char *node, const char *version,
                      struct srv_kept ret[SRV_KEPT_MAX]);
/* False if it was heard within SRV_SILENT_MS; else forgets it. *ret_there: was known. */
bool srv_node_forget(struct srv *server, const char *node, bool *ret_there) CAIRN_MUST_USE;
/* Makes a stranger that joined an attempt a known node, whose row the caller writes (Q26).
 * *ret_uploader is the JSON for that row, owned by the caller; false for any other node. */
bool srv_node_joins(struct srv *server, const char *node, char **ret_uploader);
/* Mono time of the last heartbeat and its number of versions; false: none reached this process. */
bool srv_node_last_heard(struct srv *server, const char *node, uint64_t *ret_ms,
                         size_t *ret_versions);
/* Called five times a second by a thread that waits for time only, and before silence is judged: a
 * call far too late shows that this process was paused and heard no heartbeat (K05). */
void srv_nodes_awake(struct srv *server);
/* Forgets nodes that are silent for longer; their rows are deleted by then. */
void srv_nodes_forget(struct srv *server, uint64_t silent_ms);
/* Milliseconds since this server heard the node, else since it listens. */
uint64_t srv_node_silence_ms(struct srv *server, const char *node);
/* The same over all servers, from the node's row; tick: catalog time at which the row was read. */
uint64_t srv_node_silent_ms(struct srv *server, const struct srv_node_mark *node, uint64_t tick);
/* Q3: takes an attempt call's run report. False: no heartbeat yet, so no attempt waits for it. */
bool srv_node_says(struct srv *server, const char *node, const struct srv_run_report *report);
/* The run reports of the last heartbeat, as JSON for other servers. */
json_t *srv_node_said(struct srv *server, const char *node);
/* Reads that JSON for one run: is anything unsent, do trainers hold the attempt? */
void srv_node_read_said(const char *said, const struct cairn_run_name *run, uint64_t attempt,
                        bool *ret_unsent, bool *ret_writes);
/* Q3 (b): has a report to this server after arrived_ms said that all is sent? */
bool srv_node_sent_all(struct srv *server, const char *node, const struct cairn_run_name *name,
                       uint64_t arrived_ms);
/* Q3 (b): must an attempt call that arrived at arrived_ms still wait for this node? */
bool srv_node_unsent(struct srv *server, const char *node, const struct cairn_run_name *name,
                     uint64_t arrived_ms);
/* Has the node sent a heartbeat since then, and not left? */
bool srv_node_heard_since(struct srv *server, const char *node, uint64_t since_ms);
/* Did the node's last heartbeat report that its trainers hold this attempt (Q7)? */
bool srv_node_writes(struct srv *server, const char *node, const struct cairn_run_name *name,
                     uint64_t attempt);

/* ---- restores ---- */

#define SRV_RESTORES_MAX 4096

enum cairn_code srv_restores_new(struct srv_restores **ret, struct cairn_error *err) CAIRN_MUST_USE;
void srv_restores_free(struct srv_restores *restores); /* NULL is fine */

struct srv_restore {
    char node[CAIRN_NAME_BYTES_MAX + 1];
    struct cairn_version_id version;
    struct cairn_run_name run;
    char choice[128];
    uint64_t store_bytes, shared_bytes, peer_bytes, memory_bytes;
    uint64_t heard; /* rises with each report; 0: free */
};
void srv_restores_hear(struct srv_restores *restores, const struct srv_restore *restore);
/* The restores of a version, as items of the message `why`; NULL: no memory. */
json_t *srv_restores_json(struct srv_restores *restores, const struct cairn_run_name *run,
                          const char *version);
