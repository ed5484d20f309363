/* SPDX-License-Identifier: Apache-2.0 */
/* What a save consists of: pieces, raw shards and files are checked and written down here; no
 * source byte is read. */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "api/dtype.h"
#include "client/save/begun.h"
#include "client/save/describe.h"
#include "client/save/fail.h"
#include "client/save/share.h"
#include "client/session/devices.h"
#include "client/session/options.h"
#include "common/array.h"
#include "common/encode.h"
#include "common/text.h"

#define PIECES_MAX (UINT32_C(1) << 21) /* a rank table has no more rows */

/* Notes that a description was refused: a handle that is then left unstaged loses its generation to
 * a later save (client/save/begin.c). */
static enum cairn_code misused(struct cairn_save *save, enum cairn_code code) {
    CAIRN_HOLD(&save->session->lock);
    save->misused = true;
    return code;
}

static enum cairn_code is_described(struct cairn_save *save, struct cairn_error *err) {
    CAIRN_HOLD(&save->session->lock);
    if (cairn_client_save_over(save) && save->problem.code)
        return cairn_client_save_problem(save, err);
    if (save->state.phase != CAIRN_CLIENT_PHASE_COUNTED)
        return cairn_fail(err, CAIRN_INVALID, "%s step %" PRIu64 ": it was staged already",
                          save->session->run, save->step);
    return CAIRN_OK;
}

/* ---- tensors ---- */

static enum cairn_code check_source(const struct cairn_tensor_piece *from,
                                    const struct cairn_client_piece *piece,
                                    struct cairn_error *err) {
    int places = (from->source != NULL) + (from->fill != NULL) + (from->in_file != NULL);
    if (places > 1)
        return cairn_fail(err, CAIRN_INVALID, "one of source, fill and in_file gives the bytes");
    if (from->source_bytes != piece->bytes && (!from->in_file || from->source_bytes))
        return cairn_fail(err, CAIRN_INVALID,
                          "the source has %" PRIu64 " bytes, the piece has %" PRIu64,
                          from->source_bytes, piece->bytes);
    if (piece->bytes && !places) return cairn_fail(err, CAIRN_INVALID, "there is no source");
    if (from->source_stride && places && !from->source)
        return cairn_fail(err, CAIRN_INVALID, "strides are of a source in memory");
    if (piece->kind == CAIRN_TENSOR_REPLICATED && piece->bytes != piece->tensor_bytes)
        return cairn_fail(err, CAIRN_INVALID, "a replicated tensor is given as a whole");
    return CAIRN_OK;
}

/* A source whose strides are those of contiguous memory is copied as such. */
static enum cairn_code read_strides(const struct cairn_tensor_piece *from,
                                    struct cairn_client_piece *ret, struct cairn_error *err) {
    struct cairn_strided strided;
    bool flat = from->form == CAIRN_FLAT;
    const uint64_t *count = from->form == CAIRN_WHOLE ? ret->shape : ret->fragment.count;
    unsigned bits = cairn_dtype_bits(ret->dtype);
    if (!from->source_stride || !ret->bytes) return CAIRN_OK;
    if (bits % 8 || !cairn_strided_make(bits / 8, flat ? 1 : ret->dimension_count, count,
                                        from->source_stride, &strided))
        return cairn_fail(err, CAIRN_INVALID,
                          "strides need elements of whole bytes, and places that memory can have");
    if (cairn_strided_is_contiguous(&strided)) return CAIRN_OK;
    ret->strided = malloc(sizeof *ret->strided);
    if (!ret->strided) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the strides");
    *ret->strided = strided;
    return CAIRN_OK;
}

static enum cairn_code describe(const struct cairn_tensor_piece *from,
                                struct cairn_client_piece *ret, struct cairn_error *err) {
    uint64_t elements = 0;
    if (from->kind < CAIRN_SHARDED || from->kind > CAIRN_LOCAL)
        return cairn_fail(err, CAIRN_INVALID, "kind %d is unknown", (int)from->kind);
    ret->kind = (enum cairn_tensor_kind)from->kind;
    CAIRN_TRY(cairn_client_piece_shape(from, ret, &elements, err));
    if (from->kind == CAIRN_ALIAS) {
        if (from->source || from->fill || from->in_file || from->source_bytes)
            return cairn_fail(err, CAIRN_INVALID, "an alias has no bytes of its own");
        return cairn_client_piece_name(from->alias_of, err);
    }
    if (from->alias_of) return cairn_fail(err, CAIRN_INVALID, "alias_of is for aliases only");
    CAIRN_TRY(cairn_client_piece_form(from, elements, ret, err));
    CAIRN_TRY(check_source(from, ret, err));
    return read_strides(from, ret, err);
}

