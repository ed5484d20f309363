/* SPDX-License-Identifier: Apache-2.0 */
/* The life of a save: its moves, its generation, its problem. Nothing here sends a message. */
#include "client/save/save.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>

#include "client/save/known.h"
#include "client/save/share.h"
#include "client/session/process.h"

_Static_assert((int)CAIRN_CLIENT_REACHED_STAGED == (int)CAIRN_STAGED &&
                   (int)CAIRN_CLIENT_REACHED_DURABLE == (int)CAIRN_DURABLE &&
                   (int)CAIRN_CLIENT_REACHED_COMMITTED == (int)CAIRN_COMMITTED,
               "one order of milestones");

struct cairn_save *cairn_client_save_find(struct cairn_session *session, uint64_t id) {
    struct cairn_save *save;
    TAILQ_FOREACH(save, &session->saves->all, place)
        if (id && save->id == id) break;
    return save;
}

bool cairn_client_save_over(const struct cairn_save *save) {
    return cairn_client_save_state_is_over(&save->state);
}

void cairn_client_save_event(struct cairn_save *save, enum cairn_client_event event) {
    bool described = save->state.phase == CAIRN_CLIENT_PHASE_COUNTED || save->parked;
    enum cairn_client_reached before = save->state.reached;
    if (!cairn_client_save_state_move(&save->state, event)) return;
    CAIRN_PROMISE(save->state.reached >= before, (void)0); /* state.h#2 */
    if (save->state.reached >= CAIRN_CLIENT_REACHED_DURABLE) {
        save->sent_bytes = save->total_bytes;
        if (!save->durable_ms) save->durable_ms = cairn_mono_ms();
    }
    if (save->state.phase == CAIRN_CLIENT_PHASE_COMMITTED)
        save->problem = (struct cairn_error){0}; /* Q40: the handle ends committed */
    CAIRN_PROMISE(!cairn_client_save_over(save) || save->problem.code ||
                      save->state.phase == CAIRN_CLIENT_PHASE_COMMITTED, (void)0); /* save.h#1 */
    if (cairn_client_save_over(save)) cairn_client_save_settle(save);
    if (cairn_client_save_over(save) || save->state.reached > before)
        cairn_client_save_changed(save);
    /* The thread that copies gives the generation back itself; a save that was never staged, or
     * waits for its seal, has no such thread. */
    if (described && cairn_client_save_over(save)) cairn_client_save_give(save);
}

void cairn_client_save_changed(struct cairn_save *save) {
    if (save->changed) return;
    save->changed = true;
    if (save->fd >= 0) (void)!eventfd_write(save->fd, 1);
}

void cairn_client_save_settle(const struct cairn_save *save) {
    const struct cairn_client_counter counter = {save->session->nonce, save->session->rank};
    cairn_client_process_settle(&counter, save->step, save->n);
}

void cairn_client_save_end(struct cairn_save *save, const struct cairn_error *why) {
    if (cairn_client_save_over(save)) return;
    save->problem = *why;
    CAIRN_PROMISE(why->code, save->problem.code = CAIRN_BROKEN);
    /* cairn_save_wait returns UPLOADER_GONE for a wait that may be repeated; this save is over. */
    if (why->code == CAIRN_UPLOADER_GONE) save->problem.code = CAIRN_SOURCE_GONE;
    cairn_client_save_event(save, CAIRN_CLIENT_EVENT_FAIL);
}

void cairn_client_save_drop_pieces(struct cairn_save *save) {
    size_t first = save->known ? save->known->count : 0;
    for (size_t i = first; i < save->piece_count; i++) free(save->pieces[i].strided);
    for (size_t i = 0; i < save->raw_count; i++) free(save->raws[i].name);
    for (size_t i = 0; i < save->owned_count; i++) free(save->owned[i]);
    free(save->owned);
    save->owned = NULL;
    save->owned_count = save->owned_capacity = 0;
    if (save->known)
        cairn_client_known_give(save->known, save->pieces);
    else
        free(save->pieces);
    cairn_pieces_free(CAIRN_TAKE(save->known));
    cairn_client_texts_release(&save->texts);
    free(CAIRN_TAKE(save->sources));
    free(save->raws);
    cairn_shard_names_release(&save->raw_names);
    cairn_client_shares_release(&save->shares);
    save->pieces = NULL;
    save->raws = NULL;
    save->piece_count = save->piece_capacity = save->raw_count = save->raw_capacity = 0;
    save->source_count = 0;
}

void cairn_client_save_retire_pieces(struct cairn_save *save) {
    cairn_lock_take(&save->session->lock);
    bool wanted = !save->freed && !save->last && save->piece_count + save->raw_count > 0;
    cairn_lock_give(&save->session->lock);
    struct cairn_pieces *last = wanted ? cairn_client_known_of(save) : NULL;
    const void **sources = last ? CAIRN_TAKE(save->sources) : NULL;
    cairn_client_save_drop_pieces(save);
    if (!last) return;
    CAIRN_HOLD(&save->session->lock);
    save->last = last;
    save->last_sources = sources;
}

