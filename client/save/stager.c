/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The messages `stream`, `stage`, `staged` and `seal`. If the link ends, the copy continues, and
 * all are sent again over the next: block checksums are kept until the seal, streams until the save
 * is durable.
 */
#include "client/save/stager.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "api/documents/manifest.h"
#include "client/save/save.h"
#include "client/session/wire.h"
#include "common/text.h"

#define REPLICATED_JSON_BYTES_MAX (800 * CAIRN_KIB)
#define COMPARED_MIN 2 /* comparisons until a block counts as always changing */

/* Frames hold 1 MiB of JSON, of which labels and meta may need 128 KiB. Replicated checksums only
 * help to find silent differences, so those that do not fit are omitted. */

void cairn_client_stager_free(struct cairn_client_stager *stager) {
    if (!stager) return;
    cairn_client_arrangement_release(&stager->arrangement);
    json_decref(stager->shard_list);
    json_decref(stager->replicated);
    free(stager->shards);
    free(stager->blocks);
    free(stager->slots);
    free(stager);
}

/* The uploader of that link is there, though it may be silent. */
static bool is_linked(struct cairn_session *session, uint32_t epoch) {
    CAIRN_HOLD(&session->lock);
    return session->locked.state == CAIRN_CLIENT_UP && session->locked.epoch == epoch;
}

/* What is told to one uploader is not told to the next. */
static void note_link(struct cairn_client_stager *stager) {
    if (stager->epoch && !stager->alone && is_linked(stager->session, stager->epoch)) return;
    stager->epoch = 0;
    stager->told_count = 0;
}

/* If the link ended: continue without one; send_all repeats every message over the next. If the
 * uploader is silent, what it was told stands, and send_all tells it the rest. */
static enum cairn_code without_link(struct cairn_client_stager *stager, enum cairn_code code) {
    if (code != CAIRN_UPLOADER_GONE || stager->alone) return code;
    note_link(stager);
    return CAIRN_OK;
}

static enum cairn_code call(const struct cairn_client_stager *stager,
                            const struct cairn_client_request *request, struct cairn_error *err) {
    CAIRN_AUTO(frame) answer = {0};
    if (stager->alone) return cairn_client_call_alone(stager->session, request, &answer, err);
    return cairn_client_call(stager->session, request, NULL, err);
}

json_t *cairn_client_stager_shard_list(const struct cairn_client_stager *stager, size_t first) {
    CAIRN_AUTO_JSON json_t *shards = json_array();
    for (size_t i = first; i < stager->arrangement.shard_count; i++) {
        const struct cairn_client_shard *shard = &stager->arrangement.shards[i];
        if (json_array_append_new(shards,
                                  CAIRN_PACK(stage_shard, .name = shard->name,
                                             .kind = shard->tensors ? "tensors" : "raw",
                                             .offset = shard->offset, .bytes = shard->bytes)))
            return NULL;
    }
    return CAIRN_TAKE(shards);
}

enum cairn_code cairn_client_stager_send_staged(struct cairn_client_stager *stager, size_t index,
                                                struct cairn_error *err) {
    struct cairn_client_progress *shard = &stager->shards[index];
    uint64_t bytes = stager->arrangement.shards[index].bytes;
    uint64_t first = shard->reported / CAIRN_BLOCK_BYTES;
    uint64_t end =
        shard->staged == bytes ? cairn_block_count(bytes) : shard->staged / CAIRN_BLOCK_BYTES;
    uint64_t whole = shard->staged == bytes ? bytes : end * CAIRN_BLOCK_BYTES;
    CAIRN_PROMISE(whole >= shard->reported,
                  return cairn_fail(err, CAIRN_BROKEN, "fewer bytes are staged than were told"));
    if (!stager->epoch || index >= stager->told_count || whole == shard->reported) return CAIRN_OK;
    CAIRN_AUTO_HEAP uint8_t *blob = malloc((size_t)(end - first) * 4);
    if (!blob) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the block checksums");
    for (uint64_t i = first; i < end; i++)
        cairn_store_u32le(blob + (i - first) * 4, shard->blocks[i]);
    bool last = whole == bytes && index + 1 == stager->arrangement.shard_count;
    const struct cairn_client_request request = {
        CAIRN_CLIENT_REQUEST(staged, .save = (uint32_t)stager->save->id, .shard = (uint32_t)index,
                             .bytes = whole),
        .blob = {blob, (size_t)(end - first) * 4}, .epoch = stager->epoch,
        .held = last && stager->seals, .deadline_ms = cairn_client_deadline(stager->session, 0)};
    CAIRN_TRY(without_link(stager, call(stager, &request, err)));
    if (stager->epoch) shard->reported = whole;
    return CAIRN_OK;
}

