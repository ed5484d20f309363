/* SPDX-License-Identifier: Apache-2.0 */
/*
 * upload: the upload of one shard, as a table of phases and events.
 *
 *     made -> sending -> durable -> made
 *        \       |   \
 *         \    ending -> failed
 *          `-----------/
 *
 * Why:     trainers describe a shard, senders send it, a save gives it up and a restarted server
 *          requests it again; four booleans once decided which of these was allowed.
 * Promise: 1   move changes a phase only by a row of uploader/state/upload.def.
 *          2   actions due are returned: nothing here waits, writes, locks or reads a clock.
 *          3   a shard is in the queue while it is sending or ending, and at no other time.
 * Limits:  none of its own. store/multipart.h chooses the next request.
 * Threads: the caller's; the daemon holds upload_queue.
 * Next:    uploader/send/shards.h and uploader/send/pick.c carry out due actions.
 */
#pragma once

#include "common/base.h"

enum cairn_up_upload_phase {
#define PHASE(name, why) CAIRN_UP_UPLOAD_##name,
#include "uploader/state/upload.def"
#undef PHASE
};
enum cairn_up_upload_event {
#define EVENT(name, why) CAIRN_UP_UPLOAD_EVENT_##name,
#include "uploader/state/upload.def"
#undef EVENT
};
#define CAIRN_UP_UPLOAD_PHASES (CAIRN_UP_UPLOAD_FAILED + 1)
#define CAIRN_UP_UPLOAD_EVENTS (CAIRN_UP_UPLOAD_EVENT_LOOK + 1)

enum cairn_up_upload_due {
    CAIRN_UP_UPLOAD_DUE_NOTHING,
    CAIRN_UP_UPLOAD_DUE_JOIN,  /* append to the queue */
    CAIRN_UP_UPLOAD_DUE_LEAVE, /* remove from the queue */
    CAIRN_UP_UPLOAD_DUE_ABORT, /* cairn_multipart_give_up */
    CAIRN_UP_UPLOAD_DUE_RENEW  /* a new multipart machine for the same object, without its source */
};
bool cairn_up_upload_state_admits(enum cairn_up_upload_phase upload,
                                  enum cairn_up_upload_event event);
enum cairn_up_upload_due cairn_up_upload_state_move(enum cairn_up_upload_phase *upload,
                                                    enum cairn_up_upload_event event);
bool cairn_up_upload_state_is_queued(enum cairn_up_upload_phase upload);
bool cairn_up_upload_state_has_ended(enum cairn_up_upload_phase upload);
