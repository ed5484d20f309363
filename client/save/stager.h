/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stager: one copy in the slab, and which of its messages the uploader has; stale saves.
 *
 * Why:     the uploader sends the first parts while later ones are copied. If it dies, the next one
 *          needs all messages from the first. A framework that saves a cached state repeatedly
 *          loses every later step, though each save is whole, durable and committed: nothing else
 *          in Cairn can detect that.
 * Promise: Q15 the end of a link ends no copy: with epoch 0 the copy continues and is sent later.
 *          Q43 a copied save is not given up for lack of an uploader.
 *          1   of the blocks that changed in each of three consecutive saves, if at least half now
 *              equal the previous save's, the save is stale: it is sealed as usual, its seal says
 *              so, and the first of a series of stale saves raises a session warning. Blocks that
 *              stayed equal in some save (a frozen layer) are not compared again; a save of another
 *              size restarts the comparison.
 * Limits:  1 MiB of names in one `stage` frame and in the replicated checksums. Blocks of 1 MiB in
 *          session memory are compared, files are not; five bytes per block.
 * Threads: the handle's caller, or the thread that copies behind it (client/save/stage.c); after
 *          the hand-over, the session's thread. The session's lock guards the comparison.
 * Next:    client/save/stage.c copies, client/save/sink.c finishes handed-over copies.
 */
#pragma once

#include "client/save/save.h"
#include "client/save/threads.h"

#define CAIRN_CLIENT_STALE_TEXT_BYTES 160
#define CAIRN_CLIENT_VERSION_OF_MORE 4    /* socket version that introduced `more` of `stage` */
#define CAIRN_CLIENT_VERSION_OF_STREAMS 9 /* socket version that introduced `stream` */

struct cairn_client_progress {
    uint32_t *blocks;          /* this shard's part of the stager's array */
    uint64_t staged, reported; /* bytes copied; bytes covered by `staged` on this link */
};
struct cairn_client_stager {
    struct cairn_save *save;
    struct cairn_session *session;
    struct cairn_client_arrangement arrangement;
    struct cairn_client_progress *shards;
    uint32_t *blocks;
    uint8_t *slab;
    struct cairn_client_piece **slots; /* written by the caller, until the copy; owned */
    size_t slot_count;
    size_t copied_count; /* shards completely in the slab */
    bool copied;         /* the first copy is done; later pieces are late */
    struct cairn_client_copied how;
    uint32_t epoch;               /* link on which `stage` was answered; 0: must be sent */
    size_t told_count;            /* shards of the answered `stage` messages of that link */
    size_t late_count;            /* the same, with the one that may be answered late (K35) */
    bool seals;                   /* the seal follows the last bytes at once */
    bool behind;                  /* a library thread copies and seals (client/save/stage.c) */
    struct cairn_device_job *job; /* of the next shard; NULL: none (yet) */
    bool sealed;                  /* the uploader died after journaling the seal */
    bool alone;                   /* on the session's thread, over an exclusive link */
    json_t *shard_list;           /* for `stage` */
    json_t *replicated;           /* for `seal` */
    char stale[CAIRN_CLIENT_STALE_TEXT_BYTES]; /* for `seal`; "": not stale */
};
void cairn_client_stager_free(struct cairn_client_stager *stager);
CAIRN_DEFINE_AUTO_PTR(client_stager);

/* The shards from `first` on, for `stage`; NULL: no memory. */
json_t *cairn_client_stager_shard_list(const struct cairn_client_stager *stager, size_t first);
/* Takes the answer to a `stage` whose call went on without it (K35). The lock is held. */
void cairn_client_save_staged_late(struct cairn_save *save, const struct cairn_frame *answer);
/* Sends the streams in memory of their own that this link's uploader has not: after `begun`, before
 * `stage`, or again after an offer. alone: on the session's thread, over a link that is not up
 * yet, whose epoch is the next. */
enum cairn_code cairn_client_streams_send(struct cairn_save *save, uint32_t epoch, bool alone,
                                          uint64_t deadline_ms,
                                          struct cairn_error *err) CAIRN_MUST_USE;
/* The replicated checksums, for `seal`. */
enum cairn_code cairn_client_stager_replicated(const struct cairn_client_stager *stager,
                                               json_t **ret,
                                               struct cairn_error *err) CAIRN_MUST_USE;
/* On the present link: sends `begin` if the uploader does not know the save, then `stage`. */
enum cairn_code cairn_client_stager_send_stage(struct cairn_client_stager *stager,
                                               uint64_t deadline_ms,
                                               struct cairn_error *err) CAIRN_MUST_USE;
/* Sends the shards laid out since to the uploader that has the others; on another link, and if the
 * uploader is silent, they are sent with the seal. */
enum cairn_code cairn_client_stager_send_more(struct cairn_client_stager *stager,
                                              uint64_t deadline_ms,
                                              struct cairn_error *err) CAIRN_MUST_USE;
/* Sends `staged` for the shard's newly complete blocks. */
enum cairn_code cairn_client_stager_send_staged(struct cairn_client_stager *stager, size_t index,
                                                struct cairn_error *err) CAIRN_MUST_USE;
/* Sends until an uploader has journaled the seal, over several links if necessary. */
enum cairn_code cairn_client_stager_send_all(struct cairn_client_stager *stager,
                                             uint64_t deadline_ms,
                                             struct cairn_error *err) CAIRN_MUST_USE;

/* ---- stale saves: does the saved state follow the training? ---- */

/* Compares the blocks after the copy. ret_text: the seal's warning; "": not stale. */
void cairn_client_stale_look(struct cairn_save *save, const uint32_t *blocks, size_t count,
                             char ret_text[CAIRN_CLIENT_STALE_TEXT_BYTES]);
void cairn_client_stale_release(struct cairn_client_stale *stale);
