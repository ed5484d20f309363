/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of attempts and attempt_ranks; see attempts.h. */
#include "server/ledger/attempts.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "api/wire/messages.h"
#include "common/hooks.h"
#include "server/ledger/events.h"

enum cairn_code srv_attempt_of_job(struct srv_tx *tx, int64_t run_id, const char *job,
                                   bool *ret_found, struct srv_attempt *ret,
                                   struct cairn_error *err) {
    SQL_FIRST(rows, ret_found, tx, err, SQL(attempt_of_job), SQL_I(run_id), SQL_T(job));
    if (!*ret_found) return CAIRN_OK;
    return srv_rows_take(&rows, 0, ROW(attempt), ret)
               ? CAIRN_OK
               : cairn_fail(err, CAIRN_NO_MEMORY, "no memory for an attempt");
}

/* Each statement uses its key or an index. */

enum cairn_code srv_over_forget(struct srv_tx *tx, uint64_t before, struct cairn_error *err) {
    static const enum srv_statement_number drops[] = {
        SRV_STATEMENT_run_drop_tombstones, SRV_STATEMENT_run_drop_uploaders,
        SRV_STATEMENT_run_drop_ranks, SRV_STATEMENT_run_drop_attempts,
        SRV_STATEMENT_run_set_forgotten};
    int64_t runs[SRV_OVER_ROUND];
    size_t count = 0;
    {
        SQL_OPEN(rows, tx, err, SQL(runs_removed_before), SQL_I(before), SQL_I(SRV_OVER_ROUND));
        SQL_EACH(&rows, err) {
            if (count == SRV_OVER_ROUND) break;
            runs[count++] = srv_rows_i64(&rows, 0);
        }
    }
    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k < CAIRN_COUNT(drops); k++)
            CAIRN_TRY(srv_sql_run(tx, NULL, err, &srv_statements[drops[k]], SQL_I(runs[i])));
    return CAIRN_OK;
}

