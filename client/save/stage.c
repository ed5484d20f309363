/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stages a save, during the call for which training stands still, or on a library thread. One pass
 * copies every byte to its final place and computes block checksums; `staged` messages let the
 * uploader send the first parts meanwhile. If no uploader is there at the end of the copy, the call
 * hands the stager over to the session's thread, which stages and seals with the next uploader, and
 * returns CAIRN_OK: the sources may be changed. Until then the save's status says `away`.
 */
#include "client/save/stager.h"

#include <cairn/stage.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "api/documents/manifest.h"
#include "client/save/save.h"
#include "client/save/split.h"
#include "client/save/threads.h"
#include "client/session/memory.h"
#include "client/session/options.h"

#define TRIES_MAX 3
#define NICER 5

/* ---- copying ---- */

struct telling {
    struct cairn_client_stager *stager;
    size_t index;
    uint64_t before; /* bytes of the earlier shards */
};

/* Fails if the version is over or the save was cancelled: nothing more is copied or sealed. */
static enum cairn_code still_wanted(const struct cairn_client_stager *stager,
                                    struct cairn_error *err) {
    CAIRN_HOLD(&stager->session->lock);
    enum cairn_code code = stager->save->problem.code;
    if (code) *err = stager->save->problem;
    return code;
}

/* A library thread does not call progress; it wakes waiting calls, which do. */
static void tell_progress(const struct cairn_client_stager *stager) {
    CAIRN_HOLD(&stager->session->lock);
    if (stager->behind)
        cairn_client_changed(stager->session);
    else
        cairn_client_progress_tell(stager->save, 0);
}

static enum cairn_code on_copied(void *owner, uint64_t bytes, struct cairn_error *err) {
    const struct telling *telling = owner;
    struct cairn_client_stager *stager = telling->stager;
    CAIRN_PROMISE(bytes >= stager->shards[telling->index].staged,
                  return cairn_fail(err, CAIRN_BROKEN, "a copy goes back"));
    CAIRN_PROMISE(bytes <= stager->arrangement.shards[telling->index].bytes,
                  return cairn_fail(err, CAIRN_BROKEN, "a copy of more bytes than the shard has"));
    CAIRN_TRY(still_wanted(stager, err));
    stager->shards[telling->index].staged = bytes;
    cairn_lock_take(&stager->session->lock);
    stager->save->staged_bytes = telling->before + bytes;
    cairn_lock_give(&stager->session->lock);
    CAIRN_TRY(cairn_client_stager_send_staged(stager, telling->index, err));
    tell_progress(stager);
    return CAIRN_OK;
}

/* From here on a trainer's stream may wait for the copies. */
static void on_queued(void *owner) {
    const struct telling *telling = owner;
    CAIRN_HOLD(&telling->stager->session->lock);
    telling->stager->save->behind.queued = true;
    cairn_client_changed(telling->stager->session);
}

/* Q41: a save writes only into its own generation. */
static bool fits_slab(const struct cairn_client_stager *stager,
                      const struct cairn_client_shard *shard) {
    int generation = stager->save->generation;
    uint64_t room = generation < 0 ? 0 : stager->session->slabs[generation].size_bytes;
    return shard->offset <= room && shard->bytes <= room - shard->offset;
}

static struct cairn_client_copy copy_of(const struct cairn_client_stager *stager, size_t index) {
    const struct cairn_client_shard *shard = &stager->arrangement.shards[index];
    return (struct cairn_client_copy){.runs = stager->arrangement.runs + shard->first_run,
                                      .run_count = shard->run_count,
                                      .bytes = shard->bytes,
                                      .to = stager->slab + shard->offset,
                                      .blocks = stager->shards[index].blocks,
                                      .device = &stager->session->device,
                                      .behind = stager->behind};
}

static enum cairn_code begin_job(struct cairn_client_stager *stager, size_t index,
                                 struct cairn_error *err) {
    const struct cairn_client_copy copy = copy_of(stager, index);
    struct cairn_device_job *job = NULL;
    CAIRN_TRY(cairn_client_copy_job(&copy, &job, err));
    CAIRN_HOLD(&stager->session->lock); /* cairn_save_fence_stream reads it */
    stager->job = job;
    return CAIRN_OK;
}

