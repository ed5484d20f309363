/* SPDX-License-Identifier: Apache-2.0 */
/* What a save consists of: pieces, raw shards and files are checked and written down here; no
 * source byte is read. */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <cairn/pieces.h>

#include "api/table/dtype.h"
#include "client/save/begun.h"
#include "client/save/describe.h"
#include "client/save/fail.h"
#include "client/save/pieces.h"
#include "client/save/share.h"
#include "client/save/stager.h"
#include "client/session/devices.h"
#include "client/session/options.h"
#include "common/buf.h"
#include "common/text.h"
#include "formats/convert.h"

#define PIECES_MAX (UINT32_C(1) << 21) /* a rank table has no more rows */

/* A handle that is then left unstaged loses its generation to a later save
 * (client/save/begin.c). */
enum cairn_code cairn_client_save_misused(struct cairn_save *save, enum cairn_code code) {
    CAIRN_HOLD(&save->session->lock);
    save->misused = true;
    return code;
}

/* Between place and copy nothing is added, and after the copy no file and nothing that the caller
 * writes into the slab. */
enum cairn_code cairn_client_save_extensible(struct cairn_save *save, bool early_only,
                                             struct cairn_error *err) {
    if (!save->kept) return CAIRN_OK;
    if (!save->kept->copied)
        return cairn_fail(err, CAIRN_INVALID,
                          "its places are given out; what is added comes after the copy");
    if (early_only) return cairn_fail(err, CAIRN_INVALID, "the others are copied already");
    return cairn_client_speaks(save->session, CAIRN_CLIENT_VERSION_OF_MORE,
                               "what is added after the copy", err);
}

/* ---- tensors ---- */

/* Bytes of a source of as many elements as have these bytes where they are stored. */
static uint64_t source_bytes(const struct cairn_client_piece *piece, uint64_t bytes) {
    if (piece->source_dtype == piece->dtype) return bytes;
    return bytes / (cairn_dtype_bits(piece->dtype) / 8) *
           (cairn_dtype_bits(piece->source_dtype) / 8);
}

static enum cairn_code read_source_dtype(const struct cairn_tensor_piece *from,
                                         struct cairn_client_piece *ret, struct cairn_error *err) {
    ret->source_dtype = ret->dtype;
    if (!from->source_dtype) return CAIRN_OK;
    if (!cairn_dtype_parse(cairn_view_of(from->source_dtype), &ret->source_dtype) ||
        !cairn_convertible(ret->source_dtype, ret->dtype))
        return cairn_fail(err, CAIRN_INVALID, "elements of %.32s are not stored as %s",
                          from->source_dtype, from->dtype);
    if (ret->source_dtype == ret->dtype) return CAIRN_OK;
    if (from->fill || from->in_file || from->by_caller)
        return cairn_fail(err, CAIRN_INVALID,
                          "what fill or the caller writes and what a file has is stored as it is");
    if (ret->bytes > UINT64_MAX / 8)
        return cairn_fail(err, CAIRN_TOO_LARGE, "the source is larger than any memory");
    return CAIRN_OK;
}

static enum cairn_code check_source(const struct cairn_tensor_piece *from,
                                    const struct cairn_client_piece *piece,
                                    struct cairn_error *err) {
    int places = (from->source != NULL) + (from->fill != NULL) + (from->in_file != NULL) +
                 (from->by_caller != 0);
    bool sized = !from->in_file && !from->by_caller;
    if (places > 1)
        return cairn_fail(err, CAIRN_INVALID,
                          "one of source, fill, in_file and by_caller gives the bytes");
    uint64_t bytes = source_bytes(piece, piece->bytes);
    if (from->source_bytes != bytes && (sized || from->source_bytes))
        return cairn_fail(err, CAIRN_INVALID,
                          "the source has %" PRIu64 " bytes, the piece has %" PRIu64,
                          from->source_bytes, bytes);
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
    unsigned bits = cairn_dtype_bits(ret->source_dtype);
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
        if (from->source || from->fill || from->in_file || from->by_caller || from->source_bytes)
            return cairn_fail(err, CAIRN_INVALID, "an alias has no bytes of its own");
        return cairn_client_piece_name(from->alias_of, err);
    }
    if (from->alias_of) return cairn_fail(err, CAIRN_INVALID, "alias_of is for aliases only");
    CAIRN_TRY(cairn_client_piece_form(from, elements, ret, err));
    CAIRN_TRY(read_source_dtype(from, ret, err));
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
    CAIRN_TRY(cairn_client_device_need(session, ret->bytes ? from->source : NULL, err));
    if (!ret->bytes || ret->source_dtype == ret->dtype) return CAIRN_OK;
    return cairn_client_device_converts(session, from->source, ret->source_dtype, ret->dtype, err);
}

