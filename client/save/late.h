/* SPDX-License-Identifier: Apache-2.0 */
/*
 * late: saves that have not ended when the next one begins, and what holds them up.
 *
 * Why:     a store that is slower than the training shows in no single save: each ends, a little
 *          later than the one before, until a begin waits for memory and training stands still.
 * Promise: 1   the second begin in a row that finds an earlier save under way is a warning of
 *              the session (cairn_session_warning), with what was measured; a begin that finds
 *              none starts the count again, and one warning is given for each row.
 * Limits:  one row at a time.
 * Threads: by the session's lock.
 * Next:    client/save/begin.c.
 */
#pragma once

#include "client/save/save.h"

struct cairn_client_late {
    bool found; /* the oldest of them, as it was when the next one began */
    uint64_t step;
    enum cairn_client_phase phase;
    enum cairn_client_reached reached;
    uint64_t staged_bytes, sent_bytes, total_bytes;
    uint64_t link_us, store_us; /* of its parts that are sent; 0 both: not known */
    uint64_t since_ms; /* its copy began, or where it is durable: since it is */
};
void cairn_client_late_look(const struct cairn_save *save, struct cairn_client_late *ret);
/* After the wait for memory, which tells whether that is what there is too little of. */
void cairn_client_late_note(struct cairn_save *save, const struct cairn_client_late *late);