/* Waits until no cairn_save_fence_stream uses the job, then ends it. */
static void end_job(struct cairn_client_stager *stager) {
    struct cairn_session *session = stager->session;
    cairn_lock_take(&session->lock);
    struct cairn_device_job *job = CAIRN_TAKE(stager->job);
    while (stager->save->behind.users)
        (void)cairn_condition_wait(&session->changed, &session->lock, UINT64_MAX);
    cairn_lock_give(&session->lock);
    if (job) session->device.plugin->end(job);
}

static enum cairn_code copy_shard(struct cairn_client_stager *stager, size_t index, uint64_t before,
                                  struct cairn_error *err) {
    struct telling telling = {stager, index, before};
    CAIRN_TRY(still_wanted(stager, err));
    CAIRN_PROMISE(fits_slab(stager, &stager->arrangement.shards[index]),
                  return cairn_fail(err, CAIRN_BROKEN, "a shard outside of its slab"));
    if (!stager->job) CAIRN_TRY(begin_job(stager, index, err));
    struct cairn_client_copy copy = copy_of(stager, index);
    copy.job = stager->job;
    copy.copied = on_copied;
    copy.queued = on_queued;
    copy.owner = &telling;
    enum cairn_code code = cairn_client_copying(stager->session, &copy, &stager->how, err);
    end_job(stager);
    return code;
}

/* Until leave_sources a fence waits for this thread, even if the save ends meanwhile. */
static enum cairn_code enter_sources(const struct cairn_client_stager *stager,
                                     struct cairn_error *err) {
    CAIRN_HOLD(&stager->session->lock);
    enum cairn_code code = stager->save->problem.code;
    if (code) *err = stager->save->problem;
    stager->save->behind.inside = stager->behind && !code;
    return code;
}

static void leave_sources(const struct cairn_client_stager *stager) {
    CAIRN_HOLD(&stager->session->lock);
    stager->save->behind.inside = false;
    cairn_client_changed(stager->session);
}

/* ---- verify_sources ---- */

static enum cairn_code on_compared(void *owner, uint64_t bytes, struct cairn_error *err) {
    CAIRN_UNUSED uint64_t all = bytes;
    return still_wanted(owner, err);
}

static enum cairn_code say_changed(const struct cairn_client_shard *shard,
                                   const struct cairn_client_run *runs, uint64_t block,
                                   struct cairn_error *err) {
    const struct cairn_client_run *run = runs; /* the block's first piece */
    for (size_t i = 0; i + 1 < shard->run_count; i++, run++)
        if (run->piece && run->offset + run->bytes > block * CAIRN_BLOCK_BYTES) break;
    return cairn_fail(err, CAIRN_SOURCE_CHANGED,
                      "%s, or what follows it within 1 MiB: its source was changed between "
                      "cairn_save_stage_begin and the fence",
                      run->piece ? run->piece->name : shard->name);
}

/* Copies again to the same place: bytes there change only if a source changed. */
static enum cairn_code compare_shard(struct cairn_client_stager *stager, size_t index,
                                     struct cairn_error *err) {
    const struct cairn_client_shard *shard = &stager->arrangement.shards[index];
    struct cairn_client_copy copy = copy_of(stager, index);
    struct cairn_client_copied how = {0};
    uint64_t count = cairn_block_count(shard->bytes);
    CAIRN_AUTO_HEAP uint32_t *blocks = calloc((size_t)count + 1, sizeof *blocks);
    if (!blocks) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory to compare the sources");
    CAIRN_TRY(begin_job(stager, index, err));
    copy.job = stager->job;
    copy.blocks = blocks;
    copy.check = true;
    copy.copied = on_compared;
    copy.owner = stager;
    enum cairn_code code = cairn_client_copying(stager->session, &copy, &how, err);
    end_job(stager);
    for (uint64_t i = 0; i < count && !code; i++)
        if (blocks[i] != stager->shards[index].blocks[i])
            code = say_changed(shard, copy.runs, i, err);
    return code;
}

