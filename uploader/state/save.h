/* SPDX-License-Identifier: Apache-2.0 */
/*
 * save: what an uploader knows of one rank's save, as a table of phases and events.
 *
 *     beginning -> open -> sealing -> sealed -> over
 *         \          \        \          \
 *          withdrawn -> failing           cancelled -> over
 *
 * Why:     the trainer, the journal, the senders, the server and a restart each move a save; one
 *          table says what each of them may do to it and what is due afterwards, so that a
 *          simulation drives the same code as the daemon.
 * Promise: 1   move changes the phase only by a row of uploader/state/save.def.
 *          2   what is due is returned as data: nothing here waits, writes, locks or reads a clock.
 *          3   a generation is due back once: when every shard is durable, failed or cancelled and
 *              no request carries its bytes (Q20), and only for the owner that holds it (Q41).
 *          Q44 after the seal a fail stays a fail; only `committed` wins against it.
 *          Q45 after an unwritten record nothing of the save is written or answered as sealed.
 * Limits:  none of its own.
 * Threads: the caller's; the daemon holds uploader_state.
 * Next:    uploader/saves/save.h carries out what is due; uploader/state/slab.h.
 */
#pragma once

#include "common/base.h"
#include "uploader/state/shard.h"

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

/* What the caller must carry out, in this order; a set of them is a uint32_t. */
enum cairn_up_due {
    CAIRN_UP_DUE_NOTHING = 0,
    CAIRN_UP_DUE_RECORD_BEGIN = 1 << 0,  /* journal it: the entry is new */
    CAIRN_UP_DUE_RECORD_FAIL = 1 << 1,   /* journal why */
    CAIRN_UP_DUE_ANSWER_BEGIN = 1 << 2,  /* the trainer's request that waits */
    CAIRN_UP_DUE_ANSWER_COUNT = 1 << 13, /* a begin that never came is counted (Q8) */
    CAIRN_UP_DUE_REFUSE_BEGIN = 1 << 3,  /* or the count */
    CAIRN_UP_DUE_ANSWER_SEAL = 1 << 4,
    CAIRN_UP_DUE_REFUSE_SEAL = 1 << 5,
    CAIRN_UP_DUE_VERDICT = 1 << 6,     /* the trainer hears how it ended */
    CAIRN_UP_DUE_ANSWER_FAIL = 1 << 7, /* the trainer's cancel that waits for the server's word */
    CAIRN_UP_DUE_GIVE_UP_SHARDS = 1 << 8, /* those that are not durable */
    CAIRN_UP_DUE_REPORT = 1 << 9,         /* cairn_up_save_state_report_due has changed */
    CAIRN_UP_DUE_SAY_DURABLE = 1 << 10,   /* the trainer hears that every shard is durable */
    CAIRN_UP_DUE_FREE_SLAB = 1 << 11,     /* cairn_up_slab_state_give, and the trainer hears it */
    CAIRN_UP_DUE_LOOK_AGAIN = 1 << 14,    /* at every durable shard: its registration is unknown */
    CAIRN_UP_DUE_CLOSE = 1 << 12          /* the journal entry is closed and the save forgotten */
};

enum cairn_up_trainer {
    CAIRN_UP_TRAINER_HERE,
    CAIRN_UP_TRAINER_GONE,
    CAIRN_UP_TRAINER_AWAITED /* the save came from the journal; nobody has come for it yet */
};
enum cairn_up_staging {
    CAIRN_UP_STAGING_NONE,
    CAIRN_UP_STAGING_DESCRIBED, /* `stage` was taken */
    CAIRN_UP_STAGING_AGAIN      /* described before a restart: `stage` comes once more, as it was */
};
/* What the server has answered last; the seal may be followed by the fail. */
enum cairn_up_reported {
    CAIRN_UP_REPORTED_NOTHING,
    CAIRN_UP_REPORTED_BEGIN,
    CAIRN_UP_REPORTED_SEAL,
    CAIRN_UP_REPORTED_FAIL
};
/* What the server must hear next. */
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
    uint64_t owner;    /* number of the save as an owner of slab generations (Q41); never 0 */
    bool holds_slab;   /* a generation of that owner */
    bool broken;       /* Q45: a record of it was not written */
    bool unjournaled;  /* no record of it is in the journal */
    bool durable_said; /* the trainer was told */
    bool look_again;   /* once it is sealed */
    uint32_t shard_count, durable_count, registered_count;
};

