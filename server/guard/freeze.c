/* SPDX-License-Identifier: Apache-2.0 */
/* Freezing runs; see freeze.h. */
#include "server/guard/freeze.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>

#include "common/hooks.h"
#include "common/log.h"
#include "common/text.h"
#include "server/db/notify.h"
#include "server/guard/ticks.h"

#define THAW_S_MAX 30 /* a reconcile may be done sooner than it is due */

struct row {
    struct cairn_srv *server;
    const struct cairn_run_name *name;
    bool made, frozen, asked;
    char cause[CAIRN_SRV_CAUSE_BYTES];
    struct cairn_run_name first;
    uint64_t count; /* or a tick: find_end */
};

static enum cairn_code count_rows(struct cairn_srv_tx *tx, void *argument,
                                  struct cairn_error *err) {
    struct row *row = argument;
    return cairn_srv_frozen_count(tx, &row->count, err);
}

enum cairn_code cairn_srv_frozen_start(struct cairn_srv *server, struct cairn_error *err) {
    struct row row = {.server = server};
    CAIRN_TRY(cairn_srv_catalog_read(server->catalog, count_rows, &row, err));
    server->frozen_runs = row.count;
    return CAIRN_OK;
}

static enum cairn_code put(struct cairn_srv_tx *tx, void *argument, struct cairn_error *err) {
    struct row *row = argument;
    CAIRN_AUTO(srv_run) run = {0};
    int64_t wall_ms = cairn_srv_wall_ms(row->server);
    CAIRN_TRY(cairn_srv_run_take(tx, row->name, wall_ms, &run, err));
    cairn_srv_notify_run(tx, row->name);
    return cairn_srv_frozen_put(tx, run.id, row->cause, wall_ms,
                                row->asked || row->server->settings->adopt_store, &row->made, err);
}

static enum cairn_code behind(const struct cairn_run_name *name, const char *cause,
                              struct cairn_error *err) {
    return cairn_fail(err, CAIRN_CATALOG_BEHIND,
                      "run %s/%s is frozen until `cairn reconcile %s/%s` has ended: %s",
                      name->project, name->run, name->project, name->run, cause);
}

static enum cairn_code freeze(struct cairn_srv *server, const struct cairn_run_name *name,
                              const char *why, bool asked, struct cairn_error *err) {
    struct row row = {.server = server, .name = name, .asked = asked};
    (void)cairn_text_copy(row.cause, sizeof(row.cause), why);
    if (!CAIRN_RULE(Q36)) {
        cairn_srv_freeze(server, why);
        return cairn_srv_thawed(server, err);
    }
    CAIRN_TRY(cairn_srv_catalog_write(server->catalog, put, &row, err));
    if (row.made) {
        atomic_fetch_add(&server->frozen_runs, 1);
        cairn_log(ERROR, "run.frozen",
                  "run=%s/%s cause=\"%s\" effect=\"nothing is written, deleted or resumed from in "
                  "this run until it is reconciled; other runs go on\"",
                  name->project, name->run, row.cause);
    }
    return behind(name, row.cause, err);
}

enum cairn_code cairn_srv_run_freeze(struct cairn_srv *server, const struct cairn_run_name *name,
                                     const char *why, struct cairn_error *err) {
    return freeze(server, name, why, false, err);
}

enum cairn_code cairn_srv_run_freeze_asked(struct cairn_srv *server,
                                           const struct cairn_run_name *name, const char *why,
                                           struct cairn_error *err) {
    return freeze(server, name, why, true, err);
}

static enum cairn_code find_row(struct cairn_srv_tx *tx, void *argument, struct cairn_error *err) {
    struct row *row = argument;
    return cairn_srv_frozen_cause(tx, row->name, &row->frozen, row->cause, err);
}

enum cairn_code cairn_srv_run_thawed(struct cairn_srv *server, const struct cairn_run_name *name,
                                     struct cairn_error *err) {
    CAIRN_TRY(cairn_srv_thawed(server, err));
    /* Other servers freeze runs, too. */
    if (!server->frozen_runs && !cairn_srv_catalog_is_shared(server->catalog)) return CAIRN_OK;
    struct row row = {.name = name};
    CAIRN_TRY(cairn_srv_catalog_read(server->catalog, find_row, &row, err));
    return row.frozen ? behind(name, row.cause, err) : CAIRN_OK;
}

static enum cairn_code find_end(struct cairn_srv_tx *tx, void *argument, struct cairn_error *err) {
    struct row *row = argument;
    return cairn_srv_frozen_ends(tx, row->name, &row->asked, &row->count, err);
}

uint32_t cairn_srv_run_thaws_in_s(struct cairn_srv *server, const struct cairn_run_name *name) {
    struct row row = {.name = name};
    if (cairn_srv_thawed(server, NULL) ||
        cairn_srv_catalog_read(server->catalog, find_end, &row, NULL) || !row.asked)
        return 0;
    uint64_t now_tick = cairn_srv_ticks_now(server), due_tick = row.count;
    uint64_t left_ms = due_tick > now_tick ? due_tick - now_tick : 0;
    return (uint32_t)cairn_min_u64(left_ms / 1000 + 1, THAW_S_MAX);
}

static enum cairn_code find_first(struct cairn_srv_tx *tx, void *argument,
                                  struct cairn_error *err) {
    struct row *row = argument;
    CAIRN_TRY(cairn_srv_frozen_count(tx, &row->count, err));
    return cairn_srv_frozen_first(tx, &row->frozen, &row->first, row->cause, err);
}

uint64_t cairn_srv_frozen_text(struct cairn_srv *server, char ret[CAIRN_SRV_FROZEN_BYTES]) {
    struct row row = {.server = server};
    ret[0] = '\0';
    if (!server->frozen_runs && !cairn_srv_catalog_is_shared(server->catalog)) return 0;
    if (cairn_srv_catalog_read(server->catalog, find_first, &row, NULL) || !row.count) return 0;
    snprintf(ret, CAIRN_SRV_FROZEN_BYTES, "%" PRIu64 " frozen; %s/%s: %s", row.count,
             row.first.project, row.first.run, row.cause);
    return row.count;
}
