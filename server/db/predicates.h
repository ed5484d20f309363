/* SPDX-License-Identifier: Apache-2.0 */
/*
 * predicates: what a version is, in SQL, once each.
 *
 * Why:     "shown" (Q25) and "whole" (Q22) were written in several statements and drifted.
 * Promise: 1    state numbers are those of api/wire/words.h.
 * Limits:  texts over a row v of versions, or over a row of layouts.
 * Threads: stateless.
 * Next:    server/db/statements.def.
 */
#pragma once

#include "api/wire/words.h"

#define SQL_TEXT_OF(number) #number
#define SQL_NUMBER(macro) SQL_TEXT_OF(macro)
#define OPEN SQL_NUMBER(CAIRN_STATE_NUMBER_OPEN)
#define COMMITTED SQL_NUMBER(CAIRN_STATE_NUMBER_COMMITTED)
#define DELETING SQL_NUMBER(CAIRN_STATE_NUMBER_DELETING)
#define ABORTING SQL_NUMBER(CAIRN_STATE_NUMBER_ABORTING)
#define GONE SQL_NUMBER(CAIRN_STATE_NUMBER_GONE)

/* In the order of version_row (server/ledger/versions.c). */
#define VERSION_COLUMNS                                                                            \
    "v.version, v.run_id, r.project, r.run, v.attempt, v.step, v.n, v.nonce, v.state, "            \
    "v.recorded, v.superseded, v.trashed_tick, v.world_size, v.on_exists, v.skip, v.format, "      \
    "v.labels, v.meta, v.bytes, v.shards, v.layout, v.layout_writer, v.manifest_sha256, v.code, "  \
    "v.reason, v.warnings, v.created_ms, v.committed_ms, v.opened_tick, v.gone_tick, v.sweeps, "   \
    "v.http_status, v.request_id, v.metrics, v.note, v.pinned, (SELECT 1 FROM aliases a WHERE "    \
    "a.version = v.version LIMIT 1), (SELECT 1 FROM copies c WHERE c.version = v.version LIMIT "   \
    "1), v.staged_ms, v.durable_ms, v.stall_ms, v.line"
#define VERSION_FROM " FROM versions v JOIN runs r ON r.run_id = v.run_id "
/* Q25: in the line of which attempt it counts. As in the index versions_shown. */
#define LINE "(CASE WHEN v.line > 0 THEN v.line ELSE v.attempt END)"
#define VERSION_NEWEST_FIRST                                                                       \
    " ORDER BY " LINE " DESC, v.step DESC, v.attempt DESC, v.n DESC LIMIT 1"

/* Rows of copies of run ?1: of its versions that a policy may be about, and that have this line. */
#define COPIES_OF_RUN                                                                              \
    "SELECT c.version, c.store, c.phase, c.by_policy, c.changed_ms, c.damaged, c.damaged_ms FROM " \
    "versions v JOIN copies c ON c.version = v.version WHERE v.run_id = ?1 AND " NOT_GONE          \
    " AND v.state IN (" OPEN ", " COMMITTED ") AND v.trashed_tick IS NULL AND "

/* What a policy may be about, of run ?1 at tick ?2; see cairn_srv_candidates_load. */
#define TO_RETAIN                                                                                  \
    "SELECT v.version, v.attempt, v.step, v.n, v.state, v.recorded, v.superseded, v.pinned, "      \
    "v.bytes, v.committed_ms, v.labels, v.metrics, (SELECT 1 FROM aliases a WHERE a.version = "    \
    "v.version LIMIT 1), (SELECT 1 FROM read_leases l WHERE l.version = v.version AND "            \
    "l.until_tick > ?2 LIMIT 1), v.line FROM versions v WHERE v.run_id = ?1 AND " NOT_GONE         \
    " AND v.state IN (" OPEN ", " COMMITTED ") AND v.trashed_tick IS NULL AND "

