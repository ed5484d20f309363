/* SPDX-License-Identifier: Apache-2.0 */
/* store.json of further stores; see tier_identity.h. */
#include "server/guard/tier_identity.h"

#include "common/log.h"
#include "common/text.h"
#include "store/open.h"
#include "store/s3/start.h"

struct known {
    const char *store;
    char uuid[CAIRN_UUID_TEXT_BYTES];
    bool taken_back, unread;
};

static enum cairn_code look(struct cairn_srv_tx *tx, void *argument, struct cairn_error *err) {
    struct known *known = argument;
    return cairn_srv_tier_uuid_get(tx, known->store, known->uuid, err);
}

/* Of two servers that claim at once the first names it. */
static enum cairn_code claim(struct cairn_srv_tx *tx, void *argument, struct cairn_error *err) {
    struct known *known = argument;
    CAIRN_TRY(cairn_srv_tier_uuid_put(tx, known->store, known->uuid, err));
    if (known->taken_back) CAIRN_TRY(cairn_srv_tier_unread_put(tx, known->store, true, err));
    return cairn_srv_tier_uuid_get(tx, known->store, known->uuid, err);
}

static enum cairn_code make(struct cairn_srv *server, struct cairn_store_worker *worker,
                            struct known *known, struct cairn_store_record *ret,
                            struct cairn_error *err) {
    cairn_uuid_random(known->uuid);
    CAIRN_TRY(cairn_srv_catalog_write(server->catalog, claim, known, err));
    struct cairn_store_record record = {.format = 1};
    (void)cairn_text_copy(record.uuid, sizeof(record.uuid), known->uuid);
    (void)cairn_text_copy(record.owner, sizeof(record.owner), server->settings->owner);
    (void)cairn_text_copy(record.copies_of, sizeof(record.copies_of), server->store_uuid);
    struct cairn_error failure = {0};
    enum cairn_code code = cairn_store_record_put(worker, &record, true, &failure);
    if (code && code != CAIRN_PRECONDITION) {
        if (err) *err = failure;
        return code;
    }
    if (!code)
        cairn_log(INFO, "tier.created", "store=%s uuid=%s", known->store, record.uuid);
    return cairn_store_record_get(worker, 0, ret, err);
}

static enum cairn_code stranger(const struct cairn_srv *server, const struct cairn_srv_tier *tier,
                                const struct cairn_store_record *record, const struct known *known,
                                struct cairn_error *err) {
    if (!strcmp(record->uuid, server->store_uuid))
        return cairn_fail(err, CAIRN_FORBIDDEN, "stores: %s is the main store itself", tier->name);
    if (known->uuid[0])
        return cairn_fail(err, CAIRN_FORBIDDEN,
                          "stores: %s is %s (owner %s), this catalog knows %s by that name",
                          tier->name, record->uuid, record->owner, known->uuid);
    return cairn_fail(err, CAIRN_FORBIDDEN,
                      "stores: %s is %s (owner %s), and holds no copies of the versions of %s",
                      tier->name, record->uuid, record->owner, server->store_uuid);
}

enum cairn_code cairn_srv_tier_ready(struct cairn_srv *server, const struct cairn_srv_tier *tier,
                                     struct cairn_store_worker *worker, struct cairn_error *err) {
    struct known known = {.store = tier->name};
    struct cairn_store_record record = {0};
    if (cairn_srv_tier_is_main(server, tier)) return CAIRN_OK; /* identity.h looks after it */
    CAIRN_TRY(cairn_srv_catalog_read(server->catalog, look, &known, err));
    enum cairn_code code = cairn_store_record_get(worker, 0, &record, err);
    if (code == CAIRN_NOT_FOUND && known.uuid[0])
        return cairn_fail(err, CAIRN_UNAVAILABLE,
                          "stores: %s (%s) has no .cairn/store.json: is it mounted?", tier->name,
                          cairn_store_url(tier->store));
    if (code == CAIRN_NOT_FOUND) code = make(server, worker, &known, &record, err);
    if (code) return cairn_within(err, code, "stores: %s", tier->name);
    bool ours = !strcmp(record.copies_of, server->store_uuid);
    if (known.uuid[0] ? strcmp(known.uuid, record.uuid) != 0 : !ours)
        return stranger(server, tier, &record, &known, err);
    if (known.uuid[0]) return CAIRN_OK;
    (void)cairn_text_copy(known.uuid, sizeof(known.uuid), record.uuid);
    known.taken_back = true;
    cairn_log(INFO, "tier.taken_back", "store=%s uuid=%s", tier->name, record.uuid);
    code = cairn_srv_catalog_write(server->catalog, claim, &known, err);
    return code ? cairn_within(err, code, "stores: %s", tier->name) : CAIRN_OK;
}

enum cairn_code cairn_srv_tier_is_ours(struct cairn_srv *server, const struct cairn_srv_tier *tier,
                                       struct cairn_store_worker *worker,
                                       struct cairn_error *err) {
    const struct known known = {.store = tier->name};
    struct cairn_store_record record = {0};
    enum cairn_code code = cairn_store_record_get(worker, 0, &record, err);
    if (code == CAIRN_NOT_FOUND)
        return cairn_fail(err, CAIRN_UNAVAILABLE,
                          "stores: %s (%s) has no .cairn/store.json: is it mounted?", tier->name,
                          cairn_store_url(tier->store));
    if (code) return cairn_within(err, code, "stores: %s", tier->name);
    if (strcmp(record.copies_of, server->store_uuid) != 0)
        return stranger(server, tier, &record, &known, err);
    return CAIRN_OK;
}

static enum cairn_code look_unread(struct cairn_srv_tx *tx, void *argument,
                                   struct cairn_error *err) {
    struct known *known = argument;
    return cairn_srv_tier_unread_get(tx, known->store, &known->unread, err);
}

enum cairn_code cairn_srv_tiers_start(struct cairn_srv *server, struct cairn_error *err) {
    struct cairn_srv_tiers *tiers = server->tiers;
    for (size_t i = 0; i < tiers->count; i++) {
        struct cairn_srv_tier *tier = &tiers->tiers[i];
        struct cairn_store_worker *worker = NULL;
        struct cairn_error why = {0};
        if (i == tiers->main) continue;
        enum cairn_code code = cairn_srv_tier_borrow(server, tier, &worker, &why);
        if (!code) code = cairn_srv_tier_ready(server, tier, worker, &why);
        cairn_srv_tier_return(server, tier, worker);
        if (!code) cairn_store_start_keep(tier->store);
        struct known known = {.store = tier->name};
        CAIRN_TRY(cairn_srv_catalog_read(server->catalog, look_unread, &known, err));
        tier->unread = known.unread;
        if (!code) continue;
        if (!cairn_code_info(code)->retryable) {
            if (err) *err = why;
            return code;
        }
        cairn_log(WARN, "tier.away", "store=%s cause=\"%s\"", tier->name, why.message);
    }
    return CAIRN_OK;
}
