/* SPDX-License-Identifier: Apache-2.0 */
/* Holds, and the pauses after failures; see copying_now.h. */
#include "server/jobs/copying_now.h"

#include <stdlib.h>

#include "common/text.h"

#define PAUSE_MS_MIN 10000
#define PAUSE_MS_MAX UINT64_C(3600000)
#define FAILURES_MAX 4096

struct failure {
    char version[CAIRN_VERSION_ID_BYTES];
    uint64_t pause_ms, until_ms;
    struct failure *next;
};
struct cairn_srv_copying {
    struct cairn_srv_copy_hold *holds;
    struct failure *failures;
    size_t failure_count;
};

/* The list of the server, made with its first entry and freed with its last; the lock is held. */
static struct cairn_srv_copying *list_of(struct cairn_srv_tiers *tiers) {
    if (!tiers->copying) tiers->copying = calloc(1, sizeof(*tiers->copying));
    return tiers->copying;
}

static void tidy(struct cairn_srv_tiers *tiers) {
    if (!tiers->copying || tiers->copying->holds || tiers->copying->failures) return;
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

static struct failure **find_failure(struct cairn_srv_copying *copying, const char *version) {
    struct failure **at = &copying->failures;
    while (*at && strcmp((*at)->version, version)) at = &(*at)->next;
    return at;
}

static void drop_failure(struct cairn_srv_copying *copying, struct failure **at) {
    struct failure *failure = *at;
    *at = failure->next;
    copying->failure_count--;
    free(failure);
}

void cairn_srv_copy_failed(struct cairn_srv *server, const char *version, bool failed) {
    struct cairn_srv_tiers *tiers = server->tiers;
    CAIRN_HOLD(&tiers->lock);
    struct cairn_srv_copying *copying = list_of(tiers);
    if (!copying) return; /* without memory it is tried at the next sweep */
    struct failure **at = find_failure(copying, version), *fresh = NULL;
    if (!failed && *at) drop_failure(copying, at);
    if (failed && !*at && copying->failure_count < FAILURES_MAX &&
        (fresh = calloc(1, sizeof(*fresh)))) {
        (void)cairn_text_copy(fresh->version, sizeof(fresh->version), version);
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

bool cairn_srv_copy_may_try(struct cairn_srv *server, const char *version) {
    struct cairn_srv_tiers *tiers = server->tiers;
    CAIRN_HOLD(&tiers->lock);
    if (!tiers->copying) return true;
    struct failure *failure = *find_failure(tiers->copying, version);
    return !failure || failure->until_ms <= cairn_srv_mono_ms(server);
}

void cairn_srv_copies_forget_failures(struct cairn_srv *server) {
    struct cairn_srv_tiers *tiers = server->tiers;
    if (!tiers) return;
    CAIRN_HOLD(&tiers->lock);
    while (tiers->copying && tiers->copying->failures)
        drop_failure(tiers->copying, &tiers->copying->failures);
    tidy(tiers);
}
