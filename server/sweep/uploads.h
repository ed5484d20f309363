/* SPDX-License-Identifier: Apache-2.0 */
/*
 * uploads: multipart uploads in the store that no save will end.
 *
 * Why:     a store keeps the parts of an upload that nobody ends and bills them, and no listing of
 *          objects shows them. A version's sweep ends those below it while it is swept; what comes
 *          later, or below a version that was never begun here, is found by looking.
 * Promise: 1   an upload below a version that is open, or whose record is not written yet, is
 *              nobody's orphan: it is neither shown nor ended.
 *          2   ended are those below versions that are committed or gone, when two looks an hour
 *              apart found them; looks between these, which somebody asked for, end none. Such a
 *              version gets no upload any more (P8, P8b). What is below a
 *              version that this catalog does not know is shown here and judged by orphans.h.
 *          3   no request lists the store: what is answered is what the last look found.
 *          4   what the store says of one upload, or of one run, and cannot be read hides no other.
 * Limits:  64 runs a round of the sweep, a look an hour; 10 pages of a run; the first 1,000 orphans
 *          are measured and shown.
 * Threads: looks on the sweeping thread; _ask, _hurried and _page on any.
 * Next:    server/sweep/sweep.c, server/sweep/sweep_objects.h, server/sweep/upload_calls.c.
 */
#pragma once

#include "common/json.h"
#include "server/db/sql.h"
#include "server/ledger/versions.h"
#include "server/server.h"

struct cairn_srv_uploads;
enum cairn_code cairn_srv_uploads_new(struct cairn_srv *server, struct cairn_srv_uploads **ret,
                                      struct cairn_error *err) CAIRN_MUST_USE;
void cairn_srv_uploads_free(struct cairn_srv_uploads *uploads); /* NULL is fine */
/* Some runs further, where a look is due. ret_due: versions whose uploads are to be ended now; it
 * is emptied first. */
enum cairn_code cairn_srv_uploads_look(struct cairn_srv_uploads *uploads,
                                       struct cairn_store_worker *worker,
                                       struct cairn_srv_ids *ret_due,
                                       struct cairn_error *err) CAIRN_MUST_USE;
/* Ends the uploads of one of those, if it is still what it was found to be. */
enum cairn_code cairn_srv_uploads_end(struct cairn_srv_uploads *uploads,
                                      struct cairn_store_worker *worker, const char *version,
                                      struct cairn_error *err) CAIRN_MUST_USE;
/* A look begins with the next round, unless one is under way or has ended within two seconds; it
 * ends nothing (uploads.h#2 counts the hourly ones). True: one is under way, or about to. */
bool cairn_srv_uploads_ask(struct cairn_srv_uploads *uploads);
/* Is a look under way that somebody asked for? Then the next round does not wait. */
bool cairn_srv_uploads_hurried(struct cairn_srv_uploads *uploads);
/* What the last look found, from this place on: new objects of the form upload_row. *ret_more:
 * there are others behind. NULL without memory. */
json_t *cairn_srv_uploads_page(struct cairn_srv_uploads *uploads, uint64_t from, uint64_t limit,
                               bool *ret_more);
/* Where that version stands, of which the last look found an upload; false: it found none. */
bool cairn_srv_uploads_met(struct cairn_srv_uploads *uploads, const char *version,
                           struct cairn_srv_met *ret);
/* They have ended: not listed any more. What the store did not end is found by the next look. */
void cairn_srv_uploads_forget(struct cairn_srv_uploads *uploads, const char *version);