static enum cairn_code read_memory(struct cairn_session *session,
                                   const struct cairn_tensor_piece *from,
                                   struct cairn_client_piece *ret, struct cairn_error *err) {
    if (from->memory == CAIRN_MEMORY_HOST) return CAIRN_OK;
    if (from->memory != CAIRN_MEMORY_CUDA || (ret->bytes && !from->source))
        return cairn_fail(err, CAIRN_INVALID, "memory %d has no source that is read from it",
                          (int)from->memory);
    ret->on_device = true;
    ret->stream = from->stream;
    return cairn_client_device_need(session, ret->bytes ? from->source : NULL, err);
}

static bool copy_owned(const struct cairn_tensor_piece *from, struct cairn_client_piece *made) {
    const struct cairn_strided *strided = made->strided;
    made->name = strdup(from->name);
    made->alias_of = from->kind == CAIRN_ALIAS ? strdup(from->alias_of) : NULL;
    made->in_file = from->in_file ? strdup(from->in_file) : NULL;
    made->strided = strided ? malloc(sizeof *strided) : NULL;
    if (made->strided) *made->strided = *strided;
    return made->name && (made->alias_of || from->kind != CAIRN_ALIAS) &&
           (made->in_file || !from->in_file) && (made->strided || !strided);
}

/* made: what it owns is copied. */
static enum cairn_code add_piece(struct cairn_save *save, const struct cairn_tensor_piece *from,
                                 struct cairn_client_piece made, struct cairn_error *err) {
    CAIRN_TRY(CAIRN_ARRAY_ROOM(save->pieces, save->piece_count, save->piece_capacity, PIECES_MAX,
                               "pieces", err));
    if (!copy_owned(from, &made)) {
        free(made.name);
        free(made.alias_of);
        free(made.in_file);
        free(made.strided);
        return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a piece");
    }
    save->pieces[save->piece_count++] = made;
    return CAIRN_OK;
}

/* The piece, or this rank's share of it where a replica group has listed it. */
static enum cairn_code add_pieces(struct cairn_save *save, const struct cairn_tensor_piece *from,
                                  const struct cairn_client_piece *made, struct cairn_error *err) {
    struct cairn_client_piece parts[CAIRN_PLAN_SPLIT_FRAGMENTS_MAX], named = *made;
    bool listed = false;
    unsigned count = 0;
    named.name = (char *)(uintptr_t)from->name;
    CAIRN_TRY(cairn_client_shares_cut(&save->shares, &named, &listed, parts, &count, err));
    if (!listed) return add_piece(save, from, *made, err);
    for (unsigned i = 0; i < count; i++) CAIRN_TRY(add_piece(save, from, parts[i], err));
    return CAIRN_OK;
}

enum cairn_code cairn_save_tensor(struct cairn_save *save, const struct cairn_tensor_piece *piece,
                                  struct cairn_error *err) {
    CAIRN_CLIENT_SAVE_CALL(save, err);
    CAIRN_TRY(is_described(save, err));
    struct cairn_tensor_piece own;
    if (!piece) return cairn_fail(err, misused(save, CAIRN_INVALID), "no piece");
    enum cairn_code code = CAIRN_CLIENT_OPTIONS(piece, &own, err);
    if (!code) code = cairn_client_piece_name(own.name, err);
    if (code) return misused(save, code);
    piece = &own;
    struct cairn_client_piece made = {.source = piece->source,
                                      .fill = piece->fill,
                                      .fill_owner = piece->fill_owner,
                                      .file_offset = piece->file_offset};
    code = describe(piece, &made, err);
    if (!code) code = read_memory(save->session, piece, &made, err);
    if (!code) code = add_pieces(save, piece, &made, err);
    free(made.strided);
    return code ? cairn_within(err, misused(save, code), "tensor %s", piece->name) : CAIRN_OK;
}

/* ---- raw shards and files ---- */

