/* SPDX-License-Identifier: Apache-2.0 */
/* Locks on versions while copies change, pauses after failures, unreachable stores, known damage.
 *  1  One copy of a version is made or removed at a time on all servers of a catalog: a list locks
 *     within the process, the job lease `copy/VERSION` among servers. Making and removing a copy at
 *     once could leave a damaged copy that reads as whole.
 *  2  After each failure the sweep pauses longer; the version's copies in other stores do not wait.
 *     At most 4,096 failures are remembered; others are retried at each sweep.
 *  3  An unreachable store is probed with one version a minute until it answers, so that its copies
 *     take no slot from other stores.
 *  4  Damage is recorded only if the copy's row is unchanged since the check began and the version
 *     is not being deleted. If recording fails, that is logged and the caller continues. */
#include "server/copies/damage.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/log.h"
#include "server/copies/copies.h"
#include "server/http/waiters.h"

#define PAUSE_MS_MIN 10000
#define PAUSE_MS_MAX UINT64_C(3600000)
#define FAILURES_MAX 4096
#define AWAY_MS UINT64_C(60000)

enum cairn_code srv_copy_turn(struct srv_tx *tx, const struct srv *server, const char *version,
                              const struct srv_copy *copy, enum srv_copy_state state,
                              struct cairn_error *err) {
    struct srv_copy turned = *copy;
    turned.state = state;
    turned.changed_ms = srv_wall_ms(server);
    return srv_copy_put(tx, version, &turned, err);
}

/* ---- holds ---- */

struct failure {
    char version[CAIRN_VERSION_ID_BYTES], store[SRV_TIER_NAME_BYTES];
    uint64_t pause_ms, until_ms;
    struct failure *next;
};
struct away {
    char store[SRV_TIER_NAME_BYTES];
    char version[CAIRN_VERSION_ID_BYTES]; /* the version that probes it; "": none yet */
    uint64_t until_ms;
};
struct srv_copying {
    struct srv_copy_hold *holds;
    struct failure *failures;
    size_t failure_count;
    struct away away[SRV_TIERS_MAX];
    size_t away_count;
};

/* The server's list, allocated with its first entry; the caller holds the lock. */
static struct srv_copying *list_of(struct srv_tiers *tiers) {
    if (!tiers->copying) tiers->copying = calloc(1, sizeof(*tiers->copying));
    return tiers->copying;
}

static void free_if_empty(struct srv_tiers *tiers) {
    const struct srv_copying *copying = tiers->copying;
    if (!copying || copying->holds || copying->failures || copying->away_count) return;
    free(tiers->copying);
    tiers->copying = NULL;
}

static struct srv_copy_hold *find_hold(const struct srv_tiers *tiers, const char *version) {
    struct srv_copy_hold *hold = tiers->copying ? tiers->copying->holds : NULL;
    while (hold && strcmp(hold->version, version)) hold = hold->next;
    return hold;
}

static enum cairn_code enter_hold(struct srv_copy_hold *hold, struct cairn_error *err) {
    struct srv_tiers *tiers = hold->server->tiers;
    CAIRN_HOLD(&tiers->lock);
    if (find_hold(tiers, hold->version))
        return cairn_fail(err, CAIRN_BUSY, "a copy of %s is being made or removed", hold->version);
    struct srv_copying *copying = list_of(tiers);
    if (!copying) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory to copy a version");
    hold->next = copying->holds;
    copying->holds = hold;
    hold->held = true;
    return CAIRN_OK;
}

enum cairn_code srv_copy_hold_take(struct srv_copy_hold *hold, struct srv *server,
                                   const char *version, struct cairn_error *err) {
    *hold = (struct srv_copy_hold){.server = server};
    (void)cairn_text_copy(hold->version, sizeof(hold->version), version);
    srv_lease_init(&hold->lease, server, "copy", version);
    CAIRN_TRY(enter_hold(hold, err));
    enum cairn_code code = srv_lease_take(&hold->lease, err);
    if (code) srv_copy_hold_end(hold);
    return code;
}

void srv_copy_hold_end(struct srv_copy_hold *hold) {
    if (!hold->held) return;
    srv_lease_end(&hold->lease);
    struct srv_tiers *tiers = hold->server->tiers;
    CAIRN_HOLD(&tiers->lock);
    struct srv_copy_hold **at = &tiers->copying->holds;
    while (*at && *at != hold) at = &(*at)->next;
    CAIRN_ASSERT(*at);
    *at = hold->next;
    hold->held = false;
    free_if_empty(tiers);
}

