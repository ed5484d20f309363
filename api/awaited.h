/* SPDX-License-Identifier: Apache-2.0 */
/*
 * awaited: what a version can be waited for to be, as text.
 *
 * Why:     the server waits for it and the command asks for it; both must take the same words, and
 *          the one must understand how the other says that it waits in vain.
 * Promise: 1   a text that is no row of api/awaited.def is CAIRN_INVALID with all of them.
 * Limits:  names of stores as in api/keys.h.
 * Threads: stateless.
 * Next:    api/awaited.def, server/versions/checkpoints.c, cli/verbs/wait.c.
 */
#pragma once

#include "api/keys.h"

enum cairn_awaited_state {
#define AWAITED(id, text, when) CAIRN_AWAITED_##id,
#include "api/awaited.def"
#undef AWAITED
    CAIRN_AWAITED_COUNT
};
struct cairn_awaited {
    enum cairn_awaited_state state;
    char store[CAIRN_STORE_NAME_BYTES]; /* of PROMOTED */
};
enum cairn_code cairn_awaited_parse(const char *text, struct cairn_awaited *ret,
                                    struct cairn_error *err) CAIRN_MUST_USE;
/* "promoted", without a store. */
struct cairn_view cairn_awaited_word(enum cairn_awaited_state state);
/* Only what is there can be removed, so one that is not is not waited for. */
bool cairn_awaited_is_removal(enum cairn_awaited_state state);

/* What the server says of it, in the member `awaited` of a version. */
enum cairn_outcome { CAIRN_OUTCOME_NOT_YET, CAIRN_OUTCOME_REACHED, CAIRN_OUTCOME_NEVER };
const char *cairn_outcome_text(enum cairn_outcome outcome);
/* CAIRN_PROTOCOL: no such word. */
enum cairn_code cairn_outcome_parse(const char *text, enum cairn_outcome *ret,
                                    struct cairn_error *err) CAIRN_MUST_USE;
