/* SPDX-License-Identifier: Apache-2.0 */
/* A place for each cause; one whose minute is over and of which nothing is unsaid is free. */
#include "common/often.h"

static uint64_t hash_of(const char *cause) {
    uint64_t hash = UINT64_C(14695981039346656037);
    for (; *cause; cause++) hash = (hash ^ (uint8_t)*cause) * UINT64_C(1099511628211);
    return hash ? hash : 1;
}

/* The last place is that of all causes for which there is none. */
static size_t place_of(struct cairn_often *often, uint64_t cause, uint64_t now_ms) {
    for (size_t i = 0; i < CAIRN_OFTEN_CAUSES; i++)
        if (often->causes[i].cause == cause) return i;
    for (size_t i = 0; i < CAIRN_OFTEN_CAUSES; i++) {
        bool old = now_ms - often->causes[i].said_ms >= CAIRN_OFTEN_MS && !often->causes[i].unsaid;
        if (often->causes[i].cause && !old) continue;
        often->causes[i].cause = 0;
        return i;
    }
    return CAIRN_OFTEN_CAUSES;
}

bool cairn_often_says(struct cairn_often *often, const char *cause, uint64_t now_ms,
                      uint64_t *ret_unsaid) {
    uint64_t hash = hash_of(cause);
    size_t at = place_of(often, hash, now_ms);
    if (often->causes[at].cause && now_ms - often->causes[at].said_ms < CAIRN_OFTEN_MS) {
        often->causes[at].unsaid++;
        return false;
    }
    *ret_unsaid = often->causes[at].unsaid;
    often->causes[at].cause = hash;
    often->causes[at].said_ms = now_ms;
    often->causes[at].unsaid = 0;
    return true;
}