static enum cairn_code compare_sources(struct cairn_client_stager *stager,
                                       struct cairn_error *err) {
    struct cairn_save *save = stager->save;
    cairn_lock_take(&stager->session->lock);
    while (!save->behind.fenced && !save->problem.code)
        (void)cairn_condition_wait(&stager->session->changed, &stager->session->lock, UINT64_MAX);
    cairn_lock_give(&stager->session->lock);
    for (size_t i = 0; i < stager->arrangement.shard_count; i++) {
        CAIRN_TRY(enter_sources(stager, err));
        enum cairn_code code = compare_shard(stager, i, err);
        leave_sources(stager);
        CAIRN_TRY(code);
    }
    return CAIRN_OK;
}

static void lock_slab(const struct cairn_client_stager *stager) {
    struct cairn_session *session = stager->session;
    bool wanted = false;
    for (size_t i = 0; i < stager->save->piece_count; i++)
        wanted = wanted || stager->save->pieces[i].on_device;
    if (wanted && stager->save->generation >= 0)
        cairn_client_device_lock(session, &session->slabs[stager->save->generation], false,
                                 "saves");
}

/* CAIRN_OK: memory was not requested, or not refused. */
static enum cairn_code say_unreserved(struct cairn_session *session, struct cairn_error *err) {
    CAIRN_HOLD(&session->lock);
    if (!session->saves->unreserved.code) return CAIRN_OK;
    *err = session->saves->unreserved;
    return cairn_within(err, err->code, "there is no memory to stage");
}

static enum cairn_code check_room(const struct cairn_client_stager *stager,
                                  struct cairn_error *err) {
    const struct cairn_save *save = stager->save;
    const struct cairn_session *session = stager->session;
    if (!stager->arrangement.shard_count) return CAIRN_OK;
    if (save->generation < 0) CAIRN_TRY(say_unreserved(stager->session, err));
    if (save->generation < 0)
        return cairn_fail(err, CAIRN_TOO_LARGE,
                          "%" PRIu64 " bytes to stage, the session was opened for 0",
                          stager->arrangement.slab_bytes);
    uint64_t room = session->slabs[save->generation].size_bytes;
    if (stager->arrangement.slab_bytes > room)
        return cairn_fail(err, CAIRN_TOO_LARGE,
                          "%" PRIu64 " bytes with headers and padding, the slab has %" PRIu64
                          "; the session was opened for %" PRIu64,
                          stager->arrangement.slab_bytes, room, session->bytes);
    return CAIRN_OK;
}

/* Notes names and sizes of the shards from `first` on, for a timed-out wait's error. */
static enum cairn_code note_shards(struct cairn_client_stager *stager, size_t first,
                                   struct cairn_error *err) {
    const struct cairn_client_arrangement *arrangement = &stager->arrangement;
    struct cairn_save *save = stager->save;
    CAIRN_HOLD(&stager->session->lock);
    struct cairn_client_sent *sent =
        realloc(save->sent, (arrangement->shard_count + 1) * sizeof *sent);
    if (sent) save->sent = sent;
    bool whole = sent != NULL;
    for (size_t i = first; i < arrangement->shard_count && whole; i++) {
        sent[i] = (struct cairn_client_sent){.bytes = arrangement->shards[i].bytes,
                                             .name = strdup(arrangement->shards[i].name)};
        whole = sent[i].name != NULL;
        if (whole) save->sent_count = i + 1;
    }
    save->total_bytes = arrangement->total_bytes;
    if (!save->copied_ms) save->copied_ms = cairn_mono_ms();
    return whole ? CAIRN_OK : cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the shards' names");
}

/* Makes room for the checksums of all shards; earlier ones stay. */
static enum cairn_code make_blocks(struct cairn_client_stager *stager, size_t first,
                                   struct cairn_error *err) {
    const struct cairn_client_arrangement *arrangement = &stager->arrangement;
    uint64_t before = 0, blocks = 0;
    for (size_t i = 0; i < arrangement->shard_count; i++) {
        if (i == first) before = blocks;
        blocks += cairn_block_count(arrangement->shards[i].bytes);
    }
    if (first == arrangement->shard_count) before = blocks;
    uint32_t *own = realloc(stager->blocks, (size_t)(blocks + 1) * sizeof *own);
    if (own) stager->blocks = own;
    struct cairn_client_progress *shards =
        realloc(stager->shards, (arrangement->shard_count + 1) * sizeof *shards);
    if (shards) stager->shards = shards;
    if (!own || !shards)
        return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the block checksums");
    memset(own + before, 0, (size_t)(blocks + 1 - before) * sizeof *own);
    for (size_t i = 0; i < arrangement->shard_count; i++) {
        if (i >= first) shards[i] = (struct cairn_client_progress){0};
        shards[i].blocks = own;
        own += cairn_block_count(arrangement->shards[i].bytes);
    }
    CAIRN_PROMISE(own == stager->blocks + blocks,
                  return cairn_fail(err, CAIRN_BROKEN, "checksums beyond their array"));
    return CAIRN_OK;
}

