/* SPDX-License-Identifier: Apache-2.0 */
/*
 * predicates: SQL conditions on versions and other rows, each written once.
 *
 * Why:     "shown" (Q25) and "whole" (Q22) were written in several statements and drifted.
 * Promise: 1   state numbers are those of api/wire/words.h.
 * Limits:  texts over a row v of versions, or l of layouts.
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

/* In the order of `version` in server/ledger/rows.def. */
#define VERSION_COLUMNS                                                                            \
    "v.version, v.run_id, r.project, r.run, v.attempt, v.step, v.n, v.nonce, v.state, "            \
    "v.recorded, v.superseded, v.trashed_tick, v.world_size, v.on_exists, v.skip, v.format, "      \
    "v.labels, v.meta, v.bytes, v.shards, v.layout, v.layout_writer, v.manifest_sha256, v.code, "  \
    "v.reason, v.warnings, v.created_ms, v.committed_ms, v.opened_tick, v.gone_tick, v.sweeps, "   \
    "v.http_status, v.request_id, v.metrics, v.note, v.pinned, (SELECT 1 FROM aliases a WHERE "    \
    "a.version = v.version LIMIT 1), (SELECT 1 FROM copies c WHERE c.version = v.version LIMIT "   \
    "1), v.staged_ms, v.durable_ms, v.stall_ms, v.line"
#define VERSION_FROM " FROM versions v JOIN runs r ON r.run_id = v.run_id "
/* Q25: the attempt in whose line the version counts; same text as in the index versions_shown. */
#define LINE "(CASE WHEN v.line > 0 THEN v.line ELSE v.attempt END)"
#define VERSION_NEWEST_FIRST                                                                       \
    " ORDER BY " LINE " DESC, v.step DESC, v.attempt DESC, v.n DESC LIMIT 1"

/* Copies of run ?1's versions that a policy may remove, in this line. */
#define COPIES_OF_RUN                                                                              \
    "SELECT c.version, c.store, c.phase, c.by_policy, c.changed_ms, c.damaged, c.damaged_ms FROM " \
    "versions v JOIN copies c ON c.version = v.version WHERE v.run_id = ?1 AND " NOT_GONE          \
    " AND v.state IN (" OPEN ", " COMMITTED ") AND v.trashed_tick IS NULL AND "

/* Versions of run ?1 that a policy may remove, at tick ?2; see srv_candidates_load. */
#define TO_RETAIN                                                                                  \
    "SELECT v.version, v.attempt, v.step, v.n, v.state, v.recorded, v.superseded, v.pinned, "      \
    "v.bytes, v.committed_ms, v.labels, v.metrics, (SELECT 1 FROM aliases a WHERE a.version = "    \
    "v.version LIMIT 1), (SELECT 1 FROM read_leases l WHERE l.version = v.version AND "            \
    "l.until_tick > ?2 LIMIT 1), v.line FROM versions v WHERE v.run_id = ?1 AND " NOT_GONE         \
    " AND v.state IN (" OPEN ", " COMMITTED ") AND v.trashed_tick IS NULL AND "

#define SHOWN                                                                                      \
    "(v.state = " COMMITTED " AND v.recorded = 1 AND v.superseded = 0 AND v.trashed_tick IS NULL)"
#define SEALED "(v.ranks_sealed = v.world_size)" /* by all ranks */
/* No shard is unregistered. With NOT EXISTS, PostgreSQL would hash all unregistered shards. */
#define REGISTERED                                                                                 \
    "((SELECT 1 FROM shards s WHERE s.version = v.version AND s.registered = 0 LIMIT 1) IS NULL)"
#define WHOLE "(v.state = " OPEN " AND " SEALED " AND " REGISTERED ")"
/* Q36: nothing is committed, ended or deleted in a frozen run. */
#define THAWED "NOT EXISTS (SELECT 1 FROM frozen_runs f WHERE f.run_id = v.run_id)"
#define LAYOUT_THAWED "NOT EXISTS (SELECT 1 FROM frozen_runs f WHERE f.run_id = l.run_id)"
/* These and others below: in the order of server/ledger/rows.def. */
#define NODE_COLUMNS "n.node, n.last_tick, n.asked, n.answered, n.away, n.said, n.projects"
#define SHARD_COLUMNS "name, rank, size, crc32c, registered, part_bytes, node"
/* A page of a run's versions of one kind, after the cursor ?2, ?3, ?4. One text per direction: an
 * index only serves an order that is written out. */
#define VERSIONS_FALLING(kind)                                                                     \
    "SELECT " VERSION_COLUMNS VERSION_FROM "WHERE v.run_id = ?1 AND " kind " AND "                 \
    "(v.attempt, v.step, v.n) < (?2, ?3, ?4) ORDER BY v.attempt DESC, v.step DESC, v.n DESC "      \
    "LIMIT ?5"
