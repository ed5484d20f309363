/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of attempts and attempt_ranks; see attempts.h. */
#include "server/ledger/attempts.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "api/documents/records.h"
#include "api/wire/messages.h"
#include "common/buf.h"
#include "common/hooks.h"
#include "common/json.h"
#include "common/text.h"
#include "server/ledger/events.h"

enum cairn_code cairn_srv_attempt_of_job(struct cairn_srv_tx *tx, int64_t run_id, const char *job,
                                         bool *ret_found, struct cairn_srv_attempt *ret,
                                         struct cairn_error *err) {
    CAIRN_AUTO(srv_rows) rows = {0};
    CAIRN_TRY(cairn_srv_sql_first(tx, &rows, ret_found, err, SQL(attempt_of_job), SQL_I(run_id),
                                  SQL_T(job)));
    if (!*ret_found) return CAIRN_OK;
    *ret = (struct cairn_srv_attempt){.number = cairn_srv_rows_u64(&rows, 0),
                                      .world_size = cairn_srv_rows_u64(&rows, 2),
                                      .has_choice = !cairn_srv_rows_null(&rows, 4),
                                      .recorded = cairn_srv_rows_i64(&rows, 5) != 0,
                                      .choice_step = cairn_srv_rows_u64(&rows, 6),
                                      .weights = strdup(cairn_srv_rows_text(&rows, 7))};
    if (!ret->weights) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for an attempt");
    SQL_COPY(ret->nonce, &rows, 1);
    SQL_COPY(ret->resume, &rows, 3);
    SQL_COPY(ret->choice.text, &rows, 4);
    return CAIRN_OK;
}

/* Each statement uses its key or an index. */

static enum cairn_code drop_older_members(struct cairn_srv_tx *tx, int64_t run_id, uint64_t newest,
                                          struct cairn_error *err) {
    if (newest < 2) return CAIRN_OK;
    return cairn_srv_sql_run(tx, NULL, err, SQL(members_drop_before), SQL_I(run_id),
                             SQL_I(newest - 1));
}

static enum cairn_code find_removed(struct cairn_srv_tx *tx, uint64_t before,
                                    int64_t ret[CAIRN_SRV_OVER_ROUND], size_t *ret_count,
                                    struct cairn_error *err) {
    CAIRN_AUTO(srv_rows) rows = {0};
    *ret_count = 0;
    CAIRN_TRY(cairn_srv_sql_open(tx, &rows, err, SQL(runs_removed_before), SQL_I(before),
                                 SQL_I(CAIRN_SRV_OVER_ROUND)));
    for (bool more = true; *ret_count < CAIRN_SRV_OVER_ROUND;) {
        CAIRN_TRY(cairn_srv_rows_next(&rows, &more, err));
        if (!more) return CAIRN_OK;
        ret[(*ret_count)++] = cairn_srv_rows_i64(&rows, 0);
    }
    return CAIRN_OK;
}

enum cairn_code cairn_srv_over_forget(struct cairn_srv_tx *tx, uint64_t before,
                                      struct cairn_error *err) {
    static const enum cairn_srv_statement_number drops[] = {
        CAIRN_SRV_STATEMENT_run_drop_tombstones, CAIRN_SRV_STATEMENT_run_drop_uploaders,
        CAIRN_SRV_STATEMENT_run_drop_ranks, CAIRN_SRV_STATEMENT_run_drop_attempts,
        CAIRN_SRV_STATEMENT_run_set_forgotten};
    int64_t runs[CAIRN_SRV_OVER_ROUND];
    size_t count = 0;
    CAIRN_TRY(find_removed(tx, before, runs, &count, err));
    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k < CAIRN_COUNT(drops); k++)
            CAIRN_TRY(
                cairn_srv_sql_run(tx, NULL, err, &cairn_srv_statements[drops[k]], SQL_I(runs[i])));
    return CAIRN_OK;
}

static enum cairn_code ids_text(const struct cairn_version_id *ids, size_t count, char **ret,
                                struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *list = json_array();
    for (size_t i = 0; i < count; i++)
        if (json_array_append_new(list, json_string(ids[i].text)))
            return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for an attempt");
    *ret = list ? json_dumps(list, JSON_COMPACT) : NULL;
    return *ret ? CAIRN_OK : cairn_fail(err, CAIRN_NO_MEMORY, "no memory for an attempt");
}

