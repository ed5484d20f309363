/* SPDX-License-Identifier: Apache-2.0 */
/* A place for each cause; one whose minute is over and of which nothing is unsaid is free. */
#include "common/log_limit.h"

static uint64_t hash_of(const char *cause) {
    uint64_t hash = UINT64_C(14695981039346656037);
    for (; *cause; cause++) hash = (hash ^ (uint8_t)*cause) * UINT64_C(1099511628211);
    return hash ? hash : 1;
}

/* The last place is that of all causes for which there is none. */
static size_t place_of(struct cairn_log_limit *limit, uint64_t cause, uint64_t now_ms) {
    for (size_t i = 0; i < CAIRN_LOG_LIMIT_CAUSES; i++)
        if (limit->causes[i].cause == cause) return i;
    for (size_t i = 0; i < CAIRN_LOG_LIMIT_CAUSES; i++) {
        bool old =
            now_ms - limit->causes[i].said_ms >= CAIRN_LOG_LIMIT_MS && !limit->causes[i].unsaid;
        if (limit->causes[i].cause && !old) continue;
        limit->causes[i].cause = 0;
        return i;
    }
    return CAIRN_LOG_LIMIT_CAUSES;
}

bool cairn_log_limit_allows(struct cairn_log_limit *limit, const char *cause, uint64_t now_ms,
                            uint64_t *ret_unsaid) {
    uint64_t hash = hash_of(cause);
    size_t at = place_of(limit, hash, now_ms);
    if (limit->causes[at].cause && now_ms - limit->causes[at].said_ms < CAIRN_LOG_LIMIT_MS) {
        limit->causes[at].unsaid++;
        return false;
    }
    *ret_unsaid = limit->causes[at].unsaid;
    limit->causes[at].cause = hash;
    limit->causes[at].said_ms = now_ms;
    limit->causes[at].unsaid = 0;
    return true;
}
