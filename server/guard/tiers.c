/* SPDX-License-Identifier: Apache-2.0 */
/* Names, order and idle workers of stores; see tiers.h. */
#include "server/guard/tiers.h"

#include <stdlib.h>

#include "common/text.h"

/* Of one store; more are freed when they are given back. */
#define IDLE_MAX 16

struct cairn_srv_idle {
    struct cairn_store_worker *worker;
    struct cairn_srv_idle *next;
};

/* ---- life ---- */

enum cairn_code cairn_srv_tiers_new(struct cairn_srv *server,
                                    enum cairn_code (*open)(struct cairn_srv *server,
                                                            const char *url,
                                                            struct cairn_store **ret,
                                                            struct cairn_error *err),
                                    struct cairn_srv_tiers **ret, struct cairn_error *err) {
    struct cairn_srv_tiers *tiers = calloc(1, sizeof(*tiers));
    if (!tiers) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the setting stores");
    cairn_lock_init(&tiers->lock, CAIRN_LOCK_server_tiers);
    struct cairn_stores named = {0};
    enum cairn_code code = cairn_stores_parse(server->settings->stores, &named, err);
    tiers->main = named.main;
    for (size_t i = 0; i < named.count && !code; i++) {
        struct cairn_srv_tier *tier = &tiers->tiers[tiers->count++];
        (void)cairn_text_copy(tier->name, sizeof(tier->name), named.items[i].name);
        if (!named.items[i].url)
            tier->store = server->store;
        else
            code = open(server, named.items[i].url, &tier->store, err);
        if (code) (void)cairn_within(err, code, "stores: %s", tier->name);
    }
    cairn_stores_release(&named);
    if (code)
        cairn_srv_tiers_free(tiers);
    else
        *ret = tiers;
    return code;
}

void cairn_srv_tiers_free(struct cairn_srv_tiers *tiers) {
    if (!tiers) return;
    CAIRN_ASSERT(!tiers->copying); /* who copies has ended */
    for (size_t i = 0; i < tiers->count; i++) {
        struct cairn_srv_tier *tier = &tiers->tiers[i];
        while (tier->idle) {
            struct cairn_srv_idle *idle = tier->idle;
            tier->idle = idle->next;
            cairn_store_worker_free(idle->worker);
            free(idle);
        }
        if (i != tiers->main && tier->store) cairn_store_free(tier->store);
    }
    cairn_lock_release(&tiers->lock);
    free(tiers);
}

/* ---- looking ---- */

bool cairn_srv_tiers_any(const struct cairn_srv *server) {
    return server->tiers && server->tiers->count > 1;
}

struct cairn_srv_tier *cairn_srv_tier_find(const struct cairn_srv *server, const char *name) {
    struct cairn_srv_tiers *tiers = server->tiers;
    for (size_t i = 0; tiers && i < tiers->count; i++)
        if (!strcmp(tiers->tiers[i].name, name)) return &tiers->tiers[i];
    return NULL;
}

bool cairn_srv_tier_is_main(const struct cairn_srv *server, const struct cairn_srv_tier *tier) {
    return tier == &server->tiers->tiers[server->tiers->main];
}

/* ---- workers ---- */

enum cairn_code cairn_srv_tier_borrow(struct cairn_srv *server, struct cairn_srv_tier *tier,
                                      struct cairn_store_worker **ret, struct cairn_error *err) {
    struct cairn_srv_idle *idle = NULL;
    {
        CAIRN_HOLD(&server->tiers->lock);
        idle = tier->idle;
        if (idle) tier->idle = idle->next;
    }
    if (!idle) return cairn_store_worker_new(tier->store, ret, err);
    *ret = idle->worker;
    free(idle);
    return CAIRN_OK;
}

void cairn_srv_tier_return(struct cairn_srv *server, struct cairn_srv_tier *tier,
                           struct cairn_store_worker *worker) {
    struct cairn_srv_idle *idle = worker ? malloc(sizeof(*idle)) : NULL;
    if (idle) {
        size_t count = 0;
        CAIRN_HOLD(&server->tiers->lock);
        for (const struct cairn_srv_idle *at = tier->idle; at; at = at->next) count++;
        if (count < IDLE_MAX) {
            *idle = (struct cairn_srv_idle){worker, tier->idle};
            tier->idle = idle;
            return;
        }
    }
    free(idle);
    cairn_store_worker_free(worker);
}