/* ---- sending sealed memory, to each uploader that comes ---- */

/* What one message needs, copied so that the stream may be dropped meanwhile. */
struct sending {
    char *name;    /* owned */
    uint8_t *crcs; /* owned */
    size_t crc_bytes;
    uint64_t bytes;
    int fd; /* owned; -1: none */
    size_t index;
};

static void sending_release(struct sending *sending) {
    free(sending->name);
    free(sending->crcs);
    if (sending->fd >= 0) close(sending->fd);
}

/* *ret_any false: the uploader of that link has all. The lock is held. */
static enum cairn_code copy_unsent(const struct cairn_save *save, uint32_t epoch,
                                   struct sending *ret, bool *ret_any, struct cairn_error *err) {
    for (size_t i = 0; i < save->stream_count; i++) {
        const struct cairn_client_memory *from = &save->streams[i];
        if (from->epoch == epoch) continue;
        *ret_any = true;
        ret->index = i;
        ret->bytes = from->bytes;
        ret->crc_bytes = 4 * (size_t)cairn_block_count(from->bytes);
        ret->name = strdup(from->shard);
        ret->crcs = malloc(ret->crc_bytes);
        if (!ret->name || !ret->crcs)
            return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a stream");
        memcpy(ret->crcs, from->crcs, ret->crc_bytes);
        ret->fd = fcntl(from->fd, F_DUPFD_CLOEXEC, 0);
        return ret->fd < 0 ? cairn_fail_errno(err, "hand over stream %s", from->shard) : CAIRN_OK;
    }
    return CAIRN_OK;
}

/* An older uploader reads it as a file, which ends with it. */
static enum cairn_code send_one(struct cairn_save *save, const struct sending *sending,
                                uint32_t epoch, bool alone, uint64_t deadline_ms,
                                struct cairn_error *err) {
    struct cairn_session *session = save->session;
    CAIRN_AUTO(frame) answer = {0};
    cairn_lock_take(&session->lock);
    uint32_t id = (uint32_t)save->id;
    bool known = session->locked.version >= CAIRN_CLIENT_VERSION_OF_STREAMS;
    if (!known) save->file_epoch = epoch;
    cairn_lock_give(&session->lock);
    struct cairn_client_request request = {.fds = &sending->fd,
                                           .fd_count = 1,
                                           .epoch = epoch,
                                           .goes_on = known, /* a stream may be sent twice */
                                           .deadline_ms = deadline_ms};
    if (known) {
        request.take_message =
            CAIRN_PACK(stream, .save = id, .name = sending->name, .bytes = sending->bytes);
        request.blob = (struct cairn_view){sending->crcs, sending->crc_bytes};
    } else {
        request.take_message =
            CAIRN_PACK(file, .save = id, .name = sending->name, .bytes = sending->bytes);
    }
    request.wanted = cairn_client_wanted(CAIRN_MESSAGE_stream);
    if (alone) return cairn_client_call_alone(session, &request, &answer, err);
    return cairn_client_call(session, &request, NULL, err);
}

/* *ret_any false: nothing was left to send. */
static enum cairn_code send_next(struct cairn_save *save, uint32_t epoch, bool alone,
                                 uint64_t deadline_ms, bool *ret_any, struct cairn_error *err) {
    struct cairn_session *session = save->session;
    struct sending sending = {.fd = -1};
    /* A link that is not up yet has the epoch that it will have (client/session/wire.c). */
    cairn_lock_take(&session->lock);
    if (alone) epoch = session->locked.epoch + 1;
    enum cairn_code code = copy_unsent(save, epoch, &sending, ret_any, err);
    cairn_lock_give(&session->lock);
    if (!code && *ret_any) code = send_one(save, &sending, epoch, alone, deadline_ms, err);
    if (!code && *ret_any) {
        CAIRN_HOLD(&session->lock);
        if (sending.index < save->stream_count) save->streams[sending.index].epoch = epoch;
    }
    sending_release(&sending);
    return code;
}

enum cairn_code cairn_client_streams_send(struct cairn_save *save, uint32_t epoch, bool alone,
                                          uint64_t deadline_ms, struct cairn_error *err) {
    for (bool any = true; any;) {
        any = false;
        CAIRN_TRY(send_next(save, epoch, alone, deadline_ms, &any, err));
    }
    return CAIRN_OK;
}