void cairn_client_save_give(struct cairn_save *save) {
    if (save->generation < 0) return;
    CAIRN_PROMISE((uint32_t)save->generation < save->session->slab_count, return);
    struct cairn_client_generation *own = &save->session->saves->generations[save->generation];
    if (own->held == save) own->held = NULL;
    if (!own->held && !own->lent) own->owner = 0;
    cairn_client_changed(save->session);
}

bool cairn_client_save_owns(const struct cairn_save *save, uint32_t generation) {
    const struct cairn_client_generation *at = &save->session->saves->generations[generation];
    enum cairn_client_phase phase = save->state.phase;
    bool needed = phase == CAIRN_CLIENT_PHASE_COPYING || phase == CAIRN_CLIENT_PHASE_COPIED ||
                  cairn_client_save_state_is_unsent(&save->state);
    return needed && save->generation == (int)generation && save->owner && at->owner == save->owner;
}

enum cairn_code cairn_client_save_enter(struct cairn_save *save, struct cairn_error *err) {
    if (!save) return cairn_fail(err, CAIRN_INVALID, "no save");
    if (!save->session)
        return cairn_fail(err, CAIRN_INVALID, "step %" PRIu64 ": its session is closed",
                          save->step);
    return cairn_client_enter(save->session, err);
}

enum cairn_code cairn_client_save_take(struct cairn_save *save, struct cairn_error *err) {
    CAIRN_TRY(cairn_client_save_enter(save, err));
    struct cairn_session *session = save->session;
    cairn_lock_take(&session->lock);
    bool taken = save->user.depth && !pthread_equal(save->user.thread, pthread_self());
    if (!taken) {
        save->user.thread = pthread_self();
        save->user.depth++;
    }
    cairn_lock_give(&session->lock);
    if (!taken) return CAIRN_OK;
    cairn_client_leave(session);
    return cairn_fail(err, CAIRN_INVALID,
                      "%s step %" PRIu64 ": another thread is in a call on this save's handle; one "
                      "at a time may be (but for cairn_save_cancel, _status and _poll)",
                      session->run, save->step);
}

void cairn_client_save_untake_at(struct cairn_save **save) {
    struct cairn_session *session = (*save)->session;
    cairn_lock_take(&session->lock);
    void (*end)(struct cairn_save *ended) = --(*save)->user.depth ? NULL : (*save)->user.end;
    cairn_lock_give(&session->lock);
    if (end) end(*save);
    cairn_client_leave(session);
}

enum cairn_code cairn_client_save_describable(struct cairn_save *save, struct cairn_error *err) {
    CAIRN_HOLD(&save->session->lock);
    if (cairn_client_save_over(save) && save->problem.code)
        return cairn_client_save_problem(save, err);
    if (save->state.phase != CAIRN_CLIENT_PHASE_COUNTED && !save->kept)
        return cairn_fail(err, CAIRN_INVALID, "%s step %" PRIu64 ": it was staged already",
                          save->session->run, save->step);
    return CAIRN_OK;
}

enum cairn_code cairn_client_save_named(const struct cairn_save *save, enum cairn_code code,
                                        struct cairn_error *err) {
    char which[24] = "";
    if (save->n > 1) snprintf(which, sizeof which, " n %u", save->n);
    return cairn_within(err, code, "%s step %" PRIu64 " rank %u%s", save->session->run, save->step,
                        save->session->rank, which);
}

enum cairn_code cairn_client_save_problem(struct cairn_save *save, struct cairn_error *err) {
    save->problem_returned = true;
    if (err) *err = save->problem;
    return cairn_client_save_named(save, save->problem.code, err);
}

bool cairn_client_save_close(struct cairn_save *save, const struct cairn_error *why, bool behind) {
    cairn_lock_take(&save->session->lock);
    bool open = !cairn_client_save_over(save), other = save->behind.busy && !behind;
    cairn_client_save_end(save, why);
    if (!behind) save->problem_returned = true;
    if (!other) cairn_client_save_give(save); /* else its thread does, once it has found that out */
    if (other) cairn_client_changed(save->session);
    cairn_lock_give(&save->session->lock);
    if (!other) cairn_client_save_retire_pieces(save);
    return open;
}

bool cairn_client_save_reads(const struct cairn_save *save) {
    return save->behind.inside || (save->behind.reads && !cairn_client_save_over(save));
}

bool cairn_client_save_under_way(const struct cairn_save *save) {
    return save->behind.busy || cairn_client_save_state_is_unsent(&save->state);
}

void cairn_client_save_sealed(struct cairn_save *save) {
    cairn_lock_take(&save->session->lock);
    cairn_client_save_event(save, CAIRN_CLIENT_EVENT_SEAL);
    CAIRN_PROMISE(save->state.reached >= CAIRN_CLIENT_REACHED_STAGED ||
                      cairn_client_save_over(save), (void)0);
    cairn_client_save_give(save);
    cairn_lock_give(&save->session->lock);
    cairn_client_save_retire_pieces(save);
}
