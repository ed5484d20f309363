/* SPDX-License-Identifier: Apache-2.0 */
/*
 * versions: versions and runs in their REST form, and the long polls for changes of an answer.
 *
 * Why:     lists, GET, changes and long polls share one form; uploaders get a shorter one. Polling
 *          a version, list, alias or policy is costly and late: with the ETag of its last answer
 *          and `wait`, a caller gets a changed answer at once, or a 304 at the end of the wait.
 * Promise: Q24  a version without its record is shown as open.
 *          1    a version's tag covers all that is shown: a change of any member changes the tag.
 *          2    a run's tag covers its labels, note and origin, which PATCH changes: totals and
 *               heartbeats change by themselves and would make every If-Match fail.
 *          3    an answer of the routes with EVENT, LOOK or END in api/routes.def has an ETag: the
 *               handler's, else a weak one of its body; a LOOK tag leaves out ages and time left.
 *          4    where If-None-Match lists the tag, the answer is a 304 without a body, after the
 *               time of `?wait=`, or of `Prefer: wait=` if the query has no `wait`.
 *          5    a waiting call is woken by each change that has an event of its run; for a resource
 *               of a project or of the server by any event (server/events/feed.h).
 *          6    a call that waits on LOOK also sees every other change within a second.
 * Limits:  CAIRN_WAIT_MS_MAX; on EVENT, a change without an event is seen at the end of the wait. A
 *          call that waits on LOOK is evaluated each second, and answered when its tag changes.
 * Threads: the handler's; inside a transaction where one is passed.
 * Next:    api/openapi.yaml (Checkpoint, Brief, Run); server/handle.c; server/http/waiters.h.
 */
#pragma once

#include "api/wire/messages.h"
#include "server/http/request.h"
#include "server/ledger/version_lists.h"

/* What the store still holds of a deleted version (not_freed of messages.def). NULL: no memory. */
json_t *srv_not_freed_json(const struct srv_not_freed *kept);
/* The run's `latest`, looked up once per list. */
struct srv_newest {
    bool looked, found;
    struct cairn_version_id id;
};
/* newest: shared by a list of one run's versions; NULL for a single version. */
enum cairn_code srv_version_json(struct srv_tx *tx, const struct srv_version *version,
                                 struct srv_newest *newest, json_t **ret,
                                 struct cairn_error *err) CAIRN_MUST_USE;
/* The ETag of GET. */
#define SRV_TAG_BYTES 24
enum cairn_code srv_version_tag(const json_t *shown, char ret[SRV_TAG_BYTES],
                                struct cairn_error *err) CAIRN_MUST_USE;
/* Adds the ETag; take_shown is dropped on failure, too. */
enum cairn_code srv_reply_version(struct srv_reply *reply, int status, json_t *take_shown,
                                  struct cairn_error *err) CAIRN_MUST_USE;
/* The short form for uploaders; NULL: no memory. */
json_t *srv_version_brief(const struct srv_version *version);
/* Its fields, which borrow from `version` and *ret_why. */
struct cairn_msg_brief srv_version_brief_of(const struct srv_version *version,
                                            struct cairn_error *ret_why);

/* ---- runs ---- */

enum cairn_code srv_run_json(struct srv_tx *tx, const struct srv_request *request,
                             const struct srv_run *run, json_t **ret,
                             struct cairn_error *err) CAIRN_MUST_USE;
/* CAIRN_NOT_FOUND for a removed run. */
enum cairn_code srv_run_there(const struct srv_run *run, struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code srv_run_tag(const json_t *shown, char ret[SRV_TAG_BYTES],
                            struct cairn_error *err) CAIRN_MUST_USE;
/* Adds the ETag; take_shown is dropped on failure, too. */
enum cairn_code srv_reply_run(struct srv_reply *reply, int status, json_t *take_shown,
                              struct cairn_error *err) CAIRN_MUST_USE;

/* ---- long polls for a changed answer ---- */

/* Before the handler: refuses a `wait` that nothing could end. */
enum cairn_code srv_changes_check(const struct srv_request *request,
                                  struct cairn_error *err) CAIRN_MUST_USE;
/* After a successful handler: turns an unchanged answer into a 304, or parks the call. */
enum cairn_code srv_changes_judge(const struct srv_request *request, struct srv_reply *reply,
                                  struct cairn_error *err) CAIRN_MUST_USE;