static enum cairn_code read_ids(const char *text, struct cairn_attempt_record *ret,
                                struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *ids = json_loads(text, 0, NULL);
    size_t count = json_array_size(ids);
    ret->superseded = calloc(count + 1, sizeof(*ret->superseded));
    if (!ret->superseded || !ids) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a record");
    for (; ret->superseded_count < count; ret->superseded_count++)
        (void)cairn_text_copy(ret->superseded[ret->superseded_count].text,
                              sizeof(ret->superseded->text),
                              json_string_value(json_array_get(ids, ret->superseded_count)));
    return CAIRN_OK;
}

enum cairn_code cairn_srv_attempt_insert(struct cairn_srv_tx *tx, int64_t run_id,
                                         const struct cairn_srv_attempt_new *opened,
                                         struct cairn_error *err) {
    const struct cairn_srv_attempt *attempt = opened->attempt;
    CAIRN_AUTO_HEAP char *superseded = NULL;
    CAIRN_TRY(ids_text(opened->superseded->ids, opened->superseded->count, &superseded, err));
    CAIRN_TRY(cairn_srv_sql_run(
        tx, NULL, err, SQL(attempt_insert), SQL_I(run_id), SQL_I(attempt->number),
        SQL_T(attempt->nonce), SQL_T(opened->job), SQL_I(attempt->world_size),
        SQL_T(attempt->resume), SQL_T(attempt->has_choice ? attempt->choice.text : NULL),
        SQL_T(superseded), SQL_I(opened->wall_ms), SQL_T(opened->incarnation),
        SQL_T(attempt->weights ? attempt->weights : "")));
    CAIRN_TRY(drop_older_members(tx, run_id, attempt->number, err));
    return cairn_srv_event_of_run(tx, CAIRN_SRV_EVENT_ATTEMPT_OPENED, run_id, attempt->number,
                                  opened->job, err);
}

enum cairn_code cairn_srv_attempt_unrecorded(struct cairn_srv_tx *tx,
                                             const struct cairn_run_name *name,
                                             enum cairn_srv_recorded state, bool *ret_found,
                                             int64_t *ret_run_id, struct cairn_attempt_record *ret,
                                             struct cairn_error *err) {
    CAIRN_AUTO(srv_rows) rows = {0};
    CAIRN_TRY(cairn_srv_sql_first(tx, &rows, ret_found, err, SQL(attempt_unrecorded),
                                  SQL_T(name->project), SQL_T(name->run), SQL_I(state)));
    if (!*ret_found) return CAIRN_OK;
    *ret_run_id = cairn_srv_rows_i64(&rows, 0);
    ret->name = *name;
    ret->attempt = cairn_srv_rows_u64(&rows, 1);
    SQL_COPY(ret->nonce, &rows, 2);
    SQL_COPY(ret->job, &rows, 3);
    ret->world_size = (uint32_t)cairn_srv_rows_i64(&rows, 4);
    ret->joins = !strcmp(cairn_srv_rows_text(&rows, 8), CAIRN_SRV_RESUME_KEEP);
    ret->has_resume = !cairn_srv_rows_null(&rows, 5);
    SQL_COPY(ret->resume_version.text, &rows, 5);
    if (!(ret->weights = strdup(cairn_srv_rows_text(&rows, 7))))
        return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a record");
    return read_ids(cairn_srv_rows_text(&rows, 6), ret, err);
}

enum cairn_code cairn_srv_attempt_copy_missing(struct cairn_srv_tx *tx, bool *ret_found,
                                               struct cairn_run_name *ret,
                                               struct cairn_error *err) {
    CAIRN_AUTO(srv_rows) rows = {0};
    CAIRN_TRY(cairn_srv_sql_first(tx, &rows, ret_found, err, SQL(attempt_copy_owed)));
    if (!*ret_found) return CAIRN_OK;
    cairn_srv_rows_name(&rows, 0, ret);
    return CAIRN_OK;
}

