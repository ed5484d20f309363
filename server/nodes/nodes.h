/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nodes: what heartbeats said, and which nodes are waited for.
 *
 * Why:     a resume must not throw away what a node has staged and not reported yet (Q3), and a
 *          save must not stay open for a node that is gone (Q26).
 * Promise: 1    a node counts as silent since its last heartbeat to any server, or since this one
 *               listens (it started, or went on after a pause), whichever is later; one that never
 *               sent a heartbeat in the catalog's life is no uploader and is never waited for.
 *          2    "sent all" counts only from a heartbeat that arrived after the attempt call.
 *          3    a node that proves nothing (no grant of ours, no row) is a stranger: it takes no
 *               row and keeps no known node out. Where a table is full the node that is silent for
 *               longest goes, and where none is silent the newcomer is not taken.
 *          4    two uploaders that take turns under one name are noticed by their uuids.
 *          5    how a node restored a version is what it said last, while that is among the last
 *               CAIRN_SRV_RESTORES_MAX; it is not kept on disk, or known to other servers.
 *          Q54  a reported end counts for the process and the attempt that it names, at once.
 *          Q56  when the report adds that nothing of that rank is under way, every open version of
 *               the attempt that it has not sealed is given up in the same transaction, naming
 *               rank, node and process; versions that are begun later are, too.
 *          6    a report counts only for the catalog that last answered the node (another one may
 *               lack what the node has reported), and only in a run that was compared with its
 *               store and is not frozen (Q35, Q36). A report that was not taken comes again.
 * Limits:  65,536 known nodes, 1,024 strangers; 4,096 runs, 16 open versions and 256 copies a node;
 *          65,536 reported ends a call.
 * Threads: locked by server_nodes and server_restores.
 * Next:    server/nodes/node_calls.c writes; server/intake/attempt_calls.c, server/sweep/sweep.c
 *          read.
 */
#pragma once

#include "api/documents/keys.h"
#include "common/json.h"
#include "server/ledger/leases.h"
#include "server/server.h"

#define CAIRN_SRV_SILENT_MS 30000
#define CAIRN_SRV_VERSION_ERROR_BYTES 240
#define CAIRN_SRV_VERSION_REPORTS_MAX 16 /* of a node; of further versions nothing is kept */

enum cairn_code cairn_srv_nodes_new(struct cairn_srv_nodes **ret,
                                    struct cairn_error *err) CAIRN_MUST_USE;
void cairn_srv_nodes_free(struct cairn_srv_nodes *nodes); /* NULL is fine */
/* What one node said about one run. */
struct cairn_srv_run_report {
    struct cairn_run_name run;
    uint64_t attempt, unsent;
    uint64_t said_ms; /* mono clock, when an attempt call said it; 0: a heartbeat did */
    bool released;    /* no trainer of the node holds the attempt */
};
#define CAIRN_SRV_SHARD_ERRORS_MAX 4 /* of a version on a node, the newest */
struct cairn_srv_shard_error {
    char shard[160], error[CAIRN_SRV_VERSION_ERROR_BYTES];
    uint32_t part, rank;    /* part 0: of none */
    uint64_t tries, age_ms; /* age: when it is asked for, since the node saw it */
};
/* What it said about one open version. */
struct cairn_srv_version_report {
    struct cairn_version_id id;
    uint64_t bytes_done, bytes_total;
    uint64_t shards_done, shards_total, parts_done, parts_total; /* CAIRN_MESSAGE_NONE: unsaid */
    char error[CAIRN_SRV_VERSION_ERROR_BYTES];                   /* what went wrong last; "" */
    struct cairn_srv_shard_error errors[CAIRN_SRV_SHARD_ERRORS_MAX];
    size_t error_count;
};
#define CAIRN_SRV_KEPT_MAX 256 /* copies of a node; of further ones nothing is kept */
/* What it keeps whole of another node's rank (docs/partner.md). */
struct cairn_srv_kept {
    struct cairn_version_id version;
    uint32_t rank;
    char node[CAIRN_NAME_BYTES_MAX + 1];
};
struct cairn_srv_heartbeat {
    const char *node;
    struct cairn_view uploader;                /* what the row says of it: JSON */
    struct cairn_srv_run_report *take_reports; /* owned; NULL afterwards when it was taken */
    size_t report_count, version_count;
    struct cairn_srv_version_report *take_versions; /* owned, likewise */
    size_t version_report_count;
    struct cairn_srv_kept *take_kept; /* owned, likewise */
    size_t kept_count;
    const char *uuid;    /* of the uploader; "" when it says none */
    const char *trouble; /* what it says is wrong; "" */
    bool known;          /* it has shown a grant of ours, or has a row */
    bool has_row;        /* else it is listed from memory */
    bool leaving;        /* nothing of it is waited for until it is heard again */
};
/* True when the node's row is to be written: for the first time, once a minute (or once in a
 * quarter of silence_max), and when what it says has changed. */
