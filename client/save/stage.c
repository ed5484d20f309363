/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stage: the only time training stands still. One pass copies every byte to its final place and
 * makes the block checksums; while it runs, the uploader is told how far each shard is, so that it
 * sends the first parts while the last ones are copied. Where the uploader dies meanwhile, the copy
 * goes on, and everything is told again to the one that comes back: the checksums of the one pass
 * are kept until the seal. Where none comes back within a second of the copy's end, the caller is
 * told so and the session's thread does the telling (`owed`).
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "api/manifest.h"
#include "client/save/arrange.h"
#include "common/crc32c.h"

#define TELL_BYTES (16 * CAIRN_MIB)
#define TRIES_MAX 3
#define VERDICT_MS 1000
/* Frames hold 1 MiB of JSON. Replicated checksums only serve to find silent differences, so those
 * that do not fit are left out. */
#define REPLICATED_JSON_BYTES_MAX (900 * CAIRN_KIB)

struct progress {
    uint32_t *blocks; /* of this shard; in the stager's array */
    uint64_t staged, told;
    uint32_t crc; /* of the block that is being filled */
};
struct cairn_client_stager {
    struct cairn_save *save;
    struct cairn_session *session;
    struct cairn_client_arrangement arrangement;
    struct progress *shards;
    uint32_t *blocks;
    uint8_t *slab;
    uint32_t epoch;     /* link over which `stage` was told; 0: it must be told */
    bool sealed;        /* the uploader died after it had journaled the seal */
    bool alone;         /* on the session's thread: names and sources are gone */
    json_t *shard_list; /* of `stage` */
    json_t *replicated; /* of `seal` */
};

void cairn_client_stager_free(struct cairn_client_stager *stager) {
    if (!stager) return;
    cairn_client_arrangement_release(&stager->arrangement);
    json_decref(stager->shard_list);
    json_decref(stager->replicated);
    free(stager->shards);
    free(stager->blocks);
    free(stager);
}
CAIRN_DEFINE_AUTO_PTR(client_stager);

/* ---- telling ---- */

/* The link died: go on without it, a later one hears everything. */
static enum cairn_code excuse(struct cairn_client_stager *stager, enum cairn_code code) {
    if (code != CAIRN_UPLOADER_GONE || stager->alone) return code;
    stager->epoch = 0;
    return CAIRN_OK;
}

static enum cairn_code call(const struct cairn_client_stager *stager,
                            const struct cairn_client_ask *ask, struct cairn_error *err) {
    CAIRN_AUTO(frame) answer = {0};
    if (stager->alone) return cairn_client_ask_alone(stager->session, ask, &answer, err);
    return cairn_client_call(stager->session, ask, NULL, err);
}

static json_t *shard_list(const struct cairn_client_stager *stager) {
    CAIRN_AUTO_JSON json_t *shards = json_array();
    for (size_t i = 0; i < stager->arrangement.shard_count; i++) {
        const struct cairn_client_shard *shard = &stager->arrangement.shards[i];
        if (json_array_append_new(shards, json_pack("{s:s, s:s, s:I, s:I}", "name", shard->name,
                                                    "kind", shard->tensors ? "tensors" : "raw",
                                                    "offset", (json_int_t)shard->offset, "bytes",
                                                    (json_int_t)shard->bytes)))
            return NULL;
    }
    return CAIRN_TAKE(shards);
}

static enum cairn_code tell_staged(struct cairn_client_stager *stager, size_t index,
                                   struct cairn_error *err) {
    struct progress *shard = &stager->shards[index];
    uint64_t bytes = stager->arrangement.shards[index].bytes;
    uint64_t first = shard->told / CAIRN_BLOCK_BYTES;
    uint64_t end =
        shard->staged == bytes ? cairn_block_count(bytes) : shard->staged / CAIRN_BLOCK_BYTES;
    uint64_t told = shard->staged == bytes ? bytes : end * CAIRN_BLOCK_BYTES;
    if (!stager->epoch || told == shard->told) return CAIRN_OK;
    CAIRN_AUTO_HEAP uint8_t *blob = malloc((size_t)(end - first) * 4);
    if (!blob) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the block checksums");
    for (uint64_t i = first; i < end; i++)
        cairn_store_u32le(blob + (i - first) * 4, shard->blocks[i]);
    const struct cairn_client_ask ask = {
        .take_message =
            json_pack("{s:s, s:I, s:I, s:I}", "t", "staged", "save", (json_int_t)stager->save->id,
                      "shard", (json_int_t)index, "bytes", (json_int_t)told),
        .blob = {blob, (size_t)(end - first) * 4},
        .epoch = stager->epoch,
        .deadline_ms = cairn_client_deadline(stager->session, 0)};
    CAIRN_TRY(excuse(stager, call(stager, &ask, err)));
    if (stager->epoch) shard->told = told;
    return CAIRN_OK;
}