/* ---- stage and seal ---- */

/* A save cancelled during its `begin` has released its generation. Lending the generation would
 * never end: `free` would name an owner unknown here. */
static enum cairn_code lend(struct cairn_save *save, struct cairn_client_generation *own,
                            struct cairn_error *err) {
    CAIRN_HOLD(&save->session->lock);
    if (own->held != save) {
        if (save->problem.code) return cairn_client_save_problem(save, err);
        return cairn_fail(err, CAIRN_CANCELLED, "step %" PRIu64 " has ended", save->step);
    }
    save->lent_before = own->lent; /* lent by the offer, or by an earlier `stage` */
    own->lent = true;
    return CAIRN_OK;
}

/* The uploader holds the generation from `stage` on, unless it refuses: then no `free` follows. The
 * lock is held. */
static void refused_stage(struct cairn_save *save) {
    if (save->generation < 0) return;
    struct cairn_client_generation *own = &save->session->saves->generations[save->generation];
    if (own->lent && own->owner == save->owner) own->lent = save->lent_before;
}

void cairn_client_save_staged_late(struct cairn_save *save, const struct cairn_frame *answer) {
    save->late_stage = (struct cairn_client_late){.answered = true};
    if (cairn_client_answer_check(answer, "ok", &save->late_stage.why)) refused_stage(save);
    cairn_client_changed(save->session);
}

/* *ret_sent: the uploader of this link has the message already, and its answer was awaited. */
static enum cairn_code await_stage(struct cairn_save *save, uint64_t deadline_ms, bool *ret_sent,
                                   struct cairn_error *err) {
    cairn_lock_take(&save->session->lock);
    *ret_sent = save->late_stage.id || save->late_stage.answered;
    cairn_lock_give(&save->session->lock);
    if (!*ret_sent) return CAIRN_OK;
    return cairn_client_late_await(save->session, &save->late_stage, "ok", deadline_ms, err);
}

/* Tells the shards that the uploader of this link does not have. */
static enum cairn_code call_stage(struct cairn_client_stager *stager, uint32_t epoch,
                                  uint64_t deadline_ms, struct cairn_error *err) {
    struct cairn_save *save = stager->save;
    size_t first = stager->told_count;
    CAIRN_PROMISE(
        save->generation >= 0,
        return cairn_fail(err, CAIRN_BROKEN, "shards to stage, and no memory of the save"));
    CAIRN_TRY(lend(save, &stager->session->saves->generations[save->generation], err));
    CAIRN_AUTO_JSON json_t *shards =
        first ? cairn_client_stager_shard_list(stager, first) : json_incref(stager->shard_list);
    const struct cairn_client_request request = {
        CAIRN_CLIENT_REQUEST(stage, .save = (uint32_t)save->id, .slab = (uint32_t)save->generation,
                             .owner = save->owner, .shards = shards, .more = first > 0),
        .epoch = epoch, .goes_on = true, .late = &save->late_stage, .deadline_ms = deadline_ms};
    enum cairn_code code = call(stager, &request, err);
    if (code == CAIRN_OK || code == CAIRN_UPLOADER_GONE || code == CAIRN_TIMEOUT) return code;
    CAIRN_HOLD(&stager->session->lock);
    refused_stage(save);
    return code;
}

/* The uploader of this link has the shards of the last `stage`. */
static void note_told(struct cairn_client_stager *stager, uint32_t epoch) {
    for (size_t i = stager->told_count; i < stager->late_count; i++) stager->shards[i].reported = 0;
    stager->told_count = stager->late_count;
    stager->epoch = epoch;
}

static enum cairn_code send_shards(struct cairn_client_stager *stager, uint32_t epoch,
                                   uint64_t deadline_ms, struct cairn_error *err) {
    bool sent = false;
    enum cairn_code code =
        stager->alone ? CAIRN_OK : await_stage(stager->save, deadline_ms, &sent, err);
    if (!code && sent) note_told(stager, epoch);
    if (!code && stager->told_count < stager->arrangement.shard_count) {
        stager->late_count = stager->arrangement.shard_count;
        code = call_stage(stager, epoch, deadline_ms, err);
        if (!code) note_told(stager, epoch);
    }
    /* `conflict` on a save whose seal was sent: the previous uploader journaled that seal but died
     * before it answered. The slab still has the sealed bytes. */
    stager->sealed = code == CAIRN_CONFLICT && stager->save->seal_sent;
    return stager->sealed ? CAIRN_OK : code;
}