/* Lays out what was described since the last call: at first everything. */
static enum cairn_code prepare(struct cairn_client_stager *stager, struct cairn_error *err) {
    struct cairn_session *session = stager->session;
    size_t first = stager->arrangement.shard_count;
    if (!stager->arrangement.placed) {
        CAIRN_TRY(cairn_client_shares_complete(&stager->save->shares, err));
        cairn_client_arrangement_take(session, &stager->arrangement);
    }
    CAIRN_TRY(cairn_client_arrange(stager->save, session->rank, &stager->arrangement, err));
    CAIRN_TRY(check_room(stager, err));
    CAIRN_TRY(make_blocks(stager, first, err));
    json_decref(stager->shard_list);
    stager->shard_list = cairn_client_stager_shard_list(stager, 0);
    if (!stager->shard_list)
        return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the list of shards");
    if (stager->save->generation >= 0) stager->slab = session->slabs[stager->save->generation].data;
    return note_shards(stager, first, err);
}

/* ---- the calls: place, copy, seal ---- */

/* True: the session's thread now owns the stager, because the uploader is away, is silent, or is
 * stopping and does not know the save; or because one is back and this call's time is over (late).
 * *ret_back: an uploader is there, and this thread must continue. Both false: the save is over, or
 * has files. */
static bool hand_over(struct cairn_client_stager *stager, bool late, bool *ret_back) {
    struct cairn_save *save = stager->save;
    struct cairn_session *session = stager->session;
    CAIRN_HOLD(&session->lock);
    bool up = session->locked.state == CAIRN_CLIENT_UP;
    bool away =
        session->locked.state == CAIRN_CLIENT_AWAY || (!save->id && cairn_client_stopping(session));
    bool lost = save->file_epoch && (away || save->file_epoch != session->locked.epoch);
    *ret_back = false;
    if (cairn_client_save_over(save) || lost) return false;
    away = away || session->locked.silent_since_ms || (up && late);
    *ret_back = !away;
    if (!away) return false;
    if (up && !session->locked.silent_since_ms) cairn_client_finish_soon(session);
    CAIRN_PROMISE(!save->handed_over, return false); /* a save is copied once */
    stager->alone = true;
    save->handed_over = stager;
    cairn_client_save_event(save, CAIRN_CLIENT_EVENT_HAND_OVER);
    cairn_client_changed(stager->session); /* `away` */
    return true;
}

/* CAIRN_OK with *ret_handed_over: the caller is done. A copied save is not given up because the
 * link ended again (Q43). */
static enum cairn_code seal_or_hand_over(struct cairn_client_stager *stager, uint64_t deadline_ms,
                                         bool *ret_handed_over, struct cairn_error *err) {
    bool back = true;
    for (int tries = 1;; tries++) {
        enum cairn_code code = cairn_client_stager_send_all(stager, deadline_ms, err);
        if (code != CAIRN_UPLOADER_GONE) return code;
        if (tries < TRIES_MAX) continue;
        *ret_handed_over = hand_over(stager, cairn_mono_ms() >= deadline_ms, &back);
        if (*ret_handed_over) return CAIRN_OK;
        if (!back) return code;
    }
}