#define SHOWN                                                                                      \
    "(v.state = " COMMITTED " AND v.recorded = 1 AND v.superseded = 0 AND v.trashed_tick IS NULL)"
#define SEALED "(v.ranks_sealed = v.world_size)" /* by all ranks */
/* Every shard that is known. One row of one version is looked for: as NOT EXISTS PostgreSQL would
 * make a hash of what is not registered anywhere. */
#define REGISTERED                                                                                 \
    "((SELECT 1 FROM shards s WHERE s.version = v.version AND s.registered = 0 LIMIT 1) IS NULL)"
#define WHOLE "(v.state = " OPEN " AND " SEALED " AND " REGISTERED ")"
/* Q36: nothing is committed, ended or deleted in a run that the catalog is behind in. */
#define THAWED "NOT EXISTS (SELECT 1 FROM frozen_runs f WHERE f.run_id = v.run_id)"
#define LAYOUT_THAWED "NOT EXISTS (SELECT 1 FROM frozen_runs f WHERE f.run_id = l.run_id)"
/* In the order of node_of (server/ledger/leases.c). */
#define NODE_COLUMNS "n.node, n.last_tick, n.asked, n.answered, n.away, n.said, n.projects"
#define SHARD_COLUMNS "name, rank, size, crc32c, registered, part_bytes, node"
/* A page of a run's versions of one kind, from a cursor on: ?2, ?3, ?4. A text for each order, as
 * an index is only used for an order that is written down. */
#define VERSIONS_FALLING(kind)                                                                     \
    "SELECT " VERSION_COLUMNS VERSION_FROM "WHERE v.run_id = ?1 AND " kind " AND "                 \
    "(v.attempt, v.step, v.n) < (?2, ?3, ?4) ORDER BY v.attempt DESC, v.step DESC, v.n DESC "      \
    "LIMIT ?5"
#define VERSIONS_RISING(kind)                                                                      \
    "SELECT " VERSION_COLUMNS VERSION_FROM "WHERE v.run_id = ?1 AND " kind " AND "                 \
    "(v.attempt, v.step, v.n) > (?2, ?3, ?4) ORDER BY v.attempt, v.step, v.n LIMIT ?5"
/* The same of what filters ask of a row (server/ledger/version_lists.c, scan). */
#define SCAN_COLUMNS                                                                               \
    "v.version, v.attempt, v.step, v.n, v.state, v.recorded, v.trashed_tick, CASE WHEN "           \
    "v.committed_ms > 0 THEN v.committed_ms ELSE v.created_ms END, v.labels FROM versions v "
#define SCAN_FALLING(kind)                                                                         \
    "SELECT " SCAN_COLUMNS "WHERE v.run_id = ?1 AND " kind " AND (v.attempt, v.step, v.n) < "      \
    "(?2, ?3, ?4) ORDER BY v.attempt DESC, v.step DESC, v.n DESC LIMIT ?5"
#define SCAN_RISING(kind)                                                                          \
    "SELECT " SCAN_COLUMNS "WHERE v.run_id = ?1 AND " kind " AND (v.attempt, v.step, v.n) > "      \
    "(?2, ?3, ?4) ORDER BY v.attempt, v.step, v.n LIMIT ?5"
/* Likewise by step, over all attempts; ?2 to ?4 as above. */
#define STEPS_FALLING(kind)                                                                        \
    "SELECT " SCAN_COLUMNS "WHERE v.run_id = ?1 AND " kind " AND (v.step, v.attempt, v.n) < "      \
    "(?3, ?2, ?4) ORDER BY v.step DESC, v.attempt DESC, v.n DESC LIMIT ?5"
#define STEPS_RISING(kind)                                                                         \
    "SELECT " SCAN_COLUMNS "WHERE v.run_id = ?1 AND " kind " AND (v.step, v.attempt, v.n) > "      \
    "(?3, ?2, ?4) ORDER BY v.step, v.attempt, v.n LIMIT ?5"
