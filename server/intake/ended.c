/* SPDX-License-Identifier: Apache-2.0 */
/* attempt_ranks.ended, and what follows from it; see ended.h. */
#include "server/intake/ended.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "api/wire/messages.h"
#include "common/log.h"
#include "common/text.h"
#include "server/guard/freeze.h"
#include "server/guard/jobs.h"
#include "server/http/waiters.h"
#include "server/intake/saves.h"
#include "server/ledger/members.h"
#include "server/ledger/version_lists.h"
#include "server/recovery/compare.h"

/* ---- reading ---- */

/* Q49: a grant that is not ours keeps none of the others; its report need not come again. */
static enum cairn_code read_one(struct cairn_srv_ends *ends, const json_t *item, size_t index,
                                bool same_catalog, struct cairn_error *err) {
    struct cairn_srv_ended *one = &ends->items[ends->count];
    struct cairn_msg_node_ended said = {0};
    char pointer[32];
    snprintf(pointer, sizeof(pointer), "/ended/%zu", index);
    CAIRN_TRY(cairn_msg_node_ended_read(item, pointer, &said, err));
    one->index = index;
    one->rank = said.rank;
    one->proc = said.proc;
    one->end = said.settled && same_catalog ? CAIRN_SRV_END_SETTLED : CAIRN_SRV_END_SEEN;
    one->taken =
        cairn_srv_grant_judge(ends->request->server, said.grant, &one->grant, NULL) != CAIRN_OK;
    ends->count++;
    return CAIRN_OK;
}

enum cairn_code cairn_srv_ends_read(struct cairn_srv_ends *ends, const json_t *list,
                                    bool same_catalog, struct cairn_error *err) {
    size_t count = json_array_size(list);
    if (count > CAIRN_SRV_RANKS_MAX)
        return cairn_fail(err, CAIRN_INVALID, "/ended: more than %d", CAIRN_SRV_RANKS_MAX);
    ends->items = calloc(count + 1, sizeof(*ends->items));
    if (!ends->items) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a heartbeat");
    for (size_t i = 0; i < count; i++)
        CAIRN_TRY(read_one(ends, json_array_get(list, i), i, same_catalog, err));
    return CAIRN_OK;
}

void cairn_srv_ends_release(struct cairn_srv_ends *ends) {
    free(ends->items);
    cairn_srv_ids_release(&ends->closed);
}

/* ---- what is known of it ---- */

struct look {
    struct cairn_srv_ends *ends;
    json_t *fenced;
    bool unwritten; /* an end that the row does not have */
};

static enum cairn_code name_fenced(const struct cairn_grant *grant, json_t *fenced,
                                   struct cairn_error *err) {
    if (!json_array_append_new(fenced,
                               CAIRN_PACK(node_fenced, .project = grant->name.project,
                                          .run = grant->name.run, .attempt = grant->attempt)))
        return CAIRN_OK;
    return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the answer");
}

/* *ret_possible: the run is there, at this attempt, and may be written to. */
static enum cairn_code admit(struct cairn_srv_tx *tx, const struct cairn_grant *grant,
                             struct cairn_srv_run *ret, bool *ret_possible, bool *ret_stale,
                             struct cairn_error *err) {
    struct cairn_error why = {0};
    *ret_possible = *ret_stale = false;
    enum cairn_code code = cairn_srv_admit(tx, grant, ret, &why);
    if (!code) code = cairn_srv_tx_run_thawed(tx, ret->id, &why);
    *ret_possible = !code;
    *ret_stale = code == CAIRN_STALE_ATTEMPT;
    if (!code || *ret_stale || code == CAIRN_NOT_FOUND || code == CAIRN_CATALOG_BEHIND)
        return CAIRN_OK;
    if (err) *err = why;
    return code;
}

static struct cairn_srv_process process_of(const struct cairn_srv_ends *ends,
                                           const struct cairn_srv_ended *one, int64_t run_id) {
    return (struct cairn_srv_process){run_id, one->grant.attempt, one->rank, one->proc,
                                      ends->request->params.node};
}

static enum cairn_code look_at_one(struct cairn_srv_tx *tx, struct look *look,
                                   struct cairn_srv_ended *one, struct cairn_error *err) {
    CAIRN_AUTO(srv_run) run = {0};
    bool stale = false, known = false;
    enum cairn_srv_end end = CAIRN_SRV_END_NONE;
    CAIRN_TRY(admit(tx, &one->grant, &run, &one->possible, &stale, err));
    if (stale) {
        one->taken = true;
        return name_fenced(&one->grant, look->fenced, err);
    }
    if (!one->possible) return CAIRN_OK;
    struct cairn_srv_process process = process_of(look->ends, one, run.id);
    CAIRN_TRY(cairn_srv_member_end_get(tx, &process, &known, &end, err));
    if (known && end >= one->end)
        one->possible = false;
    else
        look->unwritten = true;
    one->taken = known && end == CAIRN_SRV_END_SETTLED;
    return CAIRN_OK;
}