/* Copies the shards that are laid out but not in the slab. */
static enum cairn_code copy_shards(struct cairn_client_stager *stager, struct cairn_error *err) {
    const struct cairn_client_arrangement *arrangement = &stager->arrangement;
    uint64_t before = 0;
    lock_slab(stager);
    for (size_t i = 0; i < stager->copied_count; i++) before += arrangement->shards[i].bytes;
    for (; stager->copied_count < arrangement->shard_count; stager->copied_count++) {
        const struct cairn_client_shard *shard = &arrangement->shards[stager->copied_count];
        CAIRN_TRY(enter_sources(stager, err));
        enum cairn_code code = copy_shard(stager, stager->copied_count, before, err);
        leave_sources(stager);
        if (code) return cairn_within(err, code, "shard %s", shard->name);
        before += shard->bytes;
    }
    stager->copied = true;
    return still_wanted(stager, err);
}

/* From here on the sources may be changed. */
static void note_copied(const struct cairn_client_stager *stager) {
    struct cairn_save *save = stager->save;
    CAIRN_HOLD(&stager->session->lock);
    if (cairn_client_save_over(save)) return; /* its thread signals the end */
    save->copied = true;
    save->behind.reads = false;
    if (stager->session->saves->copier == save) stager->session->saves->copier = NULL;
    cairn_client_save_changed(save);
    cairn_client_changed(stager->session);
}

/* The uploader that was given the save's files is gone, and not only silent. */
static bool files_lost(const struct cairn_client_stager *stager) {
    const struct cairn_session *session = stager->session;
    CAIRN_HOLD(&stager->session->lock);
    return stager->save->file_epoch && (session->locked.state != CAIRN_CLIENT_UP ||
                                        session->locked.epoch != stager->save->file_epoch);
}

/* One deadline for all waits of the call, extended by the time of the copy. */
static enum cairn_code copy(struct cairn_client_stager *stager, uint64_t *deadline_ms,
                            struct cairn_error *err) {
    if (!stager->arrangement.placed) CAIRN_TRY(prepare(stager, err));
    enum cairn_code code = cairn_client_stager_send_stage(stager, *deadline_ms, err);
    if (code == CAIRN_UPLOADER_GONE)
        code = cairn_client_stager_send_stage(stager, *deadline_ms, err);
    if (code == CAIRN_UPLOADER_GONE && !files_lost(stager)) code = CAIRN_OK;
    CAIRN_TRY(code);
    uint64_t copying_ms = cairn_mono_ms();
    CAIRN_TRY(copy_shards(stager, err));
    if (stager->behind && stager->save->verify_sources) CAIRN_TRY(compare_sources(stager, err));
    note_copied(stager);
    *deadline_ms += cairn_mono_ms() - copying_ms;
    return CAIRN_OK;
}

/* Copies what was described after the copy. */
static enum cairn_code copy_late(struct cairn_client_stager *stager, uint64_t deadline_ms,
                                 struct cairn_error *err) {
    const struct cairn_save *save = stager->save;
    bool late = save->raw_count > stager->arrangement.placed_raws;
    for (size_t i = save->piece_count; i-- > 0 && !late;) late = save->pieces[i].late;
    CAIRN_TRY(still_wanted(stager, err));
    if (!late) return CAIRN_OK;
    CAIRN_TRY(prepare(stager, err));
    CAIRN_TRY(cairn_client_stager_send_more(stager, deadline_ms, err));
    return copy_shards(stager, err);
}

static enum cairn_code seal(struct cairn_client_stager *stager, uint64_t deadline_ms,
                            bool *ret_handed_over, struct cairn_error *err) {
    CAIRN_TRY(copy_late(stager, deadline_ms, err));
    CAIRN_TRY(cairn_client_stager_replicated(stager, &stager->replicated, err));
    size_t blocks = 0;
    for (size_t i = 0; i < stager->arrangement.shard_count; i++)
        blocks += cairn_block_count(stager->arrangement.shards[i].bytes);
    cairn_client_stale_look(stager->save, stager->blocks, blocks, stager->stale);
    return seal_or_hand_over(stager, deadline_ms, ret_handed_over, err);
}

/* Q40: the uploader received the seal, and its answer was lost. */
static bool is_committed(const struct cairn_save *save) {
    CAIRN_HOLD(&save->session->lock);
    return save->state.phase == CAIRN_CLIENT_PHASE_COMMITTED;
}

enum until { PLACED, COPIED, SEALED };