enum cairn_code cairn_srv_attempt_newest_recorded(struct cairn_srv_tx *tx, bool *ret_found,
                                                  struct cairn_attempt_record *ret,
                                                  struct cairn_error *err) {
    CAIRN_AUTO(srv_rows) rows = {0};
    CAIRN_TRY(cairn_srv_sql_first(tx, &rows, ret_found, err, SQL(attempt_newest_recorded)));
    if (!*ret_found) return CAIRN_OK;
    struct cairn_run_name *name = &ret->name;
    cairn_srv_rows_name(&rows, 0, name);
    ret->attempt = cairn_srv_rows_u64(&rows, 2);
    SQL_COPY(ret->nonce, &rows, 3);
    return CAIRN_OK;
}

enum cairn_code cairn_srv_attempt_take(struct cairn_srv_tx *tx, int64_t run_id,
                                       const struct cairn_attempt_record *record, int64_t wall_ms,
                                       struct cairn_error *err) {
    bool known = false;
    CAIRN_TRY(cairn_srv_sql_found(tx, &known, err, SQL(attempt_there), SQL_I(run_id),
                                  SQL_I(record->attempt), SQL_T(record->nonce)));
    if (known) return CAIRN_OK;
    CAIRN_AUTO_HEAP char *superseded = NULL;
    CAIRN_TRY(ids_text(record->superseded, record->superseded_count, &superseded, err));
    CAIRN_TRY(cairn_srv_sql_run(tx, NULL, err, SQL(attempt_drop), SQL_I(run_id),
                                SQL_I(record->attempt), SQL_T(record->job)));
    CAIRN_TRY(
        cairn_srv_sql_run(tx, NULL, err, SQL(members_drop), SQL_I(run_id), SQL_I(record->attempt)));
    return cairn_srv_sql_run(
        tx, NULL, err, SQL(attempt_take), SQL_I(run_id), SQL_I(record->attempt),
        SQL_T(record->nonce), SQL_T(record->job), SQL_I(record->world_size),
        SQL_T(record->has_resume ? record->resume_version.text : NULL), SQL_T(superseded),
        SQL_I(wall_ms), SQL_T(record->weights ? record->weights : ""),
        SQL_T(record->joins ? CAIRN_SRV_RESUME_KEEP : ""));
}

enum cairn_code cairn_srv_members_check(const json_t *ranks, const json_t *ended,
                                        uint64_t world_size, struct cairn_error *err) {
    size_t count = json_array_size(ranks);
    if (!count || count > CAIRN_SRV_RANKS_MAX || json_array_size(ended) > CAIRN_SRV_RANKS_MAX)
        return cairn_fail(err, CAIRN_INVALID, "/ranks must name 1 to %d ranks, /ended at most that",
                          CAIRN_SRV_RANKS_MAX);
    for (size_t i = 0; i < count; i++) {
        struct cairn_msg_attempt_rank msg = {0};
        char pointer[32];
        snprintf(pointer, sizeof(pointer), "/ranks/%zu", i);
        CAIRN_TRY(cairn_msg_attempt_rank_read(json_array_get(ranks, i), pointer, &msg, err));
        if (msg.rank >= world_size)
            return cairn_fail(err, CAIRN_INVALID, "%s: rank %u of a world of %" PRIu64, pointer,
                              msg.rank, world_size);
        if (!msg.proc[0]) return cairn_fail(err, CAIRN_INVALID, "%s/proc is empty", pointer);
    }
    for (size_t i = 0; i < json_array_size(ended); i++) {
        const json_t *rank = json_array_get(ended, i);
        /* Ranks of the newest attempt, whose world may have been larger. */
        if (!json_is_integer(rank) || json_integer_value(rank) < 0 ||
            json_integer_value(rank) >= UINT32_MAX)
            return cairn_fail(err, CAIRN_INVALID, "/ended/%zu is not a rank", i);
    }
    return CAIRN_OK;
}