/* A save that has ended meanwhile (it was cancelled while its begin was under way) has let go of
 * its generation: lent all the same, nobody would take the `free` of an owner that is forgotten. */
static enum cairn_code lend(struct cairn_save *save, struct cairn_client_generation *own,
                            bool *ret_lent, struct cairn_error *err) {
    CAIRN_HOLD(&save->session->lock);
    if (own->held != save) {
        if (save->problem.code) return cairn_client_save_problem(save, err);
        return cairn_fail(err, CAIRN_CANCELLED, "step %" PRIu64 " has ended", save->step);
    }
    *ret_lent = own->lent; /* already, by the offer */
    own->lent = true;
    return CAIRN_OK;
}

/* The uploader holds the generation from here on, unless it refuses: then it never sends `free`. */
static enum cairn_code tell_slab(struct cairn_client_stager *stager, uint32_t epoch,
                                 uint64_t deadline_ms, struct cairn_error *err) {
    struct cairn_session *session = stager->session;
    struct cairn_client_generation *own = &session->locked.generations[stager->save->generation];
    bool lent = false;
    CAIRN_TRY(lend(stager->save, own, &lent, err));
    const struct cairn_client_ask ask = {
        .take_message =
            json_pack("{s:s, s:I, s:I, s:I, s:O}", "t", "stage", "save",
                      (json_int_t)stager->save->id, "slab", (json_int_t)stager->save->generation,
                      "owner", (json_int_t)stager->save->owner, "shards", stager->shard_list),
        .wanted = "ok",
        .epoch = epoch,
        .deadline_ms = deadline_ms};
    enum cairn_code code = call(stager, &ask, err);
    if (code == CAIRN_OK || code == CAIRN_UPLOADER_GONE || code == CAIRN_TIMEOUT) return code;
    /* Only our own seal can have sealed it: the old uploader journaled it and died before its
     * answer. What it was told then is what stands in the slab. */
    stager->sealed = code == CAIRN_CONFLICT && stager->save->seal_sent;
    CAIRN_HOLD(&session->lock);
    if (own->lent) own->lent = lent;
    return stager->sealed ? CAIRN_OK : code;
}

/* Over the present link: begin where the uploader does not know the save, then `stage`. */
static enum cairn_code tell_stage(struct cairn_client_stager *stager, uint64_t deadline_ms,
                                  struct cairn_error *err) {
    struct cairn_save *save = stager->save;
    struct cairn_session *session = stager->session;
    uint32_t epoch = 1; /* of no meaning when alone */
    cairn_lock_take(&session->lock);
    enum cairn_code code =
        stager->alone ? CAIRN_OK : cairn_client_reach(session, deadline_ms, &epoch, err);
    bool known = save->id != 0;
    stager->sealed = !code && save->state.reached >= CAIRN_CLIENT_REACHED_STAGED;
    if (!code && save->problem.code) {
        code = save->problem.code;
        *err = save->problem;
    }
    cairn_lock_give(&session->lock);
    if (code || stager->sealed) return code;
    if (save->file_epoch && save->file_epoch != epoch)
        return cairn_fail(err, CAIRN_SOURCE_GONE,
                          "the uploader was restarted and lost the files that it had been given");
    if (!known)
        CAIRN_TRY(cairn_client_save_begin_again(save, epoch, stager->alone, deadline_ms, err));
    if (stager->arrangement.shard_count) CAIRN_TRY(tell_slab(stager, epoch, deadline_ms, err));
    if (stager->sealed) return CAIRN_OK;
    stager->epoch = epoch;
    for (size_t i = 0; i < stager->arrangement.shard_count; i++) {
        stager->shards[i].told = 0;
        CAIRN_TRY(tell_staged(stager, i, err));
    }
    return CAIRN_OK;
}

static enum cairn_code replicated_list(const struct cairn_client_stager *stager, json_t **ret,
                                       struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *list = json_array();
    size_t bytes = 0;
    for (size_t i = 0; i < stager->save->piece_count; i++) {
        const struct cairn_client_piece *piece = &stager->save->pieces[i];
        char crc[16];
        if (piece->kind != CAIRN_TENSOR_REPLICATED || piece->in_file) continue;
        /* Escapes make a byte of a name six bytes of JSON at the most. */
        bytes += 6 * strlen(piece->name) + 40;
        if (bytes > REPLICATED_JSON_BYTES_MAX) break;
        snprintf(crc, sizeof crc, "%08" PRIx32, piece->crc32c);
        if (json_array_append_new(list,
                                  json_pack("{s:s, s:s}", "name", piece->name, "crc32c", crc)))
            return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the replicated checksums");
    }
    *ret = CAIRN_TAKE(list);
    return CAIRN_OK;
}

