/* SPDX-License-Identifier: Apache-2.0 */
/* urls: how long a presigned URL may live, and its signing. */
#include "server/reads/urls.h"

#include "server/reads/tier_reads.h"

#define LIFE_MS_MAX (UINT64_C(300) * 1000)

enum cairn_code cairn_srv_urls_find(struct cairn_srv *server,
                                    const struct cairn_srv_version *version,
                                    struct cairn_store **ret, struct cairn_error *err) {
    struct cairn_srv_where where = {.count = 0};
    *ret = cairn_store_profile(server->store)->presigns ? server->store : NULL;
    if (!version->copied) return CAIRN_OK;
    CAIRN_TRY(cairn_srv_where_of(server, version->id.text, NULL, &where, err));
    if (!where.count) return CAIRN_OK; /* there is no further store */
    *ret = NULL;
    for (int damaged = 0; damaged < 2; damaged++) /* who reads by an URL falls back to nothing */
        for (size_t i = 0; i < where.count && !*ret; i++)
            if (where.damaged[i] == (damaged == 1) &&
                cairn_store_profile(where.tiers[i]->store)->presigns)
                *ret = where.tiers[i]->store;
    return CAIRN_OK;
}

static enum cairn_code read_tick(struct cairn_srv_tx *tx, void *argument, struct cairn_error *err) {
    (void)err;
    uint64_t *tick = argument;
    *tick = cairn_srv_tick(tx);
    return CAIRN_OK;
}

/* The grace counts from a tick that may be a sweep's interval old; so much is not relied on. */
static enum cairn_code grace_left(struct cairn_srv *server, const struct cairn_srv_version *version,
                                  uint64_t *ret_ms, struct cairn_error *err) {
    uint64_t grace_ms = server->settings->trash_grace_ms, gone_ms = 0, tick = 0;
    if (version->trashed) {
        CAIRN_TRY(cairn_srv_catalog_read(server->catalog, read_tick, &tick, err));
        gone_ms = tick > version->trashed_tick ? tick - version->trashed_tick : 0;
    }
    gone_ms += server->settings->sweep_interval_ms;
    *ret_ms = grace_ms > gone_ms ? grace_ms - gone_ms : 0;
    return CAIRN_OK;
}

enum cairn_code cairn_srv_urls_life(struct cairn_srv *server,
                                    const struct cairn_srv_version *version, uint64_t leased_ms,
                                    uint32_t *ret_s, struct cairn_error *err) {
    uint64_t left_ms = 0;
    CAIRN_TRY(grace_left(server, version, &left_ms, err));
    left_ms = cairn_max_u64(left_ms, leased_ms);
    *ret_s = (uint32_t)cairn_max_u64(1, cairn_min_u64(LIFE_MS_MAX, left_ms) / 1000);
    return CAIRN_OK;
}

enum cairn_code cairn_srv_urls_sign(struct cairn_store *store,
                                    const struct cairn_srv_version *version, const char *shard,
                                    uint32_t life_s, struct cairn_buf *ret_url,
                                    uint32_t *ret_life_s, struct cairn_error *err) {
    struct cairn_version_place place = cairn_srv_version_place(version);
    struct cairn_key key;
    cairn_key_shard(&place, cairn_view_of(shard), &key);
    return cairn_store_presign(store, key.text, life_s, ret_url, ret_life_s, err);
}