static enum cairn_code look_at_all(struct cairn_srv_tx *tx, void *argument,
                                   struct cairn_error *err) {
    struct look *look = argument;
    for (size_t i = 0; i < look->ends->count; i++) {
        if (look->ends->items[i].taken) continue;
        CAIRN_TRY(look_at_one(tx, look, &look->ends->items[i], err));
    }
    return CAIRN_OK;
}

/* Q35: nothing is ended in a run that was not compared with its store in this life. */
static void compare_runs(struct cairn_srv_ends *ends) {
    for (size_t i = 0; i < ends->count; i++) {
        struct cairn_srv_ended *one = &ends->items[i];
        struct cairn_error why = {0};
        bool busy = false;
        if (!one->possible || one->end != CAIRN_SRV_END_SETTLED) continue;
        enum cairn_code code = cairn_srv_compare(ends->request->server, ends->request->store,
                                                 &one->grant.name, &busy, &why);
        if (code || busy) one->end = CAIRN_SRV_END_SEEN;
    }
}

/* ---- writing ---- */

static enum cairn_code close_open(struct cairn_srv_tx *tx, struct cairn_srv_ends *ends,
                                  int64_t run_id, struct cairn_error *err) {
    CAIRN_AUTO(srv_ids) open = {0};
    CAIRN_TRY(cairn_srv_versions_open_of_run(tx, run_id, &open, err));
    for (size_t i = 0; i < open.count; i++) {
        CAIRN_AUTO(srv_version) version = {0};
        char reason[CAIRN_SRV_REASON_BYTES];
        CAIRN_TRY(cairn_srv_version_get(tx, open.ids[i].text, &version, err));
        CAIRN_TRY(cairn_srv_members_gone(tx, &version, reason, err));
        if (!reason[0]) continue;
        struct cairn_srv_move move = {CAIRN_EVENT_GIVE_UP, CAIRN_SOURCE_GONE, reason};
        CAIRN_TRY(cairn_srv_version_move(tx, &version, &move, err));
        CAIRN_TRY(cairn_srv_ids_add(&ends->closed, &version.id, err));
    }
    return CAIRN_OK;
}

static enum cairn_code write_all(struct cairn_srv_tx *tx, void *argument, struct cairn_error *err) {
    struct cairn_srv_ends *ends = argument;
    ends->closed.count = 0;
    for (size_t i = 0; i < ends->count; i++) {
        struct cairn_srv_ended *one = &ends->items[i];
        CAIRN_AUTO(srv_run) run = {0};
        bool stale = false;
        if (!one->possible) continue;
        CAIRN_TRY(admit(tx, &one->grant, &run, &one->possible, &stale, err));
        if (!one->possible) continue;
        struct cairn_srv_process process = process_of(ends, one, run.id);
        CAIRN_TRY(cairn_srv_member_end_put(tx, &process, one->end, err));
        if (one->end == CAIRN_SRV_END_SETTLED) CAIRN_TRY(close_open(tx, ends, run.id, err));
    }
    return CAIRN_OK;
}

/* ---- log and waiters ---- */

static enum cairn_code read_closed(struct cairn_srv_tx *tx, void *argument,
                                   struct cairn_error *err) {
    struct cairn_srv_version *version = argument;
    char id[CAIRN_VERSION_ID_BYTES];
    memcpy(id, version->id.text, sizeof(id));
    return cairn_srv_version_get(tx, id, version, err);
}

static void announce_closed(struct cairn_srv_ends *ends) {
    struct cairn_srv *server = ends->request->server;
    for (size_t i = 0; i < ends->closed.count; i++) {
        CAIRN_AUTO(srv_version) version = {.id = ends->closed.ids[i]};
        if (cairn_srv_catalog_read(server->catalog, read_closed, &version, NULL)) continue;
        cairn_log(WARN, "save.ended", "version=%s step=%" PRIu64 " reason=\"%s\"", version.id.text,
                  version.step, version.reason);
        cairn_srv_waiters_wake_version(server->waiters, &version.id, &version.name);
    }
    if (ends->closed.count) cairn_srv_jobs_sweep(server);
}

enum cairn_code cairn_srv_ends_take(struct cairn_srv_ends *ends, json_t *taken, json_t *fenced,
                                    struct cairn_error *err) {
    struct cairn_srv *server = ends->request->server;
    struct look look = {.ends = ends, .fenced = fenced};
    if (!ends->count || server->frozen) return CAIRN_OK;
    CAIRN_TRY(cairn_srv_catalog_read(server->catalog, look_at_all, &look, err));
    if (look.unwritten) {
        compare_runs(ends);
        CAIRN_TRY(cairn_srv_catalog_write(server->catalog, write_all, ends, err));
        announce_closed(ends);
    }
    for (size_t i = 0; i < ends->count; i++) {
        const struct cairn_srv_ended *one = &ends->items[i];
        bool settled = one->possible && one->end == CAIRN_SRV_END_SETTLED;
        if ((one->taken || settled) &&
            json_array_append_new(taken, json_integer((json_int_t)one->index)))
            return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the answer");
    }
    return CAIRN_OK;
}
