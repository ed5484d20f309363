/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of attempt_ranks; see members.h. */
#include "server/ledger/members.h"
#include "server/ledger/over.h"

#include <inttypes.h>
#include <stdio.h>

#include "api/wire/messages.h"
#include "common/hooks.h"
#include "common/text.h"

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
        /* Of the newest attempt, whose world may have been larger than that of this one. */
        if (!json_is_integer(rank) || json_integer_value(rank) < 0 ||
            json_integer_value(rank) >= UINT32_MAX)
            return cairn_fail(err, CAIRN_INVALID, "/ended/%zu is not a rank", i);
    }
    return CAIRN_OK;
}

enum cairn_code cairn_srv_members_end(struct cairn_srv_tx *tx,
                                      const struct cairn_srv_joining *joining,
                                      struct cairn_error *err) {
    for (size_t i = 0; i < json_array_size(joining->ended); i++)
        CAIRN_TRY(cairn_srv_sql_run(
            tx, NULL, err, SQL(member_end), SQL_I(joining->run_id), SQL_I(joining->attempt),
            SQL_I(json_integer_value(json_array_get(joining->ended, i))), SQL_T(joining->node)));
    return CAIRN_OK;
}

/* The incarnation of the attempt is its first rank's. */
static enum cairn_code compare_incarnation(struct cairn_srv_tx *tx,
                                           const struct cairn_srv_joining *joining, bool *ret_same,
                                           struct cairn_error *err) {
    CAIRN_AUTO(srv_rows) rows = {0};
    CAIRN_TRY(cairn_srv_sql_open(tx, &rows, err, SQL(attempt_incarnation), SQL_I(joining->run_id),
                                 SQL_I(joining->attempt)));
    bool more = false;
    CAIRN_TRY(cairn_srv_rows_next(&rows, &more, err));
    const char *known = more ? cairn_srv_rows_text(&rows, 0) : "";
    bool both = known[0] && joining->incarnation[0];
    *ret_same = both && !strcmp(known, joining->incarnation);
    if (!both || *ret_same || !CAIRN_RULE(Q54)) return CAIRN_OK;
    return cairn_fail(err, CAIRN_JOB_REUSED,
                      "job \"%s\" was opened by incarnation \"%s\", this is \"%s\": every "
                      "incarnation of a job needs a job string of its own",
                      joining->job, known, joining->incarnation);
}

/* Q54: is there a known process that has ended? *none_ended keeps the answer for a call's ranks. */
static enum cairn_code refuse_strangers(struct cairn_srv_tx *tx,
                                        const struct cairn_srv_joining *joining, uint32_t rank,
                                        bool *none_ended, struct cairn_error *err) {
    if (*none_ended) return CAIRN_OK;
    CAIRN_AUTO(srv_rows) rows = {0};
    CAIRN_TRY(cairn_srv_sql_open(tx, &rows, err, SQL(member_first_ended), SQL_I(joining->run_id),
                                 SQL_I(joining->attempt)));
    bool more = false;
    CAIRN_TRY(cairn_srv_rows_next(&rows, &more, err));
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

/* Ranks that are looked at together, before any of them is put in. */
#define TOGETHER_MAX 128

static uint32_t rank_at(const struct cairn_srv_joining *joining, size_t i) {
    const json_t *item = json_array_get(joining->ranks, i);
    return (uint32_t)json_integer_value(json_object_get(item, "rank"));
}

static const char *proc_at(const struct cairn_srv_joining *joining, size_t i) {
    return json_string_value(json_object_get(json_array_get(joining->ranks, i), "proc"));
}

/* How many from `from` on; a rank that is named again is looked at after the first was put in. */
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
    CAIRN_TRY(cairn_srv_sql_open(tx, &rows, err, SQL(member_get), SQL_I(joining->run_id),
                                 SQL_I(joining->attempt), SQL_I(rank)));
    CAIRN_TRY(cairn_srv_rows_next(&rows, ret_known, err));
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
    CAIRN_TRY(cairn_srv_members_end(tx, joining, err));
    CAIRN_TRY(compare_incarnation(tx, joining, &same, err));
    bool none_ended = same; /* the same incarnation is taken whoever has ended */
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
    CAIRN_TRY(cairn_srv_sql_open(tx, &rows, err, SQL(member_gone), SQL_I(version->run_id),
                                 SQL_I(version->attempt), SQL_T(version->id.text),
                                 SQL_I(CAIRN_SRV_END_SETTLED), SQL_I(version->world_size)));
    bool more = false;
    CAIRN_TRY(cairn_srv_rows_next(&rows, &more, err));
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
                                SQL_I(process->attempt), SQL_I(process->rank),
                                SQL_T(process->proc), SQL_T(process->node), SQL_I(end)));
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
    return cairn_srv_sql_run(tx, NULL, err, SQL(attempt_uploaders_drop_older),
                             SQL_I(said->run_id), SQL_I(said->attempt));
}

enum cairn_code cairn_srv_attempt_peers(
    struct cairn_srv_tx *tx, const struct cairn_srv_run *run, uint64_t limit, bool *ret_complete,
    enum cairn_code (*each)(void *argument, const char *node, const char *uploader,
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
    CAIRN_TRY(cairn_srv_sql_open(tx, &rows, err, SQL(member_get), SQL_I(run_id), SQL_I(attempt),
                                 SQL_I(rank)));
    CAIRN_TRY(cairn_srv_rows_next(&rows, &found, err));
    (void)cairn_text_copy(ret, CAIRN_NAME_BYTES_MAX + 1,
                          found ? cairn_srv_rows_text(&rows, 1) : "");
    return CAIRN_OK;
}

/* ---- probes ---- */

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
                                         cairn_srv_probe_each *each,
                                         void *owner, struct cairn_error *err) {
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
