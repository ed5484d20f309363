/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of versions that only the store knows; see buried.h. */
#include "server/ledger/buried.h"

#include "server/db/tables.h"
#include "server/ledger/frozen.h"
#include "server/ledger/quotas.h"
#include "server/ledger/runs.h"

#define SWEEPS_ALL 5 /* at once, and after 10 s, 1, 24 and 48 h */

enum cairn_code cairn_srv_met_look(struct cairn_srv_tx *tx, struct cairn_srv_met *met,
                                   struct cairn_error *err) {
    CAIRN_AUTO(srv_version) version = {0};
    CAIRN_AUTO(srv_run) run = {0};
    struct cairn_error why = {0};
    met->known = met->gone = met->run = false;
    enum cairn_code code = cairn_srv_version_get(tx, met->id.text, &version, &why);
    if (!code) {
        met->gone = version.state == CAIRN_STATE_GONE && version.sweeps >= SWEEPS_ALL;
        met->known = met->run = true;
        return CAIRN_OK;
    }
    if (code == CAIRN_NOT_FOUND) code = cairn_srv_run_get(tx, &met->name, &run, &why);
    met->run = code == CAIRN_OK;
    if (!code || code == CAIRN_NOT_FOUND) return CAIRN_OK;
    return cairn_fail(err, code, "%s", why.message);
}

/* Never begun, so nothing but its run and its step is known of it. */
static enum cairn_code give_up(struct cairn_srv_tx *tx, const struct cairn_srv_met *met,
                               const char *reason, int64_t wall_ms, struct cairn_error *err) {
    CAIRN_AUTO(srv_run) run = {0};
    CAIRN_AUTO(srv_version) version = {0};
    CAIRN_TRY(cairn_srv_run_get(tx, &met->name, &run, err));
    CAIRN_TRY(cairn_srv_tx_run_thawed(tx, run.id, err));
    struct cairn_srv_version_new opened = {.id = met->id,
                                           .run = &run,
                                           .step = met->step,
                                           .n = 1,
                                           .world_size = 1,
                                           .format = "",
                                           .wall_ms = wall_ms,
                                           .buried = true};
    CAIRN_TRY(cairn_srv_version_insert(tx, &opened, err));
    CAIRN_TRY(cairn_srv_version_get(tx, met->id.text, &version, err));
    struct cairn_srv_move move = {CAIRN_EVENT_GIVE_UP, CAIRN_TIMEOUT, reason};
    return cairn_srv_version_move(tx, &version, &move, err);
}

static enum cairn_code sweep_again(struct cairn_srv_tx *tx, const struct cairn_srv_met *met,
                                   struct cairn_error *err) {
    CAIRN_AUTO(srv_version) version = {0};
    CAIRN_TRY(cairn_srv_version_get(tx, met->id.text, &version, err));
    CAIRN_TRY(cairn_srv_tx_run_thawed(tx, version.run_id, err));
    return cairn_srv_sql_run(tx, NULL, err, SQL(version_sweep_once_more), SQL_T(met->id.text));
}

enum cairn_code cairn_srv_met_bury(struct cairn_srv_tx *tx, struct cairn_srv_met *met,
                                   const char *reason, int64_t wall_ms, bool *ret_done,
                                   struct cairn_error *err) {
    bool was_gone = met->gone;
    CAIRN_TRY(cairn_srv_met_look(tx, met, err));
    *ret_done = met->run && (was_gone ? met->gone : !met->known);
    if (!*ret_done) return CAIRN_OK;
    return met->gone ? sweep_again(tx, met, err) : give_up(tx, met, reason, wall_ms, err);
}
