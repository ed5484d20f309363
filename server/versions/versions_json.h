/* SPDX-License-Identifier: Apache-2.0 */
/*
 * versions_json: a version as the REST interface shows it.
 *
 * Why:     lists, single versions and waiters show one form, uploaders hear another, shorter one.
 * Promise: Q24  a version that is not recorded is shown as open.
 *          1    a tag stands for all that is shown: a change of any member is another tag.
 * Limits:  those of a version.
 * Threads: inside a transaction where one is passed.
 * Next:    api/openapi.yaml (Checkpoint, Brief).
 */
#pragma once

#include "api/wire/messages.h"
#include "server/http/request.h"
#include "server/ledger/not_freed.h"
#include "server/ledger/versions.h"

/* What the store keeps of a version that was deleted, as not_freed of messages.def. NULL without
 * memory. */
json_t *cairn_srv_not_freed_json(const struct cairn_srv_not_freed *kept);
/* What `latest` is in the run of a list, looked for once. */
struct cairn_srv_newest {
    bool looked, found;
    struct cairn_version_id id;
};
/* newest: of a list, whose versions are all of one run; NULL: one version alone. */
enum cairn_code cairn_srv_version_json_among(struct cairn_srv_tx *tx,
                                             const struct cairn_srv_version *version,
                                             struct cairn_srv_newest *newest, json_t **ret,
                                             struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_srv_version_json(struct cairn_srv_tx *tx,
                                       const struct cairn_srv_version *version, json_t **ret,
                                       struct cairn_error *err) CAIRN_MUST_USE;
/* Its entity tag, as GET says it. */
#define CAIRN_SRV_TAG_BYTES 24
enum cairn_code cairn_srv_version_tag(const json_t *shown, char ret[CAIRN_SRV_TAG_BYTES],
                                      struct cairn_error *err) CAIRN_MUST_USE;
/* With its tag; take_shown is dropped, also on failure. */
enum cairn_code cairn_srv_reply_version(struct cairn_srv_reply *reply, int status,
                                        json_t *take_shown, struct cairn_error *err) CAIRN_MUST_USE;
/* What uploaders hear; NULL when memory is short. */
json_t *cairn_srv_version_brief(const struct cairn_srv_version *version);
/* Its fields, which borrow of both. */
struct cairn_msg_brief cairn_srv_version_brief_of(const struct cairn_srv_version *version,
                                                  struct cairn_error *ret_why);