static enum cairn_code tell_seal(struct cairn_client_stager *stager, uint64_t deadline_ms,
                                 struct cairn_error *err) {
    cairn_lock_take(&stager->session->lock);
    bool again = stager->save->seal_sent;
    stager->save->seal_sent = true;
    cairn_lock_give(&stager->session->lock);
    const struct cairn_client_ask ask = {
        .take_message = json_pack("{s:s, s:I, s:O}", "t", "seal", "save",
                                  (json_int_t)stager->save->id, "replicated", stager->replicated),
        .blob = cairn_buf_view(&stager->arrangement.table),
        .wanted = "sealed",
        .epoch = stager->epoch,
        .deadline_ms = deadline_ms};
    enum cairn_code code = call(stager, &ask, err);
    return code == CAIRN_CONFLICT && again ? CAIRN_OK : code; /* as in tell_slab */
}

/* ---- copying ---- */

static void copy_some(struct progress *shard, uint8_t *to, const uint8_t *from, size_t size,
                      struct cairn_client_piece *piece) {
    if (!piece || piece->kind != CAIRN_TENSOR_REPLICATED) {
        shard->crc = cairn_crc32c_copy(shard->crc, to, from, size);
        return;
    }
    uint32_t crc = cairn_crc32c_copy(0, to, from, size);
    shard->crc = cairn_crc32c_combine(shard->crc, crc, size);
    piece->crc32c = cairn_crc32c_combine(piece->crc32c, crc, size);
}

static enum cairn_code copy_run(struct cairn_client_stager *stager, size_t index,
                                const struct cairn_client_run *run, struct cairn_error *err) {
    const struct cairn_client_shard *place = &stager->arrangement.shards[index];
    struct progress *shard = &stager->shards[index];
    const uint8_t *from = run->source;
    for (uint64_t left = run->bytes; left > 0;) {
        uint64_t filled = shard->staged % CAIRN_BLOCK_BYTES;
        uint64_t size = cairn_min_u64(left, CAIRN_BLOCK_BYTES - filled);
        CAIRN_CLIENT_PROMISE(stager->session, shard->staged + size <= place->bytes, err);
        copy_some(shard, stager->slab + place->offset + shard->staged, from, (size_t)size,
                  run->piece);
        shard->staged += size;
        from += size;
        left -= size;
        if (filled + size == CAIRN_BLOCK_BYTES || shard->staged == place->bytes) {
            shard->blocks[(shard->staged - 1) / CAIRN_BLOCK_BYTES] = shard->crc;
            shard->crc = 0;
        }
        if (shard->staged - shard->told >= TELL_BYTES) CAIRN_TRY(tell_staged(stager, index, err));
    }
    return CAIRN_OK;
}

static enum cairn_code copy_shard(struct cairn_client_stager *stager, size_t index,
                                  struct cairn_error *err) {
    const struct cairn_client_shard *shard = &stager->arrangement.shards[index];
    cairn_lock_take(&stager->session->lock);
    enum cairn_code code = stager->save->problem.code;
    if (code) *err = stager->save->problem;
    cairn_lock_give(&stager->session->lock);
    CAIRN_TRY(code); /* the version is over already: stop copying */
    for (size_t i = 0; i < shard->run_count; i++)
        CAIRN_TRY(copy_run(stager, index, &stager->arrangement.runs[shard->first_run + i], err));
    CAIRN_CLIENT_PROMISE(stager->session, stager->shards[index].staged == shard->bytes, err);
    return tell_staged(stager, index, err);
}