static enum cairn_code end_members(struct cairn_srv_tx *tx, const struct cairn_srv_joining *joining,
                                   struct cairn_error *err) {
    for (size_t i = 0; i < json_array_size(joining->ended); i++)
        CAIRN_TRY(cairn_srv_sql_run(
            tx, NULL, err, SQL(member_end), SQL_I(joining->run_id), SQL_I(joining->attempt),
            SQL_I(json_integer_value(json_array_get(joining->ended, i))), SQL_T(joining->node)));
    return CAIRN_OK;
}

/* The attempt's incarnation is that of its first rank. */
static enum cairn_code compare_incarnation(struct cairn_srv_tx *tx,
                                           const struct cairn_srv_joining *joining, bool *ret_same,
                                           struct cairn_error *err) {
    CAIRN_AUTO(srv_rows) rows = {0};
    bool more = false;
    CAIRN_TRY(cairn_srv_sql_first(tx, &rows, &more, err, SQL(attempt_incarnation),
                                  SQL_I(joining->run_id), SQL_I(joining->attempt)));
    const char *known = more ? cairn_srv_rows_text(&rows, 0) : "";
    bool both = known[0] && joining->incarnation[0];
    *ret_same = both && !strcmp(known, joining->incarnation);
    if (!both || *ret_same || !CAIRN_RULE(Q54)) return CAIRN_OK;
    return cairn_fail(err, CAIRN_JOB_REUSED,
                      "job \"%s\" was opened by incarnation \"%s\", this is \"%s\": every "
                      "incarnation of a job needs a job string of its own",
                      joining->job, known, joining->incarnation);
}

/* Q54: refuses an unknown process once a known one has ended. *none_ended caches the answer. */
static enum cairn_code refuse_strangers(struct cairn_srv_tx *tx,
                                        const struct cairn_srv_joining *joining, uint32_t rank,
                                        bool *none_ended, struct cairn_error *err) {
    if (*none_ended) return CAIRN_OK;
    CAIRN_AUTO(srv_rows) rows = {0};
    bool more = false;
    CAIRN_TRY(cairn_srv_sql_first(tx, &rows, &more, err, SQL(member_first_ended),
                                  SQL_I(joining->run_id), SQL_I(joining->attempt)));
    *none_ended = !more || !CAIRN_RULE(Q54);
    if (*none_ended) return CAIRN_OK;
    return cairn_fail(err, CAIRN_JOB_REUSED,
                      "rank %u is new to job \"%s\", whose rank %u (on node %s) has ended: it may "
                      "be another incarnation of the job, and that needs a job string of its own; "
                      "where ranks of one start open that late, set CAIRN_INCARNATION on all of "
                      "them to one word that is new at each start",
                      rank, joining->job, (unsigned)cairn_srv_rows_i64(&rows, 0),
                      cairn_srv_rows_text(&rows, 1));
}

/* Ranks that are checked together before any is inserted. */
#define TOGETHER_MAX 128

static uint32_t rank_at(const struct cairn_srv_joining *joining, size_t i) {
    const json_t *item = json_array_get(joining->ranks, i);
    return (uint32_t)json_integer_value(json_object_get(item, "rank"));
}

static const char *proc_at(const struct cairn_srv_joining *joining, size_t i) {
    return json_string_value(json_object_get(json_array_get(joining->ranks, i), "proc"));
}

/* Number of ranks to check together, up to a repeated one. */
static size_t together(const struct cairn_srv_joining *joining, size_t from, size_t count) {
    for (size_t i = from + 1; i < count; i++) {
        if (i - from == TOGETHER_MAX) return i - from;
        for (size_t k = from; k < i; k++)
            if (rank_at(joining, k) == rank_at(joining, i)) return i - from;
    }
    return count - from;
}

static enum cairn_code look_at_rank(struct cairn_srv_tx *tx,
                                    const struct cairn_srv_joining *joining, size_t i,
                                    bool *none_ended, bool *ret_known, struct cairn_error *err) {
    uint32_t rank = rank_at(joining, i);
    CAIRN_AUTO(srv_rows) rows = {0};
    CAIRN_TRY(cairn_srv_sql_first(tx, &rows, ret_known, err, SQL(member_get),
                                  SQL_I(joining->run_id), SQL_I(joining->attempt), SQL_I(rank)));
    if (!*ret_known) return refuse_strangers(tx, joining, rank, none_ended, err);
    if (!strcmp(cairn_srv_rows_text(&rows, 0), proc_at(joining, i))) return CAIRN_OK;
    return cairn_fail(err, CAIRN_JOB_REUSED,
                      "job \"%s\" already has another process as rank %u (on node %s): "
                      "every incarnation of a job needs a job string of its own",
                      joining->job, rank, cairn_srv_rows_text(&rows, 1));
}

