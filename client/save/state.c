/* SPDX-License-Identifier: Apache-2.0 */
/* client/save/state.def turned into a table. */
#include "client/save/state.h"

static const struct {
    enum cairn_client_phase from;
    enum cairn_client_event event;
    enum cairn_client_phase to;
    enum cairn_client_reached reached;
} moves[] = {
#define MOVE(from, event, to, reached, why)                                                        \
    {CAIRN_CLIENT_PHASE_##from, CAIRN_CLIENT_EVENT_##event, CAIRN_CLIENT_PHASE_##to,               \
     CAIRN_CLIENT_REACHED_##reached},
#include "client/save/state.def"
#undef MOVE
};

bool cairn_client_save_state_move(struct cairn_client_save_state *save,
                                  enum cairn_client_event event) {
    for (size_t i = 0; i < CAIRN_COUNT(moves); i++) {
        if (moves[i].from != save->phase || moves[i].event != event) continue;
        save->phase = moves[i].to;
        if (save->reached < moves[i].reached) save->reached = moves[i].reached;
        return true;
    }
    return false;
}

bool cairn_client_save_state_is_over(const struct cairn_client_save_state *save) {
    return save->phase == CAIRN_CLIENT_PHASE_COMMITTED ||
           save->phase == CAIRN_CLIENT_PHASE_CANCELLED || save->phase == CAIRN_CLIENT_PHASE_FAILED;
}

bool cairn_client_save_state_is_unsent(const struct cairn_client_save_state *save) {
    return save->phase == CAIRN_CLIENT_PHASE_STAGED && save->reached < CAIRN_CLIENT_REACHED_DURABLE;
}