/* False: there is no memory; what was kept goes with the save. */
static bool keep(struct cairn_client_texts *texts, char **text) {
    if (!*text) return true;
    *text = cairn_client_texts_keep(texts, *text);
    return *text != NULL;
}

enum cairn_code cairn_client_pieces_append(struct cairn_save *save,
                                           const struct cairn_client_piece *piece,
                                           struct cairn_error *err) {
    CAIRN_TRY(CAIRN_ARRAY_ROOM(save->pieces, save->piece_count, save->piece_capacity, PIECES_MAX,
                               "pieces", err));
    struct cairn_client_piece *made = &save->pieces[save->piece_count];
    *made = *piece;
    if (piece->strided) made->strided = malloc(sizeof *made->strided);
    if (!keep(&save->texts, &made->name) || !keep(&save->texts, &made->alias_of) ||
        !keep(&save->texts, &made->in_file) || (piece->strided && !made->strided)) {
        if (piece->strided) free(made->strided);
        return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a piece");
    }
    if (piece->strided) *made->strided = *piece->strided;
    made->late = save->kept && save->kept->copied;
    save->piece_count++;
    return CAIRN_OK;
}

/* The piece, or this rank's share of it where a replica group has listed it. */
static enum cairn_code add_pieces(struct cairn_save *save, const struct cairn_client_piece *made,
                                  struct cairn_error *err) {
    struct cairn_client_piece parts[CAIRN_PLAN_SPLIT_FRAGMENTS_MAX];
    bool listed = false;
    unsigned count = 0;
    if (!save->shares.count) return cairn_client_pieces_append(save, made, err);
    CAIRN_TRY(cairn_client_shares_cut(&save->shares, made, &listed, parts, &count, err));
    if (!listed) return cairn_client_pieces_append(save, made, err);
    for (unsigned i = 0; i < count; i++)
        CAIRN_TRY(cairn_client_pieces_append(save, &parts[i], err));
    return CAIRN_OK;
}

/* One region of what the caller describes; `from` of the source's bytes lie before it. */
static enum cairn_code add_region(struct cairn_save *save, const struct cairn_tensor_piece *region,
                                  uint64_t from, struct cairn_error *err) {
    struct cairn_client_piece made = {.name = (char *)(uintptr_t)region->name,
                                      .alias_of = (char *)(uintptr_t)region->alias_of,
                                      .in_file = (char *)(uintptr_t)region->in_file,
                                      .source = region->source,
                                      .by_caller = region->by_caller != 0,
                                      .fill = region->fill,
                                      .fill_owner = region->fill_owner,
                                      .source_from = region->fill ? from : 0,
                                      .file_offset = region->file_offset};
    enum cairn_code code = describe(region, &made, err);
    if (!code) code = read_memory(save->session, region, &made, err);
    if (!code) code = add_pieces(save, &made, err);
    free(made.strided);
    return code;
}

static enum cairn_code check_regions(const struct cairn_save *save,
                                     const struct cairn_tensor_piece *piece,
                                     struct cairn_error *err) {
    bool formed = piece->form == CAIRN_FLAT || piece->form == CAIRN_BOX;
    if (!formed || !piece->start || !piece->count || piece->source_stride || piece->source_dtype ||
        (piece->kind != CAIRN_SHARDED && piece->kind != CAIRN_LOCAL))
        return cairn_fail(err, CAIRN_INVALID,
                          "several regions are flat ranges or boxes with start and count, of a "
                          "sharded or local tensor, from contiguous memory of its own type");
    if (cairn_client_shares_list(&save->shares, piece->name))
        return cairn_fail(err, CAIRN_INVALID, "a tensor that a split has listed is one region");
    return CAIRN_OK;
}