static enum cairn_code join_ranks(struct cairn_srv_tx *tx, const struct cairn_srv_joining *joining,
                                  bool *none_ended, size_t from, size_t count,
                                  struct cairn_error *err) {
    bool known[TOGETHER_MAX];
    CAIRN_ASSERT(count <= TOGETHER_MAX);
    for (size_t i = 0; i < count; i++)
        CAIRN_TRY(cairn_srv_sql_expect(tx, err, SQL(member_get), SQL_I(joining->run_id),
                                       SQL_I(joining->attempt), SQL_I(rank_at(joining, from + i))));
    for (size_t i = 0; i < count; i++)
        CAIRN_TRY(look_at_rank(tx, joining, from + i, none_ended, &known[i], err));
    for (size_t i = 0; i < count; i++)
        if (!known[i])
            CAIRN_TRY(cairn_srv_sql_run(tx, NULL, err, SQL(member_insert), SQL_I(joining->run_id),
                                        SQL_I(joining->attempt), SQL_I(rank_at(joining, from + i)),
                                        SQL_T(proc_at(joining, from + i)), SQL_T(joining->node)));
    return CAIRN_OK;
}

enum cairn_code cairn_srv_members_join(struct cairn_srv_tx *tx,
                                       const struct cairn_srv_joining *joining,
                                       struct cairn_error *err) {
    bool same = false;
    CAIRN_TRY(end_members(tx, joining, err));
    CAIRN_TRY(compare_incarnation(tx, joining, &same, err));
    bool none_ended = same; /* the same incarnation is accepted whatever has ended */
    size_t all = json_array_size(joining->ranks);
    for (size_t from = 0, count = 0; from < all; from += count) {
        count = together(joining, from, all);
        CAIRN_TRY(join_ranks(tx, joining, &none_ended, from, count, err));
    }
    return CAIRN_OK;
}

#define REASON_FORMAT "rank %u has ended without sealing this save (process %s on node %s)"

enum cairn_code cairn_srv_members_gone(struct cairn_srv_tx *tx,
                                       const struct cairn_srv_version *version,
                                       char ret_reason[CAIRN_SRV_REASON_BYTES],
                                       struct cairn_error *err) {
    ret_reason[0] = 0;
    if (!CAIRN_RULE(Q56)) return CAIRN_OK;
    CAIRN_AUTO(srv_rows) rows = {0};
    bool more = false;
    CAIRN_TRY(cairn_srv_sql_first(tx, &rows, &more, err, SQL(member_gone), SQL_I(version->run_id),
                                  SQL_I(version->attempt), SQL_T(version->id.text),
                                  SQL_I(CAIRN_SRV_END_SETTLED), SQL_I(version->world_size)));
    if (more)
        snprintf(ret_reason, CAIRN_SRV_REASON_BYTES, REASON_FORMAT,
                 (unsigned)cairn_srv_rows_i64(&rows, 0), cairn_srv_rows_text(&rows, 1),
                 cairn_srv_rows_text(&rows, 2));
    return CAIRN_OK;
}

enum cairn_code cairn_srv_members_gone_expect(struct cairn_srv_tx *tx,
                                              const struct cairn_srv_version *version,
                                              struct cairn_error *err) {
    if (!CAIRN_RULE(Q56)) return CAIRN_OK;
    return cairn_srv_sql_expect(tx, err, SQL(member_gone), SQL_I(version->run_id),
                                SQL_I(version->attempt), SQL_T(version->id.text),
                                SQL_I(CAIRN_SRV_END_SETTLED), SQL_I(version->world_size));
}

