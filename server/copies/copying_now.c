/* SPDX-License-Identifier: Apache-2.0 */
/* Holds, and the pauses after failures; see copying_now.h. */
#include "server/copies/copying_now.h"

#include <stdlib.h>

#include "common/text.h"

#define PAUSE_MS_MIN 10000
#define PAUSE_MS_MAX UINT64_C(3600000)
#define FAILURES_MAX 4096
#define AWAY_MS UINT64_C(60000)

struct failure {
    char version[CAIRN_VERSION_ID_BYTES], store[CAIRN_SRV_TIER_NAME_BYTES];
    uint64_t pause_ms, until_ms;
    struct failure *next;
};
/* A store that did not answer. */
struct away {
    char store[CAIRN_SRV_TIER_NAME_BYTES];
    char version[CAIRN_VERSION_ID_BYTES]; /* that it is asked for meanwhile; "": none yet */
    uint64_t until_ms;
};
struct cairn_srv_copying {
    struct cairn_srv_copy_hold *holds;
    struct failure *failures;
    size_t failure_count;
    struct away away[CAIRN_SRV_TIERS_MAX];
    size_t away_count;
};

/* The list of the server, made with its first entry and freed with its last; the lock is held. */
static struct cairn_srv_copying *list_of(struct cairn_srv_tiers *tiers) {
    if (!tiers->copying) tiers->copying = calloc(1, sizeof(*tiers->copying));
    return tiers->copying;
}

static void tidy(struct cairn_srv_tiers *tiers) {
    const struct cairn_srv_copying *copying = tiers->copying;
    if (!copying || copying->holds || copying->failures || copying->away_count) return;
    free(tiers->copying);
    tiers->copying = NULL;
}

static struct cairn_srv_copy_hold *find(const struct cairn_srv_tiers *tiers, const char *version) {
    struct cairn_srv_copy_hold *hold = tiers->copying ? tiers->copying->holds : NULL;
    while (hold && strcmp(hold->version, version)) hold = hold->next;
    return hold;
}

static enum cairn_code enter(struct cairn_srv_copy_hold *hold, struct cairn_error *err) {
    struct cairn_srv_tiers *tiers = hold->server->tiers;
    CAIRN_HOLD(&tiers->lock);
    if (find(tiers, hold->version))
        return cairn_fail(err, CAIRN_BUSY, "a copy of %s is being made or removed", hold->version);
    struct cairn_srv_copying *copying = list_of(tiers);
    if (!copying) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory to copy a version");
    hold->next = copying->holds;
    copying->holds = hold;
    hold->held = true;
    return CAIRN_OK;
}

enum cairn_code cairn_srv_copy_hold_take(struct cairn_srv_copy_hold *hold,
                                         struct cairn_srv *server, const char *version,
                                         struct cairn_error *err) {
    *hold = (struct cairn_srv_copy_hold){.server = server};
    (void)cairn_text_copy(hold->version, sizeof(hold->version), version);
    cairn_srv_lease_init(&hold->lease, server, "copy", version);
    CAIRN_TRY(enter(hold, err));
    enum cairn_code code = cairn_srv_lease_take(&hold->lease, err);
    if (code) cairn_srv_copy_hold_end(hold);
    return code;
}

void cairn_srv_copy_hold_end(struct cairn_srv_copy_hold *hold) {
    if (!hold->held) return;
    cairn_srv_lease_end(&hold->lease);
    struct cairn_srv_tiers *tiers = hold->server->tiers;
    CAIRN_HOLD(&tiers->lock);
    struct cairn_srv_copy_hold **at = &tiers->copying->holds;
    while (*at && *at != hold) at = &(*at)->next;
    CAIRN_ASSERT(*at); /* it is listed until here */
    *at = hold->next;
    hold->held = false;
    tidy(tiers);
}

bool cairn_srv_copy_is_held(struct cairn_srv *server, const char *version) {
    if (!server->tiers) return false;
    CAIRN_HOLD(&server->tiers->lock);
    return find(server->tiers, version);
}

/* ---- failures ---- */

static struct failure **find_failure(struct cairn_srv_copying *copying, const char *version,
                                     const char *store) {
    struct failure **at = &copying->failures;
    while (*at && (strcmp((*at)->version, version) || strcmp((*at)->store, store)))
        at = &(*at)->next;
    return at;
}

static void drop_failure(struct cairn_srv_copying *copying, struct failure **at) {
    struct failure *failure = *at;
    *at = failure->next;
    copying->failure_count--;
    free(failure);
}

void cairn_srv_copy_failed(struct cairn_srv *server, const char *version, const char *store,
                           bool failed) {
    struct cairn_srv_tiers *tiers = server->tiers;
    CAIRN_HOLD(&tiers->lock);
    struct cairn_srv_copying *copying = list_of(tiers);
    if (!copying) return; /* without memory it is tried at the next sweep */
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
        (*at)->until_ms = cairn_srv_mono_ms(server) + (*at)->pause_ms;
    }
    tidy(tiers);
}

bool cairn_srv_copy_may_try(struct cairn_srv *server, const char *version, const char *store) {
    struct cairn_srv_tiers *tiers = server->tiers;
    CAIRN_HOLD(&tiers->lock);
    if (!tiers->copying) return true;
    struct failure *failure = *find_failure(tiers->copying, version, store);
    return !failure || failure->until_ms <= cairn_srv_mono_ms(server);
}

/* ---- stores that are away ---- */

static struct away *find_away(struct cairn_srv_copying *copying, const char *store) {
    for (size_t i = 0; copying && i < copying->away_count; i++)
        if (!strcmp(copying->away[i].store, store)) return &copying->away[i];
    return NULL;
}

void cairn_srv_copy_asked(struct cairn_srv *server, const char *store, enum cairn_code code) {
    struct cairn_srv_tiers *tiers = server->tiers;
    bool is_away = code == CAIRN_UNAVAILABLE || code == CAIRN_TIMEOUT;
    if (!tiers) return;
    CAIRN_HOLD(&tiers->lock);
    struct cairn_srv_copying *copying = is_away ? list_of(tiers) : tiers->copying;
    struct away *away = find_away(copying, store);
    if (!code && away) *away = copying->away[--copying->away_count];
    if (is_away && copying && !away && copying->away_count < CAIRN_SRV_TIERS_MAX) {
        away = &copying->away[copying->away_count++];
        *away = (struct away){.until_ms = cairn_srv_mono_ms(server) + AWAY_MS};
        (void)cairn_text_copy(away->store, sizeof(away->store), store);
    }
    tidy(tiers);
}

bool cairn_srv_copy_may_ask(struct cairn_srv *server, const char *version, const char *store) {
    struct cairn_srv_tiers *tiers = server->tiers;
    if (!tiers) return true;
    CAIRN_HOLD(&tiers->lock);
    struct away *away = find_away(tiers->copying, store);
    if (!away || !strcmp(away->version, version)) return true;
    if (away->until_ms > cairn_srv_mono_ms(server)) return false;
    (void)cairn_text_copy(away->version, sizeof(away->version), version);
    away->until_ms = cairn_srv_mono_ms(server) + AWAY_MS;
    return true;
}

void cairn_srv_copies_forget_failures(struct cairn_srv *server) {
    struct cairn_srv_tiers *tiers = server->tiers;
    if (!tiers) return;
    CAIRN_HOLD(&tiers->lock);
    while (tiers->copying && tiers->copying->failures)
        drop_failure(tiers->copying, &tiers->copying->failures);
    if (tiers->copying) tiers->copying->away_count = 0;
    tidy(tiers);
}
