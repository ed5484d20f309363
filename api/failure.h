/* SPDX-License-Identifier: Apache-2.0 */
/*
 * failure: a struct cairn_error as members of a JSON object, and back.
 *
 * Why:     why a save failed passes from the store through uploader, journal, server and another
 *          uploader to a rank; each hop that rebuilds it loses a part.
 * Promise: 1   code, text, http_status and request_id arrive as they left; os_errno and origin
 *              mean something in one process only and stay there.
 *          2   put fails for want of memory alone: an error is valid UTF-8
 *              (include/cairn/error.h#4).
 * Limits:  http_status and request_id are left out when there are none; unknown codes read as
 *          CAIRN_INTERNAL, no code at all as CAIRN_OK.
 * Threads: stateless.
 * Next:    docs/socket.md and api/openapi.yaml for the messages that carry it.
 */
#pragma once

#include "common/json.h"

/* text_key: "reason" in the journal and over HTTP, "message" on the socket. */
bool cairn_failure_put(json_t *object, const char *text_key,
                       const struct cairn_error *why) CAIRN_MUST_USE;
void cairn_failure_get(const json_t *object, const char *text_key, struct cairn_error *ret);