static enum cairn_code ids_text(const struct cairn_version_id *ids, size_t count, char **ret,
                                struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *list = json_array();
    for (size_t i = 0; i < count; i++)
        CAIRN_TRY(cairn_json_append(list, json_string(ids[i].text), "an attempt", err));
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

enum cairn_code srv_attempt_insert(struct srv_tx *tx, int64_t run_id,
                                   const struct srv_attempt_new *opened, struct cairn_error *err) {
    const struct srv_attempt *attempt = opened->attempt;
    CAIRN_AUTO_HEAP char *superseded = NULL;
    CAIRN_TRY(ids_text(opened->superseded->ids, opened->superseded->count, &superseded, err));
    CAIRN_TRY(srv_sql_run(tx, NULL, err, SQL(attempt_insert), SQL_I(run_id), SQL_I(attempt->number),
                          SQL_T(attempt->nonce), SQL_T(opened->job), SQL_I(attempt->world_size),
                          SQL_T(attempt->resume),
                          SQL_T(attempt->has_choice ? attempt->choice.text : NULL),
                          SQL_T(superseded), SQL_I(opened->wall_ms), SQL_T(opened->incarnation),
                          SQL_T(attempt->weights ? attempt->weights : "")));
    if (attempt->number > 1)
        CAIRN_TRY(srv_sql_run(tx, NULL, err, SQL(members_drop_before), SQL_I(run_id),
                              SQL_I(attempt->number - 1)));
    return srv_event_of_run(tx, SRV_EVENT_ATTEMPT_OPENED, run_id, attempt->number, opened->job,
                            err);
}

enum cairn_code srv_attempt_unrecorded(struct srv_tx *tx, const struct cairn_run_name *name,
                                       enum srv_recorded state, bool *ret_found,
                                       int64_t *ret_run_id, struct cairn_attempt_record *ret,
                                       struct cairn_error *err) {
    SQL_FIRST(rows, ret_found, tx, err, SQL(attempt_unrecorded), SQL_T(name->project),
              SQL_T(name->run), SQL_I(state));
    if (!*ret_found) return CAIRN_OK;
    *ret_run_id = srv_rows_i64(&rows, 0);
    ret->name = *name;
    ret->joins = !strcmp(srv_rows_text(&rows, 8), SRV_RESUME_KEEP);
    if (!srv_rows_take(&rows, 1, ROW(attempt_record), ret))
        return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a record");
    return read_ids(srv_rows_text(&rows, 6), ret, err);
}

enum cairn_code srv_attempt_take(struct srv_tx *tx, int64_t run_id,
                                 const struct cairn_attempt_record *record, int64_t wall_ms,
                                 struct cairn_error *err) {
    bool known = false;
    CAIRN_TRY(srv_sql_found(tx, &known, err, SQL(attempt_there), SQL_I(run_id),
                            SQL_I(record->attempt), SQL_T(record->nonce)));
    if (known) return CAIRN_OK;
    CAIRN_AUTO_HEAP char *superseded = NULL;
    CAIRN_TRY(ids_text(record->superseded, record->superseded_count, &superseded, err));
    CAIRN_TRY(srv_sql_run(tx, NULL, err, SQL(attempt_drop), SQL_I(run_id), SQL_I(record->attempt),
                          SQL_T(record->job)));
    CAIRN_TRY(srv_sql_run(tx, NULL, err, SQL(members_drop), SQL_I(run_id), SQL_I(record->attempt)));
    return srv_sql_run(tx, NULL, err, SQL(attempt_take), SQL_I(run_id), SQL_I(record->attempt),
                       SQL_T(record->nonce), SQL_T(record->job), SQL_I(record->world_size),
                       SQL_T(record->has_resume ? record->resume_version.text : NULL),
                       SQL_T(superseded), SQL_I(wall_ms),
                       SQL_T(record->weights ? record->weights : ""),
                       SQL_T(record->joins ? SRV_RESUME_KEEP : ""));
}

enum cairn_code srv_members_check(const json_t *ranks, const json_t *ended, uint64_t world_size,
                                  struct cairn_error *err) {
    size_t count = json_array_size(ranks);
    if (!count || count > SRV_RANKS_MAX)
        return cairn_fail(err, CAIRN_INVALID, "/ranks: wanted 1 to %d of them", SRV_RANKS_MAX);
    if (json_array_size(ended) > SRV_RANKS_MAX)
        return cairn_fail(err, CAIRN_INVALID, "/ended: at most %d of them", SRV_RANKS_MAX);
    for (size_t i = 0; i < count; i++) {
        struct cairn_msg_attempt_rank msg = {0};
        char pointer[32];
        snprintf(pointer, sizeof(pointer), "/ranks/%zu", i);
        CAIRN_TRY(cairn_msg_attempt_rank_read(json_array_get(ranks, i), pointer, &msg, err));
        if (msg.rank >= world_size)
            return cairn_fail(err, CAIRN_INVALID, "%s: rank %u of a world of %" PRIu64, pointer,
                              msg.rank, world_size);
        if (!msg.proc[0]) return cairn_fail(err, CAIRN_INVALID, "%s/proc: it is empty", pointer);
    }
    for (size_t i = 0; i < json_array_size(ended); i++) {
        const json_t *rank = json_array_get(ended, i);
        /* Ranks of the newest attempt, whose world may have been larger. */
        if (!json_is_integer(rank) || json_integer_value(rank) < 0 ||
            json_integer_value(rank) >= UINT32_MAX)
            return cairn_fail(err, CAIRN_INVALID, "/ended/%zu: wanted a rank", i);
    }
    return CAIRN_OK;
}

static enum cairn_code end_members(struct srv_tx *tx, const struct srv_joining *joining,
                                   struct cairn_error *err) {
    for (size_t i = 0; i < json_array_size(joining->ended); i++)
        CAIRN_TRY(srv_sql_run(
            tx, NULL, err, SQL(member_end), SQL_I(joining->run_id), SQL_I(joining->attempt),
            SQL_I(json_integer_value(json_array_get(joining->ended, i))), SQL_T(joining->node)));
    return CAIRN_OK;
}

/* The attempt's incarnation is that of its first rank. */
static enum cairn_code compare_incarnation(struct srv_tx *tx, const struct srv_joining *joining,
                                           bool *ret_same, struct cairn_error *err) {
    bool more = false;
    SQL_FIRST(rows, &more, tx, err, SQL(attempt_incarnation), SQL_I(joining->run_id),
              SQL_I(joining->attempt));
    const char *known = more ? srv_rows_text(&rows, 0) : "";
    bool both = known[0] && joining->incarnation[0];
    *ret_same = both && !strcmp(known, joining->incarnation);
    if (!both || *ret_same || !CAIRN_RULE(Q54)) return CAIRN_OK;
    return cairn_fail(err, CAIRN_JOB_REUSED,
                      "job \"%s\" was opened by incarnation \"%s\", this is \"%s\": every "
                      "incarnation of a job needs a job string of its own",
                      joining->job, known, joining->incarnation);
}

/* Q54: refuses an unknown process once a known one has ended. *none_ended caches the answer. */
static enum cairn_code refuse_strangers(struct srv_tx *tx, const struct srv_joining *joining,
                                        uint32_t rank, bool *none_ended, struct cairn_error *err) {
    if (*none_ended) return CAIRN_OK;
    bool more = false;
    SQL_FIRST(rows, &more, tx, err, SQL(member_first_ended), SQL_I(joining->run_id),
              SQL_I(joining->attempt));
    *none_ended = !more || !CAIRN_RULE(Q54);
    if (*none_ended) return CAIRN_OK;
    return cairn_fail(err, CAIRN_JOB_REUSED,
                      "rank %u is new to job \"%s\", whose rank %u (on node %s) has ended: it may "
                      "be another incarnation of the job, and that needs a job string of its own; "
                      "where ranks of one start open that late, set CAIRN_INCARNATION on all of "
                      "them to one word that is new at each start",
                      rank, joining->job, (unsigned)srv_rows_i64(&rows, 0),
                      srv_rows_text(&rows, 1));
}

/* Ranks that are checked together before any is inserted. */
#define TOGETHER_MAX 128

static uint32_t rank_at(const struct srv_joining *joining, size_t i) {
    const json_t *item = json_array_get(joining->ranks, i);
    return (uint32_t)json_integer_value(json_object_get(item, "rank"));
}

static const char *proc_at(const struct srv_joining *joining, size_t i) {
    return json_string_value(json_object_get(json_array_get(joining->ranks, i), "proc"));
}

/* Number of ranks to check together, up to a repeated one. */
static size_t together(const struct srv_joining *joining, size_t from, size_t count) {
    for (size_t i = from + 1; i < count; i++) {
        if (i - from == TOGETHER_MAX) return i - from;
        for (size_t k = from; k < i; k++)
            if (rank_at(joining, k) == rank_at(joining, i)) return i - from;
    }
    return count - from;
}

static enum cairn_code look_at_rank(struct srv_tx *tx, const struct srv_joining *joining, size_t i,
                                    bool *none_ended, bool *ret_known, struct cairn_error *err) {
    uint32_t rank = rank_at(joining, i);
    SQL_FIRST(rows, ret_known, tx, err, SQL(member_get), SQL_I(joining->run_id),
              SQL_I(joining->attempt), SQL_I(rank));
    if (!*ret_known) return refuse_strangers(tx, joining, rank, none_ended, err);
    if (!strcmp(srv_rows_text(&rows, 0), proc_at(joining, i))) return CAIRN_OK;
    return cairn_fail(err, CAIRN_JOB_REUSED,
                      "job \"%s\" already has another process as rank %u (on node %s): "
                      "every incarnation of a job needs a job string of its own",
                      joining->job, rank, srv_rows_text(&rows, 1));
}

static enum cairn_code join_ranks(struct srv_tx *tx, const struct srv_joining *joining,
                                  bool *none_ended, size_t from, size_t count,
                                  struct cairn_error *err) {
    bool known[TOGETHER_MAX];
    CAIRN_ASSERT(count <= TOGETHER_MAX);
    for (size_t i = 0; i < count; i++)
        CAIRN_TRY(srv_sql_expect(tx, err, SQL(member_get), SQL_I(joining->run_id),
                                 SQL_I(joining->attempt), SQL_I(rank_at(joining, from + i))));
    for (size_t i = 0; i < count; i++)
        CAIRN_TRY(look_at_rank(tx, joining, from + i, none_ended, &known[i], err));
    for (size_t i = 0; i < count; i++)
        if (!known[i])
            CAIRN_TRY(srv_sql_run(tx, NULL, err, SQL(member_insert), SQL_I(joining->run_id),
                                  SQL_I(joining->attempt), SQL_I(rank_at(joining, from + i)),
                                  SQL_T(proc_at(joining, from + i)), SQL_T(joining->node)));
    return CAIRN_OK;
}

enum cairn_code srv_members_join(struct srv_tx *tx, const struct srv_joining *joining,
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

enum cairn_code srv_members_gone(struct srv_tx *tx, const struct srv_version *version,
                                 char ret_reason[SRV_REASON_BYTES], struct cairn_error *err) {
    ret_reason[0] = 0;
    if (!CAIRN_RULE(Q56)) return CAIRN_OK;
    bool more = false;
    SQL_FIRST(rows, &more, tx, err, SQL(member_gone), SQL_I(version->run_id),
              SQL_I(version->attempt), SQL_T(version->id.text), SQL_I(SRV_END_SETTLED),
              SQL_I(version->world_size));
    if (more)
        snprintf(ret_reason, SRV_REASON_BYTES, REASON_FORMAT, (unsigned)srv_rows_i64(&rows, 0),
                 srv_rows_text(&rows, 1), srv_rows_text(&rows, 2));
    return CAIRN_OK;
}

enum cairn_code srv_members_gone_expect(struct srv_tx *tx, const struct srv_version *version,
                                        struct cairn_error *err) {
    if (!CAIRN_RULE(Q56)) return CAIRN_OK;
    return srv_sql_expect(tx, err, SQL(member_gone), SQL_I(version->run_id),
                          SQL_I(version->attempt), SQL_T(version->id.text), SQL_I(SRV_END_SETTLED),
                          SQL_I(version->world_size));
}

enum cairn_code srv_member_end_get(struct srv_tx *tx, const struct srv_process *process,
                                   bool *ret_known, enum srv_end *ret, struct cairn_error *err) {
    int64_t end = SRV_END_NONE;
    CAIRN_TRY(srv_sql_number(tx, ret_known, &end, err, SQL(member_ended), SQL_I(process->run_id),
                             SQL_I(process->attempt), SQL_I(process->rank), SQL_T(process->proc),
                             SQL_T(process->node)));
    *ret = (enum srv_end)end;
    return CAIRN_OK;
}

enum cairn_code srv_attempt_peers(struct srv_tx *tx, const struct srv_run *run, uint64_t limit,
                                  bool *ret_complete, struct srv_rows *ret,
                                  struct cairn_error *err) {
    int64_t missing = 0;
    bool found = false;
    CAIRN_TRY(srv_sql_number(tx, &found, &missing, err, SQL(attempt_ranks_missing), SQL_I(run->id),
                             SQL_I(run->attempt)));
    *ret_complete = found && missing <= 0;
    return srv_sql_open(tx, ret, err, SQL(attempt_peers), SQL_I(run->id), SQL_I(run->attempt),
                        SQL_I(limit));
}

enum cairn_code srv_member_node(struct srv_tx *tx, int64_t run_id, uint64_t attempt, uint32_t rank,
                                char ret[CAIRN_NAME_BYTES_MAX + 1], struct cairn_error *err) {
    bool found = false;
    SQL_FIRST(rows, &found, tx, err, SQL(member_get), SQL_I(run_id), SQL_I(attempt), SQL_I(rank));
    (void)cairn_text_copy(ret, CAIRN_NAME_BYTES_MAX + 1, found ? srv_rows_text(&rows, 1) : "");
    return CAIRN_OK;
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
    CAIRN_TRY(CAIRN_ARRAY_ROOM(rates->nodes, rates->node_count, rates->node_capacity, SRV_RANKS_MAX,
                               "nodes of an attempt", err));
    char *copy = strdup(name);
    if (!copy) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the nodes of an attempt");
    *ret = (uint32_t)rates->node_count;
    rates->nodes[rates->node_count++] = (struct node){copy, rate_of(uploader), 0};
    return CAIRN_OK;
}

/* *ret_all: each rank from 0 on has a node with a known rate. */
static enum cairn_code read_rates(struct srv_tx *tx, int64_t run_id, uint64_t attempt,
                                  uint64_t world_size, struct cairn_rates *rates, bool *ret_all,
                                  struct cairn_error *err) {
    *ret_all = false;
    SQL_OPEN(rows, tx, err, SQL(attempt_rates), SQL_I(run_id), SQL_I(attempt));
    SQL_EACH(&rows, err) {
        uint32_t node = 0;
        if (srv_rows_u64(&rows, 0) != rates->rank_count) return CAIRN_OK;
        if (rates->rank_count == world_size) return CAIRN_OK;
        CAIRN_TRY(find_node(rates, srv_rows_text(&rows, 1), srv_rows_text(&rows, 2), &node, err));
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

enum cairn_code srv_weights(struct srv_tx *tx, int64_t run_id, uint64_t attempt,
                            uint64_t world_size, char **ret, struct cairn_error *err) {
    CAIRN_AUTO(rates) rates = {0};
    uint64_t best = 0;
    bool all = false, differ = false;
    CAIRN_ASSERT(world_size);
    *ret = NULL;
    CAIRN_AUTO_HEAP char *made = calloc(1, SRV_RANKS_MAX + 1);
    rates.node_of = calloc(SRV_RANKS_MAX, sizeof(*rates.node_of));
    if (!made || !rates.node_of)
        return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the weights of an attempt");
    if (attempt && world_size <= SRV_RANKS_MAX)
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