/* The save is known to the uploader of this link. */
static enum cairn_code tell_shards(struct cairn_client_stager *stager, uint32_t epoch,
                                   uint64_t deadline_ms, struct cairn_error *err) {
    CAIRN_TRY(send_shards(stager, epoch, deadline_ms, err));
    if (stager->sealed) return CAIRN_OK;
    stager->epoch = epoch; /* also where there are no shards */
    for (size_t i = 0; i < stager->arrangement.shard_count; i++)
        CAIRN_TRY(cairn_client_stager_send_staged(stager, i, err));
    return CAIRN_OK;
}

enum cairn_code cairn_client_stager_send_stage(struct cairn_client_stager *stager,
                                               uint64_t deadline_ms, struct cairn_error *err) {
    struct cairn_save *save = stager->save;
    struct cairn_session *session = stager->session;
    uint32_t epoch = 1; /* unused when alone */
    cairn_lock_take(&session->lock);
    enum cairn_code code =
        stager->alone ? CAIRN_OK : cairn_client_reach(session, false, deadline_ms, &epoch, err);
    bool known = save->id != 0;
    stager->sealed = !code && save->state.reached >= CAIRN_CLIENT_REACHED_STAGED;
    if (!code && save->problem.code) {
        code = save->problem.code;
        *err = save->problem;
    }
    cairn_lock_give(&session->lock);
    if (code || stager->sealed) return code;
    if (save->file_epoch && (stager->alone || save->file_epoch != epoch))
        return cairn_fail(err, CAIRN_SOURCE_GONE,
                          "the uploader was restarted and lost the files that it had been given");
    if (!known)
        CAIRN_TRY(cairn_client_save_begin_again(save, epoch, stager->alone, deadline_ms, err));
    CAIRN_TRY(cairn_client_streams_send(save, epoch, stager->alone, deadline_ms, err));
    if (stager->epoch != epoch || stager->alone) stager->told_count = 0;
    return tell_shards(stager, epoch, deadline_ms, err);
}

enum cairn_code cairn_client_stager_send_more(struct cairn_client_stager *stager,
                                              uint64_t deadline_ms, struct cairn_error *err) {
    if (stager->told_count == stager->arrangement.shard_count || !stager->epoch) return CAIRN_OK;
    return without_link(stager, tell_shards(stager, stager->epoch, deadline_ms, err));
}

enum cairn_code cairn_client_stager_replicated(const struct cairn_client_stager *stager,
                                               json_t **ret, struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *list = json_array();
    size_t bytes = 0;
    for (size_t i = 0; i < stager->save->piece_count; i++) {
        const struct cairn_client_piece *piece = &stager->save->pieces[i];
        char crc[16];
        if (piece->kind != CAIRN_TENSOR_REPLICATED || piece->in_file) continue;
        /* JSON escapes expand a name's byte to at most six. */
        bytes += 6 * strlen(piece->name) + 40;
        if (bytes > REPLICATED_JSON_BYTES_MAX) break;
        snprintf(crc, sizeof crc, "%08" PRIx32, piece->crc32c);
        if (json_array_append_new(list, CAIRN_PACK(replicated, .name = piece->name, .crc32c = crc)))
            return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the replicated checksums");
    }
    *ret = CAIRN_TAKE(list);
    return CAIRN_OK;
}

/* table: its name at the uploader since an earlier seal on this link; NULL: send it. */
static enum cairn_code call_seal(struct cairn_client_stager *stager, const char *table,
                                 uint64_t deadline_ms, struct cairn_error *err) {
    struct cairn_client_arrangement *arrangement = &stager->arrangement;
    CAIRN_AUTO(frame) answer = {0};
    struct cairn_msg_sealed told = {0};
    const struct cairn_client_request request = {
        CAIRN_CLIENT_REQUEST(seal, .save = (uint32_t)stager->save->id,
                             .replicated = stager->replicated, .table = table,
                             .labels = stager->save->labels, .meta = stager->save->meta,
                             .copy_threads = stager->how.threads,
                             .copy_rate = cairn_client_copied_rate(&stager->how),
                             .stale = stager->stale[0] ? stager->stale : NULL),
        .blob = table ? (struct cairn_view){0} : cairn_buf_view(&arrangement->table),
        .epoch = stager->epoch, .goes_on = true, .deadline_ms = deadline_ms};
    if (stager->alone) return call(stager, &request, err);
    CAIRN_TRY(cairn_client_call(stager->session, &request, &answer, err));
    arrangement->told_epoch = 0;
    if (cairn_msg_sealed_read(answer.message, "", &told, NULL) || !told.table) return CAIRN_OK;
    arrangement->told_epoch = stager->epoch;
    (void)cairn_text_copy(arrangement->table_name, sizeof arrangement->table_name, told.table);
    return CAIRN_OK;
}