bool srv_copy_is_held(struct srv *server, const char *version) {
    if (!server->tiers) return false;
    CAIRN_HOLD(&server->tiers->lock);
    return find_hold(server->tiers, version);
}

static struct failure **find_failure(struct srv_copying *copying, const char *version,
                                     const char *store) {
    struct failure **at = &copying->failures;
    while (*at && (strcmp((*at)->version, version) || strcmp((*at)->store, store)))
        at = &(*at)->next;
    return at;
}

static void drop_failure(struct srv_copying *copying, struct failure **at) {
    struct failure *failure = *at;
    *at = failure->next;
    copying->failure_count--;
    free(failure);
}

void srv_copy_failed(struct srv *server, const char *version, const char *store, bool failed) {
    struct srv_tiers *tiers = server->tiers;
    CAIRN_HOLD(&tiers->lock);
    struct srv_copying *copying = list_of(tiers);
    if (!copying) return; /* without memory there is no pause: retried at the next sweep */
    struct failure **at = find_failure(copying, version, store), *fresh = NULL;
    if (!failed && *at) drop_failure(copying, at);
    if (failed && !*at && copying->failure_count < FAILURES_MAX &&
        (fresh = calloc(1, sizeof(*fresh)))) {
        (void)cairn_text_copy(fresh->version, sizeof(fresh->version), version);
        (void)cairn_text_copy(fresh->store, sizeof(fresh->store), store);
        *at = fresh;
        copying->failure_count++;
    }
    if (failed && *at) {
        uint64_t pause_ms = (*at)->pause_ms ? 2 * (*at)->pause_ms : PAUSE_MS_MIN;
        (*at)->pause_ms = cairn_min_u64(pause_ms, PAUSE_MS_MAX);
        (*at)->until_ms = srv_mono_ms(server) + (*at)->pause_ms;
    }
    free_if_empty(tiers);
}

bool srv_copy_may_try(struct srv *server, const char *version, const char *store) {
    struct srv_tiers *tiers = server->tiers;
    CAIRN_HOLD(&tiers->lock);
    if (!tiers->copying) return true;
    struct failure *failure = *find_failure(tiers->copying, version, store);
    return !failure || failure->until_ms <= srv_mono_ms(server);
}

/* ---- stores that are away ---- */

static struct away *find_away(struct srv_copying *copying, const char *store) {
    for (size_t i = 0; copying && i < copying->away_count; i++)
        if (!strcmp(copying->away[i].store, store)) return &copying->away[i];
    return NULL;
}

void srv_copy_asked(struct srv *server, const char *store, enum cairn_code code) {
    struct srv_tiers *tiers = server->tiers;
    bool is_away = code == CAIRN_UNAVAILABLE || code == CAIRN_TIMEOUT;
    if (!tiers) return;
    CAIRN_HOLD(&tiers->lock);
    struct srv_copying *copying = is_away ? list_of(tiers) : tiers->copying;
    struct away *away = find_away(copying, store);
    if (!code && away) *away = copying->away[--copying->away_count];
    if (is_away && copying && !away && copying->away_count < SRV_TIERS_MAX) {
        away = &copying->away[copying->away_count++];
        *away = (struct away){.until_ms = srv_mono_ms(server) + AWAY_MS};
        (void)cairn_text_copy(away->store, sizeof(away->store), store);
    }
    free_if_empty(tiers);
}

bool srv_copy_may_ask(struct srv *server, const char *version, const char *store) {
    struct srv_tiers *tiers = server->tiers;
    if (!tiers) return true;
    CAIRN_HOLD(&tiers->lock);
    struct away *away = find_away(tiers->copying, store);
    if (!away || !strcmp(away->version, version)) return true;
    if (away->until_ms > srv_mono_ms(server)) return false;
    (void)cairn_text_copy(away->version, sizeof(away->version), version);
    away->until_ms = srv_mono_ms(server) + AWAY_MS;
    return true;
}

void srv_copies_forget_failures(struct srv *server) {
    struct srv_tiers *tiers = server->tiers;
    if (!tiers) return;
    CAIRN_HOLD(&tiers->lock);
    while (tiers->copying && tiers->copying->failures)
        drop_failure(tiers->copying, &tiers->copying->failures);
    if (tiers->copying) tiers->copying->away_count = 0;
    free_if_empty(tiers);
}