/* What the regions have together is what the source has; on an error nothing of them is kept. */
static enum cairn_code add_regions(struct cairn_save *save, const struct cairn_tensor_piece *piece,
                                   struct cairn_error *err) {
    uint32_t step = piece->form == CAIRN_FLAT ? 1 : piece->dimension_count;
    uint64_t bytes = 0, source_bytes = piece->source_bytes;
    bool sized = !piece->in_file && !piece->by_caller;
    CAIRN_TRY(check_regions(save, piece, err));
    for (uint32_t i = 0; i < piece->region_count; i++) {
        struct cairn_client_piece read = {0};
        struct cairn_tensor_piece region = *piece;
        uint64_t elements = 0;
        region.start += (size_t)i * step;
        region.count += (size_t)i * step;
        CAIRN_TRY(cairn_client_piece_shape(&region, &read, &elements, err));
        CAIRN_TRY(cairn_client_piece_form(&region, elements, &read, err));
        if (cairn_add_overflows(bytes, read.bytes, &bytes))
            return cairn_fail(err, CAIRN_INVALID, "the regions have too many bytes");
        uint64_t from = bytes - read.bytes;
        if (source_bytes < bytes && (sized || source_bytes)) break;
        region.source_bytes = source_bytes ? read.bytes : 0;
        if (region.source) region.source = (const uint8_t *)region.source + from;
        region.file_offset += region.in_file ? from : 0;
        CAIRN_TRY(add_region(save, &region, from, err));
    }
    if (bytes == source_bytes || (!sized && !source_bytes)) return CAIRN_OK;
    return cairn_fail(err, CAIRN_INVALID,
                      "the source has %" PRIu64 " bytes, the regions have %s%" PRIu64, source_bytes,
                      bytes > source_bytes ? "at least " : "", bytes);
}

static enum cairn_code add_tensor(struct cairn_save *save, const struct cairn_tensor_piece *piece,
                                  struct cairn_error *err) {
    size_t before = save->piece_count;
    CAIRN_TRY(cairn_client_save_extensible(save, piece->by_caller || piece->in_file, err));
    enum cairn_code code = piece->region_count <= 1 ? add_region(save, piece, 0, err)
                                                    : add_regions(save, piece, err);
    for (size_t i = before; i < save->piece_count && !code; i++) {
        struct cairn_client_piece *made = &save->pieces[i];
        made->source_index = save->source_count;
        if (made->source)
            made->source_offset = (uint64_t)((uintptr_t)made->source - (uintptr_t)piece->source);
    }
    if (!code) save->source_count++;
    while (code && save->piece_count > before) free(save->pieces[--save->piece_count].strided);
    return code;
}

/* One of an array whose first has the size. */
static enum cairn_code read_one(const struct cairn_tensor_piece *pieces, size_t index,
                                struct cairn_tensor_piece *ret, struct cairn_error *err) {
    const uint8_t *at = (const uint8_t *)pieces + index * pieces->size;
    if (memcmp(at, &pieces->size, sizeof pieces->size) != 0)
        return cairn_fail(err, CAIRN_INVALID, "piece %zu: the size of its struct differs", index);
    CAIRN_TRY(cairn_client_options(at, ret, sizeof *ret, "piece", err));
    return cairn_client_piece_name(ret->name, err);
}

enum cairn_code cairn_client_pieces_add(struct cairn_save *save,
                                        const struct cairn_tensor_piece *pieces, size_t count,
                                        size_t *ret_bad, struct cairn_error *err) {
    size_t before = save->piece_count, done = 0;
    uint32_t sources_before = save->source_count;
    struct cairn_tensor_piece own;
    enum cairn_code code = CAIRN_OK;
    if (count && !pieces) return cairn_fail(err, CAIRN_INVALID, "no piece");
    if (count > 1) /* at once, since what is there would move each time that it grows */
        CAIRN_TRY(CAIRN_ARRAY_ROOM_FOR(save->pieces, save->piece_count, count,
                                       save->piece_capacity, PIECES_MAX, "pieces", err));
    for (; done < count; done++) {
        code = read_one(pieces, done, &own, err);
        if (code) break;
        code = add_tensor(save, &own, err);
        if (!code) continue;
        code = cairn_within(err, code, "tensor %s", own.name);
        break;
    }
    if (!code) return CAIRN_OK;
    *ret_bad = done;
    while (save->piece_count > before) free(save->pieces[--save->piece_count].strided);
    while (save->shares.count && done-- > 0)
        if (read_one(pieces, done, &own, NULL) == CAIRN_OK)
            cairn_client_shares_forget(&save->shares, own.name);
    save->source_count = sources_before;
    return cairn_client_save_misused(save, code);
}

enum cairn_code cairn_save_tensor(struct cairn_save *save, const struct cairn_tensor_piece *piece,
                                  struct cairn_error *err) {
    CAIRN_CLIENT_SAVE_OWN_CALL(save, err);
    CAIRN_TRY(cairn_client_save_describable(save, err));
    size_t bad = 0;
    if (!piece) return cairn_fail(err, cairn_client_save_misused(save, CAIRN_INVALID), "no piece");
    return cairn_client_pieces_add(save, piece, 1, &bad, err);
}