/* Gives save->kept to this thread. A save that is over fails the call. */
static enum cairn_code take_stager(struct cairn_save *save, enum until until,
                                   struct cairn_error *err) {
    struct cairn_client_stager *kept = save->kept;
    cairn_lock_take(&save->session->lock);
    bool over = save->problem.code != CAIRN_OK;
    bool fresh = save->state.phase == CAIRN_CLIENT_PHASE_COUNTED;
    bool possible = kept ? !kept->copied || until == SEALED : fresh;
    if (!over && possible) save->parked = false;
    cairn_client_save_event(save, CAIRN_CLIENT_EVENT_COPY);
    cairn_lock_give(&save->session->lock);
    if (over) {
        CAIRN_HOLD(&save->session->lock);
        if (kept) cairn_client_save_give(save); /* no other thread works on it */
        return cairn_client_save_problem(save, err);
    }
    if (!possible)
        return CAIRN_CLIENT_REFUSE(save, err, "it was %s already", kept ? "copied" : "staged");
    if (kept) return CAIRN_OK;
    save->kept = calloc(1, sizeof *save->kept);
    if (!save->kept)
        return cairn_client_save_fail(save, cairn_fail(err, CAIRN_NO_MEMORY, "no memory to stage"),
                                      err);
    save->kept->save = save;
    save->kept->session = save->session;
    return CAIRN_OK;
}

/* The call ends and the save waits for the next one. False: the save ended meanwhile. */
static bool park(struct cairn_save *save) {
    CAIRN_HOLD(&save->session->lock);
    if (cairn_client_save_over(save)) return false;
    save->parked = save->kept->copied;
    return true;
}

/* Ends a job that no shard has used, and keeps cairn_save_fence_stream from the stager: from the
 * hand-over on the session's thread may free it. */
static void leave_device(struct cairn_client_stager *stager) {
    end_job(stager);
    CAIRN_HOLD(&stager->session->lock);
    stager->save->behind.stager = NULL;
}

static enum cairn_code place_copy_seal(struct cairn_client_stager *stager, enum until until,
                                       bool *ret_handed_over, struct cairn_error *err) {
    uint64_t deadline_ms = cairn_client_deadline(stager->session, 0);
    stager->seals = until == SEALED;
    if (until == PLACED) return prepare(stager, err);
    if (!stager->copied) {
        enum cairn_code code = copy(stager, &deadline_ms, err);
        if (stager->behind) leave_device(stager);
        CAIRN_TRY(code);
    }
    return until == SEALED ? seal(stager, deadline_ms, ret_handed_over, err) : CAIRN_OK;
}

static void release(struct cairn_client_stager *stager) {
    cairn_client_arrangement_keep(stager->session, &stager->arrangement);
    cairn_client_stager_free(stager);
}

static enum cairn_code take_until(struct cairn_save *save, enum until until,
                                  struct cairn_error *err) {
    struct cairn_error why = {0}; /* err is untouched by what a later try makes good */
    CAIRN_TRY(take_stager(save, until, err));
    uint64_t started_us = cairn_mono_us();
    bool handed_over = false;
    enum cairn_code code = place_copy_seal(save->kept, until, &handed_over, &why);
    save->stall_us += cairn_mono_us() - started_us;
    if (!code && until != SEALED && park(save)) {
        if (until == COPIED) tell_progress(save->kept);
        return CAIRN_OK;
    }
    struct cairn_client_stager *stager = CAIRN_TAKE(save->kept);
    if (!handed_over) release(stager);
    if (!code && until != SEALED) why = save->problem; /* the save ended together with the call */
    if (!code && until != SEALED) code = save->problem.code;
    if (code && !is_committed(save)) {
        if (err) *err = why;
        return cairn_client_save_fail(save, code, err ? err : &why);
    }
    if (handed_over)
        cairn_client_save_retire_pieces(save);
    else
        cairn_client_save_sealed(save);
    CAIRN_HOLD(&save->session->lock);
    cairn_client_progress_tell(save, 0);
    return CAIRN_OK;
}

/* ---- copying while training goes on ---- */

