/* SPDX-License-Identifier: Apache-2.0 */
/* The words of api/awaited.def, and what is said of them. */
#include "api/awaited.h"

#include <stdio.h>
#include <string.h>

static const char *const states[] = {
#define AWAITED(id, text, when) [CAIRN_AWAITED_##id] = text,
#include "api/awaited.def"
#undef AWAITED
};
static const char *const outcomes[] = {[CAIRN_OUTCOME_NOT_YET] = "not_yet",
                                       [CAIRN_OUTCOME_REACHED] = "reached",
                                       [CAIRN_OUTCOME_NEVER] = "never"};

struct cairn_view cairn_awaited_word(enum cairn_awaited_state state) {
    CAIRN_ASSERT(state < CAIRN_AWAITED_COUNT);
    return (struct cairn_view){states[state], strcspn(states[state], ":")};
}

static enum cairn_code refuse(const char *text, struct cairn_error *err) {
    char known[160] = "";
    for (size_t i = 0, used = 0; i < CAIRN_COUNT(states); i++)
        used +=
            (size_t)snprintf(known + used, sizeof(known) - used, "%s%s", i ? ", " : "", states[i]);
    return cairn_fail(err, CAIRN_INVALID, "\"%.64s\" cannot be waited for; what can is %s", text,
                      known);
}

enum cairn_code cairn_awaited_parse(const char *text, struct cairn_awaited *ret,
                                    struct cairn_error *err) {
    size_t size = strcspn(text, ":"), state = 0;
    for (; state < CAIRN_AWAITED_COUNT; state++) {
        struct cairn_view word = cairn_awaited_word((enum cairn_awaited_state)state);
        if (word.size == size && !memcmp(word.data, text, size)) break;
    }
    const char *store = text[size] ? text + size + 1 : NULL;
    if (state == CAIRN_AWAITED_COUNT || (state == CAIRN_AWAITED_PROMOTED) != (store != NULL))
        return refuse(text, err);
    if (store) CAIRN_TRY(cairn_store_name_check(cairn_view_of(store), err));
    *ret = (struct cairn_awaited){.state = (enum cairn_awaited_state)state};
    snprintf(ret->store, sizeof(ret->store), "%s", store ? store : "");
    return CAIRN_OK;
}

bool cairn_awaited_is_removal(enum cairn_awaited_state state) {
    return state == CAIRN_AWAITED_TRASHED || state == CAIRN_AWAITED_DELETED ||
           state == CAIRN_AWAITED_GONE;
}

const char *cairn_outcome_text(enum cairn_outcome outcome) {
    CAIRN_ASSERT(outcome < CAIRN_COUNT(outcomes));
    return outcomes[outcome];
}

enum cairn_code cairn_outcome_parse(const char *text, enum cairn_outcome *ret,
                                    struct cairn_error *err) {
    for (size_t i = 0; i < CAIRN_COUNT(outcomes); i++) {
        if (strcmp(text, outcomes[i]) != 0) continue;
        *ret = (enum cairn_outcome)i;
        return CAIRN_OK;
    }
    return cairn_fail(err, CAIRN_PROTOCOL, "awaited is \"%.32s\"", text);
}