static enum cairn_code add_raw(struct cairn_save *save, struct cairn_client_raw raw,
                               struct cairn_error *err) {
    enum cairn_code code = cairn_shard_name_check(cairn_view_of(raw.name), err);
    if (!code) code = cairn_shard_names_add(&save->raw_names, cairn_view_of(raw.name), err);
    if (!code)
        code = CAIRN_ARRAY_ROOM(save->raws, save->raw_count, save->raw_capacity, PIECES_MAX,
                                "raw shards and files", err);
    if (code) {
        code = cairn_within(err, misused(save, code), "shard %s", raw.name);
        free(raw.name);
        return code;
    }
    save->raws[save->raw_count++] = raw;
    return CAIRN_OK;
}

enum cairn_code cairn_save_raw(struct cairn_save *save, const char *name, const void *source,
                               uint64_t bytes, struct cairn_error *err) {
    CAIRN_CLIENT_SAVE_CALL(save, err);
    CAIRN_TRY(is_described(save, err));
    if (!name || (bytes && !source))
        return cairn_fail(err, misused(save, CAIRN_INVALID),
                          "a raw shard needs a name and a source");
    char *stored = NULL;
    if (asprintf(&stored, "rank-%05" PRIu32 "/%s", save->session->rank, name) < 0)
        return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a shard name");
    return add_raw(save, (struct cairn_client_raw){stored, source, bytes, false}, err);
}

static enum cairn_code check_file(int fd, uint64_t bytes, struct cairn_error *err) {
    struct stat found;
    if (fstat(fd, &found) != 0) return cairn_fail_errno(err, "look at descriptor %d", fd);
    int flags = fcntl(fd, F_GETFL);
    if (!S_ISREG(found.st_mode) || flags < 0 || (flags & O_ACCMODE) == O_WRONLY || (flags & O_PATH))
        return cairn_fail(err, CAIRN_INVALID, "descriptor %d is no regular file open for reading",
                          fd);
    if ((uint64_t)found.st_size != bytes)
        return cairn_fail(err, CAIRN_SOURCE_CHANGED,
                          "the file has %" PRIu64 " of %" PRIu64 " bytes", (uint64_t)found.st_size,
                          bytes);
    return CAIRN_OK;
}

/* The uploader's own descriptor outlives ours, so it is handed over at once and not kept here: a
 * tree of ten thousand files needs no ten thousand descriptors in the trainer. */
static enum cairn_code send_file(struct cairn_save *save, const char *name, int fd, uint64_t bytes,
                                 struct cairn_error *err) {
    struct cairn_session *session = save->session;
    cairn_lock_take(&session->lock);
    uint32_t epoch = session->locked.epoch;
    cairn_lock_give(&session->lock);
    if (save->file_epoch && save->file_epoch != epoch)
        return cairn_fail(err, CAIRN_SOURCE_GONE,
                          "the uploader was restarted and lost the files that it had been given");
    uint64_t deadline_ms = cairn_client_deadline(session, 0);
    if (!save->id) /* begun while the uploader was away */
        CAIRN_TRY(cairn_client_save_begin_again(save, epoch, false, deadline_ms, err));
    const struct cairn_client_request request = {
        CAIRN_CLIENT_REQUEST(file, .save = (uint32_t)save->id, .name = name, .bytes = bytes),
        .fds = &fd, .fd_count = 1, .epoch = epoch, .deadline_ms = deadline_ms};
    CAIRN_TRY(cairn_client_call(session, &request, NULL, err));
    save->file_epoch = epoch;
    return CAIRN_OK;
}

enum cairn_code cairn_save_file(struct cairn_save *save, const char *name, int fd, uint64_t bytes,
                                struct cairn_error *err) {
    CAIRN_CLIENT_SAVE_CALL(save, err);
    CAIRN_TRY(is_described(save, err));
    if (!name || bytes > (UINT64_C(1) << 62))
        return cairn_fail(err, misused(save, CAIRN_INVALID),
                          "a file shard needs a name and a size");
    enum cairn_code code = check_file(fd, bytes, err);
    if (code) return cairn_within(err, misused(save, code), "shard %s", name);
    char *stored = strdup(name);
    if (!stored) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a shard name");
    CAIRN_TRY(add_raw(save, (struct cairn_client_raw){stored, NULL, bytes, true}, err));
    code = send_file(save, name, fd, bytes, err);
    if (!code) return CAIRN_OK;
    (void)cairn_within(err, code, "shard %s", name);
    return cairn_client_save_fail(save, code, err);
}