enum cairn_code cairn_srv_member_end_get(struct cairn_srv_tx *tx,
                                         const struct cairn_srv_process *process, bool *ret_known,
                                         enum cairn_srv_end *ret, struct cairn_error *err) {
    int64_t end = CAIRN_SRV_END_NONE;
    CAIRN_TRY(cairn_srv_sql_number(
        tx, ret_known, &end, err, SQL(member_ended), SQL_I(process->run_id),
        SQL_I(process->attempt), SQL_I(process->rank), SQL_T(process->proc), SQL_T(process->node)));
    *ret = (enum cairn_srv_end)end;
    return CAIRN_OK;
}

enum cairn_code cairn_srv_member_end_put(struct cairn_srv_tx *tx,
                                         const struct cairn_srv_process *process,
                                         enum cairn_srv_end end, struct cairn_error *err) {
    CAIRN_TRY(cairn_srv_sql_run(tx, NULL, err, SQL(member_put_ended), SQL_I(process->run_id),
                                SQL_I(process->attempt), SQL_I(process->rank), SQL_T(process->proc),
                                SQL_T(process->node), SQL_I(end)));
    return cairn_srv_over_ended(tx, process->run_id, process->attempt, err);
}

static enum cairn_code each_node(struct cairn_srv_rows *rows,
                                 void (*each)(void *argument,
                                              const struct cairn_srv_node_mark *node),
                                 void *argument, struct cairn_error *err) {
    for (bool more = true;;) {
        CAIRN_TRY(cairn_srv_rows_next(rows, &more, err));
        if (!more) return CAIRN_OK;
        struct cairn_srv_node_mark node = cairn_srv_node_of(rows);
        each(argument, &node);
    }
}

enum cairn_code cairn_srv_attempt_nodes(struct cairn_srv_tx *tx, int64_t run_id, uint64_t attempt,
                                        void (*each)(void *argument,
                                                     const struct cairn_srv_node_mark *node),
                                        void *argument, struct cairn_error *err) {
    CAIRN_AUTO(srv_rows) rows = {0};
    CAIRN_TRY(
        cairn_srv_sql_open(tx, &rows, err, SQL(attempt_nodes), SQL_I(run_id), SQL_I(attempt)));
    return each_node(&rows, each, argument, err);
}

enum cairn_code cairn_srv_attempt_uploader_is(struct cairn_srv_tx *tx,
                                              const struct cairn_srv_attempt_uploader *said,
                                              bool *ret, struct cairn_error *err) {
    int64_t one = 0;
    return cairn_srv_sql_number(tx, ret, &one, err, SQL(attempt_uploader_is), SQL_I(said->run_id),
                                SQL_I(said->attempt), SQL_T(said->node), SQL_T(said->uploader));
}

enum cairn_code cairn_srv_attempt_uploader_put(struct cairn_srv_tx *tx,
                                               const struct cairn_srv_attempt_uploader *said,
                                               struct cairn_error *err) {
    CAIRN_TRY(cairn_srv_sql_run(tx, NULL, err, SQL(attempt_uploader_put), SQL_I(said->run_id),
                                SQL_I(said->attempt), SQL_T(said->node), SQL_T(said->uploader)));
    return cairn_srv_sql_run(tx, NULL, err, SQL(attempt_uploaders_drop_older), SQL_I(said->run_id),
                             SQL_I(said->attempt));
}

enum cairn_code cairn_srv_attempt_peers(struct cairn_srv_tx *tx, const struct cairn_srv_run *run,
                                        uint64_t limit, bool *ret_complete,
                                        enum cairn_code (*each)(void *argument, const char *node,
                                                                const char *uploader,
                                                                struct cairn_error *err),
                                        void *argument, struct cairn_error *err) {
    int64_t missing = 0;
    bool found = false;
    CAIRN_TRY(cairn_srv_sql_number(tx, &found, &missing, err, SQL(attempt_ranks_missing),
                                   SQL_I(run->id), SQL_I(run->attempt)));
    *ret_complete = found && missing <= 0;
    CAIRN_AUTO(srv_rows) rows = {0};
    CAIRN_TRY(cairn_srv_sql_open(tx, &rows, err, SQL(attempt_peers), SQL_I(run->id),
                                 SQL_I(run->attempt), SQL_I(limit)));
    for (bool more = true;;) {
        CAIRN_TRY(cairn_srv_rows_next(&rows, &more, err));
        if (!more) return CAIRN_OK;
        const char *node = cairn_srv_rows_text(&rows, 0);
        CAIRN_TRY(each(argument, node, cairn_srv_rows_text(&rows, 1), err));
    }
}

