/* SPDX-License-Identifier: Apache-2.0 */
/*
 * origin: where a session runs, told without being asked: host, user, commit, job ids, versions.
 *
 * Why:     who finds a checkpoint a year later asks which code made it, and where; nobody had
 *          written it down.
 * Promise: 1   it becomes the member "origin" of the meta that rank 0 gives; where the caller has
 *              one of that name, also null, the caller's stays.
 *          2   what cannot be found out is left out; nothing is run, and nothing fails for want of
 *              it. A meta that would be too large with it goes without it.
 * Limits:  texts of 200 bytes; read once, when the session is opened.
 * Threads: stateless.
 * Next:    client/save/begun.c; docs/http.md.
 */
#pragma once

#include "common/json.h"

/* NULL: no memory. */
json_t *cairn_client_origin(void);
