/* SPDX-License-Identifier: Apache-2.0 */
/*
 * save: an uploader's state of one rank's save, its shards, their uploads and the memory that it
 * holds, as tables of phases and events.
 *
 *     a save      beginning -> open -> sealing -> sealed -> over
 *                     \          \        \          \
 *                      withdrawn -> failing           cancelled -> over
 *
 *     a shard     sending <-> durable <-> registered    an upload   made -> sending -> durable
 *                     \                                                \       |   \
 *                      failed                                           `--- ending -> failed
 *
 * Why:     trainer, journal, senders, server and restart each move a save; one table has every move
 *          and the actions due after it, so that a simulation drives the code of the daemon.
 * Promise: 1   each phase changes by a row of save.def, shard.def or upload.def only; shards change
 *              the counts of their save with it.
 *          2   actions due are returned: nothing here waits, writes, locks or reads a clock.
 *          3   a generation is due back once: when every shard is durable, failed or cancelled and
 *              no request carries its bytes (Q20), and only for the owner that holds it.
 *          4   a shard is in the senders' queue exactly while it is sending or ending.
 *          5   a free generation may still hold the durable bytes of its last owner; the next owner
 *              takes it like any free one and overwrites them.
 *          Q41 a generation is free or has one owner, by its save's number; `begun`, `stage`,
 *              `offer`, `free` and the journal's `stage` record carry it. Its owner alone gives it
 *              back.
 *          Q44 after the seal a fail stays a fail; only `committed` wins against it.
 *          Q45 after an unwritten record nothing of the save is written or answered as sealed.
 * Limits:  none of its own. store/multipart.h chooses a shard's next request.
 * Threads: the caller's; the daemon holds uploader_state, for uploads upload_queue.
 * Next:    uploader/saves/save.h, uploader/saves/slabs.h, uploader/send/pick.c carry actions out.
 */
#pragma once

#include "common/base.h"

/* ---- shards ---- */

enum cairn_up_shard_phase {
#define PHASE(name, why) CAIRN_UP_SHARD_##name,
#include "uploader/state/shard.def"
#undef PHASE
};
enum cairn_up_shard_event {
#define EVENT(name, why) CAIRN_UP_SHARD_EVENT_##name,
#include "uploader/state/shard.def"
#undef EVENT
};
#define CAIRN_UP_SHARD_PHASES (CAIRN_UP_SHARD_FAILED + 1)
#define CAIRN_UP_SHARD_EVENTS (CAIRN_UP_SHARD_EVENT_LOOK + 1)

/* ---- saves ---- */

enum cairn_up_phase {
#define PHASE(name, why) CAIRN_UP_PHASE_##name,
#include "uploader/state/save.def"
#undef PHASE
};
enum cairn_up_event {
#define EVENT(name, why) CAIRN_UP_EVENT_##name,
#include "uploader/state/save.def"
#undef EVENT
};
#define CAIRN_UP_PHASES (CAIRN_UP_PHASE_OVER + 1)
#define CAIRN_UP_EVENTS (CAIRN_UP_EVENT_ENDED + 1)

/* Actions that the caller carries out in this order; a set of them is a uint32_t. */
enum cairn_up_due {
    CAIRN_UP_DUE_NOTHING = 0,
    CAIRN_UP_DUE_RECORD_BEGIN = 1 << 0,  /* journal the begin as a new entry */
    CAIRN_UP_DUE_RECORD_FAIL = 1 << 1,   /* journal the fail and its reason */
    CAIRN_UP_DUE_ANSWER_BEGIN = 1 << 2,  /* answer the trainer's waiting begin */
    CAIRN_UP_DUE_ANSWER_COUNT = 1 << 13, /* answer `count`: its begin never came (Q8) */
    CAIRN_UP_DUE_REFUSE_BEGIN = 1 << 3,  /* refuse the waiting begin or count */
    CAIRN_UP_DUE_ANSWER_SEAL = 1 << 4,
    CAIRN_UP_DUE_REFUSE_SEAL = 1 << 5,
    CAIRN_UP_DUE_VERDICT = 1 << 6,        /* send the trainer the save's outcome */
    CAIRN_UP_DUE_ANSWER_FAIL = 1 << 7,    /* answer the trainer's cancel, which awaits the server */
    CAIRN_UP_DUE_GIVE_UP_SHARDS = 1 << 8, /* give up the shards that are not durable */
    CAIRN_UP_DUE_REPORT = 1 << 9,         /* cairn_up_save_state_report_due has changed */
    CAIRN_UP_DUE_SAY_DURABLE = 1 << 10,   /* send the trainer `durable`: every shard is */
    CAIRN_UP_DUE_FREE_SLAB = 1 << 11,     /* cairn_up_slab_state_give, then send `free` */
    CAIRN_UP_DUE_LOOK_AGAIN = 1 << 14,    /* HEAD every durable shard: the server lost them */
    CAIRN_UP_DUE_CLOSE = 1 << 12          /* close the journal entry and drop the save */
};