enum cairn_code
cairn_srv_version_needs_nodes(struct cairn_srv_tx *tx, const struct cairn_srv_version *version,
                              void (*each)(void *argument, const struct cairn_srv_node_mark *node),
                              void *argument, struct cairn_error *err) {
    CAIRN_AUTO(srv_rows) rows = {0};
    CAIRN_TRY(cairn_srv_sql_open(tx, &rows, err, SQL(attempt_nodes_unfinished),
                                 SQL_I(version->run_id), SQL_I(version->attempt),
                                 SQL_T(version->id.text)));
    return each_node(&rows, each, argument, err);
}

enum cairn_code cairn_srv_member_node(struct cairn_srv_tx *tx, int64_t run_id, uint64_t attempt,
                                      uint32_t rank, char ret[CAIRN_NAME_BYTES_MAX + 1],
                                      struct cairn_error *err) {
    CAIRN_AUTO(srv_rows) rows = {0};
    bool found = false;
    CAIRN_TRY(cairn_srv_sql_first(tx, &rows, &found, err, SQL(member_get), SQL_I(run_id),
                                  SQL_I(attempt), SQL_I(rank)));
    (void)cairn_text_copy(ret, CAIRN_NAME_BYTES_MAX + 1,
                          found ? cairn_srv_rows_text(&rows, 1) : "");
    return CAIRN_OK;
}

enum cairn_code cairn_srv_member_probed(struct cairn_srv_tx *tx, int64_t run_id, uint64_t attempt,
                                        const struct cairn_srv_probe *probe, bool *ret_known,
                                        struct cairn_error *err) {
    uint64_t changed = 0;
    CAIRN_TRY(cairn_srv_sql_run(tx, &changed, err, SQL(member_probe), SQL_I(run_id), SQL_I(attempt),
                                SQL_I(probe->rank), SQL_T(probe->node), SQL_T(probe->result),
                                SQL_I(probe->at_ms)));
    *ret_known = changed > 0;
    return CAIRN_OK;
}

enum cairn_code cairn_srv_members_probed(struct cairn_srv_tx *tx,
                                         const struct cairn_srv_probe_page *page,
                                         cairn_srv_probe_each *each, void *owner,
                                         struct cairn_error *err) {
    CAIRN_AUTO(srv_rows) rows = {0};
    bool more = false;
    CAIRN_TRY(cairn_srv_sql_open(tx, &rows, err, SQL(members_probed), SQL_I(page->run_id),
                                 SQL_I(page->attempt), SQL_I(page->after), SQL_I(page->limit)));
    for (;;) {
        CAIRN_TRY(cairn_srv_rows_next(&rows, &more, err));
        if (!more) return CAIRN_OK;
        const struct cairn_srv_probe probe = {.rank = (uint64_t)cairn_srv_rows_i64(&rows, 0),
                                              .node = cairn_srv_rows_text(&rows, 1),
                                              .result = cairn_srv_rows_text(&rows, 2),
                                              .at_ms = cairn_srv_rows_i64(&rows, 3)};
        CAIRN_TRY(each(owner, &probe, err));
    }
}

/* Searched from the newest node on: a node's ranks are mostly adjacent. */

struct node {
    char *name; /* owned */
    uint64_t rate, ranks;
};
struct cairn_rates {
    struct node *nodes;
    size_t node_count, node_capacity;
    uint32_t *node_of; /* by rank */
    uint64_t rank_count;
};
static void cairn_rates_release(struct cairn_rates *rates) {
    for (size_t i = 0; i < rates->node_count; i++) free(rates->nodes[i].name);
    free(rates->nodes);
    free(rates->node_of);
}

static uint64_t rate_of(const char *uploader) {
    CAIRN_AUTO_JSON json_t *json = json_loads(uploader, JSON_DECODE_ANY, NULL);
    json_int_t rate = json_integer_value(json_object_get(json, "upload_bytes_per_s"));
    return rate > 0 ? (uint64_t)rate : 0;
}

