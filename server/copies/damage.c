/* SPDX-License-Identifier: Apache-2.0 */
/* Compared with what is known, and written where it differs; see damage.h. */
#include "server/copies/damage.h"

#include <inttypes.h>
#include <stdio.h>

#include "common/log.h"
#include "server/http/waiters.h"
#include "server/ledger/copies.h"
#include "server/ledger/versions.h"

struct noting {
    struct cairn_srv *server;
    const struct cairn_srv_damage *found;
    struct cairn_srv_version version;
    struct cairn_srv_copy copy; /* as it shall be */
    uint64_t known;
    bool differs;
};

static enum cairn_code compare(struct cairn_srv_tx *tx, void *argument, struct cairn_error *err) {
    struct noting *noting = argument;
    const struct cairn_srv_damage *found = noting->found;
    struct cairn_srv_copies copies;
    noting->differs = false;
    cairn_srv_version_release(&noting->version);
    CAIRN_TRY(cairn_srv_version_get(tx, found->version, &noting->version, err));
    CAIRN_TRY(cairn_srv_copies_get(tx, found->version, &copies, err));
    const struct cairn_srv_copy *copy = cairn_srv_copies_find(&copies, found->store);
    bool there = noting->version.state == CAIRN_STATE_COMMITTED && copy &&
                 copy->state == CAIRN_SRV_COPY_WHOLE && copy->changed_ms == found->changed_ms;
    if (!there) return CAIRN_OK; /* damage.h#2 */
    noting->copy = *copy;
    noting->known = copy->damaged;
    noting->copy.damaged =
        found->all ? found->objects : cairn_max_u64(copy->damaged, found->objects);
    noting->differs = noting->copy.damaged != noting->known;
    return CAIRN_OK;
}

static enum cairn_code put(struct cairn_srv_tx *tx, void *argument, struct cairn_error *err) {
    static const enum cairn_srv_event worse = CAIRN_SRV_EVENT_COPY_DAMAGED,
                                      sound = CAIRN_SRV_EVENT_COPY_SOUND;
    struct noting *noting = argument;
    CAIRN_TRY(compare(tx, noting, err));
    if (!noting->differs) return CAIRN_OK;
    noting->copy.damaged_ms = cairn_srv_wall_ms(noting->server);
    bool mended_in_part = noting->copy.damaged && noting->copy.damaged < noting->known;
    const enum cairn_srv_event *event = noting->copy.damaged ? &worse : &sound;
    return cairn_srv_copy_damage_put(tx, noting->found->version, &noting->copy,
                                     mended_in_part ? NULL : event, err);
}

static void tell(const struct noting *noting) {
    const struct cairn_srv_version *version = &noting->version;
    const char *store = noting->found->store;
    if (noting->copy.damaged > noting->known)
        cairn_log(WARN, "copy.damaged", "version=%s step=%" PRIu64 " store=%s objects=%" PRIu64,
                  version->id.text, version->step, store, noting->copy.damaged);
    if (!noting->copy.damaged)
        cairn_log(INFO, "copy.sound", "version=%s step=%" PRIu64 " store=%s", version->id.text,
                  version->step, store);
    cairn_srv_waiters_wake_version(noting->server->waiters, &version->id, &version->name);
}

void cairn_srv_damage_note(struct cairn_srv *server, const struct cairn_srv_damage *damage) {
    struct noting noting = {.server = server, .found = damage};
    struct cairn_error why = {0};
    if (!damage->objects && !damage->all) return;
    enum cairn_code code = cairn_srv_catalog_read(server->catalog, compare, &noting, &why);
    if (!code && noting.differs)
        code = cairn_srv_catalog_write(server->catalog, put, &noting, &why);
    if (code && code != CAIRN_NOT_FOUND)
        cairn_log(WARN, "copy.damage_untold", "version=%s store=%s objects=%" PRIu64
                  " cause=\"%s\"", damage->version, damage->store, damage->objects, why.message);
    if (!code && noting.differs) tell(&noting);
    cairn_srv_version_release(&noting.version);
}

static enum cairn_code count(struct cairn_srv_tx *tx, void *argument, struct cairn_error *err) {
    return cairn_srv_copies_damaged(tx, argument, err);
}

uint64_t cairn_srv_damage_text(struct cairn_srv *server, char ret[CAIRN_SRV_DAMAGE_BYTES]) {
    struct cairn_srv_damaged_copies found = {.count = 0};
    ret[0] = '\0';
    if (cairn_srv_catalog_read(server->catalog, count, &found, NULL) || !found.count) return 0;
    snprintf(ret, CAIRN_SRV_DAMAGE_BYTES,
             "%" PRIu64 " %s damaged objects; of %s/%s@%" PRIu64 " in store %s %" PRIu64
             ": cairn verify --repair",
             found.count, found.count == 1 ? "copy has" : "copies have", found.name.project,
             found.name.run, found.step, found.store, found.objects);
    return found.count;
}
