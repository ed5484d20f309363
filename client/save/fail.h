/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fail: saves that fail in this process, and the reports of their failures.
 *
 * Why:     a begin that this rank counted and gave up must end as failed for all ranks (Q8, Q9),
 *          also when the uploader is away at that moment.
 * Promise: Q8   a begin that failed stays in `reports` until an uploader has journaled it.
 *          Q44  a save that was given up after its seal is cancelled: only a commit wins.
 * Limits:  a report for which there is no memory is left out; the uploader finds the gap in the
 *          counts (Q12).
 * Threads: any; the session's lock guards the list.
 * Next:    client/save/offer.c, which reports them to the next uploader.
 */
#pragma once

#include "client/save/save.h"

/* A begin that must end as failed at the server: `count`, or `fail` where the uploader knows the
 * save. */
struct cairn_client_failed {
    uint64_t save; /* its number; 0: the uploader does not know it */
    uint64_t step;
    uint32_t n;
    json_t *begin; /* owned; the message `begin`, with its options; NULL: none was made */
};
struct cairn_client_report {
    TAILQ_ENTRY(cairn_client_report) place;
    struct cairn_client_failed of;
    uint64_t request; /* `id` of its message on this link; 0: not sent */
    struct cairn_error why;
};
void cairn_client_report_free(struct cairn_client_report *report);
/* What a report must say of a save, which may be gone by then. The lock is held. */
struct cairn_client_failed cairn_client_failed_of(const struct cairn_save *save);
/* Report that begin n of a step failed. The lock is not held. */
void cairn_client_report_add(struct cairn_session *session,
                             const struct cairn_client_failed *take_failed,
                             const struct cairn_error *why);
/* Queue the reports that were not sent over this link; the lock is held. */
void cairn_client_reports_send(struct cairn_session *session);
/* The link ended: all are sent again over the next one. The lock is held. */
void cairn_client_reports_unsent(struct cairn_session *session);
/* The answer to one of them; false: it is none's. The lock is held. */
bool cairn_client_reports_answered(struct cairn_session *session, const struct cairn_frame *frame,
                                   uint64_t id);
/* End the save with this problem and report it; behind: as cairn_client_save_close. False: it was
 * over before. */
bool cairn_client_save_give_up(struct cairn_save *save, const struct cairn_error *why, bool behind);
/* End the save with *err, report it, and give its generation back. Returns the code of *err, which
 * is the verdict's where the save had ended before. */
enum cairn_code cairn_client_save_fail(struct cairn_save *save, enum cairn_code code,
                                       struct cairn_error *err);