#define VERSIONS_RISING(kind)                                                                      \
    "SELECT " VERSION_COLUMNS VERSION_FROM "WHERE v.run_id = ?1 AND " kind " AND "                 \
    "(v.attempt, v.step, v.n) > (?2, ?3, ?4) ORDER BY v.attempt, v.step, v.n LIMIT ?5"
/* The same page with the columns that filters read (server/ledger/version_lists.c, scan). */
#define SCAN_COLUMNS                                                                               \
    "v.version, v.attempt, v.step, v.n, v.state, v.recorded, v.trashed_tick, CASE WHEN "           \
    "v.committed_ms > 0 THEN v.committed_ms ELSE v.created_ms END, v.labels FROM versions v "
#define SCAN_FALLING(kind)                                                                         \
    "SELECT " SCAN_COLUMNS "WHERE v.run_id = ?1 AND " kind " AND (v.attempt, v.step, v.n) < "      \
    "(?2, ?3, ?4) ORDER BY v.attempt DESC, v.step DESC, v.n DESC LIMIT ?5"
#define SCAN_RISING(kind)                                                                          \
    "SELECT " SCAN_COLUMNS "WHERE v.run_id = ?1 AND " kind " AND (v.attempt, v.step, v.n) > "      \
    "(?2, ?3, ?4) ORDER BY v.attempt, v.step, v.n LIMIT ?5"
/* The same page by step, over all attempts. */
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
/* For tables with rows only while versions are open, so few: looks up each row's version. */
#define OF_RECORDED(table)                                                                         \
    "(SELECT 1 FROM versions v WHERE v.version = " #table ".version AND " RECORDED ") IS NOT NULL"
/* The kind as which a trashed version is counted: the number after the states. */
#define TRASHED_KIND "5"
#define NOT_GONE "v.state <> " GONE
/* What a version adds to its project's usage (policies.h#3). */
#define USES_ONE "CASE WHEN v.state IN (" OPEN ", " COMMITTED ", " DELETING ") THEN 1 ELSE 0 END"
#define USES_BYTES                                                                                 \
    "CASE WHEN v.state IN (" COMMITTED ", " DELETING ") THEN v.bytes WHEN v.state = " GONE         \
    " THEN 0 ELSE v.sealed_bytes END"
#define SEALED_BYTES_MAX "1125899906842624" /* SRV_SEALED_BYTES_MAX */
/* Versions that reference a layout: open (a manifest may exist), committed or deleting. */
#define LAYOUT_NAMED                                                                               \
    "EXISTS (SELECT 1 FROM versions v WHERE v.run_id = layouts.run_id AND v.layout = "             \
    "layouts.digest AND v.layout_writer = layouts.writer AND v.state IN (" OPEN ", " COMMITTED     \
    ", " DELETING "))"
/* One change runs at a time (engine.h#4), so numbers follow the commit order. The newest row is
 * never trimmed, so none is reused. */
#define EVENT_NEXT "(SELECT coalesce(max(n.seq), 0) + 1 FROM events n)"
/* Never earlier than the previous event, even after the clock was set back. */
#define EVENT_AT(wall)                                                                             \
    "coalesce((SELECT l.at_ms FROM events l WHERE l.seq = (SELECT max(m.seq) FROM events m) AND "  \
    "l.at_ms > " wall "), " wall ")"
#define EVENT_COLUMNS                                                                              \
    "seq, at_ms, tick, event, project, run, version, step, attempt, code, reason, who, origin, "   \
    "audit, old_value, new_value"
/* True when event e's name is in a list like ",copy.made,run.created,", or the list is "". */
#define OF_KIND(list) " AND (" list " = '' OR " list " LIKE '%,' || e.event || ',%')"
#define EVENT_SHOWN                                                                                \
    "e.seq, e.at_ms, e.event, e.project, e.run, e.version, e.step, e.attempt, e.code, e.reason, "  \
    "e.who, e.origin, e.old_value, e.new_value"
#define OPERATION_COLUMNS                                                                          \
    "operation, kind, project, run, request, phase, done, total, cancel, result, problem, who, "   \
    "created_ms, ended_ms"
#define NOT_FREED_COLUMNS                                                                          \
    "n.code, n.cause, n.counted, n.objects, n.bytes, n.since_ms, n.tried_ms, n.tries, n.next_tick"
/* True for a version without bytes left in the store; others have their own schedule. */
#define FREED "NOT EXISTS (SELECT 1 FROM not_freed n WHERE n.version = v.version)"
#define TOKEN_COLUMNS "token, digest, name, scopes, projects, created_ms, expires_ms, who, parent"