static enum cairn_code find_node(struct cairn_rates *rates, const char *name, const char *uploader,
                                 uint32_t *ret, struct cairn_error *err) {
    for (size_t i = rates->node_count; i-- > 0;) {
        *ret = (uint32_t)i;
        if (!strcmp(rates->nodes[i].name, name)) return CAIRN_OK;
    }
    CAIRN_TRY(CAIRN_ARRAY_ROOM(rates->nodes, rates->node_count, rates->node_capacity,
                               CAIRN_SRV_RANKS_MAX, "nodes of an attempt", err));
    char *copy = strdup(name);
    if (!copy) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the nodes of an attempt");
    *ret = (uint32_t)rates->node_count;
    rates->nodes[rates->node_count++] = (struct node){copy, rate_of(uploader), 0};
    return CAIRN_OK;
}

/* *ret_all: each rank from 0 on has a node with a known rate. */
static enum cairn_code read_rates(struct cairn_srv_tx *tx, int64_t run_id, uint64_t attempt,
                                  uint64_t world_size, struct cairn_rates *rates, bool *ret_all,
                                  struct cairn_error *err) {
    CAIRN_AUTO(srv_rows) rows = {0};
    *ret_all = false;
    CAIRN_TRY(
        cairn_srv_sql_open(tx, &rows, err, SQL(attempt_rates), SQL_I(run_id), SQL_I(attempt)));
    for (;;) {
        bool more = false;
        uint32_t node = 0;
        CAIRN_TRY(cairn_srv_rows_next(&rows, &more, err));
        if (!more) break;
        if (cairn_srv_rows_u64(&rows, 0) != rates->rank_count) return CAIRN_OK;
        if (rates->rank_count == world_size) return CAIRN_OK;
        CAIRN_TRY(find_node(rates, cairn_srv_rows_text(&rows, 1), cairn_srv_rows_text(&rows, 2),
                            &node, err));
        if (!rates->nodes[node].rate) return CAIRN_OK;
        rates->nodes[node].ranks++;
        rates->node_of[rates->rank_count++] = node;
    }
    *ret_all = rates->rank_count == world_size;
    return CAIRN_OK;
}

static char weight_of(uint64_t rate, uint64_t best) {
    static const struct {
        uint64_t percent;
        char weight;
    } levels[] = {{75, '8'}, {55, '5'}, {40, '4'}, {27, '3'}, {15, '2'}};
    for (size_t i = 0; i < CAIRN_COUNT(levels); i++)
        if (rate >= best / 100 * levels[i].percent) return levels[i].weight;
    return '1';
}

enum cairn_code cairn_srv_weights(struct cairn_srv_tx *tx, int64_t run_id, uint64_t attempt,
                                  uint64_t world_size, char **ret, struct cairn_error *err) {
    CAIRN_AUTO(rates) rates = {0};
    uint64_t best = 0;
    bool all = false, differ = false;
    CAIRN_ASSERT(world_size);
    *ret = NULL;
    CAIRN_AUTO_HEAP char *made = calloc(1, CAIRN_SRV_RANKS_MAX + 1);
    rates.node_of = calloc(CAIRN_SRV_RANKS_MAX, sizeof(*rates.node_of));
    if (!made || !rates.node_of)
        return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the weights of an attempt");
    if (attempt && world_size <= CAIRN_SRV_RANKS_MAX)
        CAIRN_TRY(read_rates(tx, run_id, attempt, world_size, &rates, &all, err));
    for (size_t i = 0; all && i < rates.node_count; i++) {
        rates.nodes[i].rate /= rates.nodes[i].ranks;
        best = cairn_max_u64(best, rates.nodes[i].rate);
    }
    for (uint64_t rank = 0; all && rank < world_size; rank++) {
        made[rank] = weight_of(rates.nodes[rates.node_of[rank]].rate, best);
        differ |= made[rank] != *made;
    }
    if (!differ) *made = '\0';
    *ret = CAIRN_TAKE(made);
    return CAIRN_OK;
}
