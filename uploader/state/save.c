/* SPDX-License-Identifier: Apache-2.0 */
/* Makes tables of save.def, shard.def and upload.def, and derives facts from a save's state. */
#include "uploader/state/save.h"

#include <string.h>

enum { /* the tables' short names */
       NOTHING = CAIRN_UP_DUE_NOTHING,
       RECORD_BEGIN = CAIRN_UP_DUE_RECORD_BEGIN,
       RECORD_FAIL = CAIRN_UP_DUE_RECORD_FAIL,
       ANSWER_BEGIN = CAIRN_UP_DUE_ANSWER_BEGIN,
       ANSWER_COUNT = CAIRN_UP_DUE_ANSWER_COUNT,
       REFUSE_BEGIN = CAIRN_UP_DUE_REFUSE_BEGIN,
       ANSWER_SEAL = CAIRN_UP_DUE_ANSWER_SEAL,
       REFUSE_SEAL = CAIRN_UP_DUE_REFUSE_SEAL,
       VERDICT = CAIRN_UP_DUE_VERDICT,
       ANSWER_FAIL = CAIRN_UP_DUE_ANSWER_FAIL,
       GIVE_UP_SHARDS = CAIRN_UP_DUE_GIVE_UP_SHARDS,
       REPORT = CAIRN_UP_DUE_REPORT,
};
struct move {
    enum cairn_up_phase from;
    enum cairn_up_event event;
    enum cairn_up_phase to;
    uint32_t due;
};
static const struct move moves[] = {
#define MOVE(from, event, to, due, why)                                                            \
    {CAIRN_UP_PHASE_##from, CAIRN_UP_EVENT_##event, CAIRN_UP_PHASE_##to, (due)},
#include "uploader/state/save.def"
#undef MOVE
};

const char *cairn_up_end_text(enum cairn_up_end end) {
    static const char *const texts[] = {"open",    "committed", "skipped",
                                        "refused", "aborted",   "failed"};
    return texts[end];
}

const char *cairn_up_phase_text(enum cairn_up_phase phase) {
    static const char *const texts[] = {"beginning", "withdrawn", "open",     "sealing", "sealed",
                                        "failing",   "cancelled", "in doubt", "over"};
    CAIRN_ASSERT((size_t)phase < CAIRN_COUNT(texts));
    return texts[phase];
}

void cairn_up_save_state_init(uint64_t owner, struct cairn_up_save_state *ret) {
    CAIRN_ASSERT(owner != 0);
    *ret = (struct cairn_up_save_state){.phase = CAIRN_UP_PHASE_BEGINNING, .owner = owner};
}

void cairn_up_save_state_recover(uint64_t owner, const struct cairn_up_save_past *past,
                                 struct cairn_up_save_state *ret) {
    cairn_up_save_state_init(owner, ret);
    ret->trainer = CAIRN_UP_TRAINER_AWAITED;
    ret->phase = past->sealed ? CAIRN_UP_PHASE_SEALED : CAIRN_UP_PHASE_OPEN;
    if (past->failed) ret->phase = past->sealed ? CAIRN_UP_PHASE_CANCELLED : CAIRN_UP_PHASE_FAILING;
    bool again = !past->sealed && !past->failed && past->sent;
    if (past->staged && (past->sealed || past->failed || past->sent))
        ret->staging = again ? CAIRN_UP_STAGING_AGAIN : CAIRN_UP_STAGING_DESCRIBED;
}

void cairn_up_save_state_init_in_doubt(uint64_t owner, struct cairn_up_save_state *ret) {
    cairn_up_save_state_init(owner, ret);
    ret->phase = CAIRN_UP_PHASE_IN_DOUBT;
    ret->reported = CAIRN_UP_REPORTED_SEAL;
    ret->unjournaled = ret->durable_said = true;
}

static const struct move *move_of(const struct cairn_up_save_state *save,
                                  enum cairn_up_event event) {
    for (size_t i = 0; i < CAIRN_COUNT(moves); i++) {
        if (moves[i].from == save->phase && moves[i].event == event) return &moves[i];
    }
    return NULL;
}

bool cairn_up_save_state_admits(const struct cairn_up_save_state *save, enum cairn_up_event event) {
    return move_of(save, event) != NULL;
}

static bool must_fail(enum cairn_up_phase phase) {
    return phase == CAIRN_UP_PHASE_WITHDRAWN || phase == CAIRN_UP_PHASE_FAILING ||
           phase == CAIRN_UP_PHASE_CANCELLED;
}

uint32_t cairn_up_save_state_move(struct cairn_up_save_state *save, enum cairn_up_event event) {
    const struct move *move = move_of(save, event);
    CAIRN_ASSERT(move != NULL);
    uint32_t due = move->due;
    if (event == CAIRN_UP_EVENT_UNWRITTEN) save->broken = true;
    if (event == CAIRN_UP_EVENT_LEFT) save->trainer = CAIRN_UP_TRAINER_GONE;
    if (due & CAIRN_UP_DUE_RECORD_BEGIN) save->unjournaled = false;
    if (save->broken) due &= ~(uint32_t)(CAIRN_UP_DUE_RECORD_BEGIN | CAIRN_UP_DUE_RECORD_FAIL);
    CAIRN_ASSERT(!(due & CAIRN_UP_DUE_ANSWER_SEAL) || !save->broken);
    save->phase = move->to;
    if (save->look_again && move->to == CAIRN_UP_PHASE_SEALED) {
        save->look_again = false;
        due |= CAIRN_UP_DUE_LOOK_AGAIN;
    }
    return due;
}

uint32_t cairn_up_save_state_settle(struct cairn_up_save_state *save, bool quiet, bool ended) {
    uint32_t due = CAIRN_UP_DUE_NOTHING;
    CAIRN_ASSERT(quiet || !ended);
    if (cairn_up_save_state_is_durable(save) && !save->durable_said) {
        save->durable_said = true;
        due |= CAIRN_UP_DUE_SAY_DURABLE;
    }
    bool through = save->phase == CAIRN_UP_PHASE_OVER || must_fail(save->phase) ||
                   (save->durable_said && cairn_up_save_state_is_durable(save));
    if (save->holds_slab && through && quiet) {
        save->holds_slab = false;
        due |= CAIRN_UP_DUE_FREE_SLAB;
    }
    if (save->phase == CAIRN_UP_PHASE_OVER && !save->holds_slab && ended) due |= CAIRN_UP_DUE_CLOSE;
    return due;
}

enum { /* changes of a save's counts that follow a shard's move */
       DURABLE_MORE = 1 << 0,
       DURABLE_LESS = 1 << 1,
       REGISTERED_MORE = 1 << 2,
       REGISTERED_LESS = 1 << 3,
       LOOK = 1 << 4 /* the senders HEAD it again */
};
static const struct {
    enum cairn_up_shard_phase from;
    enum cairn_up_shard_event event;
    enum cairn_up_shard_phase to;
    uint32_t due;
} shard_moves[] = {
#define MOVE(from, event, to, due, why)                                                            \
    {CAIRN_UP_SHARD_##from, CAIRN_UP_SHARD_EVENT_##event, CAIRN_UP_SHARD_##to, (due)},
#include "uploader/state/shard.def"
#undef MOVE
};

bool cairn_up_save_state_shard_move(struct cairn_up_save_state *save,
                                    enum cairn_up_shard_phase *shard,
                                    enum cairn_up_shard_event event) {
    size_t row = 0;
    while (row < CAIRN_COUNT(shard_moves) &&
           (shard_moves[row].from != *shard || shard_moves[row].event != event))
        row++;
    CAIRN_ASSERT(row < CAIRN_COUNT(shard_moves));
    *shard = shard_moves[row].to;
    uint32_t due = shard_moves[row].due;
    if (due & DURABLE_MORE) save->durable_count++;
    if (due & DURABLE_LESS) save->durable_count--;
    if (due & REGISTERED_MORE) save->registered_count++;
    if (due & REGISTERED_LESS) save->registered_count--;
    CAIRN_ASSERT(save->durable_count <= save->shard_count);
    CAIRN_ASSERT(save->registered_count <= save->durable_count);
    return due & LOOK;
}

bool cairn_up_save_state_is_durable(const struct cairn_up_save_state *save) {
    return save->phase == CAIRN_UP_PHASE_SEALED && save->durable_count == save->shard_count;
}

bool cairn_up_save_state_is_begun(const struct cairn_up_save_state *save) {
    return save->phase != CAIRN_UP_PHASE_BEGINNING && save->phase != CAIRN_UP_PHASE_WITHDRAWN &&
           save->phase != CAIRN_UP_PHASE_IN_DOUBT && save->phase != CAIRN_UP_PHASE_OVER;
}

bool cairn_up_save_state_end_is_unreported(const struct cairn_up_save_state *save) {
    if (!cairn_up_save_state_is_begun(save)) return false;
    if (must_fail(save->phase)) return save->reported != CAIRN_UP_REPORTED_FAIL;
    return save->phase == CAIRN_UP_PHASE_SEALED && save->reported < CAIRN_UP_REPORTED_SEAL;
}

enum cairn_up_report cairn_up_save_state_report_due(const struct cairn_up_save_state *save) {
    if (!cairn_up_save_state_is_begun(save)) return CAIRN_UP_REPORT_NOTHING;
    if (save->reported == CAIRN_UP_REPORTED_NOTHING) return CAIRN_UP_REPORT_BEGIN;
    if (must_fail(save->phase))
        return save->reported == CAIRN_UP_REPORTED_FAIL ? CAIRN_UP_REPORT_NOTHING
                                                        : CAIRN_UP_REPORT_FAIL;
    if (save->phase != CAIRN_UP_PHASE_SEALED) return CAIRN_UP_REPORT_NOTHING;
    bool all =
        save->reported == CAIRN_UP_REPORTED_SEAL && save->registered_count == save->durable_count;
    return all ? CAIRN_UP_REPORT_NOTHING : CAIRN_UP_REPORT_SHARDS;
}

bool cairn_up_save_state_end_is_unheard(const struct cairn_up_save_state *save) {
    if (save->phase == CAIRN_UP_PHASE_OVER) return false;
    return must_fail(save->phase) ? save->reported != CAIRN_UP_REPORTED_FAIL
                                  : save->reported < CAIRN_UP_REPORTED_SEAL;
}

bool cairn_up_save_state_is_unsent(const struct cairn_up_save_state *save) {
    if (save->phase == CAIRN_UP_PHASE_OVER) return false;
    if (save->reported == CAIRN_UP_REPORTED_NOTHING) return true;
    if (must_fail(save->phase)) return save->reported != CAIRN_UP_REPORTED_FAIL;
    bool seals = save->phase == CAIRN_UP_PHASE_SEALING || save->phase == CAIRN_UP_PHASE_SEALED;
    return seals && save->reported < CAIRN_UP_REPORTED_SEAL;
}

void cairn_up_save_state_answered(struct cairn_up_save_state *save, enum cairn_up_reported what) {
    CAIRN_ASSERT(what != CAIRN_UP_REPORTED_NOTHING);
    CAIRN_ASSERT(what != CAIRN_UP_REPORTED_FAIL || must_fail(save->phase) ||
                 save->phase == CAIRN_UP_PHASE_OVER);
    bool follows = what == CAIRN_UP_REPORTED_FAIL ? save->reported >= CAIRN_UP_REPORTED_BEGIN
                                                  : save->reported + 1 == what;
    if (follows) save->reported = what;
}

bool cairn_up_save_state_unknown(struct cairn_up_save_state *save) {
    if (!cairn_up_save_state_is_begun(save)) return false;
    if (save->reported == CAIRN_UP_REPORTED_NOTHING) return false;
    save->reported = CAIRN_UP_REPORTED_NOTHING;
    bool staging = save->phase == CAIRN_UP_PHASE_OPEN || save->phase == CAIRN_UP_PHASE_SEALING;
    save->look_again |= staging;
    return !staging;
}

bool cairn_up_save_state_may_be_committed(const struct cairn_up_save_state *save) {
    if (save->phase == CAIRN_UP_PHASE_IN_DOUBT) return true;
    bool sealed = save->phase == CAIRN_UP_PHASE_SEALED || save->phase == CAIRN_UP_PHASE_CANCELLED;
    return sealed && save->reported >= CAIRN_UP_REPORTED_SEAL &&
           save->registered_count == save->shard_count;
}

bool cairn_up_save_state_awaits_end(const struct cairn_up_save_state *save) {
    if (must_fail(save->phase)) return save->reported == CAIRN_UP_REPORTED_FAIL;
    return cairn_up_save_state_may_be_committed(save);
}

bool cairn_up_save_state_is_unfinished(const struct cairn_up_save_state *save) {
    /* A save in OVER remains while its upload is being aborted. */
    if (save->phase == CAIRN_UP_PHASE_OVER) return true;
    if (must_fail(save->phase)) return save->reported != CAIRN_UP_REPORTED_FAIL;
    return save->phase == CAIRN_UP_PHASE_SEALED && !cairn_up_save_state_may_be_committed(save);
}

bool cairn_up_save_state_is_sealed(const struct cairn_up_save_state *save) {
    return save->phase == CAIRN_UP_PHASE_SEALED || save->phase == CAIRN_UP_PHASE_CANCELLED ||
           save->phase == CAIRN_UP_PHASE_IN_DOUBT;
}

bool cairn_up_save_state_is_failing(const struct cairn_up_save_state *save) {
    return must_fail(save->phase);
}

bool cairn_up_save_state_is_staging(const struct cairn_up_save_state *save) {
    return save->phase == CAIRN_UP_PHASE_OPEN;
}

bool cairn_up_save_state_begins_again(const struct cairn_up_save_state *save) {
    return save->phase == CAIRN_UP_PHASE_OPEN && save->trainer == CAIRN_UP_TRAINER_AWAITED &&
           save->staging == CAIRN_UP_STAGING_NONE;
}

enum cairn_up_joined cairn_up_save_state_join(struct cairn_up_save_state *save,
                                              enum cairn_up_end end) {
    save->trainer = CAIRN_UP_TRAINER_HERE;
    switch (save->phase) {
    case CAIRN_UP_PHASE_IN_DOUBT:
        return CAIRN_UP_JOINED_ENDED;
    case CAIRN_UP_PHASE_OVER:
        if (end == CAIRN_UP_COMMITTED) return CAIRN_UP_JOINED_COMMITTED;
        return end == CAIRN_UP_FAILED ? CAIRN_UP_JOINED_FAILED : CAIRN_UP_JOINED_ABORTED;
    case CAIRN_UP_PHASE_WITHDRAWN:
    case CAIRN_UP_PHASE_FAILING:
        return CAIRN_UP_JOINED_FAILED;
    case CAIRN_UP_PHASE_CANCELLED: /* Q40: a commit may have come before the fail */
        return CAIRN_UP_JOINED_CONTINUES;
    default:
        break;
    }
    if (!cairn_up_save_state_is_durable(save)) return CAIRN_UP_JOINED_CONTINUES;
    save->durable_said = true;
    return CAIRN_UP_JOINED_DURABLE;
}

bool cairn_up_save_state_needs_slab(const struct cairn_up_save_state *save) {
    return save->phase == CAIRN_UP_PHASE_OPEN || save->phase == CAIRN_UP_PHASE_SEALING ||
           (save->phase == CAIRN_UP_PHASE_SEALED && save->durable_count < save->shard_count);
}

/* ---- uploads of shards ---- */

static const struct upload_move {
    enum cairn_up_upload_phase from;
    enum cairn_up_upload_event event;
    enum cairn_up_upload_phase to;
    enum cairn_up_upload_due due;
} upload_moves[] = {
#define MOVE(from, event, to, due, why)                                                            \
    {CAIRN_UP_UPLOAD_##from, CAIRN_UP_UPLOAD_EVENT_##event, CAIRN_UP_UPLOAD_##to,                  \
     CAIRN_UP_UPLOAD_DUE_##due},
#include "uploader/state/upload.def"
#undef MOVE
};

static const struct upload_move *upload_move_of(enum cairn_up_upload_phase upload,
                                                enum cairn_up_upload_event event) {
    for (size_t i = 0; i < CAIRN_COUNT(upload_moves); i++)
        if (upload_moves[i].from == upload && upload_moves[i].event == event)
            return &upload_moves[i];
    return NULL;
}

bool cairn_up_upload_state_admits(enum cairn_up_upload_phase upload,
                                  enum cairn_up_upload_event event) {
    return upload_move_of(upload, event) != NULL;
}

enum cairn_up_upload_due cairn_up_upload_state_move(enum cairn_up_upload_phase *upload,
                                                    enum cairn_up_upload_event event) {
    const struct upload_move *move = upload_move_of(*upload, event);
    CAIRN_ASSERT(move != NULL);
    *upload = move->to;
    return move->due;
}

bool cairn_up_upload_state_is_queued(enum cairn_up_upload_phase upload) {
    return upload == CAIRN_UP_UPLOAD_SENDING || upload == CAIRN_UP_UPLOAD_ENDING;
}

bool cairn_up_upload_state_has_ended(enum cairn_up_upload_phase upload) {
    return upload == CAIRN_UP_UPLOAD_DURABLE || upload == CAIRN_UP_UPLOAD_FAILED;
}

/* ---- generations of slabs ---- */

bool cairn_up_slab_state_take(struct cairn_up_slab_state *slab, uint64_t owner) {
    CAIRN_ASSERT(owner != 0);
    if (slab->owner && slab->owner != owner) return false;
    slab->owner = owner;
    slab->kept = 0;
    return true;
}

void cairn_up_slab_state_give(struct cairn_up_slab_state *slab, uint64_t owner) {
    CAIRN_ASSERT(owner != 0);
    CAIRN_ASSERT(slab->owner == owner);
    slab->owner = 0;
}

void cairn_up_slab_state_keep(struct cairn_up_slab_state *slab, uint64_t owner) {
    cairn_up_slab_state_give(slab, owner);
    slab->kept = owner;
}

void cairn_up_slab_state_forget(struct cairn_up_slab_state *slab) {
    CAIRN_ASSERT(!slab->owner || !slab->kept);
    slab->kept = 0;
}

enum cairn_up_claimed cairn_up_slab_state_claim(struct cairn_up_slab_state *slab,
                                                const struct cairn_up_slab_claim *claim) {
    if (!claim->needed) return CAIRN_UP_CLAIM_NOT_NEEDED;
    if (!claim->offered_owner || claim->offered_owner != claim->save_owner)
        return CAIRN_UP_CLAIM_NOT_OWNER;
    if (claim->journaled_owner && claim->journaled_owner != claim->save_owner)
        return CAIRN_UP_CLAIM_NOT_OWNER;
    if (claim->journaled_owner && !claim->same_memory) return CAIRN_UP_CLAIM_NOT_THERE;
    return cairn_up_slab_state_take(slab, claim->save_owner) ? CAIRN_UP_CLAIM_JOINED
                                                             : CAIRN_UP_CLAIM_NOT_OWNER;
}
