/* SPDX-License-Identifier: Apache-2.0 */
/* Begin a save, follow its life, and end it: everything but the bytes. */
#include "client/save/save.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "api/meta.h"
#include "client/session/process.h"
#include "common/rule.h"

#define META_TEXT_BYTES_MAX (4 * CAIRN_META_BYTES_MAX) /* as written, with its spaces */
#define SKIP_WAIT_MS 1000
#define BEGIN_TRIES 3

_Static_assert((int)CAIRN_CLIENT_REACHED_STAGED == (int)CAIRN_STAGED &&
                   (int)CAIRN_CLIENT_REACHED_DURABLE == (int)CAIRN_DURABLE &&
                   (int)CAIRN_CLIENT_REACHED_COMMITTED == (int)CAIRN_COMMITTED,
               "one order of milestones");

/* ---- life ---- */

struct cairn_save *cairn_client_save_find(struct cairn_session *session, uint64_t id) {
    struct cairn_save *save = session->locked.saves;
    while (save && (save->id != id || !id)) save = save->next;
    return save;
}

bool cairn_client_save_over(const struct cairn_save *save) {
    return cairn_client_save_state_is_over(&save->state);
}

void cairn_client_save_event(struct cairn_save *save, enum cairn_client_event event) {
    if (!cairn_client_save_state_move(&save->state, event)) return;
    if (save->state.reached >= CAIRN_CLIENT_REACHED_DURABLE)
        save->durable_bytes = save->total_bytes;
    if (save->state.phase == CAIRN_CLIENT_PHASE_COMMITTED)
        save->problem = (struct cairn_error){0}; /* Q40: the handle ends committed */
    if (cairn_client_save_over(save)) cairn_client_save_settle(save);
}

void cairn_client_save_settle(const struct cairn_save *save) {
    const struct cairn_client_counter counter = {save->session->nonce, save->session->rank};
    cairn_client_process_settle(&counter, save->step, save->n);
}

void cairn_client_save_end(struct cairn_save *save, const struct cairn_error *why) {
    if (cairn_client_save_over(save)) return;
    save->problem = *why;
    /* From a wait, UPLOADER_GONE means "ask again"; this save will not come back. */
    if (why->code == CAIRN_UPLOADER_GONE) save->problem.code = CAIRN_SOURCE_GONE;
    cairn_client_save_event(save, CAIRN_CLIENT_EVENT_FAIL);
}

void cairn_client_save_drop_pieces(struct cairn_save *save) {
    for (size_t i = 0; i < save->piece_count; i++) {
        free(save->pieces[i].name);
        free(save->pieces[i].alias_of);
        free(save->pieces[i].in_file);
    }
    for (size_t i = 0; i < save->raw_count; i++) free(save->raws[i].name);
    free(save->pieces);
    free(save->raws);
    cairn_shard_names_release(&save->raw_names);
    save->pieces = NULL;
    save->raws = NULL;
    save->piece_count = save->piece_capacity = save->raw_count = save->raw_capacity = 0;
}

void cairn_client_save_destroy(struct cairn_save *save) {
    if (!save) return;
    cairn_client_save_drop_pieces(save);
    cairn_client_stager_free(save->owed);
    json_decref(save->begin);
    free(save);
}

void cairn_client_saves_sweep(struct cairn_session *session) {
    struct cairn_save **at = &session->locked.saves;
    while (*at) {
        struct cairn_save *save = *at;
        enum cairn_client_phase phase = save->state.phase;
        bool done = save->freed && !save->finishing &&
                    (phase == CAIRN_CLIENT_PHASE_COMMITTED ||
                     (phase == CAIRN_CLIENT_PHASE_FAILED && (save->told || !CAIRN_RULE(Q43))));
        if (!done) {
            at = &save->next;
            continue;
        }
        *at = save->next;
        cairn_client_save_destroy(save);
    }
}

void cairn_client_save_give(struct cairn_save *save) {
    if (save->generation < 0) return;
    struct cairn_client_generation *own = &save->session->locked.generations[save->generation];
    if (own->held == save) own->held = NULL;
    if (!own->held && !own->lent) own->owner = 0;
    cairn_condition_broadcast(&save->session->changed);
}