static enum cairn_code check_room(const struct cairn_client_stager *stager,
                                  struct cairn_error *err) {
    const struct cairn_save *save = stager->save;
    const struct cairn_session *session = stager->session;
    if (!stager->arrangement.shard_count) return CAIRN_OK;
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

static enum cairn_code prepare(struct cairn_client_stager *stager, struct cairn_error *err) {
    struct cairn_session *session = stager->session;
    CAIRN_TRY(cairn_client_arrange(stager->save, session->rank, &stager->arrangement, err));
    CAIRN_TRY(check_room(stager, err));
    uint64_t blocks = 0;
    for (size_t i = 0; i < stager->arrangement.shard_count; i++)
        blocks += cairn_block_count(stager->arrangement.shards[i].bytes);
    stager->blocks = calloc((size_t)blocks + 1, sizeof *stager->blocks);
    stager->shards = calloc(stager->arrangement.shard_count + 1, sizeof *stager->shards);
    stager->shard_list = shard_list(stager);
    if (!stager->blocks || !stager->shards || !stager->shard_list)
        return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the block checksums");
    uint32_t *at = stager->blocks;
    for (size_t i = 0; i < stager->arrangement.shard_count; i++) {
        stager->shards[i].blocks = at;
        at += cairn_block_count(stager->arrangement.shards[i].bytes);
    }
    if (stager->save->generation >= 0) stager->slab = session->slabs[stager->save->generation].data;
    CAIRN_HOLD(&session->lock);
    stager->save->total_bytes = stager->arrangement.total_bytes;
    return CAIRN_OK;
}

/* Until the uploader has journaled the seal, over as many links as it takes. */
static enum cairn_code tell_all(struct cairn_client_stager *stager, uint64_t deadline_ms,
                                struct cairn_error *err) {
    enum cairn_code code = stager->epoch ? CAIRN_OK : tell_stage(stager, deadline_ms, err);
    if (!code && !stager->sealed) code = tell_seal(stager, deadline_ms, err);
    if (code == CAIRN_UPLOADER_GONE) stager->epoch = 0;
    return code;
}

/* ---- owed: the copy is whole, and no uploader is there to hear of it ---- */

/* The session's thread tells it to the one that comes back, and from then on the stager is that
 * thread's. *ret_back: that one is there already, and this thread must tell it. */
static bool owe(struct cairn_client_stager *stager, bool *ret_back) {
    struct cairn_save *save = stager->save;
    CAIRN_HOLD(&stager->session->lock);
    bool away = stager->session->locked.state == CAIRN_CLIENT_AWAY;
    *ret_back = false;
    if (cairn_client_save_over(save) || save->file_epoch) return false;
    *ret_back = !away;
    if (!away) return false;
    stager->alone = true;
    save->owed = stager;
    cairn_client_save_event(save, CAIRN_CLIENT_EVENT_OWE);
    return true;
}

/* UPLOADER_GONE and *ret_owed: the caller's part is done. A save whose bytes are copied is not
 * given up because its uploader came back, or died, between two looks (Q43). */
static enum cairn_code tell_or_owe(struct cairn_client_stager *stager, bool *ret_owed,
                                   struct cairn_error *err) {
    uint64_t deadline_ms = cairn_client_deadline(stager->session, 0);
    bool back = true;
    for (int tries = 1;; tries++) {
        enum cairn_code code = tell_all(stager, deadline_ms, err);
        if (code != CAIRN_UPLOADER_GONE) return code;
        if (tries < TRIES_MAX) continue;
        *ret_owed = owe(stager, &back);
        if (*ret_owed || !back || cairn_mono_ms() >= deadline_ms) return code;
    }
}

static enum cairn_code stage(struct cairn_client_stager *stager, bool *ret_owed,
                             struct cairn_error *err) {
    struct cairn_session *session = stager->session;
    CAIRN_TRY(prepare(stager, err));
    enum cairn_code code = tell_stage(stager, cairn_client_deadline(session, 0), err);
    if (code == CAIRN_UPLOADER_GONE)
        code = tell_stage(stager, cairn_client_deadline(session, 0), err);
    if (code == CAIRN_UPLOADER_GONE && !stager->save->file_epoch) code = CAIRN_OK;
    CAIRN_TRY(code);
    for (size_t i = 0; i < stager->arrangement.shard_count; i++) {
        code = copy_shard(stager, i, err);
        if (code) return cairn_within(err, code, "shard %s", stager->arrangement.shards[i].name);
    }
    CAIRN_TRY(replicated_list(stager, &stager->replicated, err));
    return tell_or_owe(stager, ret_owed, err);
}

static struct cairn_client_stager *take_owed(struct cairn_session *session) {
    CAIRN_HOLD(&session->lock);
    for (struct cairn_save *save = session->locked.saves; save; save = save->next) {
        if (!save->owed) continue;
        save->finishing = true;
        return CAIRN_TAKE(save->owed);
    }
    return NULL;
}

static bool link_ended(enum cairn_code code) {
    return code == CAIRN_UPLOADER_GONE || code == CAIRN_TIMEOUT || code == CAIRN_CANCELLED;
}

/* True: it failed here, and the uploader must be told. The lock is held. */
static bool settle_owed(struct cairn_save *save, enum cairn_code code, struct cairn_error *why) {
    bool failed = code && !cairn_client_save_over(save);
    (void)cairn_within(why, code, "staged while the uploader was away");
    if (failed) cairn_client_save_end(save, why);
    if (!code) cairn_client_save_event(save, CAIRN_CLIENT_EVENT_SEAL);
    cairn_client_save_give(save);
    return failed;
}

static enum cairn_code finish_owed(struct cairn_client_stager *stager, uint64_t deadline_ms,
                                   struct cairn_error *err) {
    struct cairn_save *save = stager->save;
    struct cairn_session *session = stager->session;
    struct cairn_error why = {0};
    stager->epoch = 0;
    enum cairn_code code = tell_all(stager, deadline_ms, &why);
    cairn_lock_take(&session->lock);
    bool over = cairn_client_save_over(save);
    bool later = link_ended(code) && !over;
    bool failed = !later && settle_owed(save, code, &why);
    uint64_t id = save->id, step = save->step;
    uint32_t n = save->n;
    save->finishing = false;
    if (later) save->owed = stager;
    cairn_lock_give(&session->lock);
    if (failed) cairn_client_tell(session, id, step, n, &why);
    if (!later) cairn_client_stager_free(stager);
    if (later && err) *err = why;
    return later ? code : CAIRN_OK;
}

enum cairn_code cairn_client_stage_owed(struct cairn_session *session, uint64_t deadline_ms,
                                        struct cairn_error *err) {
    for (;;) {
        struct cairn_client_stager *stager = take_owed(session);
        if (!stager) return CAIRN_OK;
        CAIRN_TRY(finish_owed(stager, deadline_ms, err));
    }
}

/* ---- the call ---- */

/* Q40: then the seal had arrived, whatever became of its answer. */
static bool is_committed(const struct cairn_save *save) {
    CAIRN_HOLD(&save->session->lock);
    return save->state.phase == CAIRN_CLIENT_PHASE_COMMITTED;
}

/* An uploader that no longer has the save has told how it ended; that is the error to report. */
static void await_verdict(struct cairn_save *save) {
    struct cairn_session *session = save->session;
    uint64_t until_ms = cairn_mono_ms() + VERDICT_MS;
    CAIRN_HOLD(&session->lock);
    while (!cairn_client_save_over(save) && session->locked.state == CAIRN_CLIENT_UP)
        if (!cairn_condition_wait(&session->changed, &session->lock, until_ms)) return;
}

static enum cairn_code stage_once(struct cairn_save *save, struct cairn_error *err) {
    CAIRN_AUTO_PTR(client_stager) stager = calloc(1, sizeof *stager);
    if (!stager)
        return cairn_client_save_fail(save, cairn_fail(err, CAIRN_NO_MEMORY, "no memory to stage"),
                                      err);
    stager->save = save;
    stager->session = save->session;
    uint64_t started_us = cairn_mono_us();
    bool owed = false;
    enum cairn_code code = stage(stager, &owed, err);
    save->stall_us += cairn_mono_us() - started_us;
    if (owed) {
        (void)CAIRN_TAKE(stager);
        cairn_client_save_drop_pieces(save);
        (void)cairn_fail(err, code,
                         "the uploader at %s is away; the bytes are copied and are sealed with the "
                         "one that comes back",
                         save->session->socket);
        return cairn_client_save_named(save, code, err);
    }
    if (code == CAIRN_NOT_FOUND) await_verdict(save);
    if (code && !is_committed(save)) return cairn_client_save_fail(save, code, err);
    cairn_client_save_sealed(save);
    return CAIRN_OK;
}

enum cairn_code cairn_save_stage(struct cairn_save *save, struct cairn_error *err) {
    CAIRN_TRY(cairn_client_save_enter(save, err));
    cairn_lock_take(&save->session->lock);
    bool again = save->state.phase != CAIRN_CLIENT_PHASE_COUNTED;
    bool over = save->problem.code != CAIRN_OK;
    cairn_client_save_event(save, CAIRN_CLIENT_EVENT_COPY);
    cairn_lock_give(&save->session->lock);
    if (over) {
        CAIRN_HOLD(&save->session->lock);
        return cairn_client_save_problem(save, err);
    }
    if (again)
        return cairn_fail(err, CAIRN_INVALID, "%s step %" PRIu64 ": it was staged already",
                          save->session->run, save->step);
    struct cairn_error own = {0};
    return stage_once(save, err ? err : &own);
}