const char *cairn_up_phase_text(enum cairn_up_phase phase); /* "beginning", "open", ... */
void cairn_up_save_state_init(uint64_t owner, struct cairn_up_save_state *ret);
/* Of a journal's records, at a restart. */
struct cairn_up_save_past {
    bool staged, sealed, failed;
    bool sent; /* something of it may be on the store: it is staged again as it was */
};
void cairn_up_save_state_recover(uint64_t owner, const struct cairn_up_save_past *past,
                                 struct cairn_up_save_state *ret);
/* A save that a trainer had sealed and the journal does not have. */
void cairn_up_save_state_init_in_doubt(uint64_t owner, struct cairn_up_save_state *ret);

/* Is (phase, event) a row of the table? */
bool cairn_up_save_state_admits(const struct cairn_up_save_state *save, enum cairn_up_event event);
/* The one function that changes the phase. */
uint32_t cairn_up_save_state_move(struct cairn_up_save_state *save, enum cairn_up_event event);
/* What the requests on the wire allow by now: the answer to move and to every change of a shard.
 * quiet: no request carries bytes of it and none will; ended: none of its uploads is under way. */
uint32_t cairn_up_save_state_settle(struct cairn_up_save_state *save, bool quiet, bool ended);

/* ---- shards ---- */
/* By a row of uploader/state/shard.def. True: the senders must look at it once more (Q19); when
 * that look has begun, the event LOOK says so. */
bool cairn_up_save_state_shard_move(struct cairn_up_save_state *save,
                                    enum cairn_up_shard_phase *shard,
                                    enum cairn_up_shard_event event);
bool cairn_up_save_state_is_durable(const struct cairn_up_save_state *save);

/* ---- the server ---- */
enum cairn_up_report cairn_up_save_state_report_due(const struct cairn_up_save_state *save);
/* Q9: its seal or fail is journaled and not told; younger saves of the rank are begun after it. */
bool cairn_up_save_state_end_is_unreported(const struct cairn_up_save_state *save);
/* Q56: the server has heard neither of its seal nor of its fail. */
bool cairn_up_save_state_end_is_unheard(const struct cairn_up_save_state *save);
/* Q3: what a heartbeat counts as unsent. */
bool cairn_up_save_state_is_unsent(const struct cairn_up_save_state *save);
/* The server answered it. An answer that unknown or a fail has overtaken changes nothing. */
void cairn_up_save_state_answered(struct cairn_up_save_state *save, enum cairn_up_reported what);
/* The server does not know the version (Q19): begin again. True: its durable shards are looked at
 * now; those of a save that is being staged are looked at when it is sealed (Q47). */
bool cairn_up_save_state_unknown(struct cairn_up_save_state *save);
/* Everything was told; only the server knows the end. */
bool cairn_up_save_state_awaits_end(const struct cairn_up_save_state *save);
/* The seal and every shard were told, so the server may have committed it. */
bool cairn_up_save_state_may_be_committed(const struct cairn_up_save_state *save);
/* A stopping uploader waits for it. */
bool cairn_up_save_state_is_unfinished(const struct cairn_up_save_state *save);

/* Begun in the journal, and not over. */
bool cairn_up_save_state_is_begun(const struct cairn_up_save_state *save);

/* ---- trainers ---- */
bool cairn_up_save_state_is_sealed(
    const struct cairn_up_save_state *save); /* also when cancelled */
bool cairn_up_save_state_is_failing(const struct cairn_up_save_state *save);
/* May a trainer stage, give files, seal? */
bool cairn_up_save_state_is_staging(const struct cairn_up_save_state *save);
/* The same begin came again after a restart, and nothing was staged: it is this save. */
bool cairn_up_save_state_begins_again(const struct cairn_up_save_state *save);
/* What an offer hears of it. */
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
/* It continues and still needs the generation that it owns. */
bool cairn_up_save_state_needs_slab(const struct cairn_up_save_state *save);