enum cairn_code cairn_save_tensors(struct cairn_save *save, const struct cairn_tensor_piece *pieces,
                                   size_t count, size_t *ret_bad, struct cairn_error *err) {
    CAIRN_CLIENT_SAVE_OWN_CALL(save, err);
    CAIRN_TRY(cairn_client_save_describable(save, err));
    size_t bad = 0;
    if (count && !pieces)
        return cairn_fail(err, cairn_client_save_misused(save, CAIRN_INVALID), "no pieces");
    enum cairn_code code = cairn_client_pieces_add(save, pieces, count, &bad, err);
    if (!code) return CAIRN_OK;
    if (ret_bad) *ret_bad = bad;
    return cairn_within(err, code, "piece %zu", bad);
}

/* ---- raw shards and files ---- */

static enum cairn_code add_raw(struct cairn_save *save, struct cairn_client_raw raw,
                               struct cairn_error *err) {
    enum cairn_code code = cairn_client_save_extensible(save, raw.file, err);
    if (!code) code = cairn_shard_name_check(cairn_view_of(raw.name), err);
    if (!code) code = cairn_shard_names_add(&save->raw_names, cairn_view_of(raw.name), err);
    if (!code)
        code = CAIRN_ARRAY_ROOM(save->raws, save->raw_count, save->raw_capacity, PIECES_MAX,
                                "raw shards and files", err);
    if (code) {
        code = cairn_within(err, cairn_client_save_misused(save, code), "shard %s", raw.name);
        free(raw.name);
        return code;
    }
    raw.source_index = save->source_count++;
    save->raws[save->raw_count++] = raw;
    return CAIRN_OK;
}

enum cairn_code cairn_client_raws_append(struct cairn_save *save,
                                         const struct cairn_client_raw *raw,
                                         struct cairn_error *err) {
    struct cairn_client_raw made = *raw;
    made.name = strdup(raw->name);
    if (!made.name) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a shard name");
    return add_raw(save, made, err);
}

enum cairn_code cairn_save_raw(struct cairn_save *save, const char *name, const void *source,
                               uint64_t bytes, struct cairn_error *err) {
    CAIRN_CLIENT_SAVE_OWN_CALL(save, err);
    CAIRN_TRY(cairn_client_save_describable(save, err));
    if (!name || (bytes && !source))
        return cairn_fail(err, cairn_client_save_misused(save, CAIRN_INVALID),
                          "a raw shard needs a name and a source");
    char *stored = NULL;
    if (asprintf(&stored, "rank-%05" PRIu32 "/%s", save->session->rank, name) < 0)
        return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a shard name");
    const struct cairn_client_raw raw = {.name = stored, .source = source, .bytes = bytes};
    return add_raw(save, raw, err);
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
    uint64_t deadline_ms = cairn_client_deadline(session, 0);
    uint32_t epoch = 0;
    cairn_lock_take(&session->lock);
    enum cairn_code code = CAIRN_OK;
    if (!save->id) code = cairn_client_reach_next(session, deadline_ms, &epoch, err);
    epoch = session->locked.epoch;
    cairn_lock_give(&session->lock);
    CAIRN_TRY(code);
    if (save->file_epoch && save->file_epoch != epoch)
        return cairn_fail(err, CAIRN_SOURCE_GONE,
                          "the uploader was restarted and lost the files that it had been given");
    if (!save->id) /* begun while the uploader was away, or stopping */
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
    CAIRN_CLIENT_SAVE_OWN_CALL(save, err);
    CAIRN_TRY(cairn_client_save_describable(save, err));
    if (!name || bytes > (UINT64_C(1) << 62))
        return cairn_fail(err, cairn_client_save_misused(save, CAIRN_INVALID),
                          "a file shard needs a name and a size");
    enum cairn_code code = check_file(fd, bytes, err);
    if (code) return cairn_within(err, cairn_client_save_misused(save, code), "shard %s", name);
    char *stored = strdup(name);
    if (!stored) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a shard name");
    const struct cairn_client_raw raw = {.name = stored, .bytes = bytes, .file = true};
    CAIRN_TRY(add_raw(save, raw, err));
    code = send_file(save, name, fd, bytes, err);
    if (!code) return CAIRN_OK;
    (void)cairn_within(err, code, "shard %s", name);
    return cairn_client_save_fail(save, code, err);
}