/* ---- damage ---- */

struct noting {
    struct srv *server;
    const struct srv_damage *found;
    struct srv_version version;
    struct srv_copy copy;
    uint64_t known;
    bool differs;
};

static enum cairn_code compare_damage(struct srv_tx *tx, struct noting *noting,
                                      struct cairn_error *err) {
    const struct srv_damage *found = noting->found;
    struct srv_copies copies;
    noting->differs = false;
    srv_version_release(&noting->version);
    CAIRN_TRY(srv_version_get(tx, found->version, &noting->version, err));
    CAIRN_TRY(srv_copies_get(tx, found->version, &copies, err));
    const struct srv_copy *copy = srv_copies_find(&copies, found->store);
    bool there = noting->version.state == CAIRN_STATE_COMMITTED && copy &&
                 copy->state == SRV_COPY_WHOLE && copy->changed_ms == found->changed_ms;
    if (!there) return CAIRN_OK; /* 4 */
    noting->copy = *copy;
    noting->known = copy->damaged;
    noting->copy.damaged =
        found->all ? found->objects : cairn_max_u64(copy->damaged, found->objects);
    noting->differs = noting->copy.damaged != noting->known;
    return CAIRN_OK;
}

static enum cairn_code put_damage(struct srv_tx *tx, void *argument, struct cairn_error *err) {
    static const enum srv_event worse = SRV_EVENT_COPY_DAMAGED, sound = SRV_EVENT_COPY_SOUND;
    struct noting *noting = argument;
    CAIRN_TRY(compare_damage(tx, noting, err));
    if (!noting->differs) return CAIRN_OK;
    noting->copy.damaged_ms = srv_wall_ms(noting->server);
    bool mended_in_part = noting->copy.damaged && noting->copy.damaged < noting->known;
    const enum srv_event *event = noting->copy.damaged ? &worse : &sound;
    return srv_copy_damage_put(tx, noting->found->version, &noting->copy,
                               mended_in_part ? NULL : event, err);
}

static void tell_damage(const struct noting *noting) {
    const struct srv_version *version = &noting->version;
    const char *store = noting->found->store;
    if (noting->copy.damaged > noting->known)
        cairn_log(WARN, "copy.damaged", "version=%s step=%" PRIu64 " store=%s objects=%" PRIu64,
                  version->id.text, version->step, store, noting->copy.damaged);
    if (!noting->copy.damaged)
        cairn_log(INFO, "copy.sound", "version=%s step=%" PRIu64 " store=%s", version->id.text,
                  version->step, store);
    srv_waiters_wake_version(noting->server->waiters, &version->id, &version->name);
}

static enum cairn_code note_damage(struct noting *noting, struct cairn_error *err) {
    struct srv_catalog *catalog = noting->server->catalog;
    {
        SRV_LOOK(look, catalog, err);
        CAIRN_TRY(compare_damage(look.tx, noting, err));
    }
    return noting->differs ? srv_catalog_write(catalog, put_damage, noting, err) : CAIRN_OK;
}

void srv_damage_note(struct srv *server, const struct srv_damage *damage) {
    struct noting noting = {.server = server, .found = damage};
    struct cairn_error why = {0};
    if (!damage->objects && !damage->all) return;
    enum cairn_code code = note_damage(&noting, &why);
    if (code && code != CAIRN_NOT_FOUND)
        cairn_log(WARN, "copy.damage_untold",
                  "version=%s store=%s objects=%" PRIu64 " cause=\"%s\"", damage->version,
                  damage->store, damage->objects, why.message);
    if (!code && noting.differs) tell_damage(&noting);
    srv_version_release(&noting.version);
}

uint64_t srv_damage_text(struct srv *server, char ret[SRV_DAMAGE_BYTES]) {
    SRV_AUTO(look) look = {0};
    struct srv_damaged_copies found = {.count = 0};
    ret[0] = '\0';
    if (srv_look_begin(server->catalog, &look, NULL) || srv_copies_damaged(look.tx, &found, NULL) ||
        !found.count)
        return 0;
    snprintf(ret, SRV_DAMAGE_BYTES,
             "%" PRIu64 " %s damaged objects; of %s/%s@%" PRIu64 " in store %s %" PRIu64
             ": cairn verify --repair",
             found.count, found.count == 1 ? "copy has" : "copies have", found.name.project,
             found.name.run, found.step, found.store, found.objects);
    return found.count;
}