enum cairn_up_trainer {
    CAIRN_UP_TRAINER_HERE,
    CAIRN_UP_TRAINER_GONE,
    CAIRN_UP_TRAINER_AWAITED /* recovered from the journal; no trainer has reclaimed it yet */
};
enum cairn_up_staging {
    CAIRN_UP_STAGING_NONE,
    CAIRN_UP_STAGING_DESCRIBED, /* `stage` was taken */
    CAIRN_UP_STAGING_AGAIN      /* described before a restart: the same `stage` must follow */
};
/* The report that the server answered last; a fail may follow the seal. */
enum cairn_up_reported {
    CAIRN_UP_REPORTED_NOTHING,
    CAIRN_UP_REPORTED_BEGIN,
    CAIRN_UP_REPORTED_SEAL,
    CAIRN_UP_REPORTED_FAIL
};
/* The next report to the server. */
enum cairn_up_report {
    CAIRN_UP_REPORT_NOTHING,
    CAIRN_UP_REPORT_BEGIN,
    CAIRN_UP_REPORT_FAIL,
    CAIRN_UP_REPORT_SHARDS /* the seal, then registrations of durable shards */
};
enum cairn_up_end {
    CAIRN_UP_OPEN,
    CAIRN_UP_COMMITTED,
    CAIRN_UP_SKIPPED,
    CAIRN_UP_REFUSED,
    CAIRN_UP_ABORTED,
    CAIRN_UP_FAILED
};

const char *cairn_up_end_text(enum cairn_up_end end); /* "open", "committed", ... */

struct cairn_up_save_state {
    enum cairn_up_phase phase;
    enum cairn_up_reported reported;
    enum cairn_up_trainer trainer;
    enum cairn_up_staging staging;
    uint64_t owner;    /* the save's number as an owner of slab generations (Q41); never 0 */
    bool holds_slab;   /* owns a generation */
    bool broken;       /* Q45: one of its records was not written */
    bool unjournaled;  /* the journal has no record of the save */
    bool durable_said; /* `durable` was sent to the trainer */
    bool look_again;   /* look at durable shards once the save is sealed */
    uint32_t shard_count, durable_count, registered_count;
};

const char *cairn_up_phase_text(enum cairn_up_phase phase); /* "beginning", "open", ... */
void cairn_up_save_state_init(uint64_t owner, struct cairn_up_save_state *ret);
/* A save's history in the journal, read at a restart. */
struct cairn_up_save_past {
    bool staged, sealed, failed;
    bool sent; /* the store may have some of its bytes: it must be staged again unchanged */
};
void cairn_up_save_state_recover(uint64_t owner, const struct cairn_up_save_past *past,
                                 struct cairn_up_save_state *ret);
/* Makes a save that a trainer sealed and that the journal does not have. */
void cairn_up_save_state_init_in_doubt(uint64_t owner, struct cairn_up_save_state *ret);

bool cairn_up_save_state_admits(const struct cairn_up_save_state *save, enum cairn_up_event event);
uint32_t cairn_up_save_state_move(struct cairn_up_save_state *save, enum cairn_up_event event);
/* Returns actions due after move or a change of a shard. quiet: no request carries the save's
 * bytes, or will; ended: no upload of it is in flight. */
uint32_t cairn_up_save_state_settle(struct cairn_up_save_state *save, bool quiet, bool ended);

/* Moves a shard by a row of uploader/state/shard.def. True: HEAD it again (Q19), then LOOK. */
bool cairn_up_save_state_shard_move(struct cairn_up_save_state *save,
                                    enum cairn_up_shard_phase *shard,
                                    enum cairn_up_shard_event event);
bool cairn_up_save_state_is_durable(const struct cairn_up_save_state *save);