static void copy_and_seal(struct cairn_client_stager *stager) {
    struct cairn_save *save = stager->save;
    struct cairn_error why = {0};
    bool handed_over = false;
    enum cairn_code code = place_copy_seal(stager, SEALED, &handed_over, &why);
    if (!handed_over) release(stager); /* else the session's thread may have freed it */
    if (handed_over)
        cairn_client_save_retire_pieces(save);
    else if (code && !is_committed(save)) /* it was over: its verdict is known */
        (void)cairn_client_save_give_up(save, &why, true);
    else
        cairn_client_save_sealed(save);
}

/* Refuses the copy until each slot is declared written; the call may be repeated. */
static enum cairn_code check_written(const struct cairn_save *save, struct cairn_error *err) {
    const struct cairn_client_stager *stager = save->kept;
    cairn_lock_take(&save->session->lock);
    bool fresh = save->state.phase == CAIRN_CLIENT_PHASE_COUNTED;
    cairn_lock_give(&save->session->lock);
    if (stager ? stager->copied : !fresh) return CAIRN_OK; /* take_stager() fails */
    for (size_t i = 0; i < save->piece_count; i++)
        if (save->pieces[i].by_caller && save->pieces[i].bytes && !save->pieces[i].written)
            return CAIRN_CLIENT_REFUSE(save, err,
                                       "tensor %s is the caller's to write, and is not "
                                       "written",
                                       save->pieces[i].name);
    return CAIRN_OK;
}

enum cairn_code cairn_save_stage(struct cairn_save *save, struct cairn_error *err) {
    CAIRN_CLIENT_SAVE_OWN_CALL(save, err);
    CAIRN_TRY(check_written(save, err));
    return take_until(save, SEALED, err);
}

enum cairn_code cairn_save_copy(struct cairn_save *save, struct cairn_error *err) {
    CAIRN_CLIENT_SAVE_OWN_CALL(save, err);
    CAIRN_TRY(check_written(save, err));
    return take_until(save, COPIED, err);
}

enum cairn_code cairn_save_seal(struct cairn_save *save, struct cairn_error *err) {
    CAIRN_CLIENT_SAVE_OWN_CALL(save, err);
    if (!save->kept) CAIRN_TRY(cairn_client_save_describable(save, err));
    if (!save->kept || !save->kept->copied)
        return CAIRN_CLIENT_REFUSE(save, err, "it is not copied yet");
    return take_until(save, SEALED, err);
}

static enum cairn_code make_ready(struct cairn_save *save, struct cairn_client_stager **ret,
                                  struct cairn_error *err) {
    CAIRN_TRY(check_written(save, err));
    if (save->kept && save->kept->copied)
        return CAIRN_CLIENT_REFUSE(save, err, "it is copied already; cairn_save_seal seals it");
    CAIRN_TRY(take_stager(save, SEALED, err));
    struct cairn_client_stager *stager = save->kept;
    stager->behind = true;
    enum cairn_code code = stager->arrangement.placed ? CAIRN_OK : prepare(stager, err);
    if (!code && stager->arrangement.shard_count) code = begin_job(stager, 0, err);
    save->kept = NULL;
    if (code) {
        release(stager);
        return cairn_client_save_fail(save, code, err);
    }
    *ret = stager;
    return CAIRN_OK;
}

/* ---- the thread of cairn_save_stage_begin ---- */

/* A session copies one save at a time, so that at most `copy_threads` threads copy; its seal may
 * wait for the uploader while the next save is copied. After the fence the thread reads no
 * source (P4). It has a lower priority than the trainer's threads, and counts as a call of the
 * session: cairn_close ends it and waits. Without a thread, cairn_save_stage_begin does
 * everything itself. */

/* A save that is over gets its turn at once: nothing is copied. */
static void take_turn(struct cairn_save *save) {
    struct cairn_session *session = save->session;
    CAIRN_HOLD(&session->lock);
    while (session->saves->copier && !cairn_client_save_over(save))
        (void)cairn_condition_wait(&session->changed, &session->lock, UINT64_MAX);
    if (!session->saves->copier) session->saves->copier = save;
}

