/* SPDX-License-Identifier: Apache-2.0 */
/* One judgement for each row of api/awaited.def; see awaited.h. */
#include "server/versions/awaited.h"

#include <string.h>

#include "api/messages.h"
#include "server/db/catalog.h"
#include "server/events/feed.h"
#include "server/guard/stores.h"
#include "server/ledger/shards.h"

enum cairn_code cairn_srv_awaited_read(const struct cairn_srv_request *request,
                                       struct cairn_srv_awaited *ret, struct cairn_error *err) {
    const char *text = cairn_query_get(&request->query, "for");
    *ret = (struct cairn_srv_awaited){.asked = text != NULL};
    if (!text) return CAIRN_OK;
    enum cairn_code code = cairn_awaited_parse(text, &ret->what, err);
    if (code) return cairn_within(err, code, "for");
    if (ret->what.state != CAIRN_AWAITED_PROMOTED ||
        cairn_srv_tier_find(request->server, ret->what.store))
        return CAIRN_OK;
    return cairn_fail(err, CAIRN_INVALID, "for=%s: this server has no store %s", text,
                      ret->what.store);
}

uint64_t cairn_srv_awaited_key(const struct cairn_awaited *what,
                               const struct cairn_version_id *version) {
    char key[CAIRN_SRV_EVENTS_KEY_BYTES];
    /* Every node of a save waits for that: it is woken by the end alone. */
    if (what->state == CAIRN_AWAITED_COMMITTED) return cairn_srv_key_of(version->text);
    cairn_srv_events_key_of_version(version, key);
    return cairn_srv_key_of(key);
}

/* ---- judging ---- */

enum cairn_code cairn_srv_awaited_look(struct cairn_srv_tx *tx, struct cairn_srv_awaited *awaited,
                                       const struct cairn_srv_version *version,
                                       struct cairn_error *err) {
    if (!awaited->asked || awaited->what.state != CAIRN_AWAITED_DECIDED) return CAIRN_OK;
    return cairn_srv_rank_sealed(tx, version->id.text, 0, &awaited->decided, err);
}

static bool is_whole_in(const struct cairn_msg_version_row *row, const char *store) {
    size_t index = 0;
    json_t *item = NULL;
    json_array_foreach((json_t *)(uintptr_t)row->copies, index, item) {
        struct cairn_msg_copy_row copy = {0};
        if (cairn_msg_copy_row_read(item, "", &copy, NULL)) continue;
        if (!strcmp(copy.store, store)) return !strcmp(copy.state, "whole");
    }
    return false;
}

/* Of one that is open, or that is committed and there. */
static bool has_come_to(const struct cairn_srv_awaited *awaited,
                        const struct cairn_srv_version *version,
                        const struct cairn_msg_version_row *row) {
    const struct cairn_awaited *what = &awaited->what;
    bool committed = cairn_srv_version_shown(version) == CAIRN_STATE_COMMITTED;
    bool staged = row->ranks_sealed >= row->world_size;
    switch (what->state) {
    case CAIRN_AWAITED_BEGUN:
        return true;
    case CAIRN_AWAITED_DECIDED:
        return committed || staged || awaited->decided;
    case CAIRN_AWAITED_STAGED:
        return committed || staged;
    case CAIRN_AWAITED_DURABLE:
        return committed || (staged && row->shards_registered >= row->shards);
    case CAIRN_AWAITED_COMMITTED:
        return committed;
    case CAIRN_AWAITED_PROMOTED:
        return is_whole_in(row, what->store);
    default:
        return what->state == CAIRN_AWAITED_TRASHED && row->trashed;
    }
}

static enum cairn_outcome judge(const struct cairn_srv_awaited *awaited,
                                const struct cairn_srv_version *version,
                                const struct cairn_msg_version_row *row) {
    const struct cairn_awaited *what = &awaited->what;
    enum cairn_state state = cairn_srv_version_shown(version);
    bool goes = what->state == CAIRN_AWAITED_GONE;
    bool deleted = cairn_srv_version_there(version, NULL) != CAIRN_OK;
    bool given_up = !deleted && state != CAIRN_STATE_OPEN && state != CAIRN_STATE_COMMITTED;
    if (goes) return state == CAIRN_STATE_GONE ? CAIRN_OUTCOME_REACHED : CAIRN_OUTCOME_NOT_YET;
    if (deleted)
        return cairn_awaited_is_removal(what->state) ? CAIRN_OUTCOME_REACHED : CAIRN_OUTCOME_NEVER;
    if (given_up)
        return what->state == CAIRN_AWAITED_ABORTED || what->state == CAIRN_AWAITED_BEGUN
                   ? CAIRN_OUTCOME_REACHED
                   : CAIRN_OUTCOME_NEVER;
    if (what->state == CAIRN_AWAITED_ABORTED && state == CAIRN_STATE_COMMITTED)
        return CAIRN_OUTCOME_NEVER;
    return has_come_to(awaited, version, row) ? CAIRN_OUTCOME_REACHED : CAIRN_OUTCOME_NOT_YET;
}

enum cairn_code cairn_srv_awaited_judge(const struct cairn_srv_awaited *awaited,
                                        const struct cairn_srv_version *version,
                                        const json_t *shown, enum cairn_outcome *ret,
                                        struct cairn_error *err) {
    struct cairn_msg_version_row row = {0};
    CAIRN_TRY(cairn_msg_version_row_read(shown, "", &row, err));
    *ret = judge(awaited, version, &row);
    return CAIRN_OK;
}