enum cairn_up_report cairn_up_save_state_report_due(const struct cairn_up_save_state *save);
/* Q9: its seal or fail is journaled, not reported; later saves of the rank begin after that. */
bool cairn_up_save_state_end_is_unreported(const struct cairn_up_save_state *save);
/* Q56: the server knows neither its seal nor its fail. */
bool cairn_up_save_state_end_is_unheard(const struct cairn_up_save_state *save);
/* Q3: a heartbeat counts the save as unsent. */
bool cairn_up_save_state_is_unsent(const struct cairn_up_save_state *save);
/* The server answered a report; ignored when an unknown version or a fail has overtaken it. */
void cairn_up_save_state_answered(struct cairn_up_save_state *save, enum cairn_up_reported what);
/* The server does not know the version (Q19), so begin is reported again. True: look at durable
 * shards now; a save still being staged is looked at when it is sealed (Q47). */
bool cairn_up_save_state_unknown(struct cairn_up_save_state *save);
/* Everything is reported; only the server knows the outcome. */
bool cairn_up_save_state_awaits_end(const struct cairn_up_save_state *save);
/* The seal and every shard are reported, so the server may have committed the save. */
bool cairn_up_save_state_may_be_committed(const struct cairn_up_save_state *save);
/* True: a drain waits for the save. */
bool cairn_up_save_state_is_unfinished(const struct cairn_up_save_state *save);

/* Its begin is journaled, and it is not over. */
bool cairn_up_save_state_is_begun(const struct cairn_up_save_state *save);

/* Also when cancelled. */
bool cairn_up_save_state_is_sealed(const struct cairn_up_save_state *save);
bool cairn_up_save_state_is_failing(const struct cairn_up_save_state *save);
/* May a trainer stage, give files, seal? */
bool cairn_up_save_state_is_staging(const struct cairn_up_save_state *save);
/* A begin repeated after a restart, with nothing staged, means this save. */
bool cairn_up_save_state_begins_again(const struct cairn_up_save_state *save);
/* The answer to an offer. */
enum cairn_up_joined {
    CAIRN_UP_JOINED_CONTINUES,
    CAIRN_UP_JOINED_DURABLE,
    CAIRN_UP_JOINED_COMMITTED,
    CAIRN_UP_JOINED_ABORTED,
    CAIRN_UP_JOINED_FAILED,
    CAIRN_UP_JOINED_ENDED
};
enum cairn_up_joined cairn_up_save_state_join(struct cairn_up_save_state *save,
                                              enum cairn_up_end end);
/* The save is unfinished and still needs its generation. */
bool cairn_up_save_state_needs_slab(const struct cairn_up_save_state *save);

/* ---- uploads of shards ---- */

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

/* ---- generations of slabs ---- */

struct cairn_up_slab_state {
    uint64_t owner; /* 0: free */
    uint64_t kept;  /* while free: the last owner, whose bytes it holds; 0: none */
};
/* `stage`: false when another save owns the generation. Its owner may take it again. */
bool cairn_up_slab_state_take(struct cairn_up_slab_state *slab, uint64_t owner);
void cairn_up_slab_state_give(struct cairn_up_slab_state *slab, uint64_t owner);
/* `free`, but the bytes stay readable. */
void cairn_up_slab_state_keep(struct cairn_up_slab_state *slab, uint64_t owner);
void cairn_up_slab_state_forget(struct cairn_up_slab_state *slab);

/* One offered generation: the trainer's claim and the journal's record of the save. */
struct cairn_up_slab_claim {
    uint64_t offered_owner;   /* the memory's owner by the trainer; 0: none */
    uint64_t save_owner;      /* number of the claiming save */
    uint64_t journaled_owner; /* by the save's `stage` record; 0: no such record */
    bool same_memory;         /* size, device and inode are those of the `stage` record */
    bool needed;              /* cairn_up_save_state_needs_slab */
};
enum cairn_up_claimed {
    CAIRN_UP_CLAIM_JOINED,
    CAIRN_UP_CLAIM_NOT_NEEDED, /* the save no longer needs its memory */
    CAIRN_UP_CLAIM_NOT_OWNER,  /* the memory belongs to another save */
    CAIRN_UP_CLAIM_NOT_THERE   /* not the memory in which the save was staged */
};
enum cairn_up_claimed cairn_up_slab_state_claim(struct cairn_up_slab_state *slab,
                                                const struct cairn_up_slab_claim *claim);