static enum cairn_code send_seal(struct cairn_client_stager *stager, uint64_t deadline_ms,
                                 struct cairn_error *err) {
    if (stager->save->labels || stager->save->meta)
        CAIRN_TRY(cairn_client_meta_can_be_sealed(stager->session, err));
    cairn_lock_take(&stager->session->lock);
    bool again = stager->save->seal_sent;
    stager->save->seal_sent = true;
    cairn_lock_give(&stager->session->lock);
    const struct cairn_client_arrangement *arrangement = &stager->arrangement;
    bool there = stager->epoch && arrangement->told_epoch == stager->epoch && !stager->alone;
    enum cairn_code code =
        call_seal(stager, there ? arrangement->table_name : NULL, deadline_ms, err);
    if (there && code == CAIRN_NOT_FOUND) code = call_seal(stager, NULL, deadline_ms, err);
    return code == CAIRN_CONFLICT && again ? CAIRN_OK : code; /* as in send_stage */
}

enum cairn_code cairn_client_stager_send_all(struct cairn_client_stager *stager,
                                             uint64_t deadline_ms, struct cairn_error *err) {
    CAIRN_TRY(cairn_client_sound(stager->session, err));
    enum cairn_code code = CAIRN_OK;
    note_link(stager);
    if (!stager->epoch)
        code = cairn_client_stager_send_stage(stager, deadline_ms, err);
    else if (stager->told_count < stager->arrangement.shard_count)
        code = tell_shards(stager, stager->epoch, deadline_ms, err);
    if (!code && !stager->sealed) code = send_seal(stager, deadline_ms, err);
    return code;
}

/* ---- comparing blocks with the previous save's ---- */

void cairn_client_stale_release(struct cairn_client_stale *stale) {
    free(stale->blocks);
    free(stale->follows);
    *stale = (struct cairn_client_stale){0};
}

/* Starts a comparison; without memory nothing is compared. */
static void begin(struct cairn_client_stale *stale, uint64_t step, const uint32_t *blocks,
                  size_t count) {
    cairn_client_stale_release(stale);
    stale->blocks = malloc((count + 1) * sizeof *blocks);
    stale->follows = malloc(count + 1);
    if (!stale->blocks || !stale->follows) {
        cairn_client_stale_release(stale);
        return;
    }
    if (count) memcpy(stale->blocks, blocks, count * sizeof *blocks);
    memset(stale->follows, 1, count + 1);
    stale->count = count;
    stale->step = step;
}

void cairn_client_stale_look(struct cairn_save *save, const uint32_t *blocks, size_t count,
                             char ret_text[CAIRN_CLIENT_STALE_TEXT_BYTES]) {
    ret_text[0] = '\0';
    CAIRN_HOLD(&save->session->lock);
    struct cairn_client_saves *saves = save->session->saves;
    struct cairn_client_stale *stale = &saves->stale;
    size_t follow = 0, same = 0;
    if (!stale->blocks || stale->count != count) {
        begin(stale, save->step, blocks, count);
        return;
    }
    if (save->step == stale->step) return; /* the same step again is expected to be equal */
    for (size_t i = 0; i < count; i++) {
        follow += stale->follows[i];
        same += stale->follows[i] && blocks[i] == stale->blocks[i];
    }
    bool is_stale = stale->compared >= COMPARED_MIN && follow && 2 * same >= follow;
    if (is_stale)
        snprintf(ret_text, CAIRN_CLIENT_STALE_TEXT_BYTES,
                 "of %zu MiB that had changed in every save before, %zu are those of step %" PRIu64,
                 follow, same, stale->step);
    if (is_stale && !stale->is_stale)
        (void)cairn_fail(&saves->stale_warning, CAIRN_UNAVAILABLE,
                         "step %" PRIu64 " may be stale: %s; does the state that is saved follow "
                         "the training, or is it a copy that is not renewed?",
                         save->step, ret_text);
    for (size_t i = 0; i < count && !is_stale; i++)
        stale->follows[i] &= blocks[i] != stale->blocks[i];
    if (!is_stale) stale->compared++;
    stale->is_stale = is_stale;
    stale->step = save->step;
    if (count) memcpy(stale->blocks, blocks, count * sizeof *blocks);
}