bool cairn_client_save_owns(const struct cairn_save *save, uint32_t generation) {
    const struct cairn_client_generation *at = &save->session->locked.generations[generation];
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

enum cairn_code cairn_client_save_named(const struct cairn_save *save, enum cairn_code code,
                                        struct cairn_error *err) {
    char which[24] = "";
    if (save->n > 1) snprintf(which, sizeof which, " n %u", save->n);
    return cairn_within(err, code, "%s step %" PRIu64 " rank %u%s", save->session->run, save->step,
                        save->session->rank, which);
}

enum cairn_code cairn_client_save_problem(struct cairn_save *save, struct cairn_error *err) {
    save->told = true;
    if (err) *err = save->problem;
    return cairn_client_save_named(save, save->problem.code, err);
}

bool cairn_client_save_close(struct cairn_save *save, const struct cairn_error *why) {
    cairn_lock_take(&save->session->lock);
    bool open = !cairn_client_save_over(save);
    cairn_client_save_end(save, why);
    save->told = true;
    cairn_client_save_give(save);
    cairn_lock_give(&save->session->lock);
    cairn_client_save_drop_pieces(save);
    return open;
}

enum cairn_code cairn_client_save_fail(struct cairn_save *save, enum cairn_code code,
                                       struct cairn_error *err) {
    struct cairn_error own = {.code = code}, *why = err ? err : &own;
    if (cairn_client_save_close(save, why)) {
        cairn_lock_take(&save->session->lock);
        if (save->id && (save->state.reached >= CAIRN_CLIENT_REACHED_STAGED || save->seal_sent))
            cairn_client_save_event(save, CAIRN_CLIENT_EVENT_CANCEL);
        cairn_lock_give(&save->session->lock);
        cairn_client_tell(save->session, save->id, save->step, save->n, why);
        return cairn_client_save_named(save, code, err);
    }
    /* The version was over before: its verdict explains the error, not the other way round. */
    CAIRN_HOLD(&save->session->lock);
    bool committed = save->state.phase == CAIRN_CLIENT_PHASE_COMMITTED;
    return committed ? cairn_client_save_named(save, code, err)
                     : cairn_client_save_problem(save, err);
}

void cairn_client_save_sealed(struct cairn_save *save) {
    cairn_lock_take(&save->session->lock);
    cairn_client_save_event(save, CAIRN_CLIENT_EVENT_SEAL);
    cairn_client_save_give(save);
    cairn_lock_give(&save->session->lock);
    cairn_client_save_drop_pieces(save);
}

/* ---- begin ---- */

static const char *on_exists_text(enum cairn_on_exists on_exists) {
    if (on_exists == CAIRN_EXISTS_NEW_VERSION) return "new-version";
    return on_exists == CAIRN_EXISTS_SUPERSEDE ? "supersede" : "error";
}

static enum cairn_code parse_object(const char *what, const char *text, bool of_text, json_t **ret,
                                    struct cairn_error *err) {
    if (!text) return CAIRN_OK;
    const struct cairn_json_limits limits = {META_TEXT_BYTES_MAX, 0};
    CAIRN_AUTO_JSON json_t *value = NULL;
    enum cairn_code code = cairn_json_parse(cairn_view_of(text), limits, &value, err);
    if (code) return cairn_within(err, code, "%s", what);
    CAIRN_TRY(cairn_meta_check(value, what, of_text, NULL, err));
    *ret = CAIRN_TAKE(value);
    return CAIRN_OK;
}

static enum cairn_code begin_body(struct cairn_save *save, const struct cairn_save_options *options,
                                  struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *labels = NULL, *meta = NULL;
    if (save->session->rank == 0) {
        CAIRN_TRY(parse_object("labels", options->labels_json, true, &labels, err));
        CAIRN_TRY(parse_object("meta", options->meta_json, false, &meta, err));
    }
    if (options->format && (strlen(options->format) >= 64 || !options->format[0] ||
                            !cairn_name_valid(cairn_view_of(options->format))))
        return cairn_fail(err, CAIRN_INVALID,
                          "format tag: 1 to 63 of A-Za-z0-9._- are allowed, beginning with one of "
                          "A-Za-z0-9");
    save->begin = json_pack("{s:s, s:I, s:I, s:s, s:b, s:s?, s:O?, s:O?, s:n}", "t", "begin",
                            "step", (json_int_t)save->step, "n", (json_int_t)save->n, "on_exists",
                            on_exists_text(options->on_exists), "skip", options->skip != 0,
                            "format", options->format, "labels", labels, "meta", meta, "split");
    if (!save->begin) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the begin");
    return CAIRN_OK;
}

static bool read_begun(const json_t *answer, uint64_t *ret_id, uint64_t *ret_owner,
                       const char **ret_version) {
    *ret_version = cairn_client_text_of(answer, "version");
    return cairn_client_u64_of(answer, "save", ret_id) && *ret_id && *ret_version &&
           cairn_client_u64_of(answer, "owner", ret_owner) && *ret_owner &&
           cairn_version_id_valid(cairn_view_of(*ret_version));
}

void cairn_client_save_begun(struct cairn_save *save, const json_t *answer) {
    const char *version = NULL;
    uint64_t id = 0, owner = 0;
    if (!read_begun(answer, &id, &owner, &version)) return; /* whoever asked says so */
    save->id = id;
    save->owner = owner;
    memcpy(save->version, version, strlen(version) + 1);
    if (save->generation < 0) return;
    /* An uploader that came back without its journal. */
    struct cairn_client_generation *own = &save->session->locked.generations[save->generation];
    if (own->held == save) own->owner = owner;
}

enum cairn_code cairn_client_save_begin_again(struct cairn_save *save, uint32_t epoch, bool alone,
                                              uint64_t deadline_ms, struct cairn_error *err) {
    struct cairn_session *session = save->session;
    CAIRN_AUTO(frame) answer = {0};
    const char *version = NULL;
    uint64_t id = 0, owner = 0;
    const struct cairn_client_ask ask = {.take_message = json_deep_copy(save->begin),
                                         .wanted = "begun",
                                         .begins = save,
                                         .epoch = epoch,
                                         .deadline_ms = deadline_ms};
    CAIRN_TRY(alone ? cairn_client_ask_alone(session, &ask, &answer, err)
                    : cairn_client_call(session, &ask, &answer, err));
    if (!read_begun(answer.message, &id, &owner, &version))
        return cairn_fail(err, CAIRN_PROTOCOL, "begun without a save, its owner and version");
    CAIRN_HOLD(&session->lock);
    if (alone) cairn_client_save_begun(save, answer.message);
    return CAIRN_OK;
}

/* A generation that nobody writes and no uploader reads. The lock is held. */
static bool generation_take_free(struct cairn_save *save) {
    struct cairn_session *session = save->session;
    for (uint32_t i = 0; i < session->slab_count; i++) {
        struct cairn_client_generation *at = &session->locked.generations[i];
        if (at->held || at->lent) continue;
        at->held = save;
        at->owner = save->owner;
        save->generation = (int)i;
        return true;
    }
    return false;
}

/* Q14: only this rank's own generations count; a verdict ends the wait. The lock is held. */
static enum cairn_code generation_take(struct cairn_save *save, uint64_t deadline_ms,
                                       struct cairn_error *err) {
    struct cairn_session *session = save->session;
    for (;;) {
        uint32_t epoch = 0;
        if (cairn_client_save_over(save) || generation_take_free(save)) return CAIRN_OK;
        if (session->locked.state != CAIRN_CLIENT_UP)
            CAIRN_TRY(cairn_client_reach(session, deadline_ms, &epoch, err));
        else if (!cairn_condition_wait(&session->changed, &session->lock, deadline_ms))
            return cairn_fail(err, CAIRN_TIMEOUT, "%u of %u slab generations are still being sent",
                              session->slab_count, session->slab_count);
    }
}

static bool earlier_unsent(const struct cairn_save *save) {
    for (const struct cairn_save *at = save->session->locked.saves; at; at = at->next)
        if (at != save && cairn_client_save_state_is_unsent(&at->state)) return true;
    return false;
}

/* Q11: the server judges `skip` for all ranks; what this rank sees itself is waited for briefly,
 * and where its own memory is still in use the save is skipped in any case. The lock is held. */
static enum cairn_code skip_wait(struct cairn_save *save, struct cairn_error *err) {
    struct cairn_session *session = save->session;
    uint64_t until_ms = cairn_mono_ms() + SKIP_WAIT_MS;
    while (!cairn_client_save_over(save) && earlier_unsent(save))
        if (!cairn_condition_wait(&session->changed, &session->lock, until_ms)) break;
    if (generation_take(save, cairn_mono_ms(), NULL) == CAIRN_OK) return CAIRN_OK;
    return cairn_fail(err, CAIRN_SKIPPED, "an earlier save is still being sent");
}

/* An uploader that died over the question is asked again as soon as it is back: the same n is the
 * same begin (Q8). One that stays away ends this within CAIRN_CLIENT_GONE_MS. */
static enum cairn_code ask_begin(struct cairn_save *save, uint64_t deadline_ms,
                                 struct cairn_error *err) {
    enum cairn_code code = CAIRN_UPLOADER_GONE;
    for (int tries = 0; tries < BEGIN_TRIES && code == CAIRN_UPLOADER_GONE; tries++)
        code = cairn_client_save_begin_again(save, 0, false, deadline_ms, err);
    return code;
}

static enum cairn_code begin(struct cairn_save *save, const struct cairn_save_options *options,
                             struct cairn_error *err) {
    struct cairn_session *session = save->session;
    uint64_t deadline_ms = cairn_client_deadline(session, options->timeout_ms);
    CAIRN_TRY(begin_body(save, options, err));
    enum cairn_code code = ask_begin(save, deadline_ms, err);
    CAIRN_HOLD(&session->lock);
    /* Q43: a step that this rank left out would be lost to every rank that stages it, however soon
     * the uploader is back. Where a generation is free the save is made in it, and the one that
     * comes back hears of the begin together with the bytes (client/save/stage.c). */
    if (code == CAIRN_UPLOADER_GONE && generation_take_free(save)) return CAIRN_OK;
    CAIRN_TRY(code);
    if (session->slab_count && options->skip) CAIRN_TRY(skip_wait(save, err));
    if (session->slab_count && !options->skip) CAIRN_TRY(generation_take(save, deadline_ms, err));
    if (cairn_client_save_over(save)) {
        if (err) *err = save->problem;
        return save->problem.code;
    }
    return CAIRN_OK;
}

static struct cairn_save *save_new(struct cairn_session *session, uint64_t step, uint32_t n) {
    struct cairn_save *save = calloc(1, sizeof *save);
    if (!save) return NULL;
    save->session = session;
    save->step = step;
    save->n = n;
    save->generation = -1;
    CAIRN_HOLD(&session->lock);
    struct cairn_save **end = &session->locked.saves;
    while (*end) end = &(*end)->next;
    *end = save;
    return save;
}

enum cairn_code cairn_save_begin(struct cairn_session *session, uint64_t step,
                                 const struct cairn_save_options *options, struct cairn_save **ret,
                                 struct cairn_error *err) {
    static const struct cairn_save_options defaults;
    uint64_t started_us = cairn_mono_us();
    uint32_t n = 0;
    CAIRN_TRY(cairn_client_enter(session, err));
    if (session->read_only)
        return cairn_fail(err, CAIRN_INVALID, "%s: the session was opened read_only", session->run);
    if (step > CAIRN_STEP_MAX)
        return cairn_fail(err, CAIRN_INVALID, "step %" PRIu64 ": the largest is %" PRIu64, step,
                          CAIRN_STEP_MAX);
    struct cairn_error own = {0};
    if (!err) err = &own;
    const struct cairn_client_counter counter = {session->nonce, session->rank};
    CAIRN_TRY(cairn_client_process_count(&counter, step, &n, err));
    struct cairn_save *save = save_new(session, step, n);
    if (!save) {
        (void)cairn_fail(err, CAIRN_NO_MEMORY, "step %" PRIu64 ": no memory for a save", step);
        cairn_client_process_settle(&counter, step, n);
        cairn_client_tell(session, 0, step, n, err);
        return CAIRN_NO_MEMORY;
    }
    enum cairn_code code = begin(save, options ? options : &defaults, err);
    save->stall_us = cairn_mono_us() - started_us;
    if (code) {
        code = cairn_client_save_fail(save, code, err);
        cairn_save_free(save);
        return code;
    }
    *ret = save;
    return CAIRN_OK;
}

/* ---- looking at it, giving it up ---- */

void cairn_save_status(const struct cairn_save *save, struct cairn_save_status *ret) {
    struct cairn_session *session = save->session;
    bool lock = session && session->pid == getpid();
    if (lock) cairn_lock_take(&session->lock);
    *ret = (struct cairn_save_status){.step = save->step,
                                      .reached = (enum cairn_milestone)save->state.reached,
                                      .total_bytes = save->total_bytes,
                                      .durable_bytes = save->durable_bytes,
                                      .stall_us = save->stall_us};
    memcpy(ret->version, save->version, sizeof ret->version);
    if (lock) cairn_lock_give(&session->lock);
}

void cairn_save_free(struct cairn_save *save) {
    if (!save) return;
    struct cairn_session *session = save->session;
    if (!session) {
        cairn_client_save_destroy(save);
        return;
    }
    if (session->pid != getpid()) return; /* the parent's; its memory goes with the child */
    cairn_client_save_drop_pieces(save);
    cairn_lock_take(&session->lock);
    bool owed = save->owed || save->finishing; /* goes on without the handle, as a sealed one */
    bool unsealed =
        save->state.reached < CAIRN_CLIENT_REACHED_STAGED && !owed && !cairn_client_save_over(save);
    uint64_t id = save->id, step = save->step;
    uint32_t n = save->n;
    struct cairn_error why = {0};
    if (unsealed) {
        (void)cairn_fail(&why, CAIRN_CANCELLED, "freed before it was staged");
        cairn_client_save_end(save, &why);
        save->told = true;
    }
    if (!owed) cairn_client_save_give(save);
    save->freed = true;
    cairn_client_saves_sweep(session);
    cairn_lock_give(&session->lock);
    if (unsealed) cairn_client_tell(session, id, step, n, &why);
}
