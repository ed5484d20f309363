/* SPDX-License-Identifier: Apache-2.0 */
/*
 * versions: versions and runs as the REST interface shows them, and who waits for a change of them.
 *
 * Why:     lists, single ones, changes and waiters show one form; uploaders hear a shorter one. A
 *          caller that follows a version, a list, an alias or a policy would ask again and again,
 *          and be late all the same: with the tag of what it has and `wait` it is answered at once
 *          when that is another, or 304 at the end of that time.
 * Promise: Q24  a version that is not recorded is shown as open.
 *          1    a version's tag stands for all that is shown: a change of any member is another
 *               tag.
 *          2    a run's tag stands for what people say of it, which is what PATCH changes: totals
 *               and heartbeats change by themselves and would make every change fail.
 *          3    an answer of the routes with EVENT or LOOK in api/routes.def has an ETag: the
 *               handler's, else a weak one of its body. Of those that are looked at, what moves
 *               with the clock alone (how long ago, how much longer) is not in it.
 *          4    where If-None-Match lists the tag there is no body: 304, after the time of
 *               `?wait=`, or of `Prefer: wait=` where no `wait` is in the query.
 *          5    the caller that waits is told of each change that has an event of the run, or, of
 *               what belongs to a project or to all, an event at all (server/events/feed.h).
 *          6    of LOOK, of each other change within a second.
 * Limits:  CAIRN_WAIT_MS_MAX; of EVENT, what changes without one is seen at the end of the wait. A
 *          call that waits for a LOOK is answered anew each second, and told when it is another
 *          answer.
 * Threads: that of the handler; inside a transaction where one is passed.
 * Next:    api/openapi.yaml (Checkpoint, Brief, Run); server/handle.c; server/http/waiters.h.
 */
#pragma once

#include "api/wire/messages.h"
#include "server/http/request.h"
#include "server/ledger/runs.h"
#include "server/ledger/version_lists.h"
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

/* ---- runs ---- */

enum cairn_code cairn_srv_run_json(struct cairn_srv_tx *tx, const struct cairn_srv_request *request,
                                   const struct cairn_srv_run *run, json_t **ret,
                                   struct cairn_error *err) CAIRN_MUST_USE;
/* CAIRN_NOT_FOUND for one that was removed. */
enum cairn_code cairn_srv_run_there(const struct cairn_srv_run *run,
                                    struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_srv_run_tag(const json_t *shown, char ret[CAIRN_SRV_TAG_BYTES],
                                  struct cairn_error *err) CAIRN_MUST_USE;
/* With its tag; take_shown is dropped, also on failure. */
enum cairn_code cairn_srv_reply_run(struct cairn_srv_reply *reply, int status, json_t *take_shown,
                                    struct cairn_error *err) CAIRN_MUST_USE;

/* ---- who waits for a change ---- */

/* Before the handler: a wait that nothing can end is refused with what is missing. */
enum cairn_code cairn_srv_changes_check(const struct cairn_srv_request *request,
                                        struct cairn_error *err) CAIRN_MUST_USE;
/* After it, where it has answered: makes a 304 of the reply, or parks it. */
enum cairn_code cairn_srv_changes_judge(const struct cairn_srv_request *request,
                                        struct cairn_srv_reply *reply,
                                        struct cairn_error *err) CAIRN_MUST_USE;
