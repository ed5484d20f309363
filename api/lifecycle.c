/* SPDX-License-Identifier: Apache-2.0 */
/* lifecycle: api/lifecycle.def turned into a table. */
#include "api/lifecycle.h"

struct move {
    enum cairn_state from;
    enum cairn_event event;
    enum cairn_state to;
};
static const struct move moves[] = {
#define MOVE(from, event, to, why) {CAIRN_STATE_##from, CAIRN_EVENT_##event, CAIRN_STATE_##to},
#include "api/lifecycle.def"
#undef MOVE
};
static const char *const state_texts[] = {
    [CAIRN_STATE_OPEN] = "open",         [CAIRN_STATE_COMMITTED] = "committed",
    [CAIRN_STATE_DELETING] = "deleting", [CAIRN_STATE_ABORTING] = "aborting",
    [CAIRN_STATE_GONE] = "gone",
};

bool cairn_state_after(enum cairn_state from, enum cairn_event event, enum cairn_state *ret) {
    for (size_t i = 0; i < CAIRN_COUNT(moves); i++) {
        if (moves[i].from != from || moves[i].event != event) continue;
        *ret = moves[i].to;
        return true;
    }
    return false;
}

const char *cairn_state_text(enum cairn_state state) {
    CAIRN_ASSERT((size_t)state < CAIRN_COUNT(state_texts));
    return state_texts[state];
}

bool cairn_state_parse(struct cairn_view text, enum cairn_state *ret) {
    for (size_t i = 0; i < CAIRN_COUNT(state_texts); i++) {
        if (strlen(state_texts[i]) != text.size) continue;
        if (memcmp(state_texts[i], text.data, text.size) != 0) continue;
        *ret = (enum cairn_state)i;
        return true;
    }
    return false;
}
