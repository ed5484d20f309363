/* SPDX-License-Identifier: Apache-2.0 */
/*
 * words: names of a version's states, of states to wait for, of token scopes, and quotas, shared by
 * server, command and uploader.
 *
 *     open --COMMIT--> committed --DELETE--> deleting --SWEPT--> gone
 *       \--GIVE_UP--> aborting --SWEPT--> gone
 *     open, aborting, gone --TAKE_OVER--> committed, if only the store had the commit
 *
 * Why:     programs that read and write the same words need one list. A save refused for a quota
 *          has a text in its row, the same for every rank and for ever; the problem body also has
 *          the numbers as members.
 * Promise: 1   cairn_state_after returns false for every move that is not a row of
 *              api/lifecycle.def.
 *          2   an awaited state that is no row of api/awaited.def is CAIRN_INVALID with all rows.
 *          3   a pattern matches a whole project name or none of it: "run1" does not match "run10".
 *          4   text from cairn_quota_excess_text parses to the same numbers; no other text parses.
 * Limits:  recorded, trashed, superseded and pinned are attributes of committed, not states. Names
 *          of stores as in api/documents/keys.h, patterns of CAIRN_NAME_BYTES_MAX bytes.
 * Threads: stateless; structs belong to their caller.
 * Next:    api/lifecycle.def, api/awaited.def, api/scopes.def; server/ledger/policies.h.
 */
#pragma once

#include "api/documents/keys.h"
#include "common/json.h"

/* Stored in catalogs: a released number keeps its meaning. */
#define CAIRN_STATE_NUMBER_OPEN 0
#define CAIRN_STATE_NUMBER_COMMITTED 1
#define CAIRN_STATE_NUMBER_DELETING 2
#define CAIRN_STATE_NUMBER_ABORTING 3
#define CAIRN_STATE_NUMBER_GONE 4
enum cairn_state {
    CAIRN_STATE_OPEN = CAIRN_STATE_NUMBER_OPEN,
    CAIRN_STATE_COMMITTED = CAIRN_STATE_NUMBER_COMMITTED,
    CAIRN_STATE_DELETING = CAIRN_STATE_NUMBER_DELETING,
    CAIRN_STATE_ABORTING = CAIRN_STATE_NUMBER_ABORTING,
    CAIRN_STATE_GONE = CAIRN_STATE_NUMBER_GONE
};
enum cairn_event {
    CAIRN_EVENT_COMMIT,
    CAIRN_EVENT_GIVE_UP,
    CAIRN_EVENT_DELETE,
    CAIRN_EVENT_SWEPT,
    CAIRN_EVENT_TAKE_OVER,
};
bool cairn_state_after(enum cairn_state from, enum cairn_event event, enum cairn_state *ret);
const char *cairn_state_text(enum cairn_state state); /* "open", "committed", ... */
bool cairn_state_parse(struct cairn_view text, enum cairn_state *ret);

/* ---- awaited states of a version ---- */

enum cairn_awaited_state {
#define AWAITED(id, text, when) CAIRN_AWAITED_##id,
#include "api/awaited.def"
#undef AWAITED
    CAIRN_AWAITED_COUNT
};
struct cairn_awaited {
    enum cairn_awaited_state state;
    char store[CAIRN_STORE_NAME_BYTES]; /* PROMOTED only */
};
enum cairn_code cairn_awaited_parse(const char *text, struct cairn_awaited *ret,
                                    struct cairn_error *err) CAIRN_MUST_USE;
/* "promoted", without the store. */
struct cairn_view cairn_awaited_word(enum cairn_awaited_state state);
/* Is it a removal? Nothing waits for the removal of a version that does not exist. */
bool cairn_awaited_is_removal(enum cairn_awaited_state state);

/* The member `awaited` of a version in the server's answer. */
enum cairn_outcome { CAIRN_OUTCOME_NOT_YET, CAIRN_OUTCOME_REACHED, CAIRN_OUTCOME_NEVER };
const char *cairn_outcome_text(enum cairn_outcome outcome);
/* CAIRN_PROTOCOL: unknown word. */
enum cairn_code cairn_outcome_parse(const char *text, enum cairn_outcome *ret,
                                    struct cairn_error *err) CAIRN_MUST_USE;

/* ---- scopes and projects of bearer tokens ---- */

#define CAIRN_SCOPES_TEXT_BYTES 64

enum cairn_scope_index {
#define SCOPE(id, name, what) CAIRN_SCOPE_INDEX_##id,
#include "api/scopes.def"
#undef SCOPE
    CAIRN_SCOPE_COUNT
};
enum cairn_scope {
#define SCOPE(id, name, what) CAIRN_SCOPE_##id = 1 << CAIRN_SCOPE_INDEX_##id,
#include "api/scopes.def"
#undef SCOPE
    CAIRN_SCOPES_ALL = (1 << CAIRN_SCOPE_COUNT) - 1
};

/* "read,write"; at least one scope, none twice. */
enum cairn_code cairn_scopes_parse(const char *text, unsigned *ret,
                                   struct cairn_error *err) CAIRN_MUST_USE;
/* The same for a JSON array. */
enum cairn_code cairn_scopes_read(const json_t *array, unsigned *ret,
                                  struct cairn_error *err) CAIRN_MUST_USE;
void cairn_scopes_text(unsigned scopes, char ret[CAIRN_SCOPES_TEXT_BYTES]);
json_t *cairn_scopes_json(unsigned scopes); /* NULL: no memory */

/* A project name with '*' for any bytes and '?' for one. */
bool cairn_project_pattern_valid(const char *pattern);
bool cairn_project_pattern_fits(const char *pattern, const char *project);
/* Does `outer` match every project of `inner`? May be false if that is not obvious. */
bool cairn_project_pattern_covers(const char *outer, const char *inner);

/* ---- quotas ---- */

#define CAIRN_QUOTA_NONE UINT64_MAX /* no bound; equals CAIRN_MESSAGE_NONE */
#define CAIRN_QUOTA_MAX ((uint64_t)INT64_MAX)

/* The excess of a refused save. asked: 1 for versions; 0 for bytes, since a save's size is known
 * only as its ranks seal. */
struct cairn_quota_excess {
    const char *resource; /* "versions" or "bytes" */
    uint64_t limit, used, asked;
};
void cairn_quota_excess_text(const struct cairn_quota_excess *excess, const char *project,
                             char *ret, size_t capacity);
bool cairn_quota_excess_read(const char *text, struct cairn_quota_excess *ret);
/* Adds the members "resource", "limit", "used" and "asked". */
bool cairn_quota_excess_put(json_t *object, const struct cairn_quota_excess *excess) CAIRN_MUST_USE;
/* "10 versions, 4096 bytes"; "no bound". */
void cairn_quota_text(uint64_t versions, uint64_t bytes, char *ret, size_t capacity);