bool cairn_srv_nodes_hear(struct cairn_srv *server, struct cairn_srv_heartbeat *beat);
#define CAIRN_SRV_TROUBLE_BYTES 600
/* Nodes whose trouble was heard of within CAIRN_SRV_SILENT_MS; the first of them as text. */
size_t cairn_srv_nodes_trouble(struct cairn_srv *server, char ret[CAIRN_SRV_TROUBLE_BYTES]);
/* Of one node; "" when there is none. */
void cairn_srv_node_trouble(struct cairn_srv *server, const char *node,
                            char ret[CAIRN_SRV_TROUBLE_BYTES]);
/* What it said last of that version, to this server; false: nothing. */
bool cairn_srv_node_said_of(struct cairn_srv *server, const char *node, const char *version,
                            struct cairn_srv_version_report *ret);
/* The ranks of that version of which it said last that it keeps a copy, in its order; at most
 * CAIRN_SRV_KEPT_MAX. Returns how many. */
size_t cairn_srv_node_keeps(struct cairn_srv *server, const char *node, const char *version,
                            struct cairn_srv_kept ret[CAIRN_SRV_KEPT_MAX]);
/* False when it was heard within CAIRN_SRV_SILENT_MS; else it is forgotten, if it was there. */
bool cairn_srv_node_forget(struct cairn_srv *server, const char *node,
                           bool *ret_there) CAIRN_MUST_USE;
/* A stranger has joined an attempt: it is known from now on, and its row is to be written (Q26).
 * *ret_uploader is what the row says, owned by the caller; false when it is no stranger. */
bool cairn_srv_node_joins(struct cairn_srv *server, const char *node, char **ret_uploader);
/* When it was heard (mono clock) and how many versions it asked about; false when this process has
 * not heard it. */
bool cairn_srv_node_last_heard(struct cairn_srv *server, const char *node, uint64_t *ret_ms,
                               size_t *ret_versions);
/* Called by a thread that waits for nothing but time, five times a second, and before silence is
 * judged: a call that comes far too late shows that this process did not run, and heard nobody
 * meanwhile (K05). */
void cairn_srv_nodes_awake(struct cairn_srv *server);
/* Of nodes that were not heard for so long nothing is remembered: their rows have gone, too. */
void cairn_srv_nodes_forget(struct cairn_srv *server, uint64_t silent_ms);
/* Milliseconds since this server heard the node, or since it started when it did not. */
uint64_t cairn_srv_node_silence_ms(struct cairn_srv *server, const char *node);
/* The same of all servers, by the node's row; tick: catalog time of the look at it. */
uint64_t cairn_srv_node_silent_ms(struct cairn_srv *server, const struct cairn_srv_node_mark *node,
                                  uint64_t tick);
/* Q3: a call of the node's own uploader to open the next attempt says what a heartbeat would say of
 * that run. False: the node was never heard, so nobody waits for it. */
bool cairn_srv_node_says(struct cairn_srv *server, const char *node,
                         const struct cairn_srv_run_report *report);
/* For other servers: what the node's last heartbeat said of each run. */
json_t *cairn_srv_node_said(struct cairn_srv *server, const char *node);
/* And what such a text says of one run: is something unsent, do trainers hold the attempt? */
void cairn_srv_node_read_said(const char *said, const struct cairn_run_name *run, uint64_t attempt,
                              bool *ret_unsent, bool *ret_writes);
/* Q3 (b): has a heartbeat of after arrived_ms come here and said that all was sent? */
bool cairn_srv_node_sent_all(struct cairn_srv *server, const char *node,
                             const struct cairn_run_name *name, uint64_t arrived_ms);
/* Q3 (b): must an attempt call that came in at arrived_ms still wait for this node? */
bool cairn_srv_node_unsent(struct cairn_srv *server, const char *node,
                           const struct cairn_run_name *name, uint64_t arrived_ms);
/* Has it been heard since then, and not left? */
bool cairn_srv_node_heard_since(struct cairn_srv *server, const char *node, uint64_t since_ms);
/* Did the node's last heartbeat name this attempt as one that its trainers still hold (Q7)? */
bool cairn_srv_node_writes(struct cairn_srv *server, const char *node,
                           const struct cairn_run_name *name, uint64_t attempt);

/* ---- how nodes have restored versions last ---- */

#define CAIRN_SRV_RESTORES_MAX 4096

struct cairn_srv_restores;
enum cairn_code cairn_srv_restores_new(struct cairn_srv_restores **ret,
                                       struct cairn_error *err) CAIRN_MUST_USE;
void cairn_srv_restores_free(struct cairn_srv_restores *restores); /* NULL is fine */

struct cairn_srv_restore {
    char node[CAIRN_NAME_BYTES_MAX + 1];
    struct cairn_version_id version;
    struct cairn_run_name run;
    char choice[128];
    uint64_t store_bytes, shared_bytes, peer_bytes, memory_bytes;
    uint64_t heard; /* a number that rises; 0: a free place */
};
void cairn_srv_restores_hear(struct cairn_srv_restores *restores,
                             const struct cairn_srv_restore *restore);
/* What its nodes said, an item of `why` each; NULL: no memory. */
json_t *cairn_srv_restores_json(struct cairn_srv_restores *restores,
                                const struct cairn_run_name *run, const char *version);
