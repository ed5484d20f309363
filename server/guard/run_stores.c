/* SPDX-License-Identifier: Apache-2.0 */
/* One listing a store; see run_stores.h. */
#include "server/guard/run_stores.h"

#include "server/guard/tier_identity.h"

enum cairn_code cairn_srv_run_store_within(const struct cairn_srv_run_stores *stores, size_t index,
                                           enum cairn_code code, struct cairn_error *err) {
    if (!code || stores->count < 2) return code;
    return cairn_within(err, code, "store %s", stores->stores[index].name);
}

static enum cairn_code open_one(struct cairn_srv_run_stores *stores, struct cairn_srv_tier *tier,
                                struct cairn_error *err) {
    struct cairn_srv *server = stores->server;
    CAIRN_ASSERT(stores->count < CAIRN_SRV_TIERS_MAX);
    struct cairn_srv_run_store *one = &stores->stores[stores->count++];
    *one = (struct cairn_srv_run_store){.tier = tier, .name = tier->name};
    CAIRN_TRY(cairn_srv_tier_borrow(server, tier, &one->worker, err));
    one->borrowed = true;
    return cairn_srv_tier_ready(server, tier, one->worker, err);
}

enum cairn_code cairn_srv_run_stores_open(struct cairn_srv_run_stores *stores,
                                          struct cairn_srv *server,
                                          struct cairn_store_worker *worker,
                                          struct cairn_error *err) {
    struct cairn_srv_tiers *tiers = server->tiers;
    *stores = (struct cairn_srv_run_stores){.server = server, .count = 1};
    stores->stores[0] =
        (struct cairn_srv_run_store){.tier = tiers ? &tiers->tiers[tiers->main] : NULL,
                                     .name = CAIRN_SRV_TIER_MAIN,
                                     .worker = worker};
    for (size_t i = 0; tiers && i < tiers->count; i++)
        if (i != tiers->main && !tiers->tiers[i].left_out)
            CAIRN_TRY(open_one(stores, &tiers->tiers[i], err));
    return CAIRN_OK;
}

void cairn_srv_run_stores_release(struct cairn_srv_run_stores *stores) {
    for (size_t i = 0; i < stores->count; i++) {
        struct cairn_srv_run_store *one = &stores->stores[i];
        if (one->borrowed) cairn_srv_tier_return(stores->server, one->tier, one->worker);
        cairn_srv_run_objects_release(&one->objects);
    }
    *stores = (struct cairn_srv_run_stores){0};
}

enum cairn_code cairn_srv_run_stores_list(struct cairn_srv_run_stores *stores,
                                          struct cairn_srv_run_objects *ret,
                                          struct cairn_error *err) {
    for (size_t i = 0; i < stores->count; i++) {
        struct cairn_srv_run_store *one = &stores->stores[i];
        one->objects.name = ret->name;
        enum cairn_code code = cairn_srv_run_objects_list(&one->objects, one->worker, false, err);
        if (!code && !one->objects.listed)
            code = cairn_fail(err, CAIRN_FORBIDDEN, "these keys may not list the store");
        if (!code) code = cairn_srv_run_objects_join(ret, &one->objects, err);
        if (code) return cairn_srv_run_store_within(stores, i, code, err);
    }
    ret->listed = true;
    return CAIRN_OK;
}