static void leave(struct cairn_save *save) {
    struct cairn_session *session = save->session;
    cairn_lock_take(&session->lock);
    struct cairn_client_saves *saves = session->saves;
    if (saves->copier == save) saves->copier = NULL;
    save->behind.busy = save->behind.reads = false;
    save->behind.stager = NULL;
    saves->behind_count--;
    cairn_client_save_changed(save);
    cairn_client_changed(session);
    cairn_client_saves_sweep(session);
    cairn_lock_give(&session->lock);
}

static void copy_in_turn(struct cairn_save *save) {
    struct cairn_client_stager *stager = save->behind.stager; /* until then this thread's alone */
    take_turn(save);
    copy_and_seal(stager);
    leave(save);
}

static void *run_behind(void *owner) {
    struct cairn_session *session = ((struct cairn_save *)owner)->session;
    id_t self = (id_t)gettid();
    (void)setpriority(PRIO_PROCESS, self, getpriority(PRIO_PROCESS, self) + NICER);
    copy_in_turn(owner);
    cairn_client_leave(session);
    return NULL;
}

enum cairn_code cairn_save_stage_begin(struct cairn_save *save, struct cairn_error *err) {
    struct cairn_client_stager *stager = NULL;
    uint64_t started_us = cairn_mono_us();
    struct cairn_error own = {0};
    CAIRN_CLIENT_SAVE_OWN_CALL(save, err);
    CAIRN_TRY(make_ready(save, &stager, err ? err : &own));
    cairn_lock_take(&save->session->lock);
    save->session->saves->behind_count++;
    save->behind = (struct cairn_client_behind){.busy = true, .reads = true, .stager = stager};
    cairn_lock_give(&save->session->lock);
    if (!cairn_client_detached(save->session, run_behind, save)) copy_in_turn(save);
    save->stall_us += cairn_mono_us() - started_us;
    return CAIRN_OK;
}

/* ---- slots: slab memory that the caller fills itself ---- */

static enum cairn_code slot(struct cairn_save *save, uint32_t index,
                            struct cairn_client_piece **ret, struct cairn_error *err) {
    struct cairn_client_stager *stager = save->kept;
    if (stager && stager->copied) return CAIRN_CLIENT_REFUSE(save, err, "it is copied already");
    if (!stager) CAIRN_TRY(cairn_client_save_describable(save, err));
    if (!stager) CAIRN_TRY(take_until(save, PLACED, err));
    stager = save->kept;
    if (!stager->slots) { /* in the order of description */
        stager->slots = calloc(save->piece_count + 1, sizeof *stager->slots);
        if (!stager->slots)
            return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a list of slots");
        for (size_t i = 0; i < save->piece_count; i++)
            if (save->pieces[i].by_caller) stager->slots[stager->slot_count++] = &save->pieces[i];
    }
    if (index >= stager->slot_count) return cairn_fail(err, CAIRN_NOT_FOUND, "no slot %u", index);
    *ret = stager->slots[index];
    return CAIRN_OK;
}

enum cairn_code cairn_save_slot_at(struct cairn_save *save, uint32_t index,
                                   struct cairn_save_slot *ret, struct cairn_error *err) {
    struct cairn_client_piece *piece = NULL;
    CAIRN_CLIENT_SAVE_OWN_CALL(save, err);
    CAIRN_CLIENT_RET(ret, err);
    CAIRN_TRY(slot(save, index, &piece, err));
    const struct cairn_client_stager *stager = save->kept;
    *ret = (struct cairn_save_slot){.name = piece->name, .bytes = piece->bytes};
    if (!piece->bytes) return CAIRN_OK;
    const struct cairn_client_shard *shard = &stager->arrangement.shards[0];
    CAIRN_PROMISE(shard->tensors && stager->slab &&
                      piece->fragment.offset_bytes + piece->bytes <= shard->bytes,
                  return cairn_fail(err, CAIRN_BROKEN, "a slot outside of its shard"));
    ret->to = stager->slab + shard->offset + piece->fragment.offset_bytes;
    return CAIRN_OK;
}

enum cairn_code cairn_save_written(struct cairn_save *save, uint32_t index,
                                   struct cairn_error *err) {
    struct cairn_client_piece *piece = NULL;
    CAIRN_CLIENT_SAVE_OWN_CALL(save, err);
    CAIRN_TRY(slot(save, index, &piece, err));
    piece->written = true;
    return CAIRN_OK;
}
