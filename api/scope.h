/* SPDX-License-Identifier: Apache-2.0 */
/*
 * scope: what a bearer token may allow, and the projects that it is bound to.
 *
 * Why:     routes, server and command must read and write the same words.
 * Promise: 1   a pattern fits a whole project name or none of it: "run1" does not fit "run10".
 * Limits:  patterns of CAIRN_NAME_BYTES_MAX bytes.
 * Threads: stateless.
 * Next:    api/scopes.def, api/token.h.
 */
#pragma once

#include "common/json.h"

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

/* "read,write"; at least one, none twice. */
enum cairn_code cairn_scopes_parse(const char *text, unsigned *ret,
                                   struct cairn_error *err) CAIRN_MUST_USE;
/* The same of a JSON array. */
enum cairn_code cairn_scopes_read(const json_t *array, unsigned *ret,
                                  struct cairn_error *err) CAIRN_MUST_USE;
void cairn_scopes_text(unsigned scopes, char ret[CAIRN_SCOPES_TEXT_BYTES]);
json_t *cairn_scopes_json(unsigned scopes); /* NULL: no memory */

/* A name of a project in which '*' stands for any bytes and '?' for one. */
bool cairn_project_pattern_valid(const char *pattern);
bool cairn_project_pattern_fits(const char *pattern, const char *project);
/* Is every project of `inner` one of `outer`? False where that is not plain to see. */
bool cairn_project_pattern_covers(const char *outer, const char *inner);
