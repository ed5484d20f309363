/* SPDX-License-Identifier: Apache-2.0 */
/*
 * versions_json: a version as the REST interface shows it.
 *
 * Why:     lists, single versions and waiters show one form, uploaders hear another, shorter one.
 * Promise: Q24  a version that is not recorded is shown as open.
 * Limits:  those of a version.
 * Threads: inside a transaction where one is passed.
 * Next:    api/openapi.yaml (Checkpoint, Brief).
 */
#pragma once

#include "common/json.h"
#include "server/catalog/versions.h"

enum cairn_code cairn_srv_version_json(struct cairn_srv_tx *tx,
                                       const struct cairn_srv_version *version, json_t **ret,
                                       struct cairn_error *err) CAIRN_MUST_USE;
/* {version, state, recorded, code?, reason?, http_status?, request_id?}: what uploaders hear; NULL
 * when memory is short. */
json_t *cairn_srv_version_brief(const struct cairn_srv_version *version);
