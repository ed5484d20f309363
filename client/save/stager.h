/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stager: one copy in the slab, and which of its messages the uploader has.
 *
 * Why:     the uploader sends the first parts while the last ones are copied. It may die meanwhile,
 *          and the next one needs all messages from the first on. A framework that saves a cached
 *          state again and again loses every step since, and each of its saves is whole, durable
 *          and committed: nothing else in Cairn can see it.
 * Promise: Q15  the end of a link ends no copy: with epoch 0 the rest is copied, and sent later.
 *          Q43  a save whose bytes are copied is not given up because no uploader is there.
 *          1    where at least half of the blocks that had changed from each save to the next,
 *               three saves long, are those of the save before, the save is stale: it is sealed as
 *               ever, its seal says so, and the first of a row of such saves is a warning of the
 *               session. Blocks that are the same in some save (a frozen layer) are compared no
 *               more; a save of another size begins the comparison anew.
 * Limits:  1 MiB of names in one `stage` frame and in the replicated checksums. Compared are blocks
 *          of 1 MiB in memory of the session, not files; five bytes a block.
 * Threads: the handle's caller, or the thread that copies behind it (client/save/stage.c); once it
 *          was handed over, the session's thread. What is compared: by the session's lock.
 * Next:    client/save/stage.c copies, client/save/sink.c finishes what was handed over.
 */
#pragma once

#include "client/save/save.h"
#include "client/save/threads.h"

#define CAIRN_CLIENT_STALE_TEXT_BYTES 160
#define CAIRN_CLIENT_VERSION_OF_MORE 4 /* of the socket: `more` of `stage` */

struct cairn_client_progress {
    uint32_t *blocks;          /* of this shard; in the stager's array */
    uint64_t staged, reported; /* bytes that are copied; that a `staged` over this link covers */
};
struct cairn_client_stager {
    struct cairn_save *save;
    struct cairn_session *session;
    struct cairn_client_arrangement arrangement;
    struct cairn_client_progress *shards;
    uint32_t *blocks;
    uint8_t *slab;
    struct cairn_client_piece **slots; /* that the caller writes, until they are copied; owned */
    size_t slot_count;
    size_t copied_count; /* shards that are whole in the slab */
    bool copied;         /* all that was described before the copy; what comes is late */
    struct cairn_client_copied how;
    uint32_t epoch; /* of the link over which `stage` was sent; 0: it must be sent */
    bool seals;     /* the seal follows the last bytes at once */
    bool behind;    /* a thread of the library copies and seals (client/save/stage.c) */
    struct cairn_device_job *job; /* of the next shard; NULL: it has none, or none yet */
    bool sealed;                  /* the uploader died after it had journaled the seal */
    bool alone;         /* on the session's thread, over a link that no other thread uses */
    json_t *shard_list; /* of `stage` */
    json_t *replicated; /* of `seal` */
    char stale[CAIRN_CLIENT_STALE_TEXT_BYTES]; /* the same; "": it is not */
};
void cairn_client_stager_free(struct cairn_client_stager *stager);
CAIRN_DEFINE_AUTO_PTR(client_stager);

/* Of the shards from `first` on, for `stage`; NULL: no memory. */
json_t *cairn_client_stager_shard_list(const struct cairn_client_stager *stager, size_t first);
/* For `seal`. */
enum cairn_code cairn_client_stager_replicated(const struct cairn_client_stager *stager,
                                               json_t **ret,
                                               struct cairn_error *err) CAIRN_MUST_USE;
/* Over the present link: begin where the uploader does not know the save, then `stage`. */
enum cairn_code cairn_client_stager_send_stage(struct cairn_client_stager *stager,
                                               uint64_t deadline_ms,
                                               struct cairn_error *err) CAIRN_MUST_USE;
/* The shards from `first` on, which came late, to the uploader that has the others; over another
 * link all of them are sent with the seal. */
enum cairn_code cairn_client_stager_send_more(struct cairn_client_stager *stager, size_t first,
                                              uint64_t deadline_ms,
                                              struct cairn_error *err) CAIRN_MUST_USE;
/* Send `staged` for the blocks of the shard that became whole. */
enum cairn_code cairn_client_stager_send_staged(struct cairn_client_stager *stager, size_t index,
                                                struct cairn_error *err) CAIRN_MUST_USE;
/* Until the uploader has journaled the seal, over as many links as it takes. */
enum cairn_code cairn_client_stager_send_all(struct cairn_client_stager *stager,
                                             uint64_t deadline_ms,
                                             struct cairn_error *err) CAIRN_MUST_USE;

/* ---- does the state that is saved follow the training? ---- */

/* Compares the blocks after the copy. ret_text: the warning for the seal; "": the save is not
 * stale. */
void cairn_client_stale_look(struct cairn_save *save, const uint32_t *blocks, size_t count,
                             char ret_text[CAIRN_CLIENT_STALE_TEXT_BYTES]);
void cairn_client_stale_release(struct cairn_client_stale *stale);
