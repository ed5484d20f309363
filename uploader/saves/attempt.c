/* SPDX-License-Identifier: Apache-2.0 */
/* Attempts are few (one per job on this node), so a list does. */
#include "uploader/saves/attempt.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/text.h"
#include "uploader/peers/peers.h"

enum cairn_code cairn_up_attempt_join(struct cairn_up *up, const char *grant_text,
                                      struct cairn_up_attempt **ret, struct cairn_error *err) {
    for (struct cairn_up_attempt *at = up->locked.attempts; at; at = at->next) {
        if (strcmp(at->text, grant_text) != 0) continue;
        at->users++;
        *ret = at;
        return CAIRN_OK;
    }
    struct cairn_up_attempt *made = calloc(1, sizeof(*made));
    if (!made) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for an attempt");
    enum cairn_code code = cairn_grant_parse(grant_text, &made->grant, err);
    if (code == CAIRN_OK && !cairn_text_copy(made->text, sizeof(made->text), grant_text))
        code = cairn_fail(err, CAIRN_PROTOCOL, "the grant is longer than %d bytes",
                          CAIRN_GRANT_BYTES_MAX);
    if (code != CAIRN_OK) {
        free(made);
        return code;
    }
    snprintf(made->run_text, sizeof(made->run_text), "%s/%s", made->grant.name.project,
             made->grant.name.run);
    made->users = 1;
    made->next = up->locked.attempts;
    up->locked.attempts = made;
    if (up->peers) {
        /* From now on its list is awaited: that of the attempt before names other nodes. */
        (void)cairn_up_members_name(&up->peers->members, made->text);
        cairn_up_members_hurry(&up->peers->members);
    }
    *ret = made;
    return CAIRN_OK;
}

void cairn_up_attempt_leave(struct cairn_up *up, struct cairn_up_attempt *attempt) {
    if (!attempt) return;
    CAIRN_ASSERT(attempt->users > 0);
    if (--attempt->users) return;
    struct cairn_up_attempt **at = &up->locked.attempts;
    while (*at != attempt) at = &(*at)->next;
    *at = attempt->next;
    while (attempt->counted) {
        struct cairn_up_counted *counted = attempt->counted;
        attempt->counted = counted->next;
        free(counted);
    }
    free(attempt);
}

struct cairn_up_attempt *cairn_up_attempt_find(struct cairn_up *up, const char *run_text,
                                               uint64_t number, const char *nonce) {
    for (struct cairn_up_attempt *at = up->locked.attempts; at; at = at->next) {
        if (at->grant.attempt == number && !strcmp(at->grant.nonce, nonce) &&
            !strcmp(at->run_text, run_text))
            return at;
    }
    return NULL;
}

/* ---- what ranks have counted ---- */

const struct cairn_up_counted *cairn_up_attempt_counted(const struct cairn_up_attempt *attempt,
                                                        uint32_t rank) {
    const struct cairn_up_counted *at = attempt->counted;
    while (at && at->rank != rank) at = at->next;
    return at;
}

uint32_t cairn_up_counted_of(const struct cairn_up_counted *counted, uint64_t step) {
    for (size_t i = 0; counted && i < CAIRN_COUNT(counted->steps); i++)
        if (counted->steps[i].n && counted->steps[i].step == step) return counted->steps[i].n;
    return 0;
}

static struct cairn_up_counted *counted_of(struct cairn_up_attempt *attempt, uint32_t rank) {
    struct cairn_up_counted *at = attempt->counted;
    while (at && at->rank != rank) at = at->next;
    if (at) return at;
    at = calloc(1, sizeof(*at));
    if (!at) return NULL;
    at->rank = rank;
    at->next = attempt->counted;
    attempt->counted = at;
    return at;
}

void cairn_up_attempt_count(struct cairn_up_attempt *attempt, uint32_t rank, uint32_t world_size,
                            uint64_t step, uint32_t n) {
    struct cairn_up_counted *counted = counted_of(attempt, rank);
    if (!counted || !n) return;
    counted->world_size = world_size;
    for (size_t i = 0; i < CAIRN_COUNT(counted->steps); i++) {
        if (!counted->steps[i].n || counted->steps[i].step != step) continue;
        if (n > counted->steps[i].n) counted->steps[i].n = n;
        return;
    }
    counted->steps[counted->place].step = step;
    counted->steps[counted->place].n = n;
    counted->place = (counted->place + 1) % CAIRN_COUNT(counted->steps);
}