#define IN_TRASH NOT_GONE " AND v.trashed_tick IS NOT NULL"
#define OUT_OF_TRASH NOT_GONE " AND v.trashed_tick IS NULL"
/* Q24: a committed version that is not recorded counts as open. */
#define COUNTS_AS_OPEN "(v.state = " OPEN " OR (v.state = " COMMITTED " AND v.recorded = 0))"
#define RECORDED "(v.state = " COMMITTED " AND v.recorded = 1)"
/* Of rows that versions have while they are open, so few: each looks for its version. */
#define OF_RECORDED(table)                                                                         \
    "(SELECT 1 FROM versions v WHERE v.version = " #table ".version AND " RECORDED ") IS NOT NULL"
/* As what a version is counted: the number of its state, or this one behind them. */
#define TRASHED_KIND "5"
#define NOT_GONE "v.state <> " GONE
/* What a version counts for in its project (policies.h#3). */
#define USES_ONE "CASE WHEN v.state IN (" OPEN ", " COMMITTED ", " DELETING ") THEN 1 ELSE 0 END"
#define USES_BYTES                                                                                 \
    "CASE WHEN v.state IN (" COMMITTED ", " DELETING ") THEN v.bytes WHEN v.state = " GONE         \
    " THEN 0 ELSE v.sealed_bytes END"
#define SEALED_BYTES_MAX "1125899906842624" /* CAIRN_SRV_SEALED_BYTES_MAX */
/* A version names the layout that is open (its manifest may be written already), committed, or
 * still being deleted. */
#define LAYOUT_NAMED                                                                               \
    "EXISTS (SELECT 1 FROM versions v WHERE v.run_id = layouts.run_id AND v.layout = "             \
    "layouts.digest AND v.layout_writer = layouts.writer AND v.state IN (" OPEN ", " COMMITTED     \
    ", " DELETING "))"
/* One change is under way at a time (engine.h#4), so its number is the order of the commits. The
 * newest row is never trimmed, so none is given twice. */
#define EVENT_NEXT "(SELECT coalesce(max(n.seq), 0) + 1 FROM events n)"
/* Not before the event before it, also where the clock was set back since. */
#define EVENT_AT(wall)                                                                             \
    "coalesce((SELECT l.at_ms FROM events l WHERE l.seq = (SELECT max(m.seq) FROM events m) AND "  \
    "l.at_ms > " wall "), " wall ")"
#define EVENT_COLUMNS                                                                              \
    "seq, at_ms, tick, event, project, run, version, step, attempt, code, reason, who, origin, "   \
    "audit, old_value, new_value"
/* Of an event e: its name is in a list as ",copy.made,run.created,", or the list is "". */
#define OF_KIND(list) " AND (" list " = '' OR " list " LIKE '%,' || e.event || ',%')"
#define EVENT_SHOWN                                                                                \
    "e.seq, e.at_ms, e.event, e.project, e.run, e.version, e.step, e.attempt, e.code, e.reason, "  \
    "e.who, e.origin, e.old_value, e.new_value"
/* In the order of read_row (server/ledger/operations.c). */
#define OPERATION_COLUMNS                                                                          \
    "operation, kind, project, run, request, phase, done, total, cancel, result, problem, who, "   \
    "created_ms, ended_ms"
/* In the order of read_row (server/ledger/version_lists.c). */
#define NOT_FREED_COLUMNS                                                                          \
    "n.code, n.cause, n.counted, n.objects, n.bytes, n.since_ms, n.tried_ms, n.tries, n.next_tick"
/* Of what the store keeps: it has times of its own. */
#define FREED "NOT EXISTS (SELECT 1 FROM not_freed n WHERE n.version = v.version)"
#define TOKEN_COLUMNS "token, digest, name, scopes, projects, created_ms, expires_ms, who, parent"
